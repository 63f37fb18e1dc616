"""Data that does not fit in memory, or that lives on a cluster: sources that ``fit`` and ``predict`` accept as X.

* :class:`Arrays`: arrays, memory maps and ``.npy`` files, read in parts. A ``np.memmap`` of more than 1 GiB is read in
  parts automatically.
* :class:`Table`: Parquet files, directories and patterns, a ``pyarrow.dataset.Dataset`` or a ``polars.LazyFrame``.
* :class:`Stream`: a function that returns an iterator over blocks.
* :class:`Dask`: a ``dask.array.Array`` or ``dask.dataframe.DataFrame``. These can also be passed directly.

Labels, weights and error bars are column names for tables, ``fit(table, "label", sample_weight="weight",
X_err="_err")``; arrays with one row per sample for arrays; and either for Dask.

Examples
--------
>>> import numpy as np
>>> from gaussguru import GuruClassifier
>>> from gaussguru.sources import Arrays
>>> rng = np.random.default_rng(0)
>>> X = rng.standard_normal((1000, 3)).astype(np.float32)
>>> y = X[:, 0] + 0.1 * rng.standard_normal(1000) > 0
>>> GuruClassifier(0.5).fit(Arrays(X, rows=300), y).converged_
True
"""

import glob
import importlib
import itertools
import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array

from gaussguru._data.cluster import Cluster, Session, find_client
from gaussguru._data.rows import BlockMap
from gaussguru._data.streams import DRAWN_BYTES, Blocks, Local, Part, drawn_places, read_array
from gaussguru._data.threads import Pool, n_threads
from gaussguru.errors import LowRank, take_rows

# Bytes of the values of a part: many reads, and a small part of memory for each thread.
PART_BYTES = 32 << 20
# A memory map of more bytes is read in parts without being asked.
STREAMED_BYTES = 1 << 30
# Samples that a subsample has at most where nobody says how many, and of each class at least.
MOST_DRAWN, RARE = 100_000, 50


class Fields(NamedTuple):
    """What belongs to samples besides their values: names of columns, or arrays; None where there is none."""

    y: Any = None
    weight: Any = None
    X_err: Any = None


class Source(ABC):
    """Samples in parts.

    ``names`` are those of the features, or None; ``columns`` those that are used, where they may be chosen.
    """

    names: list[str] | None = None

    @abstractmethod
    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> Any:
        """Return functions that read one part each; ``names`` are the features, in their order."""

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features, where they have names."""
        return None

    stream: Callable[[Fields], Callable[[], Iterable[Part]]] | None = None


def as_source(X: Any, client: Any = None) -> Source | None:
    """Return samples as a source, or None where they are in memory."""
    if isinstance(X, Source):
        return X if client is None or not hasattr(X, "client") else replace(X, client=client)  # type: ignore[type-var]
    if isinstance(X, np.memmap):
        return Arrays(X) if X.nbytes > STREAMED_BYTES else None
    module = type(X).__module__.split(".")[0]
    if module in ("dask", "dask_expr"):
        return Dask(X, client)
    if module in ("polars", "pyarrow") and type(X).__name__ in ("LazyFrame", "FileSystemDataset", "UnionDataset"):
        return Table(X)
    return None


def needed(module: str, what: str, extra: str) -> Any:
    """Return a module that is not installed with the library, or say how to."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        raise ImportError(f"{what} needs {package}; install it, or gaussguru[{extra}]") from error


