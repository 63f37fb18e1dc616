"""More than two classes: every row is compared with every other class, and all share the noise of the model.

The scale is ``a = hypot(a(w_c - w_k), blur)`` for the noise scale ``a(u)`` of the model; see
:mod:`gaussguru._problems.pairs` for the objective.

Conventions
-----------
scores : row vector of (n_rows, C), ``W x_i`` without intercepts
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gaussguru._data.rows import Block, RowVector, gram, one_hot, scatter, scores
from gaussguru._linalg import MAX_COLUMNS, Array, Index, diagonal, factorise, mirrored
from gaussguru._native import _binding
from gaussguru._problems.binary import Weights
from gaussguru._problems.pairs import Flow, PairLocal, PairPoint, PairProblem, mixed, pairs_of, symmetric, unfold
from gaussguru._problems.protocol import Inverse, SpannedProblem
from gaussguru._problems.smoothing import NEGLIGIBLE
from gaussguru.certificates.dual_point import Ray
from gaussguru.losses import Loss
from gaussguru.noise import QuadraticNoise

# Rows of little Hessian weight are left out of products if the others, which are copied, are at most this fraction of
# all (measured: 0.7 saves a tenth of the products on usps, and costs iterations on mnist).
KEPT_SHARE = 0.5
# A preconditioner has about this many rows per column.
PRECONDITIONER_ROWS = 8


@dataclass(eq=False)
class MulticlassPoint(PairPoint):
    """A place in parameter space, with what its scores tell; ``scales`` are those of the differences of classes.

    ``conjugate`` has the sums of ``s f*`` over every cell; ``margin`` is what the score of the own class should be
    above the others.
    """

    scores: RowVector
    scales: Array
    conjugate: Array
    margin: float = 1.0


@dataclass(frozen=True, eq=False)
class Multiclass(PairProblem[MulticlassPoint], SpannedProblem[MulticlassPoint]):
    """Rows of several classes with the noise of the model; see the module for the formulas."""

    noise: QuadraticNoise

    # --- values -------------------------------------------------------------------------------------------

    def point(self, x: Array) -> MulticlassPoint:
        """Evaluate F at x; one pass over X."""
        W, b = unfold(x, self.n_classes)
        return self.at(W, b, self.rows.scores(W))

    def at(self, W: Array, b: Array, found: RowVector) -> MulticlassPoint:
        """Evaluate F at ``(W, b)`` from the scores."""
        scales = np.sqrt(self.squares(W))
        sums = self.rows.total(_cells, found, loss=self.loss, b=b, scales=scales, margin=1.0, pointwise=True)
        return self._point(W, b, found, scales, sums)

    def _point(
        self, W: Array, b: Array, found: RowVector, scales: Array, sums: Array, margin: float = 1.0
    ) -> MulticlassPoint:
        gain, mass, conjugate = np.ascontiguousarray(np.moveaxis(sums[..., :3], -1, 0))
        value = float(np.vdot(scales, gain)) + self.ridge(W)
        return MulticlassPoint(W, b, value, mass, gain, conjugate / scales, found, scales, conjugate, margin)

    def again(self, point: MulticlassPoint) -> MulticlassPoint:
        """Evaluate F at a point of the same rows with other smoothing."""
        return self.at(point.W, point.b, point.scores)

    def mixture(self, parts: list[tuple[float, MulticlassPoint]]) -> MulticlassPoint:
        """Evaluate F at a linear combination of points, from their scores."""
        return self.at(*mixed(parts), self.rows.mixed([(share, point.scores) for share, point in parts]))

    # --- derivatives --------------------------------------------------------------------------------------

    def visit(self, x: Array, *, curved: bool = False) -> "MulticlassLocal":
        """Return value and gradient at x from one pass over X."""
        return self._local(*unfold(x, self.n_classes), None)

    def expand(self, point: MulticlassPoint) -> "MulticlassLocal":
        """Return value and gradient at a point; one pass over X."""
        return self._local(point.W, point.b, point.scores)

    def _local(self, W: Array, b: Array, found: RowVector | None, margin: float = 1.0) -> "MulticlassLocal":
        scales = np.sqrt(self.squares(W))
        self.rows.count("value")
        vectors, columns = ((), np.ascontiguousarray(W.T)) if found is None else ((found,), None)
        place = {"loss": self.loss, "b": b, "scales": scales, "margin": margin}
        parts, (sums, combined) = self.rows.both(_visit, *vectors, columns=columns, **place)
        computed, *weights = self.rows.unzipped(parts, 4)
        point = self._point(W, b, computed, scales, sums, margin)
        return MulticlassLocal(self, point, Weights(*weights), combined)

    # --- solutions ----------------------------------------------------------------------------------------

    def slopes(self, point: MulticlassPoint) -> Array:
        """Return ``alpha = f'(z)`` for every row and class, 0 for its own class."""
        return self.rows.gather(self.rows.each(_slopes, point.scores, pointwise=True, **self._place(point)))

    def shrunk_conjugate(self, point: MulticlassPoint, factor: float) -> Array:
        """Return ``sum s f*(factor alpha)`` of every cell at the slopes of a point, or a little less."""
        place = self._place(point)
        return np.asarray(self.rows.total(_shrunk, point.scores, factor=factor, pointwise=True, **place))

    def _place(self, point: MulticlassPoint) -> dict[str, Any]:
        return {"loss": self.loss, "b": point.b, "scales": point.scales, "margin": point.margin}

    def residual(self, x: Array) -> Array:
        """Return the derivatives of F by the scores."""
        return self.rows.gather(self.visit(x).row_weights.residual)

    def by_cell(self, residual: Array) -> Array:
        """Return the same apart for the rows of each class, a column for each pair."""
        own = self.rows.labels[:, np.newaxis] == np.arange(self.n_classes)
        return np.hstack([np.delete(residual * own[:, [c]], c, axis=1) for c in range(self.n_classes)])


