"""Noise models: what the adversary may do, seen only through ``a(w)``.

``a(w)`` is the standard deviation of ``w . noise`` under the worst covariance that the model allows. It is
convex and positively homogeneous, so it is the support function of a convex set ``A = {A grad a}``: the dual
needs only the gauge of that set (:meth:`Noise.polar`) and the distance to it (:meth:`Noise.excess`).

Conventions
-----------
w : array of shape (n_features,), not zero where a derivative is asked for
sigma : the noise level; it multiplies whatever standard deviations the model has, so that they are in the units of
    the features where ``sigma`` or the array given with it is
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh
from scipy.linalg.lapack import dtrtri

from gaussguru.losses import Array


def norm(v: Array) -> float:
    """Return the Euclidean length of a vector, also where its square overflows or underflows."""
    square = float(v.dot(v))  # quicker than v @ v on short vectors
    if 1e-280 < square < 1e280:
        return math.sqrt(square)
    largest = float(np.abs(v).max(initial=0.0))
    return largest * math.sqrt(float((v / largest) @ (v / largest))) if 0 < largest < np.inf else largest


def diagonal(matrix: Array) -> Array:
    """Return a writable view of the diagonal."""
    view: Array = matrix.diagonal()
    view.flags.writeable = True
    return view


# A covariance may be asymmetric by rounding, and have eigenvalues below zero by as much (relative to unit variances).
ROUNDING = 1e-10
# Coefficients this close to the largest are tied with it.
TIED = 1e-12


class Noise(ABC):
    """A convex, positively homogeneous scale ``a(w)``.

    Where it is not ``smooth``, ``gradient`` is one of the subgradients.
    """

    smooth = True
    sigma: float

    @abstractmethod
    def scale(self, w: Array) -> float:
        """Return ``a(w)``."""

    @abstractmethod
    def gradient(self, w: Array) -> Array:
        """Return the gradient of ``a``; it does not depend on the length of ``w``."""

    def rise(self, w: Array, p: Array) -> float:
        """Return how much ``a`` rises to first order with a step ``p``."""
        return float(self.gradient(w) @ p)

    @abstractmethod
    def add_hessian(self, w: Array, factor: float, out: Array) -> None:
        """Add ``factor`` times the Hessian of ``a`` to the square array ``out``."""

    @abstractmethod
    def hessian_product(self, w: Array, p: Array) -> Array:
        """Return the Hessian of ``a`` times ``p``."""

    @abstractmethod
    def polar(self, v: Array) -> float:
        """Return ``max w . v`` over ``a(w) <= 1``; a dual point is feasible when this is at most ``sum s f*``."""

    @abstractmethod
    def polar_within(self, error: Array) -> float:
        """Return a bound on the polar of every ``v`` with ``|v_j| <= error_j``: what rounding may add to one."""

    @abstractmethod
    def excess(self, v: Array, level: float) -> float:
        """Return the Euclidean distance from ``v`` to the set of ``u`` with ``polar(u) <= level``."""

    @abstractmethod
    def steepest(self, v: Array) -> Array:
        """Return a ``w`` with the largest ``w . v / a(w)``, of any length."""

    @abstractmethod
    def worst_covariance(self, w: Array) -> Array:
        """Return the covariance that an adversary chooses against ``w``; any that is allowed where ``w = 0``."""

    @abstractmethod
    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return noise with that covariance, of shape ``(*size, n_features)``."""

    def scaled(self, factor: float) -> Self:
        """Return the same model with its standard deviations multiplied by ``factor``."""
        return replace(self, sigma=self.sigma * factor)  # type: ignore[type-var]  # every model is a dataclass

    def with_floor(self, least: Callable[[], Array]) -> "Noise":
        """Return the model with noise where it has none; ``least`` gives the standard deviations to use there."""
        return self


