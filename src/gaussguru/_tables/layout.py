"""Layouts of tables: what a model has to know of the tables that it predicts."""

from dataclasses import dataclass

from gaussguru._errors.columns import Columns


@dataclass(frozen=True)
class Layout(Columns):
    """Columns of a table, with those of labels, weights and groups.

    Parameters
    ----------
    target : str or None
        The column of labels; None for libsvm.
    weights, groups : str or None
        The columns of weights and groups of the rows, which only a fit needs.
    """

    target: str | None = None
    weights: str | None = None
    groups: str | None = None
