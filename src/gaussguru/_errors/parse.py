"""The one parser of X_err: from any form that users give to the few that the library computes with.

Every estimator, function, source and table first calls :func:`gaussguru._errors.samples.split_errors`, which calls
:func:`parsed`. After it, X_err is ::

    None
    standard deviations     float64, (n,) or (n, d); infinite for missing values
    covariances             float64, (n, d, d); a missing value has an infinite variance, and covariances of 0
    a sparse matrix         CSR, (n, d), standard deviations; no entry is an exact value
    LowRank                 finite factors, 0 for missing values; standard deviations of (n, d)
    Limits                  standard deviations and limits of (n, d)

with the number of samples and features of X, no NaN, no negative numbers, and covariances that are symmetric and
positive semidefinite. Rows are taken, errors scaled and missing values filled in only after this step.
"""

from collections.abc import Iterator, Sequence

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from gaussguru._errors.arrays import Gaps, check_given, check_semidefinite, deviations, error_numbers, finite_least
from gaussguru._errors.given import Asymmetric, Limits, LowRank, RowsOfArrays
from gaussguru._utils.frames import (
    as_numbers,
    check_same_names,
    column_names,
    is_frame,
    like,
    numbers_beside_text,
    text_columns,
    unmasked,
    with_numbers,
)
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, Values


def parsed(X: Values, X_err: ErrorBars, name: str) -> tuple[Values, ErrorBars]:
    """Return X, and X_err in one of the forms above, checked against X and called ``name`` in messages.

    X may hold numbers with uncertainties; these replace X_err. Tables must agree in their columns and rows, by name.
    A value is missing if it is NaN or masked in X, or if its error is infinite or masked in X_err.
    """
    X, X_err, names = _without_units(X, X_err)
    X = unmasked(X, "X")
    if X_err is None and holds_uncertainties(X):
        X, X_err = split_uncertainties(X)
    if X_err is None:
        return X if names is None else X.set_axis(names, axis=1), None
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got shape {X.shape}")
    shape = (int(X.shape[0]), int(X.shape[1]))
    X_err = _with_text(X, X_err)
    for label, table in _tables(X_err, name):
        check_same_names(X, table, label)
    X = X if names is None else X.set_axis(names, axis=1)
    gaps = _gaps(X)
    if isinstance(X_err, Asymmetric):
        X, std = X_err.symmetric(X)
        return X, as_numbers(std, "X_err")
    if isinstance(X_err, Limits):
        return _split_limits(X, X_err, shape, gaps)
    if isinstance(X_err, LowRank):
        return X, _low_rank(X_err, shape, gaps, name)
    return X, _array(X_err, shape, gaps, name)


def _tables(X_err: ErrorBars, name: str) -> Iterator[tuple[str, ErrorBars]]:
    """Yield the arrays and tables in error bars, each with a name for messages."""
    if isinstance(X_err, Asymmetric):
        yield from (("the lower side of X_err", X_err.lower), ("the upper side of X_err", X_err.upper))
    elif isinstance(X_err, Limits):
        yield from (*_tables(X_err.err, name), ("limits", X_err.limits))
    elif isinstance(X_err, LowRank):
        yield f"{name}.std", X_err.std
    else:
        yield name, X_err


def _with_text(X: Values, X_err: ErrorBars) -> ErrorBars:
    """Return X_err with errors of 0 for columns of text, which a DataFrame of errors may omit or leave empty."""
    if isinstance(X_err, Asymmetric):
        return Asymmetric(_with_text(X, X_err.lower), _with_text(X, X_err.upper))
    if isinstance(X_err, Limits):
        return Limits(_with_text(X, X_err.err), _with_text(X, X_err.limits))
    if not (is_frame(X) and is_frame(X_err)) or not len(text := text_columns(X)):
        return X_err
    names, given = column_names(X), column_names(X_err, "X_err")
    if (
        names is None
        or given is None
        or not {*np.delete(names, text).tolist()} <= {*given.tolist()} <= {*names.tolist()}
    ):
        return X_err
    frame, labels = nw.from_native(X_err, eager_only=True), names[text].tolist()
    measured = iter([name for name in given.tolist() if name not in labels])  # their order is checked later
    for label in labels:
        errors = as_numbers(frame.select(label).to_native(), "X_err")[:, 0] if label in given else np.zeros(len(frame))
        frame = frame.with_columns(nw.new_series(label, np.nan_to_num(errors), backend=frame.implementation))
    return frame.select([name if name in labels else next(measured) for name in names.tolist()]).to_native()


