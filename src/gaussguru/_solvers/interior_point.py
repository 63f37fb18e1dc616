"""The dual problem of chapter 3, solved as a problem of its own: an interior-point method in alpha.

::

    max  sum s alpha - ||u||^2 / (2 l2)     over 0 <= alpha <= 1 and u    (u = 0 without a ridge)
    s.t. ||v - u|| <= kappa,    v = sum s y alpha x,    kappa = sigma sum s f*(alpha)
         sum s y alpha = 0                                                (only with an intercept)

The pair ``S = (u - v, kappa)`` lies in the cone ``||v - u|| <= kappa``, its multiplier ``Z = (w, length)`` in the same
cone; b is the multiplier of the balance, p and q are those of the box. With ``z = f'^-1(alpha)``, for every sample::

    1 - y (w.x + b) - sigma length z + p - q = 0,    p alpha = q (1 - alpha) = S.Z / 2 = mu -> 0,    u = l2 w

At ``mu = 0`` w is parallel to v, ``length`` is its norm, and this says that ``alpha = f'(z)`` at the slack of the
sample. So v and w both give the direction of the primal solution, ``length`` and b the rest. Before that v is the
better one where noise is large; where it is tiny v is a small difference of large sums, and only w has its digits.

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

from gaussguru._linalg import EPS, Array, diagonal, factorise, norm
from gaussguru._problems.binary import Binary, Point
from gaussguru._solvers.bounds import Bounds
from gaussguru._solvers.result import Result


@dataclass(frozen=True)
class Policy:
    """The tuning constants of the interior-point method."""

    # A matrix of this many columns, or rows if they are fewer, is factored in each iteration: it takes 130 MB.
    max_size: int = 4096
    # The fraction of the way to the border that a step may go (measured: 0.97 to 0.99 differ by 4 % in iterations; the
    # larger leaves alpha less feasible at the end).
    nearly: float = 0.97
    # mu to begin with, more than the slack of order one that it has to move (measured: 1 takes up to 3 iterations more
    # where noise is small).
    first: float = 4.0
    # A certificate is worth its passes when mu is this many times the tolerance (measured: 1 takes an iteration more).
    hopeful: float = 10.0


class State(NamedTuple):
    """The variables, or a step in them: Z, b, alpha, p and q, S."""

    Z: Array
    b: float
    alpha: Array
    low: Array
    high: Array
    S: Array

    def moved(self, step: "State", t: float) -> "State":
        """Return the variables after a part ``t`` of a step; where the classes are separable all of alpha vanishes."""
        alpha = np.clip(self.alpha + t * step.alpha, np.finfo(np.float64).tiny, 1 - EPS / 2)
        low, high = self.low + t * step.low, self.high + t * step.high
        return State(self.Z + t * step.Z, self.b + t * step.b, alpha, low, high, self.S + t * step.S)


@dataclass(frozen=True)
class Dual:
    """The solver of the dual of two-class problems with isotropic noise; see the module for the method.

    Parameters are those of :class:`gaussguru._solvers.newton.Newton`.
    """

    tol: float = 1e-6
    max_iter: int = 500
    verbose: int = 0
    seed: int = 0
    policy: Policy = Policy()

    def follow(self, problem: Binary, factors: Iterable[float]) -> Iterator[Result]:
        """Solve at one noise level after another, given as factors."""
        return (self.solve(problem.scaled(factor)) for factor in factors)

    def solve(self, problem: Binary, start: tuple[Array, float] | None = None) -> Result:
        """Maximise the dual; a primal ``start`` is of no use to it."""
        shape = problem.rows.n_rows, problem.rows.n_columns
        if min(shape) > self.policy.max_size:
            raise ValueError(
                f"solver='dual' factors a matrix as large as the smaller side of X, at most {self.policy.max_size}; "
                f"got X of shape {shape}: use solver='newton'"
            )
        run = _Run(self, problem)
        if run.is_closed:
            return run.result()
        equations = _Equations(problem, self.policy)
        state: State | None = equations.start()
        while state is not None:
            mu, exhausted = equations.mu(state), run.n_iter >= self.max_iter
            if mu <= self.policy.hopeful * self.tol or exhausted or self.verbose > 0:
                run.certify(state.alpha, *equations.primal(state))
            run.log(run.n_iter, run.primal, run.gap, f"  mu {mu:.1e}")
            if run.is_closed or exhausted:
                run.status = "max_iter"
                break
            last, state = state, equations.advance(state)
            run.n_iter += state is not None
        else:  # rounding leaves nothing to gain
            run.certify(last.alpha, *equations.primal(last))
        return run.result()


class _Run(Bounds[Point]):
    """One call of :meth:`Dual.solve`; it begins with a uniform dual point, which may prove a collapse."""

    problem: Binary

    def __init__(self, settings: Dual, problem: Binary) -> None:
        super().__init__("dual", problem, settings.tol, settings.verbose)
        self.raise_dual(problem.collapse_bound(), problem.constant_slopes())

    def certify(self, alpha: Array, w: Array, length: float, b: float) -> None:
        """Update the bounds by a dual point, by two primal ones, and by the slopes of the better one."""
        problem = self.problem
        dual, v = problem.dual_value(problem.rows.split(alpha))
        self.raise_dual(dual, alpha)
        for direction in (v, w):
            size = norm(direction)
            if not self.is_closed and size > 0 and 1e-100 < length < 1e100:
                # What mu > 0 leaves of an error is in the length and the intercept: they are improved on the margins.
                point = problem.rescaled(problem.point(problem.unknowns(length / size * direction, b)), 0.0)
                self.lower_primal(problem.rounded_up(point), point)
        best = self.best
        if not self.is_closed and best is not None and best.value > 0:
            # The last digits: slopes of the recovered point are a dual point whose error is of second order.
            slopes, _ = problem.expand(best).certificate(self.target, thorough=True)
            self.raise_dual(slopes.dual, problem.slopes(best))


class _Equations:
    """The equations, with weights that add up to 1."""

    def __init__(self, problem: Binary, policy: Policy) -> None:
        self.problem, self.policy, self.rows = problem, policy, problem.rows
        self.sigma, self.l2 = problem.noise.sigma, problem.l2 / problem.weight
        self.y = np.copysign(1.0, self.rows.signed_weight)
        self.s = self.rows.weights / problem.weight
        if self.rows.n_rows < self.rows.n_columns:
            # The rows in coordinates of their span: R with R R' = X X'.
            values, vectors = np.linalg.eigh(self.rows.products())
            kept = values > EPS * len(values) * values[-1]
            root = np.sqrt(values[kept])
            self.back = vectors[:, kept] / root
            self.rows = self.rows.with_columns(np.ascontiguousarray(vectors[:, kept] * root))

    def start(self) -> State:
        """Return a place well inside the cone and the box; alpha balances."""
        first, alpha = self.policy.first, 0.5 * self.problem.constant_slopes()
        Z = np.zeros(self.rows.n_columns + 1)
        S = self.cone(alpha, Z)
        S[-1] += norm(S[:-1])
        Z[-1] = 2 * first / S[-1]
        return State(Z, 0.0, alpha, first / alpha, first / (1 - alpha), S)

    def primal(self, at: State) -> tuple[Array, float, float]:
        """Return the multipliers w, length and b."""
        w, rows = at.Z[:-1], self.problem.rows
        return (w if self.rows is rows else rows.rmatvec(self.back @ w)), float(at.Z[-1]), at.b

    def cone(self, alpha: Array, Z: Array) -> Array:
        """Return S as alpha and w have it."""
        kappa = self.sigma * float(self.s @ self.problem.loss.conjugate(alpha))
        return np.append(self.l2 * Z[:-1] - self.rows.rmatvec(self.s * alpha * self.y), kappa)

    def mu(self, at: State) -> float:
        """Return the mean of the products that go to 0."""
        return 0.25 * float(self.s @ (at.low * at.alpha + at.high * (1 - at.alpha)) + at.S @ at.Z)

    def advance(self, at: State) -> State | None:
        """Return the place after one step, or None where no step leads on."""
        mu, nearly = self.mu(at), self.policy.nearly
        if not min(mu, _determinant(at.S), _determinant(at.Z)) > 0:
            return None
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = self._steps(at)
            straight = step(0.0)
            reach = nearly * min(1.0, _longest(at, straight))
            towards = step((1 - reach) ** 2 * mu, straight)
            t = min(1.0, nearly * _longest(at, towards))
        return at.moved(towards, t) if t > EPS else None

    def _steps(self, at: State) -> Callable[..., State]:
        """Return Newton's step as a function of the mu that it aims at, and of a step that tells the curvature."""
        y, s, alpha, rows, loss = self.y, self.s, at.alpha, self.rows, self.problem.loss
        z = loss.slope_inverse(alpha)
        stiff = self.sigma * at.Z[-1] / loss.curvature(z) + at.low / alpha + at.high / (1 - alpha)
        g, tilt = s / stiff, y * self.sigma * z
        square, S = _scaling(at.S, at.Z), self.cone(alpha, at.Z)
        inverse = -at.Z / _determinant(at.Z)
        inverse[-1] *= -1
        # Unknowns: w, length, b.
        system = rows.gram(rows.split(g), rows.split(tilt))
        system[:-1, :-1] += square
        diagonal(system)[:-2] += self.l2
        if not self.problem.fit_intercept:
            system[-1, :-1], system[-1, -1] = 0.0, 1.0
        factor = factorise(system)

        def margins(Z: Array, b: float) -> Array:
            return np.asarray(y * (rows.matvec(Z[:-1]) + Z[-1] * tilt + b))

        slack, balance = 1 - margins(at.Z, at.b), float(s @ (y * alpha))

        def step(mu: float, before: State | None = None) -> State:
            # What p alpha and q (1 - alpha) should become, less what the step before says about their curvature.
            low = mu - before.alpha * before.low if before else mu
            high = mu + before.alpha * before.high if before else mu
            rest = slack + low / alpha - high / (1 - alpha)
            pulled = y * g * rest
            right = np.append(mu * inverse - S, balance + float(pulled.sum()))
            right[:-2] += rows.rmatvec(pulled)
            right[-2] += float(pulled @ tilt)
            right[-1] *= self.problem.fit_intercept
            solution = factor.solve(right)
            Z, b = solution[:-1], float(solution[-1])
            change = (rest - margins(Z, b)) / stiff
            low_change = low / alpha - at.low - at.low / alpha * change
            high_change = high / (1 - alpha) - at.high + at.high / (1 - alpha) * change
            return State(Z, b, change, low_change, high_change, mu * inverse - at.S - square @ Z)

        return step


