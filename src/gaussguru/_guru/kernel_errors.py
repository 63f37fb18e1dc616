"""Error bars in the space of a kernel: mean and covariance of kernel values under noise on the features.

For a sample ``x ~ N(m, S)`` and points ``p_a``, a kernel here has closed forms for

::

    values  E kappa(x, p_a)                    the mean of the features of the sample
    E grad kappa(x, p_a) = A k_a (p_a - o m)   its gradient by m, which is the mean of the gradient

with a number ``k_a``, a matrix A of the sample, and o = 1 for kernels of differences and 0 for those of inner products.
A score ``f = sum_a c_a kappa(., p_a)`` then has the mean gradient ``g = A (sum_a c_a k_a p_a - o m sum_a c_a k_a)``,
from one product of the matrix of ``k`` with d + 1 columns, and the spread ``s^2 = g' S g``. That is the variance of the
best linear approximation of f under the noise, the first term of ::

    Var f = sum_{l > 0} <E D^l f, E D^l f>_S / l!        (D^l f: all l-th derivatives, inner products by S)

So it never exceeds the variance, and is exact for linear kernels. ``second_moments`` has all terms.

:class:`KernelErrors` holds the covariances of features to first order, ``Sigma_i = J_i S_i J_i'`` with the Jacobian J
of the expected features. They are not stored: products with them are computed from the slopes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from gaussguru._errors.arrays import any_roots
from gaussguru._errors.correlated import Factored
from gaussguru._errors.forms import Errors, Roots
from gaussguru._guru.kernel_matrix import PANEL, Kernel, LandmarkSpace, is_singular
from gaussguru._utils.blocks import MOST_STORED, row_blocks, row_slices, rows_at_once
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import BlockMap, Values


class Expected(NamedTuple):
    """Expected kernel values and gradients of samples with all points (see the module).

    Attributes
    ----------
    values : array (n_samples, n_points)
    slopes : array (n_samples, n_points): the ``k_a``
    turns : array (n_samples, n_features) or (n_samples, n_features, n_features), or None for 1: the ``A``
    centres : array (n_samples, n_features), or None where ``o`` is 0
    """

    values: Array
    slopes: Array
    turns: Array | None
    centres: Array | None

    def gradients(self, points: Array, coef: Array) -> Array:
        """Return the mean gradients of scores, (n_samples, n_scores, n_features), for every row of ``coef``."""
        (m, d), n_scores = points.shape, len(coef)
        weighted = (coef[:, :, np.newaxis] * points).transpose(1, 0, 2).reshape(m, n_scores * d)
        along = (self.slopes @ weighted).reshape(len(self.values), n_scores, d)
        if self.centres is not None:
            along = along - (self.slopes @ coef.T)[:, :, np.newaxis] * self.centres[:, np.newaxis]
        return turned(self.turns, along)


def turned(matrices: Array | None, vectors: Array) -> Array:
    """Return symmetric matrices, or their diagonals, times vectors, of shape (n_samples, n_vectors, n_features)."""
    if matrices is None:
        return vectors
    return vectors * matrices[:, np.newaxis] if matrices.ndim == 2 else vectors @ matrices


class GaussianKernel:
    """``exp(-gamma ||x - p||^2)``."""

    def __init__(self, kernel: Kernel) -> None:
        self.gamma, self.centre = float(kernel.params["gamma"]), kernel.centre

    def _centred(self, X: Array) -> Array:
        return X if self.centre is None else X - self.centre

    def _inverses(self, V: Array, factor: float) -> tuple[Array, Array]:
        """Return ``(I + factor S)^-1`` and the logarithms of the determinants of ``I + factor S``."""
        if V.ndim == 2:
            return 1 / (1 + factor * V), np.log1p(factor * V).sum(axis=1)
        whole = np.eye(V.shape[1]) + factor * V
        _, logs = np.linalg.slogdet(whole)
        inverse = np.linalg.inv(whole)
        return (inverse + inverse.transpose(0, 2, 1)) / 2, logs

    @staticmethod
    def _distances(A: Array, X: Array, P: Array) -> Array:
        """Return ``(x - p)' A (x - p)``."""
        AX = turned(A, X[:, np.newaxis])[:, 0]
        squares = _quadratic(A, P)
        squares += np.einsum("ij,ij->i", AX, X)[:, np.newaxis] - 2 * (AX @ P.T)
        return np.maximum(squares, 0.0, out=squares)

    def expected(self, X: Array, V: Array, points: Array) -> Expected:
        """Return ``|I + 2 gamma S|^-1/2 exp(-gamma (m - p)' A (m - p))``, ``A = (I + 2 gamma S)^-1``."""
        X, P = self._centred(X), self._centred(points)
        A, logs = self._inverses(V, 2 * self.gamma)
        values = self._distances(A, X, P)
        values *= -self.gamma
        values -= 0.5 * logs[:, np.newaxis]
        np.exp(values, out=values)
        return Expected(values, 2 * self.gamma * values, A, X)

    def points(self, points: Array) -> Array:
        """Return points in the coordinates of :attr:`Expected.centres`."""
        return self._centred(points)

    keeps_slopes = False

    def lifted(self, slopes: Array, features: Array, factor: Array) -> tuple[Array, Array]:
        """Return Q and T with slopes ``Q T'``: slopes are multiples of values, so Q are the features."""
        return features, 2 * self.gamma * factor

    def second_moments(self, X: Array, V: Array, points: Array) -> Array:
        """Return ``E kappa(x, a) kappa(x, b)``.

        ::

            exp(-gamma ||a - b||^2 / 2) |B|^1/2 exp(-2 gamma (m - c)' B (m - c))
            c = (a + b)/2,   B = (I + 4 gamma S)^-1

        With ``m - c = ((m - a) + (m - b)) / 2`` the form in m and c is a sum of those in ``m - a`` and ``m - b``.
        """
        X, P = self._centred(X), self._centred(points)
        B, logs = self._inverses(V, 4 * self.gamma)
        differences = X[:, np.newaxis] - P
        inner = turned(B, differences) @ differences.transpose(0, 2, 1)
        norms = np.einsum("iaa->ia", inner)
        inner = inner + 0.5 * (norms[:, :, np.newaxis] + norms[:, np.newaxis])
        squares = np.square(P[:, np.newaxis] - P).sum(axis=2)
        inner += 0.5 * squares
        return np.asarray(np.exp(-self.gamma * inner - 0.5 * logs[:, np.newaxis, np.newaxis]))


