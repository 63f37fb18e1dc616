"""Two classes: the chain rule over a loss and a noise model, summed over rows.

::

    F(w, b) = sum_i s_i a f(m_i / a) + (l2/2) ||w||^2,    m_i = 1 - y_i (w.x_i + b),    a = a(w)

With ``z = m / a``, ``alpha = f'(z)``, ``v = sum s y alpha x`` and ``k = sum s (f - z f')``::

    grad_w F = -v + k grad a + l2 w              grad_b F = -sum s y alpha
    Hess F   = sum (s f''/a) u u' + k Hess a + l2 I,     u_i = (x_i + y_i z_i grad a, 1)

(the sign ``y_i`` of ``u_i`` cancels). With smoothing (:mod:`gaussguru._guru.problems.smoothing`) the scale is
``a = hypot(noise n(w), blur)`` for the scale ``n`` of the noise model. Half the Hessian of ``a^2`` is that of
``noise^2 n^2``, the metric ``M`` of the noise, so ``Hess a = (noise^2 M - grad a grad a') / a``.

Conventions
-----------
x : array (n_columns + 1,), the unknowns ``(w, b)``; without an intercept the last entry is 0
margin : row vector, ``w.x_i`` without the intercept
labels : "positive" rows have label 1, "negative" ones label 0
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyr

from gaussguru._guru.certificates.dual_point import Certificate, Ray
from gaussguru._guru.problems.coordinates import coordinate_descent
from gaussguru._guru.problems.protocol import LocalModel, SpannedProblem
from gaussguru._guru.problems.smoothing import FIRST_BLUR, NEGLIGIBLE, UNCERTAIN, Smoothing
from gaussguru._native import _binding
from gaussguru._rows.rows import Block, RowVector, combine, margins
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import EPS, LOST, MAX_COLUMNS, Array, Intercept, diagonal, extended, norm
from gaussguru.losses import Loss
from gaussguru.noise import Noise


class Totals(NamedTuple):
    """Sums over rows of ``s f``, ``s f'`` and ``s f''`` by label, and ``s (f - z f')``."""

    value: float
    slope_pos: float
    slope_neg: float
    curve_pos: float
    curve_neg: float
    conjugate: float

    @classmethod
    def of_slopes(cls, positive: float, negative: float, conjugate: float) -> "Totals":
        """Return the totals of slopes that belong to no point: F is infinite, curvatures are NaN."""
        return cls(np.inf, positive, negative, np.nan, np.nan, conjugate)


@dataclass(slots=True, eq=False)  # fits of a millisecond take 2 % more with a named tuple, which is read more slowly
class BinaryPoint:
    """A point with its margins and sums over rows; the coefficients are ``stretch * w``.

    ``noise_scale`` is ``n(w)``, ``distance`` is ``noise stretch n(w)`` and ``scale`` is ``hypot(distance, blur)``.
    """

    w: Array
    b: float
    margin: RowVector
    stretch: float
    noise_scale: float
    distance: float
    scale: float
    value: float
    totals: Totals

    @property
    def coef(self) -> Array:
        """The coefficients."""
        return self.w if self.stretch == 1 else self.w * self.stretch

    @property
    def x(self) -> Array:
        """The unknowns."""
        return extended(self.coef, self.b)

    @property
    def mass(self) -> float:
        """``sum s alpha``, the dual objective at the slopes of this point."""
        return self.totals.slope_pos + self.totals.slope_neg


class Weights(NamedTuple):
    """The weights of the rows in gradient and Hessian: row vectors of ``s y alpha``, ``s f''/a`` and ``y z``."""

    residual: RowVector
    curve: RowVector
    tilt: RowVector


@dataclass(frozen=True, eq=False)
class Binary(SpannedProblem[BinaryPoint]):
    """Rows of two classes with a loss and a noise model; see the module for the formulas."""

    noise: Noise

    def unknowns(self, coef: Array, intercept: Intercept) -> Array:
        """Return the unknowns of a classifier."""
        return extended(coef, float(intercept))

    def constant_value(self, intercept: Intercept) -> float:
        """Return F at ``w = 0``, where the noise vanishes and the loss is the hinge."""
        b = float(intercept)
        negative, positive = self.rows.class_weights.tolist()
        return float(positive * max(0.0, 1 - b) + negative * max(0.0, 1 + b))

    def constant_near(self, point: BinaryPoint | None) -> tuple[float, float]:
        """Return the best intercept at ``w = 0`` and F there, whatever the point."""
        negative, positive = self.rows.class_weights.tolist()
        b = float((positive > negative) - (positive < negative)) if self.fit_intercept else 0.0
        return b, 2 * min(negative, positive) if self.fit_intercept else negative + positive

    def classifier(self, point: BinaryPoint) -> tuple[Array, float]:
        """Return the coefficients and the intercept."""
        return point.coef, point.b

    @cached_property
    def pull(self) -> Array:
        """The steepest descent at ``w = 0``: the difference of the class means, or ``sum s y x`` without intercept."""
        first, second = self.rows.means if self.fit_intercept else self.rows.moments.sums
        return np.asarray(second - first)

    # --- values -------------------------------------------------------------------------------------------

    def split(self, x: Array) -> tuple[Array, float, float]:
        """Return ``w``, its noise scale and ``b``."""
        w = np.ascontiguousarray(x[:-1])
        return w, self.noise.scale(w), float(x[-1])

    def point(self, x: Array) -> BinaryPoint:
        """Evaluate F at x; one pass over X."""
        w, noise_scale, b = self.split(x)
        self.rows.count("value")
        return self.at(w, noise_scale, b, self.rows.each(margins, w=w))

    def at(self, w: Array, noise_scale: float, b: float, margin: RowVector, stretch: float = 1.0) -> BinaryPoint:
        """Evaluate F at ``(stretch w, b)`` from the margins ``X w`` and the noise scale of w."""
        scale = self._scale(stretch * noise_scale)
        totals = self.rows.total(_totals, margin, loss=self.loss, stretch=stretch, b=b, scale=scale, pointwise=True)
        return self._point(w, noise_scale, b, margin, stretch, scale, totals)

    def _scale(self, noise_scale: float) -> float:
        return math.hypot(self.smoothing.noise * noise_scale, self.smoothing.blur) or 1e-300

    def _point(
        self, w: Array, noise_scale: float, b: float, margin: RowVector, stretch: float, scale: float, totals: Array
    ) -> BinaryPoint:
        sums = Totals(*totals.tolist())
        value = scale * sums.value
        if self.l2:
            value += 0.5 * self.l2 * stretch**2 * float(w @ w)
        return BinaryPoint(
            w, b, margin, stretch, noise_scale, self.smoothing.noise * stretch * noise_scale, scale, value, sums
        )

    def again(self, point: BinaryPoint) -> BinaryPoint:
        """Evaluate F at a point of the same rows with other smoothing."""
        noise_scale = point.stretch * point.noise_scale
        if self.smoothing.noise * noise_scale == point.distance and self._scale(noise_scale) == point.scale:
            return point  # the scale does not change
        return self.stretched(point, point.stretch, point.b)

    def stretched(self, point: BinaryPoint, stretch: float, b: float) -> BinaryPoint:
        """Evaluate F with another length and intercept."""
        return self.at(point.w, point.noise_scale, b, point.margin, stretch)

    def mixture(self, parts: list[tuple[float, BinaryPoint]]) -> BinaryPoint:
        """Evaluate F at a linear combination of points, from their margins."""
        w, noise_scale, b = self.split(np.asarray(sum(share * point.x for share, point in parts)))
        return self.at(
            w, noise_scale, b, self.rows.mixed([(share * point.stretch, point.margin) for share, point in parts])
        )

    # --- where to begin -----------------------------------------------------------------------------------

    def initial(self, last: Smoothing, target: float) -> tuple[BinaryPoint, Smoothing]:
        """Return the best point along the difference of the class means, with enough noise to make F smooth.

        Also return its smoothing. It has a blur only if otherwise a classifier that ignores the features is better.
        """
        w = self.noise.steepest(self.pull / norm(self.pull))
        w = w / norm(w)
        self.rows.count("value")
        margin = self.rows.each(margins, w=w)
        if self.fit_intercept:
            negative, positive = (float(mean @ w) for mean in self.rows.means)
            half = 0.5 * (positive - negative)
        else:
            negative, positive, half = 0.0, 0.0, float(self.pull @ w) / self.weight
        centre = 0.5 * (positive + negative)
        spread = self.rows.total(_spread, margin, centres=(negative, positive), pointwise=True)
        scale = self.noise.scale(w)
        # A noise of a quarter of the spread of the margins (measured: 1/4 to 1 differ by 10 %).
        smooth = max(1.0, 0.25 * math.sqrt(spread / self.weight) / scale)
        if self.rows.n_columns > MAX_COLUMNS and smooth > 1 and self.rows.in_memory:
            point = coordinate_descent(self.smoothed(last), 0.5 * target, NEGLIGIBLE)
            # Axis noise is better started with all features tied, unless the gap may be closed already.
            if self.is_smooth or point.value <= 0.5 * target:
                return point, last
        stretch = 1 / max(half, scale)
        for blur in (least_blur(scale * stretch, last.blur), FIRST_BLUR):
            smoothing = Smoothing(smooth, blur)
            problem = self.smoothed(smoothing)
            point = problem.rescaled(problem.at(w, scale, -centre * stretch, margin, stretch), NEGLIGIBLE)
            if point.value < self.constant_near(None)[1]:
                break
        return point, smoothing

    def collapse_bound(self) -> float:
        """Return a lower bound of the minimum from a uniform dual point.

        The point has ``alpha = 1`` on the rows of the lighter class and ``S_min/S_maj`` on the others: it balances,
        ``v = S_min (mu_+ - mu_-)``, and its dual value is ``2 S_min``, F of the best constant classifier. It is
        feasible when ``polar(v) <= S_maj f*(S_min/S_maj)``. Without an intercept ``alpha = 1`` on all rows.
        """
        if self.collapse_factor > 1 and not self.l2:
            return 0.0
        return self.slopes_bound(*self._uniform_dual, lambda c: 0.0, wanted=0.0)[0]

    @property
    def _uniform_alpha(self) -> Array:
        weights = self.rows.class_weights
        return weights.min() / weights if self.fit_intercept else np.ones(2)

    @cached_property
    def _uniform_dual(self) -> tuple[Array, Totals]:
        weights = self.rows.class_weights
        lighter = float(weights.min())
        negative, positive = (lighter, lighter) if self.fit_intercept else weights.tolist()
        # Computed from the difference of the means, which is exactly 0 if they are equal.
        v = lighter * self.pull if self.fit_intercept else self.pull
        level = float(weights @ self.loss.conjugate(self._uniform_alpha))
        return np.array([v, np.zeros_like(v)]), Totals.of_slopes(positive, negative, level)

    @property
    def collapse_factor(self) -> float:
        """The least factor of the noise at which the uniform dual point is feasible."""
        by_label, totals = self._uniform_dual
        pull, level = self.noise.polar(by_label[0]), totals.conjugate
        return pull / level if level > 0 else (np.inf if pull > 0 else 0.0)

    def constant_slopes(self) -> Array:
        """Return ``alpha`` of the uniform dual point."""
        return np.asarray(self._uniform_alpha[self.rows.labels])

    def rounded_up(self, point: BinaryPoint) -> float:
        """Return F at a point plus a bound on its rounding: that of a margin is ``eps sum |x_j w_j|``."""
        reach = point.stretch * math.sqrt(point.mass) * float(np.abs(point.w) @ self.rows.column_lengths)
        noise = point.totals.conjugate * self.smoothing.noise * point.stretch * self.noise.rounding(point.w)
        return point.value + 4 * EPS * (point.value + reach) + noise

    def rounding(self, mass: float) -> Array:
        """Return a bound on the rounding error of ``sum s y alpha x`` in every column."""
        return 4 * EPS * math.sqrt(mass) * self.rows.column_lengths

    # --- derivatives --------------------------------------------------------------------------------------

    def visit(self, x: Array, *, curved: bool = False) -> "BinaryLocal":
        """Return value and gradient at x from one pass over X; with ``curved``, also ``curves`` of the local model."""
        if self.loss.code < 0:
            return self.expand(self.point(x))
        w, noise_scale, b = self.split(x)
        scale, measured = self._scale(noise_scale), not self.rows.knows_squares
        self.rows.count("value")
        margin, sums = self.rows.both(_visit, loss=self.loss, w=w, b=b, scale=scale, curved=curved, measured=measured)
        n_totals = len(Totals._fields)
        vectors = sums[n_totals:].reshape(-1, self.rows.n_columns)
        if measured:
            self.rows.learn_squares(vectors[-1])
        point = self._point(w, noise_scale, b, margin, 1.0, scale, sums[:n_totals])
        return self.local(point, vectors[:2], vectors[2:4] if curved else None)

    def local(self, point: BinaryPoint, by_label: Array, curves: Array | None = None) -> "BinaryLocal":
        """Return the local model of a point."""
        return BinaryLocal(self, point, by_label, curves)

    def expand(self, point: BinaryPoint) -> "BinaryLocal":
        """Return value and gradient at a point; one pass over X."""
        weights = self.row_weights(point)
        self.rows.count("value")
        local = self.local(point, self.rows.total(combine, weights.residual))
        local.row_weights = weights
        return local

    def residual(self, x: Array) -> Array:
        """Return ``s y alpha`` of every row, (n_rows, 1)."""
        return self.rows.gather(self.row_weights(self.point(x)).residual)[:, np.newaxis]

    def by_cell(self, residual: Array) -> Array:
        """Split the residual by the label of the row, (n_rows, 2)."""
        return np.hstack([np.maximum(residual, 0.0), np.minimum(residual, 0.0)])

    def row_weights(self, point: BinaryPoint) -> Weights:
        """Return the weights of the rows in gradient and Hessian."""
        parts = self.rows.each(_row_weights, point.margin, pointwise=True, **self._terms_at(point))
        return Weights(*self.rows.unzipped(parts, 3))

    def slopes(self, point: BinaryPoint) -> Array:
        """Return ``alpha = f'(z)`` of every row, (n_rows,): the dual point of a primal one."""
        return self.rows.gather(self.rows.each(_slopes, point.margin, pointwise=True, **self._terms_at(point)))

    def shrunk_conjugate(self, point: BinaryPoint, factor: float) -> float:
        """Return ``sum s f*(factor alpha)`` at the slopes of a point, or a close lower bound."""
        return float(self.rows.total(_shrunk, point.margin, pointwise=True, factor=factor, **self._terms_at(point)))

    def _terms_at(self, point: BinaryPoint) -> dict[str, object]:
        return {"loss": self.loss, "stretch": point.stretch, "b": point.b, "scale": point.scale}

    def dual_value(self, alpha: RowVector) -> float:
        """Return a lower bound of the minimum from any ``0 <= alpha <= 1``; one pass over X."""
        self.rows.count("value")
        by_label, sums = self.rows.total(dual_sums, alpha)
        positive, negative = sums.tolist()

        def level_at(c: float) -> float:
            return float(self.rows.total(_conjugates, alpha, loss=self.loss, factor=c, pointwise=True))

        return self.slopes_bound(by_label, Totals.of_slopes(positive, negative, level_at(1.0)), level_at)[0]

    def slopes_bound(
        self,
        by_label: Array,
        totals: Totals,
        level_at: Callable[[float], float],
        error: Array | float = 0.0,
        wanted: float = np.inf,
    ) -> tuple[float, float]:
        """Return a lower bound of the minimum from slopes alpha, and their violation of the dual constraint.

        The slopes are balanced and shrunk until they are feasible (:class:`Ray`, a graph with one edge). ``error``
        bounds the error of ``by_label`` in every column, in addition to rounding; ``level_at(c)`` is
        ``sum s f*(c alpha)``. The curvatures of the totals are not used.
        """
        noise = self.noise
        rho, mass, v = balanced(by_label, totals.slope_pos, totals.slope_neg, fit_intercept=self.fit_intercept)
        level, gain, error = rho * totals.conjugate, totals.value - totals.conjugate, self.rounding(mass) + error
        polar = noise.polar(v)
        demand = polar + noise.polar_within(error) if polar > 0 else 0.0
        excess = noise.excess(v, level) + norm(error) if self.l2 else np.inf
        ray = Ray(mass, [demand], [level], lambda c: [rho * level_at(c)], [gain], self.l2, excess)
        return ray.best(wanted), polar - level

    # --- length and intercept -----------------------------------------------------------------------------

    def plane(self, point: BinaryPoint) -> tuple[float, float, float, float, float]:
        """Return the derivatives of F by the relative length ``c`` of ``w`` and by ``b``.

        They are F_c, F_b, F_cc, F_cb, F_bb; without an intercept F_b = F_cb = 0 and F_bb = 1. The second derivatives
        neglect the blur, which must be small relative to the distance.
        """
        value, slope_pos, slope_neg, curve_pos, curve_neg, conjugate = point.totals
        scale, pos, neg = point.scale, 1 - point.b, 1 + point.b
        ridge = self.l2 * point.stretch**2 * float(point.w @ point.w) if self.l2 else 0.0
        blurred = self.smoothing.blur**2 / scale  # a - da/dc
        f_c = scale * value - slope_pos * pos - slope_neg * neg - blurred * conjugate + ridge
        f_cc = (curve_pos * pos * pos + curve_neg * neg * neg) / scale + ridge
        if not self.fit_intercept:
            return f_c, 0.0, f_cc, 0.0, 1.0
        f_cb, f_bb = (curve_pos * pos - curve_neg * neg) / scale, (curve_pos + curve_neg) / scale
        return f_c, slope_neg - slope_pos, f_cc, f_cb, f_bb

    def rescaled(self, point: BinaryPoint, tol: float) -> BinaryPoint:
        """Return the best point with the direction of ``point``, by Newton's method in its length and intercept.

        ``tol`` bounds the derivatives that remain, relative to ``a sum s f*``. X is not read.
        """
        if self.smoothing.blur > NEGLIGIBLE * point.distance:
            return point
        ridge = 1e-12 * self.weight  # keeps the step finite if every row is far from its margin
        decrease = steepness = np.inf
        for _ in range(60):  # few points take more than ten steps
            g_c, g_b, h_cc, h_cb, h_bb = self.plane(point)
            before, steepness = steepness, max(abs(g_c), abs(g_b))
            rounding = decrease <= 4 * EPS * self.weight and steepness > 0.5 * before
            if rounding or steepness <= tol * point.scale * point.totals.conjugate:
                break
            h_cc, h_bb = h_cc + ridge, h_bb + ridge
            det = h_cc * h_bb - h_cb * h_cb
            if not det > 0:
                break
            step_c, step_b = (h_cb * g_b - h_bb * g_c) / det, (h_cb * g_c - h_cc * g_b) / det
            decrease = -(g_c * step_c + g_b * step_b)
            trial = self._backtrack(point, step_c, step_b, decrease) if decrease > 0 else None
            if trial is None:
                break
            point = trial
            if self.smoothing.blur > NEGLIGIBLE * point.distance:
                break
        return point

    def _backtrack(self, point: BinaryPoint, step_c: float, step_b: float, decrease: float) -> BinaryPoint | None:
        # The quadratic model is trusted up to a fifth of the length, four times it, or a few units of the intercept.
        reach = 2.0 * (1 + abs(point.b))
        t = min(1.0, 0.8 / max(-step_c, 0.8), 3.0 / max(step_c, 3.0), reach / max(abs(step_b), reach))
        while t > 1e-18:
            trial = self.stretched(point, point.stretch * (1 + t * step_c), point.b + t * step_b)
            if trial.value <= point.value * (1 + LOST) - 1e-4 * t * decrease:
                return trial
            t *= 0.3
        return None


