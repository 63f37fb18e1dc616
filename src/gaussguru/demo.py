"""A demonstration: the gain from error bars, samples to measure again, and the certificate of a fit; with a report.

``gaussguru demo`` runs it: in less than a minute, on data that ships with scikit-learn, without a network.
"""

import os
import textwrap
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import Bunch

from gaussguru import ErrorBarClassifier, GuruClassifier
from gaussguru._measured.deconvolve import predictive_of_errors
from gaussguru._measured.remeasure import remeasure_gain
from gaussguru._measured.under_noise import expected_accuracy_scorer, robustness_curve
from gaussguru._utils.checks import check_count
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import Estimator, MixedArray
from gaussguru.datasets import load_wdbc
from gaussguru.plotting import RemeasureDisplay, RobustnessCurveDisplay, style
from gaussguru.report import model_card
from gaussguru.report.page import Report, is_number, new_axes
from gaussguru.report.pool import pool_in_words, pool_table

# Multiples of the error bars at which samples are classified.
MULTIPLES = (1, 2, 3)
OURS = "ErrorBarClassifier"
# Levels of noise on test samples, and the level for which models are fitted, in standard deviations of the features.
LEVELS, TOLD = (0.0, 0.5, 1.0, 1.5), 1.0
UNIT = "standard deviations of the features"


def run(
    output: str | os.PathLike[str] = "gaussguru-demo.html", *, n_splits: int = 4, date: str | datetime | None = None
) -> Path:
    """Print a short account of the results, and write a report with pictures.

    Parameters
    ----------
    output : str or path-like, default="gaussguru-demo.html"
        Where to write the report.
    n_splits : int, default=4
        How many random splits into training and test data the comparisons are repeated on; at least 2.
    date : str or datetime, default=None
        Date of the report; None is now.

    Returns
    -------
    Path
        The report.
    """
    check_count("n_splits", n_splits, low=2)
    data = load_wdbc()
    page = _Account(Report("gaussguru: what error bars are worth", date=date))
    page.say(
        f"Breast tumours, which ship with scikit-learn: {len(data.data)} samples of {data.data.shape[1]} properties of "
        "cells, each a mean with its standard error. Comparisons are means over "
        f"{n_splits} random splits, 60% of the samples to learn from and 40% to test, with standard errors over the "
        f"splits. As these share samples, true ones may be {np.sqrt(1 + n_splits * 0.4 / 0.6):.1f} times as large "
        "(Nadeau and Bengio 2003)."
    )
    trials = [_Trial.of(data, seed) for seed in range(n_splits)]
    first = trials[0]
    _reliability(page, data, first.ours)
    _members(page, first.ours)
    _equal_values(page, first)
    _worse_measurements(page, trials)
    _measured_again(page, data, trials)
    _noise_to_come(page, trials)
    page.report.heading("Model card").text(f"Of the first {OURS}, and the data that test it.")
    X, X_err = first.seen(1)
    page.report.card(model_card(first.ours, X, first.y_test, X_err))
    path = page.report.save(output)
    print(f"\nThe report with pictures: {path}")
    return path


class _Account:
    """Text and tables, printed and added to the report."""

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
        columns = []
        for name, *cells in zip(header, *rows, strict=True):
            width, side = max(map(len, (name, *cells))), ">" if all(map(is_number, cells)) else "<"
            columns.append([f"{cell:{side}{width}}" for cell in (name, *cells)])
        for line in zip(*columns, strict=True):
            print("   " + "  ".join(line).rstrip())
        self.report.table(header, rows)