# --- forms ----------------------------------------------------------------------------------------------------


def _array(given: ErrorBars, shape: tuple[int, int], gaps: Gaps, name: str) -> ErrorBars:
    """Return checked standard deviations, dense or sparse, or covariances."""
    n, d = shape
    expected = (
        f"{name} must hold standard deviations of shape ({n},) or ({n}, {d}), or covariances of shape ({n}, {d}, {d}), "
        f"for X of shape ({n}, {d})"
    )
    if sp.issparse(given):
        if given.shape != shape:
            raise ValueError(f"{expected}; got a sparse array of shape {given.shape}")
        errors = sp.csr_matrix(given, dtype=np.float64)
        if gaps is None and not np.isinf(errors.data).any():
            deviations(errors.data, name, None)
            return errors
        given = errors.toarray()
    if not hasattr(given, "shape") and np.ndim(given) == 0:
        given = np.full(n, error_numbers(np.reshape(given, (1,)), name)[0])
    errors = error_numbers(given, name)
    if errors.shape == (n, d, d):
        return _covariances(errors, gaps, name)
    if errors.shape not in ((n,), (n, d)):
        advice = f". For the same errors in all samples, give numpy.tile({name}, ({n}, 1))" * (errors.shape == (d,))
        raise ValueError(f"{expected}; got shape {errors.shape}{advice}")
    return marked(deviations(errors, name, gaps), gaps)


def marked(errors: ErrorBars, gaps: Gaps) -> ErrorBars:
    """Return parsed error bars with further missing values, the mask ``gaps``."""
    if gaps is None:
        return errors
    if isinstance(errors, Limits):
        return Limits(np.where(gaps, np.inf, errors.err), np.where(gaps, 0, errors.limits))
    if isinstance(errors, LowRank):
        return LowRank(np.where(gaps[:, :, np.newaxis], 0.0, errors.factors), np.where(gaps, np.inf, errors.std))
    if sp.issparse(errors):
        errors = errors.toarray()
    if errors.ndim < 3:
        return np.where(gaps, np.inf, errors if errors.ndim == 2 else errors[:, np.newaxis])
    errors = np.where(gaps[:, :, np.newaxis] | gaps[:, np.newaxis, :], 0.0, errors)
    np.einsum("ijj->ij", errors)[gaps] = np.inf
    return errors


def scaled(errors: ErrorBars, factor: ErrorBars) -> ErrorBars:
    """Return parsed error bars times a factor, or times a factor for each feature, (d,); 0 times infinity is 0."""
    size = np.abs(factor)
    if isinstance(errors, Limits):
        return Limits(scaled(errors.err, size), errors.limits)
    if isinstance(errors, LowRank):
        return LowRank(errors.factors * np.reshape(factor, (-1, 1)), scaled(errors.std, size))
    if sp.issparse(errors):
        return sp.csr_matrix(errors.multiply(size))
    if errors.ndim == 3:
        size = np.multiply.outer(factor, factor)
    elif errors.ndim == 1 and np.ndim(size):
        size, errors = (size[0], errors) if np.all(size == size[0]) else (size, errors[:, np.newaxis])
    if np.all(size):
        return errors * size
    return np.multiply(errors, size, out=np.zeros(np.broadcast_shapes(errors.shape, np.shape(size))), where=size != 0)


def finite(errors: ErrorBars) -> ErrorBars:
    """Return parsed error bars with 0 for missing values; for limits, the errors of the limits."""
    if isinstance(errors, Limits):
        errors = errors.err
    if isinstance(errors, LowRank):
        return LowRank(errors.factors, finite(errors.std))
    return errors if sp.issparse(errors) else np.where(np.isinf(errors), 0.0, errors)


def stacked_errors(parts: Sequence[ErrorBars]) -> ErrorBars:
    """Return parsed error bars of several arrays as one, or None without any.

    Missing values make error bars dense, one for each value: those of some arrays may have such a form, of others not.
    """
    first = parts[0]
    if first is None:
        return None
    if len({type(part) if isinstance(part, RowsOfArrays) else part.ndim > 2 for part in parts}) > 1:
        forms = "standard deviations, covariances, LowRank or Limits"
        raise ValueError(f"X_err must be of one form in all partitions: {forms}")
    if isinstance(first, RowsOfArrays):
        return type(first)(*map(np.concatenate, zip(*(part.arrays for part in parts), strict=True)))
    if all(map(sp.issparse, parts)):
        return sp.vstack(parts, format="csr")
    dense = [part.toarray() if sp.issparse(part) else part for part in parts]
    if len({part.ndim for part in dense}) > 1:  # one error for each sample in some arrays, for each value in others
        d = max(part.shape[1] for part in dense if part.ndim == 2)
        dense = [np.broadcast_to(part.T, (d, len(part))).T for part in dense]
    return np.concatenate(dense)


