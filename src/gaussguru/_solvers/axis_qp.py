"""Newton steps for a noise that is a maximum, ``a = sigma max |w_j|``: a trust-region active-set method.

F is a smooth function ``Phi(w, a, b)`` and grows with a. So a step minimises the quadratic model of Phi and keeps the
noise exact::

    min over p, t, shift   model of Phi at (w + p, a(t), b + shift)    subject to   |w_j + p_j| <= t

Its solution lies on a face of these constraints: some ``w_j`` are tied at ``+-t`` and move with it, others are free. On
a face the model is a plain quadratic; :meth:`Program.minimise` goes from face to face, many constraints at a time, and
reads no X. Near the optimum the face stays, and the steps are Newton's on it. Far from it each free feature has a trust
radius: a ridge in proportion to its force, which vanishes at the optimum. A line search would shorten the steps of all
features for the sake of one.

A step to less smoothing is the same program with less noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gaussguru._data.rows import combine, margins
from gaussguru._linalg import MAX_COLUMNS, Array, Index, diagonal, mirrored
from gaussguru._problems import binary
from gaussguru._problems.axis import AxisLocal, Face, curvature
from gaussguru._problems.smoothing import Smoothing
from gaussguru._solvers.linear_systems import Step
from gaussguru.noise import TIED, tied

# With too many features for a Hessian, so many of them move in a step, apart from those that are tied.
WORKING = 300
# Faces visited in one program at first: the model falls from each to the next, so it need not be solved to the end, but
# more after each that was not. After some, constraints leave one by one, which cannot cycle.
FACES, MORE, CAREFUL = 3, 60, 30
# Fractions of a step over the edges of its face that are tried.
FRACTIONS = (1.0, 0.3, 0.1, 0.03)
# Features that can lower the model by less than this fraction of what it fell, all together, stay tied.
LITTLE = 0.01
# Forces below this fraction of their size are rounding.
ROUNDING = 1e-12
# Trust radius of each free feature, in units of a / max_i |x_ij|: at first, at least and at most. It is halved after a
# step with less than POOR of the predicted decrease and doubled otherwise.
RADIUS, SHORTEST, LONGEST, POOR = 16.0, 4.0, 1e6, 0.25
TINY = 1e-300
# What else an iteration does with a row, in products with one of its values.
ROW = 100.0


@dataclass
class Model:
    """The quadratic model of Phi in ``(w_J, m, a, b)``.

    J are the features that may move on their own; ``m`` moves all the others that are tied, by their signs.
    """

    columns: Index
    others: Array
    hessian: Array
    at: AxisLocal


class AxisSystems:
    """The models at one point after another; kept while they serve, and corrected by what gradients tell (BFGS)."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._most = FACES
        self._radius, self._promised = RADIUS, np.inf

    def forget(self, *, factor: bool = False) -> None:
        """Forget the model, because the function changed."""
        if factor:
            self._model, self._radius = None, RADIUS

    def leave(self, local: AxisLocal) -> None:
        """Make a model for more rows: what the curvature is here costs little, and it is where they begin."""
        if local.problem.rows.n_columns <= MAX_COLUMNS:
            self._model = _model(local)

    def learn(self, before: AxisLocal, after: AxisLocal, decrement: float) -> None:
        """Correct the model by a step and what it did to the gradient (Nocedal & Wright, 6.19)."""
        if before.value - after.value < POOR * self._promised:
            self._radius = max(SHORTEST, min(RADIUS, self._radius / 2))
        else:
            self._radius = min(LONGEST, 2 * self._radius)
        model = self._model
        if model is None or before.is_cheap or len(model.columns) < before.problem.rows.n_columns:
            return
        step = _arguments(after) - _arguments(before)
        change = after.forces - before.forces
        if not before.problem.fit_intercept:
            step[-1] = 0.0
        bend, seen = float(step @ change), model.hessian @ step
        modelled = float(step @ seen)
        if bend > 0 and modelled > 0:
            model.hessian = model.hessian + np.outer(change / bend, change) - np.outer(seen / modelled, seen)

    def step(self, local: AxisLocal, previous: float, *, final: bool) -> Step:
        """Return the step to the minimum of the model; ``previous`` is the decrement before the last one."""
        program, lazy = self._program(local)
        delta = program.minimise(local.problem.smoothing)
        # The dearer an iteration, two products and what its rows take, beside a model, the sooner a new one pays.
        rows = local.problem.rows
        dear = (2 + ROW * rows.n_rows / max(1, rows.n_values)) / local.hessian_cost
        if lazy and program.decrement(delta) > binary.CONTRACTION ** max(1.0, dear) * previous:
            self._model = None
            program, _ = self._program(local)
            delta = program.minimise(local.problem.smoothing)
        if not program.solved:
            self._most = min(MORE, 2 * self._most)
        self._promised = program.decrement(delta)
        return Step(program.full(delta), self._promised, lambda less: program.full(program.minimise(less)))

    def _program(self, local: AxisLocal) -> tuple["Program", bool]:
        few = local.problem.rows.n_columns <= MAX_COLUMNS
        known = "curvature" in local.__dict__
        lazy = self._model is not None and not local.is_cheap and few and not known
        if self._model is None or not (lazy or self._model.at is local):
            self._model = _model(local)
        # Where a model costs nothing the next one is better than the last faces of this one.
        most = 2 * self._most // 3 if local.is_cheap else self._most
        return Program(local, self._model, most, self._radius), lazy