class _Trial(NamedTuple):
    """A split into training and test samples, and the classifiers fitted to it."""

    train: Index
    test: Index
    X: Array
    X_err: Array
    y: MixedArray
    draws: Array
    models: dict[str, Estimator]
    score: ErrorBarClassifier

    @classmethod
    def of(cls, data: Bunch, seed: int) -> "_Trial":
        """Split the data by a seed, and fit the classifiers."""
        X, X_err, y = data.data, data.error, data.target_names[data.target]
        train, test = train_test_split(np.arange(len(y)), test_size=0.4, stratify=y, random_state=seed)
        models = {
            OURS: ErrorBarClassifier().fit(X[train], y[train], X_err=X_err[train]),
            "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()).fit(X[train], y[train]),
            "random forest": RandomForestClassifier(200, random_state=0).fit(X[train], y[train]),
        }
        draws = np.random.default_rng(seed).standard_normal((len(test), X.shape[1]))
        score = ErrorBarClassifier(model="linear").fit(X[train], y[train], X_err=X_err[train])
        return cls(train, test, X, X_err, y, draws, models, score)

    @property
    def ours(self) -> ErrorBarClassifier:
        """The classifier that knows the error bars."""
        model: ErrorBarClassifier = self.models[OURS]
        return model

    @property
    def y_test(self) -> MixedArray:
        """Labels of the test samples."""
        return np.asarray(self.y[self.test])

    def seen(self, multiple: float) -> tuple[Array, Array]:
        """Return test samples with larger error bars, and with noise added to match them."""
        X, X_err = self.X[self.test], self.X_err[self.test]
        return X + np.sqrt(multiple**2 - 1.0) * X_err * self.draws, multiple * X_err

    def probabilities(self, name: str, multiple: float) -> Array:
        """Return the probabilities of the classes that a model gives to the test samples."""
        samples = self.seen(multiple)[: 2 if name == OURS else 1]
        return np.asarray(self.models[name].predict_proba(*samples))

    def scores(self, p: Array) -> tuple[float, float]:
        """Return accuracy and log loss of probabilities."""
        classes = self.ours.classes_
        return float(np.mean(classes[p.argmax(axis=1)] == self.y_test)), float(log_loss(self.y_test, p, labels=classes))


def _reliability(page: _Account, data: Bunch, model: ErrorBarClassifier) -> None:
    """Show the reliability of the features."""
    page.section("How well are the features known?")
    order = np.argsort(model.reliability_)
    names = [str(name) for name in data.feature_names]
    page.table(["feature", "reliability"], [[names[j], f"{model.reliability_[j]:.2f}"] for j in order[:5]])
    page.say(
        "The reliability of a feature is the fraction of its variance over the population that the measurements know: "
        f"1 is exact. The other {len(order) - 5} have {model.reliability_[order[5]]:.2f} and more. Look at this first: "
        "where all are near 1, error bars cannot matter."
    )
    page.say(
        "The sizes of the errors alone predict the class with an area under the ROC curve of "
        f"{predictive_of_errors(data.error, data.target):.2f} (0.5 is not at all). A classifier that took them as "
        "features would use that, and may fail where samples are selected or measured in another way; here they say no "
        "more than how far to trust a value."
    )


def _members(page: _Account, model: ErrorBarClassifier) -> None:
    """Show the members of the pool, and its log losses on held-out samples."""
    page.section(f"What does {OURS} consist of, and what are error bars worth?")
    columns = pool_table(model.cv_scores_)
    page.table(list(columns), list(zip(*columns.values(), strict=True)))
    page.say(
        "A pool: its probabilities are an average of those of these members, with weights that suit the noise of a "
        "sample. The log losses are those of training samples that were held out, in the first split; lower is better. "
        + " ".join(pool_in_words(model.cv_scores_))
    )


def _equal_values(page: _Account, trial: _Trial) -> None:
    """Show one sample with several error bars."""
    page.section("Equal values, different error bars, different probabilities")
    model = trial.ours
    X, X_err = trial.seen(1)
    # A sample of the rarer class: with larger errors the other class becomes more probable.
    rarer = int(np.argmin(np.unique(trial.y_test, return_counts=True)[1]))
    chosen = int(np.argmin(np.abs(model.predict_proba(X, X_err)[:, rarer] - 0.9)))
    p = model.predict_proba(X[[chosen] * len(MULTIPLES)], np.multiply.outer(MULTIPLES, X_err[chosen]))
    plain = trial.models["logistic regression"].predict_proba(X[[chosen]])[0]
    names = [f"P({name})" for name in model.classes_]
    rows = [[f"x{k}", *(f"{value:.3f}" for value in row)] for k, row in zip(MULTIPLES, p, strict=True)]
    page.table(["error bars", *names], rows)
    page.say(
        f"Test sample {chosen + 1} ({trial.y_test[chosen]}), the same values with larger and larger error bars. "
        f"Logistic regression, which is not told of them, says {plain.max():.3f} in all cases."
    )


