"""All experiments by name, and runs of them: pieces of work in parallel, their results in a file, then pictures.

Every piece is computed once. Results in the file are not computed again, so a killed run continues.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sklearn.utils.parallel import Parallel, delayed

from gaussguru._utils.checks import check_choice
from gaussguru._utils.files import replacing
from gaussguru._utils.types import Directory, Record
from gaussguru.report.page import Report
from gaussguru.thesis import figures, matrix, steps, tangents, variants
from gaussguru.thesis.data import load_usps
from gaussguru.thesis.results import ResultsTable, TextTable
from gaussguru.thesis.store import Key, Store
from gaussguru.thesis.tables import BINARY, KERNEL, MULTICLASS


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the thesis.

    Parameters
    ----------
    title : text in lists and reports
    cells : the pieces of work of a quick or a full run
    compute : computes one piece
    table : makes the table, of an experiment that has one
    draw : makes the figure, of an experiment that has one, from the results and a data directory
    loaders : loaders of its data sets
    """

    title: str
    cells: Callable[[bool], list[Key]] = lambda quick: []
    compute: Callable[[Key, Directory], Record] = lambda key, data_home: {}
    table: Callable[[Store, bool], TextTable] | None = None
    draw: Callable[[Store, bool, Any], Any] | None = None
    loaders: tuple[Callable[..., Any], ...] = ()


def _of_table(table: ResultsTable) -> Experiment:
    title = f"Table: {table.title}"
    return Experiment(title, table.cells, table.compute, table=table.table, loaders=_loaders(table.problems))


def _loaders(names: Iterable[str]) -> tuple[Callable[..., Any], ...]:
    """Return the loaders of the data of some problems."""
    problems = [(BINARY.problems | MULTICLASS.problems)[name] for name in names]
    return tuple({problem.load for problem in problems if not problem.toy})


def _of_noise(title: str, names: tuple[str, ...]) -> Experiment:
    cells = partial(BINARY.cells, problems=names, methods=BINARY.noisy)
    draw = partial(BINARY.draw_noise, names=names)
    return _of_module(title, BINARY, names, cells=cells, draw=draw)


def _of_module(title: str, module: Any, names: Iterable[str] = (), **parts: Any) -> Experiment:
    """Return the experiment of a module, which needs the data of some problems."""
    draw = parts.pop("draw", None) or module.draw
    parts = {"cells": getattr(module, "cells", None), "compute": getattr(module, "compute", None)} | parts
    return Experiment(title, **parts, draw=lambda store, quick, _: draw(store, quick), loaders=_loaders(names))


def _of_figure(draw: Callable[..., Any]) -> Experiment:
    title = (draw.__doc__ or "").split("\n")[0].rstrip(".").replace("``", "")
    return Experiment(title, draw=lambda store, quick, data_home: draw())


EXPERIMENTS: dict[str, Experiment] = {
    "binary": _of_table(BINARY),
    "kernel": _of_table(KERNEL),
    "multiclass": _of_table(MULTICLASS),
    "toy-noise": _of_noise("Chapter 2: resistance to noise, toy problems", ("toy-a", "toy-b")),
    "digit-noise": _of_noise("Chapter 2: resistance to noise, USPS", tangents.PAIRS),
    "variants": _of_module("Chapter 5: M-GURU and M-GURU-S2, loss against updates", variants),
    "steps": _of_module("Chapter 6: a bounded norm, and steps for strong convexity", steps, steps.PROBLEMS),
    "tangents": _of_module(
        "Chapter 6: images that are turned and moved, noise along their tangents", tangents, tangents.PAIRS
    ),
    "open": _of_module(
        "Chapters 1 and 6: every adversary against every corruption", matrix, BINARY.problems, table=matrix.table
    ),
    "digits": replace(
        _of_figure(figures.digits), draw=lambda _, __, data_home: figures.digits(data_home), loaders=(load_usps,)
    ),
    **{name: _of_figure(draw) for name, draw in figures.FIGURES.items()},
}