def _arguments(local: AxisLocal) -> Array:
    """Return ``(w, m, a, b)``, all features in w."""
    point = local.point
    return np.concatenate([point.coef, [0.0, point.scale, point.b]])


def _model(local: AxisLocal) -> Model:
    problem, rows = local.problem, local.problem.rows
    columns, others = _working_set(local)
    d = len(columns)
    if d == rows.n_columns:
        return Model(columns, others, local.curvature, local)
    some = rows.picked(columns)
    weights = binary.Weights(*(some.split(rows.gather(part)) for part in local.row_weights))
    hessian = curvature(replace(problem, rows=some), weights)
    merged = rows.gather(rows.each(margins, w=others))
    curve, tilt = rows.gather(local.row_weights.curve), rows.gather(local.row_weights.tilt)
    bent = curve * merged
    hessian[d, :d] = some.total(combine, some.split(bent)).sum(axis=0)
    hessian[d, d] = float(bent @ merged) + problem.l2 * float(others @ others)
    hessian[d + 1, d] = float(bent @ tilt)
    hessian[d + 2, d] = float(bent.sum()) if problem.fit_intercept else 0.0
    return Model(columns, others, mirrored(hessian), local)


def _working_set(local: AxisLocal) -> tuple[Index, Array]:
    """Return the features that may move on their own, and the signs of those that move together."""
    w, d = local.point.coef, local.problem.rows.n_columns
    if d <= MAX_COLUMNS:
        return np.arange(d), np.zeros(d)
    signs = tied(w)
    force = local.forces[:d]
    # What is tied stays so unless its force points inwards; what is free moves the more, the larger its force.
    wants = np.where((signs != 0) & (signs * force <= 0), 0.0, np.abs(force))
    columns = np.sort(np.argsort(-wants, kind="stable")[:WORKING])
    columns = columns[wants[columns] > 0]
    others = signs.copy()
    others[columns] = 0.0
    return columns, others


