"""Arrays: their types, lengths, and symmetric matrices given by their lower triangles."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dnrm2
from scipy.linalg.lapack import dpotrf, dpotrs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
# A number for two classes, an array (n_classes,) for more.
Intercept = float | Array

EPS = float(np.finfo(np.float64).eps)
# Numbers with at most this relative difference count as equal: sums may be added in any order.
SAME = 1e-9
# A difference of at most this fraction of its terms counts as rounding.
ROUNDED = 1e-13
# Changes of at most this fraction of a sum over samples are below its rounding, a few thousand EPS.
LOST = 1e-12
# A Hessian is formed up to this many columns; two Hessians then take 64 MB.
MAX_COLUMNS = 2048


def aligned(value: Any) -> Any:
    """Return a value whose arrays begin at addresses of their type, as compiled loops expect.

    NumPy reads numbers at any address, such as in a file or where Dask leaves them in a message.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(aligned, value))
    if isinstance(value, tuple | list):
        return type(value)(map(aligned, value))
    if isinstance(value, dict):
        return {name: aligned(entry) for name, entry in value.items()}
    if type(value).__module__.startswith(("gaussguru.", "scipy.sparse")):
        for name, entry in list(getattr(value, "__dict__", {}).items()):
            object.__setattr__(value, name, aligned(entry))
    return value


def norm(v: Array) -> float:
    """Return the Euclidean length of a vector, also where its square overflows or underflows."""
    return float(dnrm2(v)) if len(v) else 0.0


def extended(v: Array, number: float) -> Array:
    """Return a vector with one more number (``np.append`` takes three times as long)."""
    result = np.empty(len(v) + 1)
    result[:-1], result[-1] = v, number
    return result


def log_sum(logs: Array, axis: int) -> Array:
    """Return ``log sum exp`` along an axis, five times as fast as SciPy's ``logsumexp``; all may be -inf."""
    largest = logs.max(axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        sums: Array = np.log(np.exp(logs - shift).sum(axis=axis))
    return sums + shift.squeeze(axis)


def shares_of(logs: Array) -> Array:
    """Return ``exp(logs)`` divided by its row sums, (n, k): softmax by row, without overflow."""
    parts = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(parts / parts.sum(axis=1, keepdims=True))


def diagonal(matrix: Array) -> Array:
    """Return a writable view of the diagonal."""
    view: Array = matrix.diagonal()
    view.flags.writeable = True
    return view


def graded_roots(rows: Array) -> Array:
    """Return L of shape (n, m, min(m, r)) with ``L L' = A A'`` for every matrix A of an array (n, m, r).

    The columns of L that are not 0 come first, the largest in front. Householder reflections of the columns, with the
    largest remaining entry as pivot, keep the relative accuracy of small entries (Cox & Higham 1998, Numer. Math. 79).
    Entries below the rounding of larger ones become 0.
    """
    A = np.array(rows, dtype=np.float64)
    n, m, r = A.shape
    L, each = np.zeros((n, m, min(m, r))), np.arange(n)
    for k in range(L.shape[2]):
        row, column = np.divmod(np.abs(A).reshape(n, m * A.shape[2]).argmax(axis=1), A.shape[2])
        A[each, :, 0], A[each, :, column] = A[each, :, column], A[each, :, 0]
        pivot = A[each, row]
        largest = np.abs(pivot[:, :1])
        v = np.divide(pivot, largest, out=np.zeros_like(pivot), where=largest > 0)
        v[:, 0] += np.copysign(np.sqrt(np.square(v).sum(axis=1)), v[:, 0])
        squares = 0.5 * np.square(v).sum(axis=1)
        scaled = np.divide(v, squares[:, np.newaxis], out=np.zeros_like(v), where=v[:, :1] != 0)[:, :, np.newaxis]
        v = v[:, np.newaxis]
        # The rounding of a reflected entry is proportional to the sizes of its terms.
        terms = np.abs(A) + (np.abs(A) @ np.abs(scaled)) * np.abs(v)
        A -= (A @ scaled) * v
        A[np.abs(A) <= ROUNDED * terms] = 0.0
        L[:, :, k], A = A[:, :, 0], A[:, :, 1:]
    return L


def mirrored(lower: Array) -> Array:
    """Return the symmetric matrix with this lower triangle; entries above it are ignored."""
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
    """Factor a positive semidefinite matrix given by its lower triangle, plus damping and the least necessary ridge.

    The matrix is overwritten. The ridge is relative to each diagonal entry: w and b, or two features, may have very
    different units, and a Cholesky factor is as accurate as that of a matrix scaled to a unit diagonal.
    """
    entries = diagonal(hessian)
    entries += damping
    entries[entries <= 1e-200] = 1.0
    ridge = 1e-13
    while True:
        entries *= 1.0 + ridge
        # LAPACK stores by columns: the lower triangle is the upper one of the transpose.
        cholesky, failed = dpotrf(hessian.T, clean=False)
        if not failed:
            return Factor(cholesky)
        ridge *= 100
