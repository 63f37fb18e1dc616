"""Samples with error bars: every sample has a noise of its own.

::

    F(W, b) = sum_i s_i sum_{k != y_i} a_i f(m / a_i) + (l2/2) sum_{c<k} ||w_c - w_k||^2
    m = 1 - u.x_i - (b_c - b_k),    u = w_c - w_k,    c = y_i,    a_i^2 = u' (Sigma_i + N) u + blur^2

with the covariance ``Sigma_i`` of the error bars of the sample and the noise of the model, ``u' N u = a(u)^2``. With
two classes it is the binary problem in ``w = w_1 - w_0``. For the rows of a class against another, with ``z = m/a``,
``q = (Sigma_i + N) u / a``, ``h = s f''/a`` and ``t = s (f - z f')/a``::

    gradient   sum -s f' x + t a q          Hessian   sum h (x + z q)(x + z q)' + t (Sigma_i + N - q q')

Its only smoothing is the blur.

Conventions
-----------
x, W, b, cell : as in :mod:`gaussguru._problems.multiclass`; arrays of cells have shape (C, C, ...)
scale, slack : row vectors of (C - 1, n_rows), a and z against each other class, in their order
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gaussguru._data.rows import Block, Rows, RowVector, piece_rows
from gaussguru._linalg import EPS, Array, Index, diagonal, mirrored, norm
from gaussguru._native import _binding
from gaussguru._problems.binary import CONTRACTION
from gaussguru._problems.pairs import PairLocal, PairProblem, mixed, pair_rounding, pairs_of, unfold
from gaussguru._problems.smoothing import Smoothing
from gaussguru.certificates.dual_point import balance, route
from gaussguru.errors import Errors
from gaussguru.losses import Loss

# From this many columns on BLAS forms the Hessian faster (measured: half as fast at 100, level at 250, 1.25 at 400).
BLAS_COLUMNS = 256
# Multiply-adds of a Hessian, and unknowns, that are not worth saving.
CHEAP, CHEAP_UNKNOWNS = 1e7, 200
# How far all slopes shrink to make room for a dual point, tightest first.
SHRINKS = (0.99, 0.9, 0.5, 0.1)
# The fraction of the rows that may have scales beside which blur is not negligible.
QUANTILE = 0.01


@dataclass(frozen=True, eq=False)
class Measured(PairProblem):
    """Rows with error bars, and perhaps the noise of a model; see the module for the formulas."""

    @cached_property
    def _task(self) -> "Task":
        return Task(self.n_classes, self.loss, is_compiled(self.rows, self.loss))

    def constant_slopes(self) -> Array:
        """Return 0 for every row, or every row and class."""
        return np.zeros(self.rows.n_rows) if self.n_classes == 2 else super().constant_slopes()

    # --- values and derivatives ---------------------------------------------------------------------------

    def visit(self, x: Array, *, curved: bool = False) -> "Local":
        """Return value and gradient at x; one pass over X."""
        C, d = self.n_classes, self.rows.n_columns
        W, b = unfold(x, C)
        self.rows.count("value")
        own = np.array([[self._own_variance(W[c] - W[k]) for k in range(C)] for c in range(C)])
        parts, cells = self.rows.both(_visit, task=self._task, W=W, b=b, own=own)
        scale, slack = (list(part) for part in zip(*parts, strict=True))
        pull, noise, sums = cells[..., :d], cells[..., d : 2 * d], np.moveaxis(cells[..., 2 * d :], -1, 0)
        variances = None
        if self._task.compiled:
            variances, noise = noise, noise * (W[:, np.newaxis] - W)
        for c in range(C):
            noise[c] += sums[2, c][:, np.newaxis] * self.metric(W[c] - W)
        value = float(sums[0].sum()) + self.ridge(W)
        return Local(self, W, b, value, sums[1], sums[2], sums[3], pull, noise, variances, scale, slack)

    def _own_variance(self, u: Array) -> float:
        return float(u @ self.metric(u[np.newaxis])[0]) + self.blur**2

    def point(self, x: Array) -> "Local":
        """Return value and gradient at x: what is known of every row depends on its errors, so nothing is saved."""
        return self.visit(x)

    def expand(self, point: "Local") -> "Local":
        """Return the point: it has its gradient."""
        return point

    def again(self, point: "Local") -> "Local":
        """Return value and gradient at a point of the same rows with other smoothing, or other noise of the model.

        Beside scales a million times as large, blur changes no digit.
        """
        largest = max(self.smoothing.blur, point.problem.smoothing.blur)
        same = point.problem.smoothing == self.smoothing or largest <= 1e-6 * min(float(a.min()) for a in point.scale)
        return point if same and point.problem.noise is self.noise else self.visit(point.x)

    def mixture(self, parts: list[tuple[float, "Local"]]) -> "Local":
        """Return value and gradient at a linear combination of points."""
        return self.visit(mixed([(share, point.x) for share, point in parts]))

    def slopes(self, point: "Local") -> Array:
        """Return ``f'(z)`` of every sample, and with more than two classes of every class."""
        C, labels = self.n_classes, self.rows.labels
        others = np.concatenate([self.loss.slope(slack) for slack in point.slack], axis=1)
        if C == 2:
            return np.asarray(others[0])
        alpha = np.zeros((len(labels), C))
        alpha[labels[:, np.newaxis] != np.arange(C)] = others.T.ravel()
        return alpha

    def classifier(self, point: "Local") -> tuple[Array, Any]:
        """Return coefficients and intercepts: of two classes a vector and a number."""
        W, b = point.W, point.b
        return (W[1] - W[0], float(b[1] - b[0])) if self.n_classes == 2 else (W, b)


