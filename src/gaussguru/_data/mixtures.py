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
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp
from sklearn.utils import assert_all_finite

from gaussguru._data.rows import BlockMap
from gaussguru._linalg import Array, Index, diagonal
from gaussguru.errors import (
    LEAST,
    ROUNDING,
    Limits,
    LowRank,
    Population,
    as_numbers,
    has_unmeasured,
    positive,
    take_rows,
)

# Numbers of the matrices C of a block of rows, and the most rows of it (measured with 3 and 20 features: of fewer NumPy
# has little to do at a time, more leave the cache).
BLOCK, ROWS = 1 << 18, 4096


@dataclass(frozen=True)
class Readings:
    """Values and their noise, checked: finite everywhere, and 0 where nothing was measured.

    ``variances`` are those of independent noise; ``factors`` add ``F_i F_i'``; ``covariances`` stand alone. Values that
    are limits were not measured; ``sides`` says of which kind they are, -1 for upper and 1 for lower ones, ``bounds``
    where they are, and ``doubts`` what variance they have.
    """

    values: NDArray[Any]
    variances: Array | None
    known: NDArray[np.bool_] | None = None
    factors: Array | None = None
    covariances: Array | None = None
    sides: NDArray[np.int8] | None = None
    bounds: Array | None = None
    doubts: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Readings":
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {name: None if part is None else part[index] for name, part in parts.items()}
        return Readings(**taken)

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
        noise = self.noise
        return noise if noise.ndim == 2 else np.asarray(np.einsum("ijj->ij", noise))

    @cached_property
    def counts(self) -> Array:
        """How many features of each sample were measured."""
        if self.known is None:
            return np.full(len(self), float(self.n_features))
        return np.asarray(np.count_nonzero(self.known, axis=1), dtype=np.float64)

    def scaled(self, factors: Array) -> "Readings":
        """Return the same with the noise of every feature multiplied by a factor."""
        if np.all(factors == 1.0):
            return self
        covariances = None if self.covariances is None else self.covariances * np.multiply.outer(factors, factors)
        columns = None if self.factors is None else self.factors * factors[:, np.newaxis]
        variances = None if self.variances is None else self.variances * np.square(factors)
        doubts = None if self.doubts is None else self.doubts * np.square(factors)
        return replace(self, variances=variances, factors=columns, covariances=covariances, doubts=doubts)

    def without(self, lost: NDArray[np.bool_]) -> "Readings":
        """Return the same with more values that were not measured."""
        known = ~lost if self.known is None else self.known & ~lost
        covariances = self.covariances
        if covariances is not None:
            covariances = np.where(known[:, :, np.newaxis] & known[:, np.newaxis, :], covariances, 0.0)
        return replace(
            self,
            values=np.where(known, self.values, self.values.dtype.type(0)),
            variances=None if self.variances is None else np.where(known, self.variances, 0.0),
            known=known,
            factors=None if self.factors is None else self.factors * known[:, :, np.newaxis],
            covariances=covariances,
        )

    def blocks(self) -> list[slice]:
        """Return slices of rows."""
        step = min(max(1, BLOCK // self.n_features**2), ROWS)
        return [slice(first, first + step) for first in range(0, len(self), step)]


def read(X: Any, X_err: Any, limits: Array | None = None) -> Readings:
    """Return the values of a dense X and their noise, checked.

    Not measured is what has NaN for a value, or an infinite error, or one above the limit of its feature.
    """
    values = np.asarray(X)
    n, d = values.shape
    missing = np.isnan(values)
    if isinstance(X_err, Limits):
        std = X_err.deviations((n, d))
        sides = np.where(missing, 0, X_err.sides).astype(np.int8)
        _check_std(std, missing, "X_err")
        if np.any(np.isinf(std) & (sides != 0)):
            raise ValueError("X_err must be finite for limits")
        rows = read(values, np.where(sides == 0, std, np.inf), limits)
        bounds = np.where(sides == 0, 0.0, values)
        assert_all_finite(bounds, input_name="X")
        return replace(rows, sides=sides, bounds=bounds, doubts=np.where(sides == 0, 0.0, np.square(std)))
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
        # In one order, as sums depend on it.
        errors = np.ascontiguousarray(X_err.toarray() if sp.issparse(X_err) else as_numbers(X_err, "X_err"))
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

    log_densities: Array
    solved: Array  # a
    whitener: Array  # J of shape (column, row, sample) with P = J' J; 0 for what was not measured
    limited: tuple[Index, Array, Array] | None  # samples with limits, and their posterior means and covariances

    @property
    def precisions(self) -> Array:
        """P, of shape (n_samples, n_features, n_features)."""
        rows = np.ascontiguousarray(self.whitener.transpose(2, 0, 1))
        return np.asarray(rows @ rows.transpose(0, 2, 1))


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
        d = rows.n_features
        C = np.empty((d, d, len(rows)))  # samples last: see _whitener
        C[:] = T[:, :, np.newaxis]
        if rows.is_diagonal:
            np.einsum("jjb->bj", C)[:] += rows.noise
        else:
            C += rows.noise.transpose(1, 2, 0)
        known = rows.known
        if known is not None and not known.all():
            residuals *= known
            C *= known.T
            C *= known.T[:, np.newaxis]
            np.einsum("jjb->bj", C)[:] += ~known
        J, logs = _whitener(C)
        if known is not None:
            np.einsum("jjb->bj", J)[:] *= known
        white = np.einsum("jib,jb->ib", J, np.ascontiguousarray(residuals.T))
        logs -= 0.5 * (np.einsum("ib,ib->b", white, white) + rows.counts * math.log(2 * math.pi))
        solved = np.einsum("jib,ib->bj", J, white)
        limited = None
        if rows.sides is not None and rows.sides.any():
            few = np.flatnonzero(rows.sides.any(axis=1))
            P = Seen(logs[few], solved[few], J[:, :, few], None).precisions
            means, covariances, chances = _within_limits(mean + solved[few] @ T, T - T @ P @ T, rows[few])
            logs[few] += chances
            limited = (few, means, covariances)
        return Seen(logs, solved, J, limited)

    def joint(self, rows: Readings) -> tuple[list[Seen], Array]:
        """Return what every component sees, and the logarithms of ``pi_k N(x; mu_k, C_k)``."""
        views = [self.seen(k, rows) for k in range(self.n_components)]
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights) + np.column_stack([view.log_densities for view in views])
        return views, logs

    def sums(self, rows: Readings, weight: Array | None, with_noise: bool = False) -> Sums:
        """Return the sums of EM over a block of samples."""
        views, logs = self.joint(rows)
        total = logsumexp(logs, axis=1)
        shares = np.exp(logs - total[:, np.newaxis])
        K, d = self.means.shape
        first, second, precision = np.zeros((K, d)), np.zeros((K, d, d)), np.zeros((K, d, d))
        own = np.ones(len(rows)) if weight is None else weight
        noise, noise_weight = np.zeros(d), np.zeros(d)
        for k, view in enumerate(views):
            q, a = shares[:, k] * own, view.solved
            if with_noise:
                noise += _noise_ratio(rows, view, q)
            if view.limited is not None:
                # As if a and P were those of a measurement with the same posterior.
                few, means, covariances = view.limited
                inverse = np.linalg.inv(self.covariances[k])
                a[few] = (means - self.means[k]) @ inverse
                view.whitener[:, :, few] = 0.0
                inner = np.einsum("i,ijk->jk", q[few], covariances)
                precision[k] = q[few].sum() * inverse - inverse @ inner @ inverse
            first[k] = q @ a
            second[k] = (a * q[:, np.newaxis]).T @ a
            J = view.whitener
            J *= np.sqrt(q)
            J = J.reshape(d, -1)
            precision[k] += J @ J.T
        if with_noise:
            noise_weight = _noise_weight(rows, own)
        return Sums(float(own @ total), own @ shares, first, second, precision, noise, noise_weight)

    def posterior(self, k: int, rows: Readings, view: Seen | None = None) -> tuple[Array, Array]:
        """Return the mean and a factor M of the covariance ``M M'`` of the truth of every sample, in component k.

        With ``G = T P`` and ``T = L L'`` it is ``T - T P T = G S G' + (I - G) T (I - G)'``, so that M holds
        ``G S^(1/2)`` and ``(I - G) L``: nothing cancels, whatever the units and however small the noise.
        """
        view = self.seen(k, rows) if view is None else view
        T, d = self.covariances[k], rows.n_features
        G = T @ view.precisions
        means = self.means[k] + view.solved @ T
        rest = -G
        np.einsum("ijj->ij", rest)[:] += 1.0
        root = _root(T)
        noise = rows.noise
        spread = G * np.sqrt(noise)[:, np.newaxis, :] if noise.ndim == 2 else G @ _root(noise)
        factor = np.empty((len(rows), d, 2 * d))
        factor[:, :, :d], factor[:, :, d:] = spread, rest @ root
        if view.limited is not None:
            few, means[few], covariances = view.limited[0], view.limited[1], view.limited[2]
            factor[few, :, :d], factor[few, :, d:] = _root(covariances), 0.0
        return means, factor

    def shares(self, rows: Readings, mapped: BlockMap = map) -> Array:
        """Return the probability of each component for every sample."""

        def of(part: slice) -> Array:
            logs = self.joint(rows[part])[1]
            return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

        return _stacked(mapped(of, rows.blocks()), (0, self.n_components))

    def log_likelihood(self, rows: Readings, mapped: BlockMap = map) -> Array:
        """Return the logarithm of the density of every sample, of what was measured of it."""

        def of(part: slice) -> Array:
            return np.asarray(logsumexp(self.joint(rows[part])[1], axis=1))

        return _stacked(mapped(of, rows.blocks()), (0,))

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

        for _ in mapped(fill, rows.blocks()):
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

        for _ in mapped(fill, rows.blocks()):
            pass
        return means, covariances

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, Index]:
        """Return true values drawn from the population, and which component each is from."""
        labels = rng.choice(self.n_components, size=n_samples, p=self.weights / self.weights.sum())
        normal = rng.standard_normal((n_samples, self.means.shape[1]))
        roots = np.stack([_root(T) for T in self.covariances])
        return self.means[labels] + np.einsum("ijk,ik->ij", roots[labels], normal), labels


