"""Problems of several classes, and what must hold for their fits."""

import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from gaussguru import CollapseWarning, GuruClassifier
from gaussguru._guru.problems.multiclass import Multiclass
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru._rows.rows import Rows
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic
from support import oracles
from support.common import check_close, features, fit_to
from support.data import groups

# What a generic optimiser can miss, relative to F(0).
SLACK = 1e-7
# Real data that a generic optimiser minimises in no time.
SMALL = ("iris", "wine")


def sample(n=70, d=4, n_classes=4, seed=0):
    """Return X with exact float32 values and zeros, labels and weights."""
    rng = np.random.default_rng(seed)
    X = features(n, d, rng)
    labels = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)).astype(np.int32)
    return X, labels, rng.uniform(0.2, 2.0, n)


def make(X, labels, weight, *, loss=None, l2=0.0, fit_intercept=True, sigma=0.6, blur=0.0):
    rows = Rows(X, labels.astype(np.int32), weight, int(labels.max()) + 1)
    loss = loss or LOSSES["gaussian"]
    return Multiclass(rows, loss, Isotropic(sigma), l2, fit_intercept, Smoothing(blur=blur))


def place(d=4, n_classes=4, seed=1, fit_intercept=True):
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((n_classes, d)) * 0.7, rng.standard_normal(n_classes) * 0.3
    return W, b * fit_intercept


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


def solve(X, y, sigma, weight=None, **options):
    """Return a fitted classifier and the categories of the warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = GuruClassifier(sigma=sigma, **options).fit(X, y, weight)
    return clf, [warning.category for warning in caught]


def labels_of(clf, y):
    return np.searchsorted(clf.classes_, y)


def value(clf, X, y, **options):
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    return oracles.joint_objective(clf.coef_, clf.intercept_, X, labels_of(clf, y), clf.sigma, **options)


def at_zero(clf, y, weight=None):
    return (len(clf.classes_) - 1) * (len(y) if weight is None else weight.sum())


def check_solved(clf, caught, X, y, **options):
    """Assert everything that holds for a converged fit without knowing the minimum."""
    n_classes, total = len(clf.classes_), at_zero(clf, y, options.get("weight"))
    assert 0 <= clf.dual_gap_ <= clf.tol * total
    assert caught == ([] if clf.coef_.any() else [CollapseWarning])
    check_state(clf, X, y, **options)
    assert clf.dual_coef_.shape == (len(y), n_classes)
    assert np.all((clf.dual_coef_ >= 0) & (clf.dual_coef_ <= 1))
    assert not np.any(clf.dual_coef_[np.arange(len(y)), labels_of(clf, y)])


def check_state(clf, X, y, **options):
    """Assert what holds even for a fit that did not converge."""
    n_classes, total = len(clf.classes_), at_zero(clf, y, options.get("weight"))
    np.testing.assert_allclose(clf.objective_, value(clf, X, y, **options), rtol=1e-10, atol=1e-11 * total)
    assert clf.coef_.shape == (n_classes, X.shape[1])
    assert clf.intercept_.shape == (n_classes,)
    np.testing.assert_allclose(clf.coef_.sum(axis=0), 0.0, atol=1e-12 * (1e-300 + np.abs(clf.coef_).max()))
    np.testing.assert_allclose(clf.intercept_.sum(), 0.0, atol=1e-12 * (1e-300 + np.abs(clf.intercept_).max()))
    if not clf.fit_intercept:
        assert not clf.intercept_.any()


def check_honest(clf, optimum, total):
    """Assert that a value of F, so an upper bound of its minimum, is not below what was proven impossible."""
    assert optimum >= clf.objective_ - clf.dual_gap_ - 1e-12 * total


def check_agrees(clf, optimum, total):
    """Assert that the minimum found by an oracle is within the gap, up to what the oracle misses."""
    check_honest(clf, optimum, total)
    assert abs(clf.objective_ - optimum) <= clf.dual_gap_ + SLACK * total


def check_near_hinge(clf, X, y, solution):
    """Assert that the minimum is between the least hinge loss and F at its solution."""
    least, W, b = solution
    total = at_zero(clf, y)
    assert least - 1e-9 * total <= clf.objective_
    check_honest(clf, oracles.joint_objective(W, b, X, y, clf.sigma), total)


def check_certified_or_warned(clf, caught, X, y, **options):
    if clf.dual_gap_ <= clf.tol * at_zero(clf, y, options.get("weight")):
        check_solved(clf, caught, X, y, **options)
    else:
        check_state(clf, X, y, **options)
        assert caught == [ConvergenceWarning]


def noisy_groups():
    X, y = groups([30, 22, 28, 25], 4, 3.0, seed=1)
    return X, y, np.random.default_rng(0).uniform(0.3, 2.0, len(y))


tight = partial(fit_to, 1e-12)


def check_same(clf, other, *, factor=1.0, rtol=1e-5):
    check_close(clf, other, rtol, factor=factor)
