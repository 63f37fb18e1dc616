"""Problems that compare pairs of classes: the code shared by problems with and without error bars and by balls.

F is a sum over pairs of classes of functions of ``w_c - w_k`` and ``b_c - b_k``. The gradient of a pair is added to
class c and subtracted from class k, so the Hessian is a graph Laplacian of blocks. F does not change when one vector is
added to every ``w_k``; they are kept at ``sum_k w_k = 0``.

Conventions
-----------
W : array (C, n_columns); b : array (C,)
x : flat array of (C - 1, n_columns + 1), the unknowns: ``(w, b)`` of each class minus that of the last. The last class
    should be the heaviest: differences to a light class far from the others would lose digits
cell (c, k) : the rows of class c against class k; arrays of cells have shape (C, C, ...), 0 on the diagonal
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from gaussguru._guru.certificates.dual_point import Certificate, Ray, balance, route
from gaussguru._guru.problems.protocol import LocalModel, LossProblem, Problem
from gaussguru._guru.problems.smoothing import NEGLIGIBLE, UNCERTAIN, Smoothing
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import EPS, LOST, Array, Index, Intercept, diagonal, norm
from gaussguru.noise import Isotropic, QuadraticNoise


@dataclass(eq=False)
class ClassPoint:
    """A point with its value: coefficients (C, n_columns) and intercepts (C,)."""

    W: Array
    b: Array
    value: float

    @cached_property
    def x(self) -> Array:
        """The unknowns."""
        return fold(self.W, self.b)


@dataclass(eq=False)
class PairPoint(ClassPoint):
    """A point with sums over every cell, (C, C): ``mass = sum s f'``, ``gain = sum s f``, ``tension = sum s f*/a``.

    The gradient of the noise term is the tension times ``N (w_c - w_k)``.
    """

    mass: Array
    gain: Array
    tension: Array


C = TypeVar("C", bound=ClassPoint)
P = TypeVar("P", bound=PairPoint)


class ByClass(Problem[C], Protocol[C]):
    """A problem with one coefficient vector and intercept per class."""

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.rows.n_classes

    def unknowns(self, coef: Array, intercept: Intercept) -> Array:
        """Return the unknowns of a classifier; for two classes, coefficients may be one vector and one number."""
        if coef.ndim == 1:
            coef, intercept = np.vstack([-coef, coef]) / 2, halved(intercept)
        return fold(coef, np.asarray(intercept))

    def classifier(self, point: C) -> tuple[Array, Intercept]:
        """Return coefficients and intercepts, which add up to zero."""
        return point.W, point.b

    def initial(self, last: Smoothing, target: float) -> tuple[C, Smoothing]:
        """Return the point zero, with a blur of 1: the margin."""
        smoothing = Smoothing(1.0, 1.0)
        zero = np.zeros((self.n_classes - 1) * (self.rows.n_columns + 1))
        return self.smoothed(smoothing).point(zero), smoothing


@dataclass(frozen=True, eq=False)
class PairProblem(LossProblem[P], ByClass[P], Protocol[P]):
    """Rows with a loss and the noise of a model, or None if samples have error bars only.

    ::

        F(W, b) = sum_i s_i sum_{k != y_i} a f(m / a) + (l2/2) sum_{c<k} ||w_c - w_k||^2
        m = 1 - (w_c - w_k).x_i - (b_c - b_k),    c = y_i

    (thesis, chapter 5: M-GURU). The only smoothing is blur.
    """

    noise: QuadraticNoise | None

    @property
    def weight(self) -> float:
        """F at zero: a loss of 1 for every row and other class."""
        return (self.n_classes - 1) * self.rows.total_weight

    @property
    def shared(self) -> QuadraticNoise:
        """The noise of the model, with the covariance N; ``Isotropic(0)`` if there is none."""
        return self.noise or Isotropic(0.0)

    def squares(self, W: Array) -> Array:
        """Return ``u' N u + blur^2`` for every cell, (C, C); the diagonal is 1 and never used."""
        differences, blur = W[:, np.newaxis] - W, max(self.smoothing.blur, 1e-100)  # keeps z finite, changes no value
        result: Array = np.maximum(0.0, (differences * self.shared.metric(differences)).sum(axis=2)) + blur**2
        diagonal(result)[:] = 1.0
        return result

    def ridge(self, W: Array) -> float:
        """Return the ridge term of F."""
        return 0.5 * self.l2 * self.n_classes * float(np.vdot(W, W))

    def constant_value(self, intercept: Intercept) -> float:
        """Return F at ``W = 0`` for these intercepts; the noise vanishes and the loss is the hinge."""
        b = np.asarray(intercept)
        return float(hinge_values(self.rows.class_weights, np.atleast_2d(b if b.ndim else halved(intercept)))[0])

    def constant_near(self, point: P | None) -> tuple[Intercept, float]:
        """Return the best of a few candidate intercepts at ``W = 0``, and F there.

        Candidates are 0, the intercepts that predict the heaviest class, and those of ``point``, as they are and
        rounded: at ``W = 0`` F has a minimum at integer differences.
        """
        C, weights = self.n_classes, self.rows.class_weights
        candidates = [np.zeros(C)]
        if self.fit_intercept:
            candidates.append((np.arange(C) == np.argmax(weights)) - 1 / C)
            if point is not None:
                b = point.b
                rounded = np.round(b - b[0])
                candidates += [b - b.mean(), rounded - rounded.mean()]
        values = hinge_values(weights, np.array(candidates))
        least = int(values.argmin())
        best = candidates[least]
        return (float(best[1] - best[0]) if C == 2 else best), float(values[least])


