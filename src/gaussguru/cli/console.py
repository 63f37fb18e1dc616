"""What all commands share: the application, its talk and its exit codes.

Data goes to files or standard output, all talk to standard error. Commands are functions registered with
``@app.command``; they raise ValueError or OSError for what the user can mend, and :func:`main` turns that into one line
and an exit code. Their modules, which import much, are imported when one of their commands is to run.
"""

import ast
import importlib
import io
import json
import math
import os
import pkgutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import rich.box
import rich.console
import rich.progress
import rich.table
import typer

import gaussguru


class ExitCode(IntEnum):
    """Exit codes of the command besides 0; 1 is a bug."""

    MENDABLE = 2
    NOT_CERTIFIED = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


# Seconds of a step before the time that remains is told.
SOON = 2

# Modules of this package that register commands.
MODULES = ("tables", "predictions", "trials")

SETTINGS: dict[str, Any] = {
    "name": "gaussguru",
    "help": "Classification of tables whose columns have measurement errors.",
    "epilog": "Exit codes: 0 done, 1 a bug, 2 something to mend (one line says what), 3 a fit that is not proven "
    "optimal, or not at an optimum where nothing can be proven (its model is written), 130 interrupted, 143 "
    "terminated.",
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}
app = typer.Typer(**SETTINGS)
# What the command was given, to be said again with more options.
given_arguments: list[str] = []
talk = rich.console.Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


# Options of most commands.
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


class Terminated(KeyboardInterrupt):
    """SIGTERM: everything is left as after Ctrl-C."""


def _terminate(*_: Any) -> None:
    raise Terminated


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    arguments : list of str
        What follows the name of the command.

    Returns
    -------
    int
        0, or 1 to 255 as ``gaussguru --help`` says.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started the command; it has nothing to say, or hears nothing
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  for as long as the command runs
    command = typer.main.get_command(load(arguments))
    usage_error: Any = typer.BadParameter.__bases__[0]  # of click, which newer versions of typer have inside
    talk.quiet = False
    given_arguments[:] = arguments
    caught: dict[str, None] = {}
    # Other threads get no signals, and a program that handles or ignores this one goes on to do so.
    is_first = threading.current_thread() is threading.main_thread()
    is_free = is_first and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_free:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings(), command.make_context("gaussguru", arguments or ["--help"]) as context:
            # At the end, each once: a command that fails says one line.
            warnings.showwarning = lambda message, *_, **__: caught.setdefault(str(message))
            warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about arrays that no user knows
            command.invoke(context)
        warn(caught)
        sys.stdout.flush()
        return 0
    except typer.Exit as done:
        warn(caught)
        return int(done.exit_code)
    except Terminated:
        return _fail("terminated", ExitCode.TERMINATED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read has seen enough. Nothing is left to be written at the end, which would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except usage_error as error:
        return _fail(error.format_message() or "see gaussguru --help", ExitCode.MENDABLE)
    except MemoryError as error:
        # What takes less memory, by the command that had too little.
        fewer = "fewer columns take less (--features, --drop)"
        advice = {
            "fit": f"{fewer}, and so do --model linear, or --components with --kernel; a table in several files of CSV "
            "or Parquet is read in parts",
            "path": fewer,
            "evaluate": "without --report the rows are read in parts",
        }
        details = filter(None, [str(error), advice.get(arguments[0])])
        return _fail("; ".join(["memory ran out", *details]), ExitCode.MENDABLE)
    except (ValueError, OSError) as error:
        return _fail(str(error) or type(error).__name__, ExitCode.MENDABLE)
    finally:
        if is_free:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def load(arguments: list[str]) -> typer.Typer:
    """Return the application with the command that the arguments begin with, or one that knows names and help only."""
    listing = typer.Typer(**SETTINGS)
    for name, (module, help_text) in _documented().items():
        if arguments[:1] == [name]:
            importlib.import_module(module)
            return app
        listing.command(name, help=help_text)(lambda: None)
    listing.callback()(common)
    return listing


def _documented() -> dict[str, tuple[str, str]]:
    """Return the module and the docstring of every command, from the source of the modules."""
    commands = {}
    for module in MODULES:
        for node in ast.parse(pkgutil.get_data(__package__, f"{module}.py") or b"").body:
            if isinstance(node, ast.FunctionDef) and "app.command()" in map(ast.unparse, node.decorator_list):
                commands[node.name] = f"{__package__}.{module}", ast.get_docstring(node) or ""
    return commands


def _fail(message: str, code: int) -> int:
    talk.quiet = False
    say("gaussguru: " + message)
    return code


def say(message: str) -> None:
    """Tell the user something, on standard error, in one line of bounded length without control characters."""
    if len(message) > 1000:  # files may have names, labels and values of any length
        message = message[:666] + " ... " + message[-250:]
    line = " ".join(message.split())
    talk.print("".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in line))


