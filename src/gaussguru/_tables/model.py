"""A fitted model with its card: the predictions for a table, as columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.pipeline import Pipeline

from gaussguru._errors.given import Limits
from gaussguru._errors.samples import measured
from gaussguru._guru.base import ByProbability
from gaussguru._guru.linear import GuruClassifier
from gaussguru._measured.remeasure import remeasure_gain
from gaussguru._measured.under_noise import certified_radius, class_probabilities
from gaussguru._tables.contents import TableError, quoted
from gaussguru._tables.layout import Layout
from gaussguru._tables.schema import label_value
from gaussguru._utils.blocks import rows_at_once
from gaussguru._utils.types import ErrorBars, Estimator, Labels, MixedArray, Record, Values


@dataclass(frozen=True)
class Model:
    """A classifier of tables.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator of this library, or a pipeline of these and of scalers. X has the features of the layout, in
        its order. A transformer makes no predictions.
    card : dict
        Facts about the model: format and versions, date, data (name, hash, rows), layout, classes, parameters,
        and how the fit went.

    Examples
    --------
    >>> from gaussguru.models import read_model
    >>> model = read_model("stars.model")  # doctest: +SKIP
    >>> model.card["classes"]  # doctest: +SKIP
    ['pulsating', 'steady']
    """

    estimator: Estimator
    card: Record

    @property
    def layout(self) -> Layout:
        """The columns of a table that the model needs."""
        return Layout(**self.card["layout"])

    @property
    def classifier(self) -> Estimator:
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
        """The number of rows that can be predicted at a time in some 100 MB of memory."""
        n_classes, n_features = len(self.classifier.classes_), len(self.layout.features)
        width = n_classes if self.is_linear else max(n_classes, n_features)
        if self.is_calibrated:  # covariances of scores for each component of the population
            population = getattr(self.classifier, "population_", None)
            width = max(width, n_classes**2 * getattr(population, "n_components_", 1))
        return rows_at_once(width)

    def named(self, X: Values) -> Values:
        """Return X without names of features if the fit had none."""
        return X if sp.issparse(X) or hasattr(self.estimator, "feature_names_in_") else np.asarray(X)

    def seen(self, X: Values, X_err: ErrorBars = None) -> Values:
        """Return the input of the classifier: samples scaled and filled in, with their errors."""
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
        self, X: Values, X_err: ErrorBars = None, *, each: bool = False, remeasure: float | None = None
    ) -> dict[str, MixedArray]:
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
            and with ``remeasure`` "remeasure_gain", the expected drop in the probability of a wrong label if all values
            are measured again (:func:`gaussguru.robustness.remeasure_gain`), NaN for rows with limits. Missing values
            stay missing.

            Else "probability" is that of noise leaving this label (:func:`gaussguru.robustness.class_probabilities`);
            "flip_probability", that it does not; "radius", the smallest displacement that changes it, in the units of
            sigma: standard deviations of the features where they are scaled. A kernel has no radius, and probabilities
            only for two classes.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            columns = self._columns(X, X_err, each=each, remeasure=remeasure)
        wrong = np.zeros(X.shape[0], dtype=bool)
        for name in [*columns][1:]:
            has_none = name == "remeasure_gain" and isinstance(X_err, Limits)  # rows with limits have no gain
            wrong |= np.isnan(columns[name]) & (~X_err.limits.any(axis=1) if has_none else True)
        if wrong.any():
            row = X[wrong][:1]
            values = np.abs(row.toarray() if sp.issparse(row) else np.asarray(row))[0]
            name = self.layout.features[int(np.argmax(values))]
            raise TableError(
                f"a prediction is no number: the value {values.max():g} of {quoted(name)}, or its error, is too large "
                "for this model"
            )
        return columns

    def _columns(self, X: Values, X_err: ErrorBars, *, each: bool, remeasure: float | None) -> dict[str, MixedArray]:
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
        rows, index = np.arange(len(labels)), np.searchsorted(classes, labels)
        columns = [labels]
        if self.is_linear:
            probabilities = np.asarray(class_probabilities(self.classifier, samples))
            others = probabilities.copy()
            others[rows, index] = 0.0
            flips = np.minimum(others.sum(axis=1), 1.0)  # flip_probability would compute them again
            columns += [probabilities[rows, index], flips, certified_radius(self.classifier, samples)]
        elif len(names) > 1:
            probabilities = self.classifier.predict_proba(samples)
            columns += [probabilities[rows, index], probabilities[rows, 1 - index]]
        columns += list(probabilities.T) if len(names) > len(columns) else []
        return dict(zip(names, columns, strict=True))

    def gain(self, X: Values, X_err: ErrorBars, factor: float) -> MixedArray:
        """Return the expected drop in the error probability if everything is measured again with smaller errors.

        NaN for rows with limits: the gain of measuring a limit again is not known.
        """
        if X_err is None:
            raise TableError("--remeasure needs a model that was fitted to error columns")
        if isinstance(X_err, Limits):
            measured, gains = ~X_err.limits.any(axis=1), np.full(len(X_err.limits), np.nan)
            if measured.any():
                gains[measured] = self.gain(X[measured], X_err.err[measured], factor)
            return gains
        return remeasure_gain(self.estimator, self.named(X), X_err, shrunk_errors(X_err, factor))

    def labels(self, texts: Labels, table: str) -> MixedArray:
        """Return labels in the type of ``classes_``, from their texts; ``table`` is the name of the file."""
        known = {value: value for value in self.classifier.classes_.tolist()}
        values = {}
        for text in pd.unique(pd.Series(texts, dtype=object)):
            try:
                values[text] = known[label_value(text, self.card["labels"])]
            except (ValueError, KeyError):
                names = ", ".join(map(str, list(known)[:8])) + (", ..." if len(known) > 8 else "")
                raise TableError(f"{table}: the label {quoted(text)} is none of the model's, {names}") from None
        return np.array([values[text] for text in texts], dtype=self.classifier.classes_.dtype)


def shrunk_errors(X_err: ErrorBars, factor: float) -> MixedArray:
    """Return the error bars of a better measurement; missing values stay missing.

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
    errors = np.asarray(X_err, dtype=np.float64)
    return np.where(np.isinf(errors), np.inf, factor * np.where(np.isinf(errors), 0.0, errors))


def is_plain(value: Any) -> bool:
    """Return whether JSON has a value as it is."""
    return value is None or isinstance(value, str | int | float | bool)
