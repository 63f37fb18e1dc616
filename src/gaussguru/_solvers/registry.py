"""The solvers that users name, and what each can do."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gaussguru._solvers.interior_point import Dual
from gaussguru._solvers.sgd import SGD
from gaussguru._solvers.subspace import Subspace


@dataclass(frozen=True)
class Method:
    """A solver, made from its settings, and what it can do.

    ``exact`` ones end at a proven optimum. The others say whether there may be several classes, error bars, error bars
    with several classes, and noise other than isotropic.
    """

    make: Callable[..., Any]
    exact: bool = True
    classes: bool = True
    errors: bool = True
    errors_of_classes: bool = True
    any_noise: bool = True

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


SOLVERS = {
    "newton": Method(Subspace),
    "dual": Method(Dual, classes=False, errors=False, any_noise=False),
    "sgd": Method(SGD, exact=False, errors_of_classes=False, any_noise=False),
    # With two classes moving one of them moves the other: the same algorithm.
    "sgd2": Method(partial(SGD, single=True), exact=False, errors_of_classes=False, any_noise=False),
}
