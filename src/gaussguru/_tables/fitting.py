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

from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.kernel import KernelGuruClassifier
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.path import sigma_path
from gaussguru._tables.files import TableError, quoted
from gaussguru._tables.schema import Data, label_values
from gaussguru.errors import Measured, has_unmeasured, mean_spread, split_errors
from gaussguru.models import Model
from gaussguru.preprocessing import WithErrors
from gaussguru.probabilities import winners
from gaussguru.robustness import expected_accuracy, fill_unmeasured, log_loss_scorer, robustness_curve

__all__ = ["evaluate_model", "fit_model", "path_table"]

# Levels to choose from where samples have length 1 in the space of the kernel.
KERNEL_SIGMAS = tuple(np.geomspace(0.3, 0.001, 8).tolist())
UNIT_KERNELS = ("rbf", "laplacian", "cosine")
# A table may have so many classes, or one for so many of its rows: a target of more is an identifier, or a number that
# was measured, and the joint problem of all pairs of its classes takes hours.
FEW_CLASSES, ROWS_PER_CLASS = 20, 10
# Noise levels of an evaluation, in units of the spread of the features.
NOISE_LEVELS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


def fit_model(
    data: Data,
    *,
    sigma: Any = "cv",
    kernel: str = "linear",
    scale: bool = True,
    folds: int = 5,
    max_classes: int | None = None,
    **options: Any,
) -> Model:
    """Fit a model to a table.

    Parameters
    ----------
    data : gaussguru._tables.schema.Data
        Its values may be changed by the fit, which holds no second copy of them.
    sigma : float, list of float or "cv", default="cv"
        The noise level, levels to choose from by cross-validation, or "cv": the library's levels.
    kernel : str, default="linear"
        "linear" is :class:`GuruClassifier`, others :class:`KernelGuruClassifier`, without error bars.
    scale : bool, default=True
        Whether to scale features to standard deviation 1, and to mean 0 unless they are sparse; ``sigma`` is then in
        these units.
    folds : int, default=5
        Of the cross-validation; fewer where a class has fewer rows. Features are scaled, and filled in, before the rows
        are divided: the units of ``sigma`` are the same in all folds, and a held-out part has had its share in them.
    max_classes : int, default=None
        The most classes that are learnt; None is 20, or a tenth of the rows if that is more.
    **options
        Parameters of the classifier.

    Returns
    -------
    Model
        Versions and date are added to its card by :func:`gaussguru.models.save_model`.
    """
    kind, classes, y = _encode_labels(data, max_classes)
    layout = data.layout
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps, samples = _prepare(data, scale)
        folds = _fold_count(classes, y, folds) if isinstance(sigma, str | list | tuple) else 0
        classifier, scores = _fit_classifier(samples, y, sigma, kernel, folds, _for_codes(options, classes))
    weight = len(y) * (len(classifier.classes_) - 1)
    fit = {
        "sigma": float(classifier.sigma),
        "objective": float(classifier.objective_),
        "gap": float(classifier.dual_gap_),
        "relative_gap": float(classifier.dual_gap_) / weight,
        "certified": bool(classifier.converged_),
        "iterations": int(classifier.n_iter_),
        "training_accuracy": float(np.mean(classifier.predict(samples) == y)),
        "cv_accuracy": None if scores is None else scores["accuracy"][scores["best"]],
        "warnings": _messages(caught),
    }
    classifier.classes_ = classes
    classifier.set_params(**{name: value for name, value in options.items() if name == "class_weight"})
    card = {
        "data": {"name": data.name, "rows": data.n_rows, "rows_used": len(y)},
        "layout": asdict(layout),
        "labels": kind,
        "classes": classifier.classes_.tolist(),
        "scaled": scale,
        "spread": 1.0 if scale else mean_spread(split_errors(samples)[0]),
        "classifier": type(classifier).__name__,
        "parameters": {name: value for name, value in classifier.get_params().items() if _is_plain(value)},
        "fit": fit,
    }
    if scores is not None:
        card["cross_validation"] = {
            "sigmas": scores["sigmas"],
            "accuracy": scores["accuracy"],
            "folds": scores["folds"],
        }
    return Model(Pipeline([*steps, ("classify", classifier)]), card)


def _prepare(data: Data, scale: bool) -> tuple[list[tuple[str, Any]], Any]:
    """Return the fitted steps before the classifier, and what they make of the data."""
    if not sp.issparse(data.X):
        unknown = np.isnan(data.X.to_numpy())
        if data.X_err is not None:
            unknown |= np.isinf(data.X_err)
        for place in np.flatnonzero(unknown.all(axis=0))[:1]:
            name = quoted(data.layout.features[place])
            raise TableError(f"{data.name}: column {name} has no value in any row; leave it out with --drop {name}")
    steps: list[tuple[str, Any]] = []
    samples: Any = data.X if data.X_err is None else Measured(data.X, data.X_err)
    sparse, scaler = sp.issparse(data.X), None
    if data.layout.missing == "mean" and not sparse:
        steps.append(("fill", SimpleImputer()))
    if data.layout.has_errors:
        steps.append(("scale", WithErrors(StandardScaler() if scale else None)))
    elif scale:
        scaler = StandardScaler(copy=False, with_mean=not sparse)
        steps.append(("scale", scaler))
    for _, step in steps:
        samples = step.fit_transform(samples)
    if scaler is not None:
        scaler.set_params(copy=True)  # who uses the model from Python would not expect X to change
    return steps, samples


