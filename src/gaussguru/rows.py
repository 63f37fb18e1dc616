"""The rows of X as blocks, and the ways in which a linear model reads them.

A block is a range of rows. The compiled loops work on one block without the GIL; where the blocks are mapped
is the ``map`` given to :class:`Rows`: the built-in one, or that of a thread pool. The edges of the blocks
depend on the data alone and partial sums are added in block order, so a result has the same bits for any
number of threads.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

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
# What BLAS squares has as many blocks, or more if each has as many rows a column.
GRAM_BLOCKS, GRAM_ROWS = 8, 8
# A column is rare with at most so many rows, and this part of all; and so are all of them of what X has.
FEW_ROWS, FEW = 1000, 1 / 64

Matrix = Any  # a C-contiguous ndarray or a CSR matrix or array
BlockMap = Callable[[Callable[[int, int], Any], Iterable[int], Iterable[int]], Iterable[Any]]


class Columns(NamedTuple):
    """Some columns: of the one at ``place[k]`` the rows and values from ``start[k]`` to ``start[k + 1]``."""

    place: Index
    start: Index
    row: Index
    value: Array


class Rows:
    """X, dense C-contiguous or CSR with sorted distinct indices, float32 or float64; never copied.

    ``width`` is how many numbers a row or a column is given in each reading: 1, or the number of classes.

    ::

        margins(w)             X w
        combine(r)             X' r, the rows of each sign of r apart
        product(h, e, p, ...)  [X e 1]' diag(h) [X e 1] p
        gram(h, e, a)          the sum of h u u', u = (x + e a, 1), or without a of (x, e, 1)
        rare                   the columns of few rows, by columns
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
        return list(self.map(task, *self._blocks(pointwise)))

    def total(self, task: Callable[[int, int], Any], *, pointwise: bool = False) -> Any:
        """Return the sum of ``task(begin, end)`` over the blocks, added in block order as they come."""
        return _summed(self.map(task, *self._blocks(pointwise)))

    def _blocks(self, pointwise: bool = False) -> tuple[list[int], list[int]]:
        """Return where the blocks begin and end."""
        if pointwise and self.n_rows * self.width < POINTWISE_ROWS:
            return [0], [self.n_rows]
        return self._edges[:-1], self._edges[1:]

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
        # A block returns a matrix: adding these up must stay cheaper than squaring the rows.
        n_blocks = max(GRAM_BLOCKS, self.n_rows // (GRAM_ROWS * self.n_columns))
        edges = self._edges[: -1 : -(-len(self._edges) // n_blocks)]
        ends = [*edges[1:], self.n_rows]
        gram: Array = _summed(self.map(lambda begin, end: self._gram_blas(begin, end, weight, tilt), edges, ends))
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
        active = begin + np.flatnonzero(weight[begin:end])
        for first in range(0, len(active), step):
            used: Any = active[first : first + step]
            if used[-1] - used[0] < len(used):
                used = slice(used[0], used[-1] + 1)
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
    def _sizes(self) -> tuple[Array, Array]:
        parts = np.array(self.each(lambda begin, end: _binding.column_sizes(begin, end, self.view)))
        return parts[:, 0].max(axis=0), parts[:, 1].sum(axis=0)

    @property
    def peaks(self) -> Array:
        """The largest ``|x_ij|`` of every column."""
        return self._sizes[0]

    @cached_property
    def rare(self) -> Columns:
        """The columns of few rows, as many as together are a small part of X."""
        counts = self._sizes[1]
        order = np.argsort(counts, kind="stable")
        few = (counts[order] <= min(FEW_ROWS, FEW * self.n_rows)) & (np.cumsum(counts[order]) <= FEW * self.n_values)
        index = np.sort(order[few & (counts[order] > 0)])
        if not len(index):
            return Columns(index, np.zeros(1, dtype=np.int64), index, np.zeros(0))
        slots = np.full(self.n_columns, -1)
        slots[index] = np.arange(len(index))
        parts = self.each(lambda begin, end: self._entries(begin, end, slots, index))
        row, slot, value = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(slot, kind="stable")
        start = np.searchsorted(slot[order], np.arange(len(index) + 1))
        return Columns(index, start, row[order], value[order])

    def _entries(self, begin: int, end: int, slots: Index, index: Index) -> tuple[Index, Index, Array]:
        """Return rows, slots and values of what is stored of the columns that have a slot."""
        if self.sparse:
            indptr, indices = self.X.indptr, self.X.indices
            place = indptr[begin] + np.flatnonzero((slots >= 0)[indices[indptr[begin] : indptr[end]]])
            row = np.searchsorted(indptr, place, side="right") - 1
            return row, slots[indices[place]], self.X.data[place].astype(np.float64)
        part = self.X[begin:end].take(index, axis=1).ravel()
        place = np.flatnonzero(part != 0)
        row, slot = np.divmod(place, len(index))
        return begin + row, slot, part[place].astype(np.float64)

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

        return _added(self.map(of_block, *self._blocks()))


def _summed(parts: Iterable[Any]) -> Any:
    """Return the sum of what may be added to in place."""
    remaining = iter(parts)
    result = next(remaining)
    for part in remaining:
        result += part
    return result


def _added(parts: Iterable[Sequence[Array]]) -> list[Array]:
    """Return the sums over the parts of the arrays in each."""
    remaining = iter(parts)
    sums = list(next(remaining))
    for part in remaining:
        for k, array in enumerate(part):
            sums[k] += array
    return sums
