"""Losses as functions of one standardised slack, their derivatives and conjugates.

A loss enters every model of this library as ``a f(m / a)``, the perspective of a scalar function ``f``, where
``m`` is the slack of a sample and ``a`` the standard deviation of the noise along ``w``. The model is convex
whenever ``f`` is convex, nondecreasing and ``f(z) - z f'(z) >= 0`` (thesis, "A general framework").

Conventions
-----------
z : standardised slack ``m / a``, any shape
alpha : slope ``f'(z)``, in [0, 1]; the dual variable of the sample
f*(alpha) : concave conjugate ``min_z f(z) - alpha z = f(z) - z f'(z)`` at the ``z`` with slope ``alpha``

**The meaning of sigma.** The noise level means the same for all losses but "moment", because a sample on the margin has
the same loss: ``f(0) = f*(1/2) = E max(0, N(0, 1)) = 1/sqrt(2 pi)``. The thesis's logistic and quadratic losses have
``f(0) = 1`` and conjugates that approximate ``sqrt(2 pi)`` times the Gaussian one, so they enter as
``f(sqrt(2 pi) z) / sqrt(2 pi)``: the same as dividing sigma by ``sqrt(2 pi)``. The moment loss is the worst over all
distributions of a noise with standard deviation sigma, Gaussian noise among them: its ``f(0)`` is 1/2.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import entr, logit, ndtri, xlog1py

from gaussguru._native import _binding
from gaussguru._utils.linalg import Array

Terms = tuple[Array, Array, Array]

ROOT = math.sqrt(2 * math.pi)


class Loss(ABC):
    """A convex, nondecreasing scalar loss with a nonnegative concave conjugate.

    Subclasses implement :meth:`terms`, :meth:`slope_inverse` and :meth:`conjugate` as vectorised NumPy functions.
    ``code`` is the number of the compiled version of :meth:`terms`, negative if there is none. ``jerk`` is a bound on
    the third derivative.

    Examples
    --------
    A custom loss: a hyperbola, scaled like the others to ``f(0) = 1/sqrt(2 pi)``. :func:`check_loss` checks it; then it
    is accepted as ``loss`` by every solver except "sgd" and "sgd2", which are compiled.

    >>> import numpy as np
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.losses import Loss, check_loss
    >>> class Hyperbolic(Loss):
    ...     c = np.sqrt(2 / np.pi)
    ...     def terms(self, z):
    ...         root = np.hypot(z, self.c)
    ...         below = self.c**2 / (root + np.abs(z))  # root - |z|, without cancellation
    ...         f = np.where(z > 0, z + below / 2, below / 2)
    ...         return f, np.where(z > 0, 1 - below / root / 2, below / root / 2), self.c**2 / root**3 / 2
    ...     def slope_inverse(self, alpha):
    ...         return self.c * (alpha - 0.5) / np.sqrt(alpha * (1 - alpha))
    ...     def conjugate(self, alpha):
    ...         return self.c * np.sqrt(alpha * (1 - alpha))
    >>> check_loss(Hyperbolic())
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GuruClassifier(sigma=0.5, loss=Hyperbolic()).fit(X, y)
    >>> bool(clf.dual_gap_ <= 1e-6 * 2 * len(y))
    True
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
        """Return ``f*(alpha)``, with full relative precision also near 0 and 1."""

    @cached_property
    def reach(self) -> float:
        """The standardised slack above which f is linear to double precision, at least 40."""
        return max(40.0, float(self.slope_inverse(np.array([1 - 2.0**-53]))[0]))

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
    """A loss whose terms are computed by compiled code."""

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

    The relative error is below 1e-15 wherever the result is a normal number. (``z Phi + phi`` with SciPy's ``ndtr``
    would cancel in the left tail.)

    Examples
    --------
    >>> from gaussguru.losses import Gaussian
    >>> f, slope, curvature = Gaussian().terms(0.0)
    >>> print(f"{f:.4f} {slope:.1f} {curvature:.4f}")
    0.3989 0.5 0.3989
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
    """The logistic loss to base 2, whose conjugate is the binary entropy (thesis, chapter 3).

    ::

        f(z)      = log2(1 + 2^u) / sqrt(2 pi),    u = sqrt(2 pi) z
        f'(z)     = p = 2^u / (1 + 2^u)
        f''(z)    = ln 2 sqrt(2 pi) p (1 - p)
        f*(alpha) = H2(alpha) / sqrt(2 pi) = -(alpha log2 alpha + (1 - alpha) log2(1 - alpha)) / sqrt(2 pi)

    Examples
    --------
    >>> from gaussguru.losses import Logistic
    >>> print(f"{Logistic().terms(0.0)[0]:.4f}")  # as the Gaussian one, so that sigma means the same
    0.3989
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
    """The quadratic loss: the hinge with a parabola in place of its corner (thesis, chapter 3).

    ::

        sqrt(2 pi) f(z) = 0, (u + 4)^2/16, u    for u < -4, |u| <= 4, u > 4;    u = sqrt(2 pi) z
        f'(z)           = (u + 4)/8, between 0 and 1
        f''(z)          = sqrt(2 pi)/8 inside, 0 outside
        f*(alpha)       = 4 alpha (1 - alpha) / sqrt(2 pi)

    f'' is 0 outside and jumps, so ``jerk`` is infinite.

    Examples
    --------
    >>> from gaussguru.losses import Quadratic
    >>> print(f"{Quadratic().terms(0.0)[0]:.4f}")  # as the Gaussian one, so that sigma means the same
    0.3989
    """

    code = 2

    def slope_inverse(self, alpha: Array) -> Array:
        """Return ``(8 alpha - 4) / sqrt(2 pi)``."""
        return np.asarray((8 * np.asarray(alpha) - 4) / ROOT)

    def conjugate(self, alpha: Array) -> Array:
        """Return ``4 alpha (1 - alpha) / sqrt(2 pi)``."""
        alpha = np.asarray(alpha)
        return np.asarray(4 / ROOT * alpha * (1 - alpha))


class Moment(Compiled):
    """The largest expected hinge loss under any noise with mean 0 and the covariance of the model (Scarf's bound).

    ::

        f(z)      = (z + sqrt(1 + z^2)) / 2 = max E max(0, z + e) over all e with mean 0 and variance 1
        f'(z)     = (1 + z / sqrt(1 + z^2)) / 2
        f''(z)    = (1 + z^2)^(-3/2) / 2
        f*(alpha) = sqrt(alpha (1 - alpha))

    The worst noise has two values (:func:`gaussguru.worst_case_distribution`), the higher one with probability alpha.
    ``sigma`` is the standard deviation of the noise as it is: this loss is not scaled as the others are, and ``f(0) =
    f*(1/2) = 1/2``.

    Examples
    --------
    >>> from gaussguru.losses import Moment
    >>> print(f"{Moment().terms(0.0)[0]:.4f}")
    0.5000
    """

    code = 3
    jerk = 0.42932505167995966  # 0.75 * 0.8^2.5, at |z| = 1/2

    def slope_inverse(self, alpha: Array) -> Array:
        """Return ``(alpha - 1/2) / sqrt(alpha (1 - alpha))``."""
        with np.errstate(divide="ignore"):
            return np.asarray((np.asarray(alpha) - 0.5) / self.conjugate(alpha))

    def conjugate(self, alpha: Array) -> Array:
        """Return ``sqrt(alpha (1 - alpha))``."""
        alpha = np.asarray(alpha)
        return np.asarray(np.sqrt(alpha * (1 - alpha)))


LOSSES: dict[str, Loss] = {
    "gaussian": Gaussian(),
    "logistic": Logistic(),
    "quadratic": Quadratic(),
    "moment": Moment(),
}


def resolve_loss(loss: str | Loss) -> Loss:
    """Return the loss with the name ``loss``, or ``loss`` itself if it is a :class:`Loss`."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    raise ValueError(f"loss must be one of {sorted(LOSSES)} or a gaussguru.losses.Loss; got {loss!r}")


def check_loss(loss: Loss) -> None:
    """Check numerically that a loss satisfies the conditions of the solvers and certificates.

    They are those of the thesis's general framework (chapter 3), and the consistency of the methods:

    * f is convex and nondecreasing, and f' goes from 0 to 1, so that ``a f(m/a)`` is the hinge for a = 0;
    * ``f - z f' >= 0``: more noise never lowers the loss (``max(0, z - 1)`` of TSVC fails; its problem is not convex);
    * f' and f'' are the derivatives of f and f' (f'' may jump);
    * ``slope_inverse`` is the inverse of f', and ``conjugate(f'(z))`` is ``f(z) - z f'(z)``;
    * ``jerk`` bounds the change of f''.

    Parameters
    ----------
    loss : Loss

    Raises
    ------
    ValueError
        If a condition fails. The message names it, and a z where it fails.
    """
    far = np.logspace(1, 6, 61)
    z = np.concatenate([-far[::-1], np.linspace(-9.97, 9.98, 1234), far])
    h = 1e-5
    with np.errstate(all="ignore"):
        f, slope, curvature = (np.asarray(term, dtype=np.float64) for term in loss.terms(z))
        if not f.shape == slope.shape == curvature.shape == z.shape:
            raise ValueError(f"{loss!r}: terms must return three arrays of the shape of z")
        up, down = loss.terms(z + h), loss.terms(z - h)
        near = np.abs(z) < 10  # differences are exact enough here
        size = 1 + np.abs(z)
        alpha = np.linspace(0.001, 0.999, 499)
        inverse = loss.slope_inverse(alpha)
        at_inverse = loss.terms(inverse)
        steps, bends = (up[0] - down[0]) / (2 * h), (up[1] - down[1]) / (2 * h)
        least, most = (pick([down[2], curvature, up[2]], axis=0) for pick in (np.min, np.max))
        turns = np.diff(curvature[near]) / np.diff(z[near])
        ends = loss.terms(np.array([-1e12, 1e12]))
        conditions: list[tuple[str, Array, Any]] = [
            ("f, f' and f'' must be finite", z, np.isfinite(f) & np.isfinite(slope) & np.isfinite(curvature)),
            ("f must not decrease: f' >= 0", z, slope >= -1e-12),
            ("f must be convex: f'' >= 0", z, curvature >= -1e-12),
            ("f must be convex: f' must not decrease", z[1:], np.diff(slope) >= -1e-9),
            ("f must be the hinge far out: f' must go from 0 to 1, f(z)/|z| too", np.array([-1e12, 1e12]),
             (np.abs(ends[0] / 1e12 - [0, 1]) < 1e-6) & (np.abs(ends[1] - [0, 1]) < 1e-6)),
            ("f - z f' must not be negative, or the model is not convex", z, f - z * slope >= -1e-9 * size),
            ("f' must be the derivative of f", z[near], (np.abs(steps - slope) <= 1e-5)[near]),
            ("f'' must be the derivative of f'", z[near],
             ((bends >= least - 1e-5) & (bends <= most + 1e-5))[near]),
            ("slope_inverse must invert f'", alpha, np.abs(at_inverse[1] - alpha) <= 1e-7),
            ("conjugate must be f - z f' at the z with that slope", alpha,
             np.abs(loss.conjugate(alpha) - (at_inverse[0] - inverse * at_inverse[1])) <= 1e-7 * (1 + np.abs(inverse))),
            ("conjugate must be finite and not negative at 0 and 1", np.array([0.0, 1.0]),
             loss.conjugate(np.array([0.0, 1.0])) >= 0),
            ("jerk must bound the change of f''", z[near][1:], np.abs(turns) <= loss.jerk + 1e-6),
        ]  # fmt: skip
    failed = [f"{text} (fails at {where[np.argmin(holds)]:g})" for text, where, holds in conditions if not holds.all()]
    if failed:
        raise ValueError(f"{loss!r} is not a perspective loss: " + "; ".join(failed))
