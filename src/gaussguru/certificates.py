"""Proofs of optimality: dual points, duality gaps, and what follows from them.

The dual of the problem in :mod:`gaussguru.objective` is ::

    max  sum s alpha - excess(v, sum s f*(alpha))^2 / (2 l2),    v = sum s y alpha x,    0 <= alpha <= 1
    s.t. sum s y alpha = 0   (only with an intercept)

where ``excess`` is the distance of ``v`` to the noise set of that size; for ``l2 = 0`` it has to vanish:
``polar(v) <= sum s f*(alpha)`` (thesis, chapter 3, with the factor sigma that it loses restored).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar, nnls

from gaussguru import multiclass, uncertain
from gaussguru.losses import Array, Loss, resolve_loss
from gaussguru.noise import Noise, norm
from gaussguru.objective import Expansion, Objective, Point

EPS = float(np.finfo(np.float64).eps)
# How far to scale alpha down in search of a strictly feasible point, tightest first.
SHRINKS = (0.9, 0.5, 0.1, 1e-2, 1e-4)
# The gap that is usually wanted, relative to F(0): much less is negligible.
USUAL = 1e-6
# A dual point may fall short of the value of the constant classifier by this part of it, because b is rounded.
SHORT = 1e-11
# Pairs of classes whose slopes add up to at most this part of the wanted gap do not count; few are left out first.
NEGLIGIBLE = (1e-6, 1e-3)
# More dual points than two are mixed up to this many columns.
MIXED_COLUMNS = 64


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
    v, mass, rho = _balanced(objective, by_label, totals.slope_pos, totals.slope_neg)
    dual = _bound(
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
    reach = point.stretch * float(np.abs(point.w) @ _lengths(objective, point.mass))
    return point.value + 4 * EPS * (point.value + reach)


def certify_params(
    objective: Objective | multiclass.Multiclass | uncertain.Uncertain, coef: Array, intercept: Any
) -> tuple[Certificate, Array]:
    """Return the certificate of any classifier, ``(w, b)`` or ``(W, b)``, and the slopes that it comes from."""
    if isinstance(objective, uncertain.Uncertain):
        place = objective.expand(*uncertain.symmetric(coef, intercept))
        return certify_uncertain(place, USUAL * objective.weight, thorough=True), place.alpha
    if isinstance(objective, multiclass.Multiclass):
        joint = objective.visit(coef, intercept)
        return certify_joint(joint, 0.0, thorough=True), objective.slopes(joint.point)
    if not coef.any():
        # The slopes of the hinge; its dual value is left at 0.
        alpha = (objective.signed_weight * intercept < np.abs(objective.signed_weight)) * 1.0
        return Certificate(objective.constant_at(intercept), 0.0), alpha
    expansion = objective.visit(coef, intercept)
    return certify(expansion, 0.0, thorough=True), objective.slopes(expansion.point)


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
    v, mass, rho = _balanced(objective, by_label, float(positive), float(positive - residual.sum()))
    weight = np.abs(objective.signed_weight)

    def level(c: float) -> float:
        return rho * float(weight @ objective.loss.conjugate(c * alpha))

    return _bound(objective, v, mass, level(1.0), level), v


def certify_joint(expansion: multiclass.Expansion, target: float, *, thorough: bool = False) -> Certificate:
    """Return a certificate of a multiclass problem from the slopes of a point.

    The dual has a flow between the classes: vectors ``B_ck = -B_kc`` with ``polar(B_ck) <= sum s f*`` of the pair that
    carry away what the rows pull at every class, ``sum_k B_ck = n_c``; its value is ``sum s alpha``, less
    ``||n - sum B||^2 / (2 l2 C)`` with a ridge. The noise's own pull on each pair is a flow that does this at the
    optimum. What is left elsewhere, the gradient, is sent through the pairs as a current through resistors whose
    conductance is what a pair gains in room when all alpha shrink; then they shrink until every pair has room.
    """
    objective, point, cells = expansion.objective, expansion.point, expansion.point.cells
    mass = float(cells.slope.sum())
    reach = float(np.sqrt((point.coef**2).sum(axis=0)) @ _lengths(objective, mass))
    primal = point.value + 4 * EPS * (point.value + reach)
    if primal <= target or (primal - mass > target and not thorough):
        return Certificate(primal, 0.0)
    dual = 0.0
    for negligible in NEGLIGIBLE:
        dual = max(dual, _flow(expansion, negligible * target, np.inf if thorough else primal - target))
        if primal - dual <= target:
            break
    return Certificate(primal, dual)


def _flow(expansion: multiclass.Expansion, negligible: float, wanted: float) -> float:
    """Return a dual value of :func:`certify_joint`, or 0 if it cannot be ``wanted``; inf wants all there is."""
    objective, point, cells = expansion.objective, expansion.point, expansion.point.cells
    # Pairs that hardly touch are left out, alpha = 0: they add nothing and nothing could flow through them.
    used = cells.slope + cells.slope.T > negligible
    slope = np.where(used, cells.slope, 0.0)
    kept = np.where(used | np.eye(len(used), dtype=bool), 1.0, 0.0)
    if objective.fit_intercept:
        surplus = find_surplus(slope)
        if surplus is None:
            return 0.0
        kept -= np.divide(surplus, slope, out=np.zeros_like(slope), where=slope > 0)
        slope = slope - surplus
    mass = float(slope.sum())
    # What rounding may change: |sum s alpha x_j| of a cell, by Cauchy and Schwarz or by the largest x_j.
    both = cells.slope + cells.slope.T
    roots = np.sqrt(cells.slope) + np.sqrt(cells.slope.T)
    room = kept * cells.conjugate  # f* is concave and 0 at 0
    tension = (room + room.T) / point.scales
    combined = expansion.combined if np.all(kept == 1) else expansion.combined_with(kept)
    rest = -(combined + multiclass.laplacian(tension) @ expansion.metric)
    rest[~used.any(axis=1)] = 0.0
    if objective.l2:
        ridge = objective.l2 * objective.n_classes
        longest = np.minimum(roots * math.sqrt(objective.squares), both * objective.radius)
        return max(0.0, mass - (norm(rest.ravel()) + 8 * EPS * float(longest.sum())) ** 2 / (2 * ridge))
    gain = np.where(used, cells.value + cells.value.T, 0.0)
    inverse, network = _inverse_laplacian(gain), multiclass.laplacian(gain)
    potentials = inverse @ rest
    potentials += inverse @ (rest - network @ potentials)
    noise = objective.noise
    size = (
        8
        * EPS
        * np.minimum(
            roots * noise.polar_within(np.sqrt(objective.column_squares)), both * (objective.radius * noise.unit_polar)
        )
    )
    size += _carried(gain, np.abs(rest - network @ potentials), noise)
    for c in range(objective.n_classes - 1):
        flow = tension[c, c + 1 :, np.newaxis] * (expansion.metric[c] - expansion.metric[c + 1 :])
        flow += gain[c, c + 1 :, np.newaxis] * (potentials[c] - potentials[c + 1 :])
        polar = np.array([noise.polar(v) for v in flow])
        size[c, c + 1 :] += polar
        size[c + 1 :, c] += polar
    here = size - (room + room.T)
    short = (here > 0) & used
    if not short.any():
        return mass
    # Steeper than at c = 1 no pair gains room as alpha shrinks: is the target in reach at all?
    steepest = np.maximum(size + gain - expansion.conjugate, here)[short]
    if mass * (1 - float((here[short] / steepest).max())) < wanted < np.inf:
        return 0.0

    def chord(shrink: float) -> float:
        """Return how far alpha must shrink for every pair to have room, by the chord from ``shrink`` to 1, or 0."""
        room = kept * objective.shrunk_conjugate(point, shrink)
        there = shrink * size - (room + room.T)
        if np.any(there[short] >= 0):
            return 0.0
        return float((1 - (1 - shrink) * here[short] / (here[short] - there[short])).min())

    for shrink in SHRINKS:
        feasible = chord(shrink)
        if feasible > 0:
            # A second chord, from the end of the first, bounds it better.
            return max(feasible, chord(feasible)) * mass
    return 0.0


def certify_uncertain(
    expansion: uncertain.Expansion, target: float, *, thorough: bool = False, room: uncertain.Room | None = None
) -> Certificate:
    """Return a certificate of a problem with error bars from the slopes of a point.

    A dual point needs, for every pair of classes, a vector in the sum of the noise sets of its rows, ``sum s f* A_i``,
    that carries away what the rows pull. ``q_i = (Sigma_i + N) u / a_i`` is in ``A_i``, so the noise's own pull does it
    at the optimum. The rest, the gradient, flows through the pairs by their gains; when all alpha shrink to
    ``c alpha``, ``f*(c alpha) - c f*(alpha)`` of every row becomes free, and with it ``room`` for the flow. That is
    concave in c and 0 at 1, so one c tells enough. A gap that cannot fall below ``target`` is not computed to the end,
    unless ``thorough``. With the ``room`` of another place, which saves a look at the errors, it is but an estimate.
    """
    primal, dual = expansion.value * (1 + 4 * EPS), 0.0
    if primal - float(expansion.mass.sum()) <= target or thorough:
        # Two classes always touch.
        for negligible in NEGLIGIBLE if expansion.objective.n_classes > 2 else (0.0,):
            dual = max(dual, _room(expansion, negligible * target, room))
            if primal - dual <= target:
                break
    return Certificate(primal, dual)


def _room(expansion: uncertain.Expansion, negligible: float, room: uncertain.Room | None) -> float:
    """Return a dual value of :func:`certify_uncertain`, leaving out pairs whose slopes add up to no more than that."""
    objective, C = expansion.objective, expansion.objective.n_classes
    used = expansion.mass + expansion.mass.T > negligible
    slope, kept = np.where(used, expansion.mass, 0.0), np.where(used, 1.0, 0.0)
    if objective.fit_intercept:
        surplus = find_surplus(slope)
        if surplus is None:
            return 0.0
        kept -= np.divide(surplus, slope, out=np.zeros_like(kept), where=slope > 0)
    mass = float(np.vdot(kept, expansion.mass))
    cells = kept[:, :, np.newaxis] * (expansion.pull - expansion.noise)
    rest = cells.sum(axis=1) - cells.sum(axis=0)
    if objective.l2:
        return max(0.0, mass - float(np.vdot(rest, rest)) / (2 * objective.l2 * C))
    gain = kept * expansion.gain
    gain = gain + gain.T
    potentials = _inverse_laplacian(gain) @ rest
    lost = rest - multiclass.laplacian(gain) @ potentials
    if norm(lost.ravel()) > 1e-9 * norm(rest.ravel()) + 1e-13 * norm(expansion.pull.ravel()):
        return 0.0
    # The room of every cell when all alpha shrink: of error bars, and of the model's own noise.
    (free, roots), crowded = room or expansion.room, 0.0
    for c, k in zip(*np.nonzero(np.tril(gain)), strict=True):
        flow, capacity = gain[c, k] * (potentials[c] - potentials[k]), 0.0
        for one, other in ((c, k), (k, c)):
            length = objective.errors.length(flow, kept[one, other] * roots[one][other])
            if objective.noise is not None:
                own = kept[one, other] * free[one, other]
                length = min(length, objective.noise.polar(flow) / own if own > 0 else np.inf)
            capacity += 1 / length if length > 0 else np.inf
        crowded = max(crowded, 1 / capacity if capacity > 0 else np.inf)
    shrink = (1 - uncertain.SHRUNK) * crowded + 4 * EPS
    return (1 - shrink) * mass if shrink <= 1 - uncertain.SHRUNK else 0.0


def _carried(gain: Array, rest: Array, noise: Noise) -> Array:
    """Return how much of what a flow left at the classes goes through each pair on its way to the strongest class.

    ``rest`` has the sizes in every column; what comes back are polars.

    Every class sends it through its strongest pair with a class stronger than itself. Where there is none it is the
    strongest of those that touch at all, where all adds up to nothing but rounding.
    """
    result = np.zeros_like(gain)
    order = np.argsort(-gain.sum(axis=1), kind="stable")
    carried = rest.copy()
    for place in range(len(order) - 1, 0, -1):
        c = order[place]
        towards = order[np.argmax(gain[c, order[:place]])]
        if gain[c, towards] == 0:
            continue
        result[c, towards] = result[towards, c] = noise.polar_within(carried[c])
        carried[towards] += carried[c]
    return result


def find_surplus(slope: Array) -> Array | None:
    """Return what to take from each cell for every class to give as much as it takes, or None if it is too much."""
    net = slope.sum(axis=1) - slope.sum(axis=0)
    # In proportion to what both cells of a pair have, or either of them, or, where that is more than there is, the one
    # that gives: which one it is depends on the potentials, so they are found again.
    amount = np.minimum(slope, slope.T)
    for attempt in range(8):
        potential = _inverse_laplacian(amount) @ net
        surplus = np.maximum(0.0, amount * (potential[:, np.newaxis] - potential))
        left = net - surplus.sum(axis=1) + surplus.sum(axis=0)
        if np.all(surplus <= slope) and float(np.abs(left).max()) <= 4 * EPS * float(slope.sum()):
            return np.asarray(surplus)
        giving = np.triu(np.where(potential[:, np.newaxis] > potential, slope, slope.T))
        amount = giving + giving.T if attempt else slope + slope.T
    return None


def _inverse_laplacian(weights: Array) -> Array:
    """Return the pseudo-inverse of the Laplacian of a graph whose edges may differ by many orders of magnitude."""
    if len(weights) == 2:
        inverse = 0.25 / weights[0, 1] if weights[0, 1] > 0 else 0.0
        return np.array([[inverse, -inverse], [-inverse, inverse]])
    weights = np.where(weights > 1e-100 * weights.max(), weights, 0.0)  # or the inverse overflows
    degree = weights.sum(axis=1)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, 1.0))
    scaled = multiclass.laplacian(weights) * scale * scale[:, np.newaxis]
    return np.asarray(np.linalg.pinv(scaled, rcond=1e-13, hermitian=True) * scale * scale[:, np.newaxis])


class CollapseProof:
    """Dual points with the value ``2 S_min`` of the constant classifier, searched for a feasible mixture.

    They have ``alpha = 1`` on the lighter class: the uniform point of :func:`collapse_sigma`, and the slopes of pinned
    points at any noise level. A mixture is feasible if ``polar(v) <= sum s f*``, where v is linear in it and f*
    concave. Where K is stationary under fixed ``w.pull``, ``grad K = K v_u / (w.v_u)`` for the v of the uniform point,
    and mixing in the proportion ``1 : K / (w.v_u)`` leaves ``v = grad a sum s f*``, which is feasible.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.value = objective.constant
        self.points = [(0.5 * self.value * objective.pull, _uniform_level(objective), self.value)]

    def add(self, expansion: Expansion) -> None:
        """Take in the slopes of a pinned point."""
        totals = expansion.point.totals
        v, mass, rho = _balanced(self.objective, expansion.by_label, totals.slope_pos, totals.slope_neg)
        if mass >= self.value * (1 - SHORT):
            most = 4 * (len(v) + 2) if len(v) <= MIXED_COLUMNS else 2
            self.points = [self.points[0], *self.points[1:][-most:], (v, rho * totals.conjugate, mass)]

    def dual(self) -> float:
        """Return the dual value that is proven: that of the constant classifier but for rounding, or 0."""
        uniform, latest = self.points[0], self.points[-1]
        least = min(mass for *_, mass in self.points)
        if uniform is latest:
            return least if self._violation(np.ones(1), [uniform]) <= 0 else 0.0

        def between(share: float) -> float:
            return self._violation(np.array([share, 1 - share]), [uniform, latest])

        if minimize_scalar(between, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12}).fun <= 0:
            return least
        if len(self.points) < 3 or len(uniform[0]) > MIXED_COLUMNS:
            return 0.0
        # The mixture with the shortest v: the one that holds for the least noise.
        directions = np.array([v for v, *_ in self.points]).T / norm(uniform[0])
        system = np.vstack([directions, np.ones(len(self.points))])
        try:
            shares, _ = nnls(system, np.append(np.zeros(len(directions)), 1.0))
        except RuntimeError:  # it did not converge: no proof
            return 0.0
        return least if self._violation(shares / shares.sum(), self.points) <= 0 else 0.0

    def _violation(self, shares: Array, points: list[tuple[Array, float, float]]) -> float:
        v = np.array([point[0] for point in points]).T @ shares
        level = float(np.array([point[1] for point in points]) @ shares)
        noise, error = self.objective.noise, _rounding(self.objective, self.value)
        return noise.polar(v) + noise.polar_within(error) - level


