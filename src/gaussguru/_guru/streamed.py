"""From a source of samples to a problem, as :mod:`validation` and :mod:`problem` do for samples in memory.

The *head*, a few rows of a few parts, gives the kind of the parts and the units of the solver. A *survey*, one pass,
finds the classes, their weights and moments, and values that are not finite. Then the parts are blocks of
:class:`gaussguru._rows.streams.StreamedRows`.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.checks import check_errors
from gaussguru._errors.forms import Errors
from gaussguru._errors.missing import Population, has_unmeasured, unmeasured
from gaussguru._errors.parse import stacked_errors
from gaussguru._guru.pose import FEW, Objective, Posed, centre, pose_rows, unit_of
from gaussguru._guru.problems.smoothing import RARE
from gaussguru._guru.solvers.policy import NewtonPolicy
from gaussguru._populations.em import covariance_rows, with_covariance
from gaussguru._rows.rows import RowVector
from gaussguru._rows.streams import (
    Blocks,
    Draw,
    DrawnRows,
    LocalParts,
    Overview,
    Part,
    StreamedRows,
    check_part_weights,
    in_partition,
    in_units,
    joined,
    survey,
)
from gaussguru._rows.validation import Samples, check_classes, check_label_kind, class_factors
from gaussguru._utils.blocks import MOST_STORED
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import Array, Index, aligned
from gaussguru._utils.moments import FeatureMoments
from gaussguru._utils.types import BlockMap, ErrorBars, Estimator, MixedArray, Values
from gaussguru.sources.base import Fields, Source, needed
from gaussguru.sources.reading import Reading, as_source, stacked

Method = TypeVar("Method", bound=Callable[..., Any])

# Number of parts in the head.
HEADS = 8


def head_of(part: Part, n_rows: int) -> Part:
    """Return about ``n_rows`` rows of a part, evenly spaced."""
    every = slice(None, None, max(1, part.X.shape[0] // n_rows))
    X, y, _, X_err = (None if field is None else take_rows(field, every) for field in part[:4])
    return Part(X, y, None, X_err, part.number)


def heads_of(parts: Blocks, *, streamed: bool) -> list[Part]:
    """Return a few rows of a few parts; of all parts if these are empty."""
    n = HEADS if streamed else len(parts)  # only a pass would count the parts of a stream
    numbers = sorted({int(number) for number in np.linspace(0, n - 1, min(HEADS, n))})
    heads = [head for head in parts.collected(head_of, some=numbers, n_rows=FEW // len(numbers)) if head.X.shape[0]]
    if not heads:
        heads = [head for head in parts.collected(head_of, n_rows=FEW // HEADS) if head.X.shape[0]]
    if not heads:
        raise ValueError("X must have at least one sample; all partitions are empty")
    return heads


class Streamed(NamedTuple):
    """Samples of a source after the survey, in units of the solver, from which problems are posed."""

    parts: Blocks
    kept: RowVector
    overview: Overview
    units: Posed
    n_features: int
    measured: bool
    mapped: BlockMap
    population: Population | None  # of the true values, where there are errors
    n_passes: int  # so far
    drawn: DrawnRows | None  # a subsample

    @property
    def classes(self) -> MixedArray:
        """The classes."""
        return self.overview.classes

    @property
    def samples(self) -> Samples:
        """The classes and the number of features, with a single row of zeros, for checks of parameters."""
        shape = np.broadcast_to(np.float32(0), (1, self.n_features))
        return Samples(shape, self.classes, np.zeros(1, dtype=bool), None)

    def posed(self, class_weight: object, model: Objective) -> Posed:
        """Return the problem of the samples."""
        overview = self.overview
        factors = np.array(class_factors(class_weight, self.classes, overview.totals.tolist()))
        n, C = overview.n_rows, len(self.classes)
        mean = float(factors @ overview.totals) / n
        s = 1.0 if mean == 1 else float(2.0 ** -np.round(np.log2(mean)))
        order = np.argsort(factors * overview.totals, kind="stable") if C > 2 else np.arange(2)
        rows = self._rows(order, s * factors[order])
        return pose_rows(rows, model, self.units._replace(s=s, order=order if C > 2 else None))

    def rows(self, class_weight: object) -> StreamedRows:
        """Return the samples with their weights times those of their classes."""
        factors = np.array(class_factors(class_weight, self.classes, self.overview.totals.tolist()))
        return self._rows(np.arange(len(self.classes)), factors)

    def _rows(self, order: Index, factors: Array) -> StreamedRows:
        rows = StreamedRows(self.parts, self.kept, self.overview, order, factors, self.mapped, self.drawn)
        for _ in range(self.n_passes):
            rows.count("value")
        return rows


def surveyed(
    parts: Blocks,
    mapped: BlockMap,
    *,
    class_weight: object = None,
    centred: bool = True,
    exact: bool = False,
    draws: bool = False,
    check: Callable[[ErrorBars, Values], Errors] = check_errors,
    gaps: "Gaps | None" = None,
) -> Streamed:
    """Return the samples of a source; ``exact`` ones without error bars have errors of 0.

    With ``draws`` they have a subsample, as large as the largest that a solver asks for. ``check`` converts error bars
    to those of a problem: ``check_errors`` or ``check_products`` of :mod:`gaussguru.errors`. ``gaps`` fills in values
    that were not measured; None: values must be measured.
    """
    streamed = isinstance(parts, LocalParts) and parts.parts is None
    heads = heads_of(parts, streamed=streamed)
    if heads[0].y is None:
        raise ValueError("y is required: an array, a collection like X, or the name of a column")
    n_features, sparse = int(heads[0].X.shape[1]), sp.issparse(heads[0].X)
    for head in heads:
        _check_kind(head.X, head.number, n_features, sparse)
    units = units_of(heads, centred=centred)
    ready = parts.then(_checked, n_features=n_features, sparse=sparse, exact=exact)
    population, n_passes = None, 1
    if gaps is not None and heads[0].X_err is not None and not sparse:
        ready, population, more = gaps.filled(ready, heads)
        n_passes += more
    ready = ready.then(in_units, shift=units.shift, x=units.x, check=check)
    n_parts = None if streamed else len(parts)
    draw = Draw(partial(_drawn, n_parts=n_parts), RARE, n_parts) if draws else None
    kept, surveys = ready.both(survey, by_class=class_weight is not None, draw=draw)
    used = [k for k, (part, _) in enumerate(surveys) if part.n_rows]
    if len(used) < len(surveys):
        ready, (kept,) = ready.chosen(used, kept)
    summaries, draws_of_parts = zip(*(surveys[k] for k in used), strict=True)
    overview = Overview(summaries)
    check_label_kind(overview.classes)
    check_classes(overview.classes, overview.totals.tolist())
    drawn = joined(draws_of_parts, overview) if draws else None
    has_errors = heads[0].X_err is not None
    return Streamed(ready, kept, overview, units, n_features, has_errors, mapped, population, n_passes, drawn)


def _drawn(n_rows: int, n_columns: int, n_classes: int, n_parts: int | None) -> float:
    """Return the number of rows drawn from a part: with few parts the size of a subsample, with many more in total."""
    width = 1 if n_classes == 2 else n_classes
    return NewtonPolicy().drawn_rows(n_rows, n_columns, width, min(HEADS, n_parts or HEADS))


def units_of(heads: list[Part], *, centred: bool) -> Posed:
    """Return the units of the solver, from the head."""
    X = [head.X for head in heads]
    if sp.issparse(X[0]):
        size = max((float(np.abs(rows.data).max(initial=0.0)) for rows in X), default=0.0)
        return Posed(None, unit_of(size))
    sample = np.concatenate(X)
    with np.errstate(invalid="ignore"):
        size = float(np.nanmax(np.abs(sample), initial=0.0))
    if heads[0].X_err is not None:
        sample = np.where(np.isnan(sample), about_means(heads).astype(sample.dtype), sample)
    # Parts are small: the limit on copies of much data does not apply.
    return Posed(None, unit_of(size), 1.0, centre(sample, sample.size) if centred and len(sample) > 1 else None)


def _checked(part: Part, n_features: int, sparse: bool, exact: bool) -> Part:
    """Return a part with parsed errors; raise unless it has the kind of the others."""
    n = part.X.shape[0]
    if n:
        _check_kind(part.X, part.number, n_features, sparse)
    if part.y is None:
        raise ValueError(f"y is required; partition {part.number} has no labels")
    if part.y.dtype.kind == "f" and np.isnan(part.y).any():
        raise ValueError(f"y must not be NaN; partition {part.number}, row {int(np.argmax(np.isnan(part.y)))} is")
    check_part_weights(part)
    if part.X_err is None and exact:
        return part._replace(X_err=np.zeros(n))
    return part


# --- values not measured ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaps:
    """How values of sources are filled in that were not measured, as in memory but part by part.

    Parameters
    ----------
    correlated : bool
        Whether errors may become correlated.
    estimated : bool
        Whether to estimate the population from the samples, or to use ``population``.
    population : Population or None
    """

    correlated: bool
    estimated: bool = True
    population: Population | None = None

    def filled(self, parts: Blocks, heads: list[Part]) -> tuple[Blocks, Population | None, int]:
        """Return parts without gaps, the population, and the number of passes: one, or two if it is estimated."""
        about = about_means(heads)
        moments: list[_PartMoments] = parts.collected(_moments, about=about)
        gaps, d, n_passes = any(part.gaps for part in moments), len(about), 1
        population = self.population
        if self.estimated:
            population, n_passes = _population(parts, moments, about, gaps), 2
        if gaps:
            if population is None:
                raise without_population("this classifier")
            # The same limit as in memory.
            correlated = self.correlated and sum(part.n_rows for part in moments) * d * d <= MOST_STORED
            parts = parts.then(_filled, population=population, correlated=correlated)
        return parts, population, n_passes


def without_population(model: str) -> ValueError:
    """Return the error for values that were not measured, where a model has no population to fill them from."""
    return ValueError(
        f"X_err has infinite errors, for what was not measured, and {model} does not know what to expect there: it was "
        "fitted without X_err"
    )


class _PartMoments(NamedTuple):
    """Sums over the measured values of a part, feature by feature, of deviations from given points."""

    n_rows: int
    n_used: int
    gaps: bool
    moments: FeatureMoments


def about_means(heads: list[Part]) -> Array:
    """Return approximate means of the measured values of each feature, from the head."""
    sample = np.concatenate([head.X for head in heads]).astype(np.float64)
    known = np.isfinite(sample)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.where(known, sample, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _moments(part: Part, about: Array) -> _PartMoments:
    n, d = part.X.shape[0], len(about)
    if not n:
        return _PartMoments(0, 0, False, FeatureMoments(about, *np.zeros((3, d))))
    weight = np.ones(n) if part.weight is None else part.weight
    gaps = has_unmeasured(part.X_err)
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = part.X.astype(np.float64) - about
        totals = np.full(d, float(weight.sum()))
        if gaps:
            known = ~unmeasured(part.X_err, part.X.shape)
            deviations, totals = np.where(known, deviations, 0.0), weight @ known
        moments = FeatureMoments.of(deviations, about, weight, totals)
    return _PartMoments(n, int(np.count_nonzero(weight)), gaps, moments)


def _population(parts: Blocks, summaries: list[_PartMoments], about: Array, gaps: bool) -> Population:
    """Return the population: means and spreads of all samples, the covariance of a subsample, as in memory."""
    moments = FeatureMoments.added([part.moments for part in summaries])
    if not moments.weights.all():
        j = int(np.argmin(moments.weights))
        raise ValueError(f"X_err says that feature {j} was measured for no sample: leave it out")
    with np.errstate(over="ignore", invalid="ignore"):
        marginal = Population(*moments.means_and_spreads())
    ends = np.cumsum([part.n_used for part in summaries])
    rows = covariance_rows(int(ends[-1]), len(about), gaps=gaps)
    cuts = np.searchsorted(rows, ends)
    begins = ends - [part.n_used for part in summaries]
    rows_of_parts = [rows[a:b] - begin for a, b, begin in zip([0, *cuts[:-1]], cuts, begins, strict=True)]
    samples = [sample for sample in parts.collected(_taken, rows_of_parts) if sample is not None]
    X, X_err, weight = zip(*samples, strict=True)
    return with_covariance(marginal, stacked(X).astype(np.float64), stacked_errors(X_err), stacked(weight), gaps=gaps)


def _taken(part: Part, rows: Index) -> tuple[Values, ErrorBars, Array | None] | None:
    """Return rows with their errors and weights; they are counted among those of positive weight."""
    if not len(rows):
        return None
    if part.weight is not None:
        rows = np.flatnonzero(part.weight)[rows]
    return part.X[rows], take_rows(part.X_err, rows), None if part.weight is None else part.weight[rows]


def _filled(part: Part, population: Population, correlated: bool) -> Part:
    """Return a part with values that were not measured filled in."""
    if not part.X.shape[0]:
        return part
    with in_partition(part.number):
        X, X_err = population.fill(part.X, part.X_err, correlated=correlated)
    return part._replace(X=X, X_err=X_err)


# --- checks -------------------------------------------------------------------------------------------------


def _check_kind(X: Values, number: int, n_features: int, sparse: bool) -> None:
    if X.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} features in all partitions; partition {number} has {X.shape[1]}")
    if sp.issparse(X) != sparse:
        kind = "dense" if sparse else "sparse"
        raise ValueError(f"X must be sparse in all partitions or in none; partition {number} is {kind}")


def note_features(estimator: BaseEstimator, n_features: int, names: list[str] | None) -> None:
    """Keep number and names of the features, as scikit-learn does."""
    estimator.n_features_in_ = n_features
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


# --- predictions --------------------------------------------------------------------------------------------


def by_parts(method: Method) -> Method:
    """Make a method of X and X_err accept sources: Dask collections return Dask arrays, others arrays."""

    @wraps(method)
    def either(self: Estimator, X: object, X_err: object = None) -> Any:
        source = as_source(X)
        if source is None:
            return method(self, X, X_err)
        check_is_fitted(self)
        fields, names = Fields(X_err=X_err), names_of(self)
        function = partial(_applied, method, light(self))
        if source.is_lazy:
            return _lazily(function, source, fields, names, _sample(method, self, X_err))
        reading = Reading(source, fields, names, self.n_jobs)
        with reading.pool as mapped:
            return stacked(reading.opened(mapped, None).collected(function))

    return cast(Method, either)


def names_of(model: BaseEstimator) -> list[str] | None:
    """Return the names of the features that a model was fitted to, if they have any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else list(names)


