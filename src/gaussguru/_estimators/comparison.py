"""Candidates compared on held-out samples: which is best, and which average of several.

One loop over the folds scores all candidates (:func:`compare`). A :class:`Comparison` chooses by log loss;
:func:`stacking_weights` averages.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from gaussguru._data.rows import BlockMap
from gaussguru._data.threads import Pool, n_threads
from gaussguru._estimators.base import Settings
from gaussguru._estimators.families import PREFERRED, Family, Start
from gaussguru._estimators.link import Calibration, Scores
from gaussguru._estimators.posteriors import Table
from gaussguru._estimators.validation import Samples
from gaussguru._linalg import Array, Index

# Rows on which methods and levels are compared and probabilities calibrated, where there are two classes. Log losses
# of two candidates differ from row to row by 0.2 or less, so their means are known to 0.2 / sqrt(10,000) = 0.002, and
# alpha to 1 or 2 percent. Of more classes 2/n_classes of that: the time of a probability grows with their number.
SELECTION_ROWS = 10_000
# So many of them are of each class, if there are.
FEWEST = 200
# Widths of a kernel, with or without a transform, that are compared on all folds: the best on the first one.
SURVIVORS = 2
# A member of a stack with less weight than this would change no probability by more: it is left out.
NEGLIGIBLE = 1e-3

Fold = tuple[Index, Index]


def compare(
    families: "_Families", folds: list[Fold], labels: Index, weights: Array, n_classes: int, n_jobs: int | None
) -> "Comparison":
    """Return what all candidates say of the samples that a fold leaves out, and their log losses."""
    pool = Pool(n_threads(n_jobs))
    job = _Job(labels, weights, n_classes, pool.here, sklearn.get_config())
    # What does not converge in a fold is judged by its log loss. (Filters are those of all threads.)
    with warnings.catch_warnings(), pool as mapped:
        warnings.simplefilter("ignore", ConvergenceWarning)
        families = job.screened(families, folds[0], mapped)
        candidates = [
            (table, family, float(level)) for table, mine in families for family in mine for level in family.levels
        ]
        parts, starts = zip(*mapped(job.run, folds, [families] * len(folds)), strict=True)
        order = np.concatenate([test for _, test in folds])
        truth = labels[order], weights[order], n_classes
        scored = [_joined(each) for each in zip(*parts, strict=True)]
        losses = np.stack(list(mapped(lambda scores: scores.judged(*truth, rough=True)[1], scored)))
    return Comparison(candidates, scored, starts[0], truth, losses)


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


_Families = list[tuple[Table, list[Family]]]


class Candidate(NamedTuple):
    """A family at a level, its probabilities, log losses, and what the first fold found, to start from."""

    table: Table
    family: Family
    level: float
    found: Calibration | None
    losses: Array
    start: Start


@dataclass(frozen=True)
class Comparison:
    """Candidates, what they say of held-out samples, and how well: rough log losses of every sample.

    ``truth`` has the labels and weights of these samples, and the number of classes.
    """

    candidates: list[tuple[Table, Family, float]]
    scored: list[Scores]
    starts: list[Start]
    truth: tuple[Index, Array, int]
    losses: Array

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Kernel and transform of the candidates, each once."""
        return list(dict.fromkeys(zip(self.described["kernel"], self.described["transform"], strict=True)))

    @cached_property
    def described(self) -> dict[str, NDArray[Any]]:
        """What was tried, as columns of ``cv_scores_``."""
        families = [family for _, family, _ in self.candidates]
        views = [table.view for table, *_ in self.candidates]
        return {
            "kernel": np.array([family.kernel for family in families]),
            "transform": np.array(["none" if view.transform is None else "quantile" for view in views]),
            "method": np.array([family.method for family in families]),
            "gamma": np.array([np.nan if family.gamma is None else family.gamma for family in families]),
            "level": np.array([level for *_, level in self.candidates]),
            "log_loss": np.average(self.losses, axis=1, weights=self.truth[1]),
        }

    def best(self, kind: tuple[str, str] | None = None) -> int:
        """Return the candidate to prefer, of all or of a kind."""
        found = self.described
        among = np.arange(len(self.candidates))
        if kind is not None:
            among = np.flatnonzero((found["kernel"] == kind[0]) & (found["transform"] == kind[1]))
        return int(among[_preferred(self.losses[among], self.truth[1], found["method"][among] == PREFERRED)])

    def candidate(self, k: int) -> Candidate:
        """Return a candidate with its probabilities to all digits."""
        found, losses = self.scored[k].judged(*self.truth)
        return Candidate(*self.candidates[k], found, losses, self.starts[k])


