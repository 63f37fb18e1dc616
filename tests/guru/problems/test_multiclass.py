"""More than two classes: F, its derivatives and statistics of the rows."""

import numpy as np
import pytest
from support import oracles
from support.common import Written, every_form, every_loss, options, plain, with_and_without
from support.joint import make, place, sample, symmetric

import gaussguru._rows.rows
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru.losses import Gaussian

blurs = pytest.mark.parametrize("blur", [0.0, 0.4])


def cells(point):
    """Return the sums of ``s f``, ``s f'`` and ``s f*`` over every cell."""
    return np.array([point.gain, point.mass, point.conjugate])


def differences(function, params, h=1e-5):
    return np.array([(function(params + e) - function(params - e)) / (2 * h) for e in h * np.eye(len(params))])


def used(problem):
    """Return which unknowns are free: without intercepts they stay in place, but do nothing."""
    width = problem.rows.n_columns + 1
    free = np.ones((problem.n_classes - 1, width), dtype=bool)
    free[:, -1] = problem.fit_intercept
    return free.ravel()


@every_loss
@every_form
@options
@blurs
def test_value_is_the_plain_sum(loss, form, l2, fit_intercept, blur):
    X, labels, weight = sample()
    problem = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
    W, b = place(fit_intercept=fit_intercept)
    expected = oracles.joint_objective(W, b, X, labels, 0.6, weight=weight, l2=l2, blur=blur, terms=plain(loss))
    x = problem.unknowns(W, b)
    np.testing.assert_allclose(problem.point(x).value, expected, rtol=1e-13)
    np.testing.assert_allclose(problem.visit(x).value, expected, rtol=1e-13)
    coef, intercept = problem.classifier(problem.point(x))
    np.testing.assert_allclose(coef, W - W.mean(axis=0), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(intercept, b - b.mean(), rtol=1e-13, atol=1e-14)


@every_loss
@every_form
@options
@blurs
def test_derivatives_are_differences(loss, form, l2, fit_intercept, blur):
    X, labels, weight = sample(seed=2)
    problem = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
    W, b = place(fit_intercept=fit_intercept)
    free = used(problem)

    def shifted(params):
        shift = np.zeros(free.size)
        shift[free] = params
        return shift

    def value(params):
        """Return F as the unknowns move: those of the last class stay."""
        shift = np.vstack([shifted(params).reshape(3, -1), np.zeros(5)])
        options = {"weight": weight, "l2": l2, "blur": blur, "terms": plain(loss)}
        return oracles.joint_objective(W + shift[:, :-1], b + shift[:, -1], X, labels, 0.6, **options)

    def gradient(params):
        return problem.visit(problem.unknowns(W, b) + shifted(params)).gradient[free]

    here = problem.visit(problem.unknowns(W, b))
    origin = np.zeros(int(free.sum()))
    hessian = symmetric(here.hessian())
    np.testing.assert_allclose(here.gradient[free], differences(value, origin), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(hessian[np.ix_(free, free)], differences(gradient, origin), rtol=1e-6, atol=1e-6)
    for p in np.random.default_rng(0).standard_normal((3, free.size)):
        np.testing.assert_allclose(here.product(p), hessian @ p, rtol=1e-10, atol=1e-10)
    assert not np.any(here.gradient[~free])
    np.testing.assert_allclose(here.force(np.ones((4, 4))).sum(axis=0), 0.0, atol=1e-11)


@every_loss
@options
@pytest.mark.parametrize("damping", [0.0, 0.2])
def test_factor_is_that_of_the_damped_hessian(loss, l2, fit_intercept, damping):
    X, labels, weight = sample()
    problem = make(X, labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=0.1)
    here = problem.visit(problem.unknowns(*place(fit_intercept=fit_intercept)))
    # A curvature of 1 in all scores, and in their noise.
    unit = np.append(weight @ X**2 + 0.36 * weight.sum(), weight.sum())
    np.testing.assert_allclose(here.problem.unit_damping, np.tile(unit, 3), rtol=1e-12)
    damped = damping * here.problem.unit_damping
    factor, hessian = here.factor(damped), symmetric(here.hessian())
    for p in np.eye(len(hessian)):
        np.testing.assert_allclose(here.product(p), hessian @ p, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(factor.solve(hessian @ p + damped * p), p, rtol=1e-9, atol=1e-9)


@every_form
@with_and_without
def test_rows_of_little_weight_are_left_out_of_products(form, fit_intercept):
    X, labels, weight = sample(n=20_000, d=30, seed=2)
    problem = make(form(X), labels, weight, sigma=0.02, fit_intercept=fit_intercept)
    here = problem.visit(problem.unknowns(*place(d=30, seed=3, fit_intercept=fit_intercept)))
    main = here.main()
    assert main.problem.rows.n_rows < 0.5 * problem.rows.n_rows
    assert main.gradient is here.gradient
    assert main.problem.unit_damping is here.problem.unit_damping
    rng = np.random.default_rng(0)
    for p in rng.standard_normal((5, here.gradient.size)):
        product = here.product(p)
        assert np.linalg.norm(main.product(p) - product) <= 2e-3 * np.linalg.norm(product)
    hessian = symmetric(here.hessian())
    assert np.linalg.norm(symmetric(main.hessian()) - hessian) <= 2e-3 * np.linalg.norm(hessian)


def test_few_rows_are_all_kept():
    problem = make(*sample(), sigma=0.02)
    here = problem.visit(problem.unknowns(*place()))
    assert here.main() is here


@every_loss
@every_form
@options
@pytest.mark.parametrize("blur", [0.0, 0.05, 0.4, 3.0])
def test_tangent_is_the_derivative_by_log_blur(loss, form, l2, fit_intercept, blur):
    X, labels, weight = sample(seed=3)
    problem = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
    x = problem.unknowns(*place(fit_intercept=fit_intercept))
    h = 1e-5
    here = problem.visit(x)
    for fraction in (0.0, 0.6, 1.0):
        up, down = (problem.smoothed(Smoothing(blur=blur * np.exp(t * fraction))).visit(x).gradient for t in (h, -h))
        tangent = here.tangent(Smoothing(blur=blur * (1 - fraction)))
        np.testing.assert_allclose(tangent, (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@every_form
@options
@blurs
def test_compiled_and_written_loss_agree(form, l2, fit_intercept, blur):
    X, labels, weight = sample(n=120)
    p = np.linspace(-1, 2, 15)
    found, bounds = [], []
    for loss in (Gaussian(), Written()):
        problem = make(form(X), labels, weight, loss=loss, l2=l2, fit_intercept=fit_intercept, blur=blur)
        here = problem.visit(problem.unknowns(*place(fit_intercept=fit_intercept)))
        point = here.point
        found.append(
            [
                *(here.value, *cells(point), here.gradient, symmetric(here.hessian()), here.product(p)),
                *(
                    here.tangent(Smoothing(blur=0.5 * blur)),
                    problem.slopes(point),
                    *map(np.concatenate, here.row_weights),
                ),
            ]
        )
        certificate, _ = here.certificate(0.0, thorough=True)
        bounds.append((problem.shrunk_conjugate(point, 0.8), certificate.primal, certificate.dual))
    for compiled, written in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, written, rtol=1e-10, atol=1e-11)
    # The compiled bounds may be a little lower.
    for compiled, written in zip(*bounds, strict=True):
        np.testing.assert_allclose(compiled, written, rtol=1e-5)
    assert np.all(bounds[0][0] <= bounds[1][0] * (1 + 1e-12))


@every_form
def test_pull_with_scaled_slopes_is_the_weighted_sum(form):
    X, labels, weight = sample()
    problem = make(form(X), labels, weight)
    here = problem.visit(problem.unknowns(*place()))
    kept = np.random.default_rng(0).random((4, 4))
    expected = np.zeros((4, 4))
    for x, c, residual in zip(X, labels, np.concatenate(here.row_weights.residual), strict=True):
        for k in range(4):
            if k != c:
                expected[k] += kept[c, k] * residual[k] * x
                expected[c] -= kept[c, k] * residual[k] * x
    np.testing.assert_allclose(here.pull(kept), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(here.pull(np.ones((4, 4))), here.combined, rtol=1e-11, atol=1e-12)


@every_form
def test_residuals_are_the_derivatives_by_the_scores(form):
    X, labels, weight = sample()
    problem = make(form(X), labels, weight, blur=0.1)
    x = problem.unknowns(*place())
    residual, local = problem.residual(x), problem.visit(x)
    np.testing.assert_allclose(residual.T @ X, local.combined, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(residual.sum(axis=1), 0.0, atol=1e-12)
    by_cell = [np.where(labels == c, residual[:, k], 0.0) for c in range(4) for k in range(4) if k != c]
    np.testing.assert_array_equal(problem.by_cell(residual), np.column_stack(by_cell))


@every_form
def test_visit_equals_expand(form):
    X, labels, weight = sample(seed=5)
    problem = make(form(X), labels, weight, l2=0.3, blur=0.1)
    x = problem.unknowns(*place())
    visited, expanded = problem.visit(x), problem.expand(problem.point(x))
    np.testing.assert_allclose(visited.gradient, expanded.gradient, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(visited.row_weights, expanded.row_weights, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(symmetric(visited.hessian()), symmetric(expanded.hessian()), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(cells(visited.point), cells(expanded.point), rtol=1e-11, atol=1e-13)


@every_form
@every_loss
def test_a_step_from_slacks_equals_a_new_evaluation(form, loss):
    X, labels, weight = sample(seed=5)
    problem = make(form(X), labels, weight, l2=0.3, blur=0.1, loss=loss)
    (W, b), (P, shifts) = place(seed=1), place(seed=2)
    moved = problem.visit(problem.unknowns(W, b)).displaced(P - P.mean(axis=0), shifts - shifts.mean())
    there = problem.visit(problem.unknowns(W + P, b + shifts))
    np.testing.assert_allclose(moved.gradient, there.gradient, rtol=1e-10, atol=1e-12)
    for name in ("value", "mass", "gain", "tension"):
        np.testing.assert_allclose(getattr(moved.point, name), getattr(there.point, name), rtol=1e-10, atol=1e-12)
    exact, compiled = (problem.shrunk_conjugate(local.point, 0.7) for local in (moved, there))
    np.testing.assert_allclose(exact, compiled, rtol=2e-6)
    assert np.all(exact >= compiled * (1 - 1e-12))  # which returns a little less


def test_mixtures_and_other_smoothing_are_evaluated_as_points():
    X, labels, weight = sample()
    problem = make(X, labels, weight, l2=0.2, blur=0.1)
    (W, b), (V, c) = place(seed=1), place(seed=2)
    start, end = problem.point(problem.unknowns(2 * W, b)), problem.point(problem.unknowns(V, c))
    between = problem.mixture([(0.7, start), (0.3, end)])
    expected = problem.point(problem.unknowns(1.4 * W + 0.3 * V, 0.7 * b + 0.3 * c))
    np.testing.assert_allclose(between.value, expected.value, rtol=1e-12)
    other = problem.scaled(3.0).smoothed(Smoothing(blur=0.7)).again(start)
    expected = oracles.joint_objective(2 * W, b, X, labels, 1.8, weight=weight, l2=0.2, blur=0.7)
    np.testing.assert_allclose(other.value, expected, rtol=1e-13)


def test_sums_of_the_data():
    X, labels, weight = sample()
    problem = make(X, labels, weight)
    totals = [weight[labels == c].sum() for c in range(4)]
    np.testing.assert_allclose(problem.rows.class_weights, totals, rtol=1e-13)
    np.testing.assert_allclose(problem.weight, 3 * weight.sum(), rtol=1e-13)
    np.testing.assert_allclose(problem.rows.column_squares, weight @ (X * X), rtol=1e-13)
    np.testing.assert_allclose(problem.rows.squared_norms, (X * X).sum(axis=1), rtol=1e-13)
    for c in range(4):
        expected = np.average(X[labels == c], axis=0, weights=weight[labels == c])
        np.testing.assert_allclose(problem.rows.means[c], expected, rtol=1e-12, atol=1e-14)
    zero = problem.point(problem.unknowns(np.zeros((4, 4)), np.zeros(4) + 0.2))
    np.testing.assert_allclose(problem.smoothed(Smoothing(blur=1e-9)).again(zero).value, problem.weight, rtol=1e-8)


@pytest.mark.parametrize("n_rows", [10, 500, 1500])
def test_subsample_keeps_class_totals(n_rows):
    X, labels, weight = sample(n=2000)
    labels[10:1500] = 2
    problem = make(X, labels, weight)
    part = problem.subsample(n_rows, np.random.default_rng(0))
    np.testing.assert_allclose(part.rows.class_weights, problem.rows.class_weights, rtol=1e-12)
    assert part.rows.n_rows <= n_rows + 4 * 52


@every_form
@every_loss
def test_blocks_do_not_change_results(form, loss, monkeypatch):
    X, labels, weight = sample(n=3001)

    def everything():
        problem = make(form(X), labels, weight, loss=loss, blur=0.1)
        here = problem.visit(problem.unknowns(*place()))
        parts = [here.value, *cells(here.point), here.gradient, symmetric(here.hessian())]
        parts += [here.product(np.linspace(-1, 1, 15)), here.tangent(Smoothing(blur=0.07)), problem.rows.means]
        return parts, problem

    whole, _ = everything()
    monkeypatch.setattr(gaussguru._rows.rows, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(gaussguru._rows.rows, "POINTWISE_ROWS", 100)
    split, problem = everything()
    assert len(problem.rows.blocks) > 4
    for one, many in zip(whole, split, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-10, atol=1e-10)
