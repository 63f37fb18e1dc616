"""Text tables: CSV, TSV of VizieR, ECSV."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from gaussguru._tables import base
from gaussguru._tables.base import NO_VALUE, TableReader, check_names, plain_kinds
from gaussguru._tables.catalogues import extra
from gaussguru._tables.contents import LOOK, ByteStream, Decoded, FileLimits, TableError
from gaussguru._utils.types import Record

# Bytes of the first rows of CSV that are looked at to find out what its columns hold.
SAMPLE = 1 << 22


def _check_character(option: str, text: str | None) -> None:
    if text is not None and not (len(text) == 1 and text.isascii() and text not in '"\r\n'):
        raise TableError(f"{option} must be one character, or tab; got {text!r}")


class Csv(TableReader):
    """Text whose first line has the names of columns, below comments; TSV of VizieR and ECSV also have units."""

    def __init__(self, name: str, stream: ByteStream, limits: FileLimits, sep: str | None, decimal: str) -> None:
        notes: list[str] = []
        stream = Decoded(stream, limits, notes)
        super().__init__(name, stream, limits)
        self.notes, self.decimal = notes, decimal
        sep = "\t" if sep in ("\\t", "tab") else sep
        _check_character("--sep", sep)
        _check_character("--decimal", decimal)
        comments, self._blanks = _take_comments(name, stream, limits.line), list[str]()
        about = _ecsv_header(name, comments)
        fields = about.get("datatype", ())
        self._has_comments, self.columns, self._skip = bool(comments), list[str](), 0
        self._kinds = {each["name"]: pa.string() for each in fields if each["datatype"] == "string"}
        head, _ = _first_lines(name, stream, limits.line)
        if not head.strip():
            raise TableError(f"{name} is empty; a header with the names of the columns is expected")
        if found := re.match(rb"(?i)\s*+sep=([\x20-\x7e\t])[\r\n]+", head):  # of Excel
            sep = sep or found[1].decode()
            stream.read(found.end())
            head, _ = _first_lines(name, stream, limits.line)
        line = next((line for line in io.StringIO(head.decode(), newline=None) if line.strip()), "")
        bare = re.sub(r'"[^"]*"', "", line)
        self.sep = sep or about.get("delimiter", " " if about else None) or max(",;\t|", key=bare.count)
        if self.sep == decimal:
            raise TableError(f"{name}: the fields cannot be separated by the decimal point {decimal!r}; give --sep")
        limits.check_columns(name, "csv", bare.count(self.sep) + 1)
        units = self._take_ruled_header(head) or self._take_commented_header(line, comments)
        self._read_header("" if units else line)
        limits.check_columns(name, "csv", len(self.columns))
        check_names(self)
        known = {each["name"]: each.get("unit") for each in fields} or dict(zip(self.columns, units, strict=False))
        self.units = {column: str(unit) for column, unit in known.items() if column and unit}

    def _read_header(self, line: str) -> None:
        """Read the names of the columns from the first line, unless they are known, and the first rows."""
        head, is_all = _first_lines(self.name, self._stream, self._limits.line)
        text = head.decode()
        first_rows = text[: len(text) - len(text.lstrip()) + len(line) + SAMPLE]
        rows = csv.reader(io.StringIO(first_rows, newline=None), delimiter=self.sep)
        try:
            while not any(self.columns):
                self.columns = list(map(str.strip, next(rows)))
                self._skip += 1
        except StopIteration:
            raise TableError(f"{self.name} has no name in its header; names of the columns are expected") from None
        except csv.Error as error:
            raise TableError(f"{self.name} cannot be read as CSV: {error}") from None
        self._sample: list[list[str]] = []
        try:
            self._sample += islice(filter(any, rows), 20)
            self._has_rows = bool(self._sample) or not is_all
        except csv.Error:  # a long text, which Arrow can read
            self._has_rows = True

    def _take_ruled_header(self, head: bytes) -> list[str]:
        """Read a header that has a line of dashes below it, and perhaps one of units; return the units."""
        for count in (2, 3):
            found = re.match(rb"\s*+(?:[^\r\n]*[\r\n]+){%d}" % count, head)
            lines = found[0].decode().strip("\r\n").splitlines() if found else []
            rows = [[cell.strip() for cell in line.split(self.sep)] for line in lines if line]
            if found and len(rows) == count and len(rows[0]) > 1 and all(re.fullmatch("-+", cell) for cell in rows[-1]):
                self._stream.read(found.end())
                self.columns = rows[0]
                # Where there is no value, a cell is as wide as its dashes.
                self._blanks = [" " * width for width in range(1, min(1000, max(map(len, rows[-1]))) + 1)]
                return rows[1] if count == 3 else [""] * len(rows[0])
        return []

    def _take_commented_header(self, line: str, comments: bytes) -> list[str]:
        """Read the names of columns from the last comment, where the line below it has numbers; return no units."""
        names = comments.decode().strip().splitlines()[-1].lstrip("# ").split(self.sep) if comments else []
        cells = line.strip("\r\n").split(self.sep)
        if not 1 < len(names) == len(cells) or not any(
            re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", cell) for cell in cells
        ):
            return []
        self.columns = [name.strip().strip('"') for name in names]
        self.notes.append(f"{self.name}: the names of the columns are those in its last comment")
        return [""] * len(names)

    def _batches(self, numbers: list[str], others: list[str]) -> Iterator[pa.RecordBatch]:
        if not self._has_rows:
            return
        places = {name: place for place, name in enumerate(self.columns)}
        self._truths = {name for name in numbers if self._is_bool(places[name])}
        self._sample.clear()
        try:
            # One thread: only then errors say in which row they are. Numbers come as texts, to be listed if broken.
            options = self._options(dict.fromkeys([*numbers, *others], pa.string()), self._block, "error")
            yield from pyarrow.csv.open_csv(self._buffered, **options)
        except pa.ArrowInvalid as error:
            raise TableError(self._explain(str(error))) from None

    def _options(self, kinds: Record, block: int, wrong: str, **conversion: Any) -> Record:
        """Return options of Arrow for columns of these kinds; ``wrong`` is for rows with another number of fields."""
        # Columns without a name are not asked for, but need one each.
        names = [name or f"\0{place}" for place, name in enumerate(self.columns)]
        return {
            "read_options": pyarrow.csv.ReadOptions(
                column_names=names, skip_rows_after_names=self._skip, use_threads=False, block_size=block
            ),
            "parse_options": pyarrow.csv.ParseOptions(
                delimiter=self.sep,
                newlines_in_values=True,
                invalid_row_handler=lambda row: "skip" if self._has_comments and row.text.startswith("#") else wrong,
            ),
            "convert_options": pyarrow.csv.ConvertOptions(
                column_types=kinds, decimal_point=self.decimal, **({"include_columns": list(kinds)} | conversion)
            ),
        }

    @property
    def _block(self) -> int:
        """Bytes that are parsed together: a row may begin in one block and end in the next, not in a third."""
        return max(base.BLOCK, self._limits.line)

    def peek(self, words: Sequence[str] = ()) -> pa.Table:
        head = self._stream.look(SAMPLE)
        head = _whole_rows(head) if len(head) == SAMPLE else head
        if not self._has_rows:
            return plain_kinds(pa.table({name: pa.nulls(0) for name in filter(None, self.columns)}))
        kinds: Record = dict(self._kinds)
        shown = self._first_rows(head, kinds, words)
        # Arrow makes times of texts, too.
        kinds |= {field.name: pa.string() for field in shown.schema if pa.types.is_temporal(field.type)}
        return plain_kinds(self._first_rows(head, kinds, words) if kinds else shown, words)

    def _first_rows(self, head: bytes, kinds: Record, words: Sequence[str]) -> pa.Table:
        conversion = {"include_columns": [name for name in self.columns if name], "strings_can_be_null": True}
        conversion["null_values"] = [*NO_VALUE, *self._blanks, *words]
        try:
            return pyarrow.csv.read_csv(io.BytesIO(head), **self._options(kinds, len(head) + 1, "skip", **conversion))
        except pa.ArrowInvalid as error:
            raise TableError(self._explain(str(error))) from None

    def _is_bool(self, place: int) -> bool:
        cells = [row[place].strip().lower() for row in self._sample if len(row) > place]
        return next((cell for cell in cells if cell), "") in ("true", "false")

    def _explain(self, message: str) -> str:
        """Return what Arrow says in the terms of the file; it counts rows from the first line on."""
        message = message[:1000]  # it quotes values of any length
        if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            return f"{self.name}: row {int(found[1]) - self._skip} has {found[3]} fields, the header {found[2]}"
        if "straddling" in message:
            return (
                f"{self.name} has a row of more than {self._block / 1e6:g} MB; is there a quote that is not closed? "
                "--max-line allows for longer ones"
            )
        return f"{self.name} cannot be read as CSV: {message}"


def _take_comments(name: str, stream: ByteStream, longest: int) -> bytes:
    """Read the lines above the header that begin with #, and return them."""
    taken, size = bytearray(), LOOK
    while size <= 2 * longest and len(taken) <= longest:
        head = stream.look(size)
        if found := re.match(rb"(?:\s*+#[^\r\n]*+[\r\n])+", head):
            taken += stream.read(found.end()) or b""
        elif len(head) == size and head.lstrip().startswith(b"#"):
            size *= 2
        else:
            return bytes(taken)
    raise TableError(
        f"{name} has more than {longest / 1e6:g} MB of comments above its header; --max-line allows for more"
    )


