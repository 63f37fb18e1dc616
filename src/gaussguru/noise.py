"""Noise models: the scale ``a(w)`` that solvers and certificates use, its derivatives and its dual.

``a(w)`` is the standard deviation of ``w . noise`` under the worst covariance that the model allows. It is
convex and positively homogeneous, so it is the support function of a convex set ``A = {A grad a}``: the dual
needs only the gauge of that set (:meth:`Noise.polar`) and the distance to it (:meth:`Noise.excess`).

Conventions
-----------
w : array of shape (n_features,), not zero if a derivative is computed
sigma : the noise level, a factor of the standard deviations of the model; the product is in the units of the features
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cholesky, eigh, svd
from scipy.linalg.lapack import dtrtri

from gaussguru._utils.linalg import EPS, Array, diagonal, norm

__all__ = ["Axis", "Covariance", "Isotropic", "Noise", "PerFeature"]

# The largest asymmetry of a covariance, and the least negative eigenvalue, that count as rounding (of correlations).
ROUNDING = 1e-10
# Coefficients are tied with the largest up to this relative difference.
TIED = 1e-12


class Noise(ABC):
    """A convex, positively homogeneous scale ``a(w)``.

    If the model is not ``smooth``, ``gradient`` is a subgradient.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GuruClassifier(5.0).fit(X, y)
    >>> print(type(clf.noise_).__name__, clf.noise_.scale(clf.coef_[0]) > 0)
    Isotropic True
    """

    smooth = True
    # Whether the noise is the same in every orthonormal basis.
    is_rotatable = False
    sigma: float

    @abstractmethod
    def scale(self, w: Array) -> float:
        """Return ``a(w)``."""

    @abstractmethod
    def gradient(self, w: Array) -> Array:
        """Return the gradient of ``a``; it does not depend on the length of ``w``."""

    @abstractmethod
    def metric(self, W: Array, times: float = 1.0, at: Array | None = None) -> Array:
        """Return the metric ``M = a Hess a + grad a grad a'``, half the Hessian of ``a^2``, times W or its rows.

        The standard deviations are multiplied by ``times`` first, because squares of tiny ones would underflow. The
        metric is that ``at`` a point; for quadratic noise it is the same at all points.
        """

    @abstractmethod
    def add_metric(self, factor: float, out: Array, times: float = 1.0, at: Array | None = None) -> None:
        """Add ``factor`` times that metric to the square array ``out``."""

    @abstractmethod
    def polar(self, v: Array) -> float:
        """Return ``max w . v`` over ``a(w) <= 1``; a dual point is feasible when this is at most ``sum s f*``."""

    def polar_within(self, error: Array) -> float:
        """Return a bound on the polar of every ``v`` with ``|v_j| <= error_j``: the effect of rounding on a polar.

        It is the polar of the error itself, unless features have correlated noise.
        """
        return self.polar(error)

    @abstractmethod
    def excess(self, v: Array, level: float) -> float:
        """Return the Euclidean distance from ``v`` to the set of ``u`` with ``polar(u) <= level``."""

    @abstractmethod
    def variances(self, n_features: int) -> Array:
        """Return the variance ``a(e_j)^2`` of the noise on every feature."""

    @abstractmethod
    def steepest(self, v: Array) -> Array:
        """Return a ``w`` with the largest ``w . v / a(w)``, of any length."""

    @abstractmethod
    def worst_covariance(self, w: Array) -> Array:
        """Return the covariance that an adversary chooses against ``w``; any allowed one if ``w = 0``."""

    @abstractmethod
    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return noise with that covariance, of shape ``(*size, n_features)``."""

    def scaled(self, factor: float) -> Self:
        """Return the same model with its standard deviations multiplied by ``factor``."""
        if factor == 1:
            return self
        return replace(self, sigma=self.sigma * factor)  # type: ignore[type-var]  # every model is a dataclass

    def converted(self, unit: float) -> Self:
        """Return the same model for features that are multiplied by ``unit``."""
        return self.scaled(unit)

    def with_floor(self, least: Callable[[], Array]) -> "Noise":
        """Return the model with the standard deviations ``least()`` for features without noise."""
        return self

    @property
    def given(self) -> "Noise":
        """The noise that the user gave, if this is the same noise in another basis."""
        return self

    def independent(self) -> tuple[Array | None, "Noise"]:
        """Return a basis B and the noise on ``X B`` if it is easier to compute with, else None and this noise."""
        return None, self

    def rounding(self, w: Array) -> float:
        """Return a bound on the rounding error of ``a(w)`` in addition to a few ``eps a``."""
        return 0.0


