"""The multiclass objective: one binary problem for every pair of classes, coupled through ``w_c - w_k``.

::

    F(W, b) = sum_i s_i sum_{k != y_i} a f(m / a) + (l2/2) sum_{c<k} ||w_c - w_k||^2
    m = 1 - (w_c - w_k).x_i - (b_c - b_k),    c = y_i,    a = a(w_c - w_k)

(thesis, chapter 5: M-GURU). It is the sum over pairs of the objective of :mod:`gaussguru.objective` at the
differences, so gradients and Hessians are those of the pairs, added to ``c`` and subtracted from ``k``: a graph
Laplacian of blocks. F does not change when one vector is added to every ``w_k``; they are kept at ``sum_k w_k = 0``.

**Blur.** With intercepts F has a kink where two ``w`` meet, and for strong noise its minimum lies there. So the
solver works with ``a = sqrt(a(u)^2 + blur^2)``: as if every margin had a little noise of its own. F rises by at most
``blur sum s f*``, it is smooth everywhere, and the slopes at its minimum are a feasible dual point of the problem
without blur, because ``|grad a|`` only became shorter: collapsed classes need no special case.

**Anchor.** A class far from all others has no curvature left and would drift away, taking digits from the rest. Its
place does not matter to F within the tolerance, so the Hessian, not F, has a curvature of ``anchor`` in every score.
Where a loss is exactly linear classes that are near have no curvature either; the solver then raises the anchor.

Conventions
-----------
labels : int32 array (n_rows,), 0 to C - 1
W : array (C, n_columns); b : array (C,)
cell (c, k) : the rows of class c against class k; arrays of cells have shape (C, C), 0 on the diagonal
unknowns : flat array of (C - 1, n_columns + 1), each class's (w, b) minus that of the last
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussguru._kernels import _binding
from gaussguru.losses import Array, Index, Loss
from gaussguru.noise import Quadratic, diagonal
from gaussguru.objective import RARE, draw, total_square
from gaussguru.rows import Rows

# The Hessian is formed up to this many unknowns: it and its factor then take 100 MB.
MAX_UNKNOWNS = 2600
# Rows bend F hardly where it is less than this part of the mean; the others are few if they are this part of all.
HARDLY, FEW = 1e-4, 0.5
# The least blur: it changes no value, but where classes have the same w it keeps z finite.
TRACE = 1e-100


class Cells(NamedTuple):
    """Sums over every cell of ``s f``, ``s f'``, ``s (f - z f')``, ``s f''``, ``s f'' z`` and ``s f'' z^2``."""

    value: Array
    slope: Array
    conjugate: Array
    curve: Array
    curve_z: Array
    curve_zz: Array


class Point(NamedTuple):
    """A place in parameter space with what one look at its scores told; the coefficients are ``stretch * W``."""

    W: Array
    b: Array
    scores: Array
    stretch: float
    distances: Array
    scales: Array
    value: float
    cells: Cells

    @property
    def coef(self) -> Array:
        """The coefficients."""
        return self.W if self.stretch == 1 else self.W * self.stretch

    @property
    def noisy(self) -> float:
        """``sum a s f*``, the part of F that the noise makes."""
        return float(np.vdot(self.scales, self.cells.conjugate))


class Pulls(NamedTuple):
    """For every row and class: the derivative of F by the score, ``s f''/a`` and ``z``."""

    residual: Array
    curve: Array
    tilt: Array


@dataclass(frozen=True)
class Multiclass:
    """Rows, labels and weights with a loss and a noise model; see the module for the formulas."""

    rows: Rows
    labels: NDArray[np.int32]
    weights: Array
    n_classes: int
    loss: Loss
    noise: Quadratic
    l2: float = 0.0
    fit_intercept: bool = True
    blur: float = 0.0
    anchor: float = 0.0

    # --- the data ---------------------------------------------------------------------------------------

    @cached_property
    def class_weights(self) -> Array:
        """``sum s`` over the rows of each class."""
        return np.bincount(self.labels, self.weights, self.n_classes).astype(np.float64)

    @property
    def weight(self) -> float:
        """F at zero: every row loses 1 against every other class."""
        return float((self.n_classes - 1) * self.class_weights.sum())

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        members = one_hot(self.labels, self.weights, self.n_classes)
        (sums,) = self.rows.joint_total(lambda begin, end: (self.rows.joint_combine(begin, end, members),))
        _, squares = self.rows.moments(self.weights)
        total_square(squares)
        return sums / self.class_weights[:, np.newaxis], squares

    @property
    def means(self) -> Array:
        """The weighted means of the classes."""
        return self._moments[0]

    @property
    def column_squares(self) -> Array:
        """``sum s x^2`` of every column."""
        return self._moments[1]

    @property
    def squares(self) -> float:
        """``sum s |x|^2``."""
        return float(self.column_squares.sum())

    @cached_property
    def stiffness(self) -> Array:
        """What ridge and anchor add to the Hessian of every pair, on the diagonal."""
        anchor = self.anchor * self._moments[1] / self.class_weights.sum()
        return np.append(self.l2 + anchor, self.anchor if self.fit_intercept else 0.0)

    @cached_property
    def radius(self) -> float:
        """The length of the longest row."""
        return float(np.sqrt(self.rows.squared_norms.max()))

    def with_noise(self, factor: float, blur: float = 0.0) -> "Multiclass":
        """Return the same problem with all standard deviations multiplied by ``factor``, and another blur."""
        noise = self.noise if factor == 1 else self.noise.scaled(factor)
        # With the sums over the rows that are known already: they depend on neither.
        other = object.__new__(Multiclass)
        other.__dict__.update(self.__dict__, noise=noise, blur=blur)
        return other

    def anchored(self, anchor: float) -> "Multiclass":
        """Return the same problem with another anchor."""
        other = self.with_noise(1.0, self.blur)
        other.__dict__["anchor"] = anchor
        other.__dict__.pop("stiffness", None)
        return other

    def only(self, index: Index) -> "Multiclass":
        """Return some of the rows, with what is known of all of them."""
        _ = self.stiffness, self.class_weights
        other = self.with_noise(1.0, self.blur)
        other.__dict__.update(rows=self.rows.take(index), labels=self.labels[index], weights=self.weights[index])
        return other

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "Multiclass":
        """Return about ``n_rows`` rows, of every class in proportion but some, reweighted to its own total."""
        chosen = []
        for c in range(self.n_classes):
            mine = np.flatnonzero((self.labels == c) & (self.weights > 0))
            share = max(min(len(mine), RARE), round(len(mine) * n_rows / self.rows.n_rows))
            chosen.append(mine[draw(len(mine), share, rng)])
        index: Index = np.sort(np.concatenate(chosen))
        labels, weights = self.labels[index], self.weights[index]
        weights = weights * (self.class_weights / np.bincount(labels, weights, self.n_classes))[labels]
        return replace(self, rows=self.rows.take(index), labels=labels, weights=weights)

    # --- values -----------------------------------------------------------------------------------------

    def point(self, W: Array, b: Array, scores: Array | None = None, stretch: float = 1.0) -> Point:
        """Evaluate F at ``(stretch W, b)``; reads X only where the scores ``X W'`` are not given."""
        if scores is None:
            scores = self.rows.scores(W)
        distances = self.distances(W)
        scales = self._scales(distances, stretch)
        at = (scores, stretch, b, scales)
        sums = self.rows.total(lambda begin, end: self._cells(begin, end, at), pointwise=True)
        return self._point(W, b, scores, stretch, distances, scales, sums)

    def again(self, point: Point) -> Point:
        """Evaluate F at a point of another objective on the same rows."""
        return self.point(point.W, point.b, point.scores, point.stretch)

    def between(self, start: Point, end: Point, t: float) -> Point:
        """Evaluate F between two points from their scores alone."""
        scores = (1 - t) * start.stretch * start.scores
        scores += (t * end.stretch) * end.scores
        return self.point((1 - t) * start.coef + t * end.coef, (1 - t) * start.b + t * end.b, scores)

    def distances(self, W: Array) -> Array:
        """Return ``a(w_c - w_k)`` for every pair of classes, without blur."""
        result = np.zeros((self.n_classes, self.n_classes))
        for c in range(self.n_classes - 1):
            apart = W[c + 1 :] - W[c]
            square = np.einsum("kj,kj->k", apart, self.noise.metric(apart))
            result[c, c + 1 :] = result[c + 1 :, c] = np.sqrt(square)
        return result

    def ridge(self, point: Point) -> float:
        """Return ``l2 sum_{c<k} ||w_c - w_k||^2``: twice what the ridge adds to F."""
        if not self.l2:
            return 0.0
        W = point.W - point.W.mean(axis=0)
        return self.l2 * self.n_classes * point.stretch**2 * float(np.vdot(W, W))

    def _empty(self) -> Array:
        return np.empty((self.rows.n_rows, self.n_classes))

    def _scales(self, distances: Array, stretch: float) -> Array:
        scales = np.hypot(stretch * distances, max(self.blur, TRACE))
        diagonal(scales)[:] = 1.0  # never used, never zero
        return scales

    def _cells(self, begin: int, end: int, at: tuple[Array, float, Array, Array], pulls: Pulls | None = None) -> Array:
        if self.loss.code >= 0:
            return _binding.cells(begin, end, self.loss.code, self.labels, self.weights, *at, *(pulls or ()))
        sums = np.zeros((self.n_classes, self.n_classes, len(Cells._fields)))
        for c, k, rows, z in self._slacks(begin, end, at):
            f, slope, curvature = self.loss.terms(z)
            s, scale = self.weights[rows], at[3][c, k]
            curve = s * curvature
            parts = (s @ f, s @ slope, s @ self.loss.conjugate(slope), curve.sum(), curve @ z, curve @ (z * z))
            sums[c, k] = parts
            if pulls is not None:
                pulls.residual[rows, k] = s * slope
                pulls.curve[rows, k] = curve / scale
                pulls.tilt[rows, k] = z
        if pulls is not None:
            rows, own = np.arange(begin, end), self.labels[begin:end]
            for part in pulls:
                part[rows, own] = 0.0
            pulls.residual[rows, own] = -pulls.residual[begin:end].sum(axis=1)
        return sums

    def _slacks(self, begin: int, end: int, at: tuple[Array, float, Array, Array]) -> Any:
        """Yield every cell of a block: its classes, its rows and their standardised slacks."""
        scores, stretch, b, scales = at
        for c in range(self.n_classes):
            rows = begin + np.flatnonzero(self.labels[begin:end] == c)
            for k in range(self.n_classes):
                if k != c:
                    margin = stretch * (scores[rows, c] - scores[rows, k]) + (b[c] - b[k])
                    yield c, k, rows, (1.0 - margin) / scales[c, k]

    def _point(
        self, W: Array, b: Array, scores: Array, stretch: float, distances: Array, scales: Array, sums: Array
    ) -> Point:
        cells = Cells(*np.ascontiguousarray(np.moveaxis(sums, -1, 0)))
        point = Point(W, b, scores, stretch, stretch * distances, scales, float(np.vdot(scales, cells.value)), cells)
        return point._replace(value=point.value + 0.5 * self.ridge(point)) if self.l2 else point

    def slopes(self, point: Point) -> Array:
        """Return ``alpha = f'(z)`` for every row and class, 0 for its own class."""
        alpha = np.zeros((self.rows.n_rows, self.n_classes))
        at = (point.scores, point.stretch, point.b, point.scales)
        for _, k, rows, z in self._slacks(0, self.rows.n_rows, at):
            alpha[rows, k] = self.loss.slope(z)
        return alpha

    def shrunk_conjugate(self, point: Point, factor: float) -> Array:
        """Return ``sum s f*(factor alpha)`` of every cell at the slopes of a point, or a little less."""
        at = (point.scores, point.stretch, point.b, point.scales)

        def compiled(begin: int, end: int) -> Array:
            return _binding.shrunk_cells(begin, end, self.loss.code, self.labels, self.weights, *at, factor)

        def written_in_numpy(begin: int, end: int) -> Array:
            sums = np.zeros((self.n_classes, self.n_classes))
            for c, k, rows, z in self._slacks(begin, end, at):
                sums[c, k] = self.weights[rows] @ self.loss.conjugate(factor * self.loss.slope(z))
            return sums

        result: Array = self.rows.total(written_in_numpy if self.loss.code < 0 else compiled, pointwise=True)
        return result

    # --- derivatives ------------------------------------------------------------------------------------

    def visit(self, W: Array, b: Array) -> "Expansion":
        """Return the expansion of F at ``(W, b)`` from one pass over X."""
        distances = self.distances(W)
        return self._expand(W, b, self._empty(), 1.0, distances, np.ascontiguousarray(W.T))

    def expand(self, point: Point) -> "Expansion":
        """Return the expansion of F at ``point``; reads X once, for the gradient."""
        return self._expand(point.W, point.b, point.scores, point.stretch, point.distances / point.stretch)

    def _expand(
        self, W: Array, b: Array, scores: Array, stretch: float, distances: Array, columns: Array | None = None
    ) -> "Expansion":
        scales = self._scales(distances, stretch)
        pulls = Pulls(self._empty(), self._empty(), self._empty())
        at = (scores, stretch, b, scales)

        def look(begin: int, end: int) -> tuple[Array, Array]:
            if columns is not None:
                self.rows.joint_scores(begin, end, columns, scores)
            sums = self._cells(begin, end, at, pulls)
            return sums, self.rows.joint_combine(begin, end, pulls.residual)

        sums, combined = self.rows.joint_total(look)
        return Expansion(self, self._point(W, b, scores, stretch, distances, scales, sums), pulls, combined)


