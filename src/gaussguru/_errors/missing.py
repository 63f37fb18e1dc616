"""Missing values: where they are, and how they are filled in."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

from gaussguru._errors.arrays import any_roots, finite_least, in_public_module
from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.parse import finite
from gaussguru._errors.samples import split_errors
from gaussguru._native import _binding
from gaussguru._utils.blocks import MOST_STORED, row_blocks
from gaussguru._utils.frames import as_numbers, like
from gaussguru._utils.linalg import EPS, Array, Index
from gaussguru._utils.moments import FeatureMoments
from gaussguru._utils.types import ErrorBars, Values

# Least variance of a population in any direction, relative to the squared units of the features.
LEAST = 1e-6


def has_unmeasured(X_err: ErrorBars) -> bool:
    """Return whether parsed error bars have infinite entries; raise for limits, which need a population."""
    if X_err is None or sp.issparse(X_err):
        return False
    if isinstance(X_err, Limits):
        raise ValueError(
            "X_err holds limits, which say nothing without a population: gaussguru.population.Deconvolve turns them "
            "into values with errors"
        )
    if isinstance(X_err, LowRank):
        X_err = X_err.std
    return finite_least(X_err) is None


def standard_deviations(X_err: ErrorBars, shape: tuple[int, int]) -> Array:
    """Return the standard deviations (n, d) of parsed error bars; for limits, the errors of the limits."""
    if X_err is None:
        return np.zeros(shape)
    if isinstance(X_err, Limits):
        return np.asarray(X_err.err)
    if isinstance(X_err, LowRank):
        with np.errstate(over="ignore"):
            common = np.einsum("ijr,ijr->ij", X_err.factors, X_err.factors)
            return np.asarray(np.sqrt(common + np.square(X_err.std)))
    errors = X_err.toarray() if sp.issparse(X_err) else X_err
    if errors.ndim == 3:
        return np.asarray(np.sqrt(np.einsum("ijj->ij", errors)))
    return np.broadcast_to(errors if errors.ndim == 2 else errors[:, np.newaxis], shape)


def unmeasured(X_err: ErrorBars, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask of values with an infinite error, from parsed error bars."""
    return np.isinf(X_err.std if isinstance(X_err, LowRank) else standard_deviations(X_err, shape))


