"""The page of all tables of the benchmarks, from benchmarks/results."""

import sys
from pathlib import Path


def append_tables(app, docname, source):
    """Put the tables behind the text of the page."""
    if docname == "benchmark_tables":
        sys.path.insert(0, str(Path(app.config.repository_root) / "benchmarks"))
        from tables import RESULTS, all_tables  # noqa: PLC0415

        for path in RESULTS.glob("*.json"):
            app.env.note_dependency(str(path))
        source[0] += "\n" + all_tables()


def setup(app):
    app.connect("source-read", append_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