def warn(messages: Iterable[str]) -> None:
    """Pass on what the library warns of."""
    for message in messages:
        say(f"warning: {message}")


def check_output(path: str, *, force: bool) -> None:
    """Raise before any work if a file cannot be written."""
    from gaussguru._tables.contents import TableError
    from gaussguru._tables.files import check_writable

    if os.path.isfile(path) and not force:
        raise TableError(f"{path} exists; give --force to replace it")
    check_writable(path, force=True)


class Step:
    """A line on the terminal about a step that takes long: its stage, the time it took, and the time that remains."""

    def __init__(self, progress: Any, what: str) -> None:
        self._progress, self._task, self._begin = progress, progress.add_task(what, total=None), time.monotonic()

    def update(self, what: str, done: float | None = None) -> None:
        """Show a stage, and the time that remains, where it is known how much is done, from 0 to 1."""
        elapsed = time.monotonic() - self._begin
        if done and done < 1 and elapsed > SOON:
            what += f", about {elapsed * (1 / done - 1):.0f} s left"
        self._progress.update(self._task, description=what)


@contextmanager
def busy(what: str) -> Iterator[Step | None]:
    """Show a step, and the time it took so far, on a terminal and nowhere else."""
    if talk.quiet or not talk.is_terminal:
        yield None
        return
    columns = rich.progress.SpinnerColumn(), rich.progress.TextColumn("{task.description}", markup=False)
    with rich.progress.Progress(*columns, rich.progress.TimeElapsedColumn(), console=talk, transient=True) as progress:
        yield Step(progress, what)


def count(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tell(result: dict[str, Any]) -> None:
    """Print a result as JSON; what is not finite is null."""
    print(json.dumps(_plain(result), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say_table(columns: dict[str, list[Any]]) -> None:
    """Tell the user a small table, on standard error."""
    for line in _table(columns, is_terminal=talk.is_terminal).splitlines():
        talk.print(line.rstrip())


def show_table(columns: dict[str, list[Any]]) -> None:
    """Print a small table for people to standard output, numbers to the right and words to the left."""
    print(_table(columns, is_terminal=sys.stdout.isatty()), end="")


def _table(columns: dict[str, list[Any]], *, is_terminal: bool) -> str:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD if is_terminal else None, pad_edge=False)
    for name, values in columns.items():
        words = any(isinstance(value, str) and value[:1].isalpha() for value in values)
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(cell, row))
    # Wide enough for any: a line that is wrapped can be read, one that is cut cannot.
    text = io.StringIO()  # rich itself would take a reader that has seen enough for a failure
    console = rich.console.Console(file=text, highlight=False, markup=False, emoji=False, soft_wrap=True, width=1000)
    console.print(table)
    return text.getvalue()


def cell(value: Any) -> str:
    """Return how a table shows a value."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"gaussguru {gaussguru.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Classification of tables whose columns carry measurement noise."""
