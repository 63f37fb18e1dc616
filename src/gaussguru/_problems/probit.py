"""Probit regression on samples with error bars: the likelihood of labels given what was measured, and its derivatives.

A sample whose true features are ``N(x_i, V_i)`` has, under a probit model of the truth, the label ``y_i`` with the
probability ``Phi(t_i)``::

    t_i = y_i (w.x_i + b) / D_i,     D_i^2 = 1 + w' V_i w
    F(w, b) = - sum_i s_i log Phi(t_i) + (ridge/2) sum_j (r_j w_j)^2

with the spread ``r_j`` of feature j, so that the ridge does not depend on units. As ``V_i`` grows the sample counts
less, and along any direction its part of F tends to a finite value: F is convex only where ``V = 0``.

With ``h = phi(t)/Phi(t)`` and ``c = h (t + h)``, minus the second derivative of ``log Phi``, and ``v = V_i w``::

    grad t  =  y x / D - t v / D^2
    hess t  = -y (x v' + v x') / D^3 - t V / D^2 + 3 t v v' / D^4
    hess F  =  sum_i s_i (c grad t grad t' - h hess t) + ridge r^2
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from gaussguru._blocks import row_blocks
from gaussguru._data.rows import BlockMap
from gaussguru._linalg import Array, diagonal
from gaussguru.errors import Covariances, Errors
from gaussguru.losses import ROOT


@dataclass(frozen=True)
class Probit:
    """The objective, in the unknowns ``u = (r w, b)``: coefficients for features of spread 1, and the intercept.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        The means of what the features may be. Far from the origin digits are lost: centre them.
    signs : array of shape (n_samples,)
        1 or -1, the labels.
    weights : array of shape (n_samples,)
    errors : Errors, Covariances or None
        The covariances ``V_i``; None is 0.
    spreads : array of shape (n_features,)
        Positive: ``r``.
    ridge : float
    fit_intercept : bool
    map : where blocks of rows are mapped
    """

    X: Array
    signs: Array
    weights: Array
    errors: Errors | Covariances | None
    spreads: Array
    ridge: float
    fit_intercept: bool = True
    map: BlockMap = map

    @cached_property
    def weight(self) -> float:
        """The total weight: the unit of gradients."""
        return float(self.weights.sum())

    @cached_property
    def blocks(self) -> list[slice]:
        """Blocks of rows."""
        n = len(self.X)
        # Factors, covariances, or as many numbers as there are values.
        held = getattr(self.errors, "factors", getattr(self.errors, "matrices", self.X))
        return row_blocks(n, (self.X.size + held.size) / max(n, 1), cached=True)

    @property
    def n_unknowns(self) -> int:
        """The number of unknowns."""
        return int(self.X.shape[1]) + self.fit_intercept

    def split(self, u: Array) -> tuple[Array, float]:
        """Return w and b."""
        d = self.X.shape[1]
        return u[:d] / self.spreads, float(u[d]) if self.fit_intercept else 0.0

    def join(self, w: Array, b: float) -> Array:
        """Return the unknowns of w and b."""
        return np.append(w * self.spreads, b) if self.fit_intercept else w * self.spreads

    def value(self, u: Array) -> float:
        """Return F."""
        w, b = self.split(u)

        def part(rows: slice) -> float:
            t, _ = self._standardised(rows, w, b)
            return float(-(self.weights[rows] @ log_ndtr(t)))

        d = len(w)
        return sum(self.map(part, self.blocks)) + 0.5 * self.ridge * float(u[:d] @ u[:d])

    def derivatives(self, u: Array) -> tuple[Array, Array]:
        """Return the gradient and the Hessian of F."""
        w, b = self.split(u)
        d, size = len(w), self.n_unknowns

        def part(rows: slice) -> tuple[Array, Array]:
            return self._part(rows, w, b)

        gradient, hessian = np.zeros(size), np.zeros((size, size))
        for g, H in self.map(part, self.blocks):
            gradient += g
            hessian += H
        units = np.append(self.spreads, 1.0)[:size]
        gradient /= units
        hessian /= np.multiply.outer(units, units)
        gradient[:d] += self.ridge * u[:d]
        diagonal(hessian)[:d] += self.ridge
        return gradient, hessian

    def _standardised(self, rows: slice, w: Array, b: float) -> tuple[Array, Array | None]:
        """Return t and D."""
        t = self.signs[rows] * (self.X[rows] @ w + b)
        if self.errors is None:
            return t, None
        D = np.sqrt(1.0 + self.errors.take(rows).variances(w[np.newaxis])[:, 0])
        return t / D, D

    def _part(self, rows: slice, w: Array, b: float) -> tuple[Array, Array]:
        """Return gradient and Hessian of the likelihood of some rows, in the units of X."""
        X, y, s = self.X[rows], self.signs[rows], self.weights[rows]
        d, size = X.shape[1], self.n_unknowns
        t, D = self._standardised(rows, w, b)
        hazard = np.exp(-0.5 * np.square(t) - log_ndtr(t)) / ROOT
        h = s * hazard
        c = s * np.clip(hazard * (t + hazard), 0.0, 1.0)  # it is in between; far below 0 the sum cancels
        slopes = np.column_stack([X, np.ones(len(X))])[:, :size]
        if self.errors is None or D is None:
            return -(y * h) @ slopes, (slopes * c[:, np.newaxis]).T @ slopes
        errors = self.errors.take(rows)
        v = errors.times(w)
        steps = slopes * (y / D)[:, np.newaxis]
        steps[:, :d] -= v * (t / np.square(D))[:, np.newaxis]
        hessian = (steps * c[:, np.newaxis]).T @ steps
        crossed = (slopes * (h * y / D**3)[:, np.newaxis]).T @ v
        hessian[:, :d] += crossed
        hessian[:d] += crossed.T
        hessian[:d, :d] -= (v * (3 * h * t / D**4)[:, np.newaxis]).T @ v
        errors.add(h * t / np.square(D), hessian[:d, :d])
        return -h @ steps, hessian
