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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gaussguru._errors.forms import Errors
from gaussguru._guru.problems.ball import FASTEST, Ball, BallLocal, BallPoint, curvature
from gaussguru._guru.problems.smoothing import SPEED, Smoothing
from gaussguru._native import _binding
from gaussguru._rows.rows import Block, RowVector, piece_rows
from gaussguru._utils.linalg import EPS, Array, Index


class Sets(ABC):
    """A kind of sets: tasks for a block of rows, at some W and with the ``eps`` of the smoothing.

    ``reach`` has the r of the rows, ``states`` a number for every row and class from which derivatives are computed.
    """

    # Smoothing falls by at most this factor at a time.
    fastest: ClassVar[float] = FASTEST

    @abstractmethod
    def support(
        self, block: Block, reach: Array, guess: Array | None = None, *, W: Array, eps: float
    ) -> tuple[Array, Array]:
        """Return h of all rows and classes, and the states, of which there may be a guess."""

    @abstractmethod
    def along(self, block: Block, reach: Array, states: Array, W: Array, P: Array, eps: float) -> Array:
        """Return the change of h for a step P of W, of first order."""

    @abstractmethod
    def gradients(
        self, block: Block, index: Index, c: int, rivals: Index, reach: Array, states: Array, W: Array, eps: float
    ) -> Array:
        """Return the gradients of h of some rows of class c, (n_rows, n_rivals, n_columns)."""

    @abstractmethod
    def pull(
        self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float, P: Array | None = None
    ) -> Array:
        """Return the derivatives by W through h, (C, n_columns), or with a step P their change through its Hessian."""

    @abstractmethod
    def bends(self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float) -> Array:
        """Return the Hessian of h by the difference of each pair, (C, n_columns, C, n_columns)."""

    def curvature(
        self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float, one: float
    ) -> Array:
        """Return ``mu`` times the Hessian of the smooth maxima where h is linear."""
        return curvature(block, residual, reach, states, shift=partial(self.gradients, W=W, eps=eps), one=one)


class Sight(NamedTuple):
    """A place W with the numbers of its support functions, a row vector of (n_rows, C)."""

    W: Array
    states: RowVector


@dataclass(frozen=True, eq=False, kw_only=True)
class Moved(Ball):
    """Rows with sets; ``reach`` has the size of each set, which divides the smoothing among them."""

    sets: Sets

    def seen(self, W: Array, near: Sequence[tuple[float, Sight]] = ()) -> tuple[Sight, RowVector]:
        """Return the view of a place and h of all rows and classes; one pass over X."""
        self.rows.count("value")
        guesses = [self.rows.mixed([(share, sight.states) for share, sight in near])] if near else []
        parts = self.rows.each(self.sets.support, self.row_reach, *guesses, W=W, eps=self.eps)
        reached, states = self.rows.unzipped(parts, 2)
        return Sight(W, states), reached

    def turned(self, sight: Sight, P: Array) -> RowVector:
        """Return the change of h for a step P of W; one pass over X."""
        return self.rows.each(self.sets.along, self.row_reach, sight.states, W=sight.W, P=P, eps=self.eps)

    def shifts(self, sight: Sight) -> tuple[tuple[RowVector, ...], Callable[..., Array]]:
        """Return row vectors, and a function of a block and these that returns gradients of h of some rows."""
        return (self.row_reach, sight.states), partial(self.sets.gradients, W=sight.W, eps=self.eps)

    def pull(self, residual: RowVector, sight: Sight) -> tuple[Array, Array]:
        """Return the derivatives by ``(w, b)`` and their part through h, (C, n_columns); two passes over X."""
        (mass, _), rows = self.cells(residual), self.rows
        rows.count("value")
        forces = rows.total(self.sets.pull, residual, self.row_reach, sight.states, W=sight.W, eps=self.eps)
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
    def central(self) -> float:
        """The largest decrement of a central point, as a fraction of what smoothing adds to F.

        Where many rows share their ties, F may be far above its minimum although a step lowers it little. Measured with
        0.3 and with 0.001: ellipsoids of digits take 342 and 32 steps, deletions of a9a with balanced classes 171 and
        56.
        """
        return 1e-3

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

    def _of_sets(self, task: Callable[..., Array], **more: Any) -> Array:
        problem, point = self.problem, self.point
        vectors = point.residual, problem.row_reach, point.sight.states
        return np.asarray(problem.rows.total(task, *vectors, W=point.W, eps=problem.eps, **more))

    def _maxima(self) -> Array:
        return self._of_sets(self.problem.sets.curvature, one=float(self.problem.fit_intercept))

    def _bends(self) -> Array:
        return self._of_sets(self.problem.sets.bends)

    def _bent_reach(self, P: Array) -> Array:
        return self._of_sets(self.problem.sets.pull, P=P)


