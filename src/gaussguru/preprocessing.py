"""Error bars from tables and repeated measurements, and through the steps of a pipeline."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import assert_all_finite, check_array, get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from gaussguru._data.em import population_of
from gaussguru._estimators.base import LinearScores
from gaussguru._linalg import Array, Index
from gaussguru.errors import (
    Asymmetric,
    Limits,
    LowRank,
    Measured,
    check_errors,
    has_unmeasured,
    like,
    split_errors,
    split_uncertainties,
    unmeasured,
)

# Numbers held at a time.
CHUNK = 1 << 23
# Points at which a function is found to scale feature by feature, which saves the square of the number of features.
SCALING_PROBES = 64
_ARRAY_OPTIONS: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}


class WithErrors(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Let a transformer of scikit-learn carry error bars along.

    The transformer must be affine, ``x -> c + A' x``, as are scalers, PCA and other linear maps, the selection of
    columns, and pipelines of these. Errors then transform as ``Sigma -> A' Sigma A``. ``A`` is found by transforming
    the mean of X and one step from it along each feature, and it is checked against what the transformer makes of X.

    Given error bars, it returns :class:`gaussguru.errors.Measured`, values and errors in one object, which the next
    ``WithErrors`` and the estimators of this library understand; without them it returns what the transformer returns.
    With metadata routing it asks for ``X_err`` in ``fit`` and ``transform`` by default, so that the steps of a pipeline
    need nothing but ``fit(X, y, X_err=...)``. Without routing, give ``Measured(X, X_err)`` in place of X.

    Errors that are independent from feature to feature stay so under scaling and selection. Other maps mix them: PCA
    turns them into covariances, of ``n_components**2`` numbers a sample. Errors that are the same in all directions
    stay so under an orthonormal map.

    What was not measured (an infinite error) is left out where a transformer can do without (scalers), else taken to
    be what the other features of the sample let expect. Under scaling and selection it stays unmeasured; a map that
    mixes features gets its mean and covariance, given the measured values of the sample
    (:meth:`gaussguru.errors.Population.fill`).

    Parameters
    ----------
    transformer : transformer, default=None
        None only attaches the errors.

    Attributes
    ----------
    transformer_ : transformer
        The fitted one.
    matrix_ : array or sparse matrix of shape (n_features, n_features_out)
        ``A``.
    population_ : gaussguru.errors.Population or None
        What stands for a value that was not measured; None for sparse X.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from gaussguru.preprocessing import WithErrors
    >>> X = np.array([[0.0, 10.0], [2.0, 30.0]])
    >>> WithErrors(StandardScaler()).fit_transform(X, X_err=np.array([[0.1, 1.0], [0.2, 5.0]])).err
    array([[0.1, 0.1],
           [0.2, 0.5]])
    """

    __metadata_request__fit: ClassVar = {"X_err": True}
    __metadata_request__transform: ClassVar = {"X_err": True}

    def __init__(self, transformer: Any = None) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: Any = None, X_err: Any = None) -> Self:
        """Fit the transformer to X; errors matter only in what they say was not measured.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
        X_err : error bars of X, default=None

        Returns
        -------
        self
        """
        self._fit(X, y, X_err)
        return self

    def fit_transform(self, X: Any, y: Any = None, X_err: Any = None) -> Any:
        """Fit the transformer, and transform X and its errors.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
        X_err : error bars of X, default=None

        Returns
        -------
        Measured, or what the transformer returns if there are no errors
        """
        self._fit(X, y, X_err)
        return self.transform(X, X_err)

    def transform(self, X: Any, X_err: Any = None) -> Any:
        """Transform X and its errors.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None

        Returns
        -------
        Measured, or what the transformer returns if there are no errors
        """
        check_is_fitted(self)
        X, X_err = split_errors(X, X_err)
        if isinstance(X_err, Limits):
            return self._apply_limits(X, X_err)
        return self._apply(*self._checked(X, X_err, reset=False))

    def _apply_limits(self, X: Any, X_err: Limits) -> Any:
        """Transform values of which some are limits: what scales a feature scales its limits."""
        if self._map.monomial is None:
            raise ValueError(
                f"X_err holds limits, which cannot be carried through {self.transformer_}: it mixes features. "
                "gaussguru.population.Deconvolve, before it, turns limits into values with errors"
            )
        found = self._apply(*self._checked(X, X_err.unmeasured(X.shape), reset=False))
        source, factors = self._map.monomial
        sides = X_err.sides
        assert self.population_ is not None  # limits are of dense X
        bounds = self.transformer_.transform(like(X, np.where(sides == 0, self.population_.means, X)))
        limits = sides[:, source] * np.sign(factors).astype(np.int8)
        errors = self._map.carry(np.where(sides == 0, 0.0, X_err.deviations(X.shape)))
        values = like(found.X, np.where(limits == 0, found.X, bounds))
        return Measured(values, Limits(np.where(limits == 0, found.err, errors), limits))

    def _checked(self, X: Any, X_err: Any, *, reset: bool) -> tuple[Any, Any]:
        """Return X as an array, CSR matrix or DataFrame, finite where it was measured, and its errors."""
        X, X_err = split_errors(X, X_err)
        X_err = X_err.unmeasured(X.shape) if isinstance(X_err, Limits) else X_err
        X = X.tocsr() if sp.issparse(X) else X if hasattr(X, "iloc") else check_array(X, **_ARRAY_OPTIONS)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if has_unmeasured(X_err) and sp.issparse(X):
            raise ValueError("X_err has infinite errors, for what was not measured: that needs a dense X")
        values = X.data if sp.issparse(X) else np.asarray(X)
        assert_all_finite(
            np.where(unmeasured(X_err, X.shape), 0.0, values) if has_unmeasured(X_err) else values, input_name="X"
        )
        return X, X_err

    def _fit(self, X: Any, y: Any, X_err: Any) -> tuple[Any, Any]:
        X, X_err = self._checked(X, X_err, reset=True)
        self.population_ = None if sp.issparse(X) else population_of(X, X_err)
        filled, _ = self._fill(X, X_err, mixed=False)
        inner = FunctionTransformer(accept_sparse=True, feature_names_out="one-to-one")
        inner = inner if self.transformer is None else clone(self.transformer)
        seen = filled
        if has_unmeasured(X_err):
            if get_tags(inner).input_tags.allow_nan:
                seen = like(X, np.where(unmeasured(X_err, X.shape), np.nan, filled))
            else:
                seen, _ = self._fill(X, X_err, mixed=True)
        self.transformer_ = inner.fit(seen, y)
        self._map = AffineMap.of(inner.transform, filled)
        return X, X_err

    @property
    def matrix_(self) -> Any:
        """``A``, dense unless the transformer was fitted to a sparse X."""
        check_is_fitted(self)
        return self._map.matrix if self.population_ is None else _dense(self._map.matrix)

    def _fill(self, X: Any, X_err: Any, *, mixed: bool) -> tuple[Any, Any]:
        """Return X and its errors, with what is known without a measurement where there was none.

        It matters only where features are mixed; where not, means and spreads stand for it.
        """
        if not has_unmeasured(X_err):
            return X, X_err
        if self.population_ is None:
            raise ValueError("X_err has infinite errors, for what was not measured: that needs a fit to a dense X")
        return self.population_.fill(X, X_err) if mixed else self.population_.fill_means(X, X_err)

    def _apply(self, X: Any, X_err: Any) -> Any:
        if X_err is None:
            return self.transformer_.transform(X)
        filled, errors = self._fill(X, X_err, mixed=self._map.monomial is None)
        if isinstance(errors, LowRank) or sp.issparse(errors) or np.ndim(errors) != 3:
            check_errors(errors, filled)
        elif np.shape(errors) != (X.shape[0], X.shape[1], X.shape[1]):
            raise ValueError(f"X_err of shape {np.shape(errors)} does not fit X of shape {X.shape}")
        transformed = self.transformer_.transform(filled)
        self._map.check(filled, transformed, self.transformer_)
        return Measured(transformed, self._map.carry(X_err if self._map.monomial else errors))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names that the transformer gives to its features.

        Parameters
        ----------
        input_features : array-like of str, default=None

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        return np.asarray(self.transformer_.get_feature_names_out(input_features))

    def set_output(self, *, transform: Any = None) -> Self:
        """Choose the container of the values, as in scikit-learn.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None

        Returns
        -------
        self
        """
        for inner in (self.transformer, getattr(self, "transformer_", None)):
            if inner is not None:
                inner.set_output(transform=transform)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.transformer is None:
            tags.input_tags.sparse = True
            return tags
        inner = get_tags(self.transformer)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.target_tags.required = inner.target_tags.required
        return tags


