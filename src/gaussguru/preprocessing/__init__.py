"""Error bars from tables and repeated measurements, and through the steps of a pipeline."""

from gaussguru.preprocessing.affine import AffineMap, NotLinearError, as_table, final_estimator, linear_scores
from gaussguru.preprocessing.replicates import ReplicateNoise, errors_from_replicates, noise_from_replicates
from gaussguru.preprocessing.tables import errors_from_frame, errors_from_uncertainties
from gaussguru.preprocessing.with_errors import WithErrors

__all__ = [
    "AffineMap",
    "NotLinearError",
    "ReplicateNoise",
    "WithErrors",
    "as_table",
    "errors_from_frame",
    "errors_from_replicates",
    "errors_from_uncertainties",
    "final_estimator",
    "linear_scores",
    "noise_from_replicates",
]
