"""A population of true values, a mixture of Gaussians, seen through error bars that differ from sample to sample.

A sample is ``x = t + e`` with the truth ``t ~ sum_k pi_k N(mu_k, T_k)`` and the noise ``e ~ N(0, S)``. With

::

    C = T_k + S,   P = C^-1,   r = x - mu_k,   a = P r

component k has the density ``N(r; 0, C)``, and in it ``t | x ~ N(mu_k + T_k a, T_k - T_k P T_k)``. Rows and columns of
missing values are left out of C; in P and a they are 0. An exact value has a 0 in S. So neither needs an infinite or
large number, and neither adds rounding errors.

EM (Bovy, Hogg & Roweis 2011, Ann. Appl. Stat. 5, *Extreme deconvolution*) needs three sums of each component,
``sum q a``, ``sum q a a'`` and ``sum q P``, with the probabilities ``q_ik`` of the components.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from gaussguru._errors.arrays import any_roots
from gaussguru._errors.given import LowRank
from gaussguru._native import _binding
from gaussguru._populations.readings import Readings
from gaussguru._utils.linalg import Array, Index, log_sum, shares_of
from gaussguru._utils.types import BlockMap, ErrorBars


class ComponentView(NamedTuple):
    """A block of samples under one component."""

    log_densities: Array
    solved: Array  # a
    whitener: Array  # J with P = J' J, in the order of the compiled loops; 0 for missing values
    limited: "tuple[Index, Limited] | None"  # row numbers of samples with limits, and their posteriors

    @property
    def precisions(self) -> Array:
        """P, of shape (n_samples, n_features, n_features)."""
        return _binding.precisions(self.whitener, *self.solved.shape)


class Limited(NamedTuple):
    """Posteriors of samples within limits."""

    means: Array
    covariances: Array
    noise: Array  # E[e^2] / r^2 of the errors e of limits, of variance r^2; 0 for other values


class Sums(NamedTuple):
    """Sums over rows for an iteration of EM; arrays have a leading axis of components."""

    objective: float  # the logarithm of the likelihood
    weight: Array  # sum q
    first: Array  # sum q a
    second: Array  # sum q a a'
    precision: Array  # sum q P
    noise: Array  # sum q (1 + s_j^2 (a_j^2 - P_jj)) of every feature
    noise_weight: Array  # the divisor of ``noise``


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussians: the distribution of true values.

    Parameters
    ----------
    weights : array of shape (n_components,)
    means : array of shape (n_components, n_features)
    covariances : array of shape (n_components, n_features, n_features)
    loadings, uniquenesses : arrays of shape (n_components, n_features, rank) and (n_components, n_features), or None
        F and D, where the covariances are ``F F' + diag(D)``.
    """

    weights: Array
    means: Array
    covariances: Array
    loadings: Array | None = None
    uniquenesses: Array | None = None

    @property
    def n_components(self) -> int:
        """The number of components."""
        return len(self.weights)

    @property
    def mean(self) -> Array:
        """The mean of the population."""
        return np.asarray(self.weights @ self.means)

    @property
    def covariance(self) -> Array:
        """The covariance of the population."""
        deviations = self.means - self.mean
        within = np.einsum("k,kij->ij", self.weights, self.covariances)
        return np.asarray(within + (deviations * self.weights[:, np.newaxis]).T @ deviations)

    def in_units(self, units: Array) -> Self:
        """Return the same distribution in other units, one for each feature."""
        outer = np.multiply.outer(units, units)
        loadings = None if self.loadings is None else self.loadings / units[:, np.newaxis]
        uniquenesses = None if self.uniquenesses is None else self.uniquenesses / np.square(units)
        return replace(
            self,
            means=self.means / units,
            covariances=self.covariances / outer,
            loadings=loadings,
            uniquenesses=uniquenesses,
        )

    def view(self, k: int, rows: Readings) -> Any:
        """Return a block of samples under component k, a :class:`ComponentView`."""
        mean, T = self.means[k], self.covariances[k]
        known = None if rows.known is None else np.ascontiguousarray(rows.known).view(np.uint8)
        residuals = np.ascontiguousarray(rows.values - mean, dtype=np.float64)
        whitened = _binding.whiten(np.ascontiguousarray(T), np.ascontiguousarray(rows.noise), residuals, known)
        if whitened is None:
            raise ValueError(
                "the population is singular: features that depend on each other were measured without error; "
                "increase ridge"
            )
        logs, solved, J = whitened
        logs -= 0.5 * math.log(2 * math.pi) * rows.counts
        limited = None
        if rows.sides is not None and rows.sides.any():
            few = np.flatnonzero(rows.sides.any(axis=1))
            P = ComponentView(logs, solved, J, None).precisions[few]
            chances, within = _within_limits(mean + solved[few] @ T, T - T @ P @ T, rows[few])
            logs[few] += chances
            limited = (few, within)
        return ComponentView(logs, solved, J, limited)

    def joint(self, rows: Readings) -> tuple[list[Any], Array]:
        """Return the views of all components, and the logarithms of ``pi_k N(x; mu_k, C_k)``, (n_rows, K)."""
        views = [self.view(k, rows) for k in range(self.n_components)]
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights) + np.column_stack([view.log_densities for view in views])
        return views, logs

    @property
    def width(self) -> int:
        """Numbers in memory per row."""
        return int(self.means.shape[1] ** 2)

    def sums(self, rows: Readings, weight: Array | None, with_noise: bool = False) -> Any:
        """Return the sums of EM over a block of samples: :class:`Sums`."""
        views, logs = self.joint(rows)
        total = log_sum(logs, axis=1)
        shares = shares_of(logs)
        K, d = self.means.shape
        first, second, precision = np.zeros((K, d)), np.zeros((K, d, d)), np.zeros((K, d, d))
        s = np.ones(len(rows)) if weight is None else weight
        noise, noise_weight = np.zeros(d), np.zeros(d)
        for k, view in enumerate(views):
            q, a = shares[:, k] * s, view.solved
            if with_noise:
                noise += _noise_ratio(rows, view, q)
            if view.limited is not None:
                # a and P of a measurement that has the same posterior
                few, within = view.limited
                inverse = np.linalg.inv(self.covariances[k])
                a[few] = (within.means - self.means[k]) @ inverse
                inner = np.einsum("i,ijk->jk", q[few], within.covariances)
                precision[k] = q[few].sum() * inverse - inverse @ inner @ inverse
            first[k] = q @ a
            second[k] = (a * q[:, np.newaxis]).T @ a
            if view.limited is not None:
                q[view.limited[0]] = 0.0
            precision[k] += _binding.add_precisions(view.whitener, q, d)
        if with_noise:
            noise_weight = _noise_weight(rows, s)
        return Sums(float(s @ total), s @ shares, first, second, precision, noise, noise_weight)

    def posterior(self, k: int, rows: Readings, view: ComponentView | None = None) -> tuple[Array, Array]:
        """Return the mean and a factor M of the covariance ``M M'`` of the truth of every sample, in component k.

        With ``G = T P`` and ``T = L L'`` it is ``T - T P T = G S G' + (I - G) T (I - G)'``, so M holds
        ``G S^(1/2)`` and ``(I - G) L``: nothing cancels in any units and for any noise. The mean is ``mu + T a`` or, if
        the noise is less than T, ``x - S a``: exact values do not change, and have no covariance.
        """
        view = self.view(k, rows) if view is None else view
        T, d = self.covariances[k], rows.n_features
        G = T @ view.precisions
        noise = rows.noise
        error = noise * view.solved if noise.ndim == 2 else np.einsum("ijk,ik->ij", noise, view.solved)
        near = rows.is_known & (rows.noise_variances <= np.diag(T))
        means = np.where(near, rows.values - error, self.means[k] + view.solved @ T)
        rest = -G
        np.einsum("ijj->ij", rest)[:] += 1.0
        root = any_roots(T)
        spread = G * np.sqrt(noise)[:, np.newaxis, :] if noise.ndim == 2 else G @ any_roots(noise)
        factor = np.empty((len(rows), d, 2 * d))
        factor[:, :, :d], factor[:, :, d:] = spread, rest @ root
        factor[rows.is_known & (rows.noise_variances == 0)] = 0.0
        if view.limited is not None:
            few, within = view.limited
            means[few] = within.means
            factor[few, :, :d], factor[few, :, d:] = any_roots(within.covariances), 0.0
        return means, factor

    def shares(self, rows: Readings) -> Array:
        """Return the probability of each component for every sample."""
        parts = [shares_of(self.joint(rows[part])[1]) for part in rows.blocks(self.width)]
        return np.concatenate([np.zeros((0, self.n_components)), *parts])

    def log_likelihood(self, rows: Readings, mapped: BlockMap = map) -> Array:
        """Return the log density of the measured values of every sample."""
        parts = mapped(lambda part: log_sum(self.joint(rows[part])[1], axis=1), rows.blocks(self.width))
        return np.concatenate([np.zeros(0), *parts])

    def moments(self, rows: Readings, mapped: BlockMap = map) -> tuple[Array, ErrorBars]:
        """Return mean and covariance of the truth of every sample."""
        d = rows.n_features
        means, covariances = np.empty((len(rows), d)), np.empty((len(rows), d, d))

        def fill(part: slice) -> None:
            block = rows[part]
            views, logs = self.joint(block)
            shares = shares_of(logs)
            centres, spreads = zip(*(self.posterior(k, block, view) for k, view in enumerate(views)), strict=True)
            means[part] = _averaged(shares, centres)
            total = np.zeros((len(block), d, d))
            for k, (centre, M) in enumerate(zip(centres, spreads, strict=True)):
                q = np.sqrt(shares[:, k, np.newaxis])
                total += shares[:, k, np.newaxis, np.newaxis] * (M @ M.transpose(0, 2, 1))
                deviations = q * (centre - means[part])
                total += deviations[:, :, np.newaxis] * deviations[:, np.newaxis, :]
            covariances[part] = total

        for _ in mapped(fill, rows.blocks(self.width)):
            pass
        return means, covariances

    def scores(self, rows: Readings, coef: Array, intercept: Array, mapped: BlockMap = map) -> tuple[Array, Array]:
        """Return means (n, K, r) and covariances (n, K, r, r) of ``W t + b``, component by component."""
        n, K, r = len(rows), self.n_components, len(coef)
        means, covariances = np.empty((n, K, r)), np.empty((n, K, r, r))

        def fill(part: slice) -> None:
            block = rows[part]
            for k in range(K):
                centres, covariances[part, k] = self._component_scores(k, block, coef)
                means[part, k] = centres @ coef.T + intercept

        for _ in mapped(fill, rows.blocks(self.width)):
            pass
        return means, covariances

    def _component_scores(self, k: int, rows: Readings, coef: Array) -> tuple[Array, Array]:
        """Return the means of the truth in component k, and the covariances of ``W t``."""
        centres, M = self.posterior(k, rows)
        along = coef @ M
        return centres, along @ along.transpose(0, 2, 1)

    def posterior_variances(self, rows: Readings, U: Array, mapped: BlockMap = map) -> Array:
        """Return the posterior variance of ``u.t`` for every sample and row u of U, (n_samples, len(U))."""
        variances = np.empty((len(rows), len(U)))

        def fill(part: slice) -> None:
            block = rows[part]
            means, covariances = self.scores(block, U, np.zeros(len(U)))
            shares = self.shares(block)
            deviations = means - np.einsum("ik,ikr->ir", shares, means)[:, np.newaxis]
            squares = np.einsum("ikrr->ikr", covariances) + np.square(deviations)
            variances[part] = np.einsum("ik,ikr->ir", shares, squares)

        for _ in mapped(fill, rows.blocks(max(self.width, self.n_components * len(U) ** 2))):
            pass
        return variances

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, Index]:
        """Return true values drawn from the population, and which component each is from."""
        labels = rng.choice(self.n_components, size=n_samples, p=self.weights / self.weights.sum())
        normal = rng.standard_normal((n_samples, self.means.shape[1]))
        roots = any_roots(self.covariances)
        return self.means[labels] + np.einsum("ijk,ik->ij", roots[labels], normal), labels