@dataclass(frozen=True)
class AffineMap:
    """``x -> offset + A' (x - centre)``."""

    centre: Array
    offset: Array
    matrix: Any
    # The input feature of each output and its factor, where there is one at most, and each is used once.
    monomial: tuple[Index, Array] | None

    @classmethod
    def of(cls, function: Callable[[Any], Any], X: Any) -> "AffineMap":
        """Return the map that a function is, from its values about the mean of X."""
        n_features = int(X.shape[1])
        if sp.issparse(X):
            centre = np.zeros(n_features)
            steps = np.asarray(abs(X).max(axis=0).toarray()).ravel().astype(np.float64)
        else:
            values = np.asarray(X, dtype=np.float64)
            centre = values.mean(axis=0)
            steps = np.sqrt(np.square(values - centre).mean(axis=0))
        # A constant feature has rounding for a spread; an empty one has none.
        steps = np.where(steps > 1e-12 * np.abs(centre), steps, np.maximum(np.abs(centre), 1.0))

        def at(first: int, last: int) -> Any:
            if sp.issparse(X):
                rows = sp.csr_array(
                    (steps[first:last], (np.arange(last - first), np.arange(first, last))),
                    shape=(max(last - first, 1), n_features),
                )
                return function(sp.csr_matrix(rows) if sp.isspmatrix(X) else rows)
            probe = np.tile(centre, (max(last - first, 1), 1))
            probe[np.arange(last - first), np.arange(first, last)] += steps[first:last]
            return function(like(X, probe) if hasattr(X, "iloc") else probe)

        offset = _dense(at(0, 0)).reshape(-1)
        if not sp.issparse(X) and (factors := _scaling(function, X, centre, steps, offset)) is not None:
            return cls(centre, offset, sp.diags_array(factors).tocsr(), (np.arange(n_features), factors))
        step = max(1, CHUNK // n_features)
        parts = []
        for first in range(0, n_features, step):
            last = min(first + step, n_features)
            moved = at(first, last)
            if sp.issparse(moved) and not offset.any():
                parts.append(sp.diags_array(1.0 / steps[first:last]) @ moved)
            else:
                moved = _dense(moved).reshape(last - first, -1)
                parts.append((moved - offset) / steps[first:last, np.newaxis])
        matrix = sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)
        return cls(centre, offset, matrix, _monomial(matrix))

    def __call__(self, X: Any) -> Array:
        """Return what the map makes of X."""
        if sp.issparse(X):
            return np.asarray(_dense(X @ self.matrix) + self.offset)
        return np.asarray((np.asarray(X, dtype=np.float64) - self.centre) @ self.matrix + self.offset)

    def check(self, X: Any, values: Any, source: object) -> None:
        """Raise unless ``values`` are what the map makes of X."""
        eps = max(_precision(X), _precision(values))
        away = (
            abs(X).max(axis=0).toarray().ravel() if sp.issparse(X) else np.abs(np.asarray(X) - self.centre).max(axis=0)
        )
        slopes = abs(self.matrix)
        allowed = np.sqrt(eps) * (away @ slopes + np.abs(self.offset)) + 100 * eps * (np.abs(self.centre) @ slopes)
        if sp.issparse(values) and not self.offset.any():
            apart = abs(values - X @ self.matrix).max(axis=0).toarray().ravel()
        else:
            apart = np.abs(_dense(values).reshape(X.shape[0], -1) - self(X)).max(axis=0)
        if not np.all(apart <= allowed):
            raise ValueError(
                f"{source} is not affine on X, so it has no exact rule for Gaussian errors; errors go through scalers, "
                "linear maps and the selection of columns"
            )

    def carry(self, X_err: Any) -> Any:
        """Return the errors of what the map makes of values with these errors."""
        if self.monomial is not None:
            return self._rescale(X_err, *self.monomial)
        A = _dense(self.matrix)
        n_features, n_out = A.shape
        if isinstance(X_err, LowRank):
            factors = np.einsum("ijr,jk->ikr", np.asarray(X_err.factors, dtype=np.float64), A, optimize=True)
            if X_err.std is None:
                return LowRank(factors)
            std = np.asarray(X_err.std, dtype=np.float64)
            std = np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], (len(std), n_features))
            return LowRank(np.concatenate([factors, A.T[np.newaxis] * std[:, np.newaxis, :]], axis=2))
        if not sp.issparse(X_err):
            X_err = np.asarray(X_err, dtype=np.float64)
            if X_err.ndim == 1:
                product = A.T @ A
                level = np.trace(product) / n_out
                if np.abs(product - level * np.eye(n_out)).max() <= 1e-12 * level:
                    return X_err * np.sqrt(level)
                return np.square(X_err)[:, np.newaxis, np.newaxis] * product
            if X_err.ndim == 3:
                return np.einsum("jk,ijl,lm->ikm", A, X_err, A, optimize=True)
        squares = X_err.multiply(X_err) if sp.issparse(X_err) else np.square(X_err)
        covariances = np.empty((squares.shape[0], n_out, n_out))
        for k, column in enumerate(A.T):
            weighted = squares.multiply(column).tocsr() if sp.issparse(squares) else squares * column
            covariances[:, k] = weighted @ A
        return covariances

    @staticmethod
    def _rescale(X_err: Any, source: Index, factors: Array) -> Any:
        def times(values: Array, by: Array) -> Array:  # 0 times infinity is 0: such an output sees no feature
            return np.multiply(values, by, out=np.zeros(np.broadcast_shapes(values.shape, by.shape)), where=by != 0)

        size = np.abs(factors)
        if isinstance(X_err, LowRank):
            std = None if X_err.std is None else AffineMap._rescale(X_err.std, source, factors)
            return LowRank(np.asarray(X_err.factors, dtype=np.float64)[:, source] * factors[:, np.newaxis], std)
        if sp.issparse(X_err):
            return sp.csr_array(sp.csr_array(X_err)[:, source] @ sp.diags_array(size))
        errors = np.asarray(X_err, dtype=np.float64)
        if errors.ndim == 1:
            if np.all(size == size[0]):
                return times(errors, size[:1])
            return times(errors[:, np.newaxis], size)
        if errors.ndim == 2:
            return times(errors[:, source], size)
        return times(errors[:, source][:, :, source], np.multiply.outer(factors, factors))


