"""Perspective losses: the pointwise mathematics of one standardised slack.

A loss enters every model of this library as ``a f(m / a)``, the perspective of a scalar function ``f``, where
``m`` is the slack of a sample and ``a`` the standard deviation of the noise along ``w``. The model is convex
whenever ``f`` is convex, nondecreasing and ``f(z) - z f'(z) >= 0`` (thesis, "A general framework").

Conventions
-----------
z : standardised slack ``m / a``, any shape
alpha : slope ``f'(z)``, in [0, 1]; the dual variable of the sample
f*(alpha) : concave conjugate ``min_z f(z) - alpha z = f(z) - z f'(z)`` at the ``z`` with slope ``alpha``

**What sigma means.** The noise level keeps its meaning across losses because all of them cost a sample on the margin
the same: ``f(0) = f*(1/2) = E max(0, N(0, 1)) = 1/sqrt(2 pi)``. The thesis's logistic and quadratic losses have
``f(0) = 1`` and conjugates that approximate ``sqrt(2 pi)`` times the Gaussian one, so they enter as
``f(sqrt(2 pi) z) / sqrt(2 pi)``: the same as dividing sigma by ``sqrt(2 pi)``.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, logit, ndtri, xlog1py

from gaussguru._kernels import _binding

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Terms = tuple[Array, Array, Array]

ROOT = math.sqrt(2 * math.pi)


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


class Compiled(Loss):
    """A loss whose terms are computed by its compiled twin, wherever they are needed."""

    def terms(self, z: Array) -> Terms:
        """Return ``f(z)``, ``f'(z)`` and ``f''(z)``."""
        z = np.asarray(z, dtype=np.float64)
        flat = np.ascontiguousarray(z).reshape(-1)
        f, slope, curvature = (np.empty_like(flat) for _ in range(3))
        _binding.evaluate(self.code, flat, f, slope, curvature)
        return f.reshape(z.shape), slope.reshape(z.shape), curvature.reshape(z.shape)


class Gaussian(Compiled):
    """The expected hinge loss under Gaussian noise: GURU (thesis, chapter 2).

    ::

        f(z)      = z Phi(z) + phi(z) = E max(0, z + N(0, 1))
        f'(z)     = Phi(z)
        f''(z)    = phi(z)
        f*(alpha) = phi(Phi^-1(alpha))

    The kernel gives all of them to 1e-15 relative wherever the result is a normal number; SciPy's ``ndtr`` with
    ``z Phi + phi`` cancels in the left tail.
    """

    code = 0
    jerk = 0.2419707245191434  # phi(1), the largest |z phi(z)|

    def slope_inverse(self, alpha: Array) -> Array:
        """Return ``Phi^-1(alpha)``."""
        return np.asarray(ndtri(alpha))

    def conjugate(self, alpha: Array) -> Array:
        """Return ``phi(Phi^-1(alpha))``."""
        z = ndtri(alpha)
        return np.asarray(np.exp(-0.5 * z * z) / ROOT)


class Logistic(Compiled):
    """The logistic loss to base 2, whose dual has the binary entropy (thesis, chapter 3).

    ::

        f(z)      = log2(1 + 2^u) / sqrt(2 pi),    u = sqrt(2 pi) z
        f'(z)     = p = 2^u / (1 + 2^u)
        f''(z)    = ln 2 sqrt(2 pi) p (1 - p)
        f*(alpha) = H2(alpha) / sqrt(2 pi) = -(alpha log2 alpha + (1 - alpha) log2(1 - alpha)) / sqrt(2 pi)
    """

    code = 1
    jerk = 0.29048179039641585  # (ln 2 sqrt(2 pi))^2 / (6 sqrt 3)

    def slope_inverse(self, alpha: Array) -> Array:
        """Return ``log2(alpha / (1 - alpha)) / sqrt(2 pi)``."""
        return np.asarray(logit(alpha) / (np.log(2) * ROOT))

    def conjugate(self, alpha: Array) -> Array:
        """Return ``H2(alpha) / sqrt(2 pi)``."""
        alpha = np.asarray(alpha)
        return np.asarray((entr(alpha) - xlog1py(1 - alpha, -alpha)) / (np.log(2) * ROOT))


class Quadratic(Compiled):
    """The quadratic loss: the hinge rounded off by a parabola, with the simplest dual (thesis, chapter 3).

    ::

        sqrt(2 pi) f(z) = 0, (u + 4)^2/16, u    for u < -4, |u| <= 4, u > 4;    u = sqrt(2 pi) z
        f'(z)           = (u + 4)/8, between 0 and 1
        f''(z)          = sqrt(2 pi)/8 inside, 0 outside
        f*(alpha)       = 4 alpha (1 - alpha) / sqrt(2 pi)

    Rows outside have no curvature at all, and f'' jumps: ``jerk`` is infinite.
    """

    code = 2

    def slope_inverse(self, alpha: Array) -> Array:
        """Return ``(8 alpha - 4) / sqrt(2 pi)``."""
        return np.asarray((8 * np.asarray(alpha) - 4) / ROOT)

    def conjugate(self, alpha: Array) -> Array:
        """Return ``4 alpha (1 - alpha) / sqrt(2 pi)``."""
        alpha = np.asarray(alpha)
        return np.asarray(4 / ROOT * alpha * (1 - alpha))


LOSSES: dict[str, Loss] = {"gaussian": Gaussian(), "logistic": Logistic(), "quadratic": Quadratic()}


def resolve_loss(loss: str | Loss) -> Loss:
    """Return the loss called ``loss``, or ``loss`` itself if it is one."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    raise ValueError(f"loss must be one of {sorted(LOSSES)} or a gaussguru.losses.Loss; got {loss!r}")
