"""Make :class:`Errors`, the forms that problems compute with, of parsed error bars."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.arrays import roots_of, semidefinite_roots
from gaussguru._errors.correlated import Covariances, Factored
from gaussguru._errors.forms import Errors
from gaussguru._errors.given import Limits, LowRank
from gaussguru._errors.independent import Diagonal, PerSample
from gaussguru._errors.missing import has_unmeasured


def check_errors(X_err: Any, X: Any, map: Any = map) -> Errors:
    """Return the error bars of X as problems compute with them, from parsed ones; ``map`` maps blocks of rows.

    Infinite errors must have been replaced before (:class:`Population`).
    """
    if has_unmeasured(X_err):
        raise ValueError("X_err has infinity where only finite numbers are allowed")
    n, d = (int(size) for size in X.shape)
    if isinstance(X_err, LowRank):
        factors = np.ascontiguousarray(X_err.factors.transpose(0, 2, 1)).transpose(0, 2, 1)
        return Factored(np.zeros((n, d)) if X_err.std is None else X_err.std, factors)
    if sp.issparse(X_err):
        return Diagonal(X_err)
    if X_err.ndim == 1:
        return PerSample(X_err, d)
    if X_err.ndim == 2:
        return Diagonal(np.ascontiguousarray(X_err))
    uppers, definite = roots_of(X_err, map)
    return Covariances(X_err, uppers) if definite else Factored(np.zeros((n, d)), uppers.transpose(0, 2, 1))


def check_products(X_err: Any, X: Any) -> Errors:
    """Return error bars for variances and products alone: :func:`check_errors` without computing roots."""
    if not isinstance(X_err, LowRank | Limits) and X_err.ndim == 3 and not has_unmeasured(X_err):
        return Covariances(X_err)
    return check_errors(X_err, X)


def check_causes(X_err: Any, X: Any) -> Errors:
    """Return error bars for which :meth:`Errors.moved` of a sample does not depend on other samples.

    All roots are :func:`semidefinite_roots`; :func:`check_errors` uses Cholesky factors in some blocks of samples.
    """
    if isinstance(X_err, LowRank | Limits) or X_err.ndim < 3 or has_unmeasured(X_err):
        return check_errors(X_err, X)
    return check_errors(LowRank(semidefinite_roots(X_err)), X)
