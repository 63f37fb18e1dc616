"""Dual coordinate descent with shrinking, for a first point of problems with many features.

These problems are often separable, and coordinate descent on the hinge loss (Hsieh et al. 2008) separates the classes
in the time of a few passes over X. Nearly equal rows of different labels take longest: they need a large alpha, which
grows a little with each visit. So sweeps shrink to the rows within the margin, and the rows with the largest alpha are
visited many times, at little cost. The intercept is a constant feature, a fraction of the mean length of a row.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from gaussguru._guru.problems.smoothing import NEGLIGIBLE
from gaussguru._native import _binding
from gaussguru._utils.linalg import Index

if TYPE_CHECKING:
    from gaussguru._guru.problems.binary import Binary, BinaryPoint

# Sweeps per round over the rows within the margin (measured on news20: 4 take up to 20 % more passes), and over rare
# features after a step (:mod:`gaussguru._guru.problems.axis`; more save no iterations).
SWEEPS = 3


def coordinate_descent(problem: "Binary", enough: float, tol: float) -> "BinaryPoint":
    """Return a point of the noiseless problem, with its best length and intercept.

    Rounds end when F is at most ``enough`` or falls by less than a tenth: with much noise, a larger margin does not
    lower F.
    """
    rng, rows = np.random.default_rng(0), problem.rows
    square, n, signed = float(rows.column_squares.sum()) / problem.weight, rows.n_rows, rows.signed_weight
    # The constant feature, relative to the root mean square of a row (measured: 1 takes up to 30 % more passes), and
    # the largest alpha, so large that only rows that are nearly zero differ from a hard margin.
    bias, cap = 0.3 * math.sqrt(square) if problem.fit_intercept else 0.0, 1e6 / square
    params, alpha = np.zeros(rows.n_columns + 1), np.zeros(n)
    # Number of rows with the largest alpha that are swept in a round, with the misclassified rows, and of sweeps over
    # them (measured: 50 to 100 differ by 20 %, 200 takes 30 % more passes). Rounds end when these sweeps cost more than
    # a pass.
    hardest = 100

    def sweep(order: Index, times: int) -> None:
        for _ in range(times):
            rows.count("value", len(order) / n)
            rows.run(_binding.coordinate_pass, rng.permutation(order), signed, cap, bias, alpha, params)

    within, best = np.arange(n), None
    while True:
        sweep(within, SWEEPS)
        point = problem.point(np.append(params[:-1], bias * params[-1]))
        margin = np.copysign(1.0, signed) * (rows.gather(point.margin) + point.b)
        wrong, point = np.flatnonzero(margin < 0), problem.rescaled(point, tol)
        if best is not None and not point.value <= (1 - NEGLIGIBLE) * best.value:
            return min(best, point, key=lambda either: either.value)
        best = point
        if best.value <= enough or len(wrong) > n / hardest:
            return best
        sweep(np.union1d(np.argsort(alpha)[-hardest:], wrong), hardest)
        within = np.flatnonzero(margin < 1 - NEGLIGIBLE)
