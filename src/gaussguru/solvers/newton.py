"""Newton's method, certified: the default solver.

One iteration, at the noise level it has reached::

    certify    stop when the duality gap is at most tol F(0)
    solve      Hessian p = -gradient
    advance    line search; far from the optimum also the best length and intercept, on margins alone

Three things make it right everywhere and fast on many rows:

* **A path in the noise level.** For small sigma F is nearly piecewise linear and Newton alone would crawl. The
  solver starts at a level comparable to the spread of the margins and lowers it whenever a point is central, that
  is when its Newton decrement is small against ``a sum s f*``, the part of F that the noise makes. A step that
  lowers the level adds the tangent of the path, which is nearly straight in sigma: for the rows that matter, ``z``
  stays and ``m = a z`` shrinks.
* **Growing subsamples** (:mod:`gaussguru.solvers.start`): most of the way is made on few rows.
* **Lazy inverses** (:mod:`gaussguru.solvers.inverse`): few steps form a Hessian.

Where ``w`` vanishes because the constant classifier is optimal, or nearly so, the length is pinned
(:mod:`gaussguru.solvers.plane`): there F is linear in it, ``F = 2 S_min + K(w, b)`` with a homogeneous convex K. A
direction of descent has ``w.pull > 0`` for the difference of class means ``pull``, because the uniform dual point
bounds K from below; so K is minimised by Newton on the plane of constant ``w.pull`` until it turns negative or a dual
point proves that it cannot.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gaussguru.certificates import (
    CollapseProof,
    can_refine,
    certify,
    expected_gap,
    is_collapsed,
    is_promising,
    refine,
    refine_ties,
)
from gaussguru.cholesky import MAX_COLUMNS
from gaussguru.losses import Array
from gaussguru.noise import norm
from gaussguru.objective import Expansion, Objective, Point, interpolate
from gaussguru.solvers.columns import can_sweep, swept
from gaussguru.solvers.faces import Faces
from gaussguru.solvers.inverse import LazyInverse
from gaussguru.solvers.path import (
    BLUR,
    CENTRAL,
    NEAR,
    PATIENCE,
    SPEED,
    Settings,
    Trail,
    blend,
    falls,
    first_below,
    is_lost,
    lower_noise,
    lowest,
    print_iteration,
)
from gaussguru.solvers.plane import EXACTLY, ROUGHLY, is_vanishing, settle
from gaussguru.solvers.result import Result
from gaussguru.solvers.start import MIN_ROWS, from_coordinates, from_means, look_along_means, subsamples

# From this noise ratio on, problems with too many columns for a factor start from coordinate descent.
FAR_NOISE = 3.0
# A step that may be the last is settled even near the end, as a settled point has the smaller gap: when so much of the
# expected gap is what is wanted, or the decrement is so small against F. With this many values in X the certificate
# does the settling.
LEFT, TINY = 0.05, 1e-7
FUSED = 100_000
# The certificate of a noise with kinks looks at no larger part of the rows if it need not look at all of them; at so
# many times those that would just do, and at no fewer a column.
PART, SAFE, PER_COLUMN = 0.25, 1.5, 30
# A part of the rows says no more about less noise than this, relative to what it hides.
HIDDEN = 0.5
# The least noise that double precision resolves, relative to the lengths of the rows.
RESOLVED = 1e-13


@dataclass(frozen=True)
class Newton(Settings):
    """The solver of two-class problems; see the module for the method."""

    def solve(self, objective: Objective, start: tuple[Array, float] | None = None) -> Result:
        """Minimise ``objective``, from ``(w, b)`` if given."""
        return self._solve(_Run(self, objective), start)

    def follow(self, objective: Objective, factors: Iterable[float]) -> Iterator[Result]:
        """Minimise at one noise level after another, given as factors, each from the solutions before it.

        The inverse of one level serves at the next, and the first look at X is for the gradient at a point that is
        known from the margins of the solutions: where levels are close, two or three passes over X are all.
        """
        trail: Trail[Point] = Trail()
        inverse = _inverse_for(objective)
        _ = objective.squares, objective.pull  # what is known of the rows now is known to all levels
        some = subsamples(objective, self.seed)[-1:]
        for factor in factors:
            run = _Run(self, objective.with_noise(factor), inverse)
            guess = run.guess(trail.towards(factor))
            few = objective.rows.n_columns <= MAX_COLUMNS
            if guess is not None and some and few and isinstance(inverse, LazyInverse):
                # The curvature of a part of many rows will do.
                part = some[0].with_noise(factor)
                inverse.renew(part.expand(part.point(guess.point.coef, guess.point.b)))
            resumed = guess is not None and run.descend(run.objective, guess, 1.0, trial=True) is not None
            if guess is not None and not resumed and trail.last[0] > factor:
                # Not central there: down from the last solution, which is at its own level.
                ratio = trail.last[0] / factor
                noisy = run.objective.with_noise(ratio)
                resumed = run.descend(run.objective, noisy.expand(noisy.again(trail.last[1])), ratio) is not None
            result = run.result() if resumed else self._solve(run, None)
            if resumed and not result.converged:
                # What a start from afar brings along may be lost in rounding: begin again.
                run = _Run(self, run.objective)
                result = min(result, self._solve(run, None), key=lambda either: either.gap)
            yield result
            if run.best is not None:
                trail.add(factor, run.best)

    def _solve(self, run: "_Run", start: tuple[Array, float] | None) -> Result:
        objective = run.objective
        levels = [*subsamples(objective, self.seed), objective]
        run.parts = levels[:-1]
        factor = _resolvable(levels[0])
        if factor > 1:
            # Slacks cannot be told from zero to within the noise: solve for the least noise that can be resolved.
            result = self.solve(objective.with_noise(factor), start)
            run.n_iter = result.n_iter
            if result.coef.any():
                run.certify(objective.expand(objective.point(result.coef, result.intercept)), thorough=True)
            return run.result()
        if start is not None and np.any(start[0]):
            warm = run.central(start)
            if warm is not None:
                run.descend(objective, *warm)
                return run.result()
        point, ratio = None, 1.0
        for level in levels:
            if point is not None:
                point = run.descend(level, _resume(level, point, ratio), ratio)
            elif not is_collapsed(level):
                point = run.descend(level, *self._first(level))
            elif level is objective:
                run.dual = objective.constant  # the uniform dual point is feasible and has the value of w = 0
            if point is not None and level is not objective:
                ratio = max(1.0, BLUR / _hiding(level, point))
        return run.result()

    def _first(self, objective: Objective) -> tuple[Expansion, float]:
        means = look_along_means(objective)
        if objective.rows.n_columns > MAX_COLUMNS and means.noise > FAR_NOISE:
            enough = 0.5 * self.tol * objective.weight
            point = from_coordinates(objective, enough, self.seed)
            # A maximum is better approached from where all is tied, unless there is nothing left to do.
            if objective.noise.smooth or point.value <= enough:
                return objective.expand(point), 1.0
        point, ratio = from_means(objective, means)
        return objective.with_noise(ratio).expand(point), ratio


class _Run:
    """One call of :meth:`Newton.solve`: counters, the lazy inverse, the best primal point and dual value so far."""

    def __init__(self, settings: Newton, objective: Objective, inverse: LazyInverse | Faces | None = None) -> None:
        self.settings = settings
        self.objective = objective
        self.target = settings.tol * objective.weight
        self.exactly = min(EXACTLY, 1e-4 * settings.tol)
        self.inverse = inverse or _inverse_for(objective)
        if isinstance(self.inverse, Faces):
            self.inverse.near = self.near
        self.n_iter = 0
        self.parts: list[Objective] = []
        self.best: Point | None = None
        self.primal_bound = objective.constant
        self.dual = 0.0
        self.alpha: Array | None = None  # where the dual value is not that of the slopes of the best point
        self.began = time.perf_counter()

    def descend(self, level: Objective, expansion: Expansion, ratio: float, *, trial: bool = False) -> Point | None:
        """Minimise over the rows of ``level``, from a point at ``ratio`` times its noise.

        A ``trial`` from the solutions of another level keeps their inverse, and is given up, with None, if that point
        is not central.
        """
        last = level is self.objective
        # On a subsample it is enough to come as close as the next one will let it stay.
        enough = min(1e-2, 0.1 * level.rows.n_columns / level.rows.n_rows)
        if not trial:
            self.inverse.forget(factor=not last)
        previous, stalled, patience = np.inf, 0, PATIENCE
        turned: Array | None = None
        kinked = not level.noise.smooth
        while True:
            point = expansion.point
            out_of_steps = self.n_iter >= self.settings.max_iter
            if ratio > 1 and (out_of_steps or point.value <= 0.5 * self.target):
                # Separated beyond the noise already: whatever holds at this level holds at the lower one.
                ratio = 1.0
                point = settle(level, level.again(point))
                expansion = level.expand(point)
            current = expansion.objective
            pin = is_vanishing(current, point)
            if pin and last:
                self.proof.add(expansion)
            done = last and ratio == 1 and self.certify(expansion, pin=pin, thorough=out_of_steps)
            if done or out_of_steps:
                self._report(expansion, ratio)
                break
            if pin and level.l2:
                expansion = current.without_ridge().expand(point)
            p, decrement, lowered = self.inverse.step(expansion, previous if ratio == 1 or kinked else 0.0, pin=pin)
            if trial and not _is_central(point, decrement):
                return None
            trial = False
            self._report(expansion, ratio)
            self.n_iter += 1
            if ratio == 1 and not last and decrement <= enough * point.value:
                break
            if last and ratio == 1 and not pin and self._refine_ties(expansion, decrement):
                self._report(expansion, ratio)
                break
            stuck, turned = pin and point.w is turned, point.w
            if ratio == 1 and last and (stuck or is_lost(point, decrement)):
                stalled += 1
                if self._refine(expansion, p) or stalled > 5:
                    break
            patience -= 1
            if ratio > 1 and (_is_central(point, decrement) or not patience):
                if not last and ratio * _hiding(level, point) <= HIDDEN:
                    break
                patience = PATIENCE
                lower = lower_noise(ratio)
                p = lowered(lower / ratio)
                ratio = lower
                step = _turn if pin else _follow
                expansion = step(level.with_noise(ratio), point, p)
                self.inverse.forget()
                previous = np.inf
            else:
                before = expansion
                expansion = _turn(current, point, p) if pin else self._advance(expansion, p, decrement)
                self.inverse.learn(before, expansion)
                previous = decrement
        if not last and isinstance(self.inverse, Faces) and expansion.objective.rows.n_columns <= MAX_COLUMNS:
            # What the curvature is here costs little, and it is where more rows begin.
            self.inverse.curvature(expansion)
        return expansion.point

    def guess(self, solutions: list[tuple[float, Point]]) -> Expansion | None:
        """Return F about a sum of solutions of other noise levels, unless there w vanishes or noise is not resolved."""
        objective = self.objective
        if not solutions or is_collapsed(objective) or _resolvable(objective) > 1:
            return None
        w = blend(solutions, lambda point: point.coef)
        b = blend(solutions, lambda point: point.b)
        margin = blend(solutions, lambda point: point.stretch * point.margin)
        if not np.any(w):
            return None
        point = settle(objective, objective.point(w, b, margin), ROUGHLY)
        return None if is_vanishing(objective, point) else objective.expand(point)

    def central(self, start: tuple[Array, float]) -> tuple[Expansion, float] | None:
        """Return the lowest noise level at which a start is central, or None if it is no better than none."""
        objective, ratio = self.objective, 1.0
        if not np.isfinite(start[0]).all() or not 1e-100 < norm(start[0]) < 1e100 or is_collapsed(objective):
            return None
        top = look_along_means(objective).noise
        point = objective.point(*start)
        while ratio == 1 or ratio < top:
            noisy = objective.with_noise(ratio)
            point = settle(noisy, noisy.again(point), ROUGHLY)
            if is_vanishing(noisy, point):
                return None
            expansion = noisy.expand(point)
            if _is_central(point, self.inverse.step(expansion, 0.0).decrement):
                return expansion, ratio
            ratio *= SPEED**2
        return None

    def certify(self, expansion: Expansion, *, pin: bool = False, thorough: bool = False) -> bool:
        """Update the best bounds on the minimum; return whether they meet."""
        if pin:
            self.dual = max(self.dual, self.proof.dual())
            if self.objective.l2:
                self.dual = max(self.dual, certify(expansion, self.target, thorough=True).dual)
        else:
            # An unsettled point is settled on its margins first; its curves tell what that does to the dual vector.
            near = (
                expansion.point if expansion.curves is None else settle(self.objective, expansion.point, self.exactly)
            )
            thorough = thorough or self.settings.verbose > 0
            certificate = certify(expansion, self.target, at=near, thorough=thorough)
            if certificate.gap > self.target and is_promising(expansion, near, self.target):
                # The slopes moved too far for their curves, whose error is bounded by that of the steepest of all rows.
                certificate = certify(self.objective.expand(near), self.target, thorough=thorough)
            self.dual = max(self.dual, certificate.dual)
            if certificate.primal < self.primal_bound:
                self.best, self.primal_bound = near, certificate.primal
        return self.gap <= self.target

    def _refine(self, expansion: Expansion, p: Array) -> bool:
        """Improve the dual value where rounding keeps the primal point from moving."""
        self.dual = max(self.dual, refine(expansion, p))
        return self.gap <= self.target

    def _refine_ties(self, expansion: Expansion, decrement: float) -> bool:
        """Improve the dual value where the noise has kinks and F is near its minimum already."""
        if decrement > self.near:
            return False
        objective, rows = self.objective, self.objective.rows
        part, hessian = objective, None
        if self.near < self.target:
            n_rows = max(SAFE * rows.n_rows * decrement / self.target, self.least_rows)
            large = [level for level in self.parts if level.rows.n_rows >= 0.9 * n_rows]
            part = large[0] if large else objective.subsample(round(n_rows), np.random.default_rng(self.settings.seed))
        elif isinstance(self.inverse, Faces):
            hessian = self.inverse.curvature(expansion)
        dual, self.alpha = refine_ties(expansion, part, self.primal_bound - self.target, hessian)
        self.dual = max(self.dual, dual)
        return self.gap <= self.target

    @property
    def least_rows(self) -> int:
        """The rows at which a certificate of a noise with kinks has to look at least."""
        return max(PER_COLUMN * self.objective.rows.n_columns, MIN_ROWS)

    @cached_property
    def near(self) -> float:
        """The decrement from which on it is tried.

        What the slopes of a part lose in moving for all is what F has above its minimum, times all rows over those.
        """
        if not can_refine(self.objective):
            return -np.inf
        return self.target * (PART / SAFE if self.least_rows <= PART * self.objective.rows.n_rows else 1.0)

    @cached_property
    def proof(self) -> CollapseProof:
        """What pinned points say about the constant classifier."""
        return CollapseProof(self.objective)

    @property
    def gap(self) -> float:
        """The proven gap of the best point."""
        return max(0.0, self.primal_bound - self.dual)

    def _advance(self, expansion: Expansion, p: Array, decrement: float) -> Expansion:
        """Take a Newton step at one noise level, shortened until F falls."""
        objective, point = expansion.objective, expansion.point
        w, b = point.coef + p[:-1], point.b + float(p[-1])
        nearly_done = decrement <= TINY * point.value or (
            decrement <= self.target / LEFT**2 and LEFT * expected_gap(expansion) <= self.target
        )
        # The certificate needs to know how the slopes change: not where f'' jumps.
        fused = objective.rows.n_values >= FUSED and math.isfinite(objective.loss.jerk)
        if decrement <= NEAR * point.value and (fused or not nearly_done) and not can_sweep(objective):
            visited = objective.visit(w, b, curved=nearly_done)
            if falls(point, visited.point, 1.0, decrement):
                return visited
            end = visited.point
        else:
            end = objective.point(w, b)
        trial = swept(objective, end)
        if trial is end or not falls(point, trial, 1.0, decrement):
            trial = swept(objective, lowest(point, end, lambda t: interpolate(objective, point, end, t), decrement))
        return _expanded(objective, trial, self.exactly if nearly_done else ROUGHLY)

    def _report(self, expansion: Expansion, ratio: float) -> None:
        if self.settings.verbose:
            gap = np.inf if ratio > 1 else self.gap
            print_iteration(self.n_iter, expansion, self.objective, gap, self.began, ratio)

    def result(self) -> Result:
        """Return the best point, or the constant classifier where nothing was better."""
        objective = self.objective
        if self.best is not None:
            point, gap = self.best, self.gap
            alpha = objective.slopes(point) if self.alpha is None else self.alpha
            return Result(point.coef, point.b, point.value, gap, alpha, self.n_iter, gap <= self.target)
        w, n = np.zeros(objective.rows.n_columns), objective.rows.n_rows
        gap = self.gap
        if not objective.fit_intercept:
            return Result(w, 0.0, objective.weight, gap, np.ones(n), self.n_iter, gap <= self.target, True)
        weight_pos, weight_neg = objective.weights
        b = float(np.sign(weight_pos - weight_neg))
        share = min(objective.weights) / max(objective.weights)
        alpha = np.where(np.copysign(1.0, objective.signed_weight) == b, share, 1.0)
        return Result(w, b, objective.constant, gap, alpha, self.n_iter, gap <= self.target, True)


def _resolvable(objective: Objective) -> float:
    """Return the factor on the noise, if above 1, below which rounding errors of the margins exceed it."""
    if not np.any(objective.pull):
        return 1.0
    sizes = np.sqrt(objective.column_squares / objective.weight)
    factor = RESOLVED * float(np.abs(objective.first) @ sizes) / objective.noise.scale(objective.first)
    return factor if factor > 1 + 1e-9 else 1.0


def _is_central(point: Point, decrement: float) -> bool:
    return decrement <= CENTRAL * point.scale * point.totals.conjugate


def _inverse_for(objective: Objective) -> LazyInverse | Faces:
    """Return what solves the systems of a problem."""
    return LazyInverse() if objective.noise.smooth else Faces()


def _hiding(level: Objective, point: Point) -> float:
    """Return the noise relative to how much the optimum of more rows will differ from that of these.

    Every margin may move by a part ``sqrt(columns / rows)`` of the spread of the margins.
    """
    spread = float(np.std(point.margin)) * point.stretch
    away = spread * math.sqrt(level.rows.n_columns / level.rows.n_rows)
    return level.noise.scale(point.coef) / away if away > 0 else np.inf


def _resume(objective: Objective, point: Point, ratio: float) -> Expansion:
    """Return the expansion of F at the optimum of fewer rows."""
    if ratio == 1 and not can_sweep(objective):
        return objective.visit(point.coef, point.b)
    noisy = objective.with_noise(ratio)
    return _expanded(noisy, swept(noisy, noisy.point(point.coef, point.b)))


def _follow(objective: Objective, point: Point, p: Array) -> Expansion:
    """Take the best part of a step to another noise level, after which F is not comparable with before."""
    start = objective.again(point)
    end = swept(objective, objective.point(point.coef + p[:-1], point.b + float(p[-1])))
    best = first_below(start, end, lambda t: interpolate(objective, start, end, t))
    return _expanded(objective, best)


def _expanded(objective: Objective, point: Point, tol: float = ROUGHLY) -> Expansion:
    """Return the expansion of F at the best length and intercept."""
    point = settle(objective, point, tol)
    # What was swept has margins that were added to.
    return objective.visit(point.coef, point.b) if can_sweep(objective) else objective.expand(point)


def _turn(objective: Objective, point: Point, p: Array) -> Expansion:
    """Take the best part of a step of a pinned w: one that lowers K = (F - 2 S_min)/(w.pull), or frees w."""

    def merit(at: Point) -> float:
        return (at.value - 0.5 * objective.ridge(at) - objective.constant) / float(at.coef @ objective.pull)

    start = settle(objective, objective.again(point))
    if float(start.w @ objective.pull) <= 0:
        # No direction of descent looks that way: begin again with the class means.
        start = settle(objective, objective.point(objective.first, start.b))
        return objective.expand(start)
    if not is_vanishing(objective, start):
        return objective.expand(start)
    end = objective.point(point.coef + p[:-1], point.b + float(p[-1]))
    t, trial = 1.0, settle(objective, end)
    while t > 1e-12 and is_vanishing(objective, trial) and not merit(trial) < merit(start):
        t *= 0.3
        trial = settle(objective, interpolate(objective, start, end, t))
    return objective.expand(trial if t > 1e-12 else start)
