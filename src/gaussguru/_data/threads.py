"""Where row blocks are mapped: this thread, or a pool of them for large data; BLAS keeps to one thread meanwhile.

Ctrl-C raises KeyboardInterrupt in the main thread, between any two bytecodes, and nothing may be held afterwards. So
limits and threads are acquired and released by :class:`CleanExit`, in steps that may be repeated.
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

from gaussguru._blocks import MANY_VALUES
from gaussguru._data.rows import BlockMap
from gaussguru._native._binding import CleanExit

# Seconds after which Ctrl-C is noticed at the latest: a person does not.
NOTICED = 0.1


class SingleBlas(CleanExit):
    """Keep BLAS to one thread while anyone is inside.

    The limit of a library is the process's, or the thread's (MKL). Whoever enters notes the limit that it finds, and
    sets it again when it leaves. But the process's limit was found by the first one only: if others are inside, which
    found a limit of 1, one of them takes it over, so that whoever leaves last lifts it. The threads of a pool that was
    left, after an interrupt nobody waits for them, neither take it over nor set it again.
    """

    _lock = Lock()
    # The limits that each one found that is inside, and the pools that its thread works for.
    _inside: ClassVar[dict[int, tuple[dict[Any, int], tuple["Pool", ...]]]] = {}

    def __init__(self) -> None:
        self._found: dict[Any, int] = {}
        self._pools: tuple[Pool, ...] = getattr(_this_thread, "pools", ())

    def acquire(self) -> Any:
        """Note the limits, each before it is changed, and change them."""
        with self._lock:
            if _is_left(self._pools):
                return
            self._inside[id(self)] = self._found, self._pools
            for library in _libraries():
                self._found[library] = library.num_threads
                _limit(library, 1)

    def release(self) -> None:
        """Set the limits again, or leave them to another."""
        with self._lock:
            self._inside.pop(id(self), None)
            for library, limit in self._found.items():
                if limit == 1:
                    continue
                heirs = [
                    (len(pools), found)
                    for found, pools in self._inside.values()
                    if found.get(library) == 1 and not _is_left(pools)
                ]
                if heirs:  # a pool before its threads, which end sooner
                    min(heirs, key=itemgetter(0))[1][library], self._found[library] = limit, 1
                else:
                    _limit(library, limit)


# Of a thread of a pool: ``pools``, those that it works for, the outermost first.
_this_thread = local()


def _is_left(pools: "tuple[Pool, ...]") -> bool:
    """Return whether nobody waits for the thread of these pools."""
    return any(pool._left for pool in pools)


if hasattr(os, "register_at_fork"):
    # A child has no other thread that would release the lock.
    os.register_at_fork(
        before=SingleBlas._lock.acquire,
        after_in_parent=SingleBlas._lock.release,
        after_in_child=SingleBlas._lock.release,
    )


@cache
def _libraries() -> list[Any]:
    """Return the BLAS of NumPy and SciPy, which are loaded by now: finding them takes over 1 ms."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in found if library.num_threads is not None]


def _limit(library: Any, n_threads: int) -> None:
    """Set how many threads a library uses."""
    # From threadpoolctl 3.8 on one thread has the right to set OpenBLAS, and others are ignored: nobody keeps it here.
    disown = getattr(library, "clear_controlling_thread", lambda force: None)
    disown(force=True)
    library.set_num_threads(n_threads)
    disown(force=True)


class Left(BaseException):
    """A thread goes on for a pool that was left."""


class Pool(SingleBlas):
    """Threads over which a function is mapped, each with a BLAS of one thread.

    The caller and the threads share queues and nothing else. A method of a queue is compiled: an interrupt comes before
    it or after it. (It may leave a condition variable, and so a Future, locked: then a thread waits for ever.)
    """

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self._n_threads = n_threads
        self._threads: list[Thread] = []
        self._started: SimpleQueue[Any] = SimpleQueue()
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._left = False

    def acquire(self) -> BlockMap:
        """Return what maps; threads start when there is something to do."""
        super().acquire()
        return self.map if self._n_threads > 1 else map

    def release(self) -> None:
        """Have the threads end when they have done what they do."""
        self._left = True
        for _ in range(self._n_threads):
            self._calls.put(None)
        super().release()

    def wait(self) -> None:
        """Wait until they have ended."""
        for thread in self._threads:
            thread.join()

    def map(self, task: Callable[..., Any], *arguments: Iterable[Any]) -> Iterable[Any]:
        """Return what ``task`` returns for the first of all arguments, the second, and so on."""
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
        """Map in this thread, one of the pool; raise when the pool was left, so that what nobody waits for ends."""
        for each in zip(*arguments, strict=True):
            if self._left:
                raise Left
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
                if self._left:
                    return
                _reply(*call)
                del call  # and with it what the call was given, while there is no other


def _reply(answers: "SimpleQueue[Any]", task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send what a call returns or raises."""
    try:
        answers.put((task(*arguments), None))
    except BaseException as error:
        answers.put((None, error))


def _received(answers: "SimpleQueue[Any]") -> Any:
    """Return or raise what was sent.

    A library (polars, for one) may have a signal restart what it interrupts: then Ctrl-C is noticed between two waits.
    """
    while True:
        with suppress(Empty):
            value, error = answers.get(timeout=NOTICED)
            break
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # whose traceback has this frame


def block_map(
    X: Any, n_jobs: int | None, width: int = 1, *, single_blas: bool = False
) -> AbstractContextManager[BlockMap]:
    """Return a context with what maps a function over row blocks: the built-in map, or that of a pool for large X.

    With large X, or ``single_blas``, BLAS keeps to one thread: its own would compete for the same cores, and round
    differently.
    """
    size = getattr(X, "nnz", None) or np.size(X)
    if size * width < MANY_VALUES:
        return Pool(1) if single_blas else nullcontext(map)
    return Pool(n_threads(n_jobs))


def n_threads(n_jobs: int | None) -> int:
    """Return how many threads large work is given."""
    if n_jobs is not None:
        return int(joblib.effective_n_jobs(n_jobs))
    backend, _ = get_active_backend()
    return 1 if backend.nesting_level else int(joblib.cpu_count())
