"""Tables in files, recognised and opened; libsvm; tables that are written whole or not at all.

A damaged file raises a :class:`TableError` of one line that names the file, the column and the row. A file that asks
for more than the :class:`FileLimits` is refused at once: no file makes a reader take time or memory out of proportion.
:mod:`gaussguru._tables.schema` reads the columns of a layout.
"""

import csv
import glob
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gaussguru._tables import base
from gaussguru._tables.arrow import Feather, Parquet
from gaussguru._tables.base import Batched, TableReader
from gaussguru._tables.catalogues import Excel, Fits, VoTable
from gaussguru._tables.contents import ByteStream, FileLimits, TableError, open_stream
from gaussguru._tables.delimited import Csv
from gaussguru._utils.files import replacing
from gaussguru._utils.types import Record

# Formats, and how the names of their files end; anything else is read as CSV.
FORMATS = {
    "csv": (".csv", ".tsv", ".txt", ".ecsv"),
    "parquet": (".parquet", ".pq"),
    "libsvm": (".libsvm", ".svm", ".svmlight"),
    "feather": (".feather", ".arrow", ".ipc"),
    "fits": (".fits", ".fit", ".fts"),
    "votable": (".vot", ".votable"),
    "excel": (".xlsx", ".xlsm"),
}
_READERS: dict[str, type[Batched]] = {
    "parquet": Parquet, "feather": Feather, "fits": Fits, "votable": VoTable, "excel": Excel,
}  # fmt: skip
# How files begin: a format, or what they are that cannot be read.
_BEGINNINGS = {
    rb"PAR1": "parquet",
    rb"ARROW1|\xff\xff\xff\xff": "feather",
    rb"SIMPLE  =": "fits",
    rb"PK\x03\x04": "excel",
    rb"(?s:\W*<(?:.*<)?(?:\w+:)?VOTABLE)": "votable",
}
_FOREIGN = {
    rb"\xd0\xcf\x11\xe0": "an old Excel workbook; save it as .xlsx",
    rb"\x89HDF": "HDF5; write FITS, Parquet or CSV",
    rb"FEA1": "the first version of Feather; write it again with a newer program",
    rb"\W*<(?:\?xml|!doctype|html)": "XML or HTML, and no VOTable; an error of a server, perhaps",
}


class Libsvm(TableReader):
    """Lines ``label index:value ...``; features are named by their indices, and the label has no name."""

    def __init__(self, name: str, stream: ByteStream, limits: FileLimits) -> None:
        super().__init__(name, stream, limits)
        self.columns = []

    def parts(self, numbers: list[str], others: list[str], words: Sequence[str] = ()) -> Iterator[tuple[Any, Record]]:
        """Yield parts, with all features that occur in them if none is asked for."""
        from sklearn.datasets import load_svmlight_file  # noqa: PLC0415  takes half a second

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
            if numbers:
                X = _chosen(X, wanted)
            else:
                self._limits.check_columns(self.name, "libsvm", X.shape[1] - 1)
            yield X, {name: pa.array(y) for name in others}

    def peek(self, words: Sequence[str] = ()) -> pa.Table:
        """Return an empty table: features have no names."""
        return pa.table({})

    def _lines(self) -> list[bytes]:
        """Return the next lines, of ``base.BLOCK`` bytes or a little more."""
        lines, size, longest = [], 0, self._limits.line
        while size < base.BLOCK and (line := self._buffered.readline(longest + 1)):
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
    chosen = type(X)((X.data[known], places[known], ends), shape=(X.shape[0], len(wanted)))
    chosen.sort_indices()
    return chosen


def format_of(path: str) -> str:
    """Return the format that the name of a file stands for."""
    stem = path.lower()
    for end in (".gz", ".bz2", ".xz", ".zip"):
        stem = stem.removesuffix(end)
    return next((name for name, ends in FORMATS.items() if stem.endswith(ends)), "csv")


def written_format(path: str) -> str:
    """Return the format in which a table is written to a file, CSV or Parquet."""
    format = format_of(path)
    if format not in ("csv", "parquet"):
        raise TableError(
            f"{path} would be written as {format}, which is only read; tables are written as CSV or Parquet"
        )
    return format


def open_table(
    path: str,
    *,
    format: str | None = None,
    which: str | None = None,
    sep: str | None = None,
    decimal: str = ".",
    limits: FileLimits | None = None,
) -> TableReader:
    r"""Open a table.

    Parameters
    ----------
    path : str
        A file, or "-" for standard input. It may be compressed by gzip, bzip2, xz, or zip.
    format : str, default=None
        One of ``FORMATS``. None goes by the first bytes of the file, then by its name.
    which : str, default=None
        Name or number, from 1, of the table in a file of several; None is the first that has columns.
    sep : str, default=None
        What separates the fields of CSV: None finds out which of ``, ; | \t`` the header has most of.
    decimal : str, default="."
        The decimal point of CSV.
    limits : FileLimits, default=None
        What the file may ask for; None is ``FileLimits()``.

    Returns
    -------
    TableReader
    """
    limits = limits or FileLimits()
    name = "standard input" if path == "-" else path
    stream = open_stream(path, name, limits)
    try:
        if stream.below is not None and os.path.isfile(path):
            # Before anything is done with the rows: a small file may have very many.
            stream.drain()
            stream.close()
            stream = open_stream(path, name, limits)
        begins = _match(_BEGINNINGS, head := stream.look(1 << 12))
        if format is None and not begins and (kind := _match(_FOREIGN, head)):
            raise TableError(f"{name} is {kind}")
        format = format or begins or format_of(path)
        if format in _READERS:
            if format != begins:
                raise TableError(f"{name} cannot be read as {_READERS[format].title}: it does not begin as one")
            return _READERS[format](name, stream, limits, which)
        if which is not None:
            raise TableError(f"--table is for files of several tables: FITS, VOTable or Excel; {name} is {format}")
        return Libsvm(name, stream, limits) if format == "libsvm" else Csv(name, stream, limits, sep, decimal)
    except BaseException:
        stream.close()
        raise


def _match(beginnings: dict[bytes, str], head: bytes) -> str | None:
    return next((kind for begin, kind in beginnings.items() if re.match(begin, head, re.IGNORECASE)), None)


def files_of(path: str) -> list[str]:
    """Return the files that a path, a directory or a pattern stands for."""
    if os.path.isdir(path):
        found = sorted(str(each) for each in Path(path).rglob("*") if each.is_file() and not each.name.startswith("."))
    elif glob.has_magic(path) and not os.path.exists(path):
        found = sorted(each for each in glob.glob(path, recursive=True) if os.path.isfile(each))
    else:
        return [path]
    if not found:
        raise TableError(f"no file in {path}" if os.path.isdir(path) else f"no file fits {path}")
    return found


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


def write_tables(file: BinaryIO, tables: Iterable[Record], format: str) -> int:
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


def _plain(table: pa.Table) -> pa.Table:
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


def _csv_of(table: pa.Table, *, header: bool) -> bytes:
    """Return a table as CSV, with quotes only where a text needs them: Arrow would quote all texts or none."""
    names, text = io.StringIO(), io.BytesIO()
    if header:
        csv.writer(names, lineterminator="\n").writerow(table.column_names)
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    special = any(pc.any(pc.match_substring_regex(column, '[",\r\n]')).as_py() for column in texts)
    style = "needed" if special else "none"
    pyarrow.csv.write_csv(table, text, pyarrow.csv.WriteOptions(include_header=False, quoting_style=style))
    return names.getvalue().encode() + text.getvalue()
