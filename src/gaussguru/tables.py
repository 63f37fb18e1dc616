"""Tables in files: CSV, Parquet and libsvm, read in parts of bounded size, written whole or not at all.

What is wrong with a file is a :class:`TableError` of one line that names the file, the column and the row.
:mod:`gaussguru.layouts` says what the columns mean.
"""

import codecs
import csv
import difflib
import gzip
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from gaussguru.files import replacing

__all__ = [
    "FORMATS",
    "Libsvm",
    "Table",
    "TableError",
    "check_writable",
    "format_of",
    "open_table",
    "write_tables",
    "writing",
]

# Formats, and how the names of their files end; anything else is read as CSV.
FORMATS = {"csv": (".csv", ".tsv", ".txt"), "parquet": (".parquet", ".pq"), "libsvm": (".libsvm", ".svm", ".svmlight")}
# Bytes of CSV, or numbers of Parquet and libsvm, that are read together.
BLOCK = 1 << 22
SEPARATORS = ",;\t|"
# How a table says that there is no value, as a label or as a number. "None" is a word.
NO_VALUE = [*pyarrow.csv.ConvertOptions().null_values, "<NA>"]
# So many bytes of CSV are looked at to find out what it is like, however they arrive; more if two lines take more.
LOOK = 1 << 16
# A header does not take more.
LONGEST_HEADER = 1 << 26


class TableError(ValueError):
    """What is wrong with a file, a column or a value, and what is expected, in one line."""


class _Stream(io.RawIOBase):
    """Bytes that can be looked at before they are read, and that are hashed on the way: those of ``below``, if any."""

    def __init__(self, name: str, raw: Any, below: "_Stream | None" = None) -> None:
        super().__init__()
        self._name, self._raw, self._below, self._head, self._digest = name, raw, below, b"", hashlib.sha256()

    def _more(self, size: int) -> bytes:
        try:
            return bytes(self._raw.read1(size))
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{self._name} cannot be read: {getattr(error, 'strerror', None) or error}") from None

    def look(self, enough: Callable[[bytes], bool]) -> bytes:
        """Return what comes first, as much as is enough; all there is if nothing is."""
        while not enough(self._head):
            more = self._more(1 << 16)
            if not more:
                break
            self._head += more
        return self._head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._head[: len(buffer)] or self._more(len(buffer))
        self._head = self._head[len(buffer) :]
        if self._below is None:
            self._digest.update(part)
        buffer[: len(part)] = part
        return len(part)

    def sha256(self) -> str:
        """Return the hash of the file, of its own bytes where it is compressed, after what is left unread."""
        while self.read(1 << 20):
            pass
        return self._digest.hexdigest() if self._below is None else self._below.sha256()

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()
        if self._below is not None:
            self._below.close()
        super().close()


