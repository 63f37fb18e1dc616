"""Kernels: their values between samples, and features whose inner products they are.

With ``K = Z Z'`` a kernel machine is a linear one on the rows of Z: ``w = sum_j beta_j kappa(x_j, .)`` has the
coordinates ``Z' beta``, margins ``K beta`` and the length ``sqrt(beta' K beta)``. A Cholesky factor of K is such a Z.
So losses, solvers and certificates are those of the linear problem, and only this module knows of kernels.

:class:`LandmarkSpace` holds that factor, of all samples or of some landmarks (Nystroem). :class:`Gram` computes rows of
K within a memory budget if K itself is too large.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsymv, dtrsm
from scipy.linalg.lapack import dpotrf, dpstrf
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from gaussguru._rows.rows import Rows
from gaussguru._utils.blocks import row_slices, rows_at_once
from gaussguru._utils.linalg import EPS, Array, Index, diagonal
from gaussguru._utils.types import BlockMap, MixedArray, Record, Values

# "additive_chi2" is no inner product: 0 for a sample with itself, and negative for all other pairs.
NAMES = sorted({*PAIRWISE_KERNEL_FUNCTIONS, "precomputed"} - {"additive_chi2"})
# Rows of a panel of the Cholesky factor.
PANEL = 256


@dataclass(frozen=True)
class Kernel:
    """A kernel function, of samples: rows of arrays, or rows of a precomputed kernel matrix.

    Parameters
    ----------
    name : of scikit-learn's pairwise kernels, "precomputed", or a callable ``kernel(A, B, **params)`` that returns the
        matrix of the values between the rows of A and of B
    params : keywords for it
    centre : a point near the samples, subtracted from them for kernels of differences: far from the origin, squares
        would lose digits
    """

    name: str | Callable[..., object]
    params: Record = field(default_factory=dict)
    centre: Array | None = None

    @property
    def is_precomputed(self) -> bool:
        """Whether samples come as rows of a kernel matrix."""
        return self.name == "precomputed"

    @property
    def is_definite(self) -> bool:
        """Whether it is known to be positive semidefinite; other kernels are checked by factorisation."""
        if self.name in ("poly", "polynomial"):
            return self.params["coef0"] >= 0 and float(self.params["degree"]).is_integer()
        return self.name in ("linear", "rbf", "laplacian", "chi2", "cosine")

    def __call__(self, A: object, B: object) -> Array:
        """Return the matrix of values between samples A and samples B, the latter from :meth:`take`."""
        with np.errstate(invalid="ignore", over="ignore"):  # checked below
            values: Array = self._values(A, B).astype(np.float64, copy=False)
            finite = np.isfinite(values.sum()) or np.isfinite(values).all()
        if not finite:
            raise ValueError(f"kernel must return finite numbers; {self.name!r} returned NaN or infinity")
        return values

    def _values(self, A: Values, B: Values) -> Any:
        if self.is_precomputed:
            return A[:, B]
        if self.centre is not None:
            A, B = self._centred(A), (None if B is A else self._centred(B))
        if not callable(self.name):
            return pairwise_kernels(A, B, metric=self.name, filter_params=True, **self.params)
        values = np.asarray(self.name(A, B, **self.params))
        expected = (A.shape[0], B.shape[0])
        if values.shape != expected or values.dtype.kind not in "fiub":
            raise ValueError(
                f"kernel must return numbers of shape {expected} for such samples; it returned an array of shape "
                f"{values.shape} and dtype {values.dtype}"
            )
        return values

    def _centred(self, X: Values) -> Values:
        return (X.toarray() if sp.issparse(X) else X) - self.centre

    def take(self, X: Values, index: Index | slice) -> Values:
        """Return samples as the second argument of a call; for a precomputed kernel, their column numbers."""
        if not self.is_precomputed:
            return X[index]
        return np.arange(X.shape[0])[index] if isinstance(index, slice) else index

    def diagonal(self, X: Values) -> Array:
        """Return the value of every sample with itself."""
        blocks = (self(X[part], self.take(X, part)) for part in row_slices(0, X.shape[0], PANEL // 4))
        return np.concatenate([block.diagonal().copy() for block in blocks])  # a view would keep the block

    def map_of(self, mapped: BlockMap) -> BlockMap:
        """Return the map over blocks of samples; a callable is not called in threads."""
        return map if callable(self.name) else mapped


def kernel_matrix(kernel: Kernel, X: Values, mapped: BlockMap = map) -> Array:
    """Return the kernel matrix of X; only its lower triangle is meaningful."""
    n = X.shape[0]
    K = np.empty((n, n))

    def fill(part: slice) -> None:
        K[part, : part.stop] = kernel(X[part], kernel.take(X, slice(0, part.stop)))

    list(kernel.map_of(mapped)(fill, row_slices(0, n, PANEL)))
    return K


def is_singular(factor: Array) -> bool:
    """Return whether the smallest pivot of a triangular factor is below 1e-4 of the largest: eight digits are lost."""
    pivots = factor.diagonal()
    return bool(pivots.min() < 1e-4 * pivots.max())


@dataclass(frozen=True)
class LandmarkSpace:
    """The span of some samples in the space of the kernel, with orthonormal coordinates.

    Parameters
    ----------
    landmarks : the samples
    factor : lower triangular L with ``L L'`` the kernel matrix of the landmarks; row i holds the coordinates of i
    """

    landmarks: Index
    factor: Array

    def of(self, values: Array) -> Array:
        """Return the coordinates of samples from their kernel values with the landmarks, which are overwritten."""
        # BLAS stores by columns: these arrays are transposes to it.
        solved: Array = dtrsm(1.0, self.factor.T, values.T, side=0, lower=0, trans_a=1, overwrite_b=1)
        return solved.T

    def coefficients(self, W: Array) -> Array:
        """Return the coefficients of the landmarks for rows of coordinates."""
        solved: Array = solve_triangular(self.factor.T, W.T, lower=False)
        return np.ascontiguousarray(solved.T)

    def coordinates(self, coef: Array) -> Array:
        """Return the coordinates for rows of coefficients of the landmarks."""
        return coef @ self.factor


def exact_features(kernel: Kernel, X: Values, mapped: BlockMap = map) -> tuple[Array, Index, LandmarkSpace]:
    """Return features Z of the samples X, ``Z Z'`` their kernel matrix, the order of the samples in Z, and their space.

    A kernel matrix K of full rank is factored without pivots. Any other is factored with pivots; Z then has as many
    columns as K has rank.
    """
    K = kernel_matrix(kernel, X, mapped)
    whole = diagonal(K).copy()
    eps = float(np.finfo(X.dtype).eps) if kernel.is_precomputed else EPS
    least = len(K) * eps * float(whole.max())
    if _factorise(K, least, mapped):
        order = np.arange(len(K))
    else:
        K = kernel_matrix(kernel, X, mapped)
        _, pivots, rank, _ = dpstrf(K.T, lower=0, tol=least, overwrite_a=1)
        order = pivots.astype(np.int64) - 1
        K = np.ascontiguousarray(K[:, : int(rank)])
    for i in range(min(K.shape)):
        K[i, i + 1 :] = 0.0
    n, rank = K.shape
    if rank < n:
        _check_rest(kernel, X, K, order, whole, max(1e-8, 10 * n * eps))
    if rank == 0:  # a kernel of 0 gets a feature of 0
        return np.zeros((n, 1)), order, LandmarkSpace(order[:1], np.ones((1, 1)))
    return K, order, LandmarkSpace(order[:rank], K[:rank])


def _factorise(K: Array, least: float, mapped: BlockMap) -> bool:
    """Overwrite a lower triangle by its Cholesky factor; return False if the square of a pivot is below ``least``.

    Panels of columns are factored from left to right; the rows of a panel are mapped.
    """
    n = len(K)
    for begin in range(0, n, PANEL):
        end = min(n, begin + PANEL)
        above = K[begin:end, :begin]
        corner, failed = dpotrf((K[begin:end, begin:end] - np.tril(above @ above.T)).T, lower=0, clean=1)
        if failed or float(diagonal(corner).min()) ** 2 <= least:
            return False
        K[begin:end, begin:end] = corner.T

        def finish(rows: slice, above: Array = above, corner: Array = corner, panel: slice = slice(begin, end)) -> None:
            part = K[rows, panel] - K[rows, : panel.start] @ above.T
            K[rows, panel] = dtrsm(1.0, corner, part.T, side=0, lower=0, trans_a=1, overwrite_b=1).T

        list(mapped(finish, row_slices(end, n, PANEL)))
    return True


def _check_rest(kernel: Kernel, X: Values, Z: Array, order: Index, whole: Array, allowed: float) -> None:
    """Raise if the kernel matrix K differs from ``Z Z'``: then it is not positive semidefinite.

    The remainder ``K - Z Z'`` of a positive semidefinite matrix is 0. Otherwise its diagonal is negative, or it has
    nonzero entries beside a zero diagonal. Checked are the diagonal and some rows that Z was not made from, against the
    fraction ``allowed`` of the largest entry.
    """
    n, rank = Z.shape
    rest = whole[order] - np.einsum("ij,ij->i", Z, Z)
    index = rank + np.random.default_rng(0).permutation(n - rank)[:PANEL]
    rows = kernel(X[order[index]], kernel.take(X, order)) - Z[index] @ Z.T
    largest = float(np.abs(whole).max())
    worst = max(float(np.abs(rest).max()), float(np.abs(rows).max()))
    if worst > allowed * largest:
        raise ValueError(
            f"kernel must be positive semidefinite: no inner product has the values of {kernel.name!r} on these "
            f"samples (a factorisation leaves {worst:.2g}, where a sample with itself has up to {largest:.2g}); "
            "change its parameters, or clip the negative eigenvalues of a precomputed matrix"
        )


def features_of(kernel: Kernel, X: Any, points: Any, space: LandmarkSpace, dtype: Any, mapped: BlockMap = map) -> Array:
    """Return the features of samples in the span of points (from :meth:`Kernel.take`)."""
    n = X.shape[0]
    Z = np.empty((n, len(space.landmarks)), dtype)

    def fill(part: slice) -> None:
        Z[part] = space.of(np.array(kernel(X[part], points), order="C"))  # a callable may keep its result

    list(kernel.map_of(mapped)(fill, row_slices(0, n, PANEL)))
    return Z


def kernel_scores(kernel: Kernel, X: Values, points: Values, coef: Array, mapped: BlockMap = map) -> Array:
    """Return ``sum_j coef_cj kappa(x_i, x_j)`` for every sample and row of ``coef``, in bounded memory."""
    n = X.shape[0]
    scores = np.zeros((n, len(coef)))
    if coef.shape[1] == 0:  # w = 0
        return scores

    def fill(part: slice) -> None:
        scores[part] = kernel(X[part], points) @ coef.T

    list(kernel.map_of(mapped)(fill, row_slices(0, n, min(PANEL, rows_at_once(coef.shape[1])))))
    return scores


class Gram:
    """The kernel matrix of X, row by row, within a budget of memory.

    The first rows, up to half of the budget, are computed once and kept; other rows are computed at each use.
    """

    def __init__(self, kernel: Kernel, X: Values, n_bytes: float) -> None:
        self.kernel, self.X, self.n_bytes = kernel, X, n_bytes
        self.n_rows = int(X.shape[0])
        row = 8 * self.n_rows
        # scikit-learn may need twice the memory of a block.
        self.n_kept = self.n_rows if row * self.n_rows <= 0.8 * n_bytes else int(0.5 * n_bytes / row)
        self.step = max(1, int(min(PANEL, 0.1 * n_bytes / row)))

    def take(self, index: Index) -> "Gram":
        """Return the kernel matrix of some samples."""
        X = self.X[np.ix_(index, index)] if self.kernel.is_precomputed else self.X[index]
        return Gram(self.kernel, X, self.n_bytes)

    def blocks(self, order: Index) -> Iterator[tuple[slice, Array]]:
        """Yield slices of ``order`` and the rows of K with these numbers."""
        for part in row_slices(0, len(order), self.step):
            yield part, self.rows(order[part])

    def rows(self, index: Index) -> Array:
        """Return a copy of rows of K."""
        kept = index < self.n_kept
        if kept.all():
            return self._kept[index]
        values = np.empty((len(index), self.n_rows))
        values[kept] = self._kept[index[kept]]
        values[~kept] = self._compute(index[~kept])
        return values

    def product(self, coef: Array) -> Array:
        """Return ``K coef``, for a vector or the columns of a matrix."""
        if coef.ndim == 2 and coef.shape[1] <= 2:
            return np.column_stack([self.product(column) for column in coef.T])
        if coef.ndim == 1 and self.n_kept == self.n_rows:
            product: Array = dsymv(1.0, self._kept.T, coef, lower=1)  # reads half of K
            return product
        out = np.empty_like(coef)
        np.matmul(self._kept, coef, out=out[: self.n_kept])
        for part in row_slices(self.n_kept, self.n_rows, self.step):
            out[part] = self._compute(part) @ coef
        return out

    @cached_property
    def squared_norms(self) -> Array:
        """The value of every sample with itself."""
        return self._kept.diagonal().copy() if self.n_kept == self.n_rows else self.kernel.diagonal(self.X)

    @cached_property
    def _kept(self) -> Array:
        if self.n_kept == self.n_rows <= 10_000:
            return self._compute(slice(0, self.n_rows))  # scikit-learn then uses the symmetry: half the work
        kept = np.empty((self.n_kept, self.n_rows))
        for part in row_slices(0, self.n_kept, self.step):
            kept[part] = self._compute(part)
        return kept

    def _compute(self, index: Index | slice) -> Array:
        everything = self.kernel.take(self.X, slice(0, self.n_rows))
        whole = isinstance(index, slice) and index == slice(0, self.n_rows)
        return self.kernel(everything if whole and not self.kernel.is_precomputed else self.X[index], everything)


class KernelRows(Rows):
    """Labelled samples with a kernel matrix in place of columns, computed within a budget of memory."""

    def __init__(self, kernel: Gram, labels: MixedArray, weights: Array | None) -> None:
        super().__init__(np.broadcast_to(np.nan, (kernel.n_rows, 1)), labels, weights)
        self.kernel, self.squared_norms = kernel, kernel.squared_norms

    def take(self, index: Index, weights: Array | None = None) -> "KernelRows":
        """Return some samples, with other weights if given."""
        weights = self.weights[index] if weights is None else weights
        return KernelRows(self.kernel.take(index), self.labels[index], weights)
