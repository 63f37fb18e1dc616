"""How Newton's linear systems are solved: lazily.

A Cholesky factor of the Hessian, even of a subsample or of an earlier point, is an excellent approximation of
the next one. So a factor is kept as long as it serves:

* **as it is**, corrected by what the gradients seen since say about the curvature (limited-memory BFGS with the
  factor as its seed), while each step still takes most of the decrement away;
* **as a preconditioner** of conjugate gradients, where forming a Hessian costs more than some products with it;
* and it is **renewed** when neither pays, at every step where it costs next to nothing.

With more columns than :data:`MAX_COLUMNS` there is no factor, only conjugate gradients, on the rows that matter. A
multiclass problem with too many unknowns has an approximate factor, which costs little and serves only as a
preconditioner.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from gaussguru.cholesky import MAX_COLUMNS, Factor, factorise
from gaussguru.losses import Array
from gaussguru.objective import Expansion

# A factor at most this many times dearer than a product is preferred to conjugate gradients.
CHEAP_RATIO = 7.0
# A lazy step must leave at most this part of the last decrement.
CONTRACTION = 0.3
# Conjugate gradients: reduction of the residual, and the products for one system with and without a factor.
ACCURACY = 0.1
MOST_PRODUCTS, LEAST_PRODUCTS = 60, 8

Solve = Callable[[Array], Array]


class Step(NamedTuple):
    """A step in the unknowns, its decrement, and the step to a part of the noise level instead."""

    p: Array
    decrement: float
    lowered: Callable[[float], Array]


class Local(Protocol):
    """What a lazy inverse has to know of a function at a point."""

    @property
    def unknowns(self) -> Array:
        """The point."""

    @property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""

    @property
    def factor_cost(self) -> float:
        """What a factor costs, in units of :meth:`product`."""

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving."""

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``."""


class Inverse(Protocol):
    """An inverse Hessian, or something close to it."""

    @property
    def is_exact(self) -> bool:
        """Whether it is the inverse at the point where it was made."""

    def solve(self, g: Array) -> Array:
        """Return the inverse times ``g``."""


def factor_of(expansion: Expansion) -> Factor | None:
    """Return the factor of a binary problem, if it has not too many columns."""
    return factorise(expansion.hessian()) if expansion.objective.rows.n_columns <= MAX_COLUMNS else None


class LazyInverse:
    """The inverse Hessian at one point after another; ``make`` makes a factor, or None where there is none."""

    def __init__(self, make: Callable[[Any], Inverse | None] = factor_of, contraction: float = CONTRACTION) -> None:
        self._make = make
        self._contraction = contraction
        self._factor: Inverse | None = None
        self._debt = 0  # products spent since the factor was made
        self._n_systems = 0  # solved by products
        self._memory: list[tuple[Array, Array, float]] = []
        self._stale = False

    def forget(self, *, factor: bool = False) -> None:
        """Drop the corrections, because the function changed; with ``factor`` renew that too at the next point."""
        self._memory = []
        self._stale = self._stale or factor

    def renew(self, expansion: Local) -> None:
        """Make a factor, of the function itself or of one that is close to it and costs less."""
        self._factor = self._make(expansion)
        self._debt, self._stale, self._memory = 0, False, []

    def learn(self, before: Local, after: Local) -> None:
        """Keep a step and what it did to the gradient."""
        if self._factor is None or not self._factor.is_exact or before.is_cheap:
            return
        step, change = after.unknowns - before.unknowns, after.gradient - before.gradient
        curvature = float(step @ change)
        if curvature > 0:
            self._memory = [*self._memory[-9:], (step, change, curvature)]

    def at(self, expansion: Local, previous: float, main: Callable[[], Local] | None = None) -> Solve:
        """Return what solves systems with the Hessian of ``expansion``.

        ``previous`` is the decrement before the last step (infinity for "try"), 0 rules out a lazy step. ``main`` makes
        what factors and products may be of instead, where they cost less; a lazy step needs neither.
        """
        lazy = self._factor
        renew = lazy is None or self._stale or expansion.is_cheap
        if lazy is not None and not renew and lazy.is_exact:
            gradient = expansion.gradient
            step = self._corrected(lazy, gradient)
            if float(step @ gradient) <= self._contraction * previous:  # the decrement of a lazy step
                return lambda g: step if g is gradient else self._corrected(lazy, g)
        if main is not None:
            expansion = main()
        if not renew:
            renew = expansion.factor_cost < CHEAP_RATIO or self._debt + 2 > expansion.factor_cost
        if renew:
            self.renew(expansion)
        factor = self._factor
        if renew and factor is not None and factor.is_exact:
            return factor.solve

        def by_products(g: Array) -> Array:
            # Without a factor few products must do, as long as there are few systems.
            most = MOST_PRODUCTS if factor else max(LEAST_PRODUCTS, 2 * (self._n_systems - LEAST_PRODUCTS))
            solution, n_products = conjugate_gradients(expansion.product, g, factor.solve if factor else None, most)
            self._debt += n_products
            self._n_systems += 1
            return solution

        return by_products

    def step(self, expansion: Expansion, previous: float, *, pin: bool = False) -> Step:
        """Return Newton's step of a binary problem, with ``pin`` that on the plane of constant ``w.pull``."""
        many = expansion.objective.rows.n_columns > MAX_COLUMNS
        solve = self.pinned(expansion) if pin else self.at(expansion, previous, expansion.mainly if many else None)
        p = -solve(expansion.gradient)
        # To a lower noise along the tangent of the path.
        return Step(
            p,
            -float(expansion.gradient @ p),
            lambda part: p + (1 - part) * solve(expansion.tangent()),
        )

    def pinned(self, expansion: Expansion) -> Solve:
        """Return what solves on the plane of constant ``w.pull``, because the Hessian vanishes along ``w`` itself.

        A multiple of pull pull' makes it definite.
        """
        self._stale = True
        pull = np.append(expansion.objective.pull, 0.0)
        weight = float(pull @ expansion.product(pull)) / float(pull @ pull) ** 2
        if len(pull) <= MAX_COLUMNS:
            hessian = expansion.hessian()
            hessian += np.outer(pull * weight, pull)
            solve = factorise(hessian).solve
        else:

            def product(p: Array) -> Array:
                return expansion.product(p) + pull * (weight * float(pull @ p))

            def solve(g: Array) -> Array:
                return conjugate_gradients(product, g, None, MOST_PRODUCTS)[0]

        across = solve(pull)

        def on_plane(g: Array) -> Array:
            p = solve(g)
            return p - across * (float(pull @ p) / float(pull @ across))

        return on_plane

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


def conjugate_gradients(product: Solve, g: Array, precondition: Solve | None, most: int) -> tuple[Array, int]:
    """Return an approximate solution of ``H p = g`` and the number of products it took."""
    x, r = np.zeros_like(g), g.copy()
    z = precondition(r) if precondition else r
    p = z.copy()
    rz = float(r @ z)
    goal = ACCURACY**2 * rz
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
        z = precondition(r) if precondition else r
        new = float(r @ z)
        if not new > goal:
            break
        p = z + (new / rz) * p
        rz = new
    return (x if np.any(x) else g), n_products
