"""The probability of each class under noise on the scores, for any number of classes."""

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.data import groups

from gaussguru import AdversarialSVC, GuruClassifier, GuruClassifierCV, KernelGuruClassifier, TotalSVC
from gaussguru._errors.checks import check_errors
from gaussguru._errors.samples import split_errors
from gaussguru._guru.probabilities import (
    independent_log_probabilities,
    independent_slopes,
    mixture_moments,
    noise_probabilities,
)
from gaussguru._measured.calibrated import margin_and_spread, score_moments
from gaussguru.errors import LowRank, Measured
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import expected_accuracy, expected_accuracy_scorer

# Standard errors that a frequency may be away from its probability.
ERRORS = 5.0


def by_quad(scores, spreads, c):
    """Return the probability of class c from adaptive quadrature."""
    others = [k for k in range(len(scores)) if k != c]

    def density(t):
        x = scores[c] + spreads[c] * t
        return np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi) * np.prod([ndtr((x - scores[k]) / spreads[k]) for k in others])

    return sum(quad(density, a, a + 3, epsabs=1e-15, epsrel=1e-12)[0] for a in range(-9, 9, 3))


@pytest.mark.parametrize("n_classes", [2, 3, 10, 30])
@pytest.mark.parametrize("wide", [False, True])
def test_independent_noise_by_quadrature(n_classes, wide):
    rng = np.random.default_rng(n_classes)
    scores = 2 * rng.standard_normal((3, n_classes))
    spreads = rng.uniform(0.5, 2.0, scores.shape) if wide else np.ones(scores.shape)
    ours = np.exp(independent_log_probabilities(scores, spreads if wide else None))
    np.testing.assert_allclose(ours.sum(axis=1), 1.0, rtol=1e-13)
    for i in range(3):
        for c in range(min(n_classes, 4)):
            assert ours[i, c] == pytest.approx(by_quad(scores[i], spreads[i], c), rel=1e-7, abs=1e-12)


def test_tails_of_independent_noise():
    """Two classes have a closed form, far beyond the smallest number that is not 0."""
    behind = np.array([1.0, 5.0, 12.0, 25.0, 32.0])
    logs = independent_log_probabilities(np.column_stack([np.zeros(5), -behind]))
    np.testing.assert_allclose(logs[:, 1], log_ndtr(-behind / np.sqrt(2)), rtol=1e-6)
    far = noise_probabilities(np.array([[0.0, -1e150, -1e-150]]), 1e-300, logs=True)
    assert np.all(np.isfinite(far))
    assert far[0, 1] < -1e100


def test_slopes_by_differences():
    rng = np.random.default_rng(0)
    scores, spreads, step = rng.standard_normal((5, 4)), rng.uniform(0.7, 2.0, (5, 4)), 1e-5
    _, by_score, by_spread = independent_slopes(scores, spreads)
    for k in range(4):
        move = step * (np.arange(4) == k)
        for slopes, up, down in (
            (by_score, (scores + move, spreads), (scores - move, spreads)),
            (by_spread, (scores, spreads + move), (scores, spreads - move)),
        ):
            change = independent_log_probabilities(*up) - independent_log_probabilities(*down)
            np.testing.assert_allclose(slopes[:, :, k], change / (2 * step), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_probabilities_by_sampling(n_classes):
    """Independent noise on the scores, of half the mean variance of their differences."""
    X, y = groups([20] * n_classes, 4, seed=n_classes)
    rng = np.random.default_rng(1)
    X_err = rng.uniform(0.0, 1.0, X.shape)
    clf = GuruClassifier(0.3).fit(X, y)
    some = np.arange(0, len(X), max(1, len(X) // 12))
    W, b = clf.coef_, clf.intercept_
    if n_classes == 2:
        W, b = np.vstack([np.zeros_like(W), W]), np.append(0.0, b)
    pairs = [(c, k) for c in range(n_classes) for k in range(c)]
    variance = np.array(
        [np.mean([np.sum((0.3**2 + X_err[i] ** 2) * (W[c] - W[k]) ** 2) for c, k in pairs]) / 2 for i in some]
    )
    n_draws = 20_000
    proba = clf.predict_proba(X[some], X_err[some])
    for i, row in enumerate(some):
        noisy = X[row] @ W.T + b + np.sqrt(variance[i]) * rng.standard_normal((n_draws, n_classes))
        counts = np.bincount(noisy.argmax(axis=1), minlength=n_classes) / n_draws
        room = ERRORS * np.sqrt(proba[i] * (1 - proba[i]) / n_draws) + 1e-4
        assert np.all(np.abs(counts - proba[i]) <= room)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(clf.classes_[proba.argmax(axis=1)], clf.predict(X[some], X_err[some]))
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X[some], X_err[some])), proba, rtol=1e-10)