def light(model: BaseEstimator) -> Estimator:
    """Return a copy of a fitted model without feature names and attributes that predictions do not need."""
    bare = copy.copy(model)
    for name in ("feature_names_in_", *getattr(model, "_of_training", ())):
        bare.__dict__.pop(name, None)
    bare.__dict__["n_jobs"] = 1  # threads and workers share the parts
    inside = {name: value for name, value in vars(bare).items() if isinstance(value, BaseEstimator)}
    bare.__dict__.update({name: light(value) for name, value in inside.items() if name not in bare.get_params(False)})
    return bare


def _applied(method: Callable[..., Any], model: BaseEstimator, part: Part) -> Any:
    part = aligned(part)
    if not part.X.shape[0]:
        result = _sample(method, model, part.X_err)
        return tuple(each[:0] for each in result) if isinstance(result, tuple) else result[:0]
    with in_partition(part.number):
        return method(model, part.X, part.X_err)


def _sample(method: Callable[..., Any], model: BaseEstimator, X_err: object) -> Any:
    """Return the result of a method for two samples, with error bars if there are any: its type and shape."""
    zeros = np.zeros((2, model.n_features_in_))
    return method(light(model), zeros, None if X_err is None else zeros)


def _lazily(function: Callable[..., Any], source: Source, fields: Fields, names: list[str] | None, sample: Any) -> Any:
    """Return arrays of Dask, with as many blocks as X has."""
    dask, array = needed("dask", "a collection of Dask", "dask"), needed("dask.array", "a collection of Dask", "dask")
    parts = [dask.delayed(function, pure=False)(part) for part in source.delayed(fields, names)]
    sizes = source.sizes(len(parts))

    def collection(like: MixedArray, pick: Callable[[Any], Any]) -> Any:
        blocks = [
            array.from_delayed(pick(part), (size, *like.shape[1:]), meta=like[:0])
            for part, size in zip(parts, sizes, strict=True)
        ]
        return array.concatenate(blocks, allow_unknown_chunksizes=True)

    if isinstance(sample, tuple):
        return tuple(collection(like, itemgetter(k)) for k, like in enumerate(sample))
    return collection(sample, lambda part: part)


