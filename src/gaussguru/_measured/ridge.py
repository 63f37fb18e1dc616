"""The ridge of a linear score, chosen on held-out samples, and the calibration of their scores."""

import copy
import warnings
from itertools import count
from typing import NamedTuple, cast

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gaussguru._errors.checks import check_products
from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import Settings, score_mixtures
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._measured.link import Calibration, Margins
from gaussguru._measured.posteriors import LabelledMeasurements
from gaussguru._measured.probit import Start, probit_path, rows_of
from gaussguru._rows.threads import Pool, n_threads
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.stages import Timed
from gaussguru._utils.types import MixedArray


class Choice(NamedTuple):
    """The ridge chosen, and the comparison.

    Attributes
    ----------
    ridge : the ridge
    start : coefficients and intercepts at this ridge in the first fold
    calibration : of the scores of held-out samples
    cv_scores : ridge and log loss of all ridges
    losses, labels, weights : log losses of held-out samples at this ridge, their labels and weights
    """

    ridge: float
    start: Start
    calibration: Calibration
    cv_scores: dict[str, MixedArray]
    losses: Array
    labels: Index
    weights: Array


def choose_ridge(
    table: LabelledMeasurements, folds: list[tuple[Index, Index]], weights: Array, n_jobs: int | None, timed: Timed
) -> Choice:
    """Return the ridge of least log loss on the samples that a fold leaves out."""
    n_classes = len(table.labelled.classes)
    # From one that shrinks the coefficients of features of spread 1 to 0, to one that shrinks none. Every second of
    # them where there are more than two classes, whose probabilities take long.
    ridges = np.geomspace(300.0, 1e-3, 12)[:: 1 if n_classes == 2 else 2]
    population = copy.copy(table.view.population)
    population.n_jobs = 1  # the threads share the folds
    pool, config, done = Pool(n_threads(n_jobs)), sklearn.get_config(), count(1)

    def scored(fold: tuple[Index, Index]) -> tuple[list[Margins], list[Start]]:
        """Return the scores of left-out samples at every ridge, and the coefficients."""
        train, test = fold
        # scikit-learn has settings for each thread: these are those of the fit
        with Settings(**config), timed("ridges: fold", done, len(folds)):
            view = table.view._replace(population=_refitted(population, table, train))
            inside, outside = view.posterior(*table.measured(train)), view.posterior(*table.measured(test))
            samples, errors = table.samples(inside, train, weights), split_errors(inside)[1]
            errors = None if errors is None else check_products(errors, samples.X)
            # Gradients, per unit of weight, at which the log loss of left-out samples no longer changes.
            path = probit_path(rows_of(samples, errors, pool.here), ridges, tol=1e-4)
            starts: list[Start] = [(fitted.coef, fitted.intercept) for fitted in path]
            return linear_margins(starts, outside), starts

    # A fit that does not converge in a fold is judged by its log loss. (Warning filters hold for all threads.)
    with warnings.catch_warnings(), pool as mapped:
        warnings.simplefilter("ignore", ConvergenceWarning)
        parts, starts = zip(*mapped(scored, folds), strict=True)
        order = np.concatenate([test for _, test in folds])
        truth = table.labelled.labels.astype(np.intp)[order], weights[order]
        margins = [Margins.joined(list(each)) for each in zip(*parts, strict=True)]
        losses = np.stack(list(mapped(lambda each: each.judged(*truth, n_classes, rough=True)[1], margins)))
    cv_scores = {"ridge": ridges, "log_loss": np.average(losses, axis=1, weights=truth[1])}
    best = int(np.argmin(cv_scores["log_loss"]))
    calibration = margins[best].judged(*truth, n_classes)[0]  # to all digits
    return Choice(float(ridges[best]), starts[0][best], calibration, cv_scores, losses[best], *truth)


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
    width = len(path[0][0])
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
