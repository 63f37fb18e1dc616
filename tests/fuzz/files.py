"""Hostile and damaged files for the command: ``python -m fuzz.files --calls 10000``.

Every call runs in a process of its own. It must end with exit code 0 or 3, or with 2 and one line of bounded length on
standard error; without a traceback, in time, and in bounded memory. An output is there only if the code is 0 or 3, and
has no NaN. Calls are numbered: ``--seed 17 --calls 1`` runs one again, and ``--keep DIR`` leaves its files there.

Needs an operating system with fork.
"""

import argparse
import bz2
import copy
import gzip
import io
import json
import lzma
import os
import random
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from astropy.io.votable import from_table, writeto
from astropy.table import Table
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from gaussguru import ErrorBarClassifier, cli
from gaussguru._tables.archive import CARD, SCHEMA, TRUSTED
from gaussguru._tables.files import FORMATS
from gaussguru._tables.layout import Layout
from gaussguru.models import Model, save_model

SECONDS, MEGABYTES, LONGEST = 10, 1000, 1200
CATALOGUES = ("fits", "vot", "ecsv", "xlsx", "feather")
# Of rows of small tables: what they are made of has every kind of column that the command knows.
ROWS = 40
JUNK = [
    b'"', b'""', b",", b";", b"\t", b"|", b"\0", b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\x0c",
    "\u2028".encode(), b"\x1b[31m", b"nan", b"-inf", b"1e308", b"1e-320", b"1e999", b"0x10", b"NA", b"true", b"None",
    b" ", b"#", b":", b"qid:1", b"-1:1", b"0:1", b"4294967296:1", b"99999999999999999999:1", b"1:nan", b"'", b"1,5",
    b"_err", b"9" * 400, b"x" * 2000, b"%s%n", b"\\", b"PAR1", b"PK\3\4", b"\x1f\x8b", b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
]  # fmt: skip


# Files that are as they should be.


def table(rng: np.random.Generator, n_classes: int = 2, *, errors: bool = False, missing: bool = False) -> pd.DataFrame:
    label = np.arange(ROWS) % n_classes
    frame = pd.DataFrame(rng.standard_normal((ROWS, 3)) + np.eye(3)[label], columns=["a", "b", "c"]).round(3)
    if errors:
        frame["a_err"], frame["c_err"] = rng.random((2, ROWS)).round(3)
    if missing:
        frame.loc[::7, "b"] = np.nan
    frame["y"] = np.array(["no", "yes", "may, be"])[label]
    return frame


# Name of a model: the table it is fitted to, and options or an estimator.
MODELS = {
    "linear": ("plain.csv", ["--sigma", "0.5"]),
    "levels": ("plain.csv", ["--sigma", "0.1,1", "--folds", "2"]),
    "measured": ("errors.csv", ["--folds", "2", "--model", "linear"]),
    "pool": ("errors.csv", ["--folds", "2"]),
    "errors": ("errors.csv", ["--sigma", "0.5", "--classifier", "guru"]),
    "unscaled": ("errors.csv", ["--sigma", "0.5", "--no-scale", "--classifier", "guru"]),
    "mean": ("missing.csv", ["--sigma", "0.5", "--missing", "mean"]),
    "drop": ("missing.csv", ["--sigma", "0.5", "--missing", "drop"]),
    "unmeasured": ("missing.csv", ["--sigma", "0.5", "--missing", "unmeasured"]),
    "three": ("three.csv", ["--sigma", "0.5"]),
    "rbf": ("plain.csv", ["--sigma", "0.1", "--kernel", "rbf"]),
    "poly": ("three.csv", ["--sigma", "0.5", "--kernel", "poly", "--degree", "2"]),
    "sparse": ("plain.svm", ["--sigma", "0.5"]),
    "sparse-rbf": ("plain.svm", ["--sigma", "0.1", "--kernel", "rbf"]),
    "boosting": ("three.csv", HistGradientBoostingClassifier(max_iter=3)),
    "forest": ("plain.csv", ErrorBarClassifier(RandomForestClassifier(3), model="boosting", cv=2)),
}


def target(name: str) -> list[str]:
    return [] if ".svm" in name else ["--target", "y"]


