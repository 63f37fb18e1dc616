"""Newton steps for axis noise, ``a = sigma max |w_j|``: a trust-region active-set method.

F is a smooth function ``Phi(w, a, b)`` and grows with a. So a step minimises the quadratic model of Phi and keeps the
noise exact::

    min over p, t, shift   model of Phi at (w + p, a(t), b + shift)    subject to   |w_j + p_j| <= t

Its solution lies on a face of these constraints: some ``w_j`` are tied at ``+-t`` and move with it, others are free. On
a face the model is quadratic; :meth:`Program.minimise` goes from face to face, many constraints at a time, and does not
read X. Near the optimum the face stays, and the steps are Newton steps on it. Far from it each free feature has a trust
radius: a ridge proportional to its force, which vanishes at the optimum. A line search would shorten the steps of all
features because of one.

A step to less smoothing is the same program with less noise.
"""

import math
from collections.abc import Callable

import numpy as np

from gaussguru._guru.problems.axis import AxisBinary, AxisLocal, Face
from gaussguru._guru.problems.smoothing import NEGLIGIBLE, Smoothing
from gaussguru._guru.solvers.linear_systems import NewtonStep, Steps
from gaussguru._guru.solvers.policy import NewtonPolicy
from gaussguru._utils.linalg import EPS, Array, Index, diagonal, extended
from gaussguru.noise import TIED, tied


class AxisSystems(Steps[AxisLocal]):
    """The quadratic model at one point after another, corrected by gradients (BFGS) or renewed."""

    def __init__(self, policy: NewtonPolicy) -> None:
        self.policy, self._radius = policy, policy.radius
        self._model: Array | None = None
        self._part: AxisBinary | None = None  # the subsample from which the first model on more rows is made

    def forget(self, *, factor: bool = False) -> None:
        """Drop the model if ``factor``; the BFGS corrections are part of it."""
        if factor:
            self._model, self._radius = None, self.policy.radius

    def leave(self, local: AxisLocal) -> None:
        """Keep the model of a subsample, at its last point, as the first model for more rows."""
        if local.working is None:
            self._model, self._part = local.model, local.problem

    def learn(self, before: AxisLocal, after: AxisLocal, decrement: float) -> None:
        """Update the model by a step and the change of the gradient (BFGS: Nocedal & Wright, 6.19)."""
        is_poor = before.value - after.value < self.policy.gain * decrement
        self._radius = max(1.0, min(self.policy.radius, self._radius / 2)) if is_poor else 2 * self._radius
        model = self._model
        if model is None or before.is_cheap:
            return
        step, change = after.arguments - before.arguments, after.forces - before.forces
        bend, seen = float(step @ change), model @ step
        modelled = float(step @ seen)
        if bend > 0 and modelled > 0:
            self._model = model + np.outer(change / bend, change) - np.outer(seen / modelled, seen)

    def step(self, local: AxisLocal, previous: float, *, final: bool) -> NewtonStep:
        """Return the step to the minimum of the model; ``previous`` is the decrement before the last one."""
        model = self._model
        lazy = model is not None and not local.is_cheap and "model" not in local.__dict__
        if model is None or not lazy:
            self._model = model = local.model_on(self._part)
            self._part = None
        program = Program(local, model, self._radius, self.policy.faces)
        p, decrement = program.minimise(local.problem.smoothing)
        # If a new model costs few products, an old one must reduce the decrement more: it may hide directions of almost
        # no curvature.
        cheap = local.hessian_cost < self.policy.cheap_ratio
        if lazy and decrement > (NEGLIGIBLE if cheap else local.contraction) * previous:
            self._model = None
            return self.step(local, previous, final=final)
        return NewtonStep(p, decrement, lambda less: program.minimise(less)[0])


