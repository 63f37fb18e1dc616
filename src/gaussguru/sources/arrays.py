"""Arrays, memory maps and files of them."""

import importlib
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._rows.streams import Part, changed, read_array
from gaussguru._utils.blocks import row_slices
from gaussguru._utils.frames import take_rows
from gaussguru._utils.types import Values
from gaussguru.sources.base import PART_BYTES, Fields, Source, as_part


@dataclass(frozen=True)
class Arrays(Source):
    """Arrays, memory maps or ``.npy`` files, read in parts.

    Parameters
    ----------
    X : array, memory map, CSR matrix, path of a ``.npy`` file, or list of these
        The samples. The arrays of a list follow one another. Rows of a memory map are read from its file, so they do
        not stay in memory.
    rows : int, default=None
        Number of rows in a part. None chooses parts of about 16 MB.

    ``y``, ``sample_weight`` and ``X_err`` are arrays with one row per sample, or lists that match X.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Arrays
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> clf = GuruClassifier(0.3).fit(Arrays(X, rows=200), X[:, 0] > 0)
    >>> clf.converged_
    True
    """

    X: Values
    rows: int | None = None

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> list[Callable[[], Part]]:
        """Return functions that read some rows each."""
        pieces = self._pieces()
        if not pieces:
            raise ValueError("X must have at least one array; got an empty list")
        ends = np.cumsum([piece.shape[0] for piece in pieces]).tolist()
        readers: list[Callable[[], Part]] = []
        others = [
            _aligned(field, ends, name) for field, name in zip(fields, ("y", "sample_weight", "X_err"), strict=True)
        ]
        for number, (piece, end) in enumerate(zip(pieces, ends, strict=True)):
            n, rows = piece.shape[0], FileRows(piece)
            for where in self._slices(piece):
                fields_of_part = [None if other is None else other(number, where, end - n) for other in others]
                readers.append(partial(_read_rows, rows, where, len(readers), *fields_of_part))
        return readers

    def part_rows(self, fields: Fields, names: Sequence[str] | None = None) -> list[int]:
        """Return the number of rows of every part."""
        return [where.stop - where.start for piece in self._pieces() for where in self._slices(piece)]

    def _pieces(self) -> list[Any]:
        return [_opened(piece) for piece in (self.X if isinstance(self.X, list | tuple) else [self.X])]

    def _slices(self, piece: Values) -> list[slice]:
        return part_slices(piece.shape[0], self.rows or max(1, PART_BYTES // max(1, row_bytes(piece))))


def part_slices(n: int, step: int) -> list[slice]:
    """Return slices of at most ``step`` of n rows; a single empty slice if n is 0."""
    return row_slices(0, n, step) or [slice(0, 0)]


def row_bytes(X: Values) -> int:
    """Return the bytes of a row."""
    if sp.issparse(X):
        return int((X.data.nbytes + X.indices.nbytes) // max(1, X.shape[0]) + 8)
    return int(X.nbytes // max(1, X.shape[0]))


def _opened(piece: Values) -> Any:
    """Return an array or CSR matrix; a path is opened as a memory map."""
    if isinstance(piece, str | os.PathLike):
        piece = np.load(piece, mmap_mode="r")
    if not sp.issparse(piece):
        piece = piece if isinstance(piece, np.ndarray) else np.asarray(piece)
    if piece.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got shape {piece.shape}")
    return piece.tocsr() if sp.issparse(piece) else piece


def _aligned(field: Any, ends: list[int], name: str) -> Callable[[int, slice, int], Any] | None:
    """Return a function of the number of an array, rows in it and its first row, that returns a reader of a field."""
    if field is None:
        return None
    if isinstance(field, str):
        raise ValueError(f"{name} must be an array with a row for each sample; columns of arrays have no names")
    if isinstance(field, list | tuple) and len(field) == len(ends) and np.ndim(field[0]) > 0:
        pieces = [FileRows(np.load(each, mmap_mode="r") if isinstance(each, str) else each) for each in field]
        return lambda number, where, begin: partial(pieces[number].take, where)
    whole = field if hasattr(field, "shape") or sp.issparse(field) else np.asarray(field)
    if np.ndim(whole) == 0:
        return lambda number, where, begin: partial(np.full, where.stop - where.start, float(whole))
    if whole.shape[0] != ends[-1]:
        raise ValueError(f"{name} must have a row for each of the {ends[-1]} samples of X; got shape {whole.shape}")
    rows = FileRows(whole)
    return lambda number, where, begin: partial(rows.take, slice(begin + where.start, begin + where.stop))


class FileRows:
    """Rows of an array; those of a memory map are read from its file."""

    def __init__(self, values: Values) -> None:
        self.values = values.tocsr() if sp.issparse(values) else values
        self._file: int | None = None
        self._start = _file_offset(values) if isinstance(values, np.memmap) else None
        self._stamp = None if self._start is None else _stamp(os.stat(values.filename), values.mode)

    def take(self, where: slice) -> Any:
        """Return some rows."""
        values = self.values
        if self._start is None:
            return take_rows(values, where)
        if self._file is None:
            self._file = os.open(values.filename, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            weakref.finalize(self, os.close, self._file)  # with the last reader
        row = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
        n = where.stop - where.start
        begin = self._start + where.start * row
        if hasattr(os, "posix_fadvise"):  # read ahead during the computation
            os.posix_fadvise(self._file, begin + n * row, 2 * n * row, os.POSIX_FADV_WILLNEED)
        try:
            return read_array(self._file, begin, values.dtype, (n, *values.shape[1:]))
        finally:
            if _stamp(os.fstat(self._file), values.mode) != self._stamp:
                raise changed(f"{values.filename} was written")


def _stamp(status: os.stat_result, mode: str) -> tuple[int, ...]:
    """Return a value that changes when a file is written; for a writable map, its size alone."""
    return (status.st_size, *((status.st_mtime_ns, status.st_ino) if mode == "r" else ()))


def _file_offset(values: np.memmap) -> int | None:
    """Return the byte at which a memory map begins in its file, or None if its rows are not contiguous there."""
    if values.filename is None or values.mode == "c" or not values.flags.c_contiguous or not hasattr(os, "preadv"):
        return None
    mapped = np.frombuffer(values._mmap, dtype=np.uint8)  # type: ignore[attr-defined]
    granularity = importlib.import_module("mmap").ALLOCATIONGRANULARITY
    # A slice has the offset of its base array: the difference of addresses is added.
    return int(values.offset - values.offset % granularity + values.ctypes.data - mapped.ctypes.data)


def _read_rows(X: FileRows, where: slice, number: int, *fields: Any) -> Part:
    return as_part(X.take(where), number, *(None if field is None else field() for field in fields))