def _worse_measurements(page: _Account, trials: Sequence[_Trial]) -> None:
    """Compare classifiers on test samples with larger errors than those of training."""
    page.section("Samples that are measured worse than those in training")
    names = list(trials[0].models)
    # (n_models, n_multiples, n_splits, 2): accuracy and log loss.
    scores = np.array(
        [[[trial.scores(trial.probabilities(name, k)) for trial in trials] for k in MULTIPLES] for name in names]
    )
    for title, at, factor in (("accuracy (%)", 0, 100.0), ("log loss", 1, 1.0)):
        values = factor * scores[..., at]
        digits = 2 if at == 0 else 3
        rows = [[f"x{k}", *(_mean(values[m, i], digits) for m in range(len(names)))] for i, k in enumerate(MULTIPLES)]
        page.table([title, *names], rows)
    gains = zip(names[1:], scores[:1, -1] - scores[1:, -1], strict=True)
    differences = "; ".join(
        f"minus {name} {_mean(100 * gain[:, 0], 2, sign=True)} points of accuracy, {_mean(gain[:, 1], 3, sign=True)} "
        "log loss"
        for name, gain in gains
    )
    page.say(
        "Noise is added to the test values that makes error bars of 1, 2, 3 times their size true. Paired differences "
        f"at x{MULTIPLES[-1]}: {OURS} {differences}."
    )
    page.say(
        "Error bars do not help where the noise is small against the spread of the features, or the same for all "
        "samples, in training and in use: any classifier has learned its effect then, much as at x1."
    )
    ax = new_axes()
    for m, name in enumerate(names):
        means, errors = scores[m, :, :, 1].mean(axis=1), scores[m, :, :, 1].std(axis=1, ddof=1) / np.sqrt(len(trials))
        ax.errorbar(MULTIPLES, means, yerr=errors, capsize=3, label=name, **style.line_of(m, markers=True))
    ax.set_xticks(MULTIPLES, [f"x{k}" for k in MULTIPLES])
    ax.set_ylim(bottom=0.0)
    style.finish(ax, "error bars of the test samples", "log loss", None)
    page.report.figure(ax, caption="Log loss of samples with larger error bars: what knowing the errors is worth.")


def _measured_again(page: _Account, data: Bunch, trials: Sequence[_Trial]) -> None:
    """Choose samples to be measured again, and compare the scores afterwards."""
    worst = MULTIPLES[-1]
    page.section(f"Which samples should be measured again? Error bars x{worst}, and x1 after a new reading")
    scores = np.array([_gains(trial, worst) for trial in trials])
    names = ["none", "10%, at random", "10%, by gain", "all"]
    rows = [[name, _mean(100 * scores[:, m, 0], 2), _mean(scores[:, m, 1], 3)] for m, name in enumerate(names)]
    page.table(["measured again", "accuracy (%)", "log loss"], rows)
    first = trials[0]
    (X, X_err), (_, new_err) = first.seen(worst), first.seen(1)
    p, labels = first.score.predict_proba(X, X_err), first.y_test
    gain = remeasure_gain(first.score, X, X_err, new_err)
    features = np.argmax(remeasure_gain(first.score, X, X_err, new_err, per_feature=True), axis=1)
    shown = np.argsort(-gain, kind="stable")[:4]
    classes = first.score.classes_
    rows = [
        [str(i + 1), f"{p[i, 1]:.3f}", classes[p[i].argmax()], labels[i], f"{gain[i]:.3f}",
         data.feature_names[features[i]]]
        for i in shown
    ]  # fmt: skip
    page.table(["test sample", f"P({classes[1]})", "predicted", "true", "gain", "read first"], rows)
    page.say(
        'This is ErrorBarClassifier(model="linear"), one calibrated linear score. The gain of a sample is how much '
        "less often its label will be wrong after a new reading, known before it is made. These four of the first "
        "split have the largest; of one feature alone, the last column is worth most."
    )
    display = RemeasureDisplay.from_predictions(gain, ax=new_axes())
    page.report.figure(display, caption="What measuring samples again is worth.")


