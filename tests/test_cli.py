"""The command: the numbers of the library, and one line with exit code 2 for whatever the user can mend."""

import ast
import copy
import csv
import hashlib
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.datasets import dump_svmlight_file
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from support import data as problems
from support.tables import BAD
from test_report import Page

from gaussguru import (
    ErrorBarClassifier,
    GuruClassifier,
    GuruClassifierCV,
    KernelGuruClassifier,
    __version__,
    cli,
    demo,
    models,
    sigma_path,
)
from gaussguru._tables import base, files
from gaussguru._tables.archive import pack
from gaussguru._tables.fitting import fit_model
from gaussguru.errors import Measured
from gaussguru.preprocessing import WithErrors, errors_from_frame
from gaussguru.robustness import (
    certified_radius,
    class_probabilities,
    expected_accuracy,
    flip_probability,
    remeasure_gain,
    robustness_curve,
)
from gaussguru.thesis.run import EXPERIMENTS
from gaussguru.thesis.store import Store
from gaussguru.thesis.tables import KERNEL

REAL = [name for name in ("pima", "koi_err") if (problems._DIRECTORY / f"{name}.npz").exists()]
needs = {name: pytest.mark.skipif(name not in REAL, reason=f"{name}.npz is not there") for name in ("pima", "koi_err")}


