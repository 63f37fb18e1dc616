"""Numbers that users give, as arrays; and what must hold of standard deviations and covariances."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from gaussguru._blocks import rows_at_once
from gaussguru._linalg import Array
from gaussguru._native import _binding

# How far a covariance may be from symmetric and positive semidefinite, relative to its largest entry.
ROUNDING = 1e-8
# Pivots of a covariance that is far from singular, relative to the largest: variances by products then have ten digits.
DEFINITE = 1e-3


def as_numbers(values: Any, name: str) -> Array:
    """Return values as an array of float64, finite or not."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.size:
        return values
    try:
        array = check_array(values, ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error
    return np.asarray(array)


def take_rows(values: Any, index: Any) -> Any:
    """Return rows of an array, sparse matrix, DataFrame, list or :class:`LowRank`."""
    if isinstance(index, tuple):  # scikit-learn asks for array[rows, ...]
        index = index[0]
    if hasattr(values, "iloc"):
        return values.iloc[index]
    if not hasattr(values, "shape"):
        values = np.asarray(values)
    return values[index]


def like(X: Any, values: Array) -> Any:
    """Return values as a DataFrame with the names of X, if X is one, and in its precision if it is an array."""
    if hasattr(X, "iloc"):
        return type(X)(values, index=X.index if len(X) == len(values) else None, columns=X.columns)
    return values.astype(X.dtype, copy=False) if getattr(X, "dtype", None) == np.float32 else values


def names_of(table: Any, axis: str) -> NDArray[Any] | None:
    """Return the names of columns (as in scikit-learn, texts) or rows of a table, if it has any."""
    names = getattr(table, axis, None)
    if names is None or callable(names):  # a list has a method of that name
        return None
    named = np.asarray(names)
    if axis == "columns":
        return named if all(isinstance(name, str) for name in names) else None
    return named


def block_firsts(values: Any) -> range:
    """Return where blocks of rows begin."""
    return range(0, len(values), rows_at_once(float(np.prod(values.shape[1:])), cached=True))


def finite_least(values: Array, map: Any = map) -> float | None:
    """Return the least of values if all are finite, from one look; blocks of rows are mapped."""
    firsts = block_firsts(values)

    def look(first: int) -> tuple[bool, float]:
        block = np.ascontiguousarray(values[first : first + firsts.step], dtype=np.float64).reshape(-1)
        total, least = _binding.survey(block)
        return math.isfinite(total) or bool(np.isfinite(block).all()), least

    parts = list(map(look, firsts))
    return min((least for _, least in parts), default=np.inf) if all(finite for finite, _ in parts) else None


def check_finite(values: Array, name: str, map: Any) -> float:
    """Return the least of values, all of them finite."""
    least = finite_least(values, map)
    if least is not None:
        return least
    check_given(values, name)
    raise ValueError(f"{name} has infinity where only finite numbers are allowed")


def check_given(values: Array, name: str) -> None:
    """Raise if there is a value without an error bar."""
    if np.isnan(values).any():
        raise ValueError(
            f"{name} has NaN: every value needs an error bar; use infinity for values that were not measured, 0 for "
            "exact values"
        )


def check_sign(least: float, name: str) -> None:
    """Raise if the least of standard deviations is negative."""
    if least < 0:
        raise ValueError(f"{name} must hold nonnegative standard deviations; got {least:g}")


def check_symmetric(covariances: Array, first: int = 0) -> Array:
    """Return the largest entries of matrices, all of them symmetric; ``first`` is the number of the first one."""
    largest = np.maximum(np.abs(covariances).max(axis=(1, 2)), np.finfo(np.float64).tiny)
    apart = np.abs(covariances - covariances.transpose(0, 2, 1)).max(axis=(1, 2)) / largest
    if apart.max(initial=0.0) > ROUNDING:
        i = first + int(np.argmax(apart))
        raise ValueError(f"X_err must hold symmetric covariances; that of sample {i} differs from its transpose")
    return np.asarray(largest)


def check_positive(covariances: Array, first: int = 0) -> None:
    """Raise if one of some covariances has a negative eigenvalue; ``first`` is the number of the first one."""
    if covariances.ndim < 3:
        return
    least = np.linalg.eigvalsh(covariances)[:, 0]
    wrong = np.flatnonzero(least < -ROUNDING * np.abs(covariances).max(axis=(1, 2)))
    if len(wrong):
        raise _not_semidefinite(first + wrong[0], f"has the eigenvalue {least[wrong[0]]:.3g}")


def check_variances(variances: Array, sizes: Array, first: int = 0) -> None:
    """Raise if covariances make variances, of shape (n_samples, n_directions), that are negative beside their sizes."""
    least = variances.min(axis=1, initial=0.0)
    wrong = np.flatnonzero(least < -ROUNDING * sizes)
    if len(wrong):
        raise _not_semidefinite(first + wrong[0], f"makes the variance {least[wrong[0]]:.3g}")


def _not_semidefinite(sample: int, why: str) -> ValueError:
    return ValueError(f"X_err must hold positive semidefinite covariances; that of sample {sample} {why}")


def symmetric_roots(values: Array, axes: Array) -> Array:
    """Return symmetric roots of covariances with these eigenvalues and eigenvectors."""
    scaled = axes * np.sqrt(np.sqrt(np.maximum(values, 0.0)))[:, np.newaxis, :]
    return np.asarray(scaled @ scaled.transpose(0, 2, 1))


def roots_of(covariances: Array, map: Any = map) -> tuple[Array, bool]:
    """Return R with ``R' R`` the covariances, and whether all are far from singular; blocks of rows are mapped.

    R are Cholesky factors or, in blocks with singular covariances, symmetric. What is no covariance raises.
    """
    firsts = block_firsts(covariances)
    roots = np.empty(covariances.shape)

    def fill(first: int) -> bool:
        some = covariances[first : first + firsts.step]
        largest = check_symmetric(some, first)
        try:  # ten times as fast as eigenvalues, which tell what is wrong, or singular
            lower = np.linalg.cholesky(some)
        except np.linalg.LinAlgError:
            values, axes = np.linalg.eigh(some)
        else:
            roots[first : first + firsts.step] = lower.transpose(0, 2, 1)
            pivots = np.einsum("ijj->ij", lower)
            return bool(np.all(pivots.min(axis=1) > DEFINITE * pivots.max(axis=1)))
        least = values[:, 0] / largest
        if least.min(initial=0.0) < -ROUNDING:
            i = int(np.argmin(least))
            raise _not_semidefinite(first + i, f"has the eigenvalue {values[i, 0]:.3g}")
        roots[first : first + firsts.step] = symmetric_roots(values, axes)
        return False

    return roots, all(list(map(fill, firsts)))


def any_roots(covariances: Array) -> Array:
    """Return roots of covariances: Cholesky factors, or symmetric ones where one of them is singular."""
    try:
        return np.asarray(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:
        return roots_of(covariances)[0].transpose(0, 2, 1)
