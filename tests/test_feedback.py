"""What the command says while it works, and what it imports to say little."""

import io
import json
import subprocess
import sys
import time

import pytest
import rich.console

from gaussguru.cli import console


def terminal(monkeypatch, *, is_terminal):
    heard = io.StringIO()
    talk = rich.console.Console(file=heard, force_terminal=is_terminal, width=100)
    monkeypatch.setattr(console, "talk", talk)
    return heard


def test_a_step_shows_its_stage_its_time_and_what_remains(monkeypatch):
    heard = terminal(monkeypatch, is_terminal=True)
    monkeypatch.setattr(console, "SOON", 0.01)
    with console.busy("reading [a file]") as step:
        time.sleep(0.1)
        step.update("reading 10 rows", 0.01)
        time.sleep(0.2)
    text = heard.getvalue()
    assert "reading [a file]" in text
    assert "0:00:00" in text
    assert "reading 10 rows, about " in text
    assert " s left" in text


def test_nothing_remains_to_be_told_of_a_step_that_is_short_or_of_unknown_length(monkeypatch):
    heard = terminal(monkeypatch, is_terminal=True)
    with console.busy("reading") as step:
        for done in (None, 0.0, 0.5, 1.0):
            step.update("rows", done)
        time.sleep(0.2)
    assert "left" not in heard.getvalue()


@pytest.mark.parametrize("is_quiet", [False, True])
def test_nothing_is_shown_without_a_terminal_or_if_quiet(monkeypatch, is_quiet):
    heard = terminal(monkeypatch, is_terminal=is_quiet)
    console.talk.quiet = is_quiet
    with console.busy("reading") as step:
        assert step is None
    assert heard.getvalue() == ""


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["no-such-command"], ["--no-such-option"]])
def test_help_and_wrong_commands_import_nothing_that_takes_time(arguments):
    code = f"""
import json, sys
from gaussguru import cli
code = cli.main({arguments!r})
heavy = {{"numpy", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "skops"}}
print(json.dumps([code, sorted(heavy & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [2 if "no-such" in str(arguments) else 0, []]
