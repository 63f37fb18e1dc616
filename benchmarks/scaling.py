"""How fits grow: in memory, out of core, on a Dask cluster; and what a tree of sums costs on many workers.

    python benchmarks/scaling.py memory features classes out-of-core dask tree --json scaling.json

Each row is a problem (rows and columns), a solver (where the rows live) and, where it installs, a peer. Times are the
least of ``--repeat`` runs (out-of-core and the peer: one); the load of the machine is written down beside them.
``--rows``, ``--gigabytes`` and ``--columns`` change the sizes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from facts import machine_facts

from gaussguru import GuruClassifier
from gaussguru._guru.problems.binary import _visit
from gaussguru._rows.cluster import FAN, _in_runs, _merged
from gaussguru._rows.rows import Block, _gram_blas, combine, margins
from gaussguru.losses import resolve_loss

SIGMA = 0.1
ROWS = (1_000_000, 3_000_000, 10_000_000, 30_000_000)


def make(n, d, seed=0, out=None, distinct=None):
    """Fill float32 samples of two classes, a million rows at a time, and return them with their labels.

    Beyond ``distinct`` million rows the last million is written again: the disk, and not the generator, sets the pace.
    """
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d).astype(np.float32) / np.float32(np.sqrt(d))
    X = np.empty((n, d), dtype=np.float32) if out is None else out
    y = np.empty(n, dtype=bool)
    for number, first in enumerate(range(0, n, 1_000_000)):
        size = min(1_000_000, n - first)
        if distinct is None or number < distinct:
            part = rng.standard_normal((size, d), dtype=np.float32)
            labels = part @ w + 0.5 * rng.standard_normal(size, dtype=np.float32) > 0.3
        X[first : first + size], y[first : first + size] = part[:size], labels[:size]
    return X, y


class Clock:
    """Seconds on the wall and of the processor."""

    def __enter__(self):
        self.began, self.used = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall, self.cpu = time.perf_counter() - self.began, time.process_time() - self.used


def quickest(fit, repeat, used=lambda: 0.0):
    """Return the least times of several fits, and the model; ``used`` is the processor time of other processes."""
    least = Clock()
    least.wall = least.cpu = np.inf
    for _ in range(repeat):
        before = used()
        with Clock() as clock:
            model = fit()
        least.wall, least.cpu = min(least.wall, clock.wall), min(least.cpu, clock.cpu + used() - before)
    return least, model


def row(problem, solver, clock, model=None, **more):
    found = {"problem": problem, "solver": solver, "seconds": round(clock.wall, 3), "cpu": round(clock.cpu, 3)}
    if model is not None:
        gap = model.dual_gap_ / model.objective_
        found |= {"passes": model.n_passes_, "iterations": model.n_iter_, "relative gap": float(f"{gap:.1e}")}
    found |= {**more, "load": round(os.getloadavg()[0], 1)}
    print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    return found


def memory(options):
    """Threads on samples in memory: the exponent of n."""
    rows = []
    for n in options.rows:
        X, y = make(n, options.columns)
        best, model = quickest(lambda X=X, y=y: GuruClassifier(SIGMA).fit(X, y), options.repeat)
        rows.append(row(f"{n:.0e} x {options.columns}", "threads", best, model) | {"n": n})
        del X, y, model
    return [*rows, *exponent(rows, "n")]


OUT_OF_CORE = """
import sys, json, time, numpy as np
from gaussguru import GuruClassifier
from gaussguru.sources import Arrays
path, labels = sys.argv[1:3]
began, used = time.perf_counter(), time.process_time()
model = GuruClassifier(0.1).fit(Arrays(path), np.load(labels, mmap_mode="r"))
print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - used, "passes": model.n_passes_,
    "iterations": model.n_iter_, "converged": bool(model.converged_),
    "relative gap": model.dual_gap_ / model.objective_,
    "peak MB": int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024}))
"""
READ = """
import sys, json, time
began, used = time.perf_counter(), time.process_time()
buffer = bytearray(32 << 20)
for _ in range(int(sys.argv[2])):
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}))
"""


def out_of_core(options):
    """A file that is read in parts: peak memory, passes, and the time against reading it as often.

    Neither begins with any of the file in memory; what the operating system keeps between passes serves both.
    """
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path, labels = Path(directory) / "X.npy", Path(directory) / "y.npy"
        n = int(options.gigabytes * 1e9 / (4 * options.columns))
        X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, options.columns))
        _, y = make(n, options.columns, out=X, distinct=options.distinct)
        X.flush()
        np.save(labels, y)
        del X, y
        os.sync()
        fit = run_cold(OUT_OF_CORE, path, labels)
        times = max(1, round(fit["passes"]))
        once = run_cold(READ, path, times)["seconds"] / times
    found = {
        "problem": f"{options.gigabytes:g} GB, {n:.1e} x {options.columns}",
        "solver": "file in parts",
        **fit,
        "seconds to read once": once,
        "time / passes of reading": fit["seconds"] / (fit["passes"] * once),
        "load": os.getloadavg()[0],
    }
    found = {
        name: round(value, 3) if isinstance(value, float) and value > 1e-3 else value for name, value in found.items()
    }
    print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    return [found]


def run_cold(program, path, *more):
    """Return what a program prints of a file of which nothing is in memory."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    called = [sys.executable, "-c", program, str(path), *map(str, more)]
    return json.loads(subprocess.run(called, stdout=subprocess.PIPE, check=True).stdout)


