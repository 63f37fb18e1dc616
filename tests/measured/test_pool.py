"""The pool of ErrorBarClassifier: its features, noisier copies, members and weights, against formulas and draws."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, ndtr, softmax
from scipy.stats import chi2, kstest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from gaussguru import ErrorBarClassifier, PopulationClassifier
from gaussguru._errors.samples import split_errors
from gaussguru._measured import error_bar
from gaussguru._measured.affine import NotLinearError
from gaussguru._measured.features import FeatureColumns, with_noise
from gaussguru._measured.pool import ExpectedKernel, LabelledColumns, _weighted, ignore_warnings_of_threads
from gaussguru._measured.posteriors import View
from gaussguru.errors import Asymmetric, Limits, LowRank, Measured
from gaussguru.population import Deconvolve

# One pass over two folds; an integer would be three of them.
FOLDS = StratifiedKFold(2, shuffle=True, random_state=0)
# Members that take values and errors, of fits to more than 60 samples of each class.
POPULATIONS = ["population", "one Gaussian"]
RBF = {"model": "rbf", "cv": FOLDS, "n_jobs": 1}
ALL = {"cv": FOLDS, "n_jobs": 1}
# Both sides of a test that fails by chance once in 5000 times.
ALMOST = np.array([1e-4, 1 - 1e-4])


def ring(n=200, seed=0, low=0.05, high=0.6):
    """Return measured values, errors and labels of two classes, one around the other."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, 2))
    y = (np.square(truth).sum(axis=1) + 0.3 * rng.standard_normal(n) > 1.4).astype(int)
    err = rng.uniform(low, high, (n, 2))
    return truth + err * rng.standard_normal((n, 2)), err, y


def three(n=200, seed=0):
    """Return measured values, errors and labels of three classes: inside, left and right."""
    X, err, y = ring(n, seed)
    return X, err, np.where(y == 1, 1 + (X[:, 0] > 0), 0)


@pytest.fixture(scope="module")
def fitted():
    X, err, y = ring()
    return ErrorBarClassifier(**ALL).fit(X, y, X_err=err), X, err, y


# --- features ---------------------------------------------------------------------------------------------


