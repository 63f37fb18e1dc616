"""Tables in files: CSV, Parquet and libsvm, read in parts of bounded size, written whole or not at all.

What is wrong with a file is a :class:`TableError` of one line that names the file, the column and the row. A file that
asks for more than the :class:`Limits` is refused as soon as that is seen: no file makes a reader take time or memory
out of proportion. :mod:`gaussguru._tables.schema` says what the columns mean.
"""

import codecs
import csv
import difflib
import gzip
import hashlib
import io
import itertools
import os
import re
import shutil
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from gaussguru._files import replacing
from gaussguru._linalg import Array

__all__ = [
    "FORMATS",
    "Libsvm",
    "Limits",
    "Table",
    "TableError",
    "check_writable",
    "format_of",
    "nearest",
    "open_table",
    "quoted",
    "write_tables",
    "writing",
]

# Formats, and how the names of their files end; anything else is read as CSV.
FORMATS = {"csv": (".csv", ".tsv", ".txt"), "parquet": (".parquet", ".pq"), "libsvm": (".libsvm", ".svm", ".svmlight")}
# Bytes of numbers, or of lines of libsvm, that are passed on together.
BLOCK = 1 << 22
# Columns that a table may have unless it is told otherwise. Arrow takes 7 kB for each column of CSV: 400 MB for 60,000,
# which are more than the 54,675 probes of the widest common gene chips. An index of libsvm costs 100 bytes; large
# collections of texts have a million.
COLUMNS = {"csv": 60_000, "parquet": 60_000, "libsvm": 2_000_000}
# What a compressed file may unpack to, as a multiple of its size, where that is more than ``Limits.unpacked``. Numbers
# are packed to a third or a tenth, zeros and few ones to a fiftieth; gzip packs nothing but zeros to a thousandth.
EXPANSION = 100
SEPARATORS = ",;\t|"
# How a table says that there is no value, as a label or as a number. "None" is a word.
NO_VALUE = [*pyarrow.csv.ConvertOptions().null_values, "<NA>"]
# So many bytes of CSV are looked at to find out what it is like, however they arrive; more if two lines take more.
LOOK = 1 << 16
# Bytes of the first rows of CSV that are looked at to find out what its columns hold.
SAMPLE = 1 << 22
# Rows, and bytes of them, of which a table of another format shows what its columns hold.
PEEK_ROWS, PEEK_BYTES = 100_000, 1 << 26
# Columns that are compared with a name that is not there, and the longest of them: the comparison is quadratic in it.
NEAR_NAMES, NEAR_LENGTH = 10_000, 100


class TableError(ValueError):
    """What is wrong with a file, a column or a value, and what is expected, in one line."""


@dataclass(frozen=True)
class Limits:
    """What a file may ask for before it is refused; each is an option of the command.

    Parameters
    ----------
    columns : int or None, default=None
        The most columns of a table, and the largest index of libsvm; None is 60,000, and 2,000,000 for libsvm.
    line : int, default=16,000,000
        Bytes of a line, or of a row of CSV with line ends inside quotes, that can be read. One of more than twice as
        many is refused.
    unpacked : int, default=100,000,000
        The most bytes that a compressed file may unpack to. It may unpack to 100 times its size even if that is more.
    """

    columns: int | None = None
    line: int = 16_000_000
    unpacked: int = 100_000_000

    def check_unpacked(self, name: str, unpacked: int, packed: int) -> None:
        """Raise if a file unpacks to more bytes than it may."""
        if unpacked > max(self.unpacked, EXPANSION * packed):
            raise TableError(
                f"{name} unpacks to more than {self.unpacked / 1e6:g} MB, and more than {EXPANSION} times its size; "
                "--max-unpacked allows for more"
            )

    def check_columns(self, name: str, format: str, count: int) -> None:
        """Raise if a table has more columns than it may."""
        most = self.columns or COLUMNS[format]
        if count > most:
            what = "an index beyond" if format == "libsvm" else "more columns than"
            raise TableError(f"{name} has {what} {most}; --max-columns allows for more")


