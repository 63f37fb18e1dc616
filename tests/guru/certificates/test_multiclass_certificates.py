"""More than two classes: certificates hold at any point, and become tight along a descent."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.data import groups
from support.joint import make

from gaussguru._guru.certificates.dual_point import balance, inverse_laplacian
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru._guru.solvers.bounds import certify
from gaussguru._utils.linalg import EPS

# --- certificates -----------------------------------------------------------------------------------------

CASES = {
    "even": (groups([30, 30, 30], 3, 3.0, seed=1), 0.5),
    "uneven": (groups([8, 20, 50, 12], 3, 3.0, seed=2), 0.3),
    "noisy": (groups([25, 30, 20], 4, 1.5, seed=3), 1.5),
    "collapsing": (groups([6, 30, 15], 2, 2.0, seed=4), 4.0),
    "separable": (groups([20, 20, 15], 3, 15.0, seed=5), 0.5),
    "wide": (groups([8, 10, 9], 30, 4.0, seed=6), 1.0),
}
every_case = pytest.mark.parametrize("name", CASES)
strengths = pytest.mark.parametrize(
    ("l2", "fit_intercept"), [(0.0, True), (0.0, False), (0.1, True), (0.1, False), (30.0, True), (30.0, False)]
)


def random_weights(y):
    return np.random.default_rng(0).uniform(0.2, 2.0, len(y))


@cache
def least(name, l2, fit_intercept):
    (X, y), sigma = CASES[name]
    return oracles.joint_minimum(X, y, sigma, weight=random_weights(y), l2=l2, fit_intercept=fit_intercept)


def check_valid(certificate, plain, optimum, total):
    assert certificate.primal >= plain * (1 - 1e-14)
    assert 0 <= certificate.dual <= optimum + 1e-13 * total
    assert certificate.gap >= plain * (1 - 1e-14) - optimum - 1e-9 * total


@every_case
@strengths
@pytest.mark.parametrize("blur", [0.0, 1e-6, 1e-2])
@settings(deadline=None, derandomize=True, max_examples=10)
@given(draw=st.tuples(st.integers(0, 10**6), st.floats(-3, 2), st.floats(0, 8)))
def test_gap_bounds_the_suboptimality_anywhere(name, l2, fit_intercept, blur, draw):
    seed, length, nearness = draw
    (X, y), sigma = CASES[name]
    weight = random_weights(y)
    problem = make(X, y, weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept, blur=blur)
    optimum, W, b = least(name, l2, fit_intercept)
    rng = np.random.default_rng(seed)
    # From far away to near the optimum.
    W = W + 10.0 ** (length - nearness) * rng.standard_normal(W.shape)
    b = b + 10.0**-nearness * rng.standard_normal(len(b)) * fit_intercept
    local = problem.visit(problem.unknowns(W, b))
    plain = oracles.joint_objective(W, b, X, y, sigma, weight=weight, l2=l2)
    for thorough in (True, False):
        for target in (0.0, 1e-6 * problem.weight, 1e-2 * problem.weight):
            certificate, _ = local.certificate(target, thorough=thorough)
            check_valid(certificate, plain, optimum, problem.weight)
    certificate, alpha = certify(problem, W, b)
    check_valid(certificate, plain, optimum, problem.weight)
    assert np.all((alpha >= 0) & (alpha <= 1))


@every_case
@strengths
def test_gap_shrinks_along_a_descent(name, l2, fit_intercept):
    (X, y), sigma = CASES[name]
    weight = random_weights(y)
    optimum = least(name, l2, fit_intercept)[0]
    duals = []
    exact = make(X, y, weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept)

    def visited(W, b):
        local = exact.smoothed(Smoothing(blur=1e-7)).visit(exact.unknowns(W, b))
        certificate, _ = local.certificate(1e-6 * exact.weight, thorough=True)
        plain = oracles.joint_objective(W, b, X, y, sigma, weight=weight, l2=l2)
        check_valid(certificate, plain, optimum, exact.weight)
        duals.append(certificate.dual)

    oracles.joint_minimum(X, y, sigma, weight=weight, l2=l2, fit_intercept=fit_intercept, callback=visited)
    assert len(duals) > 2
    assert max(duals) >= optimum - 1e-3 * exact.weight


@every_case
def test_points_with_equal_classes_have_a_valid_certificate(name):
    (X, y), sigma = CASES[name]
    weight = random_weights(y)
    optimum, W, b = least(name, 0.0, True)
    problem = make(X, y, weight, sigma=sigma, blur=1e-6)
    for V, c in ((np.zeros_like(W), np.zeros_like(b)), (np.zeros_like(W), b), (W[[0, 0, *range(2, len(W))]], b)):
        plain = oracles.joint_objective(V, c, X, y, sigma, weight=weight)
        certificate, _ = problem.visit(problem.unknowns(V, c)).certificate(0.0, thorough=True)
        check_valid(certificate, plain, optimum, problem.weight)


@every_case
@strengths
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_certificate_does_not_depend_on_the_unit_of_the_features(name, l2, fit_intercept, factor):
    (X, y), sigma = CASES[name]
    weight = random_weights(y)
    _, W, b = least(name, l2, fit_intercept)
    rng = np.random.default_rng(0)
    plain = make(X, y, weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept, blur=1e-3)
    other = make(X * factor, y, weight, sigma=sigma * factor, l2=l2 * factor**2, fit_intercept=fit_intercept, blur=1e-3)
    for size in (1e-4, 1e-2, 0.1):
        V = W + size * np.abs(W).max() * rng.standard_normal(W.shape)
        c = b + size * rng.standard_normal(len(b)) * fit_intercept
        one, _ = plain.visit(plain.unknowns(V, c)).certificate(0.0, thorough=True)
        two, _ = other.visit(other.unknowns(V / factor, c)).certificate(0.0, thorough=True)
        np.testing.assert_allclose(two.primal, one.primal, rtol=1e-12)
        np.testing.assert_allclose(two.dual, one.dual, rtol=1e-8, atol=1e-10 * plain.weight)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("back", [1e-320, 1e-305, 1e-250, 0.0])
def test_tiny_slopes_do_not_overflow_the_balance(n_classes, back):
    """If only the first class has slopes that are not tiny, almost nothing is kept, and nothing overflows."""
    slope = np.full((n_classes, n_classes), back)
    slope[0] = 1.0
    np.fill_diagonal(slope, 0.0)
    assert np.isfinite(inverse_laplacian(np.minimum(slope, slope.T))).all()
    kept = balance(slope)
    assert kept is None or float(np.vdot(kept, slope)) <= 4 * EPS * slope.sum()