class QuadraticNoise(Noise):
    """Noise with a quadratic ``a(w)^2 = w' A w``, as more than two classes require.

    ::

        grad a = A w / a        M = A        polar(v)^2 = v' A^-1 v
    """

    @property
    def std(self) -> Array | float | None:
        """The standard deviations of the features if their noise is independent, else None."""
        return None

    @property
    def is_full(self) -> bool:
        """Whether there is noise in all directions."""
        return True

    def scale(self, w: Array) -> float:
        """Return ``sqrt(w' A w)``."""
        return math.sqrt(max(0.0, float(w @ self.metric(w))))

    def gradient(self, w: Array) -> Array:
        """Return ``A w / a``."""
        scale = self.scale(w)
        return scale * self.metric(w, 1 / scale)


@dataclass(frozen=True)
class Isotropic(QuadraticNoise):
    """Any covariance of trace at most ``sigma**2``, or of spectral norm at most ``sigma**2``.

    ::

        a(w) = sigma ||w||_2        polar(v) = ||v||_2 / sigma

    Under the bound on the trace, the worst covariance against ``w`` is ``sigma^2 w w' / ||w||^2`` (thesis, chapter 2).

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.noise import Isotropic
    >>> float(Isotropic(2.0).scale(np.array([3.0, 4.0])))
    10.0
    """

    is_rotatable = True
    sigma: float

    @property
    def std(self) -> float:
        """The standard deviation ``sigma`` along ``w``, where all of the worst noise is."""
        return self.sigma

    @property
    def is_full(self) -> bool:
        """Whether ``sigma`` is not 0."""
        return self.sigma > 0

    def scale(self, w: Array) -> float:
        """Return ``sigma ||w||``."""
        return self.sigma * norm(w)

    def gradient(self, w: Array) -> Array:
        """Return ``sigma w / ||w||``."""
        return w * (self.sigma / norm(w))

    def variances(self, n_features: int) -> Array:
        """Return ``sigma^2`` for every feature."""
        return np.full(n_features, self.sigma**2)

    def polar(self, v: Array) -> float:
        """Return ``||v|| / sigma``."""
        return norm(v) / self.sigma

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

    def metric(self, W: Array, times: float = 1.0, at: Array | None = None) -> Array:
        """Return ``sigma^2 W``."""
        return (times * self.sigma) ** 2 * W

    def add_metric(self, factor: float, out: Array, times: float = 1.0, at: Array | None = None) -> None:
        """Add ``factor sigma^2 I``."""
        diagonal(out)[:] += factor * (times * self.sigma) ** 2


