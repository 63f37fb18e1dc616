"""The solver against independent oracles: generic optimisation, and linear programming for tiny noise."""

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from support import oracles
from support.common import every_solver, with_and_without
from support.data import PROBLEMS, clouds, problem

from gaussguru import CollapseWarning, GuruClassifier
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.solvers.bounds import Bounds
from gaussguru._rows.rows import Rows
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic

# Generic optimisers are trusted from here upwards; below, linear programming bounds the minimum from both sides.
MODERATE = 2.0**-4
# The tolerance of a generic optimiser, relative to F(0).
SLACK = 1e-9


def solve(X, y, sigma, **options):
    """Return a fitted classifier and the categories of the warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = GuruClassifier(sigma=sigma, **options).fit(X, y)
    return clf, [warning.category for warning in caught]


def value(clf, X, y, **options):
    return oracles.objective(clf.coef_[0], clf.intercept_[0], X, y, clf.sigma, **options)


def check_solved(clf, caught, X, y, **options):
    """Assert everything that holds for a converged fit without knowing the minimum."""
    weight = options.get("weight", np.ones(len(y))).sum()
    assert 0 <= clf.dual_gap_ <= clf.tol * weight
    assert caught == ([] if clf.coef_.any() else [CollapseWarning])
    np.testing.assert_allclose(clf.objective_, value(clf, X, y, **options), rtol=1e-12, atol=1e-13 * weight)
    assert clf.dual_coef_.shape == (len(y),)
    assert np.all((clf.dual_coef_ >= 0) & (clf.dual_coef_ <= 1))


def check_agrees(clf, optimum, weight):
    """Assert that the minimum of an oracle is within the gap, up to the tolerance of the oracle."""
    assert optimum - SLACK * weight <= clf.objective_ <= optimum + clf.dual_gap_ + 1e-12 * weight


@cache
def hinge(name, fit_intercept):
    return oracles.hinge_minimum(*problem(name), fit_intercept=fit_intercept)


@cache
def optimum(name, sigma, fit_intercept):
    return oracles.minimum(*problem(name), sigma, fit_intercept=fit_intercept)[0]


@every_solver
@pytest.mark.parametrize("factor", [1.0, 1e-8, 1e8])
@with_and_without
@pytest.mark.parametrize("exponent", range(-20, 21, 4))
@pytest.mark.parametrize("name", PROBLEMS)
def test_optimum_over_the_whole_range_of_sigma(name, exponent, fit_intercept, factor, solver):
    X, y = problem(name)
    sigma, scaled = 2.0**exponent, X * factor
    clf, caught = solve(scaled, y, sigma * factor, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, scaled, y)
    # F does not change when X, sigma and 1/w are scaled together, so one oracle serves all factors.
    if sigma >= MODERATE:
        check_agrees(clf, optimum(name, sigma, fit_intercept), len(y))
    else:
        least, w, b = hinge(name, fit_intercept)
        above = oracles.objective(w, b, X, y, sigma)
        assert least - SLACK * len(y) <= clf.objective_ <= above + clf.dual_gap_ + 1e-12 * len(y)


@with_and_without
@pytest.mark.parametrize("name", ["balanced", "unbalanced", "repeated-columns"])
def test_gap_is_honest_below_double_precision(name, fit_intercept):
    X, y = problem(name)
    sigma = 1e-15 * np.abs(X).max()
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept)
    least, w, b = oracles.hinge_minimum(X, y, fit_intercept=fit_intercept)
    assert caught == [ConvergenceWarning]
    assert np.isfinite(clf.coef_).all()
    assert np.isfinite(clf.intercept_).all()
    assert clf.dual_gap_ > clf.tol * len(y)
    assert clf.objective_ - clf.dual_gap_ <= oracles.objective(w, b, X, y, sigma) + 1e-12 * len(y)
    assert clf.dual_gap_ >= clf.objective_ - least - SLACK * len(y)


def test_sigma_below_double_precision_says_what_to_do():
    X, y = problem("balanced")
    with pytest.warns(ConvergenceWarning, match="double precision.*increase sigma"):
        GuruClassifier(sigma=1e-13).fit(X, y)


@every_solver
def test_few_iterations_warn_and_keep_the_gap_valid(solver):
    X, y = problem("balanced")
    with pytest.warns(ConvergenceWarning, match="max_iter.*increase") as caught:
        clf = GuruClassifier(sigma=0.01, max_iter=1, solver=solver).fit(X, y)
    assert len(caught) == 1
    assert clf.n_iter_ == 1
    assert clf.dual_gap_ >= value(clf, X, y) - oracles.minimum(X, y, 0.01)[0] - SLACK * len(y)


@every_solver
@with_and_without
def test_tol_is_met(fit_intercept, solver):
    X, y = problem("breast-cancer")
    for tol in (1e-2, 1e-6, 1e-10):
        clf, caught = solve(X, y, 0.5, tol=tol, fit_intercept=fit_intercept, solver=solver)
        check_solved(clf, caught, X, y)


@every_solver
@with_and_without
@pytest.mark.parametrize("l2", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 10.0])
def test_optimum_with_a_ridge(sigma, l2, fit_intercept, solver):
    X, y = problem("balanced")
    clf, caught = solve(X, y, sigma, l2=l2, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y, l2=l2)
    check_agrees(clf, oracles.minimum(X, y, sigma, l2=l2, fit_intercept=fit_intercept)[0], len(y))


@every_solver
@with_and_without
@pytest.mark.parametrize("order", ["random", "by-label", "rare-columns"])
def test_optimum_with_many_rows(order, fit_intercept, solver):
    X, y = clouds(40_000, 30_000, 12, 1.5, seed=6)
    if order == "by-label":
        rows = np.argsort(y, kind="stable")
        X, y = X[rows], y[rows]
    if order == "rare-columns":  # a subsample sees next to nothing of the last columns
        X[:, 8:] *= np.random.default_rng(0).random((len(y), 4)) < 3e-4
    clf, caught = solve(X, y, 0.5, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    check_agrees(clf, oracles.minimum(X, y, 0.5, fit_intercept=fit_intercept)[0], len(y))


@every_solver
@with_and_without
@pytest.mark.parametrize("sigma", [0.01, 1.0])
def test_optimum_with_many_columns(sigma, fit_intercept, solver):
    rng = np.random.default_rng(7)
    X = sp.random_array((300, 3000), density=0.01, rng=rng, format="csr", data_sampler=rng.standard_normal)
    y = np.where(X[:, :200].sum(axis=1) + rng.standard_normal(300) > 0, 1.0, -1.0)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    # The minimiser lies in the span of the rows: solve in coordinates of that space.
    _, s, axes = np.linalg.svd(X.toarray(), full_matrices=False)
    Z = X @ axes[s > 1e-10 * s[0]].T
    check_agrees(clf, oracles.minimum(Z, y, sigma, fit_intercept=fit_intercept)[0], len(y))


@every_solver
@pytest.mark.parametrize("part", [0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_optimum_around_the_collapse(seed, part, solver):
    X, y = clouds(20, 200, 3, 1.5, seed=seed)
    sigma = part * oracles.sigma_max(X, y)
    clf, caught = solve(X, y, sigma, solver=solver)
    check_solved(clf, caught, X, y)
    check_agrees(clf, oracles.minimum(X, y, sigma)[0], len(y))
    if not clf.coef_.any():
        assert clf.objective_ == 2 * 20
        assert clf.intercept_[0] == -1


@every_solver
@pytest.mark.parametrize("exponent", range(-20, 21, 8))
@pytest.mark.parametrize("d", [1, 2, 10])
def test_minority_inside_the_majority_always_collapses(d, exponent, solver):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((200, d)), 0.1 + 0.1 * rng.standard_normal((20, d))])
    y = np.repeat([-1.0, 1.0], [200, 20])
    np.testing.assert_allclose(oracles.hinge_minimum(X, y)[0], 2 * 20)
    clf, caught = solve(X, y, 2.0**exponent, solver=solver)
    check_solved(clf, caught, X, y)
    assert not clf.coef_.any()
    assert clf.objective_ == 2 * 20


@pytest.mark.parametrize("sigma", [1e-6, 0.1, 10.0])
def test_equal_rows_of_both_classes_collapse_without_an_intercept(sigma):
    X = np.array([[1.0, 2.0], [1.0, 2.0], [-3.0, 1.0], [-3.0, 1.0]])
    clf, caught = solve(X, np.array([1.0, -1.0, 1.0, -1.0]), sigma, fit_intercept=False)
    assert caught == [CollapseWarning]
    assert clf.objective_ == 4
    assert not clf.coef_.any()


@pytest.mark.parametrize("seed", range(40))
def test_any_problem_is_solved_and_certified(seed):
    """Random sizes, scales, balances, noise levels and ridges, mostly without anything to learn."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        n, d = int(rng.integers(6, 100)), int(rng.integers(1, 12))
        y = np.where(rng.random(n) < rng.uniform(0.1, 0.9), 1, -1)
        y[:2] = 1, -1
        X = rng.standard_normal((n, d)) + np.outer(y, rng.standard_normal(d)) * rng.choice([0.0, 0.3, 1.0])
        sigma, l2 = 10.0 ** rng.uniform(-4, 3), rng.choice([0.0, 1e-3, 1.0, 1e2, 1e4])
        clf, caught = solve(X, y, sigma, l2=l2, fit_intercept=bool(rng.random() < 0.7))
        assert clf.dual_gap_ <= 1e-6 * n
        assert caught in ([], [CollapseWarning])
        np.testing.assert_allclose(value(clf, X, y, l2=l2), clf.objective_, rtol=1e-9, atol=1e-9)


def test_a_lower_bound_above_an_attained_value_is_rejected():
    X = np.random.default_rng(0).standard_normal((40, 2))
    posed = Binary(Rows(X, X[:, 0] > 0), LOSSES["gaussian"], Isotropic(0.5))
    bounds = Bounds("newton", posed, 1e-6, 0)
    bounds.raise_dual(0.5 * bounds.primal)
    bounds.raise_dual(1.01 * bounds.primal)
    assert bounds.dual == 0.5 * bounds.primal
    assert not bounds.is_closed
