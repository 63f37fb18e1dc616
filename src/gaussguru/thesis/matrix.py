"""Every adversary of a fit against every corruption of tests, with two classes (thesis, chapters 1 and 6)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from gaussguru import AdversarialSVC, FeatureDropSVC, GuruClassifier
from gaussguru._utils.linalg import Array
from gaussguru.plotting import style
from gaussguru.thesis.problems import BINARY, ThesisProblem
from gaussguru.thesis.results import TextTable
from gaussguru.thesis.search import FittedCandidate, Measure, accuracy_on, best, fitted
from gaussguru.thesis.splits import ThesisSplit
from gaussguru.thesis.store import Key, Store, make_key


def _breast_cancer(*, data_home: Any, return_X_y: bool) -> Any:
    return load_breast_cancer(return_X_y=return_X_y)


# Features in the same units, so that noise of one level is comparable; pixels have them already.
PROBLEMS: dict[str, ThesisProblem] = {
    **{name: BINARY[name] for name in ("toy-a", "toy-b", "usps-3-5", "usps-5-8", "usps-7-9", "pima-standardised")},
    **{name: replace(BINARY[name], standardise=True) for name in ("ionosphere", "splice-1-2")},
    "breast-cancer": ThesisProblem("breast cancer", _breast_cancer, "ionosphere", standardise=True),  # of its size
}
# Standard deviations of a feature under noise, and radii of balls, in units of the root mean variance of the features.
LEVELS = (0.25, 0.5, 1.0)
# The level of the table.
SHOWN = 1
# The fraction of the features that are deleted at level 1, and at least one.
DELETED = 0.05
TOL = 1e-4
Candidates = Callable[[ThesisSplit, float], Iterator[FittedCandidate]]


def _guru(exponents: range, **options: Any) -> Candidates:
    """Return a search over sigmas, in powers of 2 of the spread of the features."""

    def candidates(split: ThesisSplit, spread: float) -> Iterator[FittedCandidate]:
        for exponent in exponents:
            model = GuruClassifier(spread * 2.0**exponent, tol=TOL, **options)
            yield fitted(model, split, {"sigma": 2.0**exponent})

    return candidates


def _ball(split: ThesisSplit, spread: float) -> Iterator[FittedCandidate]:
    for exponent in range(4, -6, -1):
        model = AdversarialSVC(spread * 2.0**exponent, lam=LEAST_PENALTY, tol=TOL)
        yield fitted(model, split, {"delta": 2.0**exponent})


def _ellipsoid(split: ThesisSplit, spread: float) -> Iterator[FittedCandidate]:
    """Search over ellipsoids whose axes are in proportion to the standard deviations of the features."""
    deviations = np.broadcast_to(split.X_train.std(axis=0), split.X_train.shape)
    for exponent in range(4, -6, -1):
        model = AdversarialSVC(2.0**exponent, lam=LEAST_PENALTY, tol=TOL)
        yield fitted(model, split, {"delta": 2.0**exponent}, X_err=deviations)


def _drop(split: ThesisSplit, spread: float) -> Iterator[FittedCandidate]:
    d, shares = split.X_train.shape[1], (0.2, 0.1, 0.05, 0.025, 0.0)  # of the features that the adversary deletes
    for n_drop in sorted({max(1, round(d * share)) for share in shares}, reverse=True):
        model = FeatureDropSVC(n_drop, lam=LEAST_PENALTY, tol=TOL)
        yield fitted(model, split, {"n_drop": n_drop})


# Where noise is the regularisation.
LEAST_PENALTY = 0.01
ADVERSARIES: dict[str, Candidates] = {
    "Gaussian": _guru(range(4, -6, -1)),
    "moment": _guru(range(4, -6, -1), loss="moment"),
    "ball": _ball,
    "ellipsoid": _ellipsoid,
    "drop": _drop,
    "axis": _guru(range(6, -4, -1), noise="axis"),
}


def _noisy(draw: Callable[[np.random.Generator, Any], Array]) -> Callable[..., Measure]:
    """Return the accuracy on samples with noise of mean 0 and variance 1, times a scale."""

    def measure(X: Array, y: NDArray[Any], scale: float, level: float, rng: np.random.Generator) -> Measure:
        return accuracy_on(X + scale * draw(rng, X.shape), y)

    return measure


def _worst(share: Callable[..., Array]) -> Callable[..., Measure]:
    """Return the mean of a share of every sample that stays right, from its score times its label, w, and signed x."""

    def measure(X: Array, y: NDArray[Any], scale: float, level: float, rng: np.random.Generator) -> Measure:
        def of(candidate: FittedCandidate) -> float:
            model = candidate.model
            signs = np.where(y == model.classes_[1], 1.0, -1.0)
            w = model.coef_[0]
            margins = signs * (X @ w + model.intercept_[0])
            return float(share(margins, scale * np.linalg.norm(w), signs[:, np.newaxis] * X * w, level).mean())

        return of

    return measure


def _two_points(margins: Array, spread: float, terms: Array, level: float) -> Array:
    """Return the least probability of a positive margin under noise of this spread (Cantelli), at two points."""
    right = np.square(np.maximum(margins, 0.0))
    return np.divide(right, right + spread**2, out=np.zeros_like(right), where=right > 0)


def _ball_of(margins: Array, spread: float, terms: Array, level: float) -> Array:
    return np.asarray(margins > spread, dtype=np.float64)


def _deletion(margins: Array, spread: float, terms: Array, level: float) -> Array:
    """Return whether margins stay positive without the features that help most."""
    n_deleted = max(1, round(DELETED * level * terms.shape[1]))
    helpful = -np.partition(-terms, n_deleted - 1, axis=1)[:, :n_deleted]
    return np.asarray(margins > np.maximum(helpful, 0.0).sum(axis=1), dtype=np.float64)


CORRUPTIONS: dict[str, Callable[..., Measure]] = {
    "Gaussian": _noisy(lambda rng, shape: rng.standard_normal(shape)),
    "uniform": _noisy(lambda rng, shape: rng.uniform(-np.sqrt(3), np.sqrt(3), shape)),
    "heavy tails": _noisy(lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3)),
    "worst two points": _worst(_two_points),
    "worst in a ball": _worst(_ball_of),
    "worst deletion": _worst(_deletion),
}


def cells(quick: bool) -> list[Key]:
    """Return the pieces of work: an adversary on a split of a problem, against all corruptions."""
    problems = [name for name in PROBLEMS if not quick or PROBLEMS[name].toy]
    return [
        make_key("open", problem=problem, adversary=adversary, seed=seed)
        for seed in range(2 if quick else 10)
        for problem in problems
        for adversary in ADVERSARIES
    ]


def compute(key: Key, data_home: Any = None) -> dict[str, Any]:
    """Return the test accuracy at each level under each corruption, of the candidate that validates best under it."""
    split = PROBLEMS[key["problem"]].parts(key["seed"], data_home)
    spread = float(np.sqrt(split.X_train.var(axis=0).mean()))
    measures = []
    for number, (level, corrupted) in enumerate((level, each) for level in LEVELS for each in CORRUPTIONS.values()):
        rng = np.random.default_rng([key["seed"], number])
        given = (level * spread, level, rng)
        measures.append(
            (corrupted(split.X_valid, split.y_valid, *given), corrupted(split.X_test, split.y_test, *given))
        )
    return best(ADVERSARIES[key["adversary"]](split, spread), measures)


def accuracies(store: Store, quick: bool) -> Array:
    """Return accuracies in per cent or NaN: (n_adversaries, n_problems, n_seeds, n_levels, n_corruptions)."""
    keys = cells(quick)
    problems = list(dict.fromkeys(key["problem"] for key in keys))
    shape = (len(ADVERSARIES), len(problems), max(key["seed"] for key in keys) + 1, len(LEVELS), len(CORRUPTIONS))
    found = np.full(shape, np.nan)
    for key, result in store.matching(keys):
        at = [*ADVERSARIES].index(key["adversary"]), problems.index(key["problem"]), key["seed"]
        found[at] = 100 * np.reshape(result["test"], shape[3:])
    return found


def table(store: Store, quick: bool) -> TextTable:
    """Return accuracies at one level: means over the problems, and standard errors over the splits."""
    means = _means(store, quick)[:, :, SHOWN]  # (n_adversaries, n_seeds, n_corruptions)
    n_seeds = np.count_nonzero(np.isfinite(means).all(axis=(0, 2)))
    rows = [[name, *map(_summary, row.T)] for name, row in zip(ADVERSARIES, means, strict=True)]
    n_problems = len({key["problem"] for key in cells(quick)})
    note = f"mean of {n_problems} problems, standard error over {n_seeds} splits; noise level {LEVELS[SHOWN]:g}"
    return TextTable("Adversary of the fit against corruption of tests: accuracy (%)", ["", *CORRUPTIONS], rows, note)


def _means(store: Store, quick: bool) -> Array:
    """Return the mean over the problems, of seeds that have all of them: (n_adversaries, n_seeds, ...)."""
    return np.asarray(accuracies(store, quick).mean(axis=1))


def _summary(scores: Array) -> str:
    scores = scores[np.isfinite(scores)]
    if not len(scores):
        return "-"
    return f"{scores.mean():.2f}" + (f" ± {scores.std(ddof=1) / np.sqrt(len(scores)):.2f}" if len(scores) > 1 else "")


def draw(store: Store, quick: bool) -> Any:
    """Return a matrix for every level; the colour is the distance from the best of a column, the best has a frame."""
    means = _means(store, quick)
    finished = np.isfinite(means).all(axis=(0, 2, 3))
    figure = style.figure(len(LEVELS), size=(4.4, 3.6))
    for ax, level, part in zip(figure.axes, LEVELS, np.moveaxis(means[:, finished], 2, 0), strict=True):
        matrix = part.mean(axis=1) if finished.any() else np.full((len(ADVERSARIES), len(CORRUPTIONS)), np.nan)
        behind = matrix - matrix.max(axis=0)
        ax.imshow(behind, cmap="Blues_r", vmin=-6, vmax=3, aspect="auto")
        for (row, column), value in np.ndenumerate(matrix):
            weight = "bold" if behind[row, column] == 0 else "normal"
            colour = "white" if behind[row, column] < -3 else "black"
            ax.text(
                column, row, f"{value:.1f}", ha="center", va="center", size=style.SMALL, weight=weight, color=colour
            )
        style.finish(ax, "corruption of tests", "adversary of the fit", f"Noise level {level:g}", legend=False)
        ax.grid(visible=False)
        ax.set_xticks(range(len(CORRUPTIONS)), [*CORRUPTIONS], rotation=30, ha="right")
        ax.set_yticks(range(len(ADVERSARIES)), [*ADVERSARIES])
    figure.suptitle(f"Test accuracy (%), mean of all problems and {finished.sum()} splits", fontsize=style.TITLE)
    return figure
