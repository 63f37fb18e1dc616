"""Tables and what their columns mean: what is written is read again, and what cannot be used is refused in one line."""

import csv
import gzip
import hashlib
import io
import os
import time
import tracemalloc
import zlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file
from support.tables import BAD, CSV, WITH_ERRORS

from gaussguru._errors.columns import Bar
from gaussguru._tables import base, delimited
from gaussguru._tables.files import FileLimits, TableError, format_of, open_table, write_tables, writing
from gaussguru._tables.layout import Layout
from gaussguru._tables.options import Options
from gaussguru._tables.plan import Plan
from gaussguru._tables.schema import Data, label_values, read_all, read_parts

VALUES = np.array([[1.0, -2.5], [0.25, 1e-3], [3.0, 4.0]])
LABELS = ["yes", "no", "yes"]


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(path, target="y", *, format=None, sep=None, decimal=".", limits=None, **options) -> Data:
    table = open_table(path, format=format, sep=sep, decimal=decimal, limits=limits)
    try:
        return read_all(table, Plan.of(table, target, Options(**options)).check())
    finally:
        table.close()


def refuses(path, *words, **options):
    with pytest.raises(TableError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000 + len(path)
    for word in words:
        assert word in message


FORMS = {
    "plain": CSV,
    "bom": b"\xef\xbb\xbf" + CSV.encode(),
    "crlf": CSV.replace("\n", "\r\n"),
    "cr": CSV.replace("\n", "\r"),
    "semicolons": CSV.replace(",", ";"),
    "tabs": CSV.replace(",", "\t"),
    "bars": CSV.replace(",", "|"),
    "quoted": '"a","b","y"\n"1","-2.5","yes"\n"0.25","1e-3","no"\n"3","4","yes"\n',
    "spaces": CSV.replace(",", " , "),
    "blank-lines": "\n" + CSV.replace("\n", "\n\n"),
    "no-last-newline": CSV.rstrip(),
    "more-columns": 'note,a,é,b,y\n"x, ""y""\nz",1,é,-2.5,yes\n,0.25,,1e-3,no\nq,3,,4,yes\n',
    "other-order": "y,b,a\nyes,-2.5,1\nno,1e-3,0.25\nyes,4,3\n",
    "gzip": gzip.compress(CSV.encode()),
    "gzip-members": gzip.compress(CSV.encode()[:9]) + gzip.compress(CSV.encode()[9:]),
    # Marks that Python takes for the end of a line, and CSV does not; lines that have nothing in them.
    "form-feed": "\x0c" + CSV,
    "line-separator": "\x0b\n\u2028\n" + CSV,
    "space-first": " \n" + CSV,
    "separators-first": ",,\n" + CSV,
    "many-blank-lines": "\n" * 70_000 + CSV,
    "many-blank-lines-later": CSV.replace("\n1,", "\n" * 70_000 + "1,"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_csv_are_the_same_table(tmp_path, form):
    data = read(put(tmp_path / "t.csv", FORMS[form]), features=["a", "b"])
    np.testing.assert_array_equal(data.X, VALUES)
    assert list(data.X.columns) == ["a", "b"]
    assert data.y.tolist() == LABELS
    assert data.n_rows == 3


def test_separator_and_decimal_point_can_be_given(tmp_path):
    path = put(tmp_path / "t.csv", CSV.replace(",", ":").replace(".", ","))
    np.testing.assert_array_equal(read(path, sep=":", decimal=",").X, VALUES)
    refuses(put(tmp_path / "u.csv", CSV.replace(",", ";").replace(".", ",")), "'0,25'", "row 2", "--decimal")
    refuses(path, "--sep", sep="ab")
    refuses(path, "decimal point", sep=",", decimal=",")


finite = st.floats(-1e150, 1e150)
texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)
words = st.tuples(texts, st.sampled_from(["", ",", '"', "\n", ";", " ", "\t", "é"]), texts).map("".join)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(["csv", "parquet"]), st.integers(1, 12), st.integers(1, 4))
def test_what_is_written_is_read_again(tmp_path, data, format, n, d):
    names = data.draw(st.lists(texts, min_size=d + 1, max_size=d + 1, unique=True))
    X = np.array(data.draw(st.lists(finite, min_size=n * d, max_size=n * d))).reshape(n, d)
    # None of them all numbers: those would lose their form.
    y = ["label " + word for word in data.draw(st.lists(words, min_size=n, max_size=n))]
    path, columns = str(tmp_path / f"t.{format}"), {**dict(zip(names[:-1], X.T, strict=True)), names[-1]: y}
    half = n // 2
    with writing(path, force=True) as file:
        parts = [{name: column[rows] for name, column in columns.items()} for rows in (slice(half), slice(half, n))]
        assert write_tables(file, (pa.table(part).to_pydict() | part for part in parts if part[names[-1]]), format) == n
    found = read(path, names[-1], sep=",", features=names[:-1])
    np.testing.assert_array_equal(found.X, X)
    assert list(found.X.columns) == names[:-1]
    assert found.y.tolist() == y


def many(n=500):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((n, 2)), columns=["a", "b"])
    frame["a_err"], frame["id"] = rng.random(n), [f"row {i}" for i in range(n)]
    frame["y"] = np.where(rng.random(n) < 0.5, "no", "yes")
    frame.loc[rng.choice(n, 40, replace=False), "a"] = np.nan
    return frame


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("missing", ["drop", "unmeasured"])
def test_parts_are_bounded_and_have_every_row_in_order(tmp_path, monkeypatch, format, missing):
    monkeypatch.setattr(base, "BLOCK", 2000)
    frame, path = many(), str(tmp_path / f"t.{format}")
    frame.to_csv(path, index=False) if format == "csv" else frame.to_parquet(path, index=False)
    table = open_table(path)
    layout = Plan.of(table, "y", Options(drop=["id"], missing=missing)).check()
    parts = list(read_parts(table, layout, labels=True, keep=["id"]))
    table.close()
    assert len(parts) > 5
    assert max(len(part.complete) for part in parts) < 100
    assert [name for part in parts for name in part.kept["id"].to_pylist()] == frame["id"].tolist()
    complete, X = np.concatenate([part.complete for part in parts]), pd.concat([part.X for part in parts])
    empty = frame["a"].isna().to_numpy()
    np.testing.assert_array_equal(complete, ~empty if missing == "drop" else np.full(500, True))
    np.testing.assert_array_equal(X, frame.loc[complete, ["a", "b"]])
    errors = np.concatenate([part.X_err for part in parts])
    expected = np.column_stack([np.where(empty, np.inf, frame["a_err"]), np.zeros(500)])
    np.testing.assert_array_equal(errors, expected[complete])
    assert np.concatenate([part.y for part in parts]).tolist() == frame.loc[complete, "y"].tolist()