class Room(NamedTuple):
    """What becomes free of ``s f*`` in every cell when all slopes shrink by ``factor``.

    ``free`` has the sums of it, ``bend`` those of its geometric mean with ``s f*``, and ``roots`` those of it times
    roots of Sigma, unless there was no pass over the errors.
    """

    factor: float
    free: Array
    bend: Array
    roots: list[list[Any]] | None


@dataclass(eq=False)
class Local(PairLocal):
    """Value, gradient and Hessian at one point.

    Of every cell: ``mass = sum s f'``, ``tension = sum t``, ``gain = sum s f``, ``pull = sum s f' x``, what the noise
    pulls with, ``sum t (Sigma_i + N) u``, and ``variances = sum t e^2`` where a compiled loop found them.
    """

    problem: Measured
    W: Array
    b: Array
    value: float
    mass: Array
    tension: Array
    gain: Array
    pull: Array
    noise: Array
    variances: Array | None
    scale: RowVector
    slack: RowVector
    contraction: ClassVar[float] = CONTRACTION
    refreshes: ClassVar[bool] = True

    @property
    def point(self) -> "Local":
        """The point itself."""
        return self

    @cached_property
    def force(self) -> Array:
        """The gradient by W without the ridge."""
        cells = self.noise - self.pull
        return np.asarray(cells.sum(axis=1) - cells.sum(axis=0))

    @property
    def noisy(self) -> float:
        """``sum t blur^2``, the part of F that the blur makes: all of it where samples are exact."""
        return self.problem.smoothing.blur**2 * float(self.tension.sum())

    @property
    def least_scale(self) -> float:
        """The scale that all but a hundredth of the rows have."""
        return float(np.quantile(np.concatenate(self.scale, axis=1), QUANTILE))

    @property
    def spread(self) -> float:
        """The standard deviation of the margins of a pair."""
        margins = np.concatenate([a * z for a, z in zip(self.scale, self.slack, strict=True)], axis=1)
        return float(np.median(np.std(margins, axis=1)))

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def hessian_cost(self) -> float:
        """What the Hessian costs, in units of :meth:`product` (measured)."""
        return 1.0 + self.problem.rows.n_columns / 8

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving."""
        rows = self.problem.rows
        work = rows.n_rows * rows.n_columns**2 * (self.problem.n_classes - 1)
        return work < CHEAP and len(self.gradient) < CHEAP_UNKNOWNS

    def hessian(self) -> Array:
        """Return the Hessian."""
        problem = self.problem
        d, C = problem.rows.n_columns, problem.n_classes
        problem.rows.count("hessian")
        by_blas = self.variances is None or d >= BLAS_COLUMNS
        grams = problem.rows.total(
            _hessian_blas if by_blas else _hessian, self.scale, self.slack, task=problem._task, W=self.W, own=self._own
        )
        return self.assembled(self._pair(gram_of, c, k) for gram_of, (c, k) in zip(grams, pairs_of(C), strict=True))

    def _pair(self, gram_of_pair: Array, c: int, k: int) -> Array:
        """Return the Hessian of one pair from its Gram matrix; a compiled one has no diagonal part."""
        variances = self.variances if self.problem.rows.n_columns < BLAS_COLUMNS else None
        block = gram_of_pair if variances is None else mirrored(gram_of_pair)
        if self.problem.noise is not None:
            self.problem.noise.add_metric(self.tension[c, k] + self.tension[k, c], block[:-1, :-1])
        if variances is not None:
            diagonal(block[:-1, :-1])[:] += variances[c, k] + variances[k, c]
        return block

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; one pass over X."""
        problem, C = self.problem, self.problem.n_classes
        P, shifts = unfold(p, C)
        moved = shifts if problem.fit_intercept else np.zeros(C)
        rise = np.einsum("ckj,ckj->ck", self._own, P[:, np.newaxis] - P)
        out = self._bend(np.column_stack([P, moved]), rise)
        for c in range(C):
            step = P[c] - P
            still = self.tension[c][:, np.newaxis] * problem.metric(step)
            if self.variances is not None:
                still += self.variances[c] * step
            out[c, :-1] += still.sum(axis=0)
            out[:, :-1] -= still
        return self.folded(out, P, shifts)

    @cached_property
    def _own(self) -> Array:
        """``N (w_c - w_k)`` of every pair."""
        return np.array([self.problem.metric(w - self.W) for w in self.W])

    def tangent(self, less: Smoothing) -> Array:
        """Return how the gradient changes on the way to less smoothing, to first order; one pass over X."""
        problem, C = self.problem, self.problem.n_classes
        rise = problem.smoothing.towards(less).blur * problem.smoothing.blur**2
        out = self._bend(np.zeros((C, problem.rows.n_columns + 1)), np.full((C, C), rise))
        return self.folded(out, np.zeros((C, 1)), np.zeros(C))

    def _bend(self, P: Array, rise: Array) -> Array:
        """Return what moving scores by ``P`` and squared scales by ``2 rise`` and errors does to the gradient."""
        problem = self.problem
        problem.rows.count("product")
        return np.asarray(
            problem.rows.total(
                _product, self.scale, self.slack, task=problem._task, W=self.W, P=P, rise=rise, own=self._own
            )
        )

    # --- certificates -------------------------------------------------------------------------------------

    def dual(self, used: Array, primal: float, target: float, *, thorough: bool) -> float:
        """Return a dual value with the pairs that are ``used``.

        ``q_i = (Sigma_i + N) u / a_i`` is in the noise set of a row, so the noise's own pull carries away at the
        optimum what the rows pull. The rest, the gradient, flows through the pairs; when all alpha shrink to
        ``c alpha``, ``f*(c alpha) - c f*(alpha)`` of every row becomes free, and with it room for the flow. That is
        concave in c and 0 at 1, so one c tells enough.
        """
        problem, best = self.problem, 0.0
        kept = balance(np.where(used, self.mass, 0.0)) if problem.fit_intercept else 1.0 * used
        if kept is None:
            return 0.0
        cells = kept[:, :, np.newaxis] * (self.pull - self.noise)
        rest, gain, mass = cells.sum(axis=1) - cells.sum(axis=0), kept * self.gain, float(np.vdot(kept, self.mass))
        flow, unrouted = route(rest, gain + gain.T)
        rounding = pair_rounding(self.mass, problem.rows, thorough=thorough)

        def bounded(c: int, k: int) -> tuple[Array, Array]:
            return flow(c, k), rounding(c, k) + unrouted.get((c, k), 0.0)

        if problem.l2:
            best = mass - norm(rest.ravel()) ** 2 / (2 * problem.l2 * problem.n_classes)
        # The noise of the model may be room enough, which saves a pass over the errors.
        direct = problem.noise is None or np.any(problem.noise.std == 0)
        for rooted in (True,) if direct else (False, True):
            for factor in SHRINKS if thorough else SHRINKS[:1]:
                if primal - best <= target:
                    return best
                best = max(best, (1 - self._shrink(kept, bounded, self._room(factor, rooted))) * mass)
        return best

    def _shrink(self, kept: Array, flow: Any, room: Room) -> float:
        """Return how far all slopes must shrink for every pair to have room; 1 where they cannot.

        A row has room for ``r |p|`` in the direction p by what becomes free, r, and across u by how its noise set
        bends: ``c f* (|p| - p.q) >= c f* |p'|^2 / (2 |p|)`` for the part p' of p across u in its own metric. Together
        that is at least ``sqrt(2 r c f*) |p'|``, in the metric N too. So what flows across u takes no more of r than
        its square.
        """
        problem, noise, crowded = self.problem, self.problem.noise, 0.0
        for c, k in zip(*np.nonzero(np.triu(kept + kept.T, 1)), strict=True):
            v, error = flow(c, k)
            u = self.W[c] - self.W[k]
            extra = _crowding(error, kept, room, problem, c, k)
            least = _crowding(v, kept, room, problem, c, k)
            bend = math.sqrt(room.factor) * (kept[c, k] * room.bend[c, k] + kept[k, c] * room.bend[k, c])
            if noise is not None and np.all(noise.std is None or noise.std > 0) and bend > 0 and u.any():
                own = noise.metric(u)
                along = own * (float(v @ u) / float(own @ u))
                straight = _crowding(along, kept, room, problem, c, k)
                across = min(noise.polar(v - along) / bend, 1e100)
                least = min(least, straight + 0.5 * across**2)
            crowded = max(crowded, least + extra)
        shrink = (1 - room.factor) * crowded + 4 * EPS
        return shrink if shrink <= 1 - room.factor else 1.0

    @cached_property
    def _rooms(self) -> dict[tuple[float, bool], Room]:
        return {}

    def _room(self, factor: float, rooted: bool) -> Room:
        """Return what becomes free when all slopes shrink, with or without a pass over the errors."""
        if (factor, rooted) not in self._rooms:
            problem, C = self.problem, self.problem.n_classes
            if rooted:
                problem.rows.count("errors")
            sums, *roots = problem.rows.total(_room, self.slack, task=problem._task, factor=factor, rooted=rooted)
            by_cell: list[list[Any]] | None = None
            if rooted:
                by_cell = [[0.0] * C for _ in range(C)]
                for (c, k), root in zip(problem._task.cells, roots, strict=True):
                    by_cell[c][k] = root
            self._rooms[factor, rooted] = Room(factor, sums[..., 0], sums[..., 1], by_cell)
        return self._rooms[factor, rooted]


