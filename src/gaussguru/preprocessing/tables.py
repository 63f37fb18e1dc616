"""Error bars from tables, and from numbers with uncertainties."""

import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from gaussguru._errors import Asymmetric, Limits, frame_and_units, split_uncertainties, with_units
from gaussguru._frames import as_numbers, is_frame, like
from gaussguru._linalg import Array

# How the two sides of an error bar are spelt, after the suffix for error bars: upper, lower.
SIDES = (("1", "2"), ("hi", "lo"), ("_up", "_low"))
ONE_SIDE = ("", "")
LIMIT = "_limit"
# How others name columns of errors, besides "_err", in any case: before the name of the value (VizieR has "e_", Fermi
# catalogues have "Unc_"), and after it.
PREFIXES = ("e_", "err_", "error_", "sigma_", "unc_")
SUFFIXES = ("_error", "_sigma", "_std", "_sd", "_se", "_unc", "_uncertainty", "_stddev", "err")


def errors_from_frame(frame: Any, suffix: str = "_err") -> tuple[Any, Any]:
    """Split a table with columns ``name`` and ``name_err`` into values and error bars.

    A column without errors is exact: its errors are 0. A missing value (NaN) was not measured: its error is infinite.
    Its own error is ignored. A value without an error (NaN in ``name_err``) has to be decided on before: fill in 0 if
    it is exact, infinity if it should not be used.

    Two-sided errors are in two columns: ``name_err1`` (upper) and ``name_err2`` (lower), as in the NASA Exoplanet
    Archive, or ``name_errhi`` and ``name_errlo``, or ``name_err_up`` and ``name_err_low``. The sign of the lower one
    does not matter. All features of a table must use the same style.

    A column ``name_limit`` marks limits: -1 for an upper limit (the true value is below), +1 for a lower limit, and 0
    or NaN for a measurement.

    Parameters
    ----------
    frame : DataFrame of pandas, polars or Arrow, or astropy table
        All other columns are features: remove labels and identifiers first. Features of an astropy table get
        their unit in their name, as in ``"flux [mJy]"``; values and errors must have the same unit.
    suffix : str, default="_err"
        Suffix of the error columns, which hold standard deviations.

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features)
    X_err : DataFrame of the same shape and columns, or Asymmetric or Limits made of such DataFrames

    Warns
    -----
    UserWarning
        If the name of a feature looks like the errors of another one, such as ``e_flux`` or ``Unc_Flux``.

    Examples
    --------
    >>> import pandas as pd
    >>> from gaussguru.preprocessing import errors_from_frame
    >>> table = pd.DataFrame({"flux": [1.2, 3.4], "flux_err": [0.1, 0.4], "n_lines": [3, 5], "class": ["a", "b"]})
    >>> labels = table.pop("class")
    >>> X, X_err = errors_from_frame(table)
    >>> X_err
       flux  n_lines
    0   0.1      0.0
    1   0.4      0.0
    """
    frame, units = frame_and_units(frame)
    if not is_frame(frame):
        raise TypeError(f"frame must be a table of astropy or a DataFrame; got {type(frame).__name__}")
    if not isinstance(suffix, str) or not suffix:
        raise ValueError(f"suffix must be a string of at least one character; got {suffix!r}")
    parts = _FrameParts.of(frame, units, suffix)
    for hint in similar_columns(parts.values)[:1]:
        warnings.warn(f"{hint} (now it is a feature), or leave it out", stacklevel=2)
    lower, upper, limits = (like(frame, np.column_stack(side), parts.names) for side in zip(*parts.bars(), strict=True))
    X_err = Asymmetric(lower, upper) if parts.is_two_sided else upper
    if parts.flags:
        X_err = Limits(X_err, limits)
        _ = X_err.sides  # checked
    return parts.features, X_err


class _FrameParts(NamedTuple):
    """A DataFrame of which some columns have values and others their errors or limits; columns may have units."""

    frame: Any  # of narwhals
    place: dict[str, int]
    values: list[str]
    upper: dict[str, str]
    lower: dict[str, str]
    flags: dict[str, str]
    units: dict[str, str]

    @classmethod
    def of(cls, frame: Any, units: dict[str, str], suffix: str) -> "_FrameParts":
        names = [str(name) for name in (frame.columns if hasattr(frame, "iloc") else nw.from_native(frame).columns)]
        upper, lower, flags = _error_names(names, suffix)
        used = {*upper.values(), *lower.values(), *flags.values()}
        place = {name: j for j, name in enumerate(names)}
        return cls(
            nw.from_native(frame, eager_only=True),
            place,
            [name for name in place if name not in used],
            upper,
            lower,
            flags,
            units,
        )

    @property
    def is_two_sided(self) -> bool:
        """Whether some error bar has two columns."""
        return self.upper != self.lower

    @property
    def names(self) -> list[Any]:
        """The names of the features, with their units where the table has any."""
        if not self.units:
            return [self.frame.columns[self.place[name]] for name in self.values]
        return with_units({name: self.units.get(name, "") for name in self.values})

    @property
    def features(self) -> Any:
        """The columns of values, as they are."""
        columns = self.frame[:, [self.place[name] for name in self.values]]
        return columns.rename(dict(zip(columns.columns, self.names, strict=True))).to_native()

    def bars(self) -> list[tuple[Array, Array, Array]]:
        """Return the lower and upper errors of every feature, infinite where it has no value, and its limits."""
        return [self._bar(name) for name in self.values]

    def _bar(self, name: str) -> tuple[Array, Array, Array]:
        columns = [side[name] for side in (self.lower, self.upper) if name in side]
        for other in filter(None, map(self.units.get, columns)):
            if self.units.get(name, other) != other:
                raise ValueError(f"column {name!r} has the unit {self.units[name]!r}, and its errors {other!r}")
        try:
            gone = np.isnan(self._numbers(name))
            lower, upper = (self._numbers(side.get(name)) for side in (self.lower, self.upper))
            flag = np.nan_to_num(self._numbers(self.flags.get(name)))
        except (ValueError, TypeError) as problem:
            raise ValueError(
                f"frame must hold numbers, but column {name!r} does not ({problem}): take out labels and identifiers, "
                f"as labels = frame.pop({name!r}), and encode categories"
            ) from problem
        if len(set(columns)) == 2:  # the sign of a lower side does not matter
            lower = np.abs(lower)
        return np.where(gone, np.inf, lower), np.where(gone, np.inf, upper), np.where(gone, 0.0, flag)

    def _numbers(self, name: str | None) -> Array:
        """Return a column, or zeros for one that is not there."""
        if name is None:
            return np.zeros(len(self.frame))
        return as_numbers(self.frame[:, [self.place[name]]].to_native(), "column")[:, 0]


