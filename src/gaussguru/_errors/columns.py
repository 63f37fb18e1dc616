"""Values with errors from the columns of a table, some rows at a time, wherever these rows are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussguru._utils.types import MixedArray

if TYPE_CHECKING:
    from gaussguru._errors.given import Limits
    from gaussguru._utils.linalg import Array


# Beyond, squares overflow.
LARGEST = 1e150
# Cells of a table that one error lists.
MOST_CELLS = 20
# Number of columns with the errors of a feature, and the sign of each, by kind; None for a number of any sign.
KINDS: dict[str, tuple[bool, ...]] = {
    "sigma": (True,),
    "variance": (True,),
    "precision": (True,),
    "sides": (True, False),
    "bounds": (False, False),
}
REPLICATES = "replicates"
# Treatments of features without value, and of values without error.
MISSING = ("error", "drop", "mean", "unmeasured")
MISSING_ERROR = ("refuse", "unmeasured", "exact")
CODINGS = {
    "-": "is -1 for an upper limit, 1 for a lower one, or 0 for a measurement",
    "+": "is 1 for an upper limit, -1 for a lower one, or 0 for a measurement",
    "<": "is < for an upper limit, > for a lower one, or empty for a measurement",
}


# Numbers by which archives say that there is no value.
NO_NUMBERS = {
    *(sign * float(text) for text in ("99", "99.9", "99.99", "99.999", "999", "999.9", "999.99", "9999", "99999",
                                      "9999.99", "99.9999", "999.999", "999999") for sign in (1, -1)),
    *(-float(str(digit) * 9) for digit in range(2, 10)), float(np.float32(-999999488)),
}  # fmt: skip


def may_stand_for_none(number: float) -> bool:
    """Return whether archives write this number where there is no value."""
    return float(number) in NO_NUMBERS or 1e20 <= abs(number) <= LARGEST  # beyond is an error


def stand_ins(values: Array) -> list[float]:
    """Return numbers of a column that may stand for no value: among those in use, and far from all others."""
    unique, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    wanted = np.array([may_stand_for_none(value) for value in unique], dtype=bool)
    rest = unique[~wanted]
    if not len(rest):
        return []
    low, high = rest[0], rest[-1]
    gap = max(high - low, np.abs(rest).max()) / 2
    # A number of two or three digits may be measured once.
    often = (counts > 1) | (np.abs(unique) > 1000) | (unique < 0)
    usual = unique[wanted & often]
    far = (usual > high + gap) | (usual < low - gap) | ((usual < 0) & (low >= 0) & (usual <= -99))
    return [float(number) for number in usual[far]]


class Bar(NamedTuple):
    """Columns with the errors of a feature, and how they state a standard deviation.

    ``kind`` is "sigma", "variance", "precision" (one column), "sides" or "bounds" (two: the upper, the lower), or
    "replicates" (measurements, each with the standard deviation ``factor``). Errors are multiplied by ``factor``.
    """

    kind: str
    columns: list[str]
    factor: float = 1.0


class Cells:
    """Cells of a table that no model can use: the first of them, and their number; and levels that a model never saw.

    ``unseen`` counts rows by column and level.
    """

    def __init__(self, table: str, error: type[ValueError] = ValueError) -> None:
        self.table, self.error = table, error
        self.count, self.first = 0, list[tuple[str, str, int, str]]()
        # Whether advice may name options of the command.
        self.has_options = error is not ValueError
        self.unseen = Counter[tuple[str, str]]()

    def add(self, wrong: NDArray[np.bool_], columns: Sequence[str], values: Any, expected: str, first: int) -> None:
        """Add the cells that are wrong, (n_rows, n_columns), of rows from number ``first`` on, counted from 0."""
        if not wrong.any():
            return
        self.count += int(np.count_nonzero(wrong))
        for i, j in np.argwhere(wrong)[: MOST_CELLS - len(self.first)]:
            value = values[i, j]
            text = f"{value:g}" if isinstance(value, float) else _short(value)
            self.first.append((columns[j], text, first + i + 1, expected.format(_short(columns[j]))))

    def extend(self, others: Cells, first: int) -> None:
        """Add the cells of further rows, which begin with number ``first``."""
        self.count += others.count
        self.first += [(name, text, row + first, expected) for name, text, row, expected in others.first]
        del self.first[MOST_CELLS:]

    def check(self) -> None:
        """Raise if there are wrong cells, with a list of the first of them."""
        if self.first:
            column, value, row, expected = self.first[0]
            others = ", ".join(f"{value} in {_short(name)} in row {row}" for name, value, row, _ in self.first[1:])
            more = self.count - len(self.first)
            raise self.error(
                f"{self.table}: column {_short(column)} has {value} in row {row}; expected {expected}"
                + (f". Also wrong: {others}" if others else "")
                + (f", and {more} more cells; {self.count} in all" if more else "")
            )


def _short(name: Any) -> str:
    text = str(name)
    return repr(text if len(text) <= 100 else text[:97] + "...")


class Sides(NamedTuple):
    """Values of some rows, NaN where there is none, with errors to either side, infinite there, and limits."""

    values: Array
    lower: Array | None
    upper: Array | None
    limits: Array | None


@dataclass(frozen=True)
class Columns:
    """Columns of a table with the features of a model, their errors, limits, correlations and levels.

    Parameters
    ----------
    values : list of str
        Features that are numbers, by the names of their columns, or of their replicates.
    errors : dict from str to Bar
        Errors of features; those of others are 0.
    limits : dict from str to (str, str)
        Columns that mark limits of features, and their coding: a key of ``CODINGS``.
    correlations : list of (str, str, str)
        Two features, and the column with the correlation of their errors.
    categories : dict from str to list of str
        Columns of text, and their levels; a feature "column=level" of each level but the first is 1 or 0.
    log : list of str
        Features whose logarithm is used.
    na : list of float or str
        Numbers and words that stand for no value, and for no error.
    missing : {"error", "drop", "mean", "unmeasured"}
        Treatment of features without value.
    missing_error : {"refuse", "unmeasured", "exact"}
        Treatment of values without error where ``missing`` is "unmeasured".
    """

    values: list[str]
    errors: dict[str, Bar] = field(default_factory=dict)
    limits: dict[str, tuple[str, str]] = field(default_factory=dict)
    correlations: list[tuple[str, str, str]] = field(default_factory=list)
    categories: dict[str, list[str]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    na: list[float | str] = field(default_factory=list)
    missing: str = "unmeasured"
    missing_error: str = "refuse"

    def __post_init__(self) -> None:
        """Take what JSON has as lists."""
        object.__setattr__(self, "errors", {name: Bar(*bar) for name, bar in self.errors.items()})
        object.__setattr__(self, "limits", {name: (*flag,) for name, flag in self.limits.items()})
        object.__setattr__(self, "correlations", [(*names,) for names in self.correlations])

    @cached_property
    def features(self) -> list[str]:
        """Names of the features of a model, those of categories last."""
        return [*self.values, *(f"{name}={level}" for name, levels in self.categories.items() for level in levels[1:])]

    def notes(self, cells: Cells) -> list[str]:
        """Return the levels that a model never saw, in words."""
        rules = {"drop": "left out", "mean": "given the mean", "unmeasured": "not measured"}
        return [
            f"column {_short(name)} has {_short(level)} in {rows} rows, unknown to the model: {rules[self.missing]}"
            for (name, level), rows in cells.unseen.most_common(MOST_CELLS)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the parameters as JSON has them."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        found["errors"] = {name: [*bar] for name, bar in self.errors.items()}
        found["limits"] = {name: [*flag] for name, flag in self.limits.items()}
        return found | {"correlations": [[*names] for names in self.correlations]}

    @property
    def words(self) -> list[str]:
        """Words that stand for no value."""
        return [cell for cell in self.na if isinstance(cell, str)]

    @property
    def has_errors(self) -> bool:
        """Whether samples have errors."""
        return bool(self.errors or self.limits) or self.missing == "unmeasured"

    @property
    def error_columns(self) -> list[str]:
        """Columns with errors, correlations and limits of features, without replicates."""
        bars = chain.from_iterable(bar.columns for bar in self.errors.values() if bar.kind != REPLICATES)
        limits = [column for column, _ in self.limits.values()]
        return list(dict.fromkeys([*bars, *(column for *_, column in self.correlations), *limits]))

    @cached_property
    def numbers(self) -> list[str]:
        """Columns of numbers, those of values first."""
        measured = chain.from_iterable(self._measured(name) for name in self.values)
        texts = set(self.texts)
        return list(dict.fromkeys([*measured, *(name for name in self.error_columns if name not in texts)]))

    @cached_property
    def texts(self) -> list[str]:
        """Columns of text: categories, and limits that have marks."""
        return [*self.categories, *(column for column, coding in self.limits.values() if coding == "<")]

    def _measured(self, name: str) -> list[str]:
        """Return the columns of a value: itself, or its replicates."""
        bar = self.errors.get(name)
        return bar.columns if bar is not None and bar.kind == REPLICATES else [name]

    def check(self) -> None:
        """Raise unless columns and settings go together; a file may say anything."""
        known, names, levels = set(self.values), [*self.numbers, *self.texts, *self.features], self.categories.values()
        if (
            not all(isinstance(part, list) for part in (self.values, self.log, self.na, *levels))
            or not all(isinstance(name, str) for name in chain(names, *levels))
            or len(set(self.features)) < len(self.features)
            or not {*self.errors, *self.limits, *self.log} <= known
            or any(not known.issuperset(pair[:2]) or len(pair) != 3 for pair in self.correlations)
            or any(len(flag) != 2 or flag[1] not in CODINGS for flag in self.limits.values())
            or not self._has_right_settings
        ):
            raise ValueError("its columns are none that a model has")

    @property
    def _has_right_settings(self) -> bool:
        """Whether errors, levels, numbers for no value and treatments are some that a model has."""
        return (
            all(len(bar.columns) == len(KINDS.get(bar.kind, bar.columns)) > 0 for bar in self.errors.values())
            and {bar.kind for bar in self.errors.values()} <= {*KINDS, REPLICATES}
            and all(isinstance(bar.factor, int | float) and 0 < bar.factor < LARGEST for bar in self.errors.values())
            and all(len(set(part)) >= max(2, len(part)) for part in self.categories.values())
            and all(isinstance(cell, int | float | str) and not isinstance(cell, bool) for cell in self.na)
            and self.missing in MISSING
            and self.missing_error in MISSING_ERROR
            and not (self.missing == "mean" and (self.errors or self.limits))
            and not (self.correlations and self.limits)
        )

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.numbers)}

    @cached_property
    def _feature(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.values)}

    @cached_property
    def _groups(self) -> list[tuple[str, list[int], list[list[int]], Array]]:
        """Kinds of errors with the places of their features, of the columns of each side, and factors."""
        groups = []
        for kind, signs in KINDS.items():
            bars = {name: bar for name, bar in self.errors.items() if bar.kind == kind}
            if bars:
                sides = [[self._place[bar.columns[side]] for bar in bars.values()] for side in range(len(signs))]
                factors = np.array([bar.factor for bar in bars.values()])
                groups.append((kind, [self._feature[name] for name in bars], sides, factors))
        return groups

    @property
    def is_two_sided(self) -> bool:
        """Whether errors have two sides."""
        return any(bar.kind in ("sides", "bounds") for bar in self.errors.values())

    def measured(
        self, numbers: Array, texts: Mapping[str, MixedArray], cells: Cells, first: int = 0
    ) -> tuple[Array, Array | Limits | None]:
        """Return values of some rows and their errors: standard deviations, limits or covariances.

        Values whose errors have two sides are moved to the mean between these.

        Parameters
        ----------
        numbers : array of shape (n_rows, n_columns)
            The columns ``numbers``, NaN for an empty cell.
        texts : mapping from str to array of object
            The columns ``texts``, None for an empty cell.
        cells : Cells
            Gets the cells that cannot be used.
        first : int, default=0
            The number of the first row.
        """
        from gaussguru._errors.given import Asymmetric, Limits  # noqa: PLC0415  scikit-learn comes with it

        values, lower, errors, limits = self.sides(numbers, texts, cells, first)
        if errors is None or lower is None:
            return values, None
        if lower is not errors:
            shifted, errors = Asymmetric(lower, errors).symmetric(values)
            values = shifted if limits is None else np.where(limits == 0, shifted, values)
        if limits is not None:
            return values, Limits(errors, limits)
        return values, self._covariances(errors, numbers, cells, first) if self.correlations else errors

    def sides(self, numbers: Array, texts: Mapping[str, MixedArray], cells: Cells, first: int = 0) -> Sides:
        """Return values of some rows with their errors to either side, as :meth:`measured` does."""
        if none := [cell for cell in self.na if cell not in self.words]:
            numbers = np.where(np.isin(numbers, none), np.nan, numbers)
        with np.errstate(all="ignore"):  # where a cell is wrong
            values, counts = self._values(numbers)
            wrong = np.abs(values) > LARGEST
            expected = f"are numbers of at most {LARGEST:g}, or empty fields for missing values"
            cells.add(wrong, self.values, values, expected, first)
            values[wrong] = np.nan
            upper = lower = limits = None
            if self.has_errors:
                limits = self._limits(values, numbers, texts, cells, first)
                lower, upper = self._errors(values, numbers, counts, limits, cells, first)
                lost = np.isinf(upper) | np.isinf(lower) | np.isnan(values)
                if limits is not None:
                    expected = "is 0 where the error is infinite, that is, the value was not measured"
                    names = [self.limits.get(name, ("",))[0] for name in self.values]
                    cells.add((limits != 0) & lost & ~np.isnan(values), names, limits, expected, first)
                    limits[lost] = 0.0
                values[lost] = np.nan
            self._logarithms(values, lower, upper, cells, first)
        for name, levels in self.categories.items():
            places = {level: place for place, level in enumerate(levels)}
            column = np.array([None if text is None else str(text).strip() for text in texts[name]], dtype=object)
            unseen = np.array([text is not None and text not in places for text in column], dtype=bool)
            if self.missing == "error":
                expected = f"is one of {', '.join(map(_short, levels[:5]))}{', ...' if len(levels) > 5 else ''}"
                cells.add(unseen[:, np.newaxis], [name], column[:, np.newaxis], expected, first)
            cells.unseen.update((name, text) for text in column[unseen])
            codes = np.array([places.get(text, -1) for text in column], dtype=np.intp)[:, np.newaxis]
            values, lower, upper, limits = _with_levels(codes, len(levels), values, lower, upper, limits)
        return Sides(values, lower, upper, limits)

    def _values(self, numbers: Array) -> tuple[Array, dict[str, Array]]:
        """Return the values, and how many replicates each is the mean of."""
        replicated = {name: bar for name, bar in self.errors.items() if bar.kind == REPLICATES}
        if not replicated:
            return np.array(numbers[:, : len(self.values)], order="C"), {}
        values, counts = np.empty((len(numbers), len(self.values))), {}
        for place, name in enumerate(self.values):
            parts = numbers[:, [self._place[column] for column in self._measured(name)]]
            counts[name] = (~np.isnan(parts)).sum(axis=1)
            values[:, place] = np.nansum(parts, axis=1) / counts[name]
        return values, counts

    def _limits(
        self, values: Array, numbers: Array, texts: Mapping[str, MixedArray], cells: Cells, first: int
    ) -> Array | None:
        if not self.limits:
            return None
        limits = np.zeros(values.shape)
        for name, (column, coding) in self.limits.items():
            place, advice = self._feature[name], "; leave the column out with --drop {}" * cells.has_options
            expected = CODINGS[coding] + advice
            if coding == "<":
                marks = np.array(["" if mark is None else str(mark).strip() for mark in texts[column]], dtype=object)
                signs = {"<": -1.0, "<=": -1.0, "≤": -1.0, ">": 1.0, ">=": 1.0, "≥": 1.0, "": 0.0, "=": 0.0, "~": 0.0}
                found = np.array([signs.get(mark, np.nan) for mark in marks], dtype=np.float64)
                cells.add(np.isnan(found)[:, np.newaxis], [column], marks[:, np.newaxis], expected, first)
            else:
                stated = np.nan_to_num(numbers[:, self._place[column]], nan=0.0)
                found = stated if coding == "-" else -stated
                wrong = ~np.isin(stated, (-1.0, 0.0, 1.0))[:, np.newaxis]
                cells.add(wrong, [column], stated[:, np.newaxis], expected, first)
            limits[:, place] = np.where(np.isin(found, (-1.0, 1.0)) & ~np.isnan(values[:, place]), found, 0.0)
        return limits

    def _errors(
        self, values: Array, numbers: Array, counts: dict[str, Array], limits: Array | None, cells: Cells, first: int
    ) -> tuple[Array, Array]:
        """Return errors below and above the values, infinite where there is no value: one array where they agree."""
        upper = np.where(np.isnan(values), np.inf, 0.0)
        lower = upper.copy() if self.is_two_sided else upper
        for name, count in counts.items():
            bar, place = self.errors.get(name), self._feature[name]
            if bar is not None and bar.kind == REPLICATES:
                upper[:, place] = lower[:, place] = bar.factor / np.sqrt(count)
        for kind, features, sides, factors in self._groups:
            stated, known = [numbers[:, side] for side in sides], ~np.isnan(values[:, features])
            flagged = np.zeros(known.shape, dtype=bool) if limits is None else limits[:, features] != 0
            for side, bars, signed in zip(sides, stated, KINDS[kind], strict=True):
                names = [self.numbers[place] for place in side]
                self._check_stated(kind, names, bars, known, flagged, signed, cells, first)
            above, below = _deviations(kind, stated, values[:, features])
            for end, bars, side in ((upper, above, sides[0]), (lower, below, sides[-1]))[: 1 + (lower is not upper)]:
                errors = np.where(np.isnan(bars), 0.0 if self.missing_error == "exact" else np.inf, np.abs(bars))
                names = [self.numbers[place] for place in side]
                if kind == "bounds":
                    expected = "is an upper end, above the value" if end is upper else "is a lower end, below the value"
                    cells.add((bars < 0) & known, names, numbers[:, side], expected, first)
                large = (errors > LARGEST) & np.isfinite(errors)
                cells.add(large & known, names, errors, f"is at most {LARGEST:g}, or inf", first)
                errors = np.where(large, np.inf, errors * factors)
                errors[np.isnan(bars) & flagged] = 0.0  # a limit without an error is sharp
                end[:, features] = np.where(known, errors, np.inf)
        return lower, upper

    def _check_stated(
        self, kind: str, names: list[str], bars: Array, known: NDArray[np.bool_], flagged: NDArray[np.bool_],
        signed: bool, cells: Cells, first: int,
    ) -> None:  # fmt: skip
        """Note errors with a wrong sign, and values without an error."""
        if signed:
            expected = "are nonnegative standard deviations" if kind in ("sigma", "sides") else "is nonnegative"
            cells.add((bars < 0) & known, names, bars, expected, first)
        if self.missing == "unmeasured" and self.missing_error == "refuse":
            expected = "is an error for every value: 0 if the value is exact, inf if it should not be used"
            expected += "; --missing-error says which for all" * cells.has_options
            cells.add(np.isnan(bars) & known & ~flagged, names, bars, expected, first)

    def _logarithms(self, values: Array, lower: Array | None, upper: Array | None, cells: Cells, first: int) -> None:
        """Take the logarithms of some values, and put their errors into ``lower`` and ``upper``.

        A positive quantity of mean x and standard deviation s has a logarithm of variance log(1 + (s / x)^2) if it is
        log-normal.
        """
        for name in self.log:
            place = self._feature[name]
            column = values[:, place].copy()
            cells.add(column[:, np.newaxis] <= 0, [name], column[:, np.newaxis], "is above 0, for a logarithm", first)
            for errors in (upper,) if lower is upper else (lower, upper):
                if errors is not None:
                    logs = np.sqrt(np.log1p(np.square(errors[:, place] / column)))
                    errors[:, place] = np.where(np.isinf(errors[:, place]), np.inf, logs)
            values[:, place] = np.log(column)

    def _covariances(self, errors: Array, numbers: Array, cells: Cells, first: int) -> Array:
        """Return covariances of the errors of every row, (n_rows, n_features, n_features)."""
        n, d = errors.shape
        covariances = np.zeros((n, d, d))
        np.einsum("ijj->ij", covariances)[:] = np.square(errors)
        for one, other, column in self.correlations:
            i, j = self._feature[one], self._feature[other]
            stated = numbers[:, self._place[column]]
            known = np.isfinite(errors[:, i]) & np.isfinite(errors[:, j])
            wrong = known & ~(np.abs(stated) <= 1)
            cells.add(wrong[:, np.newaxis], [column], stated[:, np.newaxis], "is a correlation from -1 to 1", first)
            shared = np.where(known & ~wrong, stated, 0.0) * np.where(known, errors[:, i], 0.0)
            covariances[:, i, j] = covariances[:, j, i] = shared * np.where(known, errors[:, j], 0.0)
        return covariances


def _deviations(kind: str, stated: list[Array], values: Array) -> tuple[Array, Array]:
    """Return errors above and below the values, NaN where none is stated; ends of intervals may be on wrong sides."""
    if kind == "bounds":
        return stated[0] - values, values - stated[1]
    if kind == "sides":  # the sign of a lower side does not matter
        return stated[0], np.abs(stated[1])
    found = stated[0]
    if kind != "sigma":
        found = np.sqrt(found) if kind == "variance" else 1 / np.sqrt(found)
        found = np.where(np.isnan(stated[0]), np.nan, np.nan_to_num(found, nan=0.0, posinf=np.inf))
    return found, found


def _with_levels(
    codes: NDArray[np.intp], n_levels: int, values: Array, *others: Array | None
) -> tuple[Array, Array | None, Array | None, Array | None]:
    """Return values, errors and limits with those of levels of a category, NaN where a code is below 0."""
    shown = np.where(codes < 0, np.nan, codes == np.arange(1, n_levels))
    errors = np.where(np.isnan(shown), np.inf, 0.0)
    lower, upper, limits = others
    below = None if lower is None else np.hstack([lower, errors])
    above = below if upper is lower else None if upper is None else np.hstack([upper, errors])
    flags = None if limits is None else np.hstack([limits, np.zeros(shown.shape)])
    return np.hstack([values, shown]), below, above, flags
