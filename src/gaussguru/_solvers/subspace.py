"""Large spaces, a few dimensions at a time.

For kernels, where w has as many coordinates as there are samples; and for many classes and features where the noise
that is wanted makes F smooth.

F depends on the samples only through their scores. So it is minimised over the span of some directions, as a linear
problem with as few features; then the span grows by the gradient there, which is ``v = sum_i r_i phi(x_i)`` for the
derivatives ``r`` of F by the scores, less what of it is in the span already. A step costs one product with the kernel
matrix, or with X and its transpose. The span contains all that conjugate gradients would see, but F is minimised over
it exactly, at once at the noise that is wanted: tens of steps do where Newton's method with conjugate gradients takes
hundreds.

The proof is one for the whole space: a certificate needs nothing but the scores, ``||w||`` and ``v``, so it may be
computed in the span of the directions and ``v``, the one that comes next.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gaussguru._data.rows import Rows, one_hot
from gaussguru._linalg import Array
from gaussguru._problems.protocol import LossProblem
from gaussguru._solvers.certify import certify
from gaussguru._solvers.newton import Newton
from gaussguru._solvers.result import Log, Result, Status

# The gap of the problem in the span, relative to that which is wanted, and to that of the whole problem so far.
CLOSER, FAR = 0.1, 0.01
# A direction whose square is at most this fraction of that of the longest beside it is rounding; below the next it may
# be.
NOTHING, DOUBTFUL = 1e-14, 1e-6
# From so many unknowns on the span of gradients is searched (measured on digits, usps and mnist), where noise makes at
# least this fraction of the standard deviation of margins within a class: then F is smooth.
LEAST_UNKNOWNS, SMOOTH = 500, 0.25
# Steps in which the gap may fail to reach a new low.
PATIENCE = 20


class Space(Protocol):
    """How vectors of a space are written."""

    def gradient(self, residual: Array) -> Array:
        """Return ``sum_i r_i phi(x_i)`` for every column r, a column each."""

    def scores(self, vectors: Array) -> Array:
        """Return the scores of all samples for every vector."""

    def along(self, span: "Span", vectors: Array) -> Array:
        """Return the inner products of the directions of a span with vectors."""

    def products(self, vectors: Array, scores: Array) -> Array:
        """Return the inner products of vectors with each other."""

    def rounding(self, vectors: Array) -> Array:
        """Return how much of the square of each vector may be rounding, though nothing was taken away from it."""


@dataclass(frozen=True)
class OfSamples:
    """Vectors as coefficients of the samples; ``product`` multiplies them by the kernel matrix, of that ``trace``."""

    product: Callable[[Array], Array]
    trace: float

    def gradient(self, residual: Array) -> Array:
        """Return the residual itself."""
        return residual

    def scores(self, vectors: Array) -> Array:
        """Return ``K V``."""
        return self.product(vectors)

    def along(self, span: "Span", vectors: Array) -> Array:
        """Return ``(K B)' V``."""
        return np.asarray(span.features.T @ vectors)

    def products(self, vectors: Array, scores: Array) -> Array:
        """Return ``V' K V``."""
        return np.asarray(vectors.T @ scores)

    def rounding(self, vectors: Array) -> Array:
        """Return what K may make of coefficients that it takes to zero."""
        return np.asarray(NOTHING * self.trace * np.sum(vectors**2, axis=0))


@dataclass(frozen=True)
class OfColumns:
    """Vectors as they are, an entry for each column of X."""

    rows: Rows

    def gradient(self, residual: Array) -> Array:
        """Return ``X' R``; one pass."""
        return np.ascontiguousarray(self.rows.scatter(self.rows.split(residual)).T)

    def scores(self, vectors: Array) -> Array:
        """Return ``X V``; one pass."""
        return self.rows.gather(self.rows.scores(vectors.T))

    def along(self, span: "Span", vectors: Array) -> Array:
        """Return ``B' V``."""
        return np.asarray(span.basis.T @ vectors)

    def products(self, vectors: Array, scores: Array) -> Array:
        """Return ``V' V``."""
        return np.asarray(vectors.T @ vectors)

    def rounding(self, vectors: Array) -> Array:
        """Return 0: sums of squares are exact to their last digits."""
        return np.zeros(vectors.shape[1])


class Span:
    """Orthonormal directions, and the scores of the samples for them, which are features to a problem."""

    def __init__(self, space: Space, residual: Array) -> None:
        self.space = space
        vectors = space.gradient(residual)
        self.basis, self.features = np.empty((len(vectors), 0)), np.empty((len(residual), 0))
        self.add(vectors)

    def add(self, vectors: Array) -> int:
        """Add what vectors have outside the span; return how many directions that are."""
        known = self.basis.shape[1]
        vectors, scores, squares, taken = self._outside(vectors)
        if len(squares) and (squares[-1] < DOUBTFUL * taken or squares[0] < DOUBTFUL * squares[-1]):
            # Of directions so small much is rounding: what is left of them when they are as long as the others?
            vectors, scores, squares, _ = self._outside(vectors / np.sqrt(squares))
            new = squares > 0.5
            vectors, scores, squares = vectors[:, new], scores[:, new], squares[new]
        self.basis = np.hstack([self.basis, vectors / np.sqrt(squares)])
        self.features = np.ascontiguousarray(np.hstack([self.features, scores / np.sqrt(squares)]))
        return self.basis.shape[1] - known

    def _outside(self, vectors: Array) -> tuple[Array, Array, Array, float]:
        """Return what vectors have outside the span as orthogonal directions, with scores and squares, shortest first.

        The last number is the largest square of what was inside.
        """
        taken = 0.0
        for _ in range(2):  # once leaves as much of the span as rounding does of what was taken away
            along = self.space.along(self, vectors)
            taken = max(taken, float(np.max(np.sum(along**2, axis=0), initial=0.0)))
            vectors = vectors - self.basis @ along
        scores = self.space.scores(vectors)
        squares, turn = np.linalg.eigh(self.space.products(vectors, scores))
        vectors, scores = vectors @ turn, scores @ turn
        kept = squares > np.maximum(NOTHING * squares[-1], self.space.rounding(vectors))
        return vectors[:, kept], scores[:, kept], squares[kept], taken