@pytest.fixture
def run(capsysbinary, tmp_path, monkeypatch):
    """Return a function that runs the command in an empty directory: its code, output and lines of talk."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        assert b"\x1b" not in out + err  # no terminal, no control characters
        return code, out.decode(), err.decode().splitlines()

    return run


@pytest.fixture
def fails(run):
    """Return a function that asserts that the command ends with code 2, one line of these words, and nothing done."""

    def fails(*arguments, words=(), stdin=b""):
        before = contents()
        code, out, err = run(*arguments, stdin=stdin)
        assert (code, out) == (2, ""), (code, out, err)
        assert len(err) == 1, err
        assert err[0].startswith("gaussguru: ")
        assert len(err[0]) < 1100
        for word in words:
            assert word in err[0]
        assert contents() == before
        return err[0]

    return fails


def contents():
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


def succeeds(result):
    code, out, err = result
    assert code == 0, err
    return out


def predictions(text):
    """Return CSV as a table, read by other code: texts, and numbers where there is a number."""
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    return pd.DataFrame({name: [number(cell) for cell in column] for name, column in columns.items()})


def number(cell):
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


def toy(n=120, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    k = np.arange(n) % n_classes
    frame = pd.DataFrame(10 * (rng.standard_normal((n, 3)) + np.eye(3)[k]) + 5, columns=["a", "b", "c"])
    frame["y"] = np.array(["no", "yes, sure", 'may"be'])[k]
    return frame


def pima():
    with np.load(problems._DIRECTORY / "pima.npz") as file:
        names = ["pregnant", "glucose", "pressure", "triceps", "insulin", "mass", "pedigree", "age"]
        frame = pd.DataFrame(file["X"], columns=names)
        frame["diabetes"] = np.where(file["y"] == 1, "pos", "neg")
    return frame


def koi(n=700):
    """Return rows with errors, some values not measured, an identifier and a text target of three classes."""
    with np.load(problems._DIRECTORY / "koi_err.npz") as file:
        names, X, E = file["feature_names"], file["X"][:n].copy(), file["X_err"][:n]
        rng = np.random.default_rng(0)
        X[rng.random(X.shape) < 0.03] = np.nan
        columns = {"kepid": file["kepid"][:n]}
        for j, name in enumerate(names):
            columns |= {name: X[:, j], name + "_err": E[:, j]}
        return pd.DataFrame(columns | {"disposition": file["y"][:n]}), X, np.where(np.isnan(X), np.inf, E)


def check_columns(found, classifier, samples, classes):
    """Assert that predictions are those of the library."""
    labels = classifier.predict(samples)
    probabilities = class_probabilities(classifier, samples)
    assert found["label"].tolist() == labels.tolist()
    own = probabilities[np.arange(len(labels)), np.searchsorted(classes, labels)]
    for name, expected in {
        "probability": own,
        "flip_probability": flip_probability(classifier, samples),
        "radius": certified_radius(classifier, samples),
        **{f"probability_{label}": probabilities[:, k] for k, label in enumerate(classes)},
    }.items():
        # The rounding of a sum goes with its terms: with unscaled features some are thousands of times as large.
        atol = 1e-11 * float(np.abs(expected).max())
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=atol, err_msg=name)


@needs["pima"]
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_pima_gives_the_numbers_of_the_library(run, format):
    frame, file = pima(), f"pima.{format}"
    frame.to_csv(file, index=False) if format == "csv" else frame.to_parquet(file, index=False)
    succeeds(run("fit", file, "--target", "diabetes", "--sigma", "0.3", "-o", "m"))
    out = succeeds(run("predict", "m", file, "--each"))
    X, y = frame.drop(columns="diabetes"), frame["diabetes"].to_numpy(dtype=str)
    Z = StandardScaler().fit_transform(X)
    classifier = GuruClassifier(0.3).fit(Z, y)
    check_columns(predictions(out), classifier, Z, ["neg", "pos"])
    card = json.loads(succeeds(run("show", "m")))
    assert card["data"]["sha256"] == hashlib.sha256(Path(file).read_bytes()).hexdigest()
    assert card["fit"]["gap"] == pytest.approx(classifier.dual_gap_, rel=1e-6)
    found = json.loads(succeeds(run("evaluate", "m", file, "--json", "--noise-levels", "0,0.5,2")))
    assert found["accuracy"] == accuracy_score(y, classifier.predict(Z))
    assert found["log_loss"] == pytest.approx(log_loss(y, classifier.predict_proba(Z)), rel=1e-9)
    assert found["expected_accuracy"] == pytest.approx(expected_accuracy(classifier, Z, y), rel=1e-9)
    curve = robustness_curve(classifier, Z, y, [0, 0.5, 2])
    np.testing.assert_allclose(found["robustness"]["accuracy"], curve.accuracy, rtol=1e-9)


@needs["koi_err"]
@pytest.mark.parametrize("scale", [True, False])
def test_errors_and_values_not_measured_are_those_of_the_library(run, monkeypatch, scale):
    monkeypatch.setattr(base, "BLOCK", 20_000)  # several parts
    frame, X, E = koi()
    frame.to_csv("koi.csv", index=False)
    options = ["--drop", "kepid", "--sigma", "0.2", "--target", "disposition", *([] if scale else ["--no-scale"])]
    options += ["--classifier", "guru"]
    succeeds(run("fit", "koi.csv", *options, "-o", "m"))
    out = succeeds(run("predict", "m", "koi.csv", "--each", "--keep", "kepid"))
    found = predictions(out)
    assert found["kepid"].tolist() == frame["kepid"].tolist()
    samples = WithErrors(StandardScaler() if scale else None).fit_transform(X, X_err=E)
    y = frame["disposition"].to_numpy(dtype=str)
    classifier = GuruClassifier(0.2).fit(samples, y)
    check_columns(found, classifier, samples, classifier.classes_.tolist())
    result = json.loads(succeeds(run("evaluate", "m", "koi.csv", "--json", "--noise-levels", "0,1")))
    assert result["expected_accuracy"] == pytest.approx(expected_accuracy(classifier, samples, y), rel=1e-9)
    assert result["rows"] == len(y)


def measured(n=240, n_classes=2, seed=0):
    """Return a table of measurements, in which errors are true: the values, their errors, labels, and the table."""
    rng = np.random.default_rng(seed)
    k = np.arange(n) % n_classes
    E = rng.uniform(0.1, 1.5, (n, 3))
    X = rng.standard_normal((n, 3)) + 2 * np.eye(3)[k] + E * rng.standard_normal((n, 3))
    y = np.array(["no", "yes", "perhaps"])[k]
    columns = {}
    for j, name in enumerate("abc"):
        columns |= {name: X[:, j], f"{name}_err": E[:, j]}
    return X, E, y, pd.DataFrame({"id": [f"s{i}" for i in range(n)], **columns, "y": y})


@pytest.mark.parametrize("n_classes", [2, 3])
def test_columns_of_errors_make_a_classifier_of_measurements(run, fails, n_classes):
    X, E, y, frame = measured(n_classes=n_classes)
    frame.to_csv("t.csv", index=False)
    code, _, err = run("fit", "t.csv", "--target", "y", "--drop", "id", "--folds", "3", "--model", "linear", "-o", "m")
    assert code == 0
    talk = "\n".join(err)
    for words in ("3 of them with errors", "ridge ", "cross-validated log loss", "least reliable", "error bars"):
        assert words in talk
    by_hand = ErrorBarClassifier(model="linear", cv=3, random_state=0).fit(X, y, X_err=E)
    out = succeeds(run("predict", "m", "t.csv", "--keep", "id", "--remeasure", "0.5"))
    found = predictions(out)
    classes = by_hand.classes_.tolist()
    names = ["id", "label", "probability", *(f"probability_{label}" for label in classes), "remeasure_gain"]
    assert list(found) == names
    expected = by_hand.predict_proba(X, E)
    np.testing.assert_allclose(found[names[3:-1]], expected, rtol=1e-6, atol=1e-12)
    assert found["label"].tolist() == by_hand.predict(X, E).tolist()
    np.testing.assert_allclose(found["remeasure_gain"], remeasure_gain(by_hand, X, E, E / 2), rtol=1e-6, atol=1e-9)
    card = json.loads(succeeds(run("show", "m")))
    assert card["classifier"] == "ErrorBarClassifier"
    assert card["fit"]["method"] == by_hand.method_
    assert card["fit"]["kappa_pvalue"] == pytest.approx(by_hand.kappa_pvalue_)
    result = json.loads(succeeds(run("evaluate", "m", "t.csv", "--json", "--report", "r.html")))
    assert result["log_loss"] == pytest.approx(log_loss(y, expected), rel=1e-6)
    assert sum(result["reliability"]["rows"]) == len(y)
    shown = succeeds(run("evaluate", "m", "t.csv"))
    for words in ("log loss", "brier score", "predicted  observed", "small", "large", "noise level"):
        assert words in shown
    page = Page(Path("r.html").read_text())
    assert {"Population and reliability", "Probabilities", "Measure these again"} <= set(page.headings)
    rows = page.table("errors", "samples")
    assert [float(row[4].removesuffix(" %")) / 100 for row in rows] == pytest.approx(
        result["reliability"]["observed"], abs=1e-4
    )
    levels = page.table("noise level", "accuracy", "log loss")
    assert [float(row[2]) for row in levels] == pytest.approx(result["robustness"]["log_loss"], abs=1e-4)
    # Errors that are not there.
    frame.drop(columns="b_err").to_csv("u.csv", index=False)
    for command in ("predict", "evaluate"):
        fails(command, "m", "u.csv", words=["u.csv", "'b_err'", "which the model needs"])
    fails("predict", "m", "t.csv", "--remeasure", "2", "-o", "p", words=["--remeasure", "between 0 and 1"])
    fails("predict", "m", "t.csv", "--remeasure", "nan", "-o", "p", words=["--remeasure"])
    fails("predict", "m", "t.csv", "--keep", "probability_no", "-o", "p", words=["probability_no"])
    fails("evaluate", "m", "t.csv", "--noise-levels", "0,1", words=["--noise-levels", "1 or more"])


def test_a_pool_is_the_default_and_says_what_error_bars_are_worth(run, fails):
    X, E, y, frame = measured(n=150)
    frame.drop(columns="id").to_csv("t.csv", index=False)
    options = ("fit", "t.csv", "--target", "y", "--folds", "2")
    code, out, err = run(*options, "-o", "m")
    assert (code, out) == (0, "")
    by_hand = ErrorBarClassifier(cv=2, random_state=0).fit(X, y, X_err=E)
    found = predictions(succeeds(run("predict", "m", "t.csv")))
    np.testing.assert_allclose(found["probability_yes"], by_hand.predict_proba(X, E)[:, 1], rtol=1e-6)
    card = json.loads(succeeds(run("show", "m")))
    scores = by_hand.cv_scores_
    rows = {name: k for k, name in enumerate(scores["member"].tolist())}
    assert card["fit"]["method"] == "pool"
    assert card["fit"]["members"]["member"] == list(by_hand.members_)
    for column in ("log_loss", "log_loss_noisier"):
        assert card["fit"][f"cv_{column}"] == pytest.approx(scores[column][rows["pool"]])
        assert card["fit"][f"errors_ignored_{column}"] == pytest.approx(scores[column][rows["errors ignored"]])
    # The table: a line for each member and for what it is compared with, and then what that means.
    shown = {"pool": "the pool", "errors ignored": "boosting, errors ignored"}
    shown["error sizes used"] = "boosting, error sizes used"
    for name, k in rows.items():
        (line,) = (line for line in err if line.startswith(f"{shown.get(name, name)}  "))
        cells = line.split()[-4:]
        assert [cells[1], cells[3]] == [f"{scores[column][k]:.4f}" for column in ("log_loss", "log_loss_noisier")]
        weight = scores["weight"][k]
        assert cells[0] == ("-" if np.isnan(weight) else f"{weight:.2f}")
    for name, words in (("class frequencies", "class frequencies"), ("errors ignored", "ignores the errors")):
        gains = [
            scores[column][rows[name]] - scores[column][rows["pool"]] for column in ("log_loss", "log_loss_noisier")
        ]
        errors = [scores[column][rows[name]] for column in ("standard_error", "standard_error_noisier")]
        assert min(gains) > 0
        (line,) = (line for line in err if words in line and " lower than " in line)
        assert f"{gains[0]:.3f} ± {errors[0]:.3f} lower" in line
        assert f"with more noise {gains[1]:.3f} ± {errors[1]:.3f} lower" in line
    assert any("With --use-error-sizes the log loss" in line for line in err)
    assert any("least reliable features" in line for line in err)
    assert not any("proven" in line or "likelihood" in line for line in err)
    assert run(*options, "-q", "--model", "population", "-o", "p") == (0, "", [])
    code, _, err = run(*options, "--model", "boosting", "--use-error-sizes", "-o", "s")
    assert code == 0
    assert any("The sizes of the errors are features here" in line for line in err)
    assert json.loads(succeeds(run("show", "s")))["parameters"]["use_error_sizes"]
    succeeds(run("evaluate", "p", "t.csv", "--report", "r.html"))
    assert "Members of the pool" in Page(Path("r.html").read_text()).headings
    fails(*options, "--scale-errors", "-o", "n", words=["--scale-errors is for --model linear; got --model auto"])
    fails(*options, "--model", "rbf", "--use-error-sizes", "-o", "n", words=["--use-error-sizes", "--model rbf"])
    fails(*options, "--model", "stack", "-o", "n", words=["--model", "'stack'", "auto, linear, rbf, boosting"])
    fails(*options, "--kernel", "rbf", "-o", "n", words=["--kernel rbf needs --classifier guru"])
    fails(*options, "--no-errors", "--model", "rbf", "-o", "n", words=["--model rbf needs --classifier error-bars"])


def test_predictions_of_measurements_come_in_parts_and_rows_may_lack_values(run, monkeypatch):
    X, E, y, frame = measured()
    frame.loc[::7, "b"] = np.nan
    frame.loc[3, ["a", "b", "c"]] = np.nan
    frame.loc[5, "c_err"] = np.inf
    frame.to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--drop", "id", "--folds", "2", "--model", "population", "-o", "m"))
    once = [succeeds(run("predict", "m", "t.csv", "--remeasure", "0")), succeeds(run("evaluate", "m", "t.csv"))]
    X, E = X.copy(), E.copy()
    X[::7, 1] = X[3] = np.nan
    E[np.isnan(X)] = E[5, 2] = np.inf
    by_hand = ErrorBarClassifier(model="population", cv=2, random_state=0).fit(X, y, X_err=E)
    expected = by_hand.predict_proba(X, E)[:, 1]
    np.testing.assert_allclose(predictions(once[0])["probability_yes"], expected, rtol=1e-6)
    monkeypatch.setattr(base, "BLOCK", 1000)
    parts = predictions(succeeds(run("predict", "m", "t.csv", "--remeasure", "0")))
    for name, column in predictions(once[0]).items():
        if name == "label":
            assert parts[name].tolist() == column.tolist()
        else:
            np.testing.assert_allclose(parts[name], column, rtol=1e-9, atol=1e-12)
    gains = predictions(once[0])["remeasure_gain"]
    assert gains[3] == pytest.approx(0.0, abs=1e-9)  # nothing was measured, and that stays so
    assert gains.max() > 0.01


@pytest.mark.parametrize(("upper", "lower"), [("1", "2"), ("hi", "lo"), ("_up", "_low")])
def test_errors_with_two_sides_and_limits_are_found_by_their_names(run, fails, upper, lower):
    _, E, y, frame = measured()
    above, below = E[:, 1] * 1.5, E[:, 1] * 0.5
    frame = frame.drop(columns=["id", "b_err"]).assign(
        **{f"b_err{upper}": above, f"b_err{lower}": -below, "c_limit": np.where(np.arange(len(y)) % 5, 0, -1)}
    )
    frame.loc[1, "c_limit"] = np.nan
    frame.to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--folds", "2", "--model", "boosting", "-o", "m"))
    found = predictions(succeeds(run("predict", "m", "t.csv")))
    values, errors = errors_from_frame(frame.drop(columns="y"))
    by_hand = ErrorBarClassifier(model="boosting", cv=2, random_state=0).fit(values, y, X_err=errors)
    np.testing.assert_allclose(found["probability_yes"], by_hand.predict_proba(values, errors)[:, 1], rtol=1e-6)
    succeeds(run("evaluate", "m", "t.csv", "--report", "r.html"))
    assert "it requires standard deviations" in Path("r.html").read_text()
    frame.assign(c_limit=0).to_csv("none.csv", index=False)
    gains = predictions(succeeds(run("predict", "m", "none.csv", "--remeasure", "0.5")))["remeasure_gain"]
    code, out, err = run("predict", "m", "t.csv", "--remeasure", "0.5")
    with_limit = (frame["c_limit"] == -1).to_numpy()
    assert (code, f"remeasure_gain is empty in {with_limit.sum()} rows with limits" in " ".join(err)) == (0, True)
    some = predictions(out)["remeasure_gain"]
    np.testing.assert_array_equal(np.isnan(some), with_limit)
    frame[~with_limit].assign(c_limit=0).to_csv("rest.csv", index=False)
    rest = predictions(succeeds(run("predict", "m", "rest.csv", "--remeasure", "0.5")))["remeasure_gain"]
    np.testing.assert_allclose(np.asarray(some)[~with_limit], rest, rtol=1e-6)
    frame.assign(c_limit=-1).to_csv("all.csv", index=False)
    code, out, err = run("predict", "m", "all.csv", "--remeasure", "0.5")
    assert (code, predictions(out)["remeasure_gain"].isna().all()) == (0, True)
    values, errors = errors_from_frame(frame.drop(columns=["y", "c_limit"]))
    symmetric, spreads = (pd.DataFrame(np.asarray(part), columns=[*"abc"]) for part in errors.symmetric(values))
    np.testing.assert_allclose(gains, remeasure_gain(by_hand, symmetric, spreads, 0.5 * spreads), rtol=1e-5, atol=1e-8)
    fails("path", "t.csv", "--target", "y", words=["'c_limit'", "--drop"])
    options = ("--target", "y", "--classifier", "guru", "--sigma", "0.5", "-o", "n")
    fails("fit", "t.csv", *options, words=["'c_limit'", "--drop"])
    succeeds(run("fit", "t.csv", *options, "--drop", "c_limit"))
    succeeds(run("fit", "t.csv", "--target", "y", "--no-errors", "--sigma", "0.5", "-o", "k"))
    assert json.loads(succeeds(run("show", "k")))["layout"]["values"] == ["a", "b", "c"]
    other = {"1": "hi", "hi": "_up", "_up": "1"}[upper], {"2": "lo", "lo": "_low", "_low": "2"}[lower]
    mixed = frame.drop(columns="a_err").assign(**{f"a_err{side}": 1.0 for side in other})
    mixed.to_csv("t.csv", index=False)
    assert run("columns", "t.csv", "--target", "y")[1].count("side") == 4
    for change, words in (
        ({f"b_err{lower}": None}, [f"'b_err{upper}'", "the other is not there", "--drop"]),
        ({"b_err": 1.0}, ["'b'", "two kinds of errors", "--drop"]),
        ({"c_limit": 2}, ["'c_limit'", "2 in row 1", "-1 for an upper limit", "--drop"]),
        ({f"b_err{upper}": -1.0}, [f"'b_err{upper}'", "-1 in row 1", "nonnegative"]),
        ({f"b_err{lower}": np.nan}, [f"'b_err{lower}' has no error in 240 of", "--missing-error unmeasured"]),
        ({"c_err": np.inf}, ["'c_limit'", "where the error is infinite"]),
    ):
        gone = [name for name, value in change.items() if value is None]
        changed = frame.drop(columns=gone).assign(**{name: change[name] for name in change if name not in gone})
        changed.to_csv("u.csv", index=False)
        fails("fit", "u.csv", "--target", "y", "-o", "x", words=["u.csv", *words])


def test_a_name_that_ends_as_limits_do_may_be_a_feature(run):
    toy().rename(columns={"b": "a_limit"}).to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    assert json.loads(succeeds(run("show", "m")))["layout"]["values"] == ["a", "a_limit", "c"]


def test_options_of_one_classifier_are_not_for_the_other(run, fails):
    toy().to_csv("t.csv", index=False)
    measured()[3].to_csv("e.csv", index=False)
    plain, errors = (("fit", f"{name}.csv", "--target", "y", "-o", "m") for name in "te")
    errors += ("--drop", "id")
    for option in (["--sigma", "0.5"], ["--no-scale"], ["--noise", "axis"], ["--loss", "logistic"], ["--l2", "1"],
                   ["--tol", "0.001"], ["--kernel", "rbf"]):  # fmt: skip
        words = ["e.csv", " ".join(option), "'a_err'", "--classifier guru", "--no-errors"]
        fails(*errors, *option, words=words)
    succeeds(run(*errors, "--sigma", "0.5", "--classifier", "guru"))
    assert json.loads(succeeds(run("show", "m")))["classifier"] == "GuruClassifier"
    fails("predict", "m", "e.csv", "--remeasure", "0.5", "-o", "p", words=["--remeasure", "error-bars"])
    for option in (["--gaussians", "2"], ["--scale-errors"], ["--use-error-sizes"], ["--model", "linear"]):
        fails(*plain, *option, "--force", words=[" ".join(option), "--classifier error-bars"])
    fails(*plain, "--force", "--classifier", "error-bars", "--sigma", "1", words=["--sigma 1", "--classifier guru"])
    for count in ("0", "x", "-1", "1.5", "101", "9" * 5000):
        fails(*errors, "--force", "--gaussians", count, words=["--gaussians"])
    succeeds(run(*plain, "--force", "--classifier", "error-bars", "--folds", "2"))
    found = predictions(succeeds(run("predict", "m", "t.csv")))
    assert [*found][:2] == ["label", "probability"]
    assert len([*found]) == 4
    assert "noise level" in succeeds(run("evaluate", "m", "t.csv"))
    succeeds(run("evaluate", "m", "t.csv", "--report", "r.html"))
    succeeds(run(*errors, "--force", "--model", "linear", "--scale-errors", "--gaussians", "2", "--folds", "2"))
    card = json.loads(succeeds(run("show", "m")))
    assert (card["parameters"]["n_components"], card["parameters"]["scale_errors"]) == (2, True)


def test_a_model_of_an_older_format_is_refused(run, fails):
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    with zipfile.ZipFile("m") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    card = json.loads(entries["gaussguru.json"])
    with zipfile.ZipFile("old", "w") as file:
        for name, content in {**entries, "gaussguru.json": json.dumps({**card, "format": 1})}.items():
            file.writestr(name, content)
    for command in (["predict", "old", "t.csv"], ["evaluate", "old", "t.csv"], ["show", "old"]):
        fails(*command, words=["old was written by gaussguru", "in format 1", "fit again"])


@needs["pima"]
def test_cross_validation_is_that_of_the_library(run):
    frame = pima()
    frame.to_csv("pima.csv", index=False)
    card = json.loads(succeeds(run("fit", "pima.csv", "--target", "diabetes", "-o", "m", "--json")))
    Z, y = StandardScaler().fit_transform(frame.drop(columns="diabetes")), frame["diabetes"].to_numpy(dtype=str)
    by_hand = GuruClassifierCV(20, cv=5).fit(Z, y)
    assert card["fit"]["sigma"] == pytest.approx(by_hand.sigma_, rel=1e-12)
    assert card["fit"]["cv_accuracy"] == pytest.approx(by_hand.scores_.mean(axis=1).max(), rel=1e-12)
    table = predictions(succeeds(run("path", "pima.csv", "--target", "diabetes", "--sigmas", "4", "-o", "-")))
    sigmas, coefs, _, _ = sigma_path(Z, y, n_sigmas=4)
    np.testing.assert_allclose(table["sigma"], sigmas, rtol=1e-9)
    np.testing.assert_allclose(table["norm"], np.linalg.norm(coefs[:, 0], axis=1), rtol=1e-6)
    np.testing.assert_allclose(table["cv_accuracy"], GuruClassifierCV(4).fit(Z, y).scores_.mean(axis=1), rtol=1e-9)
    fits = [GuruClassifier(sigma).fit(Z, y) for sigma in sigmas[1:]]  # the first has no use for the features
    np.testing.assert_allclose(table["training_accuracy"][1:], [fit.score(Z, y) for fit in fits], rtol=0.01)
    assert (table["gap"] <= 1e-6 * len(y)).all()


def test_kernels_are_those_of_the_library(run):
    frame = toy()
    frame.to_csv("t.csv", index=False)
    Z, y = StandardScaler().fit_transform(frame[["a", "b", "c"]]), frame["y"].to_numpy(dtype=str)
    succeeds(run("fit", "t.csv", "--target", "y", "--kernel", "rbf", "--gamma", "0.5", "--sigma", "0.1", "-o", "m"))
    found = predictions(succeeds(run("predict", "m", "t.csv", "--each")))
    by_hand = KernelGuruClassifier(0.1, gamma=0.5).fit(Z, y)
    assert found["label"].tolist() == by_hand.predict(Z).tolist()
    np.testing.assert_allclose(found["probability_no"], by_hand.predict_proba(Z)[:, 0], rtol=1e-9)
    np.testing.assert_allclose(found["flip_probability"], by_hand.predict_proba(Z).min(axis=1), rtol=1e-9)
    assert "radius" not in found
    result = json.loads(succeeds(run("evaluate", "m", "t.csv", "--json", "--noise-levels", "0,0.1")))
    assert result["accuracy"] == result["robustness"]["accuracy"][0] == by_hand.score(Z, y)
    assert result["robustness"]["method"] == "sampling"
    card = json.loads(succeeds(run("fit", "t.csv", "--target", "y", "--kernel", "poly", "--sigma", "0.3,3", "-o", "n",
                                   "--degree", "2", "--folds", "3", "--json")))  # fmt: skip
    search = GridSearchCV(KernelGuruClassifier(kernel="poly", degree=2), {"sigma": [3, 0.3]}, cv=3).fit(Z, y)
    assert card["fit"]["sigma"] == search.best_params_["sigma"]
    assert card["fit"]["cv_accuracy"] == pytest.approx(search.best_score_, rel=1e-12)


@pytest.mark.parametrize("rule", ["mean", "drop", "unmeasured"])
def test_missing_values_of_a_prediction_are_treated_as_in_the_fit(run, rule):
    frame = toy()
    frame.loc[::11, "b"] = np.nan
    frame.to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "--missing", rule, "-o", "m"))
    other = toy(seed=1)
    other.loc[[0, 3], "a"] = np.nan
    other.loc[[4], ["a", "b", "c"]] = np.nan
    other.drop(columns="y")[["c", "a", "b"]].to_csv("u.csv", index=False)
    found = predictions(succeeds(run("predict", "m", "u.csv")))
    assert len(found) == len(other)
    X, y, X_new = frame[["a", "b", "c"]].to_numpy(), frame["y"].to_numpy(dtype=str), other[["a", "b", "c"]].to_numpy()
    known = ~np.isnan(X_new).any(axis=1)
    if rule == "drop":
        some = ~np.isnan(X).any(axis=1)
        scaler = StandardScaler().fit(X[some])
        classifier = GuruClassifier(0.5).fit(scaler.transform(X[some]), y[some])
        assert found[~known].isna().to_numpy().all()
        samples = scaler.transform(X_new[known])
    elif rule == "mean":
        filler = SimpleImputer().fit(X)
        scaler = StandardScaler().fit(filler.transform(X))
        classifier = GuruClassifier(0.5).fit(scaler.transform(filler.transform(X)), y)
        samples = scaler.transform(filler.transform(X_new))
    else:
        scaler = WithErrors(StandardScaler())
        classifier = GuruClassifier(0.5).fit(scaler.fit_transform(Measured(X, np.where(np.isnan(X), np.inf, 0.0))), y)
        samples = scaler.transform(Measured(X_new, np.where(np.isnan(X_new), np.inf, 0.0)))
    found = found[known] if rule == "drop" else found
    assert found["label"].tolist() == classifier.predict(samples).tolist()
    np.testing.assert_allclose(found["flip_probability"], flip_probability(classifier, samples), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "step", "options"),
    [
        (
            "fit t.csv --target y --sigma 1 -o new",
            "_tables.fitting.fit_model",
            ["--features", "--drop", "--model linear", "in parts"],
        ),
        ("path t.csv --target y", "_tables.fitting.path_table", ["--features", "--drop"]),
        ("evaluate m t.csv --report r.html", "_tables.judging.evaluate_model", ["without --report"]),
        ("predict m t.csv -o p.csv", "cli.predictions._predicted", []),
    ],
)
def test_options_that_take_less_are_named_where_memory_runs_out(run, fails, monkeypatch, call, step, options):
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "1", "-o", "m"))

    def allocate(*_, **__):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(f"gaussguru.{step}", allocate)
    line = fails(*call.split(), words=["memory ran out", "Unable to allocate 9 GiB", *options])
    for option in re.findall(r"--[a-z]+", line):
        assert option in succeeds(run(call.split()[0], "--help"))


def test_an_evaluation_begins_with_a_verdict(run, fails):
    """And names the rows that are most wrong, by their numbers in the file and by columns of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"id": [f"s{i}" for i in range(200)], "x": x, "z": rng.normal(size=200)})
    frame["y"] = np.where(x + 0.5 * rng.normal(size=200) > 0, "up", "down")
    frame.loc[[3, 77], "x"] = np.nan
    frame.to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--drop", "id", "--missing", "drop", "--sigma", "0.3", "-o", "m"))
    shown = succeeds(run("evaluate", "m", "t.csv", "--keep", "id"))
    assert shown.startswith("The model was fitted to this file")
    assert shown.splitlines()[2].startswith("Better than the class frequencies: accuracy 0.")
    found = json.loads(succeeds(run("evaluate", "m", "t.csv", "--keep", "id", "--json")))
    assert found["rows_left_out"] == 2
    worst = found["most_wrong"]
    assert worst["id"] == [f"s{row - 1}" for row in worst["row"]]
    assert [frame.y[row - 1] for row in worst["row"]] == worst["true"]
    assert worst["true"] != worst["predicted"]
    assert all(name in shown for name in worst["id"])
    classes = found["classes"]
    assert classes["rows"] == [sum(frame.dropna().y == name) for name in ("down", "up")]
    assert [a + b for a, b in zip(classes["as down"], classes["as up"], strict=True)] == classes["rows"]
    assert found["baseline"]["accuracy"] == max(classes["frequency"])
    fails("evaluate", "m", "t.csv", "--keep", "id", "--report", "r.html", words=["--keep", "--report"])
    fails("evaluate", "m", "t.csv", "--keep", "name", words=["t.csv", "name"])


