"""Models of tables: fitted with everything that their predictions need, saved without pickle.

A model file is a zip archive of skops with one more entry, ``gaussguru.json``: the card of the model, which says what
it was fitted to and how, and which versions can read it (:mod:`gaussguru._tables.archive`). Loading creates objects
of known types only, and a model that is loaded has all that predictions need: what is damaged or forged is refused
then.
"""

import platform
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

try:
    import pandas as pd
    import pyarrow  # noqa: F401  the readers of tables need it
    import skops
except ModuleNotFoundError as error:
    install = "pip install 'gaussguru[cli]' (in a checkout: pip install '.[cli]')"
    raise ModuleNotFoundError(f"model files need {error.name}: {install}", name=error.name) from error

import gaussguru
from gaussguru._blocks import rows_at_once
from gaussguru._columns import Bar
from gaussguru._errors import Limits as LimitErrors
from gaussguru._errors import measured
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._tables.archive import TRUSTED, Archive, ModelError, pack
from gaussguru._tables.files import Limits, TableError, quoted, writing
from gaussguru._tables.model_checks import check_estimator
from gaussguru._tables.schema import Layout, label_value
from gaussguru.calibration import ByProbability
from gaussguru.population import Deconvolve
from gaussguru.robustness import certified_radius, class_probabilities, remeasure_gain

__all__ = ["FORMAT", "TRUSTED", "Model", "ModelError", "load_model", "read_model", "save_model"]

# Of a model file; raised when something that was written before can no longer be read.
FORMAT = 4
# Of labels, and of the arrays that hold them.
KINDS = {"number": "iuf", "bool": "b", "text": "UO"}


