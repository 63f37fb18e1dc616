"""A Dask cluster of two processes: the same classifier as in memory, whatever happens to the workers."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from gaussguru import ErrorBarClassifier, GuruClassifier, sources
from gaussguru._rows import cluster as cluster_module
from gaussguru._rows.streams import Part
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.cli import main
from gaussguru.errors import LowRank, Measured
from gaussguru.models import read_model
from gaussguru.population import Deconvolve

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
import dask.array as da  # noqa: E402

TIGHT = {"tol": 1e-13}

# One process of the suite runs them, one after the other: each cluster has processes of its own.
pytestmark = pytest.mark.xdist_group("dask")


def made(**settings):
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0, **settings
    )


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.admin.low-level-log-length": 0}),
        made() as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


def samples(n=3000, d=5, classes=2, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    score = X @ rng.standard_normal(d) / np.sqrt(d) + 0.5 * rng.standard_normal(n)
    return X, np.digitize(score, np.linspace(-0.6, 0.6, classes - 1)) if classes > 2 else (score > 0.2).astype(int)


def fitted(model, *given, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*given, **more)


def same(one, other, tol=1e-8):
    assert np.abs(one.coef_ - other.coef_).max() <= tol * max(1.0, np.abs(one.coef_).max())
    assert np.abs(one.intercept_ - other.intercept_).max() <= tol * max(1.0, np.abs(one.intercept_).max())
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-9)
    assert other.dual_gap_ <= 1e-9 * other.objective_


# Unequal, empty, of one row.
CHUNKS = (1, 900, 0, 1500, 599)


def chunked(array):
    return da.from_array(array, chunks=(CHUNKS, *[(size,) for size in array.shape[1:]]))


def unknown(array):
    """Return the same with sizes that Dask does not know."""
    return array.map_blocks(lambda block: block, dtype=array.dtype, chunks=tuple(
        (np.nan,) * len(sizes) if axis == 0 else sizes for axis, sizes in enumerate(array.chunks)))  # fmt: skip


def test_arrays(client):
    X, y = samples()
    weight = np.random.default_rng(1).uniform(0, 2, len(y))
    one = fitted(GuruClassifier(0.3, **TIGHT), X, y, sample_weight=weight)
    dx, dy, dw = chunked(X), chunked(y), chunked(weight)
    other = fitted(GuruClassifier(0.3, **TIGHT), dx, dy, sample_weight=dw)
    same(one, other)
    assert not hasattr(other, "alpha_")
    known = GuruClassifier(0.3).fit(dx, dy, sample_weight=dw)
    assert np.array_equal(GuruClassifier(0.3).fit(unknown(dx), unknown(dy), unknown(dw)).coef_, known.coef_)
    # Labels in memory, and blocks of columns and of other rows.
    cut = GuruClassifier(0.3).fit(dx.rechunk({0: 800, 1: 2}), y, sample_weight=dw)
    assert np.allclose(cut.coef_, known.coef_, rtol=1e-9)
    predicted = other.predict(unknown(dx))
    assert isinstance(predicted, da.Array)
    assert np.array_equal(predicted.compute(), one.predict(X))
    assert other.predict_proba(dx).shape == (3000, 2)
    assert np.allclose(other.predict_proba(dx).compute(), one.predict_proba(X), atol=1e-7)
    assert other.score(dx, dy, dw) == pytest.approx(one.score(X, y, weight))
    assert other.certificate(dx, dy, dw).primal == pytest.approx(one.objective_, rel=1e-9)
    # An ordinary classifier.
    assert np.array_equal(pickle.loads(pickle.dumps(other)).predict(X), one.predict(X))
    assert clone(other).get_params() == GuruClassifier(0.3, **TIGHT).get_params()


def test_same_bits_for_any_workers_and_no_data_left(client):
    X, y = samples()
    dx, dy = chunked(X), chunked(y)
    two = GuruClassifier(0.3).fit(dx, dy)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address=":0") as own,
        distributed.Client(own, set_as_default=False) as other,
    ):
        one = GuruClassifier(0.3).fit(dx, dy, client=other)
    assert np.array_equal(one.coef_, two.coef_)
    assert one.dual_gap_ == two.dual_gap_
    deadline = time.monotonic() + 20
    while any(client.has_what().values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(client.has_what().values())


@pytest.mark.parametrize("kind", ["two classes", "three classes", "error bars"])
def test_same_bits_for_any_groups(client, monkeypatch, kind):
    """Which parts share a task, and in which order sums meet, does not change a bit."""
    X, y = samples(n=20_000, classes=3 if kind == "three classes" else 2)
    dx, dy = da.from_array(X, chunks=(1500, -1)), da.from_array(y, chunks=1500)
    more = {"X_err": abs(dx) / 4} if kind == "error bars" else {}
    one = GuruClassifier(0.3).fit(dx, dy, **more)
    for groups in (
        [[place] for place in range(14)],
        [[3, 8, 9], [0, 13], [1, 2, 4, 5, 6, 7, 10, 11, 12]],
        [[*range(14)]],
    ):
        monkeypatch.setattr(cluster_module.Session, "groups", lambda session, futures, found=groups: found)
        other = GuruClassifier(0.3).fit(dx, dy, **more)
        assert np.array_equal(one.coef_, other.coef_)
        assert one.dual_gap_ == other.dual_gap_


def test_sums_by_a_tree():
    """The same bits in any order and by any groups; what was given stays as it is."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 16, 45):
        values = [(rng.standard_normal(3), float(rng.standard_normal())) for _ in range(n)]
        kept = [value[0].copy() for value in values]
        found = []
        for _ in range(5):
            order = rng.permutation(n)
            groups = np.array_split(order, rng.integers(1, n + 1))
            runs = [cluster_module._in_runs((int(place), values[place]) for place in group) for group in groups]
            whole = cluster_module._merged(runs)
            assert sorted(2**level for level, _ in whole) == [2**k for k in range(6) if n >> k & 1]
            found.append(sum(whole[key][0] for key in sorted(whole)))
        assert all(np.array_equal(each, found[0]) for each in found)
        assert np.allclose(found[0], np.sum(kept, axis=0))
        assert all(np.array_equal(value[0], was) for value, was in zip(values, kept, strict=True))


