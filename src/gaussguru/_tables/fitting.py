"""Models of tables, learnt and judged: fits, paths of noise levels, evaluations in parts.

All serve the command, and errors name its options.
"""

import math
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru._errors import Measured, has_unmeasured, mean_spread, split_errors
from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.error_bar import KERNELS, ErrorBarClassifier
from gaussguru._estimators.kernel import KernelGuruClassifier
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.path import sigma_path
from gaussguru._linalg import Array
from gaussguru._tables.files import TableError, quoted
from gaussguru._tables.schema import Data, Layout, deviations, label_values
from gaussguru.models import Model
from gaussguru.preprocessing import WithErrors
from gaussguru.probabilities import winners
from gaussguru.report.reliability import by_error_size, error_sizes, larger_error_scores, proper_scores
from gaussguru.robustness import check_levels, class_probabilities, expected_accuracy, fill_unmeasured, robustness_curve
from gaussguru.sources import Arrays

__all__ = ["CLASSIFIERS", "ERROR_BAR_KERNELS", "evaluate_model", "fit_model", "path_table"]

# What a fit may make: the classifier of measurements, or that of noise yet to come.
CLASSIFIERS = ("error-bars", "guru")

# Kernels of the first; the other has those of scikit-learn.
ERROR_BAR_KERNELS = KERNELS

# Levels to choose from where samples have length 1 in the space of the kernel.
KERNEL_SIGMAS = tuple(np.geomspace(0.3, 0.001, 8).tolist())
UNIT_KERNELS = ("rbf", "laplacian", "cosine")
# A table may have so many classes, or one for so many of its rows: a target of more is an identifier, or a number that
# was measured, and the joint problem of all pairs of its classes takes hours.
FEW_CLASSES, ROWS_PER_CLASS = 20, 10
# Noise levels of an evaluation, in units of the spread of the features; and of error bars, for models of these.
NOISE_LEVELS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
ERROR_LEVELS = (1.0, 1.5, 2.0, 3.0)
# The classifier of measurements has a covariance for each row: so many features, and so many numbers of them that are
# held at a time (2 GB).
MOST_FEATURES, MOST_NUMBERS = 300, 1 << 28
# Rows whose probabilities are compared with what came true; of more every second, fourth, ... is taken.
MOST_KEPT = 1_000_000


