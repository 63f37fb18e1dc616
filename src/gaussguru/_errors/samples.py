"""Samples that carry their error bars, and their separation into values and errors."""

import numbers
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.arrays import in_public_module
from gaussguru._errors.given import AffineComponents, Components, Limits, LowRank
from gaussguru._errors.parse import columns_of_errors, parsed, put_errors
from gaussguru._utils.frames import (
    as_numbers,
    column_names,
    column_values,
    places_of,
    put_column,
    take_columns,
    take_rows,
)
from gaussguru._utils.types import ErrorBars, MixedArray, Values


def split_errors(X: Values, X_err: ErrorBars = None, name: str = "X_err") -> tuple[Values, ErrorBars]:
    """Return X, and X_err in one of the forms of :mod:`gaussguru._errors.parse`, checked against X.

    X may carry its errors (:class:`Measured`, numbers with uncertainties). These replace ``X_err``: in a pipeline it
    holds the errors before the previous steps changed them. Messages call X_err ``name``.
    """
    if X_err is None and type(X) is np.ndarray and X.dtype.kind == "f":  # the common case
        return X, None
    if isinstance(X, Measured):
        return (X.X, X.err) if X.is_checked else parsed(X.X, X.err, name)
    return parsed(X, X_err, name)


def measured(X: Values, X_err: ErrorBars) -> Values:
    """Return X and its errors, parsed, in one :class:`Measured`; X itself without errors, or if it carries them."""
    return X if X_err is None or isinstance(X, Measured) else Measured.checked(*split_errors(X, X_err))


# Message of steps that take no error bars.
PLAIN_ONLY = (
    "X carries error bars, and this step accepts only plain numbers, which would drop them: wrap a transformer in "
    "gaussguru.preprocessing.WithErrors; choose features by gaussguru.inspection.feature_importance and X[:, names] "
    "in place of RFE or SequentialFeatureSelector; or pass the values alone, without X_err"
)


class MeasuredNumber:
    """A value with its standard deviation: an entry of the array that NumPy makes of :class:`Measured`.

    It is no plain number: conversion to one raises. ``limit`` is -1 for an upper limit, +1 for a lower one.
    """

    __slots__ = ("limit", "nominal_value", "std_dev")

    def __init__(self, nominal_value: float, std_dev: float, limit: int = 0) -> None:
        self.nominal_value, self.std_dev, self.limit = nominal_value, std_dev, limit

    def __float__(self) -> float:
        raise TypeError(PLAIN_ONLY)

    def __repr__(self) -> str:
        sign = {-1: "< ", 0: "", 1: "> "}[self.limit]
        return f"{sign}{self.nominal_value:g}±{self.std_dev:g}"