class _Stream(io.RawIOBase):
    """Bytes that can be looked at before they are read, and that are hashed on the way: those of ``below``, if any.

    What is unpacked from ``below`` is no more than the limits allow, for a file of ``total`` bytes if that is known.
    """

    def __init__(
        self, name: str, raw: Any, limits: Limits, below: "_Stream | None" = None, total: int | None = None
    ) -> None:
        super().__init__()
        self._name, self._raw, self._limits, self._below, self._total = name, raw, limits, below, total
        self._head, self._digest = bytearray(), hashlib.sha256()
        self._size = 0

    def _more(self, size: int) -> bytes:
        try:
            part = bytes(self._raw.read1(size))
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{self._name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        self._size += len(part)
        if self._below is not None:
            self._limits.check_unpacked(self._name, self._size, self.packed)
        return part

    def look(self, size: int) -> bytes:
        """Return what comes first, so many bytes; fewer only if there are no more."""
        while len(self._head) < size and (more := self._more(1 << 16)):
            self._head += more
        return bytes(self._head[:size])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = bytes(self._head[: len(buffer)]) or self._more(len(buffer))
        del self._head[: len(buffer)]
        if self._below is None:
            self._digest.update(part)
        buffer[: len(part)] = part
        return len(part)

    @property
    def packed(self) -> int:
        """How many bytes the file itself has, or as many as were read of a pipe."""
        return self._below.packed if self._below is not None else self._size if self._total is None else self._total

    @property
    def is_compressed(self) -> bool:
        """Whether the bytes are unpacked from others."""
        return self._below is not None

    def drain(self) -> None:
        """Read what is left."""
        while self.read(1 << 20):
            pass

    def sha256(self) -> str:
        """Return the hash of the file, of its own bytes where it is compressed, after what is left unread."""
        self.drain()
        return self._digest.hexdigest() if self._below is None else self._below.sha256()

    def close(self) -> None:
        if self._raw is not getattr(sys.stdin, "buffer", None):
            self._raw.close()
        if self._below is not None:
            self._below.close()
        self._head.clear()  # megabytes of the first rows, where nothing else was read
        super().close()


def column_of(table: str, name: str) -> str:
    """Return a column of a table as an error names it."""
    return f"{table}: column {quoted(name)}"


class Table(ABC):
    """A table that can be read once, from the first row to the last.

    Attributes
    ----------
    columns : list of str
    units : dict from str to str
        Units by column, of those that have one in the file.
    notes : list of str
        Decisions of the reader that its user should know.
    """

    columns: list[str]

    def __init__(self, name: str, stream: _Stream, limits: Limits) -> None:
        self.name, self._stream, self._limits = name, stream, limits
        self.units: dict[str, str] = {}
        self.notes: list[str] = []
        self._buffered = io.BufferedReader(stream, 1 << 16)  # it would close the stream when it is forgotten

    @abstractmethod
    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield parts: columns of numbers as an array or CSR matrix, NaN for no value, and others as Arrow arrays."""

    @abstractmethod
    def peek(self) -> Any:
        """Return an Arrow table of the first rows, which ``parts`` yields again; to be asked for before ``parts``.

        Columns with a name are int64, float64, bool or string, and null where there is no value. Rows that cannot be
        parsed are not shown.
        """

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def sha256(self) -> str:
        """Return the hash of the bytes of the whole file; to be asked for last."""
        return self._stream.sha256()

    def place(self, name: str) -> str:
        """Return a column as an error names it."""
        return column_of(self.name, name)

    def require(self, name: str, role: str) -> None:
        """Raise unless there is such a column."""
        if name and name in self.columns:
            return
        near = nearest(name, self.columns)
        meant = f"did you mean {near!r}?" if near else f"there are {self.some_columns()}"
        if self.columns and self.columns[0].startswith("#"):
            meant = "its first line starts with '#': remove comments above the line with the names of the columns"
        raise TableError(f"{self.name} has no column {quoted(name)} for {role}; {meant}")

    def some_columns(self) -> str:
        """Return the names of the first columns."""
        names = ", ".join(map(_short, self.columns[:8]))
        return (names or "none") + (", ..." if len(self.columns) > 8 else "")


def _check_character(option: str, text: str | None) -> None:
    if text is not None and not (len(text) == 1 and text.isascii() and text not in '"\r\n'):
        raise TableError(f"{option} must be one character, or tab; got {text!r}")


def _decoded(name: str, head: bytes) -> str:
    """Return the beginning of a text, which has more than blanks."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name} is not a text in UTF-8 (byte {head[error.start]:#04x} at {error.start}); expected is CSV "
            "in UTF-8, or Parquet"
        ) from None
    if not text.strip():
        raise TableError(f"{name} is empty; a header with the names of the columns is expected")
    return text


