"""Error bars from repeated measurements."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from gaussguru._errors.parse import frame_and_units
from gaussguru._utils.checks import check_flag
from gaussguru._utils.frames import as_numbers, is_frame, like
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import Labels, MixedArray, Values


@dataclass(frozen=True)
class ReplicateNoise:
    """Noise estimated from repeated measurements, with standard errors.

    Attributes
    ----------
    sigma, sigma_error : float
        Noise level per direction, ``sqrt(trace(covariance) / n_features)``.
    std, std_error : ndarray of shape (n_features,)
        Standard deviation of each feature.
    covariance, covariance_error : ndarray of shape (n_features, n_features)
    degrees_of_freedom : int
        Measurements beyond the first of each group; with gaps, those of the feature that has fewest.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.preprocessing import noise_from_replicates
    >>> rng = np.random.default_rng(0)
    >>> objects = np.repeat(np.arange(200), 3)
    >>> readings = rng.normal(size=(200, 2))[objects] + rng.normal(scale=[0.1, 0.5], size=(600, 2))
    >>> noise_from_replicates(readings, objects).std.round(1).tolist()
    [0.1, 0.5]
    """

    sigma: float
    sigma_error: float
    std: Array
    std_error: Array
    covariance: Array
    covariance_error: Array
    degrees_of_freedom: int


def noise_from_replicates(X: Values, groups: Labels) -> ReplicateNoise:
    """Estimate the noise from repeated measurements of the same objects.

    ::

        C = sum_g sum_{i in g} (x_i - mean_g)(x_i - mean_g)' / nu,     nu = sum_g (n_g - 1)

    is unbiased, if the noise is the same for all objects. The standard errors are those of Gaussian noise:
    ``sqrt((C_jj C_kk + C_jk^2) / nu)`` for the covariance, ``std / sqrt(2 nu)`` for a standard deviation, and
    ``||C||_F / (n_features sigma sqrt(2 nu))`` for ``sigma``, with an unbiased estimate of ``||C||_F^2``.

    Where values are missing (NaN), an entry ``C_jk`` is made of the measurements that have both features, with their
    own means and their own ``nu``. Of features that were never measured together more than once it is 0, with an
    infinite error. Such a matrix may have slightly negative eigenvalues: those are set to 0, and variances kept.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The measurements; NaN for values that are missing.
    groups : array-like of shape (n_samples,)
        Which of them are of the same object. An object measured once says nothing of the noise.

    Returns
    -------
    ReplicateNoise
    """
    X = check_array(X, dtype=np.float64, input_name="X", ensure_all_finite="allow-nan")
    groups = column_or_1d(groups)
    if len(groups) != len(X):
        raise ValueError(f"groups must have one entry for each of the {len(X)} samples of X; got {len(groups)}")
    if groups.dtype.kind == "f" and np.isnan(groups).any():
        raise ValueError("groups has NaN: every sample must say which object it is of")
    names, members = np.unique(groups, return_inverse=True)
    C, freedom = _within(X, members, len(names))
    seldom = np.flatnonzero(np.diag(freedom) == 0)
    if len(seldom):
        where = "X" if len(seldom) == X.shape[1] else f"feature {seldom[0]} of X"
        raise ValueError(
            f"groups must have at least one object of which {where} was measured twice; got {len(names)}, all measured "
            "once"
        )
    variances, freedoms = np.diag(C).copy(), np.diag(freedom)
    nu, d = float(freedoms.min()), len(C)
    std, trace = np.sqrt(variances), float(variances.sum())
    square = float(np.square(C).sum())
    if nu > 1:
        # Unbiased for Wishart matrices; the bound below follows from the trace.
        square = nu**2 / ((nu - 1) * (nu + 2)) * (square - trace**2 / nu)
    square = max(square, trace**2 / d)
    sigma = float(np.sqrt(trace / d))
    with np.errstate(divide="ignore"):
        covariance_error = np.sqrt(np.outer(variances, variances) + np.square(C)) / np.sqrt(freedom)
    return ReplicateNoise(
        sigma=sigma,
        sigma_error=float(np.sqrt(square / (2 * nu)) / (d * sigma)) if sigma > 0 else 0.0,
        std=std,
        std_error=std / np.sqrt(2 * freedoms),
        covariance=C,
        covariance_error=np.where(freedom > 0, covariance_error, np.inf),
        degrees_of_freedom=int(nu),
    )


def _within(X: Array, members: Index, n_groups: int) -> tuple[Array, Array]:
    """Return the covariance within groups and the degrees of freedom of its entries, both (d, d)."""
    known = ~np.isnan(X)
    counts = known.sum(axis=0)
    centre = np.where(known, X, 0.0).sum(axis=0) / np.maximum(counts, 1)  # centred: sums of large numbers lose digits
    values = np.where(known, X - centre, 0.0)

    def sums(table: Array) -> Array:
        result = np.zeros((n_groups, table.shape[1]))
        np.add.at(result, members, table)
        return result

    if known.all():
        sizes = np.bincount(members, minlength=n_groups)
        rest = values - (sums(values) / np.maximum(sizes, 1)[:, np.newaxis])[members]
        nu = float(len(X) - np.count_nonzero(sizes))
        return rest.T @ rest / max(nu, 1.0), np.full((X.shape[1], X.shape[1]), nu)
    C, freedom = np.zeros((2, X.shape[1], X.shape[1]))
    for j in range(X.shape[1]):
        both = (known & known[:, [j]]).astype(np.float64)
        pairs = sums(both)  # measurements of a group that have both features
        means = [sums(both * part) / np.maximum(pairs, 1.0) for part in (values[:, [j]], values)]
        products = both * (values[:, [j]] - means[0][members]) * (values - means[1][members])
        freedom[j] = np.maximum(pairs - 1.0, 0.0).sum(axis=0)
        C[j] = products.sum(axis=0) / np.maximum(freedom[j], 1.0)
    return _semidefinite(0.5 * (C + C.T)), freedom


def _semidefinite(C: Array) -> Array:
    """Return a covariance without its negative eigenvalues, with the same variances."""
    scale = np.sqrt(np.diag(C))
    unit = np.where(scale > 0, scale, 1.0)
    eigenvalues, axes = np.linalg.eigh(C / np.outer(unit, unit))
    if eigenvalues[0] >= 0:
        return C
    kept = (axes * np.maximum(eigenvalues, 0.0)) @ axes.T
    size = np.sqrt(np.diag(kept))
    size = np.where(size > 0, size, 1.0)
    return np.asarray(kept * np.outer(scale / size, scale / size))


def errors_from_replicates(
    frame: Values, replicates: Mapping[str, list[str]], *, pooled: bool = True
) -> tuple[Values, Values]:
    """Turn columns of repeated readings into values and error bars.

    The value of a sample is the mean of its n readings, and its error the standard error of that mean::

        value = mean(readings),     error = s / sqrt(n)

    Two or three readings say little about their own spread, so by default s is that of all samples together,
    ``s^2 = sum_i sum_r (x_ir - mean_i)^2 / sum_i (n_i - 1)``, which supposes that all readings of a feature are equally
    precise. Readings that are missing are left out; a sample with one reading has the error s, and one without any was
    not measured: NaN, with an infinite error.

    Parameters
    ----------
    frame : DataFrame of pandas, polars or Arrow, or astropy table
        All columns but the readings are kept as features that are exact: remove labels and identifiers first.
    replicates : dict from str to list of str
        The columns of readings of each feature, as ``{"x": ["x1", "x2", "x3"]}``. The feature takes the place of the
        first of them.
    pooled : bool, default=True
        Whether s is that of all samples. If False, it is that of the sample, which then needs two readings at least.

    Returns
    -------
    X, X_err : DataFrames of shape (n_samples, n_features), with the same columns

    Warns
    -----
    UserWarning
        If ``pooled`` is False and samples have fewer than five readings: the error of n readings is itself uncertain by
        ``1 / sqrt(2 (n - 1))`` of its size, 71 % for two. If the readings of a feature never differ.

    Examples
    --------
    >>> import pandas as pd
    >>> from gaussguru.preprocessing import errors_from_replicates
    >>> table = pd.DataFrame({"x1": [1.0, 5.0], "x2": [3.0, None], "n_lines": [3.0, 5.0]})
    >>> X, X_err = errors_from_replicates(table, {"x": ["x1", "x2"]})
    >>> X
         x  n_lines
    0  2.0      3.0
    1  5.0      5.0
    >>> X_err.round(2)
          x  n_lines
    0  1.00      0.0
    1  1.41      0.0
    """
    frame, _ = frame_and_units(frame)
    if not is_frame(frame):
        raise TypeError(f"frame must be a table of astropy or a DataFrame; got {type(frame).__name__}")
    check_flag("pooled", pooled)
    table = nw.from_native(frame, eager_only=True)
    _check_columns(replicates, [str(name) for name in table.columns])
    first = {columns[0]: name for name, columns in replicates.items()}
    dropped = {column for columns in replicates.values() for column in columns[1:]}
    kept, errors = {}, []
    for column in (name for name in table.columns if name not in dropped):
        name = first.get(column, column)
        kept[name], error = table[column], np.zeros(len(table))
        if column in first:
            readings = as_numbers(table.select(replicates[name]).to_native(), f"the readings of {name!r}")
            value, error = _mean_and_error(readings, name, pooled=pooled)
            kept[name] = nw.new_series(name, value, backend=table.implementation)
        errors.append(error)
    values = table.with_columns(*(series.alias(name) for name, series in kept.items())).select(*kept).to_native()
    return values, like(values, np.column_stack(errors), list(kept))


def _check_columns(replicates: Any, names: list[str]) -> None:
    """Raise unless every feature has two or more columns of readings, and no two features share one."""
    if not isinstance(replicates, Mapping) or not replicates:
        raise TypeError(f"replicates must be a dict from features to lists of columns; got {replicates!r}")
    used: list[str] = []
    for name, columns in replicates.items():
        if isinstance(columns, str) or len(columns) < 2:
            raise ValueError(f"replicates[{name!r}] must be a list of two or more columns; got {columns!r}")
        used += columns
    if unknown := [column for column in used if column not in names]:
        raise ValueError(f"replicates must name columns of the frame; it has no {unknown!r}")
    if twice := sorted({column for column in used if used.count(column) > 1}):
        raise ValueError(f"replicates must use a column once; got {twice!r} more than once")
    if taken := [name for name in replicates if name in names and name not in used]:
        raise ValueError(f"replicates makes features {taken!r}, which the frame has already: rename or drop them")


def _mean_and_error(readings: Array, name: str, *, pooled: bool) -> tuple[Array, Array]:
    """Return the means of readings, (n_samples, n_readings), and their standard errors; NaN are left out."""
    if np.isinf(readings).any():
        raise ValueError(f"the readings of {name!r} must be finite, or NaN where they are missing; got infinity")
    known = ~np.isnan(readings)
    counts = known.sum(axis=1)
    values = np.where(known, readings, 0.0).sum(axis=1) / np.maximum(counts, 1)
    squares = np.where(known, np.square(readings - values[:, np.newaxis]), 0.0).sum(axis=1)
    freedom: MixedArray = np.maximum(counts - 1, 0)
    if pooled:
        if not freedom.any():
            raise ValueError(f"{name!r} must have a sample with two readings; got at most one of each sample")
        variances = np.full(len(counts), squares.sum() / freedom.sum())
    else:
        if np.any(counts == 1):
            raise ValueError(
                f"{name!r} must have two readings of every sample with pooled=False; sample "
                f"{int(np.argmax(counts == 1))} has one. pooled=True uses the spread of all samples"
            )
        fewest = int(counts[counts > 0].min(initial=5))
        if fewest < 5:  # then the standard error of a sample is uncertain by more than a third
            warnings.warn(
                f"{name!r} has samples with {fewest} readings, whose own spread is uncertain by "
                f"{1 / np.sqrt(2 * (fewest - 1)):.0%}: use pooled=True if all readings are equally precise",
                stacklevel=3,
            )
        variances = squares / np.maximum(freedom, 1)
    if not variances.any():
        warnings.warn(
            f"the readings of {name!r} never differ, so that their errors are 0: are they copies?", stacklevel=3
        )
    errors = np.sqrt(variances / np.maximum(counts, 1))
    return np.where(counts > 0, values, np.nan), np.where(counts > 0, errors, np.inf)
