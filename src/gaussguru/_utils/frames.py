"""DataFrames of any library: their names, rows and numbers."""

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from narwhals.exceptions import DuplicateError
from sklearn.utils import _safe_indexing, check_array

from gaussguru._utils.linalg import Array, Index, aligned
from gaussguru._utils.types import MixedArray, Values


def is_frame(table: object) -> bool:
    """Return whether a table is a DataFrame in memory, of pandas, polars, Arrow or another library."""
    # Arrays first: narwhals takes 30 us to say no.
    if type(table) is np.ndarray or sp.issparse(table):
        return False
    return bool(nw.dependencies.is_into_dataframe(table))


def opened(table: Values, name: str = "X") -> nw.DataFrame[Any]:
    """Return a DataFrame as one of narwhals; raise if several columns have one name."""
    try:
        return nw.from_native(table, eager_only=True)
    except DuplicateError as error:
        twice = str(error).removeprefix("Expected unique column names, got:").replace("\n- ", ", ").lstrip(", ")
        raise ValueError(f"{name} must have columns of different names; got {twice}") from error


def column_names(table: Values, name: str = "X") -> MixedArray | None:
    """Return the column names of a DataFrame; None, as in scikit-learn, unless all are strings."""
    if not is_frame(table):
        return None
    names = opened(table, name).columns
    return np.asarray(names) if all(isinstance(each, str) for each in names) else None


def row_names(table: Values) -> MixedArray | None:
    """Return the index of a pandas DataFrame, else None."""
    return np.asarray(table.index) if hasattr(table, "iloc") else None


def check_same_names(X: object, table: object, name: str) -> None:
    """Raise unless the columns and rows of a table, called ``name`` in messages, are named as those of X."""
    columns, others = column_names(X), column_names(table, name)
    if columns is None and others is not None:
        raise ValueError(
            f"{name} must have the columns of X; it has names, {others[:3].tolist()!r}, and X has none, so that "
            "nothing tells whether they are in the same order: give both as DataFrames, or both as arrays (a scaler or "
            "encoder before this estimator belongs into WithErrors, which takes both)"
        )
    for axis, names, given in (("columns", columns, others), ("index", row_names(X), row_names(table))):
        if names is None or given is None or np.array_equal(names, given):
            continue
        # A range index is no name, unless the other table has the same numbers in another order.
        if axis == "index" and (_is_numbered(names) or _is_numbered(given)) and not _is_permuted(names, given):
            continue
        if len(given) != len(names):
            raise ValueError(f"{name} must have the {axis} of X, in the same order; got {len(given)} for {len(names)}")
        ours, theirs = next(pair for pair in zip(names.tolist(), given.tolist(), strict=True) if pair[0] != pair[1])
        raise ValueError(f"{name} must have the {axis} of X, in the same order; got {theirs!r} where X has {ours!r}")


def _is_numbered(names: MixedArray) -> bool:
    return np.array_equal(names, np.arange(len(names)))


def _is_permuted(names: MixedArray, others: MixedArray) -> bool:
    """Return whether two indices hold the same integers."""
    if names.shape != others.shape or not (names.dtype.kind in "iu" and others.dtype.kind in "iu"):
        return False
    return np.array_equal(np.sort(names), np.sort(others))


def take_rows(values: Values, index: object) -> Values:
    """Return rows of an array, sparse matrix, DataFrame, list or anything that is indexed by rows."""
    if isinstance(index, tuple):  # scikit-learn asks for array[rows, ...]
        index = index[0]
    if is_frame(values):
        return _safe_indexing(values, index)
    if not hasattr(values, "shape"):
        values = np.asarray(values)
    return values[index]


def places_of(columns: Any, table: Values) -> Index:
    """Return the numbers of columns of a table, given by index, slice, mask or name."""
    names, numbers_of_all = column_names(table), np.arange(int(table.shape[1]))
    known = {name: j for j, name in enumerate([] if names is None else names.tolist())}
    by_slice = isinstance(columns, slice)
    given = [columns.start, columns.stop] if by_slice else np.atleast_1d(np.asarray(columns)).tolist()
    if unknown := [name for name in given if isinstance(name, str) and name not in known]:
        raise ValueError(f"columns must be names of features, {list(known)!r}; got {unknown!r}")
    chosen = [known.get(name, name) for name in given]
    if by_slice:  # slices by name include both ends
        return numbers_of_all[chosen[0] : chosen[1] + 1 if isinstance(columns.stop, str) else chosen[1] : columns.step]
    return numbers_of_all[np.asarray(chosen) if chosen else slice(0)]


def text_columns(table: Values) -> Index:
    """Return the numbers of the columns of a DataFrame that are not numeric."""
    if not is_frame(table):
        return np.zeros(0, dtype=np.int64)
    kinds = opened(table).schema.values()
    return np.array([j for j, kind in enumerate(kinds) if not _is_number(kind, table, j)], dtype=np.int64)


