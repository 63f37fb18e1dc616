"""Where row blocks are mapped: this thread, or a pool of them for large data."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

from gaussguru.rows import BlockMap

# Fewer values than this are read faster by one thread than handed to several.
THREAD_VALUES = 1_000_000


class _SingleBlas:
    """Keep BLAS to one thread while anyone is inside; the limit is the process's, so whoever leaves last lifts it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limits = threadpool_limits(1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


SINGLE_BLAS = _SingleBlas()


@contextmanager
def block_map(X: Any, n_jobs: int | None, width: int = 1) -> Iterator[BlockMap]:
    """Yield what maps a function over row blocks: the built-in map, or that of a pool of threads for large X.

    With large X BLAS keeps to one thread: its own would compete for the same cores, and round differently.
    """
    size = getattr(X, "nnz", None) or np.size(X)
    if size * width < THREAD_VALUES:
        yield map
        return
    with SINGLE_BLAS:
        n_threads = _n_threads(n_jobs)
        if n_threads == 1:
            yield map
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield pool.map


def _n_threads(n_jobs: int | None) -> int:
    if n_jobs is not None:
        return int(joblib.effective_n_jobs(n_jobs))
    backend, _ = get_active_backend()
    return 1 if backend.nesting_level else int(joblib.cpu_count())
