"""The picture of README.md: the probability of a class against a measured value, for several error bars.

    python benchmarks/picture.py docs/error_bars.png

One feature of made data, so that the best possible probabilities are known: they are the thin lines.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured
from gaussguru.plotting import style

ERRORS, AT = (0.1, 0.7, 2.0), 1.0
# The errors of the two samples, and where their labels are: points above or below.
SHOWN = {0.1: 9, 2.0: -16}
LOOKS = dict(zip(ERRORS, (0, 2, 1), strict=True))  # numbers of colours: the two samples have the most different


def main(path: str) -> None:
    data = make_measured(1000, 1, random_state=0)
    model = ErrorBarClassifier().fit(data.X, data.y, X_err=data.X_err)
    values = np.linspace(-3, 3, 301)[:, np.newaxis]
    figure = Figure(figsize=(6.4, 3.3), layout="constrained")
    ax = figure.subplots()
    for error in ERRORS:
        look = style.line_of(LOOKS[error])
        p, best = (each.predict_proba(values, np.full_like(values, error))[:, 1] for each in (model, data.population))
        ax.plot(values[:, 0], p, label=f"error {error:g}", **look)
        ax.plot(values[:, 0], best, color=look["color"], linewidth=0.7, alpha=0.6)
    for error, above in SHOWN.items():
        color = style.PALETTE[LOOKS[error]]
        p = model.predict_proba([[AT]], [[error]])[0, 1]
        ax.errorbar([AT], [p], xerr=[error], color=color, marker="o", markersize=6, capsize=4, linewidth=1.2, zorder=4)
        ax.annotate(
            f"{AT:g} ± {error:g}: P = {p:.2f}", (AT, p), xytext=(-10, above), textcoords="offset points", color=color,
            fontsize=style.LABEL, weight="bold",
        )  # fmt: skip
    ax.plot([], [], color="0.4", linewidth=0.7, label="best possible")
    ax.set(xlim=(-3, 3), ylim=(0, 1.12))
    style.finish(ax, "measured value", "probability of class 1", None)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1])
