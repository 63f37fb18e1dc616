"""EM for populations: which mixture is most likely, given measurements with error bars."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from gaussguru._errors.missing import LEAST, Population, has_unmeasured, positive, units_of
from gaussguru._populations.mixtures import FactorMixture, FactorSums, Mixture, added, factor_covariances
from gaussguru._populations.readings import PartReadings, Readings, read
from gaussguru._rows.streams import Blocks
from gaussguru._utils.frames import as_numbers, take_rows
from gaussguru._utils.linalg import SAME, Array, Index, diagonal
from gaussguru._utils.types import BlockMap, ErrorBars, MixedArray, Values

# A component with less than this fraction of the weight is not moved: its sums are rounding errors.
EMPTY = 1e-12


@dataclass(frozen=True)
class EmState:
    """A mixture, and the factors on the error bars, (n_features,)."""

    mixture: Mixture
    kappa: Array


@dataclass(frozen=True)
class Fit:
    """Result of EM; ``drop`` is the decrease of the objective in the last step, 0 unless beyond rounding."""

    state: EmState
    objective: float
    log_likelihood: float
    history: list[float]
    n_iter: int
    converged: bool
    drop: float = 0.0


@dataclass(frozen=True)
class Sample:
    """Samples in memory."""

    rows: Readings
    weight: Array | None
    map: BlockMap = map

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: MixedArray | slice) -> "Sample":
        return Sample(self.rows[index], None if self.weight is None else self.weight[index], self.map)

    @property
    def total(self) -> float:
        """The total weight."""
        return float(len(self.rows)) if self.weight is None else float(self.weight.sum())

    @property
    def size(self) -> float:
        """The number of samples."""
        return max(self.total, len(self.rows))

    def pairs(self, means: Array) -> tuple[Array, Array, Array]:
        """Return the covariance of pairs of values that were both measured, their weights, and those of the samples."""
        rows = self.rows
        s = np.ones(len(rows)) if self.weight is None else self.weight / self.weight.max()
        values, totals = rows.values.astype(np.float64, copy=False) - means, np.asarray(s.sum())
        if rows.known is not None:
            values *= rows.known
            known = rows.known.astype(np.float64)
            totals = np.maximum((known * s[:, np.newaxis]).T @ known, 1e-300)
        return (values * s[:, np.newaxis]).T @ values / totals, totals, s

    def sums(self, state: EmState, *, with_noise: bool) -> Any:
        """Return the sums over blocks of rows, in order, so that the result does not depend on threads."""
        scaled, weight = self.rows.scaled(state.kappa), self.weight

        def of(part: slice) -> Any:
            return state.mixture.sums(scaled[part], None if weight is None else weight[part], with_noise)

        return reduce(added, self.map(of, self.rows.blocks(state.mixture.width)))


@dataclass(frozen=True)
class StreamedSample:
    """Samples that every iteration reads once."""

    parts: Blocks
    n_rows: int
    total: float

    @property
    def size(self) -> float:
        """The number of samples."""
        return max(self.total, self.n_rows)

    def sums(self, state: EmState, *, with_noise: bool) -> Any:
        """Return the sums over all parts, in their order."""
        return self.parts.total(_part_sums, state=state, with_noise=with_noise)


def _part_sums(part: PartReadings, state: EmState, with_noise: bool) -> Any:
    return Sample(*part[:2]).sums(state, with_noise=with_noise)


@dataclass(frozen=True)
class Em:
    """Maximise ``sum_i w_i log p(x_i) / sum_i w_i - (ridge/2) sum_k tr(T_k^-1 diag(units^2))``.

    The second term keeps every ``T_k`` above ``ridge / pi_k`` times the squared ``units``; of covariances with few
    factors, ``F F' + diag(D)``, D stays above ``ridge`` times these. The next point is extrapolated from the last
    points and their images under EM (Anderson mixing; Henderson & Varadhan 2019, J. Comput. Graph. Stat. 28); if it
    lowers the objective, the image of the last point is taken. Iterations stop when two steps in a row raise the
    log-likelihood of all samples by at most ``tol`` per parameter, or when a step of EM lowers it, which happens at a
    maximum by rounding.
    """

    units: Array
    ridge: float
    tol: float
    max_iter: int
    rank: int | None = None
    free_kappa: NDArray[np.bool_] | None = None  # mask of the factors that are fitted
    wide: Array | None = None  # the last component has a fixed mean and a multiple of this covariance

    def run(self, sample: Sample | StreamedSample, start: EmState) -> Fit:
        """Return the best point, from a start."""
        total, start = sample.total, self._allowed(start)
        tol = self.resolution(start.mixture, sample)

        def step(state: EmState) -> tuple[float, float, EmState]:
            sums = sample.sums(state, with_noise=self.free_kappa is not None)
            likelihood = sums.objective / total
            return likelihood - self._penalty(state.mixture), likelihood, self._improved(state, sums, total)

        state, (value, likelihood, after) = start, step(start)
        n_iter, history, converged, slow, drop = 1, [value], False, 0, 0.0
        past: list[tuple[Array, Array]] = []  # points and their images under EM
        while n_iter < self.max_iter and not converged:
            guess = self._extrapolated(past, state, after)
            trial = None
            if guess is not None:
                with suppress(ValueError):  # too far: a covariance is not positive definite
                    trial = step(guess)
                n_iter += 1
                if trial is None or trial[0] < value:
                    past.clear()
                    trial = None
            if trial is None:
                if n_iter >= self.max_iter:
                    break
                guess, trial = after, step(after)
                n_iter += 1
            assert guess is not None
            if trial[0] < value:
                drop = value - trial[0]
                converged = drop <= SAME * max(1.0, abs(value))
                break
            slow = slow + 1 if trial[0] - value <= tol else 0
            state, (value, likelihood, after) = guess, trial
            history.append(value)
            converged = slow >= 2
        return Fit(state, value, likelihood, history, n_iter, converged, drop)

    def resolution(self, mixture: Mixture, sample: Sample | StreamedSample) -> float:
        """Return the accuracy of the mean log-likelihood of a mixture."""
        K, d = mixture.means.shape
        each = d + (d * (d + 1) // 2 if self.rank is None else d * (self.rank + 1))
        return float(self.tol * (K * (each + 1) - 1) / sample.size)

    def _penalty(self, mixture: Mixture) -> float:
        squares = np.square(self.units)
        if isinstance(mixture, FactorMixture):
            return (
                0.5
                * self.ridge
                * float(sum(mixture.precision_diagonal(k) @ squares for k in range(len(mixture.means))))
            )
        inverses = np.linalg.inv(mixture.covariances[: self._free(mixture)])
        return 0.5 * self.ridge * float(np.einsum("kjj,j->", inverses, squares))

    @property
    def _floor(self) -> Array:
        """Least D of the components: ``ridge``, or 1e-12, times the squared spreads."""
        return np.asarray(max(self.ridge, 1e-12) * np.square(self.units))

    def _allowed(self, state: EmState) -> EmState:
        """Return a point with D above the floor."""
        mixture = state.mixture
        if mixture.loadings is None or mixture.uniquenesses is None or np.all(mixture.uniquenesses >= self._floor):
            return state
        D = np.maximum(mixture.uniquenesses, self._floor)
        covariances = factor_covariances(mixture.loadings, D)
        if self.wide is not None:
            covariances[-1] = mixture.covariances[-1]
        return replace(state, mixture=replace(mixture, covariances=covariances, uniquenesses=D))

    def _free(self, mixture: Mixture) -> int:
        return mixture.n_components - (self.wide is not None)

    def _improved(self, state: EmState, sums: Any, total: float) -> EmState:
        """Return the point after a step of EM."""
        mixture = state.mixture
        if isinstance(sums, FactorSums):
            assert isinstance(mixture, FactorMixture)
            ridge = self.ridge * total * np.square(self.units)
            return EmState(mixture.improved(sums, ridge, self._floor, EMPTY * total), self._kappa(state.kappa, sums))
        means, covariances = mixture.means.copy(), mixture.covariances.copy()
        loadings = None if mixture.loadings is None else mixture.loadings.copy()
        uniquenesses = None if mixture.uniquenesses is None else mixture.uniquenesses.copy()
        for k, (N, T) in enumerate(zip(sums.weight, mixture.covariances, strict=True)):
            if EMPTY * total > N:
                continue
            moment = T + T @ (sums.second[k] - sums.precision[k]) @ T / N
            if k >= self._free(mixture):
                covariances[k] = self.widened(moment)
                continue
            shift = T @ sums.first[k] / N
            means[k] += shift
            moment -= np.multiply.outer(shift, shift)
            moment = 0.5 * (moment + moment.T)
            diagonal(moment)[:] += self.ridge * total / N * np.square(self.units)
            if loadings is not None and uniquenesses is not None:
                loadings[k], uniquenesses[k] = _factor_analysis(moment, loadings[k], uniquenesses[k], self._floor)
                moment = loadings[k] @ loadings[k].T + np.diag(uniquenesses[k])
            covariances[k] = moment
        weights = sums.weight / sums.weight.sum()
        improved = type(mixture)(weights, means, covariances, loadings, uniquenesses)
        return EmState(improved, self._kappa(state.kappa, sums))

    def _kappa(self, kappa: Array, sums: Any) -> Array:
        """Return the factors of the error bars after a step."""
        if self.free_kappa is None:
            return kappa
        ratio = np.divide(sums.noise, sums.noise_weight, out=np.ones_like(kappa), where=self.free_kappa)
        return np.asarray(kappa * np.sqrt(np.maximum(ratio, 1e-12)))

    def widened(self, moment: Array) -> Array:
        """Return the multiple of the wide covariance, of 4 to 1e4, with the highest likelihood for a second moment."""
        assert self.wide is not None
        factor = float(np.trace(np.linalg.solve(self.wide, moment))) / len(moment)
        return np.asarray(self.wide * min(max(factor, 4.0), 1e4))

    def _extrapolated(self, past: list[tuple[Array, Array]], state: EmState, after: EmState) -> EmState | None:
        """Return the point extrapolated from the last points and their images (Anderson mixing), or None."""
        point, image = self._vector(state), self._vector(after)
        if point is None or image is None:
            past.clear()
            return None
        past.append((point, image))
        del past[:-6]
        if len(past) < 2:
            return None
        residuals = np.stack([image - point for point, image in past])
        images = np.stack([image for _, image in past])
        steps = np.diff(residuals, axis=0)
        product = steps @ steps.T
        diagonal(product)[:] *= 1.0 + 1e-10  # steps may be collinear
        try:
            mixing = np.linalg.solve(product, steps @ residuals[-1])
        except np.linalg.LinAlgError:
            return None
        return self._state(images[-1] - mixing @ np.diff(images, axis=0), state)

    def _vector(self, state: EmState) -> Array | None:
        """Return a point as one array in units of the features; None if a weight is next to 0."""
        mixture = state.mixture
        if mixture.weights.min() < EMPTY:
            return None
        units = self.units
        parts = [np.log(mixture.weights), mixture.means / units, 2 * np.log(state.kappa)]
        if mixture.loadings is None or mixture.uniquenesses is None:
            parts.append(mixture.covariances / np.multiply.outer(units, units))
        else:
            parts += [mixture.loadings / units[:, np.newaxis], np.log(mixture.uniquenesses / np.square(units))]
        return np.concatenate([part.ravel() for part in parts])

    def _state(self, vector: Array, like: EmState) -> EmState | None:
        """Return the point of an array, or None if a parameter is out of range."""
        K, d = like.mixture.means.shape
        logs, means, kappa, rest = np.split(vector, np.cumsum([K, K * d, d]))
        if not np.isfinite(vector).all() or np.abs(logs).max() > 700 or np.abs(kappa).max() > 40:
            return None
        units, F, D = self.units, like.mixture.loadings, like.mixture.uniquenesses
        if F is None or D is None:
            T = rest.reshape(K, d, d) * np.multiply.outer(units, units)
        else:
            F, D = rest[: F.size].reshape(F.shape) * units[:, np.newaxis], rest[F.size :].reshape(D.shape)
            if np.abs(D).max() > 700:
                return None
            D = np.maximum(np.exp(D) * np.square(units), self._floor)
            T = factor_covariances(F, D)
        if self.wide is not None:
            T[-1] = self.widened(T[-1])
        try:
            if F is None or self.wide is not None:
                np.linalg.cholesky(T)
        except np.linalg.LinAlgError:
            return None
        weights = np.exp(logs - logsumexp(logs))
        return EmState(type(like.mixture)(weights, means.reshape(K, d) * units, T, F, D), np.exp(0.5 * kappa))


def _factor_analysis(moment: Array, F: Array, D: Array, floor: Array) -> tuple[Array, Array]:
    """Return F and D after some steps of EM for ``moment ~ F F' + diag(D)`` (Rubin & Thayer 1982)."""
    for _ in range(10):  # each step raises the likelihood without reading the samples
        scaled = F / D[:, np.newaxis]
        inner = np.linalg.inv(np.eye(F.shape[1]) + F.T @ scaled)
        beta = inner @ scaled.T  # F' (F F' + D)^-1
        crossed = moment @ beta.T
        second = inner + beta @ crossed
        F = np.asarray(np.linalg.solve(second.T, crossed.T).T, dtype=np.float64)
        D = np.maximum(np.diag(moment) + np.einsum("jr,jr->j", F, F @ second - 2 * crossed), floor)
    return F, D


