"""Transformers that are not affine: means and covariances of their outputs under Gaussian errors.

For ``x ~ N(m, S)`` the mean and the covariance of ``f(x)`` are sums over points. For an output of one feature they are
the points of Gauss and Hermite, ``m + e t_q`` with weights ``w_q``. For an output of r features (or r common causes,
``S = L L'``) they are ``m + L z`` with z on spheres, ::

    z = +- rho_k Q_k c_j,     mean of rho_k^2 = r,     mean of rho_k^4 = r (r + 2)

with orthogonal matrices ``Q_k`` drawn once and for all, and radii at equal steps of the chi distribution, the outer
ones stretched a little. The ``c_j`` are the axes and, up to r = 5, the corners of a cube, with weights of degree 5
(Stroud 1971, Approximate Calculation of Multiple Integrals, U_n: 5-2). Means are then exact for polynomials of degree
5, covariances for those of degree 2, such as products and squares; with axes alone, for those of degree 3 and 1. All
weights are positive: a mean lies between values of f, and no variance is negative.
(Spherical-radial cubature with random rotations: Genz & Monahan 1998, SIAM J. Sci. Comput. 19. With one sphere and
``Q = I`` it is the rule of the cubature Kalman filter, Arasaratnam & Haykin 2009, whose points are ``sqrt(r)`` errors
away along single features, where a logarithm or a ratio may be undefined.)
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2

from gaussguru._errors.checks import check_causes, check_products
from gaussguru._errors.forms import Errors
from gaussguru._errors.given import LowRank
from gaussguru._errors.samples import Measured
from gaussguru._measured.affine import dense
from gaussguru._utils.blocks import MOST_STORED, row_blocks
from gaussguru._utils.frames import as_numbers, like, take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, Estimator, Values

# Outputs that differ by less than this fraction of their range are the same.
SAME = 1e-8

Function = Callable[[Any], Any]


@lru_cache
def gauss_hermite() -> tuple[Array, Array]:
    """Return points and weights for a standard normal number."""
    # With 9 points, means and spreads of log, sqrt, arcsinh, power and quantile transforms are within 2 % of a spread
    # of the integrals, for errors of up to half a spread; with 5, within 5 %.
    t, w = np.polynomial.hermite_e.hermegauss(9)
    return t, w / w.sum()


@lru_cache
def hermite() -> Array:
    """Return all orthonormal Hermite polynomials but the first at the points, times the weights: (8, 9)."""
    t, w = gauss_hermite()
    values = np.polynomial.hermite_e.hermevander(t, len(t) - 1).T
    return np.asarray((values / np.sqrt(np.square(values) @ w)[:, np.newaxis] * w)[1:])


@lru_cache(maxsize=32)
def spheres(n_causes: int) -> tuple[Array, Array]:
    """Return points for ``n_causes`` standard normal numbers, of shape (n_points, n_causes), and their weights."""
    r, axes, n_least = n_causes, np.eye(n_causes), 64  # a sphere with the corners of a cube has fewer corners
    directions, shares = np.concatenate([axes, -axes]), np.full(2 * r, 1 / (2 * r))
    if 2 <= r < math.log2(n_least):
        corners = np.array(list(product((-1.0, 1.0), repeat=r))) / math.sqrt(r)
        directions = np.concatenate([directions, corners])
        shares = np.repeat([1 / r, r / len(corners)], [2 * r, len(corners)]) / (r + 2)
    n_spheres = -(-n_least // len(directions))
    levels = np.log(chi2.ppf((np.arange(n_spheres) + 0.5) / n_spheres, r))

    def excess(power: float) -> float:
        squares = np.exp(power * levels)
        return float(np.mean(np.square(squares)) / np.mean(squares) ** 2 - 1 - 2 / r)

    squares = np.exp(levels * (brentq(excess, 0.5, 10.0) if n_spheres > 1 else 1.0))
    rng = np.random.default_rng(0)
    points = [
        directions @ np.linalg.qr(rng.standard_normal((r, r)))[0] * math.sqrt(square)
        for square in squares * (r / squares.mean())
    ]
    return np.concatenate(points), np.tile(shares, n_spheres) / n_spheres


def evaluate(function: Function, X: Values, values: Array) -> Array:
    """Return the outputs of a function, (n_rows, n_outputs), for values in the container of X."""
    with np.errstate(all="ignore"):  # callers check for values that are not finite
        return dense(function(like(X, values))).reshape(len(values), -1)


def is_affine(function: Function, X: Values) -> bool:
    """Return whether a function is affine on test rows, within the range of X and beyond it."""
    rows = _levels(X, 14)
    low, high = rows.min(axis=0), rows.max(axis=0)
    span = np.where(high > low, high - low, np.maximum(np.abs(low), 1.0))
    ends = np.stack([low - span, high + span])
    rows = np.concatenate([rows, ends])
    try:
        values, between = (evaluate(function, X, part) for part in (rows, 0.3 * rows[0::2] + 0.7 * rows[1::2]))
    except ValueError:  # the function refuses these values
        return False
    expected = 0.3 * values[0::2] + 0.7 * values[1::2]
    # Rounding in X counts as far as the function magnifies it.
    size = np.abs(values).max(axis=0) + np.ptp(values, axis=0) * np.max(np.abs(rows).max(axis=0) / span, initial=1.0)
    eps = np.finfo(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64).eps
    return bool(np.all(np.abs(between - expected) <= 30 * eps * size))


def _levels(X: Values, n_rows: int = 64) -> Array:
    """Return rows of quantiles of every feature, from its least to its largest value, each feature in a random order.

    A constant feature is given values up to a hundredth of its size away: its errors will move it.
    """
    values = np.sort(as_numbers(X, "X"), axis=0)
    levels = values[np.linspace(0, len(values) - 1, n_rows).round().astype(np.intp)]
    size = np.where(levels[0] == 0, 1.0, np.abs(levels[0]))
    levels += np.where(levels[0] == levels[-1], 0.01 * size, 0.0) * np.linspace(-1.0, 1.0, n_rows)[:, np.newaxis]
    rng = np.random.default_rng(0)
    return np.column_stack([rng.permutation(column) for column in levels.T])


@dataclass(frozen=True)
class CurvedMap:
    """The dependence of the outputs of a transformer on features, and its slopes at the ends of their ranges.

    Outputs that depend on common features, directly or through others, form a group with these features. Independent
    errors stay independent between groups.

    ``features`` and ``outputs`` hold the group of each feature and output, -1 for one without any dependence. ``low``
    and ``high`` are the ends of the range of the feature of an output; ``below`` and ``above`` the slopes of the output
    there, if it is constant beyond, else 0; ``signs`` is +1 if it rises with the feature, -1 if it falls, else 0.
    """

    features: Index
    outputs: Index
    low: Array
    high: Array
    below: Array
    above: Array
    signs: Array

    @classmethod
    def of(cls, function: Function, X: Values, *, joint: bool = False) -> "CurvedMap":
        """Return the map of a function, from its values at rows made of X; ``joint``: all features form one group."""
        d = int(X.shape[1])
        rows = _levels(X)
        values = evaluate(function, X, rows)
        K = values.shape[1]
        if joint or d > 1000:
            features, outputs = np.zeros(d, dtype=np.intp), np.zeros(K, dtype=np.intp)
        else:
            features, outputs = _groups(_dependence(function, X, rows, values))
        result = cls(features, outputs, *np.zeros((5, K)))
        return result if joint or not result.is_one_to_one else result._with_ends(function, X)

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return int(max(self.features.max(initial=-1), self.outputs.max(initial=-1))) + 1

    @property
    def is_elementwise(self) -> bool:
        """Whether every output depends on one feature."""
        return bool(np.bincount(self.features[self.features >= 0], minlength=1).max() <= 1)

    @property
    def is_one_to_one(self) -> bool:
        """Whether every output depends on one feature, and no two on the same."""
        return self.is_elementwise and bool(np.bincount(self.outputs[self.outputs >= 0], minlength=1).max() <= 1)

    @property
    def sources(self) -> Index:
        """The feature of every output, -1 for none; for groups of one feature."""
        feature = np.full(self.n_groups + 1, -1, dtype=np.intp)
        feature[self.features] = np.arange(len(self.features))
        feature[-1] = -1
        return np.asarray(feature[self.outputs])

    @property
    def method(self) -> str:
        """The name of the rule, for ``method_``."""
        return "elementwise" if self.is_elementwise else "cubature"

    @property
    def keeps_gaps(self) -> bool:
        """Whether outputs of missing values are missing."""
        return self.is_one_to_one

    @property
    def directions(self) -> tuple[Index, NDArray[np.int8] | None]:
        """The feature of every output, and whether it rises (+1) or falls with it; None where limits cannot pass."""
        passes = self.is_one_to_one and bool(np.all((self.signs != 0) | (self.outputs < 0)))
        return self.sources, self.signs.astype(np.int8) if passes else None

    def apply(self, transformer: Estimator, X: Values, X_err: ErrorBars) -> tuple[Values, ErrorBars]:
        """Return the outputs of the transformer of this map, and their errors."""
        errors = check_causes(X_err.toarray() if sp.issparse(X_err) else X_err, X)
        means, new_errors = self.carry(transformer.transform, X, errors)
        outputs = transformer.transform(X)
        return means if sp.issparse(outputs) else like(outputs, means), new_errors

    @property
    def matrix(self) -> Any:
        """Raises: a curved map has no matrix."""
        raise AttributeError("the transformer is not affine: it has no matrix")

    def with_components(self, samples: Measured, components: Any, transformer: Estimator, X: Values) -> Measured:
        """Return transformed samples with the moments of the mixtures of X: every component goes through the map.

        Where covariances would take more than ``MOST_STORED`` numbers, samples are returned unchanged: their moments
        are those of the Gaussian with the mean and covariance of the mixture.
        """
        (n, d), K = X.shape, len(self.outputs)
        if n * K * K > MOST_STORED:
            return samples
        means, covariances = np.empty((n, K)), np.zeros((n, K, K))
        for part in row_blocks(n, components.n_components * (d * d + K * K)):
            mixture, block = components[part], take_rows(X, part)
            inner, noise = mixture.scores(np.eye(d))
            moved = [
                self.apply(transformer, like(block, m), V)
                for m, V in zip(np.moveaxis(inner, 1, 0), np.moveaxis(noise, 1, 0), strict=True)
            ]
            centres = np.stack([as_numbers(values, "X") for values, _ in moved], axis=1)
            means[part] = np.einsum("ik,ikj->ij", mixture.weights, centres)
            for q, centre, (values, errors) in zip(mixture.weights.T, np.moveaxis(centres, 1, 0), moved, strict=True):
                spread = check_products(errors, values).dense()
                spread = spread if spread.ndim == 3 else spread[:, :, np.newaxis] * np.eye(K)
                away = centre - means[part]
                covariances[part] += q[:, np.newaxis, np.newaxis] * (
                    spread + away[:, :, np.newaxis] * away[:, np.newaxis]
                )
        return Measured.checked(like(samples.X, means), covariances)

    def _with_ends(self, function: Function, X: Values) -> "CurvedMap":
        """Return the map with the slopes of the function at the ends of the range of X."""
        values = as_numbers(X, "X")
        low, inner, outer, high = np.quantile(values, [0.0, 0.05, 0.95, 1.0], axis=0)
        inner, outer = np.where(inner > low, inner, high), np.where(outer < high, outer, low)
        f_low, f_inner, f_outer, f_high = evaluate(function, X, np.stack([low, inner, outer, high]))
        steps = np.diff(evaluate(function, X, np.sort(_levels(X), axis=0)), axis=0)
        source = self.sources
        ends: list[Array] = []
        with np.errstate(all="ignore"):
            for end, f_end, next_to, f_next in ((low, f_low, inner, f_inner), (high, f_high, outer, f_outer)):
                try:
                    beyond = evaluate(function, X, (2 * end - (low + high - end))[np.newaxis])[0]
                except ValueError:  # the function refuses values beyond, so it is not constant there
                    beyond = np.full(len(source), np.nan)
                slope = (f_next - f_end) / (next_to - end)[source]
                constant = np.abs(beyond - f_end) <= SAME * np.abs(
                    f_end
                )  # to rounding: a tail that fades out is not constant
                ends.append(np.where(constant & (source >= 0) & np.isfinite(slope), slope, 0.0))
        signs = (np.all(steps >= 0, axis=0) * 1.0 - np.all(steps <= 0, axis=0)) * (source >= 0)
        return CurvedMap(self.features, self.outputs, low[source], high[source], ends[0], ends[1], signs)

    def carry(self, function: Function, X: Values, errors: Errors) -> tuple[Array, ErrorBars]:
        """Return means of the outputs of a function for X with these errors, (n, K), and the errors of the outputs.

        These are standard deviations if independent; else covariances, or :class:`LowRank` if that takes less memory.
        Beyond ``MOST_STORED`` numbers only the largest common causes are kept, and the rest of each variance becomes
        independent.
        """
        n, K = X.shape[0], len(self.outputs)
        if errors.is_independent:
            normals, weights = self._rule()
            points = _Points(function, X, lambda part: np.stack([errors.take(part).moved(z) for z in normals]))
            return self._collected(points, self.outputs, weights)
        if self.is_elementwise and n * K * K <= MOST_STORED:
            return self._correlated(function, X, errors)
        d = X.shape[1]
        if errors.n_causes > d and n * d * d <= MOST_STORED:
            errors = check_causes(np.stack([errors.times(axis) for axis in np.eye(d)], axis=1), X)
        causes, shares = spheres(errors.n_causes)
        points = _Points(function, X, lambda part: np.stack([errors.take(part).moved(cause) for cause in causes]))
        together = np.where(self.outputs < 0, -1, 0)
        return self._collected(points, together, np.where(together < 0, 0.0, shares[:, np.newaxis]))

    def _rule(self) -> tuple[Array, Array]:
        """Return the points, (n_points, d) in units of the errors, and their weights for every output, (n_points, K).

        Every group has its points in its features, so all groups are evaluated at once.
        """
        sizes = np.bincount(self.features[self.features >= 0], minlength=self.n_groups)
        t, w = gauss_hermite()
        rules = [(t[:, np.newaxis], w)] * len(sizes)
        for group, size in enumerate(sizes.tolist()):
            if size > 1:
                rules[group] = spheres(size)
        n_points = max((len(w) for _, w in rules), default=1)
        normals, weights = np.zeros((n_points, len(self.features))), np.zeros((n_points, len(self.outputs)))
        for group, (points, w) in enumerate(rules):
            normals[: len(w), self.features == group] = points[:, : sizes[group]]
            weights[: len(w), self.outputs == group] = w[:, np.newaxis]
        return normals, weights

    def _collected(self, points: "_Points", groups: Index, weights: Array) -> tuple[Array, ErrorBars]:
        """Return means, (n, K), and errors of outputs, for errors that are independent between groups."""
        n, K = points.n_samples, len(groups)
        means, result = np.empty((n, K)), _Collector(n, groups, np.count_nonzero(weights, axis=0))
        for part, here, values, at in points.blocks(len(weights), K):
            means[part] = here + np.einsum("qk,qik->ik", weights, values - here)
            deviations = self._continued(values, at) - here
            deviations -= np.einsum("qk,qik->ik", weights, deviations)
            deviations *= np.sqrt(weights)[:, np.newaxis]
            result.add(part, deviations)
        return means, result.errors

    def _correlated(self, function: Function, X: Values, errors: Errors) -> tuple[Array, Array]:
        """Return means and covariances of outputs that depend on one feature each, by the formula of Mehler.

        With the coefficients ``c_pk`` of output k in orthonormal Hermite polynomials of its feature, and the
        correlations ``r`` of the errors of the features, the covariance of two outputs is ``sum_p c_pk c_pl r^p``.
        """
        (n, d), K, source = X.shape, len(self.outputs), self.sources
        t, w = gauss_hermite()
        std = np.sqrt(np.maximum(errors.variances(np.eye(d)), 0.0))
        points = _Points(function, X, lambda part: std[part] * t[:, np.newaxis, np.newaxis])
        means, covariances = np.empty((n, K)), np.empty((n, K, K))
        both = (source >= 0)[:, np.newaxis] & (source >= 0)
        for part, here, values, at in points.blocks(len(t), K):
            means[part] = here + np.where(source < 0, 0.0, np.einsum("q,qik->ik", w, values - here))
            coefficients = np.einsum("pq,qik->pik", hermite(), self._continued(values, at) - here)
            block = errors.take(part)
            size = np.where(std[part] > 0, std[part], 1.0)
            noise = np.stack([block.times(axis) for axis in np.eye(d)], axis=1)
            noise /= size[:, :, np.newaxis] * size[:, np.newaxis, :]
            correlations = noise[:, source][:, :, source] * both
            power, total = correlations, np.zeros_like(correlations)
            for c in coefficients:
                total += c[:, :, np.newaxis] * c[:, np.newaxis, :] * power
                power = power * correlations
            covariances[part] = total
        return means, covariances

    def _continued(self, values: Array, at: Array) -> Array:
        """Return values that continue with the slope at the end of the range where the function is constant beyond."""
        if not (self.below.any() or self.above.any()):
            return values
        x = at[:, :, self.sources]
        beyond = self.above * np.maximum(x - self.high, 0.0)
        return np.asarray(values + beyond + self.below * np.minimum(x - self.low, 0.0))


def _dependence(function: Function, X: Values, rows: Array, values: Array) -> NDArray[np.bool_]:
    """Return whether each feature moves each output, (n_features, n_outputs), given rows and their outputs.

    One evaluation, with the values of every feature permuted by another order, tells outputs of one feature: they are
    permuted by the order of this feature. For the others, features are permuted one at a time.
    """
    d, K = rows.shape[1], values.shape[1]
    rng = np.random.default_rng(1)
    orders = np.stack([rng.permutation(len(rows)) for _ in range(d)])
    with np.errstate(invalid="ignore"):
        allowed = SAME * np.nan_to_num(np.ptp(values, axis=0), posinf=0.0)

    def same(one: Array, other: Array) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            return np.asarray(((np.abs(one - other) <= allowed) | (np.isnan(one) & np.isnan(other))).all(axis=0))

    mixed = evaluate(function, X, np.take_along_axis(rows, orders.T, axis=0))
    depends = np.stack([same(mixed, values[order]) for order in orders])
    depends[:, same(values, values[:1])] = False
    others = np.flatnonzero(depends.sum(axis=0) != 1)
    others = others[~same(values, values[:1])[others]]
    if len(others):
        depends[:, others] = False
        for j, order in enumerate(orders):
            moved = rows.copy()
            moved[:, j] = rows[order, j]
            depends[j, others] = ~same(evaluate(function, X, moved), values)[others]
    return depends.reshape(d, K)


def _groups(depends: NDArray[np.bool_]) -> tuple[Index, Index]:
    """Return the groups of features and of outputs that depend on each other; -1 for no dependence."""
    d, K = depends.shape
    j, k = np.nonzero(depends)
    labels = connected_components(coo_array((np.ones(len(j)), (j, d + k)), shape=(d + K, d + K)), directed=False)[1]
    alone = np.concatenate([~depends.any(axis=1), ~depends.any(axis=0)])
    groups = np.full(d + K, -1, dtype=np.intp)
    groups[~alone] = np.unique(labels[~alone], return_inverse=True)[1]
    return groups[:d], groups[d:]


@dataclass(frozen=True)
class _Points:
    """A function at points about samples; ``away`` returns their distances for rows, (n_points, n_rows, d)."""

    function: Function
    X: Values
    away: Callable[[slice], Array]

    @property
    def n_samples(self) -> int:
        return int(self.X.shape[0])

    def blocks(self, n_points: int, n_outputs: int) -> Iterator[tuple[slice, Array, Array, Array]]:
        """Yield rows, outputs at the samples (n_rows, K) and at the points (n_points, n_rows, K), and the points."""
        for part in row_blocks(self.n_samples, n_points * (self.X.shape[1] + n_outputs)):
            block = np.asarray(take_rows(self.X, part), dtype=np.float64)
            here, away = evaluate(self.function, self.X, block), self.away(part)
            if not np.isfinite(here).all():
                i, k = np.argwhere(~np.isfinite(here))[0]
                raise ValueError(
                    f"the transformer makes {here[i, k]} of sample {part.start + i}, in feature {k} of its output: "
                    "what has no value has no error bar. Give NaN for what was not measured, or use a function that is "
                    "defined for all values, as arcsinh in place of a logarithm"
                )
            at = block + away
            values = self._values(at)
            wrong = np.asarray(~np.isfinite(values).all(axis=0))
            if wrong.any():
                few = np.flatnonzero(wrong.any(axis=1))
                slopes = (self._values(block[few] + 2.0**-10 * away[:, few]) - here[few]) / 2.0**-10
                if not np.isfinite(slopes[:, wrong[few]]).all():
                    raise ValueError(
                        f"the transformer has no value close to sample {part.start + int(few[0])}, so its error is not "
                        "known"
                    )
                values[:, few] = np.where(wrong[few], here[few] + slopes, values[:, few])
            yield part, here, values, at

    def _values(self, points: Array) -> Array:
        n_points, n_rows, d = points.shape
        try:
            values = evaluate(self.function, self.X, points.reshape(-1, d))
        except ValueError as error:
            raise ValueError(
                f"the transformer cannot be evaluated within some errors of the samples: {error}"
            ) from error
        return values.reshape(n_points, n_rows, -1)


class _Collector:
    """The errors of outputs in groups, from deviations at points, in the form that takes the least memory."""

    def __init__(self, n_samples: int, groups: Index, n_points: Index) -> None:
        K = len(groups)
        self.wide: list[tuple[Index, int]] = []
        for group in range(int(groups.max(initial=-1)) + 1):
            index = np.flatnonzero(groups == group)
            if len(index) > 1:
                self.wide.append((index, min(len(index), int(n_points[index[0]]))))
        total = sum(rank for _, rank in self.wide)
        self.n_points, self.ranks = n_points, {int(index[0]): rank for index, rank in self.wide}
        self.covariances = self.factors = None
        self.std = np.empty((n_samples, K))
        if not self.wide:
            return
        most = max(len(self.wide), MOST_STORED // max(1, n_samples * K))
        if min(total, most) >= K:
            self.covariances = np.zeros((n_samples, K, K))
            return
        if total > most:
            self.wide = [(index, max(1, rank * most // total)) for index, rank in self.wide]
        self.factors = np.zeros((n_samples, K, sum(rank for _, rank in self.wide)))

    def add(self, part: slice, deviations: Array) -> None:
        """Add rows: deviations times roots of weights, of shape (n_points, n_rows, K)."""
        variances = np.einsum("qik,qik->ik", deviations, deviations)
        if self.covariances is not None:
            np.einsum("ikk->ik", self.covariances)[part] = variances
        first = 0
        for index, rank in self.wide:
            columns = np.moveaxis(deviations[:, :, index], 0, 2)
            columns = columns[:, :, : self.n_points[index[0]]]
            if self.covariances is not None:
                self.covariances[part, index[:, np.newaxis], index] = columns @ columns.transpose(0, 2, 1)
                continue
            assert self.factors is not None
            if columns.shape[2] > rank:
                axes, sizes, _ = np.linalg.svd(columns, full_matrices=False)
                columns = axes[:, :, :rank] * sizes[:, np.newaxis, :rank]
            self.factors[part, index, first : first + columns.shape[2]] = columns
            rest = variances[:, index] - np.einsum("ikr,ikr->ik", columns, columns)
            variances[:, index] = rest if rank < self.ranks[index[0]] else 0.0
            first += rank
        self.std[part] = np.sqrt(np.maximum(variances, 0.0))

    @property
    def errors(self) -> ErrorBars:
        """Standard deviations, covariances, or both as LowRank."""
        if self.covariances is not None:
            return self.covariances
        return self.std if self.factors is None else LowRank(self.factors, self.std)
