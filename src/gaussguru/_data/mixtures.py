"""A population of true values, a mixture of Gaussians, seen through error bars that differ from sample to sample.

A sample is ``x = t + e`` with the truth ``t ~ sum_k pi_k N(mu_k, T_k)`` and the noise ``e ~ N(0, S)``. With

::

    C = T_k + S,   P = C^-1,   r = x - mu_k,   a = P r

component k has the density ``N(r; 0, C)``, and in it ``t | x ~ N(mu_k + T_k a, T_k - T_k P T_k)``. Rows and columns of
what was not measured are left out of C: in P and a they are 0. An exact value has a 0 in S. Both are therefore
without rounding of their own: no infinity and no large number is ever formed.

EM (Bovy, Hogg & Roweis 2011, Ann. Appl. Stat. 5, *Extreme deconvolution*) needs three sums of each component,
``sum q a``, ``sum q a a'`` and ``sum q P``, with the probabilities ``q_ik`` of the components.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils import assert_all_finite

from gaussguru._data.rows import BlockMap
from gaussguru._linalg import Array, Index, diagonal
from gaussguru.errors import ROUNDING, LowRank, as_numbers

# Numbers of the matrices C that are held at a time by a thread: they should stay in the cache.
BLOCK = 1 << 17
# A sample whose component has less than this probability does not count in its sums: the inverse is saved.
NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class Readings:
    """Values and their noise, checked: finite everywhere, and 0 where nothing was measured.

    ``variances`` are those of independent noise; ``factors`` add ``F_i F_i'``; ``covariances`` stand alone.
    """

    values: NDArray[Any]
    variances: Array | None
    known: NDArray[np.bool_] | None = None
    factors: Array | None = None
    covariances: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Readings":
        parts = (self.values, self.variances, self.known, self.factors, self.covariances)
        return Readings(*(None if part is None else part[index] for part in parts))  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values."""
        return self.values.shape

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.values.shape[1])

    @property
    def is_diagonal(self) -> bool:
        """Whether the noise of different features is independent."""
        return self.factors is None and self.covariances is None

    @cached_property
    def noise(self) -> Array:
        """Variances, or covariances where the noise of features is correlated."""
        if self.is_diagonal:
            assert self.variances is not None
            return self.variances
        if self.covariances is not None:
            return self.covariances
        assert self.variances is not None
        assert self.factors is not None
        noise: Array = self.factors @ self.factors.transpose(0, 2, 1)
        np.einsum("ijj->ij", noise)[:] += self.variances
        return noise

    @cached_property
    def noise_variances(self) -> Array:
        """The variance of the noise on every value."""
        return self.noise if self.is_diagonal else np.asarray(np.einsum("ijj->ij", self.noise))

    @cached_property
    def counts(self) -> Array:
        """How many features of each sample were measured."""
        if self.known is None:
            return np.full(len(self), float(self.n_features))
        return np.count_nonzero(self.known, axis=1).astype(np.float64)

    def scaled(self, factors: Array) -> "Readings":
        """Return the same with the noise of every feature multiplied by a factor."""
        if np.all(factors == 1.0):
            return self
        covariances = None if self.covariances is None else self.covariances * np.multiply.outer(factors, factors)
        columns = None if self.factors is None else self.factors * factors[:, np.newaxis]
        variances = None if self.variances is None else self.variances * np.square(factors)
        return replace(self, variances=variances, factors=columns, covariances=covariances)

    def without(self, lost: NDArray[np.bool_]) -> "Readings":
        """Return the same with more values that were not measured."""
        known = ~lost if self.known is None else self.known & ~lost
        covariances = self.covariances
        if covariances is not None:
            covariances = np.where(known[:, :, np.newaxis] & known[:, np.newaxis, :], covariances, 0.0)
        return Readings(
            np.where(known, self.values, self.values.dtype.type(0)),
            None if self.variances is None else np.where(known, self.variances, 0.0),
            known,
            None if self.factors is None else self.factors * known[:, :, np.newaxis],
            covariances,
        )

    def blocks(self, n_components: int = 1) -> list[slice]:
        """Return slices of rows."""
        step = max(1, BLOCK // (self.n_features**2 * n_components))
        return [slice(first, first + step) for first in range(0, len(self), step)]


def read(X: Any, X_err: Any, limits: Array | None = None) -> Readings:
    """Return the values of a dense X and their noise, checked.

    Not measured is what has NaN for a value, or an infinite error, or one above the limit of its feature.
    """
    values = np.asarray(X)
    n, d = values.shape
    missing = np.isnan(values)
    variances: Array | None = None
    factors = covariances = None
    if X_err is None:
        variances = np.broadcast_to(0.0, (n, d))
    elif isinstance(X_err, LowRank):
        factors = as_numbers(X_err.factors, "X_err.factors")
        if factors.ndim != 3 or factors.shape[:2] != (n, d):
            raise ValueError(f"X_err.factors must have shape ({n}, {d}, rank); got {factors.shape}")
        if not np.isfinite(factors).all():
            raise ValueError("X_err.factors must be finite")
        std = np.zeros((n, d)) if X_err.std is None else as_numbers(X_err.std, "X_err.std")
        if std.shape not in ((n,), (n, d)):
            raise ValueError(f"X_err.std must have shape ({n},) or ({n}, {d}); got {std.shape}")
        std = np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], (n, d))
        _check_std(std, missing, "X_err.std")
        variances = np.square(std)
        sizes = np.sqrt(variances + np.einsum("ijr,ijr->ij", factors, factors))
    else:
        errors = X_err.toarray() if sp.issparse(X_err) else as_numbers(X_err, "X_err")
        if errors.shape not in ((n,), (n, d), (n, d, d)):
            raise ValueError(
                f"X_err must hold standard deviations of shape ({n},) or ({n}, {d}), or covariances of shape "
                f"({n}, {d}, {d}), for X of shape ({n}, {d}); got shape {errors.shape}"
            )
        if errors.ndim == 3:
            covariances = errors
            sizes = np.einsum("ijj->ij", covariances)
            _check_std(sizes, missing, "the diagonal of X_err")
            sizes = np.sqrt(sizes)
        else:
            sizes = np.broadcast_to(errors if errors.ndim == 2 else errors[:, np.newaxis], (n, d))
            _check_std(sizes, missing, "X_err")
            with np.errstate(over="ignore"):
                variances = np.square(sizes)
    if X_err is not None:
        missing |= np.isinf(sizes)
        if limits is not None:
            missing |= sizes > limits
    rows = Readings(values, variances, None, factors, covariances)
    rows = rows.without(missing) if missing.any() else rows
    assert_all_finite(rows.values, input_name="X")
    if rows.covariances is not None:
        _check_covariances(rows.covariances)
    return rows


