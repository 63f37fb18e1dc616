"""The one classifier for a table of values and their errors."""

import copy
import numbers
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy.special import ndtri_exp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from gaussguru._blocks import row_blocks
from gaussguru._data.streams import Part
from gaussguru._data.threads import Pool, n_threads
from gaussguru._estimators.base import Classifier, CollapseWarning, Settings, check_errors_given, seed_of
from gaussguru._estimators.draws import PosteriorDrawsClassifier
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.link import Calibration, Margins, fit_calibration, link_of
from gaussguru._estimators.path import follow, noise_levels
from gaussguru._estimators.probit import ProbitWithErrors, probit_path
from gaussguru._estimators.streamed import by_parts, class_totals, names_of, takes_sources
from gaussguru._estimators.validation import (
    Samples,
    check_count,
    check_flag,
    check_jobs,
    check_samples,
    check_weights,
    class_factors,
)
from gaussguru._linalg import Array, Index
from gaussguru.calibration import ByProbability, CalibratedWithErrorsCV, score_moments
from gaussguru.errors import LowRank, Measured, check_products, split_errors, take_rows
from gaussguru.population import Deconvolve
from gaussguru.preprocessing.affine import AffineComponents, NotLinearError
from gaussguru.sources import Fields, Mapped, Source, as_source, subsample

