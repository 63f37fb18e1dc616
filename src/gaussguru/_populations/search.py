"""The search for the most likely population of readings in memory: starts, subsamples, then all rows."""

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from gaussguru._populations.em import Em, EmState, Fit, Sample, StreamedSample, low_rank
from gaussguru._populations.mixtures import FactorMixture, Mixture
from gaussguru._populations.readings import is_flat, lengths, noise_range, read_parts, varies
from gaussguru._rows.streams import Blocks
from gaussguru._utils.checks import ParameterError
from gaussguru._utils.linalg import Array
from gaussguru._utils.stages import stage
from gaussguru._utils.types import BlockMap, Estimator


@dataclass(frozen=True)
class InformativeSample:
    """Readings without uninformative values; per feature: missing values, unit, mean and largest error kept."""

    sample: Sample
    gaps: NDArray[np.bool_]
    spreads: Array
    means: Array
    limits: Array

    @classmethod
    def of(cls, sample: Sample) -> "InformativeSample":
        """Return readings without uninformative values, and a summary of the features."""
        rows, weight = sample.rows, sample.weight
        known, noise, gaps = rows.is_known, rows.noise_variances, rows.gaps
        s = np.ones(len(rows)) if weight is None else weight / weight.max()
        values = rows.values.astype(np.float64, copy=False)
        d = rows.n_features
        limits = np.full(d, np.inf)
        for j in range(d):
            measured = known[:, j]
            if not measured.any():
                raise ValueError(f"feature {j} was measured for no sample: leave it out")
            # The half with smaller errors, as others may be anywhere; all values if that half is constant. That half is
            # never left out.
            for chosen in (measured & (noise[:, j] <= _median(noise[measured, j], s[measured])), measured):
                mean, spread = _mean_and_spread(values[chosen, j], s[chosen])
                if not is_flat(mean, spread):
                    limits[j] = max(10.0 * spread, float(np.sqrt(noise[chosen, j].max())))
                    break
        rows = rows.informative(limits)
        moments = [_mean_and_spread(values[measured, j], s[measured]) for j, measured in enumerate(rows.is_known.T)]
        means, spreads = np.array(moments).T
        sizes = lengths(means, spreads, noise_range(rows)[2])
        return cls(replace(sample, rows=rows), gaps, sizes, means, limits)


def _median(values: Array, weight: Array) -> float:
    """Return the least value that half of the weight does not exceed."""
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(below, (0.5 - 1e-9) * below[-1])]])  # rounded sums of 1/3


def _mean_and_spread(values: Array, weight: Array) -> tuple[float, float]:
    total = weight.sum()
    mean = float(weight @ values / total)
    return mean, float(np.sqrt(weight @ np.square(values - mean) / total))


