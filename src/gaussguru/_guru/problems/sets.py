"""Support vector machines whose samples an adversary may move within convex sets of their own.

The problem of :mod:`gaussguru._guru.problems.ball` with the support function of a set of displacements in place of the
length times the reach::

    t_ik = 1 - (w_y - w_k).x_i - (b_y - b_k) + h_i(w_y - w_k),         h_i(u) = max of v.u over the set of sample i

=============  ===============================================  =================================================
set            h_i(u)                                           smooth h_i(u)
=============  ===============================================  =================================================
ellipsoid      sqrt(u' Sigma_i u)                               sqrt(u' Sigma_i u + (eps r_i)^2)
deletion       sum of the K largest positive z_j = u_j x_ij     max of p.z + mu H(p), 0 <= p <= 1, sum p <= K
=============  ===============================================  =================================================

``H`` is the entropy of independent choices, of features that are not 0: ``p_j = 1/(1 + exp((theta - z_j)/mu))``, where
``theta >= 0`` keeps the sum. The gradient of a smooth h is a point of the set, so slopes with smoothing are a dual
point here, too. A smooth h is homogeneous in u and the smoothing: smoothing adds ``h - (gradient of h).u``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gaussguru._errors import Errors
from gaussguru._guru.problems.ball import FASTEST, Ball, BallLocal, BallPoint
from gaussguru._guru.problems.smoothing import SPEED, Smoothing
from gaussguru._rows.rows import Block, RowVector, piece_rows
from gaussguru._utils.linalg import EPS, Array, Index, diagonal

# Steps of bisection and Newton for theta, and the error of a sum of p that is left to a factor.
STEPS, EXACT = 60, 1e-13


class Support(ABC):
    """The smooth support functions of some rows near one u."""

    @abstractmethod
    def along(self, p: Array) -> Array:
        """Return the derivatives along p, (n_rows,)."""

    @abstractmethod
    def pull(self, t: Array) -> Array:
        """Return ``sum t`` times the gradients, (n_columns,)."""

    @abstractmethod
    def gradients(self) -> Array:
        """Return the gradients, (n_rows, n_columns)."""

    @abstractmethod
    def bend(self, t: Array, p: Array) -> Array:
        """Return ``sum t`` times the Hessians times p, (n_columns,)."""

    @abstractmethod
    def add(self, t: Array, out: Array) -> None:
        """Add ``sum t`` times the Hessians to a square array."""


class RowSets(ABC):
    """The sets of some rows."""

    @abstractmethod
    def support(self, u: Array) -> tuple[Array, Array]:
        """Return h(u) and a number from which derivatives are computed fast, each (n_rows,)."""

    @abstractmethod
    def near(self, u: Array, state: Array) -> Support:
        """Return the support functions near u; ``state`` is that number."""


class Sets(ABC):
    """A kind of sets."""

    # Smoothing falls by at most this factor at a time.
    fastest: ClassVar[float] = FASTEST

    @abstractmethod
    def of(self, block: Block, index: Index, reach: Array, eps: float) -> RowSets:
        """Return the sets of some rows of a block, with their r and ``eps``."""

    def pieces(self, block: Block, members: Index) -> Iterator[Index]:
        """Yield pieces of rows that fit in cache."""
        step = piece_rows(block.X.shape[1])
        yield from (members[first : first + step] for first in range(0, len(members), step))


class Sight(NamedTuple):
    """A place W with the numbers of its support functions, a row vector of (n_rows, C)."""

    W: Array
    states: RowVector


@dataclass(frozen=True, eq=False, kw_only=True)
class Moved(Ball):
    """Rows with sets; ``reach`` has the size of each set, which divides the smoothing among them."""

    sets: Sets

    @property
    def _shared(self) -> dict[str, Any]:
        return {"sets": self.sets, "eps": self.eps}

    def seen(self, W: Array) -> tuple[Sight, RowVector]:
        """Return the view of a place and h of all rows and classes; one pass over X."""
        self.rows.count("value")
        parts = self.rows.each(_support, self.row_reach, W=W, **self._shared)
        reached, states = self.rows.unzipped(parts, 2)
        return Sight(W, states), reached

    def turned(self, sight: Sight, P: Array) -> RowVector:
        """Return the change of h for a step P of W; one pass over X."""
        return self.rows.each(_along, self.row_reach, sight.states, W=sight.W, P=P, **self._shared)

    def shifts(self, sight: Sight) -> tuple[tuple[RowVector, ...], Callable[..., Array]]:
        """Return row vectors, and a function of a block and these that returns gradients of h of some rows."""
        return (self.row_reach, sight.states), partial(_gradients, W=sight.W, **self._shared)

    def pull(self, residual: RowVector, sight: Sight) -> tuple[Array, Array]:
        """Return the derivatives by ``(w, b)`` and their part through h, (C, n_columns); two passes over X."""
        (mass, _), rows = self.cells(residual), self.rows
        rows.count("value")
        forces = rows.total(_forces, residual, self.row_reach, sight.states, W=sight.W, **self._shared)
        balance = self.fit_intercept * (mass.sum(axis=0) - mass.sum(axis=1))
        return np.column_stack([rows.scatter(residual) + forces, balance]), forces

    def local(self, point: BallPoint, gradient: Array, cells: Array) -> "MovedLocal":
        """Return the local model with this gradient by ``(w, b)``."""
        return MovedLocal(self, point, gradient, cells)


@dataclass(eq=False)
class MovedLocal(BallLocal):
    """Value, gradient and Hessian at one point; ``cells`` has the part of the gradient through h, (C, n_columns)."""

    problem: Moved

    def less_smoothing(self, last: Smoothing, target: float) -> Smoothing:
        """Return the next smoothing of the continuation."""
        return self._lowered(target, self.problem.sets.fastest)

    @property
    def _added_reach(self) -> float:
        point = self.point
        whole = self.problem.rows.total(_whole, point.residual, point.reached, pointwise=True)
        return max(0.0, float(whole) - float(np.vdot(self.cells, point.W)))

    def tangent(self, less: Smoothing) -> Array:
        """Return the first-order change of the gradient when smoothing falls to ``less``; three passes over X.

        A smooth h is homogeneous in W and the smoothing, so its gradient changes like that for a step -W.
        """
        problem, point = self.problem, self.point
        reached = problem.turned(point.sight, point.W)
        result, _ = problem.pull(self._bent(point.scores, point.b, reached, 1.0), point.sight)
        result[:, :-1] += self._bent_reach(point.W)
        return np.asarray(-problem.smoothing.towards(less).blur * result[:-1].ravel())

    @property
    def _arguments(self) -> tuple[RowVector, RowVector, RowVector]:
        return self.point.residual, self.problem.row_reach, self.point.sight.states

    def _bends(self) -> Array:
        problem = self.problem
        return np.asarray(problem.rows.total(_bends, *self._arguments, W=self.point.W, **problem._shared))

    def _bent_reach(self, P: Array) -> Array:
        problem = self.problem
        return np.asarray(problem.rows.total(_bent, *self._arguments, W=self.point.W, P=P, **problem._shared))


# --- ellipsoids ----------------------------------------------------------------------------------------------


class Ellipsoids(Sets):
    """Ellipsoids from the error bars of the rows."""

    def of(self, block: Block, index: Index, reach: Array, eps: float) -> RowSets:
        """Return the ellipsoids of some rows."""
        assert block.errors is not None
        return EllipsoidRows(block.errors.take(_where(index)), eps * reach[index])

    def pieces(self, block: Block, members: Index) -> Iterator[Index]:
        """Yield pieces of rows that fit in cache with their errors."""
        errors = block.errors
        assert errors is not None
        step = max(errors.least_rows, piece_rows(block.X.shape[1] + errors.width))
        yield from (members[first : first + step] for first in range(0, len(members), step))


@dataclass
class EllipsoidRows(RowSets):
    """Ellipsoids of some rows, with the smoothing of their lengths."""

    errors: Errors
    blur: Array

    def support(self, u: Array) -> tuple[Array, Array]:
        """Return ``sqrt(u' Sigma u + blur^2)``, twice."""
        length = np.sqrt(np.maximum(self.errors.variances(u[np.newaxis])[:, 0], 0.0) + self.blur**2)
        return length, length

    def near(self, u: Array, state: Array) -> Support:
        """Return the lengths near u."""
        return EllipsoidSupport(self.errors, u, np.where(state > 0, state, 1.0))  # of an exact sample all is 0


@dataclass
class EllipsoidSupport(Support):
    """Lengths near u, of gradient ``q = Sigma u / length``."""

    errors: Errors
    u: Array
    length: Array

    def along(self, p: Array) -> Array:
        """Return ``q.p``."""
        return np.asarray(self.errors.between(self.u, p) / self.length)

    def pull(self, t: Array) -> Array:
        """Return ``sum t q``."""
        return np.asarray(self.errors.pull(t / self.length, self.u))

    def gradients(self) -> Array:
        """Return q."""
        return np.asarray(self.errors.times(self.u) / self.length[:, np.newaxis])

    def bend(self, t: Array, p: Array) -> Array:
        """Return ``sum t (Sigma p - q (q.p)) / length``."""
        seen, t = self.errors.seen(self.u, p), t / self.length
        return np.asarray(seen.pull(-t * (seen.between(0, 1) / self.length / self.length), t))

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum t (Sigma - q q') / length``."""
        t = t / self.length
        self.errors.add(t, out)
        root = self.gradients() * np.sqrt(t)[:, np.newaxis]
        out -= root.T @ root


# --- deletions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deletions(Sets):
    """Deletions of up to ``n_drop`` features of a row."""

    # Most rows have ties at the optimum (measured on a9a: 10 takes 170 steps or more instead of 60).
    fastest = SPEED
    n_drop: int

    def of(self, block: Block, index: Index, reach: Array, eps: float) -> RowSets:
        """Return the values of some rows that may be deleted."""
        X = block.X[_where(index)]
        if not sp.issparse(X):
            return DeletedRows(np.asarray(X, dtype=np.float64), None, X.shape[1], self.n_drop, eps)
        counts = np.diff(X.indptr)
        taken = np.arange(max(1, int(counts.max(initial=0)))) < counts[:, np.newaxis]
        values, columns = np.zeros(taken.shape), np.zeros(taken.shape, dtype=np.intp)
        values[taken], columns[taken] = X.data, X.indices
        return DeletedRows(values, columns, X.shape[1], self.n_drop, eps)

    def pieces(self, block: Block, members: Index) -> Iterator[Index]:
        """Yield pieces of rows that fit in cache, of sparse ones those with about as many values."""
        if not sp.issparse(block.X):
            yield from super().pieces(block, members)
            return
        counts = np.diff(block.X.indptr)[members]
        order, first = np.argsort(-counts, kind="stable"), 0
        while first < len(order):
            last = first + piece_rows(max(1, int(counts[order[first]])))
            yield np.sort(members[order[first:last]])
            first = last


@dataclass
class DeletedRows(RowSets):
    """Values of some rows, (n_rows, n_values), with their columns; None if all rows have every column."""

    values: Array
    columns: Index | None
    n_columns: int
    n_drop: int
    blur: float

    def terms(self, u: Array) -> Array:
        """Return ``x_j u_j``, (n_rows, n_values), -inf where x is 0: deleting it changes nothing."""
        z = self.values * self.at(u)
        z[self.values == 0] = -np.inf
        return np.asarray(z)

    def at(self, u: Array) -> Array:
        """Return the entries of a vector that belong to the values."""
        return u if self.columns is None else u[self.columns]

    def collect(self, parts: Array) -> Array:
        """Return the sums of an array (n_rows, n_values) by column."""
        if self.columns is None:
            return np.asarray(parts.sum(axis=0))
        return np.asarray(np.bincount(self.columns.ravel(), parts.ravel(), self.n_columns), dtype=np.float64)

    def spread(self, parts: Array, index: Index | slice = slice(None)) -> Array:
        """Return an array (n_rows, n_values) of some rows as dense rows."""
        if self.columns is None:
            return parts
        rows = np.zeros((len(parts), self.n_columns))
        np.add.at(rows, (np.arange(len(parts))[:, np.newaxis], self.columns[index]), parts)
        return rows

    def support(self, u: Array) -> tuple[Array, Array]:
        """Return the smooth sum of the largest terms, and theta."""
        z = self.terms(u)
        least, theta = min(self.n_drop, z.shape[1]), np.zeros(len(z))
        if not self.blur:
            largest = -np.partition(-z, least - 1, axis=1)[:, :least]
            return np.asarray(np.maximum(largest, 0.0).sum(axis=1)), theta
        z /= self.blur
        if least < z.shape[1]:
            theta = thresholds(z, least)
        # K theta + sum log(1 + exp(z - theta)): the dual of the maximum over p, also where theta is not exact.
        soft = np.logaddexp(0.0, z - theta[:, np.newaxis]).sum(axis=1)
        return np.asarray(self.blur * (self.n_drop * theta + soft)), self.blur * theta

    def near(self, u: Array, state: Array) -> Support:
        """Return the sums near u."""
        p = chosen((self.terms(u) - state[:, np.newaxis]) / self.blur)
        total = p.sum(axis=1)
        p *= np.minimum(1.0, self.n_drop / np.maximum(total, 1e-300))[:, np.newaxis]
        return DeletedSupport(self, p, state > 0)


@dataclass
class DeletedSupport(Support):
    """Sums of the largest terms near u, with the shares p that are deleted; ``tight`` where they have the sum K."""

    rows: DeletedRows
    p: Array
    tight: NDArray[np.bool_]

    @property
    def curves(self) -> tuple[Array, Array]:
        """``q = p (1 - p) / mu``, (n_rows, n_values), and 1 over its sums where p has the sum K, else 0."""
        q = self.p * (1.0 - self.p) / self.rows.blur
        total = q.sum(axis=1)
        return q, np.divide(1.0, total, out=np.zeros_like(total), where=self.tight & (total > 0))

    def along(self, p: Array) -> Array:
        """Return ``sum_j p_j x_j`` times the entry of the step."""
        return np.asarray((self.p * self.rows.values * self.rows.at(p)).sum(axis=1))

    def pull(self, t: Array) -> Array:
        """Return ``sum t p x``."""
        return self.rows.collect(t[:, np.newaxis] * self.p * self.rows.values)

    def gradients(self) -> Array:
        """Return ``p x``."""
        return self.rows.spread(self.p * self.rows.values)

    def bend(self, t: Array, p: Array) -> Array:
        """Return ``sum t x (q y - q (q.y) / sum q)`` for the change y of the terms."""
        (q, inverse), x = self.curves, self.rows.values
        y = x * self.rows.at(p)
        y -= ((q * y).sum(axis=1) * inverse)[:, np.newaxis]
        return self.rows.collect(t[:, np.newaxis] * x * q * y)

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum t (diag(q x^2) - (q x)(q x)' / sum q)``."""
        (q, inverse), x = self.curves, self.rows.values
        q *= x
        diagonal(out)[:] += self.rows.collect(t[:, np.newaxis] * q * x)
        bent = np.flatnonzero(t * inverse * np.square(q).sum(axis=1))
        root = self.rows.spread(q[bent] * np.sqrt(t * inverse)[bent, np.newaxis], bent)
        out -= root.T @ root


def chosen(z: Array) -> Array:
    """Return ``1 / (1 + exp(-z))``."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-z)))


def thresholds(z: Array, k: int) -> Array:
    """Return the least ``theta >= 0`` with ``sum_j chosen(z_j - theta) <= k`` of every row, by Newton and bisection."""
    # Between the terms number k and k + 1, or a little beyond them.
    ordered, width = np.partition(-z, (k - 1, k), axis=1), z.shape[1]
    high, low = np.maximum(-ordered[:, k - 1], 0.0), np.maximum(-ordered[:, k], 0.0)
    theta = np.zeros(len(z))
    # The least theta is 0 where the terms beyond the first k are so low that they add nothing.
    rows = np.flatnonzero(chosen(z).sum(axis=1) > k)
    low, high = np.maximum(low[rows] - np.log(k + 1.0), 0.0), high[rows] + np.log(width)
    theta[rows] = 0.5 * (low + high)
    for _ in range(STEPS):
        if not len(rows):
            break
        p = chosen(z[rows] - theta[rows, np.newaxis])
        excess, slope = p.sum(axis=1) - k, (p * (1.0 - p)).sum(axis=1)
        # A rounding of theta changes the sum by the slope times it.
        open_ = np.abs(excess) > EXACT * k + 4 * EPS * theta[rows] * slope
        rows, low, high, excess, slope = (part[open_] for part in (rows, low, high, excess, slope))
        low, high = np.where(excess > 0, theta[rows], low), np.where(excess > 0, high, theta[rows])
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            step = theta[rows] + excess / slope
        theta[rows] = np.where((step > low) & (step < high), step, 0.5 * (low + high))
    return theta


# --- tasks ---------------------------------------------------------------------------------------------------


def _where(index: Index) -> Index | slice:
    """Return a slice if the indices are adjacent, to avoid a copy."""
    return slice(index[0], index[-1] + 1) if len(index) and index[-1] - index[0] < len(index) else index


def _compared(
    block: Block, sets: Sets, reach: Array, eps: float, n_classes: int, needed: Array | None = None
) -> Iterator[tuple[int, int, Index, RowSets]]:
    """Yield pieces of the rows of a class, their sets, and a class that they are compared with; only those needed."""
    for c in range(n_classes):
        members = block.labels == c
        if needed is not None:
            members &= needed
        for index in sets.pieces(block, np.flatnonzero(members)):
            rows = sets.of(block, index, reach, eps)
            yield from ((c, k, index, rows) for k in range(n_classes) if k != c)


def _pulled(
    block: Block, vectors: tuple[Array, ...], W: Array, sets: Sets, eps: float
) -> Iterator[tuple[int, int, Array, Support]]:
    """Yield the slopes of rows that have any, or changes of slopes, and their support functions."""
    residual, reach, states = vectors
    needed = np.abs(residual).max(axis=1) > EPS * block.weights
    for c, k, index, rows in _compared(block, sets, reach, eps, len(W), needed):
        t = residual[index, k]
        if t.any():
            yield c, k, t, rows.near(W[c] - W[k], states[index, k])


def _support(block: Block, reach: Array, W: Array, sets: Sets, eps: float) -> tuple[Array, Array]:
    reached, states = np.zeros((2, block.n_rows, len(W)))
    for c, k, index, rows in _compared(block, sets, reach, eps, len(W)):
        reached[index, k], states[index, k] = rows.support(W[c] - W[k])
    return reached, states


def _along(block: Block, reach: Array, states: Array, W: Array, P: Array, sets: Sets, eps: float) -> Array:
    changes = np.zeros((block.n_rows, len(W)))
    for c, k, index, rows in _compared(block, sets, reach, eps, len(W)):
        changes[index, k] = rows.near(W[c] - W[k], states[index, k]).along(P[c] - P[k])
    return changes


def _gradients(
    block: Block, index: Index, c: int, rivals: Index, reach: Array, states: Array, W: Array, sets: Sets, eps: float
) -> Array:
    rows = sets.of(block, index, reach, eps)
    each = [rows.near(W[c] - W[k], states[index, k]).gradients() for k in rivals]
    return np.stack(each, axis=1)


def _forces(block: Block, *vectors: Array, W: Array, **shared: Any) -> Array:
    forces = np.zeros_like(W)
    for c, k, t, near in _pulled(block, vectors, W, **shared):
        pull = near.pull(t)
        forces[c] += pull
        forces[k] -= pull
    return forces


def _whole(block: Block, residual: Array, reached: Array) -> float:
    """Return ``sum s alpha h``."""
    return float(np.vdot(residual, reached))


def _bends(block: Block, *vectors: Array, W: Array, **shared: Any) -> Array:
    C, d = W.shape
    bends, out = np.zeros((C, d, C, d)), np.empty((d, d))
    for c, k, t, near in _pulled(block, vectors, W, **shared):
        out[:] = 0.0
        near.add(t, out)
        bends[c, :, k] += out
        bends[k, :, c] += out
    return bends


def _bent(block: Block, *vectors: Array, W: Array, P: Array, **shared: Any) -> Array:
    changes = np.zeros_like(W)
    for c, k, t, near in _pulled(block, vectors, W, **shared):
        change = near.bend(t, P[c] - P[k])
        changes[c] += change
        changes[k] -= change
    return changes