def _messages(caught: list[warnings.WarningMessage]) -> list[str]:
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
    options = _for_codes(options, classes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, samples = _prepare(data, scale)
        X, X_err = split_errors(samples)
        found = (
            GuruClassifierCV(sigmas, cv=_fold_count(classes, y, folds), **options).fit(samples, y) if folds else None
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
    return {name: column for name, column in columns.items() if column}, _messages(caught)


def _encode_labels(data: Data, max_classes: int | None) -> tuple[str, NDArray[Any], NDArray[np.intp]]:
    """Return the kind of the labels of a table, the classes, and which of them each row has.

    An array of the labels would take as much for every row as the longest needs.
    """
    codes, texts = pd.factorize(pd.Series(data.y, dtype=object))
    target = f"{data.name}: " + ("the label" if data.layout.target is None else f"column {quoted(data.layout.target)}")
    try:
        kind, values = label_values(texts)
    except TableError as error:
        raise TableError(f"{target}: {error}") from None
    if len(texts) < 2:
        raise TableError(f"{target} has one class, {quoted(texts[0])}, in all rows; two or more are expected")
    if len(texts) > (max_classes or max(FEW_CLASSES, len(codes) // ROWS_PER_CLASS)):
        raise TableError(
            f"{target} has {len(texts)} classes in {len(codes)} rows; is it the target? --max-classes allows for more"
        )
    classes, places = np.unique(np.array(list(values.values())), return_inverse=True)
    return kind, classes, places[codes]


def _for_codes(options: dict[str, Any], classes: NDArray[Any]) -> dict[str, Any]:
    """Return parameters of a classifier that is given the places of labels among the classes."""
    weights = options.get("class_weight")
    if not isinstance(weights, dict):
        return options
    places = {label: place for place, label in enumerate(classes.tolist())}
    unknown = [label for label in weights if label not in places]
    if unknown:
        raise ValueError(f"class_weight has keys {unknown!r} that are not among the classes {classes.tolist()!r}")
    return {**options, "class_weight": {places[label]: weight for label, weight in weights.items()}}


def _fold_count(classes: NDArray[Any], y: NDArray[np.intp], folds: int) -> int:
    """Return the number of folds, at most that of the rows of the rarest class."""
    counts = np.bincount(y, minlength=len(classes))
    if counts.min() < 2:
        rare = classes[np.argmin(counts)].item()
        raise TableError(f"class {rare!r} has one row, too few for cross-validation; give --sigma a number")
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
        sigma, whatever the error bars are; None is 0, 0.05, 0.1, 0.2, 0.5 and 1 times the spread of the features.

    Returns
    -------
    dict
        "rows"; "accuracy"; "log_loss", under the noise of the model and the error bars of the table;
        "expected_accuracy" under these error bars, or without any under the noise of the model (both None where a
        kernel has no probabilities); and "robustness": "noise_level", "accuracy" and its standard "error", in closed
        form or for kernels by sampling.
    """
    levels = np.array(
        [level * model.card["spread"] for level in NOISE_LEVELS] if noise_levels is None else noise_levels
    )
    method = "analytic" if model.is_linear else "sampling"
    n_rows, sums, accuracy, errors = 0, np.zeros(3), np.zeros(len(levels)), []
    for X, X_err, y in parts:
        if not len(y):
            continue
        samples, n = model.seen(X, X_err), len(y)
        sums += n * np.array(_scores(model, samples, y))
        values, bars = split_errors(samples)
        if has_unmeasured(bars):
            values, _ = fill_unmeasured(model.classifier, values, bars)
        part = robustness_curve(model.classifier, values, y, levels, method=method, random_state=n_rows % 2**31)
        accuracy += n * part.accuracy
        errors.append(n * part.error)
        n_rows += n
    if not n_rows:
        raise TableError("there is no row to evaluate")
    # Errors of sampling are independent from part to part; those of a quadrature may have the same sign in all.
    error = np.linalg.norm(errors, ord=1 if model.is_linear else 2, axis=0) / n_rows
    means = [None if math.isnan(mean) else mean for mean in (sums / n_rows).tolist()]
    curve = {"noise_level": levels.tolist(), "accuracy": (accuracy / n_rows).tolist(), "error": error.tolist()}
    return {
        "rows": n_rows,
        **dict(zip(("accuracy", "log_loss", "expected_accuracy"), means, strict=True)),
        "robustness": {**curve, "method": method},
    }


def _scores(model: Model, samples: Any, y: NDArray[Any]) -> tuple[float, float, float]:
    """Return accuracy, log loss and expected accuracy, NaN where there is none."""
    classifier = model.classifier
    accuracy = float(np.mean(classifier.predict(samples) == y))
    if model.is_linear:
        return accuracy, -log_loss_scorer.score(classifier, samples, y), expected_accuracy(classifier, samples, y)
    if len(classifier.classes_) > 2:
        return accuracy, math.nan, math.nan
    own = classifier.predict_proba(samples)[np.arange(len(y)), np.searchsorted(classifier.classes_, y)]
    return accuracy, float(-np.log(np.clip(own, np.finfo(np.float64).eps, 1.0)).mean()), float(own.mean())