def _check_std(std: Array, missing: NDArray[np.bool_], name: str) -> None:
    if np.isnan(std[~missing] if missing.any() else std).any():
        raise ValueError(
            f"{name} has NaN: an error bar must be a number; give infinity for what was not measured, 0 for what is "
            "exact"
        )
    least = float(np.min(std, initial=0.0, where=~np.isnan(std)))
    if least < 0:
        raise ValueError(f"{name} must hold standard deviations, none below 0; got {least:g}")


def _check_covariances(covariances: Array) -> None:
    if not np.isfinite(covariances).all():
        raise ValueError("X_err must hold finite covariances but for the variances of what was not measured")
    largest = np.maximum(np.abs(covariances).max(axis=(1, 2)), np.finfo(np.float64).tiny)
    apart = np.abs(covariances - covariances.transpose(0, 2, 1)).max(axis=(1, 2)) / largest
    if apart.max(initial=0.0) > ROUNDING:
        i = int(np.argmax(apart))
        raise ValueError(f"X_err must hold symmetric covariances; that of sample {i} differs from its transpose")
    try:
        np.linalg.cholesky(covariances / largest[:, np.newaxis, np.newaxis] + ROUNDING * np.eye(covariances.shape[1]))
    except np.linalg.LinAlgError:
        raise ValueError("X_err must hold positive semidefinite covariances; got one that is not") from None


class Seen(NamedTuple):
    """Samples seen from one component."""

    residuals: Array  # 0 where not measured
    covariances: Array  # C, with the unit matrix for what was not measured
    log_densities: Array
    solved: Array  # a


