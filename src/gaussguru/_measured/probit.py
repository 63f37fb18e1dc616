"""Probit regression on samples with error bars: the likelihood of labels, its derivatives, and its minimum.

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
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite

from gaussguru._errors.checks import check_products
from gaussguru._errors.forms import Errors
from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import Classifier, LinearScores
from gaussguru._guru.streamed import note_features, surveyed
from gaussguru._rows.rows import Block, Rows, piece_rows, summed
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, check_samples
from gaussguru._utils.checks import outside
from gaussguru._utils.linalg import EPS, LOST, Array, Intercept, diagonal, norm
from gaussguru._utils.types import BlockMap, ErrorBars, Labels, MixedArray, Values
from gaussguru.sources.base import Fields, Source
from gaussguru.sources.reading import Reading, as_source

# Coefficients and intercepts from which a fit begins.
Start = tuple[Array, Intercept]


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
        Subtracted from every sample, because far from the origin digits are lost.
    spreads : array of shape (n_features,)
        Positive: ``r``.
    ridge : float
    """

    rows: Rows
    positive: int
    centre: Array
    spreads: Array
    ridge: float

    @property
    def weight(self) -> float:
        """The total weight: the unit of gradients."""
        return self.rows.total_weight

    @cached_property
    def units(self) -> Array:
        """The factors from w and b to the unknowns, ``(r, 1)``."""
        return np.append(self.spreads, 1.0)

    def split(self, u: Array) -> tuple[Array, float]:
        """Return w and b."""
        d = len(self.spreads)
        w = u[:d] / self.spreads
        return w, float(u[d] - w @ self.centre)

    def join(self, w: Array, b: float) -> Array:
        """Return the unknowns of w and b."""
        return np.append(w, b + w @ self.centre) * self.units

    def at(self, u: Array) -> tuple[float, Array, Array]:
        """Return F, its gradient and its Hessian, from one pass."""
        self.rows.count("hessian")
        value, gradient, hessian = self.rows.total(
            _sums, positive=self.positive, centre=self.centre, theta=u / self.units
        )
        ridges = np.append(np.full(len(self.spreads), self.ridge), 0.0)
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


@dataclass(frozen=True)
class Minimum:
    """A local minimum, by its first and second derivatives.

    Attributes
    ----------
    u : the unknowns
    value : F there
    gradient_norm : length of the gradient, in units of ``problem.weight``
    n_iter : points whose Hessian was used
    converged : whether the gradient is at most ``tol``, and F falls along no direction of negative curvature
    """

    u: Array
    value: float
    gradient_norm: float
    n_iter: int
    converged: bool


class _Point(NamedTuple):
    u: Array
    value: float
    gradient: Array
    hessian: Array


def minimise(problem: Probit, start: Array, *, tol: float, max_iter: int) -> Minimum:
    """Descend from a point to a local minimum.

    A step divides the gradient along each eigenvector of the Hessian by the absolute value of the curvature. Near a
    minimum that is Newton's step, and convergence is quadratic; elsewhere F still falls along it, and the step is
    halved until F falls enough. If the descent is below rounding, the gradient must become half as long. From a saddle,
    where the gradient is at most ``tol``, the step follows the direction of least curvature. F rises by rounding only.
    """
    at, n_iter = _Point(start, *problem.at(start)), 0
    while True:
        n_iter += 1
        here = Minimum(at.u, at.value, norm(at.gradient) / problem.weight, n_iter, False)
        if not np.isfinite(at.hessian).all():
            return here
        curvatures, axes = np.linalg.eigh(at.hessian)
        is_flat = here.gradient_norm <= tol
        lower = _off_saddle(problem, at, float(curvatures[0]), axes[:, 0]) if is_flat and curvatures[0] < 0 else None
        if is_flat and lower is None:
            return replace(here, converged=True)
        if n_iter >= max_iter:
            return here
        if lower is not None:
            at = lower
            continue
        sizes = np.abs(curvatures)
        sizes = np.maximum(sizes, EPS * max(problem.weight, sizes.max()))  # smaller ones are rounding
        step = -axes @ (at.gradient @ axes / sizes)
        decrement, lost = -float(at.gradient @ step), LOST * abs(at.value)
        # F must fall by 1e-4 of what is predicted (Nocedal & Wright, section 3.1), here and off a saddle.
        t, to = 1.0, _Point(at.u + step, *problem.at(at.u + step))
        while t * decrement > lost and not to.value <= at.value - 1e-4 * t * decrement:
            t *= 0.5
            to = _Point(at.u + t * step, *problem.at(at.u + t * step))
        is_better = to.value <= at.value + lost and norm(to.gradient) < 0.5 * norm(at.gradient)
        if t * decrement <= lost and not is_better:
            return here
        at = to


