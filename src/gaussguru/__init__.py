"""Classification when the features carry measurement noise."""

import importlib
from types import ModuleType

from gaussguru._errors import Measured
from gaussguru._estimators.adversary import sample_noise, worst_case_covariance
from gaussguru._estimators.ball import AdversarialSVC, TotalSVC
from gaussguru._estimators.base import CollapseWarning
from gaussguru._estimators.class_populations import PopulationClassifier
from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.error_bar import ErrorBarClassifier
from gaussguru._estimators.kernel import KernelGuruClassifier
from gaussguru._estimators.linear import GuruClassifier, sigma_max
from gaussguru._estimators.path import sigma_path

__all__ = [
    "AdversarialSVC",
    "CollapseWarning",
    "ErrorBarClassifier",
    "GuruClassifier",
    "GuruClassifierCV",
    "KernelGuruClassifier",
    "Measured",
    "PopulationClassifier",
    "TotalSVC",
    "sample_noise",
    "sigma_max",
    "sigma_path",
    "worst_case_covariance",
]
__version__ = "0.1.0"

# Modules for users that are imported when they are first used: ``import gaussguru`` alone is enough.
_MODULES = (
    "calibration", "certificates", "datasets", "errors", "experiments", "inspection", "losses", "models", "noise",
    "plotting", "population", "preprocessing", "report", "robustness", "sources",
)  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"gaussguru.{name}")
    raise AttributeError(f"module 'gaussguru' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
