"""The worst noise of a fitted classifier: its covariance for each sample, draws from it, and its distribution."""

from itertools import permutations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.checks import check_products
from gaussguru._guru.linear import GuruClassifier
from gaussguru._rows.validation import check_part
from gaussguru._utils.checks import check_count, check_kind
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Estimator, Seed, Values
from gaussguru.losses import Moment
from gaussguru.noise import Isotropic, Noise


def worst_case_covariance(estimator: BaseEstimator, X: object) -> Array:
    """Return the covariance of the noise that hurts each sample most.

    Of two classes it depends on ``w`` alone: everything along ``w`` for noise="isotropic", everything on the features
    with the largest ``|w_j|``, in equal shares, for "axis"; standard deviations or a covariance that were given do
    not depend on it. For more classes the noise of a sample turns against the difference ``w_c - w_k`` of its predicted
    class c to the strongest rival k: the one with the least ``score / a(w_c - w_k)`` between them, to which noise moves
    it most easily. Where ``w = 0`` every covariance is as bad, and the variance is divided equally.

    Parameters
    ----------
    estimator : fitted GuruClassifier
    X : array-like or sparse matrix of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_samples, n_features, n_features)
        Read-only: samples with the same covariance share it where all do.
    """
    directions, which = _directions(estimator, X)
    covariances = np.array([_noise_of(estimator).worst_covariance(w) for w in directions])
    if len(directions) == 1:
        return np.broadcast_to(covariances[0], (len(which), *covariances[0].shape))
    chosen: Array = covariances[which]
    chosen.flags.writeable = False
    return chosen


def sample_noise(estimator: BaseEstimator, X: object, n: int = 1, *, random_state: Seed = None) -> Array:
    """Draw noise with the covariance of :func:`worst_case_covariance`, to be added to X.

    Parameters
    ----------
    estimator : fitted GuruClassifier
    X : array-like or sparse matrix of shape (n_samples, n_features)
    n : int, default=1
        Number of draws for each sample.
    random_state : int, numpy.random.Generator or None, default=None

    Returns
    -------
    ndarray of shape (n, n_samples, n_features)
    """
    n = check_count("n", n)
    directions, which = _directions(estimator, X)
    rng = np.random.default_rng(random_state)
    draws = np.empty((n, len(which), directions.shape[1]))
    for k, w in enumerate(directions):
        rows = np.flatnonzero(which == k)
        draws[:, rows] = _noise_of(estimator).sample(w, (n, len(rows)), rng)
    return draws


def worst_case_distribution(estimator: Estimator, X: Values, y: object, X_err: object = None) -> tuple[Array, Array]:
    """Return the distribution that hurts each sample most, of all with its mean and covariance: two points.

    Of all noise with mean 0 whose score has the standard deviation a of :func:`worst_case_covariance` and of the error
    bars, it has the largest expected hinge loss, the moment loss :class:`gaussguru.losses.Moment`: ``(m + h) / 2`` with
    the slack m and ``h^2 = m^2 + a^2``. The two points have the slacks h and -h. Their covariance is that part of the
    noise that changes the score, ``S w w' S / a^2``; noise in other directions may be added. Of more than two classes,
    the noise of a sample turns against the difference ``w_y - w_k`` to the class k of the largest such loss.

    Parameters
    ----------
    estimator : fitted GuruClassifier
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels, of classes that the estimator knows.
    X_err : error bars of X, default=None
        In any form that ``fit`` of :class:`GuruClassifier` takes; they add to the noise of the model.

    Returns
    -------
    points : ndarray of shape (n_samples, 2, n_features)
        The point with the larger slack is the first. Where noise does not change the score, both are the sample.
    weights : ndarray of shape (n_samples, 2)
        Their probabilities.
    """
    check_kind(estimator, GuruClassifier)
    X, X_err = estimator._measured(X, X_err)
    labels = check_part(X, y, None, None, estimator=estimator, classes=None, first=False).labels
    errors = None if X_err is None else check_products(X_err, X)
    coef, scores = estimator.coef_, estimator._scores(X)
    if len(coef) == 1:
        coef, scores = np.vstack([np.zeros_like(coef), coef]), np.column_stack([np.zeros_like(scores), scores])
    loss, highest = Moment(), np.full(len(labels), -np.inf)
    points = np.repeat(np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)[:, np.newaxis], 2, axis=1)
    moves, weights = np.zeros_like(points), np.empty(points.shape[:2])
    for c, k in permutations(range(len(coef)), 2):
        rows, u = np.flatnonzero(labels == c), coef[c] - coef[k]
        pulls = np.tile(_noise_of(estimator).worst_covariance(u) @ u, (len(rows), 1))
        if errors is not None:
            pulls += errors.take(rows).times(u)
        slack, a = 1 - (scores[rows, c] - scores[rows, k]), np.sqrt(np.maximum(pulls @ u, 0.0))
        bound = slack + np.hypot(slack, a)
        chosen = bound > highest[rows]
        rows, slack, a = rows[chosen], slack[chosen], a[chosen]
        z = np.divide(slack, a, out=np.zeros_like(a), where=a > 0)
        steps = 2 * np.column_stack([-loss.value(-z), loss.value(z)]) / np.where(a > 0, a, np.inf)[:, np.newaxis]
        moves[rows] = steps[:, :, np.newaxis] * pulls[chosen, np.newaxis]
        weights[rows], highest[rows] = np.column_stack([loss.slope(z), loss.slope(-z)]), bound[chosen]
    return points + moves, weights


def _noise_of(estimator: BaseEstimator) -> Noise:
    return Isotropic(0.0) if estimator.noise_ is None else estimator.noise_  # sigma=0: there is none


def _directions(estimator: BaseEstimator, X: object) -> tuple[Array, NDArray[np.intp]]:
    """Return the vectors that noise turns against, (n_vectors, d), and the index of that of each sample."""
    check_kind(estimator, GuruClassifier)
    check_is_fitted(estimator)
    scores = estimator.decision_function(X)
    coef = estimator.coef_
    if scores.ndim == 1:
        return coef, np.zeros(len(scores), dtype=np.intp)
    n_classes = len(coef)
    differences = coef[:, np.newaxis] - coef
    scales = np.array([[_noise_of(estimator).scale(w) for w in row] for row in differences])
    best = np.argmax(scores, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        margins = (np.take_along_axis(scores, best[:, np.newaxis], 1) - scores) / scales[best]
    margins[np.isnan(margins)] = np.inf  # the class itself, or one with the same w and b
    margins[np.arange(len(best)), best] = np.nan
    rival = np.nanargmin(margins, axis=1)
    pairs, which = np.unique(best * n_classes + rival, return_inverse=True)
    return differences[pairs // n_classes, pairs % n_classes], which
