"""Files of models, without pickle.

A model file is a zip archive of skops with one more entry, ``gaussguru.json``: the card of the model, with the data and
the settings of its fit, and the versions that can read it (:mod:`gaussguru._tables.archive`). Loading creates objects
of known types only, and checks everything that predictions need: a damaged or forged file is refused.
"""

import platform
import warnings
from datetime import UTC, datetime
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn
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
from gaussguru._errors.columns import Bar
from gaussguru._measured.calibrated import CalibratedWithErrorsCV
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._tables.archive import Archive, ModelError, pack
from gaussguru._tables.contents import FileLimits
from gaussguru._tables.files import writing
from gaussguru._tables.layout import Layout
from gaussguru._tables.model import Model, is_plain
from gaussguru._tables.model_checks import check_estimator, encoded
from gaussguru._utils.types import Estimator, Record

__all__ = ["Model", "ModelError", "load_model", "read_model", "save_model"]

# The format of model files; raised when an older file can no longer be read.
FORMAT = 4
# Kinds of labels, and of the dtypes that hold them.
KINDS = {"number": "iuf", "bool": "b", "text": "UO"}


def save_model(model: Any, path: str, *, force: bool = False) -> None:
    """Save a model.

    The packed model is loaded from memory before the file is written: a model that :func:`load_model` would refuse is
    refused here.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator of this library, or a pipeline of these and of scalers of scikit-learn, also as branches of a
        ``ColumnTransformer`` beside ``OneHotEncoder`` and ``OrdinalEncoder``; its features are named as in the fit, or
        x0, x1, .... A classifier of a user in the pool of
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
        _loaded(Archive(content, FileLimits(unpacked=len(content))))
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
    created = datetime.now(UTC).isoformat(timespec="seconds")  # by the clock of this machine
    fresh = {"format": FORMAT, "versions": _versions(), "created": created}
    # ``fresh`` comes first for the order of the entries, and last for their values.
    return pack(model.estimator, fresh | _described(model.estimator) | model.card | fresh)


def _described(estimator: Estimator) -> Record:
    """Return the card of an estimator alone, without the data and scaling of its fit."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    classes = np.asarray(getattr(last, "classes_", []))
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    names = names or [f"x{j}" for j in range(int(estimator.n_features_in_))]
    has_errors = any(getattr(step, "has_errors_", isinstance(step, Deconvolve)) for step in _steps(estimator))
    exact = {names[j] for j in _encoded(estimator)}
    errors = {name: Bar("sigma", [f"{name}_err"]) for name in names if has_errors and name not in exact}
    missing = "unmeasured" if has_errors and _knows_population(estimator) else "error"
    layout = Layout(names, errors, missing=missing, target="label")
    kinds = [kind for kind, letters in KINDS.items() if classes.dtype.kind in letters]
    return {
        "layout": layout.as_json(),
        "labels": kinds[0] if len(classes) and kinds else "text",
        "classes": classes.tolist(),
        "classifier": type(last).__name__,
        "parameters": {name: value for name, value in last.get_params(deep=False).items() if is_plain(value)},
        "scaled": None,  # neither scaling nor spreads of the features are known
        "spread": 1.0,
        "encoded": sorted(exact),
    }


def _steps(estimator: Estimator) -> list[Estimator]:
    """Return the steps of a pipeline, or the estimator."""
    return [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]


def _knows_population(estimator: Estimator) -> bool:
    """Return whether a step of an estimator fills in values that were not measured."""
    return any(
        getattr(step, "population_", None) is not None
        or hasattr(step, "populations_")
        or (isinstance(step, CalibratedWithErrorsCV) and _knows_population(step.estimator_))
        for step in _steps(estimator)
    )


def _encoded(estimator: Estimator) -> dict[int, Any]:
    """Return a category of each feature that the first step takes for categories, by number."""
    return encoded(estimator[0] if isinstance(estimator, Pipeline) else estimator)


def _versions() -> dict[str, str]:
    return {
        "gaussguru": gaussguru.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "skops": skops.__version__,
        "python": platform.python_version(),
    }


def load_model(path: str, *, limits: FileLimits | None = None) -> Estimator:
    """Load an estimator that :func:`save_model` wrote, or that the command fitted.

    It is checked as by :func:`read_model`, which has its card, too.

    Parameters
    ----------
    path : str
        "-" is standard input.
    limits : gaussguru._tables.files.FileLimits, default=None
        How much the file may unpack to; None is ``FileLimits()``.

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


def read_model(path: str, *, limits: FileLimits | None = None) -> Model:
    """Load a model that :func:`save_model` wrote, with its card.

    Nothing but objects of known types is created (:data:`gaussguru._tables.archive.TRUSTED`). A file with others, of
    another format, or of a newer gaussguru or scikit-learn is refused, and so is one that cannot predict.

    Parameters
    ----------
    path : str
        "-" is standard input.
    limits : gaussguru._tables.files.FileLimits, default=None
        How much the file may unpack to; None is ``FileLimits()``.

    Returns
    -------
    Model
    """
    return _loaded(Archive(path, limits or FileLimits()))


def _loaded(archive: Archive) -> Model:
    """Return the model of an archive, checked."""
    name, card = archive.name, archive.card
    try:
        newer, older = _newer(card), ""
        if card["format"] < FORMAT:
            older = f"gaussguru {card['versions']['gaussguru'][:40]} in format {card['format']}"
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
            kind = "" if type(error) is ValueError else f"{type(error).__name__}, "
            raise ModelError(f"{name} is damaged: {kind}{' '.join(str(error)[:300].split())}") from None
    for warning in caught:
        warnings.warn(warning.message, stacklevel=3)
    return model


def _check_card(card: Record) -> None:
    """Raise unless a card has all entries that predictions and evaluations read."""
    layout = Layout(**card["layout"])
    layout.check()
    if (
        not all(isinstance(name, str | None) for name in (layout.target, layout.weights, layout.groups))
        or card["labels"] not in KINDS
        or not isinstance(card["spread"], int | float)
        or not 0 < card["spread"] < np.inf
    ):
        raise ValueError("its card says what cannot be")


def _try(model: Model) -> None:
    """Raise unless a model can predict a sample of zeros, and one of missing values if its layout allows these."""
    layout = model.layout
    d = len(layout.features)
    levels = _encoded(model.estimator)
    X: Any = sp.csr_matrix((2, d)) if layout.target is None else pd.DataFrame(np.zeros((2, d)), columns=layout.features)
    X_err = np.zeros((2, d)) if layout.has_errors else None
    if X_err is not None:
        X_err[1] = np.inf if layout.missing == "unmeasured" else 1.0
        X_err[:, [*levels]] = 0.0
    for j, level in levels.items():
        X.isetitem(j, [level, level])
    if layout.missing == "mean":
        X.iloc[1] = np.nan
    if model.card["classes"]:
        model.predict(X, X_err, each=True)
    else:
        model.classifier.transform(model.seen(X, X_err))


def _newer(card: Record) -> str:
    """Return the format or version of a card that is newer than the installed one, as text; "" if none is."""
    if card["format"] > FORMAT:
        version, format = (str(part)[:40] for part in (card["versions"]["gaussguru"], card["format"]))
        return f"gaussguru {version} in format {format}, and this one reads {FORMAT}"
    installed = _versions()
    for name in ("gaussguru", "scikit-learn"):
        needed = card["versions"][name]
        if _minor(needed) > _minor(installed[name]):
            return f"{name} {needed[:40]}, and here is {installed[name]}"
    return ""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])
