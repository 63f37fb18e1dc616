"""Samples with error bars: every sample has its own noise covariance.

::

    F(W, b) = sum_i s_i sum_{k != y_i} a_i f(m / a_i) + (l2/2) sum_{c<k} ||w_c - w_k||^2
    m = 1 - u.x_i - (b_c - b_k),    u = w_c - w_k,    c = y_i,    a_i^2 = u' (Sigma_i + N) u + blur^2

with the covariance ``Sigma_i`` of the error bars of the sample and the noise of the model, ``u' N u = a(u)^2``. With
two classes it is the binary problem in ``w = w_1 - w_0``. For the rows of class c compared with class k, with
``z = m/a``, ``q = (Sigma_i + N) u / a``, ``h = s f''/a`` and ``t = s (f - z f')/a``::

    gradient   sum -s f' x + t a q          Hessian   sum h (x + z q)(x + z q)' + t (Sigma_i + N - q q')

Its only smoothing is blur.

Conventions
-----------
x, W, b, cell : as in :mod:`gaussguru._guru.problems.multiclass`; arrays of cells have shape (C, C, ...)
scale, slack : row vectors of (C - 1, n_rows), a and z against the other classes, in ascending order
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gaussguru._guru.certificates.dual_point import Ray
from gaussguru._guru.problems.pairs import (
    Flow,
    PairLocal,
    PairPoint,
    PairProblem,
    joined,
    mixed,
    pairs_of,
    symmetric,
    unfold,
)
from gaussguru._native import _binding
from gaussguru._rows.rows import Block, RowVector, dense, piece_rows
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import Array, Index, Intercept, diagonal, mirrored
from gaussguru._utils.types import ErrorBars, Values
from gaussguru.losses import Loss


@dataclass(eq=False)
class MeasuredPoint(PairPoint):
    """A point with F and its gradient; computing F alone would save little.

    Attributes
    ----------
    forces : (C, C, n_columns), ``sum t Sigma_i u - s f' x`` of every cell
    variances : (C, C, n_columns), ``sum t e^2`` of every pair if loops are compiled, else None
    squares : (C, C), ``u' N u + blur^2`` of every cell
    scale, slack : row vectors of (C - 1, n_rows)
    """

    forces: Array
    variances: Array | None
    squares: Array
    scale: RowVector
    slack: RowVector


@dataclass(frozen=True, eq=False)
class MeasuredPairs(PairProblem[MeasuredPoint]):
    """Rows with error bars, and optionally the noise of a model; see the module for the formulas."""

    is_linear: ClassVar[bool] = False

    @cached_property
    def task(self) -> "Task":
        """The arguments of all tasks; loops are compiled for losses with a code and dense standard deviations."""
        errors = self.rows.errors
        groups = () if errors is None else errors.groups
        compiled = self.loss.code >= 0 and any(form.is_dense_diagonal for _, form in groups)
        return Task(self.n_classes, self.loss, compiled)

    def constant_slopes(self) -> Array:
        """Return zeros, (n_rows,) for two classes, else (n_rows, C)."""
        return np.zeros(self.rows.n_rows) if self.n_classes == 2 else super().constant_slopes()

    # --- values and derivatives ---------------------------------------------------------------------------

    def point(self, x: Array) -> MeasuredPoint:
        """Evaluate F and its gradient at x; one pass over X."""
        return self.at(*unfold(x, self.n_classes), self.task)

    def at(self, W: Array, b: Array, task: "Task", *before: RowVector, step: Array | None = None) -> MeasuredPoint:
        """Evaluate F and its gradient; one pass over X.

        If ``before``, scale and slack at ``W, b`` minus ``step``, is given, slacks are updated from it.
        """
        d, squares = self.rows.n_columns, self.squares(W)
        self.rows.count("value")
        parts, cells = self.rows.both(_visit, *before, task=task, W=W, b=b, squares=squares, step=step)
        pull, noise = cells[..., :d], cells[..., d:-4]
        value, mass, tension, gain = cells[..., -4:].transpose(2, 0, 1)
        forces = noise * (W[:, np.newaxis] - W) - pull
        variances = noise + noise.swapaxes(0, 1) if task.compiled else None
        total = float(value.sum()) + self.ridge(W)
        return MeasuredPoint(
            W, b, total, mass, gain, tension, forces, variances, squares, *self.rows.unzipped(parts, 2)
        )

    def expand(self, point: MeasuredPoint) -> "MeasuredLocal":
        """Return the local model of a point; no pass over X."""
        return MeasuredLocal(self, point)

    def again(self, point: MeasuredPoint) -> MeasuredPoint:
        """Evaluate F at a point of the same rows with other smoothing, or other noise of the model.

        A change of less than 1e-12 of the least squared scale is ignored.
        """
        change = np.abs(self.squares(point.W) - point.squares).max()
        if change and change > 1e-12 * min(self.rows.collected(_least, point.scale, pointwise=True)) ** 2:
            return self.point(point.x)
        return point

    def mixture(self, parts: list[tuple[float, MeasuredPoint]]) -> MeasuredPoint:
        """Evaluate F at a linear combination of points; one pass over X."""
        return self.at(*mixed(parts), self.task)

    def value_of(self, x: Array, scores: Array, covariances: Array) -> float:
        """Return F at x from given scores of all rows and the covariances of the scores under the errors.

        Scores have shape (n_rows, C), without intercepts, covariances (n_rows, C, C). With two classes the second
        axis has length 1: the score of the difference.
        """
        W, b = unfold(x, self.n_classes)
        if self.n_classes == 2:
            halves = np.array([-0.5, 0.5])
            scores, covariances = scores * halves, covariances * np.multiply.outer(halves, halves)
        index, labels = np.arange(len(scores)), self.rows.labels
        margins = (scores + b)[index, labels, np.newaxis] - (scores + b)
        with_label = covariances[index, labels]
        variances = with_label[index, labels, np.newaxis] + np.einsum("ikk->ik", covariances) - 2 * with_label
        a = np.sqrt(np.maximum(variances, 0.0) + self.squares(W)[labels])
        losses = a * self.loss.terms((1.0 - margins) / a)[0]
        losses[index, labels] = 0.0
        return float(self.rows.weights @ losses.sum(axis=1)) + self.ridge(W)

    def slopes(self, point: MeasuredPoint) -> Array:
        """Return ``f'(z)``, (n_rows,) for two classes, else (n_rows, C) with 0 for the class of the row."""
        C, labels = self.n_classes, self.rows.labels
        others = np.concatenate([self.loss.slope(slack) for slack in point.slack], axis=1)
        if C == 2:
            return np.asarray(others[0])
        alpha = np.zeros((len(labels), C))
        alpha[labels[:, np.newaxis] != np.arange(C)] = others.T.ravel()
        return alpha

    def classifier(self, point: MeasuredPoint) -> tuple[Array, Intercept]:
        """Return coefficients and intercepts; for two classes a vector and a number."""
        W, b = point.W, point.b
        return (W[1] - W[0], float(b[1] - b[0])) if self.n_classes == 2 else (W, b)


