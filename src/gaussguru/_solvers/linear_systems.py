"""Newton's linear systems, solved lazily.

A Cholesky factor of the Hessian, even of a subsample or of an earlier point, is an excellent approximation of
the next one. So a factor is kept as long as it serves:

* **as it is**, corrected by what the gradients seen since say about the curvature (limited-memory BFGS with the
  factor as its seed), while each step still takes most of the decrement away;
* **as a preconditioner** of conjugate gradients, where forming a Hessian costs more than some products with it;
* and it is **renewed** when neither pays, at every step where it costs next to nothing.

Where there is no factor, because there are too many unknowns, there are only conjugate gradients.

**Damping.** Where a loss is exactly linear the Hessian may be singular, and a Newton step has any length. After a step
that lowers F by next to nothing of what was predicted, the Hessian is given a Levenberg damping: a multiple of the mean
squares of the features. It is raised while steps fail and lowered when they succeed.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from gaussguru._linalg import Array
from gaussguru._problems.protocol import Inverse, LocalModel, P
from gaussguru._problems.smoothing import NEGLIGIBLE, Smoothing
from gaussguru._solvers.line_search import DECREASE, is_lost
from gaussguru._solvers.policy import NewtonPolicy

Solve = Callable[[Array], Array]


class NewtonStep(NamedTuple):
    """A Newton step, its decrement, and the step to less smoothing instead."""

    p: Array
    decrement: float
    towards: Callable[[Smoothing], Array]


# The local models that steps are made from.
L_contra = TypeVar("L_contra", contravariant=True)


class Steps(Protocol[L_contra]):
    """Where the steps come from: linear systems or quadratic programs, with the local models that they know."""

    def forget(self, *, factor: bool = False) -> None:
        """Drop what the last steps taught, because the function changed; with ``factor`` the factor too."""

    def step(self, local: L_contra, previous: float, *, final: bool) -> NewtonStep:
        """Return a step; ``previous`` is the decrement before the last one, infinity if there was none."""

    def expected(self, local: L_contra) -> float:
        """Return about the decrement of the step to come, from what is known already; 0 where nothing is."""
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
        self._smoothing: Smoothing | None = None  # that of the factor
        self._damping = policy.floor

    def forget(self, *, factor: bool = False) -> None:
        """Drop the corrections, because the function changed; with ``factor`` renew that too at the next point."""
        self._memory = []
        self._stale = self._stale or factor

    def renew(self, local: LocalModel[P]) -> None:
        """Make a factor, of the function itself or of one that is close to it and costs less."""
        self._factor = local.factor(self._damping * local.problem.unit_damping)
        self._smoothing = local.problem.smoothing
        self._debt, self._stale, self._memory = 0, False, []

    def leave(self, local: LocalModel[P]) -> None:
        """Make a factor for more rows where that of another smoothing would serve them less well."""
        if local.refreshes and not local.is_cheap:
            self.renew(local)

    def expected(self, local: LocalModel[P]) -> float:
        """Return the decrement of a step with the old factor."""
        if self._factor is None or not self._factor.is_exact:
            return 0.0
        return float(local.gradient @ self._corrected(self._factor, local.gradient))

    def learn(self, before: LocalModel[P], after: LocalModel[P], decrement: float) -> None:
        """Learn from a step: what it did to the gradient, and whether it was much too long.

        It was if F fell by less than ``DECREASE`` of the decrement. A damped step is too long already where F falls by
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

        On the way to less smoothing the Hessian changes: only at the ``final`` one an old factor serves.
        """
        solve = self.at(local, previous if final else 0.0)
        p = -solve(local.gradient)
        return NewtonStep(p, -float(local.gradient @ p), lambda less: np.asarray(p + solve(local.tangent(less))))

    def at(self, local: LocalModel[P], previous: float) -> Solve:
        """Return what solves systems with the Hessian of ``local``.

        ``previous`` is the decrement before the last step (infinity for "try"); 0 rules out a lazy step.
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
