"""Categories beside measured values: encoders in a ColumnTransformer inside WithErrors."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

from gaussguru import ErrorBarClassifier, GuruClassifier, Measured
from gaussguru.errors import Asymmetric, Limits, LowRank
from gaussguru.preprocessing import WithErrors

N = 60
RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(N, 2)) * [2.0, 5.0]
ERR = RNG.uniform(0.1, 0.8, (N, 2))
SITE, GRADE = RNG.choice(["north", "south", "west"], N), RNG.choice(["low", "high"], N)
Y = (NUMBERS[:, 0] + 2.0 * (SITE == "north") > 0.5).astype(int)
ALL = ["flux", "site", "time", "grade"]


def table(library=pd.DataFrame, numbers=NUMBERS):
    return library({"flux": numbers[:, 0], "site": SITE, "time": numbers[:, 1], "grade": GRADE})


def errors_of(library=pd.DataFrame, errors=ERR, **text):
    columns = {"flux": errors[:, 0], "site": text.get("site"), "time": errors[:, 1], "grade": text.get("grade")}
    return library({name: values for name, values in columns.items() if values is not None})


def encoding(numbers=None, **options):
    return ColumnTransformer(
        [
            ("site", OneHotEncoder(drop="first", **options), ["site"]),
            ("numbers", StandardScaler() if numbers is None else numbers, ["time", "flux"]),
            ("grade", OrdinalEncoder(), ["grade"]),
        ]
    )


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("text", ["left out", "zero", "empty"])
@pytest.mark.parametrize("options", [{}, {"sparse_output": False}])
def test_values_and_errors_are_those_of_the_branches(library, text, options):
    given = {"left out": {}, "zero": {"site": np.zeros(N), "grade": np.zeros(N)}, "empty": {"site": [None] * N}}[text]
    X, X_err = table(library), errors_of(library, **given)
    found = WithErrors(encoding(**options)).fit_transform(X, X_err=X_err)
    scaled = WithErrors(StandardScaler()).fit_transform(NUMBERS[:, ::-1], X_err=ERR[:, ::-1])
    np.testing.assert_allclose(found.X[:, 2:4], scaled.X, rtol=1e-12)
    np.testing.assert_allclose(found.err[:, 2:4], scaled.err, rtol=1e-12)
    np.testing.assert_array_equal(found.X[:, :2], np.column_stack([SITE == "south", SITE == "west"]))
    np.testing.assert_array_equal(found.X[:, 4], GRADE == "low")
    assert not found.err[:, [0, 1, 4]].any()


ROOTS = RNG.normal(size=(N, 2, 2))
FORMS = {
    "isotropic": ERR[:, 0],
    "covariances": ROOTS @ ROOTS.transpose(0, 2, 1),
    "low rank": LowRank(ROOTS, ERR),
    "limits": Limits(ERR, np.where(ERR > 0.7, -1, 0)),
    "asymmetric": Asymmetric(ERR, 2 * ERR),
}


def padded(errors):
    """Return errors of two numbers for the four columns of the table."""
    where = [0, 2]
    if isinstance(errors, LowRank):
        factors = np.zeros((N, 4, errors.factors.shape[2]))
        factors[:, where] = errors.factors
        return LowRank(factors, padded(errors.std))
    if isinstance(errors, Limits):
        return Limits(padded(errors.err), padded(errors.limits))
    if isinstance(errors, Asymmetric):
        return Asymmetric(padded(errors.lower), padded(errors.upper))
    result = np.zeros((N, 4) if errors.ndim < 3 else (N, 4, 4))
    if errors.ndim == 3:
        result[np.ix_(np.arange(N), where, where)] = errors
    else:
        result[:, where] = errors.reshape(N, -1)
    return result


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bend", [StandardScaler(), FunctionTransformer(np.arcsinh)])
def test_every_form_of_errors_goes_through_its_branch(form, bend):
    if form == "asymmetric":
        given = Asymmetric(errors_of(errors=ERR), errors_of(errors=2 * ERR))  # tables without text
    else:
        given = padded(FORMS[form])
    found = WithErrors(encoding(bend, sparse_output=False)).fit_transform(table(), X_err=given)
    swapped = [1, 0]
    alone = FORMS[form]
    alone = np.repeat(alone[:, np.newaxis], 2, axis=1) if form == "isotropic" else alone
    selected = Measured(NUMBERS, alone)[:, swapped]
    expected = WithErrors(bend).fit_transform(selected)
    numbers = found[:, [2, 3]]
    np.testing.assert_allclose(numbers.X, expected.X, rtol=1e-9)
    for part, other in ((found[:, [2, 3]].err, expected.err),):
        if isinstance(other, LowRank):
            np.testing.assert_allclose(
                *(np.einsum("ijr,ikr->ijk", e.factors, e.factors) for e in (part, other)), rtol=1e-9, atol=1e-12
            )
            np.testing.assert_allclose(part.std, other.std, rtol=1e-9)
        elif isinstance(other, Limits):
            np.testing.assert_allclose(part.err, other.err, rtol=1e-9)
            np.testing.assert_array_equal(part.limits, other.limits)
        else:
            np.testing.assert_allclose(part, other, rtol=1e-9, atol=1e-12)


def test_gaps_of_numbers_beside_text():
    """A table with text has NaN as any other: not measured."""
    numbers = np.where(np.arange(2 * N).reshape(N, 2) % 9 == 4, np.nan, NUMBERS)
    found = WithErrors(encoding(sparse_output=False)).fit_transform(table(numbers=numbers), X_err=errors_of())
    np.testing.assert_array_equal(np.isinf(found.err[:, [3, 2]]), np.isnan(numbers))
    assert not found.err[:, [0, 1, 4]].any()
    with pytest.raises(ValueError, match="Input X contains NaN"):
        WithErrors(encoding()).fit(table(numbers=numbers))


def test_codes_are_categories_to_an_encoder():
    codes = RNG.integers(0, 3, N).astype(float)
    X = np.column_stack([NUMBERS, codes])
    X_err = np.column_stack([ERR, np.zeros(N)])
    encode = ColumnTransformer([("codes", OneHotEncoder(sparse_output=False), [2])], remainder="passthrough")
    found = WithErrors(encode).fit_transform(X, X_err=X_err)
    np.testing.assert_array_equal(found.X, np.column_stack([codes == 0, codes == 1, codes == 2, NUMBERS]))
    np.testing.assert_allclose(found.err, np.column_stack([np.zeros((N, 3)), ERR]), rtol=1e-12)


def test_unknown_categories_and_folds():
    X = table()
    model = make_pipeline(
        WithErrors(encoding(handle_unknown="ignore", sparse_output=False)),
        ErrorBarClassifier(model="linear", n_components=1, cv=2),
    )
    samples = Measured(X, errors_of())
    scores = cross_val_score(model, samples, Y, cv=3, scoring="neg_log_loss", error_score="raise")
    assert (scores > -0.65).all()
    model.fit(samples, Y)
    new = X[:2].assign(site="elsewhere")
    with pytest.warns(UserWarning, match="unknown categories"):
        assert model.predict_proba(Measured(new, errors_of()[:2])).shape == (2, 2)


def test_fit_without_errors_and_transform_with():
    step = WithErrors(encoding(sparse_output=False)).fit(table())
    plain = step.transform(table())
    np.testing.assert_array_equal(step.transform(table(), X_err=errors_of()).X, plain)
    assert step.get_feature_names_out().tolist()[2:4] == ["numbers__time", "numbers__flux"]


def test_tables_stay_tables():
    step = WithErrors(encoding(sparse_output=False)).set_output(transform="pandas")
    found = step.fit_transform(table(), X_err=errors_of())
    assert found.columns.tolist() == step.get_feature_names_out().tolist()


REFUSED = {
    "an error of text": (
        lambda: WithErrors(encoding()).fit_transform(table(), X_err=errors_of(site=np.full(N, 0.5))),
        "X_err of 'site', which holds categories, must be 0.*got 0.5",
    ),
    "no ColumnTransformer": (
        lambda: WithErrors(StandardScaler()).fit(table(), X_err=errors_of()),
        r"X must hold numbers, but \['site', 'grade'\] do not: encode them in a ColumnTransformer",
    ),
    "a mixed branch": (
        lambda: WithErrors(ColumnTransformer([("all", OneHotEncoder(), ["site"]), ("rest", OrdinalEncoder(), ["grade"]),
            ("both", FunctionTransformer(lambda X: X[["time"]]), ["time", "grade"])])).fit(table(), X_err=errors_of()),
        "the branch 'both' of the ColumnTransformer has categories beside numbers",
    ),
    "order": (
        lambda: WithErrors(encoding()).fit(table(), X_err=errors_of()[["time", "flux"]]),
        "X_err must have the columns of X, in the same order",
    ),
    "a number left out": (
        lambda: WithErrors(encoding()).fit(table(), X_err=errors_of()[["time"]]),
        "X_err must have the columns of X, in the same order",
    ),
    "categories alone": (
        lambda: WithErrors(ColumnTransformer([("all", OneHotEncoder(), ["site"])])).fit(table()[["site"]]),
        "X must have a column that can have errors",
    ),
    "another estimator": (
        lambda: GuruClassifier().fit(table(), Y, X_err=errors_of()),
        "X must hold numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()
