"""Decoded rows of a table in one file on disk, which later passes and fits read instead of decoding again.

The file begins with ``HEADER`` bytes of JSON that describe the rows. The rows follow as floats: features, errors,
weight, and the number of the label. The list of labels, in JSON, ends the file. It is written under a temporary name,
and renamed when it is complete.
"""

import contextlib
import hashlib
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gaussguru._rows.streams import Part
from gaussguru._utils.types import MixedArray, Record
from gaussguru.sources.arrays import FileRows, part_slices
from gaussguru.sources.base import PART_BYTES, as_part
from gaussguru.sources.layout import SourceLayout

# Identification of cache files, and bytes of the header.
MAGIC, HEADER = "gaussguru-rows-1", 4096


class Cache:
    """The file of a table.

    Parameters
    ----------
    directory : path
    files : list of (name, size, time of the last change)
    layout : SourceLayout
    dtype : type of the features
    chosen : str
        Identifies the selection of rows.
    """

    def __init__(
        self, directory: Any, files: list[tuple[str, int, int]], layout: SourceLayout, dtype: Any, chosen: str
    ) -> None:
        self._layout, self._dtype = layout, np.dtype(dtype)
        key = json.dumps(
            [MAGIC, sorted(files), [asdict(layout.columns), layout.y, layout.weight], self._dtype.str, chosen]
        )
        self._key = hashlib.sha256(key.encode()).hexdigest()
        self._directory = Path(directory)
        self.path = self._directory / f"gaussguru-{self._key[:32]}.rows"

    def parts(self, read: Callable[[], Iterator[Part]]) -> list[Callable[[], Part]]:
        """Return functions that read one part each; a missing file is first written from the parts of ``read``."""
        header = self._header() or self._written(read)
        labels = None if self._layout.y is None else np.array(header["labels"], dtype=header["label_type"])
        rows = FileRows(self._map(header))
        slices = _slices(header)
        return [partial(_part, rows, where, k, self._layout, self._dtype, labels) for k, where in enumerate(slices)]

    def part_rows(self, read: Callable[[], Iterator[Part]]) -> list[int]:
        """Return the number of rows of every part."""
        return [where.stop - where.start for where in _slices(self._header() or self._written(read))]

    def _map(self, header: Record) -> Any:
        shape = (header["n_rows"], header["width"])
        if not header["n_rows"]:
            return np.zeros(shape, header["dtype"])
        return np.memmap(self.path, dtype=header["dtype"], mode="r", offset=HEADER, shape=shape)

    def _header(self) -> Record | None:
        """Return the header and labels of a complete file, or None.

        An incomplete file is deleted; raise if the file is no cache of this table.
        """
        try:
            with self.path.open("rb") as file:
                header = json.loads(file.read(HEADER))
                size = os.fstat(file.fileno()).st_size
                ours = header["magic"] == MAGIC and header["key"] == self._key
                if ours and size == header["labels_at"] + header["n_label_bytes"]:
                    file.seek(header["labels_at"])
                    return {**header, "labels": json.loads(file.read())}
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            ours = False
        if not ours:
            raise FileExistsError(f"{self.path} is not a cache of this table: it is left as it is; give another cache=")
        self.path.unlink()
        return None

    def _written(self, read: Callable[[], Iterator[Part]]) -> Record:
        """Write the file, unless another process did so first, and return its header."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._discard()
        number, name = tempfile.mkstemp(prefix=f"{self.path.name}.part-", dir=self._directory)
        try:
            with os.fdopen(number, "wb") as file:
                _lock(file)
                self._write(file, read())
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(name, self.path)  # never over another file
        finally:
            os.unlink(name)
        header = self._header()
        assert header is not None
        return header

    def _discard(self) -> None:
        """Delete temporary files whose lock no process holds."""
        for path in self._directory.glob(f"{self.path.name}.part-*"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                if _lock(file):
                    path.unlink()

    def _write(self, file: BinaryIO, parts: Iterator[Part]) -> None:
        layout = self._layout
        n_extra = len(layout.features) * layout.has_errors + (layout.weight is not None)
        # Errors and weights are stored in double precision.
        dtype = np.dtype(np.float64) if n_extra else self._dtype
        width = len(layout.features) + n_extra + (layout.y is not None)
        places: dict[Any, int] = {}
        kinds: set[str] = set()
        n_rows = 0
        file.seek(HEADER)
        for part in parts:
            columns = [part.X, part.X_err, None if part.weight is None else part.weight[:, np.newaxis]]
            if part.y is not None:
                columns.append(_codes(part.y, places)[:, np.newaxis])
                kinds.add(part.y.dtype.str)
            block = np.concatenate([column for column in columns if column is not None], axis=1, dtype=dtype)
            file.write(np.ascontiguousarray(block).data)
            n_rows += len(block)
        labels = json.dumps(list(places)).encode()
        header = {
            "magic": MAGIC,
            "key": self._key,
            "n_rows": n_rows,
            "width": width,
            "dtype": dtype.str,
            "label_type": min(kinds, default=None),
            "labels_at": HEADER + n_rows * width * dtype.itemsize,
            "n_label_bytes": len(labels),
        }
        file.write(labels)
        file.seek(0)
        file.write(json.dumps(header).encode().ljust(HEADER))


def _codes(y: MixedArray, places: dict[Any, int]) -> MixedArray:
    """Return the number of every label; new labels are added to ``places``."""
    if y.dtype.kind not in "biufOUS":
        raise ValueError(f"cache is for labels that are numbers or texts; got {y.dtype}")
    labels, inverse = np.unique(y, return_inverse=True)
    return np.array([places.setdefault(label, len(places)) for label in labels.tolist()] or [0])[inverse]


def _slices(header: Record) -> list[slice]:
    step = max(1, PART_BYTES // max(1, header["width"] * np.dtype(header["dtype"]).itemsize))
    return part_slices(header["n_rows"], step)


def _part(rows: FileRows, where: slice, number: int, layout: SourceLayout, dtype: Any, labels: Any) -> Part:
    block = rows.take(where)
    d = len(layout.features)
    rest = d + d * layout.has_errors
    y = None if labels is None else labels[block[:, -1].astype(np.intp)]
    weight = None if layout.weight is None else np.array(block[:, rest], dtype=np.float64)
    errors = None if not layout.has_errors else np.array(block[:, d:rest], dtype=np.float64)
    return as_part(np.ascontiguousarray(block[:, :d], dtype=dtype), number, y, weight, errors)


def _lock(file: BinaryIO) -> bool:
    """Lock a file; return False if another process holds the lock, or the system has no locks."""
    try:
        fcntl = importlib.import_module("fcntl")
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
