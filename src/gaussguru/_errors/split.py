"""Values and errors out of whatever carries both: tables, numbers with uncertainties, :class:`Measured`."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gaussguru._errors.arrays import like, names_of
from gaussguru._errors.given import Asymmetric, Limits, LowRank, Measured, marked


def split_errors(X: Any, X_err: Any = None) -> tuple[Any, Any]:
    """Return X and X_err, of which X may carry the second (:class:`Measured`).

    What X carries wins: in a pipeline ``X_err`` is what the errors were before the steps in between changed them.
    Tables must agree in their columns and rows, by name. What is NaN in X has infinity in X_err: it was not measured.
    """
    if isinstance(X, Measured):
        X, X_err = X.X, X.err
    X, X_err = _without_units(X, X_err)
    if X_err is None and holds_uncertainties(X):
        X, X_err = split_uncertainties(X)
    if isinstance(X_err, Asymmetric):
        X, X_err = X_err.symmetric(X)
    elif isinstance(X_err, Limits) and isinstance(X_err.err, Asymmetric):
        shifted, errors = X_err.err.symmetric(X)
        X, X_err = like(X, np.where(X_err.sides == 0, shifted, X)), Limits(errors, X_err.limits)
    for axis in ("columns", "index"):
        names, others = names_of(X, axis), names_of(X_err, axis)
        if names is None or others is None or np.array_equal(names, others):
            continue
        # Rows that are only numbered have no names, unless the same numbers come in another order.
        if axis == "index" and (_is_numbered(names) or _is_numbered(others)) and not _is_permuted(names, others):
            continue
        place = next((i for i, pair in enumerate(zip(names, others, strict=False)) if pair[0] != pair[1]), -1)
        raise ValueError(
            f"X_err must have the {axis} of X, in the same order; got {len(others)} for {len(names)}, "
            f"{others[place]!r} where X has {names[place]!r}"
        )
    return X, mark_unmeasured(X, X_err)


def _without_units(X: Any, X_err: Any) -> tuple[Any, Any]:
    """Return X and X_err, as DataFrames where they are tables of astropy; units, where both have any, must agree."""
    (X, units), (X_err, others) = frame_and_units(X), frame_and_units(X_err)
    for name in units.keys() & others.keys():
        if units[name] and others[name] and units[name] != others[name]:
            raise ValueError(f"column {name!r} has the unit {units[name]!r}, and its errors {others[name]!r}")
    return X, X_err


def frame_and_units(table: Any) -> tuple[Any, dict[str, str]]:
    """Return a DataFrame of a table of astropy, and the units of its columns; "" is none.

    Anything else is returned as it is.
    """
    if not (hasattr(table, "colnames") and hasattr(table, "to_pandas")):
        return table, {}
    for name in table.colnames:
        if len(shape := getattr(table[name], "shape", ())) > 1:
            raise ValueError(f"column {name!r} of the table must have one number in a row; got shape {shape}")
    return table.to_pandas(), {name: str(getattr(table[name], "unit", None) or "") for name in table.colnames}


def holds_uncertainties(X: Any) -> bool:
    """Return whether X has numbers with uncertainties, as of the package ``uncertainties``; some may be plain."""
    if hasattr(X, "iloc"):
        columns = [X.iloc[:, j] for j, kind in enumerate(X.dtypes) if kind.kind == "O"]
    elif isinstance(X, list | tuple):
        columns = [row for row in X if isinstance(row, list | tuple | np.ndarray)]
    else:
        columns = list(X) if getattr(getattr(X, "dtype", None), "kind", None) == "O" and np.ndim(X) == 2 else []
    return any(hasattr(number, "nominal_value") for column in columns for number in column)


def split_uncertainties(X: Any) -> tuple[Any, Any]:
    """Return values and standard deviations of numbers with uncertainties; plain numbers are exact."""
    numbers = np.asarray(X, dtype=object)
    if numbers.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got shape {numbers.shape}")
    try:
        values, errors = (
            np.array([[float(getattr(number, name, other(number))) for number in row] for row in numbers])
            for name, other in (("nominal_value", lambda number: number), ("std_dev", lambda _: 0.0))
        )
    except (TypeError, ValueError) as problem:
        raise ValueError(f"X must hold numbers, with uncertainties or without: {problem}") from problem
    return like(X, values.reshape(numbers.shape)), like(X, errors.reshape(numbers.shape))


def mark_unmeasured(X: Any, X_err: Any) -> Any:
    """Return X_err with infinity where X has NaN: a value that was not measured has no error bar either."""
    gaps = None if X_err is None else _gaps(X)
    if gaps is None:
        return X_err
    if isinstance(X_err, LowRank | Limits):
        return X_err.marked(gaps)
    return marked(X_err, gaps)


def _gaps(X: Any) -> NDArray[np.bool_] | None:
    """Return where X has NaN, if it has any."""
    if sp.issparse(X):
        return None
    try:
        values = np.asarray(X, dtype=None if getattr(X, "dtype", None) in (np.float32, np.float64) else np.float64)
    except (TypeError, ValueError):  # whoever needs numbers will say so
        return None
    with np.errstate(all="ignore"):
        if values.ndim != 2 or not np.isnan(values.sum()):  # one quick pass; what it finds is looked at
            return None
    gaps = np.isnan(values)
    return gaps if gaps.any() else None


def _is_numbered(names: NDArray[Any]) -> bool:
    return np.array_equal(names, np.arange(len(names)))


def _is_permuted(names: NDArray[Any], others: NDArray[Any]) -> bool:
    """Return whether rows have the same numbers in another order, where those of one table are in order."""
    if names.shape != others.shape or not (names.dtype.kind in "iu" and others.dtype.kind in "iu"):
        return False
    return np.array_equal(np.sort(names), np.sort(others))
