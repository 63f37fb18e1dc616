"""What every solver returns."""

from dataclasses import dataclass
from typing import Any, Literal

from gaussguru._linalg import Array

Status = Literal["converged", "max_iter", "precision"]


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
    status : "converged" where ``gap <= tol F(0)``, or a stochastic solver came to rest; "max_iter" where iterations
        ran out; "precision" where rounding leaves nothing to gain
    collapsed : whether the solution is a classifier that ignores the features
    loss_curve : F after each epoch of a stochastic solver
    eta0, state : its rate, and from where it may go on
    """

    coef: Array
    intercept: Any
    objective: float
    gap: float
    alpha: Array
    n_iter: int
    status: Status
    collapsed: bool = False
    loss_curve: list[float] | None = None
    eta0: float | None = None
    state: Any = None

    @property
    def converged(self) -> bool:
        """Whether the status is "converged"."""
        return self.status == "converged"
