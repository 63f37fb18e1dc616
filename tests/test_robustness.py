"""What noise does to predictions: closed forms against SciPy and Monte Carlo, invariances, scorers."""

import itertools
from typing import ClassVar

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.metadata_routing import UNUSED
from support.common import every_form
from support.data import groups, joint_problem
from support.error_bars import conditional

from gaussguru import (
    ErrorBarClassifier,
    GuruClassifier,
    KernelGuruClassifier,
    PopulationClassifier,
)
from gaussguru._errors.checks import check_errors
from gaussguru._errors.samples import split_errors
from gaussguru._guru.probabilities import (
    bivariate_normal,
    lower_bound,
    rooted_probabilities,
    score_covariance,
    score_roots,
    top_probabilities,
    trivariate_normal,
)
from gaussguru._measured.affine import AffineMap
from gaussguru._measured.under_noise import with_larger_errors
from gaussguru._populations.em import population_of
from gaussguru._utils.linalg import graded_roots
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import LowRank, Measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import (
    NotLinearError,
    certified_radius,
    class_probabilities,
    expected_accuracy,
    expected_accuracy_scorer,
    flip_probability,
    log_loss_scorer,
    robustness_curve,
)

DRAWS = 40_000
# Five standard errors: below one false alarm in a million comparisons.
ERRORS = 5.0


def error_bars(n, d, seed=0):
    """Return error bars of every form, with zeros."""
    rng = np.random.default_rng(seed)
    std = rng.random((n, d)) * (rng.random((n, d)) < 0.7)
    factors = 0.5 * rng.standard_normal((n, d, 2))
    return {
        "per sample": rng.random(n),
        "diagonal": std,
        "csr": sp.csr_array(std),
        "covariances": np.einsum("ijr,ikr->ijk", factors, factors) + np.einsum("ij,jk->ijk", std**2, np.eye(d)),
        "low rank": LowRank(factors, std),
    }


every_error = pytest.mark.parametrize("name", error_bars(2, 2))


