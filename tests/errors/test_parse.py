"""The parser of X_err: one set of forms, checks and messages for every estimator and function."""

import astropy.units as u
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

import gaussguru
from gaussguru._errors.missing import standard_deviations, unmeasured
from gaussguru._errors.samples import split_errors
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Asymmetric, Limits, LowRank, Measured
from gaussguru.population import Deconvolve, predictive_of_errors, reliability
from gaussguru.preprocessing import WithErrors, errors_from_frame
from gaussguru.robustness import remeasure_gain
from gaussguru.sources import Arrays, Table

N, D = 60, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = (X[:, 0] + 0.3 * RNG.normal(size=N) > 0).astype(int)
ERR = RNG.uniform(0.1, 0.5, (N, D))
NAMES = ["a", "b", "c"]
SETTINGS = {
    "GuruClassifier": {"sigma": 0.3},
    "GuruClassifierCV": {"sigmas": 2, "cv": 2},
    "KernelGuruClassifier": {"sigma": 0.3},
    "ErrorBarClassifier": {"model": "linear", "cv": 2, "n_components": 1},
    "PopulationClassifier": {"n_components": 1},
    "WithErrors": {"transformer": StandardScaler()},
}


def public_estimators():
    """Yield every public estimator whose fit takes X_err."""
    classes = [getattr(gaussguru, name) for name in gaussguru.__all__]
    for kind in [*classes, Deconvolve, CalibratedWithErrorsCV, WithErrors]:
        if isinstance(kind, type) and hasattr(kind, "fit") and has_fit_parameter(kind, "X_err"):
            yield pytest.param(kind(**SETTINGS.get(kind.__name__, {})), id=kind.__name__)


every_estimator = pytest.mark.parametrize("model", list(public_estimators()))