def _whitener(C: Array) -> tuple[Array, Array]:
    """Return the inverses J of the Cholesky factors of ``C = L L'``, and ``log det J``; C is lost.

    C has the shape (row, column, sample), J (column, row, sample). With samples last every operation is one on long
    vectors, and the sum of ``J' J`` over samples a product of two matrices. (The inverses of NumPy, one matrix after
    the other, take three times as long for 20 features, and more for fewer.)
    """
    d, _, n = C.shape
    J = np.zeros((d, d, n))
    logs = np.zeros(n)
    for i in range(d):
        if i:
            C[i:, i] -= np.einsum("jkb,kb->jb", C[i:, :i], C[i, :i])
        least = C[i, i].min(initial=1.0)
        if not least > 0:
            raise ValueError(
                "the population is singular: features that depend on each other were measured without error; "
                "increase ridge"
            )
        logs -= 0.5 * np.log(C[i, i])
        np.divide(1.0, np.sqrt(C[i, i]), out=J[i, i])
        C[i:, i] *= J[i, i]
        if i:
            row = np.einsum("kb,jkb->jb", C[i, :i], J[:i, :i])
            row *= -J[i, i]
            J[:i, i] = row
    return J, logs


# Rounds over the limits of a sample: with one limit the first is exact, with more a few are enough.
SWEEPS = 6