def test_few_tasks(client, monkeypatch):
    """A pass is a task for each worker, not for each partition, and a fit from Dask makes few of them."""
    X, y = samples(n=120_000, d=8)
    dx, dy = client.persist([da.from_array(X, chunks=(4000, -1)), da.from_array(y, chunks=4000)])
    distributed.wait([dx, dy])
    started = []
    kept = cluster_module.Session.map

    def counted(session, function, name, *arguments, **shared):
        started.append((name, len(arguments[0])))
        return kept(session, function, name, *arguments, **shared)

    monkeypatch.setattr(cluster_module.Session, "map", counted)
    one = GuruClassifier(0.2).fit(X, y)
    other = GuruClassifier(0.2).fit(dx, dy)
    assert other.objective_ == pytest.approx(one.objective_, rel=2e-6)
    assert other.n_passes_ <= one.n_passes_ + 2
    # 30 partitions on two workers of one thread; one of them may have more than 16.
    assert max(n for _, n in started) <= 4
    assert sum(name == "survey" for name, _ in started) == 1


@pytest.mark.parametrize("kind", ["three classes", "error bars", "sparse", "one class a partition"])
def test_problems(client, kind):
    X, y = samples(n=3000, classes=3 if kind == "three classes" else 2, dtype=np.float64)
    more, local = {}, {}
    if kind == "error bars":
        errors = np.random.default_rng(2).uniform(0, 0.5, X.shape)
        more, local = {"X_err": chunked(errors)}, {"X_err": errors}
    if kind == "one class a partition":
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
    given = X
    source = chunked(X)
    if kind == "sparse":
        X[np.random.default_rng(3).random(X.shape) < 0.6] = 0
        given, source = sp.csr_matrix(X), chunked(X).map_blocks(sp.csr_matrix)
    settings = {"sigma": 0.2, "tol": 1e-12}
    one = fitted(GuruClassifier(**settings), given, y, **local)
    other = fitted(GuruClassifier(**settings), source, chunked(y), **more)
    same(one, other, tol=1e-7)
    assert other.predict(source).compute().tolist() == one.predict(given).tolist()