def fit_model(
    data: Data,
    *,
    sigma: Any = "cv",
    kernel: str = "linear",
    scale: bool = True,
    folds: int = 5,
    max_classes: int | None = None,
    classifier: str | None = None,
    **options: Any,
) -> Model:
    """Fit a model to a table.

    Parameters
    ----------
    data : gaussguru._tables.schema.Data
        Its values may be changed by the fit, which holds no second copy of them.
    sigma : float, list of float or "cv", default="cv"
        Of "guru": the noise level, levels to choose from by cross-validation, or "cv": the library's levels.
    kernel : str, default="linear"
        Of "guru": "linear" is :class:`GuruClassifier`, others :class:`KernelGuruClassifier`, without error bars. Of
        "error-bars" that of :class:`ErrorBarClassifier`: "linear", "rbf" or "auto".
    scale : bool, default=True
        Of "guru": whether to scale features to standard deviation 1, and to mean 0 unless they are sparse; ``sigma`` is
        then in these units.
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
    kind, classes, y = _encode_labels(data, max_classes)
    if classifier is None:
        classifier = "error-bars" if data.layout.errors else "guru"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if classifier == "error-bars":
            chosen = {"kernel": kernel, **for_codes(options, classes)}
            steps, found, fit, more = _fit_error_bars(data, classes, y, folds, chosen)
        else:
            chosen = {"sigma": sigma, "kernel": kernel, "scale": scale, "folds": folds}
            steps, found, fit, more = _fit_guru(data, classes, y, for_codes(options, classes), **chosen)
    found.classes_ = classes
    found.set_params(**{name: value for name, value in options.items() if name == "class_weight"})
    card = {
        "data": {"name": data.name, "rows": data.n_rows, "rows_used": len(y)},
        "layout": asdict(data.layout),
        "labels": kind,
        "classes": classes.tolist(),
        "classifier": type(found).__name__,
        "parameters": {name: value for name, value in found.get_params(deep=False).items() if _is_plain(value)},
        "fit": fit | {"warnings": messages_of(caught)},
    }
    return Model(Pipeline([*steps, ("classify", found)]), card | more)


def _fit_guru(
    data: Data,
    classes: NDArray[Any],
    y: NDArray[np.intp],
    options: dict[str, Any],
    *,
    sigma: Any,
    kernel: str,
    scale: bool,
    folds: int,
) -> tuple[list[tuple[str, Any]], Any, dict[str, Any], dict[str, Any]]:
    """Return steps, the classifier, how its fit went, and what else the card says."""
    check_no_limits(data.name, data.layout)
    steps, samples = _prepare(data, scale)
    folds = _fold_count(classes, y, folds, "give --sigma a number") if isinstance(sigma, str | list | tuple) else 0
    classifier, scores = _fit_classifier(samples, y, sigma, kernel, folds, options)
    fit = {
        "sigma": float(classifier.sigma),
        **_proof(classifier, len(y)),
        "training_accuracy": float(np.mean(classifier.predict(samples) == y)),
        "cv_accuracy": None if scores is None else scores["accuracy"][scores["best"]],
    }
    more: dict[str, Any] = {"scaled": scale, "spread": 1.0 if scale else mean_spread(split_errors(samples)[0])}
    if scores is not None:
        more["cross_validation"] = {name: scores[name] for name in ("sigmas", "accuracy", "folds")}
    return steps, classifier, fit, more


def check_no_limits(table: str, layout: Layout) -> None:
    """Raise if there are limits: the classifiers of noise yet to come do not take them."""
    if layout.limits:
        name = quoted(layout.error_columns[-1])
        raise TableError(
            f"{table}: limits (column {name}) are for fits with --classifier error-bars; leave them out with "
            f"--drop {name}"
        )


def _proof(classifier: Any, n_rows: int) -> dict[str, Any]:
    """Return how near to its optimum a fit is, and whether that is proven; a probit is no convex problem."""
    gap = getattr(classifier, "dual_gap_", None)
    return {
        "objective": float(classifier.objective_),
        "gap": None if gap is None else float(gap),
        "relative_gap": None if gap is None else float(gap) / (n_rows * (len(classifier.classes_) - 1)),
        "certified": gap is not None and bool(classifier.converged_),
        "converged": bool(classifier.converged_),
        "iterations": int(classifier.n_iter_),
    }


def _fit_error_bars(
    data: Data, classes: NDArray[Any], y: NDArray[np.intp], folds: int, options: dict[str, Any]
) -> tuple[list[tuple[str, Any]], Any, dict[str, Any], dict[str, Any]]:
    """Return steps, the classifier of measurements, how its fit went, and what else the card says."""
    if sp.issparse(data.X):
        raise TableError(f"{data.name}: --classifier error-bars is not for libsvm; --classifier guru is")
    n, d = data.X.shape
    check_features(data.name, d)
    steps, samples = _prepare(data, scale=None)
    folds = _fold_count(classes, y, folds, "leave that class out")
    found = ErrorBarClassifier(cv=folds, random_state=0, **options)
    if n * d * d > MOST_NUMBERS:  # posteriors are made in parts, and not kept
        values, X_err = split_errors(samples)
        found.fit(Arrays(values.to_numpy()), y, X_err=X_err)
        found.feature_names_in_ = np.asarray(data.layout.features, dtype=object)
    else:
        found.fit(samples, y)
    accuracy = float(np.mean(found.predict(samples) == y))
    return steps, found, *describe_error_bars(found, classes, len(y), accuracy, data.layout.features, folds)


def check_features(table: str, d: int) -> None:
    """Raise if there are too many features for the classifier of measurements."""
    if d > MOST_FEATURES:
        raise TableError(
            f"{table}: {d} features are too many for --classifier error-bars, with a covariance for each row; at most "
            f"{MOST_FEATURES}. Choose some with --features, or give --classifier guru"
        )


def describe_error_bars(
    found: ErrorBarClassifier, classes: NDArray[Any], n_rows: int, accuracy: float, features: list[str], folds: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how a fit to label numbers went, and what else the card says; its labels are the classes from now on."""
    pvalue = float(found.kappa_pvalue_)
    fit = {
        "kernel": found.kernel_,
        "transform": "none" if found.transform_ is None else "quantile",
        "gamma": found.gamma_,
        "method": found.method_,
        "sigma": found.sigma_,
        "ridge": found.ridge_,
        **_proof(found.estimator_, n_rows),
        "training_accuracy": accuracy,
        "cv_log_loss": float(found.cv_scores_["log_loss"].min()),
        "kappa": float(found.kappa_),
        "kappa_pvalue": None if math.isnan(pvalue) else pvalue,
    }
    for inner in (found.estimator_, found._calibrated, found._calibrated.estimator_, found._calibrated.estimator):
        inner.classes_ = classes
    more = {
        "scaled": True,
        "spread": 1.0,
        "reliability": dict(zip(features, found.reliability_.tolist(), strict=True)),
        "cross_validation": {name: _listed(part) for name, part in found.cv_scores_.items()} | {"folds": folds},
    }
    return fit, more


