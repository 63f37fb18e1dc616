"""Parquet files, and whatever Arrow reads as a data set."""

import glob
import numbers
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gaussguru._rows.streams import Part, changed
from gaussguru._utils.frames import as_numbers
from gaussguru._utils.types import MixedArray, Values
from gaussguru.sources.base import PART_BYTES, Fields, Source, as_part, needed
from gaussguru.sources.cache import Cache
from gaussguru.sources.layout import SourceLayout, layout_of


@dataclass(frozen=True)
class Table(Source):
    """Parquet or CSV files, or any Arrow data set, read in groups of rows.

    Parameters
    ----------
    data : path, pattern or list of paths of files or directories, pyarrow.dataset.Dataset or polars.LazyFrame
        A lazy frame is written to a temporary file once, as polars streams it.
    columns : list of str, default=None
        The features; None takes all columns that are neither label, weight nor error bars.
    filter : pyarrow.compute.Expression, default=None
        Which rows to use.
    cache : path of a directory, default=None
        Where decoded rows are stored, for many passes or fits: one file of floats, ``gaussguru-*.rows``, for each
        choice of columns and rows, named by a hash of these and of names, sizes and times of the files. It is written
        before the first pass, used as long as the files do not change, and never removed. An incomplete file is written
        again; other files are not touched.

    ``y`` and ``sample_weight`` are names of columns. ``X_err`` is a list of columns in the order of the features, the
    name of a convention, or one number for all values.

    A part is one row group or several small ones; with CSV files, which are recognised by their names, it is a file;
    with a cache it is about 16 MB. Features are float32 if none of them needs more.

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
    cache: Any = None

    @property
    def dataset(self) -> Any:
        """The data as a data set of Arrow."""
        dataset = self.__dict__.get("_dataset")
        if dataset is None:
            dataset = _dataset(self.data, self)
            self._keep(dataset, _stamps(dataset))
        return dataset

    def _keep(self, dataset: object, stamps: dict[str, tuple[int, int]]) -> None:
        object.__setattr__(self, "_dataset", dataset)
        object.__setattr__(self, "_stamps", stamps)

    def _opened(self) -> Any:
        """Return the data set; where its files changed since it was made, another one, because it remembers them."""
        if _stamps(self.dataset) != self.__dict__["_stamps"]:
            if self.dataset is self.data:
                raise changed("files of the data set were written after it was opened")
            self._keep(None, {})
        return self.dataset

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features."""
        return layout_of(self.dataset.schema.names, fields, self.columns).features

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> list[Callable[[], Part]]:
        """Return functions that read some row groups each."""
        schema = self._opened().schema
        for name, field in zip(("y", "sample_weight"), fields, strict=False):
            if field is not None and not isinstance(field, str):
                raise TypeError(f"{name} must be the name of a column of the table; got {type(field).__name__}")
        if not (fields.X_err is None or isinstance(fields.X_err, str | list | tuple | numbers.Real)):
            raise TypeError(
                "X_err must be names of columns of the table, a convention of names, or one number for all values; got "
                f"{type(fields.X_err).__name__}"
            )
        layout = layout_of(schema.names, fields, names or self.columns)
        dtype = _common_dtype(schema, layout)
        if self.cache is not None:
            readers = self._cached(layout, dtype).parts(partial(self._batches, layout, dtype))
        else:
            read = partial(_read_groups, self._check_files, layout, dtype, self.filter)
            readers = [partial(read, fragment, number) for number, fragment in enumerate(self._fragments(layout))]
        if isinstance(fields.X_err, numbers.Real):
            return [partial(_with_error, read, float(fields.X_err)) for read in readers]
        return readers

    def _check_files(self, *files: str) -> None:
        """Raise where files are not those that the data set was made of."""
        known: dict[str, tuple[int, int]] = self.__dict__["_stamps"]
        for name, stamp in _stamps(self.dataset, [name for name in files if name in known]).items():
            if stamp != known[name]:
                raise changed(f"{name} was written")

    def part_rows(self, fields: Fields, names: Sequence[str] | None = None) -> list[int]:
        """Return the number of rows of every part, which the files tell."""
        layout = layout_of(self.dataset.schema.names, fields, names or self.columns)
        if self.cache is not None:
            dtype = _common_dtype(self.dataset.schema, layout)
            return self._cached(layout, dtype).part_rows(partial(self._batches, layout, dtype))
        return [int(fragment.count_rows(filter=self.filter)) for fragment in self._fragments(layout)]

    def _cached(self, layout: SourceLayout, dtype: object) -> Cache:
        """Return the cache of these columns."""
        files = getattr(self.dataset, "files", None)
        if not files or type(self.data).__module__.startswith("polars"):
            raise ValueError(
                f"cache needs a table of files, which have names and times; got {type(self.data).__name__}"
            )
        stamps = [
            (str(Path(name).resolve()) if Path(name).exists() else name, *stamp)
            for name, stamp in self.__dict__["_stamps"].items()
        ]
        return Cache(self.cache, stamps, layout, dtype, str(self.filter))

    def _batches(self, layout: SourceLayout, dtype: object) -> Iterator[Part]:
        """Yield all rows, some at a time, whatever the files are."""
        arrow = needed("pyarrow", "a table", "cli")
        columns = list(dict.fromkeys(layout.used))
        number = 0
        for fragment in self.dataset.get_fragments(filter=self.filter):
            schema = self.dataset.schema
            for batch in fragment.to_batches(schema=schema, columns=columns, filter=self.filter, use_threads=False):
                yield part_of_table(arrow.Table.from_batches([batch]), layout, dtype, number)
                number += 1
        self._check_files(*self.dataset.files)

    def _fragments(self, layout: SourceLayout) -> list[Any]:
        """Return pieces of files of about ``PART_BYTES`` of values each."""
        pieces = []
        for fragment in self.dataset.get_fragments(filter=self.filter):
            if not hasattr(fragment, "row_groups"):
                pieces.append(fragment)
                continue
            wanted: list[int] = []
            rows = 0
            for group in fragment.row_groups:
                if wanted and (rows + group.num_rows) * len(layout.features) * 4 > PART_BYTES:
                    pieces.append(fragment.subset(row_group_ids=wanted))
                    wanted, rows = [], 0
                wanted.append(group.id)
                rows += group.num_rows
            if wanted:
                pieces.append(fragment.subset(row_group_ids=wanted))
        if not pieces:
            raise ValueError("the data set has no files with rows")
        return pieces


