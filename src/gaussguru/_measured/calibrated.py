"""Probabilities that count both the overlap of the classes and the error bars of a sample.

A score of a classifier has a mean and, under the error bars of its sample, a spread. Probit calibration with a spread
for each sample turns both into a probability; :class:`CalibratedWithErrorsCV` fits it to scores of samples that the
classifier has not seen.
"""

import warnings
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import PredefinedSplit, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, Tags, check_array, get_tags
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from gaussguru._errors.checks import check_products
from gaussguru._errors.samples import Measured, measured, split_errors
from gaussguru._guru.base import ByProbability, check_errors_given, refuse_metadata
from gaussguru._guru.linear import GuruClassifier
from gaussguru._guru.probabilities import mixture_moments, score_covariance, score_roots
from gaussguru._guru.streamed import by_parts, takes_sources
from gaussguru._measured.affine import NotLinearError, linear_scores
from gaussguru._measured.link import (
    Calibration,
    ManyClasses,
    Margins,
    TwoClasses,
    exact_log_probabilities,
    fit_calibration,
)
from gaussguru._rows.validation import check_weights, encode_labels, rows_of_each
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.checks import check_flag, check_jobs, outside
from gaussguru._utils.frames import is_frame, opened, take_rows, unmasked
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, Estimator, Labels, MixedArray, Record, Values
from gaussguru.sources.base import Fields
from gaussguru.sources.reading import as_source, subsample_with_groups


def score_moments(
    estimator: Estimator, X: Values, X_err: ErrorBars = None, *, rooted: bool = False
) -> tuple[Array, Array, Array]:
    """Return the distribution of the scores of every sample under its error bars, a mixture of Gaussians.

    Parameters
    ----------
    estimator : fitted classifier, Pipeline or search
        A classifier of this library; a pipeline whose steps carry errors (:class:`gaussguru.preprocessing.WithErrors`,
        :class:`gaussguru.population.Deconvolve`) before one; or any classifier with a ``decision_function``, which with
        error bars must be affine in X.
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None
        In the units of X as it is given here.
    rooted : bool, default=False
        Whether to return roots R of the covariances ``R R'``: they keep the digits of small errors beside large ones.

    Returns
    -------
    weights : ndarray of shape (n_samples, n_components)
        One component, unless a step of the pipeline makes more.
    means : ndarray of shape (n_samples, n_components, n_scores)
        One score for two classes, else one for each.
    covariances : ndarray of shape (n_samples, n_components, n_scores, n_scores)
    """
    final, X = last_step(estimator, X, X_err)
    if hasattr(final, "_score_moments"):
        moments: tuple[Array, Array, Array] = final._score_moments(X, rooted=rooted)
        return moments
    check_is_fitted(final)
    if not hasattr(final, "decision_function"):
        raise NotLinearError(f"estimator must have a decision_function; got {type(final).__name__}")
    values, errors = split_errors(X)
    if errors is None:
        scores = np.asarray(final.decision_function(values), dtype=np.float64)
        scores = scores.reshape(len(scores), 1, -1)
        return np.ones((len(scores), 1)), scores, np.zeros((*scores.shape, scores.shape[2]))
    scores, coef = linear_scores(final, values)
    products = check_products(errors, values if hasattr(values, "shape") else np.asarray(values))
    noise = (score_roots if rooted else score_covariance)(coef, products)
    return np.ones((len(scores), 1)), scores.reshape(len(scores), 1, -1), noise[:, np.newaxis]


def margin_and_spread(estimator: BaseEstimator, X: object, X_err: object = None) -> tuple[Array, Array]:
    """Return the scores of every sample, and their standard deviations under its error bars.

    Parameters
    ----------
    estimator : fitted classifier, Pipeline or search
        As in :func:`score_moments`.
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None

    Returns
    -------
    margin, spread : ndarrays of shape (n_samples,), or (n_samples, n_classes) for more than two classes
    """
    final, X = last_step(estimator, X, X_err)
    if hasattr(final, "margin_and_spread"):
        both: tuple[Array, Array] = final.margin_and_spread(X)
        return both
    margin, spread = mixture_moments(*score_moments(final, X))
    return (margin[:, 0], spread[:, 0]) if margin.shape[1] == 1 else (margin, spread)


