"""The population of true values behind measurements with error bars, and what it says of each of them."""

from gaussguru._measured.deconvolve import Deconvolve, predictive_of_errors, reliability

__all__ = ["Deconvolve", "predictive_of_errors", "reliability"]
