"""Columns of measured samples for classifiers that know nothing of error bars: values, posteriors, gaps.

The columns, for d features in units of the population's mean and spread:

* values, (d,): the measured values, drawn to the mean where their error is larger than any of training, or huge;
* means, (d,): the posterior means of the true values, given all features of the sample;
* rotated, (d,): the posterior means along the principal axes of the population, in units of its spread along them;
* gaps: 1 where a feature was not measured, for features that training lacks in some samples;
* limits: -1 or +1 where a value is a limit, for features with limits in training;
* sizes, (d,), on request: the logarithms of the errors.

All but gaps, limits and sizes change little with a small change of an error, and tend to those of a value that was not
measured when it grows to infinity.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.missing import LEAST, not_measured, standard_deviations, unmeasured
from gaussguru._errors.samples import Measured
from gaussguru._measured.posteriors import FULL_FEATURES, View
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, MixedArray

# Posterior means are clipped to this number of spreads for kernels and linear functions.
FAR = 6.0
# Least error and least posterior variance of which logarithms are taken, in units of the population.
TINY = 1e-6


@dataclass(frozen=True)
class MemberColumns:
    """Samples in the forms that members of a pool take; one row for each sample.

    Attributes
    ----------
    X, X_err : the samples as they were measured
    trees : (n, q), all columns of this module but the sizes
    sizes : (n, d), logarithms of the errors in units of the population
    means, variances : (n, d), of the posteriors, in units of the population; means within FAR
    rotated, rotated_variances : (n, r), the same along the principal axes
    gaps : (n, g), the columns of gaps and limits
    vagueness : (n,), mean logarithm of the posterior variances: how noisy a sample is
    """

    X: Array
    X_err: ErrorBars
    trees: Array
    sizes: Array
    means: Array
    variances: Array
    rotated: Array
    rotated_variances: Array
    gaps: Array
    vagueness: Array

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: MixedArray | slice) -> "MemberColumns":
        parts: list[Any] = [getattr(self, field.name) for field in fields(self)]
        taken: list[Any] = [None if part is None else take_rows(part, rows) for part in parts]
        return MemberColumns(*taken)

    def with_values(self, rows: Index) -> Index:
        """Return numbers of samples, with one more for each feature that was measured for none of them.

        A population needs one value of each feature. The first sample that has it is added.
        """
        missing = unmeasured(self.X_err, self.X.shape)
        lacking = missing[rows].all(axis=0) & ~missing.all(axis=0)
        return np.union1d(rows, missing[:, lacking].argmin(axis=0)) if lacking.any() else rows


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of a fit.

    Attributes
    ----------
    view : the population
    axes : (d, r), principal axes of the population, for values in units of its spread
    largest : (d,), the largest error of training and its copies, in units of the spread
    low, high : (d,), the least and the largest measured value of training, in the units of X
    gaps, limits : features with such columns
    """

    view: View
    axes: Array
    largest: Array
    low: Array
    high: Array
    gaps: Index
    limits: Index

    @classmethod
    def of(cls, view: View, X: Array, X_err: ErrorBars, *, high: float) -> "FeatureColumns":
        """Return the columns for samples of training, of which copies have errors up to ``high`` times larger."""
        missing, errors = _errors_of(X, X_err)
        sides = X_err.limits if isinstance(X_err, Limits) else np.zeros(X.shape, dtype=np.int8)
        correlations = view.population.population_.covariance / np.multiply.outer(view.scale, view.scale)
        values, axes = np.linalg.eigh(correlations)
        axes = (axes / np.sqrt(np.maximum(values, LEAST)))[:, ::-1][:, :FULL_FEATURES]
        # The sign of an axis is that of its first large component: rounding, and units, do not turn it.
        large = np.abs(axes) > 0.1 * np.abs(axes).max(axis=0)
        axes = axes * np.sign(np.take_along_axis(axes, large.argmax(axis=0)[np.newaxis], axis=0))
        gaps = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
        ends = np.where(missing, np.inf, X).min(axis=0), np.where(missing, -np.inf, X).max(axis=0)
        largest = high * (errors / view.scale).max(axis=0)
        return cls(view, axes, largest, *ends, gaps, np.flatnonzero(sides.any(axis=0)))

    def unlike_training(self, X: Array, X_err: ErrorBars) -> dict[str, NDArray[np.bool_]]:
        """Return masks of values, (n, d), unlike training: by value, by the size of the error, by a gap.

        A value is unlike training if it is beyond the range by more than two of its errors.
        """
        missing, errors = _errors_of(X, X_err)
        values = np.where(missing, self.low, X)
        never = np.ones(X.shape[1], dtype=bool)
        never[self.gaps] = False
        return {
            "values": (values - 2.0 * errors > self.high) | (values + 2.0 * errors < self.low),
            "errors": errors > self.largest * self.view.scale * (1.0 + 1e-9),
            "gaps": missing & never,
        }

    def columns(self, X: Array, X_err: ErrorBars) -> MemberColumns:
        """Return samples in all forms."""
        parts = [
            self._of_block(X[part], None if X_err is None else take_rows(X_err, part))
            for part in row_blocks(len(X), X.shape[1] ** 2) or [slice(0)]
        ]
        return MemberColumns(X, X_err, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _of_block(self, X: Array, X_err: ErrorBars) -> tuple[Array, ...]:
        posterior = self.view.posterior(X, X_err)
        means, errors = (posterior.X, posterior.err) if isinstance(posterior, Measured) else (posterior, None)
        rotated = means @ self.axes
        if errors is None:
            variances, along = np.zeros(means.shape), np.zeros(rotated.shape)
        else:
            variances = np.square(standard_deviations(errors, means.shape))
            along = self._variances_along(errors)
        missing, deviations = _errors_of(X, X_err)
        gaps = self._gaps(X_err, missing)
        values = self._values(X, missing, deviations / self.view.scale)
        # Trees have single precision, and would split the rounding errors of a constant feature, or of the difference
        # of two that are the same.
        columns = ((values, 12), (means, 9), (rotated, 9))
        trees = np.hstack([*(np.round(np.clip(part, -1e30, 1e30), digits) for part, digits in columns), gaps])
        sizes = np.log(TINY + np.minimum(np.where(missing, np.inf, deviations / self.view.scale), 1 / TINY))
        vagueness = np.log(TINY + variances).mean(axis=1)
        near = np.clip(means, -FAR, FAR), variances, np.clip(rotated, -FAR, FAR), along
        return trees, sizes, *near, gaps, vagueness

    def _values(self, X: Array, missing: NDArray[np.bool_], errors: Array) -> Array:
        """Return measured values in units of the population, times 1 / (1 + (error / largest)^2); 0 for gaps.

        One sample of training with a huge error does not count: ``largest`` is at most FAR.
        """
        values = np.where(missing, 0.0, (X - self.view.centre) / self.view.scale)
        with np.errstate(over="ignore"):
            taper = 1.0 / (1.0 + np.square(errors / np.clip(self.largest, TINY, FAR)))
        return np.asarray(values * taper)

    def _gaps(self, X_err: ErrorBars, missing: NDArray[np.bool_]) -> Array:
        """Return the columns of gaps and limits, (n, g)."""
        columns = [missing[:, self.gaps].astype(np.float64)]
        if len(self.limits):
            sides = X_err.limits if isinstance(X_err, Limits) else np.zeros(missing.shape)
            columns.append(sides[:, self.limits].astype(np.float64))
        return np.hstack(columns)

    def _variances_along(self, errors: ErrorBars) -> Array:
        """Return the posterior variances along the axes, (n, r)."""
        if not isinstance(errors, LowRank):
            return np.asarray(np.einsum("ar,nar->nr", self.axes, errors @ self.axes))
        common = np.square(np.einsum("nac,ar->nrc", errors.factors, self.axes)).sum(axis=2)
        return np.asarray(common + np.square(errors.std) @ np.square(self.axes))


def _errors_of(X: Array, X_err: ErrorBars) -> tuple[NDArray[np.bool_], Array]:
    """Return a mask of values that were not measured, and standard deviations, (n, d), 0 for these."""
    missing = unmeasured(X_err, X.shape)
    return missing, np.where(missing, 0.0, standard_deviations(X_err, X.shape))


def with_noise(
    X: Array, X_err: ErrorBars, donors: Array, scale: Array, bounds: tuple[float, float], rng: np.random.Generator
) -> tuple[Array, ErrorBars]:
    """Return noisier copies of samples, each with the errors of another sample times a factor.

    The new error of a value is the larger one of its own and that of the other sample times the factor, and noise of
    variance ``new^2 - own^2`` is added to the value. A covariance C gets the positive part of ``factor^2 D - C``, for
    the covariance D of the other sample and features in units of ``scale``: the larger one in every direction. A
    covariance of low rank gets independent noise, so that its variances are the larger ones. Values that were not
    measured, and limits, stay as they are.

    Parameters
    ----------
    donors : the errors that copies get, in the form of X_err
    bounds : least and largest factor; it is log-uniform between them
    """
    n, d = X.shape
    factors = np.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]), n))
    chosen = rng.integers(len(donors), size=n)
    deviations = standard_deviations(donors, (len(donors), d))
    others = deviations[chosen]
    for j in np.flatnonzero(~np.isfinite(others).all(axis=0)):
        known, lost = deviations[np.isfinite(deviations[:, j]), j], ~np.isfinite(others[:, j])
        others[lost, j] = rng.choice(known, int(lost.sum())) if len(known) else 0.0
    fixed = not_measured(X_err, (n, d))
    present = np.where(fixed, 0.0, standard_deviations(X_err, (n, d)))
    normal = rng.standard_normal((n, d))
    if isinstance(X_err, np.ndarray) and X_err.ndim == 3:
        is_finite = np.isfinite(deviations[chosen]).all(axis=1)[:, np.newaxis, np.newaxis]
        wanted = np.where(is_finite, np.asarray(donors)[chosen], np.square(others)[:, :, np.newaxis] * np.eye(d))
        units = np.multiply.outer(scale, scale)
        kept = ~fixed[:, :, np.newaxis] & ~fixed[:, np.newaxis, :]
        more = np.where(kept, np.square(factors)[:, np.newaxis, np.newaxis] * wanted - np.where(kept, X_err, 0.0), 0.0)
        values, axes = np.linalg.eigh(more / units)
        roots = axes * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis, :] * scale[:, np.newaxis]
        added = roots @ roots.transpose(0, 2, 1)
        return X + np.einsum("nij,nj->ni", roots, normal), X_err + added
    larger = np.maximum(present, factors[:, np.newaxis] * others)
    added = np.where(fixed, 0.0, np.sqrt(larger - present) * np.sqrt(larger + present))  # squares may overflow
    values = X + added * normal
    if isinstance(X_err, LowRank):
        return values, LowRank(X_err.factors, np.hypot(X_err.std, added))
    errors = np.where(fixed, standard_deviations(X_err, (n, d)), larger)
    return values, Limits(errors, X_err.limits) if isinstance(X_err, Limits) else errors
