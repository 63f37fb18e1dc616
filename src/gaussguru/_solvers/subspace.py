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

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gaussguru._data.rows import Rows, one_hot
from gaussguru._linalg import EPS, Array, Intercept
from gaussguru._problems.protocol import LossProblem, P, SpannedProblem
from gaussguru._problems.smoothing import NEGLIGIBLE
from gaussguru._solvers.bounds import certify
from gaussguru._solvers.newton import Newton
from gaussguru._solvers.result import Log, Result, Status


@dataclass(frozen=True)
class SubspacePolicy:
    """The tuning constants of growing spans, besides those of Newton's method."""

    # A span is searched in spaces of at least so many dimensions (measured: digits, usps and mnist have more; the
    # kernel matrix of breast cancer, which is better factored, has fewer),
    least_unknowns: int = 570
    # where noise makes at least this fraction of the standard deviation of margins within a class: then F is smooth.
    smooth: float = 0.25


@dataclass(frozen=True)
class OfSamples:
    """A space of vectors that are coefficients of the samples.

    ``product`` multiplies them by the kernel matrix, of that ``trace``: the square of a vector is at most so many times
    the sum of the squares of its numbers.
    """

    product: Callable[[Array], Array]
    trace: float

    def gradient(self, residual: Array) -> Array:
        """Return ``sum_i r_i phi(x_i)`` for every column r, a column each: the residual itself."""
        return residual

    def scores(self, vectors: Array) -> Array:
        """Return the scores of all samples for every vector: ``K V``."""
        return self.product(vectors)

    def covectors(self, vectors: Array, scores: Array) -> Array:
        """Return the A with which ``A' U`` are the inner products of vectors V with vectors U: ``K V``."""
        return scores


@dataclass(frozen=True)
class OfColumns:
    """The space of vectors as they are, an entry for each column of X; see :class:`OfSamples`."""

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
        """Add what vectors have outside the span; return how many directions that are."""
        known = self.basis.shape[1]
        vectors, scores, squares, taken = self._outside(vectors)
        if len(squares) and squares[0] < math.sqrt(EPS) * max(squares[-1], taken):
            # Of directions so small much is rounding: what is left of them when they are as long as the others?
            vectors, scores, squares, _ = self._outside(vectors / np.sqrt(squares))
            new = squares > 0.5
            vectors, scores, squares = vectors[:, new], scores[:, new], squares[new]
        self.basis = np.hstack([self.basis, vectors / np.sqrt(squares)])
        self.features = np.ascontiguousarray(np.hstack([self.features, scores / np.sqrt(squares)]))
        return self.basis.shape[1] - known

    def along(self, vectors: Array) -> Array:
        """Return the inner products of the directions with vectors."""
        return np.asarray(self.space.covectors(self.basis, self.features).T @ vectors)

    def padded(self, coef: Array) -> Array:
        """Return coefficients of the first directions as coefficients of all."""
        return np.hstack([coef, np.zeros((*coef.shape[:-1], self.basis.shape[1] - coef.shape[-1]))])

    def _outside(self, vectors: Array) -> tuple[Array, Array, Array, float]:
        """Return what vectors have outside the span as orthogonal directions, with scores and squares, shortest first.

        The last number is the largest square of what was inside.
        """
        taken = 0.0
        for _ in range(2):  # once leaves as much of the span as rounding does of what was taken away
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
    policy: SubspacePolicy = SubspacePolicy()

    def suits(self, problem: LossProblem[P]) -> bool:
        """Return whether few gradients span the solution: F has many unknowns, and is smooth along the class means.

        So it is in any basis where many unknowns meet much noise.
        """
        rows = problem.rows
        few = rows.n_classes == 2 or (rows.n_classes - 1) * rows.n_columns < self.policy.least_unknowns
        noise = None if rows.errors is not None else problem.noise
        if few or not rows.in_memory or noise is None or not noise.is_rotatable:
            return False
        W = rows.means - rows.means.mean(axis=0)
        scores, ratios = rows.gather(rows.scores(W)), []
        for c, w in enumerate(W):
            own_scores = scores[rows.labels == c]
            spread = np.std(own_scores[:, [c]] - own_scores, axis=0)
            ratios += [noise.scale(w - W[k]) / spread[k] for k in np.flatnonzero(spread)]
        return bool(ratios) and float(np.median(ratios)) >= self.policy.smooth

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

        The coefficients of ``start`` and of the result are vectors of the space. The rows of ``problem`` have features
        of the span instead of their own; where their own are the ``whole`` space, these have the last word. None stands
        for a constant classifier that may be optimal: there is no gradient to follow. Also returns the problem in the
        last span.
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
                # The class means alone may prove it, and they are in the span of any problem.
                proven = result.converged and current.collapse_bound() > 0
                return result._replace(coef=np.zeros(len(span.basis))) if proven else None, current
            residual = current.residual(current.unknowns(result.coef, result.intercept))
            grown = span.add(space.gradient(residual))
            current, coef = spanned(), span.padded(result.coef)
            certified = self._certified(current, result, coef)
            if certified.converged and whole:
                certified = self._certified(problem, result, coef @ span.basis.T)
            elif certified.converged:
                # A certificate balances classes by taking some of the pull of each: all of these must be in the span.
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
        """Minimise in the span: roughly, beside the ``gap`` outside of it, or beside that which is wanted."""
        tol = NEGLIGIBLE * max(self.newton.tol, gap / problem.weight)
        return replace(self.newton, tol=tol, verbose=0).solve(problem, start)

    def _certified(self, problem: SpannedProblem[P], result: Result, coef: Array) -> Result:
        """Return a result with the certificate that its classifier, of these coefficients, has in a problem."""
        certificate, alpha = certify(problem, coef, result.intercept, rescaled=False)
        status: Status = "converged" if certificate.gap <= self.newton.tol * problem.weight else "max_iter"
        return result._replace(gap=certificate.gap, alpha=alpha, status=status)
