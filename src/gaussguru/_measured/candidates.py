"""Linear candidates of an ErrorBarClassifier, compared on held-out samples: one loop over the folds scores all.

A :class:`Family` is a method and its levels. It is fitted to the posteriors of the training samples of a fold at all of
its levels, and scores the samples left out, with the spreads that their error bars make. The scores are calibrated; the
log loss chooses a family and a level (:func:`choose`), which is then fitted to all samples (:meth:`Family.fitted`).
"""

import copy
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gaussguru._errors import check_products, split_errors
from gaussguru._guru.base import Settings, score_mixtures
from gaussguru._guru.linear import GuruClassifier
from gaussguru._guru.path import follow, noise_levels
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._measured.link import Calibration, Margins
from gaussguru._measured.posteriors import View
from gaussguru._measured.probit import ProbitWithErrors, probit_path, rows_of
from gaussguru._rows.rows import BlockMap
from gaussguru._rows.threads import Pool, n_threads
from gaussguru._rows.validation import Samples
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.stages import Timed
from gaussguru._utils.types import MixedArray

# Rows on which methods and levels are compared and probabilities calibrated, where there are two classes. Log losses
# of two candidates differ from row to row by 0.2 or less, so their means are known to 0.2 / sqrt(10,000) = 0.002, and
# alpha to 1 or 2 percent. Of more classes 2/n_classes of that: the time of a probability grows with their number.
SELECTION_ROWS = 10_000
# So many of them are of each class, if there are.
FEWEST = 200
# The method that is taken unless another one is better by more than a standard error: the only one whose likelihood is
# that of the probabilities.
PREFERRED = "probit"
# Noise levels of the two paths of GURU, from the top of their grid (see sigma_path) down to so much of it. With the
# posterior covariances in the fit the level matters less, and a fit costs ten times as much. Every second of these
# levels, and of the ridges, is tried where there are more than two classes.
SIGMAS = {"shrunk": (10, 1e-3), "posterior": (5, 1e-2)}
# Gradients of the probit per unit of weight, and gaps of GURU relative to the objective at zero, at which the log loss
# of left-out samples no longer changes.
ROUGH = 1e-4

# Coefficients and intercepts from which a fit begins.
Start = tuple[Array, Array]


class LabelledMeasurements(NamedTuple):
    """The samples of a fit, their labels, and the view of their population; seed of random numbers."""

    view: View
    X: Array
    X_err: Any
    weights: Array | None
    labelled: Samples
    seed: int

    def measured(self, rows: Any) -> tuple[Array, Any]:
        """Return the measured values of rows, and their errors."""
        return self.X[rows], None if self.X_err is None else take_rows(self.X_err, rows)

    def samples(self, posterior: Any, rows: Any, weights: Array) -> Samples:
        """Return the posterior means of rows, with their labels and weights."""
        return Samples(split_errors(posterior)[0], self.labelled.classes, self.labelled.labels[rows], weights[rows])


class PosteriorFold(NamedTuple):
    """Posterior means of training samples, labelled, with their covariances, and the posteriors of left-out samples."""

    samples: Samples
    errors: Any
    left_out: Any
    mapped: BlockMap


@dataclass(frozen=True)
class Family(ABC):
    """A method and its levels.

    Attributes
    ----------
    method : "shrunk", "posterior" or "probit"
    levels : noise levels or ridges, from large to small
    """

    method: str
    levels: Array
    # The attribute of a level: sigma_ or ridge_.
    unit: ClassVar[str] = "sigma"

    @property
    def in_fit(self) -> bool:
        """Whether the posterior covariances count in the fit."""
        return self.method != "shrunk"

    @abstractmethod
    def path(self, fold: PosteriorFold) -> list[Start]:
        """Return coefficients and intercepts at every level."""

    @abstractmethod
    def estimator(self, level: float, seed: int, n_jobs: int | None) -> Any:
        """Return the classifier to fit to all samples."""

    def fitted(
        self, level: float, start: Start, posterior: object, labelled: Samples, seed: int, n_jobs: int | None
    ) -> Any:
        """Return the classifier fitted to the posteriors of all samples, from coefficients of a fold on."""
        X, X_err = split_errors(posterior)
        model, y = self.estimator(level, seed, n_jobs), labelled.classes[labelled.labels.astype(np.intp)]
        return model._or_unchanged(model._fit, X, y, labelled.weights, X_err if self.in_fit else None, start)