@pytest.mark.parametrize("matters", [False, True])
def test_a_fit_that_is_no_better_than_the_most_frequent_class_says_so(run, matters):
    rng, n = np.random.default_rng(0), 120
    y = np.arange(n) % 5 == 0
    frame = pd.DataFrame({"a": rng.standard_normal(n) + 5 * matters * y, "y": np.where(y, "yes", "no")})
    frame.to_csv("t.csv", index=False)
    _, _, err = run("fit", "t.csv", "--target", "y", "-o", "m")
    assert ("NO BETTER than the most frequent class alone: accuracy 0.8000" in err) != matters
    assert json.loads(succeeds(run("show", "m")))["fit"]["accuracy_of_frequencies"] == 0.8


def test_predictions_come_in_parts_of_bounded_size(run, monkeypatch):
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    once = succeeds(run("predict", "m", "t.csv"))
    sizes, predict = [], models.Model.predict
    monkeypatch.setattr(base, "BLOCK", 500)  # 3 numbers of 8 bytes in a row
    monkeypatch.setattr(
        models.Model, "predict", lambda self, X, *a, **k: sizes.append(len(X)) or predict(self, X, *a, **k)
    )
    assert succeeds(run("predict", "m", "t.csv")) == once
    del sizes[0]  # when the model was loaded, to see whether it can
    assert len(sizes) > 5
    assert max(sizes) <= 500 // 24 + 1
    assert sum(sizes) == 120


