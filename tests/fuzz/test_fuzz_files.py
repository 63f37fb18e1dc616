"""Some calls of the program that makes hostile files; ``make fuzz-files`` makes many."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = 60


@pytest.mark.skipif(not hasattr(os, "fork") or not hasattr(os, "pidfd_open"), reason="needs fork and pidfd of Linux")
def test_hostile_files_are_refused_in_one_line_in_time_and_memory():
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.files", "--calls", str(CALLS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{CALLS} calls, 0 failures; ")
