"""Checks of parameters: every error names the parameter, its value and the valid ones."""

import math
import numbers
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


class ParameterError(ValueError):
    """A parameter has a value that it may not have: its name, and the words of the message that follow it."""

    def __init__(self, parameter: str, words: str) -> None:
        super().__init__(f"{parameter} {words}")
        self.parameter, self.words = parameter, words

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parameter, self.words)


def check_real(name: str, value: Any, *, low: float = 0.0, inclusive: bool = False) -> float:
    """Return a finite number above ``low`` (or equal to it) as a float."""
    is_number = _is_number(value, numbers.Real)
    if is_number and math.isfinite(value) and (value > low or (value == low and inclusive)):
        return float(value)
    expected = f"a finite number {'>=' if inclusive else '>'} {low:g}"
    if not is_number:
        raise TypeError(f"{name} must be {expected}; got {value!r} of type {type(value).__name__}")
    raise ParameterError(name, f"must be {expected}; got {value!r}")


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def check_count(name: str, value: Any, *, low: int = 1) -> int:
    """Return a whole number of at least ``low``."""
    if not _is_number(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number >= {low}; got {value!r} of type {type(value).__name__}")
    if value < low:
        raise ParameterError(name, f"must be a whole number >= {low}; got {value!r}")
    return int(value)


def check_jobs(name: str, n_jobs: Any) -> int | None:
    """Return ``n_jobs`` if it is None or a whole number other than 0."""
    if n_jobs is None:
        return None
    if not _is_number(n_jobs, numbers.Integral) or n_jobs == 0:
        raise ParameterError(name, f"must be None or a whole number other than 0; got {n_jobs!r}")
    return int(n_jobs)


def check_sigma(name: str, value: object) -> float:
    """Return a noise level: 0, or a number by which slacks can be divided."""
    sigma = check_real(name, value, inclusive=True)
    if 0 < sigma < 1e-290:
        raise ParameterError(name, f"must be at least 1e-290, or slacks divided by it overflow; got {sigma:g}")
    return sigma


def check_verbose(name: str, value: object) -> int:
    """Return how much to print; true is 1."""
    return check_count(name, int(value) if isinstance(value, bool) else value, low=0)


def check_optional(name: str, value: object, check: Callable[[str, Any], Any]) -> Any:
    """Return None, or a value that is checked."""
    return None if value is None else check(name, value)


def check_flag(name: str, value: object) -> None:
    """Raise unless ``value`` is true or false."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {value!r}")


def check_choice(name: str, value: Any, known: Any) -> str:
    """Return ``value`` if it is one of the ``known`` names."""
    if not isinstance(value, str) or value not in known:
        raise ParameterError(name, f"must be one of {sorted(known)}; got {value!r}")
    return value


def check_kind(estimator: object, *kinds: type) -> None:
    """Raise unless ``estimator`` is of one of these classes."""
    if not isinstance(estimator, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"estimator must be of the class {names}; got {type(estimator).__name__}")


def outside() -> int:
    """Return how many frames up from the caller the first one is that is outside of this package and its callers."""
    callers = ("gaussguru.", "sklearn.", "joblib.")
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(callers):
        level, frame = level + 1, frame.f_back
    return level
