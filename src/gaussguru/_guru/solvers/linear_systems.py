"""Newton's linear systems, solved lazily.

A Cholesky factor of the Hessian, even of a subsample or of an earlier point, is an excellent approximation of
the next one. So a factor is reused:

* **as it is**, corrected by the changes of the gradients since (limited-memory BFGS with the factor as its seed), while
  each step still removes most of the decrement;
* **as a preconditioner** of conjugate gradients, if forming a Hessian costs more than several products with it;
* and it is **renewed** when neither pays, or at every step if it is cheap.

Without a factor, because there are too many unknowns, all systems are solved by conjugate gradients.

**Damping.** If a loss is exactly linear, the Hessian may be singular and a Newton step may have any length. After a
step that lowers F by a tiny fraction of the prediction, the Hessian gets a Levenberg damping: a multiple of the mean
squares of the features. It is raised while steps fail and lowered when they succeed.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from gaussguru._guru.problems.protocol import Inverse, LocalModel, P
from gaussguru._guru.problems.smoothing import NEGLIGIBLE, Smoothing
from gaussguru._guru.solvers.line_search import DECREASE, is_lost
from gaussguru._guru.solvers.policy import NewtonPolicy
from gaussguru._utils.linalg import Array

Solve = Callable[[Array], Array]


class NewtonStep(NamedTuple):
    """A Newton step, its decrement, and the step to less smoothing instead."""

    p: Array
    decrement: float
    towards: Callable[[Smoothing], Array]


# The local models from which steps are computed.
L_contra = TypeVar("L_contra", contravariant=True)


class Steps(Protocol[L_contra]):
    """A source of steps: linear systems or quadratic programs, for the local models that they support."""

    def forget(self, *, factor: bool = False) -> None:
        """Drop the corrections, because the function changed; with ``factor`` the factor too."""

    def step(self, local: L_contra, previous: float, *, final: bool) -> NewtonStep:
        """Return a step; ``previous`` is the decrement before the last one, infinity if there was none."""

    def expected(self, local: L_contra) -> float:
        """Return an estimate of the decrement of the next step without a pass over X; 0 if there is none."""
        return 0.0

    def learn(self, before: L_contra, after: L_contra, decrement: float) -> None:
        """Learn from a step that was taken."""

    def leave(self, local: L_contra) -> None:
        """Prepare for more rows."""


class Systems:
    """The inverse Hessian at one point after another."""

    def __init__(self, policy: NewtonPolicy) -> None:
        self.policy = policy
        self._factor: Inverse | None = None
        self._debt = 0  # products spent since the factor was made
        self._memory: list[tuple[Array, Array, float]] = []
        self._stale = False
        self._damping = policy.floor

    def forget(self, *, factor: bool = False) -> None:
        """Drop the corrections, because the function changed; with ``factor`` renew that too at the next point."""
        self._memory = []
        self._stale = self._stale or factor

    def renew(self, local: LocalModel[P]) -> None:
        """Compute a factor at a local model, which may be a cheaper approximation."""
        self._factor = local.factor(self._damping * local.problem.unit_damping)
        self._debt, self._stale, self._memory = 0, False, []

    def leave(self, local: LocalModel[P]) -> None:
        """Renew the factor for more rows if the problem says that one of another smoothing is worse."""
        if local.refreshes and not local.is_cheap:
            self.renew(local)

    def expected(self, local: LocalModel[P]) -> float:
        """Return the decrement of a step with the old factor."""
        if self._factor is None or not self._factor.is_exact:
            return 0.0
        return float(local.gradient @ self._corrected(self._factor, local.gradient))

    def learn(self, before: LocalModel[P], after: LocalModel[P], decrement: float) -> None:
        """Update damping and corrections by a step.

        The step was too long if F fell by less than ``DECREASE`` of the decrement; a damped step already if F fell by
        less than ``gain`` of it.
        """
        policy = self.policy
        damped = self._damping > policy.floor
        least = policy.gain if damped else DECREASE
        poor = before.value - after.value < least * decrement and not is_lost(before.value, decrement)
        if poor or damped:
            raised = 10 * self._damping if damped else policy.damping
            self._damping = raised if poor else max(policy.floor, 0.1 * self._damping)
            self.forget(factor=True)
        elif self._factor is not None and self._factor.is_exact and not before.is_cheap:
            step, change = after.x - before.x, after.gradient - before.gradient
            curvature = float(step @ change)
            if curvature > 0:
                self._memory = [*self._memory[1 - policy.memory :], (step, change, curvature)]

    def step(self, local: LocalModel[P], previous: float, *, final: bool) -> NewtonStep:
        """Return Newton's step; ``previous`` is the decrement before the last one, infinity if there was none.

        While smoothing falls the Hessian changes: an old factor is reused only at the ``final`` smoothing.
        """
        solve = self._solver(local, previous if final else 0.0)
        p = -solve(local.gradient)
        return NewtonStep(p, -float(local.gradient @ p), lambda less: np.asarray(p + solve(local.tangent(less))))

    def _solver(self, local: LocalModel[P], previous: float) -> Solve:
        """Return a function that solves systems with the Hessian of ``local``.

        ``previous`` is the decrement before the last step, infinity to try a lazy step, 0 to rule it out.
        """
        lazy = self._factor
        renew = lazy is None or self._stale or local.is_cheap
        if lazy is not None and not renew and lazy.is_exact:
            gradient = local.gradient
            step = self._corrected(lazy, gradient)
            if float(step @ gradient) <= local.contraction * previous:  # the decrement of a lazy step
                return lambda g: step if g is gradient else self._corrected(lazy, g)
        local = local.main()
        if not renew:
            renew = local.hessian_cost < self.policy.cheap_ratio or self._debt + 2 > local.hessian_cost
        if renew:
            self.renew(local)
        factor = self._factor
        if renew and factor is not None and factor.is_exact:
            return factor.solve
        damping, most = self._damping * local.problem.unit_damping, self.policy.most_products

        def by_products(g: Array) -> Array:
            solution, n_products = conjugate_gradients(lambda p: local.product(p) + damping * p, g, factor, most)
            self._debt += n_products
            return solution

        return by_products

    def _corrected(self, factor: Inverse, g: Array) -> Array:
        """Return the corrected inverse times ``g`` (two-loop recursion: Nocedal & Wright, algorithm 7.4)."""
        r = g.copy()
        weights = []
        for step, change, curvature in reversed(self._memory):
            weights.append(float(step @ r) / curvature)
            r -= weights[-1] * change
        p = factor.solve(r)
        for (step, change, curvature), weight in zip(self._memory, reversed(weights), strict=True):
            p += (weight - float(change @ p) / curvature) * step
        return p


def conjugate_gradients(product: Solve, g: Array, factor: Inverse | None, most: int) -> tuple[Array, int]:
    """Return an approximate solution of ``H p = g`` and the number of products it took; a factor preconditions it."""
    precondition = np.copy if factor is None else factor.solve
    x, r = np.zeros_like(g), g.copy()
    p = z = precondition(r)
    rz = float(r @ z)
    goal = NEGLIGIBLE**2 * rz
    n_products = 0
    while n_products < most:
        n_products += 1
        hp = product(p)
        curvature = float(p @ hp)
        if not curvature > 0:
            break
        t = rz / curvature
        x += t * p
        r -= t * hp
        z = precondition(r)
        new = float(r @ z)
        if not new > goal:
            break
        p = z + (new / rz) * p
        rz = new
    return (x if np.any(x) else g), n_products
