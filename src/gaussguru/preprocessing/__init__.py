"""Error bars from tables and repeated measurements, and through the steps of a pipeline."""

from gaussguru._estimators.affine import AffineMap, NotLinearError, as_table, final_estimator, linear_scores
from gaussguru.preprocessing.replicates import ReplicateNoise, errors_from_replicates, noise_from_replicates
from gaussguru.preprocessing.tables import (
    LIMIT,
    SIDES,
    ErrorColumns,
    error_columns,
    errors_from_frame,
    errors_from_uncertainties,
    similar_columns,
)
from gaussguru.preprocessing.with_errors import WithErrors

__all__ = [
    "LIMIT",
    "SIDES",
    "AffineMap",
    "ErrorColumns",
    "NotLinearError",
    "ReplicateNoise",
    "WithErrors",
    "as_table",
    "error_columns",
    "errors_from_frame",
    "errors_from_replicates",
    "errors_from_uncertainties",
    "final_estimator",
    "linear_scores",
    "noise_from_replicates",
    "similar_columns",
]
