"""Choosing sigma: solutions along a path of noise levels, and the level that cross-validation prefers."""

import inspect
import numbers
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from gaussguru.certificates import collapse_sigma
from gaussguru.errors import split_errors
from gaussguru.estimator import Settings, make_objective, outside
from gaussguru.linear import GuruClassifier
from gaussguru.losses import Array, Loss
from gaussguru.multiclass import Multiclass
from gaussguru.noise import Noise
from gaussguru.objective import NotFiniteError, Objective
from gaussguru.rows import BlockMap
from gaussguru.solvers.bars import ErrorBars
from gaussguru.solvers.result import Result
from gaussguru.threads import Pool, SingleBlas, block_map, n_threads
from gaussguru.uncertain import symmetric
from gaussguru.validation import Samples, check_count, check_jobs, check_real, check_samples, explain_not_finite

# The bottom of a grid of sigmas, relative to its top.
RATIO = 1e-3
# Mean scores that differ by no more than this part of them are the same: the order of a sum may do as much.
SAME = 1e-12


class Proof(NamedTuple):
    """What is proven of a solution: at which noise level, whether to the tolerance, and the gap relative to F(0)."""

    sigma: float
    converged: bool
    relative_gap: float


def sigma_path(
    X: Any,
    y: Any,
    *,
    sigmas: Any = None,
    n_sigmas: int = 20,
    sample_weight: Any = None,
    X_err: Any = None,
    **options: Any,
) -> tuple[Array, Array, Array, Array]:
    """Return the solutions of :class:`GuruClassifier` at one noise level after another, from large to small.

    Each level starts from an extrapolation of the solutions before it and reuses their factors, so that the whole
    path costs a few times as much as one fit. Every solution is certified.

    Without ``sigmas`` the levels form a geometric grid down to 1/1000 of its top. Its top is :func:`sigma_max`, above
    which the features cannot matter, or the spread of the samples (the root of their mean squared distance from their
    mean), whichever is less: noise as large as the data itself leaves only the class means to go by. ``sigma_max`` is
    infinite for classes of equal weight and without an intercept, and not known for more than two classes.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples.
    y : array-like of shape (n_samples,)
        Labels of two or more classes.
    sigmas : array-like of shape (n_sigmas,), default=None
        The noise levels, positive, in any order.
    n_sigmas : int, default=20
        How many levels the grid has where ``sigmas`` is None.
    sample_weight : array-like of shape (n_samples,) or float, default=None
        Weights of the samples.
    X_err : default=None
        Error bars of the samples, see :meth:`GuruClassifier.fit`.
    **options
        All other parameters of :class:`GuruClassifier`: ``noise``, ``loss``, ``l2``, ``fit_intercept``,
        ``class_weight``, ``solver``, ``tol``, ``max_iter``, ``random_state``, ``n_jobs``, ``verbose``, ``eta0`` and
        ``average``.

    Returns
    -------
    sigmas : ndarray of shape (n_sigmas,)
        The noise levels, the largest first.
    coefs : ndarray of shape (n_sigmas, 1, n_features) or (n_sigmas, n_classes, n_features)
        ``coef_`` at every level. Where the classifier collapses it is 0; no warning says so.
    intercepts : ndarray of shape (n_sigmas, 1) or (n_sigmas, n_classes)
        ``intercept_`` at every level.
    dual_gaps : ndarray of shape (n_sigmas,)
        ``dual_gap_`` at every level.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import sigma_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> sigmas, coefs, intercepts, dual_gaps = sigma_path(X, y, n_sigmas=10)
    >>> coefs.shape, bool((dual_gaps <= 1e-6 * len(y)).all())
    ((10, 1, 30), True)
    """
    model = GuruClassifier(**_known(options))
    model._checked()
    X, X_err, *_ = model._prepared(*split_errors(X, X_err))
    samples = check_samples(X, y, sample_weight, model.class_weight)
    levels = _levels(n_sigmas if sigmas is None else sigmas, samples, model, "n_sigmas" if sigmas is None else "sigmas")
    coefs, intercepts, gaps, proofs = [], [], [], []
    # The threads of BLAS take longer to start than most of the products of a path.
    with SingleBlas(), block_map(samples.X, model.n_jobs, _width(samples, X_err)) as mapped:
        for fitted, proof in _follow(model, samples, levels, X_err, mapped):
            coefs.append(fitted.coef_)
            intercepts.append(fitted.intercept_)
            gaps.append(fitted.dual_gap_)
            proofs.append(proof)
    _warn_of(proofs, model)
    return levels, np.array(coefs), np.array(intercepts), np.array(gaps)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    known = [name for name in inspect.signature(GuruClassifier).parameters if name not in ("sigma", "warm_start")]
    for name in options:
        if name not in known:
            raise TypeError(f"sigma_path has no argument {name!r}; the options of the classifier are {known}")
    return options


