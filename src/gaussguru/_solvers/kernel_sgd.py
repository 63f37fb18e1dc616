"""KEN-GURU: stochastic gradient descent on the coefficients of a kernel machine.

``w = sum_j beta_j kappa(x_j, .)``. A step draws sample i, reads its row of the kernel matrix for the score
``zeta = sum_j beta_j K_ij``, and moves (thesis, chapter 4, with its slips corrected)::

    beta <- gamma beta,   beta_i <- beta_i + mu,      gamma = 1 - eta k_i / ||w||,   mu = eta s_i y_i f'(z_i)
    ||w||^2 <- gamma^2 ||w||^2 + 2 gamma mu zeta + mu^2 K_ii

so the norm costs nothing, and no step looks at more than one row of the kernel matrix.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaussguru._data.kernel_matrix import Gram
from gaussguru._data.rows import Rows
from gaussguru._linalg import EPS, Array
from gaussguru._native import _binding
from gaussguru._problems.binary import Binary
from gaussguru._problems.smoothing import RARE
from gaussguru._solvers.certify import EXACTLY, certify
from gaussguru._solvers.sgd import SGD, Descent, Settings
from gaussguru.certificates.dual_point import Certificate
from gaussguru.losses import Loss
from gaussguru.noise import Isotropic


class KernelRows(Rows):
    """Labelled samples whose rows are those of a kernel matrix, computed within a budget of memory."""

    def __init__(self, kernel: Gram, labels: NDArray[Any], weights: Array | None) -> None:
        super().__init__(np.broadcast_to(0.0, (kernel.n_rows, 1)), labels, weights)
        self.kernel = kernel

    @cached_property
    def squared_norms(self) -> Array:
        """The value of every sample with itself."""
        return self.kernel.squared_norms


@dataclass(frozen=True)
class KernelProblem:
    """The problem of two classes in the space of a kernel; w is given by the coefficients of the samples."""

    rows: KernelRows
    loss: Loss
    noise: Isotropic
    l2: float
    fit_intercept: bool

    @property
    def weight(self) -> float:
        """F at zero."""
        return self.rows.total_weight

    def subsample(self, n_rows: int, rng: np.random.Generator) -> "KernelProblem":
        """Return about ``n_rows`` samples."""
        rows = self.rows
        index = rows.draw(n_rows, rng, RARE)
        return replace(self, rows=KernelRows(rows.kernel.take(index), rows.labels[index], rows.weights[index]))

    def on(self, features: Array) -> Binary:
        """Return the problem in a space of few dimensions, with these coordinates of the samples."""
        rows = self.rows.with_columns(np.ascontiguousarray(features))
        return Binary(rows, self.loss, self.noise, self.l2, self.fit_intercept)


class KernelState(Descent):
    """A descent in the space of a kernel, for two classes."""

    def __init__(self, problem: KernelProblem, start: tuple[Array, float] | None = None) -> None:
        super().__init__((problem.rows.n_rows,), 1)
        self.square = 0.0  # ||w||^2 of the last iterate
        if start is not None:
            self.w[:], self.b[0] = start
            self.square = max(0.0, float(self.w @ problem.rows.kernel.product(self.w)))

    @property
    def coef(self) -> Array:
        """The coefficients of the samples."""
        return self.solution()[0]

    @property
    def intercept(self) -> float:
        """The intercept."""
        return float(self.solution()[1][0])

    def _pass(self, rows: KernelRows, order: Any, settings: Settings) -> None:
        code, sigma, l2, rate, steps, fit_intercept = settings
        for part, values in rows.kernel.blocks(order):
            mine = order[part]
            self.square = _binding.kernel_pass(
                values, mine, rows.signed_weight[mine], rows.squared_norms[mine], code, sigma, l2, rate,
                steps + part.start, fit_intercept, self.square, self.w, self.b, *self.totals,
            )  # fmt: skip


@dataclass(frozen=True)
class KenGuru(SGD):
    """Settings of the solver; those of :class:`gaussguru.solvers.sgd.SGD`."""

    trial_rows: ClassVar[int] = 1000

    def begin(self, problem: KernelProblem, start: tuple[Array, Any] | None = None) -> KernelState:
        """Return the state of a descent that has made no step."""
        return KernelState(problem, start)

    def value(self, problem: KernelProblem, state: Descent) -> float:
        """Return F where a descent is: that of the problem along ``w`` alone."""
        coef, intercept = state.coef, state.intercept
        margin = problem.rows.kernel.product(coef)
        length = float(np.sqrt(max(0.0, float(coef @ margin))))
        if length == 0:
            return problem.on(margin[:, np.newaxis]).constant_value(intercept)
        return float(problem.on(margin[:, np.newaxis] / length).point(np.array([length, intercept])).value)

    def certify(self, problem: KernelProblem, coef: Array, intercept: Any) -> tuple[Certificate, Array]:
        """Return the certificate of a classifier, and its slopes.

        It needs no more of the space than ``w`` and ``sum s y alpha kappa(x, .)`` over either class span, for its own
        slopes and for those at the best length and intercept.
        """
        margin = problem.rows.kernel.product(coef)
        length = float(np.sqrt(max(0.0, float(coef @ margin))))
        if length == 0:
            return certify(problem.on(margin[:, np.newaxis]), np.zeros(1), intercept)
        alone = problem.on(margin[:, np.newaxis] / length)
        start = alone.point(np.array([length, intercept]))
        points = start, alone.rescaled(start, EXACTLY)
        pulls = np.hstack([alone.by_cell(alone.residual(point.x)) for point in points])
        # An orthonormal basis: rows of coefficients, and of inner products with the samples.
        units, along = coef[np.newaxis] / length, margin[np.newaxis] / length
        for vector, values in zip(pulls.T, problem.rows.kernel.product(pulls).T, strict=True):
            shares = along @ vector
            unit, value = vector - shares @ units, values - shares @ along
            square = float(unit @ value)
            if square > EPS * float(vector @ values):
                units, along = (np.vstack([a, b / np.sqrt(square)]) for a, b in ((units, unit), (along, value)))
        spanned, first = problem.on(along.T), np.eye(1, len(along))[0]
        duals = [certify(spanned, first * point.coef[0], point.b, rescaled=False)[0].dual for point in points]
        return Certificate(start.value, max(duals)), alone.slopes(start)
