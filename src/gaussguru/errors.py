"""Error bars: what is known of the noise of every sample, seen only through the variance of ``u . noise``.

Sample i is measured with the covariance ``Sigma_i``. Whatever form it is given in, the rest of the library asks for

::

    variances(U)   u' Sigma_i u     for every sample and every row u of U
    times(u)       Sigma_i u        for every sample
    pull(t, u)     sum_i t_i Sigma_i u

An error is a standard deviation, in the units of the feature.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.sparsefuncs import mean_variance_axis

from gaussguru._linalg import EPS, Array, Index, diagonal, norm
from gaussguru._native import _binding

# How far a covariance may be from symmetric and positive semidefinite, relative to its largest entry.
ROUNDING = 1e-8
# Pivots of a covariance that is far from singular, relative to the largest: variances by products then have ten digits.
DEFINITE = 1e-3
# Values that are looked at together: they stay in cache, and a thread has enough to do.
CHUNK = 1 << 18


@dataclass(frozen=True)
class LowRank:
    """Error bars with covariances ``diag(std_i^2) + factors_i factors_i'``: correlated errors of few causes.

    Parameters
    ----------
    factors : array of shape (n_samples, n_features, rank)
        What a unit of each of the common causes does to the features.
    std : array of shape (n_samples, n_features) or (n_samples,), default=None
        Standard deviations of what is independent on top.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.errors import LowRank
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> shared = np.full((100, 3, 1), 0.3)  # a cause that moves all features of a sample together
    >>> errors = LowRank(shared, std=np.full((100, 3), 0.1))
    >>> GuruClassifier(0.1).fit(X, X[:, 0] > 0, X_err=errors).converged_
    True
    """

    factors: Any
    std: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the factors: with it scikit-learn takes the rows of a fold by ``X_err[rows]``."""
        return np.shape(self.factors)

    def __len__(self) -> int:
        return len(self.factors)

    def __getitem__(self, index: Any) -> "LowRank":
        return LowRank(take_rows(self.factors, index), None if self.std is None else take_rows(self.std, index))

    def marked(self, gaps: NDArray[np.bool_]) -> "LowRank":
        """Return the same with infinite errors at gaps; of another shape, as it is: :func:`check_errors` says so."""
        if np.shape(self.factors)[:2] != gaps.shape:
            return self
        std = np.zeros(gaps.shape) if self.std is None else as_numbers(self.std, "X_err.std")
        return LowRank(self.factors, np.where(gaps, np.inf, std if std.ndim == 2 else std[:, np.newaxis]))


@dataclass(frozen=True)
class Asymmetric:
    """Error bars whose sides differ, ``x -lower +upper``: noise with a split normal distribution.

    Of the truth given such a measurement, two half Gaussians of these standard deviations that meet at x, everything
    here uses mean and variance alone::

        mean x + sqrt(2/pi) (upper - lower)        variance (1 - 2/pi) (upper - lower)^2 + upper lower

    Parameters
    ----------
    lower, upper : array-like of shape (n_samples, n_features) or (n_samples,)
        Standard deviations below and above. An infinite one says that a value was not measured.

    Examples
    --------
    >>> from gaussguru.errors import Asymmetric
    >>> X, X_err = Asymmetric(lower=[[0.4]], upper=[[0.9]]).symmetric([[12.3]])  # 12.3 +0.9 -0.4
    >>> print(f"{X.item():.2f} ± {X_err.item():.2f}")
    12.70 ± 0.67
    """

    lower: Any
    upper: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the sides."""
        return np.shape(self.lower)

    def __len__(self) -> int:
        return len(self.lower)

    def __getitem__(self, index: Any) -> "Asymmetric":
        return Asymmetric(take_rows(self.lower, index), take_rows(self.upper, index))

    def symmetric(self, X: Any) -> tuple[Any, Any]:
        """Return values and standard deviations with the same means and variances.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        X, X_err : in the form of X
        """
        sides = []
        for name, side in (("lower", self.lower), ("upper", self.upper)):
            for axis in ("columns", "index"):
                names, others = _names(X, axis), _names(side, axis)
                if names is not None and others is not None and not np.array_equal(names, others):
                    raise ValueError(f"{name} errors must have the {axis} of X, in the same order")
            sides.append(as_numbers(side, f"the {name} sides of X_err"))
        lower, upper = sides
        values = as_numbers(X, "X")
        n, d = values.shape
        if lower.shape != upper.shape or lower.shape not in ((n,), (n, d)):
            raise ValueError(
                f"both sides of X_err must have shape ({n},) or ({n}, {d}), for X of shape ({n}, {d}); got "
                f"{lower.shape} and {upper.shape}"
            )
        lower, upper = (side if side.ndim == 2 else np.repeat(side[:, np.newaxis], d, axis=1) for side in sides)
        _check_sign(float(np.nanmin([lower, upper], initial=0.0)), "both sides of X_err")
        lost = np.isinf(lower) | np.isinf(upper) | np.isnan(values)
        apart = np.where(lost, 0.0, upper) - np.where(lost, 0.0, lower)
        variances = (1 - 2 / np.pi) * np.square(apart) + np.where(lost, 0.0, upper) * np.where(lost, 0.0, lower)
        std = np.where(lost, np.inf, np.sqrt(variances))
        return like(X, values + np.sqrt(2 / np.pi) * apart), like(X, std) if hasattr(X, "iloc") else std


@dataclass(frozen=True)
class Limits:
    """Error bars of values of which some are only limits, as of what was too faint to be seen.

    Where ``limits`` is -1 the truth is below the value in X, an upper limit; where it is +1 it is above; where it is 0
    the value is a measurement. A limit u with the error r says ``P(truth is below u) = Phi((u - truth) / r)``, and with
    r = 0 it is sharp. :class:`gaussguru.population.Deconvolve` turns limits into posteriors; classifiers take these.

    Parameters
    ----------
    err : array-like of shape (n_samples, n_features) or (n_samples,), or Asymmetric
        Standard deviations of measurements and limits.
    limits : array-like of shape (n_samples, n_features)
        -1, 0 or +1.

    Examples
    --------
    >>> from gaussguru.errors import Limits
    >>> from gaussguru.population import Deconvolve
    >>> X, errors = [[1.0], [2.0], [3.0], [0.5]], [[0.1], [0.1], [0.1], [0.0]]
    >>> X_err = Limits(errors, [[0], [0], [0], [-1]])  # the last is known to be below 0.5
    >>> bool(Deconvolve().fit_transform(X, X_err=X_err).X[3, 0] < 0.5)
    True
    """

    err: Any
    limits: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the limits."""
        return np.shape(self.limits)

    def __len__(self) -> int:
        return len(self.limits)

    def __getitem__(self, index: Any) -> "Limits":
        return Limits(take_rows(self.err, index), take_rows(self.limits, index))

    @property
    def sides(self) -> NDArray[np.int8]:
        """The limits, checked."""
        given = as_numbers(self.limits, "limits")
        if given.ndim != 2 or not np.isin(given, (-1.0, 0.0, 1.0)).all():
            raise ValueError(
                "limits must hold -1 for upper limits, +1 for lower ones and 0 for measurements, in the shape of X; "
                f"got shape {given.shape} with {np.unique(given)[:5].tolist()!r}"
            )
        return given.astype(np.int8)

    def deviations(self, shape: tuple[int, int]) -> Array:
        """Return the standard deviations of all values, checked to be of this shape."""
        if isinstance(self.err, LowRank | Limits) or sp.issparse(self.err):
            raise ValueError(f"errors of limits must be standard deviations; got {type(self.err).__name__}")
        errors = as_numbers(self.err, "X_err")
        if self.sides.shape != shape or errors.shape not in (shape, shape[:1]):
            raise ValueError(
                f"X_err must hold limits of shape {shape} and their standard deviations; got {self.sides.shape} and "
                f"{errors.shape}"
            )
        return np.array(np.broadcast_to(errors if errors.ndim == 2 else errors[:, np.newaxis], shape))

    def marked(self, gaps: NDArray[np.bool_]) -> "Limits":
        """Return the same with infinite errors at gaps; of another shape, as it is: whoever reads it says so."""
        if self.sides.shape != gaps.shape:
            return self
        return Limits(_marked(self.err, gaps), np.where(gaps, 0, self.sides))

    def unmeasured(self, shape: tuple[int, int]) -> Array:
        """Return the standard deviations, infinite for limits."""
        return np.where(self.sides == 0, self.deviations(shape), np.inf)


