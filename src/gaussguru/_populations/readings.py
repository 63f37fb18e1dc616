"""Measured values with their noise, in the form that populations compute with."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from gaussguru._errors.columns import LARGEST
from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.missing import standard_deviations
from gaussguru._rows.streams import Blocks, Part, check_part_weights, in_partition
from gaussguru._utils.blocks import row_slices, rows_at_once
from gaussguru._utils.linalg import EPS, Array
from gaussguru._utils.moments import FeatureMoments
from gaussguru._utils.types import ErrorBars, MixedArray


@dataclass(frozen=True)
class Readings:
    """Values and their noise, checked: finite, and 0 for missing values.

    The noise has independent ``variances``, to which ``factors`` add ``F_i F_i'``, or ``covariances`` alone. Limits
    count as missing values; ``sides`` is -1 for upper and 1 for lower limits, ``bounds`` holds their values and
    ``doubts`` their variances.
    """

    values: MixedArray
    variances: Array | None
    known: NDArray[np.bool_] | None = None
    factors: Array | None = None
    covariances: Array | None = None
    sides: NDArray[np.int8] | None = None
    bounds: Array | None = None
    doubts: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: object) -> "Readings":
        parts: list[Any] = [getattr(self, field.name) for field in fields(self)]
        taken: list[Any] = [None if part is None else part[index] for part in parts]
        return Readings(*taken)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.values.shape

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.values.shape[1])

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Mask of measured values."""
        return np.ones(self.shape, dtype=bool) if self.known is None else self.known

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """Mask of features with missing values, (n_features,)."""
        return np.asarray(~self.is_known.all(axis=0))

    @property
    def is_diagonal(self) -> bool:
        """Whether the noise of different features is independent."""
        return self.factors is None and self.covariances is None

    @cached_property
    def noise(self) -> Array:
        """Variances (n, d), or covariances (n, d, d) of correlated noise.

        The variances of correlated noise are enlarged by the rounding error of a Cholesky factor, so that it exists.
        """
        if self.is_diagonal:
            assert self.variances is not None
            return self.variances
        if self.covariances is not None:
            noise = self.covariances.copy()
        else:
            assert self.variances is not None
            assert self.factors is not None
            noise = self.factors @ self.factors.transpose(0, 2, 1)
            np.einsum("ijj->ij", noise)[:] += self.variances
        np.einsum("ijj->ij", noise)[:] *= 1.0 + 4 * EPS * self.n_features**2
        return noise

    def total_noise(self, weight: Array) -> Array:
        """Return ``sum_i s_i S_i`` of correlated noise."""
        n, d = self.shape
        if self.covariances is not None:
            return np.asarray((weight @ self.covariances.reshape(n, d * d)).reshape(d, d))
        assert self.variances is not None
        assert self.factors is not None
        # One product for all columns: one for every sample takes ten times as long.
        columns = (self.factors * np.sqrt(weight)[:, np.newaxis, np.newaxis]).transpose(0, 2, 1).reshape(-1, d)
        return np.asarray(columns.T @ columns + np.diag(weight @ self.variances))

    @cached_property
    def noise_variances(self) -> Array:
        """The variance of the noise on every value."""
        if self.covariances is not None:
            return np.asarray(np.einsum("ijj->ij", self.covariances))
        assert self.variances is not None
        if self.factors is None:
            return self.variances
        return np.asarray(self.variances + np.einsum("ijr,ijr->ij", self.factors, self.factors))

    @cached_property
    def counts(self) -> Array:
        """Number of measured features of each sample."""
        if self.known is None:
            return np.full(len(self), float(self.n_features))
        return np.asarray(np.count_nonzero(self.known, axis=1), dtype=np.float64)

    def scaled(self, factors: Array) -> "Readings":
        """Return the same values with the noise of every feature multiplied by a factor."""
        if np.all(factors == 1.0):
            return self
        covariances = None if self.covariances is None else self.covariances * np.multiply.outer(factors, factors)
        columns = None if self.factors is None else self.factors * factors[:, np.newaxis]
        variances = None if self.variances is None else self.variances * np.square(factors)
        doubts = None if self.doubts is None else self.doubts * np.square(factors)
        return replace(self, variances=variances, factors=columns, covariances=covariances, doubts=doubts)

    def in_units(self, units: Array) -> "Readings":
        """Return the same in other units, one for each feature; exact if they are powers of two."""
        if np.all(units == 1.0):
            return self
        bounds = None if self.bounds is None else self.bounds / units
        return replace(self.scaled(1.0 / units), values=self.values / units.astype(self.values.dtype), bounds=bounds)

    def informative(self, limits: Array) -> "Readings":
        """Return the same with values missing whose errors are above the limit of their feature."""
        vague = self.noise_variances > np.square(limits)
        return self.without(vague) if vague.any() else self

    def without(self, lost: NDArray[np.bool_]) -> "Readings":
        """Return the same with more missing values."""
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
        """Return slices of rows that fit in cache with ``width`` numbers per row, by default n_features^2."""
        # At most 4096 (measured with 3 features: fewer rows add calls of NumPy, more do not fit in cache).
        step = min(rows_at_once(width or self.n_features**2, cached=True), 4096)
        return row_slices(0, len(self), step)


