"""The gain of measuring samples again: the expected drop in the probability of a wrong label."""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, softmax
from sklearn.base import BaseEstimator

from gaussguru._errors.arrays import any_roots
from gaussguru._errors.checks import check_errors
from gaussguru._errors.given import Asymmetric, Limits, LowRank
from gaussguru._errors.missing import standard_deviations
from gaussguru._errors.samples import split_errors
from gaussguru._guru.probabilities import (
    bivariate_normal,
    covariance_roots,
    joined_roots,
    rooted_probabilities,
    standardise,
)
from gaussguru._measured.affine import as_table, final_estimator
from gaussguru._measured.calibrated import last_step, score_moments
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.checks import check_flag, check_real, outside
from gaussguru._utils.frames import as_numbers, like, take_rows
from gaussguru._utils.linalg import EPS, Array, Index
from gaussguru._utils.types import ErrorBars, Estimator, Values

# A variance after a re-measurement may be larger than before by this fraction, from rounding.
LARGER = 1e-6
# New readings of a sample that are drawn for the gain of a pool.
READINGS = 16


def remeasure_gain(
    model: Estimator, X: Values, X_err: ErrorBars = None, new_err: ErrorBars = 0.0, *, per_feature: bool = False
) -> Array:
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
    score alone, although it also tells something about the component: gains differ from those of a simulation by up to
    0.04. With more than two classes the gain, ``E max p' - max p``, is that of the best comparison of the predicted
    class with one other; it is somewhat too small if three or more classes are likely. Scores that are not linear in
    the values (a kernel, a transform) use the spread ``v'`` of a reading at the current values, and at most ``v``.

    A pool (:class:`gaussguru.ErrorBarClassifier` unless its model is "linear") has no score. Its gain is
    ``mean_q max_c p_q - max_c mean_q p_q`` over 16 new readings, drawn from the posterior of the sample and the new
    errors; standard deviations only. It takes 17 predictions for each sample, and as many for each feature. Gains are
    right if the probabilities after a reading are. Samples that are measured much better than those of training are
    none that a pool has learned from, and it is less sure of them than it could be. In two simulations with errors of
    0.3 to 2 spreads in training, which new readings halved, 44 and 76 avoided errors were expected, and 88 and 139
    occurred. With readings like those of training, gains on three catalogues were those expected.

    Parameters
    ----------
    model : fitted classifier, Pipeline or search
        Preferably an :class:`gaussguru.ErrorBarClassifier`, or a pipeline of ``Deconvolve`` and
        :class:`gaussguru.calibration.CalibratedWithErrorsCV`; otherwise any classifier with linear scores.
    X : array-like or Measured of shape (n_samples, n_features)
        NaN means "not measured".
    X_err : error bars of X, default=None
        The present errors. None if X is :class:`gaussguru.Measured`.
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

    Warns
    -----
    UserWarning
        If new readings of all features resolve much more of their variance than the training samples of a pool did.
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
    has_score = getattr(final_estimator(model), "_is_linear", True)
    gain = _score_gain if has_score else _drawn_gain
    better = _better_errors(X, errors, new_err, stds=per_feature or not has_score)
    if n and not has_score and not per_feature:
        _warn_beyond_training(model, X, better)
    parts = [
        gain(model, take_rows(X, rows), take_rows(errors, rows), take_rows(better, rows), per_feature)
        for rows in row_blocks(n, d**2)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, d) if per_feature else 0)