def columns_of_errors(errors: ErrorBars, columns: Index) -> ErrorBars:
    """Return parsed error bars of some features."""
    if isinstance(errors, RowsOfArrays):
        return type(errors)(*(array[:, columns] for array in errors.arrays))
    if errors.ndim == 1:
        return errors
    return errors[:, columns] if errors.ndim == 2 else errors[:, columns][:, :, columns]


def put_errors(errors: ErrorBars, columns: Index, new: ErrorBars, shape: tuple[int, int]) -> ErrorBars:
    """Return parsed error bars in the same form, with those of some features replaced by independent ones."""
    if isinstance(errors, Limits):
        return Limits(
            put_errors(errors.err, columns, new.err, shape), put_errors(errors.limits, columns, new.limits, shape)
        )
    if isinstance(errors, LowRank):
        kept, causes = errors.factors.copy(), np.zeros((*shape, new.factors.shape[2]))
        kept[:, columns], causes[:, columns] = 0.0, new.factors
        return LowRank(np.concatenate([kept, causes], axis=2), put_errors(errors.std, columns, new.std, shape))
    if sp.issparse(errors):
        result = errors.tolil(copy=True)
        result[:, columns] = new
        return result.tocsr()
    if errors.ndim == 1:
        errors, new = (part[:, np.newaxis] for part in (errors, new))
    if errors.ndim == 2:
        result = np.array(np.broadcast_to(errors, shape))
        result[:, columns] = new
        return result
    result = errors.copy()
    result[:, columns] = result[:, :, columns] = 0.0
    result[np.ix_(np.arange(shape[0]), columns, columns)] = new
    return result


def _covariances(errors: Array, gaps: Gaps, name: str) -> ErrorBars:
    """Return checked covariances; missing values are independent of the others."""
    infinite = np.isposinf(np.einsum("ijj->ij", errors))
    missing = gaps | infinite if gaps is not None else infinite if infinite.any() else None
    known = errors if missing is None else np.where(missing[:, :, np.newaxis] | missing[:, np.newaxis, :], 0.0, errors)
    if finite_least(known) is None:
        check_given(known, name)
        raise ValueError(f"{name} must hold finite covariances but for the variances of values that were not measured")
    check_semidefinite(known, name)
    return marked(known, missing)


def _low_rank(given: LowRank, shape: tuple[int, int], gaps: Gaps, name: str) -> ErrorBars:
    """Return checked factors and standard deviations."""
    n, d = shape
    factors = error_numbers(given.factors, f"{name}.factors")
    if factors.ndim != 3 or factors.shape[:2] != shape:
        raise ValueError(f"{name}.factors must have shape ({n}, {d}, rank); got {factors.shape}")
    std = np.zeros(shape) if given.std is None else error_numbers(given.std, f"{name}.std")
    if std.shape not in ((n,), shape):
        raise ValueError(f"{name}.std must have shape ({n},) or ({n}, {d}); got {std.shape}")
    std = np.array(np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], shape))
    std = deviations(std, f"{name}.std", gaps)
    missing = np.isinf(std) if gaps is None else gaps | np.isinf(std)
    known = factors if not missing.any() else np.where(missing[:, :, np.newaxis], 0.0, factors)
    if finite_least(known) is None:
        check_given(known, f"{name}.factors")
        raise ValueError(f"{name}.factors must be finite; infinity in {name}.std marks values that were not measured")
    return marked(LowRank(known, std), missing if missing.any() else None)


