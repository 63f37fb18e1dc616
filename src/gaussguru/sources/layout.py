"""Which column of a table means what."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gaussguru.sources.base import Fields


class Layout(NamedTuple):
    """Columns of a table: features, error bars of each (None for exact ones), label and weight."""

    features: list[str]
    errors: list[str | None] | None
    y: str | None
    weight: str | None

    @property
    def used(self) -> list[str]:
        """All columns that are read."""
        errors = [name for name in self.errors or [] if name is not None]
        return [*self.features, *errors, *(name for name in (self.y, self.weight) if name is not None)]


def _error_columns(given: Any, known: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the columns with errors, by feature if ``X_err`` says how their names end, and in their order."""
    if isinstance(given, str):
        pairs = {name: name + given for name in known if name + given in known}
        if not pairs:
            raise ValueError(f"X_err={given!r} must be how the names of columns with errors end; none does: {known!r}")
        return pairs, list(pairs.values())
    if not isinstance(given, list | tuple):
        return {}, []
    if not given or any(name not in known for name in given):
        raise ValueError(f"X_err must name columns of the table, which has {known!r}; got {list(given)!r}")
    return {}, list(given)


def layout_of(columns: Sequence[str], fields: Fields, chosen: Sequence[str] | None) -> Layout:
    """Return what the columns of a table are: ``chosen`` ones, or all that are nothing else, are features."""
    known = list(columns)
    y, weight = _named("y", fields.y, known), _named("sample_weight", fields.weight, known)
    missing = [name for name in chosen or [] if name not in known]
    if missing:
        raise ValueError(f"X must have the columns {missing!r}; the table has {known!r}")
    pairs, bars = _error_columns(fields.X_err, known)
    features = list(chosen or [name for name in known if name not in {y, weight, *bars}])
    if not features:
        others = sorted(name for name in (y, weight) if name is not None)
        raise ValueError(f"the table must have columns besides {others!r}; it has {known!r}")
    if bars and not pairs and len(bars) != len(features):
        raise ValueError(f"X_err must name a column for each of {len(features)} features; got {len(bars)}")
    errors: list[str | None] = [pairs.get(name) for name in features] if pairs else [*bars]
    return Layout(features, errors if bars else None, y, weight)


def _named(argument: str, name: Any, known: list[str]) -> str | None:
    """Return the name of a column, or None of what is no name."""
    if not isinstance(name, str):
        return None
    if name not in known:
        raise ValueError(f"{argument} must be a column of the table, one of {known!r}; got {name!r}")
    return name
