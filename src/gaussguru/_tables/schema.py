"""What the columns of a table mean: features with error bars, labels, and what to do where there is no value.

A :class:`Layout` is found once, for the table that a model learns from, and kept with the model. :func:`read_parts`
gives any table in the terms of a layout, checked: no value that the model could not use gets through, no row is lost.
Both serve the command, and errors name its options.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from gaussguru._errors import Asymmetric, Limits
from gaussguru._linalg import EPS, Array
from gaussguru._tables.files import NO_VALUE, Libsvm, Table, TableError, column_of, nearest, quoted
from gaussguru.preprocessing import LIMIT, ErrorColumns, error_columns, similar_columns

__all__ = [
    "MISSING",
    "Data",
    "Layout",
    "Part",
    "checked_frame",
    "deviations",
    "label_value",
    "label_values",
    "read_all",
    "read_parts",
]

# What to do where a feature has no value.
MISSING = ("error", "drop", "mean", "unmeasured")
# Beyond, squares overflow.
LARGEST = 1e150
# Characters of a label. Arrays of texts take as much for every row as the longest needs: 800 bytes.
LONGEST_LABEL = 200


@dataclass(frozen=True)
class Layout:
    """Which columns of a table mean what: what a model has to know of the tables that it predicts.

    Parameters
    ----------
    features : list of str
        Columns of values, in the order of the model.
    errors : list of str
        Those of them that have a column of standard deviations, of the same name and ``err_suffix``.
    err_suffix : str
    target : str or None
        The column of labels; None for libsvm.
    missing : {"error", "drop", "mean", "unmeasured"}
        What is done where a feature has no value: refuse the table, leave the row out (a prediction is then empty), put
        the mean of the column (a step of the model does that), or take it for not measured, an infinite error.
    two_sided : list of str
        Those of ``errors`` that have two columns, of the upper and the lower side.
    sides : list of str
        How the names of these two end, after ``err_suffix``: upper, lower (:data:`gaussguru.preprocessing.SIDES`).
    limits : list of str
        Features with a column that says which of their values are limits.
    """

    features: list[str]
    errors: list[str]
    err_suffix: str
    target: str | None
    missing: str
    two_sided: list[str] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        table: Table,
        target: str | None,
        *,
        features: Iterable[str] = (),
        drop: Iterable[str] = (),
        err_suffix: str | None = None,
        errors: bool = True,
        missing: str | None = None,
    ) -> "Layout":
        """Return the layout of a table to learn from.

        Parameters
        ----------
        table : Table
        target : str or None
            The column of labels.
        features : iterable of str
            The columns to use, all of them as values; empty for all others that are not dropped. Error bars come along.
        drop : iterable of str
            Columns to leave out, with their error bars.
        err_suffix : str or None
            How names of error bars end. None is "_err", if there are such columns.
        errors : bool
            Whether to use error bars. If not, their columns, and those of limits, are left out.
        missing : str or None
            None is "unmeasured" with error bars, else "error".
        """
        suffix = "_err" if err_suffix is None else err_suffix
        if not suffix:
            raise TableError("--err-suffix must have a character; to do without error bars give --no-errors")
        chosen, dropped = list(dict.fromkeys(features)), set(drop)
        if isinstance(table, Libsvm):
            _check_libsvm(table, missing, named=any([target is not None, chosen, dropped, err_suffix is not None]))
            return cls([], [], suffix, None, "error")
        target = _check_roles(table, target, chosen, dropped)
        values, found = _split_columns(table, target, dropped, chosen, suffix)
        if not values:
            raise TableError(f"{table.name} has no column for a feature beside the target {target!r}")
        with_bars = [name for name in values if name in found.upper] if errors else []
        if err_suffix is not None and not with_bars:
            raise TableError(
                f"{table.name} has no column whose name is that of a feature and {suffix!r} (--err-suffix)"
            )
        if missing == "mean" and with_bars:
            raise TableError("--missing mean is for tables without errors; 'unmeasured' puts the mean with its error")
        layout = cls(values, with_bars, suffix, target, missing or ("unmeasured" if with_bars else "error"))
        return layout._with_sides_and_limits(found) if with_bars else layout

    def _with_sides_and_limits(self, found: ErrorColumns) -> "Layout":
        """Return the same with the error bars of two columns, and the limits, that columns have by their names."""
        two_sided = [name for name in self.errors if found.upper[name] != found.lower[name]]
        sides = list(found.sides or ()) if two_sided else []
        limits = [name for name in self.features if name in found.limits]
        return replace(self, two_sided=two_sided, sides=sides, limits=limits)

    @property
    def has_errors(self) -> bool:
        """Whether samples have error bars."""
        return bool(self.errors) or self.missing == "unmeasured"

    @property
    def doubts(self) -> list[str]:
        """What a user should know of features that look like the errors of others."""
        hints = similar_columns(self.features)
        return [f"{hints[0]} (now it is a feature), or leave it out with --drop"] if hints else []

    @property
    def error_columns(self) -> list[str]:
        """The columns of error bars, of their lower sides, and of limits, in this order."""
        two = set(self.two_sided)
        ends = self.sides or ["", ""]
        upper = [name + self.err_suffix + (ends[0] if name in two else "") for name in self.errors]
        lower = [name + self.err_suffix + ends[1] for name in self.two_sided]
        return upper + lower + [name + LIMIT for name in self.limits]


def _check_libsvm(table: Table, missing: str | None, *, named: bool) -> None:
    if named:
        raise TableError(
            f"{table.name}: libsvm has no names of columns, so no --target, --features, --drop or --err-suffix"
        )
    if missing not in (None, "error"):
        raise TableError(f"{table.name}: --missing {missing} is not for libsvm, where what is not there is 0")


def _check_roles(table: Table, target: str | None, chosen: list[str], dropped: set[str]) -> str:
    """Check that the columns that options name are there, and have one role each; return the target."""
    if target is None:
        raise TableError(
            f"{table.name}: --target must say which column has the labels; there are {table.some_columns()}"
        )
    table.require(target, "--target")
    for name in dropped:
        table.require(name, "--drop")
    for name in chosen:
        table.require(name, "--features")
        if name == target:
            raise TableError(f"{table.place(name)} is the target and cannot be a feature")
        if name in dropped:
            raise TableError(f"{table.place(name)} cannot be one of --features and left out with --drop")
    return target


def _split_columns(
    table: Table, target: str, dropped: set[str], chosen: list[str], suffix: str
) -> tuple[list[str], ErrorColumns]:
    """Return the features and their columns of errors; where all columns are used, each of these has its feature."""
    there, among_chosen = set(table.columns) - {target, ""}, set(chosen)
    names = [name for name in table.columns if name in there and name not in dropped]
    try:
        found = error_columns([name for name in names if name not in among_chosen], there, suffix)
    except ValueError as error:
        raise TableError(f"{table.name}: {error}; --drop leaves out a column") from None
    if found.alone and not chosen:
        alone = found.alone[0]
        raise TableError(
            f"{table.place(alone)} must be the errors of a column {quoted(alone[: -len(suffix)])}, which is "
            f"not there or the target; leave it out with --drop {quoted(alone)}, or give another --err-suffix"
        )
    if found.halves and not chosen:
        raise TableError(
            f"{table.place(found.halves[0])} is one side of an error bar, and the other is not there; leave it out "
            f"with --drop {quoted(found.halves[0])}"
        )
    if not found.upper:  # a name that ends so may be that of any feature
        found = found._replace(limits={})
    used = {*found.upper.values(), *found.lower.values(), *found.limits.values()}
    return chosen or [name for name in names if name not in used], found


class Part(NamedTuple):
    """Some rows of a table.

    ``X`` and ``X_err`` have the rows that are ``complete``; where ``missing="drop"`` these may be fewer than in the
    table. Labels are texts, None where there is none; ``kept`` are columns as they are, of all rows.
    """

    X: Any
    X_err: Array | Limits | None
    y: NDArray[Any] | None
    complete: NDArray[np.bool_]
    kept: dict[str, Any]

    @property
    def n_rows(self) -> int:
        """How many rows of the table these are, complete or not."""
        return len(self.complete)


def read_parts(
    table: Table,
    layout: Layout,
    *,
    labels: bool,
    keep: Iterable[str] = (),
    most_rows: int | None = None,
    learning: bool = False,
) -> Iterator[Part]:
    """Yield a table in parts, checked.

    Parameters
    ----------
    table : Table
    layout : Layout
    labels : bool
        Whether the target is needed.
    keep : iterable of str
        Other columns to be passed on.
    most_rows : int, default=None
        Of a part.
    learning : bool, default=False
        Whether to refuse a value beside which all others of its column would be lost.
    """
    sparse, keep = isinstance(table, Libsvm), list(keep)
    bars = layout.error_columns
    target = (layout.target or "label") if labels else None
    others = list(dict.fromkeys(filter(None, [target, *keep])))
    (_check_nameless if sparse else _check_columns)(table, layout, [*layout.features, *bars], target, keep)
    gaps = _Gaps(table.name, layout, target)
    for numbers, columns in _cut(table.parts([*layout.features, *bars], others), most_rows):
        y = _labels(columns[target], table.place(target)) if target else None
        X, X_err = (_checked_sparse if sparse else _checked)(table.name, layout, numbers, gaps.n_rows)
        if learning and not sparse:
            _check_extremes(table.name, layout.features, X, gaps.n_rows)
        part = gaps.part(X, X_err, y, {name: columns[name] for name in keep}, sparse=sparse)
        if not gaps.refused:  # else there are more to be counted
            yield part
    gaps.check()


def checked_frame(frame: pd.DataFrame, layout: Layout, name: str) -> Part:
    """Return some rows of a table of this name, with their labels, checked as :func:`read_parts` does."""
    gaps = _Gaps(name, layout, layout.target)
    texts = pa.array(frame[layout.target].to_numpy(dtype=object), from_pandas=True)
    y = _labels(texts, column_of(name, str(layout.target)))
    numbers = frame[[*layout.features, *layout.error_columns]].to_numpy(np.float64)
    place = f"{name}, in a part of it"
    X, X_err = _checked(place, layout, numbers, 0)
    _check_extremes(place, layout.features, X, 0)
    part = gaps.part(X, X_err, y, {})
    gaps.check()
    return part


def _check_nameless(table: Table, layout: Layout, needed: list[str], target: str | None, keep: list[str]) -> None:
    """Check that a model and options do without names of columns."""
    if not all(re.fullmatch("[0-9]{1,18}", name) for name in needed):
        raise TableError(f"{table.name}: libsvm has no names, and the model was fitted to {quoted(needed[0])}, ...")
    if keep:
        raise TableError(f"{table.name}: libsvm has no names of columns, so no --keep {keep[0]}")


def _check_columns(table: Table, layout: Layout, needed: list[str], target: str | None, keep: list[str]) -> None:
    """Check that all columns are there."""
    there = set(table.columns)
    absent = [name for name in needed if name not in there]
    if absent:
        rest = f", nor {', '.join(map(quoted, absent[1:6]))}" if len(absent) > 1 else ""
        known = set(layout.features)
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

    @property
    def refused(self) -> bool:
        """Whether the table is refused."""
        return bool(self.unlabelled) or bool(self.empty.any())

    def part(
        self,
        X: Any,
        X_err: Array | Limits | None,
        y: NDArray[Any] | None,
        kept: dict[str, Any],
        *,
        sparse: bool = False,
    ) -> Part:
        """Return the next rows, without those that a model cannot use."""
        complete = self._complete(X, X_err, y, sparse=sparse)
        if not complete.all():
            X, y = X[complete], None if y is None else y[complete]
            X_err = None if X_err is None else X_err[complete]
        if not sparse:
            X = pd.DataFrame(X, columns=self.layout.features, copy=False)
        return Part(X, X_err, y, complete, kept)

    def _complete(
        self, X: Any, X_err: Array | Limits | None, y: NDArray[Any] | None, *, sparse: bool
    ) -> NDArray[np.bool_]:
        """Return which of the next rows a model can use."""
        n, what = X.shape[0], self.layout.missing
        missing = np.zeros((n, 0), dtype=bool) if sparse else np.isnan(X)
        if X_err is not None:
            errors = deviations(X_err)
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
        return complete

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
                f"unmeasured, mean or drop allows for that{''.join(f'. Also, {doubt}' for doubt in self.layout.doubts)}"
            )


def _cut(parts: Iterable[tuple[Any, dict[str, Any]]], most_rows: int | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield parts with no more rows than these."""
    for numbers, columns in parts:
        n = numbers.shape[0]
        step = n if most_rows is None or n <= most_rows else most_rows
        for first in range(0, n, max(1, step)):
            yield (
                numbers if step == n else numbers[first : first + step],
                {name: column.slice(first, step) for name, column in columns.items()},
            )


