"""Bounds on a minimum: the best that a solver has found so far, and the certificate of any classifier."""

from typing import Generic

import numpy as np

from gaussguru._linalg import Array, Intercept
from gaussguru._problems.protocol import LossProblem, P, Problem
from gaussguru._solvers.result import Log, Result, Status
from gaussguru.certificates.dual_point import Certificate


class Bounds(Generic[P]):
    """A point with an upper bound of the minimum, and a dual value.

    It begins with a classifier that ignores the features, and a dual value of 0.
    """

    def __init__(self, solver: str, problem: Problem[P], tol: float, verbose: int) -> None:
        self.problem, self.target, self.log = problem, tol * problem.weight, Log(solver, verbose)
        self.n_iter = 0
        self.best: P | None = None
        self.primal, self.dual = problem.constant_near(None)[1], 0.0
        self.alpha: Array | None = None  # of the dual value, where it is not that of the slopes of a point
        self.status: Status = "precision"  # unless the gap is closed

    @property
    def gap(self) -> float:
        """The proven gap of the best point."""
        return max(0.0, self.primal - self.dual)

    @property
    def is_closed(self) -> bool:
        """Whether the gap is as small as is wanted."""
        return self.gap <= self.target

    def lower_primal(self, primal: float, point: P) -> None:
        """Keep a point with an upper bound, if that is the lowest."""
        if primal < self.primal:
            self.best, self.primal = point, primal

    def raise_dual(self, dual: float, alpha: Array | None = None) -> None:
        """Keep a lower bound, if it is the highest; one above a value that is attained is none."""
        if self.dual < dual <= self.primal + self.target:
            self.dual, self.alpha = dual, alpha

    def result(self) -> Result:
        """Return the best point, or the classifier that ignores the features where nothing was better."""
        problem, best = self.problem, self.best
        b, constant = problem.constant_near(best)
        sharp = None if best is None else problem.again(best)
        if best is not None and sharp is not None and sharp.value < constant:
            # What rounding may hide was part of what was certified.
            value, hidden = sharp.value, self.primal - best.value
            coef, intercept = problem.classifier(sharp)
        else:
            value, hidden = constant, 0.0
            coef, intercept = np.zeros((*np.shape(b), problem.rows.n_columns)), b
        alpha = self.alpha
        if alpha is None and problem.rows.in_memory:
            # At the smoothing that was certified: without any, exact samples would have 0 or 1.
            alpha = problem.slopes(best) if best is not None else problem.constant_slopes()
        gap = min(value, max(0.0, value + hidden - self.dual))
        status: Status = "converged" if gap <= self.target else self.status
        return Result(coef, intercept, value, gap, alpha, self.n_iter, status, collapsed=not coef.any())


def certify(
    problem: LossProblem[P], coef: Array, intercept: Intercept, *, rescaled: bool = True
) -> tuple[Certificate, Array | None]:
    """Return bounds on the minimum from a classifier, and its slopes where rows are in memory.

    The upper bound is F at the classifier. The lower one comes from its slopes or, ``rescaled``, from those of the same
    direction with its best length and intercepts, if these are found without a pass over X. Where a problem is known
    in some directions of a larger space only, those of the slopes of the classifier itself must be all.
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
