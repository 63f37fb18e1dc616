"""The commands that need no file: demo and reproduce."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import rich.progress
import typer

from gaussguru import demo as demonstration
from gaussguru.cli.console import AsJson, Force, Quiet, app, check_output, say, show_table, talk, tell
from gaussguru.thesis.run import EXPERIMENTS, Progress
from gaussguru.thesis.run import reproduce as run


@app.command()
def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="HTML", help="Where to write the report.")
    ] = "gaussguru-demo.html",
    force: Force = False,
) -> None:
    """Compare a classifier that uses error bars with classifiers that do not.

    Uses data that ships with scikit-learn, takes less than a minute, and writes a report with pictures.

    Example: gaussguru demo
    """
    check_output(output, force=force)
    demonstration.run(output)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Tables and figures, see --list. Default: all of them.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory for results, tables, figures and a report.")
    ] = "reproduction",
    quick: Annotated[
        bool, typer.Option("--quick", help="Coarse grids and few repeats: minutes instead of half an hour.")
    ] = False,
    data_home: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Directory with the data sets. Default: $GAUSSGURU_DATA, then OpenML."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 for one per core.")] = -1,
    list_them: Annotated[bool, typer.Option("--list", help="Print the names of tables and figures.")] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Recompute the tables and figures of the thesis, beside its printed numbers.

    Results are saved as they are found: if the command is interrupted, run it again and it continues.

    Example: gaussguru reproduce --quick
    """
    talk.quiet = quiet
    if list_them:
        titles = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        if json:
            tell(titles)
        else:
            show_table({"name": list(titles), "what it shows": list(titles.values())})
        return
    with _progress() as progress:
        tables = run(names, output=output, quick=quick, data_home=data_home, n_jobs=jobs, tell=progress)
    if json:
        tell({"output": output, "tables": [asdict(table) for table in tables]})
    else:
        for table in tables:
            print(f"\n{table.title}")
            show_table(dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True)))
            print(table.note)
    say(f"wrote {output}{'/quick' if quick else ''}")


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is: by a bar on a terminal, else by a line for every tenth."""
    if talk.is_terminal and not talk.quiet:
        parts = "BarColumn", "MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn"
        columns = [getattr(rich.progress, part)() for part in parts]
        with rich.progress.Progress(*columns, "{task.description}", console=talk) as bar:
            task = bar.add_task("")
            yield lambda progress: bar.update(
                task, completed=progress.done, total=progress.total, description=progress.last
            )
        return
    tenths = -1

    def tell(progress: Progress) -> None:
        nonlocal tenths
        now = 10 * progress.done // progress.total
        if now > tenths and not talk.quiet:
            tenths = now
            say(f"{progress.done} of {progress.total} done, {progress.reused} found; last: {progress.last}")

    yield tell
