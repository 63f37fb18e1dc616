"""What it is worth to know the noise: proofs, a comparison with a support vector machine, error bars, a report.

``gaussguru demo`` runs it: in seconds, on data that ships with scikit-learn, without a network.
"""

import os
import textwrap
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.validation import check_count
from gaussguru._linalg import Array
from gaussguru.plotting import ConvergenceDisplay, RobustnessCurveDisplay, SigmaPathDisplay
from gaussguru.preprocessing import WithErrors
from gaussguru.report import Report, model_card, new_axes
from gaussguru.report.page import is_number
from gaussguru.robustness import expected_accuracy, expected_accuracy_scorer, flip_probability, robustness_curve

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
# The noise that models are told of, in standard deviations of the features.
TOLD = 1.0
UNIT = "standard deviations of the features"
COSTS = 4.0 ** np.arange(-6, 3)


def run(
    output: str | os.PathLike[str] = "gaussguru-demo.html",
    *,
    n_splits: int = 10,
    date: str | datetime | None = None,
) -> Path:
    """Print a short account of what was measured, and write it down with pictures.

    Parameters
    ----------
    output : str or path-like, default="gaussguru-demo.html"
        Where to write the report.
    n_splits : int, default=10
        How many random splits into training and test data the comparisons are repeated on; at least 2.
    date : str or datetime, default=None
        Of the report; None is now.

    Returns
    -------
    Path
        Of the report.
    """
    check_count("n_splits", n_splits, low=2)
    data = load_breast_cancer()
    X, y = data.data, data.target_names[data.target]
    page = _Account(Report("gaussguru: what it is worth to know the noise", date=date))
    page.say(
        f"Breast cancer, which ships with scikit-learn: {len(X)} samples of {X.shape[1]} features, in units of their "
        f"standard deviations. Comparisons are means over {n_splits} random splits, 60% of the samples to learn from "
        "and 40% to test, with standard errors (a little too small, as the splits share samples)."
    )
    splits = [
        train_test_split(np.arange(len(y)), test_size=0.4, stratify=y, random_state=seed) for seed in range(n_splits)
    ]
    model, test = _fits(page, X, y, splits[0])
    _noise(page, X, y, splits)
    means, errors = (
        [j for j, name in enumerate(data.feature_names) if word in name.split()] for word in ("mean", "error")
    )
    _error_bars(page, X[:, means], X[:, errors], y, splits)
    _predictions(page, model, *test)
    page.report.heading("Model card").text("Of the classifier in the last section, with the data that test it.")
    page.report.card(model_card(model, *test))
    path = page.report.save(output)
    print(f"\nThe report with pictures: {path}")
    return path


class _Account:
    """What is said, on the terminal and in the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.sections = 0
        print(report.title)

    def section(self, title: str) -> None:
        """Begin a section."""
        self.sections += 1
        print(f"\n{self.sections}. {title}")
        self.report.heading(title)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        print(textwrap.indent(textwrap.fill(text, 97), "   "))
        self.report.text(text)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table of text."""
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        numbers = [all(map(is_number, column)) for column in zip(*rows, strict=True)]
        for row in (header, *rows):
            cells = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numbers, strict=True)
            ]
            print("   " + "  ".join(cells).rstrip())
        self.report.table(header, rows)


def _fits(page: _Account, X: Array, y: Any, split: Any) -> tuple[GuruClassifier, tuple[Array, Any]]:
    """Fit at several noise levels; return one of the classifiers, and test data."""
    train, test = split
    scaler = StandardScaler().fit(X[train])
    X_train, y_train = scaler.transform(X[train]), y[train]
    page.section("A fit comes with a proof of how close to optimal it is")
    rows, models = [], {}
    for sigma in (0.1, 0.5, TOLD):
        began = time.perf_counter()
        models[sigma] = model = GuruClassifier(sigma).fit(X_train, y_train)
        took = 1e3 * (time.perf_counter() - began)
        rows.append(
            [f"{sigma:g}", f"{model.objective_:.4f}", f"{model.dual_gap_:.1e}", f"{model.n_iter_}", f"{took:.1f}"]
        )
    page.table(["sigma", "objective", "proven gap", "iterations", "milliseconds"], rows)
    page.say(
        f"No classifier of the family has an objective lower than the one printed by more than the gap. sigma is the "
        f"standard deviation of the noise that the {len(y_train)} training samples are expected to carry."
    )
    page.report.figure(
        ConvergenceDisplay.from_estimator(GuruClassifier(0.1), X_train, y_train, name="sigma = 0.1", ax=new_axes()),
        caption="What a fit that is stopped early would have returned, and what it could prove.",
    )
    page.report.figure(
        SigmaPathDisplay.from_cv(GuruClassifierCV().fit(X_train, y_train), unit=UNIT, ax=new_axes()),
        caption="Where the noise is not known, cross-validation chooses sigma.",
    )
    return models[0.5], (scaler.transform(X[test]), y[test])


