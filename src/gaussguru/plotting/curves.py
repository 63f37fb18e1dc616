"""Norm, score and accuracy against the noise level, and the convergence of a fit."""

import time
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from gaussguru import CollapseWarning, GuruClassifier, GuruClassifierCV, KernelGuruClassifier, Measured, sigma_path
from gaussguru._errors.missing import mean_spread
from gaussguru._errors.samples import split_errors
from gaussguru._measured.under_noise import robustness_curve
from gaussguru._utils.checks import check_choice, check_count, check_kind
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import Ax, ErrorBars, Estimator, Labels, Seed, Values
from gaussguru.plotting import style

UNIT = "units of the features"


@dataclass(eq=False, repr=False)
class SigmaPathDisplay(style.Display):
    """Norm, duality gap, accuracy or score against the noise level.

    Parameters
    ----------
    sigmas : ndarray of shape (n_sigmas,)
    values : dict of str to ndarray of shape (n_sigmas,)
        Some of "norm", the length of ``w`` (with several classes, the root of the sum of all squares); "gap", the
        duality gap; "accuracy"; "score", the mean over folds.
    error : ndarray of shape (n_sigmas,), default=None
        The standard error of "score".
    chosen : float, default=None
        The level that cross-validation chose.
    unit : str, default="units of the features"
        Unit of sigma: that of the features that reach the classifier.

    Attributes
    ----------
    line_ : matplotlib Line2D
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import GuruClassifierCV
    >>> from gaussguru.thesis import make_gaussians
    >>> from gaussguru.plotting import SigmaPathDisplay
    >>> X, y = make_gaussians(50, random_state=0)
    >>> model = GuruClassifierCV(5).fit(X, y)
    >>> SigmaPathDisplay.from_cv(model).chosen == model.sigma_
    True
    """

    sigmas: Array
    values: dict[str, Array]
    _: KW_ONLY
    error: Array | None = None
    chosen: float | None = None
    unit: str = UNIT

    @classmethod
    def from_estimator(
        cls,
        estimator: GuruClassifier,
        X: Values,
        y: Labels,
        *,
        X_err: ErrorBars = None,
        test: tuple[Any, Any] | None = None,
        sigmas: object = None,
        quantity: str = "norm",
        name: str | None = None,
        unit: str = UNIT,
        ax: Ax = None,
    ) -> Self:
        """Compute the classifiers at several noise levels (:func:`gaussguru.sigma_path`), and draw one quantity.

        Parameters
        ----------
        estimator : GuruClassifier
            All parameters but ``sigma`` are used. It need not be fitted, and is not changed.
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_err : error bars of X, default=None
        test : tuple of X and y, default=None
            Samples for "accuracy". None uses those of the fit.
        sigmas : int or array-like of shape (n_sigmas,), default=None
            Noise levels, or their number. None is the grid of :func:`gaussguru.sigma_path`.
        quantity : {"norm", "gap", "accuracy"}, default="norm"
        name : str, default=None
            Label in the legend.
        unit : str, default="units of the features"
            Unit of sigma.
        ax : matplotlib Axes, default=None

        Returns
        -------
        SigmaPathDisplay
        """
        check_kind(estimator, GuruClassifier)
        if isinstance(estimator, GuruClassifierCV):
            raise TypeError("estimator must be a GuruClassifier; for a GuruClassifierCV there is from_cv")
        check_choice("quantity", quantity, ("norm", "gap", "accuracy"))
        options = {key: value for key, value in estimator.get_params().items() if key not in ("sigma", "warm_start")}
        levels, coefs, intercepts, gaps = sigma_path(X, y, sigmas=sigmas, X_err=X_err, **options)
        measured = X if X_err is None else Measured(X, X_err)
        fitted, accuracy = clone(estimator).set_params(sigma=float(levels[0])), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            fitted.fit(measured, y)
        seen, labels = (measured, y) if test is None else test
        for coef, intercept in zip(coefs, intercepts, strict=True):
            fitted.coef_, fitted.intercept_ = coef, intercept
            accuracy.append(accuracy_score(labels, fitted.predict(seen)))
        norms = np.sqrt(np.square(coefs).sum(axis=(1, 2)))
        values = {"norm": norms, "gap": gaps, "accuracy": np.array(accuracy)}
        return cls(levels, values, unit=unit).plot(ax, quantity=quantity, name=name)

    @classmethod
    def from_cv(cls, estimator: GuruClassifierCV, *, name: str | None = None, unit: str = UNIT, ax: Ax = None) -> Self:
        """Draw the cross-validated scores of all noise levels, and the chosen one.

        Parameters
        ----------
        estimator : fitted GuruClassifierCV
        name : str, default=None
            Label in the legend.
        unit : str, default="units of the features"
            Unit of sigma; in a pipeline, that of the features after the previous steps.
        ax : matplotlib Axes, default=None

        Returns
        -------
        SigmaPathDisplay
        """
        check_kind(estimator, GuruClassifierCV)
        check_is_fitted(estimator)
        scores = estimator.scores_
        n_folds = scores.shape[1]
        error = scores.std(axis=1, ddof=1) / np.sqrt(n_folds) if n_folds > 1 else None
        values = {"score": scores.mean(axis=1)}
        display = cls(estimator.sigmas_, values, error=error, chosen=estimator.sigma_, unit=unit)
        return display.plot(ax, quantity="score", name=name)

    def plot(self, ax: Ax = None, *, quantity: str | None = None, name: str | None = None) -> Self:
        """Draw one quantity on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
        quantity : str, default=None
            A key of ``values``. None is the first one.
        name : str, default=None
            Label in the legend.

        Returns
        -------
        self
        """
        quantity = next(iter(self.values)) if quantity is None else check_choice("quantity", quantity, self.values)
        ax, values = self._axes(ax), self.values[quantity]
        labels = {
            "norm": (r"norm $\Vert w\Vert$", "Norm of the optimal classifier"),
            "gap": ("duality gap", "Proven distance from the optimum"),
            "accuracy": ("accuracy (%)", "Accuracy along the path"),
            "score": ("mean score of the folds", "Cross-validation"),
        }
        factor = 100.0 if quantity == "accuracy" else 1.0
        look = style.line(ax, markers=True)
        (self.line_,) = ax.plot(self.sigmas, factor * values, label=name or quantity, **look)
        if quantity == "score" and self.error is not None:
            ax.fill_between(
                self.sigmas, values - self.error, values + self.error, color=look["color"], alpha=0.18, linewidth=0,
                label="± standard error",
            )  # fmt: skip
        if self.chosen is not None:
            ax.axvline(self.chosen, label=rf"chosen: $\sigma$ = {self.chosen:.3g}", **style.REFERENCE)
        ax.set_xscale("log")
        if quantity in ("norm", "gap") and np.all(values > 0):
            ax.set_yscale("log")
        elif quantity in ("norm", "gap"):  # a collapsed classifier has norm 0, and a gap may vanish
            ax.set_yscale("symlog", linthresh=float(min(values[values > 0], default=1.0)))
        for axis in (ax.xaxis, ax.yaxis):
            style.label_short_log(axis)
        text, title = labels[quantity]
        style.finish(
            ax, rf"noise level $\sigma$ ({self.unit})", text, title, legend=name is not None or quantity == "score"
        )
        return self


