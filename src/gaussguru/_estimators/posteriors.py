"""What measurements say of the truth: posteriors under a population, of features as they are or transformed."""

import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, RobustScaler
from sklearn.utils.validation import validate_data

from gaussguru._data.rows import BlockMap
from gaussguru._errors import Measured, not_measured, scaled, split_errors, unmeasured, with_more
from gaussguru._estimators.validation import Samples, check_samples, check_weights
from gaussguru._frames import as_numbers, take_rows
from gaussguru._linalg import Array, Index
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.preprocessing.affine import AffineComponents

# Covariances of the population have few factors where there are more features than this, or fewer samples for each:
# time and memory go with their cube and square, and a full covariance of so few samples is mostly chance.
FULL_FEATURES, SAMPLES_PER_FEATURE, RANK = 60, 4, 10
# Quantiles of a feature, as scikit-learn has by default; between them the transform is a straight line of probability.
QUANTILES = 1000
# The error of a 0/1 indicator. Without any, components of a mixture collapse onto one of its two values (measured on
# two splits of chandra: a log loss of .052 without, .039 with).
SOFT = 0.05


def rank_of(n_samples: int, n_features: int) -> int | None:
    """Return the number of factors of the covariance of a population; None is a full one."""
    few = n_features > min(FULL_FEATURES, n_samples / SAMPLES_PER_FEATURE)
    return min(RANK, n_features) if few else None


def checked_measurements(estimator: Any, X: Any, X_err: Any, *, reset: bool) -> tuple[Array, Any]:
    """Return measured values as an array, and their errors."""
    X, X_err = split_errors(X, X_err)
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


def informative_gaps(X: Array, X_err: Any) -> Index:
    """Return features that some samples lack, one of those that the same samples lack."""
    gone = unmeasured(X_err, X.shape)
    found = np.flatnonzero(gone.any(axis=0) & ~gone.all(axis=0))
    _, firsts = np.unique(gone[:, found], axis=1, return_index=True)
    return np.sort(found[firsts])


def with_indicators(X: Array, X_err: Any, features: Index) -> tuple[Array, Any]:
    """Return measurements with one more feature for each of some: 1 where it was not measured, else 0."""
    if not len(features):
        return X, X_err
    gone = unmeasured(X_err, X.shape)[:, features].astype(np.float64)
    return np.hstack([X, gone]), with_more(X_err, (X.shape[0], X.shape[1]), len(features), SOFT)


def quantile_transform(X: Array, X_err: Any, weights: Array | None) -> WithErrors:
    """Return a transform of every feature to a normal distribution, fitted to what was measured, that carries errors.

    It is fitted to quantiles of the samples, counted by their weights: that is all that matters of them.
    """
    lost = np.isnan(X) | not_measured(X_err, (X.shape[0], X.shape[1]))
    given = np.ones(len(X)) if weights is None else weights
    n_quantiles = min(QUANTILES, len(X))
    levels = np.linspace(0.0, 1.0, n_quantiles)
    columns = [_quantiles(*_sorted(X[known, j], given[known]), levels) for j, known in enumerate(~lost.T)]
    normal = QuantileTransformer(n_quantiles=n_quantiles, output_distribution="normal", random_state=0)
    # Its limits are within 1e-7 of the ends, whatever the unit.
    return WithErrors(make_pipeline(RobustScaler(), normal)).fit(np.column_stack(columns))


def _sorted(values: Array, weights: Array) -> tuple[Array, Array]:
    values, weights = values[weights > 0], weights[weights > 0]
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]


def _quantiles(values: Array, weights: Array, levels: Array) -> Array:
    """Return quantiles of sorted values; of equal weights those that NumPy has."""
    if not len(values):
        raise ValueError("a feature has no value in any sample")
    ends = np.cumsum(weights)
    # A value of weight w is as w values: the first and the last of them are w - 1 steps apart.
    places = np.repeat(ends, 2) - np.stack([weights, np.minimum(weights, 1.0)], axis=1).ravel()
    return np.asarray(np.interp(levels * places[-1], places, np.repeat(values, 2)))


def transformed(transform: WithErrors, X: Array, X_err: Any) -> tuple[Array, Any]:
    """Return what a transform makes of values and errors."""
    values, errors = split_errors(transform.transform(X, X_err))
    return as_numbers(values, "X"), errors


class View(NamedTuple):
    """What a classifier is given in place of measurements: posteriors under a population of transformed features.

    Attributes
    ----------
    transform : WithErrors, or None for features as they are
    population : of the truth, in the units of transformed features
    centre, scale : its mean and spread
    """

    transform: WithErrors | None
    population: Deconvolve
    centre: Array
    scale: Array

    @classmethod
    def of(cls, transform: WithErrors | None, population: Deconvolve) -> "View":
        """Return the view of a population."""
        whole = population.population_
        return cls(transform, population, whole.mean, np.sqrt(np.diag(whole.covariance)))

    def of_measured(self, X: Array, X_err: Any) -> Any:
        """Return what measured values say of the truth."""
        if self.transform is not None:
            X, X_err = transformed(self.transform, X, X_err)
        return self.posterior(X, X_err)

    def posterior(self, X: Array, X_err: Any) -> Any:
        """Return what transformed values say of the truth, in units of the spread; of exact ones an array."""
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
    """The samples of a fit as a view transforms them, and their labels."""

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
        """Return transformed values of some rows, and their errors."""
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