def test_hash_is_that_of_the_file(tmp_path):
    frame = many()
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    for name in ("t.csv", "t.parquet", "t.csv.gz"):
        table = open_table(str(tmp_path / name))
        read_all(table, Plan.of(table, "y", Options(drop=["id"])).check())
        assert table.sha256() == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        table.close()


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_standard_input(tmp_path, monkeypatch, format):
    with writing(str(tmp_path / "t"), force=False) as file:
        write_tables(file, [{"a": VALUES[:, 0], "b": VALUES[:, 1], "y": LABELS}], format)
    content = (tmp_path / "t").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    data = read("-")
    np.testing.assert_array_equal(data.X, VALUES)
    assert data.name == "standard input"


class Lines(io.BytesIO):
    """A pipe that gives a line at a time."""

    def read1(self, size=-1):
        return self.readline(size)


@pytest.mark.parametrize("width", [2, 20_000])
def test_a_table_means_the_same_however_it_arrives(monkeypatch, width):
    names = [f"c{j}" for j in range(width)]
    rows = [["true" if i % 2 else "false", *["1.5"] * (width - 1), "no" if i % 3 else "yes"] for i in range(5)]
    content = "".join(",".join(row) + "\n" for row in [[*names, "y"], *rows]).encode()
    found = []
    for pipe in (io.BytesIO, Lines):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(pipe(content)))
        found.append(read("-"))
    np.testing.assert_array_equal(found[1].X["c0"], [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(found[0].X, found[1].X)
    assert found[0].y.tolist() == found[1].y.tolist()


@pytest.mark.parametrize("start", [0, 1])
def test_libsvm(tmp_path, start):
    rng = np.random.default_rng(0)
    X, y = sp.random_array((30, 6), density=0.4, rng=rng).tocsr(), rng.integers(-1, 2, 30)
    X[0, 0] = X[0, 5] = 1.0
    dump_svmlight_file(X, y, str(tmp_path / "t.svm"), zero_based=start == 0)
    data = read(str(tmp_path / "t.svm"), None)
    assert sp.issparse(data.X)
    np.testing.assert_allclose(data.X.toarray(), X.toarray(), rtol=1e-15)
    assert data.layout.features == [str(j + start) for j in range(6)]
    assert label_values(set(data.y)) == ("number", {text: int(float(text)) for text in set(data.y)})
    # Other rows: an index that is not there is 0, one that the model does not know is ignored.
    table = open_table(put(tmp_path / "u.svm", f"1 {start}:2 99:7\n1 {start + 5}:3\n"))
    (part,) = read_parts(table, data.layout, labels=False)
    table.close()
    np.testing.assert_array_equal(part.X.toarray(), [[2, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 3]])
    table = open_table(put(tmp_path / "u.svm", f"1 {start + 1}:2\n-1 {start + 5}:3\n"))
    whole = read_all(table, data.layout)
    table.close()
    assert whole.layout == data.layout
    np.testing.assert_array_equal(whole.X.toarray(), [[0, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 3]])
    # However far away, in no more time and memory.
    table = open_table(put(tmp_path / "u.svm", f"1 {start}:2 2147483000:7\n1 {start + 5}:3 999999999:1\n"))
    (part,) = read_parts(table, data.layout, labels=False)
    table.close()
    np.testing.assert_array_equal(part.X.toarray(), [[2, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 3]])
    other = Layout([str(start + 5), "77", str(start)], missing="error")
    table = open_table(str(tmp_path / "u.svm"))
    (part,) = read_parts(table, other, labels=False)
    table.close()
    np.testing.assert_array_equal(part.X.toarray(), [[0, 0, 2], [3, 0, 0]])
    refuses(put(tmp_path / "v.svm", "1 1:2\nx y\n"), "v.svm", "libsvm", target=None)
    refuses(put(tmp_path / "w.svm", "1 1:2\n-1 1:inf\n"), "w.svm", "inf", "row 2", target=None)
    refuses(put(tmp_path / "x.svm", ""), "x.svm", "empty", target=None)
    refuses(put(tmp_path / "y.svm", "1\n-1\n"), "y.svm", "no feature", target=None)
    refuses(str(tmp_path / "t.svm"), "t.svm", "--missing drop", target=None, missing="drop")
    refuses(str(tmp_path / "t.svm"), "t.svm", "--target")


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_in_one_line(tmp_path, name):
    content, words, options = BAD[name]
    refuses(put(tmp_path / "t.csv", content), *words, **options)


def bomb(content, times):
    """Return bytes over and over again, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([packer.compress(content * times), packer.flush()])


def parquet(**columns):
    file = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), file, store_schema=False)
    return file.getvalue()


def one_text(n, text):
    """Return a column that has the same text in all rows, and in the file once."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [text])


MANY = 1 << 24
NAMES = ",".join(f"c{j}" for j in range(59_999))
# Made when they are needed: some have 40 MB.
GREEDY = {
    "columns.csv": (lambda: NAMES + ",x,y\n", ["more columns than 60000", "--max-columns"]),
    "separators.csv": (lambda: "," * 10_000_000 + "\n1\n", ["more columns than 60000", "--max-columns"]),
    "twice.csv": (lambda: NAMES + ",c7\n", ["'c7' more than once"]),
    "all-twice.csv": (lambda: NAMES[:120_000] + "," + NAMES[:120_000] + "\n", ["and ", " others more than once"]),
    "header.csv": (lambda: '"' + "a" * 40_000_000 + '",y\n1,2\n', ["--max-line"]),
    "name.csv": (lambda: "a" * 1_000_000 + ",y\n1,2\n", ["field"]),
    "first-row.csv": (lambda: "a,y\n1," + "2" * 40_000_000 + "\n", ["16 MB", "--max-line"]),
    "later-row.csv": (lambda: "a,y\n" + "1,x\n2,x\n" * 999 + "1," + "2" * 40_000_000, ["16 MB", "quote", "--max-line"]),
    "open-quote.csv": (lambda: "a,y\n" + "1,x\n2,x\n" * 999 + '1,"x\n' + "1,x\n" * 9_000_000, ["quote", "--max-line"]),
    "label.csv": (lambda: CSV + "1,2," + "l" * 100_000 + "\n", ["'y'", "100000 characters", "at most 200"]),
    "value.csv": (lambda: CSV.replace("0.25", "z" * 1_000_000), ["'a'", "'zzz", "row 2"]),
    "long-names.csv": (lambda: ",".join(c * 99_999 for c in "abcdefghijkl") + "\n1\n", ["no column", "aa...", "hh..."]),
    "near-names.csv": (lambda: ",".join(f"{j}" + "y" * 100_000 for j in range(20)) + "\n1\n", ["no column 'y'"]),
    "line.csv.gz": (lambda: bomb(bytes(MANY), 5), ["--max-line"]),
    "rows.csv.gz": (lambda: gzip.compress(b"a,b,y\n") + bomb(b"1,2,x\n3,4,z\n", MANY), ["100 times", "--max-unpacked"]),
    "line.svm": (lambda: "1 1:1\n-1 " + "1:1 " * 5_000_000, ["16 MB", "--max-line"]),
    "index.svm": (lambda: "1 1:1\n-1 2000001:1\n", ["beyond 2000000", "--max-columns"]),
    "far.svm": (lambda: "1 1:1\n-1 2147483000:1\n", ["beyond 2000000", "--max-columns"]),
    "too-far.svm": (lambda: "1 1:1\n-1 99999999999:1\n", ["rows 1 to 2", "too large"]),
    "rows.parquet": (lambda: parquet(a=np.zeros(MANY), y=np.zeros(MANY, bool)), ["100 times", "--max-unpacked"]),
    "nothing.parquet": (lambda: parquet(a=pa.nulls(MANY, pa.float64()), y=pa.nulls(MANY)), ["--max-unpacked"]),
    "text.parquet": (lambda: parquet(a=np.arange(99_999) % 2, y=one_text(99_999, "x" * 99_999)), ["--max-unpacked"]),
    "inside.parquet.gz": (lambda: gzip.compress(b"PAR1") + bomb(bytes(MANY), 6), ["unpacks", "--max-unpacked"]),
    "columns.parquet": (lambda: parquet(**{f"c{j}": [0] for j in range(60_001)}), ["60000", "--max-columns"]),
}  # fmt: skip


@pytest.mark.parametrize("name", GREEDY)
def test_files_that_ask_for_much_are_refused_soon(tmp_path, name):
    content, words = GREEDY[name]
    path, begin = put(tmp_path / name, content()), time.perf_counter()
    tracemalloc.start()
    try:
        refuses(path, name, *words, target=None if ".svm" in name else "y")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - begin < 15  # seconds; tracing makes it several times slower
    assert most < 3e8


def test_limits_can_be_raised(tmp_path):
    wide = put(tmp_path / "wide.csv", "a,b,c,y\n1,2,3,x\n4,5,6,z\n")
    assert read(wide, limits=FileLimits(columns=4)).layout.features == ["a", "b", "c"]
    refuses(wide, "more columns than 3", limits=FileLimits(columns=3))
    long = put(tmp_path / "long.csv", "a,note,y\n" + f"1,{'n' * 6_000_000},x\n2,,z\n" * 2)
    assert read(long, drop=["note"], limits=FileLimits(line=7_000_000)).X["a"].tolist() == [1, 2, 1, 2]
    refuses(long, "2 MB", "--max-line", drop=["note"], limits=FileLimits(line=2_000_000))
    rows = b"a,y\n" + b"1,x\n2,z\n" * 10_000
    packed = put(tmp_path / "rows.csv.gz", gzip.compress(rows))
    assert len(read(packed, limits=FileLimits(unpacked=len(rows))).y) == 20_000
    refuses(packed, "--max-unpacked", limits=FileLimits(unpacked=len(rows) - 1))
    file = put(tmp_path / "rows.parquet", parquet(a=np.arange(30_000.0) % 2, y=np.arange(30_000) % 2))
    assert len(read(file, limits=FileLimits(unpacked=480_000)).y) == 30_000
    refuses(file, "--max-unpacked", limits=FileLimits(unpacked=479_999))
    sparse = put(tmp_path / "wide.svm", "1 1:1\n-1 30:1\n")
    assert len(read(sparse, None, limits=FileLimits(columns=30)).layout.features) == 30
    refuses(sparse, "beyond 29", target=None, limits=FileLimits(columns=29))
    refuses(put(tmp_path / "long.svm", "1 1:1\n-1 1:1 2:1\n"), "--max-line", target=None, limits=FileLimits(line=9))


def test_a_file_may_unpack_to_many_times_its_size(tmp_path):
    rng = np.random.default_rng(0)
    rows = "a,y\n" + "".join(
        f"{value},{k}\n" for value, k in zip(rng.random(9999), rng.integers(0, 2, 9999), strict=True)
    )
    path = put(tmp_path / "t.csv.gz", gzip.compress(rows.encode()))
    assert len(read(path, limits=FileLimits(unpacked=1)).y) == 9999
    with_sizes = {"a": rng.random(9999), "y": rng.integers(0, 2, 9999)}
    assert len(read(put(tmp_path / "t.parquet", parquet(**with_sizes)), limits=FileLimits(unpacked=1)).y) == 9999


def test_time_is_linear_in_columns_of_errors(tmp_path):
    names = [f"c{j}" for j in range(25_000)]
    header = ",".join([*names, *(name + "_err" for name in names), "y"])
    path = put(tmp_path / "t.csv", header + "\n" + ("1," * 50_000 + "x\n") * 2)
    begin = time.process_time()
    data = read(path)
    assert time.process_time() - begin < 10
    assert list(data.layout.errors) == names
    np.testing.assert_array_equal(data.X_err, np.ones((2, 25_000)))


def test_texts_of_parquet_are_passed_on_in_parts(tmp_path):
    """A text that stands in many rows is there once in the file, and never in all rows at the same time."""
    texts = ["a" * 50_000, "b", None]
    codes = np.arange(1200) % 3
    notes = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes == 2), texts[:2])
    content = parquet(a=codes * 1.0, y=codes, note=notes)
    table = open_table(put(tmp_path / "t.parquet", content))
    layout = Layout(["a"], missing="error", target="y")
    parts = list(read_parts(table, layout, labels=True, keep=["note"]))
    table.close()
    assert max(part.kept["note"].nbytes for part in parts) < base.BLOCK + 60_000
    assert [text for part in parts for text in part.kept["note"].to_pylist()] == [texts[code] for code in codes]
    assert {part.kept["note"].type for part in parts} == {pa.string()}
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts])[:, 0], codes)


