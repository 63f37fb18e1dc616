"""Problems for which docs/promises.md was once not true, and others near them."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from support import oracles
from support.common import with_and_without

from gaussguru import AdversarialSVC, CollapseWarning, GuruClassifier, KernelGuruClassifier, TotalSVC
from gaussguru.losses import LOSSES

RNG = np.random.default_rng


def fit(model, X, y, **more):
    """Return a fitted model and its warnings; one of NumPy would be an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.simplefilter("always", CollapseWarning)
        model.fit(X, y, **more)
    return model, caught


def check_proven(model, n_samples):
    assert model.converged_
    assert 0 <= model.dual_gap_ <= 1e-6 * n_samples * max(1, len(model.classes_) - 1)


# --- error bars so large that the features are ignored -------------------------------------------


@pytest.mark.parametrize("size", [60, 61, 240])
@pytest.mark.parametrize("share", [3, 4, 7])
def test_a_collapse_under_error_bars_has_an_intercept_of_1(size, share):
    X, y = RNG(0).standard_normal((size, 2)), (np.arange(size) % share == 0).astype(int)
    model, caught = fit(GuruClassifier(0.0), X, y, X_err=np.full(size, 100.0))
    assert [warning.category for warning in caught] == [CollapseWarning]
    assert model.intercept_.tolist() == [-1.0]
    rare = y.sum()
    assert model.objective_ == pytest.approx(2 * rare, abs=1e-6 * size)
    assert model.certificate(X, y, X_err=np.full(size, 100.0)).primal == pytest.approx(model.objective_)


def test_a_collapse_of_three_classes_under_error_bars_has_intercepts_that_add_up_to_zero():
    X, y = RNG(0).standard_normal((60, 2)), np.minimum(np.arange(60) % 5, 2)
    model, caught = fit(GuruClassifier(0.0), X, y, X_err=np.full(60, 100.0))
    assert [warning.category for warning in caught] == [CollapseWarning]
    assert abs(model.intercept_.sum()) < 1e-12
    assert model.objective_ == pytest.approx(3 * np.sum(y != 2), abs=1e-6 * 120)


# --- no adversary, and a strong ridge -------------------------------------------


def svm(X, y, lam):
    """Return the minimum of a support vector machine without an intercept, by its dual."""
    Z = X * np.where(y == np.unique(y)[1], 1.0, -1.0)[:, np.newaxis]
    bounds = [(0.0, 1.0)] * len(Z)

    def negative(alpha):
        v = Z.T @ alpha
        return v @ v / (2 * lam) - alpha.sum(), Z @ v / lam - 1

    best = minimize(negative, np.full(len(Z), 0.5), jac=True, bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-12})
    return -best.fun


@pytest.mark.parametrize("lam", [1.0, 30.0, 100.0, 1e4])
@pytest.mark.parametrize("seed", range(5))
def test_a_ball_of_no_size_is_a_support_vector_machine(seed, lam):
    X, y = RNG(seed).standard_normal((10, 3)), np.arange(10) % 2
    model, caught = fit(AdversarialSVC(0.0, lam=lam, fit_intercept=False), X, y)
    assert not caught
    check_proven(model, 10)
    assert model.objective_ == pytest.approx(svm(X, y, lam), abs=2e-5)


# --- exact columns beside noisy ones -------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_exact_columns_beside_noisy_ones_are_proven(seed, n_classes):
    rng = RNG(seed)
    X, y = rng.standard_normal((80, 5)), rng.integers(0, n_classes, 80)
    X[:, 1] += y
    X_err = np.full(X.shape, 0.3)
    X_err[:, :2] = 0.0
    model, caught = fit(GuruClassifier(0.0), X, y, X_err=X_err)
    assert not caught
    check_proven(model, 80)


@pytest.mark.parametrize("value", [0.0, 3e-3, 0.1, 1e6 / 3])
@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray])
def test_a_constant_exact_column_adds_nothing(form, value):
    rng = RNG(0)
    X, y = rng.standard_normal((80, 3)), rng.integers(0, 2, 80)
    X[:, 1] += y
    without, _ = fit(GuruClassifier(0.3, noise=[1.0, 0.5, 2.0]), X, y)
    model, caught = fit(GuruClassifier(0.3, noise=[0.0, 1.0, 0.5, 2.0]), form(np.insert(X, 0, value, axis=1)), y)
    assert not caught
    check_proven(model, 80)
    assert model.objective_ == pytest.approx(without.objective_, abs=2e-6 * 80)
    # Its mean is rounded, and what is left of it is no feature.
    assert abs(model.coef_[0, 0] * value) < 1


# --- the dual where w = 0 is optimal -------------------------------------------


