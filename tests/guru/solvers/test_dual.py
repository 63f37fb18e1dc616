"""The dual problem: its solver, the primal solution from its alpha, and every loss in every setting."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import entr, logit, ndtri
from sklearn.exceptions import ConvergenceWarning
from support import oracles
from support.common import Written, with_and_without
from support.data import PROBLEMS, clouds, groups, problem

from gaussguru import CollapseWarning, GuruClassifier, sigma_max
from gaussguru.certificates import dual_feasibility, dual_objective, duality_gap, norm_bound, recover_norm
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic

every_loss = pytest.mark.parametrize("loss", LOSSES)
EXPONENTS = (-6, -3, 0, 3, 6)
# Random and real problems that are not separable: separable ones have an optimum of 0, without a relative error.
MIXED = [name for name in PROBLEMS if name in ("balanced", "unbalanced", "breast-cancer", "ionosphere", "pima")]


def fit(X, y, sigma, **options):
    """Return a fitted classifier; a tolerance next to rounding may not be reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", CollapseWarning)
        return GuruClassifier(sigma, **options).fit(X, y)


@every_loss
@with_and_without
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("name", MIXED)
def test_primal_and_dual_agree(name, exponent, fit_intercept, loss):
    (X, y), sigma = problem(name), 2.0**exponent
    options = {"loss": loss, "fit_intercept": fit_intercept, "tol": 1e-13}
    primal, dual = fit(X, y, sigma, **options), fit(X, y, sigma, solver="dual", **options)
    weight = float(len(y))
    np.testing.assert_allclose(dual.objective_, primal.objective_, rtol=1e-8)
    assert max(primal.dual_gap_, dual.dual_gap_) <= 1e-11 * weight
    alpha, noise = dual.dual_coef_, Isotropic(sigma)
    np.testing.assert_allclose(dual.objective_ - dual.dual_gap_, primal.objective_, rtol=1e-8)  # the proven dual value
    # Alpha itself is feasible, and its value is the optimum, to first order in its error.
    np.testing.assert_allclose(dual_objective(loss, noise, alpha, y, X), primal.objective_, rtol=1e-7)
    missed = dual_feasibility(loss, noise, alpha, y, X, fit_intercept=fit_intercept)
    assert missed.box == 0
    assert missed.balance <= 1e-9 * weight
    assert missed.cone <= 1e-13 * weight
    assert bool(primal.coef_.any()) == bool(dual.coef_.any())
    if not primal.coef_.any():
        return
    w, b = primal.coef_[0], primal.intercept_[0]
    length = np.linalg.norm(w)
    z = (1 - y * (X @ w + b)) / (sigma * length)
    np.testing.assert_allclose(alpha, LOSSES[loss].slope(z), atol=2e-5)
    # Both formulas for the norm, from the solver's alpha and from f'(z).
    found = recover_norm(loss, noise, alpha, y, X, w, fit_intercept=fit_intercept)
    np.testing.assert_allclose([found.norm, found.intercept], [length, b], rtol=1e-6, atol=1e-6 * fit_intercept)
    used = (alpha > 0.01) & (alpha < 0.99)
    np.testing.assert_allclose(found.by_sample[used], length, rtol=1e-4)
    if alpha.max() < 0.999:  # beyond, the digits of 1 - alpha that z needs are missing
        np.testing.assert_allclose(found.by_sums, length, rtol=1e-6)
    exact = recover_norm(loss, noise, LOSSES[loss].slope(z), y, X, w, fit_intercept=fit_intercept)
    np.testing.assert_allclose(exact.by_sample[used], length, rtol=1e-6)
    if alpha.max() < 0.999:
        np.testing.assert_allclose(exact.by_sums, length, rtol=1e-6)


