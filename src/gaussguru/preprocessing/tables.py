"""Error bars from tables, and from numbers with uncertainties."""

import warnings
from collections import Counter

import narwhals.stable.v2 as nw
import numpy as np

from gaussguru._errors.columns import Cells, Columns, stand_ins
from gaussguru._errors.conventions import column_roles
from gaussguru._errors.given import Asymmetric, Limits
from gaussguru._errors.parse import frame_and_units, split_uncertainties, with_units
from gaussguru._utils.frames import as_numbers, is_frame, like
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import ErrorBars, Values


def errors_from_frame(frame: Values, convention: str = "auto") -> tuple[Values, ErrorBars]:
    """Split a table with columns of values and columns of their errors, as archives name these.

    A column without errors is exact: its errors are 0. A missing value (NaN) was not measured: its error is infinite.
    Its own error is ignored. A value without an error (NaN) has to be decided on before: fill in 0 if it is exact,
    infinity if it should not be used.

    Errors with two sides are in two columns, such as ``name_err1`` (upper) and ``name_err2`` (lower) of the NASA
    Exoplanet Archive; the sign of the lower one does not matter.

    Parameters
    ----------
    frame : DataFrame of pandas, polars or Arrow, or astropy table
        All columns that are neither errors nor their like are features: remove labels first. Features of an astropy
        table get their unit in their name, as in ``"flux [mJy]"``; values and errors must have the same unit.
    convention : str, default="auto"
        "auto" knows "NASA Exoplanet Archive" (``xerr1``, ``xerr2``, ``xlim``), "VizieR" (``e_x``, ``E_x``, ``l_x``),
        "Gaia" (``x_error``, ``x_y_corr``), "SDSS" (``xErr_u``), "2MASS and WISE", "Chandra" (``x_hilim``, ``x_lolim``),
        "census" (``M_x``, ``x_moe``: 90 % intervals, divided by 1.645) and "errors by name" (``x_err``, ``x_sigma``,
        ``x_std``, ``x_var``, ``x_ivar``, ``x_16`` and ``x_84``, ...). One of these names stands for it alone, and a
        pattern such as ``"{x}_err"`` for the columns of standard deviations that it fits.

        A column ``name_limit`` marks limits: -1 for an upper limit (the true value is below), +1 for a lower limit, and
        0 or NaN for a measurement; ``xlim`` has 1 for an upper limit, and ``l_x`` has "<".

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features)
    X_err : DataFrame of the same shape and columns, Asymmetric or Limits made of them, or an array of covariances
        Covariances, (n_samples, n_features, n_features), where there are columns of correlations; errors with two sides
        are then symmetric, and X has their means.

    Warns
    -----
    UserWarning
        If columns are left out: identifiers, positions, flags. If a column has numbers such as -9999, far from all
        others: archives write them where there is no value.

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
    labels = list(frame.columns if hasattr(frame, "iloc") else nw.from_native(frame).columns)
    names = list(map(str, labels))
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ValueError(f"frame must have columns of different names; got {twice!r} more than once")
    columns, table = _columns(names, convention), nw.from_native(frame, eager_only=True)
    _check_units(columns, units)
    index = {name: j for j, name in enumerate(names)}
    texts = {name: np.array([*map(_text, table[:, index[name]].to_list())], dtype=object) for name in columns.texts}
    matrix = np.column_stack([_numbers(table[:, [index[name]]].to_native(), name) for name in columns.numbers])
    shown = with_units({name: units.get(name, "") for name in columns.values}) if units else None
    places = [index[name] for name in columns.values]
    X, cells = table[:, places], Cells("frame")
    if shown:
        X = X.rename(dict(zip(X.columns, shown, strict=True)))
    if columns.correlations:
        values, covariances = columns.measured(matrix, texts, cells)
        cells.check()
        _warn_of_stand_ins(columns.numbers, matrix)
        return like(X.to_native(), values), covariances
    _, lower, upper, limits = columns.sides(matrix, texts, cells)
    cells.check()
    _warn_of_stand_ins(columns.numbers, matrix)
    below, above, flags = (None if each is None else like(X.to_native(), each) for each in (lower, upper, limits))
    X_err = Asymmetric(below, above) if columns.is_two_sided else above
    return X.to_native(), X_err if flags is None else Limits(X_err, flags)


def _columns(names: list[str], convention: str) -> Columns:
    """Return the columns of a frame with these names; raise where names leave doubts."""
    roles = column_roles(names, convention=convention)
    if roles.doubtful:
        doubts = "; ".join(f"{name!r} {reason}" for name, reason in [*roles.doubtful.items()][:5])
        raise ValueError(f"frame has columns that must be removed or renamed: {doubts}")
    if not roles.errors and not roles.limits:
        raise ValueError(f"frame has no column of errors for convention={convention!r}; got {names!r}")
    if roles.ignored:
        left = ", ".join(f"{name!r} ({reason})" for name, reason in [*roles.ignored.items()][:5])
        warnings.warn(f"columns are left out of X and X_err: {left}", stacklevel=3)
    return roles.columns(names)


def _warn_of_stand_ins(names: list[str], matrix: Array) -> None:
    """Warn of numbers that may stand for no value."""
    strange = {name: numbers for name, column in zip(names, matrix.T, strict=True) if (numbers := stand_ins(column))}
    if strange:
        listed = "; ".join(
            f"{', '.join(f'{x:.15g}' for x in numbers)} in {name!r}" for name, numbers in strange.items()
        )
        warnings.warn(f"numbers that may stand for no value: {listed}; replace them by NaN if they do", stacklevel=3)


def _check_units(columns: Columns, units: dict[str, str]) -> None:
    """Raise if errors have another unit than their feature."""
    for name, bar in columns.errors.items():
        for other in filter(None, map(units.get, bar.columns)):
            if units.get(name, other) != other:
                raise ValueError(f"column {name!r} has the unit {units[name]!r}, and its errors {other!r}")


def _text(cell: object) -> object:
    """Return a cell of text: None if it is empty (NaN in pandas), a string where astropy has bytes."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return None if isinstance(cell, float) and np.isnan(cell) else cell


def _numbers(column: Values, name: str) -> Array:
    try:
        return as_numbers(column, "column")[:, 0]
    except (ValueError, TypeError) as problem:
        raise ValueError(
            f"frame must hold numbers, but column {name!r} does not ({problem}): take out labels and identifiers, "
            f"as labels = frame.pop({name!r}), and encode categories, as "
            f"pandas.get_dummies(frame, columns=[{name!r}], drop_first=True, dtype=float)"
        ) from problem


def errors_from_uncertainties(X: Values) -> tuple[Values, ErrorBars]:
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