class Room(NamedTuple):
    """Sums over every cell of the room ``r = s (f*(c alpha) - c f*(alpha))`` gained by shrinking alpha by c.

    Attributes
    ----------
    free : (C, C), ``sum r``
    bend : (C, C), ``sum sqrt(r s f*)``
    roots : (C, C, ...), ``sum r Sigma^(1/2)``; None if the errors were not read
    """

    free: Array
    bend: Array
    roots: Array | None


@dataclass(eq=False)
class MeasuredLocal(PairLocal[MeasuredPoint]):
    """Value, gradient and Hessian at one point."""

    problem: MeasuredPairs
    point: MeasuredPoint
    _rooms: dict[tuple[float, bool], Room] = field(default_factory=dict)

    def pull(self, kept: Array) -> Array:
        """Return the gradient by W without ridge and noise of the model, with the slopes of every cell times kept."""
        cells = kept[:, :, np.newaxis] * self.point.forces
        return np.asarray(cells.sum(axis=1) - cells.sum(axis=0))

    @property
    def noisy(self) -> float:
        """``sum t (u' N u + blur^2)``, the part of F due to the noise of the model and to blur.

        Error bars are excluded: if few samples have large ones, the others still have kinks.
        """
        return float(np.vdot(self.point.tension, self.point.squares))

    @property
    def least_scale(self) -> float:
        """The harmonic mean of the scales, because the Hessian weight of a row is proportional to 1/a."""
        rows = self.problem.rows
        inverses = rows.total(_inverses, self.point.scale, pointwise=True)
        return float((self.problem.n_classes - 1) * rows.n_rows / inverses)

    @property
    def spread(self) -> float:
        """The median over pairs of the standard deviation of the margins."""
        rows = self.problem.rows
        return float(np.median(rows.std(rows.each(_margins, self.point.scale, self.point.slack, pointwise=True))))

    # --- the Hessian --------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Array]:
        """Yield the Hessian of every pair, from its Gram matrix; ``variances`` are added to compiled ones."""
        task = self.problem.task
        # With more columns BLAS is faster (measured: half as fast at 100 columns, level at 250, 1.25 times at 400).
        task = task._replace(compiled=task.compiled and self.problem.rows.n_columns < 256)
        at = self.point.scale, self.point.slack
        grams = self.problem.rows.total(_hessian, *at, task=task, W=self.point.W, metric=self.metric)
        for gram, pair in zip(grams, pairs_of(task.n_classes), strict=True):
            block = mirrored(gram)
            if task.compiled and self.point.variances is not None:
                diagonal(block)[:-1] += self.point.variances[pair]
            yield block

    def bend(self, P: Array, shifts: Array, rise: Array) -> tuple[Array, Array]:
        """Return the change of the gradient, (C, n_columns + 1), and of the tensions, (C, C); one pass over X."""
        problem, point, step = self.problem, self.point, joined(P, shifts)
        at = point.scale, point.slack
        out, turns = problem.rows.total(_product, *at, task=problem.task, W=point.W, P=step, rise=rise)
        if self.point.variances is not None:
            out[:, :-1] += self.point.variances.sum(axis=1) * P - np.einsum("ckj,kj->cj", self.point.variances, P)
        return out, turns

    # --- certificates -------------------------------------------------------------------------------------

    def displaced(self, P: Array, shifts: Array) -> "MeasuredLocal":
        """Return the local model after a step; slacks are updated, not recomputed, to save digits; one pass over X."""
        problem, point, step = self.problem, self.point, joined(P, shifts)
        task = problem.task._replace(compiled=False)
        return MeasuredLocal(
            problem, problem.at(point.W + P, point.b + shifts, task, point.scale, point.slack, step=step)
        )

    def rays(self, ray: Callable[..., Ray], kept: Array, edges: tuple[Index, ...], flow: Flow) -> Iterator[Ray]:
        """Yield rays whose room is relative to the flow of each pair (demand 1), first from the model's noise alone.

        ``q_i = (Sigma_i + N) u / a_i`` is in the noise set of a row, so at the optimum the pull of the noise balances
        that of the rows. The remainder, the gradient, flows through the pairs. Shrinking all alpha to ``c alpha``
        frees ``f*(c alpha) - c f*(alpha)`` of every row, which is room for the flow.
        """
        n = len(edges[0])
        # The noise of the model alone may have enough room, which saves the pass over the roots of the errors. A
        # compiled loop computes all sums in the same time.
        problem, errors = self.problem, self.problem.rows.errors
        compiled = problem.task.compiled and errors is not None and errors.is_dense_diagonal
        for rooted in (False, True) if problem.shared.is_full and not compiled else (True,):
            yield ray([1.0] * n, [0.0] * n, partial(self._fits, kept, edges, flow, rooted), twice=False)

    def _fits(self, kept: Array, edges: tuple[Index, ...], flow: Flow, rooted: bool, factor: float) -> Iterator[float]:
        """Yield the ratio of room to flow of every pair when all slopes shrink by ``factor``.

        In the direction p a row has the freed room ``r |p|``, and across u also the curvature of its noise set:
        ``c f* (|p| - p.q) >= c f* |p'|^2 / (2 |p|)`` for the part p' of p across u in the metric of the row. Their sum
        is at least ``sqrt(2 r c f*) |p'|``, also in the metric N. So flow across u uses room in proportion to its
        square.
        """
        noise, room = self.problem.shared, self._room(factor, rooted)
        bend = math.sqrt(factor) * symmetric(kept * room.bend)
        for c, k in zip(*edges, strict=True):
            taken = partial(self._taken, kept, room, (c, k))
            (v, error), u = flow(c, k), self.point.W[c] - self.point.W[k]
            least = taken(v)
            if noise.is_full and bend[c, k] > 0 and u.any():
                u = u / np.abs(u).max()  # only the direction counts; squares of a short u would underflow
                metric = noise.metric(u)
                along = metric * (float(v @ u) / float(metric @ u))
                across = min(noise.polar(v - along) / bend[c, k], 1e100)
                least = min(least, taken(along) + 0.5 * across**2)
            crowded = least + taken(error)
            yield 1 / crowded if crowded > 0 else np.inf

    def _taken(self, kept: Array, room: Room, pair: tuple[int, int], v: Array) -> float:
        """Return the fraction of the room of a pair, of error bars and noise of the model, that a flow takes."""
        if not v.any():
            return 0.0
        noise, errors, capacity = self.problem.shared, self.problem.rows.errors, 0.0
        for cell in (pair, pair[::-1]):
            free, lengths = kept[cell] * room.free[cell], []
            if room.roots is not None and errors is not None:
                shared_lengths = 0.0 if noise.std is None else free * noise.std
                lengths.append(errors.length(v, kept[cell] * room.roots[cell], shared_lengths))
            if free > 0 and (room.roots is None or noise.std is None):
                lengths.append(noise.polar(v) / free)
            # Variances add up: sqrt(A + B) is the largest of cos sqrt(A) + sin sqrt(B).
            capacity += math.hypot(*(1 / length if length > 0 else np.inf for length in lengths))
        return 1 / capacity if capacity > 0 else np.inf

    def _room(self, factor: float, rooted: bool) -> Room:
        """Return the room that shrinking all slopes frees; ``rooted`` sums the roots of the errors too."""
        if (factor, rooted) not in self._rooms:
            rows = self.problem.rows
            if rooted:
                rows.count("errors")
            sums, roots = rows.total(_room, self.point.slack, task=self.problem.task, factor=factor, rooted=rooted)
            self._rooms[factor, rooted] = Room(sums[..., 0], sums[..., 1], roots if rooted else None)
        return self._rooms[factor, rooted]


