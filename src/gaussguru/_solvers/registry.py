"""The solvers that users name, what each can do, and which one a problem gets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from gaussguru._linalg import Array, Intercept
from gaussguru._problems.protocol import LossProblem, P
from gaussguru._solvers.interior_point import Dual
from gaussguru._solvers.kernel_sgd import KenGuru
from gaussguru._solvers.newton import Newton
from gaussguru._solvers.result import Result
from gaussguru._solvers.sgd import SGD
from gaussguru._solvers.subspace import Subspace


class Solver(Protocol):
    """What users name: settings that solve the problems that they are for."""

    def solve(self, problem: Any, start: tuple[Array, Intercept] | None = None) -> Result:
        """Minimise, from coefficients and intercept if given."""


@dataclass(frozen=True)
class Method:
    """A solver, made from its settings, and what it can do.

    ``spanned`` puts it into a growing span, for problems that this suits. ``exact`` ones end at a proven optimum. The
    others say whether there may be several classes, error bars, error bars with several classes, and noise other than
    isotropic.
    """

    make: Callable[..., Any]
    spanned: Callable[[Newton], Subspace] | None = None
    exact: bool = True
    classes: bool = True
    errors: bool = True
    errors_of_classes: bool = True
    any_noise: bool = True

    def solver(self, problem: LossProblem[P], *, warm: bool, **settings: Any) -> Solver:
        """Return the solver of a problem: where there is no ``warm`` start, in a growing span if that suits."""
        made = self.make(**settings)
        spanned = None if self.spanned is None or warm else self.spanned(made)
        solver: Solver = spanned if spanned is not None and spanned.suits(problem) else made
        return solver

    def check(self, name: str, n_classes: int, *, errors: bool, noise: str | None) -> None:
        """Raise a ValueError that says what is not supported; ``noise`` describes one that is not isotropic."""
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
    # With two classes moving one of them moves the other: the same algorithm.
    "sgd2": _descent(partial(SGD, single=True)),
}
# Those that read the kernel matrix itself; for all others a kernel is features.
_ken_guru = Method(KenGuru, exact=False, classes=False, errors=False, any_noise=False)
KERNEL_SOLVERS = {"newton": SOLVERS["newton"], "sgd": _ken_guru, "sgd2": _ken_guru}
