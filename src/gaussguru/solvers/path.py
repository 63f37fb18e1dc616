"""What Newton's method has in common for two classes and for more: its settings, the path in the noise level, steps.

A place is anything with a ``value``; ``between(t)`` evaluates the one a part t of the way from a start to an end.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

# A point is central when its decrement is below this part of a sum s f*; the noise then falls by this factor.
CENTRAL, SPEED = 0.3, 2.5
# A level that does not become central in so many iterations is left all the same.
PATIENCE = 20
# How much of the change that more rows bring is hidden by noise at first.
BLUR = 0.1
# A step whose decrement is at most this part of F needs no settling afterwards.
NEAR = 0.1
# Relative changes of F below this are rounding.
ROUNDING = 1e-15
# Solutions of a path from which the next one is extrapolated.
REMEMBERED = 3
_PARTS = (1.0, 0.7, 0.4, 0.15, 0.05)


class Place(Protocol):
    """Somewhere with a value of F."""

    @property
    def value(self) -> float:
        """F there."""


P = TypeVar("P", bound=Place)
T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Settings of an exact solver; see its module for the method.

    Parameters
    ----------
    tol : stop when the duality gap is at most ``tol * F(0)``
    max_iter : number of iterations, over all subsamples and noise levels
    verbose : 1 prints a line per iteration
    seed : of the subsamples
    """

    tol: float = 1e-6
    max_iter: int = 500
    verbose: int = 0
    seed: int = 0


def lower_noise(ratio: float) -> float:
    """Return the next noise ratio on the way to 1, in equal steps of about SPEED each."""
    lower = ratio ** (1 - 1 / max(1, round(math.log(ratio, SPEED))))
    return lower if lower > 1.01 else 1.0


def is_lost(place: Place, decrement: float) -> bool:
    """Return whether what a step lowers F by is lost in rounding."""
    return decrement <= 1e3 * ROUNDING * place.value


def first_below(start: P, end: P, between: Callable[[float], P]) -> P:
    """Return the end of the longest part of a step at which F is below that of its start, or the start."""
    for t in _PARTS:
        trial = end if t == 1 else between(t)
        if trial.value < start.value:
            return trial
    return start


def falls(start: Place, trial: Place, t: float, decrement: float, slack: float = ROUNDING) -> bool:
    """Return whether F falls as it should in a part t of a Newton step, or rises by no more than ``slack`` of it."""
    return trial.value <= start.value - 1e-4 * t * decrement + slack * start.value


def shortened(start: P, end: P, between: Callable[[float], P], decrement: float, slack: float = ROUNDING) -> P:
    """Return the end of a Newton step, shortened until F falls, or the start where it never does."""
    return _cut(start, end, between, decrement, slack)[1]


def lowest(start: P, end: P, between: Callable[[float], P], decrement: float) -> P:
    """Return the end of a Newton step, or if F does not fall there about the lowest place on the way."""
    t, trial = _cut(start, end, between, decrement, ROUNDING)
    while t < 1:
        # Where a step is far too long F bends early, and may be lower still before.
        t *= 0.5
        before = between(t)
        if not before.value < trial.value:
            break
        trial = before
    return trial


def _cut(start: P, end: P, between: Callable[[float], P], decrement: float, slack: float) -> tuple[float, P]:
    t, trial = 1.0, end
    while t > 1e-12 and not falls(start, trial, t, decrement, slack):
        # The minimum of the parabola through F, its slope and the trial, within bounds.
        rise = trial.value - start.value + t * decrement
        t *= min(0.5, max(0.3, 0.5 * t * decrement / rise)) if math.isfinite(rise) else 0.3
        trial = between(t)
    return (t, trial) if falls(start, trial, t, decrement, slack) else (1.0, start)


class Trail(Generic[T]):
    """The last solutions of a path through noise levels, from which the next one is extrapolated.

    A solution is nearly a straight line in the noise level, so that a polynomial through the last ones is a better
    start than the last one alone (measured: three of them are best, as errors grow with their number).
    """

    def __init__(self) -> None:
        self._passed: list[tuple[float, T]] = []

    def add(self, level: float, solution: T) -> None:
        """Keep the solution at a noise level."""
        if not any(level == known for known, _ in self._passed):
            self._passed = [*self._passed[1 - REMEMBERED :], (level, solution)]

    @property
    def last(self) -> tuple[float, T]:
        """The noise level passed last, and the solution there."""
        return self._passed[-1]

    def towards(self, level: float) -> list[tuple[float, T]]:
        """Return the solutions with what each counts at another level (Lagrange's polynomials); none if there are none.

        Far ahead, more than twice the way that lies behind, only the last one counts.
        """
        levels = [known for known, _ in self._passed]
        if not levels:
            return []
        if abs(level - levels[-1]) > 2 * abs(levels[-1] - levels[0]):
            return [(1.0, self._passed[-1][1])]
        weights = [math.prod((level - other) / (own - other) for other in levels if other != own) for own in levels]
        return list(zip(weights, (solution for _, solution in self._passed), strict=True))


def blend(solutions: list[tuple[float, T]], part: Callable[[T], Any]) -> Any:
    """Return the weighted sum of a part of every solution."""
    return sum(weight * part(solution) for weight, solution in solutions)


def print_iteration(n_iter: int, expansion: Any, whole: Any, gap: float, began: float, ratio: float) -> None:
    """Print the line of one iteration, on all rows of the objective ``whole`` or on some of them."""
    part = expansion.objective.rows is not whole.rows
    rows = f"  on {expansion.objective.rows.n_rows} rows" if part else ""
    noise = "" if ratio == 1 else f"  at {ratio:.3g} x sigma"
    print(
        f"[newton] iteration {n_iter}  objective {expansion.point.value:.10g}  "
        f"gap {math.inf if part else gap:.3e}  {time.perf_counter() - began:.3f} s{rows}{noise}"
    )