@with_and_without
@pytest.mark.parametrize("max_iter", [3, 6, 12])
@pytest.mark.parametrize("name", MIXED)
def test_alpha_is_feasible_and_attains_the_lower_bound(name, max_iter, fit_intercept):
    """Alpha is feasible and attains the lower bound, however early the solver ends."""
    (X, y), noise = problem(name), Isotropic(0.5)
    clf = fit(X, y, 0.5, solver="dual", fit_intercept=fit_intercept, tol=1e-13, max_iter=max_iter)
    missed = dual_feasibility("gaussian", noise, clf.dual_coef_, y, X, fit_intercept=fit_intercept)
    assert missed.box == 0
    assert max(missed.balance, missed.cone) <= 1e-12 * len(y)
    value = dual_objective("gaussian", noise, clf.dual_coef_, y, X)
    assert value == pytest.approx(clf.objective_ - clf.dual_gap_, abs=1e-12 * len(y))


@every_loss
@pytest.mark.parametrize("sigma", [0.25, 4.0])
def test_the_formulas_of_the_thesis_lack_sigma(loss, sigma):
    """An erratum of chapter 3: without the factor sigma neither formula gives the norm."""
    X, y = clouds(40, 40, 3, 1.5, seed=1)
    clf = fit(X, y, sigma, loss=loss, fit_intercept=False, solver="dual", tol=1e-13)
    alpha, length = clf.dual_coef_, np.linalg.norm(clf.coef_)
    unit = clf.coef_[0] / length
    used = (alpha > 0.01) & (alpha < 0.99)
    z, sides = LOSSES[loss].slope_inverse(alpha), y * (X @ unit)
    np.testing.assert_allclose(1 / (sigma * z + sides)[used], length, rtol=1e-5)
    assert np.abs(1 / (z + sides)[used] / length - 1).max() > 0.1
    if alpha.max() < 0.999:
        sums = alpha.sum() / LOSSES[loss].value(z).sum()
        np.testing.assert_allclose(sums / sigma, length, rtol=1e-5)
        assert abs(sums / length - 1) > 0.5


ROOT = np.sqrt(2 * np.pi)
# f* and its derivative -z of every loss.
CONJUGATES = {
    "gaussian": lambda a: (oracles.pdf(ndtri(a)), -ndtri(a)),
    "logistic": lambda a: ((entr(a) + entr(1 - a)) / np.log(2) / ROOT, -logit(a) / np.log(2) / ROOT),
    "quadratic": lambda a: (4 * a * (1 - a) / ROOT, (4 - 8 * a) / ROOT),
    "moment": lambda a: (np.sqrt(a * (1 - a)), (0.5 - a) / np.sqrt(a * (1 - a))),
}


