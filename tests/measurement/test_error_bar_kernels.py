"""ErrorBarClassifier(kernel="rbf" and "auto"): what it chooses and fits, against loops and formulas written by hand."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from sklearn.preprocessing import QuantileTransformer

from gaussguru import ErrorBarClassifier, KernelGuruClassifier
from gaussguru._estimators import families
from gaussguru._estimators.base import seed_of
from gaussguru._estimators.posteriors import quantile_transform
from gaussguru.errors import Limits, Measured
from gaussguru.population import Deconvolve
from gaussguru.report import evaluation_report
from gaussguru.robustness import remeasure_gain

RBF = {"kernel": "rbf", "cv": 2, "n_components": 1}


def ring(n=300, seed=0, low=0.05, high=0.4):
    """Return truth, measured values, errors and labels: two classes that no line separates."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, 2))
    y = (np.square(truth).sum(axis=1) + 0.3 * rng.standard_normal(n) > 1.4).astype(int)
    err = rng.uniform(low, high, (n, 2))
    return truth, truth + err * rng.standard_normal((n, 2)), err, y


@pytest.fixture(scope="module")
def fitted():
    _, X, err, y = ring()
    return ErrorBarClassifier(**RBF).fit(X, y, X_err=err), X, err, y


@pytest.fixture
def few(monkeypatch):
    """Choose from fewer candidates."""
    monkeypatch.setattr(families, "GAMMAS", (1.0,))
    monkeypatch.setattr(families, "KERNEL_SIGMAS", np.array([0.03, 0.01]))


def expected_kernel(m, V, points, gamma):
    """Return formula (3), sample by sample."""
    values = np.empty((len(m), len(points)))
    for i in range(len(m)):
        A = np.linalg.inv(np.eye(m.shape[1]) + 2 * gamma * V[i])
        apart = m[i] - points
        values[i] = np.sqrt(np.linalg.det(A)) * np.exp(-gamma * np.einsum("aj,jk,ak->a", apart, A, apart))
    return values


def moments(model, m, V, step=1e-5):
    """Return mean and spread of scores, the gradient by differences."""
    c, points = model.dual_coef_[0], model.X_fit_

    def score(at):
        return expected_kernel(at, V, points, model.gamma) @ c + model.intercept_[0]

    slopes = [(score(m + step * axis) - score(m - step * axis)) / (2 * step) for axis in np.eye(m.shape[1])]
    g = np.stack(slopes, axis=1)
    return score(m), np.sqrt(np.einsum("ij,ijk,ik->i", g, V, g))


