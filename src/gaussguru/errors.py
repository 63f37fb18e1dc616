"""Error bars beside plain arrays, and samples that carry theirs."""

from gaussguru._errors import Asymmetric, Components, Limits, LowRank, Measured, Population

__all__ = ["Asymmetric", "Components", "Limits", "LowRank", "Measured", "Population"]
