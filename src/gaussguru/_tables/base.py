"""A table in a file, read from the first row to the last in parts of bounded size."""

from __future__ import annotations

import difflib
import io
import itertools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gaussguru._errors.columns import Cells
from gaussguru._tables.contents import ByteStream, FileLimits, TableError, quoted, shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gaussguru._utils.linalg import Array

# Bytes of numbers, or of lines of libsvm, that are passed on together.
BLOCK = 1 << 22
# How a table says that there is no value, as a label or as a number. "None" is a word.
NO_VALUE = [*pyarrow.csv.ConvertOptions().null_values, "<NA>", "...", "\u2026"]
# Rows, and bytes of them, of which a table of another format shows what its columns hold.
PEEK_ROWS, PEEK_BYTES = 100_000, 1 << 26


def rows_of(columns: Sequence[str]) -> int:
    """Return the number of rows that are passed on together."""
    return max(1, BLOCK // (8 * max(1, len(columns))))


def column_of(table: str, name: str) -> str:
    """Return a column of a table as an error names it."""
    return f"{table}: column {quoted(name)}"


class TableReader(ABC):
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

    def __init__(self, name: str, stream: ByteStream, limits: FileLimits) -> None:
        self.name, self._stream, self._limits = name, stream, limits
        self.units: dict[str, str] = {}
        self.notes: list[str] = []
        self._buffered = io.BufferedReader(stream, 1 << 16)  # it would close the stream when it is forgotten

    decimal = "."

    def parts(
        self, numbers: list[str], others: list[str], words: Sequence[str] = ()
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield parts: columns of numbers as an array or CSR matrix, NaN for no value, and others as Arrow arrays.

        ``words`` are texts that stand for no value. Cells that are no numbers are listed in one error at the end; no
        part is yielded after the first of them.
        """
        cells, first, none = Cells(self.name, TableError), 0, pa.array([*NO_VALUE, *words])
        for batch in self._batches(numbers, others):
            for part in _pieces(batch, numbers, others):
                values = np.empty((part.num_rows, len(numbers)))
                for place, name in enumerate(numbers):
                    values[:, place] = self._numbers(part.column(name), name, none, cells, first)
                first += part.num_rows
                if not cells.count:
                    columns = {name: part.column(name) for name in others}
                    yield (
                        values,
                        {
                            name: column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                            for name, column in columns.items()
                        },
                    )
        cells.check()

    def _numbers(self, column: pa.Array, name: str, none: pa.Array, cells: Cells, first: int) -> Any:
        """Return the numbers of a column, of rows from number ``first`` on; note cells that are no numbers."""
        if not is_text(column.type):
            return pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        numbers = listed_numbers(column, name, none, cells, first, self.decimal, truths=name in self._truths)
        return numbers.to_numpy(zero_copy_only=False)

    _truths: Collection[str] = ()

    def _batches(self, numbers: list[str], others: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches of columns, null where there is no value; others may come as codes."""
        raise NotImplementedError

    @abstractmethod
    def peek(self, words: Sequence[str] = ()) -> pa.Table:
        """Return an Arrow table of the first rows, which ``parts`` yields again; to be asked for before ``parts``.

        Columns with a name are int64, float64, bool or string, and null where there is no value. Rows that cannot be
        parsed are not shown.
        """

    @property
    def share(self) -> float | None:
        """The part of the file that was read, from 0 to 1, where it is known."""
        return self._stream.share

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
        raise TableError("; ".join([f"{self.name} has no column {quoted(name)} for {role}; {meant}", *self.notes]))

    def some_columns(self) -> str:
        """Return the names of the first columns."""
        names = ", ".join(map(shortened, self.columns[:8]))
        return (names or "none") + (", ..." if len(self.columns) > 8 else "")


class Batched(TableReader):
    """A table in a file that is read from several places, in Arrow record batches of ``schema``."""

    title: str
    _n_rows = _n_read = 0
    schema: pa.Schema
    # What is raised for a damaged file: a ValueError is text that is not in UTF-8.
    damage: tuple[type[Exception], ...] = (pa.ArrowException, OSError, ValueError)

    def __init__(self, name: str, stream: ByteStream, limits: FileLimits, which: str | None = None) -> None:
        super().__init__(name, stream, limits)
        self._which, self._path = which, stream.stored()
        try:
            with self._explained():
                self._open()
            self._limits.check_columns(name, "", len(self.schema))
            self.columns = list(self.schema.names)
            check_names(self)
        except BaseException:
            self.close()
            raise

    @property
    def share(self) -> float | None:
        """The part of the rows that were read, where their number is known."""
        return self._n_read / self._n_rows if self._n_rows else None

    @abstractmethod
    def _open(self) -> None:
        """Open the file at the path: set the schema, and check the size that it claims."""

    @abstractmethod
    def _read(self, columns: list[str], texts: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches of columns; ``texts`` may come as codes."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (TableError, MemoryError):  # Arrow's own is one of its exceptions, too
            raise
        except self.damage as error:
            words = " ".join(str(error)[:300].split()) or type(error).__name__
            raise TableError(f"{self.name} cannot be read as {self.title}: {words}") from None

    def _check_unpacked(self, unpacked: int) -> None:
        self._limits.check_unpacked(self.name, unpacked, self._stream.packed)

    def _choose(self, names: list[str]) -> int:
        """Return the place of the table that was asked for, or 0; say so if there are others."""
        wanted, listed = self._which, ", ".join(shortened(each) or "no name" for each in names[:8])
        if not names:
            raise TableError(f"{self.name} has no table")
        if wanted is None:
            if len(names) > 1:
                self.notes.append(
                    f"{self.name} has {len(names)} tables ({listed}); the first is read, --table NAME or NUMBER chooses"
                )
            return 0
        if wanted in names:
            return names.index(wanted)
        if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= len(names):
            return int(wanted[:9]) - 1
        raise TableError(f"{self.name} has no table {quoted(wanted)} for --table; there are {listed}")

    def _batches(self, numbers: list[str], others: list[str]) -> Iterator[pa.RecordBatch]:
        kinds = {name: self.schema.field(name).type for name in numbers}
        wrong = [name for name, kind in kinds.items() if not (is_number(kind) or is_text(kind))]
        if wrong:
            alike = f", as do {', '.join(map(quoted, wrong[1:6]))}" if len(wrong) > 1 else ""
            more = f" and {len(wrong) - 6} other columns" if len(wrong) > 6 else ""
            raise TableError(
                f"{self.place(wrong[0])} has values of type {shortened(kinds[wrong[0]])}, where numbers are expected"
                f"{alike}{more}; leave it out with --drop {quoted(wrong[0])}"
            )
        self._n_read, unpacked = 0, 0
        texts = [name for name in others if is_text(self.schema.field(name).type)]
        with self._explained():
            for batch in self._read(list(dict.fromkeys([*numbers, *others])), texts):
                unpacked += int(row_sizes(batch, numbers, others).sum())
                self._n_read += batch.num_rows
                self._check_unpacked(unpacked)
                yield batch

    def peek(self, words: Sequence[str] = ()) -> pa.Table:
        fields = [field for field in self.schema if field.name]
        flat = [field.name for field in fields if not pa.types.is_nested(field.type)]
        texts = [field.name for field in fields if is_text(field.type)]
        shown, n_rows, size = [], 0, 0.0
        with self._explained():
            for batch in self._read(flat, texts):
                ends = size + np.cumsum(row_sizes(batch, [], flat))
                rows = min(PEEK_ROWS - n_rows, int(np.searchsorted(ends, PEEK_BYTES)))
                shown.append(batch.slice(0, rows))
                n_rows, size = n_rows + rows, float(ends[-1]) if len(ends) else size
                if rows < batch.num_rows:
                    break
            empty = pa.schema([field for field in fields if field.name in set(flat)])
            table = plain_kinds(pa.Table.from_batches(shown, shown[0].schema if shown else empty), words)
        # Lists and structures cannot be used: the type stands for each.
        columns = {name: table[name] for name in flat}
        return pa.table({field.name: columns.get(field.name, [str(field.type)] * n_rows) for field in fields})


COMMA = "is it a decimal comma? Then give --decimal ,"
# Texts of numbers, with a point and with a comma.
NUMBER = r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?i:inf|infinity|nan|nan\(\w*\)))"
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")


def numbers_of(
    texts: pa.Array, decimal: str = ".", *, truths: bool = False
) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Return the numbers that texts without blanks stand for, and where a text is no number; None for that if all are.

    ``truths`` says that these are true and false.
    """
    plain = texts
    if decimal != ".":
        plain = pc.replace_substring(pc.replace_substring(plain, ".", "?"), decimal, ".")
    kinds = (pa.bool_(), pa.float64()) if truths else (pa.float64(),)

    def cast(column: pa.Array) -> pa.Array:
        return reduce(pc.cast, kinds, column)

    try:
        return cast(plain), None
    except pa.ArrowInvalid:
        is_one = pc.match_substring_regex(plain, r"^(?i:true|false|0|1)$" if truths else f"^{NUMBER}$")
        wrong = pc.invert(is_one).fill_null(False).to_numpy(zero_copy_only=False)
        return cast(pc.if_else(is_one, plain, None)), wrong


def plain_kinds(table: pa.Table, words: Sequence[str] = ()) -> pa.Table:
    """Return a table of int64, float64, bool and string columns, null where there is no value."""
    none = pa.array([*NO_VALUE, *words])
    return pa.table([_plain_kind(column, none) for column in table.columns], table.column_names)


def _plain_kind(column: pa.Array, none: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column
    if pa.types.is_signed_integer(kind) or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 64):
        return pc.cast(column, pa.int64())
    if is_number(kind):
        numbers = pc.cast(column, pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), None, numbers)
    try:
        texts = pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no UTF-8, lists, ...
        texts = pa.array([None if value is None else shortened(value) for value in column.to_pylist()], pa.string())
    return pc.if_else(pc.is_in(pc.utf8_trim_whitespace(texts), value_set=none), None, texts)


def listed_numbers(
    column: pa.Array, name: str, none: pa.Array, cells: Cells, first: int, decimal: str, *, truths: bool = False
) -> pa.Array:
    """Return the numbers of a column of texts, of rows from number ``first`` on; note cells that are no numbers."""
    trimmed = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    texts = pc.if_else(pc.is_in(trimmed, value_set=none), None, trimmed)
    numbers, wrong = numbers_of(texts, decimal, truths=truths)
    if wrong is not None:
        shown = np.array(texts.to_pylist(), dtype=object)[:, np.newaxis]
        is_comma = decimal == "." and DECIMAL_COMMA.fullmatch(shown[np.argmax(wrong), 0])
        remedy = COMMA if is_comma else "mend the cells, or leave the column out of the fit with --drop {}"
        cells.add(wrong[:, np.newaxis], [name], shown, f"is a number; {remedy}", first)
    return numbers


def is_number(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(is_kind(kind) for is_kind in kinds)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def row_sizes(batch: pa.RecordBatch, numbers: list[str], others: list[str]) -> Array:
    """Return the bytes of every row: 8 for a number, and those of texts as they are without codes for them."""
    sizes = np.full(batch.num_rows, 8.0 * max(1, len(numbers) + len(others)))
    for name in others:
        column = batch.column(name)
        codes = column.indices if pa.types.is_dictionary(column.type) else None
        texts = column if codes is None else column.dictionary
        if is_text(texts.type):
            lengths = pc.binary_length(texts)
            lengths = lengths if codes is None else lengths.take(codes)
            sizes += lengths.fill_null(0).to_numpy(zero_copy_only=False)
    return sizes


def _pieces(batch: pa.RecordBatch, numbers: list[str], others: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in pieces of about ``BLOCK`` bytes."""
    cuts = np.flatnonzero(np.diff(np.cumsum(row_sizes(batch, numbers, others)) // BLOCK)) + 1
    for first, last in itertools.pairwise([0, *cuts.tolist(), batch.num_rows]):
        yield batch.slice(first, last - first)


def check_names(table: TableReader) -> None:
    """Raise if columns have the same name."""
    twice = sorted(name for name, times in Counter(filter(None, table.columns)).items() if times > 1)
    if twice:
        more = f" and {len(twice) - 5} others" if len(twice) > 5 else ""
        raise TableError(
            f"{table.name} has {', '.join(map(quoted, twice[:5]))}{more} more than once; columns need names of "
            "their own"
        )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is meant, perhaps, where there is no such name.

    The comparison is quadratic in the length of the names: long ones, and those after many others, are left out.
    """
    candidates = (name for name in islice(names, 10_000) if len(name) <= 100)
    lower = {candidate.lower(): candidate for candidate in reversed(list(candidates))}
    found = difflib.get_close_matches(name[:100].lower(), lower, n=1, cutoff=0.5)
    return lower[found[0]] if found else None
