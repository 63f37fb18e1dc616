"""Probabilities that count the overlap of the classes and the error bars."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
import skops.io
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from scipy.stats import chi2
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, PredefinedSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussguru import AdversarialSVC, CollapseWarning, ErrorBarClassifier, GuruClassifier, KernelGuruClassifier
from gaussguru._measured.calibrated import margin_and_spread, score_moments
from gaussguru._measured.link import Margins
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

# Standard errors that a frequency may be away from its probability.
ERRORS = 5.0


@parametrize_with_checks([CalibratedWithErrorsCV(GuruClassifier())])
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


def catalogue(n=300, n_classes=2, d=3, seed=0, error=1.0):
    """Return measured values, error bars and labels: truths overlap, and are measured with errors of many sizes."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, d))
    W = np.vstack([np.zeros(d), np.ones(d)]) if n_classes == 2 else 2 * rng.standard_normal((n_classes, d))
    y = np.argmax(truth @ W.T + rng.standard_normal((n, n_classes)), axis=1)
    X_err = error * rng.uniform(0.1, 1.0, (n, d)) * rng.choice([0.3, 1.0], (n, 1))
    return truth + X_err * rng.standard_normal((n, d)), X_err, y


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose scores are the columns of X, one for two classes, with their errors; it learns nothing."""

    def fit(self, X, y, sample_weight=None, X_err=None):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        values = np.asarray(X.X if isinstance(X, Measured) else X)
        return values[:, 0] if values.shape[1] == 1 else values

    def _score_moments(self, X, X_err=None, *, rooted=False):
        values, errors = (X.X, np.asarray(X.err)) if isinstance(X, Measured) else (X, np.zeros(X.shape))
        n, r = values.shape
        noise = (errors if rooted else errors**2)[:, np.newaxis, :, np.newaxis] * np.eye(r)
        return np.ones((n, 1)), values[:, np.newaxis], noise


class Mixed(Given):
    """Scores that are mixtures of two: above and below the measured value, by the error."""

    shares = np.array([0.3, 0.7])

    def _score_moments(self, X, X_err=None, *, rooted=False):
        m, s = X.X, X.err
        means, spreads = np.stack([m + s, m - 0.4 * s], axis=1), np.stack([s, 0.5 * s], axis=1)[:, :, :, np.newaxis]
        return np.tile(self.shares, (len(m), 1)), means, spreads if rooted else spreads**2


def targets_of(y, weights):
    """Return Platt's targets of the second class."""
    n1, n0 = weights[y == 1].sum(), weights[y == 0].sum()
    return np.where(y == 1, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))


def direct(m, components, y, weights, kappa=None):
    """Return alpha, beta and kappa of greatest likelihood, and minus its logarithm, by SciPy.

    Components are triples of share, shift of the mean, and variance.
    """
    t = targets_of(y, weights)

    def loss(x):
        alpha, beta = x[:2]
        k = x[2] if kappa is None else kappa
        p = q = 0.0
        for share, shift, variance in components:
            u = (alpha * (m + k * shift) + beta) / np.sqrt(1 + alpha**2 * k**2 * variance)
            p, q = p + share * np.exp(log_ndtr(u)), q + share * np.exp(log_ndtr(-u))
        return -weights @ (t * np.log(p) + (1 - t) * np.log(q))

    options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 5000, "maxfev": 5000}
    start = [1.0, 0.1, 0.8] if kappa is None else [1.0, 0.1]
    found = min(
        (minimize(loss, np.array(start) * f, method="Nelder-Mead", options=options) for f in (1.0, 0.4)),
        key=lambda result: result.fun,
    )
    return np.abs(found.x) * np.sign([1, found.x[1], 1][: len(start)]), found.fun


def scores(n, seed=0, alpha=0.8, beta=-0.5, kappa=1.0):
    """Return scores and spreads, and labels as the model has them."""
    rng = np.random.default_rng(seed)
    m, s = 3 * rng.standard_normal(n) + 1, rng.uniform(0.0, 4.0, n)
    y = alpha * (m + kappa * s * rng.standard_normal(n)) + beta + rng.standard_normal(n) > 0
    return m, s, y.astype(int)


