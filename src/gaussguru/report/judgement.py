"""Scores of predictions: compared with the frequencies of the classes, by class, and as a verdict in one sentence."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ColumnCells, MixedArray
from gaussguru.report.reliability import Reliability, proper_scores

# Number of probabilities kept for areas under ROC curves; of more rows every second, fourth, ... is kept.
MOST_NUMBERS = 1 << 22


class EvenSample:
    """Rows that are kept, evenly spread over all: every second, fourth, ... if they have more than ``most`` numbers."""

    def __init__(self, most: int) -> None:
        self.most, self.stride, self.parts = most, 1, list[Array]()

    def add(self, rows: Array, first: int) -> None:
        """Add rows, the first of which is of this number."""
        self.parts.append(rows[-first % self.stride :: self.stride])
        while sum(part.size for part in self.parts) > self.most:
            # The rows that are kept have numbers that are multiples of the stride.
            self.parts = [np.concatenate(self.parts)[::2]]
            self.stride *= 2

    @property
    def columns(self) -> Array:
        """The columns of the rows that are kept."""
        return np.concatenate(self.parts).T


class Judgement(NamedTuple):
    """Scores of predictions; None without probabilities.

    Parameters
    ----------
    classes : list
    confusion : array (n_classes, n_classes): rows of every true class, by predicted class
    log_loss, brier_score : float or None
    promised : tuple (float, float) or None
        Mean probability of the predicted labels, and the standard error of the accuracy if the probabilities are right.
    gain : tuple (float, float) or None
        The log loss of the class frequencies minus that of the predictions, and the standard error.
    auc : float or None
        Area under the ROC curve; with more than two classes, the mean over classes against the rest.
    worst : Worst or None
        The rows with wrong labels whose true class has the least probability.
    """

    classes: list[Any]
    confusion: NDArray[np.intp]
    log_loss: float | None
    brier_score: float | None
    promised: tuple[float, float] | None
    gain: tuple[float, float] | None
    auc: float | None
    worst: "Worst | None"

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """The share of rows whose label is right."""
        return float(np.trace(self.confusion)) / self.n_rows

    @property
    def frequencies(self) -> Array:
        """The share of every class among the rows."""
        return np.asarray(self.confusion.sum(axis=1) / self.n_rows)

    @property
    def recall(self) -> list[float | None]:
        """The share of the rows of every class whose label is right; None of a class without rows."""
        totals = self.confusion.sum(axis=1)
        return [float(self.confusion[c, c] / total) if total else None for c, total in enumerate(totals)]

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have rows."""
        return float(np.mean([share for share in self.recall if share is not None]))

    @property
    def baseline(self) -> dict[str, float]:
        """Scores of predicting the frequencies of the classes among these rows."""
        shares = self.frequencies[self.frequencies > 0]
        brier = 1.0 - float(np.square(shares).sum())
        return {
            "accuracy": float(shares.max()),
            "log_loss": -float(shares @ np.log(shares)),
            "brier_score": 0.5 * brier if len(self.classes) == 2 else brier,
        }

    def table(self) -> ColumnCells:
        """Return columns: each class, its number of rows, frequency and recall, and the numbers by predicted class."""
        counts = self.confusion.sum(axis=1).tolist()
        columns = {"class": self.classes, "rows": counts, "frequency": self.frequencies.tolist(), "recall": self.recall}
        return columns | {f"as {name}": self.confusion[:, c].tolist() for c, name in enumerate(self.classes)}

    def verdict(self, reliability: Reliability | None = None, *, calibrated: bool) -> str:
        """Return a sentence: better or worse than the class frequencies, and whether probabilities are right.

        Probabilities that are not ``calibrated`` count noise alone, not the overlap of the classes: accuracy decides.
        """
        base = self.baseline
        rates = f"accuracy {self.accuracy:.2f} against {base['accuracy']:.2f}"
        lead, error = self.accuracy - base["accuracy"], math.sqrt(self.accuracy * (1 - self.accuracy) / self.n_rows)
        if calibrated and self.gain is not None:
            lead, error = self.gain
            rates = f"log loss {self.log_loss:.2f} against {base['log_loss']:.2f}; {rates}"
        clear = 2.0 * error
        words = "Better than" if lead > clear else "WORSE than" if lead < -clear else "No better than"
        text = f"{words} the class frequencies: {rates}"
        if not calibrated:
            more = "" if self.log_loss is None else f" (log loss {self.log_loss:.2f} against {base['log_loss']:.2f})"
            return f"{text}; probabilities count noise alone, not the overlap of the classes{more}."
        if reliability is None and self.promised is not None:
            (promised, error), n = self.promised, self.n_rows
            reliability = Reliability(["all"], [n], [0.0], [promised], [self.accuracy], [error])
        return text + ("." if reliability is None else f"; {_trust(reliability)}.")

    def as_dict(self) -> dict[str, Any]:
        """Return the scores as numbers, lists and dictionaries."""
        names = ("accuracy", "balanced_accuracy", "log_loss", "brier_score", "auc")
        expected = None if self.promised is None else self.promised[0]
        scores = {name: getattr(self, name) for name in names} | {"expected_accuracy": expected}
        return scores | {"baseline": self.baseline, "classes": self.table()}