def _within_limits(means: Array, covariances: Array, rows: Readings) -> tuple[Array, Array, Array]:
    """Return mean and covariance of Gaussians within limits, and the logarithm of the probability to be there.

    On one feature, with the mean e and the variance v, an upper limit u of variance r^2 leaves ::

        A = sqrt(v + r^2),  z = (u - e) / A,  l = phi(z) / Phi(z):    e' = e - v l / A,   v' = v - v^2 l (l + z) / A^2

    and the others follow by regression on it. Several limits are taken in turn, each without what it said the time
    before (expectation propagation, Minka 2001), which is exact for one limit and nearly so for more.
    """
    assert rows.sides is not None
    assert rows.bounds is not None
    assert rows.doubts is not None
    means, covariances = means.copy(), covariances.copy()
    precisions, pulls = np.zeros(means.shape), np.zeros(means.shape)  # what each limit said
    chances = np.zeros(len(means))
    columns = np.flatnonzero(rows.sides.any(axis=0))
    for sweep in range(SWEEPS if (np.count_nonzero(rows.sides, axis=1) > 1).any() else 1):
        for j in columns:
            i = np.flatnonzero(rows.sides[:, j])
            side = rows.sides[i, j].astype(np.float64)
            e, v = means[i, j], np.maximum(covariances[i, j, j], 1e-300)
            apart = np.maximum(1.0 - precisions[i, j] * v, 1e-10)  # the marginal without this limit
            outer_v = v / apart
            outer_e = (e - v * pulls[i, j]) / apart
            A = np.sqrt(outer_v + rows.doubts[i, j])
            z = side * (outer_e - rows.bounds[i, j]) / A
            log_chance = log_ndtr(z)
            ratio = np.exp(-0.5 * np.square(z) - 0.5 * math.log(2 * math.pi) - log_chance)
            new_e = outer_e + side * outer_v * ratio / A
            new_v = np.maximum(outer_v - np.square(outer_v / A) * ratio * (ratio + z), 1e-12 * outer_v)
            if sweep == 0:
                chances[i] += log_chance
            precisions[i, j] = 1.0 / new_v - 1.0 / outer_v
            pulls[i, j] = new_e / new_v - outer_e / outer_v
            along = covariances[i, :, j] / v[:, np.newaxis]
            means[i] += along * (new_e - e)[:, np.newaxis]
            covariances[i] += along[:, :, np.newaxis] * along[:, np.newaxis, :] * (new_v - v)[:, np.newaxis, np.newaxis]
    return means, covariances, chances