class Polynomial:
    """``(gamma x.p + coef0)^degree``; degree 1 is the linear kernel."""

    def __init__(self, kernel: Kernel) -> None:
        linear = kernel.name == "linear"
        self.gamma = 1.0 if linear else float(kernel.params["gamma"])
        self.constant = 0.0 if linear else float(kernel.params["coef0"])
        self.degree = 1 if linear else int(kernel.params["degree"])

    def _powers(self, M: Array, v: Array, degree: int) -> Array:
        """Return ``E (M + sqrt(v) e)^degree``, e standard normal: ``sum_k C(p, 2k) (2k - 1)!! M^(p - 2k) v^k``."""
        total = np.zeros(np.broadcast_shapes(M.shape, v.shape))
        for k in range(degree // 2 + 1):
            pairings = math.comb(degree, 2 * k) * math.prod(range(1, 2 * k, 2))
            total += pairings * M ** (degree - 2 * k) * v**k
        return total

    def expected(self, X: Array, V: Array, points: Array) -> Expected:
        """Return the mean of a power of a normal variable, and ``degree gamma`` times that of the next lower power."""
        M = self.gamma * (X @ points.T) + self.constant
        if self.degree <= 1:
            slopes = np.broadcast_to(self.gamma * self.degree, M.shape)
            return Expected(M if self.degree else np.ones_like(M), slopes, None, None)
        v = self.gamma**2 * _quadratic(V, points)
        slopes = self.degree * self.gamma * self._powers(M, v, self.degree - 1)
        return Expected(self._powers(M, v, self.degree), slopes, None, None)

    def points(self, points: Array) -> Array:
        """Return points as they are."""
        return points

    @property
    def keeps_slopes(self) -> bool:
        """Whether slopes must be stored: they differ between samples and are no multiples of the features."""
        return self.degree > 1

    def lifted(self, slopes: Array, features: Array, factor: Array) -> tuple[Array, Array | None]:
        """Return Q and T with slopes ``Q T'``, T None for 1; with degree 1 all samples have the same slopes."""
        if self.keeps_slopes:
            return slopes, None
        return np.ones((len(features), 1)), np.full((len(factor), 1), self.gamma * self.degree)

    def second_moments(self, X: Array, V: Array, points: Array) -> Array:
        """Return ``sum_l c_ab^l / l! E D^l kappa_a E D^l kappa_b``, with the covariance ``c_ab = gamma^2 a' S b``."""
        M = self.gamma * (X @ points.T) + self.constant
        v = self.gamma**2 * _quadratic(V, points)
        shape = (len(X), *points.shape)
        c = self.gamma**2 * turned(V, np.broadcast_to(points, shape)) @ points.T
        total = np.zeros((len(X), len(points), len(points)))
        for order in range(self.degree + 1):
            slopes = math.perm(self.degree, order) * self._powers(M, v, self.degree - order)
            total += c**order / math.factorial(order) * slopes[:, :, np.newaxis] * slopes[:, np.newaxis]
        return total


def _quadratic(matrices: Array, points: Array) -> Array:
    """Return ``p' M_i p`` for matrices, or their diagonals, and points."""
    if matrices.ndim == 2:
        return np.asarray(matrices @ np.square(points).T)
    n, d, _ = matrices.shape
    products = points[:, :, np.newaxis] * points[:, np.newaxis]
    return np.asarray(matrices.reshape(n, d * d) @ products.reshape(len(points), d * d).T)


KINDS: dict[Any, Callable[[Kernel], Any]] = {
    "rbf": GaussianKernel,
    "linear": Polynomial,
    "poly": Polynomial,
    "polynomial": Polynomial,
}


def check_kernel(kernel: object, degree: float) -> None:
    """Raise if the mean of a kernel under noise has no closed form here."""
    reasons: dict[object, str] = {
        "laplacian": "it has a kink where samples meet, so its gradient does not tell how far noise moves a score",
        "chi2": "it is for features that are not negative, which Gaussian noise does not leave so",
        "precomputed": "kernel values alone do not tell how they change with the features",
    }
    name = "a callable" if callable(kernel) else repr(kernel)
    if callable(kernel) or kernel not in KINDS:
        reason = reasons.get(kernel, "no closed form of its mean under noise is known")
    elif kernel in ("rbf", "linear") or float(degree).is_integer():
        return
    else:
        name, reason = f"{name} of degree {degree:g}", "only whole powers of a normal number have a mean"
    raise ValueError(
        f"X_err is not supported with kernel={name}: {reason}; use 'rbf', 'linear' or 'poly' of a whole degree, or "
        "give the values without errors"
    )


def kind_of(kernel: Kernel) -> Any:
    """Return the closed forms of a kernel that passed :func:`check_kernel`."""
    return KINDS[kernel.name](kernel)


def dense_rows(X: Values) -> Array:
    """Return samples as a dense array of float64."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)


def _blocks(n: int, width: int) -> list[slice]:
    """Return blocks of rows with ``width`` numbers per row."""
    return row_slices(0, n, min(2 * PANEL, rows_at_once(width)))


class Points(NamedTuple):
    """Points that span the features: coordinates, Cholesky factor L, and the T of ``slopes = Q T'`` (None for 1)."""

    at: Array
    factor: Array
    lift: Array | None

    def raised(self, sums: Array) -> Array:
        """Return ``T Y``."""
        return sums if self.lift is None else self.lift @ sums

    def lowered(self, weights: Array) -> Array:
        """Return ``T' Y``."""
        return weights if self.lift is None else self.lift.T @ weights


@dataclass(frozen=True, eq=False)
class KernelErrors(Errors):
    """Covariances ``F_i F_i'`` of features, ``F_i = J_i R_i`` with the Jacobian of the features and a root of S_i.

    The gradient of ``u.z``, of features z, is that of a score with the coefficients ``c = L^-T u``.

    Parameters
    ----------
    slopes : array (n_samples, n_columns): Q, with ``slopes = Q T'`` (module)
    roots_of : array (n_samples, n_features) or (n_samples, rank, n_features): ``R_i' A_i``
    centres : array (n_samples, n_features), or None
    points : the points that span the features
    """

    slopes: Array
    roots_of: Array
    centres: Array | None
    points: Points

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.slopes)

    @property
    def rank(self) -> int:
        """The number of columns of the roots."""
        return int(self.roots_of.shape[1])

    @property
    def work(self) -> tuple[float, float]:
        """Measured; products with many columns at a time save time, Gram matrices do not."""
        return 1.0 + 0.4 * self.rank, 2.0 + 2.0 * self.rank

    @property
    def least_rows(self) -> int:
        """A multiple of the number of points, whose matrix every product reads."""
        return 8 * len(self.points.at)

    def along(self, U: Array) -> Array:
        """Return ``F_i' u``, of shape (n_samples, len(U), rank): one product with ``len(U) (d + 1)`` columns."""
        at, (n, k) = self.points.at, (self.n_samples, len(U))
        d = at.shape[1]
        C = solve_triangular(self.points.factor.T, U.T, lower=False, check_finite=False).T
        weighted = self.points.lowered((C[:, :, np.newaxis] * at).transpose(1, 0, 2).reshape(len(at), k * d))
        if self.centres is None:
            return self._turned((self.slopes @ weighted).reshape(n, k, d))
        both = self.slopes @ np.hstack([weighted, self.points.lowered(C.T)])
        along = both[:, : k * d].reshape(n, k, d)
        along -= both[:, k * d :, np.newaxis] * self.centres[:, np.newaxis]
        return self._turned(along)

    def back(self, along: Array) -> Array:
        """Return ``sum_i F_i c_i`` for the rows ``c_i`` of an array: one product with d + 1 columns."""
        inner = self._inner(along)
        if self.centres is None:
            sums = np.einsum("aj,aj->a", self.points.at, self.points.raised(self.slopes.T @ inner))
        else:
            offset = -np.einsum("ij,ij->i", inner, self.centres)
            both = self.points.raised(self.slopes.T @ np.column_stack([inner, offset]))
            sums = np.einsum("aj,aj->a", self.points.at, both[:, :-1]) + both[:, -1]
        return self._in_features(sums[:, np.newaxis])[:, 0]

    def _turned(self, along: Array) -> Array:
        if self.roots_of.ndim == 2:
            return along * self.roots_of[:, np.newaxis]
        return np.asarray(along @ self.roots_of.transpose(0, 2, 1))

    def _inner(self, along: Array) -> Array:
        """Return ``h_i = A_i R_i c_i`` for the rows ``c_i`` of an array."""
        if self.roots_of.ndim == 2:
            return along * self.roots_of
        return np.asarray((along[:, np.newaxis] @ self.roots_of)[:, 0])

    def _in_features(self, sums: Array) -> Array:
        """Return ``L^-1 Y``."""
        return np.asarray(solve_triangular(self.points.factor, sums, lower=True, check_finite=False))

    def _all_slopes(self) -> Array:
        """Return the slopes of all points."""
        return self.slopes if self.points.lift is None else self.slopes @ self.points.lift.T

    def _offsets(self, inner: Array) -> Array:
        """Return ``h_i.(p_a - o m_i)`` for rows ``h_i``: times the slopes they are ``J_i h_i``, as kernel values."""
        values = inner @ self.points.at.T
        if self.centres is not None:
            values -= np.einsum("ij,ij->i", inner, self.centres)[:, np.newaxis]
        return np.asarray(values)

    def _columns(self, j: int) -> Array:
        """Return :meth:`_offsets` of column j of the roots."""
        if self.roots_of.ndim == 3:
            return self._offsets(self.roots_of[:, j])
        values = np.multiply.outer(self.roots_of[:, j], self.points.at[:, j])
        if self.centres is not None:
            values -= (self.roots_of[:, j] * self.centres[:, j])[:, np.newaxis]
        return values

    def seen(self, *directions: Array) -> Roots:
        """Return the errors along some directions, from one product."""
        return Roots(self.back, np.moveaxis(self.along(np.array(directions)), 1, 0))

    def variances(self, U: Array) -> Array:
        """Return ``||F_i' u||^2``."""
        along = self.along(U)
        return np.asarray(np.einsum("ikj,ikj->ik", along, along))

    def times(self, u: Array) -> Array:
        """Return ``F_i F_i' u``."""
        inner = self._inner(self.along(u[np.newaxis])[:, 0])
        return np.ascontiguousarray(self._in_features((self._offsets(inner) * self._all_slopes()).T).T)

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i F_i F_i'``: a Gram matrix for every column of the roots.

        They are summed for kernel values, and transformed to features at the end, unless the factor of the points is
        nearly singular: then each one is transformed.
        """
        # Rows of a smaller weight change no digit of a step; no certificate uses this matrix.
        used = np.flatnonzero(t > 1e-6 * t.max(initial=0.0))
        errors = self.take(used)
        slopes = errors._all_slopes() * np.sqrt(t[used])[:, np.newaxis]
        late, total = not is_singular(self.points.factor), np.zeros_like(out)
        for j in range(self.rank):
            columns = errors._columns(j)
            columns *= slopes
            if not late:
                columns = self._in_features(columns.T).T
            total += columns.T @ columns
        out += self._in_features(self._in_features(total).T) if late else total

    def roots(self, t: Array) -> Array:
        """Return ``sum t_i F_i``."""
        at, centres = self.points.at, self.centres
        if self.roots_of.ndim == 2:
            weighted = t[:, np.newaxis] * self.roots_of
            sums = at * self.points.raised(self.slopes.T @ weighted)
            offsets = None if centres is None else weighted * centres
        else:
            (n, rank, d), weighted = self.roots_of.shape, t[:, np.newaxis, np.newaxis] * self.roots_of
            products = self.points.raised(self.slopes.T @ weighted.reshape(n, rank * d))
            sums = np.einsum("aj,arj->ar", at, products.reshape(len(at), rank, d))
            offsets = None if centres is None else (weighted @ centres[:, :, np.newaxis])[:, :, 0]
        if offsets is not None:
            sums = sums - self.points.raised(self.slopes.T @ offsets)
        return self._in_features(sums)

    @staticmethod
    def length(v: Array, roots: Array, isotropic: Array | float = 0.0) -> float:
        """Return the least c with ``u.v <= c sqrt(||R' u||^2 + n^2 ||u||^2)``, n the least of ``isotropic``, by SVD."""
        least = float(np.min(isotropic))
        axes, sizes, _ = np.linalg.svd(roots, full_matrices=False)
        along = axes.T @ v
        across = float(np.linalg.norm(v - axes @ along))
        radii = np.hypot(sizes, least)
        if least == 0 or not radii.all():
            return np.inf  # no noise across the axes
        with np.errstate(over="ignore"):
            return float(np.hypot(np.linalg.norm(along / radii), across / least))

    def scaled(self, factor: float) -> "KernelErrors":
        """Return all errors multiplied by a factor."""
        return replace(self, roots_of=self.roots_of * factor)

    def take(self, index: Index | slice) -> "KernelErrors":
        """Return the errors of some samples."""
        centres = None if self.centres is None else self.centres[index]
        return replace(self, slopes=self.slopes[index], roots_of=self.roots_of[index], centres=centres)


def noisy_features(
    kernel: Kernel, X: Any, errors: Errors, points: Array, space: LandmarkSpace, mapped: BlockMap = map, *, exact: bool
) -> tuple[Array, Errors]:
    """Return expected features of samples in the span of points, and their error bars.

    With ``exact``, covariances of all features are stored; otherwise :class:`KernelErrors` has them to first order.
    """
    kind, n, m = kind_of(kernel), X.shape[0], len(points)
    if exact:
        return _exact_features(kind, X, errors, points, space)
    shape = errors.take(slice(0)).dense().shape[1:]
    Z, roots = np.empty((n, m)), np.empty((n, *shape))
    slopes, centres = np.empty((n, m) if kind.keeps_slopes else (0, 0)), np.empty((n, X.shape[1]))

    def fill(part: slice) -> bool:
        V = errors.take(part).dense()
        expected: Expected = kind.expected(dense_rows(X[part]), V, points)
        if kind.keeps_slopes:
            slopes[part] = expected.slopes
        Z[part] = space.of(expected.values)
        root = np.sqrt(V) if V.ndim == 2 else any_roots(V).transpose(0, 2, 1)
        if expected.turns is not None:
            root = root * expected.turns if V.ndim == 2 else root @ expected.turns
        roots[part] = root
        if expected.centres is not None:
            centres[part] = expected.centres
        return expected.centres is not None

    is_centred = all(list(mapped(fill, _blocks(n, 4 * m + 4 * int(np.prod(shape))))))
    kept, lift = kind.lifted(slopes, Z, space.factor)
    points = kind.points(points)
    return Z, KernelErrors(kept, roots, centres if is_centred else None, Points(points, space.factor, lift))


def _exact_features(kind: Any, X: Values, errors: Errors, points: Array, space: LandmarkSpace) -> tuple[Array, Errors]:
    """Return expected features and their covariances."""
    n, m = X.shape[0], len(points)
    if n * m * m > MOST_STORED:
        raise ValueError(
            f"spread='exact' stores {n} covariances of {m} features in a fit, {8e-9 * n * m * m:.0f} GB: use "
            "spread='gradient', or fewer n_components"
        )
    Z, roots = np.empty((n, m)), np.empty((n, m, m))
    for part in row_blocks(n, m * m):
        rows, V = dense_rows(X[part]), errors.take(part).dense()
        Z[part] = space.of(np.array(kind.expected(rows, V, points).values, order="C"))
        half = solve_triangular(space.factor, _side_by_side(kind.second_moments(rows, V, points)), lower=True)
        moments = solve_triangular(space.factor, _side_by_side(_matrices(half)), lower=True)
        whole = _matrices(moments) - Z[part, :, np.newaxis] * Z[part, np.newaxis]
        # Rounding errors make tiny variances negative.
        values, axes = np.linalg.eigh((whole + whole.transpose(0, 2, 1)) / 2)
        roots[part] = (axes * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis]).transpose(0, 2, 1)
    return Z, Factored(np.zeros((n, m)), roots.transpose(0, 2, 1))


