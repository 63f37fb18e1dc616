"""ErrorBarClassifier(model="linear"): choice, fit and predictions, against loops and formulas by hand."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussguru import CollapseWarning, ErrorBarClassifier
from gaussguru._measured import posteriors
from gaussguru._measured.error_bar import first_copies
from gaussguru._measured.pool import warn_if_uninformed
from gaussguru._measured.probit import ProbitWithErrors
from gaussguru._rows.validation import check_samples
from gaussguru.errors import LowRank, Measured
from gaussguru.population import Deconvolve

QUICK = {"model": "linear", "cv": 3}
ONE = {"model": "linear", "cv": 2}
# Bins of boosting, leaves of trees and landmarks of kernels are those of rows, however heavy.
NOT_OF_TREES = {"check_sample_weight_equivalence_on_dense_data": "trees do not take weights as repetitions"}


def table(n=300, d=3, seed=0, low=0.2, high=1.2, slope=2.0):
    """Return truth, measured values, errors and labels of a probit model of the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, d)) @ np.tril(np.full((d, d), 0.3) + 0.7 * np.eye(d)).T
    y = (slope * truth @ np.linspace(1.0, -0.6, d) + 0.3 + rng.standard_normal(n) > 0).astype(int)
    err = rng.uniform(low, high, (n, d))
    return truth, truth + err * rng.standard_normal((n, d)), err, y


@pytest.fixture(scope="module")
def fitted():
    _, X, err, y = table()
    return ErrorBarClassifier(**QUICK).fit(X, y, X_err=err), X, err, y


