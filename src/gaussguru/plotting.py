"""Pictures of the losses, their duals and what sigma does; matplotlib is imported when one is drawn.

Every function draws on ``ax``, a matplotlib Axes, or on a new one, and returns it.
"""

from typing import Any

import numpy as np

from gaussguru.linear import GuruClassifier
from gaussguru.losses import LOSSES, ROOT, Loss, resolve_loss

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
