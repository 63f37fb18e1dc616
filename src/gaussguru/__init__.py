"""Classification when the features carry measurement noise."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaussguru._guru.adversary import sample_noise, worst_case_covariance, worst_case_distribution
    from gaussguru._guru.ball import AdversarialSVC, TotalSVC
    from gaussguru._guru.base import CollapseWarning
    from gaussguru._guru.cross_validation import GuruClassifierCV
    from gaussguru._guru.deletions import FeatureDropSVC
    from gaussguru._guru.kernel import KernelGuruClassifier
    from gaussguru._guru.linear import GuruClassifier, sigma_max
    from gaussguru._guru.path import sigma_path
    from gaussguru._measured.class_populations import PopulationClassifier
    from gaussguru._measured.error_bar import ErrorBarClassifier
    from gaussguru.errors import Measured

__all__ = [
    "AdversarialSVC",
    "CollapseWarning",
    "ErrorBarClassifier",
    "FeatureDropSVC",
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
    "worst_case_distribution",
]
__version__ = "0.2.0"

# Everything is imported when it is first used: ``import gaussguru`` alone is enough, and takes no time.
_HOMES = {
    "AdversarialSVC": "_guru.ball",
    "CollapseWarning": "_guru.base",
    "ErrorBarClassifier": "_measured.error_bar",
    "FeatureDropSVC": "_guru.deletions",
    "GuruClassifier": "_guru.linear",
    "GuruClassifierCV": "_guru.cross_validation",
    "KernelGuruClassifier": "_guru.kernel",
    "Measured": "errors",
    "PopulationClassifier": "_measured.class_populations",
    "TotalSVC": "_guru.ball",
    "sample_noise": "_guru.adversary",
    "sigma_max": "_guru.linear",
    "sigma_path": "_guru.path",
    "worst_case_covariance": "_guru.adversary",
    "worst_case_distribution": "_guru.adversary",
}
_MODULES = (
    "calibration", "certificates", "datasets", "errors", "inspection", "losses", "models", "noise",
    "plotting", "population", "preprocessing", "report", "robustness", "sources", "thesis",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"gaussguru.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"gaussguru.{name}")
    raise AttributeError(f"module 'gaussguru' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