# --- ellipsoids ----------------------------------------------------------------------------------------------


class Ellipsoids(Sets):
    """Ellipsoids from the error bars of the rows; states are the smooth lengths."""

    def support(
        self, block: Block, reach: Array, guess: Array | None = None, *, W: Array, eps: float
    ) -> tuple[Array, Array]:
        """Return the smooth lengths, twice."""
        lengths = np.zeros((block.n_rows, len(W)))
        for c, k, index, errors in _compared(block, len(W)):
            variances = errors.variances((W[c] - W[k])[np.newaxis])[:, 0]
            lengths[index, k] = np.sqrt(np.maximum(variances, 0.0) + (eps * reach[index]) ** 2)
        return lengths, lengths

    def along(self, block: Block, reach: Array, states: Array, W: Array, P: Array, eps: float) -> Array:
        """Return ``q.p`` with ``q = Sigma u / length``, the gradient of the length."""
        changes = np.zeros((block.n_rows, len(W)))
        for c, k, index, errors in _compared(block, len(W)):
            changes[index, k] = errors.between(W[c] - W[k], P[c] - P[k]) / _lengths(states[index, k])
        return changes

    def gradients(
        self, block: Block, index: Index, c: int, rivals: Index, reach: Array, states: Array, W: Array, eps: float
    ) -> Array:
        """Return q."""
        assert block.errors is not None
        errors = block.errors.take(_where(index))
        each = [errors.times(W[c] - W[k]) / _lengths(states[index, k])[:, np.newaxis] for k in rivals]
        return np.stack(each, axis=1)

    def pull(
        self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float, P: Array | None = None
    ) -> Array:
        """Return ``sum t q``, or ``sum t (Sigma p - q (q.p)) / length``."""
        result = np.zeros_like(W)
        for c, k, index, errors in _compared(block, len(W), residual):
            u, length = W[c] - W[k], _lengths(states[index, k])
            t = residual[index, k] / length
            if P is None:
                pull = errors.pull(t, u)
            else:
                seen = errors.seen(u, P[c] - P[k])
                pull = seen.pull(-t * (seen.between(0, 1) / length / length), t)
            result[c] += pull
            result[k] -= pull
        return result

    def bends(self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float) -> Array:
        """Return ``sum t (Sigma - q q') / length``."""
        C, d = W.shape
        bends, out = np.zeros((C, d, C, d)), np.empty((d, d))
        for c, k, index, errors in _compared(block, C, residual):
            u, length = W[c] - W[k], _lengths(states[index, k])
            t = residual[index, k] / length
            out[:] = 0.0
            errors.add(t, out)
            root = errors.times(u) * (np.sqrt(t) / length)[:, np.newaxis]
            out -= root.T @ root
            bends[c, :, k] += out
            bends[k, :, c] += out
        return bends


def _lengths(states: Array) -> Array:
    """Return the lengths, 1 of an exact sample, of which all is 0."""
    return np.where(states > 0, states, 1.0)