def make_files() -> None:
    """Write tables and models into the current directory."""
    rng = np.random.default_rng(0)
    table(rng).to_csv("plain.csv", index=False)
    table(rng, errors=True).to_csv("errors.csv", index=False)
    table(rng, missing=True).to_csv("missing.csv", index=False)
    table(rng, 3).to_csv("three.csv", index=False)
    table(rng).assign(id=[f"r{i}" for i in range(ROWS)], flag=True, z=1).to_parquet("plain.parquet", index=False)
    frame = table(rng)
    dump_svmlight_file(frame[["a", "b", "c"]], frame["y"] == "no", "plain.svm", zero_based=False)
    for name in ("plain.csv", "plain.svm", "plain.parquet"):
        Path(name + ".gz").write_bytes(gzip.compress(Path(name).read_bytes(), mtime=0))
    for name, (file, options) in MODELS.items():
        if isinstance(options, list):
            assert cli.main(["fit", file, *target(file), *options, "-q", "-o", name]) == 0
        else:
            frame = pd.read_csv(file)
            estimator = clone(options).fit(frame[["a", "b", "c"]], frame["y"].to_numpy(dtype=str))
            save_model(
                Model(estimator, {"layout": Layout(["a", "b", "c"], missing="error", target="y").as_json()}), name
            )


# Damage.


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few changes: bits, cuts, copies and strange words."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 3, 8])):
        first = chance.randrange(len(data) + 1)
        last = min(len(data), first + int(chance.expovariate(0.1)))
        match chance.randrange(20):
            case 0 | 1 | 2 | 3 if data:
                data[min(first, len(data) - 1)] ^= 1 << chance.randrange(8)
            case 4 | 5 | 6:
                del data[first:last]
            case 7 | 8 | 9:
                data[first:first] = data[first:last] * chance.choice([1, 2, 100])
            case 10 | 11 | 12:
                data[first:first] = chance.choice(JUNK)
            case 13 | 14 | 15:
                data[first:last] = chance.choice(JUNK)
            case 16 | 17:
                at = chance.randrange(len(data) + 1)
                data[first:last] = data[at : at + last - first]
            case 18:
                data[first:last] = chance.randbytes(last - first)
            case _:
                del data[first:]
    return bytes(data)


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("table", content)
    return out.getvalue()


