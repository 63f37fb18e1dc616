"""The ``gaussguru`` command: train, predict and judge robustness on table files; the demo; the thesis again."""

import importlib
from types import ModuleType

from gaussguru.cli.console import MODULES, ExitCode, app, load, main

__all__ = ["ExitCode", "app", "load", "main"]


def __getattr__(name: str) -> ModuleType:
    if name in MODULES:
        return importlib.import_module(f"gaussguru.cli.{name}")
    raise AttributeError(f"module 'gaussguru.cli' has no attribute {name!r}")
