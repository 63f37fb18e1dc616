"""Models of tables: fitted with everything that their predictions need, saved without pickle.

A model file is a zip archive of skops with one more entry, ``gaussguru.json``: the card of the model, which says what
it was fitted to and how, and which versions can read it. Loading creates objects of known types only.
"""

import io
import json
import platform
import sys
import zipfile
from dataclasses import dataclass
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
from sklearn.pipeline import Pipeline

import gaussguru
from gaussguru.errors import Measured
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.layouts import MISSING, Layout, label_value
from gaussguru.linear import GuruClassifier
from gaussguru.robustness import (
    certified_radius,
    class_probabilities,
    flip_probability,
)
from gaussguru.tables import TableError, writing

__all__ = ["FORMAT", "TRUSTED", "Model", "ModelError", "load_model", "save_model"]

# Of a model file; raised when something that was written before can no longer be read.
FORMAT = 1
CARD = "gaussguru.json"
# Of labels, and of the arrays that hold them.
KINDS = {"number": "i", "bool": "b", "text": "U"}
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


class ModelError(TableError):
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
    fresh = {
        "format": FORMAT,
        "versions": _versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),  # by the clock of this machine
    }
    card = fresh | model.card | fresh  # the first say where they stand, the last what they are
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
        "-" is standard input.

    Returns
    -------
    Model
    """
    name = "standard input" if path == "-" else path
    try:
        archive = io.BytesIO(sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes())
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        with zipfile.ZipFile(archive) as file:
            card = json.loads(file.read(CARD))
        newer = _newer(card)
    except Exception:  # whatever is in a file of another kind, or damaged
        raise ModelError(f"{name} is no model of gaussguru; expected is a file of `gaussguru fit`") from None
    if newer:
        raise ModelError(f"{name} was written by {newer}; install that version or newer, or fit again")
    try:
        layout = _checked_layout(card)
        unknown = sorted(set(skops.io.get_untrusted_types(file=archive)) - set(TRUSTED))
        if unknown:
            raise ModelError(
                f"{name} is not trusted: it holds objects of type {', '.join(unknown)}, which no model has"
            )
        estimator = skops.io.load(archive, trusted=TRUSTED)
        known = isinstance(estimator, Pipeline) and isinstance(estimator[-1], GuruClassifier | KernelGuruClassifier)
        fits = known and estimator.n_features_in_ == len(layout.features)
        fits = fits and estimator.classes_.dtype.kind == KINDS[card["labels"]]
    except ModelError:
        raise
    except Exception as error:  # or forged
        raise ModelError(f"{name} is damaged: {type(error).__name__}, {error}") from None
    if not fits:
        raise ModelError(f"{name} is damaged: it holds no classifier of the features and labels of its card")
    return Model(estimator, card)


def _checked_layout(card: dict[str, Any]) -> Layout:
    """Return the layout of a card that has everything that predictions and evaluations ask it for, or raise."""
    layout = Layout(**card["layout"])
    names = [*layout.features, *layout.errors, layout.err_suffix, layout.target or ""]
    if (
        not all(isinstance(name, str) for name in names)
        or not set(layout.errors) <= set(layout.features)
        or layout.missing not in MISSING
        or card["labels"] not in KINDS
        or not 0 < float(card["spread"]) < np.inf
    ):
        raise ValueError("its card says what cannot be")
    return layout


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
