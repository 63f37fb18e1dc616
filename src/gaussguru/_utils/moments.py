"""Means and standard deviations of features, from sums over parts of the samples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gaussguru._utils.linalg import Array


class FeatureMoments(NamedTuple):
    """Weighted sums of deviations from a reference point, one entry per feature; values that are missing have weight 0.

    Deviations from a point near the mean keep the digits that squares of the values themselves would lose.
    """

    about: Array  # the reference point
    weights: Array  # sum s
    sums: Array  # sum s (x - about)
    squares: Array  # sum s (x - about)^2

    @classmethod
    def of(cls, deviations: Array, about: Array, weight: Array, weights: Array) -> "FeatureMoments":
        """Return the sums of samples with ``deviations`` (n, d) from ``about``, 0 if missing, and ``weight`` (n,)."""
        return cls(about, weights, weight @ deviations, weight @ np.square(deviations))

    @classmethod
    def added(cls, parts: "Sequence[FeatureMoments]") -> "FeatureMoments":
        """Return the sums over parts with the same reference point, added in their order."""
        return cls(parts[0].about, *(np.sum(sums, axis=0) for sums in zip(*(part[1:] for part in parts), strict=True)))

    def means_and_spreads(self) -> tuple[Array, Array]:
        """Return means and standard deviations."""
        shift = self.sums / self.weights
        return self.about + shift, np.sqrt(np.maximum(self.squares / self.weights - np.square(shift), 0.0))
