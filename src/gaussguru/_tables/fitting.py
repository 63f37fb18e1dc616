"""Models of tables, learnt: fits, and paths of noise levels.

All serve the command, and errors name its options.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold, check_cv, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru._errors.given import Limits
from gaussguru._errors.samples import measured, split_errors
from gaussguru._guru.base import with_advice
from gaussguru._guru.cross_validation import GuruClassifierCV
from gaussguru._guru.kernel import KernelGuruClassifier
from gaussguru._guru.linear import GuruClassifier
from gaussguru._guru.path import sigma_path
from gaussguru._guru.probabilities import winners
from gaussguru._measured.error_bar import ErrorBarClassifier
from gaussguru._measured.posteriors import scaled_part
from gaussguru._tables.contents import TableError, quoted
from gaussguru._tables.layout import Layout
from gaussguru._tables.model import Model, is_plain
from gaussguru._tables.schema import Data, label_values
from gaussguru._utils.blocks import row_slices
from gaussguru._utils.checks import ParameterError
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import ColumnCells, ErrorBars, Estimator, Labels, MixedArray, Record, Values
from gaussguru.preprocessing import WithErrors
from gaussguru.sources import Arrays
from gaussguru.sources.base import Fields, Mapped, Source
from gaussguru.sources.reading import subsample_with_groups

# Options of the command, by the parameters of the library that they set; "" for advice that names none.
OPTIONS = {
    classifier: {"cv": "--folds", "n_jobs": "--jobs", "class_weight='balanced'": "--balanced"} | own
    for classifier, own in {
        "error-bars": {"n_components": "--gaussians", "use_error_sizes": "--use-error-sizes", "model": "--model"},
        "guru": {
            name: f"--{name}"
            for name in ("sigma", "kernel", "noise", "loss", "l2", "tol", "gamma", "degree", "scoring")
        } | {"sigmas": "--sigma", "n_components": "--components"},
    }.items()
}  # fmt: skip
# The classifier of measurements has a covariance for each row: so many numbers of them are held at a time (0.5 GB).
MOST_NUMBERS = 1 << 26


class Moments(NamedTuple):
    """Means and variances of the measured values of every feature, and what they are divided by to be scaled."""

    means: Array
    variances: Array
    scales: Array

    @classmethod
    def of(cls, scaler: StandardScaler) -> "Moments":
        """Return those that a scaler was fitted to."""
        return cls(scaler.mean_, scaler.var_, scaler.scale_)

    @property
    def spread(self) -> float:
        """The root of the mean variance of the features, or 1 if they do not vary."""
        return float(np.sqrt(np.mean(self.variances))) or 1.0

    def fit(self, step: Estimator, features: list[str]) -> None:
        """Fit a step to two rows with these means and variances."""
        two = pd.DataFrame(self.means + self.scales * np.array([[1.0], [-1.0]]), columns=features)
        step.fit(two)
        scaler = getattr(step, "transformer_", step)
        if isinstance(scaler, StandardScaler):  # the two are rounded where means are large beside deviations
            scaler.mean_, scaler.var_, scaler.scale_ = self
        if isinstance(step, WithErrors):
            step._map = step._map_of(step.transformer_, two)


class TrainingRows(NamedTuple):
    """Rows to learn from, in memory or in parts.

    ``X`` is a frame, a CSR matrix or a source, NaN where a value was not measured. ``texts`` are the different labels,
    ``counts`` the rows of positive weight that have each; ``encode`` returns the labels of all rows as numbers, from
    the number of each text. ``moments`` are those of a source, ``weight`` is the sum of ``weights``.
    """

    name: str
    layout: Layout
    n_rows: int
    X: Values
    X_err: ErrorBars
    texts: list[str]
    counts: NDArray[np.intp]
    encode: Callable[[NDArray[np.intp]], Labels]
    moments: Moments | None = None
    weights: Labels = None
    weight: float | None = None
    groups: MixedArray | None = None

    @classmethod
    def of(cls, data: Data) -> "TrainingRows":
        """Return those of a table in memory.

        An array of the labels would take as much for every row as the longest needs.
        """
        codes, texts = pd.factorize(pd.Series(data.y, dtype=object))
        weights, groups = data.weights, None if data.groups is None else pd.factorize(data.groups)[0]
        return cls(
            data.name, data.layout, data.n_rows, data.X, data.X_err, list(texts), used_rows(codes, weights, len(texts)),
            lambda ranks: ranks[codes], None, weights, None if weights is None else float(weights.sum()), groups,
        )  # fmt: skip


def used_rows(codes: Labels, weights: Labels, n_codes: int) -> NDArray[np.intp]:
    """Return the number of rows of positive weight with each code."""
    return np.bincount(codes, None if weights is None else weights > 0, n_codes).astype(np.intp)


def fit_model(
    table: Data | TrainingRows,
    *,
    sigma: Any = "cv",
    kernel: str = "linear",
    scale: bool = True,
    scoring: str = "accuracy",
    folds: int = 5,
    max_classes: int | None = None,
    classifier: str | None = None,
    **options: Any,
) -> Model:
    """Fit a model to a table.

    Parameters
    ----------
    table : gaussguru._tables.schema.Data or TrainingRows
        Values in memory may be changed by the fit, which holds no second copy of them.
    sigma : float, list of float or "cv", default="cv"
        Of "guru": the noise level, levels to choose from by cross-validation, or "cv": the library's levels.
    kernel : str, default="linear"
        Of "guru": "linear" is :class:`GuruClassifier`, others :class:`KernelGuruClassifier`, without error bars, of
        rows in memory.
    scale : bool, default=True
        Of "guru": whether to scale features to standard deviation 1, and to mean 0 unless they are sparse; ``sigma`` is
        then in these units.
    scoring : str, default="accuracy"
        Of "guru": the score by which cross-validation chooses ``sigma``, as scikit-learn names it.
    folds : int, default=5
        Of the cross-validation; fewer where a class has fewer rows. Features are scaled, and filled in, before the rows
        are divided: the units of ``sigma`` are the same in all folds, and a held-out part has had its share in them.
    max_classes : int, default=None
        The most classes that are learnt; None is 20, or a tenth of the rows if that is more.
    classifier : {"error-bars", "guru"} or None, default=None
        :class:`ErrorBarClassifier`, for which values are measurements, or classifiers for which errors are noise yet to
        come. None is the first where there are columns of errors.
    **options
        Parameters of the classifier.

    Returns
    -------
    Model
        Versions and date are added to its card by :func:`gaussguru.models.save_model`.
    """
    rows = TrainingRows.of(table) if isinstance(table, Data) else table
    labels = _Labels.of(rows, max_classes)
    if classifier is None:
        classifier = "error-bars" if rows.layout.errors or rows.layout.limits else "guru"
    if classifier == "error-bars" and kernel != "linear":
        raise TableError(f"--kernel {kernel} needs --classifier guru; --model rbf is the kernel of error-bars")
    given = for_codes(options, labels.classes)
    names = OPTIONS[classifier] | ({} if scale or classifier == "error-bars" else {"": ""})
    with naming(names), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if classifier == "error-bars":
            fitted = _fit_error_bars(rows, labels, folds, given)
        else:
            fitted = _fit_guru(rows, labels, given, sigma, kernel, folds, scoring, scale=scale)
    is_plain_count = rows.weights is None and options.get("class_weight") is None
    found = fitted.classifier
    found.classes_ = labels.classes
    found.set_params(**{name: value for name, value in options.items() if name == "class_weight"})
    n_used = int(rows.counts.sum())
    card = {
        "data": {"name": rows.name, "rows": rows.n_rows, "rows_used": n_used},
        "layout": rows.layout.as_json(),
        "labels": labels.kind,
        "classes": labels.classes.tolist(),
        "classifier": type(found).__name__,
        "parameters": {name: value for name, value in found.get_params(deep=False).items() if is_plain(value)},
        "fit": fitted.about
        | ({"accuracy_of_frequencies": labels.largest} if is_plain_count else {})
        | _proof(fitted.proven, n_used if rows.weight is None else rows.weight)
        | {"training_accuracy": fitted.accuracy, "passes": fitted.passes, "warnings": messages_of(caught, names)},
        **fitted.more,
    }
    return Model(Pipeline([*fitted.steps, ("classify", found)]), card)


class _Labels(NamedTuple):
    """The kind of the labels of a table, the classes, how many rows or groups each has, and the class of every row.

    ``largest`` is the share of the rows that the largest class has.
    """

    kind: str
    classes: MixedArray
    counts: NDArray[np.intp]
    y: Labels
    largest: float
    unit: str = "row"

    @classmethod
    def of(cls, rows: TrainingRows, max_classes: int | None) -> "_Labels":
        if not rows.counts.any():
            raise TableError(f"{rows.name}: column {quoted(rows.layout.weights or '')} has the weight 0 in all rows")
        kind, classes, ranks = classes_of(rows.name, rows.texts, rows.layout, int(rows.counts.sum()), max_classes)
        counts = np.bincount(ranks, rows.counts, len(classes)).astype(np.intp)
        y, groups = rows.encode(ranks), rows.groups
        largest = float(counts.max() / counts.sum())
        if not counts.all():
            lost, column = classes[np.argmin(counts)].item(), quoted(rows.layout.weights or "")
            raise TableError(f"{rows.name}: class {lost!r} has the weight 0 in all its rows, in column {column}")
        if groups is None:
            return cls(kind, classes, counts, y, largest)
        n_groups, pairs = int(groups.max()) + 1, np.zeros(0, dtype=np.int64)
        for block in row_slices(0, len(groups), MOST_NUMBERS):  # rows in parts may be many
            pair = np.asarray(y[block], dtype=np.int64) * n_groups + groups[block]
            pairs = np.union1d(pairs, pair if rows.weights is None else pair[rows.weights[block] > 0])
        unit = f"group of column {quoted(rows.layout.groups or '')}"
        return cls(kind, classes, np.bincount(pairs // n_groups), y, largest, unit)

    def fold_count(self, folds: int, advice: str) -> int:
        """Return the number of folds, at most that of the rows, or groups, of the rarest class."""
        if self.counts.min() < 2:
            rare = self.classes[np.argmin(self.counts)].item()
            raise TableError(f"class {rare!r} has one {self.unit}, too few for cross-validation; {advice}")
        if folds < 2:
            raise TableError(f"--folds must be at least 2; got {folds}")
        return int(min(folds, self.counts.min()))


class _Fitted(NamedTuple):
    """A classifier of label numbers, the steps before it, and its part of the card.

    ``proven`` is the classifier whose objective was minimised, None of a pool.
    """

    steps: list[tuple[str, Estimator]]
    classifier: Estimator
    proven: Estimator
    accuracy: float
    passes: float | None
    about: Record
    more: Record


def _fit_guru(
    rows: TrainingRows, labels: _Labels, options: Record, sigma: Any, kernel: str, folds: int, scoring: str,
    *, scale: bool,
) -> _Fitted:  # fmt: skip
    """Fit a classifier of noise yet to come."""
    check_no_limits(rows.name, rows.layout)
    _check_noise(rows, labels, sigma, options)
    steps, X, given, spread = _prepare(rows, scale)
    is_searched = isinstance(sigma, str | list | tuple)
    if scoring != "accuracy" and not is_searched:
        raise TableError(f"--scoring {scoring} chooses sigma, which is {sigma:g}: leave one of them out")
    scores: Record | None = None
    if is_searched:
        folds = labels.fold_count(folds, "give --sigma a number")
        found, scores = _search(X, labels.y, given, sigma, kernel, folds, scoring, rows.groups, options)
    else:
        kind = GuruClassifier if kernel == "linear" else partial(KernelGuruClassifier, kernel=kernel)
        found = kind(sigma, **options).fit(X, labels.y, **given)
    if isinstance(X, Source):  # in memory it is given an array after a scaler, else the frame
        found.__dict__.pop("feature_names_in_", None)
        if not scale:
            found.feature_names_in_ = np.asarray(rows.layout.features, dtype=object)
    accuracy_of = GuruClassifier.score if isinstance(found, GuruClassifier) else type(found).score  # not by --scoring
    about = {"sigma": float(found.sigma), f"cv_{scoring}": None if scores is None else scores.pop("best")}
    more = {"scaled": scale, "spread": spread} | ({} if scores is None else {"cross_validation": scores})
    accuracy = float(accuracy_of(found, X, labels.y, **given))
    return _Fitted(steps, found, found, accuracy, getattr(found, "n_passes_", None), about, more)


def check_no_limits(table: str, layout: Layout) -> None:
    """Raise if there are limits: the classifiers of noise yet to come do not take them."""
    if layout.limits:
        name = quoted(layout.error_columns[-1])
        raise TableError(
            f"{table}: limits (column {name}) are for fits with --classifier error-bars; leave them out with "
            f"--drop {name}"
        )


def _check_noise(rows: TrainingRows, labels: _Labels, sigma: Any, options: Record) -> None:
    """Raise if there is no noise, or one that is not for these rows."""
    has_errors, n_classes = rows.layout.has_errors, len(labels.classes)
    if isinstance(sigma, int | float) and sigma == 0 and not has_errors and not options.get("l2"):
        raise TableError(f"--sigma must be > 0 where there are neither error columns nor --l2; got {sigma:g}")
    if isinstance(noise := options.get("noise"), str) and noise == "axis":
        found = "error columns" if has_errors else f"{n_classes} classes" if n_classes > 2 else ""
        if found := found or ("rows in parts" if isinstance(rows.X, Source) else ""):
            raise TableError(f"--noise {noise} is for two classes without error columns, in memory; got {found}")


def _proof(classifier: Estimator, weight: float) -> Record:
    """Return how near to its optimum a fit to rows of this weight is, and whether that is proven; no probit is.

    Of a pool, which minimises no objective as a whole, there is no more than that nothing is proven.
    """
    if classifier is None:
        return {"certified": False}
    gap = getattr(classifier, "dual_gap_", None)
    return {
        "objective": float(classifier.objective_),
        "gap": None if gap is None else float(gap),
        "relative_gap": None if gap is None else float(gap) / (weight * (len(classifier.classes_) - 1)),
        "certified": gap is not None and bool(classifier.converged_),
        "converged": bool(classifier.converged_),
        "iterations": int(classifier.n_iter_),
    }


def _fit_error_bars(rows: TrainingRows, labels: _Labels, folds: int, options: Record) -> _Fitted:
    """Fit the classifier of measurements."""
    if sp.issparse(rows.X):
        raise TableError(f"{rows.name}: --classifier error-bars is not for libsvm; --classifier guru is")
    features = rows.layout.features
    d = len(features)
    if d > 300:
        raise TableError(
            f"{rows.name}: {d} features are too many for --classifier error-bars, with a covariance for each row; at "
            "most 300. Choose some with --features, or give --classifier guru"
        )
    steps, X, given, _ = _prepare(rows, scale=None)
    whole = "" if rows.groups is None else ", or --groups; --test-size holds out whole groups"
    folds = labels.fold_count(folds, f"leave that class out{whole}")
    if not isinstance(X, Source) and len(X) * d * d > MOST_NUMBERS:  # posteriors are made in parts, and not kept
        X = Arrays(np.asarray(X))
    found = ErrorBarClassifier(cv=folds, random_state=0, **options).fit(X, labels.y, groups=rows.groups, **given)
    accuracy = float(found.score(X, labels.y, **given))
    if not steps:  # it is given the frame
        found.feature_names_in_ = np.asarray(features, dtype=object)
    scores = {name: _listed(part) for name, part in found.cv_scores_.items()}
    more = {
        "scaled": True,
        "spread": 1.0,
        "reliability": dict(zip(features, found.reliability_.tolist(), strict=True)),
        "cross_validation": scores | {"folds": folds},
    }
    passes = found.population_.n_passes_
    if not found._is_linear:  # whose members know numbers of classes
        about = _about_pool(scores, len(found.pool_.members))
        return _Fitted(steps, found, None, accuracy, passes, about, more)
    found.estimator_.classes_ = labels.classes
    pvalue = float(found.kappa_pvalue_)
    about = {
        "method": found.method_, "ridge": found.ridge_,
        "cv_log_loss": float(found.cv_scores_["log_loss"].min()), "kappa": float(found.kappa_),
        "kappa_pvalue": None if math.isnan(pvalue) else pvalue,
    }  # fmt: skip
    return _Fitted(steps, found, found.estimator_, accuracy, passes, about, more)


def _about_pool(scores: ColumnCells, n_members: int) -> Record:
    """Return what the card says of a pool: log losses on held-out rows, as measured and (if known) with more noise."""
    rows = {name: place for place, name in enumerate(scores["member"])}
    about: Record = {"method": "pool"}
    for column in ("log_loss", "log_loss_noisier"):
        if column in scores:
            about[f"cv_{column}"] = scores[column][rows["pool"]]
            for name in ("class frequencies", "errors ignored"):
                place = rows.get(name)
                about[f"{name.replace(' ', '_')}_{column}"] = None if place is None else scores[column][place]
    return about | {"members": {name: column[:n_members] for name, column in scores.items()}}


def _prepare(rows: TrainingRows, scale: bool | None) -> tuple[list[tuple[str, Estimator]], Values, Record, float]:
    """Return the fitted steps before the classifier, the values after them, their X_err and weights, and mean spread.

    With None for the scale the classifier scales by itself, and knows what to do with errors.
    """
    X, X_err, layout = rows.X, rows.X_err, rows.layout
    sparse = sp.issparse(X)
    if not sparse:
        _check_values(rows)
    steps: list[tuple[str, Estimator]] = []
    if layout.missing == "mean" and not sparse:
        steps.append(("fill", SimpleImputer()))
    scaler = StandardScaler(copy=rows.moments is not None, with_mean=not sparse)
    if layout.has_errors and scale is not None:
        steps.append(("scale", WithErrors(StandardScaler() if scale else None)))
    elif scale:
        steps.append(("scale", scaler))
    if rows.moments is not None:
        spread = 1.0 if scale else rows.moments.spread
        for _, step in steps:
            rows.moments.fit(step, layout.features)
        X = Mapped(X, partial(scaled_part, rows.moments.means, rows.moments.scales)) if scale else X
    else:
        spread = 1.0 if scale is not False else Moments.of(StandardScaler(with_mean=not sparse).fit(X)).spread
        samples = measured(X, X_err)
        for _, step in steps:
            samples = step.fit_transform(samples)
        scaler.set_params(copy=True)  # who uses the model from Python would not expect X to change
        X, X_err = split_errors(samples)
    given = {"X_err": X_err, "sample_weight": rows.weights}
    return steps, X, {name: value for name, value in given.items() if value is not None}, spread


def _check_values(rows: TrainingRows) -> None:
    """Raise if a feature was measured in no row."""
    unknown = np.isnan(rows.X.to_numpy()) if rows.moments is None else np.isnan(rows.moments.means)[np.newaxis]
    if rows.moments is None and isinstance(rows.X_err, Limits):
        unknown |= rows.X_err.limits != 0
    for place in np.flatnonzero(unknown.all(axis=0))[:1]:
        name = quoted(rows.layout.features[place])
        raise TableError(f"{rows.name}: column {name} has no value in any row; leave it out with --drop {name}")


def split_rows(data: Data, share: float) -> tuple[Data, Data]:
    """Return a table without some rows, and these: a share of every class, or of the groups, the same each time."""
    rows = np.arange(len(data.y))
    try:
        if data.groups is None:
            parts = train_test_split(rows, test_size=share, stratify=data.y, random_state=0)
        else:
            (parts,) = GroupShuffleSplit(1, test_size=share, random_state=0).split(rows, groups=data.groups)
    except ValueError as error:
        raise TableError(f"{data.name}: --test-size {share:g} cannot be had: {error}") from None

    def taken(rows: NDArray[np.intp]) -> Data:
        given: Record = {"y": data.y, "X_err": data.X_err, "weights": data.weights, "groups": data.groups}
        given = {name: values if values is None else values[rows] for name, values in given.items()}
        return data._replace(X=take_rows(data.X, rows), n_rows=len(rows), **given)

    kept, held_out = map(taken, map(np.sort, parts))
    if lost := {*data.y} - {*kept.y}:
        raise TableError(
            f"{data.name}: --test-size {share:g} holds out all groups of class {min(lost)!r}; give a smaller one"
        )
    return kept, held_out


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors of the library name options in place of parameters."""
    try:
        yield
    except ParameterError as error:
        name = names.get(error.parameter.partition("[")[0], error.parameter)
        raise TableError(f"{name} {error.words}") from error