@dataclass(eq=False)
class MulticlassLocal(PairLocal[MulticlassPoint]):
    """Value, gradient and Hessian of F at one point; ``combined`` is ``R' X`` for the derivatives R by the scores.

    What rows weigh are arrays of (n_rows, C): R, ``s f''/a`` and ``z``.
    """

    problem: Multiclass
    point: MulticlassPoint
    row_weights: Weights
    combined: Array
    # A step with an old factor must do more than with two classes, because each is certified, which takes as long.
    contraction: ClassVar[float] = 0.07

    def pull(self, kept: Array) -> Array:
        """Return ``combined`` for the slopes of every cell times ``kept``; one pass over X unless all are kept."""
        if np.all(kept + np.eye(len(kept)) >= 1):
            return self.combined
        self.problem.rows.count("value")
        return np.asarray(self.problem.rows.total(_combine_kept, self.row_weights.residual, kept=kept))

    @property
    def noisy(self) -> float:
        """``sum a s f*``, the part of F that noise and blur make."""
        return float(np.vdot(self.point.scales, self.point.conjugate))

    @property
    def least_scale(self) -> float:
        """The least scale of a pair."""
        return float(min(self.point.scales[pair] for pair in pairs_of(self.problem.n_classes)))

    @property
    def spread(self) -> float:
        """The standard deviation of the margins of a pair: those of two scores."""
        return float(np.sqrt(2) * np.median(self.problem.rows.std(self.point.scores)))

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def hessian_cost(self) -> float:
        """What a factor costs, in units of :meth:`product` and a solution with the factor (measured)."""
        rows = self.problem.rows
        share = PRECONDITIONER_ROWS * rows.n_columns / rows.n_rows if self.is_large else 1.0
        return min(1.0, share) * super().hessian_cost

    def factor(self, damping: Array) -> Inverse | None:
        """Return a factor of the damped Hessian, of its diagonal blocks where it is large, or None."""
        blocks = self.is_large and self.problem.rows.n_columns <= MAX_COLUMNS
        return Preconditioner(self, damping) if blocks else super().factor(damping)

    def blocks(self) -> Iterator[Array]:
        """Yield the Hessian of every pair, from the Gram matrix of ``(x, z, 1)``."""
        d, C, tension = self.problem.rows.n_columns, self.problem.n_classes, symmetric(self.point.tension)
        rows, (_, *weights) = self.problem.rows, self.row_weights
        grams = rows.total(_pair_grams, *weights, n_classes=C, narrow=rows.is_narrow)
        for found, (c, k) in zip(grams, pairs_of(C), strict=True):
            towards = (self.metric[c] - self.metric[k]) / self.point.scales[c, k]
            block = np.empty((d + 1, d + 1))
            tilts, ones = found[d], found[d + 1]
            block[:d, :d] = mirrored(found)[:d, :d] + np.outer(tilts[:d], towards)
            # The curvature of the scale, (N - grad a grad a') k / a, joins the terms in grad a grad a'.
            block[:d, :d] += np.outer(towards, tilts[:d] + (tilts[d] - tension[c, k]) * towards)
            block[d, :d] = block[:d, d] = ones[:d] + ones[d] * towards
            block[d, d] = ones[d + 1]
            yield block

    def bend(self, P: Array, shifts: Array, rise: Array) -> tuple[Array, Array]:
        """Return ``sum h t (x, 1)`` by class and how tensions change, with ``t = x.(p_c - p_k) + shift + z rise/a``."""
        (_, *weights), scales = self.row_weights, self.point.scales
        columns = np.ascontiguousarray(P.T) if P.any() else None
        out, turns = self.problem.rows.total(_bend, *weights, columns=columns, shifts=shifts, eta=rise / scales)
        return out, turns / scales - self.point.tension * rise / scales**2

    def main(self) -> "MulticlassLocal":
        """Return the same with only the rows of some Hessian weight, if these are few: products cost less."""
        rows = self.problem.rows
        if self.is_cheap or not rows.in_memory:
            return self
        bends = rows.gather([curve.sum(axis=1) for curve in self.row_weights.curve])
        chosen = np.flatnonzero(bends >= NEGLIGIBLE**2 * bends.mean())
        if len(chosen) > KEPT_SHARE * len(bends):
            return self
        some = rows.take(chosen)
        weights = Weights(*(some.split(rows.gather(part)[chosen]) for part in self.row_weights))
        local = replace(self, problem=self.problem.on_rows(some), row_weights=weights)
        # Those of all rows, whatever is left out of products.
        local.gradient, local.problem.__dict__["unit_damping"] = self.gradient, self.problem.unit_damping
        return local

    # --- certificates -------------------------------------------------------------------------------------

    def displaced(self, P: Array, shifts: Array) -> "MulticlassLocal":
        """Return value and gradient a step from here, the slacks in place of scores; two passes over X."""
        problem, step = self.problem, np.column_stack([P, shifts])
        problem.rows.count("value")
        slacks = problem.rows.each(_displaced, self.row_weights.tilt, scales=self.point.scales, step=step)
        return problem._local(self.point.W + P, np.zeros_like(self.point.b), slacks, margin=0.0)

    def rays(self, ray: Callable[..., Ray], kept: Array, edges: tuple[Index, ...], flow: Flow) -> Iterator[Ray]:
        """Yield what fits into the noise set that the rows of a pair share."""
        problem, point, demand = self.problem, self.point, []
        tension = symmetric(kept * point.tension)
        for c, k in zip(*edges, strict=True):
            v, error = flow(c, k)
            own = tension[c, k] * (self.metric[c] - self.metric[k])
            demand.append(problem.noise.polar(own + v) + problem.noise.polar_within(error))

        def of_pairs(cells: Array) -> list[float]:
            return list(symmetric(kept * cells)[edges])

        def room_at(c: float) -> list[float]:
            return of_pairs(problem.shrunk_conjugate(point, c))

        # The conjugate is concave in alpha and 0 at 0.
        yield ray(demand, of_pairs(point.conjugate), room_at, gain=of_pairs(point.gain - point.conjugate))


