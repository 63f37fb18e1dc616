"""Plots with the interface of scikit-learn's displays: a display holds the numbers, ``plot`` draws them.

``XDisplay.from_...`` computes and draws; ``plot(ax)`` draws again, on any axes. ``ax_`` and ``figure_`` are the axes
and figure of the last drawing. Several displays can share axes: each takes the next colour, marker and line style.

    display = RobustnessCurveDisplay.from_estimator(first, X, y)
    RobustnessCurveDisplay.from_estimator(second, X, y, ax=display.ax_)

matplotlib is imported when something is drawn (``pip install 'gaussguru[plot]'``); its settings are not changed.
"""

from gaussguru.plotting.curves import ConvergenceDisplay, RobustnessCurveDisplay, SigmaPathDisplay
from gaussguru.plotting.features import ExplanationDisplay, FeatureImportanceDisplay
from gaussguru.plotting.images import AdversarialSamplesDisplay
from gaussguru.plotting.losses import LossDisplay
from gaussguru.plotting.plane import CloudDisplay, DisplacementDisplay, RegionsDisplay
from gaussguru.plotting.remeasure import RemeasureDisplay
from gaussguru.plotting.risk import RiskBoundDisplay

__all__ = [
    "AdversarialSamplesDisplay", "CloudDisplay", "ConvergenceDisplay", "DisplacementDisplay", "ExplanationDisplay",
    "FeatureImportanceDisplay", "LossDisplay", "RegionsDisplay", "RemeasureDisplay", "RiskBoundDisplay",
    "RobustnessCurveDisplay", "SigmaPathDisplay",
]  # fmt: skip
