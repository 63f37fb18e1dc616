"""Posteriors of the true values under a population of all samples, in units of its spread."""

from typing import Any, NamedTuple

import numpy as np

from gaussguru._errors import AffineComponents, Measured, scaled, split_errors, unmeasured
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
from gaussguru._utils.linalg import Array

# A population has a covariance of RANK factors if there are more features than this, or fewer samples for each: time
# and memory grow with their cube and square, and a full covariance of so few samples is mostly noise.
FULL_FEATURES, SAMPLES_PER_FEATURE, RANK = 60, 4, 10


def rank_of(n_samples: int, n_features: int) -> int | None:
    """Return the number of factors of the covariance of a population; None is a full one."""
    few = n_features > min(FULL_FEATURES, n_samples / SAMPLES_PER_FEATURE)
    return min(RANK, n_features) if few else None


def checked_measurements(estimator: Any, X: Any, X_err: Any, *, reset: bool) -> tuple[Array, Any]:
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
    X: Array, X_err: Any, y: Any, sample_weight: Any, class_weight: Any
) -> tuple[Array, Any, Array | None, Samples, Samples]:
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


def scaled_part(centre: Array, scale: Array, part: Part, keep_errors: bool = True) -> Part:
    """Return samples in other units, without their errors unless ``keep_errors``."""
    err = None if part.X_err is None or not keep_errors else scaled(part.X_err, 1 / scale)
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

    def posterior(self, X: Array, X_err: Any) -> Any:
        """Return the posteriors of the true values, in units of the spread; of exact values an array."""
        if X_err is None:
            return (X - self.centre) / self.scale
        posterior = self.population.transform(X, X_err)
        components: Any = None
        if posterior.components is not None:
            components = AffineComponents(posterior.components, np.diag(1 / self.scale), -self.centre / self.scale)
        means = (posterior.X - self.centre) / self.scale
        return Measured.checked(means, scaled(posterior.err, 1 / self.scale), components)