# A pool of all members with one pass over two folds; with those of the default every check takes four times as long.
@parametrize_with_checks(
    [ErrorBarClassifier(**ONE), ErrorBarClassifier(cv=StratifiedKFold(2), n_jobs=1)],
    expected_failed_checks=lambda estimator: {} if estimator.model == "linear" else NOT_OF_TREES,
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# --- the choice of the ridge, and the fit --------------------------------------------------------------


def calibrated(m, s, y):
    """Return alpha and beta of greatest likelihood with Platt's targets, by SciPy."""
    counts = np.bincount(y)
    targets = np.where(y == 1, (counts[1] + 1) / (counts[1] + 2), 1 / (counts[0] + 2))

    def value(x):
        t = (x[0] * m + x[1]) / np.sqrt(1 + x[0] ** 2 * s**2)
        return -np.sum(targets * log_ndtr(t) + (1 - targets) * log_ndtr(-t))

    return minimize(value, [1.0 / m.std(), 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x


def test_the_loop_over_folds_is_that_of_one_written_by_hand():
    _, X, err, y = table(200)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    clf = ErrorBarClassifier(model="linear", n_components=1, cv=folds).fit(X, y, X_err=err)
    best = int(np.argmin(clf.cv_scores_["log_loss"]))
    assert clf.ridge_ == clf.cv_scores_["ridge"][best]
    whole = Deconvolve().fit(X, X_err=err)
    centre, scale = whole.means_[0], np.sqrt(np.diag(whole.covariances_[0]))

    def posterior(population, rows):
        seen = population.transform(X[rows], err[rows])
        return (seen.X - centre) / scale, seen.err / np.outer(scale, scale)

    def classifier(Z, V, labels):
        return ProbitWithErrors(clf.ridge_).fit(Z, labels, X_err=V)

    m, s = np.zeros(200), np.zeros(200)
    for train, test in folds:
        population = whole.refit_population(X[train], err[train])
        model = classifier(*posterior(population, train), y[train])
        Z, V = posterior(population, test)
        w = model.coef_[0]
        m[test], s[test] = Z @ w + model.intercept_[0], np.sqrt(np.einsum("j,ijk,k->i", w, V, w))
    alpha, beta = calibrated(m, s, y)
    assert clf.alpha_ == pytest.approx(alpha, rel=1e-3)
    assert clf.beta_ == pytest.approx(beta, abs=1e-3)
    p = ndtr((alpha * m + beta) / np.sqrt(1 + alpha**2 * s**2))
    assert clf.cv_scores_["log_loss"][best] == pytest.approx(log_loss(y, p), abs=1e-4)
    everywhere = classifier(*posterior(whole, slice(None)), y)
    np.testing.assert_allclose(clf.estimator_.coef_, everywhere.coef_, rtol=1e-2, atol=1e-3)


def test_probabilities_match_the_formula(fitted):
    clf, X, err, _ = fitted
    m, s = clf.margin_and_spread(X, err)
    z = (clf.alpha_ * m + clf.beta_) / np.sqrt(1 + (clf.alpha_ * clf.kappa_ * s) ** 2)
    np.testing.assert_allclose(clf.predict_proba(X, err)[:, 1], ndtr(z), rtol=1e-10)
    np.testing.assert_allclose(clf.predict_log_proba(X, err)[:, 0], log_ndtr(-z), rtol=1e-9)
    np.testing.assert_allclose(clf.decision_function(X, err), z, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(clf.predict(X, err), clf.classes_[(z > 0).astype(int)])


def test_score_is_the_accuracy_of_the_predictions(fitted):
    clf, X, err, y = fitted
    assert clf.score(X, y, X_err=err) == np.mean(clf.predict(X, err) == y)


def test_far_decisions_keep_their_digits(fitted):
    clf, _, _, _ = fitted
    far = clf.centre_ + 1e3 * clf.estimator_.coef_ * [[1.0], [-1.0]]
    z = clf.decision_function(far, 0)
    assert np.isfinite(z).all()
    assert z[0] > 30 > -30 > z[1]
    assert np.isfinite(clf.predict_log_proba(far, 0)).all()


@pytest.fixture(scope="module")
def learned():
    _, X, err, y = table(2000, 4, seed=1)
    return ErrorBarClassifier(**QUICK).fit(X, y, X_err=err)


@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_log_loss_is_near_that_of_who_knows_the_truth(learned, noise):
    """A Gaussian population and a probit model: the oracle is formula (2) with the true parameters."""
    d, slope, clf = 4, 2.0, learned
    w, b, T = slope * np.linspace(1.0, -0.6, d), 0.3, np.tril(np.full((d, d), 0.3) + 0.7 * np.eye(d))
    T = T @ T.T
    rng = np.random.default_rng(2)
    truth, _, err, y = table(4000, d, seed=3)
    err = noise * err
    X = truth + err * rng.standard_normal(truth.shape)
    G = T @ np.linalg.inv(T + err[:, :, np.newaxis] ** 2 * np.eye(d))
    m = np.einsum("ijk,ik->ij", G, X) @ w + b
    s2 = np.einsum("j,ijk,k->i", w, T - G @ T, w)
    oracle = log_loss(y, ndtr(m / np.sqrt(1 + s2)))
    assert log_loss(y, clf.predict_proba(X, err)) < oracle + 0.01


def made(seed, n=300, d=20):
    """Return 30 % of good rows and 70 % of hopeless ones, and exact test samples."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d)
    truth = rng.standard_normal((n + 5000, d))
    y = (truth @ (3 * w / np.linalg.norm(w)) + 0.5 * rng.standard_normal(len(truth)) > 0).astype(int)
    err = np.where(rng.random(n) < 0.3, 0.05, 2.5)[:, np.newaxis] * np.ones(d)
    return truth[:n] + err * rng.standard_normal((n, d)), err, y[:n], truth[n:], y[n:]


def test_hopeless_rows_do_no_harm():
    """Against good rows alone, and all of them without their errors; the mean of six tables is known to 0.01."""
    accuracies = []
    for seed in range(6):
        X, err, y, Z, labels = made(seed)
        good = err[:, 0] < 1
        models = [
            ErrorBarClassifier(**QUICK).fit(X, y, X_err=err).predict(Z, 0),
            LogisticRegression().fit(X[good], y[good]).predict(Z),
            LogisticRegression().fit(X, y).predict(Z),
        ]
        accuracies.append([np.mean(predicted == labels) for predicted in models])
    ours, alone, plain = np.mean(accuracies, axis=0)
    assert ours > alone - 0.01
    assert ours > plain + 0.05


# --- errors in every form ---------------------------------------------------------------------------------


def test_two_samples_of_equal_values_and_different_errors(fitted):
    clf, _, _, _ = fitted
    x = clf.centre_ + clf.scale_ * clf.estimator_.coef_[0] / np.linalg.norm(clf.estimator_.coef_)
    p = clf.predict_proba(np.tile(x, (4, 1)), X_err=np.array([0.0, 0.5, 2.0, 1e9]))[:, 1]
    assert np.all(np.diff(p) < 0)


def test_what_was_not_measured(fitted):
    clf, X, err, _ = fitted
    gaps, infinite, nan = X.copy(), err.copy(), X.copy()
    gaps[:, 1], infinite[:, 1], nan[:, 1] = 77.0, np.inf, np.nan
    p = clf.predict_proba(gaps, infinite)
    np.testing.assert_allclose(clf.predict_proba(nan, err), p, rtol=1e-12)
    large = err.copy()
    large[:, 1] = 1e2 * clf.population_.spreads_[1]
    np.testing.assert_allclose(clf.predict_proba(X, large), p, atol=0.03)
    nothing = clf.predict_proba(np.full((2, 3), np.nan), X_err=0)
    np.testing.assert_allclose(nothing[0], nothing[1])


def test_values_that_are_missing_in_the_fit():
    _, X, err, y = table(400)
    lost = np.random.default_rng(4).random(X.shape) < 0.3
    clf = ErrorBarClassifier(**QUICK).fit(np.where(lost, np.nan, X), y, X_err=err)
    same = ErrorBarClassifier(**QUICK).fit(np.where(lost, -9.0, X), y, X_err=np.where(lost, np.inf, err))
    np.testing.assert_allclose(clf.predict_proba(X, err), same.predict_proba(X, err), rtol=1e-9)
    assert np.all(clf.reliability_ < ErrorBarClassifier(**QUICK).fit(X, y, X_err=err).reliability_ - 0.1)


def test_forms_of_errors_agree():
    _, X, err, y = table(200)
    err = np.repeat(err[:, :1], 3, axis=1)
    expected = ErrorBarClassifier(**ONE).fit(X, y, X_err=err).predict_proba(X, err)
    covariances = np.eye(3) * err[:, :, np.newaxis] ** 2
    names = ["a", "b", "c"]
    forms = {
        "a sample": (X, err[:, 0]),
        "covariances": (X, covariances),
        "low rank": (X, LowRank(np.eye(3) * err[:, :, np.newaxis])),
        "sparse": (X, sp.csr_array(err)),
        "frames": (pd.DataFrame(X, columns=names), pd.DataFrame(err, columns=names)),
        "lists": (X.tolist(), err.tolist()),
    }
    for name, (values, errors) in forms.items():
        clf = ErrorBarClassifier(**ONE).fit(values, y, X_err=errors)
        np.testing.assert_allclose(clf.predict_proba(values, errors), expected, rtol=1e-6, atol=1e-8, err_msg=name)
    carried = Measured(X, err)
    clf = ErrorBarClassifier(**ONE).fit(carried, y)
    np.testing.assert_allclose(clf.predict_proba(carried), expected, rtol=1e-12)


def test_units_do_not_matter():
    _, X, err, y = table(200)
    units = np.array([1e-12, 1.0, 1e4])
    clf = ErrorBarClassifier(**QUICK).fit(X, y, X_err=err)
    other = ErrorBarClassifier(**QUICK).fit(X * units + 3 * units, y, X_err=err * units)
    assert other.method_ == clf.method_
    np.testing.assert_allclose(
        other.predict_proba(X * units + 3 * units, err * units), clf.predict_proba(X, err), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(other.reliability_, clf.reliability_, atol=1e-4)


def test_single_precision_and_names():
    _, X, err, y = table(200)
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    clf = ErrorBarClassifier(**QUICK).fit(frame, y, X_err=err)
    assert clf.feature_names_in_.tolist() == ["u", "v", "w"]
    single = ErrorBarClassifier(**QUICK).fit(X.astype(np.float32), y, X_err=err.astype(np.float32))
    np.testing.assert_allclose(single.predict_proba(X, err), clf.predict_proba(frame, err), atol=1e-3)
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[["v", "u", "w"]], err)
    frame.index = [f"star {i}" for i in range(200)]
    shuffled = pd.DataFrame(err, columns=frame.columns, index=frame.index).iloc[::-1]
    with pytest.raises(ValueError, match="X_err must have the index of X"):
        clf.predict(frame, shuffled)


# --- without errors ---------------------------------------------------------------------------------------


def test_without_errors_the_fit_is_a_plain_calibrated_classifier():
    truth, _, _, y = table(600, seed=5)
    test, _, _, labels = table(4000, seed=6)
    clf = ErrorBarClassifier(model="linear").fit(truth, y)
    assert not clf.has_errors_
    np.testing.assert_array_equal(clf.reliability_, 1.0)
    assert clf.kappa_ == 1
    assert np.isnan(clf.kappa_pvalue_)
    plain = LogisticRegression().fit(truth, y).predict_proba(test)
    assert log_loss(labels, clf.predict_proba(test)) < log_loss(labels, plain) + 0.01


def test_errors_at_prediction_alone():
    truth, X, err, y = table(600, seed=5)
    clf = ErrorBarClassifier(**QUICK).fit(truth, y)
    np.testing.assert_allclose(clf.predict_proba(truth, X_err=0), clf.predict_proba(truth), atol=1e-4)
    assert log_loss(y, clf.predict_proba(X, err)) < log_loss(y, clf.predict_proba(X)) - 0.05


def test_errors_that_are_missing_at_prediction_are_asked_for(fitted):
    clf, X, err, y = fitted
    for call in (clf.predict, clf.predict_proba, clf.predict_log_proba, clf.decision_function, clf.margin_and_spread):
        with pytest.raises(ValueError, match="X_err=0 if the values are exact"):
            call(X)
    with pytest.raises(ValueError, match="X_err=0 if the values are exact"):
        clf.score(X, y)
    zero = clf.predict_proba(X, 0)
    np.testing.assert_allclose(zero, clf.predict_proba(X, np.zeros(X.shape)), rtol=1e-12)
    assert np.abs(zero - clf.predict_proba(X, err)).max() > 0.1


# --- classes, weights, groups -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flowers():
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    err = 0.3 * X.std(axis=0) * rng.uniform(0.2, 2.0, X.shape)
    return X + err * rng.standard_normal(X.shape), err, np.array(["setosa", "versicolor", "virginica"])[y]


def test_many_classes(flowers):
    X, err, y = flowers
    clf = ErrorBarClassifier(**ONE, n_components=1).fit(X, y, X_err=err)
    p = clf.predict_proba(X, err)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(X, err))
    np.testing.assert_allclose(np.exp(clf.decision_function(X, err)), p, rtol=1e-9)
    m, s = clf.margin_and_spread(X, err)
    assert m.shape == s.shape == (150, 3)
    assert clf.score(X, y, X_err=err) > 0.85
    # Noise, and the overlap of the classes, drawn: 100,000 draws know a probability to 0.005 (three standard errors).
    weights, means, covariances = clf._score_moments(X[:3], err[:3])
    assert weights.shape == (3, 1)
    rng = np.random.default_rng(1)
    for i in range(3):
        noise = rng.multivariate_normal(means[i, 0], clf.kappa_**2 * covariances[i, 0], 100_000)
        noisy = clf.alpha_ * noise + clf.beta_ + rng.standard_normal((100_000, 3)) * np.sqrt(0.5)
        np.testing.assert_allclose(np.bincount(noisy.argmax(axis=1), minlength=3) / 100_000, p[i], atol=0.006)


def test_labels_may_be_anything():
    _, X, err, y = table(150)
    expected = ErrorBarClassifier(**ONE).fit(X, y, X_err=err).predict(X, err)
    for labels in (y.astype(bool), np.where(y, "yes", "no"), np.where(y, 7.0, -2.0), pd.Series(y).astype("int8")):
        clf = ErrorBarClassifier(**ONE).fit(X, labels, X_err=err)
        np.testing.assert_array_equal(clf.predict(X, err), clf.classes_[expected])


def test_weights_and_class_weights_count():
    _, X, err, y = table(300)
    y[:] = np.where(np.arange(300) % 10 < 7, 0, y)
    plain = ErrorBarClassifier(**QUICK).fit(X, y, X_err=err)
    balanced = ErrorBarClassifier(**QUICK, class_weight="balanced").fit(X, y, X_err=err)
    by_hand = ErrorBarClassifier(**QUICK).fit(X, y, (len(y) / 2 / np.bincount(y))[y], X_err=err)
    p, q = plain.predict_proba(X, err)[:, 1], balanced.predict_proba(X, err)[:, 1]
    assert p.mean() == pytest.approx(y.mean(), abs=0.02)
    assert q.mean() > p.mean() + 0.1
    assert np.average(q, weights=(1 / np.bincount(y))[y]) == pytest.approx(0.5, abs=0.03)
    # The population is that of the weights of the samples, not of the classes: the same but for that.
    np.testing.assert_allclose(by_hand.predict_proba(X, err)[:, 1], q, atol=0.1)


def test_groups_stay_together():
    """Random labels of groups of five copies: who has seen the others of a group knows the label."""
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(40), 5)
    X = rng.standard_normal((40, 40))[groups] + 0.01 * rng.standard_normal((200, 40))
    y = rng.integers(0, 2, 40)[groups]
    options = {"model": "linear", "cv": 5}
    apart = ErrorBarClassifier(**options).fit(X, y)
    together = ErrorBarClassifier(**options).fit(X, y, groups=groups)
    assert apart.cv_scores_["log_loss"].min() < 0.4
    assert together.cv_scores_["log_loss"].min() > 0.6


def test_few_samples_of_a_class():
    _, X, err, y = table(60)
    y[:] = 0
    y[:3] = 1
    X[:3] += 3
    clf = ErrorBarClassifier(model="linear").fit(X, y, X_err=err)
    assert np.isfinite(clf.predict_log_proba(X, err)).all()


# --- options ----------------------------------------------------------------------------------------------


def test_a_mixture_is_kept():
    """Two clusters: a sample between them, with large errors, is in one of them and not between."""
    rng = np.random.default_rng(8)
    side = rng.choice([-3.0, 3.0], 400)
    truth = np.column_stack([side + 0.3 * rng.standard_normal(400), rng.standard_normal(400)])
    y = (truth[:, 0] + 0.3 * truth[:, 1] > 0).astype(int)
    err = rng.uniform(0.1, 2.0, truth.shape)
    X = truth + err * rng.standard_normal(truth.shape)
    clf = ErrorBarClassifier(n_components=2, **QUICK).fit(X, y, X_err=err)
    weights, means, covariances = clf._score_moments(X, err)
    assert weights.shape == (400, 2)
    z = (clf.alpha_ * means[:, :, 0] + clf.beta_) / np.sqrt(1 + clf.alpha_**2 * covariances[:, :, 0, 0])
    np.testing.assert_allclose(clf.predict_proba(X, err)[:, 1], (weights * ndtr(z)).sum(axis=1), rtol=1e-8)
    # By the definition of the posterior: scores of draws of the truth.
    seen = clf.population_.transform(X[:1], err[:1])
    mean = (seen.X[0] - clf.centre_) / clf.scale_ @ clf.estimator_.coef_[0] + clf.estimator_.intercept_[0]
    assert weights[0] @ means[0, :, 0] == pytest.approx(mean, rel=1e-8)
    single = ErrorBarClassifier(n_components=1, **QUICK).fit(X, y, X_err=err)
    assert clf.cv_scores_["log_loss"].min() < single.cv_scores_["log_loss"].min()


def test_auto_finds_the_number_of_components():
    _, X, err, y = table(300)
    clf = ErrorBarClassifier(**ONE, n_components="auto").fit(X, y, X_err=err)
    assert clf.population_.n_components_ == 1


def test_many_features_have_a_population_of_few_factors():
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((80, 2))
    factors = rng.standard_normal((160, 2))
    truth = factors @ loadings.T + 0.3 * rng.standard_normal((160, 80))
    y = (3 * factors[:, 0] + rng.standard_normal(160) > 0).astype(int)
    err = rng.uniform(0.2, 2.0, truth.shape)
    X = truth + err * rng.standard_normal(truth.shape)
    clf = ErrorBarClassifier(**ONE, n_jobs=1).fit(X[:120], y[:120], X_err=err[:120])
    assert clf.rank_ == 10
    assert clf.population_.n_components_ == 1
    assert clf.score(X[120:], y[120:], X_err=err[120:]) > 0.8
    # A part of the variance of every feature is known, as its posterior covariances say.
    seen = clf.population_.transform(X[:120], err[:120]).err
    left = np.square(seen.std) + np.square(seen.factors).sum(axis=2)
    total = np.diag(clf.population_.covariances_[0])
    np.testing.assert_allclose(clf.reliability_, 1 - left.mean(axis=0) / total, rtol=1e-9)
    assert (clf.reliability_ > 0).all()
    p = clf.predict_proba(X[120:], err[120:])
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    full = ErrorBarClassifier(**ONE, n_components=1).fit(X[:, :5], y, X_err=err[:, :5])
    assert full.rank_ is None


def test_scaled_errors():
    """Errors stated at a third of their size: kappa is above 1, and the log loss not worse for it."""
    _, X, err, y = table(2000, low=0.1, high=1.5, seed=9)
    stated = ErrorBarClassifier(**QUICK).fit(X, y, X_err=err / 3)
    scaled = ErrorBarClassifier(**QUICK, scale_errors=True).fit(X, y, X_err=err / 3)
    assert stated.kappa_ == 1
    assert scaled.kappa_ > 1.3
    assert scaled.kappa_pvalue_ < 1e-3
    _, Z, noise, labels = table(3000, low=0.1, high=1.5, seed=10)
    losses = [log_loss(labels, clf.predict_proba(Z, noise / 3)) for clf in (stated, scaled)]
    assert losses[1] < losses[0]


def test_many_rows_are_compared_on_some(monkeypatch):
    _, X, err, y = table(1500, seed=11)
    rare = (y == 1) & (np.random.default_rng(0).random(1500) < 0.9)
    X, err, y = X[~rare], err[~rare], y[~rare]
    whole = ErrorBarClassifier(**QUICK).fit(X, y, X_err=err)
    monkeypatch.setattr(posteriors, "SELECTION_ROWS", 400)
    some = ErrorBarClassifier(**QUICK).fit(X, y, X_err=err)
    p, q = whole.predict_proba(X, err)[:, 1], some.predict_proba(X, err)[:, 1]
    assert q.mean() == pytest.approx(y.mean(), rel=0.3)
    assert np.abs(p - q).mean() < 0.03
    np.testing.assert_array_equal(whole.reliability_, some.reliability_)
    assert not np.array_equal(p, q)


def test_threads_and_repetition_change_nothing():
    _, X, err, y = table(200)
    one = ErrorBarClassifier(**QUICK, n_jobs=1).fit(X, y, X_err=err)
    two = ErrorBarClassifier(**QUICK, n_jobs=2).fit(X, y, X_err=err)
    np.testing.assert_array_equal(one.cv_scores_["log_loss"], two.cv_scores_["log_loss"])
    np.testing.assert_allclose(one.predict_proba(X, err), two.predict_proba(X, err), rtol=1e-12)
    again = clone(two).fit(X, y, X_err=err)
    np.testing.assert_array_equal(again.predict_proba(X, err), two.predict_proba(X, err))


def test_blocks_of_a_prediction_change_nothing(fitted, monkeypatch):
    clf, X, err, _ = fitted
    expected = clf.predict_proba(X, err)
    monkeypatch.setattr("gaussguru._utils.blocks.WORKING_BYTES", 8 * 9 * 50)
    np.testing.assert_allclose(clf.predict_proba(X, err), expected, rtol=1e-12)
    np.testing.assert_allclose(clf.margin_and_spread(X, err)[0].shape, (300,))


def test_pickle_and_parameters(fitted):
    clf, X, err, _ = fitted
    other = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(other.predict_proba(X, err), clf.predict_proba(X, err))
    assert clone(clf).get_params() == clf.get_params()


# --- searches and pipelines -------------------------------------------------------------------------------


def test_cross_validation_with_and_without_routing():
    _, X, err, y = table(100)
    clf = ErrorBarClassifier(**ONE)
    carried = cross_val_score(clf, Measured(X, err), y, cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = cross_val_score(clf, X, y, cv=2, params={"X_err": err})
        search = GridSearchCV(clf, {"scale_errors": [False, True]}, cv=2)
        search.fit(X, y, X_err=err)
    np.testing.assert_array_equal(carried, routed)
    # The methods of a search take X alone.
    p = search.predict_proba(Measured(X, err))
    np.testing.assert_allclose(p, search.best_estimator_.predict_proba(X, err))


# --- bad input --------------------------------------------------------------------------------------------


def with_one(errors, value):
    errors = errors.copy()
    errors[3, 1] = value
    return errors


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda X, e, y: (X, y, with_one(e, -0.1)), ValueError, "X_err must hold nonnegative standard deviations"),
        (lambda X, e, y: (X, y, with_one(e, np.nan)), ValueError, "X_err has NaN"),
        (lambda X, e, y: (X, y, e[:50]), ValueError, "X_err must"),
        (lambda X, e, y: (X, y, e[:, :2]), ValueError, "X_err must"),
        (lambda X, e, y: (X, y, -1.0), ValueError, "nonnegative"),
        (lambda X, e, y: (X, y, "small"), ValueError, "X_err must hold numbers"),
        (lambda X, e, y: (X, y, np.where([False, True, False], np.inf, e)), ValueError, "feature 1 was measured"),
        (lambda X, e, y: (with_one(X, np.nan), y, None), ValueError, "NaN.*X_err"),
        (lambda X, e, y: (with_one(X, np.inf), y, e), ValueError, "infinity"),
        (lambda X, e, y: (sp.csr_array(X), y, e), TypeError, "[Ss]parse"),
        (lambda X, e, y: (X, np.zeros(len(y)), e), ValueError, "two classes"),
        (lambda X, e, y: (X, y[:-1], e), ValueError, "same number of samples"),
        (lambda X, e, y: (X, None, e), ValueError, "y is required"),
    ],
)
def test_bad_input_is_refused_and_leaves_the_estimator_unchanged(change, error, match):
    _, X, err, y = table(80)
    clf = ErrorBarClassifier(**ONE).fit(X, y, X_err=err)
    before = dict(vars(clf))
    Z, labels, errors = change(X, err, y)
    with pytest.raises(error, match=match):
        clf.fit(Z, labels, X_err=errors)
    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is before[name] for name in before)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"estimator": LogisticRegression()}, ValueError, "estimator takes the place of boosting"),
        ({"cv": 1}, ValueError, "cv"),
        ({"scale_errors": 1}, TypeError, "scale_errors"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"n_components": 0}, ValueError, "n_components"),
        ({"class_weight": "even"}, ValueError, "class_weight"),
    ],
)
def test_bad_parameters(params, error, match):
    _, X, err, y = table(60)
    with pytest.raises(error, match=match):
        ErrorBarClassifier(**{"model": "linear"} | params).fit(X, y, X_err=err)


def test_no_probability_is_above_one():
    """Sums over the components of a population may round above 1."""
    _, X, err, y = table(400, d=2, low=0.01, high=0.1, slope=20.0)
    clf = ErrorBarClassifier(**ONE, n_components=3).fit(X, y, X_err=err)
    far = clf.centre_ + np.linspace(-8, 8, 4001)[:, np.newaxis] * clf.scale_ * np.sign(clf.estimator_.coef_[0])
    logs = clf.predict_log_proba(far, np.full(far.shape, 0.05))
    assert logs.max() <= 0.0
    assert np.exp(logs).max() <= 1.0


# --- labels that the features do not tell -----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "rbf", "population", "boosting"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_no_better_than_the_class_frequencies_says_so(model, n_classes):
    rng = np.random.default_rng(2)
    X, errors = rng.normal(size=(120, 2)), rng.uniform(0.1, 0.5, (120, 2))
    labels = np.arange(120) % n_classes
    classifier = ErrorBarClassifier(model=model, n_components=1, cv=2)
    with pytest.warns(CollapseWarning, match=r"not better than the class frequencies \(log loss .*, and (0.69|1.1)"):
        classifier.fit(X, labels, X_err=errors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.fit(X + 2.0 * labels[:, np.newaxis], labels, X_err=errors)


def test_the_gain_over_the_class_frequencies_is_held_against_its_standard_error():
    labels, weights = np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 1.0, 1.0])
    gains = np.array([0.1, 0.3, -0.1, 0.3])  # 0.15 with a standard error of 0.083
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_uninformed(np.log(2) - gains, labels, weights, 2)
        warn_if_uninformed(np.log(2) - np.r_[gains, -9.0], np.r_[labels, 0], np.r_[weights, 0.0], 2)
    with pytest.warns(CollapseWarning, match="standard error of the difference 0.083"):
        warn_if_uninformed(np.log(2) - (gains - 0.07), labels, weights, 2)


def test_rows_of_one_sample_are_in_one_fold():
    """Otherwise held-out samples are in the training samples, too, and choices by them are worthless."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    X[5, 1] = np.nan
    rows = rng.permutation(np.repeat(np.arange(60), 3))
    first = first_copies(X[rows])
    assert len(np.unique(first)) == 60
    assert np.all(rows[first] == rows)
    model = ErrorBarClassifier(model="population", cv=3, random_state=0)
    for weight in (None, np.where(rows == 7, 0.0, 1.0)):
        used = np.arange(180) if weight is None else np.flatnonzero(weight)
        labelled = check_samples(np.zeros((180, 1)), y[rows], weight)
        folds = model._folds(X[rows][used], labelled, None, 0)
        assert len(folds) == 3
        np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(len(used)))
        for train, test in folds:
            assert not np.intersect1d(rows[used][train], rows[used][test]).size
    coarse = rng.integers(4, size=(200, 2)).astype(float)  # equal rows are different samples
    np.testing.assert_array_equal(first_copies(coarse), np.arange(200))


def test_a_small_class_does_not_make_training_samples_few():
    y = np.repeat([0, 1, 2], [40, 40, 2])
    X = np.random.default_rng(0).normal(size=(82, 2))
    folds = ErrorBarClassifier()._folds(X, check_samples(np.zeros((82, 1)), y, None), None, 0)
    assert [len(train) for train, _ in folds] == pytest.approx([61.5] * 4, abs=1)
    assert all(2 in y[train] for train, _ in folds)
    groups = np.arange(82) % 3
    folds = ErrorBarClassifier()._folds(X, check_samples(np.zeros((82, 1)), y, None), groups, 0)
    assert len(folds) == 3
    assert all(len(np.unique(groups[test])) == 1 for _, test in folds)
