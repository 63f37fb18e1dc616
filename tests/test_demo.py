"""The demo runs without a network or pandas, says what it measured, and writes it down."""

import re
import socket
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from test_report import check_alone

from gaussguru import ErrorBarClassifier, GuruClassifier, demo

mpl.use("Agg")
N_SPLITS = 2
WITHOUT_PANDAS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
from gaussguru.demo import run
run("demo.html", n_splits=2)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    patch, lines = pytest.MonkeyPatch(), []

    def refuse(*_):
        raise AssertionError("the demo asked for the network")

    with patch.context() as patched:
        patched.setattr(socket.socket, "connect", refuse)
        patched.setattr("builtins.print", lambda *parts: lines.extend(" ".join(map(str, parts)).split("\n")))
        assert demo.run(path, n_splits=N_SPLITS, date="2026-01-01") == path
    return path, lines


def test_report_is_whole(ran):
    path, lines = ran
    page = check_alone(path.read_text())
    assert page.tags.count("img") == 3
    assert str(path) in lines[-1]
    # What is printed is what is written.
    printed = re.sub(r"\s+", " ", " ".join(lines))
    for text in page.texts[1:-1]:
        assert re.sub(r"\s+", " ", text) in printed
    for table in page.tables[:-1]:
        for row in table:
            assert " ".join(cell for cell in row if cell) in printed


def split(data, seed):
    rows = np.arange(len(data.target))
    return train_test_split(rows, test_size=0.4, stratify=data.target_names[data.target], random_state=seed)


def text(runs, digits):
    return f"{np.mean(runs):.{digits}f} ± {np.std(runs, ddof=1) / np.sqrt(len(runs)):.{digits}f}"


def test_numbers_are_measured(ran):
    """Accuracy and log loss with three times the error bars, by the formulas; the labels are 1 for malignant here."""
    _, lines = ran
    data = load_breast_cancer()
    X, X_err, y = data.data[:, :10], data.data[:, 10:20], data.target == 0
    found = {"error bars": [], "logistic": []}
    for seed in range(N_SPLITS):
        train, test = split(data, seed)
        Z = X[test] + np.sqrt(8.0) * X_err[test] * np.random.default_rng(seed).standard_normal((len(test), 10))
        ours = ErrorBarClassifier().fit(X[train], y[train], X_err=X_err[train]).predict_proba(Z, 3 * X_err[test])
        centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
        other = LogisticRegression().fit((X[train] - centre) / spread, y[train]).predict_proba((Z - centre) / spread)
        for name, p in (("error bars", ours[:, 1]), ("logistic", other[:, 1])):
            loss = -np.mean(np.log(np.where(y[test], p, 1 - p)))
            found[name].append((100 * np.mean((p > 0.5) == y[test]), loss))
    accuracy, loss = (line.split("  ") for line in lines if re.match(r" +x3 +\d\S+ ±", line))
    for told, digits, at in ((accuracy, 2, 0), (loss, 3, 1)):
        cells = [cell.strip() for cell in told if "±" in cell]
        assert len(cells) == 3
        for name, cell in zip(("error bars", "logistic"), cells, strict=False):
            assert cell == text(np.array(found[name])[:, at], digits)


def test_sample_of_equal_values(ran):
    """The probability of the class that is likely without more noise falls from row to row as the error bars grow."""
    _, lines = ran
    rows = [line.split() for line in lines if re.match(r" +x[123] +0\.\d+ +0\.\d+$", line)]
    p = np.array(rows)[:, 1:].astype(float)
    assert [row[0] for row in rows] == ["x1", "x2", "x3"]
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1.1e-3)
    assert (np.diff(p[:, p[0].argmax()]) < 0).all()


def test_robust_classifier_is_measured(ran):
    """The last section: accuracy without noise, and that of a classifier that is told of noise."""
    _, lines = ran
    data = load_breast_cancer()
    X, y = data.data[:, :10], data.target
    accuracy = []
    for seed in range(N_SPLITS):
        train, test = split(data, seed)
        scaler = StandardScaler().fit(X[train])
        model = GuruClassifier(1.0).fit(scaler.transform(X[train]), y[train])
        accuracy.append(100 * model.score(scaler.transform(X[test]), y[test]))
    clean = next(line for line in lines if re.match(r" +0 +\d", line))
    assert clean.endswith(text(accuracy, 2))


def test_runs_without_pandas(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_PANDAS], cwd=tmp_path, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["demo.html"]