def wrapped(content: bytes, chance: random.Random) -> bytes:
    """Return bytes in another encoding or compressed, perhaps damaged then."""
    kind = chance.choice(
        [
            "",
            "",
            "",
            "gzip",
            "bz2",
            "xz",
            "zip",
            "twice",
            "members",
            "tail",
            "cut",
            "utf16",
            "utf-16-le",
            "latin1",
            "bom",
        ]
    )
    packed = gzip.compress(content, mtime=0)
    text = content.decode("utf-8", "replace")
    return {
        "": content,
        "gzip": packed,
        "bz2": bz2.compress(content),
        "xz": lzma.compress(content, preset=0),
        "zip": zipped(content),
        "twice": gzip.compress(packed),
        "members": gzip.compress(content[:50]) + gzip.compress(content[50:]),
        "tail": packed + b"tail",
        "cut": packed[: len(packed) // 2],
        "utf16": text.encode("utf16"),
        "utf-16-le": text.encode("utf-16-le"),
        "latin1": text.encode("latin1", "replace"),
        "bom": b"\xef\xbb\xbf" + content,
    }[kind]


def large(chance: random.Random) -> int:
    return int(10 ** chance.uniform(0, 5.3))


def hostile_csv(chance: random.Random) -> bytes:
    """Return CSV that asks for much, or says strange things."""
    n = large(chance)
    names = [f"c{j}" for j in range(min(n, 20_000))]
    row = b"1,2,3,no\n4,5,6,yes\n"
    match chance.randrange(22):
        case 0:
            return ",".join([*names, "y", *names[:1]]).encode() + b"\n"
        case 1:
            return b"," * (50 * n) + b"\n1\n"
        case 2:
            return (",".join([*names, "y"]) + "\n" + ",".join(["1"] * len(names) + ["no"]) + "\n").encode() * 2
        case 3:
            return b"a,b,c,y\n" + b"1," * (10 * n) + b"\n"
        case 4:
            return b"a,b,c,y\n" + row * 5 + b'1,2,"' + row * (n // 4)
        case 5:
            return b"a,b,c,y\n" + b"\n" * (10 * n) + row * 5
        case 6:
            return b"\n \r\n\x0c" * n + b"a,b,c,y\n" + row * 20
        case 7:
            return b"a,b,c,y\n" + row * 20 + b"1,2,3," + b"l" * n + b"\n"
        case 8:
            return b"a,b,c,y\n" + b"".join(b"1,2,%d,k%d\n" % (j % 7, j) for j in range(min(n, 5000))) * 2
        case 9:
            return b"a,b,c," + b"y" * n + b"\n" + row
        case 10:
            return gzip.compress(b"a,b,c,y\n" + row * 50 + bytes(chance.choice([1, 200, 400]) * 1_000_000), 9)
        case 11:
            bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
            rows = b"".join(bomb.compress(row * 1000) for _ in range(chance.choice([5, 10_000])))
            return gzip.compress(b"a,b,c,y\n") + rows + bomb.flush()
        case 12:
            return ("\n".join(["a,b,c,y", *(f"{chance.gauss(0, 1)},{v},3,{'ny'[v % 2]}" for v in range(60))])).encode()
        case 13:
            values = ["1e150", "1e151", "-1e150", "1e-300", "nan", "inf", "", "0", "5e-324", "1e308", "-0"]
            rows = [[chance.choice(values), chance.choice(values), "1", "ny"[j % 2]] for j in range(40)]
            return b"a,b,c,y\n" + "\n".join(map(",".join, rows)).encode()
        case 14:
            suffixes = ["a", "a_err", "a_err_err", "_err", "y_err", "b", "label", "probability", "y"]
            chosen = chance.sample(suffixes, 6)
            return (",".join(chosen) + "\n" + ",".join("123456") + "\n" + ",".join("654321") + "\n").encode()
        case 15:
            return b"a,b,c,y\n" + b'"1","2","3","no"\n"4","5","6","y""es"\n' * min(n, 500) + b'"7,8'
        case 16:
            strange = ["\x1b[31m", "\0", "\u2028", "\r", "é" * 500, "'", "\\", "%s", "\U0001f600"]
            return ('"' + '","'.join([*chance.sample(strange, 3), "y"]) + '"\n').encode() + row * 20
        case 17:
            return b"a,b,c,y\n" + b"true,false,1,no\nfalse,true,2,yes\n" * 15 + b"1,maybe,2,no\n"
        case 18:
            return chance.randbytes(n)
        case 19:
            return b"a;b;c;y\r" + b"1,5;2,5;3;no\r4;5;6;yes\r" * min(n, 1000)
        case 20:
            half = [f"c{j}" for j in range(min(n, 3000))]
            both = [*half, *(name + "_err" for name in half), "y"]
            return (",".join(both) + "\n").encode() + (b"1," * (2 * len(half)) + b"no\n") * 3
        case _:
            return b""


def hostile_svm(chance: random.Random) -> bytes:
    n = large(chance)
    match chance.randrange(9):
        case 0:
            return b"1 1:1 %d:2\n-1 2:1\n" % (10 ** chance.randrange(1, 25)) * 20
        case 1:
            return b"1 " + b"".join(b"%d:1 " % j for j in range(1, n)) + b"\n-1 1:1\n"
        case 2:
            return b"# comment\n" * n + b"1 1:1\n-1 1:2\n" * 20
        case 3:
            return b"1 1:1 # qid\n-1 qid:3 2:1\n" * 20
        case 4:
            return b"%d\n" * n
        case 5:
            return b"".join(b"%d 1:%d\n" % (j % 2, j) for j in range(min(n, 2000))) + b"1 2:1 1:1\n" * (n % 2)
        case 6:
            return b"".join(b"%d 1:1 %d:2\n" % (j, j + 1) for j in range(min(n, 3000)))
        case 7:
            return b"1 1:1\n-1 2:2\n" * 20 + b"1" * 10 * n
        case _:
            return b"nan 1:1\ninf 1:2\n1e400 2:1\n1.5 1:3\n" * 10


def hostile_parquet(chance: random.Random) -> bytes:
    n = chance.choice([0, 1, 30, 30, 30, 3000])
    rng = np.random.default_rng(chance.randrange(1 << 30))
    kinds = {
        "float": lambda: pa.array(rng.standard_normal(n)),
        "half": lambda: pa.array(rng.standard_normal(n).astype(np.float16)),
        "big": lambda: pa.array(rng.integers(0, 1 << 63, n, dtype=np.uint64)),
        "bool": lambda: pa.array(rng.random(n) < 0.5),
        "null": lambda: pa.nulls(n),
        "holes": lambda: pa.array([None if j % 3 else 1.5 for j in range(n)], pa.float32()),
        "text": lambda: pa.array(["no" if j % 2 else "yes" for j in range(n)]),
        "large": lambda: pa.array(["no" if j % 2 else "yes" for j in range(n)], pa.large_string()),
        "view": lambda: pa.array(["no" if j % 2 else "yes" for j in range(n)], pa.string_view()),
        "bytes": lambda: pa.array([b"\xff\xfe" if j % 2 else b"a" for j in range(n)]),
        "wrong": lambda: pa.array([b"\xff\xfe" if j % 2 else b"a" for j in range(n)], pa.binary()).view(pa.string()),
        "codes": lambda: pa.array(["no" if j % 2 else "yes" for j in range(n)]).dictionary_encode(),
        "list": lambda: pa.array([[1.0, 2.0]] * n, pa.list_(pa.float64())),
        "struct": lambda: pa.array([{"p": 1, "q": "x"}] * n, pa.struct([("p", pa.int64()), ("q", pa.string())])),
        "map": lambda: pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int64())),
        "decimal": lambda: pa.array(range(n)).cast(pa.decimal128(30, 2)),
        "wide": lambda: pa.array(range(n)).cast(pa.decimal256(60, 2)),
        "time": lambda: pa.array(np.arange(n), pa.timestamp("ns", "UTC")),
        "duration": lambda: pa.array(np.arange(n), pa.duration("s")),
        "long": lambda: pa.array(["l" * 5000] * n),
        "ints": lambda: pa.array(np.arange(n) % 3),
    }
    names = ["a", "b", "c", "y", chance.choice(["a.p", "a_err", "id", "y ", "", "\x1b", "é"])]
    columns = [kinds[chance.choice(["float", "float", "text", "ints", *kinds])]() for _ in names]
    out = io.BytesIO()
    options = {"compression": chance.choice(["snappy", "zstd", "gzip", "none"])}
    match chance.randrange(8):
        case 0:  # few bytes for very many rows
            rows = chance.choice([1 << 20, 1 << 22, 1 << 24])
            zeros = np.zeros(rows)
            pa.parquet.write_table(pa.table({"a": zeros, "b": zeros, "c": zeros, "y": zeros > 0}), out, **options)
        case 1:  # one long text for very many rows
            codes = pa.DictionaryArray.from_arrays(np.zeros(1 << 18, np.int32), ["x" * 100_000])
            numbers = np.zeros(1 << 18)
            long = pa.table({"a": numbers, "b": numbers, "c": numbers, "y": codes})
            pa.parquet.write_table(long, out, store_schema=False, **options)
        case 2:
            wide = pa.table(
                {f"c{j}": pa.array([1.0, 2.0]) for j in range(min(5000, large(chance)))} | {"y": ["n", "p"]}
            )
            pa.parquet.write_table(wide, out, **options)
        case 3:
            many = pa.parquet.ParquetWriter(out, pa.schema([("a", pa.float64()), ("y", pa.string())]))
            with many:
                for _ in range(200):
                    many.write_table(pa.table({"a": [1.0, 2.0], "y": ["n", "p"]}))
        case _:
            pa.parquet.write_table(pa.Table.from_arrays(columns, names=names), out, **options)
    return out.getvalue()