def _crowding(v: Array, kept: Array, room: Room, problem: Measured, c: int, k: int) -> float:
    """Return how much of the room of a pair a flow takes, of error bars and of the noise of the model."""
    if not v.any():
        return 0.0
    noise, errors, capacity = problem.noise, problem.rows.errors, 0.0
    std = None if noise is None else noise.std
    for cell in ((c, k), (k, c)):
        free, lengths = kept[cell] * room.free[cell], []
        if room.roots is not None and errors is not None:
            own = 0.0 if std is None else free * std
            lengths.append(errors.length(v, kept[cell] * room.roots[cell[0]][cell[1]], own))
        if noise is not None and free > 0 and (room.roots is None or std is None):
            lengths.append(noise.polar(v) / free)
        # Variances add up: sqrt(A + B) is the largest of cos sqrt(A) + sin sqrt(B).
        capacity += math.hypot(*(1 / length if length > 0 else np.inf for length in lengths))
    return 1 / capacity if capacity > 0 else np.inf


# --- tasks ---------------------------------------------------------------------------------------------------


def is_compiled(rows: Rows, loss: Loss) -> bool:
    """Return whether there is a compiled loop for the loss and this form of error bars."""
    return loss.code >= 0 and rows.errors is not None and rows.errors.is_dense_diagonal


