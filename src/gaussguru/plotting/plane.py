"""Samples with two features, and the decision boundaries of classifiers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gaussguru import AdversarialSVC, Measured, TotalSVC, worst_case_covariance
from gaussguru._errors.checks import check_errors
from gaussguru._errors.samples import measured, split_errors
from gaussguru._measured.affine import as_table, dense, final_estimator
from gaussguru._measured.under_noise import counts_errors
from gaussguru._utils.checks import check_kind, check_real
from gaussguru._utils.frames import column_names, is_frame, like
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Ax, Axes, ErrorBars, Estimator, Labels, MixedArray, Record, Values
from gaussguru.plotting import style

# Points on a side of the grid on which boundaries are found.
RESOLUTION = 301
# Colour of boundaries, and of entries in legends for all classes.
LINE = "0.25"


def _points(X: Values) -> Array:
    """Return samples of two features as an array."""
    points = dense(as_table(X))
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"X must have two features to be drawn in the plane; got shape {points.shape}")
    return points


def _covariances(X_err: ErrorBars, samples: Array) -> Array:
    """Return the covariances of error bars, all of them finite."""
    errors = check_errors(X_err, samples)
    return np.array([errors.covariance(i) for i in range(len(samples))])


def _around(samples: Array, covariances: Array, n_std: float) -> Array:
    """Return the corners of the boxes around the ellipses of the samples, (2 n_samples, 2)."""
    reach = n_std * np.sqrt(np.einsum("ijj->ij", covariances))
    return np.vstack([samples - reach, samples + reach])


def _scores(estimator: Estimator, points: Values) -> Array:
    """Return the scores of points; without finite scores probabilities, for two classes their difference."""
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(points), dtype=np.float64)
        if np.isfinite(scores).all():
            return scores
    chances = np.asarray(estimator.predict_proba(points), dtype=np.float64)
    return np.asarray(chances[:, 1] - chances[:, 0]) if chances.shape[1] == 2 else chances


class Plane(NamedTuple):
    """Data that the displays of two features share: samples, labels, and scores on a grid.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, 2)
    labels : ndarray of shape (n_samples,)
    grid : tuple of ndarray
        The coordinates of a grid and the scores there, of shape (n_classes, ...), or (1, ...) for two classes:
        differences of probabilities for a classifier without scores, or with infinite ones.
    names : list of str
        The names of the features.
    title : str
    """

    samples: Array
    labels: MixedArray
    grid: tuple[Array, Array, Array]
    names: list[str]
    title: str

    @classmethod
    def of(cls, estimator: Estimator, X: Values, y: Labels, around: Array | None = None) -> "Plane":
        """Return the plane of a fitted classifier; the grid covers the samples and the points ``around``."""
        check_is_fitted(estimator)
        known = column_names(X)
        names = ["feature 1", "feature 2"] if known is None else known.tolist()
        samples, labels = _points(X), column_or_1d(y)
        if len(labels) != len(samples):
            raise ValueError(f"y must have a label for each of the {len(samples)} samples; got {len(labels)}")
        seen = samples if around is None else np.vstack([samples, around])
        room = 0.06 * float(np.ptp(seen, axis=0).max()) or 1.0
        first, second = np.meshgrid(*np.linspace(seen.min(0) - room, seen.max(0) + room, RESOLUTION).T)
        points: Values = np.column_stack([first.ravel(), second.ravel()])
        points = like(X, points) if is_frame(X) else points
        if getattr(final_estimator(estimator), "has_errors_", False):
            points = measured(points, 0.0)
        scores = _scores(estimator, points).reshape(len(points), -1).T.reshape(-1, *first.shape)
        return cls(samples, labels, (first, second, scores), names, style.name_of(estimator))


@dataclass(eq=False, repr=False)
class _PlaneDisplay(style.Display):
    """Drawings that the displays of two features share."""

    plane: Plane

    def _draw_boundary(self, ax: Axes, *, margins: bool) -> None:
        """Draw where two classes have the same score; with ``margins``, for two classes, also the scores 1 and -1."""
        first, second, scores = self.plane.grid
        if len(scores) == 1:
            levels, styles = ([-1, 0, 1], ["--", "-", "--"]) if margins else ([0], ["-"])
        else:
            best = np.sort(scores, axis=0)
            scores = scores - np.where(scores == best[-1], best[-2], best[-1])
            levels, styles = [0], ["-"]
        look: Record = {"levels": levels, "linestyles": styles, "colors": LINE, "linewidths": 1.0}
        ax.plot([], [], label="boundary", color=LINE, linewidth=1.0)
        if len(levels) > 1 and np.abs(scores).max() > 1:
            ax.plot([], [], label="margins", color=LINE, linewidth=1.0, linestyle="--")
        for score in scores:
            if any(score.min() < level < score.max() for level in levels):
                ax.contour(first, second, score, **look)

    def _draw_samples(self, ax: Axes, samples: Array, number: int, label: object) -> None:
        ax.scatter(*samples.T, label=f"class {label}", **style.points_of(number, len(self.plane.samples)))

    def _draw_clouds(self, ax: Axes, covariances: Array, n_std: float) -> list[Any]:
        """Draw an ellipse around every sample, and return a collection of them for each class."""
        from matplotlib.collections import EllipseCollection  # noqa: PLC0415 - optional

        sizes, turns = np.linalg.eigh(covariances)
        width, height = 2 * n_std * np.sqrt(np.maximum(sizes[:, ::-1], 0.0)).T
        angle = np.degrees(np.arctan2(turns[:, 1, 1], turns[:, 0, 1]))
        drawn = []
        for number, _, rows in self._classes():
            colour = style.points_of(number, len(self.plane.samples))["color"]
            clouds = EllipseCollection(
                width[rows], height[rows], angle[rows], units="xy", offsets=self.plane.samples[rows],
                offset_transform=ax.transData, facecolors=(colour, 0.10), edgecolors=(colour, 0.45), linewidths=0.8,
            )  # fmt: skip
            drawn.append(ax.add_collection(clouds))
        ax.plot(
            [], [], label=f"noise: {n_std:g} std. dev.", linestyle="none", marker="o", markersize=10,
            markerfacecolor=(LINE, 0.10), markeredgecolor=(LINE, 0.45), markeredgewidth=0.8,
        )  # fmt: skip
        ax.set(xlim=self.plane.grid[0][0, [0, -1]], ylim=self.plane.grid[1][[0, -1], 0])
        return drawn

    def _finish(self, ax: Axes) -> None:
        ax.set_aspect("equal")  # else normals of the boundary would look oblique
        style.finish(ax, self.plane.names[0], self.plane.names[1], self.plane.title)

    def _classes(self) -> Iterator[tuple[int, Any, NDArray[np.bool_]]]:
        """Yield number, label and mask of the samples of each class."""
        for number, label in enumerate(np.unique(self.plane.labels)):
            yield number, label, self.plane.labels == label


@dataclass(eq=False, repr=False)
class CloudDisplay(_PlaneDisplay):
    """Samples with their noise, and the boundary of a classifier (thesis, chapter 2).

    Every sample has an ellipse ``(x - x_i)' Sigma_i^-1 (x - x_i) = n_std^2`` around it. Noise in a single direction,
    such as the worst case of noise="isotropic", is a segment. The solid line is the boundary, where two classes have
    the same score. For two classes the dashed lines are the margins.

    Parameters
    ----------
    plane : Plane
        Samples, labels, and scores on a grid.
    covariances : ndarray of shape (n_samples, 2, 2)
    n_std : float

    Attributes
    ----------
    ellipses_ : list of matplotlib EllipseCollection
        One for each class.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.thesis import make_gaussians
    >>> from gaussguru.plotting import CloudDisplay
    >>> X, y = make_gaussians(50, random_state=0)
    >>> display = CloudDisplay.from_estimator(GuruClassifier(0.5).fit(X, y), X, y)
    >>> len(display.ellipses_)
    2
    """

    covariances: Array
    n_std: float = 1.0

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: Values, y: Labels, *, X_err: ErrorBars = None, n_std: float = 1.0, ax: Ax = None
    ) -> Self:
        """Draw samples, noise and boundary of a fitted classifier of two features.

        Parameters
        ----------
        estimator : fitted GuruClassifier
            With ``X_err`` any classifier with ``decision_function`` or ``predict_proba``.
        X : array-like, sparse matrix or Measured of shape (n_samples, 2)
        y : array-like of shape (n_samples,)
        X_err : error bars of X, default=None
            The noise to draw; finite. None draws the worst case of the noise of the model
            (:func:`gaussguru.worst_case_covariance`).
        n_std : float, default=1.0
            Size of the ellipses in standard deviations.
        ax : matplotlib Axes, default=None

        Returns
        -------
        CloudDisplay
        """
        check_real("n_std", n_std)
        X, X_err = split_errors(X, X_err)
        samples = _points(X)
        covariances = worst_case_covariance(estimator, X) if X_err is None else _covariances(X_err, samples)
        plane = Plane.of(estimator, X, y, _around(samples, covariances, n_std))
        return cls(plane, np.array(covariances), n_std).plot(ax)

    def plot(self, ax: Ax = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        self
        """
        ax = self._axes(ax)
        self._draw_boundary(ax, margins=True)
        for number, label, rows in self._classes():
            self._draw_samples(ax, self.plane.samples[rows], number, label)
        self.ellipses_ = self._draw_clouds(ax, self.covariances, self.n_std)
        self._finish(ax)
        return self