@pytest.mark.parametrize("scale_errors", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_by_direct_likelihood(scale_errors, weighted):
    m, s, y = scores(400, kappa=1.5)
    weights = np.random.default_rng(1).integers(0, 4, 400).astype(float) if weighted else np.ones(400)
    clf = CalibratedWithErrorsCV(Given(), scale_errors=scale_errors)
    clf.fit(m[:, np.newaxis], y, weights if weighted else None, X_err=s[:, np.newaxis])
    free, least = direct(m, [(1.0, 0.0, s**2)], y, weights)
    _none, at_zero = direct(m, [(1.0, 0.0, s**2)], y, weights, 0.0)
    expected = free if scale_errors else np.append(direct(m, [(1.0, 0.0, s**2)], y, weights, 1.0)[0], 1.0)
    np.testing.assert_allclose([clf.alpha_, clf.beta_, clf.kappa_], expected, rtol=1e-4, atol=1e-5)
    assert clf.kappa_pvalue_ == pytest.approx(0.5 * chi2.sf(2 * (at_zero - least), 1), rel=1e-4)
    proba = clf.predict_proba(m[:, np.newaxis], s[:, np.newaxis])
    u = (clf.alpha_ * m + clf.beta_) / np.sqrt(1 + (clf.alpha_ * clf.kappa_ * s) ** 2)
    np.testing.assert_allclose(proba, np.column_stack([ndtr(-u), ndtr(u)]), rtol=1e-12)
    np.testing.assert_array_equal(clf.predict(m[:, np.newaxis], s[:, np.newaxis]), proba.argmax(axis=1))


def test_mixtures_by_direct_likelihood():
    m, s, y = scores(300, seed=3)
    X, err = m[:, np.newaxis], s[:, np.newaxis]
    clf = CalibratedWithErrorsCV(Mixed(), scale_errors=True).fit(X, y, X_err=err)
    mean = m + 0.3 * s - 0.7 * 0.4 * s
    parts = [(0.3, m + s - mean, s**2), (0.7, m - 0.4 * s - mean, 0.25 * s**2)]
    expected, _ = direct(mean, parts, y, np.ones(300))
    np.testing.assert_allclose([clf.alpha_, clf.beta_, clf.kappa_], expected, rtol=1e-4, atol=1e-5)
    centre, spread = margin_and_spread(clf, X, err)
    np.testing.assert_allclose(centre, mean)
    np.testing.assert_allclose(spread, np.sqrt(sum(q * (shift**2 + v) for q, shift, v in parts)))


def top_by_hermite(means, spreads, nodes=60):
    """Return the probability of each class to be on top under independent noise, by Gauss-Hermite quadrature."""
    t, w = np.polynomial.hermite_e.hermegauss(nodes)
    result = np.zeros(means.shape)
    for c in range(means.shape[1]):
        x = means[:, c, np.newaxis] + spreads[:, c, np.newaxis] * t
        lead = (x[:, np.newaxis] - means[:, :, np.newaxis]) / spreads[:, :, np.newaxis]
        result[:, c] = np.delete(ndtr(lead), c, axis=1).prod(axis=1) @ w / w.sum()
    return result


@pytest.mark.parametrize("errors", [False, True])
def test_three_classes_by_direct_likelihood(errors):
    """The likelihood is exact for independent errors of the scores."""
    rng = np.random.default_rng(0)
    m, s = 2 * rng.standard_normal((300, 3)), rng.uniform(0.5, 1.0, (300, 3)) * errors
    noisy = (
        0.8 * (m + s * rng.standard_normal(m.shape)) + [0.5, 0.0, -0.5] + np.sqrt(0.5) * rng.standard_normal(m.shape)
    )
    y = noisy.argmax(axis=1)
    clf = CalibratedWithErrorsCV(Given()).fit(m, y, X_err=s if errors else None)
    counts = np.bincount(y)[y]
    t, rows = (counts + 1) / (counts + 2), np.arange(300)

    def loss(x):
        alpha, beta = np.exp(x[0]), np.append(x[1:], -x[1:].sum())
        p = top_by_hermite(alpha * m + beta, np.sqrt(0.5 + alpha**2 * s**2))[rows, y]
        return -np.sum(t * np.log(p) + (1 - t) * np.log1p(-p))

    start = np.append(np.log(clf.alpha_), clf.beta_[:2])
    found = minimize(loss, start + 0.1, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    assert loss(start) == pytest.approx(found.fun, abs=1e-3)
    np.testing.assert_allclose(start, found.x, atol=5e-3)
    assert abs(clf.beta_.sum()) < 1e-12


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_probabilities_by_sampling(n_classes):
    X, X_err, y = catalogue(40 * n_classes, n_classes)
    clf = CalibratedWithErrorsCV(GuruClassifier(0.3), cv=3).fit(X, y, X_err=X_err)
    some = slice(0, 8)
    proba = clf.predict_proba(X[some], X_err[some])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X[some], X_err[some])), proba, rtol=1e-10)
    _, means, covariances = score_moments(clf, X[some], X_err[some])
    rng, n_draws = np.random.default_rng(0), 20_000
    for i in range(8):
        root = np.linalg.cholesky(covariances[i, 0] + 1e-12 * np.eye(covariances.shape[2]))
        noisy = clf.alpha_ * (means[i, 0] + rng.standard_normal((n_draws, len(root))) @ root.T) + clf.beta_
        if n_classes == 2:
            counts = (noisy[:, 0] + rng.standard_normal(n_draws) > 0).mean()
            counts = np.array([1 - counts, counts])
        else:
            best = (noisy + np.sqrt(0.5) * rng.standard_normal(noisy.shape)).argmax(axis=1)
            counts = np.bincount(best, minlength=n_classes) / n_draws
        # More than three classes are integrated at quasi-random points, to about 1e-3.
        room = ERRORS * np.sqrt(proba[i] * (1 - proba[i]) / n_draws) + (5e-3 if n_classes > 3 else 1e-5)
        assert np.all(np.abs(counts - proba[i]) <= room)