def _joined(parts: tuple[Scores, ...]) -> Scores:
    """Return what a candidate says of the samples of all folds."""
    return type(parts[0]).joined(list(parts))  # type: ignore[arg-type]


def stacking_weights(losses: Array, weights: Array) -> Array:
    """Return the weights of an average of probabilities that has the greatest likelihood.

    Maximises the concave ``sum_i s_i log sum_j w_j p_ij`` over the simplex, from the log losses ``-log p_ij`` of member
    j for the class of sample i. Members of less than NEGLIGIBLE are left out.
    """
    lowest = losses.min(axis=0)
    p, shares = np.exp(lowest - losses), weights / weights.sum()

    def value(w: Array) -> tuple[float, Array]:
        mean = w @ p
        return -float(shares @ np.log(mean)), -(p @ (shares / mean))

    n = len(losses)
    sums_to_one = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(n)}
    options = {"ftol": 1e-10, "maxiter": 500}
    start = np.full(n, 1.0 / n)
    found = minimize(
        value, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * n, constraints=sums_to_one, options=options
    ).x
    found = np.where(found < NEGLIGIBLE, 0.0, found)
    return np.asarray(found / found.sum())


class _Job(NamedTuple):
    """What all folds share."""

    labels: Index
    weights: Array
    n_classes: int
    mapped: Any
    config: dict[str, Any]

    def run(self, fold: tuple[Index, Index], families: _Families) -> tuple[list[Scores], list[Start]]:
        """Return the scores of left-out samples of every candidate, and what to start from."""
        with Settings(**self.config):  # those of the thread that fits: they are not those of all threads
            scores: list[Scores] = []
            starts: list[Start] = []
            for table, mine in families:
                seen = table.single_threaded().fold(*fold, self.weights, self.mapped)
                for scored, found in (family.scored(seen) for family in mine):
                    scores += scored
                    starts += found
            return scores, starts

    def screened(self, families: _Families, fold: tuple[Index, Index], mapped: BlockMap) -> _Families:
        """Return families without rivals that are worse on one fold than some others."""
        rivals = [(table, [family for family in mine if family.has_rivals]) for table, mine in families]
        if sum(len(mine) for _, mine in rivals) <= SURVIVORS:
            return families
        losses = [part for parts in mapped(self._losses, [fold] * len(rivals), rivals) for part in parts]
        worst = sorted(losses)[SURVIVORS - 1]
        kept = iter([loss <= worst for loss in losses])
        return [(table, [family for family in mine if not family.has_rivals or next(kept)]) for table, mine in families]

    def _losses(self, fold: tuple[Index, Index], families: tuple[Table, list[Family]]) -> list[float]:
        """Return the log loss of left-out samples of every family, at its best level."""
        scored, test = iter(self.run(fold, [families])[0]), fold[1]
        truth = self.labels[test], self.weights[test], self.n_classes

        def loss(scores: Scores) -> float:
            return float(np.average(scores.judged(*truth, rough=True)[1], weights=truth[1]))

        return [min(loss(next(scored)) for _ in family.levels) for family in families[1]]


def selection_rows(samples: Samples, seed: int) -> tuple[Index, Array]:
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
