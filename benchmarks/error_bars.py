"""What error bars are worth on real data: accuracy, log loss and calibration, with and without them.

    python benchmarks/error_bars.py

Every data set is split into training and test samples five times (koi by star, several of its objects share one). What
has to be chosen is chosen by cross-validation within the training samples. All features are scaled to unit variance,
their errors with them. Of a support vector machine, probabilities are a logistic function fitted to its scores.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from problems import DATA
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupShuffleSplit, StratifiedShuffleSplit
from sklearn.svm import LinearSVC

from gaussguru import GuruClassifierCV

N_SPLITS, N_COPIES, SIGMAS = 5, 5, np.geomspace(1e-3, 1.0, 10)
GRID = {"C": np.geomspace(1e-3, 1e2, 6)}

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


def koi() -> Data:
    data = np.load(DATA / "koi_err.npz")
    known = data["y"] != "CANDIDATE"
    return data["X"][known], data["X_err"][known], data["y"][known] == "CONFIRMED", data["kepid"][known]


def table(name: str, positive: Any) -> Data:
    data = np.load(DATA / f"{name}.npz")
    return data["X"].astype(float), data["X_err"].astype(float), data["y"] == positive, None


DATASETS: dict[str, Callable[[], Data]] = {
    "koi, confirmed or false positive": koi,
    "fermi3fgl, pulsar or active galaxy": lambda: table("fermi3fgl_err", "PSR"),
    "snpcc, supernova Ia or other": lambda: table("snpcc_des_err", 1),
    "wdbc, malignant or benign": lambda: table("wdbc_mean_se", 1),
}


def perturbed(X: np.ndarray, E: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.vstack([X + E * rng.standard_normal(X.shape) for _ in range(N_COPIES)]), np.tile(y, N_COPIES)


def probabilities(X: np.ndarray, E: np.ndarray, y: np.ndarray, Z: np.ndarray, F: np.ndarray) -> dict[str, np.ndarray]:
    """Return the probabilities that every model gives to the test samples Z with errors F."""
    svm = GridSearchCV(LinearSVC(), GRID, cv=3)
    bars = GuruClassifierCV(SIGMAS, cv=3).fit(X, y, X_err=E)
    plain = GuruClassifierCV(SIGMAS, cv=3).fit(X, y)
    return {
        "GURU, error bars": bars.predict_proba(Z, F)[:, 1],
        "GURU, one sigma": plain.predict_proba(Z)[:, 1],
        "LinearSVC": CalibratedClassifierCV(svm, cv=3).fit(X, y).predict_proba(Z)[:, 1],
        "LogisticRegression": LogisticRegression().fit(X, y).predict_proba(Z)[:, 1],
        "random forest": RandomForestClassifier(300, random_state=0, n_jobs=-1).fit(X, y).predict_proba(Z)[:, 1],
        "LinearSVC, noisy copies": CalibratedClassifierCV(svm, cv=3).fit(*perturbed(X, E, y)).predict_proba(Z)[:, 1],
    }


def calibration_error(y: np.ndarray, p: np.ndarray, n_bins: int = 10) -> float:
    """Return the mean distance of probabilities from frequencies, over bins of equal width."""
    bins = np.minimum((p * n_bins).astype(int), n_bins - 1)
    return float(sum(abs((y[bins == k] - p[bins == k]).sum()) for k in range(n_bins)) / len(y))


def evaluate(load: Callable[[], Data]) -> dict[str, np.ndarray]:
    X, E, y, groups = load()
    y = y.astype(int)
    splitter: Any = StratifiedShuffleSplit if groups is None else GroupShuffleSplit
    results: dict[str, list[list[float]]] = {}
    for train, test in splitter(N_SPLITS, test_size=0.3, random_state=0).split(X, y, groups):
        mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
        Z, F = (X - mean) / spread, E / spread
        for name, p in probabilities(Z[train], F[train], y[train], Z[test], F[test]).items():
            clipped = np.clip(p, 1e-6, 1 - 1e-6)  # or one certain mistake costs infinity
            scores = [np.mean((p > 0.5) == y[test]), log_loss(y[test], clipped), calibration_error(y[test], p)]
            results.setdefault(name, []).append(scores)
    return {name: np.array(values) for name, values in results.items()}


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name, load in DATASETS.items():
        print(f"\n{name}\n{'':26s}{'accuracy':>18s}{'log loss':>18s}{'calibration error':>20s}", flush=True)
        for model, values in evaluate(load).items():
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
            cells = [f"{m:.4f} +- {e:.4f}" for m, e in zip(mean, error, strict=True)]
            print(f"{model:26s}{cells[0]:>18s}{cells[1]:>18s}{cells[2]:>20s}", flush=True)


if __name__ == "__main__":
    main()
