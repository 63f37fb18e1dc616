"""Families of candidates for a classifier of posteriors: what is fitted, at which levels, and how it scores samples.

A family is fitted to the samples of a fold at all of its levels, and scores those that are left out, with the spreads
that their error bars make (:meth:`Family.scored`). The best of all candidates is fitted once more to all samples
(:meth:`Family.estimator`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from gaussguru._data.kernel_errors import noisy_features, noisy_scores
from gaussguru._data.kernel_matrix import Kernel, exact_features, features_of, kernel_scores
from gaussguru._errors import check_errors, check_products, split_errors
from gaussguru._estimators.class_populations import PopulationClassifier
from gaussguru._estimators.draws import PosteriorDrawsClassifier
from gaussguru._estimators.kernel import KernelGuruClassifier
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.link import Logs, Margins, Scores
from gaussguru._estimators.path import follow, noise_levels
from gaussguru._estimators.posteriors import Fold, Table
from gaussguru._estimators.probit import ProbitWithErrors, probit_path, rows_of
from gaussguru._linalg import Array, Index
from gaussguru.calibration import score_moments

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
# Gradients of the probit, in units of the total weight, at which its log loss is the same to all digits that count.
ROUGH = 1e-4
# Scores of which the covariance with all others is computed together.
STACK = 64
# Samples whose kernel values a function is made of.
LANDMARKS = 300
# Widths of the kernel, ``gamma`` times the number of features of spread 1: from nearly linear functions to ones that
# change within the distance of a sample to its usual neighbour. Noise levels, in units of the length of a sample in the
# space of the kernel, 1. Both were chosen on one split of koi, snpcc and fermi; for the last two the narrowest is best.
GAMMAS = (0.1, 0.3, 1.0, 3.0)
KERNEL_SIGMAS = np.geomspace(0.03, 0.001, 4)
# Gaps, relative to the objective at zero, at which the log loss of left-out samples no longer changes.
ROUGH_GAP = 1e-4

# Coefficients and intercepts to start from, where a family can.
Start = tuple[Array, Array] | None


@dataclass(frozen=True)
class Family(ABC):
    """A method and its levels.

    Attributes
    ----------
    method : one of METHODS
    levels : noise levels or ridges, from large to small; NaN for one that has none
    """

    method: str
    levels: Array
    kernel: ClassVar[str] = "linear"
    # Whether there are many of a kind, of which the best few will do.
    has_rivals: ClassVar[bool] = False
    # What a level is called: sigma_, ridge_ or nothing.
    unit: ClassVar[str] = "sigma"

    @property
    def gamma(self) -> float | None:
        """The width of a kernel that has one."""
        return None

    @property
    def in_fit(self) -> bool:
        """Whether the posterior covariances count in the fit."""
        return self.method != "shrunk"

    @abstractmethod
    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return the scores of left-out samples at every level, and what to start a fit to all samples from."""

    @abstractmethod
    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return the estimator to fit to all samples."""


@dataclass(frozen=True)
class GuruPath(Family):
    """GURU on posterior means, or with the posterior covariances as errors."""

    model: GuruClassifier

    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return scores and classifiers along the path of noise levels."""
        errors = fold.errors if self.in_fit else None
        path = follow(self.model, fold.samples, self.levels, errors, fold.mapped)
        found = [(fitted.coef_, fitted.intercept_) for fitted, _ in path]
        return linear_margins(found, fold.outside), list(found)

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return a classifier that starts from that of a fold."""
        model = GuruClassifier(level, warm_start=True, random_state=table.seed, n_jobs=n_jobs)
        return _started(model, start, table)


@dataclass(frozen=True)
class ProbitPath(Family):
    """The likelihood of a probit model of the truth."""

    unit: ClassVar[str] = "ridge"

    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return scores and classifiers along the path of ridges."""
        errors = None if fold.errors is None else check_products(fold.errors, fold.samples.X)
        path = probit_path(rows_of(fold.samples, errors, fold.mapped), self.levels, tol=ROUGH)
        found = [(fitted.coef, fitted.intercept) for fitted in path]
        return linear_margins(found, fold.outside), list(found)

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return a classifier that starts from that of a fold."""
        return _started(ProbitWithErrors(level, warm_start=True, n_jobs=n_jobs), start, table)


@dataclass(frozen=True)
class Landmarks(Family):
    """GURU in the span of RBF kernel values with some of the samples, of one width.

    Left-out samples have expected kernel values, and the spread of a score is that of its mean gradient.
    """

    width: float
    model: GuruClassifier
    kernel: ClassVar[str] = "rbf"
    has_rivals: ClassVar[bool] = True

    @property
    def gamma(self) -> float | None:
        """The width."""
        return self.width

    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return scores along the path of noise levels."""
        X, errors = np.asarray(fold.samples.X, dtype=np.float64), fold.errors
        kernel = Kernel("rbf", {"gamma": self.width, "degree": 3, "coef0": 1})
        some = check_random_state(self.model.random_state).permutation(len(X))[:LANDMARKS]
        space = exact_features(kernel, X[some])[2]
        points = X[some][space.landmarks]
        if self.in_fit and errors is not None:
            given = (kernel, X, check_errors(errors, X), points, space, fold.mapped)
            features, noise = noisy_features(*given, exact=False)
        else:
            features, noise = features_of(kernel, X, points, space, np.float64, fold.mapped), None
        samples = fold.samples._replace(X=np.ascontiguousarray(features))
        path = follow(self.model, samples, self.levels, None, fold.mapped, noise)
        found = [(space.coefficients(fitted.coef_), fitted.intercept_) for fitted, _ in path]
        return _kernel_margins(kernel, points, found, fold), [None] * len(found)

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return a classifier of as many landmarks."""
        some = min(LANDMARKS, len(table.X))
        return KernelGuruClassifier(level, gamma=self.width, n_components=some, random_state=table.seed, n_jobs=n_jobs)


@dataclass(frozen=True)
class Given(Family):
    """A classifier that was given, with scores whose spread is known."""

    model: Any
    weighted: bool
    kernel: ClassVar[str] = "given"
    unit: ClassVar[str] = ""

    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return scores of the one candidate."""
        samples, errors = fold.samples, fold.errors
        samples = samples if self.weighted else samples._replace(weights=None)
        fitted = fitted_to(clone(self.model), samples.X, samples, errors if self.in_fit else None)
        return [Margins.of(*score_moments(fitted, fold.outside))], [None]

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return the classifier, unfitted."""
        return clone(self.model)


@dataclass(frozen=True)
class ByDraws(Family):
    """A classifier of draws from the posteriors, with probabilities of its own."""

    model: PosteriorDrawsClassifier
    kernel: ClassVar[str] = "draws"
    unit: ClassVar[str] = ""

    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return the probabilities of the one candidate."""
        fitted = fitted_to(clone(self.model), fold.inside, fold.samples, None)
        return [Logs(fitted.predict_log_proba(fold.outside))], [None]

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return the classifier, unfitted."""
        return clone(self.model)


@dataclass(frozen=True)
class ByPopulations(Family):
    """Bayes' rule with a population of each class, which are fitted to all samples before those of a fold."""

    model: PopulationClassifier
    kernel: ClassVar[str] = "populations"
    unit: ClassVar[str] = ""

    def scored(self, fold: Fold) -> tuple[list[Scores], list[Start]]:
        """Return the probabilities of the one candidate."""
        table, plain = fold.table, fold.table.weights
        fitted = self.model.refitted(
            *table.measured(fold.train), fold.samples, None if plain is None else plain[fold.train]
        )
        return [Logs(fitted.predict_log_proba(*table.measured(fold.test)))], [None]

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return the classifier of all samples as they were measured."""
        return self.model if table.view.transform is None else make_pipeline(table.view.transform, self.model)


def fitted_to(model: Any, X: Any, samples: Any, X_err: Any) -> Any:
    """Return a classifier fitted to labelled samples, with weights and errors where there are some."""
    given = {} if samples.weights is None else {"sample_weight": samples.weights}
    if X_err is not None:
        given["X_err"] = X_err
    return model.fit(X, samples.classes[samples.labels.astype(np.intp)], **given)


def _started(model: Any, start: Start, table: Table) -> Any:
    if start is not None:
        model.classes_, (model.coef_, model.intercept_) = table.labelled.classes, start
    return model


def _stacked(found: list[tuple[Array, Array]]) -> ProbitWithErrors:
    """Return a classifier with the scores of several at once."""
    stack = ProbitWithErrors(n_jobs=1)
    stack.coef_, stack.intercept_ = (np.concatenate(parts) for parts in zip(*found, strict=True))
    stack.n_features_in_ = stack.coef_.shape[1]
    return stack


def linear_margins(found: list[tuple[Array, Array]], seen: Any) -> list[Scores]:
    """Return the scores that linear classifiers give to samples."""
    width = len(found[0][1])
    step = max(1, STACK // width)
    result: list[Scores] = []
    for first in range(0, len(found), step):
        some = found[first : first + step]
        weights, means, covariances = _stacked(some)._score_moments(seen)
        for k in range(len(some)):
            part = slice(k * width, (k + 1) * width)
            result.append(Margins.of(weights, means[:, :, part], covariances[:, :, part, part]))
    return result


def _kernel_margins(kernel: Kernel, points: Array, found: list[tuple[Array, Array]], fold: Fold) -> list[Scores]:
    """Return the scores that functions of kernel values give to left-out samples."""
    X, errors = split_errors(fold.outside)
    coef, intercept = (np.concatenate(parts) for parts in zip(*found, strict=True))
    width, n = len(found[0][1]), len(X)

    def within(whole: Array) -> Array:
        """Return the covariances of the scores of each classifier, and not those between classifiers."""
        parts = [whole[:, k : k + width, k : k + width] for k in range(0, len(coef), width)]
        return np.stack(parts, axis=1)

    if errors is None:
        scores = kernel_scores(kernel, X, points, coef, fold.mapped)
        covariances = np.zeros((n, len(found), width, width))
    else:
        given = (kernel, X, check_products(errors, X), points, coef, fold.mapped)
        scores, covariances = noisy_scores(*given, exact=False, of=within)
    means, one = (scores + intercept).reshape(n, len(found), 1, width), np.ones((n, 1))
    return [Margins.of(one, means[:, k], covariances[:, k, np.newaxis]) for k in range(len(found))]


def knows_spread(estimator: Any) -> bool:
    """Return whether the spread of scores under error bars is known: of linear ones, and of gaussguru's classifiers."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    return isinstance(last, LinearClassifierMixin) or hasattr(last, "_score_moments")


