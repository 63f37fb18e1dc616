"""The plan of a table: a role for every column, from names, units and the first rows, before anything is fitted.

A column that looks like an error, a flag, an identifier, or like a number that stands for no value, and is not sure to
be one, is doubtful: it is refused until an option names it.
"""

from __future__ import annotations

import importlib
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussguru._errors.columns import KINDS, REPLICATES, Bar, may_stand_for_none, stand_ins
from gaussguru._errors.conventions import FUNCTION, LONGEST_NAME, NINETY_PERCENT, ColumnRoles, column_roles, plain
from gaussguru._tables.base import COMMA, DECIMAL_COMMA, NUMBER, TableReader, numbers_of
from gaussguru._tables.contents import TableError, quoted
from gaussguru._tables.files import Libsvm
from gaussguru._tables.layout import Layout
from gaussguru._tables.options import Options

if TYPE_CHECKING:
    from gaussguru._utils.linalg import Array


# Rows that must be there before their numbers say anything of a column.
FEW = 20
# Levels of a category, at most.
MOST_LEVELS = 20
_NUMBER = re.compile(rf"\s*(?:{NUMBER}|[-+]?\d*,\d+)\s*")


class ColumnPlan(NamedTuple):
    """Role of a column, the reason, its unit, and the number of rows without it among the first."""

    name: str
    role: str
    reason: str
    unit: str
    missing: int


@dataclass(frozen=True)
class Plan:
    """Roles of the columns of a table, and the layout that follows.

    ``doubtful`` has the reason, and the option that settles it, of columns that might be something else.
    """

    name: str
    layout: Layout
    columns: list[ColumnPlan] = field(default_factory=list)
    doubtful: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    n_rows: int = 0
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, table: TableReader, target: str | None, options: Options | None = None) -> Plan:
        """Return the plan of a table that is not read yet, with labels in the column ``target``."""
        options = options or Options()
        if isinstance(table, Libsvm):
            _check_libsvm(table, target, options)
            return cls(table.name, Layout([], missing="error"))
        target = _checked_target(table, target, options)
        words = [cell for cell in options.none if isinstance(cell, str)]
        return _Planner(table, target, options, table.peek(words)).plan()

    @property
    def summary(self) -> str:
        """The number of features, of those with errors, and the ignored columns, in words."""
        n, errors = len(self.layout.features), {*self.layout.errors, *self.layout.limits}
        parts = [f"{n} feature{'s' * (n != 1)}, {len(errors)} with errors" if n else "features by their indices"]
        groups: dict[str, list[str]] = {}
        for column in self.columns:
            if column.role in ("identifier", "position", "flag", "ignored"):
                groups.setdefault(column.role, []).append(column.name)
        ignored = []
        for role, names in groups.items():
            shown = ", ".join(_short(name) for name in names[:6]) + (f", ... ({len(names)})" if len(names) > 6 else "")
            kind = f"{role}s" if role in ("identifier", "position", "flag") and len(names) > 1 else role
            ignored.append(shown if role == "ignored" else f"{shown} ({kind})")
        named = {"weights": self.layout.weights, "groups": self.layout.groups}
        parts += [f"{role} in {quoted(name)}" for role, name in named.items() if name]
        return "; ".join([*parts, *([f"ignored: {', '.join(ignored)}"] if ignored else [])])

    def as_dict(self) -> dict[str, str]:
        """Return role and reason of every column, in words."""
        return {column.name: column.role + (f": {column.reason}" if column.reason else "") for column in self.columns}

    @property
    def settled_by(self) -> list[str]:
        """Options that settle all doubts."""
        return list(dict.fromkeys(option for _, given in self.doubtful.values() for option in given))

    def check(self, command: Sequence[str] = ()) -> Layout:
        """Return the layout; raise if columns are doubtful, with a command that settles all of them."""
        if not self.doubtful:
            return self.layout
        items = [f"{quoted(name)} {reason}" for name, (reason, _) in self.doubtful.items()]
        words, shown = 0, list[str]()
        for item in items:
            words += len(item)
            if words > 450 and shown:  # characters of an error of one line
                shown.append(f"{len(items) - len(shown)} more, listed by gaussguru columns")
                break
            shown.append(item[:450])
        settling = " ".join(self.settled_by)
        if len(settling) > 350:
            others = [option for option in self.settled_by if not option.startswith("--drop ")]
            settling = " ".join(["--drop-doubtful", *others])
        given = " ".join(shlex.quote(part) for part in command)
        n = len(self.doubtful)
        raise TableError(
            f"{self.name}: {n} column{'s' * (n > 1)} must be named: {'; '.join(shown)}. --as value:COL uses a column "
            f"as a value; to go on without: {given + ' ' if given and len(given) < 350 else ''}{settling}"
        )


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:37] + "..."