@pytest.mark.parametrize("file", ["t.csv", "t.svm"])
def test_rows_are_few_where_each_takes_much(run, monkeypatch, file):
    """A line of libsvm may have two bytes, and a row of scores a number for every class."""
    frame = toy(n_classes=3)
    frame.to_csv("t.csv", index=False)
    dump_svmlight_file(frame[["a", "b", "c"]], np.arange(120) % 3, "t.svm", zero_based=False)
    target = ["--target", "y"] if file == "t.csv" else []
    succeeds(run("fit", file, *target, "--sigma", "0.5", "-o", "m"))
    before = [succeeds(run("predict", "m", file)), succeeds(run("evaluate", "m", file, "--noise-levels", "0"))]
    sizes, seen = [], models.Model.seen
    monkeypatch.setattr("gaussguru._utils.blocks.WORKING_BYTES", 240)  # ten rows of scores of three classes
    monkeypatch.setattr(models.Model, "seen", lambda self, X, *a: sizes.append(X.shape[0]) or seen(self, X, *a))
    after = [succeeds(run("predict", "m", file)), succeeds(run("evaluate", "m", file, "--noise-levels", "0"))]
    assert after == before
    assert max(sizes) == 10


@pytest.mark.parametrize("labels", [[1, 0], [True, False], [-1, 7], ["01", "02"], ["true", "maybe"], ["None", "x"],
                                    ["=1+1", "@SUM(A1)"], ["+a", '-2+3"x,y'], ["'=a", "b;c"]])  # fmt: skip