class Task(NamedTuple):
    """What every task knows: the number of classes, the loss, and whether loops are compiled."""

    n_classes: int
    loss: Loss
    compiled: bool

    @property
    def cells(self) -> list[tuple[int, int]]:
        """All cells."""
        return [(c, k) for c in range(self.n_classes) for k in self.others(c)]

    def others(self, c: int) -> list[int]:
        """Return the classes but c."""
        return [k for k in range(self.n_classes) if k != c]

    def groups(self, block: Block) -> Iterator[tuple[int, Index]]:
        """Yield classes and their rows; a compiled loop is given the rows of two classes together, as class 1."""
        if self.compiled and self.n_classes == 2:
            yield 1, np.arange(block.n_rows, dtype=np.int64)
            return
        step = piece_rows(block.X.shape[1])
        for c in range(self.n_classes):
            mine = np.flatnonzero(block.labels == c)
            if self.compiled:
                step = max(1, len(mine))
            for first in range(0, len(mine), step):
                yield c, mine[first : first + step]


def _visit(block: Block, task: Task, W: Array, b: Array, own: Array) -> tuple[tuple[Array, Array], Array]:
    """Return a and z of every row; and of every cell pull, noise and the sums of ``s a f``, ``s f'``, t and ``s f``."""
    C, d, errors = task.n_classes, block.X.shape[1], _errors_of(block)
    scale, slack = np.empty((C - 1, block.n_rows)), np.empty((C - 1, block.n_rows))
    cells = np.zeros((C, C, 2 * d + 4))
    for c, index in task.groups(block):
        others = task.others(c)
        if task.compiled:
            for j, k in enumerate(others):
                sides = _binding.measured(
                    task.loss.code, block.view, index, errors.std, block.signed_weight, W[c] - W[k],
                    float(b[c] - b[k]), float(own[c, k]), scale[j], slack[j],
                )  # fmt: skip
                cells[c, k] += sides[0]
                cells[k, c] += sides[1]
            continue
        X, some, s = block.X[index], errors.take(index), block.weights[index, np.newaxis]
        U = W[c] - W[others]
        a = np.sqrt(some.variances(U) + own[c, others])
        z = (1.0 - (X @ U.T + (b[c] - b[others]))) / a
        f, slope, _ = task.loss.terms(z)
        pulled, tension = s * slope, s * np.maximum(0.0, f - z * slope) / a
        scale[:, index], slack[:, index] = a.T, z.T
        noise = [some.pull(tension[:, j], u) for j, u in enumerate(U)]
        sums = [part.sum(axis=0) for part in (s * f * a, pulled, tension, s * f)]
        cells[c, others] += np.column_stack([np.asarray((X.T @ pulled).T), noise, *sums])
    return (scale, slack), cells


