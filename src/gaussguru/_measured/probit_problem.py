"""Probit regression on samples with error bars: the likelihood of labels given measurements, and its derivatives.

A sample whose true features are ``N(x_i, V_i)`` has, under a probit model of the truth, the label ``y_i`` with the
probability ``Phi(t_i)``::

    t_i = y_i (w.x_i + b) / D_i,     D_i^2 = 1 + w' V_i w
    F(w, b) = - sum_i s_i log Phi(t_i) + (ridge/2) sum_j (r_j w_j)^2

with the spread ``r_j`` of feature j, so that the ridge does not depend on units. As ``V_i`` grows the sample counts
less, and along any direction its part of F tends to a finite value: F is convex only where ``V = 0``.

With ``h = phi(t)/Phi(t)`` and ``c = h (t + h)``, minus the second derivative of ``log Phi``, ``z = (x, 1)``, and
``q = (V_i w, 0) / D^2``::

    grad t  =  g  =  y z / D - t q
    hess t  = -(g q' + q g') + t (q q' - V / D^2)
    hess F  =  sum_i s_i (c g g' - h hess t) + ridge r^2
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import erfcx, log_ndtr

from gaussguru._rows.rows import Block, Rows, summed
from gaussguru._utils.linalg import Array, diagonal


@dataclass(frozen=True)
class Probit:
    """The objective, in the unknowns ``u = (r w, b + w.centre)``: those of features of mean 0 and spread 1.

    Parameters
    ----------
    rows : Rows
        Dense; with error bars, if any, that have the covariances ``V_i``.
    positive : int
        The class whose sign is 1.
    centre : array of shape (n_features,)
        Subtracted from every sample, because far from the origin digits are lost; 0 without an intercept.
    spreads : array of shape (n_features,)
        Positive: ``r``.
    ridge : float
    fit_intercept : bool
    """

    rows: Rows
    positive: int
    centre: Array
    spreads: Array
    ridge: float
    fit_intercept: bool = True

    @property
    def weight(self) -> float:
        """The total weight: the unit of gradients."""
        return self.rows.total_weight

    @cached_property
    def units(self) -> Array:
        """The factors from w and b to the unknowns, ``(r, 1)``."""
        return np.append(self.spreads, np.ones(int(self.fit_intercept)))

    def split(self, u: Array) -> tuple[Array, float]:
        """Return w and b."""
        d = len(self.spreads)
        w = u[:d] / self.spreads
        return w, float(u[d] - w @ self.centre) if self.fit_intercept else 0.0

    def join(self, w: Array, b: float) -> Array:
        """Return the unknowns of w and b."""
        return np.append(w, b + w @ self.centre)[: len(self.units)] * self.units

    def at(self, u: Array) -> tuple[float, Array, Array]:
        """Return F, its gradient and its Hessian, from one pass."""
        self.rows.count("hessian")
        value, gradient, hessian = self.rows.total(
            _sums, positive=self.positive, centre=self.centre, theta=u / self.units
        )
        ridges = np.full(len(u), self.ridge)
        ridges[len(self.spreads) :] = 0.0
        hessian /= np.multiply.outer(self.units, self.units)
        diagonal(hessian)[:] += ridges
        return float(value + 0.5 * ridges @ np.square(u)), gradient / self.units + ridges * u, hessian


def _sums(block: Block, positive: int, centre: Array, theta: Array) -> tuple[float, Array, Array]:
    """Return minus the log-likelihood of some rows, its gradient and its Hessian, in ``theta = (w, b)``."""
    sums: tuple[float, Array, Array] = summed(
        _piece_sums(piece, positive, centre, theta) for _, piece in block.pieces()
    )
    return sums


def _piece_sums(block: Block, positive: int, centre: Array, theta: Array) -> tuple[float, Array, Array]:
    d, errors, s = len(centre), block.errors, block.weights
    yD = np.where(block.labels == positive, 1.0, -1.0)
    if errors is not None:
        yD *= np.sqrt(1.0 + errors.variances(theta[np.newaxis, :d])[:, 0])
    # Samples are columns, because NumPy is faster along a long last axis.
    g = np.ones((len(theta), block.n_rows))
    np.subtract(block.X.T, centre[:, np.newaxis], out=g[:d])
    g /= yD
    t = theta @ g
    log = log_ndtr(t)
    with np.errstate(over="ignore"):
        hazard = math.sqrt(2 / math.pi) / erfcx(-t / math.sqrt(2))  # phi / Phi, also where both underflow
    h = s * hazard
    c = s * np.clip(hazard * (t + hazard), 0.0, 1.0)  # exact values are in [0, 1]; for t << 0 the sum cancels
    if errors is None:
        return -float(s @ log), -(g @ h), (c * g) @ g.T
    q = np.zeros_like(g)
    np.divide(errors.times(theta[:d]).T, np.square(yD), out=q[:d])
    tq = t * q
    g -= tq
    crossed = (h * (g - 0.5 * tq)) @ q.T
    hessian = (c * g) @ g.T + crossed + crossed.T
    errors.add(h * t / np.square(yD), hessian[:d, :d])
    return -float(s @ log), -(g @ h), hessian
