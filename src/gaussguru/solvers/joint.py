"""Newton's method for the multiclass problem: the same plan as :mod:`gaussguru.solvers.newton`, in all classes at once.

A path in the noise level, growing subsamples and lazy inverses, as there. Two things differ. The best length of W and
the best intercepts on known scores are a problem of C + 1 unknowns (:func:`settle`). And collapsing classes need no
care: the blur of :mod:`gaussguru.multiclass` starts large and shrinks along the path, down to a level whose effect on
F is a fraction of the tolerance; where the classes stay apart it shrinks at once.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gaussguru.certificates import certify_joint
from gaussguru.cholesky import MAX_COLUMNS, Factor, factorise
from gaussguru.losses import Array, Index
from gaussguru.multiclass import MAX_UNKNOWNS, Expansion, Multiclass, Point, laplacian, one_hot
from gaussguru.noise import Isotropic, diagonal, norm
from gaussguru.rows import Rows
from gaussguru.solvers.inverse import LazyInverse
from gaussguru.solvers.path import (
    BLUR,
    CENTRAL,
    NEAR,
    PATIENCE,
    ROUNDING,
    SPEED,
    Settings,
    Trail,
    blend,
    falls,
    first_below,
    is_lost,
    lower_noise,
    print_iteration,
    shortened,
)
from gaussguru.solvers.result import Result
from gaussguru.solvers.start import ROWS_PER_COLUMN, SMOOTH, subsamples
from gaussguru.solvers.subspace import OfColumns, Subspace

# The blur to begin with, in units of the margin, and the last one, as a part of the tolerance.
FIRST_BLUR, LAST_BLUR = 0.1, 0.25
# Pairs of classes whose scale is so many times the blur are apart: it does not matter to them.
APART = 10.0
# The anchor, as a part of the wanted gap; and after steps that were much too long, in units of the weight, where it
# begins, how fast it changes, and where it ends.
ANCHOR = 1e-12
HELD, HOLD, LOOSE = 1e-2, 10.0, 1e-6
# A step that brings less than this part of what it promised was much too long.
POOR = 1e-8
# Lazy steps must do more than with two classes, because each is certified, which takes as long.
CONTRACTION = 0.07
# Where a decrement is more than this part of the last one, the rows that hardly bend F may be what it lacks.
SLOW = 0.5
# Rows that bend F by less than this part of the mean are not for an approximate inverse.
BENT = 0.1
# How exactly to settle, relative to the part of F that the noise makes.
ROUGHLY = 0.03

# From so many unknowns on the span of gradients is searched where F is smooth.
LEAST_SPAN = 500


@dataclass(frozen=True)
class JointNewton(Settings):
    """The solver of multiclass problems; see the module for the method.

    ``spans`` allows for growing subspaces (:mod:`gaussguru.solvers.subspace`) where they serve.
    """

    spans: bool = True

    def solve(self, objective: Multiclass, start: tuple[Array, Array] | None = None) -> Result:
        """Minimise ``objective``, from ``(W, b)`` if given.

        The unknowns are relative to the last class. The heaviest one is put there: what a light class far from the
        others does would be lost in the rounding of the difference to it.
        """
        ordered, order = self._ordered(objective)
        run = _Run(self, ordered)
        if start is not None and np.any(start[0]):
            place = run.sharp.point(start[0][order], start[1][order])
            if run.resume(settle(run.sharp, place), 0.0):
                return _unordered(run.result(), order)
        return _unordered(self._solve(run), order)

    def follow(self, objective: Multiclass, factors: Iterable[float]) -> Iterator[Result]:
        """Minimise at one noise level after another, given as factors, each from the solutions before it."""
        ordered, order = self._ordered(objective)
        trail: Trail[Point] = Trail()
        inverse = LazyInverse(_inverse_of, CONTRACTION)
        _ = ordered.class_weights, ordered.means  # what is known of the rows now is known to all levels
        for factor in factors:
            run = _Run(self, ordered.with_noise(factor, 0.0), inverse)
            guess = run.guess(trail.towards(factor))
            resumed = guess is not None and run.resume(guess, np.inf)
            result = run.result() if resumed else self._solve(run)
            if resumed and not result.converged:
                # What a start from afar brings along may be lost in rounding: begin again.
                run = _Run(self, run.objective)
                result = min(result, self._solve(run), key=lambda either: either.gap)
            if not result.collapsed:
                trail.add(factor, run.best or run.objective.point(result.coef, result.intercept))
            yield _unordered(result, order)

    def _span(self, objective: Multiclass) -> Result | None:
        """Minimise over a growing span of gradients."""
        means = one_hot(objective.labels, objective.weights, objective.n_classes)

        def problem(features: Array) -> Multiclass:
            return replace(objective, rows=Rows(features, objective.rows.map, objective.n_classes))

        settings = {name: getattr(self, name) for name in ("tol", "max_iter", "verbose", "seed")}
        subspace = Subspace(**settings, inner=partial(JointNewton, spans=False))
        return subspace.solve(OfColumns(objective.rows.X), problem, means, whole=objective)[0]

    def _ordered(self, objective: Multiclass) -> tuple[Multiclass, Index]:
        """Return the problem with the classes sorted by weight, and their order."""
        order = np.argsort(objective.class_weights, kind="stable")
        anchor = ANCHOR * self.tol * objective.weight
        return replace(objective, labels=np.argsort(order)[objective.labels].astype(np.int32), anchor=anchor), order

    def _solve(self, run: "_Run") -> Result:
        objective = run.objective
        if self.spans and _is_spanned(objective):
            result = self._span(objective)
            if result is not None and result.converged:
                return result
        point, ratio, blur = None, 1.0, FIRST_BLUR
        for level in [*subsamples(objective, self.seed), objective]:
            if point is None:
                point, ratio = _from_means(level, blur)
            else:
                noisy = level.with_noise(ratio, blur)
                point = noisy.point(point.coef, point.b)
                point = point if ratio == 1 else settle(noisy, point)
            point = run.descend(level, level.with_noise(ratio, blur).expand(point), ratio, blur)
            ratio, blur = _hiding(level, point), run.blur
        return run.result()


class _Run:
    """One call of :meth:`JointNewton.solve`: counters, the lazy inverse, the best point and dual value so far."""

    def __init__(self, settings: JointNewton, objective: Multiclass, inverse: LazyInverse | None = None) -> None:
        self.settings = settings
        self.objective = objective
        self.target = settings.tol * objective.weight
        self.blur = LAST_BLUR * min(settings.tol, 1e-3)
        self.sharp = objective.with_noise(1.0, self.blur)
        self.inverse = inverse or LazyInverse(_inverse_of, CONTRACTION)
        self.n_iter = 0
        self.best: Point | None = None
        self.primal, self.dual = np.inf, 0.0
        self.began = time.perf_counter()

    def descend(self, level: Multiclass, expansion: Expansion, ratio: float, blur: float) -> Point:
        """Minimise over the rows of ``level``, from a point at ``ratio`` times its noise."""
        last = level is self.objective
        # On a subsample it is enough to come as close as the next one will let it stay.
        enough = min(1e-2, 0.1 * level.rows.n_columns / level.rows.n_rows)
        self.inverse.forget(factor=not last)
        previous, stalled, patience, falling = np.inf, 0, PATIENCE, True
        while True:
            point, current = expansion.point, expansion.objective
            final = ratio == 1 and blur == self.blur
            out_of_steps = self.n_iter >= self.settings.max_iter
            if last and (final or out_of_steps) and self.certify(expansion, thorough=out_of_steps):
                self._report(expansion, ratio)
                break
            if out_of_steps:
                break
            solve = self.inverse.at(expansion, previous if final else 0.0, expansion.mainly if falling else None)
            p = -solve(expansion.gradient)
            decrement = -float(expansion.gradient @ p)
            falling = decrement < SLOW * previous
            self._report(expansion, ratio)
            self.n_iter += 1
            if final and not last and decrement <= enough * point.value:
                break
            if final and last and is_lost(point, decrement):
                # F resolves no more, but the dual may still rise.
                gap = self.gap
                if self.certify(expansion, thorough=True):
                    break
                stalled = stalled + 1 if self.gap > 0.9 * gap else 0
                if stalled > 5:
                    break
            patience -= 1
            if not final and (decrement <= CENTRAL * point.noisy or not patience):
                patience = PATIENCE
                lower, sharper = self._next(point, ratio, blur)
                p += solve(expansion.tangent(1 - lower / ratio, 1 - sharper / blur))
                ratio, blur = lower, sharper
                expansion = _follow(level.with_noise(ratio, blur), expansion, p)
                self.inverse.forget()
                previous = np.inf
            else:
                before = expansion
                expansion = self._held(before, _advance(current, expansion, p, decrement), decrement)
                self.inverse.learn(before, expansion)
                previous = decrement
        return expansion.point

    def _held(self, before: Expansion, after: Expansion, decrement: float) -> Expansion:
        """Return ``after`` with a higher anchor if the step was much too long, with a lower one if it was not."""
        anchor, weight = after.objective.anchor, self.objective.weight
        poor = before.point.value - after.point.value < POOR * decrement and not is_lost(before.point, decrement)
        if not poor and anchor == self.objective.anchor:
            return after
        anchor = max(HELD * weight, anchor * HOLD) if poor else anchor / HOLD
        if anchor < LOOSE * weight:
            anchor = self.objective.anchor
        self.inverse.forget(factor=True)
        return replace(after, objective=after.objective.anchored(anchor))

    def _next(self, point: Point, ratio: float, blur: float) -> tuple[float, float]:
        """Return the next noise ratio and blur of the path."""
        off = ~np.eye(len(point.scales), dtype=bool)
        apart = bool(np.all(point.distances[off] > APART * blur))
        return lower_noise(ratio), self.blur if apart else max(self.blur, blur / SPEED)

    def guess(self, solutions: list[tuple[float, Point]]) -> Point | None:
        """Return the place that a sum of solutions of other noise levels makes."""
        if not solutions:
            return None
        W = blend(solutions, lambda point: point.coef)
        b = blend(solutions, lambda point: point.b)
        scores = blend(solutions, lambda point: point.stretch * point.scores)
        return settle(self.sharp, self.sharp.point(W, b, scores)) if np.any(W) else None

    def resume(self, point: Point, previous: float) -> bool:
        """Minimise from a settled place if it is central at the noise of the problem; return whether it was.

        ``previous`` says whether an inverse may be used as it is, see :meth:`LazyInverse.at`.
        """
        expansion = self.sharp.expand(point)
        p = self.inverse.at(expansion, previous, expansion.mainly)(expansion.gradient)
        if not float(p @ expansion.gradient) <= CENTRAL * expansion.point.noisy:
            return False
        self.descend(self.objective, expansion, 1.0, self.blur)
        return True

    def certify(self, expansion: Expansion, *, thorough: bool) -> bool:
        """Update the best bounds on the minimum; return whether they meet."""
        certificate = certify_joint(expansion, self.target, thorough=thorough or self.settings.verbose > 0)
        self.dual = max(self.dual, certificate.dual)
        if certificate.primal < self.primal:
            self.best, self.primal = expansion.point, certificate.primal
        return self.gap <= self.target

    @property
    def gap(self) -> float:
        """The proven gap of the best point."""
        return max(0.0, self.primal - self.dual)

    def _report(self, expansion: Expansion, ratio: float) -> None:
        if self.settings.verbose:
            print_iteration(self.n_iter, expansion, self.objective, self.gap, self.began, ratio)

    def result(self) -> Result:
        """Return the best point, or the constant classifier where it is as good."""
        objective = self.objective
        assert self.best is not None
        b = self.best.b - self.best.b.mean()
        W = self.best.coef - self.best.coef.mean(axis=0)
        constant, at = min((_constant(objective, shift), tuple(shift)) for shift in (b, _whole(b), np.zeros_like(b)))
        sharp = objective.again(self.best)
        value, collapsed = sharp.value, constant <= sharp.value
        if collapsed:
            W, b, value = np.zeros_like(W), np.array(at), constant
        # Rounding of the scores is part of what was certified.
        gap = max(0.0, value + (self.primal - self.best.value) - self.dual)
        alpha = objective.slopes(self.best)
        return Result(W, b, value, gap, alpha, self.n_iter, gap <= self.target, collapsed)


def _is_spanned(objective: Multiclass) -> bool:
    """Return whether there are many unknowns and F is smooth at its own noise: then few gradients span the solution."""
    unknowns = (objective.n_classes - 1) * objective.rows.n_columns
    if unknowns < LEAST_SPAN or not isinstance(objective.noise, Isotropic):
        return False
    return _from_means(objective, FIRST_BLUR)[1] == 1


def _unordered(result: Result, order: Index) -> Result:
    """Return a result with the classes as they were."""
    rank = np.argsort(order)
    alpha = np.ascontiguousarray(result.alpha[:, rank])
    return replace(result, coef=result.coef[rank], intercept=result.intercept[rank], alpha=alpha)


def _inverse_of(expansion: Expansion) -> "Factor | Blocks | None":
    if expansion.gradient.size <= MAX_UNKNOWNS:
        return factorise(expansion.hessian())
    return Blocks(expansion) if expansion.objective.rows.n_columns <= MAX_COLUMNS else None


def _constant(objective: Multiclass, b: Array) -> float:
    """Return F at W = 0."""
    if not objective.fit_intercept:
        return objective.weight
    hinge = np.maximum(0.0, 1.0 - (b[:, np.newaxis] - b))
    diagonal(hinge)[:] = 0.0
    return float(objective.class_weights @ hinge.sum(axis=1))


def _hiding(level: Multiclass, point: Point) -> float:
    """Return the noise level (a factor) that hides how much the optimum of more rows will differ from this one.

    Every margin of a pair may move by a part ``sqrt(columns / rows)`` of the spread of the margins.
    """
    scales = point.scales[~np.eye(level.n_classes, dtype=bool)]
    spread = float(np.median(np.std(point.scores, axis=0))) * point.stretch / float(np.median(scales))
    rows = 2 * level.rows.n_rows / level.n_classes
    return max(1.0, BLUR * spread * float(np.sqrt(level.rows.n_columns / rows)))


def _whole(b: Array) -> Array:
    """Return the intercepts with whole differences: at W = 0 F is least at such ones."""
    rounded = np.round(b - b[0])
    return np.asarray(rounded - rounded.mean())


def _from_means(objective: Multiclass, blur: float) -> tuple[Point, float]:
    """Return the classifier of the nearest class mean, of the best length, at a noise level where F is smooth."""
    means = objective.means
    # Without intercepts F may rise in that direction: then in that of steepest descent at 0.
    W = means if objective.fit_intercept else means * objective.class_weights[:, np.newaxis]
    W = W - W.mean(axis=0)
    W = W / max(norm(W.ravel()), 1e-100)
    W = np.array([objective.noise.steepest(w) for w in W])
    W = np.ascontiguousarray(W / max(norm(W.ravel()), 1e-100))
    first = objective.point(W, np.zeros(objective.n_classes))
    centres = means @ W.T
    apart = np.diag(centres)[:, np.newaxis] - centres
    margins = np.take_along_axis(first.scores, objective.labels[:, np.newaxis].astype(np.int64), 1) - first.scores
    off = ~np.eye(objective.n_classes, dtype=bool)
    # Intercepts would move the margins of every pair to 1; without them they scatter about their mean.
    margins -= apart[objective.labels] if objective.fit_intercept else float(np.mean(apart[off]))
    counted = np.zeros((objective.n_classes, objective.n_classes))
    np.add.at(counted, objective.labels, objective.weights[:, np.newaxis] * margins**2)
    spread = np.sqrt(counted / objective.class_weights[:, np.newaxis])
    distances = np.maximum(first.distances[off], max(1e-3 * float(first.distances.max()), 1e-100))
    ratio = max(1.0, SMOOTH * float(np.median(spread[off] / distances)))
    half = 0.5 * float(np.mean((apart + apart.T)[off]))
    noisy = objective.with_noise(ratio, blur)
    stretch = 1.0 / max(half, float(np.median(noisy.distances(W)[off])), 1e-100)
    if objective.fit_intercept:
        b = -0.5 * stretch * np.einsum("cj,cj->c", means + means.mean(axis=0), W)
    else:
        b = np.zeros(objective.n_classes)
    return settle(noisy, noisy.point(W, b - b.mean(), first.scores, stretch)), ratio


def settle(objective: Multiclass, point: Point, tol: float = ROUGHLY) -> Point:
    """Return the best point with the direction of W, by Newton's method in its length and the intercepts.

    ``tol`` bounds the derivatives that remain, relative to ``sum a s f*``; X is not read.
    """
    n = objective.n_classes
    for _ in range(30):
        gradient, hessian = _plane(objective, point)
        if float(np.abs(gradient).max()) <= tol * point.noisy:
            break
        # Intercepts matter only by their differences; a little curvature keeps the step finite.
        hessian[1:, 1:] += (np.trace(hessian[1:, 1:]) / n + 1e-12 * objective.weight) / n
        diagonal(hessian)[:] *= 1 + 1e-9
        diagonal(hessian)[:] += 1e-12 * objective.weight
        step = -np.linalg.solve(hessian, gradient)
        decrease = -float(gradient @ step)
        if not decrease > 1e-15 * objective.weight:
            break
        reach = 2.0 * (1 + float(np.abs(point.b).max()))
        t = min(1.0, 0.8 / max(-step[0], 0.8), 3.0 / max(step[0], 3.0), reach / max(np.abs(step[1:]).max(), reach))
        for _ in range(25):
            trial = objective.point(point.W, point.b + t * step[1:], point.scores, point.stretch * (1 + t * step[0]))
            if trial.value <= point.value - 1e-4 * t * decrease:
                break
            t *= 0.3
        else:
            break
        point = trial
    return point


def _plane(objective: Multiclass, point: Point) -> tuple[Array, Array]:
    """Return the derivatives of F by the relative length of W and by the intercepts, from the sums of the cells."""
    cells, a = point.cells, point.scales
    room = 1.0 - (point.b[:, np.newaxis] - point.b)  # m at W = 0, so that the margin is room - a z
    pull = point.distances**2 / a  # the derivative of a by the relative length
    slack = a - pull
    bend = objective.blur**2 * point.distances**2 / a**3
    ridge = objective.ridge(point)
    n = objective.n_classes
    gradient = np.zeros(n + 1)
    gradient[0] = np.sum(a * (cells.value - cells.conjugate) - room * cells.slope + pull * cells.conjugate) + ridge
    hessian = np.zeros((n + 1, n + 1))
    along = slack**2 * cells.curve_zz - 2 * slack * room * cells.curve_z + room**2 * cells.curve
    hessian[0, 0] = np.sum(along / a + bend * cells.conjugate) + ridge
    if objective.fit_intercept:
        gradient[1:] = cells.slope.sum(axis=0) - cells.slope.sum(axis=1)
        mixed = (room * cells.curve - slack * cells.curve_z) / a
        hessian[0, 1:] = hessian[1:, 0] = mixed.sum(axis=1) - mixed.sum(axis=0)
        hessian[1:, 1:] = laplacian((cells.curve + cells.curve.T) / a)
    else:
        diagonal(hessian)[1:] = 1.0
    return gradient, hessian


def _split(expansion: Expansion, p: Array) -> tuple[Array, Array]:
    """Return the end of a step in the unknowns as (W, b)."""
    full, point = expansion.unfold(p), expansion.point
    return point.coef + full[:, :-1], point.b + full[:, -1]


def _follow(objective: Multiclass, expansion: Expansion, p: Array) -> Expansion:
    """Take the best part of a step to another noise level, after which F is not comparable with before."""
    start = objective.again(expansion.point)
    end = objective.point(*_split(expansion, p))
    best = first_below(start, end, lambda t: objective.between(start, end, t))
    return objective.expand(settle(objective, best))


def _advance(objective: Multiclass, expansion: Expansion, p: Array, decrement: float) -> Expansion:
    """Take a Newton step at one noise level, shortened until F falls."""
    point = expansion.point
    W, b = _split(expansion, p)
    # Where F resolves no more a step still improves the slopes, and with them the dual: let it.
    slack = ROUNDING * (100 if is_lost(point, decrement) else 1)
    if decrement <= NEAR * point.value:
        visited = objective.visit(W, b)
        if falls(point, visited.point, 1.0, decrement, slack):
            return visited
        end = visited.point
    else:
        end = objective.point(W, b)
    trial = shortened(point, end, lambda t: objective.between(point, end, t), decrement, slack)
    return objective.expand(settle(objective, trial))


class Blocks:
    """The inverse of the blocks of the Hessian on its diagonal, one for each class; the pairs couple them weakly.

    The terms that couple a row's scale to its score are left out, and no more rows are used than it takes, of those
    that bend F most.
    """

    is_exact = False

    def __init__(self, expansion: Expansion) -> None:
        objective, curve = expansion.objective, expansion.pulls.curve
        self.n_classes, self.fit_intercept = objective.n_classes, objective.fit_intercept
        most = ROWS_PER_COLUMN * objective.rows.n_columns
        rng = np.random.default_rng(0)
        stiff = objective.n_classes * objective.stiffness
        self._factors = []
        for c in range(objective.n_classes):
            weight = np.where(objective.labels == c, curve.sum(axis=1), curve[:, c])
            used = np.flatnonzero(weight > BENT * weight.mean())
            share = min(1.0, most / max(1, len(used)))
            if share < 1:
                used = np.sort(rng.choice(used, most, replace=False))
            block = self._gram(objective, used, weight[used] / share)
            objective.noise.add_metric(float(expansion.tension[c].sum()), block[:-1, :-1])
            diagonal(block)[:] += stiff
            if not self.fit_intercept:
                block[-1, :-1] = 0.0
                block[-1, -1] = 1.0
            self._factors.append(factorise(block))

    def _gram(self, objective: Multiclass, used: Index, weight: Array) -> Array:
        rows, zeros = objective.rows.take(used), np.zeros(len(used))
        if len(used) == 0:
            return np.zeros((rows.n_columns + 1, rows.n_columns + 1))
        return rows.gram(weight, zeros, np.zeros(rows.n_columns))

    def solve(self, g: Array) -> Array:
        """Return the approximate inverse times ``g``."""
        G = np.zeros((self.n_classes, g.size // (self.n_classes - 1)))
        G[:-1] = g.reshape(self.n_classes - 1, -1)
        G[-1] = -G[:-1].sum(axis=0)
        P = np.array([factor.solve(row) for factor, row in zip(self._factors, G, strict=True)])
        if not self.fit_intercept:
            P[:, -1] = 0.0
        return np.asarray((P[:-1] - P[-1]).ravel())
