"""Newton's method with a modified Hessian, for a smooth function of few unknowns that need not be convex."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gaussguru._guru.solvers.line_search import DECREASE
from gaussguru._guru.solvers.result import Status
from gaussguru._measured.probit_problem import Probit
from gaussguru._utils.linalg import EPS, LOST, Array, norm


@dataclass(frozen=True)
class Minimum:
    """A local minimum, by its first and second derivatives.

    Attributes
    ----------
    u : the unknowns
    value : F there
    gradient_norm : length of the gradient, in units of ``problem.weight``
    n_iter : points whose Hessian was used
    status : "converged" if the gradient is at most ``tol`` and F falls along no direction of negative curvature;
        "max_iter" if the iterations are used up; "precision" if further descent is below rounding
    """

    u: Array
    value: float
    gradient_norm: float
    n_iter: int
    status: Status

    @property
    def converged(self) -> bool:
        """Whether the status is "converged"."""
        return self.status == "converged"


class _Point(NamedTuple):
    u: Array
    value: float
    gradient: Array
    hessian: Array


def minimise(problem: Probit, start: Array, *, tol: float, max_iter: int) -> Minimum:
    """Descend from a point to a local minimum.

    A step divides the gradient along each eigenvector of the Hessian by the absolute value of the curvature. Near a
    minimum that is Newton's step, and convergence is quadratic; elsewhere F still falls along it, and the step is
    halved until F falls enough. If the descent is below rounding, the gradient must become half as long. From a saddle,
    where the gradient is at most ``tol``, the step follows the direction of least curvature. F rises by rounding only.
    """
    at, n_iter = _Point(start, *problem.at(start)), 0
    while True:
        n_iter += 1
        here = Minimum(at.u, at.value, norm(at.gradient) / problem.weight, n_iter, "precision")
        if not np.isfinite(at.hessian).all():
            return here
        curvatures, axes = np.linalg.eigh(at.hessian)
        is_flat = here.gradient_norm <= tol
        lower = _off_saddle(problem, at, float(curvatures[0]), axes[:, 0]) if is_flat and curvatures[0] < 0 else None
        if is_flat and lower is None:
            return replace(here, status="converged")
        if n_iter >= max_iter:
            return replace(here, status="max_iter")
        if lower is not None:
            at = lower
            continue
        sizes = np.abs(curvatures)
        sizes = np.maximum(sizes, EPS * max(problem.weight, sizes.max()))  # smaller ones are rounding
        step = -axes @ (at.gradient @ axes / sizes)
        decrement, lost = -float(at.gradient @ step), LOST * abs(at.value)
        t, to = 1.0, _Point(at.u + step, *problem.at(at.u + step))
        while t * decrement > lost and not to.value <= at.value - DECREASE * t * decrement:
            t *= 0.5
            to = _Point(at.u + t * step, *problem.at(at.u + t * step))
        is_better = to.value <= at.value + lost and norm(to.gradient) < 0.5 * norm(at.gradient)
        if t * decrement <= lost and not is_better:
            return here
        at = to


def _off_saddle(problem: Probit, at: _Point, curvature: float, axis: Array) -> _Point | None:
    """Return a point along an axis of negative curvature where F is less by more than rounding, or None.

    F falls on both sides. The side on which the largest entry rises is tried first, so that rounding does not decide.
    """
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    t, lost = 1.0, LOST * abs(at.value)
    while -0.5 * curvature * t * t > lost:
        for step in (t * axis, -t * axis):
            to = _Point(at.u + step, *problem.at(at.u + step))
            if to.value <= at.value + DECREASE * 0.5 * curvature * t * t:
                return to
        t *= 0.5
    return None
