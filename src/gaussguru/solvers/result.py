"""What every solver returns."""

from dataclasses import dataclass
from typing import Any

from gaussguru.losses import Array


@dataclass(frozen=True)
class Result:
    """A solution with its proof.

    Attributes
    ----------
    coef, intercept : the solution: (w, b), or (W, b) with a row and an intercept for each of several classes
    objective : F there
    gap : a proven bound on F - F*
    alpha : the dual point, ``f'(z)`` of every row, or of every row and class
    n_iter : iterations used
    converged : whether ``gap <= tol F(0)``; for a stochastic solver, whether it came to rest
    collapsed : whether the solution is the constant classifier
    loss_curve : F after each epoch of a stochastic solver
    eta0, state : its rate, and from where it may go on
    """

    coef: Array
    intercept: Any
    objective: float
    gap: float
    alpha: Array
    n_iter: int
    converged: bool
    collapsed: bool = False
    loss_curve: list[float] | None = None
    eta0: float | None = None
    state: Any = None
