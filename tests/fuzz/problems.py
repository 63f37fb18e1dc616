"""A differential fuzzer of all classifiers: random problems, each fit compared with plain formulas and other fits.

    python -m fuzz.problems [--minutes M] [--problems N] [--seed S] [--only field=value ...]

prints every problem that breaks a promise, as the ``Problem(...)`` that makes it again, and exits with 1 if there was
one. ``test_fuzz_problems.py`` runs some of them in every suite. What is promised of a fit:

* ``objective_`` is the objective of ``coef_`` and ``intercept_``, by a formula in plain NumPy;
* ``objective_ - dual_gap_`` is a lower bound: no classifier that anything finds is below it;
* it is converged, or gives one warning, with the reason that is true;
* it takes a bounded time;
* it raises nothing but a ValueError that names an argument, and lets no warning of NumPy out.
"""

import sys
import time
import warnings
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from support import oracles
from support.error_bars import conditional, expected_kernel

from fuzz.program import BrokenError, main
from gaussguru import (
    AdversarialSVC,
    FeatureDropSVC,
    GuruClassifier,
    GuruClassifierCV,
    KernelGuruClassifier,
    TotalSVC,
)
from gaussguru._guru.base import CollapseWarning
from gaussguru.errors import LowRank

EPS = np.finfo(float).eps
# Standard deviation of exact features, relative to the spread of the feature (docstring of GuruClassifier).
FLOOR = 1e-6
# Seconds of processor time that one fit may take: hundreds of times what it takes usually.
LONGEST = 10.0


@dataclass(frozen=True)
class Problem:
    """Data, a model of it and how it is given; every field is small, so that a failure is easily made simpler."""

    seed: int = 0
    n: int = 20
    d: int = 3
    classes: int = 2
    data: str = "normal"
    scale: float = 1.0
    offset: float = 0.0
    weights: str = "none"
    form: str = "dense"
    estimator: str = "linear"
    noise: str = "isotropic"
    loss: str = "gaussian"
    solver: str = "newton"
    sigma: float = 1.0
    l2: float = 0.0
    fit_intercept: bool = True
    errors: str = "none"
    kernel: str = "rbf"


# What the fields may be; what is usual is named more than once.
CHOICES: dict[str, list[Any]] = {
    "n": [2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 80, 120, 200],
    "d": [1, 1, 2, 2, 3, 4, 5, 8, 12, 20, 40],
    "classes": [2, 2, 2, 2, 2, 3, 3, 4, 7],
    "data": [
        "normal", "normal", "normal", "apart", "apart", "separable", "duplicates", "same rows", "constant", "collinear",
        "lonely", "rare", "integers", "heavy tails", "equal means", "units",
    ],
    "scale": [1.0] * 8 + [1e-150, 1e-100, 1e-30, 1e-8, 1e-3, 1e3, 1e8, 1e30, 1e100, 1e150],
    "offset": [0.0] * 6 + [1.0, 1e3, 1e6],
    "weights": ["none", "none", "none", "random", "zeros", "ratios", "tiny", "huge"],
    "form": ["dense", "dense", "dense", "fortran", "strided", "float32", "frame", "csr", "csr-float32"],
    "estimator": ["linear"] * 8
    + ["kernel", "kernel", "landmarks", "adversarial", "ellipsoid", "drop", "alternating", "total", "cv"],
    "noise": ["isotropic"] * 4 + ["axis", "deviations", "exact features", "covariance", "singular", "one exact"],
    "loss": ["gaussian", "gaussian", "logistic", "quadratic", "moment"],
    "solver": ["newton"] * 5 + ["dual", "sgd", "sgd2"],
    "sigma": [0.0] + [2.0**k for k in (-20, -15, -10, -7, -5, -4, -3, -2, -2, -1, -1, 0, 0, 0, 1, 1, 2, 3, 5, 10, 20)],
    "l2": [0.0] * 6 + [1e-9, 1e-4, 1.0, 1e4, 1e18],
    "fit_intercept": [True, True, True, False],
    "errors": ["none"] * 4 + [
        "one a sample", "one a value", "huge", "exact features", "exact rows", "mixed", "covariances", "low rank",
        "csr", "sparse csr", "missing", "missing samples", "missing covariances", "missing low rank",
        "singular covariances", "zero covariances", "singular low rank",
    ],
    "kernel": ["rbf", "rbf", "linear", "poly", "laplacian", "cosine"],
}  # fmt: skip


def draw(rng: np.random.Generator) -> Problem:
    """Return a random problem."""
    chosen = {name: choices[rng.integers(len(choices))] for name, choices in CHOICES.items()}
    return valid(Problem(seed=int(rng.integers(2**31)), **chosen))


