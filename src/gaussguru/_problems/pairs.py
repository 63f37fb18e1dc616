"""Problems that compare pairs of classes: what those with and without error bars, and that of balls, have in common.

F is a sum over the pairs of functions of ``w_c - w_k`` and ``b_c - b_k``. Gradients and Hessians are those of pairs,
added to ``c`` and subtracted from ``k``: a graph Laplacian of blocks. F does not change when one vector is added to
every ``w_k``; they are kept at ``sum_k w_k = 0``.

Conventions
-----------
W : array (C, n_columns); b : array (C,)
x : flat array of (C - 1, n_columns + 1), the unknowns: ``(w, b)`` of each class minus that of the last. The last class
    should be the heaviest: what a light class far from the others does would be lost in the rounding of the difference
cell (c, k) : the rows of class c against class k; arrays of cells have shape (C, C, ...), 0 on the diagonal
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from gaussguru._cached import cached_property
from gaussguru._data.rows import Rows
from gaussguru._linalg import EPS, LOST, Array, Index, Intercept, diagonal, norm
from gaussguru._problems.protocol import LocalModel, LossProblem, Problem
from gaussguru._problems.smoothing import NEGLIGIBLE, UNCERTAIN, Smoothing
from gaussguru.certificates.dual_point import Certificate, Ray, balance, route
from gaussguru.noise import Isotropic, QuadraticNoise

# Multiply-adds of a factor that are not worth saving (measured: about ten milliseconds).
CHEAP_FACTOR = 4e7


@dataclass(eq=False)
class ClassPoint:
    """A place with its value, known by class."""

    W: Array
    b: Array
    value: float

    @cached_property
    def x(self) -> Array:
        """The unknowns."""
        return fold(self.W, self.b)


@dataclass(eq=False)
class PairPoint(ClassPoint):
    """One with what is known of every cell: ``mass = sum s f'``, ``gain = sum s f`` and ``tension = sum s f*/a``.

    The last is how the noise pulls two classes together: by so much of their difference in its metric.
    """

    mass: Array
    gain: Array
    tension: Array


C = TypeVar("C", bound=ClassPoint)
P = TypeVar("P", bound=PairPoint)


class ByClass(Problem[C], Protocol[C]):
    """A problem whose unknowns are those of classes."""

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.rows.n_classes

    def unknowns(self, coef: Array, intercept: Intercept) -> Array:
        """Return the unknowns of a classifier; of two classes it may be a vector and a number."""
        if coef.ndim == 1:
            coef, intercept = np.vstack([-coef, coef]) / 2, halved(intercept)
        return fold(coef, np.asarray(intercept))

    def classifier(self, point: C) -> tuple[Array, Intercept]:
        """Return coefficients and intercepts, which add up to zero."""
        return point.W, point.b

    def initial(self, last: Smoothing, target: float) -> tuple[C, Smoothing]:
        """Return zero, with a blur of a margin."""
        smoothing = Smoothing(1.0, 1.0)
        zero = np.zeros((self.n_classes - 1) * (self.rows.n_columns + 1))
        return self.smoothed(smoothing).point(zero), smoothing


@dataclass(frozen=True, eq=False)
class PairProblem(LossProblem[P], ByClass[P], Protocol[P]):
    """Rows with a loss and the noise of a model, which is None where samples have no other noise than their own.

    ::

        F(W, b) = sum_i s_i sum_{k != y_i} a f(m / a) + (l2/2) sum_{c<k} ||w_c - w_k||^2
        m = 1 - (w_c - w_k).x_i - (b_c - b_k),    c = y_i

    (thesis, chapter 5: M-GURU). Their only smoothing is the blur.
    """

    noise: QuadraticNoise | None

    @property
    def weight(self) -> float:
        """F at zero: every row loses 1 against every other class."""
        return (self.n_classes - 1) * self.rows.total_weight

    @property
    def shared(self) -> QuadraticNoise:
        """The noise of the model, with the covariance N; of none, that of deviation 0."""
        return self.noise or Isotropic(0.0)

    def squares(self, W: Array) -> Array:
        """Return what noise of the model and blur make of the squares of the scales, ``u' N u + blur^2``, by cell."""
        apart, blur = W[:, np.newaxis] - W, max(self.smoothing.blur, 1e-100)  # changes no value, but keeps z finite
        result: Array = np.maximum(0.0, (apart * self.shared.metric(apart)).sum(axis=2)) + blur**2
        diagonal(result)[:] = 1.0  # never used
        return result

    def ridge(self, W: Array) -> float:
        """Return what the ridge adds to F."""
        return 0.5 * self.l2 * self.n_classes * float(np.vdot(W, W))

    def constant_value(self, intercept: Intercept) -> float:
        """Return F of a classifier with these intercepts that ignores the features: the loss is the hinge."""
        b = np.asarray(intercept)
        return float(hinge_values(self.rows.class_weights, np.atleast_2d(b if b.ndim else halved(intercept)))[0])

    def constant_near(self, point: P | None) -> tuple[Intercept, float]:
        """Return intercepts of the best classifier of some that ignore the features, and F there.

        They are 0; those that name the heaviest class; and those of the point to which a solver came, or the whole ones
        next to them: at ``W = 0`` F is least where differences are whole.
        """
        C, weights = self.n_classes, self.rows.class_weights
        candidates = [np.zeros(C)]
        if self.fit_intercept:
            candidates.append((np.arange(C) == np.argmax(weights)) - 1 / C)
            if point is not None:
                b = point.b
                rounded = np.round(b - b[0])
                candidates += [b - b.mean(), rounded - rounded.mean()]
        values = hinge_values(weights, np.array(candidates))
        place = int(values.argmin())
        best = candidates[place]
        return (float(best[1] - best[0]) if C == 2 else best), float(values[place])