# Maps a pair c, k to the flow from c to k and a bound on its error, both (n_columns,).
Flow = Callable[[int, int], tuple[Array, Array]]


@dataclass(eq=False)
class PairLocal(LocalModel[P], Protocol[P]):
    """Value and derivatives at one point, by the unknowns."""

    problem: PairProblem[P]
    point: P
    refreshes: ClassVar[bool] = True

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        problem, mass = self.problem, self.point.mass
        by_coef = self.force(np.ones_like(mass)) + problem.l2 * problem.n_classes * self.point.W
        given = mass.sum(axis=0) - mass.sum(axis=1)
        return joined(by_coef, given * problem.fit_intercept)[:-1].ravel()

    def force(self, kept: Array) -> Array:
        """Return the gradient by W without the ridge, (C, n_columns), with the slopes of every cell times ``kept``."""
        return np.asarray(self.pull(kept) + laplacian(symmetric(kept * self.point.tension)) @ self.metric)

    def pull(self, kept: Array) -> Array:
        """Return :meth:`force` without the noise of the model, (C, n_columns)."""

    @cached_property
    def metric(self) -> Array:
        """``W N``."""
        return np.asarray(self.problem.shared.metric(self.point.W))

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def _work(self) -> tuple[int, int]:
        """Multiply-adds of a product and of the Gram matrices of a Hessian; with error bars rows count as dense."""
        rows, C = self.problem.rows, self.problem.n_classes
        if rows.errors is None:
            return C * rows.n_values, C * rows.n_values * (rows.n_columns + 1)
        values, (product, gram) = C * rows.n_rows * rows.n_columns, rows.errors.work
        return int(values * product), int(values * gram * (rows.n_columns + 1))

    @property
    def hessian_cost(self) -> float:
        """Cost of a factor, relative to one :meth:`product` and one solution with the factor (measured)."""
        (product, grams), n = self._work, len(self.gradient)
        return 1.0 + (grams / 8 + n**3 / 20) / (product + 3 * n**2)

    @property
    def is_cheap(self) -> bool:
        """Whether a factor costs so little that it is computed at every step."""
        return len(self.gradient) ** 3 + self._work[1] < 4e7  # multiply-adds: about ten milliseconds (measured)

    def hessian(self) -> Array:
        """Return the Hessian by the unknowns."""
        problem, C, width = self.problem, self.problem.n_classes, self.problem.rows.n_columns + 1
        problem.rows.count("hessian")
        tension, hessian = symmetric(self.point.tension), np.zeros((C - 1, width, C - 1, width))
        for block, (c, k) in zip(self.blocks(), pairs_of(C), strict=True):
            problem.shared.add_metric(tension[c, k], block[:-1, :-1])
            diagonal(block[:-1, :-1])[:] += problem.l2
            hessian[c, :, c] += block
            if k < C - 1:  # the unknowns are relative to the last class
                hessian[k, :, k] += block
                hessian[c, :, k] -= block
                hessian[k, :, c] -= block
        if not problem.fit_intercept:
            hessian[:, -1], hessian[:, :, :, -1] = 0.0, 0.0
            hessian[np.arange(C - 1), -1, np.arange(C - 1), -1] = 1.0
        return hessian.reshape((C - 1) * width, -1)

    def blocks(self) -> Iterable[Array]:
        """Return the Hessian of every pair ``c < k``, without the ridge and tension times N."""

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; one pass over X."""
        problem, C = self.problem, self.problem.n_classes
        P, shifts = unfold(p, C)
        # (w_c - w_k)' N (p_c - p_k), the derivative of a^2 / 2 along p.
        rise = np.array([np.einsum("kj,kj->k", m - self.metric, q - P) for m, q in zip(self.metric, P, strict=True)])
        out = self._bent(P, shifts * problem.fit_intercept, rise)
        out[:, :-1] += laplacian(symmetric(self.point.tension)) @ problem.shared.metric(P) + problem.l2 * C * P
        if not problem.fit_intercept:
            out[:, -1] = shifts - shifts[-1]
        return out[:-1].ravel()

    def tangent(self, less: Smoothing) -> Array:
        """Return the first-order change of the gradient when smoothing falls to ``less``; one pass over X.

        See :meth:`gaussguru._guru.problems.binary.BinaryLocal.tangent`.
        """
        problem, C = self.problem, self.problem.n_classes
        rise = problem.smoothing.towards(less).blur * problem.smoothing.blur**2
        out = self._bent(np.zeros_like(self.point.W), np.zeros(C), np.full((C, C), rise))
        out[:, -1] *= problem.fit_intercept
        return out[:-1].ravel()

    def _bent(self, P: Array, shifts: Array, rise: Array) -> Array:
        """Return the change of the gradient, (C, n_columns + 1), at constant tension times N; one pass over X.

        Coefficients change by P, intercepts by ``shifts``, and half the squares of the scales by ``rise``, (C, C), and
        by the effect of P on the error bars.
        """
        self.problem.rows.count("product")
        out, turns = self.bend(P, shifts, rise)
        out[:, :-1] += laplacian(symmetric(turns)) @ self.metric
        return out

    def bend(self, P: Array, shifts: Array, rise: Array) -> tuple[Array, Array]:
        """Return :meth:`_bent` without the noise of the model, and the changes of the tensions, (C, C)."""

    # --- smoothing ----------------------------------------------------------------------------------------

    @property
    def spread(self) -> float:
        """A typical standard deviation of the margins of a pair."""

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing that covers most of the distance to the minimum of more rows."""
        return Smoothing(1.0, self.settled(NEGLIGIBLE * self._uncertainty, last.blur))

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum farther than less smoothing would."""
        return bool(self.problem.smoothing.blur <= UNCERTAIN * self._uncertainty)

    @cached_property
    def _uncertainty(self) -> float:
        """Expected change of the margins with more rows: ``sqrt(columns / rows)`` of their spread."""
        rows = self.problem.rows
        return self.spread * float(np.sqrt(rows.n_columns * rows.n_classes / (2 * rows.n_rows)))

    # --- certificates -------------------------------------------------------------------------------------

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, P]:
        """Return bounds on the minimum from the slopes of this point, and the point itself.

        The lower bound is 0 if it cannot close a gap of ``target``, unless ``thorough``.
        """
        problem, W, total = self.problem, self.point.W, float(self.point.mass.sum())
        reach = math.sqrt(total) * float(np.sqrt((W**2).sum(axis=0)) @ problem.rows.column_lengths)
        scales = total * max(problem.shared.rounding(W[c] - W[k]) for c, k in pairs_of(problem.n_classes))
        primal, dual = self.value + 4 * EPS * (self.value + reach) + scales, 0.0
        if primal > target and (primal - total <= target or thorough):
            dual = self.best_dual(target, np.inf if thorough else primal - target)
        return Certificate(primal, dual), self.point

    def best_dual(self, target: float, wanted: float) -> float:
        """Return the highest dual value over several selections of pairs; stop at the first that is ``wanted``."""
        return highest((self.dual(used, wanted) for used in touching(self.point.mass, target)), wanted)

    def dual(self, used: Array, wanted: float) -> float:
        """Return a dual value with the ``used`` pairs, (C, C) of booleans; stop once it reaches ``wanted``."""
        problem = self.problem
        kept = balance(np.where(used, self.point.mass, 0.0)) if problem.fit_intercept else 1.0 * used
        if kept is None:
            return 0.0
        mass, rest = (1 - 4 * EPS) * float(np.vdot(kept, self.point.mass)), -self.force(kept)
        flow, unrouted = route(rest, symmetric(kept * self.point.gain))
        # The rounding error of the pull of a pair: ``sum s alpha |x_j|`` is at most the root of the mass times
        # ``sum s x_j^2`` (Cauchy and Schwarz), and at most the mass times ``max |x_j|``, which takes a pass over X.
        roots, both = symmetric(np.sqrt(self.point.mass)), symmetric(self.point.mass)
        lengths, peaks = problem.rows.column_lengths, problem.rows.peaks if wanted == np.inf else np.inf

        def bounded(c: int, k: int) -> tuple[Array, Array]:
            rounding = 8 * EPS * np.minimum(roots[c, k] * lengths, both[c, k] * peaks)
            return flow(c, k), rounding + unrouted.get((c, k), 0.0)

        edges = np.nonzero(np.triu(symmetric(kept), 1))
        ray = partial(Ray, mass, ridge=problem.l2 * problem.n_classes, excess=norm(rest.ravel()))
        return highest((roomy.best(wanted) for roomy in self.rays(ray, kept, edges, bounded)), wanted)

    def rays(self, ray: Callable[..., Ray], kept: Array, edges: tuple[Index, ...], flow: Flow) -> Iterable[Ray]:
        """Return rays made by ``ray`` with demand and room of the pairs at ``edges``, the cheapest first.

        The slopes of every cell are multiplied by ``kept``; ``flow`` gives the flow through a pair in addition to the
        pull of its noise, with a bound on its error.
        """

    def may_close(self, expected: Callable[[], float], target: float) -> bool:
        """Return whether the gap, about ``sqrt(decrement * F)``, or with a ridge the decrement, may be ``target``.

        Without a ridge the remaining gradient must fit into the noise sets, so the gap is of first order in it. If the
        decrement is below rounding, return True.
        """
        decrement = expected()
        gap = math.sqrt(max(0.0, decrement) * self.value)
        gap = min(gap, decrement) if self.problem.l2 else gap
        return decrement <= LOST * self.value or NEGLIGIBLE * gap <= target

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from the slopes after a Newton step, if the decrement is below the rounding of F.

        If scales are tiny relative to the scores, rounding W moves the slopes more than the tolerance allows; slacks
        that are updated by the step keep enough digits.
        """
        if decrement > LOST * self.value:
            return 0.0, None
        problem, (P, shifts) = self.problem, unfold(p, self.problem.n_classes)
        moved = self.displaced(P, shifts * problem.fit_intercept)
        dual = moved.best_dual(target, self.value - target if target else np.inf)
        return dual, problem.slopes(moved.point) if problem.rows.in_memory else None

    def displaced(self, P: Array, shifts: Array) -> "PairLocal[P]":
        """Return the local model after a step; only its slopes are exact, because W is rounded."""


