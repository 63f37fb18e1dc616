"""Two classes with axis noise, ``a = sigma max |w_j|``, which has a kink wherever two ``|w_j|`` are tied.

F is a smooth function ``Phi(w, a, b)`` of its arguments and grows with a. Steps are quadratic programs
(:mod:`gaussguru._guru.solvers.axis_qp`) whose solutions have exact ties. Three more things differ from smooth noise:

* **Rare features.** The noise depends on the largest ``|w_j|`` only, so the coefficient of a feature that few rows have
  depends on these rows only. F is nearly linear in it until the rows pass the margin, and a quadratic model from far
  away does not show where. Coordinate descent on these features after every step minimises F exactly at little cost.
* **Subsamples** must contain the rows of rare features: half of the rows are drawn by leverage.
* **Dual points.** At the optimum ``v_j = 0`` for every feature that is not tied. At a point near it the slopes leave a
  force on these features, and a gap of first order. So the slopes are changed, by Newton's method on the face of the
  tied features, until the forces vanish: the remaining gap is of second order. Changing the slopes of a weighted
  subsample is enough to remove the forces of all rows.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from gaussguru._guru.problems.binary import Binary, BinaryLocal, BinaryPoint, Totals, Weights, dual_sums
from gaussguru._guru.problems.coordinates import SWEEPS
from gaussguru._guru.problems.smoothing import NEGLIGIBLE, RARE
from gaussguru._native import _binding
from gaussguru._rows.draws import distinct
from gaussguru._rows.rows import margins
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import EPS, MAX_COLUMNS, Array, Factor, Index, diagonal, extended, factorise, mirrored
from gaussguru.noise import tied

# The Hessian of a subsample with this many rows per column is close to that of all rows (measured: slopes changed on 50
# rows per column need a second proof on mnist).
PER_COLUMN = 100


@dataclass(frozen=True, eq=False)
class AxisBinary(Binary):
    """The problem of :class:`gaussguru._guru.problems.binary.Binary` with axis noise."""

    # The indices of the rows of a subsample in the rows that it was drawn from.
    places: Index | slice = field(default_factory=lambda: slice(None))
    is_smooth: ClassVar[bool] = False

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "AxisBinary":
        """Return about ``n_rows`` rows, half of them drawn by leverage if there are rare features."""
        rows, offset = self.rows, rng.random()
        index = distinct(rows.draw(n_rows, rng, RARE))  # a slope must not be changed twice
        part = rows.reweighted(index)
        # Equal probabilities suffice if every column has enough drawn rows: sum of squares over the largest square.
        if np.all(n_rows * part.column_squares >= RARE * rows.total_weight * rows.peaks**2):
            return replace(self, rows=part, places=index)
        index, weights = rows.draw_by_leverage(n_rows, offset, RARE)
        return replace(self, rows=rows.reweighted(index, weights), places=index)

    # --- rare features ------------------------------------------------------------------------------------

    @property
    def is_fused(self) -> bool:
        """Whether a step may be evaluated in one pass, because no features are swept after it."""
        return not self.can_sweep

    @property
    def can_sweep(self) -> bool:
        """Whether there are features to sweep."""
        return self.loss.code >= 0 and self.rows.n_columns <= MAX_COLUMNS and len(self.rows.rare_columns.place) > 0

    def rescaled(self, point: BinaryPoint, tol: float) -> BinaryPoint:
        """Return the point with the best coefficients of rare features, then length and intercept."""
        return super().rescaled(self.swept(point), tol)

    def swept(self, point: BinaryPoint) -> BinaryPoint:
        """Return the point with the coefficients of rare features that are best for the given others.

        They are bounded by the largest ``|w_j|``, so the noise does not grow.
        """
        if not self.can_sweep or not point.w.any():
            return point
        rows = self.rows
        w, margin = point.coef.copy(), point.stretch * rows.gather(point.margin)
        most = float(np.abs(w).max())
        least = EPS * point.value / most
        for _ in range(SWEEPS):
            _binding.sweep(
                *rows.rare_columns, self.loss.code, rows.signed_weight, point.b, point.scale, self.l2, most, least, w,
                margin,
            )  # fmt: skip
        return self.at(w, self.noise.scale(w), point.b, rows.split(margin))

    def local(self, point: BinaryPoint, by_label: Array, curves: Array | None = None) -> "AxisLocal":
        """Return the local model of a point."""
        return AxisLocal(self, point, by_label, curves)


@dataclass(eq=False)
class AxisLocal(BinaryLocal):
    """Value, gradient and the terms of a quadratic program."""

    problem: AxisBinary

    @property
    def is_cheap(self) -> bool:
        """Whether the Hessian is computed at every step: it is cheap, or one of some features only."""
        return self.working is not None or super().is_cheap

    @property
    def arguments(self) -> Array:
        """The arguments of Phi, ``(w, a, b)``."""
        return np.concatenate([self.point.coef, [self.point.scale, self.point.b]])

    @cached_property
    def forces(self) -> Array:
        """The gradient of Phi by ``(w, a, b)``, with a as an independent variable."""
        problem, totals = self.problem, self.point.totals
        w = problem.l2 * self.point.coef - self.by_label[0] - self.by_label[1]
        b = totals.slope_neg - totals.slope_pos if problem.fit_intercept else 0.0
        return np.concatenate([w, [totals.conjugate, b]])

    @cached_property
    def working(self) -> tuple[Index, Array] | None:
        """The free features, and the signs of all other features, which move together; None if all may move."""
        if self.problem.rows.n_columns <= MAX_COLUMNS:
            return None
        others, force = tied(self.point.w), self.forces[:-2]
        # A tied feature stays tied unless its force points inwards. The 300 free features with the largest forces move
        # (1000 take fewer iterations, each of which takes longer).
        wants = np.where(others * force < 0, 0.0, np.abs(force))
        columns = np.sort(np.argsort(-wants, kind="stable")[:300])
        columns = columns[wants[columns] > 0]
        others[columns] = 0.0
        return columns, others

    @cached_property
    def model(self) -> Array:
        """The Hessian of Phi by ``(w, a, b)``, or by ``(w_J, m, a, b)`` if features J move and the others by ``m``."""
        problem, rows = self.problem, self.problem.rows
        if self.working is None:
            return curvature(problem, self.row_weights)
        columns, others = self.working
        working_rows = rows.picked(columns, rows.gather(rows.each(margins, w=others)))
        weights = Weights(*(working_rows.split(rows.gather(part)) for part in self.row_weights))
        hessian = curvature(replace(problem, rows=working_rows), weights)
        hessian[-3, -3] += problem.l2 * (float(others @ others) - 1)  # the ridge of all tied features, not of one
        return hessian

    def model_on(self, part: AxisBinary | None) -> Array:
        """Return the model from a subsample if ``part`` is one of these rows and large enough, else from all rows."""
        rows = self.problem.rows
        if part is None or part.rows.root is not rows or part.rows.n_rows < PER_COLUMN * rows.n_columns:
            return self.model
        return curvature(part, part.row_weights(self.drawn(part)))

    def drawn(self, part: AxisBinary) -> BinaryPoint:
        """Return the point with the margins of a subsample."""
        return replace(self.point, margin=part.rows.split(self.problem.rows.gather(self.point.margin)[part.places]))

    # --- dual points --------------------------------------------------------------------------------------

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from slopes that are changed until no free feature has a force.

        If only the slopes of a subsample are changed, the bound loses the suboptimality of F times all rows over rows
        of the subsample. No bound is computed while that requires more than PER_COLUMN rows per column.
        """
        problem, rows = self.problem, self.problem.rows
        best = super().refined(p, decrement, target)
        share = min(1.0, max(NEGLIGIBLE, PER_COLUMN * rows.n_columns / rows.n_rows))
        if problem.l2 or rows.n_columns > MAX_COLUMNS or decrement > share * target:
            return best  # with a ridge the gap is of second order anyway
        part, wanted = problem, np.inf
        if target > 0:
            wanted = self.value - target
            n_rows = max(round(rows.n_rows * decrement / target), PER_COLUMN * rows.n_columns)
            if n_rows < rows.n_rows:
                part = problem.subsample(n_rows, np.random.default_rng(0))
        return max(best, self._moved_dual(part, wanted), key=lambda either: either[0])

    def _moved_dual(self, part: AxisBinary, wanted: float) -> tuple[float, Array]:
        """Return a dual value from slopes changed on the rows of ``part``, and the slopes of all rows.

        Forces are linear in the slopes, so a Newton step removes them unless slopes reach 0 or 1. Slopes at 0 or 1 stay
        there, and another step changes the others.
        """
        problem, point, rows, all_rows = self.problem, self.point, part.rows, self.problem.rows
        # A drawn row represents several rows; this is the fraction of its weight in the subsample that is its own.
        own_weights = all_rows.weights[part.places]
        shares = np.divide(own_weights, rows.weights, out=np.ones(rows.n_rows), where=own_weights > 0)
        drawn = self.drawn(part)
        weights, start, signs = (
            part.row_weights(drawn),
            part.slopes(drawn),
            np.copysign(own_weights, rows.signed_weight),
        )
        tilt, curve = rows.gather(weights.tilt), rows.gather(weights.curve)
        bend = np.divide(curve, signs, out=np.zeros_like(curve), where=own_weights > 0)

        def level(alpha: Array) -> float:
            return float(own_weights @ problem.loss.conjugate(alpha))

        def sums(alpha: Array) -> Array:
            """Return the terms of the drawn rows in ``by_label``, in the slopes of each label and in the conjugate."""
            pull, slopes = rows.total(dual_sums, rows.split(shares * alpha))
            return np.concatenate([pull.ravel(), slopes, [level(alpha)]])

        totals = point.totals
        rest = np.concatenate([self.by_label.ravel(), [totals.slope_pos, totals.slope_neg, totals.conjugate]])
        rest -= sums(start)
        alpha, moved, violation, best = start, self, np.inf, (0.0, start)
        hessian = self.model if part is problem else curvature(part, weights)
        while True:
            step = Face(hessian, tied(point.w), problem.smoothing.noise * problem.noise.sigma).step(moved.forces)
            along = rows.gather(rows.each(margins, w=step[:-2].copy())) + tilt * step[-2] + step[-1]
            alpha = np.clip(alpha - bend * along, 0.0, 1.0)
            now = rest + sums(alpha)
            by_label, (positive, negative, conjugate) = now[:-3].reshape(2, -1), now[-3:].tolist()
            # Rounding may leave less than nothing of slopes that are nearly 0.
            totals = Totals.of_slopes(max(positive, 0.0), max(negative, 0.0), conjugate)
            moved = AxisLocal(problem, replace(point, totals=totals), by_label)

            def level_at(c: float, alpha: Array = alpha) -> float:
                return problem.shrunk_conjugate(point, c) - level(c * start) + level(c * alpha)

            # Updated sums are rounded twice.
            last, twice = violation, problem.rounding(moved.point.mass)
            value, violation = problem.slopes_bound(by_label, totals, level_at, twice, wanted)
            best = max(best, (value, alpha), key=lambda either: either[0])
            if value >= wanted or not 0 < violation < 0.5 * last:  # reached, or another step would gain little
                value, alpha = best
                slopes = problem.slopes(point)
                slopes[part.places] = alpha
                return value, slopes
            bend = np.where((alpha > 0) & (alpha < 1), bend, 0.0)
            hessian = curvature(part, weights._replace(curve=rows.split(signs * bend)))


