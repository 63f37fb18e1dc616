"""Two classes with a noise that is a maximum, ``a = sigma max |w_j|``: it has a kink wherever two ``|w_j|`` are tied.

F is a smooth function ``Phi(w, a, b)`` of its arguments and grows with a. Steps are quadratic programs
(:mod:`gaussguru._solvers.axis_qp`), in which ties come out exact. Three more things differ from smooth noise:

* **Rare features.** Noise bounds no more than the largest ``|w_j|``, so that of a feature that few rows have is up to
  them: F is nearly linear in it until they pass the margin, which no quadratic model tells from far away. Coordinate
  descent on these features finds the best ones exactly, at next to no cost, after every step.
* **Subsamples** must have the rows of rare features: half of them are drawn by their leverages.
* **Dual points.** At the optimum ``v_j = 0`` for every feature that is not tied, while the slopes of a point near it
  leave a force there, and a gap of first order. So the slopes are moved, by Newton's method on the face of the tied
  features, until the forces are gone: what remains of the gap is of second order. A few rows are enough to take the
  forces of all away; each then moves for all those that are like it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from gaussguru._data.rows import Block, combine, margins
from gaussguru._linalg import MAX_COLUMNS, Array, Index, diagonal, factorise, mirrored
from gaussguru._native import _binding
from gaussguru._problems import binary
from gaussguru._problems.binary import Binary, Local, Point, Totals, balanced
from gaussguru._problems.smoothing import RARE
from gaussguru.certificates.dual_point import Ray
from gaussguru.noise import tied

# Sweeps over rare features at most, the fraction of the fall of the first that is worth another, and that of F that is
# none.
SWEEPS, WORTH, NOTHING = 10, 0.03, 1e-12
# Rows are heavy in a feature whose square is so many times the mean of its column.
HEAVY = 64.0
# Newton steps of a dual point, each of which must leave at most a fraction of what violates the constraints; with more
# left than another the curvature is computed again.
MOVES, LEFT, OLD = 8, 0.7, 0.1
# A slope that should be 0 or 1 comes nearer by a factor e in a step of Newton, to which a tail has an end: it is moved
# so many times as far.
FARTHER = 3.0
# Where a Gram matrix costs so many products, rows of little Hessian weight add to its diagonal alone.
DEAR = 7.0
# By how much a shrunk conjugate may be too low.
LOW = 3e-6
# Slopes are moved on a subsample if at most this fraction of the rows suffices: this many times the estimated number,
# at least so many per feature, at least as many as a subsample has.
FRACTION, SAFE, PER_COLUMN, MIN_ROWS = 0.25, 1.5, 30, 4000


@dataclass(frozen=True, eq=False)
class AxisBinary(Binary):
    """The problem of :class:`gaussguru._problems.binary.Binary` with such a noise."""

    places: Index | None = None
    is_smooth: ClassVar[bool] = False

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "AxisBinary":
        """Return about ``n_rows`` rows, half of them drawn by their leverages where that matters."""
        rows = self.rows
        if not np.any(rows.peaks**2 * rows.total_weight > HEAVY * rows.column_squares):
            index = rows.draw(n_rows, rng, RARE)
            return replace(self, rows=rows.reweighted(index), places=index)
        leverage = rows.leverages
        share = 0.5 * n_rows * (1 / len(leverage) + leverage / leverage.sum())
        counts = np.bincount(rows.labels, rows.weights > 0, 2)
        share = np.minimum(1.0, np.maximum(share, (RARE / counts)[rows.labels]))
        # Each row with the probability of its share, one from each of runs with equal sums of them.
        ends = np.cumsum(share)
        places = np.searchsorted(ends, np.arange(rng.random(), ends[-1]))
        index = places[np.flatnonzero(np.diff(places, prepend=-1))]
        return replace(self, rows=rows.reweighted(index, rows.weights[index] / share[index]), places=index)

    # --- rare features ------------------------------------------------------------------------------------

    @property
    def is_fused(self) -> bool:
        """Whether a step may be evaluated in one pass: where no features are swept after it."""
        return not self.can_sweep

    @property
    def can_sweep(self) -> bool:
        """Whether there are features to sweep."""
        return self.loss.code >= 0 and self.rows.n_columns <= MAX_COLUMNS and len(self.rows.rare_columns.place) > 0

    def rescaled(self, point: Point, tol: float) -> Point:
        """Return the point with the best coefficients of rare features, then length and intercept."""
        return super().rescaled(self.swept(point), tol)

    def swept(self, point: Point) -> Point:
        """Return a point at which the coefficients of rare features are the best for those of the others.

        None of them is larger than the largest was, so the noise does not grow.
        """
        if not self.can_sweep or not point.w.any():
            return point
        rows = self.rows
        w, margin = point.coef.copy(), point.stretch * rows.gather(point.margin)
        most = float(np.abs(w).max())
        least, first = NOTHING * point.value / most, 0.0
        for _ in range(SWEEPS):
            fall = _binding.sweep(
                *rows.rare_columns, self.loss.code, rows.signed_weight, point.b, point.scale, self.l2, most, least, w,
                margin,
            )  # fmt: skip
            first = first or fall
            if fall <= WORTH * first:
                break
        return self.at(w, self.noise.scale(w), point.b, rows.split(margin))

    def expand(self, point: Point) -> Local:
        """Return value and gradient at a point; margins that were added to are computed again."""
        return super().visit(point.x) if self.can_sweep else super().expand(point)

    def local(self, point: Point, by_label: Array, curves: Array | None = None) -> "AxisLocal":
        """Return what is known at a point."""
        return AxisLocal(self, point, by_label, curves)

    @property
    def slope_of_scale(self) -> float:
        """The derivative of the scale by the largest ``|w_j|``, without blur."""
        return self.smoothing.noise * self.noise.sigma


@dataclass(eq=False)
class AxisLocal(Local):
    """Value, gradient and what a quadratic program needs."""

    problem: AxisBinary

    @cached_property
    def forces(self) -> Array:
        """The gradient of Phi by ``(w, m, a, b)``: m moves features that are tied, and has no force of its own."""
        level, d = self.point.totals.conjugate, self.problem.rows.n_columns
        forces = np.empty(d + 3)
        np.subtract(self.gradient[:-1], level * self.noise_gradient, out=forces[:d])
        forces[d:] = 0.0, level, self.gradient[-1]
        return forces

    @cached_property
    def curvature(self) -> Array:
        """The Hessian of Phi by ``(w, m, a, b)``."""
        return mirrored(curvature(self.problem, self.row_weights))

    # --- dual points --------------------------------------------------------------------------------------

    def refined(self, p: Array, decrement: float, target: float) -> tuple[float, Array | None]:
        """Return a lower bound from slopes that are moved until no free feature has a force.

        What the slopes of a subsample lose in moving for all is what F has above its minimum, times all rows over
        those.
        """
        problem, rows = self.problem, self.problem.rows
        found = super().refined(p, decrement, target)
        if problem.l2 or rows.n_columns > MAX_COLUMNS:
            return found  # with a ridge the gap is of second order as it is
        least = max(PER_COLUMN * rows.n_columns, MIN_ROWS)
        few = target > 0 and least <= FRACTION * rows.n_rows
        if decrement > target * (FRACTION / SAFE if few else 1.0):
            return found
        part = problem
        if few:
            n_rows = max(SAFE * rows.n_rows * decrement / target, least)
            part = problem.subsample(round(n_rows), np.random.default_rng(0))
        wanted = self.value - target if target > 0 else np.inf
        return max(found, self._moved_dual(part, wanted), key=lambda either: either[0])

    def _with_rows(self, part: AxisBinary) -> tuple[AxisBinary, Index | slice]:
        """Return a subsample with the weights of the rows, and where these are."""
        if part is self.problem or part.places is None:
            return part, slice(None)
        return replace(part, rows=self.problem.rows.take(part.places)), part.places

    def _moved_dual(self, part: AxisBinary, wanted: float) -> tuple[float, Array]:
        """Return a dual value from slopes that are moved on some of the rows, and the slopes."""
        problem, point, totals = self.problem, self.point, self.point.totals
        own, places = self._with_rows(part)
        rows, weights = own.rows, problem.rows.weights[places]
        # How many rows each stands for.
        likes = np.divide(part.rows.weights, weights, out=np.zeros(rows.n_rows), where=weights > 0)
        signs, scale = tied(point.w), point.scale
        margin = rows.split(problem.rows.gather(point.margin)[places])
        here = start = own.at(point.w, point.own, point.b, margin, point.stretch)
        own_weights = own.row_weights(here)
        before, by_label, sums = rows.total(combine, own_weights.residual), self.by_label, totals
        best, moved_to, violation, face = 0.0, start, np.inf, None
        known = self.__dict__.get("curvature") if part is problem else None
        for _ in range(MOVES):
            residual, curve, tilt = (rows.gather(part_of) for part_of in own_weights)
            if face is None:
                bent = own_weights._replace(curve=rows.split(likes * curve))
                hessian = mirrored(curvature(own, bent)) if known is None else known
                face, known = Face(hessian, signs, problem.slope_of_scale), None
            force = np.concatenate([-by_label[0] - by_label[1], [0.0, sums.conjugate, sums.slope_neg - sums.slope_pos]])
            step = face.spread(-face.solve(face.gather(force)))
            along = rows.gather(rows.each(margins, w=step[:-3].copy())) + tilt * step[-2]
            along += step[-1] if own.fit_intercept else 0.0
            along *= likes
            size = np.abs(residual)
            room = np.where(along * rows.signed_weight > 0, size, weights - size)
            along[np.abs(curve * along) > 0.5 * room] *= FARTHER
            moved = rows.gather(here.margin) + np.clip(along, -scale, scale) / here.stretch
            here = own.at(point.w, point.own, point.b, rows.split(moved), point.stretch)
            own_weights = own.row_weights(here)
            by_label = self.by_label + (rows.total(combine, own_weights.residual) - before)
            sums = Totals(
                *(all_ + (new - old) for all_, new, old in zip(totals, here.totals, start.totals, strict=True))
            )
            rho, mass, v = balanced(by_label, sums.slope_pos, sums.slope_neg, fit_intercept=own.fit_intercept)

            def room_at(c: float, here: Point = here, rho: float = rho) -> list[float]:
                level = own.shrunk_conjugate(here, c)
                if own is not part:
                    level += problem.shrunk_conjugate(point, c) - (1 + LOW) * own.shrunk_conjugate(start, c)
                return [rho * level]

            noise, level = problem.noise, rho * sums.conjugate
            demand = noise.polar(v) + noise.polar_within(2 * problem.rounding(mass))
            ray = Ray(mass, [demand], [level], room_at, gain=[sums.value - sums.conjugate])
            value = ray.best(wanted)
            if value > best:
                best, moved_to = value, here
            last, violation = violation, noise.polar(v) - level
            if best >= wanted or violation > LEFT * last or violation <= 0:
                break
            if violation > OLD * last:
                face = None
        alpha = problem.slopes(point)
        alpha[places] = own.slopes(moved_to)
        return best, alpha


def curvature(problem: Binary, weights: binary.Weights) -> Array:
    """Return the Hessian of Phi by ``(w, m, a, b)``, a on its own, without what moves with m; lower triangle."""
    rows, d, curve = problem.rows, problem.rows.n_columns, weights.curve
    hessian = np.zeros((d + 3, d + 3))
    if rows.gram_cost >= DEAR:
        mean = sum(float(part.sum()) for part in curve) / rows.n_rows
        curve = [np.where(part >= binary.FLAT * mean, part, 0.0) for part in weights.curve]
        rest = [all_ - main for all_, main in zip(weights.curve, curve, strict=True)]
        diagonal(hessian)[:d] = rows.total(_squares, rest)
    found = rows.gram(curve, weights.tilt)
    hessian[:d, :d] += found[:d, :d]
    hessian[d + 1 :, :d] = found[d:, :d]
    hessian[d + 1 :, d + 1 :] = found[d:, d:]
    if problem.l2:
        diagonal(hessian)[:d] += problem.l2
    if not problem.fit_intercept:
        hessian[-1, :-1], hessian[-1, -1] = 0.0, 1.0
    return hessian


class Face:
    """A quadratic of ``(w, m, a, b)`` where some features are tied: one of the free ones, of b and of t, in that order.

    The tied features move by their signs with ``t = max |w_j|``, and so do m, and a by ``slope``.
    """

    def __init__(self, hessian: Array, signs: Array, slope: float) -> None:
        d = len(signs)
        self.along = np.empty(d + 3)
        self.along[:d] = signs
        self.along[d:] = 1.0, slope, 0.0
        self.free = self.along == 0
        self.index = self.free.nonzero()[0]
        n = len(self.index)
        matrix = np.empty((n + 1, n + 1))
        matrix[:n, :n] = hessian.take(self.index, 0).take(self.index, 1)
        matrix[n] = self.gather(hessian.dot(self.along))
        self.solve = factorise(matrix).solve

    def gather(self, force: Array) -> Array:
        """Return what forces on the arguments are on the face."""
        out = np.empty(len(self.index) + 1)
        out[:-1] = force[self.index]
        out[-1] = self.along.dot(force)
        return out

    def spread(self, step: Array) -> Array:
        """Return what a step on the face is in the arguments."""
        delta: Array = self.along * step[-1]
        delta[self.index] += step[:-1]
        return delta


# --- tasks ---------------------------------------------------------------------------------------------------


def _squares(block: Block, weight: Array) -> Array:
    return np.asarray(_binding.moments(0, block.n_rows, block.view, weight).reshape(3, -1)[2])
