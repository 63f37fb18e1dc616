"""Bounds on a minimum: the best ones of a solver so far, and the certificate of any classifier."""

from typing import Generic

import numpy as np

from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.problems.protocol import LossProblem, P, Problem
from gaussguru._guru.solvers.result import Log, Result, Status
from gaussguru._utils.linalg import Array, Intercept


class Bounds(Generic[P]):
    """The best point with its upper bound of the minimum, and the best dual value.

    The first bounds are F of the best classifier that ignores the features, and 0.
    """

    def __init__(self, solver: str, problem: Problem[P], tol: float, verbose: int) -> None:
        self.problem, self.target, self.log = problem, tol * problem.weight, Log(solver, verbose)
        self.n_iter = 0
        self.best: P | None = None
        self.primal, self.dual = problem.constant_near(None)[1], 0.0
        self.alpha: Array | None = None  # of the dual value; None for the slopes of the best point
        self.status: Status = "precision"  # if the gap is not closed

    @property
    def gap(self) -> float:
        """The proven gap of the best point."""
        return max(0.0, self.primal - self.dual)

    @property
    def is_closed(self) -> bool:
        """Whether the gap is at most the target."""
        return self.gap <= self.target

    def lower_primal(self, primal: float, point: P) -> None:
        """Keep a point if its upper bound is the lowest so far."""
        if primal < self.primal:
            self.best, self.primal = point, primal

    def raise_dual(self, dual: float, alpha: Array | None = None) -> None:
        """Keep a lower bound if it is the highest so far; one above an attained value is rejected."""
        if self.dual < dual <= self.primal + self.target:
            self.dual, self.alpha = dual, alpha

    def result(self) -> Result:
        """Return the best point, or the classifier that ignores the features if that is better."""
        problem, best = self.problem, self.best
        b, constant = problem.constant_near(best)
        sharp = None if best is None else problem.again(best)
        if best is not None and sharp is not None and sharp.value < constant:
            # The certified upper bound includes a bound on the rounding of F.
            value, hidden = sharp.value, self.primal - best.value
            coef, intercept = problem.classifier(sharp)
        else:
            value, hidden = constant, 0.0
            coef, intercept = np.zeros((*np.shape(b), problem.rows.n_columns)), b
        alpha = self.alpha
        if alpha is None and problem.rows.in_memory:
            # At the certified smoothing: without any, exact samples would have slopes of 0 or 1.
            alpha = problem.slopes(best) if best is not None else problem.constant_slopes()
        gap = min(value, max(0.0, value + hidden - self.dual))
        status: Status = "converged" if gap <= self.target else self.status
        return Result(coef, intercept, value, gap, alpha, self.n_iter, status, collapsed=not coef.any())


def certify(
    problem: LossProblem[P], coef: Array, intercept: Intercept, *, rescaled: bool = True
) -> tuple[Certificate, Array | None]:
    """Return bounds on the minimum from a classifier, and its slopes if rows are in memory, else None.

    The upper bound is F at the classifier. The lower bound comes from its slopes or, if ``rescaled``, from those at the
    best length and intercepts of the same direction. A problem in the span of some directions must not be rescaled,
    because the span need not contain the pull of other slopes.
    """
    if not np.any(coef):
        slopes = problem.constant_slopes() if problem.rows.in_memory else None
        return Certificate(problem.constant_value(intercept), problem.collapse_bound()), slopes
    local = near = problem.visit(problem.unknowns(coef, intercept))
    certificate, _ = local.certificate(0.0, thorough=True)
    dual, point = certificate.dual, problem.rescaled(local.point, 0.0) if rescaled else local.point
    if point is not local.point:
        near = problem.expand(point)
        dual = max(dual, near.certificate(0.0, thorough=True)[0].dual)
    if not problem.is_smooth:
        dual = max(dual, near.refined(np.zeros_like(near.x), 0.0, 0.0)[0])
    slopes = problem.slopes(local.point) if problem.rows.in_memory else None
    return Certificate(certificate.primal, dual), slopes