def damaged_parquet(content: bytes, chance: random.Random) -> bytes:
    """Return Parquet with changes in its values, or in what it says of itself at its end, without a change of place."""
    length = struct.unpack("<I", content[-8:-4])[0]
    values, end = bytearray(content[4 : -8 - length]), content[-8 - length : -8]
    if not values or chance.random() < 0.4:
        end = mutated(end, chance)
    else:
        for _ in range(chance.choice([1, 1, 3, 10])):
            values[chance.randrange(len(values))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    return b"PAR1" + values + end + struct.pack("<I", len(end)) + b"PAR1"


# Forgery: parts of a model replaced by others.


def strange_value(chance: random.Random) -> object:
    deep: object = 1
    for _ in range(chance.choice([40, 100, 900])):
        deep = [deep] if chance.random() < 0.5 else {"k": deep}
    return chance.choice([
        None, True, -1, 0, 2, 1.5, 1e308, -(10**30), float("nan"), float("inf"), "", "x", "é\x1b\0", "x" * 1_000_000,
        [], {}, [1, 2], {"a": 1}, [[]] * 3, ["a", "a"], "null", '"text"', "NaN", "[" * 900 + "]" * 900, deep,
    ])  # fmt: skip


def places(node: object) -> list[tuple[object, object]]:
    """Return every place in JSON where a value stands: its list or dict, and its index or key."""
    found, nodes = [], [node]
    while nodes:
        node = nodes.pop()
        inside = list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ())
        found += [(node, key) for key, _ in inside]
        nodes += [value for _, value in inside]
    return found