@dataclass(eq=False, repr=False)
class RegionsDisplay(_PlaneDisplay):
    """The regions of the predicted classes, and the misclassified samples (thesis, chapter 4).

    With error bars every sample has an ellipse, as in :class:`CloudDisplay`. The regions are those of exact values.

    Parameters
    ----------
    plane : Plane
        Samples, labels, and scores on a grid.
    classes : ndarray of shape (n_classes,)
    wrong : ndarray of bool of shape (n_samples,)
    covariances : ndarray of shape (n_samples, 2, 2), default=None
    n_std : float, default=1.0

    Attributes
    ----------
    surface_ : matplotlib QuadContourSet
    ellipses_ : list of matplotlib EllipseCollection
        One for each class; empty without error bars.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.thesis import make_gaussian_ring
    >>> from gaussguru.plotting import RegionsDisplay
    >>> X, y = make_gaussian_ring(60, n_classes=3, random_state=0)
    >>> RegionsDisplay.from_estimator(GuruClassifier(0.5).fit(X, y), X, y).classes.tolist()
    [0, 1, 2]
    """

    classes: MixedArray
    wrong: NDArray[np.bool_]
    covariances: Array | None = None
    n_std: float = 1.0

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: Values, y: Labels, *, X_err: ErrorBars = None, n_std: float = 1.0, ax: Ax = None
    ) -> Self:
        """Draw the regions of a fitted classifier of two features.

        Parameters
        ----------
        estimator : fitted classifier with ``decision_function`` or ``predict_proba``
        X : array-like, sparse matrix or Measured of shape (n_samples, 2)
        y : array-like of shape (n_samples,)
        X_err : error bars of X, default=None
            Errors to draw around the samples; finite. A classifier that was fitted with error bars needs them.
        n_std : float, default=1.0
            Size of the ellipses in standard deviations.
        ax : matplotlib Axes, default=None

        Returns
        -------
        RegionsDisplay
        """
        check_real("n_std", n_std)
        X, X_err = split_errors(X, X_err)
        covariances = around = None
        if X_err is not None:
            covariances = _covariances(X_err, _points(X))
            around = _around(_points(X), covariances, n_std)
        plane = Plane.of(estimator, X, y, around)
        samples = Measured(X, X_err) if X_err is not None and counts_errors(estimator) else X
        wrong = np.asarray(estimator.predict(samples) != plane.labels)
        return cls(plane, estimator.classes_, wrong, covariances, n_std).plot(ax)

    def plot(self, ax: Ax = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        self
        """
        ax = self._axes(ax)
        first, second, scores = self.plane.grid
        best = (scores[0] > 0).astype(int) if len(scores) == 1 else np.argmax(scores, axis=0)
        levels, colours = np.arange(len(self.classes) + 1) - 0.5, np.resize(style.LIGHT, len(self.classes)).tolist()
        self.surface_ = ax.contourf(first, second, best, levels=levels, colors=colours)
        self._draw_boundary(ax, margins=False)
        for number, label in enumerate(self.classes):
            rows = (self.plane.labels == label) & ~self.wrong
            self._draw_samples(ax, self.plane.samples[rows], number, label)
        self.ellipses_ = [] if self.covariances is None else self._draw_clouds(ax, self.covariances, self.n_std)
        x, y = self.plane.samples[self.wrong].T
        ax.scatter(x, y, s=26, c="black", marker="x", linewidths=1.2, label="wrong", zorder=4)
        self._finish(ax)
        return self


@dataclass(eq=False, repr=False)
class DisplacementDisplay(_PlaneDisplay):
    """The displacements of samples by :class:`AdversarialSVC` or :class:`TotalSVC` (thesis, appendix A).

    An arrow joins every sample to its displaced position. The solid line is the boundary, where two classes have the
    same score. For two classes the dashed lines are the margins.

    Parameters
    ----------
    plane : Plane
        Samples, labels, and scores on a grid.
    moved : ndarray of shape (n_samples, 2)
        The displaced samples.

    Attributes
    ----------
    arrows_ : list of matplotlib Quiver
        One for each class.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru import AdversarialSVC
    >>> from gaussguru.thesis import make_gaussians
    >>> from gaussguru.plotting import DisplacementDisplay
    >>> X, y = make_gaussians(50, random_state=0)
    >>> display = DisplacementDisplay.from_estimator(AdversarialSVC(delta=0.5).fit(X, y), X, y)
    >>> display.moved.shape
    (50, 2)
    """

    moved: Array

    @classmethod
    def from_estimator(
        cls, estimator: AdversarialSVC | TotalSVC, X: Values, y: Labels, *, delta: object = None, ax: Ax = None
    ) -> Self:
        """Draw the displacements of samples by a fitted estimator of two features.

        Parameters
        ----------
        estimator : AdversarialSVC or TotalSVC
        X : array-like or sparse matrix of shape (n_samples, 2)
        y : array-like of shape (n_samples,)
        delta : array-like of shape (n_samples,), default=None
            The radii of the samples, if they were passed to ``fit``.
        ax : matplotlib Axes, default=None

        Returns
        -------
        DisplacementDisplay
        """
        check_kind(estimator, AdversarialSVC, TotalSVC)
        check_is_fitted(estimator)
        moved = _points(X) + estimator.displacements(X, y, delta)
        plane = Plane.of(estimator, X, y, moved)
        return cls(plane._replace(title=f"{plane.title}: where samples are moved"), moved).plot(ax)

    def plot(self, ax: Ax = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        self
        """
        ax = self._axes(ax)
        self._draw_boundary(ax, margins=True)
        self.arrows_ = []
        for number, label, rows in self._classes():
            before, after = self.plane.samples[rows], self.moved[rows]
            look = style.points_of(number, len(self.plane.samples))
            self._draw_samples(ax, before, number, label)
            ax.scatter(*after.T, facecolors="none", edgecolors=look.pop("color"), **look)
            arrows: Record = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.003, "alpha": 0.6}
            self.arrows_.append(ax.quiver(*before.T, *(after - before).T, color=style.PALETTE[number % 7], **arrows))
        ax.plot(
            [], [], label="hollow: after the move", linestyle="none", marker="o", markersize=4.5,
            markerfacecolor="none", markeredgecolor=LINE, markeredgewidth=0.8,
        )  # fmt: skip
        self._finish(ax)
        return self