# --- tasks ---------------------------------------------------------------------------------------------------


class ComparedRows(NamedTuple):
    """Rows of class c, compared with class k.

    ``other`` is the index of k among the classes other than c, ``numbers`` the indices of the rows in the block. ``X``,
    ``errors`` and ``weights`` are those of the rows or, for a ``compiled`` loop, of the whole block.
    """

    compiled: bool
    c: int
    k: int
    other: int
    numbers: Index
    X: Values
    errors: ErrorBars
    weights: Array


class Task(NamedTuple):
    """Arguments of all tasks: number of classes, loss, and whether loops over independent errors are compiled."""

    n_classes: int
    loss: Loss
    compiled: bool

    def parts(self, block: Block) -> Iterator[ComparedRows]:
        """Yield the rows of a block by form of errors, by class, and by the class compared with.

        A compiled loop gets all rows at once, other code gets pieces that fit into cache. With two classes a compiled
        loop gets the rows of both, as class 1, and returns sums over class 1 and over class 0.
        """
        assert block.errors is not None
        for among, errors in block.errors.groups:
            compiled = self.compiled and errors.is_dense_diagonal
            rows = _everyone(block.n_rows) if among is None else among
            both_classes, step = compiled and self.n_classes == 2, max(1, len(rows))
            if not compiled:
                step = max(errors.least_rows, piece_rows(block.X.shape[1] + errors.width))
            # These errors hold only the rows of ``among``, so they are indexed by position in it.
            numbered = among is not None and not errors.is_dense_diagonal
            for c in (1,) if both_classes else range(self.n_classes):
                members = _everyone(len(rows)) if both_classes else np.flatnonzero(block.labels[rows] == c)
                for picked in (members[first : first + step] for first in range(0, len(members), step)):
                    index = rows[picked]
                    given: tuple[Any, ...] = (block.view, errors, block.signed_weight)
                    if not compiled:
                        picked_errors = errors.take(_where(picked if numbered else index))
                        given = (block.X[_where(index)], picked_errors, block.weights[index])
                    for other, k in enumerate(k for k in range(self.n_classes) if k != c):
                        yield ComparedRows(compiled, c, k, other, index, *given)

    def weigh(self, s: Array, a: Array, z: Array) -> tuple[Array, Array, Array, Array]:
        """Return ``s f``, ``s f'``, ``s f''/a`` and ``s f*/a``."""
        f, slope, curvature = self.loss.terms(z)
        return s * f, s * slope, s * curvature / a, s * np.maximum(0.0, f - z * slope) / a


