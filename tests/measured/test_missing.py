"""Values not measured, or only in part: gaps, limits, and error bars with two sides."""

import astropy.units as u
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from astropy.table import MaskedColumn, QTable, Table
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from support.error_bars import conditional
from uncertainties import unumpy

from gaussguru import ErrorBarClassifier, GuruClassifier, GuruClassifierCV, PopulationClassifier
from gaussguru._errors.checks import check_errors
from gaussguru._errors.given import with_more
from gaussguru._errors.samples import split_errors
from gaussguru._populations.em import population_of
from gaussguru._populations.mixtures import Mixture
from gaussguru._populations.readings import read
from gaussguru.errors import Asymmetric, Limits, LowRank, Measured, Population
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors, errors_from_frame


def samples(n=300, d=4, seed=0, n_classes=2, part=0.2):
    """Return correlated features with gaps, their errors, and labels."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) / 2 + np.eye(d)
    truth = rng.normal(size=(n, d)) @ root
    err = rng.uniform(0.0, 0.6, size=(n, d)) * (rng.random((n, d)) > 0.2)
    X = truth + err * rng.normal(size=(n, d))
    direction = truth @ np.ones(d)
    y = np.searchsorted(np.quantile(direction, np.arange(1, n_classes) / n_classes), direction)
    X[rng.random((n, d)) < part] = np.nan
    return X, err, y


def covariances(X_err, X):
    errors = check_errors(X_err, X)
    return np.array([errors.covariance(i) for i in range(len(X))])


@pytest.mark.parametrize("form", ["a value", "a sample", "covariances", "low rank", "frame"])
def test_gaps_are_filled_by_conditional_moments(form):
    X, err, _ = samples(60)
    rng = np.random.default_rng(1)
    population = Population(rng.normal(size=4), np.ones(4), np.cov(rng.normal(size=(4, 9))))
    noise = np.square(err)[:, :, np.newaxis] * np.eye(4)
    given = err
    if form == "a sample":
        given = err[:, 0]
        noise = np.square(given)[:, np.newaxis, np.newaxis] * np.eye(4)
    elif form in ("covariances", "low rank"):
        factors = rng.normal(size=(60, 4, 2)) / 3
        noise = noise + factors @ factors.transpose(0, 2, 1)
        given = noise if form == "covariances" else LowRank(factors, err)
    frame = pd.DataFrame(X, columns=list("abcd")) if form == "frame" else X
    values, errors = population.fill(*split_errors(frame, given))
    expected, covariance = conditional(population, X, noise)
    np.testing.assert_allclose(values, expected, atol=1e-10)
    np.testing.assert_allclose(covariances(errors, expected), covariance, atol=1e-10)
    assert type(values) is type(frame)
    # Without correlations the variances, and the errors of measured values, are the same.
    values, errors = population.fill(*split_errors(frame, given), correlated=False)
    np.testing.assert_allclose(values, expected, atol=1e-10)
    own = covariances(errors, expected)
    np.testing.assert_allclose(np.einsum("ijj->ij", own), np.einsum("ijj->ij", covariance), atol=1e-10)
    gone = np.isnan(X)
    np.testing.assert_allclose(own[gone[:, :, np.newaxis] & ~gone[:, np.newaxis, :]], 0.0, atol=1e-12)


def test_the_population_is_that_of_the_truth():
    X, err, _ = samples(20_000)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4)) / 2 + np.eye(4)
    found = population_of(*split_errors(X, err))
    np.testing.assert_allclose(found.means, 0.0, atol=0.05)
    np.testing.assert_allclose(found.covariance, root.T @ root, atol=0.12)
    whole = population_of(np.where(np.isnan(X), 0.0, X)[:, :0:-1], np.ones(len(X)))
    assert whole.covariance.shape == (3, 3)


def test_many_features_are_taken_in_pairs():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(60, 2))
    X = rng.normal(size=(1500, 2)) @ F.T + 0.5 * rng.normal(size=(1500, 60))
    gone = rng.random(X.shape) < 0.3
    found = population_of(*split_errors(np.where(gone, np.nan, X), np.zeros(X.shape)))
    filled, _ = found.fill(*split_errors(np.where(gone, np.nan, X), np.zeros(X.shape)))
    rest = (filled - X)[gone]
    assert np.mean(np.square(rest)) < 0.35  # 0.25 is the variance that no other feature explains, of 2.3 on average


@pytest.mark.parametrize("n_classes", [2, 3])
def test_fits_predictions_and_certificates_see_the_same(n_classes):
    X, err, y = samples(n_classes=n_classes)
    lost = np.where(np.isnan(X), np.inf, err)
    clf = GuruClassifier(0.2).fit(X, y, X_err=err)
    values, noise = conditional(clf.population_, X, err)
    by_hand = GuruClassifier(0.2).fit(values, y, X_err=noise)
    np.testing.assert_allclose(clf.coef_, by_hand.coef_, rtol=1e-5, atol=1e-8)
    for errors in (err, lost):
        np.testing.assert_allclose(clf.decision_function(X, X_err=errors), clf.decision_function(values), atol=1e-9)
        np.testing.assert_array_equal(clf.predict(X, X_err=errors), clf.predict(values))
        np.testing.assert_allclose(
            clf.predict_proba(X, X_err=errors), clf.predict_proba(values, X_err=noise), atol=1e-7
        )
        np.testing.assert_array_equal(clf.predict(Measured(X, errors)), clf.predict(values))
    one, other = clf.certificate(X, y, X_err=err), clf.certificate(values, y, X_err=noise)
    assert one.primal == pytest.approx(other.primal, rel=1e-7)
    assert 0 <= one.gap <= 1e-5 * len(y)
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert np.array_equal(clf.predict(X, X_err=err), GuruClassifier(0.2).fit(frame, y, X_err=err).predict(frame, err))
    single = GuruClassifier(0.2).fit(X.astype(np.float32), y, X_err=err)
    np.testing.assert_allclose(single.coef_, clf.coef_, rtol=1e-3, atol=1e-4)


def test_gaps_after_a_fit_without_any():
    X, err, y = samples(2000, part=0.0)
    clf = GuruClassifier(0.2).fit(X, y, X_err=err)
    rng = np.random.default_rng(0)
    gone = rng.random(X.shape) < 0.3
    values, _ = conditional(clf.population_, np.where(gone, np.nan, X), err)
    np.testing.assert_array_equal(clf.predict(np.where(gone, np.nan, X), X_err=err), clf.predict(values))
    assert np.mean(clf.predict(values) == y) > np.mean(clf.predict(np.where(gone, X.mean(axis=0), X)) == y)
    # The values of a covariance that was estimated from noisy samples.
    np.testing.assert_allclose(
        clf.population_.covariance, np.cov(X.T) - np.diag(np.square(err).mean(axis=0)), atol=0.01
    )


def test_samples_without_weight_do_not_count():
    X, err, y = samples()
    weight = np.ones(len(y))
    weight[::3] = 0.0
    clf = GuruClassifier(0.2).fit(X, y, weight, X_err=err)
    few = GuruClassifier(0.2).fit(X[weight > 0], y[weight > 0], X_err=err[weight > 0])
    np.testing.assert_allclose(clf.population_.covariance, few.population_.covariance, rtol=1e-6)
    np.testing.assert_allclose(clf.coef_, few.coef_, rtol=1e-5)


def test_other_solvers_and_searches():
    X, err, y = samples()
    sgd = GuruClassifier(0.3, solver="sgd", max_iter=50, tol=1e-3).fit(X, y, X_err=err)
    assert np.mean(sgd.predict(X, X_err=err) == y) > 0.8
    search = GuruClassifierCV([0.1, 0.5], cv=3).fit(X, y, X_err=err)
    np.testing.assert_array_equal(search.predict(X, X_err=err), search.predict(Measured(X, err)))
    scaler = WithErrors(StandardScaler()).fit(X, X_err=err)
    assert np.isinf(scaler.transform(X, err).err).sum() == np.isnan(X).sum()


def test_messages_name_the_remedy():
    X, err, y = samples()
    clf = GuruClassifier(0.2).fit(X, y, X_err=err)
    for method in (clf.predict, clf.decision_function, clf.predict_proba):
        with pytest.raises(ValueError, match=r"(?s)X contains NaN.*needs X_err, the error bars of the measured values"):
            method(X)
    with pytest.raises(ValueError, match="X contains NaN"):
        clf.fit(X, y)
    exact = GuruClassifier(0.2).fit(np.nan_to_num(X), y)
    with pytest.raises(ValueError, match="it was fitted without X_err"):
        exact.predict(X, X_err=err)
    with pytest.raises(ValueError, match="feature 2 was measured for no sample"):
        GuruClassifier().fit(np.where(np.arange(4) == 2, np.nan, X), y, X_err=err)
    with pytest.raises(ValueError, match="X_err has NaN"):
        clf.predict_proba(X, X_err=err * np.nan)
    with pytest.raises(ValueError, match="nonnegative"):
        clf.fit(X, y, X_err=-err)
    with pytest.raises(ValueError, match="dense X"):
        clf.predict(sp.csr_array(np.nan_to_num(X)), X_err=np.where(np.isnan(X), np.inf, err))
    order = np.random.default_rng(0).permutation(len(y))
    frame, errors = pd.DataFrame(X), pd.DataFrame(err).iloc[order]
    with pytest.raises(ValueError, match="X_err must have the index of X"):
        clf.fit(frame, y, X_err=errors)


# --- error bars with two sides ------------------------------------------------------------------------------


def test_two_sides_have_the_moments_of_a_split_normal():
    rng = np.random.default_rng(0)
    n, lower, upper = 1_000_000, 0.5, 2.0
    above = rng.random(n) < upper / (lower + upper)
    half = np.abs(rng.normal(size=n))
    draws = 3.0 + np.where(above, upper * half, -lower * half)
    X, err = Asymmetric(np.array([[lower]]), np.array([[upper]])).symmetric(np.array([[3.0]]))
    assert X[0, 0] == pytest.approx(draws.mean(), abs=0.005)
    assert err[0, 0] == pytest.approx(draws.std(), abs=0.005)
    X, err = Asymmetric([[0.3, np.inf]], [[0.3, 1.0]]).symmetric([[1.0, 2.0]])
    np.testing.assert_allclose(X, [[1.0, 2.0]])
    np.testing.assert_allclose(err, [[0.3, np.inf]])


def test_two_sides_are_taken_wherever_errors_are():
    X, err, y = samples(part=0.0)
    sides = Asymmetric(0.5 * err, 1.5 * err)
    values, std = sides.symmetric(X)
    for given in (X, pd.DataFrame(X)):
        one = GuruClassifier(0.2).fit(given, y, X_err=sides)
        np.testing.assert_array_equal(one.coef_, GuruClassifier(0.2).fit(values, y, X_err=std).coef_)
    found = Deconvolve().fit_transform(Measured(X, sides))
    np.testing.assert_array_equal(found.X, Deconvolve().fit_transform(values, X_err=std).X)
    part = Measured(X, sides)[5:9]
    np.testing.assert_array_equal(part.err.upper, 1.5 * err[5:9])
    with pytest.raises(ValueError, match="nonnegative"):
        Asymmetric(-err, err).symmetric(X)
    with pytest.raises(ValueError, match="both sides of X_err must have shape"):
        Asymmetric(err[:5], err).symmetric(X)
    gone, one_sided = X.copy(), err.copy()
    one_sided[3, 1] = gone[3, 1] = np.nan
    with pytest.raises(ValueError, match="X_err has NaN: every value needs an error bar"):
        Asymmetric(err, one_sided).symmetric(X)
    assert np.isinf(Asymmetric(err, one_sided).symmetric(gone)[1][3, 1])


# --- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", [0.0, 0.7])
@pytest.mark.parametrize("sides", [(-1, 0, 0), (0, 1, 0), (-1, 1, 0), (-1, -1, 1)])
def test_limits_are_cut_off_distributions(sides, r):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3)) / 2 + np.eye(3)
    mean, T, std = np.array([1.0, -1.0, 0.5]), root @ root.T, np.array([0.5, 0.4, 0.8])
    population = Mixture(np.ones(1), mean[np.newaxis], T[np.newaxis])
    x = np.array([[0.5, -0.4, 0.0]])
    limits = np.array([sides])
    errors = np.where(limits == 0, std, r)
    found, covariance = population.moments(read(x, Limits(errors, limits)))
    draws = mean + rng.normal(size=(400_000, 3)) @ root.T
    weight = np.ones(len(draws))
    for j, side in enumerate(sides):
        if side == 0:
            weight *= norm.pdf(x[0, j], draws[:, j], std[j])
        else:
            apart = side * (draws[:, j] - x[0, j])
            weight *= norm.cdf(apart / r) if r else apart > 0
    share = weight / weight.sum()
    centre = share @ draws
    apart = draws - centre
    several = np.count_nonzero(sides) > 1  # then the truncated posterior is approximated by a Gaussian
    np.testing.assert_allclose(found[0], centre, atol=0.03 if several else 0.015)
    np.testing.assert_allclose(covariance[0], (apart * share[:, np.newaxis]).T @ apart, atol=0.05 if several else 0.02)
    log_density = population.log_likelihood(read(x, Limits(errors, limits)))[0]
    assert log_density == pytest.approx(np.log(weight.mean()), abs=0.06 if several else 0.015)


def integrated(mean, T, sides, bounds, r):
    """Return log probability, mean and covariance of two features within limits: Gauss and Legendre's rule in strips.

    The first feature is integrated over strips between its ends and its limit; the second, given the first, has the
    moments of a truncated normal distribution, or of one seen through an error by strips of its own.
    """
    nodes, weights = np.polynomial.legendre.leggauss(60)

    def rule(centre, spread, side, bound, error):
        """Return points and weights of a feature, with the probability of its limit among the weights."""
        low, high = centre - 12 * spread, centre + 12 * spread
        if side and not error:
            low, high = (max(low, bound), max(high, bound + spread)) if side > 0 else (min(low, bound - spread), bound)
        edges = np.unique(np.clip([*np.linspace(low, high, 41), *(bound + error * np.linspace(-9, 9, 19))], low, high))
        half = np.diff(edges)[:, np.newaxis] / 2
        x, w = (edges[:-1, np.newaxis] + half * (1 + nodes)).ravel(), (half * weights).ravel()
        return x, w * (norm.cdf(side * (x - bound) / error) if side and error else 1.0)

    x, w = rule(mean[0], np.sqrt(T[0, 0]), sides[0], bounds[0], r[0])
    w = w * norm.pdf(x, mean[0], np.sqrt(T[0, 0]))
    spread = np.sqrt(T[1, 1] - T[0, 1] ** 2 / T[0, 0])
    points = []
    for a, share in zip(x[w > 1e-30 * w.max()], w[w > 1e-30 * w.max()], strict=True):
        centre = mean[1] + T[0, 1] / T[0, 0] * (a - mean[0])
        b, own = rule(centre, spread, sides[1], bounds[1], r[1])
        own = own * norm.pdf(b, centre, spread) * share
        points.append((own.sum(), own.sum() * a, own @ b, own.sum() * a * a, a * (own @ b), own @ b**2))
    total, first, second, *squares = np.sum(points, axis=0)
    centre = np.array([first, second]) / total
    covariance = np.array([[squares[0], squares[1]], [squares[1], squares[2]]]) / total - np.outer(centre, centre)
    return np.log(total), centre, covariance


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.7])
@pytest.mark.parametrize(
    ("sides", "bounds", "r"),
    [
        ((-1, 0), (1.0, 0.0), (0.0, 0.0)),
        ((0, 1), (1.0, -2.0), (0.0, 0.6)),
        ((1, 0), (7.0, 0.0), (0.0, 0.0)),
        ((-1, -1), (1.0, 0.0), (0.0, 0.0)),
        ((1, -1), (1.0, 0.0), (0.3, 0.5)),
        ((1, 1), (3.0, 0.5), (0.0, 0.5)),
    ],
)
def test_one_and_two_limits_are_integrals(rho, sides, bounds, r):
    """One limit is exact; of two a Gaussian stands for each, which is exact where features are independent."""
    mean, T = np.array([0.5, -1.0]), np.array([[4.0, 2.0 * rho], [2.0 * rho, 1.0]])
    population = Mixture(np.ones(1), mean[np.newaxis], T[np.newaxis])
    x = np.where(np.equal(sides, 0), np.nan, bounds)[np.newaxis]
    rows = read(x, Limits(np.array([r]), np.array([sides])))
    log_chance, centre, covariance = integrated(mean, T, sides, bounds, r)
    found, around = population.moments(rows)
    is_exact = np.count_nonzero(sides) == 1 or rho == 0
    spread = np.sqrt(np.diag(covariance))
    assert population.log_likelihood(rows)[0] == pytest.approx(log_chance, abs=1e-8 if is_exact else 0.025)
    np.testing.assert_allclose((found[0] - centre) / spread, 0.0, atol=1e-7 if is_exact else 0.02)
    np.testing.assert_allclose(
        (around[0] - covariance) / np.outer(spread, spread), 0.0, atol=1e-7 if is_exact else 0.07
    )


def on_a_grid(population, bound, side, r, x, e):
    """Return the log probability of a limit beside a measured value, and mean and covariance of the truth, by sums."""
    axes = [np.linspace(low, high, 501) for low, high in ((-14.0, 14.0), (-12.0, 12.0))]
    truth = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    parts = zip(population.weights, population.means, population.covariances, strict=True)
    density = sum(pi * multivariate_normal.pdf(truth, mu, T) for pi, mu, T in parts)
    density = density * norm.cdf(side * (truth[:, :, 0] - bound) / r) * norm.pdf(x, truth[:, :, 1], e)
    total = density.sum()
    mean = np.einsum("ij,ijk->k", density, truth) / total
    away = truth - mean
    area = np.prod([axis[1] - axis[0] for axis in axes])
    return np.log(total * area), mean, np.einsum("ij,ijk,ijl->kl", density, away, away) / total


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(("bound", "r"), [(-1.0, 0.3), (2.0, 1.0)])
def test_a_limit_beside_a_measured_value_under_a_mixture(side, bound, r):
    """Posteriors, likelihoods and the probabilities of classes, against sums over a grid."""
    covariances = np.array([[[2.0, 0.9], [0.9, 1.0]], [[1.0, -0.5], [-0.5, 1.5]]])
    population = Mixture(np.array([0.3, 0.7]), np.array([[-1.5, 0.5], [2.0, -1.0]]), covariances)
    x, errors = np.array([[bound, 0.4]]), Limits(np.array([[r, 0.6]]), np.array([[side, 0]]))
    log_chance, mean, covariance = on_a_grid(population, bound, side, r, 0.4, 0.6)
    rows = read(x, errors)
    found, around = population.moments(rows)
    assert population.log_likelihood(rows)[0] == pytest.approx(log_chance, abs=1e-6)
    np.testing.assert_allclose(found[0], mean, atol=1e-5)
    np.testing.assert_allclose(around[0], covariance, atol=1e-5)
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    clf = PopulationClassifier(2).fit(
        rng.normal(size=(80, 2)) * (1 + y[:, np.newaxis]) + y[:, np.newaxis], y, X_err=0.3
    )
    likelihoods = [np.exp(on_a_grid(each.population_, bound, side, r, 0.4, 0.6)[0]) for each in clf.populations_]
    chances = np.array(likelihoods) + np.mean(likelihoods) / 40  # one sample of all classes
    np.testing.assert_allclose(clf.predict_proba(x, errors)[0], chances / chances.sum(), atol=1e-5)


@pytest.mark.parametrize("d", [3, 5])
def test_many_limits_match_draws(d):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d)) / 2 + np.eye(d)
    mean, bounds, sides = rng.normal(size=d), rng.normal(size=d), rng.choice([-1, 1], size=d)
    r = np.where(np.arange(d) % 2, 0.5, 0.0)
    population = Mixture(np.ones(1), mean[np.newaxis], (root @ root.T)[np.newaxis])
    rows = read(bounds[np.newaxis], Limits(r[np.newaxis], sides[np.newaxis]))
    truth = mean + rng.normal(size=(2_000_000, d)) @ root.T
    inside = truth[(sides * (truth + r * rng.normal(size=truth.shape) - bounds) > 0).all(axis=1)]
    assert len(inside) > 10_000
    assert population.log_likelihood(rows)[0] == pytest.approx(np.log(len(inside) / len(truth)), abs=0.05)
    found, covariance = population.moments(rows)
    spread = inside.std(axis=0)
    np.testing.assert_allclose((found[0] - inside.mean(axis=0)) / spread, 0.0, atol=0.04)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance[0])) / spread, 1.0, atol=0.06)


def test_limits_do_not_depend_on_the_order_of_features():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4)) / 2 + np.eye(4)
    x, err = rng.normal(size=(30, 4)), rng.uniform(0.0, 1.0, (30, 4))
    sides = rng.integers(-1, 2, size=x.shape)
    order = np.array([2, 0, 3, 1])
    T = root @ root.T
    here = Mixture(np.ones(1), np.zeros((1, 4)), T[np.newaxis])
    there = Mixture(np.ones(1), np.zeros((1, 4)), T[np.ix_(order, order)][np.newaxis])
    rows, moved = read(x, Limits(err, sides)), read(x[:, order], Limits(err[:, order], sides[:, order]))
    np.testing.assert_allclose(there.log_likelihood(moved), here.log_likelihood(rows), atol=1e-7)
    np.testing.assert_allclose(there.moments(moved)[0], here.moments(rows)[0][:, order], atol=1e-7)


@pytest.mark.parametrize("bound", [20.0, 1e3, 1e6])
def test_limits_far_away(bound):
    """Beyond all doubt the truth is at the limit: a distance of 1/z spreads above it, by the tail of a normal."""
    population = Mixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    rows = read([[bound]], Limits(np.zeros((1, 1)), np.ones((1, 1))))
    found, _ = population.moments(rows)
    assert found[0, 0] - bound == pytest.approx(1 / bound - 2 / bound**3, rel=1e-4)
    assert population.log_likelihood(rows)[0] == pytest.approx(norm.logsf(bound), rel=1e-12)


def test_limits_are_part_of_the_population():
    """Values too faint to be seen differ from values that were seen."""
    rng = np.random.default_rng(0)
    n = 5000
    truth = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.7], [0.0, 0.7]])
    err = np.full((n, 2), 0.2)
    x = truth + err * rng.normal(size=(n, 2))
    limits = np.zeros((n, 2), dtype=int)
    limits[x[:, 0] < -0.3, 0] = -1
    x[limits == -1] = -0.3
    model = Deconvolve().fit(x, X_err=Limits(err, limits))
    np.testing.assert_allclose(model.means_[0], 0.0, atol=0.06)
    np.testing.assert_allclose(model.covariances_[0], np.cov(truth.T), atol=0.08)
    ignored = Deconvolve().fit(x, X_err=np.where(limits == 0, err, np.inf))
    assert ignored.means_[0, 0] > 0.1
    found = model.transform(x, Limits(err, limits))
    apart = found.X - truth
    assert abs(apart[limits[:, 0] == -1, 0].mean()) < 0.03
    assert np.sqrt(np.square(apart[limits[:, 0] == -1, 0]).mean()) == pytest.approx(
        np.sqrt(found.err[limits[:, 0] == -1, 0, 0].mean()), rel=0.1
    )
    mixed = Deconvolve(2).fit(x, X_err=Limits(err, limits)).transform(x[:50], Limits(err, limits)[:50])
    means, _ = mixed.components.scores(np.eye(2))
    np.testing.assert_allclose(np.einsum("ik,ikr->ir", mixed.components.weights, means), mixed.X, atol=1e-9)


def test_limits_are_scaled_and_mirrored():
    X, err, y = samples(part=0.1)
    rng = np.random.default_rng(0)
    limits = np.where(np.isnan(X), 0, rng.integers(-1, 2, size=X.shape) * (rng.random(X.shape) < 0.2))
    data = Measured(X, Limits(err, limits))
    scaled = WithErrors(StandardScaler()).fit_transform(data)
    one, other = Deconvolve().fit_transform(data), Deconvolve().fit_transform(scaled)
    known = ~np.isnan(X) & (limits == 0)
    mean = np.array([X[known[:, j], j].mean() for j in range(4)])
    std = np.array([X[known[:, j], j].std() for j in range(4)])
    np.testing.assert_allclose(other.X * std + mean, one.X, atol=1e-4)
    turned = WithErrors(FunctionTransformer(lambda values: -2 * values)).fit_transform(data)
    np.testing.assert_array_equal(turned.err.limits, -limits)
    np.testing.assert_allclose(Deconvolve().fit_transform(turned).X, -2 * one.X, atol=1e-4)
    pipe = make_pipeline(WithErrors(StandardScaler()), Deconvolve(), GuruClassifier(0.2)).fit(data, y)
    assert np.mean(pipe.predict(data) == y) > 0.8
    for model in (GuruClassifier(), make_pipeline(WithErrors(), GuruClassifier())):
        with pytest.raises(ValueError, match=r"population\.Deconvolve turns them"):
            model.fit(data, y)
    with pytest.raises(ValueError, match="it mixes features"):
        WithErrors(PCA(2)).fit_transform(data)
    with pytest.raises(ValueError, match="limits must hold -1"):
        Deconvolve().fit(X, X_err=Limits(err, limits * 3))
    with pytest.raises(ValueError, match="X_err must hold limits of shape"):
        Deconvolve().fit(X, X_err=Limits(err, limits[:, :2]))


# --- tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("up", "low"), [("1", "2"), ("hi", "lo"), ("_up", "_low")])
def test_two_sides_in_a_table(up, low):
    frame = pd.DataFrame(
        {"a": [1.0, 2.0, np.nan], "a_err" + up: [0.2, 0.3, np.nan], "a_err" + low: [-0.1, -0.1, np.nan],
         "b": [4.0, 5.0, 6.0], "b_err": [0.5, 0.5, 0.6], "c": [1, 2, 3]},
        index=[3, 4, 5],
    )  # fmt: skip
    X, X_err = errors_from_frame(frame)
    assert list(X.columns) == ["a", "b", "c"]
    np.testing.assert_array_equal(X_err.upper, [[0.2, 0.5, 0.0], [0.3, 0.5, 0.0], [np.inf, 0.6, 0.0]])
    np.testing.assert_array_equal(X_err.lower, [[0.1, 0.5, 0.0], [0.1, 0.5, 0.0], [np.inf, 0.6, 0.0]])
    assert list(X_err.upper.columns) == ["a", "b", "c"]
    values, errors = split_errors(X, X_err)
    assert values.loc[3, "a"] == pytest.approx(1 + np.sqrt(2 / np.pi) * 0.1)
    assert np.isinf(errors[2, 0])


def test_limits_in_a_table():
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "a_err": [0.1, 0.2, 0.3], "a_limit": [0, -1, -1], "b": 1.0})
    X, X_err = errors_from_frame(frame)
    assert list(X.columns) == ["a", "b"]
    np.testing.assert_array_equal(X_err.limits, [[0, 0], [-1, 0], [0, 0]])
    np.testing.assert_array_equal(X_err.err, [[0.1, 0.0], [0.2, 0.0], [np.inf, 0.0]])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "a_err", "a_err1", "a_err2"], "two kinds of errors"),
        (["a", "a_err1"], "and the other is not there"),
        (["a", "a_err", "b", "b_errlo"], "and the other is not there"),
        (["a", "a_err", "a_limit"], "expected is -1 for an upper limit"),
        (["a_err", "b"], "errors of a column 'a', which is no feature"),
    ],
)
def test_tables_that_do_not_say_one_thing(columns, message):
    with pytest.raises(ValueError, match=message):
        errors_from_frame(pd.DataFrame(np.full((3, len(columns)), 2.0), columns=columns))


@pytest.mark.parametrize("kind", [Table, QTable])
def test_tables_of_astropy(kind):
    columns = {"flux": [1.0, 2.0] * u.mJy, "flux_err": [0.1, 0.2] * u.mJy, "colour": [0.0, 1.0]}
    X, X_err = errors_from_frame(kind(columns))
    assert list(X.columns) == list(X_err.columns) == ["flux [mJy]", "colour"]
    np.testing.assert_array_equal(X_err, [[0.1, 0.0], [0.2, 0.0]])
    with pytest.raises(ValueError, match="has the unit 'mJy', and its errors 'Jy'"):
        errors_from_frame(kind(columns | {"flux_err": [0.1, 0.2] * u.Jy}))
    with pytest.raises(ValueError, match="has the unit '', and its errors 'mJy'"):
        errors_from_frame(kind(columns | {"flux": [1.0, 2.0]}))
    assert list(split_errors(kind(columns))[0].columns) == ["flux [mJy]", "flux_err [mJy]", "colour"]
    with pytest.raises(ValueError, match=r"column 'spectrum' of the table must have one number in a row; got shape"):
        errors_from_frame(kind(columns | {"spectrum": np.ones((2, 3))}))


def test_masked_and_swapped_columns_of_astropy():
    """Masked values were not measured; columns of FITS files have the other order of bytes."""
    flux = MaskedColumn(np.array([1.0, 2.0, 3.0], dtype=">f4"), mask=[False, True, False])
    table = Table({"flux": flux, "flux_err": [0.1, 0.2, 0.3], "n": MaskedColumn([1, 2, 3], mask=[True, False, False])})
    X, X_err = errors_from_frame(table)
    np.testing.assert_array_equal(X.to_numpy(dtype=float, na_value=np.nan), [[1, np.nan], [np.nan, 2], [3, 3]])
    np.testing.assert_array_equal(X_err, [[0.1, np.inf], [np.inf, 0.0], [0.3, 0.0]])


@pytest.mark.parametrize("model", [GuruClassifier(0.2), Deconvolve()])
@pytest.mark.parametrize("kind", [Table, QTable])
def test_fits_to_tables_of_astropy(model, kind):
    X, err, y = samples(60, part=0.0)
    names = list("abcd")
    tables = [kind(values * u.Jy, names=names) for values in (X, err)]
    frames = [pd.DataFrame(values, columns=names) for values in (X, err)]
    fitted, expected = (clone(model).fit(values, y, X_err=errors) for values, errors in (tables, frames))
    assert list(fitted.feature_names_in_) == ["a [Jy]", "b [Jy]", "c [Jy]", "d [Jy]"]
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*a \[mJy\]"):  # other units, other numbers
        getattr(fitted, "predict", getattr(fitted, "transform", None))(kind(1e3 * X * u.mJy, names=names))
    for name in ("coef_", "means_"):
        np.testing.assert_array_equal(getattr(fitted, name, 0), getattr(expected, name, 0))
    with pytest.raises(ValueError, match="column 'a' has the unit 'Jy', and its errors 'mJy'"):
        clone(model).fit(tables[0], y, X_err=kind({"a": err[:, 0] * u.mJy} | dict.fromkeys("bcd", err[:, 1])))


def test_numbers_with_uncertainties():
    X, err, y = samples(60, part=0.0)
    numbers = unumpy.uarray(X, err)
    expected = GuruClassifier(0.2).fit(X, y, X_err=err)
    for given in (numbers, pd.DataFrame(numbers), numbers.tolist()):
        np.testing.assert_array_equal(GuruClassifier(0.2).fit(given, y).coef_, expected.coef_)
        np.testing.assert_array_equal(expected.predict_proba(given), expected.predict_proba(X, X_err=err))
    np.testing.assert_array_equal(Deconvolve().fit_transform(numbers).X, Deconvolve().fit_transform(X, X_err=err).X)
    numbers[0], err[0] = X[0], 0.0  # plain numbers, which are exact
    expected = GuruClassifier(0.2).fit(X, y, X_err=err)
    np.testing.assert_array_equal(GuruClassifier(0.2).fit(numbers, y).coef_, expected.coef_)


def test_indicators_of_gaps():
    X, err, y = samples()
    X[:, 2] = np.nan_to_num(X[:, 2])
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = Deconvolve(2, missing_indicator=True)
    found = model.fit_transform(frame, X_err=err)
    names = [*"abcd", "a_missing", "b_missing", "d_missing"]
    assert list(found.X.columns) == list(model.get_feature_names_out()) == names
    np.testing.assert_array_equal(found.X.iloc[:, 4:], np.isnan(X)[:, [0, 1, 3]])
    plain = Deconvolve(2).fit_transform(frame, X_err=err)
    np.testing.assert_array_equal(found.X.iloc[:, :4], plain.X)
    np.testing.assert_array_equal(found.err[:, :4, :4], plain.err)
    assert not found.err[:, 4:].any()
    W, b = np.random.default_rng(0).normal(size=(2, 7)), np.ones(2)
    means, covariances = found.components.scores(W, b)
    inner, same = plain.components.scores(W[:, :4], b)
    np.testing.assert_allclose(means, inner + (found.X.to_numpy()[:, 4:] @ W[:, 4:].T)[:, np.newaxis])
    np.testing.assert_array_equal(covariances, same)
    np.testing.assert_allclose(found[3:5].components.scores(W, b)[0], means[3:5])
    GuruClassifier(0.2).fit(found, y)
    assert model.reliability(frame, err).shape == (4,)
    assert model.transform(frame.iloc[:3], err[:3]).X.shape == (3, 7)


# --- gaps that say something of the class -----------------------------------------------------------------


@pytest.mark.parametrize("form", ["a sample", "a value", "covariances", "low rank", "bare factors", "limits", "sparse"])
def test_errors_of_more_features(form):
    rng = np.random.default_rng(0)
    X, err = rng.normal(size=(5, 3)), rng.uniform(0.1, 1.0, (5, 3))
    factors = rng.normal(size=(5, 3, 2))
    given = {
        "a sample": err[:, 0], "a value": err, "covariances": np.einsum("ijr,ikr->ijk", factors, factors),
        "low rank": LowRank(factors, err), "bare factors": LowRank(factors), "limits": Limits(err, np.eye(5, 3)),
        "sparse": sp.csr_array(err),
    }[form]  # fmt: skip
    given = split_errors(X, given)[1]
    more = with_more(given, (5, 3), 2, 0.5)
    if form == "limits":
        np.testing.assert_array_equal(more.limits, np.eye(5, 5)[:, :5] * ([1, 1, 1, 0, 0]))
        np.testing.assert_array_equal(more.err, np.hstack([err, np.full((5, 2), 0.5)]))
        return
    before = covariances(given.toarray() if form == "sparse" else given, X)
    after = covariances(more, np.hstack([X, X[:, :2]]))
    np.testing.assert_allclose(after[:, :3, :3], before, atol=1e-12)
    np.testing.assert_allclose(after[:, 3:, 3:], np.broadcast_to(0.25 * np.eye(2), (5, 2, 2)), atol=1e-12)
    np.testing.assert_allclose(after[:, :3, 3:], 0.0, atol=1e-12)


def selected(n=300, seed=0):
    """Return measurements of which one class lacks two features, together, more often than the other."""
    X, err, y = samples(n, seed=seed, part=0.0)
    gone = np.random.default_rng(seed + 1).random(n) < np.where(y == 1, 0.8, 0.1)
    X[gone, 1:3] = np.nan
    X[::10, 0] = np.nan
    return X, err, y


@pytest.mark.parametrize("model", ["rbf", "boosting"])
def test_gaps_that_say_something_of_the_class(model):
    """A pool has a column for each feature with gaps; a linear score does not."""
    X, err, y = selected()
    Z, F, z = selected(2000, seed=5)
    # Two folds that are given, and not repeated.
    options = {"cv": [(np.arange(150), np.arange(150, 300)), (np.arange(150, 300), np.arange(150))], "n_components": 1}
    told = ErrorBarClassifier(model=model, **options).fit(X, y, X_err=err)
    plain = ErrorBarClassifier(model="linear", **options).fit(X, y, X_err=err)
    np.testing.assert_array_equal(told.features_.gaps, [0, 1, 2])
    assert told.reliability_.shape == (4,)
    assert told.n_features_in_ == 4
    losses = [log_loss(z, fitted.predict_proba(Z, F)) for fitted in (told, plain)]
    assert losses[0] < losses[1] - 0.05


def test_there_are_no_columns_of_gaps_where_nothing_is_missing():
    X, err, y = samples(100, part=0.0)
    told = ErrorBarClassifier(model="rbf", cv=2, n_components=1).fit(X, y, X_err=err)
    exact = ErrorBarClassifier(model="rbf", cv=2, n_components=1).fit(X, y)
    assert len(told.features_.gaps) == len(exact.features_.gaps) == 0
    # A feature without gaps in training may have gaps in use.
    X[:, 1] = np.nan
    assert np.isfinite(told.predict_proba(X, err)).all()