def test_the_first_rows_are_shown_without_being_read(tmp_path, monkeypatch):
    text = (
        "i,x,flag,day,word,mixed,none,y\n"
        '1,1.5,true,2026-01-01,"a\nb",1,,no\n'
        "2,NaN,false,2026-01-02,NA,x,NA,yes\n"
        "too,few\n"
        "3,2,,2026-01-03,c,2,,no\n"
    )
    kinds = ["int64", "double", "bool", *["string"] * 5]
    rows = {
        "i": [1, 2, 3], "x": [1.5, None, 2], "flag": [True, False, None],
        "day": [f"2026-01-0{day}" for day in (1, 2, 3)], "word": ["a\nb", None, "c"], "mixed": ["1", "x", "2"],
        "none": [None] * 3, "y": ["no", "yes", "no"],
    }  # fmt: skip
    for path in (put(tmp_path / "t.csv", text), "-"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Lines(text.encode())))
        table = open_table(path)
        shown = table.peek()
        assert (list(map(str, shown.schema.types)), shown.to_pydict()) == (kinds, rows)
        assert (table.units, table.notes) == ({}, [])
        with pytest.raises(TableError, match="row 3 has 2 fields"):  # read from its first row on
            list(table.parts(["i"], ["y"]))
        table.close()


def test_the_first_rows_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "SAMPLE", 1000)
    rows = [f'{i},"line {i}\n, {i}"' for i in range(300)]
    path = put(tmp_path / "t.csv", "a,y\n" + "\n".join(rows))
    table = open_table(path)
    shown = table.peek()
    assert 40 < shown.num_rows < 80
    assert shown.to_pydict() == {
        "a": list(range(shown.num_rows)), "y": [f"line {i}\n, {i}" for i in range(shown.num_rows)],
    }  # fmt: skip
    assert np.concatenate([X for X, _ in table.parts(["a"], ["y"])])[:, 0].tolist() == list(range(300))
    table.close()
    for text in ("a,y\n", "a,y\n\n"):
        table = open_table(put(tmp_path / "t.csv", text))
        assert table.peek().to_pydict() == {"a": [], "y": []}
        table.close()