@dataclass(frozen=True)
class Subspace(Newton):
    """The solver: Newton's method in a growing span."""

    def minimise(
        self,
        space: Space,
        problem: Callable[[Array], LossProblem],
        means: Array,
        start: tuple[Array, Any] | None = None,
        whole: LossProblem | None = None,
    ) -> tuple[Result | None, LossProblem]:
        """Minimise ``problem(features)`` over the space, starting from the span of the class means and ``start``.

        The coefficients of ``start`` and of the result are vectors of the space. ``whole`` is the problem in all of it,
        where that can be written, and has the last word. None stands for a constant classifier that may be optimal:
        there is no gradient to follow. Also returns the problem in the last span.
        """
        log, best, stalled = Log("subspace", self.verbose), None, 0
        span = Span(space, means)
        if start is not None:
            span.add(np.atleast_2d(start[0]).T)
            start = space.along(span, start[0].T).T, start[1]
        current = problem(span.features)
        result = self._within(current, start, current.weight)
        for n_iter in range(1, self.max_iter + 1):
            if not result.coef.any():
                # The class means alone may prove it, and they are in the span of any problem.
                proven = result.converged and current.collapse_bound() > 0
                return replace(result, coef=np.zeros(len(span.basis))) if proven else None, current
            residual = current.residual(current.unknowns(result.coef, result.intercept))
            grown = span.add(space.gradient(residual))
            current, found = self._certified(problem(span.features), result, span)
            if found.converged and whole is not None:
                found = self._with_gap(found, whole, found.coef)
            elif found.converged:
                # A certificate balances classes by taking some of the pull of each: all of these must be in the span.
                grown += span.add(space.gradient(current.by_cell(residual)))
                current, found = self._certified(problem(span.features), result, span)
            found = replace(found, n_iter=n_iter)
            stalled += 1
            if best is None or found.gap < best.gap:
                best, stalled = found, 0
            log(n_iter, found.objective, found.gap, f"  in {span.basis.shape[1] - grown} dimensions")
            if best.converged or not grown or stalled == PATIENCE:
                break
            padded = _padded(result.coef, span.features.shape[1])
            result = self._within(current, (padded, result.intercept), found.gap)
        return best, current

    def solve(self, problem: Any, start: tuple[Array, Any] | None = None) -> Result:
        """Minimise over a growing span of gradients where few of these span the solution, else over all columns.

        So it is where many unknowns meet much noise: F is smooth at once.
        """
        if start is None and self._is_spanned(problem):
            rows = problem.rows
            means = one_hot(rows.labels, rows.weights, rows.n_classes)
            found, _ = self.minimise(
                OfColumns(rows),
                lambda features: replace(problem, rows=rows.with_columns(features)),
                means,
                whole=problem,
            )
            if found is not None and found.converged:
                return found
        return super().solve(problem, start)

    @staticmethod
    def _is_spanned(problem: Any) -> bool:
        """Return whether F has many unknowns and is smooth along the class means, in any basis."""
        rows = problem.rows
        few = rows.n_classes == 2 or (rows.n_classes - 1) * rows.n_columns < LEAST_UNKNOWNS
        if few or rows.errors is not None or not problem.noise.is_rotatable:
            return False
        W = rows.means - rows.means.mean(axis=0)
        found = rows.gather(rows.scores(W)) - (rows.means @ W.T)[rows.labels]
        ratios = []
        for c, w in enumerate(W):
            mine = found[rows.labels == c]
            spread = np.sqrt(np.mean((mine[:, [c]] - mine) ** 2, axis=0))
            ratios += [problem.noise.scale(w - W[k]) / spread[k] for k in range(len(W)) if k != c and spread[k] > 0]
        return bool(ratios) and float(np.median(ratios)) >= SMOOTH

    def _within(self, problem: LossProblem, start: tuple[Array, Any] | None, gap: float) -> Result:
        """Minimise in the span, no more exactly than the ``gap`` outside of it makes sense."""
        tol = max(CLOSER * self.tol, FAR * gap / problem.weight)
        return Newton(tol=tol, max_iter=self.max_iter, seed=self.seed, policy=self.policy).solve(problem, start)

    def _certified(self, problem: LossProblem, result: Result, span: Span) -> tuple[LossProblem, Result]:
        """Return a problem and the result with its certificate there, its coefficients as vectors of the space."""
        coef = _padded(result.coef, span.features.shape[1])
        return problem, replace(self._with_gap(result, problem, coef), coef=coef @ span.basis.T)

    def _with_gap(self, result: Result, problem: LossProblem, coef: Array) -> Result:
        certificate, alpha = certify(problem, coef, result.intercept, rescaled=False)
        status: Status = "converged" if certificate.gap <= self.tol * problem.weight else "max_iter"
        return replace(result, gap=certificate.gap, alpha=alpha, status=status)


def _padded(coef: Array, size: int) -> Array:
    """Return coefficients of features with zeros for new ones."""
    return np.hstack([coef, np.zeros((*coef.shape[:-1], size - coef.shape[-1]))])
