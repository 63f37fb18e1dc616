"""Kernel classifiers: exact fits against SVC, and Nystroem features against a pipeline of them and SVC on many rows.

Fits with error bars are compared with those without, in processor time: at most d + 1 times.
"""

import resource
import time
import tracemalloc
from typing import Any

import numpy as np
from problems import DATA, covtype, digits
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from gaussguru import KernelGuruClassifier

PAUSE = 0.2


def best_seconds(models: dict[str, Any], X: np.ndarray, y: np.ndarray, rounds: int) -> dict[str, float]:
    """Return the least time of each model; a round fits every one of them once."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            time.sleep(PAUSE)
            began = time.perf_counter()
            model.fit(X, y)
            times[name].append(time.perf_counter() - began)
    return {name: min(values) for name, values in times.items()}


def report(models: dict[str, Any], best: dict[str, float], peer: str, goal: float, n: int) -> None:
    for name, took in best.items():
        if name == peer:
            print(f"  {name:26s} {took:8.2f} s")
            continue
        verdict = "ok" if best[peer] / took >= goal else "BELOW GOAL"
        print(f"  {name:26s} {took:8.2f} s   {best[peer] / took:6.2f} x as fast (goal {goal:g}: {verdict})", end="")
        print(f"   gap {models[name].dual_gap_ / n:.0e}, {models[name].n_iter_} iterations")


def exact() -> None:
    X, y = digits("usps_9298")
    some = np.random.default_rng(0).permutation(len(y))[:5000]
    X, y = X[some] * 255.0, y[some] < 5  # this file has values in [0, 1] already
    models: dict[str, Any] = {"SVC": SVC()}
    models |= {f"sigma = {sigma:g}": KernelGuruClassifier(sigma) for sigma in (0.1, 0.03, 0.01, 0.003)}
    report(models, best_seconds(models, X, y, 7), "SVC", 1.0, len(y))


def nystroem() -> None:
    X, y = digits("mnist_70000")
    X, y = X[:60_000], y[:60_000] % 2 == 0
    gamma = 1 / (X.shape[1] * X.var())
    peer = make_pipeline(Nystroem(gamma=gamma, n_components=1000, random_state=0), LinearSVC())
    models: dict[str, Any] = {"Nystroem + LinearSVC": peer}
    for sigma in (0.1, 0.03, 0.01):
        models[f"sigma = {sigma:g}"] = KernelGuruClassifier(sigma, gamma=gamma, n_components=1000, random_state=0)
    report(models, best_seconds(models, X, y, 1), "Nystroem + LinearSVC", 1.0, len(y))


def many_rows() -> None:
    X, y = covtype()
    order = np.random.default_rng(0).permutation(len(y))
    sizes, times = [5_000, 10_000, 20_000], []
    for n in sizes:
        (took,) = best_seconds({"SVC": SVC()}, X[order[:n]], y[order[:n]], 2 if n < 20_000 else 1).values()
        print(f"  SVC, {n} rows {took:20.2f} s")
        times.append(took)
    power, constant = np.polyfit(np.log(sizes), np.log(times), 1)
    n = 100_000
    name = f"SVC, n^{power:.2f} to {n} rows"
    models = {f"sigma = {sigma:g}": KernelGuruClassifier(sigma, n_components=500) for sigma in (0.1, 0.03, 0.01)}
    best = best_seconds(models, X[order[:n]], y[order[:n]], 2)
    report(models, {name: float(np.exp(constant + power * np.log(n))), **best}, name, 5.0, n)


def curved(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return samples with error bars, and classes that no plane separates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    score = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.5 * rng.standard_normal(n)
    return X, score > 0, rng.uniform(0.1, 0.6, X.shape)


def with_errors(n: int, d: int, most: float) -> None:
    X, y, X_err = curved(n, d)
    for sigma in (0.1, 0.03, 0.01):
        took = []
        for errors in (None, X_err):
            model = KernelGuruClassifier(sigma, n_components=300, random_state=0)
            began = time.process_time()
            model.fit(X, y, X_err=errors)
            took.append(time.process_time() - began)
        times = took[1] / took[0]
        verdict = "ok" if times <= d + 1 and took[1] < most else "ABOVE GOAL"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"  sigma = {sigma:<5g} without {took[0]:6.2f} s   with {took[1]:6.2f} s   {times:5.1f} times", end="")
        print(f" (goal {d + 1} and {most:g} s: {verdict})   gap {model.dual_gap_ / n:.0e}, {memory:.1f} GB")


def predictions() -> None:
    X, y, X_err = curved(5000, 10)
    model = KernelGuruClassifier(0.03, n_components=300, random_state=0, n_jobs=1).fit(X, y, X_err=X_err)
    many, errors = np.tile(X, (200, 1)), np.tile(X_err, (200, 1))
    began = time.process_time()
    model.margin_and_spread(many, errors)
    took = time.process_time() - began
    tracemalloc.start()
    model.margin_and_spread(many, errors)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"  {took:.1f} s, at most {peak / 1e6:.0f} MB besides X and X_err, of which 16 MB are the result")


KERNEL_PROBLEMS = {
    "kernel errors: rbf, 10,000 x 10, 300 components": ((), lambda: with_errors(10_000, 10, 10.0)),
    "kernel errors: rbf, 100,000 x 20, 300 components": ((), lambda: with_errors(100_000, 20, 180.0)),
    "kernel errors: prediction of 1,000,000 x 10, 300 components": ((), predictions),
    "kernel: usps 0-4 or 5-9, rbf, 5,000 x 256, exact": (("usps_9298.npz",), exact),
    "kernel: mnist even or odd, rbf, 60,000 x 784, 1,000 components": (("mnist_70000.npz",), nystroem),
    "kernel: covtype, rbf, 100,000 x 54, 500 components": (("covtype.npz",), many_rows),
}


def show_kernels(words: list[str]) -> None:
    for name, (files, run) in KERNEL_PROBLEMS.items():
        if all(word in name for word in words):
            print(f"\n{name}")
            missing = [file for file in files if not (DATA / file).exists()]
            if missing:
                print(f"  not run: {', '.join(missing)} not in {DATA} (set GAUSSGURU_DATA)")
            else:
                run()