def _scaling(function: Callable[[Any], Any], X: Any, centre: Array, steps: Array, offset: Array) -> Array | None:
    """Return the factors of a function that scales feature by feature, or None for any other.

    Features are moved by a step, some together. Where each output depends on its own feature alone, it has one of two
    values, to the last bit: what it has at the centre, and one that the others have no part in. That some other map
    does the same at ``SCALING_PROBES`` random choices of features has a probability of 2 to minus that power.
    """
    if len(offset) != len(centre):
        return None
    moved = np.random.default_rng(0).random((SCALING_PROBES, len(centre))) < 0.5
    probe = np.concatenate([centre + steps * moved, (centre + steps)[np.newaxis]])
    values = _dense(function(like(X, probe) if hasattr(X, "iloc") else probe)).reshape(len(probe), -1)
    if not np.array_equal(values[:-1], np.where(moved, values[-1], offset)):
        return None
    factors: Array = (values[-1] - offset) / steps
    return factors


def _monomial(matrix: Any) -> tuple[Index, Array] | None:
    entries = sp.csc_array(matrix)
    entries.eliminate_zeros()
    per_output = np.diff(entries.indptr)
    per_input = np.bincount(entries.indices, minlength=1)
    if per_output.max(initial=0) > 1 or per_input.max() > 1:
        return None
    source, factors = np.zeros(len(per_output), dtype=np.intp), np.zeros(len(per_output))
    source[per_output == 1], factors[per_output == 1] = entries.indices, entries.data
    return source, factors


