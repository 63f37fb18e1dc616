"""The demo runs without a network or pandas, says what it measured, and writes it down."""

import re
import socket
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from test_report import check_alone

from gaussguru import GuruClassifier, demo

mpl.use("Agg")
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
        assert demo.run(path, n_splits=3, date="2026-01-01") == path
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


def test_numbers_are_measured(ran):
    _, lines = ran
    data = load_breast_cancer()
    X, y = data.data, data.target_names[data.target]
    accuracy = []
    for seed in range(3):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=seed)
        scaler = StandardScaler().fit(X_train)
        model = GuruClassifier(1.0).fit(scaler.transform(X_train), y_train)
        accuracy.append(model.score(scaler.transform(X_test), y_test))
    clean = next(line for line in lines if re.match(r" +0 +\d", line))
    assert clean.endswith(f"{100 * np.mean(accuracy):.2f} ± {100 * np.std(accuracy, ddof=1) / np.sqrt(3):.2f}")


def test_runs_without_pandas(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_PANDAS], cwd=tmp_path, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["demo.html"]