def _errors_of(block: Block) -> Any:
    errors: Errors | None = block.errors
    assert errors is not None
    return errors


class _Rows(NamedTuple):
    """For some rows: ``s f''/a`` and ``s (f - z f')/a``, with a and z."""

    scale: Array
    slack: Array
    curve: Array
    tension: Array

    @classmethod
    def of(cls, block: Block, loss: Loss, scale: Array, slack: Array, index: Index) -> "_Rows":
        a, z, s = scale[index], slack[index], block.weights[index]
        f, slope, curvature = loss.terms(z)
        return cls(a, z, s * curvature / a, s * np.maximum(0.0, f - z * slope) / a)


def _hessian(block: Block, scale: Array, slack: Array, task: Task, W: Array, own: Array) -> Array:
    """Return the Gram matrices of the pairs without their diagonal parts, lower triangles."""
    width, place = block.X.shape[1] + 1, {pair: number for number, pair in enumerate(pairs_of(task.n_classes))}
    result = np.zeros((len(place), width, width))
    for c, index in task.groups(block):
        for j, k in enumerate(task.others(c)):
            result[place[min(c, k), max(c, k)]] += _binding.measured_gram(
                task.loss.code, block.view, index, _errors_of(block).std, block.signed_weight, W[c] - W[k], own[c, k],
                scale[j], slack[j],
            )  # fmt: skip
    return result