class Quadratic(Noise):
    """A known covariance: ``a(w)^2 = w' A w``, the only kind that more than two classes can have.

    ::

        grad a = A w / a        Hess a = (A - grad a grad a') / a        polar(v)^2 = v' A^-1 v
    """

    @abstractmethod
    def metric(self, W: Array) -> Array:
        """Return ``W A``, for one w or for many."""

    @abstractmethod
    def add_metric(self, factor: float, out: Array) -> None:
        """Add ``factor A`` to the square array ``out``."""

    @property
    @abstractmethod
    def unit_polar(self) -> float:
        """The largest polar of a unit vector, or a bound on it."""

    def scale(self, w: Array) -> float:
        """Return ``sqrt(w' A w)``."""
        return math.sqrt(max(0.0, float(w @ self.metric(w))))

    def gradient(self, w: Array) -> Array:
        """Return ``A w / a``."""
        product = self.metric(w)
        return np.asarray(product / math.sqrt(float(w @ product)))

    def add_hessian(self, w: Array, factor: float, out: Array) -> None:
        """Add ``factor (A - grad a grad a') / a``."""
        scale, gradient = self.scale(w), self.gradient(w)
        self.add_metric(factor / scale, out)
        out -= gradient[:, np.newaxis] * (gradient * (factor / scale))

    def hessian_product(self, w: Array, p: Array) -> Array:
        """Return ``(A p - grad a (grad a . p)) / a``."""
        gradient = self.gradient(w)
        return np.asarray((self.metric(p) - gradient * float(gradient @ p)) / self.scale(w))


@dataclass(frozen=True)
class Isotropic(Quadratic):
    """Any covariance of trace at most ``sigma**2``, or of spectral norm at most ``sigma**2``.

    ::

        a(w) = sigma ||w||_2        polar(v) = ||v||_2 / sigma

    Against ``w`` the first adversary puts everything along it: ``sigma^2 w w' / ||w||^2`` (thesis, chapter 2).
    """

    sigma: float

    def scale(self, w: Array) -> float:
        """Return ``sigma ||w||``."""
        return self.sigma * norm(w)

    def gradient(self, w: Array) -> Array:
        """Return ``sigma w / ||w||``."""
        return w * (self.sigma / norm(w))

    def add_hessian(self, w: Array, factor: float, out: Array) -> None:
        """Add ``factor sigma (I - w w'/||w||^2) / ||w||``."""
        length = norm(w)
        curvature = factor * self.sigma / length
        diagonal(out)[:] += curvature
        unit = w * (math.sqrt(curvature) / length)
        out -= unit[:, np.newaxis] * unit

    def hessian_product(self, w: Array, p: Array) -> Array:
        """Return ``sigma (p - w (w.p)/||w||^2) / ||w||``."""
        length = norm(w)
        result = w * (-float(w @ p) / length / length)
        result += p
        result *= self.sigma / length
        return result

    def polar(self, v: Array) -> float:
        """Return ``||v|| / sigma``."""
        return norm(v) / self.sigma

    def polar_within(self, error: Array) -> float:
        """Return ``||error|| / sigma``."""
        return norm(error) / self.sigma

    def excess(self, v: Array, level: float) -> float:
        """Return ``max(0, ||v|| - sigma level)``."""
        return max(0.0, norm(v) - self.sigma * level)

    def steepest(self, v: Array) -> Array:
        """Return ``v``."""
        return v

    def worst_covariance(self, w: Array) -> Array:
        """Return ``sigma^2 w w' / ||w||^2``."""
        if not w.any():
            return np.eye(len(w)) * (self.sigma**2 / len(w))
        unit = w / norm(w)
        return self.sigma**2 * np.outer(unit, unit)

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return a normal number times ``sigma w / ||w||``."""
        if not w.any():
            return rng.normal(0.0, self.sigma / math.sqrt(len(w)), (*size, len(w)))
        return rng.normal(0.0, self.sigma, (*size, 1)) * (w / norm(w))

    def metric(self, W: Array) -> Array:
        """Return ``sigma^2 W``."""
        return self.sigma**2 * W

    def add_metric(self, factor: float, out: Array) -> None:
        """Add ``factor sigma^2 I``."""
        diagonal(out)[:] += factor * self.sigma**2

    @property
    def unit_polar(self) -> float:
        """``1 / sigma``."""
        return 1 / self.sigma


@dataclass(frozen=True, eq=False)
class PerFeature(Quadratic):
    """Independent noise of known standard deviations ``sigma e_j``, one a feature.

    ::

        a(w) = sigma ||e w||_2        polar(v) = ||v / e||_2 / sigma

    It is isotropic noise on ``x / e``.
    """

    sigma: float
    deviations: Array

    def scale(self, w: Array) -> float:
        """Return ``sigma ||e w||``."""
        return self.sigma * norm(w * self.deviations)

    def gradient(self, w: Array) -> Array:
        """Return ``sigma e^2 w / ||e w||``."""
        scaled = w * self.deviations
        return scaled * self.deviations * (self.sigma / norm(scaled))

    def metric(self, W: Array) -> Array:
        """Return ``sigma^2 W diag(e^2)``."""
        return W * (self.sigma * self.deviations) ** 2

    def add_metric(self, factor: float, out: Array) -> None:
        """Add ``factor sigma^2 diag(e^2)``."""
        diagonal(out)[:] += factor * (self.sigma * self.deviations) ** 2

    @property
    def unit_polar(self) -> float:
        """``1 / (sigma min e)``."""
        return 1 / (self.sigma * float(self.deviations.min()))

    def polar(self, v: Array) -> float:
        """Return ``||v / e|| / sigma``."""
        return norm(v / self.deviations) / self.sigma

    def polar_within(self, error: Array) -> float:
        """Return ``||error / e|| / sigma``."""
        return self.polar(error)

    def excess(self, v: Array, level: float) -> float:
        """Return the distance to the ellipsoid of half-axes ``sigma level e``."""
        return distance_to_ellipsoid(v, self.sigma * level * self.deviations)

    def steepest(self, v: Array) -> Array:
        """Return ``v / e^2``."""
        return v / self.deviations / self.deviations

    def worst_covariance(self, w: Array) -> Array:
        """Return ``sigma^2 diag(e^2)``, whatever w is."""
        return np.diag((self.sigma * self.deviations) ** 2)

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return independent normal numbers."""
        return rng.standard_normal((*size, len(w))) * (self.sigma * self.deviations)

    def with_floor(self, least: Callable[[], Array]) -> Noise:
        """Return the model with the standard deviations ``least`` where they are 0."""
        if self.deviations.all():
            return self
        return replace(self, deviations=np.where(self.deviations > 0, self.deviations, least() / self.sigma))


