"""What a solver knows of a problem: two protocols, and what most problems do alike.

A :class:`Problem` is rows, a model and smoothing: a frozen value. What is known about the rows is kept by the rows, so
problems that differ in their smoothing share it. A :class:`LocalModel` is what one evaluation tells: value, gradient
and Hessian at one point, how they change with the smoothing, and a certificate.

Unknowns ``x`` are a flat array whose meaning only the problem knows. A *point* is a place with its value, from which
others nearby are cheaper to evaluate than from scratch.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, TypeVar

import numpy as np

from gaussguru._cached import cached_property
from gaussguru._data.rows import Rows
from gaussguru._linalg import Array, Intercept, extended, factorise
from gaussguru._problems.smoothing import NEGLIGIBLE, NONE, RARE, SPEED, Smoothing
from gaussguru.certificates.dual_point import Certificate
from gaussguru.losses import Loss
from gaussguru.noise import Noise


class Inverse(Protocol):
    """An inverse Hessian, or something close to it."""

    @property
    def is_exact(self) -> bool:
        """Whether it is the inverse at the point where it was made."""

    def solve(self, g: Array) -> Array:
        """Return the inverse times ``g``."""


class Point(Protocol):
    """A place with its value."""

    @property
    def x(self) -> Array:
        """The unknowns."""

    @property
    def value(self) -> float:
        """F there."""


# The points of a problem: what is known of one, beside its value, only the problem knows.
P = TypeVar("P", bound=Point)


# A step with an old factor may leave this fraction of the last decrement (measured: 0.1 to 0.5 differ by 10 %).
CONTRACTION = 0.3
# The Hessian of several classes is formed up to this many unknowns: it and its factor then take 100 MB.
MAX_UNKNOWNS = 2600


class LocalModel(Protocol[P]):
    """Value, gradient and Hessian at one point."""

    problem: "Problem[P]"
    point: P
    # The fraction of the last decrement that a step with an old factor may leave.
    contraction: ClassVar[float] = CONTRACTION
    # Whether a factor is made again where a subsample is left at another smoothing than that of the old one.
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
        """What noise and smoothing make of F: a point is central where its decrement is small beside it."""

    # --- the Hessian

    @property
    def hessian_cost(self) -> float:
        """What a factor costs, in units of :meth:`product`."""

    @property
    def is_cheap(self) -> bool:
        """Whether a factor is not worth saving."""

    @property
    def is_large(self) -> bool:
        """Whether there are too many unknowns to form the Hessian."""
        return len(self.gradient) > MAX_UNKNOWNS

    def factor(self, damping: Array) -> Inverse | None:
        """Return a factor of the Hessian with this damping, or None where there are too many unknowns."""
        return None if self.is_large else factorise(self.hessian(), damping)

    def hessian(self) -> Array:
        """Return the Hessian; only its lower triangle is meaningful."""

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``."""

    def main(self) -> Self:
        """Return what has about the same Hessian, and the same gradient, but cheaper products."""
        return self

    # --- smoothing

    def tangent(self, less: Smoothing) -> Array:
        """Return how the gradient changes on the way to less smoothing, to first order."""

    def is_final(self, last: Smoothing, target: float) -> bool:
        """Return whether no less smoothing is needed for a gap of ``target``."""
        noise, blur = self.problem.smoothing
        return noise == 1 and blur <= last.blur

    def less_smoothing(self, last: Smoothing, target: float) -> Smoothing:
        """Return the smoothing to which the minimum is followed next."""
        smoothing = self.problem.smoothing
        noise = 1.0 if self.least_scale < NEGLIGIBLE * last.blur else smoothing.lower_noise
        return Smoothing(noise, self.settled(smoothing.blur / SPEED, last.blur))

    def settled(self, blur: float, least: float) -> float:
        """Return a blur, or the least where that is negligible beside the noise."""
        return least if blur <= max(least, NEGLIGIBLE * self.least_scale) else blur

    @property
    def least_scale(self) -> float:
        """The scale of the noise beside which blur must be negligible; 0 where there is none."""
        return 0.0

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing that hides most of how far the minimum of more rows is from this one."""

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum by more than less smoothing would."""

    # --- certificates

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, P]:
        """Return bounds on the minimum, and the point with the upper one.

        A gap that cannot fall below ``target`` need not be computed to the end, unless ``thorough``.
        """

    def may_close(self, expected: Callable[[], float], target: float) -> bool:
        """Return whether a certificate may close a gap of ``target``; ``expected()`` is about the next decrement."""
        return True

    def is_near(self, target: float) -> bool:
        """Return whether a gap of ``target`` may be closed after one more step."""
        return True

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound that the Newton step from here helps to find, and its alpha.

        The bound is 0 where it is too early; where ``target`` is 0, it is the best one. The alpha is None where the
        slopes of the point say more about its classifier.
        """


class Problem(Protocol[P]):
    """Rows, a model and smoothing: a frozen dataclass.

    What it computes once (cached properties) does not depend on smoothing.
    """

    rows: Rows
    noise: Noise | None
    fit_intercept: bool
    smoothing: Smoothing
    # Whether the scale of the noise is smooth away from zero; else steps are quadratic programs.
    is_smooth: ClassVar[bool] = True
    # Whether all that F needs of the rows is linear in the unknowns, so that a mixture of points costs no pass.
    is_linear: ClassVar[bool] = True

    @property
    def is_fused(self) -> bool:
        """Whether a step near the minimum is evaluated with its gradient, in one pass."""
        return True

    @property
    def weight(self) -> float:
        """F at zero."""
        return self.rows.total_weight

    @cached_property
    def unit_damping(self) -> Array:
        """The diagonal of a Levenberg damping of size 1: as if all rows had a curvature of 1 in scores and in noise."""
        rows = self.rows
        variances = 0.0 if self.noise is None else rows.total_weight * self.noise.variances(rows.n_columns)
        return np.concatenate([extended(rows.column_squares + variances, rows.total_weight)] * (rows.n_classes - 1))

    def smoothed(self, smoothing: Smoothing) -> Self:
        """Return the same problem with other smoothing, and what was computed once."""
        if smoothing == self.smoothing:
            return self
        other = copy.copy(self)
        other.__dict__["smoothing"] = smoothing
        return other

    def scaled(self, factor: float) -> Self:
        """Return the same problem with all standard deviations of the model multiplied by a factor."""

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about ``n_rows`` rows, each class reweighted to its own total."""

    # --- classifiers that ignore the features

    def constant_near(self, point: P | None) -> tuple[Intercept, float]:
        """Return intercepts of the best one, of those to which a point leads, and F there."""

    def constant_slopes(self) -> Array:
        """Return ``alpha`` of the dual point of :meth:`collapse_bound`: 0 where there is none."""
        return np.zeros((self.rows.n_rows, self.rows.n_classes))

    def collapse_bound(self) -> float:
        """Return a lower bound of F that proves, where it can, that such a one is optimal."""
        return 0.0

    # --- points

    def initial(self, last: Smoothing, target: float) -> tuple[P, Smoothing]:
        """Return a first point and its smoothing."""

    def point(self, x: Array) -> P:
        """Evaluate F."""

    def again(self, point: P) -> P:
        """Evaluate F at a point of the same rows with other smoothing."""

    def mixture(self, parts: list[tuple[float, P]]) -> P:
        """Evaluate F at a linear combination of points."""

    def rescaled(self, point: P, tol: float) -> P:
        """Return the point with its best length and intercepts, where that costs no pass over X."""
        return point

    def expand(self, point: P) -> LocalModel[P]:
        """Return value and gradient at a point."""

    def visit(self, x: Array, *, curved: bool = False) -> LocalModel[P]:
        """Return value and gradient at x; ``curved`` says that its certificate may be the last."""
        return self.expand(self.point(x))

    # --- solutions

    def unknowns(self, coef: Array, intercept: Intercept) -> Array:
        """Return the unknowns of a classifier."""

    def classifier(self, point: P) -> tuple[Array, Intercept]:
        """Return coefficients and intercept."""

    def slopes(self, point: P) -> Array:
        """Return ``alpha`` of every row, or of every row and class."""


