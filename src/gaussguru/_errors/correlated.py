"""Correlated errors: factors, covariances, and samples of which only some have correlated errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gaussguru._errors.arrays import roots_of
from gaussguru._errors.forms import Errors, Products, Roots
from gaussguru._errors.independent import Diagonal
from gaussguru._errors.sparse import SparseFactors
from gaussguru._utils.linalg import Array, Index, diagonal


@dataclass(frozen=True)
class Factored(Errors):
    """Covariances ``diag(std_i^2) + F_i F_i'``, with ``std`` (n, n_features) and ``factors`` (n, n_features, rank)."""

    is_large = True
    std: Array
    factors: Array

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.factors)

    @property
    def columns(self) -> Array:
        """The columns of all factors, (n_samples * rank, n_features): a view of factors that ``check_errors`` made."""
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

    def seen(self, *directions: Array) -> Roots:
        """Return the errors along some directions, from one product."""
        U, (n, _, rank) = np.array(directions), self.factors.shape
        common = np.moveaxis((self.columns @ U.T).reshape(n, rank, len(U)), 2, 0)
        if not self._has_std:
            return Roots(self.back, common)
        return Roots(self.back, np.concatenate([self.std * U[:, np.newaxis], common], axis=2))

    def back(self, along: Array) -> Array:
        """Return ``sum_i F_i c_i`` for the rows ``c_i`` of an array, in which entries for ``std`` come first."""
        rank = self.factors.shape[2]
        result = np.ascontiguousarray(along[:, along.shape[1] - rank :]).reshape(-1) @ self.columns
        if self._has_std:
            result += np.einsum("ij,ij->j", self.std, along[:, :-rank] if rank else along)
        return np.asarray(result)

    def compact(self) -> Errors:
        """Return standard deviations of samples without factors, and sparse factors of the others if most are 0.

        :meth:`gaussguru.errors.Population.fill` makes such factors for values that were not measured.
        """
        correlated = np.flatnonzero(self.factors.any(axis=(1, 2)))
        if not len(correlated):
            return Diagonal(np.ascontiguousarray(self.std))
        dense = self.take(correlated)
        sparse = None if dense._has_std else SparseFactors.of(dense.factors, dense.dense())
        errors = dense if sparse is None or 2 * sparse.n_stored > dense.factors.size else sparse
        if len(correlated) == self.n_samples:
            return errors
        std = np.array(self.std)
        std[correlated] = 0.0
        return Combined(std, correlated, errors)

    @cached_property
    def _has_std(self) -> bool:
        """Whether any standard deviation is positive."""
        return bool(self.std.any())

    @property
    def work(self) -> tuple[float, float]:
        """Proportional to the number of columns of the factors."""
        rank = self.factors.shape[2]
        return 1.0 + rank, 2.0 + rank

    @property
    def width(self) -> int:
        """Entries of the factors and of the standard deviations."""
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
        """Return columns ``sum t_i e_ij`` and ``sum t_i F_i``."""
        _, d, rank = self.factors.shape
        total = t @ self.columns.reshape(len(t), rank * d)
        return np.column_stack([t @ self.std, total.reshape(rank, d).T])

    def scaled(self, factor: float) -> "Factored":
        """Return all errors multiplied by a factor."""
        return Factored(self.std * factor, self.factors * factor)

    def take(self, index: Index | slice) -> "Factored":
        """Return the errors of some samples."""
        return Factored(self.std[index], self.factors.transpose(0, 2, 1)[index].transpose(0, 2, 1))

    def joined(self, parts: "Sequence[Factored | Covariances]") -> "Factored":
        """Concatenate the errors of several parts, as factors; parts may be :class:`Covariances`."""
        factored = [part.factored() if isinstance(part, Covariances) else part for part in parts]
        rows = np.concatenate([part.factors.transpose(0, 2, 1) for part in factored])
        return Factored(np.concatenate([part.std for part in factored]), rows.transpose(0, 2, 1))

    @property
    def n_causes(self) -> int:
        """One for each column of the factors, and one for each feature if ``std`` is not 0."""
        return int(self.factors.shape[2]) + (self.std.shape[1] if self.std.any() else 0)

    def moved(self, causes: Array) -> Array:
        """Return ``F_i c`` plus ``e_ij`` times the remaining causes."""
        rank = self.factors.shape[2]
        common = np.einsum("ijr,r->ij" if causes.ndim == 1 else "ijr,ir->ij", self.factors, causes[..., :rank])
        independent = causes[..., rank:]
        return np.asarray(common + self.std * independent if independent.shape[-1] else common)

    def along(self, U: Array) -> Array:
        """Return columns ``e_ij u_j``, if ``std`` is not 0, and ``U F_i``."""
        return np.moveaxis(self.seen(*U).along, 0, 1)