@with_and_without
def test_the_dual_of_classes_with_equal_means(fit_intercept):
    X, y = np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.array([0, 0, 1, 1])
    model, caught = fit(GuruClassifier(solver="dual", fit_intercept=fit_intercept), X, y)
    assert [warning.category for warning in caught] == [CollapseWarning]
    assert model.objective_ == pytest.approx(4.0)
    assert model.dual_gap_ <= 4e-6
    assert not model.coef_.any()


@pytest.mark.parametrize("seed", range(6))
def test_the_dual_of_very_noisy_classes(seed):
    X, y = RNG(seed).standard_normal((30, 2)), np.arange(30) % 5 == 0
    model, _ = fit(GuruClassifier(50.0, solver="dual"), X, y)
    other, _ = fit(GuruClassifier(50.0), X, y)
    assert model.objective_ == pytest.approx(other.objective_, abs=1e-4)
    check_proven(model, 30)


# --- collapse at ordinary scales -------------------------------------------


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("noise", [[0, 1], [1, 0], "isotropic"])
@pytest.mark.parametrize("seed", range(3))
def test_rare_classes_collapse_with_a_proof(seed, noise, loss):
    X, y = RNG(seed).standard_normal((60, 2)), np.arange(60) < 6
    model, caught = fit(GuruClassifier(4.0, noise=noise, loss=loss), X, y)
    check_proven(model, 60)
    assert [warning.category for warning in caught] in ([], [CollapseWarning])
    assert bool(caught) == (not model.coef_.any())


