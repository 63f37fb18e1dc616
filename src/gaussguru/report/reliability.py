"""Whether probabilities are right where error bars are small, and where they are large."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussguru._linalg import Array
from gaussguru.calibration import margin_and_spread
from gaussguru.errors import Limits, LowRank, Measured, check_errors, like, split_errors
from gaussguru.preprocessing import final_estimator

# Names of groups of equal size by what their error bars are.
THIRDS = ("small", "medium", "large")
# Sizes of errors that differ by no more than this fraction are the same: they are rounded.
SAME = 1e-9


class Reliability(NamedTuple):
    """What was predicted, and what came true, for samples with small, medium and large errors.

    ``errors`` names the groups, ``rows`` counts their samples, ``size`` is their median error, in units of the overlap
    of the classes; ``predicted`` is the mean probability of the predicted label, ``observed`` how often it was right,
    and ``standard_error`` what that differs by of itself, if the probabilities are right.
    """

    errors: list[str]
    rows: list[int]
    size: list[float]
    predicted: list[float]
    observed: list[float]
    standard_error: list[float]


def is_calibrated(model: Any) -> bool:
    """Return whether the probabilities of a model count error bars and the overlap of the classes."""
    return hasattr(final_estimator(model), "kappa_")


def error_sizes(model: Any, X: Any, X_err: Any = None) -> Array:
    """Return what error bars do to the score of every sample, in units of the overlap of the classes.

    Of two classes ``alpha kappa s`` with the spread s of the score; of more, the root of the mean square over scores,
    whose overlap has the variance 1/2.

    Parameters
    ----------
    model : fitted classifier, Pipeline or search, with calibrated probabilities
    X : array-like, DataFrame or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    final = final_estimator(model)
    _, spread = margin_and_spread(model, X, X_err)
    size = spread if spread.ndim == 1 else np.sqrt(2.0 * np.square(spread).mean(axis=1))
    return np.asarray(final.alpha_ * final.kappa_ * size)


def by_error_size(sizes: Array, predicted: Array, right: NDArray[np.bool_]) -> Reliability:
    """Compare predicted probabilities with what came true, by thirds of the size of the errors.

    Parameters
    ----------
    sizes : array of shape (n_samples,)
        As from :func:`error_sizes`.
    predicted : array of shape (n_samples,)
        Probabilities of the predicted labels.
    right : array of bool of shape (n_samples,)
        Whether these labels are right.

    Returns
    -------
    Reliability
        Of one group, where all errors are the same.
    """
    groups = error_thirds(sizes)
    names = THIRDS if groups.any() else ("all",)
    found: list[tuple[Any, ...]] = []
    for k, name in enumerate(names):
        mine = groups == k
        n = int(mine.sum())
        if n:
            p = predicted[mine]
            deviation = float(np.sqrt(np.sum(p * (1 - p)))) / n
            found.append(
                (name, n, float(np.median(sizes[mine])), float(p.mean()), float(right[mine].mean()), deviation)
            )
    return Reliability(*(list(column) for column in zip(*found, strict=True)))


def error_thirds(sizes: Array) -> NDArray[np.intp]:
    """Return 0, 1 or 2 for samples of small, medium and large errors, which are about a third each; 0 if all are same.

    Parameters
    ----------
    sizes : array of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    if not len(sizes) or np.ptp(sizes) <= SAME * np.max(np.abs(sizes)):
        return np.zeros(len(sizes), dtype=np.intp)
    return np.searchsorted(np.quantile(sizes, [1 / 3, 2 / 3]), sizes, side="left")


def with_larger_errors(X: Any, X_err: Any, factor: float, rng: np.random.Generator) -> Measured:
    """Return samples as they would be with larger errors, of which their values and error bars know.

    Noise of ``sqrt(factor^2 - 1)`` error bars is added: together with what there is of it, that is ``factor`` of them.

    Parameters
    ----------
    X : array or DataFrame of shape (n_samples, n_features)
    X_err : error bars of X
    factor : float
        At least 1.
    rng : Generator

    Returns
    -------
    Measured
    """
    X, X_err = split_errors(X, X_err)
    values = np.asarray(X, dtype=np.float64)
    more = np.sqrt(factor**2 - 1.0) * check_errors(_finite(X_err), values).sample(rng)
    return Measured(like(X, values + more), _times(X_err, factor))


def _finite(X_err: Any) -> Any:
    """Return error bars without those of what was not measured."""
    if isinstance(X_err, Limits):
        return _finite(X_err.err)
    if isinstance(X_err, LowRank):
        return LowRank(X_err.factors, None if X_err.std is None else _finite(X_err.std))
    errors = np.asarray(X_err, dtype=np.float64)
    return np.where(np.isfinite(errors), errors, 0.0)


def _times(X_err: Any, factor: float) -> Any:
    if isinstance(X_err, Limits):
        return Limits(_times(X_err.err, factor), X_err.limits)
    if isinstance(X_err, LowRank):
        return LowRank(
            np.asarray(X_err.factors) * factor, None if X_err.std is None else np.asarray(X_err.std) * factor
        )
    errors = np.asarray(X_err, dtype=np.float64)
    return errors * (factor if errors.ndim < 3 else factor**2)
