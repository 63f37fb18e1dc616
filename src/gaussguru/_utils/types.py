"""Names for objects that have no type, or an optional one: of scikit-learn, of matplotlib, of several libraries."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

__all__ = ["Ax", "Axes", "Directory", "ErrorBars", "Estimator", "Figure", "Labels", "Seed", "Values"]

# The axes to draw on, or None for new ones.
Ax: TypeAlias = Axes | None
# A classifier, transformer, pipeline or search of scikit-learn, which is not typed.
Estimator: TypeAlias = Any
# Samples: an array, array-like, sparse matrix, DataFrame of any library, or Measured.
Values: TypeAlias = Any
# Error bars in any form that X_err may have.
ErrorBars: TypeAlias = Any
# Labels of classes: an array-like of numbers or texts.
Labels: TypeAlias = Any
# A seed, a generator of NumPy, or None.
Seed: TypeAlias = Any
# The path of a directory, as text or Path, or None.
Directory: TypeAlias = Any