def test_equal_scores_of_unequal_errors():
    """The sample with the larger error bar is less sure, and both are less sure than without."""
    X, X_err, y = catalogue(400)
    clf = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X, y, X_err=X_err)
    at = np.ones((3, 3))
    proba = clf.predict_proba(at, np.array([0.0, 0.5, 3.0])[:, np.newaxis] * at)[:, 1]
    assert proba[0] > proba[1] > proba[2] > 0.5
    assert proba[0] == pytest.approx(clf.predict_proba(at[:1], 0)[0, 1])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "margin_and_spread", "score"])
def test_error_bars_of_the_fit_are_needed_in_predictions(method):
    X, X_err, y = catalogue(100)
    clf = CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2).fit(X, y, X_err=X_err)
    labels = [y] if method == "score" else []
    with pytest.raises(ValueError, match=r"X_err is missing: .* Pass X_err=0 if the values are exact"):
        getattr(clf, method)(X, *labels)
    exact, zero = getattr(clf, method)(X, *labels, X_err=0), getattr(clf, method)(X, *labels, X_err=np.zeros_like(X))
    np.testing.assert_array_equal(exact, zero)
    getattr(clone(clf).fit(X, y), method)(X, *labels)


def test_overlap_is_counted():
    """Frequencies of new samples agree with probabilities; those of noise alone do not."""
    X, X_err, y = catalogue(1500, seed=5)
    learn, new = slice(0, 700), slice(700, 1500)
    inner = GuruClassifier(0.1).fit(X[learn], y[learn], X_err=X_err[learn])
    clf = CalibratedWithErrorsCV(GuruClassifier(0.1)).fit(X[learn], y[learn], X_err=X_err[learn])
    p, noise_alone = (model.predict_proba(X[new], X_err[new]) for model in (clf, inner))
    assert log_loss(y[new], p) < log_loss(y[new], noise_alone) - 0.05
    for group in np.array_split(np.argsort(p[:, 1]), 4):
        expected, variance = p[group, 1].sum(), (p[group, 1] * p[group, 0]).sum()
        assert abs(y[new][group].sum() - expected) < ERRORS * np.sqrt(variance)