def read(X: object, X_err: ErrorBars) -> Readings:
    """Return the values of a dense X, and their noise from parsed error bars.

    A value is missing if it is NaN, or if its error is infinite or above LARGEST.
    """
    values = np.asarray(X)
    shape = (values.shape[0], values.shape[1])
    sizes = standard_deviations(X_err, shape)
    missing = np.isnan(values) | (sizes > LARGEST)
    if isinstance(X_err, Limits):
        return _read_limits(values, X_err, missing)
    with np.errstate(over="ignore"):
        if isinstance(X_err, LowRank):
            rows = Readings(values, np.square(X_err.std), None, X_err.factors)
        elif X_err is not None and X_err.ndim == 3:
            rows = Readings(values, None, None, None, X_err)
        else:
            rows = Readings(values, np.square(sizes))
    rows = rows.without(missing) if missing.any() else rows
    largest = np.abs(rows.values).max(initial=0.0).astype(np.float64)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.square(largest) * values.size):
            assert_all_finite(rows.values, input_name="X")
            raise ValueError(f"X must hold numbers whose squares do not overflow; got {largest:g}")
    return rows


def _read_limits(values: Array, X_err: Limits, missing: NDArray[np.bool_]) -> Readings:
    """Return values of which some are limits, which count as missing but have sides, bounds and doubts."""
    is_limit = (X_err.limits != 0) & ~missing
    rows = read(values, np.where(missing | is_limit, np.inf, X_err.err))
    bounds, doubts = np.where(is_limit, values, 0.0), np.where(is_limit, X_err.err, 0.0)
    assert_all_finite(bounds, input_name="X")
    return replace(rows, sides=np.where(is_limit, X_err.limits, 0), bounds=bounds, doubts=np.square(doubts))


# --- in parts ---------------------------------------------------------------------------------------------------


# A part of a source: readings of positive weight, their weights, and a mask (d,) of features with missing values.
PartReadings = tuple[Readings, Array | None, NDArray[np.bool_]]


class PartSummary(NamedTuple):
    """Sums and extremes of the readings of a part, per feature."""

    n_rows: int
    total: float  # sum s
    gaps: NDArray[np.bool_]  # whether values are missing
    counts: Array  # number of informative values
    moments: FeatureMoments
    most: Array  # the largest, the least and the least positive variance of their noise
    least: Array
    finest: Array
    is_diagonal: bool


class FeatureSummary(NamedTuple):
    """Number of samples, and their weight; unit of length, missing values, varying errors, share known of features."""

    n_rows: int
    total: float

    lengths: Array
    gaps: NDArray[np.bool_]
    varying: NDArray[np.bool_]
    known: Array


