"""Independent errors of features: standard deviations per sample, or per sample and feature."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.forms import Errors
from gaussguru._utils.linalg import Array, Index, diagonal


@dataclass(frozen=True)
class PerSample(Errors):
    """One standard deviation per sample, the same for all features."""

    is_independent = True
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
        """Return the errors of some samples."""
        return PerSample(self.std[index], self.n_features)

    def joined(self, parts: "Sequence[PerSample]") -> "PerSample":
        """Return the errors of all samples of several parts."""
        return PerSample(np.concatenate([part.std for part in parts]), self.n_features)

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

    is_independent = True
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
        """Return the errors of some samples."""
        return Diagonal(self.std[index])

    def joined(self, parts: "Sequence[Diagonal]") -> "Diagonal":
        """Return the errors of all samples of several parts."""
        each = [part.std for part in parts]
        return Diagonal(sp.vstack(each, format="csr") if sp.issparse(self.std) else np.concatenate(each))

    @property
    def n_causes(self) -> int:
        """One for each feature."""
        return int(self.std.shape[1])

    def moved(self, causes: Array) -> Array:
        """Return ``e_ij c_j``."""
        return np.asarray(self.std.multiply(causes).toarray() if sp.issparse(self.std) else self.std * causes)

    def along(self, U: Array) -> Array:
        """Return ``u_j e_ij``; of CSR errors only the columns of features with an entry."""
        std = self.std
        if sp.issparse(std):
            used = np.unique(std.indices)
            std, U = std[:, used].toarray(), U[:, used]
        return np.asarray(std[:, np.newaxis] * U)
