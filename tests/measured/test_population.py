"""Populations of true values: posteriors against integrals, EM against its conditions."""

import copy
import dataclasses
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from gaussguru import GuruClassifier, PopulationClassifier
from gaussguru._native import _binding
from gaussguru._populations.em import Em
from gaussguru._populations.mixtures import FactorMixture, Mixture
from gaussguru._populations.readings import read
from gaussguru.errors import Asymmetric, Limits, LowRank, Measured
from gaussguru.population import Deconvolve, predictive_of_errors, reliability
from gaussguru.preprocessing import WithErrors


def draw(n, d, seed=0, *, K=1):
    """Return true values of a mixture, measured ones, and their errors."""
    rng = np.random.default_rng(seed)
    roots = 0.7 * rng.normal(size=(K, d, d)) + 0.5 * np.eye(d)
    means = 4.0 * np.arange(K)[:, np.newaxis] * np.ones(d) + rng.normal(size=(K, d))
    labels = rng.integers(K, size=n)
    truth = means[labels] + np.einsum("ijk,ik->ij", roots[labels], rng.normal(size=(n, d)))
    err = rng.uniform(0.1, 1.5, size=(n, d))
    return truth, truth + err * rng.normal(size=(n, d)), err, means, roots @ roots.transpose(0, 2, 1)


def mixture(d, K, seed=0):
    rng = np.random.default_rng(seed)
    roots = 0.5 * rng.normal(size=(K, d, d)) + 1.5 * np.eye(d)
    return Mixture(rng.dirichlet(np.full(K, 5.0)), 2 * rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1))