def halved(intercept: Intercept) -> Array:
    """Return two intercepts that add up to zero for the intercept of a two-class classifier."""
    return np.array([-0.5, 0.5]) * intercept


def fold(W: Array, b: Array) -> Array:
    """Return the unknowns: ``(w, b)`` of each class minus that of the last."""
    params = joined(W, b)
    return np.asarray((params[:-1] - params[-1]).ravel())


def joined(W: Array, b: Array) -> Array:
    """Return coefficients and intercepts in one array (``np.column_stack`` takes four times as long)."""
    params = np.empty((len(W), W.shape[1] + 1))
    params[:, :-1], params[:, -1] = W, b
    return params


def unfold(x: Array, n_classes: int) -> tuple[Array, Array]:
    """Return ``W`` and ``b``, each adding up to zero over the classes, from the unknowns."""
    full = np.zeros((n_classes, x.size // (n_classes - 1)))
    full[:-1] = x.reshape(n_classes - 1, -1)
    full -= full.sum(axis=0) / n_classes
    return np.ascontiguousarray(full[:, :-1]), np.ascontiguousarray(full[:, -1])


def mixed(parts: Sequence[tuple[float, ClassPoint]]) -> tuple[Array, Array]:
    """Return a linear combination of the coefficients and intercepts of points."""
    W, b = sum(share * point.W for share, point in parts), sum(share * point.b for share, point in parts)
    return np.asarray(W), np.asarray(b)


def pairs_of(n_classes: int) -> list[tuple[int, int]]:
    """Return all pairs ``c < k``."""
    return [(c, k) for c in range(n_classes - 1) for k in range(c + 1, n_classes)]


def symmetric(cells: Array) -> Array:
    """Return the sum of both cells of every pair, ``cells + cells'``."""
    return cells + cells.T


def laplacian(weights: Array) -> Array:
    """Return the Laplacian of a graph with these edge weights, a symmetric matrix with a zero diagonal."""
    result = -weights
    diagonal(result)[:] += weights.sum(axis=1)
    return result


def hinge_values(class_weights: Array, b: Array) -> Array:
    """Return F at ``W = 0``, where the loss is the hinge, for every row of intercepts ``b``, (n, C)."""
    hinge = np.maximum(0.0, 1.0 - (b[:, :, np.newaxis] - b[:, np.newaxis]))
    return np.asarray((hinge.sum(axis=2) - 1.0) @ class_weights)  # without the class compared with itself


def highest(values: Iterable[float], wanted: float) -> float:
    """Return the highest of the values, at least 0; stop at the first that reaches ``wanted``."""
    best = 0.0
    for value in values:
        best = max(best, value)
        if best >= wanted:
            break
    return best


def touching(slope: Array, target: float) -> Iterator[Array]:
    """Yield selections of pairs for a dual point, (C, C) of booleans, the largest first.

    Pairs with slopes near 0 add nothing to the dual value and have no room for flow. The flow of a pair that is left
    out must go through other pairs of both classes, so a light class is left out with all its pairs.
    """
    both = symmetric(slope)
    total = both.sum(axis=1)
    # Classes are left out whose slopes add up to at most the fraction ``light`` of the target gap, and pairs with at
    # most the fraction ``slight`` of the slopes of both classes. The second selection serves nearly separate groups of
    # classes: the pairs between groups have no room even for a small flow.
    for light, slight in ((1e-6, 1e-9), (1e-3, 1e-5)) if len(slope) > 2 else ((0.0, 0.0),):
        counts = total > light * target
        yield (both > slight * np.minimum.outer(total, total)) & counts & counts[:, np.newaxis]
