"""Measured values that are read in parts, as EM looks at them.

The sums of an iteration are made part by part, and added in the order of the parts: a result does not depend on threads
or workers.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussguru._data.em import Sample, State
from gaussguru._data.readings import Readings, read
from gaussguru._data.streams import Blocks, Part, check_part_weights, parsed
from gaussguru._linalg import Array

# What EM reads of a part: readings of positive weight, and their weights.
Item = tuple[Readings, Array | None]


@dataclass(frozen=True)
class StreamedSample:
    """Samples that are read once for every iteration: :class:`gaussguru._data.em.Evidence`."""

    parts: Blocks
    n_rows: int
    total: float

    def __len__(self) -> int:
        return self.n_rows

    def sums(self, state: State, *, with_noise: bool) -> Any:
        """Return the sums over all parts, in their order."""
        return self.parts.total(_sums, state=state, with_noise=with_noise)


class Looked(NamedTuple):
    """What one pass tells of the readings of a part, feature by feature."""

    n_rows: int
    total: float
    counts: Array  # values that were measured
    weights: Array  # sum s of these
    sums: Array  # sum s (x - about)
    squares: Array  # sum s (x - about)^2
    most: Array  # the largest and the least variance of their noise
    least: Array
    is_diagonal: bool


class Features(NamedTuple):
    """Of every feature: mean and spread of what was measured, which has gaps, and whose errors vary."""

    means: Array
    spreads: Array
    has_gaps: NDArray[np.bool_]
    varying: NDArray[np.bool_]


def read_sample(parts: Blocks, limits: Array, about: Array) -> tuple[StreamedSample, Features]:
    """Return the samples of parts and what is known of their features; one pass.

    Parameters
    ----------
    parts : Blocks
        Parts as a source gives them.
    limits : array of shape (n_features,)
        Errors above these say nothing.
    about : array of shape (n_features,)
        About the means: from there deviations are taken, so that nothing of note cancels.
    """
    items = parts.then(_read, limits=limits)
    looked: list[Looked] = items.collected(_look, about=about)
    used = [place for place, part in enumerate(looked) if part.n_rows]
    if len(used) < len(looked):
        items, _ = items.chosen(used)
        looked = [looked[place] for place in used]
    n = sum(part.n_rows for part in looked)
    counts, weights, sums, squares = (
        np.sum([getattr(part, name) for part in looked], axis=0) for name in ("counts", "weights", "sums", "squares")
    )
    if not counts.all():
        raise ValueError(f"feature {int(np.argmin(counts))} was measured for no sample: leave it out")
    apart = sums / weights
    spreads = np.sqrt(np.maximum(squares / weights - np.square(apart), 0.0))
    most, least = np.max([part.most for part in looked], axis=0), np.min([part.least for part in looked], axis=0)
    varying = varies(most, least, is_diagonal=all(part.is_diagonal for part in looked))
    return (
        StreamedSample(items, n, float(sum(part.total for part in looked))),
        Features(about + apart, spreads, counts < n, varying),
    )


def unlabelled(part: Part) -> Part:
    """Return a part without its labels, which a population does not use."""
    return part._replace(y=None)


def noise_range(rows: Readings) -> tuple[Array, Array]:
    """Return the largest and the least variance of the noise of every feature, of what was measured."""
    noise = np.broadcast_to(rows.noise_variances, rows.shape)
    known = np.ones(rows.shape, dtype=bool) if rows.known is None else rows.known
    largest = np.where(known, noise, 0.0).max(axis=0, initial=0.0)
    return largest, np.where(known, noise, np.inf).min(axis=0, initial=np.inf)


def varies(most: Array, least: Array, *, is_diagonal: bool) -> NDArray[np.bool_]:
    """Return for which features errors differ between samples, so that a factor can be told from the spread."""
    found: NDArray[np.bool_] = (most > 0) & (least < (1 - 1e-6) * most)
    return found if is_diagonal else np.full(len(found), bool(found.any()))


def _read(part: Part, limits: Array) -> Item:
    """Return a part as EM reads it."""
    check_part_weights(part)
    if part.X.shape[1] != len(limits):
        raise ValueError(
            f"X must have {len(limits)} features in all partitions; partition {part.number} has {part.X.shape[1]}"
        )
    if not part.X.shape[0]:
        return Readings(part.X, np.zeros(part.X.shape)), None
    part = parsed(part)
    try:
        rows = read(part.X, part.X_err, limits)
    except ValueError as error:
        raise ValueError(f"partition {part.number}: {error}") from error
    weight = part.weight
    if weight is not None and not weight.all():
        rows, weight = rows[weight > 0], weight[weight > 0]
    return rows, weight


def _look(item: Item, about: Array) -> Looked:
    rows, weight = item
    n = len(rows)
    own = np.ones(n) if weight is None else weight
    apart = rows.values.astype(np.float64) - about
    if rows.known is None:
        counts, weights = np.full(len(about), float(n)), np.full(len(about), float(own.sum()))
    else:
        apart *= rows.known
        counts, weights = rows.known.sum(axis=0).astype(np.float64), own @ rows.known
    return Looked(
        n, float(own.sum()), counts, weights, own @ apart, own @ np.square(apart), *noise_range(rows), rows.is_diagonal
    )


def _sums(item: Item, state: State, with_noise: bool) -> Any:
    return Sample(*item).sums(state, with_noise=with_noise)
