"""From what users give to :class:`Errors`, checked against the samples that they belong to."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.arrays import as_numbers, check_finite, check_sign, check_symmetric, roots_of, symmetric_roots
from gaussguru._errors.forms import Covariances, Diagonal, Errors, Factored, PerSample
from gaussguru._errors.given import LowRank
from gaussguru._errors.missing import survey_limits


def check_errors(X_err: Any, X: Any, map: Any = map) -> Errors:
    """Return error bars, checked against the samples that they belong to.

    Infinite errors must have been replaced before (:class:`Population`). ``map`` is where blocks of rows are read.
    """
    n, d = (int(size) for size in X.shape)
    expected = (
        f"X_err must hold standard deviations of shape ({n},) or ({n}, {d}), or covariances of shape ({n}, {d}, {d}), "
        f"for X of shape ({n}, {d})"
    )
    survey_limits(X_err)
    if isinstance(X_err, LowRank):
        factors = as_numbers(X_err.factors, "X_err.factors")
        check_finite(factors, "X_err.factors", map)
        if factors.ndim != 3 or factors.shape[:2] != (n, d):
            raise ValueError(f"X_err.factors must have shape ({n}, {d}, rank); got {factors.shape}")
        std = np.zeros((n, d)) if X_err.std is None else as_numbers(X_err.std, "X_err.std")
        if std.shape not in ((n,), (n, d)):
            raise ValueError(f"X_err.std must have shape ({n},) or ({n}, {d}); got {std.shape}")
        check_sign(check_finite(std, "X_err.std", map), "X_err.std")
        factors = np.ascontiguousarray(factors.transpose(0, 2, 1)).transpose(0, 2, 1)
        return Factored(np.array(np.broadcast_to(std if std.ndim == 2 else std[:, np.newaxis], (n, d))), factors)
    if sp.issparse(X_err):
        errors = sp.csr_matrix(X_err, dtype=np.float64)
        if errors.shape != (n, d):
            raise ValueError(f"{expected}; got a sparse array of shape {errors.shape}")
        check_sign(check_finite(errors.data, "X_err", map), "X_err")
        return Diagonal(errors)
    errors = as_numbers(X_err, "X_err")
    least = check_finite(errors, "X_err", map)
    if errors.shape == (n,):
        check_sign(least, "X_err")
        return PerSample(errors, d)
    if errors.shape == (n, d):
        check_sign(least, "X_err")
        return Diagonal(np.ascontiguousarray(errors))
    if errors.shape == (n, d, d):
        uppers, definite = roots_of(errors, map)
        return Covariances(errors, uppers) if definite else Factored(np.zeros((n, d)), uppers.transpose(0, 2, 1))
    raise ValueError(f"{expected}; got shape {errors.shape}")


def check_products(X_err: Any, X: Any) -> Errors:
    """Return error bars of which only variances and products are asked for: :func:`check_errors` without roots.

    Covariances must be symmetric; that they are positive semidefinite is checked where it matters, by the variances.
    """
    n, d = (int(size) for size in X.shape)
    if isinstance(X_err, LowRank) or sp.issparse(X_err) or np.shape(X_err) != (n, d, d):
        return check_errors(X_err, X)
    matrices = as_numbers(X_err, "X_err")
    check_finite(matrices, "X_err", map)
    check_symmetric(matrices)
    return Covariances(matrices)


def check_causes(X_err: Any, X: Any) -> Errors:
    """Return error bars, checked, whose :meth:`Errors.moved` of a sample does not depend on other samples.

    Roots of covariances are symmetric, of singular ones and of others: :func:`check_errors` decides for many together.
    """
    errors = check_errors(X_err, X)
    if isinstance(X_err, LowRank) or errors.is_independent:
        return errors
    return check_errors(LowRank(symmetric_roots(*np.linalg.eigh(as_numbers(X_err, "X_err")))), X)
