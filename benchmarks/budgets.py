"""Passes over X of fits to the large problems, compared with their budgets.

    PYTHONPATH=tests python benchmarks/budgets.py [words that the names must contain]

Counts are those of ``tests/guru/solvers/test_budgets.py``, which has the small problems: passes for values and
gradients, for products with the Hessian and for Hessians, in units of all rows, and iterations. They are the same on
every machine, up to rounding, which may move a fit by an iteration. Exits with 1 where a fit needs more.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from problems import DATA, a9a, covtype, digits, feature_scale, gaussian, letter, mnist, news20
from support.budgets import passes

from gaussguru import AdversarialSVC, FeatureDropSVC, GuruClassifier

KINDS = ("value", "product", "hessian", "iterations")
# How much more than its budget a fit may need: a fraction, and so many passes or iterations.
SLACK, ONE = 0.05, 1.0

LOADERS: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "a9a": a9a,
    "news20": news20,
    "gaussian 200,000 x 100": lambda: gaussian(200_000, 100),
    "gaussian 1,000,000 x 10": lambda: gaussian(1_000_000, 10),
    "covtype": covtype,
    "mnist even/odd": mnist,
    "letter": letter,
    "usps 0-9": lambda: digits("usps_all_11000"),
    "mnist 0-9": lambda: digits("mnist_70000"),
}
FILES = {
    "a9a": "a9a.npz", "news20": "news20_counts.npz", "covtype": "covtype.npz", "mnist even/odd": "mnist_70000.npz",
    "letter": "letter.npz", "usps 0-9": "usps_all_11000.npz", "mnist 0-9": "mnist_70000.npz",
}  # fmt: skip


class Budget(NamedTuple):
    """A fit, with ``sigma`` and error bars in units of the feature scale, and what it may need.

    ``sigma`` is the radius of a ball, or the number of features that are deleted, where the settings say so.
    """

    data: str
    sigma: float
    counts: tuple[float, float, float, int]
    settings: dict[str, Any] = {}  # noqa: RUF012 - a constant
    errors: float | None = None

    @property
    def name(self) -> str:
        kinds = [key if value is True else value for key, value in self.settings.items()]
        return ", ".join([self.data, f"sigma {self.sigma:g}", *kinds, *(["error bars"] if self.errors else [])])


BUDGETS = [
    Budget("a9a", 0.1, (9.9, 0.2, 2.5, 14)),
    Budget("a9a", 1.0, (5.8, 0, 0.2, 9)),
    Budget("a9a", 0.1, (20.2, 0, 4.8, 12), {"noise": "axis"}),
    Budget("a9a", 1.0, (13.2, 0, 1.8, 9), {"noise": "axis"}),
    Budget("news20", 0.1, (10.7, 0, 0, 0)),
    Budget("news20", 1.0, (12.4, 0, 0, 0)),
    Budget("news20", 1.0, (24.9, 55, 0, 5), {"loss": "logistic"}),
    Budget("news20", 0.1, (10.7, 0, 0, 0), {"noise": "axis"}),
    Budget("news20", 1.0, (10.7, 0, 0, 0), {"noise": "axis"}),
    Budget("gaussian 200,000 x 100", 0.1, (5.4, 0.1, 0.1, 6)),
    Budget("gaussian 200,000 x 100", 1.0, (3.3, 0, 0.1, 4)),
    Budget("gaussian 200,000 x 100", 0.1, (6.9, 0, 1.3, 11), {"noise": "axis"}),
    Budget("gaussian 200,000 x 100", 1.0, (5.7, 0, 0.3, 8), {"noise": "axis"}),
    Budget("gaussian 200,000 x 100", 0.1, (6.4, 0.4, 0.2, 11), errors=0.3),
    Budget("gaussian 200,000 x 100", 1.0, (6.4, 0.2, 0.2, 11), errors=0.3),
    Budget("gaussian 1,000,000 x 10", 0.1, (3.3, 0, 0.1, 7)),
    Budget("gaussian 1,000,000 x 10", 1.0, (2.2, 0, 0.1, 5)),
    Budget("gaussian 1,000,000 x 10", 0.1, (5.4, 0, 0.2, 10), {"noise": "axis"}),
    Budget("gaussian 1,000,000 x 10", 1.0, (3.4, 0, 0.2, 7), {"noise": "axis"}),
    Budget("gaussian 1,000,000 x 10", 0.1, (4.3, 0.1, 0.2, 9), errors=0.3),
    Budget("gaussian 1,000,000 x 10", 1.0, (4.3, 0.1, 0.2, 9), errors=0.3),
    Budget("covtype", 0.1, (7.7, 0.1, 2.4, 16)),
    Budget("covtype", 1.0, (4.2, 0, 0.1, 8)),
    Budget("covtype", 0.1, (9.1, 0, 1.4, 17), {"noise": "axis"}),
    Budget("covtype", 1.0, (7.6, 0, 0.3, 15), {"noise": "axis"}),
    Budget("covtype", 0.1, (14.5, 4.1, 0.2, 18), errors=0.3),
    Budget("covtype", 1.0, (6.3, 1.1, 0.2, 11), errors=0.3),
    Budget("mnist even/odd", 0.1, (14, 22.8, 0.2, 15)),
    Budget("mnist even/odd", 1.0, (7.9, 11.3, 0.1, 10)),
    Budget("mnist even/odd", 0.1, (26.4, 0, 5.2, 18), {"noise": "axis"}),
    Budget("mnist even/odd", 1.0, (18.2, 0, 2.2, 13), {"noise": "axis"}),
    Budget("letter", 0.1, (20.2, 2.2, 4.2, 12)),
    Budget("letter", 1.0, (14.2, 0.6, 1.2, 11)),
    Budget("letter", 0.3, (11.2, 0.4, 1, 13), errors=0.3),
    Budget("usps 0-9", 0.1, (38, 63, 2.3, 18)),
    Budget("usps 0-9", 1.0, (132, 1.9, 14, 7)),
    Budget("mnist 0-9", 0.1, (39, 66, 2.9, 17)),
    Budget("mnist 0-9", 1.0, (25.1, 40, 2.5, 10)),
    Budget("covtype", 0.1, (38.8, 3, 13.3, 46), {"ball": True}),
    Budget("a9a", 1, (123.3, 2, 19.4, 35), {"drop": True}),
]


def main() -> int:
    exceeded, loaded = 0, ("", (None, None))
    for budget in BUDGETS:
        if not all(word in budget.name for word in sys.argv[1:]):
            continue
        if budget.data in FILES and not (DATA / FILES[budget.data]).exists():
            print(f"{budget.name:45s} not run: {FILES[budget.data]} is not in {DATA} (set GAUSSGURU_DATA)")
            continue
        if loaded[0] != budget.data:
            loaded = budget.data, LOADERS[budget.data]()
        X, y = loaded[1]
        scale, more = feature_scale(X), {}
        if budget.errors is not None:
            more["X_err"] = budget.errors * scale * np.random.default_rng(0).uniform(0.2, 1.8, X.shape)
        if "ball" in budget.settings:
            model = AdversarialSVC(budget.sigma)
        elif "drop" in budget.settings:
            model = FeatureDropSVC(int(budget.sigma))
        else:
            model = GuruClassifier(budget.sigma * scale, **budget.settings)
        found = passes(model, X, y, **more)
        over = [kind for kind, most in zip(KINDS, budget.counts, strict=True) if found[kind] > (1 + SLACK) * most + ONE]
        exceeded += bool(over)
        counts = "  ".join(f"{found[kind]:g} {kind}" for kind in KINDS)
        print(f"{budget.name:45s} {counts}{'   ABOVE BUDGET: ' + ', '.join(over) if over else ''}", flush=True)
    return int(exceeded > 0)


if __name__ == "__main__":
    sys.exit(main())
