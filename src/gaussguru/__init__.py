"""Classification when the features carry measurement noise."""

from gaussguru.estimator import CollapseWarning
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.linear import GuruClassifier, sigma_max
from gaussguru.model_selection import GuruClassifierCV, sigma_path

__all__ = [
    "CollapseWarning",
    "GuruClassifier",
    "GuruClassifierCV",
    "KernelGuruClassifier",
    "sigma_max",
    "sigma_path",
]
__version__ = "0.1.0"