def test_the_loop_over_folds_is_that_of_one_written_by_hand(monkeypatch):
    monkeypatch.setattr(families, "GAMMAS", (0.5, 2.0))
    monkeypatch.setattr(families, "ROUGH_GAP", 1e-7)
    _, X, err, y = ring(160)
    folds = list(KFold(2, shuffle=True, random_state=0).split(X))
    clf = ErrorBarClassifier(kernel="rbf", n_components=1, cv=folds, random_state=3).fit(X, y, X_err=err)
    scores = clf.cv_scores_
    plain = np.flatnonzero(scores["transform"] == "none")
    assert (scores["kernel"] == "rbf").all()
    assert (scores["method"] == "shrunk").all()
    assert len(plain), "some width of features as they are is among the best two"
    k = plain[np.argmin(scores["log_loss"][plain])]
    whole = Deconvolve().fit(X, X_err=err)
    centre, scale = whole.means_[0], np.sqrt(np.diag(whole.covariances_[0]))
    m, s = np.zeros(160), np.zeros(160)
    for train, test in folds:
        population = whole.refit_population(X[train], err[train])

        def posterior(rows, population=population):
            seen = population.transform(X[rows], err[rows])
            return (seen.X - centre) / scale, seen.err / np.outer(scale, scale)

        model = KernelGuruClassifier(
            scores["level"][k], gamma=scores["gamma"][k], n_components=len(train), random_state=seed_of(3), tol=1e-7
        )
        model.fit(posterior(train)[0], y[train])
        m[test], s[test] = moments(model, *posterior(test))
    counts = np.bincount(y)
    targets = np.where(y == 1, (counts[1] + 1) / (counts[1] + 2), 1 / (counts[0] + 2))

    def value(x):
        t = (x[0] * m + x[1]) / np.sqrt(1 + x[0] ** 2 * s**2)
        return -np.sum(targets * log_ndtr(t) + (1 - targets) * log_ndtr(-t))

    alpha, beta = minimize(value, [1 / m.std(), 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x
    p = ndtr((alpha * m + beta) / np.sqrt(1 + alpha**2 * s**2))
    assert scores["log_loss"][k] == pytest.approx(log_loss(y, p), abs=2e-4)


def test_probabilities_are_those_of_the_formula(fitted):
    clf, X, err, y = fitted
    assert (clf.kernel_, clf.method_) == ("rbf", "shrunk")
    assert clf.gamma_ == clf.estimator_.gamma
    assert clf.sigma_ == clf.estimator_.sigma
    assert clf.estimator_.dual_gap_ <= 1e-6 * len(y)
    m, s = clf.margin_and_spread(X, err)
    z = (clf.alpha_ * m + clf.beta_) / np.sqrt(1 + (clf.alpha_ * s) ** 2)
    np.testing.assert_allclose(clf.predict_proba(X, err)[:, 1], ndtr(z), rtol=1e-9)
    assert clf.transform_ is None
    seen = clf.population_.transform(X, err)
    V = seen.err / np.outer(clf.scale_, clf.scale_)
    by_hand = moments(clf.estimator_, (seen.X - clf.centre_) / clf.scale_, V)
    np.testing.assert_allclose(m, by_hand[0], atol=1e-7)
    np.testing.assert_allclose(s, by_hand[1], atol=1e-5)


def test_a_curved_boundary_is_found_and_noise_counts():
    """Against the same classifier without errors, at errors three times those of the fit."""
    _, X, err, y = ring(600, seed=1)
    truth, _, small, labels = ring(3000, seed=2)
    large = 3 * small
    Z = truth + large * np.random.default_rng(3).standard_normal(truth.shape)
    clf = ErrorBarClassifier(kernel="auto", methods=("probit",), n_components=1, cv=3).fit(X, y, X_err=err)
    assert clf.kernel_ == "rbf"
    blind = ErrorBarClassifier(**RBF).fit(X, y)
    assert set(clf.cv_scores_["kernel"]) == {"linear", "rbf"}
    assert clf.score(truth, labels, X_err=0) > LogisticRegression().fit(X, y).score(truth, labels) + 0.15
    assert log_loss(labels, clf.predict_proba(Z, large)) < log_loss(labels, blind.predict_proba(Z)) - 0.1


def test_a_line_is_preferred_where_it_is_as_good():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((400, 3))
    y = truth @ [2.0, -1.0, 0.5] + rng.standard_normal(400) > 0
    err = rng.uniform(0.1, 0.8, (400, 3))
    X = truth + err * rng.standard_normal((400, 3))
    clf = ErrorBarClassifier(kernel="auto", cv=2, methods=("probit",)).fit(X, y, X_err=err)
    assert (clf.kernel_, clf.method_, clf.gamma_, clf.transform_) == ("linear", "probit", None, None)
    plain = ErrorBarClassifier(cv=2, methods=("probit",)).fit(X, y, X_err=err)
    same = ErrorBarClassifier(kernel="linear", cv=2, methods=("probit",)).fit(X, y, X_err=err)
    np.testing.assert_array_equal(same.predict_proba(X, err), plain.predict_proba(X, err))
    assert plain.kernel_ == "linear"


# --- transforms -------------------------------------------------------------------------------------------


def skewed(n=300, seed=0):
    """Return values of a log-normal population with errors in proportion to them, and labels by their logarithms."""
    truth, _, _, y = ring(n, seed)
    rng = np.random.default_rng(seed + 10)
    values = np.exp(2 * truth)
    err = rng.uniform(0.02, 0.3, values.shape) * values
    return values + err * rng.standard_normal(values.shape), err, y


def test_a_transform_is_chosen_where_it_helps():
    X, err, y = skewed()
    clf = ErrorBarClassifier(**RBF).fit(X, y, X_err=err)
    assert clf.transform_.method_ == "elementwise"
    assert clf.population_.n_components_ == 1
    Z, noise, labels = skewed(2000, seed=1)
    assert clf.score(Z, labels, X_err=noise) > 0.85
    lost = Z.copy()
    lost[::3, 0] = np.nan
    infinite = np.where(np.isnan(lost), np.inf, noise)
    np.testing.assert_array_equal(clf.predict_proba(lost, noise), clf.predict_proba(Z, infinite))
    assert np.all((clf.reliability_ > 0.5) & (clf.reliability_ < 1))
    units = np.array([1e-6, 1e3])
    other = ErrorBarClassifier(**RBF).fit(X * units, y, X_err=err * units)
    np.testing.assert_allclose(other.predict_proba(Z * units, noise * units), clf.predict_proba(Z, noise), atol=1e-5)


def test_quantiles_are_those_of_scikit_learn():
    X, err, _ = skewed()
    ours = quantile_transform(X, err, None).transformer_
    theirs = QuantileTransformer(n_quantiles=300, output_distribution="normal").fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-9)


def quantiles(transformer):
    """Return the quantiles of a scaler and a quantile transform, in the units of X."""
    return transformer[0].inverse_transform(transformer[1].quantiles_)


def test_quantiles_count_weights_as_repetitions_and_only_what_was_measured():
    X, err, _ = skewed(80)
    weights = np.random.default_rng(0).integers(0, 4, 80)
    seen = quantile_transform(X, err, weights.astype(float)).transformer_
    repeated = np.repeat(X, weights, axis=0)
    expected = np.quantile(repeated, np.linspace(0, 1, 80), axis=0)
    np.testing.assert_allclose(quantiles(seen), expected, rtol=1e-9)
    lost = np.where(np.arange(80)[:, np.newaxis] % 2, X, np.nan)
    some = quantile_transform(lost, err, None).transformer_
    infinite = quantile_transform(X, np.where(np.isnan(lost), np.inf, err), None).transformer_
    np.testing.assert_array_equal(quantiles(some), quantiles(infinite))
    np.testing.assert_allclose(quantiles(some)[[0, -1]], [X[1::2].min(axis=0), X[1::2].max(axis=0)])


# --- in every form ----------------------------------------------------------------------------------------


def test_gaps_weights_groups_and_precision(few):
    _, X, err, y = ring(200)
    lost = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    groups = np.repeat(np.arange(100), 2)
    frame = pd.DataFrame(lost, columns=["u", "v"])
    clf = ErrorBarClassifier(**RBF).fit(frame, y, X_err=err, groups=groups, sample_weight=np.ones(200))
    assert clf.feature_names_in_.tolist() == ["u", "v"]
    again = ErrorBarClassifier(**RBF, n_jobs=2).fit(lost.astype(np.float32), y, X_err=err, groups=groups)
    p = clf.predict_proba(frame, err)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(again.predict_proba(lost, err), p, atol=1e-3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(frame, err), p)
    heavy = ErrorBarClassifier(**RBF, class_weight={0: 1.0, 1: 9.0}).fit(lost, y, X_err=err)
    assert heavy.predict_proba(lost, err)[:, 1].mean() > p[:, 1].mean() + 0.1


def test_covariances_are_errors_too(few):
    _, X, err, y = ring(150)
    covariances = np.eye(2) * err[:, :, np.newaxis] ** 2
    one, other = (ErrorBarClassifier(**RBF).fit(X, y, X_err=form).predict_proba(X, form) for form in (err, covariances))
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_many_classes(few):
    truth, X, err, _ = ring(240)
    y = np.array(["in", "left", "right"])[np.where(np.square(truth).sum(axis=1) < 1.0, 0, 1 + (truth[:, 0] > 0))]
    families_of = ErrorBarClassifier(kernel="rbf", cv=2, n_components=1)
    clf = families_of.fit(X, y, X_err=err)
    p = clf.predict_proba(X, err)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)
    assert clf.score(X, y, X_err=err) > 0.8
    margin, spread = clf.margin_and_spread(X, err)
    assert margin.shape == spread.shape == (240, 3)
    gain = remeasure_gain(clf, X, err, 0.5 * err)
    assert np.all((gain >= 0) & (gain < 0.67))


