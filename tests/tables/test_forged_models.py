"""Model files that were forged: refused when they are loaded, in one short line, in no time and memory to speak of."""

import copy
import io
import json
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from test_models import CASES, fit, table

from gaussguru import ErrorBarClassifier
from gaussguru._tables.archive import CARD, SCHEMA, pack
from gaussguru._tables.files import FileLimits
from gaussguru._tables.layout import Layout
from gaussguru._tables.trees import replaced, without_trees
from gaussguru.errors import Measured
from gaussguru.models import Model, ModelError, read_model, save_model

ABSENT = object()


def refuses(path, words, limits=None):
    with pytest.raises(ModelError, match=words) as caught:
        read_model(str(path), limits=limits)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message) < 700 + len(str(path))
    assert "\n" not in message


def far_index(X):
    X.indices += 1_000_000
    return X


def backwards(X):
    X.indptr = X.indptr[::-1].copy()
    return X


def forged_view(name, value, view):
    return view._replace(**{name: value})


# A case of test_models, an attribute of one of its steps, and what it is replaced by, or a function of what it was.
NUMBERS = [
    ABSENT, None, "text", 5, [[1.0, 2.0, 3.0]], np.zeros(2), np.array(["a", "b", "c"]), np.zeros((9, 9)), np.array(1.0),
    np.zeros(3, "V0"), lambda old: old * np.nan, lambda old: old + np.inf, lambda old: old.astype(int),
    lambda old: old.astype(complex), lambda old: old[..., np.newaxis],
]  # fmt: skip
FORGED = [
    *(("linear", path, value) for path in ("classify.coef_", "classify.intercept_") for value in NUMBERS),
    *(("linear", path, value) for path in ("scale.mean_", "scale.scale_") for value in NUMBERS if value is not None),
    *(
        ("linear", "classify.classes_", value)
        for value in [
            ABSENT, None, ["c0", "c1"], np.array(["c1", "c0"]), np.array(["c0", "c0"]), np.array([0, 1]),
            np.array(["c0", "c2"]), np.array(["c0", "c1", "c2"]), np.array([["c0"], ["c1"]]),
            np.array(["c0", "c1"], dtype="U5000"),
        ]
    ),
    *(
        ("linear", f"{step}.n_features_in_", value)
        for step in ("classify", "scale")
        for value in (ABSENT, None, 4, "3", 3.0)
    ),
    *(("linear", "classify.noise_", value) for value in (ABSENT, 5, "axis", [1])),
    *(("linear", "classify.noise_.sigma", value) for value in (ABSENT, None, "x", -1.0, np.nan, True)),
    *(("linear", f"classify.{name}", 5) for name in ("predict", "decision_function", "_scores", "__sklearn_tags__")),
    *(("linear", f"classify.{name}", "x" * 1000) for name in ("sigma", "l2", "tol", "n_jobs", "verbose", "loss")),
    *(("linear", f"classify.{name}", ABSENT) for name in ("n_jobs", "sigma", "loss", "population_")),
    *(("deviations", "classify.noise_.deviations", value) for value in (ABSENT, 5, np.zeros(2), np.full(3, np.nan))),
    *(("covariance", "classify.noise_.shape.matrix", value) for value in (ABSENT, 5, np.eye(2), np.eye(3, dtype=int))),
    ("linear", "scale.scale_", np.array([1.0, 0.0, 1.0])),
    ("linear", "scale.scale_", np.array([1.0, -1.0, 1.0])),
    ("linear", "scale.transform", 1),
    ("linear", "scale.copy", ABSENT),
    ("linear", "scale.with_mean", ABSENT),
    ("linear", "scale.feature_names_in_", 5),
    ("linear", "scale.feature_names_in_", np.array(["a", "b", "d"], dtype=object)),
    ("linear", "scale.feature_names_in_", np.array(["a", "b"], dtype=object)),
    *(("mean", "fill.statistics_", value) for value in (ABSENT, np.zeros(2), np.full(3, np.nan))),
    *(("mean", f"fill.{name}", ABSENT) for name in ("strategy", "missing_values", "keep_empty_features")),
    ("mean", "fill.missing_values", "text"),
    *(
        ("errors", f"scale.{path}", value)
        for path in [
            "_map", "_map.centre", "_map.offset", "_map.matrix", "_map.monomial", "transformer_", "transformer_.mean_",
            "population_.means", "population_.spreads",
        ]
        for value in (ABSENT, 5, np.zeros(2), "text")
    ),
    ("errors", "scale._map.monomial", (np.array([0, 1, 9]), np.ones(3))),
    ("errors", "scale._map.monomial", (np.array([0, 1, 2]), np.full(3, np.nan))),
    ("errors", "scale._map.matrix", far_index),
    ("errors-only", "scale.transformer_.func", 5),
    ("unmeasured", "classify.population_.spreads", np.zeros(1)),
    ("unmeasured", "classify.population_", "text"),
    ("unmeasured", "scale.population_", "text"),
    *(
        ("rbf", f"classify.{path}", value)
        for path in ["dual_coef_", "support_", "X_fit_", "norm_", "_kernel", "_kernel.name", "_kernel.params"]
        for value in (ABSENT, None, 5, "text", np.zeros(3))
    ),
    ("rbf", "classify.kernel", "poly"),
    ("rbf", "classify._kernel.name", "precomputed"),
    ("rbf", "classify.population_", "text"),
    ("rbf", "classify.spread", "text"),
    *(("rbf", "classify._kernel.centre", value) for value in (ABSENT, 5, "text", np.zeros(2), np.full(3, np.nan))),
    ("rbf", "classify._kernel.params", {"gamma": "x", "degree": 3, "coef0": 1}),
    ("rbf", "classify._kernel.params", {"gamma": 1.0, "degree": 3, "coef0": 1, "more": 1}),
    ("poly", "classify.X_fit_", far_index),
    ("poly", "classify.X_fit_", backwards),
    ("poly", "classify.X_fit_", lambda old: old[:, :2]),
    ("poly", "classify.X_fit_", lambda old: old[:3]),
    *(
        ("measured", f"classify.{path}", value)
        for path in [
            "population_", "population_.population_", "population_.population_.means",
            "population_.population_.covariances", "population_.population_.weights", "population_.spreads_",
            "population_.error_scale_", "centre_", "scale_", "estimator_", "estimator_.coef_", "estimator_.intercept_",
            "estimator_.classes_", "alpha_", "beta_", "kappa_", "kappa_pvalue_", "reliability_",
            "has_errors_", "classes_", "n_features_in_",
        ]
        for value in (ABSENT, "text", np.zeros(2), [1.0])
    ),
    *(
        ("measured", f"classify.{name}", 5)
        for name in ("predict", "predict_proba", "_calibrated_logs", "_posteriors", "margin_and_spread")
    ),
    *(("measured", f"classify.population_.{name}", 5) for name in ("transform", "reliability", "_rows", "weights_")),
    ("measured", "classify.population_.population_.moments", 5),
    ("measured", "classify.estimator", 5),
    ("measured", "classify.method_", "pool"),
    ("measured", "classify.model", "auto"),
    ("measured", "classify.model", "stack"),
    ("measured", "classify.noise_range", (0.5, "x")),
    *(
        ("pool", f"classify.{path}", value)
        for path in [
            "method_", "model", "features_", "features_.view", "features_.axes", "features_.largest", "features_.gaps",
            "features_.limits", "features_.low", "features_.high", "pool_", "pool_.members", "pool_.weights",
            "pool_.powers", "pool_.gate", "pool_.n_classes",
            "pool_.members.0.name", "pool_.members.0.columns", "pool_.members.0.models",
            "pool_.members.0.models.0.classes_", "pool_.members.3.models.0.steps",
            "pool_.members.3.models.0.steps.0.1.landmarks_", "pool_.members.3.models.0.steps.0.1.gamma",
            "pool_.members.3.models.0.steps.0.1.n_features", "pool_.members.3.models.0.steps.1.1.coef_",
            "pool_.members.4.models.0.populations_", "pool_.members.4.models.0.class_prior_",
            "pool_.members.5.models.0.coef_", "pool_.members.5.models.0.intercept_", "population_", "centre_", "scale_",
            "reliability_", "has_errors_", "cv_scores_", "noise_range",
        ]
        for value in (ABSENT, None, np.zeros(7), [1.0], "text" if not path.endswith(".name") else 5)
    ),
    *(
        ("pool", "classify.features_.view", partial(forged_view, name, value))
        for name, value in [
            ("population", None), ("centre", np.zeros(2)), ("centre", np.full(3, np.nan)), ("scale", np.zeros(3)),
            ("scale", -np.ones(3)), ("scale", "text"),
        ]
    ),
    ("pool", "classify.features_.view", tuple),
    ("pool", "classify.features_.axes", lambda old: old[:2]),
    ("pool", "classify.features_.axes", lambda old: old[:, :2]),
    ("pool", "classify.features_.axes", lambda old: old * np.nan),
    ("pool", "classify.features_.largest", lambda old: -old),
    ("pool", "classify.features_.gaps", np.array([3])),
    ("pool", "classify.features_.gaps", np.array([0])),
    ("pool", "classify.features_.limits", np.array([-1])),
    ("pool-three", "classify.features_.gaps", np.array([], dtype=int)),
    ("pool-three", "classify.features_.gaps", np.array([1.0])),
    ("pool-three", "classify.features_.gaps", np.array([[1]])),
    ("pool-three", "classify.features_.gaps", np.array([1, 1])),
    ("pool-three", "classify.features_.limits", np.array([1])),
    ("pool", "classify.pool_.weights", lambda old: 2 * old),
    ("pool", "classify.pool_.weights", lambda old: old - 1.0),
    ("pool", "classify.pool_.weights", lambda old: old[:1]),
    ("pool", "classify.pool_.weights", lambda old: old[:, 1:]),
    ("pool", "classify.pool_.powers", lambda old: -old),
    ("pool", "classify.pool_.powers", lambda old: old[:1]),
    ("pool", "classify.pool_.powers", np.array([1.0, np.nan])),
    *(
        ("pool", "classify.pool_.gate", np.array(value))
        for value in ([np.inf, 0.0], [-np.inf, 1.0], [0.0, -1.0], [0.0, np.nan], [0.0, np.inf], [0, 1], [0.0] * 3)
    ),
    ("pool", "classify.pool_.n_classes", 3),
    ("pool", "classify.pool_.n_classes", 2.0),
    ("pool", "classify.pool_.members", []),
    ("pool", "classify.pool_.members", lambda old: old[:-1]),
    ("pool", "classify.pool_.members", lambda old: [*old[:-1], old[-1].models[0]]),
    ("pool", "classify.pool_.probabilities", 5),
    ("pool", "classify.features_.columns", 5),
    ("pool", "classify.members_", {}),
    ("pool", "classify.weights_", np.ones((2, 6))),
    ("pool", "classify._measured", 5),
    ("pool", "classify.n_jobs", 10**9),
    ("pool", "classify.n_jobs", "x"),
    ("pool", "classify.pool_.members.0.models", []),
    *(
        ("pool", f"classify.pool_.members.{m}.columns", columns)
        for m, columns in [
            (0, "sizes"), (0, "measured"), (0, "linear"), (0, "x"), (0, "with errors"), (3, "trees"), (3, "linear"),
            (4, "trees"), (5, "posterior"),
        ]
    ),
    *(
        ("pool", "classify.pool_.members.5.models.0.classes_", value)
        for value in [
            np.array([0, 2]), np.array([-1, 1]), np.array([1, 0]), np.array([0]), np.array([0.0, 1.0]),
            np.array(["c0", "c1"]), np.array([[0, 1]]), np.array([0, 0]), np.array([0, 1, 2]),
        ]
    ),
    ("pool", "classify.pool_.members.5.models.0.predict_proba", 5),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.transform", 5),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.landmarks_", lambda old: old[:, :2]),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.landmarks_", lambda old: old[1:]),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.landmarks_", lambda old: old + 1e9),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.gamma", -1.0),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.gamma", 1e300),
    ("pool", "classify.pool_.members.3.models.0.steps.0.1.n_features", 10**9),
    ("pool", "classify.pool_.members.3.models.0.steps", lambda old: old[1:]),
    ("pool", "classify.pool_.members.3.models.0.steps", lambda old: old[::-1]),
    ("pool", "classify.pool_.members.3.models", lambda old: [Pipeline([("a", Pipeline(old[0].steps))])]),
    ("pool", "classify.cv_scores_", lambda old: {**old, "member": old["member"][1:]}),
    ("pool", "classify.cv_scores_", lambda old: {**old, "log_loss": old["log_loss"].tolist()}),
    ("pool", "classify.cv_scores_", lambda old: {**old, "more": old["log_loss"]}),
    ("pool", "classify.cv_scores_", lambda old: {name: part[:3] for name, part in old.items()}),
    ("pool-exact", "classify.pool_.gate", np.array([-np.inf, -1.0])),
    ("pool-three", "classify.pool_.members.5.models.0.coef_", lambda old: old[:2]),
    ("measured", "classify.scale_", lambda old: -old),
    ("measured", "classify.scale_", lambda old: 0 * old),
    ("measured", "classify.alpha_", -1.0),
    ("measured", "classify.kappa_", float("nan")),
    ("measured", "classify.beta_", float("inf")),
    ("measured", "classify.population_.missing_indicator", True),
    ("measured", "classify.population_.n_jobs", "x"),
    ("measured", "classify.population_.population_.covariances", lambda old: -old),
    ("measured", "classify.population_.population_.covariances", lambda old: old + np.triu(np.ones(old.shape[1:]), 1)),
    ("measured", "classify.population_.population_.covariances", lambda old: old * np.nan),
    ("measured", "classify.population_.population_.weights", np.zeros(1)),
    ("measured-gaps", "classify.population_.population_.means", lambda old: old[:1]),
    ("measured-three", "classify.beta_", 1.0),
    ("measured-three", "classify.beta_", lambda old: old[:2]),
    ("measured-three", "classify.estimator_.coef_", lambda old: old[:2]),
    ("three", "classify.coef_", lambda old: old[:2]),
    ("three", "classify.intercept_", lambda old: old[:1]),
]  # fmt: skip


