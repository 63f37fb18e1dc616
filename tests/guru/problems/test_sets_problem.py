"""Ellipsoids and deletions: F, its derivatives, the choice of shares, and lower bounds from slopes."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from support.common import FORMS, every_form, features, with_and_without

from gaussguru._errors.checks import check_errors
from gaussguru._errors.given import LowRank
from gaussguru._guru.problems.sets import Deletions, Ellipsoids, Moved
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru._guru.solvers.newton import Newton
from gaussguru._rows.rows import Rows

classes = pytest.mark.parametrize("n_classes", [2, 4])
every_set = pytest.mark.parametrize("kind", ["bars", "factors", "one", "two", "all"])
DROPS = {"one": 1, "two": 2, "all": 3}
RIDGE, BLUR = 0.7, 0.4


def make(kind, n_classes=4, form=np.asarray, fit_intercept=True, blur=BLUR, n=60, d=3):
    rng = np.random.default_rng(n_classes)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)).astype(np.int32)
    X = (features(n, d, rng) + 2 * np.eye(n_classes, d)[y]).astype(np.float32).astype(np.float64)
    weight, reach, errors, sets = rng.uniform(0.2, 2.0, n), np.ones(n), None, None
    if kind in DROPS:
        sets = Deletions(DROPS[kind])
    else:
        std = rng.uniform(0, 0.4, (n, d)) * (rng.random((n, 1)) < 0.8)  # some samples are exact
        errors = check_errors(std if kind == "bars" else LowRank(rng.normal(size=(n, d, 2)) / 3, std), X)
        sets, reach = Ellipsoids(), rng.uniform(0.3, 1.0, n)
    rows = Rows(form(X), y, weight, n_classes, errors)
    return Moved(rows, reach, RIDGE, fit_intercept, smoothing=Smoothing(blur=blur), sets=sets), X, y


def place(problem, seed=0):
    rng, C = np.random.default_rng(seed), problem.n_classes
    W, b = rng.standard_normal((C, problem.rows.n_columns)), rng.standard_normal(C) * problem.fit_intercept
    return W - W.mean(axis=0), b - b.mean()


def support(problem, i, x, u):
    """h of a sample from its definition: p and theta by another root finder, and the entropy in plain words."""
    mu = problem.smoothing.blur
    if problem.rows.errors is not None:
        blur = mu / problem.reach.max() * problem.reach[i]
        return np.sqrt(u @ problem.rows.errors.covariance(i) @ u + blur**2)
    z, k = (u * x)[x != 0], problem.sets.n_drop
    if not mu:
        return np.sort(np.maximum(z, 0))[::-1][:k].sum()
    theta = 0.0
    if expit(z / mu).sum() > k:
        theta = brentq(lambda t: expit((z - t) / mu).sum() - k, 0, z.max() + mu * 50, xtol=1e-14)
    p = expit((z - theta) / mu)
    inside = (p > 0) & (p < 1)
    q = p[inside]
    return p @ z - mu * (q @ np.log(q) + (1 - q) @ np.log1p(-q))


def value(W, b, X, y, problem):
    total, blur = 0.5 * problem.ridge * np.sum(W**2), problem.smoothing.blur
    for i, (x, c, s) in enumerate(zip(X, y, problem.rows.weights, strict=True)):
        t = np.zeros(len(W))
        for k in set(range(len(W))) - {c}:
            t[k] = 1 - (W[c] - W[k]) @ x - (b[c] - b[k]) + support(problem, i, x, W[c] - W[k])
        total += s * (blur * np.log(np.sum(np.exp(t / blur))) if blur else t.max())
    return total


def used(problem):
    free = np.ones((problem.n_classes - 1, problem.rows.n_columns + 1), dtype=bool)
    free[:, -1] = problem.fit_intercept
    return free.ravel()


@every_form
@classes
@every_set
@pytest.mark.parametrize("blur", [0.0, BLUR])
def test_value_is_the_formula(kind, form, n_classes, blur):
    problem, X, y = make(kind, n_classes, form, blur=blur)
    W, b = place(problem)
    x = problem.unknowns(W, b)
    assert problem.point(x).value == pytest.approx(value(W, b, X, y, problem), rel=1e-10)
    smooth = problem.smoothed(Smoothing(blur=0.1))
    assert smooth.again(problem.point(x)).value == pytest.approx(value(W, b, X, y, smooth), rel=1e-10)
    other = problem.point(problem.unknowns(*place(problem, 1)))
    between = problem.mixture([(0.7, problem.point(x)), (0.3, other)])
    assert between.value == pytest.approx(problem.point(0.7 * x + 0.3 * other.x).value, rel=1e-12)


@classes
@every_set
@with_and_without
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_derivatives_are_differences(kind, form, n_classes, fit_intercept):
    problem, *_ = make(kind, n_classes, FORMS[form], fit_intercept)
    x, free, h = problem.unknowns(*place(problem)), used(problem), 1e-5
    local, steps = problem.visit(x), 1e-5 * np.eye(len(x))[used(problem)]
    expected = [(problem.point(x + e).value - problem.point(x - e).value) / (2 * h) for e in steps]
    np.testing.assert_allclose(local.gradient[free], expected, rtol=1e-6, atol=1e-6)
    assert not np.any(local.gradient[~free])
    hessian = local.hessian()
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-11)
    differences = [(problem.visit(x + e).gradient - problem.visit(x - e).gradient) / (2 * h) for e in steps]
    np.testing.assert_allclose(hessian[free], differences, rtol=1e-6, atol=1e-6)
    for p in np.random.default_rng(0).standard_normal((3, len(x))):
        np.testing.assert_allclose(local.product(p), hessian @ p, rtol=1e-10, atol=1e-10)


@classes
@every_set
@with_and_without
def test_smoothing_changes_value_and_gradient_as_said(kind, n_classes, fit_intercept):
    problem, *_ = make(kind, n_classes, fit_intercept=fit_intercept)
    x, h = problem.unknowns(*place(problem)), 1e-5
    for blur in (0.05, BLUR):
        smooth = problem.smoothed(Smoothing(blur=blur))
        up, down = (problem.smoothed(Smoothing(blur=blur * np.exp(t))) for t in (h, -h))
        local = smooth.visit(x)
        increase = (up.point(x).value - down.point(x).value) / (2 * h)
        assert local.noisy == pytest.approx(increase, rel=1e-6, abs=1e-7)
        turn = (up.visit(x).gradient - down.visit(x).gradient) / (2 * h)
        np.testing.assert_allclose(local.tangent(Smoothing(blur=0.4 * blur)), 0.6 * turn, rtol=1e-6, atol=1e-6)


@classes
@every_set
@with_and_without
def test_any_slopes_bound_the_minimum(kind, n_classes, fit_intercept):
    problem, *_ = make(kind, n_classes, fit_intercept=fit_intercept, blur=0.0)
    best = Newton(tol=1e-8).solve(problem)
    assert best.converged
    x, rng = problem.unknowns(best.coef, best.intercept), np.random.default_rng(0)
    for blur in (1e-3, 0.3):
        for size in 10.0 ** np.arange(-6, 1):
            there = x + size * rng.standard_normal(len(x)) * used(problem)
            certificate, point = problem.smoothed(Smoothing(blur=blur)).visit(there).certificate(0.0, thorough=True)
            assert certificate.primal == point.value == pytest.approx(problem.point(there).value, rel=1e-12)
            assert 0 <= certificate.dual <= best.objective * (1 + 1e-12)


@every_form
@classes
@every_set
def test_blocks_do_not_change_results(kind, form, n_classes, monkeypatch):
    def everything():
        problem, *_ = make(kind, n_classes, form, n=801)
        local = problem.visit(problem.unknowns(*place(problem)))
        p = np.linspace(-1, 1, len(local.gradient))
        dual = local.certificate(0.0, thorough=True)[0].dual
        return problem, [local.value, local.gradient, local.hessian(), local.product(p), dual]

    _, whole = everything()
    monkeypatch.setattr("gaussguru._rows.rows.BLOCK_BYTES", 2000)
    monkeypatch.setattr("gaussguru._guru.problems.sets.piece_rows", lambda width: 17)
    problem, split = everything()
    assert len(problem.rows.blocks) > 2
    for one, many in zip(whole, split, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-9)


def test_deleted_shares_have_the_sum_in_any_units():
    rng = np.random.default_rng(0)
    for scale in (1e-6, 1.0, 1e3, 1e8):
        z = scale * rng.standard_normal((200, 9))
        z[:, 3] = z[:, 5]  # ties
        z[::7, 2] = 0.0
        block = Rows(z, np.ones(200, dtype=np.int32), np.ones(200), 2).blocks[0]
        W, reach = np.vstack([np.zeros(9), np.ones(9)]), np.ones(200)
        for k in (1, 2, 5, 9):
            sums, states = Deletions(k).support(block, reach, W=W, eps=1.0)
            theta, present = states[:, 0], np.where(z == 0, -np.inf, z)
            total = expit(present - theta[:, np.newaxis]).sum(axis=1)
            assert (theta >= 0).all()
            assert (total <= k + 1e-6 * max(1, scale * 1e-8)).all()
            np.testing.assert_allclose(total[theta > 0], k, rtol=1e-6)
            soft = k * theta + np.logaddexp(0, present - theta[:, np.newaxis]).sum(axis=1)
            np.testing.assert_allclose(sums[:, 0], soft, rtol=1e-12, atol=1e-12)
            moved = Deletions(k).gradients(block, np.arange(200), 1, np.array([0]), reach, states, W, 1.0)[:, 0]
            shares = np.divide(moved, z, out=np.zeros_like(z), where=z != 0)
            assert shares.sum(axis=1).max() <= k * (1 + 1e-15)
            assert (shares >= 0).all()
