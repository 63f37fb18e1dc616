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
x, W, b : as in :mod:`gaussguru._problems.multiclass`; arrays of classes have shape (C, n_columns + 1)
residual : row vector of (n_rows, C), the derivatives of F by the scores, ``s (alpha - [k = y])``
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from gaussguru._data.rows import Block, Rows, RowVector, scatter, scores
from gaussguru._linalg import Array, Factor, diagonal
from gaussguru._problems.binary import CONTRACTION
from gaussguru._problems.pairs import MAX_UNKNOWNS, ByClass, damped_factor, fold, mixed_points, unfold
from gaussguru._problems.smoothing import NONE, RARE, Smoothing
from gaussguru.certificates.dual_point import Certificate, balance

# The first mu, in units of the margin, and the factor by which it falls at most.
FIRST, SPEED = 1.0, 10.0
# Smoothing is small where what it adds to F is at most this fraction of the tolerance.
SMALL = 0.5
# Rows whose alpha is this close to 0 or 1 have no part in the Hessian.
DECIDED = 1e-13
# Lengths need no smoothing where samples are moved by less than this: X is in units in which that is nothing.
UNMOVED = 1e-100


class Point(NamedTuple):
    """A place in parameter space, with its scores, the units ``u`` and lengths ``n`` of all pairs, and F.

    ``mu`` is the smoothing at which the place was found: that at which its slopes are a dual point.
    """

    W: Array
    b: Array
    scores: RowVector
    units: Array
    lengths: Array
    value: float
    mu: float

    @property
    def x(self) -> Array:
        """The unknowns."""
        return fold(self.W, self.b)


