"""What every solver returns."""

from dataclasses import dataclass

from gaussguru.losses import Array


@dataclass(frozen=True)
class Result:
    """A solution with its proof.

    Attributes
    ----------
    coef, intercept : the solution
    objective : F there
    gap : a proven bound on F - F*
    alpha : the dual point, ``f'(z)`` of every row
    n_iter : iterations used
    converged : whether ``gap <= tol F(0)``
    collapsed : whether the solution is the constant classifier
    """

    coef: Array
    intercept: float
    objective: float
    gap: float
    alpha: Array
    n_iter: int
    converged: bool
    collapsed: bool = False
