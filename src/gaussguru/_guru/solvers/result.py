"""The result of a solver, and its log."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gaussguru._utils.linalg import Array, Intercept

Status = Literal["converged", "max_iter", "precision"]


class Result(NamedTuple):
    """A solution with its proof.

    Attributes
    ----------
    coef, intercept : the solution: (w, b), or (W, b) with a row and an intercept for each of several classes
    objective : F there
    gap : a proven bound on F - F*
    alpha : the dual point ``f'(z)``, (n_rows,) or (n_rows, C); None if the rows are not in memory
    n_iter : iterations used
    status : "converged" if ``gap <= tol F(0)``, or if a stochastic solver no longer lowers F; "max_iter" if the
        iterations are used up; "precision" if further progress is below rounding
    collapsed : whether the solution is a classifier that ignores the features
    loss_curve : F after each epoch of a stochastic solver
    eta0, state : the rate of a stochastic solver, and the state from which it can continue
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
    """Prints a line for each iteration or epoch of a solver with ``verbose``."""

    solver: str
    verbose: int
    unit: str = "iteration"
    began: float = field(default_factory=time.perf_counter)

    def __call__(self, number: int, objective: float, gap: float | None = None, note: str = "") -> None:
        """Print the objective, the gap if there is one, and the seconds since the start."""
        if self.verbose:
            proven = "" if gap is None else f"  gap {gap:.3e}"
            seconds = time.perf_counter() - self.began
            print(f"[{self.solver}] {self.unit} {number}  objective {objective:.10g}{proven}  {seconds:.3f} s{note}")