@dataclass(frozen=True)
class GuruPath(Family):
    """GURU on posterior means, or with the posterior covariances as errors."""

    model: GuruClassifier

    def path(self, fold: PosteriorFold) -> list[Start]:
        """Return coefficients and intercepts along the path of noise levels."""
        path = follow(self.model, fold.samples, self.levels, fold.errors if self.in_fit else None, fold.mapped)
        return [(fitted.coef_, fitted.intercept_) for fitted, _ in path]

    def estimator(self, level: float, seed: int, n_jobs: int | None) -> Any:
        """Return a GURU classifier."""
        return GuruClassifier(level, warm_start=True, random_state=seed, n_jobs=n_jobs)


@dataclass(frozen=True)
class ProbitPath(Family):
    """The likelihood of a probit model of the true values."""

    unit: ClassVar[str] = "ridge"

    def path(self, fold: PosteriorFold) -> list[Start]:
        """Return coefficients and intercepts along the path of ridges."""
        errors = None if fold.errors is None else check_products(fold.errors, fold.samples.X)
        path = probit_path(rows_of(fold.samples, errors, fold.mapped), self.levels, tol=ROUGH)
        return [(fitted.coef, fitted.intercept) for fitted in path]

    def estimator(self, level: float, seed: int, n_jobs: int | None) -> Any:
        """Return a probit regression."""
        return ProbitWithErrors(level, warm_start=True, n_jobs=n_jobs)


def linear_families(table: LabelledMeasurements, rows: Index, weights: Array) -> list[Family]:
    """Return the three methods with their levels; the spread of some rows is the largest noise level."""
    step = 1 if len(table.labelled.classes) == 2 else 2  # a candidate of many classes takes long
    model = GuruClassifier(n_jobs=1, random_state=table.seed, tol=ROUGH)
    posterior = table.view.posterior(*table.measured(rows))
    top = noise_levels(1, table.samples(posterior, rows, weights), model)[0]
    paths: list[Family] = [
        GuruPath(method, np.geomspace(top, ratio * top, n_levels)[::step], model)
        for method, (n_levels, ratio) in SIGMAS.items()
        if table.X_err is not None or method != "posterior"
    ]
    # Ridges from one that shrinks the coefficients of features of spread 1 to 0, to one that shrinks none.
    return [*paths, ProbitPath(PREFERRED, np.geomspace(300.0, 1e-3, 12)[::step])]


class Choice(NamedTuple):
    """The candidate chosen, and the comparison.

    Attributes
    ----------
    family, level : the candidate
    start : its coefficients and intercepts in the first fold
    calibration : of its scores of held-out samples
    cv_scores : method, level and log loss of all candidates
    losses, labels, weights : log losses of the candidate for held-out samples, their labels and weights
    """

    family: Family
    level: float
    start: Start
    calibration: Calibration
    cv_scores: dict[str, MixedArray]
    losses: Array
    labels: Index
    weights: Array


