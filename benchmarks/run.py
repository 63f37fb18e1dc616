"""Time whole fits against scikit-learn's linear classifiers at their defaults, in one interleaved run.

    python benchmarks/run.py [--json FILE] [words that the names of the problems must contain]

Every time is the least of several rounds (two, if they take long); a round runs every estimator once, in turn, so that
a busy moment of the machine hits all of them. "limit" is the time in which the same threads read X once from memory.
"extra" is the peak memory of a fit beyond X itself, as a part of X and in vectors of n_samples doubles. An epoch is one
call of partial_fit with all of the data. "losses" and "noises" compare the other losses and noise models with the
gaussian loss and isotropic noise on the same problems. ``--json`` writes problem, solver, seconds and whether the
solver is a peer, with the facts of the machine; of kernels and paths there is a table only.
"""

import argparse
import json
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from facts import machine_facts
from kernels import show_kernels
from paths import show_paths
from problems import BALLS, BARS, DATA, EPOCHS, PROBLEMS, Problem, feature_scale
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import LinearSVC

from gaussguru import AdversarialSVC, FeatureDropSVC, GuruClassifier
from gaussguru.losses import LOSSES

ROUNDS, SMALL_ROUNDS, EPOCH_ROUNDS = 7, 100, 15
# Seconds after which a problem is not run a third time.
ENOUGH = 60.0
FACTORS = (0.1, 1.0)
# A fit with another loss may take so many times what it takes with the gaussian one.
LOSS_GOAL = 1.5
# Ellipsoids and deletions may take five times as long as LinearSVC.
MOVED_GOAL = 1 / 5
# How many times the isotropic fit another noise may take, in so many rounds, and the most features of a covariance.
NOISE_GOAL, NOISE_ROUNDS, MOST_COVARIANCE = 3.0, 3, 3000
# The threads of OpenBLAS spin for 0.1 s after their last work, on cores that the next estimator needs.
PAUSE = 0.2
PEERS: dict[str, Any] = {
    "LinearSVC": LinearSVC(),
    "LogisticRegression": LogisticRegression(),
    "newton-cholesky": LogisticRegression(solver="newton-cholesky"),
    "SGDClassifier": SGDClassifier(random_state=0),
}


RESULTS: list[dict[str, Any]] = []


def note(problem: Problem, best: dict[str, float], peers: Any = ()) -> None:
    """Keep the least time of each solver of a problem, and say which of them are peers."""
    for solver, took in best.items():
        RESULTS.append({"problem": problem.name, "solver": solver, "seconds": took, "peer": solver in peers})


def seconds(estimator: Any, X: Any, y: np.ndarray, pause: float, **more: Any) -> float:
    time.sleep(pause)
    began = time.perf_counter()
    estimator.fit(X, y, **more)
    return time.perf_counter() - began


def read_once(X: Any) -> float:
    """Return the least time in which all cores add up the stored numbers of X."""
    values = X.data if sp.issparse(X) else X.reshape(-1)
    parts = np.array_split(values, joblib.cpu_count())
    with ThreadPoolExecutor(len(parts)) as pool:
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            list(pool.map(np.sum, parts))
            times.append(time.perf_counter() - began)
    return min(times)


def extra_memory(estimator: Any, X: Any, y: np.ndarray) -> int:
    tracemalloc.start()
    estimator.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def n_bytes(X: Any) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes


def show(problem: Problem) -> None:
    X, y = problem.load()
    scale = feature_scale(X)
    ours = {factor: GuruClassifier(sigma=factor * scale) for factor in FACTORS}
    # Forming a dense Hessian of 130,000 columns is not what newton-cholesky is for.
    peers = {
        name: peer
        for name, peer in PEERS.items()
        if problem.peers in ("all", name) and not (name == "newton-cholesky" and X.shape[1] > 10_000)
    }
    everyone = {**peers, **{f"sigma = {factor:g} scale": model for factor, model in ours.items()}}
    times: dict[str, list[float]] = {name: [] for name in everyone}
    # A fit of a millisecond wakes no other threads, and is timed more often.
    small = n_bytes(X) < 1e6
    began = time.perf_counter()
    for done in range(SMALL_ROUNDS if small else ROUNDS):
        if done >= 2 and time.perf_counter() - began > ENOUGH:
            break
        quickest = min((min(times[name]) for name in peers if times[name]), default=np.inf)
        for name, model in everyone.items():
            # A peer that is far behind cannot become the fastest: do not wait for it again.
            if not times[name] or min(times[name]) <= 3 * quickest:
                times[name].append(seconds(model, X, y, 0.0 if small else PAUSE))
    best = {name: min(values) for name, values in times.items()}
    note(problem, best, peers)
    fastest = min(peers, key=lambda name: best[name])
    limit = read_once(X)
    zero = len(y) * (len(np.unique(y)) - 1)
    print(f"\n{problem.name}   ({n_bytes(X) / 1e6:.3g} MB, read once in {1e3 * limit:.3g} ms)")
    for name in peers:
        print(f"  {name:22s} {1e3 * best[name]:10.1f} ms{'   fastest' if name == fastest else ''}")
    for factor, model in ours.items():
        took = best[f"sigma = {factor:g} scale"]
        ratio = best[fastest] / took
        extra = extra_memory(model, X, y)
        verdict = "ok" if ratio >= problem.goal else "BELOW GOAL"
        label = f"sigma = {factor:g} scale"
        print(f"  {label:22s} {1e3 * took:10.1f} ms   {ratio:6.2f} x as fast (goal {problem.goal:g}: {verdict})")
        print(
            f"{'':26s}gap {model.dual_gap_ / zero:.0e}, {model.n_iter_} iterations, {took / limit:.1f} limits, "
            f"extra {extra / n_bytes(X):.2f} X = {extra / 8 / len(y):.1f} n"
        )


