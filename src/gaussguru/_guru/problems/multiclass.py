"""More than two classes: every row is compared with every other class; all rows share the noise of the model.

The scale is ``a = hypot(a(w_c - w_k), blur)`` for the noise scale ``a(u)`` of the model; see
:mod:`gaussguru._guru.problems.pairs` for the objective.

Conventions
-----------
scores : row vector of (n_rows, C), ``W x_i`` without intercepts
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gaussguru._guru.certificates.dual_point import Ray
from gaussguru._guru.problems.binary import Weights
from gaussguru._guru.problems.pairs import Flow, PairLocal, PairPoint, PairProblem, mixed, pairs_of, symmetric, unfold
from gaussguru._guru.problems.protocol import Inverse, SpannedProblem
from gaussguru._guru.problems.smoothing import NEGLIGIBLE
from gaussguru._native import _binding
from gaussguru._rows.rows import Block, RowVector, gram, one_hot, scatter, scores
from gaussguru._utils.linalg import MAX_COLUMNS, Array, Index, diagonal, factorise, mirrored
from gaussguru.losses import Loss
from gaussguru.noise import QuadraticNoise

# A preconditioner is made from about this many rows per column.
PRECONDITIONER_ROWS = 8


@dataclass(eq=False)
class MulticlassPoint(PairPoint):
    """A point with its scores and sums over cells.

    Attributes
    ----------
    scores : row vector of (n_rows, C)
    scales : (C, C), the scale of ``w_c - w_k``
    conjugate : (C, C), ``sum s f*`` over every cell
    margin : required difference of the score of the own class and another; 0 if ``scores`` hold slacks
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

    def at(self, W: Array, b: Array, scores: RowVector) -> MulticlassPoint:
        """Evaluate F at ``(W, b)`` from the scores."""
        scales = np.sqrt(self.squares(W))
        sums = self.rows.total(_cells, scores, loss=self.loss, b=b, scales=scales, margin=1.0, pointwise=True)
        return self._point(W, b, scores, scales, sums)

    def _point(
        self, W: Array, b: Array, scores: RowVector, scales: Array, sums: Array, margin: float = 1.0
    ) -> MulticlassPoint:
        gain, mass, conjugate = np.ascontiguousarray(np.moveaxis(sums[..., :3], -1, 0))
        value = float(np.vdot(scales, gain)) + self.ridge(W)
        return MulticlassPoint(W, b, value, mass, gain, conjugate / scales, scores, scales, conjugate, margin)

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

    def _local(self, W: Array, b: Array, scores: RowVector | None, margin: float = 1.0) -> "MulticlassLocal":
        scales = np.sqrt(self.squares(W))
        self.rows.count("value")
        vectors, columns = ((), np.ascontiguousarray(W.T)) if scores is None else ((scores,), None)
        arguments = {"loss": self.loss, "b": b, "scales": scales, "margin": margin}
        parts, (sums, combined) = self.rows.both(_visit, *vectors, columns=columns, **arguments)
        computed, *weights = self.rows.unzipped(parts, 4)
        point = self._point(W, b, computed, scales, sums, margin)
        return MulticlassLocal(self, point, Weights(*weights), combined)

    # --- solutions ----------------------------------------------------------------------------------------

    def slopes(self, point: MulticlassPoint) -> Array:
        """Return ``alpha = f'(z)`` for every row and class, 0 for its own class."""
        return self.rows.gather(self.rows.each(_slopes, point.scores, pointwise=True, **self._terms_at(point)))

    def shrunk_conjugate(self, point: MulticlassPoint, factor: float) -> Array:
        """Return ``sum s f*(factor alpha)`` of every cell at the slopes of a point, or a close lower bound."""
        arguments = self._terms_at(point)
        return np.asarray(self.rows.total(_shrunk, point.scores, factor=factor, pointwise=True, **arguments))

    def _terms_at(self, point: MulticlassPoint) -> dict[str, object]:
        return {"loss": self.loss, "b": point.b, "scales": point.scales, "margin": point.margin}

    def residual(self, x: Array) -> Array:
        """Return the derivatives of F by the scores, (n_rows, C)."""
        return self.rows.gather(self.visit(x).row_weights.residual)

    def by_cell(self, residual: Array) -> Array:
        """Split the columns by the class of the row: (n_rows, C (C - 1)), without the own class."""
        is_own = self.rows.labels[:, np.newaxis] == np.arange(self.n_classes)
        return np.hstack([np.delete(residual * is_own[:, [c]], c, axis=1) for c in range(self.n_classes)])