@pytest.mark.parametrize("sigma", [1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("seed", range(3, 9))
def test_one_sample_against_the_rest_is_proven(seed, sigma):
    X = RNG(seed).standard_normal((60, 1))
    model, _ = fit(GuruClassifier(sigma), X, np.arange(60) == 0)
    check_proven(model, 60)


# --- covariances without full rank -------------------------------------------


@pytest.mark.parametrize("level", [2.0**-10, 1.0, 2.0**10, 2.0**19])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_singular_covariances_are_sound(seed, level):
    rng = RNG(seed)
    X = rng.standard_normal((40, 4)) + np.arange(40)[:, np.newaxis] % 2
    y, root = np.arange(40) % 2, rng.standard_normal((4, 2))
    model, _ = fit(GuruClassifier(level, noise=root @ root.T), X, y)
    signs = 2.0 * y - 1
    floors = 1e-6 * X.std(axis=0)

    def value(p):
        w, b = p[:-1], p[-1]
        a = np.sqrt(level**2 * np.sum((root.T @ w) ** 2) + np.sum((floors * w) ** 2))
        m = 1 - signs * (X @ w + b)
        return float(np.sum(a * oracles.loss(m / a))) if a > 0 else float(np.maximum(m, 0).sum())

    own = np.append(model.coef_[0], model.intercept_)
    assert value(own) == pytest.approx(model.objective_, rel=1e-7)
    bound = model.objective_ - model.dual_gap_
    # In the null space of the covariance the noise is next to nothing: whatever is found there is above the bound.
    basis = np.linalg.svd(root.T)[2][2:]
    for direction in [*basis, *rng.standard_normal((20, len(basis))) @ basis]:
        for length in np.geomspace(1e-2, 1e3, 11):
            for b in (-1.0, 0.0, 1.0):
                assert value(np.append(length * direction, b)) >= bound - 1e-9 * 40


# --- weights of samples that do not count -------------------------------------------


def test_unmeasured_values_are_filled_by_samples_that_count():
    rng = RNG(0)
    X, y, weight = rng.standard_normal((60, 3)), np.arange(60) % 2, np.ones(60)
    X_err = np.full(X.shape, 0.2)
    X_err[:5, 1] = np.inf
    extra = 100 + rng.standard_normal((30, 3))
    model = GuruClassifier(0.3).fit(X, y, weight, X_err=X_err)
    more = GuruClassifier(0.3).fit(
        np.vstack([X, extra]),
        np.append(y, np.arange(30) % 2),
        np.append(weight, np.zeros(30)),
        X_err=np.vstack([X_err, np.full(extra.shape, 0.2)]),
    )
    np.testing.assert_allclose(more.coef_, model.coef_, rtol=1e-9)
    filled, other = (clf.population_.fill(X, X_err)[0] for clf in (model, more))
    np.testing.assert_allclose(other, filled, rtol=1e-12)


# --- kernels far from the origin -------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("gamma", [0.5, "scale"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_kernels_of_distances_do_not_know_where_the_origin_is(kernel, offset, gamma, form):
    X = np.round(RNG(0).standard_normal((80, 3)), 3)
    y = X[:, 0] * X[:, 1] > 0
    near = KernelGuruClassifier(0.1, kernel=kernel, gamma=gamma).fit(X, y)
    far = KernelGuruClassifier(0.1, kernel=kernel, gamma=gamma).fit(form(X + offset), y)
    np.testing.assert_allclose(far.decision_function(form(X + offset)), near.decision_function(X), atol=1e-4)


# --- extreme numbers -------------------------------------------


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("errors", [False, True])
def test_extreme_units_change_nothing(errors, n_classes, scale):
    X, y = RNG(1).standard_normal((50, 3)), np.arange(50) % n_classes
    X_err = np.full(X.shape, 0.2)
    near, _ = fit(GuruClassifier(0.5), X, y, **({"X_err": X_err} if errors else {}))
    far, caught = fit(GuruClassifier(0.5 * scale), scale * X, y, **({"X_err": scale * X_err} if errors else {}))
    assert not caught
    np.testing.assert_allclose(far.coef_ * scale, near.coef_, rtol=1e-4, atol=1e-5)
    assert far.objective_ == pytest.approx(near.objective_, abs=1e-4)


# --- gaps and reasons -------------------------------------------


@pytest.mark.parametrize("sigma", [1e-3, 0.1])
@pytest.mark.parametrize("max_iter", [1, 3])
@pytest.mark.parametrize("apart", [0, 3, 30])
def test_a_gap_is_at_most_the_objective(apart, max_iter, sigma):
    y = np.arange(30) % 3
    X = RNG(0).standard_normal((30, 3)) + apart * np.eye(3)[y]
    model, _ = fit(GuruClassifier(sigma, max_iter=max_iter), X, y)
    assert model.dual_gap_ <= model.objective_
    certificate = model.certificate(X, y)
    assert certificate.gap <= certificate.primal


def test_the_reason_of_a_warning_is_the_status_of_the_solver():
    X, y = RNG(0).standard_normal((60, 2)), np.arange(60) % 2
    _, caught = fit(GuruClassifier(0.1, max_iter=2), X, y)
    assert "max_iter=2" in str(caught[0].message)
    assert "double precision" not in str(caught[0].message)
    _, caught = fit(GuruClassifier(0.1, tol=1e-17), X, y)
    assert "double precision" in str(caught[0].message)
    assert "max_iter" not in str(caught[0].message)


# --- slow corners -------------------------------------------

# Hundreds of times what these fits take.
SECONDS = 20.0
SLOW = {
    "ridge, two classes": (GuruClassifier(0.5, l2=1e18), 60, 2, None),
    "ridge, three classes": (GuruClassifier(0.5, l2=1e18), 60, 3, None),
    "ridge, error bars": (GuruClassifier(0.5, l2=1e18), 60, 2, 0.3),
    "far, seven classes, error bars": (GuruClassifier(1e-7), 41, 7, 3e-7),
    "total, hardly a ridge": (TotalSVC(0.3, lam=1.6e-13), 47, 2, None),
}


@pytest.mark.parametrize(("model", "n", "n_classes", "error"), SLOW.values(), ids=SLOW.keys())
def test_no_corner_is_slow(model, n, n_classes, error):
    X, y = RNG(0).standard_normal((n, 3)), np.arange(n) % n_classes
    if error is not None and error < 1e-3:
        X = 1 + 1e-6 * X
    began = time.perf_counter()
    fitted, _ = fit(model, X, y, **({} if error is None else {"X_err": np.full(X.shape, error)}))
    assert time.perf_counter() - began < SECONDS
    assert fitted.n_iter_ < 100


# --- kernels: what is reported is what predicts -------------------------------------------


@pytest.mark.parametrize("gamma", [1e-5, 1e-2, 0.1])
@pytest.mark.parametrize("sigma", [1e-5, 1e-3])
def test_the_objective_of_a_kernel_is_that_of_its_coefficients(sigma, gamma):
    X = RNG(1).standard_normal((80, 2))
    y = X[:, 0] + 0.2 * X[:, 1] ** 2 + 0.3 * RNG(2).standard_normal(80) > 0
    model, _ = fit(KernelGuruClassifier(sigma, gamma=gamma), X, y)
    a = sigma * model.norm_[0]
    slack = (1 - (2.0 * y - 1) * model.decision_function(X)) / a
    assert model.objective_ == pytest.approx(float(np.sum(a * oracles.loss(slack))), rel=1e-12)


# --- certificates of stochastic descent -------------------------------------------


def test_a_good_stochastic_classifier_with_error_bars_has_a_lower_bound():
    X = RNG(0).standard_normal((300, 3))
    y = X[:, 0] + 0.3 * RNG(1).standard_normal(300) > 0
    X_err = np.full(X.shape, 0.3)
    model = GuruClassifier(0.2, solver="sgd", max_iter=200, average=True, random_state=0)
    model, _ = fit(model, X, y, X_err=X_err)
    best = GuruClassifier(0.2).fit(X, y, X_err=X_err).objective_
    assert model.objective_ <= 1.02 * best
    certificate = model.certificate(X, y, X_err=X_err)
    assert 0.5 * best < certificate.dual <= best
