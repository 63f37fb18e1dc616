"""Bars of features: their importance to a model, and their part in one prediction."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from gaussguru._measured.inspection import Explanation, FeatureImportance, explain, feature_importance
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Ax, ErrorBars, Estimator, Labels, MixedArray, Values
from gaussguru.plotting import style


class _BarsDisplay(style.Display):
    """Horizontal bars of features."""

    def _bars(self, ax: Ax, names: MixedArray, lengths: Array, errors: Array | None, x: str, title: str) -> Self:
        """Draw bars from the top, blue to the right and orange to the left."""
        ax = self._axes(ax, (6.4, 1.1 + 0.24 * len(names)))  # inches: 0.24 for a bar with its space
        heights = -np.arange(len(names))
        colors = [style.PALETTE[0] if length >= 0 else style.PALETTE[1] for length in lengths]
        whiskers = {"ecolor": "0.25", "elinewidth": 1.0}
        self.bars_ = ax.barh(heights, lengths, height=0.7, xerr=errors, color=colors, error_kw=whiskers)
        ax.set_yticks(heights, [str(name) for name in names])
        ax.axvline(0.0, color="0.25", linewidth=0.8)
        style.finish(ax, x, "", title, legend=False)
        return self


@dataclass(eq=False, repr=False)
class FeatureImportanceDisplay(_BarsDisplay):
    """Importance of the features with its standard errors, the largest first.

    Parameters
    ----------
    importance : FeatureImportance
        As :func:`gaussguru.inspection.feature_importance` returns it.
    max_features : int, default=20
        Number of features that are drawn.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import ErrorBarClassifier
    >>> from gaussguru.datasets import make_measured
    >>> from gaussguru.plotting import FeatureImportanceDisplay
    >>> data = make_measured(200, 3, random_state=0)
    >>> model = ErrorBarClassifier(model="linear").fit(data.X, data.y, X_err=data.X_err)
    >>> len(FeatureImportanceDisplay.from_estimator(model, data.X, data.y, X_err=data.X_err).bars_)
    3
    """

    importance: FeatureImportance
    _: KW_ONLY
    max_features: int = 20

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Values,
        y: Labels,
        X_err: ErrorBars = None,
        *,
        max_features: int = 20,
        ax: Ax = None,
        **options: Any,
    ) -> Self:
        """Compute the importance of features (:func:`gaussguru.inspection.feature_importance`), and draw it.

        Parameters
        ----------
        estimator : fitted classifier
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_err : error bars of X, default=None
        max_features : int, default=20
            Number of features that are drawn.
        ax : matplotlib Axes, default=None
        **options
            ``method``, ``scoring``, ``n_repeats``, ``sample_weight`` and ``random_state`` of ``feature_importance``.

        Returns
        -------
        FeatureImportanceDisplay
        """
        return cls(feature_importance(estimator, X, y, X_err, **options), max_features=max_features).plot(ax)

    def plot(self, ax: Ax = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        self
        """
        shown = self.importance
        order = np.argsort(-shown.importance, kind="stable")[: self.max_features]
        x = {"log_loss": "rise of the log loss", "accuracy": "drop of the accuracy"}[shown.scoring]
        how = {"unmeasured": "if it is not measured", "permutation": "if it is permuted"}[shown.method]
        return self._bars(
            ax, shown.features[order], shown.importance[order], shown.error[order], f"{x} {how}", "Importance"
        )


@dataclass(eq=False, repr=False)
class ExplanationDisplay(_BarsDisplay):
    """The part of each feature in the probability of one sample, the largest first.

    Bars to the right speak for the class, bars to the left against it.

    Parameters
    ----------
    explanation : Explanation
        As :func:`gaussguru.inspection.explain` returns it.
    max_features : int, default=20
        Number of features that are drawn.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import ErrorBarClassifier
    >>> from gaussguru.datasets import make_measured
    >>> from gaussguru.plotting import ExplanationDisplay
    >>> data = make_measured(200, 3, random_state=0)
    >>> model = ErrorBarClassifier(model="linear").fit(data.X, data.y, X_err=data.X_err)
    >>> len(ExplanationDisplay.from_estimator(model, data.X[0], data.X_err[0]).bars_)
    3
    """

    explanation: Explanation
    _: KW_ONLY
    max_features: int = 20

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        x: Values,
        x_err: ErrorBars = None,
        *,
        label: object = None,
        max_features: int = 20,
        ax: Ax = None,
    ) -> Self:
        """Compute the parts of the features (:func:`gaussguru.inspection.explain`), and draw them.

        Parameters
        ----------
        estimator : fitted classifier with ``predict_proba``
        x : array-like of shape (n_features,), or DataFrame or Measured of one sample
        x_err : error bars of the sample, default=None
        label : object, default=None
            The class of which the probability is explained. None is the one of the greatest probability.
        max_features : int, default=20
            Number of features that are drawn.
        ax : matplotlib Axes, default=None

        Returns
        -------
        ExplanationDisplay
        """
        return cls(explain(estimator, x, x_err, label=label), max_features=max_features).plot(ax)

    def plot(self, ax: Ax = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        self
        """
        shown = self.explanation
        order = np.argsort(-np.abs(shown.contribution), kind="stable")[: self.max_features]
        names = np.array([
            f"{name} = {value:.3g}" + (f" ± {error:.2g}" if error else "")
            if np.isfinite(value + error) else f"{name}, not measured"
            for name, value, error in zip(shown.features, shown.values, shown.errors, strict=True)
        ])  # fmt: skip
        title = f"P({shown.label}) = {shown.probability:.2g}, {shown.base:.2g} if nothing were measured"
        return self._bars(ax, names[order], shown.contribution[order], None, "part of the probability", title)