@dataclass(frozen=True)
class Progress:
    """The progress of a run: finished pieces, all pieces, pieces finished before the run, and the last one."""

    done: int
    total: int
    reused: int
    last: str


def reproduce(
    names: Any = None,
    *,
    output: str | os.PathLike[str] = "reproduction",
    quick: bool = False,
    data_home: Directory = None,
    n_jobs: int | None = -1,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> list[TextTable]:
    """Compute tables and figures of the thesis again.

    The directory ``output`` receives ``results.jsonl``, a line for each finished piece of work. It, or for quick runs
    its folder ``quick``, also receives Markdown for each table, a PNG for each figure, and ``report.html`` if all are
    computed.

    Parameters
    ----------
    names : sequence of str, default=None
        Keys of ``EXPERIMENTS``; None: all.
    output : path, default="reproduction"
        A directory. Results that are there are not computed again.
    quick : bool, default=False
        Few values of the grids, few epochs, and one repeat, of toys two.
    data_home : path, default=None
        See :func:`load_usps`.
    n_jobs : int, default=-1
        Processes; -1: one for each core.
    tell : callable
        Called with a ``Progress`` (``done``, ``total``, ``reused``, ``last``) after every piece and picture.

    Returns
    -------
    list of TextTable
        Each has ``title``, ``columns``, ``rows``, ``note`` and ``markdown()``.
    """
    experiments = {name: EXPERIMENTS[check_choice("names", name, EXPERIMENTS)] for name in names or EXPERIMENTS}
    _load_all(experiments.values(), data_home)
    directory = Path(output)
    with Store(directory / "results.jsonl") as store:
        # Figures of noise show results of a table: two experiments may share a piece.
        work = {str(key): (name, key) for name, each in experiments.items() for key in each.cells(quick)}
        # Sorted by seed, so that an unfinished run has results of every experiment.
        missing = [piece for piece in work.values() if piece[1] not in store]
        missing.sort(key=lambda piece: piece[1]["seed"])
        total, reused = len(work) + len(experiments), len(work) - len(missing)
        tell(Progress(reused, total, reused, "earlier results"))
        jobs = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        computed = jobs(delayed(_timed)(name, key, data_home) for name, key in missing)
        for done, (key, result, seconds) in enumerate(computed, start=reused + 1):
            store.add(key, result, seconds=round(seconds, 3))
            tell(Progress(done, total, reused, " ".join(str(part) for part in list(key.values())[:3])))
        shown = directory / "quick" if quick else directory
        shown.mkdir(exist_ok=True)
        report = Report("Gaussian robust classification: tables and figures of the thesis, computed again")
        tables = []
        for done, (name, experiment) in enumerate(experiments.items(), start=len(work) + 1):
            report.heading(experiment.title)
            if experiment.table:
                table = experiment.table(store, quick)
                tables.append(table)
                with replacing(shown / f"{name}.md") as file:
                    file.write(table.markdown().encode())
                report.table(table.columns, table.rows, caption=f"{table.title} ({table.note})")
            if experiment.draw:
                figure = experiment.draw(store, quick, data_home)
                with replacing(shown / f"{name}.png") as file:
                    figure.savefig(file, format="png", dpi=150)
                report.figure(figure, caption=experiment.title)
            tell(Progress(done, total, reused, name))
        if len(experiments) == len(EXPERIMENTS):
            report.save(shown / "report.html")
    return tables


def _load_all(experiments: Iterable[Experiment], data_home: Directory) -> None:
    """Load all data sets, so that a missing one is an error now, and not in half an hour."""
    for load in {load for experiment in experiments for load in experiment.loaders}:
        load(data_home=data_home)


def _timed(name: str, key: Key, data_home: Directory) -> tuple[Key, Record, float]:
    began = time.perf_counter()
    result = EXPERIMENTS[name].compute(key, data_home)
    return key, result, time.perf_counter() - began
