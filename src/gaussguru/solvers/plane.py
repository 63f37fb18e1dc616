"""The length of w and the intercept, solved exactly on known margins.

For a fixed direction F is a smooth convex function of the length of ``w`` and of ``b`` whose derivatives are
sums over rows that never touch X (:meth:`Objective.plane`). Newton with backtracking takes two or three looks
at the margins, and afterwards ``sum s y alpha = 0`` and ``F = sum s alpha`` hold to rounding, which is what a
dual point needs.

With an intercept and unequal classes the best length may be zero: the constant classifier. Near zero every row
of the lighter class lies where the loss is exactly linear, and ``F = 2 S_min + c K(direction, b)`` with a
homogeneous ``K``; the sign of its minimum decides. There the length is *pinned* at a value small enough for
this to be exact, so that direction and intercept can still be improved.
"""

import numpy as np

from gaussguru.objective import Objective, Point

_MAX_STEPS = 60
_ROUNDING = 1e-15
# How exactly to settle by default, and on the way, relative to the part of F that the noise makes.
EXACTLY, ROUGHLY = 1e-10, 0.1


def settle(objective: Objective, point: Point, tol: float = EXACTLY) -> Point:
    """Return the best point with the direction of ``point``, pinned where its length would vanish.

    ``tol`` bounds the derivatives by length and intercept that remain, relative to ``a sum s f*``.
    """
    point = _newton(objective, point, tol)
    if _is_short(objective, point):
        point = _newton(objective, _pinned(objective, point), EXACTLY, pin=True)
        if not is_vanishing(objective, point):  # K < 0 at the best intercept: the length only overshot
            point = _newton(objective, point, EXACTLY, free=True)
    return point


def _newton(objective: Objective, point: Point, tol: float, *, pin: bool = False, free: bool = False) -> Point:
    weight = objective.weight
    # A little curvature keeps the step finite where every row is far from its margin.
    ridge = 1e-12 * weight
    decrease, steepness = np.inf, np.inf
    for _ in range(_MAX_STEPS):
        g_c, g_b, h_cc, h_cb, h_bb = objective.plane(point)
        if pin:
            g_c = h_cb = 0.0
        before, steepness = steepness, max(abs(g_c), abs(g_b))
        rounding = decrease <= _ROUNDING * weight and steepness > 0.5 * before
        if rounding or steepness <= tol * point.scale * point.totals.conjugate:
            break
        h_cc, h_bb = h_cc + ridge, h_bb + ridge
        det = h_cc * h_bb - h_cb * h_cb
        if not det > 0:
            break
        step_c = (h_cb * g_b - h_bb * g_c) / det
        step_b = (h_cb * g_c - h_cc * g_b) / det
        decrease = -(g_c * step_c + g_b * step_b)
        if not decrease > 0:
            break
        trial = _backtrack(objective, point, step_c, step_b, decrease)
        if trial is None:
            break
        point = trial
        if not pin and not free and _is_short(objective, point, 0.5):
            break
    return point


def _backtrack(objective: Objective, point: Point, step_c: float, step_b: float, decrease: float) -> Point | None:
    # Trust the quadratic model up to a fifth of the length, four times it, or a few units of the intercept.
    t = min(1.0, 0.8 / max(-step_c, 0.8), 3.0 / max(step_c, 3.0))
    reach = 2.0 * (1 + abs(point.b))
    t = min(t, reach / max(abs(step_b), reach))
    while t > 1e-18:
        trial = objective.stretched(point, point.stretch * (1 + t * step_c), point.b + t * step_b)
        if trial.value <= point.value - 1e-4 * t * decrease + _ROUNDING * point.value:
            return trial
        t *= 0.3
    return None


def _pinned(objective: Objective, point: Point) -> Point:
    """Return ``point`` with its length fixed where the lighter class is linear."""
    positive_wins = objective.weights[0] >= objective.weights[1]
    side, mean = (1.0, objective.means[0]) if positive_wins else (-1.0, objective.means[1])
    stretch = 1.0 / _reach(objective, point)
    return objective.stretched(point, stretch, side - stretch * float(mean @ point.w))


def is_vanishing(objective: Objective, point: Point) -> bool:
    """Return whether the length of ``w`` wants to be zero along this direction."""
    # With a ridge F may have its minimum at a small length: what counts is the loss alone.
    return _is_short(objective, point) and objective.plane(point)[0] >= objective.ridge(point)


def _is_short(objective: Objective, point: Point, safety: float = 1.0) -> bool:
    """Return whether the length is so small that the lighter class is linear."""
    if not objective.fit_intercept or point.scale * objective.loss.reach > safety:
        return False
    return point.stretch * _reach(objective, point) <= safety * (1 + 1e-9)


def _reach(objective: Objective, point: Point) -> float:
    """Return the stretch at which no row of the lighter class can leave the linear part of the loss, inverted."""
    spread = float(point.margin.max() - point.margin.min())
    return objective.loss.reach * objective.noise.scale(point.w) + spread