class Table(ABC):
    """A table that can be read once, from the first row to the last."""

    columns: list[str]

    def __init__(self, name: str, stream: _Stream) -> None:
        self.name, self._stream = name, stream
        self._buffered = io.BufferedReader(stream, 1 << 16)  # it would close the stream when it is forgotten

    @abstractmethod
    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield parts: columns of numbers as a DataFrame or CSR matrix, and others as Arrow arrays."""

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def sha256(self) -> str:
        """Return the hash of the bytes of the whole file; to be asked for last."""
        return self._stream.sha256()

    def place(self, name: str) -> str:
        """Return a column as an error names it."""
        return f"{self.name}: column {name!r}"

    def require(self, name: str, role: str) -> None:
        """Raise unless there is such a column."""
        if name and name in self.columns:
            return
        lower = {column.lower(): column for column in reversed(self.columns)}
        near = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)]
        there = ", ".join(self.columns[:8]) + (", ..." if len(self.columns) > 8 else "")
        meant = f"did you mean {near[0]!r}?" if near else f"there are {there or 'none'}"
        raise TableError(f"{self.name} has no column {name!r} for {role}; {meant}")


class _Csv(Table):
    def __init__(self, name: str, stream: _Stream, sep: str | None, decimal: str) -> None:
        super().__init__(name, stream)
        sep = "\t" if sep in ("\\t", "tab") else sep
        for option, text in (("--sep", sep), ("--decimal", decimal)):
            if text is not None and not (len(text) == 1 and text.isascii() and text not in '"\r\n'):
                raise TableError(f"{option} must be one character, or tab; got {text!r}")
        head = _first_lines(stream)
        try:
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
        except UnicodeDecodeError as error:
            raise TableError(
                f"{name} is not a text in UTF-8 (byte {head[error.start]:#04x} at {error.start}); expected is CSV "
                "in UTF-8, or Parquet"
            ) from None
        if not text.strip():
            raise TableError(f"{name} is empty; a header with the names of the columns is expected")
        lines = text.splitlines()
        self._skip, line = next((place + 1, line) for place, line in enumerate(lines) if line.strip())
        bare = re.sub(r'"[^"]*"', "", line)
        self.sep = sep or max(SEPARATORS, key=bare.count)
        self._decimal = decimal
        rows = (row for row in csv.reader(io.StringIO(text, newline=None), delimiter=self.sep) if any(row))
        try:
            self.columns = [cell.strip() for cell in next(rows)]
            self._sample = list(islice(rows, 20))
        except csv.Error as error:
            raise TableError(f"{name} cannot be read as CSV: {error}") from None
        if self.sep == decimal:
            raise TableError(f"{name}: the fields cannot be separated by the decimal point {decimal!r}; give --sep")
        self._block = max(BLOCK, 64 * len(line))
        _check_names(self)

    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        # Columns without a name are not asked for, but need one each.
        names = [name or f"\0{place}" for place, name in enumerate(self.columns)]
        places = {name: place for place, name in enumerate(self.columns)}
        types = dict.fromkeys(others, pa.string())
        types |= {name: pa.bool_() if self._is_bool(places[name]) else pa.float64() for name in numbers}
        reader = None
        try:
            reader = pyarrow.csv.open_csv(
                self._buffered,
                # One thread: only then errors say in which row they are.
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, skip_rows_after_names=self._skip, use_threads=False, block_size=self._block
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.sep, newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    decimal_point=self._decimal,
                    null_values=NO_VALUE,
                ),
            )
            for batch in reader:
                yield _frame(batch, numbers), {name: batch.column(name) for name in others}
        except pa.ArrowInvalid as error:
            if reader is None and "straddling" in str(error):  # nothing after the header
                return
            raise TableError(self._explain(str(error))) from None

    def _is_bool(self, place: int) -> bool:
        cells = [row[place].strip().lower() for row in self._sample if len(row) > place]
        return next((cell for cell in cells if cell), "") in ("true", "false")

    def _explain(self, message: str) -> str:
        """Return what Arrow says in the terms of the file; it counts rows from the first line on."""
        if found := re.search(r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", message, re.DOTALL):
            column, row, value = self.columns[int(found[1])], int(found[2]) - self._skip, found[3]
            advice = f"mend it, or leave the column out of the fit with --drop {column!r}"
            if re.fullmatch(r"\s*[-+]?\d*,\d+\s*", value) and self._decimal == ".":
                advice = "is it a decimal comma? Then give --decimal ,"
            return f"{self.place(column)} has {_short(value)} in row {row}, where a number is expected; {advice}"
        if found := re.search(r"column #(\d+): Row #(\d+): .*UTF8", message):
            return f"{self.place(self.columns[int(found[1])])} is not text in UTF-8 in row {int(found[2]) - self._skip}"
        if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            return f"{self.name}: row {int(found[1]) - self._skip} has {found[3]} fields, the header {found[2]}"
        return f"{self.name} cannot be read as CSV: {message}"


def _first_lines(stream: _Stream) -> bytes:
    """Return the first lines of CSV, whole ones, and the same however they arrive."""

    def end(head: bytes) -> int:
        """Return the end of the second line, or LOOK if that is more; 0 if it is not there yet."""
        second = head.find(b"\n", head.find(b"\n") + 1) + 1
        return max(LOOK, second) if len(head) >= LOOK and head.count(b"\n", 0, second) == 2 else 0

    head = stream.look(lambda head: end(head) > 0 or len(head) > LONGEST_HEADER)
    return head[: head.rfind(b"\n", 0, end(head)) + 1] or head


class _Parquet(Table):
    def __init__(self, name: str, stream: _Stream, path: str | None) -> None:
        super().__init__(name, stream)
        self._file: Any = path
        try:
            if path is None:  # it is read from its end, and what comes through a pipe has none
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed with the table
                shutil.copyfileobj(stream, self._file)
            self._parquet = pyarrow.parquet.ParquetFile(self._file)
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(f"{name} cannot be read as Parquet: {error}") from None
        self._schema = self._parquet.schema_arrow
        self.columns = list(self._schema.names)
        _check_names(self)

    def close(self) -> None:
        self._parquet.close(force=True)
        super().close()

    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        for name in numbers:
            kind = self._schema.field(name).type
            if not any(is_number(kind) for is_number in _NUMBERS):
                raise TableError(
                    f"{self.place(name)} has values of type {kind}, where numbers are expected; leave it out with "
                    f"--drop {name!r}"
                )
        wanted = list(dict.fromkeys([*numbers, *others]))
        rows = max(1, BLOCK // (8 * max(1, len(wanted))))
        try:
            for batch in self._parquet.iter_batches(batch_size=rows, columns=wanted):
                yield _frame(batch, numbers), {name: batch.column(name) for name in others}
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(f"{self.name} cannot be read as Parquet: {error}") from None


_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)


def _frame(batch: Any, names: list[str]) -> pd.DataFrame:
    """Return columns as numbers; what has no value is NaN."""
    return pd.DataFrame(
        {name: pc.cast(batch.column(name), pa.float64(), safe=False).to_numpy(zero_copy_only=False) for name in names}
    )


class Libsvm(Table):
    """Lines ``label index:value ...``; features are named by their indices, and the label has no name."""

    def __init__(self, name: str, stream: _Stream) -> None:
        super().__init__(name, stream)
        self.columns = []

    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield parts, with all features that occur in them if none is asked for."""
        first = 1
        width = max((int(name) for name in numbers), default=-1) + 1
        while block := self._buffered.readlines(BLOCK):
            try:
                X, y = load_svmlight_file(io.BytesIO(b"".join(block)), zero_based=True)
            except (ValueError, OverflowError) as error:
                raise TableError(
                    f"{self.name} cannot be read as libsvm, in rows {first} to {first + len(block) - 1}: {error}; "
                    "expected are lines 'label index:value index:value ...'"
                ) from None
            first += len(block)
            X = sp.csr_matrix(X)
            if numbers:
                X.resize(X.shape[0], max(width, X.shape[1]))
                X = X[:, [int(name) for name in numbers]]
            yield X, {name: pa.array(y) for name in others}


