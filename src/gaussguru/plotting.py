"""Pictures; matplotlib is imported when one is drawn."""

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gaussguru.ball import AdversarialSVC, TotalSVC
from gaussguru.losses import Array


class DisplacementDisplay:
    """Where the adversary of ASVC, or the benefit of the doubt of TSVC, moves samples of two features (appendix A).

    Every sample is joined by an arrow to where it is moved; the line is where two classes have the same score, and
    the dashed lines are the margins, for two classes.

    Parameters
    ----------
    samples, moved : ndarray of shape (n_samples, 2)
        The samples before and after.
    labels : ndarray of shape (n_samples,)
        Their classes.
    grid : tuple of ndarray
        The two coordinates of a grid and the score there, of shape (1, ...), or for several classes how much the score
        of each is above the best of the others.
    names : list of str
        The names of the features.
    title : str
    """

    def __init__(
        self,
        samples: Array,
        moved: Array,
        labels: Any,
        grid: tuple[Array, Array, Array],
        names: list[str],
        title: str,
    ) -> None:
        self.samples = samples
        self.moved = moved
        self.labels = labels
        self.grid = grid
        self.names = names
        self.title = title

    @classmethod
    def from_estimator(
        cls, estimator: AdversarialSVC | TotalSVC, X: Any, y: Any, *, delta: Any = None, ax: Any = None
    ) -> Self:
        """Draw the displacements that a fitted estimator makes of samples with two features.

        Parameters
        ----------
        estimator : AdversarialSVC or TotalSVC
        X : array-like or sparse matrix of shape (n_samples, 2)
        y : array-like of shape (n_samples,)
        delta : array-like of shape (n_samples,), default=None
            The radii of the samples, where ``fit`` was given some.
        ax : matplotlib Axes, default=None

        Returns
        -------
        DisplacementDisplay
        """
        check_is_fitted(estimator)
        if estimator.n_features_in_ != 2:
            raise ValueError(f"a picture needs 2 features; the estimator was fitted to {estimator.n_features_in_}")
        change = estimator.displacements(X, y, delta)
        samples = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        both = np.vstack([samples, samples + change])
        room = 0.08 * float((both.max(axis=0) - both.min(axis=0)).max()) or 1.0
        low, high = both.min(axis=0) - room, both.max(axis=0) + room
        first, second = np.meshgrid(np.linspace(low[0], high[0], 300), np.linspace(low[1], high[1], 300))
        points = np.column_stack([first.ravel(), second.ravel()])
        scores = points @ estimator.coef_.T + estimator.intercept_
        if scores.shape[1] > 1:
            best = np.sort(scores, axis=1)[:, -2:]
            scores = scores - np.where(scores == best[:, 1:], best[:, :1], best[:, 1:])
        names = [str(name) for name in getattr(estimator, "feature_names_in_", ["feature 1", "feature 2"])]
        title = f"{type(estimator).__name__}: samples and where they are moved"
        grid = (first, second, scores.T.reshape(-1, *first.shape))
        return cls(samples, samples + change, np.asarray(y), grid, names, title).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into ``ax``, or a new one; it is kept as ``ax_``, its figure as ``figure_``."""
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional dependency)

        if ax is None:
            _, ax = plt.subplots()
        classes = np.unique(self.labels)
        first, second, leads = self.grid
        levels, styles = ([-1, 0, 1], ["--", "-", "--"]) if len(leads) == 1 else ([0], ["-"])
        for lead in leads:
            ax.contour(first, second, lead, levels=levels, colors="0.4", linestyles=styles, linewidths=1)
        for number, label in enumerate(classes):
            mine = self.labels == label
            before, after = self.samples[mine], self.moved[mine]
            colour = f"C{number}"
            ax.scatter(*before.T, s=22, color=colour, label=str(label), zorder=3)
            ax.scatter(*after.T, s=22, facecolors="none", edgecolors=colour, zorder=3)
            ax.quiver(
                *before.T,
                *(after - before).T,
                angles="xy",
                scale_units="xy",
                scale=1,
                color=colour,
                width=0.003,
                alpha=0.6,
            )
        ax.set_aspect("equal")  # or normals would not look like normals
        ax.set(xlabel=self.names[0], ylabel=self.names[1], title=self.title)
        ax.legend(title="class", loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        return self
