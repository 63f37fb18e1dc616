"""Base classes of the estimators: checked parameters, a solved problem, its warnings, predicted labels."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.checks import check_products
from gaussguru._errors.missing import Population, has_unmeasured
from gaussguru._errors.samples import split_errors
from gaussguru._guru.pose import Posed
from gaussguru._guru.probabilities import (
    covariance_roots,
    mixture_moments,
    noise_probabilities,
    score_covariance,
    score_roots,
    winners,
)
from gaussguru._guru.problems.protocol import P, Problem
from gaussguru._guru.solvers.registry import SOLVERS, Method
from gaussguru._guru.solvers.result import Result
from gaussguru._guru.streamed import accuracy, by_parts, without_population
from gaussguru._native._binding import CleanExit
from gaussguru._populations.em import population_of
from gaussguru._rows.rows import linear_scores
from gaussguru._rows.streams import with_registers
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, check_features, check_samples, check_weights
from gaussguru._utils.checks import (
    check_choice,
    check_count,
    check_flag,
    check_jobs,
    check_optional,
    check_real,
    check_sigma,
    check_verbose,
    outside,
)
from gaussguru._utils.frames import as_numbers, is_frame
from gaussguru._utils.linalg import Array, Intercept
from gaussguru._utils.types import ClassWeight, ErrorBars, Estimator, MixedArray, Record, Values
from gaussguru.losses import resolve_loss
from gaussguru.noise import NOISES
from gaussguru.sources.base import Fields
from gaussguru.sources.reading import as_source


class CollapseWarning(UserWarning):
    """The noise is so strong that ignoring the features is optimal."""


class Settings(CleanExit):
    """Settings of scikit-learn in this thread, for a while."""

    def __init__(self, **settings: Any) -> None:
        self._settings, self._before = settings, sklearn.get_config()

    def acquire(self) -> None:
        """Set them."""
        if self._settings:
            sklearn.set_config(**self._settings)

    def release(self) -> None:
        """Restore settings that have changed; to set all takes as long as a step of a small fit."""
        if sklearn.get_config() != self._before:
            sklearn.set_config(**self._before)


class OrUnchanged:
    """An estimator that a fit which raises, or is interrupted, leaves as it was."""

    def _or_unchanged(self, train: Callable[..., Self], *data: object) -> Self:
        before = self.__dict__.copy()
        try:
            # A fit changes NumPy's error state, part of the context, and scikit-learn's settings for a while: an
            # interrupt may leave them changed.
            with Settings():
                return copy_context().run(with_registers, train, *data)
        except BaseException:
            self.__dict__ = before
            raise


class Classifier(OrUnchanged, ClassifierMixin, BaseEstimator):
    """A classifier with ``decision_function``; predictions from samples or sources."""

    __metadata_request__predict: ClassVar = {"X_err": True}
    __metadata_request__score: ClassVar = {"X_err": True}

    @by_parts
    def predict(self, X: object, X_err: object = None) -> MixedArray:
        """Return the class of every sample: the one with the best score.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            Used only to fill in values that were not measured; with a kernel, also to compute expected scores.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        best = winners(self.decision_function(X, X_err))  # first: it says so where nothing was fitted
        labels: MixedArray = self.classes_[best]
        return labels

    def score(self, X: object, y: object, sample_weight: object = None, X_err: object = None) -> float:
        """Return the accuracy of the predictions.

        For the expected accuracy when noise is added to X, see :func:`gaussguru.robustness.expected_accuracy`.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        X_err : error bars of X, default=None
            Passed to the predictions.

        Returns
        -------
        float
        """
        source = as_source(X)
        if source is not None:
            return accuracy(self, source, Fields(y, sample_weight, X_err))
        return float(accuracy_score(y, self.predict(X, X_err), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearScores:
    """A classifier with linear scores: predictions, margins and spreads."""

    __metadata_request__decision_function: ClassVar = {"X_err": True}

    n_jobs: int | None
    coef_: Array
    intercept_: Array

    @by_parts
    def decision_function(self, X: object, X_err: object = None) -> Array:
        """Return ``w.x + b`` for every sample, positive for the second class; with more than two, one score for each.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            Used only to fill in values that were not measured.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        X, X_err = self._measured(X, X_err)
        if X_err is not None:
            check_products(X_err, X)
        return self._scores(X)

    @by_parts
    def margin_and_spread(self, X: Values, X_err: object = None) -> tuple[Array, Array]:
        """Return the scores of every sample and their standard deviations under its error bars.

        ::

            m = w.x + b,     s^2 = w' Sigma w

        The spread includes the error bars, not the noise of the model; it is 0 without error bars. For mixtures
        (``Measured.components``) these are the mean and the standard deviation of the mixture.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            Standard deviations or covariances in any form that ``fit`` of :class:`GuruClassifier` takes.

        Returns
        -------
        margin, spread : ndarrays of shape (n_samples,), or (n_samples, n_classes) for more than two classes
        """
        if getattr(X, "components", None) is not None:
            margin, spread = mixture_moments(*self._score_moments(X, X_err))
        else:
            X, X_err = self._measured(X, X_err)
            margin = self._scores(X).reshape(X.shape[0], -1)
            variances = np.zeros(margin.shape) if X_err is None else check_products(X_err, X).variances(self.coef_)
            spread = np.sqrt(np.maximum(variances, 0.0))
        return (margin[:, 0], spread[:, 0]) if len(self.coef_) == 1 else (margin, spread)

    def _score_moments(self, X: object, X_err: object = None, *, rooted: bool = False) -> tuple[Array, Array, Array]:
        """Return the distribution of the scores of every sample under its error bars, a mixture of Gaussians.

        Weights of shape (n_samples, n_components), means (..., n_scores) and covariances (..., n_scores, n_scores), or
        roots of these; one component unless X has more, and one score for two classes.
        """
        components = getattr(X, "components", None)
        X, X_err = self._measured(X, X_err)
        return score_mixtures(self.coef_, self.intercept_, X, X_err, components, n_jobs=self.n_jobs, rooted=rooted)

    def _measured(self, X: object, X_err: object = None) -> tuple[Values, ErrorBars]:
        """Return samples and error bars, checked."""
        check_is_fitted(self)
        X, X_err = split_errors(X, X_err)
        return check_features(X, estimator=self), X_err

    def _scores(self, X: object) -> Array:
        scores = _scores_of(self.coef_, self.intercept_, X, self.n_jobs)
        return scores[:, 0] if len(self.coef_) == 1 else scores


def score_mixtures(
    coef: Array,
    intercept: Array,
    X: Values,
    X_err: object,
    components: Any,
    *,
    n_jobs: int | None = 1,
    rooted: bool = False,
) -> tuple[Array, Array, Array]:
    """Return weights, means and covariances of linear scores, or roots of these: `LinearScores._score_moments`."""
    if components is not None:
        means, noise = components.scores(coef, intercept)
        return np.asarray(components.weights), means, covariance_roots(noise) if rooted else noise
    n, n_scores = X.shape[0], len(coef)
    means = _scores_of(coef, intercept, X, n_jobs).reshape(n, 1, n_scores)
    if X_err is None:
        return np.ones((n, 1)), means, np.zeros((n, 1, n_scores, n_scores))
    noise = (score_roots if rooted else score_covariance)(coef, check_products(X_err, X))
    return np.ones((n, 1)), means, noise[:, np.newaxis]


def _scores_of(coef: Array, intercept: Array, X: object, n_jobs: int | None) -> Array:
    """Return ``X W' + b``, (n_samples, n_scores)."""
    with block_map(X, n_jobs, len(coef)) as mapped:
        scores = linear_scores(X, coef, mapped)
    scores += intercept
    return scores


class ByProbability(Classifier):
    """A classifier with error bars that decides by its probabilities; it has a ``predict_log_proba``."""

    classes_: MixedArray

    __metadata_request__fit: ClassVar = {"X_err": True}
    __metadata_request__predict_proba: ClassVar = {"X_err": True}
    __metadata_request__predict_log_proba: ClassVar = {"X_err": True}

    def predict_log_proba(self, X: object, X_err: object = None) -> Array:
        """Return the logarithms of the probabilities."""
        raise NotImplementedError

    @by_parts
    def predict_proba(self, X: object, X_err: object = None) -> Array:
        """Return the probability of each class, given the measured values and their error bars.

        For samples with error bars and more than three classes, one direction of the noise is integrated exactly and
        the others at quasi-random points, with an error of about 1e-3; otherwise the probabilities are exact.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`predict_log_proba`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X, X_err))

    @by_parts
    def predict(self, X: object, X_err: object = None) -> MixedArray:
        """Return the class with the highest probability.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`predict_log_proba`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        best = np.argmax(self.predict_log_proba(X, X_err), axis=1)
        labels: MixedArray = self.classes_[best]
        return labels


class FillsGaps:
    """A classifier that fills in values that were not measured from the measured values of the sample."""

    population_: Population | None
    class_weight: ClassWeight
    classes_: MixedArray

    @property
    def _keeps_correlations(self) -> bool:
        """Whether the solver takes errors that are correlated."""
        return True

    def _prepared(
        self, X: Values, X_err: ErrorBars, sample_weight: object = None
    ) -> tuple[Values, ErrorBars, Population | None]:
        """Return samples and error bars without gaps, and the population by which they were filled."""
        if X_err is None or sp.issparse(X) or not np.shape(X)[0]:
            return X, X_err, None
        table = X if is_frame(X) else as_numbers(X, "X")
        gaps = has_unmeasured(X_err)
        population = population_of(table, X_err, check_weights(sample_weight, len(table)), gaps=gaps)
        if not gaps:
            return X, X_err, population
        return *population.fill(table, X_err, correlated=self._keeps_correlations), population

    def _measured(self, X: object, X_err: object = None) -> tuple[Values, ErrorBars]:
        """Return samples and error bars without gaps, filled by the population of the fit."""
        check_is_fitted(self)
        X, X_err = self._filled(X, X_err)
        try:
            return check_features(X, estimator=self), X_err
        except ValueError as error:
            if X_err is not None or "NaN" not in str(error):
                raise
            raise ValueError(
                f"{error}\nNaN for what was not measured needs X_err, the error bars of the measured values (0 for "
                "exact ones), here and in fit: it is replaced by what the measured values of the sample let expect"
            ) from None

    def _labelled(self, X: object, y: object, sample_weight: object, X_err: object) -> tuple[Samples, ErrorBars]:
        """Return new samples with their labels, of all classes of the fit, and error bars without gaps."""
        X, errors = self._filled(X, X_err)
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self, reset=False)
        self._check_classes(samples.classes)
        return samples, errors

    def _check_classes(self, classes: MixedArray) -> None:
        if not np.array_equal(classes, self.classes_):
            raise ValueError(f"y must have the classes {self.classes_.tolist()!r}; got {classes.tolist()!r}")

    def _filled(self, X: object, X_err: object) -> tuple[Values, ErrorBars]:
        """Return new samples and their parsed errors, without gaps."""
        X, X_err = split_errors(X, X_err)
        if not has_unmeasured(X_err):
            return X, X_err
        if sp.issparse(X):
            raise ValueError("X_err has infinite errors, for what was not measured: that needs a dense X")
        population: Population | None = getattr(self, "population_", None)
        if population is None:
            raise without_population("this classifier")
        table = X if is_frame(X) else as_numbers(X, "X")
        return population.fill(table, X_err, correlated=self._keeps_correlations)


class GuruEstimator(Classifier):
    """The part of an estimator that does not depend on where its features come from."""

    __metadata_request__fit: ClassVar = {"X_err": True}
    __metadata_request__predict_proba: ClassVar = {"X_err": True}
    __metadata_request__predict_log_proba: ClassVar = {"X_err": True}

    # Attributes that predictions do not need.
    _of_training: ClassVar[tuple[str, ...]] = ("alpha_", "_descent")
    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "sigma": check_sigma,
        "loss": lambda _, value: resolve_loss(value),
        "l2": partial(check_real, inclusive=True),
        "fit_intercept": check_flag,
        "solver": partial(check_choice, known=SOLVERS),
        "tol": check_real,
        "max_iter": check_count,
        "warm_start": check_flag,
        "n_jobs": check_jobs,
        "verbose": check_verbose,
        "eta0": partial(check_optional, check=check_real),
        "average": check_flag,
    }

    @abstractmethod
    def _noisy_scores(self, X: object, X_err: object) -> tuple[Array, Array | float]:
        """Return the scores, and their standard deviation under noise, of which a sample may have its own.

        Of more than two classes it is the root of half the mean variance of the differences of two scores.
        """

    @by_parts
    def predict_proba(self, X: object, X_err: object = None) -> Array:
        """Return the probability of each class when the features carry noise.

        They account for the noise of the model and the error bars of the sample, but not for the overlap of the
        classes. As class probabilities they are overconfident; :class:`gaussguru.calibration.CalibratedWithErrorsCV`
        accounts for both.

        For two classes, ``Phi((w.x + b) / a)`` is the probability that ``x`` plus noise falls on the side of the
        second, where ``a^2 = a(w)^2 + w' Sigma w`` adds the error bars to the (worst) noise of the model. For more, ::

            P(c) = E_t prod_{k != c} Phi((m_c - m_k) / s + t),     m_c = w_c.x + b_c,   t ~ N(0, 1)

        treats the noise of the scores as independent with equal variances; ``s^2`` is half the mean variance of the
        differences of two scores. So the predicted class always has the highest probability. For the exact
        probabilities under correlated noise see :func:`gaussguru.robustness.class_probabilities`. Without noise the
        predicted class has probability 1; ties are shared. As an error grows the classes become equally probable. At
        infinity the probabilities jump: a value that was not measured is filled from the population of the fit.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            Standard deviations or covariances, in any form that ``fit`` of :class:`GuruClassifier` takes. They need
            not be those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return noise_probabilities(*self._noisy_scores(X, X_err))

    @by_parts
    def predict_log_proba(self, X: object, X_err: object = None) -> Array:
        """Return the logarithms of :meth:`predict_proba`, accurate even if the probability underflows.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return noise_probabilities(*self._noisy_scores(X, X_err), logs=True)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        solver, noise = self.solver, getattr(self, "noise", None)
        can = not isinstance(solver, str) or solver not in SOLVERS or SOLVERS[solver].classes
        smooth = not isinstance(noise, str) or noise not in NOISES or NOISES[noise](1.0).smooth
        tags.classifier_tags.multi_class = can and smooth
        return tags

    def _check_parameters(self) -> None:
        """Raise if a parameter has no valid value."""
        for name, check in self._checks.items():
            check(name, getattr(self, name))

    @property
    def _method(self) -> Method:
        return SOLVERS[self.solver]

    def _settings(self) -> Record:
        """Return the settings of the solver."""
        settings = {name: getattr(self, name) for name in ("tol", "max_iter")}
        settings |= {"verbose": int(self.verbose), "seed": seed_of(self.random_state)}
        if not self._method.exact:
            settings |= {"eta0": self.eta0, "average": self.average}
        return settings

    def _minimise(
        self,
        posed: Posed,
        classes: MixedArray,
        start: tuple[Array, Intercept] | None = None,
        method: Method | None = None,
    ) -> Result:
        """Solve a problem, by the method of ``solver`` unless another is given, and keep all but the coefficients."""
        solver = (method or self._method).solver(posed.problem, warm=start is not None, **self._settings())
        solution: Result = solver.solve(posed.problem, None if start is None else posed.start(*start))
        self._warn(solution, posed.problem)  # while there are threads: it may look at the rows
        result = posed.result(solution)
        self._adopt(posed, classes, result)
        return result

    def _adopt(self, posed: Posed, classes: MixedArray, result: Result) -> None:
        """Keep all of a result but the coefficients."""
        self.noise_ = posed.noise
        self.classes_ = classes
        self.intercept_ = np.atleast_1d(result.intercept)
        self.__dict__.pop("alpha_", None)
        if result.alpha is not None:
            self.alpha_ = result.alpha
        self.objective_ = result.objective
        self.dual_gap_ = min(result.gap, result.objective)  # the minimum is not below 0
        self.n_iter_ = max(1, result.n_iter)  # as in scikit-learn: finding that the first point is optimal is one
        self.converged_ = result.converged
        for name in ("loss_curve_", "n_updates_", "eta0_"):
            self.__dict__.pop(name, None)
        if result.state is not None:
            self.loss_curve_, self.eta0_, self.n_updates_ = result.loss_curve, result.eta0, result.state.steps

    def _warn(self, result: Result, problem: Problem[P]) -> None:
        """Warn once that a fit did not converge, or that the features are ignored, with the reason."""
        if result.collapsed and result.converged:
            warnings.warn(_collapse(self, problem), stacklevel=outside())
        elif not result.converged and not self._method.exact:
            reason = (
                f"max_iter={self.max_iter} epochs were reached: increase it or tol"
                if result.objective <= problem.weight
                else f"the objective ended above its start: eta0={result.eta0:g} is too large"
            )
            warnings.warn(f"the descent did not converge; {reason}", ConvergenceWarning, stacklevel=outside())
        elif not result.converged:
            warn_unproven(result, problem, self.tol, self.max_iter)


