"""Checks of samples, labels and weights: every error names the argument, the value and the valid ones."""

import math
import numbers
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from gaussguru._errors.conventions import named_as_errors
from gaussguru._rows.rows import canonical
from gaussguru._utils.blocks import MANY_VALUES
from gaussguru._utils.checks import check_real, outside
from gaussguru._utils.frames import (
    check_unmasked,
    column_names,
    column_values,
    refuse_times,
    take_rows,
    text_columns,
    unmasked,
)
from gaussguru._utils.linalg import EPS, Array, Index, aligned
from gaussguru._utils.types import Estimator, Labels, MixedArray, Values


class Samples(NamedTuple):
    """Checked training data: X ready for :class:`gaussguru._rows.rows.Rows`, classes, and class and weight of each row.

    With two classes ``labels`` says which rows have the second; ``weights`` is None where all are 1.
    """

    X: Values
    classes: MixedArray
    labels: NDArray[np.bool_] | NDArray[np.int32]
    weights: Array | None

    @property
    def width(self) -> int:
        """How many scores a row has: one, or with more than two classes one for each."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def all_weights(self) -> Array:
        """The weight of every sample, 1 where none were given."""
        return np.ones(len(self.labels)) if self.weights is None else self.weights


def check_columns(X: object, *, measured: bool = True, categories: bool = False) -> None:
    """Raise if a DataFrame for a fit has columns that are named as the errors of others, or (no categories) of text.

    An estimator that is not for measured values only warns of errors: spreads may be features of its own.
    """
    names = column_names(X)
    if names is None:
        return
    if errors := named_as_errors(names.tolist()):
        message = (
            f"X has columns that are named as the errors of others, {errors[:3]!r}: X, X_err = "
            "gaussguru.preprocessing.errors_from_frame(X) takes them apart; to use them as features, give X.to_numpy() "
            "or other names"
        )
        if measured:
            raise ValueError(message)
        warnings.warn(message, stacklevel=outside())
    for column in () if categories else text_columns(X):
        values = column_values(X, int(column))
        try:
            values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"X must hold numbers; column {str(names[column])!r} has {values[0]!r:.40}, ...: leave out or encode "
                f"it, beside errors in gaussguru.preprocessing.WithErrors(ColumnTransformer(...)); marks of limits "
                f"('<0.5') and errors ('3 ± 0.1') belong into columns of their own: {error}"
            ) from None


def value_beyond_others(X: Array) -> tuple[int, int, float] | None:
    """Return row and column of a value beside which the others of its column are lost in sums of squares, or None.

    The third number is the spread of the others, of which there are ten times as many as of such values.
    """
    for j, column in enumerate(X.T):
        sizes = np.abs(column)
        largest = np.fmax.reduce(sizes, initial=0.0)
        if not 0 < largest < np.inf or largest <= np.nanmedian(sizes) / np.sqrt(EPS):
            continue
        far = sizes > largest / 10
        others = column[sizes <= largest / 10]
        unit = np.abs(others).max(initial=0.0) or 1.0
        spread = float((others / unit).std() * unit) if len(others) else 0.0
        if len(others) >= 10 * far.sum() and 0 < spread < largest * np.sqrt(EPS):
            return int(np.argmax(far)), j, spread
    return None


def warn_of_values_beyond_others(X: Array, known: NDArray[np.bool_]) -> None:
    """Warn of a value beside which the others of its feature are lost; ``known`` is a mask of the values to look at."""
    if (lost := value_beyond_others(X if known.all() else np.where(known, X, np.nan))) is not None:
        i, j, spread = lost
        warnings.warn(
            f"X has {X[i, j]:g} in row {i} of feature {j}, beside which the other values, with a spread of "
            f"{spread:.3g}, are lost: if it stands for no value, use NaN",
            stacklevel=outside(),
        )


def check_features(X: Values, *, estimator: Estimator = None, reset: bool = False, lazy: bool = False) -> Values:
    """Return X as C-contiguous or canonical CSR, float32 or float64; copied only where it is neither."""
    if _is_plain(X, estimator, reset=reset):
        if estimator is not None and reset:
            estimator.n_features_in_ = X.shape[1]
        return np.ascontiguousarray(X)
    X = unmasked(X, "X")
    kind = getattr(getattr(X, "dtype", None), "kind", None)
    if kind == "c":
        raise ValueError(f"Complex data not supported: X must hold real numbers; got dtype {X.dtype}")
    if kind in ("U", "S"):
        raise ValueError(f"X must hold numbers; got strings (dtype {X.dtype})")
    size = X.nnz if sp.issparse(X) else np.size(X) if hasattr(X, "shape") else 0
    # NaN and infinity in much data are found by the first pass of the solver.
    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    options["ensure_all_finite"] = not (lazy and size > MANY_VALUES)
    try:
        return validated(estimator, X, reset=reset, measured=False, **options)
    except ValueError as error:
        if "could not convert" in str(error):
            raise ValueError(f"X must hold numbers; {error}") from error
        raise


def validated(estimator: Any, X: Any, *, reset: bool, measured: bool = True, **options: Any) -> Any:
    """Return X as aligned numbers that scikit-learn compares with those of the fit of an estimator, if there is one.

    With ``reset`` the estimator learns number and names of the features.
    """
    if reset:
        check_columns(X, measured=measured)
    refuse_times(X, "X")
    if estimator is None:
        return canonical(check_array(X, order="C", input_name="X", **options))
    return canonical(validate_data(estimator, X, reset=reset, order="C", **options))


def _is_plain(X: object, estimator: BaseEstimator, *, reset: bool) -> bool:
    """Return whether scikit-learn would accept X without a change of values, and learn its number of features only.

    Its own checks take 0.07 ms, an eighth of a small fit. These accept finite arrays of floats that are not large;
    everything else, and every message, is left to scikit-learn.
    """
    if (
        type(X) is not np.ndarray
        or X.dtype not in (np.float64, np.float32)
        or X.ndim != 2
        or not X.flags.aligned
        or not 0 < X.size <= MANY_VALUES
    ):
        return False
    known = {} if estimator is None else estimator.__dict__
    if "feature_names_in_" in known or not (estimator is None or reset or known.get("n_features_in_") == X.shape[1]):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(X.sum())


def check_samples(
    X: Any, y: Any, sample_weight: Any = None, class_weight: object = None, *, estimator: Any = None, reset: bool = True
) -> Samples:
    """Return checked training data."""
    if y is None:
        raise ValueError("y is required: this estimator requires y to be passed, but the target y is None")
    X = check_features(X, estimator=estimator, reset=reset, lazy=True)
    classes, labels = encode_labels(y)
    _check_lengths(X, labels)
    weights = check_weights(sample_weight, X.shape[0])
    totals = _totals(labels, weights, len(classes))
    check_classes(classes, totals)
    factors = class_factors(class_weight, classes, totals)
    return Samples(X, classes, labels, _times_factors(weights, labels, factors))


def check_part(
    X: Any, y: Any, sample_weight: Any, class_weight: object, *, estimator: BaseEstimator, classes: object, first: bool
) -> Samples:
    """Return checked training data of which more may come; ``classes`` are all labels that may occur."""
    if first and classes is None:
        raise ValueError("classes must be given in the first call of partial_fit: all labels that will ever occur")
    known = estimator.classes_ if classes is None else encode_labels(classes)[0]
    if not first and not np.array_equal(known, estimator.classes_):
        earlier = estimator.classes_.tolist()
        raise ValueError(f"classes must be those of the first call, {earlier!r}; got {known.tolist()!r}")
    X = check_features(X, estimator=estimator, reset=first, lazy=True)
    check_unmasked(y, "y")
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    # Two classes are compared rather than searched for: much quicker.
    labels = y == known[1] if len(known) == 2 else np.searchsorted(known[1:], y, side="right").astype(np.int32)
    unknown = y != known[labels.astype(np.intp)]
    if np.any(unknown):
        strange = np.unique(y[unknown]).tolist()
        raise ValueError(f"y must hold labels among the classes {known.tolist()!r}; got {strange!r}")
    _check_lengths(X, labels)
    weights = check_weights(sample_weight, X.shape[0])
    factors = class_factors(class_weight, known, [1.0] * len(known))
    return Samples(X, known, labels, _times_factors(weights, labels, factors))


def _check_lengths(X: Values, labels: MixedArray) -> None:
    if X.shape[0] != len(labels):
        raise ValueError(f"X and y must have the same number of samples; got {X.shape[0]} and {len(labels)}")


def _times_factors(weights: Array | None, labels: MixedArray, factors: list[float]) -> Array | None:
    """Return the weights of the samples times those of their classes."""
    if all(factor == 1 for factor in factors):
        return weights
    of_class = np.array(factors)[labels.astype(np.intp)]
    return of_class if weights is None else weights * of_class


def _totals(labels: MixedArray, weights: Array | None, n_classes: int) -> list[float]:
    """Return the weight of every class."""
    if weights is None and n_classes == 2:
        positive = float(np.count_nonzero(labels))
        return [len(labels) - positive, positive]
    totals: list[float] = np.bincount(labels, weights, n_classes).astype(np.float64).tolist()
    return totals


def explain_not_finite(X: object) -> ValueError:
    """Return the error that a solver's :class:`NotFiniteError` deserves."""
    try:
        assert_all_finite(X, input_name="X")
    except ValueError as error:
        return error
    return ValueError("X has values whose squares overflow or underflow; rescale X and sigma together")