def exponent(rows, name):
    """Return the slope of logarithms: time against one of the sizes."""
    found = []
    for unit in ("seconds", "cpu"):
        slope = np.polyfit(np.log([r[name] for r in rows]), np.log([r[unit] for r in rows]), 1)[0]
        print(f"exponent of {name}, {unit}: {slope:.2f}", flush=True)
        found.append({"exponent": name, "of": unit, "value": round(float(slope), 3)})
    return found


def features(options):
    """Curve in the number of features, at a fixed number of rows."""
    return _curve(options, "d", [(d, 2) for d in options.curve_columns])


def classes(options):
    """Curve in the number of classes, at a fixed number of rows and features."""
    return _curve(options, "classes", [(options.columns, C) for C in options.curve_classes])


def _curve(options, name, sizes):
    rows = []
    for d, C in sizes:
        n = options.curve_rows
        X, _ = make(n, d)
        rng = np.random.default_rng(1)
        W = rng.standard_normal((d, C)).astype(np.float32) / np.float32(np.sqrt(d))
        y = np.argmax(X @ W + 0.5 * rng.standard_normal((n, C), dtype=np.float32), axis=1)
        best, model = quickest(lambda X=X, y=y: GuruClassifier(SIGMA).fit(X, y), options.repeat)
        rows.append(row(f"{n:.0e} x {d}, {C} classes", "threads", best, model) | {"d": d, "classes": C})
        del X, y, model
    return [*rows, *exponent(rows, name)]


