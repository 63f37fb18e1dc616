"""The interface between problems and solvers: two protocols with default implementations.

A :class:`Problem` is a frozen value: rows, a model and smoothing. Statistics of the rows are stored with the rows, so
problems that differ in their smoothing share them. A :class:`LocalModel` is the result of one evaluation: value,
gradient and Hessian at one point, their changes with the smoothing, and a certificate.

Unknowns ``x`` are a flat array that only the problem interprets. A *point* is an evaluated ``x``: it stores its value
and intermediate results, with which nearby points are cheaper to evaluate.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, TypeVar

import numpy as np

from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.problems.smoothing import NEGLIGIBLE, NONE, RARE, SPEED, Smoothing
from gaussguru._rows.rows import Rows
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import Array, Intercept, extended, factorise
from gaussguru.losses import Loss
from gaussguru.noise import Noise


class Inverse(Protocol):
    """An inverse Hessian, or an approximation of it."""

    @property
    def is_exact(self) -> bool:
        """Whether it is the exact inverse at the point where it was computed."""

    def solve(self, g: Array) -> Array:
        """Return the inverse times ``g``."""


class Point(Protocol):
    """Unknowns with their value."""

    @property
    def x(self) -> Array:
        """The unknowns."""

    @property
    def value(self) -> float:
        """F there."""


# The points of a problem; other attributes than x and value are known to the problem only.
P = TypeVar("P", bound=Point)


# The Hessian of several classes is formed up to this many unknowns: it and its factor then take 100 MB.
MAX_UNKNOWNS = 2600


class LocalModel(Protocol[P]):
    """Value, gradient and Hessian at one point."""

    problem: "Problem[P]"
    point: P
    # A step with an old factor is taken if its decrement is at most this fraction of the last one (measured: 0.1 to 0.5
    # differ by 10 %).
    contraction: ClassVar[float] = 0.3
    # Whether the factor is renewed when a subsample is left.
    refreshes: ClassVar[bool] = False

    @property
    def x(self) -> Array:
        """The unknowns."""
        return self.point.x

    @property
    def value(self) -> float:
        """F."""
        return self.point.value

    @property
    def gradient(self) -> Array:
        """The gradient."""

    @property
    def noisy(self) -> float:
        """The part of F due to noise and smoothing; a point is central if its decrement is a small fraction of it."""

    @property
    def central(self) -> float:
        """That fraction (measured: 0.1 to 0.5 take the same iterations)."""
        return 0.3

    # --- the Hessian

    @property
    def hessian_cost(self) -> float:
        """Cost of a factor, relative to one :meth:`product`."""

    @property
    def is_cheap(self) -> bool:
        """Whether a factor costs so little that it is computed at every step."""

    @property
    def is_large(self) -> bool:
        """Whether there are too many unknowns to form the Hessian."""
        return len(self.gradient) > MAX_UNKNOWNS

    def factor(self, damping: Array) -> Inverse | None:
        """Return a factor of the Hessian with this damping, or None if there are too many unknowns."""
        return None if self.is_large else factorise(self.hessian(), damping)

    def hessian(self) -> Array:
        """Return the Hessian; only its lower triangle is meaningful."""

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``."""

    def main(self) -> Self:
        """Return a model with the same gradient, cheaper products, and nearly the same Hessian."""
        return self

    # --- smoothing

    def tangent(self, less: Smoothing) -> Array:
        """Return the first-order change of the gradient when smoothing falls to ``less``."""

    def is_final(self, last: Smoothing, target: float) -> bool:
        """Return whether no less smoothing is needed for a gap of ``target``."""
        noise, blur = self.problem.smoothing
        return noise == 1 and blur <= last.blur

    def less_smoothing(self, last: Smoothing, target: float) -> Smoothing:
        """Return the next smoothing of the continuation."""
        smoothing = self.problem.smoothing
        noise = 1.0 if self.least_scale < NEGLIGIBLE * last.blur else smoothing.lower_noise
        return Smoothing(noise, self.settled(smoothing.blur / SPEED, last.blur))

    def settled(self, blur: float, least: float) -> float:
        """Return ``blur``, or ``least`` if ``blur`` is negligible relative to the noise."""
        return least if blur <= max(least, NEGLIGIBLE * self.least_scale) else blur

    @property
    def least_scale(self) -> float:
        """The scale of the noise relative to which blur must be negligible; 0 if there is none."""
        return 0.0

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing that covers most of the distance to the minimum of more rows."""

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum farther than less smoothing would."""

    # --- certificates

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, P]:
        """Return bounds on the minimum, and the point with the upper bound.

        If the gap cannot fall below ``target``, the lower bound may be 0, unless ``thorough``.
        """

    def may_close(self, expected: Callable[[], float], target: float) -> bool:
        """Return whether a certificate may close a gap of ``target``; ``expected()`` estimates the next decrement."""
        return True

    def is_near(self, target: float) -> bool:
        """Return whether one more step may close a gap of ``target``."""
        return True

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from the slopes corrected by the Newton step ``p``, and its alpha.

        The bound is 0 if the step is too long for it. If ``target`` is 0, the best bound is computed. The alpha is None
        if the slopes of the point should be reported instead.
        """


class Problem(Protocol[P]):
    """Rows, a model and smoothing: a frozen dataclass.

    Cached properties must not depend on smoothing.
    """

    rows: Rows
    noise: Noise | None
    fit_intercept: bool
    smoothing: Smoothing
    # Whether the scale of the noise is smooth away from zero; else steps are quadratic programs.
    is_smooth: ClassVar[bool] = True
    # Whether F depends on the rows through scores only, so that a linear combination of points costs no pass.
    is_linear: ClassVar[bool] = True

    @property
    def is_fused(self) -> bool:
        """Whether a step near the minimum is evaluated together with its gradient, in one pass."""
        return True

    @property
    def weight(self) -> float:
        """F at zero."""
        return self.rows.total_weight

    @cached_property
    def unit_damping(self) -> Array:
        """The diagonal of a Levenberg damping of size 1: all rows with a curvature of 1 in scores and in noise."""
        rows = self.rows
        variances = 0.0 if self.noise is None else rows.total_weight * self.noise.variances(rows.n_columns)
        return np.concatenate([extended(rows.column_squares + variances, rows.total_weight)] * (rows.n_classes - 1))

    def smoothed(self, smoothing: Smoothing) -> Self:
        """Return the same problem with other smoothing; cached properties are shared."""
        if smoothing == self.smoothing:
            return self
        other = copy.copy(self)
        other.__dict__["smoothing"] = smoothing
        return other

    def scaled(self, factor: float) -> Self:
        """Return the same problem with all standard deviations of the model multiplied by a factor."""

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about ``n_rows`` rows, each class reweighted to its own total."""

    # --- zero coefficients

    def constant_near(self, point: P | None) -> tuple[Intercept, float]:
        """Return the best intercepts at zero coefficients, near those of a point if it matters, and F there."""

    def constant_slopes(self) -> Array:
        """Return ``alpha`` of the dual point of :meth:`collapse_bound`; zeros if it has none."""
        return np.zeros((self.rows.n_rows, self.rows.n_classes))

    def collapse_bound(self) -> float:
        """Return a lower bound of F that may prove that zero coefficients are optimal; 0 if it does not."""
        return 0.0

    # --- points

    def initial(self, last: Smoothing, target: float) -> tuple[P, Smoothing]:
        """Return the first point of a solver and its smoothing."""

    def point(self, x: Array) -> P:
        """Evaluate F."""

    def again(self, point: P) -> P:
        """Evaluate F at a point of the same rows with other smoothing."""

    def mixture(self, parts: list[tuple[float, P]]) -> P:
        """Evaluate F at a linear combination of points."""

    def rescaled(self, point: P, tol: float) -> P:
        """Return the point with its best length and intercepts, if that costs no pass over X."""
        return point

    def expand(self, point: P) -> LocalModel[P]:
        """Return value and gradient at a point."""

    def visit(self, x: Array, *, curved: bool = False) -> LocalModel[P]:
        """Return value and gradient at x; ``curved`` if its certificate may close the gap."""
        return self.expand(self.point(x))

    # --- solutions

    def unknowns(self, coef: Array, intercept: Intercept) -> Array:
        """Return the unknowns of a classifier."""

    def classifier(self, point: P) -> tuple[Array, Intercept]:
        """Return coefficients and intercept."""

    def slopes(self, point: P) -> Array:
        """Return ``alpha``, (n_rows,) or (n_rows, C)."""


