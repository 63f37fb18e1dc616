"""The pictures of the landing page, of README.md and of docs/guide/nonlinear.md.

    python benchmarks/picture.py docs/error_bars.png docs/moons.png

The first is the probability of a class against a measured value, for several error bars. One feature of made data, so
that the best possible probabilities are known: they are the thin lines. The second has the regions of a kernel
classifier, fitted without and with error bars.
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import make_moons

from gaussguru import ErrorBarClassifier, KernelGuruClassifier
from gaussguru.datasets import make_measured
from gaussguru.plotting import RegionsDisplay, style

ERRORS, AT = (0.1, 0.7, 2.0), 1.0
# The errors of the two samples, and where their labels are: points above or below.
SHOWN = {0.1: 9, 2.0: -16}
LOOKS = dict(zip(ERRORS, (0, 2, 1), strict=True))  # numbers of colours: the two samples have the most different


# Standard deviations of the two features, of one half of the samples and of the other.
LONG, ROUND = (0.9, 0.05), (0.08, 0.08)


def probabilities(path: str) -> None:
    data = make_measured(1000, 1, random_state=0)
    model = ErrorBarClassifier(model="linear").fit(data.X, data.y, X_err=data.X_err)
    values = np.linspace(-3, 3, 301)[:, np.newaxis]
    figure = Figure(figsize=(5.2, 3.3), layout="constrained")  # small, so that text is large on a phone
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
    ax.legend(loc="upper left", fontsize=style.LABEL)
    figure.savefig(path, dpi=150)


def measured_moons(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return true and measured values of two moons, their error bars and their classes."""
    rng = np.random.default_rng(seed)
    truth, y = make_moons(n, noise=0.1, random_state=seed)
    X_err = np.where(rng.random(n)[:, np.newaxis] < 0.5, LONG, ROUND)
    return truth, truth + X_err * rng.standard_normal((n, 2)), X_err, y


def regions(path: str) -> None:
    _, X, X_err, y = measured_moons(200, 0)
    exact, measured, errors, labels = measured_moons(20_000, 1)
    figure = Figure(figsize=(5.0, 5.8), layout="constrained")
    fits = {"without": ({}, None), "with": ({"X_err": X_err}, errors)}
    for ax, (name, (given, bars)) in zip(figure.subplots(2, 1, sharex=True), fits.items(), strict=True):
        model = KernelGuruClassifier(0.01, gamma=2.0).fit(X, y, **given)
        RegionsDisplay.from_estimator(model, X, y, X_err=X_err, ax=ax)
        right = model.score(exact, labels), model.score(measured, labels, X_err=bars)
        ax.set_title(f"{name} error bars: accuracy on new samples\n{right[0]:.1%} if exact, {right[1]:.1%} as measured")
        ax.title.set_fontsize(style.TITLE)
        ax.set(xlim=(-2.6, 3.4), ylim=(-1.1, 1.6))
        ax.get_legend().remove()
        if name == "without":
            ax.set_xlabel(None)
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=style.SMALL, frameon=False
    )
    figure.savefig(path, dpi=120)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)  # a third of the size


def main(first: str, second: str) -> None:
    probabilities(first)
    regions(second)


if __name__ == "__main__":
    main(*sys.argv[1:])