def integrated(population, x, noise, known):
    """Return density, mean and covariance of the truth of one sample, by sums over a fine grid."""
    d = len(x)
    points = [400, 160, 81][d - 1]
    spread = np.sqrt(np.diag(population.covariance))
    axes = [np.linspace(m - 7 * s, m + 7 * s, points) for m, s in zip(population.mean, spread, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    prior = sum(
        w * multivariate_normal(m, T).pdf(grid)
        for w, m, T in zip(population.weights, population.means, population.covariances, strict=True)
    )
    some = np.flatnonzero(known)
    likelihood = 1.0
    if len(some):
        likelihood = multivariate_normal(x[some], noise[np.ix_(some, some)]).pdf(grid[:, some])
    mass = prior * likelihood
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    share = mass / mass.sum()
    mean = share @ grid
    return mass.sum() * cell, mean, (grid - mean).T @ ((grid - mean) * share[:, np.newaxis])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("form", ["diagonal", "sample", "covariance", "low rank"])
def test_posteriors_are_integrals(d, form):
    population, rng, n = mixture(d, 2, seed=d), np.random.default_rng(d), 4
    x = 2 * rng.normal(size=(n, d))
    std = rng.uniform(0.8, 1.6, size=(n, d))
    if form == "sample":
        std = np.repeat(std[:, :1], d, axis=1)
    noise = np.stack([np.diag(np.square(row)) for row in std])
    X_err = {"diagonal": std, "sample": std[:, 0]}.get(form)
    if X_err is None:
        F = 0.7 * rng.normal(size=(n, d, 1))
        noise = noise + F @ F.transpose(0, 2, 1)
        X_err = noise if form == "covariance" else LowRank(F, std)
    known = np.ones((n, d), dtype=bool)
    known[1, 0] = known[2, -1] = False
    known[3] = False
    rows = read(np.where(known, x, np.nan), X_err)
    means, covariances = population.moments(rows)
    logs = population.log_likelihood(rows)
    for i in range(n):
        density, mean, covariance = integrated(population, x[i], noise[i], known[i])
        np.testing.assert_allclose(logs[i], np.log(density), atol=1e-6)
        np.testing.assert_allclose(means[i], mean, atol=1e-5)
        np.testing.assert_allclose(covariances[i], covariance, atol=1e-5)


def test_components_are_the_mixture_behind_the_moments():
    population, rng = mixture(3, 3), np.random.default_rng(0)
    x, std = 2 * rng.normal(size=(50, 3)), rng.uniform(0.0, 2.0, size=(50, 3))
    x[rng.random(x.shape) < 0.2] = np.nan
    model = Deconvolve(3).fit(rng.normal(size=(60, 3)))
    model.population_ = population
    found = model.transform(x, std)
    W, b = rng.normal(size=(2, 3)), rng.normal(size=2)
    means, covariances = found.components.scores(W, b)
    q = found.components.weights
    assert means.shape == (50, 3, 2)
    assert covariances.shape == (50, 3, 2, 2)
    np.testing.assert_allclose(q.sum(axis=1), 1.0)
    total = np.einsum("ik,ikr->ir", q, means)
    np.testing.assert_allclose(total, found.X @ W.T + b, atol=1e-9)
    apart = means - total[:, np.newaxis]
    expected = np.einsum("ik,ikrs->irs", q, covariances) + np.einsum("ik,ikr,iks->irs", q, apart, apart)
    np.testing.assert_allclose(expected, W @ found.err @ W.T, atol=1e-9)
    some = np.array([7, 3, 3])
    part = found[some]
    assert len(part.components) == 3
    np.testing.assert_array_equal(part.X, found.X[some])
    np.testing.assert_allclose(part.components.weights, q[some])
    np.testing.assert_allclose(part.components.scores(W, b)[1], covariances[some])
    with pytest.raises(ValueError, match="components must be for the 50 samples"):
        Measured(found.X, found.err, part.components)


@pytest.mark.parametrize("size", [1e5, 1e7])
def test_not_measured_is_the_limit_of_growing_errors(size):
    population, rng = mixture(3, 2), np.random.default_rng(1)
    x, std = rng.normal(size=(20, 3)), rng.uniform(0.0, 1.0, size=(20, 3))
    lost = rng.random(x.shape) < 0.4
    means, covariances = population.moments(read(np.where(lost, np.nan, x), std))
    near, around = population.moments(read(x, np.where(lost, size, std)))
    np.testing.assert_allclose(near, means, atol=1e4 * size**-2 + 1e-10)
    np.testing.assert_allclose(around, covariances, atol=1e4 * size**-2 + 1e-10)


def test_not_measured_in_any_form_is_the_same():
    _, x, err, _, _ = draw(300, 3)
    lost = np.random.default_rng(2).random(x.shape) < 0.3
    gone = np.where(lost, np.nan, x)
    cube = np.einsum("ij,jk->ijk", np.square(err), np.eye(3))
    cube_lost = cube.copy()
    rows, columns = np.nonzero(lost)
    cube_lost[rows, columns, columns] = np.inf
    expected = Deconvolve(2).fit_transform(gone, X_err=err)
    for X, X_err in [
        (x, np.where(lost, np.inf, err)),
        (gone, np.where(lost, np.nan, err)),
        (np.where(lost, 77.0, x), np.where(lost, 1e9, err)),
        (gone, cube),
        (x, cube_lost),
        (gone, LowRank(np.zeros((300, 3, 1)), err)),
        (gone, sp.csr_array(err)),
    ]:
        found = Deconvolve(2).fit_transform(X, X_err=X_err)
        np.testing.assert_allclose(found.X, expected.X, atol=1e-7)
        np.testing.assert_allclose(found.err, expected.err, atol=1e-7)


def test_exact_values_are_their_posteriors():
    _, x, err, _, _ = draw(200, 3)
    err[:, 0] = 0.0
    err[::2] = 0.0
    found = Deconvolve().fit_transform(x, X_err=err)
    np.testing.assert_allclose(found.X[:, 0], x[:, 0], atol=1e-12)
    np.testing.assert_allclose(found.X[::2], x[::2], atol=1e-12)
    assert np.abs(found.err[::2]).max() < 1e-24
    assert np.linalg.eigvalsh(found.err).min() > -1e-15
    exact = Deconvolve(ridge=0).fit(x)
    np.testing.assert_allclose(exact.means_[0], x.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(exact.covariances_[0], np.cov(x.T, ddof=0), rtol=1e-10)


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("n_components", [1, 2])
def test_exact_values_are_the_same_bits(n_components, rank):
    _, x, err, _, _ = draw(200, 3)
    err[:, 0] = err[::2] = 0.0
    found = Deconvolve(n_components, rank=rank).fit_transform(x, X_err=err)
    covariances = found.err
    if rank is not None:
        covariances = np.einsum("ijr,ikr->ijk", covariances.factors, covariances.factors)
        assert not found.err.std[err == 0].any()
    np.testing.assert_array_equal(found.X[err == 0], x[err == 0])
    assert not covariances[err == 0].any()


def test_one_gaussian_is_that_of_an_optimiser():
    _, x, err, _, _ = draw(80, 2)
    x[::5, 1] = np.nan
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 80)

    def value(p):
        root = np.array([[np.exp(p[2]), 0.0], [p[3], np.exp(p[4])]])
        total = 0.0
        for row, std, s in zip(x, err, weight, strict=True):
            some = np.flatnonzero(np.isfinite(row))
            C = (root @ root.T + np.diag(np.square(std)))[np.ix_(some, some)]
            apart = (row - p[:2])[some]
            total += s * (apart @ np.linalg.solve(C, apart) + np.log(np.linalg.det(2 * np.pi * C)))
        return total / 2 / weight.sum()

    model = Deconvolve(ridge=0, tol=1e-9).fit(x, X_err=err, sample_weight=weight)
    best = minimize(value, np.zeros(5), method="BFGS")
    assert model.log_likelihood_ == pytest.approx(-best.fun, abs=1e-7)
    root = np.array([[np.exp(best.x[2]), 0.0], [best.x[3], np.exp(best.x[4])]])
    np.testing.assert_allclose(model.means_[0], best.x[:2], atol=1e-3)
    np.testing.assert_allclose(model.covariances_[0], root @ root.T, atol=1e-3)
    assert model.score(x, X_err=err, sample_weight=weight) == pytest.approx(model.log_likelihood_, abs=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"n_components": 3}, {"rank": 1, "n_components": 2}, {"scale_errors": True}, {"outliers": True},
     {"n_components": 2, "outliers": True, "scale_errors": True}, {"ridge": 1e-2, "n_components": 3}],
)  # fmt: skip
def test_the_objective_never_falls_and_ends_where_em_stays(options):
    _, x, err, _, _ = draw(400, 3, K=2)
    x[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    model = Deconvolve(**options, tol=1e-5, max_iter=3000).fit(x, X_err=err)
    assert model.converged_
    assert np.diff(model.objective_curve_).min() >= 0
    assert model.lower_bound_ == model.objective_curve_[-1]
    if not options.get("outliers"):
        penalty = sum(np.diag(np.linalg.inv(T)) @ np.square(model.spreads_) for T in model.covariances_)
        assert model.log_likelihood_ - 0.5 * model.ridge * penalty == pytest.approx(model.lower_bound_, abs=1e-10)
    # No small change of the means or of a covariance is better.
    rng = np.random.default_rng(3)
    rows = read(x, err).scaled(model.error_scale_)
    population = model.population_
    for _ in range(10):
        moved = copy.deepcopy(population)
        moved.means[0] += 0.01 * rng.normal(size=3)
        logs = moved.log_likelihood(rows).mean()
        assert logs < model.log_likelihood_


def log_density(population, x, variances, units):
    """Return the log density of one sample by dense matrices. (SciPy takes some of these for singular.)"""
    parts = []
    for w, m, T in zip(population.weights, population.means, population.covariances, strict=True):
        C, r = (T + np.diag(variances)) / np.outer(units, units), (x - m) / units
        squares = r @ np.linalg.solve(C, r) + len(r) * np.log(2 * np.pi)
        parts.append(np.log(w) - 0.5 * (squares + np.linalg.slogdet(C)[1]))
    return np.logaddexp.reduce(parts) - np.log(units).sum()


def check_ascent(model, x, err):
    """Check that the objective never falls, and that the likelihood is that of the covariances found."""
    assert model.converged_
    assert np.diff(model.objective_curve_).min(initial=0.0) >= 0
    variances = np.zeros(x.shape) if err is None else np.square(err)
    logs = [log_density(model.population_, *row, model.spreads_) for row in zip(x, variances, strict=True)]
    np.testing.assert_allclose(model.score_samples(x, err), logs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("part", range(5))
def test_few_factors_of_few_samples(part):
    """Where factors explain a feature to all digits its own variance is at the floor: nothing may cancel there."""
    for seed in range(60 * part, 60 * part + 60):
        rng = np.random.default_rng(seed)
        n, d, K = int(rng.integers(2, 13)), int(rng.integers(1, 9)), int(rng.integers(1, 3))
        x = rng.normal(size=(n, d)) * 10 ** rng.uniform(-3, 3, d)
        sizes = [None, np.full((n, d), 1e-9), rng.uniform(0, 1e-3, (n, d))][rng.integers(3)]
        err = None if sizes is None else sizes * x.std(axis=0)
        rank, ridge = int(rng.integers(1, d + 1)), [1e-6, 0.3][rng.integers(2)]
        if n >= 2 * K:
            check_ascent(Deconvolve(K, rank=rank, ridge=ridge).fit(x, X_err=err), x, err)


@pytest.mark.parametrize(("seed", "n", "d", "rank"), [(79, 3, 8, 8), (107, 3, 6, 6), (212, 2, 5, 4), (61, 6, 6, 5)])
def test_factors_that_explain_all_of_a_feature(seed, n, d, rank):
    for trial in range(seed, seed + 40):
        x = np.random.default_rng(trial).normal(size=(n, d))
        check_ascent(Deconvolve(rank=rank).fit(x), x, None)


def test_posteriors_of_few_factors_keep_small_errors():
    """An error far below the own variance of a feature is not lost in it."""
    population = FactorMixture(
        np.ones(1), np.zeros((1, 2)), np.eye(2)[np.newaxis] + 1.0, np.ones((1, 2, 1)), np.ones((1, 2))
    )
    _, found = population.moments(read(np.ones((1, 2)), np.full((1, 2), 1e-12)))
    variances = np.square(found.std) + np.square(found.factors).sum(axis=2)
    np.testing.assert_allclose(variances, 1e-24, rtol=1e-9)


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("options", [{}, {"outliers": True}, {"scale_errors": True}, {"n_components": 2}])
def test_the_objective_never_falls_with_limits_and_in_refits(options, rank):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(8, 30)), int(rng.integers(1, 5))
        x, err = rng.normal(size=(n, d)), rng.uniform(0.0, 1.0, (n, d))
        sides = rng.choice([-1, 0, 0, 1], size=(n, d))
        sides[:3] = 0
        model = Deconvolve(rank=rank, **options).fit(x, X_err=Limits(err, sides))
        other = model.refit_population(4.0 * x + 3.0, err)
        for found in (model, other):
            assert found.converged_
            assert np.diff(found.objective_curve_).min(initial=0.0) >= 0


def test_a_step_that_lowers_the_likelihood_is_no_convergence(monkeypatch):
    """Were EM wrong, the best point would be kept, and be said not to be a maximum."""
    _, x, err, _, _ = draw(100, 2)
    improved = Em._improved

    def spoilt(self, state, sums, total):
        found = improved(self, state, sums, total)
        return dataclasses.replace(found, mixture=dataclasses.replace(found.mixture, means=found.mixture.means + 0.3))

    monkeypatch.setattr(Em, "_improved", spoilt)
    with pytest.warns(ConvergenceWarning, match="a step of EM lowers the mean log-likelihood, by"):
        model = Deconvolve(tol=1e-9).fit(x, X_err=err)
    assert not model.converged_
    assert np.diff(model.objective_curve_).min(initial=0.0) >= 0
    assert model.score(x, X_err=err) == pytest.approx(model.log_likelihood_)


def test_the_wide_component_of_other_samples_is_theirs():
    _, x, err, _, _ = draw(500, 2)
    model = Deconvolve(outliers=True).fit(x, X_err=err)
    there = model.refit_population(x + 100.0, err)
    np.testing.assert_allclose(there.means_[-1], model.means_[-1] + 100.0, atol=0.1)
    again = Deconvolve(outliers=True).fit(x + 100.0, X_err=err)
    np.testing.assert_allclose(there.covariances_[-1], again.covariances_[-1], rtol=0.2)


def test_parameters_of_many_samples_are_recovered():
    truth, x, err, means, covariances = draw(100_000, 3, K=2)
    x[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    model = Deconvolve(2).fit(x, X_err=err)
    order = np.argsort(model.means_[:, 0])
    np.testing.assert_allclose(model.weights_, 0.5, atol=0.01)
    np.testing.assert_allclose(model.means_[order], means, atol=0.04)
    np.testing.assert_allclose(model.covariances_[order], covariances, atol=0.06)
    found = model.transform(x[:2000], err[:2000])
    apart = found.X - truth[:2000]
    scaled = np.einsum("ij,ijk,ik->i", apart, np.linalg.inv(found.err), apart)
    assert scaled.mean() == pytest.approx(3.0, rel=0.05)  # the covariances are those of the errors that are left
    drawn, labels = model.sample(50_000)
    np.testing.assert_allclose(np.bincount(labels) / 50_000, model.weights_, atol=0.01)
    np.testing.assert_allclose(np.cov(drawn.T), model.population_.covariance, rtol=0.05, atol=0.1)


def test_affine_maps_of_features_change_nothing_else():
    _, x, err, _, _ = draw(400, 3, K=2)
    x[::7, 1] = np.nan
    factors, shift = np.array([1e-4, 1.0, -1e5]), np.array([10.0, -5.0, 3e5])
    one = Deconvolve(2).fit(x, X_err=err)
    other = Deconvolve(2).fit(x * factors + shift, X_err=err * np.abs(factors))
    np.testing.assert_allclose(other.means_, one.means_ * factors + shift, rtol=1e-6)
    np.testing.assert_allclose(other.covariances_, one.covariances_ * np.outer(factors, factors), rtol=1e-4)
    a, b = one.transform(x, err), other.transform(x * factors + shift, err * np.abs(factors))
    np.testing.assert_allclose(b.X, a.X * factors + shift, rtol=1e-5)
    # A mixture of the features: the likelihood has the same maximum.
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3))
    whole = Deconvolve(ridge=0, tol=1e-8).fit(x[~np.isnan(x).any(axis=1)], X_err=err[~np.isnan(x).any(axis=1)])
    values, errors = x[~np.isnan(x).any(axis=1)], err[~np.isnan(x).any(axis=1)]
    noise = np.einsum("ij,jk,jl->ikl", np.square(errors), A, A)
    mapped = Deconvolve(ridge=0, tol=1e-8).fit(values @ A, X_err=noise)
    np.testing.assert_allclose(mapped.covariances_[0], A.T @ whole.covariances_[0] @ A, rtol=1e-3, atol=1e-4)