class Sums(NamedTuple):
    """What an iteration of EM needs of some rows; a leading axis of components."""

    objective: float  # the logarithm of the likelihood
    weight: Array  # sum q
    first: Array  # sum q a
    second: Array  # sum q a a'
    precision: Array  # sum q P
    noise: Array  # sum q (1 + s_j^2 (a_j^2 - P_jj)) of every feature, and over what it is to be divided by
    noise_weight: Array

    def plus(self, other: "Sums") -> "Sums":
        """Return the sums of both."""
        return Sums(*(one + more for one, more in zip(self, other, strict=True)))  # type: ignore[operator]


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
        apart = self.means - self.mean
        within = np.einsum("k,kij->ij", self.weights, self.covariances)
        return np.asarray(within + (apart * self.weights[:, np.newaxis]).T @ apart)

    def seen(self, k: int, rows: Readings) -> Seen:
        """Return a block of samples as component k sees it."""
        mean, T = self.means[k], self.covariances[k]
        residuals = rows.values.astype(np.float64, copy=False) - mean
        noise = rows.noise
        if noise.ndim == 2:
            C = np.repeat(T[np.newaxis], len(rows), axis=0)
            np.einsum("ijj->ij", C)[:] += noise
        else:
            C = T + noise
        if rows.known is not None:
            residuals[~rows.known] = 0.0
            C *= rows.known[:, :, np.newaxis]
            C *= rows.known[:, np.newaxis, :]
            np.einsum("ijj->ij", C)[:] += ~rows.known
        try:
            pivots = np.einsum("ijj->ij", np.linalg.cholesky(C))
        except np.linalg.LinAlgError:
            raise ValueError(
                "the population is singular: features that depend on each other were measured without error; "
                "increase ridge"
            ) from None
        solved = np.linalg.solve(C, residuals[:, :, np.newaxis])[:, :, 0]
        squares = np.einsum("ij,ij->i", residuals, solved)
        logs = -0.5 * (squares + rows.counts * math.log(2 * math.pi)) - np.log(pivots).sum(axis=1)
        return Seen(residuals, C, logs, solved)

    def joint(self, rows: Readings) -> tuple[list[Seen], Array]:
        """Return what every component sees, and the logarithms of ``pi_k N(x; mu_k, C_k)``."""
        views = [self.seen(k, rows) for k in range(self.n_components)]
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights) + np.column_stack([view.log_densities for view in views])
        return views, logs

    def sums(self, rows: Readings, weight: Array | None) -> Sums:
        """Return the sums of EM over a block of samples."""
        views, logs = self.joint(rows)
        total = logsumexp(logs, axis=1)
        shares = np.exp(logs - total[:, np.newaxis])
        K, d = self.means.shape
        first, second, precision = np.zeros((K, d)), np.zeros((K, d, d)), np.zeros((K, d, d))
        noise = np.zeros(d)
        for k, view in enumerate(views):
            q = shares[:, k] if weight is None else shares[:, k] * weight
            few = np.flatnonzero(shares[:, k] > NEGLIGIBLE)
            if len(few) < len(q):
                q, rows_k, a, C = q[few], rows[few], view.solved[few], view.covariances[few]
            else:
                rows_k, a, C = rows, view.solved, view.covariances
            P = _masked_inverse(C, rows_k.known)
            first[k] = q @ a
            second[k] = (a * q[:, np.newaxis]).T @ a
            precision[k] = (q @ P.reshape(len(q), d * d)).reshape(d, d)
            noise += _noise_ratio(rows_k, a, P, q)
        own = np.ones(len(rows)) if weight is None else weight
        return Sums(float(own @ total), own @ shares, first, second, precision, noise, _noise_weight(rows, own))

    def posterior(self, k: int, rows: Readings, view: Seen | None = None) -> tuple[Array, Array]:
        """Return the mean and a factor M of the covariance ``M M'`` of the truth of every sample, in component k.

        With ``G = T P`` and ``T = L L'`` it is ``T - T P T = G S G' + (I - G) T (I - G)'``, so that M holds
        ``G S^(1/2)`` and ``(I - G) L``: nothing cancels, whatever the units and however small the noise.
        """
        view = self.seen(k, rows) if view is None else view
        T, d = self.covariances[k], rows.n_features
        G = T @ _masked_inverse(view.covariances, rows.known)
        means = self.means[k] + view.solved @ T
        rest = -G
        np.einsum("ijj->ij", rest)[:] += 1.0
        root = _root(T)
        noise = rows.noise
        spread = G * np.sqrt(noise)[:, np.newaxis, :] if noise.ndim == 2 else G @ _root(noise)
        factor = np.empty((len(rows), d, 2 * d))
        factor[:, :, :d], factor[:, :, d:] = spread, rest @ root
        return means, factor

    def shares(self, rows: Readings, mapped: BlockMap = map) -> Array:
        """Return the probability of each component for every sample."""

        def of(part: slice) -> Array:
            logs = self.joint(rows[part])[1]
            return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

        return _stacked(mapped(of, rows.blocks(self.n_components)), (0, self.n_components))

    def log_likelihood(self, rows: Readings, mapped: BlockMap = map) -> Array:
        """Return the logarithm of the density of every sample, of what was measured of it."""

        def of(part: slice) -> Array:
            return np.asarray(logsumexp(self.joint(rows[part])[1], axis=1))

        return _stacked(mapped(of, rows.blocks(self.n_components)), (0,))

    def moments(self, rows: Readings, mapped: BlockMap = map) -> tuple[Array, Array]:
        """Return mean and covariance of the truth of every sample."""
        d = rows.n_features
        means, covariances = np.empty((len(rows), d)), np.empty((len(rows), d, d))

        def fill(part: slice) -> None:
            some = rows[part]
            views, logs = self.joint(some)
            shares = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            centres, spreads = zip(*(self.posterior(k, some, view) for k, view in enumerate(views)), strict=True)
            means[part] = sum(shares[:, k, np.newaxis] * centre for k, centre in enumerate(centres))
            total = np.zeros((len(some), d, d))
            for k, (centre, M) in enumerate(zip(centres, spreads, strict=True)):
                q = np.sqrt(shares[:, k, np.newaxis])
                total += shares[:, k, np.newaxis, np.newaxis] * (M @ M.transpose(0, 2, 1))
                apart = q * (centre - means[part])
                total += apart[:, :, np.newaxis] * apart[:, np.newaxis, :]
            covariances[part] = total

        for _ in mapped(fill, rows.blocks(2 * self.n_components)):
            pass
        return means, covariances

    def scores(self, rows: Readings, coef: Array, intercept: Array, mapped: BlockMap = map) -> tuple[Array, Array]:
        """Return means (n, K, r) and covariances (n, K, r, r) of ``W t + b``, component by component."""
        n, K, r = len(rows), self.n_components, len(coef)
        means, covariances = np.empty((n, K, r)), np.empty((n, K, r, r))

        def fill(part: slice) -> None:
            some = rows[part]
            for k in range(K):
                centre, M = self.posterior(k, some)
                means[part, k] = centre @ coef.T + intercept
                along = coef @ M
                covariances[part, k] = along @ along.transpose(0, 2, 1)

        for _ in mapped(fill, rows.blocks(2)):
            pass
        return means, covariances

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, Index]:
        """Return true values drawn from the population, and which component each is from."""
        labels = rng.choice(self.n_components, size=n_samples, p=self.weights / self.weights.sum())
        normal = rng.standard_normal((n_samples, self.means.shape[1]))
        roots = np.stack([_root(T) for T in self.covariances])
        return self.means[labels] + np.einsum("ijk,ik->ij", roots[labels], normal), labels


