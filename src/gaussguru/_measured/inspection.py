"""The importance of features: to a model, and to one of its predictions.

A feature that was not measured has an infinite error. A classifier that was fitted with error bars predicts its value
from the other features of the sample. So a feature is left out of a prediction without a new fit:
:func:`feature_importance` does so for all samples, :func:`explain` for one. Both compute the gain of a feature over the
others: of two features with the same information, each adds little.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.missing import standard_deviations, unmeasured
from gaussguru._errors.parse import marked
from gaussguru._errors.samples import Measured, split_errors
from gaussguru._measured.affine import AffineMap, NotLinearError, as_table, final_estimator, true_labels
from gaussguru._measured.calibrated import CalibratedWithErrorsCV
from gaussguru._measured.error_bar import ErrorBarClassifier
from gaussguru._measured.remeasure import without_gaps
from gaussguru._rows.validation import check_weights
from gaussguru._utils.checks import check_choice, check_count
from gaussguru._utils.frames import as_numbers, column_names, column_values, like, put_column, take_rows
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import ErrorBars, Estimator, MixedArray, Values


class FeatureImportance(NamedTuple):
    """How much worse predictions are without each feature.

    Attributes
    ----------
    features : ndarray of shape (n_features,)
        Names of the features, or x0, x1, ....
    importance : ndarray of shape (n_features,)
        Rise of the mean log loss, or drop of the accuracy, without the feature.
    error : ndarray of shape (n_features,)
        Standard error of ``importance``, over the samples.
    baseline : float
        Mean log loss, or accuracy, with all features.
    method, scoring : str

    Examples
    --------
    >>> from gaussguru import ErrorBarClassifier
    >>> from gaussguru.datasets import make_measured
    >>> from gaussguru.inspection import feature_importance
    >>> data = make_measured(600, 3, random_state=0)
    >>> model = ErrorBarClassifier(model="linear").fit(data.X[:300], data.y[:300], X_err=data.X_err[:300])
    >>> found = feature_importance(model, data.X[300:], data.y[300:], X_err=data.X_err[300:])
    >>> found.features.tolist(), found.importance.shape
    (['x0', 'x1', 'x2'], (3,))
    """

    features: MixedArray
    importance: Array
    error: Array
    baseline: float
    method: str
    scoring: str

    @property
    def table(self) -> dict[str, MixedArray]:
        """Columns "feature", "importance" and "error", for ``pandas.DataFrame``."""
        return {"feature": self.features, "importance": self.importance, "error": self.error}


def feature_importance(
    model: Estimator,
    X: object,
    y: object,
    X_err: object = None,
    *,
    method: str = "unmeasured",
    scoring: str = "log_loss",
    n_repeats: int = 5,
    sample_weight: object = None,
    random_state: object = 0,
) -> FeatureImportance:
    """Return how much worse the predictions of a classifier are without each feature.

    "unmeasured" sets the errors of the feature to infinity::

        importance_j = mean_i [loss(y_i, x_i without feature j) - loss(y_i, x_i)]

    The model fills it in from the other features, as for any value that was not measured. "permutation" gives each
    sample the value and the error of another one instead, as ``sklearn.inspection.permutation_importance`` does. It
    works for every classifier, but sees combinations of values that do not occur.

    Give samples that the model was not fitted to: with those of training, features that were learnt by heart matter,
    too.

    Parameters
    ----------
    model : fitted classifier, Pipeline or search
        For "unmeasured" one that was fitted with error bars.
    X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None
        In any form, with correlations. None: the values are exact, or X is :class:`gaussguru.Measured`.
    method : {"unmeasured", "permutation"}, default="unmeasured"
    scoring : {"log_loss", "accuracy"}, default="log_loss"
        The loss of a sample: minus the logarithm of the probability of its class, or 1 for a wrong label.
    n_repeats : int, default=5
        Number of permutations of each feature, over which losses are averaged.
    sample_weight : array-like of shape (n_samples,), default=None
    random_state : int, RandomState instance or None, default=0
        Seed of the permutations.

    Returns
    -------
    FeatureImportance
    """
    check_choice("method", method, ("unmeasured", "permutation"))
    check_choice("scoring", scoring, ("log_loss", "accuracy"))
    check_count("n_repeats", n_repeats)
    samples = _in_memory(model, X, X_err)
    n, d = samples.shape
    weights = check_weights(sample_weight, n)
    weights = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    labels = true_labels(model, y, n)

    def losses(samples: object) -> Array:
        """Return the loss of every sample, (n,)."""
        if scoring == "accuracy":
            return np.asarray(model.predict(samples) != final_estimator(model).classes_[labels], dtype=np.float64)
        chances = np.asarray(_probabilities(model, samples), dtype=np.float64)[np.arange(n), labels]
        return -np.log(np.clip(chances, np.finfo(np.float64).eps, 1.0))

    before, rng = losses(samples), check_random_state(random_state)
    importance, error = np.zeros((2, d))
    for j in range(d):
        if method == "unmeasured":
            after = _without(model, losses, samples, np.broadcast_to(np.arange(d) == j, (n, d)))
        else:
            after = np.mean([losses(_permuted(samples, j, rng.permutation(n))) for _ in range(n_repeats)], axis=0)
        importance[j] = weights @ (after - before)
        error[j] = np.sqrt(np.square(weights) @ np.square(after - before - importance[j]))
    mean = float(weights @ before)
    baseline = 1.0 - mean if scoring == "accuracy" else mean
    return FeatureImportance(_names(model, samples), importance, error, baseline, method, scoring)


class Explanation(NamedTuple):
    """The part of each feature in the probability of one sample.

    Attributes
    ----------
    label : object
        The class of which the probability is explained.
    probability : float
        ``P(label | x, x_err)``.
    base : float
        The probability if no feature had been measured.
    features : ndarray of shape (n_features,)
        Names of the features, or x0, x1, ....
    values, errors : ndarray of shape (n_features,)
        The sample, and its standard deviations.
    without : ndarray of shape (n_features,)
        The probability if the feature had not been measured.
    contribution : ndarray of shape (n_features,)
        ``probability - without``: positive if the feature speaks for the class.

    Examples
    --------
    >>> from gaussguru import ErrorBarClassifier
    >>> from gaussguru.datasets import make_measured
    >>> from gaussguru.inspection import explain
    >>> data = make_measured(300, 3, random_state=0)
    >>> model = ErrorBarClassifier(model="linear").fit(data.X, data.y, X_err=data.X_err)
    >>> found = explain(model, [2.0, 0.0, 0.0], [0.1, 0.5, 0.5])
    >>> bool((found.contribution == found.probability - found.without).all())
    True
    """

    label: object
    probability: float
    base: float
    features: MixedArray
    values: Array
    errors: Array
    without: Array
    contribution: Array

    @property
    def table(self) -> dict[str, MixedArray]:
        """Columns "feature", "value", "error", "without" and "contribution", for ``pandas.DataFrame``."""
        return {
            "feature": self.features, "value": self.values, "error": self.errors, "without": self.without,
            "contribution": self.contribution,
        }  # fmt: skip


def explain(model: Estimator, x: Values, x_err: ErrorBars = None, *, label: object = None) -> Explanation:
    """Return which features moved the probability of one sample, and by how much.

    ::

        contribution_j = P(c | x) - P(c | x without feature j)

    where a feature is left out as one that was not measured. Contributions do not add up to ``probability - base``: of
    features that tell the same, each contributes little.

    Parameters
    ----------
    model : fitted classifier, Pipeline or search with ``predict_proba``
        It was fitted with error bars.
    x : array-like of shape (n_features,), or DataFrame or Measured of one sample
    x_err : array-like of shape (n_features,) or (n_features, n_features), or error bars of one sample, default=None
        Standard deviations or a covariance. None: the values are exact, or x is :class:`gaussguru.Measured`.
    label : object, default=None
        The class c. None is the one of the greatest probability.

    Returns
    -------
    Explanation
    """
    sample = _one_sample(model, x, x_err)
    d, classes = sample.shape[1], final_estimator(model).classes_.tolist()
    if label is not None and label not in classes:
        raise ValueError(f"label must be one of the classes {classes!r}; got {label!r}")
    chances = np.asarray(_probabilities(model, sample), dtype=np.float64)[0]
    index = int(np.argmax(chances)) if label is None else classes.index(label)
    gaps = np.concatenate([np.eye(d, dtype=bool), np.ones((1, d), dtype=bool)])
    copies = take_rows(sample, np.zeros(d + 1, dtype=np.intp))
    others = _without(model, lambda gapped: _probabilities(model, gapped), copies, gaps)[:, index]
    values, errors = split_errors(sample)
    return Explanation(
        classes[index],
        float(chances[index]),
        float(others[-1]),
        _names(model, sample),
        as_numbers(values, "x")[0],
        standard_deviations(errors, (1, d))[0],
        others[:-1],
        chances[index] - others[:-1],
    )


class Coefficients(NamedTuple):
    """The coefficients of a linear classifier, by name.

    Attributes
    ----------
    features : ndarray of shape (n_features,)
        Names of the features, or x0, x1, ....
    classes : ndarray of shape (n_scores,)
        The class for which each score speaks: the second of two, or every one.
    coef : ndarray of shape (n_scores, n_features)
        Change of the score for a change of the feature by 1.
    per_spread : ndarray of shape (n_scores, n_features)
        Change of the score for a change of the feature by its standard deviation: comparable between features.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.inspection import coefficients
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> X = X.filter(like="mean")
    >>> found = coefficients(GuruClassifier(5.0).fit(X, y), X)
    >>> found.coef.shape, found.features[0]
    ((1, 10), np.str_('mean radius'))
    """

    features: MixedArray
    classes: MixedArray
    coef: Array
    per_spread: Array

    @property
    def table(self) -> dict[str, MixedArray]:
        """Columns "feature", "coef" and "per_spread" for ``pandas.DataFrame``; of more scores with the class."""
        columns: dict[str, MixedArray] = {"feature": self.features}
        for label, coef, scaled in zip(self.classes, self.coef, self.per_spread, strict=True):
            ending = f"_{label}" if len(self.classes) > 1 else ""
            columns |= {f"coef{ending}": coef, f"per_spread{ending}": scaled}
        return columns


def coefficients(model: Estimator, X: Values) -> Coefficients:
    """Return the coefficients of a linear classifier, by name, in the units of X.

    Parameters
    ----------
    model : fitted linear classifier
        A pipeline of affine steps and a linear classifier has the coefficients of the whole. Those of
        ``ErrorBarClassifier(model="linear")`` and ``CalibratedWithErrorsCV`` are of the calibrated score, and refer to
        the posterior means of the true values.
    X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        Samples, for the spreads of the features.

    Returns
    -------
    Coefficients
    """
    check_is_fitted(model)
    values, X_err = split_errors(X)
    values = as_table(values)
    if sp.issparse(values):
        spread = np.sqrt(mean_variance_axis(values.tocsr(), axis=0)[1])
    else:
        table = np.where(unmeasured(X_err, values.shape), np.nan, as_numbers(values, "X"))
        spread, values = np.nanstd(table, axis=0), without_gaps(like(values, table))
    coef = _coefficients(model, values)
    classes = np.asarray(final_estimator(model).classes_)
    return Coefficients(_names(model, X), classes[1:] if len(coef) == 1 else classes, coef, coef * spread)


def _coefficients(model: Estimator, X: Values) -> Array:
    """Return the coefficients of the scores of a model, (n_scores, n_features), from samples without gaps."""
    if hasattr(model, "best_estimator_"):
        return _coefficients(model.best_estimator_, X)
    if isinstance(model, CalibratedWithErrorsCV):
        return np.asarray(model.alpha_ * _coefficients(model.estimator_, X))
    if isinstance(model, Pipeline) and len(model) > 1:
        steps = model[:-1]

        def transform(samples: object) -> Values:
            return split_errors(steps.transform(samples))[0]

        outputs, affine = transform(X), AffineMap.of(transform, X)
        try:
            affine.check(X, outputs, steps)
        except ValueError as problem:
            raise _without_coefficients(model) from problem
        return np.asarray(_coefficients(model[-1], outputs) @ affine.matrix.T)
    if isinstance(model, ErrorBarClassifier) and model.model == "linear":
        return np.asarray(model.alpha_ * model.estimator_.coef_ / model.scale_)
    coef = np.asarray(getattr(model, "coef_", np.zeros(0)), dtype=np.float64)
    if coef.ndim != 2 or len(coef) not in (1, len(model.classes_)):
        raise _without_coefficients(model)
    return coef


def _without_coefficients(model: Estimator) -> NotLinearError:
    return NotLinearError(
        f"{type(final_estimator(model)).__name__} has no coefficients, as its scores are not linear in X: "
        "feature_importance tells which features matter to any classifier"
    )


# --- samples with and without a feature ---------------------------------------------------------------------------


def _in_memory(model: Estimator, X: Values, X_err: ErrorBars) -> Values:
    """Return samples of a fitted model, with their errors if there are any."""
    check_is_fitted(model)
    if isinstance(X, Measured):
        return X
    values, errors = split_errors(as_table(X), X_err)
    return values if errors is None else Measured.checked(values, errors)


def _one_sample(model: Estimator, x: Values, x_err: ErrorBars) -> Values:
    """Return a single sample of two dimensions, with its errors if there are any; it may be a Series of pandas."""
    x, x_err = (given.to_frame().T.infer_objects() if hasattr(given, "to_frame") else given for given in (x, x_err))
    x = x if isinstance(x, Measured) else as_table(x)
    x = x.reshape(1, -1) if len(x.shape) == 1 else x
    if x_err is not None and np.ndim(x_err) and not hasattr(x_err, "shape"):
        x_err = np.asarray(x_err, dtype=np.float64)
    d = int(x.shape[1])
    if getattr(x_err, "shape", None) in ((d,), (d, d) if d > 1 else None):
        x_err = np.asarray(x_err)[np.newaxis]
    sample = _in_memory(model, x, x_err)
    if sample.shape[0] != 1:
        raise ValueError(f"x must be one sample; got {sample.shape[0]}")
    return sample


def _without(model: Estimator, function: Any, samples: Values, gaps: NDArray[np.bool_]) -> Any:
    """Return a function of samples without the values of a mask."""
    values, errors = split_errors(samples)
    errors = np.zeros(gaps.shape) if errors is None else errors
    reduced = Measured.checked(values, marked(errors, gaps))
    try:
        return function(reduced)
    except (TypeError, ValueError) as problem:
        raise type(problem)(
            f"{type(final_estimator(model)).__name__} cannot predict samples of which a feature was not measured "
            f"({problem}): fit it with X_err, or use feature_importance(..., method='permutation')"
        ) from problem


def _permuted(samples: object, column: int, order: MixedArray) -> Values:
    """Return samples with the values and errors of other samples in one column."""
    if not isinstance(samples, Measured):
        return put_column(samples, column, column_values(samples, column)[order])
    result = samples.copy()
    result[:, [column]] = samples[order][:, [column]]
    return result


def _probabilities(model: Estimator, samples: Values) -> Values:
    if not hasattr(model, "predict_proba"):
        raise TypeError(
            f"model must have predict_proba; {type(final_estimator(model)).__name__} has none. There is "
            "feature_importance(..., scoring='accuracy')"
        )
    return model.predict_proba(samples)


def _names(model: Estimator, samples: Values) -> MixedArray:
    """Return the names of the features, from X, the fit, or x0, x1, ...."""
    names = column_names(samples.X if isinstance(samples, Measured) else samples)
    if names is None:
        names = getattr(getattr(model, "best_estimator_", model), "feature_names_in_", None)
    return np.array([f"x{j}" for j in range(samples.shape[1])]) if names is None else np.asarray(names)
