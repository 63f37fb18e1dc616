"""Minimisation in large spaces over a growing span of few directions.

For kernels, where w has as many coordinates as there are samples; and for many classes and features if the noise makes
F smooth.

F depends on the samples only through their scores. So it is minimised over the span of some directions, as a linear
problem with as many features; then the span grows by the gradient there, ``v = sum_i r_i phi(x_i)`` for the derivatives
``r`` of F by the scores, minus its component in the span. A step costs one product with the kernel matrix, or with X
and its transpose. The span contains the Krylov space of conjugate gradients, but F is minimised over it exactly,
without continuation: tens of steps suffice where Newton's method with conjugate gradients takes hundreds.

The proof holds for the whole space: a certificate depends on the scores, ``||w||`` and ``v`` only, so it is computed in
the span of the directions and ``v``, the next direction.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gaussguru._guru.problems.protocol import LossProblem, P, SpannedProblem
from gaussguru._guru.problems.smoothing import NEGLIGIBLE
from gaussguru._guru.solvers.bounds import certify
from gaussguru._guru.solvers.newton import Newton
from gaussguru._guru.solvers.result import Log, Result, Status
from gaussguru._rows.rows import Rows, one_hot
from gaussguru._utils.linalg import EPS, Array, Intercept


@dataclass(frozen=True)
class OfSamples:
    """A space of vectors given by coefficients of the samples.

    ``product`` multiplies coefficients by the kernel matrix K. The squared length of a vector is at most ``trace``, the
    trace of K, times the sum of its squared coefficients.
    """

    product: Callable[[Array], Array]
    trace: float

    def gradient(self, residual: Array) -> Array:
        """Return the vectors ``sum_i r_i phi(x_i)`` for the columns r of ``residual``: the residual itself."""
        return residual

    def scores(self, vectors: Array) -> Array:
        """Return the scores of all samples for every vector, ``K V``."""
        return self.product(vectors)

    def covectors(self, vectors: Array, scores: Array) -> Array:
        """Return the A for which ``A' U`` are the inner products of vectors V and U: ``K V``."""
        return scores


@dataclass(frozen=True)
class OfColumns:
    """The space of vectors with an entry for each column of X; see :class:`OfSamples`."""

    rows: Rows
    trace: float = 1.0

    def gradient(self, residual: Array) -> Array:
        """Return ``X' R``; one pass."""
        return np.ascontiguousarray(self.rows.scatter(self.rows.split(residual)).T)

    def scores(self, vectors: Array) -> Array:
        """Return ``X V``; one pass."""
        return self.rows.gather(self.rows.scores(vectors.T))

    def covectors(self, vectors: Array, scores: Array) -> Array:
        """Return the vectors."""
        return vectors


Space = OfSamples | OfColumns


class Span:
    """Orthonormal directions, and the scores of the samples for them, which are features to a problem."""

    def __init__(self, space: Space, residual: Array) -> None:
        self.space = space
        vectors = space.gradient(residual)
        self.basis, self.features = np.empty((len(vectors), 0)), np.empty((len(residual), 0))
        self.add(vectors)

    def add(self, vectors: Array) -> int:
        """Add the components of vectors outside the span; return the number of new directions."""
        known = self.basis.shape[1]
        vectors, scores, squares, taken = self._outside(vectors)
        if len(squares) and squares[0] < math.sqrt(EPS) * max(squares[-1], taken):
            # Small components may be rounding: scale them to length 1 and keep those that remain outside the span.
            vectors, scores, squares, _ = self._outside(vectors / np.sqrt(squares))
            new = squares > 0.5
            vectors, scores, squares = vectors[:, new], scores[:, new], squares[new]
        self.basis = np.hstack([self.basis, vectors / np.sqrt(squares)])
        self.features = np.ascontiguousarray(np.hstack([self.features, scores / np.sqrt(squares)]))
        return self.basis.shape[1] - known

    def along(self, vectors: Array) -> Array:
        """Return the inner products of the directions with vectors, (n_directions, n_vectors)."""
        return np.asarray(self.space.covectors(self.basis, self.features).T @ vectors)

    def padded(self, coef: Array) -> Array:
        """Return coefficients of the first directions as coefficients of all."""
        return np.hstack([coef, np.zeros((*coef.shape[:-1], self.basis.shape[1] - coef.shape[-1]))])

    def _outside(self, vectors: Array) -> tuple[Array, Array, Array, float]:
        """Return the components of vectors outside the span as orthogonal directions, the shortest first.

        Also return their scores, their squared lengths, and the largest squared length of a component in the span.
        """
        taken = 0.0
        for _ in range(2):  # the first projection leaves the rounding of the removed component
            along = self.along(vectors)
            taken = max(taken, float(np.max(np.sum(along**2, axis=0), initial=0.0)))
            vectors = vectors - self.basis @ along
        scores = self.space.scores(vectors)
        squares, turn = np.linalg.eigh(vectors.T @ self.space.covectors(vectors, scores))
        vectors, scores = vectors @ turn, scores @ turn
        # A sum of n products has errors of about sqrt(n) roundings (Higham and Mary 2019).
        size = np.maximum(squares[-1], self.space.trace * np.sum(vectors**2, axis=0))
        kept = squares > math.sqrt(len(vectors)) * EPS * size
        return vectors[:, kept], scores[:, kept], squares[kept], taken


