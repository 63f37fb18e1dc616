"""How good a classifier is on some data, and how far noise on the features changes that."""

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import confusion_matrix
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import column_or_1d

from gaussguru.errors import check_errors, has_unmeasured, split_errors, take_rows
from gaussguru.kernel import KernelGuruClassifier
from gaussguru.losses import Array
from gaussguru.model_selection import GuruClassifierCV
from gaussguru.plotting import RobustnessCurveDisplay, SigmaPathDisplay
from gaussguru.report.card import model_card
from gaussguru.report.page import Report, new_axes, percent
from gaussguru.robustness import (
    certified_radius,
    check_levels,
    expected_accuracy,
    fill_unmeasured,
    final_estimator,
    flip_probability,
    robustness_curve,
)

# A curve takes this many samples at most: with a closed form, and without (models that are not linear, more than three
# classes). Noise that has to be drawn is drawn this often.
CLOSED, SAMPLED, REPEATS = 100_000, 1000, 10
# Limits of tables: classes in a confusion matrix, single predictions.
CLASSES, DOUBTFUL = 15, 10


def evaluation_report(
    model: Any,
    X: Any,
    y: Any,
    X_err: Any = None,
    *,
    title: str = "Evaluation",
    noise_levels: Any = None,
    absolute: bool = False,
    random_state: Any = 0,
    date: str | datetime | None = None,
) -> Report:
    """Return a report on how good a fitted classifier is on some data, and how far noise on the features changes that.

    It has accuracy and confusion matrix, the accuracy under noise, how doubtful single predictions are, the path of
    sigma if cross-validation chose it, the certificate and the model card. What does not exist for a model is left out,
    and the report says so.

    Parameters
    ----------
    model : fitted classifier, pipeline or search
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None
    title : str, default="Evaluation"
    noise_levels : array-like of shape (n_levels,), default=None
        In multiples of the error bars. Without error bars, in standard deviations of each feature; for sparse X in the
        units of the features. None is 0 to 3, or to 1 without error bars.
    absolute : bool, default=False
        Whether noise levels are in the units of the features for any X.
    random_state : int, RandomState instance or None, default=0
        For noise that must be drawn because the model is not linear.
    date : str or datetime, default=None
        None is now.

    Returns
    -------
    Report
    """
    card = model_card(model, X, y, X_err)
    X, X_err = split_errors(X, X_err)
    X = X if sp.issparse(X) or hasattr(X, "iloc") else np.asarray(X)
    if has_unmeasured(X_err):
        X, X_err = fill_unmeasured(model, X, X_err)
    y = column_or_1d(y)
    # What is wrong with the data is no peculiarity of the model, which a report could leave out.
    check_consistent_length(X, y)
    if X_err is not None:
        check_errors(X_err, X)
    noise_levels = None if noise_levels is None else check_levels(noise_levels)
    page = _Evaluation(Report(title, date=date), model, X, y, X_err)
    page.summary()
    page.confusion()
    page.noise(noise_levels, absolute, random_state)
    page.doubts()
    page.path()
    page.certificate(card)
    page.report.heading("Model card").card(card)
    if page.left_out:
        page.report.heading("Left out")
        for what, why in page.left_out.items():
            page.report.text(f"{what}: {why}.")
    return page.report


