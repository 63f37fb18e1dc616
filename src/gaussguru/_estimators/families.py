"""Families of candidates for a classifier of posteriors: what is fitted, at which levels, and how it scores samples.

A family is fitted to the samples of a fold at all of its levels, and scores those that are left out, with the spreads
that their error bars make (:meth:`Family.scored`). The best of all candidates is fitted once more to all samples
(:meth:`Family.estimator`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gaussguru._errors import check_products
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.link import Margins
from gaussguru._estimators.path import follow, noise_levels
from gaussguru._estimators.posteriors import Fold, Table
from gaussguru._estimators.probit import ProbitWithErrors, probit_path, rows_of
from gaussguru._linalg import Array, Index

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
# Gaps, relative to the objective at zero, at which the log loss of left-out samples no longer changes.
ROUGH_GAP = 1e-4

# Coefficients and intercepts to start from, where a family can.
Start = tuple[Array, Array] | None


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
    # What a level is called: sigma_ or ridge_.
    unit: ClassVar[str] = "sigma"

    @property
    def in_fit(self) -> bool:
        """Whether the posterior covariances count in the fit."""
        return self.method != "shrunk"

    @abstractmethod
    def scored(self, fold: Fold) -> tuple[list[Margins], list[Start]]:
        """Return the scores of left-out samples at every level, and what to start a fit to all samples from."""

    @abstractmethod
    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return the estimator to fit to all samples."""


@dataclass(frozen=True)
class GuruPath(Family):
    """GURU on posterior means, or with the posterior covariances as errors."""

    model: GuruClassifier

    def scored(self, fold: Fold) -> tuple[list[Margins], list[Start]]:
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

    def scored(self, fold: Fold) -> tuple[list[Margins], list[Start]]:
        """Return scores and classifiers along the path of ridges."""
        errors = None if fold.errors is None else check_products(fold.errors, fold.samples.X)
        path = probit_path(rows_of(fold.samples, errors, fold.mapped), self.levels, tol=ROUGH)
        found = [(fitted.coef, fitted.intercept) for fitted in path]
        return linear_margins(found, fold.outside), list(found)

    def estimator(self, level: float, start: Start, table: Table, n_jobs: int | None) -> Any:
        """Return a classifier that starts from that of a fold."""
        return _started(ProbitWithErrors(level, warm_start=True, n_jobs=n_jobs), start, table)


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


def linear_margins(found: list[tuple[Array, Array]], seen: Any) -> list[Margins]:
    """Return the scores that linear classifiers give to samples."""
    width = len(found[0][1])
    step = max(1, STACK // width)
    result: list[Margins] = []
    for first in range(0, len(found), step):
        some = found[first : first + step]
        weights, means, covariances = _stacked(some)._score_moments(seen)
        for k in range(len(some)):
            part = slice(k * width, (k + 1) * width)
            result.append(Margins.of(weights, means[:, :, part], covariances[:, :, part, part]))
    return result


def linear_families(table: Table, rows: Index, weights: Array) -> list[Family]:
    """Return the three methods with their levels; some rows say how large noise may be."""
    step = 1 if len(table.labelled.classes) == 2 else 2  # a candidate of many classes takes long
    model = GuruClassifier(n_jobs=1, random_state=table.seed, tol=ROUGH_GAP)
    top = noise_levels(1, table.samples(table.posterior(rows), rows, weights), model)[0]
    paths: list[Family] = [
        GuruPath(method, np.geomspace(top, ratio * top, n_levels)[::step], model)
        for method, (n_levels, ratio) in SIGMAS.items()
        if table.X_err is not None or method != "posterior"
    ]
    return [*paths, ProbitPath(PREFERRED, RIDGES[::step])]