def gaussian(n=150, d=3, seed=0):
    """Return measured values and errors of one Gaussian population, and its view."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.geomspace(0.1, 10.0, d) + np.arange(d)
    err = rng.uniform(0.2, 1.0, (n, d)) * np.geomspace(0.1, 10.0, d)
    X = truth + err * rng.standard_normal((n, d))
    return X, err, View.of(Deconvolve(1).fit(X, X_err=err))


def posterior(view, x, S):
    """Return mean and covariance of the truth of a sample, in units of the spread of the population."""
    mu, T = view.population.means_[0], view.population.covariances_[0]
    known = np.isfinite(np.diag(S))
    gain = T[:, known] @ np.linalg.inv((T + np.where(np.isfinite(S), S, 0.0))[np.ix_(known, known)])
    scale = np.sqrt(np.diag(T))
    mean = gain @ (x - mu)[known]
    return mean / scale, (T - gain @ T[known]) / np.outer(scale, scale)


def test_features_match_the_formulas():
    X, err, view = gaussian()
    mu, T = view.population.means_[0], view.population.covariances_[0]
    scale = np.sqrt(np.diag(T))
    features = FeatureColumns.of(view, X, err, high=2.0)
    table = features.columns(X, err)
    values, axes = eigh(T / np.outer(scale, scale))
    axes = (axes / np.sqrt(values))[:, ::-1]
    taper = 1 / (1 + (err / (2.0 * err.max(axis=0))) ** 2)
    np.testing.assert_allclose(table.trees[:, :3], (X - mu) / scale * taper, atol=1e-11)
    for i in range(len(X)):
        mean, V = posterior(view, X[i], np.diag(err[i] ** 2))
        np.testing.assert_allclose(table.trees[i, 3:6], mean, atol=1e-9)
        np.testing.assert_allclose(table.means[i], np.clip(mean, -6, 6), atol=1e-9)
        np.testing.assert_allclose(table.variances[i], np.diag(V), atol=1e-9)
        # An axis has no sign.
        np.testing.assert_allclose(np.abs(table.trees[i, 6:]), np.abs(mean @ axes), atol=1e-8)
        np.testing.assert_allclose(table.rotated_variances[i], np.diag(axes.T @ V @ axes), atol=1e-8)
        assert table.vagueness[i] == pytest.approx(np.log(np.diag(V)).mean(), abs=1e-4)
    np.testing.assert_allclose(table.sizes, np.log(err / scale), atol=1e-4)
    assert table.gaps.shape == (150, 0)
    # Along its axes the population has spread 1.
    np.testing.assert_allclose(features.axes.T @ (T / np.outer(scale, scale)) @ features.axes, np.eye(3), atol=1e-9)


def test_one_huge_error_of_training_leaves_the_values_of_others_alone():
    X, err, view = gaussian()
    huge = err.copy()
    huge[0] = 1e8 * view.scale
    noisier = np.full((1, 3), 1e3) * view.scale
    features = FeatureColumns.of(view, X, huge, high=3.0)
    # Values of errors as large as many spreads say nothing, whatever the largest error of training is.
    assert np.abs(features.columns(view.centre + noisier, noisier).trees[:, :3]).max() < 0.05
    plain = FeatureColumns.of(view, X, err, high=3.0).columns(X, err).trees[1:, :3]
    np.testing.assert_allclose(features.columns(X, huge).trees[1:, :3], plain, rtol=0.1)


@pytest.mark.parametrize("form", ["covariances", "low rank", "none"])
def test_features_of_other_forms(form):
    X, err, view = gaussian()
    F = 0.5 * np.random.default_rng(1).standard_normal((150, 3, 2)) * np.geomspace(0.1, 10.0, 3)[:, np.newaxis]
    S = F @ F.transpose(0, 2, 1) + np.eye(3) * err[:, :, np.newaxis] ** 2
    given = {"covariances": S, "low rank": LowRank(F, err), "none": None}[form]
    S = np.zeros_like(S) if form == "none" else S
    table = FeatureColumns.of(view, X, given, high=3.0).columns(X, given)
    for i in range(0, 150, 10):
        mean, V = posterior(view, X[i], S[i])
        np.testing.assert_allclose(table.trees[i, 3:6], mean, atol=1e-8)
        np.testing.assert_allclose(table.variances[i], np.diag(V), atol=1e-8)
    assert all(np.isfinite(getattr(table, name)).all() for name in ("trees", "sizes", "vagueness", "rotated_variances"))
    if form == "none":
        np.testing.assert_allclose(table.trees[:, :3], table.trees[:, 3:6], atol=1e-9)


def test_columns_of_gaps_and_limits():
    X, err, view = gaussian()
    gone = np.zeros(X.shape, dtype=bool)
    gone[::3, 0] = gone[::4, 2] = True
    sides = np.zeros(X.shape, dtype=np.int8)
    sides[1::3, 1], sides[2::3, 1] = -1, 1
    given = Limits(np.where(gone, np.inf, err), sides)
    features = FeatureColumns.of(view, X, given, high=3.0)
    assert features.gaps.tolist() == [0, 2]
    assert features.limits.tolist() == [1]
    table = features.columns(X, given)
    np.testing.assert_array_equal(table.gaps, np.column_stack([gone[:, 0], gone[:, 2], sides[:, 1]]))
    np.testing.assert_array_equal(table.trees[:, -3:], table.gaps)
    np.testing.assert_array_equal(table.trees[:, :3][gone], 0.0)
    # Of samples without limits.
    np.testing.assert_array_equal(features.columns(X, err).gaps, 0.0)
    # The value of a gap does not matter.
    other = features.columns(np.where(gone, 1e9, X), given)
    np.testing.assert_array_equal(other.trees, table.trees)


def test_features_of_growing_errors_tend_to_the_features_of_a_gap():
    X, err, view = gaussian()
    features = FeatureColumns.of(view, X, err, high=3.0)
    sizes = np.concatenate([np.geomspace(1e-2, 1e6, 801), np.geomspace(1e7, 1e300, 50), [np.inf]])
    errors = np.tile(err[0], (len(sizes), 1))
    errors[:, 1] = sizes
    table = features.columns(np.tile(X[0], (len(sizes), 1)), errors)
    gap = features.columns(
        np.where([False, True, False], np.nan, X[:1]), np.where([False, True, False], np.inf, err[:1])
    )
    for name in ("trees", "means", "variances", "rotated", "rotated_variances", "vagueness"):
        found, limit = getattr(table, name), getattr(gap, name)[0]
        assert np.isfinite(found).all(), name
        np.testing.assert_allclose(found[sizes >= 1e12], np.broadcast_to(limit, found[sizes >= 1e12].shape), atol=1e-9)
        # Errors grow by 2.3 % from one to the next.
        assert np.abs(np.diff(found, axis=0)).max() < 0.05 * max(1.0, np.abs(found).max()), name


@pytest.mark.parametrize("unit", [(1e-7, 3e5, 1.0), (3e-5, 7.0, 1e3), (1.1, 1e12, 0.2), (1e5, 1e5, 1e5)])
def test_features_do_not_depend_on_units_and_offsets(unit):
    X, err, view = gaussian(seed=4)
    unit = np.array(unit)
    Z, F = X * unit + 5 * unit, err * unit
    one = FeatureColumns.of(view, X, err, high=3.0).columns(X, err)
    other = FeatureColumns.of(View.of(Deconvolve(1).fit(Z, X_err=F)), Z, F, high=3.0).columns(Z, F)
    for name in ("trees", "sizes", "means", "variances", "rotated", "rotated_variances", "vagueness"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-7, err_msg=name)


# --- noisier copies ---------------------------------------------------------------------------------------


def noisier(X, err, donors, bounds, scale=None, seed=0):
    scale = np.ones(X.shape[1]) if scale is None else scale
    return with_noise(X, err, donors, scale, bounds, np.random.default_rng(seed))


def test_noise_of_copies():
    rng = np.random.default_rng(1)
    own, X = rng.uniform(0.1, 2.0, (20_000, 2)), rng.standard_normal((20_000, 2))
    donors = np.tile([0.5, 1.0], (7, 1))
    values, err = noisier(X, own, donors, (1.5, 1.5))
    np.testing.assert_allclose(err, np.maximum(own, [0.75, 1.5]), rtol=1e-14)
    more = err > own
    np.testing.assert_array_equal(values[~more], X[~more])
    z = ((values - X) / np.sqrt(np.maximum(err**2 - own**2, 1e-300)))[more]
    low, high = chi2(len(z)).ppf(ALMOST)
    assert low < np.square(z).sum() < high
    assert kstest(z, ndtr).pvalue > 1e-4


def test_errors_of_copies_match_other_samples():
    donors = np.array([[0.1, 1.0], [0.2, 0.3], [5.0, 0.7]])
    _, err = noisier(np.zeros((9000, 2)), np.zeros((9000, 2)), donors, (0.5, 3.0))
    which = np.abs(np.log(err[:, :1] / err[:, 1:]) - np.log(donors[:, 0] / donors[:, 1])).argmin(axis=1)
    factors = err / donors[which]
    np.testing.assert_allclose(factors[:, 0], factors[:, 1], rtol=1e-12)
    # Log-uniform between the bounds, of all samples alike.
    assert kstest(np.log(factors[:, 0]), "uniform", (np.log(0.5), np.log(6.0))).pvalue > 1e-4
    assert np.abs(np.bincount(which) - 3000).max() < 4 * np.sqrt(9000 * 2 / 9)


def random_covariances(n, d, seed, rank=None):
    F = np.random.default_rng(seed).standard_normal((n, d, rank or d))
    return F @ F.transpose(0, 2, 1)


@pytest.mark.parametrize("rank", [None, 1])
def test_covariances_of_copies_are_larger_in_every_direction(rank):
    n, d, factor = 300, 3, 1.7
    C, D = random_covariances(n, d, 0, rank), random_covariances(1, d, 1, rank)
    X = np.random.default_rng(2).standard_normal((n, d))
    for scale in (np.ones(d), np.array([0.01, 1.0, 30.0])):
        values, new = noisier(X, C, D, (factor, factor), scale)
        assert np.linalg.eigvalsh(new - C).min() > -1e-9
        assert np.linalg.eigvalsh(new - factor**2 * D).min() > -1e-9
        np.testing.assert_allclose(new, new.transpose(0, 2, 1), atol=1e-12)
        assert np.isfinite(values).all()
    # No noise is added to a larger error.
    values, same = noisier(X, C + 100 * np.eye(d), D, (1.0, 1.0))
    np.testing.assert_allclose(same, C + 100 * np.eye(d), atol=1e-12)
    np.testing.assert_allclose(values, X, atol=1e-12)


def test_covariance_of_the_noise_of_copies():
    n = 40_000
    C, D = np.array([[1.0, 0.6], [0.6, 0.5]]), np.array([[0.4, -0.3], [-0.3, 0.9]])
    values, new = noisier(np.zeros((n, 2)), np.tile(C, (n, 1, 1)), D[np.newaxis], (1.3, 1.3), np.array([1.0, 2.0]))
    added = new[0] - C
    # The positive part, in units of the scale.
    units = np.array([1.0, 2.0])
    w, U = eigh((1.69 * D - C) / np.outer(units, units))
    np.testing.assert_allclose(added, (U * np.maximum(w, 0)) @ U.T * np.outer(units, units), atol=1e-12)
    found = values.T @ values / n
    error = np.sqrt((np.outer(np.diag(added), np.diag(added)) + added**2) / n)
    assert np.all(np.abs(found - added) < 4.5 * error + 1e-12)


def test_copies_keep_values_that_were_not_measured():
    X, err, _ = gaussian(60)
    gone = np.random.default_rng(0).random(X.shape) < 0.3
    sides = np.random.default_rng(1).choice([-1, 0, 1], X.shape).astype(np.int8)
    X, err = np.where(gone, np.nan, X), np.where(gone, np.inf, err)
    values, new = noisier(X, err, err, (1.0, 3.0))
    np.testing.assert_array_equal(values[gone], np.nan)
    np.testing.assert_array_equal(new[gone], np.inf)
    assert np.isfinite(values[~gone]).all()
    assert np.isfinite(new[~gone]).all()
    assert (new[~gone] >= err[~gone]).all()
    values, limited = noisier(X, Limits(err, sides), Limits(err, sides), (1.0, 3.0))
    fixed = gone | (sides != 0)
    np.testing.assert_array_equal(limited.limits, sides)
    np.testing.assert_array_equal(values[fixed], X[fixed])
    np.testing.assert_array_equal(limited.err[fixed], err[fixed])
    assert np.isfinite(values[~fixed]).all()
    assert not np.array_equal(values[~fixed], X[~fixed])
    covariances = random_covariances(60, 3, 2)
    covariances[gone.nonzero()[0], gone.nonzero()[1]] = 0.0
    covariances[gone.nonzero()[0], :, gone.nonzero()[1]] = 0.0
    np.einsum("ijj->ij", covariances)[gone] = np.inf
    values, new = noisier(X, covariances, covariances, (1.0, 3.0))
    np.testing.assert_array_equal(values[gone], np.nan)
    np.testing.assert_array_equal(np.einsum("ijj->ij", new)[gone], np.inf)
    assert np.isfinite(values[~gone]).all()
    assert np.isfinite(np.einsum("ijj->ij", new)[~gone]).all()


@pytest.mark.parametrize("bare", [False, True])
def test_copies_of_low_rank(bare):
    rng = np.random.default_rng(0)
    F, std = rng.standard_normal((500, 4, 2)), rng.uniform(0.1, 1.0, (500, 4))
    given = LowRank(F) if bare else LowRank(F, std)
    variances = np.square(F).sum(axis=2) + (0.0 if bare else std**2)
    X = rng.standard_normal((500, 4))
    given = split_errors(X, given)[1]
    values, new = noisier(X, given, given[:1], (2.0, 2.0))
    np.testing.assert_array_equal(new.factors, F)
    found = np.square(F).sum(axis=2) + np.square(new.std)
    np.testing.assert_allclose(found, np.maximum(variances, 4 * variances[:1]), rtol=1e-12)
    more = found - variances > 1e-9
    z = ((values - X)[more]) / np.sqrt((found - variances)[more])
    low, high = chi2(len(z)).ppf(ALMOST)
    assert low < np.square(z).sum() < high


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e150, 1e200, 1e300])
def test_copies_of_errors_of_any_size_are_finite(size):
    err = np.full((40, 2), 0.3)
    err[::4, 0] = size
    values, new = noisier(np.zeros((40, 2)), err, err, (0.5, 3.0))
    assert np.isfinite(values).all()
    assert np.isfinite(new).all()


# --- members and weights ----------------------------------------------------------------------------------


def test_expected_kernels_are_averages_over_the_noise():
    rng = np.random.default_rng(0)
    means, variances, more = rng.standard_normal((6, 2)), rng.uniform(0.0, 2.0, (6, 2)), rng.standard_normal((6, 1))
    variances[0] = 0.0
    table = np.hstack([means, variances, more])
    kernel = ExpectedKernel(0.7, 4, 2, random_state=3).fit(table)
    found = kernel.transform(table)
    Z = kernel.landmarks_
    assert Z.shape == (4, 2)
    assert all((means == z).all(axis=1).any() for z in Z)
    draws = means[:, np.newaxis] + np.sqrt(variances)[:, np.newaxis] * rng.standard_normal((6, 100_000, 2))
    for k, z in enumerate(Z):
        values = np.exp(-0.7 * np.square(draws - z).sum(axis=2))
        error = values.std(axis=1) / np.sqrt(100_000)
        assert np.all(np.abs(found[:, k] / 2 - values.mean(axis=1)) < 4.5 * error + 1e-12)
    np.testing.assert_array_equal(found[:, 4:6], means)
    np.testing.assert_array_equal(found[:, 6:], more)


def held_out(n, m, seed, shift=1.0, sets=2):
    """Return probabilities of members for held-out samples, and these samples, with weights and vagueness."""
    rng = np.random.default_rng(seed)
    labels, weights = rng.integers(3, size=n), rng.uniform(0.2, 3.0, n)
    truth, found = [], [[] for _ in range(m)]
    for s in range(sets):
        truth.append(
            LabelledColumns(SimpleNamespace(vagueness=rng.standard_normal(n) - 1 + s * shift), labels, weights)
        )
        for k in range(m):
            logits = rng.standard_normal((n, 3)) + (0.5 + 0.4 * ((k + s) % m)) * np.eye(3)[labels]
            found[k].append(softmax(logits, axis=1))
    return found, truth


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("m", "sets"), [(2, 2), (4, 2), (3, 1), (1, 2)])
def test_weights_match_greatest_posterior_probability(m, sets, seed):
    """Each weight counts as if one sample more had been of this member."""
    found, truth = held_out(150, m, seed, sets=sets)
    pool = _weighted([None] * m, found, truth, 3)
    L = np.concatenate([np.stack([p[s][np.arange(150), truth[s].labels] for p in found], 1) for s in range(sets)])
    v = np.concatenate([each.table.vagueness for each in truth])
    own = np.concatenate([each.weights for each in truth])
    own = own / own.mean()
    g = expit(pool.gate[0] + pool.gate[1] * v)[:, np.newaxis] if sets == 2 else 0.0

    def value(x):
        w = softmax(x.reshape(2, m), axis=1)
        return -own @ np.log((((1 - g) * w[0] + g * w[1]) * L).sum(axis=1)) - log_softmax(x.reshape(2, m), axis=1).sum()

    best = minimize(value, np.zeros(2 * m), options={"gtol": 1e-9}).x
    np.testing.assert_allclose(pool.weights, softmax(best.reshape(2, m), axis=1), atol=2e-4)
    np.testing.assert_allclose(pool.weights.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(pool.shares(v).sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("sets", [1, 2])
def test_powers_match_greatest_posterior_probability(sets):
    """With a prior N(1, 1) on each power."""
    found, truth = held_out(150, 3, 0, sets=sets)
    found = [[softmax(0.5 * np.log(p), axis=1) for p in opinions] for opinions in found]  # too close to 1/3
    pool = _weighted([None] * 3, found, truth, 3)
    v = np.concatenate([each.table.vagueness for each in truth])
    own, labels = (np.concatenate([getattr(each, name) for each in truth]) for name in ("weights", "labels"))
    g = expit(pool.gate[0] + pool.gate[1] * v)[:, np.newaxis] if sets == 2 else np.zeros((150, 1))
    mean = np.einsum("nm,mnc->nc", (1 - g) * pool.weights[0] + g * pool.weights[1], [np.concatenate(p) for p in found])

    def value(x):
        logs = log_softmax(((1 - g) * x[0] + g * x[1]) * np.log(mean), axis=1)
        return -(own / own.mean()) @ logs[np.arange(len(labels)), labels] + 0.5 * np.square(x - 1).sum()

    best = minimize(value, np.ones(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    np.testing.assert_allclose(pool.powers, best, atol=1e-5)
    assert pool.powers[0] > 1.2
    assert sets == 2 or pool.powers[1] == 1.0


def test_the_gate_is_logistic_regression_on_vagueness():
    found, truth = held_out(200, 2, 0)
    pool = _weighted([None] * 2, found, truth, 3)
    v = np.concatenate([each.table.vagueness for each in truth])
    weights = np.concatenate([each.weights for each in truth])
    which, z = np.repeat([-1, 1], 200), (v - v.mean()) / v.std()

    def value(x):  # with the ridge of scikit-learn
        return weights @ np.logaddexp(0.0, -which * (x[0] + x[1] * z)) + 0.5 * x[1] ** 2

    a, b = minimize(value, np.zeros(2)).x
    np.testing.assert_allclose(pool.gate, [a - b * v.mean() / v.std(), b / v.std()], atol=1e-3)
    assert pool.gate[1] > 0
    shares = pool.shares(np.linspace(-5, 5, 11))
    assert np.all(np.diff(shares @ (pool.weights[1] - pool.weights[0])) >= 0)  # towards the weights of noisier samples
    # Copies that are less vague by chance say nothing.
    assert _weighted([None] * 2, *held_out(200, 2, 0, shift=-1.0), 3).gate[1] == 0
    # Without copies the weights are those of samples as they were measured.
    found, truth = held_out(200, 2, 0, sets=1)
    alone = _weighted([None] * 2, found, truth, 3)
    np.testing.assert_allclose(alone.shares(np.array([-3.0, 9.0])), np.tile(alone.weights[0], (2, 1)), rtol=1e-12)


# --- the estimator ----------------------------------------------------------------------------------------


def test_probabilities_are_the_average_of_the_members(fitted):
    clf, X, err, _ = fitted
    table = clf.features_.columns(X, err)
    of = {
        "boosting": table.trees,
        "boosting, as measured": table.trees,
        "trees": table.trees,
        "linear": np.hstack([table.means, table.gaps]),
    }
    kernel = next(member.columns for member in clf.pool_.members if member.name == "rbf")
    of["rbf"] = np.hstack(
        [table.means, table.variances] if kernel == "posterior" else [table.rotated, table.rotated_variances]
    )
    assert {*clf.members_} == {*of, *POPULATIONS}
    means = []
    for name, models in clf.members_.items():
        assert len(models) == 2
        found = [m.predict_proba(X, err) if name in POPULATIONS else m.predict_proba(of[name]) for m in models]
        means.append(np.mean(found, axis=0))
    g = expit(clf.pool_.gate[0] + clf.pool_.gate[1] * table.vagueness)[:, np.newaxis]
    shares = (1 - g) * clf.weights_[0] + g * clf.weights_[1]
    expected = np.einsum("nm,mnc->nc", shares, np.array(means)) ** (
        (1 - g) * clf.pool_.powers[0] + g * clf.pool_.powers[1]
    )
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X, err), expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X, err)), expected, rtol=1e-9)
    np.testing.assert_array_equal(clf.predict(X, err), expected.argmax(axis=1))
    np.testing.assert_allclose(ndtr(clf.decision_function(X, err)), expected[:, 1], rtol=1e-9)
    assert clf.method_ == "pool"


def test_one_gaussian_for_few_samples_of_a_class():
    """Normal classes: three Gaussians of 9 features are too many for 80 samples, and the pool knows it."""
    rng = np.random.default_rng(0)
    y, err = np.arange(160) % 2, np.full((160, 9), 0.3)
    X = rng.normal(size=(160, 9)) * np.where(y == 1, 1.5, 1.0)[:, np.newaxis] + err * rng.normal(size=(160, 9))
    clf = ErrorBarClassifier(model="population", cv=FOLDS).fit(X, y, X_err=err)
    assert [models[0].n_components for models in clf.members_.values()] == [3, 1]
    three, one = clf.cv_scores_["log_loss"][:2]
    assert one < three - 0.05
    assert clf.weights_[:, 1].min() > 0.55
    few = ErrorBarClassifier(model="population", cv=FOLDS).fit(X[:120], y[:120], X_err=err[:120])
    assert [(name, models[0].n_components) for name, models in few.members_.items()] == [("population", 1)]


def test_held_out_log_losses_match_a_loop():
    X, err, y = ring(120)
    clf = ErrorBarClassifier(model="population", cv=FOLDS).fit(X, y, X_err=err)
    total = 0.0
    for train, test in FOLDS.split(X, y):
        one = PopulationClassifier(1).fit(X[train], y[train], X_err=err[train])
        total += log_loss(y[test], one.predict_proba(X[test], err[test]), normalize=False)
    scores = clf.cv_scores_
    assert scores["log_loss"][0] == pytest.approx(total / 120, rel=1e-9)
    # The pool of one member has its probabilities to a power.
    assert clf.pool_.powers.max() > 1.2
    assert scores["log_loss"][scores["member"] == "pool"] < scores["log_loss"][0]
    share = y.mean()
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert scores["log_loss"][scores["member"] == "class frequencies"] == pytest.approx(entropy)


def test_standard_errors_are_those_of_differences_between_rows():
    """Of the pool of one member, whose probabilities have a power, from the class frequencies and from the member."""
    X, _, y = ring(120, seed=3)
    folds = [(np.arange(60), np.arange(60, 120)), (np.arange(60, 120), np.arange(60))]
    clf = ErrorBarClassifier(model="population", cv=folds).fit(X, y)
    held = np.concatenate([test for _, test in folds])
    models = clf.members_["population"]
    p = np.concatenate([model.predict_proba(X[test]) for model, (_, test) in zip(models, folds, strict=True)])
    pooled = p ** clf.pool_.powers[0]
    pooled /= pooled.sum(axis=1, keepdims=True)
    frequencies = np.tile(np.bincount(y) / len(y), (120, 1))
    logs = [np.log(each[np.arange(120), y[held]]) for each in (p, pooled, frequencies)]
    expected = [(each - logs[1]).std() / np.sqrt(120) for each in logs]
    assert clf.cv_scores_["member"].tolist() == ["population", "pool", "class frequencies"]
    np.testing.assert_allclose(clf.cv_scores_["standard_error"], expected, rtol=1e-6)


def test_rows_and_columns_of_scores(fitted):
    clf, X, err, y = fitted
    last = ["pool", "class frequencies"]
    every = ["boosting", "boosting, as measured", "trees", "rbf", *POPULATIONS, "linear"]
    names = ("member", "weight", "log_loss", "standard_error")
    names += tuple(f"{name}_noisier" for name in names[1:])
    assert tuple(clf.cv_scores_) == names
    assert clf.cv_scores_["member"].tolist() == [*every, "errors ignored", "error sizes used", *last]
    for name in ("weight", "weight_noisier"):
        assert clf.cv_scores_[name][: len(every)].sum() == pytest.approx(1.0)
        assert np.isnan(clf.cv_scores_[name][len(every) :]).all()
    for name in ("log_loss", "log_loss_noisier"):
        scores = clf.cv_scores_[name]
        assert np.isfinite(scores).all()
        assert scores[-2] < scores[-1]
    rows = {"rbf": ["rbf"], "population": POPULATIONS}
    for model, members in rows.items():
        found = ErrorBarClassifier(model=model, cv=FOLDS).fit(X, y, X_err=err).cv_scores_
        assert found["member"].tolist() == [*members, *last]
    exact = ErrorBarClassifier(**RBF).fit(X, y).cv_scores_
    assert tuple(exact) == names[:4]
    sizes = ErrorBarClassifier(model="boosting", use_error_sizes=True, cv=[(np.arange(100), np.arange(100, 200))])
    found = sizes.fit(X, y, X_err=err).cv_scores_["member"].tolist()
    assert found == [*every[:2], "errors ignored", "error sizes not used", *last]


def test_a_curved_boundary():
    """Against a line and the class frequencies, on fresh samples, at errors of training and larger ones."""
    X, err, y = ring(400, seed=1)
    clf = ErrorBarClassifier(**ALL).fit(X, y, X_err=err)
    line = ErrorBarClassifier(model="linear", cv=3).fit(X, y, X_err=err)
    frequencies = np.bincount(y) / len(y)
    for high in (0.6, 1.8):
        Z, F, labels = ring(3000, seed=2, high=high)
        ours = log_loss(labels, clf.predict_proba(Z, F))
        assert ours < log_loss(labels, line.predict_proba(Z, F)) - 0.05
        assert ours < log_loss(labels, np.tile(frequencies, (3000, 1))) - 0.05


@pytest.mark.parametrize("model", ["linear", "rbf"])
def test_the_population_of_use(model):
    """Faint samples lie elsewhere; labels depend on the truth as before."""
    rng = np.random.default_rng(0)

    def drawn(centre, n, error):
        truth = centre + rng.standard_normal((n, 1))
        y = (truth[:, 0] + 0.3 * rng.standard_normal(n) > 0).astype(int)
        return truth + error * rng.standard_normal((n, 1)), np.full((n, 1), error), y

    X, err, y = drawn(0.0, 2000, 0.3)
    clf = ErrorBarClassifier(model=model, n_components=1, cv=3).fit(X, y, X_err=err)
    Z, F, z = drawn(1.5, 2000, 1.5)
    there = clf.refit_population(Z, F)
    assert there is not clf
    # Unlabelled samples of use say where the truth is expected.
    np.testing.assert_allclose(there.population_.means_[0], 1.5, atol=0.15)
    np.testing.assert_allclose(clf.population_.means_[0], 0.0, atol=0.1)
    assert log_loss(z, there.predict_proba(Z, F)) < log_loss(z, clf.predict_proba(Z, F))
    with pytest.raises(ValueError, match="X_err"):
        clf.refit_population(Z)


# --- labels, weights, groups ------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [ring, three])
def test_labels_may_be_anything(made):
    X, err, y = made(150)
    expected = ErrorBarClassifier(**RBF).fit(X, y, X_err=err)
    p = expected.predict_proba(X, err)
    assert p.shape == (150, y.max() + 1)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    kinds = [np.array(["a", "b", "c"])[y], y.astype(float) * 2 - 1, pd.Series(y).astype("int8")]
    if made is ring:
        kinds += [y.astype(bool)]
    for labels in kinds:
        clf = ErrorBarClassifier(**RBF).fit(X, labels, X_err=err)
        np.testing.assert_array_equal(clf.classes_, np.unique(labels))
        np.testing.assert_array_equal(clf.predict_proba(X, err), p)
        np.testing.assert_array_equal(clf.predict(X, err), clf.classes_[p.argmax(axis=1)])
    np.testing.assert_array_equal(expected.decision_function(X, err).shape, (150,) if made is ring else (150, 3))


@pytest.mark.parametrize("made", [ring, three])
@pytest.mark.parametrize("options", [ALL, RBF], ids=["auto", "rbf"])
def test_weight_0_leaves_a_sample_out(options, made):
    X, err, y = made(160)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.5], 160)
    X[weights == 0] *= 50.0
    kept = weights > 0
    one = ErrorBarClassifier(**options).fit(X, y, weights, err)
    other = ErrorBarClassifier(**options).fit(X[kept], y[kept], weights[kept], err[kept])
    np.testing.assert_array_equal(one.predict_proba(X, err), other.predict_proba(X, err))
    np.testing.assert_array_equal(one.cv_scores_["log_loss"], other.cv_scores_["log_loss"])


def test_weight_0_where_folds_are_given():
    X, err, y = ring(120)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.5], 120)
    kept, places = np.flatnonzero(weights), np.cumsum(weights > 0) - 1
    folds = [(np.arange(60), np.arange(60, 120)), (np.arange(60, 120), np.arange(60))]
    inner = [tuple(places[part[weights[part] > 0]] for part in fold) for fold in folds]
    one = ErrorBarClassifier(**RBF | {"cv": folds}).fit(X, y, weights, err)
    other = ErrorBarClassifier(**RBF | {"cv": inner}).fit(X[kept], y[kept], weights[kept], err[kept])
    np.testing.assert_array_equal(one.predict_proba(X, err), other.predict_proba(X, err))


def test_weights_with_metadata_routing():
    X, err, y = ring(120)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 120)
    expected = ErrorBarClassifier(**RBF).fit(X, y, weights, err).predict_proba(X, err)
    with sklearn.config_context(enable_metadata_routing=True):
        found = ErrorBarClassifier(**RBF).fit(X, y, weights, err).predict_proba(X, err)
    np.testing.assert_array_equal(found, expected)


def test_class_weights():
    X, err, y = ring(1500)
    keep = (y == 0) | (np.arange(1500) % 5 == 0)
    X, err, y = X[keep], err[keep], y[keep]
    factors = len(y) / 2 / np.bincount(y)
    plain = ErrorBarClassifier(**RBF).fit(X, y, X_err=err)
    balanced = ErrorBarClassifier(**RBF, class_weight="balanced").fit(X, y, X_err=err)
    given = ErrorBarClassifier(**RBF, class_weight=dict(enumerate(factors))).fit(X, y, X_err=err)
    q = balanced.predict_proba(X, err)
    np.testing.assert_array_equal(given.predict_proba(X, err), q)
    Z, F, labels = ring(2000, seed=7)
    rare = np.where(labels == 1, 0.2, 1.0)
    p, q = plain.predict_proba(Z, F)[:, 1], balanced.predict_proba(Z, F)[:, 1]
    # Of fresh samples with the same shares of the classes, and of classes that weigh the same.
    assert np.average(p, weights=rare) == pytest.approx(np.average(labels, weights=rare), abs=0.06)
    even = (1 / np.bincount(labels))[labels]
    assert np.average(q, weights=even) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["number", "splitter"])
def test_groups_stay_together(kind, weighted, monkeypatch):
    X, err, y = ring(120)
    groups = np.random.default_rng(3).permutation(np.arange(120) // 6)
    weights = np.random.default_rng(1).choice([0.0, 1.0], 120) if weighted else np.ones(120)
    seen = []

    pool_folds = error_bar.pool_folds

    def recorded(features, samples, folds, *more):
        seen.extend(folds)
        return pool_folds(features, samples, folds, *more)

    monkeypatch.setattr(error_bar, "pool_folds", recorded)
    cv = 3 if kind == "number" else error_bar.StratifiedGroupKFold(3)
    ErrorBarClassifier(**RBF | {"cv": cv}).fit(X, y, weights, err, groups)
    assert len(seen) == (9 if kind == "number" else 3)
    mine = groups[weights > 0]
    for train, test in seen:
        assert not {*mine[train]} & {*mine[test]}
        assert {*train} | {*test} == {*range(len(mine))}
    assert sorted(np.concatenate([test for _, test in seen[:3]])) == [*range(len(mine))]


# --- errors in every form ---------------------------------------------------------------------------------


def test_forms_that_are_the_same():
    X, err, y = ring(150)
    err = np.repeat(err[:, :1], 2, axis=1)
    err[:20] = 0.0
    expected = ErrorBarClassifier(**RBF).fit(X, y, X_err=err).predict_proba(X, err)
    frames = [pd.DataFrame(values, columns=["u", "v"]) for values in (X, err)]
    forms = {
        "a sample": (X, err[:, 0]),
        "sparse": (X, sp.csr_array(err)),
        "frames": frames,
        "lists": (X.tolist(), err.tolist()),
        "two-sided": (X, Asymmetric(err, err)),
        "no limits": (X, Limits(err, np.zeros(X.shape, dtype=int))),
    }
    for name, (values, errors) in forms.items():
        clf = ErrorBarClassifier(**RBF).fit(values, y, X_err=errors)
        # Squares, and roots of them, round; logistic regression stops after 80 iterations.
        np.testing.assert_allclose(clf.predict_proba(values, errors), expected, atol=5e-4, err_msg=name)
    clf = ErrorBarClassifier(**RBF).fit(frames[0], y, X_err=frames[1])
    assert clf.feature_names_in_.tolist() == ["u", "v"]
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frames[0][["v", "u"]], frames[1][["v", "u"]])
    clf = ErrorBarClassifier(**RBF).fit(Measured(X, err), y)
    np.testing.assert_array_equal(clf.predict_proba(Measured(X, err)), expected)


@pytest.mark.parametrize("form", ["missing", "limits", "asymmetric", "covariances", "low rank", "bare factors"])
@pytest.mark.parametrize("options", [ALL, RBF], ids=["auto", "rbf"])
def test_forms_of_errors(form, options):
    """Better than the class frequencies on fresh samples, whatever form their errors have."""
    losses = []
    for seed in (0, 1):
        X, err, y = ring(160 if seed == 0 else 1000, seed)
        rng = np.random.default_rng(seed)
        F = 0.5 * err[:, :, np.newaxis] * rng.standard_normal((len(X), 2, 1))
        X = X + (F @ rng.standard_normal((len(X), 1, 1)))[:, :, 0]
        gone = rng.random(X.shape) < 0.15
        sides = np.where(X < -1.0, -1, 0)
        values, errors = {
            "missing": (np.where(gone, np.nan, X), err),
            "limits": (np.where(sides, -1.0, X), Limits(err, sides)),
            "asymmetric": (X, Asymmetric(err, 1.2 * err)),
            "covariances": (X, F @ F.transpose(0, 2, 1) + np.eye(2) * err[:, :, np.newaxis] ** 2),
            "low rank": (X, LowRank(F, err)),
            "bare factors": (X, LowRank(np.concatenate([F, np.eye(2) * err[:, :, np.newaxis]], axis=2))),
        }[form]
        if seed == 0:
            clf = ErrorBarClassifier(**options).fit(values, y, X_err=errors)
        else:
            p = clf.predict_proba(values, errors)
            np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
            losses = [log_loss(y, p), log_loss(y, np.full(len(y), y.mean()))]
    assert losses[0] < losses[1] - 0.1


def test_single_precision_is_that_of_the_same_numbers():
    X, err, y = (part.astype(np.float32) for part in ring(150))
    one = ErrorBarClassifier(**RBF).fit(X, y, X_err=err)
    other = ErrorBarClassifier(**RBF).fit(X.astype(float), y, X_err=err.astype(float))
    np.testing.assert_array_equal(one.predict_proba(X, err), other.predict_proba(X.astype(float), err.astype(float)))


def test_without_errors():
    X, err, y = ring(200)
    clf = ErrorBarClassifier(**ALL).fit(X, y)
    assert not clf.has_errors_
    assert "boosting, as measured" not in clf.members_
    np.testing.assert_array_equal(clf.reliability_, 1.0)
    np.testing.assert_allclose(clf.predict_proba(X, 0), clf.predict_proba(X), atol=1e-6)
    Z, F, labels = ring(1000, seed=1)
    assert log_loss(labels, clf.predict_proba(Z, F)) < 0.6
    clf = ErrorBarClassifier(**RBF).fit(X, y, X_err=err)
    for call in (clf.predict, clf.predict_proba, clf.predict_log_proba, clf.decision_function):
        with pytest.raises(ValueError, match="X_err=0 if the values are exact"):
            call(X)
    # All errors 0: nothing to make copies of.
    exact = ErrorBarClassifier(**RBF).fit(X, y, X_err=0)
    assert "log_loss_noisier" not in exact.cv_scores_


# Rounding of values changes where logistic regression stops, after 80 iterations; nothing else.
@pytest.mark.parametrize(("model", "close"), [("rbf", 5e-4), ("population", 1e-7), ("boosting", 1e-7)])
def test_units_do_not_matter(model, close):
    X, err, y = three(120)
    clf = ErrorBarClassifier(model=model, cv=FOLDS, n_jobs=1).fit(X, y, X_err=err)
    for unit in (np.array([1e-7, 3e5]), np.array([1.1, 1e12])):
        other = clone(clf).fit(X * unit, y, X_err=err * unit)
        np.testing.assert_allclose(
            other.predict_proba(X * unit, err * unit), clf.predict_proba(X, err), atol=close, err_msg=str(unit)
        )


# --- the same bits ----------------------------------------------------------------------------------------


def test_threads_refits_and_pickles_have_the_same_bits(fitted):
    clf, X, err, y = fitted
    expected = clf.predict_proba(X, err)
    two = clone(clf).set_params(n_jobs=2).fit(X, y, X_err=err)
    np.testing.assert_array_equal(two.predict_proba(X, err), expected)
    np.testing.assert_array_equal(two.weights_, clf.weights_)
    np.testing.assert_array_equal(two.fit(X, y, X_err=err).predict_proba(X, err), expected)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(X, err), expected)
    # Rows one by one, and none at all.
    each = [clf.predict_proba(X[k : k + 1], err[k : k + 1])[0] for k in range(3)]
    np.testing.assert_allclose(each, expected[:3], rtol=1e-9)


def test_threads_leave_the_filters_of_warnings_alone(fitted):
    """They are those of the process: classifiers of scikit-learn that set and reset them must not do so in threads."""
    clf, X, err, _ = fitted
    clf = pickle.loads(pickle.dumps(clf)).set_params(n_jobs=2)
    with warnings.catch_warnings():
        before = list(warnings.filters)
        for _ in range(20):
            clf.predict_proba(X, err)
            assert list(warnings.filters) == before


def test_members_that_stop_early_warn_nobody(capsys):
    """Not even where another thread has taken the filters away."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(message)
        ignore_warnings_of_threads()
        warnings.warn("filtered", ConvergenceWarning, stacklevel=1)
        warnings.filters = []
        warnings.warn("iterations", ConvergenceWarning, stacklevel=1)
        warnings.warn("`sklearn.utils.parallel.delayed` should be used with Parallel", UserWarning, stacklevel=1)
        warnings.warn("others", UserWarning, stacklevel=1)
    assert capsys.readouterr().out == "others\n"