def _check_names(table: Table) -> None:
    names = [name for name in table.columns if name]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise TableError(
            f"{table.name} has {', '.join(map(repr, twice))} more than once; columns need names of their own"
        )


def _short(value: Any, length: int = 40) -> str:
    text = str(value)
    return repr(text if len(text) <= length else text[: length - 3] + "...")


def format_of(path: str) -> str:
    """Return the format that the name of a file stands for."""
    stem = path.lower().removesuffix(".gz")
    return next((name for name, ends in FORMATS.items() if stem.endswith(ends)), "csv")


def open_table(path: str, *, format: str | None = None, sep: str | None = None, decimal: str = ".") -> Table:
    r"""Open a table.

    Parameters
    ----------
    path : str
        A file, or "-" for standard input. It may be compressed by gzip.
    format : {"csv", "parquet", "libsvm"}, default=None
        None goes by the name of the file, and by its first bytes for Parquet.
    sep : str, default=None
        What separates the fields of CSV: None finds out which of ``, ; | \t`` the header has most of.
    decimal : str, default="."
        The decimal point of CSV.

    Returns
    -------
    Table
    """
    name = "standard input" if path == "-" else path
    try:
        raw: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115  closed by the table
    except OSError as error:
        raise TableError(f"{name} cannot be read: {error.strerror or error}") from None
    stream = _Stream(name, raw)
    try:
        head = stream.look(lambda head: len(head) >= 4)
        if head[:2] == b"\x1f\x8b":
            stream = _Stream(name, gzip.GzipFile(fileobj=io.BufferedReader(stream), mode="rb"), stream)
            head = stream.look(lambda head: len(head) >= 4)
        format = format or ("parquet" if head[:4] == b"PAR1" else format_of(path))
        if format == "parquet":
            return _Parquet(name, stream, None if path == "-" or raw is not stream._raw else path)
        return Libsvm(name, stream) if format == "libsvm" else _Csv(name, stream, sep, decimal)
    except BaseException:
        stream.close()
        raise