def _dataset(data: Any, owner: object) -> Any:
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
    kind = "csv" if all(path.endswith((".csv", ".csv.gz")) for path in paths) else "parquet"
    return dataset.dataset(paths if len(paths) > 1 else paths[0], format=kind)


def _matching(pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        if not Path(pattern).exists():
            raise FileNotFoundError(f"no file or directory {pattern!r}")
        return [pattern]
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths:
        raise FileNotFoundError(f"no file fits {pattern!r}")
    return paths


def _common_dtype(schema: Any, layout: SourceLayout) -> Any:
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


def _stamps(dataset: Any, files: list[str] | None = None) -> dict[str, tuple[int, int]]:
    """Return sizes and times of the last change of files, by default all of a data set; one in memory has none."""
    files = getattr(dataset, "files", []) if files is None else files
    known = dataset.filesystem.get_file_info(files) if files else []
    return {info.path: (int(info.size or 0), int(info.mtime_ns or 0)) for info in known}


def _with_error(read: Callable[[], Part], error: float) -> Part:
    part = read()
    return part._replace(X_err=np.full(part.X.shape[0], error))


def _read_groups(
    check: Callable[[str], None], layout: SourceLayout, dtype: object, chosen: Any, fragment: Any, number: int
) -> Part:
    try:
        table = fragment.to_table(columns=list(dict.fromkeys(layout.used)), filter=chosen, use_threads=False)
    finally:
        check(getattr(fragment, "path", ""))
    return part_of_table(table, layout, dtype, number)


def part_of_table(table: Values, layout: SourceLayout, dtype: Any, number: int) -> Part:
    """Return a table of Arrow as a part."""
    y = None if layout.y is None else _labels(table, layout.y, number)
    weight = None if layout.weight is None else _column(table, layout.weight)
    if layout.has_errors:
        X, errors = layout.errors({name: _column(table, name) for name in layout.columns.numbers}, number)
        return as_part(X.astype(dtype, copy=False), number, y, weight, errors)
    X = _matrix([_column(table, name) for name in layout.features], table.num_rows, dtype)
    return as_part(X, number, y, weight)


def _column(table: Values, name: str) -> MixedArray:
    values: MixedArray = table.column(name).to_numpy()
    return values if values.dtype.kind in "fiub" else as_numbers(values, f"column {name!r}")


def _labels(table: Values, name: str, number: int) -> MixedArray:
    column = table.column(name)
    if column.null_count:
        raise ValueError(
            f"y must have no missing labels; column {name!r} has {column.null_count} in partition {number}"
        )
    values = column.combine_chunks()
    values = values.dictionary_decode() if hasattr(values, "dictionary_decode") else values
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _matrix(columns: list[MixedArray], n_rows: int, dtype: Any) -> MixedArray:
    """Return columns side by side, a few rows at a time: these stay in cache."""
    matrix = np.empty((n_rows, len(columns)), dtype)
    for first in range(0, n_rows, 1024):
        where = slice(first, first + 1024)
        for j, column in enumerate(columns):
            matrix[where, j] = column[where]
    return matrix