def one_hot(labels: NDArray[Any], weights: Array | float, n_classes: int) -> Array:
    """Return the weight of every row in the column of its class, 0 in the others."""
    members = np.zeros((len(labels), n_classes))
    members[np.arange(len(labels)), labels] = weights
    return members


def laplacian(weights: Array) -> Array:
    """Return the Laplacian of a graph with these edge weights, a symmetric matrix with a zero diagonal."""
    result = -weights
    diagonal(result)[:] = weights.sum(axis=1)
    return result


@dataclass(eq=False)
class Expansion:
    """Gradient and Hessian at one point, in the unknowns.

    ``combined`` is ``R' X`` for the derivatives R of F by the scores.
    """

    objective: Multiclass
    point: Point
    pulls: Pulls
    combined: Array

    def __post_init__(self) -> None:
        cells, scales = self.point.cells, self.point.scales
        self.conjugate = cells.conjugate + cells.conjugate.T
        self.metric = self.objective.noise.metric(self.point.coef)
        # The noise pulls every pair together, by this much of their difference in the metric.
        self.tension = self.conjugate / scales

    @cached_property
    def full_gradient(self) -> Array:
        """The gradient by (w, b) of every class, of shape (C, n_columns + 1)."""
        objective, point = self.objective, self.point
        gradient = np.empty((objective.n_classes, objective.rows.n_columns + 1))
        gradient[:, :-1] = self.combined + laplacian(self.tension) @ self.metric
        if objective.l2:
            coef = point.coef
            gradient[:, :-1] += objective.l2 * objective.n_classes * (coef - coef.mean(axis=0))
        slope = point.cells.slope
        gradient[:, -1] = slope.sum(axis=0) - slope.sum(axis=1) if objective.fit_intercept else 0.0
        return gradient

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        return self.full_gradient[:-1].ravel()

    @property
    def unknowns(self) -> Array:
        """The unknowns of the point."""
        params = np.column_stack([self.point.coef, self.point.b])
        return np.asarray((params[:-1] - params[-1]).ravel())

    def unfold(self, unknowns: Array) -> Array:
        """Return (w, b) of every class, adding up to zero over the classes, from the unknowns."""
        full = np.zeros((self.objective.n_classes, self.objective.rows.n_columns + 1))
        full[:-1] = unknowns.reshape(self.objective.n_classes - 1, -1)
        return np.asarray(full - full.mean(axis=0))

    def combined_with(self, kept: Array) -> Array:
        """Return ``combined`` for the slopes of every cell times ``kept``; reads X once."""
        labels = self.objective.labels
        residual = self.pulls.residual * kept[labels]
        own = (np.arange(len(labels)), labels)
        residual[own] = 0.0
        residual[own] = -residual.sum(axis=1)
        rows = self.objective.rows
        return rows.joint_total(lambda begin, end: (rows.joint_combine(begin, end, residual),))[0]

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; reads X once."""
        objective, scales = self.objective, self.point.scales
        P = self.unfold(p)
        along = P[:, :-1] @ self.metric.T
        own = np.diag(along)
        # (w_c - w_k)' A (p_c - p_k), and from it the derivative of the scale along p.
        turn = own[:, np.newaxis] + own - along - along.T
        shifts = P[:, -1].copy() if objective.fit_intercept else np.zeros(objective.n_classes)
        out, turns = self._bend(np.ascontiguousarray(P[:, :-1].T), shifts, turn / scales)
        stiff = laplacian(self.tension) @ objective.noise.metric(P[:, :-1])
        out[:, :-1] += stiff + laplacian(turns / scales - self.tension * turn / scales**2) @ self.metric
        out += objective.n_classes * objective.stiffness * P
        if not objective.fit_intercept:
            out[:, -1] = P[:, -1] - P[-1, -1]
        return out[:-1].ravel()

    def mainly(self) -> "Expansion":
        """Return the same with only the rows that bend F, if these are few: its products and factors cost less."""
        if self.is_cheap:
            return self
        bends = self.pulls.curve.sum(axis=1)
        chosen = np.flatnonzero(bends >= HARDLY * bends.mean())
        if len(chosen) > FEW * len(bends):
            return self
        pulls = Pulls(*(part[chosen] for part in self.pulls))
        main = replace(self, objective=self.objective.only(chosen), pulls=pulls)
        main.gradient = self.gradient  # that of all rows, whatever is left out of products
        return main

    def tangent(self, noise: float, blur: float) -> Array:
        """Return how the gradient changes if the logarithms of noise and blur change by so much; reads X once.

        With the change ``a'`` of the scale, and that of ``grad a`` by the factor ``g``, it is
        ``a' (sum h z u) + k g grad a`` for the weights ``h = s f''/a`` of the rows.
        """
        objective, scales = self.objective, self.point.scales
        blurred = (objective.blur / scales) ** 2
        rate = scales * ((1 - blurred) * noise + blurred * blur)
        out, turns = self._bend(None, np.zeros(objective.n_classes), rate)
        factor = (1 + blurred) * noise - blurred * blur
        out[:, :-1] += laplacian(turns / scales + self.tension * factor) @ self.metric
        if not objective.fit_intercept:
            out[:, -1] = 0.0
        return out[:-1].ravel()

    def _bend(self, columns: Array | None, shifts: Array, eta: Array) -> tuple[Array, Array]:
        """Return ``sum h t (x, 1)`` by class and ``sum h t z`` by pair, with ``t = x.(p_c - p_k) + shift + z eta``."""
        objective, rows = self.objective, self.objective.rows
        eta = np.ascontiguousarray(eta)
        scores = objective._empty() if columns is not None else np.zeros((rows.n_rows, objective.n_classes))
        bent = objective._empty()

        def look(begin: int, end: int) -> tuple[Array, Array, Array]:
            if columns is not None:
                rows.joint_scores(begin, end, columns, scores)
            turns = _binding.bend(
                begin, end, objective.labels, scores, shifts, eta, self.pulls.curve, self.pulls.tilt, bent
            )
            return turns, bent[begin:end].sum(axis=0), rows.joint_combine(begin, end, bent)

        turns, shifted, combined = rows.joint_total(look)
        return np.column_stack([combined, shifted]), turns + turns.T

    # --- inverses ---------------------------------------------------------------------------------------

    @property
    def factor_cost(self) -> float:
        """What a factor costs, in units of :meth:`product` and a solution with the factor (measured)."""
        objective, width = self.objective, self.objective.rows.n_columns + 1
        n_unknowns = (objective.n_classes - 1) * width
        values = objective.n_classes * objective.rows.n_values
        if n_unknowns <= MAX_UNKNOWNS:
            return 1.0 + (values * width / 8 + n_unknowns**3 / 20) / (values + 3 * n_unknowns**2)
        used = min(1.0, 8.0 * width / objective.rows.n_rows)
        return 1.0 + used * values * width / 8 / (values + 3 * objective.n_classes * width**2)

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving (about ten milliseconds)."""
        objective, width = self.objective, self.objective.rows.n_columns + 1
        n_unknowns = (objective.n_classes - 1) * width
        return n_unknowns**3 + objective.rows.n_values * objective.n_classes * width < 4e7

    def hessian(self) -> Array:
        """Return the Hessian by the unknowns; only its lower triangle is meaningful."""
        objective, point = self.objective, self.point
        n, width = objective.n_classes, objective.rows.n_columns + 1
        grams = self._grams()
        hessian = np.zeros((n - 1, width, n - 1, width))
        for c in range(n - 1):
            for k in range(c + 1, n):
                gram = grams[c][k] + grams[k][c]
                block = self._pair(gram, self.metric[c] - self.metric[k], point.scales[c, k], self.tension[c, k])
                hessian[c, :, c, :] += block
                if k < n - 1:
                    hessian[k, :, k, :] += block
                    hessian[k, :, c, :] -= block
        for c in range(n - 1):
            for k in range(c + 1):
                diagonal(hessian[c, :, k, :])[:] += objective.stiffness * (n * (c == k) - 1)
        if not objective.fit_intercept:
            hessian[:, -1] = 0.0
            hessian[:, :, :, -1] = 0.0
            for c in range(n - 1):
                hessian[c, -1, c, -1] = 1.0
        return hessian.reshape((n - 1) * width, -1)

    def _pair(self, gram: Array, direction: Array, scale: float, tension: float) -> Array:
        """Return the Hessian of one pair from the Gram matrix of ``(x, z, 1)``."""
        d = self.objective.rows.n_columns
        towards = direction / scale
        block = np.empty((d + 1, d + 1))
        tilts, ones = gram[d], gram[d + 1]
        block[:d, :d] = gram[:d, :d] + np.outer(tilts[:d], towards)
        # The curvature of the scale, (A - grad a grad a') k / a, joins the terms in grad a grad a'.
        block[:d, :d] += np.outer(towards, tilts[:d] + (tilts[d] - tension) * towards)
        self.objective.noise.add_metric(tension, block[:d, :d])
        block[d, :d] = block[:d, d] = ones[:d] + ones[d] * towards
        block[d, d] = ones[d + 1]
        return block

    def _grams(self) -> list[Array]:
        """Return for every cell the sum of ``h (x, z, 1)(x, z, 1)'``, with ``-z`` where the class is the later one."""
        objective = self.objective
        n, d = objective.n_classes, objective.rows.n_columns

        def of_class(c: int, _: int) -> Array:
            mine = np.flatnonzero(objective.labels == c)
            result = np.zeros((n, d + 2, d + 2))
            step = max(256, (4 << 20) // (8 * (d + 2)))
            for first in range(0, len(mine), step):
                rows = mine[first : first + step]
                curve, tilt = self.pulls.curve[rows], self.pulls.tilt[rows]
                X = objective.rows.X[rows]
                piece = np.empty((len(rows), d + 2))
                piece[:, :d] = X.toarray() if objective.rows.sparse else X
                piece[:, d:] = 1.0
                buffer = np.empty_like(piece)
                for k in range(n):
                    used = np.flatnonzero(curve[:, k])
                    chosen: Any = used if len(used) < 0.8 * len(rows) else slice(None)
                    root = np.sqrt(curve[chosen, k])
                    part = buffer[: len(root)]
                    np.multiply(piece[chosen], root[:, np.newaxis], out=part)
                    part[:, d] = root * tilt[chosen, k] * (1.0 if c < k else -1.0)
                    result[k] += part.T @ part
            return result

        return list(objective.rows.map(of_class, range(n), range(n)))