def output(model, values, errors):
    """Return predictions of a classifier, or the values that a transformer makes."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(values, X_err=errors)
    if hasattr(model, "decision_function"):
        return model.decision_function(values, X_err=errors)
    found = model.transform(values, X_err=errors)
    return np.column_stack([np.asarray(found.X, dtype=float), np.asarray(found.err).reshape(len(found), -1)])


@pytest.fixture(scope="module")
def fitted():
    """Return what gives a fitted copy of an estimator, fitted once."""
    made = {}

    def fit(model):
        name = type(model).__name__
        if name not in made:
            made[name] = clone(model).fit(X, Y, X_err=ERR)
        return made[name]

    return fit


NOT_DEFINITE = np.tile(np.eye(D), (N, 1, 1))
NOT_DEFINITE[7, 0, 1] = NOT_DEFINITE[7, 1, 0] = 2.0
NOT_SYMMETRIC = np.tile(np.eye(D), (N, 1, 1))
NOT_SYMMETRIC[5, 0, 1] = 0.5
NEGATIVE = np.where(np.arange(N)[:, None] == 3, -1.0, ERR)
GAP = np.where(np.arange(N)[:, None] == 3, np.nan, ERR)
WRONG = {
    "rows": (ERR[:5], r"X_err must hold standard deviations of shape \(60,\) or \(60, 3\).*got shape \(5, 3\)"),
    "columns": (ERR[:, :2], r"X_err must hold standard deviations.*got shape \(60, 2\)"),
    "one row": (ERR[0], r"X_err must hold standard deviations.*got shape \(3,\).*numpy.tile\(X_err, \(60, 1\)\)"),
    "sparse": (sp.csr_array(ERR[:5]), r"X_err must hold standard deviations.*got a sparse array of shape \(5, 3\)"),
    "covariances": (NOT_DEFINITE[:, :2], r"covariances of shape \(60, 3, 3\).*got shape \(60, 2, 3\)"),
    "negative": (NEGATIVE, "X_err must hold nonnegative standard deviations; got -1"),
    "NaN": (GAP, "X_err has NaN: every value needs an error bar"),
    "text": (np.full((N, D), "wide"), "X_err must hold numbers"),
    "definite": (NOT_DEFINITE, "positive semidefinite covariances; that of sample 7 has the eigenvalue -1"),
    "symmetric": (NOT_SYMMETRIC, "X_err must hold symmetric covariances; that of sample 5 differs from its transpose"),
    "factors": (LowRank(np.ones((N, 2, 1))), r"X_err.factors must have shape \(60, 3, rank\); got \(60, 2, 1\)"),
    "sides": (Asymmetric(ERR, -ERR), "the upper side of X_err must hold nonnegative standard deviations"),
    "limits": (Limits(ERR, np.zeros((N, 2))), r"limits of shape \(60, 3\), that of X; got shape \(60, 2\)"),
    "names": (pd.DataFrame(ERR, columns=NAMES), r"X_err must have the columns of X; it has names.*and X has none"),
    "booleans": (ERR > 0.3, "X_err must hold standard deviations; got booleans"),
    "durations": (ERR.astype("timedelta64[s]"), "X_err must hold numbers; got dates or durations"),
    "units": (ERR * u.mJy, "X_err must hold plain numbers.*got values in 'mJy'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
@every_estimator
def test_wrong_errors_have_one_message(model, kind, fitted):
    errors, message = WRONG[kind]
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, Y, X_err=errors)
    with pytest.raises(ValueError, match=message):
        output(fitted(model), X, errors)


@pytest.mark.parametrize("kind", WRONG)
def test_functions_have_the_same_messages(kind, fitted):
    errors, message = WRONG[kind]
    model = fitted(gaussguru.ErrorBarClassifier(**SETTINGS["ErrorBarClassifier"]))
    for call in (
        lambda: reliability(X, errors),
        lambda: remeasure_gain(model, X, errors),
        lambda: model.refit_population(X, errors),
        lambda: model.population_.score_samples(X, errors),
        lambda: fitted(gaussguru.GuruClassifier(0.3)).population_.fill(X, errors),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@every_estimator
def test_errors_of_few_samples_are_their_own(model, fitted):
    """Errors of more samples are not cut, and an error for each feature is not one for each sample."""
    for n, errors in ((5, ERR), (1, ERR[0]), (1, ERR[:, 0])):
        with pytest.raises(ValueError, match=rf"X_err must hold standard deviations of shape \({n},\)"):
            output(fitted(model), X[:n], errors)


@every_estimator
def test_one_number_is_the_error_of_every_value(model, fitted):
    np.testing.assert_array_equal(output(fitted(model), X, 0.3), output(fitted(model), X, np.full(N, 0.3)))
    with pytest.raises(ValueError, match="nonnegative"):
        output(fitted(model), X, -0.3)


def holes():
    values = X.copy()
    values[3, 1] = values[8, 2] = np.nan
    return values


def masked(values):
    return np.ma.array(np.where(np.isnan(values), 1e6, values), mask=np.isnan(values))


FRAMES = {
    "pandas": lambda values: pd.DataFrame(values, columns=NAMES),
    "nullable": lambda values: pd.DataFrame(values, columns=NAMES).convert_dtypes(),
    "arrow": lambda values: pd.DataFrame(values, columns=NAMES).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda values: pl.DataFrame(values, schema=NAMES),
    "Arrow table": lambda values: pa.table(dict(zip(NAMES, values.T, strict=True))),
    "masked": masked,
}


@pytest.mark.parametrize("form", FRAMES)
@every_estimator
def test_values_that_a_table_or_a_mask_leaves_out_were_not_measured(model, form):
    values, table = holes(), FRAMES[form](holes())
    expected, found = (clone(model).fit(part, Y, X_err=ERR) for part in (values, table))
    np.testing.assert_allclose(output(found, table, ERR), output(expected, values, ERR), rtol=1e-12)
    if form != "masked":
        assert list(found.feature_names_in_ if hasattr(found, "feature_names_in_") else NAMES) == NAMES
        errors = FRAMES[form](ERR)
        np.testing.assert_allclose(output(found, table, errors), output(expected, values, ERR), rtol=1e-12)


@every_estimator
def test_values_with_masked_errors_were_not_measured(model, fitted):
    errors = np.ma.array(ERR, mask=np.isnan(holes()))
    infinite = np.where(np.isnan(holes()), np.inf, ERR)
    np.testing.assert_array_equal(output(fitted(model), X, errors), output(fitted(model), X, infinite))


@every_estimator
def test_numbers_under_a_mask_are_never_read(model):
    """Without errors, a masked value is NaN: refused, or left to an estimator that takes NaN."""
    results = []
    for under in (1e6, 7.0):
        values = np.ma.array(np.where(np.isnan(holes()), under, holes()), mask=np.isnan(holes()))
        try:
            results.append(output(clone(model).fit(values, Y), X, None))
        except (ValueError, AttributeError) as error:  # WithErrors returns no errors if there are none
            results.append(np.array([str(error)]))
    np.testing.assert_array_equal(*results)
    assert results[0].dtype.kind == "f" or "NaN" in results[0][0] or "err" in results[0][0]


@pytest.mark.parametrize("name", ["GuruClassifier", "AdversarialSVC", "TotalSVC", "ErrorBarClassifier"])
def test_masked_labels_and_weights_are_refused(name):
    model = getattr(gaussguru, name)()
    hidden = np.arange(N) == 4
    with pytest.raises(ValueError, match="y must have a value for every sample; 1 are masked"):
        model.fit(X, np.ma.array(Y, mask=hidden))
    with pytest.raises(ValueError, match="sample_weight must have a value for every sample; 1 are masked"):
        model.fit(X, Y, sample_weight=np.ma.array(np.ones(N), mask=hidden))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(masked(holes()), Y)
    with pytest.raises(ValueError, match="y must have a value for every sample; 1 are masked"):
        predictive_of_errors(ERR, np.ma.array(Y, mask=hidden))


@every_estimator
def test_times_are_refused(model, fitted):
    """Their numbers depend on a unit that nothing shows."""
    times = (1e9 * X).astype("datetime64[ms]")
    forms = [times, pd.DataFrame(times, columns=NAMES), pl.DataFrame({"a": times[:, 0], "b": X[:, 1], "c": X[:, 2]})]
    for values in forms[:1] if isinstance(model, WithErrors) else forms:  # transformers may know how to encode them
        for errors in (None, 0.1):
            with pytest.raises(ValueError, match="X must hold numbers; got dates or durations"):
                clone(model).fit(values, Y, X_err=errors)
            with pytest.raises(ValueError, match=r"X must hold numbers; got dates|feature names|X_err is missing"):
                output(fitted(model), values, errors)


@every_estimator
@pytest.mark.parametrize(
    "frame",
    [lambda x, names: pd.DataFrame(x, columns=names), lambda x, names: pa.table([*x.T], names)],
    ids=["pandas", "Arrow"],
)
def test_columns_with_one_name_are_refused(model, fitted, frame):
    """No order of such columns can be checked."""
    message = "must have columns of different names; got 'a' 2 times, 'b' 3 times"
    values, errors = np.c_[X, X[:, :2]], np.c_[ERR, ERR[:, :2]]
    twice, apart = ["a", "b", "b", "a", "b"], list("vwxyz")
    for X_err in (None, 0.1, frame(errors, twice), frame(errors, apart)):
        with pytest.raises(ValueError, match=f"X {message}"):
            clone(model).fit(frame(values, twice), Y, X_err=X_err)
    with pytest.raises(ValueError, match=f"X_err {message}"):
        clone(model).fit(frame(values, apart), Y, X_err=frame(errors, twice))
    with pytest.raises(ValueError, match=f"X {message}"):
        output(fitted(model), frame(values, twice), 0.1)


def test_times_in_a_source_are_refused(tmp_path):
    frame = pd.DataFrame({"a": pd.to_timedelta(X[:, 0], unit="s"), "a_err": ERR[:, 0], "y": Y})
    for columns, X_err in ((["a", "y"], None), (["a", "a_err", "y"], "auto")):
        frame[columns].to_parquet(tmp_path / "table.parquet")
        for source in (dd.from_pandas(frame[columns], npartitions=2), Table(tmp_path / "table.parquet")):
            with pytest.raises(ValueError, match="must hold numbers"):
                gaussguru.GuruClassifier(0.3).fit(source, "y", X_err=X_err)
    with pytest.raises(ValueError, match="got dates or durations"):
        gaussguru.GuruClassifier(0.3).fit(Arrays(X.astype("datetime64[s]")), Y)


@every_estimator
def test_units_are_refused(model):
    with pytest.raises(ValueError, match=r"X must hold plain numbers.*got values in 'Jy'"):
        clone(model).fit(X * u.Jy, Y, X_err=1e3 * ERR * u.mJy)
    with pytest.raises(ValueError, match=r"X must hold plain numbers.*got values in 'Jy'"):
        clone(model).fit(X * u.Jy, Y)


def test_errors_do_not_meet_other_columns():
    """A step that reorders columns makes an array of which nothing is known but the number of columns."""
    swap = ColumnTransformer([("second", StandardScaler(), ["b"]), ("rest", "passthrough", ["c", "a"])])
    table, errors = (pd.DataFrame(values, columns=NAMES) for values in (X, ERR))
    with sklearn.config_context(enable_metadata_routing=True):
        model = Pipeline([("swap", swap), ("classify", gaussguru.GuruClassifier(0.3).set_fit_request(X_err=True))])
        with pytest.raises(ValueError, match=r"X_err must have the columns of X; it has names"):
            model.fit(table, Y, X_err=errors)
        named = Pipeline([("swap", clone(swap).set_output(transform="pandas")), *model.steps[1:]])
        with pytest.raises(ValueError, match=r"the columns of X, in the same order; got 'a' where X has"):
            named.fit(table, Y, X_err=errors)
        inside = Pipeline([("swap", WithErrors(swap)), ("classify", gaussguru.GuruClassifier(0.3))])
        inside.fit(table, Y, X_err=errors)
    by_hand = np.column_stack([(X[:, 1] - X[:, 1].mean()) / X[:, 1].std(), X[:, 2], X[:, 0]])
    other = gaussguru.GuruClassifier(0.3).fit(by_hand, Y, X_err=ERR[:, [1, 2, 0]] / [X[:, 1].std(), 1, 1])
    np.testing.assert_allclose(inside[-1].coef_, other.coef_, rtol=1e-4)
    swapped = errors[["c", "b", "a"]]
    for side, X_err in (("lower", Asymmetric(swapped, errors)), ("upper", Asymmetric(errors, swapped))):
        with pytest.raises(ValueError, match=f"^the {side} side of X_err must have the columns of X"):
            reliability(table, X_err)


# --- the forms that come out --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["sample", "value", "covariance", "low rank", "sparse", "limits"]))
def test_parsing_twice_changes_nothing(seed, form):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    values = np.where(rng.random((n, d)) < 0.2, np.nan, rng.normal(size=(n, d)))
    std = np.where(rng.random((n, d)) < 0.2, np.inf, rng.uniform(0, 2, (n, d)))
    factors = rng.normal(size=(n, d, 2))
    errors = {
        "sample": std[:, 0],
        "value": std,
        "covariance": factors @ factors.transpose(0, 2, 1) + np.eye(d) * np.where(np.isinf(std), 0, std)[:, :, None],
        "low rank": LowRank(factors, std),
        "sparse": sp.csr_array(np.where(np.isinf(std), 0.0, std)),
        "limits": Limits(np.where(np.isinf(std), 0.3, std), rng.integers(-1, 2, (n, d))),
    }[form]
    once = split_errors(values, errors)
    twice = split_errors(*once)
    np.testing.assert_array_equal(once[0], twice[0])
    shape = (n, d)
    sizes = standard_deviations(once[1], shape)
    np.testing.assert_array_equal(sizes, standard_deviations(twice[1], shape))
    assert np.array_equal(np.isinf(sizes), unmeasured(once[1], shape))
    assert np.isinf(sizes[np.isnan(values)]).all()
    assert not np.isnan(sizes).any()
    rows = rng.permutation(n)
    samples = Measured.checked(*once)[rows]
    np.testing.assert_array_equal(standard_deviations(samples.err, shape), sizes[rows])


def test_errors_alone_are_parsed():
    wide = predictive_of_errors(ERR, Y)
    assert predictive_of_errors(pd.DataFrame(ERR, columns=NAMES), Y) == wide
    assert predictive_of_errors(LowRank(np.zeros((N, D, 1)), ERR), Y) == wide
    assert predictive_of_errors(NOT_DEFINITE * 0 + np.eye(D) * np.square(ERR)[:, :, None], Y) == pytest.approx(wide)
    with pytest.raises(ValueError, match="same number of samples; got 60 and 59"):
        predictive_of_errors(ERR, Y[1:])
    with pytest.raises(ValueError, match="nonnegative"):
        predictive_of_errors(-ERR, Y)


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table], ids=["polars", "Arrow"])
def test_error_columns_of_other_frames(make):
    columns = {"a": [1.0, None, 3.0], "a_err1": [0.1, 0.2, 0.3], "a_err2": [-0.2, None, -0.3], "n": [1, 2, 3]}
    columns |= {"b": [1.0, 2.0, 3.0], "b_err": [0.5, 0.5, 0.6], "b_limit": [0, -1, 0]}
    frames = errors_from_frame(make(columns)), errors_from_frame(pd.DataFrame(columns).astype(float))
    (found, bars), (expected, others) = (split_errors(*pair) for pair in frames)
    assert type(frames[0][0]) is type(make(columns))
    np.testing.assert_array_equal(np.asarray(found, dtype=float), np.asarray(expected, dtype=float))
    np.testing.assert_array_equal(bars.err, others.err)
    np.testing.assert_array_equal(bars.limits, others.limits)


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_transformers_that_make_frames(output):
    carrier = WithErrors(StandardScaler()).set_output(transform=output).fit(pd.DataFrame(X, columns=NAMES), X_err=ERR)
    found = carrier.transform(pd.DataFrame(X, columns=NAMES), X_err=ERR)
    assert type(found.X).__module__.startswith(output)
    np.testing.assert_allclose(found.err, ERR / X.std(axis=0))
    model = gaussguru.GuruClassifier(0.3).fit(found, Y)
    assert list(model.feature_names_in_) == NAMES
