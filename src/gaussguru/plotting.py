"""Pictures of the losses, their duals, what sigma does and displacements; matplotlib is imported when one is drawn.

Every function draws on ``ax``, a matplotlib Axes, or on a new one, and returns it.
"""

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gaussguru.ball import AdversarialSVC, TotalSVC
from gaussguru.linear import GuruClassifier
from gaussguru.losses import LOSSES, ROOT, Array, Loss, resolve_loss

HINGE = {"color": "black", "linestyle": "--", "linewidth": 1.0}


def plot_loss(loss: str | Loss = "gaussian", *, ax: Any = None) -> Any:
    """Draw ``f`` against the hinge (thesis, chapter 2: f is a smooth upper approximation).

    Parameters
    ----------
    loss : str or Loss, default="gaussian"
    ax : matplotlib Axes, default=None

    Returns
    -------
    matplotlib Axes
    """
    ax, z = _axes(ax), np.linspace(-3, 3, 301)
    ax.plot(z, resolve_loss(loss).value(z), label=_name(loss))
    ax.plot(z, np.maximum(z, 0), label="hinge", **HINGE)
    return _finish(ax, "standardised slack $z$", "$f(z)$", "A smooth approximation of the hinge")


def plot_robust_loss(
    sigmas: Any = (0.1, 0.5, 1.0, 2.0), *, loss: str | Loss = "gaussian", norm: float = 1.0, ax: Any = None
) -> Any:
    """Draw the loss of a sample, ``a f((1 - margin)/a)`` with ``a = sigma ||w||``, for several noise levels.

    Parameters
    ----------
    sigmas : sequence of float
    loss : str or Loss, default="gaussian"
    norm : float, default=1.0
        ``||w||``, which matters only in the product with sigma.
    ax : matplotlib Axes, default=None

    Returns
    -------
    matplotlib Axes
    """
    ax, margin = _axes(ax), np.linspace(-3, 5, 401)
    for sigma in sigmas:
        scale = sigma * norm
        ax.plot(margin, scale * resolve_loss(loss).value((1 - margin) / scale), label=rf"$\sigma = {sigma:g}$")
    ax.plot(margin, np.maximum(1 - margin, 0), label="hinge", **HINGE)
    return _finish(ax, r"margin $y\,(w \cdot x + b)$", "loss", f"The robust loss ({_name(loss)}), $||w|| = {norm:g}$")


def plot_conjugates(*, ax: Any = None) -> Any:
    r"""Draw ``sqrt(2 pi) f*(alpha)`` of every loss: the dual constraint and its approximations (thesis, chapter 3).

    They are ``s(alpha) = exp(-Phi^-1(alpha)^2/2)``, the binary entropy and ``4 alpha (1 - alpha)``.

    Parameters
    ----------
    ax : matplotlib Axes, default=None

    Returns
    -------
    matplotlib Axes
    """
    labels = {
        "gaussian": r"$s(\alpha) = \exp(-\Phi^{-1}(\alpha)^2/2)$",
        "logistic": r"$H_2(\alpha)$",
        "quadratic": r"$4\,\alpha\,(1-\alpha)$",
    }
    ax, alpha = _axes(ax), np.linspace(0, 1, 401)
    for name, loss in LOSSES.items():
        ax.plot(alpha, ROOT * loss.conjugate(alpha), label=labels.get(name, name))
    return _finish(ax, r"$\alpha$", r"$\sqrt{2\pi}\; f^*(\alpha)$", "The dual constraint and its approximations")


def plot_losses(losses: Any = None, *, ax: Any = None) -> Any:
    """Draw the family of losses, by default all that have a name.

    Parameters
    ----------
    losses : sequence of str or Loss, default=None
    ax : matplotlib Axes, default=None

    Returns
    -------
    matplotlib Axes
    """
    ax, z = _axes(ax), np.linspace(-2.5, 2.5, 401)
    for loss in LOSSES if losses is None else losses:
        ax.plot(z, resolve_loss(loss).value(z), label=_name(loss))
    ax.plot(z, np.maximum(z, 0), label="hinge", **HINGE)
    return _finish(ax, "standardised slack $z$", "$f(z)$", "The family of losses")


