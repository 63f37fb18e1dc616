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

# What EM reads of a part: readings of positive weight, their weights, and which features were not always measured.
Item = tuple[Readings, Array | None, NDArray[np.bool_]]


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
    gaps: NDArray[np.bool_]  # whether some were not measured
    counts: Array  # values that count
    weights: Array  # sum s of these
    sums: Array  # sum s (x - about)
    squares: Array  # sum s (x - about)^2
    most: Array  # the largest, the least and the least positive variance of their noise
    least: Array
    finest: Array
    is_diagonal: bool


class Features(NamedTuple):
    """Of every feature: mean and length of what was measured, which has gaps, and whose errors vary."""

    means: Array
    lengths: Array
    gaps: NDArray[np.bool_]
    varying: NDArray[np.bool_]


def read_sample(parts: Blocks, limits: Array, about: Array) -> tuple[StreamedSample, Features]:
    """Return the samples of parts and what is known of their features; one pass.

    Parameters
    ----------
    parts : Blocks
        Parts as a source gives them.
    limits : array of shape (n_features,)
        Values with errors above these do not count.
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
    most = np.max([part.most for part in looked], axis=0)
    least, finest = (np.min([getattr(part, name) for part in looked], axis=0) for name in ("least", "finest"))
    varying = varies(most, least, is_diagonal=all(part.is_diagonal for part in looked))
    means, gaps = about + apart, np.any([part.gaps for part in looked], axis=0)
    sample = StreamedSample(items, n, float(sum(part.total for part in looked)))
    return sample, Features(means, lengths(means, spreads, finest), gaps, varying)


def unlabelled(part: Part) -> Part:
    """Return a part without its labels, which a population does not use."""
    return part._replace(y=None)


def noise_range(rows: Readings) -> tuple[Array, Array, Array]:
    """Return the largest, the least and the least positive variance of the noise of every feature that was measured."""
    noise, known = rows.noise_variances, rows.is_known
    largest = np.where(known, noise, 0.0).max(axis=0, initial=0.0)
    least, finest = (np.where(some, noise, np.inf).min(axis=0, initial=np.inf) for some in (known, known & (noise > 0)))
    return largest, least, finest


def is_flat(mean: Any, spread: Any) -> Any:
    """Return whether values of this mean and spread are the same but for rounding."""
    return spread <= 1e-12 * np.abs(mean)


def lengths(means: Array, spreads: Array, finest: Array) -> Array:
    """Return the spreads of features; of one that does not vary its least error, given the variances of these.

    Where that is exact, too, the size of its mean, or 1: it says nothing of the others, whatever its length.
    """
    sizes = np.where(means == 0, 1.0, np.abs(means))
    return np.where(is_flat(means, spreads), np.where(np.isfinite(finest), np.sqrt(finest), sizes), spreads)


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
        return Readings(part.X, np.zeros(part.X.shape)), None, np.zeros(part.X.shape[1], dtype=bool)
    part = parsed(part)
    try:
        rows = read(part.X, part.X_err)
    except ValueError as error:
        raise ValueError(f"partition {part.number}: {error}") from error
    weight = part.weight
    if weight is not None and not weight.all():
        rows, weight = rows[weight > 0], weight[weight > 0]
    return rows.informative(limits), weight, rows.gaps


def _look(item: Item, about: Array) -> Looked:
    rows, weight, gaps = item
    n = len(rows)
    own = np.ones(n) if weight is None else weight
    apart = rows.values.astype(np.float64) - about
    if rows.known is None:
        counts, weights = np.full(len(about), float(n)), np.full(len(about), float(own.sum()))
    else:
        apart *= rows.known
        counts, weights = rows.known.sum(axis=0).astype(np.float64), own @ rows.known
    sums, squares = own @ apart, own @ np.square(apart)
    return Looked(n, float(own.sum()), gaps, counts, weights, sums, squares, *noise_range(rows), rows.is_diagonal)


def _sums(item: Item, state: State, with_noise: bool) -> Any:
    return Sample(*item[:2]).sums(state, with_noise=with_noise)