def _root(covariances: Array) -> Array:
    """Return roots of positive semidefinite matrices: Cholesky factors, or those by eigenvectors of singular ones."""
    try:
        return np.asarray(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:
        values, axes = np.linalg.eigh(covariances)
        return np.asarray(axes * np.sqrt(np.maximum(values, 0.0))[..., np.newaxis, :])


def _noise_ratio(rows: Readings, view: Seen, q: Array) -> Array:
    """Return ``sum q E[e_j^2] / s_j^2 = sum q (1 + s_j^2 (a_j^2 - P_jj))`` of every feature with noise.

    Where the noise of features is correlated, the ratio ``E[e' S^-1 e] / n`` of all of them together.
    """
    noise, a = rows.noise, view.solved
    if noise.ndim == 2:
        P = np.einsum("jib,jib->bj", view.whitener, view.whitener)
        return np.asarray(q @ ((1.0 + noise * (np.square(a) - P)) * (noise > 0)))
    trace = np.einsum("ij,ijk,ik->i", a, noise, a, optimize=True) - np.einsum("ijk,ijk->i", noise, view.precisions)
    return np.full(a.shape[1], float(q @ (np.count_nonzero(rows.noise_variances > 0, axis=1) + trace)))


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
# Points that are remembered by the acceleration, and slow steps in a row after which there is nothing more to gain.
MEMORY = 6
PATIENCE = 2


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

    The second term keeps every ``T_k`` above ``ridge / pi_k`` times the squared ``units``. The last
    points and where EM leads from each give the next one (Anderson's mixing; Henderson & Varadhan 2019, J. Comput.
    Graph. Stat. 28), which is taken if the objective does not fall, or else that of EM. It ends when two steps in a row
    raise the log-likelihood of all samples by no more than ``tol`` for each parameter.
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
        tol = self.tol * self._n_parameters(start.mixture) / len(rows)

        def step(state: State) -> tuple[float, float, State]:
            scaled = rows.scaled(state.kappa)
            parts = rows.blocks()

            def of(part: slice) -> Sums:
                some = None if weight is None else weight[part]
                return state.mixture.sums(scaled[part], some, self.free_kappa is not None)

            found: Sums | None = None
            for sums in mapped(of, parts):  # in order, so that the result does not depend on threads
                found = sums if found is None else found.plus(sums)
            assert found is not None
            likelihood = found.objective / total
            return likelihood - self._penalty(state.mixture), likelihood, self._improved(state, found, total)

        state, (value, likelihood, after) = start, step(start)
        n_iter, history, converged, slow = 1, [value], False, 0
        past: list[tuple[Array, Array]] = []  # points, and where EM leads from them
        while n_iter < self.max_iter and not converged:
            guess = self._extrapolated(past, state, after)
            found = None
            if guess is not None:
                try:
                    found = step(guess)
                except ValueError:  # too far: a covariance is none
                    found = None
                n_iter += 1
                if found is None or found[0] < value:
                    past.clear()
                    found = None
            if found is None:
                if n_iter >= self.max_iter:
                    break
                guess, found = after, step(after)
                n_iter += 1
            assert guess is not None
            slow = slow + 1 if found[0] - value <= tol else 0
            state, (value, likelihood, after) = guess, found
            history.append(value)
            converged = slow >= PATIENCE
        return Fit(state, value, likelihood, history, n_iter, converged)

    def _n_parameters(self, mixture: Mixture) -> int:
        K, d = mixture.means.shape
        each = d + (d * (d + 1) // 2 if self.rank is None else d * (self.rank + 1))
        return int(K * (each + 1) - 1)

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

    def _extrapolated(self, past: list[tuple[Array, Array]], state: State, after: State) -> State | None:
        """Return the point to which the last ones lead, if there is one: Anderson's mixing of fixed points."""
        here, there = self._vector(state), self._vector(after)
        if here is None or there is None:
            past.clear()
            return None
        past.append((here, there))
        del past[:-MEMORY]
        if len(past) < 2:
            return None
        residuals = np.stack([image - point for point, image in past])
        images = np.stack([image for _, image in past])
        steps = np.diff(residuals, axis=0)
        product = steps @ steps.T
        diagonal(product)[:] *= 1.0 + 1e-10  # steps may be along the same line
        try:
            mixing = np.linalg.solve(product, steps @ residuals[-1])
        except np.linalg.LinAlgError:
            return None
        return self._state(images[-1] - mixing @ np.diff(images, axis=0), state)

    def _vector(self, state: State) -> Array | None:
        """Return a point as one array in units of the features, if it is not on the border."""
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

    def _state(self, vector: Array, like: State) -> State | None:
        """Return the point of an array, if it is one."""
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
            D = np.exp(D) * np.square(units)
            T = _dense(F, D)
        if self.wide is not None:
            T[-1] = self._widened(T[-1])
        try:
            np.linalg.cholesky(T)
        except np.linalg.LinAlgError:
            return None
        weights = np.exp(logs - logsumexp(logs))
        return State(Mixture(weights, means.reshape(K, d) * units, T, F, D), np.exp(0.5 * kappa))


def _dense(F: Array, D: Array) -> Array:
    """Return ``F F' + diag(D)`` of every component."""
    T = F @ F.transpose(0, 2, 1)
    np.einsum("kjj->kj", T)[:] += D
    return np.asarray(T)


def _factor_analysis(moment: Array, F: Array, D: Array) -> tuple[Array, Array]:
    """Return F and D after some steps of EM for ``moment ~ F F' + diag(D)`` (Rubin & Thayer 1982)."""
    for _ in range(INNER):
        scaled = F / D[:, np.newaxis]
        inner = np.linalg.inv(np.eye(F.shape[1]) + F.T @ scaled)
        beta = inner @ scaled.T  # F' (F F' + D)^-1
        crossed = moment @ beta.T
        F = np.asarray(np.linalg.solve((inner + beta @ crossed).T, crossed.T).T, dtype=np.float64)
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


# --- one Gaussian, for what was not measured ---------------------------------------------------------------

# Rows from which the covariance of features is taken, at least, and for each feature: more change nothing of note.
COVARIANCE_ROWS, ROWS_PER_FEATURE = 2000, 4
# Up to so many features, and from so many rows, EM finds it where values are missing; pairs of values do otherwise.
EM_FEATURES, EM_ROWS = 40, 10_000
# Beyond, features are taken to say nothing of each other: a covariance would take 32 MB.
MOST_FEATURES = 2048


def population_of(X: Any, X_err: Any, sample_weight: Array | None = None) -> Population:
    """Return the Gaussian population of dense samples with error bars: means and spreads of all, covariance of some.

    Where all was measured, the covariance of the values less the noise, from a subsample; where not, the most likely
    one by EM, or with many features that of the pairs of values that were measured.
    """
    marginal = Population.of(X, X_err, sample_weight)
    values = np.asarray(X)
    n, d = values.shape
    # What is wrong with the values or the errors is said where they are checked.
    if d > MOST_FEATURES or not np.isfinite(marginal.spreads).all():
        return marginal
    gaps = has_unmeasured(X_err)
    few = max(COVARIANCE_ROWS, ROWS_PER_FEATURE * d) if not gaps else EM_ROWS
    part = np.arange(n) if sample_weight is None else np.flatnonzero(sample_weight)
    if len(part) > few:
        part = np.sort(np.random.default_rng(0).choice(part, few, replace=False))
    try:
        rows = read(take_rows(values, part), None if X_err is None else take_rows(X_err, part))
    except (ValueError, IndexError):
        return marginal
    weight = None if sample_weight is None else sample_weight[part]
    covariance = _pairs(rows, weight, marginal)
    if gaps and d <= EM_FEATURES:
        units = np.where(marginal.spreads > 0, marginal.spreads, 1.0)
        start = State(Mixture(np.ones(1), marginal.means[np.newaxis], covariance[np.newaxis]), np.ones(d))
        found = Em(units, LEAST, tol=0.01, max_iter=100).run(rows, weight, start).state.mixture
        return Population(found.means[0], marginal.spreads, found.covariances[0])
    return replace(marginal, covariance=covariance)


def _pairs(rows: Readings, weight: Array | None, marginal: Population) -> Array:
    """Return the covariance of pairs of values that were both measured, less the noise, positive definite.

    Correlations are shrunk by a factor: a matrix of few samples has directions of next to no variance, by chance, and
    one whose entries are of different samples many more (measured with 60 to 200 features of two common factors).
    """
    values = rows.values.astype(np.float64) - marginal.means
    own = np.ones(len(rows)) if weight is None else weight / weight.max()
    if rows.known is None:
        totals: Any = own.sum()
        counts: Any = totals
    else:
        values *= rows.known
        known = rows.known.astype(np.float64)
        totals = np.maximum((known * own[:, np.newaxis]).T @ known, 1e-300)
        counts = np.maximum(own @ known, 1e-300)
    C = (values * own[:, np.newaxis]).T @ values / totals
    if rows.is_diagonal:
        diagonal(C)[:] -= own @ np.broadcast_to(rows.noise, rows.shape) / counts
    else:
        C -= np.einsum("i,ijk->jk", own, rows.noise) / totals
    n, d = rows.shape
    shrinkage = d / (d + n) if rows.known is None else min(0.5, math.sqrt(d / n))
    own_variances = np.diag(C).copy()
    C *= 1.0 - shrinkage
    diagonal(C)[:] = own_variances
    return positive(C, marginal.spreads)
