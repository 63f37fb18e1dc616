"""A fuzzer of everything that works with measured values: random measurements, error bars of every form.

    python -m fuzz.measured [--minutes M] [--problems N] [--seed S] [--only field=value ...]

prints every problem that breaks a promise, as the ``Problem(...)`` that makes it again, and exits with 1 if there was
one. ``test_fuzz_measured.py`` runs some of them in every suite. The promises (``PROMISES``):

* units, offset, rows, columns, labels: posteriors, likelihoods and probabilities do not depend on them;
* weights: 0 is a sample that is not there, an integer is a sample that occurs so often;
* probabilities: finite, between 0 and 1, of sum 1, also of samples far away, exact ones and such without any value;
* continuity: no jump where errors grow from 0 to infinity;
* formulas: posteriors, likelihoods and Bayes' rule are those of a few lines of NumPy;
* gains: those of a new measurement are those of a simulation;
* transforms: errors go through affine maps exactly, through curved ones as a simulation says.
"""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from fuzz.program import BrokenError, main
from gaussguru import ErrorBarClassifier, GuruClassifier, PopulationClassifier
from gaussguru._guru.base import CollapseWarning
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Asymmetric, Limits, LowRank
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import remeasure_gain


@dataclass(frozen=True)
class Problem:
    """Measurements, an estimator, and what is promised of it."""

    seed: int = 0
    n: int = 60
    d: int = 2
    classes: int = 2
    data: str = "normal"
    errors: str = "per value"
    weights: str = "none"
    estimator: str = "gaussian"
    promise: str = "units"


# Estimators that give posteriors, and those that give probabilities.
POSTERIORS = ("gaussian", "mixture", "outliers", "rank")
BAYES = ("population", "population mixture")
# One optimum, which nothing but rounding moves; the others choose starts or folds by places or values.
SMOOTH = ("gaussian", "rank", "population", "guru")
# Whose probabilities follow from posteriors: what is known about a sample goes continuously to nothing.
MEASURED = (*POSTERIORS, *BAYES, "error bar", "error bar mixture")
INTEGERS = ("gaussian", "rank", "population", "guru")

PROMISES: dict[str, tuple[str, ...]] = {
    "units": (*MEASURED, "calibrated", "guru"),
    "offset": (*SMOOTH, "error bar", "calibrated"),
    "rows": (*SMOOTH, "pool"),
    "columns": SMOOTH,
    "labels": ("population", "population mixture", "error bar", "pool", "calibrated", "guru"),
    "zero weights": (*INTEGERS, "error bar", "pool"),
    "integer weights": INTEGERS,
    "probabilities": (*MEASURED[len(POSTERIORS) :], "pool", "calibrated", "guru"),
    "continuity": (*MEASURED, "calibrated", "guru"),
    "formulas": (*POSTERIORS, *BAYES),
    "gains": ("error bar", "error bar mixture"),
    "transforms": ("affine", "curved"),
}

CHOICES: dict[str, list[Any]] = {
    "n": [20, 30, 50, 80, 120, 200],
    "d": [1, 2, 2, 3, 4, 5],
    "classes": [2, 2, 3, 4],
    "data": ["normal", "clusters", "heavy tails", "constant", "correlated"],
    "errors": [
        "per value", "per sample", "per feature", "covariances", "singular covariances", "low rank", "asymmetric",
        "limits", "missing", "mostly missing", "exact", "some exact", "wide", "none",
    ],
    "weights": ["none", "none", "random"],
}  # fmt: skip


def draw(rng: np.random.Generator) -> Problem:
    """Return a random problem."""
    chosen = {name: choices[rng.integers(len(choices))] for name, choices in CHOICES.items()}
    promise = list(PROMISES)[rng.integers(len(PROMISES))]
    estimator = PROMISES[promise][rng.integers(len(PROMISES[promise]))]
    return valid(Problem(seed=int(rng.integers(2**31)), **chosen, estimator=estimator, promise=promise))


