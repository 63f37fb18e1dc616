"""The binary objective: the chain rule over a loss and a noise model, summed over rows.

::

    F(w, b) = sum_i s_i a f(m_i / a) + (l2/2) ||w||^2,    m_i = 1 - y_i (w.x_i + b),    a = a(w)

With ``z = m / a``, ``alpha = f'(z)``, ``v = sum s y alpha x`` and ``k = sum s (f - z f')``::

    grad_w F = -v + k grad a + l2 w              grad_b F = -sum s y alpha
    Hess F   = sum (s f''/a) u u' + k Hess a + l2 I,     u_i = (x_i + y_i z_i grad a, 1)

(the sign ``y_i`` of ``u_i`` cancels). Because ``y (w.x + b) + z a = 1``, every ``y_i u_i . (w, b)`` is 1; so
along the length of ``w`` and along ``b`` the derivatives need only sums by label (:meth:`Objective.plane`).

Conventions
-----------
signed_weight : array (n_rows,), ``s_i y_i``: its sign is the label, its size the weight
margin : array (n_rows,), ``w.x_i`` without the intercept
params : array (n_columns + 1,), ``(w, b)``; without an intercept the last entry is 0
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gaussguru._kernels import _binding
from gaussguru.losses import Array, Index, Loss
from gaussguru.noise import Noise, diagonal, norm
from gaussguru.rows import Rows

# A subsample has at least this many rows of each class, if there are so many.
RARE = 50
# A value is heavy whose square is so many times the mean of its column.
HEAVY = 64.0
# Multiply-adds of a Gram matrix that are not worth saving.
CHEAP_GRAM = 4e6
# Rows that weigh less than this part of the mean in the Hessian may be left out of it, where an approximation will do.
HARDLY = 0.1


class Totals(NamedTuple):
    """Sums over rows of ``s f``, ``s f'`` and ``s f''`` by label, and ``s (f - z f')``."""

    value: float
    slope_pos: float
    slope_neg: float
    curve_pos: float
    curve_neg: float
    conjugate: float


class Point(NamedTuple):
    """A place in parameter space with what one look at its margins told.

    The coefficients are ``stretch * w``: the length of ``w`` changes without touching the margins.
    """

    w: Array
    b: float
    margin: Array
    stretch: float
    scale: float
    value: float
    totals: Totals

    @property
    def coef(self) -> Array:
        """The coefficients."""
        return self.w if self.stretch == 1 else self.w * self.stretch

    @property
    def mass(self) -> float:
        """``sum s alpha``, the dual objective at the slopes of this point."""
        return self.totals.slope_pos + self.totals.slope_neg


class NotFiniteError(ArithmeticError):
    """X has NaN or infinity, or values whose squares overflow or underflow."""


@dataclass(frozen=True)
class Objective:
    """Rows, labels and weights with a loss and a noise model; see the module for the formulas."""

    rows: Rows
    signed_weight: Array
    loss: Loss
    noise: Noise
    l2: float = 0.0
    fit_intercept: bool = True
    places: Index | None = None
    """Where the rows are in the problem of which they are a part."""

    # --- the data ---------------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> tuple[float, float]:
        """``sum s`` over the positive and over the negative rows."""
        return float(np.maximum(self.signed_weight, 0.0).sum()), -float(np.minimum(self.signed_weight, 0.0).sum())

    @property
    def weight(self) -> float:
        """``sum s``, which is also F at zero."""
        return self.weights[0] + self.weights[1]

    @property
    def constant(self) -> float:
        """F of the best classifier that ignores the features: ``w = 0`` and ``b = +-1``, or 0 without an intercept."""
        return 2 * min(self.weights) if self.fit_intercept else self.weight

    def constant_at(self, b: float) -> float:
        """Return F at ``w = 0``, where the noise is gone and the loss is the hinge."""
        positive, negative = self.weights
        return positive * max(0.0, 1 - b) + negative * max(0.0, 1 + b)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        by_label, squares = self.rows.moments(self.signed_weight)
        total_square(squares)
        return by_label, squares

    @cached_property
    def column_squares(self) -> Array:
        """``sum s x^2`` of every column."""
        return self._moments[1]

    @cached_property
    def squares(self) -> float:
        """``sum s |x|^2``."""
        return total_square(self.column_squares)

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """The weighted means of the positive and of the negative rows."""
        (positive, negative), (weight_pos, weight_neg) = self._moments[0], self.weights
        return positive / weight_pos, -negative / weight_neg

    @cached_property
    def pull(self) -> Array:
        """The direction in which F falls first from zero: the difference of class means, or ``sum s y x``."""
        if self.fit_intercept:
            positive, negative = self.means
            return positive - negative
        return np.asarray(self._moments[0].sum(axis=0))

    @cached_property
    def first(self) -> Array:
        """The direction in which F falls most for its noise: that of ``pull`` where the noise is isotropic."""
        # On the way to the square of a small noise, numbers may overflow.
        steepest = self.noise.steepest(self.pull / norm(self.pull))
        return steepest / norm(steepest)

    def with_noise(self, factor: float) -> "Objective":
        """Return the same problem with all standard deviations multiplied by ``factor``."""
        return self if factor == 1 else self._variant(noise=self.noise.scaled(factor))

    def without_ridge(self) -> "Objective":
        """Return the same problem with ``l2 = 0``."""
        return self if self.l2 == 0 else self._variant(l2=0.0)

    def _variant(self, **changes: Any) -> "Objective":
        # With the sums over the rows that are known already: they depend on neither.
        other = object.__new__(Objective)
        other.__dict__.update(self.__dict__, **changes)
        return other

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "Objective":
        """Return about ``n_rows`` rows, each class reweighted to its own total.

        A noise that bounds no more than the largest ``w_j`` leaves the columns of few rows to these rows, so that they
        must be there: half of the rows are then drawn by their leverages, what they make of the squares of the columns.
        """
        if self.noise.smooth or not self._has_heavy_rows:
            index = draw_classes(self.signed_weight, n_rows, rng)
            signed_weight = self.signed_weight[index]
        else:
            squares = self.column_squares
            scale = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
            leverage = self.rows.leverages(scale) * np.abs(self.signed_weight)
            share = 0.5 * n_rows * (1 / len(leverage) + leverage / leverage.sum())
            positive = self.signed_weight > 0
            some_pos, some_neg = (RARE / np.count_nonzero(mine) for mine in (positive, self.signed_weight < 0))
            share = np.minimum(1.0, np.maximum(share, np.where(positive, some_pos, some_neg)))
            index = draw_shares(share, rng)
            signed_weight = self.signed_weight[index] / share[index]
        for mine, total in zip((signed_weight > 0, signed_weight < 0), self.weights, strict=True):
            signed_weight[mine] *= total / float(np.abs(signed_weight[mine]).sum())
        return replace(self, rows=self.rows.take(index), signed_weight=signed_weight, places=index)

    @property
    def _has_heavy_rows(self) -> bool:
        """Whether some column is that of a few rows, by far."""
        peaks = self.rows.peaks
        return bool(np.any(peaks * peaks * self.weight > HEAVY * self.column_squares))

    # --- values -----------------------------------------------------------------------------------------

    def point(self, w: Array, b: float, margin: Array | None = None, stretch: float = 1.0) -> Point:
        """Evaluate F at ``(stretch w, b)``; reads X only where the margins ``X w`` are not given."""
        if margin is None:
            margin = self.rows.margins(w)
        scale = stretch * self.noise.scale(w)
        return self._point(w, b, margin, stretch, scale, self._totals(margin, stretch, b, scale))

    def again(self, point: Point) -> Point:
        """Evaluate F at a point of another objective on the same rows."""
        return self.point(point.w, point.b, point.margin, point.stretch)

    def stretched(self, point: Point, stretch: float, b: float) -> Point:
        """Evaluate F with another length and intercept."""
        scale = point.scale * (stretch / point.stretch)
        totals = self._totals(point.margin, stretch, b, scale)
        return self._point(point.w, b, point.margin, stretch, scale, totals)

    def _point(self, w: Array, b: float, margin: Array, stretch: float, scale: float, totals: Totals) -> Point:
        value = scale * totals.value
        if self.l2:
            value += 0.5 * self.l2 * stretch**2 * float(w @ w)
        return Point(w, b, margin, stretch, scale, value, totals)

    def _totals(self, margin: Array, stretch: float, b: float, scale: float) -> Totals:
        loss, signed_weight = self.loss, self.signed_weight

        def compiled(begin: int, end: int) -> Array:
            return _binding.totals(begin, end, loss.code, signed_weight, margin, stretch, b, scale)

        def written_in_numpy(begin: int, end: int) -> Array:
            z, y = self._slack(begin, end, margin, stretch, b, scale)
            f, slope, curvature = loss.terms(z)
            s, positive = np.abs(signed_weight[begin:end]), y > 0
            return np.array(
                [
                    s @ f,
                    (s * slope)[positive].sum(),
                    (s * slope)[~positive].sum(),
                    (s * curvature)[positive].sum(),
                    (s * curvature)[~positive].sum(),
                    s @ loss.conjugate(slope),
                ]
            )

        return Totals(*self.rows.total(written_in_numpy if loss.code < 0 else compiled, pointwise=True).tolist())

    def _slack(
        self, begin: int, end: int, margin: Array, stretch: float, b: float, scale: float
    ) -> tuple[Array, Array]:
        y = np.copysign(1.0, self.signed_weight[begin:end])
        z = stretch * margin[begin:end]
        z += b
        z *= y
        np.subtract(1.0, z, out=z)
        z /= scale
        return z, y

    def ridge(self, point: Point) -> float:
        """Return ``l2 ||w||^2``: twice what the ridge adds to F, and its derivative by the relative length."""
        return self.l2 * point.stretch**2 * float(point.w @ point.w) if self.l2 else 0.0

    def plane(self, point: Point) -> tuple[float, float, float, float, float]:
        """Return the derivatives of F by the relative length ``c`` of ``w`` and by ``b``.

        They are F_c, F_b, F_cc, F_cb, F_bb; without an intercept F_b = F_cb = 0 and F_bb = 1.
        """
        b, scale, totals = point.b, point.scale, point.totals
        ridge = self.ridge(point)
        pos, neg = totals.curve_pos / scale, totals.curve_neg / scale
        f_c = scale * totals.value - totals.slope_pos * (1 - b) - totals.slope_neg * (1 + b) + ridge
        f_cc = pos * (1 - b) * (1 - b) + neg * (1 + b) * (1 + b) + ridge
        if not self.fit_intercept:
            return f_c, 0.0, f_cc, 0.0, 1.0
        return f_c, totals.slope_neg - totals.slope_pos, f_cc, pos * (1 - b) - neg * (1 + b), pos + neg

    def slopes(self, point: Point) -> Array:
        """Return ``alpha = f'(z)`` of every row: the dual point that belongs to a primal one."""
        parts = self.rows.each(
            lambda begin, end: self.loss.slope(
                self._slack(begin, end, point.margin, point.stretch, point.b, point.scale)[0]
            ),
            pointwise=True,
        )
        return np.concatenate(parts)

    def shrunk_conjugate(self, point: Point, factor: float) -> float:
        """Return ``sum s f*(factor alpha)`` at the slopes of a point, or a little less."""
        loss = self.loss
        at = (point.margin, point.stretch, point.b, point.scale)

        def compiled(begin: int, end: int) -> float:
            return _binding.shrunk_conjugate(begin, end, loss.code, self.signed_weight, *at, factor)

        def written_in_numpy(begin: int, end: int) -> float:
            alpha = loss.slope(self._slack(begin, end, *at)[0])
            return float(np.abs(self.signed_weight[begin:end]) @ loss.conjugate(factor * alpha))

        return float(self.rows.total(written_in_numpy if loss.code < 0 else compiled, pointwise=True))

    def visit(self, w: Array, b: float, *, curved: bool = False) -> "Expansion":
        """Return the expansion of F at ``(w, b)`` from one pass over X, with its curves by label if ``curved``."""
        if self.loss.code < 0:
            return self.expand(self.point(w, b))
        margin = np.empty(self.rows.n_rows)
        scale = self.noise.scale(w)
        measured = "column_squares" not in self.__dict__
        sums = self.rows.total(
            lambda begin, end: _binding.visit(
                begin, end, self.loss.code, self.rows.view, w, self.signed_weight, b, scale, margin, curved, measured
            )
        )
        n_totals = len(Totals._fields)
        vectors = sums[n_totals:].reshape(-1, self.rows.n_columns)
        if measured:
            total_square(vectors[-1])
            self.__dict__["column_squares"] = vectors[-1]
        point = self._point(w, b, margin, 1.0, scale, Totals(*sums[:n_totals].tolist()))
        return self._expansion(point, vectors[:2], curves=vectors[2:4] if curved else None)

    def expand(self, point: Point) -> "Expansion":
        """Return the expansion of F at ``point``; reads X once, for the gradient."""
        pulls = self.pulls(point)
        return self._expansion(point, self.rows.combine(pulls.residual), pulls)

    def pulls(self, point: Point) -> "Pulls":
        """Return the weights of the rows in gradient and Hessian."""
        loss = self.loss
        residual, weight, tilt = (np.empty(self.rows.n_rows) for _ in range(3))
        at = (point.margin, point.stretch, point.b, point.scale)

        def compiled(begin: int, end: int) -> None:
            _binding.slopes(begin, end, loss.code, self.signed_weight, *at, residual, weight, tilt)

        def written_in_numpy(begin: int, end: int) -> None:
            z, y = self._slack(begin, end, *at)
            _, slope, curvature = loss.terms(z)
            residual[begin:end] = self.signed_weight[begin:end] * slope
            weight[begin:end] = np.abs(self.signed_weight[begin:end]) * curvature / point.scale
            tilt[begin:end] = y * z

        self.rows.each(written_in_numpy if loss.code < 0 else compiled, pointwise=True)
        return Pulls(residual, weight, tilt)

    def _expansion(
        self, point: Point, by_label: Array, pulls: "Pulls | None" = None, curves: Array | None = None
    ) -> "Expansion":
        noise_gradient = self.noise.gradient(point.w)
        gradient = np.empty(self.rows.n_columns + 1)
        gradient[:-1] = point.totals.conjugate * noise_gradient - by_label[0] - by_label[1]
        if self.l2:
            gradient[:-1] += self.l2 * point.coef
        gradient[-1] = point.totals.slope_neg - point.totals.slope_pos if self.fit_intercept else 0.0
        expansion = Expansion(self, point, gradient, by_label, noise_gradient, curves)
        if pulls is not None:
            expansion.pulls = pulls
        return expansion