def test_weights_are_repetitions():
    _, x, err, _, _ = draw(120, 2)
    weight = np.random.default_rng(0).integers(0, 3, 120)
    one = Deconvolve().fit(x, X_err=err, sample_weight=weight.astype(float))
    other = Deconvolve().fit(np.repeat(x, weight, axis=0), X_err=np.repeat(err, weight, axis=0))
    np.testing.assert_allclose(one.means_, other.means_, atol=1e-9)
    np.testing.assert_allclose(one.covariances_, other.covariances_, rtol=1e-9)
    x[weight == 0] = 1e6  # they do not count at all
    third = Deconvolve().fit(x, X_err=err, sample_weight=weight.astype(float))
    np.testing.assert_allclose(third.covariances_, one.covariances_, rtol=1e-9)


def test_scale_errors_estimates_the_factor_on_error_bars():
    rng = np.random.default_rng(0)
    n, scale = 20_000, np.array([0.5, 1.0, 2.0])
    truth = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3))
    err = rng.uniform(0.2, 2.0, size=(n, 3))
    x = truth + scale * err * rng.normal(size=(n, 3))
    model = Deconvolve(scale_errors=True).fit(x, X_err=err)
    np.testing.assert_allclose(model.error_scale_, scale, rtol=0.03)
    right = Deconvolve().fit(x, X_err=err * model.error_scale_)
    np.testing.assert_allclose(model.transform(x[:5], err[:5]).X, right.transform(x[:5], err[:5] * scale).X, atol=0.05)
    # One for all where errors are correlated, and none where they cannot be told from the population.
    cube = np.square(err)[:, :, np.newaxis] * np.eye(3)
    common = Deconvolve(scale_errors=True).fit(truth + 1.5 * err * rng.normal(size=(n, 3)), X_err=cube)
    np.testing.assert_allclose(common.error_scale_, 1.5, rtol=0.02)
    same = Deconvolve(scale_errors=True).fit(x, X_err=np.full((n, 3), 0.3))
    np.testing.assert_array_equal(same.error_scale_, 1.0)


