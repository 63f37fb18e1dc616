"""Functions that are affine: transformers whose errors are known exactly, and the scores of linear classifiers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.given import AffineComponents, LowRank
from gaussguru._errors.parse import columns_of_errors, scaled
from gaussguru._errors.samples import PLAIN_ONLY, Measured
from gaussguru._guru.base import LinearScores
from gaussguru._guru.probabilities import places
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.frames import as_numbers, is_frame, like
from gaussguru._utils.linalg import Array, Index
from gaussguru._utils.types import ErrorBars, Values


@dataclass(frozen=True)
class AffineMap:
    """``x -> offset + A' (x - centre)``."""

    centre: Array
    offset: Array
    matrix: Values
    # The feature and the factor of each output, if every output has at most one feature, and no two the same.
    monomial: tuple[Index, Array] | None

    @classmethod
    def of(cls, function: Callable[[Any], Any], X: Values) -> "AffineMap":
        """Return the map of an affine function, from its values about the mean of X."""
        n_features = int(X.shape[1])
        if sp.issparse(X):
            centre = np.zeros(n_features)
            steps = np.asarray(abs(X).max(axis=0).toarray()).ravel().astype(np.float64)
        else:
            values = as_numbers(X, "X")
            centre = values.mean(axis=0)
            steps = np.sqrt(np.square(values - centre).mean(axis=0))
        # The spread of a constant feature is rounding, or 0.
        steps = np.where(steps > 1e-12 * np.abs(centre), steps, np.maximum(np.abs(centre), 1.0))

        def at(first: int, last: int) -> Values:
            if sp.issparse(X):
                rows = sp.csr_array(
                    (steps[first:last], (np.arange(last - first), np.arange(first, last))),
                    shape=(max(last - first, 1), n_features),
                )
                return function(sp.csr_matrix(rows) if sp.isspmatrix(X) else rows)
            probe = np.tile(centre, (max(last - first, 1), 1))
            probe[np.arange(last - first), np.arange(first, last)] += steps[first:last]
            return function(like(X, probe) if is_frame(X) else probe)

        offset = dense(at(0, 0)).reshape(-1)
        if not sp.issparse(X) and (factors := _scaling(function, X, centre, steps, offset)) is not None:
            return cls(centre, offset, sp.diags_array(factors).tocsr(), (np.arange(n_features), factors))
        parts = []
        for block in row_blocks(n_features, n_features):
            first, last = block.start, block.stop
            moved = at(first, last)
            if sp.issparse(moved) and not offset.any():
                parts.append(sp.diags_array(1.0 / steps[first:last]) @ moved)
            else:
                moved = dense(moved).reshape(last - first, -1)
                parts.append((moved - offset) / steps[first:last, np.newaxis])
        matrix = sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)
        return cls(centre, offset, matrix, _monomial(matrix))

    def __call__(self, X: object) -> Array:
        """Return the outputs for X, (n_samples, n_outputs)."""
        if sp.issparse(X):
            return np.asarray(dense(X @ self.matrix) + self.offset)
        return np.asarray((as_numbers(X, "X") - self.centre) @ self.matrix + self.offset)

    def check(self, X: Values, values: Values, source: object) -> None:
        """Raise unless ``values`` are the outputs of the map for X, to rounding."""
        eps = max(_precision(X), _precision(values))
        largest = (
            abs(X).max(axis=0).toarray().ravel()
            if sp.issparse(X)
            else np.abs(as_numbers(X, "X") - self.centre).max(axis=0)
        )
        slopes = abs(self.matrix)
        allowed = np.sqrt(eps) * (largest @ slopes + np.abs(self.offset)) + 100 * eps * (np.abs(self.centre) @ slopes)
        if sp.issparse(values) and not self.offset.any():
            difference = abs(values - X @ self.matrix).max(axis=0).toarray().ravel()
        else:
            difference = np.abs(dense(values).reshape(X.shape[0], -1) - self(X)).max(axis=0)
        if not np.all(difference <= allowed):
            raise ValueError(
                f"{source} is not affine on X, so it has no exact rule for Gaussian errors; errors go through scalers, "
                "linear maps and the selection of columns"
            )

    @property
    def method(self) -> str:
        """The name of the rule, for ``method_``."""
        return "affine"

    @property
    def keeps_gaps(self) -> bool:
        """Whether outputs of missing values are missing: every output has one feature."""
        return self.monomial is not None

    @property
    def sources(self) -> Index:
        """The feature of every output, -1 for none, if gaps are kept."""
        assert self.monomial is not None
        source, factors = self.monomial
        return np.where(factors == 0, -1, source)

    @property
    def directions(self) -> tuple[Index, NDArray[np.int8] | None]:
        """The feature of every output, and whether it rises (+1) or falls with it; None where limits cannot pass."""
        if self.monomial is None:
            return np.zeros(0, dtype=np.intp), None
        source, factors = self.monomial
        return source, np.sign(factors).astype(np.int8)

    def apply(self, transformer: BaseEstimator, X: object, X_err: object) -> tuple[Values, ErrorBars]:
        """Return the outputs of the transformer of this map, and their errors."""
        transformed = transformer.transform(X)
        self.check(X, transformed, transformer)
        return transformed, self.carry(X_err)

    def with_components(self, samples: Measured, components: object, transformer: BaseEstimator, X: object) -> Measured:
        """Return transformed samples with the mixtures of the values before, transformed."""
        A = dense(self.matrix)
        return Measured.checked(samples.X, samples.err, AffineComponents(components, A, self.offset - self.centre @ A))

    def carry(self, X_err: ErrorBars) -> ErrorBars:
        """Return the errors of the outputs for values with these errors."""
        if self.monomial is not None:
            source, factors = self.monomial
            return scaled(columns_of_errors(X_err, source), factors)
        A = dense(self.matrix)
        n_out = A.shape[1]
        if isinstance(X_err, LowRank):
            factors = np.einsum("ijr,jk->ikr", X_err.factors, A, optimize=True)
            if X_err.std.any():
                factors = np.concatenate([factors, A.T[np.newaxis] * X_err.std[:, np.newaxis, :]], axis=2)
            return LowRank(factors, np.zeros(factors.shape[:2]))
        if not sp.issparse(X_err):
            if X_err.ndim == 1:
                product = A.T @ A
                level = np.trace(product) / n_out
                if np.abs(product - level * np.eye(n_out)).max() <= 1e-12 * level:
                    return X_err * np.sqrt(level)
                return np.square(X_err)[:, np.newaxis, np.newaxis] * product
            if X_err.ndim == 3:
                return np.einsum("jk,ijl,lm->ikm", A, X_err, A, optimize=True)
        squares = X_err.multiply(X_err) if sp.issparse(X_err) else np.square(X_err)
        covariances = np.empty((squares.shape[0], n_out, n_out))
        for k, column in enumerate(A.T):
            weighted = squares.multiply(column).tocsr() if sp.issparse(squares) else squares * column
            covariances[:, k] = weighted @ A
        return covariances


