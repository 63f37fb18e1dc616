"""More than two classes: derivatives, the optimum and its certificate, invariances, collapse and edge cases."""

import copy
import pickle
import re
import warnings
from functools import cache, partial

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from common import (
    Written,
    check_close,
    every_form,
    every_joint_solver,
    every_loss,
    features,
    fit_to,
    options,
    plain,
    sigmas,
    with_and_without,
)
from data import JOINT_PROBLEMS, clouds, groups, joint_problem
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import gaussguru.rows
from gaussguru import CollapseWarning, GuruClassifier, sigma_max
from gaussguru.certificates import certify_joint
from gaussguru.losses import LOSSES, Gaussian
from gaussguru.multiclass import Multiclass
from gaussguru.noise import Isotropic
from gaussguru.objective import Objective
from gaussguru.rows import Rows
from gaussguru.solvers.joint import JointNewton, settle
from gaussguru.solvers.newton import Newton
from gaussguru.solvers.subspace import OfColumns, OfSamples, Span, Subspace
from gaussguru.threads import THREAD_VALUES

# What a generic optimiser can miss, relative to F(0).
SLACK = 1e-7

blurs = pytest.mark.parametrize("blur", [0.0, 0.4])


# --- derivatives ------------------------------------------------------------------------------------------


def sample(n=70, d=4, n_classes=4, seed=0):
    """Return X with exact float32 values and zeros, labels and weights."""
    rng = np.random.default_rng(seed)
    X = features(n, d, rng)
    labels = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)).astype(np.int32)
    return X, labels, rng.uniform(0.2, 2.0, n)


def make(X, labels, weight, *, loss=None, l2=0.0, fit_intercept=True, sigma=0.6, blur=0.0, anchor=0.0):
    n_classes = int(labels.max()) + 1
    loss = loss or LOSSES["gaussian"]
    rows = Rows(X, map, n_classes)
    labels = labels.astype(np.int32)
    return Multiclass(rows, labels, weight, n_classes, loss, Isotropic(sigma), l2, fit_intercept, blur, anchor)


def place(d=4, n_classes=4, seed=1, fit_intercept=True):
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((n_classes, d)) * 0.7, rng.standard_normal(n_classes) * 0.3
    return W, b * fit_intercept


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


def differences(function, params, h=1e-5):
    return np.array([(function(params + e) - function(params - e)) / (2 * h) for e in h * np.eye(len(params))])


def used(objective):
    """Return which unknowns are free: without intercepts they stay in place, but do nothing."""
    width = objective.rows.n_columns + 1
    free = np.ones((objective.n_classes - 1, width), dtype=bool)
    free[:, -1] = objective.fit_intercept
    return free.ravel()


@every_loss
@every_form
@options
@blurs
def test_value_is_the_plain_sum(loss, form, l2, fit_intercept, blur):
    X, labels, weight = sample()
    objective = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
    W, b = place(fit_intercept=fit_intercept)
    expected = oracles.joint_objective(W, b, X, labels, 0.6, weight=weight, l2=l2, blur=blur, terms=plain(loss))
    np.testing.assert_allclose(objective.point(W, b).value, expected, rtol=1e-13)
    np.testing.assert_allclose(objective.visit(W, b).point.value, expected, rtol=1e-13)
    stretched = objective.point(W / 1.7, b, stretch=1.7)
    np.testing.assert_allclose(stretched.value, expected, rtol=1e-13)
    np.testing.assert_allclose(stretched.coef, W, rtol=1e-14)


