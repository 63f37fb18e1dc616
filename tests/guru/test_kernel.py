"""KernelGuruClassifier and KEN-GURU: the linear problem in another space, within memory, with proofs that hold."""

import pickle
import tracemalloc
import warnings
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from support import oracles
from support.common import every_joint_solver, every_loss, every_solver, options, with_and_without
from support.data import KERNEL_PROBLEMS, clouds, groups, kernel_problem

from gaussguru import CollapseWarning, GuruClassifier, KernelGuruClassifier
from gaussguru._guru.kernel_matrix import NAMES, Gram, Kernel, KernelRows, exact_features
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.solvers.bounds import certify
from gaussguru._guru.solvers.kernel_sgd import KenGuru, KernelProblem, KernelState
from gaussguru._guru.solvers.registry import KERNEL_SOLVERS
from gaussguru._guru.solvers.subspace import Subspace
from gaussguru._rows.rows import Rows
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic

LOSS = LOSSES["gaussian"]
every_problem = pytest.mark.parametrize("name", KERNEL_PROBLEMS)
never_at_rest = pytest.mark.filterwarnings("ignore:the descent did not converge")


def sample(n=80):
    X, y = clouds(n // 2 + 5, n // 2 - 5, 4, 1.5, seed=1)
    return X, y, np.random.default_rng(0).uniform(0.3, 2.0, n)


def tight(X, y, weight=None, *, sigma=0.3, gamma=0.5, **parameters):
    return KernelGuruClassifier(sigma, tol=1e-12, gamma=gamma, **parameters).fit(X, y, weight)


def check_same(clf, other, X, rtol=1e-6, *, again=None):
    """Assert that two fits decide alike, on other forms of the same samples if ``again`` is given."""
    expected = other.decision_function(X)
    scores = clf.decision_function(X if again is None else again)
    np.testing.assert_allclose(scores, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
    np.testing.assert_allclose(clf.objective_, other.objective_, rtol=rtol)


def true_objective(clf, X, y, weight=None):
    """Return F from the scores of a two-class model alone."""
    s = np.ones(len(y)) if weight is None else weight
    slack = 1 - np.where(y == clf.classes_[1], 1, -1) * clf.decision_function(X)
    K = clf.dual_coef_[0] @ pairwise_values(clf, clf.X_fit_) @ clf.dual_coef_[0]
    a = clf.sigma * np.sqrt(max(K, 0.0))
    losses = a * oracles.loss(slack / a) if a > 0 else np.maximum(slack, 0.0)
    return float(s @ losses + 0.5 * clf.l2 * max(K, 0.0))


def pairwise_values(clf, X):
    if len(X) == 0:
        return np.zeros((0, 0))
    params = {"gamma": clf.gamma, "degree": clf.degree, "coef0": clf.coef0}
    return pairwise_kernels(X, metric=clf.kernel, filter_params=True, **params)


# --- scikit-learn -----------------------------------------------------------------------------------------


def is_known(name, check):
    """Return whether these settings cannot pass a check.

    Some checks make matrices that are indefinite: random, or rounded to single precision in double; one gives features
    for a kernel matrix. One vector of
    weights is not the rows it repeats where the order of the rows decides what is drawn. scikit-learn's chi2 kernel
    reads no read-only memory, and two checks have negative numbers for it.
    """
    function, keywords = check.func.__name__, check.keywords
    known = {
        "precomputed": {
            "check_positive_only_tag_during_fit",
            "check_estimators_dtypes",
            "check_decision_proba_consistency",
        },
        "n_components": {
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        },
        "sgd": {"check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"},
        "chi2": {
            "check_readonly_memmap_input",
            "check_class_weight_classifiers",
            "check_decision_proba_consistency",
        },
    }
    return function in known[name] or (
        (name, function, keywords.get("X_dtype")) == ("precomputed", "check_classifiers_train", "float32")
        or (name, function, keywords.get("readonly_memmap")) == ("chi2", "check_estimators_pickle", True)
    )


@parametrize_with_checks(
    [
        KernelGuruClassifier(),
        KernelGuruClassifier(sigma=0.1),
        KernelGuruClassifier(sigma=0.1, kernel="cosine", l2=0.1, class_weight="balanced"),
    ]
)
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


def other_checks():
    for name, estimator in {
        "precomputed": KernelGuruClassifier(kernel="precomputed"),
        "chi2": KernelGuruClassifier(0.1, kernel="chi2"),
        "n_components": KernelGuruClassifier(0.1, n_components=5, random_state=0),
        "sgd": KernelGuruClassifier(0.1, solver="sgd", max_iter=30, average=True),
    }.items():
        for instance, check in estimator_checks_generator(estimator):
            if not is_known(name, check):
                yield pytest.param(instance, check, id=f"{name}-{check.func.__name__}")


@pytest.mark.parametrize(("estimator", "check"), list(other_checks()))
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
@never_at_rest
def test_scikit_learn_with_other_settings(estimator, check):
    check(estimator)


# --- the linear problem in another space ------------------------------------------------------------------


@every_loss
@every_solver
@options
def test_linear_kernel_is_the_linear_classifier(loss, solver, l2, fit_intercept):
    X, y, weight = sample()
    parameters = {"loss": loss, "solver": solver, "l2": l2, "fit_intercept": fit_intercept, "tol": 1e-12}
    clf = KernelGuruClassifier(0.3, kernel="linear", **parameters).fit(X, y, weight)
    linear = GuruClassifier(0.3, **parameters).fit(X, y, weight)
    # A gap tells coefficients to its root; Newton's steps end closer than that, those of the dual do not.
    rtol = 1e-6 if solver == "newton" else 1e-5
    np.testing.assert_allclose(clf.dual_coef_ @ clf.X_fit_, linear.coef_, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(clf.intercept_, linear.intercept_, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(clf.norm_, np.linalg.norm(linear.coef_), rtol=rtol)
    np.testing.assert_allclose(clf.alpha_, linear.dual_coef_, atol=1e-5)
    np.testing.assert_allclose(clf.predict_proba(X), linear.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(clf.X_fit_, X[clf.support_])
    assert clf.dual_coef_.shape[1] == 4


@every_joint_solver
@options
def test_linear_kernel_with_three_classes(solver, l2, fit_intercept):
    X, y = groups([30, 25, 20], 4, seed=2)
    parameters = {"solver": solver, "l2": l2, "fit_intercept": fit_intercept, "tol": 1e-11}
    clf = KernelGuruClassifier(0.3, kernel="linear", **parameters).fit(X, y)
    linear = GuruClassifier(0.3, **parameters).fit(X, y)
    scale = np.abs(linear.coef_).max()
    np.testing.assert_allclose(clf.dual_coef_ @ clf.X_fit_, linear.coef_, rtol=1e-6, atol=1e-6 * scale)
    np.testing.assert_allclose(clf.intercept_, linear.intercept_, atol=1e-6)
    np.testing.assert_allclose(clf.norm_, np.linalg.norm(linear.coef_, axis=1), rtol=1e-6)
    assert clf.alpha_.shape == (75, 3)
    np.testing.assert_allclose(clf.alpha_, linear.dual_coef_, atol=1e-4)
    np.testing.assert_allclose(clf.predict_proba(X), linear.predict_proba(X), atol=1e-5)


def spectral(K):
    """Return features whose inner products are K, by an eigendecomposition."""
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-13 * values[-1]
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))


@cache
def few(name, n=60):
    X, y, kernel = kernel_problem(name)
    rows = np.random.default_rng(1).choice(len(y), min(n, len(y)), replace=False)
    params = {key: value for key, value in kernel.items() if key != "kernel"}
    return X[rows], y[rows], kernel, spectral(pairwise_kernels(X[rows], metric=kernel["kernel"], **params))


@every_problem
@every_solver
@pytest.mark.parametrize("exponent", [-10, -5, -3, -1, 1, 6])
def test_agrees_with_a_generic_optimiser(name, solver, exponent):
    X, y, kernel, Z = few(name)
    sigma, l2, fit_intercept = 2.0**exponent, 0.0 if exponent % 2 else 0.3, exponent != -3
    weight = np.random.default_rng(exponent + 10).uniform(0.5, 2.0, len(y))
    best = oracles.minimum(Z, y, sigma, weight=weight, l2=l2, fit_intercept=fit_intercept)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        clf = KernelGuruClassifier(sigma, solver=solver, l2=l2, fit_intercept=fit_intercept, **kernel)
        clf.fit(X, y, weight)
    slack = 1e-9 * weight.sum()
    assert 0 <= clf.dual_gap_ <= 1e-6 * weight.sum()
    assert clf.objective_ - clf.dual_gap_ <= best + slack
    assert clf.objective_ <= best + 1e-6 * weight.sum()
    # It decides by proven solutions only.
    np.testing.assert_allclose(true_objective(clf, X, y, weight), clf.objective_, rtol=1e-6, atol=slack)


@every_problem
@with_and_without
@pytest.mark.parametrize("exponent", [-10, -6, -3, 0, 6])
def test_every_fit_is_proven(name, fit_intercept, exponent):
    X, y, kernel = kernel_problem(name)
    clf = KernelGuruClassifier(2.0**exponent, fit_intercept=fit_intercept, **kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        clf.fit(X, y)
    assert 0 <= clf.dual_gap_ <= 1e-6 * len(y)
    np.testing.assert_allclose(true_objective(clf, X, y), clf.objective_, rtol=1e-6, atol=1e-9 * len(y))


@pytest.mark.parametrize("gamma", [1e-6, 1e-3])
def test_coefficients_of_nearly_singular_kernels_decide_as_proven(gamma):
    X, y, _ = sample(200)
    clf = KernelGuruClassifier(0.001, gamma=gamma).fit(X, y)
    np.testing.assert_allclose(true_objective(clf, X, y), clf.objective_, atol=1e-8 * len(y))


@pytest.mark.parametrize("kernel", sorted(set(NAMES) - {"precomputed", "sigmoid"}))
@pytest.mark.parametrize("solver", ["newton", "sgd"])
@never_at_rest
def test_precomputed_is_the_named_kernel(kernel, solver):
    X, y, weight = sample()
    X = np.abs(X)
    params = {"gamma": 0.5, "degree": 2, "coef0": 0.7}
    K = pairwise_kernels(X, metric=kernel, filter_params=True, **params)
    settings = {"solver": solver, "max_iter": 500 if solver == "newton" else 5, "eta0": 0.5}
    named = KernelGuruClassifier(0.05, kernel=kernel, **params, **settings).fit(X[:60], y[:60], weight[:60])
    given_matrix = KernelGuruClassifier(0.05, kernel="precomputed", **settings).fit(K[:60, :60], y[:60], weight[:60])
    check_same(given_matrix, named, X, 1e-5, again=np.ascontiguousarray(K[:, :60]))
    assert not hasattr(given_matrix, "X_fit_")


def test_callables():
    X, y, _ = sample()
    rbf = tight(X, y, gamma=0.5)
    check_same(tight(X, y, kernel=RBF(length_scale=1.0)), rbf, X)
    check_same(tight(X, y, kernel=lambda A, B, rate: np.exp(-rate * ((A[:, None] - B) ** 2).sum(2)),
                     kernel_params={"rate": 0.5}), rbf, X)  # fmt: skip
    check_same(tight(X, y, kernel=2 * RBF(length_scale=1.0), sigma=0.3 * np.sqrt(2)), rbf, X)
    smooth = KernelGuruClassifier(0.1, kernel=Matern(nu=1.5)).fit(X, y)
    assert smooth.dual_gap_ <= 1e-6 * len(y)
    assert clone(smooth).kernel == smooth.kernel
    integers = tight(np.round(X), y, kernel=lambda A, B: (A @ B.T).astype(int))
    check_same(integers, tight(np.round(X), y, kernel="linear"), np.round(X))


def test_a_callable_may_keep_its_result():
    X, y, _ = sample()
    kept = {}

    def remembered(A, B):
        return kept.setdefault((A.tobytes(), B.tobytes()), pairwise_kernels(A, B, metric="rbf", gamma=0.5))

    for parameters in ({}, {"n_components": 20, "random_state": 0}):
        check_same(tight(X, y, kernel=remembered, **parameters), tight(X, y, **parameters), X, 1e-9)
    for (a, b), values in kept.items():
        A, B = (np.frombuffer(part).reshape(-1, 4) for part in (a, b))
        np.testing.assert_allclose(values, pairwise_kernels(A, B, metric="rbf", gamma=0.5), atol=1e-14)


# --- invariances ------------------------------------------------------------------------------------------


@with_and_without
def test_weight_two_is_the_row_twice(fit_intercept):
    X, y, weight = sample()
    counts = np.random.default_rng(2).integers(0, 4, len(y))
    twice = np.repeat(np.arange(len(y)), counts)
    for gamma in ("scale", 0.5):
        parameters = {"fit_intercept": fit_intercept, "gamma": gamma}
        whole = tight(X, y, counts, **parameters)
        check_same(whole, tight(X[twice], y[twice], **parameters), X)
    kept = counts > 0
    check_same(tight(X, y, weight * kept, fit_intercept=fit_intercept),
               tight(X[kept], y[kept], weight[kept], fit_intercept=fit_intercept), X)  # fmt: skip


@with_and_without
@settings(deadline=None, derandomize=True, max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_symmetries(fit_intercept, seed):
    X, y, weight = sample()
    plain = tight(X, y, weight, fit_intercept=fit_intercept)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    permuted = tight(X[order], y[order], weight[order], fit_intercept=fit_intercept)
    check_same(permuted, plain, X)
    np.testing.assert_allclose(permuted.alpha_, plain.alpha_[order], atol=1e-5)
    # Distances are all an rbf kernel sees.
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    moved = X @ rotation + rng.standard_normal(4)
    check_same(tight(moved, y, weight, fit_intercept=fit_intercept), plain, X, again=moved)
    swapped = tight(X, -y, weight, fit_intercept=fit_intercept)
    np.testing.assert_allclose(swapped.decision_function(X), -plain.decision_function(X), rtol=1e-6, atol=1e-6)
    # A kernel times c^2 with noise times c is the same problem.
    factor = 10.0 ** rng.uniform(-3, 3)
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    larger = tight(factor**2 * K, y, weight, kernel="precomputed", sigma=0.3 * factor, fit_intercept=fit_intercept)
    check_same(larger, plain, X, again=factor**2 * K)


@with_and_without
@pytest.mark.parametrize("solver", ["newton", "sgd"])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian", "cosine", "linear"])
@never_at_rest
def test_sparse_is_dense(solver, kernel, fit_intercept):
    X, y, weight = sample()
    X[np.abs(X) < 0.5] = 0.0
    parameters = {"kernel": kernel, "fit_intercept": fit_intercept, "gamma": "scale", "solver": solver}
    if solver == "sgd":
        parameters.update(max_iter=4, eta0=0.3)
    plain = tight(X, y, weight, **parameters)
    for form in (sp.csr_array, sp.csr_matrix, sp.csc_array):
        other = tight(form(X), y, weight, **parameters)
        check_same(other, plain, X, 1e-5, again=form(X))
        assert sp.issparse(other.X_fit_)


@pytest.mark.parametrize("parameters", [{}, {"n_components": 30, "random_state": 1}], ids=["exact", "landmarks"])
@pytest.mark.parametrize("gamma", ["scale", "auto", 0.5])
def test_float32_is_close_to_float64(parameters, gamma):
    X, y, _ = sample()
    narrow = X.astype(np.float32)
    wide = narrow.astype(np.float64)
    close = tight(narrow, y, gamma=gamma, **parameters)
    check_same(close, tight(X, y, gamma=gamma, **parameters), X, 1e-3)
    check_same(close, tight(wide, y, gamma=gamma, **parameters), wide, 1e-4 if parameters else 1e-12)
    assert close.X_fit_.dtype == np.float64


def test_precomputed_in_single_precision():
    X, y, _ = sample()
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    close = KernelGuruClassifier(0.3, kernel="precomputed").fit(K.astype(np.float32), y)
    check_same(close, tight(X, y), X, 1e-2, again=K.astype(np.float32))


@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_gamma_by_name(gamma):
    X, y, _ = sample()
    value = 1 / (4 * X.var()) if gamma == "scale" else 0.25
    check_same(tight(X, y, gamma=gamma), tight(X, y, gamma=value), X, 1e-9)


def test_class_weight_is_sample_weight():
    X, y, weight = sample()
    factors = np.where(y > 0, 0.5, 1.5)
    check_same(tight(X, y, weight, class_weight={-1.0: 1.5, 1.0: 0.5}), tight(X, y, weight * factors), X)
    totals = {sign: weight[y == sign].sum() for sign in (-1.0, 1.0)}
    factors = weight.sum() / 2 / np.where(y > 0, totals[1.0], totals[-1.0])
    check_same(tight(X, y, weight, class_weight="balanced"), tight(X, y, weight * factors), X)


def test_labels_may_have_any_name_and_order():
    X, y = groups([30, 25, 20], 3, seed=2)
    plain = tight(X, y)
    names = np.array(["c", "a", "b"])
    named = tight(X, names[y])
    assert named.classes_.tolist() == ["a", "b", "c"]
    scores = named.decision_function(X)[:, [2, 0, 1]]
    np.testing.assert_allclose(scores, plain.decision_function(X), atol=1e-4 * np.abs(scores).max())
    np.testing.assert_array_equal(named.predict(X), names[plain.predict(X)])


@pytest.mark.parametrize("n_components", [None, 700])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_threads_change_no_bit(n_components, n_classes):
    X, y = groups([1100 // n_classes] * n_classes, 3, seed=1)
    fits = [
        KernelGuruClassifier(0.1, gamma=2.0, n_components=n_components, random_state=0, n_jobs=n_jobs, tol=1e-3)
        for n_jobs in (1, 2, 3)
    ]
    first, *others = [(clf.fit(X, y), clf.decision_function(X)) for clf in fits]
    for clf, scores in others:
        np.testing.assert_array_equal(scores, first[1])
        for name in ("dual_coef_", "intercept_", "objective_", "dual_gap_", "alpha_", "norm_", "n_iter_", "support_"):
            np.testing.assert_array_equal(getattr(clf, name), getattr(first[0], name))


# --- state ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"solver": "sgd", "max_iter": 3}, {"n_components": 20}], ids=str)
@never_at_rest
def test_pickle_clone_and_arguments(parameters):
    X, y, weight = sample()
    for array in (X, y, weight):
        array.flags.writeable = False
    clf = KernelGuruClassifier(0.3, random_state=3, **parameters)
    before = dict(clf.get_params())
    clf.fit(X, y, weight)
    assert clf.get_params() == before
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    fresh = clone(clf)
    assert not hasattr(fresh, "dual_coef_")
    np.testing.assert_array_equal(fresh.fit(X, y, weight).decision_function(X), clf.decision_function(X))


def test_precomputed_matrix_is_not_overwritten():
    X, y, _ = sample()
    K = pairwise_kernels(X, metric="rbf")
    K.flags.writeable = False
    for parameters in ({}, {"n_components": 20}, {"n_components": len(y)}):
        clf = KernelGuruClassifier(0.3, kernel="precomputed", **parameters).fit(K, y)
        assert clf.decision_function(K).shape == y.shape


def test_feature_names():
    X, y, _ = sample()
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = KernelGuruClassifier(0.3).fit(frame, pd.Series(y))
    assert clf.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(clf.predict(frame), KernelGuruClassifier(0.3).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[list("dcba")])


def test_model_selection():
    X, y, _ = sample()
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    grid = {"sigma": [0.05, 0.3], "gamma": [0.1, 0.5]}
    search = GridSearchCV(KernelGuruClassifier(), grid, cv=3, error_score="raise").fit(X, y)
    search_given = GridSearchCV(
        KernelGuruClassifier(kernel="precomputed"), {"sigma": [0.05, 0.3]}, cv=3, error_score="raise"
    ).fit(K, y)
    assert search.best_params_["sigma"] in grid["sigma"]
    mine = [params["gamma"] == 0.5 for params in search.cv_results_["params"]]
    np.testing.assert_array_equal(
        search_given.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"][mine]
    )
    for estimator, data in ((KernelGuruClassifier(0.3, gamma=0.5), X), (search_given.best_estimator_, K)):
        scores = cross_validate(estimator, data, y, cv=3, error_score="raise")["test_score"]
        assert scores.mean() > 0.6


@with_and_without
def test_warm_start(fit_intercept):
    X, y, _ = sample()
    parameters = {"gamma": 0.5, "tol": 1e-9, "fit_intercept": fit_intercept}
    warm = KernelGuruClassifier(0.3, warm_start=True, **parameters).fit(X, y)
    first = warm.n_iter_
    assert warm.fit(X, y).n_iter_ < first
    check_same(warm, KernelGuruClassifier(0.3, **parameters).fit(X, y), X, 1e-4)
    # From another noise level, kernel, rank, solver, and number of samples.
    for changes, rows in (
        ({"sigma": 0.05}, 80),
        ({"kernel": "linear"}, 80),
        ({"kernel": "poly"}, 80),
        ({"n_components": 30, "random_state": 0}, 80),
        ({"n_components": None, "kernel": "rbf"}, 50),
    ):
        warm.set_params(**changes).fit(X[:rows], y[:rows])
        cold = clone(warm).set_params(warm_start=False).fit(X[:rows], y[:rows])
        np.testing.assert_allclose(warm.objective_, cold.objective_, atol=1e-7 * len(y))


@never_at_rest
def test_warm_start_of_the_descent():
    X, y, _ = sample()
    clf = KernelGuruClassifier(0.3, gamma=0.5, warm_start=True).fit(X, y)
    best = clf.objective_
    clf.set_params(solver="sgd", eta0=1e-9, max_iter=1).fit(X, y)
    np.testing.assert_allclose(clf.objective_, best, rtol=1e-6)
    assert clf.dual_gap_ <= 1e-4 * len(y)
    assert clf.n_updates_ == len(y)
    clf.set_params(solver="newton").fit(X, y)
    assert not hasattr(clf, "loss_curve_")


def test_probabilities_remember_the_fitted_noise():
    X, y, _ = sample()
    clf = KernelGuruClassifier(0.3).fit(X, y)
    before = clf.predict_proba(X)
    np.testing.assert_allclose(before[:, 1], ndtr(clf.decision_function(X) / (0.3 * clf.norm_[0])), rtol=1e-12)
    np.testing.assert_array_equal(clf.set_params(sigma=7.0).predict_proba(X), before)


# --- KEN-GURU ---------------------------------------------------------------------------------------------


def problem_of(X, y, *, kernel="rbf", gamma=0.5, weight=None, sigma=0.3, l2=0.0, fit_intercept=True, n_bytes=1e8):
    gram = Gram(Kernel(kernel, {"gamma": gamma, "degree": 2, "coef0": 1.0}), X, n_bytes)
    return KernelProblem(KernelRows(gram, y > 0, weight), LOSS, Isotropic(sigma), l2, fit_intercept)


def by_hand(K, y, weight, order, *, sigma, l2, fit_intercept, eta0):
    """Return the iterates of the steps of the thesis, corrected: beta, then b, a row each."""
    weight, l2 = weight / weight.mean(), l2 / weight.sum()
    beta, b, nu, places = np.zeros(len(y)), 0.0, 0.0, []
    for t, i in enumerate(order, start=1):
        eta, zeta = eta0 / np.sqrt(t), beta @ K[i]
        slack = 1 - y[i] * (zeta + b)
        gamma, slope = 1 - eta * l2, float(slack > 0)
        if nu > 0:
            z = slack / (sigma * nu)
            gamma, slope = gamma - eta * weight[i] * sigma / nu * oracles.pdf(z), ndtr(z)
        gamma, mu = max(0.0, gamma), eta * weight[i] * slope * y[i]
        nu = np.sqrt(max(0.0, gamma**2 * nu**2 + 2 * gamma * mu * zeta + mu**2 * K[i, i]))
        beta = gamma * beta
        beta[i] += mu
        b += mu * fit_intercept
        places.append(np.append(beta, b))
    return np.array(places)


@pytest.mark.parametrize("average", [False, True], ids=["last", "average"])
@pytest.mark.parametrize(
    ("sigma", "l2", "fit_intercept"), [(0.3, 0.0, True), (1.0, 4.0, True), (2.0, 0.0, False), (0.05, 20.0, False)]
)
@pytest.mark.parametrize("eta0", [0.5, 100.0])
def test_steps_match_the_thesis(average, sigma, l2, fit_intercept, eta0):
    X, y, weight = sample()
    weight[::7] = 0.0
    options = {"sigma": sigma, "l2": l2, "fit_intercept": fit_intercept}
    order = np.random.default_rng(0).integers(0, len(y), 1500)
    problem = problem_of(X, y, weight=weight, **options)
    places = by_hand(pairwise_kernels(X, metric="rbf", gamma=0.5), y, weight, order, eta0=eta0, **options)
    expected = places.mean(axis=0) if average else places[-1]
    for cuts in ([], [1, 300, 300, 900]):
        state = KernelState(problem)
        if average:
            state.restart_average()
        for part in np.split(order, cuts):
            state.run(problem, part, eta0)
        found = np.append(state.coef, state.intercept)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        assert state.steps == 1500


@pytest.mark.parametrize("eta0", [0.5, 1e4])
@pytest.mark.parametrize("sigma", [0.01, 0.5])
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_norm_does_not_drift(eta0, sigma, l2):
    X, y = clouds(25, 25, 3, 0.5, seed=1)
    problem = problem_of(X, y, sigma=sigma, l2=l2)
    state, rng = KernelState(problem), np.random.default_rng(0)
    for _ in range(4):
        state.run(problem, rng.integers(0, 50, 50_000), eta0)
        assert state.square == pytest.approx(state.w @ problem.rows.kernel.product(state.w), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "sigma"),
    [
        case
        for case in [("ionosphere", 0.1), ("ionosphere", 0.3), ("usps-35", 0.1), ("usps-35", 0.3), ("rings", 0.3)]
        if case[0] in KERNEL_PROBLEMS
    ],
)
@never_at_rest
def test_descent_comes_within_a_percent(name, sigma):
    X, y, kernel = kernel_problem(name)
    best = KernelGuruClassifier(sigma, **kernel).fit(X, y)
    clf = KernelGuruClassifier(sigma, solver="sgd", average=True, max_iter=200, **kernel).fit(X, y)
    assert -best.dual_gap_ <= clf.objective_ - best.objective_ <= 0.01 * best.objective_
    assert clf.dual_gap_ >= clf.objective_ - best.objective_
    assert clf.objective_ == clf.loss_curve_[-1]
    np.testing.assert_allclose(true_objective(clf, X, y), clf.objective_, rtol=1e-9)


@cache
def optimum(gamma, l2, fit_intercept):
    X, y = clouds(15, 35, 3, 1.5, seed=1)
    Z = spectral(pairwise_kernels(X, metric="rbf", gamma=gamma))
    best, w, b = oracles.minimum(Z, y, 0.2, l2=l2, fit_intercept=fit_intercept)
    return X, y, Z, best, np.linalg.lstsq(Z.T, w, rcond=None)[0], b


@pytest.mark.parametrize("gamma", [0.3, 5.0])
@pytest.mark.parametrize(("l2", "fit_intercept"), [(0.0, True), (0.0, False), (0.5, True)])
@settings(deadline=None, derandomize=True, max_examples=40)
@given(draw=st.tuples(st.integers(0, 10**6), st.floats(-1, 1), st.floats(0, 8)))
def test_certificate_is_that_of_the_whole_space(gamma, l2, fit_intercept, draw):
    X, y, Z, best, beta, b = optimum(gamma, l2, fit_intercept)
    seed, length, nearness = draw
    rng, error = np.random.default_rng(seed), 10.0**-nearness
    coef = 10.0**length * (beta + error * np.abs(beta).max() * rng.standard_normal(len(beta)))
    b = b + error * rng.standard_normal() if fit_intercept else 0.0
    problem = problem_of(X, y, gamma=gamma, sigma=0.2, l2=l2, fit_intercept=fit_intercept)
    certificate, alpha = KenGuru().certify(problem, coef, b)
    features = Binary(Rows(Z, y > 0), LOSS, Isotropic(0.2), l2, fit_intercept)
    whole, slopes = certify(features, Z.T @ coef, b)
    assert certificate.dual <= best + 1e-12 * len(y)
    # The best length along w may be 0, where slopes depend on the last bits: they must be the same ones.
    margin = problem.rows.kernel.product(coef)
    norm = np.sqrt(coef @ margin)
    alone = problem.on(margin[:, np.newaxis] / norm)
    point = alone.rescaled(alone.point(np.array([norm, b])), 0.0)
    expected, _ = certify(features, Z.T @ coef / norm * point.coef[0], point.b, rescaled=False)
    own, _ = certify(features, Z.T @ coef, b, rescaled=False)
    assert certificate.dual == pytest.approx(max(own.dual, expected.dual), abs=1e-6 * len(y))
    if point.value < (1 - 1e-6) * alone.constant_near(None)[1]:
        assert certificate.dual == pytest.approx(whole.dual, abs=1e-6 * len(y))
    assert certificate.primal == pytest.approx(whole.primal, rel=1e-9)
    np.testing.assert_allclose(alpha, slopes, atol=1e-6)


def test_certificate_off_balance_sees_every_direction():
    # A constant feature so large that the least imbalance of the classes outshines all that w does not look at.
    rng = np.random.default_rng(0)
    y = np.where(np.arange(60) < 30, 1.0, -1.0)
    X = np.column_stack([rng.standard_normal((60, 2)) + np.outer(y, [0.5, 1.5]), np.full(60, 1e4)])
    alone, w, b = oracles.minimum(X[:, :1], y, 0.3)
    best = oracles.minimum(X[:, :2], y, 0.3)[0]
    assert best < 0.9 * alone
    problem = problem_of(X, y, kernel="linear")
    coef = np.linalg.lstsq(X.T, np.array([w[0], 0.0, 0.0]), rcond=None)[0]
    for error in (1e-1, 1e-2, 1e-3, 1e-4, 0.0):
        certificate, _ = KenGuru().certify(problem, coef, b + error)
        assert certificate.dual <= best + 1e-9


@pytest.mark.parametrize("length", [0.0, 1e-200], ids=["zero", "underflow"])
def test_certificate_of_a_constant_classifier_sees_the_class_means(length):
    X, y, _, best, beta, _ = optimum(0.3, 0.0, True)
    certificate, _ = KenGuru().certify(problem_of(X, y, gamma=0.3, sigma=0.2), length * beta, 0.0)
    assert certificate.primal == len(y)
    assert certificate.dual <= best + 1e-12 * len(y)


@never_at_rest
def test_weights_that_are_mostly_zero():
    # No subsample may be without a row that counts.
    rng = np.random.default_rng(0)
    X, y, weight = rng.standard_normal((20_000, 2)), np.arange(20_000) >= 10_000, np.zeros(20_000)
    weight[[0, 1, 2, -3, -2, -1]] = 1.0
    kept, labels = weight > 0, np.arange(20_000) % 3
    for target, rows in ((y, kept), (np.where(kept, labels, 0), kept)):
        whole, part = (GuruClassifier(0.1).fit(*data) for data in ((X, target, weight), (X[rows], target[rows])))
        np.testing.assert_allclose(whole.objective_, part.objective_, atol=1e-5)
    for seed in range(3):
        GuruClassifier(0.1, solver="sgd", max_iter=1, random_state=seed).fit(X, y, weight)
    few_rows = np.r_[:1000, 19_000:20_000]
    for seed in range(3):
        KernelGuruClassifier(0.1, solver="sgd", max_iter=1, random_state=seed).fit(
            X[few_rows], y[few_rows], weight[few_rows]
        )


# --- memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_budget_does_not_change_the_rows(form):
    X, y, weight = sample()
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    order = np.random.default_rng(0).integers(0, 80, 200)
    found = []
    for n_bytes, n_kept in ((1e8, 80), (8 * 80 * 80 / 0.8 + 1, 80), (8 * 80 * 40, 20), (8 * 80 * 2, 1), (1.0, 0)):
        problem = problem_of(form(X), y, weight=weight, n_bytes=n_bytes)
        gram = problem.rows.kernel
        assert gram.n_kept == n_kept
        np.testing.assert_allclose(gram.rows(order), K[order], atol=1e-13)
        np.testing.assert_allclose(gram.product(y), K @ y, atol=1e-11)
        np.testing.assert_allclose(gram.squared_norms, 1.0, atol=1e-13)
        np.testing.assert_allclose(gram.take(order[:9]).product(np.eye(9)), K[np.ix_(order[:9], order[:9])], atol=1e-13)
        state = KernelState(problem)
        state.run(problem, order, 0.5)
        found.append(np.append(state.coef, state.intercept))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-8, atol=1e-10)


@never_at_rest
def test_cache_size_does_not_change_the_fit():
    X, y, weight = sample()
    large, small = (
        KernelGuruClassifier(0.3, solver="sgd", max_iter=5, cache_size=size).fit(X, y, weight) for size in (200, 0.02)
    )
    check_same(small, large, X, 1e-8)


def test_a_pass_stays_within_its_budget():
    n, n_bytes = 50_000, 40e6
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    tracemalloc.start()
    try:
        problem = problem_of(X, y, n_bytes=n_bytes)
        assert 0 < problem.rows.kernel.n_kept < n
        state = KernelState(problem)
        state.run(problem, rng.integers(0, n, 1000), 0.5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= n_bytes + 10 * 8 * n  # and some vectors
    assert state.coef.any()


def test_predictions_take_little_memory():
    X, y, _ = sample()
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    clf = tight(X, y)
    clf.X_fit_ = np.tile(X, (250, 1))  # as if fitted to 20,000 samples
    clf.dual_coef_, clf.support_ = np.tile(clf.dual_coef_ / 250, 250), np.arange(20_000)
    points = np.tile(X, (100, 1))
    clf.n_jobs = 1
    tracemalloc.start()
    try:
        scores = clf.decision_function(points)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 150e6 < 8 * len(points) * 20_000
    expected = K @ clf.dual_coef_[0, :80] * 250 + clf.intercept_
    np.testing.assert_allclose(scores, np.tile(expected, 100), rtol=1e-9, atol=1e-9)


def test_more_samples_than_memory_are_refused():
    n = 2_000_000
    with pytest.raises(MemoryError, match="n_components"):
        KernelGuruClassifier().fit(np.arange(n, dtype=float)[:, None], np.arange(n) % 2)


# --- landmarks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
@with_and_without
def test_landmarks_are_the_nystroem_map(n_classes, kernel, fit_intercept):
    X, y = groups([40] * n_classes, 3, seed=4)
    options = {"gamma": 0.3, "degree": 2, "coef0": 0.7} if kernel == "poly" else {"gamma": 0.3}
    common = {"tol": 1e-11, "fit_intercept": fit_intercept}
    # As many components as the polynomial has, or it has singular landmarks, of which Nystroem keeps the noise.
    clf = KernelGuruClassifier(0.2, kernel=kernel, n_components=10, random_state=3, **options, **common).fit(X, y)
    nystroem = Nystroem(kernel, n_components=10, random_state=3, **options)
    pipeline = make_pipeline(nystroem, GuruClassifier(0.2, **common)).fit(X, y)
    scores = pipeline.decision_function(X)
    np.testing.assert_allclose(clf.decision_function(X), scores, atol=1e-5 * np.abs(scores).max())
    np.testing.assert_allclose(clf.objective_, pipeline[-1].objective_, rtol=1e-7)
    assert set(clf.support_) <= set(nystroem.component_indices_)
    np.testing.assert_array_equal(clf.X_fit_, X[clf.support_])


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_all_samples_as_landmarks_are_the_exact_fit(kernel, n_classes):
    X, y = groups([30] * n_classes, 4, seed=4)
    X = X @ X.T if kernel == "precomputed" else X
    whole = tight(X, y, kernel=kernel, n_components=len(y), random_state=0)
    check_same(whole, tight(X, y, kernel=kernel), X, 1e-4)


@pytest.mark.parametrize("solver", ["sgd", "sgd2"])
@pytest.mark.parametrize("n_classes", [2, 3])
@never_at_rest
def test_stochastic_solvers_on_landmarks(solver, n_classes):
    X, y = groups([60] * n_classes, 3, seed=4)
    parameters = {"gamma": 0.3, "n_components": 20, "random_state": 0}
    best = KernelGuruClassifier(0.3, **parameters).fit(X, y)
    clf = KernelGuruClassifier(0.3, solver=solver, average=True, max_iter=60, **parameters).fit(X, y)
    assert -best.dual_gap_ <= clf.objective_ - best.objective_ <= min(0.02 * best.objective_, clf.dual_gap_)


# --- degenerate kernels -----------------------------------------------------------------------------------


@with_and_without
def test_repeated_rows(fit_intercept):
    X, y, _ = sample()
    rows = np.r_[np.arange(80), np.arange(0, 80, 2), np.arange(0, 80, 4)]
    clf = tight(X[rows], y[rows], fit_intercept=fit_intercept)
    check_same(clf, tight(X, y, np.bincount(rows), fit_intercept=fit_intercept), X)
    assert len(set(clf.support_)) == len(clf.support_) == 80


@pytest.mark.parametrize("kernel", ["linear", "poly", lambda A, B: A @ B.T + 0.0], ids=["linear", "poly", "callable"])
def test_rank_one(kernel):
    x = np.random.default_rng(0).standard_normal((60, 1))
    y = np.where(x[:, 0] + 0.3 > 0, 1, -1)
    clf = tight(x, y, kernel=kernel, degree=1, coef0=0.0, gamma=1.0)
    check_same(clf, GuruClassifier(0.3, tol=1e-12).fit(x, y), x)
    assert len(clf.support_) == 1


@with_and_without
@pytest.mark.parametrize("level", [0.0, 1.0, 1e-8, 1e8])
@pytest.mark.parametrize("parameters", [{}, {"n_components": 5}], ids=["exact", "landmarks"])
def test_constant_kernels(fit_intercept, level, parameters):
    y = np.where(np.arange(20) < 14, 1, -1)
    K = np.full((20, 20), level)
    clf = KernelGuruClassifier(0.1 * np.sqrt(level or 1.0), kernel="precomputed", fit_intercept=fit_intercept)
    clf.set_params(**parameters)
    if fit_intercept or level == 0:
        with pytest.warns(CollapseWarning):
            clf.fit(K, y)
        np.testing.assert_array_equal(clf.decision_function(K), 1.0 * fit_intercept)
        np.testing.assert_allclose(clf.objective_, 12 if fit_intercept else 20)
    else:
        clf.fit(K, y)
        features = np.full((20, 1), np.sqrt(level))
        expected = GuruClassifier(clf.sigma, fit_intercept=False).fit(features, y)
        np.testing.assert_allclose(clf.decision_function(K), expected.decision_function(features), rtol=1e-6)


@never_at_rest
def test_zero_kernel_of_the_descent():
    y = np.where(np.arange(20) < 14, 1, -1)
    clf = KernelGuruClassifier(0.1, kernel="precomputed", solver="sgd", average=True).fit(np.zeros((20, 20)), y)
    assert np.isfinite(clf.objective_)
    assert clf.norm_[0] == 0
    assert clf.objective_ == pytest.approx(12, rel=0.05)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@with_and_without
def test_two_samples(kernel, fit_intercept):
    X, y = np.array([[0.5, 1.0], [1.0, -2.0]]), np.array(["a", "b"])
    clf = KernelGuruClassifier(0.1, kernel=kernel, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_array_equal(clf.predict(X), y)
    assert clf.dual_gap_ <= 2e-6


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_collapse(form):
    X, y = groups([50, 20], 3, seed=1)
    clf = KernelGuruClassifier(1e4)
    with pytest.warns(CollapseWarning, match="sigma=10000"):
        clf.fit(form(X), y)
    assert set(clf.predict(form(X))) == {0}
    assert clf.support_.shape == (0,)
    assert clf.dual_coef_.shape == (1, 0)
    assert clf.X_fit_.shape == (0, 3)
    assert not clf.norm_.any()
    np.testing.assert_array_equal(clf.predict_proba(form(X)), np.tile([1.0, 0.0], (70, 1)))
    clf.set_params(sigma=0.1, warm_start=True).fit(form(X), y)
    assert clf.dual_gap_ <= 1e-6 * len(y)


def test_features_of_a_factor():
    # Rank 40 of 700: several panels, and more rows left over than are looked at.
    A = np.random.default_rng(0).standard_normal((700, 40))
    for X in (A, np.vstack([A[:300], np.eye(40)])):
        Z, order, space = exact_features(Kernel("linear"), X)
        assert Z.shape == (len(X), 40)
        np.testing.assert_allclose(Z @ Z.T, X[order] @ X[order].T, atol=1e-10)
        W = np.random.default_rng(1).standard_normal((3, 40))
        np.testing.assert_allclose(space.coordinates(space.coefficients(W)), W, atol=1e-9)
    K = pairwise_kernels(A, metric="rbf", gamma=0.1)
    Z, order, space = exact_features(Kernel("precomputed"), K)
    np.testing.assert_array_equal(order, np.arange(700))
    np.testing.assert_allclose(Z, np.linalg.cholesky(K), atol=1e-12)
    np.testing.assert_allclose(space.of(K.copy()), Z, atol=1e-10)


# --- bad input --------------------------------------------------------------------------------------------


def indefinite(n):
    """Return a matrix of inner products but for one pair of rows."""
    K = np.eye(n)
    K[n // 2 :, n // 2 :] = 0.0
    K[-1, -2] = K[-2, -1] = 1.0
    return K


SAMPLE = sample()[:2]
BAD = {
    "not square": ({"kernel": "precomputed"}, SAMPLE[0], ValueError, r"square kernel matrix .* \(80, 4\)"),
    "asymmetric": ({"kernel": "precomputed"}, np.triu(np.ones((80, 80))), ValueError, "symmetric kernel matrix"),
    "indefinite": ({"kernel": "precomputed"}, 1 - 2 * np.eye(80), ValueError, "kernel must be positive semidefinite"),
    "negative": ({"kernel": "precomputed"}, -np.eye(80), ValueError, "kernel must be positive semidefinite"),
    "one pair": ({"kernel": "precomputed"}, indefinite(80), ValueError, "kernel must be positive semidefinite"),
    "indefinite landmarks": (
        {"kernel": "precomputed", "n_components": 80}, indefinite(80), ValueError, "positive semidefinite"),
    "sparse matrix": ({"kernel": "precomputed"}, sp.csr_array(np.eye(80)), TypeError, "X must be a dense kernel"),
    "sigmoid": ({"kernel": "sigmoid"}, SAMPLE[0], ValueError, "kernel must be positive semidefinite.*sigmoid"),
    "many components": ({"n_components": 81}, SAMPLE[0], ValueError, "n_components .* 80; got 81"),
    "no components": ({"n_components": 0}, SAMPLE[0], ValueError, "n_components .* >= 1; got 0"),
    "half a component": ({"n_components": 2.5}, SAMPLE[0], TypeError, "n_components .* got 2.5"),
    "negative gamma": ({"gamma": -1.0}, SAMPLE[0], ValueError, "gamma must be a finite number > 0; got -1.0"),
    "gamma name": ({"gamma": "foo"}, SAMPLE[0], ValueError, "gamma must be one of .*scale.*; got 'foo'"),
    "gamma none": ({"gamma": None}, SAMPLE[0], TypeError, "gamma must be"),
    "degree": ({"kernel": "poly", "degree": -1}, SAMPLE[0], ValueError, "degree must be"),
    "broken degree": ({"kernel": "poly", "degree": 2.5, "coef0": 0}, SAMPLE[0], ValueError, "finite numbers; 'poly'"),
    "coef0": ({"kernel": "poly", "coef0": np.nan}, SAMPLE[0], ValueError, "coef0 must be a finite number"),
    "cache": ({"cache_size": 0}, SAMPLE[0], ValueError, "cache_size must be"),
    "unknown": ({"kernel": "foo"}, SAMPLE[0], ValueError, "kernel must be one of .*rbf.*; got 'foo'"),
    "no kernel": ({"kernel": None}, SAMPLE[0], ValueError, "kernel must be one of .*; got None"),
    "no inner product": ({"kernel": "additive_chi2"}, SAMPLE[0], ValueError, "kernel must be one of"),
    "params": ({"kernel_params": {"gamma": 1}}, SAMPLE[0], ValueError, "kernel_params are for a callable"),
    "params no dict": (
        {"kernel": lambda A, B: A @ B.T, "kernel_params": 5}, SAMPLE[0], TypeError, "kernel_params .* got 5"),
    "nan": ({"kernel": lambda A, B: np.full((len(A), len(B)), np.nan)}, SAMPLE[0], ValueError, "must return finite"),
    "shape": ({"kernel": lambda A, B: A @ B.T[:, 1:]}, SAMPLE[0], ValueError, r"kernel must return .*\(80, 80\)"),
    "strings": ({"kernel": lambda A, B: np.full((len(A), len(B)), "a")}, SAMPLE[0], ValueError, "kernel must return"),
    "nothing": ({"kernel": lambda A, B: None}, SAMPLE[0], ValueError, "kernel must return numbers"),
    "chi2 negative": ({"kernel": "chi2"}, SAMPLE[0], ValueError, "X contains negative|Negative values in data"),
    "chi2 sparse": ({"kernel": "chi2"}, sp.csr_array(np.abs(SAMPLE[0])), TypeError, "dense data is required"),
    "nan in X": ({}, np.where(np.eye(80, 4) > 0, np.nan, 1.0), ValueError, "Input X contains NaN"),
    "large": ({}, SAMPLE[0] * 1e200, ValueError, "kernel must return finite numbers; 'rbf'"),
    "large linear": ({"kernel": "linear"}, SAMPLE[0] * 1e200, ValueError, "kernel must return finite numbers"),
    "large descent": ({"kernel": "linear", "solver": "sgd"}, SAMPLE[0] * 1e140, ValueError, "X has values|finite"),
}  # fmt: skip


@pytest.mark.parametrize(("parameters", "X", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_explained_and_changes_nothing(parameters, X, error, message):
    _, y = SAMPLE
    clf = KernelGuruClassifier(0.3).fit(*SAMPLE)
    clf.set_params(**parameters)
    before = dict(vars(clf))
    with pytest.raises(error, match=message):
        clf.fit(X, y)
    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is before[name] for name in before)


@pytest.mark.parametrize("factor", [1e-140, 1e140])
def test_values_whose_fourth_powers_overflow(factor):
    X, y = SAMPLE
    clf = KernelGuruClassifier(0.3 * factor, kernel="linear").fit(X * factor, y)
    check_same(clf, KernelGuruClassifier(0.3, kernel="linear").fit(X, y), X, again=X * factor)


def test_one_class_and_other_labels():
    X, _ = SAMPLE
    with pytest.raises(ValueError, match="at least two classes"):
        KernelGuruClassifier().fit(X, np.zeros(80))


def test_one_bad_pair_among_many_rows_is_found():
    # All rows that the factor was not made from may be bad, not only those that happen to be looked at.
    y = np.arange(1000) % 2
    K = np.eye(1000)
    K[800:, 800:] = 0.0
    K[900, 950] = K[950, 900] = 1.0
    with pytest.raises(ValueError, match="positive semidefinite"):
        KernelGuruClassifier(kernel="precomputed").fit(K, y)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", lambda A, B: A @ B.T], ids=["rbf", "precomputed", "callable"])
def test_nan_in_many_values_is_blamed_on_the_features(kernel):
    X = np.eye(1001)
    X[3, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        KernelGuruClassifier(kernel=kernel).fit(X, np.arange(1001) % 2)


def test_precomputed_predictions_need_all_columns():
    X, y = SAMPLE
    K = pairwise_kernels(X, metric="rbf")
    clf = KernelGuruClassifier(0.3, kernel="precomputed").fit(K, y)
    with pytest.raises(ValueError, match="X has 79 features, but KernelGuruClassifier is expecting 80"):
        clf.predict(K[:, :79])


@pytest.mark.parametrize("parameters", [{"sigma": 1e4}, {"sigma": 0.3, "solver": "sgd", "max_iter": 1}], ids=str)
def test_warnings_point_to_the_caller(parameters):
    X, y = SAMPLE
    with pytest.warns((CollapseWarning, ConvergenceWarning)) as caught:
        KernelGuruClassifier(**parameters).fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]


def test_verbose(capsys):
    X, y = SAMPLE
    clf = KernelGuruClassifier(0.3, verbose=1).fit(X, y)
    assert clf.n_iter_ <= capsys.readouterr().out.count("iteration") <= clf.n_iter_ + 1
    fit = partial(KernelGuruClassifier(0.3, verbose=1, solver="sgd", max_iter=2).fit, X, y)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        fit()
    assert capsys.readouterr().out.count("epoch") == 2


# --- growing subspaces ------------------------------------------------------------------------------------


@pytest.fixture
def spanned(monkeypatch):
    """Solve in a growing subspace however few samples there are."""
    always = partial(Subspace, least_unknowns=0)
    monkeypatch.setitem(KERNEL_SOLVERS, "newton", replace(KERNEL_SOLVERS["newton"], spanned=always))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("sigma", [0.003, 0.1, 0.3])
@pytest.mark.parametrize("l2", [0.0, 0.2])
@with_and_without
@pytest.mark.usefixtures("spanned")
def test_subspaces_end_at_the_optimum_of_the_whole_space(n_classes, sigma, l2, fit_intercept):
    X, y = groups([60, 50, 40][:n_classes], 3)
    weight = np.random.default_rng(0).uniform(0.3, 2.0, len(y))
    clf = KernelGuruClassifier(sigma, l2=l2, fit_intercept=fit_intercept).fit(X, y, weight)
    zero = weight.sum() * (n_classes - 1)
    assert clf.dual_gap_ <= 1e-6 * zero
    K = pairwise_kernels(X, metric="rbf", gamma=clf._kernel.params["gamma"])
    values, vectors = np.linalg.eigh(K)
    features = vectors * np.sqrt(np.maximum(values, 0.0))
    exact = GuruClassifier(sigma, l2=l2, fit_intercept=fit_intercept, tol=1e-9).fit(features, y, weight)
    assert exact.objective_ - exact.dual_gap_ <= clf.objective_ + 1e-9 * zero
    assert clf.objective_ <= exact.objective_ + clf.dual_gap_ + 1e-9 * zero


@pytest.mark.usefixtures("spanned")
def test_a_subspace_may_be_the_whole_space():
    X, y = clouds(60, 50, 2, 1.0)
    clf = KernelGuruClassifier(0.3, kernel="linear").fit(X, y)
    np.testing.assert_allclose(clf.objective_, GuruClassifier(0.3).fit(X, y).objective_, rtol=1e-6)


@pytest.mark.usefixtures("spanned")
def test_collapse_and_warm_start_in_a_subspace():
    X, y = clouds(20, 80, 2, 0.5)
    with pytest.warns(CollapseWarning):
        clf = KernelGuruClassifier(10.0).fit(X, y)
    assert not clf.dual_coef_.size
    clf = KernelGuruClassifier(0.01, warm_start=True).fit(X, y)
    cold, objective = clf.n_iter_, clf.objective_
    clf.fit(X, y)
    assert clf.n_iter_ < cold
    np.testing.assert_allclose(clf.objective_, objective, rtol=1e-5)