@cache
def small(name):
    """Return a model and its card as it is saved; of a pool with one classifier of each kind, of few trees."""
    model = fit(name)
    if name.startswith("pool"):
        model = copy.deepcopy(model)
        for member in model.classifier.pool_.members:
            del member.models[1:]
            if hasattr(member.models[0], "_predictors"):
                del member.models[0]._predictors[2:]
            if hasattr(member.models[0], "estimators_"):
                del member.models[0].estimators_[2:]
    with tempfile.TemporaryDirectory() as directory:
        save_model(model, f"{directory}/model")
        return model, read_model(f"{directory}/model").card


@pytest.mark.parametrize(("name", "path", "value"), FORGED, ids=[f"{name}-{path}" for name, path, _ in FORGED])
def test_attributes_that_no_fit_makes(tmp_path, name, path, value):
    whole, card = small(name)
    model = copy.deepcopy(whole)
    step, *parts, last = path.split(".")
    thing = model.estimator.named_steps[step]
    for part in parts:
        thing = thing[int(part)] if part.isdecimal() else vars(thing)[part]
    if value is ABSENT:
        del vars(thing)[last]
    else:
        vars(thing)[last] = value(vars(thing).get(last)) if callable(value) else value
    (tmp_path / "model").write_bytes(pack(model.estimator, card))
    refuses(tmp_path / "model", "model is (damaged|not trusted): ")
    with pytest.raises(ModelError, match="cannot be saved: "):
        save_model(model, str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()


def entries(content):
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(files, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def files(tmp_path, request):
    """Return the entries of a model file."""
    save_model(fit(getattr(request, "param", "linear")), str(tmp_path / "good"))
    return entries((tmp_path / "good").read_bytes())


@pytest.fixture
def refuses_soon(tmp_path):
    """Return a function that asserts that a model file is refused, and how little that took."""

    def refuses_soon(content, words, limits=None):
        (tmp_path / "bad").write_bytes(content)
        begin = time.perf_counter()
        tracemalloc.start()
        try:
            refuses(tmp_path / "bad", words, limits)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert time.perf_counter() - begin < 15  # seconds; tracing makes it several times slower
        assert most < 7e8

    return refuses_soon


TOO_MUCH = "unpacks to more than 5 MB, and more than 100 times its size; --max-unpacked"
FEW = FileLimits(unpacked=5_000_000)
ZEROS = bytes(1_000_000)


def test_what_unpacks_to_much(files, refuses_soon):
    array = next(name for name in files if name.endswith(".npy"))
    refuses_soon(zipped({**files, array: ZEROS * 120}), TOO_MUCH.replace("5", "100"))
    refuses_soon(zipped({**files, array: ZEROS * 6}), TOO_MUCH, FEW)
    refuses_soon(zipped({**files, "more": ZEROS * 6}), TOO_MUCH, FEW)
    refuses_soon(zipped({**files, CARD: b"[" + b"[]," * 400_000 + b"1]"}), TOO_MUCH, FEW)
    refuses_soon(zipped({**files, SCHEMA: b"[" + b"{}," * 400_000 + b"1]"}), TOO_MUCH, FEW)
    refuses_soon(zipped({**files, **{f"{place}.npy": b"" for place in range(20_000)}}), "no model")
    refuses_soon(zipped(files, zipfile.ZIP_LZMA), "no model")
    # An entry that unpacks to more than the directory says.
    lie = bytearray(zipped({"more": ZEROS * 800, **files}))
    place = lie.find(b"PK\1\2") + 24
    lie[place : place + 4] = (10).to_bytes(4, "little")
    refuses_soon(bytes(lie), "no model")
    # The same entry for many objects.
    schema = json.loads(files[SCHEMA])
    again = {**node(None, "NdArrayNode", "ndarray", "numpy"), "type": "numpy", "file": array}
    schema["content"]["content"].update({f"a{place}": again for place in range(20)})
    refuses_soon(zipped({**files, array: ZEROS, SCHEMA: json.dumps(schema)}), TOO_MUCH, FEW)


@pytest.mark.parametrize("files", ["poly"], indirect=True)
def test_what_unpacks_to_much_inside(files, refuses_soon):
    (sparse,) = [name for name in files if name.endswith(".npz")]
    inner = {**entries(files[sparse]), "data.npy": ZEROS * 6}
    refuses_soon(zipped({**files, sparse: zipped(inner)}), TOO_MUCH, FEW)


def test_limits_can_be_raised(files, tmp_path):
    (tmp_path / "model").write_bytes(zipped({**files, "more": ZEROS}))
    refuses(tmp_path / "model", "--max-unpacked", FileLimits(unpacked=1_000_000))
    assert read_model(str(tmp_path / "model"), limits=FileLimits(unpacked=1_200_000)).layout.features == ["a", "b", "c"]


class Endless(io.RawIOBase):
    """A pipe that never ends."""

    def read(self, size=-1):
        assert size >= 0
        return bytes(size)


def test_a_pipe_is_read_no_further_than_its_limit(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Endless()))
    with pytest.raises(ModelError, match="standard input has more than 100 MB; --max-unpacked"):
        read_model("-")


def node(content, loader, kind, module="builtins"):
    return {"__class__": kind, "__module__": module, "__loader__": loader, "content": content}


def nested(levels):
    """Return objects inside each other, as JSON: it is too deep to be made of objects."""
    begin, _, end = json.dumps(node(["here"], "ListNode", "list")).partition('"here"')
    return begin * levels + "1" + end * levels


def doubled(levels):
    """Return objects that each hold the next one twice, once by its number: as many paths as 2 to their power."""
    value = {**node([], "ListNode", "list"), "__id__": 1}
    for number in range(2, levels):
        again = {**node([], "ListNode", "list"), "__id__": number - 1}
        value = {**node([value, again], "ListNode", "list"), "__id__": number}
    return value


def array(shape, dtype):
    """Return the file of an array that says that it has this shape, and has no values."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode()


SCHEMAS = {
    "nested": (nested(450), "levels deep"),
    "nested-more": (nested(50_000), "damaged: RecursionError"),
    "doubled": (doubled(23), "steps|damaged|levels deep"),
    "json": (node("[" * 900 + "]" * 900, "JsonNode", "str"), "list or object"),
    "number": (node(5, "JsonNode", "str"), "damaged"),
    "eval": (node("1", "FunctionNode", "eval"), "not trusted.*'builtins.eval'"),
    "long": (node([], "ListNode", "l" * 1_000_000), "not trusted.*lll"),
    "loader": (node([], "x" * 1_000_000, "list"), "not trusted.*'builtins.list made by xxx"),
    "svm": (node(None, "ObjectNode", "SVC", "sklearn.svm._classes"), "not trusted.*'sklearn.svm._classes.SVC'"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_objects_that_no_model_has(files, refuses_soon, name):
    what, words = SCHEMAS[name]
    schema = json.loads(files[SCHEMA])
    schema["content"]["content"]["steps"] = "here"
    text = json.dumps(schema).replace('"here"', what if isinstance(what, str) else json.dumps(what))
    refuses_soon(zipped({**files, SCHEMA: text}), words)


@pytest.mark.parametrize("dtype", ["<f8", "|V0", "|S0", "<U1000000"])
def test_arrays_that_are_not_there(files, refuses_soon, dtype):
    for name in [name for name in files if name.endswith(".npy")]:
        refuses_soon(zipped({**files, name: array("(1000000000000,)", dtype)}), "damaged: .*its values")


DEEP = json.loads("[" * 900 + "]" * 900)
LAYOUT = fit("errors").card["layout"]
CARDS = {
    "deep": {"more": DEEP},
    "long-version": {"versions": {"gaussguru": "9" * 1000, "scikit-learn": "1.0"}},
    "text-for-a-number": {"spread": "1.0"},
    "infinite-spread": {"spread": float("inf")},
    "labels": {"labels": "x" * 1_000_000},
    "labels-list": {"labels": ["text"]},
    "classes": {"classes": ["c0"]},
    "classes-of-numbers": {"classes": [0, 1]},
    "classes-mixed": {"classes": ["c0", 1]},
    "no-classes": {"classes": None},
    "layout": {"layout": DEEP},
    "features": {"layout": {**LAYOUT, "values": "abc", "errors": {}}},
    "twice": {"layout": {**LAYOUT, "values": ["a", "a", "b"], "errors": {}}},
    "errors-twice": {"layout": {**LAYOUT, "errors": {"a": ["sigma", [DEEP], 1.0]}}},
    "errors": {"layout": {**LAYOUT, "errors": {"a": 1}}},
    "na": {"layout": {**LAYOUT, "na": [None]}},
    "na-flag": {"layout": {**LAYOUT, "na": [True]}},
    "log": {"layout": {**LAYOUT, "log": "a"}},
    "levels": {"layout": {**LAYOUT, "categories": {"k": ["x", "x"]}}},
    "correlations": {"layout": {**LAYOUT, "correlations": [["a", "d", "x"]]}},
    "missing-error": {"layout": {**LAYOUT, "missing_error": 1}},
    "target": {"layout": {**LAYOUT, "target": ["y"]}},
    "missing": {"layout": {**LAYOUT, "missing": ["mean"]}},
    "more": {"layout": {**LAYOUT, "x" * 1_000_000: 1}},
    "format": {"format": "x"},
    "two-sided": {"layout": {**LAYOUT, "errors": {"a": ["sides", ["a_err"], 1.0]}}},
    "kind": {"layout": {**LAYOUT, "errors": {"a": ["x" * 1_000_000, ["a_err"], 1.0]}}},
    "factor": {"layout": {**LAYOUT, "errors": {"a": ["sigma", ["a_err"], "1"]}}},
    "limits": {"layout": {**LAYOUT, "limits": {"a": ["a_limit", 1]}}},
}


@pytest.mark.parametrize("files", ["errors"], indirect=True)
@pytest.mark.parametrize("name", CARDS)
def test_cards_that_no_fit_writes(files, refuses_soon, name):
    card = {**json.loads(files[CARD]), **CARDS[name]}
    refuses_soon(zipped({**files, CARD: json.dumps(card)}), "no model|damaged|written by")


@pytest.mark.parametrize("files", ["poly"], indirect=True)
def test_arrays_that_are_not_there_inside(files, refuses_soon):
    (sparse,) = [name for name in files if name.endswith(".npz")]
    inner = {**entries(files[sparse]), "data.npy": array("(1000000000000,)", "<f8")}
    refuses_soon(zipped({**files, sparse: zipped(inner)}), "damaged: .*its values")


def test_json_that_is_no_json(files, refuses_soon):
    for content in (b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"\xff", b"9" * 5000, b"null", b'"text"', b""):
        refuses_soon(zipped({**files, CARD: content}), "no model")
        refuses_soon(zipped({**files, SCHEMA: content}), "damaged")


@pytest.mark.parametrize("name", CASES)
def test_what_a_fit_makes_is_no_forgery(tmp_path, name):
    """Whatever the limits: a model unpacks to a few times its size."""
    save_model(fit(name), str(tmp_path / "model"))
    assert (
        read_model(str(tmp_path / "model"), limits=FileLimits(unpacked=1)).card["classes"] == fit(name).card["classes"]
    )


def numbers_in(thing, path=(), depth=0):
    """Yield where an object has numbers: attributes, places of lists and dicts, one after the other."""
    if isinstance(thing, float) or (isinstance(thing, np.ndarray) and thing.dtype.kind == "f" and thing.size):
        yield path
    elif isinstance(thing, dict):
        for name, part in thing.items():
            yield from numbers_in(part, (*path, name))
    elif isinstance(thing, list | tuple):
        for place, part in enumerate(thing):
            yield from numbers_in(part, (*path, place))
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        yield from numbers_in(vars(thing), path)


def with_number(thing, path, value):
    """Return an object with another number at some place, in the first element of an array."""
    if not path:
        if isinstance(thing, float):
            return value
        changed = thing.copy()
        changed.flat[0] = value
        return changed
    name, *rest = path
    if isinstance(thing, tuple):
        return tuple(with_number(part, rest, value) if k == name else part for k, part in enumerate(thing))
    parts = thing if isinstance(thing, dict | list) else vars(thing)
    parts[name] = with_number(parts[name], rest, value)
    return thing


def pool():
    """Return a pool with one classifier of every kind; that of trees has too many numbers, and checks of its own."""
    data = table(errors=True, missing="unmeasured")
    samples = Measured(data.X, data.X_err)
    model = ErrorBarClassifier(LogisticRegression(), cv=2, n_components=1).fit(samples, data.y)
    kept = [m for m, member in enumerate(model.pool_.members) if member.name not in ("trees", "estimator, as measured")]
    members = [replace(model.pool_.members[m], models=model.pool_.members[m].models[:1]) for m in kept]
    weights = model.pool_.weights[:, kept]
    model.pool_ = replace(model.pool_, members=members, weights=weights / weights.sum(axis=1, keepdims=True))
    return model


EXTREME = [1e308, -1e149, 1e-320]


@pytest.mark.parametrize("name", ["linear", "unmeasured", "rbf", "measured-three", "pool"])
def test_no_number_of_a_file_makes_a_prediction_that_is_none(tmp_path, name):
    """Any one of them extreme, and samples as large and as small as a table may hold: refused, or numbers."""
    model = Model(pool(), {}) if name == "pool" else fit(name)
    save_model(model, str(tmp_path / "model"))
    card = read_model(str(tmp_path / "model")).card
    sizes = np.array([0.0, 1.0, -1e150, 1e150, 1e-300])
    X = pd.DataFrame(np.stack([sizes, np.roll(sizes, 1), -np.roll(sizes, 2)], axis=1), columns=card["layout"]["values"])
    # Scaled errors are at most 1e150, as others.
    errors = np.array([[0.0], [1e149], [1.0], [1e-300], [np.inf]]) * np.ones((1, 3))
    X_err = errors if Layout(**card["layout"]).has_errors else None
    refused = accepted = 0
    for path in numbers_in(model.estimator):
        for value in EXTREME:
            forged = with_number(copy.deepcopy(model.estimator), path, value)
            (tmp_path / "forged").write_bytes(pack(forged, card))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = read_model(str(tmp_path / "forged")).predict(X, X_err, each=True)
                except (ModelError, ValueError) as error:
                    assert "\n" not in str(error)  # noqa: PT017  both ends are right
                    refused += 1
                    continue
            accepted += 1
            for column, values in found.items():
                assert column == "label" or not np.isnan(values).any(), (path, value)
                assert not column.startswith("prob") or ((values >= 0) & (values <= 1)).all(), (path, value)
    assert refused
    assert accepted


def test_trees_that_no_fit_makes(tmp_path):
    """Numbers of nodes and features that compiled code would follow anywhere, and values that are no probabilities."""
    data = table(n_classes=3)
    forests = [
        HistGradientBoostingClassifier(max_iter=3), RandomForestClassifier(3, random_state=0),
        DecisionTreeClassifier(random_state=0),
    ]  # fmt: skip
    for estimator in forests:
        model = estimator.fit(data.X, data.y.astype(str))
        save_model(model, str(tmp_path / "model"), force=True)
        card = read_model(str(tmp_path / "model")).card
        boosting = isinstance(estimator, HistGradientBoostingClassifier)
        left, feature, threshold = (
            ("left", "feature_idx", "num_threshold") if boosting else ("left_child", "feature", "threshold")
        )

        def refused(change, words="damaged", model=model, card=card):
            packed = replaced(model, without_trees)
            change(packed)
            (tmp_path / "forged").write_bytes(pack(packed, card))
            refuses(tmp_path / "forged", words)

        def node(name, value, place=0):
            def change(trees):
                trees.nodes[name] = trees.nodes[name].copy()
                trees.nodes[name][place] = value

            return change

        for value in (0, 10**6, 2):  # the root, beyond the last, and the child of another
            refused(node(left, value), "children|one parent")
        if not boosting:
            refused(node(left, -2), "one parent|children|shape|nodes")
        refused(node(feature, 3), "features")
        refused(node(feature, -1), "features")
        refused(node(threshold, np.nan), "thresholds")
        for name, value in (
            ("kind", "SVC"), ("kind", 5), ("parameters", {"n_jobs": 10**9}), ("parameters", {"more": 1}),
            ("parameters", {"n_jobs": [1]}), ("parameters", None), ("n_features", 10**9), ("n_features", 2),
            ("n_features", "3"),
            ("classes", None), ("classes", np.array(["c0", "c0", "c1"])), ("classes", np.array(["c0", "c1"])),
            ("ends", None), ("ends", np.array([0])), ("ends", np.array([10**9])), ("ends", np.array([-1, 5])),
            ("nodes", {}),
            ("nodes", []), ("values", None), ("values", np.zeros(3)), ("names", ["a"]), ("names", 5),
        ):  # fmt: skip
            refused(lambda trees, name=name, value=value: setattr(trees, name, value))
        for value in (np.nan, np.inf, -1.0, 1e300):
            if not (boosting and value == -1.0):
                refused(lambda trees, v=value: setattr(trees, "values", np.full(trees.values.shape, v)))
        if boosting:
            refused(node("is_categorical", 1), "categories")
            refused(node("value", np.nan), "no numbers")
            refused(lambda trees: setattr(trees, "ends", np.array([trees.ends[-1]])))
