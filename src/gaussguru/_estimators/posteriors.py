"""Posteriors of the true values under a population of all samples, in units of its spread."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from gaussguru._errors import AffineComponents, Measured, scaled, split_errors
from gaussguru._estimators.deconvolve import Deconvolve
from gaussguru._estimators.validation import Samples, check_samples, check_weights, warn_of_error_columns
from gaussguru._frames import take_rows
from gaussguru._linalg import Array

# Covariances of the population have few factors where there are more features than this, or fewer samples for each:
# time and memory go with their cube and square, and a full covariance of so few samples is mostly chance.
FULL_FEATURES, SAMPLES_PER_FEATURE, RANK = 60, 4, 10


def rank_of(n_samples: int, n_features: int) -> int | None:
    """Return the number of factors of the covariance of a population; None is a full one."""
    few = n_features > min(FULL_FEATURES, n_samples / SAMPLES_PER_FEATURE)
    return min(RANK, n_features) if few else None


def checked_measurements(estimator: Any, X: Any, X_err: Any, *, reset: bool) -> tuple[Array, Any]:
    """Return measured values as an array, and their errors."""
    X, X_err = split_errors(X, X_err)
    if reset:
        warn_of_error_columns(X)
    values: Array = validate_data(estimator, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite=False)
    if X_err is None and not np.isfinite(values).all():
        what = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(
            f"Input X contains {what}: without X_err, X must be finite. To mark values as not measured, give "
            "X_err as well; X_err=0 if all other values are exact"
        )
    return values, X_err


def labelled_rows(
    X: Array, X_err: Any, y: Any, sample_weight: Any, class_weight: Any
) -> tuple[Array, Any, Array | None, Samples, Samples]:
    """Return samples without those of weight 0: values, errors, weights as given, labels; and the labels of all.

    Labels come with classes and weights alone: what X holds is looked at by a population.
    """
    n, weights = len(X), check_weights(sample_weight, len(X))
    whole = check_samples(np.zeros((n, 1)), y, weights, class_weight)
    if weights is None or weights.all():
        return X, X_err, weights, whole, whole
    rows = np.flatnonzero(weights)
    weights = None if np.all(weights[rows] == 1) else weights[rows]  # as if the others had never been there
    labels = whole.classes[whole.labels.astype(np.intp)]
    kept = check_samples(np.zeros((len(rows), 1)), labels[rows], weights, class_weight)
    return X[rows], None if X_err is None else take_rows(X_err, rows), weights, kept, whole


class View(NamedTuple):
    """The population of the true values, with its mean and spread, (d,), in the units of X."""

    population: Deconvolve
    centre: Array
    scale: Array

    @classmethod
    def of(cls, population: Deconvolve) -> "View":
        """Return the view of a population."""
        whole = population.population_
        return cls(population, whole.mean, np.sqrt(np.diag(whole.covariance)))

    def posterior(self, X: Array, X_err: Any) -> Any:
        """Return the posteriors of the true values, in units of the spread; of exact values an array."""
        if X_err is None:
            return (X - self.centre) / self.scale
        found = self.population.transform(X, X_err)
        components: Any = None
        if found.components is not None:
            components = AffineComponents(found.components, np.diag(1 / self.scale), -self.centre / self.scale)
        return Measured.checked((found.X - self.centre) / self.scale, scaled(found.err, 1 / self.scale), components)
