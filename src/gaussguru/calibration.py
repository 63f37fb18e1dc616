"""Probabilities that count both the overlap of the classes and the error bars of a sample.

A score of a classifier has a mean and, under the error bars of its sample, a spread. Probit calibration with a spread
for each sample turns both into a probability; :class:`CalibratedWithErrorsCV` fits it to scores of samples that the
classifier has not seen.
"""

from gaussguru._measured.calibrated import CalibratedWithErrorsCV

__all__ = ["CalibratedWithErrorsCV"]
