"""The worst noise of a fitted classifier: its covariance for each sample, and draws from it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from gaussguru._guru.linear import GuruClassifier
from gaussguru._utils.checks import check_count, check_kind
from gaussguru._utils.linalg import Array
from gaussguru.noise import Isotropic, Noise


def worst_case_covariance(estimator: Any, X: Any) -> Array:
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


def sample_noise(estimator: Any, X: Any, n: int = 1, *, random_state: Any = None) -> Array:
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


def _noise_of(estimator: Any) -> Noise:
    return Isotropic(0.0) if estimator.noise_ is None else estimator.noise_  # sigma=0: there is none


def _directions(estimator: Any, X: Any) -> tuple[Array, NDArray[np.intp]]:
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
