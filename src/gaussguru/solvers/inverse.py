"""How Newton's linear systems are solved: lazily.

A Cholesky factor of the Hessian, even of a subsample or of an earlier point, is an excellent approximation of
the next one. So a factor is kept as long as it serves:

* **as it is**, corrected by what the gradients seen since say about the curvature (limited-memory BFGS with the
  factor as its seed), while each step still takes most of the decrement away;
* **as a preconditioner** of conjugate gradients, where forming a Hessian costs more than some products with it;
* and it is **renewed** when neither pays, at every step where it costs next to nothing.

With more columns than :data:`MAX_COLUMNS` there is no factor, only conjugate gradients.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from gaussguru.losses import Array
from gaussguru.noise import diagonal
from gaussguru.objective import Expansion
from gaussguru.rows import Rows

# The Hessian is formed up to this many columns; two of them are then 64 MB.
MAX_COLUMNS = 2048
# Multiply-adds of a Gram matrix that are not worth saving (about a millisecond).
CHEAP_GRAM = 4e6
# A Gram matrix at most this many times dearer than a product is preferred to conjugate gradients.
CHEAP_RATIO = 7.0
# A lazy step must leave at most this part of the last decrement.
CONTRACTION = 0.3
# Conjugate gradients: reduction of the residual, and the products for one system with and without a factor.
ACCURACY = 0.1
MOST_PRODUCTS, LEAST_PRODUCTS = 60, 8

Solve = Callable[[Array], Array]


class Factor(NamedTuple):
    """A Cholesky factor."""

    cholesky: Array

    def solve(self, g: Array) -> Array:
        """Return the inverse of the factored matrix times ``g``."""
        solution: Array = dpotrs(self.cholesky, g)[0]
        return solution


def factorise(hessian: Array) -> Factor:
    """Factor a positive semidefinite matrix given by its lower triangle, with the least ridge that it needs.

    The ridge is relative to each diagonal entry: w and b, or two features, may have very different units, and a
    Cholesky factor is as accurate as if the matrix had been scaled to a unit diagonal first.
    """
    entries = diagonal(hessian)
    entries[entries <= 1e-200] = 1.0
    ridge = 1e-13
    while True:
        entries *= 1.0 + ridge
        # To LAPACK, which counts by columns, the lower triangle is the upper one of the transpose.
        cholesky, failed = dpotrf(hessian.T, clean=False)
        if not failed:
            return Factor(cholesky)
        ridge *= 100


class LazyInverse:
    """The inverse Hessian at one point after another."""

    def __init__(self) -> None:
        self._factor: Factor | None = None
        self._debt = 0  # products spent since the factor was made
        self._n_systems = 0  # solved by products
        self._memory: list[tuple[Array, Array, float]] = []
        self._stale = False

    def forget(self, *, factor: bool = False) -> None:
        """Drop the corrections, because the function changed; with ``factor`` renew that too at the next point."""
        self._memory = []
        self._stale = self._stale or factor

    def learn(self, before: Expansion, after: Expansion) -> None:
        """Keep a step and what it did to the gradient."""
        if self._factor is None or _is_cheap(before.objective.rows):
            return
        step = np.append(after.point.coef - before.point.coef, after.point.b - before.point.b)
        change = after.gradient - before.gradient
        curvature = float(step @ change)
        if curvature > 0:
            self._memory = [*self._memory[-9:], (step, change, curvature)]

    def at(self, expansion: Expansion, gradient: Array, previous: float, *, pin: bool = False) -> Solve:
        """Return what solves systems with the Hessian of ``expansion``.

        ``previous`` is the decrement before the last step (infinity for "try"), 0 rules out a lazy step. With
        ``pin`` the solutions keep ``w.pull``: the Hessian vanishes along ``w`` itself.
        """
        rows = expansion.objective.rows
        factor = self._factor
        if pin:
            return self._pinned(expansion)
        if rows.n_columns <= MAX_COLUMNS:
            renew = factor is None or self._stale or _is_cheap(rows)
            if not renew and factor is not None:
                lazy = factor
                if float(self._corrected(lazy, gradient) @ gradient) <= CONTRACTION * previous:
                    return lambda g: self._corrected(lazy, g)
                renew = rows.gram_cost < CHEAP_RATIO or self._debt + 2 > rows.gram_cost
            if renew:
                self._factor = factor = factorise(expansion.hessian())
                self._debt, self._stale, self._memory = 0, False, []
                return factor.solve

        def by_products(g: Array) -> Array:
            # Without a factor few products must do, as long as there are few systems.
            most = MOST_PRODUCTS if factor else max(LEAST_PRODUCTS, 2 * (self._n_systems - LEAST_PRODUCTS))
            solution, n_products = conjugate_gradients(expansion.product, g, factor.solve if factor else None, most)
            self._debt += n_products
            self._n_systems += 1
            return solution

        return by_products

    def _pinned(self, expansion: Expansion) -> Solve:
        """Solve on the plane of constant ``w.pull``, with a multiple of pull pull' to make the Hessian definite."""
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

    def _corrected(self, factor: Factor, g: Array) -> Array:
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


def _is_cheap(rows: Rows) -> bool:
    return rows.n_values * rows.n_columns < CHEAP_GRAM


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
