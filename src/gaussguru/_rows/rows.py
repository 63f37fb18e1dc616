"""Samples as blocks of rows: values, labels, weights and error bars, and how a problem reads them.

A :class:`Block` holds some rows. A *task* is a function ``task(block, *vectors, **shared)`` of a block, of those
entries of row vectors that belong to it, and of arguments that all blocks share. It returns its results and does not
change its arguments, so a block may live in another thread, process or machine. A *row vector* is a list with one array
for each block; it stays where the blocks are.

:class:`Rows` maps tasks over blocks. The edges of the blocks depend on the data alone, and sums over blocks are added
in block order, so a result has the same bits for any number of threads.

Passes over X are counted in :attr:`Rows.passes`, in units of all rows, by purpose: "value" (scores or gradient),
"product" (Hessian times vector) and "hessian".
"""

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from gaussguru._errors.forms import Errors
from gaussguru._native import _binding
from gaussguru._rows.draws import draw_by_class, draw_by_weight, reweighted
from gaussguru._utils.blocks import row_slices, rows_at_once
from gaussguru._utils.cached import cached_property
from gaussguru._utils.linalg import Array, Index, aligned, diagonal
from gaussguru._utils.types import BlockMap, MixedArray

Matrix = Any  # a C-contiguous ndarray or a CSR matrix or array, float32 or float64
RowVector = list[Any]

T = TypeVar("T")
# Functions of a block: tasks with a result that is used, and steps, whose results stay with the blocks.
Task = Callable[..., T]
Step = Callable[..., object]

# Bytes of X in a block: 0.2 ms of work, ten times the 20 us of handing a task to a thread.
BLOCK_BYTES = 4 << 20
# With at least this many dense columns BLAS forms a Gram matrix faster (measured: equal at 100, 2.7 times at 784).
BLAS_COLUMNS = 96
# A column is rare if at most FEW_ROWS rows, and at most a fraction FEW of them, have it. Rare columns together hold at
# most a fraction FEW of the stored values.
FEW_ROWS, FEW = 1000, 1 / 64
# The entry of a row vector for the only block.
_only = itemgetter(0)
# With fewer rows, a task that does not read X runs in the calling thread (0.2 ms of work).
POINTWISE_ROWS = 50_000


class NotFiniteError(ArithmeticError):
    """X has NaN or infinity, or values whose squares overflow or underflow."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of the data.

    Attributes
    ----------
    X : the values
    labels : int32, 0 to n_classes - 1
    weights : the sample weights s
    signed_weight : ``s y`` with ``y = -1, 1`` for labels 0, 1; the weights where there are more than two classes
    errors : error bars, or None
    number : number of the block, from which random draws inside it are seeded
    """

    X: Matrix
    labels: NDArray[np.int32]
    weights: Array
    signed_weight: Array
    errors: Errors | None = None
    number: int = 0

    @cached_property
    def view(self) -> _binding.MatrixView:
        """X for the compiled loops."""
        return _binding.MatrixView(self.X)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "view"}

    @cached_property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    def pieces(self) -> Iterator[tuple[slice, "Block"]]:
        """Yield pieces of dense rows that fit in cache, for tasks that read them twice; sparse rows in one piece."""
        step = piece_rows(self.X.shape[1])
        if sp.issparse(self.X) or self.n_rows <= step:
            yield slice(0, self.n_rows), self
            return
        for where in row_slices(0, self.n_rows, step):
            yield where, self.take(where)

    def take(self, where: Index | slice) -> "Block":
        """Return some of the rows."""
        errors = None if self.errors is None else self.errors.take(where)
        return Block(self.X[where], self.labels[where], self.weights[where], self.signed_weight[where], errors)

    def dense(self, index: Index | slice = slice(None)) -> Array:
        """Return some rows as a dense array."""
        return dense(self.X[index])

    def gram(self, index: Index, curve: Array, *columns: Array, out: Array | None = None) -> Array:
        """Return the lower triangle of ``sum h u u'`` over some rows, added to an array if there is one.

        u are values of X and of further columns.
        """
        d = self.X.shape[1]
        width, used = d + len(columns), np.flatnonzero(curve)
        step, result = piece_rows(width), np.zeros((width, width)) if out is None else out
        buffer = np.empty((min(step, len(used)), width))
        for first in range(0, len(used), step):
            chosen = used[first : first + step]
            rows, root = index[chosen], np.sqrt(curve[chosen])
            together = rows[-1] - rows[0] < len(rows)
            piece = buffer[: len(rows)]
            values = self.dense(slice(rows[0], rows[-1] + 1) if together else rows)
            np.multiply(values, root[:, np.newaxis], out=piece[:, :d])
            for j, column in enumerate(columns, d):
                np.multiply(column[chosen], root, out=piece[:, j])
            # To BLAS, which counts by columns, the lower triangle is the upper one of the transpose.
            dsyrk(1.0, piece.T, beta=1.0, c=result.T, overwrite_c=True)
        return result


