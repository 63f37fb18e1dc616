"""Blocks that a function of the user makes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
    number = -1
    for number, block in enumerate(blocks()):
        given = block if isinstance(block, tuple) else (block,)
        if not 1 <= len(given) <= 4:
            raise ValueError(f"a block must be X or a tuple of X, y, sample_weight and X_err; got {len(given)} things")
        yield register.checked(as_part(given[0], number, *given[1:]), number)
    register.ended(number + 1)
