"""Progress of a fit, for estimators with ``verbose``."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

from gaussguru._utils.types import Estimator

# :func:`stage` for an estimator.
Timed = Callable[..., AbstractContextManager[list[str]]]


@contextmanager
def stage(estimator: Estimator, name: str, done: "count[int] | None" = None, total: int = 0) -> Iterator[list[str]]:
    """Print a stage of a fit at its end, if ``estimator.verbose``: its seconds and, in a loop, the fraction done.

    Parameters
    ----------
    done : itertools.count from 1, shared by the steps of a loop; None for a stage that is no loop
    total : number of steps

    Yields
    ------
    list of str
        For words to print after the others.
    """
    began, words = time.perf_counter(), list[str]()
    yield words
    if estimator.verbose:
        number = 0 if done is None else next(done)
        fraction = f" {number} of {total} ({number / total:.0%})" if number else ""
        seconds = f"{time.perf_counter() - began:.3f} s"
        print("  ".join([f"[{type(estimator).__name__}] {name}{fraction}", *words, seconds]), flush=True)