def test_labels_come_out_as_they_went_in(run, labels):
    frame = toy()
    frame["y"] = np.where(np.arange(120) % 2, *(str(label) for label in labels))
    frame.to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    lines = list(csv.reader(io.StringIO(succeeds(run("predict", "m", "t.csv")))))[1:]
    assert {line[0].lower() for line in lines} == {str(label).lower() for label in labels}
    assert json.loads(succeeds(run("show", "m")))["classes"] == sorted(labels)
    succeeds(run("predict", "m", "t.csv", "-o", "p.parquet"))
    assert set(pd.read_parquet("p.parquet")["label"]) == set(labels)


def test_columns_are_found_by_name(run, fails):
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    toy()[["c", "b", "a"]].assign(more="é, \n").to_csv("u.csv", index=False, sep=";")
    assert succeeds(run("predict", "m", "u.csv")) == succeeds(run("predict", "m", "t.csv"))
    found = predictions(succeeds(run("predict", "m", "t.csv", "--keep", "y", "--keep", "b")))
    assert (found["y"].tolist(), found["b"].tolist()) == (toy()["y"].tolist(), toy()["b"].tolist())
    toy()[["b"]].assign(A=1).to_csv("v.csv", index=False)
    fails("predict", "m", "v.csv", words=["v.csv", "'a'", "'c'"])
    fails("evaluate", "m", "u.csv", words=["u.csv", "'y'", "labels"])
    fails("predict", "m", "t.csv", "--keep", "id", words=["'id'", "--keep"])
    fails("predict", "m", "t.csv", "--keep", "radius", "-o", "x", words=["radius"])
    toy(3).assign(y="perhaps").to_csv("w.csv", index=False)
    fails("evaluate", "m", "w.csv", words=["w.csv", "'perhaps'", "no, yes, sure"])
    toy(0).to_csv("x.csv", index=False)
    assert succeeds(run("predict", "m", "x.csv", "--keep", "a")) == "a,label,probability,flip_probability,radius\n"


# Tables that can be read and evaluated, but not learnt.
NEVER = {
    "never-a-value": (
        "a,b,y\n,1,0\n,2,1\n",
        ["'a'", "no value in any row"],
        {"missing": "mean", "features": ["a", "b"]},
    ),
    "never-measured": ("a,a_err,y\n1,inf,0\n,2,1\n", ["'a'", "no value in any row"], {}),
}


@pytest.mark.parametrize("name", [*BAD, *NEVER])
def test_bad_tables(fails, tmp_path, name):
    content, words, options = (BAD | NEVER)[name]
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = [] if options.get("target", "y") is None else ["--target", options.get("target", "y")]
    for option in ("drop", "features"):
        arguments += [part for name in options.get(option, ()) for part in (f"--{option}", name)]
    arguments += ["--missing", options["missing"]] if "missing" in options else []
    arguments += [part for pattern in options.get("err_pattern", ()) for part in ("--err-pattern", pattern)]
    for command in (["fit", "t.csv", "-o", "m"], ["path", "t.csv"]):
        fails(*command, *arguments, words=words)


