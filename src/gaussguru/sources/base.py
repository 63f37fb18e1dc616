"""The interface of sources of samples, and the parts that they return."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import check_array

from gaussguru._errors.samples import Measured, split_errors
from gaussguru._rows.rows import canonical
from gaussguru._rows.streams import Part, in_partition, itself
from gaussguru._utils.frames import check_unmasked, refuse_times, unmasked
from gaussguru._utils.linalg import aligned
from gaussguru._utils.types import ErrorBars, Labels, MixedArray, Values

# Bytes of the values of a part. Below 32 MB malloc of glibc reuses freed memory; larger parts get new pages, and
# reading takes twice the processor time.
PART_BYTES = 16 << 20


class Fields(NamedTuple):
    """Labels, weights and errors of samples: names of columns, or arrays; None if absent."""

    y: Labels = None
    weight: Any = None
    X_err: ErrorBars = None


class Source(ABC):
    """Samples in parts.

    ``names`` are the names of the features, or None; ``columns`` the names of the chosen features, of some sources.
    """

    names: list[str] | None = None

    @abstractmethod
    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> Any:
        """Return functions that read one part each; ``names`` are the features in the wanted order."""

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features, or None."""
        return None

    stream: Callable[[Fields], Callable[[], Iterable[Part]]] | None = None
    # Whether parts are tasks of Dask (``delayed``), computed by ``client`` if there is one.
    is_lazy: bool = False
    client: Any = None

    def delayed(self, fields: Fields, names: Sequence[str] | None = None) -> list[Any]:
        """Return every part as a task of Dask that has not been run."""
        raise NotImplementedError

    def sizes(self, n_parts: int) -> Sequence[float]:
        """Return the number of rows of each of ``n_parts`` parts, NaN if unknown."""
        return [np.nan] * n_parts

    def unwrapped(self, fields: Fields, names: Sequence[str] | None) -> "Unwrapped":
        """Return the innermost source, the arguments for it, and the functions to apply to its parts in turn."""
        return Unwrapped(self, fields, names, [])

    def part_rows(self, fields: Fields, names: Sequence[str] | None = None) -> list[int]:
        """Return the number of rows of every part: a pass, unless the source knows them."""
        return [int(read().X.shape[0]) for read in self.parts(fields, names)]

    def on(self, client: object) -> Self:
        """Return the same source with a client of Dask; sources that this process reads are unchanged."""
        return self

    def __array__(self, dtype: object = None, copy: bool | None = None) -> MixedArray:
        raise TypeError(f"X is a source ({type(self).__name__}), which is read in parts; here it must be in memory")


class Unwrapped(NamedTuple):
    """A source to read from, labels and the like, names of the features, and functions of a part."""

    source: Source
    fields: Fields
    names: Sequence[str] | None
    functions: list[Callable[[Part], Part]]


@dataclass(frozen=True)
class Derived(Source):
    """A source made of another one."""

    source: Source

    @property
    def is_lazy(self) -> bool:  # type: ignore[override]  # a property of the inner source
        """Whether parts are tasks of Dask."""
        return self.source.is_lazy

    @property
    def client(self) -> Any:
        """Client of Dask of the inner source."""
        return self.source.client

    def on(self, client: object) -> Self:
        """Return the same source with a client of Dask."""
        return replace(self, source=self.source.on(client))


@dataclass(frozen=True)
class Mapped(Derived):
    """A source that applies a function to the parts of another one.

    Parameters
    ----------
    source : Source
    function : callable, optional
        Maps a :class:`gaussguru._rows.streams.Part` to a part with as many samples; by default the identity. For a
        source of Dask it must be picklable.
    X_err : default=None
        Error bars of the other source, used if none are given with labels and weights.
    names_in, names_out : list of str, default=None
        Names of the features before and after the function; None: unchanged.
    """

    function: Callable[[Part], Part] = itself
    X_err: ErrorBars = None
    names_in: list[str] | None = None
    names_out: list[str] | None = None

    def sizes(self, n_parts: int) -> Sequence[float]:
        """Return how many rows each part has."""
        return self.source.sizes(n_parts)

    def part_rows(self, fields: Fields, names: Sequence[str] | None = None) -> list[int]:
        """Return the number of rows of every part."""
        return self.source.part_rows(self._with_errors(fields), self.names_in or names)

    def feature_names(self, fields: Fields) -> list[str] | None:
        """Return the names of the features."""
        return self.names_out or self.names_in or self.source.feature_names(self._with_errors(fields))

    def unwrapped(self, fields: Fields, names: Sequence[str] | None) -> Unwrapped:
        """Return the innermost source and all functions, the last of them this one."""
        inner = self.source.unwrapped(self._with_errors(fields), self.names_in or names)
        return inner._replace(functions=[*inner.functions, self.function])

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> Any:
        """Return functions that read one part each."""
        readers = self.source.parts(self._with_errors(fields), self.names_in or names)
        return None if readers is None else [lambda read=read: self.function(read()) for read in readers]

    def stream(self, fields: Fields) -> Callable[[], Iterable[Part]]:
        """Return a function that returns an iterator over the parts."""
        assert self.source.stream is not None
        parts = self.source.stream(self._with_errors(fields))
        return lambda: map(self.function, parts())

    def delayed(self, fields: Fields, names: Sequence[str] | None = None) -> list[Any]:
        """Return every part as a task that has not been run."""
        make = needed("dask", "a collection of Dask", "dask").delayed(self.function, pure=False)
        return [make(part) for part in self.source.delayed(self._with_errors(fields), self.names_in or names)]

    def _with_errors(self, fields: Fields) -> Fields:
        return fields if fields.X_err is not None else fields._replace(X_err=self.X_err)


def needed(module: str, purpose: str, extra: str) -> Any:
    """Return a module of an extra, or raise with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        install = f"pip install 'gaussguru[{extra}]' (in a checkout: pip install '.[{extra}]')"
        raise ImportError(f"{purpose} needs {package}: {install}") from error


def as_part(X: Values, number: int, y: object = None, weight: object = None, X_err: object = None) -> Part:
    """Return samples as a part: values dense or CSR, float32 or float64, errors parsed; raise if lengths differ."""
    X, y, weight, X_err = aligned((X, y, weight, X_err))
    if isinstance(X, Measured) or (X_err is not None and np.shape(X)[0]):
        with in_partition(number):
            X, X_err = split_errors(X, X_err)
    try:
        refuse_times(X, "X")
        X = check_array(
            unmasked(X, "X"), accept_sparse="csr", dtype=[np.float64, np.float32], order="C", ensure_all_finite=False,
            ensure_min_samples=0, ensure_min_features=0, input_name="X",
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise ValueError(f"X must hold numbers; partition {number}: {error}") from error
    X = canonical(X)
    n = X.shape[0]
    check_unmasked(y, "y")
    check_unmasked(weight, "sample_weight")
    y = None if y is None else np.asarray(y)
    if y is not None and (y.shape != (n,)):
        if y.shape != (n, 1):
            raise ValueError(
                f"X and y must have the same number of samples; partition {number} has {n} and y of shape {y.shape}"
            )
        y = y[:, 0]
    if weight is not None:
        weight = np.asarray(weight, dtype=np.float64)
        if weight.shape != (n,):
            raise ValueError(
                f"sample_weight must have one number a sample; partition {number} has {n} samples and weights of shape "
                f"{weight.shape}"
            )
    return Part(X, y, weight, X_err, number)
