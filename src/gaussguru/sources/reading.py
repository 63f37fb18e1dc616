"""Sources opened for reading, and subsamples of them."""

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.parse import stacked_errors
from gaussguru._rows.cluster import Cluster, Session, find_client
from gaussguru._rows.draws import draw_evenly
from gaussguru._rows.streams import DRAWN_BYTES, Blocks, LocalParts, Part, check_part_weights
from gaussguru._rows.threads import Pool, n_threads
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import BlockMap, ErrorBars, Labels, MixedArray, Values
from gaussguru.sources.arrays import Arrays, row_bytes
from gaussguru.sources.base import Fields, Source
from gaussguru.sources.dask_parts import Dask
from gaussguru.sources.tables import Table

# A larger memory map is read in parts automatically.
STREAMED_BYTES = 1 << 30
# Default upper limit on the samples of a subsample.
MOST_DRAWN = 100_000


def as_source(X: object, client: object = None) -> Source | None:
    """Return samples as a source, or None where they are in memory."""
    if isinstance(X, Source):
        return X if client is None else X.on(client)
    if isinstance(X, np.memmap):
        return Arrays(X) if X.nbytes > STREAMED_BYTES else None
    module = type(X).__module__.split(".")[0]
    if module in ("dask", "dask_expr"):
        return Dask(X, client)
    if module in ("polars", "pyarrow") and type(X).__name__ in ("LazyFrame", "FileSystemDataset", "UnionDataset"):
        return Table(X)
    return None


class Reading:
    """A context in which the parts of a source can be read."""

    def __init__(self, source: Source, fields: Fields, names: Sequence[str] | None, n_jobs: int | None) -> None:
        self._source, self._fields, self._names, self._functions = source.unwrapped(fields, names)
        # One thread more than cores: one reads while the others compute.
        self.pool = Pool(n_threads(n_jobs) + 1)
        client = find_client(source.client) if source.is_lazy else None
        self.session: AbstractContextManager[Session | None] = nullcontext() if client is None else Session(client)

    def opened(self, mapped: BlockMap, session: Session | None) -> Blocks:
        """Return the parts."""
        source, fields, names = self._source, self._fields, self._names
        blocks: Blocks
        if session is not None:
            blocks = Cluster.of(session, session.compute(source.delayed(fields, names)))
        else:
            parts = source.parts(fields, names)
            stream = None if parts is not None else source.stream(fields)  # type: ignore[misc]
            blocks = LocalParts(parts, stream, mapped)
        for function in self._functions:
            blocks = blocks.then(_applied, kept=False, function=function)
        return blocks


def _applied(part: Part, function: Callable[[Part], Part]) -> Part:
    return function(part)


