"""The chart of docs/benchmarks.md, from benchmarks/results/larger_test_errors.json.

python benchmarks/chart.py docs/benchmarks.svg
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


def main(path: str) -> None:
    benchmark, multiples = Benchmark("larger_test_errors"), (1, 2, 3)
    mpl.rcParams["svg.hashsalt"] = "gaussguru"  # the same bits every time
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    for ax, (data, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        for k, (row, name) in enumerate(ROWS.items()):
            losses = [benchmark.value(f"{data} x{c}", row) for c in multiples]
            ax.plot(multiples, losses, label=name, **style.line_of(k, markers=True))
        ax.set(ylim=(0, 1.0), xticks=multiples, xticklabels=[f"{c:g}" for c in multiples])
        style.finish(ax, "error bars at use / in training", "log loss" if data == "fermi" else "", title, legend=False)
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=style.SMALL, frameon=False
    )
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