def given_families(estimator: Any, methods: Sequence[str], *, weighted: bool) -> list[Family]:
    """Return the families of a classifier that was given, fitted with weights or without."""
    methods = [method for method in methods if method != "probit"] or ["shrunk"]
    if not has_fit_parameter(estimator, "X_err"):
        methods = ["shrunk"]
    return [Given(method, np.array([np.nan]), estimator, weighted) for method in methods]


def drawn_families(estimator: Any, table: Table) -> list[Family]:
    """Return the family of a classifier of draws."""
    return [
        ByDraws("draws", np.array([np.nan]), PosteriorDrawsClassifier(estimator, random_state=table.seed, n_jobs=1))
    ]


def population_families(table: Table, n_components: Any, class_weight: Any, n_jobs: int | None) -> list[Family]:
    """Return the family of populations for each class, fitted to all samples."""
    model = PopulationClassifier(n_components, class_weight=class_weight, random_state=table.seed, n_jobs=n_jobs)
    labelled = table.labelled
    y = labelled.classes[labelled.labels.astype(np.intp)]
    return [ByPopulations("populations", np.array([np.nan]), model.fit(table.X, y, table.weights, table.X_err))]


def linear_families(methods: Sequence[str], table: Table, rows: Index, weights: Array) -> list[Family]:
    """Return the three methods with their levels; some rows say how large noise may be."""
    families: list[Family] = []
    step = 1 if len(table.labelled.classes) == 2 else 2  # a candidate of many classes takes long
    model = GuruClassifier(n_jobs=1, random_state=table.seed, tol=ROUGH_GAP)
    if table.view.transform is not None and PREFERRED in methods:
        methods = [PREFERRED]  # one method tells whether a transform helps
    top = 0.0
    if set(methods) & set(SIGMAS):
        top = noise_levels(1, table.samples(table.posterior(rows), rows, weights), model)[0]
    for method in methods:
        if method == "probit":
            families.append(ProbitPath(method, RIDGES[::step]))
            continue
        n_levels, ratio = SIGMAS[method]
        families.append(GuruPath(method, np.geomspace(top, ratio * top, n_levels)[::step], model))
    return families


def rbf_families(methods: Sequence[str], table: Table) -> list[Family]:
    """Return the widths of the kernel, on posterior means unless "posterior" is all that is asked for.

    With the covariances in the fit it takes ten times as long, and log losses were no lower (snpcc).
    """
    model = GuruClassifier(n_jobs=1, random_state=table.seed, tol=ROUGH_GAP)
    method = "posterior" if set(methods) == {"posterior"} else "shrunk"
    gammas: Sequence[float] = GAMMAS
    sigmas = KERNEL_SIGMAS
    if len(table.labelled.classes) > 2:  # a candidate of many classes takes long
        gammas, sigmas = gammas[::-2], sigmas[::2]
    return [Landmarks(method, sigmas, gamma / table.X.shape[1], model) for gamma in gammas]
