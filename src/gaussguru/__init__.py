"""Classification when the features carry measurement noise."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
__version__ = "0.2.0"

# Everything is imported when it is first used: ``import gaussguru`` alone is enough, and takes no time.
_HOMES = {
    "AdversarialSVC": "_estimators.ball",
    "CollapseWarning": "_estimators.base",
    "ErrorBarClassifier": "_estimators.error_bar",
    "GuruClassifier": "_estimators.linear",
    "GuruClassifierCV": "_estimators.cross_validation",
    "KernelGuruClassifier": "_estimators.kernel",
    "Measured": "_errors",
    "PopulationClassifier": "_estimators.class_populations",
    "TotalSVC": "_estimators.ball",
    "sample_noise": "_estimators.adversary",
    "sigma_max": "_estimators.linear",
    "sigma_path": "_estimators.path",
    "worst_case_covariance": "_estimators.adversary",
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
