"""Tables of archives and spreadsheets: FITS and VOTable by astropy, Excel by openpyxl, which are extras.

Their readers are not made for files of strangers: what would open other files, or take memory beyond the limits, is
refused before they see it.
"""

import importlib
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import islice
from types import ModuleType
from typing import IO, Any, TypeAlias
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from gaussguru._tables import base
from gaussguru._tables.base import NO_VALUE, Batched
from gaussguru._tables.contents import TableError, quoted, shortened
from gaussguru._utils.types import Record

# An object of astropy or openpyxl, which have no types: a table, a field, a sheet, a cell.
Foreign: TypeAlias = Any
# Bytes of a file that is read as a whole.
WHOLE = 1 << 30


def extra(module: str, title: str, name: str) -> ModuleType:
    """Return a module of an extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.split(".", maxsplit=1)[0]
        raise TableError(
            f"{title} needs {package}: pip install 'gaussguru[{name}]', or pip install {package}"
        ) from None


class _Foreign(Batched):
    """A table that another library reads, which raises anything where a file is damaged, and warns of trifles."""

    damage = (Exception,)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with super()._explained(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


class Fits(_Foreign):
    """A table of a FITS file, mapped and read in blocks."""

    title = "FITS"
    _file: Foreign = None
    _data: Foreign = None

    def _open(self) -> None:
        fits = extra("astropy.io.fits", self.title, "astro")
        self._file = open(self._path, "rb")  # noqa: SIM115  closed with the table
        file = fits.open(self._file, memmap=True)
        tables = [hdu for hdu in file if isinstance(hdu, fits.BinTableHDU | fits.TableHDU)]
        tables = [hdu for hdu in tables if hdu.header["TFIELDS"]]
        hdu = tables[self._choose([hdu.name for hdu in tables])]
        self._limits.check_columns(self.name, "", hdu.header["TFIELDS"])
        width, self._n_rows = hdu.header["NAXIS1"], hdu.header["NAXIS2"]
        if hdu.fileinfo()["datLoc"] + width * self._n_rows > os.path.getsize(self._path):
            raise TableError(f"{self.name} ends before the {self._n_rows} rows of {width} bytes that its header says")
        self._check_unpacked(8 * self._n_rows * len(hdu.columns))
        self._is_text, self._fields, self._data = isinstance(hdu, fits.TableHDU), list(hdu.columns), hdu.data
        names = [str(column.name or "").strip() for column in self._fields]
        self.units = {name: str(each.unit) for name, each in zip(names, self._fields, strict=True) if each.unit}
        self.schema = pa.schema(list(zip(names, map(self._kind, range(len(names))), strict=True)))
        self._rows = max(1, base.BLOCK // max(1, width))

    def _kind(self, place: int) -> pa.DataType:
        """Return the Arrow type of a column; a list stands for arrays and complex numbers."""
        column = self._fields[place]
        letter = re.sub("[^A-Z]", "", str(column.format))[:1]
        if self._is_text:
            return {"A": pa.string(), "I": pa.int64()}.get(letter, pa.float64())
        values = None if letter in "PQ" else self._data[:0].field(place)
        if values is None or values.ndim > 1 or values.dtype.kind not in "SUbiuf":
            return pa.list_(pa.float64())
        return pa.string() if letter == "A" else pa.from_numpy_dtype(values.dtype.newbyteorder("="))

    def _read(self, columns: list[str], texts: list[str]) -> Iterator[pa.RecordBatch]:
        places = [self.schema.get_field_index(name) for name in columns]
        for first in range(0, self._n_rows, self._rows):
            part = self._data[first : first + self._rows]
            yield pa.RecordBatch.from_arrays([self._values(part, place) for place in places], columns)

    def _values(self, part: Foreign, place: int) -> pa.Array:
        """Return the values of a column in some rows, null where there is none."""
        kind, null = self.schema.types[place], self._fields[place].null
        raw = np.asarray(np.recarray.field(part, place))
        if pa.types.is_string(kind):
            return _texts(np.char.decode(raw, "latin-1"))
        if pa.types.is_boolean(kind):
            return pa.array(raw == ord("T"), mask=~np.isin(raw, [ord("T"), ord("F")]))
        if self._is_text:
            cells = np.char.strip(raw)
            missing = (cells == b"") | (cells == str(null).strip().encode())
        else:
            missing = raw == null if null is not None else np.zeros(len(raw), dtype=bool)
        values = part.field(place)
        return pa.array(np.asarray(values).astype(values.dtype.newbyteorder("=")), kind, mask=missing)

    def close(self) -> None:
        self._data, self._fields = None, []
        if self._file is not None:
            self._file.close()
        super().close()


def _texts(words: Iterable[object]) -> pa.Array:
    """Return texts without blanks around them, null where nothing is left."""
    stripped = [str(word).strip() for word in words]
    return pa.array(stripped, pa.string(), mask=np.array([not word for word in stripped], dtype=bool))


class _Whole(_Foreign):
    """A table that is read as a whole."""

    _table: pa.Table

    def _open(self) -> None:
        size = os.path.getsize(self._path)
        if size > WHOLE:
            raise TableError(
                f"{self.name} has {size / 1e6:.0f} MB, and {self.title} is read as a whole, up to "
                f"{WHOLE / 1e6:.0f} MB; convert it to FITS, Parquet or CSV, which are read in parts"
            )
        self._table = self._whole()
        self.schema, self._n_rows = self._table.schema, self._table.num_rows

    def _whole(self) -> pa.Table:
        raise NotImplementedError

    def _read(self, columns: list[str], texts: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(columns).to_batches(max_chunksize=base.rows_of(columns))


class VoTable(_Whole):
    """A table of a VOTable file."""

    title = "VOTable"

    def _whole(self) -> pa.Table:
        votable = extra("astropy.io.votable", self.title, "astro")
        scan = _Scan(self.name)
        with open(self._path, "rb") as file:
            scan.read(file)
            self._limits.check_columns(self.name, "", max((each.fields for each in scan.tables), default=0))
            # By the larger of the rows that a table says to have and those that it has.
            self._check_unpacked(sum(max(each.rows, each.claimed) * each.size for each in scan.tables))
            with_fields = [place for place, each in enumerate(scan.tables) if each.fields]
            which = with_fields[self._choose([scan.tables[place].name for place in with_fields])]
            file.seek(0)
            # After these a value is replaced: no number, no value of its type, too long, out of range.
            for lost in ("W30", "W31", "W46", "W51"):
                warnings.simplefilter("error", getattr(votable.exceptions, lost))
            parsed = votable.parse(file, table_number=which, verify="warn", invalid="exception")
        table = parsed.get_first_table()
        if (claimed := scan.tables[which].claimed) and claimed != len(table.array):
            raise TableError(f"{self.name} says that it has {claimed} rows, and has {len(table.array)}; it was cut")
        if (stream := scan.tables[which].stream) is not None:
            self._check_binary(table, *stream)
        names = [str(field.name or "").strip() for field in table.fields]
        self.units = {name: str(each.unit) for name, each in zip(names, table.fields, strict=True) if each.unit}
        return pa.Table.from_arrays([_votable_values(table, field) for field in table.fields], names)

    def _check_binary(self, table: Foreign, version: str, size: int) -> None:
        """Raise unless the rows have all bytes of the stream: the last one is left out where it is cut."""
        values, expected = table.array.data, 0
        for field in table.fields:
            cells, write = values[field.ID], field.converter.binoutput
            if cells.dtype.kind == "O":
                expected += sum(len(write(cell, False)) for cell in cells)
            elif len(cells):
                expected += len(cells) * len(write(cells[0], np.zeros(np.shape(cells[0]), dtype=bool)))
        expected += len(values) * ((len(table.fields) + 7) // 8) if version == "BINARY2" else 0
        if expected != size:
            raise TableError(
                f"{self.name}: {len(values)} rows have {expected} of the {size} bytes of its {version} stream; it was "
                "cut, or is damaged"
            )


def _votable_values(table: Foreign, field: Foreign) -> pa.Array:
    """Return the values of a field, null where there is none, and empty lists in place of arrays."""
    values, mask = table.array.data[field.ID], np.asarray(table.array.mask[field.ID])
    if values.dtype.kind in "OUS" and field.datatype in ("char", "unicodeChar") and values.ndim == 1:
        return _texts(values.astype(str))
    if values.ndim > 1 or values.dtype.kind not in "biuf":
        return pa.array([[]] * len(values), pa.list_(pa.float64()))
    return pa.array(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("=")), mask=mask)


@dataclass
class _Scanned:
    """What a VOTable says of one table: its name, its rows, its fields and their bytes in a row, and its stream."""

    name: str
    claimed: int
    fields: int = 0
    size: int = 0
    rows: int = 0
    stream: tuple[str, int] | None = None


class _Scan:
    """Tables of a VOTable, found without a value being read."""

    def __init__(self, name: str) -> None:
        self.name, self.tables, self._serialisation, self._in_stream = name, list[_Scanned](), "", False

    def read(self, file: IO[bytes]) -> None:
        """Look through a file; raise if it refers to others."""
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler, parser.buffer_text = self._text, True
        parser.ParseFile(file)

    def _refuse_doctype(self, *_: object) -> None:
        raise TableError(f"{self.name} has a document type, which may define entities; leave it out")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        tag, table = tag.rpartition(":")[2], self.tables[-1] if self.tables else None
        if tag == "TABLE":
            self.tables.append(_Scanned(given.get("name") or given.get("ID") or "", int(given.get("nrows", 0))))
            if "ref" in given:
                raise TableError(f"{self.name} has a table without columns that refers to another; give them to it")
        elif tag == "FIELD" and table is not None:
            sizes = [int(each) for each in re.findall("[0-9]+", given.get("arraysize", "1"))]
            if 0 in sizes:
                raise TableError(f"{self.name} has a field of size 0")
            table.fields += 1
            table.size += 16 * math.prod(sizes)
        elif tag == "TR" and table is not None:
            table.rows += 1
        elif tag in ("BINARY", "BINARY2"):
            self._serialisation = tag
        elif tag in ("FITS", "PARQUET"):
            raise TableError(f"{self.name} has its table as {tag} inside or elsewhere; give that file")
        elif tag == "STREAM":
            if "href" in given or given.get("encoding") != "base64":
                raise TableError(f"{self.name} has its values in another file, or packed; expected is base64 inside it")
            self._in_stream = table is not None
            if table is not None:
                table.stream = self._serialisation, 0

    def _text(self, text: str) -> None:
        if self._in_stream:
            version, size = self.tables[-1].stream or ("", 0)
            self.tables[-1].stream = version, size + len("".join(text.split()).rstrip("="))

    def _end(self, tag: str) -> None:
        if tag.rpartition(":")[2] == "STREAM" and self._in_stream:
            version, size = self.tables[-1].stream or ("", 0)
            self.tables[-1].stream, self._in_stream = (version, size * 3 // 4), False


class Excel(_Whole):
    """A sheet of a workbook: names of columns in the first row that has two cells or more."""

    title = "Excel"

    def _whole(self) -> pa.Table:
        openpyxl = extra("openpyxl", self.title, "excel")
        self._check_archive()
        with open(self._path, "rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            sheets = [sheet for sheet in book.worksheets if self._header(sheet)[0]]
            sheet = sheets[self._choose([sheet.title for sheet in sheets])]
            table, has_gaps = self._columns(sheet)
            if has_gaps:
                formulas = openpyxl.load_workbook(file, read_only=True, keep_links=False)
                self._check_formulas(sheet, formulas[sheet.title])
        return table

    def _check_archive(self) -> None:
        """Raise if the archive unpacks to too much, or has entities."""
        with zipfile.ZipFile(self._path) as archive:
            entries = archive.infolist()
            self._check_unpacked(sum(entry.file_size for entry in entries))
            for entry in entries:
                if not entry.filename.endswith((".xml", ".rels")):
                    continue
                is_streamed = entry.filename.startswith("xl/worksheets/sheet") or "sharedStrings" in entry.filename
                if not is_streamed and entry.file_size > 1 << 23:  # a tree of it is 20 times as large
                    raise TableError(f"{self.name}: {shortened(entry.filename)} in it has more than 8 MB")
                with archive.open(entry) as part:
                    _check_prolog(self.name, part)

    def _header(self, sheet: Foreign) -> tuple[list[str], int]:
        """Return the names of the columns of a sheet, and the number of their row; no names if there are none."""
        if not hasattr(sheet, "reset_dimensions"):
            return [], 0
        sheet.reset_dimensions()  # some programs write wrong ones
        for number, row in enumerate(islice(sheet.iter_rows(values_only=True), 1000), start=1):
            names = ["" if cell is None else str(cell).strip() for cell in row]
            if sum(map(bool, names)) > 1:
                return names[: max(place for place, name in enumerate(names) if name) + 1], number
        return [], 0

    def _columns(self, sheet: Foreign) -> tuple[pa.Table, bool]:
        """Return the columns of a sheet, without empty rows, and whether a cell of the others is empty."""
        names, number = self._header(sheet)
        self._limits.check_columns(self.name, "", len(names))
        if number > 1:
            self.notes.append(f"{self.name}: the names of the columns are in row {number}, and rows above are not used")
        cells: list[list[object]] = [[] for _ in names]
        has_gaps = False
        for place, row in enumerate(sheet.iter_rows(number + 1, max_col=len(names), values_only=True), start=1):
            if place % 1000 == 0:
                self._check_unpacked(8 * place * len(names))
            if number + place > 1 << 20:
                raise TableError(f"{self.name} has more than {1 << 20} rows in sheet {quoted(sheet.title)}")
            if any(cell is not None for cell in row):
                has_gaps = has_gaps or None in row
                for column, cell in zip(cells, row, strict=True):
                    column.append(cell)
            else:
                has_gaps = True
        columns = [self._column(name, column) for name, column in zip(names, cells, strict=True)]
        return pa.Table.from_arrays(columns, names), has_gaps

    def _column(self, name: str, cells: list[Foreign]) -> pa.Array:
        """Return the cells of a column as one type: numbers, also if written as text, truth values, or texts."""
        kinds = {type(cell) for cell in cells} - {type(None)}
        texts = {cell for cell in cells if isinstance(cell, str)}
        if kinds == {bool}:
            return pa.array(cells, pa.bool_())
        if kinds and kinds <= {int, float, str} and kinds != {str}:
            try:
                numbers = {text: None if text.strip() in NO_VALUE else float(text) for text in texts}
            except ValueError:
                pass
            else:
                if any(number is not None for number in numbers.values()):
                    self.notes.append(f"{self.place(name)} has numbers that are written as text, and read as numbers")
                is_whole = kinds == {int} and all(abs(cell) < 1 << 63 for cell in cells if cell is not None)
                values = [numbers[cell] if isinstance(cell, str) else cell for cell in cells]
                return pa.array(values, pa.int64() if is_whole else pa.float64())
        return _texts([_written(cell) for cell in cells])

    def _check_formulas(self, sheet: Foreign, formulas: Foreign) -> None:
        """Raise if a cell has a formula whose value was not saved: it would be taken for empty."""
        formulas.reset_dimensions()
        names, number = self._header(sheet)
        span: Record = {"min_row": number + 1, "max_col": len(names), "values_only": True}
        for place, rows in enumerate(zip(sheet.iter_rows(**span), formulas.iter_rows(**span), strict=False), start=1):
            for name, value, formula in zip(names, *rows, strict=False):
                if value is None and formula is not None:
                    raise TableError(
                        f"{self.place(name)} has a formula without its value in row {number + place} of the sheet; "
                        "open and save the file with a spreadsheet program"
                    )


def _written(cell: object) -> str:
    """Return a cell as text, "" where it is empty."""
    return "" if cell is None else cell.isoformat() if isinstance(cell, datetime | date | time) else str(cell)


def _check_prolog(name: str, file: IO[bytes]) -> None:
    """Raise if an XML document has a document type."""

    def refuse(*_: object) -> None:
        raise TableError(f"{name} has a document type in it, which may define entities")

    parser = expat.ParserCreate()
    roots: list[str] = []
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = lambda tag, _: roots.append(tag), refuse
    while not roots and (part := file.read(1 << 12)):
        parser.Parse(part)
