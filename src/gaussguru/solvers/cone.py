"""Support vector machines whose samples an adversary may move within a ball: cone problems, solved to a proven optimum.

::

    F(W, b) = sum_i s_i max_k t_ik + (ridge/2) sum_c ||w_c||^2,        t_iy = 0 for the class y of sample i, else
    t_ik    = 1 - (w_y - w_k).x_i - (b_y - b_k) + r_i n_yk,            n_ck = ||w_c - w_k||

``r_i`` is how far sample i may be moved. Two classes are the binary problem with ``w = w_1 - w_0`` and twice its ridge.
With fixed unit vectors ``u_ck = -u_kc`` instead, ``n_ck = u_ck.(w_c - w_k)``, it is the multiclass support vector
machine of Crammer and Singer on displaced samples, and ``r_i`` may have either sign.

**Dual.** For all ``alpha >= 0`` with ``sum_k alpha_ik = 1`` that balance (with intercepts: every class gives as much
``s alpha`` as it takes) and all ``||u_ck|| <= 1``::

    F >= sum_i s_i sum_{k != y} alpha_ik - ||g||^2 / (2 ridge),
    g_k = sum_i s_i (alpha_ik - [k = y]) x_i + sum_c K_kc u_kc,        K_ck = sum over the rows of c and k of s r alpha

**Method.** The maximum becomes ``mu log sum_k exp(t_ik / mu)``, of slope ``alpha = softmax(t / mu)``, and the length of
a difference ``d`` becomes ``hypot(d, eps)``, of slope ``u = d / hypot(d, eps)``: at any ``mu`` the slopes are a dual
point of the problem itself, so the optimum of the smooth problem proves itself nearly optimal for the other. Newton's
method follows the optimum as ``mu`` falls, along the tangent of its path, on growing subsamples if there are many rows.
Near the end only samples with a tie have a Hessian: those that the adversary can just bring to a margin.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from gaussguru.certificates import find_surplus
from gaussguru.cholesky import factorise
from gaussguru.losses import Array
from gaussguru.multiclass import MAX_UNKNOWNS
from gaussguru.objective import RARE, draw, total_square
from gaussguru.rows import Rows
from gaussguru.solvers.inverse import Solve, conjugate_gradients
from gaussguru.solvers.path import Settings, first_below, is_lost, shortened
from gaussguru.solvers.result import Result
from gaussguru.solvers.start import subsamples

# A point is central when its decrement is below this part of what smoothing adds to F; mu then falls by this factor.
CENTRAL, SPEED = 0.1, 10.0
# The first mu, in units of the margin, that from a start, and the part of the tolerance that the last one may add.
SMOOTH, WARM, LEFT = 1.0, 0.01, 0.5
# Newton steps at one mu, and values of mu below what the tolerance needs, before rounding is blamed.
PATIENCE, ATTEMPTS = 50, 8
# Rows whose alpha is this close to 0 or 1 have no part in the Hessian.
DECIDED = 1e-13
PIECE = 2048
PRODUCTS = 2000


class Place(NamedTuple):
    """Parameters of shape (n_classes, n_columns + 1), the smoothness, and what one look at the rows told.

    ``residual`` are the derivatives by the scores, ``s (alpha - [k = y])``, ``cells`` the sums K of the module, and
    ``blur`` is what smoothing adds to F.
    """

    params: Array
    mu: float
    value: float
    gradient: Array
    scores: Array
    residual: Array
    units: Array
    lengths: Array
    cells: Array
    blur: float


@dataclass(frozen=True)
class Cone:
    """The problem of the module: rows, classes and weights, how far each sample moves, and where if that is fixed."""

    rows: Rows
    labels: NDArray[np.int32]
    weights: Array
    reach: Array
    n_classes: int
    ridge: float
    fit_intercept: bool = True
    directions: Array | None = None

    @cached_property
    def class_weights(self) -> Array:
        """``sum s`` over the rows of each class."""
        return np.bincount(self.labels, self.weights, self.n_classes).astype(np.float64)

    @property
    def weight(self) -> float:
        """``sum s``, which is also F at zero."""
        return float(self.class_weights.sum())

    @cached_property
    def longest(self) -> float:
        """The largest distance by which a sample may be moved."""
        return float(np.abs(self.reach).max())

    @cached_property
    def basis(self) -> Array:
        """An orthonormal basis of what adds up to zero over the classes: W and b lose nothing there."""
        return np.asarray(helmert(self.n_classes))

    def check(self) -> None:
        """Raise :class:`NotFiniteError` if X cannot be computed with."""
        total_square(self.rows.moments(self.weights)[1])

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "Cone":
        """Return about ``n_rows`` rows, of every class in proportion but some, reweighted to its own total."""
        chosen = []
        for c in range(self.n_classes):
            mine = np.flatnonzero(self.labels == c)
            share = max(min(len(mine), RARE), round(len(mine) * n_rows / self.rows.n_rows))
            chosen.append(mine[draw(len(mine), share, rng)])
        index = np.sort(np.concatenate(chosen))
        labels, weights = self.labels[index], self.weights[index]
        drawn = np.bincount(labels, weights, self.n_classes)
        weights = weights * (self.class_weights / np.where(drawn > 0, drawn, 1.0))[labels]
        return replace(self, rows=self.rows.take(index), labels=labels, weights=weights, reach=self.reach[index])

    # --- the classifier itself ----------------------------------------------------------------------------

    def constant(self) -> tuple[Array, float]:
        """Return the best parameters that ignore the features, and F there.

        With the heaviest class 1 above the others F is ``2 (S - S_max)``, with none above the others S, and with
        other intercepts it is no less: it is linear between the two and rises beyond.
        """
        params = np.zeros((self.n_classes, self.rows.n_columns + 1))
        others = 2 * (self.weight - float(self.class_weights.max()))
        if not self.fit_intercept or others > self.weight:
            return params, self.weight
        params[np.argmax(self.class_weights), -1] = 1.0
        params[:, -1] -= params[:, -1].mean()
        return params, others

    def slacks(self, begin: int, end: int, scores: Array, lengths: Array) -> Array:
        """Return ``t`` of some rows, a column for each of them: NumPy is slow along a short last axis."""
        own, place = self.labels[begin:end], np.arange(end - begin)
        t = np.ascontiguousarray(scores[begin:end].T)
        t -= t[own, place] - 1.0
        t += lengths[:, own] * self.reach[begin:end]
        t[own, place] = 0.0
        return t

    def lengths(self, params: Array, eps: float = 0.0) -> tuple[Array, Array]:
        """Return ``u`` and ``n`` for all pairs of classes."""
        W = params[:, :-1]
        apart: Array = W[:, np.newaxis] - W
        if self.directions is not None:
            return self.directions, np.asarray(np.einsum("ckj,ckj->ck", self.directions, apart))
        size = np.hypot(np.sqrt(np.einsum("ckj,ckj->ck", apart, apart)), eps)
        return apart / np.where(size > 0, size, 1.0)[:, :, np.newaxis], size

    def scores(self, params: Array) -> Array:
        """Return the score of every row for every class."""
        return self.rows.scores(np.ascontiguousarray(params[:, :-1])) + params[:, -1]

    def value(self, params: Array, scores: Array | None = None) -> float:
        """Return F, not smoothed."""
        known = self.scores(params) if scores is None else scores
        _, lengths = self.lengths(params)

        def lost(begin: int, end: int) -> float:
            return float(self.weights[begin:end] @ self.slacks(begin, end, known, lengths).max(axis=0))

        return float(self.rows.total(lost, pointwise=True)) + self._ridge(params)

    def _ridge(self, params: Array) -> float:
        return 0.5 * self.ridge * float(np.vdot(params[:, :-1], params[:, :-1]))

    def eps(self, mu: float) -> float:
        """Return the smoothness of the lengths: as much as that of the slacks."""
        return mu / self.longest if self.longest > 0 else 0.0

    # --- the smooth problem -------------------------------------------------------------------------------

    def visit(self, params: Array, mu: float) -> Place:
        """Evaluate the smooth problem."""
        eps = self.eps(mu)
        units, lengths = self.lengths(params, eps)
        scores = self.scores(params)
        residual = np.empty_like(scores)

        def smooth(begin: int, end: int) -> Array:
            s = self.weights[begin:end]
            t = self.slacks(begin, end, scores, lengths)
            top = t.max(axis=0)
            alpha = np.exp((t - top) / mu)
            total = alpha.sum(axis=0)
            alpha *= s / total
            linear = float(np.vdot(alpha, t))
            value = float(s @ top) + mu * float(s @ np.log(total))
            self._close(begin, end, alpha, residual)
            return np.array([value, value - linear])

        value, blur = self.rows.total(smooth, pointwise=True)
        gradient, cells = self.pull(residual, units)
        if self.directions is None and eps > 0:
            apart = lengths > 0
            blur += eps**2 * float((cells[apart] / lengths[apart]).sum())
        gradient[:, :-1] += self.ridge * params[:, :-1]
        value += self._ridge(params)
        return Place(
            params, mu, float(value), gradient, scores, residual, units, lengths, cells, max(float(blur), 1e-300)
        )

    def _close(self, begin: int, end: int, alpha: Array, out: Array) -> None:
        """Write weights of the slacks of some rows as derivatives by the scores: each row adds up to zero."""
        own, place = self.labels[begin:end], np.arange(end - begin)
        alpha[own, place] = 0.0
        alpha[own, place] = -alpha.sum(axis=0)
        out[begin:end] = alpha.T

    def _cells(self, residual: Array) -> Array:
        """Return the sums of the derivatives by class of the row and class of the score, without those of its own."""
        columns = [np.bincount(self.labels, column, self.n_classes) for column in residual.T]
        cells = np.stack(columns, axis=1).astype(np.float64)
        np.fill_diagonal(cells, 0.0)
        return cells

    def pull(self, residual: Array, units: Array) -> tuple[Array, Array]:
        """Return what derivatives by the scores make of those by the parameters, and the cells K."""
        cells = self._cells(residual * self.reach[:, np.newaxis])
        (combined,) = self.rows.joint_total(lambda begin, end: (self.rows.joint_combine(begin, end, residual),))
        gradient = np.zeros((self.n_classes, self.rows.n_columns + 1))
        gradient[:, :-1] = combined + np.einsum("ck,ckj->cj", cells + cells.T, units)
        if self.fit_intercept:
            gradient[:, -1] = residual.sum(axis=0)
        return gradient, cells

    def dual(self, place: Place, p: Array | None = None) -> float:
        """Return a proven lower bound of F: the dual value at the slopes of a place, or, with ``p``, one step further.

        Where ``p`` is the Newton step, the linearised slopes leave of the gradient only what is of second order.
        """
        residual, units = place.residual, place.units
        if p is not None:
            residual = residual + self._shift(place, p)
            units, _ = self.lengths(place.params + p, self.eps(place.mu))
        residual = self._scaled(residual, self._inside)
        slope = self._cells(residual)
        if self.fit_intercept:
            surplus = find_surplus(slope)
            if surplus is None:
                return -math.inf
            kept = 1 - np.divide(surplus, slope, out=np.zeros_like(slope), where=slope > 0)
            slope = slope - surplus
            residual = self._scaled(residual, lambda alpha, begin, end: kept.T[:, self.labels[begin:end]])
        gradient, _ = self.pull(residual, units)
        return float(slope.sum()) - float(np.vdot(gradient[:, :-1], gradient[:, :-1])) / (2 * self.ridge)

    def _inside(self, alpha: Array, begin: int, end: int) -> Array:
        """Return the factors that bring every sum of ``s alpha`` down to s."""
        s = self._safe_weights[begin:end]
        return np.asarray(s / np.maximum(s, alpha.sum(axis=0)))

    def _scaled(self, residual: Array, factors: Callable[[Array, int, int], Array]) -> Array:
        """Return derivatives by the scores whose ``s alpha``, where positive, are multiplied by factors."""
        out = np.empty_like(residual)

        def scale(begin: int, end: int) -> None:
            alpha = np.maximum(residual[begin:end].T, 0.0)
            alpha *= factors(alpha, begin, end)
            self._close(begin, end, alpha, out)

        self.rows.each(scale, pointwise=True)
        return out

    def _bent(self, place: Place, begin: int, end: int, change: Array, out: Array) -> None:
        """Write how the derivatives by the scores change when the slacks do."""
        s, alpha = self._safe_weights[begin:end], np.maximum(place.residual[begin:end].T, 0.0)
        change -= np.einsum("ki,ki->i", alpha, change) / s
        change *= alpha / place.mu
        self._close(begin, end, change, out)

    @cached_property
    def _safe_weights(self) -> Array:
        return np.where(self.weights > 0, self.weights, 1.0)

    def tangent(self, place: Place) -> Array:
        """Return how the gradient changes with ``-log mu``."""
        out = np.empty_like(place.residual)

        def bend(begin: int, end: int) -> None:
            self._bent(place, begin, end, self.slacks(begin, end, place.scores, place.lengths), out)

        self.rows.each(bend, pointwise=True)
        return self.pull(out, place.units)[0]

    def _shift(self, place: Place, p: Array) -> Array:
        """Return how the derivatives by the scores change along ``p``."""
        scores, out = self.scores(p), np.empty_like(place.residual)
        along = np.einsum("ckj,ckj->ck", place.units, p[:, np.newaxis, :-1] - p[:, :-1])

        def bend(begin: int, end: int) -> None:
            own = self.labels[begin:end]
            change = np.ascontiguousarray(scores[begin:end].T)
            change -= change[own, np.arange(end - begin)]
            change += along[:, own] * self.reach[begin:end]
            self._bent(place, begin, end, change, out)

        self.rows.each(bend, pointwise=True)
        return out

    def product(self, place: Place, p: Array) -> Array:
        """Return the Hessian times ``p``."""
        result, _ = self.pull(self._shift(place, p), place.units)
        result[:, :-1] += self.ridge * p[:, :-1]
        if self.directions is None:
            apart = p[:, np.newaxis, :-1] - p[:, :-1]
            along = np.einsum("ckj,ckj->ck", place.units, apart)[:, :, np.newaxis]
            result[:, :-1] += np.einsum("ck,ckj->cj", self._stiffness(place), apart - along * place.units)
        return result

    def _stiffness(self, place: Place) -> Array:
        """Return the derivative of F by each length, over the length: what its curvature counts."""
        both = place.cells + place.cells.T
        return np.divide(both, place.lengths, out=np.zeros_like(both), where=place.lengths > 0)

    def hessian(self, place: Place) -> Array:
        """Return the Hessian of shape (n_classes, size, n_classes, size), size = n_columns, + 1 with intercepts."""
        C, d = self.n_classes, self.rows.n_columns
        size = d + int(self.fit_intercept)
        result = np.zeros((C, size, C, size))
        s = self._safe_weights
        own = -place.residual[np.arange(self.rows.n_rows), self.labels]
        undecided = own > DECIDED * self.weights
        undecided &= place.residual.max(axis=1) < (1 - DECIDED) * self.weights
        for c in range(C):
            index = np.flatnonzero(undecided & (self.labels == c))
            if not len(index):
                continue
            others = np.delete(np.arange(C), c)
            pairs = [(k, m) for k in range(C - 1) for m in range(k, C - 1)]

            def gram(begin: int, end: int, index: Any = index, others: Any = others, pairs: Any = pairs) -> Array:
                mine = index[begin:end]
                X = self.rows.X[mine]
                Z = np.empty((len(mine), d + 2))
                Z[:, :d] = X.toarray() if self.rows.sparse else X
                Z[:, d], Z[:, d + 1] = 1.0, self.reach[mine]
                share = place.residual[mine][:, others]
                grams = np.empty((len(pairs), d + 2, d + 2))
                for number, (k, m) in enumerate(pairs):
                    weight = -share[:, k] * share[:, m] / s[mine]
                    if k == m:
                        weight += share[:, k]
                    tied = np.flatnonzero(np.abs(weight) > DECIDED * s[mine])
                    part = Z[tied] if len(tied) < len(Z) else Z
                    grams[number] = (part * weight[tied, np.newaxis]).T @ part
                return grams

            edges = [*range(0, len(index), PIECE), len(index)]
            parts = iter(self.rows.map(gram, edges[:-1], edges[1:]))
            grams = next(parts)
            for part in parts:
                grams += part
            for (k, m), whole in zip(pairs, grams, strict=True):
                block = _moved(whole, place.units[c, others[k]], place.units[c, others[m]])[:size, :size] / place.mu
                for first, second, part in ((k, m, block),) if k == m else ((k, m, block), (m, k, block.T)):
                    a, e = others[first], others[second]
                    result[a, :, e] += part
                    result[c, :, e] -= part
                    result[a, :, c] -= part
                    result[c, :, c] += part
        within = np.arange(d)
        for c in range(C):
            result[c, within, c, within] += self.ridge
        if self.directions is None:
            stiff = self._stiffness(place)
            for c, k in zip(*np.nonzero(np.triu(stiff, 1)), strict=True):
                part = stiff[c, k] * (np.eye(d) - np.outer(place.units[c, k], place.units[c, k]))
                for a, e, sign in ((c, c, 1), (k, k, 1), (c, k, -1), (k, c, -1)):
                    result[a, :d, e, :d] += sign * part
        return result

    def inverse(self, place: Place) -> Solve:
        """Return what solves systems with the Hessian."""
        C, d = self.n_classes, self.rows.n_columns
        size = d + int(self.fit_intercept)
        basis = self.basis
        if (C - 1) * size <= MAX_UNKNOWNS:
            hessian = np.einsum("ac,cidj,ed->aiej", basis, self.hessian(place), basis, optimize=True)
            factor = factorise(np.ascontiguousarray(hessian.reshape((C - 1) * size, -1)))

            def solve(g: Array) -> Array:
                solution = np.zeros_like(g)
                reduced = np.ascontiguousarray(basis @ g[:, :size]).ravel()
                solution[:, :size] = basis.T @ factor.solve(reduced).reshape(C - 1, size)
                return solution

            return solve

        def by_products(g: Array) -> Array:
            def product(p: Array) -> Array:
                return self.product(place, p.reshape(g.shape)).ravel()

            return conjugate_gradients(product, g.ravel(), None, PRODUCTS)[0].reshape(g.shape)

        return by_products


def _moved(gram: Array, u: Array, v: Array) -> Array:
    """Return ``sum (x - r u, 1) (x - r v, 1)'`` from the Gram matrix of ``(x, 1, r)``."""
    d = len(u)
    result = gram[:-1, :-1].copy()
    result[:d] -= u[:, np.newaxis] * gram[-1, :-1]
    column = gram[:-1, -1].copy()
    column[:d] -= gram[-1, -1] * u
    result[:, :d] -= column[:, np.newaxis] * v
    return result


