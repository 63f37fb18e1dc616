"""The classification problems of the thesis's tables, as data to split."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Directory
from gaussguru.thesis.data import load_ionosphere, load_pima, load_splice, load_usps, load_wine
from gaussguru.thesis.splits import ThesisSplit, thesis_split
from gaussguru.thesis.toys import make_gaussian_ring, make_gaussians, make_narrow_gaussians


@dataclass(frozen=True)
class ThesisProblem:
    """A problem of the thesis.

    Parameters
    ----------
    title : name in tables
    load : returns X and y, given ``data_home``, or for toy problems X and y of a seed
    split : the name of its split, see ``THESIS_SPLITS``
    classes : the classes that take part; None: all
    standardise : whether features are scaled to mean 0 and variance 1 of the training samples
    noise_levels : half the widths of the uniform noise on validation and test samples, the first of them 0
    toy : whether the data are simulated, for every seed
    """

    title: str
    load: Callable[..., Any]
    split: str
    classes: tuple[int, ...] | None = None
    standardise: bool = False
    noise_levels: tuple[float, ...] = (0.0,)
    toy: bool = False

    def parts(self, seed: int, data_home: Directory = None) -> ThesisSplit:
        """Return the split of a seed."""
        X, y = self.load(600, random_state=seed) if self.toy else _loaded(self.load, data_home)
        if self.classes is not None:
            X, y = X[np.isin(y, self.classes)], y[np.isin(y, self.classes)]
        split = thesis_split(self.split, X, y, random_state=seed)
        if not self.standardise:
            return split
        mean, spread = split.X_train.mean(axis=0), split.X_train.std(axis=0)
        spread[spread == 0] = 1.0
        scaled = {name: (getattr(split, name) - mean) / spread for name in ("X_train", "X_valid", "X_test")}
        return split._replace(**scaled)


@lru_cache
def _loaded(load: Callable[..., Any], data_home: Directory) -> tuple[Array, NDArray[np.int64]]:
    X, y = load(data_home=data_home, return_X_y=True)
    return X, y


def _pair(one: int, other: int) -> ThesisProblem:
    name, levels = f"usps-{one}-{other}", tuple(np.linspace(0, 2, 11))
    return ThesisProblem(f"USPS {one} vs. {other}", load_usps, name, classes=(one, other), noise_levels=levels)


def _toy(letter: str, make: Callable[..., Any]) -> ThesisProblem:
    return ThesisProblem(f"Toy ({letter})", make, f"toy-{letter}", noise_levels=tuple(np.linspace(0, 5, 11)), toy=True)


BINARY = {
    "toy-a": _toy("a", make_gaussians),
    "toy-b": _toy("b", make_narrow_gaussians),
    "ionosphere": ThesisProblem("Ionosphere", load_ionosphere, "ionosphere"),
    "pima": ThesisProblem("diabetes", load_pima, "pima"),
    "pima-standardised": ThesisProblem("diabetes, standardised", load_pima, "pima", standardise=True),
    "splice-1-2": ThesisProblem("splice 1 vs. 2", load_splice, "splice-1-2", classes=(0, 1)),
    "usps-3-5": _pair(3, 5),
    "usps-5-8": _pair(5, 8),
    "usps-7-9": _pair(7, 9),
}
MULTICLASS = {
    "toy-3": ThesisProblem("Toy-3", partial(make_gaussian_ring, n_classes=3), "toy-3", toy=True),
    "toy-4": ThesisProblem("Toy-4", partial(make_gaussian_ring, n_classes=4), "toy-4", toy=True),
    "usps-3-5-8": ThesisProblem("USPS 3,5,8", load_usps, "usps-3-5-8", classes=(3, 5, 8)),
    "usps-0-9": ThesisProblem("USPS 0-9", load_usps, "usps-0-9"),
    "splice": ThesisProblem("splice", load_splice, "splice"),
    "wine": ThesisProblem("wine", load_wine, "wine"),
    "wine-standardised": ThesisProblem("wine, standardised", load_wine, "wine", standardise=True),
}
KERNEL = {name: BINARY[name] for name in (
    "ionosphere", "pima-standardised", "splice-1-2", "usps-3-5", "usps-5-8", "usps-7-9"
)}  # fmt: skip