class FactorView(NamedTuple):
    """A block of samples under a component of few factors, ``t = mu + F z + u``."""

    log_densities: Array
    factors: Array  # mean of z
    covariances: Array  # of z
    shares: Array  # g = S / (D + S), the unknown fraction of u; 1 for missing values
    known: Array  # c = D / (D + S) (x - mu)


class FactorSums(NamedTuple):
    """Sums over rows for an iteration of EM with components of few factors."""

    objective: float
    weight: Array  # sum q
    first: Array  # sum q E[t - mu]
    squares: Array  # sum q E[(t - mu)_j^2]
    crossed: Array  # sum q E[(t - mu) z']
    factors: Array  # sum q E[z]
    second: Array  # sum q E[z z']
    noise: Array
    noise_weight: Array


def added(one: Any, other: Any) -> Any:
    """Return two :class:`Sums` or :class:`FactorSums` added."""
    return type(one)(*(a + b for a, b in zip(one, other, strict=True)))


@dataclass(frozen=True)
class FactorMixture(Mixture):
    """A mixture with covariances ``F F' + diag(D)``; with independent noise all matrices are (rank, rank).

    With ``W = 1 / (D + S)``, 0 for missing values, and ``M = I + F' W F``, the factors of a sample are
    ``z | x ~ N(M^-1 F' W r, M^-1)``, and ``t - mu = g F z + c + sqrt(D g) n`` with ``g = 1 - D W``, ``c = D W r`` and a
    standard normal ``n``. So V has the form of :class:`gaussguru.errors.LowRank`.
    """

    def suits(self, rows: Readings) -> bool:
        """Return whether the noise of samples is independent, and none of them is a limit."""
        return rows.is_diagonal and rows.sides is None

    @property
    def width(self) -> int:
        """Numbers in memory per row."""
        assert self.loadings is not None
        return int(self.means.shape[1] * (self.loadings.shape[2] + 4) + self.loadings.shape[2] ** 2)

    def _parts(self, k: int) -> tuple[Array, Array]:
        assert self.loadings is not None
        assert self.uniquenesses is not None
        return self.loadings[k], self.uniquenesses[k]

    def precision_diagonal(self, k: int) -> Array:
        """Return the diagonal of the inverse of a covariance."""
        F, D = self._parts(k)
        scaled = F / D[:, np.newaxis]
        inner = np.linalg.inv(np.eye(F.shape[1]) + F.T @ scaled)
        return np.asarray(1.0 / D - np.einsum("jr,rs,js->j", scaled, inner, scaled))

    def view(self, k: int, rows: Readings) -> Any:
        """Return a block of samples under component k, a :class:`FactorView` or :class:`ComponentView`."""
        if not self.suits(rows):
            return super().view(k, rows)
        F, D = self._parts(k)
        rank = F.shape[1]
        r = rows.values.astype(np.float64, copy=False) - self.means[k]
        noise = D + rows.noise
        W = 1.0 / noise
        logs, unknown = np.log(noise), rows.noise * W
        if rows.known is not None:
            r *= rows.known
            W *= rows.known
            logs *= rows.known
            unknown[~rows.known] = 1.0
        M = (W @ _products(F)).reshape(-1, rank, rank)
        np.einsum("irr->ir", M)[:] += 1.0
        covariances = np.asarray(np.linalg.inv(M), dtype=np.float64)
        pulled = (W * r) @ F
        z = np.einsum("irs,is->ir", covariances, pulled)
        # r' C^-1 r is the minimum over z of this sum of squares: rounding errors of z change it in second order only.
        rest = r - z @ F.T
        squares = np.einsum("ij,ij,ij->i", W, rest, rest) + np.einsum("ir,ir->i", z, z)
        densities = -0.5 * (squares + logs.sum(axis=1) + np.linalg.slogdet(M)[1] + rows.counts * math.log(2 * math.pi))
        return FactorView(densities, z, covariances, unknown, D * W * r)

    def _truth(self, k: int, view: FactorView) -> tuple[Array, Array]:
        """Return means of ``t - mu`` and its variances."""
        F, D = self._parts(k)
        g = view.shares
        inner = view.covariances.reshape(len(g), -1) @ _products(F).T
        return g * (view.factors @ F.T) + view.known, D * g + np.square(g) * inner

    def _centre(self, k: int, rows: Readings, view: FactorView) -> Array:
        """Return the means of the truth; exact values do not change."""
        F, _ = self._parts(k)
        error = view.shares * (rows.values - self.means[k] - view.factors @ F.T)
        far = self.means[k] + self._truth(k, view)[0]
        return np.asarray(np.where(view.shares <= 0.5, rows.values - error, far), dtype=np.float64)

    def sums(self, rows: Readings, weight: Array | None, with_noise: bool = False) -> Any:
        """Return the sums of EM over a block of samples."""
        if not self.suits(rows):
            return super().sums(rows, weight, with_noise)
        views, logs = self.joint(rows)
        total = log_sum(logs, axis=1)
        shares = shares_of(logs)
        s = np.ones(len(rows)) if weight is None else weight
        d = rows.n_features
        noise, noise_weight = np.zeros(d), np.zeros(d)
        parts = []
        for k, view in enumerate(views):
            q, (F, _) = shares[:, k] * s, self._parts(k)
            rank = F.shape[1]
            truth, variances = self._truth(k, view)
            z = view.factors
            seconds = (view.covariances + z[:, :, np.newaxis] * z[:, np.newaxis, :]).reshape(len(q), rank**2)
            spread = ((view.shares * q[:, np.newaxis]).T @ seconds).reshape(d, rank, rank)
            crossed = np.einsum("jrs,jr->js", spread, F) + (view.known * q[:, np.newaxis]).T @ z
            parts.append((
                q @ truth, q @ (np.square(truth) + variances), crossed, q @ z, (q @ seconds).reshape(rank, rank)
            ))  # fmt: skip
            if with_noise:
                squared = np.square(rows.values - self.means[k] - truth) + variances
                noise += q @ np.divide(squared, rows.noise, out=np.zeros_like(squared), where=rows.noise > 0)
        if with_noise:
            noise_weight = _noise_weight(rows, s)
        first, squares, crossings, factors, second = (np.stack(part) for part in zip(*parts, strict=True))
        likelihood, counted = float(s @ total), s @ shares
        return FactorSums(likelihood, counted, first, squares, crossings, factors, second, noise, noise_weight)

    def improved(self, sums: FactorSums, ridge: Array, floor: Array, empty: float) -> "FactorMixture":
        """Return the mixture after a step of EM.

        ``ridge`` is added to the sum of squares of each feature; D stays above ``floor``.
        """
        means = self.means.copy()
        loadings, uniquenesses = np.copy(np.asarray(self.loadings)), np.copy(np.asarray(self.uniquenesses))
        for k, N in enumerate(sums.weight):
            if empty > N:
                continue
            F, D = self._parts(k)
            rank = F.shape[1]
            scaled = F / D[:, np.newaxis]
            beta = np.linalg.solve(np.eye(rank) + F.T @ scaled, scaled.T)  # F' (F F' + D)^-1
            pseudo = ridge[:, np.newaxis] * beta.T
            # Regression of t on z and a constant; the constant is the step of the mean.
            left = np.column_stack([sums.crossed[k] + pseudo, sums.first[k]])
            right = np.empty((rank + 1, rank + 1))
            right[:rank, :rank] = sums.second[k] + beta @ pseudo
            right[:rank, rank] = right[rank, :rank] = sums.factors[k]
            right[rank, rank] = N
            solution = np.linalg.solve(right, left.T).T
            # The solution minimises this sum of squares: its rounding errors change it in second order only.
            rest = sums.squares[k] + ridge + np.einsum("jr,jr->j", solution, solution @ right - 2 * left)
            loadings[k], means[k] = solution[:, :rank], means[k] + solution[:, rank]
            uniquenesses[k] = np.maximum(rest / N, floor)
        weights = sums.weight / sums.weight.sum()
        return FactorMixture(weights, means, factor_covariances(loadings, uniquenesses), loadings, uniquenesses)

    def moments(self, rows: Readings, mapped: BlockMap = map) -> tuple[Array, ErrorBars]:
        """Return mean and covariance, :class:`gaussguru.errors.LowRank`, of the truth of every sample."""
        if not self.suits(rows):
            return super().moments(rows, mapped)
        n, d = rows.shape
        K, rank = self.n_components, self._parts(0)[0].shape[1]
        means, variances = np.zeros((n, d)), np.zeros((n, d))
        factors = np.zeros((n, d, K * rank + (K if K > 1 else 0)))

        def fill(part: slice) -> None:
            block = rows[part]
            views, logs = self.joint(block)
            shares = shares_of(logs)
            centres = [self._centre(k, block, view) for k, view in enumerate(views)]
            means[part] = _averaged(shares, centres)
            for k, view in enumerate(views):
                (F, D), q = self._parts(k), shares[:, k, np.newaxis]
                variances[part] += q * D * view.shares
                roots = F @ np.linalg.cholesky(view.covariances) * (np.sqrt(q) * view.shares)[:, :, np.newaxis]
                factors[part, :, k * rank : (k + 1) * rank] = roots
                if K > 1:
                    factors[part, :, K * rank + k] = np.sqrt(q) * (centres[k] - means[part])

        for _ in mapped(fill, rows.blocks(self.width)):
            pass
        return means, LowRank(factors, np.sqrt(variances))

    def _component_scores(self, k: int, rows: Readings, coef: Array) -> tuple[Array, Array]:
        """Return the means of the truth in component k, and the covariances of ``W t``."""
        if not self.suits(rows):
            return super()._component_scores(k, rows, coef)
        (F, D), view = self._parts(k), self.view(k, rows)
        along = coef @ (F @ np.linalg.cholesky(view.covariances) * view.shares[:, :, np.newaxis])
        unique = np.einsum("rj,ij,sj->irs", coef, D * view.shares, coef, optimize=True)
        return self._centre(k, rows, view), unique + along @ along.transpose(0, 2, 1)