OPTIONS = {
    "sigma": (["--sigma", "much"], ["--sigma", "'much'"]),
    "sigma-negative": (["--sigma", "-1"], ["sigma", "-1"]),
    "sigma-zero": (["--sigma", "0"], ["sigma must be > 0", "error columns"]),
    "sigmas-negative": (["--sigma", "1,-1"], ["-1"]),
    "l2": (["--l2", "x"], ["--l2"]),
    "l2-negative": (["--l2", "-1"], ["l2", "-1"]),
    "noise": (["--noise", "loud"], ["--noise", "'loud'", "isotropic, axis"]),
    "loss": (["--loss", "hinge"], ["--loss", "'hinge'", "gaussian"]),
    "kernel": (["--kernel", "rbg"], ["--kernel", "'rbg'", "rbf"]),
    "missing": (["--missing", "zero"], ["--missing", "'zero'", "unmeasured"]),
    "format": (["--format", "xls"], ["--format", "'xls'", "csv"]),
    "gamma": (["--kernel", "rbf", "--gamma", "x"], ["--gamma", "'x'"]),
    "kernel-cv": (["--kernel", "poly"], ["poly", "--sigma 0.1,0.3,1"]),
    "kernel-noise": (["--kernel", "rbf", "--noise", "axis"], ["--noise axis"]),
    "kernel-unmeasured": (["--kernel", "rbf", "--missing", "unmeasured"], ["rbf", "unmeasured"]),
    "folds": (["--folds", "1"], ["--folds", "1"]),
    "no-folds": (["--folds", "0"], ["--folds", "0"]),
    "unknown": (["--sgima", "1"], ["--sgima"]),
    "json": (["--json", "-o", "-"], ["--json", "-o -"]),
    "directory": (["-o", "."], ["directory"]),
    "nowhere": (["-o", "no/where"], ["no/where", "no directory"]),
    "sep": (["--sep", "::"], ["--sep", "'::'"]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_bad_options(fails, name):
    toy().to_csv("t.csv", index=False)
    arguments, words = OPTIONS[name]
    fails("fit", "t.csv", "--target", "y", "-o", "m", *arguments, words=words)


def test_bad_models_and_commands(run, fails):
    toy().to_csv("t.csv", index=False)
    for command in ("predict", "evaluate"):
        fails(command, "t.csv", "t.csv", words=["t.csv", "no model"])
        fails(command, "none", "t.csv", words=["none", "No such file"])
        fails(command, ".", "t.csv", words=["directory"])
    Path("noise_levels_X_err.csv").write_text("a,b\n1\n")
    fails("fit", "noise_levels_X_err.csv", "--target", "b", "-o", "m", words=["noise_levels_X_err.csv: row 1"])
    fails("fit", words=["FILE"])
    fails("teach", words=["teach"])
    fails("fit", "t.csv", "--target", "y", words=["--output"])
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    fails("predict", "m", "none.csv", words=["none.csv"])
    fails("predict", "-", "-", words=["MODEL", "FILE", "standard input"])
    fails("predict", "-", "t.csv", words=["standard input is no model"])
    fails("evaluate", "m", "t.csv", "--report", "-", words=["--report", "file"])
    fails("predict", "m", "t.csv", "-o", "p.svm", words=["p.svm", "CSV or Parquet"])
    fails("predict", "m", "t.csv", "--json", words=["--json"])
    fails("evaluate", "m", "t.csv", "--noise-levels", "0,x", words=["--noise-levels", "'0,x'"])
    fails("evaluate", "m", "t.csv", "--noise-levels", "-1", words=["--noise-levels", "-1"])
    for sigmas in ("0", "x", "1,x", "-3", "0.5,-1"):
        fails("path", "t.csv", "--target", "y", "--sigmas", sigmas, words=["sigmas"])


LIMITS = {
    "columns": (["--max-columns", "3"], ["--max-columns", "4"], ["t.csv", "more columns than 3", "--max-columns"]),
    "unpacked": (["--max-unpacked", "0.001"], ["--max-unpacked", "1"], ["t.csv.gz", "0.001 MB", "--max-unpacked"]),
    "classes": (["--max-classes", "2"], ["--max-classes", "3"], ["t.csv", "'y'", "3 classes", "--max-classes"]),
}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("command", ["fit", "path", "predict", "evaluate"])
def test_limits_are_options(run, fails, name, command):
    few, many, words = LIMITS[name]
    file = "t.csv.gz" if name == "unpacked" else "t.csv"
    # The same rows over and over again are packed to less than a hundredth.
    frame = pd.concat([toy(3, n_classes=3)] * 5000) if name == "unpacked" else toy(n_classes=3)
    frame.to_csv(file, index=False)
    toy(n_classes=3).to_csv("u.csv", index=False)
    succeeds(run("fit", "u.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    learnt = [
        "--target",
        "y",
        *(["--sigma", "0.5", "-o", "n"] if command == "fit" else ["--sigmas", "2", "--folds", "0"]),
    ]
    arguments = [command, file, *learnt] if command in ("fit", "path") else [command, "m", file]
    if name == "classes" and command in ("predict", "evaluate"):
        fails(*arguments, *many, words=["--max-classes"])  # there is no such option
        return
    fails(*arguments, *few, words=words)
    succeeds(run(*arguments, *many))


def test_limits_have_limits(run, fails):
    toy().to_csv("t.csv", index=False)
    fit = ("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m")
    for option, value in (("columns", "0"), ("columns", "x"), ("line", "0"), ("line", "nan"), ("line", "inf"),
                          ("line", "2001"), ("unpacked", "-1"), ("unpacked", "inf"), ("classes", "1")):  # fmt: skip
        fails(*fit, f"--max-{option}", value, words=[f"--max-{option}"])
    for option, value in (("columns", "10000000"), ("line", "2000"), ("unpacked", "1e9"), ("classes", "2")):
        succeeds(run(*fit, "--force", f"--max-{option}", value))


def test_few_rows_for_many_classes_are_no_target(fails):
    pd.DataFrame({"a": np.arange(300) / 2, "y": [f"id{j // 2}" for j in range(300)]}).to_csv("t.csv", index=False)
    fails("fit", "t.csv", "--target", "y", "-o", "m", words=["'y'", "150 classes in 300 rows", "is it the target?"])


def test_bad_models_are_refused_in_one_line(run, fails):
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    model = models.read_model("m")
    for change in (
        lambda classifier: vars(classifier).pop("coef_"),
        lambda classifier: setattr(classifier, "coef_", "x" * 1_000_000),
        lambda classifier: setattr(classifier, "predict", 5),
        lambda classifier: setattr(classifier, "x" * 1_000_000, 5) or setattr(classifier, "sigma", "y" * 1_000_000),
    ):
        forged = copy.deepcopy(model)
        change(forged.classifier)
        Path("forged").write_bytes(pack(forged.estimator, model.card))
        for command in (["predict", "forged", "t.csv"], ["evaluate", "forged", "t.csv"], ["show", "forged"]):
            fails(*command, words=["forged is damaged"])
    with zipfile.ZipFile("m") as file:
        files = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile("forged", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {**files, "more": bytes(110_000_000)}.items():
            file.writestr(name, content)
    for command in (["predict", "forged", "t.csv"], ["show", "forged"]):
        fails(*command, words=["forged", "unpacks to more than 100 MB", "--max-unpacked"])
        succeeds(run(*command, "--max-unpacked", "120"))


def test_lines_are_short_and_have_no_control_characters(run, fails):
    names = ["\x1b[31m" + "x" * 90_000, "\0" + "y" * 90_000, "é" * 90_000]
    Path("t.csv").write_text(",".join(names) + "\n1,2,3\n", encoding="utf-8")
    _, _, err = run("fit", "t.csv", "--target", "z" * 90_000, "-o", "m")
    assert len(err) == 1
    assert len(err[0]) < 1100
    assert "\\x1b[31mxxx" in err[0]
    assert err[0].isprintable()
    pd.DataFrame({"a": [1, 2, 3, 4], "y": ["n" * 200, "m" * 200] * 2}).to_csv("u.csv", index=False)
    code, _, err = run("fit", "u.csv", "--target", "y", "--sigma", "1000", "-o", "m")
    assert code == 0
    assert max(map(len, err)) < 1100


def test_kernels_refuse_errors(run, fails):
    toy().assign(a_err=0.1).to_csv("t.csv", index=False)
    options = ("fit", "t.csv", "--target", "y", "--kernel", "rbf", "--sigma", "0.1", "-o", "m", "--classifier", "guru")
    fails(*options, words=["t.csv", "rbf", "'a_err'", "--no-errors"])
    succeeds(run(*options, "--no-errors"))
    fails("fit", "t.csv", "--target", "y", "--kernel", "poly", "-o", "n", words=["--kernel poly", "--no-errors"])


def test_curved_boundaries_for_columns_of_errors(run):
    rng = np.random.default_rng(0)
    truth = rng.uniform(-1, 1, (300, 2))
    y = np.where(np.square(truth).sum(axis=1) > 0.6, "out", "in")
    table = pd.DataFrame(truth + 0.1 * rng.standard_normal((300, 2)), columns=["a", "b"])
    table.assign(a_err=0.1, b_err=0.1, y=y).to_csv("t.csv", index=False)
    cards = {}
    for model in ("linear", "rbf"):
        succeeds(run("fit", "t.csv", "--target", "y", "--model", model, "--folds", "3", "-o", model))
        cards[model] = json.loads(succeeds(run("show", model)))
    assert cards["rbf"]["fit"]["cv_log_loss"] < cards["linear"]["fit"]["cv_log_loss"] - 0.2
    succeeds(run("predict", "rbf", "t.csv", "--remeasure", "0.5", "-o", "p.csv"))
    assert (pd.read_csv("p.csv")["label"] == y).mean() > 0.85
    assert pd.read_csv("p.csv")["remeasure_gain"].between(0, 0.5).all()


def test_an_output_that_exists_needs_force(run, fails):
    toy().to_csv("t.csv", index=False)
    fit = ("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m")
    succeeds(run(*fit))
    predict = ("predict", "m", "t.csv", "-o", "p.csv")
    succeeds(run(*predict))
    path = ("path", "t.csv", "--target", "y", "--sigmas", "2", "--folds", "0", "-o", "p.csv")
    for command in (fit, predict, path):
        fails(*command, words=["exists", "--force"])
    toy().assign(c="text").to_csv("u.csv", index=False)
    fails("predict", "m", "u.csv", "-o", "p.csv", "--force", words=["'text'"])  # and the old file is still there
    for command in (fit, predict, path):
        succeeds(run(*command, "--force"))


def test_pipes(run):
    toy().to_csv("t.csv", index=False)
    content = Path("t.csv").read_bytes()
    fit = ("--target", "y", "--sigma", "0.5", "-q", "-o")
    code, _, err = run("fit", "-", *fit, "m", stdin=content)
    assert (code, err) == (0, [])
    from_pipe = run("predict", "m", "-", "--quiet", stdin=content)
    assert from_pipe == (0, succeeds(run("predict", "m", "t.csv")), [])
    assert succeeds(run("evaluate", "m", "-", stdin=content)) == succeeds(run("evaluate", "m", "t.csv"))
    for command in (["predict", "{}", "t.csv"], ["evaluate", "{}", "t.csv"], ["show", "{}"]):
        named, piped = ([word.format(model) for word in command] for model in ("m", "-"))
        assert succeeds(run(*piped, stdin=Path("m").read_bytes())) == succeeds(run(*named))


def test_talk(run):
    toy().to_csv("t.csv", index=False)
    code, out, err = run("fit", "t.csv", "--target", "y", "-o", "m")
    assert (code, out) == (0, "")
    talk = "\n".join(err)
    for word in (
        "120 rows",
        "3 features",
        "'y'",
        "sigma",
        "cross-validated",
        "training accuracy",
        "proven optimal",
        "gap",
    ):
        assert word in talk
    code, out, err = run("evaluate", "m", "t.csv")
    assert (code, err) == (0, [])
    for word in ("accuracy", "log loss", "expected accuracy", "noise level"):
        assert word in out
    code, out, err = run("path", "t.csv", "--target", "y", "--sigmas", "2")
    assert " ".join(out.splitlines()[0].split()) == "sigma norm training accuracy cv accuracy gap"
    assert run("--version")[:2] == (0, f"gaussguru {__version__}\n")
    for command in ([], ["fit"], ["predict"], ["evaluate"], ["path"], ["show"], ["demo"], ["reproduce"]):
        code, out, err = run(*command, "--help")
        assert (code, err) == (0, [])
        assert "Usage: gaussguru" in out
    assert run()[0] == 0


def test_warnings_and_fits_that_are_not_certified(run, monkeypatch):
    toy(121).to_csv("t.csv", index=False)
    code, _, err = run("fit", "t.csv", "--target", "y", "--sigma", "1000", "-o", "m")
    assert code == 0
    assert any(line.startswith("warning: ") and "--balanced" in line and "fit_intercept" not in line for line in err)
    hasty = partial(fit_model, max_iter=1)
    monkeypatch.setattr("gaussguru._tables.fitting.fit_model", hasty)
    code, out, err = run("fit", "t.csv", "--target", "y", "--sigma", "0.01", "-o", "n", "--json")
    assert code == cli.ExitCode.NOT_CERTIFIED == 3
    assert any("NOT proven optimal" in line for line in err)
    assert json.loads(out)["fit"]["certified"] is False
    assert Path("n").exists()


@pytest.mark.filterwarnings("always:something is odd")
def test_a_command_that_fails_says_one_line(run, fails, monkeypatch):
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))

    def read(*arguments, **options):
        for _ in range(2):
            warnings.warn("something is odd", stacklevel=2)
        return open_table(*arguments, **options)

    open_table = files.open_table
    monkeypatch.setattr(cli.options, "open_table", read)
    code, _, err = run("predict", "m", "t.csv")
    assert (code, err) == (0, ["t.csv: 120 rows predicted", "warning: something is odd"])
    fails("predict", "m", "none.csv", words=["none.csv"])


def test_a_report_of_an_evaluation(run, fails):
    toy().to_csv("t.csv", index=False)
    assert run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m")[0] == 0
    code, out, err = run("evaluate", "m", "t.csv", "--report", "r.html", "--json")
    assert (code, err) == (0, ["wrote r.html"])
    assert json.loads(out)["accuracy"] == json.loads(run("evaluate", "m", "t.csv", "--json")[1])["accuracy"]
    page = Path("r.html").read_text()
    first, second = re.findall('<p class="lead">([^<]*)', page)
    assert first.startswith("The model was fitted to this file")
    assert "class frequencies" in second
    toy().iloc[1:].to_csv("u.csv", index=False)
    succeeds(run("evaluate", "m", "u.csv", "--report", "u.html"))
    assert "was fitted to this file" not in Path("u.html").read_text()
    assert "<title>m on t.csv" in page
    assert "Model card" in page
    fails("evaluate", "m", "t.csv", "--report", "r.html", words=["r.html", "--force"])
    assert run("evaluate", "m", "t.csv", "--report", "r.html", "--force")[0] == 0


@pytest.mark.parametrize("kind", ["plain", "mean", "errors", "unscaled", "sparse", "kernel"])
@pytest.mark.parametrize("levels", [[], ["--noise-levels", "0,0.3,2"]])
def test_a_report_has_the_numbers_of_the_evaluation(run, kind, levels):
    train, test = (toy(seed=seed) for seed in (0, 1))
    options = {"mean": ["--missing", "mean"], "unscaled": ["--no-scale"], "kernel": ["--kernel", "rbf"],
               "errors": ["--classifier", "guru"]}.get(kind, [])  # fmt: skip
    options += ["--sigma", "0.5"] if kind == "sparse" else ["--target", "y", "--sigma", "0.5"]
    for frame, name in ((train, "t"), (test, "u")):
        frame["b"] *= 100
        if kind == "mean":
            frame.loc[::11, "b"] = np.nan
        if kind == "errors":
            frame["b_err"] = np.linspace(0, 900, len(frame))
        if kind == "sparse":
            dump_svmlight_file(frame[["a", "b", "c"]], frame["y"] == "no", f"{name}.svm", zero_based=False)
        else:
            frame.to_csv(f"{name}.csv", index=False)
    end = "svm" if kind == "sparse" else "csv"
    succeeds(run("fit", f"t.{end}", *options, "-o", "m"))
    found = json.loads(succeeds(run("evaluate", "m", f"u.{end}", *levels, "--json", "--report", "r.html")))
    page, curve = Page(Path("r.html").read_text()), found["robustness"]
    assert "Trained on" in page.headings
    assert hashlib.sha256(Path(f"t.{end}").read_bytes()).hexdigest() in Path("r.html").read_text()
    rows = page.table("noise level", "accuracy")
    np.testing.assert_allclose([float(row[0]) for row in rows], curve["noise_level"], rtol=1e-3)
    shares = [float(row[1].removesuffix(" %")) / 100 for row in rows]
    # Draws are those of the report.
    np.testing.assert_allclose(shares, curve["accuracy"], atol=0.05 if kind == "kernel" else 1e-4)
    if kind == "kernel":
        return
    shown = {row[0]: row[1] for row in page.table("", "model")}
    assert float(shown["expected accuracy"].removesuffix(" %")) / 100 == pytest.approx(
        found["expected_accuracy"], abs=1e-4
    )
    predicted = predictions(succeeds(run("predict", "m", f"u.{end}")))
    doubts = page.table("row", "predicted", "true")
    radii = predicted["radius"][[int(row[0]) - 1 for row in doubts]]
    np.testing.assert_allclose([float(row[4]) for row in doubts], radii, rtol=1e-3)


def test_a_report_of_a_table_without_a_column(run):
    toy().assign(b=np.nan).to_csv("u.csv", index=False)
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "--missing", "mean", "-o", "m"))
    plain = json.loads(succeeds(run("evaluate", "m", "u.csv", "--json")))
    assert json.loads(succeeds(run("evaluate", "m", "u.csv", "--json", "--report", "r.html"))) == plain


