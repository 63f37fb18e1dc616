"""Support vector machines whose samples an adversary may move within a ball.

::

    F(W, b) = sum_i s_i max_k t_ik + (ridge/2) sum_c ||w_c||^2,        t_iy = 0 for the class y of sample i, else
    t_ik    = 1 - (w_y - w_k).x_i - (b_y - b_k) + r_i n_yk,            n_ck = ||w_c - w_k||

``r_i`` is how far sample i may be moved. Two classes are the binary problem with ``w = w_1 - w_0`` and twice its ridge.
With fixed unit vectors ``u_ck = -u_kc`` instead, ``n_ck = u_ck.(w_c - w_k)``, it is the multiclass support vector
machine of Crammer and Singer on displaced samples, and ``r_i`` may have either sign.

**Dual.** For all ``alpha >= 0`` with ``sum_k alpha_ik = 1`` that balance (with intercepts: every class gives as much
``s alpha`` as it takes) and all ``||u_ck|| <= 1``::

    F >= sum_i s_i sum_{k != y} alpha_ik - ||g||^2 / (2 ridge),
    g_k = sum_i s_i (alpha_ik - [k = y]) x_i + sum_c K_kc u_kc,        K_ck = sum over the rows of c and k of s r alpha

**Smoothing.** The maximum becomes ``mu log sum_k exp(t_ik / mu)``, of slope ``alpha = softmax(t / mu)``, and the length
of a difference ``d`` becomes ``hypot(d, eps)``, of slope ``u = d / hypot(d, eps)``: at any ``mu`` the slopes are a dual
point of the problem itself, so the optimum of the smooth problem proves itself nearly optimal for the other. ``mu`` is
the blur of the smoothing. Near the end only samples with a tie have a Hessian: those that the adversary can just bring
to a margin.

Conventions
-----------
x, W, b : as in :mod:`gaussguru._guru.problems.multiclass`; arrays of classes have shape (C, n_columns + 1)
residual : row vector of (n_rows, C), the derivatives of F by the scores, ``s (alpha - [k = y])``
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations
from typing import Any, ClassVar

import numpy as np

from gaussguru._guru.certificates.dual_point import Certificate, balance
from gaussguru._guru.problems.pairs import ByClass, ClassPoint, mixed, unfold
from gaussguru._guru.problems.protocol import LocalModel
from gaussguru._guru.problems.smoothing import NONE, RARE, UNCERTAIN, Smoothing
from gaussguru._rows.rows import Block, Rows, RowVector, one_hot, piece_rows, scores
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import EPS, Array, Index

# Smoothing is small enough if it adds at most this fraction of the tolerance to F.
ADDED_SHARE = 0.5
# Smoothing falls by at most this factor at a time (measured for balls: 2.5 takes 63 passes instead of 39 on covtype).
FASTEST = 10.0


@dataclass(eq=False)
class BallPoint(ClassPoint):
    """A point with its scores and F.

    Attributes
    ----------
    scores : row vector of (n_rows, C)
    sight : (C, C, n_columns), ``u`` of every pair; of other sets than balls their own view of the point
    reached : row vector of (n_rows, C), ``r_i n_yk``
    residual : row vector of (n_rows, C), the derivatives of F by the scores
    added : the increase of F by smoothing the maxima
    """

    scores: RowVector
    sight: Any
    reached: RowVector
    residual: RowVector
    added: float


@dataclass(frozen=True, eq=False)
class Ball(ByClass[BallPoint]):
    """Rows, the distance by which each may be moved, and fixed directions or None; see the module for the formulas."""

    rows: Rows
    reach: Array
    ridge: float
    fit_intercept: bool = True
    directions: Array | None = None
    smoothing: Smoothing = NONE
    noise: None = field(default=None, init=False)

    @cached_property
    def row_reach(self) -> RowVector:
        """The reach as a row vector."""
        return self.rows.split(self.reach)

    @cached_property
    def longest(self) -> float:
        """The largest distance by which a sample may be moved."""
        return float(np.abs(self.reach).max())

    @property
    def eps(self) -> float:
        """The smoothing of the lengths, which adds as much to a slack as ``mu``; its square must not overflow."""
        return self.smoothing.blur / max(self.longest, 1e-150)

    def scaled(self, factor: float) -> "Ball":
        """Return the same problem with all distances multiplied by a factor."""
        return self if factor == 1 else replace(self, reach=factor * self.reach)

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "Ball":
        """Return about ``n_rows`` rows, each class reweighted to its own total."""
        index = self.rows.draw(n_rows, rng, RARE)
        return replace(self, rows=self.rows.reweighted(index), reach=self.reach[index])

    def constant_near(self, point: BallPoint | None) -> tuple[Array, float]:
        """Return the best intercepts at ``W = 0`` and F there, whatever the point.

        With the intercept of the heaviest class 1 above the others F is ``2 (S - S_max)``, with equal intercepts S.
        Between the two F is linear, beyond them it rises.
        """
        weights, best = self.rows.class_weights, np.zeros(self.n_classes)
        value = 2 * (self.weight - float(weights.max()))
        if not self.fit_intercept or value > self.weight:
            return best, self.weight
        best[np.argmax(weights)] = 1.0
        return best - best.mean(), value

    # --- values -------------------------------------------------------------------------------------------

    def lengths(self, W: Array) -> tuple[Array, Array]:
        """Return ``u``, (C, C, n_columns), and ``n``, (C, C), of all pairs of classes."""
        if self.directions is not None:
            return self.directions, _along(self.directions, W)
        differences: Array = W[:, np.newaxis] - W
        size = np.hypot(np.linalg.norm(differences, axis=2), self.eps)
        return differences / np.maximum(size, 1e-300)[:, :, np.newaxis], size

    def point(self, x: Array) -> BallPoint:
        """Evaluate F at x; one pass over X."""
        W, b = unfold(x, self.n_classes)
        return self._at(W, b, self.rows.scores(W))

    def _at(self, W: Array, b: Array, scores: RowVector, near: Sequence[tuple[float, Any]] = ()) -> BallPoint:
        sight, reached = self.seen(W, near)
        residual, (loss, added) = self.rows.both(_slopes, scores, reached, b=b, mu=self.smoothing.blur)
        value = loss + 0.5 * self.ridge * float(np.vdot(W, W))
        return BallPoint(W, b, value, scores, sight, reached, residual, added)

    def seen(self, W: Array, near: Sequence[tuple[float, Any]] = ()) -> tuple[Any, RowVector]:
        """Return ``u`` of all pairs, by which derivatives are computed, and ``r_i n_yk`` of all rows.

        ``near`` has what was seen at other places, with the shares that they have in this one.
        """
        units, lengths = self.lengths(W)
        return units, self._times_reach(lengths)

    def _times_reach(self, lengths: Array) -> RowVector:
        return self.rows.each(_times_reach, self.row_reach, lengths=lengths, pointwise=True)

    def turned(self, sight: Any, P: Array) -> RowVector:
        """Return the change of ``r_i n_yk`` for a step P of W, of first order."""
        return self._times_reach(_along(sight, P))

    def again(self, point: BallPoint) -> BallPoint:
        """Evaluate F at a point of the same rows with other smoothing."""
        return self._at(point.W, point.b, point.scores, [(1.0, point.sight)])

    def mixture(self, parts: list[tuple[float, BallPoint]]) -> BallPoint:
        """Evaluate F at a linear combination of points, from their scores."""
        scores = self.rows.mixed([(share, point.scores) for share, point in parts])
        return self._at(*mixed(parts), scores, [(share, point.sight) for share, point in parts])

    def slopes(self, point: BallPoint) -> Array:
        """Return ``alpha``, (n_rows, C), 0 for the class of the row."""
        weights = np.maximum(self.rows.weights, 1e-300)
        return np.maximum(self.rows.gather(point.residual), 0.0) / weights[:, np.newaxis]

    def displacements(self, point: BallPoint) -> Array:
        """Return the displacement of every sample, (n_rows, n_columns), towards the class with the largest slack."""
        vectors, shift = self.shifts(point.sight)
        return self.rows.gather(
            self.rows.each(_displace, point.scores, point.reached, *vectors, b=point.b, shift=shift, pointwise=True)
        )

    def shifts(self, sight: Any) -> tuple[tuple[RowVector, ...], Callable[..., Array]]:
        """Return row vectors, and a function of a block and these that returns ``r u_ck`` of some rows."""
        return (self.row_reach,), partial(_shift, units=sight)

    # --- derivatives --------------------------------------------------------------------------------------

    def expand(self, point: BallPoint) -> "BallLocal":
        """Return value and gradient at a point; one pass over X."""
        gradient, cells = self.pull(point.residual, point.sight)
        gradient[:, :-1] += self.ridge * point.W
        return self.local(point, gradient, cells)

    def local(self, point: BallPoint, gradient: Array, cells: Array) -> "BallLocal":
        """Return the local model with this gradient by ``(w, b)``."""
        return BallLocal(self, point, gradient, cells)

    def pull(self, residual: RowVector, sight: Any) -> tuple[Array, Array]:
        """Return the derivatives by ``(w, b)``, (C, n_columns + 1), for those by the scores, and K; one pass over X."""
        mass, cells = self.cells(residual)
        combined = self.rows.scatter(residual) + self.forces(residual, sight, cells)
        return np.column_stack([combined, self.fit_intercept * (mass.sum(axis=0) - mass.sum(axis=1))]), cells

    def forces(self, residual: RowVector, sight: Any, cells: Array) -> Array:
        """Return the derivatives by w, (C, n_columns), through ``r_i n_yk``."""
        return np.asarray(np.einsum("ck,ckj->cj", cells + cells.T, sight))

    def cells(self, residual: RowVector) -> Array:
        """Return the sums of ``s alpha`` and of ``r s alpha`` over every cell, (2, C, C)."""
        return np.asarray(self.rows.total(_cells, residual, self.row_reach, pointwise=True))

    def dual(self, residual: RowVector, sight: Any) -> float:
        """Return a proven lower bound of F from any slopes and unit vectors; one pass over X."""
        slope = self.cells(residual)[0]
        kept = balance(slope) if self.fit_intercept else np.ones_like(slope)
        if kept is None:
            return 0.0
        force = self.pull(self.feasible(residual, kept), sight)[0][:, :-1]
        return max(0.0, float(np.vdot(kept, slope)) - float(np.vdot(force, force)) / (2 * self.ridge))

    def feasible(self, residual: RowVector, kept: Array) -> RowVector:
        """Return derivatives with ``s alpha >= 0``, times ``kept`` of the cell, scaled so that a row has at most s."""
        return self.rows.each(_feasible, residual, kept=kept, pointwise=True)


@dataclass(eq=False)
class BallLocal(LocalModel[BallPoint]):
    """Value, gradient and Hessian of the smooth problem at one point.

    ``by_class`` is the gradient by ``(w, b)``, (C, n_columns + 1), and ``cells`` the K of the module, (C, C).
    """

    problem: Ball
    point: BallPoint
    by_class: Array
    cells: Array
    hessian_cost: ClassVar[float] = 1.0
    is_cheap: ClassVar[bool] = True

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        return self.by_class[:-1].ravel()

    # --- smoothing ----------------------------------------------------------------------------------------

    @cached_property
    def noisy(self) -> float:
        """The increase of F by smoothing: ``mu`` times the derivative of F by ``mu``."""
        return max(self.point.added + self._added_reach, 1e-300)

    @property
    def _added_reach(self) -> float:
        """The part of the increase that is due to the smoothing of lengths."""
        return 0.5 * self.problem.eps**2 * float(self._tension.sum())

    def is_final(self, last: Smoothing, target: float) -> bool:
        """Return whether smoothing adds little enough to F, or its minimum proves that the classifier collapses."""
        return self.noisy <= ADDED_SHARE * target or self.proves_collapse(target)

    def proves_collapse(self, target: float) -> bool:
        """Return whether slopes of no gradient would prove that zero coefficients are optimal.

        The dual value is then their sum less the ridge term, which vanishes with W long before smoothing does.
        """
        constant = self.problem.constant_near(self.point)[1]
        if self.value < constant:
            return False
        slope = self.problem.cells(self.point.residual)[0]
        kept = balance(slope) if self.problem.fit_intercept else np.ones_like(slope)
        ridge = 0.5 * self.problem.ridge * float(np.vdot(self.point.W, self.point.W))
        return kept is not None and constant - float(np.vdot(kept, slope)) + ridge <= ADDED_SHARE * target

    def less_smoothing(self, last: Smoothing, target: float) -> Smoothing:
        """Return the next smoothing of the continuation.

        The increase of F falls like mu, or with many rows like mu^2, because fewer rows are near a tie.
        """
        return self._lowered(target, FASTEST)

    def _lowered(self, target: float, most: float) -> Smoothing:
        wanted = max(1.0, self.noisy / (ADDED_SHARE * target))
        # 1.2 times more than is wanted, because the increase of F may fall more slowly than mu.
        return Smoothing(1.0, self.problem.smoothing.blur / min(most, 1.2 * wanted))

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing of this point, which covers the distance to the minimum of more rows."""
        return self.problem.smoothing

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will change the minimum of F by more than smoothing does."""
        return self.noisy <= UNCERTAIN * len(self.gradient) / self.problem.rows.n_rows * self.value

    # --- the Hessian --------------------------------------------------------------------------------------

    @cached_property
    def _tension(self) -> Array:
        """The derivative of F by each length, divided by the length, (C, C): the weight of its curvature."""
        problem = self.problem
        if problem.directions is not None:
            return np.zeros_like(self.cells)
        return (self.cells + self.cells.T) / problem.lengths(self.point.W)[1]

    def hessian(self) -> Array:
        """Return the Hessian by the unknowns: that of the maxima, and a graph Laplacian of lengths and ridge."""
        problem, n = self.problem, len(self.gradient)
        problem.rows.count("hessian")
        hessian = self._maxima()
        hessian /= problem.smoothing.blur
        # sum ||w_c||^2 is that of the differences, over C.
        pairs = -self._bends()
        np.einsum("ciki->cki", pairs)[:] -= problem.ridge / problem.n_classes
        np.einsum("cicj->cij", pairs)[:] -= pairs.sum(axis=2)
        hessian[:, :-1, :, :-1] += pairs[:-1, :, :-1]
        return np.asarray(hessian.reshape(n, n))

    def _maxima(self) -> Array:
        """Return ``mu`` times the Hessian of the smooth maxima where ``r_i n_yk`` are linear."""
        problem, one = self.problem, float(self.problem.fit_intercept)
        vectors, shift = problem.shifts(self.point.sight)
        return np.asarray(problem.rows.total(curvature, self.point.residual, *vectors, shift=shift, one=one))

    def _bends(self) -> Array:
        """Return the Hessian of ``r_i n_yk`` by the difference of each pair, (C, n_columns, C, n_columns)."""
        # A length has the Hessian (I - u u') / n.
        tension, units = self._tension, self.point.sight
        bends = -np.einsum("ck,cki,ckj->cikj", tension, units, units)
        np.einsum("ciki->cki", bends)[:] += tension[:, :, np.newaxis]
        return np.asarray(bends)

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; two passes over X."""
        problem = self.problem
        P, shifts = unfold(p, problem.n_classes)
        result, _ = problem.pull(self._moved(P, shifts), self.point.sight)
        result[:, :-1] += problem.ridge * P + self._bent_reach(P)
        return result[:-1].ravel()

    def _bent_reach(self, P: Array) -> Array:
        """Return the change of the derivatives by w, (C, n_columns), through the Hessian of ``r_i n_yk``."""
        units = self.point.sight
        across = P[:, np.newaxis] - P - _along(units, P)[:, :, np.newaxis] * units
        return np.asarray(np.einsum("ck,ckj->cj", self._tension, across))

    def tangent(self, less: Smoothing) -> Array:
        """Return the first-order change of the gradient when smoothing falls to ``less``; one pass over X.

        That of the lengths is small beside it, and left out.
        """
        problem, point = self.problem, self.point
        result, _ = problem.pull(self._bent(point.scores, point.b, point.reached, 1.0), point.sight)
        return np.asarray(-problem.smoothing.towards(less).blur * result[:-1].ravel())

    def _moved(self, P: Array, shifts: Array) -> RowVector:
        """Return the change of the derivatives by the scores for a step of ``(W, b)``; one pass over X."""
        problem = self.problem
        problem.rows.count("product")
        changes = problem.rows.each(scores, W=np.ascontiguousarray(P.T))
        reached = problem.turned(self.point.sight, P)
        return self._bent(changes, shifts * problem.fit_intercept, reached, 0.0)

    def _bent(self, scores: RowVector, b: Array, reached: RowVector, margin: float) -> RowVector:
        """Return the change of the derivatives by the scores for changes of the terms of the slacks."""
        problem, mu = self.problem, self.problem.smoothing.blur
        vectors = self.point.residual, scores, reached
        return problem.rows.each(_bend, *vectors, b=b, margin=margin, mu=mu, pointwise=True)

    # --- certificates -------------------------------------------------------------------------------------

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, BallPoint]:
        """Return bounds on the minimum and the point; the lower bound takes a pass, and is 0 unless ``thorough``.

        The slopes with smoothing are the dual point.
        """
        primal = self.problem.smoothed(NONE).again(self.point).value
        thorough = thorough or self.proves_collapse(target)
        dual = self.problem.dual(self.point.residual, self.point.sight) if thorough else 0.0
        return Certificate(primal, dual), replace(self.point, value=primal)

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from the slopes linearised along a Newton step, if it is short; two passes over X.

        The linearised slopes leave a gradient of second order.
        """
        if decrement > self.noisy or (self.noisy > target and not self.proves_collapse(target)):
            return 0.0, None
        problem = self.problem
        P, shifts = unfold(p, problem.n_classes)
        moved = problem.rows.mixed([(1.0, self.point.residual), (1.0, self._moved(P, shifts))])
        residual = problem.feasible(moved, np.ones((problem.n_classes, problem.n_classes)))
        dual = problem.dual(residual, problem.seen(self.point.W + P)[0])
        return dual, problem.slopes(replace(self.point, residual=residual))


def _along(units: Array, W: Array) -> Array:
    """Return ``u_ck.(w_c - w_k)`` for all pairs, (C, C)."""
    return np.asarray(np.einsum("ckj,ckj->ck", units, W[:, np.newaxis] - W))


# --- tasks ---------------------------------------------------------------------------------------------------


def _times_reach(block: Block, reach: Array, lengths: Array) -> Array:
    return np.ascontiguousarray((lengths[:, block.labels] * reach).T)


def _shift(block: Block, rows: Index, c: int, rivals: Index, reach: Array, units: Array) -> Array:
    return np.asarray(reach[rows, np.newaxis, np.newaxis] * units[c, rivals])


def slacks_of(block: Block, scores: Array, reached: Array, b: Array, margin: float = 1.0) -> Array:
    """Return ``t``, (C, n_rows), because NumPy is slow along a short last axis."""
    labels, index = block.labels, np.arange(block.n_rows)
    t = np.ascontiguousarray(scores.T) + b[:, np.newaxis]
    t -= t[labels, index] - margin
    t += reached.T
    t[labels, index] = 0.0
    return t


def _displace(
    block: Block, scores: Array, reached: Array, *vectors: Array, b: Array, shift: Callable[..., Array]
) -> Array:
    slacks = slacks_of(block, scores, reached, b)
    slacks[block.labels, np.arange(block.n_rows)] = -np.inf
    strongest, moved = slacks.argmax(axis=0), np.empty(block.X.shape)
    for c, k in permutations(range(len(slacks)), 2):
        rows = np.flatnonzero((block.labels == c) & (strongest == k))
        moved[rows] = -shift(block, rows, c, np.array([k]), *vectors)[:, 0]
    return moved


def _closed(block: Block, alpha: Array) -> Array:
    """Return derivatives by the scores, (n_rows, C), each row summing to zero, from those by slacks, (C, n_rows)."""
    labels, index = block.labels, np.arange(block.n_rows)
    alpha[labels, index] = 0.0
    alpha[labels, index] = -alpha.sum(axis=0)
    return np.ascontiguousarray(alpha.T)


def _slopes(block: Block, scores: Array, reached: Array, b: Array, mu: float) -> tuple[Array, tuple[float, float]]:
    """Return the derivatives by the scores, the sum of the smooth maxima, and its increase by smoothing."""
    t = slacks_of(block, scores, reached, b)
    top = t.max(axis=0)
    alpha = np.exp((t - top) / mu) if mu else 1.0 * (t == top)
    total = alpha.sum(axis=0)
    alpha *= block.weights / total
    value = float(block.weights @ (top + mu * np.log(total)))
    added = value - float(np.vdot(alpha, t))
    return _closed(block, alpha), (value, added)


def _cells(block: Block, residual: Array, reach: Array) -> Array:
    """Return the sums of the derivatives, and of r times the derivatives, over every cell, (2, C, C)."""
    members = one_hot(block.labels, 1.0, residual.shape[1])
    cells = np.array([members.T @ residual, members.T @ (residual * reach[:, np.newaxis])])
    np.einsum("ikk->ik", cells)[:] = 0.0
    return cells


def _feasible(block: Block, residual: Array, kept: Array) -> Array:
    s, alpha = block.weights, np.maximum(residual.T, 0.0) * kept.T[:, block.labels]
    return _closed(block, alpha * (s / np.maximum(np.maximum(s, alpha.sum(axis=0)), 1e-300)))


def _bend(block: Block, residual: Array, scores: Array, reached: Array, b: Array, margin: float, mu: float) -> Array:
    """Return the change of the derivatives by the scores for changes of the arguments of the slacks."""
    change, alpha = slacks_of(block, scores, reached, b, margin), np.maximum(residual.T, 0.0)
    change -= np.einsum("ki,ki->i", alpha, change) / np.maximum(block.weights, 1e-300)
    return _closed(block, change * (alpha / mu))


def curvature(block: Block, residual: Array, *vectors: Array, shift: Callable[..., Array], one: float) -> Array:
    """Return ``mu`` times the Hessian of the smooth maxima by the unknowns.

    The slack of class k has the gradient ``z_k = (x - r u_ck, 1)`` by that class, and ``-z_k`` by the class c of the
    row; ``shift`` returns ``r u_ck`` of some rows. The covariance of these under alpha,
    ``sum_km a_k ([k = m] - a_m) z_k z_m'``, is the Hessian of the maximum.
    """
    C, d = residual.shape[1], block.X.shape[1]
    result, step = np.zeros((C, d + 1, C, d + 1)), piece_rows(C * C * (d + 1))
    undecided = np.max(residual * (block.weights[:, np.newaxis] - residual), axis=1) > EPS * block.weights**2
    for c in range(C):
        members, rivals = np.flatnonzero(undecided & (block.labels == c)), np.delete(np.arange(C), c)
        bent = np.zeros((C - 1, d + 1, (C - 1) * (d + 1)))
        for first in range(0, len(members), step):
            rows = members[first : first + step]
            s, alpha = block.weights[rows, np.newaxis], residual[np.ix_(rows, rivals)]
            z = np.full((len(rows), C - 1, d + 1), one)
            z[:, :, :d] = block.dense(rows)[:, np.newaxis] - shift(block, rows, c, rivals, *vectors)
            curve = alpha.T[:, :, np.newaxis] * (s * np.eye(C - 1)[:, np.newaxis] - alpha) / s
            bent += z.transpose(1, 2, 0) @ (curve[:, :, :, np.newaxis] * z).reshape(C - 1, len(rows), -1)
        by_class = bent.reshape(C - 1, d + 1, C - 1, d + 1)
        by_class = np.insert(by_class, c, -by_class.sum(axis=0), axis=0)
        result += np.insert(by_class, c, -by_class.sum(axis=2), axis=2)
    return result[:-1, :, :-1]