# Of a pair c, k: what flows from c to k, and a bound of its error by column.
Flow = Callable[[int, int], tuple[Array, Array]]


@dataclass(eq=False)
class PairLocal(LocalModel[P], Protocol[P]):
    """Value and derivatives at one point, in the unknowns."""

    problem: PairProblem[P]
    point: P
    refreshes: ClassVar[bool] = True

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        problem, mass = self.problem, self.point.mass
        by_coef = self.force(np.ones_like(mass)) + problem.l2 * problem.n_classes * self.point.W
        given = mass.sum(axis=0) - mass.sum(axis=1)
        return joined(by_coef, given * problem.fit_intercept)[:-1].ravel()

    def force(self, kept: Array) -> Array:
        """Return the gradient by W without the ridge, for the slopes of every cell times ``kept``."""
        return np.asarray(self.pull(kept) + laplacian(symmetric(kept * self.point.tension)) @ self.metric)

    def pull(self, kept: Array) -> Array:
        """Return :meth:`force` without the noise of the model."""

    @cached_property
    def metric(self) -> Array:
        """``W N``."""
        return np.asarray(self.problem.shared.metric(self.point.W))

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def _work(self) -> tuple[int, int]:
        """Multiply-adds of a product, and of the Gram matrices in a Hessian; error bars make rows dense."""
        rows, C = self.problem.rows, self.problem.n_classes
        if rows.errors is None:
            return C * rows.n_values, C * rows.n_values * (rows.n_columns + 1)
        values, (product, gram) = C * rows.n_rows * rows.n_columns, rows.errors.work
        return int(values * product), int(values * gram * (rows.n_columns + 1))

    @property
    def hessian_cost(self) -> float:
        """What a factor costs, in units of :meth:`product` and a solution with the factor (measured)."""
        (product, grams), n = self._work, len(self.gradient)
        return 1.0 + (grams / 8 + n**3 / 20) / (product + 3 * n**2)

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving."""
        return len(self.gradient) ** 3 + self._work[1] < CHEAP_FACTOR

    def hessian(self) -> Array:
        """Return the Hessian by the unknowns."""
        problem, C, width = self.problem, self.problem.n_classes, self.problem.rows.n_columns + 1
        problem.rows.count("hessian")
        tension, hessian = symmetric(self.point.tension), np.zeros((C - 1, width, C - 1, width))
        for block, (c, k) in zip(self.blocks(), pairs_of(C), strict=True):
            problem.shared.add_metric(tension[c, k], block[:-1, :-1])
            diagonal(block[:-1, :-1])[:] += problem.l2
            hessian[c, :, c] += block
            if k < C - 1:  # the last class is what the unknowns are relative to
                hessian[k, :, k] += block
                hessian[c, :, k] -= block
                hessian[k, :, c] -= block
        if not problem.fit_intercept:
            hessian[:, -1], hessian[:, :, :, -1] = 0.0, 0.0
            hessian[np.arange(C - 1), -1, np.arange(C - 1), -1] = 1.0
        return hessian.reshape((C - 1) * width, -1)

    def blocks(self) -> Iterable[Array]:
        """Return the Hessian of every pair ``c < k`` without the ridge and without tension times N."""

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; one pass over X."""
        problem, C = self.problem, self.problem.n_classes
        P, shifts = unfold(p, C)
        # (w_c - w_k)' N (p_c - p_k): how fast half the square of the scale rises along p.
        rise = np.array([np.einsum("kj,kj->k", m - self.metric, q - P) for m, q in zip(self.metric, P, strict=True)])
        out = self._bent(P, shifts * problem.fit_intercept, rise)
        out[:, :-1] += laplacian(symmetric(self.point.tension)) @ problem.shared.metric(P) + problem.l2 * C * P
        if not problem.fit_intercept:
            out[:, -1] = shifts - shifts[-1]
        return out[:-1].ravel()

    def tangent(self, less: Smoothing) -> Array:
        """Return how the gradient changes on the way to less smoothing, to first order; one pass over X.

        See :meth:`gaussguru._problems.binary.BinaryLocal.tangent`.
        """
        problem, C = self.problem, self.problem.n_classes
        rise = problem.smoothing.towards(less).blur * problem.smoothing.blur**2
        out = self._bent(np.zeros_like(self.point.W), np.zeros(C), np.full((C, C), rise))
        out[:, -1] *= problem.fit_intercept
        return out[:-1].ravel()

    def _bent(self, P: Array, shifts: Array, rise: Array) -> Array:
        """Return how the gradient of every class changes with scores and scales, at the same tension times N.

        Scores change with the coefficients by P and with the intercepts by ``shifts``; half the squares of the scales
        by what P makes of the error bars, and by ``rise``. One pass over X.
        """
        self.problem.rows.count("product")
        out, turns = self.bend(P, shifts, rise)
        out[:, :-1] += laplacian(symmetric(turns)) @ self.metric
        return out

    def bend(self, P: Array, shifts: Array, rise: Array) -> tuple[Array, Array]:
        """Return :meth:`_bent` without the noise of the model, and the changes of the tensions, by cell."""

    # --- smoothing ----------------------------------------------------------------------------------------

    @property
    def spread(self) -> float:
        """The standard deviation of the margins of a pair."""

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing that hides most of how far the minimum of more rows is from this one."""
        return Smoothing(1.0, self.settled(NEGLIGIBLE * self._uncertainty, last.blur))

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum by more than less smoothing would."""
        return bool(self.problem.smoothing.blur <= UNCERTAIN * self._uncertainty)

    @cached_property
    def _uncertainty(self) -> float:
        """How far margins may move with more rows: ``sqrt(columns / rows)`` of their spread."""
        rows = self.problem.rows
        return self.spread * float(np.sqrt(rows.n_columns * rows.n_classes / (2 * rows.n_rows)))

    # --- certificates -------------------------------------------------------------------------------------

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, P]:
        """Return bounds on the minimum from the slopes of this point, and the point itself.

        A gap that cannot fall below ``target`` is not computed to the end, unless ``thorough``.
        """
        problem, W, total = self.problem, self.point.W, float(self.point.mass.sum())
        reach = math.sqrt(total) * float(np.sqrt((W**2).sum(axis=0)) @ problem.rows.column_lengths)
        scales = total * max(problem.shared.rounding(W[c] - W[k]) for c, k in pairs_of(problem.n_classes))
        primal, dual = self.value + 4 * EPS * (self.value + reach) + scales, 0.0
        if primal > target and (primal - total <= target or thorough):
            dual = self.best_dual(target, np.inf if thorough else primal - target)
        return Certificate(primal, dual), self.point

    def best_dual(self, target: float, wanted: float) -> float:
        """Return the highest dual value of several choices of pairs; no more is done than it takes to reach it."""
        return highest((self.dual(used, wanted) for used in touching(self.point.mass, target)), wanted)

    def dual(self, used: Array, wanted: float) -> float:
        """Return a dual value with the pairs that are ``used``; no more is done than it takes to reach ``wanted``."""
        problem = self.problem
        kept = balance(np.where(used, self.point.mass, 0.0)) if problem.fit_intercept else 1.0 * used
        if kept is None:
            return 0.0
        mass, rest = (1 - 4 * EPS) * float(np.vdot(kept, self.point.mass)), -self.force(kept)
        flow, unrouted = route(rest, symmetric(kept * self.point.gain))
        rounding = pair_rounding(self.point.mass, problem.rows, thorough=wanted == np.inf)

        def bounded(c: int, k: int) -> tuple[Array, Array]:
            return flow(c, k), rounding(c, k) + unrouted.get((c, k), 0.0)

        edges = np.nonzero(np.triu(symmetric(kept), 1))
        ray = partial(Ray, mass, ridge=problem.l2 * problem.n_classes, excess=norm(rest.ravel()))
        return highest((roomy.best(wanted) for roomy in self.rays(ray, kept, edges, bounded)), wanted)

    def rays(self, ray: Callable[..., Ray], kept: Array, edges: tuple[Index, ...], flow: Flow) -> Iterable[Ray]:
        """Return a ``ray`` that is told of the room in the pairs at ``edges``, or several, first what costs least.

        The slopes of every cell are multiplied by ``kept``; ``flow`` is what is sent through a pair besides the pull of
        its own noise, with a bound of its error.
        """

    def may_close(self, expected: Callable[[], float], target: float) -> bool:
        """Return whether the gap, about ``sqrt(decrement * F)``, or with a ridge the decrement, may be so small.

        Without a ridge, what is left of the gradient must fit into the noise: the gap is of first order in it. A
        decrement that is lost in rounding says nothing.
        """
        decrement = expected()
        gap = math.sqrt(max(0.0, decrement) * self.value)
        gap = min(gap, decrement) if self.problem.l2 else gap
        return decrement <= LOST * self.value or NEGLIGIBLE * gap <= target

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from the slopes where a Newton step leads, where F resolves no more.

        Where scales are tiny beside the scores, the last bits of W move the slopes more than the optimum allows. The
        slacks have bits to spare.
        """
        if decrement > LOST * self.value:
            return 0.0, None
        problem, (P, shifts) = self.problem, unfold(p, self.problem.n_classes)
        moved = self.displaced(P, shifts * problem.fit_intercept)
        dual = moved.best_dual(target, self.value - target if target else np.inf)
        return dual, problem.slopes(moved.point) if problem.rows.in_memory else None

    def displaced(self, P: Array, shifts: Array) -> "PairLocal[P]":
        """Return value and gradient a step from here, of which only the slopes count: W has lost bits of it."""


def halved(intercept: Intercept) -> Array:
    """Return the intercepts of two classes, which add up to zero, of a classifier with one."""
    return np.array([-0.5, 0.5]) * intercept


def fold(W: Array, b: Array) -> Array:
    """Return the unknowns: ``(w, b)`` of each class minus that of the last."""
    params = joined(W, b)
    return np.asarray((params[:-1] - params[-1]).ravel())


def joined(W: Array, b: Array) -> Array:
    """Return coefficients and intercepts in one array (``np.column_stack`` takes four times as long)."""
    params = np.empty((len(W), W.shape[1] + 1))
    params[:, :-1], params[:, -1] = W, b
    return params


def unfold(x: Array, n_classes: int) -> tuple[Array, Array]:
    """Return ``W`` and ``b``, each adding up to zero over the classes, from the unknowns."""
    full = np.zeros((n_classes, x.size // (n_classes - 1)))
    full[:-1] = x.reshape(n_classes - 1, -1)
    full -= full.sum(axis=0) / n_classes
    return np.ascontiguousarray(full[:, :-1]), np.ascontiguousarray(full[:, -1])


def mixed(parts: Sequence[tuple[float, ClassPoint]]) -> tuple[Array, Array]:
    """Return a linear combination of the coefficients and intercepts of points."""
    W, b = sum(share * point.W for share, point in parts), sum(share * point.b for share, point in parts)
    return np.asarray(W), np.asarray(b)


def pairs_of(n_classes: int) -> list[tuple[int, int]]:
    """Return all pairs ``c < k``."""
    return [(c, k) for c in range(n_classes - 1) for k in range(c + 1, n_classes)]


def symmetric(cells: Array) -> Array:
    """Return what both cells of every pair have together."""
    return cells + cells.T


def laplacian(weights: Array) -> Array:
    """Return the Laplacian of a graph with these edge weights, a symmetric matrix with a zero diagonal."""
    result = -weights
    diagonal(result)[:] += weights.sum(axis=1)
    return result


def hinge_values(class_weights: Array, b: Array) -> Array:
    """Return F at ``W = 0`` for every row of intercepts: the noise is gone, and the loss is the hinge."""
    hinge = np.maximum(0.0, 1.0 - (b[:, :, np.newaxis] - b[:, np.newaxis]))
    return np.asarray((hinge.sum(axis=2) - 1.0) @ class_weights)  # a class is not compared with itself


# Left out of a dual point are classes whose slopes add up to at most the first fraction of the wanted gap, and pairs
# with at most the second fraction of the slopes of either class. Groups of classes that hardly touch each other need
# the last: what little flows between them has no room.
LEFT_OUT = ((1e-6, 1e-9), (1e-3, 1e-5))


def highest(values: Iterable[float], wanted: float) -> float:
    """Return the highest of values, which are computed until one is what is wanted; at least 0."""
    best = 0.0
    for value in values:
        best = max(best, value)
        if best >= wanted:
            break
    return best


def touching(slope: Array, target: float) -> Iterator[Array]:
    """Yield which pairs of classes count in a dual point, more of them first.

    Pairs that hardly touch, ``alpha = 0``, add nothing, and nothing could flow through them. What flows to a class
    through a pair that is left out has to come through its others: all of a class go, or none that matter.
    """
    both = symmetric(slope)
    total = both.sum(axis=1)
    for light, slight in LEFT_OUT if len(slope) > 2 else ((0.0, 0.0),):
        counts = total > light * target
        yield (both > slight * np.minimum.outer(total, total)) & counts & counts[:, np.newaxis]


def pair_rounding(slope: Array, rows: Rows, *, thorough: bool) -> Callable[[int, int], Array]:
    """Return a bound on the rounding error of what the rows of a pair pull, by column.

    ``sum s alpha |x_j|`` is at most the root of the mass times ``sum s x_j^2`` (Cauchy and Schwarz); to be ``thorough``
    is to look for the largest ``|x_j|`` too.
    """
    roots, both = np.sqrt(slope) + np.sqrt(slope.T), slope + slope.T
    lengths, peaks = rows.column_lengths, rows.peaks if thorough else np.inf
    return lambda c, k: 8 * EPS * np.minimum(roots[c, k] * lengths, both[c, k] * peaks)