@dataclass(eq=False)
class MulticlassLocal(PairLocal[MulticlassPoint]):
    """Value, gradient and Hessian of F at one point.

    ``row_weights`` are row vectors of (n_rows, C): the derivatives R by the scores, ``s f''/a`` and ``z``; ``combined``
    is ``R' X``, (C, n_columns).
    """

    problem: Multiclass
    point: MulticlassPoint
    row_weights: Weights
    combined: Array
    # Less than for two classes, because every step is certified, which takes as long as the step.
    contraction: ClassVar[float] = 0.07

    def pull(self, kept: Array) -> Array:
        """Return ``combined`` with the slopes of every cell times ``kept``; one pass over X unless ``kept`` is 1."""
        if np.all(kept + np.eye(len(kept)) >= 1):
            return self.combined
        self.problem.rows.count("value")
        return np.asarray(self.problem.rows.total(_combine_kept, self.row_weights.residual, kept=kept))

    @property
    def noisy(self) -> float:
        """``sum a s f*``, the part of F due to noise and blur."""
        return float(np.vdot(self.point.scales, self.point.conjugate))

    @property
    def least_scale(self) -> float:
        """The least scale of a pair."""
        return float(min(self.point.scales[pair] for pair in pairs_of(self.problem.n_classes)))

    @property
    def spread(self) -> float:
        """``sqrt(2)`` times the median standard deviation of a score."""
        return float(np.sqrt(2) * np.median(self.problem.rows.std(self.point.scores)))

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def hessian_cost(self) -> float:
        """Cost of a factor, relative to one :meth:`product` and one solution with the factor (measured)."""
        rows = self.problem.rows
        share = PRECONDITIONER_ROWS * rows.n_columns / rows.n_rows if self.is_large else 1.0
        return min(1.0, share) * super().hessian_cost

    def factor(self, damping: Array) -> Inverse | None:
        """Return a factor of the damped Hessian; if it is large, of its diagonal blocks, or None."""
        blocks = self.is_large and self.problem.rows.n_columns <= MAX_COLUMNS
        return Preconditioner(self, damping) if blocks else super().factor(damping)

    def blocks(self) -> Iterator[Array]:
        """Yield the Hessian of every pair, from the Gram matrix of ``(x, z, 1)``."""
        d, C, tension = self.problem.rows.n_columns, self.problem.n_classes, symmetric(self.point.tension)
        rows, (_, *weights) = self.problem.rows, self.row_weights
        grams = rows.total(_pair_grams, *weights, n_classes=C, narrow=rows.is_narrow)
        for pair_gram, (c, k) in zip(grams, pairs_of(C), strict=True):
            towards = (self.metric[c] - self.metric[k]) / self.point.scales[c, k]
            block = np.empty((d + 1, d + 1))
            tilts, ones = pair_gram[d], pair_gram[d + 1]
            block[:d, :d] = mirrored(pair_gram)[:d, :d] + np.outer(tilts[:d], towards)
            # The curvature of the scale, (N - grad a grad a') k / a, joins the terms in grad a grad a'.
            block[:d, :d] += np.outer(towards, tilts[:d] + (tilts[d] - tension[c, k]) * towards)
            block[d, :d] = block[:d, d] = ones[:d] + ones[d] * towards
            block[d, d] = ones[d + 1]
            yield block

    def bend(self, P: Array, shifts: Array, rise: Array) -> tuple[Array, Array]:
        """Return ``sum h t (x, 1)`` by class, ``t = x.(p_c - p_k) + shift + z rise/a``, and the change of tensions."""
        (_, *weights), scales = self.row_weights, self.point.scales
        columns = np.ascontiguousarray(P.T) if P.any() else None
        out, turns = self.problem.rows.total(_bend, *weights, columns=columns, shifts=shifts, eta=rise / scales)
        return out, turns / scales - self.point.tension * rise / scales**2

    def main(self) -> "MulticlassLocal":
        """Return a copy without the rows of negligible Hessian weight if few rows remain; products cost less."""
        rows = self.problem.rows
        if self.is_cheap or not rows.in_memory:
            return self
        bends = rows.gather([curve.sum(axis=1) for curve in self.row_weights.curve])
        chosen = np.flatnonzero(bends >= NEGLIGIBLE**2 * bends.mean())
        # The chosen rows are copied (measured: up to 0.7 of all rows save a tenth of the products on usps, and cost
        # iterations on mnist).
        if len(chosen) > 0.5 * len(bends):
            return self
        chosen_rows = rows.take(chosen)
        weights = Weights(*(chosen_rows.split(rows.gather(part)[chosen]) for part in self.row_weights))
        local = replace(self, problem=self.problem.on_rows(chosen_rows), row_weights=weights)
        # Gradient and damping are sums over all rows.
        local.gradient, local.problem.__dict__["unit_damping"] = self.gradient, self.problem.unit_damping
        return local

    # --- certificates -------------------------------------------------------------------------------------

    def displaced(self, P: Array, shifts: Array) -> "MulticlassLocal":
        """Return the local model after a step, with slacks instead of scores to save digits; two passes over X."""
        problem, step = self.problem, np.column_stack([P, shifts])
        problem.rows.count("value")
        slacks = problem.rows.each(_displaced, self.row_weights.tilt, scales=self.point.scales, step=step)
        return problem._local(self.point.W + P, np.zeros_like(self.point.b), slacks, margin=0.0)

    def rays(self, ray: Callable[..., Ray], kept: Array, edges: tuple[Index, ...], flow: Flow) -> Iterator[Ray]:
        """Yield one ray: demand and room of every pair in the noise set that its rows share."""
        problem, point, demand = self.problem, self.point, []
        tension = symmetric(kept * point.tension)
        for c, k in zip(*edges, strict=True):
            v, error = flow(c, k)
            pull = tension[c, k] * (self.metric[c] - self.metric[k])
            demand.append(problem.noise.polar(pull + v) + problem.noise.polar_within(error))

        def of_pairs(cells: Array) -> list[float]:
            return list(symmetric(kept * cells)[edges])

        def room_at(c: float) -> list[float]:
            return of_pairs(problem.shrunk_conjugate(point, c))

        # f* is concave and 0 at 0, so the room exceeds c room by at most the gain.
        yield ray(demand, of_pairs(point.conjugate), room_at, gain=of_pairs(point.gain - point.conjugate))


