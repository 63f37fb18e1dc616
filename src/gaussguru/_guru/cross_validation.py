"""The noise level that cross-validation prefers."""

import inspect
from itertools import count
from typing import Any, Self

import numpy as np
import sklearn
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from gaussguru._errors.missing import Population
from gaussguru._errors.samples import measured, split_errors
from gaussguru._guru.base import Settings, refuse_metadata
from gaussguru._guru.linear import GuruClassifier
from gaussguru._guru.path import Proof, follow, noise_levels, warn_of
from gaussguru._rows.threads import Pool, n_threads
from gaussguru._rows.validation import Samples, check_samples, rows_of_each
from gaussguru._utils.checks import check_jobs
from gaussguru._utils.linalg import SAME, Array, Index
from gaussguru._utils.stages import stage
from gaussguru._utils.types import ClassWeight, ErrorBars, Labels, MixedArray, Record, Values
from gaussguru.losses import Loss
from gaussguru.sources import subsample
from gaussguru.sources.base import Source
from gaussguru.sources.reading import as_source


class GuruClassifierCV(GuruClassifier):
    """:class:`GuruClassifier` with the noise level chosen by cross-validation.

    Each fold computes a path of solutions from large to small sigma (:func:`sigma_path`) and scores them on the
    held-out samples. The sigma with the best mean score is refitted to all samples; among equal scores the largest is
    taken, the most robust one. Folds run in parallel.

    Parameters
    ----------
    sigmas : int or array-like of shape (n_sigmas,), default=20
        The noise levels to choose from, positive, in any order; or the number of levels in the grid of
        :func:`sigma_path`, whose largest value is found from all samples.
    cv : int, cross-validation generator or iterable, default=None
        How to split the samples, as in scikit-learn. None is 5 stratified folds.
    scoring : str or callable, default=None
        The name of a score or a callable ``scorer(estimator, X, y)``. None is the accuracy. A callable with an argument
        ``X_err`` gets the error bars of the fold, if there are any;
        :data:`gaussguru.robustness.expected_accuracy_scorer` computes the expected accuracy under noise of that size.
    noise, loss, l2, fit_intercept, solver, tol, max_iter, random_state, eta0, average
        As in :class:`GuruClassifier`.
    class_weight : dict, "balanced" or None, default=None
        As in :class:`GuruClassifier`; "balanced" balances the training samples of every fold.
    n_jobs : int or None, default=None
        Number of folds that run at the same time, with one thread each. None uses all cores available to the process,
        or one inside a joblib worker.
    verbose : int, default=0
        1 prints every stage of a fit when it ends, with its seconds and the fraction of the folds that are done; 2 also
        the progress of the solver.

    Attributes
    ----------
    sigma_ : float
        The chosen noise level.
    sigmas_ : ndarray of shape (n_sigmas,)
        All noise levels, the largest first.
    scores_ : ndarray of shape (n_sigmas, n_folds)
        The score of every level on every fold.
    coef_, intercept_, classes_, objective_, dual_gap_, n_iter_, converged_, n_features_in_, feature_names_in_, ...
        Of the fit to all samples, see :class:`GuruClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GuruClassifierCV(10, cv=3).fit(X, y)
    >>> clf.scores_.shape, bool(clf.sigma_ == clf.sigmas_[clf.scores_.mean(axis=1).argmax()])
    ((10, 3), True)
    """

    warm_start = False  # nothing to start from: another fit may choose another sigma

    def __init__(
        self,
        sigmas: object = 20,
        *,
        cv: object = None,
        scoring: object = None,
        noise: str = "isotropic",
        loss: str | Loss = "gaussian",
        l2: float = 0.0,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
        solver: str = "newton",
        tol: float = 1e-6,
        max_iter: int = 500,
        random_state: object = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        eta0: float | None = None,
        average: bool = False,
    ) -> None:
        self.sigmas = sigmas
        self.cv = cv
        self.scoring = scoring
        self.noise = noise
        self.loss = loss
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.eta0 = eta0
        self.average = average

    @property
    def sigma(self) -> float:  # type: ignore[override]  # found here, a parameter of the base
        """The chosen noise level."""
        return self.sigma_

    @property
    def partial_fit(self) -> Any:
        """Not available: sigma is chosen with all samples at once."""
        raise AttributeError("GuruClassifierCV has no partial_fit: it needs all samples at once; use GuruClassifier")

    def fit(self, X: object, y: object, sample_weight: object = None, X_err: object = None, **params: Any) -> Self:
        """Choose sigma by cross-validation, then fit the model to all samples.

        A fit that raises, or that is interrupted, leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or source of shape (n_samples, n_features)
            The samples. Of a source (:mod:`gaussguru.sources`) sigma is chosen on a subsample of at most 100,000, drawn
            by class, and then the model is fitted to all of them. Scores of so many left-out samples are known to
            0.002, differences between levels better; folds of all samples would read a source hundreds of times.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples, in the fits and in the scores. With metadata routing enabled a scorer gets them
            if it asks for them.
        X_err : default=None
            Error bars of the samples, see :meth:`GuruClassifier.fit`; every fold is given its own.
        **params
            Further metadata that the splitter (``groups``) and the scorer request, with scikit-learn's metadata routing
            enabled.

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._choose_for, source, y, sample_weight, X_err, params)
        return self._or_unchanged(self._choose, X, y, sample_weight, X_err, params)

    def _choose_for(self, source: Source, y: Labels, sample_weight: object, X_err: ErrorBars, params: Record) -> Self:
        """Choose sigma on a subsample, and fit the model to all samples of a source."""
        X, labels, weights, errors = subsample(source, y, sample_weight, X_err, n_jobs=self.n_jobs)
        model = self._chosen(X, labels, weights, errors, params)[0]
        self.__dict__.pop("alpha_", None)
        with stage(self, "fit of all samples"):
            return self._adopted(model.fit(source, y, sample_weight, X_err))

    def _choose(self, X: object, y: object, sample_weight: object, X_err: object, params: Record) -> Self:
        """Choose sigma, and fit the model to all samples in memory."""
        model, samples, labels, X_err, population = self._chosen(X, y, sample_weight, X_err, params)
        # The classifier itself is one more fit, with the warnings of any fit.
        with stage(self, "fit of all samples"):
            model.fit(samples.X, labels, samples.weights, **({} if X_err is None else {"X_err": X_err}))
        self._adopted(model)
        self.population_ = population  # of the samples with gaps; the model saw them filled
        return self

    def _adopted(self, model: GuruClassifier) -> Self:
        """Keep the attributes of a fitted model."""
        self.__dict__.update({name: value for name, value in vars(model).items() if name not in model.get_params()})
        return self

    def _chosen(
        self, X: object, y: object, sample_weight: object, X_err: object, params: Record
    ) -> tuple[GuruClassifier, Samples, MixedArray, ErrorBars, Population | None]:
        """Return the model at the level chosen, not fitted, and the samples: filled in, labelled, with their errors."""
        check_jobs("n_jobs", self.n_jobs)
        shared = {name: getattr(self, name) for name in self.get_params() if name not in ("sigmas", "cv", "scoring")}
        verbose = max(0, self.verbose - 1) if isinstance(self.verbose, int) else self.verbose
        model = GuruClassifier(1.0, **{**shared, "verbose": verbose, "n_jobs": 1})
        model._check_parameters()
        X, X_err, population = model._prepared(*split_errors(X, X_err), sample_weight)
        samples = check_samples(X, y, sample_weight, estimator=self)
        labels = samples.classes[samples.labels.astype(np.intp)]
        weighted = check_samples(samples.X, labels, samples.weights, self.class_weight)
        self.sigmas_ = noise_levels(self.sigmas, weighted, model)
        splitting, scoring = self._routed(samples.weights, X_err, params)
        folds = list(check_cv(self.cv, labels, classifier=True).split(samples.X, labels, **splitting))
        scorer = _accuracy if self.scoring is None else get_scorer(self.scoring)
        pool, config, done = Pool(n_threads(self.n_jobs)), sklearn.get_config(), count(1)

        def run(k: int, fold: tuple[Index, Index]) -> tuple[list[float], list[Proof]]:
            """Return the scores of a fold along the path, and the certificates of its solutions."""
            # scikit-learn has settings for each thread: these are those of the fit
            with Settings(**config), stage(self, "fold", done, len(folds)) as words:
                (train, test), n = fold, samples.X.shape[0]
                weights = None if samples.weights is None else samples.weights[train]
                try:
                    inside = check_samples(samples.X[train], labels[train], weights, model.class_weight)
                except ValueError as error:
                    raise ValueError(
                        f"the training samples of fold {k + 1} of {len(folds)} cannot be fitted: {error}"
                    ) from error
                X_test, y_test = samples.X[test], labels[test]
                given = {name: rows_of_each(value, test, n) for name, value in scoring.items()}

                def score(step: tuple[GuruClassifier, Proof]) -> tuple[float, Proof]:
                    with Settings(assume_finite=True):  # all of X was checked before
                        return float(scorer(step[0], X_test, y_test, **given)), step[1]

                errors = None if X_err is None else rows_of_each(X_err, train, n)
                path = follow(model, inside, self.sigmas_, errors, pool.here)
                scores, proofs = (list(each) for each in zip(*pool.here(score, path), strict=True))
                if self.verbose:
                    best = _best(np.array(scores)[:, np.newaxis])
                    words.append(f"best score {scores[best]:.6g} at sigma {self.sigmas_[best]:.4g}")
                return scores, proofs

        with pool as mapped:
            outcomes = list(mapped(run, range(len(folds)), folds))
            self.scores_ = np.array([scores for scores, _ in outcomes]).T
            self.sigma_ = float(self.sigmas_[_best(self.scores_)])
            warn_of([proof for _, proofs in outcomes for proof in proofs], model)
        model.set_params(sigma=self.sigma_, n_jobs=self.n_jobs)
        return model, samples, labels, X_err, population

    def _scorer(self) -> Any:
        return get_scorer("accuracy" if self.scoring is None else self.scoring)

    def _routed(self, weights: Array | None, X_err: object, params: Record) -> tuple[Record, ...]:
        """Return the metadata of the splitter and of the scorer."""
        given = {"sample_weight": weights, "X_err": X_err}
        given = {name: value for name, value in given.items() if value is not None} | params
        if sklearn.get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given) if given else None
            return (dict(routed.splitter.split), dict(routed.scorer.score)) if routed else ({}, {})
        refuse_metadata(params, "scorer")
        return {}, {name: value for name, value in given.items() if name == "sample_weight" or self._scores_errors()}

    def _scores_errors(self) -> bool:
        """Return whether the scorer has an argument for error bars."""
        return self.scoring is not None and "X_err" in inspect.signature(self._scorer()).parameters

    def score(self, X: object, y: object, sample_weight: object = None, X_err: object = None, **params: Any) -> float:
        """Return the score defined by ``scoring``.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        X_err : default=None
            Error bars with which predictions are made, or for a scorer that takes them.
        **params
            Further metadata that the scorer requests, with scikit-learn's metadata routing enabled.

        Returns
        -------
        float
        """
        if self.scoring is None and not params:
            return super().score(X, y, sample_weight, X_err)
        given = {"sample_weight": sample_weight, "X_err": X_err if self._scores_errors() else None}
        given = {name: value for name, value in given.items() if value is not None} | params
        if X_err is not None and "X_err" not in given:
            X = measured(X, X_err)  # predictions are made with them
        if given and sklearn.get_config()["enable_metadata_routing"]:
            given = process_routing(self, "score", **given).scorer.score
        else:
            refuse_metadata(params, "scorer")
        return float(self._scorer()(self, X, y, **given))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata routing of the fit, the splitter and the scorer."""
        to_scorer = MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score")
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(scorer=self._scorer(), method_mapping=to_scorer)
        )


def _accuracy(model: GuruClassifier, X: Values, y: Labels, sample_weight: Array | None = None) -> float:
    """Return the accuracy without the checks of the scorer "accuracy", which take longer than small fits."""
    return float(np.average(model.predict(X) == y, weights=sample_weight))


def _best(scores: Array) -> int:
    """Return the first level, and so the largest, with the best mean score over the folds; NaN is worst."""
    means = scores.mean(axis=1)
    if np.isnan(means).all():
        raise ValueError("scoring gave NaN for every sigma: there is no best one; see the warnings of the scorer")
    best = float(np.nanmax(means))
    return int(np.flatnonzero(means >= best - SAME * abs(best))[0])
