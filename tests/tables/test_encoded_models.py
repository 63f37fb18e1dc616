"""Model files with a ColumnTransformer: encoders of categories beside errors, and forgeries of what they read."""

import copy
import tempfile
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, QuantileTransformer, StandardScaler
from test_forged_models import ABSENT, refuses

from gaussguru import ErrorBarClassifier, GuruClassifier, Measured, PopulationClassifier
from gaussguru._tables.archive import pack
from gaussguru.cli import main
from gaussguru.models import ModelError, load_model, read_model, save_model
from gaussguru.preprocessing import WithErrors

N = 80
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": np.exp(RNG.normal(size=N)), "kind": RNG.choice(list("xyz"), N),
                  "grade": RNG.choice(["low", "high"], N), "c": RNG.normal(size=N)})  # fmt: skip
X_ERR = pd.DataFrame({"a": np.full(N, 0.1), "b": 0.1, "c": 0.2})
Y = (X["a"] + (X["kind"] == "x") + 0.3 * RNG.normal(size=N) > 0.5).to_numpy(int)
ENCODED = {
    "drop first": ColumnTransformer(
        [("kind", OneHotEncoder(drop="first"), ["kind"]), ("numbers", StandardScaler(), ["c", "a"]),
         ("grade", OrdinalEncoder(), ["grade"])], remainder="passthrough",
    ),
    "curved, text left out": ColumnTransformer(
        [("bent", QuantileTransformer(n_quantiles=10), ["b", "a"]),
         ("kind", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind"])]
    ),
    "by number": ColumnTransformer(
        [("numbers", make_pipeline(StandardScaler(), MinMaxScaler()), [0, 1]), ("text", OneHotEncoder(), [2, 3]),
         ("gone", "drop", [4])]
    ),
    "if binary": ColumnTransformer(
        [("text", OneHotEncoder(drop="if_binary"), ["kind", "grade"]), ("numbers", StandardScaler(), ["a", "b"])]
    ),
}  # fmt: skip
MODELS = {
    "guru": GuruClassifier(0.1), "linear": ErrorBarClassifier(model="linear", cv=2),
    "population": PopulationClassifier(1),
}  # fmt: skip


@cache
def fitted(encoded, model="guru", errors=True):
    inner = copy.deepcopy(ENCODED[encoded])
    first = WithErrors(inner) if errors else inner
    return make_pipeline(first, copy.deepcopy(MODELS[model])).fit(Measured(X, X_ERR) if errors else X, Y)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("encoded", ENCODED)
def test_a_loaded_pipeline_encodes_and_predicts_the_same(tmp_path, encoded, model):
    pipeline, path = fitted(encoded, model), str(tmp_path / "model")
    save_model(pipeline, path)
    found, expected = (each.predict_proba(Measured(X, X_ERR)) for each in (load_model(path), pipeline))
    np.testing.assert_array_equal(found, expected)
    other = X.assign(kind="unheard of")
    for each in (load_model(path), pipeline):
        if "curved" in encoded:
            assert np.isfinite(each.predict_proba(Measured(other, X_ERR))).all()
        else:
            with pytest.raises(ValueError, match="Found unknown categories"):
                each.predict_proba(Measured(other, X_ERR))


@pytest.mark.parametrize("encoded", ENCODED)
def test_without_errors_it_needs_no_wrapper(tmp_path, encoded):
    pipeline, path = fitted(encoded, errors=False), str(tmp_path / "model")
    save_model(pipeline, path)
    np.testing.assert_array_equal(load_model(path).predict_proba(X), pipeline.predict_proba(X))


def test_the_command_says_that_it_cannot_encode(tmp_path, capsys):
    save_model(fitted("drop first", "population"), str(tmp_path / "m"))
    X.to_csv(tmp_path / "t.csv", index=False)
    assert read_model(str(tmp_path / "m")).card["encoded"] == ["grade", "kind"]
    for command in ("predict", "evaluate"):
        assert main([command, str(tmp_path / "m"), str(tmp_path / "t.csv")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "was saved in Python and encodes 'grade', 'kind' itself: predict there" in line


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (OneHotEncoder(max_categories=2), "_infrequent_enabled"),
        (OneHotEncoder(dtype=np.float32), "dtype"),
        (OneHotEncoder(categories=[["z", "y", "x", None]]), "neither different texts"),
    ],
)
def test_encoders_that_cannot_be_checked_are_not_saved(tmp_path, encoder, words):
    inner = ColumnTransformer([("kind", encoder, ["kind"]), ("numbers", StandardScaler(), ["a"])])
    pipeline = make_pipeline(WithErrors(inner), GuruClassifier(0.1)).fit(Measured(X, X_ERR), Y)
    with pytest.raises(ModelError, match=f"cannot be saved: .*{words}"):
        save_model(pipeline, str(tmp_path / "m"))


BRANCH, CODES = "transformers_.0.1", "transformers_.2.1"
FORGED = [
    *(("_transformer_to_input_indices", value) for value in (
        ABSENT, None, {}, {"kind": [9], "numbers": [4, 0], "grade": [3], "remainder": [1]},
        {"kind": [2], "numbers": [0, 4], "grade": [3], "remainder": [1]})),
    *(("output_indices_", value) for value in (
        ABSENT, None, {}, {"kind": slice(0, 10**9), "numbers": slice(2, 4), "grade": slice(4, 5)},
        lambda old: old | {"more": slice(0, 0)}, lambda old: old | {"kind": slice(0, 2, 2)})),
    *(("transformers_", value) for value in (
        ABSENT, None, [], 5, lambda old: old[:2], lambda old: [*old, old[0]], lambda old: [each[:2] for each in old],
        lambda old: [(name, step, ["nothing"]) for name, step, _ in old],
        lambda old: [(name, step, []) for name, step, _ in old],
        lambda old: [(name, step, slice(0, 1)) for name, step, _ in old],
        lambda old: [(name, "passthrough", columns) for name, _, columns in old],
        lambda old: [(name, GuruClassifier(), columns) for name, _, columns in old])),
    *(("transformers", value) for value in (
        ABSENT, None, 5, lambda old: old[::-1], lambda old: [(name, GuruClassifier(), part) for name, _, part in old],
        lambda old: [(name, StandardScaler(), part) for name, _, part in old])),
    ("transformer_weights", {"kind": 2.0}),
    ("sparse_output_", 5),
    ("n_jobs", "many"),
    ("n_jobs", 10**9),
    ("n_features_in_", 4),
    ("transform", 5),
    ("feature_names_in_", np.array(["a", "b"], dtype=object)),
    *((f"{BRANCH}.categories_", value) for value in (
        ABSENT, None, [], 5, [np.array([])], [np.array(["x", "x", "y"], dtype=object)], [["x", "y", "z"]],
        [np.array([2.0, 1.0])], [np.array([1.0, np.nan])], [np.array(["x", 1], dtype=object)],
        lambda old: [*old, *old], lambda old: [old[0][:2]])),
    *((f"{BRANCH}._drop_idx_after_grouping", value) for value in (
        ABSENT, 5, np.array([7], dtype=object), np.array([-1], dtype=object), np.array(["x"], dtype=object), None,
        np.array([0, 0], dtype=object))),
    *((f"{BRANCH}._n_features_outs", value) for value in (ABSENT, None, [10**9], [3], ["2"], [2, 2])),
    *((f"{BRANCH}.{name}", 5) for name in (
        "_infrequent_enabled", "dtype", "handle_unknown", "sparse_output", "transform", "_transform")),
    *((f"{CODES}.{name}", 5) for name in (
        "_missing_indices", "handle_unknown", "categories_", "dtype", "_infrequent_enabled", "transform")),
    (f"{CODES}._missing_indices", {0: 10**9}),
    (f"{CODES}.unknown_value", "text"),
]  # fmt: skip


def is_refused(tmp_path, model):
    (tmp_path / "model").write_bytes(pack(model, card_of_a_fit()))
    refuses(tmp_path / "model", "model is (damaged|not trusted): ")
    with pytest.raises(ModelError, match="cannot be saved: "):
        save_model(model, str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()


@cache
def card_of_a_fit():
    with tempfile.TemporaryDirectory() as directory:
        save_model(fitted("drop first"), f"{directory}/model")
        return read_model(f"{directory}/model").card


@pytest.mark.parametrize(("path", "value"), FORGED, ids=[path for path, _ in FORGED])
def test_branches_that_no_fit_makes(tmp_path, path, value):
    model = copy.deepcopy(fitted("drop first"))
    thing, (*parts, last) = model[0].transformer_, path.split(".")
    for part in parts:
        thing = thing[int(part)] if part.isdecimal() else vars(thing)[part]
    if value is ABSENT:
        del vars(thing)[last]
    else:
        vars(thing)[last] = value(vars(thing).get(last)) if callable(value) else value
    is_refused(tmp_path, model)


@pytest.mark.parametrize(
    "value", [ABSENT, None, 5, np.zeros(0, int), np.array([2]), np.array([2, 9]), np.array([3, 2])]
)
def test_columns_of_categories_that_no_fit_finds(tmp_path, value):
    model = copy.deepcopy(fitted("drop first"))
    if value is ABSENT:
        del model[0]._exact
    else:
        model[0]._exact = value
    is_refused(tmp_path, model)


@pytest.mark.parametrize(("name", "value"), [
    ("monomial", (np.array([0, 1, 9]), np.ones(3))), ("monomial", (np.array([0, -1, 1]), np.ones(3))),
    ("monomial", None), ("offset", np.zeros(4)), ("matrix", np.zeros((3, 4))), ("centre", np.zeros(2)),
])  # fmt: skip
def test_maps_that_no_fit_makes(tmp_path, name, value):
    model = copy.deepcopy(fitted("drop first"))
    model[0].__dict__["_map"] = copy.copy(model[0]._map)
    object.__setattr__(model[0]._map, name, value)
    is_refused(tmp_path, model)