def _drop(name: str) -> str:
    """Return the option that leaves out a column, with quotes always: names may have spaces."""
    return "--drop " + (shlex.quote(name) if "'" in name else f"'{name}'")


def _check_libsvm(table: TableReader, target: str | None, options: Options) -> None:
    given = replace(options, missing=None, errors=False)
    if target is not None or any(getattr(given, part.name) for part in fields(given)):
        raise TableError(
            f"{table.name}: libsvm has no names of columns, so no --target, --features, --drop, --weights, --groups or "
            "--err-pattern"
        )
    if options.missing not in (None, "error"):
        raise TableError(f"{table.name}: --missing {options.missing} is not for libsvm, where what is not there is 0")


def _checked_target(table: TableReader, target: str | None, options: Options) -> str:
    """Check that the columns that options name are there, and have one role each; return the target."""
    if target is None:
        raise TableError(
            f"{table.name}: --target must say which column has the labels; there are {table.some_columns()}"
        )
    table.require(target, "--target")
    taken = {target: "the target"}
    for option, alone in (("--weights", options.weights), ("--groups", options.groups)):
        if alone is not None:
            table.require(alone, option)
            if alone in taken:
                raise TableError(f"{table.place(alone)} is {taken[alone]} and cannot be that of {option}, too")
            taken[alone] = f"that of {option}"
    named = {"--drop": options.drop, "--features": options.features, "--as": [name for _, name in options.named]}
    for option, names in named.items():
        for name in names:
            table.require(name, option)
            if name in taken and (name != target or option != "--drop"):
                raise TableError(f"{table.place(name)} is {taken[name]} and cannot be one of {option}, too")
            if name in options.drop and option != "--drop":
                raise TableError(f"{table.place(name)} cannot be one of {option} and left out with --drop")
    return target


