"""The evaluation report: scores of a classifier on given data, and the effect of noise on the features."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, check_random_state, get_tags
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import column_or_1d

from gaussguru import GuruClassifierCV, KernelGuruClassifier, Measured
from gaussguru._errors.checks import check_errors
from gaussguru._errors.given import Limits
from gaussguru._errors.missing import has_unmeasured, not_measured
from gaussguru._errors.samples import split_errors
from gaussguru._guru.probabilities import expected_score
from gaussguru._measured import under_noise
from gaussguru._measured.affine import NotLinearError, as_table, final_estimator
from gaussguru._measured.deconvolve import Deconvolve, predictive_of_errors
from gaussguru._measured.inspection import coefficients, feature_importance
from gaussguru._measured.remeasure import remeasure_gain
from gaussguru._utils.checks import check_real
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, Estimator, Labels, MixedArray, Record, RowCells, Seed, Values
from gaussguru.plotting import RemeasureDisplay, RobustnessCurveDisplay, SigmaPathDisplay
from gaussguru.report.card import model_card
from gaussguru.report.judgement import Judge
from gaussguru.report.page import Report, new_axes, percent
from gaussguru.report.pool import has_pool, pool_in_words, pool_table
from gaussguru.report.reliability import (
    Reliability,
    by_error_size,
    draw_reliability,
    error_sizes,
    has_score,
    is_calibrated,
    kappa_in_words,
    larger_error_scores,
    proper_scores,
)

# Largest numbers of samples of a curve, for seconds of work: with a closed form, with quadrature (more than three
# classes), and with noise that is drawn (models that are not linear).
CLOSED, QUADRATURE, SAMPLED = 100_000, 1000, 5000
# Least and greatest number of draws of noise, and number of drawn values at a level. For linear models and many
# samples, drawing is cheaper than quadrature.
REPEATS, VALUES = (10, 100), 30_000_000
# Most classes of a confusion matrix, and most rows of a table.
MOST_LISTED = 15
IN_KERNEL = "the noise of the model, in the space of its kernel"


def evaluation_report(
    model: Estimator,
    X: Values,
    y: Labels,
    X_err: ErrorBars = None,
    *,
    title: str = "Evaluation",
    noise_levels: Values = None,
    absolute: bool = False,
    remeasure: float = 0.5,
    random_state: Seed = 0,
    date: str | datetime | None = None,
    feature_names: Sequence[str] | None = None,
) -> Report:
    """Return a report on the performance of a fitted classifier on some data, and on its robustness to noise.

    It begins with a verdict beside the frequencies of the classes. It has accuracy, confusion matrix and recall, the
    weights of the features in a linear score, the accuracy under noise, the most doubtful predictions, the path of
    sigma if cross-validation chose it, the certificate and the model card. Sections that do not exist for a model are
    left out, and the report says so.

    Of a model with calibrated probabilities (:class:`gaussguru.ErrorBarClassifier`, and
    :class:`gaussguru.calibration.CalibratedWithErrorsCV` in or around a pipeline) it has the reliability of the
    features, whether errors depend on the class, predicted and observed accuracy by the size of the errors, the log
    losses of the members of a pool on held-out samples of its fit, and the samples that should be measured again.

    Parameters
    ----------
    model : fitted classifier, pipeline or search
    X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_err : error bars of X, default=None
    title : str, default="Evaluation"
    noise_levels : array-like of shape (n_levels,), default=None
        In multiples of the error bars. Without error bars, in standard deviations of each feature; for sparse X in the
        units of the features. None is 0 to 3, or to 1 without error bars. Calibrated probabilities count the
        error bars: levels then multiply these, are 1 or more, and None is 1 to 3.
    absolute : bool, default=False
        Whether noise levels are in the units of the features for any X; not where labels depend on error bars.
    remeasure : float, default=0.5
        The error bars of another measurement, in units of those of now, between 0 and 1: for calibrated probabilities.
    random_state : int, RandomState instance or None, default=0
        Seed of noise that is drawn, if the model is not linear, or there are many classes and samples.
    date : str or datetime, default=None
        None is now.
    feature_names : list of str, default=None
        Names of the features where X has none.

    Returns
    -------
    gaussguru.report.page.Report
        Its ``html()`` is the page, and ``save(path)`` writes it to a file.
    """
    card = model_card(model, X, y, X_err)
    X, X_err = split_errors(X, X_err)
    X = as_table(X)
    calibrated = is_calibrated(model)
    if not under_noise.counts_errors(model) and has_unmeasured(X_err):
        X, X_err = under_noise.fill_unmeasured(model, X, X_err)
    y = column_or_1d(y)
    # Sections that fail for a model are left out; wrong data must raise here.
    check_consistent_length(X, y)
    if not under_noise.counts_errors(model) and X_err is not None:
        check_errors(X_err, X)
    noise_levels = None if noise_levels is None else under_noise.check_levels(noise_levels)
    if not 0 <= check_real("remeasure", remeasure, inclusive=True) <= 1:
        raise ValueError(f"remeasure must be between 0 and 1; got {remeasure!r}")
    kind = _CalibratedEvaluation if calibrated else _Evaluation
    page = kind(Report(title, date=date), model, X, y, X_err)
    page.verdict()
    page.summary()
    page.confusion()
    page.features(feature_names)
    if isinstance(page, _CalibratedEvaluation):
        page.population()
        page.probabilities_by_errors()
        page.members()
    page.noise(noise_levels, absolute, random_state)
    if isinstance(page, _CalibratedEvaluation):
        page.remeasure(remeasure)
    page.doubts()
    page.path()
    page.certificate(card)
    page.report.heading("Model card").card(card)
    if page.left_out:
        page.report.heading("Left out")
        for section, reason in page.left_out.items():
            page.report.text(f"{section}: {reason}.")
    return page.report


class _Evaluation:
    """The sections of an evaluation."""

    depends = "the label depends on the errors as well as on the values"

    def __init__(self, report: Report, model: Estimator, X: Values, y: Labels, X_err: ErrorBars) -> None:
        self.report = report
        self.model, self.final = model, final_estimator(model)
        self.X, self.y, self.X_err = X, y, X_err
        self.by_errors = X_err is not None and under_noise.counts_errors(model)
        self.samples = Measured(X, X_err) if self.by_errors else X
        self.predicted = self._predictions()
        self.right = self.predicted == y
        self.left_out: dict[str, str] = {}
        self._prepare()

    def _predictions(self) -> MixedArray:
        return np.asarray(self.model.predict(self.samples))

    def _prepare(self) -> None:
        """Set the attributes that depend on the noise of the model: linearity, units, probabilities of a kernel."""
        model, X, X_err = self.model, self.X, self.X_err
        # The reason for which noise cannot be added to the features; "" if it can.
        self.no_features = ""
        if get_tags(self.final).input_tags.pairwise:
            self.no_features = "X is a kernel matrix, there are no features"
        elif not self.by_errors and not _holds_numbers(X):
            self.no_features = "X holds values that are not finite numbers"
        self.is_linear, why = False, self.no_features
        if self.by_errors:
            why = self.depends
        if not why:
            try:
                under_noise.certified_radius(model, X)
                self.is_linear = True
            except NotLinearError as reason:
                why = str(reason).rstrip(".")
        if why:
            self.left_out["Distance to the boundary"] = why
        self.seen = _seen(model, self.samples)
        # The unit of sigma and of distances.
        self.unit = "units of the features" if self.seen is self.samples else "units of the transformed features"
        # Probabilities of two classes under the noise in the space of a kernel, (n, 2).
        self.in_kernel = None
        if isinstance(self.final, KernelGuruClassifier) and len(self.final.classes_) == 2:
            self.in_kernel = np.asarray(model.predict_proba(self.samples))
        # Names of the kinds of noise that predictions count.
        self.noises = ["the noise of the model"] if hasattr(self.final, "_score_noise") else []
        self.noises += [] if X_err is None else ["the error bars"]

    def verdict(self) -> None:
        """Add the verdict in one sentence."""
        classes = unique_labels(self.y, self.final.classes_)
        judge = Judge(classes)
        probabilities = self._probabilities()
        if probabilities is not None:
            columns = np.zeros((len(self.y), len(classes)))
            columns[:, np.searchsorted(classes, self.final.classes_)] = probabilities
            probabilities = columns
        judge.add(probabilities, *(np.searchsorted(classes, labels) for labels in (self.predicted, self.y)))
        self.judgement = judge.result()
        self.report.lead(self.judgement.verdict(self._reliability(), calibrated=is_calibrated(self.model)))

    def _probabilities(self) -> Array | None:
        """Return the probabilities of the classes, (n, n_classes); None without any."""
        if self.is_linear and self.noises:
            return np.asarray(under_noise.class_probabilities(self.model, self.X, X_err=self.X_err))
        return self.in_kernel

    def _reliability(self) -> Reliability | None:
        """Return predicted and observed accuracy by size of the errors; None if probabilities ignore these."""
        return None

    def _expected(self) -> RowCells:
        """Return the rows of the table of scores with the expected accuracy under noise."""
        if self.by_errors or (self.is_linear and self.noises):
            value = under_noise.expected_accuracy(self.model, self.X, self.y, X_err=self.X_err)
            return [["expected accuracy", percent(value), "", f"with {self.noises[-1]} added to the features"]]
        if self.in_kernel is not None:
            value = expected_score(self.in_kernel, self.final.classes_, self.y)
            return [["expected accuracy", percent(value), "", f"with {IN_KERNEL}"]]
        return []

    def summary(self) -> None:
        """Add the table of scores, with the scores of predicting class frequencies."""
        scores, n = self.judgement, len(self.y)
        base, error = scores.baseline, float(np.sqrt(scores.accuracy * (1 - scores.accuracy) / n))
        counted = f"{self.right.sum()} of {n} samples; standard error {percent(error)}"
        rows = [["accuracy", percent(scores.accuracy), percent(base["accuracy"]), counted], *self._expected()]
        chance = percent(1 / len(scores.classes))
        meaning = "mean recall of the classes"
        rows.append(["balanced accuracy", percent(scores.balanced_accuracy), chance, meaning])
        for name, title in (("log_loss", "log loss"), ("brier_score", "Brier score")):
            if (value := getattr(scores, name)) is not None:
                rows.append([title, f"{value:.4f}", f"{base[name]:.4f}", "of probabilities; 0 is best"])
        if scores.auc is not None:
            each = "" if len(scores.classes) == 2 else ", mean of each class against the rest"
            rows.append(["AUC", f"{scores.auc:.4f}", "0.5000", f"area under the ROC curve{each}"])
        rows += self._errors_ignored()
        self.report.heading("Accuracy").table(["", "model", "class frequencies", "meaning"], rows)

    def _errors_ignored(self) -> RowCells:
        """Return the rows of the table of scores if the model is told that all measured values are exact."""
        if not self.by_errors or isinstance(self.X_err, Limits) or not is_calibrated(self.model):
            return []
        exact = np.where(not_measured(self.X_err, self.X.shape), np.inf, 0.0)
        probabilities = np.asarray(self.model.predict_proba(Measured(self.X, exact)))
        places, base = np.searchsorted(self.final.classes_, np.asarray(self.y)), self.judgement.baseline
        accuracy, (log_loss, _) = np.mean(probabilities.argmax(axis=1) == places), proper_scores(probabilities, places)
        told = "the same model, told that all measured values are exact"
        return [
            ["accuracy, errors ignored", percent(float(accuracy)), percent(base["accuracy"]), told],
            ["log loss, errors ignored", f"{log_loss:.4f}", f"{base['log_loss']:.4f}", told],
        ]

    def features(self, names: Sequence[str] | None) -> None:
        """Add the weights of features in a linear score."""
        try:
            weights = coefficients(self.model, self.samples).per_spread
        except (TypeError, ValueError):
            self.left_out["Weights of the features"] = f"{type(self.final).__name__} has no linear score of them"
            if is_calibrated(self.model):
                self.importance(names)
            return
        names = list(map(str, getattr(self.X, "columns", names or range(self.X.shape[1]))))
        size = np.abs(weights).max(axis=0)
        order = np.argsort(-size, kind="stable")[:MOST_LISTED]
        classes = ["weight"] if len(weights) == 1 else [f"for {name}" for name in self.final.classes_]
        more = f" The {MOST_LISTED} largest of {len(names)}." if len(names) > MOST_LISTED else ""
        self.report.heading("Weights of the features").table(
            ["feature", *classes],
            [[names[j], *weights[:, j].tolist()] for j in order],
            caption="Coefficients times the standard deviation of the feature: by how much the score changes if a "
            f"typical difference is added.{more}",
        )

    def importance(self, names: Sequence[str] | None) -> None:
        """Add the rise of the log loss where a feature was not measured."""
        n, d = self.X.shape
        names = list(map(str, getattr(self.X, "columns", names or range(d))))
        index = np.sort(np.random.default_rng(0).permutation(n)[: max(100, SAMPLED // d)])
        X, X_err = take_rows(self.X, index), None if self.X_err is None else take_rows(self.X_err, index)
        try:
            found = feature_importance(self.model, X, self.y[index], X_err)
        except (TypeError, ValueError) as error:
            self.left_out["Importance of the features"] = str(error)
            return
        order = np.argsort(-found.importance, kind="stable")[:MOST_LISTED]
        some = f" By {len(index)} of the samples." if len(index) < n else ""
        more = f" The {MOST_LISTED} largest of {d}." if d > MOST_LISTED else ""
        self.report.heading("Importance of the features").table(
            ["feature", "rise of log loss", "standard error"],
            [[names[j], f"{found.importance[j]:.4f}", f"{found.error[j]:.4f}"] for j in order],
            caption=f"By how much the log loss rises if the feature is not measured.{more}{some}",
        )

    def confusion(self) -> None:
        """Add the confusion matrix, or the most frequent confusions of many classes."""
        classes = unique_labels(self.y, self.predicted)
        matrix = confusion_matrix(self.y, self.predicted, labels=classes)
        names = [str(label) for label in classes]
        if len(names) <= MOST_LISTED:
            rows = [
                [name, *counts.tolist(), percent(counts[k] / counts.sum()) if counts.any() else None]
                for k, (name, counts) in enumerate(zip(names, matrix, strict=True))
            ]
            header, caption = [f"as {name}" for name in names], "Number of samples, by true and predicted class."
            self.report.heading("Confusion matrix").table(["true class", *header, "right"], rows, caption=caption)
            return
        np.fill_diagonal(matrix, 0)
        worst = [index for index in np.argsort(-matrix, axis=None, kind="stable")[:MOST_LISTED] if matrix.flat[index]]
        rows = [[names[p // len(names)], names[p % len(names)], int(matrix.flat[p])] for p in worst]
        self.report.heading("Most frequent confusions").table(["true class", "predicted", "samples"], rows)
        self.left_out["Confusion matrix"] = f"it would have {len(names)} rows"

    def noise(self, noise_levels: Values, absolute: bool, random_state: Seed) -> None:
        """Add the curve of accuracy against noise on the features."""
        section = "Accuracy under noise"
        if self.no_features:
            self.left_out[section] = self.no_features
            return
        X, y, X_err, top = self.X, self.y, None if absolute and not self.by_errors else self.X_err, 1.0
        if X_err is not None:
            unit, top = "multiples of the error bars", 3.0
        elif absolute or sp.issparse(X) or under_noise.counts_errors(self.model):
            # X_err would tell that these values are exact.
            unit = "units of the features"
        else:
            unit, X_err = "standard deviations of each feature", _spreads(X)
        method, most, repeats = self._plan()
        is_closed = method == "analytic" and len(self.final.classes_) <= 3
        levels = np.linspace(0, top, 13 if is_closed else 7) if noise_levels is None else noise_levels
        how = "Computed without drawing noise" if method == "analytic" else f"Mean over {repeats} draws of noise"
        n, m = len(y), min(most, len(y))
        note = " Predictions are given the larger error bars." if self.by_errors else ""
        if m < n:
            index = self._sampled(m)
            X, y = take_rows(X, index), y[index]
            X_err = None if X_err is None else take_rows(X_err, index)
            how += f", for {m} of the {n} samples, drawn at random"
            note += (
                f" Without noise the model is right for {percent(self.right[index].mean())} of these samples, and for "
                f"{percent(self.right.mean())} of all. Standard errors include that of drawing them."
            )
        curve = under_noise.robustness_curve(
            self.model, X, y, levels, X_err=X_err, method=method, n_repeats=repeats, random_state=random_state
        )
        # The variance of numbers in [0, 1] of mean p is at most p (1 - p); of m among n samples, times 1 - m/n.
        chance = curve.accuracy * (1 - curve.accuracy) / m * (1 - m / n)
        curve = curve._replace(error=np.sqrt(np.square(curve.error) + chance))
        display = RobustnessCurveDisplay(*curve, unit=unit).plot(new_axes())
        self.report.heading(section).figure(
            display, caption=f"{how}: the expected accuracy if noise is added to the features, in {unit}.{note}"
        )
        header, columns = ["noise level", "accuracy"], [curve.noise_levels, [*map(percent, curve.accuracy)]]
        if curve.error.any():
            header, columns = [*header, "standard error"], [*columns, [*map(percent, curve.error)]]
        rows = list(zip(*columns, strict=True))
        self.report.table(header, rows[:: -(-len(rows) // 7)])

    def _sampled(self, most: int) -> Index:
        """Return the sorted indices of at most ``most`` samples, drawn at random."""
        n = len(self.y)
        return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).permutation(n)[:most])

    def _plan(self) -> tuple[str, int, int]:
        """Return the method for the accuracy under noise, the largest number of samples, and the number of draws."""
        n, n_features = self.X.shape
        least, greatest = REPEATS
        affordable = VALUES // (least * n_features)
        if not self.is_linear:
            return "sampling", min(SAMPLED, max(QUADRATURE, affordable)), 10
        if len(self.final.classes_) <= 3:
            return "analytic", CLOSED, 10
        if n <= QUADRATURE or affordable <= QUADRATURE:
            return "analytic", QUADRATURE, 10
        return "sampling", affordable, min(greatest, max(least, VALUES // (n * n_features)))

    def doubts(self) -> None:
        """Add the predictions that noise changes most easily."""
        section = "Doubtful predictions"
        if self.noises and (self.is_linear or (self.by_errors and hasattr(self.final, "coef_"))):
            noise = " and ".join(self.noises)
            flips = under_noise.flip_probability(self.model, self.X, X_err=self.X_err)
        elif self.in_kernel is not None:
            noise, flips = IN_KERNEL, 1.0 - self.in_kernel.max(axis=1)
        else:
            self.left_out[section] = f"the effect of noise on predictions of {type(self.final).__name__} is not known"
            return
        rows = self._groups(flips)
        self.report.heading(section).text(
            f"The probability that noise changes the predicted label, where noise is {noise}. This is not the "
            "probability that the label is wrong, because it ignores the overlap of the classes; the last column and "
            "probabilities of gaussguru.calibration.CalibratedWithErrorsCV account for it."
        )
        self.report.table(["probability of a change", "samples", "accuracy among them"], rows)
        most = np.argsort(-flips, kind="stable")[:10]
        counted, counting, cells = self._named(most)
        header = [counted, "predicted", "true", "probability of a change"]
        cells = [[*row, percent(flips[i])] for row, i in zip(cells, most, strict=True)]
        caption = f"The most doubtful predictions{counting}"
        if self.is_linear:
            radius = under_noise.certified_radius(self.final, self.seen)
            header.append("distance to the boundary")
            cells = [[*row, float(radius[i])] for row, i in zip(cells, most, strict=True)]
            caption += f"; distances are in {self.unit}"
        self.report.table(header, cells, caption=f"{caption}.")

    def _groups(self, doubts: Array) -> RowCells:
        """Return rows for groups of doubts: name, number of predictions, and the fraction of right ones."""
        names = ["below 0.1 %", "0.1 % to 1 %", "1 % to 10 %", "10 % to 25 %", "25 % and more"]
        places = np.digitize(doubts, [0.001, 0.01, 0.1, 0.25])
        members = [self.right[places == group] for group in range(5)]
        return [
            [name, len(right), percent(right.mean()) if len(right) else None]
            for name, right in zip(names, members, strict=True)
        ]

    def _named(self, rows: Index) -> tuple[str, str, RowCells]:
        """Return the header of row names, a clause on it, and the cells (name, predicted, true label) of given rows."""
        names, counted = _row_names(self.X)
        words = "; rows are counted from 1" if counted == "row" else ", by the index of the table"
        return counted, words, [[str(names[i]), str(self.predicted[i]), str(self.y[i])] for i in rows]

    def path(self) -> None:
        """Add the scores of the noise levels among which cross-validation chose."""
        if not isinstance(self.final, GuruClassifierCV):
            return
        n_folds, sigma = self.final.scores_.shape[1], self.final.sigma_
        caption = f"Mean score of {n_folds} folds at each noise level; sigma = {sigma:.4g} was chosen, in {self.unit}."
        display = SigmaPathDisplay.from_cv(self.final, unit=self.unit, ax=new_axes())
        self.report.heading("Choice of the noise level").figure(display, caption=caption)

    def certificate(self, card: Mapping[str, Record]) -> None:
        """Add the duality gap of the fit, in words."""
        if "certificate" not in card:
            self.left_out["Certificate"] = f"{type(self.final).__name__} has none"
            return
        proof = card["certificate"]
        objective, gap = proof["objective"], proof["duality gap"]
        text = (
            f"The objective of the fit is {objective:.6g}. It is proven that no coefficients have an objective below "
            f"{max(0.0, objective - gap):.6g}: the duality gap is {gap:.2g}."
        )
        if not proof.get("converged", True):
            text += " The fit did not reach the requested tolerance."
        self.report.heading("Certificate").text(text)


class _CalibratedEvaluation(_Evaluation):
    """The sections of an evaluation of calibrated probabilities."""

    def _predictions(self) -> MixedArray:
        self.probabilities = np.asarray(self.model.predict_proba(self.samples))
        best = np.argmax(self.probabilities, axis=1)
        self.of_predicted = self.probabilities[np.arange(len(best)), best]
        return np.asarray(self.final.classes_[best])

    def _prepare(self) -> None:
        """Set the sizes of the errors; raise for unknown labels."""
        classes = self.final.classes_
        if not np.isin(self.y, classes).all():
            raise ValueError(f"y must hold labels among the classes {classes.tolist()!r}")
        self.sizes = error_sizes(self.model, self.samples)
        self.left_out["Distance to the boundary"] = self.depends
        if self.X_err is None:
            self.left_out["Error bars"] = "these samples have none"

    def _probabilities(self) -> Array | None:
        """Return the probabilities of the classes, (n, n_classes)."""
        return self.probabilities

    def _reliability(self) -> Reliability | None:
        """Return predicted and observed accuracy by size of the errors."""
        return by_error_size(self.sizes, self.of_predicted, self.right)

    def _expected(self) -> RowCells:
        """Return the row of the table of scores with the mean probability of the predicted labels."""
        share = percent(self.of_predicted.mean())
        return [["expected accuracy", share, "", "the mean probability of the predicted labels"]]

    def population(self) -> None:
        """Add the reliability of the features, and whether their errors depend on the class."""
        section = "Population and reliability"
        if self.X_err is None:
            return
        fitted = _population(self.model, self.samples[self._sampled(10_000)])  # reliabilities are known to 0.01
        if fitted is None:
            self.left_out[section] = f"{type(self.final).__name__} was fitted without a population of all true values"
            return
        population, samples = fitted
        values, errors = split_errors(samples)
        named = hasattr(population, "feature_names_in_")
        shares = population.reliability(values if named else np.asarray(values), errors)
        is_missing = not_measured(errors, values.shape)
        # A scaler before the population keeps the features, but loses their names.
        owner = self.X if self.X.shape[1] == values.shape[1] else values
        names = list(getattr(owner, "columns", [str(j) for j in range(values.shape[1])]))
        order = np.argsort(shares, kind="stable")
        rows = [[str(names[j]), f"{shares[j]:.3f}", percent(is_missing[:, j].mean())] for j in order[:MOST_LISTED]]
        more = f"; {len(order) - MOST_LISTED} others are more reliable" if len(order) > MOST_LISTED else ""
        kinds = "one Gaussian" if population.n_components_ == 1 else f"{population.n_components_} Gaussians"
        self.report.heading(section).text(
            "The reliability of a feature is the share of the variance of its true values that these measurements "
            "resolve: 1 for exact values, 0 for missing ones; at 0.75, the errors hide a quarter of the variance. The "
            f"population of true values is modelled by {kinds}."
        )
        caption = f"The least reliable features first{more}."
        caption += " Limits count as not measured." * isinstance(errors, Limits)
        self.report.table(["feature", "reliability", "not measured"], rows, caption=caption)
        self._selection()

    def _selection(self) -> None:
        """Add how well the errors alone predict the class."""
        index = self._sampled(10_000)
        y = self.y[index]
        _, counts = np.unique(y, return_counts=True)
        errors: ErrorBars = take_rows(self.X_err, index)
        errors = errors.err if isinstance(errors, Limits) else errors
        if counts.min() < 5 or len(counts) < 2:
            self.left_out["Errors that depend on the class"] = "a class has fewer than five samples"
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a regression that stops early
            area = predictive_of_errors(errors, y)
        text = (
            f"The sizes of the errors alone predict the class with an area under the ROC curve of {area:.3f} (0.5: not "
            "at all). "
        )
        if area < 0.6:
            text += "So the errors hardly depend on the class."
        elif area < 0.75:
            text += (
                "So the errors depend somewhat on the class. This model uses them only as error bars; a model with "
                "errors as features would rely on this dependence, and fail if samples are selected in another way."
            )
        else:
            text += (
                "Warning: the errors depend on the class, for example because interesting samples were observed "
                "longer. This model uses them only as error bars, but the samples may be selected, too: be careful "
                "with samples that were chosen or measured in another way. A model with errors as features learns the "
                "selection."
            )
        self.report.text(text)

    def probabilities_by_errors(self) -> None:
        """Add predicted and observed frequencies, by the size of the errors."""
        final, classes = self.final, self.final.classes_
        places = np.searchsorted(classes, self.y)
        text = "The probabilities account for the overlap of the classes and for the error bars of each sample."
        if has_score(self.model):
            scaled = bool(getattr(final, "scale_errors", False))
            text += " " + kappa_in_words(final.kappa_, final.kappa_pvalue_, scaled=scaled)
        self.report.heading("Probabilities").text(text)
        two = len(classes) == 2
        chances, events = (self.probabilities[:, 1], places == 1) if two else (self.of_predicted, self.right)
        event = f"{classes[1]}" if two else "the predicted label"
        self.report.figure(
            draw_reliability(new_axes(), self.sizes, chances, events, event),
            caption="Observed frequencies in groups of samples with similar predicted probabilities. Bars are one "
            "standard deviation, if the predicted probabilities are right.",
            alt="Predicted probabilities against observed frequencies, by the size of errors",
        )
        size = "spread of the score in units of the overlap of the classes"
        size = size if has_score(self.model) else "root of the mean share of errors in the variance of the features"
        groups = by_error_size(self.sizes, self.of_predicted, self.right)
        rows = [[*row[:3], *map(percent, row[3:])] for row in zip(*groups, strict=True)]
        self.report.table(
            ["errors", "samples", "median size", "predicted", "observed", "standard deviation"],
            rows,
            caption=f"Predicted and observed accuracy by the size of the errors, measured by the {size}. Differences "
            "of up to two standard deviations are usual.",
        )

    def members(self) -> None:
        """Add weights and log losses of the members of a pool, on held-out samples of the fit."""
        if not has_pool(self.final):
            return
        scores = self.final.cv_scores_
        self.report.heading("Members of the pool").text(
            "The probabilities are an average of those of several classifiers. Their weights and log losses, on "
            "samples of the fit that were held out; lower is better. " + " ".join(pool_in_words(scores))
        )
        columns = pool_table(scores)
        self.report.table(list(columns), list(zip(*columns.values(), strict=True)))

    def noise(self, noise_levels: Values, absolute: bool, random_state: Seed) -> None:
        """Add accuracy and log loss with larger errors."""
        section = "Accuracy with larger errors"
        if self.X_err is None:
            self.left_out[section] = "these samples have no error bars"
            return
        levels = np.array([1.0, 1.5, 2.0, 3.0]) if noise_levels is None else noise_levels
        if levels.min() < 1:
            raise ValueError(f"noise_levels must be 1 or more, multiples of the error bars; got {levels.min():g}")
        n = len(self.y)
        index = self._sampled(CLOSED if len(self.final.classes_) <= 3 else SAMPLED)
        seed = random_state if isinstance(random_state, int) else check_random_state(random_state).randint(2**31 - 1)
        X, X_err = take_rows(self.X, index), take_rows(self.X_err, index)
        rng = np.random.default_rng(seed)
        accuracy, log_loss = larger_error_scores(self.model, X, X_err, self.y[index], levels, rng)
        error = np.where(levels > 1, np.sqrt(accuracy * (1 - accuracy) / len(index)), 0.0)
        unit = "multiples of the error bars"
        whole = "" if len(index) == n else f", for {len(index)} of the {n} samples, drawn at random"
        self.report.heading(section)
        if len(levels) > 1:
            curve = under_noise.RobustnessCurve(levels, accuracy, error)
            self.report.figure(
                RobustnessCurveDisplay(*curve, unit=unit).plot(new_axes()),
                caption=f"Accuracy if the errors are larger, and the error bars with them, in {unit}. Noise is drawn "
                f"once{whole}.",
            )
        rows = list(zip(levels, map(percent, accuracy), (f"{loss:.4f}" for loss in log_loss), strict=True))
        self.report.table(["noise level", "accuracy", "log loss"], rows)

    def remeasure(self, factor: float) -> None:
        """Add the samples that should be measured again."""
        section = "Measure these again"
        if self.X_err is None or isinstance(self.X_err, Limits) or np.ndim(self.X_err) not in (1, 2):
            self.left_out[section] = "it requires standard deviations, without limits"
            return
        index = self._sampled(CLOSED if len(self.final.classes_) <= 3 and not has_pool(self.final) else QUADRATURE)
        X, errors = take_rows(self.X, index), np.asarray(take_rows(self.X_err, index), dtype=np.float64)
        errors = np.broadcast_to(errors.reshape(len(index), -1), X.shape)
        known = np.isfinite(errors)
        better = np.where(known, factor * np.where(known, errors, 0.0), np.inf)
        try:
            gain = remeasure_gain(self.model, X, errors, better)
        except NotLinearError as reason:
            self.left_out[section] = str(reason).rstrip(".")
            return
        total, n = float(gain.sum()), len(index)
        size = "exact values" if factor == 0 else f"errors {factor:g} times as large as now"
        whole = "" if n == len(self.y) else f" Computed for {n} of the {len(self.y)} samples, drawn at random."
        self.report.heading(section).text(
            f"The gain of a sample is the expected drop in the probability of a wrong label if the sample is measured "
            f"again, with {size}. Measuring all samples again would avoid {total:.3g} of the "
            f"{(1 - self.of_predicted[index]).sum():.3g} expected errors.{whole}"
        )
        if not total > 0:
            return
        self.report.figure(
            RemeasureDisplay.from_predictions(gain, ax=new_axes()),
            caption="Expected number of errors avoided, if the samples with the largest gains are measured first.",
        )
        most = np.argsort(-gain, kind="stable")[:10]
        most = most[gain[most] > 0]
        parts = remeasure_gain(self.model, take_rows(X, most), errors[most], better[most], per_feature=True)
        names = list(getattr(X, "columns", [str(j) for j in range(X.shape[1])]))
        counted, counting, cells = self._named(index[most])
        rows = []
        for row, i, part in zip(cells, most, parts, strict=True):
            best = str(names[int(np.argmax(part))]), percent(part.max())
            rows.append([*row, percent(self.of_predicted[index[i]]), percent(gain[i]), *best])
        self.report.table(
            [counted, "predicted", "true", "probability", "gain", "best feature", "its gain alone"],
            rows,
            caption=f"The samples with the largest gain{counting}. Missing values stay missing.",
        )

    def doubts(self) -> None:
        """Add the predictions that are most likely wrong."""
        doubts = 1.0 - self.of_predicted
        self.report.heading("Doubtful predictions").text(
            "Samples grouped by the predicted probability that their label is wrong, and the accuracy in each group."
        )
        self.report.table(["probability of an error", "samples", "accuracy among them"], self._groups(doubts))
        most = np.argsort(-doubts, kind="stable")[:10]
        counted, counting, cells = self._named(most)
        rows = [[*row, percent(doubts[i])] for row, i in zip(cells, most, strict=True)]
        header = [counted, "predicted", "true", "probability of an error"]
        self.report.table(header, rows, caption=f"The most doubtful predictions{counting}.")


def _population(model: Estimator, samples: Values) -> tuple[Deconvolve, Values] | None:
    """Return the fitted population of true values of a model, and the samples in its units; None without one."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(getattr(model, "population_", None), Deconvolve):
        return model.population_, samples
    if hasattr(model, "estimator_"):
        return _population(model.estimator_, samples)
    for _, step in getattr(model, "steps", []):
        if isinstance(step, Deconvolve):
            return step, samples
        if hasattr(step, "predict"):
            return _population(step, samples)
        samples = step.transform(samples)
    return None


def _holds_numbers(X: Values) -> bool:
    """Return whether noise can be added to the values of X."""
    try:
        return bool(np.isfinite(X.data if sp.issparse(X) else np.asarray(X, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return False


def _seen(model: Estimator, X: Values) -> Values:
    """Return the input of the last step of a pipeline for X; X itself for other models."""
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, Pipeline):
        return X
    return _seen(model[-1], model[:-1].transform(X) if len(model) > 1 else X)


def _row_names(X: Values) -> tuple[Any, str]:
    """Return the names of rows, and "row" or "index": numbers from 1, or the index of a table if it is no range."""
    index = getattr(X, "index", None)
    if index is None or list(index) == list(range(len(index))):
        return range(1, X.shape[0] + 1), "row"
    return list(index), "index"


def _spreads(X: Values) -> Array:
    """Return the standard deviation of the feature of every value, (n_samples, n_features)."""
    values = np.asarray(X, dtype=np.float64)
    return np.broadcast_to(values.std(axis=0), values.shape)
