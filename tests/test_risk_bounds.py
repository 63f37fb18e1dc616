"""Bounds on the risk: their terms by brute force, their coverage by simulation, their invariances and refusals."""

import itertools
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import ndtr
from scipy.stats import binom
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from gaussguru import GuruClassifier, GuruClassifierCV, KernelGuruClassifier
from gaussguru._measured.risk_bounds import LENGTHS, _Scored, inverse_kl
from gaussguru.errors import Measured
from gaussguru.plotting import RiskBoundDisplay
from gaussguru.robustness import NotLinearError, risk_bound


def clouds(n, rng, distance=1.22, n_features=10):
    """Return two round clouds; the risk under noise of 1 of the best classifier is Phi(-distance / sqrt(2))."""
    y = rng.choice([-1, 1], n)
    return rng.normal(size=(n, n_features)) + distance * np.outer(y, np.eye(n_features)[0]), y


def three(n, rng):
    """Return three round clouds in the plane."""
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 2)) + 3 * np.array([[1, 0], [-0.5, 0.87], [-0.5, -0.87]])[y], y


def gibbs(model, X, y, level):
    """Return the risk of two classes under noise on the coefficients, relative to their norm."""
    w = np.append(model.coef_[0], model.intercept_)
    columns = np.column_stack([X, np.ones(len(X))])
    return ndtr(-y * (columns @ w) / (level * np.linalg.norm(w) * np.linalg.norm(columns, axis=1))).mean()


# --- the terms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 1e-9, 0.03, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("budget", [1e-6, 0.01, 0.7, 50.0])
def test_kl_is_inverted(mean, budget):
    p = inverse_kl(mean, budget)
    assert mean <= p <= 1
    if p < 1 - 1e-9:
        terms = [a * np.log(a / b) for a, b in ((mean, p), (1 - mean, 1 - p)) if a > 0]
        assert sum(terms) == pytest.approx(budget, rel=1e-6)
    if mean == 0:
        assert p == pytest.approx(-np.expm1(-budget), rel=1e-9)


