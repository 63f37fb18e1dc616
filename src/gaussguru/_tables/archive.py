"""The file of a model: a zip archive of skops with a card, read within limits, and checked before an object is made.

skops lists the types in a file, but unpacks any archive, follows references between objects as often as they occur,
and trusts all estimators of scikit-learn. So the archive is unpacked here, entry by entry and no further than its
limits; its schema must name known types only, and may not refer from one object to another. skops then loads a new
archive, which holds the checked entries only.
"""

import io
import json
import math
import os
import sys
import zipfile
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
import skops.io

from gaussguru._guru.solvers.sgd import SGDState
from gaussguru._measured.posteriors import View
from gaussguru._tables.contents import FileLimits, TableError, quoted
from gaussguru._tables.model_checks import CONTENTS
from gaussguru._tables.trees import TREES, Trees, replaced, with_trees, without_trees
from gaussguru.losses import LOSSES

CARD, SCHEMA = "gaussguru.json", "schema.json"


def _paths(*types: type) -> list[str]:
    return [f"{kind.__module__}.{kind.__name__}" for kind in types]


# Types that may be in a model file, by the loader of skops that makes them: those that CONTENTS checks (trees are
# :class:`Trees`), losses, which have no attributes of their own, and the state of a solver, which no prediction reads.
_SCALARS, _SPARSE = [np.bool_, np.float32, np.float64, np.int32, np.int64, np.str_], [sp.csr_array, sp.csr_matrix]
_KNOWN = {
    "DTypeNode": ["numpy.dtype"],
    "DictNode": _paths(dict),
    "JsonNode": _paths(str),
    "ListNode": _paths(list),
    "NdArrayNode": _paths(np.ndarray, *_SCALARS),
    "ObjectNode": _paths(*({*CONTENTS} - {*TREES}), *map(type, LOSSES.values()), SGDState, Trees, *_SPARSE),
    "SliceNode": _paths(slice),
    "SparseMatrixNode": _paths(*_SPARSE),
    "TupleNode": _paths(tuple, View),
    "TypeNode": _paths(str, int, float, bool, *_SCALARS),
}
TRUSTED = sorted({path for paths in _KNOWN.values() for path in paths})


class ModelError(TableError):
    """A file cannot be used as a model; the message has one line."""