def messages_of(caught: list[warnings.WarningMessage], names: Mapping[str, str]) -> list[str]:
    """Return what warnings say, each once, with advice on options only; NumPy speaks of arrays that no user knows."""
    texts = []
    for message in (warning.message for warning in caught if not issubclass(warning.category, RuntimeWarning)):
        known = vars(message)
        texts.append(with_advice(known["problem"], known["advice"], names) if "advice" in known else str(message))
    return list(dict.fromkeys(" ".join(text.split()) for text in texts))


def path_table(
    data: Data,
    sigmas: int | list[float],
    *,
    scale: bool = True,
    scoring: str = "accuracy",
    folds: int = 5,
    max_classes: int | None = None,
    **options: Any,
) -> tuple[ColumnCells, list[str]]:
    """Return linear classifiers of a table along a path of noise levels.

    Parameters
    ----------
    data : gaussguru._tables.schema.Data
        Its values may be changed.
    sigmas : int or list of float
        How many levels, or which.
    scale, scoring, folds, max_classes
        As in :func:`fit_model`; without folds there is no cross-validation.
    **options
        Parameters of the classifier.

    Returns
    -------
    columns : dict
        "sigma", "norm", "training_accuracy", "cv_accuracy" or another score (with folds) and "gap", the largest sigma
        first.
    warnings : list of str
    """
    rows = TrainingRows.of(data)
    labels = _Labels.of(rows, max_classes)
    check_no_limits(data.name, data.layout)
    _check_noise(rows, labels, 1.0, options)
    options, y = for_codes(options, labels.classes), labels.y
    names = OPTIONS["guru"] | {"sigmas": "--sigmas"} | ({} if scale else {"": ""})
    with naming(names), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, X, errors, _ = _prepare(rows, scale)
        found = None
        if folds:
            cv = _splitter(labels.fold_count(folds, "give --folds 0"), X, y, rows.groups)
            score = None if scoring == "accuracy" else scoring  # the default, which is computed faster
            found = GuruClassifierCV(sigmas, cv=cv, scoring=score, **options).fit(X, y, **errors)
        levels, coefs, intercepts, gaps = sigma_path(
            X, y, **errors, sigmas=sigmas if found is None else found.sigmas_, **options
        )
    values = X if sp.issparse(X) else np.asarray(X)
    accuracy = [
        float(np.average(winners(values @ coef.T + intercept) == y, weights=rows.weights))
        for coef, intercept in zip(coefs, intercepts, strict=True)
    ]
    columns = {
        "sigma": levels.tolist(),
        "norm": np.sqrt(np.square(coefs).sum(axis=(1, 2))).tolist(),
        "training_accuracy": accuracy,
        f"cv_{scoring}": [] if found is None else found.scores_.mean(axis=1).tolist(),
        "gap": gaps.tolist(),
    }
    return {name: column for name, column in columns.items() if column}, messages_of(caught, names)