def _lengths(objective: Objective | multiclass.Multiclass, mass: float) -> Array:
    """Return a bound on ``sum s alpha |x_j|`` for every column, by Cauchy and Schwarz."""
    return np.sqrt(mass * objective.column_squares)


def _rounding(objective: Objective, mass: float) -> Array:
    """Return a bound on the rounding error of ``sum s y alpha x`` in every column."""
    return 4 * EPS * _lengths(objective, mass)


def _balanced(objective: Objective, by_label: Array, slope_pos: float, slope_neg: float) -> tuple[Array, float, float]:
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


def _bound(
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
    error = error + _rounding(objective, mass)
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


def collapse_sigma(objective: Objective) -> float:
    """Return the factor on the noise level from which on a uniform dual point proves ``w = 0, b = +-1`` optimal.

    The point has ``alpha = 1`` on the rows of the lighter class and ``S_min/S_maj`` on the others: it balances,
    ``v = S_min (mu_+ - mu_-)``, and its dual value is ``2 S_min``, the objective of the constant classifier. It is
    feasible when ``polar(v) <= S_maj f*(S_min/S_maj)``.
    """
    level = _uniform_level(objective)
    pull = objective.noise.polar(min(objective.weights) * objective.pull)
    return pull / level if level > 0 else (np.inf if pull > 0 else 0.0)


def _uniform_level(objective: Objective) -> float:
    minor, major = sorted(objective.weights)
    return major * float(objective.loss.conjugate(np.asarray(minor / major)))


def is_collapsed(objective: Objective) -> bool:
    """Return whether the uniform dual point already proves that ``w = 0`` is optimal."""
    return collapse_sigma(objective) <= 1 if objective.fit_intercept else not np.any(objective.pull)


def norm_bound(loss: Loss, noise: Noise, radius: float, direction: Array) -> float:
    """Return a bound on ``||w*||`` without an intercept: ``1 / (a(u) f(-R / a(u)))`` for the unit vector ``u``.

    It follows from ``F(w*) <= F(0)`` and ``F(w) >= S a(w) f(-R ||w|| / a(w))`` with ``R = max ||x_i||``.
    """
    scale = noise.scale(direction / norm(direction))
    least = scale * float(loss.value(np.array([-radius / scale]))[0])
    return 1.0 / least if least > 0 else np.inf


class Recovered(NamedTuple):
    """A primal solution recovered from a dual one, by two formulas.

    Attributes
    ----------
    norm, intercept : ``||w*||`` and ``b*``, from the samples: the mean of their equations
    by_sample : ``||w*||`` from every sample alone, given the intercept; NaN where alpha is 0 or 1
    by_sums : ``||w*||`` from the sums over all samples, without a ridge; NaN if alpha is 1 somewhere, which has no z
    """

    norm: float
    intercept: float
    by_sample: Array
    by_sums: float


def recover_norm(
    loss: str | Loss,
    noise: Noise,
    alpha: Any,
    y: Any,
    X: Any,
    direction: Any,
    *,
    sample_weight: Any = None,
    fit_intercept: bool = True,
) -> Recovered:
    """Return the norm of ``w*``, and ``b*``, from a dual solution and the direction of ``w*``.

    A sample with ``0 < alpha < 1`` sits at ``z = f'^-1(alpha)``, and the optimum ``sum s a f(z)`` is ``sum s alpha``::

        ||w*|| = (1 - y b) / (a(u) z + y u.x)         for every such sample
        ||w*|| = sum s alpha / (a(u) sum s f(z))

    for the unit vector u along ``w*``. (In the thesis, chapter 3, both lack the sigma in ``a(u)``.) The equations of
    the samples are weighted by how well alpha determines z. With an intercept both labels must have such a sample. The
    second formula needs z where it matters most and is known least, next to ``alpha = 1``: prefer the first.

    Parameters
    ----------
    loss : str or Loss
    noise : Noise
    alpha : array-like of shape (n_samples,)
        The dual solution.
    y : array-like of shape (n_samples,)
        Labels, -1 and 1.
    X : array or sparse matrix of shape (n_samples, n_features)
    direction : array-like of shape (n_features,)
        Any multiple of ``w*``; ``sum s y alpha x`` is one.
    sample_weight : array-like of shape (n_samples,), default=None
    fit_intercept : bool, default=True
        Whether the problem has an intercept; else it is 0.

    Returns
    -------
    Recovered
    """
    loss, alpha, y, weight = _dual_point(loss, alpha, y, X, sample_weight)
    unit = np.asarray(direction, dtype=np.float64) / norm(np.asarray(direction, dtype=np.float64))
    scale = noise.scale(unit)
    inside = (alpha > 0) & (alpha < 1)
    z = loss.slope_inverse(alpha[inside])
    left = scale * z + y[inside] * np.asarray(X @ unit)[inside]
    # How well alpha determines z; next to 0 and 1, where z may be that of the end itself, it does not.
    known = weight[inside] * loss.curvature(z) * alpha[inside] * (1 - alpha[inside])
    positive = y[inside] > 0
    groups = (positive, ~positive) if fit_intercept else (np.ones_like(positive),)
    if not all(known[mine].sum() > 0 for mine in groups):
        raise ValueError("alpha must have a sample with 0 < alpha < 1, of either label if there is an intercept")
    means = [float(np.average(left[mine], weights=known[mine])) for mine in groups]
    inverse = float(np.mean(means))
    b = 0.5 * (means[1] - means[0]) / inverse if fit_intercept else 0.0
    by_sample = np.full(len(alpha), np.nan)
    by_sample[inside] = (1 - y[inside] * b) / left
    cost = np.zeros(len(alpha))
    cost[inside] = loss.value(z)
    cost[(alpha >= 1) & (weight > 0)] = np.nan
    return Recovered(1.0 / inverse, b, by_sample, float(weight @ alpha / (scale * (weight @ cost))))


class Feasibility(NamedTuple):
    """By how much a dual point misses its constraints; all of them 0 is feasible.

    Attributes
    ----------
    box : how far alpha leaves [0, 1]
    balance : ``|sum s y alpha|``; 0 without an intercept
    cone : ``polar(sum s y alpha x) - sum s f*(alpha)`` where that is positive
    """

    box: float
    balance: float
    cone: float


def dual_objective(
    loss: str | Loss, noise: Noise, alpha: Any, y: Any, X: Any, *, sample_weight: Any = None, l2: float = 0.0
) -> float:
    """Return the objective of the dual: a lower bound of the minimum wherever :func:`dual_feasibility` is 0.

    ::

        sum s alpha - excess(v, sum s f*(alpha))^2 / (2 l2),    v = sum s y alpha x

    without a ridge only ``sum s alpha``; with one the cone is no constraint.

    Parameters
    ----------
    loss, noise, alpha, y, X, sample_weight : as in :func:`recover_norm`
    l2 : float, default=0.0
        Weight of the ridge.

    Returns
    -------
    float
    """
    loss, alpha, y, weight = _dual_point(loss, alpha, y, X, sample_weight)
    value = float(weight @ alpha)
    if l2:
        excess = noise.excess(np.asarray(X.T @ (weight * y * alpha)), float(weight @ loss.conjugate(alpha)))
        value -= excess**2 / (2 * l2)
    return value


def dual_feasibility(
    loss: str | Loss, noise: Noise, alpha: Any, y: Any, X: Any, *, sample_weight: Any = None, fit_intercept: bool = True
) -> Feasibility:
    """Return by how much a dual point misses its constraints.

    Parameters
    ----------
    loss, noise, alpha, y, X, sample_weight, fit_intercept : as in :func:`recover_norm`

    Returns
    -------
    Feasibility
    """
    loss, alpha, y, weight = _dual_point(loss, alpha, y, X, sample_weight)
    box = max(0.0, float(-alpha.min()), float(alpha.max() - 1))
    balance = abs(float(weight @ (y * alpha))) if fit_intercept else 0.0
    level = float(weight @ loss.conjugate(np.clip(alpha, 0.0, 1.0)))
    return Feasibility(box, balance, max(0.0, noise.polar(np.asarray(X.T @ (weight * y * alpha))) - level))


def duality_gap(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return a proven bound on how far a fitted estimator is above the least objective on any data.

    Parameters
    ----------
    estimator : GuruClassifier
        Fitted.
    X, y, sample_weight : as in its ``certificate``, which also has the objective and its bound themselves

    Returns
    -------
    float
    """
    certificate: Certificate = estimator.certificate(X, y, sample_weight)
    return certificate.gap


def _dual_point(loss: str | Loss, alpha: Any, y: Any, X: Any, sample_weight: Any) -> tuple[Loss, Array, Array, Array]:
    """Return the loss, alpha, labels and weights, checked."""
    alpha, y = np.asarray(alpha, dtype=np.float64), np.asarray(y, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    for name, values in (("alpha", alpha), ("y", y), ("sample_weight", weight)):
        if values.shape != (X.shape[0],):
            raise ValueError(f"{name} must have shape ({X.shape[0]},), one number a sample; got shape {values.shape}")
    if not np.all(np.abs(y) == 1):
        raise ValueError(f"y must hold the labels -1 and 1; got {np.unique(y)[:5].tolist()!r}")
    return resolve_loss(loss), alpha, y, weight