@every_loss
@with_and_without
def test_dual_optimum_equals_that_of_a_generic_optimiser(loss, fit_intercept):
    """SciPy maximises sum alpha under the constraints as they are written in the thesis (with sigma)."""
    (X, y), sigma = clouds(9, 8, 2, 1.0, seed=3), 0.4
    rows = X * y[:, None]

    def room(alpha):
        return sigma * CONJUGATES[loss](alpha)[0].sum() - np.linalg.norm(alpha @ rows)

    def slope(alpha):
        v = alpha @ rows
        return sigma * CONJUGATES[loss](alpha)[1] - rows @ v / np.linalg.norm(v)

    constraints = [{"type": "ineq", "fun": room, "jac": slope}]
    if fit_intercept:
        constraints.append({"type": "eq", "fun": lambda alpha: y @ alpha, "jac": lambda _: y})
    best = minimize(
        lambda alpha: -alpha.sum(),
        np.where(y > 0, 0.5, 0.5 * 9 / 8),
        jac=lambda alpha: -np.ones_like(alpha),
        bounds=[(1e-9, 1 - 1e-9)] * len(y),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    clf = fit(X, y, sigma, loss=loss, fit_intercept=fit_intercept, solver="dual", tol=1e-10)
    np.testing.assert_allclose(clf.objective_, -best.fun, rtol=1e-6)
    np.testing.assert_allclose(clf.dual_coef_, best.x, atol=1e-3)


@every_loss
@with_and_without
@pytest.mark.parametrize("l2", [0.01, 10.0])
def test_dual_optimum_with_a_ridge_equals_the_oracle(loss, l2, fit_intercept):
    X, y = clouds(40, 35, 4, 1.0, seed=3)
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    clf = GuruClassifier(0.5, loss=loss, l2=l2, fit_intercept=fit_intercept, solver="dual").fit(X, y, weight)
    terms = oracles.TERMS[loss]
    optimum, *_ = oracles.minimum(X, y, 0.5, weight=weight, l2=l2, fit_intercept=fit_intercept, terms=terms)
    assert clf.dual_gap_ <= 1e-6 * weight.sum()
    assert optimum - 1e-9 * weight.sum() <= clf.objective_ <= optimum + clf.dual_gap_ + 1e-12
    value = dual_objective(loss, Isotropic(0.5), clf.dual_coef_, y, X, sample_weight=weight, l2=l2)
    np.testing.assert_allclose(value, optimum, atol=1e-5 * weight.sum())


SETTINGS = {"binary": clouds(40, 30, 6, 1.5, seed=1), "multiclass": groups((30, 25, 20), 6, seed=2)}
LOSS_FORMS = {**LOSSES, "written": Written()}


@pytest.mark.parametrize("loss", LOSS_FORMS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@with_and_without
def test_every_loss_in_every_setting(loss, setting, form, fit_intercept):
    X, y = SETTINGS[setting]
    n_others = len(np.unique(y)) - 1
    for sigma in (0.03, 0.5, 8.0):
        clf = fit(form(X), y, sigma, loss=LOSS_FORMS[loss], fit_intercept=fit_intercept)
        assert clf.dual_gap_ <= 1e-6 * len(y) * n_others
        if loss != "written" and sigma == 0.5:
            terms = oracles.TERMS[loss]
            if setting == "binary":
                optimum, *_ = oracles.minimum(X, y, sigma, fit_intercept=fit_intercept, terms=terms)
                assert optimum - 1e-9 * len(y) <= clf.objective_ <= optimum + clf.dual_gap_ + 1e-10
            else:
                value = oracles.joint_objective(clf.coef_, clf.intercept_, X, y, sigma, terms=terms)
                np.testing.assert_allclose(clf.objective_, value, rtol=1e-12)


@every_loss
@with_and_without
@pytest.mark.parametrize("exponent", range(-10, 11, 5))
@pytest.mark.parametrize("name", ["balanced", "unbalanced", "separable", "wide", "repeated-columns"])
def test_every_loss_for_any_sigma(name, exponent, fit_intercept, loss):
    X, y = problem(name)
    for solver in ("newton", "dual"):
        clf = fit(X, y, 2.0**exponent, loss=loss, fit_intercept=fit_intercept, solver=solver)
        assert clf.dual_gap_ <= 1e-6 * len(y)


@every_loss
@with_and_without
@pytest.mark.parametrize("exponent", [-8, -2, 2, 6, 10])
def test_every_loss_for_any_sigma_and_more_classes(exponent, fit_intercept, loss):
    X, y = groups((40, 40, 25, 10), 5, seed=4)
    clf = fit(X, y, 2.0**exponent, loss=loss, fit_intercept=fit_intercept)
    assert clf.dual_gap_ <= 1e-6 * len(y) * 3


@every_loss
def test_a_loss_in_python_fits_like_the_compiled_one(loss):
    class Copy(type(LOSSES[loss])):
        code = -1

        def terms(self, z):
            return oracles.TERMS[loss](np.asarray(z))

    X, y = clouds(40, 30, 6, 1.5, seed=1)
    for solver in ("newton", "dual"):
        one, other = (fit(X, y, 0.5, loss=each, solver=solver, tol=1e-11) for each in (loss, Copy()))
        np.testing.assert_allclose(one.objective_, other.objective_, rtol=1e-10)


@every_loss
def test_sigma_max_of_every_loss(loss):
    X, y = clouds(12, 60, 3, 2.0, seed=2)
    top = sigma_max(X, y, loss=loss)
    with pytest.warns(CollapseWarning):
        clf = GuruClassifier(top * (1 + 1e-9), loss=loss).fit(X, y)
    assert clf.objective_ == 24
    assert fit(X, y, 0.5 * top, loss=loss).coef_.any()


@every_loss
def test_norm_bound_of_every_loss(loss):
    X, y = clouds(40, 35, 4, 1.0, seed=3)
    radius = np.linalg.norm(X, axis=1).max()
    for sigma in (0.3, 1.0, 10.0):
        w = fit(X, y, sigma, loss=loss, fit_intercept=False).coef_[0]
        assert np.linalg.norm(w) <= norm_bound(LOSSES[loss], Isotropic(sigma), radius, w)


@every_loss
def test_any_feasible_point_is_a_bound(loss):
    X, y = clouds(40, 35, 4, 1.0, seed=3)
    noise, optimum = Isotropic(0.5), fit(X, y, 0.5, loss=loss, tol=1e-10).objective_
    rng, feasible = np.random.default_rng(0), 0
    best = fit(X, y, 0.5, loss=loss, solver="dual").dual_coef_
    for _ in range(200):
        alpha = np.clip(best * rng.uniform(0.5, 1.0) + 0.01 * rng.standard_normal(len(y)), 0, 1)
        sums = alpha[y > 0].sum(), alpha[y < 0].sum()
        alpha[y > 0] *= min(1.0, sums[1] / sums[0])
        alpha[y < 0] *= min(1.0, sums[0] / sums[1])
        if dual_feasibility(loss, noise, alpha, y, X).cone == 0:
            feasible += 1
            assert dual_objective(loss, noise, alpha, y, X) <= optimum * (1 + 1e-12)
    assert feasible > 5


def test_feasibility_measures_each_violation():
    X, y, noise = np.array([[1.0], [-1.0]]), np.array([1, -1]), Isotropic(1.0)
    assert dual_feasibility("quadratic", noise, [0.0, 0.0], y, X) == (0, 0, 0)
    assert dual_feasibility("quadratic", noise, [1.5, -0.25], y, X)[:2] == (0.5, 1.75)
    assert dual_feasibility("quadratic", noise, [1.0, 0.0], y, X, fit_intercept=False).balance == 0
    np.testing.assert_allclose(dual_feasibility("quadratic", noise, [1.0, 1.0], y, X).cone, 2.0)


def test_duality_gap_equals_the_gap_of_the_certificate():
    X, y = clouds(40, 35, 4, 1.0, seed=3)
    clf = GuruClassifier(0.5, loss="logistic").fit(X, y)
    assert duality_gap(clf, X, y) == clf.certificate(X, y).gap <= 1e-6 * len(y)
    assert duality_gap(clf, X + 0.3, y) > 1e-3


def test_dual_is_printed(capsys):
    X, y = clouds(40, 35, 4, 1.0, seed=3)
    clf = GuruClassifier(0.5, solver="dual", verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == clf.n_iter_ + 1
    assert all(line.startswith("[dual] iteration ") for line in lines)


def test_unsupported_combinations_are_refused():
    X, y = groups((10, 10, 10), 3)
    with pytest.raises(ValueError, match="Only binary classification is supported with solver='dual'; y has 3"):
        GuruClassifier(solver="dual").fit(X, y)
    for solver in ("sgd", "sgd2"):
        with pytest.raises(ValueError, match=r"solver 'sgd' needs a compiled loss; Written\(\)"):
            GuruClassifier(solver=solver, loss=Written()).fit(X, y)


def test_dual_of_a_large_square_matrix_is_refused():
    X = sp.identity(5000, format="csr")
    with pytest.raises(ValueError, match=r"solver='dual' factors.*\(5000, 5000\).*newton"):
        GuruClassifier(solver="dual").fit(X, np.arange(5000) % 2)


BAD = {
    "alpha": ({"alpha": np.zeros(3)}, r"alpha must have shape \(2,\)"),
    "y": ({"y": [0, 1]}, "y must hold the labels -1 and 1"),
    "weight": ({"sample_weight": np.ones((2, 1))}, r"sample_weight must have shape \(2,\)"),
    "loss": ({"loss": "square"}, "loss must be one of"),
    "ends": ({"alpha": np.array([0.0, 1.0])}, "0 < alpha < 1"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_wrong_dual_points_are_refused(change, message):
    right = {"loss": "gaussian", "noise": Isotropic(1.0), "alpha": np.full(2, 0.5), "y": [1, -1], "X": np.eye(2)}
    recover_norm(**right, direction=np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match=message):
        recover_norm(**{**right, **change}, direction=np.array([1.0, -1.0]))
