"""More than two classes: every row is compared with every other class, and all share the noise of the model.

The scale is ``a = hypot(a(w_c - w_k), blur)`` for the noise scale ``a(u)`` of the model; see
:mod:`gaussguru._problems.pairs` for the objective.

Conventions
-----------
scores : row vector of (n_rows, C), ``W x_i`` without intercepts
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gaussguru._data.rows import Block, Rows, RowVector, scatter, scores
from gaussguru._linalg import MAX_COLUMNS, Array, Factor, Index, diagonal, factorise, norm
from gaussguru._native import _binding
from gaussguru._problems.pairs import (
    MAX_UNKNOWNS,
    PairLocal,
    PairProblem,
    damped_factor,
    laplacian,
    mixed_points,
    pair_rounding,
    pairs_of,
    unfold,
)
from gaussguru._problems.smoothing import Smoothing
from gaussguru.certificates.dual_point import Ray, balance, route
from gaussguru.losses import Loss
from gaussguru.noise import Quadratic

# Rows with less than this fraction of the mean Hessian weight are left out of products, if the others are few.
FLAT, FEW = 1e-4, 0.5
# Rows with less than this fraction are left out of a preconditioner, which has at most so many rows per column.
STEEP, PRECONDITIONER_ROWS = 0.1, 8
# Multiply-adds of a factor that are not worth saving (about ten milliseconds).
CHEAP = 4e7


class Cells(NamedTuple):
    """Sums over every cell of ``s f``, ``s f'`` and ``s (f - z f')``."""

    value: Array
    slope: Array
    conjugate: Array


class Point(NamedTuple):
    """A place in parameter space, with what its scores tell; ``scales`` are those of the differences of classes."""

    W: Array
    b: Array
    scores: RowVector
    scales: Array
    value: float
    cells: Cells


class Weights(NamedTuple):
    """Row vectors of, for every row and class, the derivative of F by the score, ``s f''/a`` and ``z``."""

    residual: RowVector
    curve: RowVector
    tilt: RowVector


@dataclass(frozen=True, eq=False)
class Multiclass(PairProblem):
    """Rows of several classes with the noise of the model; see the module for the formulas."""

    noise: Quadratic

    # --- values -------------------------------------------------------------------------------------------

    def point(self, x: Array) -> Point:
        """Evaluate F at x; one pass over X."""
        W, b = unfold(x, self.n_classes)
        return self.at(W, b, self.rows.scores(W))

    def at(self, W: Array, b: Array, found: RowVector) -> Point:
        """Evaluate F at ``(W, b)`` from the scores."""
        scales = self._scales(W)
        sums = self.rows.total(_cells, found, loss=self.loss, b=b, scales=scales, pointwise=True)
        return self._point(W, b, found, scales, sums)

    def _scales(self, W: Array) -> Array:
        result = np.ones((self.n_classes, self.n_classes))  # those on the diagonal are never used, and never zero
        for c in range(self.n_classes - 1):
            apart = W[c + 1 :] - W[c]
            square = np.einsum("kj,kj->k", apart, self.metric(apart))
            result[c, c + 1 :] = result[c + 1 :, c] = np.hypot(np.sqrt(np.maximum(square, 0.0)), self.blur)
        return result

    def _point(self, W: Array, b: Array, found: RowVector, scales: Array, sums: Array) -> Point:
        cells = Cells(*np.ascontiguousarray(np.moveaxis(sums[..., : len(Cells._fields)], -1, 0)))
        return Point(W, b, found, scales, float(np.vdot(scales, cells.value)) + self.ridge(W), cells)

    def again(self, point: Point) -> Point:
        """Evaluate F at a point of the same rows with other smoothing."""
        return self.at(point.W, point.b, point.scores)

    def mixture(self, parts: list[tuple[float, Point]]) -> Point:
        """Evaluate F at a linear combination of points, from their scores."""
        return self.at(*mixed_points(parts))

    # --- derivatives --------------------------------------------------------------------------------------

    def visit(self, x: Array, *, curved: bool = False) -> "Local":
        """Return value and gradient at x from one pass over X."""
        return self._local(*unfold(x, self.n_classes), None)

    def expand(self, point: Point) -> "Local":
        """Return value and gradient at a point; one pass over X."""
        return self._local(point.W, point.b, point.scores)

    def _local(self, W: Array, b: Array, found: RowVector | None) -> "Local":
        scales = self._scales(W)
        self.rows.count("value")
        vectors, columns = ((), np.ascontiguousarray(W.T)) if found is None else ((found,), None)
        parts, (sums, combined) = self.rows.both(_visit, *vectors, columns=columns, loss=self.loss, b=b, scales=scales)
        computed, *weights = (list(part) for part in zip(*parts, strict=True))
        return Local(self, self._point(W, b, computed, scales, sums), Weights(*weights), combined)

    # --- solutions ----------------------------------------------------------------------------------------

    def classifier(self, point: Point) -> tuple[Array, Array]:
        """Return coefficients and intercepts that add up to zero."""
        return point.W - point.W.mean(axis=0), point.b - point.b.mean()

    def slopes(self, point: Point) -> Array:
        """Return ``alpha = f'(z)`` for every row and class, 0 for its own class."""
        return self.rows.gather(self.rows.each(_slopes, point.scores, pointwise=True, **self._place(point)))

    def shrunk_conjugate(self, point: Point, factor: float) -> Array:
        """Return ``sum s f*(factor alpha)`` of every cell at the slopes of a point, or a little less."""
        place = self._place(point)
        return np.asarray(self.rows.total(_shrunk, point.scores, factor=factor, pointwise=True, **place))

    def _place(self, point: Point) -> dict[str, Any]:
        return {"loss": self.loss, "b": point.b, "scales": point.scales}

    def residual(self, x: Array) -> Array:
        """Return the derivatives of F by the scores."""
        return self.rows.gather(self.visit(x).row_weights.residual)

    def by_cell(self, residual: Array) -> Array:
        """Return the same apart for the rows of each class, a column for each pair."""
        own = self.rows.labels[:, np.newaxis] == np.arange(self.n_classes)
        return np.hstack([np.delete(residual * own[:, [c]], c, axis=1) for c in range(self.n_classes)])


