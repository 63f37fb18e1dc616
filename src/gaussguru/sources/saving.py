"""Predictions for a source, written to disk."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gaussguru._utils.files import replacing
from gaussguru._utils.types import MixedArray
from gaussguru.sources.base import Fields
from gaussguru.sources.reading import Reading, as_source, named


def save_predictions(path: str | os.PathLike[str], method: Callable[..., Any], X: Any, X_err: Any = None) -> np.memmap:
    """Write predictions for a source to a ``.npy`` file, part by part.

    Neither the samples nor their predictions need to fit in memory.

    Parameters
    ----------
    path : str or path
        The file. It is replaced if it exists, once all is written.
    method : callable
        Method of a fitted estimator that returns one array, as ``model.predict_proba``.
    X, X_err : as in the method
        A source, and column names or arrays. For Dask, write the result of the method with
        ``dask.array.to_npy_stack``.

    Returns
    -------
    numpy.memmap
        The predictions, read from the file when they are used.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.sources import Arrays, save_predictions
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> clf = GuruClassifier(0.3).fit(X, X[:, 0] > 0)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save_predictions(f"{directory}/p.npy", clf.predict_proba, Arrays(X, rows=300)).shape
    (1000, 2)
    """
    source = as_source(X)
    if source is None or source.is_lazy:
        raise TypeError(f"X must be a source that is no collection of Dask; got {type(X).__name__}")
    model = getattr(method, "__self__", None)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    reading = Reading(source, Fields(X_err=X_err), names, None)
    # The header of a ``.npy`` file is written last, because the number of rows is known last.
    n_rows, like, header_bytes = 0, None, 128
    with replacing(path) as file, reading.pool as mapped:
        file.write(bytes(header_bytes))
        for part in reading.opened(mapped, None).one_by_one():
            if not part.X.shape[0]:
                continue
            given = {} if part.X_err is None else {"X_err": part.X_err}
            rows = _without_objects(np.ascontiguousarray(method(named(part.X, names), **given)), model)
            like = rows if like is None else like
            if (len(rows), rows.dtype, rows.shape[1:]) != (part.X.shape[0], like.dtype, like.shape[1:]):
                raise ValueError(
                    f"method must return a row for each sample, of one dtype and shape in all parts; for "
                    f"{part.X.shape[0]} samples it returned {rows.dtype} of shape {rows.shape}"
                )
            file.write(rows.data)
            n_rows += len(rows)
        if like is None:
            raise ValueError("X must have at least one sample; all partitions are empty")
        file.seek(0)
        about = {"descr": like.dtype.str, "fortran_order": False, "shape": (n_rows, *like.shape[1:])}
        np.lib.format.write_array_header_1_0(file, about)
        assert file.tell() == header_bytes
    saved: np.memmap = np.load(path, mmap_mode="r")
    return saved


def _without_objects(rows: MixedArray, model: BaseEstimator) -> MixedArray:
    """Return predictions with labels of type object, as tables have them, as an array of texts."""
    if rows.dtype.hasobject:
        classes = np.asarray(getattr(model, "classes_", [None]))
        if not all(isinstance(label, str) for label in classes):
            raise TypeError("labels that are Python objects cannot be saved; fit to texts or numbers")
        return rows.astype(classes.astype(str).dtype)
    return rows
