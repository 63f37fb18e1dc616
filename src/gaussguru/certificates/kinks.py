"""Dual points for a noise with kinks, ``a = sigma max |w_j|``.

At the optimum ``v_j = 0`` for every column that is not tied at the maximum, while the slopes of a point near it leave a
force there, and a gap of first order. So the slopes themselves are moved, by Newton's method on the face of the tied
columns, until the forces are gone: what remains of the gap is of second order. As a few rows are enough to take the
forces of all away, each may move for all those that are like it.
"""

from dataclasses import replace

import numpy as np

from gaussguru.certificates.gaps import balanced, best_on_ray, rounding
from gaussguru.cholesky import MAX_COLUMNS, factorise, mirrored
from gaussguru.losses import Array
from gaussguru.noise import diagonal, tied
from gaussguru.objective import Expansion, Objective, Point, Pulls, Totals
from gaussguru.rows import Rows

# Newton steps, each of which must leave at most a part of what violates the constraints; with more left than another
# the curvature is computed again.
MOVES, LEFT, OLD = 8, 0.7, 0.1
FARTHER = 3.0
# Where a Gram matrix costs so many products, rows that hardly weigh add to its diagonal alone.
DEAR = 7.0
# By how much a shrunk conjugate may be too low.
LOW = 3e-6


def curvature(rows: Rows, pulls: Pulls, l2: float, *, fit_intercept: bool) -> Array:
    """Return the Hessian of F by ``(w, m, a, b)``, with a on its own and without what moves with m; lower triangle."""
    d, main = rows.n_columns, pulls
    hessian = np.zeros((d + 3, d + 3))
    if rows.gram_cost >= DEAR:
        main = pulls.mainly()
        diagonal(hessian)[:d] = rows.moments(pulls.weight - main.weight)[1]
    gram = rows.gram(main.weight, pulls.tilt)
    hessian[:d, :d] += gram[:d, :d]
    hessian[d + 1 :, :d] = gram[d:, :d]
    hessian[d + 1 :, d + 1 :] = gram[d:, d:]
    if l2:
        diagonal(hessian)[:d] += l2
    if not fit_intercept:
        hessian[-1, :-1], hessian[-1, -1] = 0.0, 1.0
    return hessian


class Face:
    """A quadratic of ``(w, m, a, b)`` where some columns are tied: one of the free ones, of b and of t, in that order.

    The tied columns move by their signs with t, and so do m, and a by sigma.
    """

    def __init__(self, hessian: Array, signs: Array, sigma: float) -> None:
        d = len(signs)
        self.along = np.empty(d + 3)
        self.along[:d] = signs
        self.along[d:] = 1.0, sigma, 0.0
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


def can_refine(objective: Objective) -> bool:
    """Return whether :func:`refine_ties` is for such a problem; with a ridge the gap is of second order as it is."""
    return not (objective.noise.smooth or objective.l2 or objective.rows.n_columns > MAX_COLUMNS)


def refine_ties(
    expansion: Expansion, part: Objective, wanted: float = np.inf, hessian: Array | None = None
) -> tuple[float, Array | None]:
    """Return a dual value from slopes that are moved on a part of the rows, and the slopes if it is as ``wanted``.

    ``hessian`` may be about what :func:`curvature` would return, mirrored.
    """
    objective, point, totals = expansion.objective, expansion.point, expansion.point.totals
    places = slice(None) if part is objective else part.places
    own = replace(part, signed_weight=objective.signed_weight[places])
    likes = np.divide(
        part.signed_weight, own.signed_weight, out=np.zeros(own.rows.n_rows), where=own.signed_weight != 0
    )
    weights = np.abs(own.signed_weight)
    signs, scale, sigma = tied(point.w), point.scale, objective.noise.sigma
    here = start = own.point(point.w, point.b, point.margin[places], point.stretch)
    pulls = own.pulls(here)
    before, by_label, sums = own.rows.combine(pulls.residual), expansion.by_label, totals
    best, violation, face = 0.0, np.inf, None
    for _ in range(MOVES):
        if face is None:
            bent = pulls._replace(weight=likes * pulls.weight)
            if hessian is None:
                hessian = mirrored(curvature(own.rows, bent, 0.0, fit_intercept=own.fit_intercept))
            face, hessian = Face(hessian, signs, sigma), None
        force = np.concatenate([-by_label[0] - by_label[1], [0.0, sums.conjugate, sums.slope_neg - sums.slope_pos]])
        step = face.spread(-face.solve(face.gather(force)))
        along = own.rows.margins(step[:-3].copy()) + pulls.tilt * step[-2]
        if own.fit_intercept:
            along += step[-1]
        along *= likes
        # A slope that should be 0 or 1 comes nearer by a factor e in a step of Newton, to which a tail has an end.
        room = np.where(along * own.signed_weight > 0, np.abs(pulls.residual), weights - np.abs(pulls.residual))
        along[np.abs(pulls.weight * along) > 0.5 * room] *= FARTHER
        moved = here.margin + np.clip(along, -scale, scale) / here.stretch
        here = own.point(point.w, point.b, moved, point.stretch)
        pulls = own.pulls(here)
        by_label = expansion.by_label + (own.rows.combine(pulls.residual) - before)
        sums = Totals(*(all_ + (new - old) for all_, new, old in zip(totals, here.totals, start.totals, strict=True)))
        v, mass, rho = balanced(objective, by_label, sums.slope_pos, sums.slope_neg)

        def level_at(c: float, here: Point = here, rho: float = rho) -> float:
            level = own.shrunk_conjugate(here, c)
            if part is not objective:
                level += objective.shrunk_conjugate(point, c) - (1 + LOW) * own.shrunk_conjugate(start, c)
            return rho * level

        level, steepest = rho * sums.conjugate, sums.value - sums.conjugate
        bound = best_on_ray(objective, v, mass, level, level_at, rounding(objective, mass), steepest, wanted)
        if bound >= wanted:
            alpha = objective.slopes(point)
            alpha[places] = own.slopes(here)
            return bound, alpha
        best = max(best, bound)
        last, violation = violation, objective.noise.polar(v) - level
        if violation > LEFT * last or violation <= 0:
            break
        if violation > OLD * last:
            face = None
    return best, None