def not_measured(X_err: ErrorBars, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask of values that have an infinite error or are limits, from parsed error bars."""
    missing = unmeasured(X_err, shape)
    return missing | (X_err.limits != 0) if isinstance(X_err, Limits) else missing


@in_public_module
@dataclass(frozen=True)
class Population:
    """Distribution of a sample before it is measured: a Gaussian.

    Parameters
    ----------
    means, spreads : arrays of shape (n_features,)
        Means of the true values, and standard deviations of the measured ones.
    covariance : array of shape (n_features, n_features), default=None
        Covariance of the true values; None: uncorrelated features with these spreads.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.errors import Population
    >>> X, X_err = Population(np.zeros(2), np.ones(2)).fill(np.array([[3.0, np.nan]]), np.array([[0.5, np.inf]]))
    >>> X.tolist(), X_err.tolist()
    ([[3.0, 0.0]], [[0.5, 1.0]])
    """

    means: Array
    spreads: Array
    covariance: Array | None = None

    @classmethod
    def of(
        cls, X: Values, X_err: ErrorBars = None, sample_weight: Array | None = None, *, gaps: bool | None = None
    ) -> "Population":
        """Return means and spreads of samples with error bars, which are infinite for missing values.

        ``gaps`` tells whether any are missing; None: :func:`has_unmeasured` looks, one pass over the errors.
        """
        values = as_numbers(X, "X")
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
        with np.errstate(over="ignore", invalid="ignore"):  # X may be infinite or NaN: so are its moments
            means = np.where(known, values * weights, 0.0).sum(axis=0) / total
            squares = np.where(known, np.square(values - means) * weights, 0.0).sum(axis=0) / total
            return cls(means, np.sqrt(squares))

    @classmethod
    def _of_all(cls, values: Array, weight: Array | None) -> "Population":
        """Return means and spreads of samples without missing values, about the means of the first rows."""
        piece = 4096  # rows in a block of deviations, which stays in cache
        with np.errstate(over="ignore", invalid="ignore"):
            about = values[:piece].mean(axis=0)
            if weight is None:
                sums = _binding.column_sums(0, len(values), _binding.MatrixView(values), about).reshape(2, -1)
            else:
                sums = np.zeros((2, values.shape[1]))
                for first in range(0, len(values), piece):
                    deviations, s = values[first : first + piece] - about, weight[first : first + piece]
                    sums += s @ deviations, s @ np.square(deviations)
            total = np.asarray(len(values) if weight is None else weight.sum(), dtype=np.float64)
            return cls(*FeatureMoments(about, total, *sums).means_and_spreads())

    def fill(self, X: Values, X_err: ErrorBars, *, correlated: bool = True) -> tuple[Values, ErrorBars]:
        """Return X and X_err with missing values replaced by their mean and covariance given the measured values.

        With the covariances ``T`` of the population and ``S`` of the errors, the features ``o`` that were measured
        and ``m`` that were not, ::

            G = T_mo (T_oo + S_oo)^-1     x_m = mu_m + G (x_o - mu_o)     Sigma_mm = T_mm - G T_om,  Sigma_mo = G S_oo

        Measured values and their errors do not change. The errors of a sample are then correlated, so standard
        deviations become :class:`LowRank`. If ``correlated`` is false, or this would take more than ``MOST_STORED``
        numbers, only the roots of the diagonal of ``Sigma_mm`` are returned.
        """
        X, X_err = split_errors(X, X_err)
        if self.covariance is None:
            return self.fill_means(X, X_err)
        n, d = X.shape
        missing, noise = unmeasured(X_err, X.shape), _Noise.of(X_err, X.shape)
        correlated = correlated and n * d * d <= MOST_STORED
        values = np.where(missing, self.means, as_numbers(X, "X"))
        T = positive(self.covariance, units_of(self.means, self.spreads))
        gaps = np.flatnonzero(missing.any(axis=1))
        factors = np.zeros((n, d, d) if correlated and noise.covariances is None else 0)
        for rows in (gaps[block] for block in row_blocks(len(gaps), d * d, cached=True)):
            known, S = ~missing[rows], noise.of_rows(rows)
            G, rest = _given_rest(T, S, known)
            values[rows] += np.einsum("ijk,ik->ij", G, np.where(known, values[rows] - self.means, 0.0))
            if not correlated:
                noise.widen(rows, np.sqrt(np.maximum(np.einsum("ijj->ij", rest), 0.0)))
                continue
            crossed, whole = G @ S, np.eye(d) + G
            if noise.covariances is not None:
                noise.covariances[rows] = S + crossed + crossed.transpose(0, 2, 1) + rest
                continue
            # Sigma = (I + G) S (I + G)' + R with R = rest - G S G': a factor of R is 0 for most pairs of features.
            measured = known[:, np.newaxis] * np.eye(d)
            root = any_roots(rest - crossed @ G.transpose(0, 2, 1) + measured) - measured
            factors[rows] = whole * noise.std[rows, np.newaxis] + root
            noise.factors[rows] = whole @ noise.factors[rows]
        if not correlated or noise.covariances is not None:
            return like(X, values), noise.result
        noise.std[gaps] = 0.0
        return like(X, values), LowRank(np.concatenate([factors, noise.factors], axis=2), noise.std)

    def fill_means(self, X: Values, X_err: ErrorBars) -> tuple[Values, ErrorBars]:
        """Return X and X_err with missing values replaced by the mean and spread of their feature."""
        missing, noise = unmeasured(X_err, X.shape), _Noise.of(X_err, X.shape)
        noise.widen(slice(None), np.where(missing, self.spreads, 0.0))
        return like(X, np.where(missing, self.means, as_numbers(X, "X"))), noise.result


def _given_rest(T: Array, S: Array, known: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return G, and the covariance of missing values given the measured ones, both (n, d, d) and 0 elsewhere."""
    unknown, seen = ~known, T * known[:, np.newaxis, :]
    C = seen * known[:, :, np.newaxis] + S
    np.einsum("ijj->ij", C)[:] += unknown
    G = np.linalg.solve(C, seen.transpose(0, 2, 1)).transpose(0, 2, 1) * unknown[:, :, np.newaxis]
    rest = (T - G @ seen.transpose(0, 2, 1)) * (unknown[:, :, np.newaxis] & unknown[:, np.newaxis, :])
    return np.asarray(G), rest


@dataclass(frozen=True)
class _Noise:
    """A copy of error bars with 0 for missing values: covariances, or standard deviations and factors."""

    covariances: Array | None
    std: Array
    factors: Array

    @classmethod
    def of(cls, X_err: ErrorBars, shape: tuple[int, int]) -> "_Noise":
        """Return a copy of parsed error bars."""
        errors = finite(X_err)
        if isinstance(errors, LowRank):
            return cls(None, errors.std, np.array(errors.factors))
        none = np.zeros((*shape, 0))
        if errors.ndim == 3:
            return cls(errors, np.zeros(shape), none)
        return cls(None, np.array(standard_deviations(errors, shape)), none)

    def of_rows(self, rows: Index) -> Array:
        """Return the covariances of some samples."""
        if self.covariances is not None:
            return self.covariances[rows]
        result = self.factors[rows] @ self.factors[rows].transpose(0, 2, 1)
        np.einsum("ijj->ij", result)[:] += np.square(self.std[rows])
        return np.asarray(result)

    def widen(self, rows: Index | slice, deviations: Array) -> None:
        """Add independent errors to values with errors of 0."""
        if self.covariances is not None:
            np.einsum("ijj->ij", self.covariances)[rows] += np.square(deviations)
        else:
            self.std[rows] += deviations

    @property
    def result(self) -> ErrorBars:
        """Error bars in their original form."""
        if self.covariances is not None:
            return self.covariances
        return LowRank(self.factors, self.std) if self.factors.shape[2] else self.std


def units_of(means: Array, spreads: Array) -> Array:
    """Return a unit for each feature, (d,): its spread, or for a constant feature the size of its mean.

    A feature that is always 0 gets the mean of the other units, or 1.
    """
    units = np.where(spreads <= 64 * EPS * np.abs(means), np.abs(means), spreads)
    return np.where(units > 0, units, units[units > 0].mean() if units.any() else 1.0)


def positive(covariance: Array, units: Array) -> Array:
    """Return a covariance with variances raised to at least ``LEAST`` squared units in every direction."""
    values, axes = np.linalg.eigh(covariance / np.multiply.outer(units, units))
    return np.asarray((axes * np.maximum(values, LEAST)) @ axes.T * np.multiply.outer(units, units))


def mean_spread(X: Values) -> float:
    """Return the root of the mean variance of the features, or 1 if all are constant."""
    if sp.issparse(X):
        variances = mean_variance_axis(sp.csr_matrix(X, dtype=np.float64), axis=0)[1]
    else:
        variances = np.square(Population.of(X, None).spreads)
    return float(np.sqrt(np.mean(variances))) or 1.0
