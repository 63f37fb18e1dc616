"""Branches of a ColumnTransformer: some have exact columns, such as text, and the others measured values."""

from dataclasses import dataclass

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.missing import standard_deviations
from gaussguru._errors.parse import columns_of_errors, put_errors
from gaussguru._measured.affine import dense
from gaussguru._utils import frames
from gaussguru._utils.linalg import Index
from gaussguru._utils.types import ErrorBars, Estimator, Values


def exact_columns(transformer: Estimator, X: Values) -> Index:
    """Return the columns of X that hold categories: text, and the input of encoders in a ColumnTransformer."""
    exact = frames.text_columns(X)
    if isinstance(transformer, ColumnTransformer):
        for _, inner, columns in transformer.transformers:
            if _encodes(inner):
                exact = np.union1d(exact, _indices(columns, X))
    elif len(exact):
        names = nw.from_native(frames.take_columns(X, exact[:3])).columns
        raise ValueError(
            f"X must hold numbers, but {names!r} do not: encode them in a ColumnTransformer inside WithErrors, as "
            "WithErrors(ColumnTransformer([('text', OneHotEncoder(), names)], remainder=...))"
        )
    return exact.astype(np.intp)


def _encodes(transformer: Estimator) -> bool:
    """Return whether a transformer, or a step of a pipeline, accepts categories."""
    if isinstance(transformer, Pipeline):
        return any(_encodes(step) for _, step in transformer.steps)
    return not isinstance(transformer, str | None) and bool(get_tags(transformer).input_tags.categorical)


def allows_nan(transformer: Estimator) -> bool:
    """Return whether a transformer can be fitted to NaN; a ColumnTransformer, whether all of its branches can."""
    if isinstance(transformer, ColumnTransformer):
        branches = [*(inner for _, inner, _ in transformer.transformers), transformer.remainder]
        return all(isinstance(inner, str) or allows_nan(inner) for inner in branches)
    return bool(get_tags(transformer).input_tags.allow_nan)


def _indices(columns: object, X: Values) -> Index:
    """Return the indices of the columns of a branch of a ColumnTransformer."""
    return frames.places_of(columns(X) if callable(columns) else columns, X)


@dataclass(frozen=True)
class MeasuredBranches:
    """The branches of a fitted ColumnTransformer with measured values.

    ``columns`` of X have errors, and ``outputs`` depend on them alone. All others are exact. ``row``, one row of X, has
    the categories at which these branches are evaluated.
    """

    transformer: Estimator
    columns: Index
    outputs: Index
    row: Values

    @classmethod
    def of(cls, transformer: Estimator, X: Values, exact: Index) -> "MeasuredBranches":
        """Return the branches of a fitted transformer, with the categories of the first row of X."""
        outputs = []
        for name, _, columns in transformer.transformers_:
            index = _indices(columns, X)
            part = transformer.output_indices_.get(name, slice(0, 0))
            is_exact = np.isin(index, exact)
            if is_exact.any() and not is_exact.all() and part.stop > part.start:
                raise ValueError(
                    f"the branch {name!r} of the ColumnTransformer has categories beside numbers: give the numbers a "
                    "branch of their own, so that their errors can be carried"
                )
            if not is_exact.any():
                outputs.append(np.arange(part.start, part.stop))
        columns = np.setdiff1d(np.arange(X.shape[1]), exact)
        return cls(
            transformer, columns, np.concatenate([*outputs, np.zeros(0, dtype=np.intp)]), frames.take_rows(X, [0])
        )

    def join(self, X: Values, values: Values) -> Values:
        """Return X with other values in its measured columns."""
        for k, column in enumerate(self.columns):
            X = frames.put_column(X, int(column), frames.column_values(values, k))
        return X

    def transform(self, values: Values) -> Values:
        """Return the outputs that depend on measured values."""
        rows = frames.take_rows(self.row, np.zeros(values.shape[0], dtype=np.intp))
        return frames.take_columns(self.transformer.transform(self.join(rows, values)), self.outputs)

    def measured_part(self, X: Values, X_err: ErrorBars) -> tuple[Values, ErrorBars]:
        """Return the measured columns of X, and their errors; raise unless the errors of the other columns are 0."""
        exact = np.setdiff1d(np.arange(X.shape[1]), self.columns)
        for j in exact:
            errors = standard_deviations(X_err, X.shape)[:, j]
            if np.any((errors > 0) & ~_missing(X, int(j))):
                names = frames.column_names(X)
                label = f"column {j}" if names is None else repr(str(names[j]))
                raise ValueError(
                    f"X_err of {label}, which holds categories, must be 0, or infinite where the category is missing; "
                    f"got {errors.max():g}"
                )
        return frames.take_columns(X, self.columns), columns_of_errors(X_err, self.columns)

    def joined_outputs(self, X: Values, values: Values, errors: ErrorBars) -> tuple[Values, ErrorBars]:
        """Return all outputs for X and their errors, given values and errors of the outputs of measured columns."""
        outputs = self.transformer.transform(X)
        table = np.array(dense(outputs))
        table[:, self.outputs] = dense(values)
        shape = (int(table.shape[0]), int(table.shape[1]))
        return frames.like(outputs, table), put_errors(_zeros(errors, shape), self.outputs, errors, shape)


def _zeros(errors: ErrorBars, shape: tuple[int, int]) -> ErrorBars:
    """Return errors of 0, (n_samples, n_outputs), in the form of other errors."""
    if isinstance(errors, Limits):
        return Limits(np.zeros(shape), np.zeros(shape, dtype=np.int8))
    if isinstance(errors, LowRank):
        return LowRank(np.zeros((*shape, 0)), np.zeros(shape))
    return np.zeros((*shape, shape[1]) if errors.ndim == 3 else shape[: errors.ndim])


def _missing(X: Values, column: int) -> NDArray[np.bool_]:
    """Return which entries of a column are missing."""
    if frames.is_frame(X):
        return np.asarray(nw.from_native(X, eager_only=True)[:, column].is_null().to_numpy(), dtype=bool)
    return np.asarray(np.isnan(frames.column_values(X, column)))
