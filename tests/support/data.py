"""Problems to solve: real data where it is found, scikit-learn's own and synthetic data always."""

import os
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

_DIRECTORY = Path(os.environ.get("GAUSSGURU_DATA") or Path(__file__).parents[3] / "shared" / "data")


def _load(name):
    with np.load(_DIRECTORY / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(np.float64), file["y"]


def _signs(positive):
    return np.where(positive, 1.0, -1.0)


def standardised(X):
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def clouds(n_pos, n_neg, d, distance=1.0, seed=0):
    """Return two Gaussian clouds, ``distance`` apart in units of their spread, not centred."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_pos + n_neg, d)) + 0.3
    y = np.repeat([1.0, -1.0], [n_pos, n_neg])
    X += np.outer(y, np.full(d, distance / (2 * np.sqrt(d))))
    order = rng.permutation(len(y))
    return X[order], y[order]


def groups(sizes, d, distance=2.0, seed=0):
    """Return Gaussian clouds of these sizes about random centres, and labels 0, 1, ..."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    centres = rng.standard_normal((len(sizes), d)) * distance / np.sqrt(2 * d)
    X = rng.standard_normal((len(y), d)) + centres[y] + 0.3
    order = rng.permutation(len(y))
    return X[order], y[order]


def _table(name):
    X, y = _load(name)
    return X, _signs(y == 1)


def _usps(scale):
    X, y = _load("usps_all_11000")
    rows = np.random.default_rng(0).choice(np.flatnonzero((y == 3) | (y == 5)), 800, replace=False)
    return scale(X[rows] / 255), _signs(y[rows] == 3)


def _breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return standardised(X), _signs(y == 1)


def _repeated_columns():
    X, y = clouds(80, 70, 4, 1.5, seed=3)
    return np.column_stack([X, X[:, :2], np.zeros(150), np.full(150, 2.0)]), y


_MAKERS = {
    "ionosphere": ("ionosphere", lambda: _table("ionosphere")),
    "pima": ("pima", lambda: _table("pima")),
    "usps": ("usps_all_11000", lambda: _usps(lambda X: X)),
    "usps-standardised": ("usps_all_11000", lambda: _usps(standardised)),
    "breast-cancer": (None, _breast_cancer),
    "balanced": (None, lambda: clouds(100, 100, 5, 1.5, seed=1)),
    "unbalanced": (None, lambda: clouds(6, 300, 4, 2.0, seed=2)),
    "separable": (None, lambda: clouds(60, 40, 3, 12.0, seed=4)),
    "wide": (None, lambda: clouds(16, 14, 100, 2.0, seed=5)),
    "repeated-columns": (None, _repeated_columns),
}
PROBLEMS = [name for name, (file, _) in _MAKERS.items() if file is None or (_DIRECTORY / f"{file}.npz").exists()]


@cache
def problem(name):
    """Return X and y = +-1 of a named problem, read-only."""
    X, y = _MAKERS[name][1]()
    X = np.ascontiguousarray(X)
    for array in (X, y):
        array.flags.writeable = False
    return X, y


def _some(X, y, n_rows):
    rows = np.random.default_rng(0).choice(len(y), n_rows, replace=False)
    return X[rows], y[rows]


def _wine():
    X, y = load_wine(return_X_y=True)
    return standardised(X), y


def _digits():
    X, y = load_digits(return_X_y=True)
    return _some(X / 16, y, 600)


def _usps_358():
    X, y = _load("usps_all_11000")
    among = np.isin(y, [3, 5, 8])
    return _some(X[among] / 255, y[among], 600)


def _letter():
    X, y = _load("letter")
    return _some(X, y, 2000)


_JOINT_MAKERS = {
    "iris": (None, lambda: load_iris(return_X_y=True)),
    "wine": (None, _wine),
    "digits": (None, _digits),
    "usps-358": ("usps_all_11000", _usps_358),
    "letter": ("letter", _letter),
}
JOINT_PROBLEMS = [
    name for name, (file, _) in _JOINT_MAKERS.items() if not file or (_DIRECTORY / f"{file}.npz").exists()
]


@cache
def joint_problem(name):
    """Return X and labels 0, 1, ... of a named problem of more than two classes, read-only."""
    X, y = _JOINT_MAKERS[name][1]()
    X, y = np.ascontiguousarray(X), np.unique(y, return_inverse=True)[1]
    for array in (X, y):
        array.flags.writeable = False
    return X, y


def _usps_3_5():
    X, y = _load("usps_all_11000")
    among = np.isin(y, [3, 5])
    X, y = _some(X[among] / 255, y[among], 350)
    return X, _signs(y == 3)


def _pima():
    X, y = _table("pima")
    return _some(standardised(X), y, 250)


def _splice():
    X, y = _load("dna_180")
    among = y != "n"
    X, y = _some(X[among], y[among], 200)
    return X, _signs(y == "ei")


def _rings():
    rng = np.random.default_rng(7)
    y = _signs(np.arange(150) % 5 < 3)
    angle, radius = rng.uniform(0, 2 * np.pi, 150), np.where(y > 0, 1.0, 2.0) + 0.35 * rng.standard_normal(150)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


# Problems for kernels, each with one that suits it.
_KERNEL_MAKERS = {
    "ionosphere": ("ionosphere", lambda: _table("ionosphere"), {"kernel": "rbf", "gamma": 1.0}),
    "usps-35": ("usps_all_11000", _usps_3_5, {"kernel": "poly", "degree": 2, "gamma": 1 / 256}),
    "pima": ("pima", _pima, {"kernel": "rbf", "gamma": 0.1}),
    "splice": ("dna_180", _splice, {"kernel": "poly", "degree": 2, "gamma": 1 / 60, "coef0": 0}),
    "rings": (None, _rings, {"kernel": "rbf", "gamma": 1.0}),
    "rings-poly": (None, _rings, {"kernel": "poly", "degree": 2, "gamma": 1.0}),
    "uneven": (None, lambda: clouds(20, 100, 3, 2.0, seed=6), {"kernel": "laplacian", "gamma": 0.5}),
}
KERNEL_PROBLEMS = [
    name for name, (file, *_) in _KERNEL_MAKERS.items() if not file or (_DIRECTORY / f"{file}.npz").exists()
]


@cache
def kernel_problem(name):
    """Return X, y = +-1, both read-only, and a kernel with its parameters."""
    _, make, kernel = _KERNEL_MAKERS[name]
    X, y = (np.ascontiguousarray(array) for array in make())
    for array in (X, y):
        array.flags.writeable = False
    return X, y, kernel


# Real data with error bars: the file, and the label that is positive.
_MEASURED = {"koi_err": "CONFIRMED", "fermi3fgl_err": "PSR", "snpcc_des_err": 1, "wdbc_mean_se": 1}
MEASURED = [name for name in _MEASURED if (_DIRECTORY / f"{name}.npz").exists()]


def measured(name, n_samples=400):
    """Return some samples, scaled to unit variance, their errors, and labels 0 and 1."""
    with np.load(_DIRECTORY / f"{name}.npz", allow_pickle=False) as file:
        X, E, y = file["X"].astype(np.float64), file["X_err"].astype(np.float64), file["y"]
    some = np.random.default_rng(0).permutation(np.flatnonzero(y.astype(str) != "CANDIDATE"))[:n_samples]
    spread = X.std(axis=0)
    return ((X - X.mean(axis=0)) / spread)[some], (E / spread)[some], (y[some] == _MEASURED[name]).astype(int)
