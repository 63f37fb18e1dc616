"""Parts on the workers of a Dask cluster.

Parts, blocks and row vectors are futures: they stay on the workers that made them, and those of a lost worker are made
again. Dask needs milliseconds per task, so the parts on a worker form *groups*, with one task for all parts of a group.
A task is a pure function of its parts, one after the other. Sums are added in a binary tree over the numbers of the
parts, so they have the same bits for any grouping and any number of workers. Nothing is pinned to a worker, and no
messages are sent outside of Dask. The solver runs in the process of the client.
"""

import functools
import importlib
import itertools
import math
import operator
import pickle
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gaussguru._native._binding import CleanExit
from gaussguru._rows.rows import RowVector, Step, T, Task, added
from gaussguru._rows.streams import PartStep, Some, itself
from gaussguru._rows.threads import SingleBlas
from gaussguru._utils.linalg import aligned
from gaussguru._utils.types import Values

# Objects of Dask, whose types are incomplete.
Client: TypeAlias = Any
Future: TypeAlias = Any

# Number of sums that one task of the tree adds, and most parts in a group: an interrupt waits for one task.
FAN = 16
# Seconds without any worker after which the fit is given up.
LOST_SECONDS = 30.0


class ClusterLostError(RuntimeError):
    """The cluster has no workers left, or cannot be reached."""


def find_client(client: Client = None) -> Client:
    """Return a client, or the current one, or None if there is none."""
    if client is not None:
        return client
    try:
        return importlib.import_module("distributed").default_client()
    except (ImportError, ValueError):
        return None


