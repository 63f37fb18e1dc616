"""The problems of the benchmark: a name, the data, and how much faster than the fastest peer a fit must be."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfTransformer

DATA = Path(os.environ.get("GAUSSGURU_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


class Problem(NamedTuple):
    name: str
    files: tuple[str, ...]
    load: Callable[[], tuple[Any, np.ndarray]]
    goal: float
    peers: str = "all"


def gaussian(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal features, labels from a linear rule with noise on its score."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    score = X @ rng.normal(size=d) / np.sqrt(d) + 0.5 * rng.normal(size=n)
    return X, (score > 0).astype(int)


def covtype() -> tuple[np.ndarray, np.ndarray]:
    data = np.load(DATA / "covtype.npz")
    X = data["X"].astype(np.float64)
    return np.ascontiguousarray((X - X.mean(axis=0)) / X.std(axis=0)), (data["y"] == 2).astype(int)


def a9a() -> tuple[Any, np.ndarray]:
    return sp.csr_matrix(sp.load_npz(DATA / "a9a.npz"), dtype=np.float64), np.load(DATA / "a9a_y.npy")


def news20() -> tuple[Any, np.ndarray]:
    counts = sp.load_npz(DATA / "news20_counts.npz").astype(np.float64)
    X = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    X.sort_indices()
    return sp.csr_matrix(X), (np.load(DATA / "news20_counts_y.npy") < 10).astype(int)


def digits(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = np.load(DATA / f"{name}.npz")
    return data["X"] / 255.0, data["y"]


def mnist() -> tuple[np.ndarray, np.ndarray]:
    X, y = digits("mnist_70000")
    return X, (y % 2 == 0).astype(int)


def letter() -> tuple[np.ndarray, np.ndarray]:
    data = np.load(DATA / "letter.npz")
    return data["X"].astype(np.float64), data["y"]


def ionosphere() -> tuple[np.ndarray, np.ndarray]:
    data = np.load(DATA / "ionosphere.npz")
    return data["X"], data["y"]


def iris() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    return X, (y == 2).astype(int)


PROBLEMS = [
    Problem("iris, class 2 or not, 150 x 4", (), iris, 1.0, "LinearSVC"),
    Problem("ionosphere, 351 x 34", ("ionosphere.npz",), ionosphere, 1.0, "LinearSVC"),
    Problem("a9a sparse, 48,842 x 123", ("a9a.npz", "a9a_y.npy"), a9a, 2.0),
    Problem("news20 sparse, 18,846 x 130,108", ("news20_counts.npz", "news20_counts_y.npy"), news20, 1.0),
    Problem("gaussian, 200,000 x 100", (), lambda: gaussian(200_000, 100), 3.0),
    Problem("gaussian, 1,000,000 x 10", (), lambda: gaussian(1_000_000, 10), 6.0),
    Problem("covtype, class 2 or not, 581,012 x 54", ("covtype.npz",), covtype, 3.0),
    Problem("mnist, even or odd, 70,000 x 784", ("mnist_70000.npz",), mnist, 2.0),
    Problem("letter, 26 classes, 20,000 x 16", ("letter.npz",), letter, 2.0, "LogisticRegression"),
    Problem(
        "usps, 10 classes, 11,000 x 256",
        ("usps_all_11000.npz",),
        lambda: digits("usps_all_11000"),
        2.0,
        "LogisticRegression",
    ),
    Problem(
        "mnist, 10 classes, 70,000 x 784",
        ("mnist_70000.npz",),
        lambda: digits("mnist_70000"),
        1.0,
        "LogisticRegression",
    ),
]

# One pass of steps over the data, by partial_fit.
EPOCHS = [
    Problem("one epoch, covtype, 581,012 x 54", ("covtype.npz",), covtype, 1.5),
    Problem("one epoch, news20 sparse, 18,846 x 130,108", ("news20_counts.npz", "news20_counts_y.npy"), news20, 1.5),
]

# The exact hard-ball machine against one LinearSVC, which it may take three times as long as.
BALLS = [
    Problem("hard ball, a9a, 48,842 x 123", ("a9a.npz",), a9a, 1 / 3),
    Problem("hard ball, covtype, class 2 or not, 581,012 x 54", ("covtype.npz",), covtype, 1 / 3),
]


# Fits with an error bar for every value, which may take so many times those without.
BARS = [
    Problem("error bars, ionosphere, 351 x 34", ("ionosphere.npz",), ionosphere, 3.0),
    Problem("error bars, gaussian, 200,000 x 100", (), lambda: gaussian(200_000, 100), 3.0),
    Problem("error bars, gaussian, 1,000,000 x 10", (), lambda: gaussian(1_000_000, 10), 3.0),
    Problem("error bars, covtype, 581,012 x 54", ("covtype.npz",), covtype, 3.0),
]


def feature_scale(X: Any) -> float:
    """Return the mean standard deviation of the columns."""
    if sp.issparse(X):
        mean = np.asarray(X.mean(axis=0)).ravel()
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        return float(np.sqrt(np.maximum(square - mean**2, 0)).mean())
    return float(X.std(axis=0).mean())