def forged_json(content: bytes, chance: random.Random) -> bytes:
    found = json.loads(content)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        everywhere = places(found)
        node, key = chance.choice(everywhere)
        other, name = chance.choice(everywhere)
        match chance.randrange(11):
            case 7 | 8 | 9 | 10 if isinstance(node, dict) and node.get("__loader__") == "JsonNode":
                scalars = [None, True, False, -1, 0, 1, 2, 10**9, 10**30, 0.5, -0.5, 1e308, float("nan"), float("inf")]
                node["content"] = json.dumps(chance.choice([*scalars, "", "x", "rbf", "mean", "nan"]))
            case 0:
                del node[key]
            case 1:
                node[key] = copy.deepcopy(other[name])
            case 2 if isinstance(node, dict):
                names = ["predict", "transform", "coef_", "__class__", "steps", "x" * 1000]
                node[chance.choice(names)] = copy.deepcopy(other[name])
            case 3 if isinstance(node, dict) and "__class__" in node:
                strange = ["os.system", "builtins.eval", "numpy.load", "sklearn.svm._classes.SVC", "nowhere.Nothing"]
                node["__module__"], _, node["__class__"] = chance.choice([*strange, *TRUSTED]).rpartition(".")
            case 4 if isinstance(node, dict) and "__loader__" in node:
                loaders = [
                    "CachedNode",
                    "MethodNode",
                    "FunctionNode",
                    "OperatorFuncNode",
                    "ListNode",
                    "NoNode",
                    "JsonNode",
                ]
                node["__loader__"] = chance.choice(loaders)
            case 5 if isinstance(node, dict) and "__id__" in node:
                node["__id__"] = chance.choice([1, other.get("__id__") if isinstance(other, dict) else None, "x"])
            case _:
                node[key] = strange_value(chance)
    try:
        return json.dumps(found).encode("utf-8", "surrogatepass")
    except RecursionError:  # several deep values inside each other
        return content


def forged_array(content: bytes, chance: random.Random) -> bytes:
    """Return an array of another shape or type, or with other values."""
    if content.startswith(b"PK"):  # those of a sparse matrix
        return forged_archive(content, chance)
    array = np.load(io.BytesIO(content), allow_pickle=False)
    out = io.BytesIO()
    flat = np.atleast_1d(array).ravel()
    strange = [
        flat, flat[:-1], np.repeat(flat, 2), flat[np.newaxis], flat.astype("U"), np.zeros(len(flat), "V0"),
        np.zeros(0), np.array(1.0), np.zeros(len(flat), complex), np.zeros((3, 3)), flat.astype("U").astype("S"),
        np.zeros(len(flat), "f2"), np.zeros(len(flat), "i8"), np.full(len(flat), np.nan), np.full(len(flat), np.inf),
        np.full(len(flat), -1), np.full(len(flat), 1 << 62), np.full(len(flat), 1e308), np.zeros(len(flat), "U300000"),
        np.zeros(len(flat), "M8[ns]"), np.asfortranarray(np.zeros((2, 3))), np.zeros(len(flat), [("x", "f8")]),
    ]  # fmt: skip
    new = chance.choice(strange)
    np.save(out, new.reshape(array.shape) if new.size == array.size and chance.random() < 0.8 else new)
    raw = out.getvalue()
    if chance.random() < 0.3:
        lies = [b"(10,)", b"(1000000000000,)", b"(-1,)", b"(9999999999, 9999999999)", b"()", b"(1e3,)"]
        head, _, rest = raw.partition(b"'shape': ")
        raw = head + b"'shape': " + chance.choice(lies) + rest[rest.index(b")") + 1 :]
    return raw


