"""Forms other than arrays in which users give error bars, and posteriors that are mixtures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from gaussguru._errors.arrays import deviations, error_numbers, in_public_module
from gaussguru._utils.frames import (
    as_numbers,
    check_same_names,
    is_frame,
    like,
    numbers_beside_text,
    take_rows,
    with_numbers,
)
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import ErrorBars, Values


class RowsOfArrays:
    """The rows of arrays that a dataclass holds; its main array is never None."""

    _main: ClassVar[str]

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All arrays; in parsed errors none is None."""
        return tuple(vars(self).values())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the main array; scikit-learn needs it to take the rows of a fold by ``X_err[rows]``."""
        return np.shape(getattr(self, self._main))

    def __len__(self) -> int:
        return len(getattr(self, self._main))

    def __getitem__(self, index: object) -> Self:
        return type(self)(*(None if part is None else take_rows(part, index) for part in self.arrays))


@in_public_module
@dataclass(frozen=True)
class LowRank(RowsOfArrays):
    """Correlated error bars with few common causes: covariances ``diag(std_i^2) + factors_i factors_i'``.

    Parameters
    ----------
    factors : array of shape (n_samples, n_features, rank)
        Effect of each common cause on the features: the change for one standard deviation of the cause.
    std : array of shape (n_samples, n_features) or (n_samples,), default=None
        Standard deviations of the independent part of the noise. None is 0.

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

    _main: ClassVar[str] = "factors"

    factors: Any
    std: Any = None


@in_public_module
@dataclass(frozen=True)
class Asymmetric(RowsOfArrays):
    """Two-sided error bars, ``x -lower +upper``: a split normal distribution.

    The true value is taken to follow two half Gaussians with these standard deviations that meet at x. The library
    uses the mean and the variance of this distribution::

        mean x + sqrt(2/pi) (upper - lower)        variance (1 - 2/pi) (upper - lower)^2 + upper lower

    Parameters
    ----------
    lower, upper : array-like of shape (n_samples, n_features) or (n_samples,)
        Standard deviations below and above the value. Infinity in either means that it was not measured.

    Examples
    --------
    >>> from gaussguru.errors import Asymmetric
    >>> X, X_err = Asymmetric(lower=[[0.4]], upper=[[0.9]]).symmetric([[12.3]])  # 12.3 +0.9 -0.4
    >>> print(f"{X.item():.2f} ± {X_err.item():.2f}")
    12.70 ± 0.67
    """

    _main: ClassVar[str] = "lower"

    lower: Any
    upper: Any

    def symmetric(self, X: Values) -> tuple[Values, ErrorBars]:
        """Return values and standard deviations with the same means and variances.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        X, X_err : in the form of X
        """
        values = numbers_beside_text(X)
        n, d = values.shape
        gaps, sides = np.isnan(values), []
        for name, given in (("lower", self.lower), ("upper", self.upper)):
            check_same_names(X, given, f"{name} errors")
            side = error_numbers(given, f"the {name} side of X_err")
            if side.shape not in ((n,), (n, d)) or np.shape(self.lower) != np.shape(self.upper):
                raise ValueError(
                    f"both sides of X_err must have shape ({n},) or ({n}, {d}), for X of shape ({n}, {d}); got "
                    f"{np.shape(self.lower)} and {np.shape(self.upper)}"
                )
            side = deviations(side, f"the {name} side of X_err", gaps)
            sides.append(side if side.ndim == 2 else np.repeat(side[:, np.newaxis], d, axis=1))
        lost = gaps | np.isinf(sides[0]) | np.isinf(sides[1])
        lower, upper = (np.where(lost, 0.0, side) for side in sides)
        shift = np.sqrt(2 / np.pi) * (upper - lower)
        variances = (1 - 2 / np.pi) * np.square(upper - lower) + upper * lower
        std = np.where(lost, np.inf, np.sqrt(variances))
        return with_numbers(X, values + shift), like(X, std) if is_frame(X) else std


