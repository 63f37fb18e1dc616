"""Balls of samples: F, its derivatives, and lower bounds from slopes."""

import numpy as np
import pytest
from support import oracles
from support.common import every_form, features, with_and_without

from gaussguru._guru.problems.ball import Ball
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru._guru.solvers.newton import Newton
from gaussguru._rows.rows import Rows

classes = pytest.mark.parametrize("n_classes", [2, 4])
fixed = pytest.mark.parametrize("fixed", [False, True], ids=["free", "fixed"])
RIDGE, BLUR = 0.7, 0.4


def make(n_classes=4, form=np.asarray, fit_intercept=True, fixed=False, blur=BLUR, n=70, d=3):
    """Return a problem and its parts; with ``fixed`` directions a reach may be negative."""
    rng = np.random.default_rng(n_classes)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)).astype(np.int32)
    X = (features(n, d, rng) + 2 * np.eye(n_classes, d)[y]).astype(np.float32).astype(np.float64)
    weight, reach, directions = rng.uniform(0.2, 2.0, n), rng.uniform(-0.5 * fixed, 0.5, n), None
    if fixed:
        apart = rng.standard_normal((n_classes, n_classes, d))
        apart -= apart.transpose(1, 0, 2)
        directions = apart / np.maximum(np.linalg.norm(apart, axis=2), 1e-300)[:, :, np.newaxis]
    problem = Ball(Rows(form(X), y, weight, n_classes), reach, RIDGE, fit_intercept, directions, Smoothing(blur=blur))
    return problem, X, y


def place(problem, seed=0):
    rng, C = np.random.default_rng(seed), problem.n_classes
    W, b = rng.standard_normal((C, problem.rows.n_columns)), rng.standard_normal(C) * problem.fit_intercept
    return W - W.mean(axis=0), b - b.mean()


def value(W, b, X, y, problem):
    """F written from the formula."""
    total, blur = 0.5 * problem.ridge * np.sum(W**2), problem.smoothing.blur
    eps = blur / np.abs(problem.reach).max()
    for x, c, s, r in zip(X, y, problem.rows.weights, problem.reach, strict=True):
        t = np.zeros(len(W))
        for k in set(range(len(W))) - {c}:
            apart = W[c] - W[k]
            free = np.sqrt(apart @ apart + eps**2)
            length = free if problem.directions is None else problem.directions[c, k] @ apart
            t[k] = 1 - apart @ x - (b[c] - b[k]) + r * length
        total += s * (blur * np.log(np.sum(np.exp(t / blur))) if blur else t.max())
    return total


def used(problem):
    free = np.ones((problem.n_classes - 1, problem.rows.n_columns + 1), dtype=bool)
    free[:, -1] = problem.fit_intercept
    return free.ravel()


@every_form
@classes
@fixed
@with_and_without
@pytest.mark.parametrize("blur", [0.0, BLUR])
def test_value_is_the_formula(form, n_classes, fixed, fit_intercept, blur):
    problem, X, y = make(n_classes, form, fit_intercept, fixed, blur)
    W, b = place(problem)
    x = problem.unknowns(W, b)
    expected = value(W, b, X, y, problem)
    np.testing.assert_allclose(problem.point(x).value, expected, rtol=1e-12)
    smooth = problem.smoothed(Smoothing(blur=0.1))
    np.testing.assert_allclose(smooth.again(problem.point(x)).value, value(W, b, X, y, smooth), rtol=1e-12)
    other = problem.point(problem.unknowns(*place(problem, 1)))
    between = problem.mixture([(0.7, problem.point(x)), (0.3, other)])
    np.testing.assert_allclose(between.value, problem.point(0.7 * x + 0.3 * other.x).value, rtol=1e-12)


@every_form
@classes
@fixed
@with_and_without
def test_derivatives_are_differences(form, n_classes, fixed, fit_intercept):
    problem, X, y = make(n_classes, form, fit_intercept, fixed)
    W, b = place(problem)
    x, free, h = problem.unknowns(W, b), used(problem), 1e-5
    local = problem.visit(x)
    steps = h * np.eye(len(x))[free]

    def at(step):
        """F as the unknowns move, those of the last class stay: they are kept at sum 0."""
        shift = np.vstack([step.reshape(n_classes - 1, -1), np.zeros(X.shape[1] + 1)])
        shift -= shift.mean(axis=0)
        return value(W + shift[:, :-1], b + shift[:, -1], X, y, problem)

    expected = [(at(e) - at(-e)) / (2 * h) for e in steps]
    np.testing.assert_allclose(local.gradient[free], expected, rtol=1e-6, atol=1e-7)
    assert not np.any(local.gradient[~free])
    hessian = local.hessian()
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-11)
    differences = [(problem.visit(x + e).gradient - problem.visit(x - e).gradient) / (2 * h) for e in steps]
    np.testing.assert_allclose(hessian[free], differences, rtol=1e-6, atol=1e-6)
    for p in np.random.default_rng(0).standard_normal((3, len(x))):
        np.testing.assert_allclose(local.product(p), hessian @ p, rtol=1e-10, atol=1e-10)


