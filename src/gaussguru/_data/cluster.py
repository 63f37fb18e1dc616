"""Parts on the workers of a Dask cluster.

Parts, blocks and row vectors are futures: they stay on the workers that made them, and a worker that is lost costs the
time to make its own again. A task is a pure function of a block; its sums are added by a tree in the order of the
parts, so that they have the same bits for any number of workers. Nothing is pinned to a worker, and there are no
messages but those of Dask. The solver runs where the client is.
"""

import importlib
import itertools
import pickle
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gaussguru._data.rows import RowVector, same_kind, summed
from gaussguru._data.streams import Step, Task
from gaussguru._data.threads import SingleBlas
from gaussguru._native._binding import CleanExit

# Sums that one task of the tree adds up.
FAN = 16
# Bytes of what all tasks of a pass share, from which on it is sent to the scheduler once and not with each task.
SHARED_BYTES = 1 << 14
# Seconds without any worker after which a cluster is given up, and seconds between looks.
LOST_SECONDS, LOOK_SECONDS = 30.0, 2.0


class ClusterLostError(RuntimeError):
    """The cluster has no workers left, or cannot be reached."""


def find_client(client: Any = None) -> Any:
    """Return a client, or the current one, or None if there is none."""
    if client is not None:
        return client
    try:
        return importlib.import_module("distributed").default_client()
    except (ImportError, ValueError):
        return None


