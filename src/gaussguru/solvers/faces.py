"""Newton steps for a noise that is a maximum: ``a = sigma max |w_j|`` has a kink wherever two ``|w_j|`` are tied.

F is a smooth function ``Phi(w, a, b)`` of its arguments, and grows with a. So Newton's method takes the quadratic model
of Phi and keeps the noise exact::

    min over p, t, shift   model of Phi at (w + p, sigma t, b + shift)    subject to   |w_j + p_j| <= t

Its solution lies on a face of these constraints: some ``w_j`` are tied at ``+-t`` and move with it, others are free. On
a face the model is a plain quadratic; :func:`minimise` walks from face to face, many constraints at a time, which
needs no look at X. Near the optimum the face stays, and the steps are Newton's on it: the ties come out exact.
Far from it a ridge on the free columns, in proportion to their forces, keeps each where the model holds.

A step to a lower noise level is the same program with a smaller sigma.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gaussguru.certificates.kinks import Face, curvature
from gaussguru.cholesky import MAX_COLUMNS, mirrored
from gaussguru.losses import Array, Index
from gaussguru.noise import TIED, diagonal, tied
from gaussguru.objective import Expansion
from gaussguru.rows import Rows
from gaussguru.solvers.inverse import CONTRACTION, Step

# With too many columns for a Hessian, so many of them move in a step, apart from those that are tied.
WORKING = 300
# Faces visited in one program at first: the model falls from each to the next, so it need not be solved to the end, but
# more after each that was not. After some, constraints leave one by one, which cannot cycle.
FACES, MORE, CAREFUL = 3, 60, 30
# Parts of a step over the edges of its face that are tried.
PARTS = (1.0, 0.3, 0.1, 0.03)
# What may fall by less than this part of what the model fell, all together, stays tied.
LITTLE = 0.01
# Forces below this part of their size are rounding.
ROUNDING = 1e-12
# How far its force alone may move a free column, in noise scales of the row that has most of it: at first, and at
# least; no farther than at first after a step that falls by less than a part of what it promised, and half as far as
# before, else twice as far. (What is nearly linear until rows pass the margin the model does not see; a shorter step of
# all is no cure.)
REACH, SHORTEST, LONGEST, POOR = 16.0, 4.0, 1e6, 0.25
TINY = 1e-300
# What else an iteration does with a row, in products with one of its values.
ROW = 100.0


@dataclass
class Model:
    """The quadratic model of Phi in ``(w_J, m, a, b)``.

    J are the columns that may move on their own; ``m`` moves all the others that are tied, by their signs.
    """

    columns: Index
    others: Array
    hessian: Array
    at: Expansion


class Faces:
    """The models at one point after another; kept while they serve, and corrected by what gradients tell (BFGS)."""

    def __init__(self) -> None:
        self.near = 0.0  # the decrement from which on a proof is tried
        self._model: Model | None = None
        self._most = FACES
        self._reach, self._promised = REACH, np.inf

    def curvature(self, expansion: Expansion) -> Array:
        """Return the Hessian of the model at a point with few columns; it is kept for the next step."""
        if self._model is None or self._model.at is not expansion:
            self._model = _model(expansion)
        return self._model.hessian

    def forget(self, *, factor: bool = False) -> None:
        """Forget the model, because the function changed."""
        if factor:
            self._model, self._reach = None, REACH

    def learn(self, before: Expansion, after: Expansion) -> None:
        """Correct the model by a step and what it did to the gradient (Nocedal & Wright, 6.19)."""
        if before.point.value - after.point.value < POOR * self._promised:
            self._reach = max(SHORTEST, min(REACH, self._reach / 2))
        else:
            self._reach = min(LONGEST, 2 * self._reach)
        model = self._model
        if model is None or before.is_cheap or len(model.columns) < before.objective.rows.n_columns:
            return
        step = _arguments(after) - _arguments(before)
        change = _forces(after) - _forces(before)
        if not before.objective.fit_intercept:
            step[-1] = 0.0
        curvature, seen = float(step @ change), model.hessian @ step
        modelled = float(step @ seen)
        if curvature > 0 and modelled > 0:
            model.hessian += np.outer(change / curvature, change) - np.outer(seen / modelled, seen)

    def step(self, expansion: Expansion, previous: float, *, pin: bool = False) -> Step:
        """Return the step to the minimum of the model, on the plane of constant ``w.pull`` with ``pin``."""
        if previous == 0:
            self._model = None
        program = self._program(expansion, pin=pin)
        delta = program.minimise(1.0)
        # The dearer an iteration, two products and what its rows take, beside a model, the sooner a new one pays.
        rows = expansion.objective.rows
        dear = (2 + ROW * rows.n_rows / rows.n_values) / expansion.factor_cost
        enough = CONTRACTION ** max(1.0, dear) * previous
        if previous > self.near:
            enough = max(enough, self.near)  # what comes next is a proof, which may do without
        if program.lazy and program.decrement(delta) > enough:
            self._model = None
            program = self._program(expansion, pin=pin)
            delta = program.minimise(1.0)
        if not program.solved:
            self._most = min(MORE, 2 * self._most)
        self._promised = program.decrement(delta)
        return Step(program.full(delta), self._promised, lambda part: program.full(program.minimise(part)))

    def _program(self, expansion: Expansion, *, pin: bool) -> "Program":
        rows = expansion.objective.rows
        lazy = self._model is not None and not pin and not expansion.is_cheap and rows.n_columns <= MAX_COLUMNS
        if self._model is None or not (lazy or self._model.at is expansion):
            self._model = _model(expansion)
        # Where a model costs nothing the next one is better than the last faces of this one.
        most = 2 * self._most // 3 if expansion.is_cheap else self._most
        program = Program(expansion, self._model, most, self._reach, lazy=lazy, pin=pin)
        if pin:
            self._model = None
        return program


def _arguments(expansion: Expansion) -> Array:
    """Return ``(w, m, a, b)``, all columns in w."""
    point = expansion.point
    return np.concatenate([point.coef, [0.0, point.scale, point.b]])


def _forces(expansion: Expansion) -> Array:
    """Return the gradient of Phi by the same."""
    level, d = expansion.point.totals.conjugate, len(expansion.noise_gradient)
    forces = np.empty(d + 3)
    np.subtract(expansion.gradient[:-1], level * expansion.noise_gradient, out=forces[:d])
    forces[d:] = 0.0, level, expansion.gradient[-1]
    return forces


def _model(expansion: Expansion) -> Model:
    objective, pulls = expansion.objective, expansion.pulls
    rows = objective.rows
    columns, others = _working_set(expansion)
    d, part = len(columns), rows
    if d < rows.n_columns:
        picked = rows.X[:, columns]
        part = Rows(sp.csr_array(picked) if rows.sparse else np.ascontiguousarray(picked), rows.map)
    hessian = curvature(part, pulls, objective.l2, fit_intercept=objective.fit_intercept)
    if d < rows.n_columns:
        merged = rows.margins(others)
        bent = pulls.weight * merged
        hessian[d, :d] = part.combine(bent).sum(axis=0)
        hessian[d, d] = float(bent @ merged) + objective.l2 * float(others @ others)
        hessian[d + 1, d] = float(bent @ pulls.tilt)
        hessian[d + 2, d] = float(bent.sum()) if objective.fit_intercept else 0.0
    return Model(columns, others, mirrored(hessian), expansion)


def _working_set(expansion: Expansion) -> tuple[Index, Array]:
    """Return the columns that may move on their own, and the signs of those that move together."""
    w, d = expansion.point.coef, expansion.objective.rows.n_columns
    if d <= MAX_COLUMNS:
        return np.arange(d), np.zeros(d)
    signs = tied(w)
    force = _forces(expansion)[:d]
    # What is tied stays so unless its force points inwards; what is free moves the more, the larger its force.
    wants = np.where((signs != 0) & (signs * force <= 0), 0.0, np.abs(force))
    columns = np.sort(np.argsort(-wants, kind="stable")[:WORKING])
    columns = columns[wants[columns] > 0]
    others = signs.copy()
    others[columns] = 0.0
    return columns, others


class Program:
    """One quadratic program; its unknowns are ``(w_J, t, b)``, and those of the model follow from them."""

    def __init__(self, expansion: Expansion, model: Model, most: int, reach: float, *, lazy: bool, pin: bool) -> None:
        self.most, self.solved = most, False
        objective, point = expansion.objective, expansion.point
        self.columns, self.others, self.hessian, self.lazy = model.columns, model.others, model.hessian, lazy
        self.point, self.sigma, self.fit_intercept = point, objective.noise.sigma, objective.fit_intercept
        self.forces, self.w, peaks = _forces(expansion), point.coef, objective.rows.peaks
        self.length = float(np.abs(self.w).max())
        # Columns that do not move at all keep t from falling below them.
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
        # How far the ridge lets a force alone move its column.
        self.farthest = np.inf if pin else reach * point.scale / np.maximum(peaks, TINY)
        if not pin:
            self.hessian = self.hessian.copy()
            diagonal(self.hessian)[:-3] += np.where(signs == 0, strengths / self.farthest, 0.0)
        self.here = np.empty(len(self.w) + 3)
        self.here[:-3], self.here[-3:] = self.w, (self.length, point.scale, 0.0)
        self.rounding = ROUNDING * (strengths + TINY)
        # Where a program begins: here, and then where the one before it ended.
        self.last = _onto(signs, self.here.copy()), signs
        self.plane: Array | None = None
        if pin:
            pull = objective.pull
            self.plane = np.concatenate([pull[model.columns], [float(pull @ model.others), 0.0, 0.0]])
            bend = float(self.plane @ self.hessian @ self.plane) / float(self.plane @ self.plane) ** 2
            self.hessian = self.hessian + np.outer(self.plane * bend, self.plane)

    def full(self, delta: Array) -> Array:
        """Return a step in ``(w, b)``."""
        p: Array = self.others * delta[-3]
        p[self.columns] += delta[:-3]
        return np.append(p, delta[-1])

    def decrement(self, delta: Array) -> float:
        """Return how much Phi falls to first order."""
        return -float(self.forces @ delta)

    def minimise(self, part: float) -> Array:
        """Return the step of the model's arguments to its minimum at ``part`` of the noise."""
        sigma, d = self.sigma * part, len(self.w)
        self.solved = False
        x, signs = self.last
        x[d + 1] = sigma * x[d]
        force, best = self._look(x)
        for visit in range(self.most):
            face = Face(self.hessian, signs, sigma)
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
            inward = signs * force[:d]
            if self.plane is not None:
                inward -= signs * self.plane[:d] * self._tension(force, x)
            # A column can lower the model by no more than what its force does on the way to the other side.
            released = inward > np.maximum(self.rounding, LITTLE * -best / (2 * x[d] * d))
            if not released.any() or np.count_nonzero(signs) + self.holding <= 1:
                self.solved = True
                break
            if visit >= CAREFUL:
                released &= inward >= (1 - ROUNDING) * inward.max()
            if not self.holding and np.all(released[signs != 0]):
                released[int(np.argmin(np.where(signs != 0, inward, np.inf)))] = False  # one must hold t
            signs = np.where(released, 0.0, signs)
            # What was tied had no ridge; without one, a column of hardly any curvature would take all others along.
            ridge, moved = np.where(released, inward / self.farthest, 0.0), (x - self.here)[:d]
            diagonal(self.hessian)[:d] += ridge
            force[:d] += ridge * moved
            best += 0.5 * float(moved.dot(ridge * moved))
        self.last = _onto(signs, x), signs
        delta: Array = x - self.here
        return delta

    def _tie(
        self, x: Array, step: Array, signs: Array, over: NDArray[np.bool_], best: float
    ) -> tuple[Array, Array, tuple[Array, float]]:
        """Return where a step that leaves the constraints ends, the signs of what is tied there, and a look at it.

        What goes too far is tied, all of it where the model falls, else what the longest step within the constraints
        meets.
        """
        d = len(signs)
        for part in PARTS if self.plane is None else ():
            end = x + part * step
            ties = np.where((np.abs(end[:d]) >= end[d]) & (signs == 0), np.sign(end[:d]), signs)
            end = _onto(ties, end)
            looked = self._look(end)
            if looked[1] < best:
                return end, ties, looked
        w, t, dw, dt = x[:d], x[d], step[:d], step[d]
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.where(dw > 0, (t - w) / (dw - dt), (t + w) / (-dw - dt))
        gaps = np.where(over, np.maximum(gaps, 0.0), np.inf)
        part = min(1.0, float(gaps.min()))
        end = x + part * step
        ties = np.where(gaps <= part, np.sign(end[:d]), signs)
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
        step = -face.solve(face.gather(force))
        if self.plane is not None:
            normal = face.gather(self.plane)
            across = face.solve(normal)
            step -= across * (float(normal @ step) / float(normal @ across))
        delta = face.spread(step)
        if not self.fit_intercept:
            delta[-1] = 0.0
        return delta

    def _tension(self, force: Array, x: Array) -> float:
        """Return the multiplier of the plane: the force along ``w`` itself must vanish."""
        along = x.copy()
        along[-1] = 0.0
        return float(force @ along) / float(self.plane @ along) if self.plane is not None else 0.0


def _onto(signs: Array, x: Array) -> Array:
    """Return arguments with those that are tied exactly so."""
    d = len(signs)
    x[:d] = np.where(signs != 0, signs * x[d], x[:d])
    return x
