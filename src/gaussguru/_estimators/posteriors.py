"""Posteriors of the true values under a population of all samples, in units of its spread."""

import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from gaussguru._data.rows import BlockMap
from gaussguru._errors import AffineComponents, Measured, scaled, split_errors
from gaussguru._estimators.deconvolve import Deconvolve
from gaussguru._estimators.validation import Samples, check_samples, check_weights, warn_of_error_columns
from gaussguru._frames import take_rows
from gaussguru._linalg import Array, Index

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


class Fold(NamedTuple):
    """Posteriors of the samples to fit to, with labels and weights, and of those that are left out.

    ``train`` and ``test`` say which rows of the table they are.
    """

    samples: Samples
    inside: Any
    outside: Any
    mapped: BlockMap
    table: "Table"
    train: Index
    test: Index

    @property
    def errors(self) -> Any:
        """The posterior covariances of the samples to fit to."""
        return split_errors(self.inside)[1]


class Table(NamedTuple):
    """The samples of a fit, their labels, and the view of their population."""

    view: View
    X: Array
    X_err: Any
    weights: Array | None
    labelled: Samples
    seed: int

    def posterior(self, rows: Any, population: Deconvolve | None = None) -> Any:
        """Return what is known of the truth of some rows, under the population of all or another one."""
        view = self.view if population is None else self.view._replace(population=population)
        return view.posterior(*self.measured(rows))

    def measured(self, rows: Any) -> tuple[Array, Any]:
        """Return the measured values of some rows, and their errors."""
        return self.X[rows], None if self.X_err is None else take_rows(self.X_err, rows)

    def samples(self, seen: Any, rows: Any, weights: Array) -> Samples:
        """Return rows with their labels."""
        return Samples(split_errors(seen)[0], self.labelled.classes, self.labelled.labels[rows], weights[rows])

    def fold(self, train: Index, test: Index, weights: Array, mapped: BlockMap) -> Fold:
        """Return a fold, with the population of its training samples."""
        population = self._population(train)
        inside = self.posterior(train, population)
        outside = self.posterior(test, population)
        return Fold(self.samples(inside, train, weights), inside, outside, mapped, self, train, test)

    def single_threaded(self) -> "Table":
        """Return the same for one thread of several."""
        population = copy.copy(self.view.population)
        population.n_jobs = 1
        return self._replace(view=self.view._replace(population=population))

    def _population(self, rows: Index) -> Deconvolve:
        """Return the population of some rows; that of all where some feature is not among them."""
        whole = self.view.population
        if self.X_err is None:
            return whole
        weights = None if self.weights is None else self.weights[rows]
        try:
            return whole.refit_population(*self.measured(rows), weights)
        except ValueError:
            return whole
