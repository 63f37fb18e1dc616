"""Fits with every noise model: certified, against whitening by hand and generic optimisers, and the adversary."""

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from support import oracles
from support.common import fit_to, with_and_without
from support.data import clouds, groups, joint_problem, problem

from gaussguru import (
    AdversarialSVC,
    CollapseWarning,
    GuruClassifier,
    sample_noise,
    sigma_max,
    worst_case_covariance,
    worst_case_distribution,
)
from gaussguru._guru.problems.axis import AxisBinary
from gaussguru._guru.solvers.registry import SOLVERS
from gaussguru._rows.rows import Rows
from gaussguru.losses import LOSSES
from gaussguru.noise import NOISES, Axis


def deviations(d):
    return np.exp(np.random.default_rng(0).standard_normal(d))


def covariance(d):
    root = np.random.default_rng(1).standard_normal((d, d))
    return root @ root.T / d + 0.05 * np.eye(d)


MODELS = {**{name: lambda d, name=name: name for name in NOISES}, "deviations": deviations, "covariance": covariance}
KNOWN = {"deviations": deviations, "covariance": covariance}
every_model = pytest.mark.parametrize("model", MODELS)
known = pytest.mark.parametrize("model", KNOWN)
sparse_too = pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
ridges = pytest.mark.parametrize("l2", [0.0, 0.5])