@dataclass(frozen=True, eq=False)
class LossProblem(Problem[P], Protocol[P]):
    """Rows with a loss and the noise of a model, which is None where samples have no other noise than their own."""

    rows: Rows
    loss: Loss
    noise: Noise | None
    l2: float = 0.0
    fit_intercept: bool = True
    smoothing: Smoothing = NONE

    def on_rows(self, rows: Rows) -> Self:
        """Return the same problem of other rows, or of the same with other columns."""
        return replace(self, rows=rows)

    def scaled(self, factor: float) -> Self:
        """Return the same problem with all standard deviations of the model multiplied by a factor."""
        return self if factor == 1 or self.noise is None else replace(self, noise=self.noise.scaled(factor))

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about ``n_rows`` rows, each class reweighted to its own total."""
        return self.on_rows(self.rows.subsample(n_rows, rng, RARE))

    def constant_value(self, intercept: Intercept) -> float:
        """Return F of a classifier with these intercepts that ignores the features."""


class SpannedProblem(LossProblem[P], Protocol[P]):
    """One whose rows may be known by their values at some vectors only."""

    def residual(self, x: Array) -> Array:
        """Return the derivatives of F by the scores, up to their sign, a column for each score."""

    def by_cell(self, residual: Array) -> Array:
        """Return the same apart for the rows of each class, a column for each that is not zero."""
