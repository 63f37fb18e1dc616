"""Kernel classifiers for noise in the space of the kernel."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Tags, assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted, check_non_negative

from gaussguru._errors.checks import check_errors, check_products
from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import FillsGaps, GuruEstimator
from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.kernel_errors import check_kernel, dense_rows, noisy_features, noisy_scores
from gaussguru._guru.kernel_matrix import (
    NAMES,
    Gram,
    Kernel,
    KernelRows,
    LandmarkSpace,
    exact_features,
    features_of,
    is_singular,
    kernel_scores,
)
from gaussguru._guru.pose import Objective, Posed, flat, pose
from gaussguru._guru.probabilities import covariance_roots
from gaussguru._guru.solvers.bounds import certify
from gaussguru._guru.solvers.kernel_sgd import KernelProblem
from gaussguru._guru.solvers.registry import KERNEL_SOLVERS, Method
from gaussguru._guru.solvers.result import Result
from gaussguru._guru.solvers.subspace import OfSamples, Subspace
from gaussguru._guru.streamed import by_parts
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, check_samples, check_weights, explain_not_finite
from gaussguru._utils.checks import ParameterError, check_choice, check_count, check_optional, check_real
from gaussguru._utils.linalg import EPS, Array, Index
from gaussguru._utils.stages import stage
from gaussguru._utils.types import BlockMap, ClassWeight, Record, Values
from gaussguru.losses import Loss, resolve_loss
from gaussguru.noise import Isotropic

# Coefficients of all samples and intercepts of a fit before, or None.
Before: TypeAlias = tuple[Array, Array] | None


class KernelGuruClassifier(FillsGaps, GuruEstimator):
    """Kernel classifier for Gaussian noise in the kernel space, solved to a proven optimum.

    KEN-GURU (Ginodi 2010, *Gaussian Robust Classification*, chapter 4)::

        min over w, b   sum_i s_i a f((1 - y_i (<w, kappa(x_i, .)> + b)) / a) + (l2/2) ||w||^2,     a = sigma ||w||

    over functions ``w = sum_j beta_j kappa(x_j, .)`` with the kernel norm ``||w||^2 = beta' K beta``. A small ``sigma``
    gives local decisions, a large one global decisions. More than two classes are compared in pairs, as in
    :class:`GuruClassifier`.

    The noise acts on the image ``kappa(x, .)`` of a sample. With ``kernel="rbf"`` all images have length 1, and useful
    values of ``sigma`` are well below 1.

    With error bars on the features (``X_err``), ``x_i ~ N(m_i, S_i)``, a sample has an expected score and a spread ::

        E w(x_i) = <w, E kappa(x_i, .)>,     a_i^2 = sigma^2 ||w||^2 + g_i' S_i g_i,     g_i = E grad w(x_i)

    in closed form for "rbf", "linear" and "poly". The problem stays convex, with a proven optimum among the
    combinations ``w`` of kernel values with the samples, or with ``n_components`` of them. ``X_err`` should be the
    uncertainty of the true value given the measurement, as :class:`gaussguru.population.Deconvolve` returns it. With
    raw measurements the noise would count twice.

    Parameters
    ----------
    sigma : float, default=1.0
        Standard deviation of the noise, in units of the kernel space: square roots of kernel values.
    kernel : str or callable, default="rbf"
        One of scikit-learn's pairwise kernels ("linear", "rbf", "poly", "sigmoid", "laplacian", "chi2", "cosine"),
        "precomputed" if X is the kernel matrix, or a callable ``kernel(A, B)`` that returns the matrix of kernel values
        between the rows of A and B. It must be positive semidefinite.
    gamma : {"scale", "auto"} or float, default="scale"
        Parameter of "rbf", "poly", "sigmoid", "laplacian" and "chi2". "scale" is ``1 / (n_features * X.var())`` with
        samples counted by ``sample_weight``, "auto" ``1 / n_features``.
    degree : float, default=3
        Degree of "poly".
    coef0 : float, default=1
        Constant of "poly" and "sigmoid".
    kernel_params : dict, default=None
        Keywords for a callable kernel.
    n_components : int, default=None
        Restrict ``w`` to the span of this many randomly drawn samples (Nystroem). For large data: a fit then needs
        memory ``n_samples * n_components`` instead of ``n_samples**2``.
    spread : {"gradient", "exact"}, default="gradient"
        Variance of a score under error bars. "gradient" is that of its best linear approximation, ``g' S g`` above.
        "exact" is the whole variance, which is never smaller. It takes ``n_components**2`` numbers per sample in a fit
        and as many exponentials in a prediction: for small problems, and to check the first.
    loss : {"gaussian", "logistic", "quadratic", "moment"} or gaussguru.losses.Loss, default="gaussian"
        The function ``f``, as in :class:`GuruClassifier`.
    l2 : float, default=0.0
        Weight of the ridge term.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``.
    solver : {"newton", "dual", "sgd", "sgd2"}, default="newton"
        "newton" reaches a proven optimum, and so does "dual", an interior-point method for two classes. "sgd" is
        KEN-GURU, the stochastic gradient descent of the thesis, which reads one row of the kernel matrix per step. With
        more than two classes, or ``n_components``, it is "sgd" of :class:`GuruClassifier` on the kernel features, and
        "sgd2" moves one random class per step.
    tol : float, default=1e-6
        Stop when the duality gap is at most ``tol`` times the objective at zero; "sgd" and "sgd2" when the objective
        falls by less in an epoch, twice in a row.
    max_iter : int, default=500
        Most iterations of the solver, or epochs.
    warm_start : bool, default=False
        Start from the previous fit.
    random_state : int, RandomState instance or None, default=None
        Seed for the components, and for the stochastic solvers.
    n_jobs : int or None, default=None
        Number of threads for large data. None uses all cores available to the process, or one inside a joblib worker.
    verbose : int, default=0
        1 prints the objective, the duality gap and the time at each iteration, and the seconds of kernel and fit.
    eta0 : float or None, default=None
        Length of the first step of "sgd" and "sgd2". None finds it by short trials on a subsample.
    average : bool, default=False
        Whether "sgd" and "sgd2" return the average of at least the last half of the iterates.
    cache_size : float, default=200
        Memory for rows of the kernel matrix in KEN-GURU, in MB. Other rows are recomputed when needed.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        The coefficients ``beta`` of the support samples.
    X_fit_ : ndarray or sparse matrix of shape (n_support, n_features)
        The support samples; not for a precomputed kernel.
    support_ : ndarray of shape (n_support,)
        Their indices in the training data.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept ``b``.
    norm_ : ndarray of shape (1,) or (n_classes,)
        ``||w||``, in the norm of the kernel.
    alpha_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The dual variables ``f'(z_i)``, in [0, 1]: the influence of sample i (against each other class).
    classes_ : ndarray of shape (n_classes,)
        The classes. With two, ``y = +1`` is the second.
    objective_ : float
        The objective at the solution.
    dual_gap_ : float
        A proven bound on how far ``objective_`` is above the minimum; with ``n_components``, above that of the
        restricted problem.
    n_iter_ : int
        Iterations of the solver, or epochs.
    converged_ : bool
        Whether ``dual_gap_`` is at most ``tol`` times the objective at zero. For "sgd" and "sgd2": whether the
        objective stopped falling.
    loss_curve_ : list of float
        The objective after each epoch of "sgd" or "sgd2".
    n_updates_, eta0_ : int, float
        Number of steps of "sgd" or "sgd2", and the length of the first, given or found.
    population_ : gaussguru.errors.Population or None
        The Gaussian from which values that were not measured are filled; None without ``X_err``.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had string column names.

    See Also
    --------
    GuruClassifier : The linear version.
    ErrorBarClassifier : For values that were measured with known errors.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gaussguru import KernelGuruClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> clf = KernelGuruClassifier(sigma=0.03, gamma=1.0).fit(X, y)
    >>> clf.dual_gap_ <= 1e-6 * len(y)
    True
    """

    __metadata_request__decision_function: ClassVar = {"X_err": True}

    def __init__(
        self,
        sigma: float = 1.0,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: str | float = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Record | None = None,
        n_components: int | None = None,
        spread: str = "gradient",
        loss: str | Loss = "gaussian",
        l2: float = 0.0,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
        solver: str = "newton",
        tol: float = 1e-6,
        max_iter: int = 500,
        warm_start: bool = False,
        random_state: object = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        eta0: float | None = None,
        average: bool = False,
        cache_size: float = 200,
    ) -> None:
        self.sigma = sigma
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_components = n_components
        self.spread = spread
        self.loss = loss
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.eta0 = eta0
        self.average = average
        self.cache_size = cache_size

    def fit(self, X: object, y: object, sample_weight: object = None, X_err: object = None) -> Self:
        """Fit the model.

        A fit that raises, or that is interrupted, leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
            The samples, or with ``kernel="precomputed"`` their kernel matrix.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 2 is a sample that occurs twice, 0 one that does not occur.
        X_err : array-like of shape (n_samples,), (n_samples, n_features) or (n_samples, n_features, n_features), \
                sparse matrix of shape (n_samples, n_features) or gaussguru.errors.LowRank, default=None
            Error bars: standard deviations of the measurements, one a sample or one a value, or covariances, for
            ``kernel="rbf"``, "linear" and "poly" of a whole degree, and ``solver="newton"``. What was not measured has
            an infinite one, or NaN in X; it is replaced as in :class:`GuruClassifier`. Sparse samples become dense.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err)

    def _fit(self, X: Values, y: object, sample_weight: object, X_err: object) -> Self:
        self._check_parameters()
        if self.sigma == 0:
            raise ParameterError("sigma", f"must be a finite number > 0; got {self.sigma!r}")
        X, X_err = split_errors(X, X_err)
        if X_err is not None:
            self._check_errors_suit()
        X, X_err, population = self._prepared(X, X_err, sample_weight)
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        self._method.check(self.solver, len(samples.classes), errors=False, noise=None)
        model = Objective(resolve_loss(self.loss), Isotropic(float(self.sigma)), float(self.l2), self.fit_intercept)
        X, dtype = samples.X, samples.X.dtype
        assert_all_finite(X, input_name="X")
        if self.kernel != "precomputed":
            # Kernel values in single precision are not those of any kernel: nothing would be exact.
            X = X.astype(np.float64, copy=False)
        kernel = self._resolve_kernel(X, check_weights(sample_weight, len(samples.labels)))
        samples, before = samples._replace(X=X), self._coefficients(samples)
        self.population_ = population
        with stage(self, "fit"):
            with_matrix = X_err is None and self.n_components is None
            if with_matrix and self._fit_matrix(kernel, samples, model, before):
                return self
            return self._fit_features(kernel, samples, model, before, dtype, X_err)

    def _check_errors_suit(self) -> None:
        """Raise unless kernel and solver take error bars."""
        check_kernel(self.kernel, self.degree)
        if self.solver != "newton":
            raise ValueError(f"X_err with a kernel needs solver='newton'; got solver={self.solver!r}")

    def _span(self, kernel: Kernel, X: Values, mapped: BlockMap) -> LandmarkSpace:
        """Return the space of all samples, or of some."""
        n = X.shape[0]
        if self.n_components is None:
            _check_memory(n)
            return exact_features(kernel, X, mapped)[2]
        landmarks = check_random_state(self.random_state).permutation(n)[: self.n_components]
        points = X[np.ix_(landmarks, landmarks)] if kernel.is_precomputed else X[landmarks]
        space = exact_features(kernel, points, mapped)[2]
        return LandmarkSpace(landmarks[space.landmarks], space.factor)

    def _fit_matrix(self, kernel: Kernel, samples: Samples, model: Objective, before: Before) -> bool:
        """Fit by products with the kernel matrix; return False where features of the kernel do better."""
        method = KERNEL_SOLVERS.get(self.solver)
        if method is None or (len(samples.classes) > 2 and not method.classes):
            return False
        if method.spanned is None:
            self._descend(method, kernel, samples, model, before)
            return True
        return self._grow(method.spanned(method.make(**self._settings())), kernel, samples, model, before)

    def _fit_features(
        self, kernel: Kernel, samples: Samples, model: Objective, before: Before, dtype: object, X_err: object
    ) -> Self:
        """Fit the linear problem on features of the kernel: expected ones, with their errors, if there are errors."""
        X, n, errors, given = samples.X, len(samples.labels), None, None
        kind = "kernel" if X_err is None else "kernel and its errors"
        with block_map(np.broadcast_to(0.0, (n, n)), self.n_jobs) as mapped, stage(self, kind):
            if X_err is None and self.n_components is None:
                _check_memory(n)
                Z, order, space = exact_features(kernel, X, mapped)
            elif X_err is None:
                space, order = self._span(kernel, X, mapped), np.arange(n)
                Z = features_of(kernel, X, kernel.take(X, space.landmarks), space, dtype, mapped)
            else:
                # Rows of a class that lie together are read without a copy.
                space, order = self._span(kernel, X, mapped), np.argsort(samples.labels, kind="stable")
                given, points = check_errors(X_err, X, mapped).take(order), dense_rows(X[space.landmarks])
                exact = self.spread == "exact"
                Z, errors = noisy_features(kernel, X[order], given, points, space, mapped, exact=exact)
        if before is not None:
            before = space.coordinates(before[0][:, space.landmarks]), before[1]
        weights = None if samples.weights is None else samples.weights[order]
        features = Samples(Z, samples.classes, samples.labels[order], weights)
        with block_map(Z, self.n_jobs, features.width) as mapped:
            try:
                posed = pose(features, model, mapped, errors, centred=False)
                result = self._minimise(posed, samples.classes, before and flat(*before))
            except ArithmeticError as error:
                raise explain_not_finite(Z) from error
        self.alpha_ = np.empty_like(result.alpha)
        self.alpha_[order] = result.alpha
        # Predictions use the rounded coefficients of the samples. Where they make another w than the one found, by more
        # than 1e-10 of it, F is computed again.
        coef = np.atleast_2d(result.coef)
        beta = space.coefficients(coef)
        rounded = space.coordinates(beta)
        self._keep(kernel, X, space.landmarks, beta, np.sqrt(np.einsum("ij,ij->i", rounded, rounded)))
        if np.allclose(rounded, coef, rtol=0, atol=1e-10 * float(np.abs(coef).max())) and not is_singular(space.factor):
            return self
        covariances = None
        if given is None:
            scores = self._kernel_scores(X[order])
        else:
            with block_map(np.broadcast_to(0.0, (n, n)), self.n_jobs) as mapped:
                scored = (kernel, X[order], given, self.X_fit_, self.dual_coef_, mapped)
                scores, covariances = noisy_scores(*scored, exact=self.spread == "exact", of=lambda whole: whole)
        self._evaluate(posed, space, scores, covariances)
        return self

    def _evaluate(self, posed: Posed, space: LandmarkSpace, scores: Array, covariances: Array | None = None) -> None:
        """Set the objective to that of the scores that the coefficients of the samples make, and their covariances."""
        problem, rows = posed.problem, posed.problem.rows
        coef = np.zeros((len(self.dual_coef_), len(space.landmarks)))
        coef[:, np.isin(space.landmarks, self.support_)] = self.dual_coef_
        start, intercept = posed.start(*flat(space.coordinates(coef), self.intercept_))
        if len(coef) > 1:
            scores = np.ascontiguousarray(scores[:, posed.order])
        if covariances is not None:
            if len(coef) > 1:
                covariances = covariances[:, posed.order][:, :, posed.order]
            value = problem.value_of(problem.unknowns(start, intercept), scores, covariances)
        elif len(coef) == 1:
            value = problem.at(start, problem.noise.scale(start), intercept, rows.split(scores[:, 0])).value
        else:
            value = problem.at(start, intercept, rows.split(scores)).value
        value /= posed.s
        self.dual_gap_ = min(value, max(0.0, self.dual_gap_ + value - self.objective_))
        self.objective_ = value

    def _grow(self, solver: Subspace, kernel: Kernel, samples: Samples, model: Objective, before: Before) -> bool:
        """Solve in a growing subspace; return False where a factor of the kernel matrix does better."""
        n = len(samples.labels)
        _check_memory(n)
        if n < solver.least_unknowns or not kernel.is_definite:
            return False
        gram = Gram(kernel, samples.X, np.inf)
        with block_map(np.broadcast_to(0.0, (n, n)), self.n_jobs) as mapped:
            # The solver makes the features, those of its span; X of the problem is not used.
            posed = pose(samples._replace(X=np.ones((n, 1))), model, mapped, centred=False)
            solution, problem = solver.minimise(
                OfSamples(gram.product, float(np.sum(gram.squared_norms))),
                posed.problem,
                before and posed.start(*flat(*before)),
            )
            if solution is None or not solution.converged:
                return False
            self._warn(solution, problem)
        result = posed.result(solution)
        self._adopt(posed, samples.classes, result)
        self._keep_coefficients(gram, result)
        return True

    def _descend(self, method: Method, kernel: Kernel, samples: Samples, model: Objective, before: Before) -> None:
        """Descend on the coefficients of the samples."""
        with block_map(samples.X, self.n_jobs):
            gram = Gram(kernel, samples.X, 1e6 * self.cache_size)
            rows = KernelRows(gram, samples.labels, samples.weights)
            problem = KernelProblem(rows, model.loss, Isotropic(float(self.sigma)), model.l2, model.fit_intercept)
            try:
                result = self._minimise(Posed(problem), samples.classes, before and flat(*before), method)
            except ArithmeticError as error:
                raise explain_not_finite(samples.X) from error
            self._keep_coefficients(gram, result)

    def _keep_coefficients(self, gram: Gram, result: Result) -> None:
        coef = np.atleast_2d(result.coef)
        scores = gram.product(np.ascontiguousarray(coef.T))
        length = np.sqrt(np.maximum(0.0, np.einsum("ij,ji->i", coef, scores)))
        self._keep(gram.kernel, gram.X, np.arange(gram.n_rows), coef, length)

    def _coefficients(self, samples: Samples) -> Before:
        """Return the coefficients of all samples and the intercept of the fit before, if this one may start there."""
        if not self.warm_start or not hasattr(self, "dual_coef_") or len(self.alpha_) != len(samples.labels):
            return None
        if not np.array_equal(self.classes_, samples.classes):
            return None
        coef = np.zeros((len(self.dual_coef_), len(samples.labels)))
        coef[:, self.support_] = self.dual_coef_
        return coef, self.intercept_ if self.fit_intercept else np.zeros_like(self.intercept_)

    def _keep(self, kernel: Kernel, X: Values, support: Index, coef: Array, length: Array) -> None:
        used = np.flatnonzero(coef.any(axis=0))
        self._kernel = kernel
        self.support_ = support[used]
        self.dual_coef_ = np.ascontiguousarray(coef[:, used])
        self.__dict__.pop("X_fit_", None)
        if not kernel.is_precomputed:
            self.X_fit_ = X[self.support_]
        self.norm_ = length

    _checks: ClassVar[Record] = {
        **GuruEstimator._checks,
        "kernel": lambda name, value: callable(value) or check_choice(name, value, NAMES),
        "gamma": lambda name, value: (
            check_choice(name, value, ("scale", "auto")) if isinstance(value, str) else check_real(name, value)
        ),
        "degree": partial(check_real, inclusive=True),
        "coef0": partial(check_real, low=-np.inf),
        "n_components": partial(check_optional, check=check_count),
        "cache_size": check_real,
        "spread": partial(check_choice, known=("gradient", "exact")),
    }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel_params is not None and not callable(self.kernel):
            raise ValueError(f"kernel_params are for a callable kernel; got {self.kernel_params!r} for {self.kernel!r}")
        if not isinstance(self.kernel_params, dict | None):
            raise TypeError(f"kernel_params must be a dict of keywords or None; got {self.kernel_params!r}")

    def _resolve_kernel(self, X: Values, weights: Array | None) -> Kernel:
        n, d = X.shape
        if self.n_components is not None and self.n_components > n:
            raise ParameterError("n_components", f"must be at most the number of samples, {n}; got {self.n_components}")
        if callable(self.kernel):
            return Kernel(self.kernel, self.kernel_params or {})
        if self.kernel == "precomputed":
            _check_symmetric(X)
            return Kernel(self.kernel)
        if self.kernel == "chi2":
            check_non_negative(X, "KernelGuruClassifier with kernel='chi2'")
        gamma = self.gamma
        if gamma == "auto":
            gamma = 1 / d
        elif gamma == "scale":
            variance = _variance(X, weights)
            gamma = 1 / (d * variance) if variance > 0 else 1.0
        params = {"gamma": float(gamma), "degree": self.degree, "coef0": self.coef0}
        return Kernel(self.kernel, params, _centre(X) if self.kernel in ("rbf", "laplacian") else None)

    @by_parts
    def decision_function(self, X: object, X_err: object = None) -> Array:
        """Return ``sum_j beta_j kappa(x, x_j) + b`` for every sample; with more than two classes, one score for each.

        With error bars it is the expected score. It is computed in blocks of rows, with a few MB of memory beside the
        result.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
            With ``kernel="precomputed"``, the kernel values with all samples of the fit.
        X_err : error bars of X, default=None
            In any form that :meth:`fit` takes.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        scores, _ = self._moments(X, X_err, lambda covariances: covariances[:, 0, 0])
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    @by_parts
    def margin_and_spread(self, X: object, X_err: object = None) -> tuple[Array, Array]:
        """Return the expected scores of every sample, and their standard deviations under its error bars.

        The spread counts the error bars alone, not the noise of the model: it is 0 without any. Of X whose errors are
        a mixture (``Measured.components``) they are those of a Gaussian with its mean and covariance.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            In any form that :meth:`fit` takes.

        Returns
        -------
        margin, spread : ndarrays of shape (n_samples,), or (n_samples, n_classes) for more than two classes
        """
        margin, variances = self._moments(X, X_err, lambda covariances: np.einsum("icc->ic", covariances))
        spread = np.sqrt(np.maximum(variances, 0.0))
        return (margin[:, 0], spread[:, 0]) if margin.shape[1] == 1 else (margin, spread)

    def _score_moments(self, X: object, X_err: object = None, *, rooted: bool = False) -> tuple[Array, Array, Array]:
        """Return weights, means and covariances of the scores, or roots of these; one component."""
        scores, noise = self._moments(X, X_err, covariance_roots if rooted else np.asarray)
        return np.ones((len(scores), 1)), scores[:, np.newaxis], noise[:, np.newaxis]

    def _moments(self, X: Values, X_err: object, of: Callable[[Array], Array]) -> tuple[Array, Array]:
        """Return the scores of samples, and a function ``of`` their covariances under the error bars."""
        X, X_err = self._measured(X, X_err)
        if X_err is None:
            scores = self._kernel_scores(X) + self.intercept_
            return scores, np.zeros((len(scores), *of(np.zeros((0, scores.shape[1], scores.shape[1]))).shape[1:]))
        check_kernel(self._kernel.name, self._kernel.params.get("degree", 1))
        errors = check_products(X_err, X)
        with block_map(np.broadcast_to(0.0, (X.shape[0], len(self.support_))), self.n_jobs) as mapped:
            given = (self._kernel, X, errors, self.X_fit_, self.dual_coef_, mapped)
            scores, spreads = noisy_scores(*given, exact=self.spread == "exact", of=of)
        return scores + self.intercept_, spreads

    def certificate(self, X: Values, y: object, sample_weight: object = None, X_err: object = None) -> Certificate:
        """Return the objective of the classifier on any data, and a lower bound on the minimum.

        The least is that of all ``w`` made of the samples ``X_fit_``.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; all classes of the estimator must occur.
        sample_weight : array-like of shape (n_samples,) or float, default=None
        X_err : error bars of X, default=None
            As in :meth:`fit`.

        Returns
        -------
        Certificate
            ``primal``, the objective of the classifier on this data; ``dual``, a proven lower bound of the least one;
            and ``gap``, their difference.
        """
        check_is_fitted(self)
        self._check_parameters()
        if self._kernel.is_precomputed:
            raise ValueError("kernel='precomputed' keeps no samples, of which a certificate needs the kernel matrix")
        samples, X_err = self._labelled(X, y, sample_weight, X_err)
        if X_err is not None:
            self._check_errors_suit()
        model = Objective(resolve_loss(self.loss), Isotropic(float(self.sigma)), float(self.l2), self.fit_intercept)
        X = samples.X.astype(np.float64, copy=False)
        assert_all_finite(X, input_name="X")
        # Any sample will do where w = 0.
        kernel, points = self._kernel, self.X_fit_ if len(self.support_) else X[:1]
        space = exact_features(kernel, points)[2]
        inner = points[space.landmarks]
        coef = np.zeros((len(self.dual_coef_), len(space.landmarks)))
        if len(self.support_):
            coef = self.dual_coef_ @ features_of(kernel, points, inner, space, np.float64)
        with block_map(np.broadcast_to(0.0, (X.shape[0], len(coef[0]))), self.n_jobs, samples.width) as mapped:
            if X_err is None:
                Z, errors = features_of(kernel, X, inner, space, np.float64, mapped), None
            else:
                given = (kernel, X, check_errors(X_err, X, mapped), dense_rows(inner), space, mapped)
                Z, errors = noisy_features(*given, exact=self.spread == "exact")
            posed = pose(samples._replace(X=Z), model, mapped, errors, centred=False)
            return posed.certificate(certify(posed.problem, *posed.start(*flat(coef, self.intercept_)))[0])

    def _kernel_scores(self, X: Values) -> Array:
        points = self.support_ if self._kernel.is_precomputed else self.X_fit_
        with block_map(np.broadcast_to(0.0, (X.shape[0], len(self.support_))), self.n_jobs) as mapped:
            return kernel_scores(self._kernel, X, points, self.dual_coef_, mapped)

    def _noisy_scores(self, X: object, X_err: object) -> tuple[Array, Array | float]:
        def of_differences(covariances: Array) -> Array:
            """Return half the mean variance of the differences of two scores; of a single score its variance."""
            n_scores, trace = covariances.shape[1], np.einsum("icc->i", covariances)
            if n_scores == 1:
                return np.asarray(trace)
            return np.asarray((trace - covariances.sum(axis=(1, 2)) / n_scores) / (n_scores - 1))

        scores, variances = self._moments(X, X_err, of_differences)
        # The norms of functions that add up to zero; of two classes there is one, of their difference.
        others = max(1, len(self.norm_) - 1)
        noise = 0.0 if self.noise_ is None else self.noise_.scale(self.norm_) / np.sqrt(others)
        spread = np.hypot(noise, np.sqrt(np.maximum(variances, 0.0)))
        return (scores[:, 0] if scores.shape[1] == 1 else scores), spread

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel not in ("precomputed", "chi2")
        tags.input_tags.positive_only = self.kernel == "chi2"
        return tags


def _is_full(X: Values) -> bool:
    """Return whether X is dense, or might as well be: features with many zeros are not far from the origin."""
    return not sp.issparse(X) or X.nnz > 0.5 * X.shape[0] * X.shape[1]


def _centre(X: Values) -> Array | None:
    """Return the mean of samples, from which distances are computed without loss of digits; None of sparse ones."""
    return np.asarray(X.mean(axis=0), dtype=np.float64).ravel() if _is_full(X) else None


def _variance(X: Values, weights: Array | None) -> float:
    """Return the variance of all values of X, rows counted by their weights; 0 where rounding may have made it."""
    if weights is None:
        weights = np.ones(X.shape[0])
    n_values = float(weights.sum()) * X.shape[1]
    mean = np.dot(weights, np.asarray(X.sum(axis=1)).ravel()) / n_values
    with np.errstate(over="ignore"):  # the values of the kernel are looked at
        if _is_full(X):
            squares = np.square((X.toarray() if sp.issparse(X) else X) - mean).sum(axis=1)
            least = (64 * EPS * mean) ** 2
        else:
            squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() - X.shape[1] * mean**2
            least = 64 * EPS * mean**2
    variance = float(np.dot(weights, squares) / n_values)
    return variance if variance > least else 0.0


def _check_symmetric(K: Values) -> None:
    """Raise unless a precomputed kernel matrix is square and symmetric."""
    if sp.issparse(K):
        raise TypeError("X must be a dense kernel matrix with kernel='precomputed'; got a sparse one")
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"X must be a square kernel matrix with kernel='precomputed'; got shape {K.shape}")
    difference, largest = float(np.abs(K - K.T).max()), float(np.abs(K).max())
    if difference > 1e4 * np.finfo(K.dtype).eps * largest:  # 1e4 roundings of the largest entry
        raise ValueError(
            "X must be a symmetric kernel matrix with kernel='precomputed'; it differs from its transpose by "
            f"{difference:g}"
        )


def _check_memory(n: int) -> None:
    """Raise if a kernel matrix cannot be held: better than the operating system ending the process."""
    needed = 8 * n * n
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if needed > memory:
        raise MemoryError(
            f"the kernel matrix of {n} samples takes {needed / 1e9:.0f} GB, this machine has {memory / 1e9:.0f}: set "
            "n_components, or solver='sgd' for two classes"
        )