@dataclass(frozen=True)
class Measured:
    """Samples that carry their error bars: ``X`` and ``X_err`` in one argument.

    Transformers return a single object, and metadata routing gives every step of a pipeline the same ``X_err``. So
    errors that change with X travel inside it: :class:`gaussguru.preprocessing.WithErrors` returns this, and the
    estimators of the library take it for X. It can also be given to a search or cross-validation in place of X: rows
    are taken from both together, and no metadata routing is needed.

    It does not turn into a plain array: an estimator that knows nothing of errors raises instead of losing them.

    Parameters
    ----------
    X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
    err : X_err in any of its forms
    components : Components, default=None
        What is known of every sample as a mixture, of which X and ``err`` are the mean and the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.errors import Measured
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> samples = Measured(X, np.full((60, 2), 0.1))  # rows of both are taken together, in every fold
    >>> cross_val_score(GuruClassifier(0.1), samples, X[:, 0] > 0, cv=3).shape
    (3,)
    """

    X: Any
    err: Any
    components: "Components | None" = None

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
        """That of X."""
        return tuple(self.X.shape) if hasattr(self.X, "shape") else np.shape(self.X)

    @property
    def ndim(self) -> int:
        """That of X."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> "Measured":
        components = None if self.components is None else self.components[index]
        return Measured(take_rows(self.X, index), take_rows(self.err, index), components)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        raise TypeError(
            "X carries error bars, and a step that takes only an array would lose them: wrap a transformer in "
            "gaussguru.preprocessing.WithErrors, or give the values alone, without X_err"
        )


class _Population(Protocol):
    """What :class:`Components` asks of a population."""

    @property
    def n_components(self) -> int: ...

    def shares(self, rows: Any) -> Array: ...

    def scores(self, rows: Any, coef: Array, intercept: Array) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class Components:
    """The truth of every sample as a mixture of Gaussians: ``sum_k q_ik N(m_ik, V_ik)``.

    Nothing of it is stored: means and covariances are made from the measurements and the population, some rows at a
    time, when they are asked for. So it takes the memory of the measurements.

    Parameters
    ----------
    rows : measured values and their noise; some of them are taken by ``rows[index]``
    population : distribution of the true values, as :class:`gaussguru.population.Deconvolve` finds it
    exact : array of shape (n_samples, n_exact), default=None
        Features without error, after those of the population.
    """

    rows: Any
    population: _Population
    exact: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> "Components":
        exact = None if self.exact is None else take_rows(self.exact, index)
        return Components(take_rows(self.rows, index), self.population, exact)

    @property
    def n_components(self) -> int:
        """The number of components."""
        return self.population.n_components

    @cached_property
    def weights(self) -> Array:
        """``q``, of shape (n_samples, n_components): the probability that a sample is of each component."""
        return self.population.shares(self.rows)

    def scores(self, coef: Any, intercept: Any = 0.0) -> tuple[Array, Array]:
        """Return what linear scores are in each component.

        Parameters
        ----------
        coef : array-like of shape (n_scores, n_features)
        intercept : array-like of shape (n_scores,), default=0

        Returns
        -------
        means : ndarray of shape (n_samples, n_components, n_scores)
            ``W m_ik + b``.
        covariances : ndarray of shape (n_samples, n_components, n_scores, n_scores)
            ``W V_ik W'``.
        """
        W = np.atleast_2d(np.asarray(coef, dtype=np.float64))
        b = np.broadcast_to(np.asarray(intercept, dtype=np.float64), (len(W),))
        if self.exact is None:
            return self.population.scores(self.rows, W, b)
        inner = W.shape[1] - self.exact.shape[1]
        means, covariances = self.population.scores(self.rows, np.ascontiguousarray(W[:, :inner]), b)
        return means + (self.exact @ W[:, inner:].T)[:, np.newaxis], covariances


def split_errors(X: Any, X_err: Any = None) -> tuple[Any, Any]:
    """Return X and X_err, of which X may carry the second (:class:`Measured`).

    What X carries wins: in a pipeline ``X_err`` is what the errors were before the steps in between changed them.
    Tables must agree in their columns and rows, by name. What is NaN in X has infinity in X_err: it was not measured.
    """
    if isinstance(X, Measured):
        X, X_err = X.X, X.err
    X = _as_values(X)
    if X_err is None and holds_uncertainties(X):
        X, X_err = split_uncertainties(X)
    if isinstance(X_err, Asymmetric):
        X, X_err = X_err.symmetric(X)
    elif isinstance(X_err, Limits) and isinstance(X_err.err, Asymmetric):
        shifted, errors = X_err.err.symmetric(X)
        X, X_err = like(X, np.where(X_err.sides == 0, shifted, X)), Limits(errors, X_err.limits)
    for axis in ("columns", "index"):
        names, others = _names(X, axis), _names(X_err, axis)
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


def _as_values(X: Any) -> Any:
    """Return X, or a DataFrame of it if it is a table of astropy."""
    return X.to_pandas() if hasattr(X, "colnames") and hasattr(X, "to_pandas") else X


def holds_uncertainties(X: Any) -> bool:
    """Return whether X has numbers with uncertainties, as of the package ``uncertainties``."""
    if hasattr(X, "iloc"):
        objects = [j for j, kind in enumerate(X.dtypes) if kind.kind == "O"]
        firsts = [X.iloc[0, j] for j in objects] if len(X) else []
        return any(hasattr(first, "nominal_value") for first in firsts)
    if getattr(getattr(X, "dtype", None), "kind", None) != "O" or not np.size(X):
        return False
    return any(hasattr(number, "nominal_value") for number in np.asarray(X)[:1].ravel())


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
    return _marked(X_err, gaps)


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


def _marked(X_err: Any, gaps: NDArray[np.bool_]) -> Any:
    """Return standard deviations or covariances with infinity at gaps; of another shape, as they are."""
    errors = X_err.toarray() if sp.issparse(X_err) else as_numbers(X_err, "X_err")
    n, d = gaps.shape
    if errors.shape not in ((n,), (n, d), (n, d, d)):
        return X_err  # check_errors will say so
    if errors.ndim < 3:
        marked = np.where(gaps, np.inf, errors if errors.ndim == 2 else errors[:, np.newaxis])
        return like(X_err, marked) if hasattr(X_err, "iloc") and marked.shape == np.shape(X_err) else marked
    marked = np.where(gaps[:, :, np.newaxis] | gaps[:, np.newaxis, :], 0.0, errors)
    np.einsum("ijj->ij", marked)[gaps] = np.inf
    return marked


def _names(table: Any, axis: str) -> NDArray[Any] | None:
    """Return the names of columns (as in scikit-learn, texts) or rows of a table, if it has any."""
    names = getattr(table, axis, None)
    if names is None or callable(names):  # a list has a method of that name
        return None
    named = np.asarray(names)
    if axis == "columns":
        return named if all(isinstance(name, str) for name in names) else None
    return named


def _is_numbered(names: NDArray[Any]) -> bool:
    return np.array_equal(names, np.arange(len(names)))


def _is_permuted(names: NDArray[Any], others: NDArray[Any]) -> bool:
    """Return whether rows have the same numbers in another order, where those of one table are in order."""
    if names.shape != others.shape or not (names.dtype.kind in "iu" and others.dtype.kind in "iu"):
        return False
    return np.array_equal(np.sort(names), np.sort(others))


def take_rows(values: Any, index: Any) -> Any:
    """Return rows of an array, sparse matrix, DataFrame, list or :class:`LowRank`."""
    if isinstance(index, tuple):  # scikit-learn asks for array[rows, ...]
        index = index[0]
    if hasattr(values, "iloc"):
        return values.iloc[index]
    if not hasattr(values, "shape"):
        values = np.asarray(values)
    return values[index]


# Rows of which deviations are formed at a time.
PIECE = 4096
# The most numbers of the factors of filled samples: 1 GB.
LARGEST = 1 << 27
# Least variance of a population in any direction, relative to the squared spreads of the features.
LEAST = 1e-6


class Errors(ABC):
    """The error bars of some samples, checked."""

    @property
    @abstractmethod
    def n_samples(self) -> int:
        """The number of samples."""

    @abstractmethod
    def variances(self, U: Array) -> Array:
        """Return ``u' Sigma_i u`` for every sample and row u of U, of shape (n_samples, len(U))."""

    @abstractmethod
    def times(self, u: Array) -> Array:
        """Return ``Sigma_i u``, of shape (n_samples, n_features)."""

    @abstractmethod
    def pull(self, t: Array, u: Array) -> Array:
        """Return ``sum_i t_i Sigma_i u``."""

    @abstractmethod
    def between(self, u: Array, v: Array) -> Array:
        """Return ``u' Sigma_i v`` for every sample."""

    @abstractmethod
    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i Sigma_i`` to a square array."""

    @abstractmethod
    def roots(self, t: Array) -> Array:
        """Return the sum of ``t_i`` times roots of ``Sigma_i``, a row for each feature."""

    @abstractmethod
    def dense(self) -> Array:
        """Return variances of shape (n_samples, n_features) if errors are independent, else all covariances."""

    def seen(self, *directions: Array) -> "Seen":
        """Return what directions see of the errors: products between them, and pulls along them."""
        return Directions(self, directions)

    @property
    def work(self) -> tuple[float, float]:
        """What a product with the Hessian and a Gram matrix in it cost, in those of exact samples."""
        return 1.0, 1.0

    @property
    def width(self) -> int:
        """How many numbers a sample has."""
        return 0

    @property
    def least_rows(self) -> int:
        """How many samples should be looked at together, as there is work that does not depend on their number."""
        return 0

    @property
    def is_large(self) -> bool:
        """Whether a copy for every product, sorted by class, would take much of its time."""
        return False

    @staticmethod
    def none(n_samples: int, n_features: int) -> "Errors":
        """Return those of exact samples."""
        return PerSample(np.zeros(n_samples), n_features)

    @property
    def is_dense_diagonal(self) -> bool:
        """Whether ``std`` is an array of independent standard deviations, as compiled loops read them."""
        return False

    @abstractmethod
    def scaled(self, factor: float) -> "Errors":
        """Return all errors multiplied by a factor."""

    @property
    def deviations(self) -> Array:
        """The standard deviation of every value, dense, of errors that are independent."""
        raise ValueError("X_err must be dense standard deviations with solver='sgd'; use solver='newton' for others")

    @staticmethod
    def length(v: Array, roots: Array, own: Array | float = 0.0) -> float:
        """Return a bound of the least c with ``u . v <= c sum_i t_i sqrt(u' Sigma_i u + ||n u||^2)`` for all u.

        The sum of norms on the right is at least the norm of the sum, in which the roots add up; ``own`` is
        ``n sum_i t_i``.
        """
        radii = np.hypot(roots if roots.ndim == 1 else roots[:, 0], own)
        if np.any((radii == 0) & (v != 0)):
            return np.inf
        with np.errstate(over="ignore"):  # no room at all is a length that is infinite
            return norm(np.divide(v, radii, out=np.zeros_like(v), where=radii > 0))

    @abstractmethod
    def take(self, index: Index | slice) -> "Errors":
        """Return those of some samples."""

    @abstractmethod
    def joined(self, parts: "Sequence[Any]") -> "Errors":
        """Return those of all samples of some parts, of which this is one."""

    @abstractmethod
    def covariance(self, i: int) -> Array:
        """Return ``Sigma_i``."""

    @property
    def is_independent(self) -> bool:
        """Whether the noise of different features is known to be independent."""
        return False

    @property
    def n_causes(self) -> int:
        """The number of independent standard normal numbers that the noise of a sample is made of."""
        raise NotImplementedError

    def moved(self, causes: Array) -> Array:
        """Return the noise that these numbers make: ``L_i c`` with ``L_i L_i' = Sigma_i``.

        ``causes`` has the shape (n_causes,), the same for all samples, or (n_samples, n_causes).
        """
        raise NotImplementedError

    def sample(self, rng: np.random.Generator) -> Array:
        """Return one draw of the noise for every sample, of shape (n_samples, n_features)."""
        return self.moved(rng.standard_normal((self.n_samples, self.n_causes)))


class Seen(Protocol):
    """Errors along some directions, which are asked for by their numbers."""

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""


@dataclass(frozen=True)
class Directions:
    """Errors along some directions, by the products of the errors."""

    errors: Errors
    directions: tuple[Array, ...]

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""
        return self.errors.between(self.directions[i], self.directions[j])

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""
        parts = [self.errors.pull(t, u) for t, u in zip(weights, self.directions, strict=True)]
        return np.asarray(sum(parts[1:], start=parts[0]))


class Rooted(Protocol):
    """Errors with roots: ``Sigma_i = F_i F_i'``."""

    def back(self, along: Array) -> Array:
        """Return ``sum_i F_i c_i`` for the rows ``c_i`` of an array."""


@dataclass(frozen=True)
class Roots:
    """Errors along some directions u, known by ``F_i' u``, of shape (n_directions, n_samples, rank)."""

    errors: Rooted
    along: Array

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""
        return np.asarray(np.einsum("ij,ij->i", self.along[i], self.along[j]))

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""
        return self.errors.back(sum(t[:, np.newaxis] * a for t, a in zip(weights, self.along, strict=True)))


@dataclass(frozen=True)
class Products:
    """Errors along some directions u, known by ``Sigma_i u``, of shape (n_directions, n_samples, n_features)."""

    directions: Array
    times: Array

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""
        return np.asarray(self.times[i] @ self.directions[j])

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""
        return np.asarray(sum(t @ product for t, product in zip(weights, self.times, strict=True)))


@dataclass(frozen=True)
class PerSample(Errors):
    """One standard deviation a sample, the same for all features."""

    std: Array
    n_features: int

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.std)

    def variances(self, U: Array) -> Array:
        """Return ``e_i^2 ||u||^2``."""
        return np.asarray(np.outer(self.std**2, np.einsum("kj,kj->k", U, U)))

    def times(self, u: Array) -> Array:
        """Return ``e_i^2 u``."""
        return np.outer(self.std**2, u)

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``(sum t_i e_i^2) u``."""
        return np.asarray((t @ self.std**2) * u)

    def between(self, u: Array, v: Array) -> Array:
        """Return ``e_i^2 u.v``."""
        return np.asarray(self.std**2 * float(u @ v))

    def dense(self) -> Array:
        """Return ``e_i^2`` for every feature."""
        return np.repeat(np.square(self.std)[:, np.newaxis], self.n_features, axis=1)

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum t_i e_i^2`` to the diagonal."""
        diagonal(out)[:] += float(t @ self.std**2)

    def roots(self, t: Array) -> Array:
        """Return ``sum t_i e_i``, the same for every feature."""
        return np.full(self.n_features, float(t @ self.std))

    def scaled(self, factor: float) -> "PerSample":
        """Return all errors multiplied by a factor."""
        return PerSample(self.std * factor, self.n_features)

    @property
    def deviations(self) -> Array:
        """The standard deviation of every value."""
        return np.repeat(self.std[:, np.newaxis], self.n_features, axis=1)

    def take(self, index: Index | slice) -> "PerSample":
        """Return those of some samples."""
        return PerSample(self.std[index], self.n_features)

    def joined(self, parts: "Sequence[PerSample]") -> "PerSample":
        """Return those of all samples of some parts."""
        return PerSample(np.concatenate([part.std for part in parts]), self.n_features)

    def covariance(self, i: int) -> Array:
        """Return ``e_i^2 I``."""
        return np.asarray(np.eye(self.n_features) * self.std[i] ** 2)

    @property
    def is_independent(self) -> bool:
        """It is."""
        return True

    @property
    def n_causes(self) -> int:
        """One for each feature."""
        return self.n_features

    def moved(self, causes: Array) -> Array:
        """Return ``e_i c_j``."""
        return np.asarray(self.std[:, np.newaxis] * causes)