def test_seeds_count(fitted):
    _, X, err, y = fitted
    one, other = (ErrorBarClassifier(**RBF, random_state=seed).fit(X, y, X_err=err) for seed in (1, 2))
    assert not np.array_equal(one.predict_proba(X, err), other.predict_proba(X, err))
    assert np.abs(one.predict_proba(X, err) - other.predict_proba(X, err)).mean() < 0.1


def test_fits_one_after_the_other_leave_nothing_behind(fitted):
    clf, X, err, y = fitted
    clf = pickle.loads(pickle.dumps(clf))
    clf.set_params(model="linear").fit(X, y, X_err=err)
    assert not hasattr(clf, "members_")
    assert not hasattr(clf, "features_")
    assert hasattr(clf, "alpha_")
    clf.set_params(model="rbf").fit(X, y, X_err=err)
    assert not hasattr(clf, "alpha_")
    assert not hasattr(clf, "estimator_")


def test_there_is_no_one_score(fitted):
    clf, X, err, _ = fitted
    with pytest.raises(NotLinearError, match="pool"):
        clf.margin_and_spread(X, err)


# --- estimators of users, and refused input ---------------------------------------------------------------


def test_another_estimator():
    X, err, y = ring(150)
    labels = np.array(["in", "out"])[y]
    clf = ErrorBarClassifier(LogisticRegression(C=0.1), model="boosting", cv=FOLDS).fit(X, labels, X_err=err)
    assert [*clf.members_] == ["estimator", "estimator, as measured"]
    assert all(type(model) is LogisticRegression and model.C == 0.1 for model in clf.members_["estimator"])
    assert set(clf.predict(X, err)) <= {"in", "out"}
    alone = ErrorBarClassifier(LogisticRegression(C=0.1), model="boosting", cv=FOLDS).fit(X, labels)
    assert [*alone.members_] == ["estimator"]
    whole = ErrorBarClassifier(GaussianNB(), **ALL).fit(X, labels, np.full(150, 2.0), err)
    assert {*whole.members_} == {"estimator", "estimator, as measured", "trees", "rbf", *POPULATIONS, "linear"}