class Search:
    """A search.

    All is computed in ``units``, the power of two next to the spread of each feature: the path of a search, and where
    it ends, do not depend on the units of X.

    Parameters
    ----------
    model : gaussguru.population.Deconvolve
        Its parameters are those of the search.
    informative : InformativeSample
    rng : Generator
    """

    def __init__(self, model: Estimator, informative: InformativeSample, rng: np.random.Generator) -> None:
        self.model, self.rng, self.passes = model, rng, 0.0
        self.units = np.exp2(np.clip(np.round(np.log2(informative.spreads)), -500, 500))
        rows = informative.sample.rows.in_units(self.units)
        self.sample = replace(informative.sample, rows=rows)
        self.gaps, self.limits = informative.gaps, informative.limits
        self.spreads, self.means = informative.spreads / self.units, informative.means / self.units
        self.known = np.average(rows.is_known, axis=0, weights=self.sample.weight)  # the share of samples with a value
        self.order = rng.permutation(len(rows))
        n, d = rows.shape
        most = model.n_components if isinstance(model.n_components, int) else 1
        if n < 2 * most:
            words = f"{model.n_components!r} needs at least {2 * most} samples of positive weight; got n_samples={n}"
            raise ParameterError("n_components", words)
        if model.rank is not None and model.rank > d:
            raise ValueError(f"rank must be at most the number of features, {d}; got {model.rank}")
        free = varies(*noise_range(rows)[:2], is_diagonal=rows.is_diagonal) if model.scale_errors else None
        self.em = Em(self.spreads, float(model.ridge), float(model.tol), model.max_iter, model.rank, free)

    def run(self, start: EmState | None, mapped: BlockMap) -> Fit:
        """Return the population of all rows."""
        self.sample = replace(self.sample, map=mapped)
        n = len(self.sample)
        if start is not None:
            start = replace(start, mixture=start.mixture.in_units(self.units))
            if self.model.outliers:
                one = self._one(self.sample).state.mixture
                self.em = replace(self.em, wide=one.covariances[0])
                means, covariances = start.mixture.means.copy(), start.mixture.covariances.copy()
                means[-1], covariances[-1] = one.means[0], self.em.widened(covariances[-1])
                start = replace(start, mixture=replace(start.mixture, means=means, covariances=covariances))
            return self._ascend(self.em, self.sample, start)
        size = min(10_000, n)  # with which numbers of components are compared, and starts
        K = self.model.n_components
        if isinstance(K, str):
            K = self._number(self._first(size))
        with stage(self.model, f"starts and EM of {size} samples"):
            fit = self._fit(self._first(size), K)
        while size < n:
            size = n if n <= 4 * size else 4 * size
            with stage(self.model, f"EM of {size} samples"):
                fit = self._ascend(self.em, self._first(size), fit.state)
        return fit

    def run_all(self, parts: Blocks, state: EmState) -> Fit:
        """Return the population of all parts of a source, from that of its subsample on."""
        parts, features = read_parts(parts, self.limits, self.means, self.units)
        self.spreads, self.gaps, self.known = features.lengths, features.gaps, features.known
        free = features.varying if self.model.scale_errors else None
        with stage(self.model, f"EM of all {features.n_rows} samples"):
            em = replace(self.em, units=self.spreads, free_kappa=free)
            fit = em.run(StreamedSample(parts, features.n_rows, features.total), state)
        self.passes = 3.0 + fit.n_iter  # two for the subsample, and one for the spreads
        return fit

    def _ascend(self, em: Em, sample: Sample, start: EmState) -> Fit:
        """Return the result of EM on some rows, and count its passes, in units of all rows."""
        fit = em.run(sample, start)
        self.passes += fit.n_iter * len(sample) / len(self.sample)
        return fit

    def _first(self, size: int) -> Sample:
        """Return the first ``size`` rows of a random order, so that subsamples are nested."""
        return self.sample if size == len(self.sample) else self.sample[np.sort(self.order[:size])]

    def _number(self, sample: Sample) -> int:
        """Return the number of components chosen by the likelihood of held-out samples.

        A further component must raise their mean log-likelihood by more than its standard error, and by more than the
        accuracy of EM.
        """
        n, n_folds = len(sample), 5
        fold = self.rng.permutation(n) % n_folds
        folds = range(n_folds if n < 1000 else 1)  # of many rows one fold is precise enough
        insides = [sample[np.flatnonzero(fold != k)] for k in folds]
        outsides = [sample[np.flatnonzero(fold == k)] for k in folds]
        held_weight = None if sample.weight is None else np.concatenate([held.weight for held in outsides])
        best, logs = 0, np.zeros(0)
        singles = [self._one(inside) for inside in insides]
        for K in range(1, min(5, min(map(len, insides)) // 2) + 1):
            parts, done = [], count(1)
            for inside, held, one in zip(insides, outsides, singles, strict=True):
                with stage(self.model, f"{K} components: fold", done, len(folds)):
                    state = self._fit(inside, K, one).state
                parts.append(state.mixture.log_likelihood(held.rows.scaled(state.kappa), held.map))
            new = np.concatenate(parts)
            if best:
                gain = new - logs
                mean = np.average(gain, weights=held_weight)
                error = np.sqrt(np.average(np.square(gain - mean), weights=held_weight) / len(gain))
                if mean <= max(error, self.em.resolution(state.mixture, sample)):
                    break
            best, logs = K, new
        return max(best, 1)

    def _one(self, sample: Sample) -> Fit:
        """Return the fit of one component."""
        return self._ascend(replace(self.em, wide=None), sample, self._single(sample))

    def _fit(self, sample: Sample, K: int, one: Fit | None = None) -> Fit:
        """Return the best fit of K components from several starts, given the fit of one component."""
        one = self._one(sample) if one is None else one
        if K == 1 and not self.model.outliers:
            return one
        T = one.state.mixture.covariances[0]
        if K == 1:
            starts = [one.state]
        else:
            trial = sample[:3000]  # starts are compared by 20 iterations on these
            means, _ = one.state.mixture.moments(trial.rows.scaled(one.state.kappa), trial.map)
            points = np.linalg.solve(np.linalg.cholesky(T), (means - one.state.mixture.means[0]).T).T
            starts = [self._start(points, means, trial.weight, K, one.state) for _ in range(self.model.n_init)]
        if self.model.outliers:
            self.em = replace(self.em, wide=T)
            starts = [_widened(start, one.state.mixture.means[0], T) for start in starts]
        if len(starts) > 1:
            short = replace(self.em, max_iter=min(20, self.model.max_iter))
            trials = [self._ascend(short, trial, start) for start in starts]
            # The first of equally good starts, independent of rounding errors.
            starts = [max(trials, key=lambda trial: round(trial.objective, 6)).state]
        return self._ascend(self.em, sample, starts[0])

    def _single(self, sample: Sample) -> EmState:
        """Return a start of one Gaussian: the covariance of the measured values minus that of the noise."""
        units, (C, totals, s) = self.spreads, sample.pairs(self.means)
        C /= np.multiply.outer(units, units)
        noise = (s[:, np.newaxis] * sample.rows.noise_variances).sum(axis=0)
        noise = noise / np.diag(np.broadcast_to(totals, C.shape)) / np.square(units)
        values, axes = np.linalg.eigh(C - np.diag(noise))
        # Axes below the floor keep their order: of equal ones, rounding would choose the first factor.
        T = (axes * np.maximum(values, np.linspace(0.05, 0.06, len(units)))) @ axes.T * np.multiply.outer(units, units)
        return self._state(np.ones(1), self.means[np.newaxis], T[np.newaxis], np.ones(len(units)))

    def _state(self, weights: Array, means: Array, covariances: Array, kappa: Array) -> EmState:
        if self.model.rank is None:
            return EmState(Mixture(weights, means, covariances), kappa)
        parts = [low_rank(T, self.model.rank) for T in covariances]
        F, D = np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts])
        T = F @ F.transpose(0, 2, 1) + np.stack([np.diag(diagonal) for diagonal in D])
        # The wide component has no factors.
        kind = Mixture if self.model.outliers else FactorMixture
        return EmState(kind(weights, means, T, F, D), kappa)

    def _start(self, points: Array, values: Array, weight: Array | None, K: int, one: EmState) -> EmState:
        """Return a start with the moments of K clusters of whitened points."""
        labels = _clusters(points, K, self.rng)
        s = np.ones(len(points)) if weight is None else weight
        T = one.mixture.covariances[0]
        weights, means, covariances = np.empty(K), np.empty((K, len(T))), np.empty((K, len(T), len(T)))
        for k in range(K):
            q = s * (labels == k)
            weights[k] = q.sum()
            means[k] = q @ values / q.sum()
            deviations = values - means[k]
            # A fifth of the covariance of all samples keeps that of small clusters positive definite.
            covariances[k] = 0.8 * (deviations * q[:, np.newaxis]).T @ deviations / q.sum() + 0.2 * T
        return self._state(weights / weights.sum(), means, covariances, one.kappa)