def last_step(estimator: BaseEstimator, X: object, X_err: object) -> tuple[Estimator, Values]:
    """Return the classifier at the end of searches and pipelines, and the samples as it sees them, with their errors.

    A pipeline whose first step does not know errors is taken as a whole, where there are any.
    """
    X = measured(X, X_err)
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline) and not (isinstance(X, Measured) and not takes_errors(estimator)):
            check_is_fitted(estimator)
            for _, step in estimator.steps[:-1]:
                if step is not None and step != "passthrough":
                    X = step.transform(X)
            estimator = estimator[-1]
        else:
            return estimator, X


def takes_errors(estimator: BaseEstimator) -> bool:
    """Return whether an estimator, or the first step of a pipeline, can be fitted to :class:`Measured`."""
    if hasattr(estimator, "refit") and hasattr(estimator, "estimator"):  # a search
        return takes_errors(estimator.estimator)
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if step is not None and step != "passthrough"]
        return bool(steps) and takes_errors(steps[0])
    return bool(has_fit_parameter(estimator, "X_err"))


class CalibratedScores(ByProbability):
    """Probabilities of the scores of ``estimator_``, calibrated by ``alpha_``, ``beta_`` and ``kappa_``."""

    estimator_: Estimator
    alpha_: float
    beta_: Any
    kappa_: float
    kappa_pvalue_: float

    def _keep_calibration(self, found: Calibration, n_classes: int, *, scale_errors: bool) -> None:
        self.alpha_, beta, self.kappa_ = found.scaled if scale_errors else found.stated
        self.beta_ = float(beta[1]) if n_classes == 2 else beta
        self.kappa_pvalue_ = found.pvalue

    def _calibrated_logs(self, X: Values) -> Array:
        """Return the log probabilities of samples, which are Measured or exact, (n_samples, n_classes)."""
        n = len(X) if isinstance(X, Measured) else X.shape[0]
        blocks = row_blocks(n, len(self.classes_) ** 2)
        parts = []
        for block in blocks or [slice(0)]:
            part = X if len(blocks) < 2 else take_rows(X, np.arange(block.start, block.stop))
            parts.append(self._calibrated_block(part))
        return np.minimum(np.concatenate(parts), 0.0)  # a sum over components may round above 1

    def _calibrated_block(self, X: object) -> Array:
        n_classes = len(self.classes_)
        if n_classes == 2:
            margins = Margins.of(*score_moments(self.estimator_, X))
            return TwoClasses(margins).logs(self.alpha_, np.array([0.0, self.beta_]), self.kappa_)
        weights, means, roots = score_moments(self.estimator_, X, rooted=True)
        margins = Margins.of(weights, means, roots @ np.swapaxes(roots, 2, 3))
        parameters = self.alpha_, np.asarray(self.beta_), self.kappa_
        noisy = (self.alpha_ * self.kappa_ * roots).any(axis=(1, 2, 3))
        logs = np.empty((len(roots), n_classes))
        logs[~noisy] = ManyClasses(margins.take(~noisy)).logs(*parameters)
        logs[noisy] = exact_log_probabilities(margins.take(noisy), roots[noisy], *parameters)
        return logs