def _prepare(data: Data, scale: bool | None) -> tuple[list[tuple[str, Any]], Any]:
    """Return the fitted steps before the classifier, and what they make of the data.

    With None for the scale the classifier scales by itself, and knows what to do with errors.
    """
    if not sp.issparse(data.X):
        unknown = np.isnan(data.X.to_numpy())
        if data.X_err is not None:
            unknown |= np.isinf(deviations(data.X_err))
        for place in np.flatnonzero(unknown.all(axis=0))[:1]:
            name = quoted(data.layout.features[place])
            raise TableError(f"{data.name}: column {name} has no value in any row; leave it out with --drop {name}")
    steps: list[tuple[str, Any]] = []
    samples: Any = data.X if data.X_err is None else Measured(data.X, data.X_err)
    sparse, scaler = sp.issparse(data.X), None
    if data.layout.missing == "mean" and not sparse:
        steps.append(("fill", SimpleImputer()))
    if data.layout.has_errors and scale is not None:
        steps.append(("scale", WithErrors(StandardScaler() if scale else None)))
    elif scale:
        scaler = StandardScaler(copy=False, with_mean=not sparse)
        steps.append(("scale", scaler))
    for _, step in steps:
        samples = step.fit_transform(samples)
    if scaler is not None:
        scaler.set_params(copy=True)  # who uses the model from Python would not expect X to change
    return steps, samples


def messages_of(caught: list[warnings.WarningMessage]) -> list[str]:
    """Return what warnings say, each once."""
    return list(dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught))


