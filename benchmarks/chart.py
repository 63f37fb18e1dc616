"""The charts of docs/benchmarks.md and docs/guide/big_data.md, from benchmarks/results.

python benchmarks/chart.py docs/benchmarks.svg docs/speed.svg
"""

import sys

import matplotlib as mpl
from matplotlib.figure import Figure
from tables import DECONVOLUTION, LINEAR, OURS, Benchmark

from gaussguru.plotting import style

TITLES = {
    "fermi": "pulsar or galaxy (Fermi)",
    "koi": "planet or not (Kepler)",
    "chandra": "galaxy or young star (Chandra)",
}
# Models, and how they are named here.
ROWS = {
    OURS: "ErrorBarClassifier",
    DECONVOLUTION: "deconvolution of each class",
    "forest": "forest",
    "boosting, tuned": "boosting, tuned",
    "boosting, tuned, errors as columns": "boosting, tuned, errors as columns",
    LINEAR: LINEAR,
    "LogisticRegression": "logistic regression",
}


def losses(path: str) -> None:
    benchmark, multiples = Benchmark("larger_test_errors"), (1, 2, 3)
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    for ax, (data, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        for k, (row, name) in enumerate(ROWS.items()):
            values = [benchmark.value(f"{data} x{c}", row) for c in multiples]
            ax.plot(multiples, values, label=name, **style.line_of(k, markers=True))
        ax.set(ylim=(0, 1.0), xticks=multiples, xticklabels=[f"{c:g}" for c in multiples])
        style.finish(ax, "error bars at use / in training", "log loss" if data == "fermi" else "", title, legend=False)
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=style.SMALL, frameon=False
    )
    figure.savefig(path, metadata={"Date": None})


def times(path: str) -> None:
    benchmark, problems = Benchmark("speed"), {}
    for row in benchmark.results:
        if "epoch" not in row["problem"]:
            problems.setdefault(row["problem"], []).append(row)
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    for k, (label, peer) in enumerate({"linear classifiers of scikit-learn": True, "GuruClassifier": False}.items()):
        points = [
            (row["seconds"], y) for y, rows in enumerate(problems.values()) for row in rows if row["peer"] == peer
        ]
        ax.plot(*zip(*points, strict=True), "o" if peer else "D", color=style.PALETTE[1 - k], label=label)
    ax.set(xscale="log", yticks=range(len(problems)), yticklabels=problems)
    ax.invert_yaxis()
    style.finish(ax, "seconds of a fit", "", None, legend=False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=style.SMALL, frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "gaussguru"  # the same bits every time
    losses(sys.argv[1])
    times(sys.argv[2])
