"""Samples that are read in parts: the same classifier, certificate and predictions as in memory."""

import itertools
import os
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gaussguru import CollapseWarning, ErrorBarClassifier, GuruClassifier, GuruClassifierCV, sigma_max
from gaussguru._rows import streams
from gaussguru._rows.rows import Rows
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Limits, LowRank
from gaussguru.losses import LOSSES
from gaussguru.population import Deconvolve
from gaussguru.sources import Arrays, Stream, Table, save_predictions, subsample
from gaussguru.sources.base import Fields

pa = pytest.importorskip("pyarrow")
import pyarrow.compute  # noqa: E402
import pyarrow.csv  # noqa: E402
import pyarrow.dataset  # noqa: E402
import pyarrow.parquet  # noqa: E402

TIGHT = {"tol": 1e-13}


def samples(n=3000, d=5, classes=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    score = X @ rng.standard_normal(d) / np.sqrt(d) + 0.5 * rng.standard_normal(n)
    return X, np.digitize(score, np.linspace(-0.6, 0.6, classes - 1)) if classes > 2 else (score > 0.2).astype(int)


def fitted(model, X, y, **more):
    """Fit, where a wish for more digits than there are is no defect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **more)


def same(one, other, tol=1e-8):
    assert np.abs(one.coef_ - other.coef_).max() <= tol * max(1.0, np.abs(one.coef_).max())
    assert np.abs(one.intercept_ - other.intercept_).max() <= tol * max(1.0, np.abs(one.intercept_).max())
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-9)
    assert 0 <= other.dual_gap_ <= max(1e-9 * other.objective_, 3 * one.dual_gap_ + 1e-12 * one.objective_)


def uneven(X, *others):
    """Cut samples into parts: one of a single row, an empty one, and large ones."""
    edges = [0, 1, 700, 700, 1900, X.shape[0]]
    return [[array[a:b] for a, b in itertools.pairwise(edges)] for array in (X, *others)]


# --- where samples come from ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    X, y = samples(dtype=np.float32)
    weight = np.random.default_rng(1).uniform(0, 2, len(y))
    return X, y, weight, fitted(GuruClassifier(0.3, **TIGHT), X, y, sample_weight=weight)


def tabled(X, y, weight, names="abcde"):
    return pa.table({**{name: X[:, j] for j, name in enumerate(names)}, "label": y, "weight": weight})


def test_memory_map(reference, tmp_path):
    X, y, weight, one = reference
    padded = np.vstack([np.full((7, X.shape[1]), np.nan, dtype=X.dtype), X])
    np.save(tmp_path / "X.npy", padded)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")[7:]  # a slice, whose own offset says nothing
    np.save(tmp_path / "y.npy", y)
    labels = np.load(tmp_path / "y.npy", mmap_mode="r")
    other = fitted(GuruClassifier(0.3, **TIGHT), Arrays(mapped, rows=800), labels, sample_weight=weight)
    same(one, other)
    assert not hasattr(other, "alpha_")
    assert 1 <= other.n_passes_ < 100


def test_memory_map_is_streamed_where_it_is_large(reference, tmp_path, monkeypatch):
    X, y, weight, one = reference
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert hasattr(GuruClassifier(0.3).fit(mapped, y), "alpha_")
    monkeypatch.setattr("gaussguru.sources.reading.STREAMED_BYTES", 1000)
    other = fitted(GuruClassifier(0.3, **TIGHT), mapped, y, sample_weight=weight)
    assert not hasattr(other, "alpha_")
    same(one, other)


def test_files_of_npy(reference, tmp_path):
    X, y, weight, one = reference
    paths = []
    (parts,) = uneven(X)
    for number, part in enumerate(parts):
        paths.append(str(tmp_path / f"{number}.npy"))
        np.save(paths[-1], part)
    same(one, fitted(GuruClassifier(0.3, **TIGHT), Arrays(paths), y, sample_weight=weight))


@pytest.mark.parametrize("kind", ["file", "directory", "pattern", "dataset", "polars"])
def test_tables(reference, tmp_path, kind):
    X, y, weight, one = reference
    for number, part in enumerate(zip(*uneven(X, y, weight), strict=True)):
        pyarrow.parquet.write_table(tabled(*part), tmp_path / f"{number}.parquet", row_group_size=500)
    if kind == "file":
        pyarrow.parquet.write_table(tabled(X, y, weight), tmp_path / "all.pq", row_group_size=400)
        source = Table(tmp_path / "all.pq")
    elif kind == "directory":
        source = Table(tmp_path)
    elif kind == "pattern":
        source = Table(str(tmp_path / "*.parquet"))
    elif kind == "dataset":
        source = pyarrow.dataset.dataset(tmp_path)
    else:
        source = pytest.importorskip("polars").scan_parquet(tmp_path / "*.parquet")
    other = fitted(GuruClassifier(0.3, **TIGHT), source, "label", sample_weight="weight")
    same(one, other)
    assert other.feature_names_in_.tolist() == list("abcde")
    assert np.array_equal(other.predict(source), one.predict(X))
    assert other.score(source, "label", "weight") == pytest.approx(one.score(X, y, weight), abs=1e-12)


def test_columns_and_filter_of_a_table(tmp_path):
    X, y = samples()
    table = tabled(X, np.array(["no", "yes"])[y], np.arange(len(y)) % 3).append_column("note", pa.array(["?"] * len(y)))
    pyarrow.parquet.write_table(table, tmp_path / "all.parquet", row_group_size=700)
    keep = np.arange(len(y)) % 3 > 0
    source = Table(tmp_path / "all.parquet", ["c", "a"], pyarrow.compute.field("weight") > 0)
    settings = {"sigma": 0.1, "class_weight": "balanced", **TIGHT}
    other = fitted(GuruClassifier(**settings), source, "label")
    same(fitted(GuruClassifier(**settings), X[keep][:, [2, 0]], y[keep]), other)
    assert other.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="column 'note' has the type string: choose features"):
        GuruClassifier().fit(Table(tmp_path / "all.parquet"), "label")
    with pytest.raises(ValueError, match=r"y must be a column of the table.*got 'lable'"):
        GuruClassifier().fit(source, "lable")


def test_errors_in_columns(tmp_path):
    X, y = samples(d=3)
    errors = np.random.default_rng(2).uniform(0, 0.6, X.shape)
    errors[:, 2] = 0
    columns = {"a": X[:, 0], "a_err": errors[:, 0], "b": X[:, 1], "b_err": errors[:, 1], "c": X[:, 2], "y": y}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "all.parquet", row_group_size=900)
    one = fitted(GuruClassifier(0.2, **TIGHT), X, y, X_err=errors)
    source = Table(tmp_path / "all.parquet", ["a", "b", "c"])
    other = fitted(GuruClassifier(0.2, **TIGHT), source, "y", X_err="{x}_err")
    same(one, other)
    found = other.predict_proba(source, X_err="{x}_err")
    assert np.allclose(found, one.predict_proba(X, X_err=errors), atol=1e-7)
    margin, spread = other.margin_and_spread(source, X_err="{x}_err")
    assert np.allclose(spread, one.margin_and_spread(X, errors)[1], atol=1e-7)
    assert margin.shape == spread.shape == (len(y),)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_cache(tmp_path, monkeypatch, dtype, kind):
    """Decoded once; the same parts, values, labels, weights and errors."""
    X, y = samples(n=2000, d=3, dtype=dtype)
    weight, texts = np.random.default_rng(1).uniform(0, 2, len(y)), np.array(["no", "yes"])[y]
    table = pa.table(
        {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "a_err": np.abs(X[:, 1]), "y": y, "text": texts, "w": weight}
    )
    for part in range(2):
        path, some = tmp_path / f"{part}.{kind}", table.slice(1000 * part, 1000)
        if kind == "csv":
            pyarrow.csv.write_csv(some, path)
        else:
            pyarrow.parquet.write_table(some, path, row_group_size=300)
    pattern, store = str(tmp_path / f"*.{kind}"), tmp_path / "store"
    monkeypatch.setattr("gaussguru.sources.cache.PART_BYTES", 20_000)
    plain, kept = Table(pattern, ["a", "b", "c"]), Table(pattern, ["a", "b", "c"], cache=store)
    for fields in (Fields("y"), Fields("text", "w", "{x}_err"), Fields()):
        one, other = ([read() for read in source.parts(fields)] for source in (plain, kept))
        for name in ("X", "y", "weight", "X_err"):
            given, found = ([getattr(part, name) for part in parts] for parts in (one, other))
            assert (given[0] is None) == (found[0] is None)
            if given[0] is not None:
                assert found[0].dtype == given[0].dtype
                assert np.array_equal(np.concatenate(found), np.concatenate(given))
        assert kept.part_rows(fields) == [len(part.X) for part in other]
        assert len(other) > 1
    files = sorted(store.iterdir())
    assert len(files) == 3  # one for each choice of columns
    same(fitted(GuruClassifier(0.3, **TIGHT), plain, "text", sample_weight="w"),
         fitted(GuruClassifier(0.3, **TIGHT), kept, "text", sample_weight="w"))  # fmt: skip
    # A second table reads the same files, and decodes nothing.
    monkeypatch.setattr(Table, "_batches", lambda *given: pytest.fail("decoded again"))
    assert len(Table(pattern, ["a", "b", "c"], cache=store).parts(Fields("y"))) > 1


def test_cache_of_files_that_change(tmp_path):
    X, y = samples(n=600, d=2)
    path, store = tmp_path / "all.parquet", tmp_path / "store"
    source = Table(path, cache=store)

    def written(values):
        pyarrow.parquet.write_table(pa.table({"a": values[:, 0], "b": values[:, 1], "y": y}), path)

    def read():
        return np.concatenate([part().X for part in Table(path, cache=store).parts(Fields("y"))])

    written(X)
    assert np.array_equal(read(), X)
    (cached,) = store.iterdir()
    # Filters and columns are other rows.
    some = Table(path, ["b"], pyarrow.compute.field("a") > 0, cache=store).parts(Fields("y"))
    assert np.array_equal(np.concatenate([part().X for part in some])[:, 0], X[X[:, 0] > 0, 1])
    assert len(list(store.iterdir())) == 2
    # An incomplete file is written again; temporary files of dead processes are deleted.
    with cached.open("r+b") as file:
        file.truncate(cached.stat().st_size - 100)
    left = store / f"{cached.name}.part-died"
    left.write_bytes(b"half")
    assert np.array_equal(read(), X)
    assert not left.exists()
    # One that is not ours stays.
    for foreign in (b"somebody's", b'{"magic": "gaussguru-rows-1", "key": "another"}'):
        cached.write_bytes(foreign)
        with pytest.raises(FileExistsError, match="is not a cache of this table: it is left as it is"):
            read()
        assert cached.read_bytes() == foreign
    # Files that change have another name.
    written(X + 1)
    assert np.array_equal(read(), X + 1)
    assert cached.read_bytes() == foreign
    with pytest.raises(ValueError, match="cache needs a table of files"):
        Table(pyarrow.dataset.dataset(pa.table({"a": X[:, 0], "y": y})), cache=store).parts(Fields("y"))
    assert source.cache == store


def test_cache_that_cannot_be_finished_leaves_nothing(tmp_path):
    pyarrow.parquet.write_table(pa.table({"a": [1.0, 2.0], "y": ["no", None]}), tmp_path / "all.parquet")
    with pytest.raises(ValueError, match="missing labels"):
        GuruClassifier().fit(Table(tmp_path / "all.parquet", cache=tmp_path / "store"), "y")
    assert not list((tmp_path / "store").iterdir())


def test_stream_of_blocks(reference):
    X, y, weight, one = reference
    calls = []

    def blocks():
        calls.append(1)
        yield from zip(*uneven(X, y, weight), strict=True)

    other = fitted(GuruClassifier(0.3, **TIGHT), Stream(blocks), None)
    same(one, other)
    # Each pass asks once, some rows before the first too; nothing else does.
    assert len(calls) <= other.n_passes_ + 1
    assert np.array_equal(other.predict(Stream(lambda: iter(uneven(X)[0]))), one.predict(X))
    with pytest.raises(ValueError, match="come with its blocks"):
        GuruClassifier().fit(Stream(blocks), y)


def altered(blocks, how):
    """Return the blocks of a later pass."""
    if how == "fewer":
        return blocks[:-1]
    if how == "none":
        return []
    if how == "more":
        return [*blocks, blocks[0]]
    X, y, weight = blocks[2]
    other = {
        "fewer rows": (X[:-1], y[:-1], weight[:-1]),
        "more rows": tuple(np.concatenate([each, each[:1]]) for each in (X, y, weight)),
        "columns": (X[:, :-1], y, weight),
        "values": (np.random.default_rng(9).normal(size=X.shape), y, weight),
        "labels": (X, np.concatenate([y[:50], y[50:51] != y[0], y[51:]]), weight),
        "weights": (X, y, 2 * weight),
    }[how]
    return [*blocks[:2], other, *blocks[3:]]


CHANGES = {
    "fewer": "it had 10 partitions and has 9 now",
    "none": "it had 10 partitions and has 0 now",
    "more": "it had 10 partitions and has more now",
    "fewer rows": "partition 2 had 100 rows and has 99 now",
    "more rows": "partition 2 had 100 rows and has 101 now",
    "columns": "partition 2 had 3 features and has 2 now",
    "values": "partition 2 had other values than now",
    "labels": "partition 2 had other labels than now",
    "weights": "partition 2 had other weights than now",
}


@pytest.mark.parametrize("kind", ["dense", "sparse", "texts", "classes", "errors"])
@pytest.mark.parametrize(
    ("how", "later"),  # the first pass, for a look at some blocks, reads eight of them
    [(how, later) for how in CHANGES for later in (2, 3) if later == 3 or how not in ("fewer", "none", "more")],
)
def test_stream_that_changes_between_passes(how, kind, later):
    X, y = samples(n=1000, d=3, classes=4 if kind == "classes" else 2)
    y = np.array(["no", "yes"], dtype=object)[y] if kind == "texts" else y
    made = sp.csr_array if kind == "sparse" else np.asarray
    weight = np.linspace(0.5, 2.0, len(y))
    blocks = [(X[k : k + 100], y[k : k + 100], weight[k : k + 100]) for k in range(0, 1000, 100)]
    passes = itertools.count(1)

    def given():
        for values, *rest in blocks if next(passes) < later else altered(blocks, how):
            yield (made(values), *rest, np.full(values.shape[0], 0.1)) if kind == "errors" else (made(values), *rest)

    model = GuruClassifier(0.3)
    with pytest.raises(ValueError, match=f"X changed while it was read: {CHANGES[how]}; every pass must read the same"):
        model.fit(Stream(given), None)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("model", [Deconvolve, lambda: GuruClassifier(0.3)], ids=["population", "guru"])
@pytest.mark.parametrize("form", ["sample", "values", "covariances", "low rank", "sparse", "limits"])
def test_stream_whose_errors_change_between_passes(form, model):
    X, y = samples(n=1000, d=3)
    made = {
        "sample": lambda err: err[:, 0],
        "values": np.asarray,
        "covariances": lambda err: np.einsum("ij,jk->ijk", err**2, np.eye(3)),
        "low rank": lambda err: LowRank(err[:, :, np.newaxis]),
        "sparse": sp.csr_array,
        "limits": lambda err: Limits(err, np.zeros(err.shape)),
    }[form]
    passes = itertools.count(1)

    def given():
        later = next(passes) > 1
        for k in range(0, 1000, 100):
            yield X[k : k + 100], y[k : k + 100], None, made(np.full((100, 3), 0.2 if later and k == 200 else 0.1))

    if form == "limits" and isinstance(model(), GuruClassifier):
        with pytest.raises(ValueError, match="limits, which say nothing without a population"):
            model().fit(Stream(given), None)
        return
    with pytest.raises(ValueError, match="X changed while it was read: partition 2 had other errors than now"):
        model().fit(Stream(given), None)


OTHERS = {
    "search": lambda: GuruClassifierCV([0.1, 0.3], cv=2),
    "population": Deconvolve,
    "calibrated": lambda: CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2),
    "linear": lambda: ErrorBarClassifier(model="linear", n_components=1, cv=2, n_jobs=1),
    "pool": lambda: ErrorBarClassifier(model="population", cv=2, n_jobs=1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_stream_that_changes_under_other_estimators(name):
    """Also between the passes of their steps, such as the subsample, the population and the classifier."""
    X, y = samples(n=1000, d=3)

    def fit(later):
        passes = itertools.count()

        def given():
            n = 900 if next(passes) >= later else 1000
            return [(X[k : k + 100], y[k : k + 100], None, np.full(100, 0.1)) for k in range(0, n, 100)]

        OTHERS[name]().fit(Stream(given), None)
        return next(passes)

    n_passes = fit(np.inf)
    assert n_passes >= 2
    for later in {1, n_passes // 2, n_passes - 1}:
        with pytest.raises(ValueError, match="X changed while it was read: it had 10 partitions and has 9 now"):
            fit(later)


def rewritten(path, how, mtime):
    """Change a file as another program would."""
    if how == "truncated":
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    elif how == "grown":
        with path.open("ab") as file:
            file.write(path.read_bytes()[-1000:])
    elif how == "removed":
        path.unlink()
    else:  # the same size, other values somewhere in the middle
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 64] = bytes(reversed(content[middle : middle + 64]))
        path.write_bytes(content)
    if path.exists():
        os.utime(path, ns=(mtime, mtime + 10**9))


@pytest.mark.parametrize("how", ["truncated", "grown", "rewritten", "removed"])
@pytest.mark.parametrize("kind", ["npy", "memmap", "labels", "errors", "parquet", "csv", "dataset", "cache"])
def test_files_that_change_between_passes(tmp_path, monkeypatch, kind, how):
    X, y = samples(n=2000, d=3)
    of_arrays = kind in ("npy", "memmap", "labels", "errors")
    path = tmp_path / ("all.npy" if of_arrays else "all.csv" if kind == "csv" else "all.parquet")
    labels, errors, target = y, None, path
    if of_arrays:
        np.save(path, {"labels": y, "errors": np.random.default_rng(2).uniform(0.1, 0.2, X.shape)}.get(kind, X))
        source = Arrays(path if kind == "npy" else np.load(path, mmap_mode="r") if kind == "memmap" else X, rows=500)
        labels = np.load(path, mmap_mode="r") if kind == "labels" else y
        errors = np.load(path, mmap_mode="r") if kind == "errors" else None
    else:
        table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pyarrow.parquet.write_table(table, path, row_group_size=500)
        source = Table(pyarrow.dataset.dataset(path) if kind == "dataset" else path,
                       cache=tmp_path / "store" if kind == "cache" else None)  # fmt: skip
        labels = "y"
    if kind == "cache":
        fitted(GuruClassifier(0.3), source, labels)
        (target,) = (tmp_path / "store").iterdir()
    done, plain = [], streams.LocalParts.both

    def surveyed(self, *given, **more):
        found = plain(self, *given, **more)
        if not done:
            rewritten(target, how, target.stat().st_mtime_ns)
            done.append(how)
        return found

    monkeypatch.setattr(streams.LocalParts, "both", surveyed)
    # What a process that has a file open reads of it does not change when it is removed.
    kept = how == "removed" and (of_arrays or kind == "cache")
    model = GuruClassifier(0.01)
    if kept:
        model.fit(source, labels, X_err=errors)
    else:
        with pytest.raises(
            (ValueError, FileNotFoundError), match=f"X changed while it was read: .*{target.name} was written"
        ):
            model.fit(source, labels, X_err=errors)
    assert done


@pytest.mark.parametrize("shape", [(50,), (50, 3), (50, 3, 3)], ids=["samples", "values", "covariances"])
def test_a_survey_does_not_hold_the_errors_of_a_part(shape):
    """Else the errors of all parts are in memory at its end."""
    errors = np.broadcast_to(np.eye(3) if len(shape) == 3 else 0.5, shape).copy()
    held = weakref.ref(errors)
    part = streams.in_units(streams.Part(np.ones((50, 3)), np.arange(50) % 2, None, errors))
    _, [(known, _)] = streams.survey(part, by_class=False, draw=None)
    del part, errors
    assert held() is None
    assert known.errors.n_samples == 0


def test_a_table_of_files_that_changed_since_it_was_made(tmp_path):
    X, y = samples(n=600, d=2)
    path = tmp_path / "all.parquet"

    def written(values):
        pyarrow.parquet.write_table(pa.table({"a": values[:, 0], "b": values[:, 1], "y": y[: len(values)]}), path)

    def read(source):
        return np.concatenate([part().X for part in source.parts(Fields("y"))])

    written(X)
    source, held = Table(path), Table(pyarrow.dataset.dataset(path))
    assert np.array_equal(read(source), X)
    assert np.array_equal(read(held), X)
    written(X[:500] + 1)
    assert np.array_equal(read(source), X[:500] + 1)
    with pytest.raises(ValueError, match="files of the data set were written after it was opened"):
        read(held)


def test_a_cache_is_not_made_of_files_that_change_meanwhile(tmp_path, monkeypatch):
    X, y = samples(n=600, d=2)
    path, store, plain = tmp_path / "all.parquet", tmp_path / "store", Table._batches
    pyarrow.parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path)

    def batches(self, *given):
        for number, part in enumerate(plain(self, *given)):
            if number == 0:
                rewritten(path, "touched", path.stat().st_mtime_ns)
            yield part

    monkeypatch.setattr(Table, "_batches", batches)
    with pytest.raises(ValueError, match=r"all.parquet was written"):
        Table(path, cache=store).parts(Fields("y"))
    assert not list(store.iterdir())


def test_predictions_on_disk(tmp_path):
    X, y = samples(d=3)
    labels, errors = np.array(["no", "yes"])[y], np.random.default_rng(2).uniform(0, 0.6, X.shape)
    columns = {
        f"{name}{end}": values[:, j] for end, values in (("", X), ("_err", errors)) for j, name in enumerate("abc")
    }
    pyarrow.parquet.write_table(pa.table({**columns, "y": labels}), tmp_path / "all.parquet", row_group_size=900)
    source = Table(tmp_path / "all.parquet")
    model = GuruClassifier(0.2).fit(source, "y", X_err="{x}_err")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # names of features are those of the fit
        found = save_predictions(tmp_path / "p.npy", model.predict_proba, source, X_err="{x}_err")
    assert isinstance(found, np.memmap)
    expected = model.predict_proba(source, X_err="{x}_err")
    assert np.array_equal(found, expected)
    found = save_predictions(tmp_path / "labels.npy", model.predict, source, X_err="{x}_err")
    assert found.tolist() == model.predict(source, X_err="{x}_err").tolist()
    plain = GuruClassifier(0.2).fit(X, labels)
    for given in (Arrays(X, rows=700), Stream(lambda: iter(uneven(X)[0]))):
        assert np.array_equal(save_predictions(tmp_path / "q.npy", plain.predict, given), plain.predict(X))
    # What cannot be finished leaves the file that was there, and no other.
    with pytest.raises(ValueError, match="features"):
        save_predictions(tmp_path / "p.npy", plain.predict, Arrays(X[:, :2]))
    assert np.array_equal(np.load(tmp_path / "p.npy"), expected)
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(TypeError, match="must be a source"):
        save_predictions(tmp_path / "r.npy", plain.predict, X)
    with pytest.raises(TypeError, match="Python objects"):
        save_predictions(tmp_path / "r.npy", lambda X: np.array([object()] * len(X)), Arrays(X))
    with pytest.raises(ValueError, match="all partitions are empty"):
        save_predictions(tmp_path / "r.npy", plain.predict, Arrays(X[:0]))


def test_predictions_of_several_writers_do_not_mix(tmp_path):
    """Two that write to one path take turns, row by row; a file of the user beside it is left as it is."""
    X, _ = samples(n=600)
    (tmp_path / "p.npy.part").write_bytes(b"precious")
    turns = threading.Barrier(2, timeout=60)

    def write(number):
        def method(part):
            turns.wait()
            return np.full(len(part), number)

        save_predictions(tmp_path / "p.npy", method, Arrays(X, rows=100))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (1.0, 2.0)))
    assert np.load(tmp_path / "p.npy").tolist() in ([1.0] * 600, [2.0] * 600)
    assert (tmp_path / "p.npy.part").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.npy", "p.npy.part"]


@pytest.mark.parametrize("wrong", [lambda X: X[:50], lambda X: X[:, : 1 + (X[0, 0] > 0)], lambda X: X.sum()])
def test_predictions_that_do_not_fit_together_are_refused(tmp_path, wrong):
    X = np.where(np.arange(200)[:, np.newaxis] < 100, -1.0, 1.0) * np.ones((200, 2))
    with pytest.raises(ValueError, match="method must return a row for each sample, of one dtype and shape"):
        save_predictions(tmp_path / "p.npy", wrong, Arrays(X, rows=100))
    assert not list(tmp_path.iterdir())


def test_progress(capsys):
    X, y = samples()
    model = GuruClassifier(0.3, verbose=1).fit(Arrays(X, rows=700), y)
    assert len(capsys.readouterr().out.splitlines()) >= model.n_iter_ > 0


# --- all problems --------------------------------------------------------------------------------------------


def covariance(d):
    root = np.random.default_rng(3).standard_normal((d, d))
    root[:, 0] = 0  # a direction without noise
    return root @ root.T / d


CASES = {
    "three classes": ({"classes": 3}, {}, {}),
    "many unknowns": ({"classes": 4, "d": 30}, {"sigma": 0.5}, {}),
    "class weights": ({"classes": 3}, {"class_weight": "balanced"}, {}),
    "weights of classes": ({}, {"class_weight": {0: 1.0, 1: 3.0}, "sigma": 0.5}, {}),
    "no intercept": ({}, {"fit_intercept": False}, {}),
    "ridge": ({}, {"l2": 30.0}, {}),
    "per feature": ({}, {"noise": np.array([0.1, 0.0, 0.4, 0.2, 1.0])}, {}),
    "covariance": ({}, {"noise": covariance(5)}, {}),
    "error bars": ({}, {}, {"X_err": lambda n, d, rng: rng.uniform(0, 0.5, (n, d))}),
    "one error a sample": ({}, {}, {"X_err": lambda n, d, rng: rng.uniform(0, 0.5, n)}),
    "covariances": ({"n": 800, "d": 3}, {}, {"X_err": lambda n, d, rng: 0.1 * _positive(rng, n, d)}),
    "error bars, three classes": (
        {"classes": 3, "n": 1500},
        {},
        {"X_err": lambda n, d, rng: rng.uniform(0, 0.5, (n, d))},
    ),
    "error bars alone": ({}, {"sigma": 0}, {"X_err": lambda n, d, rng: rng.uniform(0.1, 0.5, (n, d))}),
    "a ridge alone": ({"n": 900}, {"sigma": 0, "l2": 5.0}, {}),
    **{f"{name} loss": ({}, {"loss": name}, {}) for name in LOSSES if name != "gaussian"},
}


def _positive(rng, n, d):
    roots = rng.standard_normal((n, d, d))
    return roots @ roots.transpose(0, 2, 1)


@pytest.mark.parametrize(("data", "settings", "more"), CASES.values(), ids=CASES.keys())
def test_problems(data, settings, more):
    X, y = samples(**data)
    rng = np.random.default_rng(4)
    weight = rng.uniform(0, 3, len(y))
    given = {name: make(*X.shape, rng) for name, make in more.items()}
    settings = {"sigma": 0.3, "tol": 1e-11, **settings}
    one = fitted(GuruClassifier(**settings), X, y, sample_weight=weight, **given)
    other = fitted(GuruClassifier(**settings), Arrays(X, rows=400), y, sample_weight=weight, **given)
    # The objectives are within tol of the minimum, so coefficients within about its root: 3e-6.
    assert abs(one.objective_ - other.objective_) <= 2 * settings["tol"] * (len(one.classes_) - 1) * weight.sum()
    same(one, other, tol=3e-6)
    found = other.certificate(Arrays(X, rows=1100), y, weight, **given)
    assert found.primal == pytest.approx(other.objective_, rel=1e-9)
    assert found.dual <= one.objective_ * (1 + 1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_sparse_parts(classes):
    X, y = samples(d=40, classes=classes)
    X[np.random.default_rng(5).random(X.shape) < 0.8] = 0
    one = fitted(GuruClassifier(0.3, **TIGHT), sp.csr_matrix(X), y)
    other = fitted(GuruClassifier(0.3, **TIGHT), Arrays(sp.csr_array(X), rows=700), y)
    same(one, other, tol=1e-7)
    assert np.array_equal(other.predict(Arrays(sp.csr_matrix(X), rows=500)), one.predict(X))


@pytest.fixture
def drawn(monkeypatch):
    """The rows, and the subsamples that were drawn of them."""
    found = []
    kept = streams.StreamedRows.subsample

    def subsample(rows, *given):
        found.append((rows, kept(rows, *given)))
        return found[-1][1]

    monkeypatch.setattr(streams.StreamedRows, "subsample", subsample)
    return found


@pytest.mark.parametrize("given", ["parts", "stream", "weights", "sparse"])
def test_subsamples_of_each_class(monkeypatch, drawn, given):
    """A subsample has the total weight of each class, and rows of a rare one; the cap in bytes holds."""
    X, y = samples(n=40_000, d=4, dtype=np.float32)
    y[:] = 0
    y[np.random.default_rng(6).choice(len(y), 90, replace=False)] = 1
    weight = np.where(np.arange(len(y)) % 3, 2.0, 0.0) if given == "weights" else None
    monkeypatch.setattr(streams, "DRAWN_BYTES", 5000 * (16 if given != "sparse" else 36))
    edges = [0, 10, 10_000, 10_000, *range(12_000, 40_001, 2000)]
    blocks = [(X[a:b], y[a:b]) for a, b in itertools.pairwise(edges)]
    source = Stream(lambda: iter(blocks)) if given == "stream" else Arrays(X, rows=3000)
    if given == "sparse":
        source = Arrays(sp.csr_array(X), rows=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        GuruClassifier(0.3).fit(source, None if given == "stream" else y, sample_weight=weight)
    ((rows, some),) = drawn
    assert np.allclose(some.class_weights, rows.class_weights)
    assert min(50, np.count_nonzero(y if weight is None else y * weight)) <= np.count_nonzero(some.labels) <= 90
    assert 1000 <= some.n_rows <= 5100
    # Rows are those of X, and next to none comes twice.
    found = {row.tobytes() for row in (some.X.toarray() if given == "sparse" else some.X)}
    assert len(found) >= 0.99 * some.n_rows
    assert found <= {row.tobytes() for row in X}
    # Each stands for those of its part, so that sums over parts of any size are those of all rows.
    assert np.allclose(some.means[0], rows.means[0], atol=0.1)


def test_subsamples_of_unequal_parts(monkeypatch, drawn):
    """A part that is much larger than others gives no more bytes, and its rows count for more."""
    X, y = samples(n=60_000, d=4, dtype=np.float32)
    X[:1000] += 3  # small parts are unlike the large one
    monkeypatch.setattr(streams, "DRAWN_BYTES", 6000 * 16)
    edges = [0, 300, 700, 1000, 60_000]
    parts = [X[a:b] for a, b in itertools.pairwise(edges)]
    one = GuruClassifier(0.3).fit(X, y)
    other = GuruClassifier(0.3).fit(Arrays(parts), y)
    assert other.objective_ == pytest.approx(one.objective_, rel=2e-6)
    ((rows, some),) = drawn
    # The small parts are drawn whole, 1500 rows of the large one stand for 59,000.
    assert some.n_rows == pytest.approx(2500, abs=10)
    assert np.allclose(some.means, rows.means, atol=0.2)
    assert some.weights.max() > 30 * some.weights.min()


def test_no_subsample_without_a_class(monkeypatch, drawn):
    """Where the bytes of a subsample leave no room for each class, a fit does without it, and finds the same."""
    X, y = samples(n=20_000, d=4, dtype=np.float32)
    y[:] = np.arange(len(y)) % 2
    y[5] = 2
    X += y[:, np.newaxis]
    monkeypatch.setattr(streams, "DRAWN_BYTES", 20 * 16)
    other = fitted(GuruClassifier(0.3, tol=1e-9), Arrays(X, rows=1000), y)
    assert not drawn
    one = fitted(GuruClassifier(0.3, tol=1e-9), X, y)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-8)


@pytest.mark.parametrize(
    "y",
    [
        np.array([True, False, True]),
        np.array([True, True]),
        np.array([], dtype=bool),
        np.array([], dtype=int),
        np.array([7, 0, 255, 7]),
        np.array([7, 0, 256]),
        np.array([3, -1, 3]),
        np.array([2, 1, 2], dtype=np.uint8),
        np.array(["b", "a", "b"]),
        np.array([0.5, 0.25]),
        np.arange(255, -1, -1),
        np.ones(6, dtype=bool)[::2],
    ],
    ids=str,
)
def test_numbers_of_labels(y):
    classes, codes, counts = streams._numbered(y)
    expected, places, n_rows = np.unique(y, return_inverse=True, return_counts=True)
    assert classes.dtype == y.dtype
    assert np.array_equal(classes, expected)
    assert np.array_equal(codes, places)
    assert np.array_equal(counts, n_rows)


# Columns, noise level, classes, and how often the data are read: some parts, a survey that draws a subsample, and as
# often as in memory.
READS = {"two classes": (8, 0.2, 2, 6), "more noise": (8, 0.5, 2, 4), "columns": (60, 0.3, 2, 7)}


@pytest.mark.parametrize(("d", "level", "classes", "budget"), READS.values(), ids=READS.keys())
def test_large_samples_are_read_a_few_times(d, level, classes, budget):
    """The numbers are what the shape takes; one more may be rounding."""
    X, y = samples(n=120_000, d=d, classes=classes, dtype=np.float32)
    one = GuruClassifier(level).fit(X, y)
    calls = []

    def blocks():
        calls.append(1)
        yield from ((X[a : a + 9000], y[a : a + 9000]) for a in range(0, len(y), 9000))

    other = GuruClassifier(level).fit(Stream(blocks), None)
    assert other.converged_
    assert other.objective_ == pytest.approx(one.objective_, rel=2e-6)
    assert len(calls) <= budget + 1
    assert other.n_passes_ <= one.n_passes_ + 2


def test_many_columns_need_products_only(monkeypatch):
    """Beyond 2048 columns no Hessian of all rows is formed, and the optimum is the same."""
    X, y = samples(n=3000, d=2100, dtype=np.float32)
    one = GuruClassifier(0.3).fit(X, y)
    monkeypatch.setattr(streams.StreamedRows, "_gram_total", lambda *given, **shared: pytest.fail("formed"))
    other = GuruClassifier(0.3).fit(Arrays(X, rows=700), y)
    assert other.converged_
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-5)


def test_row_vectors_in_files(reference, monkeypatch):
    X, y, weight, one = reference
    monkeypatch.setattr(streams, "KEPT_BYTES", 1000)
    files = []
    kept = streams._write
    monkeypatch.setattr(streams, "_write", lambda *given: files.append(kept(*given)))
    same(one, fitted(GuruClassifier(0.3, **TIGHT), Arrays(X, rows=600), y, sample_weight=weight))
    assert files


def test_result_does_not_depend_on_threads(reference):
    X, y, weight, _ = reference
    found = [GuruClassifier(0.3, n_jobs=n).fit(Arrays(X, rows=500), y, sample_weight=weight) for n in (1, 2, 3)]
    assert all(np.array_equal(found[0].coef_, other.coef_) for other in found[1:])
    assert len({other.dual_gap_ for other in found}) == 1


def test_rows_far_from_the_origin():
    X, y = samples()
    X = X + 1e5
    one = fitted(GuruClassifier(0.3, **TIGHT), X, y)
    same(one, fitted(GuruClassifier(0.3, **TIGHT), Arrays(X, rows=700), y), tol=1e-6)


def test_warm_start_and_collapse():
    X, y = samples()
    model = GuruClassifier(0.3, warm_start=True, tol=1e-10).fit(X, y)
    again = model.coef_.copy()
    model.fit(Arrays(X, rows=700), y)
    assert np.allclose(model.coef_, again, atol=1e-5)
    with pytest.warns(CollapseWarning, match="sigma=1000 is so large"):
        GuruClassifier(1000.0).fit(Arrays(X[:2000], rows=300), y[:2000])
    assert sigma_max(X, y) < 1000


# --- other estimators ----------------------------------------------------------------------------------------


def test_descent_over_parts():
    """One call over a source is a call for each of its parts."""
    X, y = samples()
    settings = {"sigma": 0.3, "solver": "sgd", "eta0": 0.5, "random_state": 3}
    one, other = GuruClassifier(**settings), GuruClassifier(**settings)
    for first in range(0, len(y), 700):
        one.partial_fit(X[first : first + 700], y[first : first + 700], classes=[0, 1])
    other.partial_fit(Arrays(X, rows=700), y, classes=[0, 1])
    assert np.array_equal(one.coef_, other.coef_)
    assert other.n_updates_ == len(y)
    parts = zip(*(np.split(each, [700, 1400, 2100, 2800]) for each in (X, y)), strict=True)
    blocks = list(parts)
    third = GuruClassifier(**settings).partial_fit(Stream(lambda: iter(blocks)), None, classes=[0, 1])
    assert np.array_equal(third.coef_, one.coef_)


def test_subsample_of_a_source():
    X, y = samples(n=6000)
    y[:] = np.arange(len(y)) < 60
    weight = np.random.default_rng(0).uniform(0, 1, len(y))
    weight[100:200] = 0
    X[:, 0] = np.arange(len(y))
    some, labels, weights, errors = subsample(Arrays(X, rows=700), y, weight, X**2, n_samples=600)
    rows = some[:, 0].astype(int)
    assert np.array_equal(labels, y[rows])
    assert np.array_equal(errors, X[rows] ** 2)
    assert not np.any((rows >= 100) & (rows < 200))
    # The rare class was drawn more often, and each of its samples counts for less.
    assert 50 <= np.count_nonzero(labels) <= 60
    assert np.allclose(weights[labels == 0], weight[rows][labels == 0])
    fraction = np.count_nonzero(labels == 0) / np.count_nonzero((y == 0) & (weight > 0))
    assert np.allclose(weights[labels == 1] / weight[rows][labels == 1], fraction / (np.count_nonzero(labels) / 60))
    with pytest.raises(TypeError, match="X must be a source"):
        subsample(X, y)


def test_sigma_by_cross_validation():
    X, y = samples()
    one = GuruClassifierCV([0.05, 0.2, 1.0], cv=3).fit(X, y)
    other = GuruClassifierCV([0.05, 0.2, 1.0], cv=3).fit(Arrays(X, rows=700), y)
    assert other.sigma_ == one.sigma_  # few enough samples that all are drawn
    assert np.allclose(other.scores_, one.scores_)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-5)
    assert not hasattr(other, "alpha_")
    assert np.array_equal(other.predict(Arrays(X, rows=500)), other.predict(X))


def test_measurements_of_a_source():
    X, y = samples(n=1500, d=3)
    errors = np.random.default_rng(1).uniform(0.05, 0.5, X.shape)
    source = Arrays(X, rows=400)
    one = Deconvolve().fit(X, X_err=errors)
    assert np.allclose(Deconvolve().fit(source, X_err=errors).covariances_, one.covariances_)
    base = CalibratedWithErrorsCV(GuruClassifier(0.1), cv=3)
    one, other = clone(base).fit(X, y, X_err=errors), clone(base).fit(source, y, X_err=errors)
    assert np.allclose(other.predict_proba(source, X_err=errors), one.predict_proba(X, X_err=errors))
    assert other.score(source, y, X_err=errors) == pytest.approx(one.score(X, y, X_err=errors))


# --- bad input -----------------------------------------------------------------------------------------------


def broken(change):
    X, y = samples(n=600)
    weight = np.ones(600)
    return change(X, y, weight) or (X, y, weight)


def _nan(X, y, w):
    X[431, 2] = np.nan


def _infinite(X, y, w):
    X[431, 2] = np.inf


def _negative(X, y, w):
    w[250] = -1


def _one_class(X, y, w):
    y[:] = 1


def _unused_class(X, y, w):
    w[y == 1] = 0


WRONG = {
    "NaN": (_nan, r"X has NaN in partition 4, row 31, column 2"),
    "infinity": (_infinite, r"X has infinity in partition 4, row 31, column 2"),
    "negative weight": (_negative, r"sample_weight must be finite and not negative; got -1.0 in partition 2, row 50"),
    "one class": (_one_class, r"y must have at least two classes; got one class: \[1\]"),
    "no weight": (_unused_class, r"class 1 has no sample of positive weight"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_errors_name_the_bad_argument_or_partition(change, message):
    X, y = samples(n=500)
    model = GuruClassifier(0.3).fit(X, y)
    before = dict(model.__dict__)
    X, y, weight = broken(change)
    with pytest.raises(ValueError, match=message):
        model.fit(Arrays(X, rows=100), y, sample_weight=weight)
    assert model.__dict__ == before


def test_sources_refuse_unsupported_arguments(tmp_path):
    X, y = samples(n=300)
    with pytest.raises(ValueError, match="solver must be 'newton'"):
        GuruClassifier(solver="sgd").fit(Arrays(X), y)
    with pytest.raises(ValueError, match="noise='axis' needs samples in memory"):
        GuruClassifier(noise="axis").fit(Arrays(X), y)
    with pytest.raises(ValueError, match="y must have a row for each of the 300 samples"):
        GuruClassifier().fit(Arrays(X), y[:-1])
    with pytest.raises(ValueError, match="y is required"):
        GuruClassifier().fit(Arrays(X), None)
    with pytest.raises(ValueError, match="5 features in all partitions; partition 1 has 4"):
        GuruClassifier().fit(Arrays([X, X[:, :4]]), np.tile(y, 2))
    with pytest.raises(ValueError, match="sparse in all partitions or in none"):
        GuruClassifier().fit(Arrays([X, sp.csr_matrix(X)]), np.tile(y, 2))
    with pytest.raises(FileNotFoundError, match="no file fits"):
        GuruClassifier().fit(Table(str(tmp_path / "*.parquet")), "y")
    model = GuruClassifier(0.5).fit(X, y)
    with pytest.raises(ValueError, match="partition 0: X has 4 features"):
        model.predict(Arrays(X[:, :4]))
    with pytest.raises(ValueError, match=r"y must have the classes \[0, 1\]"):
        model.certificate(Arrays(X), y + 1)


def test_rows_are_never_gathered(monkeypatch):
    """No step of a fit brings a number for each row here, or makes arrays of all rows."""
    X, y = samples(n=20_000, d=4, dtype=np.float32)
    monkeypatch.setattr(Rows, "gather", lambda rows, vector: pytest.fail("gathered") if rows.n_rows == 20_000 else
                        (vector[0] if len(vector) == 1 else np.concatenate(vector)))  # fmt: skip
    assert GuruClassifier(0.2).fit(Arrays(X, rows=3000), y).converged_
