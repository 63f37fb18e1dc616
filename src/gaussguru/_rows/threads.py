"""Map functions over row blocks: in this thread, or for large data in a pool, with BLAS limited to one thread.

Ctrl-C raises KeyboardInterrupt in the main thread, between any two bytecodes, and must leave no limit or thread behind.
So these are acquired and released by :class:`CleanExit`, in steps that may be repeated.
"""

import os
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from operator import itemgetter
from queue import Empty, SimpleQueue
from threading import Lock, Thread, local
from typing import Any, ClassVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from gaussguru._native._binding import CleanExit
from gaussguru._utils.blocks import MANY_VALUES
from gaussguru._utils.types import BlockMap, Values


class SingleBlas(CleanExit):
    """A context that limits BLAS to one thread.

    The limit of a library belongs to the process, or to the thread (MKL). Each context stores the limit on entry and
    restores it on exit. Of overlapping contexts only the first sees the limit of the process; on exit it passes this
    limit to another one that saw 1, so that the last one to exit restores it. Threads of an abandoned pool (after an
    interrupt nobody waits for them) neither take a limit over nor restore one.
    """

    _lock = Lock()
    # For each context in use: the limits at its entry, and the pools that its thread works for.
    _inside: ClassVar[dict[int, tuple[dict[Any, int], tuple["Pool", ...]]]] = {}

    def __init__(self) -> None:
        self._limits: dict[Any, int] = {}
        self._pools: tuple[Pool, ...] = getattr(_this_thread, "pools", ())

    def acquire(self) -> Any:
        """Set limits of 1, each stored before it is changed."""
        with self._lock:
            if _is_abandoned(self._pools):
                return
            self._inside[id(self)] = self._limits, self._pools
            for library in _libraries():
                self._limits[library] = library.num_threads
                _limit(library, 1)

    def release(self) -> None:
        """Restore the limits, or pass them to another context."""
        with self._lock:
            self._inside.pop(id(self), None)
            for library, limit in self._limits.items():
                if limit == 1:
                    continue
                heirs = [
                    (len(pools), limits)
                    for limits, pools in self._inside.values()
                    if limits.get(library) == 1 and not _is_abandoned(pools)
                ]
                if heirs:  # a pool rather than its threads, which end sooner
                    min(heirs, key=itemgetter(0))[1][library], self._limits[library] = limit, 1
                else:
                    _limit(library, limit)


# ``_this_thread.pools``: the pools that a thread works for, the outermost first.
_this_thread = local()


def _is_abandoned(pools: "tuple[Pool, ...]") -> bool:
    """Return whether one of the pools of a thread was released."""
    return any(pool._released for pool in pools)


if hasattr(os, "register_at_fork"):
    # In a child, no other thread would release the lock.
    os.register_at_fork(
        before=SingleBlas._lock.acquire,
        after_in_parent=SingleBlas._lock.release,
        after_in_child=SingleBlas._lock.release,
    )


@cache
def _libraries() -> list[Any]:
    """Return controllers of the BLAS of NumPy and SciPy, which are loaded already; the search takes over 1 ms."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in libraries if library.num_threads is not None]


def _limit(library: Any, n_threads: int) -> None:
    """Set how many threads a library uses."""
    # Since threadpoolctl 3.8 one thread owns the limit of OpenBLAS, and others are ignored: give up ownership.
    disown = getattr(library, "clear_controlling_thread", lambda force: None)
    disown(force=True)
    library.set_num_threads(n_threads)
    disown(force=True)


class PoolReleased(BaseException):
    """Ends the work of a thread whose pool was released."""


class Pool(SingleBlas):
    """Threads over which a function is mapped, each with a BLAS of one thread.

    The caller and the threads share queues only. Methods of ``SimpleQueue`` are compiled: an interrupt comes before or
    after them. (It could leave a condition variable, and so a Future, locked for ever.)
    """

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self._n_threads = n_threads
        self._threads: list[Thread] = []
        self._started: SimpleQueue[Any] = SimpleQueue()
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._released = False

    def acquire(self) -> BlockMap:
        """Return a map function; threads start with its first call."""
        super().acquire()
        return self.map if self._n_threads > 1 else map

    def release(self) -> None:
        """Tell the threads to end after their present call."""
        self._released = True
        for _ in range(self._n_threads):
            self._calls.put(None)
        super().release()

    def wait(self) -> None:
        """Wait until the threads have ended; :class:`CleanExit` calls it after :meth:`release`."""
        for thread in self._threads:
            thread.join()

    def map(self, task: Callable[..., Any], *arguments: Iterable[Any]) -> Iterable[Any]:
        """Return the results of ``task`` for the first of all arguments, the second, and so on."""
        each = list(zip(*arguments, strict=True))
        if len(each) == 1:
            return [task(*each[0])]
        answers: list[SimpleQueue[Any]] = [SimpleQueue() for _ in each]
        for call in zip(answers, [task] * len(each), each, strict=True):
            self._calls.put(call)
        while len(self._threads) < min(self._n_threads, len(each)):
            # An interrupt in Thread.start may leave a thread that waits for ever. Only the main thread is interrupted.
            start_new_thread(_reply, (self._started, self._start, ()))
            self._threads.append(_received(self._started))
        return map(_received, answers)

    def here(self, task: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """Map in this thread of the pool; raise :class:`PoolReleased` once nobody waits for the results."""
        for each in zip(*arguments, strict=True):
            if self._released:
                raise PoolReleased
            yield task(*each)

    def _start(self) -> Thread:
        thread = Thread(target=self._work, daemon=False)
        thread.start()
        return thread

    def _work(self) -> None:
        _this_thread.pools = (*self._pools, self)
        with SingleBlas():
            while True:
                call = self._calls.get()
                if self._released:
                    return
                _reply(*call)
                del call  # frees the arguments while waiting


def _reply(answers: "SimpleQueue[Any]", task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Put the result or the exception of a call into a queue."""
    try:
        answers.put((task(*arguments), None))
    except BaseException as error:
        answers.put((None, error))


def _received(answers: "SimpleQueue[Any]") -> Any:
    """Return the result, or raise the exception, from a queue.

    Some libraries (polars) make signals restart interrupted calls; with a timeout Ctrl-C is noticed between two waits.
    """
    while True:
        with suppress(Empty):
            value, error = answers.get(timeout=0.1)
            break
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # its traceback refers to this frame


def block_map(
    X: Values, n_jobs: int | None, width: int = 1, *, single_blas: bool = False
) -> AbstractContextManager[BlockMap]:
    """Return a context that gives a map function over row blocks: the built-in ``map``, or that of a pool for large X.

    With large X, or ``single_blas``, BLAS is limited to one thread: more would compete for the same cores, and round
    differently.
    """
    size = getattr(X, "nnz", None) or np.size(X)
    if size * width < MANY_VALUES:
        return Pool(1) if single_blas else nullcontext(map)
    return Pool(n_threads(n_jobs))


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads for large data."""
    if n_jobs is not None:
        return int(joblib.effective_n_jobs(n_jobs))
    backend, _ = get_active_backend()
    return 1 if backend.nesting_level else int(joblib.cpu_count())