def _split_limits(X: Values, given: Limits, shape: tuple[int, int], gaps: Gaps) -> tuple[Values, Limits]:
    """Return values and checked limits; two-sided errors move measurements to their means, but not limits."""
    if isinstance(given.err, LowRank | Limits) or sp.issparse(given.err):
        raise ValueError(f"errors of limits must be standard deviations; got {type(given.err).__name__}")
    sides = given.sides
    if sides.shape != shape:
        raise ValueError(f"X_err must hold limits of shape {shape}, that of X; got shape {sides.shape}")
    if isinstance(given.err, Asymmetric):
        shifted, std = given.err.symmetric(X)
        X = with_numbers(X, np.where(sides == 0, numbers_beside_text(shifted), numbers_beside_text(X)))
        std = as_numbers(std, "X_err")
    else:
        std = _array(given.err, shape, gaps, "X_err")
        if std.ndim == 3:
            raise ValueError("errors of limits must be standard deviations; got covariances")
    std = np.array(np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], shape))
    if gaps is not None:
        std[gaps], sides = np.inf, np.where(gaps, 0, sides).astype(np.int8)
    if np.any(np.isinf(std) & (sides != 0)):
        i, j = np.argwhere(np.isinf(std) & (sides != 0))[0]
        raise ValueError(f"X_err must be finite for limits; that of sample {i}, feature {j} is infinite")
    return X, Limits(std, sides)


# --- values and errors in one table -----------------------------------------------------------------------------


def _without_units(X: Values, X_err: ErrorBars) -> tuple[Values, ErrorBars, list[str] | None]:
    """Return X and X_err, astropy tables as DataFrames, and names of the columns of X with units, None without any.

    Units in the names make a fitted model refuse samples in other units.
    """
    (X, units), (X_err, others) = frame_and_units(X), frame_and_units(X_err)
    for name in units.keys() & others.keys():
        if units[name] and others[name] and units[name] != others[name]:
            raise ValueError(f"column {name!r} has the unit {units[name]!r}, and its errors {others[name]!r}")
    return X, X_err, with_units(units) if any(units.values()) else None


def with_units(units: dict[str, str]) -> list[str]:
    """Return names of columns with their units, as in "flux [mJy]"."""
    return [f"{name} [{unit}]" if unit else name for name, unit in units.items()]


def frame_and_units(table: Values) -> tuple[Values, dict[str, str]]:
    """Return an astropy table as a DataFrame, and the unit of each column or ""; other tables unchanged."""
    if not (hasattr(table, "colnames") and hasattr(table, "to_pandas")):
        return table, {}
    for name in table.colnames:
        if len(shape := getattr(table[name], "shape", ())) > 1:
            raise ValueError(f"column {name!r} of the table must have one number in a row; got shape {shape}")
    return table.to_pandas(), {name: str(getattr(table[name], "unit", None) or "") for name in table.colnames}


def holds_uncertainties(X: Values) -> bool:
    """Return whether X has any number with an uncertainty, as those of the package ``uncertainties``."""
    if hasattr(X, "iloc"):
        columns = [X.iloc[:, j] for j, kind in enumerate(X.dtypes) if kind.kind == "O"]
    elif isinstance(X, list | tuple):
        columns = [row for row in X if isinstance(row, list | tuple | np.ndarray)]
    else:
        columns = list(X) if getattr(getattr(X, "dtype", None), "kind", None) == "O" and np.ndim(X) == 2 else []
    return any(hasattr(number, "nominal_value") for column in columns for number in column)


def split_uncertainties(X: Values) -> tuple[Values, ErrorBars]:
    """Return values and standard deviations of numbers with uncertainties, or :class:`Limits` if some are limits.

    Plain numbers are exact.
    """
    numbers = np.asarray(X, dtype=object)
    if numbers.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got shape {numbers.shape}")
    try:
        values, errors, limits = (
            np.fromiter((getattr(number, name, number if other is None else other) for number in numbers.flat), float)
            for name, other in (("nominal_value", None), ("std_dev", 0.0), ("limit", 0.0))
        )
    except (TypeError, ValueError) as problem:
        raise ValueError(f"X must hold numbers, with uncertainties or without: {problem}") from problem
    values, errors, limits = (like(X, part.reshape(numbers.shape)) for part in (values, errors, limits))
    return values, Limits(errors, limits) if as_numbers(limits, "limits").any() else errors


def _gaps(X: Values) -> Gaps:
    """Return the mask of NaN in X, or None if there is none."""
    if sp.issparse(X):
        return None
    values = X
    if getattr(X, "dtype", None) not in (np.float32, np.float64) or is_frame(X):
        try:
            values = numbers_beside_text(X) if is_frame(X) else as_numbers(X, "X")
        except ValueError:  # the estimator reports it
            return None
    with np.errstate(all="ignore"):
        if not np.isnan(values.sum()):  # one quick pass
            return None
    gaps = np.isnan(values)
    return gaps if gaps.any() else None