def fit(X, y, sigma, **options):
    """Return a fitted classifier, which may have collapsed but must have converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return GuruClassifier(sigma, **options).fit(X, y)


def check_certified(clf, y):
    zero = len(y) * (len(clf.classes_) - 1)
    assert 0 <= clf.dual_gap_ <= 1e-6 * zero
    assert np.isfinite(clf.coef_).all()


# --- every pair is solved or refused ----------------------------------------------------------------------


@every_model
@sparse_too
@with_and_without
@ridges
@pytest.mark.parametrize("sizes", [(60, 40), (40, 30, 50)], ids=["two", "three"])
def test_every_pair_is_certified_or_refused(model, form, fit_intercept, l2, sizes):
    X, y = groups(sizes, 5, 2.0, seed=3)
    X *= np.random.default_rng(0).random(X.shape) < 0.7
    options = {"noise": MODELS[model](5), "fit_intercept": fit_intercept, "l2": l2}
    if model == "axis" and len(sizes) > 2:
        with pytest.raises(ValueError, match=r"Only binary classification is supported with noise='axis'; y has 3"):
            fit(form(X), y, 0.4, **options)
        return
    clf = fit(form(X), y, 0.4, **options)
    check_certified(clf, y)
    np.testing.assert_allclose(clf.certificate(form(X), y).primal, clf.objective_, rtol=1e-8)


@pytest.mark.parametrize("solver", [name for name, solver in SOLVERS.items() if not solver.exact])
@pytest.mark.parametrize("model", [name for name in MODELS if name != "isotropic"])
def test_stochastic_solvers_refuse_other_noise(solver, model):
    X, y = clouds(20, 20, 3)
    noise = MODELS[model](3)
    given = "'axis'" if model == "axis" else r"a noise of shape \(3"
    clf = GuruClassifier(noise=noise, solver=solver)
    for train in (clf.fit, lambda X, y: clf.partial_fit(X, y, classes=[-1, 1])):
        with pytest.raises(ValueError, match=rf"solver='{solver}' with .*{given}.*newton.*whiten"):
            train(X, y)
    assert not hasattr(clf, "coef_")


@every_model
@with_and_without
@pytest.mark.parametrize("exponent", [-10, -5, 0, 5, 10])
@pytest.mark.parametrize("name", ["balanced", "unbalanced", "separable", "wide", "repeated-columns", "breast-cancer"])
def test_whole_range_of_sigma(model, name, exponent, fit_intercept):
    X, y = problem(name)
    check_certified(fit(X, y, 2.0**exponent, noise=MODELS[model](X.shape[1]), fit_intercept=fit_intercept), y)


@known
@pytest.mark.parametrize("exponent", [-10, -5, 0, 5, 10])
@pytest.mark.parametrize("name", ["iris", "wine"])
def test_whole_range_of_sigma_of_several_classes(model, name, exponent):
    X, y = joint_problem(name)
    check_certified(fit(X, y, 2.0**exponent, noise=MODELS[model](X.shape[1])), y)


@every_model
def test_around_the_collapse(model):
    X, y = clouds(20, 200, 3, 1.5, seed=1)
    noise = MODELS[model](3)
    top = sigma_max(X, y, noise=noise)
    for part in (0.7, 0.9, 0.99, 1.01, 1.5):
        clf = fit(X, y, part * top, noise=noise)
        check_certified(clf, y)
        if part > 1:
            assert not clf.coef_.any()


# --- known noise is whitening -----------------------------------------------------------------------------


def whitened(X, noise):
    """Return X with isotropic noise, and the matrix that takes its coefficients to those of X."""
    back = np.diag(1 / noise) if noise.ndim == 1 else np.linalg.inv(np.linalg.cholesky(noise))
    return X @ back.T, back


@known
@sparse_too
@with_and_without
@pytest.mark.parametrize("sizes", [(60, 40), (40, 30, 50)], ids=["two", "three"])
def test_known_noise_is_whitening(model, form, fit_intercept, sizes):
    X, y = groups(sizes, 4, 2.0, seed=3)
    noise = KNOWN[model](4)
    Z, back = whitened(X, noise)
    # Of several classes F is flat along a shift common to all, and its certificate of first order.
    tol = 1e-13 if len(sizes) == 2 else 1e-12
    options = {"sigma": 0.4, "fit_intercept": fit_intercept}
    clf, plain = fit_to(tol, form(X), y, noise=noise, **options), fit_to(tol, Z, y, **options)
    scale = np.abs(clf.coef_).max()
    np.testing.assert_allclose(clf.coef_, plain.coef_ @ back, atol=1e-8 * scale)
    np.testing.assert_allclose(clf.intercept_, plain.intercept_, atol=1e-8)
    np.testing.assert_allclose(clf.objective_, plain.objective_, rtol=1e-10)
    np.testing.assert_allclose(clf.decision_function(form(X)), plain.decision_function(Z), atol=1e-7)
    if len(sizes) == 2:
        np.testing.assert_allclose(sigma_max(X, y, noise=noise), sigma_max(Z, y), rtol=1e-10)
        np.testing.assert_allclose(clf.predict_proba(form(X)), plain.predict_proba(Z), atol=1e-8)


@known
def test_units_do_not_matter(model):
    X, y = clouds(60, 50, 4, 1.5, seed=2)
    units = np.array([1e-6, 1.0, 1e3, 1e7])
    noise = KNOWN[model](4)
    other = noise * units if noise.ndim == 1 else noise * units * units[:, None]
    clf, scaled = fit_to(1e-12, X, y, noise=noise), fit_to(1e-12, X * units, y, noise=other)
    np.testing.assert_allclose(scaled.coef_ * units, clf.coef_, rtol=1e-6)


def test_a_multiple_of_the_identity_is_isotropic():
    X, y = clouds(60, 50, 4, 1.5, seed=2)
    plain = fit_to(1e-13, X, y, sigma=0.6)
    for noise in (np.full(4, 2.0), 4.0 * np.eye(4), [2.0] * 4):
        np.testing.assert_allclose(fit_to(1e-13, X, y, sigma=0.3, noise=noise).coef_, plain.coef_, rtol=1e-7)


def numeric_minimum(scale, X, y, l2, fit_intercept, start):
    """Return the least F of a smooth scale found from near a solution by a generic method."""

    def value(params):
        w, b = params[:-1], params[-1] if fit_intercept else 0.0
        a = scale(w)
        return float(np.sum(a * oracles.loss((1 - y * (X @ w + b)) / a)) + 0.5 * l2 * w @ w)

    return minimize(value, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 20_000}).fun


@known
@with_and_without
@pytest.mark.parametrize("l2", [0.1, 30.0])
def test_ridge_with_known_noise(model, l2, fit_intercept):
    X, y = clouds(40, 30, 3, 1.5, seed=4)
    noise = KNOWN[model](3)
    C = np.diag(noise**2) if noise.ndim == 1 else noise
    clf = fit(X, y, 0.5, noise=noise, l2=l2, fit_intercept=fit_intercept)
    check_certified(clf, y)
    start = np.append(clf.coef_[0], clf.intercept_) + 0.01
    least = numeric_minimum(lambda w: 0.5 * np.sqrt(w @ C @ w), X, y, l2, fit_intercept, start)
    assert clf.objective_ - clf.dual_gap_ <= least <= clf.objective_ + 1e-6


# --- features without noise -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
@with_and_without
@ridges
@pytest.mark.parametrize("sigma", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("kind", ["deviations", "covariance"])
def test_exact_features(kind, sigma, l2, fit_intercept):
    X, y = clouds(60, 50, 4, 1.0, seed=2)
    noise = np.array([0.0, 1.0, 0.0, 2.0])
    noise = noise if kind == "deviations" else np.diag(noise**2)
    clf = fit(X, y, sigma, noise=noise, l2=l2, fit_intercept=fit_intercept)
    check_certified(clf, y)
    # Not above F of any w with exact features, but for the cost of the least noise.
    rng = np.random.default_rng(0)
    w, b = clf.coef_[0], clf.intercept_[0]

    def exact(w, b):
        a = sigma * np.hypot(w[1], 2 * w[3])
        m = 1 - y * (X @ w + b)
        return np.sum(a * oracles.loss(m / a) if a > 0 else np.maximum(m, 0)) + 0.5 * l2 * w @ w

    cost = 0.4e-6 * len(y) * np.abs(w * X.std(axis=0)).sum()
    assert exact(w, b) - 1e-9 <= clf.objective_ <= exact(w, b) + cost + 1e-9
    for step in 10.0 ** rng.uniform(-4, 0, 200):
        other = w + step * rng.standard_normal(4) * (rng.random(4) < 0.6)
        assert clf.objective_ - clf.dual_gap_ <= exact(other, b) + 2 * cost


def test_loud_noise_leaves_only_exact_features():
    X, y = clouds(60, 50, 4, 2.0, seed=2)
    clf = fit(X, y, 1e3, noise=[0.0, 1.0, 0.0, 2.0])
    only = fit(X[:, [0, 2]], y, 1e-6)
    np.testing.assert_allclose(clf.objective_, only.objective_, rtol=1e-3)
    assert np.abs(clf.coef_[0, [1, 3]]).max() <= 1e-3 * np.abs(clf.coef_).max()


# --- the diagonal adversary -------------------------------------------------------------------------------


@cache
def axis_minimum(name, sigma, fit_intercept, l2=0.0):
    """Return the least F over (w, b, t) with |w_j| <= t, by sequential quadratic programming."""
    X, y = AXIS[name]
    d = X.shape[1]

    def look(params):
        w, b, t = params[:d], params[d] if fit_intercept else 0.0, max(params[-1], 1e-12)
        z = (1 - y * (X @ w + b)) / (sigma * t)
        return w, t, z

    def value(params):
        w, t, z = look(params)
        return float(sigma * t * oracles.loss(z).sum() + 0.5 * l2 * w @ w)

    def slope(params):
        w, _, z = look(params)
        pull = y * ndtr(z)
        return np.concatenate([-X.T @ pull + l2 * w, [-pull.sum() * fit_intercept, sigma * oracles.pdf(z).sum()]])

    rows = np.hstack([np.vstack([np.eye(d), -np.eye(d)]), np.zeros((2 * d, 1)), np.ones((2 * d, 1))])
    inside = {"type": "ineq", "fun": lambda params: rows @ params, "jac": lambda _: rows}
    best = []
    for length in (0.3, 1.0):
        w = np.sign(X.T @ y) * length / np.sqrt(d)
        start = np.concatenate([w, [0.0, np.abs(w).max()]])
        result = minimize(
            value, start, jac=slope, constraints=inside, method="SLSQP", options={"ftol": 1e-13, "maxiter": 1000}
        )
        w, b = result.x[:d], result.x[d] if fit_intercept else 0.0
        a = sigma * np.abs(w).max()  # F at any w is an upper bound
        best.append((float(a * oracles.loss((1 - y * (X @ w + b)) / a).sum() + 0.5 * l2 * w @ w), w, b))
    return min(best, key=lambda item: item[0])


def flags():
    """Return two columns of all rows and three that few have."""
    X, y = clouds(150, 150, 5, 1.5, seed=4)
    X[:, 2:] = np.random.default_rng(5).random((300, 3)) < (0.02, 0.01, 0.013)
    return X, y


AXIS = {
    "flags": flags(),
    "even": clouds(40, 40, 4, 1.5, seed=1),
    "more": clouds(60, 50, 8, 2.0, seed=6),
    "offset": clouds(50, 30, 3, 1.0, seed=3),
}


@with_and_without
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("name", AXIS)
def test_axis_against_sequential_quadratic_programming(name, sigma, fit_intercept, l2):
    X, y = AXIS[name]
    clf = fit(X, y, sigma, noise="axis", fit_intercept=fit_intercept, l2=l2)
    check_certified(clf, y)
    least, _, _ = axis_minimum(name, sigma, fit_intercept, l2)
    assert clf.objective_ - clf.dual_gap_ - 1e-9 <= least
    if clf.coef_.any():  # a descent towards w = 0 is not for this optimiser
        assert least <= clf.objective_ + 1e-5


@with_and_without
@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("name", AXIS)
def test_axis_conditions_of_optimality(name, sigma, fit_intercept):
    X, y = AXIS[name]
    clf = fit(X, y, sigma, noise="axis", fit_intercept=fit_intercept, tol=1e-11, class_weight="balanced")
    w, alpha = clf.coef_[0], clf.dual_coef_
    s = np.where(y > 0, 1 / np.sum(y > 0), 1 / np.sum(y < 0)) * len(y) / 2
    v = X.T @ (s * y * alpha)
    level = sigma * s @ oracles.pdf(oracles.ndtri(alpha))
    # The values meet to the gap, the variables only to its root.
    np.testing.assert_allclose(np.abs(v).sum(), level, rtol=1e-4)
    np.testing.assert_allclose(s @ alpha, clf.objective_, rtol=1e-6)
    # Noise on a feature is paid for only by those tied at the maximum; the others are as if exact.
    tied = np.abs(w) >= (1 - 1e-9) * np.abs(w).max()
    np.testing.assert_allclose(v[~tied], 0.0, atol=1e-4 * np.abs(v).sum())
    assert np.all(v[tied] * w[tied] >= -1e-4 * np.abs(v).sum() * np.abs(w).max())


def test_axis_ties_more_features_the_louder_the_noise():
    X, y = AXIS["more"]
    ties = []
    for sigma in (0.01, 1.0, 4.0):
        w = np.abs(fit(X, y, sigma, noise="axis", class_weight="balanced").coef_[0])
        ties.append(int(np.sum(w >= (1 - 1e-9) * w.max())))
    assert ties[0] < ties[1] <= ties[2] == 8


def test_axis_with_one_feature_is_isotropic():
    X, y = clouds(40, 35, 1, 1.5, seed=2)
    clf, plain = (fit_to(1e-12, X, y, noise=noise) for noise in ("axis", "isotropic"))
    np.testing.assert_allclose(clf.coef_, plain.coef_, rtol=1e-6)


@with_and_without
def test_axis_on_many_rows(fit_intercept):
    X, y = clouds(40_000, 30_000, 12, 1.5, seed=6)
    clf = fit(X, y, 0.5, noise="axis", fit_intercept=fit_intercept)
    check_certified(clf, y)
    np.testing.assert_allclose(clf.certificate(X, y).gap, clf.dual_gap_, atol=2e-6 * len(y))


def test_axis_with_columns_of_few_rows():
    """Standardised flags that few rows have: the quadratic model is poor as soon as they move."""
    rng = np.random.default_rng(7)
    flags = rng.random((20_000, 12)) < np.geomspace(2e-4, 0.3, 12)
    X = np.column_stack([rng.standard_normal((20_000, 3)), flags])
    y = np.where(X[:, 0] + flags @ rng.normal(size=12) + rng.standard_normal(20_000) > 0, 1.0, -1.0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for sigma in (0.1, 1.0):
        check_certified(fit(X, y, sigma, noise="axis"), y)


@with_and_without
@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_axis_dual_points_of_a_part_of_the_rows(sigma, fit_intercept):
    """However far from the optimum they bound F from below, and near it far better than the slopes there."""
    X, y = clouds(6_000, 4_000, 5, 1.5, seed=8)
    best = fit(X, y, sigma, noise="axis", fit_intercept=fit_intercept, tol=1e-10)
    whole = AxisBinary(Rows(X, y > 0), LOSSES["gaussian"], Axis(sigma), 0.0, fit_intercept)
    part = whole.subsample(2_000, np.random.default_rng(0))
    w, b = best.coef_[0], float(best.intercept_[0])
    free = np.abs(w) < (1 - 1e-9) * np.abs(w).max()
    assert free.any()
    for away in (0.3, 1e-3):
        near = w + away * np.abs(w).max() * np.where(free, np.random.default_rng(1).uniform(-1, 1, len(w)), 0.0)
        near = np.clip(near, -np.abs(w).max(), np.abs(w).max())
        local = whole.expand(whole.point(np.append(near, b)))
        slopes = local.certificate(0.0, thorough=True)[0].dual
        for rows in (whole, part):
            dual, alpha = local._moved_dual(rows, np.inf)
            assert np.all((alpha >= 0) & (alpha <= 1))
            assert dual <= best.objective_ * (1 + 1e-12)
            if away < 0.01:
                assert best.objective_ - dual < 0.1 * (best.objective_ - slopes)


def test_axis_parts_have_the_rows_of_rare_columns():
    rng = np.random.default_rng(9)
    X, y = rng.standard_normal((50_000, 4)), np.where(np.arange(50_000) < 60, 1.0, -1.0)
    X[:, 3] = 0.0
    X[[100, 20_000, 40_000], 3] = 1.0
    part = AxisBinary(Rows(X, y > 0), LOSSES["gaussian"], Axis(1.0)).subsample(4_000, rng)
    assert np.count_nonzero(part.rows.X[:, 3]) == 3
    np.testing.assert_array_equal(part.rows.X, X[part.places])
    np.testing.assert_allclose(part.rows.class_weights, [49_940, 60])
    assert np.count_nonzero(part.rows.labels) >= 40


def test_axis_with_many_columns():
    rng = np.random.default_rng(7)
    X = sp.random_array((120, 2500), density=0.01, rng=rng, format="csr", data_sampler=rng.standard_normal)
    y = np.where(X[:, :200].sum(axis=1) + rng.standard_normal(120) > 0, 1.0, -1.0)
    for sigma in (0.01, 10.0):
        check_certified(fit(X, y, sigma, noise="axis"), y)


# --- the adversary ----------------------------------------------------------------------------------------


@every_model
def test_worst_case_of_two_classes(model):
    X, y = clouds(40, 35, 4, 1.5, seed=2)
    clf = GuruClassifier(0.5, noise=MODELS[model](4)).fit(X, y)
    C = worst_case_covariance(clf, X)
    assert C.shape == (75, 4, 4)
    w, b = clf.coef_[0], clf.intercept_[0]
    a = np.sqrt(w @ C[0] @ w)
    np.testing.assert_allclose(np.sum(a * oracles.loss((1 - y * (X @ w + b)) / a)), clf.objective_, rtol=1e-9)
    noise = sample_noise(clf, sp.csr_array(X), 4000, random_state=0)
    assert noise.shape == (4000, 75, 4)
    hinges = np.maximum(0, 1 - y * ((X + noise) @ w + b)).sum(axis=1)
    assert abs(hinges.mean() - clf.objective_) <= 5 * hinges.std() / np.sqrt(4000)
    np.testing.assert_array_equal(noise[:2], sample_noise(clf, X, 4000, random_state=0)[:2])


@pytest.mark.parametrize("model", ["isotropic", *KNOWN])
def test_worst_case_of_several_classes(model):
    X, y = groups((30, 40, 50), 4, 2.0, seed=1)
    clf = GuruClassifier(0.5, noise=MODELS[model](4)).fit(X, y)
    C = worst_case_covariance(clf, X)
    assert C.shape == (120, 4, 4)
    scores = clf.decision_function(X)
    for i in range(0, 120, 7):
        c = int(np.argmax(scores[i]))
        # Of all rivals and the noise each would want, the worst for this sample was chosen.
        flips = {}
        for k in set(range(3)) - {c}:
            u = clf.coef_[c] - clf.coef_[k]
            flips[k] = (scores[i, c] - scores[i, k]) / np.sqrt(u @ clf.noise_.worst_covariance(u) @ u)
        rival = min(flips, key=flips.get)
        u = clf.coef_[c] - clf.coef_[rival]
        np.testing.assert_allclose(C[i], clf.noise_.worst_covariance(u))
    noise = sample_noise(clf, X[:5], 20_000, random_state=1)
    for i in range(5):
        np.testing.assert_allclose(np.cov(noise[:, i].T), C[i], atol=0.05 * np.trace(C[i]))


ERRORS = {
    "none": lambda rng: None,
    "deviations": lambda rng: rng.uniform(0.0, 0.5, (75, 4)),
    "covariances": lambda rng: np.einsum("ijk,ilk->ijl", *2 * [0.3 * rng.standard_normal((75, 4, 2))]),
}


def covariance_of(points, weights):
    """Return the means of distributions of points, and their covariances."""
    means = np.einsum("ip,ipj->ij", weights, points)
    apart = points - means[:, np.newaxis]
    return means, np.einsum("ip,ipj,ipk->ijk", weights, apart, apart)


@every_model
@pytest.mark.parametrize("errors", ERRORS)
def test_worst_distribution_of_two_classes_attains_the_moment_loss(errors, model):
    """It has the mean and, along w, the variance of the noise; no other distribution has a larger expected hinge."""
    (X, y), rng = clouds(40, 35, 4, 1.5, seed=2), np.random.default_rng(3)
    X_err, noise = ERRORS[errors](rng), MODELS[model](4)
    if X_err is not None and model == "axis":
        X_err = None
    clf = GuruClassifier(0.5, loss="moment", noise=noise).fit(X, y, X_err=X_err)
    points, weights = worst_case_distribution(clf, sp.csr_array(X) if X_err is None else X, y, X_err)
    assert points.shape == (75, 2, 4)
    w, b = clf.coef_[0], clf.intercept_[0]
    means, C = covariance_of(points, weights)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(means, X, atol=1e-9)
    full = worst_case_covariance(clf, X)
    if X_err is not None:
        full = full + (X_err[:, :, np.newaxis] ** 2 * np.eye(4) if X_err.ndim == 2 else X_err)
    np.testing.assert_allclose(np.einsum("ijk,k->ij", C, w), full @ w, rtol=1e-9, atol=1e-12)
    rest = np.linalg.eigvalsh(full - C)  # noise of another direction completes the covariance
    assert rest.min() >= -1e-9 * np.abs(full).max()
    if model == "isotropic" and X_err is None:
        np.testing.assert_allclose(C, full, atol=1e-12)

    def hinges(samples):
        return np.maximum(0, 1 - (y * (samples @ w + b).T).T)

    expected = (weights * hinges(points)).sum(axis=1)
    np.testing.assert_allclose(expected.sum(), clf.objective_, rtol=1e-9)
    assert np.all(hinges(points[:, 0]) >= hinges(points[:, 1]))
    # Drawn, it has this expectation; and noise with as large a covariance does not exceed it.
    first = rng.random((4000, 75)) < weights[:, 0]
    drawn = hinges(np.where(first[:, :, np.newaxis], points[:, 0], points[:, 1]).swapaxes(0, 1)).T.sum(axis=1)
    assert abs(drawn.mean() - clf.objective_) <= 5 * drawn.std() / np.sqrt(4000)
    roots = np.linalg.cholesky(full + 1e-12 * np.eye(4))
    signs = rng.choice([-1, 1], (500, 75, 4))
    for draws in (rng.standard_normal((500, 75, 4)), rng.exponential(size=(500, 75, 4)) - 1, signs):
        other = np.maximum(0, 1 - y * ((X + np.einsum("ijk,nik->nij", roots, draws)) @ w + b))
        assert np.all(other.mean(axis=0) <= expected + 5 * other.std(axis=0) / np.sqrt(500) + 1e-9)


def test_worst_distribution_of_several_classes_is_that_of_the_worst_rival():
    X, y = groups((30, 40, 50), 4, 2.0, seed=1)
    clf = GuruClassifier(0.5, loss="moment").fit(X, y)
    points, weights = worst_case_distribution(clf, X, clf.classes_[y])
    means, C = covariance_of(points, weights)
    np.testing.assert_allclose(means, X, atol=1e-9)
    for i in range(0, 120, 7):
        bounds = {}
        for k in set(range(3)) - {y[i]}:
            u, shift = clf.coef_[y[i]] - clf.coef_[k], clf.intercept_[y[i]] - clf.intercept_[k]
            slack, a = 1 - X[i] @ u - shift, 0.5 * np.linalg.norm(u)
            bounds[k] = a * oracles.TERMS["moment"](slack / a)[0], u, shift
        bound, u, shift = max(bounds.values(), key=lambda rival: rival[0])
        np.testing.assert_allclose(weights[i] @ np.maximum(0, 1 - points[i] @ u - shift), bound, rtol=1e-9)
        np.testing.assert_allclose(C[i], 0.25 * np.outer(u, u) / (u @ u), atol=1e-12)


def test_worst_distribution_of_features_that_are_ignored_is_the_sample():
    X, y = clouds(10, 60, 3, 1.0, seed=1)
    points, weights = worst_case_distribution(fit(X, y, 1e3), X, y)
    np.testing.assert_array_equal(points, np.repeat(X[:, np.newaxis], 2, axis=1))
    np.testing.assert_array_equal(weights, 0.5)
    clf = fit(X, y, 0.1)
    with pytest.raises(ValueError, match="y must hold labels among the classes"):
        worst_case_distribution(clf, X, y + 7)
    with pytest.raises(ValueError, match="X and y must have the same number of samples"):
        worst_case_distribution(clf, X, y[1:])
    with pytest.raises(TypeError, match="class GuruClassifier; got"):
        worst_case_distribution(AdversarialSVC(0.01).fit(X, y), X, y)


def test_adversary_of_a_constant_classifier():
    X, y = clouds(10, 60, 3, 1.0, seed=1)
    clf = fit(X, y, 1e3)
    np.testing.assert_allclose(worst_case_covariance(clf, X)[0], np.eye(3) * 1e6 / 3)
    assert np.isfinite(sample_noise(clf, X, 2, random_state=0)).all()


def test_adversary_refuses_bad_arguments():
    X, y = clouds(10, 60, 3, 1.0, seed=1)
    with pytest.raises(ValueError, match="not fitted"):
        worst_case_covariance(GuruClassifier(), X)
    clf = fit(X, y, 0.1)
    with pytest.raises(ValueError, match="features"):
        sample_noise(clf, X[:, :2])
    with pytest.raises(ValueError, match="n must be a whole number >= 1; got 0"):
        sample_noise(clf, X, 0)


# --- as an estimator --------------------------------------------------------------------------------------


@every_model
def test_clone_and_refit_leave_the_noise_alone(model):
    X, y = clouds(40, 35, 4, 1.5, seed=2)
    noise = MODELS[model](4)
    clf = clone(GuruClassifier(0.5, noise=noise)).fit(X, y)
    assert np.array_equal(clf.noise, noise)
    with pytest.raises(ValueError, match="noise must be one of" if isinstance(noise, np.ndarray) else "features"):
        clf.fit(X[:, :3], y) if isinstance(noise, np.ndarray) else clf.predict(X[:, :3])
    again = GuruClassifier(0.5, noise=noise, warm_start=True).fit(X, y)
    before = again.objective_
    again.fit(X, y)
    check_certified(again, y)
    np.testing.assert_allclose(again.objective_, before, atol=2e-6 * len(y))


@every_model
def test_little_time_is_said(model):
    X, y = clouds(40, 35, 4, 1.5, seed=2)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        clf = GuruClassifier(0.01, noise=MODELS[model](4), max_iter=1).fit(X, y)
    tight = GuruClassifier(0.01, noise=MODELS[model](4)).fit(X, y)
    assert clf.objective_ - clf.dual_gap_ <= tight.objective_


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_there_is_no_worst_case(n_classes):
    X, y = groups([20] * n_classes, 3)
    model = GuruClassifier(0.0, l2=0.1).fit(X, y)
    assert not worst_case_covariance(model, X).any()
    assert not sample_noise(model, X, 2).any()