def test_posterior_covariances_in_the_fit(few):
    _, X, err, y = ring(120)
    clf = ErrorBarClassifier(**RBF, methods=("posterior",)).fit(X, y, X_err=err)
    assert clf.method_ == "posterior"
    seen = clf.population_.transform(X, err)
    again = KernelGuruClassifier(clf.sigma_, gamma=clf.gamma_, n_components=120, random_state=seed_of(None)).fit(
        (seen.X - clf.centre_) / clf.scale_, y, X_err=seen.err / np.outer(clf.scale_, clf.scale_)
    )
    assert clf.transform_ is None
    assert clf.estimator_.objective_ == pytest.approx(again.objective_, rel=1e-5)


def test_gains_of_measuring_again(fitted):
    clf, X, err, _ = fitted
    np.testing.assert_allclose(remeasure_gain(clf, X, err, err), 0.0, atol=1e-9)
    half, all_of_it = remeasure_gain(clf, X, err, 0.5 * err), remeasure_gain(clf, X, err, 0.0)
    assert np.all((half >= 0) & (half <= 0.5))
    assert half.mean() < all_of_it.mean()
    assert remeasure_gain(clf, X, err, 0.0, per_feature=True).shape == X.shape


def test_what_does_not_go_together():
    _, X, err, y = ring(60)
    with pytest.raises(ValueError, match="leave one of them None"):
        ErrorBarClassifier(LogisticRegression(), kernel="auto").fit(X, y, X_err=err)
    with pytest.raises(ValueError, match=r"kernel must be one of \['auto', 'linear', 'rbf'\]; got 'laplacian'"):
        ErrorBarClassifier(kernel="laplacian").fit(X, y, X_err=err)


