"""Dual coordinate descent with shrinking, for a first point where features abound.

Such problems are often separable, and coordinate descent on the hinge loss (Hsieh et al. 2008) finds out in the time of
some passes over X. What takes longest are a few nearly equal rows of different labels: only a large alpha of both tells
them apart, and it grows a little with each visit. So sweeps shrink to the rows within the margin, and the rows with the
largest alpha are visited many times, which costs next to nothing. The intercept is a constant feature, a fraction of
the mean length of a row.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from gaussguru._linalg import Index
from gaussguru._native import _binding
from gaussguru._problems.smoothing import NEGLIGIBLE

if TYPE_CHECKING:
    from gaussguru._problems.binary import Binary, BinaryPoint

# Sweeps of a round over the rows within the margin (measured on news20: 4 take up to 20 % more passes). As many sweeps
# over rare features follow a step (:mod:`gaussguru._problems.axis`; more save no iterations).
SWEEPS = 3
# So many rows of the largest alpha, and the misclassified ones, are swept so many times in a round (measured: 50 to 100
# differ by 20 %, 200 takes 30 % more passes); a first point is good enough where that would cost more than a pass.
HARDEST = 100
# The largest alpha, in units of the mean square of a row, is that of a hard margin but for rows that are nearly zero;
# the constant feature, in units of its root (measured: 1 takes up to 30 % more passes).
CAP, BIAS = 1e6, 0.3


def coordinate_descent(problem: "Binary", enough: float, tol: float, seed: int = 0) -> "BinaryPoint":
    """Return a classifier of the noiseless problem, rescaled.

    Rounds end where F is at most ``enough``, or hardly falls: beside much noise, a large margin is not what counts.
    """
    rng, rows = np.random.default_rng(seed), problem.rows
    square, n, signed = float(rows.column_squares.sum()) / problem.weight, rows.n_rows, rows.signed_weight
    bias = BIAS * math.sqrt(square) if problem.fit_intercept else 0.0
    params, alpha = np.zeros(rows.n_columns + 1), np.zeros(n)

    def sweep(order: Index, times: int) -> None:
        for _ in range(times):
            rows.count("value", len(order) / n)
            rows.run(_binding.coordinate_pass, rng.permutation(order), signed, CAP / square, bias, alpha, params)

    within, best = np.arange(n), None
    while True:
        sweep(within, SWEEPS)
        point = problem.point(np.append(params[:-1], bias * params[-1]))
        margin = np.copysign(1.0, signed) * (rows.gather(point.margin) + point.b)
        wrong, point = np.flatnonzero(margin < 0), problem.rescaled(point, tol)
        if best is not None and not point.value <= (1 - NEGLIGIBLE) * best.value:
            return min(best, point, key=lambda either: either.value)
        best = point
        if best.value <= enough or len(wrong) > n / HARDEST:
            return best
        sweep(np.union1d(np.argsort(alpha)[-HARDEST:], wrong), HARDEST)
        within = np.flatnonzero(margin < 1 - NEGLIGIBLE)
