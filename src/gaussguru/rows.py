"""The rows of X as blocks, and the ways in which a linear model reads them.

A block is a range of rows. The compiled loops work on one block without the GIL; where the blocks are mapped
is the ``map`` given to :class:`Rows`: the built-in one, or that of a thread pool. The edges of the blocks
depend on the data alone and partial sums are added in block order, so a result has the same bits for any
number of threads.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._kernels import _binding
from gaussguru.losses import Array, Index

# A task this long (about 0.2 ms) hides the 20 us that handing it to a thread costs.
BLOCK_BYTES = 4 << 20
MAX_BLOCKS = 64
POINTWISE_ROWS = 50_000
# From here on BLAS beats the compiled Gram loop (measured: level at 100 columns, 2.7 times at 784).
BLAS_COLUMNS = 96
BLAS_BYTES = 2 << 20
PIECE_BYTES = 1 << 20

Matrix = Any  # a C-contiguous ndarray or a CSR matrix or array
BlockMap = Callable[[Callable[[int, int], Any], Iterable[int], Iterable[int]], Iterable[Any]]


class Rows:
    """X, dense C-contiguous or CSR with sorted distinct indices, float32 or float64; never copied.

    ``width`` is how many numbers a row or a column is given in each reading: 1, or the number of classes.

    ::

        margins(w)             X w
        combine(r)             X' r, the rows of each sign of r apart
        product(h, e, p, ...)  [X e 1]' diag(h) [X e 1] p
        gram(h, e, a)          the sum of h u u', u = (x + e a, 1), or without a of (x, e, 1)
        leverages(c)           the sum of c_j x_j^2 of every row
        moments(s y)           combine(s y), and the sums of s x^2
        joint_scores(W)        X W for a matrix W, piece by piece
        joint_combine(R)       R' X for a matrix R, piece by piece
    """

    def __init__(self, X: Matrix, map: BlockMap = map, width: int = 1) -> None:
        self.X = X
        self.width = width
        self.n_rows, self.n_columns = int(X.shape[0]), int(X.shape[1])
        self.map = map
        self.view = _binding.MatrixView(X)
        self.sparse = sp.issparse(X)
        self.n_values = int(X.nnz if self.sparse else X.size)
        n_bytes = X.data.nbytes + X.indices.nbytes if self.sparse else X.nbytes
        # With several numbers a row there is as much to do for them as for X.
        self._edges = self._cut(n_bytes + (32 * self.n_rows * width if width > 1 else 0))

    def _cut(self, n_bytes: int) -> list[int]:
        """Return the edges of blocks with about as much to read in each."""
        n_blocks = min(MAX_BLOCKS, 1 + n_bytes // BLOCK_BYTES)
        if self.sparse:
            # Each block returns width vectors of n_columns: adding them up must stay cheaper than reading the rows.
            n_blocks = min(n_blocks, max(1, self.n_values // (4 * self.width * max(1, self.n_columns))))
        if n_blocks == 1:
            return [0, self.n_rows]
        cuts = np.linspace(0, self.n_values if self.sparse else self.n_rows, n_blocks + 1)[1:-1]
        edges = np.searchsorted(self.X.indptr, cuts) if self.sparse else cuts.astype(np.int64)
        return [0, *(int(edge) for edge in edges), self.n_rows]

    @property
    def gram_cost(self) -> float:
        """What :meth:`gram` costs, in units of :meth:`product` (measured)."""
        if self.sparse:
            return 1.0 + self.n_values / max(1, self.n_rows) / 4
        return 1.0 + self.n_columns / 22

    def each(self, task: Callable[[int, int], Any], *, pointwise: bool = False) -> list[Any]:
        """Return ``task(begin, end)`` for every block, in block order.

        A ``pointwise`` task looks at some numbers a row, not at X: few rows of it are one block.
        """
        if self._is_one_block(pointwise):
            return [task(0, self.n_rows)]
        return list(self.map(task, self._edges[:-1], self._edges[1:]))

    def total(self, task: Callable[[int, int], Any], *, pointwise: bool = False) -> Any:
        """Return the sum of ``task(begin, end)`` over the blocks, added in block order as they come."""
        if self._is_one_block(pointwise):
            return task(0, self.n_rows)
        parts = iter(self.map(task, self._edges[:-1], self._edges[1:]))
        result = next(parts)
        for part in parts:
            result += part
        return result

    def _is_one_block(self, pointwise: bool) -> bool:
        return len(self._edges) == 2 or (pointwise and self.n_rows * self.width < POINTWISE_ROWS)

    def take(self, index: Index) -> "Rows":
        """Return a copy of some rows."""
        return Rows(self.X[index], self.map, self.width)

    def margins(self, w: Array) -> Array:
        """Return ``X w``."""
        out = np.empty(self.n_rows)
        self.each(lambda begin, end: _binding.margins(begin, end, self.view, w, out))
        return out

    def combine(self, r: Array) -> Array:
        """Return ``sum r x`` over the rows with positive and with negative ``r``, shape (2, n_columns)."""
        result: Array = self.total(lambda begin, end: _binding.combine(begin, end, self.view, r))
        return result.reshape(2, -1)

    def product(self, weight: Array, tilt: Array, p: Array, eta: float, shift: float) -> Array:
        """Return ``U' diag(weight) U (p, eta, shift)`` with ``U = [X tilt 1]``."""
        result: Array = self.total(
            lambda begin, end: _binding.product(begin, end, self.view, weight, tilt, p, eta, shift)
        )
        return result

    def gram(self, weight: Array, tilt: Array, direction: Array | None = None) -> Array:
        """Return the lower triangle of ``sum weight u u'``, ``u = (x + tilt direction, 1)``; above it is rubbish.

        Without a direction ``u = (x, tilt, 1)``.
        """
        if self.sparse or self.n_columns < BLAS_COLUMNS:
            whole: Array = self.total(lambda begin, end: _binding.gram(begin, end, self.view, weight, tilt, direction))
            return whole
        gram: Array = self.total(lambda begin, end: self._gram_blas(begin, end, weight, tilt))
        if direction is None:
            return gram
        d = self.n_columns
        tilts, ones = gram[d], gram[d + 1]
        block = gram[:d, :d]
        block += np.outer(tilts[:d], direction)
        block += np.outer(direction, tilts[:d] + tilts[d] * direction)
        gram[d, :d] = ones[:d] + ones[d] * direction
        gram[d, d] = ones[d + 1]
        return gram[: d + 1, : d + 1]

    def _gram_blas(self, begin: int, end: int, weight: Array, tilt: Array) -> Array:
        """Return the Gram matrix of ``(x, tilt, 1)``: pieces of rows that stay in cache, squared by BLAS."""
        d = self.n_columns
        result = np.zeros((d + 2, d + 2))
        step = max(64, BLAS_BYTES // (8 * d))
        buffer = np.empty((min(step, end - begin), d + 2))
        for first in range(begin, end, step):
            last = min(end, first + step)
            active = first + np.flatnonzero(weight[first:last])
            used: Any = active if len(active) < last - first else slice(first, last)
            root = np.sqrt(weight[used])
            piece = buffer[: len(root)]
            np.multiply(self.X[used], root[:, None], out=piece[:, :d])
            piece[:, d] = root * tilt[used]
            piece[:, d + 1] = root
            result += piece.T @ piece
        return result

    def coordinate_pass(
        self, order: Index, signed_weight: Array, cap: float, bias: float, alpha: Array, params: Array
    ) -> None:
        """Update ``alpha`` and ``params = sum y alpha (x, bias)`` by dual coordinate descent on the hinge loss.

        The one thing here that is sequential: each row sees what the rows before it did.
        """
        _binding.coordinate_pass(self.view, order, signed_weight, cap, bias, alpha, params)

    @cached_property
    def squared_norms(self) -> Array:
        """``|x|^2`` of every row."""
        out = np.empty(self.n_rows)
        self.each(lambda begin, end: _binding.squared_norms(begin, end, self.view, out))
        return out

    @cached_property
    def peaks(self) -> Array:
        """The largest ``|x_ij|`` of every column."""
        return np.asarray(np.max(self.each(lambda begin, end: _binding.peaks(begin, end, self.view)), axis=0))

    def leverages(self, scale: Array) -> Array:
        """Return ``sum_j scale_j x_j^2`` of every row."""
        out = np.empty(self.n_rows)
        self.each(lambda begin, end: _binding.leverages(begin, end, self.view, scale, out))
        return out

    def moments(self, signed_weight: Array) -> tuple[Array, Array]:
        """Return ``combine(signed_weight)`` and ``sum s x^2`` for every column."""
        sums = self.total(lambda begin, end: _binding.moments(begin, end, self.view, signed_weight)).reshape(3, -1)
        return sums[:2], sums[2]

    def scores(self, W: Array) -> Array:
        """Return ``X W'`` for W of shape (width, n_columns)."""
        out, columns = np.empty((self.n_rows, self.width)), np.ascontiguousarray(W.T)

        def task(begin: int, end: int) -> tuple[Array, ...]:
            self.joint_scores(begin, end, columns, out)
            return ()

        self.joint_total(task)
        return out

    def joint_scores(self, begin: int, end: int, W: Array, out: Array) -> None:
        """Write ``X W`` to the rows of a piece; W has ``width`` columns."""
        if self.sparse:
            _binding.joint_scores(begin, end, self.view, W, out)
        else:
            np.matmul(self.X[begin:end], W, out=out[begin:end])

    def joint_combine(self, begin: int, end: int, R: Array) -> Array:
        """Return ``R' X`` over a piece, of shape (width, n_columns)."""
        if self.sparse:
            return _binding.joint_combine(begin, end, self.view, R).T
        combined: Array = R[begin:end].T @ self.X[begin:end]
        return combined

    def joint_total(self, task: Callable[[int, int], tuple[Array, ...]]) -> list[Array]:
        """Return the sums of what ``task`` returns for every piece of every block.

        A piece of dense rows stays in cache, so that a task may read it twice (and NumPy copy it, if it is float32).
        """
        step = self.n_rows if self.sparse else max(64, PIECE_BYTES // (8 * max(1, self.n_columns)))

        def of_block(begin: int, end: int) -> list[Array]:
            edges = range(begin, end, step)
            return _added(task(first, min(end, first + step)) for first in edges)

        if self._is_one_block(pointwise=False):
            return of_block(0, self.n_rows)
        return _added(self.map(of_block, self._edges[:-1], self._edges[1:]))


def _added(parts: Iterable[Sequence[Array]]) -> list[Array]:
    """Return the sums over the parts of the arrays in each."""
    remaining = iter(parts)
    sums = list(next(remaining))
    for part in remaining:
        for k, array in enumerate(part):
            sums[k] += array
    return sums