def _levels(sigmas: Any, samples: Samples, model: GuruClassifier, name: str = "sigmas") -> Array:
    """Return noise levels from large to small: those given, or a grid of so many."""
    if isinstance(sigmas, numbers.Number) or sigmas is None or isinstance(sigmas, str):
        return _grid(check_count(name, sigmas), samples, model)
    levels = np.asarray(sigmas)
    if levels.ndim != 1 or levels.size == 0:
        raise ValueError(f"{name} must be a number of levels or a list of at least one; got {sigmas!r}")
    checked = sorted((check_real(f"{name}[{i}]", sigma) for i, sigma in enumerate(levels.tolist())), reverse=True)
    _at(model, checked[-1])._checked()
    return np.array(checked)


def _grid(n_sigmas: int, samples: Samples, model: GuruClassifier) -> Array:
    (loss, l2, fit_intercept), _, _ = model._checked()
    unit = _unit_noise(model, samples)
    with block_map(samples.X, model.n_jobs, samples.width) as mapped:
        objective = make_objective(samples, mapped, loss, unit, l2, fit_intercept)
        try:
            top = _spread(objective)
            if isinstance(objective, Objective) and fit_intercept:
                top = min(top, collapse_sigma(objective)) or top
        except NotFiniteError:
            raise explain_not_finite(samples.X) from None
    return np.geomspace(top, RATIO * top, n_sigmas)


def _unit_noise(model: GuruClassifier, samples: Samples) -> Noise:
    """Return the noise of the model at sigma = 1."""
    noise = model._resolve_noise(samples)
    assert noise is not None  # sigma is positive on a path
    return noise.scaled(1.0 / model.sigma)


def _spread(objective: Objective | Multiclass) -> float:
    """Return the root of the mean squared distance of the samples from their mean, or 1 where it is zero."""
    weights = np.asarray(objective.weights if isinstance(objective, Objective) else objective.class_weights)
    means, shares = np.array(objective.means), weights / weights.sum()
    mean = shares @ means
    # Far from the origin the difference of squares is lost in rounding: what lies between the classes is not.
    between = float(shares @ np.square(means - mean).sum(axis=1))
    return float(np.sqrt(max(between, objective.squares / weights.sum() - float(mean @ mean)))) or 1.0


def _width(samples: Samples, X_err: Any) -> int:
    """Return how many numbers there are to a value of X."""
    return samples.width if X_err is None else 2 * samples.width


def _follow(
    model: GuruClassifier, samples: Samples, levels: Array, X_err: Any, mapped: BlockMap
) -> Iterator[tuple[GuruClassifier, Proof]]:
    """Yield fitted classifiers, one for each level."""
    if X_err is not None:
        yield from _follow_errors(model, samples, levels, X_err, mapped)
        return
    (loss, l2, fit_intercept), solvers, settings = model._checked()
    solver = solvers.make(len(samples.classes), settings)
    objective = make_objective(samples, mapped, loss, _unit_noise(model, samples), l2, fit_intercept)
    try:
        results: Iterable[Result] = solver.follow(objective, levels.tolist())
        for sigma, result in zip(levels.tolist(), results, strict=True):
            fitted = _at(model, sigma)
            fitted.n_features_in_ = samples.X.shape[1]
            fitted._adopt(objective.with_noise(sigma), samples.classes, result)
            fitted._keep(result)
            yield fitted, Proof(sigma, result.converged, result.gap / objective.weight)
    except NotFiniteError:
        raise explain_not_finite(samples.X) from None


