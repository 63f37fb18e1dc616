"""Effect of noise on predictions: of linear classifiers in closed form, of those that count error bars by sampling.

*Linear classifiers*: any fitted classifier whose ``decision_function`` is affine in X, such as ``LinearSVC``,
``LogisticRegression``, :class:`gaussguru.GuruClassifier`, a pipeline of a scaler and one of these, a search over them.
X and its errors are in the units of the input of the whole pipeline.

*Classifiers that count error bars*: :class:`gaussguru.ErrorBarClassifier`, :class:`gaussguru.PopulationClassifier`,
:class:`gaussguru.calibration.CalibratedWithErrorsCV`, and pipelines with one of these, with
:class:`gaussguru.population.Deconvolve` or with a curved :class:`gaussguru.preprocessing.WithErrors`. Given ``X_err``,
their labels depend on the errors as well as on the values. Noise that is added to X makes its errors larger, and
predictions are told so: with noise of ``c`` error bars, they are given ``sqrt(1 + c^2) X_err``.

:func:`class_probabilities` and :func:`flip_probability` describe a prediction. They include the noise of the model
(``sigma`` in every direction for noise="isotropic") and the error bars. :func:`expected_accuracy` and
:func:`robustness_curve` evaluate a model under a given noise, and include that noise alone, so that models with
different ``sigma`` are compared under the same conditions.

:func:`remeasure_gain` is the benefit of smaller error bars, for classifiers that account for error bars.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, softmax
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED

from gaussguru._blocks import row_blocks
from gaussguru._errors import (
    Asymmetric,
    Limits,
    LowRank,
    Measured,
    any_roots,
    check_errors,
    finite,
    has_unmeasured,
    measured,
    scaled,
    split_errors,
    standard_deviations,
)
from gaussguru._estimators.affine import dense
from gaussguru._estimators.base import ByProbability, Classifier
from gaussguru._estimators.calibrated import last_step, score_distribution
from gaussguru._estimators.validation import ParameterError, check_choice, check_count, check_flag, check_real
from gaussguru._frames import as_numbers, like, take_rows
from gaussguru._linalg import EPS, Array, Index, graded_roots
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import NotLinearError, WithErrors, as_table, final_estimator, linear_scores
from gaussguru.probabilities import (
    bivariate_normal,
    covariance_roots,
    distance_to_boundary,
    expected_score,
    joined_roots,
    label_probabilities,
    lower_bound,
    places,
    rooted_probabilities,
    score_roots,
    standardise,
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
    "remeasure_gain",
    "robustness_curve",
    "top_probabilities",
]


def class_probabilities(
    estimator: Any, X: Any, *, X_err: Any = None, return_error: bool = False
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
    estimator: Any, X: Any, *, X_err: Any = None, n_repeats: int = 100, random_state: Any = 0
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


def certified_radius(estimator: Any, X: Any) -> Array:
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
    estimator: Any,
    X: Any,
    y: Any,
    *,
    X_err: Any = None,
    sample_weight: Any = None,
    bound: bool = False,
    n_repeats: int = 20,
    random_state: Any = 0,
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
    scores, roots = _noisy_scores(estimator, X, X_err, own=X_err is None)
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
    told = X_err is not None and counts_errors(estimator)
    if told and method == "analytic":
        raise _not_linear(estimator, "method='sampling', which draws noise")
    accuracy, error = np.zeros((2, len(levels)))
    if not told:
        if has_unmeasured(X_err):
            X, X_err = fill_unmeasured(estimator, X, X_err)
        errors_at_one = check_errors(np.ones(X.shape[0]) if X_err is None else X_err, X)
    if method == "analytic":
        scores, coef = linear_scores(estimator, X)
        labels, known = places(final_estimator(estimator).classes_, y, len(scores))
        roots = graded_roots(coef[np.newaxis]) if X_err is None else score_roots(coef, errors_at_one)
        for i, level in enumerate(levels):
            probabilities, errors = label_probabilities(scores, level * roots)
            hits, doubts = (
                np.where(known, part[np.arange(len(labels)), labels], 0.0) for part in (probabilities, errors)
            )
            # The points are the same for all samples, so that errors may have the same sign.
            accuracy[i], error[i] = (np.average(part, weights=sample_weight) for part in (hits, doubts))
        return RobustnessCurve(levels, accuracy, error)
    check_count("n_repeats", n_repeats, low=2)
    rng = _generator(random_state)
    for i, level in enumerate(levels):
        runs = []
        for _ in range(n_repeats if level > 0 else 1):
            if told:
                noisy: Any = with_larger_errors(X, X_err, np.hypot(1.0, level), rng)
            else:
                noisy = like(X, dense(X) + level * errors_at_one.sample(rng))
            runs.append(accuracy_score(y, estimator.predict(noisy), sample_weight=sample_weight))
        accuracy[i] = np.mean(runs)
        error[i] = np.std(runs, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return RobustnessCurve(levels, accuracy, error)


def counts_errors(estimator: Any) -> bool:
    """Return whether the labels that an estimator predicts depend on the error bars as well as on the values."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    if isinstance(estimator, Pipeline):
        takes_errors = isinstance(final_estimator(estimator), Classifier | ByProbability)
        return takes_errors and any(counts_errors(step) for _, step in estimator.steps)
    if isinstance(estimator, WithErrors):
        return estimator.method_ != "affine"
    return isinstance(estimator, ByProbability | Deconvolve)