def _products(F: Array) -> Array:
    """Return the products of the loadings of a feature, of shape (n_features, rank^2)."""
    return np.asarray((F[:, :, np.newaxis] * F[:, np.newaxis, :]).reshape(len(F), -1))


def _within_limits(means: Array, covariances: Array, rows: Readings) -> tuple[Array, Limited]:
    """Return the log probabilities that Gaussians are within limits, and the moments of the truncated Gaussians.

    On one feature, with the mean e and the variance v, an upper limit u of variance r^2 leaves ::

        A = sqrt(v + r^2),  z = (u - e) / A,  l = phi(z) / Phi(z):    e' = e - v l / A,   v' = v - v^2 l (l + z) / A^2

    and the other features follow by regression on it. The limit is replaced by the Gaussian factor ``exp(-tau f^2 / 2 +
    nu f)`` of the feature f that gives the same moments. Several limits are visited in turn, each with its old factor
    divided out. Their probability is that of the product of all factors, times the ratio of each limit to its factor
    (expectation propagation, Minka 2001). This is exact for one limit, and for limits on independent features.
    """
    assert rows.sides is not None
    assert rows.bounds is not None
    assert rows.doubts is not None
    means, covariances = means.copy(), covariances.copy()
    taus, nus, ratios, noise = np.zeros((4, *means.shape))
    total = np.zeros(len(means))
    moving = np.arange(len(means))
    for _ in range(50):
        before = means[moving], np.einsum("ijj->ij", covariances[moving])
        for j in np.flatnonzero(rows.sides[moving].any(axis=0)):
            i = moving[rows.sides[moving, j] != 0]
            side, doubt = rows.sides[i, j].astype(np.float64), rows.doubts[i, j]
            # Origin at the limit: the factors then have no large numbers.
            e, v = means[i, j] - rows.bounds[i, j], np.maximum(covariances[i, j, j], 1e-300)
            remaining = np.maximum(1.0 - taus[i, j] * v, 1e-10)  # fraction of the precision without this factor
            outer_e, outer_v = (e - v * nus[i, j]) / remaining, v / remaining
            A = np.sqrt(outer_v + doubt)
            z = side * outer_e / A
            with np.errstate(over="ignore"):
                ratio = math.sqrt(2 / math.pi) / erfcx(-z / math.sqrt(2))
            pull, bend = side * ratio / A, np.clip(ratio * (ratio + z), 0.0, 1.0) / np.square(A)
            new_e, new_v = outer_e + outer_v * pull, np.maximum(outer_v - np.square(outer_v) * bend, 1e-12 * outer_v)
            tau, nu = 1.0 / new_v - 1.0 / outer_v, new_e / new_v - outer_e / outer_v
            total[i] += _log_mean(e, v, tau - taus[i, j], nu - nus[i, j])
            ratios[i, j] = log_ndtr(z) - _log_mean(outer_e, outer_v, tau, nu)
            noise[i, j] = 1.0 + doubt * (np.square(pull) - bend)
            taus[i, j], nus[i, j] = tau, nu
            along = covariances[i, :, j] / v[:, np.newaxis]
            means[i] += along * (new_e - e)[:, np.newaxis]
            covariances[i] += along[:, :, np.newaxis] * along[:, np.newaxis, :] * (new_v - v)[:, np.newaxis, np.newaxis]
        after = np.einsum("ijj->ij", covariances[moving])
        settled = 1e-9  # the change, in standard deviations, at which the rounds over the limits stop
        far = np.square(means[moving] - before[0]) > settled**2 * after
        far |= np.abs(after - before[1]) > settled * after
        moving = moving[far.any(axis=1) & (np.count_nonzero(rows.sides[moving], axis=1) > 1)]
        if not len(moving):
            break
    return total + ratios.sum(axis=1), Limited(means, covariances, noise)


