"""Newton's method with Levenberg damping for a smooth function of few unknowns that need not be convex."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from gaussguru._linalg import EPS, Array, diagonal, norm
from gaussguru._solvers.line_search import DECREASE
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
    at = _Point(np.asarray(start, dtype=np.float64), problem.value(start))
    damping, n_iter = 0.0, 0
    before: Minimum | None = None  # where values last told better from worse; from there on gradients do
    while True:
        gradient, hessian = problem.derivatives(at.u)
        n_iter += 1
        length = norm(gradient) / problem.weight
        if before is not None and length > tol and not length < 0.5 * before.gradient_norm:
            return replace(before, n_iter=n_iter)
        here = Minimum(at.u, at.value, length, n_iter, "precision")
        if length <= tol and _factor(hessian, 0.0) is not None:
            return replace(here, status="converged")
        if n_iter >= max_iter:
            return replace(here, status="max_iter")
        step = _Trust(problem, at, gradient, hessian, policy).step(damping)
        if step is None:  # no damping helps where the Hessian is not finite
            return here
        at, damping, seen = step
        before = before if seen else here


class _Point(NamedTuple):
    u: Array
    value: float


class _Step(NamedTuple):
    """Where a step leads, with what damping the next one begins, and whether the descent shows in the values."""

    to: _Point
    damping: float
    seen: bool


@dataclass(frozen=True)
class _Trust:
    """The quadratic model of a function at a point, and how far it is trusted."""

    problem: Smooth
    at: _Point
    gradient: Array
    hessian: Array
    policy: Policy

    def step(self, damping: float) -> _Step | None:
        """Return a step with the least damping from a given one on with which the function falls as the model says."""
        policy, (u, value) = self.policy, self.at
        # The damping that is hardly any.
        unit = policy.first_damping * max(float(np.abs(diagonal(self.hessian)).mean()), EPS * self.problem.weight)
        while damping < unit / EPS:
            factor = _factor(self.hessian, damping)
            if factor is None:
                damping = max(policy.rise * damping, unit)
                continue
            p: Array = -dpotrs(factor, self.gradient)[0]
            predicted = -float(self.gradient @ p) - 0.5 * float(p @ self.hessian @ p)
            to = _Point(u + p, self.problem.value(u + p))
            if predicted <= policy.resolution * EPS * abs(value):
                return _Step(to, damping, seen=False)
            ratio = (value - to.value) / predicted if np.isfinite(to.value) else -1.0
            if ratio < policy.poor:
                damping = max(policy.rise * damping, unit)
            elif ratio > policy.good:
                damping = damping * policy.fall if damping * policy.fall >= unit else 0.0
            if ratio >= DECREASE:
                return _Step(to, damping, seen=True)
        return None


def _factor(hessian: Array, damping: float) -> Array | None:
    """Return a Cholesky factor of the damped matrix, or None if that is not positive definite."""
    damped = hessian.copy()
    diagonal(damped)[:] += damping
    factor, failed = dpotrf(damped, clean=False)
    return None if failed else factor