@lru_cache(maxsize=8)
def _everyone(n: int) -> Index:
    """Return the indices 0 ... n - 1, cached because most blocks have equally many rows."""
    return np.arange(n)


def _where(index: Index) -> Index | slice:
    """Return a slice if the indices are adjacent, to avoid a copy; rows with large errors are sorted by class."""
    return slice(index[0], index[-1] + 1) if index[-1] - index[0] < len(index) else index


def _least(block: Block, scale: Array) -> float:
    return float(scale.min(initial=np.inf))


def _inverses(block: Block, scale: Array) -> float:
    return float((1 / scale).sum())


def _margins(block: Block, scale: Array, slack: Array) -> Array:
    """Return ``a z`` against the other classes, (n_rows, C - 1)."""
    return (scale * slack).T


def _visit(
    block: Block, *before: Array, task: Task, W: Array, b: Array, squares: Array, step: Array | None
) -> tuple[tuple[Array, Array], Array]:
    """Return a and z of every row, and sums over cells, (C, C, 2 d + 4).

    A cell has the pull ``sum s f' x``, the noise ``sum t e^2``, and the sums of ``s a f``, ``s f'``, t and ``s f``.
    Where no compiled loop is used, ``sum t Sigma_i u`` is subtracted from the pull instead, and the noise is 0. With
    ``step``, slacks are those of ``before`` minus the change of the scores.
    """
    C, d = task.n_classes, block.X.shape[1]
    scale, slack = np.empty((2, C - 1, block.n_rows))
    cells = np.zeros((C, C, 2 * d + 4))
    for compiled, c, k, other, index, X, errors, s in task.parts(block):
        u, shift = W[c] - W[k], float(b[c] - b[k])
        if compiled:
            arguments = (errors.std, s, u, shift, float(squares[c, k]), scale[other], slack[other])
            sums: Any = _binding.measured(task.loss.code, X, index, *arguments)
        else:
            seen = errors.seen(u)
            a = np.sqrt(seen.between(0, 0) + squares[c, k])
            if step is None:
                z = (1.0 - (X @ u + shift)) / a
            else:
                a0, z0 = (part[other, index] for part in before)
                z = (a0 * z0 - (X @ (step[c, :-1] - step[k, :-1]) + (step[c, -1] - step[k, -1]))) / a
            gain, pulled, _, tension = task.weigh(s, a, z)
            scale[other, index], slack[other, index] = a, z
            totals = [gain @ a, pulled.sum(), tension.sum(), gain.sum()]
            sums = [np.concatenate([X.T @ pulled - seen.pull(tension), np.zeros(d), totals])]
        for cell, of_cell in zip(((c, k), (k, c)), sums, strict=False):
            cells[cell] += of_cell
    return (scale, slack), cells