class Session(CleanExit):
    """The futures of a fit on a cluster; all are released when the fit ends or fails."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._live: weakref.WeakSet[Future] = weakref.WeakSet()

    def acquire(self) -> "Session":
        """Return the session."""
        return self

    def release(self) -> None:
        """Release all futures; the scheduler then forgets them, computed or not.

        They are not cancelled: a scheduler that cancels a task while forgetting it may fail an assertion (Dask 2026.8,
        ``stimulus_cancel``) and close the connection to the client.
        """
        futures = list(self._live)
        self._live.clear()
        for future in futures:
            future.release()

    def compute(self, delayed: Sequence[object]) -> list[Future]:
        """Return futures of delayed tasks."""
        return self._noted(self.client.compute(list(delayed), optimize_graph=True))

    def map(self, function: Step, name: str, *arguments: Sequence[object], **shared: Any) -> list[Future]:
        """Return futures of ``function(*arguments of each index, **shared)``."""
        return self._noted(self.client.map(function, *arguments, pure=False, key=f"guru-{name}", **shared))

    def sent(self, value: object) -> Future:
        """Return a future of a value; it is part of its task, so a lost copy is made again."""
        key = f"guru-shared-{id(value)}-{time.time_ns()}"
        return self._noted([self.client.submit(itself, value, pure=False, key=key)])[0]

    def _noted(self, futures: list[Future]) -> list[Future]:
        self._live.update(futures)
        return futures

    def received(self, futures: list[Future]) -> list[Any]:
        """Return results; raise the error of a failed task, or :class:`ClusterLostError`."""
        self._wait(futures)
        try:
            results: list[Any] = self.client.gather(futures)
        except _lost_errors() as error:
            raise ClusterLostError(_lost(error)) from error
        return results

    def groups(self, futures: list[Future]) -> list["Group"]:
        """Return the indices of futures, grouped by worker: at least one group per thread of the worker."""
        self._wait(futures)
        try:
            holders, threads = self.client.who_has(futures), self.client.nthreads()
        except (OSError, TimeoutError, CancelledError) as error:
            raise ClusterLostError(_lost(error)) from error
        by_worker = defaultdict(list)
        for index, future in enumerate(futures):
            by_worker[min(holders.get(future.key) or ("",))].append(index)
        groups = []
        for worker, members in by_worker.items():
            n_groups = min(len(members), max(threads.get(worker, 1), math.ceil(len(members) / FAN)))
            groups += [part.tolist() for part in np.array_split(members, n_groups)]
        return sorted(groups)

    def _wait(self, futures: list[Future]) -> None:
        """Wait until all tasks have finished or failed; raise if the cluster is lost."""
        wait = importlib.import_module("distributed").wait
        missing_since = None
        while True:
            try:
                with self.client.as_current():  # ``wait`` asks the current client
                    wait(futures, timeout=2.0)
                break
            except TimeoutError:
                if self._n_workers():
                    missing_since = None
                    continue
                missing_since = missing_since or time.monotonic()
                if time.monotonic() - missing_since > LOST_SECONDS:
                    raise ClusterLostError(
                        f"the Dask cluster has had no workers for {LOST_SECONDS:g} seconds; the fit was given up"
                    ) from None
            except _lost_errors() as error:
                raise ClusterLostError(_lost(error)) from error

    def _n_workers(self) -> int:
        if self.client.status not in ("running", "connecting"):
            raise ClusterLostError(f"the client of the Dask cluster is {self.client.status}; the fit was given up")
        try:
            return len(self.client.nthreads())
        except (OSError, TimeoutError) as error:
            raise ClusterLostError(_lost(error)) from error


def _lost_errors() -> tuple[type[BaseException], ...]:
    names = {"client": "FutureCancelledError", "comm.core": "CommClosedError", "scheduler": "KilledWorker"}
    errors = [getattr(importlib.import_module(f"distributed.{module}"), name) for module, name in names.items()]
    return (CancelledError, *errors)


def _lost(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return f"workers of the Dask cluster die with the same task each time; is there too little memory? {error}"
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"the Dask cluster was lost, or the tasks of this fit were cancelled: {reason}"


# Numbers of the parts that one task works on.
Group: TypeAlias = list[int]
# Sums of runs of ``2**level`` parts, by ``(level, number of the run)``.
Runs: TypeAlias = dict[tuple[int, int], Any]
# Arguments that all parts share.
Shared: TypeAlias = dict[str, object]


class Slot(NamedTuple):
    """Entries of a row vector for a group: the result of a task, or its ``half``, then items ``path`` of each entry."""

    future: Future
    half: int | None = None
    path: tuple[int, ...] = ()


class Slots(list[Slot]):
    """A row vector on the cluster: a slot for each group."""


@dataclass(frozen=True)
class Cluster:
    """Items on a cluster; see :class:`gaussguru._rows.streams.LocalParts`."""

    session: Session
    items: list[Future]  # of each group
    groups: list[Group]
    steps: tuple[PartStep, ...] = ()  # applied to the items in every task, not kept

    @classmethod
    def of(cls, session: Session, parts: list[Future]) -> "Cluster":
        """Return futures of parts as items."""
        groups = session.groups(parts)
        return cls(session, [[parts[number] for number in group] for group in groups], groups)

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def each(self, task: Step, /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> RowVector:
        return Slots(Slot(future) for future in self._run(_listed, task, vectors, shared))

    def collected(
        self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, some: Some = None, **shared: object
    ) -> list[T]:
        groups = self._chosen(range(len(self)) if some is None else some)
        return self._in_order(self.session.received(self._run(_listed, task, vectors, shared, groups)), groups)

    def total(self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> T:
        total: T = self._summed(self._run(_in_runs, task, vectors, shared))
        return total

    def both(self, task: Task[tuple[object, T]], /, *vectors: RowVector, **shared: object) -> tuple[RowVector, T]:
        futures = self._run(_listed_and_in_runs, task, vectors, shared)
        # The second halves are tasks of their own: adding them moves no row vectors.
        total: T = self._summed(self.session.map(_second, "sums", futures))
        return Slots(Slot(future, 0) for future in futures), total

    def then(
        self, make: Step, /, *vectors: RowVector, bare: Step | None = None, kept: bool = True, **shared: object
    ) -> "Cluster":
        if self.steps or not kept:
            return replace(self, steps=(*self.steps, PartStep(make, vectors, shared)))
        return replace(self, items=self._run(_listed, make, vectors, shared))

    def chosen(self, indices: Sequence[int], *vectors: RowVector) -> tuple["Cluster", list[RowVector]]:
        groups = self._chosen(indices)
        used, where = self._used(groups)

        def of_chosen(vector: RowVector) -> RowVector:
            if not isinstance(vector, Slots):
                return [vector[index] for index in indices]
            slots = [vector[number] for number in used]
            futures = self.session.map(_picked, "chosen", [slot.future for slot in slots], where, half=slots[0].half)
            return Slots(Slot(future, None, slots[0].path) for future in futures)

        items = self.session.map(_picked, "chosen", [self.items[number] for number in used], where, half=None)
        steps = tuple(step._replace(vectors=tuple(of_chosen(vector) for vector in step.vectors)) for step in self.steps)
        new = {index: number for number, index in enumerate(indices)}
        kept = [[new[index] for index in groups[number]] for number in used]
        return replace(self, items=items, groups=kept, steps=steps), [of_chosen(vector) for vector in vectors]

    def one_by_one(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self.collected(itself, some=[index])[0]

    def unzipped(self, vector: RowVector, n: int) -> list[RowVector]:
        return [Slots(slot._replace(path=(*slot.path, k)) for slot in vector) for k in range(n)]

    def _chosen(self, indices: Iterable[int]) -> list[Group]:
        """Return the groups, reduced to the given parts; some may be empty."""
        wanted = set(indices)
        return [[index for index in group if index in wanted] for group in self.groups]

    def _in_order(self, results: list[list[T]], groups: list[Group]) -> list[T]:
        """Return the results of all parts of groups, in the order of the parts."""
        numbers = itertools.chain.from_iterable(groups)
        pairs = zip(numbers, itertools.chain.from_iterable(results), strict=True)
        return [value for _, value in sorted(pairs, key=lambda pair: pair[0])]

    def _run(
        self, way: Step, task: Step, vectors: Sequence[RowVector], shared: Shared, groups: list[Group] | None = None
    ) -> list[Future]:
        """Start a task for every group that is not empty; ``way`` combines its results of all parts of the group."""
        groups = self.groups if groups is None else groups
        used, where = self._used(groups)
        calls = [*self.steps, PartStep(task, tuple(vectors), shared)]
        arguments = [self._given(vector, used) for step in calls for vector in step.vectors]
        given, picks = [values for values, _ in arguments], [pick for _, pick in arguments]
        every = [step.shared for step in calls]
        call: Shared = {"way": way, "tasks": [(step.make, len(step.vectors)) for step in calls], "picks": picks}
        if len(pickle.dumps(every)) > 1 << 14:  # sent to the scheduler once, not with each task
            given.append([self.session.sent(every)] * len(used))
        else:
            call["shared"] = every
        items, indices = [self.items[number] for number in used], [groups[number] for number in used]
        return self.session.map(_called, _name(task, shared), items, where, indices, *given, **call)

    def _used(self, groups: list[Group]) -> tuple[list[int], list[list[int]]]:
        """Return the numbers of the groups that are not empty, and the indices of their parts within the group."""
        used = [number for number, group in enumerate(groups) if group]
        return used, [[self.groups[number].index(index) for index in groups[number]] for number in used]

    def _given(self, vector: RowVector, used: list[int]) -> tuple[list[object], tuple[int | None, tuple[int, ...]]]:
        """Return the arguments of the tasks of groups for a row vector, and the half and path that they read."""
        if isinstance(vector, Slots):
            return [vector[number].future for number in used], vector[0][1:]
        return [[vector[index] for index in self.groups[number]] for number in used], (None, ())

    def _summed(self, futures: list[Future]) -> Any:
        """Return the sum of the runs in all futures."""
        while len(futures) > FAN:
            batches = [futures[first : first + FAN] for first in range(0, len(futures), FAN)]
            futures = self.session.map(_merged, "tree", batches)
        runs = _merged(self.session.received(futures))
        # One run remains for each binary digit 1 of the number of parts.
        return functools.reduce(added, [runs[key] for key in sorted(runs, reverse=True)])


def _name(task: Step, shared: Shared) -> str:
    """Return the name of a task for the dashboard."""
    return str(getattr(shared.get("task", task), "__name__", "task")).strip("_")


def _second(pair: tuple[object, T]) -> T:
    return pair[1]


# --- on a worker ---------------------------------------------------------------------------------------------


def _called(
    items: list[object],
    where: list[int],
    indices: list[int],
    *given: object,
    way: Callable[[Iterator[tuple[int, Any]]], T],
    tasks: list[tuple[Step, int]],
    picks: list[tuple[int | None, tuple[int, ...]]],
    shared: list[Shared] | None = None,
) -> T:
    """Apply tasks, one after the other, to items of a group, with one BLAS thread: Dask gives each task a core.

    ``where`` holds the indices of the items within the group, and ``indices`` the numbers of their parts.
    """
    if shared is None:
        *given, shared = given  # type: ignore[assignment]
    assert shared is not None
    items, given, shared = aligned(items), aligned(given), aligned(shared)
    vectors = [_picked(values, where, *pick) for values, pick in zip(given, picks, strict=True)]

    def made() -> Iterator[tuple[int, Any]]:
        for number, index, *entries in zip(where, indices, *vectors, strict=True):
            item, rest = items[number], iter(entries)
            for (task, n_vectors), more in zip(tasks, shared, strict=True):
                item = task(item, *itertools.islice(rest, n_vectors), **more)
            yield index, item

    with SingleBlas(), np.errstate(all="ignore"):
        return way(made())


def _picked(values: Values, numbers: list[int], half: int | None, path: tuple[int, ...] = ()) -> list[Any]:
    """Return entries of a row vector by the half and path of a :class:`Slot`."""
    values = values if half is None else values[half]
    return [functools.reduce(operator.getitem, path, values[number]) for number in numbers]


def _listed(results: Iterator[tuple[int, T]]) -> list[T]:
    return [value for _, value in results]


def _in_runs(results: Iterator[tuple[int, Any]]) -> Runs:
    return _merged({(0, index): value} for index, value in results)


def _listed_and_in_runs(results: Iterator[tuple[int, tuple[Any, Any]]]) -> tuple[list[Any], Runs]:
    vectors = []

    def sums() -> Iterator[tuple[int, Any]]:  # added as they come: those of all parts at once may be large
        for index, (vector, part) in results:
            vectors.append(vector)
            yield index, part

    runs = _in_runs(sums())
    return vectors, runs


def _merged(parts: Iterable[Runs]) -> Runs:
    """Return runs with both halves of a longer run added, as far as possible; arguments are not changed."""
    runs: Runs = {}
    for part in parts:
        for run, value in part.items():
            _put(runs, *run, value)
    return runs


def _put(runs: Runs, level: int, number: int, value: object) -> None:
    while (level, number ^ 1) in runs:
        other = runs.pop((level, number ^ 1))
        value = added(other, value) if number % 2 else added(value, other)
        level, number = level + 1, number // 2
    runs[level, number] = value