def read_parts(parts: Blocks, limits: Array, about: Array, units: Array) -> tuple[Blocks, FeatureSummary]:
    """Return the readings of all parts and a summary of their features; one pass.

    Parameters
    ----------
    parts : Blocks
        Parts as a source gives them.
    limits : array of shape (n_features,)
        Values with larger errors are ignored.
    about : array of shape (n_features,)
        Approximate means in ``units``, from which deviations are taken.
    units : array of shape (n_features,)
        Units of the readings and of the summary.
    """
    items = parts.then(_read, limits=limits, units=units)
    summaries: list[PartSummary] = items.collected(_summary, about=about)
    used = [number for number, part in enumerate(summaries) if part.n_rows]
    if len(used) < len(summaries):
        items, _ = items.chosen(used)
        summaries = [summaries[number] for number in used]
    n = sum(part.n_rows for part in summaries)
    counts = np.sum([part.counts for part in summaries], axis=0)
    if not counts.all():
        raise ValueError(f"feature {int(np.argmin(counts))} was measured for no sample: leave it out")
    most = np.max([part.most for part in summaries], axis=0)
    least, finest = (np.min([getattr(part, name) for part in summaries], axis=0) for name in ("least", "finest"))
    varying = varies(most, least, is_diagonal=all(part.is_diagonal for part in summaries))
    gaps = np.any([part.gaps for part in summaries], axis=0)
    moments = FeatureMoments.added([part.moments for part in summaries])
    means, spreads = moments.means_and_spreads()
    total = float(sum(part.total for part in summaries))
    return items, FeatureSummary(n, total, lengths(means, spreads, finest), gaps, varying, moments.weights / total)


def unlabelled(part: Part) -> Part:
    """Return a part without labels: a population does not use them."""
    return part._replace(y=None)


def noise_range(rows: Readings) -> tuple[Array, Array, Array]:
    """Return the largest, least and least positive noise variance of the measured values of each feature."""
    noise, known = rows.noise_variances, rows.is_known
    largest = np.where(known, noise, 0.0).max(axis=0, initial=0.0)
    least, finest = (np.where(mask, noise, np.inf).min(axis=0, initial=np.inf) for mask in (known, known & (noise > 0)))
    return largest, least, finest


def is_flat(mean: Any, spread: Any) -> Any:
    """Return whether a feature is constant to rounding, from its mean and spread."""
    return spread <= 1e-12 * np.abs(mean)


def lengths(means: Array, spreads: Array, finest: Array) -> Array:
    """Return a unit of length for each feature: its spread, or for a constant feature its least positive error.

    ``finest`` holds the squares of these errors. A constant exact feature gets the size of its mean, or 1; it is
    independent of the others, so any unit will do.
    """
    sizes = np.where(means == 0, 1.0, np.abs(means))
    return np.where(is_flat(means, spreads), np.where(np.isfinite(finest), np.sqrt(finest), sizes), spreads)


def varies(most: Array, least: Array, *, is_diagonal: bool) -> NDArray[np.bool_]:
    """Return the mask of features whose errors differ between samples, so that a factor on them is identifiable."""
    varying: NDArray[np.bool_] = (most > 0) & (least < (1 - 1e-6) * most)
    return varying if is_diagonal else np.full(len(varying), bool(varying.any()))


def _read(part: Part, limits: Array, units: Array) -> PartReadings:
    """Return the readings of a part in these units, their weights and the mask of gaps; limits are in those of X."""
    check_part_weights(part)
    if part.X.shape[1] != len(limits):
        raise ValueError(
            f"X must have {len(limits)} features in all partitions; partition {part.number} has {part.X.shape[1]}"
        )
    if not part.X.shape[0]:
        return Readings(part.X, np.zeros(part.X.shape)), None, np.zeros(part.X.shape[1], dtype=bool)
    with in_partition(part.number):
        rows = read(part.X, part.X_err)
    weight = part.weight
    if weight is not None and not weight.all():
        rows, weight = rows[weight > 0], weight[weight > 0]
    return rows.informative(limits).in_units(units), weight, rows.gaps


def _summary(item: PartReadings, about: Array) -> PartSummary:
    rows, weight, gaps = item
    n = len(rows)
    s = np.ones(n) if weight is None else weight
    deviations = rows.values.astype(np.float64) - about
    if rows.known is None:
        counts, weights = np.full(len(about), float(n)), np.full(len(about), float(s.sum()))
    else:
        deviations *= rows.known
        counts, weights = rows.known.sum(axis=0).astype(np.float64), s @ rows.known
    moments = FeatureMoments.of(deviations, about, s, weights)
    return PartSummary(n, float(s.sum()), gaps, counts, moments, *noise_range(rows), rows.is_diagonal)