def test_estimators_that_are_refused():
    X, err, y = ring(60)
    near = ErrorBarClassifier(KNeighborsClassifier(), model="boosting", cv=FOLDS)
    assert np.isfinite(near.fit(X, y, X_err=err).predict_proba(X, err)).all()
    for given in ({"sample_weight": np.full(60, 2.0)}, {}):
        near.set_params(class_weight=None if given else "balanced")
        with pytest.raises(ValueError, match=r"sample_weight.*KNeighborsClassifier does not"):
            near.fit(X, y, X_err=err, **given)
    with pytest.raises(ValueError, match="predict_proba; got LinearSVC"):
        ErrorBarClassifier(LinearSVC()).fit(X, y, X_err=err)
    for model in ("linear", "rbf", "population"):
        with pytest.raises(ValueError, match="estimator takes the place of boosting"):
            ErrorBarClassifier(LogisticRegression(), model=model).fit(X, y, X_err=err)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"model": "svm"}, ValueError, "model must be one of"),
        ({"model": None}, ValueError, "model must be one of"),
        ({"use_error_sizes": 1}, TypeError, "use_error_sizes"),
        ({"use_error_sizes": "yes"}, TypeError, "use_error_sizes"),
        ({"noise_range": (0.5, 0.9)}, ValueError, "noise_range"),
        ({"noise_range": (0.0, 3.0)}, ValueError, "noise_range"),
        ({"noise_range": (3.0, 1.0)}, ValueError, "noise_range"),
        ({"noise_range": (1.0, np.inf)}, ValueError, "noise_range"),
        ({"noise_range": (1.0, np.nan)}, ValueError, "noise_range"),
        ({"noise_range": (1.0, 2.0, 3.0)}, ValueError, "noise_range"),
        ({"noise_range": 2.0}, ValueError, "noise_range"),
        ({"noise_range": None}, ValueError, "noise_range"),
        ({"noise_range": ("low", "high")}, ValueError, "noise_range"),
        ({"scale_errors": True}, ValueError, 'scale_errors=True is for model="linear"'),
        ({"cv": 1}, ValueError, "cv"),
        ({"n_components": 0}, ValueError, "n_components"),
        ({"class_weight": "even"}, ValueError, "class_weight"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
    ],
)
def test_bad_parameters(params, error, match):
    X, err, y = ring(60)
    with pytest.raises(error, match=match):
        ErrorBarClassifier(**{"model": "rbf"} | params).fit(X, y, X_err=err)


