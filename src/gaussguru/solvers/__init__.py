"""Solvers: how an objective is minimised.

A solver is a frozen dataclass of settings with ``solve(objective, start) -> Result``. It sees neither labels nor
where the rows live, and every exact one stops on the same test: duality gap at most ``tol`` times F(0).
"""

from functools import partial
from typing import Any, NamedTuple

from gaussguru.noise import Isotropic, Noise
from gaussguru.solvers.dual import Dual
from gaussguru.solvers.joint import JointNewton
from gaussguru.solvers.newton import Newton
from gaussguru.solvers.sgd import SGD


class Solver(NamedTuple):
    """What a name stands for: solvers for two classes and for more, or None; if they are exact; the noise they need."""

    binary: Any
    multiclass: Any
    exact: bool
    noise: Any = Noise

    def make(self, n_classes: int, settings: dict[str, Any]) -> Any:
        """Return the solver for so many classes."""
        return (self.binary if n_classes == 2 else self.multiclass)(**settings)


SOLVERS = {
    "newton": Solver(Newton, JointNewton, exact=True),
    "dual": Solver(Dual, None, exact=True, noise=Isotropic),
    "sgd": Solver(SGD, SGD, exact=False, noise=Isotropic),
    # With two classes moving one of them moves the other: the same algorithm.
    "sgd2": Solver(SGD, partial(SGD, single=True), exact=False, noise=Isotropic),
}