def _log_mean(e: Array, v: Array, tau: Array, nu: Array) -> Array:
    """Return ``log E exp(-tau f^2 / 2 + nu f)`` of ``f ~ N(e, v)``."""
    slope, grown = nu - tau * e, 1.0 + tau * v
    return np.asarray(e * (nu - 0.5 * tau * e) + 0.5 * (np.square(slope) * v / grown - np.log(grown)))


def _noise_ratio(rows: Readings, view: ComponentView, q: Array) -> Array:
    """Return ``sum q E[e_j^2] / s_j^2 = sum q (1 + s_j^2 (a_j^2 - P_jj))`` of every feature with noise.

    If the noise is correlated, all features get the common ratio ``E[e' S^-1 e] / n``.
    """
    noise, a = rows.noise, view.solved
    if noise.ndim == 2:
        P = np.einsum("ijj->ij", view.precisions)
        ratios = (1.0 + noise * (np.square(a) - P)) * (noise > 0)
        if view.limited is not None:
            few, within = view.limited
            size = np.where(noise[few] > 0, noise[few], np.inf)
            squared = np.square(rows.values[few] - within.means) + np.einsum("ijj->ij", within.covariances)
            ratios[few] = squared / size + within.noise * _has_doubt(rows[few])
        return np.asarray(q @ ratios)
    trace = np.einsum("ij,ijk,ik->i", a, noise, a, optimize=True) - np.einsum("ijk,ijk->i", noise, view.precisions)
    return np.full(a.shape[1], float(q @ (np.count_nonzero(rows.noise_variances > 0, axis=1) + trace)))


def _averaged(shares: Array, centres: Sequence[Array]) -> Array:
    """Return the means of components, weighted by shares with sum 1; equal means without rounding errors."""
    first, *others = centres
    moves = (shares[:, k, np.newaxis] * (centre - first) for k, centre in enumerate(others, start=1))
    return np.asarray(sum(moves, start=first))


def _has_doubt(rows: Readings) -> NDArray[np.bool_]:
    """Return the mask of limits with an error."""
    assert rows.doubts is not None
    return rows.doubts > 0


def _noise_weight(rows: Readings, weight: Array) -> Array:
    noisy = rows.noise_variances > 0
    if rows.is_diagonal:
        return np.asarray(weight @ (noisy if rows.doubts is None else noisy | _has_doubt(rows)))
    return np.full(rows.n_features, float(weight @ np.count_nonzero(noisy, axis=1)))


def factor_covariances(F: Array, D: Array) -> Array:
    """Return ``F F' + diag(D)`` of every component."""
    T: Array = F @ F.transpose(0, 2, 1)
    np.einsum("kjj->kj", T)[:] += D
    return T
