"""The one classifier for a table of values and their errors."""

import copy
import numbers
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri_exp
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.missing import standard_deviations
from gaussguru._guru.base import Classifier, check_errors_given, seed_of
from gaussguru._guru.streamed import by_parts, class_totals, names_of
from gaussguru._measured.affine import NotLinearError
from gaussguru._measured.calibrated import (
    CalibratedScores,
    calibration_folds,
    margin_and_spread,
    score_moments,
)
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._measured.features import FeatureColumns
from gaussguru._measured.pool import (
    FEW,
    LANDMARKS,
    MODELS,
    LabelledColumns,
    fit_pool,
    ignore_warnings_of_threads,
    members_of,
    pool_folds,
    warn_if_uninformed,
)
from gaussguru._measured.posteriors import (
    LabelledMeasurements,
    View,
    checked_measurements,
    labelled_rows,
    rank_of,
    scaled_part,
    selection_rows,
)
from gaussguru._measured.probit import ProbitWithErrors
from gaussguru._measured.ridge import choose_ridge
from gaussguru._rows.streams import Part
from gaussguru._rows.threads import Pool as Threads
from gaussguru._rows.threads import n_threads
from gaussguru._rows.validation import Samples, class_factors, counted
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.checks import check_choice, check_count, check_flag, check_jobs, check_verbose
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.stages import stage
from gaussguru._utils.types import ErrorBars, Estimator, Labels, MixedArray, Record, Seed, Values
from gaussguru.sources.base import Fields, Mapped, Source
from gaussguru.sources.reading import as_source, subsample_with_groups


