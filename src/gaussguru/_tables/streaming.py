"""Models of tables that do not fit in memory: files that are converted once to arrays on disk, or read by a cluster.

Serves the command, and errors name its options.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.preprocessing import StandardScaler

from gaussguru._errors.columns import Cells
from gaussguru._errors.given import Limits
from gaussguru._errors.missing import standard_deviations
from gaussguru._tables.base import NO_VALUE, TableReader, listed_numbers
from gaussguru._tables.contents import TableError, quoted
from gaussguru._tables.files import format_of
from gaussguru._tables.fitting import Moments, TrainingRows, used_rows
from gaussguru._tables.layout import Layout
from gaussguru._tables.schema import checked_frame, read_parts
from gaussguru._utils.linalg import EPS, Array, Index
from gaussguru._utils.types import Labels, MixedArray, Values
from gaussguru.sources import Arrays, Dask
from gaussguru.sources.base import needed

# Bytes of a table beyond which it is not read into memory.
LARGE = 2 << 30


def _name_of(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} files from {files[0]} on"


def is_large(files: Sequence[str]) -> bool:
    """Return whether files are to be read in parts: several, or one that is large."""
    if len(files) > 1 or not os.path.isfile(files[0]):
        return len(files) > 1
    # libsvm is not read in parts: it is tried as long as it may fit. A fit needs two to three times the table.
    format = format_of(files[0])
    most = LARGE if format == "libsvm" else min(LARGE, _memory() / 8)
    if format == "parquet":  # it takes what its columns unpack to, and text as much as on disk
        with suppress(pa.ArrowException, OSError):  # whoever reads it says what is wrong
            about = pyarrow.parquet.read_metadata(files[0])
            return bool(8 * about.num_rows * about.num_columns > most)
    return os.path.getsize(files[0]) > most


def _memory() -> float:
    """Return the bytes of memory of this machine, or of the container that this process is in; no limit if unknown."""
    limits = [math.inf]
    with suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):  # "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits)


def convert(
    files: Sequence[str],
    opened: Callable[[str], TableReader],
    layout: Layout,
    directory: str,
    progress: Callable[[str], None],
) -> tuple[TrainingRows, str]:
    """Convert tables to arrays in a directory, reading each once; return their rows, and a digest of the files."""
    _check_layout(layout)
    names = ("values", "labels", "errors", "limits", "weights", "groups")
    paths = {name: os.path.join(directory, name) for name in names}
    # Labels and groups are numbered in the order in which they come.
    places: dict[str, int] = {}
    groups: dict[str, int] = {}
    scaler, digest, n_rows = StandardScaler(), hashlib.sha256(), 0
    with ExitStack() as stack:
        opened_files = {name: stack.enter_context(open(path, "wb")) for name, path in paths.items()}
        for path in files:
            with closing(opened(path)) as table:
                for part in read_parts(table, layout, labels=True, learning=True):
                    n_rows += part.n_rows
                    arrays = part.arrays()
                    for name, known in (("labels", places), ("groups", groups)):
                        numbers = [known.setdefault(text, len(known)) for text in arrays.get(name, ())]
                        arrays[name] = np.array(numbers, dtype=np.int32)
                    if len(arrays["labels"]):
                        with np.errstate(invalid="ignore"):  # a column without any value is refused later
                            scaler.partial_fit(part.X)
                    for name, values in arrays.items():
                        opened_files[name].write(np.ascontiguousarray(values).data)
                    progress(f"converting {path}: {n_rows} rows")
                digest.update(table.sha256().encode())
    if not places:
        raise TableError(f"{files[0]} has no rows that can be used")

    def mapped(name: str, dtype: Any, *shape: int) -> Any:
        path = paths[name]
        return np.memmap(path, dtype=dtype, mode="r").reshape(-1, *shape) if os.path.getsize(path) else None

    d = len(layout.features)
    X, codes, of_rows = mapped("values", np.float64, d), mapped("labels", np.int32), mapped("weights", np.float64)
    X_err = mapped("errors", np.float64, *((d, d) if layout.correlations else (d,)))
    sides = mapped("limits", np.int8, d)
    X_err = X_err if sides is None else Limits(X_err, sides)
    rows = TrainingRows(
        _name_of(files), layout, n_rows, Arrays(X), X_err, list(places), used_rows(codes, of_rows, len(places)),
        partial(_Ranked, codes), Moments.of(scaler), of_rows, None if of_rows is None else float(of_rows.sum()),
        mapped("groups", np.int32),
    )  # fmt: skip
    return rows, digest.hexdigest()


def _check_layout(layout: Layout) -> None:
    if layout.target is None:
        raise TableError("libsvm files are read into memory: one file of at most 2 GB")
    if layout.missing == "mean":
        raise TableError("--missing mean is for files that are read into memory; give --missing drop")


class _Ranked:
    """Label numbers as places among the classes, some at a time."""

    ndim = 1

    def __init__(self, codes: MixedArray, ranks: MixedArray) -> None:
        self.codes, self.ranks, self.shape = codes, ranks, codes.shape

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, where: Index | slice) -> MixedArray:
        return np.asarray(self.ranks[self.codes[where]])


# --- a cluster ----------------------------------------------------------------------------------------------


# Columns of labels and of weights on a cluster.
TEXT, WEIGHT = "__gaussguru_text", "__gaussguru_weight"


@contextmanager
def rows_on_cluster(
    files: Sequence[str], layout: Layout, address: str, *, sep: str | None, decimal: str
) -> Iterator[TrainingRows]:
    """Yield rows of files that the workers of a Dask cluster read themselves, for as long as it is connected."""
    _check_layout(layout)
    if layout.groups is not None:
        raise TableError("--groups is not for --dask, whose workers keep the rows; files are read in parts without it")
    if layout.limits or layout.correlations:
        name, what = quoted(layout.error_columns[-1]), "limits" if layout.limits else "correlations"
        raise TableError(f"--dask takes no {what} (column {name}); leave them out with --drop {name}")
    frames = needed("dask.dataframe", "--dask", "dask")
    dask, distributed = needed("dask", "--dask", "dask"), needed("distributed", "--dask", "dask")
    names, target = [os.path.abspath(path) for path in files], str(layout.target)
    if (format := format_of(files[0])) not in ("csv", "parquet"):
        raise TableError(f"--dask reads CSV and Parquet; {files[0]} is {format}")
    used = [*layout.numbers, *layout.texts, target, *filter(None, [layout.weights])]
    with distributed.Client(address, timeout="20s", set_as_default=True):
        if format == "parquet":
            raw = frames.read_parquet(names, columns=used)
        else:
            csv = partial(frames.read_csv, names, sep=sep or ",", usecols=used, keep_default_na=False)
            kinds = dict.fromkeys([target, *layout.texts], str)
            raw = csv(decimal=decimal, na_values=[*NO_VALUE, *layout.words], dtype=kinds)
        errors = _error_columns(layout)
        weights = [WEIGHT] if layout.weights else []
        meta = dict.fromkeys([*layout.features, *errors, *weights], np.float64) | {TEXT: object}
        # One frame: those made of some columns each need not have the same partitions, Dask reads small files together.
        frame = raw.map_partitions(_checked, layout, _name_of(files), meta=meta)
        X, texts = frame[layout.features], frame[TEXT]
        counted, total = texts.value_counts(sort=False, split_out=1), None
        if weights:
            counted, total = (frame[WEIGHT] > 0).astype(int).groupby(texts).sum(), frame[WEIGHT].sum()
        wanted = raw.shape[0], counted, X.mean(), X.var(ddof=0), total
        try:
            n_rows, counts, means, variances, weight = dask.compute(*wanted)
        except ValueError:
            if format == "csv":  # pandas names one column of those whose cells are no numbers
                _check_cells(dask, csv(dtype=str), layout, decimal, _name_of(files))
            raise
        moments = _moments(means.to_numpy(), variances.to_numpy(), int(n_rows))
        known = counts.index.tolist()

        def encode(ranks: MixedArray) -> Labels:
            return texts.map(dict(zip(known, ranks.tolist(), strict=True)), meta=("__gaussguru_label", np.int64))

        source = Dask(frame, columns=layout.features)
        yield TrainingRows(
            _name_of(files), layout, int(n_rows), source, errors or None, known, counts.to_numpy(), encode, moments,
            WEIGHT if weights else None, None if weight is None else float(weight),
        )  # fmt: skip


def _check_cells(dask: Values, texts: Values, layout: Layout, decimal: str, name: str) -> None:
    """Raise with a list of the cells of files that are no numbers, if there are any."""
    wanted = [*layout.numbers, *filter(None, [layout.weights])]
    parts = [dask.delayed(_broken_cells)(part, wanted, decimal, layout.words) for part in texts[wanted].to_delayed()]
    cells, first = Cells(name, TableError), 0
    for n_rows, found in dask.compute(*parts):
        cells.extend(found, first)
        first += n_rows
    cells.check()


def _broken_cells(part: Values, columns: list[str], decimal: str, words: list[str]) -> tuple[int, Cells]:
    """Return the number of rows of a partition, and the cells that are no numbers."""
    cells, none = Cells("", TableError), pa.array([*NO_VALUE, *words])
    for name in columns:
        listed_numbers(pa.array(part[name].to_numpy(object), from_pandas=True), name, none, cells, 0, decimal)
    return len(part), cells


def _moments(means: Array, variances: Array, n_rows: int) -> Moments:
    """Return moments with the scales of a StandardScaler: 1 for a feature that varies by rounding alone."""
    varies = variances > n_rows * EPS * variances + np.square(n_rows * EPS * means)
    return Moments(means, variances, np.where(varies, np.sqrt(variances), 1.0))


def _checked(part: Values, layout: Layout, name: str) -> Values:
    """Return values, errors and texts of labels of a partition, checked as those of a table in memory."""
    found = checked_frame(part, layout, name)
    errors = {}
    if found.X_err is not None:
        errors = dict(zip(_error_columns(layout), standard_deviations(found.X_err, found.X.shape).T, strict=True))
    weights = {} if found.weights is None else {WEIGHT: found.weights}
    return found.X.assign(**errors, **weights, **{TEXT: found.y})


def _error_columns(layout: Layout) -> list[str]:
    """Return the names of the columns of errors on a cluster."""
    return [f"__gaussguru_error_{name}" for name in layout.features] if layout.has_errors else []