def _side_by_side(matrices: Array) -> Array:
    """Return the transposes of square matrices side by side, (m, n m)."""
    n, m, _ = matrices.shape
    return np.asarray(matrices.transpose(2, 0, 1).reshape(m, n * m))


def _matrices(beside: Array) -> Array:
    """Return square matrices (n, m, m) from an array that holds them side by side."""
    m = len(beside)
    return np.asarray(beside.reshape(m, -1, m).transpose(1, 0, 2))


def noisy_scores(
    kernel: Kernel,
    X: Values,
    errors: Errors,
    points: object,
    coef: Array,
    mapped: BlockMap = map,
    *,
    exact: bool,
    of: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """Return expected scores of samples with error bars, and ``of(covariances of the scores)``, block by block.

    The scores are ``sum_a coef_ca kappa(x_i, p_a)``, of shape (n_samples, n_scores); ``of`` is given covariances of
    shape (n_samples, n_scores, n_scores) and returns an array with a row for each sample. Memory is bounded.
    """
    kind, n, n_scores = kind_of(kernel), X.shape[0], len(coef)
    points = dense_rows(points)
    m, d = points.shape
    scores = np.zeros((n, n_scores))
    made: Array = np.asarray(of(np.zeros((0, n_scores, n_scores))))
    spreads = np.empty((n, *made.shape[1:]))
    at = kind.points(points)

    def fill(part: slice) -> None:
        rows, V = dense_rows(X[part]), errors.take(part).dense()
        if m == 0:  # w = 0
            spreads[part] = of(np.zeros((len(rows), n_scores, n_scores)))
            return
        expected: Expected = kind.expected(rows, V, points)
        scores[part] = expected.values @ coef.T
        if exact:
            few = row_blocks(len(rows), m**2)
            moments = [coef @ kind.second_moments(rows[k], V[k], points) @ coef.T for k in few]
            covariances = np.concatenate(moments) - scores[part, :, np.newaxis] * scores[part, np.newaxis]
        else:
            gradients = expected.gradients(at, coef)
            covariances = gradients @ turned(V, gradients).transpose(0, 2, 1)
        spreads[part] = of(covariances)

    list(mapped(fill, _blocks(n, 4 * m + 2 * d * d + 2 * n_scores * d)))
    return scores, spreads
