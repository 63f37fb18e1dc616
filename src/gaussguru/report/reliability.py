"""Predicted probabilities against observed frequencies, by the size of the error bars."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussguru._errors.checks import check_errors
from gaussguru._errors.missing import not_measured
from gaussguru._errors.parse import finite
from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import ByProbability
from gaussguru._measured.affine import dense, final_estimator
from gaussguru._measured.calibrated import margin_and_spread
from gaussguru._measured.under_noise import with_larger_errors
from gaussguru._utils.linalg import SAME, Array
from gaussguru._utils.types import Axes, ErrorBars, Estimator, Labels, Values
from gaussguru.plotting import style

# Names of groups of equal numbers of samples, by the size of their error bars.
THIRDS = ("small", "medium", "large")


class Reliability(NamedTuple):
    """Predicted and observed accuracy of samples with small, medium and large errors.

    ``errors`` names the groups, ``rows`` counts their samples, ``size`` is their median error, in units of the overlap
    of the classes; ``predicted`` is the mean probability of the predicted label, ``observed`` the fraction of right
    labels, and ``standard_error`` the standard deviation of this fraction if the probabilities are right.
    """

    errors: list[str]
    rows: list[int]
    size: list[float]
    predicted: list[float]
    observed: list[float]
    standard_error: list[float]


def is_calibrated(model: Estimator) -> bool:
    """Return whether the probabilities of a model count error bars and the overlap of the classes."""
    return isinstance(final_estimator(model), ByProbability)


def has_score(model: Estimator) -> bool:
    """Return whether calibrated probabilities come from linear scores, which have a spread under the error bars."""
    return hasattr(final_estimator(model), "alpha_")


def error_sizes(model: Estimator, X: Values, X_err: ErrorBars = None) -> Array:
    """Return the size of the errors of every sample: the spread of its score, in units of the overlap of the classes.

    For two classes, ``alpha s`` with the spread s of the score under the error bars as they are stated; for more, the
    root of the mean square over scores, whose overlap has the variance 1/2. Without a score (:func:`has_score`), the
    root of the mean over features of ``e^2 / (e^2 + t^2)``, for errors e and the spread t of the feature: 0 if all
    values are exact, 1 if none was measured. The spread is that of the population of a pool, and for other models, and
    pipelines, the standard deviation among these samples.

    Parameters
    ----------
    model : fitted classifier, Pipeline or search, with calibrated probabilities
    X : array-like, DataFrame or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    final = final_estimator(model)
    if not has_score(model):
        values, errors = split_errors(X, X_err)
        if errors is None:
            return np.zeros(values.shape[0])
        is_missing = not_measured(errors, values.shape)
        spread = getattr(model, "_spreads", None)
        if spread is None:
            spread = np.ma.masked_array(dense(values), is_missing).std(axis=0).filled(0.0)
        noise = check_errors(finite(errors), np.where(is_missing, 0.0, dense(values))).variances(np.eye(len(spread)))
        total = noise + np.square(spread)
        shares = np.divide(noise, total, out=np.zeros(noise.shape), where=total > 0)
        return np.asarray(np.sqrt(np.where(is_missing, 1.0, shares).mean(axis=1)))
    _, spread = margin_and_spread(model, X, X_err)
    size = spread if spread.ndim == 1 else np.sqrt(2.0 * np.square(spread).mean(axis=1))
    return np.asarray(final.alpha_ * size)


def by_error_size(sizes: Array, predicted: Array, right: NDArray[np.bool_]) -> Reliability:
    """Compare predicted probabilities with the accuracy, by thirds of the size of the errors.

    Parameters
    ----------
    sizes : array of shape (n_samples,)
        As from :func:`error_sizes`.
    predicted : array of shape (n_samples,)
        Probabilities of the predicted labels.
    right : array of bool of shape (n_samples,)
        Whether these labels are right.

    Returns
    -------
    Reliability
        One group if all errors are the same.
    """
    groups = error_thirds(sizes)
    summaries: list[tuple[Any, ...]] = []
    for k, name in enumerate(THIRDS if groups.any() else ("all",)):
        rows = groups == k
        if n := int(rows.sum()):
            p, observed = predicted[rows], float(right[rows].mean())
            deviation = float(np.sqrt(np.sum(p * (1 - p)))) / n
            summaries.append((name, n, float(np.median(sizes[rows])), float(p.mean()), observed, deviation))
    return Reliability(*(list(column) for column in zip(*summaries, strict=True)))


