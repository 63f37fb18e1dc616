"""A pool: ordinary classifiers on the columns of measured samples, and an average of their probabilities.

    P(c | x, err) ~ (sum_m w_m(v) mean_f P_mf(c | x, err))^a(v)

    w(v) = (1 - g(v)) w_measured + g(v) w_noisier,      a(v) = (1 - g(v)) a_measured + g(v) a_noisier

over members m and folds f. A :class:`Member` says which columns its classifier takes, whether it is fitted to noisier
copies beside the samples, and how many rows it needs; each fold fits one classifier. The gate g is the probability that
a sample of this vagueness v is a noisier copy instead of a sample as it was measured, by logistic regression. Both sets
of weights maximise the likelihood of held-out samples, as they were measured and with more noise, by EM; one more
sample for each member keeps them off 0. Averages of calibrated probabilities are too close to 1/2 (Ranjan & Gneiting
2010, J. R. Statist. Soc. B 72). The powers a, which maximise the same likelihood with a prior N(1, 1), correct that;
the problem is convex.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, count
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from threadpoolctl import ThreadpoolController

from gaussguru._errors.missing import unmeasured
from gaussguru._errors.samples import Measured
from gaussguru._guru.base import CollapseWarning
from gaussguru._measured.class_populations import PopulationClassifier
from gaussguru._measured.features import FeatureColumns, MemberColumns, with_noise
from gaussguru._rows.threads import Pool as Threads
from gaussguru._rows.threads import n_threads
from gaussguru._utils.checks import outside
from gaussguru._utils.linalg import Array, Index, log_sum
from gaussguru._utils.stages import Timed
from gaussguru._utils.types import BlockMap, Estimator, Labels, MixedArray, Record, Values
from gaussguru.sources.reading import stacked

# Numbers of trees to which boosting grows, one after the other: a fit bins the features anew. It ends where the last
# quarter of the trees did not lower the log loss of held-out samples.
TREES = (60, 120, 220)
# Rows for extremely randomised trees, and for kernels: more change little, and take long.
TREE_ROWS, KERNEL_ROWS = 40_000, 20_000
# Landmarks of the kernel.
LANDMARKS = 300
# Lower probabilities count as this in log losses of held-out samples.
LEAST_PROBABILITY = 1e-6
# Fewer samples count as few: leaves of trees may be small, and folds are repeated.
FEW = 300
# The models of an ErrorBarClassifier.
MODELS = ("auto", "linear", "rbf", "boosting", "population")


@dataclass(frozen=True)
class LabelledColumns:
    """Rows to fit a classifier to, or to judge it by: columns, class numbers, and weights or None."""

    table: MemberColumns
    labels: Index
    weights: Array | None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: MixedArray | slice) -> "LabelledColumns":
        return LabelledColumns(
            self.table[rows], self.labels[rows], None if self.weights is None else self.weights[rows]
        )

    @property
    def all_weights(self) -> Array:
        """The weights, 1 where none were given, (n,)."""
        return np.ones(len(self)) if self.weights is None else self.weights


class PoolFold(NamedTuple):
    """A fold: samples to fit members to, and held-out samples to judge them by.

    Attributes
    ----------
    measured, doubled : training samples as they were measured, and these with a noisier copy of each
    held : held-out samples as they were measured, and with more noise if there are errors
    seed : of the members that draw rows
    n_classes : number of classes, of which the training samples may lack some
    """

    measured: LabelledColumns
    doubled: LabelledColumns
    held: list[LabelledColumns]
    seed: int
    n_classes: int


def pool_folds(
    features: FeatureColumns,
    samples: LabelledColumns,
    folds: list[tuple[Index, Index]],
    noise_range: tuple[float, float] | None,
    seed: int,
) -> list[PoolFold]:
    """Return the folds of samples, with noisier copies if a range of factors on the errors is given."""
    rng, n_classes = np.random.default_rng(seed), int(samples.labels.max()) + 1

    def noisier(part: LabelledColumns, factors: tuple[float, float], rng: np.random.Generator) -> LabelledColumns:
        """Return copies of samples with the errors of any samples, times a factor."""
        X, X_err = part.table.X, part.table.X_err
        values, errors = with_noise(X, X_err, samples.table.X_err, features.view.scale, factors, rng)
        return replace(part, table=features.columns(values, errors))

    judged = [samples]
    if noise_range is not None:
        judged.append(noisier(samples, (max(1.0, noise_range[0]), noise_range[1]), rng))
    result = []
    for (train, test), fold_seed in zip(folds, rng.integers(2**31, size=len(folds)), strict=True):
        measured = doubled = samples[samples.table.with_values(train)]
        if noise_range is not None:
            doubled = stacked([measured, noisier(measured, noise_range, np.random.default_rng(fold_seed))])
        result.append(PoolFold(measured, doubled, [part[test] for part in judged], int(fold_seed), n_classes))
    return result


class ExpectedKernel(TransformerMixin, BaseEstimator):
    """Expected RBF kernel values with some samples, under Gaussian posteriors with independent features.

    The columns of X are the means, the variances and further features. The columns of the result are
    ``sqrt(m) E exp(-gamma |x - z|^2)`` for m landmarks z, the means, and the further features.

    Parameters
    ----------
    gamma : float
    n_landmarks : int
        Means of so many samples, drawn at random, are the landmarks.
    n_features : int
        Number of means, and of variances.
    random_state : int

    Attributes
    ----------
    landmarks_ : ndarray of shape (n_landmarks, n_features)
    """

    landmarks_: Array

    def __init__(self, gamma: float = 1.0, n_landmarks: int = 300, n_features: int = 1, random_state: int = 0) -> None:
        self.gamma = gamma
        self.n_landmarks = n_landmarks
        self.n_features = n_features
        self.random_state = random_state

    def fit(self, X: Array, y: Labels = None) -> Self:
        """Draw the landmarks."""
        rows = np.random.default_rng(self.random_state).permutation(len(X))[: self.n_landmarks]
        self.landmarks_ = np.ascontiguousarray(X[rows, : self.n_features])
        return self

    def transform(self, X: Array) -> Array:
        """Return the columns, (n, m + d + further)."""
        check_is_fitted(self)
        d, Z = self.n_features, self.landmarks_
        means, variances = X[:, :d], X[:, d : 2 * d]
        shrink = 1.0 + 2.0 * self.gamma * variances
        inverse = self.gamma / shrink
        # In place: a copy of (n, m) numbers may be the largest array of a fit.
        values = 2 * (inverse * means) @ Z.T
        np.subtract((inverse * np.square(means)).sum(axis=1)[:, np.newaxis], values, out=values)
        rest = inverse @ np.square(Z).T
        rest += 0.5 * np.log(shrink).sum(axis=1)[:, np.newaxis]
        values += rest
        del rest
        np.exp(np.negative(np.maximum(values, 0.0, out=values), out=values), out=values)
        values *= np.sqrt(len(Z))
        return np.hstack([values, means, X[:, 2 * d :]])


# The values and their errors, for a classifier that takes both.
WITH_ERRORS = "with errors"
# The samples as classifiers take them: the first arguments of ``predict_proba``.
COLUMNS: dict[str, Callable[[MemberColumns], tuple[Any, ...]]] = {
    "trees": lambda table: (table.trees,),
    "sizes": lambda table: (np.hstack([table.trees, table.sizes]),),
    "measured": lambda table: (np.where(unmeasured(table.X_err, table.X.shape), np.nan, table.X),),
    "linear": lambda table: (np.hstack([table.means, table.gaps]),),
    "posterior": lambda table: (np.hstack([table.means, table.variances, table.gaps]),),
    "rotated": lambda table: (np.hstack([table.rotated, table.rotated_variances, table.gaps]),),
    WITH_ERRORS: lambda table: (table.X if table.X_err is None else Measured.checked(table.X, table.X_err),),
}


def probabilities_of(model: Estimator, samples: tuple[Any, ...], n_classes: int) -> Array:
    """Return the probabilities of a fitted classifier, (n, n_classes); 0 for classes that its fold did not have."""
    return of_all_classes(model.predict_proba(*samples), model.classes_, n_classes)


def of_all_classes(probabilities: Array, known: MixedArray, n_classes: int) -> Array:
    """Return probabilities of all classes, (n, n_classes), from those of known class numbers; 0 for the others."""
    if len(known) == n_classes:
        return np.asarray(probabilities, dtype=np.float64)
    result = np.zeros((len(probabilities), n_classes))
    result[:, np.asarray(known, dtype=np.intp)] = probabilities
    return result


def log_losses(probabilities: Array, labels: Index) -> Array:
    """Return minus the logarithms of the probabilities of the classes, (n,)."""
    return np.asarray(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY)))


@cache
def _openmp() -> Any:
    """Return the OpenMP library of scikit-learn's trees, loaded before: to look it up takes 7 ms."""
    return ThreadpoolController().select(user_api="openmp")


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with one thread of OpenMP and the default configuration of scikit-learn.

    The threads of a pool use the cores already, and sums over several threads would round differently.
    """
    with _openmp().limit(limits=1), config_context(enable_metadata_routing=False, transform_output="default"):
        return function(*arguments)


@dataclass(frozen=True)
class FittedMember:
    """A member of a pool after the fit.

    Attributes
    ----------
    name : of the member
    columns : which columns it takes, a key of COLUMNS
    models : its classifiers, one for each fold
    """

    name: str
    columns: str
    models: list[Estimator]


@dataclass(frozen=True)
class Member:
    """A kind of classifier in a pool.

    Attributes
    ----------
    name : its name in ``members_``
    estimator : the classifier, not fitted
    columns : which columns it takes, a key of COLUMNS
    copies : whether it is fitted to noisier copies beside the samples
    most_rows : rows that it is fitted to, at most
    """

    name: str
    estimator: Estimator
    columns: str = "trees"
    copies: bool = True
    most_rows: int | None = None

    def judged(self, folds: list[PoolFold], mapped: BlockMap, timed: Timed) -> tuple[FittedMember, list[Array]]:
        """Return the member fitted to every fold, and its probabilities of held-out samples: as measured, noisier."""
        member, grown = self.chosen(folds, mapped, timed)
        done = count(1)

        def of_fold(fold: PoolFold, model: Estimator) -> tuple[Estimator, list[Array]]:
            with timed(f"{member.name}: fold", done, len(folds)):
                if model is None:
                    model = alone(member.fitted, member.training(fold), fold.seed)
                inputs = [COLUMNS[member.columns](samples.table) for samples in fold.held]
                return model, [alone(probabilities_of, model, each, fold.n_classes) for each in inputs]

        models, opinions = zip(*mapped(of_fold, folds, grown or [None] * len(folds)), strict=True)
        by_noise = [np.concatenate(parts) for parts in zip(*opinions, strict=True)]
        return FittedMember(member.name, member.columns, list(models)), by_noise

    def chosen(self, folds: list[PoolFold], mapped: BlockMap, timed: Timed) -> tuple["Member", list[Estimator]]:
        """Return the member with its settings chosen, and its classifiers if choosing has fitted them."""
        return self, []

    def training(self, fold: PoolFold) -> LabelledColumns:
        """Return the samples to fit to."""
        return fold.doubled if self.copies else fold.measured

    def judges(self, fold: PoolFold) -> list[LabelledColumns]:
        """Return the held-out samples by which settings are chosen: with more noise only if it is fitted to copies."""
        return fold.held if self.copies else fold.held[:1]

    def fitted(self, samples: LabelledColumns, seed: int) -> Estimator:
        """Return the classifier, fitted to at most as many rows as it needs."""
        n = len(samples)
        if self.most_rows is not None and n > self.most_rows:
            samples = samples[samples.table.with_values(np.random.default_rng(seed).permutation(n)[: self.most_rows])]
        given: Record = {}
        if samples.weights is not None:
            name, last = "", self.estimator
            if isinstance(last, Pipeline):
                name, last = f"{last.steps[-1][0]}__", last.steps[-1][1]
            if not has_fit_parameter(last, "sample_weight"):
                raise ValueError(
                    f"sample_weight and class_weight need an estimator whose fit takes sample_weight; "
                    f"{type(self.estimator).__name__} does not"
                )
            given[f"{name}sample_weight"] = samples.weights
        return clone(self.estimator).fit(*COLUMNS[self.columns](samples.table), samples.labels, **given)


@dataclass(frozen=True)
class BoostingMember(Member):
    """Gradient boosting, with as many trees as suit the held-out samples of all folds together."""

    def chosen(self, folds: list[PoolFold], mapped: BlockMap, timed: Timed) -> tuple[Member, list[Estimator]]:
        """Return the member with the number of trees of least log loss, and the classifiers if they have as many."""
        columns = COLUMNS[self.columns]
        models = [clone(self.estimator).set_params(warm_start=True) for _ in folds]
        inputs = [columns(self.training(fold).table) for fold in folds]
        held_inputs = [[columns(samples.table) for samples in self.judges(fold)] for fold in folds]

        def grown(model: Estimator, X: Values, held: list[Values], fold: PoolFold) -> Array:
            """Fit a classifier with more trees; return its total log losses after each of them."""
            samples = self.training(fold)
            model.fit(*X, samples.labels, sample_weight=samples.weights)
            known = np.asarray(model.classes_, dtype=np.intp)
            totals = np.zeros(model.n_iter_)
            for each, judge in zip(held, self.judges(fold), strict=True):
                for t, staged in enumerate(model.staged_predict_proba(*each)):
                    probabilities = of_all_classes(staged, known, fold.n_classes)
                    totals[t] += log_losses(probabilities, judge.labels) @ judge.all_weights
            return totals

        def timed_fold(*each: Any) -> Array:
            with timed(f"{self.name}: {n_trees} trees, fold", done, len(folds)):
                return np.asarray(alone(grown, *each))

        for n_trees in TREES:
            done = count(1)
            for model in models:
                model.set_params(max_iter=n_trees)
            losses = sum(mapped(timed_fold, models, inputs, held_inputs, folds))
            best = 1 + int(np.argmin(losses))
            if best <= 0.75 * n_trees:
                break
        if best == n_trees:
            return self, models
        return replace(self, estimator=clone(self.estimator).set_params(max_iter=best)), []


@dataclass(frozen=True)
class KernelMember(Member):
    """Logistic regression on expected kernel values, whose width and axes are chosen on the first fold."""

    def chosen(self, folds: list[PoolFold], mapped: BlockMap, timed: Timed) -> tuple[Member, list[Estimator]]:
        """Return the member with the width, and the axes, of least log loss on some rows of the first fold."""
        with timed(f"{self.name}: width of the kernel"):
            return alone(self._screened, folds[0]), []

    def _screened(self, fold: PoolFold) -> Member:
        train = self.training(fold)
        train = train[np.random.default_rng(0).permutation(len(train))[:3_000]]
        held = [samples[:1_500] for samples in self.judges(fold)]
        candidates = []
        for columns, d in (("posterior", train.table.means.shape[1]), ("rotated", train.table.rotated.shape[1])):
            for gamma in (0.3, 1.0, 3.0):  # times the number of features of spread 1
                quick = clone(self.estimator).set_params(
                    expectedkernel__gamma=gamma / d,
                    expectedkernel__n_features=d,
                    expectedkernel__n_landmarks=LANDMARKS // 2,
                    logisticregression__max_iter=40,
                )
                member = replace(self, columns=columns, estimator=quick)
                model, loss = member.fitted(train, 0), 0.0
                for samples in held:
                    probabilities = probabilities_of(model, COLUMNS[columns](samples.table), fold.n_classes)
                    loss += float(log_losses(probabilities, samples.labels) @ samples.all_weights)
                candidates.append((loss, replace(member, estimator=clone(quick).set_params(
                    expectedkernel__n_landmarks=LANDMARKS, logisticregression__max_iter=80))))  # fmt: skip
        return min(candidates, key=lambda each: each[0])[1]


def members_of(
    model: str, estimator: Estimator, counts: MixedArray, n_features: int, seed: int, *, copies: bool, sizes: bool
) -> list[Member]:
    """Return the members of a pool: all of them, or those that a model names.

    ``counts`` are the samples of each class; without error bars there are no copies to fit to.
    """
    few = counts.sum() < FEW
    boosting = HistGradientBoostingClassifier(
        max_iter=TREES[-1],
        learning_rate=0.12,
        max_leaf_nodes=8,
        min_samples_leaf=5 if few else 20,
        l2_regularization=1.0,
        max_features=0.5,
        max_bins=128,
        early_stopping=False,
        random_state=seed,
    )
    trees = ExtraTreesClassifier(40, min_samples_leaf=3, max_features=0.5, random_state=seed)
    kernel = make_pipeline(
        ExpectedKernel(1.0 / n_features, LANDMARKS, n_features, seed), LogisticRegression(C=0.3, max_iter=80)
    )
    bayes = PopulationClassifier(1, random_state=seed, n_jobs=1)
    populations = [Member("population", bayes, WITH_ERRORS, copies=False, most_rows=8_000)]
    if counts.min() > 60:  # enough for a mixture of each class; with many features one Gaussian may still be better
        three = replace(populations[0], estimator=clone(bayes).set_params(n_components=3))
        populations = [three, replace(populations[0], name="one Gaussian")]
    columns = "sizes" if sizes else "trees"
    first: Member = BoostingMember("boosting", boosting, columns)
    if estimator is not None:
        first = Member("estimator", estimator, columns)
    members: dict[str, list[Member]] = {
        "boosting": [first, *([replace(first, name=f"{first.name}, as measured", copies=False)] if copies else [])],
        "trees": [Member("trees", trees, columns, most_rows=TREE_ROWS)],
        "rbf": [KernelMember("rbf", kernel, "posterior", most_rows=KERNEL_ROWS)],
        "population": populations,
        "linear": [Member("linear", LogisticRegression(C=0.3, max_iter=80), "linear")],
    }
    return [*chain(*members.values())] if model == "auto" else members[model]


def judged_beside(boosting: Member, n_trees: int) -> list[Member]:
    """Return boosting with so many trees on the measured values alone, and with the other choice of error sizes."""
    name, columns = ("error sizes used", "sizes") if boosting.columns == "trees" else ("error sizes not used", "trees")
    estimator = clone(boosting.estimator).set_params(max_iter=n_trees)
    return [
        Member("errors ignored", estimator, "measured", copies=False, most_rows=TREE_ROWS),
        Member(name, estimator, columns, most_rows=TREE_ROWS),
    ]


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

    def probabilities(self, table: MemberColumns, mapped: BlockMap) -> Array:
        """Return the probabilities of the classes, (n, n_classes)."""
        inputs = [COLUMNS[member.columns](table) for member in self.members]
        calls = [(model, each) for member, each in zip(self.members, inputs, strict=True) for model in member.models]
        results = iter(mapped(lambda call: alone(probabilities_of, *call, self.n_classes), calls))
        opinions = [sum(next(results) for _ in member.models) / len(member.models) for member in self.members]
        return self.combined(opinions, table.vagueness)

    def combined(self, opinions: list[Array], vagueness: Array) -> Array:
        """Return the average of the probabilities of the members, each (n, n_classes), to its power."""
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


def ignore_warnings_of_threads() -> None:
    """Ignore warnings of members that stop early, and one of scikit-learn that several threads may cause.

    Few iterations suffice, as held-out samples judge. Forests set the warning filters of the process for the time of
    every tree. Another thread may warn while there is no filter, and, if it finds none, of a wrong use of ``delayed``.
    The caller restores filters and display when the threads have ended.
    """
    words, show = "`sklearn.utils.parallel.delayed` should be used with", warnings.showwarning

    def show_others(message: Warning | str, category: type[Warning], *details: Any, **more: Any) -> None:
        if not (issubclass(category, ConvergenceWarning) or str(message).startswith(words)):
            show(message, category, *details, **more)

    warnings.filterwarnings("ignore", message=words)
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.showwarning = show_others


def fit_pool(
    members: list[Member], folds: list[PoolFold], n_jobs: int | None, timed: Timed
) -> tuple[OpinionPool, dict[str, MixedArray]]:
    """Return a pool, and the table of log losses of its members on held-out samples."""
    with warnings.catch_warnings(), Threads(n_threads(n_jobs)) as mapped:
        ignore_warnings_of_threads()
        # Threads share the folds, or the members of a single one.
        by_member, by_fold = (mapped, map) if len(folds) == 1 else (map, mapped)

        def judged(member: Member) -> tuple[FittedMember, list[Array]]:
            return member.judged(folds, by_fold, timed)

        fitted, others = list(by_member(judged, members)), []
        if len(folds[0].held) > 1 and isinstance(members[0], BoostingMember):
            others = list(by_member(judged, judged_beside(members[0], fitted[0][0].models[0].n_iter_)))
    truth = [stacked(sets) for sets in zip(*(fold.held for fold in folds), strict=True)]
    pool = _weighted([member for member, _ in fitted], [p for _, p in fitted], truth, folds[0].n_classes)
    return pool, _scores(pool, [(member.name, p) for member, p in fitted + others], truth)


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
        fitted = f", and {n_fitted / len(labels):.2g} of it are due to weights fitted to these samples" * bool(n_fitted)
        warnings.warn(
            f"on held-out samples this classifier is not better than the class frequencies (log loss "
            f"{shares @ losses:.3g}, and {shares @ of_frequencies:.3g} for these; standard error of the difference "
            f"{error:.2g}{fitted}), or not by more than chance gives: the features, with their errors, do not tell the "
            "classes, or samples are too few",
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
    is_copy = np.repeat([0, 1], [len(samples) for samples in truth])
    model = LogisticRegression().fit(((v - v.mean()) / spread)[:, np.newaxis], is_copy, weights)
    slope = max(0.0, float(model.coef_[0, 0])) / spread
    return np.array([float(model.intercept_[0]) - slope * v.mean(), slope])


def _weighted(
    members: list[FittedMember], opinions: list[list[Array]], truth: list[LabelledColumns], n_classes: int
) -> OpinionPool:
    """Return the pool with the weights of greatest likelihood, by EM, with a pseudo-sample for each weight."""
    gate = _gate(truth)
    likelihoods = np.concatenate([
        np.stack([np.exp(-log_losses(p[s], truth[s].labels)) for p in opinions], axis=1) for s in range(len(truth))
    ])  # fmt: skip
    vagueness = np.concatenate([samples.table.vagueness for samples in truth])
    weights = np.concatenate([each.all_weights for each in truth])
    weights = weights / weights.mean()
    gates = _gates(gate, vagueness)
    w = np.full((2, likelihoods.shape[1]), 1.0 / likelihoods.shape[1])
    for _ in range(300):  # the log loss changes by less than 1e-4 after some 50
        shares = gates @ w * likelihoods
        ratio = (weights / shares.sum(axis=1))[:, np.newaxis] * likelihoods
        w = w * (gates.T @ ratio) + 1.0
        w /= w.sum(axis=1, keepdims=True)
    labels = np.concatenate([each.labels for each in truth])
    mean = sum((gates @ w[:, m : m + 1]) * np.concatenate(parts) for m, parts in enumerate(opinions))
    return OpinionPool(members, w, _powers(np.asarray(mean), gates, labels, weights), gate, n_classes)


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
    pool: OpinionPool, judged: list[tuple[str, list[Array]]], truth: list[LabelledColumns]
) -> dict[str, MixedArray]:
    """Return the table of log losses: members, other classifiers, the pool and the class frequencies."""
    first, n_members = truth[0], len(pool.members)
    weights = first.all_weights
    shares = [pool.shares(samples.table.vagueness) for samples in truth]
    pooled = [
        pool.combined([p[s] for _, p in judged[:n_members]], samples.table.vagueness) for s, samples in enumerate(truth)
    ]
    totals = np.bincount(first.labels, weights, pool.n_classes)
    frequencies = [np.tile(totals / totals.sum(), (len(samples), 1)) for samples in truth]
    rows = [*judged, ("pool", pooled), ("class frequencies", frequencies)]
    # By set of samples, row of the table and sample. Boosting with other columns is compared with boosting.
    by_sample = np.array([[log_losses(p[s], truth[s].labels) for _, p in rows] for s in range(len(truth))])
    losses = np.average(by_sample, axis=2, weights=weights)
    base = [0 if name.startswith("error sizes") else len(judged) for name, _ in rows]
    gains = by_sample - by_sample[:, base] - (losses - losses[:, base])[:, :, np.newaxis]
    errors = np.sqrt(np.square(gains) @ np.square(weights / weights.sum()))
    n_fitted = pool.weights.size + pool.powers.size - 2  # each set of weights adds up to 1
    warn_if_uninformed(log_losses(pooled[0], first.labels), first.labels, weights, pool.n_classes, n_fitted)
    no_weight = np.full(len(rows) - n_members, np.nan)
    return {
        "member": np.array([name for name, _ in rows]),
        "weight": np.concatenate([np.average(shares[0], axis=0, weights=weights), no_weight]),
        "log_loss": losses[0],
        "standard_error": errors[0],
        **({"weight_noisier": np.concatenate([np.average(shares[1], axis=0, weights=weights), no_weight]),
            "log_loss_noisier": losses[1], "standard_error_noisier": errors[1]} if len(truth) > 1 else {}),
    }  # fmt: skip
