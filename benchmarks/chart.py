"""The chart of docs/benchmarks.md, from the tables T1 of benchmarks/README.md.

python benchmarks/chart.py docs/benchmarks.svg
"""

import re
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from gaussguru.plotting import style

TITLES = {
    "fermi": "pulsar or galaxy (Fermi)",
    "koi": "planet or not (Kepler)",
    "chandra": "galaxy or young star (Chandra)",
}
# Rows of the tables, and how they are named here.
ROWS = {
    "ErrorBarClassifier *": "ErrorBarClassifier",
    "extreme deconvolution of each class +": "deconvolution of each class",
    "forest": "forest",
    "boosting, tuned": "boosting, tuned",
    "boosting, tuned, errors as columns": "boosting, tuned, errors as columns",
    "ErrorBarClassifier, linear *": "ErrorBarClassifier, linear",
    "LogisticRegression": "logistic regression",
}


def losses(text: str, data: str) -> tuple[list[float], dict[str, list[float]]]:
    """Return multiples of the error bars, and the log losses of each row of a table."""
    table = re.search(rf"### T1, {data}:.*?\n\n(.*?)\n\n", text, re.DOTALL).group(1).splitlines()
    cells = [
        [cell.strip(" *") if k else cell.strip() for k, cell in enumerate(row.strip("|").split("|"))] for row in table
    ]
    multiples = [float(cell[1:]) for cell in cells[0][1:]]
    return multiples, {row[0]: [float(cell.split()[0]) for cell in row[1:]] for row in cells[2:]}


def main(path: str) -> None:
    text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    mpl.rcParams["svg.hashsalt"] = "gaussguru"  # the same bits every time
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    for ax, (data, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        multiples, rows = losses(text, data)
        for k, (row, name) in enumerate(ROWS.items()):
            ax.plot(multiples, rows[row], label=name, **style.line_of(k, markers=True))
        ax.set(ylim=(0, 1.0), xticks=multiples, xticklabels=[f"{c:g}" for c in multiples])
        style.finish(ax, "error bars at use / in training", "log loss" if data == "fermi" else "", title, legend=False)
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=style.SMALL, frameon=False
    )
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
