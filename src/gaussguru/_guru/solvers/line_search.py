"""The length of a step."""

import math

from gaussguru._guru.problems.protocol import P, Problem
from gaussguru._utils.linalg import EPS, LOST

# Sufficient decrease, as a fraction of the decrement (Nocedal & Wright, 3.4).
DECREASE = 1e-4


def is_lost(value: float, decrement: float) -> bool:
    """Return whether the decrease of F by a step is below rounding."""
    return decrement <= LOST * value


def falls(start: float, trial: float, t: float, decrement: float) -> bool:
    """Return whether F decreases sufficiently in a fraction t of a Newton step.

    If the decrement is below rounding, F may rise by a hundred roundings: the step still improves the slopes.
    """
    slack = 4 * EPS * (100 if is_lost(start, decrement) else 1)
    return trial <= start - DECREASE * t * decrement + slack * start


def lowest(problem: Problem[P], start: P, end: P, decrement: float) -> P:
    """Return the end of a step; if F does not fall there, an approximately lowest point before it, or the start."""

    def between(t: float) -> P:
        return problem.mixture([(1 - t, start), (t, end)])

    t, trial, shortest = 1.0, end, 0.3  # the least ratio of two successive lengths
    while t > LOST and not falls(start.value, trial.value, t, decrement):
        # The minimum of the parabola through F, its slope and the trial, within bounds.
        rise = trial.value - start.value + t * decrement
        t *= min(0.5, max(shortest, 0.5 * t * decrement / rise)) if math.isfinite(rise) else shortest
        trial = between(t)
    if not falls(start.value, trial.value, t, decrement):
        return start
    while t < (1 if problem.is_linear else shortest):
        # If a step is far too long, F may be lower at an even shorter one.
        t *= 0.5
        before = between(t)
        if not before.value < trial.value:
            break
        trial = before
    return trial