METHODS = ("shrunk", "posterior", "probit")
# The method that is taken unless another one is better by more than a standard error: the only one whose likelihood is
# that of the probabilities.
PREFERRED = "probit"
# Noise levels of the two paths of GURU, from the top of their grid (see sigma_path) down to so much of it. With the
# posterior covariances in the fit the level matters less, and a fit costs ten times as much. Every second of these
# levels, and of the ridges, is tried where there are more than two classes.
SIGMAS = {"shrunk": (10, 1e-3), "posterior": (5, 1e-2)}
# Ridges of the probit, from coefficients that are nothing for features of spread 1 to any that occur.
RIDGES = np.geomspace(300.0, 1e-3, 12)
# Rows on which methods and levels are compared and probabilities calibrated, where there are two classes. Log losses
# of two candidates differ from row to row by 0.2 or less, so their means are known to 0.2 / sqrt(10,000) = 0.002, and
# alpha to 1 or 2 percent. Of more classes 2/n_classes of that: the time of a probability grows with their number.
SELECTION_ROWS = 10_000
# So many of them are of each class, if there are.
FEWEST = 200
# Covariances of the population have few factors where there are more features than this, or fewer samples for each:
# time and memory go with their cube and square, and a full covariance of so few samples is mostly chance.
FULL_FEATURES, SAMPLES_PER_FEATURE, RANK = 60, 4, 10
# Gradients of the probit, in units of the total weight, at which its log loss is the same to all digits that count.
ROUGH = 1e-4
# What there is of a classifier with calibrated scores.
CALIBRATED = ("cv_scores_", "alpha_", "beta_", "kappa_", "kappa_pvalue_")
# Scores of which the covariance with all others is computed together.
STACK = 64


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

    Cross-validation compares their log losses on held-out samples. "probit" is chosen unless another method is better
    by more than the standard error of the difference; otherwise the lowest log loss wins. All candidates share one
    loop over the folds, and the same held-out scores are used to choose and to calibrate. With more than 10,000
    samples (20,000 divided by the number of classes, if there are more than two) this loop uses a stratified subsample
    of that size, on which log losses of two candidates are compared to about 0.002. Population and classifier are
    always fitted to all samples.

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
        ``margin_and_spread`` do not exist.
    kernel : {None, "auto"}, default=None
        Reserved. Both values mean a linear classifier.
    n_components : int or "auto", default="auto"
        Number of Gaussians in the population. "auto" chooses by held-out likelihood; it is 1 if ``rank_`` is not None.
    methods : sequence of {"shrunk", "posterior", "probit"}, default=("shrunk", "posterior", "probit")
        The methods to choose from. Without ``X_err``, "posterior" is the same as "shrunk" and is left out.
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
        ``estimator`` that was fitted to draws.
    sigma_ : float or None
        The chosen noise level, in units of the spread of the population; None for "probit" and for an ``estimator``.
    ridge_ : float or None
        The chosen ridge penalty of "probit"; None otherwise.
    cv_scores_ : dict of ndarrays
        "method", "level" (sigma, ridge penalty, or NaN) and "log_loss" of every candidate. The log loss is that of
        calibrated probabilities of held-out samples, with ``kappa = 1``.
    rank_ : int or None
        Number of factors of the population covariance if there are more than 60 features or fewer than 4 samples per
        feature; None for a full covariance.
    population_ : gaussguru.population.Deconvolve
        The population, in the units of X.
    reliability_ : ndarray of shape (n_features,)
        Fraction of the population variance of each feature that the measurements resolve: 1 for exact values.
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
    __metadata_request__decision_function: ClassVar = {"X_err": True}

    estimator_: Any

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernel: str | None = None,
        n_components: int | str = "auto",
        methods: Sequence[str] = METHODS,
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
            sources is fitted to the subsample).
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 2 is a sample that occurs twice.
        X_err : array-like of shape (n_samples,), (n_samples, n_features) or (n_samples, n_features, n_features), \
                sparse matrix, gaussguru.errors.LowRank or float, default=None
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
        X, y, sample_weight, X_err = subsample(source, *fields, n_jobs=self.n_jobs)
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
        X, X_err = self._checked(X, X_err, reset=True)
        plain = check_weights(sample_weight, len(X))
        # Of classes and weights alone: what X holds is looked at by the population.
        labelled = check_samples(np.zeros((len(X), 1)), y, sample_weight, self.class_weight)
        seed = seed_of(self.random_state)
        few = X.shape[1] > min(FULL_FEATURES, len(X) / SAMPLES_PER_FEATURE)
        self.rank_ = min(RANK, X.shape[1]) if few and X_err is not None else None
        number = 1 if self.n_components == "auto" and (self.rank_ or X_err is None) else self.n_components
        self.population_ = Deconvolve(number, rank=self.rank_, random_state=seed, n_jobs=self.n_jobs)
        if whole is None:
            self.population_.fit(X, X_err=X_err, sample_weight=plain)
        else:  # of which X are some
            self.population_.fit(whole[0], whole[1].y, whole[1].X_err, whole[1].weight)
            self.population_.__dict__.pop("feature_names_in_", None)  # it is given arrays from now on
        distribution = self.population_.population_
        self.has_errors_ = X_err is not None
        self.centre_, self.scale_ = distribution.mean, np.sqrt(np.diag(distribution.covariance))
        table = _Table(self, X, X_err, plain, labelled, seed)
        self.classes_ = labelled.classes
        for name in CALIBRATED:
            self.__dict__.pop(name, None)
        drawn = self.estimator is not None and not knows_spread(self.estimator)
        chosen = None if drawn else self._chosen(table, groups)
        # Not before: these are many numbers, which the loop over the folds has no use for.
        seen = table.posterior(self.population_, slice(None))
        self.reliability_ = np.ones(X.shape[1])
        if self.has_errors_:
            shares = np.full(len(X), 1.0 / len(X)) if plain is None else plain / plain.sum()
            self.reliability_ -= shares @ _variances(seen.err)
        self.sigma_: float | None = None
        self.ridge_: float | None = None
        if chosen is None:
            self._fit_draws(seen, labelled, groups, seed)
        else:
            self._fit_calibrated(*chosen, seen, table)
        return self

    def _fit_draws(self, seen: Any, labelled: Samples, groups: Any, seed: int) -> None:
        """Fit any classifier to draws from the posteriors."""
        given = {"groups": groups} if groups is not None and has_fit_parameter(self.estimator, "groups") else {}
        drawn = PosteriorDrawsClassifier(self.estimator, random_state=seed, n_jobs=self.n_jobs)
        y = labelled.classes[labelled.labels.astype(np.intp)]
        self.method_ = "draws"
        self.estimator_ = self._calibrated = drawn.fit(seen, y, labelled.weights, **given)

    def _fit_calibrated(
        self, chosen: "_Candidate", scores: dict[str, NDArray[Any]], seen: Any, table: "_Table"
    ) -> None:
        """Fit the method chosen to all posteriors, with the calibration of its scores."""
        self.cv_scores_, self.method_ = scores, chosen.method
        self.sigma_ = chosen.level if chosen.method in SIGMAS and self.estimator is None else None
        self.ridge_ = chosen.level if chosen.method == "probit" else None
        self.estimator_ = self._refitted(chosen, seen, table)
        self._calibrated = self._with_probabilities(chosen.found)
        for name in ("alpha_", "beta_", "kappa_", "kappa_pvalue_"):
            setattr(self, name, getattr(self._calibrated, name))

    def _check_parameters(self) -> None:
        if self.kernel is not None and not (isinstance(self.kernel, str) and self.kernel == "auto"):
            raise ValueError(f"kernel must be None or 'auto', both of which are linear so far; got {self.kernel!r}")
        if isinstance(self.methods, str) or not len(self.methods) or any(name not in METHODS for name in self.methods):
            raise ValueError(f"methods must be one or more of {list(METHODS)}; got {self.methods!r}")
        check_flag("scale_errors", self.scale_errors)
        check_jobs("n_jobs", self.n_jobs)

    def _checked(self, X: Any, X_err: Any, *, reset: bool) -> tuple[Array, Any]:
        """Return the values as an array, and their errors."""
        if isinstance(X_err, numbers.Real) and hasattr(X, "__len__"):
            X_err = np.full(X.shape[0] if hasattr(X, "shape") else len(X), float(X_err))
        X, X_err = split_errors(X, X_err)
        values: Array = validate_data(self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite=False)
        if X_err is None and not np.isfinite(values).all():
            what = "NaN" if np.isnan(values).any() else "infinity"
            raise ValueError(
                f"Input X contains {what}: without X_err, X must be finite. To mark values as not measured, give "
                "X_err as well; X_err=0 if all other values are exact"
            )
        return values, X_err

    def _chosen(self, table: "_Table", groups: Any) -> tuple["_Candidate", dict[str, NDArray[Any]]]:
        """Return the candidate of least log loss, with its probabilities, and the log losses of all."""
        labelled = table.labelled
        rows, factors = _subsample(labelled, table.seed)
        weights = labelled.all_weights * factors
        labels = labelled.labels.astype(np.intp)
        folds = self._folds(labels, labelled, groups, table.seed)
        inside = np.zeros(len(labels), dtype=bool)
        inside[rows] = True
        folds = [(train[inside[train]], test[inside[test]]) for train, test in folds]
        methods = [name for name in dict.fromkeys(self.methods) if self.has_errors_ or name != "posterior"]
        families = self._families(methods or ["shrunk"], table, rows, weights)
        pool = Pool(n_threads(self.n_jobs))
        job = _Fold(table, families, weights, _single_threaded(self.population_), pool.here, sklearn.get_config())
        # What does not converge in a fold is judged by its log loss. (Filters are those of all threads.)
        with warnings.catch_warnings(), pool as mapped:
            warnings.simplefilter("ignore", ConvergenceWarning)
            parts, starts = (list(part) for part in zip(*mapped(job.run, folds), strict=True))
            order = np.concatenate([test for _, test in folds])
            candidates = [(family.method, level) for family in families for level in family.levels]

            truth = labels[order], weights[order], len(labelled.classes)

            def losses_of(k: int) -> Array:
                return _judged(Margins.joined([part[k] for part in parts]), *truth, rough=True)[1]

            losses = np.stack(list(mapped(losses_of, range(len(candidates)))))
            names = np.array([method for method, _ in candidates])
            best = _preferred(losses, truth[1], names == PREFERRED)
            found, losses[best] = _judged(Margins.joined([part[best] for part in parts]), *truth)
        scores = {
            "method": names,
            "level": np.array([level for _, level in candidates]),
            "log_loss": np.average(losses, axis=1, weights=truth[1]),
        }
        method, level = candidates[best]
        return _Candidate(method, float(level), found, starts[0][best]), scores

    def _folds(self, labels: Index, labelled: Samples, groups: Any, seed: int) -> list[tuple[Index, Index]]:
        cv = self.cv
        if isinstance(cv, numbers.Integral):
            check_count("cv", cv, low=2)
            counts = np.bincount(labels[labelled.all_weights > 0])
            n_folds = max(2, min(int(cv), int(counts.min())))
            kind = StratifiedKFold if groups is None else StratifiedGroupKFold
            cv = kind(n_folds, shuffle=True, random_state=seed)
        y = labelled.classes[labels]
        split = CalibratedWithErrorsCV(cv=cv)._folds
        return split(np.zeros((len(y), 1)), y, labels, labelled.classes, labelled.weights, {"groups": groups})

    def _families(self, methods: list[str], table: "_Table", rows: Index, weights: Array) -> list["_Family"]:
        """Return the methods with their levels."""
        if self.estimator is not None:
            methods = [method for method in methods if method != "probit"] or ["shrunk"]
            if not has_fit_parameter(self.estimator, "X_err"):
                methods = ["shrunk"]
            return [_Family(method, np.array([np.nan]), self.estimator) for method in methods]
        families = []
        step = 1 if len(table.labelled.classes) == 2 else 2  # a candidate of many classes takes long
        model = GuruClassifier(n_jobs=1, random_state=table.seed)
        gurus = [method for method in methods if method in SIGMAS]
        if gurus:
            seen = table.posterior(self.population_, rows)
            top = noise_levels(1, table.samples(seen, rows, weights), model)[0]
        for method in methods:
            if method == "probit":
                families.append(_Family(method, RIDGES[::step], None))
                continue
            n_levels, ratio = SIGMAS[method]
            families.append(_Family(method, np.geomspace(top, ratio * top, n_levels)[::step], model))
        return families

    def _refitted(self, chosen: "_Candidate", seen: Any, table: "_Table") -> Any:
        """Return the classifier chosen, fitted to all samples."""
        X, X_err = split_errors(seen)
        model: Any = self.estimator
        if model is not None:
            model = clone(model)
        elif chosen.method == "probit":
            model = ProbitWithErrors(chosen.level, warm_start=True, n_jobs=self.n_jobs)
        else:
            model = GuruClassifier(chosen.level, warm_start=True, random_state=table.seed, n_jobs=self.n_jobs)
        labelled = table.labelled
        if chosen.start is not None:
            model.classes_, (model.coef_, model.intercept_) = labelled.classes, chosen.start
        given = {} if labelled.weights is None else {"sample_weight": labelled.weights}
        if chosen.method != "shrunk" and X_err is not None:
            given["X_err"] = X_err
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)  # then alpha is 0, and the probabilities say so
            return model.fit(X, labelled.classes[labelled.labels.astype(np.intp)], **given)

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
        X, X_err = self._checked(X, X_err, reset=False)
        check_errors_given(self, X_err)
        if X_err is None:
            yield (X - self.centre_) / self.scale_
            return
        for part in row_blocks(len(X), X.shape[1] ** 2):
            yield _posterior(self.population_, X[part], take_rows(X_err, part), self.centre_, self.scale_)

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
        return np.concatenate([self._calibrated.predict_log_proba(part) for part in self._posteriors(X, X_err)])

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

    def _check_scores(self) -> None:
        check_is_fitted(self)
        if self.method_ == "draws":
            raise NotLinearError(
                f"the scores of {type(self.estimator).__name__} are not linear in the features, so their spread is not "
                "known; predict_proba accounts for the error bars"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def knows_spread(estimator: Any) -> bool:
    """Return whether the spread of scores under error bars is known: of linear ones, and of gaussguru's classifiers."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    return isinstance(last, LinearClassifierMixin) or hasattr(last, "_score_moments")


def _posterior(population: Deconvolve, X: Array, X_err: Any, centre: Array, scale: Array) -> Measured:
    """Return what is known of the truth, in units of the spread of the population."""
    found = population.transform(X, X_err)
    components: Any = None
    if found.components is not None:
        components = AffineComponents(found.components, np.diag(1 / scale), -centre / scale)
    return Measured((found.X - centre) / scale, scaled_errors(found.err, scale), components)


def scaled_errors(err: Any, scale: Array) -> Any:
    """Return posterior covariances in other units of the features."""
    if isinstance(err, LowRank):
        return LowRank(err.factors / scale[:, np.newaxis], None if err.std is None else err.std / scale)
    return err / np.multiply.outer(scale, scale)


def _scaled_part(centre: Array, scale: Array, part: Part, keep_errors: bool) -> Part:
    """Return posteriors in units of the spread of the population, perhaps with their covariances."""
    err = None if part.X_err is None or not keep_errors else scaled_errors(part.X_err, scale)
    return part._replace(X=(part.X - centre) / scale, X_err=err)


def _weighted_part(classes: NDArray[Any], factors: Array, part: Part) -> Part:
    """Return a part with the weights of its classes."""
    own = factors[np.searchsorted(classes, part.y)]
    return part._replace(weight=own if part.weight is None else part.weight * own)


def _variances(err: Any) -> Array:
    """Return the variance of every feature of every sample."""
    if isinstance(err, LowRank):
        return np.asarray(np.square(err.std) + np.einsum("ijr,ijr->ij", err.factors, err.factors))
    return np.asarray(np.einsum("ijj->ij", err))


def _judged(
    margins: Margins, labels: Index, weights: Array, n_classes: int, *, rough: bool = False
) -> tuple[Calibration, Array]:
    """Return the probabilities of greatest likelihood, and log losses with error bars as they are stated."""
    found = fit_calibration(margins, labels, weights, n_classes, rough=rough)
    logs = link_of(margins, n_classes).logs(*found.stated)
    return found, -logs[np.arange(len(labels)), labels]


def _preferred(losses: Array, weights: Array, preferred: NDArray[np.bool_]) -> int:
    """Return the candidate of least mean loss, or the best of those preferred if that is as good.

    As good is what is not above it by more than the standard error of their difference, from sample to sample.
    """
    means = np.average(losses, axis=1, weights=weights)
    best = int(np.argmin(means))
    if not preferred.any():
        return best
    other = int(np.argmin(np.where(preferred, means, np.inf)))
    apart = losses[other] - losses[best]
    shares = weights / weights.sum()
    error = np.sqrt(np.square(shares) @ np.square(apart - shares @ apart))
    return other if means[other] - means[best] <= error else best


def _single_threaded(population: Deconvolve) -> Deconvolve:
    """Return the same population for one thread of several."""
    other = copy.copy(population)
    other.n_jobs = 1
    return other


class _Candidate(NamedTuple):
    """A method at a level, its probabilities, and coefficients and intercepts of the first fold to start from."""

    method: str
    level: float
    found: Calibration
    start: tuple[Array, Array] | None


class _Family(NamedTuple):
    """A method and its levels, with a classifier as a template."""

    method: str
    levels: Array
    model: Any


class _Table(NamedTuple):
    """The samples of a fit."""

    owner: ErrorBarClassifier
    X: Array
    X_err: Any
    weights: Array | None
    labelled: Samples
    seed: int

    def posterior(self, population: Deconvolve, rows: Any) -> Any:
        """Return what is known of the truth of some rows; of exact ones an array."""
        X, centre, scale = self.X[rows], self.owner.centre_, self.owner.scale_
        if self.X_err is None:
            return (X - centre) / scale
        return _posterior(population, X, take_rows(self.X_err, rows), centre, scale)

    def samples(self, seen: Any, rows: Any, weights: Array) -> Samples:
        """Return rows with their labels."""
        X = split_errors(seen)[0]
        return Samples(X, self.labelled.classes, self.labelled.labels[rows], weights[rows])

    def population(self, whole: Deconvolve, rows: Index) -> Deconvolve:
        """Return the population of some rows; that of all where some feature is not among them."""
        if self.X_err is None:
            return whole
        weights = None if self.weights is None else self.weights[rows]
        try:
            return whole.refit_population(self.X[rows], take_rows(self.X_err, rows), weights)
        except ValueError:
            return whole


class _Fold(NamedTuple):
    """What all folds share."""

    table: _Table
    families: list[_Family]
    weights: Array
    whole: Deconvolve
    mapped: Any
    config: dict[str, Any]

    def run(self, fold: tuple[Index, Index]) -> tuple[list[Margins], list[Any]]:
        """Return the scores of left-out samples of every candidate, and its coefficients and intercepts."""
        with Settings(**self.config):  # those of the thread that fits: they are not those of all threads
            return self._run(*fold)

    def _run(self, train: Index, test: Index) -> tuple[list[Margins], list[Any]]:
        table = self.table
        population = table.population(self.whole, train)
        inside, outside = table.posterior(population, train), table.posterior(population, test)
        samples = table.samples(inside, train, self.weights)
        margins: list[Margins] = []
        classifiers: list[Any] = []
        for family in self.families:
            if self.table.owner.estimator is not None:
                margins.append(self._of_estimator(family, inside, outside, train))
                classifiers.append(None)
                continue
            path = list(self._path(family, samples, inside))
            margins.extend(_margins_of(path, outside))
            classifiers.extend(path)
        return margins, classifiers

    def _path(self, family: _Family, samples: Samples, inside: Any) -> Iterator[tuple[Array, Array]]:
        """Yield coefficients and intercepts, level after level."""
        errors = split_errors(inside)[1]
        if family.method == "probit":
            checked = None if errors is None else check_products(errors, samples.X)
            for found in probit_path(samples, checked, family.levels, tol=ROUGH, map=self.mapped):
                yield found.coef, found.intercept
            return
        errors = errors if family.method == "posterior" else None
        for fitted, _ in follow(family.model, samples, family.levels, errors, self.mapped):
            yield fitted.coef_, fitted.intercept_

    def _of_estimator(self, family: _Family, inside: Any, outside: Any, train: Index) -> Margins:
        X, X_err = split_errors(inside)
        labelled = self.table.labelled
        given = {} if labelled.weights is None else {"sample_weight": self.weights[train]}
        if family.method == "posterior" and X_err is not None:
            given["X_err"] = X_err
        y = labelled.classes[labelled.labels[train].astype(np.intp)]
        return Margins.of(*score_moments(clone(family.model).fit(X, y, **given), outside))


def _stacked(found: list[tuple[Array, Array]]) -> ProbitWithErrors:
    """Return a classifier with the scores of several at once."""
    stack = ProbitWithErrors(n_jobs=1)
    stack.coef_, stack.intercept_ = (np.concatenate(parts) for parts in zip(*found, strict=True))
    stack.n_features_in_ = stack.coef_.shape[1]
    return stack


def _margins_of(found: list[tuple[Array, Array]], seen: Any) -> list[Margins]:
    """Return the scores that classifiers give to samples."""
    width = len(found[0][1])
    step = max(1, STACK // width)
    result = []
    for first in range(0, len(found), step):
        some = found[first : first + step]
        weights, means, covariances = _stacked(some)._score_moments(seen)
        for k in range(len(some)):
            part = slice(k * width, (k + 1) * width)
            result.append(Margins.of(weights, means[:, :, part], covariances[:, :, part, part]))
    return result


def _subsample(samples: Samples, seed: int) -> tuple[Index, Array]:
    """Return rows to choose with, in order, and what to multiply all weights by to keep the shares of the classes."""
    labels, weights = samples.labels.astype(np.intp), samples.all_weights
    n, factors = len(labels), np.ones(len(labels))
    most = 2 * SELECTION_ROWS // len(samples.classes)
    if n <= most:
        return np.arange(n), factors
    rng = np.random.default_rng(seed)
    rows = []
    for c in range(len(samples.classes)):
        mine = np.flatnonzero((labels == c) & (weights > 0))
        size = min(len(mine), max(FEWEST, round(most * len(mine) / n)))
        chosen = rng.permutation(mine)[:size]
        factors[mine] = weights[mine].sum() / weights[chosen].sum()
        rows.append(chosen)
    kept = np.sort(np.concatenate(rows))
    return kept, factors * weights[kept].sum() / (weights * factors)[kept].sum()