def test_libsvm_has_no_columns_to_keep(run, fails):
    dump_svmlight_file(toy()[["a", "b", "c"]], toy()["y"] == "no", "t.svm")
    succeeds(run("fit", "t.svm", "--sigma", "0.5", "-o", "m"))
    fails("predict", "m", "t.svm", "--keep", "id", words=["t.svm", "--keep id"])


# Options that the library refuses: what is said of them, and parameters of the library that are none of the command.
NAMED = {
    "gaussians": (["fit", "e.csv", "--gaussians", "100"], "--gaussians 100 needs at least 200 samples"),
    "components": (["fit", "t.csv", "--kernel", "rbf", "--sigma", "1", "--components", "500"], "--components must be"),
    "jobs": (["fit", "t.csv", "--jobs", "0"], "--jobs must be"),
    "jobs-errors": (["fit", "e.csv", "--jobs", "0"], "--jobs must be"),
    "tol": (["fit", "t.csv", "--sigma", "1", "--tol", "0"], "--tol must be"),
    "l2": (["fit", "t.csv", "--sigma", "1", "--l2", "-1"], "--l2 must be"),
    "sigma": (["fit", "t.csv", "--sigma", "-1"], "--sigma must be"),
    "sigma-zero": (
        ["fit", "t.csv", "--sigma", "0"],
        "--sigma must be > 0 where there are neither error columns nor --l2",
    ),
    "levels": (["fit", "t.csv", "--sigma", "1,-1"], "--sigma must be"),
    "kernel-sigma": (["fit", "t.csv", "--kernel", "rbf", "--sigma", "0"], "--sigma must be"),
    "degree": (["fit", "t.csv", "--kernel", "poly", "--sigma", "1", "--degree", "-1"], "--degree must be"),
    "gamma": (["fit", "t.csv", "--kernel", "rbf", "--sigma", "1", "--gamma", "-1"], "--gamma must be"),
    "axis-errors": (["fit", "e.csv", "--classifier", "guru", "--noise", "axis"], "--noise axis is for two classes"),
    "axis-classes": (["fit", "three.csv", "--noise", "axis"], "--noise axis is for two classes"),
    "axis-parts": (["fit", "d", "--noise", "axis"], "--noise axis is for two classes"),
    "sigmas": (["path", "t.csv", "--sigmas", "1,-1"], "--sigmas must be"),
    "no-sigmas": (["path", "t.csv", "--sigmas", "0"], "--sigmas must be"),
    "noise-levels": (["evaluate", "m", "t.csv", "--noise-levels", "-1"], "--noise-levels must hold"),
}


@pytest.mark.parametrize("name", NAMED)
def test_errors_name_options_and_no_parameters(run, fails, name):
    toy().to_csv("t.csv", index=False)
    toy(n_classes=3).to_csv("three.csv", index=False)
    measured(n=120)[3].drop(columns="id").to_csv("e.csv", index=False)
    Path("d").mkdir()
    for part in range(2):
        toy().iloc[part::2].to_csv(f"d/{part}.csv", index=False)
    arguments, words = NAMED[name]
    if arguments[0] == "evaluate":
        succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
        fails(*arguments, words=[words])
        return
    output = ["-o", "x"] if arguments[0] == "fit" else []
    line = fails(*arguments, "--target", "y", *output, words=[words])
    assert not any(parameter in line for parameter in ("n_components", "n_jobs", "X_err", "noise_levels", "sigmas["))


@pytest.mark.parametrize("options", [[], ["--no-errors"], ["--classifier", "guru", "--sigma", "1", "--no-scale"]])
def test_a_value_beside_which_all_others_vanish_is_named(run, fails, options):
    """In memory and in parts; a prediction for such a row is one, and says nothing of arrays."""
    frame, name = measured(n=400)[3].drop(columns="id"), "b"
    frame.to_csv("ok.csv", index=False)
    succeeds(run("fit", "ok.csv", "--target", "y", *options, "-o", "m"))
    Path("d").mkdir()
    for value in (1e30, -1e30, 1e149):
        frame.loc[300, name] = value
        frame.to_csv("t.csv", index=False)
        frame[:200].to_csv("d/0.csv", index=False)
        frame[200:].to_csv("d/1.csv", index=False)
        line = f"column '{name}' has {value:g} in row"
        plan = [f"'{name}' has {value:g} where there may be no value", f"--na={value:g}"]
        fails("fit", "t.csv", "--target", "y", *options, "-o", "n", words=["t.csv", *plan])
        seen = ("--as", f"value:{name}")
        words = ["t.csv", line, "row 301", f"--drop '{name}'"]
        fails("fit", "t.csv", "--target", "y", *options, *seen, "-o", "n", words=words)
        words = ["1.csv", line, "row 101", f"--drop '{name}'"]
        fails("fit", "d", "--target", "y", *options, "-o", "n", words=words)
        code, out, err = run("predict", "m", "t.csv")
        assert code in (0, 2)
        assert not any("encountered" in line for line in err)
        assert "nan" not in out
    # Values that are far apart, but with others in between, are values.
    frame[name] = np.geomspace(1e-20, 1e20, 400)
    frame.to_csv("t.csv", index=False)
    assert run("fit", "t.csv", "--target", "y", *options, "-o", "n")[0] in (0, 3)


