"""Models of tables: saved and loaded they predict the same numbers; what is no model is refused in one line."""

import importlib
import io
import json
import pickle
import tracemalloc
import zipfile
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import skops.io
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from support.error_bars import conditional

from gaussguru import (
    AdversarialSVC,
    ErrorBarClassifier,
    FeatureDropSVC,
    GuruClassifier,
    GuruClassifierCV,
    KernelGuruClassifier,
    PopulationClassifier,
    TotalSVC,
    models,
)
from gaussguru._errors.columns import Bar
from gaussguru._measured import pool
from gaussguru._measured.affine import NotLinearError
from gaussguru._tables.archive import CARD, TRUSTED
from gaussguru._tables.files import TableError
from gaussguru._tables.fitting import fit_model
from gaussguru._tables.judging import evaluate_model
from gaussguru._tables.layout import Layout
from gaussguru._tables.schema import Data
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.cli import main
from gaussguru.errors import Limits, Measured
from gaussguru.models import FORMAT, Model, ModelError, load_model, read_model, save_model
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import remeasure_gain


def table(n=90, n_classes=2, *, errors=False, missing="error", skewed=False, sparse=False, labels="c{}", seed=0):
    rng = np.random.default_rng(seed)
    k = np.arange(n) % n_classes
    X = rng.standard_normal((n, 3)) + 1.5 * np.eye(3)[k % 3]
    X_err = 0.3 * rng.random((n, 3)) if errors else None
    if missing != "error":
        X[::7, 1] = np.nan
        if missing == "unmeasured":
            X_err = np.where(np.isnan(X), np.inf, 0.0 if X_err is None else X_err)
    if skewed:
        X = np.exp(3 * X)
        X_err = 0.1 * X
    names = ["1", "2", "3"] if sparse else ["a", "b", "c"]
    values = sp.csr_matrix(X) if sparse else pd.DataFrame(X, columns=names)
    bars = {name: Bar("sigma", [f"{name}_err"]) for name in names if errors}
    layout = Layout(names, bars, missing=missing, target=None if sparse else "y")
    return Data("table", values, X_err, np.array([labels.format(j) for j in k], dtype=object), layout, n)


LINEAR = {"model": "linear"}
# Tables, and parameters of fit_model.
CASES = {
    "linear": ({}, {"sigma": 0.5}),
    "unscaled": ({}, {"sigma": 0.5, "scale": False}),
    "axis": ({}, {"sigma": 0.5, "noise": "axis"}),
    "deviations": ({}, {"sigma": 0.5, "noise": np.array([0.5, 1.0, 2.0])}),
    "covariance": ({"n_classes": 3}, {"sigma": 0.5, "noise": np.diag([0.5, 1.0, 2.0]) + 0.1}),
    "cv": ({}, {"folds": 3}),
    "levels": ({}, {"sigma": [0.1, 1.0]}),
    "errors": ({"errors": True}, {"sigma": 0.5, "classifier": "guru"}),
    "errors-only": ({"errors": True}, {"sigma": 0.0, "scale": False, "classifier": "guru"}),
    "errors-cv": ({"errors": True, "missing": "unmeasured"}, {"sigma": [0.1, 1.0], "classifier": "guru"}),
    "unmeasured": ({"missing": "unmeasured"}, {"sigma": 0.5}),
    "mean": ({"missing": "mean"}, {"sigma": 0.5}),
    "three": ({"n_classes": 3}, {"sigma": 0.5}),
    "three-errors": ({"n_classes": 3, "errors": True, "missing": "unmeasured"}, {"sigma": 0.5, "classifier": "guru"}),
    "balanced": ({"labels": "{}"}, {"sigma": 0.5, "class_weight": "balanced", "loss": "logistic", "l2": 0.1}),
    "sparse": ({"sparse": True}, {"sigma": 0.5}),
    "rbf": ({}, {"sigma": 0.1, "kernel": "rbf"}),
    "rbf-three": ({"n_classes": 3}, {"sigma": [0.05, 0.2], "kernel": "rbf", "folds": 3}),
    "poly": ({"sparse": True}, {"sigma": 0.3, "kernel": "poly", "degree": 2, "n_components": 20, "random_state": 0}),
    "measured": ({"errors": True}, LINEAR),
    "measured-gaps": ({"errors": True, "missing": "unmeasured"}, {**LINEAR, "scale_errors": True, "n_components": 2}),
    "measured-three": ({"n_classes": 3, "errors": True}, {**LINEAR, "class_weight": "balanced"}),
    "measured-exact": ({"missing": "mean"}, {**LINEAR, "classifier": "error-bars"}),
    "pool": ({"errors": True}, {"folds": 2}),
    "pool-three": (
        {"n_classes": 3, "errors": True, "missing": "unmeasured"}, {"folds": 2, "class_weight": "balanced"}
    ),
    "pool-exact": ({"missing": "mean"}, {"classifier": "error-bars", "model": "boosting", "folds": 2}),
    "pool-rbf": ({"errors": True, "missing": "unmeasured"}, {"model": "rbf", "folds": 2}),
    "pool-population": ({"errors": True, "labels": "{}"}, {"model": "population", "folds": 2}),
    "pool-sizes": ({"errors": True, "skewed": True}, {"model": "boosting", "use_error_sizes": True, "folds": 2}),
}  # fmt: skip