@every_loss
@every_form
@options
@blurs
def test_derivatives_are_differences(loss, form, l2, fit_intercept, blur):
    X, labels, weight = sample(seed=2)
    objective = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
    W, b = place(fit_intercept=fit_intercept)
    free = used(objective)

    def moved(params):
        """Return (W, b) as the unknowns move: those of the last class stay."""
        shift = np.zeros(free.size)
        shift[free] = params
        shift = np.vstack([shift.reshape(3, -1), np.zeros(5)])
        return W + shift[:, :-1], b + shift[:, -1]

    def value(params):
        options = {"weight": weight, "l2": l2, "blur": blur, "terms": plain(loss)}
        return oracles.joint_objective(*moved(params), X, labels, 0.6, **options)

    def gradient(params):
        return objective.visit(*moved(params)).gradient[free]

    here = objective.visit(W, b)
    origin = np.zeros(int(free.sum()))
    hessian = symmetric(here.hessian())
    np.testing.assert_allclose(here.gradient[free], differences(value, origin), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(hessian[np.ix_(free, free)], differences(gradient, origin), rtol=1e-6, atol=1e-6)
    for p in np.random.default_rng(0).standard_normal((3, free.size)):
        np.testing.assert_allclose(here.product(p), hessian @ p, rtol=1e-10, atol=1e-10)
    assert not np.any(here.gradient[~free])
    np.testing.assert_allclose(here.full_gradient.sum(axis=0), 0.0, atol=1e-11)


@every_loss
@options
@pytest.mark.parametrize("anchor", [0.0, 0.2])
def test_product_is_the_hessian_with_an_anchor(loss, l2, fit_intercept, anchor):
    objective = make(*sample(), loss=loss, l2=l2, fit_intercept=fit_intercept, anchor=anchor, blur=0.1)
    plain = make(*sample(), loss=loss, l2=l2, fit_intercept=fit_intercept, blur=0.1)
    expansion, without = (each.visit(*place(fit_intercept=fit_intercept)) for each in (objective, plain))
    hessian = symmetric(expansion.hessian())
    for p in np.eye(len(hessian)):
        np.testing.assert_allclose(expansion.product(p), hessian @ p, rtol=1e-10, atol=1e-10)
    # The anchor is no part of F.
    np.testing.assert_array_equal(expansion.gradient, without.gradient)
    assert expansion.point.value == without.point.value
    assert np.linalg.eigvalsh(hessian - symmetric(without.hessian()))[0] >= -1e-12


@every_form
@with_and_without
def test_rows_that_hardly_bend_are_left_out_of_products(form, fit_intercept):
    X, labels, weight = sample(n=20_000, d=30, seed=2)
    objective = make(form(X), labels, weight, sigma=0.02, fit_intercept=fit_intercept, anchor=0.1)
    expansion = objective.visit(*place(d=30, seed=3, fit_intercept=fit_intercept))
    main = expansion.mainly()
    assert main.objective.rows.n_rows < 0.5 * objective.rows.n_rows
    assert main.gradient is expansion.gradient
    rng = np.random.default_rng(0)
    for p in rng.standard_normal((5, expansion.gradient.size)):
        product = expansion.product(p)
        assert np.linalg.norm(main.product(p) - product) <= 2e-3 * np.linalg.norm(product)
    hessian = symmetric(expansion.hessian())
    assert np.linalg.norm(symmetric(main.hessian()) - hessian) <= 2e-3 * np.linalg.norm(hessian)


def test_few_rows_are_all_kept():
    X, labels, weight = sample()
    expansion = make(X, labels, weight, sigma=0.02).visit(*place())
    assert expansion.mainly() is expansion


@every_loss
@every_form
@options
@pytest.mark.parametrize("blur", [0.0, 0.05, 0.4, 3.0])
def test_tangent_is_the_derivative_by_log_noise_and_log_blur(loss, form, l2, fit_intercept, blur):
    X, labels, weight = sample(seed=3)
    objective = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
    W, b = place(fit_intercept=fit_intercept)
    h = 1e-5
    here = objective.visit(W, b)
    for noise, blurring in ((1.0, 0.0), (0.0, 1.0), (0.7, -0.4)):
        up, down = (
            objective.with_noise(np.exp(t * noise), blur * np.exp(t * blurring)).visit(W, b).gradient for t in (h, -h)
        )
        np.testing.assert_allclose(here.tangent(noise, blurring), (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@every_form
@options
@blurs
def test_compiled_and_written_loss_agree(form, l2, fit_intercept, blur):
    X, labels, weight = sample(n=120)
    W, b = place(fit_intercept=fit_intercept)
    p = np.linspace(-1, 2, 15)
    found, bounds = [], []
    for loss in (Gaussian(), Written()):
        objective = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
        expansion = objective.visit(W, b)
        point = expansion.point
        found.append(
            [
                *(point.value, *point.cells, expansion.gradient, symmetric(expansion.hessian()), expansion.product(p)),
                *(expansion.tangent(1.0, 0.5), objective.slopes(point), *expansion.pulls),
            ]
        )
        certificate = certify_joint(expansion, 0.0, thorough=True)
        bounds.append((objective.shrunk_conjugate(point, 0.8), certificate.primal, certificate.dual))
    for compiled, written in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, written, rtol=1e-10, atol=1e-11)
    # The compiled bounds may be a little lower.
    for compiled, written in zip(*bounds, strict=True):
        np.testing.assert_allclose(compiled, written, rtol=1e-5)
    assert np.all(bounds[0][0] <= bounds[1][0] * (1 + 1e-12))


@every_form
def test_combined_with_other_slopes(form):
    X, labels, weight = sample()
    expansion = make(form(X), labels, weight).visit(*place())
    kept = np.random.default_rng(0).random((4, 4))
    expected = np.zeros((4, 4))
    for x, c, pulls in zip(X, labels, expansion.pulls.residual, strict=True):
        for k in range(4):
            if k != c:
                expected[k] += kept[c, k] * pulls[k] * x
                expected[c] -= kept[c, k] * pulls[k] * x
    np.testing.assert_allclose(expansion.combined_with(kept), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(expansion.combined_with(np.ones((4, 4))), expansion.combined, rtol=1e-11, atol=1e-12)


@every_form
def test_visit_is_expand(form):
    X, labels, weight = sample(seed=5)
    objective = make(form(X), labels, weight, l2=0.3, blur=0.1)
    W, b = place()
    visited, expanded = objective.visit(W, b), objective.expand(objective.point(W / 1.3, b, stretch=1.3))
    np.testing.assert_allclose(visited.gradient, expanded.gradient, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(visited.pulls, expanded.pulls, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(symmetric(visited.hessian()), symmetric(expanded.hessian()), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(visited.point.cells, expanded.point.cells, rtol=1e-11, atol=1e-13)


def test_points_between_and_of_other_noise():
    X, labels, weight = sample()
    objective = make(X, labels, weight, l2=0.2, blur=0.1)
    (W, b), (V, c) = place(seed=1), place(seed=2)
    between = objective.between(objective.point(W, b, stretch=2.0), objective.point(V, c), 0.3)
    np.testing.assert_allclose(between.value, objective.point(1.4 * W + 0.3 * V, 0.7 * b + 0.3 * c).value, rtol=1e-12)
    other = objective.with_noise(3.0, 0.7).again(objective.point(W, b, stretch=2.0))
    expected = oracles.joint_objective(2 * W, b, X, labels, 1.8, weight=weight, l2=0.2, blur=0.7)
    np.testing.assert_allclose(other.value, expected, rtol=1e-13)


def test_sums_of_the_data():
    X, labels, weight = sample()
    objective = make(X, labels, weight)
    totals = [weight[labels == c].sum() for c in range(4)]
    np.testing.assert_allclose(objective.class_weights, totals, rtol=1e-13)
    np.testing.assert_allclose(objective.weight, 3 * weight.sum(), rtol=1e-13)
    np.testing.assert_allclose(objective.squares, weight @ (X * X).sum(axis=1), rtol=1e-13)
    np.testing.assert_allclose(objective.radius, np.linalg.norm(X, axis=1).max(), rtol=1e-13)
    for c in range(4):
        expected = np.average(X[labels == c], axis=0, weights=weight[labels == c])
        np.testing.assert_allclose(objective.means[c], expected, rtol=1e-12, atol=1e-14)
    zero = objective.point(np.zeros((4, 4)), np.zeros(4) + 0.2)
    np.testing.assert_allclose(objective.with_noise(1.0, 1e-9).again(zero).value, objective.weight, rtol=1e-8)


@pytest.mark.parametrize("n_rows", [10, 500, 1500])
def test_subsample_keeps_class_totals(n_rows):
    X, labels, weight = sample(n=2000)
    labels[10:1500] = 2
    objective = make(X, labels, weight)
    part = objective.subsample(n_rows, np.random.default_rng(0))
    np.testing.assert_allclose(part.class_weights, objective.class_weights, rtol=1e-12)
    assert part.rows.n_rows <= n_rows + 4 * 52


@options
@blurs
@pytest.mark.parametrize("seed", range(3))
def test_settled_points_are_the_best_of_their_direction(l2, fit_intercept, blur, seed):
    objective = make(*sample(), l2=l2, fit_intercept=fit_intercept, blur=blur)
    W, b = place(seed=seed, fit_intercept=fit_intercept)
    begin = objective.point(W, b)
    settled = settle(objective, begin, tol=1e-10)
    assert settled.value <= begin.value
    for factor, shift in [(1.01, 0.0), (0.99, 0.0), *((1.0, e) for e in np.concatenate([np.eye(4), -np.eye(4)]))]:
        other = objective.point(W, settled.b + 0.01 * fit_intercept * shift, stretch=settled.stretch * factor)
        assert other.value >= settled.value - 1e-12 * objective.weight


@every_form
@every_loss
def test_blocks_do_not_matter(form, loss, monkeypatch):
    X, labels, weight = sample(n=3001)

    def everything():
        objective = make(form(X), labels, weight, loss=loss, blur=0.1)
        expansion = objective.visit(*place())
        parts = [expansion.point.value, *expansion.point.cells, expansion.gradient, symmetric(expansion.hessian())]
        parts += [expansion.product(np.linspace(-1, 1, 15)), expansion.tangent(1.0, 0.3), objective.means]
        return parts, objective

    whole, _ = everything()
    monkeypatch.setattr(gaussguru.rows, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(gaussguru.rows, "POINTWISE_ROWS", 100)
    split, objective = everything()
    assert len(objective.rows.each(lambda begin, end: None)) > 4
    for one, many in zip(whole, split, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-10, atol=1e-10)


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
    binary = Objective(Rows(X), weight * y, LOSSES["gaussian"], Isotropic(sigma), l2, fit_intercept)
    joint = make(X, (y > 0).astype(np.int32), weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept)
    one, two = Newton(tol=1e-12).solve(binary), JointNewton(tol=1e-12).solve(joint)
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
    result = JointNewton().solve(joint)
    assert result.converged
    assert result.collapsed
    assert not result.coef.any()
    np.testing.assert_allclose(result.objective, 40.0, rtol=1e-12)
    np.testing.assert_allclose(result.intercept, [0.5, -0.5], rtol=1e-12)


# --- the optimum ------------------------------------------------------------------------------------------


def solve(X, y, sigma, weight=None, **options):
    """Return a fitted classifier and the categories of the warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = GuruClassifier(sigma=sigma, **options).fit(X, y, weight)
    return clf, [warning.category for warning in caught]


def labels_of(clf, y):
    return np.searchsorted(clf.classes_, y)


def value(clf, X, y, **options):
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    return oracles.joint_objective(clf.coef_, clf.intercept_, X, labels_of(clf, y), clf.sigma, **options)


def at_zero(clf, y, weight=None):
    return (len(clf.classes_) - 1) * (len(y) if weight is None else weight.sum())


def check_solved(clf, caught, X, y, **options):
    """Assert everything that holds for a converged fit without knowing the minimum."""
    n_classes, total = len(clf.classes_), at_zero(clf, y, options.get("weight"))
    assert 0 <= clf.dual_gap_ <= clf.tol * total
    assert caught == ([] if clf.coef_.any() else [CollapseWarning])
    check_state(clf, X, y, **options)
    assert clf.dual_coef_.shape == (len(y), n_classes)
    assert np.all((clf.dual_coef_ >= 0) & (clf.dual_coef_ <= 1))
    assert not np.any(clf.dual_coef_[np.arange(len(y)), labels_of(clf, y)])


def check_state(clf, X, y, **options):
    """Assert what holds even for a fit that did not converge."""
    n_classes, total = len(clf.classes_), at_zero(clf, y, options.get("weight"))
    np.testing.assert_allclose(clf.objective_, value(clf, X, y, **options), rtol=1e-10, atol=1e-11 * total)
    assert clf.coef_.shape == (n_classes, X.shape[1])
    assert clf.intercept_.shape == (n_classes,)
    np.testing.assert_allclose(clf.coef_.sum(axis=0), 0.0, atol=1e-12 * (1e-300 + np.abs(clf.coef_).max()))
    np.testing.assert_allclose(clf.intercept_.sum(), 0.0, atol=1e-12 * (1e-300 + np.abs(clf.intercept_).max()))
    if not clf.fit_intercept:
        assert not clf.intercept_.any()


def check_honest(clf, optimum, total):
    """Assert that a value of F, so an upper bound of its minimum, is not below what was proven impossible."""
    assert optimum >= clf.objective_ - clf.dual_gap_ - 1e-12 * total


def check_agrees(clf, optimum, total):
    """Assert that the minimum found by an oracle is within the gap, up to what the oracle misses."""
    check_honest(clf, optimum, total)
    assert abs(clf.objective_ - optimum) <= clf.dual_gap_ + SLACK * total


def check_near_hinge(clf, X, y, solution):
    """Assert that the minimum is between the least hinge loss and F at its solution."""
    least, W, b = solution
    total = at_zero(clf, y)
    assert least - 1e-9 * total <= clf.objective_
    check_honest(clf, oracles.joint_objective(W, b, X, y, clf.sigma), total)


def check_certified_or_warned(clf, caught, X, y, **options):
    if clf.dual_gap_ <= clf.tol * at_zero(clf, y, options.get("weight")):
        check_solved(clf, caught, X, y, **options)
    else:
        check_state(clf, X, y, **options)
        assert caught == [ConvergenceWarning]


@cache
def hinge(name, fit_intercept):
    return oracles.joint_hinge_minimum(*joint_problem(name), fit_intercept=fit_intercept)


@cache
def optimum(name, sigma, fit_intercept, blurs):
    return oracles.joint_minimum(*joint_problem(name), sigma, fit_intercept=fit_intercept, blurs=blurs)[0]


SMALL = ("iris", "wine")


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("exponent", [-2, 0, 2, 6, 10])
@pytest.mark.parametrize("name", JOINT_PROBLEMS)
def test_moderate_and_large_noise(name, exponent, fit_intercept, solver):
    X, y = joint_problem(name)
    sigma = 2.0**exponent
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    total = at_zero(clf, y)
    # Where classes meet rounding off the kinks is slow work; then the constant classifier must do.
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
def test_small_noise(name, exponent, fit_intercept, solver):
    X, y = joint_problem(name)
    sigma = 2.0**exponent
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    if name != "letter":
        check_near_hinge(clf, X, y, hinge(name, fit_intercept))


@pytest.mark.parametrize("sigma", np.linspace(0.17, 0.2, 7))
def test_a_class_that_hardly_touches_the_others(sigma):
    """One flower is far from the others here: what little flows to it must not keep them from a proof."""
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
def test_huge_noise(name, solver):
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
def test_ridge(sigma, l2, fit_intercept, solver):
    X, y = groups([30, 25, 40], 3, 3.0)
    clf, caught = solve(X, y, sigma, l2=l2, fit_intercept=fit_intercept, solver=solver)
    found = oracles.joint_minimum(X, y, sigma, l2=l2, fit_intercept=fit_intercept)[0]
    check_agrees(clf, found, at_zero(clf, y))
    check_solved(clf, caught, X, y, l2=l2)


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
def test_many_rows(order, fit_intercept, solver):
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
def test_many_columns(sigma, fit_intercept, solver):
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
    objective = make(X, y, weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept, blur=blur)
    optimum, W, b = least(name, l2, fit_intercept)
    rng = np.random.default_rng(seed)
    # From far away to next to the optimum.
    W = W + 10.0 ** (length - nearness) * rng.standard_normal(W.shape)
    b = b + 10.0**-nearness * rng.standard_normal(len(b)) * fit_intercept
    point = objective.point(W, b)
    for each in (point, settle(objective, point)):
        expansion = objective.expand(each)
        plain = oracles.joint_objective(each.coef, each.b, X, y, sigma, weight=weight, l2=l2)
        for thorough in (True, False):
            for target in (0.0, 1e-6 * objective.weight, 1e-2 * objective.weight):
                certificate = certify_joint(expansion, target, thorough=thorough)
                check_valid(certificate, plain, optimum, objective.weight)


@every_case
@strengths
def test_gap_shrinks_along_a_descent(name, l2, fit_intercept):
    (X, y), sigma = CASES[name]
    weight = random_weights(y)
    optimum = least(name, l2, fit_intercept)[0]
    duals = []
    exact = make(X, y, weight, sigma=sigma, l2=l2, fit_intercept=fit_intercept)

    def visited(W, b):
        expansion = exact.with_noise(1.0, 1e-7).visit(np.ascontiguousarray(W), np.ascontiguousarray(b))
        certificate = certify_joint(expansion, 1e-6 * exact.weight, thorough=True)
        plain = oracles.joint_objective(W, b, X, y, sigma, weight=weight, l2=l2)
        check_valid(certificate, plain, optimum, exact.weight)
        duals.append(certificate.dual)

    oracles.joint_minimum(X, y, sigma, weight=weight, l2=l2, fit_intercept=fit_intercept, callback=visited)
    assert len(duals) > 2
    assert max(duals) >= optimum - 1e-3 * exact.weight


@every_case
def test_classes_at_one_place_have_a_valid_certificate(name):
    (X, y), sigma = CASES[name]
    weight = random_weights(y)
    optimum, W, b = least(name, 0.0, True)
    objective = make(X, y, weight, sigma=sigma, blur=1e-6)
    for V, c in ((np.zeros_like(W), np.zeros_like(b)), (np.zeros_like(W), b), (W[[0, 0, *range(2, len(W))]], b)):
        plain = oracles.joint_objective(V, c, X, y, sigma, weight=weight)
        certificate = certify_joint(objective.visit(np.ascontiguousarray(V), c.copy()), 0.0, thorough=True)
        check_valid(certificate, plain, optimum, objective.weight)


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
        one = certify_joint(plain.visit(V, c), 0.0, thorough=True)
        two = certify_joint(other.visit(V / factor, c), 0.0, thorough=True)
        np.testing.assert_allclose(two.primal, one.primal, rtol=1e-12)
        np.testing.assert_allclose(two.dual, one.dual, rtol=1e-8, atol=1e-10 * plain.weight)


# --- invariances ------------------------------------------------------------------------------------------


def noisy_groups():
    X, y = groups([30, 22, 28, 25], 4, 3.0, seed=1)
    return X, y, np.random.default_rng(0).uniform(0.3, 2.0, len(y))


tight = partial(fit_to, 1e-12)


def check_same(clf, other, *, factor=1.0, rtol=1e-5):
    check_close(clf, other, rtol, factor=factor)


@sigmas
@with_and_without
def test_weight_two_is_the_row_twice(sigma, fit_intercept):
    X, y, weight = noisy_groups()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    counts = np.random.default_rng(2).integers(0, 4, len(y))
    repeated = np.repeat(np.arange(len(y)), counts)
    check_same(tight(X, y, weight * counts, **options), tight(X[repeated], y[repeated], weight[repeated], **options))


@sigmas
@with_and_without
def test_zero_weight_is_an_absent_row(sigma, fit_intercept):
    X, y, weight = noisy_groups()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    weight[::3] = 0.0
    kept = weight > 0
    whole, part = tight(X, y, weight, **options), tight(X[kept], y[kept], weight[kept], **options)
    check_same(whole, part)
    np.testing.assert_allclose(whole.objective_, part.objective_, rtol=1e-10)
    assert whole.dual_coef_.shape == (len(y), 4)


@sigmas
@with_and_without
@pytest.mark.parametrize("seed", range(3))
def test_symmetries(sigma, fit_intercept, seed):
    X, y, weight = noisy_groups()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    plain = tight(X, y, weight, **options)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    check_same(tight(X[order], y[order], weight[order], **options), plain)
    renamed = rng.permutation(4)
    permuted = tight(X, renamed[y], weight, **options)
    permuted.coef_, permuted.intercept_ = permuted.coef_[renamed], permuted.intercept_[renamed]
    check_same(permuted, plain)
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    rotated = tight(np.ascontiguousarray(X @ rotation), y, weight, **options)
    rotated.coef_ = rotated.coef_ @ rotation.T
    check_same(rotated, plain)
    heavier = tight(X, y, 7.0 * weight, **options)
    check_same(heavier, plain)
    np.testing.assert_allclose(heavier.objective_, 7 * plain.objective_, rtol=1e-10)


@sigmas
@with_and_without
@pytest.mark.parametrize("factor", [1e-6, 1e6, 1e-20, 1e20])
def test_scale_of_the_features(sigma, fit_intercept, factor):
    X, y, weight = noisy_groups()
    plain = tight(X, y, weight, sigma=sigma, fit_intercept=fit_intercept)
    scaled = tight(X * factor, y, weight, sigma=sigma * factor, fit_intercept=fit_intercept)
    check_same(scaled, plain, factor=factor)


def test_shift_of_the_features_moves_only_the_intercepts():
    X, y, weight = noisy_groups()
    shift = np.array([1.0, -2.0, 0.5, 3.0])
    plain, moved = tight(X, y, weight), tight(X + shift, y, weight)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moved.intercept_, plain.intercept_ - plain.coef_ @ shift, rtol=1e-5, atol=1e-6)


@with_and_without
@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, np.asfortranarray, list])
def test_form_of_the_features_does_not_matter(form, fit_intercept):
    X, y, weight = noisy_groups()
    X[np.abs(X) < 0.5] = 0.0
    plain, other = (tight(Z, y, weight, fit_intercept=fit_intercept) for Z in (X, form(X)))
    check_same(other, plain)
    np.testing.assert_allclose(other.decision_function(form(X)), plain.decision_function(X), rtol=1e-4, atol=1e-5)


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_float32_is_close_to_float64(form, fit_intercept):
    X, y, _ = noisy_groups()
    narrow = X.astype(np.float32)
    clf = tight(form(narrow), y, fit_intercept=fit_intercept)
    check_same(clf, tight(X, y, fit_intercept=fit_intercept), rtol=1e-3)
    check_same(clf, tight(narrow * 1.0, y, fit_intercept=fit_intercept))


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_threads_change_no_bit(form, fit_intercept):
    X, y = groups([8000, 7000, 5000], 60, 4.0, seed=3)
    assert X.size >= THREAD_VALUES
    X = form(X.astype(np.float32))
    fits = [GuruClassifier(0.5, n_jobs=n_jobs, fit_intercept=fit_intercept).fit(X, y) for n_jobs in (1, 2, 3)]
    for other in fits[1:]:
        for name in ("coef_", "intercept_", "objective_", "dual_gap_", "dual_coef_", "n_iter_"):
            np.testing.assert_array_equal(getattr(other, name), getattr(fits[0], name))
    np.testing.assert_array_equal(fits[0].set_params(n_jobs=2).decision_function(X), fits[1].decision_function(X))


@pytest.mark.parametrize("size", [30, 8_000])
def test_random_state_does_not_move_the_optimum(size):
    X, y = groups([size, size, size], 3, 3.0)
    one, same, other = (tight(X, y, random_state=seed) for seed in (None, None, 5))
    np.testing.assert_array_equal(one.coef_, same.coef_)
    check_same(other, one)


def test_class_weight_is_sample_weight():
    X, y, weight = noisy_groups()
    factors = np.array([3.0, 0.5, 1.0, 2.0])
    by_class = tight(X, y, weight, class_weight={0: 3.0, 1: 0.5, 3: 2.0})
    check_same(by_class, tight(X, y, weight * factors[y]))
    totals = np.bincount(y, weight)
    check_same(tight(X, y, weight, class_weight="balanced"), tight(X, y, weight * (weight.sum() / (4 * totals))[y]))
    check_same(tight(X, y, 2.0), tight(X, y))


@pytest.mark.parametrize(
    "names", [("a", "b", "c", "d"), (-1, 0, 1, 2), (0.0, 1.0, 2.0, 7.0), ("x", "xx", "y", "zebra")], ids=str
)
def test_labels_of_any_kind(names):
    X, y, _ = noisy_groups()
    clf = tight(X, np.array(names)[y])
    assert clf.classes_.tolist() == list(names)
    np.testing.assert_array_equal(clf.coef_, tight(X, y).coef_)
    assert set(clf.predict(X)) <= set(names)
    np.testing.assert_array_equal(clf.predict(X), np.array(names)[tight(X, y).predict(X)])


# --- state ------------------------------------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)], ids=["dense", "csr", "32"])
def test_arguments_are_not_modified(form, fit_intercept):
    X, y, weight = noisy_groups()
    X = form(X)
    arrays = [y, weight, *([X.data, X.indices, X.indptr] if sp.issparse(X) else [X])]
    before = copy.deepcopy(arrays)
    for array in arrays:
        array.flags.writeable = False
    clf = GuruClassifier(0.5, class_weight="balanced", fit_intercept=fit_intercept, random_state=3)
    params = copy.deepcopy(clf.get_params())
    clf.fit(X, y, weight).predict(X)
    assert clf.get_params() == params
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_pickle_and_clone():
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5, l2=0.1).fit(X, y)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    fresh = clone(clf)
    assert fresh.get_params() == clf.get_params()
    assert not hasattr(fresh, "coef_")
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, clf.coef_)


@with_and_without
def test_warm_start_reaches_the_same_optimum_sooner(fit_intercept):
    X, y = joint_problem("digits")
    cold = GuruClassifier(0.3, tol=1e-8, fit_intercept=fit_intercept).fit(X, y)
    warm = GuruClassifier(0.3, tol=1e-8, fit_intercept=fit_intercept, warm_start=True).fit(X, y)
    first = warm.n_iter_
    warm.fit(X, y)
    assert warm.n_iter_ < first
    check_same(warm, cold, rtol=1e-3)
    warm.set_params(sigma=0.31).fit(X, y)
    cold.set_params(sigma=0.31).fit(X, y)
    assert warm.n_iter_ <= cold.n_iter_
    np.testing.assert_allclose(warm.objective_, cold.objective_, atol=2e-8 * at_zero(cold, y))


@pytest.mark.parametrize(("before", "after"), [(1.0, 2.0**-12), (2.0**-12, 1.0), (2.0**-8, 2.0**-10), (1e4, 0.1)])
@with_and_without
def test_warm_start_from_far_away(before, after, fit_intercept):
    X, y = joint_problem("wine")
    warm, _ = solve(X, y, before, fit_intercept=fit_intercept, warm_start=True)
    warm.set_params(sigma=after).fit(X, y)
    cold = GuruClassifier(after, fit_intercept=fit_intercept).fit(X, y)
    total = at_zero(cold, y)
    assert warm.dual_gap_ <= 1e-6 * total
    np.testing.assert_allclose(warm.objective_, cold.objective_, atol=2e-6 * total)


def test_warm_start_with_other_features_and_classes():
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5, warm_start=True).fit(X, y)
    for Z, t in ((X[:, :2], y), (X, y % 3), (X, y % 2), (X, y)):
        clf.fit(Z, t)
        fresh = GuruClassifier(0.5).fit(Z, t)
        np.testing.assert_allclose(clf.objective_, fresh.objective_, atol=2e-6 * at_zero(fresh, t))
        assert clf.coef_.shape == fresh.coef_.shape


@pytest.mark.parametrize("sigma", [0.01, 1.0])
def test_verbose_prints_one_line_per_iteration(sigma, capsys):
    X, y, _ = noisy_groups()
    clf = GuruClassifier(sigma, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert clf.n_iter_ <= len(lines) <= clf.n_iter_ + 1
    for line in lines:
        assert re.search(r"iteration \d+ .*objective [\d.e+-]+ .*gap \S+ .*[\d.]+ s", line)
    last = re.search(r"objective (\S+)\s+gap (\S+)", lines[-1])
    np.testing.assert_allclose(float(last.group(1)), clf.objective_, rtol=1e-3)
    np.testing.assert_allclose(float(last.group(2)), clf.dual_gap_, atol=1e-6 * at_zero(clf, y))
    quiet = GuruClassifier(sigma).fit(X, y)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(quiet.coef_, clf.coef_)


@pytest.mark.parametrize("sigma", [2.0**-14, 2.0**-20, 0.3, 3.0, 100.0])
@with_and_without
def test_a_gap_that_stays_open_does_not_depend_on_verbose(sigma, fit_intercept, capsys):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 2)), np.repeat([0, 1, 2], [60, 20, 40])
    for c in (0, 1):
        X[y == c] -= X[y == c].mean(axis=0)
    X[y == 2, 0] += 30
    loud, quiet = (solve(X, y, sigma, fit_intercept=fit_intercept, verbose=v)[0] for v in (1, 0))
    assert capsys.readouterr().out
    np.testing.assert_allclose(quiet.objective_, loud.objective_, rtol=1e-6)
    assert quiet.dual_gap_ <= max(10 * loud.dual_gap_, 1e-6 * at_zero(quiet, y))


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


def test_collapse_message_names_sigma():
    X, y = groups([20, 60, 30], 3)
    with pytest.warns(CollapseWarning, match=r"sigma=1e\+06") as caught:
        GuruClassifier(1e6).fit(X, y)
    assert len(caught) == 1


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


def test_collapse_of_many_rows_is_explained():
    """There is a pool of threads at this size, and the message looks at the rows once more."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50_000, 6_000, 4_000])
    X = rng.standard_normal((len(y), 10)) + y[:, np.newaxis]
    with pytest.warns(CollapseWarning, match="50000 against 4000"):
        clf = GuruClassifier(1e4, n_jobs=2).fit(X, y)
    assert not clf.coef_.any()


@every_joint_solver
@pytest.mark.parametrize("sigma", np.geomspace(1.0, 30.0, 12))
def test_around_the_collapse(sigma, solver):
    X, y = groups([15, 60, 30, 10], 3, 3.0, seed=2)
    clf, caught = solve(X, y, sigma, solver=solver)
    check_agrees(clf, oracles.joint_minimum(X, y, sigma)[0], at_zero(clf, y))
    check_solved(clf, caught, X, y)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [1e-3, 0.3, 10.0])
@pytest.mark.parametrize("sizes", [(20, 20, 20), (30, 20, 10)], ids=str)
def test_identical_class_means(sizes, sigma, fit_intercept, solver):
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
def test_two_classes_with_the_same_rows(sigma, fit_intercept, solver):
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
def test_every_class_has_the_same_rows(sigma, fit_intercept, solver):
    X, y = np.tile([[1.0, 2.0], [-3.0, 1.0]], (3, 1)), np.repeat([0, 1, 2], 2)
    clf, caught = solve(X, y, sigma, fit_intercept=fit_intercept, solver=solver)
    check_solved(clf, caught, X, y)
    assert caught == [CollapseWarning]
    np.testing.assert_allclose(clf.objective_, 12, rtol=1e-12)


@every_joint_solver
@with_and_without
@pytest.mark.parametrize("sigma", [0.01, 0.5, 5.0])
def test_most_classes_have_the_same_rows(sigma, fit_intercept, solver):
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
def test_edges(edge, sigma, fit_intercept, solver):
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


def test_one_iteration_says_what_to_do():
    X, y = groups([30, 25, 40], 3, 2.0)
    with pytest.warns(ConvergenceWarning, match="max_iter.*increase") as caught:
        clf = GuruClassifier(0.01, max_iter=1).fit(X, y)
    assert len(caught) == 1
    assert clf.n_iter_ == 1


@with_and_without
def test_gap_is_honest_below_double_precision(fit_intercept):
    X, y = groups([30, 25, 40], 3, 2.0)
    clf, caught = solve(X, y, 1e-15, fit_intercept=fit_intercept)
    assert np.isfinite(clf.coef_).all()
    check_near_hinge(clf, X, y, oracles.joint_hinge_minimum(X, y, fit_intercept=fit_intercept))
    check_certified_or_warned(clf, caught, X, y)


@with_and_without
def test_written_loss_fits_like_the_compiled(fit_intercept):
    X, y, weight = noisy_groups()
    one, two = (
        GuruClassifier(0.5, loss=loss, fit_intercept=fit_intercept, tol=1e-10).fit(X, y, weight)
        for loss in ("gaussian", Written())
    )
    check_same(two, one, rtol=1e-4)
    np.testing.assert_allclose(one.objective_, two.objective_, rtol=1e-9)
    assert two.dual_gap_ <= 1e-10 * at_zero(two, y, weight)


# --- predictions ------------------------------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_highest_score_wins(form, fit_intercept):
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5, fit_intercept=fit_intercept).fit(X, y)
    scores = clf.decision_function(form(X))
    assert scores.shape == (len(y), 4)
    np.testing.assert_allclose(scores, X @ clf.coef_.T + clf.intercept_, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(clf.predict(form(X)), clf.classes_[scores.argmax(axis=1)])
    assert clf.decision_function(form(X[:1])).shape == (1, 4)


def test_probabilities_only_of_two_classes():
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5).fit(X, y)
    assert not hasattr(clf, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        clf.predict_proba(X)
    clf.fit(X, y % 2)
    assert clf.predict_proba(X).shape == (len(y), 2)
    assert clf.coef_.shape == (1, 4)
    clf.fit(X, y)
    assert not hasattr(clf, "predict_proba")


def test_sigma_max_is_of_two_classes():
    X, y, _ = noisy_groups()
    with pytest.raises(ValueError, match=r"\by\b"):
        sigma_max(X, y)


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


# --- growing subspaces ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, np.float32], ids=["dense", "csr", "float32"])
@pytest.mark.parametrize(("sigma", "l2"), [(1.0, 0.0), (4.0, 0.0), (1.0, 0.7)])
@with_and_without
def test_a_span_of_gradients_ends_at_the_same_optimum(form, sigma, l2, fit_intercept, monkeypatch):
    X, y = groups([70, 50, 60, 40], 12)
    options = {"l2": l2, "fit_intercept": fit_intercept}
    expected = GuruClassifier(sigma, tol=1e-9, **options).fit(X, y)
    monkeypatch.setattr("gaussguru.solvers.joint.LEAST_SPAN", 0)
    spans, solve = [], Subspace.solve
    monkeypatch.setattr(Subspace, "solve", lambda self, *args, **more: spans.append(self) or solve(self, *args, **more))
    clf = GuruClassifier(sigma, **options).fit(form(X), y)
    assert spans
    zero = 3 * len(y)
    assert clf.dual_gap_ <= 1e-6 * zero
    assert expected.objective_ - 1e-6 * zero <= clf.objective_ <= expected.objective_ + clf.dual_gap_ + 1e-6 * zero
    assert np.abs(clf.coef_.sum(axis=0)).max() <= 1e-9 * np.abs(clf.coef_).max()


@pytest.mark.parametrize("space", ["columns", "samples"])
def test_a_span_stays_orthonormal_whatever_is_added(space):
    """Dependent directions, directions that are in the span but for rounding, and more of them than there is room."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12)) * 2.0 ** -np.arange(12)
    space = OfColumns(X) if space == "columns" else OfSamples(lambda V: X @ (X.T @ V), np.sum(X**2))
    residual = rng.standard_normal((40, 2))
    span = Span(space, np.column_stack([residual, -residual.sum(axis=1)]))
    for step in range(30):
        fresh = rng.standard_normal((40, 2)) * 10.0 ** -(step % 9)
        span.grow(np.column_stack([residual + fresh, -(residual + fresh).sum(axis=1), residual[:, 0], np.zeros(40)]))
        inner = span.basis.T @ (span.basis if isinstance(space, OfColumns) else X @ (X.T @ span.basis))
        np.testing.assert_allclose(inner, np.eye(span.features.shape[1]), atol=1e-9)
        np.testing.assert_allclose(span.features, space.scores(span.basis), atol=1e-9)
    assert span.features.shape[1] == 12


def test_a_span_next_to_collapse_proves_what_newton_proves(monkeypatch):
    X, y = groups([80, 80, 79], 300, distance=1.0, seed=3)
    for sigma in (4.0, 8.0, 16.0):
        monkeypatch.setattr("gaussguru.solvers.joint.LEAST_SPAN", 0)
        spanned, _ = solve(X, y, sigma)
        monkeypatch.setattr("gaussguru.solvers.joint.LEAST_SPAN", np.inf)
        direct, _ = solve(X, y, sigma)
        assert max(spanned.dual_gap_, direct.dual_gap_) <= 2e-6 * len(y)
        assert abs(spanned.objective_ - direct.objective_) <= 2e-6 * len(y)