def test_the_first_rows_of_parquet_are_shown(tmp_path, monkeypatch):
    content = parquet(
        a=pa.array([1.5, np.nan, None], pa.float32()), i=pa.array([1, 2, None], pa.uint8()), b=[True, None, False],
        s=["x", "NA", ""], t=pa.array([1, 2, None], pa.timestamp("s")), z=pa.array([[1], [2, 3], None]),
        big=pa.array([1, 1 << 63, None], pa.uint64()), w=pa.array([b"\xff", b"a", None]),
        c=pa.array(["u", "v", None]).dictionary_encode(),
    )  # fmt: skip
    table = open_table(put(tmp_path / "t.parquet", content))
    assert table.peek().to_pydict() == {
        "a": [1.5, None, None], "i": [1, 2, None], "b": [True, None, False], "s": ["x", None, None],
        "t": ["1970-01-01 00:00:01.000", "1970-01-01 00:00:02.000", None], "z": ["list<element: int64>"] * 3,
        "big": [1.0, 2.0**63, None], "w": ["b'\\xff'", "b'a'", None], "c": ["u", "v", None],
    }  # fmt: skip
    assert np.concatenate([X for X, _ in table.parts(["a"], ["s"])]).shape == (3, 1)
    table.close()
    texts = pa.DictionaryArray.from_arrays(np.zeros(9000, np.int32), ["x" * 9000])
    path = put(tmp_path / "t.parquet", parquet(a=np.arange(9000), s=texts))
    for rows, size, expected in ((100, 1 << 26, 100), (10_000, 1 << 26, (1 << 26) // 9016), (10_000, 1 << 30, 9000)):
        monkeypatch.setattr(base, "PEEK_ROWS", rows)
        monkeypatch.setattr(base, "PEEK_BYTES", size)
        table = open_table(path)
        shown = table.peek()
        assert shown["a"].to_pylist() == list(range(expected))
        assert sum(len(X) for X, _ in table.parts(["a"], ["s"])) == 9000
        table.close()
    table = open_table(put(tmp_path / "t.svm", "1 1:2\n"))
    assert table.peek().num_columns == 0
    assert [X.toarray().tolist() for X, _ in table.parts(["1"], [])] == [[[2.0]]]
    table.close()


def test_files_that_cannot_be_read(tmp_path):
    refuses(str(tmp_path / "none.csv"), "none.csv", "No such file")
    refuses(str(tmp_path), "directory")


def test_parquet_of_other_types(tmp_path):
    path = str(tmp_path / "t.parquet")
    frame = pd.DataFrame({"a.1": [1, 2, 3], "b": [True, False, True], "c": ["x", "y", "z"], "y": [1, 0, 1]})
    frame.astype({"a.1": "int8", "y": "int64"}).to_parquet(path, index=False)
    data = read(path, drop=["c"])
    np.testing.assert_array_equal(data.X, [[1, 1], [2, 0], [3, 1]])
    assert data.y.tolist() == ["1", "0", "1"]
    assert read(path).layout.features == ["a.1", "b"]  # three different texts in three rows
    refuses(path, "'c'", "3 different texts", "--drop 'c'", features=["a.1", "c"])
    pd.DataFrame({"a": [1.0, 2.0], "z": [[1], [2]]}).to_parquet(path, index=False)
    refuses(path, "t.parquet", "'z'", "list", target="z")


def test_columns_of_truth_values_are_numbers(tmp_path):
    data = read(put(tmp_path / "t.csv", "a,b,y\nTrue,1,x\nfalse,2,y\n,3,x\n"), missing="mean")
    np.testing.assert_array_equal(data.X, [[1, 1], [0, 2], [np.nan, 3]])


def test_columns_without_a_name_are_not_features(tmp_path):
    path = put(tmp_path / "t.csv", ",a,y\n0,5,x\n1,6,z\n")
    assert read(path).layout.features == ["a"]
    refuses(path, "no column ''", features=[""])


def test_errors_with_two_sides_are_moved_to_their_mean(tmp_path):
    path = put(
        tmp_path / "t.csv", "a,a_err1,a_err2,b,b_err,b_limit,y\n1,0.5,-0.5,2,0.1,-1,0\n3,2,-1,5,0.2,,1\n,1,1,6,0,1,1\n"
    )
    data = read(path)
    layout = data.layout
    assert layout.features == ["a", "b"]
    assert layout.errors == {"a": Bar("sides", ["a_err1", "a_err2"]), "b": Bar("sigma", ["b_err"])}
    assert layout.limits == {"b": ("b_limit", "-")}
    assert layout.error_columns == ["a_err1", "a_err2", "b_err", "b_limit"]
    # Of a split normal with the sides 1 and 2.
    shift, variance = np.sqrt(2 / np.pi), (1 - 2 / np.pi) + 2.0
    np.testing.assert_allclose(data.X, [[1, 2], [3 + shift, 5], [np.nan, 6]])
    np.testing.assert_allclose(data.X_err.err, [[0.5, 0.1], [np.sqrt(variance), 0.2], [np.inf, 0]])
    np.testing.assert_array_equal(data.X_err.limits, [[0, -1], [0, 0], [0, 1]])
    assert read(path, drop=["b_limit"]).layout.limits == {}
    assert read(path, drop=["a"]).layout.features == ["b"]
    assert read(path, features=["a"]).layout.error_columns == ["a_err1", "a_err2"]
    with pytest.raises(TableError, match=r"'a_err2'.*the other is not there.*--drop"):
        read(path, drop=["a_err1"])


def test_errors_follow_their_columns(tmp_path):
    path = put(tmp_path / "t.csv", WITH_ERRORS.format("inf", ""))
    data = read(path)
    assert (data.layout.features, [*data.layout.errors], data.layout.missing) == (["a", "b"], ["a"], "unmeasured")
    np.testing.assert_array_equal(data.X_err, [[0.5, 0], [np.inf, 0], [np.inf, 0]])
    assert read(path, drop=["a"]).X_err is None
    assert read(path, errors=False, missing="mean").X_err is None
    assert read(path, features=["b"]).layout.features == ["b"]
    np.testing.assert_array_equal(read(path, errors=False, missing="unmeasured").X_err, [[0, 0], [0, 0], [np.inf, 0]])


def test_columns_that_are_chosen_are_values(tmp_path):
    path = put(tmp_path / "t.csv", "a,a_err,std_err,y\n1,0.5,7,0\n3,0.1,8,1\n")
    data = read(path, features=["std_err", "a"])
    assert (data.layout.features, [*data.layout.errors]) == (["std_err", "a"], ["a"])
    np.testing.assert_array_equal(data.X, [[7, 1], [8, 3]])
    np.testing.assert_array_equal(data.X_err, [[0, 0.5], [0, 0.1]])
    data = read(path, features=["a", "a_err"])
    assert data.X_err is None
    np.testing.assert_array_equal(data.X, [[1, 0.5], [3, 0.1]])


@pytest.mark.parametrize("text", base.NO_VALUE)
def test_no_value_has_the_same_spellings_for_numbers_and_labels(tmp_path, text):
    data = read(put(tmp_path / "t.csv", f"a,y,z\n1,no,0\n{text},None,0\n3,{text},0\n4,None,0\n"), missing="drop")
    assert data.X["a"].tolist() == [1, 4]
    assert data.y.tolist() == ["no", "None"]


@pytest.mark.parametrize(("texts", "kind", "values"), [
    (["1", "0"], "number", [1, 0]), (["1.0", "-2", "+3."], "number", [1, -2, 3]), (["True"], "bool", [True]),
    (["01", "02"], "text", ["01", "02"]), (["1", "b"], "text", ["1", "b"]), (["true", "1"], "text", ["true", "1"]),
    (["None", "é"], "text", ["None", "é"]),
])  # fmt: skip
def test_labels_are_what_they_look_like(texts, kind, values):
    assert label_values(texts) == (kind, dict(zip(texts, values, strict=True)))


def test_labels_are_no_regression():
    with pytest.raises(TableError, match=r"not whole \(0\.5\)"):
        label_values(["1", "0.5"])


def test_texts_of_any_type_are_written_as_csv():
    words = ["a, b", 'c "d"', None]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        file = io.BytesIO()
        write_tables(file, [{"x": pa.array(words, pa.string()).cast(kind), "n": pa.array([1, 2, 3])}], "csv")
        assert list(csv.reader(io.StringIO(file.getvalue().decode()))) == [
            ["x", "n"], ["a, b", "1"], ['c "d"', "2"], ["", "3"],
        ]  # fmt: skip
    with pytest.raises(TableError, match=r"column 'x' .* list.* CSV .* Parquet"):
        write_tables(io.BytesIO(), [{"x": pa.array([[1]])}], "csv")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.csv"
    for before in (None, b"precious"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(KeyboardInterrupt), writing(str(path), force=True) as file:  # noqa: PT012
            file.write(b"half of")
            raise KeyboardInterrupt
        assert (path.read_bytes() if path.exists() else None) == before
        assert [other.name for other in tmp_path.iterdir()] == ["out.csv"] * (before is not None)
    with pytest.raises(TableError, match="exists; force=True"), writing(str(path), force=False):
        pass
    assert path.read_bytes() == b"precious"
    path.chmod(0o600)
    os.symlink(path, tmp_path / "link")
    with writing(str(tmp_path / "link"), force=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_came_to_exist_is_not_replaced(tmp_path):
    path = tmp_path / "out.csv"
    with pytest.raises(TableError, match="meanwhile"), writing(str(path), force=False) as file:  # noqa: PT012
        file.write(b"mine")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"


def test_outputs_that_cannot_be_written(tmp_path):
    for path, words in ((tmp_path, "directory"), (tmp_path / "no" / "file", "no directory")):
        with pytest.raises(TableError, match=words), writing(str(path), force=True):
            pass
    with writing(os.devnull, force=False) as file:
        file.write(b"anything")


def test_formats_by_name():
    names = {"a.csv": "csv", "b.TSV": "csv", "c.parquet": "parquet", "d.pq": "parquet", "e.svm": "libsvm",
             "f.libsvm.gz": "libsvm", "g.dat": "csv", "-": "csv"}  # fmt: skip
    assert {name: format_of(name) for name in names} == names
