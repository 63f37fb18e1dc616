"""An interior-point method for the dual problem (thesis, chapter 3).

::

    max  sum s alpha - ||u||^2 / (2 l2)     over 0 <= alpha <= 1 and u    (u = 0 without a ridge)
    s.t. ||v - u|| <= kappa,    v = sum s y alpha x,    kappa = sigma sum s f*(alpha)
         sum s y alpha = 0                                                (only with an intercept)

The pair ``S = (u - v, kappa)`` lies in the cone ``||v - u|| <= kappa``, its multiplier ``Z = (w, length)`` in the same
cone; b is the multiplier of the balance, p and q are those of the box. With ``z = f'^-1(alpha)``, for every sample::

    1 - y (w.x + b) - sigma length z + p - q = 0,    p alpha = q (1 - alpha) = S.Z / 2 = mu -> 0,    u = l2 w

At ``mu = 0`` w is parallel to v, ``length`` is its norm, and ``alpha = f'(z)`` at the slack of the sample. So w gives
the direction of the primal solution, ``length`` its norm, and b its intercept. (v has the same direction, but if noise
is tiny it is a small difference of large sums.)

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

from gaussguru._guru.problems.binary import Binary, BinaryPoint
from gaussguru._guru.solvers.bounds import Bounds
from gaussguru._guru.solvers.result import Result
from gaussguru._rows.rows import dense
from gaussguru._utils.linalg import EPS, Array, diagonal, extended, factorise, norm


class DualState(NamedTuple):
    """The variables, or a step in them: ``(w, length, b)``, S, ``(alpha, 1 - alpha)`` and ``(p, q)``."""

    x: Array
    S: Array
    room: Array
    pull: Array

    @property
    def Z(self) -> Array:  # noqa: N802 - the symbol of the mathematics
        """The multiplier of S."""
        return self.x[:-1]

    @property
    def alpha(self) -> Array:
        """The slopes."""
        return np.asarray(self.room[0])

    def moved(self, step: "DualState", t: float) -> "DualState":
        """Return the variables after a fraction t of a step; alpha stays in (0, 1), even if all of it vanishes."""
        moved = DualState(*(here + t * change for here, change in zip(self, step, strict=True)))
        return moved._replace(room=_room(np.clip(moved.alpha, np.finfo(np.float64).tiny, 1 - EPS / 2)))


@dataclass(frozen=True)
class Dual:
    """The solver of the dual of two-class problems with isotropic noise; see the module for the method.

    Parameters are those of :class:`gaussguru._guru.solvers.newton.Newton`.
    """

    tol: float = 1e-6
    max_iter: int = 500
    verbose: int = 0
    seed: int = 0

    def follow(self, problem: Binary, factors: Iterable[float]) -> Iterator[Result]:
        """Solve at one noise level after another, given as factors."""
        return (self.solve(problem.scaled(factor)) for factor in factors)

    def solve(self, problem: Binary, start: tuple[Array, float] | None = None) -> Result:
        """Maximise the dual; a primal ``start`` is ignored."""
        shape = problem.rows.n_rows, problem.rows.n_columns
        largest = 4096  # a matrix of that size takes 130 MB
        if min(shape) > largest:
            raise ValueError(
                f"solver='dual' factors a matrix as large as the smaller side of X, at most {largest}; got X of shape "
                f"{shape}: use solver='newton'"
            )
        run = Bounds("dual", problem, self.tol, self.verbose)
        run.raise_dual(problem.collapse_bound(), problem.constant_slopes())
        if run.is_closed:
            return run.result()
        equations = _Equations(problem)
        state: DualState | None = equations.start()
        while state is not None:
            at, mu, exhausted = state, equations.mu(state), run.n_iter >= self.max_iter
            # The gap is of the order of mu: before mu is small it is computed only to be printed.
            if mu <= self.tol or exhausted or self.verbose > 0:
                _certify(run, problem, at.alpha, *equations.primal(at))
            run.log(run.n_iter, run.primal, run.gap, f"  mu {mu:.1e}")
            if run.is_closed or exhausted:
                run.status = "max_iter"
                break
            state = equations.advance(at)
            run.n_iter += state is not None
        else:  # further progress is below rounding
            _certify(run, problem, at.alpha, *equations.primal(at))
        return run.result()


def _certify(run: Bounds[BinaryPoint], problem: Binary, alpha: Array, w: Array, length: float, b: float) -> None:
    """Update the bounds by a dual point, by a primal one, and by the slopes of the best one."""

    def raise_dual(dual: float, alpha: Array) -> None:
        # Without a ridge, the dual value is that of alpha shrunk until it is feasible.
        run.raise_dual(dual, alpha if problem.l2 else alpha * min(1.0, dual / float(problem.rows.weights @ alpha)))

    raise_dual(problem.dual_value(problem.rows.split(alpha)), alpha)
    size = norm(w)
    if size > 0 and 1e-100 < length < 1e100:
        # The error due to mu > 0 is mainly in length and intercept, which are improved without a pass over X.
        point = problem.rescaled(problem.point(problem.unknowns(length / size * w, b)), 0.0)
        run.lower_primal(problem.rounded_up(point), point)
    if not run.is_closed and run.best is not None and run.best.value > 0:
        # The last digits: slopes of the recovered point are a dual point whose error is of second order.
        slopes, _ = problem.expand(run.best).certificate(run.target, thorough=True)
        raise_dual(slopes.dual, problem.slopes(run.best))


class _Equations:
    """The equations, with weights that add up to 1."""

    def __init__(self, problem: Binary) -> None:
        self.problem, self.rows = problem, problem.rows
        self.sigma, self.l2 = problem.noise.sigma, problem.l2 / problem.weight
        self.y = np.copysign(1.0, self.rows.signed_weight)
        self.s = self.rows.weights / problem.weight
        if self.rows.n_rows < self.rows.n_columns:
            # The rows in coordinates of their span: R with R R' = X X'.
            products = dense(self.rows.X @ self.rows.X.T).astype(np.float64, copy=False)
            values, vectors = np.linalg.eigh(products)
            kept = values > EPS * len(values) * values[-1]
            root = np.sqrt(values[kept])
            self.back = vectors[:, kept] / root
            self.rows = self.rows.with_columns(np.ascontiguousarray(vectors[:, kept] * root))

    def start(self) -> DualState:
        """Return variables well inside the cone and the box, with a balanced alpha."""
        # The first mu is larger than the slacks, which are of order one (measured: 1 takes up to 3 iterations more if
        # noise is small).
        first, x = 4.0, np.zeros(self.rows.n_columns + 2)
        room = _room(0.5 * self.problem.constant_slopes())
        S = self.cone(room[0], x)
        S[-1] += norm(S[:-1])
        x[-2] = 2 * first / S[-1]
        return DualState(x, S, room, first / room)

    def primal(self, at: DualState) -> tuple[Array, float, float]:
        """Return the multipliers w, length and b."""
        w, rows = at.x[:-2], self.problem.rows
        return (w if self.rows is rows else rows.rmatvec(self.back @ w)), float(at.x[-2]), float(at.x[-1])

    def cone(self, alpha: Array, x: Array) -> Array:
        """Return S for given alpha and ``x = (w, length, b)``."""
        kappa = self.sigma * float(self.s @ self.problem.loss.conjugate(alpha))
        return extended(self.l2 * x[:-2] - self.rows.rmatvec(self.s * alpha * self.y), kappa)

    def mu(self, at: DualState) -> float:
        """Return the mean of the complementary products, which go to 0."""
        return 0.25 * float(self.s @ (at.pull * at.room).sum(axis=0) + at.S @ at.Z)

    def advance(self, at: DualState) -> DualState | None:
        """Return the variables after one step, or None if rounding allows no step."""
        # The fraction of the way to the border that a step may go (measured: 0.97 to 0.99 differ by 4 % in iterations;
        # the larger leaves alpha less feasible at the end).
        mu, nearly = self.mu(at), 0.97
        if not min(mu, _determinant(at.S), _determinant(at.Z)) > 0:
            return None
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = self._steps(at)
            straight = step(0.0)
            reach = nearly * min(1.0, _longest(at, straight))
            towards = step((1 - reach) ** 2 * mu, straight)
            t = min(nearly * _longest(at, towards), 1.0)
        return at.moved(towards, t) if t > EPS else None

    def _steps(self, at: DualState) -> Callable[..., DualState]:
        """Return Newton's step as a function of the target mu and, for the corrector, of the predictor step."""
        y, s, rows, loss = self.y, self.s, self.rows, self.problem.loss
        z = loss.slope_inverse(at.alpha)
        steep = at.pull / at.room
        stiff = self.sigma * at.x[-2] / loss.curvature(z) + steep.sum(axis=0)
        g, tilt = s / stiff, y * self.sigma * z
        square, S, inverse = _scaling(at.S, at.Z), self.cone(at.alpha, at.x), _reflected(at.Z) / _determinant(at.Z)
        system = rows.gram(rows.split(g), rows.split(tilt))
        system[:-1, :-1] += square
        diagonal(system)[:-2] += self.l2
        if not self.problem.fit_intercept:
            system[-1, :-1], system[-1, -1] = 0.0, 1.0
        factor = factorise(system)

        def margins(x: Array) -> Array:
            return np.asarray(y * (rows.matvec(x[:-2]) + x[-2] * tilt + x[-1]))

        slack, balance = 1 - margins(at.x), float(s @ (y * at.alpha))

        def step(mu: float, before: DualState | None = None) -> DualState:
            # The targets of p alpha and q (1 - alpha), minus the second-order terms of the predictor.
            aim = (mu - before.room * before.pull if before else mu) / at.room
            rest = slack + aim[0] - aim[1]
            pulled = y * g * rest
            right = extended(mu * inverse - S, balance + float(pulled.sum()))
            right[:-2] += rows.rmatvec(pulled)
            right[-2] += float(pulled @ tilt)
            right[-1] *= self.problem.fit_intercept
            x = factor.solve(right)
            change = (rest - margins(x)) / stiff
            room = np.array([change, -change])
            return DualState(x, mu * inverse - at.S - square @ x[:-1], room, aim - at.pull - room * steep)

        return step