def _error_names(names: list[str], suffix: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the columns of the upper and lower errors of features, the same where they are one, and of limits."""
    known = set(names)
    if len(known) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"frame must have columns of different names; got {twice!r} more than once")
    found = error_columns(names, known, suffix)
    if found.alone:
        raise ValueError(
            f"frame has error columns {found.alone!r} without the values: columns of the same names without {suffix!r}"
        )
    if found.halves:
        raise ValueError(f"frame has {found.halves!r}, but not the other side of these two-sided errors")
    if not found.upper and not found.limits:
        similar = [f"; {hint}" for hint in similar_columns(names)[:1]]
        raise ValueError(f"frame has no column that ends with suffix={suffix!r}{''.join(similar)}; got {names!r}")
    return found.upper, found.lower, found.limits


def similar_columns(names: Iterable[str]) -> list[str]:
    """Return what to say of columns that look like the errors of others, by names that other tables use."""
    names = list(names)
    found = {
        other.lower(): name
        for name in names
        for other in (*(p + name for p in PREFIXES), *(name + s for s in SUFFIXES))
    }
    return [
        f"{name!r} looks like the errors of {found[name.lower()]!r}: rename it to '{found[name.lower()]}_err'"
        for name in names
        if name.lower() in found
    ]


class ErrorColumns(NamedTuple):
    """Which columns have the errors of which features.

    ``upper`` and ``lower`` have the columns of the sides of an error bar, the same where there is one column; ``sides``
    how the names of two sides end; ``limits`` the columns of limits; ``alone`` columns of errors whose feature is not
    there, and ``halves`` those whose other side is not.
    """

    upper: dict[str, str]
    lower: dict[str, str]
    sides: tuple[str, str] | None
    limits: dict[str, str]
    alone: list[str]
    halves: list[str]


def error_columns(names: Iterable[str], features: Collection[str], suffix: str = "_err") -> ErrorColumns:
    """Find columns of errors by their names.

    Parameters
    ----------
    names : iterable of str
        Columns that may have errors.
    features : collection of str
        Columns that may have values.
    suffix : str, default="_err"

    Returns
    -------
    ErrorColumns
    """
    names, known = list(names), set(features)
    there = set(names)
    bars = [bar for bar in _bars(names, suffix) if bar.feature in known and bar.lower in there]
    upper: dict[str, str] = {}
    for bar in bars:
        if bar.feature in upper:
            raise ValueError(
                f"column {bar.feature!r} has two kinds of errors, {upper[bar.feature]!r} and {bar.upper!r}: leave one "
                "out"
            )
        upper[bar.feature] = bar.upper
    lower = {bar.feature: bar.lower for bar in bars}
    styles = {bar.sides for bar in bars if bar.sides != ONE_SIDE}
    if len(styles) > 1:
        used = sorted(suffix + up for up, _ in styles)
        raise ValueError(f"the sides of error bars must be spelt in one way; got columns that end with {used!r}")
    plain = _features(names, [suffix])
    alone = [name for name, feature in plain.items() if feature not in known]
    taken = {*upper.values(), *lower.values()}
    sided = _features(names, [suffix + side for sides in SIDES for side in sides])
    halves = [name for name, feature in sided.items() if feature in known and name not in taken]
    limits = {feature: name for name, feature in _features(names, [LIMIT]).items() if feature in known}
    return ErrorColumns(upper, lower, next(iter(styles), None), limits, alone, halves)


class _Bar(NamedTuple):
    """The columns of an error bar, by their names."""

    feature: str
    upper: str
    lower: str
    sides: tuple[str, str]


def _bars(names: list[str], suffix: str) -> Iterator[_Bar]:
    """Yield all that may be error bars: columns with an upper side, and the name of the lower one."""
    for up, low in (ONE_SIDE, *SIDES):
        for name, feature in _features(names, [suffix + up]).items():
            yield _Bar(feature, name, feature + suffix + low, (up, low))


def _features(names: list[str], endings: list[str]) -> dict[str, str]:
    """Return what columns are called without an ending, of those that have one of some."""
    found = {name: name.removesuffix(ending) for ending in endings for name in names if name.endswith(ending)}
    return {name: found[name] for name in names if found.get(name)}


def errors_from_uncertainties(X: Any) -> tuple[Any, Any]:
    """Split numbers with uncertainties (package ``uncertainties``) into values and error bars.

    Everything with the attributes ``nominal_value`` and ``std_dev`` will do; plain numbers are exact. Correlations
    between the numbers are not seen: for these give covariances as X_err.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_samples, n_features)

    Returns
    -------
    X, X_err : arrays or DataFrames of shape (n_samples, n_features)
    """
    return split_uncertainties(X)