def dense(rows: Matrix) -> Array:
    """Return rows as a dense array."""
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows)


def canonical(X: Matrix) -> Matrix:
    """Return X, aligned; a sparse X with sorted distinct indices of one type, copied only if necessary."""
    if sp.issparse(X):
        if X.indices.dtype != X.indptr.dtype:
            index = np.result_type(X.indices, X.indptr)
            X = type(X)((X.data, X.indices.astype(index), X.indptr.astype(index)), shape=X.shape)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    return aligned(X)


def piece_rows(width: int) -> int:
    """Return how many rows of ``width`` numbers fit in cache, at least 64."""
    return max(64, rows_at_once(width, cached=True))


class RareColumns(NamedTuple):
    """Columns ``place[k]`` in CSC form: their ``row`` and ``value`` entries from ``start[k]`` to ``start[k + 1]``."""

    place: Index
    start: Index
    row: Index
    value: Array


class ClassMoments(NamedTuple):
    """``sum s x`` of each class, and ``sum s x^2`` of each column."""

    sums: Array
    squares: Array


class Rows:
    """Blocks of labelled rows, and statistics of all rows.

    Parameters
    ----------
    X : dense C-contiguous or CSR with sorted distinct indices, float32 or float64; never copied
    labels : bool or int array (n_rows,), 0 to n_classes - 1
    weights : array (n_rows,), or None where all are 1
    n_classes : number of classes
    errors : error bars of the rows, or None
    map : maps a function over blocks: the built-in ``map``, or that of a pool of threads
    root : the rows of which these are a subsample; passes are counted there
    """

    # Whether X, labels and weights are arrays of this process (:class:`gaussguru._rows.streams.StreamedRows`: no).
    in_memory: ClassVar[bool] = True
    # Upper limit on the rows of a subsample.
    most_drawn: float = np.inf

    def __init__(
        self,
        X: Matrix,
        labels: MixedArray,
        weights: Array | None = None,
        n_classes: int = 2,
        errors: Errors | None = None,
        map: BlockMap = map,
        root: "Rows | None" = None,
    ) -> None:
        self.X, self.errors, self.map = X, errors, map
        self._root = root
        self.n_classes = n_classes
        self.n_rows, self.n_columns = int(X.shape[0]), int(X.shape[1])
        self.is_sparse = sp.issparse(X)
        self.n_values = int(X.nnz if self.is_sparse else X.size)
        self.passes: defaultdict[str, float] = defaultdict(float) if root is None else root.passes
        self._share = 1.0 if root is None else self.n_rows / root.n_rows
        self._given = labels, weights
        if n_classes == 2:
            self.signed_weight = signed_weights(labels, weights)
        else:
            self.signed_weight = np.ones(len(labels)) if weights is None else weights

    # --- the rows as they are -----------------------------------------------------------------------------

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """The class of every row."""
        return self._given[0].astype(np.int32, copy=False)

    @cached_property
    def weights(self) -> Array:
        """The weight of every row."""
        return np.abs(self.signed_weight) if self.n_classes == 2 else self.signed_weight

    @property
    def root(self) -> "Rows":
        """The rows of which these are a subsample, or these (not stored: a cycle would need the garbage collector)."""
        return self._root or self

    @property
    def width(self) -> int:
        """Number of scores per row: one, or with more than two classes one per class."""
        return 1 if self.n_classes == 2 else self.n_classes

    @cached_property
    def edges(self) -> list[int]:
        """First row of each block, and the end; blocks have about the same number of bytes."""
        n_bytes = self.X.data.nbytes + self.X.indices.nbytes if self.is_sparse else self.X.nbytes
        if self.width > 1:  # work on scores counts like reading X
            n_bytes += 32 * self.n_rows * self.width
        n_blocks = min(64, 1 + n_bytes // BLOCK_BYTES)
        if self.is_sparse:
            # A block returns ``width`` vectors of n_columns: adding them must stay cheaper than reading the rows.
            n_blocks = min(n_blocks, max(1, self.n_values // (4 * self.width * max(1, self.n_columns))))
        if n_blocks == 1:
            return [0, self.n_rows]
        cuts = np.linspace(0, self.n_values if self.is_sparse else self.n_rows, n_blocks + 1)[1:-1]
        inner = np.searchsorted(self.X.indptr, cuts) if self.is_sparse else cuts.astype(np.int64)
        return sorted({0, self.n_rows, *(int(edge) for edge in inner)})

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks, views of the data."""
        if len(self.edges) == 2:
            return [Block(self.X, self.labels, self.weights, self.signed_weight, self.errors)]
        return [
            Block(
                _slice_rows(self.X, begin, end),
                self.labels[begin:end],
                self.weights[begin:end],
                self.signed_weight[begin:end],
                None if self.errors is None else self.errors.take(slice(begin, end)),
            )
            for begin, end in zip(self.edges[:-1], self.edges[1:], strict=True)
        ]

    def split(self, values: Array) -> RowVector:
        """Return an array with a row for each sample as a row vector."""
        return [values[begin:end] for begin, end in zip(self.edges[:-1], self.edges[1:], strict=True)]

    def gather(self, vector: RowVector) -> Array:
        """Return a row vector as one array."""
        return vector[0] if len(vector) == 1 else np.concatenate(vector)

    def unzipped(self, parts: RowVector, n: int) -> list[RowVector]:
        """Return the n row vectors in a row vector of n-tuples."""
        return [list(part) for part in zip(*parts, strict=True)]

    def mean(self, vector: RowVector) -> float:
        """Return the mean of a row vector of numbers."""
        return float(self.total(_sum, vector, pointwise=True)) / self.n_rows

    def std(self, vector: RowVector) -> Array:
        """Return the standard deviation of a row vector, or of each of its columns."""
        return np.asarray(np.std(self.gather(vector), axis=0))

    def take(self, index: Index, weights: Array | None = None) -> "Rows":
        """Return a copy of some rows, with other weights if given."""
        labels = self.labels[index]
        errors = None if self.errors is None else self.errors.take(index)
        weights = self.weights[index] if weights is None else weights
        return Rows(self.X[index], labels, weights, self.n_classes, errors, self.map, self.root)

    def with_columns(self, X: Matrix) -> "Rows":
        """Return the same samples with other features."""
        return Rows(X, *self._given, self.n_classes, None, self.map)

    def rotated(self, basis: Array) -> "Rows":
        """Return the same samples with the features ``X basis``."""
        return self.with_columns(np.ascontiguousarray(self.X @ basis))

    def picked(self, columns: Index, column: Array) -> "Rows":
        """Return the same samples with some of the features and one new feature."""
        X = self.X[:, columns], column[:, np.newaxis]
        return self.with_columns(sp.hstack(X, format="csr") if self.is_sparse else np.hstack(X))

    def run(self, loop: Task[T], *arguments: object) -> T:
        """Return ``loop(X, *arguments)`` of a compiled loop that reads rows in its own order."""
        return loop(_binding.MatrixView(self.X), *arguments)

    # --- tasks --------------------------------------------------------------------------------------------

    def each(self, task: Step, /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> RowVector:
        """Return ``task(block, *vectors of the block, **shared)`` of every block: a row vector.

        A ``pointwise`` task does not read X; with few rows it runs in the calling thread.
        """
        if len(self.blocks) == 1:
            return [task(self.blocks[0], *map(_only, vectors), **shared)]
        return list(self._mapped(task, vectors, shared, pointwise))

    def total(self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> T:
        """Return the sum of the results of a task, arrays or tuples of arrays, in the order of the blocks."""
        if len(self.blocks) == 1:
            return task(self.blocks[0], *map(_only, vectors), **shared)
        return summed(self._mapped(task, vectors, shared, pointwise))

    def collected(self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> list[T]:
        """Return the (small) results of a task to this process, in the order of the blocks."""
        return self.each(task, *vectors, pointwise=pointwise, **shared)

    def both(self, task: Task[tuple[object, T]], /, *vectors: RowVector, **shared: object) -> tuple[RowVector, T]:
        """Return a row vector and a sum, from a task that returns pairs."""
        if len(self.blocks) == 1:
            vector, total = task(self.blocks[0], *map(_only, vectors), **shared)
            return [vector], total
        return halves(self._mapped(task, vectors, shared, False))

    def _mapped(
        self, task: Task[T], vectors: Sequence[RowVector], shared: dict[str, object], pointwise: bool
    ) -> Iterable[T]:
        """Yield the results of a task, in the order of the blocks; only few are in memory at a time."""
        few = pointwise and self.n_rows * self.width < POINTWISE_ROWS
        return (map if few else self.map)(lambda block, *parts: task(block, *parts, **shared), self.blocks, *vectors)

    def count(self, kind: str, fraction: float = 1.0) -> None:
        """Count a pass over these rows, or a fraction of them, as a fraction of one over all rows."""
        self.passes[kind] += fraction * self._share

    def matvec(self, w: Array) -> Array:
        """Return ``X w``; one pass."""
        self.count("value")
        return self.gather(self.each(margins, w=np.ascontiguousarray(w)))

    def rmatvec(self, r: Array) -> Array:
        """Return ``X' r``; one pass."""
        self.count("value")
        return np.asarray(self.total(combine, self.split(r)).sum(axis=0))

    def scores(self, W: Array) -> RowVector:
        """Return ``X W'`` as a row vector; one pass."""
        self.count("value")
        return self.each(scores, W=np.ascontiguousarray(W.T))

    def scatter(self, R: RowVector) -> Array:
        """Return ``R' X``; one pass."""
        self.count("value")
        return self.total(scatter, R)

    def mixed(self, parts: Sequence[tuple[float, RowVector]]) -> RowVector:
        """Return a linear combination of row vectors."""
        return self.each(_mix, *(part for _, part in parts), shares=[share for share, _ in parts], pointwise=True)

    def gram(self, curve: RowVector, tilt: RowVector, direction: Array | None = None, *, little: float = 0.0) -> Array:
        """Return the lower triangle of ``sum curve u u'``, ``u = (x + tilt direction, 1)``; above it is undefined.

        Without a direction ``u = (x, tilt, 1)``. With many columns, rows lighter than the fraction ``little`` of the
        mean weight change the diagonal only, which saves most of their time.
        """
        self.count("hessian")
        d = self.n_columns
        if self.is_narrow:
            return self._gram_total(gram, curve, tilt, direction=direction)
        least = little * self.mean(curve) if little else 0.0
        result = self._gram_total(gram_blas, curve, tilt, least=least)
        if direction is None:
            return result
        tilts, ones, block = result[d], result[d + 1], result[:d, :d]
        block += np.outer(tilts[:d], direction)
        block += np.outer(direction, tilts[:d] + tilts[d] * direction)
        result[d, :d] = ones[:d] + ones[d] * direction
        result[d, d] = ones[d + 1]
        return result[: d + 1, : d + 1]

    def grams(self, chosen: Sequence[tuple[Index, Array]]) -> Iterable[Array]:
        """Return ``sum h (x, 1)(x, 1)'`` over some rows with their weights, for each of several choices of them."""
        for index, _ in chosen:
            self.count("hessian", len(index) / self.n_rows)
        block = Block(self.X, self.labels, self.weights, self.signed_weight)
        return self.map(lambda rows: _gram_of_some(block, *rows), chosen)

    @property
    def is_narrow(self) -> bool:
        """Whether compiled loops form a Gram matrix faster than BLAS."""
        return self.is_sparse or self.n_columns < BLAS_COLUMNS

    def _gram_total(self, task: Task[Array], /, *vectors: RowVector, **shared: Any) -> Array:
        """Return the sum of Gram matrices, of which the lower triangles count."""
        return self.total(task, *vectors, **shared)

    @property
    def gram_cost(self) -> float:
        """Cost of a Gram matrix, relative to a product with it (measured)."""
        return 1.0 + (self.n_values / max(1, self.n_rows) / 4 if self.is_sparse else self.n_columns / 22)

    # --- statistics of all rows ---------------------------------------------------------------------------

    @cached_property
    def class_weights(self) -> Array:
        """``sum s`` over the rows of each class."""
        labels, weights = self._given
        if self.n_classes == 2 and weights is None:
            positive = np.count_nonzero(labels)
            return np.array([self.n_rows - positive, positive], dtype=np.float64)
        if self.n_classes == 2:  # three times as fast on many rows
            signed = self.signed_weight
            return np.array([-np.minimum(signed, 0.0).sum(), np.maximum(signed, 0.0).sum()])
        return np.bincount(self.labels, self.weights, self.n_classes).astype(np.float64)

    @cached_property
    def total_weight(self) -> float:
        """``sum s``."""
        return float(self.class_weights.sum())

    @cached_property
    def moments(self) -> ClassMoments:
        """Sums over the classes and squares of the columns, from one pass over X."""
        self.count("value")
        sums, squares = self.total(class_moments, n_classes=self.n_classes)
        check_squares(squares)
        return ClassMoments(sums, squares)

    @cached_property
    def means(self) -> Array:
        """The weighted mean of each class."""
        return self.moments.sums / self.class_weights[:, np.newaxis]

    @cached_property
    def column_squares(self) -> Array:
        """``sum s x^2`` of every column."""
        return self.moments.squares

    @cached_property
    def column_lengths(self) -> Array:
        """The roots of ``column_squares``."""
        return np.sqrt(self.column_squares)

    @property
    def knows_squares(self) -> bool:
        """Whether ``column_squares`` is known already."""
        return "column_squares" in self.__dict__ or "moments" in self.__dict__

    def learn_squares(self, squares: Array) -> None:
        """Store the ``column_squares`` that another pass computed."""
        check_squares(squares)
        self.__dict__["column_squares"] = squares

    @cached_property
    def spreads(self) -> Array:
        """Weighted standard deviation of every column; root mean square of a constant column."""
        mean = self.moments.sums.sum(axis=0) / self.total_weight
        size = self.column_squares / self.total_weight
        variance = size - mean**2
        return np.sqrt(np.where(variance > 1e-12 * size, variance, size))

    @cached_property
    def squared_norms(self) -> Array:
        """``|x|^2`` of every row."""
        self.count("value")
        return self.gather(self.each(_squared_norms))

    @cached_property
    def _column_sizes(self) -> tuple[Array, Array]:
        self.count("value")
        parts = np.array(self.collected(_column_sizes))
        return parts[:, 0].max(axis=0), parts[:, 1].sum(axis=0)

    @property
    def peaks(self) -> Array:
        """The largest ``|x_ij|`` of every column."""
        return self._column_sizes[0]

    @property
    def column_counts(self) -> Array:
        """Number of nonzero values of each column."""
        return self._column_sizes[1]

    @cached_property
    def leverages(self) -> Array:
        """Leverage ``s_i sum_j x_ij^2 / sum_k s_k x_kj^2`` of every row."""
        squares = self.column_squares
        scale = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
        self.count("value")
        return self.gather(self.each(_leverages, scale=scale)) * self.weights

    @cached_property
    def rare_columns(self) -> RareColumns:
        """The columns with the fewest nonzero values (see ``FEW``)."""
        counts = self.column_counts
        order = np.argsort(counts, kind="stable")
        few = (counts[order] <= min(FEW_ROWS, FEW * self.n_rows)) & (np.cumsum(counts[order]) <= FEW * self.n_values)
        index = np.sort(order[few & (counts[order] > 0)])
        if not len(index):
            return RareColumns(index, np.zeros(1, dtype=np.int64), index, np.zeros(0))
        columns = sp.vstack(self.collected(_columns, index=index), format="csr").tocsc()
        columns.eliminate_zeros()
        start, row = columns.indptr.astype(np.int64), columns.indices.astype(np.int64)
        return RareColumns(index, start, row, columns.data.astype(np.float64))

    def subsample(self, n_rows: int, rng: np.random.Generator, least: int) -> "Rows":
        """Return about ``n_rows`` rows, at least ``least`` of each class, scaled to the total weight of the class."""
        return self.reweighted(self.draw(n_rows, rng, least))

    def draw(self, n_rows: int, rng: np.random.Generator, least: int) -> Index:
        """Return the row numbers of a subsample."""
        return draw_by_class(self.labels, self.weights, self.n_classes, n_rows, rng, least)

    def draw_by_leverage(self, n_rows: int, offset: float, least: int) -> tuple[Index, Array]:
        """Return the row numbers of a subsample, and weights divided by the probability of each draw.

        Half of the subsample is drawn by leverage; ``offset`` is a random number in [0, 1).
        """
        leverage, counts = self.leverages, np.bincount(self.labels, self.weights > 0, self.n_classes)
        share = 0.5 * n_rows * (1 / self.n_rows + leverage / leverage.sum())
        share = np.minimum(1.0, np.maximum(share, (least / counts)[self.labels]))
        index = draw_by_weight(share, offset)
        return index, self.weights[index] / share[index]

    def reweighted(self, index: Index, weights: Array | None = None) -> "Rows":
        """Return a copy of some rows, scaled to the total weight of each class."""
        weights = self.weights[index] if weights is None else weights
        return self.take(index, reweighted(self.labels[index], weights, self.class_weights))


def _slice_rows(X: Matrix, begin: int, end: int) -> Matrix:
    """Return consecutive rows without copying their values."""
    if not sp.issparse(X):
        return X[begin:end]
    first, last = int(X.indptr[begin]), int(X.indptr[end])
    rows = type(X)((end - begin, X.shape[1]), dtype=X.dtype)
    # The constructor would copy the arrays.
    rows.data, rows.indices = X.data[first:last], X.indices[first:last]
    rows.indptr = X.indptr[begin : end + 1] - X.indptr.dtype.type(first)
    return rows


def summed(parts: Iterable[T]) -> T:
    """Return the sum of numbers, arrays, or (named) tuples of them, in their order; the first ones are overwritten."""
    return reduce(partial(added, plus=operator.iadd), parts)


def halves(pairs: Iterable[tuple[object, T]]) -> tuple[RowVector, T]:
    """Return the first entries of pairs in a list, and the sum of the second ones, which are added as they come."""
    kept: RowVector = []

    def sums() -> Iterator[T]:
        for vector, part in pairs:
            kept.append(vector)
            yield part

    return kept, summed(sums())


def added(one: T, other: T, plus: Task[Any] = operator.add) -> T:
    """Return two numbers, arrays, or (named) tuples of them, added."""
    if not isinstance(one, tuple):
        result: T = plus(one, other)
        return result
    values = map(plus, one, other)  # type: ignore[call-overload]
    return type(one)(*values) if hasattr(one, "_fields") else tuple(values)  # type: ignore[return-value]


def signed_weights(labels: MixedArray, weights: Array | None) -> Array:
    """Return ``s y`` of rows of two classes (``np.where`` takes much longer on many labels)."""
    signed: Array = labels * np.float64(2.0)
    signed -= 1.0
    if weights is not None:
        signed *= weights
    return signed


def check_squares(squares: Array) -> None:
    """Raise :class:`NotFiniteError` if sums of squares of X are NaN, overflow or underflow."""
    largest = float(squares.max(initial=0.0))
    if not (largest == 0 or 1e-200 < largest < 1e200):
        raise NotFiniteError


# --- tasks that read X --------------------------------------------------------------------------------------


def class_moments(block: Block, n_classes: int) -> tuple[Array, Array]:
    """Return ``sum s x`` of every class, and ``sum s x^2``."""
    d = block.X.shape[1]
    sums = _binding.moments(0, block.n_rows, block.view, block.signed_weight).reshape(3, d)
    if n_classes == 2:
        return np.array([-sums[1], sums[0]]), sums[2]
    return scatter(block, one_hot(block.labels, block.weights, n_classes)), sums[2]


def _squared_norms(block: Block) -> Array:
    out = np.empty(block.n_rows)
    _binding.squared_norms(0, block.n_rows, block.view, out)
    return out


def _column_sizes(block: Block) -> Array:
    return np.asarray(_binding.column_sizes(0, block.n_rows, block.view))


def _columns(block: Block, index: Index) -> sp.csr_array:
    return sp.csr_array(block.X[:, index] if sp.issparse(block.X) else block.X.take(index, axis=1))


def _leverages(block: Block, scale: Array) -> Array:
    out = np.empty(block.n_rows)
    _binding.leverages(0, block.n_rows, block.view, scale, out)
    return out


def gram(block: Block, curve: Array, tilt: Array, direction: Array | None = None) -> Array:
    """Return the lower triangle of ``sum curve u u'``, ``u = (x + tilt direction, 1)`` or ``(x, tilt, 1)``."""
    return np.asarray(_binding.gram(0, block.n_rows, block.view, curve, tilt, direction))


def _gram_of_some(block: Block, index: Index, curve: Array) -> Array:
    d, ones = block.X.shape[1], np.ones(len(index))
    return gram(block.take(index), curve, ones, np.zeros(d)) if sp.issparse(block.X) else block.gram(index, curve, ones)


def gram_blas(block: Block, curve: Array, tilt: Array, least: float = 0.0) -> Array:
    """Return :func:`gram` of ``(x, tilt, 1)`` by BLAS; rows lighter than ``least`` change the diagonal only."""
    main = np.where(curve >= least, curve, 0.0)
    result = block.gram(np.arange(block.n_rows), main, tilt, np.ones(block.n_rows))
    if least:
        diagonal(result)[:-2] += _binding.moments(0, block.n_rows, block.view, curve - main).reshape(3, -1)[2]
    return result


def _sum(block: Block, values: Array) -> float:
    return float(values.sum())


def _mix(block: Block, *parts: Array, shares: list[float]) -> Array:
    result = shares[0] * parts[0]
    for share, part in zip(shares[1:], parts[1:], strict=True):
        result += share * part
    return np.asarray(result)


def margins(block: Block, w: Array) -> Array:
    """Return ``X w``."""
    out = np.empty(block.n_rows)
    _binding.margins(0, block.n_rows, block.view, w, out)
    return out


def combine(block: Block, r: Array) -> Array:
    """Return ``sum r x`` over the rows with positive and with negative ``r``, shape (2, n_columns)."""
    return np.asarray(_binding.combine(0, block.n_rows, block.view, r).reshape(2, -1))


def scores(block: Block, W: Array) -> Array:
    """Return ``X W`` for W of shape (n_columns, n_classes)."""
    if not sp.issparse(block.X):
        return np.asarray(block.X @ W, dtype=np.float64)
    out = np.empty((block.n_rows, W.shape[1]))
    _binding.joint_scores(0, block.n_rows, block.view, W, out)
    return out


def scatter(block: Block, R: Array) -> Array:
    """Return ``R' X`` for R of shape (n_rows, n_classes)."""
    if not sp.issparse(block.X):
        return np.asarray(R.T @ block.X, dtype=np.float64)
    return np.ascontiguousarray(_binding.joint_combine(0, block.n_rows, block.view, np.ascontiguousarray(R)).T)


def one_hot(labels: MixedArray, weights: Array | float, n_classes: int) -> Array:
    """Return the weight of every row in the column of its class, 0 in the others."""
    members = np.zeros((len(labels), n_classes))
    members[np.arange(len(labels)), labels] = weights
    return members


def linear_scores(X: Matrix, W: Array, map: BlockMap = map) -> Array:
    """Return ``X W'``, in blocks."""
    rows = Rows(X, np.zeros(X.shape[0], dtype=bool), map=map)
    if len(W) == 1:
        return rows.gather(rows.each(margins, w=np.ascontiguousarray(W[0])))[:, np.newaxis]
    return rows.gather(rows.each(scores, W=np.ascontiguousarray(W.T)))