def test_reports_know_transformed_features():
    X, err, y = skewed(200)
    clf = ErrorBarClassifier(**RBF).fit(X, y, X_err=err)
    assert clf.transform_ is not None
    page = evaluation_report(clf, X, y, err, date="2026-01-01").html()
    assert all(f"{share:.3f}" in page for share in clf.reliability_)


@pytest.mark.parametrize("options", [{"kernel": "rbf"}, {"kernel": "auto"}, {"kernel": "auto", "stack": True}])
def test_limits_go_through_the_transform(options):
    """A quantile transform rises with its feature, so a limit of the one is a limit of the other."""
    rng = np.random.default_rng(0)
    truth, err = rng.normal(size=(400, 2)), rng.uniform(0.05, 0.3, size=(400, 2))
    y = (np.square(truth).sum(axis=1) > 1.4).astype(int)
    X = np.exp(truth + err * rng.normal(size=truth.shape))
    sides = np.where(X < 0.4, -1, 0) * np.array([1, 0])
    X = np.where(sides == -1, 0.4, X)
    seen = Measured(X, Limits(X * err, sides))
    train, test = np.arange(300), np.arange(300, 400)
    clf = ErrorBarClassifier(cv=3, **options).fit(seen[train], y[train])
    found = log_loss(y[test], clf.predict_proba(seen[test]))
    gone = Measured(X, np.where(sides == 0, X * err, np.inf))
    without = ErrorBarClassifier(cv=3, **options).fit(gone[train], y[train])
    assert found < log_loss(y[test], without.predict_proba(gone[test])) - 0.02
    assert found < 0.4