class _Planner:
    """A table with its first rows, and options, from which a plan is made."""

    def __init__(self, table: TableReader, target: str, options: Options, shown: pa.Table) -> None:
        self.table, self.target, self.options, self.shown = table, target, options, shown
        self.n = shown.num_rows
        self.no_numbers = [cell for cell in options.none if isinstance(cell, float)]
        self.alone = {target: "target"} | {name: role for name, role in
                      ((options.weights, "weight"), (options.groups, "group")) if name}  # fmt: skip
        self.columns = [name for name in table.columns if name and name not in self.alone]
        self.doubtful: dict[str, tuple[str, list[str]]] = {}
        self.named = {*options.features, *(name for _, name in options.named)}
        self.notes: list[str] = []
        # Columns of texts with commas in numbers, most of them or all as in 1,234, which may be thousands.
        self.commas = self._find_commas()
        self.decimal = "," if any(is_decimal for is_decimal in self.commas.values()) else table.decimal
        # Texts among the numbers of a column, by column.
        self.broken: dict[str, Counter[str]] = {}
        columns = dict(zip(shown.column_names, shown.columns, strict=True))
        self.shown = pa.table(columns | {name: self._numbers(name, columns[name]) for name in self.columns})

    def plan(self) -> Plan:
        """Return the plan of the table."""
        roles = self._roles()
        ignored = dict(roles.ignored)
        layout = self._layout(roles, ignored)
        for name in [name for name in self.commas if name in {*layout.numbers, *self.doubtful}]:
            if self.commas[name]:
                self._add_doubt(name, "has decimal commas", "--decimal ,")
            else:
                reason = "has commas in numbers, of thousands (remove them) or decimal (--decimal ,)"
                self.doubtful[name] = reason, [_drop(name)]
        if layout.missing == "unmeasured" and self.options.missing_error is None:
            self._check_missing_errors(layout)
        if layout.missing == "error" and self.options.missing is None:  # what stands for no value is then none
            for _, settling in self.doubtful.values():
                settling.extend(["--missing unmeasured"] * any(part.startswith("--na") for part in settling))
        if self.options.drop_doubtful:  # those that --drop would settle; the others stay doubtful
            gone = [
                name for name, (_, given) in self.doubtful.items() if any(part.startswith("--drop") for part in given)
            ]
            options = replace(self.options, drop=[*self.options.drop, *gone], drop_doubtful=bool(gone))
            return _Planner(self.table, self.target, options, self.shown).plan()
        notes = [*self.notes, *self._notes(roles, layout)]
        return Plan(self.table.name, layout, self._rows(layout, ignored), self.doubtful, self.n, notes)

    def _roles(self) -> ColumnRoles:
        """Return the roles of columns by their names and kinds; add their doubts."""
        options = self.options
        try:
            roles = column_roles(
                self.columns,
                patterns=options.err_pattern,
                values=self.named,
                dropped=[name for name in dict.fromkeys(options.drop) if name != self.target],
                kind=self._kind,
                level=options.error_level is not None or options.error_factor is not None,
            )
        except ValueError as error:
            raise TableError(f"{self.table.name}: {error}") from None
        self._check_limit_flags(roles)
        for name, reason in [*roles.doubtful.items()]:
            if reason.startswith("looks like a flag") and self._no_value(name):
                roles.ignored[name] = self._no_value(name)
                del roles.doubtful[name]
            else:
                self.doubtful[name] = reason, [roles.settled_by.get(name, _drop(name))]
        return roles

    def _layout(self, roles: ColumnRoles, ignored: dict[str, str]) -> Layout:
        """Return the layout; add to the ignored columns, and doubts."""
        options, not_values = self.options, roles.not_values
        replicates = self._named_replicates(not_values)
        columns = [name for name in self.columns if name not in not_values and name not in self.doubtful]
        columns = list(dict.fromkeys(options.features)) or columns
        values, categories = self._split(columns, roles, ignored, {name for of in replicates.values() for name in of})
        errors = self._bars(roles, values, ignored) | self._replicated(replicates, values)
        limits = {name: flag for name, flag in roles.limits.items() if name in values and options.errors}
        correlations = [pair for pair in roles.correlations if {*pair[:2]} <= errors.keys() and not limits]
        if options.features:  # what is not chosen is not asked about
            self.doubtful = {name: doubt for name, doubt in self.doubtful.items() if name in values}
        missing = options.missing or ("unmeasured" if errors or limits else "error")
        layout = Layout(
            values, errors, limits, correlations, categories, list(options.log), options.none,
            missing, options.missing_error or "refuse", self.target, options.weights, options.groups,
        )  # fmt: skip
        self._check_options(layout, ignored)
        return layout

    def _check_options(self, layout: Layout, ignored: dict[str, str]) -> None:
        """Raise if there is no feature, or options are not for this layout."""
        name, options = self.table.name, self.options
        if options.err_pattern and options.errors and not layout.errors:
            raise TableError(
                f"{name} has no column whose name is that of a feature in {', '.join(options.err_pattern)} "
                "(--err-pattern)"
            )
        if not layout.values and not layout.categories and not self.doubtful:
            reasons = ", ".join(f"{quoted(column)} ({reason})" for column, reason in [*ignored.items()][:5])
            raise TableError(
                f"{name} has no column for a feature beside the target {self.target!r}"
                + (f"; ignored: {reasons}" if reasons else "")
            )
        if layout.missing == "mean" and (layout.errors or layout.limits):
            raise TableError("--missing mean is for tables without errors; 'unmeasured' puts the mean with its error")
        for column in options.log:
            if column not in layout.values:
                raise TableError(f"{self.table.place(column)} is no feature with numbers, for --log")

    def _find_commas(self) -> dict[str, bool]:
        """Return columns with commas in numbers, and whether these are decimal; raise if row 1 is a second header."""
        texts = {name: column for name, column in zip(self.shown.column_names, self.shown.columns, strict=True)
                 if pa.types.is_string(column.type)}  # fmt: skip
        rest = {name: column.slice(1) for name, column in texts.items() if column.is_valid()[:1].to_pylist() == [True]}
        below = [name for name, column in rest.items()
                 if _matches(column, _NUMBER) and not _matches(texts[name].slice(0, 1), _NUMBER)]  # fmt: skip
        if len(below) > 1 and len(texts) == self.shown.num_columns:
            raise TableError(
                f"{self.table.place(below[0])} has {quoted(texts[below[0]][0].as_py())} in row 1, and numbers below: "
                "row 1 looks like a second header; remove it from the file"
            )
        commas = [name for name in self.columns if name in texts and _matches(texts[name], DECIMAL_COMMA)]
        if commas:
            self.notes = [f"texts such as {texts[commas[0]].drop_null()[0].as_py()!r} in {_named(commas)}: {COMMA}"]
        if getattr(self.table, "sep", ",") != ",":
            return dict.fromkeys(commas, True)
        thousands = r"^\s*[-+]?[1-9]\d{0,2}(,\d{3})+\s*$"
        return {name: not pc.all(pc.match_substring_regex(texts[name], thousands)).as_py() for name in commas}

    def _add_doubt(self, name: str, reason: str, option: str) -> None:
        """Add to the doubts of a column a reason, and the option that settles it."""
        reasons, options = self.doubtful.get(name, ("", []))
        self.doubtful[name] = "; ".join(filter(None, [reasons, reason])), [*options, option]

    def _kind(self, name: str) -> str:
        """Return the kind of a column by its first rows, as :func:`column_roles` needs it, or "empty"."""
        column = self.shown[name]
        if column.null_count == self.n:
            return "number" if name in self.broken else "empty"
        if pa.types.is_string(column.type):
            return "unique" if self.n >= FEW and pc.count_distinct(column).as_py() == self.n else "text"
        if pa.types.is_int64(column.type):
            return "unique" if self.n > 1 and pc.count_distinct(column).as_py() == self.n else "integer"
        if pa.types.is_boolean(column.type):
            return "integer"
        return "signed" if (pc.min(column).as_py() or 0) < 0 else "number"

    def _numbers(self, name: str, column: pa.Array) -> pa.Array:
        """Return the numbers of a text column of numbers, and note the texts among them; else the column."""
        if not pa.types.is_string(column.type) or not _matches(column, _NUMBER):
            return column
        numbers, wrong = numbers_of(pc.utf8_trim_whitespace(column.combine_chunks()), self.decimal)
        texts = [] if wrong is None else column.filter(pa.array(wrong)).to_pylist()
        self.broken[name] = Counter(text.strip() for text in texts)
        return numbers

    def _check_limit_flags(self, roles: ColumnRoles) -> None:
        """Take limit flags for values where they hold anything else, and for marks where they are texts."""
        for feature, (column, coding) in [*roles.limits.items()]:
            values = self.shown[column]
            if pa.types.is_string(values.type) and values.null_count < self.n:
                roles.limits[feature] = column, "<"
            elif coding == "<" and values.null_count < self.n:
                del roles.limits[feature]
                roles.doubtful[column] = f"looks like a limit flag of {feature!r}, and holds numbers"
            elif feature not in roles.errors:
                numbers = pc.cast(values, pa.float64()) if values.null_count < self.n else None
                if numbers is None or not pc.all(pc.is_in(numbers.drop_null(), pa.array([-1.0, 0.0, 1.0]))).as_py():
                    del roles.limits[feature]

    def _split(
        self, columns: list[str], roles: ColumnRoles, ignored: dict[str, str], replicated: set[str]
    ) -> tuple[list[str], dict[str, list[str]]]:
        """Return values, and categories with their levels; add to the ignored columns, and doubts."""
        values, categories = list[str](), dict[str, list[str]]()
        for name in columns:
            is_text = pa.types.is_string(self.shown[name].type) and self._kind(name) != "empty"
            if name in replicated:
                values.append(name)
            elif name in self.options.having("category") or (is_text and name not in self.options.having("value")):
                self._split_text(name, categories, ignored)
            elif name not in self.named and (reason := self._no_value(name)):
                ignored[name] = reason
            else:
                values.append(name)
                if name not in self.named:
                    self._doubt(name, roles.errors.get(name))
        gone = {name for name, (_, given) in self.doubtful.items() if given[0].startswith("--drop")}
        known = self.named | roles.errors.keys() | gone | replicated
        free = [name for name in values if name not in known]
        self._doubt_errors(dict.fromkeys(free), roles)
        if not self.options.replicates:
            self._doubt_replicates(free)
        return values, categories

    def _split_text(self, name: str, categories: dict[str, list[str]], ignored: dict[str, str]) -> None:
        """Add a column of texts to the categories, the ignored columns or the doubts."""
        column = self.shown[name]
        schema = getattr(self.table, "schema", None)  # a file of text has none
        # A number with its error: 12.3±0.4, 12.3 +/- 0.4, 12.3(4).
        pattern = rf"{_NUMBER.pattern}(?:(?:±|\+/?[-\u2212]){_NUMBER.pattern}|\([\d.,]+\)\s*)"
        if name not in self.named and _matches(column, re.compile(pattern)):
            reason = "has values with errors in one cell: split the column into one of values and one of errors"
            self.doubtful[name] = reason, [_drop(name)]
            return
        texts = pc.unique(pc.utf8_trim_whitespace(pc.cast(column, pa.string())))
        levels = sorted(texts.drop_null().to_pylist())
        few = len(levels) <= min(MOST_LEVELS, max(2, self.n / 5))
        if len(levels) > 1 and (few or name in self.options.having("category")):
            categories[name] = levels
        elif name in self.options.features:
            why = (
                f"{len(levels)} different texts in {self.n} rows; --as category:{name} makes features of them, or leave"
            )
            if len(levels) < 2:
                why = f"the text {quoted(''.join(levels))} in all rows, and cannot be a feature; leave"
            raise TableError(f"{self.table.place(name)} has {why} it out with --drop {quoted(name)}")
        elif schema is not None and pa.types.is_nested(schema.field(name).type):
            ignored[name] = "arrays in cells"
        elif len(levels) < 2:
            ignored[name] = "constant"
        else:
            ignored[name] = "identifier" if len(levels) > self.n / 2 else "text of many levels"

    def _no_value(self, name: str) -> str:
        """Return why a column of numbers is no feature, or nothing."""
        column = self.shown[name]
        if name in self.broken:
            return ""
        if column.null_count == self.n > 0:
            return f"no value in the first {self.n} rows"
        is_constant = self.n >= FEW and column.null_count == 0 and pc.count_distinct(column).as_py() == 1
        return "constant" if is_constant else ""

    def _doubt(self, name: str, bar: Bar | None) -> None:
        """Refuse a value that may be a row number, an identifier, or hold cells that stand for no value."""
        if bar is None and (reason := self._identifier(name)):
            self.doubtful[name] = reason, [_drop(name)]
            return
        signed = () if bar is None else KINDS[bar.kind]
        for place, is_nonnegative in zip((name, *(bar.columns if bar else ())), (False, *signed), strict=True):
            largest = pc.max(self.shown[place]).as_py() if is_nonnegative else None
            if largest is not None and largest < 0 and self._may_be_none(largest):
                reason = f"has {largest:.15g} and no error in all rows; dropped, {quoted(name)} is exact"
                self.doubtful[place] = reason, [_drop(place)]
                continue
            self._doubt_cells(place, name, is_nonnegative)

    def _doubt_cells(self, place: str, name: str, is_nonnegative: bool) -> None:
        """Refuse cells of a column of a feature that are limits, or may stand for no value."""
        broken = self.broken.get(place, Counter())
        if any(re.fullmatch(rf"\s*[<>≤≥]=?{_NUMBER.pattern}", text) for text in broken):
            reason = "has limits such as <0.5 in cells: split the column into one of values and one of marks"
            self.doubtful[place] = reason, [_drop(name)]
            return
        found = self._no_numbers(place)
        if is_nonnegative and not found:  # one negative number only, more than once, among errors
            values = self._complete([place])[:, 0]
            negative = values[values < 0]
            found = negative[:1].tolist() if 1 < len(negative) < len(values) and np.ptp(negative) == 0 else []
        words = [text for text, times in broken.items() if times > 1]
        if found or (0 < len(words) <= 3 and not re.search(r"\d|,", "".join(words))):
            text = ",".join([*(f"{number:.15g}" for number in found), *words])
            errors = ["--missing-error unmeasured"] * (place != name and self.options.missing_error is None)
            self.doubtful[place] = f"has {text} where there may be no value", [shlex.quote(f"--na={text}"), *errors]

    def _identifier(self, name: str) -> str:
        """Return why integers may number or name the rows, or nothing."""
        column = self.shown[name]
        if self.n < FEW or column.null_count or not pa.types.is_int64(column.type):
            return ""
        values = column.to_numpy()
        steps = np.diff(values)
        if abs(steps[0]) == 1 and (steps == steps[0]).all():
            return f"numbers the rows from {values[0]} on"
        is_long, n_values = values.min() >= 10**7, len(np.unique(values))
        is_named = re.search(r"id$|_(?:nr|num|number|code)$", plain(name)) is not None
        if (is_long or is_named) and n_values == self.n:
            return f"looks like an identifier: {'long ' * bool(is_long)}integers, all different"
        if is_named and n_values > MOST_LEVELS:
            return f"looks like an identifier, by its name: {n_values} different integers"
        return ""

    def _no_numbers(self, name: str) -> list[float]:
        """Return numbers of a column that may stand for no value: among those in use, and far from all others."""
        column = self.shown[name]
        if self.n < FEW or not (pa.types.is_floating(column.type) or pa.types.is_int64(column.type)):
            return []
        ends = pc.min_max(column).as_py()
        if not any(self._may_be_none(end) for end in ends.values()):
            return []
        values = column.drop_null().to_numpy().astype(np.float64)
        return stand_ins(values[~np.isin(values, self.no_numbers)])

    def _may_be_none(self, number: float | None) -> bool:
        if number is None or not math.isfinite(number) or number in self.no_numbers:
            return number is not None and number in self.no_numbers
        return may_stand_for_none(number)

    def _doubt_errors(self, names: dict[str, None], roles: ColumnRoles) -> None:
        """Refuse columns that may be errors, as most names of features are there with the same ending or beginning."""
        pairs = _alike_names({name: name for name in names})
        if not pairs and any(plain(name) != name.lower() for name in names):  # names without units in brackets
            pairs = _alike_names({plain(name): name for name in names})
        for pattern, found in pairs.items():
            is_word = len(found) > 1 or not pattern.replace("{x}", "").isalnum()
            if is_word and 2 * sum(self._may_be_error(*pair) for pair in found) > len(names) - len(found):
                for feature, name in found:
                    roles.doubtful[name] = f"may hold the errors of {feature!r}"
                    self._add_doubt(name, roles.doubtful[name], f"--err-pattern {shlex.quote(pattern)}")

    def _may_be_error(self, feature: str, name: str) -> bool:
        """Return whether a column is nonnegative, and mostly smaller than the spread of a feature."""
        values, errors = (self._complete([column])[:, 0] for column in (feature, name))
        is_count = pa.types.is_int64(self.shown[name].type) and not pa.types.is_int64(self.shown[feature].type)
        if is_count or len(values) < 2 or not len(errors):
            return False
        return bool(errors.min() >= 0 and errors.max() > 0 and np.median(errors) < values.std())

    def _doubt_replicates(self, names: list[str]) -> None:
        """Refuse columns x1, x2, ... that agree as measurements of the same quantity do."""
        if self.n < FEW:
            return
        groups: dict[str, list[tuple[int, str]]] = {}
        for name in names:
            match = re.fullmatch(r"(.*?[^\d])_?(\d{1,2})", name)
            if match is not None:
                groups.setdefault(match[1].rstrip("_"), []).append((int(match[2]), name))
        for base, numbered in groups.items():
            order, of = zip(*sorted(numbered), strict=True)
            if not 2 <= len(order) <= 10 or order != tuple(range(1, len(order) + 1)):
                continue
            values = self._complete(of)
            spreads = values.std(axis=0) if len(values) >= FEW else np.zeros(1)
            alike = (spreads > 0).all() and np.corrcoef(values, rowvar=False).min() > 0.9
            if alike and np.ptp(values.mean(axis=0)) < spreads.mean():
                ends = [re.sub(r".*?(\d+)$", r"\1", name) for name in of]
                option = f"--replicates '{of[0][: -len(ends[0])]}{{{','.join(ends)}}}'"
                for name in of:
                    others = ", ".join(repr(other) for other in of if other != name)
                    self._add_doubt(name, f"looks like a replicate of {base.rstrip()!r}, as {others}", option)

    def _complete(self, names: Sequence[str]) -> Array:
        """Return columns of the first rows, (n_rows, n_columns), in which all have a number."""
        columns = [pc.cast(self.shown[name], pa.float64(), safe=False).to_numpy().astype(np.float64) for name in names]
        values = np.column_stack(columns)
        values[np.isin(values, self.no_numbers)] = np.nan
        return np.asarray(values[np.isfinite(values).all(axis=1)])

    def _named_replicates(self, not_values: set[str]) -> dict[str, list[str]]:
        """Return the columns of each quantity that --replicates names."""
        found = {}
        for pattern in self.options.replicates:
            match = re.fullmatch(r"([^{}]*)\{([^{}]+)\}([^{}]*)", pattern)
            if match is None:
                raise TableError(
                    f"--replicates must be a name with choices in braces, as 'x{{1,2,3}}'; got {pattern!r}"
                )
            names = [f"{match[1]}{part.strip()}{match[3]}" for part in match[2].split(",")]
            for name in names:
                self.table.require(name, "--replicates")
            feature = (match[1] + match[3]).strip("_ ") or pattern
            if feature in self.columns and feature not in names:
                feature = pattern
            if len(set(names)) < 2 or any(name in not_values or name in self.alone for name in names):
                raise TableError(f"--replicates {pattern!r} must name two or more features with numbers")
            found[feature] = names
        return found

    def _replicated(self, replicates: dict[str, list[str]], values: list[str]) -> dict[str, Bar]:
        """Put quantities in place of their replicates; return their errors, by the spread within rows."""
        errors = {}
        for feature, names in replicates.items():
            place = min(values.index(name) for name in names if name in values)
            values[place] = feature
            values[:] = [name for name in values if name == feature or name not in names]
            within = self._complete(names)
            if len(within) < 2:
                raise TableError(f"{self.table.name}: --replicates {feature!r} has no two rows with all replicates")
            spread = float(np.sqrt(within.var(axis=1, ddof=1).mean()))
            if not spread > 0:
                raise TableError(f"{self.table.name}: replicates {names!r} never differ")
            errors[feature] = Bar(REPLICATES, names, spread)
        return errors if self.options.errors else {}

    def _bars(self, roles: ColumnRoles, values: list[str], ignored: dict[str, str]) -> dict[str, Bar]:
        """Return errors of features, in units of these and as standard deviations; add to the ignored columns."""
        errors, known, is_used = {}, set(values), self.options.errors
        for feature, bar in roles.errors.items():
            if not is_used or feature not in known:
                reason = f"errors of {feature!r}, which is not used" if is_used else "--no-errors"
                ignored.update(dict.fromkeys(bar.columns, reason))
            elif self.n and all(self._kind(column) == "empty" for column in bar.columns):
                ignored.update(dict.fromkeys(bar.columns, f"no value in the first {self.n} rows"))
                self.notes.append(f"all errors of {quoted(feature)} are empty: it is taken as exact")
            else:
                factor = bar.factor if bar.factor != 1 else self.options.factor
                errors[feature] = bar._replace(factor=factor * self._unit_factor(feature, bar))
        if not is_used:
            unused = [*(column for column, _ in roles.limits.values()), *(column for *_, column in roles.correlations)]
            ignored.update(dict.fromkeys(unused, "--no-errors"))
        return errors

    def _unit(self, name: str) -> str:
        """Return the unit of a column: as the file has it, or in brackets at the end of its name."""
        match = None if FUNCTION.fullmatch(name) else re.search(r"[\[(]([^\[\]()]+)[\])]\s*$", name)
        return self.table.units.get(name) or (match[1].strip() if match else "")

    def _unit_factor(self, feature: str, bar: Bar) -> float:
        """Return the factor from the unit of errors to that of the feature; doubt units that cannot be compared."""
        unit = self._unit(feature)
        others = {other for column in bar.columns if (other := self._unit(column)) and unit and other != unit}
        if not others:
            return 1.0
        factors = {_conversion(other, unit) if bar.kind in ("sigma", "sides") else None for other in others}
        if len(factors) == 1 and len({self._unit(column) for column in bar.columns}) == 1 and None not in factors:
            (factor,) = factors
            assert factor is not None
            self.notes.append(f"errors of {feature!r} converted from {others.pop()} to {unit}")
            return factor
        for column in bar.columns:
            reason = f"has errors in {self._unit(column)!r} of {feature!r} in {unit!r}: convert one of them"
            self.doubtful[column] = reason, [_drop(column)]
        return 1.0

    def _check_missing_errors(self, layout: Layout) -> None:
        """Refuse values without errors, unless an option says their meaning."""
        for feature, bar in layout.errors.items():
            if bar.kind == REPLICATES or not (any(self.shown[name].null_count for name in bar.columns) or layout.na):
                continue
            lost = [self._is_gone(name) for name in bar.columns]
            lost = lost[0] if len(lost) == 1 else pc.or_(*lost)
            gone = pc.and_not(lost, self._is_gone(feature))
            if feature in layout.limits:
                flag, coding = layout.limits[feature]
                marks = self.shown[flag]
                zero = ["", "=", "~"] if coding == "<" else [0.0]
                flags = pc.cast(marks, pa.string() if coding == "<" else pa.float64())
                gone = pc.and_(gone, pc.or_(pc.is_null(flags), pc.is_in(flags, value_set=pa.array(zero, flags.type))))
            if n := pc.sum(gone).as_py():
                reason = f"has no error in {n} of the first {self.n} rows with a value of {feature!r}"
                empty = next(name for name in bar.columns if pc.any(self._is_gone(name)).as_py())
                self.doubtful.setdefault(empty, (reason, ["--missing-error unmeasured"]))

    def _is_gone(self, name: str) -> pa.Array:
        """Return where a column has no value."""
        column = self.shown[name]
        if not self.no_numbers or pa.types.is_string(column.type):
            return pc.is_null(column)
        numbers = pc.cast(column, pa.float64(), safe=False)
        return pc.or_(pc.is_null(column), pc.is_in(numbers, value_set=pa.array(self.no_numbers, pa.float64())))

    def _notes(self, roles: ColumnRoles, layout: Layout) -> list[str]:
        """Return what a user should know of the plan."""
        notes = []
        used = {column for bar in layout.errors.values() for column in bar.columns}
        used |= {column for column, _ in layout.limits.values()}
        sources = Counter(source for column, source in roles.used.items() if column in used)
        if known := [source for source, _ in sources.most_common() if source != "errors by name"]:
            notes.append(f"errors by names of {', '.join(known)}")
        stated = {NINETY_PERCENT: "margins of error of {} are 90 % intervals: divided by 1.645",
                  0.5: "errors of {} are two standard deviations, by their names: divided by 2"}  # fmt: skip
        for factor, words in stated.items():
            names = [name for name, bar in layout.errors.items() if roles.errors.get(name, bar).factor == factor]
            notes += [words.format(_named(names))] if names else []
        doubled = [name for name, bar in layout.errors.items() if bar.kind == REPLICATES]
        notes += [f"{quoted(name)}: mean of {len(layout.errors[name].columns)} replicates, each with the standard "
                  f"deviation {layout.errors[name].factor:.4g}" for name in doubled]  # fmt: skip
        if not layout.errors and not layout.limits and not roles.doubtful and self.options.errors:
            notes.append("NO ERROR COLUMNS FOUND: features are taken as exact, for --classifier guru")
        notes += self._leaks(layout)
        if layout.categories:
            notes.append(f"one feature for each level but the first of {_named([*layout.categories])}")
        return notes

    def _leaks(self, layout: Layout) -> list[str]:
        """Return notes on features that alone tell the label."""
        labels, known = pc.cast(self.shown[self.target], pa.string()), set(self.columns)
        features = [name for name in [*layout.values, *layout.categories] if name in known]
        leaks = [name for name in features if _tells(self.shown[name], labels)]
        notes = [f"LABEL LEAK? {quoted(name)} alone tells the label of the first {self.n} rows; if it is made from the "
                 f"label, give {_drop(name)}" for name in leaks[:4]]  # fmt: skip
        return notes + [f"LABEL LEAK? {len(leaks) - 4} more features alone tell the label"] * (len(leaks) > 4)

    def _rows(self, layout: Layout, ignored: dict[str, str]) -> list[ColumnPlan]:
        """Return the role of every column, in the order of the table."""
        roles = {name: (role, "") for name, role in self.alone.items()} | dict(_used_roles(layout))
        for name, reason in ignored.items():
            kind = reason.partition(" ")[0]
            role = kind if reason in ("identifier", "position") or kind == "flag" else "ignored"
            roles[name] = role, "" if role == reason else reason
        roles |= {name: ("DOUBTFUL", reason) for name, (reason, _) in self.doubtful.items()}
        default = "ignored", "not one of --features" if self.options.features else ""
        empty = {name: self.shown[name].null_count for name in self.shown.column_names}
        return [
            ColumnPlan(name, *roles.get(name, default), self._unit(name), empty[name])
            for name in filter(None, self.table.columns)
        ]


