"""Error bars: the noise covariance ``Sigma_i`` of every sample, in the forms that problems compute with.

Problems use them only through

::

    variances(U)   u' Sigma_i u     for every sample and every row u of U
    times(u)       Sigma_i u        for every sample
    pull(t, u)     sum_i t_i Sigma_i u
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gaussguru._errors.arrays import ROUNDING
from gaussguru._utils.linalg import Array, Index, norm


class Errors(ABC):
    """Noise covariances ``Sigma_i`` of n samples, checked."""

    # Whether the noise of different features is known to be independent.
    is_independent: ClassVar[bool] = False
    # Whether a copy sorted by class would take much of the time of a product.
    is_large: ClassVar[bool] = False

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

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``sum_i t_i Sigma_i u``."""
        return self.seen(u).pull(t)

    def between(self, u: Array, v: Array) -> Array:
        """Return ``u' Sigma_i v`` for every sample."""
        return self.seen(u, v).between(0, 1)

    @abstractmethod
    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i Sigma_i`` to a square array."""

    @abstractmethod
    def roots(self, t: Array) -> Array:
        """Return ``sum_i t_i F_i`` for roots ``F_i F_i' = Sigma_i``, a row per feature; a vector if independent."""

    def dense(self) -> Array:
        """Return variances of shape (n_samples, n_features) if errors are independent, else all covariances."""
        raise NotImplementedError

    def seen(self, *directions: Array) -> "ByErrors | Roots | Products":
        """Return the errors along some directions u, numbered in their order."""
        return ByErrors(self, directions)

    def compact(self) -> "Errors":
        """Return the same errors in the form that is fastest to compute with."""
        return self

    @property
    def groups(self) -> "list[tuple[Index | None, Errors]]":
        """Pairs of row numbers (None: all) and their errors, each pair in one form.

        Standard deviations have a row for every sample, also of other groups: compiled loops read rows by number.
        """
        return [(None, self)]

    def rooted(self, independent: Array) -> Array:
        """Return ``sum_i t_i e_ij`` of independent errors, (n_features,), in the shape of :meth:`roots`."""
        return independent

    @property
    def work(self) -> tuple[float, float]:
        """Cost of a Hessian product and of a Gram matrix, relative to samples without errors."""
        return 1.0, 1.0

    @property
    def width(self) -> int:
        """Numbers stored per sample."""
        return 0

    @property
    def least_rows(self) -> int:
        """Least number of samples per block, if a block has work that does not depend on their number."""
        return 0

    @property
    def is_dense_diagonal(self) -> bool:
        """Whether ``std`` is an array of independent standard deviations, as compiled loops read them."""
        return False

    @abstractmethod
    def scaled(self, factor: float) -> "Errors":
        """Return all errors multiplied by a factor."""

    @property
    def deviations(self) -> Array:
        """Independent standard deviations, dense, of shape (n_samples, n_features)."""
        raise ValueError("X_err must be dense standard deviations with solver='sgd'; use solver='newton' for others")

    @staticmethod
    def length(v: Array, roots: Array, isotropic: Array | float = 0.0) -> float:
        """Return an upper bound of the least c with ``u . v <= c sum_i t_i sqrt(u' Sigma_i u + ||n u||^2)`` for all u.

        The sum of norms on the right is at least the norm of the sum, in which the roots add up: the length of v in the
        sum of all roots or, if that is nearly singular, in that of the standard deviations alone.

        Parameters
        ----------
        v : array (n_features,)
        roots : as :meth:`roots` returns them; the first of several columns holds independent standard deviations
        isotropic : ``n sum_i t_i``
        """
        radii = np.hypot(roots if roots.ndim == 1 else roots[:, 0], isotropic)
        used, length = radii > 0, np.inf
        if not v[~used].any():
            with np.errstate(over="ignore"):  # next to no noise: an infinite length
                length = norm(v[used] / radii[used])
        if roots.ndim == 1 or np.count_nonzero(used) + roots.shape[1] <= len(v):
            return length
        root = np.vstack([np.diag(radii)[used], roots[:, 1:].T])
        sizes = np.sqrt(np.square(root).sum(axis=0))
        if not sizes.all():
            return length
        # In units of the rows of the root: v = R' Q' a has its shortest solution a = Q R'^-1 v.
        upper: Any = np.linalg.qr(root / sizes, mode="r")
        if np.linalg.cond(upper) >= 1 / ROUNDING:
            return length
        return min(length, norm(np.asarray(np.linalg.solve(upper.T, v / sizes), dtype=np.float64)))

    @abstractmethod
    def take(self, index: Index | slice) -> "Errors":
        """Return the errors of some samples."""

    def joined(self, parts: "Sequence[Any]") -> "Errors":
        """Return the errors of all samples of several parts, including this one."""
        raise NotImplementedError

    def covariance(self, i: int) -> Array:
        """Return ``Sigma_i``."""
        covariance = self.take(slice(i, i + 1)).dense()[0]
        return np.diag(covariance) if covariance.ndim == 1 else covariance

    @property
    def n_causes(self) -> int:
        """Number of independent standard normal variables that make the noise of a sample."""
        raise NotImplementedError

    def moved(self, causes: Array) -> Array:
        """Return the noise ``L_i c_i`` with ``L_i L_i' = Sigma_i``, for ``causes`` of shape (n_samples, n_causes).

        A vector (n_causes,) is used for all samples.
        """
        raise NotImplementedError

    def along(self, U: Array) -> Array:
        """Return ``U L_i`` with ``L_i L_i' = Sigma_i``, of shape (n_samples, len(U), number of columns of L_i)."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator) -> Array:
        """Return one draw of the noise for every sample, of shape (n_samples, n_features)."""
        return self.moved(rng.standard_normal((self.n_samples, self.n_causes)))


@dataclass(frozen=True)
class ByErrors:
    """Errors along some directions, each result computed when it is asked for."""

    errors: Errors
    directions: tuple[Array, ...]

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""
        return self.errors.between(self.directions[i], self.directions[j])

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""
        parts = [self.errors.pull(t, u) for t, u in zip(weights, self.directions, strict=True)]
        return np.asarray(sum(parts[1:], start=parts[0]))


@dataclass(frozen=True)
class Roots:
    """Errors along some directions from ``along``, all ``F_i' u``, of shape (n_directions, n_samples, rank).

    ``back`` returns ``sum_i F_i c_i`` for the rows ``c_i`` of an array.
    """

    back: Callable[[Array], Array]
    along: Array

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""
        return np.asarray(np.einsum("ij,ij->i", self.along[i], self.along[j]))

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""
        return self.back(np.asarray(sum(t[:, np.newaxis] * a for t, a in zip(weights, self.along, strict=True))))


@dataclass(frozen=True)
class Products:
    """Errors along some directions from ``times``, ``Sigma_i u`` of shape (n_directions, n_samples, n_features)."""

    directions: Array
    times: Array

    def between(self, i: int, j: int) -> Array:
        """Return ``u_i' Sigma u_j`` of every sample."""
        return np.asarray(self.times[i] @ self.directions[j])

    def pull(self, *weights: Array) -> Array:
        """Return ``sum t_k Sigma u_k``, over samples and directions."""
        return np.asarray(sum(t @ product for t, product in zip(weights, self.times, strict=True)))