def test_error_bars_that_say_nothing():
    m, s, y = scores(500, kappa=0.0, alpha=1.0)
    clf = CalibratedWithErrorsCV(Given(), scale_errors=True).fit(m[:, np.newaxis], y, X_err=s[:, np.newaxis])
    assert clf.kappa_ < 0.5
    assert clf.kappa_pvalue_ > 0.01
    plain = CalibratedWithErrorsCV(Given(), scale_errors=True).fit(m[:, np.newaxis], y)
    assert np.isnan(plain.kappa_pvalue_)
    same = CalibratedWithErrorsCV(Given(), scale_errors=True).fit(m[:, np.newaxis], y, X_err=np.ones((500, 1)))
    assert (same.kappa_, same.kappa_pvalue_, plain.kappa_) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_units_of_the_scores_do_not_matter(n_classes):
    X, X_err, y = catalogue(150, n_classes)
    ours = CalibratedWithErrorsCV(GuruClassifier(0.3, tol=1e-10), cv=3).fit(X, y, X_err=X_err)
    for factor in (1e-6, 1e6):
        same = CalibratedWithErrorsCV(GuruClassifier(0.3 * factor, tol=1e-10), cv=3)
        same.fit(X * factor, y, X_err=X_err * factor)
        np.testing.assert_allclose(
            same.predict_proba(X * factor, X_err * factor), ours.predict_proba(X, X_err), atol=1e-4
        )
    m, s, y = scores(200)
    one, other = (
        CalibratedWithErrorsCV(Given(), scale_errors=True).fit(f * m[:, np.newaxis] + f, y, X_err=f * s[:, np.newaxis])
        for f in (1.0, 1e8)
    )
    assert other.alpha_ * 1e8 == pytest.approx(one.alpha_, rel=1e-5)
    assert (other.kappa_, other.beta_) == pytest.approx((one.kappa_, one.beta_), rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_repetitions(n_classes):
    X, X_err, y = catalogue(120, n_classes)
    times = np.arange(120) % 3
    again, fold = np.repeat(np.arange(120), times), np.arange(120) % 4
    pipe = make_pipeline(WithErrors(), GuruClassifier(0.3, tol=1e-11))
    for inner in (GuruClassifier(0.3, tol=1e-11), pipe):
        weighted = CalibratedWithErrorsCV(inner, cv=PredefinedSplit(fold), scale_errors=True)
        weighted.fit(X, y, times, X_err=X_err)
        repeated = CalibratedWithErrorsCV(inner, cv=PredefinedSplit(fold[again]), scale_errors=True)
        repeated.fit(X[again], y[again], X_err=X_err[again])
        assert weighted.alpha_ == pytest.approx(repeated.alpha_, rel=1e-3)
        np.testing.assert_allclose(weighted.beta_, repeated.beta_, atol=2e-3)
        np.testing.assert_allclose(weighted.predict_proba(X, X_err), repeated.predict_proba(X, X_err), atol=1e-3)


# --- scores that are of no use, or perfect; classes that are missing


@pytest.mark.parametrize("n_classes", [2, 3])
def test_separated_classes(n_classes):
    y = np.repeat(np.arange(n_classes), 30)
    m = 100 * np.eye(n_classes)[y] if n_classes > 2 else 100.0 * (2 * y[:, np.newaxis] - 1)
    clf = CalibratedWithErrorsCV(Given()).fit(m, y)
    own = clf.predict_proba(m)[np.arange(len(y)), y]
    np.testing.assert_allclose(own, 31 / 32, atol=1e-3)  # Platt's target


@pytest.mark.parametrize("n_classes", [2, 3])
def test_useless_scores(n_classes):
    y = np.repeat(np.arange(n_classes), [30, 20, 10][:n_classes])
    share = np.bincount(y) / len(y)
    width = 1 if n_classes == 2 else 3
    wrong = -np.eye(n_classes)[y] if n_classes > 2 else 1.0 - y[:, np.newaxis]
    for m in (np.full((len(y), width), 7.0), wrong):
        for X_err in (None, np.linspace(0.1, 1, len(y))[:, np.newaxis] * np.ones((1, width))):
            clf = CalibratedWithErrorsCV(Given(), scale_errors=True).fit(m, y, X_err=X_err)
            assert clf.alpha_ == 0.0
            proba = clf.predict_proba(m, X_err)
            np.testing.assert_allclose(proba, np.tile(proba[:1], (len(y), 1)), rtol=1e-9)
            np.testing.assert_allclose(proba[0], share, atol=0.03)  # up to the smoothing of the targets
            assert (clf.predict(m, X_err) == 0).all()


def test_a_rare_class():
    X, _, y = catalogue(100)
    y = y + 0
    y[:1] = 2
    with pytest.warns(UserWarning, match=r"1 of 5 folds have no sample of \[2\] to fit to"):
        clf = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X, y)
    proba = clf.predict_proba(X)
    assert proba.shape == (100, 3)
    assert np.isfinite(proba).all()
    with pytest.raises(ValueError, match=r"none of the 1 folds of cv has samples of all classes.*\[2\] are missing"):
        CalibratedWithErrorsCV(GuruClassifier(0.3), cv=[(np.arange(50, 100), np.arange(50))]).fit(X, y)
    # Fewer samples of each class than folds.
    few = np.r_[np.flatnonzero(y == 0)[:3], np.flatnonzero(y == 1)[:3]]
    CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X[few], y[few])


