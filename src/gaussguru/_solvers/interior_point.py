"""The dual problem of chapter 3, solved as a problem of its own: an interior-point method in alpha.

::

    max  sum s alpha - ||u||^2 / (2 l2)     over 0 <= alpha <= 1 and u    (u = 0 without a ridge)
    s.t. ||v - u|| <= kappa,    v = sum s y alpha x,    kappa = sigma sum s f*(alpha)
         sum s y alpha = 0                                                (only with an intercept)

The pair ``S = (kappa, u - v)`` lies in the cone ``||v - u|| <= kappa``, its multiplier ``Z = (length, w)`` in the same
cone; b is the multiplier of the balance, p and q are those of the box. With ``z = f'^-1(alpha)``, for every sample::

    1 - y (w.x + b) - sigma length z + p - q = 0,    p alpha = q (1 - alpha) = S.Z / 2 = mu -> 0,    u = l2 w

At ``mu = 0`` w is parallel to v, ``length`` is its norm, and this says that ``alpha = f'(z)`` at the slack of the
sample. So alpha gives the direction, and the norm is recovered from it (:func:`gaussguru.certificates.recover_norm`);
the multipliers themselves serve where rounding leaves no direction in v.

Alpha, p and q are eliminated from Newton's equations sample by sample, which leaves as many unknowns as there are
columns, or rows if they are fewer: the problem is then stated in the span of the rows. The cone is scaled as by
Nesterov and Todd, the centring chosen as by Mehrotra. Everything stays inside the cone and the box, where all is
smooth: small noise, separable and collapsed problems need no special case.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gaussguru._linalg import Array, diagonal, factorise, mirrored, norm
from gaussguru._problems.binary import Binary, Point
from gaussguru._solvers.result import Log, Result, Status
from gaussguru.certificates.duals import recovered

# A matrix of this many columns, or rows if they are fewer, is factored in each iteration.
MAX_SIZE = 4096
# The part of the way to the border that a step may go, and the least step worth making.
NEARLY, LEAST = 0.99, 1e-10
# mu to begin with, more than the slack of order one that it has to move, and the least part of mu that a step aims at.
FIRST, LEAST_CENTRING = 4.0, 1e-3
# A certificate is worth its time when mu is this many times the tolerance.
HOPEFUL = 10.0
# How exactly the length and the intercept of a recovered point are found, relative to what noise makes of F.
EXACTLY = 1e-10
# The numbers next to 0 and 1 that alpha may come to; where the classes are separable all of it vanishes.
LEAST_ALPHA, MOST_ALPHA = 1e-280, 1 - 2.0**-53


class State(NamedTuple):
    """The variables, or a step in them: w, length and b, alpha, p and q, S."""

    w: Array
    length: float
    b: float
    alpha: Array
    low: Array
    high: Array
    S: Array

    def moved(self, step: "State", t: float) -> "State":
        """Return the variables after a part ``t`` of a step."""
        alpha = np.clip(self.alpha + t * step.alpha, LEAST_ALPHA, MOST_ALPHA)
        w, length, b = self.w + t * step.w, self.length + t * step.length, self.b + t * step.b
        return State(w, length, b, alpha, self.low + t * step.low, self.high + t * step.high, self.S + t * step.S)

    @property
    def multiplier(self) -> Array:
        """Z, the multiplier of the cone."""
        return np.append(self.length, self.w)


@dataclass(frozen=True)
class Dual:
    """The solver of the dual of two-class problems with isotropic noise; see the module for the method.

    Parameters are those of :class:`gaussguru._solvers.newton.Newton`.
    """

    tol: float = 1e-6
    max_iter: int = 500
    verbose: int = 0
    seed: int = 0

    def follow(self, problem: Binary, factors: Iterable[float]) -> Iterator[Result]:
        """Solve at one noise level after another, given as factors."""
        return (self.solve(problem.scaled(factor)) for factor in factors)

    def solve(self, problem: Binary, start: tuple[Array, float] | None = None) -> Result:
        """Maximise the dual; a primal ``start`` is of no use to it."""
        shape = problem.rows.n_rows, problem.rows.n_columns
        if min(shape) > MAX_SIZE:
            raise ValueError(
                f"solver='dual' factors a matrix as large as the smaller side of X, at most {MAX_SIZE}; "
                f"got X of shape {shape}: use solver='newton'"
            )
        run = _Run(self, problem)
        if run.is_constant():
            return run.result()
        equations = _Equations(problem)
        state = equations.start()
        while True:
            hopeful = equations.mu(state) <= HOPEFUL * self.tol
            exhausted = run.n_iter >= self.max_iter
            done = (hopeful or exhausted or self.verbose > 0) and run.certify(equations, state)
            run.log(run.n_iter, run.primal, run.gap, f"  mu {equations.mu(state):.1e}")
            if done or exhausted:
                break
            after = equations.advance(state)
            if after is None:  # rounding leaves nothing to gain
                run.certify(equations, state)
                break
            state = after
            run.n_iter += 1
        return run.result()


class _Run:
    """One call of :meth:`Dual.solve`: the best primal point and the best dual one so far."""

    def __init__(self, settings: Dual, problem: Binary) -> None:
        self.settings, self.problem = settings, problem
        self.target = settings.tol * problem.weight
        self.n_iter = 0
        self.best: Point | None = None
        self.primal, self.dual = problem.constant[1], 0.0
        self.alpha = np.zeros(problem.rows.n_rows)
        self.log = Log("dual", settings.verbose)

    def is_constant(self) -> bool:
        """Return whether a uniform dual point proves that a classifier that ignores the features is optimal."""
        bound = self.problem.collapse_bound()
        if self.primal - bound > self.target:
            return False
        self.dual, self.alpha = bound, self.problem.constant_slopes()
        return True

    def certify(self, equations: "_Equations", state: State) -> bool:
        """Update the bounds by alpha and by the primal point recovered from it; return whether they meet."""
        problem, alpha = self.problem, state.alpha
        dual, v = problem.dual_value(alpha)
        if dual >= self.dual:
            self.dual, self.alpha = dual, alpha
        for w, b in (self._recovered(v, alpha), equations.primal(state)):
            # What mu > 0 leaves of an error is in the length and the intercept: they are improved on the margins.
            if self.gap > self.target and 1e-100 < norm(w) < 1e100:
                point = problem.rescaled(problem.point(problem.unknowns(w, b)), EXACTLY)
                primal = problem.rounded_up(point)
                if primal < self.primal:
                    self.best, self.primal = point, primal
        if self.gap > self.target and self.best is not None and self.best.value > 0:
            # The last digits: slopes of the recovered point are a dual point whose error is of second order.
            slopes, _ = problem.expand(self.best).certificate(self.target, thorough=True)
            if slopes.dual > self.dual:
                self.dual, self.alpha = slopes.dual, problem.slopes(self.best)
        return self.gap <= self.target

    def _recovered(self, v: Array, alpha: Array) -> tuple[Array, float]:
        """Return the primal solution that belongs to alpha, or zero where alpha determines none."""
        problem, rows, length = self.problem, self.problem.rows, norm(v)
        if not length > 0:
            return np.zeros_like(v), 0.0
        unit, y = v / length, np.copysign(1.0, rows.signed_weight)
        try:
            found = recovered(
                problem.loss, problem.noise.scale(unit), alpha, y, rows.matvec(unit), np.ones_like(y),
                fit_intercept=problem.fit_intercept,
            )  # fmt: skip
        except ValueError:  # every alpha is next to 0 or 1
            return np.zeros_like(v), 0.0
        return found.norm * unit, found.intercept

    @property
    def gap(self) -> float:
        """The proven gap."""
        return max(0.0, self.primal - self.dual)

    def result(self) -> Result:
        """Return the best primal point, or the classifier that ignores the features where nothing was better."""
        if self.best is not None:
            coef, intercept, value = self.best.coef, self.best.b, self.best.value
        else:
            coef = np.zeros(self.problem.rows.n_columns)
            intercept, value = self.problem.constant
        gap = min(value, self.gap)
        exhausted = self.n_iter >= self.settings.max_iter
        status: Status = "converged" if gap <= self.target else "max_iter" if exhausted else "precision"
        return Result(coef, intercept, value, gap, self.alpha, self.n_iter, status, collapsed=self.best is None)


class _Equations:
    """The equations, in units in which the weights add up to 1 and X, or the noise if it is larger, is of order 1."""

    def __init__(self, problem: Binary) -> None:
        rows, weight, sigma = problem.rows, problem.weight, problem.noise.sigma
        self.unit = max(sigma, math.sqrt(float(rows.column_squares.sum()) / weight))
        self.sigma = sigma / self.unit
        self.l2 = problem.l2 / self.unit**2 / weight
        self.loss, self.fit_intercept = problem.loss, problem.fit_intercept
        self.y = np.copysign(1.0, rows.signed_weight)
        self.s = rows.weights / weight
        self.weights = rows.class_weights
        self.rows, self.scale = rows, 1 / self.unit
        if rows.n_rows < rows.n_columns:
            # The rows in coordinates of their span: R with R R' = X X'.
            values, vectors = np.linalg.eigh(rows.products() / self.unit**2)
            kept = values > 1e-15 * values[-1]
            root = np.sqrt(values[kept])
            self.rows = rows.with_columns(np.ascontiguousarray(vectors[:, kept] * root))
            self.scale, self.back = 1.0, vectors[:, kept] / root
        self.original = rows
        self.width = self.rows.n_columns

    def start(self) -> State:
        """Return a place well inside the cone and the box; alpha balances."""
        share = 0.5 * self.weights.min() / self.weights if self.fit_intercept else np.full(2, 0.5)
        alpha = share[self.rows.labels]
        S = self.cone(alpha, np.zeros(self.width))
        S[0] += norm(S[1:])
        return State(np.zeros(self.width), 2 * FIRST / S[0], 0.0, alpha, FIRST / alpha, FIRST / (1 - alpha), S)

    def primal(self, at: State) -> tuple[Array, float]:
        """Return the multipliers w and b in the units of X.

        At the end they are what alpha determines. For tiny noise v has hardly a digit left by which alpha determines
        the direction, because it is a small difference of large sums, and w has all of them.
        """
        if self.rows is self.original:
            return at.w / self.unit, at.b
        return self.original.rmatvec(self.back @ at.w) / self.unit**2, at.b

    def margins(self, w: Array) -> Array:
        """Return ``y x.w``."""
        return self.y * self.rows.matvec(w * self.scale)

    def combine(self, r: Array) -> Array:
        """Return ``sum r y x``."""
        return self.rows.rmatvec(r * self.y) * self.scale

    def cone(self, alpha: Array, w: Array) -> Array:
        """Return S as alpha and w have it."""
        kappa = self.sigma * float(self.s @ self.loss.conjugate(alpha))
        return np.append(kappa, self.l2 * w - self.combine(self.s * alpha))

    def mu(self, at: State) -> float:
        """Return the mean of the products that go to 0."""
        box = float(self.s @ (at.low * at.alpha + at.high * (1 - at.alpha)))
        return 0.25 * (box + float(at.S @ at.multiplier))

    def advance(self, at: State) -> State | None:
        """Return the place after one step, or None where no step leads on."""
        if not min(self.mu(at), _determinant(at.S), _determinant(at.multiplier)) > 0:
            return None
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = self._steps(at)
            mu = self.mu(at)
            straight = step(0.0)
            reach = min(1.0, _longest(at, straight))
            towards = step(max((1 - reach) ** 3, LEAST_CENTRING) * mu, straight)
            t = min(1.0, NEARLY * _longest(at, towards))
        return at.moved(towards, t) if t > LEAST else None

    def _steps(self, at: State) -> Callable[..., State]:
        """Return Newton's step as a function of the mu that it aims at, and of a step that tells the curvature."""
        y, s, alpha, d = self.y, self.s, at.alpha, self.width
        z = self.loss.slope_inverse(alpha)
        stiff = self.sigma * at.length / self.loss.curvature(z) + at.low / alpha + at.high / (1 - alpha)
        g, tilt = s / stiff, self.sigma * z
        square, S = _scaling(at.S, at.multiplier), self.cone(alpha, at.w)
        inverse = np.append(at.length, -at.w) / _determinant(at.multiplier)
        # Unknowns: w, b, length.
        grams = self.rows.gram(self.rows.split(g), self.rows.split(y * tilt))  # of (x, tilt, 1)
        order = [*range(d), d + 1, d]
        units = np.append(np.full(d, self.scale), [1.0, 1.0])
        system = mirrored(grams)[np.ix_(order, order)] * units * units[:, np.newaxis]
        system[:d, :d] += square[1:, 1:]
        diagonal(system)[:d] += self.l2
        system[d + 1, :d] += square[0, 1:]
        system[d + 1, d + 1] += square[0, 0]
        if not self.fit_intercept:
            system[d, :d] = system[d + 1, d] = 0.0
            system[d, d] = 1.0
        factor = factorise(system)
        slack = 1 - self.margins(at.w) - y * at.b - at.length * tilt
        balance = float(s @ (y * alpha))

        def step(mu: float, before: State | None = None) -> State:
            # What p alpha and q (1 - alpha) should become, less what the step before says about their curvature.
            low = mu - before.alpha * before.low if before else mu
            high = mu + before.alpha * before.high if before else mu
            rest = slack + low / alpha - high / (1 - alpha)
            pulled = g * rest
            towards = mu * inverse - S
            right = np.empty(d + 2)
            right[:d] = towards[1:] + self.combine(pulled)
            right[d] = balance + float(pulled @ y) if self.fit_intercept else 0.0
            right[d + 1] = towards[0] + float(pulled @ tilt)
            solution = factor.solve(right)
            w, b, length = solution[:d], float(solution[d]), float(solution[d + 1])
            change = (rest - self.margins(w) - y * b - tilt * length) / stiff
            return State(
                w,
                length,
                b,
                change,
                low / alpha - at.low - at.low / alpha * change,
                high / (1 - alpha) - at.high + at.high / (1 - alpha) * change,
                mu * inverse - at.S - square @ np.append(length, w),
            )

        return step