@dataclass(frozen=True)
class Model:
    """A classifier of tables.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator of this library, or a pipeline of these and of scalers. X has the features of the layout, in
        its order. Of a transformer there are no predictions.
    card : dict
        What is known of the model: format and versions, date, data (name, hash, rows), layout, classes, parameters,
        and how the fit went.

    Examples
    --------
    >>> from gaussguru.models import read_model
    >>> model = read_model("stars.model")  # doctest: +SKIP
    >>> model.card["classes"]  # doctest: +SKIP
    ['pulsating', 'steady']
    """

    estimator: Any
    card: dict[str, Any]

    @property
    def layout(self) -> Layout:
        """Which columns of a table the model needs."""
        return Layout(**self.card["layout"])

    @property
    def classifier(self) -> Any:
        """The last step."""
        return self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator

    @property
    def is_linear(self) -> bool:
        """Whether there are flip probabilities and radii: not for kernels, nor where errors decide with the values."""
        return isinstance(self.classifier, GuruClassifier)

    @property
    def is_calibrated(self) -> bool:
        """Whether probabilities account for the overlap of the classes as well as for the noise."""
        return isinstance(self.classifier, ByProbability)

    @property
    def rows_together(self) -> int:
        """How many rows can be predicted at a time, so that what a prediction makes of them takes some 100 MB."""
        n_classes, n_features = len(self.classifier.classes_), len(self.layout.features)
        width = n_classes if self.is_linear else max(n_classes, n_features)
        if self.is_calibrated:  # covariances of scores, for each component of a population
            population = getattr(self.classifier, "population_", None)
            width = max(width, n_classes**2 * getattr(population, "n_components_", 1))
        return rows_at_once(width)

    def named(self, X: Any) -> Any:
        """Return X without names of features if the fit had none."""
        return X if sp.issparse(X) or hasattr(self.estimator, "feature_names_in_") else np.asarray(X)

    def seen(self, X: Any, X_err: Any = None) -> Any:
        """Return samples as the classifier sees them: scaled, filled in, with their errors."""
        samples = measured(self.named(X), X_err)
        for _, step in self.estimator.steps[:-1] if isinstance(self.estimator, Pipeline) else ():
            samples = step.transform(samples)
        return samples

    def column_names(self, *, each: bool = False, remeasure: bool = False) -> list[str]:
        """Return the names of the columns of a prediction."""
        classes = self.classifier.classes_.tolist()
        names = ["label"]
        if self.is_calibrated:
            names += ["probability", *(f"probability_{label}" for label in classes)]
            return [*names, "remeasure_gain"] if remeasure else names
        if self.is_linear or (len(classes) == 2 and hasattr(self.classifier, "predict_proba")):
            names += ["probability", "flip_probability"] + ["radius"] * self.is_linear
            names += [f"probability_{label}" for label in classes] if each else []
        return names

    def predict(
        self, X: Any, X_err: Any = None, *, each: bool = False, remeasure: float | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of a prediction.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n_samples, n_features)
        X_err : error bars of X, default=None
        each : bool, default=False
            Whether to return the probability of every class, where it is not returned anyway.
        remeasure : float, default=None
            The error bars of another measurement, in units of those of now, between 0 and 1; for a model with
            calibrated probabilities.

        Returns
        -------
        dict from name to ndarray of shape (n_samples,)
            "label"; "probability", of this label.

            With calibrated probabilities, which count error bars and the overlap of the classes: those of every class,
            and with ``remeasure`` "remeasure_gain", how much less often the label is wrong once all values are measured
            again (:func:`gaussguru.robustness.remeasure_gain`). What was not measured stays so.

            Else "probability" is that of noise leaving this label (:func:`gaussguru.robustness.class_probabilities`);
            "flip_probability", that it does not; "radius", the smallest displacement that changes it, in the units of
            sigma: standard deviations of the features where they are scaled. A kernel has no radius, and probabilities
            only for two classes.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            columns = self._columns(X, X_err, each=each, remeasure=remeasure)
        wrong = np.isnan(np.stack([np.zeros(X.shape[0]), *list(columns.values())[1:]])).any(axis=0)
        if wrong.any():
            row = X[wrong][:1]
            values = np.abs(row.toarray() if sp.issparse(row) else np.asarray(row))[0]
            name = self.layout.features[int(np.argmax(values))]
            raise TableError(
                f"a prediction is no number: the value {values.max():g} of {quoted(name)}, or its error, is too large "
                "for this model"
            )
        return columns

    def _columns(self, X: Any, X_err: Any, *, each: bool, remeasure: float | None) -> dict[str, NDArray[Any]]:
        samples, classes = self.seen(X, X_err), self.classifier.classes_
        names = self.column_names(each=each, remeasure=remeasure is not None)
        if self.is_calibrated:
            probabilities = self.classifier.predict_proba(samples)
            best = np.argmax(probabilities, axis=1)
            columns = [classes[best], probabilities[np.arange(len(best)), best], *probabilities.T]
            columns += [] if remeasure is None else [self.gain(X, X_err, remeasure)]
            return dict(zip(names, columns, strict=True))
        if remeasure is not None:
            raise TableError("--remeasure needs a model with calibrated probabilities, fitted to error columns")
        labels = self.classifier.predict(samples)
        rows, own = np.arange(len(labels)), np.searchsorted(classes, labels)
        columns = [labels]
        if self.is_linear:
            probabilities = np.asarray(class_probabilities(self.classifier, samples))
            others = probabilities.copy()
            others[rows, own] = 0.0
            flips = np.minimum(others.sum(axis=1), 1.0)  # flip_probability would compute them again
            columns += [probabilities[rows, own], flips, certified_radius(self.classifier, samples)]
        elif len(names) > 1:
            probabilities = self.classifier.predict_proba(samples)
            columns += [probabilities[rows, own], probabilities[rows, 1 - own]]
        columns += list(probabilities.T) if len(names) > len(columns) else []
        return dict(zip(names, columns, strict=True))

    def gain(self, X: Any, X_err: Any, factor: float) -> NDArray[Any]:
        """Return the expected drop in the error probability if everything is measured again with smaller errors."""
        if X_err is None:
            raise TableError("--remeasure needs a model that was fitted to error columns")
        return remeasure_gain(self.estimator, self.named(X), X_err, shrunk_errors(X_err, factor))

    def labels(self, texts: Any, table: str) -> NDArray[Any]:
        """Return labels as the classifier has them, from their texts in a table of this name."""
        known = {value: value for value in self.classifier.classes_.tolist()}
        values = {}
        for text in pd.unique(pd.Series(texts, dtype=object)):
            try:
                values[text] = known[label_value(text, self.card["labels"])]
            except (ValueError, KeyError):
                names = ", ".join(map(str, list(known)[:8])) + (", ..." if len(known) > 8 else "")
                raise TableError(f"{table}: the label {quoted(text)} is none of the model's, {names}") from None
        return np.array([values[text] for text in texts], dtype=self.classifier.classes_.dtype)