@dataclass(frozen=True, eq=False)
class Ball(ByClass):
    """Rows, how far each may be moved, and where if that is fixed; see the module for the formulas."""

    rows: Rows
    reach: Array
    ridge: float
    fit_intercept: bool = True
    directions: Array | None = None
    smoothing: Smoothing = NONE

    @property
    def weight(self) -> float:
        """``sum s``, which is also F at zero."""
        return self.rows.total_weight

    @cached_property
    def _reach(self) -> RowVector:
        return self.rows.split(self.reach)

    @cached_property
    def longest(self) -> float:
        """The largest distance by which a sample may be moved."""
        return float(np.abs(self.reach).max())

    @property
    def _eps(self) -> float:
        """The smoothness of the lengths: as much as that of the slacks."""
        return self.smoothing.blur / self.longest if self.longest > UNMOVED else 0.0

    def scaled(self, factor: float) -> "Ball":
        """Return the same problem with all distances multiplied by a factor."""
        return self if factor == 1 else replace(self, reach=factor * self.reach)

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "Ball":
        """Return about ``n_rows`` rows, each class reweighted to its own total."""
        index = self.rows.draw(n_rows, rng, RARE)
        return replace(self, rows=self.rows.reweighted(index), reach=self.reach[index])

    @cached_property
    def constant(self) -> tuple[Array, float]:
        """Intercepts of the best classifier that ignores the features, and F there.

        With the heaviest class 1 above the others F is ``2 (S - S_max)``, with none above the others S, and with
        other intercepts it is no less: it is linear between the two and rises beyond.
        """
        weights, b = self.rows.class_weights, np.zeros(self.n_classes)
        named = 2 * (self.weight - float(weights.max()))
        if not self.fit_intercept or named > self.weight:
            return b, self.weight
        b[np.argmax(weights)] = 1.0
        return b - b.mean(), named

    def constant_near(self, b: Array | None) -> tuple[Array, float]:
        """Return the best classifier that ignores the features: whatever led to it, there is one."""
        return self.constant

    # --- values -------------------------------------------------------------------------------------------

    def lengths(self, W: Array) -> tuple[Array, Array]:
        """Return ``u`` and ``n`` for all pairs of classes."""
        apart: Array = W[:, np.newaxis] - W
        if self.directions is not None:
            return self.directions, np.asarray(np.einsum("ckj,ckj->ck", self.directions, apart))
        size = np.hypot(np.sqrt(np.einsum("ckj,ckj->ck", apart, apart)), self._eps)
        return apart / np.where(size > 0, size, 1.0)[:, :, np.newaxis], size

    def point(self, x: Array) -> Point:
        """Evaluate F at x; one pass over X."""
        W, b = unfold(x, self.n_classes)
        return self._at(W, b, self.rows.scores(W))

    def _at(self, W: Array, b: Array, found: RowVector) -> Point:
        units, lengths = self.lengths(W)
        mu = self.smoothing.blur
        loss = self.rows.total(_value, found, self._reach, b=b, lengths=lengths, mu=mu, pointwise=True)
        return Point(W, b, found, units, lengths, float(loss) + 0.5 * self.ridge * float(np.vdot(W, W)), mu)

    def again(self, point: Point) -> Point:
        """Evaluate F at a point of the same rows with other smoothing."""
        return self._at(point.W, point.b, point.scores)._replace(mu=self.smoothing.blur or point.mu)

    def mixture(self, parts: list[tuple[float, Point]]) -> Point:
        """Evaluate F at a linear combination of points, from their scores."""
        return self._at(*mixed_points(parts))

    def initial(self, last: Smoothing, target: float) -> tuple[Point, Smoothing]:
        """Return zero, with a smoothness of a margin."""
        smoothing = Smoothing(1.0, FIRST)
        return self.smoothed(smoothing).point(self.first_x()), smoothing

    def classifier(self, point: Point) -> tuple[Array, Array]:
        """Return coefficients and intercepts, which add up to zero."""
        return point.W, point.b

    def slopes(self, point: Point) -> Array:
        """Return ``alpha`` of every row and class, 0 for its own class, at the smoothing of the point."""
        smooth = self.smoothed(Smoothing(1.0, max(point.mu, 1e-300)))
        return self.alpha_of(smooth._residual(smooth.again(point), smooth.smoothing.blur)[0])

    def alpha_of(self, residual: RowVector) -> Array:
        """Return ``alpha`` of every row and class from derivatives by the scores, adding up to at most 1."""
        inside, weights = self.rows.gather(self.rows.each(_inside, residual, pointwise=True)), self.rows.weights
        return np.maximum(inside, 0.0) / np.where(weights > 0, weights, 1.0)[:, np.newaxis]

    def displacements(self, point: Point) -> Array:
        """Return where every sample is moved, against the rival class with the largest slack."""
        moved = self.rows.each(
            _displace, point.scores, self._reach, b=point.b, lengths=point.lengths, units=point.units, pointwise=True
        )
        return self.rows.gather(moved)

    # --- derivatives --------------------------------------------------------------------------------------

    def visit(self, x: Array, *, curved: bool = False) -> "Local":
        """Return value and gradient at x; two passes over X."""
        return self.expand(self.point(x))

    def expand(self, point: Point) -> "Local":
        """Return value and gradient at a point; one pass over X."""
        residual, added = self._residual(point, self.smoothing.blur)
        gradient, cells = self.pull(residual, point.units)
        if self.directions is None and self._eps > 0:
            apart = point.lengths > 0
            added += self._eps**2 * float((cells[apart] / point.lengths[apart]).sum())
        gradient[:, :-1] += self.ridge * point.W
        return Local(self, point, gradient, residual, cells, max(float(added), 1e-300))

    def _residual(self, point: Point, mu: float) -> tuple[RowVector, float]:
        residual, added = self.rows.both(_residual, point.scores, self._reach, b=point.b, lengths=point.lengths, mu=mu)
        return residual, float(added)

    def pull(self, residual: RowVector, units: Array) -> tuple[Array, Array]:
        """Return what derivatives by the scores make of those by the classes, and the cells K; one pass over X."""
        self.rows.count("value")
        combined, cells, shifts = self.rows.total(_pull, residual, self._reach)
        gradient = np.zeros((self.n_classes, self.rows.n_columns + 1))
        gradient[:, :-1] = combined + np.einsum("ck,ckj->cj", cells + cells.T, units)
        if self.fit_intercept:
            gradient[:, -1] = shifts
        return gradient, cells

    def dual(self, residual: RowVector, units: Array) -> float:
        """Return a proven lower bound of F from any derivatives by the scores and unit vectors; one pass over X."""
        residual = self.rows.each(_inside, residual, pointwise=True)
        slope = self.rows.total(_cells_of, residual, pointwise=True)
        if self.fit_intercept:
            kept = balance(slope)
            if kept is None:
                return 0.0
            slope = kept * slope
            residual = self.rows.each(_keep, residual, kept=kept, pointwise=True)
        gradient, _ = self.pull(residual, units)
        return max(0.0, float(slope.sum()) - float(np.vdot(gradient[:, :-1], gradient[:, :-1])) / (2 * self.ridge))