def best_correlation(X, y, level, pairs, angles, offsets):
    """Return E sup of the mean of sign times loss over a fine grid of planar classifiers; pairs are independent."""
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    margins = (X @ directions.T)[:, :, np.newaxis] + offsets  # (n, angles, offsets)
    found = []
    for signs in itertools.product([-1, 1], repeat=len(y)):
        total = 0.0
        for c, k in pairs:
            side = np.where(y == c, 1.0, -1.0)[:, np.newaxis, np.newaxis]
            inside = np.isin(y, (c, k))
            losses = ndtr(-(side * margins / level)[inside])
            total += np.tensordot(np.array(signs)[inside], losses, axes=1).max()
        found.append(total / len(y))
    return np.mean(found)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("level", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_complexity_is_above_that_of_all_classifiers_of_the_plane(n_classes, level, fit_intercept):
    rng = np.random.default_rng(n_classes)
    X, y = rng.normal(size=(9, 2)) * [1.0, 3.0] + 0.5, np.arange(9) % n_classes
    model = GuruClassifier(0.1, fit_intercept=fit_intercept).fit(X, y)
    offsets = np.linspace(-15, 15, 61) if fit_intercept else np.zeros(1)
    pairs = list(itertools.combinations(range(n_classes), 2))
    exact = best_correlation(X, y, level, pairs, np.linspace(0, 2 * np.pi, 41), offsets)
    bound = _Scored.of(model, X, y).complexity(level)
    assert exact < bound
    # Contraction loses a factor where noise is small or classes are many; here no more than:
    assert bound < (1.6 if level == 5 and not fit_intercept else 14) * exact


def test_terms_of_sigma_add_up():
    rng = np.random.default_rng(0)
    X, y = clouds(300, rng)
    model = GuruClassifier(0.7, fit_intercept=False).fit(X, y)
    w = model.coef_[0]
    mean = ndtr(-y * (X @ w) / (0.7 * np.linalg.norm(w))).mean()
    capacity = 2 / (0.7 * np.sqrt(2 * np.pi)) * np.linalg.norm(X) / 300
    found = risk_bound(model, X, y, confidence=0.9)
    assert found.empirical == pytest.approx(mean, rel=1e-12)
    assert found.bound == pytest.approx(mean + capacity + 3 * np.sqrt(np.log(20) / 600), rel=1e-12)
    assert (found.method, found.n_samples, found.noise_level, found.confidence) == ("sigma", 300, 0.7, 0.9)


def test_pac_bayes_is_the_best_over_lengths_of_a_prior_at_the_origin():
    """A kernel has no second prior."""
    rng = np.random.default_rng(0)
    X, y = clouds(400, rng)
    model = KernelGuruClassifier(1.0, kernel="linear", fit_intercept=False).fit(X, y)
    w = model.X_fit_.T @ model.dual_coef_[0]
    cosines, bounds = y * (X @ w) / np.linalg.norm(w) / np.linalg.norm(X, axis=1), []
    for tau in LENGTHS:
        budget = (tau**2 / 2 + np.log(2 * 20 * 2 * len(LENGTHS) / 0.05)) / 400
        bounds.append(inverse_kl(ndtr(-tau * cosines).mean(), budget))
    found = risk_bound(model, X, y, method="pac-bayes")
    assert found.bound == pytest.approx(min(bounds), rel=1e-9)
    assert found.noise_level == 1 / LENGTHS[np.argmin(bounds)]


def test_the_figures_of_a_pilot():
    """Ten features, no intercept: the bounds of contraction, and those of PAC-Bayes with one prior at most."""
    rng = np.random.default_rng(0)
    expected = {200: (0.67, 0.35), 1000: (0.41, 0.24), 5000: (0.29, 0.17), 20_000: (0.24, 0.15)}
    for n, (sigma, pac_bayes) in expected.items():
        X, y = clouds(n, rng)
        model = GuruClassifier(1.0, fit_intercept=False).fit(X, y)
        assert risk_bound(model, X, y).bound == pytest.approx(sigma, abs=0.03 if n == 200 else 0.012)
        assert 0.11 < risk_bound(model, X, y, method="pac-bayes").bound < pac_bayes + 0.04 * (n == 200)


# --- coverage -----------------------------------------------------------------------------------------------


def memorised(rng):
    """Labels that have nothing to do with many features: a fit knows them by heart, and the risk is exactly 1/2."""
    return rng.normal(size=(60, 120)), rng.choice([-1, 1], 60), None


def unbalanced(rng):
    """Heavy tails about a far centre, and few samples of a class that the features do not tell: an intercept fits."""
    y = np.where(rng.uniform(size=80) < 0.15, 1, -1)
    y[:2] = -1, 1
    return rng.standard_t(1.5, size=(80, 30)) + 50.0, y, None


@pytest.mark.parametrize("draw", [memorised, unbalanced])
@pytest.mark.parametrize("method", ["sigma", "pac-bayes"])
def test_bounds_cover_where_the_fit_deceives(draw, method):
    """The means of the fits are below the risks nearly always, the bounds at most as often as they say."""
    below = violated = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y, _ = draw(rng)
        model = GuruClassifier(0.3).fit(X, y)
        found = risk_bound(model, X, y, method=method, confidence=0.5)
        X_new = np.concatenate([draw(rng)[0] for _ in range(20)])
        y_new = np.where(rng.uniform(size=len(X_new)) < (0.5 if draw is memorised else 0.15), 1, -1)
        if method == "sigma":
            scores = model.decision_function(X_new) / (0.3 * np.linalg.norm(model.coef_))
            risk = ndtr(-y_new * scores).mean()
        else:
            risk = gibbs(model, X_new, y_new, found.noise_level)
        below += found.empirical < risk
        violated += found.bound < risk - 0.02  # the error of the simulation
    assert violated == 0
    assert below >= (36 if draw is memorised and method == "sigma" else 20)


@pytest.mark.parametrize("method", ["sigma", "pac-bayes"])
def test_bounds_of_three_classes_cover(method):
    rng = np.random.default_rng(0)
    X_new, y_new = three(20_000, rng)
    for n in (30, 3000):
        X, y = three(n, rng)
        model = GuruClassifier(0.5).fit(X, y)
        found = risk_bound(model, X, y, method=method)
        if method == "sigma":
            noisy = X_new + 0.5 * rng.normal(size=X_new.shape)
            scores = model.decision_function(noisy)
        else:
            size = np.sqrt(np.square(model.coef_).sum() + np.square(model.intercept_).sum())
            noise = found.noise_level * size * rng.normal(size=(20_000, 3))
            scores = model.decision_function(X_new) + noise * np.sqrt(1 + np.square(X_new).sum(axis=1))[:, np.newaxis]
        risk = np.mean(scores.argmax(axis=1) != y_new)
        assert found.bound > risk
        assert found.bound < 0.7 or n == 30
        assert found.empirical > risk - 0.1


@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_clopper_and_pearson_cover_and_are_exact(confidence):
    """Coverage summed over all counts of mistakes; the bound is the p at which so few mistakes have this chance."""
    n, bounds = 25, []
    model = DummyClassifier(strategy="constant", constant=0).fit([[0.0], [0.0]], [0, 1])
    for k in range(n + 1):
        found = risk_bound(model, np.zeros((n, 1)), np.arange(n) < k, method="holdout", confidence=confidence)
        bounds.append(found.bound)
        assert found.empirical == k / n
        assert k == n or binom.cdf(k, n, found.bound) == pytest.approx(1 - confidence, rel=1e-9)
    risks = np.linspace(0.01, 0.99, 99)
    coverage = np.array([binom.pmf(np.arange(n + 1), n, p)[np.array(bounds) >= p].sum() for p in risks])
    assert coverage.min() >= confidence
    assert coverage.min() < confidence + 0.02


def test_holdout_under_noise_covers_where_losses_are_nearly_zero_or_one():
    rng, confidence, held = np.random.default_rng(0), 0.7, []
    X, y = clouds(200, rng)
    model = GuruClassifier(1e-3).fit(X, y)
    X_all, y_all = clouds(100_000, rng)
    risk = ndtr(-y_all * model.decision_function(X_all) / (1e-3 * np.linalg.norm(model.coef_))).mean()
    for seed in range(300):
        X_new, y_new = clouds(100, np.random.default_rng(1000 + seed))
        held.append(risk_bound(model, X_new, y_new, method="holdout", confidence=confidence).bound >= risk)
    assert 0.7 <= np.mean(held) < 0.99


def test_no_bound_exceeds_one():
    X, y = np.random.default_rng(0).normal(size=(6, 2)), [0, 1] * 3
    model = GuruClassifier(0.01).fit(X, y)
    for method in ("sigma", "pac-bayes", "holdout"):
        assert risk_bound(model, X, y, method=method, confidence=1 - 1e-9).bound <= 1
    wrong = risk_bound(model, X, 1 - model.predict(X), method="holdout", sigma=0.0)
    assert wrong.bound == wrong.empirical == 1.0


# --- invariances --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_sigma_depends_on_neither_units_nor_order_nor_form(fit_intercept):
    rng = np.random.default_rng(0)
    X, y = clouds(500, rng)
    X[rng.uniform(size=X.shape) < 0.3] = 0.0
    reference = risk_bound(GuruClassifier(0.8, fit_intercept=fit_intercept).fit(X, y), X, y).bound
    order = rng.permutation(500)
    for scale, values in [
        (1.0, X[order]), (7.0, 7 * X[order]), (1.0, sp.csr_matrix(X[order])), (1.0, pd.DataFrame(X[order])),
        (1.0, X[order].astype(np.float32)),
    ] + ([(1.0, X[order] + 3.0)] if fit_intercept else []):  # fmt: skip
        labels = np.where(y[order] > 0, "up", "down")
        model = GuruClassifier(0.8 * scale, fit_intercept=fit_intercept, tol=1e-9).fit(values, labels)
        assert risk_bound(model, values, labels).bound == pytest.approx(reference, abs=1e-5)


def test_halves_of_all_forms_are_the_same():
    X, y = clouds(200, np.random.default_rng(0))
    index = np.random.default_rng(1).permutation(200)
    forms = [(sp.csr_array(X), y.tolist()), (pd.DataFrame(X, index=index), pd.Series(y, index=index)), (X.tolist(), y)]
    bounds, drawn = [], []
    for values, labels in [(X, y), *forms]:
        model = GuruClassifier(1.0, tol=1e-9).fit(values, labels)
        bounds.append(risk_bound(model, values, labels, method="pac-bayes").bound)
        display = RiskBoundDisplay.from_estimator(model, values, labels, n_samples=[50, 200], method="pac-bayes")
        drawn.append(display.bound)
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-5)
    np.testing.assert_allclose(drawn, np.tile(drawn[0], (4, 1)), rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_linear_kernel_is_the_linear_classifier(n_classes):
    rng = np.random.default_rng(0)
    X, y = clouds(200, rng) if n_classes == 2 else three(200, rng)
    linear = GuruClassifier(1.0, tol=1e-9).fit(X, y)
    kernel = KernelGuruClassifier(1.0, kernel="linear", tol=1e-9).fit(X, y)
    one, other = (risk_bound(model, X, y, sigma=2.0) for model in (linear, kernel))
    assert one.bound == pytest.approx(other.bound, rel=1e-5)
    assert one.empirical == pytest.approx(other.empirical, rel=1e-5)
    assert "kernel" in other.risk


def test_a_scaled_pipeline_has_the_bound_of_its_scores_in_units_of_the_input():
    X, y = load_iris(return_X_y=True)
    X, y = X[50:] * [1, 10, 100, 1], y[50:]
    pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    flat = LogisticRegression().fit(X, y)
    flat.coef_ = pipe[-1].coef_ / pipe[0].scale_
    flat.intercept_ = pipe[-1].intercept_ - flat.coef_ @ pipe[0].mean_
    one, other = (risk_bound(model, X, y, sigma=1.5) for model in (pipe, flat))
    assert one.bound == pytest.approx(other.bound, rel=1e-9)


def test_rbf_images_have_length_one():
    """Squared distances from the mean image add up to the trace of the centred kernel matrix."""
    rng = np.random.default_rng(0)
    X, y = clouds(120, rng, n_features=2)
    model = KernelGuruClassifier(0.4, gamma=0.3).fit(X, y)
    K = np.exp(-0.3 * np.square(X[:, np.newaxis] - X).sum(axis=2))
    centring = np.eye(120) - 1 / 120
    squares = _Scored.of(model, X, y).squares(np.arange(120), True)
    np.testing.assert_allclose(squares, np.diag(centring @ K @ centring), atol=1e-12)
    assert risk_bound(model, X, y).bound <= 1


def test_a_collapsed_classifier_has_the_risk_of_its_label():
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 10 == 0
    with pytest.warns(UserWarning, match="collapse|ignores"):
        model = GuruClassifier(50.0).fit(rng.normal(size=(2000, 2)), y)
    for method in ("sigma", "pac-bayes", "holdout"):
        found = risk_bound(model, rng.normal(size=(2000, 2)), y, method=method)
        assert found.empirical == pytest.approx(0.1, abs=0.05)
        assert 0.1 < found.bound < 0.35


# --- refusals and words -------------------------------------------------------------------------------------


def test_what_cannot_be_bounded_is_refused():
    rng = np.random.default_rng(0)
    X, y = clouds(40, rng)
    model = GuruClassifier(1.0).fit(X, y)
    for options, message in [
        ({"confidence": 1.0}, "confidence must be between 0 and 1; got 1.0"),
        ({"confidence": 0.0}, "confidence must be a finite number > 0"),
        ({"method": "vc"}, "method must be one of"),
        ({"sigma": -1.0}, "sigma must be a finite number >= 0; got -1.0"),
        ({"sigma": 0.0, "method": "sigma"}, r"sigma must be a number > 0 .* got 0\.0"),
        ({"sigma": 1.0, "method": "pac-bayes"}, "chooses the noise; got 1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            risk_bound(model, X, y, **options)
    with pytest.raises(ValueError, match="y must hold labels among the classes"):
        risk_bound(model, X, y + 5)
    with pytest.raises(ValueError, match="same number of samples; got 40 and 39"):
        risk_bound(model, X, y[:-1])
    for other in (GuruClassifier(1.0, noise=np.ones(10)), LogisticRegression(), GuruClassifierCV(2, cv=2)):
        with pytest.raises(ValueError, match=f"{type(other).__name__} has none of its own"):
            risk_bound(other.fit(X, y), X, y, method="sigma")
        assert risk_bound(other, X, y).method == "pac-bayes"
        assert risk_bound(other, X, y, sigma=1.0).method == "sigma"
    with pytest.raises(NotLinearError):
        risk_bound(SVC().fit(X, y), X, y)
    assert risk_bound(SVC().fit(X, y), *clouds(40, rng), method="holdout").bound < 1
    with pytest.raises(TypeError, match="X carries error bars"):
        risk_bound(model, Measured(X, np.ones(40)), y)
    K = X @ X.T
    with pytest.raises(ValueError, match="kernel='precomputed' keeps no samples"):
        risk_bound(KernelGuruClassifier(1.0, kernel="precomputed").fit(K, y), K, y)


def test_results_are_frozen_and_say_what_they_assume():
    X, y = clouds(100, np.random.default_rng(0))
    model = GuruClassifier(0.5).fit(X, y)
    found = risk_bound(model, X, y)
    with pytest.raises(FrozenInstanceError):
        found.bound = 0.0
    assert "Gaussian noise of 0.5 in every direction is added to X" in found.risk
    assert "sigma chosen before they were seen" in found.assumption
    assert "noise" not in risk_bound(model, X, y, method="holdout", sigma=0.0).risk
    assert "used to make the model" in risk_bound(model, X, y, method="holdout").assumption
    assert "times the norm" in risk_bound(model, X, y, method="pac-bayes").risk


@pytest.mark.parametrize("method", ["auto", "pac-bayes", "holdout"])
def test_the_display_shows_the_bounds_of_fits_to_subsamples(method):
    X, y = clouds(400, np.random.default_rng(0))
    display = RiskBoundDisplay.from_estimator(GuruClassifier(1.0), X, y, n_samples=[400, 50], method=method)
    np.testing.assert_array_equal(display.n_samples, [50, 400])
    np.testing.assert_array_equal(display.line_.get_xydata(), np.column_stack([[50, 400], display.bound]))
    np.testing.assert_array_equal(display.empirical_line_.get_ydata(), display.empirical)
    assert np.all(display.empirical < display.bound)
    if method != "holdout":
        order = np.random.default_rng(0).permutation(400)
        X, y = X[order], y[order]
        assert display.bound[1] == risk_bound(GuruClassifier(1.0).fit(X, y), X, y, method=method).bound
    again = RiskBoundDisplay.from_estimator(GuruClassifier(1.0), X, y, name="again", ax=display.ax_)
    labels = [text.get_text() for text in again.ax_.get_legend().get_texts()]
    assert labels.count("mean on the samples") == 1
    assert len(again.n_samples) == 8
    with pytest.raises(ValueError, match="whole numbers between 4 and 400"):
        RiskBoundDisplay.from_estimator(GuruClassifier(1.0), X, y, n_samples=[401])
