"""Names for objects that have no type, or an optional one: of scikit-learn, of matplotlib, of several libraries."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib import axes, figure

    Axes: TypeAlias = axes.Axes
    Figure: TypeAlias = figure.Figure
else:
    Axes = Figure = Any

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
# An array of labels, texts or numbers of any type.
MixedArray: TypeAlias = NDArray[Any]
# Values of any type by name: parameters, or an object of JSON.
Record: TypeAlias = dict[str, Any]
# The columns of a small table by name, and its rows: cells of numbers, texts and None.
ColumnCells: TypeAlias = dict[str, list[Any]]
RowCells: TypeAlias = list[list[Any]]
# A seed, a generator of NumPy, or None.
Seed: TypeAlias = Any
# The path of a directory, as text or Path, or None.
Directory: TypeAlias = Any
# Weights of classes: by label, "balanced", or None for 1 each.
ClassWeight: TypeAlias = dict[Any, float] | str | None
# Maps a function over blocks of rows, as the built-in ``map``.
BlockMap: TypeAlias = Callable[..., Iterable[Any]]