class Pulls(NamedTuple):
    """What every row weighs in gradient and Hessian: ``s y alpha``, ``s f''/a`` and ``y z``."""

    residual: Array
    weight: Array
    tilt: Array

    def mainly(self) -> "Pulls":
        """Return the same with no weight for the rows that hardly bend F."""
        return self._replace(weight=np.where(self.weight >= HARDLY * self.weight.mean(), self.weight, 0.0))


@dataclass(eq=False)
class Expansion:
    """Gradient and Hessian of an objective at one point, and how the gradient changes with the noise level.

    ``by_label`` is ``sum s y alpha x`` over the rows of each label; ``curves``, where known, is ``sum (s f''/a) x``.
    """

    objective: Objective
    point: Point
    gradient: Array
    by_label: Array
    noise_gradient: Array
    curves: Array | None = None

    @cached_property
    def pulls(self) -> Pulls:
        """What every row weighs; many steps never ask."""
        return self.objective.pulls(self.point)

    @property
    def unknowns(self) -> Array:
        """``(w, b)``."""
        return np.append(self.point.coef, self.point.b)

    @property
    def factor_cost(self) -> float:
        """What the Hessian costs, in units of :meth:`product`."""
        return self.objective.rows.gram_cost

    @property
    def is_cheap(self) -> bool:
        """Whether the Hessian is not worth saving (about a millisecond)."""
        return self.objective.rows.n_values * self.objective.rows.n_columns < CHEAP_GRAM

    def moved(self, point: Point) -> tuple[Array, Array | float]:
        """Return ``by_label`` at a point with the same direction, and a bound on the error of its sum in every column.

        Another length and intercept add one number to every ``z`` of a label, because ``z = ((1 - y b)/c - y q)/a_1``
        at the stretch c, and ``f'`` changes by ``f''`` times that and at most ``jerk/2`` times its square.
        """
        here, unit = self.point, self.point.scale / self.point.stretch
        shift_pos = ((1 - point.b) / point.stretch - (1 - here.b) / here.stretch) / unit
        shift_neg = ((1 + point.b) / point.stretch - (1 + here.b) / here.stretch) / unit
        if self.curves is None:
            return self.by_label, 0.0 if shift_pos == shift_neg == 0 else np.inf
        objective = self.objective
        largest = max(shift_pos * shift_pos, shift_neg * shift_neg)
        error = 0.5 * objective.loss.jerk * largest * np.sqrt(objective.weight * objective.column_squares)
        rounding = 4 * np.finfo(np.float64).eps * (1 + abs(here.b)) / min(here.stretch, point.stretch) / unit
        error += rounding * here.scale * np.abs(self.curves).sum(axis=0)
        shifts = np.array([[shift_pos], [-shift_neg]]) * here.scale
        return self.by_label + shifts * self.curves, error

    def hessian(self) -> Array:
        """Return the Hessian; only its lower triangle is meaningful."""
        objective = self.objective
        hessian = objective.rows.gram(self.pulls.weight, self.pulls.tilt, self.noise_gradient)
        block = hessian[:-1, :-1]
        objective.noise.add_hessian(self.point.coef, self.point.totals.conjugate, block)
        if objective.l2:
            diagonal(block)[:] += objective.l2
        if not objective.fit_intercept:
            hessian[-1, :-1] = 0.0
            hessian[-1, -1] = 1.0
        return hessian

    def product(self, p: Array) -> Array:
        """Return the Hessian times ``p``; reads X once."""
        objective, a = self.objective, self.noise_gradient
        shift = float(p[-1]) if objective.fit_intercept else 0.0
        out = objective.rows.product(self.pulls.weight, self.pulls.tilt, p[:-1], float(a @ p[:-1]), shift)
        result = np.append(out[:-2] + out[-2] * a, out[-1] if objective.fit_intercept else p[-1])
        result[:-1] += self.point.totals.conjugate * objective.noise.hessian_product(self.point.coef, p[:-1])
        if objective.l2:
            result[:-1] += objective.l2 * p[:-1]
        return result

    def mainly(self) -> "Expansion":
        """Return the same without the rows that hardly bend F: its products cost as much as the others."""
        main = replace(self)
        main.pulls = self.pulls.mainly()
        return main

    def tangent(self) -> Array:
        """Return the derivative of the gradient by the logarithm of the noise level; reads X once.

        With ``z`` falling as the noise grows it is ``a (sum h e u) + k grad a``, for the weights ``h = s f''/a`` and
        tilts ``e = y z`` of the rows.
        """
        a, scale = self.noise_gradient, self.point.scale
        zero = np.zeros(self.objective.rows.n_columns)
        out = self.objective.rows.product(self.pulls.weight, self.pulls.tilt, zero, 1.0, 0.0)
        result = scale * np.append(out[:-2], out[-1] if self.objective.fit_intercept else 0.0)
        result[:-1] += (scale * out[-2] + self.point.totals.conjugate) * a
        return result


