"""Images that are turned and moved: noise along their tangents against noise in every direction (thesis, chapter 6)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import ndimage

from gaussguru import GuruClassifier, KernelGuruClassifier
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Directory, Figure, Record
from gaussguru.plotting import style
from gaussguru.preprocessing import image_tangents
from gaussguru.thesis.problems import BINARY
from gaussguru.thesis.results import draw_accuracy
from gaussguru.thesis.search import FittedCandidate, accuracy_on, best, fitted
from gaussguru.thesis.splits import ThesisSplit
from gaussguru.thesis.store import Key, Store, make_key

PAIRS = ("usps-3-5", "usps-5-8", "usps-7-9")
# Standard deviations of the angles (degrees) and displacements (pixels) at level 1; levels of validation and tests.
TURN, MOVE = 10.0, 1.0
LEVELS = (0.0, 0.5, 1.0, 1.5)
MODELS: dict[str, Callable[..., Any]] = {
    "linear": GuruClassifier,
    "kernel": lambda sigma, **options: KernelGuruClassifier(
        sigma, kernel="poly", degree=2, gamma=1.0, coef0=1.0, **options
    ),
}
METHODS = ("every direction", "tangents", "copies")


def cells(quick: bool) -> list[Key]:
    """Return the pieces of work: each method for every pair of digits, model and seed."""
    return [
        make_key("tangents", problem=problem, model=model, method=method, seed=seed)
        for seed in range(1 if quick else 5)
        for problem in PAIRS
        for model in (("linear",) if quick else MODELS)
        for method in METHODS
    ]


def compute(key: Key, data_home: Directory = None) -> Record:
    """Return the accuracies at every level, of the sizes and sigmas that are best for validation images."""
    split = BINARY[key["problem"]].parts(key["seed"], data_home)
    # A fit with a kernel and error bars takes half a minute with all 800 images.
    split = split._replace(X_train=split.X_train[:200], y_train=split.y_train[:200])
    measures = []
    for number, level in enumerate(LEVELS):
        rng = np.random.default_rng([key["seed"], number])
        pairs = [(split.X_valid, split.y_valid), (split.X_test, split.y_test)]
        valid, test = (accuracy_on(transformed(X, level, rng), y) for X, y in pairs)
        measures.append((valid, test))
    return best(_candidates(key, split), measures)


def _candidates(key: Key, split: ThesisSplit) -> Iterator[FittedCandidate]:
    make, method = MODELS[key["model"]], key["method"]
    alone, beside = 2.0 ** np.arange(4, -7, -1), (1.0, 0.25, 0.0625) if key["model"] == "linear" else (2.0, 0.5)
    for size in (
        (0.0,) if method == "every direction" else (1.0, 0.5)
    ):  # of noise along tangents and of copies, in levels
        for sigma in alone if method != "tangents" else beside:
            given, part = {}, split
            if method == "tangents":
                amounts = {"rotation": TURN * size, "translation": MOVE * size}
                given = {"X_err": image_tangents(split.X_train, (16, 16), **amounts)}
            elif method == "copies":
                rng = np.random.default_rng([key["seed"], 99])
                copies = [transformed(split.X_train, size, rng) for _ in range(5)]
                images, labels = np.concatenate([split.X_train, *copies]), np.tile(split.y_train, 6)
                part = split._replace(X_train=images, y_train=labels)
            yield fitted(make(float(sigma), tol=1e-4), part, {"size": size, "sigma": float(sigma)}, **given)


def transformed(X: Array, level: float, rng: np.random.Generator) -> Array:
    """Return images that are turned and moved by Gaussian angles and displacements."""
    moved = []
    for image in X.reshape(-1, 16, 16):
        angle, *shift = level * rng.standard_normal(3) * [np.deg2rad(TURN), MOVE, MOVE]
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        moved.append(ndimage.affine_transform(image, turn, 7.5 - turn @ (7.5 + np.array(shift)), order=1))
    return np.array(moved).reshape(X.shape)


def draw(store: Store, quick: bool) -> Figure:
    """Return a figure with the accuracy of the methods against the level, a row for each model."""
    done = list(store.matching(cells(quick)))
    models = [model for model in MODELS if any(key["model"] == model for key, _ in done)]
    figure = style.figure(len(PAIRS), len(models))
    for ax, (model, problem) in zip(figure.axes, ((m, p) for m in models for p in PAIRS), strict=True):
        for number, method in enumerate(METHODS):
            wanted = {"model": model, "problem": problem, "method": method}
            scores = np.array([result["test"] for key, result in done if wanted.items() <= key.items()])
            if len(scores):
                draw_accuracy(ax, LEVELS, scores, label=method, **style.line_of(number))
        title = f"{BINARY[problem].title}, {model}"
        style.finish(ax, f"level: {TURN:g}° and {MOVE:g} pixel", "test accuracy (%)", title, legend=False)
    figure.axes[-1].legend(fontsize=style.SMALL)
    return figure
