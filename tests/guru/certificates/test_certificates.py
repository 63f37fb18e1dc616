"""Certificates: valid everywhere, tight at the optimum."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.data import clouds

from gaussguru import CollapseWarning, GuruClassifier, sigma_max
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.problems.smoothing import NONE, Smoothing
from gaussguru._guru.solvers.bounds import certify
from gaussguru._rows.rows import Rows
from gaussguru.certificates import norm_bound, recover_norm
from gaussguru.losses import LOSSES
from gaussguru.noise import NOISES

LOSS, ISOTROPIC = LOSSES["gaussian"], NOISES["isotropic"]
CASES = {
    "even": (clouds(40, 40, 3, 1.5, seed=1), 0.5),
    "uneven": (clouds(12, 60, 3, 2.0, seed=2), 0.3),
    "noisy": (clouds(40, 35, 4, 1.0, seed=3), 1.5),
    "separable": (clouds(20, 20, 3, 8.0, seed=4), 0.5),
    "wide": (clouds(10, 12, 30, 2.0, seed=5), 1.0),
}
every_case = pytest.mark.parametrize("name", CASES)
options = pytest.mark.parametrize(
    ("l2", "fit_intercept"), [(0.0, True), (0.0, False), (0.1, True), (0.1, False), (30.0, True), (30.0, False)]
)


def weights(y):
    return np.random.default_rng(0).uniform(0.2, 2.0, len(y))


@cache
def least(name, l2, fit_intercept):
    (X, y), sigma = CASES[name]
    return oracles.minimum(X, y, sigma, weight=weights(y), l2=l2, fit_intercept=fit_intercept)


def make(name, l2, fit_intercept, smoothing=NONE):
    (X, y), sigma = CASES[name]
    return Binary(Rows(X, y > 0, weights(y)), LOSS, ISOTROPIC(sigma), l2, fit_intercept, smoothing)


def rescaled(problem, w, b):
    """Return the best point with the direction of w."""
    return problem.rescaled(problem.point(np.append(w, b)), 1e-10)


def check_valid(certificate, value, optimum, weight):
    slack = 1e-10 * weight  # tolerance of the oracle
    assert certificate.primal >= value
    assert certificate.dual <= optimum + 1e-13 * weight  # a value of F, so truly an upper bound of the minimum
    assert certificate.gap >= value - optimum - slack
    assert certificate.gap >= 0


@every_case
@options
@pytest.mark.parametrize("best", [True, False], ids=["rescaled", "anywhere"])
@pytest.mark.parametrize("smoothing", [NONE, Smoothing(1.0, 0.05), Smoothing(2.0, 0.05)], ids=["sharp", "blur", "both"])
@settings(deadline=None, derandomize=True, max_examples=25)
@given(draw=st.tuples(st.integers(0, 10**6), st.floats(-3, 2), st.floats(0, 8)))
def test_gap_bounds_the_suboptimality_anywhere(name, l2, fit_intercept, best, smoothing, draw):
    seed, length, nearness = draw
    problem = make(name, l2, fit_intercept, smoothing)
    optimum, w, b = least(name, l2, fit_intercept)
    rng = np.random.default_rng(seed)
    # From far away to near the optimum.
    w = w + 10.0 ** (length - nearness) * rng.standard_normal(len(w))
    b = b + 10.0**-nearness * rng.standard_normal() if fit_intercept else 0.0
    point = rescaled(problem, w, b) if best else problem.point(np.append(w, b))
    (X, y), sigma = CASES[name]

    def check(certificate, point):
        value = oracles.objective(point.coef, point.b, X, y, sigma, weight=weights(y), l2=l2)
        check_valid(certificate, value * (1 - 1e-14), optimum, problem.weight)

    local, visited = problem.expand(point), problem.visit(point.x, curved=True)
    for thorough in (True, False):
        for target in (0.0, 1e-6 * problem.weight, 1e-2 * problem.weight):
            certificate, near = local.certificate(target, thorough=thorough)
            assert near is point or target > 0
            check(certificate, near)
            check(*visited.certificate(target, thorough=thorough))
    check(certify(problem, point.coef, point.b)[0], point)
    step = -np.linalg.solve(
        oracles.hessian(point.coef, point.b, X, y, sigma, weight=weights(y), l2=l2 + 1e-9) + 1e-9 * np.eye(len(w) + 1),
        local.gradient,
    )
    if not fit_intercept:
        step[-1] = 0.0
    assert local.refined(step, 0.0, 0.0)[0] <= optimum + 1e-13 * problem.weight


@every_case
@options
def test_gap_is_tight_at_the_optimum(name, l2, fit_intercept):
    problem = make(name, l2, fit_intercept)
    _, w, b = least(name, l2, fit_intercept)
    certificate, _ = problem.expand(rescaled(problem, w, b)).certificate(1e-9 * problem.weight)
    assert certificate.gap <= 1e-9 * problem.weight
    assert certify(problem, w, b)[0].gap <= 1e-9 * problem.weight


@every_case
def test_a_thorough_certificate_is_not_cut_short(name):
    problem = make(name, 0.0, True)
    _, w, b = least(name, 0.0, True)
    local = problem.expand(rescaled(problem, w, b))
    for target in (0.0, 1e-15 * problem.weight):  # out of reach
        assert local.certificate(target, thorough=True)[0].gap <= 1e-9 * problem.weight


@every_case
@options
def test_gap_shrinks_with_the_error(name, l2, fit_intercept):
    problem = make(name, l2, fit_intercept)
    _, w, b = least(name, l2, fit_intercept)
    assert w.any()
    away = np.random.default_rng(0).standard_normal(len(w)) * np.linalg.norm(w) / np.sqrt(len(w))
    points = [rescaled(problem, w + t * away, b) for t in (0.1, 0.01, 0.001)]
    gaps = [problem.expand(point).certificate(1e-10 * problem.weight, thorough=True)[0].gap for point in points]
    # Second order in the direction.
    assert gaps[2] <= 0.05 * gaps[1] + 1e-9 * problem.weight
    assert gaps[1] <= 0.05 * gaps[0] + 1e-9 * problem.weight


@every_case
def test_sigma_max_formula(name):
    (X, y), _ = CASES[name]
    np.testing.assert_allclose(sigma_max(X, y, weights(y)), oracles.sigma_max(X, y, weights(y)), rtol=1e-12)
    if name in ("even", "separable"):
        assert sigma_max(X, y) == np.inf
    else:
        np.testing.assert_allclose(sigma_max(X, y), oracles.sigma_max(X, y), rtol=1e-12)


@every_case
@pytest.mark.parametrize("factor", [1.0, 1.01, 10.0, 1e6])
def test_collapse_from_sigma_max_on(name, factor):
    (X, y), _ = CASES[name]
    weight = weights(y)
    sigma = oracles.sigma_max(X, y, weight) * factor * (1 + 1e-12)
    with pytest.warns(CollapseWarning):
        clf = GuruClassifier(sigma).fit(X, y, weight)
    constant = 2 * min(weight[y > 0].sum(), weight[y < 0].sum())
    assert not clf.coef_.any()
    np.testing.assert_allclose(clf.objective_, constant, rtol=1e-13)
    assert oracles.minimum(X, y, sigma, weight=weight)[0] >= constant * (1 - 1e-13)


@pytest.mark.parametrize("name", ["even", "separable"])
@pytest.mark.parametrize("sigma", [1e2, 1e6])
def test_equal_class_weights_never_collapse(name, sigma):
    (X, y), _ = CASES[name]
    assert GuruClassifier(sigma).fit(X, y).coef_.any()


def test_collapse_message_says_what_to_do():
    (X, y), _ = CASES["uneven"]
    with pytest.warns(CollapseWarning, match=r"balanced.*smaller sigma.*sigma_max.*fit_intercept=False") as caught:
        GuruClassifier(1e3).fit(X, y)
    assert len(caught) == 1


@every_case
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_norm_bound_holds_at_the_optimum(name, l2):
    (X, y), sigma = CASES[name]
    for factor in (0.3, 1.0, 10.0):
        w = oracles.minimum(X, y, sigma * factor, l2=l2, fit_intercept=False)[1]
        radius = np.linalg.norm(X, axis=1).max()
        level = sigma * factor
        bound = norm_bound(LOSS, ISOTROPIC(level), radius, w)
        assert np.linalg.norm(w) <= bound
        if radius < 30 * level:
            np.testing.assert_allclose(bound, 1 / (level * oracles.loss(-radius / level)), rtol=1e-9)
        else:
            assert bound > 1e100


@every_case
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_norm_and_intercept_are_recovered(name, fit_intercept):
    (X, y), sigma = CASES[name]
    clf = GuruClassifier(sigma, fit_intercept=fit_intercept, tol=1e-13, class_weight="balanced").fit(X, y)
    norm, b, *_ = recover_norm(LOSS, ISOTROPIC(sigma), clf.dual_coef_, y, X, clf.coef_[0])
    np.testing.assert_allclose(norm, np.linalg.norm(clf.coef_), rtol=1e-9)
    np.testing.assert_allclose(b, clf.intercept_[0], rtol=1e-8, atol=1e-9)


@every_case
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_dual_coef_is_optimal_for_the_dual(name, fit_intercept):
    (X, y), sigma = CASES[name]
    clf = GuruClassifier(sigma, fit_intercept=fit_intercept, tol=1e-12, class_weight="balanced").fit(X, y)
    s = np.where(y > 0, len(y) / (2 * (y > 0).sum()), len(y) / (2 * (y < 0).sum()))
    alpha = clf.dual_coef_
    # The values meet to the gap, the variables only to its root.
    np.testing.assert_allclose(s @ alpha, clf.objective_, atol=1e-5 * s.sum())
    if fit_intercept:
        np.testing.assert_allclose(s @ (y * alpha), 0.0, atol=1e-5 * s.sum())
    v = X.T @ (s * y * alpha)
    close = 1e-6 + 10 * np.sqrt(clf.dual_gap_ / clf.objective_)
    np.testing.assert_allclose(v / np.linalg.norm(v), clf.coef_[0] / np.linalg.norm(clf.coef_), atol=close)


def test_a_certificate_falls_back_to_another_pass():
    """Far from the visited point the first-order update proves nothing; if the expected gap is small, slopes do."""
    kept = broken = 0
    for name in CASES:
        problem = make(name, 0.0, True)
        best = rescaled(problem, problem.pull / np.linalg.norm(problem.pull), 0.0)
        for part in (0.9, 0.97, 0.99, 1.0, 1.01, 1.03, 1.1):
            visited = problem.visit(np.append(part * best.coef, best.b + 0.1 * (part - 1)), curved=True)
            near = problem.rescaled(visited.point, 1e-10)
            exact, _ = problem.expand(near).certificate(0.0, thorough=True)
            target = 1.02 * exact.gap
            moved, error = visited.moved(near)
            if moved._certified(error, target, thorough=False).gap > target:
                promised = moved.expected_gap <= target
                kept, broken = kept + promised, broken + (not promised)
                check_valid(exact, near.value, least(name, 0.0, True)[0], problem.weight)
                if promised:
                    assert visited.certificate(target)[0].gap <= target
    assert kept > broken
