"""Problems that compare pairs of classes: what those with and without error bars, and that of balls, have in common.

F is a sum over the pairs of functions of ``w_c - w_k`` and ``b_c - b_k``. Gradients and Hessians are those of pairs,
added to ``c`` and subtracted from ``k``: a graph Laplacian of blocks. F does not change when one vector is added to
every ``w_k``; they are kept at ``sum_k w_k = 0``.

Conventions
-----------
W : array (C, n_columns); b : array (C,)
x : flat array of (C - 1, n_columns + 1), the unknowns: ``(w, b)`` of each class minus that of the last. The last class
    should be the heaviest: what a light class far from the others does would be lost in the rounding of the difference
cell (c, k) : the rows of class c against class k; arrays of cells have shape (C, C, ...), 0 on the diagonal
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from gaussguru._data.rows import Rows, RowVector
from gaussguru._linalg import EPS, Array, Factor, diagonal, factorise
from gaussguru._problems.binary import damping_of
from gaussguru._problems.smoothing import HIDDEN, NEGLIGIBLE, NONE, RARE, SPEED, UNCERTAIN, Smoothing
from gaussguru.certificates.dual_point import Certificate
from gaussguru.losses import Loss
from gaussguru.noise import Noise, Quadratic

# The Hessian is formed up to this many unknowns: it and its factor then take 100 MB.
MAX_UNKNOWNS = 2600


class ByClass:
    """A problem whose unknowns are those of classes; subclasses are frozen values with these fields."""

    rows: Rows
    fit_intercept: bool
    smoothing: Smoothing
    is_smooth: ClassVar[bool] = True
    is_fused: ClassVar[bool] = True

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.rows.n_classes

    def unknowns(self, coef: Array, intercept: Any) -> Array:
        """Return the unknowns of a classifier; of two classes it may be a vector and a number."""
        if coef.ndim == 1:
            coef, intercept = np.vstack([-coef, coef]) / 2, np.array([-intercept, intercept]) / 2
        return fold(coef, np.asarray(intercept))

    def smoothed(self, smoothing: Smoothing) -> Self:
        """Return the same problem with other smoothing."""
        return self if smoothing == self.smoothing else replace(self, smoothing=smoothing)  # type: ignore[type-var]

    def rescaled(self, point: Any, tol: float) -> Any:
        """Return the point as it is: its length and intercepts are unknowns like others."""
        return point

    def constant_slopes(self) -> Array:
        """Return 0 for every row and class."""
        return np.zeros((self.rows.n_rows, self.n_classes))

    def collapse_bound(self) -> float:
        """Return 0: the path finds out whether classes collapse."""
        return 0.0

    def first_x(self) -> Array:
        """Return zero."""
        return np.zeros((self.n_classes - 1) * (self.rows.n_columns + 1))


@dataclass(frozen=True, eq=False)
class PairProblem(ByClass):
    """Rows with a loss and the noise of a model, which is None where samples have no other noise than their own.

    ::

        F(W, b) = sum_i s_i sum_{k != y_i} a f(m / a) + (l2/2) sum_{c<k} ||w_c - w_k||^2
        m = 1 - (w_c - w_k).x_i - (b_c - b_k),    c = y_i

    (thesis, chapter 5: M-GURU). Their only smoothing is the blur.
    """

    rows: Rows
    loss: Loss
    noise: Quadratic | None
    l2: float = 0.0
    fit_intercept: bool = True
    smoothing: Smoothing = NONE

    @property
    def weight(self) -> float:
        """F at zero: every row loses 1 against every other class."""
        return (self.n_classes - 1) * self.rows.total_weight

    def scaled(self, factor: float) -> Self:
        """Return the same problem with all standard deviations of the model multiplied by a factor."""
        return self if factor == 1 or self.noise is None else replace(self, noise=self.noise.scaled(factor))

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about ``n_rows`` rows, each class reweighted to its own total."""
        return replace(self, rows=self.rows.subsample(n_rows, rng, RARE))

    def initial(self, last: Smoothing, target: float) -> tuple[Any, Smoothing]:
        """Return zero, with a blur of a margin."""
        smoothing = Smoothing(1.0, 1.0)
        return self.smoothed(smoothing).point(self.first_x()), smoothing

    @abstractmethod
    def point(self, x: Array) -> Any:
        """Evaluate F."""

    def metric(self, U: Array) -> Array:
        """Return ``U N`` for the covariance N of the noise of the model."""
        return np.zeros_like(U) if self.noise is None else self.noise.metric(U)

    def ridge(self, W: Array) -> float:
        """Return what the ridge adds to F."""
        return 0.5 * self.l2 * self.n_classes * float(np.vdot(W, W))

    @property
    def blur(self) -> float:
        """The blur; the least one changes no value, but keeps z finite."""
        return max(self.smoothing.blur, 1e-100)

    def constant_value(self, intercept: Any) -> float:
        """Return F of a classifier with these intercepts that ignores the features: the loss is the hinge."""
        b = np.array([-intercept, intercept]) / 2 if np.ndim(intercept) == 0 else intercept
        return hinge_value(self.rows.class_weights, b)

    def constant_near(self, b: Array | None) -> tuple[Any, float]:
        """Return intercepts of the best classifier of some that ignore the features, and F there.

        They are 0; those that name the heaviest class; and those ``b`` to which a solver came, or the whole ones next
        to them: at ``W = 0`` F is least where differences are whole.
        """
        C, weights = self.n_classes, self.rows.class_weights
        candidates = [np.zeros(C)]
        if self.fit_intercept:
            candidates.append((np.arange(C) == np.argmax(weights)) - 1 / C)
            if b is not None:
                rounded = np.round(b - b[0])
                candidates += [b - b.mean(), rounded - rounded.mean()]
        values = [hinge_value(weights, each) for each in candidates]
        best = candidates[int(np.argmin(values))]
        return (float(best[1] - best[0]) if C == 2 else best), min(values)