def _dense(values: Any) -> Array:
    return np.asarray(values.toarray() if sp.issparse(values) else values, dtype=np.float64)


def _precision(table: Any) -> float:
    dtype = np.result_type(*table.dtypes) if hasattr(table, "iloc") else table.dtype
    return float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


# How the two sides of an error bar are spelt, after the suffix for error bars: upper, lower.
SIDES = (("1", "2"), ("hi", "lo"), ("_up", "_low"))
ONE_SIDE = ("", "")
LIMIT = "_limit"


def errors_from_frame(frame: Any, suffix: str = "_err") -> tuple[Any, Any]:
    """Split a table with columns ``name`` and ``name_err`` into values and error bars.

    A column without errors is exact: its errors are 0. A missing value (NaN) was not measured: its error is infinite.

    Error bars with two sides are in two columns: ``name_err1`` (upper) and ``name_err2`` (lower), as in the NASA
    Exoplanet Archive, or ``name_errhi`` and ``name_errlo``, or ``name_err_up`` and ``name_err_low``. The sign of a
    lower side does not matter. A table has one of these styles, and each of its features one kind of error bar.

    A column ``name_limit`` says which values are limits: -1 for an upper limit (the truth is below the value), +1 for a
    lower limit, and 0 or NaN for a measurement.

    Parameters
    ----------
    frame : DataFrame, or table of astropy
        All other columns must be features: take out the labels before. Of a table of astropy, features have their units
        in their names, as in ``"flux [mJy]"``; values and errors must have the same unit.
    suffix : str, default="_err"
        What the names of columns with standard deviations end with.

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features)
    X_err : DataFrame of the same shape and columns, or Asymmetric or Limits of such
    """
    frame, units = _without_units(frame)
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns"):
        raise TypeError(f"frame must be a pandas DataFrame; got {type(frame).__name__}")
    if not isinstance(suffix, str) or not suffix:
        raise ValueError(f"suffix must be a string of at least one character; got {suffix!r}")
    parts = _FrameParts.of(frame, units, suffix)
    lower, upper, limits = (dict(zip(parts.values, side, strict=True)) for side in zip(*parts.bars(), strict=True))
    names = parts.names()

    def table(values: dict[str, Array]) -> Any:
        return type(frame)(values, index=frame.index).set_axis(names, axis=1)

    X_err = table(upper)
    if parts.is_two_sided:
        X_err = Asymmetric(table(lower), X_err)
    if parts.flags:
        X_err = Limits(X_err, table(limits))
        _ = X_err.sides  # checked
    return frame.iloc[:, [parts.place[name] for name in parts.values]].set_axis(names, axis=1), X_err