class ErrorBarClassifier(CalibratedScores, Classifier):
    """Classifier for features that were measured with known errors: values ± errors in, probabilities out.

    Measured values are truth plus noise. The fit has four steps.

    1. *Population*: :class:`gaussguru.population.Deconvolve` estimates the distribution of the true values from all
       measurements and their error bars. It gives each sample a posterior ``N(m_i, V_i)`` for its true values. Where
       the errors are small, the posterior stays near the measurement. Where they are large, or a value is missing, it
       moves towards the values that the population and the other features predict.
    2. *Noisier copies*: beside every training sample stands a copy with the errors of another sample, times a factor
       from ``noise_range``, and with noise added to match. The members learn from them how classes look under more
       noise, and that the size of an error does not tell the class.
    3. *Members*: gradient boosting, fitted to samples and copies, and to the samples alone; extremely randomised
       trees; logistic regression on expected RBF kernel values; Bayes' rule with a population for each class
       (:class:`PopulationClassifier`): one Gaussian each, and three if all have more than 60 samples; logistic
       regression. Their features are the measured values, the posterior means, the posterior means along the
       principal axes of the population, and which values are missing or limits.
       There is one classifier of each kind for each fold, and their probabilities are averaged.
    4. *Pool*: an average of the members, to a power, because averages of probabilities are too close to 1/2. Weights
       and power maximise the likelihood of held-out samples, as they were measured and with more noise. A sample
       whose posterior is vague has other weights, and another power, than one that is well measured::

           P(c | x, err) ~ (sum_m w_m(err) P_m(c | x, err))^a(err),     w_m >= 0,   sum_m w_m = 1

    Two samples with the same values and different errors therefore have different probabilities. ``cv_scores_`` is the
    table of log losses on held-out samples: of every member, of the pool, of the class frequencies, and of boosting
    that ignores the errors.

    ``model="linear"`` fits one score ``w.x + b`` instead, with probabilities that count its spread under the posterior
    (:class:`gaussguru.calibration.CalibratedWithErrorsCV`)::

        P(y = 1 | x, err) = Phi((alpha (w.m + b) + beta) / sqrt(1 + alpha^2 kappa^2 w' V w))

    ``w`` maximises the likelihood of a probit model of the true values, integrated over the posteriors, minus a ridge
    penalty. This problem is not convex: a descent from ``w = 0`` leads to the solution. The log loss of held-out
    samples chooses the ridge. With more than 10,000 samples (20,000 divided by the number of classes, if there are more
    than two) a stratified subsample of that size decides; population and classifier are always fitted to all samples.
    Use it for one score that can be read, and where samples in use lie beyond those of training.

    Parameters
    ----------
    estimator : classifier, default=None
        A classifier with ``predict_proba`` to take the place of gradient boosting. It is given finite features of
        spread 1.
    model : {"auto", "linear", "rbf", "boosting", "population"}, default="auto"
        "auto" pools all members, "rbf", "boosting" and "population" only those of that name. "linear" is one
        calibrated linear score.
    n_components : int or "auto", default="auto"
        Number of Gaussians in the population. "auto" is 3, or 1 with fewer than 30 samples for each feature; for
        ``model="linear"`` the number that maximises the likelihood of held-out measurements. It is 1 if ``rank_`` is
        not None.
    use_error_sizes : bool, default=False
        Whether the sizes of the errors are features, too. In catalogues they often tell the class, because some
        classes were measured better, and ``cv_scores_`` says what they would gain. Leave it off if samples in use may
        be measured otherwise than those of training.
    noise_range : (float, float), default=(0.5, 3.0)
        Factors on the errors of the noisier copies, least and largest. Choose the second one as large as errors in use
        may be against those of training.
    cv : int, cross-validation generator or iterable, default=4
        How to split the samples. An integer is the number of shuffled, stratified folds. They keep ``groups``
        together, and equal rows, and there are at most as many as there are groups, or samples of the largest class.
        A pool repeats them three times with fewer than 300 samples, and holds out a single part with more than 20,000.
    scale_errors : bool, default=False
        Whether to fit ``kappa``, a factor on all error bars, for ``model="linear"``. If False, it is 1.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``. They affect the fit and the probabilities, which are then
        those for classes with these weights.
    random_state : int, RandomState instance or None, default=None
        Seed for shuffling, copies, subsamples and starting points. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads, for folds and for large fits. None uses all cores available to the process. The result does
        not depend on it.
    verbose : int, default=0
        1 prints every stage of a fit when it ends, with its seconds and the fraction of the folds that are done; 2 also
        those of the population.

    Warns
    -----
    CollapseWarning
        If the log loss of held-out samples is not below that of the class frequencies by more than the standard error
        of the difference.

    Attributes
    ----------
    cv_scores_ : dict of ndarrays
        Of a pool: "member", "weight" (mean over the samples as measured), "log_loss", its "standard_error" (of the
        difference from the pool, or of "error sizes ..." from boosting), and with error bars the last three as
        "..._noisier", of the same samples with more noise. Rows below the members: "errors ignored" (boosting on the
        measured values alone), "error sizes used" or "error sizes not used" (boosting with the other choice of
        ``use_error_sizes``), "pool", "class frequencies". Of ``model="linear"``: "ridge" and "log_loss" of every ridge
        penalty.
    members_ : dict of lists
        The classifiers of a pool by name, one for each fold.
    weights_ : ndarray of shape (2, n_members)
        The weights of the members of a pool, for samples as measured and for noisier ones.
    method_ : str
        "pool", or "probit" for ``model="linear"``.
    rank_ : int or None
        Number of factors of the population covariance if there are more than 60 features or fewer than 4 samples per
        feature; None for a full covariance.
    population_ : gaussguru.population.Deconvolve
        The population, in the units of X.
    reliability_ : ndarray of shape (n_features,)
        Fraction of the population variance of each feature that the measurements resolve: 1 for exact values.
    centre_, scale_ : ndarrays of shape (n_features,)
        Mean and spread of the population, used to scale the features.
    ridge_ : float
        The chosen ridge penalty of ``model="linear"``, for features in units of the spread of the population.
    alpha_, beta_, kappa_, kappa_pvalue_
        The calibration of ``model="linear"``, as in :class:`gaussguru.calibration.CalibratedWithErrorsCV`.
    estimator_ : classifier
        The linear classifier of ``model="linear"``, fitted to the scaled posteriors.
    has_errors_ : bool
        Whether the fit had error bars. If so, every prediction requires them.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    GuruClassifier : For noise that will be added after training.
    gaussguru.preprocessing.errors_from_frame : Splits a table into values and errors.
    gaussguru.robustness.remeasure_gain : Which samples to measure again.
    gaussguru.models.save_model : Model files without pickle.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import ErrorBarClassifier
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(400, 2))
    >>> y = truth[:, 0] + 0.5 * rng.normal(size=400) > 0
    >>> X_err = rng.uniform(0.1, 1.0, size=(400, 2))
    >>> X = truth + X_err * rng.normal(size=(400, 2))
    >>> clf = ErrorBarClassifier().fit(X, y, X_err=X_err)
    >>> exact, vague = clf.predict_proba([[1.0, 0.0]] * 2, X_err=[[0.1, 0.1], [2.0, 2.0]])[:, 1]
    >>> bool(exact > vague > 0.5)
    True
    """

    _takes_sources: ClassVar = True
    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__decision_function: ClassVar = {"X_err": True}

    estimator_: Estimator

    def __init__(
        self,
        estimator: Estimator = None,
        *,
        model: str = "auto",
        n_components: int | str = "auto",
        use_error_sizes: bool = False,
        noise_range: tuple[float, float] = (0.5, 3.0),
        cv: object = 4,
        scale_errors: bool = False,
        class_weight: Record | str | None = None,
        random_state: Seed = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.model = model
        self.n_components = n_components
        self.use_error_sizes = use_error_sizes
        self.noise_range = noise_range
        self.cv = cv
        self.scale_errors = scale_errors
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self, X: Values, y: Labels, sample_weight: object = None, X_err: ErrorBars = None, groups: Labels = None
    ) -> Self:
        """Fit population, classifier and calibration.

        A fit that raises or is interrupted leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
            The measured values. NaN means "not measured" and is allowed if ``X_err`` is given. If X is a source
            (:mod:`gaussguru.sources`), the population and a linear classifier are fitted to all rows; methods are
            compared, probabilities calibrated and the members of a pool fitted on a subsample of at most 100,000 rows.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 0 leaves a sample out, weight 2 is a sample that occurs twice. But a sample
            of weight 2 is in one fold, and two equal samples may be in two, unless they are one group: so the
            choices by held-out samples may differ. Trees and kernels of a pool count rows in bins, leaves and
            landmarks, and every row has a copy of its own: there, weight 2 and two samples are nearly the same.
            Weights below 1 on average are relative.
        X_err : array-like of shape (n_samples,), (n_samples, n_features) or (n_samples, n_features, n_features), \
                sparse matrix, gaussguru.errors.LowRank, Limits or Asymmetric, or float, default=None
            Error bars in the units of X: standard deviations, or covariances (3-D). Infinity means "not measured", 0
            means exact. A single number is the error of every value. None: all values are exact.
        groups : array-like of shape (n_samples,), default=None
            Samples of one group stay in the same fold. Of a source, an array with the groups of all its samples.

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._fit_source, source, Fields(y, sample_weight, X_err), groups)
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err, groups)

    def _fit(
        self,
        X: Values,
        y: Labels,
        sample_weight: object,
        X_err: ErrorBars,
        groups: Labels,
        whole: tuple[Source, Fields] | None = None,
    ) -> Self:
        """Fit samples in memory; the population is that of a whole source if these are a subsample of one."""
        self._check_parameters()
        X, X_err = checked_measurements(self, X, X_err, reset=True)
        X, X_err, weights, labelled, all_rows = labelled_rows(X, X_err, y, sample_weight, self.class_weight)
        seed = seed_of(self.random_state)
        self.has_errors_, self.classes_ = X_err is not None, labelled.classes
        self.rank_ = rank_of(*X.shape) if self.has_errors_ else None
        for name in ("alpha_", "beta_", "kappa_", "kappa_pvalue_", "ridge_", "estimator_", "features_", "pool_"):
            self.__dict__.pop(name, None)  # a linear model and a pool have other attributes
        with stage(self, "population"):
            population = self._population_of(X, X_err, weights, whole, seed)
        self.population_, self.centre_, self.scale_ = View.of(population)
        self.reliability_ = np.ones(X.shape[1])
        if self.has_errors_:
            self.reliability_ = population.reliability(X, X_err, sample_weight=weights)
        table = LabelledMeasurements(self._view, X, X_err, weights, labelled, seed)
        if self._is_linear:
            return self._fit_linear(table, self._folds(X, all_rows, groups, seed))
        by_number = isinstance(self.cv, numbers.Integral)
        repeats = 3 if by_number and len(X) < FEW else 1
        folds = [fold for k in range(repeats) for fold in self._folds(X, all_rows, groups, seed + k)]
        return self._fit_pool(table, folds[:1] if by_number and len(X) > 20_000 else folds)

    def _population_of(
        self, X: Array, X_err: ErrorBars, weights: Array | None, whole: tuple[Source, Fields] | None, seed: int
    ) -> Deconvolve:
        """Return the population of samples, or of the source of which they are a subsample."""
        number = self.n_components
        if number == "auto" and (self.rank_ or X_err is None):
            number = 1
        elif number == "auto" and not self._is_linear:
            number = 3 if len(X) > 30 * X.shape[1] else 1  # few samples make one Gaussian
        verbose = max(0, int(self.verbose) - 1)
        population = Deconvolve(number, rank=self.rank_, random_state=seed, n_jobs=self.n_jobs, verbose=verbose)
        if whole is None:
            return population._fit(X, X_err, weights)
        source, fields = whole
        population.fit(source, fields.y, fields.X_err, fields.weight)
        population.__dict__.pop("feature_names_in_", None)  # it is given arrays from now on
        return population

    def _fit_pool(self, table: LabelledMeasurements, folds: list[tuple[Index, Index]]) -> Self:
        """Fit the members to the samples and to noisier copies, and weigh them on held-out ones."""
        labelled, seed = table.labelled, table.seed
        X, X_err = table.X, _of_every_value(table.X_err, table.X.shape)
        labels, weights = labelled.labels.astype(np.intp), labelled.weights
        self.features_ = FeatureColumns.of(table.view, X, X_err, high=self.noise_range[1])
        if len(X) > (most := 100_000):
            rows, factors = selection_rows(labelled, seed, most)
            weights = None if weights is None and np.allclose(factors[rows], 1.0) else labelled.all_weights * factors
            X, X_err, labels = X[rows], None if X_err is None else take_rows(X_err, rows), labels[rows]
            weights, folds = None if weights is None else weights[rows], _among(folds, rows, len(labelled.labels))
        samples = LabelledColumns(self.features_.columns(X, X_err), labels, weights)
        errors = standard_deviations(X_err, X.shape)
        copies = self.has_errors_ and bool(np.any((errors > 0) & np.isfinite(errors)))
        members = members_of(
            self.model,
            self.estimator,
            np.bincount(labels, minlength=len(self.classes_)),
            X.shape[1],
            seed,
            copies=copies,
            sizes=self.use_error_sizes,
        )
        self.method_ = "pool"
        with stage(self, "noisier copies"):
            splits = pool_folds(self.features_, samples, folds, self.noise_range if copies else None, seed)
        del samples, errors  # the folds have copies
        self.pool_, self.cv_scores_ = fit_pool(members, splits, self.n_jobs, partial(stage, self))
        return self

    def _fit_linear(self, table: LabelledMeasurements, folds: list[tuple[Index, Index]]) -> Self:
        """Choose a ridge on held-out samples, and fit a probit regression to all, with its calibration."""
        labelled = table.labelled
        rows, factors = selection_rows(labelled, table.seed)
        weights = labelled.all_weights * factors
        folds = [(rows[train], rows[test]) for train, test in _among(folds, rows, len(weights))]
        best = choose_ridge(table, folds, weights, self.n_jobs, partial(stage, self))
        warn_if_uninformed(best.losses, best.labels, best.weights, len(self.classes_))
        self.cv_scores_, self.method_, self.ridge_ = best.cv_scores, "probit", best.ridge
        self._keep_calibration(best.calibration, len(self.classes_), scale_errors=self.scale_errors)
        # Only now: covariances of all samples are many numbers, which the loop over the folds has no use for.
        posterior = table.view.posterior(table.X, table.X_err)
        with stage(self, "fit of all samples"):
            self.estimator_ = ProbitWithErrors(best.ridge, n_jobs=self.n_jobs)
            self.estimator_.fit(
                posterior, labelled.classes[labelled.labels.astype(np.intp)], labelled.weights, start=best.start
            )
        return self

    def _fit_source(self, source: Source, fields: Fields, groups: Labels) -> Self:
        """Fit the population, and a linear classifier, to all samples of a source, and the rest to a subsample."""
        with stage(self, "subsample"):
            samples = subsample_with_groups(source, fields, groups, n_jobs=self.n_jobs)
        self._fit(*samples, (source, fields))
        X_err = samples[3]
        source = Mapped(source, names_in=names_of(self))
        if X_err is not None:
            with stage(self, "reliability of all samples"):
                self.reliability_ = self.population_.reliability(
                    source, fields.X_err, sample_weight=fields.weight, y=fields.y
                )
        if not self._is_linear:
            return self
        posteriors = source if X_err is None else self.population_.transform(source, fields.X_err)
        posteriors = Mapped(posteriors, partial(scaled_part, self.centre_, self.scale_))
        factors = np.ones(len(self.classes_))
        if self.class_weight is not None:
            totals = class_totals(posteriors, fields, self.classes_, self.n_jobs)
            factors = np.array(class_factors(self.class_weight, self.classes_, totals))
        if samples[2] is not None:
            weights = samples[2][samples[2] > 0]
            factors *= counted(weights).sum() / weights.sum()
        if np.any(factors != 1.0):
            posteriors = Mapped(posteriors, partial(_weighted_part, self.classes_, factors))
        subsampled = self.estimator_
        self.estimator_ = clone(subsampled)
        with stage(self, "fit of all samples"):
            start = subsampled.coef_, subsampled.intercept_
            self.estimator_.fit(posteriors, fields.y, fields.weight, start=start)
        self.estimator_.__dict__.pop("feature_names_in_", None)  # it is given arrays
        return self

    def _check_parameters(self) -> None:
        check_choice("model", self.model, MODELS)
        if self.estimator is not None and self.model not in ("auto", "boosting"):
            raise ValueError(
                f"estimator takes the place of boosting, which model={self.model!r} does not have: leave one of them "
                'out, or set model="boosting"'
            )
        if self.estimator is not None and not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"estimator must be a classifier with predict_proba; got {type(self.estimator).__name__}: "
                "sklearn.calibration.CalibratedClassifierCV gives it one"
            )
        if self.scale_errors and self.model != "linear":
            raise ValueError(f'scale_errors=True is for model="linear"; got model={self.model!r}')
        check_flag("use_error_sizes", self.use_error_sizes)
        check_flag("scale_errors", self.scale_errors)
        given = self.noise_range
        is_pair = (
            isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(x, numbers.Real) for x in given)
        )
        if not is_pair or not 0 < given[0] <= given[1] < np.inf or given[1] < 1:
            raise ValueError(
                "noise_range must be two numbers, 0 < low <= high and high >= 1: factors on the errors of training; "
                f"got {self.noise_range!r}"
            )
        check_jobs("n_jobs", self.n_jobs)
        check_verbose("verbose", self.verbose)

    def _folds(self, X: Array, all_rows: Samples, groups: Labels, seed: int) -> list[tuple[Index, Index]]:
        """Return the folds, as row numbers among the samples of positive weight, which are the rows of X.

        Rows of one sample are in one fold: otherwise held-out samples would be in the training samples, too.
        """
        cv, labels = self.cv, all_rows.labels.astype(np.intp)
        used = np.flatnonzero(all_rows.all_weights > 0)
        weights, first = all_rows.weights, np.arange(len(used))
        if isinstance(cv, numbers.Integral):
            check_count("cv", cv, low=2)
            same = first_copies(X)
            if groups is None and np.bincount(labels[used[np.unique(same)]], minlength=len(all_rows.classes)).min() > 1:
                first = same
            weights = all_rows.all_weights.copy()
            weights[used[first != np.arange(len(used))]] = 0.0  # only the first one is split
            most = int(np.bincount(labels[weights > 0]).max())
            if groups is not None:
                most = min(most, len(np.unique(groups)))
            n_folds = max(2, min(int(cv), most))
            kind = StratifiedKFold if groups is None else StratifiedGroupKFold
            cv = kind(n_folds, shuffle=True, random_state=seed)
        rows = np.zeros((len(labels), 1))
        folds = calibration_folds(cv, rows, labels, all_rows.classes, weights, {"groups": groups})
        position = np.zeros(len(labels), dtype=np.intp)
        position[used] = np.arange(len(used))
        result = []
        for fold in folds:
            train, test = (np.isin(first, position[part]) for part in fold)
            result.append((np.flatnonzero(train), np.flatnonzero(test)))
        return result

    @property
    def _view(self) -> View:
        return View(self.population_, self.centre_, self.scale_)

    def _posteriors(self, X: Values, X_err: ErrorBars) -> Iterator[Values]:
        """Yield the posteriors of new samples, in the units of the classifier, some at a time."""
        X, X_err = self._measured(X, X_err)
        for part in row_blocks(len(X), X.shape[1] ** 2):
            yield self._view.posterior(X[part], None if X_err is None else take_rows(X_err, part))

    def _measured(self, X: Values, X_err: ErrorBars) -> tuple[Array, ErrorBars]:
        """Return new measurements with their errors, checked."""
        check_is_fitted(self)
        X, X_err = checked_measurements(self, X, X_err, reset=False)
        check_errors_given(self, X_err)
        return X, X_err

    def refit_population(self, X: Values, X_err: ErrorBars = None) -> "ErrorBarClassifier":
        """Return the same classifier with the population of other samples, which need no labels.

        Use it if new samples come from a different population than the training samples, such as faint instead of
        bright objects. Then the prior of the true values changes, but not their relation to the class. Classifier and
        calibration are kept (:meth:`gaussguru.population.Deconvolve.refit_population`). In a pool, populations of
        single classes are kept, too, because they cannot be fitted without labels. The error bars of the new samples
        must be right: the population is estimated by removing this noise from the measured values.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
            Measured values of the new samples.
        X_err : error bars of X, default=None

        Returns
        -------
        ErrorBarClassifier
        """
        check_is_fitted(self)
        if not self.has_errors_:
            raise ValueError("refit_population needs a fit with X_err: without errors a population changes nothing")
        result = copy.copy(self)
        result.population_ = self.population_.refit_population(*self._measured(X, X_err))
        if not self._is_linear:
            result.features_ = replace(self.features_, view=result._view)
        return result

    @by_parts
    def predict_log_proba(self, X: Values, X_err: ErrorBars = None) -> Array:
        """Return the logarithms of the probabilities, accurate even if these are very small.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`fit`, but they may be larger or smaller than in training. Required if the fit had error bars;
            0 means exact values.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        if self._is_linear:
            return np.concatenate([self._calibrated_logs(part) for part in self._posteriors(X, X_err)])
        X, X_err = self._measured(X, X_err)
        with warnings.catch_warnings(), Threads(n_threads(self.n_jobs)) as mapped:
            ignore_warnings_of_threads()
            parts = [
                self.pool_.probabilities(
                    self.features_.columns(X[part], None if X_err is None else take_rows(X_err, part)), mapped
                )
                for part in row_blocks(len(X), LANDMARKS) or [slice(0)]
            ]
        with np.errstate(divide="ignore"):
            return np.log(np.concatenate(parts))

    def check_samples(self, X: Values, X_err: ErrorBars = None) -> str:
        """Return in words how many samples are unlike those of training, and in which features.

        Probabilities of such samples are extrapolated. Three kinds are counted: measured values beyond the range of
        training by more than two of their errors, errors larger than ``noise_range[1]`` times the largest of training,
        and missing values of features that training always had.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`predict_log_proba`.

        Returns
        -------
        str
            One line for each kind and feature, with advice; empty if all samples are like those of training.
        """
        if self._is_linear:
            raise ValueError('check_samples is for a pool; got model="linear"')
        words = {
            "values": (
                "values beyond the range of training",
                'model="linear" extrapolates by a straight line, trees do not at all; add such samples to training',
            ),
            "errors": (
                "errors beyond noise_range",
                "set noise_range to the largest ratio of errors in use to those of training",
            ),
            "gaps": (
                "missing values where training had none",
                "they are filled from the population, and their being missing is not taken for information",
            ),
        }
        X, X_err = self._measured(X, X_err)
        names = getattr(self, "feature_names_in_", [f"feature {j}" for j in range(X.shape[1])])
        lines = []
        for kind, unlike in self.features_.unlike_training(X, X_err).items():
            columns = [f"{names[j]} ({count})" for j, count in enumerate(unlike.sum(axis=0)) if count]
            if columns:
                n, (problem, advice) = int(unlike.any(axis=1).sum()), words[kind]
                lines.append(f"{n} of {len(X)} samples have {problem}: {', '.join(columns)}; {advice}")
        return "\n".join(lines)

    @property
    def members_(self) -> dict[str, list[Estimator]]:
        """The classifiers of every member of a pool, one for each fold."""
        return {member.name: member.models for member in self.pool_.members}

    @property
    def weights_(self) -> Array:
        """The weights of the members, (2, n_members): for samples as measured, and for noisier ones."""
        return self.pool_.weights

    @by_parts
    def decision_function(self, X: Values, X_err: ErrorBars = None) -> Array:
        """Return ``Phi^-1(P)`` of the second class, or the log probabilities of more than two classes.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`predict_log_proba`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        logs = self.predict_log_proba(X, X_err)
        if logs.shape[1] > 2:
            return logs
        likely = logs[:, 1] > logs[:, 0]
        lower = ndtri_exp(np.minimum(logs.min(axis=1), -np.log(2.0)))
        return np.asarray(np.where(likely, -lower, lower))

    @by_parts
    def margin_and_spread(self, X: Values, X_err: ErrorBars = None) -> tuple[Array, Array]:
        """Return the mean and the standard deviation of the scores of ``estimator_`` under the posteriors.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`predict_log_proba`.

        Returns
        -------
        margin, spread : ndarrays of shape (n_samples,), or (n_samples, n_classes) for more than two classes
        """
        self._check_scores()
        parts = [margin_and_spread(self.estimator_, part) for part in self._posteriors(X, X_err)]
        margin, spread = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return margin, spread

    def _score_moments(self, X: Values, X_err: ErrorBars = None, *, rooted: bool = False) -> tuple[Array, Array, Array]:
        """Return weights, means and covariances of the scores of ``estimator_``, or roots of these."""
        self._check_scores()
        parts = [score_moments(self.estimator_, part, rooted=rooted) for part in self._posteriors(X, X_err)]
        weights, means, noise = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return weights, means, noise

    @property
    def _spreads(self) -> Array:
        """The spreads of the features, in the units of X."""
        return self.scale_

    @property
    def _is_linear(self) -> bool:
        """Whether this is one linear score, not a pool."""
        return self.model == "linear"

    def _check_scores(self) -> None:
        check_is_fitted(self)
        if not self._is_linear:
            raise NotLinearError(
                'the probabilities of a pool are an average, and no score has their spread; model="linear" has one '
                "score, and predict_proba accounts for the error bars"
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def first_copies(X: Array) -> Index:
    """Return for every row the number of the first row of the same sample, (n,); its own if there is no other one.

    Rows are of one sample if they are equal, and no other row has their values of at least two features. So rows that
    are equal because all values are coarse, or few, count as different samples.
    """
    n = len(X)
    keys = np.zeros(n, dtype=np.uint64)
    rng = np.random.default_rng(0)
    for column in X.T:
        bits = (np.where(np.isnan(column), 0.0, column) + 0.0).view(np.uint64)  # -0.0 is 0.0
        keys += (bits ^ bits >> np.uint64(32)) * np.uint64(2 * int(rng.integers(2**63)) + 1)
    _, first, sample, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if len(first) == n:
        return np.arange(n)
    n_alone = np.zeros(n, dtype=np.intp)
    for column in X.T:
        _, value, count = np.unique(column, return_inverse=True, return_counts=True)
        n_alone += (count[value] == copies[sample]) & ~np.isnan(column)
    return np.where(n_alone >= 2, first[sample], np.arange(n))


def _among(folds: list[tuple[Index, Index]], rows: Index, n_samples: int) -> list[tuple[Index, Index]]:
    """Return the folds of a subsample of rows, as positions in it."""
    position = np.full(n_samples, -1)
    position[rows] = np.arange(len(rows))
    return [(train[train >= 0], test[test >= 0]) for train, test in ((position[a], position[b]) for a, b in folds)]


def _of_every_value(X_err: ErrorBars, shape: tuple[int, int]) -> ErrorBars:
    """Return errors in the form of noisier copies: standard deviations of every value, (n, d), or covariances."""
    if sp.issparse(X_err) or (isinstance(X_err, np.ndarray) and X_err.ndim == 1):
        return np.array(standard_deviations(X_err, shape))
    return X_err


def _weighted_part(classes: MixedArray, factors: Array, part: Part) -> Part:
    """Return a part with its weights multiplied by the factors of the classes."""
    weight = factors[np.searchsorted(classes, part.y)]
    return part._replace(weight=weight if part.weight is None else part.weight * weight)