def forged_archive(content: bytes, chance: random.Random) -> bytes:
    """Return an archive with some entries replaced."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    arrays = [name for name in entries if name.endswith((".npy", ".npz"))]
    methods = [zipfile.ZIP_DEFLATED] * 20 + [zipfile.ZIP_STORED] * 5 + [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]
    match chance.randrange(12):
        case 0 | 1 | 2 | 3 if SCHEMA in entries:
            entries[SCHEMA] = forged_json(entries[SCHEMA], chance)
        case 4 | 5 if CARD in entries:
            entries[CARD] = forged_json(entries[CARD], chance)
        case 6:
            del entries[chance.choice(list(entries))]
        case 7:
            name = chance.choice(list(entries))
            entries[name] = mutated(entries[name], chance)
        case 8:
            entries[chance.choice(list(entries))] = bytes(chance.choice([1, 90, 300]) * 1_000_000)
        case 9:
            for place in range(chance.choice([10, 20_000])):
                entries[f"{place}.npy"] = b""
        case _:
            for name in chance.sample(arrays, min(len(arrays), chance.choice([1, 1, 2]))):
                other = entries[chance.choice(arrays)] if chance.random() < 0.2 else None
                entries[name] = other or forged_array(entries[name], chance)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", chance.choice(methods)) as file:
        for name, part in entries.items():
            file.writestr(name, part)
    return out.getvalue()


def catalogue(kind: str, chance: random.Random) -> bytes:
    """Return a good table in a format of archives or spreadsheets."""
    frame = pd.read_csv(Path("..", chance.choice(["plain.csv", "errors.csv", "missing.csv", "three.csv"])))
    out = io.BytesIO()
    if kind == "feather":
        compression = chance.choice([None, "lz4", "zstd"])
        options = pa.ipc.IpcWriteOptions(compression=compression)
        found = pa.Table.from_pandas(frame)
        with chance.choice([pa.ipc.new_file, pa.ipc.new_stream])(out, found.schema, options=options) as writer:
            writer.write_table(found, 16)
    elif kind == "xlsx":
        frame.to_excel(out, index=False)
    else:
        columns = Table.from_pandas(frame)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "fits":
                columns.write(out, format="fits")
            elif kind == "vot":
                writeto(from_table(columns), out, tabledata_format=chance.choice(["tabledata", "binary", "binary2"]))
            else:
                text = io.StringIO()
                columns.write(text, format="ascii.ecsv")
                return text.getvalue().encode()
    return out.getvalue()


def damaged_catalogue(kind: str, chance: random.Random) -> bytes:
    """Return a table in a format of archives or spreadsheets, with changes anywhere, or in numbers of its header."""
    content = catalogue(kind, chance)
    if kind == "xlsx" and chance.random() < 0.7:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            entries = {name: file.read(name) for name in file.namelist()}
        name = chance.choice(list(entries))
        entries[name] = mutated(entries[name], chance)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            for name, part in entries.items():
                file.writestr(name, part)
        return out.getvalue()
    if chance.random() < 0.4:
        numbers = list(re.finditer(rb"(?<![0-9.])[0-9]{1,4}(?![0-9.])", content[:20_000])) or [re.match(b"", content)]
        found = chance.choice(numbers)
        new = str(chance.choice([0, -1, 3, 10**5, 10**9, 10**12, 10**20])).encode()
        if kind == "fits":  # cards have 80 bytes each
            new = new[-len(found[0]) - 15 :]
            return content[: found.end() - len(new)] + new + content[found.end() :]
        return content[: found.start()] + new + content[found.end() :]
    return mutated(content, chance) if chance.random() < 0.9 else content


def hostile_model(name: str, chance: random.Random) -> bytes:
    content = Path("..", name).read_bytes()
    if chance.random() < 0.2:
        return mutated(content, chance)
    if chance.random() < 0.05:
        return gzip.compress(content)
    content = forged_archive(content, chance)
    if chance.random() < 0.1:  # the sizes that the directory says
        data = bytearray(content)
        at = data.find(b"PK\1\2")
        data[at + 24 : at + 28] = struct.pack("<I", chance.choice([0, 10, 1 << 31]))
        content = bytes(data)
    return content


# Calls.


def make_call(number: int) -> tuple[list[str], str]:
    """Write the files of a call into the current directory, which is inside that of the good files.

    Return its arguments and what it has for standard input.
    """
    chance = random.Random(number)
    kind = chance.choice(["csv", "csv", "svm", "parquet", "model", "model", "model", "catalogue", "catalogue"])
    if kind == "model":
        model = chance.choice(list(MODELS))
        Path("forged").write_bytes(hostile_model(model, chance))
        tables = ["plain.csv", "errors.csv", "missing.csv", "three.csv", "plain.svm", "plain.parquet"]
        command = chance.choice(["predict", "evaluate", "show"])
        arguments = [command, "forged"]
        if command != "show":
            arguments.append("../" + chance.choice([MODELS[model][0]] * 20 + tables))
        if command == "evaluate" and chance.random() < 0.03:
            arguments += ["--report", "report.html"]
        return arguments + (["-o", "out.csv"] if command == "predict" else []), os.devnull
    name, generate = {
        "csv": ("plain.csv", hostile_csv),
        "svm": ("plain.svm", hostile_svm),
        "parquet": ("plain.parquet", hostile_parquet),
    }.get(kind, ("plain." + (suffix := chance.choice(CATALOGUES)), partial(damaged_catalogue, suffix)))
    # The name of the good file that it was made of, if it is nearly that: its models should read it.
    base = name
    if kind != "catalogue" and chance.random() < 0.5:
        base = chance.choice(["plain.csv", "errors.csv", "missing.csv", "three.csv"]) if kind == "csv" else name
        content = Path("..", base).read_bytes()
        content = damaged_parquet(content, chance) if kind == "parquet" else mutated(content, chance)
    else:
        content = generate(chance)
        if kind == "parquet" and chance.random() < 0.3:
            content = damaged_parquet(content, chance)
    if chance.random() < 0.2:
        content = wrapped(content, chance)
    if chance.random() < 0.05:
        content = mutated(gzip.compress(content), chance)
    fitting = [model for model, (table, _) in MODELS.items() if table == base] or ["linear"]
    model = "../" + chance.choice([*fitting * 8, *MODELS])
    file = chance.choice([name] * 8 + ["other.txt", "other.gz", "é.csv"])
    Path(file).write_bytes(content)
    options = (
        ["--format", {"svm": "libsvm", "catalogue": chance.choice(list(FORMATS))}.get(kind, kind)]
        if chance.random() < 0.2
        else []
    )
    if chance.random() < 0.05:
        options += ["--sep", chance.choice([",", ";", "tab", "|", "\0", ".", " ", "a"])]
    if chance.random() < 0.05:
        options += ["--decimal", chance.choice([",", ".", "x", "-"])]
    # A pipe is unpacked as it is read, so that rows are worked on before it is too much: that takes its time.
    source = chance.choice([file] * 9 + ["-"]) if len(content) < 100_000 else file
    match chance.randrange(6):
        case 0 | 1 | 2:
            arguments = ["fit", source, *target(name), "-o", "out"]
            if chance.random() < 0.5:
                arguments += ["--classifier", "guru", "--sigma", chance.choice(["0.5", "0.5", "0.1,1"])]
            else:
                arguments += ["--folds", "2"]
            extra = [["--missing", "drop"], ["--missing", "mean"], ["--missing", "unmeasured"], ["--no-errors"]]
            extra += [["--drop", "a"], ["--features", "b"], ["--err-suffix", "r"], ["--no-scale"], ["--noise", "axis"]]
            extra += [["--model", "linear"], ["--use-error-sizes"]]
            extra += [["--kernel", "rbf"], ["--balanced"], ["--target", "Y"], ["--loss", "quadratic"], [], [], [], []]
            arguments += chance.choice(extra)
        case 3:
            arguments = ["path", source, *target(name), "--sigmas", "3", "--folds", chance.choice(["0", "2"])]
        case 4:
            keep = ["--keep", chance.choice(["y", "a", "id", "z"])] if chance.random() < 0.3 else []
            arguments = ["predict", model, source, "-o", "out.csv", *keep]
        case _:
            arguments = ["evaluate", model, source]
    return [*arguments, *options], file if source == "-" else os.devnull


def in_child(work: Callable[[], int | None], seconds: float) -> tuple[int, float, float]:
    """Run a function in a process of its own: its exit code (minus a signal), and what it took of seconds and MB."""
    begin, child = time.monotonic(), os.fork()
    if not child:
        code = 1
        try:
            code = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - begin, used.ru_maxrss / 1e3


def run_call(number: int) -> tuple[str, float, float, int]:
    """Make a call in the current directory: what is wrong with how it ended, seconds, MB and its exit code."""

    def prepare() -> None:
        Path("arguments").write_text(json.dumps(make_call(number)))

    def call() -> int:
        arguments, stdin = json.loads(Path("arguments").read_text())
        for place, path in enumerate((stdin, "stdout", "stderr")):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), place)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  as if it had been so from the beginning
        return cli.main(arguments)

    code, _, _ = in_child(prepare, 60)
    assert code == 0, f"call {number} has no files"
    code, seconds, megabytes = in_child(call, 2 * SECONDS)
    talk = Path("stderr").read_bytes() if Path("stderr").exists() else b""
    lines = talk.decode("utf-8", "replace").splitlines()
    wrong = []
    if code not in (0, 2, 3) or b"Traceback" in talk:
        wrong.append(f"exit code {code}")
    if code == 2 and (len(lines) != 1 or not lines[0].startswith("gaussguru: ") or not lines[0].isprintable()):
        wrong.append(f"{len(lines)} lines for exit code 2")
    if max(map(len, lines), default=0) > LONGEST:
        wrong.append("a long line")
    if seconds > SECONDS:
        wrong.append(f"{seconds:.1f} s")
    if megabytes > MEGABYTES:
        wrong.append(f"{megabytes:.0f} MB")
    made = [path for path in map(Path, ("out", "out.csv", "report.html")) if path.exists()]
    if code == 2 and made:
        wrong.append("an output of a call that failed")
    if code == 0 and any(b"nan" in path.read_bytes() for path in made if path.suffix == ".csv"):
        wrong.append("NaN in the output")
    return ", ".join(wrong), seconds, megabytes, code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first call")
    parser.add_argument("--keep", type=Path, help="leave the files of calls that failed in this directory")
    options = parser.parse_args()
    failures, codes, most = 0, Counter(), {"seconds": (0.0, 0), "MB": (0.0, 0)}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        # In a process of its own: threads that were started here would be missing in every other.
        assert in_child(make_files, 300)[0] == 0
        for number in range(options.seed, options.seed + options.calls):
            place = Path(directory, "call")
            place.mkdir()
            os.chdir(place)
            wrong, seconds, megabytes, code = run_call(number)
            codes[code] += 1
            most = {"seconds": max(most["seconds"], (seconds, number)), "MB": max(most["MB"], (megabytes, number))}
            if wrong:
                failures += 1
                arguments = " ".join(json.loads(Path("arguments").read_text())[0])
                talk = Path("stderr").read_text(errors="replace")[-600:]
                print(f"call {number}: {wrong}: gaussguru {arguments}\n{talk}", flush=True)
            os.chdir(directory)
            if options.keep and (wrong or options.calls == 1):
                shutil.copytree(place, options.keep / str(number))
            shutil.rmtree(place)
    ends = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(
        f"{options.calls} calls, {failures} failures; {ends}; slowest {most['seconds'][0]:.1f} s (call "
        f"{most['seconds'][1]}), most memory {most['MB'][0]:.0f} MB (call {most['MB'][1]})"
    )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
