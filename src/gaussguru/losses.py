"""Perspective losses: the pointwise mathematics of one standardised slack.

A loss enters every model of this library as ``a f(m / a)``, the perspective of a scalar function ``f``, where
``m`` is the slack of a sample and ``a`` the standard deviation of the noise along ``w``. The model is convex
whenever ``f`` is convex, nondecreasing and ``f(z) - z f'(z) >= 0`` (thesis, "A general framework").

Conventions
-----------
z : standardised slack ``m / a``, any shape
alpha : slope ``f'(z)``, in [0, 1]; the dual variable of the sample
f*(alpha) : concave conjugate ``min_z f(z) - alpha z = f(z) - z f'(z)`` at the ``z`` with slope ``alpha``
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gaussguru._kernels import _binding

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Terms = tuple[Array, Array, Array]


class Loss(ABC):
    """A convex, nondecreasing scalar loss with a nonnegative concave conjugate.

    Subclasses give :meth:`terms`, :meth:`slope_inverse` and :meth:`conjugate` as vectorised NumPy functions;
    everything else follows. ``code`` names the compiled twin of :meth:`terms`; negative, there is none.
    ``jerk`` bounds the third derivative.
    """

    code: int = -1
    jerk: float = np.inf

    @abstractmethod
    def terms(self, z: Array) -> Terms:
        """Return ``f(z)``, ``f'(z)`` and ``f''(z)``."""

    @abstractmethod
    def slope_inverse(self, alpha: Array) -> Array:
        """Return the ``z`` at which ``f'(z) = alpha``."""

    @abstractmethod
    def conjugate(self, alpha: Array) -> Array:
        """Return ``f*(alpha)``, accurate to the last digits also near 0 and 1."""

    def value(self, z: Array) -> Array:
        """Return ``f(z)``."""
        return self.terms(z)[0]

    def slope(self, z: Array) -> Array:
        """Return ``f'(z)``."""
        return self.terms(z)[1]

    def curvature(self, z: Array) -> Array:
        """Return ``f''(z)``."""
        return self.terms(z)[2]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Gaussian(Loss):
    """The expected hinge loss under Gaussian noise: GURU (thesis, chapter 2).

    ::

        f(z)      = z Phi(z) + phi(z) = E max(0, z + N(0, 1))
        f'(z)     = Phi(z)
        f''(z)    = phi(z)
        f*(alpha) = phi(Phi^-1(alpha))

    All three are computed by the compiled kernel, to 1e-15 relative wherever the result is a normal number;
    SciPy's ``ndtr`` with ``z Phi + phi`` cancels in the left tail.
    """

    code = 0
    jerk = 0.2419707245191434  # phi(1), the largest |z phi(z)|

    def terms(self, z: Array) -> Terms:
        """Return ``f(z)``, ``Phi(z)`` and ``phi(z)``."""
        z = np.asarray(z, dtype=np.float64)
        flat = np.ascontiguousarray(z).reshape(-1)
        f, slope, curvature = (np.empty_like(flat) for _ in range(3))
        _binding.evaluate(self.code, flat, f, slope, curvature)
        return f.reshape(z.shape), slope.reshape(z.shape), curvature.reshape(z.shape)

    def slope_inverse(self, alpha: Array) -> Array:
        """Return ``Phi^-1(alpha)``."""
        return np.asarray(ndtri(alpha))

    def conjugate(self, alpha: Array) -> Array:
        """Return ``phi(Phi^-1(alpha))``."""
        z = ndtri(alpha)
        return np.asarray(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))


LOSSES: dict[str, Loss] = {"gaussian": Gaussian()}


def resolve_loss(loss: str | Loss) -> Loss:
    """Return the loss called ``loss``, or ``loss`` itself if it is one."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    raise ValueError(f"loss must be one of {sorted(LOSSES)} or a gaussguru.losses.Loss; got {loss!r}")
