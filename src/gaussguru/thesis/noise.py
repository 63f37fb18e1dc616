"""How accuracy falls with noise on validation and test samples: GURU against SVM (thesis, chapter 2).

The figure shows the results of the table of two classes; at noise 0 they are the numbers of the table.
"""

import numpy as np

from gaussguru._utils.types import Figure
from gaussguru.plotting import style
from gaussguru.thesis.store import Store
from gaussguru.thesis.tables import BINARY


def draw(store: Store, quick: bool, names: tuple[str, ...]) -> Figure:
    """Return a figure with mean accuracy and its standard error against the width of the noise, for each problem."""
    figure = style.figure(len(names))
    for ax, name in zip(figure.axes, names, strict=True):
        problem = BINARY.problems[name]
        for number, method in enumerate(BINARY.noisy):
            scores = 100 * BINARY.scores(store, quick, name, method)
            spread = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else None
            look = style.line_of(number, markers=True)
            ax.errorbar(problem.noise_levels, scores.mean(axis=0), spread, label=method, capsize=2, **look)
        title = f"{problem.title}, {len(scores)} repeats"
        style.finish(ax, "noise $x$: $U(-x, x)$ on every feature", "test accuracy (%)", title, legend=False)
    figure.axes[-1].legend(fontsize=style.SMALL)
    return figure
