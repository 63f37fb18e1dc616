"""Models of tables, judged: scores of predictions, part by part, beside those of the class frequencies."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussguru._errors import has_unmeasured, split_errors
from gaussguru._measured.under_noise import (
    check_levels,
    class_probabilities,
    expected_accuracy,
    fill_unmeasured,
    robustness_curve,
)
from gaussguru._tables.files import TableError
from gaussguru._tables.fitting import naming
from gaussguru._tables.model import Model
from gaussguru._utils.linalg import Array
from gaussguru.report.judgement import Judge, Judgement
from gaussguru.report.reliability import (
    Reliability,
    by_error_size,
    error_sizes,
    larger_error_scores,
    proper_scores,
)

__all__ = ["evaluate_model"]

# Noise levels of an evaluation, in units of the spread of the features; and of error bars, for models of these.
NOISE_LEVELS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
ERROR_LEVELS = (1.0, 1.5, 2.0, 3.0)
# Rows whose probabilities are compared with what came true; of more every second, fourth, ... is taken.
MOST_KEPT = 1_000_000


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
        "verdict", a sentence; "rows"; "accuracy", "balanced_accuracy", "log_loss", "brier_score" (as in scikit-learn:
        of two classes the square of an error, of more the sum over classes), "auc" (of more than two classes the mean
        over each against the rest); "expected_accuracy"; "baseline", the same scores of the frequencies of the classes
        among the rows; "classes", rows, frequency, recall and confusions of each; "most_wrong", the wrong labels with
        the least probability of the true class ("row" counts rows that were used from 0); and "robustness":
        "noise_level", "accuracy" and its standard "error", in closed form, or for kernels and error bars by sampling.

        Calibrated probabilities count error bars and the overlap of the classes, and the accuracy expected is the mean
        of those of the predicted labels; with error bars there is also "reliability", which compares that with what
        came true (:class:`gaussguru.report.reliability.Reliability`), and "log_loss" at each noise level. Other
        probabilities are those of the noise of the model and the error bars of the table, and the accuracy expected is
        that under these error bars, or without any under the noise of the model (None where a kernel has no
        probabilities).
    """
    knows_spread = model.card.get("scaled") is not None
    if model.is_calibrated:
        knows_spread |= model.layout.has_errors or hasattr(model.classifier, "_spreads")
    if noise_levels is None and not knows_spread:
        raise TableError("--noise-levels must be given: the model was saved without the spread of its features")
    with naming({"noise_levels": "--noise-levels"}):
        judged: _Calibrated | _UnderNoise = (_Calibrated if model.is_calibrated else _UnderNoise)(model, noise_levels)
        n_rows = 0
        for X, X_err, y in parts:
            if len(y):
                judged.add(X, X_err, y, n_rows)
                n_rows += len(y)
    if not n_rows:
        raise TableError("there is no row to evaluate")
    judgement, rest = judged.judge.result(), judged.rest(n_rows)
    groups = None if (found := rest.get("reliability")) is None else Reliability(**found)
    verdict = judgement.verdict(groups, calibrated=model.is_calibrated)
    scores = judgement.as_dict() | judged.expected(n_rows)
    return {"verdict": verdict, "rows": n_rows, **scores, **_most_wrong(judgement), **rest}


def _most_wrong(judgement: Judgement) -> dict[str, Any]:
    """Return the rows of the least probability of the true class, by their numbers among those that were used."""
    if judgement.worst is None or not len(judgement.worst.rows):
        return {}
    rows, true, predicted, probability = (part.tolist() for part in judgement.worst)
    names = judgement.classes
    labels = {"true": [names[c] for c in true], "predicted": [names[c] for c in predicted]}
    return {"most_wrong": {"row": rows, **labels, "probability_of_true": probability}}


class _UnderNoise:
    """Sums over rows, of a model that knows what noise does."""

    def __init__(self, model: Model, noise_levels: Iterable[float] | None) -> None:
        self.model = model
        spread = model.card["spread"]
        self.levels = np.array([level * spread for level in NOISE_LEVELS] if noise_levels is None else noise_levels)
        self.method = "analytic" if model.is_linear else "sampling"
        self.judge, self.total = Judge(model.classifier.classes_), 0.0
        self.accuracy, self.errors = np.zeros(len(self.levels)), list[Array]()

    def add(self, X: Any, X_err: Any, y: NDArray[Any], first: int) -> None:
        """Add some rows, the first of which is of this number."""
        model, n = self.model, len(y)
        samples = model.seen(X, X_err)
        self._judge(samples, y)
        values, bars = split_errors(samples)
        if has_unmeasured(bars):
            values, _ = fill_unmeasured(model.classifier, values, bars)
        part = robustness_curve(
            model.classifier, values, y, self.levels, method=self.method, random_state=first % 2**31
        )
        self.accuracy += n * part.accuracy
        self.errors.append(n * part.error)

    def _judge(self, samples: Any, y: NDArray[Any]) -> None:
        """Add probabilities under noise, if there are any, and the accuracy that they promise."""
        classifier, places = self.model.classifier, _places(self.model.classifier, y)
        predicted = _places(classifier, classifier.predict(samples))
        probabilities: Array | None = None
        if self.model.is_linear:
            probabilities = np.asarray(class_probabilities(classifier, samples))
            self.total += len(y) * expected_accuracy(classifier, samples, y)
        elif len(classifier.classes_) == 2:
            probabilities = np.asarray(classifier.predict_proba(samples))
            self.total += float(probabilities[np.arange(len(y)), places].sum())
        else:
            self.total = math.nan
        self.judge.add(probabilities, predicted, places)

    def expected(self, n_rows: int) -> dict[str, Any]:
        """Return the accuracy under the noise, None if a model has no probabilities."""
        return {"expected_accuracy": None if math.isnan(self.total) else self.total / n_rows}

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
        self.judge, self.curve = Judge(model.classifier.classes_), np.zeros((2, len(self.levels)))
        self.kept, self.stride = list[Array](), 1

    def add(self, X: Any, X_err: Any, y: NDArray[Any], first: int) -> None:
        """Add some rows, the first of which is of this number."""
        samples, places = self.model.seen(X, X_err), _places(self.model.classifier, y)
        probabilities = self.model.classifier.predict_proba(samples)
        best, n = np.argmax(probabilities, axis=1), len(y)
        own, right = probabilities[np.arange(n), best], best == places
        self.judge.add(probabilities, best, places)
        if self.has_errors:
            self._keep(np.stack([error_sizes(self.model.classifier, samples), own, right]), first)
        rng = np.random.default_rng(first)
        if self.has_errors:
            self.curve += n * np.array(
                larger_error_scores(self.model.estimator, self.model.named(X), X_err, y, self.levels, rng)
            )
            return
        spreads = getattr(self.model.classifier, "_spreads", 1.0)
        for k, level in enumerate(self.levels):
            noisy = samples + level * spreads * rng.standard_normal(samples.shape)
            probabilities = self.model.classifier.predict_proba(noisy)
            accuracy = np.mean(np.argmax(probabilities, axis=1) == places)
            self.curve[:, k] += n * np.array([accuracy, proper_scores(probabilities, places)[0]])

    def expected(self, n_rows: int) -> dict[str, Any]:
        """Return nothing: the mean probability of the predicted labels is the accuracy expected."""
        return {}

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