def _not_linear(estimator: Any, instead: str) -> NotLinearError:
    name = type(getattr(estimator, "best_estimator_", estimator)).__name__
    return NotLinearError(
        f"the labels of this {name} depend on the error bars as well as on X, and have no closed form: use {instead}"
    )


def with_larger_errors(X: Any, X_err: Any, factor: float, rng: np.random.Generator) -> Measured:
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


def _generator(random_state: Any) -> np.random.Generator:
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def check_levels(noise_levels: Any) -> Array:
    """Return noise levels, checked."""
    try:
        levels = np.atleast_1d(np.asarray(noise_levels, dtype=np.float64))
    except (TypeError, ValueError) as problem:
        raise ParameterError("noise_levels", f"must hold numbers: {problem}") from problem
    if levels.ndim != 1 or not levels.size or not np.all(np.isfinite(levels)) or levels.min() < 0:
        words = f"must hold finite, nonnegative standard deviations; got {noise_levels!r}"
        raise ParameterError("noise_levels", words)
    return levels


# How much larger than before the variance of a score may be after a re-measurement, relative, by rounding.
LARGER = 1e-6
# New readings of a sample that are drawn for the gain of a pool.
READINGS = 16
# Readings of each component of a mixture over which a gain is averaged, and how far they go in standard deviations: the
# step of 0.09 leaves an error of its square where the prediction changes, 1e-4 of a probability.
N_READINGS, FAR = 128, 6.0


def remeasure_gain(model: Any, X: Any, X_err: Any = None, new_err: Any = 0.0, *, per_feature: bool = False) -> Array:
    """Return the expected drop in the error probability of each sample if it is measured again.

    The score of a sample is ``N(m, v)`` under its error bars. A new reading lowers the variance to ``v' < v``, which is
    known beforehand, and moves the mean to ``m'``, which is ``N(m, v - v')`` before the reading. The probability of the
    second class is ``p = Phi(m / sqrt(t^2 + v))``, where ``t^2`` is the overlap of the classes, and ::

        gain = min(p, 1 - p) - E min(p', 1 - p'),      p' = Phi(m' / sqrt(t^2 + v'))

    The expectation is a bivariate normal probability, computed exactly. The sum of the gains is the expected number of
    errors avoided: measure the samples with the largest gains first.

    For a calibrated classifier the overlap is that of the calibration (``t = 1`` in its units), and a factor ``kappa``
    applies to ``v`` and ``v'``. For others, the overlap is the noise of the model. The classifier should see posterior
    means and covariances (:class:`gaussguru.population.Deconvolve`); otherwise ``v`` is the noise around the measured
    value, which is too large.

    There are two approximations. With several components in the population, a new reading counts as a reading of the
    score alone, although it also tells something about the component; this agrees with a simulation within a few
    percent. With more than two classes the gain, ``E max p' - max p``, is that of the best comparison of the predicted
    class with one other; it is somewhat too small if three or more classes are likely. Scores that are not linear in
    the values (a kernel, a transform) use the spread ``v'`` of a reading at the current values, and at most ``v``.

    A pool (:class:`gaussguru.ErrorBarClassifier` unless its model is "linear") has no score. Its gain is
    ``mean_q max_c p_q - max_c mean_q p_q`` over 16 new readings, drawn from the posterior of the sample and the new
    errors; standard deviations only. It takes 17 predictions for each sample, and as many for each feature.

    Parameters
    ----------
    model : fitted classifier, Pipeline or search
        Preferably an :class:`gaussguru.ErrorBarClassifier`, or a pipeline of ``Deconvolve`` and
        :class:`gaussguru.calibration.CalibratedWithErrorsCV`; otherwise as in
        :func:`gaussguru.calibration.score_moments`.
    X : array-like or Measured of shape (n_samples, n_features)
        NaN means "not measured".
    X_err : error bars of X, default=None
        The present errors. None if X is :class:`gaussguru.errors.Measured`.
    new_err : float or error bars of X, default=0.0
        The errors after the new reading, with all readings of a value combined: averaging with a second reading of the
        same quality gives ``X_err / sqrt(2)``. They must not be larger than the present ones. A single number applies
        to all values with larger errors; 0 means exact readings.
    per_feature : bool, default=False
        Whether to return the gain of measuring each feature alone again. Requires standard deviations.

    Returns
    -------
    ndarray of shape (n_samples,), or (n_samples, n_features) with ``per_feature``
        Expected drop in the error probability, between 0 and 1/2 with two classes.
    """
    check_flag("per_feature", per_feature)
    X, X_err = split_errors(X, X_err)
    if X_err is None:
        raise ValueError("X_err must be given: without error bars, nothing is gained by measuring again")
    X = as_table(X)
    if sp.issparse(X):
        X = X.toarray()
    n, d = X.shape
    errors = X_err.toarray() if sp.issparse(X_err) else X_err
    of_block = _block_gain
    if not getattr(final_estimator(model), "_is_linear", True):
        of_block = _drawn_gain
    better = _better_errors(X, errors, new_err, stds=per_feature or of_block is _drawn_gain)
    parts = [
        of_block(model, take_rows(X, rows), take_rows(errors, rows), take_rows(better, rows), per_feature)
        for rows in row_blocks(n, d**2)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, d) if per_feature else 0)