def _used_roles(layout: Layout) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the columns of a layout with their roles and reasons."""
    for name in layout.values:
        yield name, ("value", "logarithm" if name in layout.log else "")
    for name, levels in layout.categories.items():
        yield name, ("category", ", ".join([*map(_short, levels[:5]), *["..."] * (len(levels) > 5)]))
    for feature, bar in layout.errors.items():
        sides = ("upper ", "lower ") if bar.kind in ("sides", "bounds") else ("",)
        scaled = "" if bar.factor == 1 or bar.kind == REPLICATES else f", times {bar.factor:.4g}"
        role = "replicate" if bar.kind == REPLICATES else "error"
        for side, column in zip(cycle(sides), bar.columns, strict=False):
            yield column, (f"{role} of {feature}", f"{side}{bar.kind[:-1] if side else bar.kind}{scaled}")
    marks = {"-": "-1: upper, 1: lower", "+": "1: upper, -1: lower", "<": "<: upper, >: lower"}
    for feature, (column, coding) in layout.limits.items():
        yield column, (f"limit flag of {feature}", marks[coding])
    for one, other, column in layout.correlations:
        yield column, (f"correlation of {one} and {other}", "")


def _alike_names(known: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Return columns whose names are those of others with an ending or a beginning, after these others, by pattern."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for name, column in known.items():
        for cut in range(1, min(len(name), LONGEST_NAME)):
            for feature, pattern in ((name[:cut], "{x}" + name[cut:]), (name[cut:], name[:cut] + "{x}")):
                if feature in known and re.search(r"[^\W\d_]", pattern.replace("{x}", "")):
                    pairs.setdefault(pattern, []).append((known[feature], column))
    return pairs


def _tells(column: pa.Array, labels: pa.Array) -> bool:
    """Return whether a column alone tells the labels: by few values of one label each, or cuts between sorted ones."""
    known = pc.and_(pc.is_valid(column), pc.is_valid(labels))
    column, labels = (each.filter(known).combine_chunks().dictionary_encode() for each in (column, labels))
    codes, classes = column.indices.to_numpy(), labels.indices.to_numpy()
    sizes = np.bincount(classes)
    n_values, others = len(column.dictionary), len(classes) - sizes.max(initial=0)
    if len(classes) < 50 or others < 5:  # too few to say so
        return False
    if n_values <= MOST_LEVELS:
        table = np.bincount(codes * len(sizes) + classes, minlength=n_values * len(sizes)).reshape(n_values, -1)
        return bool(len(classes) - table.max(axis=1).sum() <= others / 100)
    if pa.types.is_string(column.type.value_type):
        return False
    values = np.asarray(column.dictionary)[codes]
    order = np.lexsort((classes, values))
    changes = classes[order][1:] != classes[order][:-1]
    return bool(changes.sum() == len(sizes) - 1 and (np.diff(values[order])[changes] > 0).all())


def _matches(column: pa.Array, pattern: re.Pattern[str]) -> bool:
    """Return whether most of the first texts of a column match a pattern."""
    texts = column.drop_null().slice(0, 200).to_pylist()
    return bool(texts) and 2 * sum(pattern.fullmatch(text) is not None for text in texts) >= len(texts)


def _named(names: list[str]) -> str:
    return ", ".join(quoted(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")


def _conversion(given: str, wanted: str) -> float | None:
    """Return the factor from one unit to another; None if they cannot be compared, or astropy is not installed."""
    try:
        units = importlib.import_module("astropy.units")  # an extra, which takes a while to import
    except ImportError:
        return None
    try:
        return float(units.Unit(given).to(units.Unit(wanted)))
    except (ValueError, TypeError):
        return None
