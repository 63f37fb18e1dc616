"""M-GURU against M-GURU-S2 on Toy-3: the loss against the number of updates (thesis, chapter 5)."""

import numpy as np

from gaussguru import GuruClassifier
from gaussguru._utils.types import Directory, Figure, Record
from gaussguru.plotting import style
from gaussguru.thesis.store import Key, Store
from gaussguru.thesis.toys import make_gaussian_ring

SOLVERS = {"M-GURU": "sgd", "M-GURU-S2": "sgd2"}
N_CLASSES = 3
# An update is one of one weight vector: a step of M-GURU makes as many as there are classes, one of S2 makes one.
UPDATES = np.unique(np.geomspace(6, 30_000, 40).astype(int) // N_CLASSES * N_CLASSES)


def cells(quick: bool) -> list[Key]:
    """Return the pieces of work: a descent of each variant for every seed."""
    return [
        {"experiment": "variants", "method": method, "seed": seed}
        for seed in range(3 if quick else 10)
        for method in SOLVERS
    ]


def compute(key: Key, data_home: Directory = None) -> Record:
    """Return ``F / F* - 1`` after so many updates, each on a random sample."""
    X, y = make_gaussian_ring(200, n_classes=N_CLASSES, random_state=key["seed"])
    best = GuruClassifier(1.0).fit(X, y).objective_
    model = GuruClassifier(1.0, solver=SOLVERS[key["method"]], eta0=0.1, random_state=key["seed"])
    rng = np.random.default_rng(key["seed"])
    steps = UPDATES // (N_CLASSES if key["method"] == "M-GURU" else 1)
    excess = []
    for n in np.diff(steps, prepend=0):
        drawn = rng.integers(0, len(y), n)
        model.partial_fit(X[drawn], y[drawn], classes=range(N_CLASSES))
        excess.append(model.certificate(X, y).primal / best - 1)
    return {"updates": UPDATES.tolist(), "excess": excess}


def draw(store: Store, quick: bool) -> Figure:
    """Return a figure of both variants, mean over the seeds, on a linear and on a logarithmic scale."""
    figure = style.figure(2)
    for number, method in enumerate(SOLVERS):
        results = [result for key, result in store.matching(cells(quick)) if key["method"] == method]
        excess = np.mean([result["excess"] for result in results], axis=0)
        for ax in figure.axes:
            ax.plot(UPDATES, excess, label=method, **style.line_of(number))
    linear, logarithmic = figure.axes
    linear.set(xlim=(0, 3000), ylim=(0, None))
    logarithmic.set(xscale="log", yscale="log")
    for ax in figure.axes:
        style.finish(ax, "updates of a weight vector", "loss above the least, relative", None, legend=False)
    linear.legend(fontsize=style.SMALL)
    figure.suptitle(f"Toy-3, mean of {len(results)} runs", fontsize=style.TITLE)
    return figure
