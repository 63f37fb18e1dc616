"""Solvers: how an objective is minimised.

A solver is a frozen dataclass of settings with ``solve(objective, start) -> Result``. It sees neither labels nor
where the rows live, and every exact one stops on the same test: duality gap at most ``tol`` times F(0).
"""

from gaussguru.solvers.newton import Newton

SOLVERS = {"newton": Newton}