def _noise(page: _Account, X: Array, y: Any, splits: Any) -> None:
    """Compare with a support vector machine under noise."""
    page.section("Accuracy (%) when the test features carry noise that the training features do not")
    curves: dict[str, list[Array]] = {}
    for train, test in splits:
        scaler = StandardScaler().fit(X[train])
        X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
        models = {
            "SVM": _svm(X_train, y[train]),
            "SVM, told": _svm(X_train, y[train], np.full(len(train), TOLD)),
            "GURU": GuruClassifierCV().fit(X_train, y[train]),
            "GURU, told": GuruClassifier(TOLD).fit(X_train, y[train]),
        }
        for name, model in models.items():
            curves.setdefault(name, []).append(robustness_curve(model, X_test, y[test], LEVELS).accuracy)
    rows = [
        [f"{level:g}", *(_with_error([curve[i] for curve in curves[name]]) for name in curves)]
        for i, level in enumerate(LEVELS)
    ]
    page.table(["noise", *curves], rows)
    page.say(
        "SVM is LinearSVC, its C chosen by cross-validation, and GURU is GuruClassifier, its sigma chosen in the same "
        f"way. Told of noise of {TOLD:g}, the SVM chooses C for the best accuracy under that noise, and GURU takes "
        f"sigma = {TOLD:g}."
    )
    apart = 100 * (np.array(curves["GURU, told"]) - np.array(curves["SVM, told"]))
    at = LEVELS.index(TOLD)
    page.say(
        f"GURU minus SVM, both told: {_difference(apart[:, at])} points at that noise, {_difference(apart[:, -1])} at "
        f"{LEVELS[-1]:g}, {_difference(apart[:, 0])} without noise."
    )
    ax = new_axes()
    for name, runs in curves.items():
        mean, error = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
        RobustnessCurveDisplay(np.array(LEVELS), mean, error, name=name, unit=UNIT).plot(ax)
    page.report.figure(ax, caption="Accuracy under noise; bands are standard errors over the splits.")


def _error_bars(page: _Account, values: Array, errors: Array, y: Any, splits: Any) -> None:
    """Compare with and without the error bars that are part of the data."""
    page.section("Error bars, different for every sample and feature")
    scores: dict[str, list[tuple[float, float]]] = {}
    for train, test in splits:
        scaler = WithErrors(StandardScaler())
        learn = scaler.fit_transform(values[train], X_err=errors[train])
        judge = scaler.transform(values[test], X_err=errors[test])
        models = {
            "SVM": _svm(learn.X, y[train]),
            "SVM, told of the errors": _svm(learn.X, y[train], learn.err),
            "GURU": GuruClassifierCV().fit(learn.X, y[train]),
            "GURU, told of the errors": GuruClassifier(0.1).fit(learn, y[train]),
        }
        for name, model in models.items():
            known = float(np.mean(model.predict(judge.X) == y[test]))
            again = expected_accuracy(model, judge.X, y[test], X_err=judge.err)
            scores.setdefault(name, []).append((known, again))
    rows = [[name, *(_with_error(part) for part in zip(*runs, strict=True))] for name, runs in scores.items()]
    page.table(["accuracy (%)", "as measured", "measured again"], rows)
    apart = 100 * (np.array(scores["GURU, told of the errors"]) - np.array(scores["SVM, told of the errors"]))
    page.say(
        f"{values.shape[1]} of the features are means over the cells of a sample, and the data has their standard "
        "errors. Measured again, each value would change by about its error: the last column is the accuracy to be "
        "expected then, without drawing noise. GURU learns from the errors (with sigma = 0.1 besides), the SVM is told "
        f"of them when it chooses C. GURU minus SVM, both told: {_difference(apart[:, 0])} points as measured, "
        f"{_difference(apart[:, 1])} measured again."
    )


def _predictions(page: _Account, model: GuruClassifier, X: Array, y: Any) -> None:
    """Say how sure single predictions are."""
    page.section(f"How sure is a single prediction? Noise of sigma = {model.sigma:g}, without sampling")
    flips = flip_probability(model, X)
    order = np.argsort(-flips, kind="stable")
    shown = [*order[:4], order[len(order) // 2]]
    predicted, probabilities = model.predict(X), model.predict_proba(X)
    rows = [[str(i + 1), *(f"{p:.3f}" for p in probabilities[i]), str(predicted[i]), str(y[i])] for i in shown]
    page.table(["test sample", *(f"P({name})" for name in model.classes_), "predicted", "true"], rows)
    doubtful, right = flips > 0.1, predicted == y
    page.say(
        f"These are the four most doubtful of the {len(y)} test samples, and a typical one. Where noise changes the "
        f"label with a probability above 10% ({doubtful.sum()} samples), {100 * right[doubtful].mean():.0f}% of the "
        f"predictions are right; elsewhere {100 * right[~doubtful].mean():.1f}%."
    )


def _svm(X: Any, y: Any, X_err: Any = None) -> Any:
    """Return a support vector machine with the best C, for the data as it is or for noise on it."""
    search = {"estimator": LinearSVC(dual=False), "param_grid": {"C": COSTS}, "cv": 5}
    if X_err is None:
        return GridSearchCV(**search).fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        return GridSearchCV(**search, scoring=expected_accuracy_scorer).fit(X, y, X_err=X_err)


def _with_error(runs: Any) -> str:
    return f"{100 * np.mean(runs):.2f} ± {100 * np.std(runs, ddof=1) / np.sqrt(len(runs)):.2f}"


def _difference(runs: Array) -> str:
    return f"{np.mean(runs):+.2f} ± {np.std(runs, ddof=1) / np.sqrt(len(runs)):.2f}"
