"""Which column of a table means what."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gaussguru._errors.columns import Bar, Cells, Columns
from gaussguru._errors.conventions import column_roles, named_as_errors
from gaussguru._utils.frames import as_numbers
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import MixedArray
from gaussguru.sources.base import Fields


class SourceLayout(NamedTuple):
    """Columns of a table: features with their errors, label and weight."""

    columns: Columns
    y: str | None
    weight: str | None

    @property
    def features(self) -> list[str]:
        """Columns of values."""
        return self.columns.values

    @property
    def has_errors(self) -> bool:
        """Whether errors are read."""
        return self.columns.has_errors

    @property
    def used(self) -> list[str]:
        """All columns that are read."""
        return [*self.columns.numbers, *(name for name in (self.y, self.weight) if name is not None)]

    def errors(self, column: Mapping[str, MixedArray], number: int) -> tuple[Array, Array]:
        """Return values and errors of a partition, from its columns."""
        cells = Cells(f"partition {number}")
        numbers = np.column_stack([as_numbers(column[name], name) for name in self.columns.numbers])
        X, X_err = self.columns.measured(numbers, {}, cells)
        cells.check()
        assert isinstance(X_err, np.ndarray)
        return X, X_err


def _by_convention(convention: str, known: list[str], features: Sequence[str] | None) -> Columns:
    """Return features and their errors by a convention of names."""
    roles = column_roles(known, convention=convention, values=features or ())
    named = roles.columns(features or known)
    if not named.errors:
        raise ValueError(f"X_err={convention!r} must fit the names of columns with errors; it fits none of {known!r}")
    if roles.limits or (roles.doubtful and not features):
        columns = [*(column for column, _ in roles.limits.values()), *roles.doubtful]
        raise ValueError(f"columns=[...] must name the features: {columns!r} may be limits or errors, of {known!r}")
    if named.correlations:
        raise ValueError(
            f"X_err must name the columns of errors, X_err=[...], to leave out correlations such as "
            f"{named.correlations[0][2]!r}, which are for tables in memory"
        )
    return named


def _by_columns(given: Sequence[str], known: list[str], features: Sequence[str] | None) -> Columns:
    """Return features and their errors, which are in the columns ``given``."""
    if not given or any(name not in known for name in given):
        raise ValueError(f"X_err must name columns of the table, which has {known!r}; got {list(given)!r}")
    values = list(features or [name for name in known if name not in given])
    if len(given) != len(values):
        raise ValueError(f"X_err must name a column for each of {len(values)} features; got {len(given)}")
    meant = {column: name for name, bar in column_roles(known).errors.items() for column in bar.columns}
    for name, column in zip(values, given, strict=True):
        if (other := meant.get(column, name)) != name and other in values:
            raise ValueError(
                f"X_err must name columns of errors in the order of the features, {values!r}; got {column!r} for "
                f"{name!r}, which is named as the errors of {other!r}"
            )
    return Columns(values, {name: Bar("sigma", [column]) for name, column in zip(values, given, strict=True)})


def layout_of(columns: Sequence[str], fields: Fields, chosen: Sequence[str] | None) -> SourceLayout:
    """Return what the columns of a table are: ``chosen`` ones, or all that are nothing else, are features."""
    known = list(columns)
    y, weight = _named("y", fields.y, known), _named("sample_weight", fields.weight, known)
    missing = [name for name in chosen or [] if name not in known]
    if missing:
        raise ValueError(f"X must have the columns {missing!r}; the table has {known!r}")
    others = {name for name in (y, weight) if name is not None}
    free, errors = [name for name in known if name not in others], fields.X_err
    if isinstance(errors, str):
        features = _by_convention(errors, free, chosen)
    elif isinstance(errors, list | tuple):
        features = _by_columns(errors, free, chosen)
    else:
        features = Columns(list(chosen or free), missing="error")
        if errors is None and (named := named_as_errors(features.values)):
            raise ValueError(
                f"X has columns that are named as the errors of others, {named[:3]!r}: X_err must name them, as in "
                'X_err="auto", or columns=[...] the features alone; to use them as features, rename them'
            )
    if not features.values:
        raise ValueError(f"the table must have columns besides {sorted(others)!r}; it has {known!r}")
    return SourceLayout(features, y, weight)


def _named(argument: str, name: object, known: list[str]) -> str | None:
    """Return the name of a column, or None of what is no name."""
    if not isinstance(name, str):
        return None
    if name not in known:
        raise ValueError(f"{argument} must be a column of the table, one of {known!r}; got {name!r}")
    return name
