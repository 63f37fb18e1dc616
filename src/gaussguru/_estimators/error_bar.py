"""The one classifier for a table of values and their errors."""

import copy
import numbers
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from gaussguru._blocks import row_blocks
from gaussguru._data.streams import Part
from gaussguru._errors import Measured, scaled, split_errors, standard_deviations
from gaussguru._estimators.base import Classifier, CollapseWarning, check_errors_given, seed_of
from gaussguru._estimators.comparison import Candidate, Comparison, compare, selection_rows, stacking_weights
from gaussguru._estimators.draws import PosteriorDrawsClassifier
from gaussguru._estimators.families import (
    METHODS,
    Family,
    drawn_families,
    fitted_to,
    given_families,
    knows_spread,
    linear_families,
    population_families,
    rbf_families,
)
from gaussguru._estimators.link import Calibration
from gaussguru._estimators.posteriors import (
    Table,
    View,
    checked_measurements,
    informative_gaps,
    labelled_rows,
    quantile_transform,
    rank_of,
    transformed,
    with_indicators,
)
from gaussguru._estimators.streamed import by_parts, class_totals, names_of, takes_sources
from gaussguru._estimators.validation import (
    Samples,
    check_choice,
    check_count,
    check_flag,
    check_jobs,
    class_factors,
    rows_of_each,
)
from gaussguru._frames import take_rows
from gaussguru._linalg import Array, Index, log_sum
from gaussguru.calibration import ByProbability, CalibratedWithErrorsCV, score_moments
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.preprocessing.affine import NotLinearError
from gaussguru.sources import Fields, Mapped, Source, as_source, subsample

KERNELS = ("linear", "rbf", "auto")
# What some fits have and others do not: one calibrated classifier, or several.
OF_SOME = (
    "cv_scores_",
    "alpha_",
    "beta_",
    "kappa_",
    "kappa_pvalue_",
    "members_",
    "weights_",
    "estimator_",
    "_calibrated",
)


