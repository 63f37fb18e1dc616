"""Stochastic gradient descent: the algorithms of the thesis.

GURU for two classes, M-GURU and M-GURU-S2 for several. A step draws a row and moves by ``eta0 / sqrt(t)`` times the
negative gradient of its loss, t = 1, 2, ... The objective is F divided by the total weight, so that ``eta0`` means the
same for any number of rows.

F - F* falls as ``1 / sqrt(t)``: slow, but suited to data that comes in parts or is read once. Averaging the iterates
removes most of the noise of the last steps. The certificate is computed at the end; it is no stopping rule.

Both kinds of problem use the same solver; they differ in their state, :class:`SGDState` or :class:`JointState`.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.problems.protocol import LossProblem, P
from gaussguru._guru.solvers.bounds import certify
from gaussguru._guru.solvers.result import Log, Result, Status
from gaussguru._native import _binding
from gaussguru._rows.rows import NotFiniteError, Rows
from gaussguru._utils.linalg import EPS, Array, Index, Intercept

# The first coefficients and intercepts.
Start = tuple[Array, Intercept]
# The problems of a descent, with any type of points.
L = TypeVar("L", bound=LossProblem[Any])


class SGDState:
    """A descent for two classes, GURU: the last iterate, the number of steps, and the sums of iterates.

    It has arrays and numbers only, can be pickled, and continues on the same rows or on others.

    Attributes
    ----------
    w, b : the last iterate, as the compiled loops have it
    steps : steps made so far, which set the length of the next
    windows : sums of the iterates w and b, and the step after which each begins; the last one is added to
    """

    def __init__(self, n_columns: int, start: Start | None = None, width: tuple[int, ...] = ()) -> None:
        self.w, self.b = np.zeros((n_columns, *width)), np.zeros(width or 1)
        self.steps = 0
        self.windows: list[tuple[Array, Array, int]] = []
        if start is not None:
            self.w[:], self.b[0] = start

    def renew_average(self) -> None:
        """Restart the average when its window begins after half of the steps; it always covers the last half."""
        if not self.windows or 2 * self.windows[-1][2] <= self.steps:
            self.restart_average()

    def restart_average(self) -> None:
        """Begin a new window of the average; the solution is averaged since the previous call, or from here on."""
        self.windows = [*self.windows[-1:], (np.zeros_like(self.w), np.zeros_like(self.b), self.steps)]

    def solution(self) -> tuple[Array, Array]:
        """Return the average of the iterates, or the last one itself, as the compiled loops have it."""
        n = self.steps - self.windows[0][2] if self.windows else 0
        if n == 0:
            return self.w, self.b
        w, b, _ = zip(*self.windows, strict=True)
        return sum(w) / n, sum(b) / n

    @property
    def coef(self) -> Array:
        """The coefficients of the solution."""
        return self.solution()[0]

    @property
    def intercept(self) -> Intercept:
        """The intercept of the solution, or one for each class."""
        return float(self.solution()[1][0])

    def run(self, problem: LossProblem[P], order: Index, eta0: float) -> None:
        """Make one step on each row of ``order``."""
        loss, n = problem.loss, problem.rows.n_rows
        if loss.code < 0:
            raise ValueError(f"solver 'sgd' needs a compiled loss; {loss!r} is written in NumPy only")
        sigma = 0.0 if problem.noise is None else problem.noise.sigma
        # For weights of mean 1 and l2 divided by their sum, the rate is changed, so that no weights are copied.
        rate, l2 = eta0 * n / problem.rows.total_weight, problem.l2 / n
        sums = self.windows[-1][:2] if self.windows else (None, None)
        settings = loss.code, sigma, l2, rate, self.steps, problem.fit_intercept
        self._pass(problem.rows, order, *settings, self.w, self.b, *sums)
        self.steps += len(order)

    def _pass(self, rows: Any, order: Index, *arguments: Any) -> None:
        """Make the steps in a compiled loop."""
        if rows.errors is None:
            rows.run(_binding.sgd_pass, order, rows.signed_weight, *arguments)
        else:
            rows.run(_binding.measured_pass, rows.errors.deviations, order, rows.signed_weight, *arguments)


class JointState(SGDState):
    """A descent for several classes: M-GURU, or M-GURU-S2 if a ``single`` random class moves in a step."""

    def __init__(
        self, n_columns: int, n_classes: int, start: Start | None = None, *, single: bool = False, seed: int = 0
    ) -> None:
        super().__init__(n_columns, width=(_binding.joint_width(n_classes),))
        self.n_classes, self.single = n_classes, single
        self.rng = np.random.default_rng([seed, n_classes])  # independent of the rows drawn with the same seed
        if start is not None:
            self.w[:, :n_classes], self.b[:n_classes] = start[0].T, start[1]

    @property
    def coef(self) -> Array:
        """The coefficients, shape (n_classes, n_columns); they add up to zero."""
        return np.ascontiguousarray(_centred(self.solution()[0][:, : self.n_classes]).T)

    @property
    def intercept(self) -> Array:
        """The intercepts, shape (n_classes,); they add up to zero."""
        return _centred(self.solution()[1][: self.n_classes])

    def _pass(self, rows: Rows, order: Index, *arguments: Any) -> None:
        n = self.n_classes
        moved = self.rng.integers(0, n, len(order), dtype=np.int32) if self.single else None
        rows.run(_binding.sgd_joint_pass, order, rows.labels, rows.weights, n, *arguments, moved)
        # F does not depend on the mean over the classes, which moving one class at a time, or rounding, changes.
        self.w[:, :n], self.b[:n] = _centred(self.w[:, :n]), _centred(self.b[:n])


def _centred(array: Array) -> Array:
    return np.asarray(array - array.mean(axis=-1, keepdims=True))


@dataclass(frozen=True)
class SGD(Generic[L]):
    """Settings of the solver; see the module for the method.

    Parameters
    ----------
    tol : stop when two epochs in a row lower F by less than ``tol * F(0)``
    max_iter : number of epochs; an epoch is as many random draws as there are rows
    verbose : 1 prints a line per epoch
    seed : of the draws
    eta0 : length of the first step; None finds one by short trials
    average : return the average of at least the last half of the iterates instead of the last one
    single : with several classes, move one random class in a step (M-GURU-S2)
    """

    # Most steps and rows of the trial of a rate (measured: the best rate for 10,000 steps is too small for more on
    # usps).
    trial_steps: ClassVar[int] = 50_000
    trial_rows: ClassVar[int] = 50_000
    # Number of consecutive epochs that must fail to lower F before the descent stops, because the curve is noisy.
    patience: ClassVar[int] = 2

    tol: float = 1e-4
    max_iter: int = 50
    verbose: int = 0
    seed: int = 0
    eta0: float | None = None
    average: bool = False
    single: bool = False

    def solve(self, problem: L, start: Start | None = None) -> Result:
        """Minimise, from ``(w, b)`` if given, and return the last solution.

        With a rate that is too large F may end above F(0) or not be finite: the status is then "max_iter".
        """
        if not np.isfinite(problem.rows.squared_norms).all():
            raise NotFiniteError
        eta0 = self.find_rate(problem) if self.eta0 is None else self.eta0
        state, log = self.begin(problem, start), Log("sgd", self.verbose, "epoch")
        n, rng = problem.rows.n_rows, np.random.default_rng(self.seed)
        curve, calm = [self.value(problem, state.coef, state.intercept)], 0  # calm: epochs without progress
        while len(curve) <= self.max_iter and calm < self.patience and math.isfinite(curve[-1]):
            if self.average:
                state.renew_average()
            state.run(problem, rng.integers(0, n, n), eta0)
            curve.append(self.value(problem, state.coef, state.intercept))
            calm = calm + 1 if curve[-2] - curve[-1] < self.tol * problem.weight else 0
            log(len(curve) - 1, curve[-1])
        coef, intercept, last = state.coef, state.intercept, curve[-1]
        certificate, alpha = self.certify(problem, coef, intercept)
        status: Status = "converged" if calm == self.patience and last <= problem.weight else "max_iter"
        gap, n_iter = min(certificate.gap, last), len(curve) - 1
        return Result(coef, intercept, last, gap, alpha, n_iter, status, loss_curve=curve[1:], eta0=eta0, state=state)

    def follow(self, problem: L, factors: Iterable[float]) -> Iterator[Result]:
        """Minimise at one noise level after another, given as factors, each from where the last one ended."""
        start = None
        for factor in factors:
            result = self.solve(problem.scaled(factor), start)
            start = (result.coef, result.intercept) if result.converged else None
            yield result

    def begin(self, problem: L, start: Start | None = None) -> SGDState:
        """Return the state of a descent that has made no step."""
        n_columns, n_classes = problem.rows.n_columns, problem.rows.n_classes
        if n_classes == 2:
            return SGDState(n_columns, start)
        return JointState(n_columns, n_classes, start, single=self.single, seed=self.seed)

    def value(self, problem: LossProblem[P], coef: Array, intercept: Intercept) -> float:
        """Return F of a classifier."""
        if not coef.any():
            return problem.constant_value(intercept)
        return problem.point(problem.unknowns(coef, intercept)).value

    def certify(self, problem: L, coef: Array, intercept: Intercept) -> tuple[Certificate, Array | None]:
        """Return the certificate of a classifier, and its slopes."""
        return certify(problem, coef, intercept)

    def find_rate(self, problem: L) -> float:
        """Return the power of 2 with which a short descent on a subsample ends lowest."""
        rng, n = np.random.default_rng(self.seed), problem.rows.n_rows
        trial = problem.subsample(self.trial_rows, rng) if n > self.trial_rows else problem
        order = rng.integers(0, trial.rows.n_rows, min(self.max_iter * n, self.trial_steps))
        first, second = np.array_split(order, 2)

        @cache
        def reached(exponent: int) -> float:
            state = self.begin(trial)
            state.run(trial, first, 2.0**exponent)
            if self.average:
                state.restart_average()
            state.run(trial, second, 2.0**exponent)
            value = self.value(trial, state.coef, state.intercept)
            # F below the rounding of F(0) counts as zero.
            return max(value, EPS * trial.weight) if math.isfinite(value) else math.inf

        # Powers of 2 between the first rates that are tried (measured: larger ones may be misled by noise).
        best, stride = 0, 4
        while stride and best + stride < sys.float_info.max_exp:  # a compass search
            before, best = best, min((best, best - stride, best + stride), key=reached)
            stride = stride // 2 if best == before else stride
        return 2.0**best