def pack(estimator: Any, card: dict[str, Any]) -> bytes:
    """Return the archive of a model.

    Parameters
    ----------
    estimator : Pipeline
    card : dict
        Values that JSON can hold.

    Returns
    -------
    bytes
    """
    archive = io.BytesIO(skops.io.dumps(replaced(estimator, without_trees), compression=zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(CARD, json.dumps(card, indent=1))
    return archive.getvalue()


class Archive:
    """The entries of a model file, unpacked within limits; no object is made of them before :meth:`load`.

    Parameters
    ----------
    path : str or bytes
        "-" is standard input; bytes are the archive itself.
    limits : gaussguru._tables.files.FileLimits

    Attributes
    ----------
    card : the card, as parsed JSON
    """

    def __init__(self, path: str | bytes, limits: FileLimits) -> None:
        self._limits, self._unpacked = limits, 0
        if isinstance(path, bytes):
            self.name, self._packed = "the model", len(path)
            self._entries, self.card = self._read(io.BytesIO(path))
            return
        self.name = "standard input" if path == "-" else path
        is_pipe = path == "-" or not os.path.isfile(path)
        try:
            with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as source:
                # zipfile reads from the end, and pipes cannot seek.
                file = io.BytesIO(source.read(limits.unpacked + 1)) if is_pipe else source
                self._packed = file.seek(0, os.SEEK_END)
                if is_pipe and self._packed > limits.unpacked:
                    raise ModelError(
                        f"{self.name} has more than {limits.unpacked / 1e6:g} MB; --max-unpacked allows for more"
                    )
                self._entries, self.card = self._read(file)
        except OSError as error:
            raise ModelError(f"{self.name} cannot be read: {error.strerror or error}") from None

    def _read(self, file: BinaryIO) -> tuple[dict[str, bytes], Any]:
        """Return the entries and the card."""
        try:
            entries = self._unpack(file)
            return entries, self._json(entries.pop(CARD))
        except (ModelError, MemoryError):
            raise
        except Exception:  # a file of another kind may raise anything
            raise ModelError(f"{self.name} is no model of gaussguru; expected is a file of `gaussguru fit`") from None

    def _check_size(self, unpacked: int) -> None:
        try:
            self._limits.check_unpacked(self.name, unpacked, self._packed)
        except TableError as error:
            raise ModelError(str(error)) from None

    def _unpack(self, file: BinaryIO) -> dict[str, bytes]:
        """Return the entries of a zip archive."""
        _check_directory(file)
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            self._unpacked += sum(entry.file_size for entry in entries)
            self._check_size(self._unpacked)
            if len({entry.filename for entry in entries}) < len(entries):
                raise ValueError("it has entries of the same name")
            if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
                raise ValueError("it is packed as no model is")
            unpacked = {}
            for entry in entries:
                with archive.open(entry) as part:
                    # Without a size, zipfile would unpack everything, also beyond the size in the directory.
                    unpacked[entry.filename] = part.read(entry.file_size + 1)
        return unpacked

    def _json(self, content: bytes) -> Any:
        """Return parsed JSON; raise if it is too large or too deep."""
        # As Python objects, JSON takes about 30 times its bytes: it may have a sixth of the limit.
        self._check_size(6 * len(content))
        parsed = json.loads(content)
        level, depth = [parsed], 0
        while level := [part for node in level for part in _parts(node)]:
            depth += 1
            if depth > 50:  # models of the command have at most 33, and pipelines inside them add a few
                raise ValueError("lists and objects are more than 50 levels deep, in a model fewer")
        return parsed

    def load(self) -> Any:
        """Return the objects of the archive; raise before any is made if one has an unknown type."""
        schema = self._json(self._entries.pop(SCHEMA))
        files = self._checked(schema)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(SCHEMA, json.dumps(schema))
            for name in files:
                archive.writestr(name, self._checked_array(name, self._entries.pop(name)))
        self._entries.clear()
        return replaced(skops.io.load(packed, trusted=TRUSTED), with_trees)

    def _checked(self, schema: Any) -> set[str]:
        """Return the names of the entries of a schema, and remove its references; raise for unknown types."""
        files, unknown, size, nodes = set(), set(), 0, [schema]
        while nodes:
            node = nodes.pop()
            nodes += _parts(node)
            if not isinstance(node, dict) or "__loader__" not in node:
                continue
            kind = f"{node['__module__']}.{node['__class__']}"
            if kind not in _KNOWN.get(node["__loader__"], ()):
                unknown.add(kind if kind not in TRUSTED else f"{kind} made by {node['__loader__']}")
            if node["__loader__"] == "JsonNode" and node["content"].lstrip()[:1] in ("[", "{"):
                raise ValueError("it holds a list or object where a number or text is expected")
            # skops takes objects of the same number for one; following them takes time that doubles with every level.
            node.pop("__id__", None)
            if "file" in node:
                files.add(node["file"])
                size += len(self._entries[node["file"]])
        if unknown:
            names = ", ".join(map(quoted, sorted(unknown)[:5]))
            raise ModelError(f"{self.name} is not trusted: it holds objects of type {names}, which no model has")
        self._check_size(size)
        return files

    def _checked_array(self, name: str, content: bytes) -> bytes:
        """Return the file of an array or sparse matrix; raise if a header does not fit the size of the values."""
        if name.endswith(".npz"):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as archive:
                for part, values in self._unpack(io.BytesIO(content)).items():
                    archive.writestr(part, self._checked_array(part, values))
            return out.getvalue()
        file = io.BytesIO(content)
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} is no array of a model")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.itemsize * math.prod(shape) != len(content) - file.tell() or not dtype.itemsize:
            raise ValueError(f"{quoted(name)} has a header that does not fit its values")
        return content


def _parts(node: Any) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _check_directory(file: BinaryIO) -> None:
    """Raise if the directory of an archive is larger than that of a model: zipfile makes an object for each entry."""
    size = file.seek(0, os.SEEK_END)
    file.seek(-min(size, 42), os.SEEK_END)
    second, end = file.read(20), file.read(22)
    # A model has about 30 entries of 100 bytes, and a pool about 70 for each fold.
    is_large = int.from_bytes(end[12:16], "little") > 1_000_000
    # zipfile reads a second directory first; only archives of 2 GB or more need one.
    if end[:4] != b"PK\5\6" or is_large or (second[:4] == b"PK\6\7" and size < (1 << 31)):
        raise ValueError("it has no directory, or a large one")
