"""Make :class:`Errors`, the forms that problems compute with, of parsed error bars."""

import math

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.arrays import roots_of, semidefinite_roots
from gaussguru._errors.columns import LARGEST
from gaussguru._errors.correlated import Covariances, Factored
from gaussguru._errors.forms import Errors
from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.independent import Diagonal, PerSample
from gaussguru._errors.missing import has_unmeasured
from gaussguru._utils.types import BlockMap, ErrorBars, Values


def check_errors(X_err: ErrorBars, X: Values, map: BlockMap = map) -> Errors:
    """Return the error bars of X as problems compute with them, from parsed ones; ``map`` maps blocks of rows.

    Infinite errors must have been replaced before (:class:`Population`).
    """
    if not isinstance(X_err, Limits):
        _check_squares(X_err)
    return _errors_of(X_err, X, map)


def check_products(X_err: ErrorBars, X: Values) -> Errors:
    """Return error bars for variances and products alone: :func:`check_errors` without computing roots."""
    if not _are_covariances(X_err):
        return check_errors(X_err, X)
    _check_squares(X_err)
    return Covariances(X_err)


def check_causes(X_err: ErrorBars, X: Values) -> Errors:
    """Return error bars for which :meth:`Errors.moved` of a sample does not depend on other samples.

    All roots are :func:`semidefinite_roots`; :func:`check_errors` uses Cholesky factors in some blocks of samples.
    """
    if _are_covariances(X_err):
        X_err = LowRank(semidefinite_roots(X_err), np.zeros(X_err.shape[:2]))
    return _errors_of(X_err, X)


def _are_covariances(X_err: ErrorBars) -> bool:
    return not isinstance(X_err, LowRank | Limits) and X_err.ndim == 3 and not has_unmeasured(X_err)


def _check_squares(X_err: ErrorBars) -> None:
    """Raise if the square of a finite error is no number."""
    for part in X_err.arrays if isinstance(X_err, LowRank) else (X_err,):
        values = part.data if sp.issparse(part) else part
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))  # without a copy
        largest = math.sqrt(largest) if part is X_err and values.ndim == 3 else largest
        if LARGEST < largest < math.inf:
            raise ValueError(
                f"X_err must hold errors whose squares do not overflow, at most {LARGEST:g}; got {largest:.3g}: use "
                "infinity for values that were not measured"
            )


def _errors_of(X_err: ErrorBars, X: Values, map: BlockMap = map) -> Errors:
    """Return finite error bars as problems compute with them."""
    if has_unmeasured(X_err):
        raise ValueError("X_err has infinity where only finite numbers are allowed")
    n, d = (int(size) for size in X.shape)
    if isinstance(X_err, LowRank):
        factors = np.ascontiguousarray(X_err.factors.transpose(0, 2, 1)).transpose(0, 2, 1)
        return Factored(X_err.std, factors)
    if sp.issparse(X_err):
        return Diagonal(X_err)
    if X_err.ndim == 1:
        return PerSample(X_err, d)
    if X_err.ndim == 2:
        return Diagonal(np.ascontiguousarray(X_err))
    uppers, definite = roots_of(X_err, map)
    return Covariances(X_err, uppers) if definite else Factored(np.zeros((n, d)), uppers.transpose(0, 2, 1))