def _ecsv_header(name: str, comments: bytes) -> Record:
    """Return what the comments of ECSV say of its columns; nothing of other files."""
    if not comments.startswith(b"# %ECSV"):
        return {}
    if len(comments) > 1 << 20:  # the parser takes two seconds for these
        raise TableError(f"{name} has an ECSV header of more than {(1 << 20) / 1e6:g} MB; write FITS, Parquet or CSV")
    meta = extra("astropy.table.meta", "ECSV", "astro")
    try:
        about = dict(meta.get_header_from_yaml([line[2:] for line in comments.decode().splitlines()]))
        columns = [(str(each["name"]), str(each["datatype"])) for each in about["datatype"]]
    except Exception as error:  # of a parser that raises anything
        raise TableError(f"{name} cannot be read as ECSV: {' '.join(str(error)[:300].split())}") from None
    if any(f"{column}.mask" in dict(columns) for column, _ in columns):
        raise TableError(f"{name} has masks in columns beside the values; write it with empty fields where masked")
    return about


def _first_lines(name: str, stream: ByteStream, longest: int) -> tuple[bytes, bool]:
    """Return the first lines of CSV, whole ones, the same however they arrive, and whether these are all."""
    size = LOOK
    while len(head := stream.look(size)) == size:
        if re.match(rb"(?:[^\r\n]*+[\r\n]++){2}[^\r\n]*+[\r\n]", head.lstrip()):
            return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1], False
        if size > 2 * longest:
            raise TableError(
                f"{name} has a line of more than {longest / 1e6:g} MB among its first three; --max-line allows for "
                "longer ones"
            )
        size *= 2
    return head, True


def _whole_rows(text: bytes) -> bytes:
    """Return a beginning of CSV without its last row, which may be cut: up to the last line end outside quotes."""
    codes = np.frombuffer(text, np.uint8)
    outside = np.cumsum(codes == ord('"'), dtype=np.uint8) % 2 == 0
    ends = np.flatnonzero(outside & ((codes == ord("\n")) | (codes == ord("\r"))))
    return text[: ends[-1] + 1] if len(ends) else b""
