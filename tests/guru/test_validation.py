"""Bad input: errors name the argument, the value and the valid ones."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from gaussguru import CollapseWarning, GuruClassifier, sigma_max
from gaussguru._guru.base import with_advice
from gaussguru._guru.solvers.registry import SOLVERS
from gaussguru._utils.blocks import MANY_VALUES
from gaussguru._utils.checks import ParameterError
from gaussguru.losses import LOSSES
from gaussguru.noise import NOISES

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 3))
Y = np.arange(20) % 2
X[:, 0] += Y


def test_errors_of_parameters_carry_the_name():
    for options, name in (
        ({"sigma": -1.0}, "sigma"),
        ({"l2": -1.0}, "l2"),
        ({"tol": 0.0}, "tol"),
        ({"n_jobs": 0}, "n_jobs"),
    ):
        with pytest.raises(ParameterError) as caught:
            GuruClassifier(**options).fit(X, Y)
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert error.parameter == name
            assert str(error) == f"{name} {error.words}"


def test_advice_may_name_parameters_by_other_words():
    with pytest.warns(CollapseWarning) as caught:
        GuruClassifier(1e4).fit(X[:19], Y[:19])
    warning = caught[0].message
    assert "use class_weight='balanced', a smaller sigma (" in str(warning)
    assert str(warning).endswith("), or fit_intercept=False")
    told = with_advice(warning.problem, warning.advice, {"sigma": "--sigma"})
    assert ": a smaller --sigma (sigma_max bounds it" in told
    assert "fit_intercept" not in told
    assert with_advice(warning.problem, warning.advice, {}) == warning.problem


def put(array, value, index=(0,)):
    array = np.array(array, dtype=np.result_type(array, type(value)))
    array[index] = value
    return array


def check(error, parts, action):
    with pytest.raises(error) as caught:
        action()
    for part in parts:
        assert part in str(caught.value), str(caught.value)


PARAMETERS = [
    *[("sigma", value, ValueError, [repr(value), "> 0"]) for value in (0, 0.0)],  # 0 needs X_err or l2
    *[("sigma", value, ValueError, [repr(value), ">= 0"]) for value in (-1.0, np.nan, np.inf, -np.inf)],
    *[("sigma", value, TypeError, [repr(value), "number"]) for value in ("1", True, None, [1.0], 1j)],
    *[("l2", value, ValueError, [repr(value), ">= 0"]) for value in (-1.0, np.nan, np.inf)],
    *[("l2", value, TypeError, [repr(value), "number"]) for value in ("0", None, False)],
    *[("tol", value, ValueError, [repr(value), "> 0"]) for value in (0, 0.0, -1e-3, np.nan, np.inf)],
    *[("tol", value, TypeError, [repr(value), "number"]) for value in ("tight", None)],
    *[("max_iter", value, ValueError, [repr(value), ">= 1"]) for value in (0, -5)],
    *[("max_iter", value, TypeError, [repr(value), "whole number"]) for value in (1.5, "10", None, True)],
    *[("noise", value, ValueError, ["noise", *NOISES]) for value in ("loud", None, 1.0)],
    *[("noise", value, ValueError, ["noise", *NOISES]) for value in (np.eye(2), np.ones((20, 3)), np.ones(7))],
    *[("loss", value, ValueError, ["loss", *LOSSES]) for value in ("square", None, 3)],
    *[("solver", value, ValueError, ["solver", *SOLVERS]) for value in ("magic", None, 3)],
    *[("class_weight", value, ValueError, ["class_weight", "balanced"]) for value in ("nonsense", 3, [1, 2])],
    ("class_weight", {7: 1.0}, ValueError, ["class_weight", "7", "[0, 1]"]),
    ("class_weight", {0: -1.0}, ValueError, ["class_weight[0]", "-1.0", "> 0"]),
    ("class_weight", {0: np.nan}, ValueError, ["class_weight[0]", "nan"]),
    ("class_weight", {1: "heavy"}, TypeError, ["class_weight[1]", "heavy"]),
    *[("n_jobs", value, (ValueError, TypeError), ["n_jobs", repr(value)]) for value in (0, 1.5, "all", True)],
    ("random_state", "dice", ValueError, ["dice"]),
    *[("verbose", value, (ValueError, TypeError), ["verbose"]) for value in ("loud", None, [])],
]


@pytest.mark.parametrize(("name", "value", "error", "parts"), PARAMETERS)
def test_parameters(name, value, error, parts):
    check(error, [name, *parts] if name != "random_state" else parts, lambda: GuruClassifier(**{name: value}).fit(X, Y))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "form", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)], ids=["dense", "csr", "f32"]
)
def test_features_not_finite(form, value):
    bad = form(put(X, value, (3, 1)))
    parts = ["X", "NaN" if np.isnan(value) else "infinity"]
    check(ValueError, parts, lambda: GuruClassifier().fit(bad, Y))
    check(ValueError, parts, lambda: sigma_max(bad, Y))
    check(ValueError, parts, lambda: GuruClassifier(fit_intercept=False, sigma=1e-6).fit(bad, Y))
    check(ValueError, parts, lambda: GuruClassifier().fit(X, Y).predict(bad))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", ["dense", "float32", "csr"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("warm", [True, False])
def test_features_not_finite_found_late(form, value, fit_intercept, warm):
    n = MANY_VALUES // 4 + 1000
    big = np.random.default_rng(0).standard_normal((n, 4), dtype=np.float32)
    y = np.arange(n) % 3 == 0
    big[:, 0] += y
    if form == "dense":
        big = big.astype(np.float64)
    clf = GuruClassifier(warm_start=True, fit_intercept=fit_intercept)
    if warm:
        clf.fit(big[:100], y[:100])
    big[-7, 2] = value
    before = dict(vars(clf))
    bad = sp.csr_array(big) if form == "csr" else big
    check(ValueError, ["X", "NaN" if np.isnan(value) else "infinity"], lambda: clf.fit(bad, y))
    assert vars(clf) == before


def test_features_with_zero_weight_must_be_finite_too():
    n = MANY_VALUES // 4 + 1000
    big = np.random.default_rng(0).standard_normal((n, 4))
    y, weight = np.arange(n) % 2, np.ones(n)
    big[0, 0], weight[0] = np.nan, 0.0
    check(ValueError, ["X", "NaN"], lambda: GuruClassifier().fit(big, y, weight))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_features_whose_squares_overflow(fit_intercept):
    plain = GuruClassifier(0.5, fit_intercept=fit_intercept).fit(X, Y)
    for unit in (1e200, 1e-200, 1e300):
        clf = GuruClassifier(0.5 * unit, fit_intercept=fit_intercept).fit(X * unit, Y)
        np.testing.assert_allclose(clf.coef_ * unit, plain.coef_, rtol=1e-12)
        np.testing.assert_allclose(clf.intercept_, plain.intercept_, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("unit", [1e20, 1e200])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("noise", ["isotropic", "axis", [1.0, 2.0, 0.5], np.eye(3) + 0.5], ids=str)
def test_noise_that_is_nothing_beside_the_features(noise, fit_intercept, unit):
    """It may be too little to prove anything, but the bound is true: F is that of a linear program."""
    y, n = np.where(np.equal(Y, np.unique(Y)[1]), 1.0, -1.0), len(Y)
    rows = y[:, np.newaxis] * np.column_stack([X, np.full(n, float(fit_intercept)), np.diag(y)])
    cost, bounds = np.repeat([0.0, 1.0], [X.shape[1] + 1, n]), [(None, None)] * (X.shape[1] + 1) + [(0, None)] * n
    least = linprog(cost, A_ub=-rows, b_ub=-np.ones(n), bounds=bounds).fun
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        clf = GuruClassifier(noise=noise, fit_intercept=fit_intercept).fit(X * unit, Y)
    texts = [str(warning.message) for warning in caught]
    assert clf.converged_ == (not texts)
    assert all("double precision" in text and "increase sigma" in text for text in texts)
    assert clf.objective_ - clf.dual_gap_ <= least * (1 + 1e-9)
    np.testing.assert_allclose(clf.objective_, least, rtol=1e-6)
    assert clf.n_iter_ < (50 if isinstance(noise, str) else 100)


def test_features_whose_squares_overflow_where_units_stay():
    check(ValueError, ["X", "overflow", "rescale"], lambda: sigma_max(X * 1e200, Y))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_features_whose_squares_overflow_beside_others(fit_intercept):
    """One unit serves all features, so those that are small beside the largest are nothing."""
    wide = X * [1e200, 1e-200, 1.0]
    clf = GuruClassifier(1e200, fit_intercept=fit_intercept).fit(wide, Y)
    alone = GuruClassifier(1e200, fit_intercept=fit_intercept).fit(wide[:, :1], Y)
    np.testing.assert_allclose(clf.objective_, alone.objective_, rtol=1e-12)


FEATURES = {
    "1-d": (X[:, 0], ["2D"]),
    "3-d": (X[:, :, None], ["dim 3"]),
    "complex": (X + 1j, ["omplex", "X", "complex128"]),
    "string": (np.array([["a", "b"]] * 20), ["X", "numbers", "strings", "<U1"]),
    "numbers as strings": (X.astype(str), ["X", "numbers", "strings"]),
    "objects": (np.array([["a", 1.0]] * 20, dtype=object), ["X", "numbers", "'a'"]),
    "no columns": (X[:, :0], ["0 feature"]),
    "no rows": (X[:0], ["0 sample"]),
    "complex csr": (sp.csr_array(X + 1j), ["omplex"]),
}


@pytest.mark.parametrize(("bad", "parts"), FEATURES.values(), ids=FEATURES.keys())
def test_features(bad, parts):
    check((ValueError, TypeError), parts, lambda: GuruClassifier().fit(bad, Y[: bad.shape[0]]))


LABELS = {
    "nan": (put(Y, np.nan), ["y", "NaN"]),
    "inf": (put(Y, np.inf), ["y", "infinity"]),
    "one class": (np.ones(20, dtype=int), ["y", "one class", "1"]),
    "one string": (np.array(["cat"] * 20), ["y", "one class", "cat"]),
    "continuous": (np.linspace(0, 1, 20), ["continuous"]),
    "too short": (Y[:10], ["20", "10"]),
    "too long": (np.tile(Y, 2), ["20", "40"]),
    "two columns": (np.column_stack([Y, Y]), ["y", "(20, 2)"]),
    "missing": (None, ["y"]),
}


@pytest.mark.parametrize(("bad", "parts"), LABELS.values(), ids=LABELS.keys())
def test_labels(bad, parts):
    check(ValueError, parts, lambda: GuruClassifier().fit(X, bad))
    check(ValueError, parts, lambda: sigma_max(X, bad))


ONES = np.ones(20)
WEIGHTS = {
    "nan": (put(ONES, np.nan), ["NaN"]),
    "inf": (put(ONES, np.inf), ["infinity"]),
    "negative": (put(ONES, -0.5), ["negative", "-0.5"]),
    "all zero": (np.zeros(20), ["zero"]),
    "no second class": (1.0 - Y, ["class", "1", "weight"]),
    "no first class": (Y * 1.0, ["class", "0", "weight"]),
    "too short": (np.ones(19), ["(20,)", "(19,)"]),
    "two columns": (np.ones((20, 2)), ["(20,)", "(20, 2)"]),
    "negative scalar": (-1.0, ["-1.0", "> 0"]),
    "zero scalar": (0.0, ["0.0", "> 0"]),
    "nan scalar": (np.nan, ["nan", "finite"]),
    "string": (np.array(["heavy"] * 20), ["heavy"]),
    "complex": (ONES + 1j, ["omplex"]),
}


@pytest.mark.parametrize(("bad", "parts"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_weights(bad, parts):
    named = [] if set(parts) & {"heavy", "omplex"} else ["sample_weight"]
    check(ValueError, [*named, *parts], lambda: GuruClassifier().fit(X, Y, bad))
    check(ValueError, [*named, *parts], lambda: sigma_max(X, Y, bad))


def test_wrong_number_of_features_at_prediction():
    clf = GuruClassifier().fit(X, Y)
    for method in (clf.predict, clf.decision_function, clf.predict_proba):
        check(ValueError, ["2 features", "3 features"], lambda method=method: method(X[:, :2]))