class _Evaluation:
    """The sections of an evaluation."""

    def __init__(self, report: Report, model: Any, X: Any, y: Any, X_err: Any) -> None:
        self.report = report
        self.model, self.final = model, final_estimator(model)
        self.X, self.y, self.X_err = X, y, X_err
        self.predicted = model.predict(X)
        self.right = self.predicted == y
        self.left_out: dict[str, str] = {}
        self.radius = self._try("Distance to the boundary", lambda: certified_radius(model, X))
        self.is_linear = self.radius is not None
        # The names of all noise that predictions count.
        self.noises = ["the noise of the model"] if hasattr(self.final, "_score_noise") else []
        self.noises += [] if X_err is None else ["the error bars"]

    def _try(self, what: str, compute: Callable[[], Any]) -> Any:
        """Return what is computed, or None where the model or the data do not allow it, and note why."""
        try:
            return compute()
        except (TypeError, ValueError) as reason:
            self.left_out[what] = str(reason).rstrip(".")
            return None

    def summary(self) -> None:
        """Say how often the model is right, with noise and without."""
        n, share = len(self.y), float(self.right.mean())
        error = float(np.sqrt(share * (1 - share) / n))
        _, counts = np.unique(self.y, return_counts=True)
        rows = [
            ["accuracy", percent(share), f"{self.right.sum()} of {n} samples; standard error {percent(error)}"],
            ["most frequent class", percent(counts.max() / n), "the accuracy of always predicting it"],
        ]
        if self.is_linear and self.noises:
            value = self._try("Expected accuracy", lambda: expected_accuracy(self.model, self.X, self.y, self.X_err))
            if value is not None:
                rows.append(["expected accuracy", percent(value), f"with {self.noises[-1]} added to the features"])
        self.report.heading("Accuracy").table(["", "share", "meaning"], rows)

    def confusion(self) -> None:
        """Count which class is taken for which."""
        classes = unique_labels(self.y, self.predicted)
        matrix = confusion_matrix(self.y, self.predicted, labels=classes)
        names = [str(label) for label in classes]
        if len(names) <= CLASSES:
            totals = matrix.sum(axis=1)
            rows = [
                [name, *counts.tolist(), percent(counts[k] / totals[k]) if totals[k] else None]
                for k, (name, counts) in enumerate(zip(names, matrix, strict=True))
            ]
            self.report.heading("Confusion matrix").table(
                ["true class", *(f"as {name}" for name in names), "right"],
                rows,
                caption="Number of samples of each class, by the class predicted.",
            )
            return
        np.fill_diagonal(matrix, 0)
        worst = [place for place in np.argsort(-matrix, axis=None, kind="stable")[:CLASSES] if matrix.flat[place]]
        rows = [[names[p // len(names)], names[p % len(names)], int(matrix.flat[p])] for p in worst]
        self.report.heading("Most frequent confusions").table(["true class", "predicted", "samples"], rows)
        self.left_out["Confusion matrix"] = f"it would have {len(names)} rows"

    def noise(self, noise_levels: Any, absolute: bool, random_state: Any) -> None:
        """Show what noise does to the accuracy."""
        what = "Accuracy under noise"
        if get_tags(self.final).input_tags.pairwise:
            self.left_out[what] = "X is a kernel matrix, there are no features"
            return
        X, y, X_err, top = self.X, self.y, None if absolute else self.X_err, 1.0
        if X_err is not None:
            unit, top = "multiples of the error bars", 3.0
        elif absolute or sp.issparse(X):
            unit = "units of the features"
        else:
            unit = "standard deviations of each feature"
            X_err = self._try(what, lambda: _spreads(X))
            if X_err is None:
                return
        is_closed = self.is_linear and len(self.final.classes_) <= 3
        levels = np.linspace(0, top, 13 if is_closed else 7) if noise_levels is None else noise_levels
        method, how = "analytic", "Computed without drawing noise"
        if not self.is_linear:
            method, how = "sampling", f"Mean over {REPEATS} draws of noise"
        most = CLOSED if is_closed else SAMPLED
        if len(y) > most:
            some = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
            X, y = take_rows(X, some), y[some]
            X_err = None if X_err is None else take_rows(X_err, some)
            how += f", for {most} of the {len(self.y)} samples, drawn at random"
        options = {"X_err": X_err, "method": method, "n_repeats": REPEATS, "random_state": random_state}
        curve = self._try(what, lambda: robustness_curve(self.model, X, y, levels, **options))
        if curve is None:
            return
        display = RobustnessCurveDisplay(*curve, unit=unit).plot(new_axes())
        self.report.heading(what).figure(
            display, caption=f"{how}: the accuracy to be expected when noise is added to the features, in {unit}."
        )
        rows = [
            [float(level), percent(value), percent(error) if error else "exact"]
            for level, value, error in zip(*curve, strict=True)
        ]
        self.report.table(["noise level", "accuracy", "standard error"], rows[:: -(-len(rows) // 7)])

    def doubts(self) -> None:
        """Say how easily noise changes single predictions."""
        what = "Doubtful predictions"
        if self.is_linear:
            noise = " and ".join(self.noises)
            flips = self._try(what, lambda: flip_probability(self.model, self.X, self.X_err))
        else:
            noise = "the noise of the model, in the space of its kernel"
            flips = self._try(what, lambda: _other_probability(self.model, self.X))
        if flips is None:
            return
        limits = [0.0, 0.001, 0.01, 0.1, 0.25, np.inf]
        names = ["below 0.1 %", "0.1 % to 1 %", "1 % to 10 %", "10 % to 25 %", "25 % and more"]
        groups = [(flips >= low) & (flips < high) for low, high in pairwise(limits)]
        rows = [
            [name, int(mine.sum()), percent(self.right[mine].mean()) if mine.any() else None]
            for name, mine in zip(names, groups, strict=True)
        ]
        self.report.heading(what).text(
            f"The probability that noise changes the predicted label, where noise is {noise}. It does not say whether "
            "the label is right: the last column does."
        )
        self.report.table(["probability of a change", "samples", "accuracy among them"], rows)
        most = np.argsort(-flips, kind="stable")[:DOUBTFUL]
        header = ["row", "predicted", "true", "probability of a change"]
        cells: list[list[Any]] = [[str(i), str(self.predicted[i]), str(self.y[i]), percent(flips[i])] for i in most]
        caption = "The most doubtful predictions; rows are counted from 0."
        if self.radius is not None:
            header.append("distance to the boundary")
            cells = [[*row, float(self.radius[i])] for row, i in zip(cells, most, strict=True)]
            caption = f"{caption[:-1]}, distances are in the units of the features."
        self.report.table(header, cells, caption=caption)

    def path(self) -> None:
        """Show among which noise levels cross-validation chose."""
        if not isinstance(self.final, GuruClassifierCV):
            return
        n_folds, sigma = self.final.scores_.shape[1], self.final.sigma_
        self.report.heading("Choice of the noise level").figure(
            SigmaPathDisplay.from_cv(self.final, ax=new_axes()),
            caption=f"Mean score of {n_folds} folds at each noise level; sigma = {sigma:.4g} was chosen, in the units "
            "of the features as they reach the classifier.",
        )

    def certificate(self, card: Mapping[str, Mapping[str, Any]]) -> None:
        """Say what is proven of the fit."""
        if "certificate" not in card:
            self.left_out["Certificate"] = f"{type(self.final).__name__} has none"
            return
        proof = card["certificate"]
        objective, gap = proof["objective"], proof["duality gap"]
        text = (
            f"The fit has the objective {objective:.6g}. It is proven that no choice of coefficients has one below "
            f"{max(0.0, objective - gap):.6g}: the duality gap is {gap:.2g}."
        )
        if not proof.get("converged", True):
            text += " The fit did not reach the tolerance that was asked for."
        self.report.heading("Certificate").text(text)


def _spreads(X: Any) -> Array:
    """Return the standard deviation of its feature for every value."""
    values = np.asarray(X, dtype=np.float64)
    return np.broadcast_to(values.std(axis=0), values.shape)


def _other_probability(model: Any, X: Any) -> Array:
    """Return the probability of the classes that are not predicted."""
    final = final_estimator(model)
    if not isinstance(final, KernelGuruClassifier) or not hasattr(model, "predict_proba"):
        raise ValueError(f"{type(final).__name__} does not say what noise does to its predictions")
    return np.asarray(1.0 - model.predict_proba(X).max(axis=1))