@dataclass(frozen=True, eq=False)
class LossProblem(Problem[P], Protocol[P]):
    """Rows with a loss and the noise of a model, or None if samples have error bars only."""

    rows: Rows
    loss: Loss
    noise: Noise | None
    l2: float = 0.0
    fit_intercept: bool = True
    smoothing: Smoothing = NONE

    def on_rows(self, rows: Rows) -> Self:
        """Return the same problem with other rows or columns."""
        return replace(self, rows=rows)

    def scaled(self, factor: float) -> Self:
        """Return the same problem with all standard deviations of the model multiplied by a factor."""
        return self if factor == 1 or self.noise is None else replace(self, noise=self.noise.scaled(factor))

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about ``n_rows`` rows, each class reweighted to its own total."""
        return self.on_rows(self.rows.subsample(n_rows, rng, RARE))

    def constant_value(self, intercept: Intercept) -> float:
        """Return F at zero coefficients for these intercepts."""


class SpannedProblem(LossProblem[P], Protocol[P]):
    """A problem whose features may be replaced by scores along some directions."""

    def residual(self, x: Array) -> Array:
        """Return the derivatives of F by the scores, up to their sign, (n_rows, n_scores)."""

    def by_cell(self, residual: Array) -> Array:
        """Split the columns of a residual by the class of the row; columns of zeros are left out."""
