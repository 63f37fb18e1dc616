"""The commands that need no file: demo and reproduce."""

from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any

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
        list[str] | None,
        typer.Argument(metavar="NAME", help="Tables and figures, see --list. Default: all of them."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory for results, tables, figures and a report.")
    ] = "reproduction",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Coarse grids and few repeats: minutes instead of half an hour."),
    ] = False,
    data_home: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Directory with the data sets. Default: $GAUSSGURU_DATA, then OpenML.",
        ),
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


def _progress() -> Any:
    """Return what shows how far a run is: a bar on a terminal, else a line for every tenth."""
    if talk.quiet:
        return nullcontext(lambda progress: None)
    return _ProgressBar() if talk.is_terminal else nullcontext(_ProgressLines())


class _ProgressBar:
    def __enter__(self) -> Any:
        self.bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TimeRemainingColumn(),
            rich.progress.TextColumn("{task.description}"),
            console=talk,
        )
        self.task = self.bar.add_task("")
        self.bar.start()
        return self.show

    def show(self, progress: Progress) -> None:
        self.bar.update(self.task, completed=progress.done, total=progress.total, description=progress.last)

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()


class _ProgressLines:
    def __init__(self) -> None:
        self.tenths = -1

    def __call__(self, progress: Progress) -> None:
        tenths = 10 * progress.done // progress.total
        if tenths > self.tenths:
            self.tenths = tenths
            say(f"{progress.done} of {progress.total} done, {progress.reused} found; last: {progress.last}")
