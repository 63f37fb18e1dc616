"""Linear classifiers for noisy features."""

import copy
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.checks import check_errors, check_products
from gaussguru._errors.forms import Errors
from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import FillsGaps, GuruEstimator, LinearScores
from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.pose import Objective, Posed, flat, pose
from gaussguru._guru.solvers.bounds import certify
from gaussguru._guru.solvers.result import Result
from gaussguru._guru.streamed import Gaps, Streamed, names_of, note_features, surveyed
from gaussguru._rows.streams import Blocks
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, check_part, check_samples, explain_not_finite
from gaussguru._utils.linalg import Array, Intercept
from gaussguru._utils.types import BlockMap, ClassWeight
from gaussguru.losses import Loss, resolve_loss
from gaussguru.noise import QuadraticNoise, resolve_noise
from gaussguru.sources.base import Fields, Source
from gaussguru.sources.reading import Reading, as_source


def _is_stochastic(estimator: BaseEstimator) -> bool:
    """Say whether there is a partial_fit."""
    if estimator.solver not in ("sgd", "sgd2"):
        raise AttributeError(f"partial_fit needs solver='sgd' or 'sgd2'; got solver={estimator.solver!r}")
    return True


class GuruClassifier(FillsGaps, LinearScores, GuruEstimator):
    """Linear classifier for features with Gaussian noise, solved to a proven optimum.

    Every training sample is replaced by a Gaussian cloud whose covariance an adversary chooses, and the expected hinge
    loss is minimised (Ginodi 2010, *Gaussian Robust Classification*, chapter 2)::

        min over w, b   sum_i s_i a f((1 - y_i (w.x_i + b)) / a) + (l2/2) ||w||^2,     a = sigma ||w||

    with ``f(z) = z Phi(z) + phi(z)``, the expected hinge loss of a standard normal slack. The problem is smooth
    and convex. As ``sigma`` goes to 0 it becomes the hinge loss of a support vector machine; as ``sigma`` grows,
    the direction of ``w`` tends to the difference of the class means.

    With more than two classes every sample is compared with every other class (chapter 5, M-GURU)::

        min over W, b   sum_i s_i sum_{k != y_i} a f((1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)) / a)
                        + (l2/2) sum_{c<k} ||w_c - w_k||^2,     a = sigma ||w_{y_i} - w_k||

    Two classes are the special case ``w = w_1 - w_0``.

    Parameters
    ----------
    sigma : float, default=1.0
        Standard deviation of the noise, in the units of the features.
    noise : {"isotropic", "axis"} or array-like, default="isotropic"
        The noise model, which determines ``a``: constraints on the adversary, or the known noise.

        * "isotropic": any covariance of trace at most ``sigma**2``; ``a = sigma ||w||``.
        * "axis": any diagonal covariance of trace at most ``sigma**2`` (appendix B); ``a = sigma max |w_j|``. Two
          classes only.
        * array of shape (n_features,): independent noise with standard deviations ``sigma * noise``. A feature with 0
          is exact. Use ``sigma=1`` for standard deviations in the units of the features.
        * array of shape (n_features, n_features): noise with covariance ``sigma**2 * noise``, positive semidefinite.

        Exact features and directions without noise get noise of 1e-6 of the spread of the feature, for any ``sigma``.
        It keeps the loss smooth, and raises the objective by at most 0.4e-6 ``sum s`` times ``|w_j|`` times the spread.
    loss : {"gaussian", "logistic", "quadratic", "moment"} or gaussguru.losses.Loss, default="gaussian"
        The function ``f``: the expected hinge loss; one of its approximations in the thesis (chapter 3), scaled so
        that ``sigma`` keeps its meaning; the largest expected hinge loss under noise of that covariance with any
        distribution (:class:`gaussguru.losses.Moment`); or your own :class:`gaussguru.losses.Loss`.
    l2 : float, default=0.0
        Weight of the ridge term. The noise alone already regularises.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``. "balanced" gives all classes the same total weight.
    solver : {"newton", "dual", "sgd", "sgd2"}, default="newton"
        "newton" and "dual" reach a proven optimum. "dual" solves the dual problem of chapter 3 and recovers the
        classifier from it; it is slower and for two classes only. "sgd" is the stochastic gradient descent of the
        thesis, GURU or M-GURU: each step uses one random sample and has length ``eta0/sqrt(t)``. "sgd2" is M-GURU-S2:
        each step uses one random sample and one random class (with two classes it equals "sgd"). ``dual_gap_`` tells
        how close to the optimum they stopped.
    tol : float, default=1e-6
        Stop when the duality gap is at most ``tol`` times the objective at zero (the total weight, times the number of
        other classes). "sgd" and "sgd2" stop when the objective falls by less in an epoch, twice in a row.
    max_iter : int, default=500
        Maximum number of iterations, or of epochs (one step per sample).
    warm_start : bool, default=False
        Start from the coefficients of the previous fit.
    random_state : int, RandomState instance or None, default=None
        Seed for the subsamples on which the solver warms up. The optimum does not depend on it. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads for large data. None uses all cores available to the process, or one inside a joblib worker.
        The result does not depend on it.
    verbose : int, default=0
        1 prints the objective, the duality gap and the time at each iteration.
    eta0 : float or None, default=None
        Length of the first step of "sgd" and "sgd2". None finds it by short trials on a subsample.
    average : bool, default=False
        Whether "sgd" and "sgd2" return an average over at least the last half of the iterates instead of the last one.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The weights ``w``. With more than two classes, the rows add up to zero.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept ``b``.
    classes_ : ndarray of shape (n_classes,)
        The classes. With two, ``y = +1`` is the second.
    objective_ : float
        The objective at the solution.
    dual_gap_ : float
        A proven bound on how far ``objective_`` is above the minimum.
    alpha_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The dual variables ``alpha_i = f'(z_i)``, in [0, 1]: the influence of sample i (against each other class).
        ``dual_coef_`` is another name for it. Not available if the samples are not in memory.
    noise_ : gaussguru.noise.Noise or None
        The noise model, including the small noise of exact features; None for ``sigma=0``.
    population_ : gaussguru.errors.Population or None
        The Gaussian from which values that were not measured are filled; None without ``X_err``.
    n_iter_ : int
        Number of iterations, or of epochs.
    n_passes_ : float
        Number of passes over the samples. A pass over a subsample counts as its fraction.
    converged_ : bool
        Whether ``dual_gap_`` is at most ``tol`` times the objective at zero. For "sgd" and "sgd2": whether the
        objective stopped falling.
    loss_curve_ : list of float
        The objective after each epoch of "sgd" or "sgd2".
    n_updates_ : int
        Number of steps of "sgd" or "sgd2", over all calls of ``partial_fit``.
    eta0_ : float
        Length of the first step of "sgd" or "sgd2", given or found.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had string column names.

    See Also
    --------
    ErrorBarClassifier : For values that were measured with known errors.
    GuruClassifierCV : Chooses ``sigma``.
    KernelGuruClassifier : For boundaries that are not linear.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GuruClassifier(sigma=5.0).fit(X, y)
    >>> clf.dual_gap_ <= 1e-6 * len(y)
    True
    """

    _takes_sources: ClassVar = True
    __metadata_request__partial_fit: ClassVar = {"X_err": True}

    def __init__(
        self,
        sigma: float = 1.0,
        *,
        noise: str | ArrayLike = "isotropic",
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
    ) -> None:
        self.sigma = sigma
        self.noise = noise
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_err: Any = None, *, client: Any = None) -> Self:
        """Fit the model.

        A fit that raises or is interrupted leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, sparse matrix or source of shape (n_samples, n_features)
            The samples. C-contiguous float32 and float64 arrays, and canonical CSR matrices, are not copied. Sources
            (:mod:`gaussguru.sources`, Dask arrays and frames, Arrow data sets, polars lazy frames) are read in parts.
        y : array-like of shape (n_samples,) or str
            Labels of two or more classes. If X is a table, ``y``, ``sample_weight`` and ``X_err`` may be column names;
            ``X_err`` may also be the suffix of the error columns, as "_err".
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples. Weight 2 is the same as a sample that occurs twice, 0 as one that does not occur.
        X_err : array-like of shape (n_samples,), (n_samples, n_features) or (n_samples, n_features, n_features), \
                sparse matrix of shape (n_samples, n_features) or gaussguru.errors.LowRank, default=None
            Error bars: standard deviations, one per sample or per value, or covariances. They add to the noise of the
            model, ``a_i^2 = a(w)^2 + w' Sigma_i w``; 0 is an exact value. For errors that were already made when the
            values were measured, use :class:`ErrorBarClassifier`. Values that were not measured (infinite error, or NaN
            in X) are replaced by their mean and covariance given the rest of the sample and a Gaussian population
            (:meth:`gaussguru.errors.Population.fill`).
        client : distributed.Client, default=None
            The Dask client to use. None is the current client, if there is one.

        Returns
        -------
        self
        """
        source = as_source(X, client)
        if source is not None:
            return self._or_unchanged(self._fit_source, source, Fields(y, sample_weight, X_err))
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err)

    @available_if(_is_stochastic)  # type: ignore[untyped-decorator]  # scikit-learn's has no types
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, X_err: Any = None) -> Self:
        """Make one step of "sgd" or "sgd2" for each sample of a block, in random order.

        Steps keep getting shorter from call to call. With ``eta0=None`` the first block determines the step length, so
        it should not be tiny. ``coef_`` is up to date after each call, and :meth:`certificate` tells how close to
        optimal it is on any data. A call that raises leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, sparse matrix or source of shape (n_samples, n_features)
            The samples of this block. A source (:mod:`gaussguru.sources`) is a sequence of blocks.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Required in the first call.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples; within a call they count relative to their mean.
        X_err : array-like of shape (n_samples,) or (n_samples, n_features), default=None
            Error bars of these samples, finite standard deviations; two classes only.

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._partial_fit_source, source, Fields(y, sample_weight, X_err), classes)
        return self._or_unchanged(self._partial_fit, X, y, classes, sample_weight, X_err)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_err: Any) -> Self:
        """Fit samples in memory."""
        self._check_parameters()
        X, X_err = split_errors(X, X_err)
        X, X_err, population = self._prepared(X, X_err, sample_weight)
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        model = self._resolved(samples, X_err)
        try:
            with self._threads(samples, model, X_err) as mapped:
                posed = pose(samples, model, mapped, self._errors(samples, X_err, mapped))
                result = self._minimise(posed, samples.classes, self._start(samples))
        except ArithmeticError as error:
            raise explain_not_finite(samples.X) from error
        self.population_ = population
        self.n_passes_ = posed.n_passes
        self._keep(result)
        return self

    def _fit_source(self, source: Source, fields: Fields) -> Self:
        """Fit samples that are read in parts."""
        self._check_parameters()
        if self.solver != "newton":
            raise ValueError(f"solver must be 'newton' for samples that are not in memory; got {self.solver!r}")
        reading = Reading(source, fields, None, self.n_jobs)
        with reading.pool as mapped, reading.session as session:
            parts, gaps = reading.opened(mapped, session), Gaps(self._keeps_correlations)
            streamed = self._surveyed(parts, mapped, gaps, draws=True)
            model = self._resolved(streamed.samples, streamed.measured or None)
            if model.noise is not None and not model.noise.smooth:
                raise ValueError(f"noise={self.noise!r} needs samples in memory; use 'isotropic' or known noise")
            posed = streamed.posed(self.class_weight, model)
            result = self._minimise(posed, streamed.classes, self._start(streamed.samples))
        note_features(self, streamed.n_features, source.feature_names(fields))
        self.population_ = streamed.population
        self.n_passes_ = posed.n_passes
        self._keep(result)
        return self

    def _surveyed(self, parts: Blocks, mapped: BlockMap, gaps: Gaps, *, draws: bool = False) -> Streamed:
        """Return a survey of the samples of a source."""
        centred, exact, weight = bool(self.fit_intercept), self.sigma == 0, self.class_weight
        return surveyed(parts, mapped, class_weight=weight, centred=centred, exact=exact, gaps=gaps, draws=draws)

    def _keep(self, result: Result) -> None:
        """Keep the coefficients and the state of a descent."""
        self.coef_ = np.atleast_2d(result.coef)
        self._descent = result.state

    @property
    def dual_coef_(self) -> Array:
        """The dual variables, an alias of ``alpha_``."""
        return np.asarray(self.alpha_)

    @property
    def _keeps_correlations(self) -> bool:
        """Whether the solver takes errors that are correlated."""
        return self._method.exact

    def _threads(self, samples: Samples, model: Objective, X_err: object = None) -> AbstractContextManager[BlockMap]:
        """Return a context whose value maps blocks of rows."""
        width = samples.width if X_err is None else 2 * samples.width
        # Noise with kinks takes hundreds of small factors, which threads of BLAS would make slower (measured: twice).
        # With fewer than 64 columns BLAS uses one thread by itself.
        many_small = model.noise is not None and not model.noise.smooth and samples.X.shape[1] >= 64
        return block_map(samples.X, self.n_jobs, width, single_blas=many_small)

    def _errors(self, samples: Samples, X_err: object, mapped: BlockMap) -> Errors | None:
        """Return error bars, checked, of samples without gaps."""
        if X_err is None:
            return None
        assert_all_finite(samples.X, input_name="X")
        return check_errors(X_err, samples.X, mapped)

    def _resolved(self, samples: Samples, X_err: object = None) -> Objective:
        """Return the model, checked against the features, the number of classes, the errors and the solver."""
        if self.sigma == 0 and X_err is None and self.l2 == 0:
            raise ValueError(f"sigma must be > 0 where there is neither X_err nor l2; got {self.sigma!r}")
        noise = resolve_noise(self.noise, float(self.sigma) or 1.0, samples.X.shape[1])
        given = f"noise={self.noise!r}" if isinstance(self.noise, str) else f"a noise of shape {np.shape(self.noise)}"
        exact = X_err is not None or self.sigma == 0
        isotropic = isinstance(self.noise, str) and self.noise == "isotropic"
        self._method.check(self.solver, len(samples.classes), errors=exact, noise=None if isotropic else given)
        if exact and not noise.smooth:
            raise ValueError(f"{given} with X_err is not supported; use 'isotropic' or known noise")
        if len(samples.classes) > 2 and not noise.smooth:
            raise ValueError(
                f"Only binary classification is supported with {given}; y has {len(samples.classes)} classes: use "
                "noise='isotropic', standard deviations or a covariance, or one classifier against the rest for each "
                "class (sklearn.multiclass.OneVsRestClassifier)"
            )
        return Objective(resolve_loss(self.loss), noise if self.sigma else None, float(self.l2), self.fit_intercept)

    def _partial_fit(self, X: object, y: object, classes: object, sample_weight: object, X_err: object) -> Self:
        self._check_parameters()
        X, X_err = split_errors(X, X_err)
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all labels at once; give partial_fit a dict of weights")
        state = copy.deepcopy(getattr(self, "_descent", None))
        samples = check_part(
            X, y, sample_weight, self.class_weight, estimator=self, classes=classes, first=state is None
        )
        # The steps are sequential: starting threads for the little else costs more than it saves.
        model = self._resolved(samples, X_err)
        posed = pose(samples, model, map, self._errors(samples, X_err, map), rescaled=False, ordered=False)
        problem, solver = posed.problem, self._method.make(**self._settings())
        if state is None:
            if not np.isfinite(problem.rows.squared_norms).all():
                raise explain_not_finite(samples.X)
            self.classes_, self.noise_, self.population_ = samples.classes, posed.noise, None
            self.eta0_ = solver.find_rate(problem) if solver.eta0 is None else solver.eta0
            state = solver.begin(problem)
        if self.average:
            state.renew_average()
        rng = np.random.default_rng([solver.seed, state.steps])
        state.run(problem, rng.permutation(len(samples.labels)), self.eta0_)
        if np.isnan(state.b).any():  # as a row leaves it that is not finite
            raise explain_not_finite(samples.X)
        self.coef_ = np.atleast_2d(state.coef)
        self.intercept_ = np.atleast_1d(state.intercept)
        self.n_updates_, self._descent = state.steps, state
        for name in ("objective_", "dual_gap_", "alpha_", "n_iter_", "converged_", "loss_curve_"):
            self.__dict__.pop(name, None)  # of a fit before: no longer true
        return self

    def _partial_fit_source(self, source: Source, fields: Fields, classes: object) -> Self:
        """Make one step on each sample of a source, part by part in their order."""
        reading = Reading(source, fields, names_of(self), 1)
        with reading.pool, reading.session as session:
            names = source.feature_names(fields)
            for part in reading.opened(map, session).one_by_one():
                if part.X.shape[0]:
                    self.__dict__.pop("feature_names_in_", None)  # parts are arrays
                    self._partial_fit(part.X, part.y, classes, part.weight, part.X_err)
        if not hasattr(self, "classes_"):
            raise ValueError("X must have at least one sample; all partitions are empty")
        note_features(self, self.coef_.shape[1], names)
        return self

    def certificate(self, X: object, y: object, sample_weight: object = None, X_err: object = None) -> Certificate:
        """Return the objective of the classifier on any data, and a lower bound on the minimum.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; all classes of the estimator must occur.
        sample_weight : array-like of shape (n_samples,) or float, default=None
        X_err : default=None
            Error bars of these samples, as in :meth:`fit`.

        Returns
        -------
        Certificate
            ``primal`` is the objective of the classifier on this data, ``dual`` a proven lower bound on the minimum,
            and ``gap`` their difference.
        """
        check_is_fitted(self)
        self._check_parameters()
        source = as_source(X)
        if source is not None:
            return self._certificate_of(source, Fields(y, sample_weight, X_err))
        samples, X_err = self._labelled(X, y, sample_weight, X_err)
        model = self._resolved(samples, X_err)
        with self._threads(samples, model, X_err) as mapped:
            return self._certified(pose(samples, model, mapped, self._errors(samples, X_err, mapped)))

    def _certificate_of(self, source: Source, fields: Fields) -> Certificate:
        reading = Reading(source, fields, names_of(self), self.n_jobs)
        with reading.pool as mapped, reading.session as session:
            gaps = Gaps(self._keeps_correlations, estimated=False, population=self.population_)
            streamed = self._surveyed(reading.opened(mapped, session), mapped, gaps)
            self._check_classes(streamed.classes)
            model = self._resolved(streamed.samples, streamed.measured or None)
            return self._certified(streamed.posed(self.class_weight, model))

    def _certified(self, posed: Posed) -> Certificate:
        """Return the certificate of the classifier in a problem."""
        start = posed.start(*flat(self.coef_, self.intercept_))
        return posed.certificate(certify(posed.problem, *start)[0])

    def _start(self, samples: Samples) -> tuple[Array, Intercept] | None:
        """Return the coefficients and intercepts of a warm start, if there are any."""
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        if self.coef_.shape[1] != samples.X.shape[1] or not np.array_equal(self.classes_, samples.classes):
            return None
        coef, intercept = flat(self.coef_, self.intercept_)
        return coef, intercept if self.fit_intercept else 0 * intercept

    def _scale(self) -> float:
        return 0.0 if self.noise_ is None else self.noise_.scale(self.coef_[0])

    def _score_noise(self) -> Array:
        """Return the covariance of the scores under the noise of the model."""
        if len(self.coef_) == 1:
            return np.array([[self._scale() ** 2]])
        noise = cast(QuadraticNoise | None, self.noise_)  # with more than two classes it is one
        weighted = np.zeros_like(self.coef_) if noise is None else noise.metric(self.coef_)
        return np.asarray(weighted @ self.coef_.T)

    def _noisy_scores(self, X: object, X_err: object) -> tuple[Array, Array | float]:
        X, X_err = self._measured(X, X_err)
        if len(self.coef_) == 1:
            spread: Array | float = self._scale()
            if X_err is not None:
                spread = np.hypot(spread, np.sqrt(check_products(X_err, X).variances(self.coef_)[:, 0]))
            return self._scores(X), spread
        others = len(self.coef_) - 1
        noise = self._score_noise()
        variance: Array | float = (np.trace(noise) - noise.mean() * len(noise)) / others
        if X_err is not None:
            # Noise common to all scores does not matter.
            variances = check_products(X_err, X).variances(self.coef_ - self.coef_.mean(axis=0))
            variance = variance + variances.sum(axis=1) / others
        return self._scores(X), np.sqrt(np.maximum(variance, 0.0))


def sigma_max(
    X: Any, y: Any, sample_weight: Any = None, *, noise: str | ArrayLike = "isotropic", loss: str | Loss = "gaussian"
) -> float:
    """Return a noise level above which the optimal classifier with an intercept ignores the features.

    ::

        sigma_max = S_min ||mu_+ - mu_-|| / (S_maj f*(S_min / S_maj)),      f*(alpha) = phi(Phi^-1(alpha))

    with the total weights ``S`` and the weighted means ``mu`` of the classes, and the norm that is the polar of the
    noise: Euclidean, ``l1`` for "axis", and after whitening for a known covariance. The true threshold may be lower.
    Classes of equal weight never collapse: the value is infinity. It is the natural top of a grid of sigmas, as
    lambda_max is for the lasso.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sample_weight : array-like of shape (n_samples,), default=None
    noise : as in :class:`GuruClassifier`, default="isotropic"
    loss : str or gaussguru.losses.Loss, default="gaussian"
        The loss, which has the conjugate ``f*``.

    Returns
    -------
    float
    """
    samples = check_samples(X, y, sample_weight)
    if len(samples.classes) > 2:
        raise ValueError(f"sigma_max is known for two classes; y has {len(samples.classes)}")
    model = Objective(resolve_loss(loss), resolve_noise(noise, 1.0, samples.X.shape[1]), 0.0, True)
    try:
        return float(pose(samples, model, rescaled=False).problem.collapse_factor)
    except ArithmeticError as error:
        raise explain_not_finite(samples.X) from error
