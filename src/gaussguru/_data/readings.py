"""Measured values with their noise, in the form in which a population looks at them."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from gaussguru._blocks import rows_at_once
from gaussguru._errors import ROUNDING, Limits, LowRank, as_numbers
from gaussguru._errors.arrays import finite_least
from gaussguru._linalg import Array

# The most rows of a block (measured with 3 features: of fewer NumPy has little to do at a time, more leave the cache).
ROWS = 4096


@dataclass(frozen=True)
class Readings:
    """Values and their noise, checked: finite everywhere, and 0 where nothing was measured.

    ``variances`` are those of independent noise; ``factors`` add ``F_i F_i'``; ``covariances`` stand alone. Values that
    are limits were not measured; ``sides`` says of which kind they are, -1 for upper and 1 for lower ones, ``bounds``
    where they are, and ``doubts`` what variance they have.
    """

    values: NDArray[Any]
    variances: Array | None
    known: NDArray[np.bool_] | None = None
    factors: Array | None = None
    covariances: Array | None = None
    sides: NDArray[np.int8] | None = None
    bounds: Array | None = None
    doubts: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Readings":
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {name: None if part is None else part[index] for name, part in parts.items()}
        return Readings(**taken)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values."""
        return self.values.shape

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.values.shape[1])

    @property
    def is_diagonal(self) -> bool:
        """Whether the noise of different features is independent."""
        return self.factors is None and self.covariances is None

    @cached_property
    def noise(self) -> Array:
        """Variances, or covariances where the noise of features is correlated."""
        if self.is_diagonal:
            assert self.variances is not None
            return self.variances
        if self.covariances is not None:
            return self.covariances
        assert self.variances is not None
        assert self.factors is not None
        noise: Array = self.factors @ self.factors.transpose(0, 2, 1)
        np.einsum("ijj->ij", noise)[:] += self.variances
        return noise

    def total_noise(self, weight: Array) -> Array:
        """Return ``sum_i s_i S_i``, of noise that is correlated."""
        n, d = self.shape
        if self.covariances is not None:
            return np.asarray((weight @ self.covariances.reshape(n, d * d)).reshape(d, d))
        assert self.variances is not None
        assert self.factors is not None
        # One product of all columns together: a small one for every sample takes ten times as long.
        columns = (self.factors * np.sqrt(weight)[:, np.newaxis, np.newaxis]).transpose(0, 2, 1).reshape(-1, d)
        return np.asarray(columns.T @ columns + np.diag(weight @ self.variances))

    @cached_property
    def noise_variances(self) -> Array:
        """The variance of the noise on every value."""
        noise = self.noise
        return noise if noise.ndim == 2 else np.asarray(np.einsum("ijj->ij", noise))

    @cached_property
    def counts(self) -> Array:
        """How many features of each sample were measured."""
        if self.known is None:
            return np.full(len(self), float(self.n_features))
        return np.asarray(np.count_nonzero(self.known, axis=1), dtype=np.float64)

    def scaled(self, factors: Array) -> "Readings":
        """Return the same with the noise of every feature multiplied by a factor."""
        if np.all(factors == 1.0):
            return self
        covariances = None if self.covariances is None else self.covariances * np.multiply.outer(factors, factors)
        columns = None if self.factors is None else self.factors * factors[:, np.newaxis]
        variances = None if self.variances is None else self.variances * np.square(factors)
        doubts = None if self.doubts is None else self.doubts * np.square(factors)
        return replace(self, variances=variances, factors=columns, covariances=covariances, doubts=doubts)

    def without(self, lost: NDArray[np.bool_]) -> "Readings":
        """Return the same with more values that were not measured."""
        known = ~lost if self.known is None else self.known & ~lost
        covariances = self.covariances
        if covariances is not None:
            covariances = np.where(known[:, :, np.newaxis] & known[:, np.newaxis, :], covariances, 0.0)
        return replace(
            self,
            values=np.where(known, self.values, self.values.dtype.type(0)),
            variances=None if self.variances is None else np.where(known, self.variances, 0.0),
            known=known,
            factors=None if self.factors is None else self.factors * known[:, :, np.newaxis],
            covariances=covariances,
        )

    def blocks(self, width: int | None = None) -> list[slice]:
        """Return slices of rows, of each of which so many numbers are held: by default the square of the features."""
        step = min(rows_at_once(width or self.n_features**2, cached=True), ROWS)
        return [slice(first, first + step) for first in range(0, len(self), step)]