def encode_labels(y: Labels) -> tuple[MixedArray, MixedArray]:
    """Return the classes, sorted, and the place of every sample's class among them; of two, whether it is the second.

    Sorting a million labels to find two takes longer than a fit, so numbers are compared with the first one.
    """
    if type(y) is not np.ndarray or y.ndim != 1:
        check_unmasked(y, "y")
        y = column_or_1d(y, warn=True)
    if y.size and y.dtype.kind in "biu":
        other = y != y[0]
        first = int(other.argmax())
        if other[first] and np.count_nonzero(other) == np.count_nonzero(y == y[first]):
            classes = np.array([y[0], y[first]])
            return (classes, other) if classes[0] < classes[1] else (classes[::-1], ~other)
    assert_all_finite(y, input_name="y")
    check_label_kind(y)
    classes, labels = np.unique(y, return_inverse=True)
    check_classes(classes)
    return classes, labels.astype(bool) if len(classes) == 2 else labels.astype(np.int32)


def check_label_kind(y: MixedArray) -> None:
    """Raise unless labels can be those of classes."""
    try:
        check_classification_targets(y)
    except ValueError as error:
        raise ValueError(f"y must hold the labels of classes. {error}") from error


def check_classes(classes: MixedArray, totals: Iterable[float] = ()) -> None:
    """Raise unless there are two classes or more, and their total weights, if given, are positive."""
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes; got one class: {classes.tolist()!r}")
    for label, total in zip(classes.tolist(), totals, strict=False):
        if total == 0:
            raise ValueError(f"sample_weight must leave every class; class {label!r} has no sample of positive weight")


