"""What fuzzers of random problems share: a problem is a frozen dataclass of small fields, and a check raises."""

import argparse
import time
import traceback
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np


class BrokenError(AssertionError):
    """A promise that was not kept."""


def broken(check: Callable[[Any], None], problem: Any) -> str | None:
    """Return what is broken, in one line, or None."""
    try:
        check(problem)
    except BrokenError as error:
        return str(error)
    except Exception as error:  # whatever else is raised is a defect too
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "gaussguru" in frame.filename]
        where = f" in {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else " in the fuzzer"
        return f"{type(error).__name__}{where}: {error}"
    return None


def simplified(problem: Any, valid: Callable[[Any], Any], check: Callable[[Any], None]) -> Any:
    """Return a problem that is broken too and has as many fields as possible at their defaults."""
    for field in fields(problem):
        if field.name != "seed":
            simpler = valid(replace(problem, **{field.name: field.default}))
            if simpler != problem and broken(check, simpler) is not None:
                problem = simpler
    return problem


def shown(problem: Any) -> str:
    """Return the problem as it is written, without what is as usual."""
    parts = [
        f"{field.name}={getattr(problem, field.name)!r}"
        for field in fields(problem)
        if getattr(problem, field.name) != field.default
    ]
    return f"Problem({', '.join(parts)})"


def main(
    about: str | None,
    draw: Callable[[np.random.Generator], Any],
    valid: Callable[[Any], Any],
    check: Callable[[Any], None],
) -> int:
    """Run a fuzzer until its time or its problems are over."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--problems", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--simplify", action="store_true", help="also look for a simpler problem that is broken")
    options = parser.parse_args()
    only = dict(part.split("=", 1) for part in options.only)
    rng = np.random.default_rng(options.seed)
    began, n_problems, n_broken, slowest = time.perf_counter(), 0, 0, 0.0
    while (options.problems is None or n_problems < options.problems) and (
        time.perf_counter() - began < 60 * options.minutes
    ):
        problem = draw(rng)
        wanted = {name: type(getattr(problem, name))(value) for name, value in only.items()}
        problem = valid(replace(problem, **wanted))
        if any(getattr(problem, name) != value for name, value in wanted.items()):
            continue
        n_problems += 1
        start = time.perf_counter()
        trouble = broken(check, problem)
        slowest = max(slowest, time.perf_counter() - start)
        if trouble is not None:
            n_broken += 1
            print(f"{shown(problem)}\n    {trouble}", flush=True)
            if options.simplify:
                simple = simplified(problem, valid, check)
                print(f"    {shown(simple)}\n    {broken(check, simple)}", flush=True)
    minutes = (time.perf_counter() - began) / 60
    print(f"{n_problems} problems in {minutes:.1f} minutes, {n_broken} broken, the slowest took {slowest:.1f} s")
    return int(n_broken > 0)