class Program:
    """One quadratic program; its unknowns are ``(w_J, t, b)``, and those of the model follow from them."""

    def __init__(self, local: AxisLocal, model: Model, most: int, radius: float) -> None:
        self.most, self.solved = most, False
        problem, point = local.problem, local.point
        self.columns, self.others, self.hessian = model.columns, model.others, model.hessian.copy()
        self.point, self.problem, self.fit_intercept = point, problem, problem.fit_intercept
        self.forces, self.w, peaks = local.forces, point.coef, problem.rows.peaks
        self.length = float(np.abs(self.w).max())
        # Features that do not move at all keep t from falling below them.
        self.least, self.holding, d = 0.0, 0, len(self.w)
        if len(model.columns) < d:
            still = model.others == 0
            still[model.columns] = False
            self.least = float(np.abs(self.w[still]).max(initial=0.0))
            self.holding = int(model.others.any()) + (self.least > 0)
            together = float(self.forces[:d] @ model.others)
            self.forces = np.concatenate([self.forces[model.columns], [together], self.forces[-2:]])
            self.w, peaks = self.w[model.columns], peaks[model.columns]
        signs = np.where(np.abs(self.w) >= (1 - TIED) * self.length, np.sign(self.w), 0.0)
        strengths = np.abs(self.forces[:-3])
        # How far the ridge lets a force alone move its feature.
        self.farthest = radius * point.scale / np.maximum(peaks, TINY)
        diagonal(self.hessian)[:-3] += np.where(signs == 0, strengths / self.farthest, 0.0)
        # The scale is convex in t where there is blur.
        (noise, blur), sigma = problem.smoothing, problem.noise.sigma
        self.hessian[-3, -3] += self.forces[-2] * (noise * sigma * blur) ** 2 / point.scale**3
        self.here = np.empty(len(self.w) + 3)
        self.here[:-3], self.here[-3:] = self.w, (self.length, point.scale, 0.0)
        self.rounding = ROUNDING * (strengths + TINY)
        # Where a program begins: here, and then where the one before it ended.
        self.last = _onto(signs, self.here.copy()), signs

    def full(self, delta: Array) -> Array:
        """Return a step in ``(w, b)``."""
        p: Array = self.others * delta[-3]
        p[self.columns] += delta[:-3]
        return np.append(p, delta[-1])

    def decrement(self, delta: Array) -> float:
        """Return how much Phi falls to first order."""
        return -float(self.forces @ delta)

    def _scale(self, smoothing: Smoothing) -> tuple[float, Callable[[float], float]]:
        """Return the derivative of the scale by t at some smoothing, and the scale, linear in t from here."""
        noisy = smoothing.noise * self.problem.noise.sigma * self.length
        scale = math.hypot(noisy, smoothing.blur)
        slope = noisy**2 / scale / self.length
        return slope, lambda t: scale + slope * (t - self.length)

    def minimise(self, smoothing: Smoothing) -> Array:
        """Return the step of the model's arguments to its minimum at some smoothing."""
        slope, scale = self._scale(smoothing)
        d = len(self.w)
        self.solved = False
        x, signs = self.last
        x[d + 1] = scale(x[d])
        force, best = self._look(x)
        for visit in range(self.most):
            face = Face(self.hessian, signs, slope)
            step = self._step(face, force)
            # As far as t stays positive, and above what does not move.
            room = max(self.least, 0.1 * x[d])
            reach = min(1.0, (x[d] - room) / -step[d]) if step[d] < 0 else 1.0
            if reach < 1:
                step *= reach
            end = x + step
            over = np.abs(end[:d]) > end[d] * (1 + 1e-15)
            over &= face.free[:d]
            if over.any():
                x, signs, (force, best) = self._tie(x, step, signs, over, best)
                continue
            x = end
            force, best = self._look(x)
            released = self._released(signs, force, best, x[d], one=visit >= CAREFUL)
            if not released.any():
                self.solved = True
                break
            inward = signs * force[:d]
            signs = np.where(released, 0.0, signs)
            # What was tied had no ridge; without one, a feature of hardly any curvature would take all others along.
            ridge, moved = np.where(released, inward / self.farthest, 0.0), (x - self.here)[:d]
            diagonal(self.hessian)[:d] += ridge
            force[:d] += ridge * moved
            best += 0.5 * float(moved.dot(ridge * moved))
        self.last = _onto(signs, x), signs
        delta: Array = x - self.here
        return delta

    def _released(self, signs: Array, force: Array, best: float, t: float, *, one: bool) -> NDArray[np.bool_]:
        """Return which tied features leave the face: those that the model pulls inwards, or the first ``one`` of them.

        A feature can lower the model by no more than what its force does on the way to the other side.
        """
        d = len(signs)
        inward = signs * force[:d]
        released = inward > np.maximum(self.rounding, LITTLE * -best / (2 * t * d))
        if not released.any() or np.count_nonzero(signs) + self.holding <= 1:
            return np.zeros(d, dtype=bool)
        if one:
            released &= inward >= (1 - ROUNDING) * inward.max()
        if not self.holding and np.all(released[signs != 0]):
            released[int(np.argmin(np.where(signs != 0, inward, np.inf)))] = False  # one must hold t
        return released

    def _tie(
        self, x: Array, step: Array, signs: Array, over: NDArray[np.bool_], best: float
    ) -> tuple[Array, Array, tuple[Array, float]]:
        """Return where a step that leaves the constraints ends, the signs of what is tied there, and the model there.

        What goes too far is tied, all of it where the model falls, else what the longest step within the constraints
        meets.
        """
        d = len(signs)
        for fraction in FRACTIONS:
            end = x + fraction * step
            ties = np.where((np.abs(end[:d]) >= end[d]) & (signs == 0), np.sign(end[:d]), signs)
            end = _onto(ties, end)
            looked = self._look(end)
            if looked[1] < best:
                return end, ties, looked
        w, t, dw, dt = x[:d], x[d], step[:d], step[d]
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.where(dw > 0, (t - w) / (dw - dt), (t + w) / (-dw - dt))
        gaps = np.where(over, np.maximum(gaps, 0.0), np.inf)
        fraction = min(1.0, float(gaps.min()))
        end = x + fraction * step
        ties = np.where(gaps <= fraction, np.sign(end[:d]), signs)
        end = _onto(ties, end)
        return end, ties, self._look(end)

    def _look(self, x: Array) -> tuple[Array, float]:
        """Return the forces at some arguments, and the value of the model."""
        delta = x - self.here
        force = self.hessian.dot(delta)
        force += self.forces
        return force, 0.5 * float(delta.dot(force + self.forces))

    def _step(self, face: Face, force: Array) -> Array:
        """Return the step of the arguments to the minimum of the model on a face."""
        delta = face.spread(-face.solve(face.gather(force)))
        if not self.fit_intercept:
            delta[-1] = 0.0
        return delta


def _onto(signs: Array, x: Array) -> Array:
    """Return arguments with those that are tied exactly so."""
    d = len(signs)
    x[:d] = np.where(signs != 0, signs * x[d], x[:d])
    return x