@dataclass(eq=False)
class Local:
    """Value, gradient and Hessian of the smooth problem at one point.

    ``by_class`` is the gradient of shape (C, n_columns + 1), ``cells`` are the sums K of the module, and ``noisy`` is
    what smoothing adds to F.
    """

    problem: Ball
    point: Point
    by_class: Array
    residual: RowVector
    cells: Array
    noisy: float

    @property
    def value(self) -> float:
        """F."""
        return self.point.value

    @cached_property
    def x(self) -> Array:
        """The unknowns."""
        return self.point.x

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        return self.by_class[:-1].ravel()

    # --- smoothing ----------------------------------------------------------------------------------------

    def is_final(self, last: Smoothing, target: float) -> bool:
        """Return whether smoothing adds little enough to F."""
        return self.noisy <= SMALL * target

    def less_smoothing(self, last: Smoothing, target: float) -> Smoothing:
        """Return the smoothing to which the minimum is followed next.

        What it adds to F falls like mu, or like mu^2 where rows abound: fewer are near a tie.
        """
        wanted = 1.2 * self.noisy / (SMALL * target)
        return Smoothing(1.0, self.problem.smoothing.blur / min(SPEED, max(1.5, wanted)))

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing of this point: it hides how far the minimum of more rows is."""
        return self.problem.smoothing

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum by more than smoothing adds to F."""
        problem = self.problem
        n_unknowns = (problem.n_classes - 1) * (problem.rows.n_columns + 1)
        return self.noisy <= 0.3 * n_unknowns / problem.rows.n_rows * self.value

    # --- the Hessian --------------------------------------------------------------------------------------

    contraction: ClassVar[float] = CONTRACTION
    refreshes: ClassVar[bool] = False
    hessian_cost: ClassVar[float] = 1.0
    is_cheap: ClassVar[bool] = True

    @cached_property
    def unit_damping(self) -> Array:
        """As if all rows had a curvature of 1 in their scores."""
        rows, C = self.problem.rows, self.problem.n_classes
        return np.tile(np.append(rows.column_squares, rows.total_weight), C - 1)

    def factor(self, damping: Array) -> Factor | None:
        """Return a factor of the damped Hessian, if it has not too many unknowns."""
        return damped_factor(self.hessian(), damping) if len(self.gradient) <= MAX_UNKNOWNS else None

    def main(self) -> "Local":
        """Return the same."""
        return self

    def _bent(self, P: Array | None, shifts: Array, along: Array) -> RowVector:
        """Return how the derivatives by the scores change with scores, intercepts and lengths; one pass over X."""
        problem = self.problem
        problem.rows.count("product")
        columns = None if P is None else np.ascontiguousarray(P.T)
        return problem.rows.each(
            _bend, self.residual, problem._reach, columns=columns, shifts=shifts, along=along,
            mu=problem.smoothing.blur,
        )  # fmt: skip

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; two passes over X."""
        problem = self.problem
        P, shifts = unfold(p, problem.n_classes)
        along = self._along(P)
        result, _ = problem.pull(
            self._bent(P, shifts if problem.fit_intercept else 0 * shifts, along), self.point.units
        )
        result[:, :-1] += problem.ridge * P
        if problem.directions is None:
            apart = P[:, np.newaxis] - P
            across = apart - along[:, :, np.newaxis] * self.point.units
            result[:, :-1] += np.einsum("ck,ckj->cj", self._stiffness, across)
        if not problem.fit_intercept:
            result[:, -1] = shifts - shifts[-1]
        return result[:-1].ravel()

    def _along(self, P: Array) -> Array:
        return np.asarray(np.einsum("ckj,ckj->ck", self.point.units, P[:, np.newaxis] - P))

    def tangent(self, less: Smoothing) -> Array:
        """Return how the gradient changes on the way to less smoothing, to first order; one pass over X."""
        problem = self.problem
        blur = problem.smoothing.towards(less).blur
        bent = problem.rows.each(
            _slacken, self.residual, self.point.scores, problem._reach, b=self.point.b, lengths=self.point.lengths,
            mu=problem.smoothing.blur, pointwise=True,
        )  # fmt: skip
        result, _ = problem.pull(bent, self.point.units)
        return -blur * result[:-1].ravel()

    @cached_property
    def _stiffness(self) -> Array:
        """The derivative of F by each length, over the length: what its curvature counts."""
        both, lengths = self.cells + self.cells.T, self.point.lengths
        return np.divide(both, lengths, out=np.zeros_like(both), where=lengths > 0)

    def hessian(self) -> Array:
        """Return the Hessian by the unknowns."""
        problem, C, d = self.problem, self.problem.n_classes, self.problem.rows.n_columns
        problem.rows.count("hessian")
        grams = problem.rows.total(_grams, self.residual, problem._reach, n_classes=C)
        result = np.zeros((C, d + 1, C, d + 1))
        units = self.point.units
        for (c, k, m), gram in zip(_triples(C), grams, strict=True):
            block = _moved(gram, units[c, k], units[c, m]) / problem.smoothing.blur
            for a, e, part in ((k, m, block),) if k == m else ((k, m, block), (m, k, block.T)):
                result[a, :, e] += part
                result[c, :, e] -= part
                result[a, :, c] -= part
                result[c, :, c] += part
        within = np.arange(d)
        for c in range(C):
            for k in range(C):
                result[c, within, k, within] += problem.ridge * ((c == k) - 1 / C)
        if problem.directions is None:
            for c, k in zip(*np.nonzero(np.triu(self._stiffness, 1)), strict=True):
                part = self._stiffness[c, k] * (np.eye(d) - np.outer(units[c, k], units[c, k]))
                for a, e, sign in ((c, c, 1), (k, k, 1), (c, k, -1), (k, c, -1)):
                    result[a, :d, e, :d] += sign * part
        if not problem.fit_intercept:
            result[:, -1], result[:, :, :, -1] = 0.0, 0.0
            result[np.arange(C), -1, np.arange(C), -1] = 1.0
        size = (C - 1) * (d + 1)
        return np.ascontiguousarray(result[:-1, :, :-1]).reshape(size, size)

    # --- certificates -------------------------------------------------------------------------------------

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, Point]:
        """Return bounds on the minimum and the point; the lower one takes a pass, and is 0 unless ``thorough``."""
        sharp = self.problem.smoothed(NONE).again(self.point)
        dual = self.problem.dual(self.residual, self.point.units) if thorough else 0.0
        return Certificate(sharp.value, dual), sharp

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from the slopes one Newton step further, where that is near; two passes over X.

        The linearised slopes leave of the gradient only what is of second order.
        """
        if self.noisy > target or decrement > self.noisy:
            return 0.0, None
        problem = self.problem
        P, shifts = unfold(p, problem.n_classes)
        bent = self._bent(P, shifts if problem.fit_intercept else 0 * shifts, self._along(P))
        residual = [one + other for one, other in zip(self.residual, bent, strict=True)]
        return problem.dual(residual, problem.lengths(self.point.W + P)[0]), problem.alpha_of(residual)