@dataclass(eq=False, repr=False)
class RobustnessCurveDisplay(style.Display):
    """Accuracy against the noise level, with its standard error if it was estimated by sampling.

    Parameters
    ----------
    noise_levels, accuracy, error : ndarray of shape (n_levels,)
        As in :class:`gaussguru.robustness.RobustnessCurve`.
    name : str, default=None
        Label in the legend.
    unit : str, default="units of the features"
        Unit of the noise levels.

    Attributes
    ----------
    line_ : matplotlib Line2D
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.thesis import make_gaussians
    >>> from gaussguru.plotting import RobustnessCurveDisplay
    >>> X, y = make_gaussians(50, random_state=0)
    >>> display = RobustnessCurveDisplay.from_estimator(GuruClassifier(0.5).fit(X, y), X, y, noise_levels=[0, 1, 2])
    >>> bool(display.accuracy[0] > display.accuracy[2])
    True
    """

    noise_levels: Array
    accuracy: Array
    error: Array
    _: KW_ONLY
    name: str | None = None
    unit: str = UNIT

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Values,
        y: Labels,
        *,
        noise_levels: object = None,
        X_err: ErrorBars = None,
        method: str = "analytic",
        n_repeats: int = 20,
        random_state: Seed = None,
        name: str | None = None,
        unit: str | None = None,
        ax: Ax = None,
    ) -> Self:
        """Compute the curve of a fitted classifier (:func:`gaussguru.robustness.robustness_curve`), and draw it.

        Parameters
        ----------
        estimator : fitted classifier
            Linear for "analytic"; one that counts error bars requires "sampling".
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        noise_levels : array-like of shape (n_levels,), default=None
            None uses 21 levels: up to three times the error bars, or without these up to the spread of the features.
        X_err : error bars of X, default=None
            The noise at level 1. None is noise with standard deviation 1 on every feature.
        method : {"analytic", "sampling"}, default="analytic"
        n_repeats : int, default=20
        random_state : int, RandomState instance or None, default=None
        name : str, default=None
            Label in the legend. None is the class of the model and its sigma.
        unit : str, default=None
            Unit of the noise levels. None is "units of the features", or with ``X_err`` multiples of the error bars.
        ax : matplotlib Axes, default=None

        Returns
        -------
        RobustnessCurveDisplay
        """
        X, X_err = split_errors(X, X_err)
        if noise_levels is None:
            noise_levels = np.linspace(0, mean_spread(X) if X_err is None else 3.0, 21)
        curve = robustness_curve(
            estimator, X, y, noise_levels, X_err=X_err, method=method, n_repeats=n_repeats, random_state=random_state
        )
        unit = unit or (UNIT if X_err is None else "multiples of the error bars")
        return cls(*curve, name=style.name_of(estimator) if name is None else name, unit=unit).plot(ax)

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
        ax = self._axes(ax)
        look = style.line(ax, markers=len(self.noise_levels) <= 40)
        (self.line_,) = ax.plot(self.noise_levels, 100 * self.accuracy, label=name or self.name, **look)
        if np.any(self.error > 0):
            low, high = 100 * (self.accuracy - self.error), 100 * (self.accuracy + self.error)
            ax.fill_between(self.noise_levels, low, high, color=look["color"], alpha=0.18, linewidth=0)
        style.finish(ax, f"noise level ({self.unit})", "expected accuracy (%)", "Accuracy under noise")
        return self


