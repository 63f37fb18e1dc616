"""Blocks that a function of the user makes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gaussguru._errors.given import LowRank
from gaussguru._rows.streams import Part, PartRegister, register_of
from gaussguru.sources.base import Fields, Source, as_part


@dataclass(frozen=True)
class Stream(Source):
    """Blocks of samples that a function yields.

    Parameters
    ----------
    blocks : callable
        Called without arguments once per pass over the data. Returns an iterable of blocks, the same in every pass:
        tuples ``(X, y)``, ``(X, y, sample_weight)`` or ``(X, y, sample_weight, X_err)``; ``X`` alone for predictions.

    The labels come with the blocks, so ``y`` is None: ``fit(Stream(blocks), None)``.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Stream
    >>> def blocks():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(5):
    ...         X = rng.normal(size=(200, 3))
    ...         yield X, X[:, 0] > 0
    >>> GuruClassifier(0.3).fit(Stream(blocks), None).converged_
    True
    """

    blocks: Callable[[], Iterable[Any]]

    def parts(self, fields: Fields, names: Sequence[str] | None = None) -> None:
        """Return None: parts come one after the other."""
        if any(field is not None for field in fields):
            raise ValueError("y, sample_weight and X_err must be None: those of a Stream come with its blocks")

    def stream(self, fields: Fields) -> Callable[[], Iterable[Part]]:
        """Return a function that returns an iterator over the parts."""
        return partial(_streamed, self.blocks, register_of(self))


def _streamed(blocks: Callable[[], Iterable[Any]], register: PartRegister) -> Iterable[Part]:
    number, before = -1, None
    for number, block in enumerate(blocks()):
        given = block if isinstance(block, tuple) else (block,)
        if not 1 <= len(given) <= 4:
            raise ValueError(f"a block must be X or a tuple of X, y, sample_weight and X_err; got {len(given)} things")
        part = as_part(given[0], number, *given[1:])
        if part.X.shape[0]:
            now = _fields(part)
            if before not in (None, now):
                raise ValueError(
                    f"all blocks must have the same fields; got {before} before block {number}, {now} in it"
                )
            before = now
        yield register.checked(part, number)
    register.ended(number + 1)


def _fields(part: Part) -> str:
    """Return the fields of a part, in words."""
    kind = f"X_err ({part.X_err.factors.shape[2]} factors)" if isinstance(part.X_err, LowRank) else "X_err"
    fields = zip(("X", "y", "sample_weight", kind), part[:4], strict=True)
    return ", ".join(name for name, field in fields if field is not None)