class Preconditioner:
    """The inverse of the diagonal blocks of the Hessian, one for each class; pairs of classes couple them weakly.

    The terms that couple the scale of a row to its score are left out. Rows are drawn with probabilities proportional
    to their Hessian weight, and then weigh the same.
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
    """Return ``sum h (x, 1)(x, 1)'`` over drawn rows for every class; rows are in memory."""
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
    """Return ``sum h (x, 1)(x, 1)'`` over drawn rows for every class, (C, d + 1, d + 1); each block draws its rows."""
    rows, curve = local.problem.rows, local.row_weights.curve
    most, C = PRECONDITIONER_ROWS * rows.n_columns, rows.n_classes
    units = rows.total(_bends, curve, pointwise=True) / most if rows.n_rows > most else np.zeros(C)
    rows.count("hessian", min(1.0, C * most / rows.n_rows))
    return np.asarray(rows.total(_thinned_grams, curve, units=units))


# --- tasks ---------------------------------------------------------------------------------------------------


def _class_bends(block: Block, curve: Array) -> Array:
    """Return the Hessian weights, (n_rows, C); the entry of the own class is the sum over the others."""
    return curve + one_hot(block.labels, curve.sum(axis=1), curve.shape[1])


def _bends(block: Block, curve: Array) -> Array:
    return np.asarray(_class_bends(block, curve).sum(axis=0))


def _thinned_grams(block: Block, curve: Array, units: Array) -> Array:
    """Return the weighted Gram matrix of ``(x, 1)`` for every class; if ``units > 0``, of rows drawn by weight."""
    rng, weights = np.random.default_rng([0, block.number]), _class_bends(block, curve)
    grams = np.zeros((len(units), block.X.shape[1] + 1, block.X.shape[1] + 1))
    for class_gram, unit, weight in zip(grams, units.tolist(), weights.T, strict=True):
        drawn = unit * rng.poisson(weight / unit) if unit > 0 else weight
        used = np.flatnonzero(drawn)
        block.gram(used, drawn[used], np.ones(len(used)), out=class_gram)
    return grams


def _slacks(block: Block, scores: Array, b: Array, scales: Array, margin: float) -> tuple[Array, Array]:
    """Return z and a mask that is 0 for the own class and 1 for others, both (n_rows, C)."""
    others, total = 1.0 - one_hot(block.labels, 1.0, len(b)), scores + b
    scores = total[np.arange(block.n_rows), block.labels, np.newaxis] - total
    return (margin - scores) / scales[block.labels], others


def _displaced(block: Block, tilt: Array, scales: Array, step: Array) -> Array:
    """Return ``a z`` after a step, (n_rows, C), 0 for the own class."""
    index, change = np.arange(block.n_rows), scores(block, np.ascontiguousarray(step[:, :-1].T)) + step[:, -1]
    slack = scales[block.labels] * tilt + (change - change[index, block.labels, np.newaxis])
    slack[index, block.labels] = 0.0
    return slack


def _by_cell(block: Block, values: Array) -> Array:
    """Return weighted sums over the rows of every class, (C, C)."""
    return one_hot(block.labels, block.weights, values.shape[1]).T @ values