@dataclass(frozen=True, eq=False)
class Covariance(Quadratic):
    """Noise of the known covariance ``sigma^2 C``.

    ::

        a(w) = sigma sqrt(w' C w)        polar(v) = sqrt(v' C^-1 v) / sigma

    It is isotropic noise on ``L^-1 x`` for a Cholesky factor, ``C = L L'``; but as only ``w`` meets C, X stays as it
    is, sparse or not. A Cholesky factor is as accurate as if all features had been scaled to unit noise first.
    """

    sigma: float
    shape: "Shape"

    def metric(self, W: Array) -> Array:
        """Return ``sigma^2 W C``."""
        return np.asarray(
            W @ (self.sigma**2 * self.shape.matrix) if W.ndim > 1 else self.sigma**2 * (self.shape.matrix @ W)
        )

    def scale(self, w: Array) -> float:
        """Return ``sigma ||L' w||``."""
        return self.sigma * norm(w @ self.shape.factor)

    def add_metric(self, factor: float, out: Array) -> None:
        """Add ``factor sigma^2 C``."""
        out += (factor * self.sigma**2) * self.shape.matrix

    @property
    def unit_polar(self) -> float:
        """The Frobenius norm of ``L^-1``, over sigma."""
        return norm(self.shape.inverse.ravel()) / self.sigma

    def polar(self, v: Array) -> float:
        """Return ``||L^-1 v|| / sigma``."""
        return norm(self.shape.inverse @ v) / self.sigma

    def polar_within(self, error: Array) -> float:
        """Return ``|| |L^-1| error || / sigma``."""
        return norm(np.abs(self.shape.inverse) @ error) / self.sigma

    def excess(self, v: Array, level: float) -> float:
        """Return the distance to the ellipsoid ``sigma level L y``, ``||y|| <= 1``."""
        axes, deviations = self.shape.principal
        return distance_to_ellipsoid(axes.T @ v, self.sigma * level * deviations)

    def steepest(self, v: Array) -> Array:
        """Return ``C^-1 v``."""
        return np.asarray((self.shape.inverse @ v) @ self.shape.inverse)

    def worst_covariance(self, w: Array) -> Array:
        """Return ``sigma^2 C``, whatever w is."""
        return self.sigma**2 * self.shape.matrix

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return ``sigma L`` times independent normal numbers."""
        return self.sigma * (rng.standard_normal((*size, len(w))) @ self.shape.factor.T)

    def with_floor(self, least: Callable[[], Array]) -> Noise:
        """Return the model with independent noise of the standard deviations ``least`` added, if C is singular."""
        if not self.shape.singular:
            return self
        # Above the rounding of C itself.
        variances = np.maximum((least() / self.sigma) ** 2, ROUNDING**1.25 * self.shape.matrix.diagonal())
        return replace(self, shape=Shape(self.shape.matrix + np.diag(variances)))


class Shape:
    """A covariance matrix with what is known of it, each computed once and only where it is asked for."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    @cached_property
    def factor(self) -> Array:
        """The lower Cholesky factor."""
        return np.asarray(cholesky(self.matrix, lower=True))

    @cached_property
    def singular(self) -> bool:
        """Whether there are directions without noise, to within rounding."""
        deviations = np.sqrt(self.matrix.diagonal())
        try:
            # A pivot is the variance of a feature given those before it.
            return bool(np.any(self.factor.diagonal() <= math.sqrt(ROUNDING) * deviations))
        except LinAlgError:
            return True

    @cached_property
    def inverse(self) -> Array:
        """``L^-1``: products with it are quicker than solutions with the factor, and it is as accurate."""
        return np.ascontiguousarray(dtrtri(self.factor, lower=True)[0])

    @cached_property
    def principal(self) -> tuple[Array, Array]:
        """The principal axes, as columns, and the standard deviations along them."""
        variances, axes = eigh(self.matrix)
        return axes, np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class Axis(Noise):
    """Any diagonal covariance of trace at most ``sigma**2``: the features err independently (thesis, appendix B).

    ::

        a(w) = sigma ||w||_inf        polar(v) = ||v||_1 / sigma

    Against ``w`` everything goes to the feature with the largest ``|w_j|``, so at the optimum several are tied.
    """

    smooth = False
    sigma: float

    def scale(self, w: Array) -> float:
        """Return ``sigma max |w_j|``."""
        return self.sigma * float(np.abs(w).max(initial=0.0))

    def gradient(self, w: Array) -> Array:
        """Return ``sigma`` times the sign of the largest ``w_j``, in its place."""
        result = np.zeros_like(w)
        largest = int(np.argmax(np.abs(w)))
        result[largest] = math.copysign(self.sigma, w[largest])
        return result

    def rise(self, w: Array, p: Array) -> float:
        """Return ``a(w + p) - a(w)``; ``a`` is convex, so its derivative along p is no more."""
        return self.scale(w + p) - self.scale(w)

    def add_hessian(self, w: Array, factor: float, out: Array) -> None:
        """Add nothing: ``a`` is linear where it is smooth."""

    def hessian_product(self, w: Array, p: Array) -> Array:
        """Return 0."""
        return np.zeros_like(p)

    def polar(self, v: Array) -> float:
        """Return ``sum |v_j| / sigma``."""
        return float(np.abs(v).sum()) / self.sigma

    def polar_within(self, error: Array) -> float:
        """Return ``sum error_j / sigma``."""
        return self.polar(error)

    def excess(self, v: Array, level: float) -> float:
        """Return the distance to the ``l1`` ball of radius ``sigma level`` (by sorting; Held et al. 1974)."""
        sizes, radius = np.abs(v), self.sigma * level
        if sizes.sum() <= radius:
            return 0.0
        falling = np.sort(sizes)[::-1]
        thresholds = (np.cumsum(falling) - radius) / np.arange(1, len(v) + 1)
        threshold = thresholds[np.flatnonzero(falling > thresholds)[-1]] if radius > 0 else falling[0]
        return norm(np.minimum(sizes, threshold))

    def steepest(self, v: Array) -> Array:
        """Return the signs of ``v``."""
        return np.sign(v)

    def _shares(self, w: Array) -> Array:
        """Return how the variance is divided: equally among the largest ``|w_j|``."""
        signs = tied(w)
        return np.abs(signs) / np.count_nonzero(signs) if w.any() else np.full(len(w), 1 / len(w))

    def worst_covariance(self, w: Array) -> Array:
        """Return ``sigma^2`` on the diagonal at the largest ``|w_j|``, shared equally where several are tied."""
        return np.diag(self.sigma**2 * self._shares(w))

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return normal numbers at the largest ``|w_j|``, 0 elsewhere."""
        return rng.standard_normal((*size, len(w))) * (self.sigma * np.sqrt(self._shares(w)))


def tied(w: Array) -> Array:
    """Return the signs of the ``w_j`` that are tied with the largest, 0 for the others."""
    sizes = np.abs(w)
    return np.where(sizes >= (1 - TIED) * sizes.max(), np.sign(w), 0.0)


def distance_to_ellipsoid(v: Array, radii: Array) -> float:
    """Return (a bound, tight but for rounding, of) the distance from ``v`` to the points with ``sum (u/r)^2 <= 1``.

    The nearest one is ``u = v r^2/(r^2 + t)``, with ``sum (u/r)^2 = 1``. The inverse of its root is concave in t, so
    Newton's method on that comes from below, in few steps (Moré & Sorensen 1983).
    """
    if not radii.any():
        return norm(v)
    t, square = 0.0, radii * radii
    for _ in range(100):
        u = v * radii / (square + t)
        size = norm(u)
        if size <= 1 + 1e-14:
            break
        t += (size - 1) * size * size / float((u * u) @ (1 / (square + t)))
    return norm(v - u * radii / max(1.0, size)) if t > 0 else 0.0


NOISES: dict[str, Callable[[float], Noise]] = {"isotropic": Isotropic, "axis": Axis}


def resolve_noise(noise: Any, sigma: float, n_features: int) -> Noise:
    """Return the noise model that ``noise`` names or describes, at level ``sigma``.

    A name of :data:`NOISES`, standard deviations (n_features,) or a covariance (n_features, n_features); both are
    multiplied by ``sigma``.
    """
    if isinstance(noise, str) and noise in NOISES:
        return NOISES[noise](sigma)
    expected = (
        f"noise must be one of {sorted(NOISES)}, an array of {n_features} standard deviations, one a feature, or a "
        f"covariance of shape ({n_features}, {n_features})"
    )
    try:
        array = np.array(noise, dtype=np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim == 0:
        raise ValueError(f"{expected}; got {noise!r}")
    if array.shape not in ((n_features,), (n_features, n_features)):
        raise ValueError(f"{expected}; got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"noise must hold finite numbers; got {array[tuple(where)]} at {_place(where)}")
    if not array.any():
        raise ValueError("noise must have a positive entry; got only zeros, which leaves no noise at all")
    if array.ndim == 1:
        if array.min() < 0:
            j = int(np.argmin(array))
            raise ValueError(f"noise must hold standard deviations, none below 0; got {array[j]:g} for feature {j}")
        return PerFeature(sigma, array)
    return Covariance(sigma, _checked_covariance(array))


def _place(index: Any) -> str:
    return f"feature {index[0]}" if len(index) == 1 else f"[{', '.join(str(i) for i in index)}]"


def _checked_covariance(matrix: Array) -> Shape:
    """Return a covariance made exactly symmetric and semi-definite, or say what is wrong with it."""
    variances = matrix.diagonal()
    if variances.min() < 0:
        j = int(np.argmin(variances))
        raise ValueError(f"noise must be a covariance, with no variance below 0; got {variances[j]:g} for feature {j}")
    deviations = np.sqrt(variances)
    unit = np.where(deviations > 0, deviations, 1.0)
    correlations = matrix / unit / unit[:, np.newaxis]
    apart = np.abs(correlations - correlations.T)
    if apart.max() > ROUNDING:
        i, j = (int(index) for index in np.unravel_index(np.argmax(apart), apart.shape))
        values = f"{matrix[i, j]:g} at [{i}, {j}] and {matrix[j, i]:g} at [{j}, {i}]"
        raise ValueError(f"noise must be a symmetric covariance; got {values}")
    shape = Shape(0.5 * (matrix + matrix.T))
    if shape.singular:
        values, axes = eigh(0.5 * (correlations + correlations.T))
        if values[0] < -ROUNDING * len(matrix):
            raise ValueError(
                "noise must be a positive semi-definite covariance; the matrix of its correlations has the eigenvalue "
                f"{values[0]:.3g}"
            )
        root = axes * np.sqrt(np.maximum(values, 0.0)) * deviations[:, np.newaxis]
        shape = Shape(root @ root.T)
        shape.singular = True
    return shape
