"""Names of ``_errors``, imported when the first of them is used."""

from gaussguru._errors.arrays import ROUNDING, any_roots, finite_least
from gaussguru._errors.checks import LARGEST, check_causes, check_errors, check_products
from gaussguru._errors.correlated import Combined, Covariances, Factored
from gaussguru._errors.forms import Errors, Roots
from gaussguru._errors.given import AffineComponents, Asymmetric, Components, Limits, LowRank, with_more
from gaussguru._errors.independent import Diagonal, PerSample
from gaussguru._errors.missing import (
    LEAST,
    Population,
    has_unmeasured,
    mean_spread,
    not_measured,
    positive,
    standard_deviations,
    units_of,
    unmeasured,
)
from gaussguru._errors.parse import (
    columns_of_errors,
    finite,
    frame_and_units,
    marked,
    put_errors,
    scaled,
    split_uncertainties,
    stacked_errors,
    with_units,
)
from gaussguru._errors.samples import PLAIN_ONLY, Measured, MeasuredNumber, measured, split_errors
from gaussguru._errors.sparse import SparseFactors

__all__ = [
    "LARGEST",
    "LEAST",
    "PLAIN_ONLY",
    "ROUNDING",
    "AffineComponents",
    "Asymmetric",
    "Combined",
    "Components",
    "Covariances",
    "Diagonal",
    "Errors",
    "Factored",
    "Limits",
    "LowRank",
    "Measured",
    "MeasuredNumber",
    "PerSample",
    "Population",
    "Roots",
    "SparseFactors",
    "any_roots",
    "check_causes",
    "check_errors",
    "check_products",
    "columns_of_errors",
    "finite",
    "finite_least",
    "frame_and_units",
    "has_unmeasured",
    "marked",
    "mean_spread",
    "measured",
    "not_measured",
    "positive",
    "put_errors",
    "scaled",
    "split_errors",
    "split_uncertainties",
    "stacked_errors",
    "standard_deviations",
    "units_of",
    "unmeasured",
    "with_more",
    "with_units",
]

# Classes that users see, or that model files and pickles store, have the path of the public module.
for _kind in (Asymmetric, Components, Limits, LowRank, Measured, Population):
    _kind.__module__ = "gaussguru.errors"