class Preconditioner:
    """The inverse of the blocks of the Hessian on its diagonal, one for each class; the pairs couple them weakly.

    The terms that couple a row's scale to its score are left out. No more rows are used than it takes: they are drawn
    in proportion to their Hessian weight, and then weigh the same.
    """

    is_exact = False

    def __init__(self, local: MulticlassLocal, damping: Array) -> None:
        problem = local.problem
        self.fit_intercept = problem.fit_intercept
        d, tension = problem.rows.n_columns, symmetric(local.point.tension).sum(axis=1)
        self._factors = []
        for c, block in enumerate(_drawn_grams(local) if problem.rows.in_memory else _streamed_grams(local)):
            problem.noise.add_metric(float(tension[c]), block[:-1, :-1])
            diagonal(block)[:] += damping[: d + 1]
            diagonal(block)[:-1] += problem.n_classes * problem.l2
            if not self.fit_intercept:
                block[-1, :-1] = 0.0
                block[-1, -1] = 1.0
            self._factors.append(factorise(block))

    def solve(self, g: Array) -> Array:
        """Return the approximate inverse times ``g``."""
        G = g.reshape(len(self._factors) - 1, -1)
        G = np.vstack([G, -G.sum(axis=0)])
        P = np.array([factor.solve(row) for factor, row in zip(self._factors, G, strict=True)])
        P[:, -1] *= self.fit_intercept
        return np.asarray((P[:-1] - P[-1]).ravel())