def _follow_errors(
    model: GuruClassifier, samples: Samples, levels: Array, X_err: Any, mapped: BlockMap
) -> Iterator[tuple[GuruClassifier, Proof]]:
    """Yield classifiers that saw error bars, each found from the one before."""
    (loss, l2, fit_intercept), _, settings = model._checked()
    if model.solver != "newton":
        raise ValueError(f"solver={model.solver!r} with X_err is not supported; use solver='newton'")
    unit, solver, start = _unit_noise(model, samples), ErrorBars(**settings), None
    problem = model._uncertain(samples, X_err, mapped, (loss, unit, l2, fit_intercept))
    noise = problem.noise
    assert noise is not None
    for sigma in levels.tolist():
        noisy = replace(problem, noise=noise.scaled(sigma))
        result = solver.solve(noisy, start)
        start = symmetric(result.coef, result.intercept) if np.any(result.coef) else None
        fitted = _at(model, sigma)
        fitted.n_features_in_ = samples.X.shape[1]
        fitted._adopt(noisy, samples.classes, result)
        fitted._keep(result)
        yield fitted, Proof(sigma, result.converged, result.gap / problem.weight)


def _at(model: GuruClassifier, sigma: float) -> GuruClassifier:
    """Return a classifier with the same options, unfitted, at another level."""
    return GuruClassifier(**{**model.get_params(deep=False), "sigma": sigma})


def _warn_of(proofs: list[Proof], model: GuruClassifier) -> None:
    """Say once what did not converge on a path."""
    failed = [proof for proof in proofs if not proof.converged]
    if failed:
        worst = max(failed, key=lambda proof: proof.relative_gap)
        warnings.warn(
            f"{len(failed)} of {len(proofs)} solutions are not proven optimal to tol={model.tol:g}, that at sigma="
            f"{worst.sigma:g} only to {worst.relative_gap:.1e} of the objective at zero; increase max_iter or "
            "tol, leave out the smallest sigmas, or centre and scale the features",
            ConvergenceWarning,
            stacklevel=outside(),
        )


