"""Parts that are cut into smaller ones."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from gaussguru._rows.streams import Part
from gaussguru._utils.frames import take_rows
from gaussguru.sources.arrays import row_slices
from gaussguru.sources.base import Derived, Fields, needed

# Parts kept in memory while their pieces are read: one for each of a few threads.
HELD = 4


@dataclass(frozen=True)
class SplitSource(Derived):
    """A source whose parts are cut into pieces of at most ``rows`` rows, for functions that need much memory per row.

    A part is read once for all of its pieces, which are read one after the other.
    """

    rows: int

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features."""
        return self.source.feature_names(fields)

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> Any:
        """Return functions that read one piece each."""
        parts = self.source.parts(fields, names)
        if parts is None:
            return None
        recent, pieces = _Recent(), []
        for number, (read, n) in enumerate(zip(parts, self.source.part_rows(fields, names), strict=True)):
            pieces += [partial(_piece_of, recent, number, read, where) for where in row_slices(n, self.rows)]
        return pieces

    def stream(self, fields: Fields) -> Callable[[], Iterable[Part]]:
        """Return a function that returns an iterator over the pieces."""
        assert self.source.stream is not None
        return partial(_pieces, self.source.stream(fields), self.rows)

    def delayed(self, fields: Fields, names: Sequence[str] | None = None) -> list[Any]:
        """Return every piece as a task that has not been run."""
        cut = needed("dask", "a collection of Dask", "dask").delayed(cut_rows, pure=False)
        return [
            cut(part, where)
            for part, n in zip(self.source.delayed(fields, names), self.source.part_rows(fields, names), strict=True)
            for where in row_slices(n, self.rows)
        ]


def cut_rows(part: Part, where: slice) -> Part:
    """Return some rows of a part."""
    X, y, weight, X_err = (None if field is None else take_rows(field, where) for field in part[:4])
    return Part(X, y, weight, X_err, part.number)


class _Recent:
    """The parts read last; a thread that needs a part which another one is reading waits for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[int, tuple[Lock, list[Part]]] = OrderedDict()

    def get(self, number: int, read: Callable[[], Part]) -> Part:
        """Return a part."""
        with self._lock:
            part_lock, part = self._held.setdefault(number, (Lock(), []))
            while len(self._held) > HELD:
                self._held.popitem(last=False)
        with part_lock:
            if not part:
                part.append(read())
            return part[0]


def _piece_of(recent: _Recent, number: int, read: Callable[[], Part], where: slice) -> Part:
    return cut_rows(recent.get(number, read), where)


def _pieces(parts: Callable[[], Iterable[Part]], rows: int) -> Iterator[Part]:
    for part in parts():
        for where in row_slices(part.X.shape[0], rows):
            yield cut_rows(part, where)