def check_writable(path: str, *, force: bool) -> bool:
    """Raise if a file may not be written; return whether it is a pipe or a device."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise TableError(f"{path} is a directory; the name of a file is expected")
    if not target.parent.is_dir():
        raise TableError(f"{path} cannot be written: there is no directory {target.parent}")
    if target.is_file() and not force:
        raise TableError(f"{path} exists; force=True replaces it")
    return target.exists() and not target.is_file()


@contextmanager
def writing(path: str, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file to write, which is there under its name only when all is well; "-" is standard output.

    What is written goes to a file beside it, which takes its place at the end. A file that exists is replaced only
    with ``force``; until then it stays as it is. Pipes and devices are written to directly.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if check_writable(path, force=force):
        with open(path, "wb") as device:
            yield device
        return
    try:
        with replacing(path) as file:
            yield file
            if not force and os.path.exists(path):
                raise TableError(f"{path} came to exist meanwhile, and is not replaced")
    except OSError as error:
        raise TableError(f"{path} cannot be written: {error.strerror or error}") from None


def write_tables(file: BinaryIO, tables: Iterable[dict[str, Any]], format: str) -> int:
    """Write tables one below the other as CSV or Parquet, and return the number of rows.

    Parameters
    ----------
    file : binary file
    tables : iterable of dicts from column to array
        All with the same columns of the same types.
    format : {"csv", "parquet"}
    """
    n_rows, first, parquet = 0, True, None
    try:
        for columns in tables:
            table = pa.table(columns)
            if format == "parquet":
                parquet = parquet or pyarrow.parquet.ParquetWriter(file, table.schema)
                parquet.write_table(table)
            else:
                file.write(_csv_of(_plain(table), header=first))
            n_rows, first = n_rows + table.num_rows, False
    finally:
        if parquet is not None:
            parquet.close()
    return n_rows


def _plain(table: Any) -> Any:
    """Return a table whose texts are of one type; raise where a cell of CSV cannot hold a value."""
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_primitive(column.type):
            continue
        try:
            table = table.set_column(place, name, pc.cast(column, pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise TableError(
                f"column {name!r} has values of type {column.type}, which CSV cannot hold; write Parquet"
            ) from None
    return table


def _csv_of(table: Any, *, header: bool) -> bytes:
    """Return a table as CSV, with quotes only where a text needs them: Arrow would quote all texts or none."""
    names, text = io.StringIO(), io.BytesIO()
    if header:
        csv.writer(names, lineterminator="\n").writerow(table.column_names)
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    special = any(pc.any(pc.match_substring_regex(column, '[",\r\n]')).as_py() for column in texts)
    style = "needed" if special else "none"
    pyarrow.csv.write_csv(table, text, pyarrow.csv.WriteOptions(include_header=False, quoting_style=style))
    return names.getvalue().encode() + text.getvalue()
