"""How far to go along a step."""

import math

from gaussguru._linalg import EPS, LOST
from gaussguru._problems.protocol import P, Problem

# Sufficient decrease, as a fraction of the decrement (Nocedal & Wright, 3.4).
DECREASE = 1e-4
# The least factor by which a step is shortened at a time.
LEAST_FRACTION = 0.3


def is_lost(value: float, decrement: float) -> bool:
    """Return whether what a step lowers F by is lost in rounding."""
    return decrement <= LOST * value


def falls(start: float, trial: float, t: float, decrement: float) -> bool:
    """Return whether F falls as it should in a fraction t of a Newton step.

    Where F resolves no more, it may rise by a hundred roundings: a step still improves the slopes.
    """
    slack = 4 * EPS * (100 if is_lost(start, decrement) else 1)
    return trial <= start - DECREASE * t * decrement + slack * start


def lowest(problem: Problem[P], start: P, end: P, decrement: float) -> P:
    """Return the end of a step; if F does not fall there, about the lowest point on the way to it, or the start."""

    def between(t: float) -> P:
        return problem.mixture([(1 - t, start), (t, end)])

    t, trial = 1.0, end
    while t > LOST and not falls(start.value, trial.value, t, decrement):
        # The minimum of the parabola through F, its slope and the trial, within bounds.
        rise = trial.value - start.value + t * decrement
        t *= min(0.5, max(LEAST_FRACTION, 0.5 * t * decrement / rise)) if math.isfinite(rise) else LEAST_FRACTION
        trial = between(t)
    if not falls(start.value, trial.value, t, decrement):
        return start
    while t < (1 if problem.is_linear else LEAST_FRACTION):
        # Where a step is far too long F bends early, and may be lower still before.
        t *= 0.5
        before = between(t)
        if not before.value < trial.value:
            break
        trial = before
    return trial