def test_frames(client):
    dd = pytest.importorskip("dask.dataframe")
    X, y = samples(d=3, dtype=np.float64)
    errors = np.random.default_rng(2).uniform(0, 0.5, X.shape)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": np.array(["no", "yes"])[y]})
    for j, name in enumerate("abc"):
        frame[f"{name}_err"] = errors[:, j]
    source = dd.from_pandas(frame, npartitions=4)
    source = source[source.a > -10]  # of sizes that nobody knows
    one = fitted(GuruClassifier(0.2, **TIGHT), X, np.array(["no", "yes"])[y], X_err=errors)
    other = fitted(GuruClassifier(0.2, **TIGHT), source, "label", X_err="{x}_err")
    same(one, other)
    assert other.feature_names_in_.tolist() == ["a", "b", "c"]
    assert other.predict(source, X_err="{x}_err").compute().tolist() == one.predict(X).tolist()
    plain = fitted(GuruClassifier(0.2, **TIGHT), source[["a", "b", "c"]], source["label"])
    same(fitted(GuruClassifier(0.2, **TIGHT), X, np.array(["no", "yes"])[y]), plain)


def test_measurements(client, monkeypatch):
    """Population, posteriors, classifier and calibration of all rows, which stay on the workers."""
    X, y = samples(d=3, dtype=np.float64)
    rng = np.random.default_rng(2)
    errors = rng.uniform(0.1, 0.8, X.shape)
    X = X + errors * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.05] = np.nan
    dx, dy, de = chunked(X), chunked(y), chunked(errors)
    monkeypatch.setattr(sources.reading, "MOST_DRAWN", 1000)
    monkeypatch.setattr("gaussguru._measured.deconvolve.PART_NUMBERS", 9 * 500)
    local = sources.Arrays(X, rows=700)
    tight = {"tol": 1e-12, "max_iter": 3000}
    one, other = Deconvolve(**tight).fit(X, X_err=errors), Deconvolve(**tight).fit(unknown(dx), X_err=unknown(de))
    assert np.allclose(one.covariances_, other.covariances_, atol=1e-6)
    assert np.allclose(other.score_samples(dx, de).compute(), one.score_samples(X, errors), atol=1e-5)
    settings = {"model": "linear", "cv": 2, "n_components": 1}
    one = ErrorBarClassifier(**settings).fit(local, y, X_err=errors)
    other = ErrorBarClassifier(**settings).fit(dx, dy, X_err=de)
    assert other.population_.n_passes_ > 3
    assert np.allclose(other.population_.covariances_, one.population_.covariances_, atol=1e-6)
    assert np.allclose(other.reliability_, one.reliability_, atol=1e-6)
    # Their subsamples come from different parts; predictions for the same rows are nearly the same.
    found = other.predict_proba(dx, de).compute()
    assert np.abs(found - one.predict_proba(X, errors)).max() < 0.1
    calibrated = CalibratedWithErrorsCV(GuruClassifier(0.2), cv=2).fit(chunked(np.nan_to_num(X)), dy, X_err=de)
    whole = GuruClassifier(0.2).fit(np.nan_to_num(X), y, X_err=errors)
    assert np.allclose(calibrated.estimator_.coef_, whole.coef_, atol=1e-3)