@cache
def fit(name):
    what, how = CASES[name]
    return fit_model(table(**what), **how)


def fitted(name):
    return fit(name), table(**CASES[name][0])


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_model_predicts_the_same_numbers(tmp_path, name):
    model, data = fitted(name)
    assert model.card["fit"].get("converged", True)
    assert model.card["fit"]["certified"] == (model.card["fit"].get("method") not in ("probit", "pool"))
    path = str(tmp_path / "model")
    save_model(model, path)
    loaded = read_model(path)
    before, after = model.predict(data.X, data.X_err, each=True), loaded.predict(data.X, data.X_err, each=True)
    assert list(before) == loaded.column_names(each=True) == list(after)
    for column in before:
        np.testing.assert_array_equal(before[column], after[column])
    assert loaded.layout == data.layout
    assert {**loaded.card, **model.card} == loaded.card
    assert loaded.card["format"] == FORMAT
    np.testing.assert_allclose(np.mean(before["label"].astype(str) == data.y), model.card["fit"]["training_accuracy"])


CALIBRATED = {
    "around": lambda: make_pipeline(WithErrors(StandardScaler()), Deconvolve(2), CalibratedWithErrorsCV()),
    "factors": lambda: make_pipeline(Deconvolve(rank=1), CalibratedWithErrorsCV(GuruClassifier(0.3))),
    "inside": lambda: make_pipeline(CalibratedWithErrorsCV(make_pipeline(Deconvolve(), GuruClassifier(0.3)))),
    "alone": lambda: make_pipeline(ErrorBarClassifier(model="linear", cv=2)),
    "pool": lambda: make_pipeline(ErrorBarClassifier(model="rbf", cv=2)),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", CALIBRATED)
def test_pipelines_with_populations_and_calibration_can_be_saved(tmp_path, name, n_classes):
    data = table(n_classes=n_classes, errors=True)
    estimator = CALIBRATED[name]().fit(Measured(data.X, data.X_err), data.y.astype(str))
    labels = sorted(set(data.y))
    card = {**fit("measured").card, "classes": labels}
    save_model(Model(estimator, card), str(tmp_path / "model"))
    loaded = read_model(str(tmp_path / "model"))
    expected = estimator.predict_proba(Measured(data.X, data.X_err))
    found = loaded.predict(data.X, data.X_err, remeasure=0.5)
    np.testing.assert_array_equal(np.column_stack([found[f"probability_{label}"] for label in labels]), expected)
    gain = remeasure_gain(estimator, data.X, data.X_err, 0.5 * data.X_err)
    np.testing.assert_allclose(found["remeasure_gain"], gain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["pool", "pool-three", "pool-exact", "pool-sizes"])
def test_a_pool_is_that_of_the_library_and_judged_as_it_was_saved(tmp_path, name):
    model, data = fitted(name)
    how = {key: value for key, value in CASES[name][1].items() if key not in ("folds", "classifier")}
    X = data.X.fillna(data.X.mean()) if name == "pool-exact" else data.X
    y = data.y.astype(str)
    by_hand = ErrorBarClassifier(cv=2, random_state=0, **how).fit(X, y, X_err=data.X_err)
    expected = by_hand.predict_proba(X, data.X_err)
    save_model(model, str(tmp_path / "model"))
    loaded = read_model(str(tmp_path / "model"))
    found = loaded.predict(data.X, data.X_err)
    for k, label in enumerate(by_hand.classes_):
        np.testing.assert_allclose(found[f"probability_{label}"], expected[:, k], rtol=1e-9)
    before, after = (evaluate_model(one, [(data.X, data.X_err, y)]) for one in (model, loaded))
    assert before == after
    assert before["log_loss"] == pytest.approx(log_loss(y, expected), rel=1e-9)


@pytest.mark.parametrize("name", ["pool", "pool-exact", "pool-rbf"])
def test_the_card_of_a_pool_says_what_error_bars_are_worth_and_claims_no_proof(name):
    model, _ = fitted(name)
    fit, classifier = model.card["fit"], model.classifier
    scores = {key: dict(zip(classifier.cv_scores_["member"].tolist(), column.tolist(), strict=True))
              for key, column in classifier.cv_scores_.items() if key != "member"}  # fmt: skip
    assert fit["method"] == "pool"
    assert fit["members"]["member"] == list(classifier.members_)
    # Mean weights of the samples as measured: between those of the two ends.
    low, high = classifier.weights_.min(axis=0) - 1e-9, classifier.weights_.max(axis=0) + 1e-9
    assert ((fit["members"]["weight"] >= low) & (fit["members"]["weight"] <= high)).all()
    for column, losses in scores.items():
        if column.startswith("log_loss"):
            assert fit["members"][column] == [losses[member] for member in classifier.members_]
            assert fit[f"cv_{column}"] == losses["pool"]
            assert fit[f"class_frequencies_{column}"] == losses["class frequencies"]
            assert fit[f"errors_ignored_{column}"] == losses.get("errors ignored")
    assert ("cv_log_loss_noisier" in fit) == (name != "pool-exact")
    assert (fit["errors_ignored_log_loss"] is None) == (name != "pool")
    assert fit["class_frequencies_log_loss"] == pytest.approx(np.log(2), abs=1e-3)
    assert not fit["certified"]
    assert not {"gap", "relative_gap", "objective", "converged"} & set(fit)
    assert model.card["cross_validation"]["member"] == classifier.cv_scores_["member"].tolist()


def test_a_model_of_measurements_is_that_of_the_library():
    model, data = fitted("measured-gaps")
    y = data.y.astype(str)
    by_hand = ErrorBarClassifier(model="linear", cv=5, scale_errors=True, n_components=2, random_state=0)
    by_hand.fit(data.X, y, X_err=data.X_err)
    found = model.predict(data.X, data.X_err, remeasure=0.25)
    expected = by_hand.predict_proba(data.X, data.X_err)
    np.testing.assert_allclose(found["probability_c1"], expected[:, 1], rtol=1e-9)
    assert (found["label"] == by_hand.predict(data.X, data.X_err)).all()
    better = np.where(np.isinf(data.X_err), np.inf, 0.25 * np.where(np.isinf(data.X_err), 0, data.X_err))
    gain = remeasure_gain(by_hand, data.X, data.X_err, better)
    np.testing.assert_allclose(found["remeasure_gain"], gain, rtol=1e-6, atol=1e-12)
    assert model.card["reliability"] == pytest.approx(dict(zip("abc", by_hand.reliability_, strict=True)))
    result = evaluate_model(model, [(data.X, data.X_err, model.labels(data.y, "table"))])
    assert result["log_loss"] == pytest.approx(log_loss(y, expected), rel=1e-9)
    assert result["brier_score"] == pytest.approx(brier_score_loss(y == "c1", expected[:, 1]), rel=1e-9)
    assert result["expected_accuracy"] == pytest.approx(expected.max(axis=1).mean(), rel=1e-9)
    assert result["robustness"]["noise_level"] == [1.0, 1.5, 2.0, 3.0]
    assert result["robustness"]["log_loss"][0] == pytest.approx(result["log_loss"], rel=1e-9)
    # Thirds of the rows by the spread of their scores, and what is promised and kept in them.
    _, spread = by_hand.margin_and_spread(data.X, data.X_err)
    thirds = np.array_split(np.argsort(spread), 3)
    right = by_hand.predict(data.X, data.X_err) == y
    np.testing.assert_allclose(result["reliability"]["observed"], [right[part].mean() for part in thirds], rtol=1e-9)
    np.testing.assert_allclose(
        result["reliability"]["predicted"], [expected.max(axis=1)[part].mean() for part in thirds], rtol=1e-9
    )
    size = by_hand.alpha_ * spread
    np.testing.assert_allclose(result["reliability"]["size"], [np.median(size[part]) for part in thirds], rtol=1e-9)


def test_scores_of_many_classes():
    """The Brier score by hand: scikit-learn before 1.7 has it for two classes only."""
    for name in ("three", "measured-three"):
        model, data = fitted(name)
        y = model.labels(data.y, "table")
        found = evaluate_model(model, [(data.X, data.X_err, y)])
        columns = model.predict(data.X, data.X_err, each=True)
        each = np.column_stack([columns[f"probability_{label}"] for label in model.card["classes"]])
        indicators = np.asarray(y)[:, np.newaxis] == np.asarray(model.card["classes"])
        assert found["brier_score"] == pytest.approx(np.square(each - indicators).sum(axis=1).mean(), rel=1e-9)
        assert found["log_loss"] == pytest.approx(log_loss(y, each), rel=1e-9)


def test_larger_errors_cost_accuracy_and_are_drawn_for_all_rows():
    data = table(n=2000, errors=True)
    data = data._replace(X_err=1.5 * data.X_err)
    model = fit_model(data, model="linear", folds=2)
    y = model.labels(data.y, "table")
    found = evaluate_model(model, [(data.X, data.X_err, y)], [1.0, 2.0, 6.0])["robustness"]
    assert found["accuracy"][0] > found["accuracy"][1] + 0.02 > found["accuracy"][2] + 0.04
    assert found["log_loss"][0] < found["log_loss"][1] < found["log_loss"][2]
    with pytest.raises(TableError, match=r"--noise-levels.* 1 or more; got 0.5"):
        evaluate_model(model, [(data.X, data.X_err, y)], [0.5])


def test_rows_that_are_compared_are_kept_within_bounds(monkeypatch):
    model, data = fitted("measured")
    y = model.labels(data.y, "table")
    monkeypatch.setattr("gaussguru._tables.judging.MOST_KEPT", 25)
    cuts = [slice(first, first + 13) for first in range(0, 90, 13)]
    parts = ((data.X.iloc[cut], data.X_err[cut], y[cut]) for cut in cuts)
    found = evaluate_model(model, parts, [1.0])
    some = slice(0, None, 4)  # 23 of 90
    by_hand = evaluate_model(model, [(data.X.iloc[some], data.X_err[some], y[some])], [1.0])
    assert found["rows"] == 90
    assert sum(found["reliability"]["rows"]) == 23
    np.testing.assert_allclose(found["reliability"]["predicted"], by_hand["reliability"]["predicted"], rtol=1e-9)


def test_what_error_bars_cannot_do():
    model, data = fitted("linear")
    with pytest.raises(TableError, match="--remeasure"):
        model.predict(data.X, remeasure=0.5)
    with pytest.raises(TableError, match="--remeasure"):
        fit("measured-exact").predict(data.X, remeasure=0.5)
    measured, data = fitted("measured")
    for factor in (-0.1, 1.1, np.nan):
        with pytest.raises(TableError, match="--remeasure must be between 0 and 1"):
            measured.predict(data.X, data.X_err, remeasure=factor)
    limited = replace(measured.layout, limits=dict.fromkeys(measured.layout.values, ("flag", "-")))
    limited = Model(measured.estimator, measured.card | {"layout": limited.as_json()})
    assert np.isnan(limited.gain(data.X, Limits(data.X_err, np.ones(data.X.shape)), 0.5)).all()
    with pytest.raises(ValueError, match="X_err is missing"):
        measured.predict(data.X)
    with pytest.raises(TableError, match="--kernel rbf needs --classifier guru"):
        fit_model(table(errors=True), kernel="rbf")
    with pytest.raises(TableError, match="not for libsvm"):
        fit_model(table(sparse=True), classifier="error-bars")
    wide = pd.DataFrame(np.zeros((4, 301)), columns=[f"f{j}" for j in range(301)])
    layout = replace(data.layout, values=list(wide), errors={name: Bar("sigma", [f"{name}_err"]) for name in wide})
    with pytest.raises(TableError, match=r"301 features are too many.*at most 300.*--classifier guru"):
        fit_model(Data("t", wide, np.ones(wide.shape), np.array(list("abab"), dtype=object), layout, 4))
    rare = table(n=4, n_classes=3, errors=True)
    with pytest.raises(TableError, match=r"one row.*leave that class out"):
        fit_model(rare)


@pytest.mark.parametrize("name", CASES)
def test_probabilities_fit_together(name):
    model, data = fitted(name)
    columns = model.predict(data.X, data.X_err, each=True)
    if "probability" not in columns:
        assert name == "rbf-three"
        return
    each = np.column_stack([columns[f"probability_{label}"] for label in model.card["classes"]])
    np.testing.assert_allclose(each.sum(axis=1), 1.0, rtol=1e-9)
    assert ("radius" in columns) == model.is_linear
    if model.is_calibrated:
        np.testing.assert_array_equal(columns["probability"], each.max(axis=1))
        assert model.column_names() == list(columns)  # of all classes, asked for or not
    else:
        np.testing.assert_allclose(columns["probability"] + columns["flip_probability"], 1.0, rtol=1e-9)


def test_a_model_that_is_saved_again_says_so(tmp_path):
    path = tmp_path / "model"
    save_model(fit("linear"), str(path))
    versions = {"gaussguru": "0.0.1", "scikit-learn": "1.0", "numpy": "1.0"}
    path.write_bytes(rewritten(path, versions=versions, created="2001-01-01T00:00:00+00:00"))
    old = read_model(str(path))
    with pytest.raises(TableError, match=r"exists; force=True replaces it$"):
        save_model(old, str(path))
    save_model(old, str(path), force=True)
    card = read_model(str(path)).card
    assert list(card)[:3] == ["format", "versions", "created"]
    assert card["format"] == FORMAT
    assert card["versions"]["numpy"] == np.__version__
    assert card["created"] > "2026"


def test_predicting_does_not_change_the_table(tmp_path):
    model, _ = fitted("linear")
    save_model(model, str(tmp_path / "model"))
    X = table().X
    before = X.to_numpy().copy()
    for one in (model, read_model(str(tmp_path / "model"))):
        one.predict(X)
        np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("name", CASES)
def test_an_evaluation_in_parts_is_that_of_the_whole(name):
    model, data = fitted(name)
    y = model.labels(data.y, "table")
    levels = [0.0, 0.4] if model.is_linear else [1.0] if model.is_calibrated and data.layout.has_errors else [0.0]
    whole = evaluate_model(model, [(data.X, data.X_err, y)], levels)
    cuts = [slice(0, 10), slice(10, 10), slice(10, 64), slice(64, 90)]
    rows = data.X.iloc.__getitem__ if hasattr(data.X, "iloc") else data.X.__getitem__
    parts = ((rows(cut), None if data.X_err is None else data.X_err[cut], y[cut]) for cut in cuts)
    found = evaluate_model(model, parts, levels)
    for key in ("accuracy", "log_loss", "brier_score", "expected_accuracy"):
        assert (found[key] is None) == (whole[key] is None)
        assert found[key] is None or found[key] == pytest.approx(whole[key], rel=1e-9)
    np.testing.assert_allclose(found["robustness"]["accuracy"], whole["robustness"]["accuracy"], rtol=1e-9)
    assert found["rows"] == 90
    assert whole["accuracy"] == whole["robustness"]["accuracy"][0]
    assert found.keys() == whole.keys()
    for key, values in whole.get("reliability", {}).items():
        assert found["reliability"][key] == (values if key == "errors" else pytest.approx(values, rel=1e-9))


def test_every_trusted_type_exists():
    for name in TRUSTED:
        module, _, cls = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), cls), type)