@dataclass(eq=False)
class BinaryLocal(LocalModel[BinaryPoint]):
    """Value, gradient and Hessian of F at one point.

    ``by_label`` has ``sum s y alpha x`` over the positive and over the negative rows, (2, n_columns); ``curves`` has
    ``sum (s f''/a) x`` over the same rows, or is None.
    """

    problem: Binary
    point: BinaryPoint
    by_label: Array
    curves: Array | None = None

    @cached_property
    def noise_gradient(self) -> Array:
        """The gradient of the scale ``a``."""
        problem, point = self.problem, self.point
        ratio = problem.smoothing.noise * point.distance / point.scale
        gradient = problem.noise.gradient(point.w)
        return gradient if ratio == 1 else gradient * ratio

    @cached_property
    def gradient(self) -> Array:
        """The gradient by the unknowns."""
        problem, totals = self.problem, self.point.totals
        gradient = np.empty(problem.rows.n_columns + 1)
        gradient[:-1] = totals.conjugate * self.noise_gradient - self.by_label[0] - self.by_label[1]
        if problem.l2:
            gradient[:-1] += problem.l2 * self.point.coef
        gradient[-1] = totals.slope_neg - totals.slope_pos if problem.fit_intercept else 0.0
        return gradient

    @property
    def noisy(self) -> float:
        """``a sum s f*``, the part of F due to noise and blur."""
        return self.point.scale * self.point.totals.conjugate

    @cached_property
    def row_weights(self) -> Weights:
        """The weights of the rows, computed only when a step needs them."""
        return self.problem.row_weights(self.point)

    # --- the Hessian --------------------------------------------------------------------------------------

    @property
    def hessian_cost(self) -> float:
        """Cost of the Hessian, relative to one :meth:`product` (measured)."""
        return self.problem.rows.gram_cost

    @property
    def is_cheap(self) -> bool:
        """Whether the Hessian costs so little that it is computed at every step."""
        rows = self.problem.rows
        return rows.n_values * rows.n_columns < 4e6  # multiply-adds: about a millisecond

    @property
    def is_large(self) -> bool:
        """Whether there are too many columns to form the Hessian."""
        return self.problem.rows.n_columns > MAX_COLUMNS

    def hessian(self) -> Array:
        """Return the Hessian; only its lower triangle is meaningful."""
        problem, g = self.problem, self.noise_gradient
        hessian = problem.rows.gram(self.row_weights.curve, self.row_weights.tilt, g)
        block = hessian[:-1, :-1]
        problem.noise.add_metric(self.tension, block, problem.smoothing.noise, self.point.w)
        if problem.l2:
            diagonal(block)[:] += problem.l2
        # BLAS stores by columns: the lower triangle of the Hessian is the upper one of its transpose.
        hessian = np.asarray(dsyr(-self.tension, extended(g, 0.0), a=hessian.T)).T
        if not problem.fit_intercept:
            hessian[-1, :-1] = 0.0
            hessian[-1, -1] = 1.0
        return hessian

    @property
    def tension(self) -> float:
        """``k / a``, the weight of the metric of the noise in the Hessian."""
        return self.point.totals.conjugate / self.point.scale

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; one pass over X."""
        problem, g, w, tension = self.problem, self.noise_gradient, p[:-1], self.tension
        eta = float(g @ w)
        out = self._row_product(w, eta, float(p[-1]) if problem.fit_intercept else 0.0)
        (tilts, ones), result = out[-2:], out[:-1]
        result[-1] = ones if problem.fit_intercept else p[-1]
        result[:-1] += (tilts - tension * eta) * g
        result[:-1] += tension * problem.noise.metric(w, problem.smoothing.noise, self.point.w)
        if problem.l2:
            result[:-1] += problem.l2 * w
        return result

    def main(self) -> "BinaryLocal":
        """Return a copy with negligible Hessian weights set to 0: products do not read these rows."""
        rows = self.problem.rows
        if self.is_cheap or not rows.in_memory:
            return self
        local, weights = replace(self), self.row_weights
        least = NEGLIGIBLE**2 * rows.mean(weights.curve)
        local.row_weights = weights._replace(curve=rows.each(_main, weights.curve, pointwise=True, least=least))
        local.gradient = self.gradient
        return local

    def _row_product(self, p: Array, eta: float, shift: float) -> Array:
        """Return ``U' diag(curve) U (p, eta, shift)`` with ``U = [X tilt 1]``."""
        rows, (_, *weights), p = self.problem.rows, self.row_weights, np.ascontiguousarray(p)
        rows.count("product")
        return np.asarray(rows.total(_product, *weights, p=p, eta=eta, shift=shift))

    def tangent(self, less: Smoothing) -> Array:
        """Return the first-order change of the gradient when smoothing falls to ``less``; one pass over X.

        With the change ``a'`` of the scale, and a change of ``grad a`` by the factor ``g``, it is
        ``a' sum h e (x, 1) + (a' sum h e^2 + k g) grad a`` for the weights ``h`` and tilts ``e`` of the rows.
        """
        problem, scale = self.problem, self.point.scale
        noise, blur = problem.smoothing.towards(less)
        blurred = (problem.smoothing.blur / scale) ** 2
        rate = scale * ((1 - blurred) * noise + blurred * blur)
        out = self._row_product(np.zeros(problem.rows.n_columns), rate, 0.0)
        factor = (1 + blurred) * noise - blurred * blur
        result = extended(out[:-2], out[-1] if problem.fit_intercept else 0.0)
        result[:-1] += (out[-2] + self.point.totals.conjugate * factor) * self.noise_gradient
        return result

    # --- certificates -------------------------------------------------------------------------------------

    def certificate(self, target: float, *, thorough: bool = False) -> tuple[Certificate, BinaryPoint]:
        """Return bounds on the minimum, and the point with the upper bound: this point, rescaled unless target is 0."""
        near = self.point
        if target > 0:
            # Only length and intercept are improved, even if the problem overrides ``rescaled``: ``moved`` needs that.
            near = Binary.rescaled(self.problem, near, NEGLIGIBLE**3 * target / max(self.noisy, 1e-300))
        local, error = self.moved(near) if near is not self.point else (self, 0.0)
        certificate = local._certified(error, target, thorough=thorough)
        if certificate.gap > target and local is not self and (thorough or local.expected_gap <= target):
            # The slopes change too much for the first-order update, whose error bound is too large.
            local = self.problem.visit(near.x)
            certificate = local._certified(0.0, target, thorough=thorough)
        return certificate, local.point

    def may_close(self, expected: Callable[[], float], target: float) -> bool:
        """Return whether F, or the first-order estimate of the gap, is at most 1.5 times the target."""
        return min(self.value, self.expected_gap) <= 1.5 * target

    @cached_property
    def expected_gap(self) -> float:
        """Estimate of the gap of this point with its best length and intercept; no pass over the rows.

        They remove the component of the gradient along w, and change the dual vector by as much. See :class:`Ray`.
        """
        problem, point, totals = self.problem, self.point, self.point.totals
        w, gradient, v = point.w, self.gradient[:-1], self.by_label[0] + self.by_label[1]
        along = w * (float(gradient @ w) / max(float(w @ w), 1e-300))
        gap = point.mass * (problem.noise.polar(v + along) - totals.conjugate) / max(totals.value, 1e-300)
        return min(gap, norm(gradient - along) ** 2 / (2 * problem.l2)) if problem.l2 else gap

    def is_near(self, target: float) -> bool:
        """Return whether one more step may close the gap: a step lowers it 10 to 1000 times, near the end even more."""
        return NEGLIGIBLE**3 * self.expected_gap <= target

    def _certified(self, error: Array | float | None, target: float, *, thorough: bool) -> Certificate:
        """Return bounds from the slopes here; ``error`` bounds that of ``v`` in every column, None if it is unknown.

        Both bounds allow for rounding: ``eps sum |x_j w_j|`` of a margin, ``eps sum s alpha |x|`` of ``v``.
        """
        problem, point = self.problem, self.point
        primal, totals = problem.rounded_up(point), point.totals
        most = 2 * min(totals.slope_pos, totals.slope_neg) if problem.fit_intercept else point.mass
        if error is None or primal <= target or (primal - most > target and not thorough):
            return Certificate(primal, 0.0)
        wanted = np.inf if thorough else primal - target
        level_at = partial(problem.shrunk_conjugate, point)
        return Certificate(primal, problem.slopes_bound(self.by_label, totals, level_at, error, wanted)[0])

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from slopes changed by a Newton step, if the decrement is below the rounding of F.

        If sigma is tiny relative to X, rounding ``w`` moves the slopes more than the tolerance allows, but slopes
        that are changed to first order by the step, ``s y alpha`` by ``-h u.p``, keep enough digits. With axis noise
        the slopes of the point leave forces on free features, so the changed ones are returned.
        """
        if decrement > LOST * self.value:
            return 0.0, None
        problem, weights = self.problem, self.row_weights
        w, rise = np.ascontiguousarray(p[:-1]), float(self.noise_gradient @ p[:-1])
        problem.rows.count("value")
        moved = problem.rows.each(
            _move, weights.residual, weights.curve, weights.tilt, w=w, rise=rise, shift=float(p[-1])
        )
        return problem.dual_value(moved), None if problem.is_smooth else problem.rows.gather(moved)

    # --- smoothing ----------------------------------------------------------------------------------------

    @property
    def least_scale(self) -> float:
        """The scale of the noise, at the noise of the smoothing."""
        return self.point.distance

    def settled(self, blur: float, least: float) -> float:
        """Return ``blur``, or ``least`` if ``blur`` is negligible relative to the noise; ``least`` may become 0."""
        return super().settled(blur, least_blur(self.point.distance / self.problem.smoothing.noise, least))

    def restart(self, last: Smoothing) -> Smoothing:
        """Return the smoothing that covers most of the distance to the minimum of more rows."""
        return Smoothing(max(1.0, NEGLIGIBLE * self._uncertainty), min(last.blur, self.problem.smoothing.blur))

    @property
    def is_hidden(self) -> bool:
        """Whether more rows will move the minimum farther than less smoothing would."""
        return 1 < self.problem.smoothing.noise <= UNCERTAIN * self._uncertainty

    @property
    def _uncertainty(self) -> float:
        """Expected change of the margins with more rows, ``sqrt(columns / rows)`` of their spread, over the noise."""
        rows, point = self.problem.rows, self.point
        change = float(rows.std(point.margin)) * point.stretch * math.sqrt(rows.n_columns / rows.n_rows)
        return change * self.problem.smoothing.noise / point.distance if point.distance else np.inf

    # --- points nearby ------------------------------------------------------------------------------------

    def moved(self, point: BinaryPoint) -> tuple["BinaryLocal", Array | None]:
        """Return the local model of a point of the same direction, and a bound on the error of ``v`` in every column.

        Another length and intercept add one number to every ``z`` of a label, because ``z = ((1 - y b)/c - y q)/a_1``
        at the stretch c. So ``f'`` changes by ``f''`` times this number and at most ``jerk/2`` times its square. The
        bound is None if the curves are unknown, or if because of blur the scale is not proportional to the length.
        """
        problem, here, unit, y = self.problem, self.point, self.point.scale / self.point.stretch, np.array([1.0, -1.0])
        similar = abs(point.scale / point.stretch - unit) <= 4 * EPS * unit
        if self.curves is None or not similar or not math.isfinite(problem.loss.jerk):
            return problem.local(point, self.by_label), None
        shifts = ((1 - y * point.b) / point.stretch - (1 - y * here.b) / here.stretch) / unit
        by_label = self.by_label + (y * shifts * here.scale)[:, np.newaxis] * self.curves
        largest = float((shifts**2).max())
        error = 0.5 * problem.loss.jerk * largest * math.sqrt(problem.weight) * problem.rows.column_lengths
        rounding = 4 * EPS * (1 + abs(here.b)) / min(here.stretch, point.stretch) / unit
        error += rounding * here.scale * np.abs(self.curves).sum(axis=0)
        return problem.local(point, by_label), error


def least_blur(distance: float, last: float) -> float:
    """Return the last blur, or 0 if it is negligible relative to the noise, which all rows share."""
    return last if last > NEGLIGIBLE * distance else 0.0


def balanced(by_label: Array, slope_pos: float, slope_neg: float, *, fit_intercept: bool) -> tuple[float, float, Array]:
    """Scale the slopes of the heavier label down until the labels balance; return a factor, the mass and v.

    The factor ``rho`` bounds the conjugates from below.

    ``f*`` is concave and 0 at 0, so ``f*(rho alpha) >= rho f*(alpha)``. (The best intercept balances the labels only to
    ``eps |b| sum s f''/a``, because it is a number of 53 bits.)
    """
    if not fit_intercept:
        return 1.0, slope_pos + slope_neg, by_label[0] + by_label[1]
    light, heavy = sorted((slope_pos, slope_neg))
    rho = light / heavy if heavy > 0 else 1.0
    factors = (rho, 1.0) if slope_pos > slope_neg else (1.0, rho)
    return rho, 2 * light, factors[0] * by_label[0] + factors[1] * by_label[1]


# --- tasks ---------------------------------------------------------------------------------------------------


def _slack(block: Block, margin: Array, stretch: float, b: float, scale: float) -> tuple[Array, Array]:
    y = np.copysign(1.0, block.signed_weight)
    return (1.0 - y * (stretch * margin + b)) / scale, y


def _totals(block: Block, margin: Array, loss: Loss, stretch: float, b: float, scale: float) -> Array:
    if loss.code >= 0:
        return np.asarray(_binding.totals(0, block.n_rows, loss.code, block.signed_weight, margin, stretch, b, scale))
    z, y = _slack(block, margin, stretch, b, scale)
    f, slope, curvature = loss.terms(z)
    s, positive = np.abs(block.signed_weight), y > 0
    by_label = [part[rows].sum() for part in (s * slope, s * curvature) for rows in (positive, ~positive)]
    return np.array([s @ f, *by_label, s @ loss.conjugate(slope)])


def _row_weights(
    block: Block, margin: Array, loss: Loss, stretch: float, b: float, scale: float
) -> tuple[Array, Array, Array]:
    if loss.code >= 0:
        residual, curve, tilt = np.empty((3, block.n_rows))
        at = (block.signed_weight, margin, stretch, b, scale)
        _binding.slopes(0, block.n_rows, loss.code, *at, residual, curve, tilt)
        return residual, curve, tilt
    z, y = _slack(block, margin, stretch, b, scale)
    _, slope, curvature = loss.terms(z)
    return block.signed_weight * slope, np.abs(block.signed_weight) * curvature / scale, y * z


def _slopes(block: Block, margin: Array, loss: Loss, stretch: float, b: float, scale: float) -> Array:
    return loss.slope(_slack(block, margin, stretch, b, scale)[0])


def _shrunk(block: Block, margin: Array, loss: Loss, stretch: float, b: float, scale: float, factor: float) -> float:
    if loss.code >= 0:
        at = (block.signed_weight, margin, stretch, b, scale)
        return float(_binding.shrunk_conjugate(0, block.n_rows, loss.code, *at, factor))
    alpha = loss.slope(_slack(block, margin, stretch, b, scale)[0])
    return float(np.abs(block.signed_weight) @ loss.conjugate(factor * alpha))


def _visit(
    block: Block, loss: Loss, w: Array, b: float, scale: float, curved: bool, measured: bool
) -> tuple[Array, Array]:
    margin = np.empty(block.n_rows)
    sums = _binding.visit(
        0, block.n_rows, loss.code, block.view, w, block.signed_weight, b, scale, margin, curved, measured
    )
    return margin, sums


def _main(block: Block, curve: Array, least: float) -> Array:
    return np.where(curve >= least, curve, 0.0)


def _product(block: Block, curve: Array, tilt: Array, p: Array, eta: float, shift: float) -> Array:
    return np.asarray(_binding.product(0, block.n_rows, block.view, curve, tilt, p, eta, shift))


def _move(block: Block, residual: Array, curve: Array, tilt: Array, w: Array, rise: float, shift: float) -> Array:
    along = margins(block, w) + tilt * rise + shift
    signed = block.signed_weight
    moved = np.divide(residual - curve * along, signed, out=np.zeros_like(along), where=signed != 0)
    return np.clip(moved, 0.0, 1.0)


def dual_sums(block: Block, alpha: Array) -> tuple[Array, Array]:
    """Return ``sum s y alpha x`` and ``sum s alpha`` by label."""
    residual = block.signed_weight * alpha
    positive = block.labels == 1
    return combine(block, residual), np.array([residual[positive].sum(), -residual[~positive].sum()])


def _conjugates(block: Block, alpha: Array, loss: Loss, factor: float) -> float:
    return float(np.abs(block.signed_weight) @ loss.conjugate(factor * alpha))


def _spread(block: Block, margin: Array, centres: tuple[float, float]) -> float:
    centred = margin - np.where(np.signbit(block.signed_weight), *centres)
    return float(np.abs(block.signed_weight) @ (centred * centred))
