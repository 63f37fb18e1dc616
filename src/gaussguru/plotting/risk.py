"""Bounds on the error probability against the number of samples."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import column_or_1d

from gaussguru._measured.affine import as_table
from gaussguru._measured.risk_bounds import risk_bound
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import Ax, Estimator, Labels, Seed, Values
from gaussguru.plotting import style


@dataclass(eq=False, repr=False)
class RiskBoundDisplay(style.Display):
    """A bound on the error probability, and the mean that it is made of, against the number of samples.

    Parameters
    ----------
    n_samples : ndarray of shape (n_sizes,)
    bound, empirical : ndarray of shape (n_sizes,)
        As in :class:`gaussguru.robustness.RiskBound`.
    name : str, default=None
        Label in the legend.

    Attributes
    ----------
    line_, empirical_line_ : matplotlib Line2D
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.thesis import make_gaussians
    >>> from gaussguru.plotting import RiskBoundDisplay
    >>> X, y = make_gaussians(2000, random_state=0)
    >>> display = RiskBoundDisplay.from_estimator(GuruClassifier(1.0), X, y, n_samples=[200, 2000])
    >>> bool(display.bound[1] < display.bound[0])
    True
    """

    n_samples: Index
    bound: Array
    empirical: Array
    _: KW_ONLY
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Values,
        y: Labels,
        *,
        n_samples: Any = None,
        method: str = "auto",
        confidence: float = 0.95,
        sigma: float | None = None,
        random_state: Seed = 0,
        name: str | None = None,
        ax: Ax = None,
    ) -> Self:
        """Fit copies of an estimator to more and more samples, bound the risk of each, and draw the bounds.

        The confidence is that of each bound alone.

        Parameters
        ----------
        estimator : classifier
            As :func:`gaussguru.robustness.risk_bound` takes it. It need not be fitted, and is not changed.
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        n_samples : array-like of int, default=None
            Sizes of the random subsamples. None is 8 sizes, up to all samples.
        method : {"auto", "sigma", "pac-bayes", "holdout"}, default="auto"
            With "holdout" the first half of every subsample is fitted, the other half judges.
        confidence : float, default=0.95
        sigma : float, default=None
        random_state : int or None, default=0
            Seed of the subsamples.
        name : str, default=None
            Label in the legend. None is the method.
        ax : matplotlib Axes, default=None

        Returns
        -------
        RiskBoundDisplay
        """
        X, y = as_table(X), column_or_1d(y)
        n = X.shape[0]
        sizes = np.geomspace(min(20, n), n, 8).astype(int) if n_samples is None else np.unique(n_samples)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(sizes) or sizes.min() < 4 or sizes.max() > n:
            raise ValueError(f"n_samples must hold whole numbers between 4 and {n}; got {n_samples!r}")
        order, bounds = np.random.default_rng(random_state).permutation(n), []
        for size in sizes:
            fitted = order[: size // 2] if method == "holdout" else order[:size]
            seen = order[size // 2 : size] if method == "holdout" else fitted
            model = clone(estimator).fit(take_rows(X, fitted), y[fitted])
            rows = take_rows(X, seen), y[seen]
            bounds.append(risk_bound(model, *rows, confidence=confidence, method=method, sigma=sigma))
        bound, empirical = (np.array([getattr(each, part) for each in bounds]) for part in ("bound", "empirical"))
        return cls(sizes, bound, empirical, name=bounds[0].method if name is None else name).plot(ax)

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
        ax, name = self._axes(ax), name or self.name
        look = style.line(ax, markers=True)
        (self.line_,) = ax.plot(self.n_samples, self.bound, label=f"{name}: bound", **look)
        (self.empirical_line_,) = ax.plot(
            self.n_samples, self.empirical, color=look["color"], linewidth=1.0, alpha=0.6, label="_mean"
        )
        if "mean on the samples" not in ax.get_legend_handles_labels()[1]:
            ax.plot([], [], color="0.4", linewidth=1.0, alpha=0.7, label="mean on the samples")
        ax.set(xscale="log", ylim=(0, 1.02))
        style.label_short_log(ax.xaxis)
        style.finish(ax, "number of samples", "probability of a wrong label", "Bounds on the risk")
        return self
