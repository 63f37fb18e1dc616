"""The objective with error bars: every sample has a noise of its own.

::

    F(W, b) = sum_i s_i sum_{k != y_i} a_i f(m / a_i) + (l2/2) sum_{c<k} ||w_c - w_k||^2
    m = 1 - u.x_i - (b_c - b_k),    u = w_c - w_k,    c = y_i,    a_i^2 = u' (Sigma_i + N) u + blur^2

with the covariance ``Sigma_i`` of the sample's error bars and the model's own noise, ``u' N u = a(u)^2``. With two
classes it is the binary problem in ``w = w_1 - w_0``. For the rows of a class against another, with ``z = m/a``,
``q = (Sigma_i + N) u / a``, ``h = s f''/a`` and ``t = s (f - z f')/a``::

    gradient   sum -s f' x + t a q          Hessian   sum h (x + z q)(x + z q)' + t (Sigma_i + N - q q')

``blur`` is a little noise on every margin. It makes F smooth where a sample is exact or two ``w`` meet; F rises by at
most ``blur sum s f*``, and the slopes at the minimum are a dual point of the problem without it.

Conventions
-----------
rows : samples sorted by class, through an index: they stay where they are
cell (c, k) : the rows of class c against class k; arrays of cells have shape (C, C, ...)
unknowns : flat array of (C - 1, n_columns + 1), each class's (w, b) minus that of the last
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gaussguru._kernels import _binding
from gaussguru.errors import Diagonal, Errors, PerSample
from gaussguru.losses import Array, Index, Loss
from gaussguru.multiclass import MAX_UNKNOWNS
from gaussguru.noise import Quadratic
from gaussguru.objective import RARE, draw
from gaussguru.rows import BlockMap, Matrix, Rows

# Rows that are worked on at a time: their values, errors and what is made of them stay in cache.
PIECE_BYTES = 1 << 19
# The least blur: it changes no value, but where a sample is exact it keeps z finite.
TRACE = 1e-100


@dataclass(frozen=True)
class Uncertain:
    """Samples with error bars, a loss and the model's own noise; see the module for the formulas.

    ``order`` lists the samples class by class, those of class c from ``edges[c]`` on; ``weights`` are in that order.
    """

    X: Matrix
    errors: Errors
    order: Index
    weights: Array
    edges: tuple[int, ...]
    loss: Loss
    noise: Quadratic | None
    l2: float = 0.0
    fit_intercept: bool = True
    blur: float = 0.0
    map: BlockMap = map

    @classmethod
    def sorted(
        cls, X: Matrix, errors: Errors, labels: NDArray[Any], weights: Array | None, n_classes: int, **model: Any
    ) -> "Uncertain":
        """Return the problem of samples with these labels, 0 to ``n_classes - 1``."""
        order = np.argsort(labels, kind="stable").astype(np.int64)
        edges = tuple(int(edge) for edge in np.searchsorted(labels[order], np.arange(n_classes + 1)))
        weights = np.ones(len(order)) if weights is None else weights[order]
        return cls(X, errors, order, weights, edges, **model)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.edges) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """The number of samples and of features."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    @cached_property
    def class_weights(self) -> Array:
        """``sum s`` over the rows of each class."""
        return np.array([self.weights[a:b].sum() for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)])

    @property
    def weight(self) -> float:
        """F at zero."""
        return float((self.n_classes - 1) * self.class_weights.sum())

    @cached_property
    def own(self) -> Array:
        """The covariance N of the model's own noise."""
        d = self.shape[1]
        return np.zeros((d, d)) if self.noise is None else self.noise.metric(np.eye(d))

    def own_times(self, U: Array) -> Array:
        """Return ``U N``."""
        return np.zeros_like(U) if self.noise is None else self.noise.metric(U)

    @cached_property
    def view(self) -> Any:
        """X for compiled loops."""
        return _binding.MatrixView(self.X)

    @cached_property
    def rows(self) -> Rows:
        """X, for what looks at it without errors."""
        return Rows(self.X, self.map)

    @cached_property
    def signed_weight(self) -> Array:
        """``s y`` of every sample of a two-class problem."""
        signed = np.empty(len(self.weights))
        signed[self.order] = self.weights
        signed[self.order[: self.edges[1]]] *= -1.0
        return signed

    @cached_property
    def deviations(self) -> Array:
        """The standard deviation of every value, of errors that are independent."""
        if isinstance(self.errors, Diagonal) and not sp.issparse(self.errors.std):
            return np.asarray(self.errors.std)
        if isinstance(self.errors, PerSample):
            return np.repeat(self.errors.std[:, np.newaxis], self.shape[1], axis=1)
        raise ValueError("X_err must be dense standard deviations with solver='sgd'; use solver='newton' for others")

    @property
    def is_compiled(self) -> bool:
        """Whether there is a compiled loop for the loss and this form of error bars."""
        return self.loss.code >= 0 and isinstance(self.errors, Diagonal) and not sp.issparse(self.errors.std)

    def with_blur(self, blur: float) -> "Uncertain":
        """Return the same problem with another blur."""
        other = object.__new__(Uncertain)
        other.__dict__.update(self.__dict__, blur=blur)
        return other

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "Uncertain":
        """Return about ``n_rows`` rows, of every class in proportion but some, reweighted to its own total."""
        chosen, edges, weights = [], [0], []
        for c, (begin, end) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            share = min(end - begin, max(RARE, round((end - begin) * n_rows / len(self.weights))))
            mine = begin + draw(end - begin, share, rng)
            total = float(self.weights[mine].sum())
            chosen.append(mine)
            edges.append(edges[-1] + share)
            weights.append(self.weights[mine] * (self.class_weights[c] / total if total > 0 else 0.0))
        index = self.order[np.concatenate(chosen)]
        return replace(
            self,
            X=self.X[index],
            errors=self.errors.take(index),
            order=np.arange(len(index)),
            weights=np.concatenate(weights),
            edges=tuple(edges),
        )

    def pieces(self, task: Callable[[int, slice, Index], Any]) -> list[Any]:
        """Return ``task(c, rows, samples)`` for pieces of the rows of every class."""
        # A compiled loop reads a row once, and makes no arrays that have to stay in cache.
        step = max(64, (8 if self.is_compiled else 1) * PIECE_BYTES // (8 * max(1, self.shape[1])))
        classes, rows = [], []
        for c, (begin, end) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            for first in range(begin, end, step):
                classes.append(c)
                rows.append(slice(first, min(end, first + step)))
        mapped: Any = self.map
        return list(mapped(task, classes, rows, [self.order[piece] for piece in rows]))

    def roots(self, free: Array) -> list[list[Any]]:
        """Return the sums over every cell of ``free``, given by row and other class, times roots of ``Sigma_i``."""
        parts = self.pieces(lambda c, piece, index: (c, [self.errors.take(index).roots(t) for t in free[piece].T]))
        sums: list[list[Any]] = [[0.0] * self.n_classes for _ in range(self.n_classes)]
        for c, roots in parts:
            for k, root in zip(self.others(c), roots, strict=True):
                sums[c][k] = sums[c][k] + root
        return sums

    def others(self, c: int) -> list[int]:
        """Return the classes but c."""
        return [k for k in range(self.n_classes) if k != c]

    def expand(self, W: Array, b: Array) -> "Expansion":
        """Return value and gradient of F at ``(W, b)``."""
        n, d = self.shape
        C = self.n_classes
        rows = Pulls(*(np.empty((n, C - 1)) for _ in Pulls._fields))

        def look(c: int, piece: slice, index: Index) -> tuple[int, Array, Array, Array]:
            X, errors, s = self.X[index], self.errors.take(index), self.weights[piece, np.newaxis]
            others = self.others(c)
            U = W[c] - W[others]
            margin = X @ U.T + (b[c] - b[others])
            own = np.einsum("kj,kj->k", U, self.own_times(U))
            a = np.sqrt(errors.variances(U) + (own + max(self.blur, TRACE) ** 2))
            z = (1.0 - margin) / a
            f, slope, curvature = self.loss.terms(z)
            pulled = s * slope
            tension = s * np.maximum(0.0, f - z * slope) / a
            parts = (a, z, slope, s * curvature / a, tension)
            for whole, part in zip(rows, parts, strict=True):
                whole[piece] = part
            weighted = s * f
            sums = np.stack([part.sum(axis=0) for part in (weighted * a, pulled, tension, weighted)])
            noise = np.stack([errors.pull(tension[:, j], u) for j, u in enumerate(U)])
            return c, sums, np.asarray((X.T @ pulled).T), noise

        def compiled(c: int, piece: slice, index: Index) -> tuple[int, Array, Array, Array]:
            assert isinstance(self.errors, Diagonal)
            sums, pull, noise = np.empty((4, C - 1)), np.empty((C - 1, d)), np.empty((C - 1, d))
            for j, k in enumerate(self.others(c)):
                u = W[c] - W[k]
                own = float(u @ self.own_times(u[np.newaxis])[0]) + max(self.blur, TRACE) ** 2
                pulls, out = _binding.measured(
                    self.loss.code, self.view, index, self.errors.std, self.weights[piece], u, float(b[c] - b[k]), own
                )
                for whole, part in zip(rows, pulls, strict=True):
                    whole[piece, j] = part
                pull[j], noise[j], sums[:, j] = out[:d], out[d : 2 * d] * u, out[2 * d :]
            return c, sums, pull, noise

        task = compiled if self.is_compiled else look
        sums, pull, noise = np.zeros((4, C, C)), np.zeros((C, C, d)), np.zeros((C, C, d))
        for c, part_sums, part_pull, part_noise in self.pieces(task):
            others = self.others(c)
            sums[:, c, others] += part_sums
            pull[c, others] += part_pull
            noise[c, others] += part_noise
        for c in range(C):
            noise[c] += sums[2, c][:, np.newaxis] * self.own_times(W[c] - W)
        centred = W - W.mean(axis=0)
        value = float(sums[0].sum()) + 0.5 * self.l2 * C * float(np.vdot(centred, centred))
        return Expansion(self, W, b, value, sums[1], sums[3], pull, noise, rows)

    def constant(self) -> tuple[float, Array]:
        """Return the least F of a classifier that ignores the features, among those that name one class; and its b.

        With several classes others may be better, and the path finds them.
        """
        best = int(np.argmax(self.class_weights))
        b = np.zeros(self.n_classes)
        if not self.fit_intercept:
            return self.weight, b
        b[best] = 1.0
        margin = b[:, np.newaxis] - b
        hinge = np.maximum(0.0, 1.0 - margin)
        np.fill_diagonal(hinge, 0.0)
        return float(self.class_weights @ hinge.sum(axis=1)), b * 2 - 1 if self.n_classes == 2 else b


class Pulls(NamedTuple):
    """For every row and other class: ``a``, ``z``, ``f'``, ``s f''/a`` and ``s (f - z f')/a``."""

    scale: Array
    slack: Array
    slope: Array
    curve: Array
    tension: Array


@dataclass(eq=False)
class Expansion:
    """Value, gradient and Hessian at one point, in the unknowns.

    Of every cell: ``mass = sum s f'``, ``gain = sum s f``, ``pull = sum s f' x``, and what the noise pulls with,
    ``sum t (Sigma_i + N) u``.
    """

    objective: Uncertain
    W: Array
    b: Array
    value: float
    mass: Array
    gain: Array
    pull: Array
    noise: Array
    rows: Pulls

    @property
    def unknowns(self) -> Array:
        """The point."""
        return np.column_stack([self.W[:-1] - self.W[-1], self.b[:-1] - self.b[-1]]).ravel()

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        objective = self.objective
        cells = self.noise - self.pull
        result = np.empty((objective.n_classes, objective.shape[1] + 1))
        result[:, :-1] = cells.sum(axis=1) - cells.sum(axis=0)
        if objective.l2:
            result[:, :-1] += objective.l2 * objective.n_classes * (self.W - self.W.mean(axis=0))
        result[:, -1] = self.mass.sum(axis=0) - self.mass.sum(axis=1) if objective.fit_intercept else 0.0
        return result[:-1].ravel()

    @property
    def factor_cost(self) -> float:
        """What the Hessian costs, in units of :meth:`product`."""
        return 1.0 + self.objective.shape[1] / 8

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving."""
        n, d = self.objective.shape
        return n * d * d * (self.objective.n_classes - 1) < 1e7 and len(self.gradient) < 200

    def stepped(self, p: Array) -> tuple[Array, Array]:
        """Return the place a step away."""
        step = p.reshape(self.objective.n_classes - 1, -1)
        W, b = self.W.copy(), self.b.copy()
        W[:-1] += step[:, :-1]
        b[:-1] += step[:, -1]
        return W, b

    def hessian(self) -> Array:
        """Return the Hessian."""
        objective = self.objective
        d, C = objective.shape[1], objective.n_classes

        def look(c: int, piece: slice, index: Index) -> tuple[int, Array]:
            X, errors = objective.X[index], objective.errors.take(index)
            X = X.toarray() if hasattr(X, "toarray") else X
            result = np.empty((C - 1, d + 1, d + 1))
            for j, k in enumerate(objective.others(c)):
                scale, slack, _, curve, tension = (part[piece, j] for part in self.rows)
                u = self.W[c] - self.W[k]
                q = (errors.times(u) + objective.own_times(u[np.newaxis])) / scale[:, np.newaxis]
                row = np.empty((len(q), d + 1))
                np.multiply(q, slack[:, np.newaxis], out=row[:, :-1])
                row[:, :-1] += X
                row[:, -1] = 1.0
                row *= np.sqrt(curve)[:, np.newaxis]
                result[j] = row.T @ row
                q *= np.sqrt(tension)[:, np.newaxis]
                block = result[j, :-1, :-1]
                block -= q.T @ q
                block += tension.sum() * objective.own
                errors.add(tension, block)
            return c, result

        hessian = np.zeros((C, d + 1, C, d + 1))
        for c, parts in objective.pieces(look):
            for part, k in zip(parts, objective.others(c), strict=True):
                hessian[c, :, c] += part
                hessian[k, :, k] += part
                hessian[c, :, k] -= part
                hessian[k, :, c] -= part
        if objective.l2:
            ridge = objective.l2 * (C * np.eye(C) - 1.0)
            for j in range(d):
                hessian[:, j, :, j] += ridge
        if not objective.fit_intercept:
            hessian[:, -1], hessian[:, :, :, -1] = 0.0, 0.0
            hessian[np.arange(C), -1, np.arange(C), -1] = 1.0
        size = (C - 1) * (d + 1)
        return np.ascontiguousarray(hessian[:-1, :, :-1].reshape(size, size))

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``."""
        objective = self.objective
        d, C = objective.shape[1], objective.n_classes
        P = np.zeros((C, d + 1))
        P[:-1] = p.reshape(C - 1, d + 1)
        if not objective.fit_intercept:
            P[:, -1] = 0.0

        def look(c: int, piece: slice, index: Index) -> tuple[int, Array]:
            X, errors = objective.X[index], objective.errors.take(index)
            result = np.empty((C - 1, d + 1))
            for j, k in enumerate(objective.others(c)):
                scale, slack, _, curve, tension = (part[piece, j] for part in self.rows)
                u, step = self.W[c] - self.W[k], P[c] - P[k]
                own = objective.own_times(u[np.newaxis])[0]
                along = (errors.between(u, step[:-1]) + own @ step[:-1]) / scale
                bent = curve * (X @ step[:-1] + step[-1] + slack * along)
                turned = (bent * slack - tension * along) / scale
                result[j, :-1] = X.T @ bent + errors.pull(turned, u) + turned.sum() * own
                result[j, :-1] += errors.pull(tension, step[:-1])
                result[j, :-1] += tension.sum() * objective.own_times(step[np.newaxis, :-1])[0]
                result[j, -1] = bent.sum()
            return c, result

        out = np.zeros((C, d + 1))
        for c, parts in objective.pieces(look):
            for part, k in zip(parts, objective.others(c), strict=True):
                out[c] += part
                out[k] -= part
        if objective.l2:
            out[:, :-1] += objective.l2 * (C * P[:, :-1] - P[:, :-1].sum(axis=0))
        if not objective.fit_intercept:
            out[:-1, -1] = p.reshape(C - 1, d + 1)[:, -1]
        return out[:-1].ravel()

    @property
    def has_factor(self) -> bool:
        """Whether the Hessian is small enough to be formed."""
        return len(self.gradient) <= MAX_UNKNOWNS

    @property
    def alpha(self) -> Array:
        """``f'(z)`` of every sample, and with more than two classes of every class, in the order of the samples."""
        objective = self.objective
        alpha = np.zeros((len(objective.weights), objective.n_classes))
        for c in range(objective.n_classes):
            mine = slice(objective.edges[c], objective.edges[c + 1])
            alpha[objective.order[mine, np.newaxis], objective.others(c)] = self.rows.slope[mine]
        return alpha.sum(axis=1) if objective.n_classes == 2 else alpha

    @property
    def noisy(self) -> float:
        """``sum a s f*``, the part of F that the noise makes."""
        return float(np.vdot(self.rows.tension, np.square(self.rows.scale)))


def symmetric(coef: Array, intercept: Any) -> tuple[Array, Array]:
    """Return a classifier with a row and an intercept for each class, also where there are two."""
    if coef.ndim == 2:
        return coef, intercept
    return np.vstack([-coef, coef]) / 2, np.array([-intercept, intercept]) / 2