class CalibratedWithErrorsCV(CalibratedScores, MetaEstimatorMixin, BaseEstimator):
    """Calibrated probabilities that account for error bars, fitted by cross-validation.

    A sample has a score ``m`` with a spread ``s`` under its error bars. The probability of the second of two
    classes is ::

        P(y = 1 | x) = Phi((alpha m + beta) / sqrt(1 + alpha^2 kappa^2 s^2))

    The true score is ``N(m, s^2)``, and given the true score the classes overlap as in a probit regression. Without
    error bars this is Platt scaling with ``Phi`` as the link. Two samples with the same score and different error bars
    get different probabilities. For mixtures (``Measured.components``) it is the mean over the components. With more
    than two classes ::

        P(c | x) = P(alpha m_c + beta_c + e_c + alpha kappa n_c is largest),   e ~ N(0, I/2),   n ~ N(0, W V W')

    with the covariance ``W V W'`` of the scores under the error bars. The fit of the parameters treats the noise ``n``
    of the scores as independent, with variances chosen to match those of their differences, so that each probability is
    one integral; ``predict_proba`` uses the full covariance. Compared with a fit by the full covariance this costs less
    than 0.003 of log loss for errors up to the spread of the features (3 and 6 classes, errors on all features or on
    one), and 0.01 to 0.04 for errors three times as large.

    The parameters maximise the likelihood of held-out samples, fold by fold, with Platt's smoothed targets:
    ``(N_c + 1) / (N_c + 2)`` for the class of a sample and ``1 / (N_c + 2)`` for all others together, where ``N_c`` is
    the total weight of the class. They keep ``alpha`` finite if the classes are separated. Then the classifier is
    fitted to all samples. If the scores do not increase with the probability of their class, ``alpha_`` is 0, and all
    samples have the same probabilities.

    Parameters
    ----------
    estimator : classifier, Pipeline or search, default=None
        The classifier whose scores are calibrated; None is ``GuruClassifier()``. If its ``fit`` takes no ``X_err``, it
        is fitted without; the probabilities still account for the errors if its scores are linear.
    cv : int, cross-validation generator or iterable, default=5
        How to split the samples. An integer is the number of stratified folds, at most the size of the largest class. A
        fold whose training part lacks a class is left out, with a warning.
    scale_errors : bool, default=False
        Whether to fit ``kappa``, a factor on all error bars. If False, it is 1.
    n_jobs : int or None, default=None
        Number of folds fitted in parallel, in joblib processes.

    Attributes
    ----------
    alpha_ : float
        The slope: the inverse of the overlap of the classes, in units of the scores.
    beta_ : float or ndarray of shape (n_classes,)
        The intercept. With more than two classes, one for each; they add up to 0.
    kappa_ : float
        The factor on the error bars. It is 1 unless ``scale_errors``, and also if it cannot be determined: without
        errors, or if all spreads are equal.
    kappa_pvalue_ : float
        p-value of the hypothesis that the error bars do not matter (``kappa = 0``), by a likelihood ratio test against
        the best ``kappa``, whether that is used or not. Its null distribution is half chi^2 with one degree of freedom,
        half 0. NaN without error bars, 1 if all spreads are equal. Weights count as repetitions.
    estimator_ : classifier
        The classifier fitted to all samples.
    has_errors_ : bool
        Whether the fit had error bars. If so, every prediction requires them.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
        Number of features, if ``estimator_`` has it.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if ``estimator_`` has them.

    References
    ----------
    Platt, J. (1999). Probabilistic outputs for support vector machines. *Advances in Large Margin Classifiers*.

    See Also
    --------
    gaussguru.ErrorBarClassifier : Needs no steps of your own.
    gaussguru.population.Deconvolve : The step before, for errors already made.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.calibration import CalibratedWithErrorsCV
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(400, 2))
    >>> y = truth[:, 0] + rng.normal(size=400) > 0
    >>> X_err = rng.uniform(0.1, 1.0, size=(400, 2))
    >>> X = truth + X_err * rng.normal(size=(400, 2))
    >>> clf = CalibratedWithErrorsCV(GuruClassifier()).fit(X, y, X_err=X_err)
    >>> exact, vague = clf.predict_proba([[1.0, 0.0]] * 2, X_err=[[0.1, 0.1], [2.0, 2.0]])[:, 1]
    >>> bool(exact > vague > 0.5)
    True
    """

    _takes_sources: ClassVar = True
    __metadata_request__fit: ClassVar = {"groups": UNUSED}  # requested by the splitter

    def __init__(
        self, estimator: BaseEstimator = None, *, cv: object = 5, scale_errors: bool = False, n_jobs: int | None = None
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.scale_errors = scale_errors
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Values,
        y: Labels,
        sample_weight: object = None,
        X_err: ErrorBars = None,
        groups: Labels = None,
        **params: Any,
    ) -> Self:
        """Fit the classifier and the calibration.

        A fit that raises leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
            Or a source (:mod:`gaussguru.sources`): the calibration is fitted by cross-validation on a subsample of at
            most 100,000 samples. The classifier is then fitted to all samples if it reads sources
            (:class:`gaussguru.GuruClassifier` and its relatives), otherwise to the subsample. ``alpha_`` is then known
            to about 1 percent; with thousands of features it is slightly too small, because the classifiers of the
            folds saw fewer samples.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 2 is a sample that occurs twice, in one fold, and weight 0 one that is in
            none. They count in the likelihood, and in the fit of the estimator if it takes them (in all steps of a
            pipeline that do). Those below 1 on average are relative in the likelihood.
        X_err : error bars of X, default=None
            An estimator that accepts error bars gets X and ``X_err`` together, as :class:`gaussguru.Measured`.
        groups : array-like of shape (n_samples,), default=None
            For splitters that keep groups together. Of a source, an array with the groups of all its samples.
        **params
            Further metadata that the estimator and the splitter request, with scikit-learn's metadata routing enabled.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err, groups, params)

    def _fit(
        self, X: Values, y: Labels, sample_weight: object, X_err: ErrorBars, groups: Labels, params: Record
    ) -> Self:
        check_flag("scale_errors", self.scale_errors)
        check_jobs("n_jobs", self.n_jobs)
        source, fields = as_source(X), Fields(y, sample_weight, X_err)
        if source is not None:
            X, y, sample_weight, X_err, groups = subsample_with_groups(source, fields, groups)
        if y is None:
            raise ValueError("y is required: this estimator requires y to be passed, but the target y is None")
        samples = measured(_rows_of(X), X_err)
        values = split_errors(samples)[0]
        classes, labels = encode_labels(y)
        if len(labels) != values.shape[0]:
            raise ValueError(f"X and y must have the same number of samples; got {values.shape[0]} and {len(labels)}")
        labels = labels.astype(np.intp)
        y = classes[labels]
        weights = check_weights(sample_weight, len(labels))
        estimator = self._estimator()
        seen = values if isinstance(samples, Measured) and not takes_errors(estimator) else samples
        routed = self._routed(sample_weight if weights is None else weights, X_err, groups, params, estimator)
        folds = calibration_folds(self.cv, values, labels, classes, weights, routed.splitter.split)
        job = _Fold(estimator, seen, samples, y, routed.estimator.fit, classes)
        parts = Parallel(n_jobs=self.n_jobs)(delayed(job.run)(train, test) for train, test in folds)
        order = np.concatenate([test for _, test in folds])
        calibration = fit_calibration(
            Margins.joined(parts), labels[order], np.ones(len(order)) if weights is None else weights[order],
            len(classes),
        )  # fmt: skip
        if source is not None and takes_sources(estimator):
            final = clone(estimator).fit(source, fields.y, sample_weight=fields.weight, X_err=fields.X_err)
        else:
            final = clone(estimator).fit(seen, y, **routed.estimator.fit)
        self.estimator_, self.classes_, self.has_errors_ = final, classes, isinstance(samples, Measured)
        self._keep_calibration(calibration, len(classes), scale_errors=self.scale_errors)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(final, name):
                setattr(self, name, getattr(final, name))
        return self

    def _estimator(self) -> Estimator:
        return GuruClassifier() if self.estimator is None else self.estimator

    def _routed(self, weights: Any, X_err: ErrorBars, groups: Labels, params: Record, estimator: Estimator) -> Bunch:
        """Return the metadata of the splitter and of the estimator, such as groups and weights."""
        given = {"sample_weight": weights, "groups": groups} | params
        given = {name: value for name, value in given.items() if value is not None}
        if sklearn.get_config()["enable_metadata_routing"]:
            # Errors go to the estimator with X.
            errors = {} if X_err is None else {"X_err": X_err}
            routed = process_routing(self, "fit", **given, **errors) if given or errors else None
            to_fit = dict(routed.estimator.fit) if routed else {}
            to_fit.pop("X_err", None)
            return Bunch(splitter=Bunch(split=routed.splitter.split if routed else {}), estimator=Bunch(fit=to_fit))
        refuse_metadata(params, "estimator")
        to_fit = {} if weights is None else dict.fromkeys(_weight_names(estimator), weights)
        return Bunch(splitter=Bunch(split={"groups": groups}), estimator=Bunch(fit=to_fit))

    @by_parts
    def predict_log_proba(self, X: object, X_err: object = None) -> Array:
        """Return the logarithms of the probabilities, accurate even if these are very small.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            They may be larger or smaller than in training. Required if the fit had error bars; 0 means exact values.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._calibrated_logs(self._samples(X, X_err))

    @by_parts
    def margin_and_spread(self, X: object, X_err: object = None) -> tuple[Array, Array]:
        """Return the scores of ``estimator_`` and their standard deviations under the error bars.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            Required if the fit had error bars.

        Returns
        -------
        margin, spread : ndarrays of shape (n_samples,), or (n_samples, n_classes) for more than two classes
        """
        return margin_and_spread(self.estimator_, self._samples(X, X_err))

    def _score_moments(self, X: object, X_err: object = None, *, rooted: bool = False) -> tuple[Array, Array, Array]:
        return score_moments(self.estimator_, self._samples(X, X_err), rooted=rooted)

    def _samples(self, X: Values, X_err: ErrorBars) -> Values:
        """Return X with its error bars, which must be given if the fit had some."""
        check_is_fitted(self)
        samples = measured(_rows_of(X), X_err)
        check_errors_given(self, split_errors(samples)[1])
        return samples

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata routing of the fit, the estimator and the splitter."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(estimator=self._estimator(), method_mapping=MethodMapping().add(caller="fit", callee="fit"))
            .add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._estimator())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.positive_only = inner.input_tags.positive_only
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags


