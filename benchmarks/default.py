"""Times, memory and a learning curve of ``ErrorBarClassifier()``, beside boosting tuned by 15 random trials.

    python benchmarks/default.py [times] [memory] [curve] [--json FILE]

"times": processor seconds of a fit with the defaults and of the search, in turns, and microseconds of a prediction for
each sample and member; other work on the machine does not count. "memory": peak memory of a process that fits
1,000,000 x 10 values with errors, and predicts them.
"curve": log loss of 20,000 new samples after a fit to more and more of them; the members of the pool are fitted to
100,000 rows at the most. Samples are simulated: a mixture of three Gaussians, errors that vary by a factor of ten, and
for the curve a label that depends on a product of two features.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from facts import machine_facts
from measured_models import TUNED
from sklearn.base import clone
from sklearn.metrics import log_loss

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured

KINDS = ("times", "memory", "curve")
# Rows, features, the goal for a fit in seconds on two cores, rounds.
SIZES = ((2_000, 10, 3.0, 3), (100_000, 20, 45.0, 1))
# Microseconds of a prediction, for each sample and member.
PREDICTION_GOAL = 20.0
MEMORY_ROWS, MEMORY_GOAL = 1_000_000, 2.0
CURVE_ROWS, NEW_ROWS = (1_000, 3_000, 10_000, 30_000, 100_000, 200_000), 20_000


def samples(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, errors and labels."""
    made = make_measured(n, d, n_components=3, random_state=0)
    return made.X, made.X_err, made.y


def curved(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, errors and labels of two classes that no hyperplane separates."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, 10))
    score = 2 * truth[:, 0] * truth[:, 1] + truth[:, 2] + np.sin(2 * truth[:, 3])
    errors = 10 ** rng.uniform(-1, 0, size=truth.shape)
    labels = (score + rng.logistic(scale=0.3, size=n) > 0).astype(int)
    return truth + errors * rng.normal(size=truth.shape), errors, labels


def clock(call: Any) -> tuple[float, Any]:
    """Return the processor seconds of a call, of all threads, and its result."""
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def show_times() -> list[dict[str, Any]]:
    rows = []
    for n, d, goal, rounds in SIZES:
        X, E, y = samples(n, d)
        seconds: dict[str, list[float]] = {"default": [], "tuned boosting": []}
        for _ in range(rounds):
            took, model = clock(lambda X=X, E=E, y=y: ErrorBarClassifier().fit(X, y, X_err=E))
            seconds["default"].append(took)
            seconds["tuned boosting"].append(clock(lambda X=X, y=y: clone(TUNED).fit(X, y))[0])
        took, _ = clock(lambda X=X, E=E, model=model: model.predict_proba(X, X_err=E))
        each = 1e6 * took / n / len(model.members_)
        row = {"rows": n, "features": d, **{name: min(values) for name, values in seconds.items()}, "prediction": each}
        rows.append(row)
        print(f"{n} x {d}: fit {row['default']:.1f} s of processor time (goal: {goal:g} s on two cores)", end=", ")
        print(f"{row['tuned boosting']:.1f} s tuned")
        print(f"  prediction {each:.1f} us per sample and member (goal {PREDICTION_GOAL:g})", flush=True)
    return rows


def show_memory() -> list[dict[str, Any]]:
    """Fit in a process of its own, which has no other arrays."""
    code = "from default import fit_many; fit_many()"
    printed = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True)
    row = json.loads(printed.stdout)
    verdict = "ok" if row["GB"] <= MEMORY_GOAL else "ABOVE GOAL"
    print(f"{row['rows']} x 10: {row['GB']:.2f} GB at most (goal {MEMORY_GOAL:g}: {verdict}), {row['seconds']:.0f} s")
    return [row]


def fit_many() -> None:
    """Fit and predict, and print the peak memory of the process."""
    X, E, y = samples(MEMORY_ROWS, 10)
    took, model = clock(lambda: ErrorBarClassifier().fit(X, y, X_err=E))
    model.predict_proba(X, X_err=E)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"rows": MEMORY_ROWS, "GB": peak, "data GB": (X.nbytes + E.nbytes) / 1e9, "seconds": took}))


def show_curve() -> list[dict[str, Any]]:
    new = curved(NEW_ROWS, 1)
    rows = []
    for n in CURVE_ROWS:
        X, E, y = curved(n, 0)
        took, model = clock(lambda X=X, E=E, y=y: ErrorBarClassifier().fit(X, y, X_err=E))
        loss = log_loss(new[2], model.predict_proba(new[0], X_err=new[1]))
        rows.append({"rows": n, "log_loss": loss, "seconds": took})
        print(f"{n} rows: log loss {loss:.4f}, {took:.1f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=KINDS, choices=[*KINDS, []])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    functions = {"times": show_times, "memory": show_memory, "curve": show_curve}
    results = {kind: functions[kind]() for kind in options.kinds or KINDS}
    if options.json:
        options.json.write_text(json.dumps({"facts": machine_facts(), **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