@dataclass(frozen=True)
class Covariances(Errors):
    """Covariances as given: products are twice as fast as with roots, and sums need no products.

    Parameters
    ----------
    matrices : array (n_samples, n_features, n_features)
    uppers : array of the same shape, or None: R with ``R' R`` the covariances, for certificates
    """

    is_large = True
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

    def seen(self, *directions: Array) -> Products:
        """Return the errors along some directions, from one product."""
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
        """Return a column 0, as no error is independent, and ``sum t_i R_i'``."""
        n, d, _ = self.matrices.shape
        return np.column_stack([np.zeros(d), (t @ self._uppers.reshape(n, d * d)).reshape(d, d).T])

    @property
    def work(self) -> tuple[float, float]:
        """A product reads all covariances, and a Gram matrix is their weighted sum."""
        return 1.0 + self.matrices.shape[1], 3.0

    @property
    def width(self) -> int:
        """Entries of a covariance."""
        return int(self.matrices.shape[1]) ** 2

    def scaled(self, factor: float) -> "Covariances":
        """Return all errors multiplied by a factor."""
        return Covariances(self.matrices * factor**2, None if self.uppers is None else self.uppers * factor)

    def take(self, index: Index | slice) -> "Covariances":
        """Return the errors of some samples."""
        return Covariances(self.matrices[index], None if self.uppers is None else self.uppers[index])

    def factored(self) -> Factored:
        """Return the same errors as factors."""
        return Factored(np.zeros(self.matrices.shape[:2]), self._uppers.transpose(0, 2, 1))

    def joined(self, parts: "Sequence[Any]") -> Errors:
        """Return the errors of all samples of several parts, as factors if any part has them."""
        if factored := [part for part in parts if isinstance(part, Factored)]:
            return factored[0].joined(parts)
        uppers = [part.uppers for part in parts if part.uppers is not None]
        matrices = np.concatenate([part.matrices for part in parts])
        return Covariances(matrices, np.concatenate(uppers) if len(uppers) == len(parts) else None)

    @property
    def n_causes(self) -> int:
        """Number of features."""
        return int(self.matrices.shape[1])

    def moved(self, causes: Array) -> Array:
        """Return ``R_i'`` times the causes."""
        return np.asarray(np.einsum("irj,r->ij" if causes.ndim == 1 else "irj,ir->ij", self._uppers, causes))

    def along(self, U: Array) -> Array:
        """Return ``U R_i'``."""
        return np.asarray(U @ self._uppers.transpose(0, 2, 1))


@dataclass(frozen=True)
class Combined(Errors):
    """Independent errors of some samples, and correlated errors of the others.

    Parameters
    ----------
    std : array (n_samples, n_features): standard deviations, 0 for samples with correlated errors
    index : array (n_correlated,): the numbers of these samples, in ascending order
    correlated : their errors
    """

    is_large = True
    std: Array
    index: Index
    correlated: Errors

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.std)

    @cached_property
    def independent(self) -> Diagonal:
        """Errors of all samples from the standard deviations alone."""
        return Diagonal(self.std)

    @cached_property
    def groups(self) -> "list[tuple[Index | None, Errors]]":
        """The samples with independent errors, and the samples with correlated errors."""
        others = np.ones(self.n_samples, dtype=bool)
        others[self.index] = False
        return [(np.flatnonzero(others), self.independent), (self.index, self.correlated)]

    def _merged(self, result: Array, correlated: Array) -> Array:
        """Overwrite the rows of samples with correlated errors, and return the array."""
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
        """Return a column ``sum_i t_i e_ij``, and ``sum_i t_i F_i``."""
        return self.rooted(self.independent.roots(t)) + self.correlated.roots(t[self.index])

    def rooted(self, independent: Array) -> Array:
        """Return ``sum_i t_i e_ij`` of independent errors in the shape of :meth:`roots`: as the first column."""
        result = np.zeros_like(self.correlated.take(slice(0)).roots(np.empty(0)))
        result[:, 0] = independent
        return result

    def dense(self) -> Array:
        """Return all covariances."""
        return self._merged(np.square(self.std)[:, :, np.newaxis] * np.eye(self.std.shape[1]), self.correlated.dense())

    @property
    def work(self) -> tuple[float, float]:
        """Proportional to the fraction of samples with correlated errors."""
        share, (product, gram) = len(self.index) / self.n_samples, self.correlated.work
        return 1.0 + share * (product - 1.0), 1.0 + share * (gram - 1.0)

    def scaled(self, factor: float) -> "Combined":
        """Return all errors multiplied by a factor."""
        return Combined(self.std * factor, self.index, self.correlated.scaled(factor))

    def take(self, index: Index | slice) -> "Combined":
        """Return the errors of some samples."""
        numbers = np.full(self.n_samples, -1)
        numbers[self.index] = np.arange(len(self.index))
        taken = numbers[index]
        new_index = np.flatnonzero(taken >= 0)
        return Combined(self.std[index], new_index, self.correlated.take(taken[new_index]))

    def joined(self, parts: "Sequence[Combined]") -> "Combined":
        """Return the errors of all samples of several parts."""
        firsts = np.cumsum([0, *(part.n_samples for part in parts)])
        return Combined(
            np.concatenate([part.std for part in parts]),
            np.concatenate([part.index + first for part, first in zip(parts, firsts[:-1], strict=True)]),
            self.correlated.joined([part.correlated for part in parts]),
        )