@dataclass(frozen=True)
class Subspace:
    """The solver: Newton's method in a growing span."""

    newton: Newton = field(default_factory=Newton)
    # A span is used from this many unknowns on (measured: digits, usps and mnist have more; the kernel matrix of breast
    # cancer, which is better factored, has fewer).
    least_unknowns: int = 570

    def suits(self, problem: LossProblem[P]) -> bool:
        """Return whether few gradients span the solution: many unknowns, and much noise along the class means."""
        rows = problem.rows
        few = rows.n_classes == 2 or (rows.n_classes - 1) * rows.n_columns < self.least_unknowns
        noise = None if rows.errors is not None else problem.noise
        if few or not rows.in_memory or noise is None or not noise.is_rotatable:
            return False
        W = rows.means - rows.means.mean(axis=0)
        scores, ratios = rows.gather(rows.scores(W)), []
        for c, w in enumerate(W):
            own_scores = scores[rows.labels == c]
            spread = np.std(own_scores[:, [c]] - own_scores, axis=0)
            ratios += [noise.scale(w - W[k]) / spread[k] for k in np.flatnonzero(spread)]
        # F is smooth if the noise is at least a quarter of the standard deviation of margins within a class.
        return bool(ratios) and float(np.median(ratios)) >= 0.25

    def solve(self, problem: SpannedProblem[P], start: tuple[Array, Intercept] | None = None) -> Result:
        """Minimise over a growing span of gradients or, where that does not converge, over all columns."""
        result, _ = self.minimise(OfColumns(problem.rows), problem, start, whole=True)
        return result if result is not None and result.converged else self.newton.solve(problem, start)

    def minimise(
        self,
        space: Space,
        problem: SpannedProblem[P],
        start: tuple[Array, Intercept] | None = None,
        *,
        whole: bool = False,
    ) -> tuple[Result | None, SpannedProblem[P]]:
        """Minimise over the space, starting from the span of the class means and ``start``.

        The coefficients of ``start`` and of the result are vectors of the space. If the columns of ``problem`` are the
        ``whole`` space, the result is certified there. Return the result and the problem in the last span; the result
        is None if a constant classifier may be optimal but is not proven, because there is no gradient to follow.
        """
        newton, rows, best, stalled = self.newton, problem.rows, None, 0
        log, span = Log("subspace", newton.verbose), Span(space, one_hot(rows.labels, rows.weights, rows.n_classes))

        def spanned() -> SpannedProblem[P]:
            return problem.on_rows(rows.with_columns(span.features))

        if start is not None:
            span.add(np.atleast_2d(start[0]).T)
            start = span.along(start[0].T).T, start[1]
        current = spanned()
        result = self._within(current, start, current.weight)
        for n_iter in range(1, newton.max_iter + 1):
            if not result.coef.any():
                # The proof needs the class means only, which are in the first span.
                proven = result.converged and current.collapse_bound() > 0
                return result._replace(coef=np.zeros(len(span.basis))) if proven else None, current
            residual = current.residual(current.unknowns(result.coef, result.intercept))
            grown = span.add(space.gradient(residual))
            current, coef = spanned(), span.padded(result.coef)
            certified = self._certified(current, result, coef)
            if certified.converged and whole:
                certified = self._certified(problem, result, coef @ span.basis.T)
            elif certified.converged:
                # A certificate scales the pull of each class to balance them: each pull must be in the span.
                grown += span.add(space.gradient(current.by_cell(residual)))
                current, coef = spanned(), span.padded(coef)
                certified = self._certified(current, result, coef)
            certified = certified._replace(coef=coef @ span.basis.T, n_iter=n_iter)
            stalled += 1
            if best is None or certified.gap < best.gap:
                best, stalled = certified, 0
            log(n_iter, certified.objective, certified.gap, f"  in {span.basis.shape[1] - grown} dimensions")
            if best.converged or not grown or stalled == newton.policy.patience:
                break
            result = self._within(current, (coef, result.intercept), certified.gap)
        return best, current

    def _within(self, problem: SpannedProblem[P], start: tuple[Array, Intercept] | None, gap: float) -> Result:
        """Minimise in the span, to a tenth of the ``gap`` in the whole space or of the tolerance."""
        tol = NEGLIGIBLE * max(self.newton.tol, gap / problem.weight)
        return replace(self.newton, tol=tol, verbose=0).solve(problem, start)

    def _certified(self, problem: SpannedProblem[P], result: Result, coef: Array) -> Result:
        """Return the result with the certificate of its classifier, with these coefficients, in a problem."""
        certificate, alpha = certify(problem, coef, result.intercept, rescaled=False)
        status: Status = "converged" if certificate.gap <= self.newton.tol * problem.weight else "max_iter"
        return result._replace(gap=certificate.gap, alpha=alpha, status=status)