class Session(CleanExit):
    """What a fit has on a cluster; all of it goes when the fit ends, however it ends."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._live: weakref.WeakSet[Any] = weakref.WeakSet()

    def acquire(self) -> "Session":
        """Return the session."""
        return self

    def release(self) -> None:
        """Release what is left: nobody wants it, so the scheduler forgets it, done or not.

        It is not cancelled: a scheduler that is asked to cancel what it is about to forget may fail an assertion (Dask
        2026.8, ``stimulus_cancel``) and close the connection to the client.
        """
        futures = list(self._live)
        self._live.clear()
        for future in futures:
            future.release()

    def compute(self, delayed: Sequence[Any]) -> list[Any]:
        """Return futures of tasks that were not run."""
        return self._noted(self.client.compute(list(delayed), optimize_graph=True))

    def map(self, function: Task, name: str, *arguments: Sequence[Any], **shared: Any) -> list[Any]:
        """Return futures of a function of the first of all arguments, the second, and so on."""
        return self._noted(self.client.map(function, *arguments, pure=False, key=f"guru-{name}", **shared))

    def sent(self, value: Any) -> Any:
        """Return a future of a value that can be made again: it is part of its task."""
        key = f"guru-shared-{id(value)}-{time.time_ns()}"
        return self._noted([self.client.submit(_same, value, pure=False, key=key)])[0]

    def _noted(self, futures: list[Any]) -> list[Any]:
        self._live.update(futures)
        return futures

    def received(self, futures: list[Any]) -> list[Any]:
        """Return results; raise what a task raised, or that the cluster is lost."""
        wait = importlib.import_module("distributed").wait
        missing_since = None
        while True:
            try:
                with self.client.as_current():  # that is whom it asks
                    wait(futures, timeout=LOOK_SECONDS)
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
        try:
            found: list[Any] = self.client.gather(futures)
        except _lost_errors() as error:
            raise ClusterLostError(_lost(error)) from error
        return found

    def _n_workers(self) -> int:
        if self.client.status not in ("running", "connecting"):
            raise ClusterLostError(f"the client of the Dask cluster is {self.client.status}; the fit was given up")
        try:
            return len(self.client.nthreads())
        except (OSError, TimeoutError) as error:
            raise ClusterLostError(_lost(error)) from error


def _lost_errors() -> tuple[type[BaseException], ...]:
    names = {"client": "FutureCancelledError", "comm.core": "CommClosedError", "scheduler": "KilledWorker"}
    found = [getattr(importlib.import_module(f"distributed.{module}"), name) for module, name in names.items()]
    return (CancelledError, *found)


def _lost(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return f"workers of the Dask cluster die with the same task each time; is there too little memory? {error}"
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"the Dask cluster was lost, or the tasks of this fit were cancelled: {reason}"


class Slot(NamedTuple):
    """Part of what a task returned, on the cluster."""

    future: Any
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """Items on a cluster; see :class:`gaussguru._data.streams.Blocks`."""

    session: Session
    items: list[Any]
    steps: tuple[Step, ...] = ()  # what is made of them for every task, and not kept

    def __len__(self) -> int:
        return len(self.items)

    def each(self, task: Task, /, *vectors: RowVector, values: bool = True, **shared: Any) -> RowVector:
        return [Slot(future) for future in self._run(task, vectors, shared)]

    def collected(
        self, task: Task, /, *vectors: RowVector, values: bool = True, some: Sequence[int] | None = None, **shared: Any
    ) -> list[Any]:
        return self.session.received(self._run(task, vectors, shared, some))

    def total(self, task: Task, /, *vectors: RowVector, values: bool = True, **shared: Any) -> Any:
        return self._summed(self._run(task, vectors, shared), task)

    def both(self, task: Task, /, *vectors: RowVector, **shared: Any) -> tuple[RowVector, Any]:
        kept, parts = self._paired(task, vectors, shared)
        return kept, self._summed(parts, task)

    def surveyed(self, task: Task, /, **shared: Any) -> tuple[RowVector, list[Any]]:
        kept, parts = self._paired(task, (), shared)
        return kept, self.session.received(parts)

    def then(
        self, make: Task, /, *vectors: RowVector, bare: Task | None = None, kept: bool = True, **shared: Any
    ) -> "Cluster":
        if self.steps or not kept:
            return replace(self, steps=(*self.steps, Step(make, vectors, shared)))
        return replace(self, items=self._run(make, vectors, shared))

    def chosen(self, places: Sequence[int], *vectors: RowVector) -> tuple["Cluster", list[RowVector]]:
        def some(vector: RowVector) -> RowVector:
            return [vector[i] for i in places]

        steps = tuple(step._replace(vectors=tuple(some(vector) for vector in step.vectors)) for step in self.steps)
        return replace(self, items=some(self.items), steps=steps), [some(vector) for vector in vectors]

    def one_by_one(self) -> Iterator[Any]:
        """Yield the items, brought here one after the other."""
        for place in range(len(self.items)):
            yield self.collected(_same, some=[place])[0]

    def unzipped(self, vector: RowVector, n: int) -> list[RowVector]:
        return [[slot._replace(path=(*slot.path, k)) for slot in vector] for k in range(n)]

    def _paired(
        self, task: Task, vectors: tuple[RowVector, ...], shared: dict[str, Any]
    ) -> tuple[RowVector, list[Any]]:
        futures = self._run(task, vectors, shared)
        # Sums apart, so that adding them up moves no row vectors.
        return [Slot(future, (0,)) for future in futures], self.session.map(_second, "sums", futures)

    def _run(
        self,
        task: Task,
        vectors: Sequence[RowVector],
        shared: dict[str, Any],
        some: Sequence[int] | None = None,
    ) -> list[Any]:
        """Start a task for every item, or for some."""
        places = range(len(self.items)) if some is None else some
        calls = [*self.steps, Step(task, tuple(vectors), shared)]
        used = [vector for step in calls for vector in step.vectors]
        paths = [vector[0].path if isinstance(vector[0], Slot) else () for vector in used]
        given = [[_future(vector[i]) for i in places] for vector in used]
        tasks = [(step.make, len(step.vectors)) for step in calls]
        every = [step.shared for step in calls]
        call: dict[str, Any] = {"tasks": tasks, "paths": paths}
        if len(pickle.dumps(every)) > SHARED_BYTES:
            given.append([self.session.sent(every)] * len(places))
        else:
            call["shared"] = every
        return self.session.map(_called, _name(task, shared), [self.items[i] for i in places], *given, **call)

    def _summed(self, futures: list[Any], task: Task) -> Any:
        while len(futures) > FAN:
            groups = [futures[first : first + FAN] for first in range(0, len(futures), FAN)]
            futures = self.session.map(_added, "tree", groups)
        return _added(self.session.received(futures))


def _name(task: Task, shared: dict[str, Any]) -> str:
    """Return what a task is called on the dashboard."""
    return str(getattr(shared.get("task", task), "__name__", "task")).strip("_")


def _future(value: Any) -> Any:
    return value.future if isinstance(value, Slot) else value


def _same(value: Any) -> Any:
    return value


def _second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def _added(parts: Sequence[Any]) -> Any:
    """Return the sum of results in their order, all of which stay as they are."""
    first = parts[0]
    own = same_kind(first, map(copy, first)) if isinstance(first, tuple) else copy(first)
    return summed(itertools.chain([own], parts[1:]))


def _called(
    item: Any,
    *given: Any,
    tasks: list[tuple[Callable[..., Any], int]],
    paths: list[tuple[int, ...]],
    shared: list[dict[str, Any]] | None = None,
) -> Any:
    """Run tasks on a worker, each on what the one before returned: with one thread, because Dask gives each a core."""
    if shared is None:
        *given, shared = given  # type: ignore[assignment]
    assert shared is not None
    vectors = iter([_picked(value, path) for value, path in zip(given, paths, strict=True)])
    with SingleBlas(), np.errstate(all="ignore"):
        for (task, n_vectors), more in zip(tasks, shared, strict=True):
            item = task(item, *itertools.islice(vectors, n_vectors), **more)
    return item


def _picked(value: Any, path: tuple[int, ...]) -> Any:
    for k in path:
        value = value[k]
    return value
