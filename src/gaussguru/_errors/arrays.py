"""Standard deviations and covariances as arrays: their checks, and roots of covariances."""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gaussguru._native import _binding
from gaussguru._utils.blocks import rows_at_once
from gaussguru._utils.frames import as_numbers
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import BlockMap, ErrorBars, Values

Kind = TypeVar("Kind")
# Largest asymmetry and negative eigenvalue of a covariance, relative to its largest entry.
ROUNDING = 1e-8
# Mask of missing values, (n_samples, n_features); None if there are none.
Gaps = NDArray[np.bool_] | None


def in_public_module(kind: type[Kind]) -> type[Kind]:
    """Give a class the path of the public module, which pickles and model files store."""
    kind.__module__ = "gaussguru.errors"
    return kind


def block_firsts(values: Values) -> range:
    """Return the first rows of blocks that fit in cache."""
    return range(0, len(values), rows_at_once(float(np.prod(values.shape[1:])), cached=True))


def finite_least(values: Array, map: BlockMap = map) -> float | None:
    """Return the minimum of values, or None if any is not finite; one pass, blocks of rows are mapped."""
    firsts = block_firsts(values)

    def look(first: int) -> tuple[bool, float]:
        block = np.ascontiguousarray(values[first : first + firsts.step], dtype=np.float64).reshape(-1)
        total, least = _binding.survey(block)
        return math.isfinite(total) or bool(np.isfinite(block).all()), least

    parts = list(map(look, firsts))
    return min((least for _, least in parts), default=np.inf) if all(finite for finite, _ in parts) else None


def check_given(values: Array, name: str) -> None:
    """Raise if any error bar is NaN."""
    if np.isnan(values).any():
        raise ValueError(
            f"{name} has NaN: every value needs an error bar; use infinity for values that were not measured, 0 for "
            "exact values"
        )


def error_numbers(given: ErrorBars, name: str) -> Array:
    """Return error bars as float64, infinite where masked: a value with a masked error counts as missing."""
    if getattr(getattr(given, "dtype", None), "kind", "f") == "b":
        raise ValueError(f"{name} must hold standard deviations; got booleans: values not measured are NaN in X")
    errors = as_numbers(given, name)
    if isinstance(given, np.ma.MaskedArray) and given.mask is not np.ma.nomask:
        errors = np.where(given.mask, np.inf, errors)
    return errors


def deviations(std: Array, name: str, gaps: Gaps) -> Array:
    """Return standard deviations; raise if any is negative, or NaN for a value that is not missing."""
    least = finite_least(std)
    if least is None:
        missing = gaps if gaps is None or std.ndim == 2 else gaps.all(axis=1)
        check_given(std if missing is None else np.where(missing, 0.0, std), name)
        least = float(np.nanmin(std, initial=0.0))
    if least < 0:
        raise ValueError(f"{name} must hold nonnegative standard deviations; got {least:g}")
    return std


def check_semidefinite(covariances: Array, name: str) -> None:
    """Raise unless finite covariances are symmetric and positive semidefinite."""
    firsts = block_firsts(covariances)
    for first in firsts:
        block = covariances[first : first + firsts.step]
        largest = np.maximum(np.abs(block).max(axis=(1, 2)), np.finfo(np.float64).tiny)
        skew = np.abs(block - block.transpose(0, 2, 1)).max(axis=(1, 2)) / largest
        if skew.max(initial=0.0) > ROUNDING:
            sample = first + int(np.argmax(skew))
            raise ValueError(
                f"{name} must hold symmetric covariances; that of sample {sample} differs from its transpose"
            )
        try:  # ten times as fast as eigenvalues, which name the wrong sample
            np.linalg.cholesky(block / largest[:, np.newaxis, np.newaxis] + ROUNDING * np.eye(block.shape[1]))
        except np.linalg.LinAlgError:
            least = np.linalg.eigvalsh(block)[:, 0]
            wrong = np.flatnonzero(least < -ROUNDING * largest)
            if len(wrong):
                raise ValueError(
                    f"{name} must hold positive semidefinite covariances; that of sample {first + wrong[0]} has the "
                    f"eigenvalue {least[wrong[0]]:.3g}"
                ) from None


def semidefinite_roots(covariances: Array) -> Array:
    """Return L with ``L L'`` the covariances (..., d, d), which may be singular.

    L is ``diag(std)`` times the symmetric root of the correlations: rounding errors are relative to each feature and do
    not depend on units. L is continuous in the covariance.
    """
    std = np.sqrt(np.maximum(np.einsum("...jj->...j", covariances), 0.0))
    units = np.where(std > 0, std, 1.0)
    values, axes = np.linalg.eigh(covariances / units[..., np.newaxis, :] / units[..., np.newaxis])
    scaled = axes * np.sqrt(np.sqrt(np.maximum(values, 0.0)))[..., np.newaxis, :]
    return np.asarray(units[..., np.newaxis] * (scaled @ np.swapaxes(scaled, -1, -2)))


def roots_of(covariances: Array, map: BlockMap = map) -> tuple[Array, bool]:
    """Return R with ``R' R`` the covariances, and whether all are far from singular; blocks of rows are mapped.

    R are Cholesky factors or, in blocks with singular covariances, transposed :func:`semidefinite_roots`.
    """
    firsts = block_firsts(covariances)
    roots = np.empty(covariances.shape)

    def fill(first: int) -> bool:
        block = slice(first, first + firsts.step)
        try:
            lower = np.linalg.cholesky(covariances[block])
        except np.linalg.LinAlgError:
            roots[block] = semidefinite_roots(covariances[block]).transpose(0, 2, 1)
            return False
        roots[block] = lower.transpose(0, 2, 1)
        pivots = np.einsum("ijj->ij", lower)
        # Then variances from products have ten digits.
        return bool(np.all(pivots.min(axis=1) > 1e-3 * pivots.max(axis=1)))

    return roots, all(list(map(fill, firsts)))


def any_roots(covariances: Array) -> Array:
    """Return L with ``L L'`` the covariances: Cholesky factors, or :func:`semidefinite_roots` if one is singular."""
    try:
        return np.asarray(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:
        return semidefinite_roots(covariances)