@dataclass(frozen=True)
class ConeNewton(Settings):
    """The solver of cone problems; see the module for the method."""

    def solve(self, problem: Cone, start: Array | None = None) -> Result:
        """Minimise F, from parameters if given."""
        problem.check()
        run = _Run(self, problem)
        if start is not None:
            return run.result(run.descend(problem, problem.visit(start, WARM)))
        params, mu = np.zeros((problem.n_classes, problem.rows.n_columns + 1)), SMOOTH
        for level in [*subsamples(problem, self.seed), problem]:
            place = run.descend(level, level.visit(params, mu))
            params, mu = place.params, place.mu
        return run.result(place)


class _Run:
    """One call of :meth:`ConeNewton.solve`: the best parameters and the best dual value so far."""

    def __init__(self, settings: ConeNewton, problem: Cone) -> None:
        self.settings = settings
        self.problem = problem
        self.target = settings.tol * problem.weight
        self.params, self.value = problem.constant()
        self.dual = 0.0
        self.n_iter = 0
        self.collapsed = True

    def descend(self, level: Cone, place: Place) -> Place:
        """Follow the optimum on the rows of ``level`` down to a ``mu`` at which it is certified, or good enough."""
        last = level is self.problem
        enough = LEFT * self.target
        if not last:
            n_unknowns = (level.n_classes - 1) * (level.rows.n_columns + 1)
            enough = max(enough, 0.3 * n_unknowns / level.rows.n_rows * place.value)
        patience, attempts = PATIENCE, ATTEMPTS
        before = place.mu, place.blur
        while True:
            small = place.blur <= enough
            if self.settings.verbose:
                self._report(level, place)
            if self.n_iter >= self.settings.max_iter:
                if last:
                    self.certify(place)
                break
            self.n_iter += 1
            patience -= 1
            solve = level.inverse(place)
            p = -solve(place.gradient)
            decrement = -float(np.vdot(place.gradient, p))
            if small and not last and decrement <= place.blur:
                break
            if last and place.blur <= self.target and decrement <= place.blur and self.certify(place, p):
                break
            if small and is_lost(place, decrement):
                # F cannot tell any more whether a step is good, but the gradient can.
                trial = level.visit(place.params + p, place.mu)
                if float(np.vdot(trial.gradient, solve(trial.gradient))) <= 0.25 * decrement:
                    place = trial
                    continue
                patience = 0
            if patience <= 0 or (not small and decrement <= CENTRAL * place.blur):
                if small:
                    attempts -= 1
                    if not attempts:
                        break
                patience = PATIENCE
                # Where rows abound fewer are near a tie as mu falls: what smoothing adds falls like mu^2, else like mu.
                power = math.log(before[1] / place.blur, before[0] / place.mu) if before[0] > place.mu else 2.0
                before = place.mu, place.blur
                wanted = (1.2 * place.blur / enough) ** (1 / min(2.0, max(1.0, power)))
                mu = place.mu / (3 if small else min(SPEED, max(1.5, wanted)))
                p -= (1 - mu / place.mu) * solve(level.tangent(place))
                place = _step(level, place, p, mu)
            else:
                place = _shortened(level, place, p, decrement)
        return place

    def certify(self, place: Place, p: Array | None = None) -> bool:
        """Update the best bounds on the minimum; return whether they meet."""
        value = self.problem.value(place.params, place.scores)
        if value < self.value:
            self.params, self.value, self.collapsed = place.params, value, False
        self.dual = max(self.dual, self.problem.dual(place, p))
        return self.gap <= self.target

    @property
    def gap(self) -> float:
        """The proven gap of the best parameters."""
        return max(0.0, self.value - self.dual)

    def _report(self, level: Cone, place: Place) -> None:
        rows = "" if level is self.problem else f"  on {level.rows.n_rows} rows"
        print(
            f"[cone] iteration {self.n_iter}  objective {place.value:.10g}  smoothing {place.blur:.3e}  "
            f"mu {place.mu:.1e}{rows}"
        )

    def result(self, place: Place) -> Result:
        """Return the best parameters."""
        params, gap = self.params, self.gap
        alpha = np.maximum(place.residual, 0.0) / self.problem._safe_weights[:, np.newaxis]
        converged = gap <= self.target
        return Result(params[:, :-1], params[:, -1], self.value, gap, alpha, self.n_iter, converged, self.collapsed)


def _step(level: Cone, place: Place, p: Array, mu: float) -> Place:
    """Take the best part of a step to another ``mu``, after which F is not comparable with before."""
    start, end = level.visit(place.params, mu), level.visit(place.params + p, mu)
    return first_below(start, end, lambda t: level.visit(place.params + t * p, mu))


def _shortened(level: Cone, place: Place, p: Array, decrement: float) -> Place:
    """Take a Newton step, shortened until F falls."""
    end = level.visit(place.params + p, place.mu)
    return shortened(place, end, lambda t: level.visit(place.params + t * p, place.mu), decrement)