def draw(n: int, share: int, rng: np.random.Generator) -> Index:
    """Return ``share`` of ``n`` places, one from each of equally long runs, so that no order of the rows does harm."""
    return ((np.arange(share) + rng.random(share)) * (n / share)).astype(np.int64)


def draw_shares(share: Array, rng: np.random.Generator) -> Index:
    """Return places, each with the probability ``share`` of it, one from each of runs with equal sums of them."""
    ends = np.cumsum(share)
    places: Index = np.searchsorted(ends, np.arange(rng.random(), ends[-1]))
    new: Index = np.flatnonzero(np.diff(places, prepend=-1))
    return places[new]


def draw_classes(signed_weight: Array, n_rows: int, rng: np.random.Generator) -> Index:
    """Return about ``n_rows`` places, some of them with positive and some with negative weights."""
    index = draw(len(signed_weight), n_rows, rng)
    drawn = signed_weight[index]
    if min(np.count_nonzero(drawn > 0), np.count_nonzero(drawn < 0)) >= RARE:
        return index
    # A rare class is drawn by itself, so that some of it is there.
    classes = np.flatnonzero(signed_weight > 0), np.flatnonzero(signed_weight < 0)
    shares = (max(min(len(rows), RARE), round(len(rows) * n_rows / len(signed_weight))) for rows in classes)
    return np.sort(np.concatenate([rows[draw(len(rows), n, rng)] for rows, n in zip(classes, shares, strict=True)]))


def total_square(squares: Array) -> float:
    """Return the sum of the squares of X, or raise :class:`NotFiniteError`."""
    with np.errstate(over="ignore"):
        total = float(squares.sum())
    if not (total == 0 or 1e-200 < total < 1e200):
        raise NotFiniteError
    return total


def interpolate(objective: Objective, start: Point, end: Point, t: float) -> Point:
    """Evaluate F between two points from their margins alone."""
    margin = (1 - t) * start.stretch * start.margin
    margin += (t * end.stretch) * end.margin
    w = (1 - t) * start.coef + t * end.coef
    return objective.point(w, (1 - t) * start.b + t * end.b, margin)
