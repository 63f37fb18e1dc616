"""Functions that draw the figures of the thesis without long computations, by chapter; each returns a figure."""

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from gaussguru import AdversarialSVC, GuruClassifier, KernelGuruClassifier, TotalSVC, plotting
from gaussguru._utils.types import Axes, Directory, Estimator, Figure, Labels, Values
from gaussguru.plotting import style
from gaussguru.thesis.problems import BINARY
from gaussguru.thesis.toys import make_gaussian_ring, make_gaussians, make_radial


def hinge() -> Figure:
    """Chapter 1: the hinge loss is a convex surrogate of the zero-one loss."""
    figure = style.figure(1, size=(5.0, 3.2))
    ax, margin = figure.axes[0], np.linspace(-2, 3, 501)
    curves = {"hinge": np.maximum(0, 1 - margin), "zero-one": np.where(margin < 0, 1.0, 0.0)}
    for number, (label, values) in enumerate(curves.items()):
        ax.plot(margin, values, label=label, **style.line_of(number))
    style.finish(ax, r"margin $y\,(w \cdot x + b)$", "loss", "The hinge loss and what it stands for")
    return figure


def margin() -> Figure:
    """Chapter 1: both margins are ``1/||w||`` away from the boundary."""
    X, y = make_gaussians(40, random_state=1)
    X = X + np.outer(y, [1.2, 0.0])
    model = GuruClassifier(0.0, l2=0.1).fit(X, y)  # without noise: a support vector machine
    figure = style.figure(1, size=(5.0, 3.4))
    ax = plotting.CloudDisplay.from_estimator(model, X, y, ax=figure.axes[0]).ax_
    w, b = model.coef_[0], model.intercept_[0]
    foot = X.mean(axis=0) - (w @ X.mean(axis=0) + b) * w / (w @ w)
    ends = [foot + sign * w / (w @ w) for sign in (-1, 1)]
    ax.annotate("", ends[0], ends[1], arrowprops={"arrowstyle": "<->", "linewidth": 1.2})
    ax.annotate(r"$2/\|w\|$", foot, textcoords="offset points", xytext=(-10, 16), ha="center", fontsize=style.LABEL)
    ax.set_title("The margin between the dashed lines", fontsize=style.TITLE)
    return figure


def clouds() -> Figure:
    """Chapter 2: a sample becomes a cloud, the adversary turns it across the boundary, and its tail is the loss."""
    X, y = make_gaussians(12, random_state=3)
    X = X + np.outer(y, [0.8, 0.0])
    model = GuruClassifier(0.7).fit(X, y)
    figure = style.figure(3, size=(3.4, 3.0))
    first, second, third = figure.axes
    plotting.CloudDisplay.from_estimator(model, X, y, X_err=np.full(len(y), 0.7 / np.sqrt(2)), ax=first)
    plotting.CloudDisplay.from_estimator(model, X, y, ax=second)
    first.set_title("(a) clouds in place of samples", fontsize=style.TITLE)
    second.set_title("(b) the worst clouds", fontsize=style.TITLE)
    for ax in (first, second):
        ax.legend(fontsize=style.SMALL, loc="lower right")
    score = np.linspace(-2, 4, 400)
    mean, scale = 1.4, 0.7
    density = norm.pdf(score, mean, scale)
    third.plot(score, density, **style.line_of(0))
    third.fill_between(score, density, where=score < 1, color=style.LIGHT[1], label="suffers a loss")
    third.axvline(1, **style.REFERENCE)
    style.finish(third, r"margin $y\,(w \cdot x + b)$", "density", "(c) the tail below 1", legend=False)
    third.legend(fontsize=style.SMALL, loc="upper left")
    return figure


def smooth_loss() -> Figure:
    """Chapter 2: f is a smooth approximation of the hinge."""
    return plotting.LossDisplay.from_losses("gaussian", ax=_one().axes[0]).figure_


def robust_loss() -> Figure:
    """Chapter 2: the robust loss for several sigma, ``||w|| = 1``."""
    return plotting.LossDisplay.from_sigmas((0.1, 0.5, 1.0, 2.0), ax=_one().axes[0]).figure_


def toys() -> Figure:
    """Chapter 2: the toy problems, and GURU's boundary."""
    figure = style.figure(2)
    for ax, name, sigma in zip(figure.axes, ("toy-a", "toy-b"), (1.0, 0.5), strict=True):
        _regions(ax, GuruClassifier(sigma), *BINARY[name].parts(0)[:2], BINARY[name].title)
    return figure


def digits(data_home: Directory = None) -> Figure:
    """Chapter 2: digits with noise of the adversary of GURU."""
    figure = style.figure(3, size=(3.4, 2.4))
    for ax, name in zip(figure.axes, ("usps-3-5", "usps-5-8", "usps-7-9"), strict=True):
        split = BINARY[name].parts(0, data_home)
        model = GuruClassifier(4.0).fit(split.X_train, split.y_train)
        shown = [np.flatnonzero(split.y_train == label)[i] for label in model.classes_ for i in range(2)]
        plotting.AdversarialSamplesDisplay.from_estimator(
            model, split.X_train[shown], image_shape=(16, 16), n_draws=6, random_state=0, ax=ax
        )
        ax.set_title(BINARY[name].title, fontsize=style.TITLE)
    figure.suptitle(
        r"Originals, left, and draws of the adversary's noise, $\sigma = 4$; below each what it is taken for",
        fontsize=style.TITLE,
    )
    return figure