def read(X: Any, X_err: Any, limits: Array | None = None) -> Readings:
    """Return the values of a dense X and their noise, checked.

    Not measured is what has NaN for a value, or an infinite error, or one above the limit of its feature.
    """
    values = np.asarray(X)
    missing = np.isnan(values)
    if isinstance(X_err, Limits):
        return _read_limits(values, X_err, missing, limits)
    if X_err is None:
        rows, sizes = Readings(values, np.broadcast_to(0.0, values.shape)), None
    elif isinstance(X_err, LowRank):
        rows, sizes = _read_factors(values, X_err, missing)
    else:
        rows, sizes = _read_array(values, X_err, missing)
    if sizes is not None:
        missing |= np.isinf(sizes) if limits is None else np.isinf(sizes) | (sizes > limits)
    rows = rows.without(missing) if missing.any() else rows
    if finite_least(rows.values) is None:
        assert_all_finite(rows.values, input_name="X")
    if rows.covariances is not None:
        _check_covariances(rows.covariances)
    return rows


def _read_limits(values: Array, X_err: Limits, missing: NDArray[np.bool_], limits: Array | None) -> Readings:
    """Return values of which some are limits: these are not measured, but known to be on one side."""
    std = X_err.deviations((values.shape[0], values.shape[1]))
    sides = np.where(missing, 0, X_err.sides).astype(np.int8)
    _check_std(std, missing, "X_err")
    if np.any(np.isinf(std) & (sides != 0)):
        raise ValueError("X_err must be finite for limits")
    rows = read(values, np.where(sides == 0, std, np.inf), limits)
    bounds = np.where(sides == 0, 0.0, values)
    assert_all_finite(bounds, input_name="X")
    return replace(rows, sides=sides, bounds=bounds, doubts=np.where(sides == 0, 0.0, np.square(std)))


def _read_factors(values: Array, X_err: LowRank, missing: NDArray[np.bool_]) -> tuple[Readings, Array]:
    """Return values with noise of few causes, and the standard deviation of every value."""
    n, d = values.shape
    factors = as_numbers(X_err.factors, "X_err.factors")
    if factors.ndim != 3 or factors.shape[:2] != (n, d):
        raise ValueError(f"X_err.factors must have shape ({n}, {d}, rank); got {factors.shape}")
    if not np.isfinite(factors).all():
        raise ValueError("X_err.factors must be finite")
    std = np.zeros((n, d)) if X_err.std is None else as_numbers(X_err.std, "X_err.std")
    if std.shape not in ((n,), (n, d)):
        raise ValueError(f"X_err.std must have shape ({n},) or ({n}, {d}); got {std.shape}")
    std = np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], (n, d))
    _check_std(std, missing, "X_err.std")
    variances = np.square(std)
    sizes = np.sqrt(variances + np.einsum("ijr,ijr->ij", factors, factors))
    return Readings(values, variances, None, factors), sizes


def _read_array(values: Array, X_err: Any, missing: NDArray[np.bool_]) -> tuple[Readings, Array]:
    """Return values with standard deviations or covariances, and the standard deviation of every value."""
    n, d = values.shape
    # In one order, as sums depend on it.
    errors = np.ascontiguousarray(X_err.toarray() if sp.issparse(X_err) else as_numbers(X_err, "X_err"))
    if errors.shape not in ((n,), (n, d), (n, d, d)):
        raise ValueError(
            f"X_err must hold standard deviations of shape ({n},) or ({n}, {d}), or covariances of shape "
            f"({n}, {d}, {d}), for X of shape ({n}, {d}); got shape {errors.shape}"
        )
    if errors.ndim == 3:
        variances = np.einsum("ijj->ij", errors)
        _check_std(variances, missing, "the diagonal of X_err")
        return Readings(values, None, None, None, errors), np.sqrt(variances)
    sizes = np.broadcast_to(errors if errors.ndim == 2 else errors[:, np.newaxis], (n, d))
    _check_std(sizes, missing, "X_err")
    with np.errstate(over="ignore"):
        return Readings(values, np.square(sizes)), sizes


def _check_std(std: Array, missing: NDArray[np.bool_], name: str) -> None:
    if np.isnan(std[~missing] if missing.any() else std).any():
        raise ValueError(
            f"{name} has NaN: an error bar must be a number; give infinity for what was not measured, 0 for what is "
            "exact"
        )
    least = float(np.min(std, initial=0.0, where=~np.isnan(std)))
    if least < 0:
        raise ValueError(f"{name} must hold nonnegative standard deviations; got {least:g}")


def _check_covariances(covariances: Array) -> None:
    if not np.isfinite(covariances).all():
        raise ValueError("X_err must hold finite covariances but for the variances of what was not measured")
    largest = np.maximum(np.abs(covariances).max(axis=(1, 2)), np.finfo(np.float64).tiny)
    apart = np.abs(covariances - covariances.transpose(0, 2, 1)).max(axis=(1, 2)) / largest
    if apart.max(initial=0.0) > ROUNDING:
        i = int(np.argmax(apart))
        raise ValueError(f"X_err must hold symmetric covariances; that of sample {i} differs from its transpose")
    try:
        np.linalg.cholesky(covariances / largest[:, np.newaxis, np.newaxis] + ROUNDING * np.eye(covariances.shape[1]))
    except np.linalg.LinAlgError:
        raise ValueError("X_err must hold positive semidefinite covariances; got one that is not") from None
