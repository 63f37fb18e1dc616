"""Error bars: the noise covariance ``Sigma_i`` of every sample, in any form.

An error is a standard deviation, in the units of the feature. ``given`` has the forms in which errors are given beside
plain arrays, ``split`` takes values and errors out of what carries both, ``missing`` has what stands for values that
were not measured, ``checks`` makes ``forms`` of all of it: error bars as the rest of the library asks for them.
"""

from gaussguru._errors.arrays import (
    ROUNDING,
    any_roots,
    as_numbers,
    check_positive,
    check_variances,
    finite_least,
    like,
    take_rows,
)
from gaussguru._errors.checks import check_causes, check_errors, check_products
from gaussguru._errors.forms import Covariances, Diagonal, Errors, Factored, PerSample, Roots
from gaussguru._errors.given import Asymmetric, Components, Limits, LowRank, Measured, with_more
from gaussguru._errors.missing import (
    LEAST,
    Population,
    has_unmeasured,
    mean_spread,
    positive,
    units_of,
    unmeasured,
)
from gaussguru._errors.split import (
    frame_and_units,
    holds_uncertainties,
    mark_unmeasured,
    split_errors,
    split_uncertainties,
)

__all__ = [
    "LEAST",
    "ROUNDING",
    "Asymmetric",
    "Components",
    "Covariances",
    "Diagonal",
    "Errors",
    "Factored",
    "Limits",
    "LowRank",
    "Measured",
    "PerSample",
    "Population",
    "Roots",
    "any_roots",
    "as_numbers",
    "check_causes",
    "check_errors",
    "check_positive",
    "check_products",
    "check_variances",
    "finite_least",
    "frame_and_units",
    "has_unmeasured",
    "holds_uncertainties",
    "like",
    "mark_unmeasured",
    "mean_spread",
    "positive",
    "split_errors",
    "split_uncertainties",
    "take_rows",
    "units_of",
    "unmeasured",
    "with_more",
]

# What users see, and what is stored in model files and pickles, has the path of the public module.
for _kind in (Asymmetric, Components, Limits, LowRank, Measured, Population):
    _kind.__module__ = "gaussguru.errors"
