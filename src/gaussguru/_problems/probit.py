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
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from gaussguru._blocks import row_blocks
from gaussguru._data.rows import Block, BlockMap, Rows
from gaussguru._linalg import Array, diagonal
from gaussguru.errors import Covariances, Errors
from gaussguru.losses import ROOT


class Unknowns:
    """Unknowns ``u = (r w, b)``: coefficients for features of spread 1, and the intercept."""

    spreads: Array
    fit_intercept: bool

    @property
    def n_unknowns(self) -> int:
        """The number of unknowns."""
        return len(self.spreads) + self.fit_intercept

    def split(self, u: Array) -> tuple[Array, float]:
        """Return w and b."""
        d = len(self.spreads)
        return u[:d] / self.spreads, float(u[d]) if self.fit_intercept else 0.0

    def join(self, w: Array, b: float) -> Array:
        """Return the unknowns of w and b."""
        return np.append(w * self.spreads, b) if self.fit_intercept else w * self.spreads

    def _with_ridge(self, u: Array, ridge: float, gradient: Array, hessian: Array) -> tuple[Array, Array]:
        """Return derivatives of the likelihood, in the units of X, as those of F."""
        d = len(self.spreads)
        units = np.append(self.spreads, 1.0)[: self.n_unknowns]
        gradient, hessian = gradient / units, hessian / np.multiply.outer(units, units)
        gradient[:d] += ridge * u[:d]
        diagonal(hessian)[:d] += ridge
        return gradient, hessian


@dataclass(frozen=True)
class Probit(Unknowns):
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

    def value(self, u: Array) -> float:
        """Return F."""
        w, b = self.split(u)
        return self.loss(w, b) + 0.5 * self.ridge * float(u[: len(w)] @ u[: len(w)])

    def loss(self, w: Array, b: float) -> float:
        """Return minus the logarithm of the likelihood."""

        def part(rows: slice) -> float:
            t, _ = self._standardised(rows, w, b)
            return float(-(self.weights[rows] @ log_ndtr(t)))

        return float(sum(self.map(part, self.blocks)))

    def derivatives(self, u: Array) -> tuple[Array, Array]:
        """Return the gradient and the Hessian of F."""
        return self._with_ridge(u, self.ridge, *self.slopes(*self.split(u)))

    def slopes(self, w: Array, b: float) -> tuple[Array, Array]:
        """Return gradient and Hessian of the loss in w and b."""

        def part(rows: slice) -> tuple[Array, Array]:
            return self._part(rows, w, b)

        size = self.n_unknowns
        gradient, hessian = np.zeros(size), np.zeros((size, size))
        for g, H in self.map(part, self.blocks):
            gradient += g
            hessian += H
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


@dataclass(frozen=True)
class StreamedProbit(Unknowns):
    """The same objective of rows that are read in parts: value, gradient and Hessian come from one pass.

    Parameters
    ----------
    rows : Rows
    positive : int
        The class whose sign is 1.
    centre : array of shape (n_features,)
        What is subtracted from every sample.
    spreads, ridge, fit_intercept
        As in :class:`Probit`.
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
        return float(self.rows.total_weight)

    @cached_property
    def _last(self) -> dict[bytes, tuple[Any, Array, Array]]:
        return {}

    def _seen(self, u: Array) -> tuple[Any, Array, Array]:
        """Return value, gradient and Hessian of the loss; those of the last point are kept."""
        key = u.tobytes()
        if key not in self._last:
            w, b = self.split(u)
            self.rows.count("hessian")
            found = self.rows.total(
                _probit_sums, positive=self.positive, centre=self.centre, w=w, b=b, b_is_free=self.fit_intercept
            )
            self._last.clear()
            self._last[key] = found
        return self._last[key]

    def value(self, u: Array) -> float:
        """Return F."""
        d = len(self.spreads)
        return float(self._seen(u)[0]) + 0.5 * self.ridge * float(u[:d] @ u[:d])

    def derivatives(self, u: Array) -> tuple[Array, Array]:
        """Return the gradient and the Hessian of F."""
        return self._with_ridge(u, self.ridge, *self._seen(u)[1:])


def _probit_sums(
    block: Block, positive: int, centre: Array, w: Array, b: float, b_is_free: bool
) -> tuple[float, Array, Array]:
    X = np.asarray(block.X, dtype=np.float64) - centre
    signs = np.where(block.labels == positive, 1.0, -1.0)
    own = Probit(X, signs, block.weights, block.errors, np.ones(len(centre)), 0.0, b_is_free)
    return own.loss(w, b), *own.slopes(w, b)
