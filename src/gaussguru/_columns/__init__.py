"""Columns of a table: their roles by their names, and values with errors from the numbers in them."""

from gaussguru._columns.conventions import CONVENTIONS, ColumnRoles, column_roles, plain
from gaussguru._columns.measured import Bar, Cells, Columns, may_stand_for_none, stand_ins

__all__ = [
    "CONVENTIONS",
    "Bar",
    "Cells",
    "ColumnRoles",
    "Columns",
    "column_roles",
    "may_stand_for_none",
    "plain",
    "stand_ins",
]