def _is_number(kind: Any, table: object, column: int) -> bool:
    """Return whether a column of this type is numeric; columns of objects are tried."""
    if kind == nw.Object:
        try:
            column_values(table, column).astype(np.float64)
        except (TypeError, ValueError):
            return False
        return True
    return bool(kind.is_numeric()) or kind in (nw.Boolean, nw.Unknown)


def numbers_beside_text(table: Values) -> Array:
    """Return a table as an array of float64, with 0 in columns that are not numeric."""
    for column in text_columns(table):
        table = put_column(table, int(column), np.zeros(table.shape[0]))
    return as_numbers(table, "X")


def with_numbers(table: object, values: Array) -> Values:
    """Return a table of the same form with new values (n, d); columns that are not numeric are unchanged."""
    text = text_columns(table)
    if not len(text):
        return like(table, values)
    for column in np.setdiff1d(np.arange(values.shape[1]), text):
        table = put_column(table, int(column), values[:, column])
    return table


def take_columns(values: object, columns: Index) -> Values:
    """Return columns of an array, sparse matrix or DataFrame, by number."""
    return _safe_indexing(values, columns, axis=1)


def column_values(values: Values, column: int) -> MixedArray:
    """Return one column of an array, sparse matrix or DataFrame, of shape (n_rows,)."""
    if is_frame(values):
        return np.asarray(opened(values)[:, column].to_numpy())
    if sp.issparse(values):
        return np.asarray(values[:, [column]].toarray().ravel())
    return np.asarray(np.asarray(values)[:, column])


def put_column(values: Values, column: int, new: MixedArray) -> Values:
    """Return an array, sparse matrix or DataFrame with one column replaced."""
    if is_frame(values):
        frame = opened(values)
        name = frame.columns[column]
        return frame.with_columns(nw.new_series(name, new, backend=frame.implementation)).to_native()
    result: Any = values.tolil(copy=True) if sp.issparse(values) else np.array(values)
    result[:, [column]] = new[:, np.newaxis]
    return result.tocsr() if sp.issparse(values) else result


def like(X: Values, values: Array, names: MixedArray | list[str] | None = None) -> Values:
    """Return values in the form of X: a DataFrame with its names (or ``names``), or an array, float32 if X is.

    The index is kept if the number of rows is the same.
    """
    if not is_frame(X):
        return values.astype(X.dtype, copy=False) if getattr(X, "dtype", None) == np.float32 else values
    if hasattr(X, "iloc"):
        index = X.index if len(X) == len(values) else None
        return type(X)(values, index=index, columns=X.columns if names is None else names)
    frame = opened(X)
    names = frame.columns if names is None else [str(name) for name in names]
    return nw.from_numpy(np.asarray(values), schema=names, backend=frame.implementation).to_native()


def refuse_times(values: Any, name: str) -> None:
    """Raise for dates and durations, which NumPy converts to numbers of whatever unit they have."""
    is_time: dict[str | None, bool] = {None: getattr(getattr(values, "dtype", None), "kind", "f") in "mM"}
    if is_frame(values):
        is_time = {column: kind.is_temporal() for column, kind in opened(values, name).schema.items()}
    for column, is_wrong in is_time.items():
        if is_wrong:
            where = "" if column is None else f" in column {column!r}"
            raise ValueError(
                f"{name} must hold numbers; got dates or durations{where}: choose their unit, as in "
                "(times - start) / numpy.timedelta64(1, 's')"
            )


def unmasked(values: Any, name: str) -> Any:
    """Return a masked array with NaN in masked entries, and anything else unchanged; raise for units.

    scikit-learn and NumPy would silently read masked numbers and drop units, also those of times.
    """
    if type(values) is np.ndarray:
        refuse_times(values, name)
        return values
    unit = getattr(values, "unit", None) if isinstance(values, np.ndarray) else None  # astropy
    unit = values.units if hasattr(values, "m_as") else unit  # pint
    if unit is not None and str(unit):
        raise ValueError(
            f"{name} must hold plain numbers, as a fitted model keeps no units; got values in {str(unit)!r}: convert X "
            "and X_err to one unit and give their numbers"
        )
    if isinstance(values, np.ma.MaskedArray):
        numbers = values.astype(np.float64) if values.dtype.kind in "iub" else values
        return np.ma.filled(numbers, np.nan) if values.dtype.kind in "fiub" else values
    return values


def check_unmasked(values: object, name: str) -> None:
    """Raise if any entry is masked in an array that must have a value for every sample."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} must have a value for every sample; {np.count_nonzero(np.ma.getmaskarray(values))} are masked"
        )


def as_numbers(values: object, name: str) -> Array:
    """Return values as a C-contiguous array of float64, with NaN for missing or masked entries.

    The last digits of sums depend on the memory order.
    """
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.c_contiguous and values.flags.aligned:
        return values
    values = unmasked(values, name)
    refuse_times(values, name)
    try:
        array = check_array(
            values, order="C", ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False,
            ensure_min_samples=0, ensure_min_features=0,
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error
    return np.asarray(aligned(array))