def choose(
    table: LabelledMeasurements,
    families: list[Family],
    folds: list[tuple[Index, Index]],
    weights: Array,
    n_jobs: int | None,
    timed: Timed,
) -> Choice:
    """Return the candidate of least log loss on the samples that a fold leaves out, or the preferred one if as good."""
    n_classes = len(table.labelled.classes)
    population = copy.copy(table.view.population)
    population.n_jobs = 1  # the threads share the folds
    pool, config, done = Pool(n_threads(n_jobs)), sklearn.get_config(), count(1)

    def scored(fold: tuple[Index, Index]) -> tuple[list[Margins], list[Start]]:
        """Return the scores of left-out samples of every candidate, and its coefficients."""
        train, test = fold
        # scikit-learn has settings for each thread: these are those of the fit
        with Settings(**config), timed("methods: fold", done, len(folds)):
            view = table.view._replace(population=_refitted(population, table, train))
            inside, outside = view.posterior(*table.measured(train)), view.posterior(*table.measured(test))
            seen = PosteriorFold(table.samples(inside, train, weights), split_errors(inside)[1], outside, pool.here)
            scores: list[Margins] = []
            starts: list[Start] = []
            for family in families:
                path = family.path(seen)
                scores += linear_margins(path, outside)
                starts += path
            return scores, starts

    # A candidate that does not converge in a fold is judged by its log loss. (Warning filters hold for all threads.)
    with warnings.catch_warnings(), pool as mapped:
        warnings.simplefilter("ignore", ConvergenceWarning)
        parts, starts = zip(*mapped(scored, folds), strict=True)
        order = np.concatenate([test for _, test in folds])
        truth = table.labelled.labels.astype(np.intp)[order], weights[order]
        margins = [Margins.joined(list(each)) for each in zip(*parts, strict=True)]
        losses = np.stack(list(mapped(lambda each: each.judged(*truth, n_classes, rough=True)[1], margins)))
    candidates = [(family, float(level)) for family in families for level in family.levels]
    methods = np.array([family.method for family, _ in candidates])
    cv_scores = {
        "method": methods,
        "level": np.array([level for _, level in candidates]),
        "log_loss": np.average(losses, axis=1, weights=truth[1]),
    }
    best = _best(losses, truth[1], methods == PREFERRED)
    calibration = margins[best].judged(*truth, n_classes)[0]  # to all digits
    return Choice(*candidates[best], starts[0][best], calibration, cv_scores, losses[best], *truth)


def _refitted(population: Deconvolve, table: LabelledMeasurements, rows: Index) -> Deconvolve:
    """Return the population of rows; that of all if some feature was measured in none of them."""
    if table.X_err is None:
        return population
    weights, other = None if table.weights is None else table.weights[rows], clone(population)
    try:
        return cast(Deconvolve, other._fit(*table.measured(rows), weights, population._state))
    except ValueError:
        return population


def linear_margins(path: list[Start], posterior: object) -> list[Margins]:
    """Return the scores that linear classifiers give to samples."""
    width = len(path[0][1])
    step = max(1, 64 // width)  # scores whose covariances are computed together
    X, X_err = split_errors(posterior)
    components = getattr(posterior, "components", None)
    result: list[Margins] = []
    for first in range(0, len(path), step):
        block = path[first : first + step]
        coef, intercept = (np.concatenate(parts) for parts in zip(*block, strict=True))
        weights, means, covariances = score_mixtures(coef, intercept, X, X_err, components)
        for k in range(len(block)):
            part = slice(k * width, (k + 1) * width)
            result.append(Margins.of(weights, means[:, :, part], covariances[:, :, part, part]))
    return result


def _best(losses: Array, weights: Array, preferred: NDArray[np.bool_]) -> int:
    """Return the candidate of least mean loss, or the best of those preferred if that is as good.

    A mean loss counts as as good if it is not above the least by more than the standard error of their difference, from
    sample to sample.
    """
    means = np.average(losses, axis=1, weights=weights)
    best = int(np.argmin(means))
    if not preferred.any():
        return best
    other = int(np.argmin(np.where(preferred, means, np.inf)))
    differences = losses[other] - losses[best]
    shares = weights / weights.sum()
    error = np.sqrt(np.square(shares) @ np.square(differences - shares @ differences))
    return other if means[other] - means[best] <= error else best


def selection_rows(samples: Samples, seed: int, most: int | None = None) -> tuple[Index, Array]:
    """Draw about ``most`` rows by class, by default as many as candidates are compared on.

    Returns the rows, in order, and factors on the weights of all rows that keep the shares of the classes.
    """
    most = 2 * SELECTION_ROWS // len(samples.classes) if most is None else most
    labels, weights = samples.labels.astype(np.intp), samples.all_weights
    n, factors = len(labels), np.ones(len(labels))
    if n <= most:
        return np.arange(n), factors
    rng = np.random.default_rng(seed)
    rows = []
    for c in range(len(samples.classes)):
        members = np.flatnonzero((labels == c) & (weights > 0))
        size = min(len(members), max(FEWEST, round(most * len(members) / n)))
        chosen = rng.permutation(members)[:size]
        factors[members] = weights[members].sum() / weights[chosen].sum()
        rows.append(chosen)
    kept = np.sort(np.concatenate(rows))
    return kept, factors * weights[kept].sum() / (weights * factors)[kept].sum()
