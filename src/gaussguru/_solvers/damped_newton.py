"""Newton's method with Levenberg damping for a smooth function of few unknowns that need not be convex."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from gaussguru._linalg import EPS, Array, diagonal, norm
from gaussguru._solvers.result import Status


class Smooth(Protocol):
    """A function with two derivatives, in unknowns that have the same units."""

    @property
    def weight(self) -> float:
        """The unit of its values and gradients."""

    def value(self, u: Array) -> float:
        """Return the value."""

    def derivatives(self, u: Array) -> tuple[Array, Array]:
        """Return the gradient and the Hessian."""


@dataclass(frozen=True)
class Policy:
    """Tuning constants."""

    # The first damping, relative to the mean diagonal of the Hessian: a step is then about as long as without.
    first_damping: float = 1e-3
    # Ratios of actual to predicted descent below which the damping rises, and above which it falls (Nocedal & Wright,
    # algorithm 4.1), and the factors by which it does.
    poor: float = 0.25
    good: float = 0.75
    rise: float = 8.0
    fall: float = 0.1
    # The least ratio with which a step is made.
    accept: float = 1e-4
    # Predicted descents below this many roundings of the value cannot be seen in it.
    resolution: float = 32.0


@dataclass(frozen=True)
class Minimum:
    """A local minimum, as far as two derivatives tell.

    Attributes
    ----------
    u : the unknowns
    value : F there
    gradient_norm : length of the gradient, in units of ``problem.weight``
    n_iter : Hessians formed
    status : "converged" where the gradient is at most ``tol`` and the Hessian positive definite; "max_iter" where
        iterations ran out; "precision" where rounding hides any further descent
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


def minimise(problem: Smooth, start: Array, *, tol: float, max_iter: int, policy: Policy | None = None) -> Minimum:
    """Descend from a point to a local minimum.

    Each step solves ``(H + damping I) p = -g``, with the least damping that makes the matrix positive definite and the
    quadratic model good enough: without any near a minimum, where convergence is quadratic. F never rises.
    """
    policy = policy or Policy()
    u, value, damping, n_iter = np.asarray(start, dtype=np.float64), problem.value(start), 0.0, 0
    before: Minimum | None = None  # where values last told better from worse; from there on gradients do
    while True:
        gradient, hessian = problem.derivatives(u)
        n_iter += 1
        length = norm(gradient) / problem.weight
        if before is not None and length > tol and not length < 0.5 * before.gradient_norm:
            return replace(before, n_iter=n_iter)
        unit = policy.first_damping * max(float(np.abs(diagonal(hessian)).mean()), EPS * problem.weight)
        factor = _factor(hessian, 0.0)
        if length <= tol and factor is not None:
            return Minimum(u, value, length, n_iter, "converged")
        if n_iter >= max_iter:
            return Minimum(u, value, length, n_iter, "max_iter")
        while True:
            factor = factor if damping == 0.0 else _factor(hessian, damping)
            if factor is None:
                damping = max(policy.rise * damping, unit)
                if not damping < unit / EPS:  # no damping helps where the Hessian is not finite
                    return Minimum(u, value, length, n_iter, "precision")
                continue
            p: Array = -dpotrs(factor, gradient)[0]
            predicted = -float(gradient @ p) - 0.5 * float(p @ hessian @ p)
            if predicted <= policy.resolution * EPS * abs(value):
                before = Minimum(u, value, length, n_iter, "precision")
                u, value = u + p, problem.value(u + p)
                break
            trial = problem.value(u + p)
            ratio = (value - trial) / predicted if np.isfinite(trial) else -1.0
            if ratio < policy.poor:
                damping = max(policy.rise * damping, unit)
            elif ratio > policy.good:
                damping = damping * policy.fall if damping * policy.fall >= unit else 0.0
            if ratio >= policy.accept:
                u, value = u + p, trial
                break


def _factor(hessian: Array, damping: float) -> Array | None:
    """Return a Cholesky factor of the damped matrix, or None if that is not positive definite."""
    damped = hessian.copy()
    diagonal(damped)[:] += damping
    factor, failed = dpotrf(damped, clean=False)
    return None if failed else factor