def _where(index: Index) -> Index | slice:
    """Return a slice if the indices are adjacent, to avoid a copy."""
    return slice(index[0], index[-1] + 1) if len(index) and index[-1] - index[0] < len(index) else index


def _compared(block: Block, n_classes: int, residual: Array | None = None) -> Iterator[tuple[int, int, Index, Errors]]:
    """Yield pieces of the rows of a class that fit in cache, a class that they are compared with, and their errors.

    With derivatives ``residual``, only rows where one is more than a rounding.
    """
    assert block.errors is not None
    needed = None if residual is None else np.abs(residual).max(axis=1) > EPS * block.weights
    step = max(block.errors.least_rows, piece_rows(block.X.shape[1] + block.errors.width))
    for c in range(n_classes):
        members = np.flatnonzero(block.labels == c if needed is None else needed & (block.labels == c))
        for first in range(0, len(members), step):
            index = members[first : first + step]
            errors = block.errors.take(_where(index))
            yield from ((c, k, index, errors) for k in range(n_classes) if k != c)


def _whole(block: Block, residual: Array, reached: Array) -> float:
    """Return ``sum s alpha h``."""
    return float(np.vdot(residual, reached))


# --- deletions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deletions(Sets):
    """Deletions of up to ``n_drop`` features of a row; states are ``mu theta``."""

    # Most rows have ties at the optimum (measured on a9a: 10 takes 170 steps or more instead of 60).
    fastest = SPEED
    n_drop: int

    def _rows(self, block: Block, W: Array, eps: float) -> _binding.DropRows:
        W = np.ascontiguousarray(W)
        return _binding.DropRows(block.view, block.labels, W, self.n_drop, eps, EPS * block.weights)

    def support(
        self, block: Block, reach: Array, guess: Array | None = None, *, W: Array, eps: float
    ) -> tuple[Array, Array]:
        """Return the smooth sums of the largest terms, and ``mu theta``."""
        return self._rows(block, W, eps).support(guess)

    def along(self, block: Block, reach: Array, states: Array, W: Array, P: Array, eps: float) -> Array:
        """Return the sum of ``p x`` times the step."""
        return self._rows(block, W, eps).along(states, np.ascontiguousarray(P))

    def gradients(
        self, block: Block, index: Index, c: int, rivals: Index, reach: Array, states: Array, W: Array, eps: float
    ) -> Array:
        """Return ``p x``."""
        return np.asarray(self._rows(block.take(index), W, eps).moves(states[index])[:, rivals])

    def pull(
        self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float, P: Array | None = None
    ) -> Array:
        """Return ``sum t p x``, or ``sum t x (q y - q (q.y) / sum q)`` for the change y of the terms.

        ``q = p (1 - p) / mu``; the second term only where p has the sum K.
        """
        return self._rows(block, W, eps).pull(states, residual, None if P is None else np.ascontiguousarray(P))

    def bends(self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float) -> Array:
        """Return ``sum t (diag(q x^2) - (q x)(q x)' / sum q)``."""
        lower = self._rows(block, W, eps).bends(states, residual).transpose(0, 2, 1, 3)
        whole = lower + lower.transpose(0, 3, 2, 1)
        np.einsum("cjkj->ckj", whole)[:] -= np.einsum("cjkj->ckj", lower)
        return np.asarray(whole + whole.transpose(2, 1, 0, 3))

    def curvature(
        self, block: Block, residual: Array, reach: Array, states: Array, W: Array, eps: float, one: float
    ) -> Array:
        """Return ``mu`` times the Hessian of the smooth maxima where h is linear."""
        if len(W) > 2:
            return super().curvature(block, residual, reach, states, W, eps, one)
        curve = np.maximum(residual, 0.0)
        curve *= 1.0 - curve / np.maximum(block.weights, 1e-300)[:, np.newaxis]
        lower = self._rows(block, W, eps).gram(states, curve)
        lower[-1] *= one
        return np.asarray(lower + np.tril(lower, -1).T)[np.newaxis, :, np.newaxis]
