"""What the three results tables of the thesis have in common: problems, methods, seeds, printed numbers beside ours."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaussguru.experiments.problems import Problem
from gaussguru.experiments.search import Candidate, Grids, choose
from gaussguru.experiments.store import Key, Store

QUICK_REPEATS = 2
# Raised when what is computed changes, so that older results in a file are not taken for new ones.
PROTOCOL = 1
Search = Callable[[Any, Grids], Iterator[Candidate]]


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Parameters
    ----------
    title : str
    columns : list of str
    rows : list of list of str
    """

    title: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        return "\n".join([f"### {self.title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


@dataclass(frozen=True)
class ResultsTable:
    """A results table of the thesis, to be computed again.

    Parameters
    ----------
    name : str
    title : str
    problems : the rows
    methods : the columns: what yields candidates for a problem, by problem's name
    printed : the thesis's accuracies in per cent by problem, in the order of ``theirs``
    theirs : what the thesis's columns are called
    repeats : seeds for a problem in a full run
    noisy : the methods that are tested under noise as well, where the problem says so
    """

    name: str
    title: str
    problems: dict[str, Problem]
    methods: dict[str, Callable[[str], Search]]
    printed: dict[str, tuple[float, ...]]
    theirs: tuple[str, ...]
    repeats: dict[str, int]
    noisy: tuple[str, ...] = field(default=())

    def cells(self, quick: bool, problems: Any = None, methods: Any = None) -> list[Key]:
        """Return the pieces of work of a run, seed after seed, so that an unfinished run has something to show."""
        chosen = [
            (seed, problem, method)
            for problem in problems or self.problems
            for method in methods or self.methods
            for seed in range(QUICK_REPEATS if quick else self.repeats[problem])
        ]
        return [
            {
                "experiment": self.name,
                "problem": problem,
                "method": method,
                "seed": seed,
                "quick": quick,
                "protocol": PROTOCOL,
            }
            for seed, problem, method in sorted(chosen, key=lambda piece: piece[0])
        ]

    def compute(self, key: Key, data_home: Any = None) -> dict[str, Any]:
        """Return the result of a piece of work."""
        problem = self.problems[key["problem"]]
        split = problem.parts(key["seed"], data_home)
        candidates = self.methods[key["method"]](key["problem"])(split, Grids.of(key["quick"]))
        levels = problem.noise_levels if key["method"] in self.noisy else (0.0,)
        return choose(candidates, split, seed=key["seed"], noise_levels=levels)

    def table(self, store: Store, quick: bool) -> Table:
        """Return the printed numbers beside ours, mean and standard error over the seeds that are done."""
        rows = []
        for name, problem in self.problems.items():
            scores = [self.scores(store, quick, name, method)[:, 0] for method in self.methods]
            printed = [f"{number:g}" for number in self.printed.get(name, ())] or ["-"] * len(self.theirs)
            seeds = {len(score) for score in scores}
            rows.append([problem.title, *printed, *map(_summary, scores), "-".join(str(n) for n in sorted(seeds))])
        columns = ["", *(f"thesis {name}" for name in self.theirs), *self.methods, "seeds"]
        return Table(f"{self.title}: test accuracy (%)", columns, rows)

    def scores(self, store: Store, quick: bool, problem: str, method: str) -> Any:
        """Return test accuracies, shape (n_seeds, n_noise_levels), of the seeds that are done."""
        cells = self.cells(quick, [problem], [method])
        return np.array([result["test"] for _, result in store.matching(cells)]).reshape(
            -1, self._n_levels(problem, method)
        )

    def _n_levels(self, problem: str, method: str) -> int:
        return len(self.problems[problem].noise_levels) if method in self.noisy else 1


def _summary(scores: Any) -> str:
    if not len(scores):
        return "-"
    mean = f"{100 * np.mean(scores):.2f}"
    return mean if len(scores) == 1 else f"{mean} ± {100 * np.std(scores, ddof=1) / np.sqrt(len(scores)):.2f}"