def as_part(X: Any, number: int, y: Any = None, weight: Any = None, X_err: Any = None) -> Part:
    """Return samples as a part: values dense or CSR, float32 or float64, and as many of everything."""
    try:
        X = check_array(
            X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", ensure_all_finite=False,
            ensure_min_samples=0, ensure_min_features=0, input_name="X",
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise ValueError(f"X must hold numbers; partition {number}: {error}") from error
    if sp.issparse(X):
        if X.indices.dtype != X.indptr.dtype:
            index = np.result_type(X.indices, X.indptr)
            X = type(X)((X.data, X.indices.astype(index), X.indptr.astype(index)), shape=X.shape)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    n = X.shape[0]
    y = None if y is None else np.asarray(y)
    if y is not None and (y.shape != (n,)):
        if y.shape != (n, 1):
            raise ValueError(
                f"X and y must have the same number of samples; partition {number} has {n} and y of shape {y.shape}"
            )
        y = y[:, 0]
    if weight is not None:
        weight = np.asarray(weight, dtype=np.float64)
        if weight.shape != (n,):
            raise ValueError(
                f"sample_weight must have one number a sample; partition {number} has {n} samples and weights of shape "
                f"{weight.shape}"
            )
    return Part(X, y, weight, X_err, number)


# --- arrays -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrays(Source):
    """Arrays, memory maps or ``.npy`` files, read in parts.

    Parameters
    ----------
    X : array, memory map, CSR matrix, path of a ``.npy`` file, or list of these
        The samples. The arrays of a list follow one another. Rows of a memory map are read from its file, so they do
        not stay in memory.
    rows : int, default=None
        Number of rows in a part. None chooses parts of about 32 MB.

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

    X: Any
    rows: int | None = None

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> list[Callable[[], Part]]:
        """Return functions that read some rows each."""
        pieces = [_opened(piece) for piece in (self.X if isinstance(self.X, list | tuple) else [self.X])]
        if not pieces:
            raise ValueError("X must have at least one array; got an empty list")
        ends = np.cumsum([piece.shape[0] for piece in pieces]).tolist()
        readers: list[Callable[[], Part]] = []
        others = [
            _aligned(field, ends, name) for field, name in zip(fields, ("y", "sample_weight", "X_err"), strict=True)
        ]
        for place, (piece, end) in enumerate(zip(pieces, ends, strict=True)):
            n, rows = piece.shape[0], _Rows(piece)
            step = self.rows or max(1, PART_BYTES // max(1, _row_bytes(piece)))
            for first in range(0, n, step) if n else (0,):
                where = slice(first, min(n, first + step))
                mine = [None if other is None else other(place, where, end - n) for other in others]
                readers.append(partial(_read_rows, rows, where, len(readers), *mine))
        return readers


def _row_bytes(X: Any) -> int:
    if sp.issparse(X):
        return int((X.data.nbytes + X.indices.nbytes) // max(1, X.shape[0]) + 8)
    return int(X.nbytes // max(1, X.shape[0]))


def _opened(piece: Any) -> Any:
    """Return an array, of a path a memory map."""
    if isinstance(piece, str | os.PathLike):
        piece = np.load(piece, mmap_mode="r")
    if not sp.issparse(piece):
        piece = piece if isinstance(piece, np.ndarray) else np.asarray(piece)
    if piece.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got shape {piece.shape}")
    return piece.tocsr() if sp.issparse(piece) else piece


def _aligned(field: Any, ends: list[int], name: str) -> Callable[[int, slice, int], Any] | None:
    """Return what gives the rows of a field: a function of the array, the rows in it, and where it begins."""
    if field is None:
        return None
    if isinstance(field, str):
        raise ValueError(f"{name} must be an array with a row for each sample; columns of arrays have no names")
    if isinstance(field, list | tuple) and len(field) == len(ends) and np.ndim(field[0]) > 0:
        pieces = [_Rows(np.load(each, mmap_mode="r") if isinstance(each, str) else each) for each in field]
        return lambda place, where, begin: partial(pieces[place].take, where)
    whole = field if hasattr(field, "shape") or sp.issparse(field) else np.asarray(field)
    if np.ndim(whole) == 0:
        return lambda place, where, begin: partial(np.full, where.stop - where.start, float(whole))
    if whole.shape[0] != ends[-1]:
        raise ValueError(f"{name} must have a row for each of the {ends[-1]} samples of X; got shape {whole.shape}")
    rows = _Rows(whole)
    return lambda place, where, begin: partial(rows.take, slice(begin + where.start, begin + where.stop))


class _Rows:
    """Rows of an array; those of a memory map are read from its file."""

    def __init__(self, values: Any) -> None:
        self.values = values.tocsr() if sp.issparse(values) else values
        self._file: int | None = None
        self._start = _file_offset(values) if isinstance(values, np.memmap) else None

    def take(self, where: slice) -> Any:
        values = self.values
        if self._start is None:
            return values.iloc[where] if hasattr(values, "iloc") else values[where]
        if self._file is None:
            self._file = os.open(values.filename, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            weakref.finalize(self, os.close, self._file)  # with the last reader
        row = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
        n = where.stop - where.start
        begin = self._start + where.start * row
        if hasattr(os, "posix_fadvise"):  # what comes next is read while this is computed with
            os.posix_fadvise(self._file, begin + n * row, 2 * n * row, os.POSIX_FADV_WILLNEED)
        return read_array(self._file, begin, values.dtype, (n, *values.shape[1:]))


def _file_offset(values: np.memmap) -> int | None:
    """Return where in its file a memory map begins, or None where its rows do not lie there one after the other."""
    if values.filename is None or values.mode == "c" or not values.flags.c_contiguous or not hasattr(os, "preadv"):
        return None
    mapped = np.frombuffer(values._mmap, dtype=np.uint8)  # type: ignore[attr-defined]
    granularity = importlib.import_module("mmap").ALLOCATIONGRANULARITY
    # Slices keep the offset of the array that they are taken of: addresses tell.
    return int(values.offset - values.offset % granularity + values.ctypes.data - mapped.ctypes.data)


def _read_rows(X: _Rows, where: slice, number: int, *fields: Any) -> Part:
    return as_part(X.take(where), number, *(None if field is None else field() for field in fields))


# --- blocks of a user ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream(Source):
    """Blocks of samples that a function yields.

    Parameters
    ----------
    blocks : callable
        Called without arguments once per pass over the data. Returns an iterable of blocks, the same in every pass:
        tuples ``(X, y)``, ``(X, y, sample_weight)`` or ``(X, y, sample_weight, X_err)``; ``X`` alone for predictions.

    The labels come with the blocks, so ``y`` is None: ``fit(Stream(blocks), None)``.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Stream
    >>> def blocks():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(5):
    ...         X = rng.normal(size=(200, 3))
    ...         yield X, X[:, 0] > 0
    >>> GuruClassifier(0.3).fit(Stream(blocks), None).converged_
    True
    """

    blocks: Callable[[], Iterable[Any]]

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> None:
        """Return None: parts come one after the other."""
        if any(field is not None for field in fields):
            raise ValueError("y, sample_weight and X_err must be None: those of a Stream come with its blocks")

    def stream(self, fields: Fields) -> Callable[[], Iterable[Part]]:
        """Return what iterates over the parts."""
        return partial(_streamed, self.blocks)


def _streamed(blocks: Callable[[], Iterable[Any]]) -> Iterable[Part]:
    for number, block in enumerate(blocks()):
        given = block if isinstance(block, tuple) else (block,)
        if not 1 <= len(given) <= 4:
            raise ValueError(f"a block must be X or a tuple of X, y, sample_weight and X_err; got {len(given)} things")
        yield as_part(given[0], number, *given[1:])


# --- tables -------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Columns of a table: features, error bars of each (None for exact ones), label and weight."""

    features: list[str]
    errors: list[str | None] | None
    y: str | None
    weight: str | None

    @property
    def used(self) -> list[str]:
        """All columns that are read."""
        errors = [name for name in self.errors or [] if name is not None]
        return [*self.features, *errors, *(name for name in (self.y, self.weight) if name is not None)]


def _error_columns(given: Any, known: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the columns with errors, by feature if ``X_err`` says how their names end, and in their order."""
    if isinstance(given, str):
        pairs = {name: name + given for name in known if name + given in known}
        if not pairs:
            raise ValueError(f"X_err={given!r} must be how the names of columns with errors end; none does: {known!r}")
        return pairs, list(pairs.values())
    if not isinstance(given, list | tuple):
        return {}, []
    if not given or any(name not in known for name in given):
        raise ValueError(f"X_err must name columns of the table, which has {known!r}; got {list(given)!r}")
    return {}, list(given)


def layout_of(columns: Sequence[str], fields: Fields, chosen: Sequence[str] | None) -> Layout:
    """Return what the columns of a table are: ``chosen`` ones, or all that are nothing else, are features."""
    known = list(columns)
    named = {"y": fields.y, "sample_weight": fields.weight}
    for argument, name in named.items():
        if isinstance(name, str) and name not in known:
            raise ValueError(f"{argument} must be a column of the table, one of {known!r}; got {name!r}")
    missing = [name for name in chosen or [] if name not in known]
    if missing:
        raise ValueError(f"X must have the columns {missing!r}; the table has {known!r}")
    others = {name for name in named.values() if isinstance(name, str)}
    pairs, bars = _error_columns(fields.X_err, known)
    features = list(chosen or [name for name in known if name not in others and name not in bars])
    given: list[str | None] | None = None
    if pairs:
        given = [pairs.get(name) for name in features]
    elif bars:
        given = list(bars)
        if len(given) != len(features):
            raise ValueError(f"X_err must name a column for each of {len(features)} features; got {len(given)}")
    if not features:
        raise ValueError(f"the table must have columns besides {sorted(others)!r}; it has {known!r}")
    return Layout(features, given, *(name if isinstance(name, str) else None for name in named.values()))


@dataclass(frozen=True)
class Table(Source):
    """Parquet files, or any Arrow data set, read by row groups.

    Parameters
    ----------
    data : path, pattern or list of paths of Parquet files or directories, pyarrow.dataset.Dataset or polars.LazyFrame
        A lazy frame is streamed once to a temporary file.
    columns : list of str, default=None
        The features. None: all columns but labels, weights and errors.
    filter : pyarrow.compute.Expression, default=None
        The rows to use.

    A part is one row group, or several small ones. Features are float32 if none of them needs float64.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import pyarrow.dataset
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Table
    >>> flux = np.random.default_rng(0).normal(size=1000)
    >>> survey = pyarrow.dataset.dataset(pa.table({"flux": flux, "kind": (flux > 0).astype(int)}))
    >>> GuruClassifier(0.3).fit(Table(survey), "kind").converged_
    True
    """

    data: Any
    columns: tuple[str, ...] | list[str] | None = None
    filter: Any = None

    @property
    def dataset(self) -> Any:
        """The data as a data set of Arrow."""
        found = self.__dict__.get("_dataset")
        if found is None:
            found = _dataset(self.data, self)
            object.__setattr__(self, "_dataset", found)
        return found

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features."""
        return layout_of(self.dataset.schema.names, fields, self.columns).features

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> list[Callable[[], Part]]:
        """Return functions that read some row groups each."""
        schema = self.dataset.schema
        for name, field in zip(("y", "sample_weight"), fields, strict=False):
            if field is not None and not isinstance(field, str):
                raise TypeError(f"{name} must be the name of a column of the table; got {type(field).__name__}")
        layout = layout_of(schema.names, fields, names or self.columns)
        dtype = _common_dtype(schema, layout)
        group = [partial(_read_groups, fragment, layout, dtype, self.filter) for fragment in self._fragments(layout)]
        return [partial(read, number) for number, read in enumerate(group)]

    def _fragments(self, layout: Layout) -> list[Any]:
        """Return pieces of files of about ``PART_BYTES`` of values each."""
        found = []
        for fragment in self.dataset.get_fragments(filter=self.filter):
            if not hasattr(fragment, "row_groups"):
                found.append(fragment)
                continue
            wanted: list[int] = []
            rows = 0
            for group in fragment.row_groups:
                if wanted and (rows + group.num_rows) * len(layout.features) * 4 > PART_BYTES:
                    found.append(fragment.subset(row_group_ids=wanted))
                    wanted, rows = [], 0
                wanted.append(group.id)
                rows += group.num_rows
            if wanted:
                found.append(fragment.subset(row_group_ids=wanted))
        if not found:
            raise ValueError("the data set has no files with rows")
        return found


def _dataset(data: Any, owner: Any) -> Any:
    """Return data as a data set; what is written for it goes with the ``owner``."""
    dataset = needed("pyarrow.dataset", "a table", "cli")
    if isinstance(data, dataset.Dataset):
        return data
    if type(data).__module__.startswith("polars"):
        directory = tempfile.mkdtemp(prefix="gaussguru-")
        weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)
        data.sink_parquet(Path(directory) / "rows.parquet", compression="lz4", row_group_size=1 << 18)
        return dataset.dataset(Path(directory) / "rows.parquet")
    given = [data] if isinstance(data, str | os.PathLike) else list(data)
    paths = [path for pattern in given for path in _matching(str(pattern))]
    return dataset.dataset(paths if len(paths) > 1 else paths[0])


def _matching(pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        if not Path(pattern).exists():
            raise FileNotFoundError(f"no file or directory {pattern!r}")
        return [pattern]
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths:
        raise FileNotFoundError(f"no file fits {pattern!r}")
    return paths


def _common_dtype(schema: Any, layout: Layout) -> Any:
    """Return float32 where that holds all features, else float64; raise for what is no number."""
    types = needed("pyarrow.types", "a table", "cli")
    for name in layout.features:
        kind = schema.field(name).type
        if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
            raise ValueError(
                f"X must hold numbers; column {name!r} has the type {kind}: choose features by columns=[...]"
            )
    kinds = [schema.field(name).type for name in layout.features]
    small = all((types.is_floating(kind) and kind.bit_width <= 32) or types.is_boolean(kind) or
                (types.is_integer(kind) and kind.bit_width <= 16) for kind in kinds)  # fmt: skip
    return np.float32 if small else np.float64


def _read_groups(fragment: Any, layout: Layout, dtype: Any, chosen: Any, number: int) -> Part:
    table = fragment.to_table(columns=list(dict.fromkeys(layout.used)), filter=chosen, use_threads=False)
    return part_of_table(table, layout, dtype, number)


def part_of_table(table: Any, layout: Layout, dtype: Any, number: int) -> Part:
    """Return a table of Arrow as a part."""
    X = _matrix([_column(table, name) for name in layout.features], table.num_rows, dtype)
    y = None if layout.y is None else _labels(table, layout.y, number)
    weight = None if layout.weight is None else _column(table, layout.weight)
    errors = None
    if layout.errors is not None:
        zeros = np.zeros(table.num_rows)
        columns = [zeros if name is None else _column(table, name) for name in layout.errors]
        errors = _matrix(columns, table.num_rows, np.float64)
        errors[np.isnan(X)] = np.inf  # not measured
    return as_part(X, number, y, weight, errors)


def _column(table: Any, name: str) -> NDArray[Any]:
    values: NDArray[Any] = table.column(name).to_numpy()
    return values if values.dtype.kind in "fiub" else values.astype(np.float64)


def _labels(table: Any, name: str, number: int) -> NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        raise ValueError(
            f"y must have no missing labels; column {name!r} has {column.null_count} in partition {number}"
        )
    values = column.combine_chunks()
    values = values.dictionary_decode() if hasattr(values, "dictionary_decode") else values
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _matrix(columns: list[NDArray[Any]], n_rows: int, dtype: Any) -> NDArray[Any]:
    """Return columns side by side, a few rows at a time: these stay in cache."""
    matrix = np.empty((n_rows, len(columns)), dtype)
    for first in range(0, n_rows, 1024):
        where = slice(first, first + 1024)
        for place, column in enumerate(columns):
            matrix[where, place] = column[where]
    return matrix


# --- Dask ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dask(Source):
    """A ``dask.array.Array`` or ``dask.dataframe.DataFrame``.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
        Chunks along columns are joined; the sizes of chunks along rows need not be known.
    client : distributed.Client, default=None
        Where to compute. None uses the current client or, if there is none, the threads of this process.
    columns : list of str, default=None
        The features of a frame. None: all columns but labels, weights and errors.

    ``y``, ``sample_weight`` and ``X_err`` are column names of a frame, Dask collections with the same chunks of rows,
    or arrays if the sizes of the chunks are known.

    Examples
    --------
    >>> import dask.array as da
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Dask
    >>> X = da.random.default_rng(0).normal(size=(1000, 3), chunks=(250, 3))
    >>> GuruClassifier(0.3).fit(Dask(X), X[:, 0] > 0).converged_
    True
    """

    X: Any
    client: Any = None
    columns: tuple[str, ...] | list[str] | None = None

    @property
    def is_frame(self) -> bool:
        """Whether X is a frame."""
        return hasattr(self.X, "columns")

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features."""
        if not self.is_frame:
            return None
        return layout_of([str(name) for name in self.X.columns], fields, self.columns).features

    def delayed(self, fields: Fields, names: Sequence[str] | None = None) -> list[Any]:
        """Return every part as a task that has not been run."""
        dask = needed("dask", "a collection of Dask", "dask")
        layout = None
        if self.is_frame:
            frame, within, chosen = _one_frame(self.X, fields, names or self.columns)
            layout = layout_of([str(name) for name in frame.columns], within, chosen)
            blocks, edges, fields = list(frame[list(dict.fromkeys(layout.used))].to_delayed()), None, _others(within)
        else:
            array = _two_dimensions(self.X)
            blocks, edges = array.to_delayed().ravel().tolist(), _edges(array.chunks[0])
        others = [_blocks_like(field, len(blocks), edges, name)
                  for field, name in zip(fields, ("y", "sample_weight", "X_err"), strict=True)]  # fmt: skip
        make = dask.delayed(_dask_part, pure=False)
        return [
            make(block, *(other if other is None else other[number] for other in others), number, layout,
                 dask_key_name=f"guru-part-{_token()}-{number}")
            for number, block in enumerate(blocks)
        ]  # fmt: skip

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> list[Callable[[], Part]]:
        """Return functions that compute one part each in this thread."""
        return [partial(_computed, part) for part in self.delayed(fields, names)]


def _one_frame(frame: Any, fields: Fields, chosen: Sequence[str] | None) -> tuple[Any, Fields, Sequence[str] | None]:
    """Return a frame with labels, weights and errors that are collections as columns of it, and the features.

    Partitions of collections that are computed apart may not be the same: Dask puts small ones together as it likes.
    """
    new: dict[str, Any] = {}
    named = dict(zip(Fields._fields, fields, strict=True))
    for name in ("y", "weight"):
        if hasattr(named[name], "to_frame") and hasattr(named[name], "to_delayed"):
            new[f"__guru_{name}"] = named[name]
            named[name] = f"__guru_{name}"
    errors = named["X_err"]
    if hasattr(errors, "columns") and hasattr(errors, "to_delayed"):
        columns = {f"__guru_error_{j}": errors[name] for j, name in enumerate(errors.columns)}
        new |= columns
        named["X_err"] = list(columns)
    if not new:
        return frame, fields, chosen
    taken = {name for name in named.values() if isinstance(name, str)}
    if chosen is None:
        chosen = layout_of([str(name) for name in frame.columns], Fields(X_err=fields.X_err), None).features
        chosen = [name for name in chosen if name not in taken]
    return frame.assign(**new), Fields(**named), chosen


def _others(fields: Fields) -> Fields:
    """Return what is no column of a frame."""
    return Fields(*(None if isinstance(field, str | list) else field for field in fields))


def _token() -> str:
    return os.urandom(6).hex()


def _computed(part: Any) -> Part:
    found: Part = part.compute(scheduler="synchronous")
    return found


def _two_dimensions(array: Any) -> Any:
    if array.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got {array.ndim}")
    return array if array.numblocks[1] == 1 else array.rechunk({1: -1})


def _edges(sizes: tuple[Any, ...]) -> list[int] | None:
    """Return where blocks begin and end, if their sizes are known."""
    return None if any(size != size for size in sizes) else [0, *np.cumsum(sizes).tolist()]  # noqa: PLR0124 -- NaN


def _blocks_like(field: Any, n_blocks: int, edges: list[int] | None, name: str) -> list[Any] | None:
    """Return the blocks of labels, weights or errors that belong to those of X."""
    if field is None:
        return None
    if hasattr(field, "to_delayed"):
        chunks = getattr(field, "chunks", None)
        if chunks is not None:
            own = _edges(chunks[0])
            if edges is not None and own is not None and own != edges:
                if own[-1] != edges[-1]:
                    raise ValueError(f"{name} must have a row for each of the {edges[-1]} samples of X; got {own[-1]}")
                field = field.rechunk({0: tuple(np.diff(edges).tolist())})
            if field.ndim > 1:
                field = field.rechunk(dict.fromkeys(range(1, field.ndim), -1))
        found = np.asarray(field.to_delayed(), dtype=object).ravel().tolist()
        if len(found) != n_blocks:
            raise ValueError(f"{name} must have the {n_blocks} partitions of X; got {len(found)}")
        return found
    if np.ndim(field) == 0:
        return [float(field)] * n_blocks
    if edges is None:
        raise ValueError(
            f"{name} must be a collection of Dask with the partitions of X, or a name of a column: the sizes of the "
            f"partitions are not known; got {type(field).__name__}"
        )
    if len(field) != edges[-1]:
        raise ValueError(f"{name} must have a row for each of the {edges[-1]} samples of X; got {len(field)}")
    return [field[first:last] for first, last in itertools.pairwise(edges)]


def _dask_part(X: Any, y: Any, weight: Any, X_err: Any, number: int, layout: Layout | None) -> Part:
    if layout is not None:
        frame = X
        X = frame[layout.features].to_numpy(dtype=_frame_dtype(frame, layout.features), na_value=np.nan)
        y = frame[layout.y].to_numpy() if layout.y is not None else y
        weight = frame[layout.weight].to_numpy() if layout.weight is not None else weight
        if layout.errors is not None:
            zeros = np.zeros(len(frame))
            X_err = np.column_stack(
                [zeros if name is None else frame[name].to_numpy(np.float64) for name in layout.errors]
            )
            X_err[np.isnan(X)] = np.inf
    if isinstance(weight, float):
        weight = np.full(X.shape[0], weight)
    return as_part(X, number, y, weight, X_err)


def _frame_dtype(frame: Any, names: list[str]) -> Any:
    kinds = [np.dtype(getattr(frame[name].dtype, "numpy_dtype", frame[name].dtype)) for name in names]
    small = all(
        (kind.kind == "f" and kind.itemsize <= 4) or (kind.kind in "iu" and kind.itemsize <= 2) for kind in kinds
    )
    return np.float32 if small else np.float64


# --- reading ------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """Parts of a source, where they are read, and what maps blocks of rows in memory."""

    parts: Blocks
    mapped: BlockMap


class Reading:
    """A context in which the parts of a source can be read."""

    def __init__(self, source: Source, fields: Fields, names: Sequence[str] | None, n_jobs: int | None) -> None:
        self._source, self._fields, self._names = source, fields, names
        # One thread more than cores: it reads while the others compute.
        self.pool = Pool(n_threads(n_jobs) + 1)
        client = find_client(source.client) if isinstance(source, Dask) else None
        self.session: AbstractContextManager[Session | None] = nullcontext() if client is None else Session(client)

    def opened(self, mapped: BlockMap, session: Session | None) -> Opened:
        """Return the parts."""
        source, fields, names = self._source, self._fields, self._names
        if session is not None:
            assert isinstance(source, Dask)
            return Opened(Cluster(session, session.compute(source.delayed(fields, names))), mapped)
        parts = source.parts(fields, names)
        stream = None if parts is not None else source.stream(fields)  # type: ignore[misc]
        return Opened(Local(parts, stream, mapped), mapped)


def subsample(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    X_err: Any = None,
    *,
    n_samples: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Draw a random subsample of a source into memory.

    Classes are drawn in proportion, with at least 50 samples of each (or all it has); weights correct for classes that
    were drawn more often. Takes two passes over the data.

    Parameters
    ----------
    X : source, or anything that ``fit`` accepts as one
    y, sample_weight, X_err : as in ``fit``
        Column names, or arrays.
    n_samples : int, default=None
        Approximate number of samples. None: as many as fit in 128 MB, at most 100,000.
    random_state : int, default=0
        Seed.
    n_jobs : int or None, default=None
        Number of threads that read.

    Returns
    -------
    X, y, sample_weight, X_err
        Arrays, and None for arguments that were not given. X is a DataFrame if features have names and pandas is
        installed. Weights are also returned if a class was drawn more often than others.
    """
    source = as_source(X)
    if source is None:
        raise TypeError(f"X must be a source, as those of gaussguru.sources; got {type(X).__name__}")
    fields = Fields(y, sample_weight, X_err)
    reading = Reading(source, fields, None, n_jobs)
    with reading.pool as mapped, reading.session as session:
        parts = reading.opened(mapped, session).parts
        counts = parts.collected(_label_counts)
        classes = np.unique(np.concatenate([labels for labels, _, _ in counts if len(labels)]))
        table = np.zeros((len(counts), len(classes)), dtype=np.int64)
        for row, (labels, found, _) in zip(table, counts, strict=True):
            row[np.searchsorted(classes, labels)] = found
        if not table.sum():
            raise ValueError("X must have at least one sample of positive weight")
        n = int(table.sum())
        n_bytes = sum(size for _, _, size in counts)
        wanted = min(n_samples or min(MOST_DRAWN, int(DRAWN_BYTES * n / max(1, n_bytes))), n)
        places, shares = drawn_places(table, wanted, np.random.default_rng(random_state), RARE)
        found = [part for part in parts.collected(_rows_of_part, places, classes=classes) if part is not None]
    values, labels, weights, errors = (None if each[0] is None else _stacked(each) for each in zip(*found, strict=True))
    if labels is not None:
        factor = shares.min() / shares  # of a class that was drawn more often each sample counts less
        if np.any(factor < 1):
            own = factor[np.searchsorted(classes, labels)]
            weights = own if weights is None else weights * own
    return _named(values, source.feature_names(fields)), labels, weights, errors


def _label_counts(part: Part) -> tuple[NDArray[Any], NDArray[Any], int]:
    used = np.ones(part.X.shape[0], dtype=bool) if part.weight is None else part.weight > 0
    labels = np.zeros(part.X.shape[0], dtype=np.int8) if part.y is None else part.y
    return *np.unique(labels[used], return_counts=True), _row_bytes(part.X) * int(part.X.shape[0])


def _rows_of_part(part: Part, wanted: list[Any], classes: NDArray[Any]) -> tuple[Any, ...] | None:
    used = np.ones(part.X.shape[0], dtype=bool) if part.weight is None else part.weight > 0
    labels = np.zeros(part.X.shape[0], dtype=np.int8) if part.y is None else part.y
    pairs = zip(classes, wanted, strict=True)
    index = np.sort(np.concatenate([np.flatnonzero(used & (labels == label))[places] for label, places in pairs]))
    if not len(index):
        return None
    return tuple(None if field is None else take_rows(field, index) for field in part[:4])


def _stacked(parts: Sequence[Any]) -> Any:
    if sp.issparse(parts[0]):
        return sp.vstack(parts, format="csr")
    if hasattr(parts[0], "factors"):
        std = None if parts[0].std is None else np.concatenate([part.std for part in parts])
        return LowRank(np.concatenate([part.factors for part in parts]), std)
    return np.concatenate(parts)


def _named(X: Any, names: list[str] | None) -> Any:
    if names is None or sp.issparse(X):
        return X
    try:
        return importlib.import_module("pandas").DataFrame(X, columns=names)
    except ImportError:
        return X


def in_memory(X: Any, y: Any = None, sample_weight: Any = None, X_err: Any = None) -> tuple[Any, Any, Any, Any]:
    """Return samples as they are or, of a source, a subsample."""
    if as_source(X) is None:
        return X, y, sample_weight, X_err
    return subsample(X, y, sample_weight, X_err)