def _masked_inverse(C: Array, known: NDArray[np.bool_] | None) -> Array:
    """Return the inverses, with 0 for what was not measured."""
    P = np.linalg.inv(C)
    if known is not None:
        np.einsum("ijj->ij", P)[:] *= known
    return np.asarray(P)


def _root(covariances: Array) -> Array:
    """Return roots of positive semidefinite matrices: Cholesky factors, or those by eigenvectors of singular ones."""
    try:
        return np.asarray(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:
        values, axes = np.linalg.eigh(covariances)
        return np.asarray(axes * np.sqrt(np.maximum(values, 0.0))[..., np.newaxis, :])


def _noise_ratio(rows: Readings, a: Array, P: Array, q: Array) -> Array:
    """Return ``sum q E[e_j^2] / s_j^2 = sum q (1 + s_j^2 (a_j^2 - P_jj))`` of every feature with noise.

    Where the noise of features is correlated, the ratio ``E[e' S^-1 e] / n`` of all of them together.
    """
    noise = rows.noise
    if noise.ndim == 2:
        terms = (1.0 + noise * (np.square(a) - np.einsum("ijj->ij", P))) * (noise > 0)
        return np.asarray(q @ terms)
    known = 1.0 if rows.known is None else rows.known
    trace = np.einsum("ij,ijk,ik->i", a, noise, a, optimize=True) - np.einsum("ijk,ijk->i", noise, P)
    noisy = np.count_nonzero((np.einsum("ijj->ij", noise) * known) > 0, axis=1)
    return np.full(a.shape[1], float(q @ (noisy + trace)))


def _noise_weight(rows: Readings, weight: Array) -> Array:
    noisy = rows.noise_variances > 0
    if rows.is_diagonal:
        return np.asarray(weight @ noisy)
    return np.full(rows.n_features, float(weight @ np.count_nonzero(noisy, axis=1)))


def _stacked(parts: Iterable[Array], empty: tuple[int, ...]) -> Array:
    found = list(parts)
    return np.concatenate(found) if found else np.zeros(empty)


# --- EM ---------------------------------------------------------------------------------------------------

# Steps of factor analysis inside a step of EM: each raises the likelihood, and they do not see the samples.
INNER = 10
# A component of less than this fraction of the weight keeps its place: its sums are rounding.
EMPTY = 1e-12
# The wide component has at least and at most this many times the covariance of a single Gaussian.
WIDE = (4.0, 1e4)
# A step of the acceleration is at most so many steps of EM.
LONGEST = 64.0


@dataclass(frozen=True)
class State:
    """A mixture, and the factors by which it takes the error bars to be wrong."""

    mixture: Mixture
    kappa: Array


@dataclass(frozen=True)
class Fit:
    """What EM found."""

    state: State
    objective: float
    log_likelihood: float
    history: list[float]
    n_iter: int
    converged: bool


@dataclass(frozen=True)
class Em:
    """Maximise ``sum_i w_i log p(x_i) / sum_i w_i - (ridge/2) sum_k tr(T_k^-1 diag(units^2))``.

    The second term keeps every ``T_k`` above ``ridge / pi_k`` times the squared ``units``. Two steps of EM and what
    they have in common give a third one (SQUAREM: Varadhan & Roland 2008, Scand. J. Stat. 35), which is taken if the
    objective does not fall.
    """

    units: Array
    ridge: float
    tol: float
    max_iter: int
    rank: int | None = None
    free_kappa: NDArray[np.bool_] | None = None  # which factors are fitted
    wide: Array | None = None  # covariance of which the last component has a multiple, about a fixed mean

    def run(self, rows: Readings, weight: Array | None, start: State, mapped: BlockMap = map) -> Fit:
        """Return the best point, from a start."""
        total = float(len(rows)) if weight is None else float(weight.sum())

        def step(state: State) -> tuple[float, float, State]:
            scaled = rows.scaled(state.kappa)
            parts = rows.blocks(state.mixture.n_components)

            def of(part: slice) -> Sums:
                return state.mixture.sums(scaled[part], None if weight is None else weight[part])

            found: Sums | None = None
            for sums in mapped(of, parts):  # in order, so that the result does not depend on threads
                found = sums if found is None else found.plus(sums)
            assert found is not None
            likelihood = found.objective / total
            return likelihood - self._penalty(state.mixture), likelihood, self._improved(state, found, total)

        value, likelihood, after = step(start)
        state, n_iter, history, converged = start, 1, [value], False
        while n_iter < self.max_iter and not converged:
            before = value
            value_1, likelihood_1, after_1 = step(after)
            n_iter += 1
            jumped = self._extrapolated(state, after, after_1) if n_iter < self.max_iter else None
            state, value, likelihood, after = after, value_1, likelihood_1, after_1
            if jumped is not None:
                try:
                    value_2, likelihood_2, after_2 = step(jumped)
                except ValueError:  # too far: a covariance is none
                    value_2 = -np.inf
                n_iter += 1
                if value_2 >= value:
                    state, value, likelihood, after = jumped, value_2, likelihood_2, after_2
            history.append(value)
            converged = value - before <= self.tol
        return Fit(state, value, likelihood, history, n_iter, converged)

    def _penalty(self, mixture: Mixture) -> float:
        inverses = np.linalg.inv(mixture.covariances[: self._free(mixture)])
        return 0.5 * self.ridge * float(np.einsum("kjj,j->", inverses, np.square(self.units)))

    def _free(self, mixture: Mixture) -> int:
        return mixture.n_components - (self.wide is not None)

    def _improved(self, state: State, sums: Sums, total: float) -> State:
        """Return the point after a step of EM."""
        mixture = state.mixture
        means, covariances = mixture.means.copy(), mixture.covariances.copy()
        loadings = None if mixture.loadings is None else mixture.loadings.copy()
        uniquenesses = None if mixture.uniquenesses is None else mixture.uniquenesses.copy()
        for k, (N, T) in enumerate(zip(sums.weight, mixture.covariances, strict=True)):
            if EMPTY * total > N:
                continue
            moment = T + T @ (sums.second[k] - sums.precision[k]) @ T / N
            if k >= self._free(mixture):
                covariances[k] = self._widened(moment)
                continue
            shift = T @ sums.first[k] / N
            means[k] += shift
            moment -= np.multiply.outer(shift, shift)
            moment = 0.5 * (moment + moment.T)
            diagonal(moment)[:] += self.ridge * total / N * np.square(self.units)
            if loadings is not None and uniquenesses is not None:
                loadings[k], uniquenesses[k] = _factor_analysis(moment, loadings[k], uniquenesses[k])
                moment = loadings[k] @ loadings[k].T + np.diag(uniquenesses[k])
            covariances[k] = moment
        found = Mixture(sums.weight / sums.weight.sum(), means, covariances, loadings, uniquenesses)
        kappa = state.kappa
        if self.free_kappa is not None:
            ratio = np.divide(sums.noise, sums.noise_weight, out=np.ones_like(kappa), where=self.free_kappa)
            kappa = kappa * np.sqrt(np.maximum(ratio, 1e-12))
        return State(found, kappa)

    def _widened(self, moment: Array) -> Array:
        """Return the multiple of the wide covariance that is nearest in likelihood."""
        assert self.wide is not None
        factor = float(np.trace(np.linalg.solve(self.wide, moment))) / len(moment)
        return np.asarray(self.wide * min(max(factor, WIDE[0]), WIDE[1]))

    def _extrapolated(self, zero: State, one: State, two: State) -> State | None:
        """Return the point to which three in a row lead, if there is one."""
        if zero.mixture.loadings is not None:
            return None  # F is known but for a rotation: points in a row need not be near each other
        points = [self._vector(state) for state in (zero, one, two)]
        if any(point is None for point in points):
            return None
        start, near, far = (point for point in points if point is not None)
        r = near - start
        v = (far - near) - r
        bend = float(np.linalg.norm(v))
        if bend == 0.0:
            return None
        length = min(max(float(np.linalg.norm(r)) / bend, 1.0), LONGEST)
        if length == 1.0:
            return two
        return self._state(start + 2 * length * r + length**2 * v, two)

    def _vector(self, state: State) -> Array | None:
        mixture, kappa = state.mixture, state.kappa
        if mixture.weights.min() < EMPTY:
            return None
        covariances = mixture.covariances / np.multiply.outer(self.units, self.units)
        parts = (np.log(mixture.weights), mixture.means / self.units, covariances, 2 * np.log(kappa))
        return np.concatenate([part.ravel() for part in parts])

    def _state(self, vector: Array, like: State) -> State | None:
        K, d = like.mixture.means.shape
        logs, means, covariances, kappa = np.split(vector, np.cumsum([K, K * d, K * d * d]))
        weights = np.exp(logs - logsumexp(logs))
        T = covariances.reshape(K, d, d) * np.multiply.outer(self.units, self.units)
        if self.wide is not None:
            T[-1] = self._widened(T[-1])
        try:
            np.linalg.cholesky(T)
        except np.linalg.LinAlgError:
            return None
        kappa = np.exp(np.clip(0.5 * kappa, -20.0, 20.0))
        return State(Mixture(weights, means.reshape(K, d) * self.units, T), kappa)


def _factor_analysis(moment: Array, F: Array, D: Array) -> tuple[Array, Array]:
    """Return F and D after some steps of EM for ``moment ~ F F' + diag(D)`` (Rubin & Thayer 1982)."""
    for _ in range(INNER):
        scaled = F / D[:, np.newaxis]
        inner = np.linalg.inv(np.eye(F.shape[1]) + F.T @ scaled)
        beta = inner @ scaled.T  # F' (F F' + D)^-1
        crossed = moment @ beta.T
        F = np.linalg.solve((inner + beta @ crossed).T, crossed.T).T
        D = np.asarray(np.maximum(np.diag(moment) - np.einsum("jr,jr->j", F, crossed), 1e-12 * np.diag(moment)))
    return F, D


def low_rank(covariance: Array, rank: int) -> tuple[Array, Array]:
    """Return F and D with ``F F' + diag(D)`` near a covariance: its largest principal axes, of unit features."""
    units = np.sqrt(np.diag(covariance))
    values, axes = np.linalg.eigh(covariance / np.multiply.outer(units, units))
    first = axes[:, ::-1][:, :rank] * np.sqrt(np.maximum(values[::-1][:rank], 0.0))
    # At least a tenth of a feature is its own: from 0 EM would not move.
    F = first * np.sqrt(np.minimum(1.0, 0.9 / np.maximum(np.square(first).sum(axis=1), 0.9)))[:, np.newaxis]
    D = 1.0 - np.square(F).sum(axis=1)
    return F * units[:, np.newaxis], D * units**2