@dataclass(eq=False)
class Local(PairLocal):
    """Value, gradient and Hessian of F at one point; ``combined`` is ``R' X`` for the derivatives R by the scores.

    ``tension`` is how the noise pulls every pair together: by so much of their difference in its metric.
    """

    problem: Multiclass
    point: Point
    row_weights: Weights
    combined: Array
    # A step with an old factor must do more than with two classes, because each is certified, which takes as long.
    contraction: ClassVar[float] = 0.07
    refreshes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.W, self.b, self.value, self.mass = self.point.W, self.point.b, self.point.value, self.point.cells.slope
        self.conjugate = self.point.cells.conjugate + self.point.cells.conjugate.T
        self.metric = self.problem.metric(self.W)
        self.tension = self.conjugate / self.point.scales

    @cached_property
    def force(self) -> Array:
        """The gradient by W without the ridge."""
        return np.asarray(self.combined + laplacian(self.tension) @ self.metric)

    @property
    def noisy(self) -> float:
        """``sum a s f*``, the part of F that noise and blur make."""
        return float(np.vdot(self.point.scales, self.point.cells.conjugate))

    @property
    def least_scale(self) -> float:
        """The least scale of a pair."""
        return float(min(self.point.scales[pair] for pair in pairs_of(self.problem.n_classes)))

    @property
    def spread(self) -> float:
        """The standard deviation of the margins of a pair: those of two scores."""
        return float(np.sqrt(2) * np.median(np.std(self.problem.rows.gather(self.point.scores), axis=0)))

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def hessian_cost(self) -> float:
        """What a factor costs, in units of :meth:`product` and a solution with the factor (measured)."""
        rows, C = self.problem.rows, self.problem.n_classes
        width, values = rows.n_columns + 1, C * rows.n_values
        n = (C - 1) * width
        if n <= MAX_UNKNOWNS:
            return 1.0 + (values * width / 8 + n**3 / 20) / (values + 3 * n**2)
        used = min(1.0, PRECONDITIONER_ROWS * width / rows.n_rows)
        return 1.0 + used * values * width / 8 / (values + 3 * C * width**2)

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving."""
        rows, C = self.problem.rows, self.problem.n_classes
        width = rows.n_columns + 1
        return ((C - 1) * width) ** 3 + rows.n_values * C * width < CHEAP

    def factor(self, damping: Array) -> "Factor | Preconditioner | None":
        """Return a factor of the damped Hessian, of its diagonal blocks where it is large, or None."""
        if len(self.gradient) <= MAX_UNKNOWNS:
            return damped_factor(self.hessian(), damping)
        return Preconditioner(self, damping) if self.problem.rows.n_columns <= MAX_COLUMNS else None

    def hessian(self) -> Array:
        """Return the Hessian by the unknowns."""
        problem, C = self.problem, self.problem.n_classes
        problem.rows.count("hessian")
        grams = problem.rows.total(_pair_grams, self.row_weights.curve, self.row_weights.tilt, n_classes=C)
        return self.assembled(self._pair(gram_of, c, k) for gram_of, (c, k) in zip(grams, pairs_of(C), strict=True))

    def _pair(self, gram_of_pair: Array, c: int, k: int) -> Array:
        """Return the Hessian of one pair from the Gram matrix of ``(x, z, 1)``."""
        d, tension = self.problem.rows.n_columns, self.tension[c, k]
        towards = (self.metric[c] - self.metric[k]) / self.point.scales[c, k]
        block = np.empty((d + 1, d + 1))
        tilts, ones = gram_of_pair[d], gram_of_pair[d + 1]
        block[:d, :d] = gram_of_pair[:d, :d] + np.outer(tilts[:d], towards)
        # The curvature of the scale, (A - grad a grad a') k / a, joins the terms in grad a grad a'.
        block[:d, :d] += np.outer(towards, tilts[:d] + (tilts[d] - tension) * towards)
        self.problem.noise.add_metric(tension, block[:d, :d])
        block[d, :d] = block[:d, d] = ones[:d] + ones[d] * towards
        block[d, d] = ones[d + 1]
        return block

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; one pass over X."""
        problem, scales, C = self.problem, self.point.scales, self.problem.n_classes
        P, shifts = unfold(p, C)
        along = P @ self.metric.T
        own = np.diag(along)
        # (w_c - w_k)' A (p_c - p_k), and from it the derivative of the scale along p.
        turn = own[:, np.newaxis] + own - along - along.T
        moved = shifts if problem.fit_intercept else np.zeros(C)
        out, turns = self._bend(np.ascontiguousarray(P.T), moved, turn / scales)
        out[:, :-1] += laplacian(self.tension) @ problem.metric(P)
        out[:, :-1] += laplacian(turns / scales - self.tension * turn / scales**2) @ self.metric
        return self.folded(out, P, shifts)

    def tangent(self, less: Smoothing) -> Array:
        """Return how the gradient changes on the way to less smoothing, to first order; one pass over X.

        See :meth:`gaussguru._problems.binary.Local.tangent`.
        """
        problem, scales, C = self.problem, self.point.scales, self.problem.n_classes
        blurred = (problem.smoothing.blur / scales) ** 2 * problem.smoothing.towards(less).blur
        out, turns = self._bend(None, np.zeros(C), scales * blurred)
        out[:, :-1] += laplacian(turns / scales - self.tension * blurred) @ self.metric
        return self.folded(out, np.zeros((C, 1)), np.zeros(C))

    def _bend(self, columns: Array | None, shifts: Array, eta: Array) -> tuple[Array, Array]:
        """Return ``sum h t (x, 1)`` by class and ``sum h t z`` by pair, with ``t = x.(p_c - p_k) + shift + z eta``."""
        rows, weights = self.problem.rows, self.row_weights
        rows.count("product")
        turns, shifted, combined = rows.total(
            _bend, weights.curve, weights.tilt, columns=columns, shifts=shifts, eta=np.ascontiguousarray(eta)
        )
        return np.column_stack([combined, shifted]), turns + turns.T

    def main(self) -> "Local":
        """Return the same with only the rows of some Hessian weight, if these are few: products cost less."""
        if self.is_cheap:
            return self
        rows = self.problem.rows
        bends = rows.gather([curve.sum(axis=1) for curve in self.row_weights.curve])
        chosen = np.flatnonzero(bends >= FLAT * bends.mean())
        if len(chosen) > FEW * len(bends):
            return self
        some = rows.take(chosen)
        weights = Weights(*(some.split(rows.gather(part)[chosen]) for part in self.row_weights))
        local = replace(self, problem=replace(self.problem, rows=some), row_weights=weights)
        # Those of all rows, whatever is left out of products.
        local.gradient, local.unit_damping = self.gradient, self.unit_damping
        return local

    # --- certificates -------------------------------------------------------------------------------------

    def dual(self, used: Array, primal: float, target: float, *, thorough: bool) -> float:
        """Return a dual value with the pairs that are ``used``; 0 if it cannot be as wanted."""
        problem, point, cells = self.problem, self.point, self.point.cells
        kept = balance(np.where(used, cells.slope, 0.0)) if problem.fit_intercept else 1.0 * used
        if kept is None:
            return 0.0
        room = kept * cells.conjugate  # f* is concave and 0 at 0
        tension = (room + room.T) / point.scales
        rest = -(self._combined_with(kept) + laplacian(tension) @ self.metric)
        rest[~used.any(axis=1)] = 0.0
        gain = np.where(used, cells.value + cells.value.T, 0.0)
        flow, unrouted = route(rest, gain)
        noise, rounding = problem.noise, pair_rounding(cells.slope, problem.rows, thorough=thorough)
        edges, demand = np.nonzero(np.triu(used, 1)), []
        for c, k in zip(*edges, strict=True):
            v = tension[c, k] * (self.metric[c] - self.metric[k]) + flow(c, k)
            demand.append(noise.polar(v) + noise.polar_within(rounding(c, k) + unrouted.get((c, k), 0.0)))
        ray = Ray(
            float(np.vdot(kept, cells.slope)),
            demand,
            (room + room.T)[edges].tolist(),
            lambda c: self._room_at(kept, c)[edges].tolist(),
            gain=(gain - self.conjugate)[edges].tolist(),
            ridge=problem.l2 * problem.n_classes,
            excess=norm(rest.ravel()),
        )
        return ray.best(np.inf if thorough else primal - target)

    def _room_at(self, kept: Array, factor: float) -> Array:
        room = kept * self.problem.shrunk_conjugate(self.point, factor)
        return np.asarray(room + room.T)

    def _combined_with(self, kept: Array) -> Array:
        """Return ``combined`` for the slopes of every cell times ``kept``; one pass over X unless all are kept."""
        off = ~np.eye(len(kept), dtype=bool)
        if np.all(kept[off] == 1):
            return self.combined
        self.problem.rows.count("value")
        combined: Array = self.problem.rows.total(_combine_kept, self.row_weights.residual, kept=kept)
        return combined


