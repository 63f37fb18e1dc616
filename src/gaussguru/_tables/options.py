"""Options that settle what the columns of a table are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from gaussguru._tables.contents import TableError


@dataclass(frozen=True)
class Options:
    """Options that say which columns of a table a model uses, and how."""

    features: Sequence[str] = ()
    drop: Sequence[str] = ()
    drop_doubtful: bool = False
    roles: Sequence[str] = ()
    category: Sequence[str] = ()
    err_pattern: Sequence[str] = ()
    errors: bool = True
    error_factor: float | None = None
    error_level: float | None = None
    missing: str | None = None
    missing_error: str | None = None
    na: Sequence[str] = ()
    log: Sequence[str] = ()
    replicates: Sequence[str] = ()
    weights: str | None = None
    groups: str | None = None

    @cached_property
    def named(self) -> list[tuple[str, str]]:
        """Roles that are given to columns: ("value" or "category", column)."""
        pairs = [(role, column) for role, _, column in (text.partition(":") for text in self.roles)]
        for role, column in pairs:
            if role not in ("value", "category") or not column:
                raise TableError(f"--as must be value:COL or category:COL; got {role + ':' + column!r}")
        return [*pairs, *(("category", column) for column in self.category)]

    def having(self, role: str) -> list[str]:
        """Return the columns that are given a role."""
        return [column for given, column in self.named if given == role]

    @cached_property
    def none(self) -> list[float | str]:
        """Numbers and words that stand for no value."""
        cells = [cell.strip() for text in self.na for cell in str(text).split(",")]
        if not all(cells):
            raise TableError(f"--na must be numbers or words with commas between them, as -9999,---; got {self.na!r}")
        numbers: list[float | str] = []
        for cell in cells:
            try:
                numbers.append(float(cell))
            except ValueError:
                numbers.append(cell)
        return numbers

    @property
    def factor(self) -> float:
        """Factor from stated errors to standard deviations."""
        if self.error_factor is not None and self.error_level is not None:
            raise TableError("--error-factor and --error-level both say the size of errors; leave one out")
        if self.error_level is not None:
            if not 0 < self.error_level < 1:
                raise TableError(f"--error-level must be between 0 and 1, as 0.9; got {self.error_level:g}")
            return 1 / NormalDist().inv_cdf(0.5 + self.error_level / 2)
        factor = 1.0 if self.error_factor is None else self.error_factor
        if not 0 < factor < 1e100:
            raise TableError(f"--error-factor must be a number above 0; got {factor:g}")
        return factor