class PairLocal:
    """Value and derivatives at one point, in the unknowns; subclasses have these.

    ``mass`` is ``sum s f'`` of every cell.
    """

    problem: Any
    point: Any
    W: Array
    b: Array
    value: float
    mass: Array
    contraction: ClassVar[float]
    refreshes: ClassVar[bool]

    @cached_property
    def x(self) -> Array:
        """The unknowns."""
        return fold(self.W, self.b)

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        problem = self.problem
        result = np.empty((problem.n_classes, problem.rows.n_columns + 1))
        result[:, :-1] = self.force
        if problem.l2:
            result[:, :-1] += problem.l2 * problem.n_classes * self.W
        result[:, -1] = self.mass.sum(axis=0) - self.mass.sum(axis=1) if problem.fit_intercept else 0.0
        return result[:-1].ravel()

    @property
    @abstractmethod
    def force(self) -> Array:
        """The gradient by W without the ridge."""

    # --- the Hessian --------------------------------------------------------------------------------------

    @cached_property
    def unit_damping(self) -> Array:
        """As if all rows had a curvature of 1, in their scores and in their noise."""
        C = self.problem.n_classes
        return np.tile(C * damping_of(self.problem.rows, self.problem.noise), C - 1)

    @abstractmethod
    def hessian(self) -> Array:
        """Return the Hessian by the unknowns."""

    def factor(self, damping: Array) -> Any:
        """Return a factor of the damped Hessian, if it has not too many unknowns."""
        return damped_factor(self.hessian(), damping) if len(self.gradient) <= MAX_UNKNOWNS else None

    def main(self) -> Any:
        """Return the same."""
        return self

    def assembled(self, blocks: Iterable[Array]) -> Array:
        """Return the Hessian by the unknowns from that of every pair ``c < k``."""
        problem, C, width = self.problem, self.problem.n_classes, self.problem.rows.n_columns + 1
        hessian = np.zeros((C - 1, width, C - 1, width))
        for block, (c, k) in zip(blocks, pairs_of(C), strict=True):
            if problem.l2:
                diagonal(block[:-1, :-1])[:] += problem.l2
            hessian[c, :, c] += block
            if k < C - 1:  # the last class is what the unknowns are relative to
                hessian[k, :, k] += block
                hessian[c, :, k] -= block
                hessian[k, :, c] -= block
        if not problem.fit_intercept:
            hessian[:, -1], hessian[:, :, :, -1] = 0.0, 0.0
            hessian[np.arange(C - 1), -1, np.arange(C - 1), -1] = 1.0
        return hessian.reshape((C - 1) * width, -1)

    def folded(self, out: Array, P: Array, shifts: Array) -> Array:
        """Return what a product with the Hessian makes of the unknowns, from its rows by class without the ridge."""
        problem = self.problem
        if problem.l2:
            out[:, :-1] += problem.l2 * problem.n_classes * P
        if not problem.fit_intercept:
            out[:, -1] = shifts - shifts[-1]
        return out[:-1].ravel()

    # --- smoothing ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def least_scale(self) -> float:
        """The scale of the noise beside which blur must be negligible."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The standard deviation of the margins of a pair."""

    def is_final(self, last: Smoothing, target: float) -> bool:
        """Return whether this is the last smoothing."""
        return bool(self.problem.smoothing == last)

    def less_smoothing(self, last: Smoothing, target: float) -> Smoothing:
        """Return the smoothing to which the minimum is followed next."""
        return self._negligible(self.problem.smoothing.blur / SPEED, last)

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing that hides most of how far the minimum of more rows is from this one."""
        return self._negligible(HIDDEN * self._uncertainty, last)

    def _negligible(self, blur: float, last: Smoothing) -> Smoothing:
        """Return a blur, or the last one where that is negligible."""
        return Smoothing(1.0, last.blur if blur <= max(last.blur, NEGLIGIBLE * self.least_scale) else blur)

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum by more than less smoothing would."""
        return bool(self.problem.smoothing.blur <= UNCERTAIN * self._uncertainty)

    @cached_property
    def _uncertainty(self) -> float:
        """How far margins may move with more rows: ``sqrt(columns / rows)`` of their spread."""
        rows = self.problem.rows
        return self.spread * float(np.sqrt(rows.n_columns * rows.n_classes / (2 * rows.n_rows)))

    # --- certificates -------------------------------------------------------------------------------------

    @abstractmethod
    def dual(self, used: Array, primal: float, target: float, *, thorough: bool) -> float:
        """Return a dual value with the pairs that are ``used``."""

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, Any]:
        """Return bounds on the minimum from the slopes of this point, and the point itself.

        A gap that cannot fall below ``target`` is not computed to the end, unless ``thorough``.
        """
        problem, total = self.problem, float(self.mass.sum())
        reach = float(np.sqrt((self.W**2).sum(axis=0)) @ np.sqrt(total * problem.rows.column_squares))
        scales = 0.0 if problem.noise is None else noise_rounding(problem.noise, self.W, total)
        primal, dual = self.value + 4 * EPS * (self.value + reach) + scales, 0.0
        if primal > target and (primal - total <= target or thorough):
            for used in touching(self.mass, target):
                dual = max(dual, self.dual(used, primal, target, thorough=thorough))
                if primal - dual <= target:
                    break
        return Certificate(primal, dual), self.point

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return 0: a step says no more than the point."""
        return 0.0, None


def fold(W: Array, b: Array) -> Array:
    """Return the unknowns: ``(w, b)`` of each class minus that of the last."""
    params = np.column_stack([W, b])
    return np.asarray((params[:-1] - params[-1]).ravel())


def unfold(x: Array, n_classes: int) -> tuple[Array, Array]:
    """Return ``W`` and ``b``, each adding up to zero over the classes, from the unknowns."""
    full = np.zeros((n_classes, x.size // (n_classes - 1)))
    full[:-1] = x.reshape(n_classes - 1, -1)
    full -= full.mean(axis=0)
    return np.ascontiguousarray(full[:, :-1]), np.ascontiguousarray(full[:, -1])


def mixed(parts: list[tuple[float, Array]]) -> Array:
    """Return a linear combination."""
    return np.asarray(sum(share * part for share, part in parts))


def mixed_points(parts: list[tuple[float, Any]]) -> tuple[Array, Array, RowVector]:
    """Return the same combination of coefficients, intercepts and scores of points."""
    W, b = mixed([(share, point.W) for share, point in parts]), mixed([(share, point.b) for share, point in parts])
    blocks = range(len(parts[0][1].scores))
    return W, b, [mixed([(share, point.scores[i]) for share, point in parts]) for i in blocks]


def pairs_of(n_classes: int) -> list[tuple[int, int]]:
    """Return all pairs ``c < k``."""
    return [(c, k) for c in range(n_classes - 1) for k in range(c + 1, n_classes)]


def damped_factor(hessian: Array, damping: Array) -> Factor:
    """Return a factor of a Hessian with damping on its diagonal."""
    diagonal(hessian)[:] += damping
    return factorise(hessian)


def laplacian(weights: Array) -> Array:
    """Return the Laplacian of a graph with these edge weights, a symmetric matrix with a zero diagonal."""
    result = -weights
    diagonal(result)[:] = weights.sum(axis=1)
    return result


def hinge_value(class_weights: Array, b: Array) -> float:
    """Return F at ``W = 0``, where the noise is gone and the loss is the hinge."""
    hinge = np.maximum(0.0, 1.0 - (b[:, np.newaxis] - b))
    diagonal(hinge)[:] = 0.0
    return float(class_weights @ hinge.sum(axis=1))


# Left out of a dual point are classes whose slopes add up to at most the first fraction of the wanted gap, and pairs
# with at most the second fraction of the slopes of either class. Groups of classes that hardly touch each other need
# the last: what little flows between them has no room.
LEFT_OUT = ((1e-6, 1e-9), (1e-3, 1e-9), (1e-3, 1e-5))


def touching(slope: Array, target: float) -> list[Array]:
    """Return which pairs of classes count in a dual point, more of them first.

    Pairs that hardly touch, ``alpha = 0``, add nothing, and nothing could flow through them. What flows to a class
    through a pair that is left out has to come through its others: all of a class go, or none that matter.
    """
    both = slope + slope.T
    total = both.sum(axis=1)
    chosen = []
    for negligible, slight in LEFT_OUT if len(slope) > 2 else ((0.0, 0.0),):
        counts = total > negligible * target
        chosen.append((both > slight * np.minimum.outer(total, total)) & counts & counts[:, np.newaxis])
    return chosen


def pair_rounding(slope: Array, rows: Rows, *, thorough: bool) -> Callable[[int, int], Array]:
    """Return a bound on the rounding error of what the rows of a pair pull, by column.

    ``sum s alpha |x_j|`` is at most the root of the mass times ``sum s x_j^2`` (Cauchy and Schwarz); to be ``thorough``
    is to look for the largest ``|x_j|`` too.
    """
    roots, both = np.sqrt(slope) + np.sqrt(slope.T), slope + slope.T
    lengths, peaks = np.sqrt(rows.column_squares), rows.peaks if thorough else np.inf
    return lambda c, k: 8 * EPS * np.minimum(roots[c, k] * lengths, both[c, k] * peaks)


def noise_rounding(noise: Noise, W: Array, level: float) -> float:
    """Return a bound on what rounding of the scales changes in F, where they count ``level`` in all."""
    return level * max(noise.rounding(W[c] - W[k]) for c, k in pairs_of(len(W)))
