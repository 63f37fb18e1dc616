"""Classification when the features carry measurement noise."""

from gaussguru.estimator import CollapseWarning
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.linear import GuruClassifier, sigma_max

__all__ = ["CollapseWarning", "GuruClassifier", "KernelGuruClassifier", "sigma_max"]
__version__ = "0.1.0"