def test_the_demo_says_what_it_measured_and_writes_a_report(run, fails, monkeypatch):
    monkeypatch.setattr(cli.trials.demonstration, "run", partial(demo.run, n_splits=2))
    code, out, err = run("demo", "-o", "d.html")
    assert (code, err) == (0, [])
    assert "d.html" in out.splitlines()[-1]
    assert Path("d.html").read_text().startswith("<!DOCTYPE html>")
    fails("demo", "-o", "d.html", words=["d.html", "--force"])


def test_reproduce_computes_once_and_names_what_it_knows(run, fails):
    code, out, err = run("reproduce", "variants", "hinge", "--quick", "--jobs", "1", "-o", "r")
    assert (code, out) == (0, "")
    assert err[0].startswith("0 of 8 done, 0 found")
    assert sorted(path.name for path in Path("r").rglob("*.*")) == ["hinge.png", "results.jsonl", "variants.png"]
    before = Path("r/results.jsonl").read_bytes()
    code, out, err = run("reproduce", "variants", "--quick", "--jobs", "1", "-o", "r", "--json")
    assert json.loads(out) == {"output": "r", "tables": []}
    assert err[0].startswith("6 of 7 done, 6 found")
    assert Path("r/results.jsonl").read_bytes() == before
    code, out, _ = run("reproduce", "--list", "--json")
    assert list(json.loads(out)) == list(EXPERIMENTS)
    assert len(run("reproduce", "--list")[1].splitlines()) == len(EXPERIMENTS) + 1
    fails("reproduce", "figure-7", words=["'figure-7'", "'variants'"])
    fails("reproduce", "binary", "--data-home", "nowhere", words=["data_home", "nowhere"])


@needs["pima"]
def test_reproduce_prints_tables_whole(run):
    with Store(Path("r/results.jsonl")) as store:
        for key in KERNEL.cells(quick=True):
            store.add(key, {"test": [0.5], "converged": [key["method"] != "SVM"]})
    code, out, err = run("reproduce", "kernel", "--quick", "--jobs", "1", "-o", "r", "--data-home", problems._DIRECTORY)
    assert (code, err[-1]) == (0, "wrote r/quick")
    lines = out.splitlines()
    assert lines[1] == "KEN-GURU and SVM, two classes, kernels: test accuracy (%)"
    assert lines[3].split() == ["Ionosphere", "83.55", "81.58", "50.00", "50.00", "50.00", "*", "1"]
    assert len(lines) == 4 + len(KERNEL.problems)
    assert lines[-1].startswith("* for some seeds")
    assert "| Ionosphere | 83.55 |" in Path("r/quick/kernel.md").read_text()


def test_a_failure_of_ours_is_not_hidden(run, monkeypatch):
    toy().to_csv("t.csv", index=False)
    monkeypatch.setattr("gaussguru._tables.fitting.fit_model", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("fit", "t.csv", "--target", "y", "-o", "m")


def command(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "gaussguru", *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)  # fmt: skip


@pytest.fixture
def many(run):
    """Write a model and a table that takes a while to predict."""
    toy().to_csv("t.csv", index=False)
    succeeds(run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m"))
    header, *rows = Path("t.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("many.csv").write_text(header + "".join(rows) * 3000, encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
def test_a_reader_that_has_seen_enough(many):
    with command("predict", "m", "many.csv") as process:
        assert process.stdout.readline() == b"label,probability,flip_probability,radius\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.ExitCode.BROKEN_PIPE


@pytest.mark.skipif(os.name != "posix", reason="files that are closed as in POSIX")
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_files_that_are_closed_from_the_beginning(run, closed):
    toy().to_csv("t.csv", index=False)
    with command(
        "fit", "t.csv", "--target", "y", "--sigma", "0.5", "-o", "m", preexec_fn=lambda: os.close(closed)
    ) as process:
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0
    with command("show", "-", preexec_fn=lambda: os.close(0)) as process:
        assert process.stderr.read().startswith(b"gaussguru: standard input is no model")
    assert process.returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
@pytest.mark.parametrize(
    ("name", "words", "code"),
    [("SIGINT", b"interrupted", cli.ExitCode.INTERRUPTED), ("SIGTERM", b"terminated", cli.ExitCode.TERMINATED)],
)
def test_a_signal_leaves_nothing_behind(many, tmp_path, name, words, code):
    before = sorted(os.listdir())
    with command("predict", "m", "many.csv", "-o", "out.csv") as process:
        while process.poll() is None and sorted(os.listdir()) == before:
            time.sleep(0.01)
        process.send_signal(getattr(signal, name))
        assert process.stderr.read() == b"gaussguru: " + words + b"\n"
    assert process.returncode == code
    assert sorted(os.listdir()) == before


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_command_in_a_program_keeps_its_signals(run):
    """Whoever calls main has the handler of before, and a thread may call it."""
    succeeds(run("--version"))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    own = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        handler = signal.getsignal(signal.SIGTERM)
        succeeds(run("--version"))
        assert signal.getsignal(signal.SIGTERM) is handler
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(cli.main, ["--version"]).result() == 0
    finally:
        signal.signal(signal.SIGTERM, own)


def test_without_the_extra():
    code = "import sys; sys.modules['typer'] = None; from gaussguru.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    extra = "pip install 'gaussguru[cli]' (in a checkout: pip install '.[cli]')"
    assert done.stderr == f"gaussguru: the command needs typer: {extra}\n"


def test_rows_that_are_left_out_and_values_not_measured_are_counted(run):
    table = toy()
    table.loc[[3, 5], "a"] = np.nan
    table.to_csv("t.csv", index=False)
    assert run("fit", "t.csv", "--target", "y", "--sigma", "0.5", "--missing", "drop", "-o", "m")[0] == 0
    for report in ([], ["--report", "r.html"]):
        found = json.loads(run("evaluate", "m", "t.csv", "--json", *report)[1])
        assert (found["rows"], found["rows_left_out"]) == (len(table) - 2, 2)
    table["a_err"] = 0.1
    table.to_csv("e.csv", index=False)
    code, _, err = run("fit", "e.csv", "--target", "y", "-o", "e")
    assert code == 0
    assert "2 values not measured" in err[0]


def test_a_table_may_be_read_in_part(many):
    with command("evaluate", "m", "many.csv") as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.ExitCode.BROKEN_PIPE


def test_errors_by_other_names_are_errors(run):
    rng = np.random.default_rng(0)
    flux, width = rng.normal(size=(2, 60))
    table = pd.DataFrame({"flux": flux, "e_flux": 0.1, "width": width, "e_width": 0.2, "kind": (flux > 0).astype(int)})
    table.to_csv("a.csv", index=False)
    code, _, told = run("fit", "a.csv", "--target", "kind", "-o", "a.model", "--folds", "2")
    assert code == 0
    assert told[1:3] == ["2 features, 2 with errors", "errors by names of VizieR"]
    assert json.loads(succeeds(run("show", "a.model")))["columns"]["e_flux"] == "error of flux: sigma"
    code, _, told = run("fit", "a.csv", "--target", "kind", "-o", "b.model", "--no-errors", "--sigma", "0.3")
    assert told[1] == "2 features, 0 with errors; ignored: e_flux, e_width"


def options_of_commands():
    """Return the names of the options of every command, as they are written."""
    for module in cli.MODULES:
        importlib.import_module(f"gaussguru.cli.{module}")
    commands = typer.main.get_command(cli.app).commands.items()
    return [(name, [*each.opts, *each.secondary_opts]) for name, command in commands for each in command.params
            if each.param_type_name == "option"]  # fmt: skip


@cache
def words_of_tests():
    """Return the words of all texts in tests but docstrings: arguments of commands among them."""
    words = set()
    for path in Path(__file__).parent.rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                words.update(re.split(r"[\s=]+", node.value))
    return words


@pytest.mark.parametrize(("command", "names"), options_of_commands(), ids=str)
def test_an_option_is_an_argument_in_a_test(command, names):
    assert not words_of_tests().isdisjoint(names), f"no test gives {names} to a command; {command} has it"