def valid(problem: Problem) -> Problem:
    """Return the problem without what does not go together."""
    change: dict[str, Any] = {}
    if problem.estimator not in PROMISES[problem.promise]:
        change.update(estimator=PROMISES[problem.promise][0])
    if problem.estimator == "rank":
        change.update(d=max(problem.d, 2))
    if problem.classes > 2 and problem.n < 15 * problem.classes:
        change.update(n=15 * problem.classes)
    if problem.promise == "gains":
        change.update(classes=2, errors="per value", n=max(problem.n, 80), data="normal")
    unmeasured = ("missing", "mostly missing")
    if problem.promise == "transforms" and problem.errors in ("limits", "asymmetric", "none", *unmeasured):
        change.update(errors="per value")
    if problem.promise == "offset" and problem.data == "constant":
        change.update(data="normal")  # the size of a constant is its unit
    if problem.errors == "limits" and (
        problem.promise in ("formulas", "continuity") or problem.estimator in ("calibrated", "guru")
    ):
        change.update(errors="per value")
    if problem.errors == "none" and problem.promise == "continuity":
        change.update(errors="per value")
    if problem.promise in ("zero weights", "integer weights"):
        change.update(weights="none")
    return replace(problem, **change)


# --- measurements -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Measured values, with errors in the form of the problem; what changes the one changes the others.

    ``centre`` and ``scale`` of the features are those of the generator, in the units of X: answers are given in them.
    """

    form: str
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    std: np.ndarray
    factors: np.ndarray
    upper: np.ndarray
    sides: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    order: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))  # which feature each was before

    @property
    def err(self) -> Any:
        """The errors as they are given to an estimator."""
        if self.form == "none":
            return None
        if self.form == "per sample":
            return self.std[:, 0]
        if self.form.endswith("covariances"):
            return self.covariances
        if self.form == "low rank":
            return LowRank(self.factors, self.std)
        if self.form == "asymmetric":
            return Asymmetric(self.std, self.upper)
        return Limits(self.std, self.sides) if self.form == "limits" else self.std

    @property
    def correlated(self) -> bool:
        """Whether errors of a sample are correlated."""
        return self.form.endswith("covariances") or self.form == "low rank"

    @property
    def known(self) -> np.ndarray:
        """Which values were measured."""
        return np.isfinite(self.X) & np.isfinite(self.std)

    @property
    def covariances(self) -> np.ndarray:
        """The errors as covariances."""
        S = np.zeros((*self.X.shape, self.X.shape[1]))
        if self.correlated:
            S = self.factors @ self.factors.transpose(0, 2, 1)
        if self.form == "asymmetric":
            np.einsum("ijj->ij", S)[:] = (1 - 2 / np.pi) * (self.upper - self.std) ** 2 + self.upper * self.std
        elif self.form != "none":
            np.einsum("ijj->ij", S)[:] += self.std**2
        return S

    @property
    def values(self) -> np.ndarray:
        """The values, of a two-sided error its mean."""
        if self.form == "asymmetric":
            return np.asarray(self.X + np.sqrt(2 / np.pi) * (self.upper - self.std))
        return self.X

    def in_units(self, f: np.ndarray) -> "Given":
        """Return the same in other units."""
        return replace(
            self, X=self.X * f, std=self.std * f, factors=self.factors * f[:, np.newaxis], upper=self.upper * f,
            centre=self.centre * f, scale=self.scale * f,
        )  # fmt: skip

    def shifted(self, c: np.ndarray) -> "Given":
        """Return the same with other origins."""
        return replace(self, X=self.X + c, centre=self.centre + c)

    def rows(self, index: Any) -> "Given":
        """Return some samples."""
        return replace(
            self, X=self.X[index], y=self.y[index], weight=None if self.weight is None else self.weight[index],
            std=self.std[index], factors=self.factors[index], upper=self.upper[index], sides=self.sides[index],
        )  # fmt: skip

    def columns(self, index: Any) -> "Given":
        """Return the features in another order."""
        return replace(
            self, X=self.X[:, index], std=self.std[:, index], factors=self.factors[:, index],
            upper=self.upper[:, index], sides=self.sides[:, index], centre=self.centre[index],
            scale=self.scale[index], order=index,
        )  # fmt: skip

    def times(self, t: float) -> "Given":
        """Return the same with all finite errors so many times as large; with all but exact values lost."""
        if np.isinf(t):
            lost = np.einsum("ijj->ij", self.covariances) > 0
            std, upper = (np.where(lost, np.inf, e) for e in (self.std, self.upper))
            return replace(self, std=std, upper=upper, factors=np.where(lost[:, :, np.newaxis], 0.0, self.factors))
        std, upper = (np.where(np.isinf(e), np.inf, np.where(np.isinf(e), 0.0, e) * t) for e in (self.std, self.upper))
        return replace(self, std=std, upper=upper, factors=self.factors * t)


def make(problem: Problem) -> Given:
    """Return the measurements of a problem."""
    rng = np.random.default_rng(problem.seed)
    n, d, C = problem.n, problem.d, problem.classes
    y = np.concatenate([np.arange(C), np.arange(C), rng.integers(C, size=n - 2 * C)])
    rng.shuffle(y)
    truth = rng.normal(size=(n, d)) * rng.uniform(0.5, 2.0, (C, d))[y] + 1.5 * rng.normal(size=(C, d))[y]
    if problem.data == "clusters":
        truth = 0.3 * truth + 3.0 * rng.normal(size=(4, d))[rng.integers(4, size=n)]
    elif problem.data == "heavy tails":
        truth[rng.random(n) < 0.05] *= 30.0
    elif problem.data == "correlated":
        truth = truth @ rng.normal(size=(d, d))
    std = rng.uniform(0.1, 1.0, (n, d)) * np.ones((n, d))
    form = problem.errors
    if form in ("per sample", "per feature"):
        std[:] = std[:, :1] if form == "per sample" else std[:1]
    elif form == "wide":
        std *= 10.0 ** rng.uniform(-3, 2, (n, d))
    elif form == "exact":
        std[:] = 0.0
    elif form == "some exact":
        std[rng.random((n, d)) < 0.5] = 0.0
        std[rng.random(n) < 0.2] = 0.0
    factors = rng.normal(size=(n, d, 2)) * std[:, :, np.newaxis]
    if form == "singular covariances":
        std[:], factors[:, :, 1] = 0.0, 0.0
        factors[rng.random(n) < 0.3] = 0.0
    upper = std * rng.uniform(0.5, 2.0, (n, d))
    S = factors @ factors.transpose(0, 2, 1) if form in ("covariances", "singular covariances", "low rank") else 0.0
    noise = np.sqrt(np.einsum("ijj->ij", S) if np.ndim(S) else 0.0 + std**2) * rng.normal(size=(n, d))
    X = truth + (0.0 if form == "none" else noise)
    if problem.data == "constant":
        X[:, 0] = 1.7
    sides = np.where(rng.random((n, d)) < 0.2, rng.choice([-1, 1], (n, d)), 0)
    X = np.where((sides != 0) & (form == "limits"), X - 0.5 * sides, X)
    gone = rng.random((n, d)) < {"missing": 0.3, "mostly missing": 0.7}.get(form, 0.0)
    gone[:: max(1, n // 10)] = False
    std, upper = np.where(gone, np.inf, std), np.where(gone, np.inf, upper)
    if problem.seed % 2:
        X = np.where(gone, np.nan, X)
    weight = rng.uniform(0.2, 3.0, n) if problem.weights == "random" else None
    return Given(form, X, y, weight, std, factors, upper, sides, np.zeros(d), np.ones(d), np.arange(d))


# --- estimators -------------------------------------------------------------------------------------------


def estimator_of(problem: Problem, given: Given) -> Any:
    """Return the estimator, not fitted; noise of the model is in the units of the features."""
    guru = GuruClassifier(0.5, noise=given.scale, tol=1e-10)
    tight = {"tol": 1e-10, "max_iter": 3000}
    return {
        "gaussian": Deconvolve(**tight),
        "mixture": Deconvolve(2),
        "outliers": Deconvolve(outliers=True),
        "rank": Deconvolve(rank=1, tol=1e-8, max_iter=3000),
        "population": PopulationClassifier(1),
        "population mixture": PopulationClassifier(2),
        "error bar": ErrorBarClassifier(model="linear", n_components=1, cv=2, n_jobs=1),
        "error bar mixture": ErrorBarClassifier(model="linear", n_components=2, cv=2, n_jobs=1),
        "pool": ErrorBarClassifier(model="rbf", cv=2, n_jobs=1),
        "calibrated": CalibratedWithErrorsCV(guru, cv=2),
        "guru": guru,
    }[problem.estimator]


class RefusedError(Exception):
    """Samples that an estimator refuses, with a reason that names an argument."""


def fitted(problem: Problem, given: Given) -> Any:
    """Return the estimator, fitted; it may not converge, and must say nothing else."""
    model = estimator_of(problem, given)
    more = {} if given.err is None else {"X_err": given.err}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in (ConvergenceWarning, CollapseWarning):
            warnings.simplefilter("ignore", known)
        try:
            return model.fit(given.X, given.y, sample_weight=given.weight, **more)
        except ValueError as error:
            if any(name in str(error) for name in ("X ", "X_err", "sample_weight", "y ")):
                raise RefusedError(str(error)) from error
            raise BrokenError(f"ValueError that names no argument: {error}") from error


def answers(model: Any, given: Given) -> dict[str, np.ndarray]:
    """Return what a model says of samples, in the units and the order of the generator."""
    more = {} if given.err is None else {"X_err": given.err}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not isinstance(model, Deconvolve):
            return {"probabilities": model.predict_proba(given.X, **more)}
        back = np.argsort(given.order)
        found = model.transform(given.X, **more)
        spreads = np.sqrt(np.einsum("ijj->ij", as_covariances(found.err)))
        known = given.known if given.form != "limits" else given.known & (given.sides == 0)
        logs = model.score_samples(given.X, **more) + known @ np.log(given.scale)
    return {
        "means": ((found.X - given.centre) / given.scale)[:, back],
        "spreads": (spreads / given.scale)[:, back],
        "log likelihoods": logs,
    }


def as_covariances(errors: Any) -> np.ndarray:
    """Return posterior covariances of either form."""
    if not isinstance(errors, LowRank):
        return np.asarray(errors)
    full = np.asarray(errors.factors) @ np.asarray(errors.factors).transpose(0, 2, 1)
    np.einsum("ijj->ij", full)[:] += np.square(errors.std if errors.std is not None else 0.0)
    return full


def compare(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tol: float, what: str) -> None:
    """Raise where answers differ by more than a tolerance: of probabilities, spreads of the features, logarithms.

    A mean is known to its posterior spread, which is part of its unit.
    """
    for name, expected in one.items():
        found = other[name]
        if not (np.isfinite(expected).all() and np.isfinite(found).all()):
            raise BrokenError(f"{name} are not finite")
        size = 1 + (0.0 if name == "probabilities" else np.abs(expected)) + (one["spreads"] if name == "means" else 0.0)
        apart = np.abs(found - expected) / size
        if apart.max(initial=0.0) > tol:
            place = np.unravel_index(int(np.argmax(apart)), apart.shape)
            raise BrokenError(
                f"{name} {expected[place]:.9g} and {found[place]:.9g} {what}: {apart.max():.2g} apart, at {place}"
            )


# --- promises ---------------------------------------------------------------------------------------------


def check(problem: Problem) -> None:
    """Raise :class:`BrokenError` if a promise is broken."""
    try:
        CHECKS[problem.promise](problem, make(problem))
    except RefusedError as error:
        if problem.errors not in ("limits", "mostly missing"):
            raise BrokenError(f"refused: {error}") from error


# Of the same numbers in the same order, of a minimum that is proven, of one that EM comes near, step by ever smaller
# step where a variance vanishes, and of one that is chosen, or where EM stops at a part of a standard error.
CLOSE, PROVEN, NEAR, ROUGH = 1e-7, 1e-4, 1e-3, 0.05


def _tolerance(problem: Problem, *models: Any) -> float:
    """Return how near fits to the same samples are.

    Where a variance vanishes the steps of EM fall like 1/k^2: a fit that warns of it is where its iterations ended.
    """
    ended = all(getattr(model, "converged_", True) for model in models)
    return {"gaussian": NEAR, "guru": PROVEN}.get(problem.estimator, ROUGH) if ended else ROUGH


def _check_units(problem: Problem, given: Given) -> None:
    rng = np.random.default_rng(problem.seed + 1)
    model = fitted(problem, given)
    one = answers(model, given)
    size = 1 if problem.errors == "per sample" else problem.d
    powers = 2.0 ** rng.integers(-20, 21, size) * np.ones(problem.d)
    other = given.in_units(powers)
    # Populations are the same bits. Of probabilities by a solver, a rounding may move the end within its tolerance.
    close = CLOSE if problem.estimator in (*POSTERIORS, *BAYES) else PROVEN
    compare(one, answers(fitted(problem, other), other), close, "in units of powers of 2")
    if problem.estimator in SMOOTH:
        other = given.in_units(10.0 ** rng.uniform(-3, 3, size) * np.ones(problem.d))
        again = fitted(problem, other)
        compare(one, answers(again, other), _tolerance(problem, model, again), "in other units")


def _check_offset(problem: Problem, given: Given) -> None:
    other = given.shifted(100.0 * np.random.default_rng(problem.seed + 1).normal(size=problem.d))
    one, two = fitted(problem, given), fitted(problem, other)
    compare(answers(one, given), answers(two, other), _tolerance(problem, one, two), "with other origins")


def _check_rows(problem: Problem, given: Given) -> None:
    order = np.random.default_rng(problem.seed + 1).permutation(problem.n)
    one = fitted(problem, given)
    if problem.estimator != "pool":  # whose copies have other noise then
        other = fitted(problem, given.rows(order))
        tolerance = _tolerance(problem, one, other)
        compare(answers(one, given), answers(other, given), tolerance, "with rows in another order")
    # A prediction is that of one sample, whatever the others are.
    each = [answers(one, given.rows(slice(k, k + 1))) for k in range(3)]
    together = answers(one, given.rows(slice(3)))
    compare(together, {name: np.concatenate([a[name] for a in each]) for name in together}, CLOSE, "one by one")


def _check_columns(problem: Problem, given: Given) -> None:
    order = np.random.default_rng(problem.seed + 1).permutation(problem.d)
    one, other = given, given.columns(order)
    if problem.estimator == "rank":
        # Factors begin where the order of features has a say.
        return
    models = fitted(problem, one), fitted(problem, other)
    found = answers(models[0], one), answers(models[1], other)
    compare(*found, _tolerance(problem, *models), f"with columns {order}")


def _check_labels(problem: Problem, given: Given) -> None:
    one = answers(fitted(problem, given), given)
    names = replace(given, y=np.array(["a", "b", "c", "d"])[given.y])
    compare(one, answers(fitted(problem, names), names), 0.0, "with names of classes")
    if problem.estimator in SMOOTH:
        order = np.random.default_rng(problem.seed + 1).permutation(problem.classes)
        found = answers(fitted(problem, replace(given, y=order[given.y])), given)["probabilities"][:, order]
        compare(one, {"probabilities": found}, NEAR, f"with classes {order}")


def _check_zero_weights(problem: Problem, given: Given) -> None:
    rng = np.random.default_rng(problem.seed + 1)
    kept = rng.random(problem.n) < 0.7
    kept[[int(np.flatnonzero(given.y == c)[k]) for c in range(problem.classes) for k in (0, 1)]] = True
    kept[:: max(1, problem.n // 10)] = True  # all features are measured somewhere
    weighted = replace(given, weight=kept.astype(float))
    one, other = fitted(problem, weighted), fitted(problem, given.rows(kept))
    close = CLOSE if problem.estimator == "pool" else _tolerance(problem, one, other)  # of the same numbers
    compare(answers(one, given), answers(other, given), close, "with weights 0 and without these samples")


def _check_integer_weights(problem: Problem, given: Given) -> None:
    times = np.random.default_rng(problem.seed + 1).integers(1, 4, problem.n)
    weighted = replace(given, weight=times.astype(float))
    one, other = fitted(problem, weighted), fitted(problem, given.rows(np.repeat(np.arange(problem.n), times)))
    close = _tolerance(problem, one, other)
    compare(answers(one, given), answers(other, given), close, "with weights and with repetitions")


def _check_probabilities(problem: Problem, given: Given) -> None:
    model = fitted(problem, given)
    queries = [given, given.shifted(1e3 * given.scale), given.shifted(-1e6 * given.scale)]
    if given.err is not None:
        queries += [given.times(t) for t in (0.0, 1e-9, 1e3, 1e9)]
        queries += [given.times(np.inf)] if given.form != "limits" else []
    for query in queries:
        p = answers(model, query)["probabilities"]
        if not np.isfinite(p).all() or p.min() < 0 or p.max() > 1 or np.abs(p.sum(axis=1) - 1).max() > 1e-12:
            raise BrokenError(f"probabilities from {p.min()} to {p.max()}, of sums {p.sum(axis=1).min()}")
        if not np.array_equal(model.predict(query.X, **({} if query.err is None else {"X_err": query.err})),
                              model.classes_[np.argmax(p, axis=1)]):  # fmt: skip
            ties = np.sort(p, axis=1)
            if np.min(ties[:, -1] - ties[:, -2]) > 1e-9:
                raise BrokenError("predict is not the class of the largest probability")


def _check_continuity(problem: Problem, given: Given) -> None:
    model = fitted(problem, given)
    some = given.rows(slice(20))

    def at(t: float) -> np.ndarray:
        found = answers(model, some.times(t))
        return found["probabilities"] if "probabilities" in found else found["means"]

    # A mean moves from the measured value to that of the population: by as much as these differ.
    unit = max(1.0, float(np.nanmax(np.abs(at(0.0)))))
    # Correlated scores of many classes are integrated by points that find probabilities to half a percent.
    close = 1e-6 if problem.classes == 2 or problem.estimator in (*POSTERIORS, *BAYES) else 0.01
    if np.abs(at(1e-13) - at(0.0)).max() > close * unit:
        raise BrokenError(f"errors of 1e-13 are not exact: {np.abs(at(1e-13) - at(0.0)).max():.2g} apart")
    if problem.estimator in MEASURED and problem.errors != "singular covariances":  # which say much in some directions
        apart = np.abs(at(1e12) - at(np.inf)).max()
        if apart > close * unit:
            raise BrokenError(f"errors of 1e12 are not infinite: {apart:.2g} apart")
    # Of a large covariance that is singular, rounding leaves errors where there are none.
    grid = 10.0 ** np.linspace(-4, 2 if problem.errors == "singular covariances" else 10, 57)
    values = [at(t) for t in grid]
    for k in range(len(grid) - 1):
        low, high, first, last = grid[k], grid[k + 1], values[k], values[k + 1]
        for _ in range(60):  # where it moves much, on half the way too
            jump = np.abs(last - first).max()
            if jump <= 0.02 * unit or high <= low * (1 + 1e-10):
                break
            middle = np.sqrt(low * high)
            value = at(middle)
            if np.abs(value - first).max() > np.abs(last - value).max():
                high, last = middle, value
            else:
                low, first = middle, value
        if jump > 0.02 * unit:
            raise BrokenError(f"a jump of {jump:.2g} where errors are {low:.10g} times as large")


def _check_formulas(problem: Problem, given: Given) -> None:
    model = fitted(problem, given)
    if isinstance(model, Deconvolve):
        expected = [_posterior(model, x, S) for x, S in zip(given.values, given.covariances, strict=True)]
        found = answers(model, given)
        compare({"log likelihoods": np.array([e[0] for e in expected])}, found, 1e-7, "by the formula")
        unit = float(np.sqrt(np.einsum("kjj->kj", model.covariances_).max()))
        mean, spread = np.array([e[1] for e in expected]), np.sqrt([np.maximum(np.diag(e[2]), 0.0) for e in expected])
        apart = max(np.abs(found["means"] - mean).max(), np.abs(found["spreads"] - spread).max())
        if apart > 1e-5 * max(unit, 1.0):
            raise BrokenError(f"posteriors are {apart:.2g} from the formula, spreads {unit:.3g}")
        return
    logs = np.array([[_posterior(each, x, S)[0] for each in model.populations_]
                     for x, S in zip(given.values, given.covariances, strict=True)])  # fmt: skip
    weight = np.ones(problem.n) if given.weight is None else given.weight
    counts = np.bincount(given.y, weight, problem.classes)
    densities = np.exp(logs - logs.max(axis=1, keepdims=True))
    of_all = densities @ (counts / counts.sum())
    mixed = (counts * densities + of_all[:, np.newaxis]) / (counts + 1)
    p = counts * mixed
    compare({"probabilities": p / p.sum(axis=1, keepdims=True)}, answers(model, given), 1e-7, "by Bayes' rule")


def _posterior(population: Any, x: np.ndarray, S: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the log density of a measurement, and mean and covariance of its true values."""
    known = np.isfinite(x) & np.isfinite(np.diag(S))
    logs, means, squares = [], [], []
    for pi, mu, T in zip(population.weights_, population.means_, population.covariances_, strict=True):
        gain, log = np.zeros((len(x), 0)), 0.0
        if known.any():
            C = T[np.ix_(known, known)] + S[np.ix_(known, known)]
            r, unit = (x - mu)[known], np.sqrt(np.diag(C))
            # In units of the features: their squares may differ by more than the digits of a number.
            R = C / np.outer(unit, unit)
            square = (r / unit) @ np.linalg.solve(R, r / unit)
            log = -0.5 * (square + np.linalg.slogdet(R)[1] + np.log(2 * np.pi * np.square(unit)).sum())
            gain = T[:, known] @ np.linalg.inv(C)
        mean = mu + gain @ (x - mu)[known]
        logs.append(np.log(pi) + log)
        means.append(mean)
        squares.append(T - gain @ T[known])
    total = float(np.logaddexp.reduce(logs))
    q = np.exp(np.array(logs) - total)
    mean = q @ np.array(means)
    away = np.array(means) - mean
    return total, mean, np.einsum("k,kij->ij", q, np.array(squares)) + np.einsum("k,ki,kj->ij", q, away, away)