def takes_sources(estimator: BaseEstimator) -> bool:
    """Return whether ``fit`` of an estimator reads sources, all of their rows."""
    return bool(getattr(type(estimator), "_takes_sources", False))


def mean_over(model: BaseEstimator, source: Source, fields: Fields, numbers: Callable[[Any, Part], Any]) -> Any:
    """Return the weighted mean over the samples of a source of a function of a fitted model and a part.

    The function returns a number, or an array, for each sample; it is not called for an empty part.
    """
    check_is_fitted(model)
    reading = Reading(source, fields, names_of(model), model.n_jobs)
    with reading.pool as mapped, reading.session as session:
        parts = reading.opened(mapped, session).collected(_weighted, model=light(model), numbers=numbers)
    sums = [part for part in parts if part is not None]
    if not sums:
        raise ValueError("X must have at least one sample; all partitions are empty")
    return sum(part[0] for part in sums) / sum(part[1] for part in sums)


def _weighted(part: Part, model: BaseEstimator, numbers: Callable[[Any, Part], Any]) -> tuple[Any, float] | None:
    n = part.X.shape[0]
    if not n:
        return None
    check_part_weights(part)
    weight = np.ones(n) if part.weight is None else part.weight
    return weight @ numbers(model, part), float(weight.sum())


def class_totals(source: Source, fields: Fields, classes: MixedArray, n_jobs: int | None) -> list[float]:
    """Return the total weight of each class of a source; one pass."""
    reading = Reading(source, fields, None, n_jobs)
    with reading.pool as mapped, reading.session as session:
        totals = reading.opened(mapped, session).total(_class_totals, classes=classes)
    return [float(total) for total in totals]


def _class_totals(part: Part, classes: MixedArray) -> Array:
    check_part_weights(part)
    labels = np.searchsorted(classes, part.y)
    return np.bincount(labels, part.weight, len(classes)).astype(np.float64)


def accuracy(model: BaseEstimator, source: Source, fields: Fields) -> float:
    """Return the weighted fraction of samples of a source whose class is predicted."""
    return float(mean_over(model, source, fields, _hits))


def _hits(model: BaseEstimator, part: Part) -> Array:
    if part.y is None:
        raise ValueError(f"y is required; partition {part.number} has no labels")
    return np.asarray(model.predict(part.X, part.X_err) == part.y, dtype=np.float64)