def _determinant(x: Array) -> float:
    size = norm(x[:-1])
    return float((x[-1] - size) * (x[-1] + size))


def _scaling(S: Array, Z: Array) -> Array:
    """Return the square of the scaling of Nesterov and Todd: the matrix of the cone that takes Z to S."""
    size_s, size_z = math.sqrt(_determinant(S)), math.sqrt(_determinant(Z))
    s, z = S / size_s, Z / size_z
    middle = s - z
    middle[-1] = s[-1] + z[-1]
    square = np.outer(middle, middle) / (1 + float(s @ z))
    diagonal(square)[:] += 1.0
    square[-1, -1] -= 2.0
    return np.asarray(square * (size_s / size_z))


def _longest(at: State, step: State) -> float:
    """Return how many times a step may be made before something leaves the cone or the box."""
    sides = ((at.alpha, step.alpha), (1 - at.alpha, -step.alpha), (at.low, step.low), (at.high, step.high))
    least = max(float(np.max(-change / here, initial=0.0)) for here, change in sides)
    return min(1 / least if least > 0 else np.inf, _to_border(at.S, step.S), _to_border(at.Z, step.Z))


def _to_border(x: Array, step: Array) -> float:
    """Return the least t > 0 at which ``x + t step`` is on the border of the cone."""
    # (x0 + t d0)^2 = |x1 + t d1|^2 in units of x0, or squares may underflow
    x, step = x / x[-1], step / x[-1]
    a = float(step[-1] ** 2 - step[:-1] @ step[:-1])
    b = float(x[-1] * step[-1] - x[:-1] @ step[:-1])
    c = _determinant(x)
    root = math.sqrt(max(0.0, b * b - a * c))
    if b < 0:
        return c / (root - b)
    return (root + b) / -a if a < 0 else np.inf
