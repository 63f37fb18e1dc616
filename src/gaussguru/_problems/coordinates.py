"""Dual coordinate descent with shrinking, for a first point where features abound.

Such problems are often separable, and coordinate descent on the hinge loss (Hsieh et al. 2008) finds out in the time of
some passes over X. What takes longest are a few nearly equal rows of different labels: only a large alpha of both tells
them apart, and it grows a little with each visit. So sweeps shrink to the rows within the margin, and the rows with the
largest alpha are visited many times, which costs next to nothing. The intercept is a constant feature, a fraction of
the mean length of a row.
"""

from typing import TYPE_CHECKING

import numpy as np

from gaussguru._linalg import Array, Index
from gaussguru._native import _binding

if TYPE_CHECKING:
    from gaussguru._problems.binary import Binary, Point

# Sweeps over all rows, then rounds of sweeps over those within the margin.
PASSES, ROUNDS, SWEEPS = 3, 7, 5
# Rows of the largest alpha, and sweeps over them and over hard rows, as long as these are at most this fraction of all.
HARDEST, HARD_SWEEPS, HARD_FRACTION = 50, 100, 0.01
# The margin that needs no sweep, and the one below which a row is hard.
WITHIN, HARD = 0.9, 0.5
# The largest alpha, and the constant feature, in units of the mean square of a row and of its root.
CAP, BIAS = 1e6, 0.3


def coordinate_descent(problem: "Binary", enough: float, tol: float, seed: int = 0) -> "Point":
    """Return a classifier of the noiseless problem, rescaled; it ends where F is at most ``enough``."""
    rng, rows = np.random.default_rng(seed), problem.rows
    square, n = float(rows.column_squares.sum()) / problem.weight, rows.n_rows
    bias = BIAS * float(np.sqrt(square)) if problem.fit_intercept else 0.0
    params, alpha = np.zeros(rows.n_columns + 1), np.zeros(n)
    signed = rows.signed_weight

    def sweep(order: Index, times: int = 1) -> None:
        for _ in range(times):
            rows.count("value", len(order) / n)
            rows.run(_binding.coordinate_pass, rng.permutation(order), signed, CAP / square, bias, alpha, params)

    def look() -> tuple["Point", Array]:
        point = problem.point(np.append(params[:-1], bias * params[-1]))
        return point, np.copysign(1.0, signed) * (rows.gather(point.margin) + point.b)

    sweep(np.arange(n), PASSES)
    sweep(np.flatnonzero(look()[1] < WITHIN), SWEEPS)
    for left in range(ROUNDS, -1, -1):
        point, margin = look()
        hard = np.flatnonzero(margin < HARD)
        separated = margin.min() > 0 and problem.rescaled(point, tol).value <= enough
        if separated or not left or len(hard) > HARD_FRACTION * n:
            break
        sweep(np.union1d(np.argsort(alpha)[-HARDEST:], hard), HARD_SWEEPS)
        sweep(np.flatnonzero(margin < WITHIN), SWEEPS)
    return problem.rescaled(point, tol)