def test_number_of_components_is_that_of_held_out_samples():
    _, x, err, _, _ = draw(1500, 2, K=3)
    assert Deconvolve("auto").fit(x, X_err=err).n_components_ == 3
    _, x, err, _, _ = draw(1500, 2, K=1)
    assert Deconvolve("auto").fit(x, X_err=err).n_components_ == 1


def test_a_wide_component_takes_the_outliers():
    truth, x, err, _, _ = draw(2000, 2)
    x[:40] += 60.0 * np.sign(np.random.default_rng(0).normal(size=(40, 2)))
    plain, model = Deconvolve().fit(x, X_err=err), Deconvolve(outliers=True).fit(x, X_err=err)
    T = np.cov(truth.T)
    assert np.abs(model.covariances_[0] - T).max() < 0.3 < np.abs(plain.covariances_[0] - T).max()
    assert model.n_components_ == 1
    assert model.weights_[-1] == pytest.approx(0.02, abs=0.01)
    assert model.transform(x, err).components.weights[:40, -1].min() > 0.99


@pytest.mark.parametrize("K", [1, 2])
def test_few_factors_are_the_same_population(K):
    """The formulas for F and D against those for any covariance."""
    rng = np.random.default_rng(0)
    F, D = rng.normal(size=(K, 6, 2)), rng.uniform(0.2, 1.0, size=(K, 6))
    T = F @ F.transpose(0, 2, 1) + np.stack([np.diag(own) for own in D])
    weights, means = np.full(K, 1 / K), rng.normal(size=(K, 6))
    few, full = FactorMixture(weights, means, T, F, D), Mixture(weights, means, T)
    x, err = rng.normal(size=(40, 6)), rng.uniform(0.0, 1.0, size=(40, 6))
    x[rng.random(x.shape) < 0.3] = np.nan
    rows = read(x, err)
    np.testing.assert_allclose(few.log_likelihood(rows), full.log_likelihood(rows), rtol=1e-10)
    (m, V), (expected, covariances) = few.moments(rows), full.moments(rows)
    np.testing.assert_allclose(m, expected, atol=1e-10)
    assert isinstance(V, LowRank)
    dense = V.factors @ V.factors.transpose(0, 2, 1) + np.square(V.std)[:, :, np.newaxis] * np.eye(6)
    np.testing.assert_allclose(dense, covariances, atol=1e-10)
    W, b = rng.normal(size=(3, 6)), rng.normal(size=3)
    for found, known in zip(few.scores(rows, W, b), full.scores(rows, W, b), strict=True):
        np.testing.assert_allclose(found, known, atol=1e-10)
    np.testing.assert_allclose(few.precision_diagonal(0), np.diag(np.linalg.inv(T[0])))


