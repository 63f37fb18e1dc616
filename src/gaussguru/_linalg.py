"""Arrays: their types, lengths, and symmetric matrices given by their lower triangles."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dnrm2
from scipy.linalg.lapack import dpotrf, dpotrs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
# Of two classes a number, of more an array with one for each.
Intercept = float | Array

# The distance from 1 to the next number.
EPS = float(np.finfo(np.float64).eps)
# Numbers that differ by no more than this part of them are the same: sums are rounded in some order.
SAME = 1e-9
# What is at most this part of a sum over samples is lost in its rounding (a few thousand roundings: F adds up as many
# terms).
LOST = 1e-12
# A Hessian is formed up to this many columns; two of them are then 64 MB.
MAX_COLUMNS = 2048


def norm(v: Array) -> float:
    """Return the Euclidean length of a vector, also where its square overflows or underflows."""
    return float(dnrm2(v)) if len(v) else 0.0


def extended(v: Array, number: float) -> Array:
    """Return a vector with one more number (``np.append`` takes three times as long)."""
    result = np.empty(len(v) + 1)
    result[:-1], result[-1] = v, number
    return result


def log_sum(logs: Array, axis: int) -> Array:
    """Return ``log sum exp`` along an axis, as SciPy's ``logsumexp`` in a fifth of its time; all may be -inf."""
    largest = logs.max(axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        found: Array = np.log(np.exp(logs - shift).sum(axis=axis))
    return found + shift.squeeze(axis)


def shares_of(logs: Array) -> Array:
    """Return numbers of which these are the logarithms, but for a factor, by row, as parts of one."""
    parts = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(parts / parts.sum(axis=1, keepdims=True))


def diagonal(matrix: Array) -> Array:
    """Return a writable view of the diagonal."""
    view: Array = matrix.diagonal()
    view.flags.writeable = True
    return view


def mirrored(lower: Array) -> Array:
    """Return the symmetric matrix with this lower triangle, whatever is above it."""
    return np.where(_lower(len(lower)), lower, lower.T)


@lru_cache(maxsize=4)
def _lower(n: int) -> NDArray[np.bool_]:
    return np.tri(n, dtype=bool)


class Factor(NamedTuple):
    """A Cholesky factor."""

    cholesky: Array
    is_exact: bool = True

    def solve(self, g: Array) -> Array:
        """Return the inverse of the factored matrix times ``g``."""
        solution: Array = dpotrs(self.cholesky, g)[0]
        return solution


def factorise(hessian: Array, damping: Array | float = 0.0) -> Factor:
    """Factor a positive semidefinite matrix given by its lower triangle, damped, with the least ridge it needs.

    The ridge is relative to each diagonal entry: w and b, or two features, may have very different units, and a
    Cholesky factor is as accurate as if the matrix had been scaled to a unit diagonal first.
    """
    entries = diagonal(hessian)
    entries += damping
    entries[entries <= 1e-200] = 1.0
    ridge = 1e-13
    while True:
        entries *= 1.0 + ridge
        # To LAPACK, which counts by columns, the lower triangle is the upper one of the transpose.
        cholesky, failed = dpotrf(hessian.T, clean=False)
        if not failed:
            return Factor(cholesky)
        ridge *= 100
