"""The identity of a model and of the data of its evaluation."""

import hashlib
import platform
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.samples import split_errors
from gaussguru._measured.affine import as_table, final_estimator
from gaussguru._utils.frames import take_rows
from gaussguru._utils.types import ErrorBars, Estimator, Labels, Record, Values
from gaussguru.report.pool import has_pool


def model_card(model: Estimator, X: Values, y: Labels, X_err: ErrorBars = None) -> dict[str, Record]:
    """Return a model card: parameters, versions and certificate of a fitted model, and the evaluation data.

    Parameters
    ----------
    model : fitted classifier, pipeline or search
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        The data of the report, not necessarily those of the fit.
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None

    Returns
    -------
    dict of dict
        Groups "model", "certificate" (if the model has one), "data of the evaluation" and "software", of plain values:
        text, numbers, None, and lists and dicts of them. The SHA-256 is that of the values and the labels, not of a
        file.
    """
    check_is_fitted(model)
    X, X_err = split_errors(X, X_err)
    X = as_table(X)
    final = final_estimator(model)
    chosen: Estimator = getattr(model, "best_estimator_", model)
    steps = [type(step).__name__ for _, step in chosen.steps] if hasattr(chosen, "steps") else [type(final).__name__]
    names = getattr(X, "columns", None)
    labels, counts = np.unique(column_or_1d(y), return_counts=True)
    sigma = getattr(final, "sigma", getattr(final, "sigma_", None))
    # A classifier of posteriors or calibrated scores keeps the certificate in its inner estimator.
    proven = final if hasattr(final, "dual_gap_") else getattr(final, "estimator_", final)
    card = {
        "model": {
            "steps": " → ".join(steps),
            **({"method": final.method_} if hasattr(final, "method_") else {}),
            **({} if sigma is None else {"sigma": float(sigma)}),
            **(_pool(final) if has_pool(final) else {}),
            "parameters": {name: _plain(value) for name, value in sorted(final.get_params(deep=False).items())},
            "classes": [_plain(label) for label in final.classes_],
            "features": int(getattr(model, "n_features_in_", X.shape[1])),
        }
    }
    if hasattr(proven, "dual_gap_"):
        card["certificate"] = {
            "objective": float(proven.objective_),
            "duality gap": float(proven.dual_gap_),
            **({"converged": bool(proven.converged_)} if hasattr(proven, "converged_") else {}),
            "iterations": int(proven.n_iter_),
        }
    card["data of the evaluation"] = {
        "samples": int(X.shape[0]),
        "samples by class": {str(label): int(count) for label, count in zip(labels, counts, strict=True)},
        **({} if names is None else {"feature names": [str(name) for name in names]}),
        "error bars": X_err is not None,
        "sha256 of the values": data_hash(X, y, X_err),
    }
    packages = ("gaussguru", "numpy", "scipy", "scikit-learn")
    card["software"] = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    return card


def _pool(final: Estimator) -> Record:
    """Return the weights of the members of a pool, and log losses on held-out samples of the fit."""
    names, losses = final.cv_scores_["member"].tolist(), final.cv_scores_["log_loss"].tolist()
    n = len(final.pool_.members)
    weights = final.cv_scores_["weight"][:n].tolist()
    log_loss = dict(zip(names, losses, strict=True))
    others = ("pool", "errors ignored", "class frequencies")
    return {
        "members and weights": {name: round(weight, 4) for name, weight in zip(names, weights, strict=False)},
        "log loss on held-out samples": {name: round(log_loss[name], 4) for name in others if name in log_loss},
    }


def data_hash(X: Values, y: Labels, X_err: ErrorBars = None) -> str:
    """Return the SHA-256 of values, labels, names and error bars, the same on any machine.

    Numbers count as 64-bit floats, so that float32 and float64 of the same values agree; a sparse matrix and a dense
    one do not.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    total = hashlib.sha256()
    for name, part in (("X", X), ("names", getattr(X, "columns", None)), ("y", y), ("X_err", X_err)):
        total.update(f"{name}:".encode())
        if part is not None:
            _hash_into(total, part)
    return total.hexdigest()


def _hash_into(total: Any, part: Any) -> None:
    if isinstance(part, Limits | LowRank):
        for inner in (part.err, part.limits) if isinstance(part, Limits) else (part.factors, part.std):
            if inner is not None:
                _hash_into(total, inner)
        return
    part = part if hasattr(part, "shape") else np.asarray(part)
    total.update(f"{tuple(part.shape)};".encode())
    if sp.issparse(part):
        rows = sp.csr_array(part, copy=True)
        rows.sum_duplicates()
        for values in (rows.data, rows.indices.astype(np.float64), rows.indptr.astype(np.float64)):
            _hash_into(total, values)
        return
    for first in range(0, len(part), 1 << 16):  # another number would change the hash of texts
        values = np.asarray(take_rows(part, slice(first, first + (1 << 16))))
        if values.dtype.kind in "biuf":
            total.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        else:
            total.update("\0".join(f"{len(text)}:{text}" for text in map(str, values.ravel())).encode())


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: the value itself, else a text."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"array of shape {value.shape}" if isinstance(value, np.ndarray) else str(value)