def deviations(X_err: Array | Limits) -> Array:
    """Return the standard deviations of values and limits."""
    return X_err.err if isinstance(X_err, Limits) else X_err


class _Columns(NamedTuple):
    """Some columns, the features they are of (by their places), and what they have from row ``first`` on."""

    table: str
    names: list[str]
    places: list[int]
    values: Array
    first: int

    def refuse(self, wrong: NDArray[np.bool_], expected: str) -> None:
        """Raise if there is something wrong."""
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            expected = expected.format(quoted(self.names[j]))
            place, row = column_of(self.table, self.names[j]), self.first + i + 1
            raise TableError(f"{place} has {self.values[i, j]:g} in row {row}; expected {expected}")

    def errors(self, X: Array, missing: str) -> Array:
        """Return error bars, of either sign, which are infinite where there is no value."""
        bars = np.where(np.isnan(X[:, self.places]), np.inf, np.abs(self.values))
        there = self._replace(values=bars)
        there.refuse((bars > LARGEST) & np.isfinite(bars), f"is at most {LARGEST:g}, or inf")
        if missing == "unmeasured":
            expected = "is an error for every value: 0 if the value is exact, inf if it should not be used"
            there.refuse(np.isnan(bars), expected)
        return bars

    def limits(self, X: Array, errors: Array) -> Array:
        """Return which values are limits."""
        sides = self._replace(values=np.nan_to_num(self.values, nan=0.0))
        sides.refuse(~np.isin(sides.values, (-1.0, 0.0, 1.0)), _LIMITS)
        sides = sides._replace(values=np.where(np.isnan(X[:, self.places]), 0.0, sides.values))
        expected = "is 0 where the error is infinite, that is, the value was not measured"
        sides.refuse((sides.values != 0) & np.isposinf(errors[:, self.places]), expected)
        result = np.zeros(X.shape)
        result[:, self.places] = sides.values
        return result


