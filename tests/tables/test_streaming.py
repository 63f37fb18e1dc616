"""The command on files that are larger than what is read into memory: converted once, and read in parts."""

import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gaussguru import GuruClassifier
from gaussguru._rows import streams
from gaussguru._tables import base, fitting, streaming
from gaussguru.cli import main
from gaussguru.errors import Limits, Measured
from gaussguru.models import read_model
from gaussguru.population import Deconvolve
from gaussguru.sources import arrays

OPTIONS = {
    "guru": ["--classifier", "guru", "--sigma", "0.2", "--tol", "1e-10"],
    "linear": ["--folds", "2", "--model", "linear"],
    "pool": ["--folds", "2", "--model", "population"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_csv_beyond_the_limit_is_read_in_parts(tmp_path, monkeypatch, name):
    """A lowered limit: a tenth of the file, parts of a few hundred rows, and the same model as in memory."""
    rng = np.random.default_rng(0)
    n = 2000
    truth, errors = rng.standard_normal((n, 2)), rng.uniform(0.1, 0.6, (n, 2))
    X = truth + errors * rng.standard_normal((n, 2))
    frame = pd.DataFrame({"a": X[:, 0], "a_err": errors[:, 0], "b": X[:, 1], "b_err": errors[:, 1]})
    frame["kind"] = np.where(truth[:, 0] + 0.5 * rng.standard_normal(n) > 0, "yes", "no")
    path = tmp_path / "all.csv"
    frame.to_csv(path, index=False)
    more = ["--target", "kind", "--quiet", *OPTIONS[name]]
    assert main(["fit", str(path), *more, "-o", str(tmp_path / "memory")]) == 0
    limit = path.stat().st_size // 10
    monkeypatch.setattr(streaming, "LARGE", limit)
    monkeypatch.setattr(base, "BLOCK", limit)
    monkeypatch.setattr(arrays, "PART_BYTES", limit)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sizes = []
    kept = streams.read_array
    monkeypatch.setattr(arrays, "read_array", lambda *given: sizes.append(kept(*given).nbytes) or kept(*given))
    assert main(["fit", str(path), *more, "-o", str(tmp_path / "parts")]) == 0
    assert 0 < max(sizes) <= limit
    one, other = (read_model(str(tmp_path / name)) for name in ("memory", "parts"))
    assert other.card["fit"]["passes"] > 1
    assert other.card["data"]["rows"] == n
    assert other.card["data"]["sha256"] == one.card["data"]["sha256"] or len(other.card["data"]["sha256"]) == 64
    samples = Measured(frame[["a", "b"]], errors)
    # A proof of 1e-6 is reached somewhere else in parts than in memory, by digits that do not matter.
    apart = np.abs(one.estimator.predict_proba(samples) - other.estimator.predict_proba(samples)).max()
    # Members of a pool are fitted to a subsample, of all rows here, which has them in another order and in other folds.
    assert apart < (0.05 if name == "pool" else 1e-3)
    assert not list(tmp_path.glob("gaussguru-*"))  # what was converted is gone


# A fit in a process that may have so many bytes more than when its modules and BLAS were loaded. "whole" reads the file
# as a small one is read; "parts" reads it as one beyond the limit, with budgets in proportion to the file.
CHILD = """
import os, resource, sys
import numpy as np
from gaussguru import GuruClassifier
from gaussguru.models import save_model
from gaussguru._rows import streams
from gaussguru._tables import base, fitting, streaming
from gaussguru.cli import main
from gaussguru.sources import Arrays, arrays

X = np.random.default_rng(0).standard_normal((2000, 20))
small = GuruClassifier(0.3).fit(Arrays(X, rows=100), X[:, 0] > 0)
save_model(small, os.devnull)  # BLAS, NumPy's and SciPy's, takes its buffers when it is used first
how, extra, path, output = sys.argv[1:]
if how == "parts":
    streaming.LARGE = 1 << 20
streams.DRAWN_BYTES = arrays.PART_BYTES = base.BLOCK = streams.KEPT_BYTES = 1 << 20
with open("/proc/self/status") as status:
    limit = 1024 * int(status.read().split("VmData:")[1].split()[0]) + int(extra)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
more = ["--target", "kind", "--sigma", "0.3", "--max-line", "1", "--jobs", "1", "--quiet"]
sys.exit(main(["fit", path, *more, "-o", output]))
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="a limit on the memory of a process, as Linux has it"
)
def test_csv_beyond_the_memory_of_the_process(tmp_path):
    """A real limit, below the size of the file: read whole it is too large, in parts it is fitted."""
    rng = np.random.default_rng(0)
    n, d = 400_000, 20
    X = rng.standard_normal((n, d))
    labels = np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0, "yes", "no")
    path = tmp_path / "all.csv"
    pyarrow.csv.write_csv(pa.table({**{f"x{j}": X[:, j] for j in range(d)}, "kind": labels}), path)
    extra = 130_000_000
    assert path.stat().st_size > extra
    # Reserved pages of other allocators, and of one heap for each thread, would count as memory that is used.
    settings = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = {}
    for how in ("whole", "parts"):
        call = [sys.executable, "-c", CHILD, how, str(extra), str(path), str(tmp_path / how)]
        found[how] = subprocess.run(
            call, env={**os.environ, **settings}, capture_output=True, text=True, timeout=600, check=False
        )
    assert found["whole"].returncode != 0
    assert re.search("memory ran out.*--features", found["whole"].stderr)
    assert not (tmp_path / "whole").exists()
    assert found["parts"].returncode == 0, found["parts"].stderr
    model = read_model(str(tmp_path / "parts"))
    assert model.card["data"]["rows"] == n
    assert model.card["fit"]["certified"]
    one = GuruClassifier(0.3).fit((X - X.mean(axis=0)) / X.std(axis=0), labels)
    assert np.allclose(model.estimator[-1].coef_, one.coef_, atol=1e-2 * np.abs(one.coef_).max())


def test_what_is_large(tmp_path, monkeypatch):
    """A file is compared with the memory that there is; of Parquet, what it unpacks to counts."""
    assert 1e6 < streaming._memory() < 1e15
    pyarrow.parquet.write_table(pa.table({"a": np.zeros(100_000), "b": np.zeros(100_000)}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 100_000)
    (tmp_path / "a.svm").write_text("0 1:1 2:2\n" * 100_000)
    (tmp_path / "bad.parquet").write_bytes(b"no table")
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    for memory, large in ((1e12, set()), (8e6, {"a.parquet"}), (2e6, {"a.parquet", "a.csv"})):
        monkeypatch.setattr(streaming, "_memory", lambda memory=memory: memory)
        found = {path.name for path in tmp_path.iterdir() if streaming.is_large([str(path)])}
        assert found == large
    assert not streaming.is_large(["-"])
    assert streaming.is_large(["a.csv", "b.csv"])


def limited(n=600):
    """Return a table with upper limits, its values, and its errors."""
    rng = np.random.default_rng(0)
    truth, errors = rng.standard_normal((n, 2)), rng.uniform(0.1, 0.5, (n, 2))
    X = truth + errors * rng.standard_normal((n, 2))
    limits = np.zeros((n, 2), dtype=int)
    limits[:, 0] = np.where(X[:, 0] < -0.5, -1, 0)
    X = np.where(limits < 0, -0.5, X)
    frame = pd.DataFrame({"a": X[:, 0], "a_err": errors[:, 0], "a_limit": limits[:, 0], "b": X[:, 1]})
    frame["b_err"], frame["kind"] = errors[:, 1], np.where(truth.sum(axis=1) > 0, "yes", "no")
    return frame, X, Limits(errors, limits)


def test_limits_in_parts_are_limits(tmp_path, capsys):
    frame, X, X_err = limited()
    (tmp_path / "parts").mkdir()
    for number in range(2):
        frame[300 * number : 300 * (number + 1)].to_csv(tmp_path / "parts" / f"{number}.csv", index=False)
    more = ["--target", "kind", "--quiet", "--folds", "2"]
    linear = ["--model", "linear"]  # which chooses one Gaussian here
    assert main(["fit", str(tmp_path / "parts"), *more, *linear, "-o", str(tmp_path / "model")]) == 0
    found = read_model(str(tmp_path / "model")).estimator[-1].population_
    one = Deconvolve(1).fit(X, X_err=X_err)
    assert np.allclose(found.means_, one.means_, atol=1e-3)
    assert np.allclose(found.covariances_, one.covariances_, atol=1e-3)
    assert main(["fit", str(tmp_path / "parts"), *more, "--classifier", "guru", "-o", str(tmp_path / "other")]) == 2
    assert "limits (column 'a_limit') are for fits with --classifier error-bars" in capsys.readouterr().err


def test_covariances_beyond_memory_are_made_in_parts(tmp_path, monkeypatch):
    """A table that fits into memory, and the covariances of its rows do not."""
    frame, _, X_err = limited()
    frame = frame.drop(columns="a_limit")
    frame.to_csv(tmp_path / "all.csv", index=False)
    call = ["fit", str(tmp_path / "all.csv"), "--target", "kind", "--quiet", "--folds", "2", "--model", "linear", "-o"]
    assert main([*call, str(tmp_path / "memory")]) == 0
    monkeypatch.setattr(fitting, "MOST_NUMBERS", 100)
    assert main([*call, str(tmp_path / "parts")]) == 0
    samples = Measured(frame[["a", "b"]], X_err.err)
    one, other = (read_model(str(tmp_path / name)).estimator.predict_proba(samples) for name in ("memory", "parts"))
    assert np.abs(one - other).max() < 1e-3


@pytest.fixture(scope="module")
def scheduler():
    """Return the address of a Dask cluster in this process."""
    pytest.importorskip("dask.dataframe")
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0", memory_limit=0
    ) as cluster:
        yield cluster.scheduler_address


def rows_of_any_kind(n=600, seed=0):
    """Return a table of features in units far from 1, with gaps, errors, and labels that need trimming."""
    rng = np.random.default_rng(seed)
    truth, errors = rng.standard_normal((n, 3)), rng.uniform(0.1, 0.5, (n, 3))
    X = truth + errors * rng.standard_normal((n, 3))
    frame = pd.DataFrame(X * [1.0, 30.0, 0.2] + [0.0, 1000.0, 5.0], columns=["a", "b", "c"])
    for name, bars in zip("abc", (errors * [1.0, 30.0, 0.2]).T, strict=True):
        frame[f"{name}_err"] = bars
    kinds = np.array([" no", "yes", "maybe "])
    frame["kind"] = kinds[np.digitize(truth.sum(axis=1) + 0.5 * rng.standard_normal(n), [-1.0, 1.0])]
    return frame


def stored(frame, directory, scheduler, n_parts=3):
    """Write a table as one file, and as some of a directory and of Parquet; return arguments that read it."""
    (directory / "parts").mkdir()
    frame.to_csv(directory / "all.csv", index=False)
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_parts)):
        frame.iloc[rows].to_csv(directory / "parts" / f"{number}.csv", index=False)
        frame.iloc[rows].to_parquet(directory / f"{number}.parquet")
    return {
        "memory": [str(directory / "all.csv")],
        "files": [str(directory / "parts")],
        "csv on a cluster": [str(directory / "parts"), "--dask", scheduler],
        "parquet on a cluster": [str(directory / "*.parquet"), "--dask", scheduler],
    }


def close(one, other, rel):
    """Assert that what JSON holds is the same, but for rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            close(value, other[name], rel)
    elif isinstance(one, list):
        assert len(one) == len(other)
        for value, its in zip(one, other, strict=True):
            close(value, its, rel)
    else:
        assert other == (pytest.approx(one, rel=rel, abs=rel) if isinstance(one, float) else one)


SAME_ROWS = {
    "scaled": (["--no-errors", "--sigma", "0.3,1"], {}),
    "unscaled": (["--no-errors", "--no-scale", "--sigma", "3,10"], {}),
    "scaled-errors": (["--classifier", "guru", "--sigma", "0.3"], {}),
    "unscaled-errors": (["--classifier", "guru", "--no-scale", "--sigma", "3"], {}),
    "gaps": (["--classifier", "guru", "--sigma", "0.3"], {"gaps": 5}),
    "unscaled-gaps": (["--classifier", "guru", "--no-scale", "--sigma", "3"], {"gaps": 5}),
    "dropped": (["--no-errors", "--missing", "drop", "--no-scale", "--sigma", "3"], {"gaps": 5}),
    "balanced": (["--no-errors", "--balanced", "--sigma", "0.3"], {}),
    "measured": (["--folds", "2", "--model", "linear"], {}),
    "measured-gaps": (["--folds", "2", "--balanced", "--model", "linear"], {"gaps": 4}),
    "weights": (["--no-errors", "--weights", "w", "--sigma", "0.3"], {"weights": True}),
    "measured-weights": (["--folds", "2", "--weights", "w", "--model", "linear"], {"weights": True}),
    "measured-exact": (["--folds", "2", "--classifier", "error-bars", "--no-errors", "--model", "linear"], {}),
}


@pytest.mark.xdist_group("dask")
@pytest.mark.parametrize("name", SAME_ROWS)
def test_the_same_rows_make_the_same_model_wherever_they_are(tmp_path, scheduler, capsys, name):
    """Card, and what an evaluation says, robustness included."""
    options, what = SAME_ROWS[name]
    frame = rows_of_any_kind()
    if "weights" in what:
        frame["w"] = np.arange(len(frame)) % 4 / 2
    if "gaps" in what:  # some without a number, and some with one whose error says that it is none
        frame.loc[:: what["gaps"], "b"] = np.nan
        frame.loc[1 :: what["gaps"], "a"] = 1e6
        frame.loc[1 :: what["gaps"], "a_err"] = np.inf
        if "drop" in name:
            frame.loc[1 :: what["gaps"], "a"] = np.nan
    options = [*options, "--tol", "1e-8"] if "--sigma" in options else options
    cards, results = {}, {}
    for where, given in stored(frame, tmp_path, scheduler).items():
        model = str(tmp_path / where)
        assert main(["fit", *given, "--target", "kind", "--quiet", *options, "-o", model]) == 0
        cards[where] = read_model(model).card
        capsys.readouterr()
        assert main(["evaluate", model, str(tmp_path / "all.csv"), "--json"]) == 0
        results[where] = json.loads(capsys.readouterr().out)
        assert results[where].pop("training_rows") == (
            where == "memory"
        )  # others were fitted to files with parts of it
    one, result = cards.pop("memory"), results.pop("memory")
    assert one["classes"] == ["maybe", "no", "yes"]
    if "--no-scale" in options:
        assert result["robustness"]["accuracy"][-1] < result["robustness"]["accuracy"][0] - 0.02
    # A proof of so many digits is reached somewhere else, by rounding and by starts from other subsamples.
    rel = 1e-5 if "--sigma" in options else 1e-3
    for where, card in cards.items():
        assert card["data"]["rows"] == one["data"]["rows"]
        assert card["data"]["rows_used"] == one["data"]["rows_used"]
        assert card["fit"]["passes"] > 0
        changes = ("objective", "gap", "relative_gap", "iterations", "passes", "cv_log_loss", "kappa_pvalue")
        for part in (one, card):
            part["compared"] = {
                key: value for key, value in part.items() if key not in ("data", "created", "fit", "compared")
            } | {"fit": {key: value for key, value in part["fit"].items() if key not in changes}}
        close(one["compared"], card["compared"], rel)
        assert card["fit"]["objective"] == pytest.approx(one["fit"]["objective"], rel=rel)
        assert results[where].pop("model") == str(tmp_path / where)
        close({key: value for key, value in result.items() if key != "model"}, results[where], 10 * rel)


@pytest.mark.xdist_group("dask")
@pytest.mark.parametrize("options", [[], ["--no-errors"], ["--no-errors", "--no-scale", "--sigma", "1,2"]])
def test_a_class_of_one_row_is_refused_wherever_it_is(tmp_path, scheduler, capsys, options):
    frame = rows_of_any_kind(n=60)
    frame["kind"] = np.where(np.arange(60) == 5, "rare", np.where(np.arange(60) % 2, "yes", "no"))
    messages = set()
    for given in stored(frame, tmp_path, scheduler).values():
        assert main(["fit", *given, "--target", "kind", *options, "-o", str(tmp_path / "model")]) == 2
        messages.add(capsys.readouterr().err)
    (message,) = messages
    assert "class 'rare' has one row, too few for cross-validation" in message


@pytest.mark.xdist_group("dask")
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # of Dask, in the log of a worker
def test_what_a_table_in_memory_is_refused_for_is_refused_elsewhere(tmp_path, scheduler, capsys):
    """Errors below 0, no label, a feature without a value: the same words, whoever reads the rows."""
    for change, words in (
        (("a_err", -1.0), "column 'a_err' has -1 in row"),
        (("kind", np.nan), "has no label in 1 of"),
        (("a", 1e200), "column 'a' has 1e+200 in row"),
    ):
        directory = tmp_path / str(change[0])
        directory.mkdir()
        frame = rows_of_any_kind(n=60)
        frame.loc[7, change[0]] = change[1]
        for given in stored(frame, directory, scheduler).values():
            assert main(["fit", *given, "--target", "kind", "-o", str(directory / "model")]) == 2
            assert words in capsys.readouterr().err
    frame = rows_of_any_kind(n=60)
    frame["b"] = np.nan
    (tmp_path / "empty").mkdir()
    for given in stored(frame, tmp_path / "empty", scheduler).values():
        call = ["fit", *given, "--target", "kind", "-o", str(tmp_path / "model"), "--force"]
        assert main([*call, "--features", "a", "--features", "b"]) == 2
        assert "column 'b' has no value in any row; leave it out with --drop 'b'" in capsys.readouterr().err
        assert main([*call, "--model", "linear", "--folds", "2"]) == 0
        assert "ignored: b" in capsys.readouterr().err


@pytest.mark.xdist_group("dask")
def test_variances_intervals_and_categories_are_the_same_wherever_they_are(tmp_path, scheduler):
    rng = np.random.default_rng(0)
    n = 600
    a, b = rng.standard_normal((2, n)) + np.arange(n) % 2
    frame = pd.DataFrame({"a": a, "a_var": rng.uniform(0.01, 0.1, n), "b": b, "b_16": b - 0.3, "b_84": b + 0.5})
    frame.loc[::9, ["b", "b_16", "b_84"]] = -9999
    frame["sex"], frame["who"] = np.array(["f", "m", "x"])[rng.integers(0, 3, n)], [f"s{i}" for i in range(n)]
    frame["kind"] = np.where(np.arange(n) % 2, "yes", "no")
    more = ["--target", "kind", "--quiet", "--na=-9999", "--folds", "2", "--model", "linear", "-o"]
    cards = []
    for where, given in stored(frame, tmp_path, scheduler).items():
        assert main(["fit", *given, *more, str(tmp_path / where)]) == 0
        cards.append(read_model(str(tmp_path / where)).card)
    assert list(cards[0]["reliability"]) == ["a", "b", "sex=m", "sex=x"]
    for card in cards[1:]:
        assert card["layout"] == cards[0]["layout"]
        assert card["columns"] == cards[0]["columns"]
        close(cards[0]["reliability"], card["reliability"], 1e-6)
        assert card["fit"]["objective"] == pytest.approx(cards[0]["fit"]["objective"], rel=1e-6)