def _better_errors(X: Any, X_err: Any, new_err: Any, *, stds: bool) -> Any:
    """Return the errors after a new reading, checked against those of now where both are standard deviations.

    What covariances make of a score is checked when it is known (:func:`_check_smaller`).
    """
    if isinstance(new_err, (Asymmetric, Limits)):
        raise TypeError(
            f"new_err must hold standard deviations or covariances; got {type(new_err).__name__}. "
            "X_err.symmetric(X)[1] are the standard deviations of two-sided errors"
        )
    # Standard deviations have up to two dimensions; covariances and their factors have three.
    is_number = np.ndim(new_err) == 0 and not hasattr(new_err, "shape")
    new = X_err if is_number else split_errors(like(X, np.zeros(X.shape)), new_err, "new_err")[1]
    if stds and max(len(X_err.shape), len(new.shape)) > 2:
        raise ValueError("X_err and new_err must be standard deviations with per_feature=True; got covariances")
    if is_number:
        level = check_real("new_err", new_err, inclusive=True)
        return np.full(X.shape[0], level) if len(X_err.shape) > 2 else np.minimum(X_err, level)
    new = new.toarray() if sp.issparse(new) else new
    if max(len(X_err.shape), len(new.shape)) <= 2:
        _check_deviations(X_err, new)
    return new


def _check_deviations(now: Array, then: Array) -> None:
    """Raise if standard deviations are not those of better readings."""
    now, then = np.broadcast_arrays(now.reshape(len(now), -1), then.reshape(len(now), -1))
    worse = np.argwhere(then > now * (1 + LARGER))
    if len(worse):
        i, j = worse[0]
        raise ValueError(
            "new_err must not be larger than X_err: it is the error of all readings together; got "
            f"{then[i, j]:g} for {now[i, j]:g} in row {i}"
        )


