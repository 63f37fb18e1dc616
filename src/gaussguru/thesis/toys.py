"""Seeded generators of the thesis's toy problems.

The thesis shows them as pictures without numbers; the numbers here give the accuracies that it reports.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from gaussguru._utils.checks import check_count
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Seed


def make_gaussians(n_samples: int = 200, *, random_state: Seed = None) -> tuple[Array, NDArray[np.int64]]:
    """Return toy problem (a) of chapter 2: two round Gaussian clouds in the plane.

    Their centres are 2.88 standard deviations apart: the best classifier is right in 92.5 % of all cases.

    Parameters
    ----------
    n_samples : int, default=200
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        -1 and 1, half of each.
    """
    y, rng = _labels(n_samples, random_state)
    return rng.normal(size=(n_samples, 2)) + np.outer(y, [1.44, 0.0]), y


def make_narrow_gaussians(n_samples: int = 200, *, random_state: Seed = None) -> tuple[Array, NDArray[np.int64]]:
    """Return toy problem (b) of chapter 2: two narrow Gaussian clouds in the plane, with outliers.

    The clouds are long along the second feature and well apart along the first. One sample in six is an outlier, of a
    wide cloud, on the wrong side as often as not: the best classifier is right in 92 % of all cases.

    Parameters
    ----------
    n_samples : int, default=200
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        -1 and 1, half of each.
    """
    y, rng = _labels(n_samples, random_state)
    X = rng.normal(size=(n_samples, 2)) * [0.3, 2.0] + np.outer(y, [1.0, 0.0])
    outliers = rng.permutation(n_samples)[: n_samples // 6]
    X[outliers] = rng.normal(size=(len(outliers), 2)) * 4.0
    return X, y


def make_gaussian_ring(
    n_samples: int = 200, *, n_classes: int = 3, random_state: Seed = None
) -> tuple[Array, NDArray[np.int64]]:
    """Return Toy-3 or Toy-4 of chapter 5: round Gaussian clouds in the plane, one for each class, around the origin.

    The centres are 2.88 standard deviations from the origin: the best classifier is right in 98.7 % (three classes) or
    95.9 % (four) of all cases.

    Parameters
    ----------
    n_samples : int, default=200
    n_classes : int, default=3
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        0, 1, ..., equally many of each, as far as they go.
    """
    check_count("n_samples", n_samples, low=2)
    check_count("n_classes", n_classes, low=2)
    y = np.arange(n_samples) % n_classes
    angle = np.pi / 2 + 2 * np.pi * y / n_classes
    centres = 2.88 * np.column_stack([np.cos(angle), np.sin(angle)])
    return centres + check_random_state(random_state).normal(size=(n_samples, 2)), y


def make_radial(n_samples: int = 400, *, random_state: Seed = None) -> tuple[Array, NDArray[np.int64]]:
    """Return the radial toy problem of chapter 4: a disc within a wide square.

    Points are uniform on ``[-7.5, 7.5]^2``. Those within 2 of the origin are positive, those further than 3.5 negative,
    and those between are dropped: about one in fifteen is positive.

    Parameters
    ----------
    n_samples : int, default=400
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        -1 and 1.
    """
    check_count("n_samples", n_samples, low=2)
    rng = check_random_state(random_state)
    X = np.empty((0, 2))
    while len(X) < n_samples:
        points = rng.uniform(-7.5, 7.5, (2 * n_samples, 2))
        distance = np.hypot(*points.T)
        X = np.vstack([X, points[(distance <= 2) | (distance >= 3.5)]])
    X = X[:n_samples]
    return X, np.where(np.hypot(*X.T) <= 2, 1, -1).astype(np.int64)


def _labels(n_samples: int, random_state: Seed) -> tuple[NDArray[np.int64], np.random.RandomState]:
    check_count("n_samples", n_samples, low=2)
    return np.where(np.arange(n_samples) % 2, 1, -1).astype(np.int64), check_random_state(random_state)
