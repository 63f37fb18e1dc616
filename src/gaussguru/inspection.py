"""The importance of features, to a model and to one of its predictions, and the coefficients of a linear one."""

from gaussguru._measured.inspection import (
    Coefficients,
    Explanation,
    FeatureImportance,
    coefficients,
    explain,
    feature_importance,
)

__all__ = ["Coefficients", "Explanation", "FeatureImportance", "coefficients", "explain", "feature_importance"]
