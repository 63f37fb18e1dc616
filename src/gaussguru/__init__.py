"""Classification when the features carry measurement noise."""

from gaussguru.adversary import sample_noise, worst_case_covariance
from gaussguru.ball import AdversarialSVC, TotalSVC
from gaussguru.estimator import CollapseWarning
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.linear import GuruClassifier, sigma_max
from gaussguru.model_selection import GuruClassifierCV, sigma_path

__all__ = [
    "AdversarialSVC",
    "CollapseWarning",
    "GuruClassifier",
    "GuruClassifierCV",
    "KernelGuruClassifier",
    "TotalSVC",
    "sample_noise",
    "sigma_max",
    "sigma_path",
    "worst_case_covariance",
]
__version__ = "0.1.0"
