"""Noise models: what the adversary may do, seen only through ``a(w)``.

``a(w)`` is the standard deviation of ``w . noise`` under the worst covariance that the model allows. It is
convex and positively homogeneous, so it is the support function of a convex set ``A = {A grad a}``: the dual
needs only the gauge of that set (:meth:`Noise.polar`) and the distance to it (:meth:`Noise.excess`).

Conventions
-----------
w : array of shape (n_features,), not zero where a derivative is asked for
sigma : the noise level, in the units of the features
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

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


class Noise(ABC):
    """A convex, positively homogeneous scale ``a(w)``, smooth away from zero."""

    @abstractmethod
    def scale(self, w: Array) -> float:
        """Return ``a(w)``."""

    @abstractmethod
    def gradient(self, w: Array) -> Array:
        """Return the gradient of ``a``; it does not depend on the length of ``w``."""

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
    def excess(self, v: Array, level: float) -> float:
        """Return the Euclidean distance from ``v`` to the set of ``u`` with ``polar(u) <= level``."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """Return the same model with its standard deviations multiplied by ``factor``."""

    @abstractmethod
    def worst_covariance(self, w: Array) -> Array:
        """Return the covariance that an adversary chooses against ``w``."""

    def metric(self, W: Array) -> Array:
        """Return ``W A`` where ``a(w)^2 = w' A w``: what the multiclass problem needs."""
        raise ValueError(f"noise {self!r} is not quadratic in w; with more than two classes use noise='isotropic'")


@dataclass(frozen=True)
class Isotropic(Noise):
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

    def excess(self, v: Array, level: float) -> float:
        """Return ``max(0, ||v|| - sigma level)``."""
        return max(0.0, norm(v) - self.sigma * level)

    def scaled(self, factor: float) -> Self:
        """Return the model with noise level ``factor sigma``."""
        return replace(self, sigma=self.sigma * factor)

    def worst_covariance(self, w: Array) -> Array:
        """Return ``sigma^2 w w' / ||w||^2``."""
        unit = w / norm(w)
        return self.sigma**2 * np.outer(unit, unit)

    def metric(self, W: Array) -> Array:
        """Return ``sigma^2 W``."""
        return self.sigma**2 * W


NOISES: dict[str, Callable[[float], Noise]] = {"isotropic": Isotropic}


def resolve_noise(noise: object, sigma: float) -> Noise:
    """Return the noise model called ``noise`` at level ``sigma``."""
    if isinstance(noise, str) and noise in NOISES:
        return NOISES[noise](sigma)
    given = f"an array of shape {np.shape(noise)}" if isinstance(noise, np.ndarray) else repr(noise)
    raise ValueError(f"noise must be one of {sorted(NOISES)}; got {given}")