class _FrameParts(NamedTuple):
    """A DataFrame, of which some columns have values, and others their errors, limits and units."""

    frame: Any
    place: dict[str, int]
    values: list[str]
    upper: dict[str, str]
    lower: dict[str, str]
    flags: dict[str, str]
    units: dict[str, str]

    @classmethod
    def of(cls, frame: Any, units: dict[str, str], suffix: str) -> "_FrameParts":
        place = {str(name): j for j, name in enumerate(frame.columns)}
        upper, lower, flags = _error_names([str(name) for name in frame.columns], suffix)
        used = {*upper.values(), *lower.values(), *flags.values()}
        return cls(frame, place, [name for name in place if name not in used], upper, lower, flags, units)

    @property
    def is_two_sided(self) -> bool:
        """Whether some error bar has two columns."""
        return self.upper != self.lower

    def names(self) -> Any:
        """Return the names of the features, with their units where the table has any."""
        if not self.units:
            return self.frame.columns[[self.place[name] for name in self.values]]
        return [f"{name} [{self.units[name]}]" if self.units.get(name) else name for name in self.values]

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
            raise ValueError(f"frame must hold numbers; column {name!r} or its errors do not: {problem}") from problem
        if len(set(columns)) == 2:  # the sign of a lower side does not matter
            lower = np.abs(lower)
        return np.where(gone, np.inf, lower), np.where(gone, np.inf, upper), np.where(gone, 0.0, flag)

    def _numbers(self, name: str | None) -> Array:
        """Return a column, or zeros for one that is not there."""
        if name is None:
            return np.zeros(len(self.frame))
        found: Array = self.frame.iloc[:, self.place[name]].to_numpy(dtype=np.float64, na_value=np.nan)
        return found


