"""Classification when the features carry measurement noise."""

from gaussguru.estimator import CollapseWarning
from gaussguru.linear import GuruClassifier, sigma_max

__all__ = ["CollapseWarning", "GuruClassifier", "sigma_max"]
__version__ = "0.1.0"