def _widened(state: EmState, mean: Array, T: Array) -> EmState:
    """Return a mixture with a further, wide component of weight 0.05."""
    mixture = state.mixture
    loadings, uniquenesses = mixture.loadings, mixture.uniquenesses
    if loadings is not None and uniquenesses is not None:
        loadings = np.concatenate([loadings, loadings[:1]])
        uniquenesses = np.concatenate([uniquenesses, uniquenesses[:1]])
    return EmState(
        Mixture(
            np.append(0.95 * mixture.weights, 0.05),
            np.vstack([mixture.means, mean]),
            np.concatenate([mixture.covariances, 10.0 * T[np.newaxis]]),
            loadings,
            uniquenesses,
        ),
        state.kappa,
    )


def _clusters(points: Array, K: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return clusters by k-means, none of them empty (k-means++: Arthur & Vassilvitskii 2007)."""
    n = len(points)
    squares = np.einsum("ij,ij->i", points, points)

    def distances(centres: Array) -> Array:
        result = squares[:, np.newaxis] - 2 * points @ centres.T + np.square(centres).sum(axis=1)
        return np.asarray(np.maximum(result, 0.0))

    centres = points[[rng.integers(n)]]
    while len(centres) < K:
        near = distances(centres).min(axis=1)
        total = near.sum()
        centres = np.vstack([centres, points[rng.choice(n, p=near / total if total > 0 else None)]])
    for _ in range(10):
        labels = distances(centres).argmin(axis=1)
        for k in range(K):
            if not np.any(labels == k):
                labels[rng.integers(n)] = k
        for k in range(K):
            if np.any(labels == k):
                centres[k] = points[labels == k].mean(axis=0)
    missing = np.setdiff1d(np.arange(K), labels)
    labels[rng.choice(n, len(missing), replace=False)] = missing
    return np.asarray(labels)