@dataclass(frozen=True)
class Diagonal(Errors):
    """A standard deviation for every sample and feature, dense or CSR (no entry: exact)."""

    std: Any

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return int(self.std.shape[0])

    @cached_property
    def squares(self) -> Any:
        """The variances."""
        return self.std.multiply(self.std).tocsr() if sp.issparse(self.std) else np.square(self.std)

    def variances(self, U: Array) -> Array:
        """Return ``sum_j e_ij^2 u_j^2``."""
        return np.asarray(self.squares @ np.square(U).T)

    def times(self, u: Array) -> Array:
        """Return ``e_ij^2 u_j``."""
        product = self.squares.multiply(u).toarray() if sp.issparse(self.squares) else self.squares * u
        return np.asarray(product)

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``(sum_i t_i e_ij^2) u_j``."""
        return np.asarray(self.squares.T @ t) * u

    def between(self, u: Array, v: Array) -> Array:
        """Return ``sum_j e_ij^2 u_j v_j``."""
        return np.asarray(self.squares @ (u * v))

    def dense(self) -> Array:
        """Return the variances."""
        return np.asarray(self.squares.toarray() if sp.issparse(self.squares) else self.squares)

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i e_ij^2`` to the diagonal."""
        diagonal(out)[:] += self.squares.T @ t

    def roots(self, t: Array) -> Array:
        """Return ``sum_i t_i e_ij``."""
        return np.asarray(self.std.T @ t)

    @property
    def is_dense_diagonal(self) -> bool:
        """Whether the standard deviations are an array."""
        return not sp.issparse(self.std)

    def scaled(self, factor: float) -> "Diagonal":
        """Return all errors multiplied by a factor."""
        return Diagonal(self.std * factor)

    @property
    def deviations(self) -> Array:
        """The standard deviation of every value."""
        return super().deviations if sp.issparse(self.std) else self.std

    def take(self, index: Index | slice) -> "Diagonal":
        """Return those of some samples."""
        return Diagonal(self.std[index])

    def joined(self, parts: "Sequence[Diagonal]") -> "Diagonal":
        """Return those of all samples of some parts."""
        each = [part.std for part in parts]
        return Diagonal(sp.vstack(each, format="csr") if sp.issparse(self.std) else np.concatenate(each))

    def covariance(self, i: int) -> Array:
        """Return ``diag(e_i^2)``."""
        row = self.std[[i]].toarray()[0] if sp.issparse(self.std) else self.std[i]
        return np.diag(np.square(row))

    @property
    def is_independent(self) -> bool:
        """It is."""
        return True

    @property
    def n_causes(self) -> int:
        """One for each feature."""
        return int(self.std.shape[1])

    def moved(self, causes: Array) -> Array:
        """Return ``e_ij c_j``."""
        return np.asarray(self.std.multiply(causes).toarray() if sp.issparse(self.std) else self.std * causes)


