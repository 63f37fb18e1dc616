"""Probit regression on samples with error bars."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite

from gaussguru._data.rows import Block, BlockMap, Rows
from gaussguru._data.threads import block_map
from gaussguru._estimators.base import Classifier, LinearScores, outside
from gaussguru._estimators.streamed import note_features, surveyed
from gaussguru._estimators.validation import Samples, check_count, check_flag, check_jobs, check_real, check_samples
from gaussguru._linalg import Array, Intercept, diagonal
from gaussguru._problems.probit import Probit, StreamedProbit
from gaussguru._solvers.damped_newton import Minimum, minimise
from gaussguru.errors import Covariances, Errors, check_products, split_errors
from gaussguru.sources import Fields, Reading, Source, as_source


class ProbitFit(NamedTuple):
    """A classifier in the units of X, and the minima that it was found at, one for each row of coefficients."""

    coef: Array
    intercept: Array
    minima: list[Minimum]


def probit_path(
    samples: Samples,
    errors: Errors | Covariances | None,
    ridges: Any,
    *,
    fit_intercept: bool = True,
    start: tuple[Array, Array] | None = None,
    tol: float = 1e-6,
    max_iter: int = 100,
    map: BlockMap = map,
) -> Iterator[ProbitFit]:
    """Yield probit regressions at one ridge after another, each found from the one before.

    The first starts from coefficients and intercepts that are given, else from ``w = 0`` and the class frequencies: at
    a large ridge the minimum is near, and a path from large to small ridges follows it.

    Parameters
    ----------
    samples : Samples
        Dense X; with more than two classes one regression of each class against the others.
    errors : Errors, Covariances or None
        Covariances of what the features may be about X.
    ridges : array-like of floats
    start : pair of arrays of shape (n_rows, n_features) and (n_rows,), default=None
    """
    X = np.asarray(samples.X, dtype=np.float64)
    weights = samples.all_weights
    shares = weights / weights.sum()
    centre = shares @ X
    X = X - centre
    squares = shares @ np.square(X)
    if errors is not None:
        within = np.zeros((X.shape[1], X.shape[1]))
        errors.add(shares, within)
        squares = squares + diagonal(within)
    spreads = np.sqrt(squares)
    spreads[spreads <= 0] = 1.0
    classes = [1] if samples.width == 1 else range(samples.width)
    problems = [
        Probit(X, np.where(samples.labels == c, 1.0, -1.0), weights, errors, spreads, 0.0, fit_intercept, map)
        for c in classes
    ]
    # Without an intercept the origin stays where it is.
    if not fit_intercept:
        problems = [replace(problem, X=np.asarray(samples.X, dtype=np.float64)) for problem in problems]
        centre = np.zeros_like(centre)
    if start is None:
        points = [p.join(np.zeros(len(centre)), float(ndtri(shares @ (p.signs > 0)))) for p in problems]
    else:
        points = [
            p.join(w, float(b + centre @ w))
            for p, w, b in zip(problems, start[0], np.atleast_1d(start[1]), strict=True)
        ]
    for ridge in ridges:
        minima = [
            minimise(replace(p, ridge=float(ridge)), u, tol=tol, max_iter=max_iter)
            for p, u in zip(problems, points, strict=True)
        ]
        points = [found.u for found in minima]
        coef, intercept = (
            np.array(part) for part in zip(*(p.split(u) for p, u in zip(problems, points, strict=True)), strict=True)
        )
        yield ProbitFit(coef, intercept - coef @ centre, minima)


def streamed_probit(
    rows: Rows, ridge: float, fit_intercept: bool, start: tuple[Array, Intercept] | None, *, tol: float, max_iter: int
) -> ProbitFit:
    """Return the probit regression of rows that are read in parts, in their units: a pass for each step."""
    total = float(rows.total_weight)
    mean = rows.moments.sums.sum(axis=0) / total
    spreads = np.sqrt(np.maximum(rows.column_squares / total - np.square(mean), 0.0) + _mean_variances(rows) / total)
    spreads[spreads <= 0] = 1.0
    centre = mean if fit_intercept else np.zeros_like(mean)
    classes = [1] if rows.n_classes == 2 else list(range(rows.n_classes))
    problems = [StreamedProbit(rows, c, centre, spreads, float(ridge), fit_intercept) for c in classes]
    if start is None:
        points = [p.join(np.zeros(len(mean)), float(ndtri(rows.class_weights[p.positive] / total))) for p in problems]
    else:
        points = [
            p.join(w, float(b + centre @ w))
            for p, w, b in zip(problems, start[0], np.atleast_1d(start[1]), strict=True)
        ]
    minima = [minimise(p, u, tol=tol, max_iter=max_iter) for p, u in zip(problems, points, strict=True)]
    coef, intercept = (
        np.array(part) for part in zip(*(p.split(m.u) for p, m in zip(problems, minima, strict=True)), strict=True)
    )
    return ProbitFit(coef, intercept - coef @ centre, minima)


def _mean_variances(rows: Rows) -> Any:
    """Return ``sum s_i V_ijj``; one pass where there are errors."""
    if rows.errors is None:
        return 0.0
    rows.count("value")
    return rows.total(_noise_diagonal)


def _noise_diagonal(block: Block) -> Array:
    assert block.errors is not None
    within = np.zeros((block.X.shape[1], block.X.shape[1]))
    block.errors.add(block.weights, within)
    return np.array(diagonal(within))


class ProbitWithErrors(LinearScores, Classifier):
    """Probit regression that counts what is not known of the features of every sample.

    Where the truth of a sample is ``N(x_i, V_i)`` (``X_err``: the posterior of a measurement, not its error), the
    labels have the likelihood of a probit model of the truth, with the truth integrated out::

        max over w, b   sum_i s_i log Phi(y_i (w.x_i + b) / sqrt(1 + w' V_i w)) - (ridge/2) sum_j (r_j w_j)^2

    with the spread ``r_j`` of feature j in the population, ``r_j^2 = Var(x_ij) + mean V_ijj``. A sample of which
    little is known counts little, unlike in an expected hinge loss. The problem is not convex where ``V`` is not 0:
    what is found is a local minimum, the one that a descent from ``w = 0`` leads to. More than two classes are
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
        Most Hessians formed for a class.
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_err: Any = None) -> Self:
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

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_err: Any) -> Self:
        self._check_parameters()
        X, X_err = split_errors(X, X_err)
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        assert_all_finite(samples.X, input_name="X")
        width = samples.X.shape[1] if np.ndim(X_err) == 3 else samples.width
        with block_map(samples.X, self.n_jobs, width) as mapped:
            (found,) = probit_path(
                samples,
                None if X_err is None else check_products(X_err, samples.X),
                [self.ridge],
                start=self._start(samples),
                fit_intercept=self.fit_intercept,
                tol=self.tol,
                max_iter=self.max_iter,
                map=mapped,
            )
        return self._keep(samples.classes, found)

    def _fit_source(self, source: Source, fields: Fields) -> Self:
        """Fit samples that are read in parts."""
        self._check_parameters()
        reading = Reading(source, fields, None, self.n_jobs)
        with reading.pool as mapped, reading.session as session:
            opened = reading.opened(mapped, session)
            streamed = surveyed(opened, class_weight=self.class_weight, check=check_products)
            if streamed.overview.parts[0].is_sparse:
                raise TypeError("Sparse data was passed for X, but dense data is required; use X.toarray()")
            rows, start = streamed.rows(self.class_weight), self._start(streamed.samples)
            found = streamed_probit(
                rows, self.ridge, self.fit_intercept, None if start is None else streamed.units.start(*start),
                tol=self.tol, max_iter=self.max_iter,
            )  # fmt: skip
        coef = found.coef * streamed.units.x
        shift = 0.0 if streamed.units.shift is None else coef @ streamed.units.shift
        note_features(self, streamed.n_features, source.feature_names(fields))
        self.n_passes_ = float(round(sum(rows.passes.values()), 3))
        return self._keep(streamed.classes, ProbitFit(coef, found.intercept - shift, found.minima))

    def _keep(self, classes: NDArray[Any], found: ProbitFit) -> Self:
        """Keep what was found, and warn where it is not a minimum."""
        self.classes_ = classes
        self.coef_, self.intercept_ = found.coef, found.intercept
        self.gradient_norm_ = max(minimum.gradient_norm for minimum in found.minima)
        self.objective_ = sum(minimum.value for minimum in found.minima)
        self.n_iter_ = max(minimum.n_iter for minimum in found.minima)
        self.converged_ = all(minimum.converged for minimum in found.minima)
        if not self.converged_:
            warnings.warn(
                f"the gradient is {self.gradient_norm_:.1e} of the total weight, not tol={self.tol:g}; increase "
                "max_iter, tol or ridge",
                ConvergenceWarning,
                stacklevel=outside(),
            )
        return self

    def _start(self, samples: Samples) -> tuple[Array, Array] | None:
        """Return where a warm start begins."""
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        return (self.coef_, self.intercept_) if self.coef_.shape == (samples.width, samples.X.shape[1]) else None