def _drawn_gain(model: Any, X: Any, X_err: Any, new_err: Any, per_feature: bool) -> Array:
    """Return the gain of samples by draws of new readings from the posteriors of a pool's population.

    A reading that lowers an error from e to e' replaces the value x by ``s x + (1 - s) t + e' sqrt(1 - s) z`` with
    ``s = (e' / e)^2``, for a truth t and a standard normal z.
    """
    pool, now = last_step(model, X, X_err)
    _, then = last_step(model, without_gaps(X), new_err)  # of which the errors count alone
    X, values = now.X, as_numbers(now.X, "X")
    n, d = values.shape
    before, after = (standard_deviations(split_errors(part)[1], (n, d)) for part in (now, then))
    before = np.where(np.isnan(values), np.inf, before)
    seen = pool.population_.transform(values, X_err=before)
    covariances = check_errors(seen.err, seen.X).dense() if isinstance(seen.err, LowRank) else seen.err
    half = np.random.default_rng(0).standard_normal((2, READINGS // 2, d))
    truth, noise = np.concatenate([half, -half], axis=1)
    readings = seen.X + np.einsum("nij,qj->qni", any_roots(covariances), truth)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(after < before, np.square(after / before), 1.0)

    def of(again: NDArray[np.bool_]) -> Array:
        """Return the gain of measuring some features again."""
        errors, share = np.where(again, after, before), np.where(again, kept, 1.0)
        spread = np.where(share < 1.0, after, 0.0) * np.sqrt(1.0 - share)
        new = share * np.nan_to_num(values) + (1.0 - share) * readings + spread * noise[:, np.newaxis]
        new = np.where(share == 1.0, values, new).reshape(-1, d)
        p = pool.predict_proba(like(X, new), X_err=np.tile(errors, (READINGS, 1))).reshape(READINGS, n, -1)
        return np.asarray(np.maximum(p.max(axis=2).mean(axis=0) - p.mean(axis=0).max(axis=1), 0.0))

    if not per_feature:
        return of(np.ones((n, d), dtype=bool))
    return np.column_stack([of(np.arange(d) == j) for j in range(d)])


def _block_gain(model: Any, X: Any, X_err: Any, new_err: Any, per_feature: bool) -> Array:
    now = _latent_scores(model, X, X_err)
    # Covariances do not depend on the values: any will do where there are none yet.
    values, filled = as_numbers(X, "X"), without_gaps(X)
    gone = np.isnan(values)
    if not per_feature:
        return _gain(now, _latent_scores(model, filled, new_err))
    n, d = values.shape
    before, after = (
        np.broadcast_to(np.asarray(part, dtype=np.float64).reshape(n, -1), (n, d)) for part in (X_err, new_err)
    )
    before = np.where(gone, np.inf, before)
    result = np.empty((n, d))
    for j in range(d):
        replaced = before.copy()
        replaced[:, j] = after[:, j]
        kept = np.where(np.isinf(replaced), np.nan, filled)
        result[:, j] = _gain(now, _latent_scores(model, like(X, kept), replaced))
    return result


def without_gaps(X: Any) -> Any:
    """Return the samples with the mean of the feature in place of values that were not measured."""
    values = as_numbers(X, "X")
    gone = np.isnan(values)
    if not gone.any():
        return X
    usual = np.divide(np.where(gone, 0.0, values).sum(axis=0), np.maximum((~gone).sum(axis=0), 1))
    return like(X, np.where(gone, usual, values))


class _Latent(NamedTuple):
    """Scores as mixtures, with roots of their covariances, and ``overlap``, that of classes beside the error bars.

    Of scores that are linear in the values, spreads depend on the errors alone.
    """

    weights: Array
    means: Array
    roots: Array
    overlap: Array
    linear: bool

    def variances(self, best: Index, rival: int) -> Array:
        """Return the mean variances, under the errors, of the difference between the scores of two classes."""
        apart = self.roots[np.arange(len(best)), :, best] - self.roots[:, :, rival]
        return np.asarray(np.einsum("ik,ikr,ikr->i", self.weights, apart, apart))


def _latent_scores(model: Any, X: Any, X_err: Any) -> _Latent:
    """Return what the probabilities of the samples are made of, in the units of a calibration if there is one."""
    weights, means, roots = score_distribution(model, X, X_err, rooted=True)
    final, n_scores = final_estimator(model), means.shape[2]
    if hasattr(final, "kappa_"):
        centre = np.einsum("ik,ikc->ic", weights, means)[:, np.newaxis]
        means = final.alpha_ * (centre + final.kappa_ * (means - centre)) + final.beta_
        overlap = np.eye(n_scores) * (1.0 if n_scores == 1 else np.sqrt(0.5))
        linear = getattr(final, "_is_linear", True)
        return _Latent(weights, means, final.alpha_ * final.kappa_ * roots, overlap, linear)
    own = covariance_roots(final._score_noise()) if hasattr(final, "_score_noise") else np.zeros((n_scores, 0))
    return _Latent(weights, means, roots, own, not hasattr(final, "dual_coef_") or hasattr(final, "coef_"))


def _gain(now: _Latent, then: _Latent) -> Array:
    """Return the gain of samples, of which ``then`` knows the roots."""
    if now.weights.shape != then.weights.shape:
        raise ValueError("model must have as many components with new_err as with X_err")
    if now.means.shape[2] == 1:
        before, after = (np.square(part.roots[:, :, 0]).sum(axis=2) for part in (now, then))
        if now.linear:
            _check_smaller(before, after)
        after, overlap = np.minimum(after, before), float(np.square(now.overlap).sum())
        if now.weights.shape[1] > 1:
            return _mixture_gain(now.weights, now.means[:, :, 0], before, after, overlap)
        return _pair_gain(now.means[:, 0, 0], before[:, 0], after[:, 0], overlap)
    n, n_components, n_classes = now.means.shape
    p = np.zeros((n, n_classes))
    for k in range(n_components):
        roots = joined_roots(now.roots[:, k], now.overlap)
        p += now.weights[:, k, np.newaxis] * rooted_probabilities(now.means[:, k], roots)[0]
    rows, best = np.arange(n), np.argmax(p, axis=1)
    apart = now.means - np.einsum("ik,ikc->ic", now.weights, now.means)[:, np.newaxis]
    gain = np.zeros(n)
    for rival in range(n_classes):
        sure, unsure = then.variances(best, rival), now.variances(best, rival)
        mixed = np.einsum("ik,ik->i", now.weights, np.square(apart[rows, :, best] - apart[:, :, rival]))
        overlap = np.square(now.overlap[best] - now.overlap[rival]).sum(axis=1)
        if now.linear:
            _check_smaller(unsure, sure)
        sure = np.minimum(sure, unsure)
        both = p[rows, best] + p[:, rival]
        # The lead that makes these two probabilities of them.
        lead = np.sqrt(unsure + overlap + mixed) * ndtri(np.clip(p[rows, best] / both, 0.5, 1 - EPS))
        one = both * _pair_gain(lead, unsure, sure, overlap + mixed)
        gain = np.maximum(gain, np.where(best == rival, 0.0, one))
    return gain


def _check_smaller(before: Array, after: Array) -> None:
    worse = np.flatnonzero(np.reshape(after > before * (1 + LARGER), (len(before), -1)).any(axis=1))
    if len(worse):
        raise ValueError(
            "new_err must not be larger than X_err: it is the error of all readings together; the variance of the "
            f"score of row {worse[0]} would grow"
        )


def _pair_gain(means: Array, before: Array, after: Array, overlap: Any) -> Array:
    """Return the gain of two classes whose scores have these means, and these variances now and then.

    With ``z`` standard normal, the new mean is ``m + sqrt(v - v') z``. The label is decided by
    ``L = m + sqrt(v - v') z + N(0, v' + overlap)``, and predicted by the sign of the new mean. Where the prediction of
    now is positive, it is better by ``P(L < 0, new mean < 0) - P(L > 0, new mean < 0)``.
    """
    total, known = np.sqrt(before + overlap), np.sqrt(np.maximum(before - after, 0.0))
    h, k = (-standardise(np.abs(means), spread) for spread in (total, known))
    correlation = np.divide(known, total, out=np.zeros_like(known), where=total > 0)
    both = bivariate_normal(h, k, np.minimum(correlation, 1.0))
    return np.asarray(np.maximum(2 * both - ndtr(k), 0.0))


def _mixture_gain(weights: Array, means: Array, before: Array, after: Array, overlap: float) -> Array:
    """Return the gain of two classes whose scores are mixtures.

    The new reading counts as one of the score itself, ``o = score + N(0, r)``, which says something of the score in
    each component and of the component. ``1/r = sum_k q_k (1/v'_k - 1/v_k)``; for one component this is exact. Readings
    are integrated at fixed points of each component, whose weights add up to 1: so the gain is never negative.
    """
    product = before * after
    with np.errstate(divide="ignore"):
        information = np.divide(before - after, product, out=np.where(before > after, np.inf, 0.0), where=product > 0)
        variance = 1.0 / np.einsum("ik,ik->i", weights, np.where(weights > 0, information, 0.0))[:, np.newaxis]
    gain = np.zeros(len(means))
    told = np.flatnonzero(np.isfinite(variance[:, 0]))
    z = np.linspace(-FAR, FAR, N_READINGS)
    share = np.exp(-0.5 * z**2)
    share /= share.sum()
    for block in row_blocks(len(told), means.shape[1] ** 2 * N_READINGS):
        rows = told[block]
        q, m, v, r = weights[rows], means[rows], before[rows], variance[rows]
        spread = np.sqrt(v + r)
        spread = np.maximum(spread, EPS * np.maximum(spread, np.abs(m)).max(axis=1, keepdims=True))
        # Readings (sample, component that they come from, point), seen from each component (last).
        readings = m[:, :, np.newaxis] + spread[:, :, np.newaxis] * z
        apart = (readings[..., np.newaxis] - m[:, np.newaxis, np.newaxis]) / spread[:, np.newaxis, np.newaxis]
        with np.errstate(divide="ignore"):
            logs = (np.log(q) - np.log(spread))[:, np.newaxis, np.newaxis] - 0.5 * apart**2
        left = v * r / np.square(spread)
        shrunk = m[:, np.newaxis, np.newaxis] + apart * (v / spread)[:, np.newaxis, np.newaxis]
        chance = ndtr(standardise(shrunk, np.sqrt(left + overlap)[:, np.newaxis, np.newaxis]))
        p = np.einsum("ikzl,ikzl->ikz", softmax(logs, axis=3), chance)
        mass = q[:, :, np.newaxis] * share
        now = np.einsum("ikz,ikz->i", mass, p)
        then = np.einsum("ikz,ikz->i", mass, np.minimum(p, 1 - p))
        gain[rows] = np.maximum(np.minimum(now, 1 - now) - then, 0.0)
    return gain


class _Scorer(BaseEstimator, ABC):
    """A scorer for searches and cross-validation that can be given error bars by metadata routing."""

    __metadata_request__score: ClassVar = {"estimator": UNUSED, "X_err": True}

    def __call__(self, estimator: Any, X: Any, y_true: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        return self.score(estimator, X, y_true, X_err=X_err, sample_weight=sample_weight)

    @abstractmethod
    def score(self, estimator: Any, X: Any, y: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        """Return the score of an estimator; larger is better."""


class ExpectedAccuracyScorer(_Scorer):
    """Scorer that returns :func:`expected_accuracy`.

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

    It sees error bars as :class:`ExpectedAccuracyScorer` does. Probabilities below the precision of float64 count as
    that, as in ``sklearn.metrics.log_loss``.
    """

    def score(self, estimator: Any, X: Any, y: Any, *, X_err: Any = None, sample_weight: Any = None) -> float:
        """Return minus the log loss."""
        probabilities = np.asarray(class_probabilities(estimator, X, X_err=X_err))
        logs = np.log(np.clip(probabilities, np.finfo(np.float64).eps, 1.0))
        classes = final_estimator(estimator).classes_
        labels, known = places(classes, y, len(logs))
        if not known.all():
            raise ValueError(f"y must hold labels among the classes {classes.tolist()!r}")
        return float(np.average(logs[np.arange(len(labels)), labels], weights=sample_weight))


expected_accuracy_scorer = ExpectedAccuracyScorer()
log_loss_scorer = LogLossScorer()


def _linear_probabilities(estimator: Any, X: Any, X_err: Any) -> tuple[Array, Array, Index]:
    """Return the probability of each class to have the highest score, its standard error, and the predicted class.

    The noise is that of the model and the error bars; after steps that count error bars, that of their posteriors.
    """
    samples = measured(X, X_err)
    if isinstance(samples, Measured) and counts_errors(estimator):
        estimator, samples = last_step(estimator, samples, None)
    scores, roots = _noisy_scores(estimator, samples, None, own=True)
    return *label_probabilities(scores, roots), winners(scores)


def _check_noise_given(estimator: Any, X_err: Any) -> None:
    final = final_estimator(estimator)
    if X_err is None and not hasattr(final, "_score_noise"):
        raise ValueError(f"X_err must be given: {type(final).__name__} has no noise of its own")


def _noisy_scores(estimator: Any, X: Any, X_err: Any, *, own: bool) -> tuple[Array, Array]:
    """Return scores of samples and roots of the covariances of their noise: that of the model, error bars, or both."""
    X, X_err = split_errors(X, X_err)
    X = as_table(X)
    final = final_estimator(estimator)
    if isinstance(final, ByProbability):
        _check_noise_given(estimator, X_err)
    if has_unmeasured(X_err):
        X, X_err = fill_unmeasured(estimator, X, X_err)
    scores, coef = linear_scores(estimator, X)
    if own:
        _check_noise_given(estimator, X_err)
    own = own and hasattr(final, "_score_noise")
    roots = covariance_roots(final._score_noise()) if own else np.zeros((len(coef), 0))
    if X_err is not None:
        roots = joined_roots(roots, score_roots(coef, check_errors(X_err, X)))
    return scores, roots


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