def plot_norms(
    X: Any,
    y: Any,
    sigmas: Any = None,
    *,
    estimator: GuruClassifier | None = None,
    label: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw the norm of the optimal classifier against sigma (thesis, chapter 3, which conjectures a bound on it).

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sigmas : sequence of float, default=None
        None: 2^-6 to 2^6.
    estimator : GuruClassifier, default=None
        Everything but sigma; fitted are copies of it.
    label : str, default=None
    ax : matplotlib Axes, default=None

    Returns
    -------
    matplotlib Axes
    """
    ax = _axes(ax)
    sigmas = 2.0 ** np.linspace(-6, 6, 37) if sigmas is None else np.asarray(sigmas, dtype=np.float64)
    parameters = {} if estimator is None else estimator.get_params()
    models = [GuruClassifier(**{**parameters, "sigma": float(sigma)}).fit(X, y) for sigma in sigmas]
    ax.loglog(sigmas, [np.linalg.norm(model.coef_) for model in models], marker=".", label=label)
    return _finish(ax, r"$\sigma$", "$||w^*||$", "Norm of the optimal classifier", legend=label is not None)


def plot_regions(estimator: Any, X: Any, y: Any, *, ax: Any = None) -> Any:
    """Draw where a fitted classifier of two features decides for which of two classes, and which samples it gets wrong.

    (Thesis, chapter 4: small sigma decides locally, large sigma globally.)

    Parameters
    ----------
    estimator : fitted classifier of two classes with ``decision_function``
    X : array-like of shape (n_samples, 2)
    y : array-like of shape (n_samples,)
    ax : matplotlib Axes, default=None

    Returns
    -------
    matplotlib Axes
    """
    check_is_fitted(estimator)
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    if X.ndim != 2 or X.shape[1] != 2 or len(estimator.classes_) != 2:
        raise ValueError(
            f"regions are drawn for two features and two classes; got X of shape {X.shape} and "
            f"{len(estimator.classes_)} classes"
        )
    ax, margin = _axes(ax), 0.03 * np.ptp(X, axis=0)
    first, second = (
        np.linspace(low, high, 200) for low, high in zip(X.min(0) - margin, X.max(0) + margin, strict=True)
    )
    grid = np.stack(np.meshgrid(first, second), axis=-1)
    scores = estimator.decision_function(grid.reshape(-1, 2)).reshape(200, 200)
    ax.contourf(first, second, scores > 0, levels=[-0.5, 0.5, 1.5], colors=["#f5c9a0", "#a8cbe8"])
    if scores.min() < 0 < scores.max():
        ax.contour(first, second, scores, levels=[0.0], colors="black", linewidths=1.0)
    wrong = estimator.predict(X) != y
    for label, colour, marker in zip(estimator.classes_, ("#c05000", "#005a9c"), "o^", strict=True):
        mine = (y == label) & ~wrong
        ax.scatter(*X[mine].T, s=12, c=colour, marker=marker, label=f"{label}")
    ax.scatter(*X[wrong].T, s=30, c="black", marker="x", label="wrong")
    ax.set_aspect("equal")
    return _finish(ax, "first feature", "second feature", rf"$\sigma = {estimator.sigma:g}$")


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'gaussguru[plot]'") from error
    return pyplot.subplots(layout="constrained")[1]


def _name(loss: str | Loss) -> str:
    return loss if isinstance(loss, str) else repr(loss)


def _finish(ax: Any, x: str, y: str, title: str, *, legend: bool = True) -> Any:
    ax.set(xlabel=x, ylabel=y, title=title)
    ax.grid(alpha=0.3)
    if legend:
        ax.legend()
    return ax


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
        ax = _axes(ax)
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
