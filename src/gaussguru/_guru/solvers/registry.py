"""The solvers that users name, the problems that each supports, and the choice of a solver for a problem."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gaussguru._guru.problems.protocol import LossProblem, P
from gaussguru._guru.solvers.interior_point import Dual
from gaussguru._guru.solvers.kernel_sgd import KenGuru
from gaussguru._guru.solvers.newton import Newton
from gaussguru._guru.solvers.sgd import SGD
from gaussguru._guru.solvers.subspace import Subspace


@dataclass(frozen=True)
class Method:
    """A solver and the problems it supports.

    Attributes
    ----------
    make : makes the solver from its settings, which has ``solve(problem, start)``
    spanned : makes a solver in a growing span from it, for the problems that it suits
    exact : whether it ends at a proven optimum
    classes, errors, errors_of_classes, any_noise : whether it supports several classes, error bars, error bars with
        several classes, and noise other than isotropic
    """

    make: Callable[..., Any]
    spanned: Callable[[Newton], Subspace] | None = None
    exact: bool = True
    classes: bool = True
    errors: bool = True
    errors_of_classes: bool = True
    any_noise: bool = True

    def solver(self, problem: LossProblem[P], *, warm: bool, **settings: Any) -> Any:
        """Return the solver of a problem; without a ``warm`` start one in a growing span, if that suits it."""
        made = self.make(**settings)
        spanned = None if self.spanned is None or warm else self.spanned(made)
        return spanned if spanned is not None and spanned.suits(problem) else made

    def check(self, name: str, n_classes: int, *, errors: bool, noise: str | None) -> None:
        """Raise a ValueError if the problem is not supported; ``noise`` describes a noise that is not isotropic."""
        if n_classes > 2 and not self.classes:
            raise ValueError(
                f"Only binary classification is supported with solver={name!r}; y has {n_classes} classes: use "
                "solver='newton'"
            )
        if errors and not self.errors:
            raise ValueError(f"solver={name!r} with X_err or sigma=0 is not supported; use solver='newton'")
        if errors and n_classes > 2 and not self.errors_of_classes:
            raise ValueError(f"solver={name!r} with X_err is for two classes; y has {n_classes}")
        if noise is not None and not self.any_noise:
            raise ValueError(
                f"solver={name!r} with {noise} is not supported: it needs noise='isotropic'; use solver='newton', or "
                "whiten the features (divide each by its standard deviation) to make it isotropic"
            )


_descent = partial(Method, exact=False, errors_of_classes=False, any_noise=False)
SOLVERS = {
    "newton": Method(Newton, Subspace),
    "dual": Method(Dual, classes=False, errors=False, any_noise=False),
    "sgd": _descent(SGD),
    # With two classes this is the same algorithm as "sgd".
    "sgd2": _descent(partial(SGD, single=True)),
}
# Solvers that read the kernel matrix; all others get features.
_ken_guru = Method(KenGuru, exact=False, classes=False, errors=False, any_noise=False)
KERNEL_SOLVERS = {"newton": SOLVERS["newton"], "sgd": _ken_guru, "sgd2": _ken_guru}