def _checked(table: str, layout: Layout, numbers: Array, first: int) -> tuple[Array, Array | Limits | None]:
    """Return values, NaN where there is none, and errors, infinite there, from the columns of features and errors.

    Values whose error bars have two sides are moved to the mean between these.
    """
    names = [*layout.features, *layout.error_columns]
    of_features = {name: place for place, name in enumerate(layout.features)}
    owners = [layout.features, layout.errors, layout.two_sided, layout.limits]
    ends = np.cumsum([len(some) for some in owners])
    values, above, below, flags = (
        _Columns(table, names[end - len(some) : end], [of_features[name] for name in some], part, first)
        for some, end, part in zip(owners, ends, np.split(numbers, ends[:-1], axis=1), strict=True)
    )
    X = np.ascontiguousarray(values.values)
    with np.errstate(invalid="ignore"):
        values.refuse(np.abs(X) > LARGEST, f"are numbers of at most {LARGEST:g}, or empty fields for missing values")
        if not layout.has_errors:
            return X, None
        upper = np.where(np.isnan(X), np.inf, 0.0)
        above.refuse(above.values < 0, "are nonnegative standard deviations")
        upper[:, above.places] = above.errors(X, layout.missing)
        lower = upper.copy() if layout.two_sided else upper
        lower[:, below.places] = below.errors(X, layout.missing)
    sides = flags.limits(X, upper) if layout.limits else None
    errors = upper
    X = np.where(np.isposinf(errors), np.nan, X)  # a number that stands for no measurement is none
    if layout.two_sided:
        shifted, errors = Asymmetric(lower, upper).symmetric(X)
        X = shifted if sides is None else np.where(sides == 0, shifted, X)
    return X, errors if sides is None else Limits(errors, sides)


