"""A wrapper that propagates error bars through a transformer of scikit-learn."""

from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import Tags, assert_all_finite, check_array, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from gaussguru._errors.given import Limits
from gaussguru._errors.missing import has_unmeasured, unmeasured
from gaussguru._errors.parse import columns_of_errors, marked
from gaussguru._errors.samples import Measured, split_errors
from gaussguru._measured.affine import AffineMap, dense
from gaussguru._populations.em import population_of
from gaussguru._rows.validation import check_columns
from gaussguru._utils.checks import check_choice
from gaussguru._utils.frames import as_numbers, is_frame, like, numbers_beside_text, take_columns
from gaussguru._utils.linalg import Index
from gaussguru._utils.types import ErrorBars, Estimator, Labels, MixedArray, Record, Values
from gaussguru.preprocessing.branches import MeasuredBranches, allows_nan, exact_columns
from gaussguru.preprocessing.curved import CurvedMap, is_affine

_ARRAY_OPTIONS: Record = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}


class WithErrors(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Wrap a scikit-learn transformer so that error bars are propagated.

    *Affine transformers*, ``x -> c + A' x`` (scalers, PCA and other linear maps, column selection, and pipelines of
    these), have an exact rule: ``Sigma -> A' Sigma A``. ``A`` is found by transforming the mean of X and a step from it
    along each feature, and checked against the transformed X.

    *Any other transformer* f: the output values are means of ``f(x)`` under the errors, with the standard deviations or
    covariances of ``f(x)``, by evaluating f at several points around every sample. The fit finds which outputs depend
    on which features, so a ColumnTransformer or FeatureUnion inside (not around) has errors for each of its branches:

    * outputs of one feature (logarithms, power and quantile transforms, splines, bins) use the 9-point Gauss-Hermite
      rule; if errors are correlated, covariances of such outputs follow from their Hermite coefficients;
    * outputs of several features (ratios, products, PolynomialFeatures, Nystroem) use cubature with ``2 r`` points for
      r features, and at least 64.

    With error bars, ``transform`` returns :class:`gaussguru.Measured`, values and errors in one object, which
    the next ``WithErrors`` and all estimators of this library accept. Without error bars it returns the output of the
    transformer. With metadata routing, ``X_err`` is requested in ``fit`` and ``transform`` by default, so a pipeline
    needs only ``fit(X, y, X_err=...)``. Without routing, pass ``Measured(X, X_err)`` as X.

    Parameters
    ----------
    transformer : transformer, default=None
        None only attaches the errors.
    method : {"auto", "affine", "cubature"}, default="auto"
        "affine" raises if the transformer is not affine. "cubature" treats all features together.

    Attributes
    ----------
    transformer_ : transformer
        The fitted transformer.
    method_ : {"affine", "elementwise", "cubature"}
        How errors are propagated; "elementwise" if every output depends on one feature.
    matrix_ : array or sparse matrix of shape (n_features, n_features_out)
        ``A``, if the transformer is affine.
    population_ : gaussguru.errors.Population or None
        The Gaussian from which values that were not measured are filled; None for sparse X.

    Notes
    -----
    *Correlations.* Outputs that share features have correlated errors, as colours with a common band do. These are
    covariances, or :class:`gaussguru.errors.LowRank` if that takes less memory. Above 1 GB only the largest common
    causes are kept, and the rest of every variance is treated as independent. Independent errors stay independent if no
    output depends on two features and no two outputs on the same feature. Isotropic errors stay isotropic under an
    orthonormal map. Mixtures (``Measured.components``) go through affine maps; other maps give their means and
    covariances, to which every component contributes.

    *Undefined and clipped values.* Where f is undefined at a point, as a logarithm below 0, the slope of f at the
    measured value is used. Beyond the range of the fit, QuantileTransformer and others are constant, but a value there
    is not exact: its error is its own error times the mean slope of f over the outermost 5 % of the training samples.
    The value itself stays clipped. A transformer that jumps (bins) is integrated to within the distance of the points,
    half an error bar.

    *Categories.* Columns of text, and those that a ColumnTransformer gives to ``OneHotEncoder``, ``OrdinalEncoder`` or
    another encoder, are exact: their outputs have errors of 0. A DataFrame of errors may leave columns of text out.

    *Missing values and limits.* Values that were not measured (infinite errors) are ignored by transformers that can do
    so (scalers). If every output depends on a feature of its own, they stay unmeasured, and limits
    (:class:`gaussguru.errors.Limits`) stay limits if the outputs are monotonic. For any other map they are filled with
    their mean and covariance given the rest of the sample (:meth:`gaussguru.errors.Population.fill`).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import FunctionTransformer, StandardScaler
    >>> from gaussguru.preprocessing import WithErrors
    >>> X = np.array([[0.0, 10.0], [2.0, 30.0]])
    >>> WithErrors(StandardScaler()).fit_transform(X, X_err=np.array([[0.1, 1.0], [0.2, 5.0]])).err
    array([[0.1, 0.1],
           [0.2, 0.5]])

    Colours of three bands, with the error that two of them share:

    >>> colours = FunctionTransformer(lambda flux: -2.5 * np.log10(flux[:, :-1] / flux[:, 1:]))
    >>> flux = np.array([[10.0, 20.0, 40.0], [30.0, 30.0, 20.0]])
    >>> WithErrors(colours).fit_transform(flux, X_err=0.01 * flux).err[0].round(6)
    array([[ 0.000236, -0.000118],
           [-0.000118,  0.000236]])
    """

    __metadata_request__fit: ClassVar = {"X_err": True}
    __metadata_request__transform: ClassVar = {"X_err": True}

    def __init__(self, transformer: Estimator = None, method: str = "auto") -> None:
        self.transformer = transformer
        self.method = method

    def fit(self, X: Values, y: Labels = None, X_err: ErrorBars = None) -> Self:
        """Fit the transformer to X. Errors only mark values as not measured.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
        X_err : error bars of X, default=None

        Returns
        -------
        self
        """
        before = self.__dict__.copy()
        try:
            check_choice("method", self.method, ("auto", "affine", "cubature"))
            X, X_err = split_errors(X, X_err)
            X, X_err = self._as_table(X, reset=True), _without_limits(X_err)
            same = FunctionTransformer(accept_sparse=True, feature_names_out="one-to-one")
            inner = same if self.transformer is None else clone(self.transformer)
            self._exact = exact_columns(inner, X)
            if len(self._exact):
                self._fit_branches(inner, X, y, X_err, self._exact)
                return self
            self._check_finite(X, X_err)
            self.population_ = None if sp.issparse(X) else population_of(X, X_err)
            self.transformer_ = inner.fit(self._seen(inner, X, X_err), y)
            self._map = self._map_of(self.transformer_, self._fill(X, X_err, mixed=False)[0])
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def fit_transform(self, X: Values, y: Labels = None, X_err: ErrorBars = None) -> Values:
        """Fit the transformer, then transform X and its errors.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
        X_err : error bars of X, default=None

        Returns
        -------
        Measured, or the output of the transformer if there are no errors
        """
        return self.fit(X, y, X_err).transform(X, X_err)

    def transform(self, X: Values, X_err: ErrorBars = None) -> Values:
        """Transform X and its errors.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None

        Returns
        -------
        Measured, or the output of the transformer if there are no errors
        """
        check_is_fitted(self)
        components = getattr(X, "components", None)
        X, X_err = split_errors(X, X_err)
        X = self._as_table(X, reset=False)
        if X_err is None:
            self._check_finite(X, None)
            return self.transformer_.transform(X)
        if len(exact := exact_columns(self.transformer_, X)):
            part = MeasuredBranches.of(self.transformer_, X, exact)
            measured = self._carried(part, *part.measured_part(X, X_err))
            return Measured.checked(*part.joined_outputs(X, measured.X, measured.err))
        result = self._carried(self.transformer_, X, X_err)
        return result if components is None else self._map.with_components(result, components, self.transformer_, X)

    def _carried(self, transformer: Estimator, X: Values, X_err: ErrorBars) -> Measured:
        """Return the outputs of the transformer of the map, with their errors."""
        if isinstance(X_err, Limits):
            return self._apply_limits(transformer, X, X_err)
        self._check_finite(X, X_err)
        return self._apply(transformer, X, X_err)

    def _apply_limits(self, transformer: Estimator, X: Values, X_err: Limits) -> Measured:
        """Return transformed values and limits; an increasing function of a feature transforms its limits."""
        source, signs = self._map.directions
        if signs is None:
            raise ValueError(
                f"X_err holds limits, which cannot be carried through {self.transformer_}: it mixes features, or does "
                "not rise or fall with them. gaussguru.population.Deconvolve, before it, turns limits into values with "
                "errors"
            )
        sides = X_err.limits
        without = _without_limits(X_err)
        self._check_finite(X, without)
        result = self._apply(transformer, X, without)
        assert self.population_ is not None  # limits need a dense X
        at = like(X, np.where(sides == 0, self.population_.means, as_numbers(X, "X")))
        bounds = transformer.transform(at)
        limits = sides[:, source] * signs
        errors = np.where(sides == 0, 0.0, X_err.err)
        errors = self._map.apply(transformer, at, errors)[1]
        values = like(result.X, np.where(limits == 0, as_numbers(result.X, "X"), as_numbers(bounds, "X")))
        return Measured.checked(values, Limits(np.where(limits == 0, result.err, errors), limits))

    def _as_table(self, X: Values, *, reset: bool) -> Values:
        """Return X as an array, CSR matrix or DataFrame with the features of the fit."""
        X = X.tocsr() if sp.issparse(X) else X if is_frame(X) else check_array(X, **_ARRAY_OPTIONS)
        if reset:
            check_columns(X, categories=True)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    @staticmethod
    def _check_finite(X: Values, X_err: ErrorBars) -> None:
        """Raise unless measured values of X are finite; categories are checked by their encoders."""
        if has_unmeasured(X_err) and sp.issparse(X):
            raise ValueError("X_err has infinite errors, for what was not measured: that needs a dense X")
        values = X.data if sp.issparse(X) else numbers_beside_text(X)
        assert_all_finite(
            np.where(unmeasured(X_err, X.shape), 0.0, values) if has_unmeasured(X_err) else values, input_name="X"
        )

    def _fit_branches(self, inner: Estimator, X: Values, y: Labels, X_err: ErrorBars, exact: Index) -> None:
        """Fit a ColumnTransformer with exact columns, and the map of its measured branches."""
        columns = np.setdiff1d(np.arange(X.shape[1]), exact)
        if not len(columns):
            raise ValueError(
                "X must have a column that can have errors; got categories alone, which need no WithErrors"
            )
        measured = take_columns(X, columns)
        errors = None if X_err is None else columns_of_errors(X_err, columns)
        self._check_finite(measured, errors)
        self.population_ = population_of(measured, errors)
        fill = MeasuredBranches(inner, columns, columns, None).join
        self.transformer_ = inner.fit(fill(X, self._seen(inner, measured, errors)), y)
        part = MeasuredBranches.of(self.transformer_, X, exact)
        self._map = self._map_of(part, self._fill(measured, errors, mixed=False)[0])

    def _seen(self, transformer: Estimator, X: Values, X_err: ErrorBars) -> Values:
        """Return samples for the fit of a transformer: missing values are NaN if it allows NaN, else filled in."""
        if not has_unmeasured(X_err):
            return X
        if allows_nan(transformer):
            filled, _ = self._fill(X, X_err, mixed=False)
            return like(X, np.where(unmeasured(X_err, X.shape), np.nan, filled))
        return self._fill(X, X_err, mixed=True)[0]

    def _map_of(self, transformer: Estimator, X: Values) -> AffineMap | CurvedMap:
        function = transformer.transform
        if self.method == "cubature":
            if sp.issparse(X):
                raise ValueError("method='cubature' needs a dense X")
            return CurvedMap.of(function, X, joint=True)
        if self.method == "affine" or sp.issparse(X) or is_affine(function, X):
            return AffineMap.of(function, X)
        return CurvedMap.of(function, X)

    @property
    def method_(self) -> str:
        """How errors are propagated."""
        check_is_fitted(self)
        return self._map.method

    @property
    def _counts_errors(self) -> bool:
        """Whether the transformed values depend on the error bars."""
        return self.method_ != "affine"

    @property
    def matrix_(self) -> Any:
        """``A``, dense unless the transformer was fitted to a sparse X."""
        check_is_fitted(self)
        return self._map.matrix if self.population_ is None else dense(self._map.matrix)

    def _fill(self, X: Values, X_err: ErrorBars, *, mixed: bool) -> tuple[Values, ErrorBars]:
        """Return X and its errors, missing values filled in: given the rest of the sample if features are ``mixed``.

        Without mixing, a missing value changes no other output, and means and spreads of the features suffice.
        """
        if not has_unmeasured(X_err):
            return X, X_err
        if self.population_ is None:
            raise ValueError("X_err has infinite errors, for what was not measured: that needs a fit to a dense X")
        return self.population_.fill(X, X_err) if mixed else self.population_.fill_means(X, X_err)

    def _apply(self, transformer: Estimator, X: Values, X_err: ErrorBars) -> Measured:
        gaps = has_unmeasured(X_err)
        filled, errors = self._fill(X, X_err, mixed=not self._map.keeps_gaps)
        values, new_errors = self._map.apply(transformer, filled, errors)
        if gaps and self._map.keeps_gaps:
            lost = unmeasured(X_err, X.shape)[:, self._map.sources] & (self._map.sources >= 0)
            new_errors = marked(new_errors, lost)
        return Measured.checked(values, new_errors)

    def get_feature_names_out(self, input_features: object = None) -> MixedArray:
        """Return the names that the transformer gives to its features.

        Parameters
        ----------
        input_features : array-like of str, default=None

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        return np.asarray(self.transformer_.get_feature_names_out(input_features))

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container of the values, as in scikit-learn.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None

        Returns
        -------
        self
        """
        for inner in (self.transformer, getattr(self, "transformer_", None)):
            if inner is not None:
                inner.set_output(transform=transform)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if self.transformer is None:
            tags.input_tags.sparse = True
            return tags
        inner = get_tags(self.transformer)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.target_tags.required = inner.target_tags.required
        return tags


def _without_limits(X_err: ErrorBars) -> ErrorBars:
    """Return error bars that are infinite at limits."""
    return np.where(X_err.limits == 0, X_err.err, np.inf) if isinstance(X_err, Limits) else X_err