class ErrorBarClassifier(ByProbability, Classifier):
    """Classifier for features that were measured with known errors: values ± errors in, probabilities out.

    Measured values are truth plus noise. The fit has three steps.

    1. *Population*: :class:`gaussguru.population.Deconvolve` estimates the distribution of the true values from all
       measurements and their error bars. It gives each sample a posterior ``N(m_i, V_i)`` for its true values. Where
       the errors are small, the posterior stays near the measurement. Where they are large, or a value is missing, it
       moves towards the values that the population and the other features predict.
    2. *Classifier*: a linear classifier ``w.x + b`` is fitted to the posteriors. Features are scaled by the spread of
       the population; their errors are scaled with them.
    3. *Calibration*: scores become probabilities that account for the overlap of the classes and for the error bars of
       the sample (:class:`gaussguru.calibration.CalibratedWithErrorsCV`)::

           P(y = 1 | x, err) = Phi((alpha (w.m + b) + beta) / sqrt(1 + alpha^2 kappa^2 w' V w))

    Two samples with the same values and different errors therefore have different probabilities.

    Three methods can find ``w``, each at several noise levels or ridge penalties:

    * "shrunk": :class:`GuruClassifier` on the posterior means alone;
    * "posterior": the same with the posterior covariances as ``X_err``. It minimises the expected hinge loss under the
      posteriors;
    * "probit": maximum likelihood of the formula above over ``w``. Samples with vague posteriors carry little weight,
      so it does best where errors differ a lot. The problem is not convex; the result is a local maximum.

    With ``kernel="rbf"`` the score is a function in the span of Gaussian kernel values with 300 of the samples,
    fitted to the posterior means (:class:`KernelGuruClassifier`). Its mean and variance under the posterior replace
    ``w.m + b`` and ``w' V w``. Features are used as they are, or each goes through a quantile transform to a normal
    distribution that carries the errors (:class:`gaussguru.preprocessing.WithErrors`), with a population of the
    transformed values. Kernel widths, with and without the transform, are compared on the first fold; the best two
    are compared at all noise levels on all folds. ``kernel="auto"`` adds these candidates to the linear ones, and
    "probit" on transformed features; the same rule chooses.

    Cross-validation compares their log losses on held-out samples. "probit" is chosen unless another method is better
    by more than the standard error of the difference; otherwise the lowest log loss wins. All candidates share one
    loop over the folds, and the same held-out scores are used to choose and to calibrate. With more than 10,000
    samples (20,000 divided by the number of classes, if there are more than two) this loop uses a stratified subsample
    of that size, on which log losses of two candidates are compared to about 0.002. Population and classifier are
    always fitted to all samples.

    With ``stack=True`` probabilities are an average (stacking; a linear opinion pool)::

        P(c | x, err) = sum_j weight_j P_j(c | x, err),     weight_j >= 0,   sum_j weight_j = 1

    over the best linear classifier, the best kernel classifier unless ``kernel`` is linear, Bayes' rule with a
    population for each class (:class:`PopulationClassifier`), and ``estimator``, if given; unless ``kernel`` is linear,
    with and without the quantile transform. The weights maximise the likelihood of the held-out samples, which is
    concave in them. A stack has the lowest log loss on most data sets, takes longer, and has no single score:
    ``margin_and_spread`` and :func:`gaussguru.robustness.remeasure_gain` are for its members.

    The number of components of the population maximises the likelihood of held-out measurements. Log loss cannot
    choose it: the training samples do not show how the classifier behaves at errors larger than theirs.

    Parameters
    ----------
    estimator : classifier, default=None
        A classifier to use instead of the three methods. A linear one, or a :class:`KernelGuruClassifier`, is fitted
        to the posterior means and, if its ``fit`` takes ``X_err`` and "posterior" is among the methods, also with the
        posterior covariances. Any other classifier (``HistGradientBoostingClassifier()``) is fitted to draws from the
        posteriors, and its probabilities are averaged over draws (:class:`PosteriorDrawsClassifier`). In that case
        nothing is chosen or calibrated, and ``cv_scores_``, ``alpha_``, ``beta_``, ``kappa_`` and
        ``margin_and_spread`` do not exist. With ``stack=True`` it is one classifier among others.
    kernel : {None, "linear", "rbf", "auto"}, default=None
        Linear classifiers (None means the same), functions of RBF kernel values, or the better of the two by log loss,
        which takes two to four times as long as "linear".
    n_components : int or "auto", default="auto"
        Number of Gaussians in the population. "auto" chooses by held-out likelihood; it is 1 if ``rank_`` is not None.
    methods : sequence of {"shrunk", "posterior", "probit"}, default=("shrunk", "posterior", "probit")
        The methods to choose from. Without ``X_err``, "posterior" is the same as "shrunk" and is left out. Functions of
        kernel values are fitted as "shrunk", or if it is the only one, as "posterior", which takes ten times as long.
    missing_indicator : bool, default=False
        Whether to add, for each feature with missing values in the fit, a 0/1 feature: 1 where the value is missing
        (one for features that the same samples lack). Use it if missingness is informative about the
        class, and will be so in the same way in use. For samples in memory.
    stack : bool, default=False
        Whether to average the probabilities of several classifiers instead of choosing one.
    cv : int, cross-validation generator or iterable, default=5
        How to split the samples. An integer is the number of shuffled, stratified folds. They keep ``groups``
        together, and there are at most as many as the smallest class has samples.
    scale_errors : bool, default=False
        Whether to fit ``kappa``, a factor on all error bars. If False, it is 1.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``. They affect the fit and the probabilities, which are then
        those for classes with these weights.
    random_state : int, RandomState instance or None, default=None
        Seed for shuffling, subsamples and starting points. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads, for folds and for large fits. None uses all cores available to the process. The result does
        not depend on it.

    Attributes
    ----------
    method_ : str
        The chosen method. "shrunk" without error bars is a plain :class:`GuruClassifier`; "draws" means an
        ``estimator`` that was fitted to draws; "stack" an average.
    members_ : list of classifiers
        The members of a stack with positive weight. ``estimator_`` and other attributes of a single classifier
        (``alpha_``, ``sigma_``, ...) are found there.
    weights_ : ndarray of shape (n_members,)
        The weights of the members of a stack.
    kernel_ : {"linear", "rbf"} or None
        The chosen kernel; None for an ``estimator``.
    gamma_ : float or None
        The chosen width of the "rbf" kernel, for features in units of the spread of the population.
    transform_ : gaussguru.preprocessing.WithErrors or None
        The quantile transform, if it was chosen. ``population_``, ``centre_``, ``scale_`` and ``reliability_`` are then
        those of transformed features.
    sigma_ : float or None
        The chosen noise level, in units of the spread of the population, or of the kernel space; None for "probit" and
        for an ``estimator``.
    ridge_ : float or None
        The chosen ridge penalty of "probit"; None otherwise.
    cv_scores_ : dict of ndarrays
        "kernel" (also "populations", "draws" and "given"), "transform" ("none" or "quantile"), "method", "gamma",
        "level" (sigma, ridge penalty, or NaN) and "log_loss" of every candidate. The log loss is that of calibrated
        probabilities of held-out samples, with ``kappa = 1``; for more than two classes, posteriors that are mixtures
        count as one Gaussian there.
    rank_ : int or None
        Number of factors of the population covariance if there are more than 60 features or fewer than 4 samples per
        feature; None for a full covariance.
    population_ : gaussguru.population.Deconvolve
        The population, in the units of X, or of the features transformed by ``transform_``.
    reliability_ : ndarray of shape (n_features,)
        Fraction of the population variance of each feature that the measurements resolve: 1 for exact values.
    indicators_ : ndarray of int
        The features with a missing indicator. Indicators are further features of ``population_``, ``centre_``,
        ``scale_`` and ``estimator_``, the last ones.
    alpha_, beta_, kappa_, kappa_pvalue_
        The calibration, as in :class:`gaussguru.calibration.CalibratedWithErrorsCV`.
    estimator_ : classifier
        The classifier fitted to the scaled posteriors.
    centre_, scale_ : ndarrays of shape (n_features,)
        Mean and spread of the population, used to scale the features.
    has_errors_ : bool
        Whether the fit had error bars. If so, every prediction requires them.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

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

    estimator_: Any

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernel: str | None = None,
        n_components: int | str = "auto",
        methods: Sequence[str] = METHODS,
        missing_indicator: bool = False,
        stack: bool = False,
        cv: Any = 5,
        scale_errors: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.kernel = kernel
        self.n_components = n_components
        self.methods = methods
        self.missing_indicator = missing_indicator
        self.stack = stack
        self.cv = cv
        self.scale_errors = scale_errors
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_err: Any = None, groups: Any = None) -> Self:
        """Fit population, classifier and calibration.

        A fit that raises or is interrupted leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
            The measured values. NaN means "not measured" and is allowed if ``X_err`` is given. If X is a source
            (:mod:`gaussguru.sources`), methods are compared and probabilities calibrated on a subsample of at most
            100,000 rows; the population and the classifier are fitted to all rows (an ``estimator`` that does not read
            sources is fitted to the subsample, and so is everything with a ``kernel`` that is not linear, or a stack).
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 0 leaves a sample out, weight 2 is a sample that occurs twice. But a sample
            of weight 2 is in one fold, and two equal samples may be in two, unless they are one group: so what is
            chosen by held-out samples may differ.
        X_err : array-like of shape (n_samples,), (n_samples, n_features) or (n_samples, n_features, n_features), \
                sparse matrix, gaussguru.errors.LowRank, Limits or Asymmetric, or float, default=None
            Error bars in the units of X: standard deviations, or covariances (3-D). Infinity means "not measured", 0
            means exact. A single number is the error of every value. None: all values are exact.
        groups : array-like of shape (n_samples,), default=None
            Samples of one group stay in the same fold.

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._fit_source, source, Fields(y, sample_weight, X_err), groups)
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err, groups)

    def _fit_source(self, source: Source, fields: Fields, groups: Any) -> Self:
        """Fit population and classifier to all samples of a source, and what is chosen between to some of them."""
        if groups is not None:
            raise ValueError("groups are for samples in memory; got them with a source")
        if self.missing_indicator:
            raise ValueError("missing_indicator is for samples in memory; got a source")
        X, y, sample_weight, X_err = subsample(source, *fields, n_jobs=self.n_jobs)
        if self.stack or self.kernel in ("rbf", "auto"):  # kernels, and transforms, are of samples in memory
            return self._fit(X, y, sample_weight, X_err, None)
        self._fit(X, y, sample_weight, X_err, None, (source, fields))
        source = Mapped(source, names_in=names_of(self))
        to_scale = partial(_scaled_part, self.centre_, self.scale_, keep_errors=self.method_ != "shrunk")
        if X_err is None:
            posteriors = Mapped(source, to_scale)
        else:
            posteriors = Mapped(self.population_.transform(source, fields.X_err), to_scale)
            self.reliability_ = self.population_.reliability(
                source, fields.X_err, sample_weight=fields.weight, y=fields.y
            )
        if takes_sources(self.estimator_):
            self._refit_source(posteriors, fields)
        return self

    def _refit_source(self, posteriors: Source, fields: Fields) -> None:
        """Fit the classifier chosen to all posteriors."""
        model = clone(self.estimator_)
        if self.method_ == "probit":  # from the same minimum on
            model = copy.copy(self.estimator_)
        elif self.estimator is None:  # a subsample of their own brings them nearer in fewer passes
            model.set_params(warm_start=False)
        if self.class_weight is not None:
            totals = class_totals(posteriors, fields, self.classes_, self.n_jobs)
            factors = np.array(class_factors(self.class_weight, self.classes_, totals))
            posteriors = Mapped(posteriors, partial(_weighted_part, self.classes_, factors))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            model.fit(posteriors, fields.y, sample_weight=fields.weight)
        model.__dict__.pop("feature_names_in_", None)  # it is given arrays
        self.estimator_ = self._calibrated.estimator_ = model

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, X_err: Any, groups: Any, whole: tuple[Source, Fields] | None = None
    ) -> Self:
        self._check_parameters()
        X, X_err = checked_measurements(self, X, X_err, reset=True)
        X, X_err, plain, labelled, all_rows = labelled_rows(X, X_err, y, sample_weight, self.class_weight)
        has_gaps = self.missing_indicator and X_err is not None
        self.indicators_ = informative_gaps(X, X_err) if has_gaps else np.zeros(0, dtype=np.intp)
        X, X_err = with_indicators(X, X_err, self.indicators_)
        seed = seed_of(self.random_state)
        errors = X_err is not None
        self.has_errors_, self.classes_ = errors, labelled.classes
        self.rank_ = rank_of(*X.shape) if errors else None
        tables = [
            self._table(transform, X, X_err, plain, labelled, seed, whole)
            for transform in self._transforms(X, X_err, plain)
        ]
        for name in OF_SOME:
            self.__dict__.pop(name, None)
        all_weights = all_rows.all_weights
        own_groups = rows_of_each(groups, np.flatnonzero(all_weights), len(all_weights))
        if not self.stack and self.estimator is not None and not knows_spread(self.estimator):
            return self._fit_draws(tables[0], plain, own_groups)
        compared = self._compared(tables, self._folds(all_rows, groups, seed))
        if self.stack:
            return self._fit_stack(compared, tables[0], plain, own_groups)
        return self._fit_calibrated(compared.candidate(compared.best()), compared.described, plain)

    def _transforms(self, X: Array, X_err: Any, weights: Array | None) -> list[WithErrors | None]:
        """Return what features may go through: nothing, or also a transform to normal ones."""
        if self.kernel in (None, "linear"):
            return [None]
        return [None, quantile_transform(X, X_err, weights)]

    def _table(
        self,
        transform: WithErrors | None,
        X: Array,
        X_err: Any,
        weights: Array | None,
        labelled: Samples,
        seed: int,
        whole: tuple[Source, Fields] | None,
    ) -> Table:
        """Return the samples of a fit, with the population of their transformed values; or of a whole source."""
        if transform is not None:
            X, X_err = transformed(transform, X, X_err)
        number = 1 if self.n_components == "auto" and (self.rank_ or X_err is None) else self.n_components
        population = Deconvolve(number, rank=self.rank_, random_state=seed, n_jobs=self.n_jobs)
        if whole is None:
            population.fit(X, X_err=X_err, sample_weight=weights)
        else:  # of which X are some
            population.fit(whole[0], whole[1].y, whole[1].X_err, whole[1].weight)
            population.__dict__.pop("feature_names_in_", None)  # it is given arrays from now on
        return Table(View.of(transform, population), X, X_err, weights, labelled, seed)

    def _adopt(self, table: Table, weights: Array | None) -> Any:
        """Keep how samples are seen; return all of those of the fit."""
        self.transform_, self.population_, self.centre_, self.scale_ = table.view
        seen = table.posterior(slice(None))
        n, d = table.X.shape
        self.reliability_ = np.ones(d)
        if self.has_errors_:
            shares = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
            self.reliability_ -= shares @ np.square(standard_deviations(seen.err, (n, d)))
        self.reliability_ = self.reliability_[: d - len(self.indicators_)]
        self.sigma_: float | None = None
        self.ridge_: float | None = None
        self.gamma_: float | None = None
        self.kernel_: str | None = None
        return seen

    def _fit_draws(self, table: Table, weights: Array | None, groups: Any) -> Self:
        """Fit any classifier to draws from the posteriors."""
        seen, labelled = self._adopt(table, weights), table.labelled
        given = {"groups": groups} if groups is not None and has_fit_parameter(self.estimator, "groups") else {}
        drawn = PosteriorDrawsClassifier(self.estimator, random_state=table.seed, n_jobs=self.n_jobs)
        y = labelled.classes[labelled.labels.astype(np.intp)]
        self.method_ = "draws"
        self.estimator_ = self._calibrated = drawn.fit(seen, y, labelled.weights, **given)
        return self

    def _fit_calibrated(self, chosen: Candidate, scores: dict[str, NDArray[Any]], weights: Array | None) -> Self:
        """Fit the method chosen to all posteriors, with the calibration of its scores."""
        family, table = chosen.family, chosen.table
        # Not before: these are many numbers, which the loop over the folds has no use for.
        X, X_err = split_errors(self._adopt(table, weights))
        self.cv_scores_, self.method_, self.gamma_ = scores, family.method, family.gamma
        self.kernel_ = None if self.estimator is not None else family.kernel
        self.sigma_ = chosen.level if family.unit == "sigma" else None
        self.ridge_ = chosen.level if family.unit == "ridge" else None
        model = family.estimator(chosen.level, chosen.start, table, self.n_jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)  # then alpha is 0, and the probabilities say so
            self.estimator_ = fitted_to(model, X, table.labelled, X_err if family.in_fit else None)
        assert chosen.found is not None
        self._calibrated = self._with_probabilities(chosen.found)
        for name in ("alpha_", "beta_", "kappa_", "kappa_pvalue_"):
            setattr(self, name, getattr(self._calibrated, name))
        return self

    def _fit_stack(self, compared: Comparison, table: Table, weights: Array | None, groups: Any) -> Self:
        """Fit the best candidate of every kind, and keep those of which an average is made."""
        self._adopt(table, weights)
        best = [compared.candidate(compared.best(kind)) for kind in compared.kinds]
        shares = stacking_weights(np.stack([candidate.losses for candidate in best]), compared.truth[1])
        self.cv_scores_, self.method_ = compared.described, "stack"
        self.weights_ = shares[shares > 0]
        self.members_ = [
            self._member(candidate, compared, weights, groups)
            for candidate, share in zip(best, shares, strict=True)
            if share > 0
        ]
        return self

    def _member(self, chosen: Candidate, compared: Comparison, weights: Array | None, groups: Any) -> Any:
        """Return a candidate as a classifier of measurements."""
        if chosen.family.kernel == "populations":
            return chosen.family.estimator(chosen.level, chosen.start, chosen.table, self.n_jobs)
        member = copy.copy(self)
        member.stack = member.missing_indicator = False
        member.indicators_, member.n_features_in_ = self.indicators_[:0], chosen.table.X.shape[1]  # it is given these
        for name in (*OF_SOME, "feature_names_in_"):  # it is given arrays
            member.__dict__.pop(name, None)
        if chosen.family.kernel in ("draws", "given"):
            member.kernel = None  # beside an estimator there is none, except in a stack
        if chosen.family.kernel == "draws":
            return member._fit_draws(chosen.table, weights, groups)
        member.estimator = self.estimator if chosen.family.kernel == "given" else None
        return member._fit_calibrated(chosen, compared.described, weights)

    def _check_parameters(self) -> None:
        if self.kernel is not None:
            check_choice("kernel", self.kernel, KERNELS)
        check_flag("stack", self.stack)
        if self.kernel in ("rbf", "auto") and self.estimator is not None and not self.stack:
            raise ValueError(
                f"kernel={self.kernel!r} chooses a classifier, and estimator is another one: leave one of them None, "
                "or set stack=True to average both"
            )
        if isinstance(self.methods, str) or not len(self.methods) or any(name not in METHODS for name in self.methods):
            raise ValueError(f"methods must be one or more of {list(METHODS)}; got {self.methods!r}")
        check_flag("missing_indicator", self.missing_indicator)
        check_flag("scale_errors", self.scale_errors)
        check_jobs("n_jobs", self.n_jobs)

    def _compared(self, tables: list[Table], folds: list[tuple[Index, Index]]) -> Comparison:
        """Return what all candidates say of held-out samples, and their log losses."""
        labelled, seed = tables[0].labelled, tables[0].seed
        rows, factors = selection_rows(labelled, seed)
        weights = labelled.all_weights * factors
        labels = labelled.labels.astype(np.intp)
        inside = np.zeros(len(labels), dtype=bool)
        inside[rows] = True
        folds = [(train[inside[train]], test[inside[test]]) for train, test in folds]
        families = [(table, self._families(table, rows, weights)) for table in tables]
        return compare(families, folds, labels, weights, len(labelled.classes), self.n_jobs)

    def _folds(self, labelled: Samples, groups: Any, seed: int) -> list[tuple[Index, Index]]:
        """Return the folds, by places among the samples of positive weight."""
        cv, labels, used = self.cv, labelled.labels.astype(np.intp), labelled.all_weights > 0
        if isinstance(cv, numbers.Integral):
            check_count("cv", cv, low=2)
            n_folds = max(2, min(int(cv), int(np.bincount(labels[used]).min())))
            kind = StratifiedKFold if groups is None else StratifiedGroupKFold
            cv = kind(n_folds, shuffle=True, random_state=seed)
        y, places = labelled.classes[labels], np.cumsum(used) - 1
        split = CalibratedWithErrorsCV(cv=cv)._folds
        folds = split(np.zeros((len(y), 1)), y, labels, labelled.classes, labelled.weights, {"groups": groups})
        return [(places[train], places[test]) for train, test in folds]

    def _families(self, table: Table, rows: Index, weights: Array) -> list[Family]:
        """Return what to choose from, with levels."""
        methods = [name for name in dict.fromkeys(self.methods) if self.has_errors_ or name != "posterior"]
        methods = methods or ["shrunk"]
        found: list[Family] = []
        if self.estimator is not None and table.view.transform is None:
            if knows_spread(self.estimator):
                found += given_families(self.estimator, methods, weighted=table.labelled.weights is not None)
            else:
                found += drawn_families(self.estimator, table)
        if self.estimator is not None and not self.stack:
            return found
        if self.stack:
            found += population_families(table, self.n_components, self.class_weight, self.n_jobs)
        if self.kernel != "rbf":
            found += linear_families(methods, table, rows, weights)
        if self.kernel in ("rbf", "auto"):
            found += rbf_families(methods, table)
        return found

    def _with_probabilities(self, found: Calibration) -> CalibratedWithErrorsCV:
        """Return the classifier of posteriors with its probabilities."""
        fitted = CalibratedWithErrorsCV(self.estimator_, cv=self.cv, scale_errors=self.scale_errors)
        fitted.estimator_, fitted.classes_ = self.estimator_, self.classes_
        fitted.alpha_, beta, fitted.kappa_ = found.scaled if self.scale_errors else found.stated
        fitted.beta_ = float(beta[1]) if len(self.classes_) == 2 else beta
        fitted.kappa_pvalue_ = found.pvalue
        return fitted

    def _posteriors(self, X: Any, X_err: Any) -> Iterator[Any]:
        """Yield what is known of the truth of new samples, in the units of the classifier, some at a time."""
        check_is_fitted(self)
        X, X_err = self._measured(X, X_err)
        view = View(self.transform_, self.population_, self.centre_, self.scale_)
        for part in row_blocks(len(X), X.shape[1] ** 2):
            yield view.of_measured(X[part], None if X_err is None else take_rows(X_err, part))

    def _measured(self, X: Any, X_err: Any) -> tuple[Array, Any]:
        """Return new measurements with their errors, and with indicators."""
        X, X_err = checked_measurements(self, X, X_err, reset=False)
        check_errors_given(self, X_err)
        return with_indicators(X, X_err, self.indicators_)

    def refit_population(self, X: Any, X_err: Any = None) -> "ErrorBarClassifier":
        """Return the same classifier with the population of other samples, which need no labels.

        Use it if new samples come from a different population than the training samples, such as faint instead of
        bright objects. Then the prior of the true values changes, but not their relation to the class. Classifier and
        calibration are kept (:meth:`gaussguru.population.Deconvolve.refit_population`). In a stack, populations of
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
        values, errors = self._measured(X, X_err)
        result = copy.copy(self)
        given = (values, errors) if self.transform_ is None else transformed(self.transform_, values, errors)
        result.population_ = self.population_.refit_population(*given)
        if self.method_ == "stack":
            result.members_ = [
                member.refit_population(values, errors) if hasattr(member, "refit_population") else member
                for member in self.members_
            ]
        return result

    @by_parts
    def predict_log_proba(self, X: Any, X_err: Any = None) -> Array:
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
        if getattr(self, "method_", None) == "stack":
            return self._stacked(X, X_err)
        return np.concatenate([self._calibrated.predict_log_proba(part) for part in self._posteriors(X, X_err)])

    def _stacked(self, X: Any, X_err: Any) -> Array:
        """Return the logarithms of the average probabilities."""
        X, X_err = self._measured(X, X_err)
        seen = X if X_err is None else Measured.checked(X, X_err)
        logs = np.stack([member.predict_log_proba(seen) for member in self.members_])
        return np.asarray(log_sum(logs + np.log(self.weights_)[:, np.newaxis, np.newaxis], axis=0))

    @by_parts
    def decision_function(self, X: Any, X_err: Any = None) -> Array:
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
    def margin_and_spread(self, X: Any, X_err: Any = None) -> tuple[Array, Array]:
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
        parts = [self._calibrated.margin_and_spread(part) for part in self._posteriors(X, X_err)]
        margin, spread = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return margin, spread

    def _score_moments(self, X: Any, X_err: Any = None) -> tuple[Array, Array, Array]:
        """Return weights, means and covariances of the scores of ``estimator_``."""
        self._check_scores()
        parts = [score_moments(self.estimator_, part) for part in self._posteriors(X, X_err)]
        weights, means, covariances = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return weights, means, covariances

    @property
    def _spreads(self) -> Array:
        """The spreads of the features, in the units of X."""
        if self.transform_ is None:
            return self.scale_
        assert self.transform_.population_ is not None  # of a dense X
        return self.transform_.population_.spreads

    @property
    def _is_linear(self) -> bool:
        """Whether scores are linear in the measured values."""
        return self.transform_ is None and hasattr(self.estimator_, "coef_")

    def _check_scores(self) -> None:
        check_is_fitted(self)
        if self.method_ == "stack":
            raise NotLinearError(
                "the probabilities of a stack are an average, and no score has their spread; members_ have scores of "
                "their own, and predict_proba accounts for the error bars"
            )
        if self.method_ == "draws":
            raise NotLinearError(
                f"the scores of {type(self.estimator).__name__} are not linear in the features, so their spread is not "
                "known; predict_proba accounts for the error bars"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def _scaled_part(centre: Array, scale: Array, part: Part, keep_errors: bool) -> Part:
    """Return posteriors in units of the spread of the population, perhaps with their covariances."""
    err = None if part.X_err is None or not keep_errors else scaled(part.X_err, 1 / scale)
    return part._replace(X=(part.X - centre) / scale, X_err=err)


def _weighted_part(classes: NDArray[Any], factors: Array, part: Part) -> Part:
    """Return a part with the weights of its classes."""
    own = factors[np.searchsorted(classes, part.y)]
    return part._replace(weight=own if part.weight is None else part.weight * own)