# Draws of a simulation, samples that are simulated, and by how much a gain of a mixture may differ.
DRAWS, SIMULATED, ROUGH_GAIN = 4000, 3, 0.04


def _check_gains(problem: Problem, given: Given) -> None:
    rng = np.random.default_rng(problem.seed + 1)
    model = fitted(problem, given)
    ratio = rng.choice([0.0, 0.5, 0.9])
    some = given.rows(rng.choice(problem.n, SIMULATED, replace=False))
    gains = remeasure_gain(model, some.X, some.std, ratio * some.std)
    for k, (x, err) in enumerate(zip(some.X, some.std, strict=True)):
        truth = _draws_of(model.population_, x, np.diag(err**2), rng)
        better = ratio * err
        # The new reading alone, and both together.
        alone = better / np.sqrt(1 - ratio**2)
        reading = truth + alone * rng.normal(size=truth.shape)
        share = 1 - ratio**2
        both = share * reading + (1 - share) * x
        p = model.predict_proba(x[np.newaxis], X_err=err[np.newaxis])[0]
        after = model.predict_proba(both, X_err=np.tile(better, (DRAWS, 1))).min(axis=1)
        expected, error = p.min() - after.mean(), after.std() / np.sqrt(DRAWS)
        allowed = 5 * error + 1e-3 + (ROUGH_GAIN if "mixture" in problem.estimator else 0.0)
        if abs(gains[k] - expected) > allowed:
            raise BrokenError(f"a gain of {gains[k]:.4f}, by a simulation {expected:.4f} +- {error:.4f}")


