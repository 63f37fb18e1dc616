"""Probit regression on samples with error bars."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite

from gaussguru._errors import Errors, check_products, split_errors
from gaussguru._guru.base import Classifier, LinearScores
from gaussguru._guru.streamed import note_features, surveyed
from gaussguru._measured.modified_newton import Minimum, minimise
from gaussguru._measured.probit_problem import Probit
from gaussguru._rows.rows import Block, BlockMap, Rows, piece_rows
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, check_samples
from gaussguru._utils.checks import check_count, check_flag, check_jobs, check_real, outside
from gaussguru._utils.linalg import LOST, Array, Intercept, diagonal
from gaussguru._utils.types import MixedArray
from gaussguru.sources.base import Fields, Source
from gaussguru.sources.reading import Reading, as_source


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
    rows: Rows,
    ridges: Any,
    *,
    fit_intercept: bool = True,
    start: tuple[Array, Intercept] | None = None,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> Iterator[ProbitFit]:
    """Yield probit regressions at one ridge after another, each found from the one before.

    The first starts from coefficients and intercepts that are given, else from ``w = 0`` and the class frequencies: at
    a large ridge the minimum is near, and a path from large to small ridges follows it.

    Parameters
    ----------
    rows : Rows
        Dense; with more than two classes one regression of each class against the others. Their errors are the
        covariances of the true values about X.
    ridges : array-like of floats
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
    # Without an intercept the origin stays where it is.
    centre = mean if fit_intercept else np.zeros_like(mean)
    classes = [1] if rows.n_classes == 2 else list(range(rows.n_classes))
    if start is None:
        start = np.zeros((len(classes), len(mean))), ndtri(rows.class_weights[classes] / total)
    problems = [Probit(rows, c, centre, spreads, 0.0, fit_intercept) for c in classes]
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
    fit_intercept : bool, default=True
    class_weight : dict, "balanced" or None, default=None
    tol : float, default=1e-6
        Stop when the length of the gradient, for features of spread 1, is at most ``tol`` times the total weight.
    max_iter : int, default=100
        Most iterations for a class.
    warm_start : bool, default=False
        Start from the coefficients of the previous fit, if it had as many.
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
        self,
        ridge: float = 1.0,
        *,
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        warm_start: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def fit(self, X: object, y: object, sample_weight: object = None, X_err: object = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, Measured or source of shape (n_samples, n_features)
            A source (:mod:`gaussguru.sources`) is read once for each iteration and class.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,) or float, default=None
        X_err : error bars of X in any form, finite, default=None

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._fit_source, source, Fields(y, sample_weight, X_err))
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err)

    def _check_parameters(self) -> None:
        check_real("ridge", self.ridge, inclusive=True)
        check_flag("fit_intercept", self.fit_intercept)
        check_real("tol", self.tol)
        check_count("max_iter", self.max_iter)
        check_flag("warm_start", self.warm_start)
        check_jobs("n_jobs", self.n_jobs)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_err: Any, start: tuple[Array, Array] | None = None) -> Self:
        """Fit samples in memory, from coefficients and intercepts on if these are given."""
        self._check_parameters()
        X, X_err = split_errors(X, X_err)
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        assert_all_finite(samples.X, input_name="X")
        width = samples.X.shape[1] if np.ndim(X_err) == 3 else samples.width
        with block_map(samples.X, self.n_jobs, width) as mapped:
            errors = None if X_err is None else check_products(X_err, samples.X)
            fit = self._of_rows(rows_of(samples, errors, mapped), start or self._start(samples))
        return self._keep(samples.classes, fit)

    def _fit_source(self, source: Source, fields: Fields) -> Self:
        """Fit samples that are read in parts."""
        self._check_parameters()
        reading = Reading(source, fields, None, self.n_jobs)
        with reading.pool as mapped, reading.session as session:
            parts = reading.opened(mapped, session)
            streamed = surveyed(parts, mapped, class_weight=self.class_weight, check=check_products)
            rows, start = streamed.rows(self.class_weight), self._start(streamed.samples)
            fit = self._of_rows(rows, None if start is None else streamed.units.start(*start))
        coef = fit.coef * streamed.units.x
        shift = 0.0 if streamed.units.shift is None else coef @ streamed.units.shift
        note_features(self, streamed.n_features, source.feature_names(fields))
        self.n_passes_ = float(round(sum(rows.passes.values()), 3))
        return self._keep(streamed.classes, ProbitFit(coef, fit.intercept - shift, fit.minima))

    def _of_rows(self, rows: Rows, start: tuple[Array, Intercept] | None) -> ProbitFit:
        """Return the regression of rows at the ridge of the classifier."""
        (fit,) = probit_path(
            rows, [self.ridge], fit_intercept=self.fit_intercept, start=start, tol=self.tol, max_iter=self.max_iter
        )
        return fit

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

    def _start(self, samples: Samples) -> tuple[Array, Array] | None:
        """Return the coefficients and intercepts of a warm start, if there are any."""
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        return (self.coef_, self.intercept_) if self.coef_.shape == (samples.width, samples.X.shape[1]) else None
