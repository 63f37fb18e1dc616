"""What every solver returns, and prints."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gaussguru._linalg import Array, Intercept

Status = Literal["converged", "max_iter", "precision"]


class Result(NamedTuple):
    """A solution with its proof.

    Attributes
    ----------
    coef, intercept : the solution: (w, b), or (W, b) with a row and an intercept for each of several classes
    objective : F there
    gap : a proven bound on F - F*
    alpha : the dual point, ``f'(z)`` of every row, or of every row and class; None of rows that are not in memory
    n_iter : iterations used
    status : "converged" where ``gap <= tol F(0)``, or a stochastic solver came to rest; "max_iter" where iterations
        ran out; "precision" where rounding leaves nothing to gain
    collapsed : whether the solution is a classifier that ignores the features
    loss_curve : F after each epoch of a stochastic solver
    eta0, state : its rate, and from where it may go on
    """

    coef: Array
    intercept: Intercept
    objective: float
    gap: float
    alpha: Array | None
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


@dataclass(frozen=True)
class Log:
    """The lines that a solver with ``verbose`` prints, one for each iteration or epoch."""

    solver: str
    verbose: int
    unit: str = "iteration"
    began: float = field(default_factory=time.perf_counter)

    def __call__(self, number: int, objective: float, gap: float | None = None, note: str = "") -> None:
        """Print how far a fit is."""
        if self.verbose:
            proven = "" if gap is None else f"  gap {gap:.3e}"
            seconds = time.perf_counter() - self.began
            print(f"[{self.solver}] {self.unit} {number}  objective {objective:.10g}{proven}  {seconds:.3f} s{note}")
