"""All experiments by name, and a run of some: pieces of work in parallel, their results in a file, then pictures.

Every piece is computed once. What a run finds in the file of results it does not compute again, so that a run that was
killed goes on where it was.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sklearn.utils.parallel import Parallel, delayed

from gaussguru import datasets
from gaussguru.experiments import figures, noise, variants
from gaussguru.experiments.binary import BINARY
from gaussguru.experiments.kernel import KERNEL
from gaussguru.experiments.multiclass import MULTICLASS
from gaussguru.experiments.results import ResultsTable, Table
from gaussguru.experiments.store import Key, Store
from gaussguru.report import Report
from gaussguru.validation import check_choice


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the thesis.

    Parameters
    ----------
    title : what it shows
    cells : the pieces of work of a quick or a full run
    compute : what computes one of them
    table : makes the table of a run, if it is one
    draw : makes the figure, if it is one, from the results and a data directory
    loaders : of the data sets that it needs
    """

    title: str
    cells: Callable[[bool], list[Key]] = lambda quick: []
    compute: Callable[[Key, Any], Any] = lambda key, data_home: None
    table: Callable[[Store, bool], Table] | None = None
    draw: Callable[[Store, bool, Any], Any] | None = None
    loaders: tuple[Callable[..., Any], ...] = ()


def _of_table(table: ResultsTable) -> Experiment:
    return Experiment(
        f"Table: {table.title}", table.cells, table.compute, table=table.table, loaders=_loaders(table.problems)
    )


def _loaders(problems: Any) -> tuple[Callable[..., Any], ...]:
    return tuple({problem.load for problem in problems.values() if not problem.toy})


def _of_noise(title: str, names: tuple[str, ...]) -> Experiment:
    return Experiment(
        title,
        partial(BINARY.cells, problems=names, methods=BINARY.noisy),
        BINARY.compute,
        draw=lambda store, quick, data_home: noise.draw(store, quick, names),
        loaders=_loaders({name: BINARY.problems[name] for name in names}),
    )


def _of_figure(draw: Callable[..., Any]) -> Experiment:
    title = (draw.__doc__ or "").split("\n")[0].rstrip(".").replace("``", "")
    loaders = (datasets.load_usps,) if draw is figures.digits else ()
    return Experiment(title, draw=lambda store, quick, data_home: draw(data_home), loaders=loaders)


EXPERIMENTS: dict[str, Experiment] = {
    "binary": _of_table(BINARY),
    "kernel": _of_table(KERNEL),
    "multiclass": _of_table(MULTICLASS),
    "toy-noise": _of_noise("Chapter 2: resistance to noise, toy problems", noise.TOYS),
    "digit-noise": _of_noise("Chapter 2: resistance to noise, USPS", noise.DIGITS),
    "variants": Experiment(
        "Chapter 5: M-GURU and M-GURU-S2, loss against updates",
        variants.cells,
        variants.compute,
        draw=lambda store, quick, data_home: variants.draw(store, quick),
    ),
    **{name: _of_figure(draw) for name, draw in figures.FIGURES.items()},
}


@dataclass(frozen=True)
class Progress:
    """How far a run is: pieces done, in all, and found done when it began; and what was done last."""

    done: int
    total: int
    found: int
    last: str


def reproduce(
    names: Any = None,
    *,
    output: str | os.PathLike[str] = "reproduction",
    quick: bool = False,
    data_home: Any = None,
    n_jobs: int | None = -1,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> list[Table]:
    """Compute tables and figures of the thesis again.

    Into ``output`` go ``results.jsonl``, a line for each piece of work as it is done, ``tables.md``, a PNG for each
    figure, and ``report.html`` with all of them.

    Parameters
    ----------
    names : sequence of str, default=None
        Keys of ``EXPERIMENTS``; None: all.
    output : path, default="reproduction"
        A directory. Results that are there are not computed again.
    quick : bool, default=False
        Few values of the grids, and two repeats.
    data_home : path, default=None
        See :mod:`gaussguru.datasets`.
    n_jobs : int, default=-1
        Processes; -1: one for each core.
    tell : callable, default=None
        Called with a :class:`Progress` after every piece and picture.

    Returns
    -------
    list of Table
    """
    experiments = {name: EXPERIMENTS[check_choice("names", name, EXPERIMENTS)] for name in names or EXPERIMENTS}
    for load in {load for experiment in experiments.values() for load in experiment.loaders}:
        load(data_home=data_home)  # what is not there should be missed now, not in half an hour
    directory = Path(output)
    with Store(directory / "results.jsonl") as store:
        # Figures of noise show what a table is made of: the same piece may be asked for twice.
        work = {str(key): (name, key) for name, each in experiments.items() for key in each.cells(quick)}
        missing = [(name, key) for name, key in work.values() if key not in store]
        total, found = len(work) + len(experiments), len(work) - len(missing)
        tell(Progress(found, total, found, "what was there already"))
        jobs = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        computed = jobs(delayed(_timed)(name, key, data_home) for name, key in missing)
        for done, (key, result, seconds) in enumerate(computed, start=found + 1):
            store.add(key, result, seconds=round(seconds, 3))
            tell(Progress(done, total, found, " ".join(str(part) for part in list(key.values())[:3])))
        tables, report = [], Report("Gaussian robust classification: tables and figures of the thesis, computed again")
        for done, (name, experiment) in enumerate(experiments.items(), start=len(work) + 1):
            report.heading(experiment.title)
            if experiment.table:
                tables.append(experiment.table(store, quick))
                report.table(tables[-1].columns, tables[-1].rows, caption=tables[-1].title)
            if experiment.draw:
                figure = experiment.draw(store, quick, data_home)
                _write(directory / f"{name}.png", partial(figure.savefig, format="png", dpi=150))
                report.figure(figure, caption=experiment.title)
            tell(Progress(done, total, found, name))
        if tables:
            text = "\n".join(table.markdown() for table in tables)
            _write(directory / "tables.md", lambda path: path.write_text(text, encoding="utf-8"))
        report.save(directory / "report.html")
    return tables


def _timed(name: str, key: Key, data_home: Any) -> tuple[Key, Any, float]:
    began = time.perf_counter()
    result = EXPERIMENTS[name].compute(key, data_home)
    return key, result, time.perf_counter() - began


def _write(path: Path, save: Callable[[Path], Any]) -> None:
    """Write a file beside the one that is there, and put it in its place when it is whole."""
    part = path.with_suffix(".part")
    save(part)
    part.replace(path)