def shrunk_errors(X_err: Any, factor: float) -> NDArray[Any]:
    """Return the error bars of a better measurement; what was not measured stays so.

    Parameters
    ----------
    X_err : array of standard deviations
    factor : float
        Between 0 and 1.

    Returns
    -------
    ndarray
    """
    if not 0 <= factor <= 1:
        raise TableError(f"--remeasure must be between 0 and 1, in units of the errors of now; got {factor:g}")
    if isinstance(X_err, LimitErrors):
        raise TableError("--remeasure is not for tables with limits: what a reading of them would say is not known")
    errors = np.asarray(X_err, dtype=np.float64)
    return np.where(np.isinf(errors), np.inf, factor * np.where(np.isinf(errors), 0.0, errors))


def save_model(model: Any, path: str, *, force: bool = False) -> None:
    """Save a model.

    The file is loaded, from memory, before it is written: what :func:`load_model` would refuse is refused now.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator of this library, or a pipeline of such and of scalers of scikit-learn; its features are named as
        in the fit, or x0, x1, .... A classifier of a user in the pool of
        :class:`ErrorBarClassifier` may be one of this library, a ``LogisticRegression``, a
        ``HistGradientBoostingClassifier``, a forest or a ``DecisionTreeClassifier``. Any other is refused by its name.
    path : str
        "-" is standard output.
    force : bool, default=False
        Whether a file that exists is replaced. It stays as it is until the new one is complete.
    """
    model = model if isinstance(model, Model) else Model(model, {})
    try:
        check_is_fitted(model.estimator)
        content = _packed(model)
        _loaded(Archive(content, Limits(unpacked=len(content))))
    except NotFittedError:
        raise
    except Exception as error:
        why = " ".join(str(error).removeprefix("the model is ").split())
        raise ModelError(
            f"the {type(model.estimator).__name__} cannot be saved: {why[:500]}. A model file holds estimators of this "
            "library and what it can check without running their code; pickle or joblib keep any other, for files that "
            "only you load"
        ) from error
    with writing(path, force=force) as out:
        out.write(content)


def _packed(model: Model) -> bytes:
    """Return the file of a model, with a complete card."""
    fresh = {
        "format": FORMAT,
        "versions": _versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),  # by the clock of this machine
    }
    # The first say where they stand, the last what they are.
    return pack(model.estimator, fresh | _described(model.estimator) | model.card | fresh)