class Program:
    """The quadratic programs at one point, in ``(w, t, b)``; w may be the working features and one for all others."""

    def __init__(self, local: AxisLocal, hessian: Array, radius: float, n_faces: int) -> None:
        point, self.working, self.n_faces, self.sigma = local.point, local.working, n_faces, local.problem.noise.sigma
        w, forces, peaks = point.coef, local.forces, local.problem.rows.peaks
        length = float(np.abs(w).max())
        self.least = NEGLIGIBLE * length
        if self.working is not None:
            columns, others = self.working
            # Features that do not move bound t from below.
            still = others == 0
            still[columns] = False
            self.least = float(np.abs(w[still]).max(initial=self.least))
            forces = np.concatenate([forces[columns], [forces[:-2] @ others], forces[-2:]])
            w, peaks = extended(w[columns], length), extended(peaks[columns], float(peaks @ np.abs(others)))
        signs, strengths = tied(w), np.abs(forces[:-2])
        self.hessian, self.forces, self.scale, self.rounding = hessian, forces, point.scale, TIED * strengths
        # With this ridge the force on a free feature alone moves it by the trust radius.
        self.per_force = peaks / (radius * point.scale)
        self.ridge = np.where(signs == 0, strengths * self.per_force, 0.0)
        self.here = np.concatenate([w, [length, 0.0]])
        # The start of a program: the point with exact ties, later the end of the last program.
        self.x, self.signs = np.concatenate([np.where(signs == 0, w, signs * length), [length, 0.0]]), signs

    @np.errstate(over="ignore")
    def minimise(self, smoothing: Smoothing) -> tuple[Array, float]:
        """Return the step of ``(w, b)`` to the minimum of the model at a smoothing, and its decrement.

        The value of the model may overflow.
        """
        # The scale and its first and second derivative by t.
        length = float(self.here[-2])
        noisy = smoothing.noise * self.sigma * length
        scale = math.hypot(noisy, smoothing.blur)
        slope, bend = noisy**2 / scale / length, (noisy * smoothing.blur / length) ** 2 / scale**3
        gradient, hessian = self.forces + (scale - self.scale) * self.hessian[-2], self.hessian.copy()
        for array in (gradient, hessian, hessian.T):
            array[-2] *= slope
        hessian[-2, -2] += self.forces[-2] * bend
        diagonal(hessian)[:-2] += self.ridge
        self._visit_faces(gradient, hessian)
        delta = self.x - self.here
        p = delta[:-2]
        if self.working is not None:
            columns, others = self.working
            p = others * delta[-3]
            p[columns] += delta[:-3]
        return extended(p, delta[-1]), -float(gradient @ delta)

    def _visit_faces(self, gradient: Array, hessian: Array) -> None:
        """Go from face to face while the quadratic model with this gradient and Hessian falls."""

        def model(x: Array) -> tuple[Array, float]:
            delta = x - self.here
            force: Array = hessian.dot(delta)
            force += gradient
            return force, 0.5 * float(delta.dot(force + gradient))

        x, signs = self.x, self.signs
        force, best = model(x)
        for _ in range(self.n_faces):
            step = Face(hessian, signs).step(force, self.least - x[-2])
            end = x + step
            over = ((np.abs(end[:-2]) > end[-2] * (1 + 1e-15)) & (signs == 0)).nonzero()[0]
            if len(over):
                x, signs, force, best = _tie(model, x, step, signs, over, best)
                continue
            x, (force, best) = end, model(end)
            released = self._released(signs, force, best, x[-2])
            if not len(released):
                break
            # Tied features had no ridge. Without one a feature of almost no curvature would move very far, and with it
            # all others.
            ridge = signs[released] * force[released] * self.per_force[released]
            self.ridge[released] += ridge
            diagonal(hessian)[released] += ridge
            signs = signs.copy()
            signs[released] = 0.0
            force, best = model(x)
        self.x, self.signs = x, signs

    def _released(self, signs: Array, force: Array, best: float, t: float) -> Index:
        """Return the indices of the tied features that leave the face, because their force points inwards.

        A feature can lower the model by at most its force times the way to the other side, 2 t. Features whose sum of
        these bounds is negligible stay.
        """
        inward = signs * force[:-2]
        least = np.maximum(self.rounding, NEGLIGIBLE**2 * -best / (2 * t * len(signs)))
        released: Index = (inward > least).nonzero()[0]
        if len(released) == np.count_nonzero(signs):  # one must stay tied to t
            released = np.delete(released, np.argmin(inward[released]))
        return released


def _tie(
    model: Callable[[Array], tuple[Array, float]], x: Array, step: Array, signs: Array, over: Index, best: float
) -> tuple[Array, Array, Array, float]:
    """Return the end of a step that violates constraints, the signs of tied features, and force and value of the model.

    The violating features, ``over``, are tied: all of them if the model falls, else those that a shorter step reaches,
    down to the longest step within the constraints.
    """
    sides = np.sign(x[over] + step[over])
    meets = np.maximum(0.0, (x[-2] - sides * x[over]) / (sides * step[over] - step[-2]))
    fraction, first, ties = 1.0, float(meets.min()), signs.copy()
    while True:
        met, end = meets <= fraction, x + fraction * step
        end[over[met]] = sides[met] * end[-2]
        force, value = model(end)
        if value < best or fraction <= first:
            ties[over[met]] = sides[met]
            return end, ties, force, value
        fraction = max(first, fraction / 2) if fraction > EPS else first
