"""What problems are made of: rows, a model, and smoothing."""

import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gaussguru._data.rows import Rows
from gaussguru._problems.smoothing import NONE, RARE, Smoothing
from gaussguru.losses import Loss
from gaussguru.noise import Noise


class Smoothed:
    """A problem with smoothing; subclasses are frozen dataclasses with these fields.

    What they compute once (cached properties) does not depend on smoothing.
    """

    rows: Rows
    fit_intercept: bool
    smoothing: Smoothing

    def smoothed(self, smoothing: Smoothing) -> Self:
        """Return the same problem with other smoothing, and what was computed once."""
        if smoothing == self.smoothing:
            return self
        other = copy.copy(self)
        other.__dict__["smoothing"] = smoothing
        return other


@dataclass(frozen=True, eq=False)
class OfLoss(Smoothed):
    """Rows with a loss and the noise of a model, which is None where samples have no other noise than their own."""

    rows: Rows
    loss: Loss
    noise: Noise | None
    l2: float = 0.0
    fit_intercept: bool = True
    smoothing: Smoothing = NONE

    def on_rows(self, rows: Rows) -> Self:
        """Return the same problem of other rows, or of the same with other columns."""
        return replace(self, rows=rows)

    def scaled(self, factor: float) -> Self:
        """Return the same problem with all standard deviations of the model multiplied by a factor."""
        return self if factor == 1 or self.noise is None else replace(self, noise=self.noise.scaled(factor))

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about ``n_rows`` rows, each class reweighted to its own total."""
        return self.on_rows(self.rows.subsample(n_rows, rng, RARE))
