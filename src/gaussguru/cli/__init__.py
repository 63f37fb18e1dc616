"""The ``gaussguru`` command: train, predict and judge robustness on table files; the demo; the thesis again."""

from gaussguru.cli import tables, trials  # noqa: F401 - what registers the commands
from gaussguru.cli.console import BROKEN_PIPE, INTERRUPTED, MENDABLE, NOT_CERTIFIED, TERMINATED, app, main

__all__ = ["BROKEN_PIPE", "INTERRUPTED", "MENDABLE", "NOT_CERTIFIED", "TERMINATED", "app", "main"]
