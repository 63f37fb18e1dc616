"""What noise on the features does to the predictions of a linear classifier, without sampling.

Any classifier with ``decision_function`` will do, if that is affine in X: those of this library, ``LinearSVC`` or
``LogisticRegression``, a pipeline of a scaler and one of them, a search that found one. X and its noise are what the
whole pipeline is given.

What a classifier says of a prediction (:func:`class_probabilities`, :func:`flip_probability`) counts the noise that it
was told to expect (``sigma`` in every direction for noise="isotropic"), plus the error bars.
What it is worth under a given noise (:func:`expected_accuracy`, :func:`robustness_curve`) counts that noise alone:
models of different ``sigma`` must be compared under the same.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from gaussguru._estimators.base import LinearScores
from gaussguru._estimators.validation import check_choice, check_count
from gaussguru._linalg import Array
from gaussguru.errors import check_errors, has_unmeasured, split_errors
from gaussguru.preprocessing import AffineMap
from gaussguru.probabilities import (
    distance_to_boundary,
    expected_score,
    label_probabilities,
    lower_bound,
    places,
    score_covariance,
    top_probabilities,
    winners,
)

__all__ = [
    "NotLinearError",
    "RobustnessCurve",
    "certified_radius",
    "class_probabilities",
    "expected_accuracy",
    "expected_accuracy_scorer",
    "flip_probability",
    "log_loss_scorer",
    "robustness_curve",
    "top_probabilities",
]


class NotLinearError(TypeError, ValueError):
    """The scores of a classifier are not linear in X, or it has none: what noise does to it has no closed form."""


def class_probabilities(
    estimator: Any, X: Any, *, X_err: Any = None, return_error: bool = False
) -> Array | tuple[Array, Array]:
    """Return the probability that noise leaves each class on top.

    For two classes this is ``predict_proba``. For more it is the probability that ``x`` plus noise has its highest
    score in a class. It is exact for up to three classes (Owen's T function) and for noise of a single direction; else
    one direction is integrated exactly and the others at quasi-random points, the same every time, with a standard
    error that can be had: mostly below 0.001, and at most 0.007 was seen, with ten classes of similar chance. The class
    with the highest probability need not be the predicted one.

    Parameters
    ----------
    estimator : fitted linear classifier
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None
        They are added to the noise of the model. An estimator without noise of its own needs them.
    return_error : bool, default=False
        Whether to return the standard errors too, 0 where the result is exact.

    Returns
    -------
    probabilities : ndarray of shape (n_samples, n_classes)
    error : ndarray of shape (n_samples, n_classes)
        Only if ``return_error``.
    """
    scores, noise = _noisy_scores(estimator, X, X_err, own=True)
    probabilities, error = label_probabilities(scores, noise)
    return (probabilities, error) if return_error else probabilities


def flip_probability(estimator: Any, X: Any, *, X_err: Any = None) -> Array:
    """Return the probability that noise changes the predicted label.

    ``Phi(-|w.x + b| / sqrt(w' Sigma w))`` for two classes, else one minus the probability that the predicted class
    stays on top (:func:`class_probabilities`). Without noise it is 0.

    Parameters
    ----------
    estimator : fitted linear classifier
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None
        They are added to the noise of the model. An estimator without noise of its own needs them.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    scores, noise = _noisy_scores(estimator, X, X_err, own=True)
    probabilities, _ = label_probabilities(scores, noise)
    probabilities[np.arange(len(scores)), winners(scores)] = 0.0
    return np.asarray(np.minimum(probabilities.sum(axis=1), 1.0))


def certified_radius(estimator: Any, X: Any) -> Array:
    """Return the length of the smallest displacement of each sample that changes its label.

    ``|w.x + b| / ||w||`` for two classes; for more the least over the other classes k of
    ``((w_y - w_k).x + b_y - b_k) / ||w_y - w_k||``. It is infinite where no displacement does.

    Parameters
    ----------
    estimator : fitted linear classifier
    X : array-like or sparse matrix of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    X, _ = split_errors(X)
    scores, coef = linear_scores(estimator, X)
    return distance_to_boundary(scores, coef)


def expected_accuracy(
    estimator: Any, X: Any, y: Any, *, X_err: Any = None, sample_weight: Any = None, bound: bool = False
) -> float:
    """Return the accuracy to be expected when noise is added to X.

    The mean of ``Phi(y_i (w.x_i + b) / sqrt(w' Sigma_i w))`` for two classes, of the probability that class ``y_i`` is
    on top for more (:func:`class_probabilities`, with its error; that of the mean is smaller).

    Parameters
    ----------
    estimator : fitted linear classifier
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None
        The noise, all of it. None is the noise that the model was told to expect.
    sample_weight : array-like of shape (n_samples,), default=None
    bound : bool, default=False
        Whether to return a guaranteed lower bound instead: the mean of
        ``max(0, 1 - sum_{k != y} Phi(-margin_k / sd(margin_k)))``. For two classes it is the same.

    Returns
    -------
    float
    """
    X, X_err = split_errors(X, X_err)
    scores, noise = _noisy_scores(estimator, X, X_err, own=X_err is None)
    classes = final_estimator(estimator).classes_
    if bound and scores.ndim == 2:
        labels, _ = places(classes, y, len(scores))
        probabilities = np.zeros(scores.shape)
        probabilities[np.arange(len(labels)), labels] = lower_bound(scores, noise, labels)
    else:
        probabilities, _ = label_probabilities(scores, noise)
    return expected_score(probabilities, classes, y, sample_weight)


class RobustnessCurve(NamedTuple):
    """Accuracy against the noise level.

    ``error`` is the standard error of ``accuracy``: of sampling, or a bound on that of the quadrature, which is 0 where
    there is a closed form.
    """

    noise_levels: Array
    accuracy: Array
    error: Array


def robustness_curve(
    estimator: Any,
    X: Any,
    y: Any,
    noise_levels: Any,
    *,
    X_err: Any = None,
    method: str = "analytic",
    n_repeats: int = 20,
    sample_weight: Any = None,
    random_state: Any = None,
) -> RobustnessCurve:
    """Return the accuracy under noise of each level.

    Parameters
    ----------
    estimator : fitted classifier
        Linear for "analytic"; "sampling" needs only ``predict``.
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    noise_levels : array-like of shape (n_levels,)
        Standard deviations of the noise of every feature, in the units of X; or multiples of the error bars.
    X_err : error bars of X, default=None
        The noise of level 1: standard deviations or covariances, which may differ from feature to feature and from
        sample to sample. What was not measured is what the rest of a sample says of it.
    method : {"analytic", "sampling"}, default="analytic"
        Closed forms as in :func:`expected_accuracy`, or noise that is drawn and added to X, which is then dense.
    n_repeats : int, default=20
        How often noise is drawn; at least 2, for the error.
    sample_weight : array-like of shape (n_samples,), default=None
    random_state : int, RandomState instance or None, default=None
        Draws the noise.

    Returns
    -------
    RobustnessCurve
    """
    check_choice("method", method, ("analytic", "sampling"))
    levels = check_levels(noise_levels)
    X, X_err = split_errors(X, X_err)
    X = _as_table(X)
    if has_unmeasured(X_err):
        X, X_err = fill_unmeasured(estimator, X, X_err)
    errors_at_one = check_errors(np.ones(X.shape[0]) if X_err is None else X_err, X)
    accuracy, error = np.zeros((2, len(levels)))
    if method == "analytic":
        scores, coef = linear_scores(estimator, X)
        labels, known = places(final_estimator(estimator).classes_, y, len(scores))
        product = coef @ coef.T if X_err is None else score_covariance(coef, errors_at_one)
        for i, level in enumerate(levels):
            probabilities, errors = label_probabilities(scores, level**2 * product)
            hits, doubts = (
                np.where(known, part[np.arange(len(labels)), labels], 0.0) for part in (probabilities, errors)
            )
            # The points are the same for all samples, so that errors may have the same sign.
            accuracy[i], error[i] = (np.average(part, weights=sample_weight) for part in (hits, doubts))
        return RobustnessCurve(levels, accuracy, error)
    check_count("n_repeats", n_repeats, low=2)
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    values = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    for i, level in enumerate(levels):
        runs = []
        for _ in range(n_repeats if level > 0 else 1):
            noisy = values + level * errors_at_one.sample(rng)
            noisy = type(X)(noisy, index=X.index, columns=X.columns) if hasattr(X, "iloc") else noisy
            runs.append(accuracy_score(y, estimator.predict(noisy), sample_weight=sample_weight))
        accuracy[i] = np.mean(runs)
        error[i] = np.std(runs, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return RobustnessCurve(levels, accuracy, error)


def check_levels(noise_levels: Any) -> Array:
    """Return noise levels, checked."""
    try:
        levels = np.atleast_1d(np.asarray(noise_levels, dtype=np.float64))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"noise_levels must hold numbers: {problem}") from problem
    if levels.ndim != 1 or not levels.size or not np.all(np.isfinite(levels)) or levels.min() < 0:
        raise ValueError(f"noise_levels must hold standard deviations, finite and none below 0; got {noise_levels!r}")
    return levels


class _Scorer(BaseEstimator, ABC):
    """A scorer for searches and cross-validation that can be given error bars by metadata routing."""

    __metadata_request__score: ClassVar = {"estimator": UNUSED, "X_err": True}

    def __call__(self, estimator: Any, X: Any, y_true: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        return self.score(estimator, X, y_true, X_err=X_err, sample_weight=sample_weight)

    @abstractmethod
    def score(self, estimator: Any, X: Any, y: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        """Return the score of an estimator; larger is better."""


class ExpectedAccuracyScorer(_Scorer):
    """Scores by :func:`expected_accuracy`.

    It sees the error bars of a fold with scikit-learn's metadata routing, of which it asks for ``X_err``, or where X is
    :class:`gaussguru.errors.Measured`.
    """

    def score(self, estimator: Any, X: Any, y: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        """Return the expected accuracy.

        Without error bars the noise is what the model was told to expect.
        """
        return expected_accuracy(estimator, X, y, X_err=X_err, sample_weight=sample_weight)


class LogLossScorer(_Scorer):
    """Scores by minus the mean logarithm of what :func:`class_probabilities` gives to the true class.

    It sees error bars as :class:`ExpectedAccuracyScorer` does. Probabilities below the precision of float64
    count as that, as in ``sklearn.metrics.log_loss``.
    """

    def score(self, estimator: Any, X: Any, y: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        """Return minus the log loss."""
        scores, noise = _noisy_scores(estimator, X, X_err, own=True)
        probabilities, _ = label_probabilities(scores, noise)
        logs = np.log(np.clip(probabilities, np.finfo(np.float64).eps, 1.0))
        classes = final_estimator(estimator).classes_
        labels, known = places(classes, y, len(scores))
        if not known.all():
            raise ValueError(f"y must hold labels among the classes {classes.tolist()!r}")
        return float(np.average(logs[np.arange(len(labels)), labels], weights=sample_weight))


expected_accuracy_scorer = ExpectedAccuracyScorer()
log_loss_scorer = LogLossScorer()


def _noisy_scores(estimator: Any, X: Any, X_err: Any, *, own: bool) -> tuple[Array, Array]:
    """Return the scores of the samples and the covariances of their noise: that of the model, error bars, or both."""
    X, X_err = split_errors(X, X_err)
    X = _as_table(X)
    final = final_estimator(estimator)
    if own and not hasattr(final, "_score_noise"):
        if X_err is None:
            raise ValueError(f"X_err must be given: {type(final).__name__} has no noise of its own")
        own = False
    if has_unmeasured(X_err):
        X, X_err = fill_unmeasured(estimator, X, X_err)
    scores, coef = linear_scores(estimator, X)
    noise = final._score_noise() if own else np.zeros((len(coef), len(coef)))
    if X_err is not None:
        noise = noise + score_covariance(coef, check_errors(X_err, X))
    return scores, noise


def linear_scores(estimator: Any, X: Any) -> tuple[Array, Array]:
    """Return the scores of the samples, and the coefficients of a decision function that is affine in X."""
    check_is_fitted(estimator)
    final = final_estimator(estimator)
    if not hasattr(estimator, "decision_function"):
        raise NotLinearError(
            f"estimator must be a linear classifier with a decision_function; got {type(final).__name__}. For others "
            "there is robustness_curve(..., method='sampling')"
        )
    table = _as_table(X)
    scores = np.asarray(estimator.decision_function(X))
    if isinstance(estimator, LinearScores):  # linear by what it is; to look takes the square of the number of features
        return scores.astype(np.float64, copy=False), estimator.coef_
    affine = AffineMap.of(estimator.decision_function, table)
    try:
        affine.check(table, scores, final)
    except ValueError:
        raise NotLinearError(
            f"estimator must have scores that are linear in X; those of {type(final).__name__} are not. For any "
            "classifier there is robustness_curve(..., method='sampling')"
        ) from None
    matrix = affine.matrix.toarray() if sp.issparse(affine.matrix) else affine.matrix
    exact = estimator.coef_ if estimator is final and hasattr(final, "coef_") else matrix.T
    return scores.astype(np.float64, copy=False), np.atleast_2d(np.asarray(exact, dtype=np.float64))


def _as_table(X: Any) -> Any:
    return X if sp.issparse(X) or hasattr(X, "iloc") else np.asarray(X)


def fill_unmeasured(estimator: Any, X: Any, X_err: Any) -> tuple[Any, Any]:
    """Return X and X_err with what the first step of the estimator knows of values that were not measured."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    first = estimator[0] if isinstance(estimator, Pipeline) else estimator
    population = getattr(first, "population_", None)
    if population is None:
        raise ValueError(
            f"X_err has infinite errors, for what was not measured, and {type(first).__name__} does not know what to "
            "expect there: it was fitted without X_err"
        )
    filled: tuple[Any, Any] = population.fill(X, X_err)
    return filled


def final_estimator(estimator: Any) -> Any:
    """Return the last step of a pipeline, of what a search found, or the estimator itself."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return final_estimator(estimator[-1]) if isinstance(estimator, Pipeline) else estimator
