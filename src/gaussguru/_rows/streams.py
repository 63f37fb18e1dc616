"""Rows that are read in parts: each block is made when a task needs it, here or on a cluster.

A :class:`Part` holds samples of a source: values, labels, weights, error bars. ``Blocks`` store parts and run tasks
over them: :class:`LocalParts` reads them in the threads of this process,
:class:`gaussguru._rows.cluster.Cluster` keeps them on the workers of Dask. Row vectors stay with the parts; sums are
returned, added in the order of the parts, so that a result does not depend on threads or workers.

:class:`StreamedRows` is :class:`gaussguru._rows.rows.Rows` over these blocks. One pass, the *survey*, computes its
classes and moments, and draws a subsample.
"""

import copy
import math
import mmap
import os
import tempfile
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from gaussguru._errors.checks import check_errors
from gaussguru._errors.forms import Errors
from gaussguru._errors.given import Limits, LowRank
from gaussguru._rows.draws import draw_by_class, reweighted
from gaussguru._rows.rows import (
    Block,
    ClassMoments,
    Matrix,
    Rows,
    RowVector,
    Step,
    T,
    Task,
    check_squares,
    class_moments,
    halves,
    signed_weights,
    summed,
)
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import BlockMap, ErrorBars, Labels, MixedArray, Values

if TYPE_CHECKING:
    from gaussguru._rows.cluster import Cluster

# Bytes of a row vector kept in memory; the rest goes to a temporary file.
KEPT_BYTES = 64 << 20
# Bytes of a subsample in memory (three times as many while its parts are joined).
DRAWN_BYTES = 128 << 20


# Numbers of the items that a task is for; None: all.
Some = Sequence[int] | None


class Part(NamedTuple):
    """Samples of a source; ``number`` counts the parts from 0."""

    X: Matrix
    y: Labels = None
    weight: Array | None = None
    X_err: ErrorBars = None  # in any form, or Errors
    number: int = 0


