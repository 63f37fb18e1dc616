"""Results tables of the thesis: problems, methods and seeds; the printed numbers with the recomputed ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Axes, Directory, Figure, Record
from gaussguru.plotting import style
from gaussguru.thesis.problems import ThesisProblem
from gaussguru.thesis.search import Grids, Search, choose
from gaussguru.thesis.store import Key, Store, make_key


@dataclass(frozen=True)
class TextTable:
    """Text in rows and columns.

    Parameters
    ----------
    title : str
    columns : list of str
    rows : list of list of str
    note : str
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        text = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([f"### {self.title}", "", *text, "", self.note.replace("*", r"\*"), ""])


@dataclass(frozen=True)
class ResultsTable:
    """A results table of the thesis, to be computed again.

    Parameters
    ----------
    name : str
    title : str
    problems : the rows
    methods : the columns: functions from the name of a problem to its search for candidates
    printed : the thesis's accuracies in per cent by problem, in the order of ``theirs``
    theirs : names of the columns of the thesis
    repeats : seeds for a problem in a full run
    noisy : the methods that are also tested at the noise levels of the problem
    """

    name: str
    title: str
    problems: dict[str, ThesisProblem]
    methods: dict[str, Callable[[str], Search]]
    printed: dict[str, tuple[float, ...]]
    theirs: tuple[str, ...]
    repeats: dict[str, int]
    noisy: tuple[str, ...] = ()

    def cells(self, quick: bool, problems: Any = None, methods: Any = None) -> list[Key]:
        """Return the pieces of work of a run, by seed, so that an unfinished run has results for every method."""
        chosen = [
            (seed, problem, method)
            for problem in problems or self.problems
            for method in methods or self.methods
            for seed in range((2 if self.problems[problem].toy else 1) if quick else self.repeats[problem])
        ]
        return [
            make_key(self.name, problem=problem, method=method, seed=seed, quick=quick)
            for seed, problem, method in sorted(chosen, key=lambda piece: piece[0])
        ]

    def compute(self, key: Key, data_home: Directory = None) -> Record:
        """Return the result of a piece of work."""
        problem = self.problems[key["problem"]]
        split = problem.parts(key["seed"], data_home)
        candidates = self.methods[key["method"]](key["problem"])(split, Grids.of(key["quick"]))
        levels = problem.noise_levels if key["method"] in self.noisy else (0.0,)
        return choose(candidates, split, seed=key["seed"], noise_levels=levels)

    def table(self, store: Store, quick: bool) -> TextTable:
        """Return the printed and the recomputed numbers: mean and standard error over the finished seeds."""
        rows = []
        for name, problem in self.problems.items():
            printed = [f"{number:g}" for number in self.printed.get(name, ())] or ["-"] * len(self.theirs)
            done = [self._done(store, quick, name, method) for method in self.methods]
            seeds = sorted({len(results) for results in done})
            rows.append([problem.title, *printed, *map(_summary, done), "-".join(map(str, seeds))])
        columns = ["", *(f"thesis {name}" for name in self.theirs), *self.methods, "seeds"]
        note = "* for some seeds, the chosen fit had stopped before it reached its tolerance"
        return TextTable(f"{self.title}: test accuracy (%)", columns, rows, note)

    def _done(self, store: Store, quick: bool, problem: str, method: str) -> list[Record]:
        return [result for _, result in store.matching(self.cells(quick, [problem], [method]))]

    def scores(self, store: Store, quick: bool, problem: str, method: str) -> Array:
        """Return test accuracies of the finished seeds, (n_seeds, n_noise_levels)."""
        n_levels = len(self.problems[problem].noise_levels) if method in self.noisy else 1
        done = self._done(store, quick, problem, method)
        return np.array([result["test"] for result in done]).reshape(-1, n_levels)

    def draw_noise(self, store: Store, quick: bool, names: tuple[str, ...]) -> Figure:
        """Return a figure of accuracy against the width of the noise on validation and test samples, by problem.

        At noise 0 they are the numbers of the table.
        """
        figure = style.figure(len(names))
        for ax, name in zip(figure.axes, names, strict=True):
            problem = self.problems[name]
            for number, method in enumerate(self.noisy):
                scores = self.scores(store, quick, name, method)
                look = style.line_of(number, markers=True)
                draw_accuracy(ax, problem.noise_levels, scores, label=method, **look)
            title = f"{problem.title}, {len(scores)} repeats"
            style.finish(ax, "noise $x$: $U(-x, x)$ on every feature", "test accuracy (%)", title, legend=False)
        figure.axes[-1].legend(fontsize=style.SMALL)
        return figure


def draw_accuracy(ax: Axes, levels: tuple[float, ...], scores: Array, **look: Any) -> None:
    """Draw mean accuracy in per cent and its standard error against levels, of (n_seeds, n_levels)."""
    scores = 100 * scores
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else None
    ax.errorbar(levels, scores.mean(axis=0), error, capsize=2, **look)


def _summary(results: list[Record]) -> str:
    """Return mean and standard error without noise as text, with a star if a chosen fit did not converge."""
    if not results:
        return "-"
    scores = 100 * np.array([result["test"][0] for result in results])
    star = "" if all(result["converged"][0] for result in results) else " *"
    error = f" ± {scores.std(ddof=1) / np.sqrt(len(scores)):.2f}" if len(scores) > 1 else ""
    return f"{scores.mean():.2f}{error}{star}"