class _Csv(Table):
    def __init__(self, name: str, stream: _Stream, limits: Limits, sep: str | None, decimal: str) -> None:
        super().__init__(name, stream, limits)
        sep = "\t" if sep in ("\\t", "tab") else sep
        _check_character("--sep", sep)
        _check_character("--decimal", decimal)
        head, is_all = _first_lines(name, stream, limits.line)
        text = _decoded(name, head)
        line = next(line for line in io.StringIO(text, newline=None) if line.strip())
        bare = re.sub(r'"[^"]*"', "", line)
        self.sep = sep or max(SEPARATORS, key=bare.count)
        self._decimal = decimal
        if self.sep == decimal:
            raise TableError(f"{name}: the fields cannot be separated by the decimal point {decimal!r}; give --sep")
        limits.check_columns(name, "csv", bare.count(self.sep) + 1)
        first_rows = text[: len(text) - len(text.lstrip()) + len(line) + SAMPLE]
        rows = csv.reader(io.StringIO(first_rows, newline=None), delimiter=self.sep)
        self.columns, self._skip = [], 0
        try:
            while not any(self.columns):
                self.columns = list(map(str.strip, next(rows)))
                self._skip += 1
        except StopIteration:
            raise TableError(f"{name} has no name in its header; names of the columns are expected") from None
        except csv.Error as error:
            raise TableError(f"{name} cannot be read as CSV: {error}") from None
        self._sample: list[list[str]] = []
        try:
            self._sample += islice(filter(any, rows), 20)
            self._has_rows = bool(self._sample) or not is_all
        except csv.Error:  # a long text, which Arrow can read
            self._has_rows = True
        limits.check_columns(name, "csv", len(self.columns))
        _check_names(self)

    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        if not self._has_rows:
            return
        # Columns without a name are not asked for, but need one each.
        names = [name or f"\0{place}" for place, name in enumerate(self.columns)]
        places = {name: place for place, name in enumerate(self.columns)}
        types = dict.fromkeys(others, pa.string())
        types |= {name: pa.bool_() if self._is_bool(places[name]) else pa.float64() for name in numbers}
        self._sample.clear()
        # Spellings of truth values take memory for every column, whether it has any or not.
        spellings: dict[str, list[str]] = (
            {} if pa.bool_() in types.values() else {"true_values": [], "false_values": []}
        )
        block = max(BLOCK, self._limits.line)  # a row may begin in one block and end in the next, not in a third
        try:
            reader = pyarrow.csv.open_csv(
                self._buffered,
                # One thread: only then errors say in which row they are.
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, skip_rows_after_names=self._skip, use_threads=False, block_size=block
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.sep, newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    decimal_point=self._decimal,
                    null_values=NO_VALUE,
                    **spellings,
                ),
            )
            for batch in reader:
                yield from _passed_on(batch, _row_sizes(batch, numbers, others), numbers, others)
        except pa.ArrowInvalid as error:
            raise TableError(self._explain(str(error), block)) from None

    def peek(self) -> Any:
        head = self._stream.look(SAMPLE)
        head = _whole_rows(head) if len(head) == SAMPLE else head
        if not self._has_rows:
            return _plain_kinds(pa.table({name: pa.nulls(0) for name in filter(None, self.columns)}))
        kinds: dict[str, Any] = {}
        shown = self._first_rows(head, kinds)
        # Arrow makes times of texts, too.
        kinds |= {field.name: pa.string() for field in shown.schema if pa.types.is_temporal(field.type)}
        return _plain_kinds(self._first_rows(head, kinds) if kinds else shown)

    def _first_rows(self, head: bytes, kinds: dict[str, Any]) -> Any:
        names = [name or f"\0{place}" for place, name in enumerate(self.columns)]
        try:
            return pyarrow.csv.read_csv(
                io.BytesIO(head),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, skip_rows_after_names=self._skip, use_threads=False, block_size=len(head) + 1
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.sep, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=kinds,
                    include_columns=[name for name in self.columns if name],
                    decimal_point=self._decimal,
                    null_values=NO_VALUE,
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise TableError(self._explain(str(error), len(head))) from None

    def _is_bool(self, place: int) -> bool:
        cells = [row[place].strip().lower() for row in self._sample if len(row) > place]
        return next((cell for cell in cells if cell), "") in ("true", "false")

    def _explain(self, message: str, block: int) -> str:
        """Return what Arrow says in the terms of the file; it counts rows from the first line on."""
        message = message[:1000]  # it quotes values of any length
        if found := re.search(r"column #(\d+): Row #(\d+): .*? invalid value '(.*)", message, re.DOTALL):
            column, row, value = self.columns[int(found[1])], int(found[2]) - self._skip, found[3].removesuffix("'")
            advice = f"mend it, or leave the column out of the fit with --drop {quoted(column)}"
            if re.fullmatch(r"\s*[-+]?\d*,\d+\s*", value) and self._decimal == ".":
                advice = "is it a decimal comma? Then give --decimal ,"
            return f"{self.place(column)} has {_short(value)!r} in row {row}, where a number is expected; {advice}"
        if found := re.search(r"column #(\d+): Row #(\d+): .*UTF8", message):
            return f"{self.place(self.columns[int(found[1])])} is not text in UTF-8 in row {int(found[2]) - self._skip}"
        if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            return f"{self.name}: row {int(found[1]) - self._skip} has {found[3]} fields, the header {found[2]}"
        if "straddling" in message:
            return (
                f"{self.name} has a row of more than {block / 1e6:g} MB; is there a quote that is not closed? "
                "--max-line allows for longer ones"
            )
        return f"{self.name} cannot be read as CSV: {message}"


def _first_lines(name: str, stream: _Stream, longest: int) -> tuple[bytes, bool]:
    """Return the first lines of CSV, whole ones, the same however they arrive, and whether these are all."""
    size = LOOK
    while len(head := stream.look(size)) == size:
        blank = size - len(head.lstrip())
        if _TWO_LINES.match(head, blank):
            return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1], False
        if size > 2 * longest:
            raise TableError(
                f"{name} has a line of more than {longest / 1e6:g} MB among its first two; --max-line allows for "
                "longer ones"
            )
        size *= 2
    return head, True


