"""Choosing sigma: a path against one fit at its median sigma, cross-validation against a grid search over LinearSVC."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from problems import DATA, covtype, digits, gaussian
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from gaussguru import GuruClassifier, GuruClassifierCV, sigma_path

PAUSE = 0.2
ROUNDS, FEW = 7, 2
ENOUGH = 20.0
AT_MOST = 5.0


def best_seconds(tasks: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the least time of each task; a round runs every one of them once, and few do where they take long."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    start = time.perf_counter()
    for done in range(rounds):
        if done >= FEW and time.perf_counter() - start > ENOUGH:
            break
        for name, task in tasks.items():
            time.sleep(PAUSE)
            began = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - began)
    return {name: min(values) for name, values in times.items()}


def usps_35() -> tuple[np.ndarray, np.ndarray]:
    X, y = digits("usps_all_11000")
    chosen = np.isin(y, [3, 5])
    return np.ascontiguousarray(X[chosen]), y[chosen]


def path(load: Callable[[], tuple[Any, np.ndarray]]) -> None:
    """Compare with BLAS on one thread for both: a path keeps it there, a small fit does not."""
    X, y = load()
    sigmas, _, _, gaps = sigma_path(X, y)
    middle = float(np.sqrt(sigmas[9] * sigmas[10]))
    with threadpool_limits(1, user_api="blas"):
        best = best_seconds({"fit": lambda: GuruClassifier(middle).fit(X, y), "path": lambda: sigma_path(X, y)}, ROUNDS)
    ratio = best["path"] / best["fit"]
    zero = len(y) * (len(np.unique(y)) - 1)
    print(f"  one fit, sigma = {middle:<8.3g} {1e3 * best['fit']:10.1f} ms")
    print(
        f"  20 sigmas {sigmas[0]:.3g} to {sigmas[-1]:<8.2g} {1e3 * best['path']:8.1f} ms   {ratio:6.2f} fits "
        f"(goal at most {AT_MOST:g}: {'ok' if ratio <= AT_MOST else 'ABOVE GOAL'})   worst gap {gaps.max() / zero:.0e}"
    )


def choice(load: Callable[[], tuple[Any, np.ndarray]]) -> None:
    X, y = load()
    ours = GuruClassifierCV()
    peer = GridSearchCV(LinearSVC(), {"C": np.geomspace(1e-4, 1e4, 20)}, n_jobs=-1)
    best = best_seconds({"peer": lambda: peer.fit(X, y), "ours": lambda: ours.fit(X, y)}, FEW)
    ratio = best["peer"] / best["ours"]
    print(f"  GridSearchCV(LinearSVC)    {best['peer']:8.2f} s   accuracy {peer.best_score_:.4f}")
    print(
        f"  GuruClassifierCV           {best['ours']:8.2f} s   accuracy {ours.scores_.mean(axis=1).max():.4f}   "
        f"{ratio:6.2f} x as fast (goal 1: {'ok' if ratio >= 1 else 'BELOW GOAL'})"
    )


PATH_PROBLEMS = {
    "path: usps 3 or 5, 2,200 x 256, 20 sigmas": (("usps_all_11000.npz",), path, usps_35),
    "path: usps, 10 classes, 11,000 x 256, 20 sigmas": (
        ("usps_all_11000.npz",),
        path,
        lambda: digits("usps_all_11000"),
    ),
    "path: gaussian 200,000 x 100, 20 sigmas": ((), path, lambda: gaussian(200_000, 100)),
    "path: covtype 581,012 x 54, 20 sigmas": (("covtype.npz",), path, covtype),
    "path: usps 3 or 5, 2,200 x 256, 20 sigmas x 5 folds": (("usps_all_11000.npz",), choice, usps_35),
}


def show_paths(words: list[str]) -> None:
    for name, (files, run, load) in PATH_PROBLEMS.items():
        if all(word in name for word in words):
            print(f"\n{name}")
            missing = [file for file in files if not (DATA / file).exists()]
            if missing:
                print(f"  not run: {', '.join(missing)} not in {DATA} (set GAUSSGURU_DATA)")
            else:
                run(load)
