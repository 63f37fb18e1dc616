"""Solvers: how an objective is minimised.

A solver is a frozen dataclass of settings with ``solve(objective, start) -> Result``. It sees neither labels nor
where the rows live, and every exact one stops on the same test: duality gap at most ``tol`` times F(0).
"""

from typing import Any, NamedTuple

from gaussguru.solvers.joint import JointNewton
from gaussguru.solvers.newton import Newton


class Solver(NamedTuple):
    """What a name stands for: the solver of the two-class problem and that of the multiclass problem."""

    binary: Any
    multiclass: Any


SOLVERS = {"newton": Solver(Newton, JointNewton)}