# --- splits, routing, containers


class Kept(GuruClassifier):
    """Remembers the samples of every fit."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None, X_err=None):
        Kept.seen.append(np.asarray(X.X if isinstance(X, Measured) else X)[:, 0])
        return super().fit(X, y, sample_weight, X_err)


@pytest.mark.parametrize(
    "model",
    [
        CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2),
        ErrorBarClassifier(model="linear", cv=2),
        ErrorBarClassifier(model="rbf", cv=2),
    ],
)
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_a_class_of_one_sample_is_told_where_the_user_is(model):
    """With two folds already, fewer are no advice; and the line that warns is here."""
    rng = np.random.default_rng(0)
    y = np.r_[np.arange(60) % 2, 2]
    X = rng.standard_normal((61, 2)) + y[:, np.newaxis]
    with pytest.warns(
        UserWarning, match=r"1 of 2 folds have no sample of \[2\].*: a class needs two samples"
    ) as caught:
        model.fit(X, y, X_err=np.full(X.shape, 0.1))
    assert "fewer folds" not in str(caught[0].message)
    assert [Path(warning.filename).name for warning in caught] == ["test_calibration.py"] * len(caught)


@pytest.mark.parametrize(
    "model",
    [CalibratedWithErrorsCV(GuruClassifier(9.0), cv=2), make_pipeline("passthrough", GuruClassifier(9.0))],
    ids=["folds", "pipeline"],
)
def test_a_warning_of_a_fit_that_scikit_learn_calls_is_told_where_the_user_is(model):
    rng = np.random.default_rng(0)
    y = np.arange(60) < 20
    with pytest.warns(CollapseWarning) as caught:
        model.fit(Measured(rng.standard_normal((60, 2)), np.full((60, 2), 0.1)), y)
    assert [Path(warning.filename).name for warning in caught] == ["test_calibration.py"] * len(caught)


@pytest.mark.parametrize("routing", [False, True])
def test_groups_stay_together(routing):
    X, X_err, y = catalogue(90)
    groups = np.arange(90) // 9
    Kept.seen = []
    with sklearn.config_context(enable_metadata_routing=routing):
        CalibratedWithErrorsCV(Kept(0.3), cv=GroupKFold(5)).fit(X, y, X_err=X_err, groups=groups)
    *folds, last = Kept.seen
    assert len(folds) == 5
    assert len(last) == 90
    for fold in folds:
        inside = np.isin(X[:, 0], fold)
        assert all(inside[groups == g].all() or not inside[groups == g].any() for g in range(10))
    with pytest.raises(ValueError, match="groups"):
        CalibratedWithErrorsCV(Kept(0.3), cv=GroupKFold(5)).fit(X, y)


def test_routing_and_measured_are_the_same():
    X, X_err, y = catalogue(150)
    weights = np.random.default_rng(0).random(150)
    pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.3))
    plain = CalibratedWithErrorsCV(pipe).fit(X, y, X_err=X_err)
    expected = plain.predict_proba(X, X_err)
    carried = CalibratedWithErrorsCV(pipe).fit(Measured(X, X_err), y)
    np.testing.assert_array_equal(carried.predict_proba(Measured(X, X_err)), expected)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = CalibratedWithErrorsCV(pipe).fit(X, y, X_err=X_err)
        np.testing.assert_array_equal(routed.predict_proba(X, X_err), expected)
        outer = make_pipeline(WithErrors(StandardScaler()), CalibratedWithErrorsCV(GuruClassifier(0.3)))
        outer.fit(X, y, X_err=X_err)
        assert outer.score(X, y, X_err=X_err) == np.mean(outer.predict(X, X_err=X_err) == y)
        np.testing.assert_array_equal(
            outer.predict_proba(X, X_err=X_err).argmax(axis=1), outer.predict_log_proba(X, X_err=X_err).argmax(axis=1)
        )
        asking = CalibratedWithErrorsCV(GuruClassifier(0.3).set_fit_request(sample_weight=True))
        asking.set_fit_request(sample_weight=True).fit(X, y, sample_weight=weights, X_err=X_err)
    without = make_pipeline(WithErrors(StandardScaler()), CalibratedWithErrorsCV(GuruClassifier(0.3)))
    without.fit(Measured(X, X_err), y)
    np.testing.assert_array_equal(
        without.predict_proba(Measured(X, X_err)), outer[-1].predict_proba(outer[0].transform(X, X_err))
    )
    same = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X, y, weights, X_err)
    np.testing.assert_array_equal(asking.predict_proba(X, X_err), same.predict_proba(X, X_err))


def test_search_over_a_pipeline_by_hand():
    """Scaling, population, classifier and calibration in one search, with X and its errors in one argument."""
    X, X_err, y = catalogue(160)
    folds, sigmas = StratifiedKFold(2), [0.1, 1.0]
    pipe = make_pipeline(WithErrors(StandardScaler()), Deconvolve(), CalibratedWithErrorsCV(GuruClassifier(), cv=2))
    grid = {"calibratedwitherrorscv__estimator__sigma": sigmas}
    search = GridSearchCV(pipe, grid, cv=folds, scoring="neg_log_loss", error_score="raise").fit(Measured(X, X_err), y)
    for k, (train, test) in enumerate(folds.split(X, y)):
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        population = Deconvolve().fit((X[train] - mean) / scale, X_err=X_err[train] / scale)
        learn, new = (population.transform((X[i] - mean) / scale, X_err[i] / scale) for i in (train, test))
        for j, sigma in enumerate(sigmas):
            m, s = np.empty((2, len(train)))
            for a, b in folds.split(learn.X, y[train]):
                inner = GuruClassifier(sigma).fit(learn.X[a], y[train][a], X_err=learn.err[a])
                w = inner.coef_[0]
                m[b] = learn.X[b] @ w + inner.intercept_
                s[b] = np.sqrt(np.einsum("j,ijk,k->i", w, learn.err[b], w))
            (alpha, beta), _ = direct(m, [(1.0, 0.0, s**2)], y[train], np.ones(len(train)), 1.0)
            inner = GuruClassifier(sigma).fit(learn.X, y[train], X_err=learn.err)
            w = inner.coef_[0]
            v = np.einsum("j,ijk,k->i", w, new.err, w)
            p = ndtr((alpha * (new.X @ w + inner.intercept_) + beta) / np.sqrt(1 + alpha**2 * v))
            score = search.cv_results_[f"split{k}_test_score"][j]
            assert score == pytest.approx(-log_loss(y[test], p), abs=1e-4)
    assert search.predict_proba(Measured(X, X_err)).shape == (160, 2)


def test_populations_of_several_components():
    X, X_err, y = catalogue(200, error=0.5)
    X[:, 0] += 6.0 * y  # two groups, which overlap in other features
    pipe = make_pipeline(Deconvolve(n_components=2), GuruClassifier(0.3))
    clf = CalibratedWithErrorsCV(pipe, cv=3).fit(X, y, X_err=X_err)
    measured = clf.estimator_[0].transform(X, X_err)
    assert measured.components is not None
    weights, means, covariances = score_moments(clf, X, X_err)
    assert weights.shape == (200, 2)
    np.testing.assert_array_equal(weights, measured.components.weights)
    u = (clf.alpha_ * means[:, :, 0] + clf.beta_) / np.sqrt(1 + clf.alpha_**2 * covariances[:, :, 0, 0])
    np.testing.assert_allclose(clf.predict_proba(X, X_err)[:, 1], (weights * ndtr(u)).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("estimator", [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())])
def test_classifiers_that_know_no_errors(estimator):
    """They are fitted without; the errors count in the probabilities."""
    X, X_err, y = catalogue(200)
    clf = CalibratedWithErrorsCV(estimator).fit(X, y, X_err=X_err)
    alone = clone(estimator).fit(X, y)
    np.testing.assert_allclose(clf.margin_and_spread(X, X_err)[0], alone.decision_function(X), rtol=1e-9)
    scale = 1.0 if isinstance(estimator, LogisticRegression) else X.std(axis=0)
    w = (alone if isinstance(estimator, LogisticRegression) else alone[-1]).coef_[0] / scale
    np.testing.assert_allclose(clf.margin_and_spread(X, X_err)[1], np.sqrt(X_err**2 @ w**2), rtol=1e-6)
    assert clf.kappa_pvalue_ < 0.1


def test_other_machines():
    X, X_err, y = catalogue(120)
    for inner in (AdversarialSVC(), KernelGuruClassifier(0.1), None):
        clf = CalibratedWithErrorsCV(inner, cv=3).fit(X, y)
        assert 0 < clf.alpha_ < 100
    K = X @ X.T + 1
    ours = CalibratedWithErrorsCV(KernelGuruClassifier(0.1, kernel="precomputed"), cv=3).fit(K, y)
    same = CalibratedWithErrorsCV(KernelGuruClassifier(0.1, kernel=lambda a, b: a @ b.T + 1), cv=3).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(K), same.predict_proba(X), atol=1e-4)
    with pytest.raises(ValueError, match="X_err is not supported with kernel='laplacian'"):
        CalibratedWithErrorsCV(KernelGuruClassifier(0.1, kernel="laplacian")).fit(X, y, X_err=X_err)
    errors = CalibratedWithErrorsCV(KernelGuruClassifier(0.1), cv=3).fit(X, y, X_err=X_err)
    assert errors.margin_and_spread(X, X_err)[1].all()
    search = GridSearchCV(make_pipeline(WithErrors(), GuruClassifier()), {"guruclassifier__sigma": [0.1, 0.3]}, cv=2)
    assert CalibratedWithErrorsCV(search, cv=2).fit(X, y, X_err=X_err).margin_and_spread(X, X_err)[1].all()
    nested = CalibratedWithErrorsCV(CalibratedWithErrorsCV(), cv=2).fit(X, y, X_err=X_err)
    assert nested.predict_proba(X, X_err).shape == (120, 2)
    with pytest.raises(ValueError, match="must have 4 scores a sample for 4 classes; got 6"):
        CalibratedWithErrorsCV(SVC(decision_function_shape="ovo"), cv=2).fit(X, np.arange(120) % 4)
    with pytest.raises(TypeError, match="must have a decision_function; got RandomForest"):
        CalibratedWithErrorsCV(RandomForestClassifier(3)).fit(X, y)


def test_containers():
    X, X_err, y = catalogue(120)
    expected = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X, y, X_err=X_err).predict_proba(X, X_err)
    for form in (sp.csr_matrix, sp.coo_array, np.float32, lambda values: values.tolist()):
        clf = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(form(X), y, X_err=X_err)
        np.testing.assert_allclose(clf.predict_proba(form(X), X_err), expected, atol=1e-3)
    frame, names = pd.DataFrame(X, columns=list("abc")), np.array(["no", "yes"])
    clf = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(
        frame, names[y], X_err=pd.DataFrame(X_err, columns=list("abc"))
    )
    assert clf.feature_names_in_.tolist() == list("abc")
    assert clf.n_features_in_ == 3
    assert set(clf.predict(frame, X_err)) == {"no", "yes"}
    np.testing.assert_array_equal(clf.predict_proba(frame, X_err), expected)
    parallel = CalibratedWithErrorsCV(GuruClassifier(0.3), n_jobs=1).fit(X, y, X_err=X_err)
    np.testing.assert_array_equal(parallel.predict_proba(X, X_err), expected)


def test_files():
    X, X_err, y = catalogue(120, 3)
    clf = CalibratedWithErrorsCV(make_pipeline(WithErrors(), GuruClassifier(0.3)), cv=3).fit(X, y, X_err=X_err)
    expected = clf.predict_log_proba(X, X_err)
    stored = skops.io.dumps(clf)
    for again in (
        pickle.loads(pickle.dumps(clf)),
        skops.io.loads(stored, trusted=skops.io.get_untrusted_types(data=stored)),
    ):
        np.testing.assert_array_equal(again.predict_log_proba(X, X_err), expected)
    assert clone(clf).get_params()["estimator__guruclassifier__sigma"] == 0.3


def test_tails_are_numbers():
    """Logarithms are finite where a probability is 0 to rounding, or was not computed."""
    for n_classes in (2, 3, 5):
        X, X_err, y = catalogue(40 * n_classes, n_classes)
        clf = CalibratedWithErrorsCV(GuruClassifier(0.3), cv=3).fit(X, y, X_err=X_err)
        far = 100 * X[:10]
        for errors in (0, X_err[:10]):
            logs = clf.predict_log_proba(far, errors)
            assert np.isfinite(logs).all()
            assert logs.min() < -30
            np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-9)


def test_bad_input_changes_nothing():
    X, X_err, y = catalogue(100)
    clf = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X, y, X_err=X_err)
    before = clf.predict_proba(X, X_err)
    for call, message in (
        (lambda: clf.fit(X, y, X_err=-X_err), "nonnegative"),
        (lambda: clf.fit(X, y, X_err=X_err[:7]), "X_err must hold standard deviations of shape \\(100,\\)"),
        (lambda: clf.fit(X, y[:7]), "same number of samples; got 100 and 7"),
        (lambda: clf.fit(X, np.zeros(100)), "at least two classes"),
        (lambda: clf.fit(X, y, -np.ones(100)), "sample_weight must not be negative"),
        (lambda: clf.fit(X, y, cost=1), "enable_metadata_routing"),
        (lambda: clone(clf).set_params(cv=1).fit(X, y), "cv must be at least 2"),
        (lambda: clf.predict_proba(X, np.nan * X_err), "X_err has NaN"),
        (lambda: clf.predict_proba(X[:, :2], X_err[:, :2]), "2 features"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
        np.testing.assert_array_equal(clf.predict_proba(X, X_err), before)
    with pytest.raises(TypeError, match="scale_errors must be True or False"):
        CalibratedWithErrorsCV(scale_errors="yes").fit(X, y)


def test_one_gaussian_instead_of_a_mixture_has_its_mean_and_variances():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(4), size=2)
    means, variances = rng.normal(size=(2, 4, 3)), rng.uniform(0.1, 2.0, size=(2, 4, 3))
    centre = np.einsum("ik,ikc->ic", weights, means)
    one = Margins(weights, centre, means - centre[:, np.newaxis], variances).matched()
    assert one.deviations.shape == one.variances.shape == (2, 1, 3)
    assert not one.deviations.any()
    np.testing.assert_array_equal(one.weights, 1.0)
    for i in range(2):
        drawn = rng.choice(4, p=weights[i], size=400_000)
        scores = means[i, drawn] + np.sqrt(variances[i, drawn]) * rng.normal(size=(400_000, 3))
        np.testing.assert_allclose(one.centre[i], scores.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(one.variances[i, 0], scores.var(axis=0), rtol=0.02)
