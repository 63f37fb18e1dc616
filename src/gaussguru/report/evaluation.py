"""How good a classifier is on some data, and how far noise on the features changes that."""

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import column_or_1d

from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.kernel import KernelGuruClassifier
from gaussguru._linalg import Array
from gaussguru.errors import check_errors, has_unmeasured, split_errors, take_rows
from gaussguru.plotting import RobustnessCurveDisplay, SigmaPathDisplay
from gaussguru.preprocessing import final_estimator
from gaussguru.probabilities import expected_score
from gaussguru.report.card import model_card
from gaussguru.report.page import Report, new_axes, percent
from gaussguru.robustness import (
    NotLinearError,
    certified_radius,
    check_levels,
    expected_accuracy,
    fill_unmeasured,
    flip_probability,
    robustness_curve,
)

# A curve takes this many samples at most, each of them seconds of work: with a closed form, with quadrature (more than
# three classes), and with noise that is drawn, for models that are not linear.
CLOSED, QUADRATURE, SAMPLED = 100_000, 1000, 5000
# How often noise is drawn, at least and at most, and how many values of it at a level. For linear models that is
# cheaper than quadrature where there are many samples.
REPEATS, VALUES = (10, 100), 30_000_000
# Limits of tables: classes in a confusion matrix, single predictions.
CLASSES, DOUBTFUL = 15, 10
IN_KERNEL = "the noise of the model, in the space of its kernel"


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
        For noise that must be drawn: the model is not linear, or there are many classes and samples.
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
        # Why noise on the features makes no sense, if so.
        self.no_features = ""
        if get_tags(self.final).input_tags.pairwise:
            self.no_features = "X is a kernel matrix, there are no features"
        elif not _holds_numbers(X):
            self.no_features = "X holds values that are not finite numbers"
        self.is_linear, why = False, self.no_features
        if not why:
            try:
                certified_radius(model, X)
                self.is_linear = True
            except NotLinearError as reason:
                why = str(reason).rstrip(".")
        if why:
            self.left_out["Distance to the boundary"] = why
        self.seen = _seen(model, X)
        # What sigma and distances are measured in.
        self.unit = "units of the features" if self.seen is X else "units of the transformed features"
        # The probability of each of two classes under the noise in the space of a kernel.
        self.in_kernel = None
        if isinstance(self.final, KernelGuruClassifier) and len(self.final.classes_) == 2:
            self.in_kernel = np.asarray(model.predict_proba(X))
        # The names of all noise that predictions count.
        self.noises = ["the noise of the model"] if hasattr(self.final, "_score_noise") else []
        self.noises += [] if X_err is None else ["the error bars"]

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
            value = expected_accuracy(self.model, self.X, self.y, X_err=self.X_err)
            rows.append(["expected accuracy", percent(value), f"with {self.noises[-1]} added to the features"])
        elif self.in_kernel is not None:
            value = expected_score(self.in_kernel, self.final.classes_, self.y)
            rows.append(["expected accuracy", percent(value), f"with {IN_KERNEL}"])
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
        if self.no_features:
            self.left_out[what] = self.no_features
            return
        X, y, X_err, top = self.X, self.y, None if absolute else self.X_err, 1.0
        if X_err is not None:
            unit, top = "multiples of the error bars", 3.0
        elif absolute or sp.issparse(X):
            unit = "units of the features"
        else:
            unit, X_err = "standard deviations of each feature", _spreads(X)
        method, most, repeats = self._plan()
        is_closed = method == "analytic" and len(self.final.classes_) <= 3
        levels = np.linspace(0, top, 13 if is_closed else 7) if noise_levels is None else noise_levels
        how = "Computed without drawing noise" if method == "analytic" else f"Mean over {repeats} draws of noise"
        n, m, note = len(y), min(most, len(y)), ""
        if m < n:
            some = np.sort(np.random.default_rng(0).permutation(n)[:m])
            X, y = take_rows(X, some), y[some]
            X_err = None if X_err is None else take_rows(X_err, some)
            how += f", for {m} of the {n} samples, drawn at random"
            note = (
                f" Without noise the model is right for {percent(self.right[some].mean())} of these samples, and for "
                f"{percent(self.right.mean())} of all. Standard errors include that of drawing them."
            )
        curve = robustness_curve(
            self.model, X, y, levels, X_err=X_err, method=method, n_repeats=repeats, random_state=random_state
        )
        # The variance of what lies between 0 and 1 is at most p (1 - p); m of n samples leave 1 - m/n of that of m.
        chance = curve.accuracy * (1 - curve.accuracy) / m * (1 - m / n)
        curve = curve._replace(error=np.sqrt(np.square(curve.error) + chance))
        display = RobustnessCurveDisplay(*curve, unit=unit).plot(new_axes())
        self.report.heading(what).figure(
            display, caption=f"{how}: the accuracy to be expected when noise is added to the features, in {unit}.{note}"
        )
        header, columns = ["noise level", "accuracy"], [curve.noise_levels, [*map(percent, curve.accuracy)]]
        if curve.error.any():
            header, columns = [*header, "standard error"], [*columns, [*map(percent, curve.error)]]
        rows = list(zip(*columns, strict=True))
        self.report.table(header, rows[:: -(-len(rows) // 7)])

    def _plan(self) -> tuple[str, int, int]:
        """Return how to compute the accuracy under noise, for how many samples at most, and how often to draw noise."""
        n, n_features = self.X.shape
        least, greatest = REPEATS
        affordable = VALUES // (least * n_features)
        if not self.is_linear:
            return "sampling", min(SAMPLED, max(QUADRATURE, affordable)), least
        if len(self.final.classes_) <= 3:
            return "analytic", CLOSED, least
        if n <= QUADRATURE or affordable <= QUADRATURE:
            return "analytic", QUADRATURE, least
        return "sampling", affordable, min(greatest, max(least, VALUES // (n * n_features)))

    def doubts(self) -> None:
        """Say how easily noise changes single predictions."""
        what = "Doubtful predictions"
        if self.is_linear and self.noises:
            noise = " and ".join(self.noises)
            flips = flip_probability(self.model, self.X, X_err=self.X_err)
        elif self.in_kernel is not None:
            noise, flips = IN_KERNEL, 1.0 - self.in_kernel.max(axis=1)
        else:
            self.left_out[what] = f"{type(self.final).__name__} does not say what noise does to its predictions"
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
            "the label is right, nor does it count the overlap of the classes: the last column does, and probabilities "
            "of gaussguru.calibration.CalibratedWithErrorsCV do."
        )
        self.report.table(["probability of a change", "samples", "accuracy among them"], rows)
        most = np.argsort(-flips, kind="stable")[:DOUBTFUL]
        names, counted = _row_names(self.X)
        header = [counted, "predicted", "true", "probability of a change"]
        cells: list[list[Any]] = [
            [str(names[i]), str(self.predicted[i]), str(self.y[i]), percent(flips[i])] for i in most
        ]
        caption = "The most doubtful predictions"
        caption += "; rows are counted from 1" if counted == "row" else ", by the index of the table"
        if self.is_linear:
            radius = certified_radius(self.final, self.seen)
            header.append("distance to the boundary")
            cells = [[*row, float(radius[i])] for row, i in zip(cells, most, strict=True)]
            caption += f"; distances are in {self.unit}"
        self.report.table(header, cells, caption=f"{caption}.")

    def path(self) -> None:
        """Show among which noise levels cross-validation chose."""
        if not isinstance(self.final, GuruClassifierCV):
            return
        n_folds, sigma = self.final.scores_.shape[1], self.final.sigma_
        self.report.heading("Choice of the noise level").figure(
            SigmaPathDisplay.from_cv(self.final, unit=self.unit, ax=new_axes()),
            caption=f"Mean score of {n_folds} folds at each noise level; sigma = {sigma:.4g} was chosen, in "
            f"{self.unit}.",
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


def _holds_numbers(X: Any) -> bool:
    """Return whether noise can be added to the values of X."""
    try:
        return bool(np.isfinite(X.data if sp.issparse(X) else np.asarray(X, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return False


def _seen(model: Any, X: Any) -> Any:
    """Return X as the last step of a pipeline sees it; X itself where nothing transforms it."""
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, Pipeline):
        return X
    return _seen(model[-1], model[:-1].transform(X) if len(model) > 1 else X)


def _row_names(X: Any) -> tuple[Any, str]:
    """Return what rows are called, and what that is: their numbers, or the index of a table that has one of its own."""
    index = getattr(X, "index", None)
    if index is None or list(index) == list(range(len(index))):
        return range(1, X.shape[0] + 1), "row"
    return list(index), "index"


def _spreads(X: Any) -> Array:
    """Return the standard deviation of its feature for every value."""
    values = np.asarray(X, dtype=np.float64)
    return np.broadcast_to(values.std(axis=0), values.shape)
