"""Members of a pool: ordinary classifiers on the columns of :mod:`gaussguru._estimators.features`.

A :class:`Member` says which columns its classifier takes, whether it is fitted to noisier copies beside the samples,
and how many rows it needs. Each fold fits one classifier; a prediction averages their probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from threadpoolctl import ThreadpoolController

from gaussguru._data.rows import BlockMap
from gaussguru._errors import Measured, unmeasured
from gaussguru._estimators.class_populations import PopulationClassifier
from gaussguru._estimators.features import Columns
from gaussguru._linalg import Array, Index

# Numbers of trees to which boosting grows, one after the other: a fit bins the features anew. It ends where the last
# quarter of the trees did not lower the log loss of held-out samples.
TREES = (60, 120, 220)
# Rows for extremely randomised trees, for kernels and for populations of classes: more change little, and take long.
TREE_ROWS, KERNEL_ROWS, POPULATION_ROWS = 40_000, 20_000, 8_000
# Landmarks of the kernel; rows and landmarks on which its width is chosen.
LANDMARKS, SCREEN_ROWS, SCREEN_LANDMARKS = 300, 3_000, 150
# Widths of the kernel, gamma times the number of features of spread 1.
GAMMAS = (0.3, 1.0, 3.0)
# Samples of the smallest class from which its population is a mixture of three Gaussians.
MIXTURE_SAMPLES = 60
# Lower probabilities count as this in log losses of held-out samples.
LEAST_PROBABILITY = 1e-6
# Fewer samples count as few: leaves of trees may be small, and folds are repeated.
FEW, REPEATS = 300, 3


@dataclass(frozen=True)
class LabelledColumns:
    """Rows to fit a classifier to, or to judge it by: columns, class numbers, and weights or None."""

    table: Columns
    labels: Index
    weights: Array | None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> "LabelledColumns":
        return LabelledColumns(
            self.table[rows], self.labels[rows], None if self.weights is None else self.weights[rows]
        )

    @property
    def all_weights(self) -> Array:
        """The weights, 1 where none were given, (n,)."""
        return np.ones(len(self)) if self.weights is None else self.weights


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

    def fit(self, X: Array, y: Any = None) -> Self:
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
        exponents = (inverse * np.square(means)).sum(axis=1)[:, np.newaxis] - 2 * (inverse * means) @ Z.T
        exponents += inverse @ np.square(Z).T + 0.5 * np.log(shrink).sum(axis=1)[:, np.newaxis]
        values = np.sqrt(len(Z)) * np.exp(-np.maximum(exponents, 0.0))
        return np.hstack([values, means, X[:, 2 * d :]])


# The values and their errors, for a classifier that takes both.
WITH_ERRORS = "with errors"
# The samples as classifiers take them: the first arguments of ``predict_proba``.
COLUMNS: dict[str, Callable[[Columns], tuple[Any, ...]]] = {
    "trees": lambda table: (table.trees,),
    "sizes": lambda table: (np.hstack([table.trees, table.sizes]),),
    "measured": lambda table: (np.where(unmeasured(table.X_err, table.X.shape), np.nan, table.X),),
    "linear": lambda table: (np.hstack([table.means, table.gaps]),),
    "posterior": lambda table: (np.hstack([table.means, table.variances, table.gaps]),),
    "rotated": lambda table: (np.hstack([table.rotated, table.rotated_variances, table.gaps]),),
    WITH_ERRORS: lambda table: (table.X if table.X_err is None else Measured.checked(table.X, table.X_err),),
}


def probabilities_of(model: Any, samples: tuple[Any, ...], n_classes: int) -> Array:
    """Return the probabilities of a fitted classifier, (n, n_classes); 0 for classes that its fold did not have."""
    return of_all_classes(model.predict_proba(*samples), model.classes_, n_classes)


def of_all_classes(probabilities: Any, known: Any, n_classes: int) -> Array:
    """Return probabilities of known class numbers as those of all classes, (n, n_classes); 0 for the others."""
    if len(known) == n_classes:
        return np.asarray(probabilities, dtype=np.float64)
    result = np.zeros((len(probabilities), n_classes))
    result[:, np.asarray(known, dtype=np.intp)] = probabilities
    return result


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
    models: list[Any]


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
    estimator: Any
    columns: str = "trees"
    copies: bool = True
    most_rows: int | None = None

    def fitted(self, samples: LabelledColumns, seed: int) -> Any:
        """Return the classifier of a fold."""
        samples = self._some(samples, seed)
        given: dict[str, Any] = {} if samples.weights is None else {"sample_weight": samples.weights}
        if given and not has_fit_parameter(_last(self.estimator), "sample_weight"):
            raise ValueError(
                f"sample_weight and class_weight need an estimator whose fit takes sample_weight; "
                f"{type(self.estimator).__name__} does not"
            )
        if given and hasattr(self.estimator, "steps"):
            given = {f"{self.estimator.steps[-1][0]}__sample_weight": samples.weights}
        return clone(self.estimator).fit(*COLUMNS[self.columns](samples.table), samples.labels, **given)

    def _some(self, samples: LabelledColumns, seed: int) -> LabelledColumns:
        """Return at most as many rows as the classifier needs."""
        n = len(samples)
        if self.most_rows is None or n <= self.most_rows:
            return samples
        return samples[np.random.default_rng(seed).permutation(n)[: self.most_rows]]

    def inputs(self, sets: list[LabelledColumns]) -> list[tuple[Any, ...]]:
        """Return sets of samples as the classifiers take them."""
        return [COLUMNS[self.columns](samples.table) for samples in sets]

    def chosen(self, train: LabelledColumns, held: list[LabelledColumns], n_classes: int) -> "Member":
        """Return the member with its settings chosen on a fold: samples to fit to, and sets of held-out ones."""
        return self

    def fit_folds(
        self,
        train: list[LabelledColumns],
        held: list[list[LabelledColumns]],
        seeds: Index,
        n_classes: int,
        mapped: BlockMap,
    ) -> list[Any]:
        """Return the classifiers of all folds."""
        return list(mapped(lambda some, seed: alone(self.fitted, some, int(seed)), train, seeds))


@dataclass(frozen=True)
class BoostingMember(Member):
    """Gradient boosting, with as many trees as suit the held-out samples of all folds together."""

    def fit_folds(
        self,
        train: list[LabelledColumns],
        held: list[list[LabelledColumns]],
        seeds: Index,
        n_classes: int,
        mapped: BlockMap,
    ) -> list[Any]:
        """Return the classifiers with the number of trees that has the least log loss."""
        models = [clone(self.estimator).set_params(warm_start=True) for _ in train]
        inputs, held_inputs = self.inputs(train), [self.inputs(sets) for sets in held]

        def grown(model: Any, X: Any, samples: LabelledColumns, inputs: Any, sets: list[LabelledColumns]) -> Array:
            """Fit a classifier with more trees; return its total log losses after each of them."""
            model.fit(*X, samples.labels, sample_weight=samples.weights)
            return staged_losses(model, inputs, sets, n_classes)

        for n_trees in TREES:
            for model in models:
                model.set_params(max_iter=n_trees)
            losses = sum(mapped(lambda *each: alone(grown, *each), models, inputs, train, held_inputs, held))
            best = 1 + int(np.argmin(losses))
            if best <= 0.75 * n_trees:
                break
        if best == n_trees:
            return models
        shorter = replace(self, estimator=clone(self.estimator).set_params(max_iter=best))
        return super(BoostingMember, shorter).fit_folds(train, held, seeds, n_classes, mapped)


@dataclass(frozen=True)
class KernelMember(Member):
    """Logistic regression on expected kernel values, whose width and axes are chosen on the first fold."""

    def chosen(self, train: LabelledColumns, held: list[LabelledColumns], n_classes: int) -> "Member":
        """Return the member with the width, and the axes, of least log loss."""
        train = train[np.random.default_rng(0).permutation(len(train))[:SCREEN_ROWS]]
        held = [samples[: SCREEN_ROWS // 2] for samples in held]
        found = []
        for columns, d in (("posterior", train.table.means.shape[1]), ("rotated", train.table.rotated.shape[1])):
            for gamma in GAMMAS:
                small = clone(self.estimator).set_params(
                    expectedkernel__gamma=gamma / d,
                    expectedkernel__n_features=d,
                    expectedkernel__n_landmarks=SCREEN_LANDMARKS,
                    logisticregression__max_iter=40,
                )
                tried = replace(self, columns=columns, estimator=small)
                model = tried.fitted(train, 0)
                loss = total_loss(model, tried.inputs(held), held, n_classes)
                found.append((loss, replace(tried, estimator=clone(small).set_params(
                    expectedkernel__n_landmarks=LANDMARKS, logisticregression__max_iter=80))))  # fmt: skip
        return min(found, key=lambda each: each[0])[1]


MODELS = ("auto", "linear", "rbf", "boosting", "population")


def members_of(
    model: str, estimator: Any, counts: NDArray[Any], n_features: int, seed: int, *, copies: bool, sizes: bool
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
    populations = PopulationClassifier(3 if counts.min() > MIXTURE_SAMPLES else 1, random_state=seed, n_jobs=1)
    kind: type[Member] = BoostingMember if estimator is None else Member
    model_of_trees = boosting if estimator is None else estimator
    name, columns = "boosting" if estimator is None else "estimator", "sizes" if sizes else "trees"
    every: dict[str, list[Member]] = {
        "boosting": [
            kind(name, model_of_trees, columns),
            kind(f"{name}, as measured", model_of_trees, columns, copies=False),
        ],
        "trees": [Member("trees", trees, columns, most_rows=TREE_ROWS)],
        "rbf": [KernelMember("rbf", kernel, "posterior", most_rows=KERNEL_ROWS)],
        "population": [Member("population", populations, WITH_ERRORS, copies=False, most_rows=POPULATION_ROWS)],
        "linear": [Member("linear", LogisticRegression(C=0.3, max_iter=80), "linear")],
    }
    if not copies:
        every["boosting"] = every["boosting"][:1]
    return [member for some in every.values() for member in some] if model == "auto" else every[model]


def judged_beside(boosting: Member, n_trees: int) -> list[Member]:
    """Return the boosting of a pool with the measured values alone, and with or without error sizes.

    They have as many trees.
    """
    name, columns = ("error sizes used", "sizes") if boosting.columns == "trees" else ("error sizes not used", "trees")
    estimator = clone(boosting.estimator).set_params(max_iter=n_trees)
    return [
        Member("errors ignored", estimator, "measured", copies=False, most_rows=TREE_ROWS),
        Member(name, estimator, columns, most_rows=TREE_ROWS),
    ]


@cache
def _openmp() -> Any:
    """Return the OpenMP of scikit-learn's trees, which is loaded by now: finding it takes 7 ms."""
    return ThreadpoolController().select(user_api="openmp")


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, with one thread of OpenMP and scikit-learn as it is by default.

    Threads of ours have the cores; sums of several threads would round differently.
    """
    with _openmp().limit(limits=1), config_context(enable_metadata_routing=False, transform_output="default"):
        return function(*arguments)


def total_loss(model: Any, inputs: list[tuple[Any, ...]], sets: list[LabelledColumns], n_classes: int) -> float:
    """Return the weighted sum of the log losses of a fitted classifier over sets of samples."""
    found = [probabilities_of(model, samples, n_classes) for samples in inputs]
    return sum(float(log_losses(p, each.labels) @ each.all_weights) for p, each in zip(found, sets, strict=True))


def staged_losses(model: Any, inputs: list[tuple[Any, ...]], sets: list[LabelledColumns], n_classes: int) -> Array:
    """Return the weighted sums of the log losses of boosting over sets of samples, after each of its trees."""
    known = np.asarray(model.classes_, dtype=np.intp)
    totals = np.zeros(model.n_iter_)
    for samples, each in zip(inputs, sets, strict=True):
        for t, staged in enumerate(model.staged_predict_proba(*samples)):
            totals[t] += log_losses(of_all_classes(staged, known, n_classes), each.labels) @ each.all_weights
    return totals


def log_losses(probabilities: Array, labels: Index) -> Array:
    """Return minus the logarithms of the probabilities of the classes, (n,)."""
    return np.asarray(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY)))


def _last(estimator: Any) -> Any:
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
