"""Error bars at fit: the optimum and its certificate, forms, limits, values not measured, bad input."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import erf, ndtr
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.svm import SVC
from support import oracles
from support.common import with_and_without
from support.data import MEASURED, clouds, groups, measured
from support.error_bars import bars, conditional, covariances, every_form, matrices, value

from gaussguru import CollapseWarning, GuruClassifier, KernelGuruClassifier
from gaussguru._errors.arrays import finite_least
from gaussguru._errors.checks import check_errors
from gaussguru._errors.correlated import Combined, Covariances, Factored
from gaussguru._errors.independent import Diagonal, PerSample
from gaussguru._guru.problems.protocol import MAX_UNKNOWNS
from gaussguru.errors import LowRank, Measured, Population
from gaussguru.robustness import expected_accuracy, expected_accuracy_scorer

# The error of a generic optimiser, relative to F(0).
SLACK = 1e-8


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_population_is_that_of_numpy(dtype, order):
    rng = np.random.default_rng(0)
    X = np.asarray(1000 + 10 * rng.standard_normal((3000, 130)), dtype=dtype, order=order)
    X[0] = 0  # the first row is like no other
    population = Population.of(X, None)
    np.testing.assert_allclose(population.means, X.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(population.spreads, X.std(axis=0, dtype=np.float64), rtol=1e-9)


def least(X, y, Sigma, weight, sigma, l2, fit_intercept, start):
    """Return the least F of a two-class problem by a generic optimiser."""
    signs = np.where(y == 1, 1.0, -1.0)

    def f(params):
        w, b = params[:-1], params[-1] * fit_intercept
        Sw = Sigma @ w + sigma**2 * w
        a = np.sqrt(np.maximum(Sw @ w, 1e-30))
        z = (1 - signs * (X @ w + b)) / a
        slope = ndtr(z)
        gradient = -(weight * signs * slope) @ X + (weight * oracles.pdf(z) / a) @ Sw + l2 * w
        total = weight @ (a * oracles.loss(z)) + 0.5 * l2 * w @ w
        return total, np.append(gradient, -(weight * signs * slope).sum() * fit_intercept)

    best = minimize(f, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    return best.fun


@every_form
@with_and_without
@pytest.mark.parametrize(("sigma", "l2"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.7)])
def test_optimum(form, fit_intercept, sigma, l2):
    X, y = clouds(60, 50, 4, 1.5)
    y, weight = (y > 0).astype(int), np.random.default_rng(0).uniform(0.3, 2.0, len(y))
    X_err = form(*X.shape)
    clf = GuruClassifier(sigma, l2=l2, fit_intercept=fit_intercept).fit(X, y, weight, X_err=X_err)
    zero = weight.sum()
    assert clf.dual_gap_ <= 1e-6 * zero
    rng = np.random.default_rng(5)
    starts = [np.append(clf.coef_[0], clf.intercept_) * rng.uniform(0.5, 1.5), np.append(X[y == 1].mean(axis=0), 0.1)]
    Sigma = matrices(X_err, *X.shape)
    minimum = min(least(X, y, Sigma, weight, sigma, l2, fit_intercept, start) for start in starts)
    assert minimum - SLACK * zero <= clf.objective_ <= minimum + clf.dual_gap_ + SLACK * zero
    W, b = np.vstack([-clf.coef_, clf.coef_]) / 2, np.append(-clf.intercept_, clf.intercept_) / 2
    np.testing.assert_allclose(clf.objective_, value(W, b, X, y, Sigma, weight, sigma, l2), rtol=1e-9)


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize(("sigma", "l2"), [(0.05, 0.0), (0.0, 1.0)])
def test_optimum_on_real_measurements(name, sigma, l2):
    X, E, y = measured(name)
    clf = GuruClassifier(sigma, l2=l2).fit(X, y, X_err=E)
    zero, weight = len(y), np.ones(len(y))
    assert clf.dual_gap_ <= 1e-6 * zero
    start = np.append(clf.coef_[0], clf.intercept_)
    starts = [start * np.random.default_rng(0).uniform(0.8, 1.2, len(start)), start * 0.5]
    Sigma = matrices(E, *X.shape)
    minimum = min(least(X, y, Sigma, weight, sigma, l2, True, start) for start in starts)
    assert minimum - SLACK * zero <= clf.objective_ <= minimum + clf.dual_gap_ + SLACK * zero


@with_and_without
@pytest.mark.parametrize("sigma", [0.1, 0.7])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_constant_error_bars_are_guru(fit_intercept, sigma, n_classes):
    X, y = groups([40, 30, 35][:n_classes], 4)
    expected = GuruClassifier(sigma, fit_intercept=fit_intercept, tol=1e-11).fit(X, y)
    fit = partial(GuruClassifier(0.0, fit_intercept=fit_intercept, tol=1e-11).fit, X, y)
    for X_err in (
        np.full(len(y), sigma),
        np.full(X.shape, sigma),
        np.broadcast_to(np.eye(4), (len(y), 4, 4)) * sigma**2,
    ):
        clf = fit(X_err=X_err)
        np.testing.assert_allclose(clf.objective_, expected.objective_, rtol=1e-9)
        np.testing.assert_allclose(clf.coef_, expected.coef_, rtol=1e-4, atol=1e-5)
    half = GuruClassifier(sigma * 0.6, fit_intercept=fit_intercept, tol=1e-11).fit(
        X, y, X_err=np.full(len(y), sigma * 0.8)
    )
    np.testing.assert_allclose(half.objective_, expected.objective_, rtol=1e-9)


@pytest.mark.parametrize("l2", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("X_err", [None, 0.0])
def test_no_noise_at_all_is_the_support_vector_machine(l2, X_err):
    X, y = clouds(70, 50, 3, 1.0)
    clf = GuruClassifier(0.0, l2=l2, tol=1e-8).fit(X, y, X_err=None if X_err is None else np.zeros(len(y)))
    svm = SVC(kernel="linear", C=1 / l2, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(clf.coef_, svm.coef_, rtol=1e-3, atol=1e-4)
    hinge = np.maximum(0, 1 - y * svm.decision_function(X)).sum() + 0.5 * l2 * np.sum(svm.coef_**2)
    assert clf.dual_gap_ <= 1e-8 * len(y)
    assert abs(clf.objective_ - hinge) <= 1e-7 * len(y)
    alpha = np.zeros(len(y))
    alpha[svm.support_] = np.abs(svm.dual_coef_[0]) * l2
    np.testing.assert_allclose(clf.dual_coef_, alpha, atol=1e-3)


def test_published_objective_of_svm_gsu():
    """Mean expected hinge loss + lambda/2 ||w||^2 with diagonal covariances, through erf as its authors write it."""
    X, y = clouds(80, 60, 5, 1.0)
    E, lam = bars(*X.shape, zeros=0.0) + 0.05, 0.02
    clf = GuruClassifier(0.0, l2=lam * len(y), tol=1e-10).fit(X, y, X_err=E)

    def gsu(params):
        w, b = params[:-1], params[-1]
        d_x = 1 - y * (X @ w + b)
        d_sigma = np.sqrt(2 * np.square(E) @ np.square(w))
        loss = 0.5 * d_x * (erf(d_x / d_sigma) + 1) + d_sigma / (2 * np.sqrt(np.pi)) * np.exp(-((d_x / d_sigma) ** 2))
        return loss.mean() + 0.5 * lam * w @ w

    ours = gsu(np.append(clf.coef_[0], clf.intercept_))
    np.testing.assert_allclose(clf.objective_ / len(y), ours, rtol=1e-10)
    theirs = minimize(gsu, np.append(clf.coef_[0], clf.intercept_) * 0.9, method="BFGS", options={"gtol": 1e-10}).fun
    assert abs(ours - theirs) <= 1e-6 * theirs


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans(), st.sampled_from([0.0, 0.1, 3.0]), st.booleans())
@example(49678, 4, True, 0.1, True)  # half of the samples are exact
@example(355, 4, False, 0.0, False)  # two pairs of classes that hardly touch each other
@example(355, 4, True, 0.0, True)
@example(326, 4, False, 0.0, True)  # steps so long that numbers overflow
@example(1054, 2, False, 0.0, False)  # and that no short part of them is short
def test_random_problems_are_certified(seed, n_classes, fit_intercept, l2, exact):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5 * n_classes, 80)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d)) * rng.uniform(0.2, 3)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes))
    X += rng.standard_normal((n_classes, d))[y]
    E = bars(n, d, seed, zeros=0.5 if exact else 0.0) * 10 ** rng.uniform(-2, 1)
    sigma = 0.0 if rng.random() < 0.5 else 10 ** rng.uniform(-2, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        # Without noise in a direction and without a ridge the best classifier may be infinitely steep.
        if exact and not l2 and not sigma:
            warnings.simplefilter("ignore", ConvergenceWarning)
        clf = GuruClassifier(sigma, l2=l2, fit_intercept=fit_intercept).fit(X, y, X_err=E)
    assert np.isfinite(clf.objective_)
    if sigma or l2 or not exact:
        assert clf.dual_gap_ <= 1e-6 * n * (n_classes - 1)


@pytest.mark.parametrize(
    ("values", "least"),
    [([3.0, -1.0, 2.0], -1.0), ([1e308] * 9, 1e308), ([], np.inf), ([1.0, np.nan], None), ([np.inf], None)],
)
@pytest.mark.parametrize("kind", [np.float64, np.float32, lambda values: np.asfortranarray(np.array([values] * 3))])
def test_the_least_of_finite_values(values, least, kind):
    with np.errstate(over="ignore"):
        array = kind(values)
    found = finite_least(array)
    if least == 1e308 and array.dtype == np.float32:
        least = None
    assert found is None if least is None else found == least


def test_sparse_is_dense_and_weights_are_repetitions():
    X, y = clouds(50, 60, 4, 1.0)
    X, E = X * (np.random.default_rng(0).random(X.shape) < 0.5), bars(*X.shape)
    fit = partial(GuruClassifier(0.1, tol=1e-11).fit)
    dense = fit(X, y, X_err=E).coef_.copy()
    for A, B in ((sp.csr_array(X), E), (sp.csr_matrix(X), sp.csr_matrix(E)), (X, sp.csr_array(E))):
        np.testing.assert_allclose(fit(A, y, X_err=B).coef_, dense, rtol=1e-6, atol=1e-7)
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    weighted = fit(X, y, weight.astype(float), X_err=E).coef_.copy()
    repeated = np.repeat(np.arange(len(y)), weight)
    np.testing.assert_allclose(fit(X[repeated], y[repeated], X_err=E[repeated]).coef_, weighted, rtol=1e-6, atol=1e-7)
    single = fit(X.astype(np.float32), y, X_err=E.astype(np.float32)).coef_
    np.testing.assert_allclose(single, dense, rtol=1e-4, atol=1e-5)


def test_threads_and_subsamples_change_nothing():
    X, y = clouds(9000, 9000, 4, 1.0)
    E = bars(*X.shape)
    fits = [GuruClassifier(0.1, tol=1e-9, n_jobs=n_jobs).fit(X, y, X_err=E) for n_jobs in (1, 2)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].dual_gap_ <= 1e-9 * len(y)


def test_many_unknowns_without_a_factor():
    """Features that are all zero change nothing, but make the Hessian too large to be formed."""
    X, y = groups([40, 40, 40], 6)
    E = bars(*X.shape, zeros=0.0)
    expected = GuruClassifier(0.3).fit(X, y, X_err=E)
    nothing = np.zeros((len(X), MAX_UNKNOWNS // 2))
    clf = GuruClassifier(0.3).fit(np.hstack([X, nothing]), y, X_err=np.hstack([E, nothing]))
    assert clf.dual_gap_ <= 1e-6 * 2 * len(y)
    np.testing.assert_allclose(clf.objective_, expected.objective_, rtol=1e-5)
    np.testing.assert_allclose(clf.coef_[:, X.shape[1] :], 0.0, atol=1e-6)


def test_warm_start_and_alpha():
    X, y = clouds(80, 80, 3, 1.0)
    E = bars(*X.shape)
    clf = GuruClassifier(0.2, warm_start=True).fit(X, y, X_err=E)
    cold, objective = clf.n_iter_, clf.objective_
    clf.fit(X, y, X_err=E)
    assert clf.n_iter_ < cold
    np.testing.assert_allclose(clf.objective_, objective, rtol=1e-6)
    w = clf.coef_[0]
    a = np.sqrt(np.square(E) @ w**2 + 0.04 * w @ w)
    np.testing.assert_allclose(clf.dual_coef_, ndtr((1 - y * (X @ w + clf.intercept_)) / a), atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_certificate_on_other_data(n_classes):
    X, y = groups([40, 30, 35][:n_classes], 3)
    E, half = bars(*X.shape), np.arange(len(y)) % 2 == 0
    clf = GuruClassifier(0.2).fit(X, y, X_err=E)
    own = clf.certificate(X, y, X_err=E)
    np.testing.assert_allclose(own.primal, clf.objective_, rtol=1e-9)
    assert own.gap <= 2e-6 * len(y) * (n_classes - 1)
    other = clf.certificate(X[half], y[half], X_err=E[half])
    best = GuruClassifier(0.2, tol=1e-9).fit(X[half], y[half], X_err=E[half]).objective_
    assert other.dual <= best + 1e-7 <= other.primal + 2e-7


def test_collapse():
    X, y = clouds(20, 80, 3, 0.5)
    with pytest.warns(CollapseWarning):
        clf = GuruClassifier(0.0).fit(X, y, X_err=np.full(X.shape, 50.0))
    assert not clf.coef_.any()
    assert clf.dual_gap_ <= 1e-6 * len(y)
    np.testing.assert_allclose(clf.objective_, 40.0)


# --- values not measured ----------------------------------------------------------------------------------


def test_infinite_errors_mark_values_not_measured():
    X, y = clouds(60, 50, 3, 1.5)
    E, missing = bars(*X.shape), np.random.default_rng(0).random(X.shape) < 0.2
    gone, lost = np.where(missing, np.nan, X), np.where(missing, np.inf, E)
    population = GuruClassifier(0.1).fit(gone, y, X_err=E).population_
    values, covariances = conditional(population, gone, lost)
    expected = GuruClassifier(0.1).fit(values, y, X_err=covariances)
    for seen, errors in ((X, lost), (gone, lost), (np.where(missing, 1e9, X), lost), (gone, E)):
        clf = GuruClassifier(0.1).fit(seen, y, X_err=errors)
        np.testing.assert_allclose(clf.coef_, expected.coef_, rtol=1e-6)


def test_unmeasured_samples_and_covariances():
    X, y = clouds(60, 50, 3, 1.5)
    sample = np.full(len(y), 0.2)
    sample[::7] = np.inf
    value = np.repeat(sample[:, None], 3, axis=1)
    matrix = np.zeros((len(y), 3, 3))
    matrix[:, range(3), range(3)] = value**2
    fits = [GuruClassifier(0.0).fit(X, y, X_err=X_err).coef_ for X_err in (sample, value, matrix)]
    np.testing.assert_allclose(fits[1], fits[0], rtol=1e-6)
    np.testing.assert_allclose(fits[2], fits[0], rtol=1e-6)
    with pytest.raises(ValueError, match="feature 1 was measured for no sample"):
        Population.of(X, np.array([0.1, np.inf, 0.1]) * np.ones((len(y), 1)))


# --- scikit-learn -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scored", [True, False])
def test_grid_search_sees_the_error_bars(scored):
    X, y = clouds(60, 50, 3, 1.0)
    E, cv, sigmas = bars(*X.shape), KFold(3, shuffle=True, random_state=0), [0.01, 0.5]
    with config_context(enable_metadata_routing=True):
        model, scoring = GuruClassifier(), expected_accuracy_scorer if scored else None
        search = GridSearchCV(model, {"sigma": sigmas}, cv=cv, scoring=scoring).fit(X, y, X_err=E)
        scores = cross_validate(clone(model), X, y, cv=cv, scoring=scoring, params={"X_err": E})["test_score"]

    def by_hand(sigma, train, test):
        clf = GuruClassifier(sigma).fit(X[train], y[train], X_err=E[train])
        return expected_accuracy(clf, X[test], y[test], X_err=E[test]) if scored else clf.score(X[test], y[test])

    for j, sigma in enumerate(sigmas):
        for fold, (train, test) in enumerate(cv.split(X)):
            assert search.cv_results_[f"split{fold}_test_score"][j] == by_hand(sigma, train, test)
    for score, (train, test) in zip(scores, cv.split(X), strict=True):
        assert score == by_hand(1.0, train, test)


def test_pandas():
    pd = pytest.importorskip("pandas")
    X, y = clouds(40, 40, 2, 1.0)
    E = bars(*X.shape)
    E[3, 1] = np.inf
    frame = pd.DataFrame(X, columns=["flux", "colour"])
    clf = GuruClassifier(0.1).fit(frame, y, X_err=pd.DataFrame(E))
    np.testing.assert_array_equal(clf.feature_names_in_, ["flux", "colour"])
    np.testing.assert_array_equal(clf.coef_, GuruClassifier(0.1).fit(X, y, X_err=E).coef_)


@pytest.mark.parametrize(
    ("X_err", "message"),
    [
        (np.full((5, 3), np.nan), "X_err has NaN"),
        (np.full((5, 3), -1.0), "X_err must hold nonnegative standard deviations; got -1"),
        (np.ones((3, 5)), r"X_err must hold standard deviations of shape \(5,\) or \(5, 3\).* got shape \(3, 5\)"),
        (np.ones(4), r"got shape \(4,\)"),
        (np.ones((5, 3, 3)) * -1, "positive semidefinite covariances; that of sample 0 has the eigenvalue"),
        (np.triu(np.ones((5, 3, 3))), "symmetric covariances; that of sample 0"),
        (sp.csr_array(-np.eye(5, 3)), "nonnegative"),
        (sp.csr_array(np.ones((4, 3))), "sparse array of shape"),
        (LowRank(np.ones((5, 2, 1))), r"X_err.factors must have shape \(5, 3, rank\); got \(5, 2, 1\)"),
        (LowRank(np.ones((5, 3, 1)), -np.ones(5)), "X_err.std must hold nonnegative standard deviations"),
        ("wide", "X_err"),
    ],
)
def test_bad_error_bars(X_err, message):
    X, y = np.random.default_rng(0).standard_normal((5, 3)), np.array([0, 1, 0, 1, 0])
    clf = GuruClassifier()
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y, X_err=X_err)
    assert not hasattr(clf, "coef_")


def test_unsupported_pairs():
    X, y = clouds(20, 20, 2)
    with pytest.raises(ValueError, match="solver='dual' with X_err"):
        GuruClassifier(solver="dual").fit(X, y, X_err=np.ones(40))
    with pytest.raises(ValueError, match="noise='axis' with X_err"):
        GuruClassifier(noise="axis").fit(X, y, X_err=np.ones(40))
    with pytest.raises(ValueError, match="sigma must be > 0 where there is neither X_err nor l2"):
        GuruClassifier(0.0).fit(X, y)
    with pytest.raises(ValueError, match="solver='sgd' with X_err is for two classes; y has 3"):
        GuruClassifier(solver="sgd").fit(X, np.arange(40) % 3, X_err=np.ones(40))
    with pytest.raises(ValueError, match="dense standard deviations with solver='sgd'"):
        GuruClassifier(solver="sgd").fit(X, y, X_err=covariances(40, 2))


# --- stochastic descent -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "l2", "fit_intercept"), [(0.0, 0.0, True), (0.3, 0.5, True), (0.3, 0.0, False)])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_steps_match_the_formula(sigma, l2, fit_intercept, average, form):
    X, y = clouds(30, 30, 3, 1.0)
    E, rate = bars(*X.shape), 0.2
    clf = GuruClassifier(sigma, l2=l2, fit_intercept=fit_intercept, solver="sgd", eta0=rate, average=average)
    clf.partial_fit(form(X), y, classes=[-1, 1], X_err=E)
    order = np.random.default_rng([0, 0]).permutation(len(y))
    w, b, iterates = np.zeros(3), 0.0, []
    for t, i in enumerate(order, 1):
        eta, Sigma = rate / np.sqrt(t), sigma**2 + E[i] ** 2
        a, slack = np.sqrt(Sigma @ w**2), 1 - y[i] * (X[i] @ w + b)
        alpha, tension = (ndtr(slack / a), oracles.pdf(slack / a) / a) if a > 0 else (float(slack > 0), 0.0)
        w = w * np.maximum(0.0, 1 - eta * (l2 / len(y) + tension * Sigma)) + eta * y[i] * alpha * X[i]
        b += eta * y[i] * alpha * fit_intercept
        iterates.append(np.append(w, b))
    expected = np.mean(iterates, axis=0) if average else iterates[-1]
    np.testing.assert_allclose(np.append(clf.coef_, clf.intercept_), expected, rtol=1e-9, atol=1e-12)


def test_a_descent_comes_close_to_the_optimum_and_may_be_continued():
    X, y = clouds(300, 300, 3, 1.0)
    E = bars(*X.shape) + 0.2
    exact = GuruClassifier(0.2).fit(X, y, X_err=E)
    clf = GuruClassifier(0.2, solver="sgd", average=True, tol=1e-5, max_iter=300, random_state=0).fit(X, y, X_err=E)
    assert exact.objective_ - 1e-6 <= clf.objective_ <= 1.01 * exact.objective_
    assert clf.dual_gap_ >= clf.objective_ - exact.objective_ - 1e-6
    np.testing.assert_allclose(clf.loss_curve_[-1], clf.objective_, rtol=1e-12)
    steps = clf.n_updates_
    clf.partial_fit(X[:50], y[:50], X_err=E[:50]).partial_fit(X[50:90], y[50:90])  # with and without error bars
    assert clf.n_updates_ == steps + 90
    assert clf.certificate(X, y, X_err=E).primal <= 1.05 * exact.objective_


# --- forms ------------------------------------------------------------------------------------------------


@every_form
@pytest.mark.parametrize("compact", [False, True])
def test_forms_agree_with_their_covariances(form, compact):
    n, d = 30, 3
    X_err = form(n, d)
    errors, Sigma = check_errors(X_err, np.zeros((n, d))), matrices(X_err, n, d)
    errors = errors.compact() if compact else errors
    rng = np.random.default_rng(0)
    u, v, t = rng.standard_normal(d), rng.standard_normal(d), rng.uniform(0, 1, n)
    np.testing.assert_allclose(errors.variances(np.vstack([u, v])), np.column_stack([Sigma @ u @ u, Sigma @ v @ v]))
    np.testing.assert_allclose(errors.times(u), Sigma @ u, atol=1e-15)
    np.testing.assert_allclose(errors.pull(t, u), t @ (Sigma @ u), atol=1e-14)
    np.testing.assert_allclose(errors.between(u, v), Sigma @ u @ v, atol=1e-14)
    np.testing.assert_allclose(errors.covariance(4), Sigma[4], atol=1e-15)
    out = np.zeros((d, d))
    errors.add(t, out)
    np.testing.assert_allclose(out, np.einsum("i,ijk->jk", t, Sigma), atol=1e-13)
    if not compact:
        draws = np.array([errors.sample(rng)[7] for _ in range(4000)])
        np.testing.assert_allclose(np.cov(draws.T), Sigma[7], atol=0.1)
    # The support function of the sum of ellipsoids is at least u.v wherever the length of v is at most 1.
    roots = errors.roots(t)
    length = errors.length(v, roots)
    if np.isfinite(length):
        for direction in rng.standard_normal((200, d)):
            assert direction @ v / length <= t @ np.sqrt(Sigma @ direction @ direction) * (1 + 1e-9)
    assert errors.n_samples == n
    assert isinstance(errors, PerSample | Diagonal | Factored | Covariances | Combined)


@pytest.mark.parametrize(("rank", "independent"), [(6, 0.0), (2, 1.0), (6, 1.0), (4, 0.0)])
@pytest.mark.parametrize("isotropic", [0.0, 0.5])
def test_the_length_in_equal_errors_is_that_of_their_covariance(rank, independent, isotropic):
    """Factors with more columns than features, and independent errors beside factors, add up."""
    rng, d = np.random.default_rng(3), 4
    F, std, v, t = rng.normal(size=(d, rank)), independent * rng.uniform(0.1, 1e3, d), rng.normal(size=d), np.ones(5)
    errors = check_errors(LowRank(np.tile(F, (5, 1, 1)), np.tile(std, (5, 1))), np.zeros((5, d)))
    Sigma = F @ F.T + np.diag(std**2 + isotropic**2)
    expected = np.sqrt(v @ np.linalg.solve(Sigma, v)) / 5
    assert errors.length(v, errors.roots(t), 5 * isotropic) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("form", ["values", "covariances", "low rank", "csr"])
@pytest.mark.parametrize("model", [GuruClassifier(0.3), KernelGuruClassifier(0.1)], ids=["linear", "kernel"])
def test_errors_whose_squares_overflow_are_refused(model, form):
    """Probabilities would be those of a score of NaN or of 1e160, after warnings of NumPy."""
    rng = np.random.default_rng(0)
    X, y, size = rng.standard_normal((40, 2)), np.arange(40) % 2, 0.2 if form == "covariances" else 0.5

    def errors(largest):
        E = np.full((40, 2), 0.3)
        E[7, 1] = largest
        if form == "covariances":
            return np.minimum(E, 1e153)[:, :, np.newaxis] ** 2 * np.eye(2)
        return LowRank(E[:, :, np.newaxis]) if form == "low rank" else sp.csr_array(E) if form == "csr" else E

    model = clone(model).fit(X, y, X_err=errors(size))
    for huge in (1e153, 1e200):
        for call in (model.predict_proba, lambda X, X_err: clone(model).fit(X, y, X_err=X_err)):
            with pytest.raises(ValueError, match="X_err must hold errors whose squares do not overflow"):
                call(X, X_err=errors(huge))


@pytest.mark.parametrize("wrong", ["columns", "rows", "names"])
def test_tables_of_errors_and_values_must_agree(wrong):
    """Or the errors of one feature, or sample, would be given to another."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((40, 3)), columns=["a", "b", "c"], index=range(100, 140))
    E, y = 0.1 + X.abs(), np.arange(40) % 2
    clf = GuruClassifier(0.1).fit(X, y, X_err=E)
    assert clf.objective_ == GuruClassifier(0.1).fit(X, y, X_err=E.to_numpy()).objective_
    assert clf.objective_ == GuruClassifier(0.1).fit(X, y, X_err=pd.DataFrame(E.to_numpy())).objective_  # no names
    other = {"columns": E[["c", "b", "a"]], "rows": E.iloc[::-1], "names": E.rename(columns={"b": "z"})}[wrong]
    with pytest.raises(ValueError, match=r"X_err must have the (columns|index) of X, in the same order"):
        clf.fit(X, y, X_err=other)
    with pytest.raises(ValueError, match="X_err must have"):
        clf.predict_proba(X, X_err=other)
    with pytest.raises(ValueError, match="X_err must have"):
        GuruClassifier(0.1).fit(Measured(X, other), y)


@pytest.mark.parametrize(("unit", "error"), [(1e300, 1.0), (1e-300, 1e-300)])
def test_errors_of_samples_at_the_ends_of_the_range_are_explained(unit, error):
    X, y = clouds(30, 30, 2, 1.0)
    with pytest.raises(ValueError, match="X has values whose squares overflow or underflow"):
        GuruClassifier(0.3).fit(unit * X, y, X_err=error * bars(*X.shape))
