"""Correlated errors with sparse factors, as filling in of missing values makes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.forms import Errors, Roots
from gaussguru._utils.linalg import Array, Index


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
    def _wide_transposed(self) -> Any:  # a view, kept because making it takes as long as a product
        return self.wide.T

    @cached_property
    def _tall_transposed(self) -> Any:
        return self.tall.T

    def take(self, index: Index) -> "Stacked":
        """Return the matrices of some samples."""
        rows = (index[:, np.newaxis] * self.height + np.arange(self.height)).ravel()
        return Stacked(self.tall[rows], self.wide[index])

    def scaled(self, factor: float) -> "Stacked":
        """Return all matrices multiplied by a factor."""
        return Stacked(self.tall * factor, self.wide * factor)

    @staticmethod
    def joined(parts: "Sequence[Stacked]") -> "Stacked":
        """Return the matrices of several parts."""
        return Stacked(*(sp.vstack([getattr(part, name) for part in parts], format="csr") for name in ("tall", "wide")))


@dataclass(frozen=True)
class SparseFactors(Errors):
    """Covariances ``F_i F_i'``, most of whose entries are 0.

    Parameters
    ----------
    factors : ``F_i'``
    covariances : ``F_i F_i'``
    """

    is_large = True
    factors: Stacked
    covariances: Stacked
    # Slices taken so far: every pass over the samples takes the same ones.
    _slices: "dict[tuple[int, int], SparseFactors]" = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, factors: Array, covariances: Array) -> "SparseFactors":
        """Return the errors of dense factors F, (n_samples, n_features, rank), and of their covariances."""
        return cls(Stacked.of(factors.transpose(0, 2, 1)), Stacked.of(covariances))

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return int(self.factors.wide.shape[0])

    @property
    def n_stored(self) -> int:
        """Number of stored entries of factors and covariances."""
        return int(self.factors.tall.nnz + self.covariances.tall.nnz)

    def variances(self, U: Array) -> Array:
        """Return ``||F_i' u||^2``."""
        along = self.factors.times(U)
        return np.asarray(np.einsum("kir,kir->ik", along, along))

    def seen(self, *directions: Array) -> "Roots":
        """Return the errors along some directions, from one product."""
        return Roots(self.factors.back, self.factors.times(np.array(directions)))

    def times(self, u: Array) -> Array:
        """Return ``Sigma_i u``."""
        return np.asarray(self.covariances.times(u[np.newaxis])[0])

    def add(self, t: Array, out: Array) -> None:
        """Add ``sum_i t_i Sigma_i``."""
        out += self.covariances.total(t)

    def roots(self, t: Array) -> Array:
        """Return a column 0, as no error is independent, and ``sum_i t_i F_i``."""
        return np.column_stack([np.zeros(self.factors.tall.shape[1]), self.factors.total(t).T])

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
        """Mean number of stored entries per sample."""
        return self.n_stored // max(1, self.n_samples)

    def scaled(self, factor: float) -> "SparseFactors":
        """Return all errors multiplied by a factor."""
        return SparseFactors(self.factors.scaled(factor), self.covariances.scaled(factor**2))

    def take(self, index: Index | slice) -> "SparseFactors":
        """Return the errors of some samples."""
        if not isinstance(index, slice):
            return SparseFactors(self.factors.take(index), self.covariances.take(index))
        first, end, _ = index.indices(self.n_samples)
        if (first, end) not in self._slices:
            rows = np.arange(first, end)
            self._slices[first, end] = self.take(rows)
        return self._slices[first, end]

    def joined(self, parts: "Sequence[SparseFactors]") -> "SparseFactors":
        """Return the errors of all samples of several parts."""
        return SparseFactors(
            Stacked.joined([part.factors for part in parts]), Stacked.joined([part.covariances for part in parts])
        )
