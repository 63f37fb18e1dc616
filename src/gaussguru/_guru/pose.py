"""From checked samples and a model to a problem that solvers compute with, and back.

Solvers work in units in which nothing overflows and few digits are lost: sample weights are multiplied by a power of 2
that makes them add up to about their number, X by one where its values are so large or so small that their squares
overflow, and features that are far from the origin are shifted there if there is an intercept. Classes of more than two
are numbered from the lightest to the heaviest. :class:`Posed` undoes all of that.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gaussguru._errors.forms import Errors
from gaussguru._errors.independent import PerSample
from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.problems.axis import AxisBinary
from gaussguru._guru.problems.ball import Ball
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.problems.measured import MeasuredPairs
from gaussguru._guru.problems.multiclass import Multiclass
from gaussguru._guru.problems.sets import Ellipsoids, Moved, Sets
from gaussguru._guru.solvers.result import Result
from gaussguru._rows.rows import Block, Rows
from gaussguru._rows.validation import Samples
from gaussguru._utils.blocks import MANY_VALUES
from gaussguru._utils.linalg import EPS, Array, Index, Intercept
from gaussguru._utils.types import BlockMap, MixedArray, Values
from gaussguru.losses import Loss
from gaussguru.noise import Noise, PerFeature

# A feature is far from the origin if its mean is more than FAR times its spread, both estimated, like the unit of X,
# from about FEW samples.
FAR, FEW = 100.0, 1000


@dataclass(frozen=True)
class Objective:
    """The objective: loss, noise (None for exact samples), ridge, and whether there is an intercept."""

    loss: Loss
    noise: Noise | None
    l2: float
    fit_intercept: bool


class Posed(NamedTuple):
    """A problem in the units of its solver.

    ``x`` and ``s`` are the factors of X and of the weights, after ``shift`` was subtracted from every sample. ``order``
    has the classes from the lightest to the heaviest, or None for two. If there is a ``basis``, in which the noise is
    independent, coefficients are ``basis w`` for the w of the solver. ``places`` has the sample of each row of the
    problem, or None if rows are in the order of the samples.
    """

    problem: Any
    x: float = 1.0
    s: float = 1.0
    shift: Array | None = None
    order: Index | None = None
    basis: Array | None = None
    places: Index | None = None

    def scaled(self, factor: float) -> "Posed":
        """Return the problem with all standard deviations of its noise multiplied by a factor."""
        return self._replace(problem=self.problem.scaled(factor))

    @property
    def n_passes(self) -> float:
        """Passes over X so far, in units of all rows; those over a subsample count as the fraction that it is."""
        return float(round(sum(self.problem.rows.passes.values()), 3))

    @property
    def noise(self) -> Noise | None:
        """The noise in the units of X."""
        noise: Noise | None = self.problem.noise
        if noise is None or (self.x == 1 and self.basis is None):
            return noise
        return noise.given.converted(1 / self.x)

    def start(self, coef: Array, intercept: Intercept) -> tuple[Array, Intercept]:
        """Return coefficients and intercepts in the units and the form of the solver (:func:`flat`)."""
        if self.shift is not None:
            intercept = intercept + coef @ self.shift
        if self.basis is not None:
            coef = np.asarray(np.linalg.solve(self.basis, coef.T).T, dtype=np.float64)
        if self.order is None:
            return coef / self.x, intercept
        return coef[self.order] / self.x, np.asarray(intercept)[self.order]

    def result(self, result: Result) -> Result:
        """Return a solution in the units of X, its classes as they were."""
        coef, intercept, alpha = result.coef * self.x, result.intercept, result.alpha
        if self.places is not None:
            alpha = np.empty_like(result.alpha)
            alpha[self.places] = result.alpha
        if self.basis is not None:
            coef = coef @ self.basis.T
        if self.order is not None:
            rank = np.argsort(self.order)
            coef, intercept = coef[rank], np.asarray(intercept)[rank]
            alpha = None if alpha is None else np.ascontiguousarray(alpha[:, rank])
        if self.shift is not None:
            intercept = intercept - coef @ self.shift
        return result._replace(
            coef=coef, intercept=intercept, alpha=alpha, objective=result.objective / self.s,
            gap=result.gap / self.s, loss_curve=result.loss_curve and [value / self.s for value in result.loss_curve],
        )  # fmt: skip

    def certificate(self, certificate: Certificate) -> Certificate:
        """Return bounds in the units of the weights."""
        return Certificate(certificate.primal / self.s, certificate.dual / self.s)


def flat(coef: Array, intercept: Array) -> tuple[Array, Intercept]:
    """Return the form of a solver: a vector and a number if there is a single row of coefficients."""
    return (coef[0], float(intercept[0])) if len(coef) == 1 else (coef, intercept)


def pose(
    samples: Samples,
    model: Objective,
    mapped: BlockMap = map,
    errors: Errors | None = None,
    *,
    rescaled: bool = True,
    centred: bool = True,
    ordered: bool = True,
) -> Posed:
    """Return the problem of samples, perhaps with error bars.

    It may be ``rescaled`` to other units, ``centred`` and ``ordered`` as the module says.
    """
    n_classes, labels, order = len(samples.classes), samples.labels, None
    if n_classes > 2 and ordered:
        order = np.argsort(np.bincount(labels, samples.weights, n_classes), kind="stable")
        labels = np.argsort(order)[labels].astype(np.int32)
    X, weights, units = samples.X, samples.weights, Posed(None)
    if rescaled:
        X, weights, units = _in_units(samples, centred=centred and model.fit_intercept)
    if model.noise is None and errors is None:
        errors = PerSample(np.zeros(len(labels)), X.shape[1])
    rows, units = _rows(X, labels, weights, n_classes, errors, mapped, units)
    return pose_rows(rows, model, units._replace(order=order))


def _rows(
    X: Any, labels: Any, weights: Array | None, n_classes: int, errors: Errors | None, mapped: BlockMap, units: Posed
) -> tuple[Rows, Posed]:
    """Return rows with error bars in their units, sorted by class if the error bars are large, and the units."""
    if errors is not None:
        errors = (errors if units.x == 1 else errors.scaled(units.x)).compact()
        if errors.is_large and np.any(labels[1:] < labels[:-1]):
            places = np.argsort(labels, kind="stable")
            X, labels, errors = X[places], labels[places], errors.take(places)
            weights, units = None if weights is None else weights[places], units._replace(places=places)
    return Rows(X, labels, weights, n_classes, errors, mapped), units


def pose_rows(rows: Rows, model: Objective, units: Posed) -> Posed:
    """Return the problem of rows that are in some units."""
    # Exact features and directions get the least noise.
    if model.noise is not None:
        noise: Noise | None = model.noise.converted(units.x).with_floor(lambda: _floors(rows, units))
    else:
        noise = _floor(rows, units) if model.l2 == 0 else None
    if rows.errors is None and model.l2 == 0 and noise is not None:
        basis, noise = noise.independent()
        if basis is not None:
            rows, units = rows.rotated(basis), units._replace(basis=basis)
    kind: Any  # whether it can have such noise was checked before
    if rows.errors is not None or noise is None:
        kind = MeasuredPairs
    elif rows.n_classes > 2:
        kind = Multiclass
    else:
        kind = Binary if noise.smooth else AxisBinary
    ridge = model.l2 * units.x * units.x * units.s
    return units._replace(problem=kind(rows, model.loss, noise, ridge, model.fit_intercept))


def pose_ball(
    samples: Samples,
    sets: Array | Errors | Sets,
    lam: float,
    fit_intercept: bool,
    mapped: BlockMap = map,
    *,
    rescaled: bool = True,
) -> Posed:
    """Return the problem of samples that may be moved; classifiers have a row for each of two classes.

    They may be moved within balls of these radii, within the ellipsoids of error bars, or within other ``sets``.
    """
    X, weights, units = samples.X, samples.weights, Posed(None)
    if rescaled:
        # A feature is deleted by setting it to 0, so these samples stay where they are.
        X, weights, units = _in_units(samples, centred=fit_intercept and not isinstance(sets, Sets))
    n_classes = len(samples.classes)
    rows, units = _rows(
        X, samples.labels, weights, n_classes, sets if isinstance(sets, Errors) else None, mapped, units
    )
    ridge = 2 * lam if n_classes == 2 else lam  # ||w_1 - w_0||^2 is twice the sum of squares
    given = ridge * units.x * units.x * units.s, fit_intercept
    problem: Ball
    if rows.errors is not None:
        problem = Moved(rows, _sizes(rows.errors, rows.n_columns), *given, sets=Ellipsoids())
    elif isinstance(sets, Sets):
        problem = Moved(rows, np.ones(rows.n_rows), *given, sets=sets)
    else:
        assert not isinstance(sets, Errors)
        problem = Ball(rows, sets * units.x, *given)
    return units._replace(problem=problem)


def _sizes(errors: Errors, n_columns: int) -> Array:
    """Return about the root of the trace of every covariance, from a few directions; 0 only for exact samples."""
    # Eight directions give the size to a third, which is enough to share smoothing.
    directions = np.random.default_rng(0).standard_normal((8, n_columns))
    return np.asarray(np.sqrt(np.maximum(errors.variances(directions), 0.0).mean(axis=1)))


def _in_units(samples: Samples, *, centred: bool) -> tuple[Values, Array | None, Posed]:
    """Return X and weights in the units of a solver, and the units."""
    X, weights, s = samples.X, samples.weights, 1.0
    if weights is not None:
        s = float(2.0 ** -np.round(np.log2(weights.mean())))
        weights = weights * s
    is_sparse, shift = hasattr(X, "indptr"), None
    values = X.data[:, np.newaxis] if is_sparse else X
    sample = values[:: max(1, len(values) // FEW)]
    size, is_near = _extent(sample)
    if not _is_moderate(size):
        size, is_near = float(np.abs(values).max(initial=0.0)), False
    x = unit_of(size)
    if centred and not is_near and not is_sparse:
        shift = centre(sample, X.size)
    if shift is not None:
        X = X - shift.astype(X.dtype)
    if x != 1:
        X = X * X.dtype.type(x)
    return X, weights, Posed(None, x, s, shift)


def centre(sample: MixedArray, n_values: int) -> Array | None:
    """Return approximate means of dense features if one is far from the origin; any point near them will do.

    ``sample`` has a part of the rows, and ``n_values`` is the number of values of all of them.
    """
    dtype, sample = sample.dtype, np.asarray(sample, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        means = sample.sum(axis=0) / len(sample)
        spreads = np.sqrt(np.square(sample - means).sum(axis=0) / len(sample))
        far = np.abs(means) > FAR * spreads
    # Features that are constant in these samples, to a rounding of each, are not worth a copy of much data.
    if not far.any() or (n_values > MANY_VALUES and not (far & (spreads > len(sample) * EPS * np.abs(means))).any()):
        return None
    # Numbers of the precision of X, so that differences are exact where they matter.
    return np.where(far, means, 0.0).astype(dtype).astype(np.float64)


def _is_moderate(size: float) -> bool:
    """Return whether values up to a size need no other unit: their sums of squares neither overflow nor vanish."""
    return 1e-60 < size < 1e60


def unit_of(size: float) -> float:
    """Return the power of 2 by which values up to a size are multiplied."""
    return 1.0 if not 0 < size < np.inf or _is_moderate(size) else float(2.0 ** -np.round(np.log2(size)))


def _extent(values: Values) -> tuple[float, bool]:
    """Return the root mean square of the largest column, and whether no column is far from the origin, or nearly so.

    The stored values of sparse rows count as one column.
    """
    n = max(1, len(values))
    with np.errstate(over="ignore", invalid="ignore"):
        means, squares = np.ones(len(values)) @ values / n, np.einsum("ij,ij->j", values, values) / n
        # A tenth of FAR: sums of squares in float32 have too few digits to tell more.
        near = means**2 <= (0.1 * FAR) ** 2 * (squares - means**2)
        return math.sqrt(squares.max()), bool(near.all())


def _floors(rows: Rows, units: Posed) -> Array:
    """Return the noise of exact features, relative to their spread; for constant ones to their size, or to 1.

    The mean of a constant feature, and so its spread, is known to some roundings.
    """
    size = np.asarray(0.0) if units.shift is None else np.abs(units.shift) * units.x
    spread = np.where(rows.spreads > 64 * EPS * size, rows.spreads, size)
    # With noise 0 the loss is a hinge where other coefficients are 0: no dual point is feasible, but for rounding.
    return 1e-6 * np.where(spread > 0, spread, units.x)


def _roots(block: Block) -> Array:
    """Return a root of the total covariance of the errors of a block."""
    assert block.errors is not None
    return block.errors.roots(block.weights)


def _floor(rows: Rows, units: Posed) -> Noise | None:
    """Return noise of features that are exact in all samples, or None if there are none."""
    used = rows.total(_roots)
    exact = ~np.atleast_2d(used.T).any(axis=0)
    return PerFeature(1.0, np.where(exact, _floors(rows, units), 0.0)) if exact.any() else None