def _without_units(frame: Any) -> tuple[Any, dict[str, str]]:
    """Return a DataFrame, and of a table of astropy the units of its columns."""
    if not (hasattr(frame, "colnames") and hasattr(frame, "to_pandas")):
        return frame, {}
    units = {name: str(getattr(frame[name], "unit", None) or "") for name in frame.colnames}
    return frame.to_pandas(), units


def _error_names(names: list[str], suffix: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the columns of the upper and lower errors of features, the same where they are one, and of limits."""
    known = set(names)
    if len(known) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"frame must have columns of different names; got {twice!r} more than once")
    found = error_columns(names, known, suffix)
    if found.alone:
        raise ValueError(
            f"frame has {found.alone!r} without the columns that they are the errors of, the same without {suffix!r}"
        )
    if found.halves:
        raise ValueError(f"frame has {found.halves!r} without the other side of the error bar")
    if not found.upper and not found.limits:
        raise ValueError(f"frame has no column that ends with suffix={suffix!r}; got {names!r}")
    return found.upper, found.lower, found.limits


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
    """Split numbers with uncertainties, as of the package ``uncertainties``, into values and error bars.

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


@dataclass(frozen=True)
class ReplicateNoise:
    """What repeated measurements say of the noise; every estimate with its standard error.

    Attributes
    ----------
    sigma, sigma_error : float
        Noise level per direction, ``sqrt(trace(covariance) / n_features)``.
    std, std_error : ndarray of shape (n_features,)
        Standard deviation of each feature.
    covariance, covariance_error : ndarray of shape (n_features, n_features)
    degrees_of_freedom : int
        Measurements beyond the first of each group.
    """

    sigma: float
    sigma_error: float
    std: Array
    std_error: Array
    covariance: Array
    covariance_error: Array
    degrees_of_freedom: int


def noise_from_replicates(X: Any, groups: Any) -> ReplicateNoise:
    """Estimate the noise from repeated measurements of the same objects.

    ::

        C = sum_g sum_{i in g} (x_i - mean_g)(x_i - mean_g)' / nu,     nu = sum_g (n_g - 1)

    is unbiased, if the noise is the same for all objects. The standard errors are those of Gaussian noise:
    ``sqrt((C_jj C_kk + C_jk^2) / nu)`` for the covariance, ``std / sqrt(2 nu)`` for a standard deviation, and
    ``||C||_F / (n_features sigma sqrt(2 nu))`` for ``sigma``, with an unbiased estimate of ``||C||_F^2``.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The measurements.
    groups : array-like of shape (n_samples,)
        Which of them are of the same object. An object measured once says nothing of the noise.

    Returns
    -------
    ReplicateNoise
    """
    X = check_array(X, dtype=np.float64, input_name="X")
    groups = column_or_1d(groups)
    if len(groups) != len(X):
        raise ValueError(f"groups must have one entry for each of the {len(X)} samples of X; got {len(groups)}")
    if groups.dtype.kind == "f" and np.isnan(groups).any():
        raise ValueError("groups has NaN: every sample must say which object it is of")
    names, members = np.unique(groups, return_inverse=True)
    counts = np.bincount(members)
    nu = len(X) - len(names)
    if nu == 0:
        raise ValueError(
            f"groups must have at least one object that was measured twice; got {len(names)}, all measured once"
        )
    means = np.zeros((len(names), X.shape[1]))
    centre = X.mean(axis=0)  # subtracted first: sums of large numbers lose digits
    np.add.at(means, members, X - centre)
    means /= counts[:, np.newaxis]
    rest = X - centre - means[members]
    C = rest.T @ rest / nu
    variances = np.diag(C).copy()
    std, trace, d = np.sqrt(variances), float(variances.sum()), len(C)
    square = float(np.square(C).sum())
    if nu > 1:
        # Unbiased for Wishart matrices, and never below what the trace allows.
        square = nu**2 / ((nu - 1) * (nu + 2)) * (square - trace**2 / nu)
    square = max(square, trace**2 / d)
    sigma = float(np.sqrt(trace / d))
    return ReplicateNoise(
        sigma=sigma,
        sigma_error=float(np.sqrt(square / (2 * nu)) / (d * sigma)) if sigma > 0 else 0.0,
        std=std,
        std_error=std / np.sqrt(2 * nu),
        covariance=C,
        covariance_error=np.sqrt((np.outer(variances, variances) + np.square(C)) / nu),
        degrees_of_freedom=int(nu),
    )


class NotLinearError(TypeError, ValueError):
    """The scores of a classifier are not linear in X, or it has none: what noise does to it has no closed form."""


def linear_scores(estimator: Any, X: Any) -> tuple[Array, Array]:
    """Return the scores of the samples, and the coefficients of a decision function that is affine in X."""
    check_is_fitted(estimator)
    final = final_estimator(estimator)
    if not hasattr(estimator, "decision_function"):
        raise NotLinearError(
            f"estimator must be a linear classifier with a decision_function; got {type(final).__name__}. For others "
            "there is robustness_curve(..., method='sampling')"
        )
    table = as_table(X)
    scores = np.asarray(estimator.decision_function(X))
    if isinstance(estimator, LinearScores):  # linear by what it is; to look takes the square of the number of features
        return scores.astype(np.float64, copy=False), estimator.coef_
    affine = AffineMap.of(estimator.decision_function, table)
    try:
        affine.check(table, scores, final)
    except ValueError:
        raise NotLinearError(
            f"estimator must have scores that are linear in X; those of {type(final).__name__} are not. For any "
            "classifier there is robustness_curve(..., method='sampling')"
        ) from None
    matrix = affine.matrix.toarray() if sp.issparse(affine.matrix) else affine.matrix
    exact = estimator.coef_ if estimator is final and hasattr(final, "coef_") else matrix.T
    return scores.astype(np.float64, copy=False), np.atleast_2d(np.asarray(exact, dtype=np.float64))


def as_table(X: Any) -> Any:
    """Return X as an array, if it is neither a sparse matrix nor a DataFrame."""
    return X if sp.issparse(X) or hasattr(X, "iloc") else np.asarray(X)


def final_estimator(estimator: Any) -> Any:
    """Return the last step of a pipeline, of what a search found, or the estimator itself."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return final_estimator(estimator[-1]) if isinstance(estimator, Pipeline) else estimator