@in_public_module
@dataclass(frozen=True)
class Limits(RowsOfArrays):
    """Error bars for data in which some values are upper or lower limits, such as non-detections.

    ``limits`` is -1 where the value in X is an upper limit (the true value is below it), +1 where it is a lower limit,
    and 0 where it is a measurement. The likelihood of an upper limit u with error r is ``Phi((u - truth) / r)``; r = 0
    is a sharp limit. :class:`gaussguru.population.Deconvolve` and :class:`gaussguru.ErrorBarClassifier` take
    limits; other classifiers take the posteriors that ``Deconvolve`` makes of them.

    Parameters
    ----------
    err : array-like of shape (n_samples, n_features) or (n_samples,), or Asymmetric
        Standard deviations of the measurements, and the errors r of the limits.
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

    _main: ClassVar[str] = "limits"

    err: ErrorBars
    limits: Any

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


def with_more(X_err: ErrorBars, shape: tuple[int, int], n_more: int, error: float) -> ErrorBars:
    """Return parsed error bars of X (of ``shape``) with ``n_more`` further features, all with the same ``error``."""
    more = (0, n_more)
    if isinstance(X_err, LowRank):
        std = np.pad(X_err.std, ((0, 0), more), constant_values=error)
        return LowRank(np.pad(X_err.factors, ((0, 0), more, (0, 0))), std)
    if isinstance(X_err, Limits):
        return Limits(np.pad(X_err.err, ((0, 0), more), constant_values=error), np.pad(X_err.limits, ((0, 0), more)))
    errors = X_err.toarray() if sp.issparse(X_err) else X_err
    if errors.ndim < 3:
        errors = np.broadcast_to(errors if errors.ndim == 2 else errors[:, np.newaxis], shape)
        return np.pad(errors, ((0, 0), more), constant_values=error)
    padded = np.pad(errors, ((0, 0), more, more))
    np.einsum("ijj->ij", padded)[:, shape[1] :] = error**2
    return padded


class _Population(Protocol):
    """Methods of a population that :class:`Components` needs."""

    @property
    def n_components(self) -> int: ...

    def shares(self, rows: Any) -> Array: ...

    def scores(self, rows: Any, coef: Array, intercept: Array) -> tuple[Array, Array]: ...


@in_public_module
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

    Examples
    --------
    >>> from gaussguru.datasets import make_measured
    >>> from gaussguru.population import Deconvolve
    >>> data = make_measured(200, 2, random_state=0)
    >>> posterior = Deconvolve(2).fit(data.X, data.X_err).transform(data.X, data.X_err)
    >>> posterior.components.n_components
    2
    """

    rows: Any
    population: _Population
    exact: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: object) -> "Components":
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

    def scores(self, coef: ArrayLike, intercept: ArrayLike = 0.0) -> tuple[Array, Array]:
        """Return means and covariances of linear scores in each component.

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


@dataclass(frozen=True)
class AffineComponents:
    """Mixtures of the truth, as :class:`gaussguru.errors.Components`, after the map ``x -> offset + A' x``."""

    inner: Any
    matrix: Array
    offset: Array

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: object) -> "AffineComponents":
        return AffineComponents(self.inner[index], self.matrix, self.offset)

    @property
    def n_components(self) -> int:
        """The number of components."""
        return int(self.inner.n_components)

    @property
    def weights(self) -> Array:
        """The probabilities of the components."""
        return np.asarray(self.inner.weights)

    def scores(self, coef: ArrayLike, intercept: ArrayLike = 0.0) -> tuple[Array, Array]:
        """Return means and covariances of linear scores, component by component."""
        W = np.atleast_2d(np.asarray(coef, dtype=np.float64))
        scores: tuple[Array, Array] = self.inner.scores(W @ self.matrix.T, W @ self.offset + np.asarray(intercept))
        return scores