def _drawn_grams(local: MulticlassLocal) -> Iterable[Array]:
    """Return ``sum h (x, 1)(x, 1)'`` for every class, from the drawn rows alone."""
    rows, rng, drawn = local.problem.rows, np.random.default_rng(0), []
    most, curve = PRECONDITIONER_ROWS * rows.n_columns, rows.gather(local.row_weights.curve)
    for c in range(rows.n_classes):
        weight = np.where(rows.labels == c, curve.sum(axis=1), curve[:, c])
        unit = float(weight.sum()) / most
        if rows.n_rows > most and unit > 0:
            weight = unit * rng.poisson(weight / unit)
        used = np.flatnonzero(weight) if weight.any() else np.arange(1)
        drawn.append((used, weight[used]))
    return rows.grams(drawn)


def _streamed_grams(local: MulticlassLocal) -> Array:
    """Return the same, each block drawing among its own rows."""
    rows, curve = local.problem.rows, local.row_weights.curve
    most, C = PRECONDITIONER_ROWS * rows.n_columns, rows.n_classes
    units = rows.total(_bends, curve, pointwise=True) / most if rows.n_rows > most else np.zeros(C)
    rows.count("hessian", min(1.0, C * most / rows.n_rows))
    return np.asarray(rows.total(_thinned_grams, curve, units=units))


# --- tasks ---------------------------------------------------------------------------------------------------


def _class_bends(block: Block, curve: Array) -> Array:
    """Return the Hessian weight of every row for every class: its own has that of all pairs."""
    return curve + one_hot(block.labels, curve.sum(axis=1), curve.shape[1])


def _bends(block: Block, curve: Array) -> Array:
    return np.asarray(_class_bends(block, curve).sum(axis=0))


def _thinned_grams(block: Block, curve: Array, units: Array) -> Array:
    """Return the Gram matrix of ``(x, 1)`` for every class, of rows drawn in units of Hessian weight if there are."""
    rng, weights = np.random.default_rng([0, block.number]), _class_bends(block, curve)
    grams = np.zeros((len(units), block.X.shape[1] + 1, block.X.shape[1] + 1))
    for found, unit, weight in zip(grams, units.tolist(), weights.T, strict=True):
        drawn = unit * rng.poisson(weight / unit) if unit > 0 else weight
        used = np.flatnonzero(drawn)
        block.gram(used, drawn[used], np.ones(len(used)), out=found)
    return grams


def _slacks(block: Block, found: Array, b: Array, scales: Array, margin: float) -> tuple[Array, Array]:
    """Return z of every row and class, and 1 for every class but its own, whose z is that of no margin."""
    others, total = 1.0 - one_hot(block.labels, 1.0, len(b)), found + b
    found = total[np.arange(block.n_rows), block.labels, np.newaxis] - total
    return (margin - found) / scales[block.labels], others


def _displaced(block: Block, tilt: Array, scales: Array, step: Array) -> Array:
    """Return ``a z`` of every row and class after a step, 0 for its own class."""
    place, change = np.arange(block.n_rows), scores(block, np.ascontiguousarray(step[:, :-1].T)) + step[:, -1]
    slack = scales[block.labels] * tilt + (change - change[place, block.labels, np.newaxis])
    slack[place, block.labels] = 0.0
    return slack