def test_two_classes_in_closed_form():
    X, y = groups([30, 25], 3, seed=0)
    clf = GuruClassifier(0.4).fit(X, y)
    z = clf.decision_function(X) / (0.4 * np.linalg.norm(clf.coef_))
    np.testing.assert_allclose(clf.predict_proba(X)[:, 1], ndtr(z), rtol=1e-12)
    far = clf.predict_log_proba(X + 200 * clf.coef_ / np.linalg.norm(clf.coef_))[:, 0]
    mpmath.mp.dps = 30
    z = clf.decision_function(X + 200 * clf.coef_ / np.linalg.norm(clf.coef_)) / (0.4 * np.linalg.norm(clf.coef_))
    for log, at in zip(far[:5], z[:5], strict=True):
        assert log == pytest.approx(float(mpmath.log(mpmath.erfc(mpmath.mpf(at) / mpmath.sqrt(2)) / 2)), rel=1e-10)
        assert log < -1000


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_predicted_class_has_the_highest_probability(n_classes):
    """Also where scores differ by one rounding."""
    rng = np.random.default_rng(0)
    shape = (2000,) if n_classes == 2 else (2000, n_classes)
    scores = rng.standard_normal(shape) * 10.0 ** rng.integers(-20, 20, 2000).reshape(-1, *[1] * (len(shape) - 1))
    if n_classes == 2:
        best = (scores > 0).astype(int)
    else:
        scores[:1000, 1] = np.nextafter(scores[:1000].max(axis=1), np.inf)
        best = scores.argmax(axis=1)
    for logs in (False, True):
        for spread in (1.0, np.abs(rng.standard_normal(2000)), 0.0):
            np.testing.assert_array_equal(noise_probabilities(scores, spread, logs=logs).argmax(axis=1), best)


def test_without_noise_the_class_is_certain_and_ties_are_shared():
    scores = np.array([[1.0, 0.0, -1.0], [2.0, 2.0, 1.0], [3.0, 3.0, 3.0]])
    expected = [[1, 0, 0], [0.5, 0.5, 0], [1 / 3] * 3]
    np.testing.assert_allclose(noise_probabilities(scores, 0.0), expected)
    np.testing.assert_allclose(noise_probabilities(np.array([1.0, -1.0, 0.0]), 0.0), [[0, 1], [1, 0], [0.5, 0.5]])
    X, y = groups([20, 20, 20], 3, seed=0)
    clf = GuruClassifier(0.0, l2=0.1).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), np.eye(3)[np.searchsorted(clf.classes_, clf.predict(X))])


# --- margins and their spreads


def error_forms(n, d):
    rng = np.random.default_rng(3)
    roots = rng.standard_normal((n, d, d))
    return {
        "per sample": rng.random(n),
        "diagonal": rng.random((n, d)),
        "csr": sp.csr_matrix(rng.random((n, d))),
        "covariances": roots @ roots.transpose(0, 2, 1),
        "low rank": LowRank(rng.standard_normal((n, d, 2)), rng.random((n, d))),
    }