def _better_errors(X: Values, X_err: ErrorBars, new_err: ErrorBars, *, stds: bool) -> ErrorBars:
    """Return the errors after a new reading; if both are standard deviations, check that they are smaller.

    Covariances are checked by the variances of a score (:func:`_check_smaller`).
    """
    if isinstance(new_err, (Asymmetric, Limits)):
        raise TypeError(
            f"new_err must hold standard deviations or covariances; got {type(new_err).__name__}. "
            "X_err.symmetric(X)[1] are the standard deviations of two-sided errors"
        )
    if isinstance(X_err, Limits):
        raise TypeError(
            "X_err must hold errors of measured values; got Limits: the gain of measuring a limit again is not known. "
            "Leave out the rows with limits, and give X_err.err of the others"
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
    """Raise if a standard deviation after a reading is larger than before."""
    now, then = np.broadcast_arrays(now.reshape(len(now), -1), then.reshape(len(now), -1))
    worse = np.argwhere(then > now * (1 + LARGER))
    if len(worse):
        i, j = worse[0]
        raise ValueError(
            "new_err must not be larger than X_err: it is the error of all readings together; got "
            f"{then[i, j]:g} for {now[i, j]:g} in row {i}"
        )


def _warn_beyond_training(model: BaseEstimator, X: object, new_err: object) -> None:
    """Warn if new readings resolve more of the features of a pool than those of training did, by more than 0.2.

    Populations of the classes alone know how sure to be of exact samples.
    """
    pool, then = last_step(model, without_gaps(X), new_err)
    values, errors = split_errors(then)
    resolved = float(np.mean(pool.population_.reliability(as_numbers(values, "X"), errors)))
    known = float(np.mean(pool.reliability_))
    if pool.model != "population" and resolved - known > 0.2:
        warnings.warn(
            f"new readings resolve {resolved:.0%} of the variance of the features, those of training {known:.0%}: a "
            "pool is less sure of such samples than it could be, and the gains are too small, perhaps by half",
            UserWarning,
            stacklevel=outside(),
        )


def _drawn_gain(model: BaseEstimator, X: object, X_err: object, new_err: object, per_feature: bool) -> Array:
    """Return the gain of samples by draws of new readings from the posteriors of a pool's population.

    A reading that lowers an error from e to e' replaces the value x by ``s x + (1 - s) t + e' sqrt(1 - s) z`` with
    ``s = (e' / e)^2``, for a truth t and a standard normal z.
    """
    pool, now = last_step(model, X, X_err)
    _, then = last_step(model, without_gaps(X), new_err)  # only its errors are used
    X, values = now.X, as_numbers(now.X, "X")
    n, d = values.shape
    before, after = (standard_deviations(split_errors(part)[1], (n, d)) for part in (now, then))
    before = np.where(np.isnan(values), np.inf, before)
    posterior = pool.population_.transform(values, X_err=before)
    covariances = posterior.err
    if isinstance(covariances, LowRank):
        covariances = check_errors(covariances, posterior.X).dense()
    half = np.random.default_rng(0).standard_normal((2, READINGS // 2, d))
    truth, noise = np.concatenate([half, -half], axis=1)
    readings = posterior.X + np.einsum("nij,qj->qni", any_roots(covariances), truth)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(after < before, np.square(after / before), 1.0)

    def gain(again: NDArray[np.bool_]) -> Array:
        """Return the gain of measuring the features again that are True."""
        errors, share = np.where(again, after, before), np.where(again, kept, 1.0)
        spread = np.where(share < 1.0, after, 0.0) * np.sqrt(1.0 - share)
        new = share * np.nan_to_num(values) + (1.0 - share) * readings + spread * noise[:, np.newaxis]
        new = np.where(share == 1.0, values, new).reshape(-1, d)
        p = pool.predict_proba(like(X, new), X_err=np.tile(errors, (READINGS, 1))).reshape(READINGS, n, -1)
        return np.asarray(np.maximum(p.max(axis=2).mean(axis=0) - p.mean(axis=0).max(axis=1), 0.0))

    if not per_feature:
        return gain(np.ones((n, d), dtype=bool))
    return np.column_stack([gain(np.arange(d) == j) for j in range(d)])


def _score_gain(model: BaseEstimator, X: object, X_err: object, new_err: object, per_feature: bool) -> Array:
    """Return the gain of samples from the distributions of their scores before and after a reading."""
    now = _latent_scores(model, X, X_err)
    # Covariances do not depend on the values: where there is none yet, any value will do.
    values, filled = as_numbers(X, "X"), without_gaps(X)
    missing = np.isnan(values)
    if not per_feature:
        return _gain(now, _latent_scores(model, filled, new_err))
    n, d = values.shape
    before, after = (
        np.broadcast_to(np.asarray(part, dtype=np.float64).reshape(n, -1), (n, d)) for part in (X_err, new_err)
    )
    before = np.where(missing, np.inf, before)
    result = np.empty((n, d))
    for j in range(d):
        replaced = before.copy()
        replaced[:, j] = after[:, j]
        kept = np.where(np.isinf(replaced), np.nan, filled)
        result[:, j] = _gain(now, _latent_scores(model, like(X, kept), replaced))
    return result


def without_gaps(X: object) -> Values:
    """Return the samples with the mean of the feature in place of values that were not measured."""
    values = as_numbers(X, "X")
    missing = np.isnan(values)
    if not missing.any():
        return X
    means = np.divide(np.where(missing, 0.0, values).sum(axis=0), np.maximum((~missing).sum(axis=0), 1))
    return like(X, np.where(missing, means, values))


class _Latent(NamedTuple):
    """Scores as mixtures of Gaussians, with roots of their covariances.

    ``overlap`` are roots of the noise of the scores without error bars. If scores are ``linear`` in the values, their
    spreads depend on the errors alone.
    """

    weights: Array
    means: Array
    roots: Array
    overlap: Array
    linear: bool

    def variances(self, best: Index, rival: int) -> Array:
        """Return the mean variances, under the errors, of the difference between the scores of two classes."""
        difference = self.roots[np.arange(len(best)), :, best] - self.roots[:, :, rival]
        return np.asarray(np.einsum("ik,ikr,ikr->i", self.weights, difference, difference))


def _latent_scores(model: BaseEstimator, X: object, X_err: object) -> _Latent:
    """Return the distributions of the scores, in the units of a calibration if there is one."""
    weights, means, roots = score_moments(model, X, X_err, rooted=True)
    final, n_scores = final_estimator(model), means.shape[2]
    if hasattr(final, "kappa_"):
        centre = np.einsum("ik,ikc->ic", weights, means)[:, np.newaxis]
        means = final.alpha_ * (centre + final.kappa_ * (means - centre)) + final.beta_
        overlap = np.eye(n_scores) * (1.0 if n_scores == 1 else np.sqrt(0.5))
        linear = getattr(final, "_is_linear", True)
        return _Latent(weights, means, final.alpha_ * final.kappa_ * roots, overlap, linear)
    overlap = covariance_roots(final._score_noise()) if hasattr(final, "_score_noise") else np.zeros((n_scores, 0))
    return _Latent(weights, means, roots, overlap, not hasattr(final, "dual_coef_") or hasattr(final, "coef_"))


def _gain(now: _Latent, then: _Latent) -> Array:
    """Return the gain of samples from their scores before a reading, and the roots of the covariances after it."""
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
    deviations = now.means - np.einsum("ik,ikc->ic", now.weights, now.means)[:, np.newaxis]
    gain = np.zeros(n)
    for rival in range(n_classes):
        after, before = then.variances(best, rival), now.variances(best, rival)
        mixed = np.einsum("ik,ik->i", now.weights, np.square(deviations[rows, :, best] - deviations[:, :, rival]))
        overlap = np.square(now.overlap[best] - now.overlap[rival]).sum(axis=1)
        if now.linear:
            _check_smaller(before, after)
        after = np.minimum(after, before)
        both = p[rows, best] + p[:, rival]
        # The mean difference of two scores that has these two probabilities.
        lead = np.sqrt(before + overlap + mixed) * ndtri(np.clip(p[rows, best] / both, 0.5, 1 - EPS))
        one = both * _pair_gain(lead, before, after, overlap + mixed)
        gain = np.maximum(gain, np.where(best == rival, 0.0, one))
    return gain


def _check_smaller(before: Array, after: Array) -> None:
    """Raise if a variance of a score after a reading is larger than before."""
    worse = np.flatnonzero(np.reshape(after > before * (1 + LARGER), (len(before), -1)).any(axis=1))
    if len(worse):
        raise ValueError(
            "new_err must not be larger than X_err: it is the error of all readings together; the variance of the "
            f"score of row {worse[0]} would grow"
        )


def _pair_gain(means: Array, before: Array, after: Array, overlap: Array | float) -> Array:
    """Return the gain of two classes from the means of the scores, and their variances before and after a reading.

    With ``z`` standard normal, the new mean is ``m + sqrt(v - v') z``. The sign of
    ``L = m + sqrt(v - v') z + N(0, v' + overlap)`` is the label, the sign of the new mean the prediction. Where the
    present prediction is positive, the gain is ``P(L < 0, new mean < 0) - P(L > 0, new mean < 0)``.
    """
    total, known = np.sqrt(before + overlap), np.sqrt(np.maximum(before - after, 0.0))
    h, k = (-standardise(np.abs(means), spread) for spread in (total, known))
    correlation = np.divide(known, total, out=np.zeros_like(known), where=total > 0)
    both = bivariate_normal(h, k, np.minimum(correlation, 1.0))
    return np.asarray(np.maximum(2 * both - ndtr(k), 0.0))


def _mixture_gain(weights: Array, means: Array, before: Array, after: Array, overlap: float) -> Array:
    """Return the gain of two classes whose scores are mixtures.

    The new reading counts as a reading of the score, ``o = score + N(0, r)``, from which follow the score in each
    component and the probability of the component. ``1/r = sum_k q_k (1/v'_k - 1/v_k)``; for one component this is
    exact. Readings are integrated at fixed points of each component, whose weights add up to 1: so the gain is never
    negative.
    """
    product = before * after
    with np.errstate(divide="ignore"):
        information = np.divide(before - after, product, out=np.where(before > after, np.inf, 0.0), where=product > 0)
        variance = 1.0 / np.einsum("ik,ik->i", weights, np.where(weights > 0, information, 0.0))[:, np.newaxis]
    gain = np.zeros(len(means))
    informed = np.flatnonzero(np.isfinite(variance[:, 0]))
    # Points for each component: the step of 0.09 leaves an error of its square where the prediction changes, 1e-4 of a
    # probability.
    z = np.linspace(-6.0, 6.0, 128)
    share = np.exp(-0.5 * z**2)
    share /= share.sum()
    for block in row_blocks(len(informed), means.shape[1] ** 2 * len(z)):
        rows = informed[block]
        q, m, v, r = weights[rows], means[rows], before[rows], variance[rows]
        spread = np.sqrt(v + r)
        spread = np.maximum(spread, EPS * np.maximum(spread, np.abs(m)).max(axis=1, keepdims=True))
        # Readings (sample, component that they come from, point), seen from each component (last).
        readings = m[:, :, np.newaxis] + spread[:, :, np.newaxis] * z
        distance = (readings[..., np.newaxis] - m[:, np.newaxis, np.newaxis]) / spread[:, np.newaxis, np.newaxis]
        with np.errstate(divide="ignore"):
            logs = (np.log(q) - np.log(spread))[:, np.newaxis, np.newaxis] - 0.5 * distance**2
        left = v * r / np.square(spread)
        shrunk = m[:, np.newaxis, np.newaxis] + distance * (v / spread)[:, np.newaxis, np.newaxis]
        chance = ndtr(standardise(shrunk, np.sqrt(left + overlap)[:, np.newaxis, np.newaxis]))
        p = np.einsum("ikzl,ikzl->ikz", softmax(logs, axis=3), chance)
        mass = q[:, :, np.newaxis] * share
        now = np.einsum("ikz,ikz->i", mass, p)
        then = np.einsum("ikz,ikz->i", mass, np.minimum(p, 1 - p))
        gain[rows] = np.maximum(np.minimum(now, 1 - now) - then, 0.0)
    return gain
