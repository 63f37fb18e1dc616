"""Probit regression with error bars: derivatives, optimum, limits and invariances, against SciPy on the formula."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad, minimize
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from support.error_bars import covariances, every_form, matrices

from gaussguru._errors.checks import check_errors
from gaussguru._measured.probit import CachedRows, Probit, ProbitWithErrors, minimise, probit_path, rows_of
from gaussguru._rows.rows import Rows
from gaussguru._rows.validation import check_samples


def problem(n=60, d=4, seed=0, slope=1.5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * [1.0, 2.0, 0.5, 3.0][:d] + 0.3
    y = (X @ np.linspace(1.0, -0.5, d) + rng.standard_normal(n) / slope > 0).astype(int)
    return X, y, rng.uniform(0.2, 2.0, n)


def posed_of(X, y, weight, errors, spreads, ridge):
    rows = Rows(X, np.asarray(y), weight, errors=errors)
    return Probit(rows, 1, np.zeros(X.shape[1]), spreads, ridge)


def objective(w, b, X, y, V, weight, ridge, spreads):
    """F, written from the formula."""
    signs = 2 * y - 1
    t = signs * (X @ w + b) / np.sqrt(1 + np.einsum("j,ijk,k->i", w, V, w))
    return -weight @ norm.logcdf(t) + 0.5 * ridge * np.sum((spreads * w) ** 2)


def spreads_of(X, V, weight):
    mean = np.average(X, axis=0, weights=weight)
    return np.sqrt(np.average((X - mean) ** 2 + np.einsum("ijj->ij", V), axis=0, weights=weight))


def best(X, y, V, weight, ridge):
    """Minimise F by BFGS, from several points."""
    spreads, d = spreads_of(X, V, weight), X.shape[1]
    starts = [np.zeros(d + 1), *np.random.default_rng(0).standard_normal((3, d + 1))]
    found = [
        minimize(lambda u: objective(u[:d], u[d], X, y, V, weight, ridge, spreads), start, method="BFGS", tol=1e-9)
        for start in starts
    ]
    least = min(found, key=lambda one: one.fun)
    return least.x[:d], least.x[d], least.fun


@every_form
def test_derivatives_match_finite_differences(form):
    X, y, weight = problem()
    errors = check_errors(form(*X.shape), X)
    posed = posed_of(X, y, weight, errors, np.array([1.0, 2.0, 0.5, 3.0]), 0.3)
    rng = np.random.default_rng(1)
    for size in (0.1, 3.0):  # where noise matters little, and where it is most of the scale
        u = size * rng.standard_normal(len(posed.units))
        _, gradient, hessian = posed.at(u)
        assert check_grad(lambda u: posed.at(u)[0], lambda u: posed.at(u)[1], u) < 1e-5 * np.linalg.norm(gradient)
        step = 1e-5 * np.eye(len(u))
        columns = [(posed.at(u + e)[1] - posed.at(u - e)[1]) / 2e-5 for e in step]
        np.testing.assert_allclose(hessian, np.array(columns), rtol=1e-6, atol=1e-6 * np.abs(hessian).max())


@every_form
def test_value_is_that_of_the_formula(form):
    X, y, weight = problem()
    X_err = form(*X.shape)
    V, spreads = matrices(X_err, *X.shape), np.array([1.0, 2.0, 0.5, 3.0])
    posed = posed_of(X, y, weight, check_errors(X_err, X), spreads, 0.3)
    u = np.random.default_rng(2).standard_normal(5)
    expected = objective(u[:4] / spreads, u[4], X, y, V, weight, 0.3, spreads)
    assert posed.at(u)[0] == pytest.approx(expected, rel=1e-12)


def test_far_tails_stay_finite():
    X = np.array([[1e6], [-1e6], [1e-3]])
    posed = posed_of(X, np.array([0, 1, 1]), np.ones(3), None, np.ones(1), 1.0)
    value, gradient, hessian = posed.at(np.array([3.0, 0.0]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    # -log Phi(t) is t^2/2 far below 0: its second derivative is 1.
    assert hessian[0, 0] == pytest.approx(2e12 + 1, rel=1e-6)


@pytest.mark.parametrize(("kind", "n_blocks", "n_pieces"), [(CachedRows, 5, 1), (Rows, 1, 5)])
def test_blocks_of_rows_and_pieces_of_blocks_change_nothing(kind, n_blocks, n_pieces, monkeypatch):
    X, y, weight = problem(300)
    errors = check_errors(covariances(*X.shape), X)
    posed = posed_of(X, y, weight, errors, np.ones(4), 0.3)
    assert len(posed.rows.blocks) == len(list(posed.rows.blocks[0].pieces())) == 1
    u = np.ones(5)
    value, *derivatives = posed.at(u)
    monkeypatch.setattr("gaussguru._utils.blocks.CACHE_BYTES", 800)
    cut = replace(posed, rows=kind(X, y, weight, errors=errors))
    assert len(cut.rows.blocks) == n_blocks
    assert len(list(cut.rows.blocks[0].pieces())) == n_pieces
    same, *others = cut.at(u)
    assert same == pytest.approx(value, rel=1e-13)
    for one, other in zip(others, derivatives, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@every_form
@pytest.mark.parametrize("ridge", [10.0, 0.1])
def test_optimum_is_that_of_scipy(form, ridge):
    X, y, weight = problem()
    X_err = form(*X.shape)
    model = ProbitWithErrors(ridge, tol=1e-9).fit(X, y, weight, X_err=X_err)
    w, b, least = best(X, y, matrices(X_err, *X.shape), weight, ridge)
    assert model.objective_ == pytest.approx(least, rel=1e-8)
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.intercept_[0], b, rtol=1e-3, atol=1e-4)
    assert model.gradient_norm_ <= 1e-9


@pytest.mark.parametrize("X_err", [None, 0.0, 1e-9])
def test_without_errors_the_fit_is_plain_probit_regression(X_err):
    X, y, weight = problem()
    errors = None if X_err is None else np.full(X.shape, X_err)
    model = ProbitWithErrors(0.5, tol=1e-9).fit(X, y, weight, X_err=errors)
    w, b, least = best(X, y, np.zeros((60, 4, 4)), weight, 0.5)
    assert model.objective_ == pytest.approx(least, rel=1e-9)
    np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_), np.append(w, b), rtol=1e-4, atol=1e-5)


def test_coefficients_of_the_truth_are_recovered():
    """Labels of a probit model of the true values: 40,000 samples, within four standard errors."""
    rng = np.random.default_rng(3)
    n, w, b = 40_000, np.array([1.5, -0.7, 0.0]), 0.4
    V = covariances(n, 3, seed=4)
    X = rng.standard_normal((n, 3))
    truth = X + np.einsum("ijk,ik->ij", np.linalg.cholesky(V + 1e-12 * np.eye(3)), rng.standard_normal((n, 3)))
    y = (truth @ w + b + rng.standard_normal(n) > 0).astype(int)
    model = ProbitWithErrors(1e-6).fit(X, y, X_err=V)
    posed = posed_of(X, y, np.ones(n), check_errors(V, X), np.ones(3), 0.0)
    found = np.append(model.coef_[0], model.intercept_)
    error = np.sqrt(np.diag(np.linalg.inv(posed.at(found)[2])))
    assert error.max() < 0.05
    np.testing.assert_array_less(np.abs(found - [*w, b]), 4 * error)
    # Without the covariances the coefficients are too small by far.
    assert ProbitWithErrors(1e-6).fit(X, y).coef_[0, 0] < 1.5 - 10 * error[0]


def test_units_and_origin_do_not_matter():
    X, y, weight = problem()
    V = covariances(*X.shape)
    units = np.array([100.0, 0.1, 1.0, 50.0])
    model = ProbitWithErrors(0.5, tol=1e-9).fit(X, y, weight, X_err=V)
    moved = ProbitWithErrors(0.5, tol=1e-9).fit(X * units + 7 * units, y, weight, X_err=V * np.outer(units, units))
    assert moved.objective_ == pytest.approx(model.objective_, rel=1e-10)
    np.testing.assert_allclose(moved.coef_ * units, model.coef_, rtol=1e-6)


def test_weights_are_copies_and_labels_may_be_swapped():
    X, y, _ = problem()
    V, times = covariances(*X.shape), np.random.default_rng(5).integers(0, 3, 60)
    weighted = ProbitWithErrors(tol=1e-9).fit(X, y, times, X_err=V)
    rows = np.repeat(np.arange(60), times)
    copied = ProbitWithErrors(tol=1e-9).fit(X[rows], y[rows], X_err=V[rows])
    np.testing.assert_allclose(weighted.coef_, copied.coef_, rtol=1e-6)
    swapped = ProbitWithErrors(tol=1e-9).fit(X, 1 - y, times, X_err=V)
    np.testing.assert_allclose(swapped.coef_, -weighted.coef_, rtol=1e-6)


def test_a_path_has_the_solutions_of_single_fits_and_other_starts_lead_there_too():
    X, y, weight = problem(200)
    V = covariances(200, 4)
    rows = rows_of(check_samples(X, y, weight), check_errors(V, X))
    ridges = [100.0, 3.0, 0.1]
    path = list(probit_path(rows, ridges, tol=1e-9))
    for ridge, found in zip(ridges, path, strict=True):
        alone = ProbitWithErrors(ridge, tol=1e-9).fit(X, y, weight, X_err=V)
        np.testing.assert_allclose(found.coef, alone.coef_, rtol=1e-6)
        start = (np.array([[-1.0, 2.0, 0.0, 3.0]]), np.array([1.0]))
        (other,) = probit_path(rows, [ridge], start=start, tol=1e-9)
        np.testing.assert_allclose(found.coef, other.coef, rtol=1e-6)
        np.testing.assert_allclose(found.intercept, other.intercept, rtol=1e-6)
    assert path[0].minima[0].n_iter <= 8


def test_many_classes_are_one_against_the_others():
    rng = np.random.default_rng(6)
    y = rng.integers(0, 3, 150)
    X = rng.standard_normal((150, 2)) + np.array([[0, 2], [2, 0], [-2, -2]])[y]
    V = covariances(150, 2)
    model = ProbitWithErrors(tol=1e-9).fit(X, y, X_err=V)
    for c in range(3):
        one = ProbitWithErrors(tol=1e-9).fit(X, y == c, X_err=V)
        np.testing.assert_allclose(model.coef_[c], one.coef_[0], rtol=1e-7)
        np.testing.assert_allclose(model.intercept_[c], one.intercept_[0], rtol=1e-7)
    assert model.score(X, y) > 0.8


def test_what_stops_early_says_so():
    X, y, weight = problem()
    with pytest.warns(ConvergenceWarning, match="gradient"):
        model = ProbitWithErrors(max_iter=1).fit(X, y, weight)
    assert not model.converged_
    assert model.n_iter_ == 1


class Surface:
    """A function of two unknowns with a saddle at 0 and minima of -1/4 at (+-1, 0)."""

    weight = 1.0

    def at(self, u):
        value = u[0] ** 4 / 4 - u[0] ** 2 / 2 + u[1] ** 2
        return value, np.array([u[0] ** 3 - u[0], 2 * u[1]]), np.diag([3 * u[0] ** 2 - 1, 2.0])


@pytest.mark.parametrize("start", [[1e-3, 1.0], [-0.4, 0.0], [30.0, -5.0]])
def test_descent_where_the_function_is_not_convex(start):
    found = minimise(Surface(), np.array(start), tol=1e-9, max_iter=100)
    assert found.converged
    assert found.value == pytest.approx(-0.25, abs=1e-12)
    np.testing.assert_allclose(found.u, [np.sign(start[0]), 0.0], atol=1e-8)


@pytest.mark.parametrize("start", [[0.0, 0.0], [0.0, 3.0], [1e-12, 1.0], [-1e-12, 1.0]])
def test_a_saddle_is_no_minimum(start):
    """From where the gradient is 0, or rounding, the descent goes on, to the side that does not depend on rounding."""
    found = minimise(Surface(), np.array(start), tol=1e-9, max_iter=100)
    assert found.converged
    np.testing.assert_allclose(found.u, [1.0, 0.0], atol=1e-8)
    stopped = minimise(Surface(), np.zeros(2), tol=1e-9, max_iter=1)
    assert (stopped.converged, stopped.gradient_norm) == (False, 0.0)


def test_rounding_ends_the_descent_at_a_tiny_gradient():
    X, y, weight = problem()
    with pytest.warns(ConvergenceWarning, match="gradient"):
        model = ProbitWithErrors(0.5, tol=1e-300).fit(X, y, weight)
    assert model.gradient_norm_ < 1e-14
    assert model.n_iter_ < 20


def test_sparse_features_are_refused():
    X, y, _ = problem()
    with pytest.raises(TypeError, match="dense data is required"):
        ProbitWithErrors().fit(sp.csr_array(X), y)


def test_features_far_from_the_origin():
    X, y, weight = problem()
    near = ProbitWithErrors(0.5, tol=1e-9).fit(X, y, weight)
    far = ProbitWithErrors(0.5, tol=1e-9).fit(X + 1e7, y, weight)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-6)
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-7)


def saddle():
    """Return samples with a feature that is 0, unknown where labels are wrong: both signs of its coefficient help."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(80), np.zeros(80)])
    wrong = np.arange(80) % 4 == 0
    y = np.where(wrong, X[:, 0] < 0, X[:, 0] > 0).astype(int)
    V = np.zeros((80, 2, 2))
    V[:, 1, 1] = np.where(wrong, 1.0, 0.0)
    return X, y, V