def check_part_weights(part: Part) -> None:
    """Raise, naming partition and row, if a weight is negative or not finite."""
    if part.weight is None or not part.X.shape[0]:
        return
    wrong = ~(np.isfinite(part.weight) & (part.weight >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"sample_weight must be finite and not negative; got {part.weight[row]} in partition {part.number}, "
            f"row {row}"
        )


class Fingerprint(NamedTuple):
    """Check sums that identify a part in later passes: labels, weights, and the first and last row of X and X_err."""

    rows: int
    features: int
    values: tuple[int, ...]
    errors: tuple[int, ...]
    labels: int
    weights: int

    @classmethod
    def of(cls, part: Part) -> "Fingerprint":
        """Return the check sums of a part."""
        rows, features = part.X.shape
        values, errors = (tuple(_ends(field)) for field in (part.X, part.X_err))
        return cls(rows, features, values, errors, _digest(part.y), _digest(part.weight))

    def check(self, now: "Fingerprint", number: int) -> None:
        """Raise if a part differs from an earlier pass."""
        for name, before, after in zip(self._fields, self, now, strict=True):
            if before != after:
                counted = name in ("rows", "features")
                had = f"{before} {name} and has {after} now" if counted else f"other {name} than now"
                raise changed(f"partition {number} had {had}")


class PartRegister:
    """Fingerprints of all parts read so far, to detect a source that changes between passes."""

    def __init__(self) -> None:
        self._parts: dict[int, Fingerprint] = {}
        self._n_parts: int | None = None

    def checked(self, part: Part, number: int) -> Part:
        """Return a part; raise if it differs from an earlier pass."""
        if self._n_parts is not None and number >= self._n_parts:
            raise changed(f"it had {self._n_parts} partitions and has more now")
        now = Fingerprint.of(part)
        self._parts.setdefault(number, now).check(now, number)
        return part

    def ended(self, n_parts: int) -> None:
        """Note the end of a stream; raise if an earlier pass had more parts."""
        before = max(self._n_parts or 0, max(self._parts, default=-1) + 1)
        if n_parts < before:
            raise changed(f"it had {before} partitions and has {n_parts} now")
        self._n_parts = n_parts


# The fingerprints of the streams that a fit reads, by the identity of the source; None outside of a fit.
_REGISTERS: ContextVar[dict[int, PartRegister] | None] = ContextVar("registers", default=None)


def with_registers(run: Task[T], *given: object) -> T:
    """Call a function within which all passes over a stream are compared, by whatever estimator they are made."""
    if _REGISTERS.get() is None:
        _REGISTERS.set({})
    return run(*given)


def register_of(source: object) -> PartRegister:
    """Return the fingerprints of a stream in this fit, or new ones outside of a fit."""
    registers = _REGISTERS.get()
    return PartRegister() if registers is None else registers.setdefault(id(source), PartRegister())


def changed(how: str) -> ValueError:
    """Return the error for samples that differ between passes."""
    return ValueError(f"X changed while it was read: {how}; every pass must read the same samples")


def _ends(field: ErrorBars) -> Iterator[int]:
    """Yield check sums of the first and last rows of the arrays that values or errors consist of."""
    if sp.issparse(field):
        arrays = [field.data, field.indices, field.indptr]
    else:
        arrays = [*vars(field).values()] if isinstance(field, Limits | LowRank) else [field]
    for array in arrays:
        for where in (slice(1), slice(-1, None)):
            yield _digest(None if array is None else array[where])


def _digest(values: Values) -> int:
    """Return a check sum of an array, 0 for None."""
    if values is None:
        return 0
    if values.dtype.kind == "O":
        return hash(tuple(values.tolist()))
    return zlib.crc32(_bytes_of(np.ascontiguousarray(values).view(np.uint8)))


# Items, each a part or made of a part, and tasks over them. A task is called with an item and its entry of each row
# vector; if it is ``pointwise``, it does not read X.
Blocks: TypeAlias = "LocalParts | Cluster"


# --- this process -------------------------------------------------------------------------------------------


class Shelf:
    """Store for the arrays of a row vector: memory, and beyond ``KEPT_BYTES`` an unnamed temporary file."""

    def __init__(self) -> None:
        self._lock, self._kept, self._end = Lock(), 0, 0
        self.file = -1

    def put(self, value: object) -> object:
        """Store an array or a tuple of arrays; return a key from which :func:`taken` returns them."""
        if isinstance(value, tuple):
            return tuple(self.put(part) for part in value)
        if not isinstance(value, np.ndarray):
            return value
        with self._lock:
            self._kept += value.nbytes
            if self._kept <= KEPT_BYTES:
                return value
            if self.file < 0:
                with tempfile.TemporaryFile(prefix="gaussguru-") as file:
                    self.file = os.dup(file.fileno())
                weakref.finalize(self, os.close, self.file)
            start, self._end = self._end, self._end + value.nbytes
        _write(self.file, np.ascontiguousarray(value), start)
        return Stored(self, start, value.dtype, value.shape)


class Stored(NamedTuple):
    """Key of an array in the file of a shelf."""

    shelf: Shelf
    start: int
    dtype: DTypeLike
    shape: tuple[int, ...]


def taken(value: object) -> Any:
    """Return the arrays that :meth:`Shelf.put` stored."""
    if isinstance(value, Stored):
        return read_array(value.shelf.file, *value[1:])
    return tuple(taken(part) for part in value) if isinstance(value, tuple) else value


def _bytes_of(values: MixedArray) -> memoryview:
    return values.data.cast("B") if values.size else memoryview(b"")


def _write(file: int, values: MixedArray, start: int) -> None:
    rest = _bytes_of(values)
    while rest:
        done = os.pwrite(file, rest, start)
        rest, start = rest[done:], start + done


def read_array(file: int, start: int, dtype: DTypeLike, shape: tuple[int, ...]) -> MixedArray:
    """Return an array from bytes ``start`` on of an open file."""
    values = np.empty(shape, dtype)
    rest = _bytes_of(values)
    while rest:
        done = os.preadv(file, [rest], start)
        if not done:
            raise OSError(f"the file ends at byte {start}, and {len(rest)} more were expected")
        rest, start = rest[done:], start + done
    return values


class PartStep(NamedTuple):
    """A function ``make(item, *entries of row vectors, **shared)`` that is applied to an item after reading it."""

    make: Step
    vectors: tuple[RowVector, ...]
    shared: dict[str, object]

    def __call__(self, item: object, index: int) -> object:
        return self.make(item, *(taken(vector[index]) for vector in self.vectors), **self.shared)


@dataclass(frozen=True)
class LocalParts:
    """Parts that this process reads each time a task needs them.

    Parameters
    ----------
    parts : functions that read one part each, in any order and in any thread; None for a stream
    stream : function that returns an iterator over all parts
    map : maps a function over the parts
    numbers : numbers of the parts that are used; None: all
    steps : functions applied to every part after reading it
    bare : function that makes an item of row vectors alone, for tasks that do not read X
    register : fingerprints of the parts in earlier passes
    """

    parts: Sequence[Callable[[], Part]] | None
    stream: Callable[[], Iterable[Part]] | None = None
    map: BlockMap = map
    numbers: tuple[int, ...] | None = None
    steps: tuple[PartStep, ...] = ()
    bare: PartStep | None = None
    register: PartRegister = field(default_factory=PartRegister)

    def __len__(self) -> int:
        if self.numbers is not None:
            return len(self.numbers)
        return len(self.parts) if self.parts is not None else sum(1 for _ in self._streamed())

    def each(self, task: Step, /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> RowVector:
        """Return the results of a task as a row vector, which stays with the items."""
        shelf = Shelf()
        return list(self._mapped(lambda *given: shelf.put(task(*given, **shared)), vectors, pointwise))

    def collected(
        self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, some: Some = None, **shared: object
    ) -> list[T]:
        """Return the (small) results of a task of all items, or of those with the numbers ``some``, to this process."""
        return list(self._mapped(partial(task, **shared), vectors, pointwise, some))

    def total(self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> T:
        """Return the sum of the results of a task, added in the order of the items."""
        return summed(self._mapped(partial(task, **shared), vectors, pointwise))

    def both(self, task: Task[tuple[object, T]], /, *vectors: RowVector, **shared: object) -> tuple[RowVector, T]:
        """Return a row vector and a sum, from a task that returns pairs; a sum of lists is one list."""
        shelf = Shelf()

        def run(*given: object) -> tuple[object, T]:
            vector, part = task(*given, **shared)
            return shelf.put(vector), part

        return halves(self._mapped(run, vectors, pointwise=False))

    def then(
        self, make: Step, /, *vectors: RowVector, bare: Step | None = None, kept: bool = True, **shared: object
    ) -> "LocalParts":
        """Return the items that ``make`` makes of these; ``bare`` makes them from the vectors alone, without X.

        Items that are not ``kept``, because they take much more memory than their source, are made for each task anew.
        """
        step = PartStep(make, vectors, shared)
        if bare is None:
            return replace(self, steps=(*self.steps, step))
        return replace(self, steps=(*self.steps, step), bare=PartStep(bare, vectors, shared))

    def chosen(self, indices: Sequence[int], *vectors: RowVector) -> tuple["LocalParts", list[RowVector]]:
        """Return the items with the numbers ``indices``, and their entries of row vectors."""
        numbers = tuple(indices) if self.numbers is None else tuple(self.numbers[i] for i in indices)
        return replace(self, numbers=numbers), [[v[i] for i in indices] for v in vectors]

    def one_by_one(self) -> Iterator[Any]:
        """Yield the items to this process, one after the other."""
        for index in range(len(self)) if self.parts is not None else (None,):
            yield from self._mapped(itself, (), False, None if index is None else [index])

    def unzipped(self, vector: RowVector, n: int) -> list[RowVector]:
        """Return the n row vectors in a row vector of n-tuples."""
        return [list(part) for part in zip(*vector, strict=True)]

    def _mapped(self, task: Task[T], vectors: Sequence[RowVector], pointwise: bool, some: Some = None) -> Iterable[T]:
        """Yield the results of a task of all items, or of those with the numbers ``some``."""
        if pointwise and self.bare is not None:
            bare = self.bare

            def unread(index: int) -> T:
                item = bare.make(*(taken(vector[index]) for vector in bare.vectors), **bare.shared)
                return task(item, *(taken(vector[index]) for vector in vectors))

            return self.map(unread, range(len(bare.vectors[0])))

        def run(part: Part, index: int) -> T:
            item: object = part
            for step in self.steps:
                item = step(item, index)
            return task(item, *(taken(vector[index]) for vector in vectors))

        if self.parts is None:
            return self._in_turn(run, some)
        indices = range(len(self)) if some is None else some
        numbers, parts = self.numbers or range(len(self.parts)), self.parts

        def read(index: int) -> T:
            number = numbers[index]
            return run(self.register.checked(parts[number](), number), index)

        return self.map(read, indices)

    def _in_turn(self, run: Task[T], some: Some) -> Iterator[T]:
        """Yield the results of a function of the parts of a stream, which is read up to the last of ``some``."""
        wanted = None if some is None else set(some)
        index_of = None if self.numbers is None else {number: index for index, number in enumerate(self.numbers)}
        for number, part in enumerate(self._streamed()):
            index = number if index_of is None else index_of.get(number)
            if index is not None and (wanted is None or index in wanted):
                yield run(part, index)
            if wanted is not None and number >= max(wanted):
                break

    def _streamed(self) -> Iterator[Part]:
        """Yield the parts of the stream, numbered; their source compares them with earlier passes."""
        assert self.stream is not None
        for number, part in enumerate(self.stream()):
            yield part._replace(number=number)


# --- survey -------------------------------------------------------------------------------------------------


# Label numbers of a part, its weights (None where all are 1), and its number.
Kept = tuple[MixedArray, Array | None, int]


class Surveyed(NamedTuple):
    """Summary of a part: its labels, and for each the weight ``totals``, ``sum s x`` and ``sum s x^2``."""

    number: int
    n_rows: int
    n_values: int
    n_columns: int
    is_sparse: bool
    classes: MixedArray
    totals: Array
    sums: Array
    squares: Array
    errors: Errors | None


@contextmanager
def in_partition(number: int) -> Iterator[None]:
    """Name the partition in a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error


def in_units(
    part: Part, shift: Array | None = None, x: float = 1.0, check: Callable[[ErrorBars, Values], Errors] = check_errors
) -> Part:
    """Return a part with the values ``(X - shift) x``, and error bars in the form that problems compute with."""
    X = part.X if shift is None else part.X - shift.astype(part.X.dtype)
    errors = None if part.X_err is None or not X.shape[0] else check(part.X_err, part.X)
    if x != 1:
        X, errors = X * X.dtype.type(x), None if errors is None else errors.scaled(x)
    return part._replace(X=X, X_err=errors)


class DrawnRows(NamedTuple):
    """A subsample of a part or of all parts, with the total weight of each class of all its rows."""

    X: Matrix
    labels: MixedArray
    weights: Array
    errors: Errors | None


class Draw(NamedTuple):
    """The rule by which a survey draws a subsample of every part."""

    rows: Callable[[int, int, int], float]  # number of rows to draw, from the numbers of rows, columns and classes
    of_class: int  # least number of rows of each class
    n_parts: int | None  # number of parts, which share DRAWN_BYTES; None for a stream

    def __call__(self, part: Part, codes: MixedArray, given: Array | None, totals: Array) -> DrawnRows:
        """Return rows of a part, scaled to the total weight of each class."""
        (n, d), width = part.X.shape, len(totals)
        # Of a stream, 4 times the parts so far are expected, at least 64: the subsample of 1000 parts has 1.3 times
        # DRAWN_BYTES, that of a million parts 3 times.
        n_parts = self.n_parts or 4 * max(16, part.number)
        most = max(1.0, DRAWN_BYTES / n_parts * n / max(1, _n_bytes(part.X)))
        share = round(min(n, most, self.rows(n, d, width)))
        least = min(self.of_class, int(most / width))
        index = draw_by_class(codes, given, width, share, np.random.default_rng(part.number), least)
        labels, weights = codes[index], np.ones(len(index)) if given is None else given[index]
        errors = None if part.X_err is None else part.X_err.take(index)
        return DrawnRows(mapped_rows(part.X, index), labels, reweighted(labels, weights, totals), errors)


def survey(part: Part, by_class: bool, draw: Draw | None) -> tuple[Kept, list[tuple[Surveyed, DrawnRows | None]]]:
    """Return label numbers, weights and number of a part, and its summary with the rows drawn from it, or None.

    With ``by_class``, squares are summed for each class separately. The second half is a list, which the lists of other
    parts are added to.
    """
    X, n = part.X, part.X.shape[0]
    classes, codes, counts = _numbered(part.y)
    given = None if part.weight is None else np.asarray(part.weight, dtype=np.float64)
    width = len(classes)
    totals = (counts if given is None else np.bincount(codes, given, width)).astype(np.float64)
    sums, squares = np.zeros((width, X.shape[1])), np.zeros((width if by_class else 1, X.shape[1]))
    if n:
        sums, squares = _class_moments(X, codes, given, width, by_class)
        if not np.isfinite(squares).all() or squares.sum() > 1e200:
            raise not_finite(X, part.number)
    sparse = sp.issparse(X)
    n_values = int(X.nnz if sparse else X.size)
    # An index, not a slice: a view of no rows would keep the errors of the whole part.
    errors = None if part.X_err is None else part.X_err.take(np.zeros(0, dtype=np.intp))
    known = Surveyed(part.number, n, n_values, X.shape[1], sparse, classes, totals, sums, squares, errors)
    return (codes, given, part.number), [(known, draw(part, codes, given, totals) if n and draw is not None else None)]


def mapped_rows(X: Matrix, index: Index) -> Matrix:
    """Return a copy of some rows in an anonymous mmap; on the heap they fragment memory (150 MB measured)."""
    if sp.issparse(X) or not X.size or not len(index):
        return X[index]
    shape = (len(index), *X.shape[1:])
    rows = np.frombuffer(mmap.mmap(-1, math.prod(shape) * X.itemsize), X.dtype).reshape(shape)
    return np.take(X, index, axis=0, out=rows, mode="clip")


def _n_bytes(X: Matrix) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes)


def _numbered(y: MixedArray) -> tuple[MixedArray, MixedArray, Index]:
    """Return the distinct labels, sorted, the number of the label of every row, and the count of each.

    Integers from 0 to 255 are counted in a table; ``numpy.unique`` takes several times as long.
    """
    small = y.dtype.kind == "b" or (y.dtype.kind in "iu" and len(y) and y.min() >= 0 and y.max() < 256)
    if not small or not len(y):
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        return classes, codes.astype(np.min_scalar_type(max(1, len(classes))), copy=False), counts
    if y.dtype.kind == "b":
        n_true = int(np.count_nonzero(y))
        each, numbers = np.array([len(y) - n_true, n_true]), np.asarray(y, order="C").view(np.uint8)
    else:
        each, numbers = np.bincount(y), y.astype(np.uint8)
    labels = np.flatnonzero(each)
    if len(labels) < len(each):
        table = np.zeros(len(each), dtype=np.uint8)
        table[labels] = np.arange(len(labels))
        numbers = table[numbers]
    return labels.astype(y.dtype), numbers, each[labels]


def _class_moments(
    X: Matrix, codes: MixedArray, given: Array | None, width: int, by_class: bool
) -> tuple[Array, Array]:
    """Return ``sum s x`` of every class, and ``sum s x^2`` of all rows or, ``by_class``, of every class."""

    def block(labels: MixedArray, s: Array | None, n_classes: int) -> Block:
        weights = signed_weights(labels, s) if n_classes == 2 else np.ones(len(codes)) if s is None else s
        return Block(X, labels, weights, weights)  # moments of two classes read only the signed weights

    with np.errstate(over="ignore", invalid="ignore"):
        n_classes = max(2, width)
        sums, squares = class_moments(block(codes, given, n_classes), n_classes)
        if not by_class:
            return sums[:width], squares[np.newaxis]
        each = [
            class_moments(block(codes == c, (codes == c) * (1.0 if given is None else given), 2), 2)[1]
            for c in range(width)
        ]
    return sums[:width], np.array(each)


def not_finite(X: Matrix, number: int) -> ValueError:
    """Return the error that names the first value of a part that is not finite, or says that squares overflow."""
    if sp.issparse(X):
        first = int(np.argmin(np.isfinite(X.data)))
        bad = not np.isfinite(X.data[first])
        row, column = int(np.searchsorted(X.indptr, first, side="right")) - 1, int(X.indices[first])
        value = X.data[first]
    else:
        finite = np.isfinite(X)
        bad = not finite.all()
        row, column = (int(i) for i in np.unravel_index(int(np.argmin(finite)), X.shape))
        value = X[row, column]
    if not bad:
        return ValueError(f"X has values in partition {number} whose squares overflow; rescale X and sigma together")
    kind = "NaN" if np.isnan(value) else "infinity"
    return ValueError(f"X has {kind} in partition {number}, row {row}, column {column} (all counted from 0)")


class Overview:
    """Summary of all parts of a survey.

    Attributes
    ----------
    classes : all labels, sorted
    label_numbers : for each part, the numbers of its labels among ``classes``
    totals : ``sum s`` of each class, before class weights
    """

    def __init__(self, parts: Sequence[Surveyed]) -> None:
        self.parts = parts
        self.classes = np.unique(np.concatenate([part.classes for part in parts]))
        self.label_numbers = [np.searchsorted(self.classes, part.classes) for part in parts]
        self.totals = self._by_class("totals")

    def _by_class(self, name: str) -> Array:
        """Return the sums of a field over the parts, a row for each class."""
        first = getattr(self.parts[0], name)
        result = np.zeros((len(self.classes), *first.shape[1:]))
        for part, numbers in zip(self.parts, self.label_numbers, strict=True):
            result[numbers] += getattr(part, name)
        return result

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(part.n_rows for part in self.parts)

    def moments(self, factors: Array) -> ClassMoments:
        """Return moments with the weights of each class multiplied by a factor."""
        sums = self._by_class("sums") * factors[:, np.newaxis]
        if np.all(factors == factors[0]):
            return ClassMoments(sums, factors[0] * np.sum([part.squares.sum(axis=0) for part in self.parts], axis=0))
        return ClassMoments(sums, factors @ self._by_class("squares"))


class _Absent(NamedTuple):
    """Stands for X in tasks that do not read it."""

    shape: tuple[int, int]


def as_block(part: Part | None, kept: Kept, ranks: NDArray[np.int32], factors: Array) -> Block:
    """Return a part as a block, from its label numbers and weights (``kept``), times a factor for each class.

    ``ranks`` holds the class of each label number. Without a part the block has no values.
    """
    codes, given, number = kept
    X, errors = (_Absent((len(codes), 0)), None) if part is None else (part.X, part.X_err)
    labels, plain = ranks[codes], bool(np.all(factors == 1))
    if plain and given is None and len(factors) == 2 and errors is None:
        ones = np.broadcast_to(1.0, len(labels))  # not read, and takes no memory
        return Block(X, labels, ones, signed_weights(labels, None), None, number)
    weights = np.ones(len(labels)) if given is None else given
    if not plain:
        weights = weights * factors[labels]
    signed = signed_weights(labels, weights) if len(factors) == 2 else weights
    return Block(X, labels, weights, signed, errors, number)


# --- rows ---------------------------------------------------------------------------------------------------


class StreamedRows(Rows):
    """Rows whose blocks are read when a task needs them.

    Parameters
    ----------
    parts : the parts, in the units of the problem
    kept : row vector of label numbers, weights and numbers of the parts
    overview : summary of the parts, in their order
    order : for each class of these rows, its number in the overview
    factors : factor on the weights of each class of these rows
    mapped : maps blocks of a subsample, which is in memory
    drawn : subsample with classes as in the overview; None: ``subsample`` must not be called
    """

    in_memory = False
    most_drawn = 0

    def __init__(
        self,
        parts: Blocks,
        kept: RowVector,
        overview: Overview,
        order: Index,
        factors: Array,
        mapped: BlockMap = map,
        drawn: DrawnRows | None = None,
    ) -> None:
        first, ranks = overview.parts[0], np.argsort(order).astype(np.int32)
        of_parts = [ranks[numbers] for numbers in overview.label_numbers]
        self._items = parts.then(as_block, kept, of_parts, bare=partial(as_block, None), factors=factors)
        self.map, self._root, self.errors = mapped, None, first.errors
        self.n_classes, self.n_rows = len(order), overview.n_rows
        self.n_columns, self.is_sparse = first.n_columns, first.is_sparse
        self.n_values = sum(part.n_values for part in overview.parts)
        self.passes, self._share = defaultdict(float), 1.0
        self._drawn = drawn
        if drawn is not None:
            labels = ranks[drawn.labels]
            self._drawn = drawn._replace(labels=labels, weights=drawn.weights * factors[labels])
            self.most_drawn = len(labels)
        sums, squares = overview.moments(factors[ranks])
        self.__dict__["class_weights"] = overview.totals[order] * factors
        self.__dict__["moments"] = ClassMoments(sums[order], squares)
        check_squares(squares)

    def rotated(self, basis: Array) -> "StreamedRows":
        """Return the same samples with the features ``X basis``; moments are computed in a further pass when needed."""
        other = copy.copy(self)
        for name in ("moments", "column_squares", "column_lengths", "means", "spreads"):
            other.__dict__.pop(name, None)
        other._items, other._root = self._items.then(_rotated, basis=basis), self
        other.n_columns = basis.shape[1]
        if self._drawn is not None:
            other._drawn = self._drawn._replace(X=np.ascontiguousarray(self._drawn.X @ basis))
        return other

    # --- tasks --------------------------------------------------------------------------------------------

    def each(self, task: Step, /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> RowVector:
        """Return the results of a task as a row vector, which stays with the blocks."""
        return self._items.each(task, *vectors, pointwise=pointwise, **shared)

    def total(self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, **shared: object) -> T:
        """Return the sum of the results of a task, in the order of the blocks."""
        return self._items.total(task, *vectors, pointwise=pointwise, **shared)

    def both(self, task: Task[tuple[object, T]], /, *vectors: RowVector, **shared: object) -> tuple[RowVector, T]:
        """Return a row vector and a sum, from a task that returns pairs."""
        return self._items.both(task, *vectors, **shared)

    def collected(self, task: Task[T], /, *vectors: RowVector, pointwise: bool = False, **shared: Any) -> list[T]:
        """Return the results of a task to this process."""
        return self._items.collected(task, *vectors, pointwise=pointwise, **shared)

    def unzipped(self, parts: RowVector, n: int) -> list[RowVector]:
        """Return the n row vectors in a row vector of n-tuples."""
        return self._items.unzipped(parts, n)

    def gather(self, vector: RowVector) -> Array:
        """Raise: row vectors do not fit in memory."""
        raise TypeError("rows that are not in memory are not gathered")

    def std(self, vector: RowVector) -> Array:
        """Return the standard deviation of a row vector, or of each of its columns."""
        mean = self.total(_column_sums, vector, pointwise=True) / self.n_rows
        return np.asarray(np.sqrt(self.total(_squares_about, vector, mean=mean, pointwise=True) / self.n_rows))

    def _gram_total(self, task: Task[Array], /, *vectors: RowVector, **shared: Any) -> Array:
        """Return the sum of Gram matrices; workers send their lower triangles only."""
        packed = self.total(_packed, *vectors, task=task, shared=shared)
        width = (math.isqrt(8 * len(packed) + 1) - 1) // 2
        full = np.zeros((width, width))
        full[np.tril_indices(width)] = packed
        return full

    # --- subsamples ---------------------------------------------------------------------------------------

    def subsample(self, n_rows: int, rng: np.random.Generator, least: int) -> Rows:
        """Return all rows of the survey's subsample, or a draw of ``n_rows`` if it has twice as many."""
        assert self._drawn is not None
        X, labels, weights, errors = self._drawn
        rows = Rows(X, labels, weights, self.n_classes, errors, self.map, self.root)
        return rows if rows.n_rows < 2 * n_rows else rows.subsample(n_rows, rng, least)


def joined(parts: Sequence[DrawnRows], overview: Overview) -> DrawnRows | None:
    """Return the subsamples of all parts as one, with the total weight of each class; None if a class has no row."""
    X, labels, weights, errors = zip(*parts, strict=True)
    classes = np.concatenate([numbers[codes] for numbers, codes in zip(overview.label_numbers, labels, strict=True)])
    weight = np.concatenate(weights)
    if not np.bincount(classes, weight, len(overview.classes)).all():
        return None
    stacked = sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.concatenate(X)
    all_errors = None if errors[0] is None else errors[0].joined(errors)
    return DrawnRows(stacked, classes, reweighted(classes, weight, overview.totals), all_errors)


# --- tasks --------------------------------------------------------------------------------------------------


def itself(item: T) -> T:
    """Return the item."""
    return item


def _rotated(block: Block, basis: Array) -> Block:
    return replace(block, X=np.ascontiguousarray(block.X @ basis))


def _packed(block: Block, *vectors: Array, task: Task[Array], shared: dict[str, object]) -> Array:
    gram = task(block, *vectors, **shared)
    return np.asarray(gram[np.tril_indices(len(gram))])


def _column_sums(block: Block, values: Array) -> Array:
    return np.asarray(values.sum(axis=0))


def _squares_about(block: Block, values: Array, mean: Array) -> Array:
    return np.asarray(np.square(values - mean).sum(axis=0))
