"""Arrays and frames of Dask."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gaussguru._rows.cluster import find_client
from gaussguru._rows.streams import Part
from gaussguru._utils.frames import refuse_times
from gaussguru._utils.types import ErrorBars, Labels, Record, Values
from gaussguru.sources.base import Fields, Source, as_part, needed
from gaussguru.sources.layout import SourceLayout, layout_of


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
    or arrays if the sizes of the chunks are known. Columns of a frame of errors are found by the names of the features.

    Examples
    --------
    >>> import dask.array as da
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Dask
    >>> X = da.random.default_rng(0).normal(size=(1000, 3), chunks=(250, 3))
    >>> GuruClassifier(0.3).fit(Dask(X), X[:, 0] > 0).converged_
    True
    """

    X: Values
    client: Any = None
    columns: tuple[str, ...] | list[str] | None = None
    is_lazy = True

    def on(self, client: object) -> "Dask":
        """Return the same source with another client."""
        return replace(self, client=client)

    def sizes(self, n_parts: int) -> Sequence[float]:
        """Return the number of rows of each part, NaN if unknown."""
        return super().sizes(n_parts) if self.is_frame else list(self.X.chunks[0])

    def part_rows(self, fields: Fields, names: Sequence[str] | None = None) -> list[int]:
        """Return the number of rows of every part; unknown sizes are computed."""
        parts = self.delayed(fields, names)
        known = self.sizes(len(parts))
        if not np.isnan(known).any():
            return [int(n) for n in known]
        dask, client = needed("dask", "a collection of Dask", "dask"), find_client(self.client)
        lengths = [dask.delayed(_n_rows, pure=False)(part) for part in parts]
        sizes = dask.compute(*lengths) if client is None else client.gather(client.compute(lengths))
        return [int(n) for n in sizes]

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
            blocks, edges = list(frame[list(dict.fromkeys(layout.used))].to_delayed()), None
            # Those that are no columns of the frame.
            fields = Fields(*(None if isinstance(field, str | list) else field for field in within))
        else:
            array = _two_dimensions(self.X)
            blocks, edges = array.to_delayed().ravel().tolist(), _edges(array.chunks[0])
        others = [_blocks_like(field, len(blocks), edges, name)
                  for field, name in zip(fields, ("y", "sample_weight", "X_err"), strict=True)]  # fmt: skip
        make = dask.delayed(_dask_part, pure=False)
        return [
            make(block, *(other if other is None else other[number] for other in others), number, layout,
                 dask_key_name=f"guru-part-{os.urandom(6).hex()}-{number}")
            for number, block in enumerate(blocks)
        ]  # fmt: skip

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> list[Callable[[], Part]]:
        """Return functions that compute one part each in this thread."""
        return [partial(part.compute, scheduler="synchronous") for part in self.delayed(fields, names)]


def _one_frame(frame: Any, fields: Fields, chosen: Sequence[str] | None) -> tuple[Any, Fields, Sequence[str] | None]:
    """Return a frame with labels, weights and errors that are collections added as columns, and the features.

    Collections that are computed separately may have different partitions: Dask merges small ones.
    """
    new: Record = {}
    named = dict(zip(Fields._fields, fields, strict=True))
    for name in ("y", "weight"):
        if hasattr(named[name], "to_frame") and hasattr(named[name], "to_delayed"):
            new[f"__guru_{name}"] = named[name]
            named[name] = f"__guru_{name}"
    errors = fields.X_err
    has_table = hasattr(errors, "columns") and hasattr(errors, "to_delayed")
    if not new and not has_table:
        return frame, fields, chosen
    taken = {name for name in named.values() if isinstance(name, str)}
    if chosen is None:
        chosen = layout_of([str(name) for name in frame.columns], Fields(X_err=errors), None).features
        chosen = [name for name in chosen if name not in taken]
    if has_table:
        known = [str(name) for name in errors.columns]
        if sorted(known) != sorted(chosen):
            raise ValueError(f"X_err must have the columns of X, {list(chosen)!r}; got {known!r}")
        new |= {f"__guru_error_{name}": errors[name] for name in chosen}  # by name, as the features
        named["X_err"] = [f"__guru_error_{name}" for name in chosen]
    return frame.assign(**new), Fields(**named), chosen


def _n_rows(part: Part) -> int:
    return int(part.X.shape[0])


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
            field_edges = _edges(chunks[0])
            if edges is not None and field_edges is not None and field_edges != edges:
                if (n_rows := field_edges[-1]) != edges[-1]:
                    raise ValueError(f"{name} must have a row for each of the {edges[-1]} samples of X; got {n_rows}")
                field = field.rechunk({0: tuple(np.diff(edges).tolist())})
            if field.ndim > 1:
                field = field.rechunk(dict.fromkeys(range(1, field.ndim), -1))
        blocks: list[Any] = np.asarray(field.to_delayed(), dtype=object).ravel().tolist()
        if len(blocks) != n_blocks:
            raise ValueError(f"{name} must have the {n_blocks} partitions of X; got {len(blocks)}")
        return blocks
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


def _dask_part(X: Values, y: Labels, weight: Any, X_err: ErrorBars, number: int, layout: SourceLayout | None) -> Part:
    if layout is not None:
        frame = X
        refuse_times(frame[layout.columns.numbers], "X")
        X = frame[layout.features].to_numpy(dtype=_frame_dtype(frame, layout.features), na_value=np.nan)
        y = frame[layout.y].to_numpy() if layout.y is not None else y
        weight = frame[layout.weight].to_numpy() if layout.weight is not None else weight
        if layout.has_errors:
            dtype = X.dtype
            columns = {name: frame[name].to_numpy(np.float64, na_value=np.nan) for name in layout.columns.numbers}
            X, X_err = layout.errors(columns, number)
            X = X.astype(dtype, copy=False)
    if isinstance(weight, float):
        weight = np.full(X.shape[0], weight)
    return as_part(X, number, y, weight, X_err)


def _frame_dtype(frame: Any, names: list[str]) -> Any:
    kinds = [np.dtype(getattr(frame[name].dtype, "numpy_dtype", frame[name].dtype)) for name in names]
    small = all(
        (kind.kind == "f" and kind.itemsize <= 4) or (kind.kind in "iu" and kind.itemsize <= 2) for kind in kinds
    )
    return np.float32 if small else np.float64