def _scaling(function: Callable[[Any], Any], X: object, centre: Array, steps: Array, offset: Array) -> Array | None:
    """Return the factors of a function that scales feature by feature, or None for any other.

    Random subsets of the features are moved by a step. If each output depends on its feature alone, it has one of two
    values, to the last bit: with this feature moved, or not. Any other map does the same at 64 random subsets with a
    probability of 2^-64. (A matrix takes a point for each feature.)
    """
    if len(offset) != len(centre):
        return None
    moved = np.random.default_rng(0).random((64, len(centre))) < 0.5
    probe = np.concatenate([centre + steps * moved, (centre + steps)[np.newaxis]])
    values = dense(function(like(X, probe) if is_frame(X) else probe)).reshape(len(probe), -1)
    if not np.array_equal(values[:-1], np.where(moved, values[-1], offset)):
        return None
    factors: Array = (values[-1] - offset) / steps
    return factors


def _monomial(matrix: object) -> tuple[Index, Array] | None:
    entries = sp.csc_array(matrix)
    entries.eliminate_zeros()
    per_output = np.diff(entries.indptr)
    per_input = np.bincount(entries.indices, minlength=1)
    if per_output.max(initial=0) > 1 or per_input.max() > 1:
        return None
    source, factors = np.zeros(len(per_output), dtype=np.intp), np.zeros(len(per_output))
    source[per_output == 1], factors[per_output == 1] = entries.indices, entries.data
    return source, factors


def dense(values: Values) -> Array:
    """Return an array of float64."""
    return values.toarray().astype(np.float64, copy=False) if sp.issparse(values) else as_numbers(values, "values")


def _precision(table: Values) -> float:
    dtype = np.dtype(np.float64) if is_frame(table) else table.dtype
    return float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


class NotLinearError(TypeError, ValueError):
    """The scores of a classifier are not linear in X, or it has none: the effect of noise has no closed form."""


def linear_scores(estimator: BaseEstimator, X: object) -> tuple[Array, Array]:
    """Return the scores of the samples, and the coefficients of a decision function that is affine in X."""
    check_is_fitted(estimator)
    final = final_estimator(estimator)
    if not hasattr(estimator, "decision_function"):
        raise NotLinearError(
            f"estimator must be a linear classifier with a decision_function; got {type(final).__name__}. For others "
            "there is robustness_curve(..., method='sampling')"
        )
    if getattr(final, "has_errors_", False):
        raise NotLinearError(
            f"estimator must have scores that depend on X alone; those of {type(final).__name__} depend on the error "
            "bars, too. For any classifier there is robustness_curve(..., method='sampling')"
        )
    if isinstance(estimator, LinearScores):  # linear by its type; a test takes the square of the number of features
        return np.asarray(estimator.decision_function(X), dtype=np.float64), estimator.coef_
    table = as_table(X)
    scores = np.asarray(estimator.decision_function(X))
    affine = AffineMap.of(estimator.decision_function, table)
    try:
        affine.check(table, scores, final)
    except ValueError:
        raise NotLinearError(
            f"estimator must have scores that are linear in X; those of {type(final).__name__} are not. For any "
            "classifier there is robustness_curve(..., method='sampling')"
        ) from None
    matrix = affine.matrix.toarray() if sp.issparse(affine.matrix) else affine.matrix
    exact = estimator.coef_ if estimator is final and hasattr(final, "coef_") else matrix.T
    return scores.astype(np.float64, copy=False), np.atleast_2d(np.asarray(exact, dtype=np.float64))


def as_table(X: object) -> Values:
    """Return X as an array, if it is neither a sparse matrix nor a DataFrame; refuse values with errors."""
    if isinstance(X, Measured):
        raise TypeError(PLAIN_ONLY)
    return X if sp.issparse(X) or is_frame(X) else np.asarray(X)


def true_labels(model: BaseEstimator, y: object, n_samples: int) -> Index:
    """Return the number of the class of each sample; raise unless a fitted model knows all labels."""
    classes = final_estimator(model).classes_
    labels, known = places(classes, y, n_samples)
    if not known.all():
        raise ValueError(f"y must hold labels among the classes {classes.tolist()!r}")
    return labels


def final_estimator(estimator: BaseEstimator) -> Any:
    """Return the last step of a pipeline, of the best estimator of a search, or the estimator itself."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return final_estimator(estimator[-1]) if isinstance(estimator, Pipeline) else estimator
