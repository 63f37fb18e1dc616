"""Data that does not fit in memory, or that lives on a cluster: sources that ``fit`` and ``predict`` accept as X.

* :class:`Arrays`: arrays, memory maps and ``.npy`` files, read in parts. A ``np.memmap`` of more than 1 GiB is read in
  parts automatically.
* :class:`Table`: Parquet files, directories and patterns, a ``pyarrow.dataset.Dataset`` or a ``polars.LazyFrame``.
* :class:`Stream`: a function that returns an iterator over blocks.
* :class:`Dask`: a ``dask.array.Array`` or ``dask.dataframe.DataFrame``. These can also be passed directly.

:func:`subsample` draws some samples into memory, :func:`save_predictions` writes predictions to disk in parts.

Labels, weights and error bars are column names for tables, ``fit(table, "label", sample_weight="weight",
X_err="{x}_err")``; arrays with one row per sample for arrays; and either for Dask.

Examples
--------
>>> import numpy as np
>>> from gaussguru import GuruClassifier
>>> from gaussguru.sources import Arrays
>>> rng = np.random.default_rng(0)
>>> X = rng.standard_normal((1000, 3)).astype(np.float32)
>>> y = X[:, 0] + 0.1 * rng.standard_normal(1000) > 0
>>> GuruClassifier(0.5).fit(Arrays(X, rows=300), y).converged_
True
"""

from gaussguru.sources.arrays import Arrays
from gaussguru.sources.blocks import Stream
from gaussguru.sources.dask_parts import Dask
from gaussguru.sources.reading import subsample
from gaussguru.sources.saving import save_predictions
from gaussguru.sources.tables import Table

__all__ = ["Arrays", "Dask", "Stream", "Table", "save_predictions", "subsample"]
