"""Random subsamples of rows: evenly, by class, or by weight."""

import numpy as np

from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import MixedArray


def draw_evenly(n: int, size: int, rng: np.random.Generator) -> Index:
    """Return ``size`` of ``n`` row numbers, one from each of equally long runs: the order of the rows does not matter.

    They are sorted; with ``size > n`` some occur twice.
    """
    return ((np.arange(size) + rng.random(size)) * (n / max(1, size))).astype(np.int64)


def draw_by_class(
    labels: MixedArray, weights: Array | None, n_classes: int, size: int, rng: np.random.Generator, least: int
) -> Index:
    """Return about ``size`` sorted row numbers: each class in proportion, but at least ``least`` rows or all it has."""
    index = draw_evenly(len(labels), size, rng)
    counted = None if weights is None else weights[index] > 0
    if np.bincount(labels[index], counted, n_classes).min() >= least:
        return index
    used = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
    used = used[np.argsort(labels[used], kind="stable")]
    drawn = []
    for members in np.split(used, np.searchsorted(labels[used], np.arange(1, n_classes))):
        wanted = max(min(len(members), least), round(len(members) * size / len(labels)))
        drawn.append(members[draw_evenly(len(members), wanted, rng)])
    return np.sort(np.concatenate(drawn))


def draw_by_weight(probabilities: Array, offset: float) -> Index:
    """Return sorted distinct row numbers, each with its probability (systematic sampling).

    One row is drawn from each run of rows whose probabilities add up to 1; ``offset`` is a random number in [0, 1).
    """
    ends = np.cumsum(probabilities)
    return distinct(np.searchsorted(ends, np.arange(offset, ends[-1])))


def distinct(index: Index) -> Index:
    """Return sorted row numbers without repetitions."""
    return index[np.diff(index, prepend=-1) > 0]


def reweighted(labels: MixedArray, weights: Array, totals: Array) -> Array:
    """Return the weights of drawn rows, scaled so that each class has the total weight ``totals``."""
    drawn = np.bincount(labels, weights, len(totals))
    return np.asarray(weights * (totals / np.where(drawn > 0, drawn, 1.0))[labels])