def norms() -> Figure:
    """Chapter 3: the norm of the optimal classifier against sigma."""
    figure = _one()
    for name in ("toy-a", "toy-b"):
        X, y = BINARY[name].parts(0)[:2]
        plotting.SigmaPathDisplay.from_estimator(
            GuruClassifier(), X, y, sigmas=2.0 ** np.linspace(-6, 6, 49), name=BINARY[name].title, ax=figure.axes[0]
        )
    return figure


def dual_constraint() -> Figure:
    """Chapter 3: the dual constraint and its approximations."""
    return plotting.LossDisplay.from_conjugates(ax=_one().axes[0]).figure_


def loss_family() -> Figure:
    """Chapter 3: the losses that belong to them."""
    return plotting.LossDisplay.from_losses(ax=_one().axes[0]).figure_


def radial() -> Figure:
    """Chapter 4: small sigma decides locally, large sigma globally."""
    X, y = make_radial(random_state=0)
    figure = style.figure(2, 2, size=(3.6, 3.4))
    for ax, sigma in zip(figure.axes, (0.1, 4.0, 6.0, 7.0), strict=True):
        model = KernelGuruClassifier(sigma, kernel="poly", degree=2, gamma=1.0, coef0=1.0)
        _regions(ax, model, X, y, rf"$\sigma = {sigma:g}$")
    return figure


def constraints() -> Figure:
    """Chapter 5: covariances of bounded trace are among those of bounded largest eigenvalue."""
    figure = style.figure(1, size=(4.4, 3.2))
    ax = figure.axes[0]
    ax.fill([0, 1, 1, 0], [0, 0, 1, 1], color=style.LIGHT[0], label=r"$\max(\lambda_1, \lambda_2) \leq 1$")
    ax.fill([0, 1, 0], [0, 0, 1], color=style.PALETTE[0], label=r"$\lambda_1 + \lambda_2 \leq 1$")
    ax.set(xlim=(0, 1.3), ylim=(0, 1.3), aspect="equal")
    style.finish(ax, r"eigenvalue $\lambda_1$", r"eigenvalue $\lambda_2$", "What the adversary may choose")
    return figure


def toys_multiclass() -> Figure:
    """Chapter 5: Toy-3 and Toy-4, and M-GURU's boundaries."""
    figure = style.figure(2)
    for ax, n_classes in zip(figure.axes, (3, 4), strict=True):
        X, y = make_gaussian_ring(n_classes=n_classes, random_state=0)
        _regions(ax, GuruClassifier(1.0), X, y, f"Toy-{n_classes}")
    return figure


def asvc() -> Figure:
    """Appendix A: the displacements of ASVC."""
    return _displaced(AdversarialSVC(delta=0.5), "ASVC moves every sample against its label")


def tsvc() -> Figure:
    """Appendix A: the displacements of TSVC."""
    return _displaced(TotalSVC(delta=0.5), "TSVC moves every sample in favour of its label")


def diagonal() -> Figure:
    """Appendix B: an adversary with a diagonal covariance spends all noise on one feature."""
    X, y = make_gaussians(12, random_state=3)
    X = (X * [1.0, 2.0] + np.outer(y, [0.8, 0.0])) @ np.array([[0.95, 0.3], [-0.3, 0.95]])
    figure = style.figure(2)
    titles = {"isotropic": "any covariance", "axis": "a diagonal covariance"}
    for ax, (noise, title) in zip(figure.axes, titles.items(), strict=True):
        plotting.CloudDisplay.from_estimator(GuruClassifier(0.7, noise=noise).fit(X, y), X, y, ax=ax)
        ax.set_title(f"The worst of {title}", fontsize=style.TITLE)
        ax.legend(fontsize=style.SMALL, loc="lower right")
    return figure


def _one() -> Figure:
    return style.figure(1, size=(6.0, 3.4))


def _regions(ax: Axes, model: Estimator, X: Values, y: Labels, title: str) -> None:
    plotting.RegionsDisplay.from_estimator(model.fit(X, y), X, y, ax=ax)
    ax.set_title(title, fontsize=style.TITLE)


def _displaced(model: Estimator, title: str) -> Figure:
    X, y = make_gaussians(40, random_state=1)
    figure = style.figure(1, size=(5.0, 3.4))
    plotting.DisplacementDisplay.from_estimator(model.fit(X, y), X, y, ax=figure.axes[0])
    figure.axes[0].set_title(title, fontsize=style.TITLE)
    return figure


FIGURES: dict[str, Callable[..., Figure]] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        hinge, margin, clouds, smooth_loss, robust_loss, toys, norms, dual_constraint, loss_family, radial, constraints,
        toys_multiclass, asvc, tsvc, diagonal,
    )
}  # fmt: skip
