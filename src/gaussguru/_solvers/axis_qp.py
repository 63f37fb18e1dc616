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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gaussguru._linalg import EPS, MAX_COLUMNS, Array, diagonal, extended
from gaussguru._problems.axis import AxisLocal, Face, Model
from gaussguru._problems.protocol import CONTRACTION
from gaussguru._problems.smoothing import NEGLIGIBLE, Smoothing
from gaussguru._solvers.linear_systems import Step
from gaussguru._solvers.policy import DEFAULT
from gaussguru.noise import TIED, tied


@dataclass(frozen=True)
class Policy:
    """The tuning constants of quadratic programs."""

    # Faces visited in one program at most: the model falls from each to the next, so it need not be solved to the end
    # (measured: 7 to 60 differ by 20 %, and not in one direction).
    faces: int = 7
    # Features that can lower the model by less than this fraction of what it fell, all together, stay tied (measured:
    # with 0 covtype takes 10 % more iterations).
    little: float = 0.01
    # Trust radius of each free feature at first, in units of a / max_i |x_ij|; it is never below one (measured: a fixed
    # one of 8 takes a third more passes on covtype).
    radius: float = 16.0
    # It is halved after a step with less than this fraction of the predicted decrease, else doubled (Nocedal & Wright,
    # algorithm 4.1).
    poor: float = 0.25


POLICY = Policy()