@dataclass(frozen=True)
class Factored(Errors):
    """Covariances ``diag(std_i^2) + F_i F_i'``; a full one has as many columns in F as features."""

    std: Array
    factors: Array

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.factors)

    @property
    def columns(self) -> Array:
        """The columns of all factors one after the other, (n_samples * rank, n_features), as products read them.

        They lie so in memory where :func:`check_errors` made them.
        """
        n, d, rank = self.factors.shape
        return self.factors.transpose(0, 2, 1).reshape(n * rank, d)

    def variances(self, U: Array) -> Array:
        """Return ``sum_j e_ij^2 u_j^2 + ||F_i' u||^2``."""
        n, _, rank = self.factors.shape
        along = (self.columns @ U.T).reshape(n, rank, len(U))
        return np.asarray(np.square(self.std) @ np.square(U).T + np.einsum("irk,irk->ik", along, along))

    def times(self, u: Array) -> Array:
        """Return ``e_ij^2 u_j + F_i F_i' u``."""
        common = self._along(u)[:, np.newaxis] @ self.factors.transpose(0, 2, 1)
        return np.asarray(np.square(self.std) * u + common[:, 0])

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``sum_i t_i (e_ij^2 u_j + F_i F_i' u)``."""
        common = (self._along(u) * t[:, np.newaxis]).reshape(-1) @ self.columns
        return np.asarray((t @ np.square(self.std)) * u + common)

    def _along(self, u: Array) -> Array:
        n, _, rank = self.factors.shape
        return np.asarray((self.columns @ u).reshape(n, rank))

    def seen(self, *directions: Array) -> "Roots":
        """Return what directions see of the errors."""
        U, (n, _, rank) = np.array(directions), self.factors.shape
        common = np.moveaxis((self.columns @ U.T).reshape(n, rank, len(U)), 2, 0)
        if not self._has_own:
            return Roots(self, common)
        return Roots(self, np.concatenate([self.std * U[:, np.newaxis], common], axis=2))

    def back(self, along: Array) -> Array:
        """Return ``sum_i F_i c_i`` for the rows ``c_i`` of an array; those of the standard deviations come first."""
        rank = self.factors.shape[2]
        result = np.ascontiguousarray(along[:, along.shape[1] - rank :]).reshape(-1) @ self.columns
        if self._has_own:
            result += np.einsum("ij,ij->j", self.std, along[:, :-rank] if rank else along)
        return np.asarray(result)

    @cached_property
    def _has_own(self) -> bool:
        """Whether something is independent."""
        return bool(self.std.any())

    @property
    def work(self) -> tuple[float, float]:
        """In proportion to the columns of the factors."""
        rank = self.factors.shape[2]
        return 1.0 + rank, 2.0 + rank

    @property
    def is_large(self) -> bool:
        """It would."""
        return True

    @property
    def width(self) -> int:
        """As many as the factors have, and the standard deviations."""
        return int(self.factors.shape[1]) * (1 + int(self.factors.shape[2]))

    def between(self, u: Array, v: Array) -> Array:
        """Return ``sum_j e_ij^2 u_j v_j + (F_i' u).(F_i' v)``."""
        common = np.einsum("ir,ir->i", self._along(u), self._along(v))
        return np.asarray(np.square(self.std) @ (u * v) + common)

    def dense(self) -> Array:
        """Return all covariances."""
        rows = self.factors.transpose(0, 2, 1)
        result = self.factors @ rows
        np.einsum("ijj->ij", result)[:] += np.square(self.std)
        return np.asarray(result)

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum t_i (diag(e_i^2) + F_i F_i')``."""
        diagonal(out)[:] += t @ np.square(self.std)
        if np.any(t < 0):
            out += (self.columns * np.repeat(t, self.factors.shape[2])[:, np.newaxis]).T @ self.columns
            return
        flat = self.columns * np.repeat(np.sqrt(t), self.factors.shape[2])[:, np.newaxis]
        out += flat.T @ flat  # in half the time

    def roots(self, t: Array) -> Array:
        """Return ``sum t_i e_ij`` and beside it ``sum t_i F_i``."""
        _, d, rank = self.factors.shape
        total = t @ self.columns.reshape(len(t), rank * d)
        return np.column_stack([t @ self.std, total.reshape(rank, d).T])

    @staticmethod
    def length(v: Array, roots: Array, own: Array | float = 0.0) -> float:
        """Return the length of v in the sum of the roots, or in that of the standard deviations if it is shorter."""
        shortest, root = Errors.length(v, roots, own), roots[:, 1:]
        if root.shape[0] == root.shape[1] and np.linalg.cond(root) < 1 / ROUNDING:
            shortest = min(shortest, norm(np.asarray(np.linalg.solve(root, v), dtype=np.float64)))
        return shortest

    def scaled(self, factor: float) -> "Factored":
        """Return all errors multiplied by a factor."""
        return Factored(self.std * factor, self.factors * factor)

    def take(self, index: Index | slice) -> "Factored":
        """Return those of some samples."""
        return Factored(self.std[index], self.factors.transpose(0, 2, 1)[index].transpose(0, 2, 1))

    def joined(self, parts: "Sequence[Factored]") -> "Factored":
        """Return those of all samples of some parts."""
        rows = np.concatenate([part.factors.transpose(0, 2, 1) for part in parts])
        return Factored(np.concatenate([part.std for part in parts]), rows.transpose(0, 2, 1))

    def covariance(self, i: int) -> Array:
        """Return ``Sigma_i``."""
        return np.asarray(np.diag(np.square(self.std[i])) + self.factors[i] @ self.factors[i].T)

    @property
    def n_causes(self) -> int:
        """One for each column of the factors, and one for each feature if it has noise of its own."""
        return int(self.factors.shape[2]) + (self.std.shape[1] if self.std.any() else 0)

    def moved(self, causes: Array) -> Array:
        """Return ``F_i c`` and ``e_ij`` times what is left of the causes."""
        rank = self.factors.shape[2]
        common = np.einsum("ijr,r->ij" if causes.ndim == 1 else "ijr,ir->ij", self.factors, causes[..., :rank])
        own = causes[..., rank:]
        return np.asarray(common + self.std * own if own.shape[-1] else common)


@dataclass(frozen=True)
class Covariances(Errors):
    """Covariances as they were given: a product with one reads half of what its root takes, and a sum none.

    Parameters
    ----------
    matrices : array (n_samples, n_features, n_features)
    uppers : array of the same shape, or None: R with ``R' R`` the covariances, for proofs
    """

    matrices: Array
    uppers: Array | None = None

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.matrices)

    def variances(self, U: Array) -> Array:
        """Return ``u' Sigma_i u``, or raise if one of them is negative."""
        result = np.stack([self.times(u) @ u for u in U], axis=1)
        check_variances(result, np.abs(self.matrices).max(axis=(1, 2)) * np.square(U).sum())
        return np.asarray(np.maximum(result, 0.0))

    def seen(self, *directions: Array) -> "Products":
        """Return what directions see of the errors."""
        (n, d, _), U = self.matrices.shape, np.array(directions)
        return Products(U, np.moveaxis((self.matrices.reshape(n * d, d) @ U.T).reshape(n, d, len(U)), 2, 0))

    def times(self, u: Array) -> Array:
        """Return ``Sigma_i u``."""
        return np.asarray(self.matrices @ u)

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``sum t_i Sigma_i u``."""
        return np.asarray(t @ self.times(u))

    def between(self, u: Array, v: Array) -> Array:
        """Return ``u' Sigma_i v``."""
        return np.asarray(self.times(u) @ v)

    def dense(self) -> Array:
        """Return the covariances."""
        return self.matrices

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum t_i Sigma_i``."""
        n, d, _ = self.matrices.shape
        out += (t @ self.matrices.reshape(n, d * d)).reshape(d, d)

    def roots(self, t: Array) -> Array:
        """Return 0, as nothing is independent, and beside it ``sum t_i R_i'``."""
        n, d, _ = self.matrices.shape
        uppers = _roots(self.matrices)[0] if self.uppers is None else self.uppers
        return np.column_stack([np.zeros(d), (t @ uppers.reshape(n, d * d)).reshape(d, d).T])

    @staticmethod
    def length(v: Array, roots: Array, own: Array | float = 0.0) -> float:
        """Return the length of v in the sum of the roots."""
        return Factored.length(v, roots, own)

    @property
    def work(self) -> tuple[float, float]:
        """A product reads all covariances, and so does a Gram matrix, of which they are no factors."""
        return 1.0 + self.matrices.shape[1], 3.0

    @property
    def is_large(self) -> bool:
        """They are."""
        return True

    @property
    def width(self) -> int:
        """As many as the covariances have."""
        return int(self.matrices.shape[1]) ** 2

    def scaled(self, factor: float) -> "Covariances":
        """Return all errors multiplied by a factor."""
        return Covariances(self.matrices * factor**2, None if self.uppers is None else self.uppers * factor)

    def take(self, index: Index | slice) -> "Covariances":
        """Return those of some samples."""
        return Covariances(self.matrices[index], None if self.uppers is None else self.uppers[index])

    def joined(self, parts: "Sequence[Covariances]") -> "Covariances":
        """Return those of all samples of some parts."""
        uppers = [part.uppers for part in parts if part.uppers is not None]
        matrices = np.concatenate([part.matrices for part in parts])
        return Covariances(matrices, np.concatenate(uppers) if len(uppers) == len(parts) else None)

    def covariance(self, i: int) -> Array:
        """Return ``Sigma_i``."""
        return np.array(self.matrices[i])

    @property
    def n_causes(self) -> int:
        """As many as there are features."""
        return int(self.matrices.shape[1])

    def moved(self, causes: Array) -> Array:
        """Return ``R_i'`` times the causes."""
        uppers = _roots(self.matrices)[0] if self.uppers is None else self.uppers
        return np.asarray(np.einsum("irj,r->ij" if causes.ndim == 1 else "irj,ir->ij", uppers, causes))


@dataclass(frozen=True)
class Population:
    """What is known of a sample before it is measured: a Gaussian.

    Parameters
    ----------
    means, spreads : arrays of shape (n_features,)
        Means of the true values, and standard deviations of the measured ones.
    covariance : array of shape (n_features, n_features), default=None
        Of the true values; None stands for features that say nothing of each other, with these spreads.
    """

    means: Array
    spreads: Array
    covariance: Array | None = None

    @classmethod
    def of(
        cls, X: Any, X_err: Any = None, sample_weight: Array | None = None, *, gaps: bool | None = None
    ) -> "Population":
        """Return that of samples with error bars, in which infinite ones stand for what was not measured.

        ``gaps``, whether there are any (:func:`has_unmeasured`), saves a pass over the errors.
        """
        values = np.ascontiguousarray(X, dtype=np.float64)  # a sum depends on how its terms lie in memory
        weight = None if sample_weight is None else sample_weight / sample_weight.max()
        if not (has_unmeasured(X_err) if gaps is None else gaps):
            return cls._of_all(values, weight)
        known = ~unmeasured(X_err, values.shape) & np.ones(values.shape, dtype=bool)
        if weight is not None:
            known &= (weight > 0)[:, np.newaxis]
        if not known.any(axis=0).all():
            j = int(np.argmin(known.any(axis=0)))
            raise ValueError(f"X_err says that feature {j} was measured for no sample: leave it out")
        weights = known * (1.0 if weight is None else weight[:, np.newaxis])
        total = weights.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # where X is not finite, it is not either
            means = np.where(known, values * weights, 0.0).sum(axis=0) / total
            squares = np.where(known, np.square(values - means) * weights, 0.0).sum(axis=0) / total
            return cls(means, np.sqrt(squares))

    @classmethod
    def _of_all(cls, values: Array, weight: Array | None) -> "Population":
        """Return that of samples which were all measured, in pieces that stay in cache.

        Deviations are taken from the means of the first rows, so that nothing of note cancels.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            about = values[:PIECE].mean(axis=0)
            if weight is None:
                sums = _binding.column_sums(0, len(values), _binding.MatrixView(values), about).reshape(2, -1)
            else:
                sums = np.zeros((2, values.shape[1]))
                for first in range(0, len(values), PIECE):
                    apart, s = values[first : first + PIECE] - about, weight[first : first + PIECE]
                    sums += s @ apart, s @ np.square(apart)
            apart, squares = sums / (len(values) if weight is None else weight.sum())
            return cls(about + apart, np.sqrt(np.maximum(0.0, squares - np.square(apart))))

    def fill(self, X: Any, X_err: Any, *, correlated: bool = True) -> tuple[Any, Any]:
        """Return X and X_err with what was not measured replaced by what the measured values of the sample say of it.

        With the covariance ``T`` of the population, that of the errors ``S``, and the features ``o`` that were
        measured, ::

            G = T_mo (T_oo + S_oo)^-1     x_m = mu_m + G (x_o - mu_o)     Sigma_mm = T_mm - G T_om,  Sigma_mo = G S_oo

        Measured values and their errors stay as they are. As the errors of a sample are then correlated, standard
        deviations become :class:`LowRank`; unless ``correlated`` is false or they would take more than ``LARGEST``
        numbers, where the roots of the diagonal of ``Sigma_mm`` are taken alone.
        """
        if self.covariance is None:
            return self.fill_means(X, X_err)
        n, d = X.shape
        missing = unmeasured(X_err, X.shape)
        correlated = correlated and n * d * d <= LARGEST
        noise = _noise_of(X_err, missing, correlated=correlated)
        values = np.where(missing, self.means, X).astype(np.float64, copy=False)
        T = positive(self.covariance, units_of(self.means, self.spreads))
        gaps, step = np.flatnonzero(missing.any(axis=1)), max(1, CHUNK // (d * d))
        for first in range(0, len(gaps), step):
            rows = gaps[first : first + step]
            known, S = ~missing[rows], noise.covariances(rows)
            G, own = _given_rest(T, S, known)
            values[rows] += np.einsum("ijk,ik->ij", G, np.where(known, values[rows] - self.means, 0.0))
            if correlated:
                crossed = G @ S
                noise.replace(rows, S + crossed + crossed.transpose(0, 2, 1) + own)
            else:
                noise.widen(rows, np.sqrt(np.maximum(np.einsum("ijj->ij", own), 0.0)))
        return like(X, values), noise.result

    def fill_means(self, X: Any, X_err: Any) -> tuple[Any, Any]:
        """Return X and X_err with mean and spread of a feature where it was not measured, whatever the others are."""
        missing = unmeasured(X_err, X.shape)
        noise = _noise_of(X_err, missing)
        noise.widen(slice(None), np.where(missing, self.spreads, 0.0))
        return like(X, np.where(missing, self.means, X)), noise.result


def _given_rest(T: Array, S: Array, known: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return G, and the covariance of what was not measured given the rest (:meth:`Population.fill`); else 0."""
    unknown, seen = ~known, T * known[:, np.newaxis, :]
    C = seen * known[:, :, np.newaxis] + S
    np.einsum("ijj->ij", C)[:] += unknown
    G = np.linalg.solve(C, seen.transpose(0, 2, 1)).transpose(0, 2, 1) * unknown[:, :, np.newaxis]
    own = (T - G @ seen.transpose(0, 2, 1)) * (unknown[:, :, np.newaxis] & unknown[:, np.newaxis, :])
    return np.asarray(G), own


class _Noise(Protocol):
    """Error bars with gaps, in which they are 0 until they are filled."""

    def covariances(self, rows: Index) -> Array:
        """Return those of some samples."""

    def widen(self, rows: Index | slice, deviations: Array) -> None:
        """Give gaps independent errors."""

    def replace(self, rows: Index, covariances: Array) -> None:
        """Give samples other covariances."""

    @property
    def result(self) -> Any:
        """X_err in its own form, or in one that has what was filled."""


@dataclass
class _FactoredNoise:
    """Standard deviations, factors of what is correlated if there are any, and roots of what is replaced."""

    std: Array
    factors: Array | None
    replaced: Array | None

    def covariances(self, rows: Index) -> Array:
        """Return ``diag(std_i^2) + F_i F_i'``."""
        d = self.std.shape[1]
        result = np.zeros((len(rows), d, d)) if self.factors is None else _squares(self.factors[rows])
        np.einsum("ijj->ij", result)[:] += np.square(self.std[rows])
        return result

    def widen(self, rows: Index | slice, deviations: Array) -> None:
        """Add to the standard deviations, which are 0 at gaps."""
        self.std[rows] += deviations

    def replace(self, rows: Index, covariances: Array) -> None:
        """Keep roots in place of everything else."""
        assert self.replaced is not None
        self.replaced[rows], self.std[rows] = any_roots(covariances), 0.0
        if self.factors is not None:
            self.factors[rows] = 0.0

    @property
    def result(self) -> Any:
        """Standard deviations, or LowRank."""
        parts = [part for part in (self.replaced, self.factors) if part is not None]
        return LowRank(np.concatenate(parts, axis=2), self.std) if parts else self.std


@dataclass
class _FullNoise:
    """A covariance for each sample: what is filled has its place in it."""

    result: Array

    def covariances(self, rows: Index) -> Array:
        """Return them as they are."""
        return self.result[rows]

    def widen(self, rows: Index | slice, deviations: Array) -> None:
        """Add to the diagonals."""
        np.einsum("ijj->ij", self.result)[rows] += np.square(deviations)

    def replace(self, rows: Index, covariances: Array) -> None:
        """Put them in place."""
        self.result[rows] = covariances


def _squares(factors: Array) -> Array:
    return np.asarray(factors @ factors.transpose(0, 2, 1))


def _noise_of(X_err: Any, missing: NDArray[np.bool_], *, correlated: bool = False) -> _Noise:
    """Return error bars, checked, a copy that may be filled; ``correlated``: with covariances of samples."""
    replaced = np.zeros((*missing.shape, missing.shape[1])) if correlated else None
    if isinstance(X_err, LowRank):
        factors = as_numbers(X_err.factors, "X_err.factors") * ~missing[:, :, np.newaxis]
        std = np.zeros(missing.shape) if X_err.std is None else as_numbers(X_err.std, "X_err.std")
        std = np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], missing.shape)
        return _FactoredNoise(_known(np.where(missing, 0.0, std), "X_err.std"), factors, replaced)
    errors = as_numbers(X_err, "X_err")
    if errors.ndim == 3:
        covariances = np.where(missing[:, :, np.newaxis] | missing[:, np.newaxis, :], 0.0, errors)
        _check_finite(covariances, "X_err", map)
        return _FullNoise(covariances)
    std = np.where(missing, 0.0, errors if errors.ndim == 2 else errors[:, np.newaxis])
    return _FactoredNoise(_known(std, "X_err"), None, replaced)