def subsample(
    X: object,
    y: object = None,
    sample_weight: object = None,
    X_err: object = None,
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
    return subsample_with_groups(source, Fields(y, sample_weight, X_err), None, n_samples, random_state, n_jobs)[:4]


def subsample_with_groups(
    source: Source, fields: Fields, groups: Any, n_samples: int | None = None, random_state: int = 0,
    n_jobs: int | None = None,
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    """Return what :func:`subsample` does, and the groups of these samples, of an array with those of all samples."""
    reading = Reading(source, fields, None, n_jobs)
    with reading.pool as mapped, reading.session as session:
        samples = drawn(reading.opened(mapped, session), n_samples, random_state)
    if groups is not None:
        groups = groups if hasattr(groups, "shape") else np.asarray(groups)
        if groups.shape != (samples.n_read,):
            raise ValueError(
                f"groups must be an array with an entry for each of the {samples.n_read} samples of X; got shape "
                f"{groups.shape}"
            )
        groups = groups[samples.rows]
    return named(samples.X, source.feature_names(fields)), samples.y, samples.weight, samples.X_err, groups


class Subsample(NamedTuple):
    """A subsample of a source in memory.

    ``rows`` are the numbers of its samples in the source, which has ``n_read`` samples, ``n_rows`` of positive weight.
    """

    X: Values
    y: Labels
    weight: Any
    X_err: ErrorBars
    n_rows: int
    n_read: int
    rows: Index

    @property
    def is_all(self) -> bool:
        """Whether these are all samples of the source."""
        return bool(self.X.shape[0] == self.n_rows)


def drawn(parts: Blocks, n_samples: int | None = None, random_state: int = 0) -> Subsample:
    """Draw samples of parts, as :func:`subsample` does; two passes."""
    counts = parts.collected(_label_counts)
    classes = np.unique(np.concatenate([labels for labels, *_ in counts if len(labels)] or [np.zeros(0)]))
    table = np.zeros((len(counts), len(classes)), dtype=np.int64)
    for row, (labels, n_each, *_) in zip(table, counts, strict=True):
        row[np.searchsorted(classes, labels)] = n_each
    if not table.sum():
        raise ValueError("X must have at least one sample of positive weight")
    n = int(table.sum())
    n_bytes = sum(size for *_, size in counts)
    ends = np.cumsum([n_part for _, _, n_part, _ in counts])
    wanted = min(n_samples or min(MOST_DRAWN, int(DRAWN_BYTES * n / max(1, n_bytes))), n)
    # At least 50 samples of each class.
    places, shares = _drawn_places(table, wanted, np.random.default_rng(random_state), 50)
    pieces = parts.collected(_rows_of_part, places, classes=classes)
    rows = np.concatenate([begin + index for begin, (index, *_) in zip([0, *ends[:-1]], pieces, strict=True)])
    _, *arrays, errors_of_parts = zip(*(part for part in pieces if len(part[0])), strict=True)
    values, labels, weights = map(stacked, arrays)
    errors = stacked_errors(errors_of_parts)
    if labels is not None:
        factors = shares.min() / shares  # below 1 for classes that were drawn more often
        if np.any(factors < 1):
            factor = factors[np.searchsorted(classes, labels)]
            weights = factor if weights is None else weights * factor
    return Subsample(values, labels, weights, errors, n, int(ends[-1]), rows)


def _drawn_places(counts: Index, n_rows: int, rng: np.random.Generator, least: int) -> tuple[list[list[Index]], Array]:
    """Return row numbers to draw of every part and class, counted within the class, and the fraction of each class.

    ``counts`` holds the number of rows of every part and class. Classes are drawn in proportion, but at least ``least``
    rows of each, or all it has.
    """
    totals = counts.sum(axis=0)
    wanted: list[list[Index]] = [[] for _ in counts]
    shares = np.maximum(np.minimum(totals, least), np.round(totals * (n_rows / totals.sum()))).astype(np.int64)
    for of_class, total, share in zip(counts.T, totals.tolist(), shares.tolist(), strict=True):
        ends = np.cumsum(of_class)
        drawn = draw_evenly(total, share, rng)
        cuts = np.searchsorted(drawn, ends)
        for of_part, first, last, end, count in zip(wanted, [0, *cuts[:-1]], cuts, ends, of_class, strict=True):
            of_part.append(drawn[first:last] - (end - count))
    return wanted, shares / totals


def _label_counts(part: Part) -> tuple[MixedArray, MixedArray, int, int]:
    check_part_weights(part)
    used = np.ones(part.X.shape[0], dtype=bool) if part.weight is None else part.weight > 0
    labels = np.zeros(part.X.shape[0], dtype=np.int8) if part.y is None else part.y
    return *np.unique(labels[used], return_counts=True), len(used), row_bytes(part.X) * len(used)


def _rows_of_part(part: Part, wanted: list[Any], classes: MixedArray) -> tuple[Any, ...]:
    """Return the numbers of rows of a part, and these rows."""
    used = np.ones(part.X.shape[0], dtype=bool) if part.weight is None else part.weight > 0
    labels = np.zeros(part.X.shape[0], dtype=np.int8) if part.y is None else part.y
    pairs = zip(classes, wanted, strict=True)
    index = np.sort(np.concatenate([np.flatnonzero(used & (labels == label))[places] for label, places in pairs]))
    return index, *(None if field is None else take_rows(field, index) for field in part[:4])


def stacked(parts: Sequence[Any]) -> Any:
    """Return the arrays, sparse matrices or columns of parts as one; of tuples, each entry."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, tuple):
        return tuple(map(stacked, zip(*parts, strict=True)))
    if sp.issparse(first):
        return sp.vstack(parts, format="csr")
    if is_dataclass(first) and not isinstance(first, type):  # columns of several arrays
        names = [field.name for field in fields_of(first)]
        return type(first)(*(stacked([getattr(part, name) for part in parts]) for name in names))
    return np.concatenate(parts)


def named(X: object, names: list[str] | None) -> Any:
    """Return samples as a DataFrame if their features have names and pandas is installed."""
    if names is None or sp.issparse(X):
        return X
    try:
        return importlib.import_module("pandas").DataFrame(X, columns=names)
    except ImportError:
        return X