def _described(estimator: Any) -> dict[str, Any]:
    """Return the card of an estimator of which no more is known."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    classes = np.asarray(getattr(last, "classes_", []))
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    names = names or [f"x{j}" for j in range(int(estimator.n_features_in_))]
    has_errors = any(getattr(step, "has_errors_", isinstance(step, Deconvolve)) for step in steps)
    errors = {name: Bar("sigma", [f"{name}_err"]) for name in names if has_errors}
    layout = Layout(names, errors, missing="unmeasured" if has_errors else "error", target="label")
    kinds = [kind for kind, letters in KINDS.items() if classes.dtype.kind in letters]
    return {
        "layout": layout.as_json(),
        "labels": kinds[0] if len(classes) and kinds else "text",
        "classes": classes.tolist(),
        "classifier": type(last).__name__,
        "parameters": {name: value for name, value in last.get_params(deep=False).items() if is_plain(value)},
        "scaled": None,  # nor is the spread of the features known
        "spread": 1.0,
    }


def is_plain(value: Any) -> bool:
    """Return whether JSON has a value as it is."""
    return value is None or isinstance(value, str | int | float | bool)


def _versions() -> dict[str, str]:
    return {
        "gaussguru": gaussguru.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "skops": skops.__version__,
        "python": platform.python_version(),
    }


def load_model(path: str, *, limits: Limits | None = None) -> Any:
    """Load an estimator that :func:`save_model` wrote, or that the command fitted.

    It is checked as by :func:`read_model`, which has its card, too.

    Parameters
    ----------
    path : str
        "-" is standard input.
    limits : gaussguru._tables.files.Limits, default=None
        How much the file may unpack to; None is ``Limits()``.

    Returns
    -------
    estimator
        Fitted, with the predictions of the one that was saved.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from gaussguru import PopulationClassifier
    >>> from gaussguru.models import load_model, save_model
    >>> X, y = np.array([[0.0], [0.2], [2.0], [2.3]]), [0, 0, 1, 1]
    >>> model = PopulationClassifier(1).fit(X, y, X_err=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/model")
    ...     loaded = load_model(f"{folder}/model")
    >>> bool((loaded.predict_proba(X, X_err=0.1) == model.predict_proba(X, X_err=0.1)).all())
    True
    """
    return read_model(path, limits=limits).estimator


def read_model(path: str, *, limits: Limits | None = None) -> Model:
    """Load a model that :func:`save_model` wrote, with its card.

    Nothing but objects of known types is created (:data:`gaussguru._tables.archive.TRUSTED`). A file with others, of
    another format, or of a newer gaussguru or scikit-learn is refused, and so is one that cannot predict.

    Parameters
    ----------
    path : str
        "-" is standard input.
    limits : gaussguru._tables.files.Limits, default=None
        How much the file may unpack to; None is ``Limits()``.

    Returns
    -------
    Model
    """
    return _loaded(Archive(path, limits or Limits()))


def _loaded(archive: Archive) -> Model:
    """Return the model of an archive, checked."""
    name, card = archive.name, archive.card
    try:
        newer, is_old = _newer(card), card["format"] < FORMAT
        older = f"gaussguru {card['versions']['gaussguru'][:40]} in format {card['format']}" if is_old else ""
    except Exception:
        raise ModelError(f"{name} is no model of gaussguru; expected is a file of `gaussguru fit`") from None
    if older:
        raise ModelError(f"{name} was written by {older[:100]}, and this one reads {FORMAT}; fit again")
    if newer:
        raise ModelError(f"{name} was written by {newer}; install that version or newer, or fit again")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _check_card(card)
            model = Model(archive.load(), card)
            check_estimator(model.estimator, model.layout.features, card["classes"], KINDS[card["labels"]])
            _try(model)
        except (ModelError, MemoryError):
            raise
        except Exception as error:  # or forged
            what = "" if type(error) is ValueError else f"{type(error).__name__}, "
            raise ModelError(f"{name} is damaged: {what}{' '.join(str(error)[:300].split())}") from None
    for warning in caught:
        warnings.warn(warning.message, stacklevel=3)
    return model


def _check_card(card: dict[str, Any]) -> None:
    """Raise unless a card has everything that predictions and evaluations ask it for."""
    layout = Layout(**card["layout"])
    layout.check()
    if (
        not isinstance(layout.target, str | None)
        or card["labels"] not in KINDS
        or not isinstance(card["spread"], int | float)
        or not 0 < card["spread"] < np.inf
    ):
        raise ValueError("its card says what cannot be")


def _try(model: Model) -> None:
    """Raise unless a model can predict: samples of zeros, and without a value if it knows what to do then."""
    layout = model.layout
    d = len(layout.features)
    X: Any = sp.csr_matrix((2, d)) if layout.target is None else pd.DataFrame(np.zeros((2, d)), columns=layout.features)
    X_err = np.zeros((2, d)) if layout.has_errors else None
    if X_err is not None:
        X_err[1] = np.inf if layout.missing == "unmeasured" else 1.0
    if layout.missing == "mean":
        X.iloc[1] = np.nan
    if model.card["classes"]:
        model.predict(X, X_err, each=True)
    else:
        model.classifier.transform(model.seen(X, X_err))


def _newer(card: dict[str, Any]) -> str:
    """Return what a model needs that is newer than what is here."""
    if card["format"] > FORMAT:
        version, format = (str(part)[:40] for part in (card["versions"]["gaussguru"], card["format"]))
        return f"gaussguru {version} in format {format}, and this one reads {FORMAT}"
    here = _versions()
    for name in ("gaussguru", "scikit-learn"):
        there = card["versions"][name]
        if _minor(there) > _minor(here[name]):
            return f"{name} {there[:40]}, and here is {here[name]}"
    return ""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])
