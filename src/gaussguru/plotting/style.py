"""How all pictures look: colours that the colour-blind can tell apart, and a marker and a line style with each."""

from typing import Any

from gaussguru.robustness import final_estimator

# Okabe & Ito (2008), without yellow, which is lost on white paper.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Of decision regions: the same hues, light, and apart in lightness too.
LIGHT = ("#A9CFE8", "#F6D2B8", "#BFE6D8", "#EBD3E1", "#FBEBC2", "#DCEFFA", "#D9D9D9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (2, 1)), ":")
# For what others are compared with: the hinge, a level that was chosen, a boundary.
REFERENCE = {"color": "0.25", "linestyle": ":", "linewidth": 1.2}
ALARM = PALETTE[1]
TITLE, LABEL, SMALL = 10, 9, 8
SIZE = (6.4, 3.6)
# More points than this are one picture inside a drawing.
MANY = 2000


def axes(ax: Any, size: tuple[float, float] = SIZE) -> Any:
    """Return ``ax``, or the axes of a new figure that makes room for labels and legends."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot  # noqa: PLC0415 - optional
    except ImportError as error:
        raise missing() from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def figure(n_columns: int, n_rows: int = 1, *, size: tuple[float, float] = (3.6, 3.0)) -> Any:
    """Return a figure with ``axes`` side by side, each of that size, which no window shows."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional
    except ImportError as error:
        raise missing() from error
    new = Figure(figsize=(size[0] * n_columns, size[1] * n_rows), layout="constrained")
    new.subplots(n_rows, n_columns)
    return new


def missing() -> ImportError:
    """Return what to say where there is no matplotlib."""
    return ImportError("plots need matplotlib: pip install 'gaussguru[plot]'")


def line(ax: Any, *, markers: bool = False) -> dict[str, Any]:
    """Return the style of the next line with a name on these axes."""
    drawn = [each for each in ax.lines if not str(each.get_label()).startswith("_")]
    return line_of(len([each for each in drawn if each.get_color() in PALETTE]), markers=markers)


def line_of(number: int, *, markers: bool = False) -> dict[str, Any]:
    """Return the style of a line by its number."""
    style: dict[str, Any] = {"linewidth": 1.5, "linestyle": LINES[number % 7], "color": PALETTE[number % 7]}
    return {**style, "marker": MARKERS[number % 7], "markersize": 4} if markers else style


def points_of(number: int, n_points: int) -> dict[str, Any]:
    """Return the style of the samples of a class by its number."""
    return {
        "color": PALETTE[number % 7], "marker": MARKERS[number % 7], "s": 20 if n_points <= 300 else 10,
        "linewidths": 0.8, "zorder": 3, "rasterized": n_points > MANY,
    }  # fmt: skip


def finish(ax: Any, x: str, y: str, title: str | None, *, legend: bool = True, legend_title: str | None = None) -> None:
    """Label the axes; put the legend beside them where the figure makes room, else where it covers least."""
    ax.set_xlabel(x, fontsize=LABEL)
    ax.set_ylabel(y, fontsize=LABEL)
    if title:
        ax.set_title(title, fontsize=TITLE)
    ax.tick_params(labelsize=SMALL)
    ax.grid(visible=True, color="0.88", linewidth=0.6)
    ax.set_axisbelow(True)
    if legend and ax.get_legend_handles_labels()[1]:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0}
        makes_room = ax.figure.get_layout_engine() is not None
        ax.legend(
            title=legend_title, fontsize=SMALL, title_fontsize=SMALL, frameon=not makes_room,
            **(beside if makes_room else {"loc": "best"}),
        )  # fmt: skip


def name_of(estimator: Any) -> str:
    """Return how a legend calls a model: its last step, and its noise level."""
    final = final_estimator(estimator)
    sigma = getattr(final, "sigma", None)
    kind = type(final).__name__
    return rf"{kind}, $\sigma$ = {sigma:.3g}" if isinstance(sigma, int | float) else kind
