"""Proofs of optimality: dual points, duality gaps, and what follows from them.

The dual of the problem in :mod:`gaussguru.objective` is ::

    max  sum s alpha - excess(v, sum s f*(alpha))^2 / (2 l2),    v = sum s y alpha x,    0 <= alpha <= 1
    s.t. sum s y alpha = 0   (only with an intercept)

where ``excess`` is the distance of ``v`` to the noise set of that size; for ``l2 = 0`` it has to vanish:
``polar(v) <= sum s f*(alpha)`` (thesis, chapter 3, with the factor sigma that it loses restored).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gaussguru import multiclass
from gaussguru.losses import Array
from gaussguru.noise import norm
from gaussguru.objective import Expansion, Objective, Point

EPS = float(np.finfo(np.float64).eps)
# How far to scale alpha down in search of a strictly feasible point, tightest first.
SHRINKS = (0.9, 0.5, 0.1, 1e-2, 1e-4)


@dataclass(frozen=True)
class Certificate:
    """Bounds on the minimum: ``dual <= F* <= primal``."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """How far F at the certified point can be above its minimum."""
        return max(0.0, self.primal - self.dual)


def certify(
    expansion: Expansion, target: float, *, at: Point | None = None, thorough: bool = False, trusting: bool = False
) -> Certificate:
    """Return a certificate from the slopes of a point.

    The point is that of ``expansion``, or ``at``, one of the same direction near it. A gap that cannot fall below
    ``target`` is not computed to the end, unless ``thorough``: the dual value is then 0.

    Both values allow for rounding: a margin is known to ``eps sum |x_j w_j|``, ``v`` to ``eps sum s alpha |x|``. To be
    ``trusting`` is not to allow for what the curves of ``expansion`` leave out at a point near it: no proof.
    """
    objective, point = expansion.objective, at or expansion.point
    totals = point.totals
    primal = rounded_up(objective, point)
    most = 2 * min(totals.slope_pos, totals.slope_neg) if objective.fit_intercept else point.mass
    if primal <= target or (primal - most > target and not thorough):
        return Certificate(primal, 0.0)
    error: Array | float = 0.0
    by_label = expansion.by_label
    if point is not expansion.point:
        by_label, bound = expansion.moved(point)
        error = 0.0 if trusting else bound
    v, mass, rho = balanced(objective, by_label, totals.slope_pos, totals.slope_neg)
    dual = best_on_ray(
        objective,
        v,
        mass,
        rho * totals.conjugate,
        lambda c: rho * objective.shrunk_conjugate(point, c),
        error=error,
        # Steeper than at c = 1 the concave h cannot rise as c falls: is the target in reach at all?
        steepest=totals.value - totals.conjugate,
        wanted=np.inf if thorough else primal - target,
    )
    return Certificate(primal, dual)


def is_promising(expansion: Expansion, near: Point, target: float) -> bool:
    """Return whether a certificate of a point near that of ``expansion`` fails by what its curves leave out alone."""
    if expansion.curves is None or near is expansion.point:
        return False
    return certify(expansion, target, at=near, trusting=True).gap <= target


def rounded_up(objective: Objective, point: Point) -> float:
    """Return F at a point and what rounding may hide: a margin is known to ``eps |x||w|``."""
    reach = point.stretch * float(np.abs(point.w) @ lengths(objective, point.mass))
    return point.value + 4 * EPS * (point.value + reach)


def expected_gap(expansion: Expansion) -> float:
    """Return about the gap that the point of ``expansion`` would have with its best length and intercept."""
    objective, totals, w = expansion.objective, expansion.point.totals, expansion.point.w
    across = expansion.gradient[:-1] - w * (float(expansion.gradient[:-1] @ w) / float(w @ w))
    violation = objective.noise.polar(totals.conjugate * expansion.noise_gradient - across) - totals.conjugate
    return expansion.point.mass * violation / totals.value if totals.value > 0 else 0.0


def refine(expansion: Expansion, step: Array) -> float:
    """Return a dual value from the slopes as a Newton step would change them.

    Where sigma is tiny against the scale of X, the last bits of ``w`` move the slopes more than the optimum allows.
    The slopes themselves have bits to spare: to first order the step changes ``s y alpha`` by ``-h u.p``.
    """
    objective, pulls = expansion.objective, expansion.pulls
    rise = objective.noise.rise(expansion.point.coef, step[:-1])
    along = objective.rows.margins(np.ascontiguousarray(step[:-1])) + pulls.tilt * rise + step[-1]
    moved = np.divide(
        pulls.residual - pulls.weight * along,
        objective.signed_weight,
        out=np.zeros_like(along),
        where=objective.signed_weight != 0,
    )
    return dual_value(objective, np.clip(moved, 0.0, 1.0))[0]


def dual_value(objective: Objective, alpha: Array) -> tuple[float, Array]:
    """Return a proven lower bound of the minimum from any ``0 <= alpha <= 1``, and its ``v = sum s y alpha x``.

    Alpha is balanced and shrunk until it is feasible.
    """
    residual = objective.signed_weight * alpha
    positive = residual[~np.signbit(objective.signed_weight)].sum()
    by_label = objective.rows.combine(residual)
    v, mass, rho = balanced(objective, by_label, float(positive), float(positive - residual.sum()))
    weight = np.abs(objective.signed_weight)

    def level(c: float) -> float:
        return rho * float(weight @ objective.loss.conjugate(c * alpha))

    return best_on_ray(objective, v, mass, level(1.0), level), v


def lengths(objective: Objective | multiclass.Multiclass, mass: float) -> Array:
    """Return a bound on ``sum s alpha |x_j|`` for every column, by Cauchy and Schwarz."""
    return np.sqrt(mass * objective.column_squares)


def rounding(objective: Objective, mass: float) -> Array:
    """Return a bound on the rounding error of ``sum s y alpha x`` in every column."""
    return 4 * EPS * lengths(objective, mass)


def balanced(objective: Objective, by_label: Array, slope_pos: float, slope_neg: float) -> tuple[Array, float, float]:
    """Scale the slopes of the heavier label down until the labels balance; return v, ``sum s alpha`` and the factor.

    ``f*`` is concave and 0 at 0, so ``f*(rho alpha) >= rho f*(alpha)``. (A settled intercept balances the labels only
    to ``eps |b| sum s f''/a``, because it is a number of 53 bits.)
    """
    if not objective.fit_intercept:
        return by_label[0] + by_label[1], slope_pos + slope_neg, 1.0
    light, heavy = sorted((slope_pos, slope_neg))
    rho = light / heavy if heavy > 0 else 1.0
    factors = (rho, 1.0) if slope_pos > slope_neg else (1.0, rho)
    return factors[0] * by_label[0] + factors[1] * by_label[1], 2 * light, rho


def best_on_ray(
    objective: Objective,
    v: Array,
    mass: float,
    level: float,
    level_at: Callable[[float], float],
    error: Array | float = 0.0,
    steepest: float = np.inf,
    wanted: float = np.inf,
) -> float:
    """Return the best dual value on the ray ``c alpha``, ``0 <= c <= 1``.

    ``mass``, ``v`` and ``level`` are ``sum s alpha``, ``sum s y alpha x`` (to within ``error`` in every column) and
    (a lower bound of) ``sum s f*(alpha)``; ``level_at(c)`` is the latter at ``c alpha``. It is concave in c, so it lies
    above its chords: one value at a strictly feasible c bounds how far alpha must shrink to become feasible, and a
    second chord from there bounds it better. No more is done than it takes to reach ``wanted``, nothing where that is
    out of reach.
    """
    noise, l2 = objective.noise, objective.l2
    error = error + rounding(objective, mass)
    size = noise.polar(v) + noise.polar_within(error)
    here = size - level
    if here <= 0:
        return mass
    excess = noise.excess(v, level) + norm(error) if l2 else 0.0
    best = max(0.0, mass - excess**2 / (2 * l2)) if l2 else 0.0
    if best >= wanted or (not l2 and mass * (1 - here / max(size + steepest, here)) < wanted < np.inf):
        return best
    for shrink in SHRINKS:
        there = shrink * size - level_at(shrink)
        if there < 0:
            feasible = 1 - (1 - shrink) * here / (here - there)
            best = max(best, _on_chord(l2, excess, mass, feasible))
            if best < wanted:
                there = feasible * size - level_at(feasible)
                if there < 0:
                    feasible = 1 - (1 - feasible) * here / (here - there)
                    best = max(best, _on_chord(l2, excess, mass, feasible))
            break
    return best


def _on_chord(l2: float, excess: float, mass: float, feasible: float) -> float:
    """Return the best dual value between a feasible c and 1, where the excess rises at most linearly."""
    if not l2 or feasible == 1:
        return feasible * mass
    if excess == 0:
        return mass
    rise = excess / (1 - feasible)
    kept = min(excess, mass * l2 / rise)  # the excess at which its cost grows as fast as the mass
    return mass * (feasible + kept / rise) - kept**2 / (2 * l2)
