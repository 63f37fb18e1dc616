"""More than two classes: Newton's method proves the optimum it finds, also where classes collapse, and at limits."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from support import oracles
from support.common import Written, every_joint_solver, with_and_without
from support.data import JOINT_PROBLEMS, clouds, groups, joint_problem
from support.joint import (
    SMALL,
    at_zero,
    check_agrees,
    check_certified_or_warned,
    check_honest,
    check_near_hinge,
    check_same,
    check_solved,
    check_state,
    make,
    noisy_groups,
    solve,
)

from gaussguru import CollapseWarning, GuruClassifier
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.solvers.newton import Newton
from gaussguru._rows.rows import Rows
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic

# --- two classes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("l2", [0.0, 0.5])
@with_and_without
def test_two_classes_are_the_binary_problem(fit_intercept, l2, weighted, sigma):
    X, y = clouds(60, 60, 4, 1.5, seed=1)
    weight = np.random.default_rng(0).uniform(0.3, 2.0, len(y)) if weighted else np.ones(len(y))
    if weighted:  # classes of the same weight: none of these collapses
        weight[y > 0] *= weight[y < 0].sum() / weight[y > 0].sum()
    binary = Binary(Rows(X, y > 0, weight), LOSSES["gaussian"], Isotropic(sigma), l2, fit_intercept)
    joint = make(X, (y > 0).astype(np.int32), weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept)
    one, two = (Newton(tol=1e-12).solve(problem) for problem in (binary, joint))
    assert one.converged
    assert two.converged
    np.testing.assert_allclose(two.objective, one.objective, rtol=1e-10)
    scale = np.abs(one.coef).max()
    np.testing.assert_allclose(two.coef[1] - two.coef[0], one.coef, rtol=1e-6, atol=1e-6 * scale)
    np.testing.assert_allclose(two.intercept[1] - two.intercept[0], one.intercept, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(two.alpha[np.arange(len(y)), (y < 0).astype(int)], one.alpha, atol=1e-5)
    assert not np.any(two.alpha[np.arange(len(y)), (y > 0).astype(int)])


def test_two_classes_collapse_like_the_binary_problem():
    X, y = clouds(20, 60, 3, 2.0)
    joint = make(X, (y > 0).astype(np.int32), np.ones(80), sigma=1e6)
    result = Newton().solve(joint)
    assert result.converged
    assert result.collapsed
    assert not result.coef.any()
    np.testing.assert_allclose(result.objective, 40.0, rtol=1e-12)
    np.testing.assert_allclose(result.intercept, -1.0, rtol=1e-12)


# --- the optimum ------------------------------------------------------------------------------------------


@cache
def hinge(name, fit_intercept):
    return oracles.joint_hinge_minimum(*joint_problem(name), fit_intercept=fit_intercept)


@cache
def optimum(name, sigma, fit_intercept, blurs):
    return oracles.joint_minimum(*joint_problem(name), sigma, fit_intercept=fit_intercept, blurs=blurs)[0]


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("exponent", [-2, 0, 2, 6, 10])
@pytest.mark.parametrize("name", JOINT_PROBLEMS)
def test_optimum_at_moderate_and_large_noise(name, exponent, fit_intercept, solver):
    X, y = joint_problem(name)
    sigma = 2.0**exponent
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    total = at_zero(clf, y)
    # If classes collapse, rounding off the kinks is slow; then the constant classifier must suffice.
    slow = name not in SMALL and fit_intercept and sigma > 2**5
    found = optimum(name, sigma, fit_intercept, (0.1, 1e-2, 1e-3) if slow else (0.1, 1e-3, 1e-5, 1e-7, 1e-9))
    rng = np.random.default_rng(0)
    starts = []
    for size in (1e-6, 1e-3, 0.1):
        scale = size * (np.abs(clf.coef_).max() or 1e-3)
        W = clf.coef_ + scale * rng.standard_normal(clf.coef_.shape)
        b = clf.intercept_ + size * rng.standard_normal(len(W)) * fit_intercept
        check_honest(clf, oracles.joint_objective(W, b, X, y, sigma), total)
        starts.append((W, b))
    if name in SMALL:
        near = oracles.joint_minimum(
            X, y, sigma, fit_intercept=fit_intercept, starts=starts[1:], own_start=False, blurs=(1e-3, 1e-6, 1e-9)
        )
        check_agrees(clf, near[0], total)
    check_solved(clf, caught, X, y)
    if slow and clf.coef_.any():
        check_honest(clf, found, total)
    else:
        check_agrees(clf, found, total)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("exponent", [-10, -8, -6])
@pytest.mark.parametrize("name", JOINT_PROBLEMS)
def test_optimum_at_small_noise(name, exponent, fit_intercept, solver):
    X, y = joint_problem(name)
    sigma = 2.0**exponent
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    if name != "letter":
        check_near_hinge(clf, X, y, hinge(name, fit_intercept))


@pytest.mark.parametrize("sigma", np.linspace(0.17, 0.2, 7))
def test_a_class_far_from_the_others_does_not_prevent_the_proof(sigma):
    """One flower is far from the others here: its small flow must not prevent the proof."""
    X, y = joint_problem("iris")
    clf, caught = solve(X, y, sigma)
    check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("exponent", [-24, -20, -16])
@pytest.mark.parametrize("name", [name for name in JOINT_PROBLEMS if name != "letter"])
def test_tiny_noise_is_certified_or_honest(name, exponent, fit_intercept, solver):
    X, y = joint_problem(name)
    sigma = 2.0**exponent
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_near_hinge(clf, X, y, hinge(name, fit_intercept))
    check_certified_or_warned(clf, caught, X, y)


@every_joint_solver
@pytest.mark.parametrize("name", JOINT_PROBLEMS)
def test_optimum_at_huge_noise(name, solver):
    X, y = joint_problem(name)
    for exponent in (14, 20):
        clf, caught = solve(X, y, 2.0**exponent, solver=solver)
        counts = np.bincount(y)
        constant, _ = oracles.constant_minimum(counts.astype(float))
        total = at_zero(clf, y)
        check_honest(clf, constant, total)
        check_solved(clf, caught, X, y)
        assert clf.objective_ <= constant + clf.dual_gap_ + 1e-12 * total
        if counts.min() < counts.max():
            assert not clf.coef_.any()
            np.testing.assert_allclose(clf.objective_, constant, rtol=1e-12)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("l2", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 10.0])
def test_optimum_with_a_ridge(sigma, l2, fit_intercept, solver):
    X, y = groups([30, 25, 40], 3, 3.0)
    clf, caught = solve(X, y, sigma, l2=l2, fit_intercept=fit_intercept, solver=solver)
    found = oracles.joint_minimum(X, y, sigma, l2=l2, fit_intercept=fit_intercept)[0]
    check_agrees(clf, found, at_zero(clf, y))
    check_solved(clf, caught, X, y, l2=l2)


@pytest.mark.parametrize("sigma", [1e-12, 1e-9, 1e-3, 0.3])
@pytest.mark.parametrize("name", SMALL)
def test_alpha_balances_and_adds_up_to_the_objective(name, sigma):
    """Every class gives as much as it takes, and without a ridge the dual objective is the sum of alpha."""
    X, y = joint_problem(name)
    clf, _ = solve(X, y, sigma)
    given = np.array([clf.dual_coef_[y == c].sum() for c in range(3)])
    np.testing.assert_allclose(given, clf.dual_coef_.sum(axis=0), atol=1e-3)
    np.testing.assert_allclose(given.sum(), clf.objective_, atol=1e-3)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8, 1e-10])
def test_tol_is_met(tol, fit_intercept, solver):
    for name in SMALL:
        X, y = joint_problem(name)
        clf, caught = solve(X, y, 0.5, tol=tol, fit_intercept=fit_intercept, solver=solver)
        check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("order", ["random", "by-label", "rare-class"])
def test_optimum_with_many_rows(order, fit_intercept, solver):
    X, y = groups([12_000, 10_000, 30 if order == "rare-class" else 9_000], 5, 3.0, seed=6)
    if order == "by-label":
        rows = np.argsort(y, kind="stable")
        X, y = X[rows], y[rows]
    clf, caught = solve(X, y, 0.5, fit_intercept=fit_intercept, solver=solver)
    start = [(clf.coef_ * 1.01, clf.intercept_)]
    found = oracles.joint_minimum(
        X, y, 0.5, fit_intercept=fit_intercept, starts=start, own_start=False, blurs=(1e-3, 1e-9)
    )
    check_agrees(clf, found[0], at_zero(clf, y))
    check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [0.01, 1.0])
def test_optimum_with_many_columns(sigma, fit_intercept, solver):
    rng = np.random.default_rng(7)
    X = sp.random_array((150, 1500), density=0.01, rng=rng, format="csr", data_sampler=rng.standard_normal)
    scores = np.column_stack([X[:, k * 100 : k * 100 + 100].sum(axis=1) for k in range(3)])
    y = np.argmax(scores + 0.3 * rng.standard_normal((150, 3)), axis=1)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    # The minimiser lies in the span of the rows: solve in coordinates of that space.
    _, s, axes = np.linalg.svd(X.toarray(), full_matrices=False)
    Z = np.asarray(X @ axes[s > 1e-10 * s[0]].T)
    start = [(clf.coef_ @ axes[s > 1e-10 * s[0]].T * 1.01, clf.intercept_)]
    found = oracles.joint_minimum(
        Z, y, sigma, fit_intercept=fit_intercept, starts=start, own_start=sigma > 0.1, blurs=(1e-2, 1e-5, 1e-9)
    )
    check_agrees(clf, found[0], at_zero(clf, y))
    check_solved(clf, caught, X, y)


# --- collapse ---------------------------------------------------------------------------------------------


@every_joint_solver
@pytest.mark.parametrize("sizes", [(20, 60, 30), (10, 40, 15), (5, 80, 3, 10), (50, 30)], ids=str)
@pytest.mark.parametrize("sigma", [1e3, 1e6])
def test_large_noise_collapses_unequal_classes(sizes, sigma, solver):
    X, y = groups(sizes, 3, 3.0)
    X, y = np.vstack([X, X[:1]]), np.append(y, len(sizes))  # and one with a single sample
    clf, caught = solve(X, y, sigma, solver=solver)
    constant, _ = oracles.constant_minimum(np.bincount(y).astype(float))
    check_honest(clf, constant, at_zero(clf, y))
    assert caught == [CollapseWarning]
    check_solved(clf, caught, X, y)
    np.testing.assert_allclose(clf.objective_, constant, rtol=1e-12)
    assert not clf.coef_.any()
    assert set(clf.predict(X)) == {int(np.argmax(sizes))}


@every_joint_solver
@pytest.mark.parametrize("sizes", [(3, 4, 5, 6, 7), (10, 40, 40, 5), (50, 50, 49), (9, 9, 30), (50, 49, 1)], ids=str)
@pytest.mark.parametrize("sigma", [30.0, 1e3, 1e6])
def test_classes_of_similar_weight_may_stay_apart(sizes, sigma, solver):
    X, y = groups(sizes, 3, 3.0)
    clf, caught = solve(X, y, sigma, solver=solver)
    check_agrees(clf, oracles.joint_minimum(X, y, sigma)[0], at_zero(clf, y))
    check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e2, 1e4, 1e6])
def test_equal_classes_do_not_collapse(sigma, fit_intercept, solver):
    X, y = groups([40, 40, 40], 3, 3.0)
    clf, caught = solve(X, y, sigma, tol=1e-8 if sigma < 1e4 else 1e-10, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    assert clf.coef_.any()
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    assert np.all((clf.coef_ * (means - means.mean(axis=0))).sum(axis=1) > 0)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("distance", [3.0, 30.0])
def test_two_of_three_classes_collapse(distance, sigma, fit_intercept, solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = np.repeat([0, 1, 2], [60, 20, 40])
    for c in (0, 1):  # the same mean, different weights
        X[y == c] -= X[y == c].mean(axis=0)
    X[y == 2, 0] += distance
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    found = oracles.joint_minimum(X, y, sigma, fit_intercept=fit_intercept)[0]
    check_agrees(clf, found, at_zero(clf, y))
    check_solved(clf, caught, X, y)
    if fit_intercept and distance == 30 and sigma <= 3:
        assert set(clf.predict(X[y == 2])) == {2}


@every_joint_solver
@pytest.mark.parametrize("sigma", np.geomspace(1.0, 30.0, 12))
def test_optimum_around_the_collapse(sigma, solver):
    X, y = groups([15, 60, 30, 10], 3, 3.0, seed=2)
    clf, caught = solve(X, y, sigma, solver=solver)
    check_agrees(clf, oracles.joint_minimum(X, y, sigma)[0], at_zero(clf, y))
    check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e-3, 0.3, 10.0])
@pytest.mark.parametrize("sizes", [(20, 20, 20), (30, 20, 10)], ids=str)
def test_optimum_with_identical_class_means(sizes, sigma, fit_intercept, solver):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 3))
    y = np.repeat([0, 1, 2], sizes)
    for c in range(3):
        X[y == c] -= X[y == c].mean(axis=0)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    total = at_zero(clf, y)
    check_near_hinge(clf, X, y, oracles.joint_hinge_minimum(X, y, fit_intercept=fit_intercept))
    if sigma > 0.1:
        check_agrees(clf, oracles.joint_minimum(X, y, sigma, fit_intercept=fit_intercept)[0], total)
    check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e-4, 0.1, 1.0, 10.0])
def test_optimum_if_two_classes_have_the_same_rows(sigma, fit_intercept, solver):
    X, y = groups([20, 20], 2, 3.0)
    X, y = np.vstack([X, X[y == 1]]), np.append(y, np.full(20, 2))
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_near_hinge(clf, X, y, oracles.joint_hinge_minimum(X, y, fit_intercept=fit_intercept))
    if sigma > 1e-2:
        check_agrees(clf, oracles.joint_minimum(X, y, sigma, fit_intercept=fit_intercept)[0], at_zero(clf, y))
    check_solved(clf, caught, X, y)
    np.testing.assert_allclose(clf.coef_[1], clf.coef_[2], rtol=1e-3, atol=1e-3 * np.abs(clf.coef_).max())


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e-6, 0.1, 10.0])
def test_optimum_if_every_class_has_the_same_rows(sigma, fit_intercept, solver):
    X, y = np.tile([[1.0, 2.0], [-3.0, 1.0]], (3, 1)), np.repeat([0, 1, 2], 2)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    assert caught == [CollapseWarning]
    np.testing.assert_allclose(clf.objective_, 12, rtol=1e-12)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [0.01, 0.5, 5.0])
def test_optimum_if_most_classes_have_the_same_rows(sigma, fit_intercept, solver):
    A = np.random.default_rng(0).standard_normal((10, 2))
    X, y = np.vstack([A, A, A, A + 3]), np.repeat(np.arange(4), 10)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_near_hinge(clf, X, y, oracles.joint_hinge_minimum(X, y, fit_intercept=fit_intercept))
    check_solved(clf, caught, X, y)


@every_joint_solver
@pytest.mark.parametrize("sigma", [1e-6, 0.1, 10.0])
def test_without_intercepts_nothing_to_learn(sigma, solver):
    X = np.tile([[1.0, 2.0], [-3.0, 1.0]], (3, 1))
    y = np.repeat([0, 1, 2], 2)
    clf, caught = solve(X, y, sigma, fit_intercept=False, solver=solver)
    assert caught == [CollapseWarning]
    np.testing.assert_allclose(clf.objective_, 12, rtol=1e-12)
    assert clf.dual_gap_ <= 12e-6
    assert not clf.coef_.any()


# --- limits -----------------------------------------------------------------------------------------------


def one_far_away(distance):
    X, y = groups([30, 30, 30], 3, 2.0)
    X[y == 1] += distance
    return X, y


def wide():
    return groups([6, 7, 5], 60, 5.0, seed=2)


def repeated_columns():
    X, y = groups([30, 25, 20], 3, 3.0, seed=3)
    return np.column_stack([X, X[:, :2], np.zeros(75), np.full(75, 2.0)]), y


def single():
    X, y = groups([30, 25, 20], 3, 4.0, seed=4)
    first = np.flatnonzero(y == 2)[0]
    kept = (y != 2) | (np.arange(75) == first)
    return X[kept], y[kept]


def star():
    angle = np.arange(8) * np.pi / 4
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(8), 12)
    return 3 * np.column_stack([np.cos(angle), np.sin(angle)])[y] + 0.5 * rng.standard_normal((96, 2)), y


def all_single():
    return np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 3.0]]), np.arange(4)


EDGES = {
    "far": lambda: one_far_away(100.0),
    "very-far": lambda: one_far_away(1e5),
    "wide": wide,
    "repeated-columns": repeated_columns,
    "single-sample": single,
    "star": star,
    "all-single": all_single,
    "one-feature": lambda: groups([20, 30, 25], 1, 4.0, seed=6),
}


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e-6, 1e-2, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("edge", EDGES)
def test_optimum_of_edge_cases(edge, sigma, fit_intercept, solver):
    X, y = EDGES[edge]()
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    total = at_zero(clf, y)
    check_near_hinge(clf, X, y, oracles.joint_hinge_minimum(X, y, fit_intercept=fit_intercept))
    start = [(clf.coef_ * 1.01, clf.intercept_)]
    if sigma > 0.1 and edge != "very-far":
        check_agrees(clf, oracles.joint_minimum(X, y, sigma, fit_intercept=fit_intercept, starts=start)[0], total)
    if sigma > 1e-5:
        check_solved(clf, caught, X, y)
    else:
        check_certified_or_warned(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e-8, 1e-4, 1e-2])
def test_separable_classes_lose_nothing(sigma, fit_intercept, solver):
    X, y = groups([20, 15, 25], 6, 40.0, seed=3)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    assert clf.objective_ <= 1e-6 * at_zero(clf, y)
    np.testing.assert_array_equal(clf.predict(X), y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_few_iterations_warn_and_keep_the_gap_valid(max_iter, fit_intercept, solver):
    X, y = groups([30, 25, 40], 3, 2.0)
    for sigma in (0.01, 0.3, 20.0):
        clf, caught = solve(X, y, sigma, max_iter=max_iter, fit_intercept=fit_intercept, solver=solver, tol=1e-12)
        total = at_zero(clf, y)
        assert clf.n_iter_ <= max_iter
        check_state(clf, X, y)
        found = oracles.joint_minimum(X, y, sigma, fit_intercept=fit_intercept)[0]
        check_honest(clf, found, total)
        if clf.dual_gap_ > 1e-12 * total:
            assert caught == [ConvergenceWarning]


@with_and_without
def test_gap_is_honest_below_double_precision(fit_intercept):
    X, y = groups([30, 25, 40], 3, 2.0)
    clf, caught = solve(X, y, 1e-15, fit_intercept=fit_intercept)
    assert np.isfinite(clf.coef_).all()
    check_near_hinge(clf, X, y, oracles.joint_hinge_minimum(X, y, fit_intercept=fit_intercept))
    check_certified_or_warned(clf, caught, X, y)


@with_and_without
def test_a_loss_in_python_fits_like_the_compiled_one(fit_intercept):
    X, y, weight = noisy_groups()
    one, two = (
        GuruClassifier(0.5, loss=loss, fit_intercept=fit_intercept, tol=1e-10).fit(X, y, weight)
        for loss in ("gaussian", Written())
    )
    check_same(two, one, rtol=1e-4)
    np.testing.assert_allclose(one.objective_, two.objective_, rtol=1e-9)
    assert two.dual_gap_ <= 1e-10 * at_zero(two, y, weight)


# --- anything ---------------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    n_classes, d = draw(st.integers(3, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(10, 60))
    y = np.append(np.arange(n_classes), rng.choice(n_classes, n - n_classes, p=rng.dirichlet(np.ones(n_classes))))
    centres = rng.standard_normal((n_classes, d)) * draw(st.sampled_from([0.0, 0.5, 3.0, 30.0]))
    X = rng.standard_normal((n, d)) + centres[y]
    if draw(st.booleans()):
        X = np.round(X)  # ties and repeated rows
    weight = rng.uniform(0.1, 3.0, n) if draw(st.booleans()) else np.ones(n)
    sigma = 2.0 ** draw(st.floats(-8, 8))
    return (
        X,
        y,
        weight,
        sigma,
        {"fit_intercept": draw(st.booleans()), "l2": draw(st.sampled_from([0.0, 0.0, 0.1, 10.0]))},
    )


@settings(deadline=None, derandomize=True, max_examples=120)
@given(given_problem=problems())
def test_any_problem_is_solved_and_certified(given_problem):
    X, y, weight, sigma, options = given_problem
    clf, caught = solve(X, y, sigma, weight, **options)
    total = at_zero(clf, y, weight)
    start = [(clf.coef_ * 1.001, clf.intercept_)]
    oracle = {"weight": weight, "starts": start, "own_start": sigma > 0.1, "blurs": (1e-2, 1e-5, 1e-8), **options}
    found = oracles.joint_minimum(X, y, sigma, **oracle)[0]
    check_honest(clf, found, total)
    check_certified_or_warned(clf, caught, X, y, weight=weight, l2=options["l2"])
    if clf.dual_gap_ > 1e-6 * total:
        event(f"not certified at sigma {sigma:.3g}, {options}, gap {clf.dual_gap_ / total:.1e}")


@pytest.mark.parametrize("seed", range(30))
def test_random_problems_are_certified(seed):
    """Random sizes, scales, balances, noise levels and ridges: classes far from each other and from the origin, too."""
    rng = np.random.default_rng(seed)
    for _ in range(12):
        n_classes, d = int(rng.integers(3, 7)), int(rng.integers(1, 6))
        n = int(rng.integers(n_classes + 1, 120))
        shares = rng.dirichlet(np.ones(n_classes))
        y = np.append(np.arange(n_classes), rng.choice(n_classes, n - n_classes, p=shares))
        X = rng.standard_normal((n, d)) + (rng.standard_normal((n_classes, d)) * rng.choice([0.0, 0.5, 3.0, 30.0]))[y]
        X = np.round(X) if rng.random() < 0.4 else X
        weight = rng.uniform(0.1, 3.0, n) if rng.random() < 0.5 else np.ones(n)
        sigma, l2 = 2.0 ** rng.uniform(-9, 9), float(rng.choice([0.0, 0.0, 0.1, 10.0]))
        clf, caught = solve(X, y, sigma, weight, l2=l2, fit_intercept=bool(rng.random() < 0.6))
        check_solved(clf, caught, X, y, weight=weight, l2=l2)