def calibration_folds(
    cv: object, X: object, labels: Index, classes: MixedArray, weights: Array | None, given: Record
) -> list[tuple[Index, Index]]:
    """Return the folds of samples of positive weight, without folds that lack a class to fit to.

    Splitters of scikit-learn are given samples of positive weight only. Lists of folds, and other splitters, count all
    rows. ``given`` are further arguments of the splitter, such as groups.
    """
    y = classes[labels]
    rows = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
    used = np.zeros(len(labels), dtype=bool)
    used[rows] = True
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if cv < 2:
            raise ValueError(f"cv must be at least 2 folds; got {cv}")
        # More folds than the largest class has samples would be refused.
        cv = StratifiedKFold(max(2, min(int(cv), int(np.bincount(labels[rows]).max()))))
    splitter = check_cv(cv, y, classifier=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        if len(rows) < len(y) and _divides_any(cv):
            given = {name: rows_of_each(value, rows, len(y)) for name, value in given.items()}
            split = splitter.split(take_rows(X, rows), y[rows], **given)
            folds = [(rows[train], rows[test]) for train, test in split]
        else:
            split = splitter.split(X, y, **given)
            folds = [tuple(part[used[part]] for part in map(np.asarray, fold)) for fold in split]
    kept, without = [], set()
    for train, test in folds:
        counts = np.bincount(labels[train], None if weights is None else weights[train], len(classes))
        without.update(classes[counts == 0].tolist())
        if counts.all():
            kept.append((train, test))
    if not kept:
        raise ValueError(
            f"none of the {len(folds)} folds of cv has samples of all classes to fit to: {sorted(without)!r} are "
            "missing. At least two samples of a class are needed, in different folds"
        )
    if without:
        warnings.warn(
            f"{len(folds) - len(kept)} of {len(folds)} folds have no sample of {sorted(without)!r} to fit to, and "
            "are left out of the calibration: a class needs two samples or more, in different folds",
            UserWarning,
            stacklevel=outside(),
        )
    return kept


def _rows_of(X: Values) -> Values:
    """Return X in a form whose rows can be taken."""
    if sp.issparse(X):
        return X.tocsr()
    if isinstance(X, Measured):
        return X
    if is_frame(X):
        return opened(X).to_native()
    # The estimator checks the values; here only that there are rows of them.
    return check_array(unmasked(X, "X"), dtype=None, ensure_all_finite=False, accept_sparse="csr", ensure_min_samples=0)


def _divides_any(cv: object) -> bool:
    """Return whether a cross-validation splits any samples, rather than rows of fixed numbers."""
    return cv is None or (type(cv).__module__.startswith("sklearn.") and not isinstance(cv, PredefinedSplit))


def _weight_names(estimator: BaseEstimator) -> list[str]:
    """Return the names by which weights reach an estimator, or the steps of a pipeline that take them."""
    if isinstance(estimator, Pipeline):
        return [
            f"{name}__{inner}"
            for name, step in estimator.steps
            if step is not None and step != "passthrough"
            for inner in _weight_names(step)
        ]
    return ["sample_weight"] if has_fit_parameter(estimator, "sample_weight") else []


class _Fold(NamedTuple):
    """The data of all folds: samples as the estimator is fitted to them (``seen``), and with all their errors."""

    estimator: Estimator
    seen: Values
    samples: Values
    y: MixedArray
    given: Record
    classes: MixedArray

    def run(self, train: Index, test: Index) -> "Margins":
        """Return the scores of the samples left out."""
        n = len(self.y)
        given = {name: rows_of_each(value, train, n) for name, value in self.given.items()}
        fitted = clone(self.estimator).fit(self._take(self.seen, train, train), self.y[train], **given)
        if not np.array_equal(fitted.classes_, self.classes):
            raise ValueError(f"estimator must know the classes {self.classes.tolist()!r}; it has {fitted.classes_!r}")
        n_scores = 1 if len(self.classes) == 2 else len(self.classes)
        parts = []
        for block in row_blocks(len(test), n_scores**2):
            moments = score_moments(fitted, self._take(self.samples, test[block], train))
            if moments[1].shape[2] != n_scores:
                raise ValueError(
                    f"estimator must have {n_scores} scores a sample for {len(self.classes)} classes; "
                    f"got {moments[1].shape[2]}"
                )
            parts.append(Margins.of(*moments))
        return Margins.joined(parts)

    def _take(self, X: object, rows: Index, train: Index) -> Values:
        part = take_rows(X, rows)
        return part[:, train] if get_tags(self.estimator).input_tags.pairwise else part