def _draws_of(population: Any, x: np.ndarray, S: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return draws of the true values of a sample."""
    logs, parts = [], []
    for pi, mu, T in zip(population.weights_, population.means_, population.covariances_, strict=True):
        gain = T @ np.linalg.inv(T + S)
        logs.append(np.log(pi) + multivariate_normal.logpdf(x, mu, T + S))
        parts.append(rng.multivariate_normal(mu + gain @ (x - mu), T - gain @ T, DRAWS, check_valid="ignore"))
    q = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    chosen = rng.choice(len(q), DRAWS, p=q)
    return np.array(parts)[chosen, np.arange(DRAWS)]


def _product(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X[:, 0] * X[:, -1], X.sum(axis=1) ** 2])


def _check_transforms(problem: Problem, given: Given) -> None:
    rng = np.random.default_rng(problem.seed + 1)
    S, more = given.covariances, {"X_err": given.err}
    if problem.estimator == "affine":
        for name, transformer in {"scaler": StandardScaler(), "pca": PCA(max(1, problem.d - 1))}.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of PCA, where all values are equal
                found = WithErrors(transformer).fit(given.X, **more).transform(given.X, **more)
                values = transformer.fit(given.X).transform(given.X)
            A = np.diag(1 / transformer.scale_) if name == "scaler" else transformer.components_.T
            expected = np.einsum("ja,ijk,kb->iab", A, S, A)
            apart = np.abs(_full(found.err, expected.shape) - expected).max() / (np.abs(expected).max() or 1.0)
            moved = np.abs(found.X - values).max() / (1 + np.abs(values).max())
            if moved > 1e-9 or apart > 1e-7:
                raise BrokenError(f"{name}: values {moved:.2g} and errors {apart:.2g} apart")
        return
    functions = {"exp": np.exp, "arctan": np.arctan, "cube": lambda X: X**3, "product": _product}
    name = list(functions)[rng.integers(len(functions))]
    # The rule for errors of one feature has nine points: it knows functions that bend on the scale of the errors.
    small = given.times(0.1)
    small = replace(small, std=np.minimum(small.std, 1.0))
    wrapped = WithErrors(FunctionTransformer(functions[name])).fit(small.X, X_err=small.err)
    found = wrapped.transform(small.X, X_err=small.err)
    err = _full(found.err, (*found.X.shape, found.X.shape[1]))
    for k in range(SIMULATED):
        points = rng.multivariate_normal(small.X[k], small.covariances[k], 20 * DRAWS, check_valid="ignore")
        out = functions[name](points)
        spread = out.std(axis=0)
        apart = np.abs(found.X[k] - out.mean(axis=0)) - 5 * spread / np.sqrt(len(points))
        wrong = np.abs(np.sqrt(np.diag(err[k])) - spread) - 5 * spread / np.sqrt(len(points))
        # Nine points of an error, or 64 on spheres, find means to 2 % of the spread and spreads to 10 %.
        floor = 1e-9 * (1 + np.abs(out).max(axis=0))
        if np.any(apart > 0.02 * spread + floor) or np.any(wrong > 0.1 * spread + floor):
            raise BrokenError(
                f"{name}: {found.X[k]} +- {np.sqrt(np.diag(err[k]))}, by a simulation {out.mean(axis=0)} +- {spread}"
            )


def _full(errors: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return errors of any form as covariances."""
    if isinstance(errors, LowRank) or np.ndim(errors) == 3:
        return as_covariances(errors)
    full = np.zeros(shape)
    np.einsum("ijj->ij", full)[:] = np.square(errors if np.ndim(errors) == 2 else np.asarray(errors)[:, np.newaxis])
    return full


CHECKS: dict[str, Callable[[Problem, Given], None]] = {
    "units": _check_units,
    "offset": _check_offset,
    "rows": _check_rows,
    "columns": _check_columns,
    "labels": _check_labels,
    "zero weights": _check_zero_weights,
    "integer weights": _check_integer_weights,
    "probabilities": _check_probabilities,
    "continuity": _check_continuity,
    "formulas": _check_formulas,
    "gains": _check_gains,
    "transforms": _check_transforms,
}


if __name__ == "__main__":
    sys.exit(main(__doc__, draw, valid, check))