class GuruClassifierCV(GuruClassifier):
    """:class:`GuruClassifier` at the noise level that cross-validation prefers.

    In every fold one path of solutions, from large to small sigma (:func:`sigma_path`), is scored on the samples that
    were left out; the sigma with the best mean score is refitted to all samples. Of several with the same mean score
    the largest is taken, the one that promises most. Folds run in parallel.

    Parameters
    ----------
    sigmas : int or array-like of shape (n_sigmas,), default=20
        The noise levels to choose from, positive, in any order; or how many there are in the grid of
        :func:`sigma_path`, whose top is found on all samples.
    cv : int, cross-validation generator or iterable, default=None
        How to split the samples, as everywhere in scikit-learn. None is 5 stratified folds.
    scoring : str or callable, default=None
        The name of a score or a callable ``scorer(estimator, X, y)``. None is the accuracy.
    noise, loss, l2, fit_intercept, solver, tol, max_iter, random_state, eta0, average
        As in :class:`GuruClassifier`.
    class_weight : dict, "balanced" or None, default=None
        As in :class:`GuruClassifier`; "balanced" balances the training samples of every fold.
    n_jobs : int or None, default=None
        How many folds are worked on at the same time, by one thread each: None uses the cores that the process may
        use, or one inside a joblib worker.
    verbose : int, default=0
        1 prints a line for every fold, 2 also what the solver does.

    Attributes
    ----------
    sigma_ : float
        The noise level chosen.
    sigmas_ : ndarray of shape (n_sigmas,)
        All of them, the largest first.
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
        sigmas: Any = 20,
        *,
        cv: Any = None,
        scoring: Any = None,
        noise: str = "isotropic",
        loss: str | Loss = "gaussian",
        l2: float = 0.0,
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        solver: str = "newton",
        tol: float = 1e-6,
        max_iter: int = 500,
        random_state: Any = None,
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
        """The noise level of the classifier: the one chosen."""
        return self.sigma_

    @property
    def partial_fit(self) -> Any:
        """Not there: sigma is chosen with all samples at once."""
        raise AttributeError("GuruClassifierCV has no partial_fit: it needs all samples at once; use GuruClassifier")

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_err: Any = None, **params: Any) -> Self:
        """Choose sigma by cross-validation, then fit the model to all samples.

        A fit that raises, or that is interrupted, leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples, in the fits and in the scores. With metadata routing enabled a scorer gets them
            if it asks for them.
        X_err : default=None
            Error bars of the samples, see :meth:`GuruClassifier.fit`; every fold is given its own.
        **params
            What else the splitter (``groups``) and the scorer ask for, with scikit-learn's metadata routing enabled.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._choose, X, y, sample_weight, X_err, params)

    def _choose(self, X: Any, y: Any, sample_weight: Any, X_err: Any, params: dict[str, Any]) -> Self:
        check_jobs(self.n_jobs)
        model = self._model()
        model._checked()
        X, X_err, population, _ = model._prepared(*split_errors(X, X_err))
        samples = check_samples(X, y, sample_weight, estimator=self)
        labels = samples.classes[samples.labels.astype(np.intp)]
        weighted = check_samples(samples.X, labels, samples.weights, self.class_weight)
        self.sigmas_ = _levels(self.sigmas, weighted, model)
        splitting, scoring = self._routed(samples.weights, X_err, params)
        folds = list(check_cv(self.cv, labels, classifier=True).split(samples.X, labels, **splitting))
        pool = Pool(n_threads(self.n_jobs))
        job = _Job(
            model, samples, labels, self.sigmas_, X_err, _score_of(self.scoring), scoring, len(folds), self.verbose,
            sklearn.get_config(), pool.here,
        )  # fmt: skip
        with pool as mapped:
            outcomes = list(mapped(job.run, range(len(folds)), folds))
            self.scores_ = np.array([scores for scores, _ in outcomes]).T
            self.sigma_ = float(self.sigmas_[_best(self.scores_)])
            _warn_of([proof for _, proofs in outcomes for proof in proofs], model)
            # The classifier itself is one more fit, with the warnings of any fit.
            model.set_params(sigma=self.sigma_, n_jobs=self.n_jobs)
            model.fit(samples.X, labels, samples.weights, **({} if X_err is None else {"X_err": X_err}))
        self.__dict__.update({name: value for name, value in vars(model).items() if name not in model.get_params()})
        if population is not None:
            self._population = population  # that of what was given; the model saw it filled in
        return self

    def _model(self) -> GuruClassifier:
        """Return a classifier with the same options for one thread."""
        shared = {name: getattr(self, name) for name in self.get_params() if name not in ("sigmas", "cv", "scoring")}
        verbose = max(0, self.verbose - 1) if isinstance(self.verbose, int) else self.verbose
        return GuruClassifier(1.0, **{**shared, "verbose": verbose, "n_jobs": 1})

    def _scorer(self) -> Any:
        return get_scorer("accuracy" if self.scoring is None else self.scoring)

    def _routed(self, weights: Array | None, X_err: Any, params: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return what the splitter and what the scorer is given."""
        given = {"sample_weight": weights, "X_err": X_err}
        given = {name: value for name, value in given.items() if value is not None} | params
        if sklearn.get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given) if given else None
            return (dict(routed.splitter.split), dict(routed.scorer.score)) if routed else ({}, {})
        self._refuse(params)
        return {}, {} if weights is None else {"sample_weight": weights}

    def _refuse(self, params: dict[str, Any]) -> None:
        if params and not sklearn.get_config()["enable_metadata_routing"]:
            raise ValueError(
                f"{sorted(params)} can be given only with sklearn.set_config(enable_metadata_routing=True), which "
                "decides whether they go to the splitter or to the scorer"
            )

    def score(self, X: Any, y: Any, sample_weight: Any = None, X_err: Any = None, **params: Any) -> float:
        """Return the score that ``scoring`` stands for.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        X_err : default=None
            Error bars, for a scorer that asks for them, with scikit-learn's metadata routing enabled.
        **params
            What else the scorer asks for, in the same way.

        Returns
        -------
        float
        """
        if X_err is not None:
            params = {"X_err": X_err, **params}
        given = ({} if sample_weight is None else {"sample_weight": sample_weight}) | params
        if given and sklearn.get_config()["enable_metadata_routing"]:
            given = process_routing(self, "score", **given).scorer.score
        else:
            self._refuse(params)
        return float(self._scorer()(self, X, y, **given))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where metadata goes: to the fit itself, to the splitter and to the scorer."""
        to_scorer = MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score")
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(scorer=self._scorer(), method_mapping=to_scorer)
        )