class Broken(LogisticRegression):
    """A classifier whose fit fails."""

    def fit(self, X, y, sample_weight=None):
        raise ArithmeticError("broken")


def test_a_fit_that_fails_changes_nothing():
    X, err, y = ring(80)
    clf = ErrorBarClassifier(model="boosting", estimator=LogisticRegression(), cv=FOLDS, n_jobs=1)
    clf.fit(X, y, X_err=err)
    before = dict(vars(clf))
    for given, error in (
        ((X, y, None, -err), ValueError),
        ((X[:, :1], np.zeros(80), None, err[:, :1]), ValueError),
        ((X, y, None, err[:40]), ValueError),
        ((np.where(X > 1, np.nan, X), y, None, None), ValueError),
    ):
        with pytest.raises(error):
            clf.fit(*given)
        assert vars(clf).keys() == before.keys()
        assert all(vars(clf)[name] is before[name] for name in before)
    clf.set_params(estimator=Broken())
    with pytest.raises(ArithmeticError):
        clf.fit(three(80)[0], three(80)[2], None, err)
    assert all(vars(clf)[name] is before[name] for name in before if name != "estimator")


def test_a_feature_that_few_samples_have():
    """Every fold, and every subsample, has a value of each feature, as populations need."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), np.arange(120) % 2
    X[:, 0] += y
    X[np.arange(120) != 50, 2] = np.nan
    model = ErrorBarClassifier(random_state=0, n_jobs=1).fit(X, y, X_err=0.3)
    assert np.isfinite(model.predict_log_proba(X, X_err=0.3)).all()
    table = model.features_.columns(X, np.where(np.isnan(X), np.inf, 0.3))
    np.testing.assert_array_equal(table.with_values(np.arange(20)), [*range(20), 50])
    np.testing.assert_array_equal(table.with_values(np.arange(40, 60)), np.arange(40, 60))
