"""Samples that carry their errors: rows, columns, assignment, and the functions of scikit-learn that take them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_selection import RFE, SequentialFeatureSelector
from sklearn.inspection import PartialDependenceDisplay, partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, learning_curve
from sklearn.pipeline import make_pipeline

import gaussguru
from gaussguru import ErrorBarClassifier, GuruClassifier, KernelGuruClassifier, Measured, PopulationClassifier
from gaussguru._errors.samples import split_errors
from gaussguru.errors import Asymmetric, Limits, LowRank
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

N, D = 40, 3
RNG = np.random.default_rng(0)
Y = np.arange(N) % 2
ERR = RNG.uniform(0.1, 0.8, (N, D))
X = RNG.normal(size=(N, D)) + Y[:, np.newaxis] * [3.0, 2.0, 1.0]
NAMES = ["a", "b", "c"]
ROOTS = RNG.normal(size=(N, D, D))
LIMITS = np.where(RNG.random((N, D)) < 0.2, -1, 0)
FORMS = {
    "isotropic": ERR[:, 0],
    "deviations": ERR,
    "sparse": sp.csr_array(np.where(ERR > 0.4, ERR, 0.0)),
    "covariances": ROOTS @ ROOTS.transpose(0, 2, 1),
    "low rank": LowRank(ROOTS[:, :, :2], ERR),
    "factors": LowRank(ROOTS[:, :, :2]),
    "asymmetric": Asymmetric(ERR, 2 * ERR),
    "limits": Limits(ERR, LIMITS),
    "a frame": pd.DataFrame(ERR, columns=NAMES),
}
every_form = pytest.mark.parametrize("form", FORMS)


def samples_of(form):
    return Measured(pd.DataFrame(X, columns=NAMES) if form == "a frame" else X, FORMS[form])


def dense(samples):
    """Return values, covariances and limits of every sample, as arrays."""
    values, errors = split_errors(samples)
    values = values.toarray() if sp.issparse(values) else np.array(values, dtype=float)
    limits = errors.limits if isinstance(errors, Limits) else np.zeros(values.shape)
    errors = errors.err if isinstance(errors, Limits) else errors
    if isinstance(errors, LowRank):
        common = np.einsum("ijr,ikr->ijk", errors.factors, errors.factors)
        return values, common if errors.std is None else common + diagonal(errors.std), limits
    if len(errors.shape) == 3:
        return values, errors, limits
    errors = errors.toarray() if sp.issparse(errors) else errors
    return values, diagonal(np.broadcast_to(errors.reshape(len(values), -1), values.shape)), limits


def diagonal(deviations):
    return np.square(deviations)[:, :, np.newaxis] * np.eye(deviations.shape[1])


ROWS = {
    "slice": slice(3, 9),
    "mask": Y == 1,
    "places": [5, 2, 2],
    "one": 4,
}
COLUMNS = {"slice": slice(1, None), "mask": [True, False, True], "places": np.array([2, 0]), "one": [1]}


@every_form
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_and_columns_are_taken_of_values_and_errors(form, rows, columns):
    samples = samples_of(form)
    values, covariances, limits = dense(samples)
    i = np.atleast_1d(np.arange(N)[ROWS[rows]])
    j = np.arange(D)[COLUMNS[columns]]
    expected = values[i][:, j], covariances[i][:, j][:, :, j], limits[i][:, j]
    for part in (samples[ROWS[rows], COLUMNS[columns]], samples[:, COLUMNS[columns]][ROWS[rows]]):
        assert part.shape == (len(i), len(j))
        for one, other in zip(dense(part), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_columns_by_name(library):
    def table(values):
        return library(dict(zip(NAMES, values.T, strict=True)))

    samples = Measured(table(X), table(ERR))
    for part in (samples[["c", "a"]], samples[:, ["c", "a"]]):
        assert part.columns.tolist() == ["c", "a"]
        assert type(part.X) is type(samples.X)
        np.testing.assert_array_equal(dense(part)[0], X[:, [2, 0]])
        np.testing.assert_array_equal(part.err, ERR[:, [2, 0]])
    np.testing.assert_array_equal(samples["b"], X[:, 1])
    np.testing.assert_array_equal(samples[3:5, "b"], X[3:5, 1])
    with pytest.raises(ValueError, match=r"columns must be names of features, \['a', 'b', 'c'\]; got \['d'\]"):
        samples[["a", "d"]]
    changed = samples.copy()
    changed[:, "b"] = 7.0
    np.testing.assert_array_equal(changed["b"], np.full(N, 7.0))
    np.testing.assert_array_equal(changed["c"], X[:, 2])
    np.testing.assert_array_equal(samples["b"], X[:, 1])


def test_columns_of_a_frame_keep_its_index():
    index = np.arange(N)[::-1] + 100
    samples = Measured(*(pd.DataFrame(table, columns=NAMES, index=index) for table in (X, ERR)))
    samples[:, ["b"]] = samples[::-1][:, ["b"]]
    assert samples.X.index.tolist() == index.tolist()
    np.testing.assert_array_equal(samples["b"], X[::-1, 1])
    np.testing.assert_array_equal(samples.err[:, 1], ERR[::-1, 1])


def test_names_need_a_frame():
    samples = Measured(X, ERR)
    assert not hasattr(samples, "columns")
    with pytest.raises(ValueError, match=r"columns must be names of features, \[\]; got \['a'\]"):
        samples["a"]


@every_form
def test_assigned_columns_bring_their_errors(form):
    """Errors of replaced columns are those of other samples: independent of what stays."""
    samples = samples_of(form)
    order = np.random.default_rng(1).permutation(N)
    columns = [2, 0]
    values, covariances, limits = dense(samples)
    changed = samples.copy()
    changed[:, columns] = samples[order][:, columns]
    for part, old in ((values, values.copy()), (limits, limits.copy())):
        part[:, columns] = old[order][:, columns]
    inner = covariances[order][:, columns][:, :, columns]
    covariances[:, columns] = covariances[:, :, columns] = 0.0
    covariances[np.ix_(np.arange(N), columns, columns)] = inner
    for one, other in zip(dense(changed), (values, covariances, limits), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    for one, other in zip(dense(samples), dense(samples_of(form)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_assigned_number_keeps_errors_and_gaps():
    values, errors = X.copy(), ERR.copy()
    values[3, 1], errors[4, 1] = np.nan, np.inf
    samples = Measured(values, errors)
    samples[:, 1] = 5.0
    assert np.isnan(samples.X[3, 1])
    np.testing.assert_array_equal(np.delete(samples.X[:, 1], 3), np.full(N - 1, 5.0))
    np.testing.assert_array_equal(np.isinf(samples.err[:, 1]), np.isin(np.arange(N), [3, 4]))
    np.testing.assert_array_equal(samples.err[5:], ERR[5:])
    assert np.isnan(values[3, 1])
    assert values[0, 1] == X[0, 1]


def test_sparse_values_are_assigned():
    samples = Measured(sp.csr_array(X), sp.csr_array(ERR))
    samples[:, 0] = 2.0
    np.testing.assert_array_equal(samples.X.toarray(), np.column_stack([np.full(N, 2.0), X[:, 1:]]))


@pytest.mark.parametrize(
    ("index", "new", "message"),
    [
        ((slice(None), 0), X[:, 0], "columns are assigned Measured of shape .40, 1., .* got ndarray"),
        ((slice(None), 0), np.nan, "or a finite number, .* got float nan"),
        ((slice(None), [0, 1]), Measured(X, ERR), "columns are assigned Measured of shape .40, 2.,"),
        ((slice(None), [0]), Measured(X[:, :1], ERR[:, 0]), "errors of the new columns must be in the form of X_err"),
        (3, 1.0, "samples are assigned by whole columns, as samples"),
        ((slice(3), 0), 1.0, "samples are assigned by whole columns, as samples"),
    ],
)  # fmt: skip
def test_assignment_refuses_wrong_index_or_value(index, new, message):
    samples = Measured(X, ERR)
    with pytest.raises(TypeError, match=message):
        samples[index] = new
    assert samples.X is X


def test_columns_of_mixtures_have_the_scores_of_coefficients_that_are_zero_elsewhere():
    seen = Deconvolve(2).fit_transform(X, X_err=ERR)
    part = seen[5:9, [2, 0]]
    one = part.components.scores([[3.0, -1.0]], [0.5])
    other = seen[5:9].components.scores([[-1.0, 0.0, 3.0]], [0.5])
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    with pytest.raises(TypeError, match="columns cannot be assigned to samples with components"):
        seen[:, 0] = 1.0


# --- arrays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["isotropic", "deviations", "sparse", "asymmetric", "limits", "a frame"])
def test_an_array_has_values_errors_and_limits(form):
    samples = samples_of(form)
    array = np.asarray(samples)
    assert array.dtype == samples.dtype == object
    assert array.shape == samples.shape
    order = np.random.default_rng(2).permutation(N)
    for one, other in zip(dense(array[order][:, [1, 2]]), dense(samples[order, [1, 2]]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_an_array_keeps_gaps():
    values = np.where(np.arange(N * D).reshape(N, D) % 7 == 2, np.nan, X)
    _, errors = split_errors(np.asarray(Measured(values, ERR)))
    np.testing.assert_array_equal(np.isinf(errors), np.isnan(values))


def test_numpy_makes_no_plain_numbers():
    samples = Measured(X, ERR)
    array = np.asarray(samples)
    for convert in (
        lambda: np.asarray(samples, dtype=float),
        lambda: np.array(array, dtype=np.float32),
        lambda: array.astype(float),
        lambda: float(array[0, 0]),
    ):
        with pytest.raises(TypeError, match="X carries error bars, and this step accepts only plain numbers"):
            convert()
    for compute in (lambda: samples + 1, lambda: np.mean(samples), lambda: np.isnan(samples)):
        with pytest.raises(TypeError):
            compute()
    assert repr(np.asarray(Measured([[1.5]], Limits([[0.25]], [[-1]])))[0, 0]) == "< 1.5±0.25"


@pytest.mark.parametrize("form", ["covariances", "low rank", "factors"])
def test_correlated_errors_fit_into_no_array(form):
    with pytest.raises(TypeError, match=r"X carries correlated errors.*feature_importance takes them"):
        np.asarray(samples_of(form))


# --- scikit-learn -------------------------------------------------------------------------------------------

MODELS = {
    "GuruClassifier": GuruClassifier(0.3),
    "KernelGuruClassifier": KernelGuruClassifier(0.3, gamma=0.5),
    "ErrorBarClassifier": ErrorBarClassifier(model="linear", n_components=1, cv=2),
    "PopulationClassifier": PopulationClassifier(1),
    "Deconvolve": make_pipeline(Deconvolve(1), GuruClassifier(0.3)),
}
SAMPLES = Measured(X, ERR)
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_permutation_importance_permutes_errors_with_values(name):
    model = clone(MODELS[name]).fit(SAMPLES, Y)
    found = permutation_importance(model, SAMPLES, Y, scoring="neg_log_loss", n_repeats=2, random_state=0)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max + 1)

    def loss(values, errors):
        p = model.predict_proba(Measured(values, errors))
        return np.log(np.clip(p, np.finfo(float).eps, 1.0)[np.arange(N), Y]).mean()

    for j in range(D):
        rng, order = np.random.RandomState(seed), np.arange(N)
        values, errors = X.copy(), ERR.copy()
        for k in range(2):
            rng.shuffle(order)
            values[:, j], errors[:, j] = values[order, j], errors[order, j]
            np.testing.assert_allclose(found.importances[j, k], loss(X, ERR) - loss(values, errors), rtol=1e-4)


@every_model
def test_partial_dependence_is_that_of_the_value_with_the_errors_as_they_are(name):
    model = clone(MODELS[name]).fit(SAMPLES, Y)
    found = partial_dependence(model, SAMPLES, [0], grid_resolution=3, response_method="predict_proba")
    for value, average in zip(found["grid_values"][0], found["average"][0], strict=True):
        expected = model.predict_proba(Measured(np.column_stack([np.full(N, value), X[:, 1:]]), ERR))[:, 1].mean()
        np.testing.assert_allclose(average, expected, rtol=1e-9)


def test_partial_dependence_display_takes_names():
    frame = Measured(pd.DataFrame(X, columns=NAMES), pd.DataFrame(ERR, columns=NAMES))
    model = GuruClassifier(0.3).fit(frame, Y)
    axes = [Figure().add_subplot(), Figure().add_subplot()]
    shown = PartialDependenceDisplay.from_estimator(model, frame, ["b", ("a", "c")], grid_resolution=3, ax=axes)
    assert shown.features == [(1,), (0, 2)]


@every_model
def test_bagging_takes_rows_and_columns_of_both(name):
    bagging = BaggingClassifier(
        MODELS[name], n_estimators=2, max_samples=0.9, max_features=2, bootstrap=False, random_state=3
    ).fit(SAMPLES, Y)  # fmt: skip
    expected = [
        model.predict_proba(SAMPLES[:, columns])
        for model, columns in zip(bagging.estimators_, bagging.estimators_features_, strict=True)
    ]
    np.testing.assert_allclose(bagging.predict_proba(SAMPLES), np.mean(expected, axis=0), rtol=1e-9)
    if name == "Deconvolve":
        return
    for model, rows, columns in zip(
        bagging.estimators_, bagging.estimators_samples_, bagging.estimators_features_, strict=True
    ):
        weights = np.bincount(rows, minlength=N)
        alone = clone(model).fit(X[:, columns], Y, sample_weight=weights, X_err=ERR[:, columns])
        np.testing.assert_array_equal(*(part.predict_proba(SAMPLES[:, columns]) for part in (alone, model)))


@every_model
def test_folds_take_rows_of_both(name):
    model = MODELS[name]
    half = np.arange(N) < N // 2
    folds = [(np.flatnonzero(half), np.flatnonzero(~half)), (np.flatnonzero(~half), np.flatnonzero(half))]
    found = cross_val_predict(model, SAMPLES, Y, cv=folds, method="predict_proba")
    if name != "Deconvolve":
        fitted = clone(model).fit(X[half], Y[half], X_err=ERR[half])
        np.testing.assert_allclose(found[~half], fitted.predict_proba(X[~half], X_err=ERR[~half]), rtol=1e-9)
    curve = learning_curve(model, SAMPLES, Y, cv=folds, train_sizes=[1.0], scoring="neg_log_loss")[2]
    search = GridSearchCV(model, {}, cv=folds, scoring="neg_log_loss").fit(SAMPLES, Y)
    np.testing.assert_allclose(curve.mean(), search.best_score_, rtol=1e-9)
    assert np.isfinite(curve).all()


@every_model
@pytest.mark.parametrize("selector", [RFE, SequentialFeatureSelector])
def test_selectors_of_scikit_learn_are_refused_with_a_way_out(name, selector):
    with pytest.raises(TypeError, match=r"feature_importance and X\[:, names\] in place of RFE"):
        selector(MODELS[name]).fit(SAMPLES, Y)


def test_a_selector_inside_with_errors_cuts_the_errors():
    selected = WithErrors(RFE(GuruClassifier(0.3), n_features_to_select=2)).fit_transform(X, Y, X_err=ERR)
    assert selected.shape == (N, 2)
    for values, errors in zip(selected.X.T, selected.err.T, strict=True):
        np.testing.assert_allclose(errors, ERR[:, np.argmax((values[:, np.newaxis] == X).all(axis=0))], rtol=1e-12)


@pytest.mark.parametrize("model", [LogisticRegression(), BaggingClassifier(LogisticRegression())])
def test_classifiers_without_errors_refuse(model):
    with pytest.raises(TypeError, match="X carries error bars"):
        model.fit(SAMPLES, Y)


def test_measured_is_at_the_top():
    assert gaussguru.Measured is gaussguru.errors.Measured