def low_rank(covariance: Array, rank: int) -> tuple[Array, Array]:
    """Return F and D with ``F F' + diag(D)`` near a covariance: the first principal axes of its correlations."""
    units = np.sqrt(np.diag(covariance))
    values, axes = np.linalg.eigh(covariance / np.multiply.outer(units, units))
    first = axes[:, ::-1][:, :rank] * np.sqrt(np.maximum(values[::-1][:rank], 0.0))
    # D is at least a tenth of the variance: from 0 EM would not move.
    F = first * np.sqrt(np.minimum(1.0, 0.9 / np.maximum(np.square(first).sum(axis=1), 0.9)))[:, np.newaxis]
    D = 1.0 - np.square(F).sum(axis=1)
    return F * units[:, np.newaxis], D * units**2


# --- one Gaussian, for missing values ----------------------------------------------------------------------


def population_of(
    X: Values, X_err: ErrorBars, sample_weight: Array | None = None, *, gaps: bool | None = None
) -> Population:
    """Return the Gaussian population of dense samples with error bars.

    Means and spreads are those of all samples; the covariance is that of a subsample. Without missing values it is the
    covariance of the values minus that of the noise; with missing values EM fits it, or with many features it is made
    from the pairs of measured values. ``gaps`` is as in :meth:`gaussguru.errors.Population.of`.
    """
    gaps = has_unmeasured(X_err) if gaps is None else gaps
    marginal = Population.of(X, X_err, sample_weight, gaps=gaps)
    values = as_numbers(X, "X")
    used = np.arange(len(values)) if sample_weight is None else np.flatnonzero(sample_weight)
    part = used[covariance_rows(len(used), values.shape[1], gaps=gaps)]
    errors = None if X_err is None else take_rows(X_err, part)
    weight = None if sample_weight is None else sample_weight[part]
    return with_covariance(marginal, take_rows(values, part), errors, weight, gaps=gaps)