class Worst(NamedTuple):
    """The most wrong rows: row numbers, true and predicted classes, and probabilities of the true classes."""

    rows: Index
    true: NDArray[np.intp]
    predicted: NDArray[np.intp]
    probability: Array


def _trust(reliability: Reliability) -> str:
    """Return a clause that says whether probabilities are right, by size of the errors."""
    least = 0.5 / sum(reliability.rows)  # half a row
    wrong = [
        f"{'' if name == 'all' else f'for {name} errors '}{predicted:.2f} promised, {observed:.2f} came true"
        for name, _, _, predicted, observed, error in zip(*reliability, strict=True)
        if abs(predicted - observed) > 2.5 * error + least  # in any of several groups
    ]
    return f"probabilities are {'NOT right: ' + ', '.join(wrong) if wrong else 'right within their errors'}"


class Judge:
    """Sums over rows in parts, for a :class:`Judgement`.

    Parameters
    ----------
    classes : array (n_classes,)
    """

    def __init__(self, classes: MixedArray) -> None:
        self.classes, n = classes, len(classes)
        self.confusion = np.zeros((n, n), dtype=np.intp)
        self.has_probabilities = True
        self.losses = np.zeros((2, n))  # sums of log losses and of their squares, by true class
        self.squares = self.promised = self.variance = 0.0
        self.kept = EvenSample(MOST_NUMBERS)
        self.worst: Worst | None = None

    def add(self, probabilities: Array | None, predicted: NDArray[np.intp], places: NDArray[np.intp]) -> None:
        """Add rows: probabilities, predicted and true classes by number; None if a model has no probabilities."""
        first, (n_rows, n) = int(self.confusion.sum()), (len(places), len(self.classes))
        np.add.at(self.confusion, (places, predicted), 1)
        if probabilities is None:
            self.has_probabilities = False
            return
        rows = np.arange(n_rows)
        of_true = probabilities[rows, places]
        losses = -np.log(np.clip(of_true, np.finfo(np.float64).eps, 1.0))
        self.losses += [np.bincount(places, power, n) for power in (losses, np.square(losses))]
        self.squares += n_rows * proper_scores(probabilities, places)[1]
        of_predicted = probabilities[rows, predicted]
        self.promised += float(of_predicted.sum())
        self.variance += float((of_predicted * (1 - of_predicted)).sum())
        self.kept.add(np.column_stack([places, probabilities]), first)
        wrong = np.flatnonzero(predicted != places)
        worst = Worst(first + wrong, places[wrong], predicted[wrong], of_true[wrong])
        if self.worst is not None:
            worst = Worst._make(np.concatenate(pair) for pair in zip(self.worst, worst, strict=True))
        order = np.argsort(worst.probability, kind="stable")[:10]
        self.worst = Worst._make(part[order] for part in worst)

    def result(self) -> Judgement:
        """Return the scores of all rows."""
        classes, n_rows = self.classes.tolist(), int(self.confusion.sum())
        if not self.has_probabilities:
            return Judgement(classes, self.confusion, None, None, None, None, None, None)
        loss, squares = self.losses
        counts = self.confusion.sum(axis=1)
        with np.errstate(divide="ignore"):
            base = np.where(counts > 0, -np.log(counts / n_rows), 0.0)
        gain = float(counts @ base - loss.sum()) / n_rows
        square = float((squares - 2 * base * loss + counts * np.square(base)).sum()) / n_rows
        error = math.sqrt(max(0.0, square - gain**2) / n_rows)
        return Judgement(
            classes, self.confusion, float(loss.sum()) / n_rows, self.squares / n_rows,
            (self.promised / n_rows, math.sqrt(self.variance) / n_rows), (gain, error), self._area(), self.worst,
        )  # fmt: skip

    def _area(self) -> float | None:
        """Return the area under the ROC curve, the mean over classes present among the rows but not the only one."""
        true, *probabilities = self.kept.columns
        areas = [
            roc_auc_score(true == c, probabilities[c])
            for c in ([1] if len(self.classes) == 2 else range(len(self.classes)))
            if 0 < np.count_nonzero(true == c) < len(true)
        ]
        return float(np.mean(areas)) if areas else None
