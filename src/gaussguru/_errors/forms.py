"""Error bars: the noise covariance ``Sigma_i`` of every sample, in any form.

The rest of the library uses it only through

::

    variances(U)   u' Sigma_i u     for every sample and every row u of U
    times(u)       Sigma_i u        for every sample
    pull(t, u)     sum_i t_i Sigma_i u
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.arrays import ROUNDING, roots_of
from gaussguru._linalg import Array, Index, diagonal, norm


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

    def compact(self) -> "Errors":
        """Return the same errors in the form that a problem computes with in the least time."""
        return self

    @property
    def groups(self) -> "list[tuple[Index | None, Errors]]":
        """The forms of which the errors are made: numbers of samples, None for all, and their errors.

        Standard deviations have a row for every sample, also of other groups: compiled loops read rows by number.
        """
        return [(None, self)]

    def rooted(self, independent: Array) -> Array:
        """Return ``sum_i t_i e_ij`` of independent errors, (n_features,), in the shape of :meth:`roots`."""
        return independent

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
        if not radii.all():
            if v[radii == 0].any():
                return np.inf
            v, radii = v[radii > 0], radii[radii > 0]
        with np.errstate(over="ignore"):  # no room at all is a length that is infinite
            return norm(v / radii)

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

    def along(self, U: Array) -> Array:
        """Return ``U L_i`` with ``L_i L_i' = Sigma_i``, of shape (n_samples, len(U), number of columns of L_i)."""
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

    def along(self, U: Array) -> Array:
        """Return ``e_i U``."""
        return np.asarray(self.std[:, np.newaxis, np.newaxis] * U)


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

    def along(self, U: Array) -> Array:
        """Return ``u_j e_ij``; of CSR errors only the columns of features that have one."""
        std = self.std
        if sp.issparse(std):
            used = np.unique(std.indices)
            std, U = std[:, used].toarray(), U[:, used]
        return np.asarray(std[:, np.newaxis] * U)


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

    def compact(self) -> Errors:
        """Return samples whose factors are 0 as standard deviations, and factors that are mostly 0 as sparse ones.

        Such factors stand for values that were not measured (:meth:`gaussguru.errors.Population.fill`).
        """
        correlated = np.flatnonzero(self.factors.any(axis=(1, 2)))
        if not len(correlated):
            return Diagonal(np.ascontiguousarray(self.std))
        dense = self.take(correlated)
        sparse = None if dense._has_own else SparseFactors.of(dense)
        errors = dense if sparse is None or 2 * sparse.n_stored > dense.factors.size else sparse
        if len(correlated) == self.n_samples:
            return errors
        std = np.array(self.std)
        std[correlated] = 0.0
        return Combined(std, correlated, errors)

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

    def along(self, U: Array) -> Array:
        """Return ``e_ij u_j``, if something is independent, and beside it ``U F_i``."""
        return np.moveaxis(self.seen(*U).along, 0, 1)


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

    @property
    def _uppers(self) -> Array:
        return roots_of(self.matrices)[0] if self.uppers is None else self.uppers

    def variances(self, U: Array) -> Array:
        """Return ``u' Sigma_i u``."""
        return np.asarray(np.maximum(np.stack([self.times(u) @ u for u in U], axis=1), 0.0))

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
        return np.column_stack([np.zeros(d), (t @ self._uppers.reshape(n, d * d)).reshape(d, d).T])

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
        return np.asarray(np.einsum("irj,r->ij" if causes.ndim == 1 else "irj,ir->ij", self._uppers, causes))

    def along(self, U: Array) -> Array:
        """Return ``U R_i'``."""
        return np.asarray(U @ self._uppers.transpose(0, 2, 1))


