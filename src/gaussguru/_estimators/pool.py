"""A pool: probabilities of several classifiers, averaged with weights that suit the noise of a sample.

    P(c | x, err) ~ (sum_m w_m(v) mean_f P_mf(c | x, err))^a(v)

    w(v) = (1 - g(v)) w_measured + g(v) w_noisier,      a(v) = (1 - g(v)) a_measured + g(v) a_noisier

over members m and folds f. The gate g is the probability that a sample of this vagueness v is a noisier copy instead
of a sample as it was measured, by logistic regression. Both sets of weights maximise the likelihood of held-out
samples, as they were measured and with more noise, by EM; one more sample for each member keeps them off 0. Averages
of calibrated probabilities are too close to 1/2 (Ranjan & Gneiting 2010, J. R. Statist. Soc. B 72). The powers a, which
maximise the same likelihood with a prior N(1, 1), correct that; the problem is convex.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from gaussguru._data.rows import BlockMap
from gaussguru._data.threads import Pool as Threads
from gaussguru._data.threads import n_threads
from gaussguru._estimators.base import CollapseWarning
from gaussguru._estimators.features import Columns, FeatureColumns, with_noise
from gaussguru._estimators.members import (
    COLUMNS,
    LEAST_PROBABILITY,
    BoostingMember,
    FittedMember,
    LabelledColumns,
    Member,
    alone,
    judged_beside,
    log_losses,
    probabilities_of,
)
from gaussguru._estimators.validation import outside
from gaussguru._linalg import Array, Index, log_sum
from gaussguru.sources import stacked

# Iterations of EM for the weights; the log loss changes by less than 1e-4 after some 50.
ITERATIONS = 300
# Numbers of the rows to fit to, and of those held out.
Fold = tuple[Index, Index]
# Samples that are added to the weight of each member, of both sets.
PSEUDO = 1.0


@dataclass(frozen=True)
class OpinionPool:
    """Fitted members and their weights.

    Attributes
    ----------
    members : kinds of classifiers, each with one for each fold
    weights : (2, n_members), for samples as they were measured and for noisier ones
    powers : (2,), of the average, for samples as they were measured and for noisier ones
    gate : (2,), intercept and slope of the logit of g(v)
    n_classes : number of classes
    """

    members: list[FittedMember]
    weights: Array
    powers: Array
    gate: Array
    n_classes: int

    def probabilities(self, table: Columns, mapped: BlockMap) -> Array:
        """Return the probabilities of the classes, (n, n_classes)."""
        given = [COLUMNS[member.columns](table) for member in self.members]
        calls = [(model, each) for member, each in zip(self.members, given, strict=True) for model in member.models]
        found = iter(mapped(lambda call: alone(probabilities_of, *call, self.n_classes), calls))
        opinions = [sum(next(found) for _ in member.models) / len(member.models) for member in self.members]
        return self.combined(opinions, table.vagueness)

    def combined(self, opinions: list[Array], vagueness: Array) -> Array:
        """Return the probabilities that members give to the classes as those of the pool, (n, n_classes)."""
        shares = self.shares(vagueness)
        mean = np.zeros_like(opinions[0])
        for m, opinion in enumerate(opinions):
            mean += shares[:, m, np.newaxis] * opinion
        mean /= mean.max(axis=1, keepdims=True)
        raised = mean ** (_gates(self.gate, vagueness) @ self.powers)[:, np.newaxis]
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def shares(self, vagueness: Array) -> Array:
        """Return the weights of the members for samples, (n, n_members)."""
        measured, noisier = _gates(self.gate, vagueness).T[:, :, np.newaxis]
        return np.asarray(measured * self.weights[0] + noisier * self.weights[1])


class Copies(NamedTuple):
    """How noisier copies are made: of whose errors, in which units, and times which factors."""

    donors: Any
    scale: Array
    factors: tuple[float, float]

    def of(self, table: Columns, factors: tuple[float, float], rng: np.random.Generator) -> tuple[Array, Any]:
        """Return values and errors of copies of samples."""
        return with_noise(table.X, table.X_err, self.donors, self.scale, factors, rng)


@dataclass(frozen=True)
class Trial:
    """The samples of every fold that members are fitted to, and those that they are judged by.

    Attributes
    ----------
    measured, doubled : training samples as they were measured, and these with a noisier copy of each
    held : held-out samples as they were measured, and with more noise if there are errors
    seeds : of every fold
    n_classes : number of classes
    """

    measured: list[LabelledColumns]
    doubled: list[LabelledColumns]
    held: list[list[LabelledColumns]]
    seeds: Index
    n_classes: int

    @classmethod
    def of(
        cls, features: FeatureColumns, samples: LabelledColumns, folds: list[Fold], copies: Copies | None, seed: int
    ) -> "Trial":
        """Return the folds of samples, of which copies are made if there are errors."""
        rng, n_classes = np.random.default_rng(seed), int(samples.labels.max()) + 1
        judged, doubled = [samples], [samples[train] for train, _ in folds]
        if copies is not None:
            more = copies.of(samples.table, (max(1.0, copies.factors[0]), copies.factors[1]), rng)
            judged.append(replace(samples, table=features.columns(*more)))
        seeds = rng.integers(2**31, size=len(folds))
        held, measured = [[each[test] for each in judged] for _, test in folds], list(doubled)
        if copies is not None:
            for k, mine in enumerate(measured):
                more = copies.of(mine.table, copies.factors, np.random.default_rng(seeds[k]))
                doubled[k] = stacked([mine, replace(mine, table=features.columns(*more))])
        return cls(measured, doubled, held, seeds, n_classes)

    @property
    def truth(self) -> list[LabelledColumns]:
        """The held-out samples of all folds, as they were measured and with more noise."""
        return [stacked(sets) for sets in zip(*self.held, strict=True)]

    def judged(self, member: Member, mapped: BlockMap) -> tuple[FittedMember, list[Array]]:
        """Return a fitted member, and its probabilities of the held-out samples of all folds."""
        train = self.doubled if member.copies else self.measured
        # Its settings are chosen by samples such as those that it is fitted to.
        held = self.held if member.copies else [sets[:1] for sets in self.held]
        member = alone(member.chosen, train[0], held[0], self.n_classes)
        models = member.fit_folds(train, held, self.seeds, self.n_classes, mapped)

        def probabilities(model: Any, sets: list[LabelledColumns]) -> list[Array]:
            return [alone(probabilities_of, model, each, self.n_classes) for each in member.inputs(sets)]

        parts = mapped(probabilities, models, self.held)
        found = [np.concatenate(some) for some in zip(*parts, strict=True)]
        return FittedMember(member.name, member.columns, models), found


def fit_pool(
    members: list[Member], trial: Trial, n_jobs: int | None, say: Callable[[str], None]
) -> tuple[OpinionPool, dict[str, NDArray[Any]]]:
    """Return a pool, and the table of log losses of its members on held-out samples."""
    # Few iterations of logistic regression will do: held-out samples judge. (Filters are those of all threads.)
    with warnings.catch_warnings(), Threads(n_threads(n_jobs)) as mapped:
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Threads share the folds, or the members of a single one.
        by_member, by_fold = (mapped, map) if len(trial.seeds) == 1 else (map, mapped)

        def judged(member: Member) -> tuple[FittedMember, list[Array]]:
            say(f"{member.name}: {len(trial.seeds)} folds")
            return trial.judged(member, by_fold)

        found, others = list(by_member(judged, members)), []
        if len(trial.held[0]) > 1 and isinstance(members[0], BoostingMember):
            others = list(by_member(judged, judged_beside(members[0], found[0][0].models[0].n_iter_)))
    truth = trial.truth
    pool = _weighted([member for member, _ in found], [p for _, p in found], truth, trial.n_classes)
    return pool, _scores(pool, [(member.name, p) for member, p in found + others], truth)


def warn_if_uninformed(losses: Array, labels: Index, weights: Array, n_classes: int, n_fitted: int = 0) -> None:
    """Warn unless log losses of held-out samples are below those of the class frequencies.

    By more than the standard error of the mean difference, from sample to sample, after a correction of n_fitted / n
    for parameters that were fitted to the same samples (Akaike 1974).
    """
    totals = np.bincount(labels, weights, n_classes)
    of_frequencies = -np.log((totals / totals.sum())[labels])
    shares = weights / weights.sum()
    gain = shares @ (of_frequencies - losses)
    error = np.sqrt(np.square(shares) @ np.square(of_frequencies - losses - gain))
    if gain - n_fitted / len(labels) <= error:
        warnings.warn(
            f"on held-out samples this classifier is not better than the class frequencies (log loss "
            f"{shares @ losses:.3g}, and {shares @ of_frequencies:.3g} for these; standard error of the difference "
            f"{error:.2g}): the features, with their errors, do not tell the classes, or samples are too few",
            CollapseWarning,
            stacklevel=outside(),
        )


def _gates(gate: Array, vagueness: Array) -> Array:
    """Return the probabilities that samples are as measured, and that they are noisier copies, (n, 2)."""
    g = expit(gate[0] + gate[1] * vagueness)
    return np.stack([1.0 - g, g], axis=1)


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
    gates = _gates(gate, vagueness)
    w = np.full((2, likelihoods.shape[1]), 1.0 / likelihoods.shape[1])
    for _ in range(ITERATIONS):
        parts = gates @ w * likelihoods
        ratio = (own / parts.sum(axis=1))[:, np.newaxis] * likelihoods
        w = w * (gates.T @ ratio) + PSEUDO
        w /= w.sum(axis=1, keepdims=True)
    labels = np.concatenate([each.labels for each in truth])
    mean = sum((gates @ w[:, m : m + 1]) * np.concatenate(opinions) for m, opinions in enumerate(found))
    return OpinionPool(members, w, _powers(np.asarray(mean), gates, labels, own), gate, n_classes)


def _powers(mean: Array, gates: Array, labels: Index, weights: Array) -> Array:
    """Return the powers, (2,), of averages of probabilities, (n, n_classes), with the greatest posterior density."""
    logs = np.log(np.maximum(mean, LEAST_PROBABILITY))
    logs -= logs[np.arange(len(labels)), labels][:, np.newaxis]

    def cost(powers: Array) -> tuple[float, Array]:
        """Return minus the logarithm of the posterior density, and its gradient."""
        raised = (gates @ powers)[:, np.newaxis] * logs
        total = log_sum(raised, axis=1)
        slopes = weights * (np.exp(raised - total[:, np.newaxis]) * logs).sum(axis=1)
        return float(weights @ total + 0.5 * np.square(powers - 1.0).sum()), gates.T @ slopes + powers - 1.0

    options = {"ftol": 0.0, "gtol": 1e-8}
    return np.asarray(minimize(cost, np.ones(2), jac=True, bounds=[(0.0, None)] * 2, options=options).x)


def _scores(
    pool: OpinionPool, found: list[tuple[str, list[Array]]], truth: list[LabelledColumns]
) -> dict[str, NDArray[Any]]:
    """Return the table of log losses: members, what is judged beside them, the pool and the class frequencies."""
    first, n_members = truth[0], len(pool.members)
    own = first.all_weights
    shares = [pool.shares(samples.table.vagueness) for samples in truth]
    together = [
        pool.combined([p[s] for _, p in found[:n_members]], samples.table.vagueness) for s, samples in enumerate(truth)
    ]
    totals = np.bincount(first.labels, own, pool.n_classes)
    frequencies = [np.tile(totals / totals.sum(), (len(samples), 1)) for samples in truth]
    rows = [*found, ("pool", together), ("class frequencies", frequencies)]
    losses = np.array([
        [np.average(log_losses(p[s], truth[s].labels), weights=own) for s in range(len(truth))] for _, p in rows
    ])  # fmt: skip
    n_fitted = pool.weights.size + pool.powers.size - 2  # each set of weights adds up to 1
    warn_if_uninformed(log_losses(together[0], first.labels), first.labels, own, pool.n_classes, n_fitted)
    nothing = np.full(len(rows) - n_members, np.nan)
    return {
        "member": np.array([name for name, _ in rows]),
        "weight": np.concatenate([np.average(shares[0], axis=0, weights=own), nothing]),
        "log_loss": losses[:, 0],
        **({"weight_noisier": np.concatenate([np.average(shares[1], axis=0, weights=own), nothing]),
            "log_loss_noisier": losses[:, 1]} if len(truth) > 1 else {}),
    }  # fmt: skip
