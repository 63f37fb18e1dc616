"""A property that is computed once.

That of functools takes a lock before Python 3.12, which is a thirtieth of a small fit. Here two threads may both
compute a value, which is the same.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801 - the name that everybody knows
        """A property that its first value replaces."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.compute(instance)
            return value


__all__ = ["cached_property"]