@dataclass(frozen=True)
class Stacked:
    """Sparse matrices of one shape (height, width), one for each sample.

    Parameters
    ----------
    tall : CSR array (n_samples * height, width): one matrix below the other
    wide : CSR array (n_samples, height * width): the same numbers, a row for each matrix
    """

    tall: Any
    wide: Any

    @classmethod
    def of(cls, matrices: Array) -> "Stacked":
        """Return the matrices of an array (n_samples, height, width)."""
        n, height, width = matrices.shape
        return cls(sp.csr_array(matrices.reshape(n * height, width)), sp.csr_array(matrices.reshape(n, height * width)))

    @property
    def height(self) -> int:
        """The number of rows of a matrix."""
        return int(self.wide.shape[1]) // int(self.tall.shape[1])

    def times(self, U: Array) -> Array:
        """Return ``A_i u`` for every row u of U, of shape (len(U), n_samples, height)."""
        return np.asarray((self.tall @ U.T).T).reshape(len(U), self.wide.shape[0], self.height)

    def total(self, t: Array) -> Array:
        """Return ``sum_i t_i A_i``."""
        return np.asarray(self._wide_transposed @ t).reshape(self.height, self.tall.shape[1])

    def back(self, along: Array) -> Array:
        """Return ``sum_i A_i' c_i`` for the rows ``c_i`` of an array."""
        return np.asarray(self._tall_transposed @ along.reshape(-1))

    @cached_property
    def _wide_transposed(self) -> Any:  # views of the same numbers; to make them takes as long as a product
        return self.wide.T

    @cached_property
    def _tall_transposed(self) -> Any:
        return self.tall.T

    def take(self, index: Index) -> "Stacked":
        """Return those of some samples."""
        rows = (index[:, np.newaxis] * self.height + np.arange(self.height)).ravel()
        return Stacked(self.tall[rows], self.wide[index])

    def scaled(self, factor: float) -> "Stacked":
        """Return all matrices multiplied by a factor."""
        return Stacked(self.tall * factor, self.wide * factor)

    @staticmethod
    def joined(parts: "Sequence[Stacked]") -> "Stacked":
        """Return the matrices of some parts."""
        return Stacked(*(sp.vstack([getattr(part, name) for part in parts], format="csr") for name in ("tall", "wide")))


@dataclass(frozen=True)
class SparseFactors(Errors):
    """Covariances ``F_i F_i'``, most of whose entries are 0.

    Parameters
    ----------
    factors : ``F_i'``
    covariances : their products
    """

    factors: Stacked
    covariances: Stacked
    # Slices that were taken: every pass over the samples takes the same.
    _slices: "dict[tuple[int, int], SparseFactors]" = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, errors: Factored) -> "SparseFactors":
        """Return errors that are factors alone."""
        return cls(Stacked.of(errors.factors.transpose(0, 2, 1)), Stacked.of(errors.dense()))

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return int(self.factors.wide.shape[0])

    @property
    def n_stored(self) -> int:
        """The number of entries of factors and covariances that are stored."""
        return int(self.factors.tall.nnz + self.covariances.tall.nnz)

    def variances(self, U: Array) -> Array:
        """Return ``||F_i' u||^2``."""
        along = self.factors.times(U)
        return np.asarray(np.einsum("kir,kir->ik", along, along))

    def seen(self, *directions: Array) -> "Roots":
        """Return what directions see of the errors."""
        return Roots(self, self.factors.times(np.array(directions)))

    def back(self, along: Array) -> Array:
        """Return ``sum_i F_i c_i`` for the rows ``c_i`` of an array."""
        return self.factors.back(along)

    def times(self, u: Array) -> Array:
        """Return ``Sigma_i u``."""
        return np.asarray(self.covariances.times(u[np.newaxis])[0])

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``sum_i t_i Sigma_i u``."""
        return self.seen(u).pull(t)

    def between(self, u: Array, v: Array) -> Array:
        """Return ``(F_i' u).(F_i' v)``."""
        return self.seen(u, v).between(0, 1)

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i Sigma_i``."""
        out += self.covariances.total(t)

    def roots(self, t: Array) -> Array:
        """Return 0, as nothing is independent, and beside it ``sum_i t_i F_i``."""
        return np.column_stack([np.zeros(self.factors.tall.shape[1]), self.factors.total(t).T])

    @staticmethod
    def length(v: Array, roots: Array, own: Array | float = 0.0) -> float:
        """Return the length of v in the sum of the roots."""
        return Factored.length(v, roots, own)

    def dense(self) -> Array:
        """Return all covariances."""
        d = self.covariances.height
        return np.asarray(self.covariances.wide.toarray().reshape(-1, d, d))

    @property
    def work(self) -> tuple[float, float]:
        """A product reads the factors twice, a Gram matrix the covariances."""
        n, size = max(1, self.n_samples), self.factors.tall.shape[1]
        return 1.0 + 2 * self.factors.tall.nnz / (n * size), 3.0

    @property
    def width(self) -> int:
        """Mean number of entries of a sample."""
        return self.n_stored // max(1, self.n_samples)

    @property
    def is_large(self) -> bool:
        """They are."""
        return True

    def scaled(self, factor: float) -> "SparseFactors":
        """Return all errors multiplied by a factor."""
        return SparseFactors(self.factors.scaled(factor), self.covariances.scaled(factor**2))

    def take(self, index: Index | slice) -> "SparseFactors":
        """Return those of some samples."""
        if not isinstance(index, slice):
            return SparseFactors(self.factors.take(index), self.covariances.take(index))
        first, end, _ = index.indices(self.n_samples)
        if (first, end) not in self._slices:
            rows = np.arange(first, end)
            self._slices[first, end] = self.take(rows)
        return self._slices[first, end]

    def joined(self, parts: "Sequence[SparseFactors]") -> "SparseFactors":
        """Return those of all samples of some parts."""
        return SparseFactors(
            Stacked.joined([part.factors for part in parts]), Stacked.joined([part.covariances for part in parts])
        )

    def covariance(self, i: int) -> Array:
        """Return ``Sigma_i``."""
        return np.asarray(self.take(slice(i, i + 1)).dense()[0])