# --- tasks ---------------------------------------------------------------------------------------------------


def _slacks(block: Block, found: Array, reach: Array, b: Array, lengths: Array) -> Array:
    """Return ``t``, a column for each row: NumPy is slow along a short last axis."""
    own, place = block.labels, np.arange(block.n_rows)
    t = np.ascontiguousarray(found.T) + b[:, np.newaxis]
    t -= t[own, place] - 1.0
    t += lengths[:, own] * reach
    t[own, place] = 0.0
    return t


def _displace(block: Block, found: Array, reach: Array, b: Array, lengths: Array, units: Array) -> Array:
    slacks = _slacks(block, found, reach, b, lengths)
    slacks[block.labels, np.arange(block.n_rows)] = -np.inf
    return np.asarray(-reach[:, np.newaxis] * units[block.labels, slacks.argmax(axis=0)])


def _closed(block: Block, alpha: Array) -> Array:
    """Return weights of the slacks, a column for each row, as derivatives by the scores: each row adds up to zero."""
    own, place = block.labels, np.arange(block.n_rows)
    alpha[own, place] = 0.0
    alpha[own, place] = -alpha.sum(axis=0)
    return np.ascontiguousarray(alpha.T)


def _value(block: Block, found: Array, reach: Array, b: Array, lengths: Array, mu: float) -> float:
    t = _slacks(block, found, reach, b, lengths)
    top = t.max(axis=0)
    if mu:
        top += mu * np.log(np.exp((t - top) / mu).sum(axis=0))
    return float(block.weights @ top)