class Preconditioner:
    """The inverse of the blocks of the Hessian on its diagonal, one for each class; the pairs couple them weakly.

    The terms that couple a row's scale to its score are left out, and no more rows are used than it takes, of those
    of most Hessian weight.
    """

    is_exact = False

    def __init__(self, local: Local, damping: Array) -> None:
        problem, rows = local.problem, local.problem.rows
        self.n_classes, self.fit_intercept = problem.n_classes, problem.fit_intercept
        most = PRECONDITIONER_ROWS * rows.n_columns
        rng = np.random.default_rng(0)
        stiff = damping[: rows.n_columns + 1].copy()
        stiff[:-1] += problem.n_classes * problem.l2
        curve = rows.gather(local.row_weights.curve)
        self._factors = []
        for c in range(problem.n_classes):
            weight = np.where(rows.labels == c, curve.sum(axis=1), curve[:, c])
            used = np.flatnonzero(weight > STEEP * weight.mean())
            share = min(1.0, most / max(1, len(used)))
            if share < 1:
                used = np.sort(rng.choice(used, most, replace=False))
            block = self._gram(rows, used, weight[used] / share)
            problem.noise.add_metric(float(local.tension[c].sum()), block[:-1, :-1])
            diagonal(block)[:] += stiff
            if not self.fit_intercept:
                block[-1, :-1] = 0.0
                block[-1, -1] = 1.0
            self._factors.append(factorise(block))

    @staticmethod
    def _gram(rows: Rows, used: Index, weight: Array) -> Array:
        some, width = rows.take(used), rows.n_columns + 1
        if len(used) == 0:
            return np.zeros((width, width))
        return some.gram(some.split(weight), some.split(np.zeros(len(used))), np.zeros(rows.n_columns))

    def solve(self, g: Array) -> Array:
        """Return the approximate inverse times ``g``."""
        G = np.zeros((self.n_classes, g.size // (self.n_classes - 1)))
        G[:-1] = g.reshape(self.n_classes - 1, -1)
        G[-1] = -G[:-1].sum(axis=0)
        P = np.array([factor.solve(row) for factor, row in zip(self._factors, G, strict=True)])
        if not self.fit_intercept:
            P[:, -1] = 0.0
        return np.asarray((P[:-1] - P[-1]).ravel())


# --- tasks ---------------------------------------------------------------------------------------------------


def _slacks(block: Block, found: Array, b: Array, scales: Array) -> Any:
    """Yield every cell of a block: its classes, its rows and their standardised slacks."""
    for c in range(len(b)):
        rows = np.flatnonzero(block.labels == c)
        for k in range(len(b)):
            if k != c:
                margin = found[rows, c] - found[rows, k] + (b[c] - b[k])
                yield c, k, rows, (1.0 - margin) / scales[c, k]


def _cells(block: Block, found: Array, *weights: Array, loss: Loss, b: Array, scales: Array) -> Array:
    """Return the sums over the cells, and write what every row weighs where that is given."""
    if loss.code >= 0:
        place = (block.labels, block.weights, found, 1.0, b, scales)
        return np.asarray(_binding.cells(0, block.n_rows, loss.code, *place, *weights))
    sums = np.zeros((len(b), len(b), len(Cells._fields)))
    for c, k, rows, z in _slacks(block, found, b, scales):
        f, slope, curvature = loss.terms(z)
        s = block.weights[rows]
        sums[c, k] = s @ f, s @ slope, s @ loss.conjugate(slope)
        for part, values in zip(weights, (s * slope, s * curvature / scales[c, k], z), strict=False):
            part[rows, k] = values
    if weights:
        own = (np.arange(block.n_rows), block.labels)
        for part in weights:
            part[own] = 0.0
        weights[0][own] = -weights[0].sum(axis=1)
    return sums


def _visit(
    block: Block, *given: Array, columns: Array | None, **place: Any
) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
    """Return scores and weights of every row; the sums over cells, and ``R' X``: X is read once from memory."""
    n, C = block.n_rows, len(place["b"])
    found = given[0] if given else np.empty((n, C))
    residual, curve, tilt = (np.empty((n, C)) for _ in range(3))
    sums: Any = 0.0
    combined = np.zeros((C, block.X.shape[1]))
    for where, piece in block.pieces():
        if columns is not None:
            found[where] = scores(piece, columns)
        sums = sums + _cells(piece, found[where], residual[where], curve[where], tilt[where], **place)
        combined += scatter(piece, residual[where])
    return (found, residual, curve, tilt), (sums, combined)


def _slopes(block: Block, found: Array, loss: Loss, b: Array, scales: Array) -> Array:
    alpha = np.zeros_like(found)
    for _, k, rows, z in _slacks(block, found, b, scales):
        alpha[rows, k] = loss.slope(z)
    return alpha


def _shrunk(block: Block, found: Array, loss: Loss, b: Array, scales: Array, factor: float) -> Array:
    if loss.code >= 0:
        place = (block.labels, block.weights, found, 1.0, b, scales)
        return np.asarray(_binding.shrunk_cells(0, block.n_rows, loss.code, *place, factor))
    sums = np.zeros((len(b), len(b)))
    for c, k, rows, z in _slacks(block, found, b, scales):
        sums[c, k] = block.weights[rows] @ loss.conjugate(factor * loss.slope(z))
    return sums


def _bend(
    block: Block, curve: Array, tilt: Array, columns: Array | None, shifts: Array, eta: Array
) -> tuple[Array, Array, Array]:
    C = len(shifts)
    turns, shifted, combined = np.zeros((C, C)), np.zeros(C), np.zeros((C, block.X.shape[1]))
    for where, piece in block.pieces():
        n = piece.n_rows
        found = np.zeros((n, C)) if columns is None else scores(piece, columns)
        bent = np.empty((n, C))
        turns += _binding.bend(0, n, piece.labels, found, shifts, eta, curve[where], tilt[where], bent)
        shifted += bent.sum(axis=0)
        combined += scatter(piece, bent)
    return turns, shifted, combined


def _combine_kept(block: Block, residual: Array, kept: Array) -> Array:
    residual = residual * kept[block.labels]
    own = (np.arange(len(residual)), block.labels)
    residual[own] = 0.0
    residual[own] = -residual.sum(axis=1)
    return scatter(block, residual)


def _pair_grams(block: Block, curve: Array, tilt: Array, n_classes: int) -> Array:
    """Return for every pair ``c < k`` the sum of ``h (x, z, 1)(x, z, 1)'``, with ``-z`` for the rows of class k."""
    mine = [np.flatnonzero(block.labels == c) for c in range(n_classes)]

    def half(c: int, k: int) -> Array:
        weights, tilts = curve[mine[c], k], tilt[mine[c], k]
        return block.gram(mine[c], weights, tilts if c < k else -tilts, np.ones(len(tilts)))

    return np.array([half(c, k) + half(k, c) for c, k in pairs_of(n_classes)])
