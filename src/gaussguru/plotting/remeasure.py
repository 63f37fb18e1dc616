"""The expected number of errors that new measurements avoid."""

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from gaussguru._measured.remeasure import remeasure_gain
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Ax, ErrorBars, Estimator, Values
from gaussguru.plotting import style


@dataclass(eq=False, repr=False)
class RemeasureDisplay(style.Display):
    """Expected number of errors avoided against the number of samples measured again, largest gain first.

    The straight line is the same for samples in random order. The dotted line marks where four fifths of the total gain
    are reached.

    Parameters
    ----------
    gain : ndarray of shape (n_samples,)
        The gain of each sample (:func:`gaussguru.robustness.remeasure_gain`).
    name : str, default=None
        Label in the legend.

    Attributes
    ----------
    line_, random_line_ : matplotlib Line2D
    enough_ : float
        The smallest fraction of the samples with four fifths of the total gain.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru.plotting import RemeasureDisplay
    >>> RemeasureDisplay.from_predictions([0.2, 0.1, 0.0, 0.0]).enough_ <= 0.5
    True
    """

    gain: Array
    _: KW_ONLY
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Values,
        X_err: ErrorBars = None,
        new_err: ErrorBars = 0.0,
        *,
        name: str | None = None,
        ax: Ax = None,
    ) -> Self:
        """Compute the gains of a fitted classifier (:func:`gaussguru.robustness.remeasure_gain`), and draw them.

        Parameters
        ----------
        estimator : fitted classifier
        X : array-like or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            The present errors.
        new_err : float or error bars of X, default=0.0
            The errors after the new reading.
        name : str, default=None
            Label in the legend.
        ax : matplotlib Axes, default=None

        Returns
        -------
        RemeasureDisplay
        """
        return cls.from_predictions(remeasure_gain(estimator, X, X_err, new_err), name=name, ax=ax)

    @classmethod
    def from_predictions(cls, gain: object, *, name: str | None = None, ax: Ax = None) -> Self:
        """Draw given gains.

        Parameters
        ----------
        gain : array-like of shape (n_samples,)
            As :func:`gaussguru.robustness.remeasure_gain` returns them.
        name : str, default=None
            Label in the legend.
        ax : matplotlib Axes, default=None

        Returns
        -------
        RemeasureDisplay
        """
        values = np.asarray(gain, dtype=np.float64)
        if values.ndim != 1 or not values.size or not np.isfinite(values).all() or values.min() < 0:
            raise ValueError(f"gain must hold one finite, nonnegative number for each sample; got shape {values.shape}")
        return cls(values, name=name).plot(ax)

    def plot(self, ax: Ax = None, *, name: str | None = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
        name : str, default=None
            Label in the legend. None is the name of the display.

        Returns
        -------
        self
        """
        ax, n = self._axes(ax), len(self.gain)
        total = np.concatenate([[0.0], np.cumsum(np.sort(self.gain)[::-1])])
        self.enough_ = float(np.argmax(total >= 0.8 * total[-1]) / n)
        look, name = style.line(ax), name or self.name
        label = f"largest gain first:\n80% of the gain from {self.enough_:.0%} of the samples"
        label = label if name is None else f"{name}, {label}"
        (self.line_,) = ax.plot(100 * np.arange(n + 1) / n, 100 * total / n, label=label, **look)
        (self.random_line_,) = ax.plot(
            [0, 100], [0, 100 * total[-1] / n], color=look["color"], linewidth=1.0, alpha=0.5, label="_at random"
        )
        if "at random" not in ax.get_legend_handles_labels()[1]:
            ax.plot([], [], color="0.4", linewidth=1.0, alpha=0.7, label="at random")
        ax.axvline(100 * self.enough_, **{**style.REFERENCE, "color": look["color"], "label": "_enough"})
        curves = [line.get_ydata() for line in ax.lines if line.get_label() != "_enough"]
        highest = max(float(np.max(heights, initial=0.0)) for heights in curves)
        ax.set(xlim=(0, 100), ylim=(0, 1.05 * highest or 1.0))
        style.finish(ax, "samples measured again (%)", "errors avoided per 100 samples", "Measuring again")
        return self