def _off_saddle(problem: Probit, at: _Point, curvature: float, axis: Array) -> _Point | None:
    """Return a point along an axis of negative curvature where F is less by more than rounding, or None.

    F falls on both sides. The side on which the largest entry rises is tried first, so that rounding does not decide.
    """
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    t, lost = 1.0, LOST * abs(at.value)
    while -0.5 * curvature * t * t > lost:
        for step in (t * axis, -t * axis):
            to = _Point(at.u + step, *problem.at(at.u + step))
            if to.value <= at.value + 1e-4 * 0.5 * curvature * t * t:
                return to
        t *= 0.5
    return None


class ProbitFit(NamedTuple):
    """A classifier in the units of X, and the minimum of the solver for each row of coefficients."""

    coef: Array
    intercept: Array
    minima: list[Minimum]


class CachedRows(Rows):
    """Rows in memory, in blocks that stay in cache with their covariances: there is much to do for each row."""

    @cached_property
    def edges(self) -> list[int]:
        """Where blocks begin, and the end."""
        width = self.n_columns + (0 if self.errors is None else self.errors.width)
        return [*range(0, self.n_rows, piece_rows(width)), self.n_rows]


def rows_of(samples: Samples, errors: Errors | None, mapped: BlockMap = map) -> Rows:
    """Return samples in memory as rows."""
    return CachedRows(samples.X, samples.labels, samples.weights, len(samples.classes), errors, mapped)


def probit_path(
    rows: Rows, ridges: Array, *, start: Start | None = None, tol: float = 1e-6, max_iter: int = 100
) -> Iterator[ProbitFit]:
    """Yield probit regressions at one ridge after another, each found from the one before.

    The first starts from coefficients and intercepts that are given, else from ``w = 0`` and the class frequencies: at
    a large ridge the minimum is near, and a path from large to small ridges follows it.

    Parameters
    ----------
    rows : Rows
        Dense; with more than two classes one regression of each class against the others. Their errors are the
        covariances of the true values about X.
    ridges : array of shape (n_ridges,)
    start : pair of arrays of shape (n_scores, n_features) and (n_scores,), default=None
    """
    if rows.is_sparse:
        raise TypeError("Sparse data was passed for X, but dense data is required; use X.toarray()")
    total = rows.total_weight
    # The sums of rows that are read in parts are known.
    mean = (rows.rmatvec(rows.weights) if rows.in_memory else rows.moments.sums.sum(axis=0)) / total
    rows.count("value")
    spreads = np.sqrt(rows.total(_squares_about, centre=mean) / total)
    spreads[spreads <= LOST * np.abs(mean)] = 1.0
    classes = [1] if rows.n_classes == 2 else list(range(rows.n_classes))
    if start is None:
        start = np.zeros((len(classes), len(mean))), ndtri(rows.class_weights[classes] / total)
    problems = [Probit(rows, c, mean, spreads, 0.0) for c in classes]
    points = [p.join(w, float(b)) for p, w, b in zip(problems, start[0], np.atleast_1d(start[1]), strict=True)]
    for ridge in ridges:
        problems = [replace(p, ridge=float(ridge)) for p in problems]
        minima = [minimise(p, u, tol=tol, max_iter=max_iter) for p, u in zip(problems, points, strict=True)]
        points = [minimum.u for minimum in minima]
        coef, intercept = zip(*(p.split(u) for p, u in zip(problems, points, strict=True)), strict=True)
        yield ProbitFit(np.array(coef), np.array(intercept), minima)


def _squares_about(block: Block, centre: Array) -> Array:
    """Return the weighted sums of the expected squares of the true values about a centre, (d,)."""
    within = np.zeros((len(centre), len(centre)))
    if block.errors is not None:
        block.errors.add(block.weights, within)
    return np.asarray(block.weights @ np.square(block.X - centre) + diagonal(within))