def _hessian(block: Block, scale: Array, slack: Array, task: Task, W: Array, metric: Array) -> Array:
    """Return the lower triangles of the Hessians of the pairs, (C (C - 1) / 2, d + 1, d + 1), without ``t N``.

    Compiled loops leave out ``t Sigma_i``, too.
    """
    d, number_of = block.X.shape[1], {pair: number for number, pair in enumerate(pairs_of(task.n_classes))}
    result = np.zeros((len(number_of), d + 1, d + 1))
    for compiled, c, k, other, index, X, errors, s in task.parts(block):
        u, shared, whole = W[c] - W[k], metric[c] - metric[k], result[number_of[min(c, k), max(c, k)]]
        if compiled:
            at = (scale[other], slack[other])
            whole += _binding.measured_gram(task.loss.code, X, index, errors.std, s, u, shared, *at)
            continue
        a, z = scale[other, index], slack[other, index]
        _, _, curve, tension = task.weigh(s, a, z)
        q = (errors.times(u) + shared) / a[:, np.newaxis]
        row = np.column_stack([dense(X) + z[:, np.newaxis] * q, np.ones(len(q))])
        row *= np.sqrt(curve)[:, np.newaxis]
        whole += row.T @ row
        q *= np.sqrt(tension)[:, np.newaxis]
        whole[:-1, :-1] -= q.T @ q
        errors.add(tension, whole[:-1, :-1])
    return result