@dataclass(frozen=True)
class Combined(Errors):
    """Independent errors of most samples, and correlated ones of some.

    Parameters
    ----------
    std : array (n_samples, n_features): standard deviations, 0 for samples with correlated errors
    index : array (n_correlated,): the numbers of these samples, in ascending order
    correlated : their errors
    """

    std: Array
    index: Index
    correlated: Errors

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.std)

    @cached_property
    def independent(self) -> Diagonal:
        """The standard deviations."""
        return Diagonal(self.std)

    @cached_property
    def groups(self) -> "list[tuple[Index | None, Errors]]":
        """Samples with independent errors, and those with correlated ones."""
        others = np.ones(self.n_samples, dtype=bool)
        others[self.index] = False
        return [(np.flatnonzero(others), self.independent), (self.index, self.correlated)]

    def _merged(self, result: Array, correlated: Array) -> Array:
        result[self.index] = correlated
        return result

    def variances(self, U: Array) -> Array:
        """Return ``u' Sigma_i u``."""
        return self._merged(self.independent.variances(U), self.correlated.variances(U))

    def times(self, u: Array) -> Array:
        """Return ``Sigma_i u``."""
        return self._merged(self.independent.times(u), self.correlated.times(u))

    def pull(self, t: Array, u: Array) -> Array:
        """Return ``sum_i t_i Sigma_i u``."""
        return self.independent.pull(t, u) + self.correlated.pull(t[self.index], u)

    def between(self, u: Array, v: Array) -> Array:
        """Return ``u' Sigma_i v``."""
        return self._merged(self.independent.between(u, v), self.correlated.between(u, v))

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i Sigma_i``."""
        self.independent.add(t, out)
        self.correlated.add(t[self.index], out)

    def roots(self, t: Array) -> Array:
        """Return the sum of ``t_i`` times standard deviations, and beside it that of roots of all ``Sigma_i``."""
        return self.rooted(self.independent.roots(t)) + self.correlated.roots(t[self.index])

    def rooted(self, independent: Array) -> Array:
        """Return ``sum_i t_i e_ij`` of independent errors in the shape of :meth:`roots`: as a column and a diagonal."""
        result = np.zeros_like(self.correlated.take(slice(0)).roots(np.empty(0)))
        result[:, 0] = independent
        # A root of fewer columns than features is of no use to length().
        diagonal(result[:, 1:])[:] = independent[: result.shape[1] - 1]
        return result

    @staticmethod
    def length(v: Array, roots: Array, own: Array | float = 0.0) -> float:
        """Return the length of v in the sum of the roots, or in that of the standard deviations if it is shorter."""
        return Factored.length(v, roots, own)

    def dense(self) -> Array:
        """Return all covariances."""
        return self._merged(np.square(self.std)[:, :, np.newaxis] * np.eye(self.std.shape[1]), self.correlated.dense())

    @property
    def work(self) -> tuple[float, float]:
        """In proportion to the samples with correlated errors."""
        share, (product, gram) = len(self.index) / self.n_samples, self.correlated.work
        return 1.0 + share * (product - 1.0), 1.0 + share * (gram - 1.0)

    @property
    def is_large(self) -> bool:
        """The correlated errors are."""
        return True

    def scaled(self, factor: float) -> "Combined":
        """Return all errors multiplied by a factor."""
        return Combined(self.std * factor, self.index, self.correlated.scaled(factor))

    def take(self, index: Index | slice) -> "Combined":
        """Return those of some samples."""
        places = np.full(self.n_samples, -1)
        places[self.index] = np.arange(len(self.index))
        correlated = places[index]
        among = np.flatnonzero(correlated >= 0)
        return Combined(self.std[index], among, self.correlated.take(correlated[among]))

    def joined(self, parts: "Sequence[Combined]") -> "Combined":
        """Return those of all samples of some parts."""
        firsts = np.cumsum([0, *(part.n_samples for part in parts)])
        return Combined(
            np.concatenate([part.std for part in parts]),
            np.concatenate([part.index + first for part, first in zip(parts, firsts[:-1], strict=True)]),
            self.correlated.joined([part.correlated for part in parts]),
        )

    def covariance(self, i: int) -> Array:
        """Return ``Sigma_i``."""
        return np.asarray(self.take(slice(i, i + 1)).dense()[0])
