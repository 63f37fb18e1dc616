"""How many rows are worked on at a time: one budget of memory for all that is made from some rows and then dropped."""

# Bytes of numbers that are held at a time: work for a thread, and a small part of memory for each.
WORKING_BYTES = 32 << 20
# Bytes that stay in the cache of a core while they are read twice.
CACHE_BYTES = 1 << 20
# From so many values on a pass over X takes a millisecond: threads are worth starting, and copies worth saving.
MANY_VALUES = 1_000_000
# The most numbers of covariances, or of their factors, that are kept for all samples of a fit: 1 GB.
MOST_STORED = 1 << 27


def rows_at_once(width: float, *, cached: bool = False) -> int:
    """Return how many rows are worked on at a time, at least one, where so many numbers are held for each."""
    return max(1, int((CACHE_BYTES if cached else WORKING_BYTES) / (8 * max(width, 1))))


def row_blocks(n_rows: int, width: float, *, cached: bool = False) -> list[slice]:
    """Return slices of so many rows."""
    step = rows_at_once(width, cached=cached)
    return [slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]