@dataclass(frozen=True, eq=False)
class PerFeature(QuadraticNoise):
    """Independent noise with a known standard deviation ``sigma e_j`` for each feature.

    ::

        a(w) = ||d w||_2        polar(v) = ||v / d||_2        d = sigma e, or ``floors`` where that is 0

    It is isotropic noise on ``x / d``.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.noise import resolve_noise
    >>> float(resolve_noise(np.array([1.0, 2.0]), 1.0, 2).scale(np.array([3.0, 2.0])))
    5.0
    """

    sigma: float
    deviations: Array
    floors: Array | None = None

    @cached_property
    def std(self) -> Array:
        """The standard deviations."""
        std = self.sigma * self.deviations
        return std if self.floors is None else np.where(std > 0, std, self.floors)

    @cached_property
    def is_full(self) -> bool:
        """Whether all features have noise."""
        return bool(np.all(self.std > 0))

    def scale(self, w: Array) -> float:
        """Return ``||d w||``."""
        return norm(w * self.std)

    def gradient(self, w: Array) -> Array:
        """Return ``d^2 w / ||d w||``."""
        scaled = w * self.std
        return scaled * self.std / norm(scaled)

    def metric(self, W: Array, times: float = 1.0, at: Array | None = None) -> Array:
        """Return ``W diag(d^2)``."""
        return np.asarray(W * (times * self.std) ** 2)

    def add_metric(self, factor: float, out: Array, times: float = 1.0, at: Array | None = None) -> None:
        """Add ``factor diag(d^2)``."""
        diagonal(out)[:] += factor * (times * self.std) ** 2

    def variances(self, n_features: int) -> Array:
        """Return ``d^2``."""
        return np.asarray(self.std**2)

    def polar(self, v: Array) -> float:
        """Return ``||v / d||``."""
        return norm(v / self.std)

    def excess(self, v: Array, level: float) -> float:
        """Return the distance to the ellipsoid of half-axes ``level d``."""
        return distance_to_ellipsoid(v, level * self.std)

    def steepest(self, v: Array) -> Array:
        """Return ``v / d^2``, in units of the largest d."""
        std = self.std / self.std.max()
        return np.asarray(v / std / std)

    def worst_covariance(self, w: Array) -> Array:
        """Return ``diag(d^2)``, for any w."""
        return np.diag(self.std**2)

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return independent normal numbers."""
        return rng.standard_normal((*size, len(w))) * self.std

    def with_floor(self, least: Callable[[], Array]) -> Noise:
        """Return the model with the standard deviations ``least`` where they are 0."""
        return self if self.deviations.all() else replace(self, floors=least())

    def converted(self, unit: float) -> Self:
        """Return the same model for features that are multiplied by ``unit``."""
        return replace(self, sigma=self.sigma * unit, floors=None if self.floors is None else self.floors * unit)


@dataclass(frozen=True, eq=False)
class Covariance(QuadraticNoise):
    """Noise with the known covariance ``sigma^2 C``.

    ::

        a(w) = sigma sqrt(w' C w)        polar(v) = sqrt(v' C^-1 v) / sigma

    It is isotropic noise on ``L^-1 x`` with the Cholesky factor ``C = L L'``. Only ``w`` is multiplied by C, so X is
    not transformed and may be sparse. The factor is as accurate as that of features scaled to unit noise.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.noise import resolve_noise
    >>> float(resolve_noise(np.diag([1.0, 4.0]), 1.0, 2).scale(np.array([3.0, 2.0])))
    5.0
    """

    sigma: float
    shape: "Shape"

    def metric(self, W: Array, times: float = 1.0, at: Array | None = None) -> Array:
        """Return ``sigma^2 W C``."""
        square = (times * self.sigma) ** 2
        return np.asarray(W @ (square * self.shape.matrix) if W.ndim > 1 else square * (self.shape.matrix @ W))

    def scale(self, w: Array) -> float:
        """Return ``sigma ||L' w||``."""
        return self.sigma * norm(w @ self.shape.factor)

    def rounding(self, w: Array) -> float:
        """Return ``2 eps sigma || |L'| |w| ||``."""
        return 2 * EPS * self.sigma * norm(np.abs(w) @ np.abs(self.shape.factor))

    def add_metric(self, factor: float, out: Array, times: float = 1.0, at: Array | None = None) -> None:
        """Add ``factor sigma^2 C``."""
        out += (factor * (times * self.sigma) ** 2) * self.shape.matrix

    def variances(self, n_features: int) -> Array:
        """Return the diagonal of ``sigma^2 C``."""
        return np.asarray(self.sigma**2 * self.shape.matrix.diagonal())

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
        """Return ``sigma^2 C``, for any w."""
        return self.sigma**2 * self.shape.matrix

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return ``sigma L`` times independent normal numbers."""
        return self.sigma * (rng.standard_normal((*size, len(w))) @ self.shape.factor.T)


@dataclass(frozen=True, eq=False)
class SingularCovariance(QuadraticNoise):
    """Noise with the covariance ``sigma^2 R R' + diag(floors^2)``: of low rank, with small variances added.

    ::

        a(w)^2 = sigma^2 ||R' w||^2 + ||floors w||^2

    With the singular values s and the left singular vectors U of ``R / floors``, and ``v' = v / floors``::

        polar(v)^2 = ||v' - U U' v'||^2 + ||U' v' / sqrt(1 + sigma^2 s^2)||^2

    The sum of the two covariances is never formed, because for large sigma the second is below the rounding of the
    first.
    """

    sigma: float
    root: Array
    floors: Array

    @cached_property
    def _principal(self) -> tuple[Array, Array]:
        directions, sizes, _ = svd(self.root / self.floors[:, np.newaxis], full_matrices=False)
        return directions, sizes

    def metric(self, W: Array, times: float = 1.0, at: Array | None = None) -> Array:
        """Return ``W (sigma^2 R R' + diag(floors^2))``."""
        return np.asarray((times * self.sigma) ** 2 * ((W @ self.root) @ self.root.T) + W * (times * self.floors) ** 2)

    def scale(self, w: Array) -> float:
        """Return ``hypot(sigma ||R' w||, ||floors w||)``."""
        return math.hypot(self.sigma * norm(w @ self.root), norm(self.floors * w))

    def rounding(self, w: Array) -> float:
        """Return ``2 eps d sigma || |R'| |w| ||``, which matters if w is in the null space of R'."""
        return 2 * EPS * len(w) * self.sigma * norm(np.abs(w) @ np.abs(self.root))

    def add_metric(self, factor: float, out: Array, times: float = 1.0, at: Array | None = None) -> None:
        """Add ``factor`` times the covariance."""
        out += factor * self.converted(times).worst_covariance(self.floors)

    def _split(self, v: Array) -> tuple[Array, Array, Array]:
        """Return the components of ``v / floors`` across and along U, and the standard deviations of the second."""
        directions, sizes = self._principal
        scaled = v / self.floors
        along = directions.T @ scaled
        return scaled - directions @ along, along, np.sqrt(1 + np.square(self.sigma * sizes))

    def variances(self, n_features: int) -> Array:
        """Return the diagonal of the covariance."""
        return np.asarray(self.sigma**2 * np.square(self.root).sum(axis=1) + self.floors**2)

    def polar(self, v: Array) -> float:
        """Return ``sqrt(v' A^-1 v)``, by the parts of v across and along U."""
        across, along, std = self._split(v)
        return math.hypot(norm(across), norm(along / std)) + 4 * EPS * len(v) * norm(v / self.floors)

    def polar_within(self, error: Array) -> float:
        """Return ``||error / floors||``."""
        return norm(error / self.floors)

    def excess(self, v: Array, level: float) -> float:
        """Return the distance to the ellipsoid of the covariance times ``level``.

        Its axes are the singular values of the factor ``[sigma R, floors]`` minus their rounding, at least the least
        floor.
        """
        axes, std, _ = svd(np.column_stack([self.sigma * self.root, np.diag(self.floors)]), full_matrices=False)
        std = np.maximum(std - 4 * EPS * len(v) * std.max(), self.floors.min())
        return distance_to_ellipsoid(axes.T @ v, level * std)

    def steepest(self, v: Array) -> Array:
        """Return ``A^-1 v``."""
        across, along, std = self._split(v)
        return np.asarray((across + self._principal[0] @ (along / std**2)) / self.floors)

    def worst_covariance(self, w: Array) -> Array:
        """Return the covariance, for any w."""
        covariance: Array = self.sigma**2 * (self.root @ self.root.T)
        diagonal(covariance)[:] += self.floors**2
        return covariance

    def sample(self, w: Array, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return ``sigma R`` and ``floors`` times independent normal numbers."""
        common = rng.standard_normal((*size, self.root.shape[1])) @ self.root.T
        return self.sigma * common + rng.standard_normal((*size, len(w))) * self.floors

    def with_floor(self, least: Callable[[], Array]) -> Noise:
        """Return the model with the standard deviations ``least`` everywhere."""
        return replace(self, floors=least())

    def independent(self) -> tuple[Array, Noise]:
        """Return ``B = diag(1/floors) U`` with a complete U, and the noise on ``X B``, which is independent."""
        directions, sizes, _ = svd(self.root / self.floors[:, np.newaxis])
        deviations = np.zeros(len(directions))
        deviations[: len(sizes)] = sizes
        return directions / self.floors[:, np.newaxis], Independent(self.sigma, deviations, None, self)

    def converted(self, unit: float) -> Self:
        """Return the same model for features that are multiplied by ``unit``."""
        return replace(self, sigma=self.sigma * unit, floors=self.floors * unit)


@dataclass(frozen=True, eq=False)
class Independent(PerFeature):
    """The noise of a :class:`SingularCovariance` in the basis in which it is independent, ``1 + sigma^2 e^2``."""

    original: SingularCovariance | None = None

    @cached_property
    def std(self) -> Array:
        """The standard deviations."""
        return np.asarray(np.hypot(1.0, self.sigma * self.deviations))

    @property
    def given(self) -> Noise:
        """The noise that the user gave."""
        assert self.original is not None
        return replace(self.original, sigma=self.sigma)


class Shape:
    """A covariance matrix with its factors, each computed once when it is needed."""

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
            # A pivot is the standard deviation of a feature given the features before it.
            return bool(np.any(self.factor.diagonal() <= math.sqrt(ROUNDING) * deviations))
        except LinAlgError:
            return True

    @cached_property
    def inverse(self) -> Array:
        """``L^-1``: products with it are faster than solutions with the factor, and as accurate."""
        return np.ascontiguousarray(dtrtri(self.factor, lower=True)[0])

    @cached_property
    def principal(self) -> tuple[Array, Array]:
        """The principal axes, as columns, and the standard deviations along them."""
        variances, axes = eigh(self.matrix)
        return axes, np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class Axis(Noise):
    """Any diagonal covariance of trace at most ``sigma**2``: noise independent between features (thesis, appendix B).

    ::

        a(w) = sigma ||w||_inf        polar(v) = ||v||_1 / sigma

    The worst covariance has all its variance on the feature with the largest ``|w_j|``. At an optimum several features
    are usually tied.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.noise import Axis
    >>> float(Axis(2.0).scale(np.array([3.0, -4.0])))
    8.0
    """

    smooth = False
    sigma: float

    def scale(self, w: Array) -> float:
        """Return ``sigma max |w_j|``."""
        return self.sigma * float(np.abs(w).max(initial=0.0))

    def gradient(self, w: Array) -> Array:
        """Return ``sigma`` times the sign of the largest ``|w_j|``, 0 for other features."""
        result = np.zeros_like(w)
        largest = int(np.argmax(np.abs(w)))
        result[largest] = math.copysign(self.sigma, w[largest])
        return result

    def metric(self, W: Array, times: float = 1.0, at: Array | None = None) -> Array:
        """Return ``grad a (grad a . w)``, because a is piecewise linear."""
        assert at is not None
        gradient = times * self.gradient(at)
        return gradient * float(gradient @ W)

    def add_metric(self, factor: float, out: Array, times: float = 1.0, at: Array | None = None) -> None:
        """Add ``factor grad a grad a'``."""
        assert at is not None
        gradient = times * self.gradient(at)
        out += factor * gradient[:, np.newaxis] * gradient

    def variances(self, n_features: int) -> Array:
        """Return ``sigma^2`` for every feature."""
        return np.full(n_features, self.sigma**2)

    def polar(self, v: Array) -> float:
        """Return ``sum |v_j| / sigma``."""
        return float(np.abs(v).sum()) / self.sigma

    def excess(self, v: Array, level: float) -> float:
        """Return the distance to the ``l1`` ball of radius ``sigma level`` (by sorting; Held et al. 1974)."""
        sizes, radius = np.abs(v), self.sigma * level
        if sizes.sum() <= radius:
            return 0.0
        falling = np.sort(sizes)[::-1]
        thresholds = (np.cumsum(falling) - radius) / np.arange(1, len(v) + 1)
        above = np.flatnonzero(falling > thresholds)  # empty if the radius is below rounding
        return norm(np.minimum(sizes, thresholds[above[-1]] if len(above) else falling[0]))

    def steepest(self, v: Array) -> Array:
        """Return the signs of ``v``."""
        return np.sign(v)

    def _shares(self, w: Array) -> Array:
        """Return the fractions of the variance, equal for the largest ``|w_j|`` and 0 for others."""
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
    """Return the distance from ``v`` to the points with ``sum (u/r)^2 <= 1``, rounded up.

    The nearest one is ``u = v r^2/(r^2 + t)``, with ``sum (u/r)^2 = 1``. The inverse of its root is concave in t, so
    Newton's method for it converges from below, in few steps (Moré & Sorensen 1983).
    """
    if not radii.any():
        return norm(v)
    # The set is inside its bounding box, which gives a lower bound of t.
    square = radii * radii
    t = max(0.0, float((np.abs(v) * radii - square).max()))
    for _ in range(100):
        u = v * radii / np.maximum(square + t, np.finfo(np.float64).tiny)
        size = norm(u)
        if size <= 1 + 1e-14:
            break
        t += (size - 1) * size * size / float((u * u) @ (1 / np.maximum(square + t, np.finfo(np.float64).tiny)))
    return norm(v - u * radii / max(1.0, size)) if t > 0 else 0.0


NOISES: dict[str, Callable[[float], Noise]] = {"isotropic": Isotropic, "axis": Axis}


def resolve_noise(noise: str | ArrayLike, sigma: float, n_features: int) -> Noise:
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
        index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        entry = f"feature {index[0]}" if len(index) == 1 else list(index)
        raise ValueError(f"noise must hold finite numbers; got {array[index]} at {entry}")
    if not array.any():
        raise ValueError("noise must have a positive entry; got only zeros, which leaves no noise at all")
    if array.ndim == 1:
        if array.min() < 0:
            j = int(np.argmin(array))
            raise ValueError(f"noise must hold nonnegative standard deviations; got {array[j]:g} for feature {j}")
        return PerFeature(sigma, array)
    return _checked_covariance(sigma, array)


def _checked_covariance(sigma: float, matrix: Array) -> Noise:
    """Return the noise of a covariance, or raise a ValueError if the matrix is not one.

    Eigenvalues of the correlations below ROUNDING times the largest count as 0.
    """
    variances = matrix.diagonal()
    if variances.min() < 0:
        j = int(np.argmin(variances))
        raise ValueError(f"noise must be a covariance, with no variance below 0; got {variances[j]:g} for feature {j}")
    deviations = np.sqrt(variances)
    unit = np.where(deviations > 0, deviations, 1.0)
    correlations = matrix / unit / unit[:, np.newaxis]
    asymmetry = np.abs(correlations - correlations.T)
    if asymmetry.max() > ROUNDING:
        i, j = (int(index) for index in np.unravel_index(np.argmax(asymmetry), asymmetry.shape))
        values = f"{matrix[i, j]:g} at [{i}, {j}] and {matrix[j, i]:g} at [{j}, {i}]"
        raise ValueError(f"noise must be a symmetric covariance; got {values}")
    shape = Shape(0.5 * (matrix + matrix.T))
    if not shape.singular:
        return Covariance(sigma, shape)
    values, axes = eigh(0.5 * (correlations + correlations.T))
    if values[0] < -ROUNDING * len(matrix):
        raise ValueError(
            "noise must be a positive semi-definite covariance; the matrix of its correlations has the eigenvalue "
            f"{values[0]:.3g}"
        )
    kept = values > ROUNDING * values[-1]
    root = axes[:, kept] * np.sqrt(values[kept]) * deviations[:, np.newaxis]
    return SingularCovariance(sigma, root, np.zeros(len(matrix)))
