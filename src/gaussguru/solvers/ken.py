"""KEN-GURU: stochastic gradient descent on the coefficients of a kernel machine.

``w = sum_j beta_j kappa(x_j, .)``. A step draws sample i, reads its row of the kernel matrix for the score
``zeta = sum_j beta_j K_ij``, and moves (thesis, chapter 4, with its slips corrected)::

    beta <- gamma beta,   beta_i <- beta_i + mu,      gamma = 1 - eta k_i / ||w||,   mu = eta s_i y_i f'(z_i)
    ||w||^2 <- gamma^2 ||w||^2 + 2 gamma mu zeta + mu^2 K_ii

so the norm costs nothing, and no step looks at more than one row of the kernel matrix.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gaussguru._kernels import _binding
from gaussguru.certificates import EPS, Certificate, certify_params
from gaussguru.gram import Gram
from gaussguru.losses import Array, Loss
from gaussguru.noise import Isotropic
from gaussguru.objective import Objective, draw_classes
from gaussguru.rows import Rows
from gaussguru.solvers.sgd import SGD, Descent, Settings


@dataclass(frozen=True)
class KernelProblem:
    """The binary objective of :mod:`gaussguru.objective` in the space of a kernel; w is given by its coefficients."""

    rows: Gram
    signed_weight: Array
    loss: Loss
    noise: Isotropic
    l2: float
    fit_intercept: bool

    @property
    def weights(self) -> Array:
        """The weight of every sample."""
        return np.abs(self.signed_weight)

    @property
    def weight(self) -> float:
        """F at zero."""
        return float(self.weights.sum())

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "KernelProblem":
        """Return about ``n_rows`` samples."""
        index = draw_classes(self.signed_weight, n_rows, rng)
        return replace(self, rows=self.rows.take(index), signed_weight=self.signed_weight[index])

    def on(self, features: Array) -> Objective:
        """Return the problem in a space of few dimensions, with these coordinates of the samples."""
        rows = Rows(np.ascontiguousarray(features))
        return Objective(rows, self.signed_weight, self.loss, self.noise, self.l2, self.fit_intercept)


class KernelState(Descent):
    """A descent in the space of a kernel, for two classes."""

    def __init__(self, problem: KernelProblem, start: tuple[Array, float] | None = None) -> None:
        super().__init__((problem.rows.n_rows,), 1)
        self.square = 0.0  # ||w||^2 of the last iterate
        if start is not None:
            self.w[:], self.b[0] = start
            self.square = max(0.0, float(self.w @ problem.rows.product(self.w)))

    @property
    def coef(self) -> Array:
        """The coefficients of the samples."""
        return self.solution()[0]

    @property
    def intercept(self) -> float:
        """The intercept."""
        return float(self.solution()[1][0])

    def _pass(self, objective: KernelProblem, order: Any, settings: Settings) -> None:
        code, sigma, l2, rate, steps, fit_intercept = settings
        for part, values in objective.rows.blocks(order):
            mine = order[part]
            self.square = _binding.kernel_pass(
                values, mine, objective.signed_weight[mine], objective.rows.squared_norms[mine], code, sigma, l2, rate,
                steps + part.start, fit_intercept, self.square, self.w, self.b, *self.totals,
            )  # fmt: skip


@dataclass(frozen=True)
class KenGuru(SGD):
    """Settings of the solver; those of :class:`gaussguru.solvers.sgd.SGD`."""

    trial_rows: ClassVar[int] = 1000

    def begin(self, objective: KernelProblem, start: tuple[Array, Any] | None = None) -> KernelState:
        """Return the state of a descent that has made no step."""
        return KernelState(objective, start)

    def value(self, objective: KernelProblem, state: Descent) -> float:
        """Return F where a descent is: that of the problem along ``w`` alone."""
        coef, intercept = state.coef, state.intercept
        margin = objective.rows.product(coef)
        length = float(np.sqrt(max(0.0, float(coef @ margin))))
        if length == 0:
            return objective.on(margin[:, np.newaxis]).constant_at(intercept)
        return float(objective.on(margin[:, np.newaxis] / length).point(np.array([length]), intercept).value)

    def certify(self, objective: KernelProblem, coef: Array, intercept: Any) -> tuple[Certificate, Array]:
        """Return the certificate of a classifier, and its slopes.

        It needs no more of the space than ``w`` and ``sum s y alpha kappa(x, .)`` over either class span.
        """
        margin = objective.rows.product(coef)
        length = float(np.sqrt(max(0.0, float(coef @ margin))))
        if length == 0:
            return certify_params(objective.on(margin[:, np.newaxis]), np.zeros(1), intercept)
        _, alpha = certify_params(objective.on(margin[:, np.newaxis] / length), np.array([length]), intercept)
        pull = objective.signed_weight * alpha
        pulls = np.column_stack([pull, np.where(pull > 0, pull, 0.0)])
        # An orthonormal basis: rows of coefficients, and of inner products with the samples.
        units, along = coef[np.newaxis] / length, margin[np.newaxis] / length
        for vector, values in zip(pulls.T, objective.rows.product(pulls).T, strict=True):
            shares = along @ vector
            unit, value = vector - shares @ units, values - shares @ along
            square = float(unit @ value)
            if square > EPS * float(vector @ values):
                units, along = (np.vstack([a, b / np.sqrt(square)]) for a, b in ((units, unit), (along, value)))
        return certify_params(objective.on(along.T), np.eye(1, len(along))[0] * length, intercept)