def _determinant(x: Array) -> float:
    size = norm(x[1:])
    return float((x[0] - size) * (x[0] + size))


def _scaling(S: Array, Z: Array) -> Array:
    """Return the square of the scaling of Nesterov and Todd: the matrix of the cone that takes Z to S."""
    det_s, det_z = _determinant(S), _determinant(Z)
    s, z = S / math.sqrt(det_s), Z / math.sqrt(det_z)
    gamma = math.sqrt(0.5 * (1 + float(s @ z)))
    middle = s - z
    middle[0] = s[0] + z[0]
    middle /= 2 * gamma
    square = 2 * np.outer(middle, middle)
    diagonal(square)[:] += 1.0
    square[0, 0] -= 2.0
    return np.asarray(square * math.sqrt(det_s / det_z))


def _longest(at: State, step: State) -> float:
    """Return how many times a step may be made before something leaves the cone or the box."""
    least = max(
        float(np.max(-change / here, initial=0.0))
        for here, change in (
            (at.alpha, step.alpha),
            (1 - at.alpha, -step.alpha),
            (at.low, step.low),
            (at.high, step.high),
        )
    )
    return min(1 / least if least > 0 else np.inf, _to_border(at.S, step.S), _to_border(at.multiplier, step.multiplier))


def _to_border(x: Array, step: Array) -> float:
    """Return the least t > 0 at which ``x + t step`` is on the border of the cone."""
    # (x0 + t d0)^2 = |x1 + t d1|^2
    a = float(step[0] ** 2 - step[1:] @ step[1:])
    b = float(x[0] * step[0] - x[1:] @ step[1:])
    c = _determinant(x)
    if b >= 0 and a >= 0:
        return np.inf
    return c / (math.sqrt(max(0.0, b * b - a * c)) - b)
