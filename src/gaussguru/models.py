"""Models of tables: fitted with everything that their predictions need, saved without pickle.

A model file is a zip archive of skops with one more entry, ``gaussguru.json``: the card of the model, which says what
it was fitted to and how, and which versions can read it. Loading creates objects of known types only.
"""

import io
import json
import math
import platform
import warnings
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy
import scipy.sparse as sp
import sklearn
import skops.io
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import gaussguru
from gaussguru.errors import Measured, Population, split_errors
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.layouts import Data, Layout, label_value, label_values
from gaussguru.linear import GuruClassifier
from gaussguru.model_selection import GuruClassifierCV, sigma_path
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import (
    certified_radius,
    class_probabilities,
    expected_accuracy,
    flip_probability,
    log_loss_scorer,
    robustness_curve,
)
from gaussguru.tables import TableError, writing

__all__ = [
    "FORMAT",
    "TRUSTED",
    "Model",
    "ModelError",
    "evaluate_model",
    "fit_model",
    "load_model",
    "path_table",
    "save_model",
]

# Of a model file; raised when something that was written before can no longer be read.
FORMAT = 1
CARD = "gaussguru.json"
# What may be in a model file beside the types that skops trusts anyway.
TRUSTED = [
    "gaussguru.errors.Population",
    "gaussguru.gram.Kernel",
    "gaussguru.kernel.KernelGuruClassifier",
    "gaussguru.linear.GuruClassifier",
    "gaussguru.losses.Gaussian",
    "gaussguru.losses.Logistic",
    "gaussguru.losses.Quadratic",
    "gaussguru.model_selection.GuruClassifierCV",
    "gaussguru.noise.Axis",
    "gaussguru.noise.Covariance",
    "gaussguru.noise.Isotropic",
    "gaussguru.noise.PerFeature",
    "gaussguru.noise.Shape",
    "gaussguru.preprocessing.AffineMap",
    "gaussguru.preprocessing.WithErrors",
    "gaussguru.solvers.sgd.State",
    "numpy.dtype",
    *(f"{kind.__module__}.{kind.__name__}" for kind in (sp.csr_array, sp.csr_matrix)),
]
# Levels to choose from where samples have length 1 in the space of the kernel.
KERNEL_SIGMAS = tuple(np.geomspace(0.3, 0.001, 8).tolist())
UNIT_KERNELS = ("rbf", "laplacian", "cosine")
# Noise levels of an evaluation, in units of the spread of the features.
NOISE_LEVELS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


class ModelError(ValueError):
    """Why a file cannot be used as a model, in one line."""


@dataclass(frozen=True)
class Model:
    """A classifier of tables.

    Parameters
    ----------
    estimator : Pipeline
        Fitted steps; the last is a :class:`GuruClassifier`, :class:`GuruClassifierCV` or
        :class:`KernelGuruClassifier`. X has the features of the layout, in its order.
    card : dict
        What is known of the model: format and versions, date, data (name, hash, rows), layout, classes, parameters,
        and how the fit went.
    """

    estimator: Pipeline
    card: dict[str, Any]

    @property
    def layout(self) -> Layout:
        """Which columns of a table the model needs."""
        return Layout(**self.card["layout"])

    @property
    def classifier(self) -> Any:
        """The last step."""
        return self.estimator[-1]

    @property
    def is_linear(self) -> bool:
        """Whether there are flip probabilities and radii; not for kernels."""
        return isinstance(self.classifier, GuruClassifier)

    def seen(self, X: Any, X_err: Any = None) -> Any:
        """Return samples as the classifier sees them: scaled, filled in, with their errors."""
        samples = X if X_err is None else Measured(X, X_err)
        for _, step in self.estimator.steps[:-1]:
            samples = step.transform(samples)
        return samples

    def column_names(self, *, each: bool = False) -> list[str]:
        """Return the names of the columns of a prediction."""
        classes = self.classifier.classes_.tolist()
        names = ["label"]
        if self.is_linear or len(classes) == 2:
            names += ["probability", "flip_probability"] + ["radius"] * self.is_linear
            names += [f"probability_{label}" for label in classes] if each else []
        return names

    def predict(self, X: Any, X_err: Any = None, *, each: bool = False) -> dict[str, NDArray[Any]]:
        """Return the columns of a prediction.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n_samples, n_features)
        X_err : error bars of X, default=None
        each : bool, default=False
            Whether to return the probability of every class.

        Returns
        -------
        dict from name to ndarray of shape (n_samples,)
            "label"; "probability", that noise leaves this label (:func:`gaussguru.robustness.class_probabilities`);
            "flip_probability", that it does not; "radius", the smallest displacement that changes it, in the units of
            sigma: standard deviations of the features where they are scaled. A kernel has no radius, and probabilities
            only for two classes.
        """
        samples, classes = self.seen(X, X_err), self.classifier.classes_
        labels = self.classifier.predict(samples)
        rows, own = np.arange(len(labels)), np.searchsorted(classes, labels)
        columns = [labels]
        if self.is_linear:
            probabilities = np.asarray(class_probabilities(self.classifier, samples))
            flips = flip_probability(self.classifier, samples)
            columns += [probabilities[rows, own], flips, certified_radius(self.classifier, samples)]
        elif len(classes) == 2:
            probabilities = self.classifier.predict_proba(samples)
            columns += [probabilities[rows, own], probabilities[rows, 1 - own]]
        names = self.column_names(each=each)
        columns += list(probabilities.T) if len(names) > len(columns) else []
        return dict(zip(names, columns, strict=True))

    def labels(self, texts: Any, table: str) -> NDArray[Any]:
        """Return labels as the classifier has them, from their texts in a table of this name."""
        known = {value: value for value in self.classifier.classes_.tolist()}
        values = {}
        for text in pd.unique(pd.Series(texts, dtype=object)):
            try:
                values[text] = known[label_value(text, self.card["labels"])]
            except (ValueError, KeyError):
                names = ", ".join(map(str, list(known)[:8])) + (", ..." if len(known) > 8 else "")
                raise TableError(f"{table}: the label {text!r} is none of the model's, {names}") from None
        return np.array([values[text] for text in texts], dtype=self.classifier.classes_.dtype)