def _room(alpha: Array) -> Array:
    return np.array([alpha, 1 - alpha])


def _reflected(x: Array) -> Array:
    return extended(-x[:-1], x[-1])


def _determinant(x: Array) -> float:
    size = norm(x[:-1])
    return float((x[-1] - size) * (x[-1] + size))


def _scaling(S: Array, Z: Array) -> Array:
    """Return the square of the scaling of Nesterov and Todd: the matrix that maps the cone to itself and Z to S."""
    size_s, size_z = math.sqrt(_determinant(S)), math.sqrt(_determinant(Z))
    s, z = S / size_s, Z / size_z
    middle = s + _reflected(z)
    square = np.outer(middle, middle) / (1 + float(s @ z))
    diagonal(square)[:] += 1.0
    square[-1, -1] -= 2.0
    return np.asarray(square * (size_s / size_z))


def _longest(at: DualState, step: DualState) -> float:
    """Return the largest multiple of a step that stays in the cone and the box; NaN if the step is not finite."""
    box = np.min(step.room / at.room), np.min(step.pull / at.pull)
    fastest = float(np.min([*box, _rate(at.S, step.S), _rate(at.Z, step.Z)]))
    return math.inf if fastest >= 0 else -1 / fastest


def _rate(x: Array, step: Array) -> float:
    """Return the least eigenvalue of ``step`` relative to ``x`` in the cone; it leaves the cone at -1 over this."""
    size = math.sqrt(_determinant(x))
    x, step = x / size, step / size
    along = float(x @ _reflected(step))
    return along - norm(step[:-1] - (along + step[-1]) / (1 + x[-1]) * x[:-1])