_TWO_LINES = re.compile(rb"[^\r\n]*[\r\n]+[^\r\n]*[\r\n]")


def _whole_rows(text: bytes) -> bytes:
    """Return a beginning of CSV without its last row, which may be cut: up to the last line end outside quotes."""
    codes = np.frombuffer(text, np.uint8)
    outside = np.cumsum(codes == ord('"'), dtype=np.uint8) % 2 == 0
    ends = np.flatnonzero(outside & ((codes == ord("\n")) | (codes == ord("\r"))))
    return text[: ends[-1] + 1] if len(ends) else b""


class _Parquet(Table):
    def __init__(self, name: str, stream: _Stream, limits: Limits, path: str | None) -> None:
        super().__init__(name, stream, limits)
        self._file: Any = path
        self._copy: Any = None
        if path is None:  # it is read from its end, and what comes through a pipe has none
            self._file = self._copy = tempfile.TemporaryFile()  # noqa: SIM115  closed with the table
        try:
            self._open()
        except BaseException:
            self._close_copy()
            raise
        _check_names(self)

    def _open(self) -> None:
        with self._explained():
            if self._copy is not None:
                shutil.copyfileobj(self._stream, self._copy)
            self._parquet = pyarrow.parquet.ParquetFile(self._file)
            metadata = self._parquet.metadata
            self._limits.check_columns(self.name, "parquet", metadata.num_columns)
            self._schema = self._parquet.schema_arrow
            self.columns = list(self._schema.names)
            # By what the file says of itself; a column without any value takes nothing in the file.
            groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
            chunks = (group.column(place) for group in groups for place in range(group.num_columns))
            self._check_unpacked(sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in chunks))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TableError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:  # a ValueError: text that is not in UTF-8
            raise TableError(f"{self.name} cannot be read as Parquet: {str(error)[:300]}") from None

    def _check_unpacked(self, unpacked: int) -> None:
        self._limits.check_unpacked(self.name, unpacked, self._stream.packed)

    def close(self) -> None:
        self._parquet.close(force=True)
        self._close_copy()
        super().close()

    def _close_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()

    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        for name in numbers:
            kind = self._schema.field(name).type
            if not any(is_number(kind) for is_number in _NUMBERS):
                raise TableError(
                    f"{self.place(name)} has values of type {_short(kind)}, where numbers are expected; leave it out "
                    f"with --drop {quoted(name)}"
                )
        wanted, unpacked = list(dict.fromkeys([*numbers, *others])), 0
        texts = [name for name in others if _is_text(self._schema.field(name).type)]
        with self._explained():
            for batch in self._batches(wanted, texts):
                sizes = _row_sizes(batch, numbers, others)
                unpacked += int(sizes.sum())
                self._check_unpacked(unpacked)
                for values, columns in _passed_on(batch, sizes, numbers, others):
                    yield values, columns | {name: columns[name].dictionary_decode() for name in texts}

    def peek(self) -> Any:
        fields = [field for field in self._schema if field.name]
        flat = [field.name for field in fields if not pa.types.is_nested(field.type)]
        texts = [field.name for field in fields if _is_text(field.type)]
        shown, n_rows, size = [], 0, 0.0
        with self._explained():
            for batch in self._batches(flat, texts):
                ends = size + np.cumsum(_row_sizes(batch, [], flat))
                rows = min(PEEK_ROWS - n_rows, int(np.searchsorted(ends, PEEK_BYTES)))
                shown.append(batch.slice(0, rows))
                n_rows, size = n_rows + rows, float(ends[-1]) if len(ends) else size
                if rows < batch.num_rows:
                    break
            empty = pa.schema([field for field in fields if field.name in set(flat)])
            table = _plain_kinds(pa.Table.from_batches(shown, shown[0].schema if shown else empty))
        # Lists and structures cannot be used: the type stands for each.
        columns = {name: table[name] for name in flat}
        return pa.table({field.name: columns.get(field.name, [str(field.type)] * n_rows) for field in fields})

    def _batches(self, columns: list[str], texts: list[str]) -> Iterator[Any]:
        """Yield record batches of columns, texts as codes: one that stands in many rows may be in the file once."""
        self._parquet = pyarrow.parquet.ParquetFile(self._file, metadata=self._parquet.metadata, read_dictionary=texts)
        rows = max(1, BLOCK // (8 * max(1, len(columns))))
        yield from self._parquet.iter_batches(batch_size=rows, columns=columns)


_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)


