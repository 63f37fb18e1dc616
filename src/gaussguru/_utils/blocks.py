"""The number of rows that are processed at a time: one memory budget for all temporary arrays."""

# Bytes of the temporary arrays of a thread.
WORKING_BYTES = 32 << 20
# Bytes that stay in the cache of a core.
CACHE_BYTES = 1 << 20
# With this many values a pass over X takes a millisecond: enough to start threads and to avoid copies.
MANY_VALUES = 1_000_000
# The most numbers in stored covariances of all samples, or in their factors: 1 GB.
MOST_STORED = 1 << 27


def rows_at_once(width: float, *, cached: bool = False) -> int:
    """Return the number of rows per block, at least one, for temporary arrays of ``width`` numbers a row."""
    return max(1, int((CACHE_BYTES if cached else WORKING_BYTES) / (8 * max(width, 1))))


def row_blocks(n_rows: int, width: float, *, cached: bool = False) -> list[slice]:
    """Return the slices of the blocks of ``n_rows`` rows, for temporary arrays of ``width`` numbers a row."""
    return row_slices(0, n_rows, rows_at_once(width, cached=cached))


def row_slices(begin: int, end: int, step: int) -> list[slice]:
    """Return slices of at most ``step`` rows, from row ``begin`` to ``end``."""
    return [slice(first, min(end, first + step)) for first in range(begin, end, step)]
