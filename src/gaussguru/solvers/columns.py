"""Coordinate descent on the columns of few rows, where the noise bounds no more than the largest ``|w_j|``.

What such a ``w_j`` does is up to a few rows: F is nearly linear in it until they pass the margin, and then flat, which
no quadratic model tells from far away. But it costs next to nothing to find the best one exactly, with the others as
they are, again and again.
"""

import numpy as np

from gaussguru._kernels import _binding
from gaussguru.cholesky import MAX_COLUMNS
from gaussguru.objective import Objective, Point

# Sweeps at most, the part of the fall of the first that is worth another, and the part of F that is none.
SWEEPS, WORTH, NOTHING = 10, 0.03, 1e-12


def can_sweep(objective: Objective) -> bool:
    """Return whether there are such columns."""
    noise, rows = objective.noise, objective.rows
    return not (noise.smooth or objective.loss.code < 0 or rows.n_columns > MAX_COLUMNS) and len(rows.rare.place) > 0


def swept(objective: Objective, point: Point) -> Point:
    """Return a point at which the coefficients of rare columns are the best for those of the others, if there are any.

    None of them is larger than the largest was, so the noise does not grow. The margins are as exact as so many sums
    leave them.
    """
    if not can_sweep(objective) or not point.w.any():
        return point
    w, margin = point.coef.copy(), point.stretch * point.margin
    most = float(np.abs(w).max())
    least, first = NOTHING * point.value / most, 0.0
    for _ in range(SWEEPS):
        fall = _binding.sweep(
            *objective.rows.rare,
            objective.loss.code,
            objective.signed_weight,
            point.b,
            point.scale,
            objective.l2,
            most,
            least,
            w,
            margin,
        )
        first = first or fall
        if fall <= WORTH * first:
            break
    return objective.point(w, point.b, margin)
