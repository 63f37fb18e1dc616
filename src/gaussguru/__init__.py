"""Classification when the features carry measurement noise."""

from gaussguru.ball import AdversarialSVC, TotalSVC
from gaussguru.linear import CollapseWarning, GuruClassifier, sigma_max

__all__ = ["AdversarialSVC", "CollapseWarning", "GuruClassifier", "TotalSVC", "sigma_max"]
__version__ = "0.1.0"
