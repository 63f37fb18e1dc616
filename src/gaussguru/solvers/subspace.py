"""Large spaces, a few dimensions at a time.

For kernels, where w has as many coordinates as there are samples; and for many classes and features where the noise
that is wanted makes F smooth.

F depends on the samples only through their scores. So it is minimised over the span of some directions, as a linear
problem with as few features; then the span grows by the gradient there, which is ``v = sum_i r_i phi(x_i)`` for the
derivatives ``r`` of F by the scores, less what of it is in the span already. A step costs one product with the kernel
matrix, or with X and its transpose. The span contains all that conjugate gradients would see, but F is minimised over
it exactly, at once at the level of noise that is wanted: tens of steps do where Newton's method with conjugate
gradients takes hundreds.

The proof is one for the whole space: a certificate looks at nothing but the scores, ``||w||`` and ``v``, so it may be
computed in the span of the directions and ``v``, the one that comes next.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gaussguru.certificates import certify_params, is_collapsed
from gaussguru.losses import Array
from gaussguru.multiclass import Multiclass
from gaussguru.objective import Objective
from gaussguru.solvers.path import Settings
from gaussguru.solvers.result import Result

# The gap of the problem in the span, relative to that which is wanted, and to that of the whole problem so far.
CLOSER, FAR = 0.1, 0.01
# A direction whose square is at most this part of that of the longest beside it is rounding; below the next it may be.
NOTHING, DOUBTFUL = 1e-14, 1e-6
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

    X: Any

    def gradient(self, residual: Array) -> Array:
        """Return ``X' R``."""
        return np.asarray(self.X.T @ residual, dtype=np.float64)

    def scores(self, vectors: Array) -> Array:
        """Return ``X V``."""
        return np.asarray(self.X @ vectors, dtype=np.float64)

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

    def grow(self, residual: Array) -> None:
        """Add what gradients have outside the span."""
        self.add(self.space.gradient(residual))

    def add(self, vectors: Array) -> None:
        """Add what vectors have outside the span."""
        vectors, scores, squares, taken = self._outside(vectors)
        if len(squares) and (squares[-1] < DOUBTFUL * taken or squares[0] < DOUBTFUL * squares[-1]):
            # Of directions so small much is rounding: what is left of them when they are as long as the others?
            vectors, scores, squares, _ = self._outside(vectors / np.sqrt(squares))
            new = squares > 0.5
            vectors, scores, squares = vectors[:, new], scores[:, new], squares[new]
        self.basis = np.hstack([self.basis, vectors / np.sqrt(squares)])
        self.features = np.ascontiguousarray(np.hstack([self.features, scores / np.sqrt(squares)]))

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
class Subspace(Settings):
    """The solver; ``inner`` makes the one that minimises in the span, from its settings."""

    inner: Callable[..., Any] = Settings

    def solve(
        self,
        space: Space,
        problem: Callable[[Array], Objective | Multiclass],
        means: Array,
        start: tuple[Array, Any] | None = None,
        whole: Multiclass | None = None,
    ) -> tuple[Result | None, Objective | Multiclass]:
        """Minimise ``problem(features)`` over the space, starting from the span of the class means and ``start``.

        The coefficients of ``start`` and of the result are vectors of the space. ``whole`` is the problem in all of it,
        where that can be written, and has the last word. None stands for a constant classifier
        that may be optimal: there is no gradient to follow. Also returns the problem in the last span.
        """
        began, best, stalled = time.perf_counter(), None, 0
        span = Span(space, means)
        if start is not None:
            span.add(np.atleast_2d(start[0]).T)
            start = space.along(span, start[0].T).T, start[1]
        objective = problem(span.features)
        result = self._minimise(objective, start, objective.weight)
        for n_iter in range(1, self.max_iter + 1):
            if not result.coef.any():
                # The class means alone may prove it, and they are in the span of any problem.
                proven = isinstance(objective, Objective) and is_collapsed(objective)
                return replace(result, coef=np.zeros(len(span.basis))) if proven else None, objective
            directions = _residual(objective, result)
            objective, found, grown = _certified(span, problem, result, directions, self.tol)
            if found.converged and whole is not None:
                found = _with_gap(found, whole, found.coef, self.tol)
            elif found.converged:
                # A certificate balances classes by taking some of the pull of each: all of these must be in the span.
                objective, found, more = _certified(span, problem, result, _by_cell(objective, directions), self.tol)
                grown += more
            found = replace(found, n_iter=n_iter)
            stalled += 1
            if best is None or found.gap < best.gap:
                best, stalled = found, 0
            if self.verbose:
                print(
                    f"[subspace] iteration {n_iter}  objective {found.objective:.10g}  gap {found.gap:.3e}  "
                    f"{time.perf_counter() - began:.3f} s  in {span.basis.shape[1] - grown} dimensions"
                )
            if best.converged or not grown or stalled == PATIENCE:
                break
            result = self._minimise(objective, (_padded(result.coef, grown), result.intercept), found.gap)
        return best, objective

    def _minimise(self, objective: Objective | Multiclass, start: tuple[Array, Any] | None, gap: float) -> Result:
        """Minimise in the span, no more exactly than the ``gap`` outside of it makes sense."""
        tol = max(CLOSER * self.tol, FAR * gap / objective.weight)
        result: Result = self.inner(tol=tol, max_iter=self.max_iter, seed=self.seed).solve(objective, start)
        return result


def _certified(
    span: Span, problem: Callable[[Array], Any], result: Result, directions: Array, tol: float
) -> tuple[Any, Result, int]:
    """Grow the span, and return the problem in it, the result with its certificate there, and how much it grew.

    The coefficients of what is returned are vectors of the space.
    """
    known = span.features.shape[1]
    span.grow(directions)
    objective = problem(span.features)
    coef = _padded(result.coef, span.features.shape[1] - result.coef.shape[-1])
    found = replace(_with_gap(result, objective, coef, tol), coef=coef @ span.basis.T)
    return objective, found, span.features.shape[1] - known


def _with_gap(result: Result, objective: Any, coef: Array, tol: float) -> Result:
    """Return a result with its certificate, for the coefficients that it has in this problem."""
    certificate, alpha = certify_params(objective, coef, result.intercept)
    return replace(result, gap=certificate.gap, alpha=alpha, converged=certificate.gap <= tol * objective.weight)


def _padded(coef: Array, more: int) -> Array:
    """Return coefficients of the features with zeros for new ones."""
    return np.hstack([coef, np.zeros((*coef.shape[:-1], more))])


def _by_cell(objective: Any, residual: Array) -> Array:
    """Return what the rows of each class pull with at each other class, a column for each pair."""
    if isinstance(objective, Objective):
        return np.hstack([np.maximum(residual, 0.0), np.minimum(residual, 0.0)])
    own = objective.labels[:, np.newaxis] == np.arange(objective.n_classes)
    cells = [residual * own[:, [c]] for c in range(objective.n_classes)]
    return np.hstack([np.delete(cell, c, axis=1) for c, cell in enumerate(cells)])


def _residual(objective: Any, result: Result) -> Array:
    """Return the derivatives of F by the scores: coefficients of the gradient, a column for each class."""
    pulls = objective.expand(objective.point(result.coef, result.intercept)).pulls
    residual: Array = pulls.residual
    return residual.reshape(len(residual), -1)