def _residual(block: Block, found: Array, reach: Array, b: Array, lengths: Array, mu: float) -> tuple[Array, float]:
    """Return the derivatives by the scores, and what smoothing the maxima adds to F."""
    t = _slacks(block, found, reach, b, lengths)
    top = t.max(axis=0)
    alpha = np.exp((t - top) / mu)
    total = alpha.sum(axis=0)
    alpha *= block.weights / total
    value = float(block.weights @ top) + mu * float(block.weights @ np.log(total))
    return _closed(block, alpha), value - float(np.vdot(alpha, t))


def _cells_of(block: Block, residual: Array) -> Array:
    """Return the sums of the derivatives by class of the row and class of the score, without those of its own."""
    C = residual.shape[1]
    cells = np.stack([np.bincount(block.labels, column, C) for column in residual.T], axis=1).astype(np.float64)
    diagonal(cells)[:] = 0.0
    return cells


def _pull(block: Block, residual: Array, reach: Array) -> tuple[Array, Array, Array]:
    return scatter(block, residual), _cells_of(block, residual * reach[:, np.newaxis]), residual.sum(axis=0)


def _scaled(block: Block, residual: Array, factors: Callable[[Array], Array]) -> Array:
    """Return derivatives by the scores whose ``s alpha``, where positive, are multiplied by factors."""
    alpha = np.maximum(residual.T, 0.0)
    return _closed(block, alpha * factors(alpha))


def _inside(block: Block, residual: Array) -> Array:
    """Return derivatives by the scores with every sum of ``s alpha`` brought down to s."""
    s = block.weights
    return _scaled(block, residual, lambda alpha: s / np.maximum(np.maximum(s, alpha.sum(axis=0)), 1e-300))


def _keep(block: Block, residual: Array, kept: Array) -> Array:
    return _scaled(block, residual, lambda alpha: kept.T[:, block.labels])


def _bend_slacks(block: Block, residual: Array, change: Array, mu: float) -> Array:
    """Return how the derivatives by the scores change when the slacks do, given a column for each row."""
    s = np.where(block.weights > 0, block.weights, 1.0)
    alpha = np.maximum(residual.T, 0.0)
    change = change - np.einsum("ki,ki->i", alpha, change) / s
    return _closed(block, change * (alpha / mu))


def _slacken(block: Block, residual: Array, found: Array, reach: Array, b: Array, lengths: Array, mu: float) -> Array:
    return _bend_slacks(block, residual, _slacks(block, found, reach, b, lengths), mu)


def _bend(
    block: Block, residual: Array, reach: Array, columns: Array | None, shifts: Array, along: Array, mu: float
) -> Array:
    own, place = block.labels, np.arange(block.n_rows)
    found = np.zeros((block.n_rows, len(shifts))) if columns is None else scores(block, columns)
    change = np.ascontiguousarray(found.T) + shifts[:, np.newaxis]
    change -= change[own, place]
    change += along[:, own] * reach
    return _bend_slacks(block, residual, change, mu)


def _triples(n_classes: int) -> list[tuple[int, int, int]]:
    """Return the classes c with every two others ``k <= m``."""
    others = [[k for k in range(n_classes) if k != c] for c in range(n_classes)]
    return [(c, k, m) for c in range(n_classes) for k in others[c] for m in others[c] if k <= m]


def _grams(block: Block, residual: Array, reach: Array, n_classes: int) -> Array:
    """Return for every triple the Gram matrix of ``(x, 1, r)`` of the rows of c, weighted by how their alpha change."""
    s, result = block.weights, []
    mine = [np.flatnonzero(block.labels == c) for c in range(n_classes)]
    for c, k, m in _triples(n_classes):
        one, other, weights = residual[mine[c], k], residual[mine[c], m], s[mine[c]]
        change = one * (weights - other if k == m else other) / np.where(weights > 0, weights, 1.0)
        curve = np.where(change > DECIDED * weights, change, 0.0)
        found = block.gram(mine[c], curve, np.ones(len(curve)), reach[mine[c]])
        result.append(found if k == m else -found)
    return np.array(result)


def _moved(gram: Array, u: Array, v: Array) -> Array:
    """Return ``sum (x - r u, 1) (x - r v, 1)'`` from the Gram matrix of ``(x, 1, r)``."""
    d = len(u)
    result = gram[:-1, :-1].copy()
    result[:d] -= u[:, np.newaxis] * gram[-1, :-1]
    column = gram[:-1, -1].copy()
    column[:d] -= gram[-1, -1] * u
    result[:, :d] -= column[:, np.newaxis] * v
    return result