def test_a_coefficient_whose_sign_nothing_tells():
    """Without labels that tell its sign, a coefficient has a gradient of 0 at 0, where F is not least."""
    X, y, V = saddle()
    ridge, ones = 0.1, np.ones(len(y))
    clf = ProbitWithErrors(ridge).fit(X, y, X_err=V)
    assert clf.converged_
    assert clf.gradient_norm_ <= 1e-6
    assert clf.objective_ == pytest.approx(best(X, y, V, ones, ridge)[2], rel=1e-6)
    along = minimize(
        lambda u: objective(np.array([u[0], 0.0]), u[1], X, y, V, ones, ridge, spreads_of(X, V, ones)), np.zeros(2)
    )
    assert clf.objective_ < along.fun - 1.0
    stopped, start = ProbitWithErrors(ridge, max_iter=1, tol=1e-3), (np.array([[along.x[0], 0.0]]), along.x[1:])
    with pytest.warns(ConvergenceWarning, match="at a saddle after max_iter=1"):
        stopped.fit(X, y, X_err=V, start=start)
    # Rounding does not choose between the signs.
    for unit in (1e-3, 7.0):
        again = ProbitWithErrors(ridge).fit(X * [1, unit], y, X_err=V * np.outer([1, unit], [1, unit]))
        np.testing.assert_allclose(again.coef_ * [1, unit], clf.coef_, rtol=1e-4)


@pytest.mark.parametrize("shift", [0.0, 1e-13, 5.0])
def test_a_constant_feature_is_no_feature(shift):
    """Its spread is that of a mean of equal numbers, rounded: no unit to measure coefficients in."""
    X, y, weight = problem()
    X = np.column_stack([X, np.full(len(y), shift)])
    clf = ProbitWithErrors(1.0).fit(X, y, weight)
    plain = ProbitWithErrors(1.0).fit(X[:, :-1], y, weight)
    np.testing.assert_allclose(clf.decision_function(X), plain.decision_function(X[:, :-1]), atol=1e-5)


def test_samples_far_on_the_wrong_side():
    """phi / Phi has its digits where both underflow."""
    X = np.array([[-1e12], [1.0], [2.0], [-1.0]])
    posed = posed_of(X, [1, 1, 0, 0], np.ones(4), None, np.ones(1), 1.0)
    value, gradient, hessian = posed.at(np.array([1.0, 0.0]))
    assert value == pytest.approx(5e23, rel=1e-9)
    assert gradient[0] == pytest.approx(1e24, rel=1e-9)
    assert np.isfinite(hessian).all()