class Strange(BaseEstimator):
    """A step that no model of ours has."""

    def __setstate__(self, state):
        raise AssertionError("nothing of this type may be created")

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


def itself(X):
    return X


def test_other_types_are_refused_and_not_created(tmp_path):
    model, data = fitted("linear")
    for step, word in ((Strange(), "Strange"), (FunctionTransformer(itself), "itself")):
        step.n_features_in_ = 3
        pipeline = make_pipeline(step, StandardScaler(), GuruClassifier()).fit(data.X.to_numpy(), data.y)
        (tmp_path / "model").write_bytes(models._packed(Model(pipeline, model.card)))
        with pytest.raises(ModelError, match=rf"not trusted.*{word}"):
            read_model(str(tmp_path / "model"))
        with pytest.raises(ModelError, match=rf"the Pipeline cannot be saved: not trusted.*{word}.*; pickle or joblib"):
            save_model(Model(pipeline, model.card), str(tmp_path / "saved"))
        assert not (tmp_path / "saved").exists()


def rewritten(path, card=None, drop=None, drop_key=None, **changes):
    """Return the bytes of a model with another card."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry == CARD:
                changed = {**json.loads(content), **changes} if card is None else card
                content = json.dumps({key: changed[key] for key in changed if key != drop_key} if drop_key else changed)
            if entry != drop:
                new.writestr(entry, content)
    return out.getvalue()


def test_what_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model"
    model, _ = fitted("errors")
    save_model(model, str(path))
    whole = path.read_bytes()
    versions = read_model(str(path)).card["versions"]
    bad = {
        b"": "no model",
        b"a,b\n1,2\n": "no model",
        pickle.dumps(model.estimator): "no model",
        whole[: len(whole) // 2]: "no model",
        skops.io.dumps(model.estimator): "no model",
        rewritten(path, card=[1, 2]): "no model",
        rewritten(path, card={}): "no model",
        rewritten(path, layout={"target": "y"}): "damaged",
        rewritten(path, format=FORMAT + 1): f"format {FORMAT + 1}",
        rewritten(path, format=FORMAT - 1): f"in format {FORMAT - 1}, and this one reads {FORMAT}; fit again$",
        rewritten(path, format=0, versions={"gaussguru": "0." * 500, "scikit-learn": "1.0"}): "in format 0, and this",
        rewritten(path, versions={**versions, "gaussguru": "99.0"}): "gaussguru 99.0",
        rewritten(path, versions={**versions, "scikit-learn": "99.1.2"}): "scikit-learn 99.1.2",
        rewritten(path, drop="schema.json"): "damaged",
        rewritten(path, drop_key="labels"): "damaged",
        rewritten(path, drop_key="spread"): "damaged",
        rewritten(path, labels="number"): "damaged",
        rewritten(path, labels="complex"): "damaged",
        rewritten(path, spread=None): "damaged",
        rewritten(path, layout={**model.card["layout"], "missing": "guess"}): "damaged",
        rewritten(path, layout={**model.card["layout"], "errors": {"d": ["sigma", ["d_err"], 1.0]}}): "damaged",
        rewritten(path, layout={**model.card["layout"], "values": [1, 2, 3], "errors": {}}): "damaged",
        rewritten(path, layout={**model.card["layout"], "values": ["a"]}): "damaged",
        rewritten(path, layout={**model.card["layout"], "errors": {"a": ["sides", ["a_err"], 1.0]}}): "damaged",
        rewritten(path, layout={**model.card["layout"], "errors": {"a": ["ends", ["a_err"], 1.0]}}): "damaged",
        rewritten(path, layout={**model.card["layout"], "errors": {"a": ["sigma", ["a_err"], 0]}}): "damaged",
        rewritten(path, layout={**model.card["layout"], "limits": {"d": ["d_limit", "-"]}}): "damaged",
        rewritten(path, layout={**model.card["layout"], "limits": {"a": ["a_limit", "?"]}}): "damaged",
    }
    for place, (content, words) in enumerate(bad.items()):
        other = tmp_path / f"bad{place}"
        other.write_bytes(content)
        with pytest.raises(ModelError, match=words) as caught:
            read_model(str(other))
        assert f"bad{place}" in str(caught.value)
        assert "\n" not in str(caught.value)
    for other in (tmp_path, tmp_path / "none"):
        with pytest.raises(ModelError, match="cannot be read"):
            read_model(str(other))
    other = Model(make_pipeline(StandardScaler()).fit(np.eye(3)), model.card)
    path.write_bytes(models._packed(other))
    with pytest.raises(ModelError, match="damaged: it holds no classifier"):
        read_model(str(path))
    with pytest.raises(ModelError, match="it holds no classifier"):
        save_model(other, str(path), force=True)


@pytest.mark.parametrize("place", range(0, 20))
def test_a_damaged_file_is_refused_or_the_same(tmp_path, place):
    model, data = fitted("linear")
    path = tmp_path / "model"
    save_model(model, str(path))
    content = bytearray(path.read_bytes())
    content[int(len(content) * (place + 0.5) / 20)] ^= 0xFF
    path.write_bytes(content)
    try:
        loaded = read_model(str(path))
    except ModelError as error:
        assert "model" in str(error)  # noqa: PT017  both ends are right
    else:
        np.testing.assert_array_equal(loaded.predict(data.X)["radius"], model.predict(data.X)["radius"])


def test_tables_that_cannot_be_learnt():
    for changes, words in (
        ({"labels": "one"}, "one class, 'one', in all rows"),
        ({"labels": "0.5{}"}, "not whole"),
        ({"n": 60, "n_classes": 50}, "50 classes in 60 rows"),
        ({"n": 4, "n_classes": 3}, "class 'c1' has one row"),
    ):
        with pytest.raises(TableError, match=words):
            fit_model(table(**changes))
    for folds in (1, 0, -1):
        with pytest.raises(TableError, match=f"--folds.* {folds}"):
            fit_model(table(), folds=folds)
    with pytest.raises(TableError, match="poly"):
        fit_model(table(), kernel="poly")
    with pytest.raises(TableError, match="'maybe' is none of the model's, c0, c1"):
        fitted("linear")[0].labels(np.array(["c0", "maybe"], dtype=object), "table")
    with pytest.raises(TableError, match="no row"):
        evaluate_model(fitted("linear")[0], [])


def test_a_fit_that_is_not_certified_says_so():
    card = fit_model(table(), sigma=0.01, max_iter=1).card["fit"]
    assert not card["certified"]
    assert "proven optimal only" in card["warnings"][0]


@pytest.mark.parametrize(("labels", "classes"), [("c{}", ["c0", "c1"]), ("{}", [0, 1]), ("1{}", [10, 11])])
def test_weights_of_classes_are_given_by_their_labels(labels, classes):
    data = table(labels=labels)
    weights = dict(zip(classes, (1.0, 5.0), strict=True))
    model = fit_model(data, sigma=0.5, scale=False, class_weight=weights)
    by_hand = GuruClassifier(0.5, class_weight=weights).fit(data.X, np.array(classes)[np.arange(90) % 2])
    np.testing.assert_array_equal(model.classifier.coef_, by_hand.coef_)
    assert model.classifier.class_weight == weights
    assert model.classifier.classes_.tolist() == classes
    with pytest.raises(ValueError, match=r"class_weight has keys \[2\]"):
        fit_model(data, sigma=0.5, class_weight={2: 1.0})


def test_labels_take_no_more_memory_than_codes(tmp_path):
    """One long label among many rows, in an array of texts, would take 800 bytes for every row."""
    n = 100_000
    data = table(labels="c{}")
    labels = np.array(["a", "b"], dtype=object)[np.arange(n) % 2]
    labels[0] = "b" * 200
    values = np.random.default_rng(0).standard_normal((n, 1)) + (labels == "a")[:, np.newaxis]
    many = Data("table", pd.DataFrame(values, columns=["a"]), None, labels, replace(data.layout, values=["a"]), n)
    tracemalloc.start()
    model = fit_model(many, sigma=0.5)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.card["classes"] == ["a", "b", "b" * 200]
    assert most < 400 * n


def test_certified_is_what_the_classifier_says():
    # Weights below 1 make the gap that is allowed smaller than the number of rows would.
    model = fit_model(table(), sigma=0.5, class_weight={"c0": 1e-3, "c1": 1e-3}, max_iter=1, tol=1e-8)
    assert not model.classifier.converged_
    assert model.classifier.dual_gap_ <= 1e-8 * len(table().y)
    assert not model.card["fit"]["certified"]


@pytest.mark.parametrize("name", ["linear", "errors", "unmeasured", "mean", "unscaled"])
def test_levels_of_noise_are_in_the_units_of_sigma(name):
    model, data = fitted(name)
    y = model.labels(data.y, "table")
    found = evaluate_model(model, [(data.X, data.X_err, y)], [0.0, 0.7])["robustness"]
    X = data.X.to_numpy()
    if name == "unmeasured":
        X = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
        X, _ = conditional(model.classifier.population_, X, np.zeros(X.shape))
    elif name != "unscaled":
        X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    w = model.classifier.coef_[0]
    margins = (X @ w + model.classifier.intercept_) * np.where(y == "c1", 1, -1) / np.linalg.norm(w)
    np.testing.assert_allclose(found["accuracy"], [np.mean(margins > 0), norm.cdf(margins / 0.7).mean()], rtol=1e-9)


def measured(n=90, n_classes=2, gaps=True, seed=0):
    """Return values, errors and labels of a problem, some of which were not measured."""
    data = table(n=n, n_classes=n_classes, errors=True, missing="unmeasured" if gaps else "error", seed=seed)
    return np.nan_to_num(data.X.to_numpy()), data.X_err, np.arange(n) % n_classes


FEW = {"cv": 2, "n_components": 1}
# Estimators of the library, and whether they are fitted to error bars (with what was not measured).
ALONE = {
    "guru": (lambda: GuruClassifier(0.3), None),
    "guru-errors": (lambda: GuruClassifier(0.3), "errors"),
    "guru-cv": (lambda: GuruClassifierCV(5, cv=2), None),
    "kernel": (lambda: KernelGuruClassifier(0.3), None),
    "kernel-errors": (lambda: KernelGuruClassifier(0.3), "gaps"),
    "ball": (AdversarialSVC, None),
    "ellipsoids": (lambda: AdversarialSVC(confidence=0.9), "gaps"),
    "drop": (lambda: FeatureDropSVC(0), None),
    "total": (TotalSVC, None),
    "populations": (lambda: PopulationClassifier(2), "gaps"),
    "populations-exact": (lambda: PopulationClassifier(1), None),
    "boosting": (lambda: HistGradientBoostingClassifier(max_iter=5, random_state=0), None),
    "measured": (lambda: ErrorBarClassifier(model="linear", **FEW), "gaps"),
    "measured-exact": (lambda: ErrorBarClassifier(model="linear", cv=2), None),
    "measured-scaled": (lambda: ErrorBarClassifier(model="linear", scale_errors=True, **FEW), "gaps"),
    "pool": (lambda: ErrorBarClassifier(cv=2), "gaps"),
    "pool-exact": (lambda: ErrorBarClassifier(**FEW), None),
    "pool-rbf": (lambda: ErrorBarClassifier(model="rbf", **FEW), "gaps"),
    "pool-population": (lambda: ErrorBarClassifier(model="population", **FEW), "errors"),
    "pool-sizes": (lambda: ErrorBarClassifier(model="boosting", use_error_sizes=True, **FEW), "gaps"),
    "pool-given": (lambda: ErrorBarClassifier(LogisticRegression(), **FEW), "gaps"),
    "pool-forest": (lambda: ErrorBarClassifier(RandomForestClassifier(5), model="boosting", **FEW), "gaps"),
    "pool-extra": (lambda: ErrorBarClassifier(ExtraTreesClassifier(5), model="boosting", **FEW), "errors"),
    "pool-tree": (lambda: ErrorBarClassifier(DecisionTreeClassifier(max_leaf_nodes=9), model="boosting", **FEW), None),
    "pool-pipeline": (
        lambda: ErrorBarClassifier(make_pipeline(StandardScaler(), LogisticRegression()), model="boosting", **FEW),
        "errors",
    ),
    "calibrated": (lambda: CalibratedWithErrorsCV(GuruClassifier(0.3)), "errors"),
    "calibrated-logistic": (lambda: CalibratedWithErrorsCV(LogisticRegression()), "errors"),
    "deconvolve": (lambda: Deconvolve(2), "gaps"),
    "deconvolve-factors": (lambda: Deconvolve(rank=1), "gaps"),
    "deconvolve-indicators": (lambda: Deconvolve(missing_indicator=True), "gaps"),
    "scaler": (lambda: WithErrors(StandardScaler()), "gaps"),
    "scaler-robust": (lambda: WithErrors(RobustScaler()), "errors"),
    "scaler-range": (lambda: WithErrors(MinMaxScaler()), None),
    "scaler-quantile": (lambda: WithErrors(QuantileTransformer(n_quantiles=20)), "errors"),
    "nothing": (WithErrors, "errors"),
    "pipeline": (
        lambda: make_pipeline(WithErrors(StandardScaler()), Deconvolve(missing_indicator=True), GuruClassifier(0.3)),
        "gaps",
    ),
    "pipeline-exact": (lambda: make_pipeline(StandardScaler(), KernelGuruClassifier(0.3)), None),
}  # fmt: skip


def outputs(estimator, samples):
    """Return all arrays that an estimator makes of samples."""
    methods = ("predict", "predict_proba", "predict_log_proba", "decision_function", "margin_and_spread", "transform")
    result = []
    for name in methods:
        if hasattr(estimator, name) and (name != "margin_and_spread" or getattr(estimator, "_is_linear", False)):
            try:
                found = getattr(estimator, name)(samples)
            except NotLinearError:
                continue
            result += [found.X, found.err] if isinstance(found, Measured) else [found]
    return [np.asarray(part.std if hasattr(part, "std") and hasattr(part, "factors") else part) for part in result]


def test_estimators_alone_are_judged_by_the_command(tmp_path, capsys):
    """The spread of the features is not known where nobody kept it."""
    X, X_err, y = measured(gaps=False)
    frame = pd.DataFrame(np.c_[X, X_err], columns=["x0", "x1", "x2", "x0_err", "x1_err", "x2_err"]).assign(label=y)
    frame.to_csv(tmp_path / "t.csv", index=False)
    models_of = {
        "pool": ErrorBarClassifier(model="population", **FEW).fit(X, y, X_err=X_err),
        "populations": PopulationClassifier(1).fit(X, y),
        "guru": GuruClassifier(0.3).fit(X, y),
    }
    for name, estimator in models_of.items():
        save_model(estimator, str(tmp_path / name))
        call = ["evaluate", str(tmp_path / name), str(tmp_path / "t.csv"), "--json"]
        if name != "pool":
            assert main(call) == 2
            assert "--noise-levels must be given" in capsys.readouterr().err
            call += ["--noise-levels", "0,1"]
        assert main(call) == 0
        found = json.loads(capsys.readouterr().out)
        samples = Measured(X, X_err) if name == "pool" else X
        assert found["accuracy"] == pytest.approx(np.mean(estimator.predict(samples) == y))
        assert ("reliability" in found) == (name == "pool")  # the only one with errors
        assert found["robustness"]["accuracy"][0] == pytest.approx(found["accuracy"])


LABELS = {
    "number": lambda k: k, "text": lambda k: np.array(["no", "yes", "other"])[k], "bool": lambda k: k == 1,
    "real": lambda k: k.astype(np.float32), "object": lambda k: np.array(["no", "yes", "other"], dtype=object)[k],
    "int8": lambda k: k.astype(np.int8),
}  # fmt: skip


def test_a_population_with_an_empty_component_is_saved(tmp_path):
    X, X_err, y = measured()
    estimator = PopulationClassifier(2).fit(X, y, X_err=X_err)
    population = estimator.populations_[0]
    population.population_ = replace(population.population_, weights=np.array([1.0, 0.0]))
    save_model(estimator, str(tmp_path / "model"))
    expected = estimator.predict_proba(X, X_err=X_err)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(load_model(str(tmp_path / "model")).predict_proba(X, X_err=X_err), expected)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("calibrated", "unmeasured"), ("calibrated-logistic", "error"), ("deconvolve", "unmeasured")],
)
def test_cards_say_whether_values_may_be_missing(tmp_path, name, missing):
    X, X_err, y = measured(gaps=False)
    save_model(ALONE[name][0]().fit(Measured(X, X_err), y), str(tmp_path / "model"))
    layout = read_model(str(tmp_path / "model")).layout
    assert (layout.has_errors, layout.missing) == (True, missing)


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize(("n_classes", "frame"), [(2, False), (3, True)])
def test_any_estimator_comes_back_with_the_same_bits(tmp_path, name, n_classes, frame):
    make, how = ALONE[name]
    X, X_err, y = measured(n_classes=n_classes, gaps=how == "gaps")
    X = pd.DataFrame(X, columns=["a", "b", "c"]) if frame else X
    samples = X if how is None else Measured(X, X_err)
    if name.startswith("total") and n_classes == 3:
        return  # for two classes alone
    estimator = make().fit(samples, y)
    save_model(estimator, str(tmp_path / "model"))
    loaded = read_model(str(tmp_path / "model"))
    assert isinstance(loaded, Model)
    assert type(loaded.estimator) is type(estimator)
    found, expected = outputs(loaded.estimator, samples), outputs(estimator, samples)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.layout.features == (["a", "b", "c"] if frame else ["x0", "x1", "x2"])
    save_model(Model(estimator, {}), str(tmp_path / "again"))
    save_model(loaded, str(tmp_path / "model"), force=True)
    for path in ("again", "model"):
        np.testing.assert_array_equal(outputs(read_model(str(tmp_path / path)).estimator, samples)[0], expected[0])
    if hasattr(estimator, "predict"):
        assert loaded.card["classes"] == list(range(n_classes))
        labels = loaded.predict(X, None if how is None else X_err)["label"]
        np.testing.assert_array_equal(labels, estimator.predict(samples))


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_come_back(tmp_path, kind):
    X, _, y = measured(gaps=False)
    estimator = GuruClassifier(0.3).fit(X, LABELS[kind](y))
    save_model(estimator, str(tmp_path / "model"))
    loaded = read_model(str(tmp_path / "model"))
    found, expected = loaded.estimator.predict(X), estimator.predict(X)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert loaded.labels([str(label) for label in expected[:4]], "t").tolist() == expected[:4].tolist()


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    X, X_err, y = measured(gaps=False)
    errors, path = Measured(X, X_err), tmp_path / "model"
    with pytest.raises(NotFittedError):
        save_model(GuruClassifier(), str(path))
    for estimator, samples, words in (
        (RandomForestClassifier(2, random_state=np.random.RandomState(0)), X, "random_state"),
        (RandomForestClassifier(2, class_weight={0: 1.0, 1: 2.0}), X, "class_weight"),
        (HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]), np.round(np.abs(X)), "categorical"),
        (ErrorBarClassifier(GaussianNB(), model="boosting", **FEW), errors, "GaussianNB"),
        (make_pipeline(PCA(2), GuruClassifier(0.3)), X, "PCA"),
        (KernelGuruClassifier(0.3, kernel=plain_kernel), X, "plain_kernel"),
        (WithErrors(FunctionTransformer(itself)), errors, "itself"),
        (SVC(), X, "SVC"),
        (WithErrors(PCA(2)), errors, "PCA"),
    ):
        estimator.fit(samples, y)
        with pytest.raises(ModelError, match=f"the {type(estimator).__name__} cannot be saved: .*{words}") as caught:
            save_model(estimator, str(path))
        assert "pickle or joblib keep any other" in str(caught.value)
        assert not path.exists()
    with pytest.raises(ModelError, match="cannot be saved"):
        save_model(Model("no estimator", {}), str(path))


def plain_kernel(A, B):
    return A @ B.T


def test_members_of_a_pool_may_lack_a_class(tmp_path, monkeypatch):
    """A member is fitted to some rows of a large table, among which a rare class may not be."""
    X, X_err, y = measured(n_classes=3, gaps=False)
    rows = np.flatnonzero((y < 2) | (np.arange(len(y)) < 13))
    X, X_err, y = X[rows], X_err[rows], y[rows]
    monkeypatch.setattr(pool, "KERNEL_ROWS", 15)
    model = ErrorBarClassifier(model="rbf", **FEW).fit(X, y, X_err=X_err)
    assert {len(each.classes_) for each in model.members_["rbf"]} == {2, 3}
    save_model(model, str(tmp_path / "model"))
    found = read_model(str(tmp_path / "model")).estimator
    np.testing.assert_array_equal(found.predict_proba(X, X_err), model.predict_proba(X, X_err))