def covariance_rows(n: int, n_features: int, *, gaps: bool) -> Index:
    """Return the sorted numbers of the rows, of n with positive weight, from which the covariance is computed."""
    few = 10_000 if gaps else max(2000, 4 * n_features)  # more rows change the covariance by next to nothing
    return np.arange(n) if n <= few else np.sort(np.random.default_rng(0).choice(n, few, replace=False))


def with_covariance(
    marginal: Population, values: MixedArray, X_err: object, weight: Array | None, *, gaps: bool
) -> Population:
    """Return a population with the means and spreads of ``marginal`` and the covariance of a subsample."""
    d = values.shape[1]
    # Correlations of more features are ignored (32 MB). The estimator reports values that are not finite.
    if d > 2048 or not np.isfinite(marginal.spreads).all():
        return marginal
    rows = read(values, X_err)
    covariance = _pairs(rows, weight, marginal)
    if gaps and d <= 40:
        units = units_of(marginal.means, marginal.spreads)
        covariance = positive(covariance, units)
        start = EmState(Mixture(np.ones(1), marginal.means[np.newaxis], covariance[np.newaxis]), np.ones(d))
        mixture = Em(units, LEAST, tol=0.01, max_iter=100).run(Sample(rows, weight), start).state.mixture
        # Rounding moves the mean of a constant feature; a mean of 0 would then become its unit (units_of).
        means = np.where(marginal.spreads > 0, mixture.means[0], marginal.means)
        return Population(means, marginal.spreads, mixture.covariances[0])
    return replace(marginal, covariance=covariance)


def _pairs(rows: Readings, weight: Array | None, marginal: Population) -> Array:
    """Return the covariance of pairs of values that were both measured, minus that of the noise.

    Correlations are shrunk by a factor: a covariance of few samples has directions of next to no variance by chance,
    and with entries from different samples many more (measured with 60 to 200 features of two common factors).
    """
    sample = Sample(rows, weight)
    C, totals, s = sample.pairs(marginal.means)
    if rows.is_diagonal:
        counts = totals if rows.known is None else np.maximum(s @ rows.known.astype(np.float64), 1e-300)
        diagonal(C)[:] -= s @ np.broadcast_to(rows.noise, rows.shape) / counts
    else:
        C -= rows.total_noise(s) / totals
    d, n = rows.n_features, sample.size
    shrinkage = d / (d + n) if rows.known is None else min(0.5, math.sqrt(d / n))
    variances = np.diag(C).copy()
    C *= 1.0 - shrinkage
    diagonal(C)[:] = variances
    return np.asarray(C)
