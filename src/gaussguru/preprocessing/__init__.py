"""Error bars from tables and repeated measurements, and through the steps of a pipeline."""

from gaussguru.preprocessing.affine import AffineMap, NotLinearError, as_table, final_estimator, linear_scores
from gaussguru.preprocessing.tables import (
    LIMIT,
    SIDES,
    ErrorColumns,
    ReplicateNoise,
    error_columns,
    errors_from_frame,
    errors_from_uncertainties,
    noise_from_replicates,
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
    "errors_from_uncertainties",
    "final_estimator",
    "linear_scores",
    "noise_from_replicates",
    "similar_columns",
]