class AxisSystems:
    """The models at one point after another; kept while they serve, and corrected by what gradients tell (BFGS)."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._radius = POLICY.radius

    def forget(self, *, factor: bool = False) -> None:
        """Forget the model, because the function changed."""
        if factor:
            self._model, self._radius = None, POLICY.radius

    def leave(self, local: AxisLocal) -> None:
        """Make a model for more rows: what the curvature is here costs little, and it is where they begin."""
        if local.problem.rows.n_columns <= MAX_COLUMNS:
            self._model = local.model

    def expected(self, local: AxisLocal) -> float:
        """Return 0: a step takes a quadratic program."""
        return 0.0

    def learn(self, before: AxisLocal, after: AxisLocal, decrement: float) -> None:
        """Correct the model by a step and what it did to the gradient (Nocedal & Wright, 6.19)."""
        is_poor = before.value - after.value < POLICY.poor * decrement
        self._radius = max(1.0, min(POLICY.radius, self._radius / 2)) if is_poor else 2 * self._radius
        model = self._model
        if model is None or _is_renewed(before):
            return
        step, change = _arguments(after) - _arguments(before), after.forces - before.forces
        bend, seen = float(step @ change), model.hessian @ step
        modelled = float(step @ seen)
        if bend > 0 and modelled > 0:
            hessian = model.hessian + np.outer(change / bend, change) - np.outer(seen / modelled, seen)
            self._model = replace(model, hessian=hessian)

    def step(self, local: AxisLocal, previous: float, *, final: bool) -> Step:
        """Return the step to the minimum of the model; ``previous`` is the decrement before the last one."""
        model = self._model
        lazy = model is not None and not _is_renewed(local) and "model" not in local.__dict__
        if model is None or not lazy:
            self._model = model = local.model
        program = Program(local, model, self._radius)
        delta = program.minimise(local.problem.smoothing)
        decrement = program.decrement(delta)
        # Where a new model costs few products, an old one must leave less: it may hide what has hardly any curvature.
        cheap = local.hessian_cost < DEFAULT.cheap_ratio
        if lazy and decrement > (NEGLIGIBLE if cheap else CONTRACTION) * previous:
            self._model = None
            return self.step(local, previous, final=final)
        return Step(program.full(delta), decrement, lambda less: program.full(program.minimise(less)))


def _is_renewed(local: AxisLocal) -> bool:
    """Return whether a model is made at every point: where it costs little, and where it has some features only."""
    return local.is_cheap or local.problem.rows.n_columns > MAX_COLUMNS


def _arguments(local: AxisLocal) -> Array:
    """Return ``(w, t, a, b)``, all features in w."""
    point = local.point
    return np.concatenate([point.coef, [0.0, point.scale, point.b]])


class Program:
    """One quadratic program; its arguments are ``(w_J, t, a, b)``."""

    def __init__(self, local: AxisLocal, model: Model, radius: float) -> None:
        problem, point, columns = local.problem, local.point, model.columns
        self.columns, self.others, self.hessian = columns, model.others, model.hessian.copy()
        w, forces = point.coef, local.forces
        together = float(forces[:-3] @ model.others)
        self.forces = np.concatenate([forces[columns], [together], forces[-2:]])
        # Features that do not move at all keep t from falling below them.
        still = model.others == 0
        still[columns] = False
        self.least = float(np.abs(w[still]).max(initial=0.0))
        self.is_held = self.least > 0 or bool(model.others.any())
        self.length, self.sigma = float(np.abs(w).max()), problem.noise.sigma
        self.here = np.concatenate([w[columns], [self.length, point.scale, 0.0]])
        signs, strengths = tied(w)[columns], np.abs(self.forces[:-3])
        # The ridge per force lets a force alone move its feature as far as the trust radius.
        self.ridge = problem.rows.peaks[columns] / (radius * point.scale)
        diagonal(self.hessian)[:-3] += np.where(signs == 0, strengths * self.ridge, 0.0)
        # The scale is convex in t where there is blur.
        noise, blur = problem.smoothing
        self.hessian[-3, -3] += self.forces[-2] * (noise * self.sigma * blur) ** 2 / point.scale**3
        self.rounding = TIED * strengths
        # Where a program begins: here, and then where the one before it ended.
        self.last = _onto(signs, self.here.copy()), signs

    def full(self, delta: Array) -> Array:
        """Return a step in ``(w, b)``."""
        p: Array = self.others * delta[-3]
        p[self.columns] += delta[:-3]
        return extended(p, delta[-1])

    def decrement(self, delta: Array) -> float:
        """Return how much Phi falls to first order."""
        return -float(self.forces @ delta)

    @np.errstate(over="ignore")
    def minimise(self, smoothing: Smoothing) -> Array:
        """Return the step of the model's arguments to its minimum at some smoothing.

        The value of the model may be more than a number holds.
        """
        # The scale is linear in t from here.
        noisy = smoothing.noise * self.sigma * self.length
        scale = math.hypot(noisy, smoothing.blur)
        slope = noisy**2 / scale / self.length
        x, signs = self.last
        x[-2] = scale + slope * (x[-3] - self.length)
        # How far t may fall: not below what does not move.
        least = max(self.least, NEGLIGIBLE * self.length)
        force, best = self._look(x)
        mark = np.inf
        for _ in range(POLICY.faces):
            face = Face(self.hessian, signs, slope)
            step = face.step(force)
            if x[-3] + step[-3] < least:
                # The rest goes where it is best for that t: shorter, a step without curvature would hardly move it.
                step = face.step_with(force, least - x[-3])
            end = x + step
            over = (np.abs(end[:-3]) > end[-3] * (1 + 1e-15)) & (signs == 0)
            if over.any():
                x, signs, force, best = self._tie(x, step, signs, over, best)
                continue
            x = end
            force, best = self._look(x)
            # Where the model does not fall, constraints leave one by one, which cannot cycle.
            released = self._released(signs, force, best, x[-3], one=best >= mark)
            if not released.any():
                break
            # What was tied had no ridge; without one, a feature of hardly any curvature would take all others along.
            ridge = np.where(released, signs * force[:-3] * self.ridge, 0.0)
            signs = np.where(released, 0.0, signs)
            diagonal(self.hessian)[:-3] += ridge
            force, best = self._look(x)
            mark = best
        self.last = _onto(signs, x), signs
        delta: Array = x - self.here
        return delta

    def _released(self, signs: Array, force: Array, best: float, t: float, *, one: bool) -> NDArray[np.bool_]:
        """Return which tied features leave the face: those that the model pulls inwards, or the first ``one`` of them.

        A feature can lower the model by no more than what its force does on the way to the other side.
        """
        inward = signs * force[:-3]
        released: NDArray[np.bool_] = inward > np.maximum(self.rounding, POLICY.little * -best / (2 * t * len(signs)))
        if one:
            released &= inward == inward.max()
        if not self.is_held and np.all(released[signs != 0]):
            released[int(np.argmin(np.where(signs != 0, inward, np.inf)))] = False  # one must hold t
        return released

    def _tie(
        self, x: Array, step: Array, signs: Array, over: NDArray[np.bool_], best: float
    ) -> tuple[Array, Array, Array, float]:
        """Return where a step that leaves the constraints ends, the signs of what is tied there, and the model there.

        What goes too far is tied, all of it where the model falls, else what a shorter step meets: at last the longest
        within the constraints.
        """
        sides = np.sign((x + step)[:-3])
        gaps = np.full(len(signs), np.inf)
        gaps[over] = np.maximum(0.0, (x[-3] - sides * x[:-3])[over] / (sides * step[:-3] - step[-3])[over])
        fraction, least = 1.0, float(gaps.min())
        while True:
            ties = np.where(gaps <= fraction, sides, signs)
            end = _onto(ties, x + fraction * step)
            force, value = self._look(end)
            if value < best or fraction <= least:
                return end, ties, force, value
            fraction = max(least, fraction / 2) if fraction > EPS else least

    def _look(self, x: Array) -> tuple[Array, float]:
        """Return the forces at some arguments, and the value of the model."""
        delta = x - self.here
        force: Array = self.hessian.dot(delta)
        force += self.forces
        return force, 0.5 * float(delta.dot(force + self.forces))


def _onto(signs: Array, x: Array) -> Array:
    """Return arguments with those that are tied exactly so."""
    x[:-3] = np.where(signs != 0, signs * x[-3], x[:-3])
    return x
