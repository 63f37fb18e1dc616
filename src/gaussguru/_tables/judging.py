"""Models of tables, judged: scores of predictions, part by part, beside those of the class frequencies."""

import math
from collections.abc import Iterable

import numpy as np

from gaussguru._errors.missing import has_unmeasured
from gaussguru._errors.samples import split_errors
from gaussguru._measured import under_noise
from gaussguru._tables.contents import TableError
from gaussguru._tables.fitting import naming
from gaussguru._tables.model import Model
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import ErrorBars, MixedArray, Record, Values
from gaussguru.report.judgement import EvenSample, Judge
from gaussguru.report.reliability import Reliability, by_error_size, error_sizes, larger_error_scores, scores_of

# Noise levels of an evaluation, in units of the spread of the features.
NOISE_LEVELS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
# Rows whose probabilities are compared with what came true; of more every second, fourth, ... is taken.
MOST_KEPT = 1_000_000


def evaluate_model(
    model: Model, parts: Iterable[tuple[Values, ErrorBars, MixedArray]], noise_levels: Iterable[float] | None = None
) -> Record:
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
        judged = (_Calibrated if model.is_calibrated else _UnderNoise)(model, noise_levels)
        n_rows = 0
        for X, X_err, y in parts:
            if len(y):
                judged.add(X, X_err, y, n_rows)
                n_rows += len(y)
    if not n_rows:
        raise TableError("there is no row to evaluate")
    judgement, rest, names = judged.judge.result(), judged.rest(n_rows), judged.classifier.classes_.tolist()
    groups = None if (found := rest.get("reliability")) is None else Reliability(**found)
    verdict = judgement.verdict(groups, calibrated=model.is_calibrated)
    result = {"verdict": verdict, "rows": n_rows, **judgement.as_dict()}
    result["expected_accuracy"] = rest.pop("expected_accuracy", result["expected_accuracy"])
    if judgement.worst is not None and len(judgement.worst.rows):
        rows, true, predicted, probability = (part.tolist() for part in judgement.worst)
        labels = {"true": [names[c] for c in true], "predicted": [names[c] for c in predicted]}
        result["most_wrong"] = {"row": rows, **labels, "probability_of_true": probability}
    return result | rest


class _UnderNoise:
    """Sums over rows, of a model that knows what noise does."""

    def __init__(self, model: Model, noise_levels: Iterable[float] | None) -> None:
        self.model, self.classifier = model, model.classifier
        spread = model.card["spread"]
        self.levels = np.array([level * spread for level in NOISE_LEVELS] if noise_levels is None else noise_levels)
        self.method = "analytic" if model.is_linear else "sampling"
        self.judge, self.total = Judge(self.classifier.classes_), 0.0
        self.accuracy, self.errors = np.zeros(len(self.levels)), list[Array]()

    def add(self, X: Values, X_err: ErrorBars, y: MixedArray, first: int) -> None:
        """Add some rows, the first of which is of this number."""
        classifier, classes, n = self.classifier, self.classifier.classes_, len(y)
        samples, places = self.model.seen(X, X_err), np.searchsorted(classes, y)
        probabilities: Array | None = None
        if self.model.is_linear:
            probabilities = np.asarray(under_noise.class_probabilities(classifier, samples))
            self.total += n * under_noise.expected_accuracy(classifier, samples, y)
        elif len(classes) == 2:
            probabilities = np.asarray(classifier.predict_proba(samples))
            self.total += float(probabilities[np.arange(n), places].sum())
        else:
            self.total = math.nan
        self.judge.add(probabilities, np.searchsorted(classes, classifier.predict(samples)), places)
        values, bars = split_errors(samples)
        if has_unmeasured(bars):
            values, _ = under_noise.fill_unmeasured(classifier, values, bars)
        seed = first % 2**31
        part = under_noise.robustness_curve(classifier, values, y, self.levels, method=self.method, random_state=seed)
        self.accuracy += n * part.accuracy
        self.errors.append(n * part.error)

    def rest(self, n_rows: int) -> Record:
        """Return what is known beside the sums: the accuracy under noise, None if a model has no probabilities."""
        # Errors of sampling are independent from part to part; those of a quadrature may have the same sign in all.
        error = np.linalg.norm(self.errors, ord=1 if self.model.is_linear else 2, axis=0) / n_rows
        curve = {"noise_level": self.levels.tolist(), "accuracy": (self.accuracy / n_rows).tolist()}
        expected = None if math.isnan(self.total) else self.total / n_rows
        curve |= {"error": error.tolist(), "method": self.method}
        return {"expected_accuracy": expected, "robustness": curve}


class _Calibrated:
    """Sums over rows, of a model with calibrated probabilities: their mean is the accuracy expected."""

    def __init__(self, model: Model, noise_levels: Iterable[float] | None) -> None:
        self.model, self.classifier, self.has_errors = model, model.classifier, model.layout.has_errors
        usual = (1.0, 1.5, 2.0, 3.0) if self.has_errors else NOISE_LEVELS
        self.levels = under_noise.check_levels(list(usual if noise_levels is None else noise_levels))
        if self.has_errors and self.levels.min() < 1:
            raise TableError(
                f"--noise-levels of this model are multiples of its errors, 1 or more; got {self.levels.min():g}"
            )
        self.judge, self.curve = Judge(self.classifier.classes_), np.zeros((2, len(self.levels)))
        self.kept = EvenSample(3 * MOST_KEPT)

    def add(self, X: Values, X_err: ErrorBars, y: MixedArray, first: int) -> None:
        """Add some rows, the first of which is of this number."""
        samples, n, rng = self.model.seen(X, X_err), len(y), np.random.default_rng(first)
        places = np.searchsorted(self.classifier.classes_, y)
        probabilities = self.classifier.predict_proba(samples)
        best = np.argmax(probabilities, axis=1)
        self.judge.add(probabilities, best, places)
        if self.has_errors:
            own = probabilities[np.arange(n), best]
            self.kept.add(np.column_stack([error_sizes(self.classifier, samples), own, best == places]), first)
            named = self.model.named(X)
            scores = larger_error_scores(self.model.estimator, named, X_err, y, self.levels, rng)
        else:
            spreads = getattr(self.classifier, "_spreads", 1.0)
            noisy = (samples + level * spreads * rng.standard_normal(samples.shape) for level in self.levels)
            scores = scores_of(self.classifier, noisy, places)
        self.curve += n * np.array(scores)

    def rest(self, n_rows: int) -> Record:
        """Return what is known beside the sums."""
        accuracy, log_loss = self.curve / n_rows
        # At most: of noise that is drawn once, and of a share of all rows.
        error = np.where(self.levels > (1 if self.has_errors else 0), np.sqrt(accuracy * (1 - accuracy) / n_rows), 0.0)
        columns = {"noise_level": self.levels, "accuracy": accuracy, "log_loss": log_loss, "error": error}
        curve = {name: column.tolist() for name, column in columns.items()} | {"method": "sampling"}
        if not self.has_errors:
            return {"robustness": curve}
        sizes, own, right = self.kept.columns
        return {"reliability": by_error_size(sizes, own, right == 1)._asdict(), "robustness": curve}