class _Job(NamedTuple):
    """What all folds of a cross-validation share."""

    model: GuruClassifier
    samples: Samples
    labels: Any
    levels: Array
    X_err: Any
    scorer: Any
    score_params: dict[str, Any]
    n_folds: int
    verbose: int
    config: dict[str, Any]
    mapped: Any

    def run(self, k: int, fold: tuple[Any, Any]) -> tuple[list[float], list[Proof]]:
        """Return the scores of a fold along the path, and what is proven of its solutions."""
        with Settings(**self.config):  # those of the thread that fits: they are not those of all threads
            return self._run(k, *fold)

    def _run(self, k: int, train: Any, test: Any) -> tuple[list[float], list[Proof]]:
        began = time.perf_counter()
        X, y, weights = self.samples.X, self.labels, self.samples.weights
        try:
            mine = check_samples(
                X[train], y[train], None if weights is None else weights[train], self.model.class_weight
            )
        except ValueError as error:
            raise ValueError(
                f"the training samples of fold {k + 1} of {self.n_folds} cannot be fitted: {error}"
            ) from error
        X_test, y_test, n = X[test], y[test], X.shape[0]
        params = {name: _part(value, test, n) for name, value in self.score_params.items()}
        X_err = None if self.X_err is None else _part(self.X_err, train, n)

        def score(step: tuple[GuruClassifier, Proof]) -> tuple[float, Proof]:
            with Settings(assume_finite=True):  # all of X was looked at before
                return float(self.scorer(step[0], X_test, y_test, **params)), step[1]

        path = _follow(self.model, mine, self.levels, X_err, self.mapped)
        scores, proofs = (list(each) for each in zip(*self.mapped(score, path), strict=True))
        if self.verbose:
            best = _best(np.array(scores)[:, np.newaxis])
            print(
                f"[cv] fold {k + 1} of {self.n_folds}  best score {scores[best]:.6g} at sigma {self.levels[best]:.4g}  "
                f"{time.perf_counter() - began:.3f} s"
            )
        return scores, proofs


def _score_of(scoring: Any) -> Any:
    return _accuracy if scoring is None else get_scorer(scoring)


def _accuracy(model: GuruClassifier, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return what the scorer "accuracy" does, without its checks, which take longer than small fits."""
    return float(np.average(model.predict(X) == y, weights=sample_weight))


def _part(values: Any, index: Any, n_samples: int) -> Any:
    """Return some of the values of something that has one for each sample; anything else as it is."""
    length = values.shape[0] if sp.issparse(values) else len(values) if hasattr(values, "__len__") else -1
    if length != n_samples or isinstance(values, str | dict):
        return values
    if hasattr(values, "iloc"):
        return values.iloc[index]
    if isinstance(values, list | tuple):
        return [values[i] for i in np.arange(n_samples)[index]]
    return values[index]


def _best(scores: Array) -> int:
    """Return the first level, and so the largest, with the best mean score over the folds; NaN is worst."""
    means = scores.mean(axis=1)
    if np.isnan(means).all():
        raise ValueError("scoring gave NaN for every sigma: there is no best one; see the warnings of the scorer")
    best = float(np.nanmax(means))
    return int(np.flatnonzero(means >= best - SAME * abs(best))[0])