def classes_of(
    name: str, texts: list[str], layout: Layout, n_rows: int, max_classes: int | None
) -> tuple[str, MixedArray, NDArray[np.intp]]:
    """Return the kind of the labels of a table, the classes, and which of them each text is."""
    target = f"{name}: " + ("the label" if layout.target is None else f"column {quoted(layout.target)}")
    try:
        kind, values = label_values(texts)
    except TableError as error:
        raise TableError(f"{target}: {error}") from None
    if len(texts) < 2:
        raise TableError(f"{target} has one class, {quoted(texts[0])}, in all rows; two or more are expected")
    # More are those of an identifier, or of a measured number, and the joint problem of all their pairs takes hours.
    if len(texts) > (max_classes or max(20, n_rows // 10)):
        raise TableError(
            f"{target} has {len(texts)} classes in {n_rows} rows; is it the target? --max-classes allows for more"
        )
    classes, places = np.unique(np.array([values[text] for text in texts]), return_inverse=True)
    return kind, classes, places


def for_codes(options: Record, classes: MixedArray) -> Record:
    """Return parameters of a classifier that is given the places of labels among the classes."""
    weights = options.get("class_weight")
    if not isinstance(weights, dict):
        return options
    places = {label: place for place, label in enumerate(classes.tolist())}
    unknown = [label for label in weights if label not in places]
    if unknown:
        raise ValueError(f"class_weight has keys {unknown!r} that are not among the classes {classes.tolist()!r}")
    return {**options, "class_weight": {places[label]: weight for label, weight in weights.items()}}


def _search(
    X: Values, y: Labels, given: Record, sigma: Any, kernel: str, folds: int, scoring: str, groups: Labels,
    options: Record,
) -> tuple[Estimator, Record]:  # fmt: skip
    """Return the classifier of the best sigma, and the score of each sigma in cross-validation, with the best one."""
    if kernel == "linear":
        levels = 20 if sigma == "cv" else sigma
        score = None if scoring == "accuracy" else scoring  # the default, which is computed faster
        some, labels, inside = X, y, given
        if groups is not None and isinstance(X, Source):  # of which the classifier draws rows without their groups
            fields = Fields(y, given.get("sample_weight"), given.get("X_err"))
            some, labels, weights, X_err, groups = subsample_with_groups(
                X, fields, groups, n_jobs=options.get("n_jobs")
            )
            inside = {"sample_weight": weights, "X_err": X_err}
        cv = _splitter(folds, some, labels, groups)
        found = GuruClassifierCV(levels, cv=cv, scoring=score, **options).fit(some, labels, **inside)
        levels, means = found.sigmas_.tolist(), found.scores_.mean(axis=1).tolist()
        if some is not X:
            found = GuruClassifier(found.sigma_, **options).fit(X, y, **given)
        else:
            found.set_params(cv=folds)
    else:
        cv = _splitter(folds, X, y, groups)
        if sigma == "cv" and kernel not in ("rbf", "laplacian", "cosine"):  # where samples have length 1
            raise TableError(
                f"--sigma cv has no levels for --kernel {kernel}, whose space has a unit of its own; give a number, or "
                "levels to choose from: --sigma 0.1,0.3,1"
            )
        # Of equals the largest wins.
        levels = sorted(np.geomspace(0.3, 0.001, 8).tolist() if sigma == "cv" else sigma, reverse=True)
        scorer = get_scorer(scoring)

        def scores(level: float) -> Iterator[float]:
            """Yield the score of a level on the held-out rows of each fold."""
            for train, test in check_cv(cv, y, classifier=True).split(X, y):
                inside, outside = ({name: value[rows] for name, value in given.items()} for rows in (train, test))
                model = KernelGuruClassifier(level, kernel=kernel, **options)
                model.fit(take_rows(X, train), y[train], **inside)
                yield float(scorer(model, take_rows(X, test), y[test], **outside))

        means = [float(np.mean(list(scores(level)))) for level in levels]
        found = KernelGuruClassifier(levels[int(np.argmax(means))], kernel=kernel, **options).fit(X, y, **given)
    return found, {"sigmas": levels, scoring: means, "folds": folds, "best": means[levels.index(found.sigma)]}


def _splitter(folds: int, X: Values, y: Labels, groups: Labels) -> Any:
    """Return what splits the rows: a number of folds, or folds that keep groups together."""
    return folds if groups is None else list(StratifiedGroupKFold(folds).split(np.empty(X.shape[0]), y, groups))


def _listed(values: MixedArray) -> list[Any]:
    """Return values as JSON has them: None where there is no number."""
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values.tolist()]
