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
from gaussguru.cholesky import mirrored
from gaussguru.errors import Diagonal, Errors, PerSample
from gaussguru.losses import Array, Index, Loss
from gaussguru.multiclass import MAX_UNKNOWNS
from gaussguru.noise import Quadratic, diagonal
from gaussguru.objective import RARE, draw
from gaussguru.rows import BlockMap, Matrix, Rows

# Rows that are worked on at a time: their values, errors and what is made of them stay in cache.
PIECE_BYTES = 1 << 19
# From here on BLAS forms the Hessian faster (measured: half as fast at 100 columns, level at 250, 1.25 times at 400).
BLAS_COLUMNS = 256
# How far all slopes shrink to make room for a dual point (:func:`gaussguru.certificates.certify_uncertain`).
SHRUNK = 0.99
# The least blur: it changes no value, but where a sample is exact it keeps z finite.
TRACE = 1e-100


@dataclass(frozen=True)
class Uncertain:
    """Samples with error bars, a loss and the model's own noise; see the module for the formulas.

    Compiled loops read two classes together: ``signed_weight`` tells them apart.
    """

    X: Matrix
    errors: Errors
    labels: NDArray[Any]
    weights: Array
    n_classes: int
    loss: Loss
    noise: Quadratic | None
    l2: float = 0.0
    fit_intercept: bool = True
    blur: float = 0.0
    map: BlockMap = map

    @property
    def shape(self) -> tuple[int, int]:
        """The number of samples and of features."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    @cached_property
    def class_weights(self) -> Array:
        """``sum s`` over the samples of each class."""
        return np.asarray(np.bincount(self.labels, self.weights, self.n_classes), dtype=np.float64)

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
        return Rows(self.X, self.map, self.n_classes if self.n_classes > 2 else 1)

    @cached_property
    def signed_weight(self) -> Array:
        """``s`` of every sample, of two classes ``s y``."""
        return self.weights * (2.0 * self.labels - 1.0) if self.n_classes == 2 else self.weights

    @cached_property
    def deviations(self) -> Array:
        """The standard deviation of every value, of errors that are independent."""
        if isinstance(self.errors, Diagonal) and not sp.issparse(self.errors.std):
            return np.asarray(self.errors.std)
        if isinstance(self.errors, PerSample):
            return np.repeat(self.errors.std[:, np.newaxis], self.shape[1], axis=1)
        raise ValueError("X_err must be dense standard deviations with solver='sgd'; use solver='newton' for others")

    @cached_property
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
        chosen = []
        for mine in self.classes:
            share = min(len(mine), max(RARE, round(len(mine) * n_rows / self.shape[0])))
            chosen.append(mine[draw(len(mine), share, rng)])
        index = np.concatenate(chosen)
        labels, weights = self.labels[index], self.weights[index]
        totals = np.bincount(labels, weights, self.n_classes)
        factors = np.divide(self.class_weights, totals, out=np.zeros_like(totals), where=totals > 0)
        return replace(
            self, X=self.X[index], errors=self.errors.take(index), labels=labels, weights=weights * factors[labels]
        )

    @cached_property
    def classes(self) -> list[Index]:
        """The samples of each class."""
        return [np.flatnonzero(self.labels == c) for c in range(self.n_classes)]

    @cached_property
    def everyone(self) -> Index:
        """All samples."""
        return np.arange(self.shape[0], dtype=np.int64)

    def pieces(self, task: Callable[[int, Index], Any], *, together: bool = False) -> list[Any]:
        """Return ``task(c, samples)`` for pieces of the samples of every class.

        Two classes may be given ``together``, as class 1.
        """
        # A compiled loop makes no arrays that have to stay in cache.
        step = max(64, (4 if self.is_compiled else 1) * PIECE_BYTES // (8 * max(1, self.shape[1])))
        groups = [(1, self.everyone)] if together and self.n_classes == 2 else enumerate(self.classes)
        tasks = [(c, rows[first : first + step]) for c, rows in groups for first in range(0, len(rows), step)]
        # Classes are mixed in X: what lies together is read together.
        tasks.sort(key=lambda task: int(task[1][0]))
        mapped: Any = self.map
        return list(mapped(task, [c for c, _ in tasks], [rows for _, rows in tasks]))

    def others(self, c: int) -> list[int]:
        """Return the classes but c."""
        return [k for k in range(self.n_classes) if k != c]

    def add_cells(self, cells: Array, c: int, parts: Array) -> None:
        """Add to the cells what a piece has for class c against each other, and for the other of two against c."""
        others = self.others(c)
        cells[c, others] += parts[:, 0]
        if self.n_classes == 2 and parts.shape[1] == 2:
            cells[others, c] += parts[:, 1]

    def expand(self, W: Array, b: Array) -> "Expansion":
        """Return value and gradient of F at ``(W, b)``."""
        n, d = self.shape
        C = self.n_classes
        scale, slack = np.empty((C - 1, n)), np.empty((C - 1, n))

        def look(c: int, index: Index) -> tuple[int, Array]:
            X, errors, s = self.X[index], self.errors.take(index), self.weights[index, np.newaxis]
            others = self.others(c)
            U = W[c] - W[others]
            margin = X @ U.T + (b[c] - b[others])
            own = np.einsum("kj,kj->k", U, self.own_times(U))
            a = np.sqrt(errors.variances(U) + (own + max(self.blur, TRACE) ** 2))
            z = (1.0 - margin) / a
            f, slope, _ = self.loss.terms(z)
            pulled = s * slope
            tension = s * np.maximum(0.0, f - z * slope) / a
            scale[:, index], slack[:, index] = a.T, z.T
            weighted = s * f
            sums = [part.sum(axis=0) for part in (weighted * a, pulled, tension, weighted)]
            noise = [errors.pull(tension[:, j], u) for j, u in enumerate(U)]
            return c, np.column_stack([np.asarray((X.T @ pulled).T), noise, *sums])[:, np.newaxis]

        def compiled(c: int, index: Index) -> tuple[int, Array]:
            assert isinstance(self.errors, Diagonal)
            parts = np.empty((C - 1, 2, 2 * d + 4))
            for j, k in enumerate(self.others(c)):
                u = W[c] - W[k]
                own = float(u @ self.own_times(u[np.newaxis])[0]) + max(self.blur, TRACE) ** 2
                parts[j] = _binding.measured(
                    self.loss.code, self.view, index, self.errors.std, signed, u, float(b[c] - b[k]), own, scale[j],
                    slack[j],
                )  # fmt: skip
            return c, parts

        signed = self.signed_weight
        cells = np.zeros((C, C, 2 * d + 4))
        for c, parts in self.pieces(compiled if self.is_compiled else look, together=self.is_compiled):
            self.add_cells(cells, c, parts)
        pull, noise, sums = cells[..., :d], cells[..., d : 2 * d], np.moveaxis(cells[..., 2 * d :], -1, 0)
        variances = None
        if self.is_compiled:
            variances, noise = noise, noise * (W[:, np.newaxis] - W)
        for c in range(C):
            noise[c] += sums[2, c][:, np.newaxis] * self.own_times(W[c] - W)
        centred = W - W.mean(axis=0)
        value = float(sums[0].sum()) + 0.5 * self.l2 * C * float(np.vdot(centred, centred))
        mass, tension, gain = sums[1:4]
        return Expansion(self, W, b, value, mass, tension, gain, pull, noise, variances, scale, slack)

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


class Room(NamedTuple):
    """What becomes free of ``s f*`` in every cell when all slopes shrink.

    ``free`` has the sums of it, ``bend`` those of its geometric mean with ``s f*``, and ``roots`` those of it times
    roots of Sigma, unless there was no look at the errors.
    """

    free: Array
    bend: Array
    roots: list[list[Any]] | None


class Pulls(NamedTuple):
    """For every other class and row: ``a``, ``z``, ``f'``, ``s f''/a`` and ``s (f - z f')/a``."""

    scale: Array
    slack: Array
    slope: Array
    curve: Array
    tension: Array


@dataclass(eq=False)
class Expansion:
    """Value, gradient and Hessian at one point, in the unknowns.

    Of every cell: ``mass = sum s f'``, ``tension = sum t``, ``gain = sum s f``, ``pull = sum s f' x``, what the noise
    pulls with, ``sum t (Sigma_i + N) u``, and ``variances = sum t e^2`` where a compiled loop found them. ``scale``
    and ``slack`` are a and z by other class and row.
    """

    objective: Uncertain
    W: Array
    b: Array
    value: float
    mass: Array
    tension: Array
    gain: Array
    pull: Array
    noise: Array
    variances: Array | None
    scale: Array
    slack: Array

    @cached_property
    def rows(self) -> Pulls:
        """What every row weighs; compiled loops never ask."""
        weights = self.objective.weights
        f, slope, curvature = self.objective.loss.terms(self.slack)
        tension = weights * np.maximum(0.0, f - self.slack * slope) / self.scale
        return Pulls(self.scale, self.slack, slope, weights * curvature / self.scale, tension)

    @cached_property
    def room(self) -> Room:
        """What becomes free when all slopes shrink: ``s (f*(c alpha) - c f*(alpha))`` of a row, ``c`` being SHRUNK."""
        return self._find_room(rooted=True)

    @cached_property
    def own_room(self) -> Room:
        """The same without a look at the errors."""
        return self._find_room(rooted=False)

    def _find_room(self, *, rooted: bool) -> Room:
        objective, C = self.objective, self.objective.n_classes
        weights, errors = objective.weights, objective.errors

        def look(c: int, index: Index) -> tuple[int, Array, list[list[Any]]]:
            z, s = self.slack[:, index], weights[index]
            slope = objective.loss.slope(z)
            shrunk, full = (objective.loss.conjugate(part * slope) for part in (SHRUNK, 1.0))
            free = s * np.maximum(0.0, shrunk - SHRUNK * full)
            sums = np.stack([free.sum(axis=1), np.sqrt(free * s * full).sum(axis=1)], axis=1)
            some = errors.take(index)
            return c, sums[:, np.newaxis], [[some.roots(t)] for t in free] if rooted else []

        def compiled(c: int, index: Index) -> tuple[int, Array, list[list[Any]]]:
            assert isinstance(errors, Diagonal)
            args = (index, errors.std if rooted else None, objective.signed_weight)
            parts = np.stack([_binding.measured_room(objective.loss.code, *args, z, SHRUNK) for z in self.slack])
            return c, parts[:, :, -2:], list(parts[:, :, :-2]) if rooted else []

        sums, roots = np.zeros((C, C, 2)), [[0.0] * C for _ in range(C)]
        task = compiled if objective.is_compiled else look
        for c, part, by_other in objective.pieces(task, together=objective.is_compiled):
            objective.add_cells(sums, c, part)
            for k, sides in zip(objective.others(c), by_other, strict=False):
                for (one, other), root in zip(((c, k), (k, c)), sides, strict=False):
                    roots[one][other] = roots[one][other] + root
        return Room(sums[..., 0], sums[..., 1], roots if rooted else None)

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
    def blurred(self) -> float:
        """``sum t blur^2``, the part of F that the blur makes: all of it where samples are exact."""
        return self.objective.blur**2 * float(self.tension.sum())

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

        def look(c: int, index: Index) -> tuple[int, list[Array]]:
            X, errors = objective.X[index], objective.errors.take(index)
            X = X.toarray() if hasattr(X, "toarray") else X
            parts = []
            for j, k in enumerate(objective.others(c)):
                scale, slack, _, curve, tension = (part[j, index] for part in self.rows)
                u = self.W[c] - self.W[k]
                q = (errors.times(u) + objective.own_times(u[np.newaxis])) / scale[:, np.newaxis]
                row = np.empty((len(q), d + 1))
                np.multiply(q, slack[:, np.newaxis], out=row[:, :-1])
                row[:, :-1] += X
                row[:, -1] = 1.0
                row *= np.sqrt(curve)[:, np.newaxis]
                parts.append(row.T @ row)
                q *= np.sqrt(tension)[:, np.newaxis]
                block = parts[-1][:-1, :-1]
                block -= q.T @ q
                errors.add(tension, block)
            return c, parts

        def compiled(c: int, index: Index) -> tuple[int, list[Array]]:
            assert isinstance(objective.errors, Diagonal)
            parts = []
            for j, k in enumerate(objective.others(c)):
                u = self.W[c] - self.W[k]
                gram = _binding.measured_gram(
                    objective.loss.code, objective.view, index, objective.errors.std, objective.signed_weight, u,
                    objective.own_times(u[np.newaxis])[0], self.scale[j], self.slack[j],
                )  # fmt: skip
                parts.append(gram)
            return c, parts

        by_blas = self.variances is None or d >= BLAS_COLUMNS
        pairs: dict[tuple[int, int], Array] = {}
        for c, parts in objective.pieces(look if by_blas else compiled, together=not by_blas):
            for part, k in zip(parts, objective.others(c), strict=True):
                pair = min(c, k), max(c, k)
                if pair in pairs:
                    pairs[pair] += part
                else:
                    pairs[pair] = part
        hessian = np.zeros((C - 1, d + 1, C - 1, d + 1))
        for (c, k), part in pairs.items():
            whole = part if by_blas else mirrored(part)
            block = whole[:-1, :-1]
            block += (self.tension[c, k] + self.tension[k, c]) * objective.own
            if not by_blas:
                assert self.variances is not None
                diagonal(block)[:] += self.variances[c, k] + self.variances[k, c]
            hessian[c, :, c] += whole
            if k < C - 1:  # the last class is what the unknowns are relative to
                hessian[k, :, k] += whole
                hessian[c, :, k] -= whole
                hessian[k, :, c] -= whole
        if objective.l2:
            ridge = objective.l2 * (C * np.eye(C - 1) - 1.0)
            for j in range(d):
                hessian[:, j, :, j] += ridge
        if not objective.fit_intercept:
            hessian[:, -1], hessian[:, :, :, -1] = 0.0, 0.0
            hessian[np.arange(C - 1), -1, np.arange(C - 1), -1] = 1.0
        size = (C - 1) * (d + 1)
        return hessian.reshape(size, size)

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``."""
        objective = self.objective
        d, C = objective.shape[1], objective.n_classes
        P = np.zeros((C, d + 1))
        P[:-1] = p.reshape(C - 1, d + 1)
        if not objective.fit_intercept:
            P[:, -1] = 0.0

        def look(c: int, index: Index) -> tuple[int, Array]:
            X, errors = objective.X[index], objective.errors.take(index)
            result = np.empty((C - 1, d + 1))
            for j, k in enumerate(objective.others(c)):
                scale, slack, _, curve, tension = (part[j, index] for part in self.rows)
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

        def compiled(c: int, index: Index) -> tuple[int, Array]:
            assert isinstance(objective.errors, Diagonal)
            result = np.empty((C - 1, d + 1))
            for j, k in enumerate(objective.others(c)):
                u, step = self.W[c] - self.W[k], P[c] - P[k]
                own = objective.own_times(u[np.newaxis])[0]
                sums = _binding.measured_product(
                    objective.loss.code, objective.view, index, objective.errors.std, objective.signed_weight, u,
                    step[:-1], step[-1], float(own @ step[:-1]), self.scale[j], self.slack[j],
                )  # fmt: skip
                result[j, :-1] = sums[:d] + sums[d : 2 * d] * u + sums[-1] * own
                result[j, -1] = sums[-2]
            return c, result

        out = np.zeros((C, d + 1))
        if self.variances is not None:
            for c in range(C):
                step = (P[c] - P)[:, :-1]
                still = self.variances[c] * step + self.tension[c][:, np.newaxis] * objective.own_times(step)
                out[c, :-1] += still.sum(axis=0)
                out[:, :-1] -= still
        compiling = self.variances is not None
        for c, parts in objective.pieces(compiled if compiling else look, together=compiling):
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
        """``f'(z)`` of every sample, and with more than two classes of every class."""
        objective, C = self.objective, self.objective.n_classes
        slopes = objective.rows.each(lambda a, b: objective.loss.slope(self.slack[:, a:b]), pointwise=True)
        others: Array = np.concatenate(slopes, axis=1)
        if C == 2:
            return np.asarray(others[0])
        alpha = np.zeros((len(objective.labels), C))
        alpha[objective.labels[:, np.newaxis] != np.arange(C)] = others.T.ravel()
        return alpha


def symmetric(coef: Array, intercept: Any) -> tuple[Array, Array]:
    """Return a classifier with a row and an intercept for each class, also where there are two."""
    if coef.ndim == 2:
        return coef, intercept
    return np.vstack([-coef, coef]) / 2, np.array([-intercept, intercept]) / 2
