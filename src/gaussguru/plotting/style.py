"""The style of all plots: a palette for the colour-blind, with a marker and a line style for each colour."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gaussguru._measured.affine import final_estimator
from gaussguru._utils.types import Ax, Axes, Estimator, Figure, Record

# Okabe & Ito (2008), without yellow, which is hard to see on white paper.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Colours of decision regions: the same hues, light, and of different lightness.
LIGHT = ("#A9CFE8", "#F6D2B8", "#BFE6D8", "#EBD3E1", "#FBEBC2", "#DCEFFA", "#D9D9D9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (2, 1)), ":")
# Lines for comparison: the hinge, a level that was chosen, a boundary.
REFERENCE: Record = {"color": "0.25", "linestyle": ":", "linewidth": 1.2}
TITLE, LABEL, SMALL = 10, 9, 8


@contextmanager
def _installed() -> Iterator[None]:
    """Say how to install matplotlib, which is optional, if its import fails."""
    try:
        yield
    except ImportError as error:
        advice = "plots need matplotlib: pip install 'gaussguru[plot]' (in a checkout: pip install '.[plot]')"
        raise ImportError(advice) from error


class Display:
    """What all displays share: the axes and the figure of the last drawing."""

    ax_: Axes
    figure_: Figure

    def _axes(self, ax: Ax, size: tuple[float, float] = (6.4, 3.6)) -> Axes:
        """Return ``ax``, or the axes of a new figure that makes room for labels and legends, and keep them."""
        if ax is None:
            with _installed():
                from matplotlib import pyplot  # noqa: PLC0415 - optional
            ax = pyplot.subplots(figsize=size, layout="constrained")[1]
        figure: Any = ax.figure
        self.ax_, self.figure_ = ax, figure
        return ax


def figure(n_columns: int, n_rows: int = 1, *, size: tuple[float, float] = (3.6, 3.0)) -> Figure:
    """Return a figure with ``axes`` side by side, each of that size, which no window shows."""
    with _installed():
        from matplotlib import figure as figures  # noqa: PLC0415 - optional
    new = figures.Figure(figsize=(size[0] * n_columns, size[1] * n_rows), layout="constrained")
    new.subplots(n_rows, n_columns)
    return new


def line(ax: Axes, *, markers: bool = False) -> Record:
    """Return the style of the next line with a name on these axes."""
    named = [each for each in ax.lines if not str(each.get_label()).startswith("_")]
    return line_of(sum(each.get_color() in PALETTE for each in named), markers=markers)


def line_of(number: int, *, markers: bool = False) -> Record:
    """Return the style of a line by its number."""
    style: Record = {"linewidth": 1.5, "linestyle": LINES[number % 7], "color": PALETTE[number % 7]}
    return {**style, "marker": MARKERS[number % 7], "markersize": 4} if markers else style


def points_of(number: int, n_points: int) -> Record:
    """Return the style of the samples of a class by its number."""
    return {
        "color": PALETTE[number % 7], "marker": MARKERS[number % 7], "s": 20 if n_points <= 300 else 10,
        "linewidths": 0.8, "zorder": 3, "rasterized": n_points > 2000,
    }  # fmt: skip


def finish(ax: Axes, x: str, y: str, title: str | None, *, legend: bool = True) -> None:
    """Label the axes; add a legend."""
    ax.set_xlabel(x, fontsize=LABEL)
    ax.set_ylabel(y, fontsize=LABEL)
    if title:
        ax.set_title(title, fontsize=TITLE)
    ax.tick_params(labelsize=SMALL)
    ax.grid(visible=True, color="0.88", linewidth=0.6)
    ax.set_axisbelow(True)
    if legend and ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize=SMALL, **_legend_options(ax))


def _legend_options(ax: Axes) -> Record:
    """Return the options of a legend: right of a wide figure, below a narrow one, "best" without a layout."""
    figure: Any = ax.figure
    if figure.get_layout_engine() is None:
        return {"loc": "best"}
    if figure.get_size_inches()[0] >= 4.4:  # inches
        return {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0, "frameon": False}
    from matplotlib.transforms import ScaledTranslation  # noqa: PLC0415 - optional

    # Below the tick labels and the label of the axis, in points.
    below = ax.transAxes + ScaledTranslation(0, -(SMALL + LABEL + 14) / 72, figure.dpi_scale_trans)
    return {
        "loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": below, "borderaxespad": 0.0,
        "frameon": False, "ncols": min(2, len(ax.get_legend_handles_labels()[1])), "columnspacing": 1.0,
    }  # fmt: skip


def label_short_log(axis: Any) -> None:
    """Label a logarithmic axis of few decades with more numbers than powers of ten."""
    low, high = axis.get_view_interval()
    if axis.get_scale() != "log" or high > 1000 * low:
        return
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter  # noqa: PLC0415 - optional

    ratio = high / low
    steps = (1, 3) if ratio > 50 else (1, 2, 5) if ratio > 8 else (1, 1.5, 2, 3, 5, 7)
    axis.set_major_locator(LogLocator(subs=steps) if ratio > 2 else MaxNLocator(5))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def name_of(estimator: Estimator) -> str:
    """Return the name of a model for legends: its last step, and its noise level."""
    final = final_estimator(estimator)
    sigma = getattr(final, "sigma", None)
    kind = type(final).__name__
    return rf"{kind}, $\sigma$ = {sigma:.3g}" if isinstance(sigma, int | float) else kind
