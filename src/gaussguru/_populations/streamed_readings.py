"""Samples with error bars for EM, read in parts.

Sums over samples are made part by part and added in the order of the parts, so a result does not depend on threads or
workers.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussguru._populations.em import EmState, Sample
from gaussguru._populations.readings import Readings, read
from gaussguru._rows.streams import Blocks, Part, check_part_weights, in_partition
from gaussguru._utils.linalg import Array
from gaussguru._utils.moments import FeatureMoments

# A part for EM: readings of positive weight, their weights, and a mask (d,) of features with missing values.
Item = tuple[Readings, Array | None, NDArray[np.bool_]]


@dataclass(frozen=True)
class StreamedSample:
    """Samples that every iteration reads once, with the methods of :class:`gaussguru._populations.em.Evidence`."""

    parts: Blocks
    n_rows: int
    total: float

    @property
    def size(self) -> float:
        """The number of samples."""
        return max(self.total, self.n_rows)

    def sums(self, state: EmState, *, with_noise: bool) -> Any:
        """Return the sums over all parts, in their order."""
        return self.parts.total(_sums, state=state, with_noise=with_noise)


class PartSummary(NamedTuple):
    """Sums and extremes of the readings of a part, per feature."""

    n_rows: int
    total: float  # sum s
    gaps: NDArray[np.bool_]  # whether values are missing
    counts: Array  # number of informative values
    moments: FeatureMoments
    most: Array  # the largest, the least and the least positive variance of their noise
    least: Array
    finest: Array
    is_diagonal: bool


class FeatureSummary(NamedTuple):
    """Per feature: unit of length of the values, whether any are missing, whether errors vary, share known."""

    lengths: Array
    gaps: NDArray[np.bool_]
    varying: NDArray[np.bool_]
    known: Array


def read_sample(parts: Blocks, limits: Array, about: Array, units: Array) -> tuple[StreamedSample, FeatureSummary]:
    """Return the samples of all parts and a summary of their features; one pass.

    Parameters
    ----------
    parts : Blocks
        Parts as a source gives them.
    limits : array of shape (n_features,)
        Values with larger errors are ignored.
    about : array of shape (n_features,)
        Approximate means in ``units``, from which deviations are taken.
    units : array of shape (n_features,)
        Units of the readings and of the summary.
    """
    items = parts.then(_read, limits=limits, units=units)
    summaries: list[PartSummary] = items.collected(_summary, about=about)
    used = [number for number, part in enumerate(summaries) if part.n_rows]
    if len(used) < len(summaries):
        items, _ = items.chosen(used)
        summaries = [summaries[number] for number in used]
    n = sum(part.n_rows for part in summaries)
    counts = np.sum([part.counts for part in summaries], axis=0)
    if not counts.all():
        raise ValueError(f"feature {int(np.argmin(counts))} was measured for no sample: leave it out")
    most = np.max([part.most for part in summaries], axis=0)
    least, finest = (np.min([getattr(part, name) for part in summaries], axis=0) for name in ("least", "finest"))
    varying = varies(most, least, is_diagonal=all(part.is_diagonal for part in summaries))
    gaps = np.any([part.gaps for part in summaries], axis=0)
    moments = FeatureMoments.added([part.moments for part in summaries])
    means, spreads = moments.means_and_spreads()
    sample = StreamedSample(items, n, float(sum(part.total for part in summaries)))
    return sample, FeatureSummary(lengths(means, spreads, finest), gaps, varying, moments.weights / sample.total)


def unlabelled(part: Part) -> Part:
    """Return a part without labels: a population does not use them."""
    return part._replace(y=None)


def noise_range(rows: Readings) -> tuple[Array, Array, Array]:
    """Return the largest, least and least positive noise variance of the measured values of each feature."""
    noise, known = rows.noise_variances, rows.is_known
    largest = np.where(known, noise, 0.0).max(axis=0, initial=0.0)
    least, finest = (np.where(mask, noise, np.inf).min(axis=0, initial=np.inf) for mask in (known, known & (noise > 0)))
    return largest, least, finest


def is_flat(mean: Any, spread: Any) -> Any:
    """Return whether a feature is constant to rounding, from its mean and spread."""
    return spread <= 1e-12 * np.abs(mean)


def lengths(means: Array, spreads: Array, finest: Array) -> Array:
    """Return a unit of length for each feature: its spread, or for a constant feature its least positive error.

    ``finest`` holds the squares of these errors. A constant exact feature gets the size of its mean, or 1; it is
    independent of the others, so any unit will do.
    """
    sizes = np.where(means == 0, 1.0, np.abs(means))
    return np.where(is_flat(means, spreads), np.where(np.isfinite(finest), np.sqrt(finest), sizes), spreads)


def varies(most: Array, least: Array, *, is_diagonal: bool) -> NDArray[np.bool_]:
    """Return the mask of features whose errors differ between samples, so that a factor on them is identifiable."""
    varying: NDArray[np.bool_] = (most > 0) & (least < (1 - 1e-6) * most)
    return varying if is_diagonal else np.full(len(varying), bool(varying.any()))


def _read(part: Part, limits: Array, units: Array) -> Item:
    """Return the readings of a part in these units, their weights and the mask of gaps; limits are in those of X."""
    check_part_weights(part)
    if part.X.shape[1] != len(limits):
        raise ValueError(
            f"X must have {len(limits)} features in all partitions; partition {part.number} has {part.X.shape[1]}"
        )
    if not part.X.shape[0]:
        return Readings(part.X, np.zeros(part.X.shape)), None, np.zeros(part.X.shape[1], dtype=bool)
    with in_partition(part.number):
        rows = read(part.X, part.X_err)
    weight = part.weight
    if weight is not None and not weight.all():
        rows, weight = rows[weight > 0], weight[weight > 0]
    return rows.informative(limits).in_units(units), weight, rows.gaps


def _summary(item: Item, about: Array) -> PartSummary:
    rows, weight, gaps = item
    n = len(rows)
    s = np.ones(n) if weight is None else weight
    deviations = rows.values.astype(np.float64) - about
    if rows.known is None:
        counts, weights = np.full(len(about), float(n)), np.full(len(about), float(s.sum()))
    else:
        deviations *= rows.known
        counts, weights = rows.known.sum(axis=0).astype(np.float64), s @ rows.known
    moments = FeatureMoments.of(deviations, about, s, weights)
    return PartSummary(n, float(s.sum()), gaps, counts, moments, *noise_range(rows), rows.is_diagonal)


def _sums(item: Item, state: EmState, with_noise: bool) -> Any:
    return Sample(*item[:2]).sums(state, with_noise=with_noise)
