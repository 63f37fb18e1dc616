"""What was not measured: where it is, and what stands for it."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

from gaussguru._blocks import MOST_STORED, row_blocks
from gaussguru._errors.arrays import any_roots, as_numbers, check_finite, check_sign, finite_least, like
from gaussguru._errors.given import Limits, LowRank
from gaussguru._linalg import EPS, Array, Index
from gaussguru._native import _binding

# Rows of which deviations are formed at a time.
PIECE = 4096
# Least variance of a population in any direction, relative to the squared spreads of the features.
LEAST = 1e-6


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
        deviations become :class:`LowRank`; unless ``correlated`` is false or they would take more than ``MOST_STORED``
        numbers, where the roots of the diagonal of ``Sigma_mm`` are taken alone.
        """
        if self.covariance is None:
            return self.fill_means(X, X_err)
        n, d = X.shape
        missing = unmeasured(X_err, X.shape)
        correlated = correlated and n * d * d <= MOST_STORED
        noise = _noise_of(X_err, missing, correlated=correlated)
        values = np.where(missing, self.means, X).astype(np.float64, copy=False)
        T = positive(self.covariance, units_of(self.means, self.spreads))
        gaps = np.flatnonzero(missing.any(axis=1))
        for rows in (gaps[block] for block in row_blocks(len(gaps), d * d, cached=True)):
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
        return _FactoredNoise(_deviations(np.where(missing, 0.0, std), "X_err.std"), factors, replaced)
    errors = as_numbers(X_err, "X_err")
    if errors.ndim == 3:
        covariances = np.where(missing[:, :, np.newaxis] | missing[:, np.newaxis, :], 0.0, errors)
        check_finite(covariances, "X_err", map)
        return _FullNoise(covariances)
    std = np.where(missing, 0.0, errors if errors.ndim == 2 else errors[:, np.newaxis])
    return _FactoredNoise(_deviations(std, "X_err"), None, replaced)


def _deviations(std: Array, name: str) -> Array:
    """Return standard deviations, checked."""
    check_sign(check_finite(std, name, map), name)
    return std


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
