"""Kernel classifiers with error bars: closed forms, errors in the space of the kernel, fits, proofs and predictions."""

import pickle
import tracemalloc
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from support import oracles
from support.data import groups
from support.error_bars import bars, conditional, covariances, every_form, matrices

from gaussguru import GuruClassifier, KernelGuruClassifier
from gaussguru._errors.checks import check_errors
from gaussguru._guru.kernel_errors import KernelErrors, kind_of, noisy_features
from gaussguru._guru.kernel_matrix import Kernel, LandmarkSpace, exact_features
from gaussguru._guru.problems.measured import MeasuredPairs
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru._rows.rows import Rows
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import LowRank, Measured
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

PARAMS = {"gamma": 0.7, "degree": 3, "coef0": 0.8}
KERNELS = {
    "rbf": Kernel("rbf", PARAMS),
    "rbf, centred": Kernel("rbf", PARAMS, np.array([0.5, -1.0])),
    "linear": Kernel("linear", PARAMS),
    "poly": Kernel("poly", PARAMS),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
every_name = pytest.mark.parametrize("name", ["rbf", "linear", "poly"])
diagonal_or_full = pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
# Standard errors that a mean of draws may be away.
FAR = 5.0


def noise_of(n, d, full, seed=0):
    return covariances(n, d, seed) if full else bars(n, d, seed)


def moons(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    angle = np.pi * rng.random(n)
    X = np.column_stack([np.cos(angle) + y, np.where(y, 0.5 - np.sin(angle), np.sin(angle))])
    return X + 0.15 * rng.standard_normal((n, 2)), y


def model(name="rbf", sigma=0.05, **parameters):
    return KernelGuruClassifier(sigma, kernel=name, **{"gamma": 0.7, "degree": 2, "tol": 1e-9, **parameters})


@cache
def nodes(d, order=24):
    """Points and weights of Gauss and Hermite in d dimensions, for a standard normal vector."""
    x, w = np.polynomial.hermite_e.hermegauss(order)
    grids = np.meshgrid(*[x] * d, indexing="ij")
    weights = np.prod(np.meshgrid(*[w / w.sum()] * d, indexing="ij"), axis=0)
    return np.column_stack([grid.ravel() for grid in grids]), weights.ravel()


def by_quadrature(kernel, gamma, degree, coef0, X, S, points):
    """Return means of kernel values (n, m) and of their gradients (n, m, d), by quadrature of the kernel itself."""
    at, weights = nodes(X.shape[1])
    values, slopes = [], []
    for x, cov in zip(X, S, strict=True):
        sizes, axes = np.linalg.eigh(cov)
        draws = x + (at * np.sqrt(np.maximum(sizes, 0.0))) @ axes.T
        apart = draws[:, None] - points
        if kernel == "rbf":
            k = np.exp(-gamma * np.sum(apart**2, axis=2))
            slope = -2 * gamma * k[..., None] * apart
        else:
            power, scale, constant = (1, 1.0, 0.0) if kernel == "linear" else (degree, gamma, coef0)
            base = scale * draws @ points.T + constant
            k, slope = base**power, power * scale * (base ** (power - 1))[..., None] * points
        values.append(weights @ k)
        slopes.append(np.einsum("q,qaj->aj", weights, slope))
    return np.array(values), np.array(slopes)


def objective(K, G, S, own, beta, b, y, weight, sigma, l2=0.0):
    """F of two classes from means of kernel values and gradients, and the kernel matrix of the points."""
    length = np.sqrt(max(0.0, beta @ own @ beta))
    g = np.einsum("iaj,a->ij", G, beta)
    a = np.sqrt(np.einsum("ij,ijk,ik->i", g, S, g) + (sigma * length) ** 2)
    m = 1 - (2 * y - 1) * (K @ beta + b)
    return float(weight @ (a * oracles.loss(m / a))) + 0.5 * l2 * length**2


# --- closed forms -----------------------------------------------------------------------------------------------


@every_kernel
@diagonal_or_full
def test_moments_match_a_simulation(kernel, full):
    rng = np.random.default_rng(3)
    X, points, X_err = rng.standard_normal((3, 2)), rng.standard_normal((4, 2)), noise_of(3, 2, full, seed=1)
    kind, V = kind_of(kernel), check_errors(X_err, X).dense()
    found, second = kind.expected(X, V, points), kind.second_moments(X, V, points)
    for i, S in enumerate(matrices(X_err, 3, 2)):
        draws = rng.multivariate_normal(X[i], S, 100_000)
        k = kernel(draws, points)
        # A value far below 1 is a mean of few draws, which have no standard error to speak of.
        error = k.std(axis=0) / np.sqrt(len(k))
        assert np.all(np.abs(found.values[i] - k.mean(axis=0)) <= FAR * error + 1e-6)
        products = k[:, :, None] * k[:, None]
        error = products.std(axis=0) / np.sqrt(len(k))
        assert np.all(np.abs(second[i] - products.mean(axis=0)) <= FAR * error + 1e-6)


@every_kernel
@diagonal_or_full
def test_moments_match_quadrature(kernel, full):
    rng = np.random.default_rng(0)
    X, points, X_err = rng.standard_normal((5, 2)), rng.standard_normal((6, 2)), noise_of(5, 2, full)
    kind, V = kind_of(kernel), check_errors(X_err, X).dense()
    found = kind.expected(X, V, points)
    values, slopes = by_quadrature(kernel.name, *PARAMS.values(), X, matrices(X_err, 5, 2), points)
    np.testing.assert_allclose(found.values, values, rtol=1e-7, atol=1e-9)
    coef = rng.standard_normal((2, 6))
    expected = np.einsum("iaj,ca->icj", slopes, coef)
    np.testing.assert_allclose(found.gradients(kind.points(points), coef), expected, rtol=1e-6, atol=1e-8)


@every_kernel
def test_without_errors_expected_values_are_the_kernel(kernel):
    rng = np.random.default_rng(0)
    X, points = rng.standard_normal((5, 2)), rng.standard_normal((6, 2))
    kind, K = kind_of(kernel), kernel(X, points)
    for V in (np.zeros((5, 2)), np.zeros((5, 2, 2))):
        np.testing.assert_allclose(kind.expected(X, V, points).values, K, rtol=1e-12)
        np.testing.assert_allclose(kind.second_moments(X, V, points), K[:, :, None] * K[:, None], rtol=1e-12)


# --- errors in the space of the kernel --------------------------------------------------------------------------


def spaces(kernel, full, n=12, m=5, exact=False):
    rng = np.random.default_rng(1)
    X, X_err = rng.standard_normal((n, 2)), noise_of(n, 2, full)
    space = exact_features(kernel, X[:m])[2]
    points = X[space.landmarks]
    return X, X_err, points, space, *noisy_features(kernel, X, check_errors(X_err, X), points, space, exact=exact)


def jacobians(kernel, X, X_err, points, space, h=1e-6):
    """Return the derivatives of the expected features by the means of the samples, by differences."""
    kind, V = kind_of(kernel), check_errors(X_err, X).dense()
    sides = []
    for j in range(X.shape[1]):
        step = h * np.eye(X.shape[1])[j]
        ahead, behind = (kind.expected(X + s * step, V, points).values for s in (1, -1))
        sides.append(np.linalg.solve(space.factor, (ahead - behind).T).T / (2 * h))
    return np.stack(sides, axis=2)


@every_kernel
@diagonal_or_full
def test_products_match_the_covariances(kernel, full):
    X, X_err, points, space, Z, errors = spaces(kernel, full)
    assert isinstance(errors, KernelErrors)
    J = jacobians(kernel, X, X_err, points, space)
    Sigma = J @ matrices(X_err, 12, 2) @ J.transpose(0, 2, 1)
    close = {"rtol": 1e-6, "atol": 1e-7 * np.abs(Sigma).max()}
    rng = np.random.default_rng(0)
    (u, v), t = rng.standard_normal((2, Z.shape[1])), rng.random(12)
    np.testing.assert_allclose(
        errors.variances(np.array([u, v])).T, [[w @ S @ w for S in Sigma] for w in (u, v)], **close
    )
    np.testing.assert_allclose(errors.times(u), Sigma @ u, **close)
    np.testing.assert_allclose(errors.between(u, v), u @ Sigma @ v, **close)
    np.testing.assert_allclose(errors.pull(t, u), np.einsum("i,ijk,k->j", t, Sigma, u), rtol=1e-5, atol=close["atol"])
    seen = errors.seen(u, v)
    np.testing.assert_allclose(seen.between(0, 1), u @ Sigma @ v, **close)
    pulled = np.einsum("i,ijk,k->j", t, Sigma, u) + np.einsum("i,ijk,k->j", t**2, Sigma, v)
    np.testing.assert_allclose(seen.pull(t, t**2), pulled, rtol=1e-5, atol=close["atol"])
    out = np.zeros(Sigma.shape[1:])
    errors.add(t, out)
    np.testing.assert_allclose(out, np.einsum("i,ijk->jk", t, Sigma), rtol=1e-5, atol=close["atol"])
    some = errors.take(np.array([3, 1])).scaled(2.0)
    np.testing.assert_allclose(some.times(u), 4 * Sigma[[3, 1]] @ u, **close)
    factors = [errors.take(slice(i, i + 1)).roots(np.ones(1)) for i in range(12)]
    np.testing.assert_allclose([F @ F.T for F in factors], Sigma, **close)
    np.testing.assert_allclose(errors.roots(t), np.tensordot(t, factors, 1), rtol=1e-9, atol=1e-12)


@every_kernel
def test_the_length_bounds_the_noise(kernel):
    *_, errors = spaces(kernel, full=True)
    rng, t, own = np.random.default_rng(0), np.random.default_rng(1).random(12), 0.3
    v = rng.standard_normal(errors.points.factor.shape[0])
    length = errors.length(v, errors.roots(t), own)
    for u in rng.standard_normal((200, len(v))):
        room = t @ np.sqrt(errors.variances(u[None])[:, 0] + (own / t.sum()) ** 2 * (u @ u))
        assert u @ v <= length * room * (1 + 1e-12)
    assert errors.length(v, errors.roots(t), 0.0) == np.inf


@every_name
@pytest.mark.parametrize("n_classes", [2, 3])
@diagonal_or_full
def test_derivatives(name, n_classes, full):
    X, y = groups([12] * n_classes, 2)
    kernel = Kernel(name, {**PARAMS, "degree": 2})
    space = exact_features(kernel, X[::5])[2]
    points = X[::5][space.landmarks]
    given = noisy_features(kernel, X, check_errors(noise_of(len(y), 2, full), X), points, space, exact=False)
    weight = np.random.default_rng(4).uniform(0.2, 2.0, len(y))
    rows = Rows(given[0], y, weight, n_classes, given[1])
    made = MeasuredPairs(rows, LOSSES["gaussian"], Isotropic(0.2), 0.1, True, Smoothing(blur=0.1))
    rng = np.random.default_rng(1)
    local = made.visit(made.unknowns(rng.standard_normal((n_classes, rows.n_columns)), rng.standard_normal(n_classes)))
    p = rng.standard_normal(len(local.gradient))
    ahead, behind = (made.visit(local.x + h * p) for h in (1e-5, -1e-5))
    np.testing.assert_allclose(local.gradient @ p, (ahead.value - behind.value) / 2e-5, rtol=1e-5)
    difference = (ahead.gradient - behind.gradient) / 2e-5
    np.testing.assert_allclose(local.product(p), difference, rtol=1e-4, atol=1e-5 * np.abs(difference).max())
    close = {"rtol": 1e-4, "atol": 1e-5 * np.abs(difference).max()}  # small terms are left out of a Hessian
    np.testing.assert_allclose(local.hessian() @ p, local.product(p), **close)


# --- fits -------------------------------------------------------------------------------------------------------


@every_name
@pytest.mark.parametrize("n_components", [None, 12])
@diagonal_or_full
def test_the_optimum_is_that_of_another_solver(name, n_components, full):
    X, y = moons(30)
    X_err = noise_of(30, 2, full) * (0.15 if full else 0.4)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 30)
    clf = model(name, 0.3, n_components=n_components, coef0=1.0, l2=0.05, random_state=0)
    clf.fit(X, y, weight, X_err=X_err)
    S, points, beta = matrices(X_err, 30, 2), clf.X_fit_, clf.dual_coef_[0]
    K, G = by_quadrature(name, 0.7, 2, 1.0, X, S, points)
    own = clf._kernel(points, points)
    given = (y, weight, 0.3, 0.05)
    value = objective(K, G, S, own, beta, clf.intercept_[0], *given)
    assert clf.objective_ == pytest.approx(value, rel=1e-7)
    assert clf.dual_gap_ <= 1e-9 * weight.sum()
    # In coordinates in which the length of w is that of the unknowns.
    sizes, axes = np.linalg.eigh(own)
    kept = sizes > 1e-8 * sizes.max()
    root = axes[:, kept] / np.sqrt(sizes[kept])

    def of(x):
        return objective(K, G, S, own, root @ x[:-1], x[-1], *given)

    begin = 0.1 * np.random.default_rng(0).standard_normal(kept.sum() + 1)
    found = minimize(of, begin, method="L-BFGS-B", options={"maxiter": 400, "maxfun": 100_000})
    assert clf.objective_ <= found.fun * (1 + 1e-7)
    assert clf.objective_ >= found.fun * (1 - 1e-4)
    assert clf.objective_ - clf.dual_gap_ <= min(found.fun, value) * (1 + 1e-9)


@every_name
@pytest.mark.parametrize("n_components", [None, 15])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_zero_errors_are_none(name, n_components, n_classes):
    X, y = groups([20] * n_classes, 2)
    plain = model(name, 0.2, n_components=n_components, random_state=0).fit(X, y)
    zero = clone(plain).fit(X, y, X_err=np.zeros(X.shape))
    assert zero.objective_ == pytest.approx(plain.objective_, rel=1e-7)
    scores = plain.decision_function(X)
    np.testing.assert_allclose(zero.decision_function(X, 0 * X), scores, atol=1e-4 * np.abs(scores).max())
    np.testing.assert_allclose(plain.decision_function(X, 0 * X), scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(plain.predict_proba(X, 0 * X), plain.predict_proba(X), atol=1e-8)


@every_form
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_linear_kernel_is_the_linear_classifier(form, n_classes):
    X, y = groups([25] * n_classes, 3)
    X_err = form(len(y), 3)
    linear = GuruClassifier(0.2, tol=1e-12).fit(X, y, X_err=X_err)
    clf = model("linear", 0.2, tol=1e-12).fit(X, y, X_err=X_err)
    assert clf.objective_ == pytest.approx(linear.objective_, rel=1e-9)
    for ours, theirs in zip(clf.margin_and_spread(X, X_err), linear.margin_and_spread(X, X_err), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(clf.predict_proba(X, X_err), linear.predict_proba(X, X_err), atol=1e-6)
    logs = linear.predict_log_proba(X, X_err)
    np.testing.assert_allclose(clf.predict_log_proba(X, X_err), logs, rtol=1e-4, atol=1e-9)
    for ours, theirs in zip(clf._score_moments(X, X_err), linear._score_moments(X, X_err), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert clf.score(X, y, X_err=X_err) == linear.score(X, y, X_err=X_err)
    np.testing.assert_allclose(clf.alpha_, linear.alpha_, atol=1e-6)


@every_form
def test_forms_of_the_same_errors(form):
    X, y = moons()
    X_err = form(60, 2)
    clf = model(n_components=20, random_state=0).fit(X, y, X_err=X_err)
    same = clone(clf).fit(X, y, X_err=matrices(X_err, 60, 2))
    assert clf.objective_ == pytest.approx(same.objective_, rel=1e-8)
    np.testing.assert_allclose(
        clf.margin_and_spread(X, X_err), same.margin_and_spread(X, matrices(X_err, 60, 2)), atol=1e-4
    )


@pytest.mark.parametrize("form", [np.asfortranarray, np.float32, pd.DataFrame, sp.csr_array, np.ndarray.tolist])
def test_forms_of_the_samples(form):
    X, y = moons()
    X, X_err = X.astype(np.float32).astype(float), bars(60, 2).astype(np.float32).astype(float)
    clf = model(n_components=20, random_state=0).fit(X, y, X_err=X_err)
    other = clone(clf).fit(form(X), y, X_err=X_err)
    np.testing.assert_allclose(other.objective_, clf.objective_, rtol=1e-7)
    np.testing.assert_allclose(other.decision_function(form(X), X_err), clf.decision_function(X, X_err), atol=1e-4)
    measured = clone(clf).fit(Measured(form(X) if form is not np.ndarray.tolist else X, X_err), y)
    np.testing.assert_allclose(measured.objective_, clf.objective_, rtol=1e-7)


def test_weights_count_samples():
    X, y = moons(40)
    X_err, weight = bars(40, 2) * 0.4, np.arange(40) % 3
    clf = model("poly", 0.2).fit(X, y, weight, X_err=X_err)
    rows = np.repeat(np.arange(40), weight)
    same = clone(clf).fit(X[rows], y[rows], X_err=X_err[rows])
    assert clf.objective_ == pytest.approx(same.objective_, rel=1e-7)
    grid = np.random.default_rng(0).standard_normal((30, 2))
    np.testing.assert_allclose(clf.decision_function(grid), same.decision_function(grid), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_order_and_threads_change_nothing(n_classes):
    X, y = groups([400] * n_classes, 3)
    X_err = 0.3 * bars(len(y), 3)
    clf = model(n_components=40, random_state=0, tol=1e-6, n_jobs=1)
    one = clone(clf).fit(X, y, X_err=X_err)
    two = clone(clf).set_params(n_jobs=2).fit(X, y, X_err=X_err)
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    np.testing.assert_array_equal(*(m.margin_and_spread(X, X_err)[1] for m in (one, two)))
    assert one.alpha_.shape == ((len(y),) if n_classes == 2 else (len(y), n_classes))
    assert one.dual_gap_ <= 1e-6 * len(y) * (n_classes - 1)
    order = np.random.default_rng(0).permutation(len(y))
    points = X[one.support_]
    mixed = one.certificate(X[order], y[order], X_err=X_err[order])
    assert mixed.primal == pytest.approx(one.objective_, rel=1e-9)
    assert len(points) == 40


def test_alpha_belongs_to_its_sample():
    """Slopes are those of the samples in the order they were given, whatever the fit made of it."""
    X, y = moons()
    X_err = bars(60, 2) * 0.4
    clf = model(n_components=15, random_state=0).fit(X, y, X_err=X_err)
    margin, spread = clf.margin_and_spread(X, X_err)
    a = np.hypot(spread, 0.05 * clf.norm_[0])
    np.testing.assert_allclose(clf.alpha_, ndtr((1 - (2 * y - 1) * margin) / a), atol=1e-5)


def test_warm_starts():
    X, y = moons()
    X_err = bars(60, 2) * 0.4
    clf = model(warm_start=True, n_components=30, random_state=0).fit(X, y, X_err=X_err)
    first, cold = clf.objective_, clf.n_iter_
    clf.fit(X, y, X_err=X_err)
    assert clf.objective_ == pytest.approx(first, rel=1e-8)
    assert clf.n_iter_ <= cold


# --- predictions ------------------------------------------------------------------------------------------------


@every_name
@diagonal_or_full
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_and_spreads_match_a_simulation(name, full, n_classes):
    X, y = groups([15] * n_classes, 2)
    X_err = noise_of(len(y), 2, full) * 0.3
    clf = model(name, 0.1, n_components=10, random_state=0).fit(X, y, X_err=X_err)
    rng, S = np.random.default_rng(0), matrices(X_err, len(y), 2)
    margin, spread = clf.margin_and_spread(X, X_err)
    exact = clone(clf).set_params(spread="exact")
    exact.__dict__.update({name: value for name, value in vars(clf).items() if name.endswith("_") or name[0] == "_"})
    _, whole = exact.margin_and_spread(X, X_err)
    assert np.all(whole >= spread * (1 - 1e-6) - 1e-6 * np.abs(margin).max())
    for i in range(0, len(y), 7):
        draws = clf.decision_function(rng.multivariate_normal(X[i], S[i], 5_000))
        assert np.all(np.abs(margin[i] - draws.mean(axis=0)) <= FAR * draws.std(axis=0) / np.sqrt(5_000) + 1e-9)
        # The standard error of a variance, whatever the distribution.
        squares = np.square(draws - draws.mean(axis=0))
        assert np.all(np.abs(whole[i] ** 2 - squares.mean(axis=0)) <= FAR * squares.std(axis=0) / np.sqrt(5_000) + 1e-9)
    np.testing.assert_allclose(clf.decision_function(X, X_err), margin)
    _, means, moments = clf._score_moments(X, X_err)
    np.testing.assert_allclose(means.reshape(margin.shape), margin)
    np.testing.assert_allclose(np.einsum("ikcc->ic", moments).reshape(margin.shape), spread**2, rtol=1e-9, atol=1e-15)
    if n_classes == 2:
        a = np.hypot(0.1 * clf.norm_[0], spread)
        np.testing.assert_allclose(clf.predict_proba(X, X_err)[:, 1], ndtr(margin / a), rtol=1e-9)
    np.testing.assert_array_equal(clf.predict(X, X_err), clf.predict_proba(X, X_err).argmax(axis=1))


def test_the_exact_spread_is_another_problem():
    X, y = moons(40)
    X_err = bars(40, 2) * 0.5
    gradient = model(n_components=10, random_state=0, spread="gradient").fit(X, y, X_err=X_err)
    exact = model(n_components=10, random_state=0, spread="exact").fit(X, y, X_err=X_err)
    assert exact.dual_gap_ <= 1e-9 * 40
    assert exact.objective_ > gradient.objective_
    margin, spread = exact.margin_and_spread(X, X_err)
    a = np.hypot(spread, 0.05 * exact.norm_[0])
    value = np.sum(a * oracles.loss((1 - (2 * y - 1) * margin) / a))
    assert exact.objective_ == pytest.approx(value, rel=1e-6)
    many = np.random.default_rng(0).standard_normal((3000, 5))
    with pytest.raises(ValueError, match=r"spread='exact' stores 3000 covariances of 300 features.*2 GB"):
        model(spread="exact", n_components=300, gamma=0.5).fit(many, many[:, 0] > 0, X_err=0.1 * np.abs(many))


def test_what_was_not_measured_is_filled():
    X, y = moons(80)
    X_err, gone = bars(80, 2) * 0.3, np.random.default_rng(5).random((80, 2)) < 0.15
    gone[gone.all(axis=1)] = False
    nan, infinite = np.where(gone, np.nan, X), np.where(gone, np.inf, X_err)
    clf = model(n_components=20, random_state=0, gamma=0.5).fit(nan, y, X_err=X_err)
    values, full = conditional(clf.population_, nan, infinite)
    same = clone(clf).fit(values, y, X_err=full)
    assert clf.objective_ == pytest.approx(same.objective_, rel=1e-6)
    np.testing.assert_allclose(clf.margin_and_spread(X, infinite), clf.margin_and_spread(values, full), atol=1e-9)
    with pytest.raises(ValueError, match="NaN for what was not measured needs X_err"):
        clf.predict(nan)
    with pytest.raises(ValueError, match="it was fitted without X_err"):
        model().fit(X, y).predict(nan, X_err)


@pytest.mark.parametrize("n_components", [1, 2])
def test_posteriors_of_a_population(n_components):
    X, y = moons(120)
    X_err = bars(120, 2, zeros=0.0) * 0.4
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)
    posterior = Deconvolve(n_components, random_state=0).fit_transform(X, X_err=X_err)
    clf = model(n_components=20, random_state=0).fit(posterior, y)
    same = clone(clf).fit(posterior.X, y, X_err=posterior.err)
    assert clf.objective_ == same.objective_
    _, means, moments = clf._score_moments(posterior)
    assert means.shape == (120, 1, 1)
    assert moments.shape == (120, 1, 1, 1)
    assert clf.score(posterior, y) > 0.85
    pipe = make_pipeline(Deconvolve(random_state=0), model(n_components=20, random_state=0))
    with sklearn.config_context(enable_metadata_routing=True):
        assert pipe.fit(X, y, X_err=X_err).score(X, y, X_err=X_err) > 0.85


def test_pipelines_searches_and_files():
    X, y = moons(80)
    samples = Measured(pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame(0.3 * bars(80, 2), columns=["a", "b"]))
    pipe = make_pipeline(WithErrors(), KernelGuruClassifier(0.05, n_components=20, random_state=0))
    search = GridSearchCV(pipe, {"kernelguruclassifier__gamma": [0.1, 1.0]}, cv=3).fit(samples, y)
    assert search.best_score_ > 0.8
    assert cross_val_score(pipe, samples, y, cv=3).min() > 0.7
    clf = model(n_components=20, random_state=0).fit(samples, y)
    assert clf.feature_names_in_.tolist() == ["a", "b"]
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(samples), clf.predict_proba(samples))
    calibrated = CalibratedWithErrorsCV(clone(clf).set_params(tol=1e-6), cv=3).fit(samples, y)
    assert calibrated.score(samples, y) > 0.85
    with sklearn.config_context(enable_metadata_routing=True):
        routed = KernelGuruClassifier(0.05, gamma=0.7, n_components=20, random_state=0)
        scores = cross_val_score(routed, X, y, params={"X_err": 0.3 * bars(80, 2)}, cv=3)
    assert scores.min() > 0.7


def test_predictions_take_bounded_memory():
    X, y = moons(200)
    clf = model(n_components=50, random_state=0, tol=1e-6, n_jobs=1).fit(X, y, X_err=bars(200, 2))
    many = np.tile(X, (250, 1))
    X_err = np.tile(bars(200, 2), (250, 1))
    tracemalloc.start()
    margin, spread = clf.margin_and_spread(many, X_err)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # kernel values of all samples would be 20 MB, and their gradients as many again
    np.testing.assert_allclose(spread[:200], clf.margin_and_spread(X, X_err[:200])[1], rtol=1e-12)
    assert len(margin) == 50_000


# --- proofs -----------------------------------------------------------------------------------------------------


@every_name
@pytest.mark.parametrize("with_errors", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_certificates(name, with_errors, n_classes):
    X, y = groups([20] * n_classes, 2)
    X_err = bars(len(y), 2) * 0.4 if with_errors else None
    clf = model(name, 0.3, n_components=12, random_state=0).fit(X, y, X_err=X_err)
    found = clf.certificate(X, y, X_err=X_err)
    assert found.primal == pytest.approx(clf.objective_, rel=1e-6)
    assert found.dual <= clf.objective_
    assert found.gap <= 1e-4 * len(y)
    others, labels = groups([15] * n_classes, 2, seed=7)
    noise = bars(len(labels), 2, seed=3) * 0.4 if with_errors else None
    elsewhere = clf.certificate(others, labels, X_err=noise)
    assert 0 <= elsewhere.dual <= elsewhere.primal
    # The least over all samples is at most the least over those of the span, on the same data.
    assert elsewhere.dual <= clone(clf).set_params(n_components=None).fit(others, labels, X_err=noise).objective_ * 1.5


def test_certificates_that_cannot_be():
    X, y = moons(20)
    clf = KernelGuruClassifier(0.3, kernel="precomputed").fit(X @ X.T, y)
    with pytest.raises(ValueError, match="kernel='precomputed' keeps no samples"):
        clf.certificate(X @ X.T, y)
    with pytest.raises(ValueError, match="y must have the classes"):
        model(sigma=0.3).fit(X, y).certificate(X, y + 1)


# --- unsupported ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("laplacian", "has a kink where samples meet"),
        ("sigmoid", "no closed form"),
        ("cosine", "no closed form"),
        ("chi2", "not negative"),
        ("precomputed", "kernel values alone"),
        (lambda a, b: a @ b.T, "no closed form"),
    ],
)
def test_kernels_without_closed_forms_say_why(kernel, reason):
    X, y = moons(20)
    X = np.abs(X)
    samples = X @ X.T if kernel == "precomputed" else X
    clf = KernelGuruClassifier(0.1, kernel=kernel)
    with pytest.raises(ValueError, match=rf"X_err is not supported with kernel=.*{reason}.*use 'rbf'"):
        clf.fit(samples, y, X_err=np.ones(20))
    assert not vars(clf).keys() & {"dual_coef_", "population_", "n_features_in_"}
    clf = KernelGuruClassifier(10.0, kernel="rbf" if kernel == "sigmoid" else kernel).fit(samples, y)
    if kernel != "sigmoid":
        for call in (clf.predict, clf.decision_function, clf.predict_proba, clf.margin_and_spread):
            with pytest.raises(ValueError, match="X_err is not supported"):
                call(samples, np.ones(20))


def test_bad_errors_are_refused():
    X, y = moons(20)
    good = np.full(X.shape, 0.1)
    for bad, words in [
        (-good, "nonnegative"),
        (good[:5], "X_err"),
        (np.tile(np.diag([1.0, -1.0]), (20, 1, 1)), "positive semidefinite"),
        (np.tile(np.array([[1.0, 2.0], [0.0, 1.0]]), (20, 1, 1)), "symmetric"),
        (np.full(X.shape, "a"), "must hold numbers"),
        (LowRank(np.ones((20, 3, 1))), "X_err.factors must have shape"),
    ]:
        with pytest.raises(ValueError, match=words):
            model(sigma=0.3).fit(X, y, X_err=bad)
        with pytest.raises(ValueError, match=words):
            model(sigma=0.3).fit(X, y, X_err=good).decision_function(X, bad)
    for spread in ("gradient", "exact"):
        clf = model(sigma=0.3, spread=spread, n_components=5, random_state=0).fit(X, y, X_err=good)
        with pytest.raises(ValueError, match=r"positive semidefinite covariances; that of sample 0"):
            clf.predict(X, np.tile(np.diag([1.0, -1.0]), (20, 1, 1)))
    for solver in ("sgd", "sgd2", "dual"):
        with pytest.raises(ValueError, match="X_err with a kernel needs solver='newton'"):
            model(solver=solver).fit(X, y, X_err=good)
    with pytest.raises(ValueError, match=r"kernel='poly' of degree 2.5: only whole powers"):
        model("poly", degree=2.5).fit(X, y, X_err=good)
    with pytest.raises(ValueError, match="spread must be one of"):
        model(spread="all").fit(X, y)
    with pytest.raises(ValueError, match="sigma must be a finite number > 0"):
        model(sigma=0).fit(X, y, X_err=good)


def test_points_and_features_of_one_sample():
    """A space of one dimension, and samples far from the origin."""
    X, y = moons(20)
    clf = model(n_components=1, random_state=0, sigma=0.3).fit(X, y, X_err=bars(20, 2))
    assert clf.X_fit_.shape == (1, 2)
    space = exact_features(Kernel("rbf", PARAMS), X[:1])[2]
    assert isinstance(space, LandmarkSpace)
    near = model(n_components=10, random_state=0, sigma=0.3).fit(X, y, X_err=bars(20, 2))
    far = model(n_components=10, random_state=0, sigma=0.3).fit(X + 1e6, y, X_err=bars(20, 2))
    assert near.objective_ == pytest.approx(far.objective_, rel=1e-6)
