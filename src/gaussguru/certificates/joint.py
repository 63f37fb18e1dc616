"""Gaps of several classes, and of samples with error bars: duals that are flows between classes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussguru import multiclass, uncertain
from gaussguru.certificates.gaps import EPS, SHRINKS, Certificate, certify, lengths
from gaussguru.certificates.kinks import can_refine, refine_ties
from gaussguru.losses import Array
from gaussguru.noise import Noise, norm
from gaussguru.objective import Objective

# Classes whose slopes add up to at most the first part of the wanted gap do not count, nor do pairs with at most the
# second part of those of either class; few are left out first. (Groups of classes that hardly touch each other need the
# last: what little flows between them has no room.)
LEFT_OUT = ((1e-6, 1e-9), (1e-3, 1e-9), (1e-3, 1e-5))
# The gap that is usually wanted, relative to F(0): much less is negligible.
USUAL = 1e-6


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
    reach = float(np.sqrt((point.coef**2).sum(axis=0)) @ lengths(objective, mass))
    primal = point.value + 4 * EPS * (point.value + reach)
    if primal <= target or (primal - mass > target and not thorough):
        return Certificate(primal, 0.0)
    dual = 0.0
    for negligible, slight in LEFT_OUT:
        used = _touching(cells.slope, negligible * target, slight)
        dual = max(dual, _flow(expansion, used, np.inf if thorough else primal - target))
        if primal - dual <= target:
            break
    return Certificate(primal, dual)


def _flow(expansion: multiclass.Expansion, used: NDArray[np.bool_], wanted: float) -> float:
    """Return a dual value of :func:`certify_joint` with the pairs that are ``used``.

    It is 0 if it cannot be as ``wanted``; inf wants all there is.
    """
    objective, point, cells = expansion.objective, expansion.point, expansion.point.cells
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
    inverse, network = inverse_laplacian(gain), multiclass.laplacian(gain)
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
        # The model's own noise may be room enough, which saves a look at the errors; two classes always touch.
        direct = room or expansion.objective.noise is None or expansion.is_cheap
        for rooted in (True,) if direct else (False, True):
            for negligible, slight in LEFT_OUT if expansion.objective.n_classes > 2 else ((0.0, 0.0),):
                used = _touching(expansion.mass, negligible * target, slight)
                dual = max(dual, _room(expansion, used, room, rooted=rooted))
                if primal - dual <= target:
                    return Certificate(primal, dual)
    return Certificate(primal, dual)


def _room(
    expansion: uncertain.Expansion, used: NDArray[np.bool_], room: uncertain.Room | None, *, rooted: bool
) -> float:
    """Return a dual value of :func:`certify_uncertain` with the pairs that are ``used``.

    A row has room for ``r |p|`` in the direction p by what becomes free, r, and across u by how its noise set bends:
    ``c f* (|p| - p.q) >= c f* |p'|^2 / (2 |p|)`` for the part p' of p across u in its own metric. Together that is at
    least ``sqrt(2 r c f*) |p'|``, in the metric N too. So what flows across u takes no more of r than its square.
    """
    objective, C = expansion.objective, expansion.objective.n_classes
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
    potentials = inverse_laplacian(gain) @ rest
    lost = rest - multiclass.laplacian(gain) @ potentials
    if not norm(lost.ravel()) <= 1e-9 * norm(rest.ravel()) + 1e-13 * norm(expansion.pull.ravel()):  # or not a number
        return 0.0
    room, noise = room or (expansion.room if rooted else expansion.own_room), objective.noise

    def straight(flow: Array, c: int, k: int) -> float:
        """Return how much of the room of a pair a flow takes, of error bars and of the model's own noise."""
        capacity = 0.0
        for cell in ((c, k), (k, c)):
            lengths = []
            if room.roots is not None:
                lengths.append(objective.errors.length(flow, kept[cell] * room.roots[cell[0]][cell[1]]))
            if noise is not None and kept[cell] * room.free[cell] > 0:
                lengths.append(noise.polar(flow) / (kept[cell] * room.free[cell]))
            # Variances add up: sqrt(A + B) is the largest of cos sqrt(A) + sin sqrt(B).
            capacity += math.hypot(*(1 / length if length > 0 else np.inf for length in lengths))
        return 1 / capacity if capacity > 0 else np.inf

    crowded = 0.0
    for c, k in zip(*np.nonzero(np.tril(gain)), strict=True):
        flow, u = gain[c, k] * (potentials[c] - potentials[k]), expansion.W[c] - expansion.W[k]
        least = straight(flow, c, k)
        bend = math.sqrt(uncertain.SHRUNK) * (kept[c, k] * room.bend[c, k] + kept[k, c] * room.bend[k, c])
        if noise is not None and bend > 0 and u.any():
            own = noise.metric(u)
            along = own * (float(flow @ u) / float(own @ u))
            least = min(least, straight(along, c, k) + 0.5 * (noise.polar(flow - along) / bend) ** 2)
        crowded = max(crowded, least)
    shrink = (1 - uncertain.SHRUNK) * crowded + 4 * EPS
    return (1 - shrink) * mass if shrink <= 1 - uncertain.SHRUNK else 0.0


def _touching(slope: Array, negligible: float, slight: float) -> NDArray[np.bool_]:
    """Return which pairs of classes count.

    Those that hardly touch are left out, alpha = 0: they add nothing, and nothing could flow through them. What flows
    to a class through a pair that is left out has to come through its others: all of a class go, or none that matter.
    """
    both = slope + slope.T
    total = both.sum(axis=1)
    counts = total > negligible
    return np.asarray((both > slight * np.minimum.outer(total, total)) & counts & counts[:, np.newaxis])


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
        potential = inverse_laplacian(amount) @ net
        surplus = np.maximum(0.0, amount * (potential[:, np.newaxis] - potential))
        left = net - surplus.sum(axis=1) + surplus.sum(axis=0)
        if np.all(surplus <= slope) and float(np.abs(left).max()) <= 4 * EPS * float(slope.sum()):
            return np.asarray(surplus)
        giving = np.triu(np.where(potential[:, np.newaxis] > potential, slope, slope.T))
        amount = giving + giving.T if attempt else slope + slope.T
    return None


def inverse_laplacian(weights: Array) -> Array:
    """Return the pseudo-inverse of the Laplacian of a graph whose edges may differ by many orders of magnitude."""
    if len(weights) == 2:
        inverse = 0.25 / weights[0, 1] if weights[0, 1] > 0 else 0.0
        return np.array([[inverse, -inverse], [-inverse, inverse]])
    weights = np.where(weights > 1e-100 * weights.max(), weights, 0.0)  # or the inverse overflows
    degree = weights.sum(axis=1)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, 1.0))
    scaled = multiclass.laplacian(weights) * scale * scale[:, np.newaxis]
    return np.asarray(np.linalg.pinv(scaled, rcond=1e-13, hermitian=True) * scale * scale[:, np.newaxis])


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
    certificate = certify(expansion, 0.0, thorough=True)
    if can_refine(objective):
        certificate = replace(certificate, dual=max(certificate.dual, refine_ties(expansion, objective)[0]))
    return certificate, objective.slopes(expansion.point)
