"""Rows of tables in the terms of a layout: features with errors, and labels.

A layout is made once, of the table that a model learns from (:mod:`gaussguru._tables.plan`), and kept with the
model. :func:`read_parts` gives any table in the terms of a layout, checked: no value that the model could not use gets
through, no row is lost. It serves the command, and errors name its options.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from gaussguru._errors.columns import LARGEST, Cells
from gaussguru._errors.given import Limits
from gaussguru._errors.missing import standard_deviations
from gaussguru._rows.streams import mapped_rows
from gaussguru._rows.validation import value_beyond_others
from gaussguru._tables.base import NO_VALUE, TableReader, column_of, nearest
from gaussguru._tables.contents import TableError, quoted
from gaussguru._tables.files import Libsvm
from gaussguru._tables.layout import Layout
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import MixedArray, Record, Values

# Characters of a label. Arrays of texts take as much for every row as the longest needs: 800 bytes.
LONGEST_LABEL = 200


class TablePart(NamedTuple):
    """Some rows of a table.

    ``X`` and ``X_err`` have the rows that are ``complete``; where ``missing="drop"`` these may be fewer than in the
    table. Labels are texts, None where there is none; ``kept`` are columns as they are, of all rows. ``weights`` and
    ``groups``, which are texts, are there for a fit only.
    """

    X: Values
    X_err: Array | Limits | None
    y: MixedArray | None
    complete: NDArray[np.bool_]
    kept: Record
    weights: Array | None = None
    groups: MixedArray | None = None

    @property
    def n_rows(self) -> int:
        """How many rows of the table these are, complete or not."""
        return len(self.complete)

    def arrays(self) -> Record:
        """Return values, errors, limits, labels, weights and groups of the complete rows, those that there are."""
        errors, limits = (self.X_err.err, self.X_err.sides) if isinstance(self.X_err, Limits) else (self.X_err, None)
        values = self.X.to_numpy() if isinstance(self.X, pd.DataFrame) else self.X
        found = {"values": values, "errors": errors, "limits": limits, "labels": self.y}
        found |= {"weights": self.weights, "groups": self.groups}
        return {name: array for name, array in found.items() if array is not None}


def read_parts(
    table: TableReader,
    layout: Layout,
    *,
    labels: bool,
    keep: Iterable[str] = (),
    most_rows: int | None = None,
    learning: bool = False,
    notes: list[str] | None = None,
) -> Iterator[TablePart]:
    """Yield a table in parts, checked.

    Parameters
    ----------
    table : TableReader
    layout : Layout
    labels : bool
        Whether the target is needed.
    keep : iterable of str
        Other columns to be passed on.
    most_rows : int, default=None
        Of a part.
    learning : bool, default=False
        Whether to read weights and groups, and to refuse a value beside which all others of its column would be lost.
    notes : list of str, default=None
        Gets, at the end, what the user of a prediction should know.
    """
    sparse, keep = isinstance(table, Libsvm), list(keep)
    target = (layout.target or "label") if labels else None
    weighting, grouping = (layout.weights, layout.groups) if learning else (None, None)
    others = list(dict.fromkeys(filter(None, [*layout.texts, target, grouping, *keep])))
    _check_columns(table, layout, target, keep)
    gaps, cells = _Gaps(table.name, layout, target), Cells(table.name, TableError)
    wanted = [*layout.numbers, *filter(None, [weighting])]
    for numbers, columns in _cut(table.parts(wanted, others, layout.words), most_rows):
        weights = _weights(numbers[:, -1], weighting, cells, gaps.n_rows) if weighting else None
        groups = _groups(columns[grouping], table.name, grouping, cells, gaps.n_rows) if grouping else None
        y = _labels(columns[target], table.place(target), layout.words) if target else None
        if sparse:
            X, X_err = _checked_sparse(table.name, numbers, gaps.n_rows), None
        else:
            texts = {name: _labels(columns[name], table.place(name), layout.words) for name in layout.texts}
            X, X_err = layout.measured(numbers, texts, cells, gaps.n_rows)
        if learning and not sparse and not cells.count:
            _check_extremes(table.name, layout.values, X, gaps.n_rows)
        kept = {name: columns[name] for name in keep}
        part = gaps.part(X, X_err, y, kept, weights, groups, sparse=sparse)
        if not gaps.unlabelled and not gaps.empty.any() and not cells.count:  # else there are more to be counted
            yield part
    cells.check()
    gaps.check()
    if notes is not None:
        notes += layout.notes(cells)


def checked_frame(frame: pd.DataFrame, layout: Layout, name: str) -> TablePart:
    """Return some rows of a table of this name, with their labels, checked as :func:`read_parts` does."""
    place = f"{name}, in a part of it"
    gaps, cells = _Gaps(name, layout, layout.target), Cells(place, TableError)
    y, *others = (
        _labels(pa.array(frame[column].to_numpy(object), from_pandas=True), column_of(name, str(column)), layout.words)
        for column in (layout.target, *layout.texts)
    )
    texts = dict(zip(layout.texts, others, strict=True))
    X, X_err = layout.measured(frame[layout.numbers].to_numpy(np.float64), texts, cells)
    weights = _weights(frame[layout.weights].to_numpy(np.float64), layout.weights, cells) if layout.weights else None
    cells.check()
    _check_extremes(place, layout.values, X, 0)
    part = gaps.part(X, X_err, y, {}, weights)
    gaps.check()
    return part


def _check_columns(table: TableReader, layout: Layout, target: str | None, keep: list[str]) -> None:
    """Check that all columns are there; with libsvm, that a model and options do without names."""
    needed = [*layout.numbers, *layout.texts]
    if isinstance(table, Libsvm):
        if not all(re.fullmatch("[0-9]{1,18}", name) for name in needed):
            raise TableError(f"{table.name}: libsvm has no names, and the model was fitted to {quoted(needed[0])}, ...")
        if keep:
            raise TableError(f"{table.name}: libsvm has no names of columns, so no --keep {keep[0]}")
        return
    there = set(table.columns)
    absent = [name for name in needed if name not in there]
    if absent:
        rest = f", nor {', '.join(map(quoted, absent[1:6]))}" if len(absent) > 1 else ""
        known = set(layout.numbers)
        near = nearest(absent[0], (column for column in table.columns if column not in known))
        raise TableError(
            f"{table.name} has no column {quoted(absent[0])}{rest}, which the model needs"
            + (f"; did you mean {near!r}?" if near else "")
        )
    if target:
        table.require(target, "the labels")
    for name in keep:
        table.require(name, "--keep")


class _Gaps:
    """Which rows lack a value or a label, and how many of those that may not."""

    def __init__(self, name: str, layout: Layout, target: str | None) -> None:
        self.name, self.layout, self.target, self.n_rows = name, layout, target, 0
        self.empty, self.unlabelled = np.zeros(len(layout.features), dtype=np.intp), list[int]()

    def part(
        self, X: Values, X_err: Array | Limits | None, y: MixedArray | None, kept: Record,
        weights: Array | None = None, groups: MixedArray | None = None, *, sparse: bool = False,
    ) -> TablePart:  # fmt: skip
        """Return the next rows, without those that a model cannot use."""
        n, what = X.shape[0], self.layout.missing
        missing = np.zeros((n, 0), dtype=bool) if sparse else np.isnan(X)
        if X_err is not None:
            errors = standard_deviations(X_err, X.shape)
            missing |= np.isposinf(errors) | np.isnan(errors)
        complete: NDArray[np.bool_] = np.full(n, True)
        if what in ("error", "drop"):
            complete &= ~missing.any(axis=1)
        if what == "error" and missing.any():
            self.empty += missing.sum(axis=0)
        if y is not None:
            labelled = np.array(pd.notna(y))
            if what != "drop":
                self.unlabelled += (self.n_rows + 1 + np.flatnonzero(~labelled)).tolist()
            complete &= labelled
        self.n_rows += n
        if not complete.all():
            given: list[Values] = [X, X_err, y, weights, groups]
            X, X_err, y, weights, groups = (None if rows is None else rows[complete] for rows in given)
        if not sparse:
            X = pd.DataFrame(X, columns=self.layout.features, copy=False)
        return TablePart(X, X_err, y, complete, kept, weights, groups)

    def check(self) -> None:
        """Refuse the table if rows lack what they must have."""
        name, n_rows = self.name, self.n_rows
        if self.unlabelled:
            raise TableError(
                f"{name} has no label in {len(self.unlabelled)} of {n_rows} rows, the first is row "
                f"{self.unlabelled[0]} (column {self.target!r}); a model fitted with --missing drop leaves such rows "
                "out"
            )
        if self.empty.any():
            pairs = zip(self.layout.features, self.empty, strict=True)
            counts = [f"{count} in {quoted(feature)}" for feature, count in pairs if count]
            more = f" and more in {len(counts) - 6} other columns" if len(counts) > 6 else ""
            raise TableError(
                f"{name} lacks values: {', '.join(counts[:6])}{more}, of {n_rows} rows; a fit with --missing "
                "unmeasured, mean or drop allows for that"
            )


def _cut(parts: Iterable[tuple[Values, Record]], most_rows: int | None) -> Iterator[tuple[Values, Record]]:
    """Yield parts with no more rows than these."""
    for numbers, columns in parts:
        n = numbers.shape[0]
        step = max(1, n if most_rows is None else min(n, most_rows))
        for first in range(0, n, step):
            rows = {name: column.slice(first, step) for name, column in columns.items()}
            yield numbers if step == n else numbers[first : first + step], rows


def _check_extremes(table: str, features: list[str], X: Array, first: int) -> None:
    """Raise if a value is so large that the spread of the others vanishes beside it when both are squared."""
    if (lost := value_beyond_others(X[:, : len(features)])) is not None:
        i, j, spread = lost
        raise TableError(
            f"{column_of(table, features[j])} has {X[i, j]:g} in row {first + i + 1}, beside which the other values, "
            f"with a spread of {spread:.3g}, would be lost; expected is an empty field where there is no value. "
            f"Leave out the column with --drop {quoted(features[j])}, or the row"
        )


def _checked_sparse(table: str, X: sp.csr_matrix, first: int) -> sp.csr_matrix:
    """Return sparse values, of which all must be finite."""
    wrong = ~(np.abs(X.data) <= LARGEST)
    if wrong.any():
        place = int(np.argmax(wrong))
        row = first + int(np.searchsorted(X.indptr, place, side="right"))
        raise TableError(f"{table} has {X.data[place]:g} in row {row}; expected are numbers of at most {LARGEST:g}")
    return X


def _weights(weights: Array, name: str, cells: Cells, first: int = 0) -> Array:
    """Return the weights of some rows, of which all must be 0 or more."""
    wrong = ~((weights >= 0) & (weights <= 1e80))  # sums of weights stay far from overflow
    cells.add(wrong[:, np.newaxis], [name], weights[:, np.newaxis], "is a weight: a number from 0 on", first)
    return np.array(weights)  # not a part of all columns, which would stay in memory


def _groups(column: pa.Array, table: str, name: str, cells: Cells, first: int) -> MixedArray:
    """Return the groups of some rows as texts; every row must have one."""
    groups = _labels(column, column_of(table, name))[:, np.newaxis]
    cells.add(groups == None, [name], np.where(groups == None, "", groups), "is a group for every row", first)  # noqa: E711
    return groups[:, 0]


def _labels(column: pa.Array, place: str, words: Sequence[str] = ()) -> MixedArray:
    """Return labels as texts, None where there is none, or one of the words that stand for none."""
    try:
        encoded = column.dictionary_encode()
        texts = pc.utf8_trim_whitespace(pc.cast(encoded.dictionary, pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TableError(
            f"{place} has labels of type {str(column.type)[:40]}; expected are texts in UTF-8, whole numbers, or true "
            "and false"
        ) from None
    if (longest := pc.max(pc.utf8_length(texts)).as_py() or 0) > LONGEST_LABEL:
        raise TableError(f"{place} has a label of {longest} characters; expected are at most {LONGEST_LABEL}")
    known = [None if text in NO_VALUE or text in words else text for text in texts.to_pylist()]
    codes = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    labels: MixedArray = np.array([*known, None], dtype=object)[codes]
    return labels


def label_values(texts: Iterable[str]) -> tuple[str, Record]:
    """Return what labels are, and what each text stands for: whole numbers, truth values, or themselves.

    Parameters
    ----------
    texts : iterable of str
        All different labels of a table.

    Returns
    -------
    kind : {"number", "bool", "text"}
    values : dict from text to value
    """
    texts = list(texts)
    for kind in ("number", "bool"):
        try:
            return kind, {text: label_value(text, kind) for text in texts}
        except ValueError:
            continue
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return "text", {text: text for text in texts}
    if any(not number.is_integer() for number in numbers):
        fraction = next(text for text, number in zip(texts, numbers, strict=True) if not number.is_integer())
        raise TableError(
            f"the target has numbers that are not whole ({fraction}), {len(texts)} different ones; "
            "expected are classes: this is no regression"
        )
    return "text", {text: text for text in texts}


def label_value(text: str, kind: str) -> Any:
    """Return the value of one label, or raise ValueError."""
    if kind == "text":
        return text
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "number" and (found := re.fullmatch(r"([-+]?(?:0|[1-9]\d{0,17}))(?:\.0*)?", text)):
        return int(found[1])
    raise ValueError(f"{text!r} is no label of kind {kind}")


class Data(NamedTuple):
    """A whole table: values and errors of the rows that can be used, labels as texts, and how many rows there were."""

    name: str
    X: Values
    X_err: Array | Limits | None
    y: MixedArray
    layout: Layout
    n_rows: int
    weights: Array | None = None
    groups: MixedArray | None = None


def read_all(table: TableReader, layout: Layout, *, learning: bool = False) -> Data:
    """Return a whole table with its labels.

    Parameters
    ----------
    table : TableReader
    layout : Layout
    learning : bool, default=False
        As in :func:`read_parts`.

    Returns
    -------
    Data
        With the layout; one without features, of a libsvm file to learn from, has them only now.
    """
    sparse, n_rows, parts = isinstance(table, Libsvm), 0, dict[str, list[Values]]()
    for part in read_parts(table, layout, labels=True, learning=learning):
        n_rows += part.n_rows
        for name, values in part.arrays().items():
            is_number = not sparse and values.dtype.kind == "f"
            # The memory of these copies is given back to the system when they are freed: before the fit begins.
            kept = mapped_rows(values, np.arange(len(values))) if is_number else values
            parts.setdefault(name, []).append(kept)
    if not n_rows:
        raise TableError(f"{table.name} has a header and no rows" if table.columns else f"{table.name} is empty")
    if not sum(map(len, parts["labels"])):
        raise TableError(f"{table.name}: --missing drop leaves none of {n_rows} rows")
    y = np.concatenate(parts.pop("labels"))
    if sparse:
        stacked, layout = _stack_sparse(parts["values"], layout, table.name)
        return Data(table.name, stacked, None, y, layout, n_rows)
    frame = pd.DataFrame(_stack(parts.pop("values")), columns=layout.features, copy=False)
    X_err: Array | Limits | None = _stack(parts.pop("errors")) if "errors" in parts else None
    others = {name: np.concatenate(each) for name, each in parts.items()}
    if "limits" in others:
        X_err = Limits(X_err, others.pop("limits"))
    return Data(table.name, frame, X_err, y, layout, n_rows, **others)


def _stack(parts: list[Array]) -> Array:
    """Return parts one below the other, giving each back as soon as it is copied: they are never all there twice."""
    stacked = np.empty((sum(map(len, parts)), *parts[0].shape[1:]))
    last = len(stacked)
    while parts:
        part = parts.pop()
        last -= len(part)
        stacked[last : last + len(part)] = part
    return stacked


def _stack_sparse(parts: list[Values], layout: Layout, name: str) -> tuple[Values, Layout]:
    width = max(part.shape[1] for part in parts)
    for part in parts:
        part.resize(part.shape[0], width)
    X = sp.csr_matrix(sp.vstack(parts, format="csr"))
    if layout.values:
        return X, layout
    start = 0 if not width or (X.indices == 0).any() else 1  # indices from 1 on, as is usual
    if width <= start:
        raise TableError(f"{name} has no feature: expected are lines 'label index:value index:value ...'")
    return X[:, start:], replace(layout, values=[str(j) for j in range(start, width)])