def _plain_kinds(table: Any) -> Any:
    """Return a table of int64, float64, bool and string columns, null where there is no value."""
    columns = {name: _plain_kind(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    return pa.table(columns)


def _plain_kind(column: Any) -> Any:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column
    if pa.types.is_signed_integer(kind) or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 64):
        return pc.cast(column, pa.int64())
    if any(is_number(kind) for is_number in _NUMBERS):
        numbers = pc.cast(column, pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), None, numbers)
    try:
        texts = pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no UTF-8, lists, ...
        texts = pa.array([None if value is None else _short(value) for value in column.to_pylist()], pa.string())
    return pc.if_else(pc.is_in(texts, value_set=pa.array(NO_VALUE)), None, texts)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _row_sizes(batch: Any, numbers: list[str], others: list[str]) -> Array:
    """Return the bytes of every row: 8 for a number, and those of texts as they are without codes for them."""
    sizes = np.full(batch.num_rows, 8.0 * max(1, len(numbers) + len(others)))
    for name in others:
        column = batch.column(name)
        codes = column.indices if pa.types.is_dictionary(column.type) else None
        texts = column if codes is None else column.dictionary
        if _is_text(texts.type):
            lengths = pc.binary_length(texts)
            lengths = lengths if codes is None else lengths.take(codes)
            sizes += lengths.fill_null(0).to_numpy(zero_copy_only=False)
    return sizes


def _passed_on(
    batch: Any, sizes: Array, numbers: list[str], others: list[str]
) -> Iterator[tuple[Array, dict[str, Any]]]:
    """Yield the rows of a batch in parts of about ``BLOCK`` bytes."""
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK)) + 1
    for first, last in itertools.pairwise([0, *cuts.tolist(), batch.num_rows]):
        part = batch.slice(first, last - first)
        values = np.empty((part.num_rows, len(numbers)))
        for place, name in enumerate(numbers):
            column = pc.cast(part.column(name), pa.float64(), safe=False)
            values[:, place] = column.to_numpy(zero_copy_only=False)
        yield values, {name: part.column(name) for name in others}


