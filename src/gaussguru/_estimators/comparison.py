"""Linear candidates compared on held-out samples: one loop over the folds scores all, the log loss chooses."""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from gaussguru._data.threads import Pool, n_threads
from gaussguru._estimators.base import Settings
from gaussguru._estimators.families import PREFERRED, Family, Start
from gaussguru._estimators.link import Calibration, Margins
from gaussguru._estimators.posteriors import Table
from gaussguru._estimators.validation import Samples
from gaussguru._linalg import Array, Index

# Rows on which methods and levels are compared and probabilities calibrated, where there are two classes. Log losses
# of two candidates differ from row to row by 0.2 or less, so their means are known to 0.2 / sqrt(10,000) = 0.002, and
# alpha to 1 or 2 percent. Of more classes 2/n_classes of that: the time of a probability grows with their number.
SELECTION_ROWS = 10_000
# So many of them are of each class, if there are.
FEWEST = 200

Fold = tuple[Index, Index]


def compare(
    table: Table, families: list[Family], folds: list[Fold], weights: Array, n_jobs: int | None
) -> "Comparison":
    """Return the scores of all candidates for the samples that a fold leaves out, and their log losses."""
    labels, n_classes = table.labelled.labels.astype(np.intp), len(table.labelled.classes)
    pool = Pool(n_threads(n_jobs))
    job = _Job(table.single_threaded(), families, weights, pool.here, sklearn.get_config())
    # What does not converge in a fold is judged by its log loss. (Filters are those of all threads.)
    with warnings.catch_warnings(), pool as mapped:
        warnings.simplefilter("ignore", ConvergenceWarning)
        parts, starts = zip(*mapped(job.run, folds), strict=True)
        order = np.concatenate([test for _, test in folds])
        truth = labels[order], weights[order], n_classes
        scored = [Margins.joined(list(each)) for each in zip(*parts, strict=True)]
        losses = np.stack(list(mapped(lambda scores: scores.judged(*truth, rough=True)[1], scored)))
    candidates = [(family, float(level)) for family in families for level in family.levels]
    return Comparison(table, candidates, scored, starts[0], truth, losses)


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


class Candidate(NamedTuple):
    """A family at a level, its calibration, and what the first fold found, to start from."""

    table: Table
    family: Family
    level: float
    found: Calibration
    start: Start


@dataclass(frozen=True)
class Comparison:
    """Candidates, their scores of held-out samples, and rough log losses of every sample.

    ``truth`` has the labels and weights of these samples, and the number of classes.
    """

    table: Table
    candidates: list[tuple[Family, float]]
    scored: list[Margins]
    starts: list[Start]
    truth: tuple[Index, Array, int]
    losses: Array

    @property
    def described(self) -> dict[str, NDArray[Any]]:
        """The candidates, as columns of ``cv_scores_``."""
        return {
            "method": np.array([family.method for family, _ in self.candidates]),
            "level": np.array([level for _, level in self.candidates]),
            "log_loss": np.average(self.losses, axis=1, weights=self.truth[1]),
        }

    def best(self) -> int:
        """Return the number of the candidate to prefer."""
        return _preferred(self.losses, self.truth[1], self.described["method"] == PREFERRED)

    def candidate(self, k: int) -> Candidate:
        """Return a candidate with its calibration to all digits."""
        found = self.scored[k].judged(*self.truth)[0]
        return Candidate(self.table, *self.candidates[k], found, self.starts[k])


class _Job(NamedTuple):
    """What all folds share."""

    table: Table
    families: list[Family]
    weights: Array
    mapped: Any
    config: dict[str, Any]

    def run(self, fold: Fold) -> tuple[list[Margins], list[Start]]:
        """Return the scores of left-out samples of every candidate, and what to start from."""
        with Settings(**self.config):  # those of the thread that fits: they are not those of all threads
            seen = self.table.fold(*fold, self.weights, self.mapped)
            scores: list[Margins] = []
            starts: list[Start] = []
            for scored, found in (family.scored(seen) for family in self.families):
                scores += scored
                starts += found
            return scores, starts


def selection_rows(samples: Samples, seed: int, most: int | None = None) -> tuple[Index, Array]:
    """Return some rows at random, in order, and factors on all weights that keep the shares of the classes.

    About ``most`` of them, or as many as candidates are compared on.
    """
    most = 2 * SELECTION_ROWS // len(samples.classes) if most is None else most
    labels, weights = samples.labels.astype(np.intp), samples.all_weights
    n, factors = len(labels), np.ones(len(labels))
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
