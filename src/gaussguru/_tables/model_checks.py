"""Checks of the objects of a model file: types, attributes, shapes and values are as a fit makes them.

Objects of known types are harmless to create, but predictions rely on the attributes that a fit sets, and compiled code
does not check them. ``CONTENTS`` has the rules of the attributes of every type.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn import preprocessing
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from gaussguru._errors.columns import LARGEST
from gaussguru._errors.missing import Population
from gaussguru._guru.ball import AdversarialSVC, TotalSVC
from gaussguru._guru.cross_validation import GuruClassifierCV
from gaussguru._guru.deletions import FeatureDropSVC
from gaussguru._guru.kernel import KernelGuruClassifier
from gaussguru._guru.kernel_matrix import NAMES, Kernel
from gaussguru._guru.linear import GuruClassifier
from gaussguru._measured.affine import AffineMap
from gaussguru._measured.calibrated import CalibratedWithErrorsCV
from gaussguru._measured.class_populations import PopulationClassifier
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._measured.error_bar import ErrorBarClassifier
from gaussguru._measured.features import FAR, FeatureColumns
from gaussguru._measured.pool import MODELS, WITH_ERRORS, ExpectedKernel, FittedMember, OpinionPool
from gaussguru._measured.posteriors import View
from gaussguru._measured.probit import ProbitWithErrors
from gaussguru._populations.mixtures import FactorMixture, Mixture
from gaussguru._tables.schema import LONGEST_LABEL
from gaussguru._tables.trees import MOST_JOBS, TREES
from gaussguru._utils.types import MixedArray
from gaussguru.noise import Axis, Covariance, Isotropic, PerFeature, Shape
from gaussguru.preprocessing import WithErrors
from gaussguru.preprocessing.curved import CurvedMap

SCALERS = (
    preprocessing.StandardScaler,
    preprocessing.RobustScaler,
    preprocessing.MinMaxScaler,
    preprocessing.MaxAbsScaler,
    preprocessing.QuantileTransformer,
)
TRANSFORMERS = (
    *SCALERS, SimpleImputer, preprocessing.FunctionTransformer, ColumnTransformer, WithErrors, Deconvolve
)  # fmt: skip
ENCODERS = (preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder)
# Classifiers that may be inside others.
INNER = (
    GuruClassifier, GuruClassifierCV, ProbitWithErrors, KernelGuruClassifier, LogisticRegression,
    *TREES,
)  # fmt: skip
CLASSIFIERS = (
    *INNER, AdversarialSVC, FeatureDropSVC, TotalSVC, CalibratedWithErrorsCV, ErrorBarClassifier, PopulationClassifier
)  # fmt: skip

# An object or value of a file, which may be anything until it is checked.
Value: TypeAlias = Any


def check_estimator(estimator: Any, features: list[str], labels: Any, kinds: str) -> None:
    """Raise unless an estimator has all attributes that predictions read, as a fit makes them.

    Attributes that no prediction reads may have any value, but not the name of a method.

    Parameters
    ----------
    estimator : object of a model file
    features : list of str
        The names of its features, by its card.
    labels : list
        Its classes, by its card; none of a transformer.
    kinds : str
        Kinds of dtypes that the classes may have.
    """
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) and estimator.steps else estimator
    at = At(type(estimator).__name__, features, None)
    if not labels and isinstance(last, TRANSFORMERS):
        at.check(estimator, (Pipeline, *TRANSFORMERS))
        return
    classes = vars(last).get("classes_")
    if (
        not isinstance(last, CLASSIFIERS)
        or not isinstance(classes, np.ndarray)
        or classes.dtype.kind not in kinds
        or classes.dtype.itemsize > 4 * LONGEST_LABEL
        or classes.shape != (len(labels),)
        or not len(labels) >= 2
        or not classes.tolist() == labels == sorted(set(labels))
    ):
        raise ValueError("it holds no classifier of the features and labels of its card")
    at._replace(classes=classes).check(estimator, (Pipeline, *CLASSIFIERS))


class At(NamedTuple):
    """A place in a model: its path, the features of its samples, and the classes.

    ``sizes`` are the sizes of arrays by letter; ``widths`` are, in a pool, the numbers of columns by form of samples.
    """

    path: str
    features: list[str]
    classes: MixedArray | None
    sizes: dict[str, int] = {}  # noqa: RUF012  replaced before it is written to
    widths: dict[str, int] | None = None

    def fail(self, words: str) -> None:
        """Raise an error that names the place."""
        raise ValueError(f"{self.path} {words}")

    def check_shape(self, found: tuple[int, ...], shape: str) -> None:
        """Raise unless a shape has the sizes of some letters; a letter that is new gets its size."""
        sizes = self.sizes
        if len(found) != len(shape) or any(
            sizes.setdefault(size, n) != n for size, n in zip(shape, found, strict=True)
        ):
            self.fail(f"has the shape {found}, which does not fit the rest")

    def inside(self, name: str) -> "At":
        """Return the place of an attribute."""
        return self._replace(path=f"{self.path}.{name}")

    def each(self, value: Value, words: str, size: int | None = None) -> Iterator[tuple["At", Value]]:
        """Yield the parts of a list with their places; raise unless there are some, or so many."""
        if type(value) is not list or not value or (size is not None and len(value) != size):
            self.fail(words)
        for number, part in enumerate(value):
            yield self._replace(path=f"{self.path}[{number}]"), part

    def check_type(self, thing: Value, types: Iterable[type]) -> None:
        """Raise unless an object has one of the types, and no attribute that hides a method."""
        kind = type(thing)
        if kind not in tuple(types):
            self.fail(f"is a {kind.__name__}, which no model file holds there")
        known = set(kind._get_param_names()) if issubclass(kind, BaseEstimator) else set()
        known |= {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
        for name in set(vars(thing)) - known:
            hidden = getattr(kind, name, None)
            if name.startswith("__") or not (hidden is None or isinstance(hidden, cached_property)):
                self.fail(f"has an attribute {name[:40]!r}")

    def check(self, thing: Value, types: Iterable[type]) -> None:
        """Raise unless an object has one of the types, and its attributes obey the rules of this type."""
        self.check_type(thing, types)
        kind = type(thing)
        contents = CONTENTS[kind]
        rules = contents(thing) if callable(contents) else contents
        n_classes = 0 if self.classes is None else len(self.classes)
        sizes = {"d": len(self.features), "c": n_classes, "s": 1 if n_classes == 2 else n_classes}
        for name, rule in rules.items():
            if name not in vars(thing):
                self.fail(f"has no {name}")
            rule(self.inside(name)._replace(sizes=sizes), vars(thing)[name])
        names = vars(thing).get("feature_names_in_")
        if names is not None and list(names) != self.features:
            self.fail("has other features than its card")
        if hasattr(kind, "_check_parameters"):
            thing._check_parameters()


Rule = Callable[[At, Value], None]
P = ParamSpec("P")


def rule(check: Callable[Concatenate[At, Value, P], None]) -> Callable[P, Rule]:
    """Return the function that makes a rule of a check by its parameters."""

    def made(*args: P.args, **options: P.kwargs) -> Rule:
        return lambda at, value: check(at, value, *args, **options)

    return made


@rule
def numbers(
    at: At, value: Value, shape: str, *, low: float = -LARGEST, above: float = -math.inf, most: float = LARGEST,
    optional: bool = False, sparse: bool = False, rising: bool = False,
) -> None:  # fmt: skip
    """Check an array of floats, finite and small enough that products of two do not overflow.

    The letters of ``shape`` are sizes: d features, s scores, c classes; any other has one value for the whole object.
    """
    if value is None and optional:
        return
    values = value
    if sparse and type(value) in (sp.csr_array, sp.csr_matrix):
        value.check_format(full_check=True)
        values = value.data
    elif type(value) is not np.ndarray:
        at.fail(f"is a {type(value).__name__}, and no array")
    at.check_shape(value.shape, shape)
    if values.dtype.kind != "f" or not ((np.abs(values) <= most) & (values >= low) & (values > above)).all():
        at.fail(f"holds other numbers than floats of at most {most:g}, in the range of a fit")
    if rising and (np.diff(values, axis=0) < 0).any():
        at.fail("holds numbers that fall")


@rule
def shares(at: At, value: Value, shape: str) -> None:
    """Check numbers >= 0 that sum to one, along the last axis."""
    numbers(shape, low=0.0)(at, value)
    if not np.allclose(value.sum(axis=-1), 1.0, rtol=1e-6):
        at.fail("holds numbers whose sum is not 1")


@rule
def indices(at: At, value: Value, shape: str, low: int = 0, below: str = "", *, rising: bool = False) -> None:
    """Check an array of whole numbers from ``low`` on, below a size if one is named."""
    if type(value) is not np.ndarray or value.dtype.kind != "i":
        at.fail("is no array of whole numbers")
    at.check_shape(value.shape, shape)
    if not ((value >= low) & (value < (at.sizes[below] if below else math.inf))).all():
        at.fail("holds numbers that are no places")
    if rising and (np.diff(value) <= 0).any():
        at.fail("holds features that are not in order")


@rule
def size(at: At, value: Value, letter: str, high: float = math.inf) -> None:
    """Check a whole number that is a size of arrays of the same object."""
    whole(1, high)(at, value)
    at.check_shape((value,), letter)


@rule
def real(at: At, value: Value, low: float = -LARGEST, high: float = LARGEST, *, nan: bool = False) -> None:
    """Check one float."""
    is_number = type(value) in (float, int, np.float64, np.float32)
    if not is_number or not (low <= value <= high or (nan and math.isnan(value))):
        at.fail("is no number in the range of a fit")


@rule
def whole(at: At, value: Value, low: int, high: float = math.inf, *, optional: bool = False) -> None:
    """Check a whole number."""
    if not (value is None and optional) and (type(value) is not int or not low <= value <= high):
        at.fail(f"is no whole number from {low} to {high:g}")


@rule
def one_of(at: At, value: Value, *values: Any) -> None:
    """Check that a value is one of ``values``, with the same type."""
    if not any(type(value) is type(known) and value == known for known in values):
        at.fail(f"is none of {values}")


@rule
def part(at: At, value: Value, *types: type) -> None:
    """Check an object of one of the types by its own rules; NoneType allows None."""
    if not (value is None and type(None) in types):
        at.check(value, types)


def _populations(at: At, value: Value) -> None:
    n_classes = 0 if at.classes is None else len(at.classes)
    for place, each in at.each(value, "is no list with a population for each class", n_classes):
        _population(place, each)


@rule
def pattern(at: At, value: Value, *types: type) -> None:
    """Check a parameter that is None or an unfitted estimator, which no prediction uses."""
    if value is not None:
        at.check_type(value, types)
    for name, step in value.steps if isinstance(value, Pipeline) else ():
        at.inside(name).check_type(step, (*TRANSFORMERS, *types))


def _labels(at: At, value: Value) -> None:
    if at.classes is None or type(value) is not np.ndarray or not np.array_equal(value, at.classes):
        at.fail("holds other classes than its card")


@rule
def _count(at: At, value: Value, things: str) -> None:
    known = at.features if things == "features" else at.classes
    if type(value) is not int or known is None or value != len(known):
        at.fail(f"is another number of {things} than that of its card")


def _text(at: At, value: Value) -> None:
    if type(value) is not str:
        at.fail("is no text")


def _steps(at: At, value: Value) -> None:
    """Check the steps of a pipeline, each with the output features of the step before it."""
    if type(value) is not list or not value or not all(type(step) is tuple and len(step) == 2 for step in value):
        at.fail("is no list of steps")
    *before, (_, last) = value
    for number, (_, step) in enumerate(before):
        at._replace(path=f"{at.path}[{number}]").check(step, (Pipeline, ExpectedKernel, *TRANSFORMERS))
        added = step.indicators_.tolist() if isinstance(step, Deconvolve) and step.missing_indicator else []
        names = [*at.features, *(f"{at.features[j]}_missing" for j in added)]
        if isinstance(inner := vars(step).get("transformer_", step), ColumnTransformer):
            names = [f"column {j}" for j in range(_n_outputs(inner, len(names)))]
        if isinstance(step, ExpectedKernel):  # kernel values in place of the variances
            m, q = step.landmarks_.shape
            names = [*(f"landmark {j}" for j in range(m)), *names[:q], *names[2 * q :]]
        at = at._replace(features=names)
    types = TRANSFORMERS if at.classes is None else CLASSIFIERS
    at._replace(path=f"{at.path}[{len(before)}]").check(last, (Pipeline, *types))


def _with_errors(thing: Value) -> dict[str, Rule]:
    """Return the rules of WithErrors, whose population and map are those of the columns without categories."""

    def transformer(at: At, value: Value) -> None:
        at._replace(classes=None).check(
            value, (Pipeline, preprocessing.FunctionTransformer, ColumnTransformer, *SCALERS)
        )

    def exact(at: At, value: Value) -> None:
        indices("e", below="d", rising=True)(at, value)
        if not set(encoded(vars(thing)["transformer_"])) <= {*value.tolist()}:
            at.fail("lacks columns of encoders")

    def of_measured(rule: Rule) -> Rule:
        def check(at: At, value: Value) -> None:
            columns = np.delete(np.array(at.features, dtype=object), vars(thing)["_exact"])
            rule(at._replace(features=columns.tolist()), value)

        return check

    # Rules are checked in this order.
    return {
        **_INPUT, "transformer_": transformer, "_exact": exact, "population_": of_measured(_POPULATION),
        "_map": of_measured(_map),
    }  # fmt: skip


def encoded(transformer: Value) -> dict[int, Value]:
    """Return a category of each column that a checked transformer takes for categories, by number; "" if it is none."""
    if isinstance(transformer, WithErrors):
        return dict.fromkeys(transformer._exact.tolist(), "") | encoded(transformer.transformer_)
    if not isinstance(transformer, ColumnTransformer):
        return {}
    branches = [(step, transformer._transformer_to_input_indices[name]) for name, step, _ in transformer.transformers_]
    return {
        j: levels[0] for step, places in branches if isinstance(step, ENCODERS)
        for j, levels in zip(places, step.categories_, strict=True)
    }  # fmt: skip


def _n_outputs(step: Value, n: int) -> int:
    """Return the number of outputs of a checked transformer of n features."""
    if isinstance(step, ColumnTransformer):
        return int(max(part.stop for part in step.output_indices_.values()))
    if isinstance(step, Pipeline):
        return _n_outputs(step.steps[-1][1], n)
    return sum(step._n_features_outs) if isinstance(step, preprocessing.OneHotEncoder) else n


def _column_transformer(thing: Value) -> dict[str, Rule]:
    """Return the rules of a ColumnTransformer; its branches agree with its parameters, its inputs and its outputs."""
    types = (Pipeline, preprocessing.FunctionTransformer, SimpleImputer, *SCALERS, *ENCODERS)

    def branches(at: At, value: Value) -> None:
        places, outputs, last = dict[str, list[int]](), dict[str, slice](), 0
        for inside, branch in at.each(value, "is no list of branches"):
            if type(branch) is not tuple or len(branch) != 3 or type(branch[0]) is not str or branch[0] in places:
                inside.fail("is no branch of a name of its own")
            name, step, columns = branch
            places[name] = _places(inside, columns)
            n = 0
            if type(step) is not str or step != "drop":
                names = [at.features[j] for j in places[name]]
                inside._replace(features=names, classes=None).check(step, types)
                n = _n_outputs(step, len(names))
            outputs[name] = slice(last, last + n) if n else slice(0, 0)
            last += n
        known = vars(thing).get("_transformer_to_input_indices")
        if known not in (places, {"remainder": []} | places):
            at.fail("has other columns than those of its branches")
        if vars(thing).get("output_indices_") != {"remainder": slice(0, 0)} | outputs:
            at.fail("has other outputs than those of its branches")

    def parameters(at: At, value: Value) -> None:
        fitted = vars(thing)["transformers_"]
        for (inside, branch), (name, step, columns) in zip(
            at.each(value, "is no list of branches"), fitted, strict=False
        ):
            if type(branch) is not tuple or len(branch) != 3 or branch[::2] != (name, columns):
                inside.fail("is another branch than that of the fit")
            if branch[1] not in ("passthrough", "drop") or type(branch[1]) is not str:
                inside.check_type(branch[1], (type(step),))
                pattern(*types)(inside, branch[1])

    return {
        **_INPUT, "transformers_": branches, "transformers": parameters, "transformer_weights": one_of(None),
        "sparse_output_": one_of(True, False), "n_jobs": whole(-MOST_JOBS, MOST_JOBS, optional=True),
    }  # fmt: skip


def _places(at: At, columns: Value) -> list[int]:
    """Return the numbers of the columns of a branch, which are a list of names or of numbers."""
    known: dict[Any, int] = {name: j for j, name in enumerate(at.features)}
    if type(columns) is list and {*map(type, columns)} == {int}:
        known = {j: j for j in known.values()}
    if (
        type(columns) is not list
        or not columns
        or not all(type(name) in (str, int) and name in known for name in columns)
    ):
        at.fail("has other columns than a list of names, or of numbers, of its features")
    return [known[name] for name in columns]


def _categories(at: At, value: Value) -> None:
    """Check the categories of every feature of an encoder: texts, or rising numbers."""
    for place, levels in at.each(value, "is no list with the categories of each feature", len(at.features)):
        if type(levels) is not np.ndarray or levels.ndim != 1 or not len(levels):
            place.fail("is no array of categories")
        are_texts = {*map(type, levels.tolist())} == {str} and len({*levels.tolist()}) == len(levels)
        if not are_texts and (levels.dtype.kind not in "if" or not (np.diff(levels) > 0).all()):
            place.fail("holds categories that are neither different texts nor rising numbers")


def _one_hot(thing: Value) -> dict[str, Rule]:
    """Return the rules of a OneHotEncoder."""

    def dropped(at: At, value: Value) -> None:
        sizes = [len(levels) for levels in vars(thing)["categories_"]]
        given = [None] * len(sizes) if value is None else value.tolist() if type(value) is np.ndarray else []
        if len(given) != len(sizes) or not all(
            k is None or (type(k) is int and 0 <= k < n) for k, n in zip(given, sizes, strict=True)
        ):
            at.fail("drops categories that are not there")
        if vars(thing).get("_n_features_outs") != [n - (k is not None) for k, n in zip(given, sizes, strict=True)]:
            at.fail("has another number of outputs")

    return {
        **_ENCODER, "handle_unknown": one_of("error", "ignore", "infrequent_if_exist", "warn"),
        "sparse_output": one_of(True, False), "_drop_idx_after_grouping": dropped,
    }  # fmt: skip


def _map(at: At, value: Value) -> None:
    at.check(value, (AffineMap, CurvedMap))
    if isinstance(value, CurvedMap) and not value.is_one_to_one:
        at.fail("mixes features")


def _monomial(at: At, value: Value) -> None:
    """Check the map that scales feature by feature: the feature and the factor of each output."""
    if type(value) is not tuple or len(value) != 2:
        at.fail("holds no order of features")
    indices("o", below="d")(at, value[0])
    numbers("o")(at, value[1])


def _beta(at: At, value: Value) -> None:
    (real() if at.sizes["s"] == 1 else numbers("s"))(at, value)


def _covariances(at: At, value: Value) -> None:
    """Check covariances of components: with exact values they are inverted, so they must be positive definite."""
    numbers("kdd")(at, value)
    roots = np.sqrt(np.abs(np.einsum("kjj->kj", value)))
    # Covariances of a fit may differ from their transposes in the last digits.
    if not (np.abs(value - value.transpose(0, 2, 1)) <= 1e-12 * roots[:, :, np.newaxis] * roots[:, np.newaxis]).all():
        at.fail("holds no covariances")
    np.linalg.cholesky(value)


def _population(at: At, value: Value) -> None:
    """Check a population that adds no features."""
    at.check(value, (Deconvolve,))
    if value.missing_indicator:
        at.fail("adds features that are not in its card")


def _kernel_machine(thing: Value) -> dict[str, Rule]:
    """Return the rules of a classifier with a kernel; its parameter must name the kernel of the fit."""
    return {
        **_CLASSIFIER,
        "kernel": one_of(getattr(vars(thing).get("_kernel"), "name", None)),
        "noise_": part(Isotropic, type(None)),
        "population_": _POPULATION,
        "_kernel": part(Kernel),
        "support_": indices("n"),
        "dual_coef_": numbers("sn"),
        "X_fit_": numbers("nd", sparse=True),
        "norm_": numbers("s"),
        "intercept_": numbers("s"),
    }


def _kernel_parameters(at: At, value: Value) -> None:
    if type(value) is not dict or set(value) != {"gamma", "degree", "coef0"}:
        at.fail("holds other parameters than those of a kernel")
    for name, number in value.items():
        real()(at.inside(name), number)


def _half(at: At, value: Value) -> None:
    """Check the number of features of which there are values and variances."""
    size("q", len(at.features) // 2)(at, value)


def _view(at: At, value: Value) -> None:
    """Check a population with its mean and spread."""
    if type(value) is not View:
        at.fail("is no population with its mean and spread")
    _population(at.inside("population"), value.population)
    numbers("d")(at.inside("centre"), value.centre)
    _SCALE(at.inside("scale"), value.scale)


def _pool(at: At, value: Value, features: Any) -> None:
    """Check a pool, with the numbers of columns that its FeatureColumns, already checked, make."""
    d, r = features.axes.shape
    gaps = len(features.gaps) + len(features.limits)
    trees = 2 * d + r + gaps
    widths = {"trees": trees, "sizes": trees + d}
    widths |= {"linear": d + gaps, "posterior": 2 * d + gaps, "rotated": 2 * r + gaps, WITH_ERRORS: d}
    at._replace(widths=widths).check(value, (OpinionPool,))


def _scores(at: At, value: Value) -> None:
    """Check the table of log losses of a pool, for reports."""
    columns = ("member", "weight", "log_loss", "standard_error")
    if type(value) is not dict or set(value) not in (
        {*columns},
        {*columns, *(f"{name}_noisier" for name in columns[1:])},
    ):
        at.fail("is no table of log losses")
    names = value["member"]
    if type(names) is not np.ndarray or names.dtype.kind != "U" or not {"pool", "class frequencies"} <= set(names.flat):
        at.fail("names no members")
    for name in value:
        if name != "member" and (type(value[name]) is not np.ndarray or value[name].dtype != np.float64):
            at.inside(name).fail("holds other numbers than floats")
        at.inside(name).check_shape(value[name].shape, "n")


def _members(at: At, value: Value) -> None:
    for place, member in at.each(value, "is no list of members"):
        at.sizes.update(m=len(value), t=2)
        place.check(member, (FittedMember,))


def _gate(at: At, value: Value) -> None:
    """Check intercept and slope of the log odds that a sample is a noisier one: -inf and 0 without noisier samples."""
    if type(value) is not np.ndarray or value.dtype != np.float64 or value.tolist() != [-math.inf, 0.0]:
        numbers("t")(at, value)
        if value[1] < 0:
            at.fail("falls with the noise")


def _member(thing: Value) -> dict[str, Rule]:
    """Return the rules of a member of a pool: classifiers of class numbers, of the columns that it names."""
    columns = vars(thing).get("columns")
    types = (PopulationClassifier,) if columns == WITH_ERRORS else (Pipeline, *INNER)

    def known(at: At, value: Value) -> None:
        one_of(*(at.widths or ()))(at, value)

    def models(at: At, value: Value) -> None:
        names = [f"column {j}" for j in range((at.widths or {})[columns])]  # type: ignore[index]
        for place, model in at.each(value, "is no list of classifiers"):
            inside = place._replace(features=names)
            inside._replace(classes=_class_numbers(inside, model)).check(model, types)

    return {"name": _text, "columns": known, "models": models}


def _class_numbers(at: At, model: Any) -> MixedArray:
    """Return the classes of a classifier of one fold, checked: numbers of two or more of all classes.

    (A pipeline whose steps are not those of a fit is refused later.)
    """
    steps = vars(model).get("steps") if type(model) is Pipeline else None
    last = steps[-1][-1] if type(steps) is list and steps and type(steps[-1]) is tuple else model
    known: Any = getattr(last, "__dict__", {}).get("classes_")
    if (
        at.classes is None
        or type(known) is not np.ndarray
        or known.dtype.kind != "i"
        or known.ndim != 1
        or len(known) < 2
        or not (np.diff(known) > 0).all()
        or not 0 <= known[0] < known[-1] < len(at.classes)
    ):
        at.fail("knows other classes than numbers of those of its card")
    return np.asarray(known)


def _error_bars(thing: Value) -> dict[str, Rule]:
    """Return the rules of an ErrorBarClassifier: a calibrated linear score, or a pool."""
    inner: dict[str, Rule]
    if vars(thing).get("model") == "linear":
        inner = {
            **_CALIBRATION,
            "method_": one_of("probit"),
            "kappa_pvalue_": real(0.0, nan=True),
            "estimator_": part(ProbitWithErrors),
        }
    else:
        inner = {
            "method_": one_of("pool"),
            "features_": part(FeatureColumns),
            # ``features_`` is checked before it.
            "pool_": lambda at, value: _pool(at, value, vars(thing)["features_"]),
            "cv_scores_": _scores,
            "n_jobs": whole(-MOST_JOBS, MOST_JOBS, optional=True),
        }
    return {
        **_CLASSIFIER,
        "model": one_of(*MODELS),
        "estimator": pattern(Pipeline, *INNER),
        "has_errors_": one_of(True, False),
        "population_": _population,
        "centre_": numbers("d"),
        "scale_": _SCALE,
        "reliability_": numbers("d"),
        **inner,
    }


_INPUT: dict[str, Rule] = {"n_features_in_": _count("features")}
_CLASSIFIER: dict[str, Rule] = {**_INPUT, "classes_": _labels}
_LINEAR: dict[str, Rule] = {**_CLASSIFIER, "coef_": numbers("sd"), "intercept_": numbers("s")}
_POPULATION = part(Population, type(None))
_GURU: dict[str, Rule] = {
    **_LINEAR, "noise_": part(Isotropic, Axis, PerFeature, Covariance, type(None)), "population_": _POPULATION
}  # fmt: skip
# The square of a factor times a variance does not overflow.
_CALIBRATION: dict[str, Rule] = {"beta_": _beta} | dict.fromkeys(("alpha_", "kappa_"), real(0.0, 1e70))
_SIGMA: dict[str, Rule] = {"sigma": real(0.0)}
_ENCODER: dict[str, Rule] = {
    **_INPUT, "categories_": _categories, "_infrequent_enabled": one_of(False), "dtype": one_of(np.float64)
}  # fmt: skip
_SCALE = numbers("d", above=0.0)
_SCALING: dict[str, Rule] = {**_INPUT, "scale_": numbers("d", above=0.0, optional=True)}
_MIXTURE: dict[str, Rule] = {"weights": shares("k"), "means": numbers("kd"), "covariances": _covariances}

# Rules of the attributes, by type; of a few types they depend on the object.
CONTENTS: Mapping[type, dict[str, Rule] | Callable[[Value], dict[str, Rule]]] = {
    Pipeline: {"steps": _steps},
    preprocessing.StandardScaler: {**_SCALING, "mean_": numbers("d", optional=True)},
    preprocessing.RobustScaler: {**_SCALING, "center_": numbers("d", optional=True)},
    preprocessing.MinMaxScaler: {**_INPUT, "min_": numbers("d"), "scale_": _SCALE},
    preprocessing.MaxAbsScaler: {**_INPUT, "scale_": _SCALE},
    preprocessing.QuantileTransformer: {
        **_INPUT, "n_quantiles_": size("q"), "quantiles_": numbers("qd", rising=True),
        "references_": numbers("q", rising=True), "output_distribution": one_of("normal", "uniform"),
    },
    SimpleImputer: {**_INPUT, "statistics_": numbers("d")},
    preprocessing.FunctionTransformer: {"func": one_of(None), "inverse_func": one_of(None)},
    ColumnTransformer: _column_transformer,
    preprocessing.OneHotEncoder: _one_hot,
    preprocessing.OrdinalEncoder: {
        **_ENCODER, "_missing_indices": one_of({}), "handle_unknown": one_of("error", "use_encoded_value"),
        "unknown_value": lambda at, value: None if value is None else real(nan=True)(at, value),
    },
    WithErrors: _with_errors,
    AffineMap: {
        "centre": numbers("d"), "offset": numbers("o"), "matrix": numbers("do", sparse=True), "monomial": _monomial,
    },
    CurvedMap: {
        **{name: numbers("o") for name in ("low", "high", "below", "above", "signs")},
        "features": indices("d", low=-1, below="d"), "outputs": indices("o", low=-1, below="d"),  # -1: never varied
    },
    Population: {"means": numbers("d"), "spreads": numbers("d"), "covariance": numbers("dd", optional=True)},
    Deconvolve: {
        **_INPUT, "population_": part(Mixture, FactorMixture), "spreads_": numbers("d", low=0.0),
        "error_scale_": numbers("d", low=0.0), "indicators_": indices("i", below="d"),
    },
    Mixture: _MIXTURE,
    FactorMixture: {**_MIXTURE, "loadings": numbers("kdr"), "uniquenesses": numbers("kd", above=0.0)},
    Isotropic: _SIGMA,
    Axis: _SIGMA,
    PerFeature: {**_SIGMA, "deviations": numbers("d")},
    Covariance: {**_SIGMA, "shape": part(Shape)},
    Shape: {"matrix": numbers("dd")},
    GuruClassifier: _GURU,
    GuruClassifierCV: _GURU,
    ProbitWithErrors: _LINEAR,
    AdversarialSVC: lambda model: _LINEAR | ({"population_": _POPULATION} if hasattr(model, "population_") else {}),
    FeatureDropSVC: _LINEAR,
    TotalSVC: _LINEAR,
    LogisticRegression: _LINEAR,
    **dict.fromkeys(TREES, _CLASSIFIER),  # their nodes were checked before they were made
    KernelGuruClassifier: _kernel_machine,
    Kernel: {
        "name": one_of(*(name for name in NAMES if name != "precomputed")), "params": _kernel_parameters,
        "centre": numbers("d", optional=True),
    },
    CalibratedWithErrorsCV: {
        "classes_": _labels, **_CALIBRATION, "estimator": pattern(Pipeline, *INNER),
        "estimator_": part(Pipeline, *INNER), "has_errors_": one_of(True, False),
    },
    ErrorBarClassifier: _error_bars,
    FeatureColumns: {
        "view": _view, "axes": numbers("dr"), "largest": numbers("d", low=0.0), "low": numbers("d"),
        "high": numbers("d"), "gaps": indices("g", below="d", rising=True),
        "limits": indices("l", below="d", rising=True),
    },
    OpinionPool: {
        "n_classes": _count("classes"), "members": _members, "weights": shares("tm"),
        "powers": numbers("t", low=0.0), "gate": _gate,
    },
    FittedMember: _member,
    # With features of spread 1, a fit tries no gamma that is nearly as large.
    ExpectedKernel: {"n_features": _half, "gamma": real(0.0, 1e6), "landmarks_": numbers("mq", most=FAR)},
    PopulationClassifier: {
        **_CLASSIFIER, "has_errors_": one_of(True, False), "populations_": _populations,
        "class_count_": numbers("c", above=0.0), "class_prior_": shares("c"),
    },
}  # fmt: skip