@pytest.mark.parametrize("name", ["per sample", "diagonal", "csr", "covariances", "low rank"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_margin_and_spread(n_classes, name):
    X, y = groups([15] * n_classes, 3, seed=1)
    X_err = error_forms(*X.shape)[name]
    dense = check_errors(X_err, X)
    for clf in (GuruClassifier(0.3), AdversarialSVC(), TotalSVC(), GuruClassifierCV([0.1, 1.0], cv=2)):
        clf.fit(X, y)
        margin, spread = clf.margin_and_spread(X, X_err)
        weights, means, covariances = score_moments(clf, X, X_err)
        assert weights.shape == (len(X), 1)
        assert (weights == 1).all()
        np.testing.assert_array_equal(margin, clf.decision_function(X))
        np.testing.assert_allclose(means[:, 0].reshape(margin.shape), margin, rtol=1e-12)
        for i in (0, 7, len(X) - 1):
            expected = clf.coef_ @ dense.covariance(i) @ clf.coef_.T
            np.testing.assert_allclose(covariances[i, 0], expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(np.atleast_1d(spread[i]) ** 2, np.diag(expected), rtol=1e-9)
        for other in (Measured(X, X_err), Measured(X, X_err)[:5]):
            np.testing.assert_array_equal(margin_and_spread(clf, other)[1], spread[: len(other)])
        assert not clf.margin_and_spread(X)[1].any()


def test_spread_through_pipelines():
    X, y = groups([30, 25], 3, seed=1)
    X_err = error_forms(*X.shape)["diagonal"]
    for scaler in (WithErrors(StandardScaler()), StandardScaler()):  # the second is taken as a whole
        pipe = make_pipeline(scaler, GuruClassifier(0.3)).fit(X, y)
        margin, spread = margin_and_spread(pipe, X, X_err)
        w = pipe[-1].coef_[0] / X.std(axis=0)
        np.testing.assert_allclose(margin, pipe.decision_function(X), rtol=1e-9)
        np.testing.assert_allclose(spread, np.sqrt(X_err**2 @ w**2), rtol=1e-9)
    search = GridSearchCV(pipe, {"guruclassifier__sigma": [0.1, 1.0]}, cv=2).fit(X, y)
    np.testing.assert_array_equal(
        margin_and_spread(search, X, X_err)[1], margin_and_spread(search.best_estimator_, X, X_err)[1]
    )


def test_kernels_without_errors_have_no_spread():
    X, y = groups([20, 15, 10], 3, seed=1)
    clf = KernelGuruClassifier(0.1).fit(X, y)
    margin, spread = clf.margin_and_spread(X)
    np.testing.assert_array_equal(margin, clf.decision_function(X))
    assert not spread.any()
    assert spread.shape == (45, 3)


def test_moments_of_mixtures():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), 4)
    means, variances = rng.standard_normal((4, 3, 1)), rng.random((4, 3, 1, 1))
    mean, spread = mixture_moments(weights, means, variances)
    for i in range(4):
        which = rng.choice(3, 200_000, p=weights[i])
        draws = means[i, which, 0] + np.sqrt(variances[i, which, 0, 0]) * rng.standard_normal(200_000)
        assert mean[i, 0] == pytest.approx(draws.mean(), abs=ERRORS * draws.std() / np.sqrt(200_000))
        assert spread[i, 0] == pytest.approx(draws.std(), rel=ERRORS / np.sqrt(200_000))


def test_covariances_that_are_none():
    X = np.zeros((2, 2))
    bad = np.array([np.eye(2), [[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(ValueError, match="positive semidefinite covariances; that of sample 1"):
        split_errors(X, bad)
    with pytest.raises(ValueError, match="symmetric covariances; that of sample 0"):
        split_errors(X, np.array([[[1.0, 0.5], [0.0, 1.0]]] * 2))
    with pytest.raises(ValueError, match="X_err has NaN"):
        split_errors(X, np.nan * bad)


# --- score, and defaults


def test_score_is_the_accuracy_of_predictions():
    X, y = groups([30, 25, 20], 3, seed=1)
    X_err, weights = error_forms(*X.shape)["diagonal"], np.arange(75.0)
    for clf in (GuruClassifier(0.3), GuruClassifierCV([0.1, 1.0], cv=2), AdversarialSVC()):
        clf.fit(X, y)
        hits = clf.predict(X) == y
        assert clf.score(X, y, X_err=X_err) == clf.score(Measured(X, X_err), y) == np.mean(hits)
        assert clf.score(X, y, weights, X_err) == pytest.approx(np.average(hits, weights=weights))
    for bad in (-X_err, np.nan * X_err, X_err[:5]):
        for call in (clf.predict, clf.decision_function, clf.margin_and_spread):
            with pytest.raises(ValueError, match="X_err"):
                call(X, bad)


@pytest.mark.parametrize("scoring", [None, expected_accuracy_scorer], ids=["accuracy", "expected"])
def test_errors_are_asked_for_by_default(scoring):
    X, y = groups([30, 25], 3, seed=1)
    X_err, folds = error_forms(*X.shape)["diagonal"], KFold(3, shuffle=True, random_state=0)
    pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.3))
    expected = []
    for train, test in folds.split(X):
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        clf = GuruClassifier(0.3).fit((X[train] - mean) / scale, y[train], X_err=X_err[train] / scale)
        there = (X[test] - mean) / scale, y[test]
        expected.append(
            clf.score(*there) if scoring is None else expected_accuracy(clf, *there, X_err=X_err[test] / scale)
        )
    with sklearn.config_context(enable_metadata_routing=True):
        routed = cross_validate(pipe, X, y, cv=folds, scoring=scoring, params={"X_err": X_err})["test_score"]
        search = GridSearchCV(pipe, {"guruclassifier__sigma": [0.3]}, cv=folds, scoring=scoring)
        search.fit(X, y, X_err=X_err)
        pipe.fit(X, y, X_err=X_err)
        for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
            by_hand = getattr(pipe[-1], method)(pipe[0].transform(X, X_err=X_err))
            np.testing.assert_array_equal(getattr(pipe, method)(X, X_err=X_err), by_hand)
        assert pipe.score(X, y, X_err=X_err) == np.mean(pipe.predict(X) == y)
    np.testing.assert_allclose(routed, expected, rtol=1e-6)
    np.testing.assert_allclose([search.cv_results_[f"split{k}_test_score"][0] for k in range(3)], expected, rtol=1e-6)
    carried = cross_validate(pipe, Measured(X, X_err), y, cv=folds, scoring=scoring)["test_score"]
    np.testing.assert_allclose(carried, expected, rtol=1e-6)


def test_sigma_chosen_by_the_expected_accuracy():
    """A scorer that has an argument for error bars gets those of the fold, without routing too."""
    X, y = groups([40, 35], 3, seed=2)
    X_err, folds = error_forms(*X.shape)["diagonal"], KFold(2, shuffle=True, random_state=0)
    clf = GuruClassifierCV([0.1, 1.0], cv=folds, scoring=expected_accuracy_scorer, tol=1e-9).fit(X, y, X_err=X_err)
    for k, (train, test) in enumerate(folds.split(X)):
        for j, sigma in enumerate([1.0, 0.1]):
            one = GuruClassifier(sigma, tol=1e-9).fit(X[train], y[train], X_err=X_err[train])
            expected = expected_accuracy(one, X[test], y[test], X_err=X_err[test])
            assert clf.scores_[j, k] == pytest.approx(expected, abs=1e-4)
    assert clf.score(X, y, X_err=X_err) == pytest.approx(expected_accuracy(clf, X, y, X_err=X_err))