SCALE = "centre and scale the features"
# Advice by the status of a solver and the parameter to change.
ADVICE = {
    "max_iter": {"max_iter": "increase {}", "": SCALE},
    "precision": {
        "sigma": "increase {}",
        "tol": "increase {}",
        "": f"{SCALE} if sigma is very small compared with their values",
    },
}


def warn_unproven(
    result: Result,
    problem: Problem[P],
    tol: float,
    max_iter: int,
    advice: Mapping[str, Mapping[str, str]] = ADVICE,
    reason: str | None = None,
) -> None:
    """Warn that a solution is not proven optimal, with a reason: that which its status names, if none is given."""
    reasons = {"max_iter": f"max_iter={max_iter} was reached", "precision": "double precision allows no more"}
    text = (
        f"the solution is proven optimal only to {result.gap / problem.weight:.1e} of the objective at zero, not to "
        f"tol={tol:g}; {reason or reasons[result.status]}"
    )
    warnings.warn(advised(ConvergenceWarning, text, advice[result.status]), stacklevel=outside())


def advised(kind: type[Warning], problem: str, advice: Mapping[str, str]) -> Warning:
    """Return a warning with advice: for each parameter to change ("" for none) a text with {} for its name.

    It keeps both, for callers whose parameters have other names (:func:`with_advice`).
    """
    warning = kind(with_advice(problem, advice, {name: name for name in advice}))
    vars(warning).update(problem=problem, advice=advice)
    return warning