def fit_model(
    data: Data,
    *,
    sigma: Any = "cv",
    kernel: str = "linear",
    scale: bool = True,
    folds: int = 5,
    **options: Any,
) -> Model:
    """Fit a model to a table.

    Parameters
    ----------
    data : gaussguru.layouts.Data
        Its values may be changed by the fit, which holds no second copy of them.
    sigma : float, list of float or "cv", default="cv"
        The noise level, levels to choose from by cross-validation, or "cv": the library's levels.
    kernel : str, default="linear"
        "linear" is :class:`GuruClassifier`, others :class:`KernelGuruClassifier`, without error bars.
    scale : bool, default=True
        Whether to scale features to standard deviation 1, and to mean 0 unless they are sparse; ``sigma`` is then in
        these units.
    folds : int, default=5
        Of the cross-validation; fewer where a class has fewer rows.
    **options
        Parameters of the classifier.

    Returns
    -------
    Model
        Its card has no versions, date and data yet: :func:`save_model` adds the first two.
    """
    kind, y = _encode_labels(data)
    layout = data.layout
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps, samples = _prepare(data, scale)
        classifier, scores = _fit_classifier(samples, y, sigma, kernel, folds if _needs_folds(sigma) else 0, options)
    weight = len(y) * (len(classifier.classes_) - 1)
    fit = {
        "sigma": float(classifier.sigma),
        "objective": float(classifier.objective_),
        "gap": float(classifier.dual_gap_),
        "relative_gap": float(classifier.dual_gap_) / weight,
        "certified": bool(classifier.dual_gap_ <= classifier.tol * weight * (1 + 1e-9)),
        "iterations": int(classifier.n_iter_),
        "training_accuracy": float(np.mean(classifier.predict(samples) == y)),
        "cv_accuracy": None if scores is None else scores["accuracy"][scores["best"]],
        "warnings": _messages(caught),
    }
    card = {
        "data": {"name": data.name, "rows": data.n_rows, "rows_used": len(y)},
        "layout": asdict(layout),
        "labels": kind,
        "classes": classifier.classes_.tolist(),
        "scaled": scale,
        "spread": 1.0 if scale else _spread(samples),
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
    data: Data, sigmas: int | list[float], *, scale: bool = True, folds: int = 5, **options: Any
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return linear classifiers of a table along a path of noise levels.

    Parameters
    ----------
    data : gaussguru.layouts.Data
        Its values may be changed.
    sigmas : int or list of float
        How many levels, or which.
    scale, folds
        As in :func:`fit_model`; without folds there is no cross-validation.
    **options
        Parameters of the classifier.

    Returns
    -------
    columns : dict
        "sigma", "norm", "training_accuracy", "cv_accuracy" (with folds) and "gap", the largest sigma first.
    warnings : list of str
    """
    _, y = _encode_labels(data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, samples = _prepare(data, scale)
        X, X_err = split_errors(samples)
        found = GuruClassifierCV(sigmas, cv=_fold_count(y, folds), **options).fit(samples, y) if folds else None
        grid: dict[str, Any] = {"n_sigmas": sigmas} if isinstance(sigmas, int) else {"sigmas": sigmas}
        grid = grid if found is None else {"sigmas": found.sigmas_}
        levels, coefs, intercepts, gaps = sigma_path(X, y, X_err=X_err, **grid, **options)
    classes, values = np.unique(y), X if sp.issparse(X) else np.asarray(X)
    accuracy = []
    for coef, intercept in zip(coefs, intercepts, strict=True):
        scores = values @ coef.T + intercept
        best = (scores[:, 0] > 0).astype(np.intp) if len(coef) == 1 else scores.argmax(axis=1)
        accuracy.append(float(np.mean(classes[best] == y)))
    columns = {
        "sigma": levels.tolist(),
        "norm": np.sqrt(np.square(coefs).sum(axis=(1, 2))).tolist(),
        "training_accuracy": accuracy,
        "cv_accuracy": [] if found is None else found.scores_.mean(axis=1).tolist(),
        "gap": gaps.tolist(),
    }
    return {name: column for name, column in columns.items() if column}, _messages(caught)


def _needs_folds(sigma: Any) -> bool:
    return isinstance(sigma, str | list | tuple)


def _encode_labels(data: Data) -> tuple[str, NDArray[Any]]:
    """Return the kind of the labels of a table, and the labels; raise unless they can be learnt."""
    texts = pd.Series(data.y, dtype=object)
    counts = texts.value_counts()
    target = f"{data.name}: " + ("the label" if data.layout.target is None else f"column {data.layout.target!r}")
    try:
        kind, values = label_values(counts.index)
    except TableError as error:
        raise TableError(f"{target}: {error}") from None
    if len(counts) < 2:
        raise TableError(f"{target} has one class, {counts.index[0]!r}, in all rows; two or more are expected")
    if len(counts) > max(20, len(texts) / 2):
        raise TableError(f"{target} has {len(counts)} classes in {len(texts)} rows; is it the target?")
    return kind, np.array(texts.map(values).tolist())


def _fold_count(labels: NDArray[Any], folds: int) -> int:
    """Return the number of folds, at most that of the rows of the rarest class."""
    classes, counts = np.unique(labels, return_counts=True)
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
    folds = _fold_count(y, folds) if folds else 0
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


def _spread(samples: Any) -> float:
    """Return the root of the mean variance of the features."""
    X, _ = split_errors(samples)
    if sp.issparse(X):
        variances = np.asarray(X.multiply(X).mean(axis=0)) - np.square(np.asarray(X.mean(axis=0)))
    else:
        variances = np.square(Population.of(np.asarray(X), None).spreads)
    return float(np.sqrt(np.mean(variances))) or 1.0


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
        sigma; None is 0, 0.05, 0.1, 0.2, 0.5 and 1 times the spread of the features.

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
        part = robustness_curve(model.classifier, samples, y, levels, method=method, random_state=n_rows % 2**31)
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


def save_model(model: Model, path: str, *, force: bool = False) -> None:
    """Save a model.

    Parameters
    ----------
    model : Model
    path : str
        "-" is standard output.
    force : bool, default=False
        Whether a file that exists is replaced. It stays as it is until the new one is complete.
    """
    card = {
        "format": FORMAT,
        "versions": _versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),  # by the clock of this machine
        **model.card,
    }
    archive = io.BytesIO(skops.io.dumps(model.estimator, compression=zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(CARD, json.dumps(card, indent=1))
    with writing(path, force=force) as out:
        out.write(archive.getbuffer())


def _versions() -> dict[str, str]:
    return {
        "gaussguru": gaussguru.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "skops": skops.__version__,
        "python": platform.python_version(),
    }


def load_model(path: str) -> Model:
    """Load a model that :func:`save_model` wrote.

    Nothing but objects of known types is created (:data:`TRUSTED`, and what skops trusts). A file with others, of a
    newer format, or of a newer gaussguru or scikit-learn is refused.

    Parameters
    ----------
    path : str

    Returns
    -------
    Model
    """
    try:
        archive = io.BytesIO(Path(path).read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        with zipfile.ZipFile(archive) as file:
            card = json.loads(file.read(CARD))
        newer, layout = _newer(card), Layout(**card["layout"])
    except Exception:  # whatever is in a file of another kind, or damaged
        raise ModelError(f"{path} is no model of gaussguru; expected is a file that `gaussguru fit` wrote") from None
    if newer:
        raise ModelError(f"{path} was written by {newer}; install that version or newer, or fit again")
    try:
        unknown = sorted(set(skops.io.get_untrusted_types(file=archive)) - set(TRUSTED))
        if unknown:
            raise ModelError(
                f"{path} is not trusted: it holds objects of type {', '.join(unknown)}, which no model has"
            )
        estimator = skops.io.load(archive, trusted=TRUSTED)
        known = isinstance(estimator, Pipeline) and isinstance(estimator[-1], GuruClassifier | KernelGuruClassifier)
        fits = known and estimator.n_features_in_ == len(layout.features)
    except ModelError:
        raise
    except Exception as error:  # or forged
        raise ModelError(f"{path} is damaged: {type(error).__name__}, {error}") from None
    if not fits:
        raise ModelError(
            f"{path} is damaged: it holds no classifier of the {len(layout.features)} features of its card"
        )
    return Model(estimator, card)


def _newer(card: dict[str, Any]) -> str:
    """Return what a model needs that is newer than what is here."""
    if card["format"] > FORMAT:
        return f"gaussguru {card['versions']['gaussguru']} in format {card['format']}, and this one reads {FORMAT}"
    here = _versions()
    for name in ("gaussguru", "scikit-learn"):
        there = card["versions"][name]
        if _minor(there) > _minor(here[name]):
            return f"{name} {there}, and here is {here[name]}"
    return ""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])
