"""KEN-GURU: stochastic gradient descent on the coefficients of a kernel machine.

``w = sum_j beta_j kappa(x_j, .)``. A step draws sample i, reads its row of the kernel matrix for the score
``zeta = sum_j beta_j K_ij``, and moves (thesis, chapter 4, with its slips corrected)::

    beta <- gamma beta,   beta_i <- beta_i + mu,      gamma = 1 - eta k_i / ||w||,   mu = eta s_i y_i f'(z_i)
    ||w||^2 <- gamma^2 ||w||^2 + 2 gamma mu zeta + mu^2 K_ii

so the norm costs nothing, and a step reads one row of the kernel matrix.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.kernel_matrix import KernelRows
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.problems.protocol import LossProblem, P
from gaussguru._guru.solvers.bounds import certify
from gaussguru._guru.solvers.sgd import SGD, SGDState, Start
from gaussguru._guru.solvers.subspace import OfSamples, Span
from gaussguru._native import _binding
from gaussguru._rows.rows import one_hot
from gaussguru._utils.linalg import Array, Index, Intercept


@dataclass(frozen=True, eq=False)
class KernelProblem(Binary):
    """The problem of two classes in the space of a kernel, evaluated in subspaces."""

    rows: KernelRows

    def on(self, features: Array) -> Binary:
        """Return the problem in a subspace, from the coordinates of the samples, (n_rows, n_dimensions)."""
        rows = self.rows.with_columns(np.ascontiguousarray(features))
        return Binary(rows, self.loss, self.noise, self.l2, self.fit_intercept)

    def along(self, coef: Array) -> tuple[Binary, Array]:
        """Return the problem along ``w`` alone, and its one coefficient there, ``||w||``."""
        margin = self.rows.kernel.product(coef)
        length = np.sqrt(np.maximum(0.0, coef @ margin))
        return self.on(margin[:, np.newaxis] / (length or 1.0)), np.array([length])


class KernelState(SGDState):
    """A descent in the space of a kernel, for two classes."""

    def __init__(self, problem: KernelProblem, start: Start | None = None) -> None:
        super().__init__(problem.rows.n_rows, start)
        # ||w||^2 of the last iterate
        self.square = 0.0 if start is None else float(problem.along(self.w)[1][0]) ** 2

    def _pass(self, rows: KernelRows, order: Index, *arguments: Any) -> None:
        code, sigma, l2, rate, steps, fit_intercept, *iterates = arguments
        for part, values in rows.kernel.blocks(order):
            drawn = order[part]
            self.square = _binding.kernel_pass(
                values, drawn, rows.signed_weight[drawn], rows.squared_norms[drawn], code, sigma, l2, rate,
                steps + part.start, fit_intercept, self.square, *iterates,
            )  # fmt: skip


@dataclass(frozen=True)
class KenGuru(SGD[KernelProblem]):
    """Settings of the solver; those of :class:`gaussguru._guru.solvers.sgd.SGD`."""

    # The cost of a step is proportional to the number of samples, so trials have few (measured: the best rate for a
    # trial on 200 is too small for more on usps).
    trial_rows = 1000

    def begin(self, problem: KernelProblem, start: Start | None = None) -> KernelState:
        """Return the state of a descent that has made no step."""
        return KernelState(problem, start)

    def value(self, problem: LossProblem[P], coef: Array, intercept: Intercept) -> float:
        """Return F of a classifier: that of the problem along ``w`` alone."""
        assert isinstance(problem, KernelProblem)
        return super().value(*problem.along(coef), intercept)

    def certify(self, problem: KernelProblem, coef: Array, intercept: Intercept) -> tuple[Certificate, Array | None]:
        """Return the certificate of a classifier, and its slopes.

        It is computed in the span of ``w`` and of ``sum s y alpha kappa(x, .)`` over each class, for the slopes of the
        classifier and those at its best length and intercept; for ``w = 0``, in the span of the class means.
        """
        rows, (alone, length) = problem.rows, problem.along(coef)
        span = Span(OfSamples(rows.kernel.product, float(np.sum(rows.squared_norms))), coef[:, np.newaxis])
        if not span.basis.size:  # w is zero, or lost in rounding
            span.add(one_hot(rows.labels, rows.weights, 2))
            return certify(problem.on(span.features), np.zeros(span.features.shape[1]), intercept)
        start = alone.point(alone.unknowns(length, intercept))
        points = start, alone.rescaled(start, 0.0)
        span.add(np.hstack([alone.by_cell(alone.residual(point.x)) for point in points]))
        spanned, first = problem.on(span.features), np.eye(1, span.features.shape[1])[0]
        duals = [certify(spanned, first * point.coef[0], point.b, rescaled=False)[0].dual for point in points]
        return Certificate(start.value, max(duals)), alone.slopes(start)