def _gains(trial: _Trial, multiple: float) -> list[tuple[float, float]]:
    """Return accuracy and log loss with no sample measured again, a tenth at random, a tenth by gain, and all."""
    (X, X_err), (_, new_err) = trial.seen(multiple), trial.seen(1)
    before, after = (trial.score.predict_proba(*trial.seen(k)) for k in (multiple, 1))
    order = np.argsort(-remeasure_gain(trial.score, X, X_err, new_err), kind="stable")
    chosen = before.copy()
    remeasured = order[: round(0.1 * len(order))]
    chosen[remeasured] = after[remeasured]
    none, by_gain, every = (trial.scores(p) for p in (before, chosen, after))
    share = len(remeasured) / len(order)
    chance = (1 - share) * none[0] + share * every[0], (1 - share) * none[1] + share * every[1]  # on average
    return [none, chance, by_gain, every]


def _noise_to_come(page: _Account, trials: Sequence[_Trial]) -> None:
    """Fit with a certificate, and compare with a support vector machine under noise on test samples."""
    page.section("Noise yet to come: sigma, a proof with every fit, and a support vector machine")
    curves: dict[str, list[Array]] = {}
    for trial in trials:
        scaler = StandardScaler().fit(trial.X[trial.train])
        X_train, X_test = (scaler.transform(trial.X[rows]) for rows in (trial.train, trial.test))
        y_train = trial.y[trial.train]
        began = time.perf_counter()
        model = GuruClassifier(TOLD).fit(X_train, y_train)
        took = 1e3 * (time.perf_counter() - began)
        for name, each in (("SVM", _svm(X_train, y_train)), ("GuruClassifier", model)):
            curves.setdefault(name, []).append(robustness_curve(each, X_test, trial.y_test, LEVELS).accuracy)
    rows = [
        [f"{level:g}", *(_mean(100 * np.array(runs)[:, i], 2) for runs in curves.values())]
        for i, level in enumerate(LEVELS)
    ]
    page.table(["noise", *curves], rows)
    gains = 100 * (np.array(curves["GuruClassifier"]) - np.array(curves["SVM"]))[:, LEVELS.index(TOLD)]
    page.say(
        f"The expected accuracy (%) if noise is added to the test features, in {UNIT}, computed without sampling. "
        f"GuruClassifier has sigma = {TOLD:g}; the SVM is LinearSVC, with the C that is best under noise of {TOLD:g} "
        f"in cross-validation. GuruClassifier minus SVM there: {_mean(gains, 2, sign=True)} points. The last fit took "
        f"{took:.1f} ms, and its objective, {model.objective_:.4f}, is proven to be within {model.dual_gap_:.1e} of "
        "the least there is."
    )
    ax = new_axes()
    for name, runs in curves.items():
        mean, error = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
        RobustnessCurveDisplay(np.array(LEVELS), mean, error, name=name, unit=UNIT).plot(ax)
    page.report.figure(ax, caption="Accuracy under noise yet to come; bands are standard errors over the splits.")


def _svm(X: Array, y: MixedArray) -> Estimator:
    """Return a support vector machine with the C that is best under noise."""
    search = GridSearchCV(LinearSVC(dual=False), {"C": 4.0 ** np.arange(-6, 3)}, cv=5, scoring=expected_accuracy_scorer)
    with sklearn.config_context(enable_metadata_routing=True):
        return search.fit(X, y, X_err=np.full(len(X), TOLD))


def _mean(runs: Array, digits: int, *, sign: bool = False) -> str:
    """Return a mean and its standard error as text."""
    error = np.std(runs, ddof=1) / np.sqrt(len(runs))
    return f"{np.mean(runs):{'+' if sign else ''}.{digits}f} ± {error:.{digits}f}"