def curvature(problem: Binary, weights: Weights) -> Array:
    """Return the Hessian of Phi by ``(w, a, b)``, with a as an independent variable."""
    # Rows with less than this fraction of the mean weight add to the diagonal only (measured on mnist, axis noise: 1e-8
    # takes 15 % more time, from 1e-2 on there are more iterations).
    hessian = problem.rows.gram(weights.curve, weights.tilt, little=1e-4)
    diagonal(hessian)[:-2] += problem.l2
    if not problem.fit_intercept:
        hessian[-1, :-1], hessian[-1, -1] = 0.0, 1.0
    return mirrored(hessian)


class Face:
    """A quadratic function restricted to a face: tied features change by their signs times t, and a by ``slope`` t.

    Its variables are the free features, b and t, in that order.
    """

    def __init__(self, hessian: Array, signs: Array, slope: float = 1.0) -> None:
        self.along = np.empty(len(hessian))
        self.along[:-2], self.along[-2], self.along[-1] = signs, slope, 0.0
        self.index = (self.along == 0).nonzero()[0]
        n = len(self.index)
        matrix = np.empty((n + 1, n + 1))
        matrix[:n, :n] = hessian.take(self.index, 0).take(self.index, 1)
        matrix[n] = self._gather(hessian.dot(self.along))
        self.across, self.factor = matrix[n, :n], factorise(matrix)

    def _gather(self, force: Array) -> Array:
        """Return the forces by the variables of the face from those by ``(w, a, b)``."""
        return extended(force[self.index], self.along.dot(force))

    def step(self, force: Array, least: float = -np.inf) -> Array:
        """Return the step of ``(w, a, b)`` to the minimum on the face, with a change of t of at least ``least``."""
        step = self.factor.solve(-self._gather(force))
        if step[-1] < least:
            # Minimise over the other variables at this t: a shortened step would hardly move them without curvature.
            rest = Factor(self.factor.cholesky[:-1, :-1])  # t is last, so its row is left out
            step = extended(rest.solve(-force[self.index] - least * self.across), least)
        delta: Array = step[-1] * self.along
        delta[self.index] += step[:-1]
        return delta