def _closed(block: Block, residual: Array) -> Array:
    """Subtract the row sums at the own class, so that each row of derivatives adds up to zero."""
    return residual - one_hot(block.labels, residual.sum(axis=1), residual.shape[1])


def _cells(block: Block, scores: Array, *weights: Array, loss: Loss, b: Array, scales: Array, margin: float) -> Array:
    """Return sums of ``s f``, ``s f'`` and ``s f*`` over cells, (C, C, 3); fill ``weights`` if they are given."""
    if loss.code >= 0 and margin == 1:  # compiled loops have a margin of 1
        arguments = (block.labels, block.weights, scores, 1.0, b, scales)
        return np.asarray(_binding.cells(0, block.n_rows, loss.code, *arguments, *weights))
    z, others = _slacks(block, scores, b, scales, margin)
    f, slope, curvature = (others * part for part in loss.terms(z))
    if weights:
        s, (residual, curve, tilt) = block.weights[:, np.newaxis], weights
        residual[:], curve[:], tilt[:] = _closed(block, s * slope), s * curvature / scales[block.labels], others * z
    return np.stack([_by_cell(block, part) for part in (f, slope, others * loss.conjugate(slope))], axis=-1)


def _visit(block: Block, *given: Array, columns: Array | None, **arguments: Any) -> tuple[Any, Any]:
    """Return scores and weights of every row, sums over cells, and ``R' X``, by pieces that stay in cache."""
    n, C = block.n_rows, len(arguments["b"])
    result = given[0] if given else np.empty((n, C))
    residual, curve, tilt = (np.empty((n, C)) for _ in range(3))
    sums: Any = 0.0
    combined = np.zeros((C, block.X.shape[1]))
    for where, piece in block.pieces():
        if columns is not None:
            result[where] = scores(piece, columns)
        sums = sums + _cells(piece, result[where], residual[where], curve[where], tilt[where], **arguments)
        combined += scatter(piece, residual[where])
    return (result, residual, curve, tilt), (sums, combined)


def _slopes(block: Block, scores: Array, loss: Loss, b: Array, scales: Array, margin: float) -> Array:
    z, others = _slacks(block, scores, b, scales, margin)
    return np.asarray(others * loss.slope(z))


def _shrunk(block: Block, scores: Array, loss: Loss, b: Array, scales: Array, margin: float, factor: float) -> Array:
    if loss.code >= 0 and margin == 1:  # compiled loops have a margin of 1
        arguments = (block.labels, block.weights, scores, 1.0, b, scales)
        return np.asarray(_binding.shrunk_cells(0, block.n_rows, loss.code, *arguments, factor))
    z, others = _slacks(block, scores, b, scales, margin)
    return _by_cell(block, others * loss.conjugate(factor * loss.slope(z)))


def _bend(block: Block, curve: Array, tilt: Array, columns: Array | None, shifts: Array, eta: Array) -> tuple[Any, Any]:
    C = len(shifts)
    out, turns = np.zeros((C, block.X.shape[1] + 1)), np.zeros((C, C))
    for where, piece in block.pieces():
        n = piece.n_rows
        along = np.zeros((n, C)) if columns is None else scores(piece, columns)
        bent = np.empty((n, C))
        turns += _binding.bend(0, n, piece.labels, along, shifts, eta, curve[where], tilt[where], bent)
        out[:, :-1] += scatter(piece, bent)
        out[:, -1] += bent.sum(axis=0)
    return out, turns


def _combine_kept(block: Block, residual: Array, kept: Array) -> Array:
    return scatter(block, _closed(block, residual * (kept - np.diag(np.diag(kept)))[block.labels]))


def _pair_grams(block: Block, curve: Array, tilt: Array, n_classes: int, narrow: bool) -> Array:
    """Return ``sum h (x, z, 1)(x, z, 1)'`` for every pair ``c < k``, with ``-z`` for the rows of class k."""
    width, pairs = block.X.shape[1] + 2, pairs_of(n_classes)
    grams = np.zeros((len(pairs), width, width))
    of_pair = dict(zip(pairs, grams, strict=True))
    for c in range(n_classes):
        index = np.flatnonzero(block.labels == c)
        class_rows, curves, tilts = block.take(index), curve[index].T.copy(), tilt[index].T.copy()
        every, ones = np.arange(len(index)), np.ones(len(index))
        for k in (*range(c), *range(c + 1, n_classes)):
            pair_gram, z = of_pair[min(c, k), max(c, k)], tilts[k] if c < k else -tilts[k]
            if narrow:
                pair_gram += gram(class_rows, curves[k], z)
            else:
                class_rows.gram(every, curves[k], z, ones, out=pair_gram)
    return grams