def test_fits_of_few_factors_agree():
    """Errors as covariances take the way of any covariance."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 6)) + 0.7 * rng.normal(size=(400, 6))
    err = rng.uniform(0.1, 0.8, size=truth.shape)
    x = truth + err * rng.normal(size=truth.shape)
    x[::6, 1] = np.nan
    options = {"rank": 2, "tol": 1e-6, "max_iter": 5000, "ridge": 1e-3}
    one = Deconvolve(**options).fit(x, X_err=err)
    other = Deconvolve(**options).fit(x, X_err=np.square(err)[:, :, np.newaxis] * np.eye(6))
    assert one.lower_bound_ == pytest.approx(other.lower_bound_, abs=1e-5)
    np.testing.assert_allclose(one.covariances_, other.covariances_, atol=0.02)
    wrong = Deconvolve(**options, scale_errors=True).fit(x, X_err=err)
    assert wrong.lower_bound_ >= one.lower_bound_ - 1e-6
    np.testing.assert_allclose(one.reliability(x, err), other.reliability(x, err), atol=0.01)


def test_a_population_of_few_factors():
    rng = np.random.default_rng(0)
    F, D = rng.normal(size=(12, 2)), rng.uniform(0.5, 1.0, 12)
    n = 20_000
    truth = rng.normal(size=(n, 2)) @ F.T + np.sqrt(D) * rng.normal(size=(n, 12))
    err = rng.uniform(0.2, 1.0, size=(n, 12))
    x = truth + err * rng.normal(size=err.shape)
    model = Deconvolve(rank=2).fit(x, X_err=err)
    np.testing.assert_allclose(model.covariances_[0], F @ F.T + np.diag(D), atol=0.15)
    full = Deconvolve(rank=12, tol=1e-4).fit(x[:500], X_err=err[:500])
    assert full.log_likelihood_ == pytest.approx(
        Deconvolve(tol=1e-4).fit(x[:500], X_err=err[:500]).log_likelihood_, abs=0.02
    )


def test_tables_precision_and_names():
    _, x, err, _, _ = draw(80, 2)
    frame = pd.DataFrame(x, columns=["a", "b"], index=np.arange(80) + 5)
    errors = pd.DataFrame(err, columns=["a", "b"], index=frame.index)
    found = Deconvolve().fit_transform(frame, X_err=errors)
    assert list(found.X.columns) == ["a", "b"]
    assert found.X.index.equals(frame.index)
    model = Deconvolve().fit(frame, X_err=errors)
    assert list(model.get_feature_names_out()) == ["a", "b"]
    np.testing.assert_array_equal(found.X.to_numpy(), Deconvolve().fit_transform(x, X_err=err).X)
    with pytest.raises(ValueError, match="must have the index of X"):
        model.transform(frame, errors.iloc[::-1])
    single = Deconvolve().fit_transform(x.astype(np.float32), X_err=err)
    assert single.X.dtype == np.float32
    np.testing.assert_allclose(single.X, found.X, atol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(frame, errors).X, found.X)
    mixed = Deconvolve(2).fit_transform(x, X_err=err)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mixed)).components.weights, mixed.components.weights)
    assert clone(Deconvolve(3, rank=2)).get_params() == Deconvolve(3, rank=2).get_params()


def test_threads_change_nothing():
    _, x, err, _, _ = draw(40_000, 6)
    one, two = (Deconvolve(n_jobs=jobs, max_iter=30).fit(x, X_err=err) for jobs in (1, 2))
    np.testing.assert_array_equal(one.covariances_, two.covariances_)
    np.testing.assert_array_equal(one.transform(x, err).X, two.transform(x, err).X)


def test_steps_of_a_pipeline():
    truth, x, err, _, _ = draw(400, 3, K=2)
    y = truth.sum(axis=1) > 6
    x[::9, 0] = np.nan
    pipe = make_pipeline(WithErrors(StandardScaler()), Deconvolve(2), GuruClassifier(sigma=0.1))
    data = Measured(x, np.where(np.isnan(x), np.inf, err))
    pipe.fit(data, y)
    scaled = WithErrors(StandardScaler()).fit_transform(data)
    by_hand = Deconvolve(2).fit_transform(scaled)
    direct = GuruClassifier(sigma=0.1).fit(by_hand.X, y, X_err=by_hand.err)
    np.testing.assert_allclose(pipe[-1].coef_, direct.coef_, rtol=1e-6)
    np.testing.assert_array_equal(pipe.predict(data), direct.predict(by_hand))
    assert np.mean(pipe.predict(data) == y) > 0.9


def test_the_population_of_other_samples():
    _, x, err, _, _ = draw(500, 2)
    model = Deconvolve().fit(x, X_err=err)
    before = model.means_.copy()
    other = model.refit_population(x + 3.0, err)
    np.testing.assert_array_equal(model.means_, before)
    np.testing.assert_allclose(other.means_, before + 3.0, atol=1e-2)
    assert isinstance(other, Deconvolve)
    assert Deconvolve(2, outliers=True).fit(x, X_err=err).refit_population(x[:300], err[:300]).n_components_ == 2


def test_reliability_is_one_minus_the_fraction_of_noise():
    rng = np.random.default_rng(0)
    n, e = 100_000, np.array([0.5, 1.0, 0.0])
    truth = rng.normal(size=(n, 3)) * [1.0, 2.0, 1.0]
    x = truth + e * rng.normal(size=(n, 3))
    expected = np.square([1.0, 2.0, 1.0]) / (np.square([1.0, 2.0, 1.0]) + np.square(e))
    np.testing.assert_allclose(reliability(x, np.broadcast_to(e, x.shape)), expected, atol=0.01)
    u = np.array([1.0, -1.0, 0.0])
    assert reliability(x, np.broadcast_to(e, x.shape), direction=u) == pytest.approx(5 / 6.25, abs=0.01)
    model = Deconvolve().fit(x, X_err=np.broadcast_to(e, x.shape))
    np.testing.assert_allclose(model.reliability(x, np.broadcast_to(e, x.shape)), expected, atol=0.01)
    along = model.reliability(x, np.broadcast_to(e, x.shape), direction=u)
    assert along == pytest.approx(1 - (0.2 + 0.8) / 5, abs=0.01)
    assert model.reliability(x[:3], np.full((3, 3), np.inf)) == pytest.approx(0.0, abs=1e-12)


def test_predictive_of_errors_detects_errors_that_depend_on_the_class():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1000)
    err = rng.lognormal(size=(1000, 3))
    assert predictive_of_errors(err, y) == pytest.approx(0.5, abs=0.06)
    err[:, 1] *= np.where(y == 1, 3.0, 1.0)
    # Two normal distributions whose means are log 3 apart.
    assert predictive_of_errors(err, y) == pytest.approx(norm.cdf(np.log(3) / np.sqrt(2)), abs=0.03)
    err[:, 0] = np.where(y == 1, np.inf, 1.0)
    assert predictive_of_errors(err, y) > 0.99
    assert predictive_of_errors(np.ones(1000), y) == 0.5
    # Two equal sides are one error; a limit is a value that was not measured.
    err = rng.lognormal(size=(1000, 3))
    assert predictive_of_errors(Asymmetric(err, err), y) == pytest.approx(predictive_of_errors(err, y), abs=1e-9)
    assert predictive_of_errors(Asymmetric(err[:, 0], err[:, 0]), y) == pytest.approx(
        predictive_of_errors(err[:, 0], y), abs=1e-9
    )
    limits = np.zeros((1000, 3))
    limits[:, 0] = np.where(y == 1, -1, 0)
    assert predictive_of_errors(Limits(err, limits), y) > 0.99
    assert predictive_of_errors(Limits(Asymmetric(err, err), limits), y) > 0.99
    assert predictive_of_errors(rng.lognormal(size=600), rng.integers(3, size=600)) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("X", "X_err", "options", "message"),
    [
        (np.ones((5, 2)), -np.ones((5, 2)), {}, "nonnegative"),
        (np.ones((5, 2)), np.full((5, 2), np.nan), {}, "X_err has NaN"),
        (np.ones((5, 2)), np.ones((5, 3)), {}, "got shape"),
        (np.ones((5, 2)), np.ones(4), {}, "got shape"),
        (np.full((5, 2), np.inf), np.ones((5, 2)), {}, "infinity"),
        (np.array([[1.0, np.nan]] * 5), np.ones((5, 2)), {}, "feature 1 was measured for no sample"),
        (np.ones((5, 2)), None, {"n_components": 3}, "needs at least 6 samples"),
        (np.ones((5, 2)), None, {"n_components": "many"}, "'auto'"),
        (np.ones((5, 2)), None, {"rank": 3}, "at most the number of features"),
        (np.ones((5, 2)), np.array([[[1.0, 2.0], [2.0, 1.0]]] * 5), {}, "positive semidefinite"),
        (np.ones((5, 2)), np.array([[[1.0, 2.0], [0.0, 9.0]]] * 5), {}, "symmetric"),
        (np.ones((5, 2)), LowRank(np.ones((5, 3, 1))), {}, "factors must have shape"),
        (np.arange(10.0).reshape(5, 2), None, {"ridge": 0}, "singular"),
    ],
)
def test_bad_input_is_refused(X, X_err, options, message):
    model = Deconvolve(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, X_err=X_err)
    with pytest.raises(NotFittedError):
        model.transform(X)


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_a_constant_feature_has_the_length_of_its_least_error(constant, rank):
    rng = np.random.default_rng(0)
    x, err = rng.normal(size=(40, 3)), rng.uniform(0.2, 1.0, size=(40, 3))
    x[:, 0], err[0, 0] = constant, 1e6
    unit = np.array([1e-5, 10.0, 1.0])
    one, other = Deconvolve(2, rank=rank).fit(x, X_err=err), Deconvolve(2, rank=rank).fit(x * unit, X_err=err * unit)
    assert one.spreads_[0] == pytest.approx(err[:, 0].min())
    np.testing.assert_allclose(other.spreads_, one.spreads_ * unit)
    np.testing.assert_allclose(other.transform(x * unit, err * unit).X / unit, one.transform(x, err).X, atol=1e-6)


def test_a_component_that_changes_nothing_is_not_added():
    """Two equal halves gain rounding alone, and its standard error is rounding, too."""
    rng = np.random.default_rng(5)
    n = int(rng.integers(12, 60))
    y = np.arange(n) % 2
    x = rng.normal(size=(n, 3)) + y[:, np.newaxis]
    x[:, 1] = -1e-3
    err = rng.uniform(0.1, 1.0, size=x.shape) * [1, 0, 1]
    for unit in (1.0, 2.0, 1e4):
        clf = PopulationClassifier().fit(x * [1, unit, 1], y, X_err=err)
        assert [population.n_components_ for population in clf.populations_] == [1, 1]


def test_degenerate_populations_have_a_ridge():
    x = np.column_stack([np.full(50, 7.0), np.arange(50.0), 2 * np.arange(50.0)])
    model = Deconvolve(ridge=1e-6).fit(x)
    assert model.covariances_[0, 0, 0] == pytest.approx(1e-6 * 49.0)
    found = model.transform(np.array([[np.nan, 3.0, np.nan]]))
    np.testing.assert_allclose(found.X, [[7.0, 3.0, 6.0]], rtol=1e-3)
    with pytest.raises(TypeError, match="dense data is required"):
        model.transform(sp.csr_array(x))
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        Deconvolve(2, max_iter=2, n_init=1).fit(*draw(100, 2)[1:2], X_err=draw(100, 2)[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Deconvolve(2).fit(x)


# They need an array from transform; Measured raises, because an array would lose the errors.
NEED_ARRAYS = [
    "check_sample_weight_equivalence_on_dense_data", "check_pipeline_consistency", "check_estimators_pickle",
    "check_transformer_data_not_an_array", "check_transformer_general", "check_transformer_preserve_dtypes",
    "check_methods_sample_order_invariance", "check_methods_subset_invariance", "check_fit_idempotent",
    "check_array_api_input",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of checks that are skipped
def test_scikit_learn():
    check_estimator(Deconvolve(), expected_failed_checks=dict.fromkeys(NEED_ARRAYS, "transform returns Measured"))


def test_searches_and_routing():
    """A search over the number of components by the likelihood of held-out samples, with and without routing."""
    _, x, err, _, _ = draw(300, 2, K=3)
    grid, cv = {"n_components": [1, 3]}, KFold(3, shuffle=True, random_state=0)
    carried = GridSearchCV(Deconvolve(), grid, cv=cv, refit=False).fit(Measured(x, err))
    with config_context(enable_metadata_routing=True):
        routed = GridSearchCV(Deconvolve(), grid, cv=cv, refit=False).fit(x, X_err=err)
    by_hand = [
        np.mean([Deconvolve(K).fit(x[a], X_err=err[a]).score(x[b], X_err=err[b]) for a, b in cv.split(x)])
        for K in (1, 3)
    ]
    np.testing.assert_allclose(carried.cv_results_["mean_test_score"], by_hand)
    np.testing.assert_allclose(routed.cv_results_["mean_test_score"], by_hand)
    assert by_hand[1] > by_hand[0]


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 9])
def test_compiled_factors_match_numpy(d, gaps, correlated):
    rng = np.random.default_rng(d)
    n = 21  # no multiple of the samples that are taken together
    root = rng.standard_normal((d, d))
    T = root @ root.T + 0.1 * np.eye(d)
    noise = rng.uniform(0.1, 2.0, (n, d))
    full = np.einsum("ij,jk->ijk", noise, np.eye(d))
    if correlated:
        full = full + 0.3 * np.einsum("ij,ik->ijk", noise, noise)
        noise = full
    known = rng.uniform(size=(n, d)) < 0.6 if gaps else np.ones((n, d), dtype=bool)
    r, q = rng.standard_normal((n, d)), rng.uniform(size=n)
    logs, solved, J = _binding.whiten(T, noise, r, known.astype(np.uint8) if gaps else None)
    P = np.zeros((n, d, d))
    for i in range(n):
        some = np.ix_(known[i], known[i])
        P[i][some] = np.linalg.inv((T + full[i])[some])
        determinant = np.linalg.slogdet((T + full[i])[some])[1]
        assert logs[i] == pytest.approx(-0.5 * (r[i] @ P[i] @ r[i] + determinant), rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(solved, np.einsum("ijk,ik->ij", P, r), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(_binding.precisions(J, n, d), P, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(_binding.add_precisions(J, q, d), np.einsum("i,ijk->jk", q, P), rtol=1e-9, atol=1e-10)


def test_compiled_factors_of_a_singular_covariance():
    flat = np.ones((2, 2))
    assert _binding.whiten(flat, np.zeros((3, 2)), np.zeros((3, 2)), None) is None
    assert _binding.whiten(np.full((2, 2), np.nan), np.ones((3, 2)), np.zeros((3, 2)), None) is None


def test_a_feature_of_two_values_with_errors_of_their_own():
    """The better half of the values may all be the same but for rounding: that does not make the others useless."""
    rng = np.random.default_rng(4)
    values = np.where(rng.random(200) < 0.7, 0.1, 0.9)
    X = np.column_stack([values, rng.standard_normal(200)])
    err = np.column_stack([np.where(values < 0.5, 0.01, 0.05), np.full(200, 0.2)])
    weights = rng.uniform(0.5, 2.0, 200)
    best, own = values[values < 0.5], weights[values < 0.5] / weights.max()
    assert own @ best / own.sum() != 0.1  # a mean of equal values that is rounded
    found = Deconvolve().fit(X, X_err=err, sample_weight=weights)
    mean = np.average(values, weights=weights)
    np.testing.assert_allclose(found.spreads_[0], np.sqrt(np.average((values - mean) ** 2, weights=weights)))
    np.testing.assert_allclose(np.sqrt(found.covariances_[0, 0, 0]), found.spreads_[0], rtol=0.02)


def test_values_whose_squares_overflow_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.arange(40) % 2
    far = np.where(np.arange(40)[:, np.newaxis] == 3, 1e200, X)
    for call in (
        lambda: Deconvolve().fit(far, X_err=0.1),
        lambda: Deconvolve().fit(X, X_err=0.1).transform(far, X_err=0.1),
        lambda: PopulationClassifier(1).fit(X, y, X_err=0.1).predict_proba(far, X_err=0.1),
    ):
        with pytest.raises(ValueError, match=r"X must hold numbers whose squares do not overflow; got 1e\+200"):
            call()
