"""Classification when the features carry measurement noise."""

from gaussguru.adversary import sample_noise, worst_case_covariance
from gaussguru.ball import AdversarialSVC, TotalSVC
from gaussguru.estimator import CollapseWarning
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.linear import GuruClassifier, sigma_max

__all__ = [
    "AdversarialSVC",
    "CollapseWarning",
    "GuruClassifier",
    "KernelGuruClassifier",
    "TotalSVC",
    "sample_noise",
    "sigma_max",
    "worst_case_covariance",
]
__version__ = "0.1.0"