def dask(options):
    """A local cluster of 1 and 2 processes against threads, and the peer."""
    import dask  # noqa: PLC0415 -- an extra
    import dask.array as da  # noqa: PLC0415
    import distributed  # noqa: PLC0415

    n, d = options.dask_rows, options.columns
    problem = f"{n:.0e} x {d}"
    X, y = make(n, d)
    best, model = quickest(lambda: GuruClassifier(SIGMA, n_jobs=2).fit(X, y), options.repeat)
    rows = [row(problem, "threads, 2", best, model)]
    for workers in (2, 1):
        settings = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
        with distributed.LocalCluster(workers, **settings) as cluster, distributed.Client(cluster) as client:
            parts = options.partitions
            data = [da.from_array(each, chunks=(n // parts, *each.shape[1:])) for each in (X, y)]
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                dx, dy = client.persist(data)
                distributed.wait([dx, dy])

            def fit(dx=dx, dy=dy):
                return GuruClassifier(SIGMA).fit(dx, dy)

            best, model = quickest(fit, options.repeat, partial(_workers_used, client))
            rows.append(row(problem, f"dask, {workers} processes", best, model, partitions=parts))
            rows += peer(problem, dx, dy, client) if workers == 2 and options.peer else []
    return rows


def _workers_used(client):
    return sum(client.run(time.process_time).values())


def peer(problem, dx, dy, client):
    """Return the row of dask-ml's logistic regression, if it installs."""
    try:
        from dask_ml.linear_model import LogisticRegression  # noqa: PLC0415 -- a peer
    except Exception as error:  # whatever it is that does not fit its neighbours
        print(f"dask-ml does not run here: {type(error).__name__}: {error}")
        return [{"peer": "dask-ml", "error": str(error)}]
    best, _ = quickest(
        lambda: LogisticRegression(solver="lbfgs", C=1.0).fit(dx, dy.astype(np.float32)),
        1,
        partial(_workers_used, client),
    )
    return [row(problem, "dask-ml LogisticRegression, lbfgs", best)]


# --- the tree of sums ------------------------------------------------------------------------------------------


def simulate(n_parts, workers, task_seconds, message_bytes, *, scheduler=3e-4, bandwidth=1e9, latency=1e-3):
    """Return the seconds of one pass: tasks on workers, each for a group of parts, and their sums added by a tree.

    An event-driven model. Each worker has consecutive parts. The scheduler hands out one task after the other
    (``scheduler`` seconds each): one for a group, and one that takes its sums apart. A worker has one task at a time.
    What a group sends are the runs of parts that the code itself would add up; a sum waits for all of its parts, whose
    bytes come through one link at its worker (``bandwidth`` bytes a second), and goes to the worker of the first.
    """
    found = []
    for worker, places in enumerate(np.array_split(np.arange(n_parts), workers)):
        if len(places):
            groups = np.array_split(places, -(-len(places) // FAN))
            found += [(turn, worker, group.tolist()) for turn, group in enumerate(groups)]
    free, handed, done = [0.0] * workers, 0.0, []
    for _, worker, group in sorted(found):  # the first group of every worker, then the second
        handed += 2 * scheduler
        free[worker] = max(free[worker], handed) + len(group) * task_seconds
        done.append((group[0], free[worker], worker, _in_runs((place, 0) for place in group)))
    done.sort(key=lambda each: each[0])
    moved = 0
    while len(done) > FAN:
        sums = []
        for first in range(0, len(done), FAN):
            some = done[first : first + FAN]
            home = some[0][2]
            away = message_bytes * sum(len(runs) for _, _, worker, runs in some if worker != home)
            here = message_bytes * sum(len(runs) for *_, runs in some)
            moved, handed = moved + away, handed + scheduler
            begin = max(*(end for _, end, *_ in some), free[home], handed) + latency + away / bandwidth
            free[home] = begin + here / 8 * 1e-9
            sums.append((some[0][0], free[home], home, _merged(runs for *_, runs in some)))
        done = sums
    last = message_bytes * sum(len(runs) for *_, runs in done)
    end = max(end for _, end, *_ in done) + latency + last / bandwidth
    return {"seconds": end, "tasks": 2 * len(found), "bytes moved": moved + last}


def tree(options):
    """What 1e9 x 1000 takes on 1 to 1000 workers, from the cost of one block that is measured here."""
    d, n = options.tree_columns, 20_000
    X, y = make(n, d)
    signed = np.where(y, 1.0, -1.0)
    block = Block(X, y.astype(np.int32), np.ones(n), signed)
    w = np.random.default_rng(1).standard_normal(d)
    place = {"loss": resolve_loss("gaussian"), "w": w, "b": 0.0, "scale": 1.0, "curved": True, "measured": False}
    costs = {}
    tasks = {
        "gradient": lambda: _visit(block, **place),
        "Hessian": lambda: _gram_blas(block, np.ones(n), np.ones(n)),
        "scores": lambda: combine(block, margins(block, w)),
    }
    for name, task in tasks.items():
        task()
        with Clock() as clock:
            for _ in range(3):
                task()
        costs[name] = clock.cpu / 3 / n  # seconds a row
    print("processor seconds a row:", {name: f"{cost:.2e}" for name, cost in costs.items()})
    total, per_part = options.tree_rows, 65_536
    n_parts = total // per_part
    rows = []
    sizes = {"gradient": 8 * (4 * d + 6), "Hessian": 8 * (d + 2) * (d + 3) // 2}
    for workers in (1, 10, 30, 100, 300, 1000):
        found = {"workers": workers}
        for name, n_bytes in sizes.items():
            passed = simulate(n_parts, workers, costs[name] * per_part, n_bytes)
            found |= {
                f"{name} s": round(passed["seconds"], 2),
                f"{name} GB moved": round(passed["bytes moved"] / 1e9, 3),
            }
        found["fit s"] = round(6 * found["gradient s"] + found["Hessian s"], 1)
        rows.append(found)
        print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    return [{"seconds a row": costs, "parts": n_parts, "bytes of a message": sizes}, *rows]


PARTS = {
    "memory": memory, "features": features, "classes": classes, "out-of-core": out_of_core, "dask": dask, "tree": tree,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(float(part)) for part in text.split(",")]}
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=[*PARTS, []])
    parser.add_argument("--rows", **numbers, default=ROWS)
    parser.add_argument("--curve-rows", type=lambda text: int(float(text)), default=200_000)
    parser.add_argument("--curve-columns", **numbers, default=(10, 30, 100, 300))
    parser.add_argument("--curve-classes", **numbers, default=(2, 4, 8, 16))
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--distinct", type=int, default=None, help="millions of rows of the file that differ")
    parser.add_argument("--directory", default=None, help="where the large file is written")
    parser.add_argument("--dask-rows", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="run dask-ml, if installed")
    parser.add_argument("--tree-rows", type=lambda text: int(float(text)), default=1_000_000_000)
    parser.add_argument("--tree-columns", type=int, default=1000)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    facts = machine_facts()
    print(facts)
    found = {name: PARTS[name](options) for name in options.parts}
    if options.json:
        Path(options.json).write_text(json.dumps({"facts": facts, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
