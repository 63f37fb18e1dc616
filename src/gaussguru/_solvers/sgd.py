"""Stochastic gradient descent: the algorithms of the thesis.

GURU for two classes, M-GURU and M-GURU-S2 for several. A step draws a row and follows the gradient of its loss downhill
for ``eta0 / sqrt(t)``, t = 1, 2, ... What is minimised is F divided by the total weight, so that ``eta0`` means the
same for any number of rows.

F - F* falls as ``1 / sqrt(t)``: for data that comes in parts, or is seen once. Averaging the iterates removes most of
what the last steps scatter. The certificate says how far it came; it does not decide when to stop.

Both kinds of problem run through the same solver; what differs is in :class:`State` and :class:`JointState`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gaussguru._data.rows import NotFiniteError, Rows
from gaussguru._linalg import Array, Index
from gaussguru._native import _binding
from gaussguru._solvers.certify import certify
from gaussguru._solvers.result import Log, Result
from gaussguru.certificates.dual_point import Certificate

# Loss, sigma, l2, rate, steps made, whether there is an intercept.
Settings = tuple[int, float, float, float, int, bool]
# Rates are powers of 2 with exponents up to this size; those tried first are so far apart.
LARGEST, COARSE = 20, 4
# A trial has this many rows and steps, if the descent itself has so many: what is best for few is too small for more.
TRIAL_ROWS, TRIAL_STEPS = 10_000, 50_000
# The curve is noisy: one epoch without descent proves nothing.
PATIENCE = 2


@dataclass
class Sums:
    """Sums of ``n`` iterates."""

    w: Array
    b: Array
    n: int = 0


class Descent(ABC):
    """Where a descent is, after how many steps, and the sum of the places where it was.

    Nothing but arrays and numbers: it can be pickled, and goes on where it was, on the same rows or on others.

    Attributes
    ----------
    w, b : the last iterate, as the kernels have it
    steps : steps made so far, which set the length of the next
    """

    def __init__(self, shape: tuple[int, ...], n_intercepts: int) -> None:
        self.w, self.b = np.zeros(shape), np.zeros(n_intercepts)
        self.steps = 0
        self.since: Sums | None = None
        self.before: Sums | None = None

    def renew_average(self) -> None:
        """Restart the average when the last half of the steps is in it: it covers at least that half ever after."""
        if self.since is None or 2 * self.since.n >= self.steps:
            self.restart_average()

    def restart_average(self) -> None:
        """Let the solution be the average of the iterates since the call before this one, or from here on."""
        self.before, self.since = self.since, Sums(np.zeros_like(self.w), np.zeros_like(self.b))

    def solution(self) -> tuple[Array, Array]:
        """Return the average of the iterates, or the last one itself, as the kernels have it."""
        windows = [sums for sums in (self.since, self.before) if sums is not None]
        n = sum(sums.n for sums in windows)
        if n == 0:
            return self.w, self.b
        w, b = np.zeros_like(self.w), np.zeros_like(self.b)
        for sums in windows:
            w += sums.w
            b += sums.b
        return w / n, b / n

    def run(self, problem: Any, order: Index, eta0: float) -> None:
        """Make one step on each row of ``order``."""
        loss, n = problem.loss, problem.rows.n_rows
        if loss.code < 0:
            raise ValueError(f"solver 'sgd' needs a compiled loss; {loss!r} is written in NumPy only")
        sigma = 0.0 if problem.noise is None else problem.noise.sigma
        # Weights of mean 1, and l2 divided by their sum: all in the rate, and no weight is copied.
        rate, l2 = eta0 * n / problem.rows.total_weight, problem.l2 / n
        self._pass(problem.rows, order, (loss.code, sigma, l2, rate, self.steps, problem.fit_intercept))
        self.steps += len(order)
        if self.since is not None:
            self.since.n += len(order)

    @property
    def totals(self) -> tuple[Array, Array] | tuple[None, None]:
        """Where the kernels add the iterates up."""
        return (None, None) if self.since is None else (self.since.w, self.since.b)

    @abstractmethod
    def _pass(self, rows: Any, order: Index, settings: Settings) -> None: ...

    @property
    @abstractmethod
    def coef(self) -> Array:
        """The coefficients of the solution."""

    @property
    @abstractmethod
    def intercept(self) -> Any:
        """The intercept of the solution, or one for each class."""


class State(Descent):
    """A descent for two classes: GURU."""

    def __init__(self, n_columns: int, start: tuple[Array, float] | None = None) -> None:
        super().__init__((n_columns,), 1)
        if start is not None:
            self.w[:], self.b[0] = start

    @property
    def coef(self) -> Array:
        """The coefficients, shape (n_columns,)."""
        return self.solution()[0]

    @property
    def intercept(self) -> float:
        """The intercept."""
        return float(self.solution()[1][0])

    def _pass(self, rows: Rows, order: Index, settings: Settings) -> None:
        arguments = (order, rows.signed_weight, *settings, self.w, self.b, *self.totals)
        if rows.errors is None:
            rows.run(_binding.sgd_pass, *arguments)
        else:
            rows.run(_binding.measured_pass, rows.errors.deviations, *arguments)


class JointState(Descent):
    """A descent for several classes: M-GURU, or M-GURU-S2 if a ``single`` random class moves in a step."""

    def __init__(
        self,
        n_columns: int,
        n_classes: int,
        start: tuple[Array, Array] | None = None,
        *,
        single: bool = False,
        seed: int = 0,
    ) -> None:
        width = _binding.joint_width(n_classes)
        super().__init__((n_columns, width), width)
        self.n_classes, self.single = n_classes, single
        self.rng = np.random.default_rng([seed, n_classes])  # classes must not follow rows drawn with the same seed
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

    def _pass(self, rows: Rows, order: Index, settings: Settings) -> None:
        n = self.n_classes
        moved = self.rng.integers(0, n, len(order), dtype=np.int32) if self.single else None
        weighted = (rows.labels, rows.weights, n)
        rows.run(_binding.sgd_joint_pass, order, *weighted, *settings, self.w, self.b, *self.totals, moved)
        # F does not depend on what the classes have in common, which moving one at a time, or rounding, changes.
        self.w[:, :n], self.b[:n] = _centred(self.w[:, :n]), _centred(self.b[:n])


def _centred(array: Array) -> Array:
    centred: Array = array - array.mean(axis=-1, keepdims=True)
    return centred


@dataclass(frozen=True)
class SGD:
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

    tol: float = 1e-4
    max_iter: int = 50
    verbose: int = 0
    seed: int = 0
    eta0: float | None = None
    average: bool = False
    single: bool = False

    trial_rows: ClassVar[int] = TRIAL_ROWS

    def solve(self, problem: Any, start: tuple[Array, Any] | None = None) -> Result:
        """Minimise, from ``(w, b)`` if given, and return the last place.

        A rate that is too large may end above F(0), or not at a number: such a descent has not converged.
        """
        if not np.isfinite(problem.rows.squared_norms).all():
            raise NotFiniteError
        eta0 = self.find_rate(problem) if self.eta0 is None else self.eta0
        state, zero = self.begin(problem, start), problem.weight
        n, rng, log = problem.rows.n_rows, np.random.default_rng(self.seed), Log("sgd", self.verbose, "epoch")
        curve: list[float] = []
        last, calm = zero if start is None else self.value(problem, state), 0
        while len(curve) < self.max_iter and calm < PATIENCE and math.isfinite(last):
            if self.average:
                state.renew_average()
            state.run(problem, rng.integers(0, n, n), eta0)
            value = self.value(problem, state)
            calm = calm + 1 if last - value < self.tol * zero else 0
            curve.append(value)
            last = value
            log(len(curve), value)
        coef, intercept = state.coef, state.intercept
        certificate, alpha = self.certify(problem, coef, intercept)
        return Result(
            coef=coef,
            intercept=intercept,
            objective=last,
            gap=min(certificate.gap, last),
            alpha=alpha,
            n_iter=len(curve),
            status="converged" if calm == PATIENCE and last <= zero else "max_iter",
            loss_curve=curve,
            eta0=eta0,
            state=state,
        )

    def follow(self, problem: Any, factors: Iterable[float]) -> Iterator[Result]:
        """Minimise at one noise level after another, given as factors, each from where the last one ended."""
        start = None
        for factor in factors:
            result = self.solve(problem.scaled(factor), start)
            start = (result.coef, result.intercept) if result.converged else None
            yield result

    def begin(self, problem: Any, start: tuple[Array, Any] | None = None) -> Descent:
        """Return the state of a descent that has made no step."""
        n_columns, n_classes = problem.rows.n_columns, problem.rows.n_classes
        if n_classes == 2:
            return State(n_columns, start)
        return JointState(n_columns, n_classes, start, single=self.single, seed=self.seed)

    def value(self, problem: Any, state: Descent) -> float:
        """Return F where a descent is."""
        coef, intercept = state.coef, state.intercept
        if not coef.any():
            return float(problem.constant_value(intercept))
        return float(problem.point(problem.unknowns(coef, intercept)).value)

    def certify(self, problem: Any, coef: Array, intercept: Any) -> tuple[Certificate, Array]:
        """Return the certificate of a classifier, and its slopes."""
        return certify(problem, coef, intercept)

    def find_rate(self, problem: Any) -> float:
        """Return the power of 2 from which a short descent on some of the rows gets lowest."""
        rng, n = np.random.default_rng(self.seed), problem.rows.n_rows
        some = problem.subsample(self.trial_rows, rng) if n > self.trial_rows else problem
        order = rng.integers(0, some.rows.n_rows, min(self.max_iter * n, TRIAL_STEPS))
        values: dict[int, float] = {}

        def attempt(exponent: int) -> None:
            state = self.begin(some)
            first, second = np.array_split(order, 2)
            state.run(some, first, 2.0**exponent)
            if self.average:
                state.restart_average()
            state.run(some, second, 2.0**exponent)
            value = self.value(some, state)
            values[exponent] = value if math.isfinite(value) else math.inf

        for exponent in range(-LARGEST, LARGEST + 1, COARSE):
            attempt(exponent)
        for stride in (COARSE // 2, COARSE // 4):
            best = min(values, key=values.__getitem__)
            attempt(best - stride)
            attempt(best + stride)
        return float(2.0 ** min(values, key=values.__getitem__))