def check_weights(sample_weight: object, n_samples: int) -> Array | None:
    """Return the weights of the samples, or None where there are none."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real):
        return np.full(n_samples, check_real("sample_weight", sample_weight))
    check_unmasked(sample_weight, "sample_weight")
    weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (n_samples,):
        raise ValueError(f"sample_weight must have shape ({n_samples},), one number a sample; got shape {weight.shape}")
    if weight.min() < 0:
        raise ValueError(f"sample_weight must not be negative; got {weight.min():g}")
    if not weight.any():
        raise ValueError("sample_weight must have a positive number; got only zeros")
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if not 1e-100 < total < 1e100:
        raise ValueError(f"sample_weight must add up to something between 1e-100 and 1e100; got {total:g}")
    return np.asarray(aligned(weight))


def counted(weights: Array) -> Array:
    """Return positive weights as numbers of samples: those below 1 on average are relative, and become 1 on average."""
    return weights * max(1.0, len(weights) / float(weights.sum()))


def rows_of_each(values: Values, rows: Index, n_samples: int) -> Values:
    """Return rows of anything that has one for each of n samples; everything else as it is."""
    length = values.shape[0] if sp.issparse(values) else len(values) if hasattr(values, "__len__") else -1
    if length != n_samples or isinstance(values, str | dict):
        return values
    if isinstance(values, list | tuple):
        return [values[i] for i in np.arange(n_samples)[rows]]
    return take_rows(values, rows)


def class_factors(class_weight: object, classes: MixedArray, totals: list[float]) -> list[float]:
    """Return a factor on the weights of each class; "balanced" gives all the same total."""
    if class_weight is None:
        return [1.0] * len(classes)
    if isinstance(class_weight, str) and class_weight == "balanced":
        return [sum(totals) / (len(totals) * total) for total in totals]
    if isinstance(class_weight, dict):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise ValueError(f"class_weight has keys {unknown!r} that are not among the classes {classes.tolist()!r}")
        return [check_real(f"class_weight[{label!r}]", class_weight.get(label, 1.0)) for label in classes.tolist()]
    raise ValueError(f"class_weight must be None, 'balanced' or a dict from class to weight; got {class_weight!r}")