def _known(std: Array, name: str) -> Array:
    """Return standard deviations, checked."""
    _check_sign(_check_finite(std, name, map), name)
    return std


def any_roots(covariances: Array) -> Array:
    """Return roots of covariances: Cholesky factors, or symmetric ones where one of them is singular."""
    try:
        return np.asarray(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:
        return _roots(covariances)[0].transpose(0, 2, 1)


def units_of(means: Array, spreads: Array) -> Array:
    """Return the spreads; of features that vary by rounding at most the mean of the others, a unit of the data."""
    vary = spreads > 64 * EPS * np.abs(means)
    return np.where(vary, spreads, spreads[vary].mean() if vary.any() else 1.0)


def positive(covariance: Array, units: Array) -> Array:
    """Return a covariance that was estimated, with variances of at least ``LEAST`` of the units in all directions."""
    values, axes = np.linalg.eigh(covariance / np.multiply.outer(units, units))
    return np.asarray((axes * np.maximum(values, LEAST)) @ axes.T * np.multiply.outer(units, units))


def mean_spread(X: Any) -> float:
    """Return the root of the mean variance of the features, or 1 if they do not vary."""
    if sp.issparse(X):
        variances = mean_variance_axis(sp.csr_matrix(X, dtype=np.float64), axis=0)[1]
    else:
        variances = np.square(Population.of(np.asarray(X, dtype=np.float64), None).spreads)
    return float(np.sqrt(np.mean(variances))) or 1.0


def like(X: Any, values: Array) -> Any:
    """Return values as a DataFrame with the names of X, if X is one, and in its precision if it is an array."""
    if hasattr(X, "iloc"):
        return type(X)(values, index=X.index if len(X) == len(values) else None, columns=X.columns)
    return values.astype(X.dtype, copy=False) if getattr(X, "dtype", None) == np.float32 else values


def has_unmeasured(X_err: Any) -> bool:
    """Return whether there are infinite errors in a dense array of them."""
    if X_err is None or sp.issparse(X_err):
        return False
    survey_limits(X_err)
    if isinstance(X_err, LowRank):
        return X_err.std is not None and bool(np.isposinf(np.asarray(X_err.std, dtype=np.float64)).any())
    try:
        errors = np.asarray(X_err, dtype=np.float64)
    except (TypeError, ValueError):  # check_errors will say what is wrong with it
        return False
    return finite_least(errors) is None and bool(np.isinf(errors).any())


def survey_limits(X_err: Any) -> None:
    """Raise if there are limits where nothing is known of a population."""
    if isinstance(X_err, Limits):
        raise ValueError(
            "X_err holds limits, which say nothing without a population: gaussguru.population.Deconvolve turns them "
            "into values with errors"
        )


def unmeasured(X_err: Any, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which values of X have an infinite error."""
    if isinstance(X_err, LowRank):
        X_err = np.zeros(shape) if X_err.std is None else X_err.std
    errors = np.asarray(X_err, dtype=np.float64)
    if errors.ndim == 3:
        errors = np.einsum("ijj->ij", errors)
    missing = np.isposinf(errors)
    if missing.shape[:1] != shape[:1] or missing.ndim > 2 or (missing.ndim == 2 and missing.shape != shape):
        raise ValueError(f"X_err of shape {np.shape(X_err)} does not fit X of shape {shape}")
    return np.broadcast_to(missing if missing.ndim == 2 else missing[:, np.newaxis], shape)


def check_errors(X_err: Any, X: Any, map: Any = map) -> Errors:
    """Return error bars, checked against the samples that they belong to.

    Infinite errors must have been replaced before (:class:`Population`). ``map`` is where blocks of rows are read.
    """
    n, d = (int(size) for size in X.shape)
    expected = (
        f"X_err must hold standard deviations of shape ({n},) or ({n}, {d}), or covariances of shape ({n}, {d}, {d}), "
        f"for X of shape ({n}, {d})"
    )
    survey_limits(X_err)
    if isinstance(X_err, LowRank):
        factors = as_numbers(X_err.factors, "X_err.factors")
        _check_finite(factors, "X_err.factors", map)
        if factors.ndim != 3 or factors.shape[:2] != (n, d):
            raise ValueError(f"X_err.factors must have shape ({n}, {d}, rank); got {factors.shape}")
        std = np.zeros((n, d)) if X_err.std is None else as_numbers(X_err.std, "X_err.std")
        if std.shape not in ((n,), (n, d)):
            raise ValueError(f"X_err.std must have shape ({n},) or ({n}, {d}); got {std.shape}")
        _check_sign(_check_finite(std, "X_err.std", map), "X_err.std")
        factors = np.ascontiguousarray(factors.transpose(0, 2, 1)).transpose(0, 2, 1)
        return Factored(np.array(np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], (n, d))), factors)
    if sp.issparse(X_err):
        errors = sp.csr_matrix(X_err, dtype=np.float64)
        if errors.shape != (n, d):
            raise ValueError(f"{expected}; got a sparse array of shape {errors.shape}")
        _check_sign(_check_finite(errors.data, "X_err", map), "X_err")
        return Diagonal(errors)
    errors = as_numbers(X_err, "X_err")
    least = _check_finite(errors, "X_err", map)
    if errors.shape == (n,):
        _check_sign(least, "X_err")
        return PerSample(errors, d)
    if errors.shape == (n, d):
        _check_sign(least, "X_err")
        return Diagonal(np.ascontiguousarray(errors))
    if errors.shape == (n, d, d):
        uppers, definite = _roots(errors, map)
        return Covariances(errors, uppers) if definite else Factored(np.zeros((n, d)), uppers.transpose(0, 2, 1))
    raise ValueError(f"{expected}; got shape {errors.shape}")


def check_products(X_err: Any, X: Any) -> Errors:
    """Return error bars of which only variances and products are asked for: :func:`check_errors` without roots.

    Covariances must be symmetric; that they are positive semidefinite is checked where it matters, by the variances.
    """
    n, d = (int(size) for size in X.shape)
    if isinstance(X_err, LowRank) or sp.issparse(X_err) or np.shape(X_err) != (n, d, d):
        return check_errors(X_err, X)
    matrices = as_numbers(X_err, "X_err")
    _check_finite(matrices, "X_err", map)
    _check_symmetric(matrices)
    return Covariances(matrices)


def as_numbers(values: Any, name: str) -> Array:
    """Return values as an array of float64, finite or not."""
    try:
        array = check_array(values, ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error
    return np.asarray(array)


def _firsts(values: Any) -> range:
    """Return where blocks of rows begin."""
    return range(0, len(values), max(1, CHUNK // max(1, int(np.prod(values.shape[1:])))))


def finite_least(values: Array, map: Any = map) -> float | None:
    """Return the least of values if all are finite, from one look; blocks of rows are mapped."""
    firsts = _firsts(values)

    def look(first: int) -> tuple[bool, float]:
        block = np.ascontiguousarray(values[first : first + firsts.step], dtype=np.float64).reshape(-1)
        total, least = _binding.survey(block)
        return math.isfinite(total) or bool(np.isfinite(block).all()), least

    parts = list(map(look, firsts))
    return min((least for _, least in parts), default=np.inf) if all(finite for finite, _ in parts) else None


def _check_finite(values: Array, name: str, map: Any) -> float:
    """Return the least of values, all of them finite."""
    least = finite_least(values, map)
    if least is not None:
        return least
    if np.isnan(values).any():
        raise ValueError(
            f"{name} has NaN: an error bar must be a number; give infinity for what was not measured, 0 for what is "
            "exact"
        )
    raise ValueError(f"{name} has infinity where only a finite number has a meaning")


def _check_sign(least: float, name: str) -> None:
    if least < 0:
        raise ValueError(f"{name} must hold standard deviations, none below 0; got {least:g}")


def _roots(covariances: Array, map: Any = map) -> tuple[Array, bool]:
    """Return R with ``R' R`` the covariances, and whether all are far from singular; blocks of rows are mapped.

    R are Cholesky factors or, in blocks with singular covariances, symmetric. What is no covariance raises.
    """
    firsts = _firsts(covariances)
    roots = np.empty(covariances.shape)

    def fill(first: int) -> bool:
        some = covariances[first : first + firsts.step]
        largest = _check_symmetric(some, first)
        try:  # ten times as fast as eigenvalues, which tell what is wrong, or singular
            lower = np.linalg.cholesky(some)
        except np.linalg.LinAlgError:
            values, axes = np.linalg.eigh(some)
        else:
            roots[first : first + firsts.step] = lower.transpose(0, 2, 1)
            pivots = np.einsum("ijj->ij", lower)
            return bool(np.all(pivots.min(axis=1) > DEFINITE * pivots.max(axis=1)))
        least = values[:, 0] / largest
        if least.min(initial=0.0) < -ROUNDING:
            i = int(np.argmin(least))
            raise ValueError(
                "X_err must hold positive semidefinite covariances; that of sample "
                f"{first + i} has the eigenvalue {values[i, 0]:.3g}"
            )
        axes *= np.sqrt(np.sqrt(np.maximum(values, 0.0)))[:, np.newaxis, :]
        np.matmul(axes, axes.transpose(0, 2, 1), out=roots[first : first + firsts.step])
        return False

    return roots, all(list(map(fill, firsts)))


def check_causes(X_err: Any, X: Any) -> Errors:
    """Return error bars, checked, whose :meth:`Errors.moved` of a sample does not depend on other samples.

    Roots of covariances are symmetric, of singular ones and of others: :func:`check_errors` decides for many together.
    """
    errors = check_errors(X_err, X)
    if isinstance(X_err, LowRank) or errors.is_independent:
        return errors
    values, axes = np.linalg.eigh(as_numbers(X_err, "X_err"))
    axes *= np.sqrt(np.sqrt(np.maximum(values, 0.0)))[:, np.newaxis, :]
    return check_errors(LowRank(axes @ axes.transpose(0, 2, 1)), X)


def check_positive(covariances: Array, first: int = 0) -> None:
    """Raise if one of some covariances has a negative eigenvalue; ``first`` is the number of the first one."""
    if covariances.ndim < 3:
        return
    least = np.linalg.eigvalsh(covariances)[:, 0]
    wrong = np.flatnonzero(least < -ROUNDING * np.abs(covariances).max(axis=(1, 2)))
    if len(wrong):
        raise ValueError(
            "X_err must hold positive semidefinite covariances; that of sample "
            f"{first + wrong[0]} has the eigenvalue {least[wrong[0]]:.3g}"
        )


def check_variances(variances: Array, sizes: Array, first: int = 0) -> None:
    """Raise if covariances make variances, of shape (n_samples, n_directions), that are negative beside their sizes."""
    least = variances.min(axis=1, initial=0.0)
    wrong = np.flatnonzero(least < -ROUNDING * sizes)
    if len(wrong):
        raise ValueError(
            "X_err must hold positive semidefinite covariances; that of sample "
            f"{first + wrong[0]} makes the variance {least[wrong[0]]:.3g}"
        )


def _check_symmetric(covariances: Array, first: int = 0) -> Array:
    """Return the largest entries of matrices, all of them symmetric; ``first`` is the number of the first one."""
    largest = np.maximum(np.abs(covariances).max(axis=(1, 2)), np.finfo(np.float64).tiny)
    apart = np.abs(covariances - covariances.transpose(0, 2, 1)).max(axis=(1, 2)) / largest
    if apart.max(initial=0.0) > ROUNDING:
        i = first + int(np.argmax(apart))
        raise ValueError(f"X_err must hold symmetric covariances; that of sample {i} differs from its transpose")
    return np.asarray(largest)
