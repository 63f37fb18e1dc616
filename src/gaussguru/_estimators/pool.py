"""A pool: probabilities of several classifiers, averaged with weights that suit the noise of a sample.

    P(c | x, err) = sum_m w_m(v) mean_f P_mf(c | x, err),      w(v) = (1 - g(v)) w_measured + g(v) w_noisier

over members m and folds f. The gate g is the probability that a sample of this vagueness v is a noisier copy instead
of a sample as it was measured, by logistic regression. Both sets of weights maximise the likelihood of held-out
samples, as they were measured and with more noise, by EM; one more sample for each member keeps them off 0.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from gaussguru._data.rows import BlockMap
from gaussguru._data.threads import Pool as Threads
from gaussguru._data.threads import n_threads
from gaussguru._estimators.features import Columns, FeatureColumns, with_noise
from gaussguru._estimators.members import (
    BoostingMember,
    FittedMember,
    LabelledColumns,
    Member,
    alone,
    judged_beside,
    log_losses,
    probabilities_of,
)
from gaussguru._linalg import Array, Index

# Iterations of EM for the weights; the log loss changes by less than 1e-4 after some 50.
ITERATIONS = 300
# Samples that are added to the weight of each member, of both sets.
PSEUDO = 1.0


@dataclass(frozen=True)
class OpinionPool:
    """Fitted members and their weights.

    Attributes
    ----------
    members : kinds of classifiers, each with one for each fold
    weights : (2, n_members), for samples as they were measured and for noisier ones
    gate : (2,), intercept and slope of the logit of g(v)
    n_classes : number of classes
    """

    members: list[FittedMember]
    weights: Array
    gate: Array
    n_classes: int

    def probabilities(self, table: Columns, mapped: BlockMap) -> Array:
        """Return the probabilities of the classes, (n, n_classes)."""
        calls = [(member.columns, model) for member in self.members for model in member.models]
        found = iter(mapped(lambda call: alone(probabilities_of, call[1], call[0], table, self.n_classes), calls))
        shares = self.shares(table.vagueness)
        result = np.zeros((len(table), self.n_classes))
        for m, member in enumerate(self.members):
            total = sum(next(found) for _ in member.models)
            result += shares[:, m, np.newaxis] / len(member.models) * total
        return np.asarray(result / result.sum(axis=1, keepdims=True))

    def shares(self, vagueness: Array) -> Array:
        """Return the weights of the members for samples, (n, n_members)."""
        g = expit(self.gate[0] + self.gate[1] * vagueness)[:, np.newaxis]
        return np.asarray((1.0 - g) * self.weights[0] + g * self.weights[1])


class Copies(NamedTuple):
    """How noisier copies are made: of whose errors, in which units, and times which factors."""

    donors: Any
    scale: Array
    factors: tuple[float, float]

    def of(self, table: Columns, factors: tuple[float, float], rng: np.random.Generator) -> tuple[Array, Any]:
        """Return values and errors of copies of samples."""
        return with_noise(table.X, table.X_err, self.donors, self.scale, factors, rng)


def fit_pool(
    members: list[Member],
    features: FeatureColumns,
    samples: LabelledColumns,
    folds: list[tuple[Index, Index]],
    copies: Copies | None,
    n_classes: int,
    seed: int,
    n_jobs: int | None,
    say: Callable[[str], None],
) -> tuple[OpinionPool, dict[str, NDArray[Any]]]:
    """Return a pool, and the table of log losses of its members on held-out samples."""
    rng = np.random.default_rng(seed)
    judged = [samples]
    if copies is not None:
        noisier = features.columns(*copies.of(samples.table, (max(1.0, copies.factors[0]), copies.factors[1]), rng))
        judged.append(replace(samples, table=noisier))
    seeds = rng.integers(2**31, size=len(folds))
    held = [[each[test] for each in judged] for _, test in folds]

    def training(k: int) -> tuple[LabelledColumns, LabelledColumns]:
        """Return the samples of a fold to fit to: as they were measured, and with copies."""
        mine = samples[folds[k][0]]
        if copies is None:
            return mine, mine
        more = features.columns(*copies.of(mine.table, copies.factors, np.random.default_rng(seeds[k])))
        return mine, LabelledColumns.joined([mine, replace(mine, table=more)])

    # Few iterations of logistic regression will do: held-out samples judge. (Filters are those of all threads.)
    with warnings.catch_warnings(), Threads(n_threads(n_jobs)) as mapped:
        warnings.simplefilter("ignore", ConvergenceWarning)
        train = list(mapped(training, range(len(folds))))
        # Threads share the folds, or the members of a single one.
        members_mapped, folds_mapped = (mapped, map) if len(folds) == 1 else (map, mapped)

        def fitted(member: Member) -> tuple[FittedMember, list[Array]]:
            say(f"{member.name}: {len(folds)} folds")
            # Judged by samples such as those that it is fitted to.
            sets = [each if member.copies else each[:1] for each in held]
            own = [each[1] if member.copies else each[0] for each in train]
            member = alone(member.chosen, own[0], sets[0], n_classes)
            models = member.fit_folds(own, sets, seeds, n_classes, folds_mapped)

            def judge(model: Any, sets: list[LabelledColumns]) -> list[Array]:
                return [alone(probabilities_of, model, member.columns, each.table, n_classes) for each in sets]

            parts = folds_mapped(judge, models, held)
            result = FittedMember(member.name, member.columns, models)
            return result, [np.concatenate(some) for some in zip(*parts, strict=True)]

        found = list(members_mapped(fitted, members))
        others = []
        if copies is not None and isinstance(members[0], BoostingMember):
            others = list(members_mapped(fitted, judged_beside(members[0], found[0][0].models[0].n_iter_)))
    truth = [LabelledColumns.joined(list(sets)) for sets in zip(*held, strict=True)]
    pool = _weighted([member for member, _ in found], [p for _, p in found], truth, n_classes)
    return pool, _scores(pool, [(member.name, p) for member, p in found + others], truth)


def _gate(truth: list[LabelledColumns]) -> Array:
    """Return intercept and slope of the logit that a sample is a noisier copy, by its vagueness."""
    if len(truth) == 1:
        return np.array([-np.inf, 0.0])
    v = np.concatenate([samples.table.vagueness for samples in truth])
    spread = v.std()
    if spread == 0:
        return np.zeros(2)
    weights = np.concatenate([samples.all_weights for samples in truth])
    which = np.repeat([0, 1], [len(samples) for samples in truth])
    found = LogisticRegression().fit(((v - v.mean()) / spread)[:, np.newaxis], which, weights)
    slope = max(0.0, float(found.coef_[0, 0])) / spread
    return np.array([float(found.intercept_[0]) - slope * v.mean(), slope])


def _weighted(
    members: list[FittedMember], found: list[list[Array]], truth: list[LabelledColumns], n_classes: int
) -> OpinionPool:
    """Return the pool with the weights of greatest likelihood, by EM, with a pseudo-sample for each weight."""
    gate = _gate(truth)
    likelihoods = np.concatenate([
        np.stack([np.exp(-log_losses(p[s], truth[s].labels)) for p in found], axis=1) for s in range(len(truth))
    ])  # fmt: skip
    vagueness = np.concatenate([samples.table.vagueness for samples in truth])
    own = np.concatenate([each.all_weights for each in truth])
    own = own / own.mean()
    g = expit(gate[0] + gate[1] * vagueness)
    gates = np.stack([1.0 - g, g], axis=1)
    w = np.full((2, likelihoods.shape[1]), 1.0 / likelihoods.shape[1])
    for _ in range(ITERATIONS):
        parts = gates @ w * likelihoods
        ratio = (own / parts.sum(axis=1))[:, np.newaxis] * likelihoods
        w = w * (gates.T @ ratio) + PSEUDO
        w /= w.sum(axis=1, keepdims=True)
    return OpinionPool(members, w, gate, n_classes)


def _scores(
    pool: OpinionPool, found: list[tuple[str, list[Array]]], truth: list[LabelledColumns]
) -> dict[str, NDArray[Any]]:
    """Return the table of log losses: members, what is judged beside them, the pool and the class frequencies."""
    first, n_members = truth[0], len(pool.members)
    own = first.all_weights
    shares = [pool.shares(samples.table.vagueness) for samples in truth]
    together = [
        np.einsum("nm,nmc->nc", share, np.stack([p[s] for _, p in found[:n_members]], axis=1))
        for s, share in enumerate(shares)
    ]
    totals = np.bincount(first.labels, own, pool.n_classes)
    frequencies = [np.tile(totals / totals.sum(), (len(samples), 1)) for samples in truth]
    rows = [*found, ("pool", together), ("class frequencies", frequencies)]
    losses = np.array([
        [np.average(log_losses(p[s], truth[s].labels), weights=own) for s in range(len(truth))] for _, p in rows
    ])  # fmt: skip
    nothing = np.full(len(rows) - n_members, np.nan)
    return {
        "member": np.array([name for name, _ in rows]),
        "weight": np.concatenate([np.average(shares[0], axis=0, weights=own), nothing]),
        "log_loss": losses[:, 0],
        **({"weight_noisier": np.concatenate([np.average(shares[1], axis=0, weights=own), nothing]),
            "log_loss_noisier": losses[:, 1]} if len(truth) > 1 else {}),
    }  # fmt: skip
