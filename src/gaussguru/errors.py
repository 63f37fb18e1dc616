"""Error bars beside plain arrays, and samples that carry theirs."""

from gaussguru._errors.given import Asymmetric, Components, Limits, LowRank
from gaussguru._errors.missing import Population
from gaussguru._errors.samples import Measured

__all__ = ["Asymmetric", "Components", "Limits", "LowRank", "Measured", "Population"]