def _check_extremes(table: str, features: list[str], X: Array, first: int) -> None:
    """Raise if a value is so large that the spread of the others vanishes beside it when both are squared."""
    sizes = np.abs(X)
    largest = np.fmax.reduce(sizes, axis=0, initial=0.0)
    near, far = sizes <= largest / 10, sizes > largest / 10
    counts, others = near.sum(axis=0), np.where(near, X, 0.0)
    units = np.abs(others).max(axis=0, initial=0.0)
    units = np.where(units > 0, units, 1.0)
    values = others / units
    means = values.sum(axis=0) / np.maximum(counts, 1)
    spreads = np.sqrt((np.square(values - means) * near).sum(axis=0) / np.maximum(counts, 1)) * units
    wrong = far & (counts >= 10 * far.sum(axis=0)) & (spreads > 0) & (largest > spreads / np.sqrt(EPS))
    for i, j in np.argwhere(wrong)[:1]:
        raise TableError(
            f"{column_of(table, features[j])} has {X[i, j]:g} in row {first + i + 1}, beside which the other values, "
            f"with a spread of {spreads[j]:.3g}, would be lost; expected is an empty field where there is no value. "
            f"Leave out the column with --drop {quoted(features[j])}, or the row"
        )


_LIMITS = "is -1 for an upper limit, 1 for a lower one, or 0 for a measurement; leave the column out with --drop {}"


