"""Losses, their dependence on the noise level, and their conjugates."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from gaussguru._utils.checks import check_real
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Ax
from gaussguru.losses import LOSSES, ROOT, Loss, resolve_loss
from gaussguru.plotting import style


@dataclass(eq=False, repr=False)
class LossDisplay(style.Display):
    """Curves of losses.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
    curves : dict of str to ndarray of shape (n_points,)
        Values by name. "hinge" is drawn as the reference.
    labels : tuple of str
        Labels of the x and the y axis.
    title : str

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        One for each curve.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from gaussguru.plotting import LossDisplay
    >>> sorted(LossDisplay.from_losses().curves)
    ['gaussian', 'hinge', 'logistic', 'moment', 'quadratic']
    """

    x: Array
    curves: dict[str, Array]
    _: KW_ONLY
    labels: tuple[str, str]
    title: str

    @classmethod
    def from_losses(cls, losses: Any = None, *, ax: Ax = None) -> Self:
        """Draw ``f(z)`` and the hinge (thesis, chapters 2 and 3: smooth upper approximations).

        Parameters
        ----------
        losses : str, Loss or sequence of them, default=None
            None draws all losses with names.
        ax : matplotlib Axes, default=None

        Returns
        -------
        LossDisplay
        """
        z = np.linspace(-3, 3, 301)
        curves = {_name(loss): resolve_loss(loss).value(z) for loss in _several(losses)}
        curves["hinge"] = np.maximum(z, 0.0)
        title = "A smooth approximation of the hinge" if len(curves) == 2 else "The family of losses"
        return cls(z, curves, labels=("standardised slack $z$", "$f(z)$"), title=title).plot(ax)

    @classmethod
    def from_sigmas(
        cls, sigmas: Any = (0.1, 0.5, 1.0, 2.0), *, loss: str | Loss = "gaussian", norm: float = 1.0, ax: Ax = None
    ) -> Self:
        """Draw the loss ``a f((1 - margin)/a)`` with ``a = sigma ||w||`` for several noise levels.

        Parameters
        ----------
        sigmas : sequence of float
        loss : str or Loss, default="gaussian"
        norm : float, default=1.0
            ``||w||``. The loss depends on the product of ``sigma`` and ``||w||`` only.
        ax : matplotlib Axes, default=None

        Returns
        -------
        LossDisplay
        """
        margin, f = np.linspace(-3, 5, 401), resolve_loss(loss).value
        scales = {rf"$\sigma$ = {s:g}": check_real("sigmas", s) * check_real("norm", norm) for s in sigmas}
        curves = {name: scale * f((1 - margin) / scale) for name, scale in scales.items()}
        curves["hinge"] = np.maximum(1 - margin, 0.0)
        title = rf"The robust loss ({_name(loss)}), $\Vert w\Vert$ = {norm:g}"
        return cls(margin, curves, labels=(r"margin $y\,(w \cdot x + b)$", "loss"), title=title).plot(ax)

    @classmethod
    def from_conjugates(cls, losses: Any = None, *, ax: Ax = None) -> Self:
        """Draw ``sqrt(2 pi) f*(alpha)``: the dual constraint and its approximations (thesis, chapter 3).

        For the losses with names these are ``exp(-Phi^-1(alpha)^2/2)``, the binary entropy, ``4 alpha (1 - alpha)``
        and, for "moment", which is not scaled like the others, ``sqrt(2 pi alpha (1 - alpha))``.

        Parameters
        ----------
        losses : str, Loss or sequence of them, default=None
            None draws all losses with names.
        ax : matplotlib Axes, default=None

        Returns
        -------
        LossDisplay
        """
        formulas = {
            "gaussian": r"$\exp(-\Phi^{-1}(\alpha)^2/2)$",
            "logistic": r"$H_2(\alpha)$",
            "quadratic": r"$4\,\alpha\,(1-\alpha)$",
            "moment": r"$\sqrt{2\pi\,\alpha\,(1-\alpha)}$",
        }
        alpha = np.linspace(0, 1, 401)
        named = {_name(loss): resolve_loss(loss) for loss in _several(losses)}
        curves = {
            f"{name}: {formulas[name]}" if name in formulas else name: ROOT * loss.conjugate(alpha)
            for name, loss in named.items()
        }
        labels = (r"dual variable $\alpha$", r"$\sqrt{2\pi}\; f^*(\alpha)$")
        return cls(alpha, curves, labels=labels, title="The dual constraint and its approximations").plot(ax)

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
        self.lines_ = []
        for name, values in self.curves.items():
            look = style.REFERENCE if name == "hinge" else style.line(ax)
            self.lines_ += ax.plot(self.x, values, label=name, **look)
        style.finish(ax, *self.labels, self.title)
        return self


def _several(losses: Any) -> Any:
    if losses is None:
        return LOSSES
    return [losses] if isinstance(losses, str | Loss) else losses


def _name(loss: str | Loss) -> str:
    return loss if isinstance(loss, str) else repr(loss)