def test_without_a_cluster(monkeypatch):
    X, y = samples()
    monkeypatch.setattr(sources.reading, "find_client", lambda client: None)
    with dask.config.set(scheduler="threads"):
        one = fitted(GuruClassifier(0.3, **TIGHT), X, y)
        same(one, fitted(GuruClassifier(0.3, **TIGHT), chunked(X), y))


def test_searches_by_joblib(client):
    X, y = samples(n=600)
    search = GridSearchCV(GuruClassifier(), {"sigma": [0.1, 0.5]}, cv=2)
    one = clone(search).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        other = clone(search).fit(X, y)
    assert np.array_equal(one.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"])
    assert np.array_equal(one.best_estimator_.coef_, other.best_estimator_.coef_)


def test_command(client, tmp_path):
    X, y = samples(n=1500, d=3, dtype=np.float64)
    (tmp_path / "parts").mkdir()
    for number, (part, labels) in enumerate(zip(np.split(X, 3), np.split(y, 3), strict=True)):
        frame = pd.DataFrame(part, columns=list("abc")).assign(kind=np.array(["no", "yes"])[labels])
        frame.to_csv(tmp_path / "parts" / f"{number}.csv", index=False)
        frame.to_parquet(tmp_path / f"{number}.parquet")
    whole = pd.concat([pd.read_csv(path) for path in sorted((tmp_path / "parts").iterdir())])
    whole.to_csv(tmp_path / "all.csv", index=False)
    more = ["--target", "kind", "--sigma", "0.2", "--tol", "1e-11", "--quiet"]
    found = {}
    for name, given in {
        "memory": [str(tmp_path / "all.csv")],
        "directory": [str(tmp_path / "parts")],
        "pattern": [str(tmp_path / "parts" / "*.csv")],
        "cluster": [str(tmp_path / "*.parquet"), "--dask", client.scheduler.address],
    }.items():
        output = str(tmp_path / f"{name}.model")
        assert main(["fit", *given, *more, "-o", output]) == 0
        found[name] = read_model(output)
    one = found.pop("memory")
    for other in found.values():
        assert np.allclose(other.estimator[-1].coef_, one.estimator[-1].coef_, rtol=1e-5)
        assert other.card["classes"] == ["no", "yes"]
        frame = pd.DataFrame(X, columns=list("abc"))
        assert np.array_equal(other.estimator.predict(frame), one.estimator.predict(frame))


def test_broken_cells_of_files_on_a_cluster_are_listed_at_once(client, tmp_path, capsys):
    """With the rows of all files, by number; the first rows, which are planned, are whole."""
    paths = []
    for number in range(3):
        frame = pd.DataFrame({"a": np.arange(400) % 7, "b": np.arange(400) / 3, "kind": ["no", "yes"] * 200}).astype(
            object
        )
        if number:
            frame.loc[10, "a"], frame.loc[390, "b"] = "oops", f"bad{'!' * number}"
        paths.append(tmp_path / f"{number}.csv")
        frame.to_csv(paths[-1], index=False)
    pattern, address = str(tmp_path / "*.csv"), client.scheduler.address
    assert main(["fit", pattern, "--target", "kind", "--sigma", "1", "--dask", address, "-o", str(tmp_path / "m")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for cell in ("'a' has 'oops' in row 411; expected is a number", "'bad!' in 'b' in row 791",
                 "'oops' in 'a' in row 811", "'bad!!' in 'b' in row 1191"):  # fmt: skip
        assert cell in line


@pytest.mark.parametrize("classifier", ["error-bars", "guru"])
def test_command_with_columns_of_errors(client, tmp_path, classifier):
    """The workers read the files; the model is that of the same table in memory."""
    X, y = samples(n=1200, d=2, dtype=np.float64)
    rng = np.random.default_rng(5)
    errors = rng.uniform(0.1, 0.6, X.shape)
    X = X + errors * rng.standard_normal(X.shape)
    frame = pd.DataFrame({"a": X[:, 0], "a_err": errors[:, 0], "b": X[:, 1], "b_err": errors[:, 1]})
    frame["kind"] = np.array(["no", "yes"])[y]
    frame.to_csv(tmp_path / "all.csv", index=False)
    for part in range(3):
        frame[400 * part : 400 * (part + 1)].to_parquet(tmp_path / f"{part}.parquet")
    more = ["--target", "kind", "--quiet", "--classifier", classifier]
    more += ["--sigma", "0.2", "--tol", "1e-10"] if classifier == "guru" else ["--folds", "2", "--model", "linear"]
    found = {}
    for name, given in {
        "memory": [str(tmp_path / "all.csv")],
        "parts": [str(tmp_path / "*.parquet")],
        "cluster": [str(tmp_path / "*.parquet"), "--dask", client.scheduler.address],
    }.items():
        assert main(["fit", *given, *more, "-o", str(tmp_path / name)]) == 0
        found[name] = read_model(str(tmp_path / name))
    one = found.pop("memory").estimator.predict_proba(Measured(frame[["a", "b"]], errors))
    for model in found.values():
        assert model.card["classes"] == ["no", "yes"]
        assert model.card["fit"]["converged"]
        other = model.estimator.predict_proba(Measured(frame[["a", "b"]], errors))
        # A scale by all rows, or by parts of them: the last digits differ, and with them where a proof is reached.
        assert np.abs(other - one).max() < 1e-3
    assert (
        main(
            ["predict", str(tmp_path / "cluster"), str(tmp_path / "all.csv"), "--quiet", "-o", str(tmp_path / "o.csv")]
        )
        == 0
    )
    assert len(pd.read_csv(tmp_path / "o.csv")) == 1200


# --- lost workers --------------------------------------------------------------------------------------------


def test_nan_names_partition_and_row(client):
    X, y = samples()
    X[1500, 2] = np.nan
    model = GuruClassifier(0.3)
    with pytest.raises(ValueError, match="X has NaN in partition 3, row 599, column 2"):
        model.fit(chunked(X), chunked(y))
    assert not hasattr(model, "coef_")


def test_partitions_that_do_not_fit(client):
    X, y = samples()
    with pytest.raises(ValueError, match="y must have the 5 partitions of X; got 1"):
        GuruClassifier().fit(unknown(chunked(X)), da.from_array(y))
    with pytest.raises(ValueError, match="y must have a row for each of the 3000 samples of X; got 2999"):
        GuruClassifier().fit(chunked(X), da.from_array(y[1:]))
    with pytest.raises(ValueError, match="sizes of the partitions are not known"):
        GuruClassifier().fit(unknown(chunked(X)), y)


class Saboteur:
    """Does something in another thread once a fit has begun its passes."""

    def __init__(self, monkeypatch, act, after=3):
        self.done, self.calls, self.after, self.act = threading.Event(), 0, after, act
        kept = cluster_module.Session.received

        def received(session, futures):
            self.calls += 1
            if self.calls == self.after:
                self.act()
                self.done.set()
            return kept(session, futures)

        monkeypatch.setattr(cluster_module.Session, "received", received)


def test_a_killed_worker_costs_time_only(monkeypatch):
    X, y = samples(n=20_000)
    with made() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        dx, dy = da.from_array(X, chunks=(3000, -1)), da.from_array(y, chunks=3000)
        one = GuruClassifier(0.2).fit(dx, dy, client=client)
        pids = list(client.run(os.getpid).values())
        saboteur = Saboteur(monkeypatch, lambda: os.kill(pids[0], signal.SIGKILL), after=6)
        other = GuruClassifier(0.2).fit(dx, dy, client=client)
        assert saboteur.done.is_set()
        assert np.array_equal(one.coef_, other.coef_)
        assert one.dual_gap_ == other.dual_gap_
        # And a cluster that is lost says so, and leaves the estimator as it was.
        before = dict(other.__dict__)
        monkeypatch.undo()
        monkeypatch.setattr(cluster_module, "LOST_SECONDS", 2.0)
        for act, message in (
            (lambda: cluster.scale(0), "no workers for 2 seconds"),
            (cluster.close, "Dask cluster"),
        ):
            with monkeypatch.context() as patch:
                Saboteur(patch, act, after=4 if act is not cluster.close else 1)
                began = time.monotonic()
                with pytest.raises(cluster_module.ClusterLostError, match=message):
                    other.fit(dx, dy, client=client)
                assert time.monotonic() - began < 60
                assert other.__dict__ == before


def delayed_rows(block):
    time.sleep(0.1)
    return block


def test_a_worker_killed_during_predictions_costs_time_only():
    X, y = samples(n=20_000)
    model = GuruClassifier(0.2).fit(X, y)
    noisy = GuruClassifier(0.2).fit(X, y, X_err=np.full(len(X), 0.1))
    with made() as cluster, distributed.Client(cluster, set_as_default=True) as client:
        # Parts that are computed by tasks, as those that are read from files: a lost one can be made again.
        dx = da.from_array(X, chunks=(1000, -1)).map_blocks(delayed_rows)
        dy, errors = da.from_array(y, chunks=1000), da.full(len(X), 0.1, chunks=1000)

        def while_one_dies(run):
            killed = next(iter(client.run(os.getpid).values()))
            timer = threading.Timer(0.5, os.kill, (killed, signal.SIGKILL))
            timer.start()
            found = run()
            timer.join()
            client.wait_for_workers(2, timeout=60)
            assert killed not in client.run(os.getpid).values()
            return found

        for method, given in ((model.predict, ()), (model.predict_proba, ()), (noisy.predict_proba, (errors,))):
            found = while_one_dies(lambda method=method, given=given: method(dx, *given).compute())
            assert np.array_equal(found, method(X, *(np.asarray(each) for each in given)))
        assert while_one_dies(lambda: model.score(dx, dy)) == pytest.approx(model.score(X, y), rel=1e-12)


def test_a_prediction_without_any_worker_says_so(monkeypatch):
    X, y = samples(n=2000)
    model = GuruClassifier(0.2).fit(X, y)
    monkeypatch.setattr(cluster_module, "LOST_SECONDS", 2.0)
    with made() as cluster, distributed.Client(cluster, set_as_default=True):
        dx, dy = da.from_array(X, chunks=(500, -1)).map_blocks(delayed_rows), da.from_array(y, chunks=500)
        Saboteur(monkeypatch, lambda: cluster.scale(0), after=1)
        with pytest.raises(cluster_module.ClusterLostError, match="no workers for 2 seconds"):
            model.score(dx, dy)


LOST = """
import sys, time
import dask.array as da, numpy as np
from distributed import Client
from gaussguru import GuruClassifier
from gaussguru._rows import cluster

X = np.random.default_rng(0).standard_normal((4000, 3))
dx, dy = da.from_array(X, chunks=(500, -1)), da.from_array((X[:, 0] > 0).astype(int), chunks=500)
client = Client(sys.argv[1])
model = GuruClassifier(0.2).fit(dx, dy, client=client)
before, began = dict(model.__dict__), time.monotonic()
print("fitting", flush=True)
try:
    while True:
        model.fit(dx, dy, client=client)
        before = dict(model.__dict__)
        began = time.monotonic()
except cluster.ClusterLostError as error:
    print("lost", time.monotonic() - began, model.__dict__ == before, error, flush=True)
"""


def test_a_scheduler_that_dies_is_noticed_within_a_minute(tmp_path):
    """With the times that users have: a real process is killed in the middle of fits."""
    file = tmp_path / "scheduler.json"
    run = partial(subprocess.Popen, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    head = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    scheduler = run([*head, "--scheduler-file", str(file)], stdout=subprocess.DEVNULL)
    worker = child = None
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        body = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        worker = run([*body, "--scheduler-file", str(file)], stdout=subprocess.DEVNULL)
        address = json.loads(file.read_text())["address"]
        child = run([sys.executable, "-c", LOST, address], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "fitting\n"
        time.sleep(1)  # of many fits, one after the other
        assert child.poll() is None
        scheduler.kill()
        killed = time.monotonic()
        said, seconds, unchanged, *_ = child.stdout.readline().split()
        assert time.monotonic() - killed < 60
        assert (said, unchanged) == ("lost", "True")
        assert float(seconds) < 60
    finally:
        for process in (child, worker, scheduler):
            if process is not None:
                process.kill()
                process.communicate()


INTERRUPTED = """
import sys
import dask.array as da, numpy as np
from distributed import Client
from gaussguru import GuruClassifier

X = np.random.default_rng(0).standard_normal((20000, 5))
dx, dy = da.from_array(X, chunks=(1000, -1)), da.from_array((X[:, 0] > 0).astype(int), chunks=1000)
client = Client(sys.argv[1])
model = GuruClassifier(0.2)
try:
    print("fitting", flush=True)
    while True:
        model.fit(dx, dy, client=client)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()  # the client lives on until its tasks were counted
"""


def guru_tasks(dask_scheduler):
    """Return the tasks of fits that a scheduler knows."""
    return [str(key) for key in dask_scheduler.tasks if "guru" in str(key)]


@pytest.mark.skipif(os.name == "nt", reason="signals are those of Unix")
@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_a_signal_leaves_no_task(client, delay):
    """Ctrl-C as a user sends it, to a process that fits on the cluster."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, client.scheduler.address], **pipes) as child:
        assert child.stdout.readline() == "fitting\n"
        deadline = time.monotonic() + 60
        while not client.run_on_scheduler(guru_tasks) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        deadline = time.monotonic() + 30
        while client.run_on_scheduler(guru_tasks) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.run_on_scheduler(guru_tasks) == []
        child.communicate("\n", timeout=60)
        assert child.returncode == 0


def test_interrupts_leave_no_task(client, monkeypatch):
    X, y = samples(n=20_000)
    dx, dy = da.from_array(X, chunks=(3000, -1)), da.from_array(y, chunks=3000)
    model = GuruClassifier(0.2)

    def interrupt():
        raise KeyboardInterrupt

    Saboteur(monkeypatch, interrupt, after=5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(dx, dy)
    assert not hasattr(model, "coef_")
    monkeypatch.undo()
    deadline = time.monotonic() + 20
    while (any(client.processing().values()) or any(client.has_what().values())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(client.processing().values())
    assert not any(client.has_what().values())


def test_arrays_of_messages_are_aligned():
    """Compiled loops read whole numbers: arrays begin where these do, wherever a message has them."""

    def shifted(values):
        raw = np.zeros(values.nbytes + 1, dtype=np.uint8)
        raw[1:] = np.frombuffer(values.tobytes(), dtype=np.uint8)
        return raw[1:].view(values.dtype).reshape(values.shape)

    X, y = np.arange(6.0).reshape(3, 2), np.arange(3)
    sparse = sp.csr_matrix(X)
    sparse.data = shifted(sparse.data)
    given = [Part(shifted(X), shifted(y), None, LowRank(shifted(np.ones((3, 2, 1)))), 0), (sparse, {"u": shifted(X)})]
    part, (matrix, more) = cluster_module.aligned(given)
    for array, expected in (
        (part.X, X),
        (part.y, y),
        (part.X_err.factors, 1.0),
        (matrix.data, X[X != 0]),
        (more["u"], X),
    ):
        assert array.flags.aligned
        np.testing.assert_array_equal(array, expected)
    assert cluster_module.aligned(X) is X