@dataclass(eq=False, repr=False)
class ConvergenceDisplay(style.Display):
    """Objective and duality gap of a fit against the number of iterations after which it is stopped.

    Parameters
    ----------
    iterations : ndarray of shape (n_points,)
    objective, gap, seconds : ndarray of shape (n_points,)
        Results of the fits that were stopped there. The gap bounds the distance of the objective to the minimum.
    name : str, default=None
        Label in the legend.

    Attributes
    ----------
    gap_line_, objective_line_ : matplotlib Line2D
        The gap, and the distance of the objective to the best proven lower bound.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.thesis import make_gaussians
    >>> from gaussguru.plotting import ConvergenceDisplay
    >>> X, y = make_gaussians(50, random_state=0)
    >>> display = ConvergenceDisplay.from_estimator(GuruClassifier(0.5), X, y)
    >>> bool(display.gap[-1] < display.gap[0])
    True
    """

    iterations: Index
    objective: Array
    gap: Array
    seconds: Array
    _: KW_ONLY
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Values,
        y: Labels,
        *,
        X_err: ErrorBars = None,
        sample_weight: object = None,
        n_points: int = 20,
        against: str = "iteration",
        name: str | None = None,
        ax: Ax = None,
    ) -> Self:
        """Fit copies of an estimator with increasing ``max_iter``, and draw the objective and gap of each.

        Every point takes a fit of its own. This works for every solver.

        Parameters
        ----------
        estimator : GuruClassifier or KernelGuruClassifier
            It need not be fitted, and is not changed.
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_err : error bars of X, default=None
        sample_weight : array-like of shape (n_samples,), default=None
        n_points : int, default=20
            Largest number of fits. If there are more iterations, some are skipped.
        against : {"iteration", "time"}, default="iteration"
        name : str, default=None
            Label in the legend. None is the solver.
        ax : matplotlib Axes, default=None

        Returns
        -------
        ConvergenceDisplay
        """
        check_kind(estimator, GuruClassifier, KernelGuruClassifier)
        check_count("n_points", n_points, low=2)
        check_choice("against", against, ("iteration", "time"))
        given = {"sample_weight": sample_weight, "X_err": X_err}
        given = {key: value for key, value in given.items() if value is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", CollapseWarning)
            last = clone(estimator).fit(X, y, **given).n_iter_
            stops = np.unique(np.geomspace(1, max(last, 1), n_points).round().astype(int))
            if last <= n_points:
                stops = np.arange(1, last + 1)
            rows = []
            for stop in stops.tolist() or [1]:
                began = time.perf_counter()
                model = clone(estimator).set_params(max_iter=stop).fit(X, y, **given)
                rows.append((stop, model.objective_, model.dual_gap_, time.perf_counter() - began))
        iterations, objective, gap, seconds = (np.array(column) for column in zip(*rows, strict=True))
        # A fit with fewer iterations takes at most the time of one with more.
        seconds = np.minimum.accumulate(seconds[::-1])[::-1]
        name = f"solver={estimator.solver!r}" if name is None else name
        return cls(iterations, objective, gap, seconds, name=name).plot(ax, against=against)

    def plot(self, ax: Ax = None, *, against: str = "iteration") -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
        against : {"iteration", "time"}, default="iteration"

        Returns
        -------
        self
        """
        check_choice("against", against, ("iteration", "time"))
        ax = self._axes(ax)
        x = self.iterations if against == "iteration" else 1e3 * self.seconds
        best = float(np.max(self.objective - self.gap))
        look = style.line(ax, markers=True)
        (self.gap_line_,) = ax.plot(x, self.gap, label=f"{self.name}: proven gap", **look)
        look = style.line(ax, markers=True)
        above = self.objective - best
        (self.objective_line_,) = ax.plot(
            x, np.where(above > 0, above, np.nan), label=f"{self.name}: objective\nabove the best bound", **look
        )
        ax.set_yscale("log")
        ax.locator_params(axis="x", nbins=6, integer=against == "iteration")
        label = "iterations" if against == "iteration" else "time of the fit (ms)"
        style.finish(ax, label, "distance (units of the objective)", "Convergence and its certificate")
        return self