def valid(problem: Problem) -> Problem:
    """Return the problem without what does not go together: each of these raises, and is tested elsewhere."""
    change: dict[str, Any] = {}
    if problem.estimator in ("kernel", "landmarks"):
        change.update(noise="isotropic")
        if problem.solver != "newton" or problem.kernel not in ("rbf", "linear", "poly"):
            change.update(errors="none")
    elif problem.estimator not in ("linear", "cv"):
        change.update(noise="isotropic", errors="none", loss="gaussian", solver="newton")
    if problem.estimator == "ellipsoid":
        unfilled = problem.errors != "none" and "missing" not in problem.errors
        change.update(errors=problem.errors if unfilled else "one a value")
    if problem.estimator == "drop":
        change.update(offset=min(problem.offset, 1.0))  # a deletion moves a feature to the origin
    problem = replace(problem, **change)
    change = {"classes": min(problem.classes, problem.n)}
    if problem.estimator == "cv":
        change.update(solver="newton", n=max(problem.n, 20 * problem.classes))
    if problem.data == "lonely":
        change.update(data="normal" if problem.estimator == "cv" else "lonely", n=max(problem.n, problem.classes + 1))
    if problem.solver in ("sgd", "sgd2"):
        change.update(noise="isotropic")
        if problem.errors not in ("none", "one a sample", "one a value", "exact rows", "mixed"):
            change.update(errors="one a value")
        if problem.errors != "none":
            change.update(classes=2)
    if problem.solver == "dual":
        change.update(noise="isotropic", errors="none", classes=2)
    if problem.noise == "axis":
        change.update(classes=2, errors="none")
    if problem.estimator not in ("linear", "cv") or problem.errors != "none":
        # Squares of features, or of errors, are numbers here; with a kernel those of an inner product, too.
        most = 1e50 if problem.estimator in ("kernel", "landmarks") else 1e100
        change.update(scale=min(max(problem.scale, 1 / most), most))
    if problem.estimator in ("kernel", "landmarks") and problem.kernel not in ("rbf", "laplacian"):
        change.update(offset=min(problem.offset, 1.0))
    if problem.kernel == "cosine" and problem.scale < 1e-8:
        change.update(scale=1.0)  # scikit-learn takes such samples for zero
    if problem.noise == "one exact" and problem.d == 1:
        change.update(noise="isotropic")
    if problem.form.startswith("csr"):
        # At a million spreads from the origin rounding tells whether a sparse feature counts as constant.
        change.update(offset=min(change.get("offset", problem.offset), 1e5))
    if problem.form in ("csr", "csr-float32") and "missing" in problem.errors:
        change.update(form="dense")
    problem = replace(problem, **change)
    exact = problem.errors == "none" or problem.estimator not in ("linear",)
    if problem.sigma == 0 and (exact and (problem.l2 == 0 or problem.estimator not in ("linear",))):
        problem = replace(problem, sigma=2.0**-20)
    if problem.sigma == 0 and problem.solver in ("dual", "sgd", "sgd2"):
        problem = replace(problem, sigma=1.0)
    return problem


# --- the data ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """What is given to a fit, and the same as plain arrays: ``covariances`` has shape (n, d, d)."""

    X: Any
    y: Any
    weight: Any
    X_err: Any
    plain: np.ndarray
    labels: np.ndarray
    s: np.ndarray
    covariances: np.ndarray | None
    unit: float


