"""The dual problem: its objective, its constraints, and the norm of ``w*`` from a dual solution."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._utils.linalg import Array, norm
from gaussguru._utils.types import Values
from gaussguru.losses import Loss, resolve_loss
from gaussguru.noise import Noise


def norm_bound(loss: Loss, noise: Noise, radius: float, direction: Array) -> float:
    """Return a bound on ``||w*||`` without an intercept: ``1 / (a(u) f(-R / a(u)))`` for the unit vector ``u``.

    It follows from ``F(w*) <= F(0)`` and ``F(w) >= S a(w) f(-R ||w|| / a(w))`` with ``R = max ||x_i||``.

    Parameters
    ----------
    loss : Loss
    noise : Noise
    radius : float
        ``R``, the length of the longest sample.
    direction : array-like of shape (n_features,)
        Any positive multiple of ``u``.

    Returns
    -------
    float
    """
    scale = noise.scale(direction / norm(direction))
    least = scale * float(loss.value(np.array([-radius / scale]))[0])
    return 1.0 / least if least > 0 else np.inf


class Recovered(NamedTuple):
    """A primal solution recovered from a dual one, by two formulas.

    Attributes
    ----------
    norm, intercept : float
        ``||w*||`` and ``b*``, from weighted means of the equations of the samples.
    by_sample : ndarray of shape (n_samples,)
        ``||w*||`` from each sample alone, given the intercept; NaN where alpha is 0 or 1.
    by_sums : float
        ``||w*||`` from the sums over all samples, without a ridge; NaN if some alpha is 1, where z is infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.certificates import recover_norm
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GuruClassifier(5.0, tol=1e-9).fit(X, y)
    >>> norm = np.linalg.norm(clf.coef_)
    >>> found = recover_norm("gaussian", clf.noise_, clf.alpha_, 2 * y - 1, X, clf.coef_[0] / norm)
    >>> bool(abs(found.norm / norm - 1) < 1e-3)
    True
    """

    norm: float
    intercept: float
    by_sample: Array
    by_sums: float


def recover_norm(
    loss: str | Loss,
    noise: Noise,
    alpha: ArrayLike,
    y: ArrayLike,
    X: Values,
    direction: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
) -> Recovered:
    """Return the norm of ``w*``, and ``b*``, from a dual solution and the direction of ``w*``.

    A sample with ``0 < alpha < 1`` has ``z = f'^-1(alpha)``, and the optimum ``sum s a f(z)`` is ``sum s alpha``::

        ||w*|| = (1 - y b) / (a(u) z + y u.x)         for every such sample
        ||w*|| = sum s alpha / (a(u) sum s f(z))

    for the unit vector u along ``w*``. (In the thesis, chapter 3, both lack the sigma in ``a(u)``.) The equations of
    the samples are weighted by how well alpha determines z. With an intercept, each label must have such a sample. The
    second formula is less accurate: it depends most on the samples with alpha near 1, whose z is determined worst.

    Parameters
    ----------
    loss : str or Loss
    noise : Noise
    alpha : array-like of shape (n_samples,)
        The dual solution.
    y : array-like of shape (n_samples,)
        Labels, -1 and 1.
    X : array or sparse matrix of shape (n_samples, n_features)
    direction : array-like of shape (n_features,)
        Any multiple of ``w*``; ``sum s y alpha x`` is one.
    sample_weight : array-like of shape (n_samples,), default=None
    fit_intercept : bool, default=True
        Whether the problem has an intercept; else it is 0.

    Returns
    -------
    Recovered
    """
    loss, alpha, y, weight = _dual_point(loss, alpha, y, X, sample_weight)
    unit = np.asarray(direction, dtype=np.float64) / norm(np.asarray(direction, dtype=np.float64))
    scale, along = noise.scale(unit), np.asarray(X @ unit)
    inside = (alpha > 0) & (alpha < 1)
    z = loss.slope_inverse(alpha[inside])
    left = scale * z + (y * along)[inside]
    # The accuracy to which alpha determines z; it vanishes at 0 and 1.
    known = weight[inside] * loss.curvature(z) * alpha[inside] * (1 - alpha[inside])
    positive = y[inside] > 0
    groups = (positive, ~positive) if fit_intercept else (np.ones_like(positive),)
    if not all(known[group].sum() > 0 for group in groups):
        raise ValueError("alpha must have a sample with 0 < alpha < 1, of either label if there is an intercept")
    means = [float(np.average(left[group], weights=known[group])) for group in groups]
    inverse = float(np.mean(means))
    b = 0.5 * (means[1] - means[0]) / inverse if fit_intercept else 0.0
    by_sample, cost = np.full(len(alpha), np.nan), np.where((alpha >= 1) & (weight > 0), np.nan, 0.0)
    by_sample[inside], cost[inside] = (1 - y[inside] * b) / left, loss.value(z)
    return Recovered(1.0 / inverse, b, by_sample, float(weight @ alpha / (scale * (weight @ cost))))


class Feasibility(NamedTuple):
    """The violation of each constraint of the dual; a point is feasible if all are 0.

    Attributes
    ----------
    box : float
        Largest distance of an alpha to [0, 1].
    balance : float
        ``|sum s y alpha|``; 0 without an intercept.
    cone : float
        ``polar(sum s y alpha x) - sum s f*(alpha)``, or 0 if that is negative.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.certificates import dual_feasibility
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GuruClassifier(5.0, solver="dual").fit(X, y)
    >>> found = dual_feasibility("gaussian", clf.noise_, clf.alpha_, 2 * y - 1, X)
    >>> found.box == 0 and found.balance < 1e-3
    True
    """

    box: float
    balance: float
    cone: float


def dual_objective(
    loss: str | Loss,
    noise: Noise,
    alpha: ArrayLike,
    y: ArrayLike,
    X: Values,
    *,
    sample_weight: ArrayLike | None = None,
    l2: float = 0.0,
) -> float:
    """Return the dual objective: a lower bound of the minimum if :func:`dual_feasibility` is 0.

    ::

        sum s alpha - excess(v, sum s f*(alpha))^2 / (2 l2),    v = sum s y alpha x

    Without a ridge it is ``sum s alpha``. With a ridge the cone is no constraint.

    Parameters
    ----------
    loss, noise, alpha, y, X, sample_weight : as in :func:`recover_norm`
    l2 : float, default=0.0
        Weight of the ridge.

    Returns
    -------
    float
    """
    loss, alpha, y, weight = _dual_point(loss, alpha, y, X, sample_weight)
    value = float(weight @ alpha)
    if l2:
        excess = noise.excess(np.asarray(X.T @ (weight * y * alpha)), float(weight @ loss.conjugate(alpha)))
        value -= excess * (excess / (2 * l2))
    return value


def dual_feasibility(
    loss: str | Loss,
    noise: Noise,
    alpha: ArrayLike,
    y: ArrayLike,
    X: Values,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
) -> Feasibility:
    """Return the violation of each constraint of the dual.

    Parameters
    ----------
    loss, noise, alpha, y, X, sample_weight, fit_intercept : as in :func:`recover_norm`

    Returns
    -------
    Feasibility
    """
    loss, alpha, y, weight = _dual_point(loss, alpha, y, X, sample_weight)
    box = max(0.0, float(-alpha.min()), float(alpha.max() - 1))
    balance = abs(float(weight @ (y * alpha))) if fit_intercept else 0.0
    level = float(weight @ loss.conjugate(np.clip(alpha, 0.0, 1.0)))
    return Feasibility(box, balance, max(0.0, noise.polar(np.asarray(X.T @ (weight * y * alpha))) - level))


def duality_gap(estimator: BaseEstimator, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return a proven upper bound on the distance of a fitted estimator to the minimum of its objective, on any data.

    Parameters
    ----------
    estimator : GuruClassifier
        Fitted.
    X, y, sample_weight : as in :meth:`gaussguru.GuruClassifier.certificate`
        That method also returns the objective and the lower bound.

    Returns
    -------
    float
    """
    if not hasattr(estimator, "certificate"):
        raise TypeError(f"estimator must be of the class GuruClassifier; {type(estimator).__name__} has no certificate")
    certificate: Certificate = estimator.certificate(X, y, sample_weight)
    return certificate.gap


def _dual_point(
    loss: str | Loss, alpha: ArrayLike, y: ArrayLike, X: Values, sample_weight: ArrayLike | None
) -> tuple[Loss, Array, Array, Array]:
    """Return the loss, alpha, labels and weights; raise a ValueError for wrong shapes or labels."""
    alpha, y = np.asarray(alpha, dtype=np.float64), np.asarray(y, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    for name, values in (("alpha", alpha), ("y", y), ("sample_weight", weight)):
        if values.shape != (X.shape[0],):
            raise ValueError(f"{name} must have shape ({X.shape[0]},), one number a sample; got shape {values.shape}")
    if not np.all(np.abs(y) == 1):
        raise ValueError(f"y must hold the labels -1 and 1; got {np.unique(y)[:5].tolist()!r}")
    return resolve_loss(loss), alpha, y, weight