class ProbitWithErrors(LinearScores, Classifier):
    """Probit regression on Gaussian posteriors of the true values of every sample.

    Where the truth of a sample is ``N(x_i, V_i)`` (``X_err``: the posterior of a measurement, not its error), the
    labels have the likelihood of a probit model of the truth, with the truth integrated out::

        max over w, b   sum_i s_i log Phi(y_i (w.x_i + b) / sqrt(1 + w' V_i w)) - (ridge/2) sum_j (r_j w_j)^2

    with the spread ``r_j`` of feature j in the population, ``r_j^2 = Var(x_ij) + mean V_ijj``. A sample of which
    little is known counts little, unlike in an expected hinge loss. The problem is not convex where ``V`` is not 0:
    the fit is the local minimum to which a descent from ``w = 0`` leads. More than two classes are
    regressions of each class against the others, with the same noise.

    Parameters
    ----------
    ridge : float, default=1.0
        Weight of the ridge: coefficients of ``1/sqrt(ridge)`` for a feature of spread 1 are usual.
    tol : float, default=1e-6
        Stop when the length of the gradient, for features of spread 1, is at most ``tol`` times the total weight.
    max_iter : int, default=100
        Most iterations for a class.
    n_jobs : int or None, default=None
        Threads for large data.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    gradient_norm_ : float
        The largest length of a gradient at the solution, in units of the total weight.
    objective_ : float
        Minus the penalised log-likelihood, summed over classes that were fitted against the others.
    n_iter_ : int
    n_passes_ : float
        Passes over the samples of a source.
    converged_ : bool
    """

    _takes_sources: ClassVar = True

    def __init__(
        self, ridge: float = 1.0, *, tol: float = 1e-6, max_iter: int = 100, n_jobs: int | None = None
    ) -> None:
        self.ridge = ridge
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    def fit(
        self, X: Values, y: Labels, sample_weight: object = None, X_err: ErrorBars = None, start: Start | None = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, Measured or source of shape (n_samples, n_features)
            A source (:mod:`gaussguru.sources`) is read once for each iteration and class.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,) or float, default=None
        X_err : error bars of X in any form, finite, default=None
        start : tuple of arrays, default=None
            Coefficients and intercepts to start from.

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._fit_source, source, Fields(y, sample_weight, X_err), start)
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err, start)

    def _fit(self, X: Values, y: Labels, sample_weight: object, X_err: ErrorBars, start: Start | None) -> Self:
        """Fit samples in memory."""
        X, X_err = split_errors(X, X_err)
        samples = check_samples(X, y, sample_weight, estimator=self)
        assert_all_finite(samples.X, input_name="X")
        width = samples.X.shape[1] if np.ndim(X_err) == 3 else samples.width
        with block_map(samples.X, self.n_jobs, width) as mapped:
            errors = None if X_err is None else check_products(X_err, samples.X)
            fit = self._of_rows(rows_of(samples, errors, mapped), start)
        return self._keep(samples.classes, fit)

    def _fit_source(self, source: Source, fields: Fields, start: Start | None) -> Self:
        """Fit samples that are read in parts."""
        reading = Reading(source, fields, None, self.n_jobs)
        with reading.pool as mapped, reading.session as session:
            streamed = surveyed(reading.opened(mapped, session), mapped, check=check_products)
            rows = streamed.rows(None)
            fit = self._of_rows(rows, None if start is None else streamed.units.start(*start))
        coef = fit.coef * streamed.units.x
        shift = 0.0 if streamed.units.shift is None else coef @ streamed.units.shift
        note_features(self, streamed.n_features, source.feature_names(fields))
        self.n_passes_ = float(round(sum(rows.passes.values()), 3))
        return self._keep(streamed.classes, ProbitFit(coef, fit.intercept - shift, fit.minima))

    def _of_rows(self, rows: Rows, start: Start | None) -> ProbitFit:
        """Return the regression of rows at the ridge of the classifier."""
        return next(probit_path(rows, np.array([self.ridge]), start=start, tol=self.tol, max_iter=self.max_iter))

    def _keep(self, classes: MixedArray, fit: ProbitFit) -> Self:
        """Keep the solution, and warn if it is not a minimum."""
        self.classes_ = classes
        self.coef_, self.intercept_ = fit.coef, fit.intercept
        self.gradient_norm_ = max(minimum.gradient_norm for minimum in fit.minima)
        self.objective_ = sum(minimum.value for minimum in fit.minima)
        self.n_iter_ = max(minimum.n_iter for minimum in fit.minima)
        self.converged_ = all(minimum.converged for minimum in fit.minima)
        if not self.converged_:
            problem = (
                f"the gradient is {self.gradient_norm_:.1e} of the total weight, not tol={self.tol:g}; increase "
                "max_iter, tol or ridge"
            )
            if self.gradient_norm_ <= self.tol:
                problem = f"the likelihood is at a saddle after max_iter={self.max_iter} iterations: increase max_iter"
            warnings.warn(problem, ConvergenceWarning, stacklevel=outside())
        return self
