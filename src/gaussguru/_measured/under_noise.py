"""Effect of noise on predictions: of linear classifiers in closed form, of those that count error bars by sampling."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED

from gaussguru._errors.checks import check_errors
from gaussguru._errors.missing import has_unmeasured
from gaussguru._errors.parse import finite, scaled
from gaussguru._errors.samples import Measured, measured, split_errors
from gaussguru._guru.base import ByProbability, Classifier
from gaussguru._guru.probabilities import (
    covariance_roots,
    distance_to_boundary,
    expected_score,
    joined_roots,
    label_probabilities,
    lower_bound,
    places,
    score_roots,
    winners,
)
from gaussguru._guru.streamed import without_population
from gaussguru._measured.affine import NotLinearError, as_table, dense, final_estimator, linear_scores, true_labels
from gaussguru._measured.calibrated import last_step
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._utils.checks import ParameterError, check_choice, check_count
from gaussguru._utils.frames import like
from gaussguru._utils.linalg import Array, Index, graded_roots
from gaussguru._utils.types import ErrorBars, Estimator, Labels, Values


def class_probabilities(
    estimator: BaseEstimator, X: object, *, X_err: object = None, return_error: bool = False
) -> Array | tuple[Array, Array]:
    """Return the probability that each class has the highest score under noise.

    For two classes this is ``predict_proba``. The result is exact for up to three classes (Owen's T function) and for
    noise in a single direction. Otherwise one direction is integrated exactly and the others at fixed quasi-random
    points; the standard error is mostly below 0.001 (the largest seen was 0.007, for ten classes of similar
    probability). The class with the highest probability need not be the predicted one.

    For a classifier that predicts by probabilities (:class:`gaussguru.ErrorBarClassifier`,
    :class:`gaussguru.PopulationClassifier`, :class:`gaussguru.calibration.CalibratedWithErrorsCV`) the result is its
    ``predict_proba``, which accounts for the overlap of the classes as well as for the error bars. For a linear
    classifier after :class:`gaussguru.population.Deconvolve` the noise is that of the posterior.

    Parameters
    ----------
    estimator : fitted classifier, linear or one that predicts by probabilities
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None
        Added to the noise of the model. Required if the model has no noise of its own, and if it was fitted with error
        bars and predicts by probabilities.
    return_error : bool, default=False
        Whether to return the standard errors, too. They are 0 where the result is exact or that of ``predict_proba``.

    Returns
    -------
    probabilities : ndarray of shape (n_samples, n_classes)
    error : ndarray of shape (n_samples, n_classes)
        Only if ``return_error``.
    """
    if isinstance(final_estimator(estimator), ByProbability):
        probabilities = np.asarray(estimator.predict_proba(measured(X, X_err)))
        error = np.zeros(probabilities.shape)
    else:
        probabilities, error, _ = _linear_probabilities(estimator, X, X_err)
    return (probabilities, error) if return_error else probabilities


def flip_probability(
    estimator: BaseEstimator, X: object, *, X_err: object = None, n_repeats: int = 100, random_state: object = 0
) -> Array:
    """Return the probability that noise changes the predicted label.

    ``Phi(-|w.x + b| / sqrt(w' Sigma w))`` for two classes. For more, one minus the probability that the predicted class
    keeps the highest score (:func:`class_probabilities`). Without noise it is 0.

    For a classifier that predicts by probabilities, noise with the covariance ``Sigma`` of ``X_err`` is drawn and added
    to X, and the result is the fraction f of draws in which the label is another one; its standard error is
    ``sqrt(f (1 - f) / n_repeats)``. This is not the probability that the label is wrong, which is one minus the largest
    of ``predict_proba``.

    Parameters
    ----------
    estimator : fitted classifier, linear or one that predicts by probabilities
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None
        Added to the noise of the model. Required if the model has no noise of its own.
    n_repeats : int, default=100
        Number of draws of the noise, where it is drawn.
    random_state : int, RandomState instance or None, default=0
        Seed of the draws.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    if isinstance(final_estimator(estimator), ByProbability):
        check_count("n_repeats", n_repeats)
        samples = measured(X, X_err)
        _check_noise_given(estimator, split_errors(samples)[1])
        before, rng = estimator.predict(samples), _generator(random_state)
        draws = (estimator.predict(with_larger_errors(samples, None, np.sqrt(2.0), rng)) for _ in range(n_repeats))
        return np.asarray(np.mean([labels != before for labels in draws], axis=0))
    probabilities, _, best = _linear_probabilities(estimator, X, X_err)
    probabilities[np.arange(len(best)), best] = 0.0
    return np.asarray(np.minimum(probabilities.sum(axis=1), 1.0))


def certified_radius(estimator: BaseEstimator, X: object) -> Array:
    """Return the length of the shortest displacement of each sample that changes its label.

    ``|w.x + b| / ||w||`` for two classes. For more, the minimum over the other classes k of
    ``((w_y - w_k).x + b_y - b_k) / ||w_y - w_k||``. It is infinite if no displacement changes the label.

    Parameters
    ----------
    estimator : fitted linear classifier
    X : array-like or sparse matrix of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    X, X_err = split_errors(X)
    if X_err is not None and counts_errors(estimator):
        raise _not_linear(estimator, "flip_probability")
    if has_unmeasured(X_err):
        X, _ = fill_unmeasured(estimator, X, X_err)
    scores, coef = linear_scores(estimator, X)
    return distance_to_boundary(scores, coef)


def expected_accuracy(
    estimator: BaseEstimator,
    X: object,
    y: object,
    *,
    X_err: object = None,
    sample_weight: object = None,
    bound: bool = False,
    n_repeats: int = 20,
    random_state: object = 0,
) -> float:
    """Return the expected accuracy when noise is added to X.

    For two classes, the mean of ``Phi(y_i (w.x_i + b) / sqrt(w' Sigma_i w))``. For more, the mean probability that
    class ``y_i`` has the highest score (:func:`class_probabilities`).

    For a classifier that counts error bars, noise is drawn, and predictions are told the larger errors: the result is
    the accuracy of :func:`robustness_curve` at level 1 by sampling, which has its standard error, too.

    Parameters
    ----------
    estimator : fitted classifier, linear or one that counts error bars
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None
        The noise. None is the noise of the model.
    sample_weight : array-like of shape (n_samples,), default=None
    bound : bool, default=False
        Whether to return a lower bound instead: the mean of
        ``max(0, 1 - sum_{k != y} Phi(-margin_k / sd(margin_k)))``. For two classes it equals the expected accuracy.
        Only for linear classifiers.
    n_repeats : int, default=20
        Number of draws of the noise, where it is drawn; at least 2.
    random_state : int, RandomState instance or None, default=0
        Seed of the draws.

    Returns
    -------
    float
    """
    X, X_err = split_errors(X, X_err)
    if X_err is not None and counts_errors(estimator):
        if bound:
            raise _not_linear(estimator, "bound=False, which draws noise")
        curve = robustness_curve(
            estimator, X, y, [1.0], X_err=X_err, method="sampling", n_repeats=n_repeats, sample_weight=sample_weight,
            random_state=random_state,
        )  # fmt: skip
        return float(curve.accuracy[0])
    scores, roots = _noisy_scores(estimator, X, X_err, with_model=X_err is None)
    classes = final_estimator(estimator).classes_
    if bound and scores.ndim == 2:
        labels, _ = places(classes, y, len(scores))
        probabilities = np.zeros(scores.shape)
        probabilities[np.arange(len(labels)), labels] = lower_bound(scores, roots, labels)
    else:
        probabilities, _ = label_probabilities(scores, roots)
    return expected_score(probabilities, classes, y, sample_weight)


class RobustnessCurve(NamedTuple):
    """Accuracy against the noise level.

    Attributes
    ----------
    noise_levels : ndarray of shape (n_levels,)
    accuracy : ndarray of shape (n_levels,)
    error : ndarray of shape (n_levels,)
        Standard error of ``accuracy`` by sampling, or a bound on the quadrature error; 0 for closed forms.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.robustness import robustness_curve
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> curve = robustness_curve(GuruClassifier(5.0).fit(X, y), X, y, [0.0, 5.0, 50.0])
    >>> bool(curve.accuracy[0] > curve.accuracy[2])
    True
    """

    noise_levels: Array
    accuracy: Array
    error: Array


def robustness_curve(
    estimator: BaseEstimator,
    X: Values,
    y: object,
    noise_levels: object,
    *,
    X_err: ErrorBars = None,
    method: str = "analytic",
    n_repeats: int = 20,
    sample_weight: object = None,
    random_state: object = None,
) -> RobustnessCurve:
    """Return the accuracy at each noise level.

    Noise of ``level`` times the error bars is added to X. A classifier that counts error bars is told that the values
    have become noisier: its predictions are given ``sqrt(1 + level^2) X_err``, so at level 0 they are those of the
    samples as measured. Other classifiers are not told.

    Parameters
    ----------
    estimator : fitted classifier
        Linear for "analytic"; "sampling" needs only ``predict``.
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    noise_levels : array-like of shape (n_levels,)
        Standard deviations of the noise on every feature, in the units of X; with ``X_err``, factors on the error bars.
    X_err : error bars of X, default=None
        The noise at level 1. Values that were not measured are filled from the rest of the sample, or left to a
        classifier that counts error bars. Such a classifier requires them if it was fitted with error bars.
    method : {"analytic", "sampling"}, default="analytic"
        Closed form as in :func:`expected_accuracy`, or noise drawn and added to X (which becomes dense).
    n_repeats : int, default=20
        Number of draws of the noise; at least 2.
    sample_weight : array-like of shape (n_samples,), default=None
    random_state : int, RandomState instance or None, default=None
        Seed of the noise.

    Returns
    -------
    RobustnessCurve
    """
    check_choice("method", method, ("analytic", "sampling"))
    levels = check_levels(noise_levels)
    X, X_err = split_errors(X, X_err)
    X = as_table(X)
    counts = X_err is not None and counts_errors(estimator)
    if counts and method == "analytic":
        raise _not_linear(estimator, "method='sampling', which draws noise")
    accuracy, error = np.zeros((2, len(levels)))
    if not counts:
        if has_unmeasured(X_err):
            X, X_err = fill_unmeasured(estimator, X, X_err)
        errors_at_one = check_errors(np.ones(X.shape[0]) if X_err is None else X_err, X)
    if method == "analytic":
        scores, coef = linear_scores(estimator, X)
        classes = final_estimator(estimator).classes_
        roots = graded_roots(coef[np.newaxis]) if X_err is None else score_roots(coef, errors_at_one)
        for i, level in enumerate(levels):
            # Errors of all samples add up: the points of the quadrature are the same, so they may have the same sign.
            each = label_probabilities(scores, level * roots)
            accuracy[i], error[i] = (expected_score(part, classes, y, sample_weight) for part in each)
        return RobustnessCurve(levels, accuracy, error)
    check_count("n_repeats", n_repeats, low=2)
    rng = _generator(random_state)
    for i, level in enumerate(levels):
        runs = []
        for _ in range(n_repeats if level > 0 else 1):
            if counts:
                noisy: Values = with_larger_errors(X, X_err, np.hypot(1.0, level), rng)
            else:
                noisy = like(X, dense(X) + level * errors_at_one.sample(rng))
            runs.append(accuracy_score(y, estimator.predict(noisy), sample_weight=sample_weight))
        accuracy[i] = np.mean(runs)
        error[i] = np.std(runs, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return RobustnessCurve(levels, accuracy, error)


def counts_errors(estimator: BaseEstimator) -> bool:
    """Return whether the labels that an estimator predicts depend on the error bars as well as on the values."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    if isinstance(estimator, Pipeline):
        if not isinstance(final_estimator(estimator), Classifier):
            return False
        return any(counts_errors(step) for _, step in estimator.steps)
    return isinstance(estimator, ByProbability | Deconvolve) or getattr(estimator, "_counts_errors", False)


def _not_linear(estimator: BaseEstimator, instead: str) -> NotLinearError:
    name = type(getattr(estimator, "best_estimator_", estimator)).__name__
    return NotLinearError(
        f"the labels of this {name} depend on the error bars as well as on X, and have no closed form: use {instead}"
    )


def with_larger_errors(X: object, X_err: object, factor: float, rng: np.random.Generator) -> Measured:
    """Return samples with larger errors: noisier values, and error bars multiplied by a factor.

    Noise of ``sqrt(factor^2 - 1)`` error bars is added: with the noise that the values have already, this makes
    ``factor`` error bars. Values that were not measured stay so.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
    X_err : error bars of X
    factor : float
        At least 1.
    rng : Generator

    Returns
    -------
    Measured
    """
    X, X_err = split_errors(X, X_err)
    values = dense(X)
    noise = np.sqrt(factor**2 - 1.0) * check_errors(finite(X_err), values).sample(rng)
    return Measured.checked(like(X, values + noise), scaled(X_err, factor))


def _generator(random_state: object) -> np.random.Generator:
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def check_levels(noise_levels: object) -> Array:
    """Return noise levels, checked."""
    try:
        levels = np.atleast_1d(np.asarray(noise_levels, dtype=np.float64))
    except (TypeError, ValueError) as problem:
        raise ParameterError("noise_levels", f"must hold numbers: {problem}") from problem
    if levels.ndim != 1 or not levels.size or not np.all(np.isfinite(levels)) or levels.min() < 0:
        words = f"must hold finite, nonnegative standard deviations; got {noise_levels!r}"
        raise ParameterError("noise_levels", words)
    return levels


class _Scorer(BaseEstimator, ABC):
    """A scorer for searches and cross-validation that can be given error bars by metadata routing."""

    __metadata_request__score: ClassVar = {"estimator": UNUSED, "X_err": True}

    def __call__(
        self, estimator: Estimator, X: Values, y_true: Labels, *, X_err: ErrorBars = None, sample_weight: object = None
    ) -> float:
        return self.score(estimator, X, y_true, X_err=X_err, sample_weight=sample_weight)

    @abstractmethod
    def score(
        self, estimator: Estimator, X: Values, y: Labels, *, X_err: ErrorBars = None, sample_weight: object = None
    ) -> float:
        """Return the score of an estimator; larger is better."""


class ExpectedAccuracyScorer(_Scorer):
    """Scorer that returns :func:`expected_accuracy`.

    It sees the error bars of a fold with scikit-learn's metadata routing, of which it asks for ``X_err``, or where X is
    :class:`gaussguru.Measured`.
    """

    def score(
        self, estimator: Estimator, X: Values, y: Labels, *, X_err: ErrorBars = None, sample_weight: object = None
    ) -> float:
        """Return the expected accuracy.

        Without error bars the noise is that of the model.
        """
        return expected_accuracy(estimator, X, y, X_err=X_err, sample_weight=sample_weight)


class LogLossScorer(_Scorer):
    """Scorer that returns the mean logarithm of the probability of the true class (:func:`class_probabilities`).

    It sees error bars as :class:`ExpectedAccuracyScorer` does. Probabilities below the precision of float64 count as
    that, as in ``sklearn.metrics.log_loss``.
    """

    def score(
        self, estimator: Estimator, X: Values, y: Labels, *, X_err: ErrorBars = None, sample_weight: Any = None
    ) -> float:
        """Return minus the log loss."""
        probabilities = np.asarray(class_probabilities(estimator, X, X_err=X_err))
        logs = np.log(np.clip(probabilities, np.finfo(np.float64).eps, 1.0))
        labels = true_labels(estimator, y, len(logs))
        return float(np.average(logs[np.arange(len(labels)), labels], weights=sample_weight))


expected_accuracy_scorer = ExpectedAccuracyScorer()
log_loss_scorer = LogLossScorer()


def _linear_probabilities(estimator: BaseEstimator, X: object, X_err: object) -> tuple[Array, Array, Index]:
    """Return the probability of each class to have the highest score, its standard error, and the predicted class.

    The noise is that of the model and the error bars; after steps that count error bars it is that of the posteriors.
    """
    samples = measured(X, X_err)
    if isinstance(samples, Measured) and counts_errors(estimator):
        estimator, samples = last_step(estimator, samples, None)
    scores, roots = _noisy_scores(estimator, samples, None, with_model=True)
    return *label_probabilities(scores, roots), winners(scores)


def _check_noise_given(estimator: BaseEstimator, X_err: object) -> None:
    final = final_estimator(estimator)
    if X_err is None and not hasattr(final, "_score_noise"):
        raise ValueError(f"X_err must be given: {type(final).__name__} has no noise of its own")


def _noisy_scores(estimator: BaseEstimator, X: object, X_err: object, *, with_model: bool) -> tuple[Array, Array]:
    """Return the scores and roots of the covariances of their noise: error bars, and the noise of the model."""
    X, X_err = split_errors(X, X_err)
    X = as_table(X)
    final = final_estimator(estimator)
    if isinstance(final, ByProbability):
        _check_noise_given(estimator, X_err)
    if has_unmeasured(X_err):
        X, X_err = fill_unmeasured(estimator, X, X_err)
    scores, coef = linear_scores(estimator, X)
    roots = np.zeros((len(coef), 0))
    if with_model:
        _check_noise_given(estimator, X_err)
        if hasattr(final, "_score_noise"):
            roots = covariance_roots(final._score_noise())
    if X_err is not None:
        roots = joined_roots(roots, score_roots(coef, check_errors(X_err, X)))
    return scores, roots


def fill_unmeasured(estimator: BaseEstimator, X: object, X_err: object) -> tuple[Values, ErrorBars]:
    """Return X and X_err with values that were not measured filled in from the population of the first step."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    first = estimator[0] if isinstance(estimator, Pipeline) else estimator
    population = getattr(first, "population_", None)
    if population is None:
        raise without_population(type(first).__name__)
    filled: tuple[Values, ErrorBars] = population.fill(X, X_err)
    return filled