def _by_cell(block: Block, values: Array) -> Array:
    """Return the weighted sums over the rows of every class."""
    return one_hot(block.labels, block.weights, values.shape[1]).T @ values


def _closed(block: Block, residual: Array) -> Array:
    """Return derivatives by the scores of the other classes with those by the own: each row adds up to zero."""
    return residual - one_hot(block.labels, residual.sum(axis=1), residual.shape[1])


def _cells(block: Block, found: Array, *weights: Array, loss: Loss, b: Array, scales: Array, margin: float) -> Array:
    """Return the sums over the cells, and write what every row weighs where that is given."""
    if loss.code >= 0 and margin == 1:  # what compiled loops know
        place = (block.labels, block.weights, found, 1.0, b, scales)
        return np.asarray(_binding.cells(0, block.n_rows, loss.code, *place, *weights))
    z, others = _slacks(block, found, b, scales, margin)
    f, slope, curvature = (others * part for part in loss.terms(z))
    if weights:
        s, (residual, curve, tilt) = block.weights[:, np.newaxis], weights
        residual[:], curve[:], tilt[:] = _closed(block, s * slope), s * curvature / scales[block.labels], others * z
    return np.stack([_by_cell(block, part) for part in (f, slope, others * loss.conjugate(slope))], axis=-1)


def _visit(block: Block, *given: Array, columns: Array | None, **place: Any) -> tuple[Any, Any]:
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


def _slopes(block: Block, found: Array, loss: Loss, b: Array, scales: Array, margin: float) -> Array:
    z, others = _slacks(block, found, b, scales, margin)
    return np.asarray(others * loss.slope(z))


def _shrunk(block: Block, found: Array, loss: Loss, b: Array, scales: Array, margin: float, factor: float) -> Array:
    if loss.code >= 0 and margin == 1:  # what compiled loops know
        place = (block.labels, block.weights, found, 1.0, b, scales)
        return np.asarray(_binding.shrunk_cells(0, block.n_rows, loss.code, *place, factor))
    z, others = _slacks(block, found, b, scales, margin)
    return _by_cell(block, others * loss.conjugate(factor * loss.slope(z)))


def _bend(block: Block, curve: Array, tilt: Array, columns: Array | None, shifts: Array, eta: Array) -> tuple[Any, Any]:
    C = len(shifts)
    out, turns = np.zeros((C, block.X.shape[1] + 1)), np.zeros((C, C))
    for where, piece in block.pieces():
        n = piece.n_rows
        found = np.zeros((n, C)) if columns is None else scores(piece, columns)
        bent = np.empty((n, C))
        turns += _binding.bend(0, n, piece.labels, found, shifts, eta, curve[where], tilt[where], bent)
        out[:, :-1] += scatter(piece, bent)
        out[:, -1] += bent.sum(axis=0)
    return out, turns


def _combine_kept(block: Block, residual: Array, kept: Array) -> Array:
    return scatter(block, _closed(block, residual * (kept - np.diag(np.diag(kept)))[block.labels]))


def _pair_grams(block: Block, curve: Array, tilt: Array, n_classes: int, narrow: bool) -> Array:
    """Return for every pair ``c < k`` the sum of ``h (x, z, 1)(x, z, 1)'``, with ``-z`` for the rows of class k."""
    width, pairs = block.X.shape[1] + 2, pairs_of(n_classes)
    grams = np.zeros((len(pairs), width, width))
    of_pair = dict(zip(pairs, grams, strict=True))
    for c in range(n_classes):
        mine = np.flatnonzero(block.labels == c)
        own, curves, tilts = block.take(mine), curve[mine].T.copy(), tilt[mine].T.copy()
        every, ones = np.arange(len(mine)), np.ones(len(mine))
        for k in (*range(c), *range(c + 1, n_classes)):
            found, z = of_pair[min(c, k), max(c, k)], tilts[k] if c < k else -tilts[k]
            if narrow:
                found += gram(own, curves[k], z)
            else:
                own.gram(every, curves[k], z, ones, out=found)
    return grams