@in_public_module
@dataclass(eq=False)
class Measured:
    """``X`` and ``X_err`` in one object.

    Metadata routing passes the same ``X_err`` to every step of a pipeline, but a transformer changes the errors along
    with the values. So :class:`gaussguru.preprocessing.WithErrors` returns both in this object, and every estimator of
    the library accepts it as X. It can also replace X in scikit-learn's searches, cross-validation, learning curves,
    ``BaggingClassifier``, ``permutation_importance`` and ``PartialDependenceDisplay``: values and errors are taken,
    permuted and selected together, and no metadata routing is needed.

    ``samples[rows]`` and ``samples[:, columns]`` are samples with their errors, for an index, a slice, a mask or a list
    of indices or names; covariances are cut to the columns. ``samples[:, "x"]``, a single column, is its values alone.
    ``samples[:, columns] = others[:, columns]`` replaces values and errors, which are then independent of those of the
    other columns. ``samples[:, "x"] = 0.3`` replaces the values and keeps their errors; missing values stay missing.

    NumPy never makes plain numbers of it: ``numpy.asarray(samples)`` has entries with the attributes ``nominal_value``
    and ``std_dev``, and an estimator that needs plain numbers raises instead of dropping the errors. So do ``RFE`` and
    ``SequentialFeatureSelector``.

    Parameters
    ----------
    X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
    err : X_err in any form
    components : Components, default=None
        The posterior of every sample as a mixture. X and ``err`` are its mean and covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from gaussguru import GuruClassifier, Measured
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> samples = Measured(X, np.full((60, 2), 0.1))  # rows of both are taken together, in every fold
    >>> cross_val_score(GuruClassifier(0.1), samples, X[:, 0] > 0, cv=3).shape
    (3,)
    >>> samples[:5, [1]].shape
    (5, 1)
    """

    X: Values
    err: ErrorBars
    components: "Components | AffineComponents | None" = None
    # Whether ``err`` is parsed and checked against X.
    is_checked: bool = field(default=False, init=False, repr=False)

    @classmethod
    def checked(cls, X: Values, err: ErrorBars, components: Any = None) -> "Measured":
        """Return samples with errors that the library parsed or computed, without checking them again."""
        samples = cls(X, err, components)
        samples.is_checked = True
        return samples

    def __post_init__(self) -> None:
        if len(self.shape) != 2:
            raise ValueError(f"X must have two dimensions, samples and features; got shape {self.shape}")
        errors = self.err.shape if hasattr(self.err, "shape") else np.shape(self.err)
        if errors[:1] != self.shape[:1]:
            raise ValueError(f"X_err must be for the {len(self)} samples of X; got shape {errors}")
        if self.components is not None and len(self.components) != len(self):
            raise ValueError(f"components must be for the {len(self)} samples of X; got {len(self.components)}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of X."""
        return tuple(self.X.shape) if hasattr(self.X, "shape") else np.shape(self.X)

    @property
    def ndim(self) -> int:
        """Number of dimensions of X."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """``object``: that of ``numpy.asarray(samples)``, whose entries are no plain numbers."""
        return np.dtype(object)

    @property
    def columns(self) -> MixedArray:
        """Names of the features, if X is a DataFrame."""
        names = column_names(self.X)
        if names is None:
            raise AttributeError("X has no names of columns: it is no DataFrame")
        return names

    def __len__(self) -> int:
        return self.shape[0]

    def copy(self) -> "Measured":
        """Return a copy: assigning columns to it does not change the original."""
        return self._with(self.X, self.err, self.components)

    def _with(self, X: Values, err: ErrorBars, components: Any) -> "Measured":
        make = Measured.checked if self.is_checked else Measured
        return make(X, err, components)

    def __getitem__(self, index: Any) -> Any:
        rows, columns = self._rows_and_columns(index)
        samples = self if rows is None else self._take_rows(rows)
        if columns is None:
            return samples
        places = places_of(columns, self.X if hasattr(self.X, "shape") else self)
        if isinstance(columns, str | numbers.Integral):
            return column_values(samples.X, int(places[0]))
        X, err = split_errors(samples)
        components = samples.components
        if components is not None:
            components = AffineComponents(components, np.eye(self.shape[1])[:, places], np.zeros(len(places)))
        return Measured.checked(take_columns(X, places), columns_of_errors(err, places), components)

    def _take_rows(self, rows: object) -> "Measured":
        rows = [rows] if isinstance(rows, numbers.Integral) else rows
        components = None if self.components is None else self.components[rows]
        return self._with(take_rows(self.X, rows), take_rows(self.err, rows), components)

    def __setitem__(self, index: Any, new: Any) -> None:
        rows, columns = self._rows_and_columns(index)
        if rows is not None or columns is None:
            raise TypeError(f"samples are assigned by whole columns, as samples[:, columns]; got {index!r}")
        if self.components is not None:
            raise TypeError("columns cannot be assigned to samples with components, the mixtures of a population")
        places = places_of(columns, self.X if hasattr(self.X, "shape") else self)
        X, err = split_errors(self)
        if isinstance(new, Measured) and new.shape == (len(self), len(places)):
            values, errors = split_errors(new)
            if type(errors) is not type(err) or len(errors.shape) != len(err.shape):
                raise TypeError(
                    f"errors of the new columns must be in the form of X_err, {type(err).__name__} of shape "
                    f"{err.shape}; got {type(errors).__name__} of shape {errors.shape}"
                )
            err = put_errors(err, places, errors, (len(self), self.shape[1]))
            new_columns = [column_values(values, j) for j in range(len(places))]
        elif isinstance(new, numbers.Real) and np.isfinite(float(new)):
            kept = [column_values(X, int(j)) for j in places]
            new_columns = [np.where(np.isnan(as_numbers(old, "X")), np.nan, float(new)) for old in kept]
        else:
            raise TypeError(
                f"columns are assigned Measured of shape ({len(self)}, {len(places)}), which replaces values and "
                f"errors, or a finite number, which keeps the errors; got {type(new).__name__} {new!r:.40}"
            )
        for j, values in zip(places, new_columns, strict=True):
            X = put_column(X, int(j), values)
        self.X, self.err, self.is_checked = X, err, True

    @staticmethod
    def _rows_and_columns(index: Any) -> tuple[Any, Any]:
        """Return the rows and the columns in an index, None for all."""
        if isinstance(index, str) or (isinstance(index, list | np.ndarray) and _are_names(index)):
            return None, index
        rows, columns = (*index, ..., ...)[:2] if isinstance(index, tuple) else (index, ...)
        is_all = [part is ... or (isinstance(part, slice) and part == slice(None)) for part in (rows, columns)]
        return None if is_all[0] else rows, None if is_all[1] else columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> MixedArray:
        if dtype is not None and np.dtype(dtype) != object:
            raise TypeError(PLAIN_ONLY)
        X, err = split_errors(self)
        if isinstance(err, LowRank) or len(err.shape) == 3 or self.components is not None:
            raise TypeError(
                "X carries correlated errors, and this step accepts only an array, whose entries have an error each: "
                "gaussguru.inspection.feature_importance takes them, and standard deviations as X_err go through"
            )
        limits = err.limits if isinstance(err, Limits) else np.zeros(self.shape, dtype=np.int8)
        errors = err.err if isinstance(err, Limits) else err.toarray() if sp.issparse(err) else err
        errors = errors if errors.ndim == 2 else errors[:, np.newaxis]
        values = X.toarray() if sp.issparse(X) else as_numbers(X, "X")
        parts = (np.broadcast_to(part, self.shape).ravel().tolist() for part in (values, errors, limits))
        return np.fromiter(map(MeasuredNumber, *parts), dtype=object, count=values.size).reshape(values.shape)


def _are_names(columns: Any) -> bool:
    return len(columns) > 0 and all(isinstance(name, str) for name in columns)
