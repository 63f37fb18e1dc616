"""The certificate of any classifier."""

import numpy as np

from gaussguru._linalg import Array, Intercept
from gaussguru._problems.protocol import LossProblem, P
from gaussguru.certificates.dual_point import Certificate


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