def show_losses(problem: Problem) -> None:
    X, y = problem.load()
    scale, small = feature_scale(X), n_bytes(X) < 1e6
    print(f"\n{problem.name}")
    for factor in FACTORS:
        models = {name: GuruClassifier(sigma=factor * scale, loss=name) for name in LOSSES}
        times: dict[str, list[float]] = {name: [] for name in models}
        began = time.perf_counter()
        for done in range(SMALL_ROUNDS if small else ROUNDS):
            if done >= 2 and time.perf_counter() - began > ENOUGH:
                break
            for name, model in models.items():
                times[name].append(seconds(model, X, y, 0.0 if small else PAUSE))
        best = {name: min(values) for name, values in times.items()}
        note(problem, {f"{name}, sigma = {factor:g} scale": took for name, took in best.items()})
        for name, model in models.items():
            ratio = best[name] / best["gaussian"]
            verdict = (
                "" if name == "gaussian" else f"   (goal {LOSS_GOAL:g}: {'ok' if ratio <= LOSS_GOAL else 'ABOVE GOAL'})"
            )
            print(
                f"  sigma = {factor:<4g} {name:10s} {1e3 * best[name]:10.1f} ms   {ratio:5.2f} x the gaussian's time, "
                f"{model.n_iter_} iterations{verdict}"
            )


def show_epoch(problem: Problem) -> None:
    X, y = problem.load()
    scale = feature_scale(X)
    models: dict[str, Any] = {"SGDClassifier": SGDClassifier(random_state=0)}
    models |= {f"sigma = {factor:g} scale": GuruClassifier(factor * scale, solver="sgd") for factor in FACTORS}
    times: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.partial_fit(X, y, classes=np.unique(y))  # finds the rate
    for _ in range(EPOCH_ROUNDS):
        for name, model in models.items():
            time.sleep(PAUSE)
            began = time.perf_counter()
            model.partial_fit(X, y)
            times[name].append(time.perf_counter() - began)
    note(problem, {name: min(values) for name, values in times.items()}, ["SGDClassifier"])
    peer, *ours = (min(values) for values in times.values())
    print(f"\n{problem.name}\n  {'SGDClassifier':22s} {1e3 * peer:10.1f} ms")
    for (name, model), took in zip(list(models.items())[1:], ours, strict=True):
        verdict = "ok" if peer / took >= problem.goal else "BELOW GOAL"
        print(f"  {name:22s} {1e3 * took:10.1f} ms   {peer / took:6.2f} x as fast (goal {problem.goal:g}: {verdict})")
        print(f"{'':26s}eta0 {model.eta0_:g}")


def noise_models(d: int) -> dict[str, Any]:
    """Return noise models of about the same size: random standard deviations, and a random full covariance."""
    rng = np.random.default_rng(0)
    models: dict[str, Any] = {"isotropic": "isotropic", "axis": "axis", "deviations": np.exp(0.5 * rng.normal(size=d))}
    if d <= MOST_COVARIANCE:
        root = rng.normal(size=(d, d))
        models["covariance"] = root @ root.T / d + 0.1 * np.eye(d)
    return models


