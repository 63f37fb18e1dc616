"""Posteriors of the true values under a population of all samples, in units of its spread."""

from typing import NamedTuple

import numpy as np

from gaussguru._errors.given import AffineComponents
from gaussguru._errors.missing import unmeasured
from gaussguru._errors.parse import scaled
from gaussguru._errors.samples import Measured, split_errors
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._rows.streams import Part
from gaussguru._rows.validation import (
    Samples,
    check_samples,
    check_weights,
    counted,
    validated,
    warn_of_values_beyond_others,
)
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, Estimator, Labels, Values

# Rows on which ridges are compared and probabilities calibrated, where there are two classes. Log losses at two ridges
# differ from row to row by 0.2 or less, so their means are known to 0.2 / sqrt(10,000) = 0.002, and alpha to 1 or 2
# percent. Of more classes 2/n_classes of that: the time of a probability grows with their number.
SELECTION_ROWS = 10_000
# With more features the covariance of a population has few factors: time and memory grow with their cube and square.
FULL_FEATURES = 60


def rank_of(n_samples: int, n_features: int) -> int | None:
    """Return the number of factors of the covariance of a population; None is a full one."""
    # A full covariance of fewer than four samples for each feature is mostly noise.
    return min(10, n_features) if n_features > min(FULL_FEATURES, n_samples / 4) else None


def checked_measurements(estimator: Estimator, X: Values, X_err: ErrorBars, *, reset: bool) -> tuple[Array, ErrorBars]:
    """Return measured values as an array, and their errors."""
    X, X_err = split_errors(X, X_err)
    values: Array = validated(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
    if X_err is None and not np.isfinite(values).all():
        value = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(
            f"Input X contains {value}: without X_err, X must be finite. To mark values as not measured, give "
            "X_err as well; X_err=0 if all other values are exact"
        )
    if reset:
        warn_of_values_beyond_others(values, ~unmeasured(X_err, values.shape))
    return values, X_err


def labelled_rows(
    X: Array, X_err: ErrorBars, y: Labels, sample_weight: object, class_weight: object
) -> tuple[Array, ErrorBars, Array | None, Samples, Samples]:
    """Return the samples of positive weight: values, errors, weights as given, labels; and the labels of all samples.

    The labels hold classes and weights, no values: the fit of a population checks X.
    """
    n, weights = len(X), check_weights(sample_weight, len(X))
    all_rows = check_samples(np.zeros((n, 1)), y, weights, class_weight)
    if weights is None:
        return X, X_err, None, all_rows, all_rows
    rows = slice(None) if weights.all() else np.flatnonzero(weights)
    weights = counted(weights[rows])
    weights = None if np.all(weights == 1) else weights  # as if the others did not exist
    labels = all_rows.classes[all_rows.labels.astype(np.intp)[rows]]
    kept = check_samples(np.zeros((len(labels), 1)), labels, weights, class_weight)
    return X[rows], None if X_err is None else take_rows(X_err, rows), weights, kept, all_rows


def scaled_part(centre: Array, scale: Array, part: Part) -> Part:
    """Return samples in other units."""
    err = None if part.X_err is None else scaled(part.X_err, 1 / scale)
    return part._replace(X=(part.X - centre) / scale, X_err=err)


class View(NamedTuple):
    """The population of the true values, with its mean and spread, (d,), in the units of X."""

    population: Deconvolve
    centre: Array
    scale: Array

    @classmethod
    def of(cls, population: Deconvolve) -> "View":
        """Return the view of a population."""
        gaussian = population.population_
        return cls(population, gaussian.mean, np.sqrt(np.diag(gaussian.covariance)))

    def posterior(self, X: Array, X_err: ErrorBars) -> Values:
        """Return the posteriors of the true values, in units of the spread; of exact values an array."""
        if X_err is None:
            return (X - self.centre) / self.scale
        posterior = self.population.transform(X, X_err)
        components = posterior.components
        if components is not None:
            components = AffineComponents(components, np.diag(1 / self.scale), -self.centre / self.scale)
        means = (posterior.X - self.centre) / self.scale
        return Measured.checked(means, scaled(posterior.err, 1 / self.scale), components)


class LabelledMeasurements(NamedTuple):
    """The samples of a fit, their labels, and the view of their population; seed of random numbers."""

    view: View
    X: Array
    X_err: ErrorBars
    weights: Array | None
    labelled: Samples
    seed: int

    def measured(self, rows: Index) -> tuple[Array, ErrorBars]:
        """Return the measured values of rows, and their errors."""
        return self.X[rows], None if self.X_err is None else take_rows(self.X_err, rows)

    def samples(self, posterior: Values, rows: Index, weights: Array) -> Samples:
        """Return the posterior means of rows, with their labels and weights."""
        return Samples(split_errors(posterior)[0], self.labelled.classes, self.labelled.labels[rows], weights[rows])


def selection_rows(samples: Samples, seed: int, most: int | None = None) -> tuple[Index, Array]:
    """Draw about ``most`` rows by class, by default as many as ridges are compared on.

    Returns the rows, in order, and factors on the weights of all rows that keep the shares of the classes.
    """
    most = 2 * SELECTION_ROWS // len(samples.classes) if most is None else most
    labels, weights = samples.labels.astype(np.intp), samples.all_weights
    n, factors = len(labels), np.ones(len(labels))
    if n <= most:
        return np.arange(n), factors
    rng = np.random.default_rng(seed)
    rows = []
    for c in range(len(samples.classes)):
        members = np.flatnonzero((labels == c) & (weights > 0))
        # At least 200 of a class, if there are.
        size = min(len(members), max(200, round(most * len(members) / n)))
        chosen = rng.permutation(members)[:size]
        factors[members] = weights[members].sum() / weights[chosen].sum()
        rows.append(chosen)
    kept = np.sort(np.concatenate(rows))
    return kept, factors * weights[kept].sum() / (weights * factors)[kept].sum()