def error_thirds(sizes: Array) -> NDArray[np.intp]:
    """Return 0, 1 or 2 for samples of small, medium and large errors, which are about a third each; 0 if all are same.

    Parameters
    ----------
    sizes : array of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    if not len(sizes) or np.ptp(sizes) <= SAME * np.max(np.abs(sizes)):
        return np.zeros(len(sizes), dtype=np.intp)
    return np.searchsorted(np.quantile(sizes, [1 / 3, 2 / 3]), sizes, side="left")


def larger_error_scores(
    model: Estimator, X: Values, X_err: ErrorBars, y: Labels, factors: Any, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return accuracy and log loss with larger errors, for which noise is drawn once.

    Parameters
    ----------
    model : fitted classifier with calibrated probabilities, pipeline or search
    X : array or DataFrame of shape (n_samples, n_features)
    X_err : error bars of X
    y : array-like of shape (n_samples,)
    factors : array-like of shape (n_factors,)
        By what errors are multiplied, 1 or more.
    rng : Generator

    Returns
    -------
    accuracy, log_loss : ndarrays of shape (n_factors,)
    """
    noisy = (with_larger_errors(X, X_err, factor, rng) for factor in factors)
    return scores_of(model, noisy, np.searchsorted(final_estimator(model).classes_, np.asarray(y)))


def scores_of(model: Estimator, versions: Iterable[Values], places: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return accuracy and log loss of a model on several versions of samples, given their classes by number."""
    scores = []
    for samples in versions:
        probabilities = model.predict_proba(samples)
        accuracy = float(np.mean(np.argmax(probabilities, axis=1) == places))
        scores.append((accuracy, proper_scores(probabilities, places)[0]))
    accuracy, log_loss = np.transpose(scores)
    return accuracy, log_loss


def proper_scores(probabilities: Array, places: NDArray[np.intp]) -> tuple[float, float]:
    """Return log loss and Brier score.

    Parameters
    ----------
    probabilities : array of shape (n_samples, n_classes)
        Those below the precision of float64 count as that in the log loss.
    places : array of shape (n_samples,)
        Which class each sample has.

    Returns
    -------
    log_loss : float
    brier_score : float
        As in scikit-learn: of two classes the mean square of the error of the second one's probability, of more the sum
        over classes.
    """
    truth = np.zeros(probabilities.shape)
    rows = np.arange(len(places))
    truth[rows, places] = 1.0
    of_true = np.clip(probabilities[rows, places], np.finfo(np.float64).eps, 1.0)
    share = 0.5 if probabilities.shape[1] == 2 else 1.0
    return float(-np.log(of_true).mean()), share * float(np.square(probabilities - truth).sum(axis=1).mean())


def kappa_in_words(kappa: float, pvalue: float | None, *, scaled: bool) -> str:
    """Return in a sentence or two whether error bars matter for probabilities, and whether they are right.

    Parameters
    ----------
    kappa : float
        The factor of the error bars.
    pvalue : float or None
        Of the hypothesis that they do not matter; None or NaN without any.
    scaled : bool
        Whether the factor was fitted.

    Returns
    -------
    str
    """
    if pvalue is None or np.isnan(pvalue):
        return "The fit had no error bars."
    p = f"p = {pvalue:.2g}"
    if pvalue < 0.01:
        text = f"The error bars matter: probabilities that ignore them fit the labels clearly worse ({p})."
    elif pvalue < 0.05:
        text = f"The error bars probably matter: probabilities that ignore them fit the labels worse ({p})."
    else:
        text = f"The labels give no sign that the error bars matter for the probabilities ({p})."
    if not scaled:
        return f"{text} They are used as stated."
    if kappa == 0:
        return f"{text} The best-fitting factor on the error bars is 0: they are ignored."
    if max(kappa, 1 / kappa) <= 1.2:
        return f"{text} Judged by the labels, their size is about right: the best-fitting factor is {kappa:.3g}."
    direction = "larger" if kappa > 1 else "smaller"
    return (
        f"{text} Judged by the labels, they are {direction} than stated: the best-fitting factor, {kappa:.3g}, is used."
    )


def draw_reliability(ax: Axes, sizes: Array, chances: Array, events: NDArray[np.bool_], what: str) -> Axes:
    """Draw how often something happened against its probability, a line for each third of the errors.

    Parameters
    ----------
    ax : matplotlib Axes
    sizes : array of shape (n_samples,)
        As from :func:`error_sizes`.
    chances : array of shape (n_samples,)
        Probabilities of the event.
    events : array of bool of shape (n_samples,)
        Whether it happened.
    what : str
        The event.

    Returns
    -------
    ax
    """
    thirds = error_thirds(sizes)
    least = min(1.0, float(chances.min()))
    ax.plot([least, 1], [least, 1], label="as predicted", **style.REFERENCE)
    names = [f"{name} errors" for name in THIRDS] if thirds.any() else ["all samples"]
    for k, name in enumerate(names):
        members = np.flatnonzero(thirds == k)
        if not len(members):
            continue
        # Groups of similar probability, closer near 0 and 1, of five samples at least.
        places = np.searchsorted([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98], chances[members])
        parts = [part for group in range(8) if len(part := members[places == group]) >= 5]
        x, seen = (np.array([values[part].mean() for part in parts]) for values in (chances, events))
        spread = [np.sqrt(np.sum(chances[part] * (1 - chances[part]))) / len(part) for part in parts]
        ax.errorbar(x, seen, yerr=spread, elinewidth=0.8, capsize=2, label=name, **style.line_of(k, markers=True))
    ax.set_ylim(-0.03, 1.03)
    style.finish(ax, f"predicted probability of {what}", "observed frequency", "Probabilities by the size of errors")
    return ax