def _hessian_blas(block: Block, scale: Array, slack: Array, task: Task, W: Array, own: Array) -> Array:
    """Return the Hessians of the pairs without the part ``t N``."""
    d, place = block.X.shape[1], {pair: number for number, pair in enumerate(pairs_of(task.n_classes))}
    result = np.zeros((len(place), d + 1, d + 1))
    for c, index in task._replace(compiled=False).groups(block):
        X, errors = block.dense(index), _errors_of(block).take(index)
        for j, k in enumerate(task.others(c)):
            rows = _Rows.of(block, task.loss, scale[j], slack[j], index)
            q = (errors.times(W[c] - W[k]) + own[c, k]) / rows.scale[:, np.newaxis]
            row = np.empty((len(q), d + 1))
            np.multiply(q, rows.slack[:, np.newaxis], out=row[:, :-1])
            row[:, :-1] += X
            row[:, -1] = 1.0
            row *= np.sqrt(rows.curve)[:, np.newaxis]
            whole = result[place[min(c, k), max(c, k)]]
            whole += row.T @ row
            q *= np.sqrt(rows.tension)[:, np.newaxis]
            whole[:-1, :-1] -= q.T @ q
            errors.add(rows.tension, whole[:-1, :-1])
    return result


def _product(
    block: Block, scale: Array, slack: Array, task: Task, W: Array, P: Array, rise: Array, own: Array
) -> Array:
    """Return the Hessian times a step, by class, without what the noise of the model adds to it.

    A compiled loop also leaves out what the errors add to the step itself.
    """
    d, out, errors = block.X.shape[1], np.zeros_like(P), _errors_of(block)
    for c, index in task.groups(block):
        for j, k in enumerate(task.others(c)):
            u, step = W[c] - W[k], P[c] - P[k]
            if task.compiled:
                sums = _binding.measured_product(
                    task.loss.code, block.view, index, errors.std, block.signed_weight, u,
                    np.ascontiguousarray(step[:-1]), step[-1], float(rise[c, k]), scale[j], slack[j],
                )  # fmt: skip
                part = np.append(sums[:d] + sums[d : 2 * d] * u + sums[-1] * own[c, k], sums[-2])
            else:
                X, some = block.X[index], errors.take(index)
                rows = _Rows.of(block, task.loss, scale[j], slack[j], index)
                along = (some.between(u, step[:-1]) + rise[c, k]) / rows.scale
                bent = rows.curve * (X @ step[:-1] + step[-1] + rows.slack * along)
                turned = (bent * rows.slack - rows.tension * along) / rows.scale
                pulled = X.T @ bent + some.pull(turned, u) + turned.sum() * own[c, k]
                part = np.append(pulled + some.pull(rows.tension, step[:-1]), bent.sum())
            out[c] += part
            out[k] -= part
    return out


def _room(block: Block, slack: Array, task: Task, factor: float, rooted: bool) -> tuple[Any, ...]:
    """Return the sums of :class:`Room` of every cell, and with ``rooted`` the roots of every cell."""
    C, errors = task.n_classes, _errors_of(block)
    sums, roots = np.zeros((C, C, 2)), dict.fromkeys(task.cells if rooted else [], 0.0)
    for c, index in task.groups(block):
        for j, k in enumerate(task.others(c)):
            if task.compiled:
                std = errors.std if rooted else None
                sides = _binding.measured_room(task.loss.code, index, std, block.signed_weight, slack[j], factor)
                for cell, side in zip(((c, k), (k, c)), sides, strict=True):
                    sums[cell] += side[-2:]
                    if rooted:
                        roots[cell] = roots[cell] + side[:-2]
                continue
            z, s = slack[j, index], block.weights[index]
            slope = task.loss.slope(z)
            shrunk, full = task.loss.conjugate(factor * slope), task.loss.conjugate(slope)
            free = s * np.maximum(0.0, shrunk - factor * full)
            sums[c, k] += free.sum(), np.sqrt(free * s * full).sum()
            if rooted:
                roots[c, k] = roots[c, k] + errors.take(index).roots(free)
    return sums, *roots.values()
