"""Passes over X that a fit makes, counted where rows are read."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gaussguru import CollapseWarning
from gaussguru._rows.rows import Rows

KINDS = ("value", "product", "hessian", "errors")


def passes(model, X, y, **more):
    """Return the passes of a fit by what they are for, in units of all rows, and its iterations.

    Rows of other sizes, as those of a span or of a kernel's features, count as what they are read for.
    """
    counted = []
    made = Rows.__init__

    def init(rows, *arguments, **named):
        made(rows, *arguments, **named)
        if rows.root is rows and rows.n_rows == len(y):
            counted.append(rows)

    Rows.__init__ = init
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y, **more)
    finally:
        Rows.__init__ = made
    found = {kind: float(np.round(sum(rows.passes[kind] for rows in counted), 2)) for kind in KINDS}
    return {**found, "iterations": model.n_iter_}