def problem(n_classes, n=60, d=4):
    X, y = groups([n // n_classes] * n_classes, d, 2.5, seed=n_classes)
    return X, y, GuruClassifier(0.7).fit(X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_coefficients_that_are_known_are_not_looked_for(monkeypatch, n_classes):
    """Looking takes the square of the number of features."""
    X, y, model = problem(n_classes)
    before = class_probabilities(model, X), flip_probability(model, X), certified_radius(model, X)
    monkeypatch.setattr(AffineMap, "of", None)
    after = class_probabilities(model, X), flip_probability(model, X), certified_radius(model, X)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert robustness_curve(model, X, y, [0.0, 0.5]).accuracy[0] == model.score(X, y)


def check_frequencies(probabilities, errors, counts):
    """Assert that counts of draws agree with probabilities, within the errors of both."""
    n_draws = counts.sum(axis=1, keepdims=True)
    spread = np.sqrt(np.maximum(probabilities * (1 - probabilities), 1 / n_draws) / n_draws + errors**2)
    assert np.all(np.abs(counts / n_draws - probabilities) <= ERRORS * spread + 1e-6)


def drawn(scores, covariance, rng):
    """Return how often each class is on top when noise is drawn."""
    counts = []
    for row, matrix in zip(scores, covariance, strict=True):
        values, axes = np.linalg.eigh(matrix)
        noise = rng.standard_normal((DRAWS, len(row))) @ (axes * np.sqrt(np.maximum(values, 0))).T
        counts.append(np.bincount(np.argmax(row + noise, axis=1), minlength=len(row)))
    return np.array(counts)


@pytest.mark.parametrize("correlation", [-1.0, -0.999999, -0.7, 0.0, 0.3, 0.99, 1.0])
def test_bivariate_normal(correlation):
    grid = np.array([-6.0, -1.3, -1e-9, 0.0, 0.4, 1.3, 2.0, np.inf, -np.inf])
    h, k = (part.ravel() for part in np.meshgrid(grid, grid))
    ours = bivariate_normal(h, k, np.full(len(h), correlation))
    if abs(correlation) == 1:
        exact = ndtr(np.minimum(h, k)) if correlation > 0 else np.maximum(0.0, ndtr(h) - ndtr(-k))
        np.testing.assert_allclose(ours, exact, atol=1e-15)
        return
    cov = [[1.0, correlation], [correlation, 1.0]]
    finite = np.isfinite(h) & np.isfinite(k)
    theirs = [multivariate_normal.cdf(point, cov=cov) for point in zip(h[finite], k[finite], strict=True)]
    np.testing.assert_allclose(ours[finite], theirs, atol=2e-14)
    limits = np.where((h == -np.inf) | (k == -np.inf), 0.0, ndtr(np.minimum(h, k)))
    np.testing.assert_allclose(ours[~finite], limits[~finite], atol=1e-15)


def test_bivariate_normal_at_the_origin():
    r = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(bivariate_normal(np.zeros(9), np.zeros(9), r), 0.25 + np.arcsin(r) / (2 * np.pi))


@pytest.mark.parametrize("size", [0.0, 0.5, 0.99, 0.999999])
def test_trivariate_normal(size):
    """Against another integral, over the first variable, of bivariate probabilities of the others."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        h, axes = rng.standard_normal(3), rng.standard_normal((3, 3)) * np.array([1.0, 1.0 - size, 1.0 - size])
        covariance = axes @ axes.T
        R = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        r12, r13, r23 = R[0, 1], R[0, 2], R[1, 2]
        left = np.sqrt(1 - r12**2), np.sqrt(1 - r13**2)
        inner = (r23 - r12 * r13) / (left[0] * left[1])

        def integrand(t, h=h, r12=r12, r13=r13, left=left, inner=inner):
            among = bivariate_normal((h[1] - r12 * t) / left[0], (h[2] - r13 * t) / left[1], np.clip(inner, -1, 1))
            return np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi) * float(among)

        breaks = sorted(point for point in (h[1] / r12, h[2] / r13) if -9 < point < h[0])
        exact, _ = quad(integrand, -9, h[0], points=breaks or None, epsabs=1e-12, epsrel=1e-12, limit=500)
        ours = trivariate_normal(h[:, np.newaxis], np.array([[r12], [r13], [r23]]))[0]
        assert ours == pytest.approx(exact, abs=1e-9 if size < 0.99 else 1e-4)
    free = np.array([[0.3], [-np.inf], [np.inf]])
    assert trivariate_normal(free, np.zeros((3, 1)))[0] == 0
    assert trivariate_normal(np.abs(free), np.full((3, 1), 0.4))[0] == pytest.approx(ndtr(0.3))


def test_probabilities_that_do_not_add_up_are_found_by_sampling():
    """Nearly flat noise, of which the integral of four classes has too few points."""
    rng = np.random.default_rng(1)
    axes = rng.standard_normal((60, 4, 4)) * np.array([1e3, 1.0, 1.0, 1.0])
    scores, covariance = 5 * rng.standard_normal((60, 4)), axes @ axes.transpose(0, 2, 1) + 0.5 * np.eye(4)
    probabilities, errors = top_probabilities(scores, covariance)
    assert (errors > 1e-6).any()
    assert errors.max() < 0.01
    check_frequencies(probabilities, errors, drawn(scores, covariance, rng))


@pytest.mark.parametrize(("n_classes", "rank"), [(3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 4), (6, 3), (10, 10)])
def test_top_probabilities_by_sampling(n_classes, rank):
    rng = np.random.default_rng(n_classes * rank)
    scores = rng.standard_normal((12, n_classes))
    axes = 0.8 * rng.standard_normal((12, n_classes, rank))
    covariance = axes @ axes.transpose(0, 2, 1)
    probabilities, errors = top_probabilities(scores, covariance)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-14)
    assert (errors.max() == 0) == (n_classes == 3 or rank == 1)
    assert errors.max() < 0.01
    check_frequencies(probabilities, errors, drawn(scores, covariance, rng))


def test_top_probabilities_of_three_classes_by_quadrature():
    rng = np.random.default_rng(3)
    scores, axes = rng.standard_normal((5, 3)), rng.standard_normal((5, 3, 3))
    covariance = axes @ axes.transpose(0, 2, 1)
    ours, _ = top_probabilities(scores, covariance)
    differences = np.array([[[1, -1, 0], [1, 0, -1]], [[-1, 1, 0], [0, 1, -1]], [[-1, 0, 1], [0, -1, 1]]])
    for i in range(5):
        for k, D in enumerate(differences):
            theirs = multivariate_normal.cdf(D @ scores[i], cov=D @ covariance[i] @ D.T)
            assert ours[i, k] == pytest.approx(theirs, abs=1e-13)


def test_top_probabilities_of_equal_classes():
    """All classes alike: one over their number, whatever the noise common to all."""
    for n_classes in (3, 5, 8):
        covariance = np.eye(n_classes) + 7.0
        probabilities, errors = top_probabilities(np.zeros((1, n_classes)), covariance)
        assert np.all(np.abs(probabilities - 1 / n_classes) <= ERRORS * errors + 1e-14)


def test_top_probabilities_of_independent_scores_in_high_precision():
    scores, spread = np.array([0.3, -0.2, 0.9, 0.1]), np.array([0.5, 1.0, 0.2, 0.7])
    ours, errors = top_probabilities(scores[np.newaxis], np.diag(spread**2))
    for k in range(4):
        others = [j for j in range(4) if j != k]

        def integrand(t, k=k, others=others):
            below = [mpmath.ncdf((t - scores[j]) / spread[j]) for j in others]
            return mpmath.npdf(t, scores[k], spread[k]) * mpmath.fprod(below)

        exact = float(mpmath.quad(integrand, [-8, -2, -1, 0, 0.5, 1, 1.5, 2, 4, 8]))
        assert abs(ours[0, k] - exact) <= ERRORS * errors[0, k]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(3, 6), st.integers(1, 4), st.integers(0, 10_000))
def test_top_probabilities_invariances(n_classes, rank, seed):
    rng = np.random.default_rng(seed)
    scores, axes = rng.standard_normal((3, n_classes)), rng.standard_normal((3, n_classes, rank))
    covariance = axes @ axes.transpose(0, 2, 1)
    ours, errors = top_probabilities(scores, covariance)
    np.testing.assert_array_equal(top_probabilities(scores, covariance)[0], ours)
    room = ERRORS * errors + 1e-9
    order = rng.permutation(n_classes)
    permuted, more = top_probabilities(scores[:, order], covariance[:, order][:, :, order])
    assert np.all(np.abs(permuted - ours[:, order]) <= room[:, order] + ERRORS * more)
    scaled, _ = top_probabilities(8 * scores, 64 * covariance)
    np.testing.assert_allclose(scaled, ours, atol=1e-9)
    shifted, _ = top_probabilities(scores + 3.0, covariance)
    np.testing.assert_allclose(shifted, ours, atol=1e-9)
    for k in range(n_classes):
        assert np.all(lower_bound(scores, axes, np.full(3, k)) <= ours[:, k] + room[:, k] + 2e-6)


def test_top_probabilities_without_noise_and_with_little():
    scores = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    expected = [[0, 1, 0], [1, 0, 0]]  # a tie goes to the first, as in predict
    np.testing.assert_array_equal(top_probabilities(scores, np.zeros((3, 3)))[0], expected)
    np.testing.assert_allclose(top_probabilities(scores, 1e-30 * np.eye(3))[0], [[0, 1, 0], [0.5, 0.5, 0]], atol=1e-12)
    tiny, _ = top_probabilities(np.array([[0.0, 10.0, 20.0]]), np.eye(3))
    assert tiny[0, 1] == pytest.approx(float(ndtr(-10 / np.sqrt(2))), rel=1e-3)


@every_error
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_score_covariance(name, n_classes):
    X, _, clf = problem(n_classes)
    errors = check_errors(error_bars(len(X), X.shape[1])[name], X)
    ours = score_covariance(clf.coef_, errors)
    theirs = [clf.coef_ @ errors.covariance(i) @ clf.coef_.T for i in range(len(X))]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    roots = score_roots(clf.coef_, errors)
    np.testing.assert_allclose(roots @ roots.transpose(0, 2, 1), theirs, atol=1e-12)


@pytest.mark.parametrize("size", [1e4, 1e9, 1e17, 1e60])
@pytest.mark.parametrize("slopes", [(1.0, 1.0, -1.0), (1.0, 1.0, -1.0, 0.0), (-2.0, 3.0, 0.5, 3.0, 1.0)])
def test_small_noise_beside_large(size, slopes):
    """Classes that a large error moves alike are told apart by small ones, however large it is.

    A large error puts one of the two ends of the slopes on top, each with a half; of two classes at one end that is
    the one with the higher score under the rest of the noise.
    """
    slopes, rng = np.array(slopes), np.random.default_rng(len(slopes))
    first, second = np.flatnonzero(slopes == slopes.max())
    scores, small = rng.standard_normal((6, len(slopes))), rng.uniform(0.5, 2.0, (6, 2))
    W = np.column_stack([slopes, rng.standard_normal((len(slopes), 2))])
    apart = np.sqrt(np.square((W[first] - W[second])[1:]) @ np.square(small).T)
    expected = np.zeros(scores.shape)
    expected[:, first] = 0.5 * ndtr((scores[:, first] - scores[:, second]) / apart)
    expected[:, second] = 0.5 - expected[:, first]
    expected[:, np.argmin(slopes)] = 0.5
    std = np.column_stack([np.full(6, size), small])
    for X_err in (
        std,
        std[:, :, np.newaxis] * np.eye(3) * std[:, np.newaxis],
        LowRank(std[:, :, np.newaxis] * np.eye(3)),
    ):
        X, given = split_errors(np.zeros((6, 3)), X_err)
        found, errors = rooted_probabilities(scores, score_roots(W, check_errors(given, X)))
        by_points = 0.0 if len(slopes) == 3 else 2e-3  # by 256 of them, eight times
        assert np.all(np.abs(found - expected) <= ERRORS * errors + by_points + 10 / size + 1e-12)


@pytest.mark.parametrize("size", [1e2, 1e8, 1e30])
def test_graded_roots_keep_the_digits_of_every_difference(size):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4, 5, 7)) * size ** np.array([0, 3, 1, 0, 2, 0, 4])
    rows[:, 1, 6] = rows[:, 3, 6]
    rows[:, 4] = -3.0 * rows[:, 0]
    roots = graded_roots(rows)
    assert not roots[:, :, 4:].any()  # one row is a multiple of another
    mpmath.mp.dps = 400
    for matrix, root in zip(rows, roots, strict=True):
        for i, k in itertools.combinations(range(5), 2):
            expected, found = (
                mpmath.fsum((mpmath.mpf(a) - mpmath.mpf(b)) ** 2 for a, b in zip(part[i], part[k], strict=True))
                for part in (matrix.tolist(), root.tolist())
            )
            assert abs(found / expected - 1) < 1e-11


@every_error
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_probabilities_and_accuracy_by_sampling(name, n_classes):
    X, y, clf = problem(n_classes)
    X_err = error_bars(*X.shape)[name]
    rng = np.random.default_rng(7)
    errors = check_errors(X_err, X)
    W, b = clf.coef_, clf.intercept_
    if n_classes == 2:
        W, b = np.vstack([np.zeros_like(W), W]), np.append(0.0, b)
    counts, hits, runs = np.zeros((len(X), n_classes)), [], 3000
    for _ in range(runs):
        noisy = X + errors.sample(rng)
        hits.append(np.mean(np.argmax(noisy @ W.T + b, axis=1) == y))
        noisy += 0.7 * rng.standard_normal(X.shape)  # that of the model comes on top of the error bars
        counts[np.arange(len(X)), np.argmax(noisy @ W.T + b, axis=1)] += 1
    probabilities, quadrature = class_probabilities(clf, X, X_err=X_err, return_error=True)
    check_frequencies(probabilities, quadrature, counts)
    flips = flip_probability(clf, X, X_err=X_err)
    stays = probabilities[np.arange(len(X)), clf.predict(X)]
    np.testing.assert_allclose(flips, 1 - stays, atol=1e-12)
    accuracy = expected_accuracy(clf, X, y, X_err=X_err)
    room = ERRORS * np.std(hits) / np.sqrt(runs) + quadrature.mean()
    assert abs(accuracy - np.mean(hits)) <= room
    assert expected_accuracy(clf, X, y, X_err=X_err, bound=True) <= accuracy + quadrature.mean() + 1e-12
    assert expected_accuracy_scorer(clf, Measured(X, X_err), y) == pytest.approx(accuracy, abs=1e-12)
    # The accuracy itself is that of the predictions.
    assert clf.score(X, y, X_err=X_err) == clf.score(Measured(X, X_err), y) == np.mean(clf.predict(X) == y)
    if n_classes == 2:
        np.testing.assert_allclose(clf.predict_proba(X, X_err), probabilities, atol=1e-14)
        np.testing.assert_allclose(clf.predict_proba(Measured(X, X_err)), probabilities, atol=1e-14)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_no_errors_are_plain_predictions(n_classes):
    X, y, clf = problem(n_classes)
    assert clf.score(X, y, X_err=np.zeros(len(X))) == clf.score(X, y)
    assert expected_accuracy(clf, X, y, X_err=np.zeros(len(X))) == clf.score(X, y)
    np.testing.assert_array_equal(class_probabilities(clf, X, X_err=np.zeros_like(X)), class_probabilities(clf, X))
    if n_classes == 2:
        np.testing.assert_array_equal(clf.predict_proba(X, np.zeros(len(X))), clf.predict_proba(X))


def test_constant_errors_add_to_sigma():
    X, y, clf = problem(2)
    wider = GuruClassifier(np.hypot(0.7, 0.4))
    wider.fit(X, y)
    wider.coef_, wider.intercept_ = clf.coef_, clf.intercept_
    np.testing.assert_allclose(clf.predict_proba(X, np.full(len(X), 0.4)), wider.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(expected_accuracy(clf, X, y), expected_accuracy(clf, X, y, X_err=np.full(len(X), 0.7)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_of_the_model_as_error_bars(n_classes):
    X, y, _ = problem(n_classes)
    std = np.array([0.2, 1.0, 0.5, 0.7])
    for noise, X_err in ((std, np.tile(0.7 * std, (len(X), 1))), ("isotropic", np.full(len(X), 0.7))):
        clf = GuruClassifier(0.7, noise=noise).fit(X, y)
        assert expected_accuracy(clf, X, y) == pytest.approx(expected_accuracy(clf, X, y, X_err=X_err), abs=1e-12)


def test_weights_are_repetitions():
    X, y, clf = problem(3)
    X_err = error_bars(*X.shape)["diagonal"]
    times = np.arange(len(X)) % 3
    again = np.repeat(np.arange(len(X)), times)
    for function in (
        lambda rows, weight: expected_accuracy(clf, X[rows], y[rows], X_err=X_err[rows], sample_weight=weight),
        lambda rows, weight: clf.score(X[rows], y[rows], weight, X_err[rows]),
        lambda rows, weight: log_loss_scorer(clf, X[rows], y[rows], X_err=X_err[rows], sample_weight=weight),
        lambda rows, weight: robustness_curve(clf, X[rows], y[rows], [0.5], sample_weight=weight).accuracy[0],
    ):
        assert function(np.arange(len(X)), times) == pytest.approx(function(again, None), rel=1e-12)


@every_form
@pytest.mark.parametrize("n_classes", [2, 3])
def test_forms_of_features(form, n_classes):
    X, y, clf = problem(n_classes)
    X = X.astype(np.float32).astype(np.float64)
    X_err = error_bars(*X.shape)["csr"]
    np.testing.assert_allclose(
        class_probabilities(clf, form(X), X_err=X_err), class_probabilities(clf, X, X_err=X_err), atol=1e-6
    )
    np.testing.assert_allclose(certified_radius(clf, form(X)), certified_radius(clf, X), rtol=1e-5, atol=1e-6)
    assert clf.score(form(X), y, X_err=X_err) == pytest.approx(clf.score(X, y, X_err=X_err), abs=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_certified_radius(n_classes):
    """No displacement that is shorter changes the label, and one that is a little longer does."""
    X, _, clf = problem(n_classes, n=70)
    labels, radius = clf.predict(X), certified_radius(clf, X)
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = rng.standard_normal(X.shape)
        step *= (radius * (1 - 1e-9) / np.linalg.norm(step, axis=1))[:, np.newaxis]
        np.testing.assert_array_equal(clf.predict(X + step), labels)
    W = clf.coef_ if n_classes > 2 else np.vstack([np.zeros(X.shape[1]), clf.coef_[0]])
    changed = np.zeros(len(X), dtype=bool)
    for k in range(n_classes):
        away = W[k] - W[labels]
        length = np.linalg.norm(away, axis=1)
        step = away * np.divide(radius * (1 + 1e-6), length, out=np.zeros_like(length), where=length > 0)[:, np.newaxis]
        changed |= clf.predict(X + step) != labels
    assert changed.all()


def test_radius_of_a_constant_classifier_is_infinite():
    X, y, clf = problem(2)
    clf.coef_ = np.zeros_like(clf.coef_)
    assert np.all(np.isposinf(certified_radius(clf, X)))
    assert np.all(flip_probability(clf, X, X_err=np.ones(len(X))) == 0)
    assert expected_accuracy(clf, X, y, X_err=np.ones(len(X))) == clf.score(X, y)


@pytest.mark.parametrize("final", [LinearSVC(), LogisticRegression(max_iter=10_000), GuruClassifier(0.3)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_pipelines_and_other_linear_classifiers(final, n_classes):
    """A pipeline is one linear classifier of what it is given."""
    X, y, _ = problem(n_classes)
    X = X * [1.0, 5.0, 0.2, 30.0] + [0.0, 100.0, 0.0, -3.0]
    X_err = error_bars(*X.shape)["diagonal"]
    pipe = make_pipeline(StandardScaler(), final).fit(X, y)
    scale = pipe[0].scale_
    plain = clone(final).fit(X, y)
    plain.coef_, plain.intercept_ = pipe[1].coef_ / scale, pipe[1].intercept_ - pipe[1].coef_ @ (pipe[0].mean_ / scale)
    np.testing.assert_allclose(certified_radius(pipe, X), certified_radius(plain, X), rtol=1e-8)
    assert expected_accuracy(pipe, X, y, X_err=X_err) == pytest.approx(
        expected_accuracy(plain, X, y, X_err=X_err), abs=1e-9
    )
    curves = [robustness_curve(model, X, y, [0.0, 0.3]) for model in (pipe, plain)]
    np.testing.assert_allclose(curves[0].accuracy, curves[1].accuracy, atol=1e-9)
    frame = pd.DataFrame(X, columns=list("abcd"))
    named = make_pipeline(StandardScaler(), final).fit(frame, y)
    np.testing.assert_allclose(certified_radius(named, frame), certified_radius(plain, X), rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_robustness_curve_both_ways(n_classes):
    X, y, clf = problem(n_classes)
    levels = [0.0, 0.2, 1.0, 4.0]
    analytic = robustness_curve(clf, X, y, levels)
    sampled = robustness_curve(clf, X, y, levels, method="sampling", n_repeats=200, random_state=0)
    assert analytic.accuracy[0] == sampled.accuracy[0] == clf.score(X, y)
    room = ERRORS * np.hypot(analytic.error, sampled.error)
    assert np.all(np.abs(analytic.accuracy - sampled.accuracy) <= room)
    assert n_classes > 3 or not analytic.error.any()
    np.testing.assert_array_equal(
        robustness_curve(clf, X, y, levels, method="sampling", random_state=5).accuracy,
        robustness_curve(clf, X, y, levels, method="sampling", random_state=5).accuracy,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", ["sample", "value", "covariance", "factors", "sparse"])
def test_robustness_curve_in_multiples_of_error_bars(n_classes, form):
    X, y, clf = problem(n_classes)
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(*X.shape, 2))
    X_err, twice = {
        "sample": (e := rng.random(len(X)), 2 * e),
        "value": (e := rng.random(X.shape), 2 * e),
        "covariance": (c := factors @ factors.swapaxes(1, 2), 4 * c),
        "factors": (LowRank(factors), LowRank(2 * factors)),
        "sparse": (s := sp.random_array(X.shape, density=0.5, rng=0, format="csr"), 2 * s),
    }[form]
    curve = robustness_curve(clf, X, y, [0.0, 1.0, 2.0], X_err=X_err)
    expected = [clf.score(X, y), expected_accuracy(clf, X, y, X_err=X_err), expected_accuracy(clf, X, y, X_err=twice)]
    np.testing.assert_allclose(curve.accuracy, expected, rtol=1e-12)
    sampled = robustness_curve(clf, X, y, [2.0], X_err=X_err, method="sampling", n_repeats=200, random_state=0)
    assert abs(sampled.accuracy[0] - curve.accuracy[2]) <= ERRORS * sampled.error[0]
    with pytest.raises(ValueError, match="X_err"):
        robustness_curve(clf, X, y, [1.0], X_err=rng.random(3))


def test_robustness_curve_of_what_was_not_measured():
    X, y, _ = problem(2)
    X_err = np.full(X.shape, 0.3)
    clf = GuruClassifier(0.5).fit(X, y, X_err=X_err)
    gone, X_err[:5, 0] = X.copy(), np.inf
    gone[:5, 0] = np.nan
    curve = robustness_curve(clf, gone, y, [0.0, 1.0], X_err=X_err)
    filled, errors = conditional(clf.population_, gone, X_err)
    np.testing.assert_allclose(curve.accuracy, [clf.score(filled, y), expected_accuracy(clf, filled, y, X_err=errors)])


def test_robustness_curve_of_any_classifier_by_sampling():
    X, y, _ = problem(3)
    for model in (RandomForestClassifier(20, random_state=0), KernelGuruClassifier(0.1)):
        curve = robustness_curve(model.fit(X, y), X, y, [0.0, 100.0], method="sampling", random_state=0)
        assert curve.accuracy[0] == model.score(X, y) > curve.accuracy[1]


def test_real_data_by_sampling():
    X, y = joint_problem("wine")
    clf = GuruClassifier(0.5).fit(X, y)
    rng = np.random.default_rng(0)
    X_err = 0.5 + rng.random(X.shape)
    hits = [clf.score(X + X_err * rng.standard_normal(X.shape), y) for _ in range(1000)]
    assert abs(expected_accuracy(clf, X, y, X_err=X_err) - np.mean(hits)) <= ERRORS * np.std(hits) / np.sqrt(len(hits))


def test_log_loss_scorer():
    X, y, clf = problem(2)
    X_err = error_bars(*X.shape)["diagonal"]
    assert log_loss_scorer(clf, X, y, X_err=X_err) == pytest.approx(
        -log_loss(y, clf.predict_proba(X, X_err)), rel=1e-12
    )
    X, y, clf = problem(4)
    probabilities = class_probabilities(clf, X)
    assert log_loss_scorer(clf, X, y) == pytest.approx(-log_loss(y, probabilities), rel=1e-9)


def test_log_loss_of_calibrated_classifiers_is_that_of_their_own_probabilities():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(120, 2))
    y = np.where(truth[:, 0] + 0.5 * rng.normal(size=120) > 0, "b", "a")
    err = rng.uniform(0.1, 1.0, truth.shape)
    X = truth + err * rng.normal(size=truth.shape)
    models = (
        ErrorBarClassifier(model="linear", n_components=1, cv=2),
        make_pipeline(Deconvolve(), CalibratedWithErrorsCV(GuruClassifier(), cv=2)),
    )
    for model in models:
        model.fit(Measured(X, err), y)
        expected = -log_loss(y, model.predict_proba(Measured(X, err)))
        assert log_loss_scorer(model, Measured(X, err), y) == pytest.approx(expected, rel=1e-9)
        assert log_loss_scorer(model, X, y, X_err=err) == pytest.approx(expected, rel=1e-9)
    found = cross_val_score(models[0], Measured(X, err), y, cv=2, scoring=log_loss_scorer)
    assert np.isfinite(found).all()


def measured_problem(n=60, n_classes=2):
    rng = np.random.default_rng(3)
    y = np.arange(n) % n_classes
    err = rng.uniform(0.1, 1.0, (n, 2))
    X = rng.normal(size=(n, 2)) + 2 * np.array([[0, 0], [1, 1], [1, -1]])[y] + err * rng.normal(size=(n, 2))
    return X, err, y


# Of every kind whose labels depend on the error bars.
COUNTING = {
    "error bars": ErrorBarClassifier(model="linear", n_components=1, cv=2),
    "pool": ErrorBarClassifier(model="rbf", n_components=1, cv=2),
    "populations": PopulationClassifier(1),
    "calibrated": CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2),
    "posteriors": make_pipeline(Deconvolve(2), GuruClassifier(0.3)),
    "curved": make_pipeline(WithErrors(PowerTransformer()), GuruClassifier(0.3)),
}
every_counting = pytest.mark.parametrize("model", COUNTING.values(), ids=COUNTING)


@every_counting
@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_that_a_classifier_is_told_of(model, n_classes):
    """Curves and expected accuracies against noise drawn here, with the errors that the noisy values then have."""
    X, err, y = measured_problem(n_classes=n_classes)
    model = clone(model).fit(Measured(X, err), y)
    levels, repeats, rng = [0.0, 1.0, 2.5], 40, np.random.default_rng(5)
    weights = rng.uniform(0.5, 2.0, len(y))
    curve = robustness_curve(model, X, y, levels, X_err=err, method="sampling", n_repeats=repeats, random_state=0)
    heavy = robustness_curve(
        model, X, y, levels[1:], X_err=err, method="sampling", n_repeats=repeats, random_state=0, sample_weight=weights
    )
    assert (curve.accuracy[0], curve.error[0]) == (model.score(Measured(X, err), y), 0.0)
    for k, level in enumerate(levels[1:]):
        draws = [
            model.predict(Measured(X + level * err * rng.normal(size=X.shape), np.sqrt(1 + level**2) * err)) == y
            for _ in range(repeats)
        ]
        for found, weight in ((curve, np.ones(len(y))), (heavy, weights)):
            place = k + (found is curve)
            accuracy = np.average(draws, axis=1, weights=weight)
            spread = np.hypot(found.error[place], accuracy.std(ddof=1) / np.sqrt(repeats))
            assert abs(found.accuracy[place] - accuracy.mean()) <= ERRORS * spread
    given = {"X_err": err, "sample_weight": weights}
    again = robustness_curve(model, X, y, [1.0], **given, method="sampling", n_repeats=7, random_state=3)
    assert expected_accuracy(model, X, y, **given, n_repeats=7, random_state=3) == again.accuracy[0]
    assert expected_accuracy_scorer(model, X, y, **given) == expected_accuracy(model, Measured(X, err), y, **given)
    for refused in (
        lambda: robustness_curve(model, X, y, levels, X_err=err),
        lambda: expected_accuracy(model, X, y, X_err=err, bound=True),
        lambda: certified_radius(model, Measured(X, err)),
    ):
        with pytest.raises(NotLinearError, match=r"depend on the error bars as well as on X.*: use"):
            refused()


@every_counting
def test_flips_of_labels_that_depend_on_error_bars(model):
    X, err, y = measured_problem()
    model = clone(model).fit(Measured(X, err), y)
    found = flip_probability(model, X, X_err=err, n_repeats=200)
    before = model.predict(Measured(X, err))
    probabilities = class_probabilities(model, X, X_err=err)
    if hasattr(model, "steps"):  # a linear classifier of posteriors: in closed form
        np.testing.assert_allclose(found, 1 - probabilities[np.arange(len(y)), before], atol=1e-12)
        return
    np.testing.assert_array_equal(probabilities, model.predict_proba(X, X_err=err))
    rng = np.random.default_rng(7)
    draws = [model.predict(X + err * rng.normal(size=X.shape), X_err=np.sqrt(2) * err) for _ in range(200)]
    changed = np.sum(np.asarray(draws) != before, axis=0)
    check_frequencies(*flips_of(found, 200), np.column_stack([200 - changed, changed]))
    assert found.any()
    np.testing.assert_array_equal(flip_probability(model, Measured(X, err), n_repeats=200), found)


def flips_of(found, n_draws):
    """Return probabilities of no change and of one, and their standard errors."""
    error = np.sqrt(np.maximum(found * (1 - found), 1 / n_draws) / n_draws)[:, np.newaxis]
    return np.column_stack([1 - found, found]), np.hstack([error, error])


def test_flips_of_a_calibrated_linear_classifier_in_closed_form():
    """Of two classes the label is the sign of the calibrated score, which errors do not move."""
    X, err, y = measured_problem()
    model = CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2).fit(X, y, X_err=err)
    w = model.estimator_.coef_[0]
    z = (X @ w + model.estimator_.intercept_ + model.beta_ / model.alpha_) / np.sqrt(err**2 @ w**2)
    found = flip_probability(model, X, X_err=err, n_repeats=400)
    assert np.all(np.abs(found - ndtr(-np.abs(z))) <= ERRORS * np.sqrt(ndtr(-np.abs(z)) / 400) + 1e-9)
    expected = ndtr(np.where(y == 1, z, -z)).mean()
    curve = robustness_curve(model, X, y, [1.0], X_err=err, method="sampling", n_repeats=400, random_state=0)
    assert abs(curve.accuracy[0] - expected) <= ERRORS * curve.error[0]


def test_probabilities_of_posteriors_from_their_formula():
    X, err, y = measured_problem()
    model = make_pipeline(Deconvolve(1), GuruClassifier(0.3)).fit(Measured(X, err), y)
    mu, T, w = model[0].means_[0], model[0].covariances_[0], model[1].coef_[0]
    z = []
    for x, e in zip(X, err, strict=True):
        G = T @ np.linalg.inv(T + np.diag(e**2))
        z.append((w @ (mu + G @ (x - mu)) + model[1].intercept_[0]) / np.sqrt(w @ (T - G @ T) @ w + 0.09 * w @ w))
    np.testing.assert_allclose(class_probabilities(model, X, X_err=err)[:, 1], ndtr(z), rtol=1e-9)
    np.testing.assert_allclose(flip_probability(model, X, X_err=err), ndtr(-np.abs(z)), rtol=1e-9)


def test_larger_errors_in_every_form():
    """Noise has the covariance of the error bars, and the new bars are those of both noises; sparse X becomes dense."""
    X, err, _ = measured_problem(4)
    for name, errors in {**error_bars(4, 2), "frame": pd.DataFrame(err)}.items():
        more = with_larger_errors(X, errors, 2.0, np.random.default_rng(0))
        before, after = (check_errors(split_errors(X, each)[1], X) for each in (errors, more.err))
        for i in range(4):
            np.testing.assert_allclose(after.covariance(i), 4 * before.covariance(i), atol=1e-14, err_msg=name)
        draws = [with_larger_errors(X, errors, 2.0, np.random.default_rng(seed)).X - X for seed in range(1000)]
        spread = np.einsum("sij,sik->ijk", draws, draws) / 1000
        expected = 3 * np.array([before.covariance(i) for i in range(4)])
        np.testing.assert_allclose(spread, expected, atol=ERRORS * np.sqrt(2 / 1000) * expected.max())
    noisy = with_larger_errors(sp.csr_array(X), sp.csr_array(err), 2.0, np.random.default_rng(0))
    np.testing.assert_array_equal(noisy.X, with_larger_errors(X, err, 2.0, np.random.default_rng(0)).X)


def test_classifiers_fitted_without_error_bars():
    """They stay linear for exact values; error bars that are given count."""
    X, err, y = measured_problem()
    model = ErrorBarClassifier(model="linear", cv=2).fit(X, y)
    assert robustness_curve(model, X, y, [0.0]).accuracy[0] == model.score(X, y)
    assert np.isfinite(certified_radius(model, X)).all()
    np.testing.assert_array_equal(class_probabilities(model, X), model.predict_proba(X))
    np.testing.assert_array_equal(class_probabilities(model, X, X_err=err), model.predict_proba(X, err))
    np.testing.assert_array_equal(
        class_probabilities(model, X, X_err=0.5), model.predict_proba(X, np.full(len(X), 0.5))
    )
    for function in (lambda: flip_probability(model, X), lambda: expected_accuracy(model, X, y)):
        with pytest.raises(ValueError, match="X_err must be given: ErrorBarClassifier has no noise of its own"):
            function()


def test_the_radius_of_what_was_not_measured_is_that_of_the_filled_values():
    X, y, _ = problem(2)
    err = np.full(X.shape, 0.3)
    clf = GuruClassifier(0.3).fit(X, y, X_err=err)
    err[3, 1] = np.inf
    radius = [certified_radius(clf, Measured(np.where(np.isinf(err), value, X), err)) for value in (np.nan, 1e6)]
    filled, _ = conditional(clf.population_, X, err)
    for found in radius:
        np.testing.assert_allclose(found, certified_radius(clf, filled))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("scorer", [expected_accuracy_scorer, log_loss_scorer], ids=["accuracy", "log loss"])
def test_scorers_see_the_errors_of_each_fold(scorer, n_classes):
    X, y, _ = problem(n_classes)
    X_err = error_bars(*X.shape)["covariances"]
    folds = KFold(3, shuffle=True, random_state=0)
    sigmas = [0.1, 1.0]
    expected = [
        [scorer(GuruClassifier(s).fit(X[a], y[a]), X[b], y[b], X_err=X_err[b]) for a, b in folds.split(X)]
        for s in sigmas
    ]
    with sklearn.config_context(enable_metadata_routing=True):
        asking = clone(scorer)
        # One that takes no error bars in its fit: what is routed goes to the scorer alone.
        search = GridSearchCV(Quiet(), {"sigma": sigmas}, scoring=asking, cv=folds, error_score="raise")
        search.fit(X, y, X_err=X_err)
        ours = [search.cv_results_[f"split{i}_test_score"] for i in range(3)]
        np.testing.assert_allclose(np.transpose(ours), expected, rtol=1e-9)
        scores = cross_val_score(Quiet(1.0), X, y, scoring=asking, cv=folds, params={"X_err": X_err})
        np.testing.assert_allclose(scores, expected[1], rtol=1e-9)
    # Without routing, in one argument.
    both = cross_val_score(Quiet(1.0), Measured(X, X_err), y, scoring=scorer, cv=folds)
    np.testing.assert_allclose(both, expected[1], rtol=1e-9)


class Quiet(GuruClassifier):
    """A classifier that is fitted without error bars, whatever X carries."""

    __metadata_request__fit: ClassVar = {"X_err": UNUSED}

    def fit(self, X, y):
        return super().fit(X.X if isinstance(X, Measured) else X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_unmeasured_values(n_classes):
    """They are worth what the measured ones of the same sample say of them."""
    X, y, clf = problem(n_classes)
    X_err = error_bars(*X.shape)["diagonal"]
    missing = np.random.default_rng(1).random(X.shape) < 0.1
    values, errors = np.where(missing, np.nan, X), np.where(missing, np.inf, X_err)
    clf.population_ = population_of(values, errors)
    pipe = make_pipeline(WithErrors(), clf)
    pipe[0].fit(values, X_err=errors)
    filled, finite = conditional(clf.population_, values, errors)
    for model in (clf, pipe):
        np.testing.assert_allclose(
            class_probabilities(model, values, X_err=errors),
            class_probabilities(clf, filled, X_err=finite),
            rtol=1e-6,
            atol=1e-9,
        )
        accuracy = expected_accuracy(clf, filled, y, X_err=finite)
        assert expected_accuracy(model, Measured(values, errors), y) == pytest.approx(accuracy)
        assert model.score(Measured(values, errors), y) == clf.score(filled, y)
    np.testing.assert_array_equal(clf.predict(Measured(values, errors)), clf.predict(filled))


def test_errors_and_weights_are_given_by_name():
    X, y, clf = problem(2)
    X_err = np.ones(len(X))
    for call in (
        lambda: class_probabilities(clf, X, X_err),
        lambda: flip_probability(clf, X, X_err),
        lambda: expected_accuracy(clf, X, y, X_err),
    ):
        with pytest.raises(TypeError, match="positional"):
            call()


def test_lists():
    X, y, clf = problem(3)
    lists = X.tolist(), y.tolist(), np.ones(X.shape).tolist()
    assert expected_accuracy(clf, *lists[:2], X_err=lists[2]) == expected_accuracy(clf, X, y, X_err=np.ones(X.shape))
    assert clf.score(*lists[:2], X_err=lists[2]) == clf.score(X, y)


def test_what_cannot_be_done_says_so():
    X, y, clf = problem(3)
    X_err = np.ones(len(X))
    for bad in (KernelGuruClassifier(0.1).fit(X, y), SVC(kernel="linear").fit(X, y), SVC().fit(X, y == 1)):
        for function in (
            lambda model: certified_radius(model, X),
            lambda model: expected_accuracy(model, X, y, X_err=X_err),
            lambda model: robustness_curve(model, X, y, [1.0]),
        ):
            with pytest.raises(ValueError, match=rf"linear in X.*{type(bad).__name__}.*sampling"):
                function(bad)
    with pytest.raises(TypeError, match=r"decision_function.*RandomForest"):
        certified_radius(RandomForestClassifier(2).fit(X, y), X)
    with pytest.raises(ValueError, match="X_err must be given: LinearSVC has no noise"):
        flip_probability(LinearSVC().fit(X, y), X)
    for levels, message in (([-1.0], "nonnegative"), ([np.nan], "finite"), ("loud", "numbers"), ([], "noise_levels")):
        with pytest.raises(ValueError, match=message):
            robustness_curve(clf, X, y, levels)
    with pytest.raises(ValueError, match="method must be one of"):
        robustness_curve(clf, X, y, [1.0], method="guess")
    with pytest.raises(ValueError, match="n_repeats"):
        robustness_curve(clf, X, y, [1.0], method="sampling", n_repeats=1)
    with pytest.raises(ValueError, match=r"same number of samples; got 60 and 10"):
        expected_accuracy(clf, X, y[:10], X_err=X_err)
    with pytest.raises(ValueError, match=r"X_err must hold.*got shape \(7,\)"):
        clf.score(X, y, X_err=np.ones(7))
    with pytest.raises(ValueError, match="nonnegative"):
        clf.score(X, y, X_err=-X_err)
    with pytest.raises(ValueError, match="X_err has NaN"):
        clf.score(X, y, X_err=np.nan * X_err)
    for method in (
        lambda: clf.score(X, y, X_err=np.inf * X_err),
        lambda: flip_probability(clf, X, X_err=np.inf * X_err),
    ):
        with pytest.raises(ValueError, match=r"infinite errors.*fitted without X_err"):
            method()
    unknown = np.full(len(y), 9)
    assert expected_accuracy(clf, X, unknown, X_err=X_err) == 0
    with pytest.raises(ValueError, match="labels among the classes"):
        log_loss_scorer(clf, X, unknown)