def make(problem: Problem) -> Data:
    """Return the data of a problem."""
    rng = np.random.default_rng(problem.seed)
    n, d, C = problem.n, problem.d, problem.classes
    labels = np.concatenate([np.arange(C), rng.integers(C, size=n - C)])
    if problem.data == "lonely":
        labels = np.concatenate([np.arange(C), np.full(n - C, C - 1)])
    elif problem.data == "rare":
        labels[C:] = np.where(rng.random(n - C) < 0.1, labels[C:], 0)
    rng.shuffle(labels)
    X = rng.standard_normal((n, d))
    centres = rng.standard_normal((C, d))
    if problem.data in ("apart", "rare", "units"):
        X += 1.5 * centres[labels]
    elif problem.data == "separable":
        X = 0.1 * X + 3 * centres[labels]
    elif problem.data == "duplicates":
        half = rng.integers(max(1, n // 3), size=n)
        X = X[half] + centres[labels]
    elif problem.data == "same rows":
        X = np.repeat(X[:1], n, axis=0) * (1 + 1e-3 * rng.standard_normal((n, 1))) if d > 1 else np.ones((n, 1))
    elif problem.data == "constant":
        X = X + centres[labels]
        X[:, 0] = 3.0
    elif problem.data == "collinear":
        X = X + centres[labels]
        X[:, -1] = X[:, 0]
        X[:, d // 2] = X[:, 0] - X[:, -1] if d > 2 else X[:, 0]
    elif problem.data == "integers":
        X = np.round(X + centres[labels])
    elif problem.data == "heavy tails":
        X = rng.standard_cauchy((n, d)) + centres[labels]
    elif problem.data == "equal means":
        for c in range(C):
            X[labels == c] -= X[labels == c].mean(axis=0)
    if problem.data == "units":
        X *= 10.0 ** rng.integers(-3, 4, size=d)
    unit = float(np.sqrt(np.mean(np.var(X, axis=0)))) or 1.0
    X = (X + problem.offset * unit) * problem.scale
    unit *= problem.scale
    if "32" in problem.form:
        small = np.abs(X[X != 0]).min(initial=1.0), np.abs(X).max(initial=0.0)
        X = (X / problem.scale if small[0] < 1e-30 or small[1] > 1e30 else X).astype(np.float32).astype(np.float64)
        unit = unit / problem.scale if small[0] < 1e-30 or small[1] > 1e30 else unit
    s, weight = _weights(problem, rng, labels)
    X_err, covariances = _errors(problem, rng, X, unit)
    plain = X.copy()
    if covariances is not None:
        X = np.where(np.isinf(np.einsum("ijj->ij", covariances)), np.nan, X)
    names = np.array(["a", "b", "c", "d", "e", "f", "g"])
    y = names[labels] if problem.seed % 3 == 0 else labels
    return Data(_formed(problem.form, X), y, weight, X_err, plain, labels, s, covariances, unit)


def _weights(problem: Problem, rng: np.random.Generator, labels: np.ndarray) -> tuple[np.ndarray, Any]:
    n = len(labels)
    if problem.weights == "none":
        return np.ones(n), None
    s = rng.uniform(0.5, 2.0, n)
    if problem.weights == "zeros":
        s[rng.random(n) < 0.3] = 0.0
    elif problem.weights == "ratios":
        s = 10.0 ** rng.uniform(-12, 0, n)
    elif problem.weights == "tiny":
        s *= 1e-30
    elif problem.weights == "huge":
        s *= 1e30
    for c in range(problem.classes):  # no class without any
        if not s[labels == c].any():
            s[labels == c] = 1.0
    return s, s


def _errors(problem: Problem, rng: np.random.Generator, X: np.ndarray, unit: float) -> tuple[Any, Any]:
    """Return error bars as they are given, and as covariances."""
    n, d = X.shape
    e = unit * rng.uniform(0.1, 0.5, (n, d)) * (1.0 if problem.seed % 2 else 3.0)
    kind = problem.errors
    if kind == "none":
        return None, None
    gone = rng.random((n, d)) < 0.3
    gone[rng.integers(n, size=d), np.arange(d)] = False
    if kind == "one a sample":
        return e[:, 0], e[:, :1, np.newaxis] ** 2 * np.eye(d)
    if kind == "missing samples":
        e[gone.any(axis=1) & (np.arange(n) > 0), 0] = np.inf
        return e[:, 0], _diagonal(np.repeat(e[:, :1] ** 2, d, axis=1))
    if kind == "huge":
        e *= 1000
    elif kind == "exact features":
        e[:, : (d + 1) // 2] = 0.0
    elif kind == "exact rows":
        e[rng.random(n) < 0.5] = 0.0
    elif kind in ("mixed", "sparse csr"):
        e[rng.random((n, d)) < (0.5 if kind == "mixed" else 0.9)] = 0.0
    elif kind == "missing":
        e[gone] = np.inf
    infinite = np.where(gone, np.inf, 0.0) if kind.startswith("missing") else np.zeros((n, d))
    if kind.endswith("covariances"):
        root = rng.standard_normal((n, d, d)) * e[:, :, np.newaxis] / np.sqrt(d)
        if kind == "singular covariances":  # of any rank below d, also 0
            root *= np.arange(d) < rng.integers(d, size=(n, 1, 1))
        elif kind == "zero covariances":
            root[:] = 0.0
        full = root @ root.transpose(0, 2, 1) + _diagonal(infinite)
        return full, full
    if kind.endswith("low rank"):
        factors = rng.standard_normal((n, d, 2)) * e[:, :, np.newaxis]
        std = None if kind == "singular low rank" else 0.1 * e + infinite
        full = factors @ factors.transpose(0, 2, 1)
        return LowRank(factors, std), full if std is None else full + _diagonal(std**2)
    return (sp.csr_array(e) if kind.endswith("csr") else e), _diagonal(e**2)


def _diagonal(variances: np.ndarray) -> np.ndarray:
    """Return diagonal covariances, (n, d, d)."""
    full = np.zeros((*variances.shape, variances.shape[1]))
    np.einsum("ijj->ij", full)[:] = variances
    return full


def _filled(data: Data, model: Any) -> Data:
    """Return the data with what stands for missing values: their mean and covariance given the rest of the sample.

    The population is that of the fit; how likely it is, is not a promise of the classifier.
    """
    population, unit = model.population_, data.unit
    scaled = SimpleNamespace(means=population.means / unit, covariance=population.covariance / unit**2)
    assert data.covariances is not None
    values, covariances = conditional(scaled, data.plain / unit, data.covariances / unit**2)
    return replace(data, plain=values * unit, covariances=covariances * unit**2)


def _formed(form: str, X: np.ndarray) -> Any:
    if form == "fortran":
        return np.asfortranarray(X)
    if form == "strided":
        wide = np.zeros((2 * len(X), 2 * X.shape[1]))
        wide[::2, ::2] = X
        return wide[::2, ::2]
    if form == "frame":
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    if form.startswith("csr"):
        X = sp.csr_array(X)
        return X.astype(np.float32) if form == "csr-float32" else X
    return X.astype(np.float32) if form == "float32" else X


# --- the model --------------------------------------------------------------------------------------------


def noise_of(problem: Problem, unit: float, d: int) -> Any:
    """Return the noise as it is given."""
    rng = np.random.default_rng(problem.seed + 1)
    if problem.noise in ("isotropic", "axis"):
        return problem.noise
    deviations = rng.uniform(0.2, 2.0, d)
    if problem.noise == "exact features":
        deviations[: d // 2] = 0.0
    elif problem.noise == "one exact":
        deviations[0] = 0.0
    if problem.noise in ("covariance", "singular"):
        root = root_of(problem, d)
        return root @ root.T
    return deviations


def root_of(problem: Problem, d: int) -> np.ndarray:
    """Return R of the covariance R R': of low rank if that is singular."""
    rng = np.random.default_rng(problem.seed + 2)
    root = rng.standard_normal((d, d)) * rng.uniform(0.2, 2.0, d)[:, np.newaxis]
    if problem.noise == "singular" and d > 1:
        root[:, : (d + 1) // 2] = 0.0
    return root


def estimator_of(problem: Problem, unit: float) -> Any:
    """Return the estimator, not fitted."""
    common = {"fit_intercept": problem.fit_intercept, "random_state": 0}
    sigma = problem.sigma * unit
    model = {"loss": problem.loss, "l2": problem.l2 * unit**2, "solver": problem.solver, **common}
    if problem.solver in ("sgd", "sgd2"):
        model["max_iter"] = 20
    if problem.estimator == "linear":
        return GuruClassifier(sigma, noise=noise_of(problem, unit, problem.d), **model)
    if problem.estimator == "cv":
        levels = [problem.sigma * unit, 3 * problem.sigma * unit]
        return GuruClassifierCV(levels, cv=2, noise=noise_of(problem, unit, problem.d), n_jobs=1, **model)
    if problem.estimator in ("kernel", "landmarks"):
        components = max(1, problem.n // 3) if problem.estimator == "landmarks" else None
        model["l2"] = problem.l2
        level = problem.sigma / 8 * {"linear": unit, "poly": 1 + unit**2}.get(problem.kernel, 1.0)
        return KernelGuruClassifier(level, kernel=problem.kernel, degree=2, n_components=components, **model)
    lam = (problem.l2 or 0.1) * unit**2 * {"tiny": 1e-30, "huge": 1e30}.get(problem.weights, 1.0)
    lam = min(max(lam, 1e-250), 1e250)
    delta = 0.0 if problem.sigma == CHOICES["sigma"][0] else problem.sigma * unit
    if problem.estimator == "drop":
        return FeatureDropSVC(1 + problem.seed % problem.d, lam=lam, **common)
    if problem.estimator == "ellipsoid":
        return AdversarialSVC(problem.sigma, lam=lam, **common)
    if problem.estimator == "total":
        return TotalSVC(delta, lam=lam, **common)
    if problem.estimator == "alternating":  # it seldom comes to rest
        return AdversarialSVC(delta, lam=lam, solver="alternating", max_iter=20, **common)
    return AdversarialSVC(delta, lam=lam, **common)


def scale_of(problem: Problem, data: Data, sigma: float) -> Any:
    """Return ``a(u)`` of the noise as a function, with the floor of exact features."""
    d = data.plain.shape[1]
    noise = noise_of(problem, data.unit, d)
    if isinstance(noise, str):
        order = 2 if noise == "isotropic" else np.inf
        floors = floors_of(problem, data) if sigma == 0 and data.covariances is not None else np.zeros(d)
        return lambda u: np.hypot(sigma * _norm(u, order), _norm(floors * u)) if np.any(u) else 0.0
    floor = FLOOR * spreads(problem, data)
    if noise.ndim == 1:
        deviations = np.where(noise > 0, sigma * noise, floor)
        if sigma == 0:
            deviations = floors_of(problem, data)
        return lambda u: _norm(deviations * u)
    root = root_of(problem, d)
    extra = floor if problem.noise == "singular" and d > 1 else np.zeros(d)
    if sigma == 0:
        extra = floors_of(problem, data)
    return lambda u: np.hypot(sigma * _norm(root.T @ u), _norm(extra * u))


def floors_of(problem: Problem, data: Data) -> np.ndarray:
    """Return the noise of features that have none at all where there is no other."""
    if problem.l2 or data.covariances is None:
        return np.zeros(data.plain.shape[1])
    s = data.s > 0
    exact = np.einsum("ijj->j", data.covariances[s]) == 0
    return np.where(exact, FLOOR * spreads(problem, data), 0.0)


def spreads(problem: Problem, data: Data) -> np.ndarray:
    """Return the weighted standard deviation of every feature; of a constant one its size, or 1."""
    # Without an intercept, and of sparse data, variances are differences of squares.
    centred = problem.fit_intercept and not problem.form.startswith("csr")
    weight = data.s / data.s.max()
    unit = np.abs(data.plain).max(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    scaled = data.plain / unit
    centre = np.average(scaled, axis=0, weights=weight)
    spread = unit * np.sqrt(np.average((scaled - centre) ** 2, axis=0, weights=weight))
    size = unit * np.sqrt(np.average(scaled**2, axis=0, weights=weight))
    spread = np.where(spread > (64 * EPS if centred else 1e-6) * size, spread, size)
    return np.where(spread > 0, spread, 1.0)


def _norm(u: np.ndarray, order: float = 2) -> float:
    largest = np.abs(u).max(initial=0.0)
    return float(largest * np.linalg.norm(u / largest, order)) if largest > 0 else 0.0


def objective(problem: Problem, data: Data, W: np.ndarray, b: np.ndarray, sigma: float, l2: float) -> float:
    """Return F at any classifier, pair by pair."""
    if len(W) == 1:
        W, b = np.vstack([-W / 2, W / 2]), np.array([-b[0] / 2, b[0] / 2])
    terms, scale = oracles.TERMS[problem.loss], scale_of(problem, data, sigma)
    total = 0.0
    for c in range(len(W)):
        mine = data.labels == c
        for k in range(len(W)):
            if k == c:
                continue
            u, shift = W[c] - W[k], b[c] - b[k]
            m = 1 - data.plain[mine] @ u - shift
            unit = np.abs(u).max(initial=0.0) or 1.0
            a = np.full(mine.sum(), scale(u))
            if data.covariances is not None:
                direction = u / unit
                variances = np.einsum("j,ijk,k->i", direction, data.covariances[mine], direction)
                a = np.hypot(a, unit * np.sqrt(np.maximum(variances, 0.0)))
            safe = np.where(a > 1e-290, a, 1.0)  # below it the slack in units of a overflows
            losses = np.where(a > 1e-290, safe * terms(m / safe)[0], np.maximum(m, 0.0))
            total += float(data.s[mine] @ losses) + (0.5 * l2 * float(u @ u) if c < k else 0.0)
    return total


def slack_of(data: Data, W: np.ndarray, b: np.ndarray, value: float) -> float:
    """Return how exactly F can be known: margins are sums of products."""
    reach = float(data.s @ (np.abs(data.plain) @ np.abs(W).T + np.abs(b)).max(axis=1))
    return 64 * EPS * (value + reach + data.s.sum()) * len(W)


def _noise_slack(problem: Problem, data: Data, W: np.ndarray, sigma: float) -> float:
    """Return the same for the scale of a covariance R R': sums of products again, which vanish where w has no noise."""
    if problem.noise not in ("covariance", "singular"):
        return 0.0
    sums = np.abs(W) @ np.abs(root_of(problem, data.plain.shape[1]))
    return 64 * EPS * sigma * max(_norm(each) for each in sums) * float(data.s.sum()) * len(W)


def _errors_slack(problem: Problem, data: Data, W: np.ndarray, sigma: float) -> float:
    """Return the same for singular errors: what rounding leaves of a variance of 0 has a root."""
    if not problem.errors.startswith("singular"):
        return 0.0
    assert data.covariances is not None
    scale, W = scale_of(problem, data, sigma), W if len(W) > 1 else np.vstack([-W / 2, W / 2])
    total = 0.0
    for c in range(len(W)):
        mine = data.labels == c
        for k in set(range(len(W))) - {c}:
            u = W[c] - W[k]
            unit = np.abs(u).max(initial=0.0) or 1.0
            direction, S = u / unit, data.covariances[mine]
            variances = np.maximum(np.einsum("j,ijk,k->i", direction, S, direction), 0.0)
            lost = 64 * EPS * np.einsum("j,ijk,k->i", np.abs(direction), np.abs(S), np.abs(direction))
            a = np.hypot(scale(u), unit * np.sqrt(variances))
            total += float(data.s[mine] @ (np.hypot(a, unit * np.sqrt(lost)) - a))
    return total


# --- what is promised -------------------------------------------------------------------------------------


def check(problem: Problem) -> None:
    """Raise :class:`BrokenError` if a promise is broken."""
    data = make(problem)
    model = estimator_of(problem, data.unit)
    began = time.process_time()  # whatever else the machine does
    caught = _fit(model, data)
    took = time.process_time() - began
    if took > LONGEST * (5 if problem.estimator in ("cv", "alternating", "total") else 1):
        raise BrokenError(f"took {took:.1f} s")
    if caught is None:
        return
    _check_warnings(problem, model, caught)
    if problem.estimator == "total":
        _check_ball(problem, data, model, proven=False)
    elif problem.estimator in ("adversarial", "alternating", "ellipsoid", "drop"):
        _check_ball(problem, data, model, proven=True)
    elif problem.estimator in ("kernel", "landmarks"):
        _check_kernel(problem, data, model)
    else:
        _check_linear(problem, data, model)


def _fit(model: Any, data: Data, **more: Any) -> list[Any] | None:
    """Return the warnings of a fit; None where it refuses the data with a reason that names an argument."""
    errors = {} if data.X_err is None else {"X_err": data.X_err}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(data.X, data.y, data.weight, **errors, **more)
        except ValueError as error:
            names = ("X ", "X_err", "sigma", "l2", "kernel", "sample_weight", "training samples")
            if any(name in str(error) for name in names) and "Traceback" not in str(error):
                return None
            raise BrokenError(f"ValueError that names no argument: {error}") from error
    return list(caught)


def _check_warnings(problem: Problem, model: Any, caught: list[Any]) -> None:
    kinds = [warning.category for warning in caught]
    texts = [str(warning.message) for warning in caught]
    known = (ConvergenceWarning, CollapseWarning)
    strange = [
        f"{kind.__name__}: {text}"
        for kind, text in zip(kinds, texts, strict=True)
        if kind not in known and "least populated class" not in text
    ]
    if strange:
        raise BrokenError(f"a warning of another kind: {strange[0]}")
    if problem.estimator == "cv":
        return
    if len(texts) > 1:
        raise BrokenError(f"{len(texts)} warnings: {texts}")
    converged = getattr(model, "converged_", ConvergenceWarning not in kinds)
    if converged != (ConvergenceWarning not in kinds):
        raise BrokenError(f"converged_ is {converged}, warnings {texts}")
    if texts and ConvergenceWarning in kinds:
        # An alternation may come back to where it was in its last iteration: then that is the reason.
        cycle = getattr(model, "cycle_", 0)
        if (f"in a circle of {cycle}:" in texts[0]) != (cycle > 0) or (cycle and not _is_circle(model)):
            raise BrokenError(f"{cycle=} of the losses {model.loss_curve_}: {texts[0]}")
        reached = model.n_iter_ >= model.max_iter and not cycle
        if ("max_iter" in texts[0] and "was reached" in texts[0]) != reached and problem.solver == "newton":
            raise BrokenError(f"{model.n_iter_} of {model.max_iter} iterations: {texts[0]}")
        if problem.solver == "newton" and problem.estimator != "alternating" and not _is_hard(problem):
            raise BrokenError(f"not proven: gap {model.__dict__.get('dual_gap_')} of {model.objective_}: {texts[0]}")


def _is_circle(model: Any) -> bool:
    """Return whether the last loss of an alternation is one that it had before, so many iterations ago."""
    curve = model.loss_curve_
    return 2 <= model.cycle_ < len(curve) == model.n_iter_ and bool(
        np.isclose(curve[-1], curve[-1 - model.cycle_], rtol=1e-2, atol=1e-2 * max(curve))
    )


def _is_hard(problem: Problem) -> bool:
    """Return whether double precision may resolve no more than a fit does: then it may say so."""
    far = problem.offset > 1 and (not problem.fit_intercept or problem.form.startswith("csr"))
    # Errors of a thousand spreads move a polynomial by a million of its own: forces are differences of such numbers.
    kernel = problem.estimator in ("kernel", "landmarks") and (problem.sigma <= 2.0**-10 or problem.errors == "huge")
    nearly_exact = problem.sigma <= 2.0**-10 or "exact" in problem.noise or "exact" in problem.errors
    # The ridge is next to nothing beside such weights, and there is nothing else.
    bare = problem.sigma == 0 and problem.errors == "none" and problem.weights == "huge"
    odd = (
        bare
        or problem.weights == "ratios"
        or problem.l2 >= 1e18
        or problem.data in ("units", "heavy tails", "same rows")
    )
    # Where rows have no other noise than their errors, and these are 0 in many directions, the slopes of a proof would
    # have to end at 0 or 1 exactly.
    bare |= problem.sigma == 0 and problem.l2 == 0 and problem.errors.startswith(("sparse", "zero", "singular"))
    kinked = nearly_exact and (problem.loss == "quadratic" or not problem.fit_intercept)
    # Just before the best classifier ignores the features, nearly all deletions are ties.
    tied = problem.estimator == "drop"
    return bare or far or odd or kernel or kinked or tied or problem.noise == "singular"


def _finite(model: Any, *names: str) -> None:
    for name in names:
        if not np.isfinite(getattr(model, name)).all():
            raise BrokenError(f"{name} is not finite: {getattr(model, name)}")


def _check_bound(model: Any, others: list[tuple[str, float]], slack: float) -> None:
    bound = model.objective_ - model.dual_gap_
    if model.dual_gap_ < 0 or model.dual_gap_ > model.objective_ * (1 + 1e-12):
        raise BrokenError(f"dual_gap_ {model.dual_gap_} with objective_ {model.objective_}")
    for name, value in others:
        if bound > value + slack:
            raise BrokenError(f"the bound {bound!r} is above {value!r} of {name}, by {bound - value:.3g}, {slack=:.3g}")


def _check_linear(problem: Problem, data: Data, model: Any) -> None:
    _finite(model, "coef_", "intercept_", "objective_", "dual_gap_", "alpha_" if hasattr(model, "alpha_") else "coef_")
    sigma, l2 = float(model.sigma), float(model.l2)
    W, b = model.coef_, model.intercept_
    given = data
    if "missing" in problem.errors:
        data = _filled(given, model)
    value = objective(problem, data, W, b, sigma, l2)
    slack = slack_of(data, W, b, value) + _noise_slack(problem, data, W, sigma)
    slack += _errors_slack(problem, data, W, sigma)
    if abs(value - model.objective_) > 1e-11 * value + slack:
        raise BrokenError(f"objective_ {model.objective_!r}, by the formula {value!r}")
    others = [("itself", value)]
    C = problem.classes
    if not problem.fit_intercept and np.any(b):
        raise BrokenError(f"fit_intercept=False and intercept_ {b}")
    if len(W) > 1 and abs(b.sum()) > 1e-9 * (1 + np.abs(b).max()):
        raise BrokenError(f"intercepts add up to {b.sum()}")
    rows = np.random.default_rng(problem.seed).permutation(problem.n)
    other = estimator_of(problem, data.unit).set_params(solver="newton", tol=1e-9, max_iter=500)
    if problem.estimator == "cv":
        other = estimator_of(replace(problem, estimator="linear"), data.unit).set_params(sigma=sigma)
    permuted = replace_rows(data, rows)
    if _fit(other, permuted) is not None:
        found = objective(problem, data, other.coef_, other.intercept_, sigma, l2)
        others.append(("the permuted rows", found))
        # Its own population stands for what is missing.
        theirs = _filled(given, other) if "missing" in problem.errors else data
        _check_bound(other, [("the first fit", objective(problem, theirs, W, b, sigma, l2))], slack)
    for k in range(C):
        level = np.zeros(C)
        level[k] = problem.fit_intercept
        ends = np.array([level[1] - level[0]]) if C == 2 else level
        others.append(("a constant", objective(problem, data, np.zeros_like(W), ends, sigma, l2)))
    others.append(("L-BFGS", _polished(problem, data, W, b, sigma, l2)))
    _check_bound(model, others, slack + 1e-12 * value)


def replace_rows(data: Data, rows: np.ndarray) -> Data:
    """Return the data in another order."""
    return replace(
        data,
        X=data.X.iloc[rows] if hasattr(data.X, "iloc") else data.X[rows],
        y=data.y[rows],
        weight=None if data.weight is None else data.weight[rows],
        X_err=None if data.X_err is None else data.X_err[rows],
    )


def _polished(problem: Problem, data: Data, W: np.ndarray, b: np.ndarray, sigma: float, l2: float) -> float:
    """Return the least objective that a generic descent finds from here, with gradients by differences."""
    if W.size > 30:
        return np.inf
    size, C = np.abs(W).max() or 1.0 / data.unit, len(W)

    def value(flat: np.ndarray) -> float:
        params = flat.reshape(C, -1)
        level = params[:, -1] if problem.fit_intercept else np.zeros(C)
        found = objective(problem, data, size * params[:, :-1], level, sigma, l2)
        return found / data.s.sum() if np.isfinite(found) else 1e300

    begin = np.column_stack([W / size, b]).ravel()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = minimize(value, begin, method="L-BFGS-B", options={"maxiter": 15})
    return float(found.fun * data.s.sum())


def _check_kernel(problem: Problem, data: Data, model: Any) -> None:
    _finite(model, "dual_coef_", "intercept_", "objective_", "dual_gap_", "norm_")
    if model.dual_coef_.size == 0:
        return
    value, hidden = _of_kernel(problem, data, model)
    start = data.s.sum() * (len(model.classes_) - 1)
    close = 1e-5 if problem.estimator == "landmarks" and "32" in problem.form else 1e-8  # features are float32, too
    slack = close * start + hidden + 8 * EPS * value
    if abs(value - model.objective_) > close * start + hidden + 1e-12 * value:
        raise BrokenError(f"objective_ {model.objective_!r}, of dual_coef_ {value!r}")
    _check_bound(model, [("itself", value)], slack)
    other = estimator_of(problem, data.unit).set_params(solver="newton", tol=1e-9, max_iter=500)
    if _fit(other, data) is not None:
        _check_bound(other, [("the first fit", value)], slack)
        # A bound is that of one rounding of the kernel matrix, in which another classifier may have another value.
        more = _of_kernel(problem, data, other)[1] if other.dual_coef_.size else 0.0
        _check_bound(model, [("a tighter fit", other.objective_)], slack + more)


def _of_kernel(problem: Problem, data: Data, model: Any) -> tuple[float, float]:
    """Return the objective of a kernel machine by its coefficients, and what rounding of kernel values may change."""
    beta, b = model.dual_coef_, model.intercept_
    named = {"rbf": ("gamma",), "laplacian": ("gamma",), "poly": ("gamma", "degree", "coef0")}.get(problem.kernel, ())
    values = {"gamma": model._kernel.params.get("gamma"), "degree": 2, "coef0": 1}
    parameters = {name: values[name] for name in named}
    points = model.X_fit_.toarray() if sp.issparse(model.X_fit_) else np.asarray(model.X_fit_)
    if "missing" in problem.errors:
        data = _filled(data, model)
    centre = data.plain.mean(axis=0) if problem.kernel in ("rbf", "laplacian") else 0.0
    own = pairwise_kernels(points - centre, metric=problem.kernel, **parameters)
    if data.covariances is None:
        K = pairwise_kernels(data.plain - centre, points - centre, metric=problem.kernel, **parameters)
        noisy = np.zeros((problem.n, len(points), 1))
    else:
        noise = _roots_of(data.covariances)
        K, G = expected_kernel(problem.kernel, data.plain - centre, data.covariances, points - centre, **parameters)
        noisy = G @ noise
    if len(beta) == 1:
        beta, b = np.vstack([-beta / 2, beta / 2]), np.array([-b[0] / 2, b[0] / 2])
    scores, square = K @ beta.T + b, beta @ own @ beta.T
    # Coefficients of nearly dependent samples cancel in scores and in squared lengths, whose roots lose more of them.
    rounding = 8 * EPS * (np.abs(own).max() + np.abs(noisy).max()) * np.abs(beta).sum(axis=1).max()
    lost = rounding * np.abs(beta).sum(axis=1).max()
    terms, value, hidden = oracles.TERMS[problem.loss], 0.0, 0.0
    for c in range(len(beta)):
        mine = data.labels == c
        for k in set(range(len(beta))) - {c}:
            length = np.sqrt(max(0.0, square[c, c] + square[k, k] - 2 * square[c, k]))
            spread = np.linalg.norm(np.einsum("iaj,a->ij", noisy[mine], beta[c] - beta[k]), axis=1)
            a = np.hypot(model.sigma * length, spread)
            m = 1 - scores[mine, c] + scores[mine, k]
            safe = np.where(a > 0, a, 1.0)
            value += float(data.s[mine] @ np.where(a > 0, safe * terms(m / safe)[0], np.maximum(m, 0)))
            value += 0.25 * model.l2 * length**2
            longer = min(np.sqrt(lost), lost / length if length > 0 else np.inf)
            hidden += float(data.s[mine].sum()) * (rounding + model.sigma * longer) + 0.25 * model.l2 * lost
    return value, hidden


def _roots_of(covariances: np.ndarray) -> np.ndarray:
    """Return symmetric roots, whatever the units of the features."""
    unit = np.sqrt(np.abs(covariances).max()) or 1.0
    values, axes = np.linalg.eigh(covariances / unit**2)
    return unit * (axes * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis]) @ axes.transpose(0, 2, 1)


def _check_ball(problem: Problem, data: Data, model: Any, *, proven: bool) -> None:
    _finite(model, "coef_", "intercept_", "objective_")
    W, b = model.coef_, model.intercept_
    sign = 1.0 if proven else -1.0

    def reach_of(W: np.ndarray) -> np.ndarray:
        """By how much the adversary raises every slack."""
        differences = W[data.labels][:, np.newaxis] - W
        if problem.estimator == "drop":
            terms = np.maximum(differences * data.plain[:, np.newaxis], 0.0)
            return np.sort(terms, axis=2)[:, :, -model.n_drop :].sum(axis=2)
        if problem.estimator == "ellipsoid":
            along = np.einsum("iaj,ikj->ika", _roots_of(data.covariances), differences)
            return model.delta * np.array([[_norm(each) for each in row] for row in along])
        return model.delta * np.array([[_norm(w - v) for v in W] for w in W])[data.labels]

    def value_of(W: np.ndarray, b: np.ndarray) -> float:
        lam = model.lam
        if len(W) == 1:
            W, b, lam = np.vstack([-W / 2, W / 2]), np.array([-b[0] / 2, b[0] / 2]), 2 * model.lam
        scores = data.plain @ W.T + b
        t = 1 - scores[np.arange(problem.n), data.labels][:, np.newaxis] + scores
        t += sign * reach_of(W)
        t[np.arange(problem.n), data.labels] = 0.0
        return float(data.s @ t.max(axis=1)) + 0.5 * lam * float(np.vdot(W, W))

    value = value_of(W, b)
    slack = slack_of(data, W, b, value)
    if abs(value - model.objective_) > 1e-11 * value + slack:
        raise BrokenError(f"objective_ {model.objective_!r}, by the formula {value!r}")
    others = [("zero", value_of(np.zeros_like(W), np.zeros_like(b))), ("itself", value)]
    if not proven:
        if value > others[0][1] * (1 + 1e-9):
            raise BrokenError(f"objective_ {value} is above that of zero, {others[0][1]}")
        return
    alike = problem if problem.estimator in ("ellipsoid", "drop") else replace(problem, estimator="adversarial")
    other = estimator_of(alike, data.unit).set_params(tol=1e-7 if problem.estimator == "drop" else 1e-8)
    if _fit(other, replace_rows(data, np.arange(problem.n)[::-1])) is not None:
        others.append(("the permuted rows", value_of(other.coef_, other.intercept_)))
    _check_bound(model, others, slack + 1e-12 * value)


if __name__ == "__main__":
    sys.exit(main(__doc__, draw, valid, check))