def show_noises(problem: Problem) -> None:
    X, y = problem.load()
    scale, zero = feature_scale(X), len(y) * (len(np.unique(y)) - 1)
    small = n_bytes(X) < 1e6
    print(f"\n{problem.name}: noise models, in times of the isotropic fit (goal {NOISE_GOAL:g})")
    for factor in FACTORS:
        models = {name: GuruClassifier(factor * scale, noise=noise) for name, noise in noise_models(X.shape[1]).items()}
        if zero > len(y):
            del models["axis"]
        times: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(SMALL_ROUNDS if small else NOISE_ROUNDS):
            for name, model in models.items():
                times[name].append(seconds(model, X, y, 0.0 if small else PAUSE))
        note(problem, {f"{name}, sigma = {factor:g} scale": min(values) for name, values in times.items()})
        for name, model in models.items():
            took, ratio = min(times[name]), min(times[name]) / min(times["isotropic"])
            verdict = (
                "" if name == "isotropic" else f"   {ratio:5.2f} x ({'ok' if ratio <= NOISE_GOAL else 'ABOVE GOAL'})"
            )
            label = f"sigma = {factor:g} scale"
            done = f"gap {model.dual_gap_ / zero:.0e}, {model.n_iter_} iterations"
            print(f"  {label:18s} {name:11s} {1e3 * took:10.1f} ms   {done}{verdict}", flush=True)


def show_bars(problem: Problem) -> None:
    X, y = problem.load()
    sigma = 0.3 * feature_scale(X)
    X_err = sigma * np.random.default_rng(0).uniform(0.2, 1.8, X.shape)
    model, times = GuruClassifier(sigma), {"without": [], "with": []}
    for _ in range(ROUNDS):
        for name, errors in (("without", None), ("with", X_err)):
            time.sleep(PAUSE)
            began = time.perf_counter()
            model.fit(X, y, X_err=errors)
            times[name].append(time.perf_counter() - began)
    without, took = (min(values) for values in times.values())
    note(problem, {"one sigma": without, "error bars": took})
    verdict = "ok" if took / without <= problem.goal else "ABOVE GOAL"
    print(
        f"\n{problem.name}\n  {'one sigma':22s} {1e3 * without:10.1f} ms\n  {'error bars':22s} {1e3 * took:10.1f} ms",
        end="",
    )
    print(f"   {took / without:6.2f} times (goal {problem.goal:g}: {verdict})")
    print(f"{'':26s}gap {model.dual_gap_ / len(y):.0e}, {model.n_iter_} iterations")


def show_ball(problem: Problem) -> None:
    X, y = problem.load()
    errors = np.random.default_rng(0).uniform(0.02, 0.18, len(y) if hasattr(X, "indptr") else X.shape)
    models = {
        "LinearSVC": (LinearSVC(), {}),
        "AdversarialSVC(0.1)": (AdversarialSVC(0.1), {}),
        "ellipsoids": (AdversarialSVC(1.0), {"X_err": errors}),
        "FeatureDropSVC(1)": (FeatureDropSVC(1), {}),
    }
    goals = {"AdversarialSVC(0.1)": problem.goal, "ellipsoids": MOVED_GOAL, "FeatureDropSVC(1)": MOVED_GOAL}
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(2):
        for name, (model, more) in models.items():
            if sum(times[name]) < ENOUGH:
                times[name].append(seconds(model, X, y, PAUSE, **more))
    best = {name: min(values) for name, values in times.items()}
    note(problem, best, ["LinearSVC"])
    peer = best["LinearSVC"]
    print(f"\n{problem.name}\n  {'LinearSVC':22s} {1e3 * peer:10.1f} ms")
    for name, goal in goals.items():
        clf, ratio = models[name][0], peer / best[name]
        print(f"  {name:22s} {1e3 * best[name]:10.1f} ms   {ratio:6.2f} x as fast", end="")
        print(f" (goal {goal:.2g}: {'ok' if ratio >= goal else 'BELOW GOAL'})")
        print(f"{'':26s}gap {clf.dual_gap_ / len(y):.0e}, {clf.n_iter_} iterations")


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # peers stop at their defaults; ours report their gap
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--json", default=None, metavar="FILE")
    options = parser.parse_args()
    words, facts = options.words, machine_facts()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    losses = [problem._replace(name=f"losses, {problem.name}") for problem in PROBLEMS]
    noises = [problem._replace(name=f"noises, {problem.name}") for problem in PROBLEMS]
    kinds = [
        (show, PROBLEMS),
        (show_epoch, EPOCHS),
        (show_losses, losses),
        (show_noises, noises),
        (show_ball, BALLS),
        (show_bars, BARS),
    ]
    for run, problem in [(run, problem) for run, problems in kinds for problem in problems]:
        if all(word in problem.name for word in words):
            missing = [name for name in problem.files if not (DATA / name).exists()]
            if missing:
                print(f"\n{problem.name}\n  not run: {', '.join(missing)} not in {DATA} (set GAUSSGURU_DATA)")
            else:
                run(problem)
    show_kernels(words)
    show_paths(words)
    if options.json:
        Path(options.json).write_text(json.dumps({"facts": facts, "results": RESULTS}, indent=1) + "\n")


if __name__ == "__main__":
    main()