def path_table(
    data: Data,
    sigmas: int | list[float],
    *,
    scale: bool = True,
    folds: int = 5,
    max_classes: int | None = None,
    **options: Any,
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return linear classifiers of a table along a path of noise levels.

    Parameters
    ----------
    data : gaussguru._tables.schema.Data
        Its values may be changed.
    sigmas : int or list of float
        How many levels, or which.
    scale, folds, max_classes
        As in :func:`fit_model`; without folds there is no cross-validation.
    **options
        Parameters of the classifier.

    Returns
    -------
    columns : dict
        "sigma", "norm", "training_accuracy", "cv_accuracy" (with folds) and "gap", the largest sigma first.
    warnings : list of str
    """
    _, classes, y = _encode_labels(data, max_classes)
    check_no_limits(data.name, data.layout)
    options = for_codes(options, classes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, samples = _prepare(data, scale)
        X, X_err = split_errors(samples)
        found = (
            GuruClassifierCV(sigmas, cv=_fold_count(classes, y, folds, "give --folds 0"), **options).fit(samples, y)
            if folds
            else None
        )
        grid: dict[str, Any] = {"n_sigmas": sigmas} if isinstance(sigmas, int) else {"sigmas": sigmas}
        grid = grid if found is None else {"sigmas": found.sigmas_}
        levels, coefs, intercepts, gaps = sigma_path(X, y, X_err=X_err, **grid, **options)
    values = X if sp.issparse(X) else np.asarray(X)
    accuracy = [
        float(np.mean(winners(values @ coef.T + intercept) == y))
        for coef, intercept in zip(coefs, intercepts, strict=True)
    ]
    columns = {
        "sigma": levels.tolist(),
        "norm": np.sqrt(np.square(coefs).sum(axis=(1, 2))).tolist(),
        "training_accuracy": accuracy,
        "cv_accuracy": [] if found is None else found.scores_.mean(axis=1).tolist(),
        "gap": gaps.tolist(),
    }
    return {name: column for name, column in columns.items() if column}, messages_of(caught)


def _encode_labels(data: Data, max_classes: int | None) -> tuple[str, NDArray[Any], NDArray[np.intp]]:
    """Return the kind of the labels of a table, the classes, and which of them each row has.

    An array of the labels would take as much for every row as the longest needs.
    """
    codes, texts = pd.factorize(pd.Series(data.y, dtype=object))
    kind, classes, places = classes_of(data.name, list(texts), data.layout, len(codes), max_classes)
    return kind, classes, places[codes]


def classes_of(
    name: str, texts: list[str], layout: Layout, n_rows: int, max_classes: int | None
) -> tuple[str, NDArray[Any], NDArray[np.intp]]:
    """Return the kind of the labels of a table, the classes, and which of them each text is."""
    target = f"{name}: " + ("the label" if layout.target is None else f"column {quoted(layout.target)}")
    try:
        kind, values = label_values(texts)
    except TableError as error:
        raise TableError(f"{target}: {error}") from None
    if len(texts) < 2:
        raise TableError(f"{target} has one class, {quoted(texts[0])}, in all rows; two or more are expected")
    if len(texts) > (max_classes or max(FEW_CLASSES, n_rows // ROWS_PER_CLASS)):
        raise TableError(
            f"{target} has {len(texts)} classes in {n_rows} rows; is it the target? --max-classes allows for more"
        )
    classes, places = np.unique(np.array([values[text] for text in texts]), return_inverse=True)
    return kind, classes, places


def for_codes(options: dict[str, Any], classes: NDArray[Any]) -> dict[str, Any]:
    """Return parameters of a classifier that is given the places of labels among the classes."""
    weights = options.get("class_weight")
    if not isinstance(weights, dict):
        return options
    places = {label: place for place, label in enumerate(classes.tolist())}
    unknown = [label for label in weights if label not in places]
    if unknown:
        raise ValueError(f"class_weight has keys {unknown!r} that are not among the classes {classes.tolist()!r}")
    return {**options, "class_weight": {places[label]: weight for label, weight in weights.items()}}


def _fold_count(classes: NDArray[Any], y: NDArray[np.intp], folds: int, advice: str) -> int:
    """Return the number of folds, at most that of the rows of the rarest class."""
    counts = np.bincount(y, minlength=len(classes))
    if counts.min() < 2:
        rare = classes[np.argmin(counts)].item()
        raise TableError(f"class {rare!r} has one row, too few for cross-validation; {advice}")
    if folds < 2:
        raise TableError(f"--folds must be at least 2; got {folds}")
    return int(min(folds, counts.min()))


def _fit_classifier(
    samples: Any, y: NDArray[Any], sigma: Any, kernel: str, folds: int, options: dict[str, Any]
) -> tuple[Any, dict[str, Any] | None]:
    """Return a fitted classifier, and what cross-validation said of each sigma."""
    if kernel == "linear":
        if not folds:
            return GuruClassifier(sigma, **options).fit(samples, y), None
        found = GuruClassifierCV(20 if sigma == "cv" else sigma, cv=folds, **options).fit(samples, y)
        accuracy = found.scores_.mean(axis=1)
        best = int(np.flatnonzero(found.sigmas_ == found.sigma_)[0])
        return found, {"sigmas": found.sigmas_.tolist(), "accuracy": accuracy.tolist(), "best": best, "folds": folds}
    if not folds:
        return KernelGuruClassifier(sigma, kernel=kernel, **options).fit(samples, y), None
    if sigma == "cv" and kernel not in UNIT_KERNELS:
        raise TableError(
            f"--sigma cv has no levels for --kernel {kernel}, whose space has a unit of its own; give a number, or "
            "levels to choose from: --sigma 0.1,0.3,1"
        )
    levels = sorted(KERNEL_SIGMAS if sigma == "cv" else sigma, reverse=True)  # of equals the largest wins
    search = GridSearchCV(
        KernelGuruClassifier(kernel=kernel, **options), {"sigma": levels}, cv=folds, error_score="raise"
    ).fit(samples, y)
    accuracy = search.cv_results_["mean_test_score"]
    return search.best_estimator_, {
        "sigmas": levels, "accuracy": accuracy.tolist(), "best": int(search.best_index_), "folds": folds
    }  # fmt: skip


def _listed(values: NDArray[Any]) -> list[Any]:
    """Return values as JSON has them: None where there is no number."""
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values.tolist()]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def evaluate_model(
    model: Model, parts: Iterable[tuple[Any, Any, NDArray[Any]]], noise_levels: Iterable[float] | None = None
) -> dict[str, Any]:
    """Return what a model is worth on a table, read part by part.

    Parameters
    ----------
    model : Model
    parts : iterable of (X, X_err, y)
    noise_levels : iterable of float, default=None
        Standard deviations of noise that is added to every feature as the classifier sees it, so in the units of
        sigma, whatever the error bars are; None is 0, 0.05, 0.1, 0.2, 0.5 and 1 times the spread of the features. Of a
        model with calibrated probabilities and error bars: what error bars are multiplied by, 1 or more, with as much
        noise added; None is 1, 1.5, 2 and 3.

    Returns
    -------
    dict
        "rows"; "accuracy"; "log_loss" and "brier_score" (as in scikit-learn: of two classes the square of an error, of
        more the sum over classes); "expected_accuracy"; and "robustness": "noise_level", "accuracy" and its standard
        "error", in closed form, or for kernels and error bars by sampling.

        Calibrated probabilities count error bars and the overlap of the classes, and the accuracy expected is the mean
        of those of the predicted labels; with error bars there is also "reliability", which compares that with what
        came true (:class:`gaussguru.report.reliability.Reliability`), and "log_loss" at each noise level. Other
        probabilities are those of the noise of the model and the error bars of the table, and the accuracy expected is
        that under these error bars, or without any under the noise of the model (None where a kernel has no
        probabilities).
    """
    judged = (_Calibrated if model.is_calibrated else _UnderNoise)(model, noise_levels)
    n_rows = 0
    for X, X_err, y in parts:
        if len(y):
            judged.add(X, X_err, y, n_rows)
            n_rows += len(y)
    if not n_rows:
        raise TableError("there is no row to evaluate")
    means = [None if math.isnan(mean) else mean for mean in (judged.sums / n_rows).tolist()]
    names = ("accuracy", "log_loss", "brier_score", "expected_accuracy")
    return {"rows": n_rows, **dict(zip(names, means, strict=True)), **judged.rest(n_rows)}


class _UnderNoise:
    """Sums over rows, of a model that knows what noise does."""

    def __init__(self, model: Model, noise_levels: Iterable[float] | None) -> None:
        self.model = model
        spread = model.card["spread"]
        self.levels = np.array([level * spread for level in NOISE_LEVELS] if noise_levels is None else noise_levels)
        self.method = "analytic" if model.is_linear else "sampling"
        self.sums, self.accuracy, self.errors = np.zeros(4), np.zeros(len(self.levels)), list[Array]()

    def add(self, X: Any, X_err: Any, y: NDArray[Any], first: int) -> None:
        """Add some rows, the first of which is of this number."""
        model, n = self.model, len(y)
        samples = model.seen(X, X_err)
        self.sums += n * np.array(self._scores(samples, y))
        values, bars = split_errors(samples)
        if has_unmeasured(bars):
            values, _ = fill_unmeasured(model.classifier, values, bars)
        part = robustness_curve(
            model.classifier, values, y, self.levels, method=self.method, random_state=first % 2**31
        )
        self.accuracy += n * part.accuracy
        self.errors.append(n * part.error)

    def _scores(self, samples: Any, y: NDArray[Any]) -> tuple[float, float, float, float]:
        """Return accuracy, log loss, Brier score and expected accuracy, NaN where there is none."""
        classifier = self.model.classifier
        accuracy = float(np.mean(classifier.predict(samples) == y))
        if self.model.is_linear:
            probabilities = np.asarray(class_probabilities(classifier, samples))
            return (
                accuracy,
                *proper_scores(probabilities, _places(classifier, y)),
                expected_accuracy(classifier, samples, y),
            )
        if len(classifier.classes_) > 2:
            return accuracy, math.nan, math.nan, math.nan
        probabilities, places = classifier.predict_proba(samples), _places(classifier, y)
        own = probabilities[np.arange(len(y)), places]
        return accuracy, *proper_scores(probabilities, places), float(own.mean())

    def rest(self, n_rows: int) -> dict[str, Any]:
        """Return what is known beside the sums."""
        # Errors of sampling are independent from part to part; those of a quadrature may have the same sign in all.
        error = np.linalg.norm(self.errors, ord=1 if self.model.is_linear else 2, axis=0) / n_rows
        curve = {"noise_level": self.levels.tolist(), "accuracy": (self.accuracy / n_rows).tolist()}
        return {"robustness": {**curve, "error": error.tolist(), "method": self.method}}


def _places(classifier: Any, y: NDArray[Any]) -> NDArray[np.intp]:
    return np.searchsorted(classifier.classes_, y)


class _Calibrated:
    """Sums over rows, of a model with calibrated probabilities."""

    def __init__(self, model: Model, noise_levels: Iterable[float] | None) -> None:
        self.model = model
        self.has_errors = model.layout.has_errors
        usual = ERROR_LEVELS if self.has_errors else NOISE_LEVELS
        self.levels = check_levels(list(usual if noise_levels is None else noise_levels))
        if self.has_errors and self.levels.min() < 1:
            raise TableError(
                f"--noise-levels of this model are multiples of its errors, 1 or more; got {self.levels.min():g}"
            )
        self.sums, self.curve = np.zeros(4), np.zeros((2, len(self.levels)))
        self.kept, self.stride = list[Array](), 1

    def add(self, X: Any, X_err: Any, y: NDArray[Any], first: int) -> None:
        """Add some rows, the first of which is of this number."""
        samples, places = self.model.seen(X, X_err), _places(self.model.classifier, y)
        probabilities = self.model.classifier.predict_proba(samples)
        best, n = np.argmax(probabilities, axis=1), len(y)
        own, right = probabilities[np.arange(n), best], best == places
        self.sums += n * np.array([right.mean(), *proper_scores(probabilities, places), own.mean()])
        if self.has_errors:
            self._keep(np.stack([error_sizes(self.model.classifier, samples), own, right]), first)
        rng = np.random.default_rng(first)
        if self.has_errors:
            self.curve += n * np.array(larger_error_scores(self.model.estimator, X, X_err, y, self.levels, rng))
            return
        spreads = getattr(self.model.classifier, "_spreads", 1.0)
        for k, level in enumerate(self.levels):
            noisy = samples + level * spreads * rng.standard_normal(samples.shape)
            probabilities = self.model.classifier.predict_proba(noisy)
            accuracy = np.mean(np.argmax(probabilities, axis=1) == places)
            self.curve[:, k] += n * np.array([accuracy, proper_scores(probabilities, places)[0]])

    def _keep(self, columns: Array, first: int) -> None:
        """Keep some numbers of some rows, evenly spread over all."""
        self.kept.append(columns[:, -first % self.stride :: self.stride])
        while sum(part.shape[1] for part in self.kept) > MOST_KEPT:
            # The rows that are kept have numbers that are multiples of the stride.
            self.kept = [np.concatenate(self.kept, axis=1)[:, ::2]]
            self.stride *= 2

    def rest(self, n_rows: int) -> dict[str, Any]:
        """Return what is known beside the sums."""
        accuracy, log_loss = self.curve / n_rows
        # At most: of noise that is drawn once, and of a share of all rows.
        error = np.where(self.levels > (1 if self.has_errors else 0), np.sqrt(accuracy * (1 - accuracy) / n_rows), 0.0)
        curve = {
            "noise_level": self.levels.tolist(),
            "accuracy": accuracy.tolist(),
            "log_loss": log_loss.tolist(),
            "error": error.tolist(),
            "method": "sampling",
        }
        if not self.has_errors:
            return {"robustness": curve}
        sizes, own, right = np.concatenate(self.kept, axis=1)
        return {"reliability": by_error_size(sizes, own, right == 1)._asdict(), "robustness": curve}