def with_advice(problem: str, advice: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Return a problem, and the advice on parameters that have a name."""
    *first, last = [words.format(names[name]) for name, words in advice.items() if name in names] or [""]
    advised = ", ".join(first) + (f"{',' * (len(first) > 1)} or " if first else "") + last
    return f"{problem}: {advised}" if advised else problem


def check_errors_given(estimator: BaseEstimator, X_err: object) -> None:
    """Raise if samples come without error bars to a classifier that was fitted with them."""
    if estimator.has_errors_ and X_err is None:
        raise ValueError(
            "X_err is missing: this classifier was fitted with error bars, so predictions need the error bars of their "
            "samples. Pass X_err=0 if the values are exact. In cross_val_score and searches, give "
            "gaussguru.Measured(X, X_err) as X: scorers such as 'neg_log_loss' are not passed X_err"
        )


def refuse_metadata(params: Record, receiver: str) -> None:
    """Raise if there is metadata that scikit-learn does not route to the splitter or the ``receiver``."""
    if params and not sklearn.get_config()["enable_metadata_routing"]:
        raise ValueError(
            f"{sorted(params)} can be given only with sklearn.set_config(enable_metadata_routing=True), which decides "
            f"whether they go to the splitter or to the {receiver}"
        )


def seed_of(random_state: object) -> int:
    """Return the seed of a solver: 0 where none is asked for."""
    if random_state is None:
        return 0
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _collapse(estimator: Estimator, problem: Any) -> Warning:
    """Return a warning that says why the features are ignored, with advice."""
    rows = problem.rows
    means = rows.means if problem.fit_intercept else rows.moments.sums
    if not np.any(means - means[0]):
        return CollapseWarning(
            "the weighted means of the classes coincide, so the best classifier ignores the features"
            if estimator.fit_intercept
            else "the weighted sum of y x is zero, so w = 0 is optimal without an intercept and every score is 0"
        )
    parameter, smaller = "sigma", "a smaller {}"
    if rows.errors is None:
        cause = f"sigma={estimator.sigma:g} is"
        if rows.n_classes == 2:
            smaller += f" (sigma_max bounds it from above: {estimator.sigma * problem.collapse_factor:.3g})"
    else:
        cause = "the error bars are" if estimator.sigma == 0 else f"error bars and sigma={estimator.sigma:g} are"
    if problem.l2 and problem.l2 * 1e-6 > float(rows.column_squares.max()):
        cause, parameter, smaller = f"l2={estimator.l2:g} is", "l2", "a smaller {}"
    light, heavy = rows.class_weights.min() / rows.total_weight, rows.class_weights.max() / rows.total_weight
    text = (
        f"{cause} so large that the best classifier ignores the features and always predicts the heaviest class "
        f"({heavy:.1%} of the weight, the lightest has {light:.1%})"
    )
    advice = {"class_weight='balanced'": "use {}", parameter: smaller, "fit_intercept=False": "{}"}
    return advised(CollapseWarning, text, advice)