def _checked_sparse(table: str, layout: Layout, X: Any, first: int) -> tuple[Any, None]:
    """Return sparse values, of which all must be finite."""
    wrong = ~(np.abs(X.data) <= LARGEST)
    if wrong.any():
        place = int(np.argmax(wrong))
        row = first + int(np.searchsorted(X.indptr, place, side="right"))
        raise TableError(f"{table} has {X.data[place]:g} in row {row}; expected are numbers of at most {LARGEST:g}")
    return X, None


def _labels(column: Any, place: str) -> NDArray[Any]:
    """Return labels as texts, None where there is none."""
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
    known = [None if text in NO_VALUE else text for text in texts.to_pylist()]
    codes = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    labels: NDArray[Any] = np.array([*known, None], dtype=object)[codes]
    return labels


def label_values(texts: Iterable[str]) -> tuple[str, dict[str, Any]]:
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
    X: Any
    X_err: Array | Limits | None
    y: NDArray[Any]
    layout: Layout
    n_rows: int


def read_all(table: Table, layout: Layout, *, learning: bool = False) -> Data:
    """Return a whole table with its labels.

    Parameters
    ----------
    table : Table
    layout : Layout
    learning : bool, default=False
        As in :func:`read_parts`.

    Returns
    -------
    Data
        With the layout; one without features, of a libsvm file to learn from, has them only now.
    """
    parts = list(read_parts(table, layout, labels=True, learning=learning))
    n_rows = sum(len(part.complete) for part in parts)
    if not n_rows:
        raise TableError(f"{table.name} has a header and no rows" if table.columns else f"{table.name} is empty")
    y = np.concatenate([part.y for part in parts if part.y is not None])
    if not len(y):
        raise TableError(f"{table.name}: --missing drop leaves none of {n_rows} rows")
    if isinstance(table, Libsvm):
        X, layout = _stack_sparse([part.X for part in parts], layout, table.name)
        return Data(table.name, X, None, y, layout, n_rows)
    errors = [deviations(part.X_err) for part in parts if part.X_err is not None]
    sides = [part.X_err.limits for part in parts if isinstance(part.X_err, Limits)]
    arrays = [part.X.to_numpy() for part in parts]
    del parts
    X = pd.DataFrame(_stack(arrays), columns=layout.features, copy=False)
    X_err: Array | Limits | None = _stack(errors) if errors else None
    if X_err is not None and sides:
        X_err = Limits(X_err, _stack(sides))
    return Data(table.name, X, X_err, y, layout, n_rows)


def _stack(parts: list[Any]) -> Array:
    """Return parts one below the other, giving each back as soon as it is copied: they are never all there twice."""
    stacked = np.empty((sum(map(len, parts)), parts[0].shape[1]))
    last = len(stacked)
    while parts:
        part = parts.pop()
        stacked[last - len(part) : last] = part
        last -= len(part)
    return stacked


def _stack_sparse(parts: list[Any], layout: Layout, name: str) -> tuple[Any, Layout]:
    width = max(part.shape[1] for part in parts)
    for part in parts:
        part.resize(part.shape[0], width)
    X = sp.csr_matrix(sp.vstack(parts, format="csr"))
    if layout.features:
        return X, layout
    start = 0 if not width or (X.indices == 0).any() else 1  # indices from 1 on, as is usual
    if width <= start:
        raise TableError(f"{name} has no feature: expected are lines 'label index:value index:value ...'")
    return X[:, start:], replace(layout, features=[str(j) for j in range(start, width)])