def _product(
    block: Block, scale: Array, slack: Array, task: Task, W: Array, P: Array, rise: Array
) -> tuple[Array, Array]:
    """Return the Hessian times a step, (C, d + 1), without the noise of the model, and the change of tensions, (C, C).

    Compiled loops leave out ``t Sigma_i`` times the step.
    """
    d, out, turns = block.X.shape[1], np.zeros_like(P), np.zeros_like(rise)
    for compiled, c, k, other, index, X, errors, s in task.parts(block):
        u, step = W[c] - W[k], P[c] - P[k]
        if compiled:
            arguments = (errors.std, s, u, np.ascontiguousarray(step[:-1]), step[-1], float(rise[c, k]))
            sums = _binding.measured_product(task.loss.code, X, index, *arguments, scale[other], slack[other])
            change, turned = np.append(sums[:d] + sums[d:-2] * u, sums[-2]), sums[-1]
        else:
            a, z = scale[other, index], slack[other, index]
            _, _, curve, tension = task.weigh(s, a, z)
            seen = errors.seen(u, step[:-1])
            along = (seen.between(0, 1) + rise[c, k]) / a
            bent = curve * (X @ step[:-1] + step[-1] + z * along)
            turn = (bent * z - tension * along) / a
            pulled = X.T @ bent + seen.pull(turn, tension)
            change, turned = np.append(pulled, bent.sum()), turn.sum()
        turns[c, k] += turned
        out[c] += change
        out[k] -= change
    return out, turns


def _room(block: Block, slack: Array, task: Task, factor: float, rooted: bool) -> tuple[Array, Array]:
    """Return the sums of :class:`Room`: ``free`` and ``bend``, (C, C, 2), and if ``rooted`` the roots."""
    C, loss, every = task.n_classes, task.loss, block.errors
    assert every is not None
    shape = every.take(slice(0)).roots(np.empty(0)).shape if rooted else (0,)
    sums, roots = np.zeros((C, C, 2)), np.zeros((C, C, *shape))
    for compiled, c, k, other, index, _, errors, s in task.parts(block):
        if compiled:
            arguments = (index, errors.std if rooted else None, s, slack[other], factor)
            for cell, of_cell in zip(((c, k), (k, c)), _binding.measured_room(loss.code, *arguments), strict=True):
                sums[cell] += of_cell[-2:]
                roots[cell] += every.rooted(of_cell[:-2]) if rooted else 0.0
            continue
        slope = loss.slope(slack[other, index])
        full = loss.conjugate(slope)
        free = s * np.maximum(0.0, loss.conjugate(factor * slope) - factor * full)
        sums[c, k] += free.sum(), np.sqrt(free * s * full).sum()
        if rooted:
            roots[c, k] += errors.roots(free)
    return sums, roots
