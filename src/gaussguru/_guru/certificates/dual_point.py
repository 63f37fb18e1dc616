"""Dual points: lower bounds of the minimum from the slopes of any point.

The dual of a problem with classes c, k, ... has a slope ``alpha`` in [0, 1] for every sample and other class, and a
noise vector ``B_ck = -B_kc`` for every pair of classes. With the pull of the samples at class c,
``n_c = sum_k (sum_{i in c} s alpha x - sum_{i in k} s alpha x)``::

    max  sum s alpha - ||n - sum_k B_ck||^2 / (2 l2 C)        (without a ridge the norm must vanish)
    s.t. B_ck in the sum of the noise sets f*(alpha_i) A_i of the samples of the pair,
         every class gives as much alpha as it takes          (only with intercepts)

For noise that all samples share the second line is ``polar(B_ck) <= sum s f*(alpha)`` (thesis, chapter 3, with its
missing factor sigma). Two classes are a graph with one edge, and ``B = v = sum s y alpha x``.

A dual point is made from the slopes of a primal one in three steps:

balance  scale the slopes of cells down until every class gives as much alpha as it takes;
route    send the gradient, the part of the pull that the noise of the point does not balance, through the graph of
         pairs, as a current through resistors;
shrink   replace alpha by ``c alpha`` until every pair has room. ``f*`` is concave and 0 at 0, so room is gained, and
         its value at one smaller c gives a safe bound of the necessary c (a chord).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gaussguru._utils.linalg import EPS, Array


@dataclass(frozen=True)
class Certificate:
    """Bounds on the minimum: ``dual <= F* <= primal``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> proof = GuruClassifier(5.0).fit(X, y).certificate(X, y)
    >>> proof.dual <= proof.primal and proof.gap < 1e-3
    True
    """

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """Upper bound on the distance of F at the certified point to its minimum."""
        return max(0.0, self.primal - self.dual)


class Ray(NamedTuple):
    """The dual points ``c alpha``, ``0 <= c <= 1``.

    Attributes
    ----------
    mass : ``sum s alpha``
    demand : the polar of the vector of every pair of classes
    room : ``sum s f*(alpha)`` of every pair, or a lower bound
    room_at : the room at ``c alpha`` as a function of c; concave, and read only up to the first pair without room
    gain : an upper bound, for every pair, of the rate at which room exceeds ``c room`` as c falls from 1
    ridge, excess : ``l2 C``, and with a ridge the norm at ``c = 1`` of ``n_c`` minus the vectors of its pairs
    twice : whether ``room_at`` is cheap enough for a second chord
    """

    mass: float
    demand: Sequence[float]
    room: Sequence[float]
    room_at: Callable[[float], Iterable[float]]
    gain: Sequence[float] | None = None
    ridge: float = 0.0
    excess: float = math.inf
    twice: bool = True

    def best(self, wanted: float = math.inf) -> float:
        """Return a dual value on the ray; stop once it reaches ``wanted``, or cannot reach it."""
        lack = [demand - room for demand, room in zip(self.demand, self.room, strict=True)]
        worst = max(lack, default=0.0)
        if worst <= 0 or (self.ridge and self.excess == 0):
            return self.mass
        best = max(0.0, self.mass - self.excess * (self.excess / (2 * self.ridge))) if self.ridge else 0.0
        if best >= wanted or not math.isfinite(worst):
            return best
        most = self._most(lack)
        for shrink in (0.99, 0.9, 0.5, 0.1, 1e-2, 1e-4):  # the first feasible c gives the tightest chord
            if not self.ridge and most * self.mass < wanted < math.inf:  # all feasible points are lower
                break
            feasible = self._chord(shrink, lack)
            if feasible > 0:
                best = max(best, self._between(feasible))
                if best < wanted and self.twice:  # a second chord, from the end of the first, is tighter
                    best = max(best, self._between(self._chord(feasible, lack)))
                break
            most = shrink
        return best

    def _most(self, lack: list[float]) -> float:
        """Return an upper bound of the c at which every pair has room, from the gain at c = 1."""
        if self.gain is None:
            return 1.0
        return min(1 - h / max(d + g, h) for h, d, g in zip(lack, self.demand, self.gain, strict=True) if h > 0)

    def _chord(self, shrink: float, lack: list[float]) -> float:
        """Return a c at which every pair has room, by the chord from ``shrink`` to 1; 0 if ``shrink`` is infeasible."""
        feasible = 1.0
        for h, demand, room in zip(lack, self.demand, self.room_at(shrink), strict=True):
            if h > 0:
                end_lack = shrink * demand - room
                if not end_lack < 0:
                    return 0.0
                feasible = min(feasible, 1 - (1 - shrink) * h / (h - end_lack))
        return feasible

    def _between(self, feasible: float) -> float:
        """Return the best dual value between a feasible c and 1, where the excess rises at most linearly."""
        if not self.ridge or feasible in (0.0, 1.0):
            return feasible * self.mass
        rise = self.excess / (1 - feasible)
        kept = min(self.excess, self.mass * self.ridge / rise)  # the excess where the derivative by c is 0
        return self.mass * (feasible + kept / rise) - kept * (kept / (2 * self.ridge))


def balance(slope: Array) -> Array | None:
    """Return factors in [0, 1] of the slopes of every cell, (C, C), with which each class gives as much as it takes.

    ``slope`` has ``sum s alpha`` of the rows of c against k at (c, k). Return None if no factors are found.
    """
    net = slope.sum(axis=1) - slope.sum(axis=0)
    # Slopes are reduced in proportion to the smaller cell of a pair, then to their sum and, if that exceeds a cell, to
    # the cell that is reduced. That cell depends on the potentials, so they are iterated.
    amount = np.minimum(slope, slope.T)
    for attempt in range(8):
        potential = inverse_laplacian(amount) @ net
        surplus = np.maximum(0.0, amount * (potential[:, np.newaxis] - potential))
        left = net - surplus.sum(axis=1) + surplus.sum(axis=0)
        if (surplus <= slope).all() and float(np.abs(left).max()) <= 4 * EPS * float(slope.sum()):
            return np.asarray(np.divide(slope - surplus, slope, out=np.zeros_like(slope), where=slope > 0))
        giving = np.triu(np.where(potential[:, np.newaxis] > potential, slope, slope.T))
        amount = giving + giving.T if attempt else slope + slope.T
    return None


def inverse_laplacian(weights: Array) -> Array:
    """Return the pseudo-inverse of the Laplacian of a graph whose weights may differ by many orders of magnitude."""
    least = 1e-100 * max(1e-100, float(weights.max()))  # the inverse of a smaller weight may overflow
    weights = np.where(weights > least, weights, 0.0)
    if len(weights) == 2:  # in a tenth of the time, 7 % of a small fit with error bars
        inverse = 0.25 / weights[0, 1] if weights[0, 1] > 0 else 0.0
        return np.array([[inverse, -inverse], [-inverse, inverse]])
    degree = weights.sum(axis=1)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, 1.0))
    scaled = (np.diag(degree) - weights) * scale * scale[:, np.newaxis]
    return np.asarray(np.linalg.pinv(scaled, rcond=1e-13, hermitian=True) * scale * scale[:, np.newaxis])


def route(rest: Array, gain: Array) -> tuple[Callable[[int, int], Array], dict[tuple[int, int], Array]]:
    """Route ``rest``, (C, n_columns), through pairs of classes, as a current through the conductances ``gain``, (C, C).

    Return the flow from c to k as a function, and bounds by column on the rounding errors of the flow, by pair: every
    class sends its own through the strongest of its pairs with stronger classes.
    """
    inverse = inverse_laplacian(gain)
    network = np.diag(gain.sum(axis=1)) - gain
    potentials = inverse @ rest
    potentials += inverse @ (rest - network @ potentials)
    carried, unrouted = np.abs(rest - network @ potentials), {}
    order = np.argsort(-gain.sum(axis=1), kind="stable")
    for position in range(len(order) - 1, 0, -1):
        c = int(order[position])
        towards = int(order[np.argmax(gain[c, order[:position]])])
        if gain[c, towards] == 0:
            continue
        unrouted[min(c, towards), max(c, towards)] = carried[c]
        carried[towards] += carried[c]
    return lambda c, k: gain[c, k] * (potentials[c] - potentials[k]), unrouted