class Libsvm(Table):
    """Lines ``label index:value ...``; features are named by their indices, and the label has no name."""

    def __init__(self, name: str, stream: _Stream, limits: Limits) -> None:
        super().__init__(name, stream, limits)
        self.columns = []

    def parts(self, numbers: list[str], others: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield parts, with all features that occur in them if none is asked for."""
        first, wanted = 1, np.array(list(map(int, numbers)), dtype=np.int64)
        while block := self._lines():
            try:
                X, y = load_svmlight_file(io.BytesIO(b"".join(block)), zero_based=True)
            except (ValueError, OverflowError) as error:
                raise TableError(
                    f"{self.name} cannot be read as libsvm, in rows {first} to {first + len(block) - 1}: "
                    f"{str(error)[:200]}; expected are lines 'label index:value index:value ...'"
                ) from None
            first += len(block)
            X = sp.csr_matrix(X)
            if numbers:
                X = _chosen(X, wanted)
            else:
                self._limits.check_columns(self.name, "libsvm", X.shape[1] - 1)
            yield X, {name: pa.array(y) for name in others}

    def peek(self) -> Any:
        """Return an empty table: features have no names."""
        return pa.table({})

    def _lines(self) -> list[bytes]:
        """Return the next lines, of ``BLOCK`` bytes or a little more."""
        lines, size, longest = [], 0, self._limits.line
        while size < BLOCK and (line := self._buffered.readline(longest + 1)):
            if len(line) > longest:
                raise TableError(
                    f"{self.name} has a line of more than {longest / 1e6:g} MB; --max-line allows for longer ones"
                )
            lines.append(line)
            size += len(line)
        return lines


def _chosen(X: Any, wanted: Any) -> Any:
    """Return some columns of a CSR matrix, in a time that does not depend on how many there are."""
    order = np.argsort(wanted)
    places = np.searchsorted(wanted, X.indices, sorter=order)
    places = order[np.minimum(places, len(wanted) - 1)]
    known = wanted[places] == X.indices
    ends = np.concatenate([[0], np.cumsum(known)])[X.indptr]
    chosen = sp.csr_matrix((X.data[known], places[known], ends), shape=(X.shape[0], len(wanted)))
    chosen.sort_indices()
    return chosen


def _check_names(table: Table) -> None:
    twice = sorted(name for name, times in Counter(filter(None, table.columns)).items() if times > 1)
    if twice:
        more = f" and {len(twice) - 5} others" if len(twice) > 5 else ""
        raise TableError(
            f"{table.name} has {', '.join(map(quoted, twice[:5]))}{more} more than once; columns need names of "
            "their own"
        )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is meant, perhaps, where there is no such name."""
    candidates = (name for name in islice(names, NEAR_NAMES) if len(name) <= NEAR_LENGTH)
    lower = {candidate.lower(): candidate for candidate in reversed(list(candidates))}
    found = difflib.get_close_matches(name[:NEAR_LENGTH].lower(), lower, n=1, cutoff=0.5)
    return lower[found[0]] if found else None


def _short(value: Any, length: int = 40) -> str:
    text = str(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def quoted(name: str) -> str:
    """Return a name as errors have it: in quotes, without the end of a very long one."""
    return repr(_short(name, 100))


def format_of(path: str) -> str:
    """Return the format that the name of a file stands for."""
    stem = path.lower().removesuffix(".gz")
    return next((name for name, ends in FORMATS.items() if stem.endswith(ends)), "csv")


def open_table(
    path: str, *, format: str | None = None, sep: str | None = None, decimal: str = ".", limits: Limits | None = None
) -> Table:
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
    limits : Limits, default=None
        What the file may ask for; None is ``Limits()``.

    Returns
    -------
    Table
    """
    limits = limits or Limits()
    name = "standard input" if path == "-" else path
    is_file = path != "-" and os.path.isfile(path)
    stream = _open_stream(path, name, limits)
    try:
        if is_file and stream.is_compressed:
            # Before anything is done with the rows: a small file may have very many.
            stream.drain()
            stream.close()
            stream = _open_stream(path, name, limits)
        head = stream.look(4)
        format = format or ("parquet" if head == b"PAR1" else format_of(path))
        if format == "parquet":
            if head != b"PAR1":
                raise TableError(f"{name} cannot be read as Parquet: it does not begin with PAR1")
            return _Parquet(name, stream, limits, path if is_file and not stream.is_compressed else None)
        return Libsvm(name, stream, limits) if format == "libsvm" else _Csv(name, stream, limits, sep, decimal)
    except BaseException:
        stream.close()
        raise


def _open_stream(path: str, name: str, limits: Limits) -> _Stream:
    """Return the bytes of a file, or of standard input, unpacked if they are compressed by gzip."""
    try:
        raw: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115  closed by the table
        total = os.path.getsize(path) if path != "-" and os.path.isfile(path) else None
    except OSError as error:
        raise TableError(f"{name} cannot be read: {error.strerror or error}") from None
    stream = _Stream(name, raw, limits, total=total)
    try:
        if stream.look(2) != b"\x1f\x8b":
            return stream
    except BaseException:
        stream.close()
        raise
    return _Stream(name, gzip.GzipFile(fileobj=io.BufferedReader(stream), mode="rb"), limits, stream)


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
