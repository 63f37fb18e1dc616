"""Descent with the norm of w bounded, and with steps ``1/(mu t)`` for strong convexity (thesis, chapter 6).

F of GURU is flat at w = 0: its Hessian vanishes there. So F is not strongly convex in any ball about the origin, and
``mu`` is the least curvature at the optimum, which a descent does not know. SVM has its ``mu``, the weight of the norm.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.metrics.pairwise import linear_kernel
from sklearn.svm import LinearSVC

from gaussguru import GuruClassifier
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import Directory, Figure, Record
from gaussguru.certificates import norm_bound
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic
from gaussguru.plotting import style
from gaussguru.thesis.problems import BINARY
from gaussguru.thesis.store import Key, Store, make_key

PROBLEMS = ("toy-a", "pima-standardised", "usps-3-5")
UPDATES = np.unique(np.geomspace(10, 10_000, 25).astype(int))


def cells(quick: bool) -> list[Key]:
    """Return the pieces of work: all descents of a problem and seed."""
    return [make_key("steps", problem=problem, seed=seed) for seed in range(2 if quick else 5) for problem in PROBLEMS]


def compute(key: Key, data_home: Directory = None) -> Record:
    """Return ``F / F* - 1`` after so many updates by method, the bounds of the norm, and the times of a norm."""
    split = BINARY[key["problem"]].parts(key["seed"], data_home)
    X, y = split.X_train, np.where(split.y_train == split.y_train.max(), 1.0, -1.0)
    X = X - X.mean(axis=0)
    order = np.random.default_rng(key["seed"]).integers(0, len(y), UPDATES[-1])
    return {"updates": UPDATES.tolist(), "guru": _guru(X, y, order), "svm": _pegasos(X, y, order)}


def _guru(X: Array, y: Array, order: Index) -> Record:
    sigma = 0.5 * float(np.sqrt(X.var(axis=0).mean()))
    model = GuruClassifier(sigma, fit_intercept=False, tol=1e-10).fit(X, y)
    best, w = model.objective_ / len(y), model.coef_[0]
    loss, length = LOSSES["gaussian"], float(np.linalg.norm(w))
    z = (1 - y * (X @ w)) / (sigma * length)
    curve, along = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi), w / length
    U = y[:, np.newaxis] * X + z[:, np.newaxis] * sigma * along
    across = np.eye(len(w)) - np.outer(along, along)
    hessian = (U.T * curve) @ U / (sigma * length) + sigma / length * curve.sum() * across
    mu = float(np.linalg.eigvalsh(hessian)[0]) / len(y)
    bound = norm_bound(loss, Isotropic(sigma), float(np.linalg.norm(X, axis=1).max()), w)

    def value(w: Array) -> float:
        scale = sigma * np.linalg.norm(w)
        return float(np.mean(scale * loss.value((1 - y * (X @ w)) / scale))) if scale > 0 else 1.0

    def descend(step: Callable[[int], Any], factor: float, radius: float) -> list[float]:
        w, values = np.zeros(X.shape[1]), []
        for t, i in enumerate(order, start=1):
            length = float(np.sqrt(w @ w))
            slope, density = 1.0, 0.0
            if length > 0:
                z = (1 - y[i] * (X[i] @ w)) / (sigma * length)
                slope, density = float(ndtr(z)), np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * sigma / length
            eta = factor * step(t)
            w = (1 - eta * density) * w + (eta * slope * y[i]) * X[i]
            length = float(np.sqrt(w @ w))
            if length > radius:
                w *= radius / length
            if t in checked:
                values.append(value(w) / best - 1)
        return values

    checked = set(UPDATES.tolist())
    scale = length / np.sqrt(np.square(X).sum(axis=1).mean())
    steps = {"1/sqrt(t)": lambda t: scale / np.sqrt(t), "1/(mu t)": lambda t: 1 / (mu * t)}
    excess = {}
    for (name, step), (ball, radius) in itertools.product(
        steps.items(), {"": np.inf, ", ball": bound, ", ball of w*": length}.items()
    ):
        runs = (descend(step, factor, radius) for factor in 4.0 ** np.arange(-8, 4))
        excess[name + ball] = min(runs, key=lambda values: values[-1])
    excess["1/(mu t), factor 1"] = descend(steps["1/(mu t)"], 1.0, np.inf)
    return {"excess": excess, "norm": length, "bound": min(bound, 1e300), "mu": mu}


def _pegasos(X: Array, y: Array, order: Index) -> Record:
    """Descend on ``lam/2 ||w||^2`` and the mean hinge by Pegasos with a kernel, with a norm that is kept in O(1)."""
    K = linear_kernel(X)
    lam = 1e-3 * float(np.mean(np.diag(K)))  # the weight of the norm, relative to the mean squared length
    n, checked = len(y), set(UPDATES.tolist())
    svm = LinearSVC(C=1 / (lam * n), loss="hinge", fit_intercept=False, tol=1e-8, max_iter=200_000, random_state=0)
    svm.fit(X, y)

    def value(coef: Array) -> float:
        scores = K @ coef
        return float(0.5 * lam * coef @ scores + np.mean(np.maximum(0.0, 1 - y * scores)))

    best = value(np.linalg.lstsq(X.T, svm.coef_[0], rcond=None)[0])
    excess, seconds = {}, {}
    for name, keep in {"Pegasos without": None, "Pegasos, norm in O(1)": True, "Pegasos, norm anew": False}.items():
        coef, factor, square, values = np.zeros(n), 1.0, 0.0, []
        began = time.thread_time()
        for t, i in enumerate(order, start=1):
            score = factor * float(K[i] @ coef)
            gamma, gain = (1 - 1 / t, 1 / (lam * t)) if t > 1 else (0.0, 1 / lam)
            gain *= y[i] * score < 1
            square = gamma**2 * square + 2 * gamma * gain * y[i] * score + gain**2 * K[i, i]
            if gamma == 0:
                coef, factor = np.zeros(n), 1.0
            else:
                factor *= gamma
            coef[i] += gain * y[i] / factor
            if keep is not None:
                if not keep:
                    square = factor**2 * float(coef @ K @ coef)
                shrink = min(1.0, 1 / np.sqrt(lam * square)) if square > 0 else 1.0
                factor, square = factor * shrink, square * shrink**2
            if t in checked:
                values.append(value(factor * coef) / best - 1)
                if keep is False and len(values) > len(checked) / 2:  # too slow to go on
                    break
        seconds[name] = (time.thread_time() - began) / t
        excess[name] = values
    return {"excess": excess, "seconds of an update": seconds}


def draw(store: Store, quick: bool) -> Figure:
    """Return a figure of the mean losses against updates: GURU above, SVM below, a column for each problem."""
    figure = style.figure(len(PROBLEMS), 2)
    done = list(store.matching(cells(quick)))
    for ax, (kind, problem) in zip(figure.axes, itertools.product(("guru", "svm"), PROBLEMS), strict=True):
        runs = [result[kind]["excess"] for key, result in done if key["problem"] == problem]
        for number, name in enumerate(runs[0] if runs else ()):
            excess = np.maximum(np.mean([run[name] for run in runs], axis=0), 1e-9)
            ax.plot(UPDATES[: len(excess)], excess, label=name, **style.line_of(number))
        ax.set(xscale="log", yscale="log")
        title = f"{BINARY[problem].title}, {'GURU' if kind == 'guru' else 'SVM'}"
        style.finish(ax, "updates", "loss above the least, relative", title, legend=False)
    for ax in figure.axes[:: len(PROBLEMS)] if done else ():
        ax.legend(fontsize=style.SMALL)
    return figure