@classes
@with_and_without
def test_tangent_is_the_derivative_by_log_blur(n_classes, fit_intercept):
    """With fixed directions: the smoothness of lengths, which is small beside them, has no part in it."""
    problem, *_ = make(n_classes, fit_intercept=fit_intercept, fixed=True)
    x, h = problem.unknowns(*place(problem)), 1e-5
    for fraction in (0.6, 1.0):
        up, down = (problem.smoothed(Smoothing(blur=BLUR * np.exp(t * fraction))).visit(x).gradient for t in (h, -h))
        tangent = problem.visit(x).tangent(Smoothing(blur=BLUR * (1 - fraction)))
        np.testing.assert_allclose(tangent, (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@classes
@fixed
@with_and_without
def test_increase_by_smoothing_is_the_derivative_by_its_logarithm(n_classes, fixed, fit_intercept):
    problem, *_ = make(n_classes, fit_intercept=fit_intercept, fixed=fixed)
    x, h = problem.unknowns(*place(problem)), 1e-5
    for blur in (0.02, BLUR):
        up, down = (problem.smoothed(Smoothing(blur=blur * np.exp(t))).point(x).value for t in (h, -h))
        local = problem.smoothed(Smoothing(blur=blur)).visit(x)
        np.testing.assert_allclose(local.noisy, (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@classes
@fixed
@with_and_without
@pytest.mark.parametrize("blur", [0.01, 0.3])
def test_any_slopes_bound_the_minimum(n_classes, fixed, fit_intercept, blur):
    """The slopes at the minimum of the smooth problem miss it by at most the increase of F by smoothing."""
    problem, *_ = make(n_classes, fit_intercept=fit_intercept, fixed=fixed, blur=0.0)
    best = Newton(tol=1e-9).solve(problem)
    assert best.converged
    smooth = problem.smoothed(Smoothing(blur=blur))
    x = oracles.trust_region(
        lambda x: smooth.point(x).value,
        problem.unknowns(best.coef, best.intercept),
        lambda x: smooth.visit(x).gradient,
        lambda x: smooth.visit(x).hessian(),
        gtol=1e-9,
    )
    local, rng = smooth.visit(x), np.random.default_rng(0)
    at_best, _ = local.certificate(0.0, thorough=True)
    assert at_best.gap <= local.noisy + 1e-7 * problem.weight
    for size in 10.0 ** np.arange(-6, 1):
        there = x + size * rng.standard_normal(len(x)) * used(problem)
        certificate, point = smooth.visit(there).certificate(0.0, thorough=True)
        assert certificate.primal == point.value == pytest.approx(problem.point(there).value, rel=1e-12)
        assert 0 <= certificate.dual <= best.objective * (1 + 1e-12)
        assert size > 1e-5 or certificate.dual >= at_best.dual - 1e-3 * problem.weight


@classes
@fixed
@with_and_without
def test_alpha_proves_its_solution(n_classes, fixed, fit_intercept):
    problem, *_ = make(n_classes, fit_intercept=fit_intercept, fixed=fixed, blur=0.0)
    result = Newton(tol=1e-9).solve(problem)
    assert not result.collapsed
    assert np.all((result.alpha >= 0) & (result.alpha.sum(axis=1, keepdims=True) <= 1 + 1e-12))
    assert not result.alpha[np.arange(70), problem.rows.labels].any()
    residual = problem.rows.weights[:, np.newaxis] * result.alpha
    residual[np.arange(70), problem.rows.labels] = -residual.sum(axis=1)
    units, _ = problem.lengths(result.coef)
    assert result.objective - problem.dual([residual], units) <= 1e-6 * problem.weight


@every_form
@classes
def test_blocks_do_not_change_results(form, n_classes, monkeypatch):
    def everything():
        problem, *_ = make(n_classes, form, n=3001)
        local = problem.visit(problem.unknowns(*place(problem)))
        p = np.linspace(-1, 1, len(local.gradient))
        dual = local.certificate(0.0, thorough=True)[0].dual
        parts = [local.value, local.gradient, local.hessian(), local.product(p), dual]
        return problem, [*parts, problem.slopes(local.point), problem.displacements(local.point)]

    _, whole = everything()
    monkeypatch.setattr("gaussguru._rows.rows.BLOCK_BYTES", 2000)
    monkeypatch.setattr("gaussguru._rows.rows.POINTWISE_ROWS", 100)
    problem, split = everything()
    assert len(problem.rows.blocks) > 4
    for one, many in zip(whole, split, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-10, atol=1e-10)


@classes
def test_subsample_keeps_class_totals_and_reaches(n_classes):
    problem, X, _ = make(n_classes, n=2000)
    part = problem.subsample(500, np.random.default_rng(0))
    np.testing.assert_allclose(part.rows.class_weights, problem.rows.class_weights, rtol=1e-12)
    for x, reach in zip(part.rows.X, part.reach, strict=True):
        assert reach in problem.reach[np.all(x == X, axis=1)]
