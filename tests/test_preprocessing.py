"""Error bars through pipelines and searches, from tables and from replicates."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
import skops.io
from scipy.integrate import quad
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.utils.estimator_checks import check_estimator
from support.error_bars import conditional
from uncertainties import ufloat

from gaussguru import GuruClassifier
from gaussguru._errors.checks import check_errors
from gaussguru._errors.samples import split_errors
from gaussguru.errors import Limits, LowRank, Measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import (
    WithErrors,
    curved,
    errors_from_frame,
    errors_from_uncertainties,
    noise_from_replicates,
)

N, D = 40, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)) * [1.0, 20.0, 0.1, 3.0] + [0.0, 500.0, 1.0, -2.0]
Y = (X[:, 0] + 0.3 * RNG.standard_normal(N) > 0).astype(int)
STD = RNG.random((N, D)) * (RNG.random((N, D)) < 0.8)
FACTORS = RNG.standard_normal((N, D, 2))
COVARIANCES = FACTORS @ FACTORS.transpose(0, 2, 1) + np.einsum("ij,jk->ijk", STD**2, np.eye(D))
ERRORS = {
    "per sample": STD[:, 0],
    "diagonal": STD,
    "list": STD.tolist(),
    "frame": pd.DataFrame(STD),
    "csr": sp.csr_array(STD),
    "covariances": COVARIANCES,
    "low rank": LowRank(FACTORS, STD),
    "low rank, one": LowRank(FACTORS, STD[:, 0]),
    "common causes": LowRank(FACTORS),
}
MAPS = {
    "nothing": None,
    "standard": StandardScaler(),
    "min-max": MinMaxScaler(),
    "robust": RobustScaler(),
    "pca": PCA(3),
    "whitened": PCA(2, whiten=True),
    "select": SelectKBest(k=2),
    "columns": ColumnTransformer([("a", StandardScaler(), [2]), ("b", "passthrough", [0, 3])]),
    "chain": make_pipeline(StandardScaler(), PCA(2)),
}
every_error = pytest.mark.parametrize("name", ERRORS)
every_map = pytest.mark.parametrize("inner", MAPS.values(), ids=MAPS.keys())


class Recorder(ClassifierMixin, BaseEstimator):
    """A stand-in that keeps what it was given, and scores by it."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def fit(self, X, y, X_err=None):
        X, X_err = split_errors(X, X_err)
        self.classes_ = np.unique(y)
        self.X_, self.X_err_ = X, X_err
        return self

    def predict(self, X):
        X, _ = split_errors(X)
        return np.full(X.shape[0], self.classes_[0])

    def score(self, X, y, sample_weight=None, X_err=None):
        X, X_err = split_errors(X, X_err)
        seen = np.sum(np.asarray(self.X_) ** 2) + self.factor * np.sum(np.asarray(self.X_err_))
        return float(seen + np.sum(np.asarray(X)) + self.factor * np.sum(np.asarray(X_err) ** 2))


def covariances(X_err, X):
    errors = check_errors(split_errors(X, X_err)[1], X)
    return np.array([errors.covariance(i) for i in range(len(X))])


@every_error
@every_map
def test_errors_transform_as_the_map_does(inner, name):
    """The noise that a transformer makes of a draw of the noise has the covariance that comes out."""
    carrier = WithErrors(inner).fit(X, Y)
    values = carrier.transform(X)
    result = carrier.transform(X, ERRORS[name])
    np.testing.assert_array_equal(result.X, values)
    # An affine map of unit steps, from the transformer itself.
    plain = FunctionTransformer() if inner is None else clone(inner).fit(X, Y)
    matrix = np.array([(plain.transform(X + step) - plain.transform(X))[0] for step in np.eye(D)])
    expected = np.einsum("jk,ijl,lm->ikm", matrix, covariances(ERRORS[name], X), matrix)
    ours = covariances(result.err, values)
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(carrier.matrix_, matrix, rtol=1e-8, atol=1e-10 * np.abs(matrix).max())


class Counting(StandardScaler):
    """A scaler that counts the rows that it transforms."""

    rows = 0

    def transform(self, X, copy=None):
        type(self).rows += len(X)
        return super().transform(X, copy)


def test_scaling_is_found_from_few_rows():
    """Time and memory of scaling are not those of the square of the number of features."""
    wide = np.random.default_rng(0).standard_normal((5, 20_000))
    errors = np.abs(wide)
    carrier = WithErrors(Counting()).fit(wide)
    assert Counting.rows < 100
    result = carrier.transform(wide, errors)
    np.testing.assert_allclose(result.err, errors / wide.std(axis=0), rtol=1e-12)
    held = [value for value in vars(carrier._map).values() if hasattr(value, "nbytes")]
    assert sum(value.nbytes for value in held) < 1e6


def test_other_maps_are_not_taken_for_scaling():
    order = FunctionTransformer(lambda X: X[:, ::-1])
    np.testing.assert_allclose(WithErrors(order).fit_transform(X, X_err=STD).err, STD[:, ::-1], rtol=1e-12)
    faint = np.eye(D)
    faint[0, 1] = 1e-9
    mixed = WithErrors(FunctionTransformer(lambda X: X @ faint)).fit(X)
    np.testing.assert_allclose(mixed.matrix_[0, 1], 1e-9, rtol=1e-3)
    for bent in (np.sign, np.exp, np.square):  # each output has its own feature, and no factor
        with pytest.raises(ValueError, match="not affine"):
            WithErrors(FunctionTransformer(bent), method="affine").fit_transform(X[:, [0]], X_err=STD[:, [0]])


def test_forms_that_stay():
    """Independent errors stay so where no feature meets another, and isotropic ones under a rotation."""
    assert WithErrors(StandardScaler()).fit_transform(X, X_err=STD).err.shape == (N, D)
    assert WithErrors(SelectKBest(k=2)).fit_transform(X, Y, X_err=STD).err.shape == (N, 2)
    assert WithErrors(PCA(3)).fit_transform(X, X_err=STD[:, 0]).err.shape == (N,)
    assert WithErrors(PCA(3)).fit_transform(X, X_err=STD).err.shape == (N, 3, 3)
    assert sp.issparse(WithErrors(MaxAbsScaler()).fit_transform(X, X_err=sp.csr_array(STD)).err)
    assert isinstance(WithErrors(PCA(2)).fit_transform(X, X_err=LowRank(FACTORS)).err, LowRank)


@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("inner", [MaxAbsScaler(), StandardScaler(with_mean=False), TruncatedSVD(2), SelectKBest(k=2)])
def test_sparse_features(container, inner):
    dense = X * (STD > 0)
    ours = WithErrors(inner).fit_transform(container(dense), Y, X_err=sp.csr_array(STD))
    plain = clone(inner).fit(container(dense), Y)
    matrix = np.vstack([np.asarray(part.toarray() if sp.issparse(part) else part)
                        for part in [plain.transform(container(np.eye(D)))]])  # fmt: skip
    expected = np.einsum("jk,ij,jm->ikm", matrix, STD**2, matrix)
    np.testing.assert_allclose(covariances(ours.err, np.zeros(ours.shape)), expected, atol=1e-10 * expected.max())
    assert sp.issparse(ours.X) == sp.issparse(plain.transform(container(dense)))


def test_float32_and_large_offsets():
    ours = WithErrors(StandardScaler()).fit_transform(X.astype(np.float32), X_err=STD)
    assert ours.X.dtype == np.float32
    np.testing.assert_allclose(ours.err, STD / X.std(axis=0), rtol=1e-4)
    far = X + 1e7
    np.testing.assert_allclose(
        WithErrors(StandardScaler()).fit_transform(far, X_err=STD).err, STD / far.std(axis=0), rtol=1e-6
    )
    constant = np.column_stack([X, np.full(N, 7.0)])
    errors = np.column_stack([STD, np.ones(N)])
    np.testing.assert_allclose(WithErrors(StandardScaler()).fit_transform(constant, X_err=errors).err[:, -1], 1.0)


def test_names_and_output():
    frame = pd.DataFrame(X, columns=list("abcd"))
    carrier = WithErrors(StandardScaler()).set_output(transform="pandas").fit(frame)
    assert carrier.get_feature_names_out().tolist() == list("abcd")
    result = carrier.transform(frame, STD)
    assert isinstance(result.X, pd.DataFrame)
    assert result.X.columns.tolist() == list("abcd")
    assert carrier.transform(frame).equals(result.X)
    assert WithErrors().fit(frame).get_feature_names_out().tolist() == list("abcd")
    pipe = make_pipeline(WithErrors(StandardScaler()), Recorder()).set_output(transform="pandas")
    assert pipe.fit(Measured(frame, STD), Y)[-1].X_.columns.tolist() == list("abcd")


def test_carriers_are_good_estimators():
    for inner in (None, StandardScaler(), PCA(1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of checks that are skipped
            check_estimator(WithErrors(inner))
    carrier = WithErrors(PCA(2)).fit(X)
    again = pickle.loads(pickle.dumps(carrier))
    np.testing.assert_array_equal(again.transform(X, STD).err, carrier.transform(X, STD).err)
    assert clone(carrier).get_params()["transformer__n_components"] == 2
    assert not hasattr(carrier.transformer, "components_")  # what was given is not changed
    with pytest.raises(NotFittedError):
        WithErrors().transform(X)


@pytest.mark.parametrize("inner", [Normalizer(), PolynomialFeatures(), FunctionTransformer(np.cbrt)])
def test_maps_that_are_not_affine(inner):
    with pytest.raises(ValueError, match=rf"{type(inner).__name__}.*not affine"):
        WithErrors(inner, method="affine").fit_transform(X, X_err=STD)


def test_a_map_that_is_not_affine_everywhere():
    carrier = WithErrors(MinMaxScaler(clip=True), method="affine").fit(X)
    carrier.transform(X, STD)
    with pytest.raises(ValueError, match="not affine"):
        carrier.transform(X + 100, STD)


# --- transformers that are not affine: means and spreads against simulation

M = 4000
RNG_POSITIVE = np.random.default_rng(3)
POSITIVE = np.exp(0.5 * RNG_POSITIVE.standard_normal((60, 3))) * [1.0, 5.0, 20.0]
SMALL = 0.15 * POSITIVE * RNG_POSITIVE.uniform(0.1, 1.0, POSITIVE.shape)
SMALL[:5, 0] = 0.0


def quotient(X):
    return np.asarray(X)[:, :-1] / np.asarray(X)[:, 1:]


def quantiles(**options):
    return QuantileTransformer(n_quantiles=60, **options)


CURVES = {
    "log": FunctionTransformer(np.log),
    "sqrt": FunctionTransformer(np.sqrt),
    "arcsinh": FunctionTransformer(np.arcsinh),
    "yeo-johnson": PowerTransformer(),
    "box-cox": PowerTransformer(method="box-cox"),
    "uniform": quantiles(),
    "chain": make_pipeline(FunctionTransformer(np.log), StandardScaler(), FunctionTransformer(np.tanh)),
    "one column": make_pipeline(FunctionTransformer(np.log), SelectKBest(k=1)),
    "splines": SplineTransformer(n_knots=4, extrapolation="continue"),
}
MIXED = {
    "squares": PolynomialFeatures(2),
    "cubes": PolynomialFeatures(3),
    "nystroem": make_pipeline(StandardScaler(), Nystroem(n_components=12, gamma=0.2, random_state=0)),
    "fourier": make_pipeline(StandardScaler(), RBFSampler(gamma=0.2, n_components=12, random_state=0)),
    "pca of squares": make_pipeline(StandardScaler(), PolynomialFeatures(2), PCA(3)),
    "quotients": FunctionTransformer(quotient),
    "unit length": Normalizer(),
    "union": FeatureUnion([("log", FunctionTransformer(np.log)), ("quotients", FunctionTransformer(quotient))]),
}


def simulated(transformer, X, noise):
    """Return mean and covariance of what a transformer makes of draws (M, n, d) of the noise."""
    values = transformer.transform((X + noise).reshape(-1, X.shape[1]))
    values = np.asarray(values.toarray() if sp.issparse(values) else values).reshape(len(noise), len(X), -1)
    apart = values - values.mean(axis=0)
    return values.mean(axis=0), np.einsum("qik,qil->ikl", apart, apart) / len(values)


def check_moments(carrier, result, X, noise, tolerance):
    """Means and covariances agree with a simulation, in units of the spread of an output."""
    mean, covariance = simulated(carrier.transformer_, X, noise)
    spread = np.maximum(mean.std(axis=0), 0.2 * mean.std(axis=0).max())
    np.testing.assert_allclose((result.X - mean) / spread, 0.0, atol=tolerance)
    ours = covariances(result.err, np.zeros(mean.shape))
    apart = (ours - covariance) / np.multiply.outer(spread, spread)
    np.testing.assert_allclose(apart, 0.0, atol=tolerance)


@pytest.mark.parametrize(("inner", "method"), [(t, "elementwise") for t in CURVES.values()]
                         + [(t, "cubature") for t in MIXED.values()], ids=[*CURVES, *MIXED])  # fmt: skip
def test_means_and_spreads_are_those_of_a_simulation(inner, method):
    carrier = WithErrors(inner).fit(POSITIVE, np.arange(60) % 2)
    assert carrier.method_ == method
    result = carrier.transform(POSITIVE, SMALL)
    normal = np.random.default_rng(0).standard_normal((M // 2, *POSITIVE.shape))
    # Splines have knots within an error bar, which 9 points see roughly.
    tolerance = 0.1 if isinstance(inner, SplineTransformer) else 0.06
    check_moments(carrier, result, POSITIVE, SMALL * np.concatenate([normal, -normal]), tolerance)
    exact = np.asarray(split_errors(carrier.transform(POSITIVE, 0 * SMALL))[0])
    plain = carrier.transform(POSITIVE)
    np.testing.assert_allclose(exact, plain.toarray() if sp.issparse(plain) else plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inner", [*list(CURVES.values())[:4], MIXED["squares"], MIXED["quotients"]])
def test_correlated_errors_through_curves(inner):
    """Of covariances and of common causes: correlations of outputs as in a simulation."""
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((60, 3, 2)) * SMALL[:, :, None] / 2
    covariance = factors @ factors.transpose(0, 2, 1) + np.eye(3) * np.square(SMALL / 2)[:, :, None]
    carrier = WithErrors(inner).fit(POSITIVE)
    a, b = rng.standard_normal((M, 60, 2)), rng.standard_normal((M, 60, 3))
    noise = np.einsum("ijr,qir->qij", factors, a) + SMALL / 2 * b
    for given in (covariance, LowRank(factors, SMALL / 2)):
        check_moments(carrier, carrier.transform(POSITIVE, given), POSITIVE, noise, 0.06)


def test_gauss_hermite_against_quadrature():
    """The logarithm of a value with an error of a fifth, to many digits."""
    carrier = WithErrors(FunctionTransformer(np.arcsinh)).fit(POSITIVE)
    result = carrier.transform(np.full((60, 3), 2.0), np.full((60, 3), 0.4))

    def moment(f):
        return quad(lambda t: f(np.arcsinh(2.0 + 0.4 * t)) * np.exp(-t * t / 2) / np.sqrt(2 * np.pi), -9, 9)[0]

    mean = moment(lambda v: v)
    np.testing.assert_allclose(result.X, mean, rtol=1e-6)
    np.testing.assert_allclose(result.err, np.sqrt(moment(lambda v: (v - mean) ** 2)), rtol=1e-5)


@every_error
@pytest.mark.parametrize("method", ["auto", "cubature"])
def test_cubature_is_exact_for_affine_maps_and_for_means_of_quadratics(method, name):
    carrier = WithErrors(PCA(3), method="cubature").fit(X)
    exact = WithErrors(PCA(3)).fit(X).transform(X, ERRORS[name])
    ours = carrier.transform(X, ERRORS[name])
    np.testing.assert_allclose(ours.X, exact.X, atol=1e-9)
    np.testing.assert_allclose(covariances(ours.err, exact.X), covariances(exact.err, exact.X), rtol=1e-8, atol=1e-8)
    squares = WithErrors(PolynomialFeatures(2), method=method).fit(X)
    moments = np.einsum("ij,ik->ijk", X, X) + covariances(ERRORS[name], X)
    rows, columns = np.triu_indices(D)
    expected = np.column_stack([np.ones(N), X, moments[:, rows, columns]])
    np.testing.assert_allclose(squares.transform(X, ERRORS[name]).X, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("form", ["diagonal", "covariances"])
def test_cubature_is_exact_for_covariances_of_quadratics_of_few_features(form, d):
    rng = np.random.default_rng(d)
    values, root = rng.normal(size=(6, d)), rng.normal(size=(6, d, d))
    std = np.abs(root[:, 0])
    S = std[:, :, np.newaxis] * std[:, np.newaxis] * np.eye(d) if form == "diagonal" else root @ root.transpose(0, 2, 1)
    A = rng.normal(size=(2, d, d))
    A += A.transpose(0, 2, 1)
    function = FunctionTransformer(lambda X: np.einsum("ij,ajk,ik->ia", X, A, X))
    found = WithErrors(function).fit(values).transform(values, std if form == "diagonal" else S)
    mean = function.transform(values) + np.einsum("ajk,ikj->ia", A, S)
    slopes = 2 * np.einsum("ajk,ik->iaj", A, values)
    expected = np.einsum("iaj,ijk,ibk->iab", slopes, S, slopes) + 2 * np.einsum("ajk,ikl,blm,imj->iab", A, S, A, S)
    np.testing.assert_allclose(found.X, mean, rtol=1e-9)
    np.testing.assert_allclose(covariances(found.err, found.X), expected, rtol=1e-7)


def test_methods_and_names():
    assert WithErrors(StandardScaler()).fit(X).method_ == "affine"
    curve = WithErrors(FunctionTransformer(np.arcsinh, feature_names_out="one-to-one")).set_output(transform="pandas")
    frame = pd.DataFrame(POSITIVE, columns=list("abc"), index=np.arange(60) + 5)
    found = curve.fit_transform(frame, X_err=SMALL)
    assert found.X.columns.tolist() == curve.get_feature_names_out().tolist() == list("abc")
    assert found.X.index.tolist() == frame.index.tolist()
    np.testing.assert_allclose(found.err, WithErrors(FunctionTransformer(np.arcsinh)).fit(POSITIVE)
                               .transform(POSITIVE, SMALL).err)  # fmt: skip
    with pytest.raises(AttributeError, match="not affine"):
        _ = curve.matrix_
    with pytest.raises(ValueError, match="method must be one of"):
        WithErrors(method="exact").fit(X)
    with pytest.raises(ValueError, match="needs a dense X"):
        WithErrors(MaxAbsScaler(), method="cubature").fit(sp.csr_array(X))
    single = WithErrors(FunctionTransformer(np.arcsinh)).fit_transform(POSITIVE.astype(np.float32), X_err=SMALL)
    assert single.X.dtype == np.float32
    np.testing.assert_allclose(single.err, found.err, rtol=1e-3, atol=1e-6)
    sparse, full = (
        WithErrors(SplineTransformer(n_knots=3, sparse_output=sparse)).fit_transform(POSITIVE, X_err=SMALL)
        for sparse in (True, False)
    )
    np.testing.assert_allclose(sparse.X, full.X, atol=1e-12)
    np.testing.assert_allclose(sparse.err, full.err, atol=1e-12)


def test_curves_are_good_estimators():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checks that are skipped
        check_estimator(WithErrors(PolynomialFeatures(2)))


@pytest.mark.parametrize("inner", [PowerTransformer(), PolynomialFeatures(2), SplineTransformer()])
def test_curves_are_stored(inner):
    carrier = WithErrors(inner).fit(POSITIVE)
    expected = covariances(carrier.transform(POSITIVE, SMALL).err, np.zeros(carrier.transform(POSITIVE).shape))
    again = pickle.loads(pickle.dumps(carrier))
    np.testing.assert_array_equal(
        covariances(again.transform(POSITIVE, SMALL).err, np.zeros(expected.shape[:2])), expected
    )
    archive = skops.io.dumps(carrier)
    again = skops.io.loads(archive, trusted=skops.io.get_untrusted_types(data=archive))
    np.testing.assert_array_equal(
        covariances(again.transform(POSITIVE, SMALL).err, np.zeros(expected.shape[:2])), expected
    )


def test_a_fit_that_raises_changes_nothing():
    carrier = WithErrors(FunctionTransformer(np.log)).fit(POSITIVE)
    before = dict(vars(carrier))
    carrier.set_params(method="nothing")
    with pytest.raises(ValueError, match="method"):
        carrier.fit(POSITIVE[:, :2])
    assert {**before, "method": "nothing"} == vars(carrier)


def test_branches_of_a_column_transformer_have_their_own_errors():
    """What shares no feature is independent, exactly; what does is correlated."""
    branches = ColumnTransformer([
        ("log", FunctionTransformer(np.log), [0]),
        ("scaled", StandardScaler(), [1]),
        ("colour", FunctionTransformer(lambda X: np.log(X[:, [0]] / X[:, [1]])), [1, 2]),
    ])  # fmt: skip
    carrier = WithErrors(branches).fit(POSITIVE)
    found = covariances(carrier.transform(POSITIVE, SMALL).err, POSITIVE)
    np.testing.assert_array_equal(found[:, 0, 1:], 0.0)
    alone = WithErrors(FunctionTransformer(np.log)).fit(POSITIVE[:, [0]]).transform(POSITIVE[:, [0]], SMALL[:, [0]])
    np.testing.assert_allclose(found[:, 0, 0], alone.err[:, 0] ** 2)
    np.testing.assert_allclose(found[:, 1, 1], (SMALL[:, 1] / POSITIVE[:, 1].std()) ** 2, rtol=1e-9)
    assert np.all(found[:, 1, 2] > 0)  # the feature that both have


def test_colours_of_common_bands_are_correlated():
    """Magnitudes m_j with independent errors: colours m_1 - m_2, m_2 - m_3 share the error of m_2, with a sign."""
    magnitudes, errors = -2.5 * np.log10(POSITIVE), 0.1 * np.abs(STD[:N, :3])
    carrier = WithErrors(FunctionTransformer(lambda m: m[:, :-1] - m[:, 1:])).fit(magnitudes)
    found = carrier.transform(magnitudes[:N], errors).err
    squares = errors**2
    expected = np.array([[[s[0] + s[1], -s[1]], [-s[1], s[1] + s[2]]] for s in squares])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # The same from fluxes, to first order in small errors.
    of_fluxes = WithErrors(FunctionTransformer(lambda f: -2.5 * np.log10(f[:, :-1] / f[:, 1:]))).fit(POSITIVE)
    small = np.abs(errors) * 0.01
    fluxes = of_fluxes.transform(POSITIVE[:N], small * POSITIVE[:N] * np.log(10) / 2.5).err
    np.testing.assert_allclose(fluxes, 1e-4 * expected, rtol=1e-3, atol=1e-9)


def test_memory_is_bounded(monkeypatch):
    """Where all covariances would be too large, variances are kept, and what correlates most."""
    inner = make_pipeline(StandardScaler(), Nystroem(n_components=30, gamma=0.2, random_state=0))
    carrier = WithErrors(inner).fit(POSITIVE)
    whole = covariances(carrier.transform(POSITIVE, SMALL).err, np.zeros((60, 30)))
    monkeypatch.setattr(curved, "MOST_STORED", 60 * 30 * 4)
    monkeypatch.setattr("gaussguru._utils.blocks.WORKING_BYTES", 1 << 17)
    part = carrier.transform(POSITIVE, SMALL).err
    assert part.factors.shape == (60, 30, 4)
    found = covariances(part, np.zeros((60, 30)))
    np.testing.assert_allclose(np.einsum("ikk->ik", found), np.einsum("ikk->ik", whole), rtol=1e-9, atol=1e-15)
    assert np.linalg.norm(found - whole) < 0.05 * np.linalg.norm(whole)


def test_where_a_function_has_no_value():
    """Close to 0 the logarithm is replaced by its slope; below, there is no answer."""
    values, errors = POSITIVE.copy(), SMALL.copy()
    values[3, 1], errors[3, 1] = 0.5, 2.0
    carrier = WithErrors(FunctionTransformer(np.log)).fit(POSITIVE)
    found = carrier.transform(values, errors)
    assert found.X[3, 1] == pytest.approx(np.log(0.5), abs=0.05)
    assert found.err[3, 1] == pytest.approx(2.0 / 0.5, rel=0.02)
    values[3, 1] = -0.5
    with pytest.raises(ValueError, match="makes nan of sample 3, in feature 1 of its output"):
        carrier.transform(values, errors)
    with pytest.raises(ValueError, match="strictly positive"):
        WithErrors(PowerTransformer(method="box-cox")).fit(POSITIVE).transform(POSITIVE, 2 * POSITIVE)


def test_steps_are_known_roughly():
    """Bins: the probability to be in each, to the distance between two points of the rule."""
    inner = KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf")
    carrier = WithErrors(inner).fit(POSITIVE)
    found = carrier.transform(POSITIVE, SMALL)
    np.testing.assert_allclose(found.X.sum(axis=1), 3.0)
    noise = SMALL * np.random.default_rng(0).standard_normal((M, *POSITIVE.shape))
    mean, _ = simulated(carrier.transformer_, POSITIVE, noise)
    assert np.abs(found.X - mean).max() < 0.25
    assert np.abs(found.X - mean).mean() < 0.03


def test_values_beyond_the_range_of_a_quantile_transform_are_not_exact():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2000, 1))
    carrier = WithErrors(QuantileTransformer(output_distribution="normal")).fit(values)
    top, edge = values.max(), np.quantile(values, 0.95)
    far = np.array([[top + 1.0], [top + 100.0], [-50.0]])
    found = carrier.transform(far, np.array([[0.01], [0.5], [0.5]]))
    np.testing.assert_allclose(found.X[:2], carrier.transformer_.transform([[top]])[0, 0], rtol=1e-9)
    slope = (carrier.transformer_.transform([[top]]) - carrier.transformer_.transform([[edge]]))[0, 0] / (top - edge)
    np.testing.assert_allclose(found.err[:2, 0], [0.01 * slope, 0.5 * slope], rtol=1e-9)
    assert found.err[2, 0] > 0.4
    # In the middle of the range, where the transform is nearly the identity, errors stay what they are.
    middle = carrier.transform([[0.0]], [[0.2]])
    assert middle.err[0, 0] == pytest.approx(0.2, rel=0.1)
    # A scaler that is told to cut off keeps the errors that it has inside.
    clipped = WithErrors(MinMaxScaler(clip=True)).fit(values)
    assert clipped.method_ == "elementwise"
    inside, outside = clipped.transform([[0.0], [9.0]], [[0.1], [0.1]]).err[:, 0]
    assert outside == pytest.approx(inside) == pytest.approx(0.1 / np.ptp(values))


def test_deconvolution_after_a_quantile_transform():
    """Heavy tails: with the transform, posterior means are closer to the truth than measured values."""
    rng = np.random.default_rng(0)
    truth = np.exp(rng.standard_normal((3000, 2)) @ [[1.0, 0.6], [0.0, 0.8]])
    errors = rng.uniform(0.05, 1.5, truth.shape) * np.quantile(truth, 0.7, axis=0)
    X = truth + errors * rng.standard_normal(truth.shape)
    carrier = WithErrors(QuantileTransformer(output_distribution="normal", n_quantiles=500)).fit(X, X_err=errors)
    seen = carrier.transform(X, errors)
    found = Deconvolve().fit_transform(seen)
    assert np.isfinite(found.X).all()
    wanted = carrier.transformer_.transform(truth)
    measured = carrier.transformer_.transform(X)
    assert np.abs(found.X - wanted).mean() < 0.8 * np.abs(measured - wanted).mean()
    # Where posteriors are widest, the truth is further away.
    spread = np.sqrt(found.err[:, 0, 0])
    off = np.abs(found.X - wanted)[:, 0]
    assert off[spread > np.median(spread)].mean() > 1.3 * off[spread <= np.median(spread)].mean()


def test_unmeasured_values_and_limits_through_curves():
    values, errors = POSITIVE.copy(), SMALL.copy()
    values[3, 1] = np.nan
    errors[4, 2] = np.inf
    log = WithErrors(FunctionTransformer(np.log)).fit(values, X_err=errors)
    found = log.transform(values, errors)
    lost = np.zeros(values.shape, dtype=bool)
    lost[3, 1] = lost[4, 2] = True
    np.testing.assert_array_equal(np.isinf(found.err), lost)
    assert np.isfinite(found.X).all()
    expected = log.transform(POSITIVE, SMALL)
    np.testing.assert_allclose(found.X[~lost], expected.X[~lost])
    np.testing.assert_allclose(found.err[~lost], expected.err[~lost])
    # A map that mixes features gets what is known of the missing ones.
    squares = WithErrors(PolynomialFeatures(2)).fit(values, X_err=errors)
    mixed = squares.transform(values, errors)
    filled, covariance = conditional(squares.population_, values, errors)
    np.testing.assert_allclose(mixed.X[:, 1:4], filled, rtol=1e-7)
    moments = np.einsum("ij,ik->ijk", filled, filled) + covariance
    np.testing.assert_allclose(mixed.X[:, 4:], moments[:, *np.triu_indices(3)], rtol=1e-6)
    # A limit stays one, on the other side where the function falls.
    sides = np.zeros(POSITIVE.shape)
    sides[0, 0], sides[1, 1] = -1, 1
    falling = WithErrors(FunctionTransformer(lambda X: 1 / X)).fit(POSITIVE)
    limits = falling.transform(POSITIVE, Limits(SMALL, sides))
    np.testing.assert_array_equal(limits.err.limits, -sides)
    np.testing.assert_allclose(limits.X[0, 0], 1 / POSITIVE[0, 0])
    waves = WithErrors(FunctionTransformer(np.sin)).fit(POSITIVE)
    with pytest.raises(ValueError, match="does not rise or fall"):
        waves.transform(POSITIVE, Limits(SMALL, sides))


def test_mixtures_go_through_affine_maps():
    """Scores of scaled mixtures are those of mixtures."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.standard_normal((100, 3)), 4 + rng.standard_normal((100, 3))])
    found = Deconvolve(2).fit_transform(values, X_err=np.full(values.shape, 0.5))
    carrier = WithErrors(PCA(2)).fit(found.X)
    ours = carrier.transform(found)
    W, b = rng.standard_normal((2, 2)), np.array([0.3, -1.0])
    inner = carrier.transformer_.components_
    expected = found.components.scores(W @ inner, b - W @ inner @ carrier.transformer_.mean_)
    for mine, theirs in zip(ours.components.scores(W, b), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    np.testing.assert_array_equal(ours[5:9].components.weights, found.components.weights[5:9])
    assert WithErrors(FunctionTransformer(np.arcsinh)).fit(found.X).transform(found).components is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["square", "arctan", "product"])
def test_every_component_of_a_mixture_goes_through_a_curved_map(name, dtype):
    """Means and covariances as in a simulation; those of one Gaussian with the same moments have spreads 40 % off."""
    rng = np.random.default_rng(0)
    truth = np.concatenate([rng.standard_normal((200, 2)), 4 + 0.5 * rng.standard_normal((200, 2))])
    err = rng.uniform(0.2, 2.5, truth.shape)
    values = (truth + err * rng.standard_normal(truth.shape)).astype(dtype)
    posterior = Deconvolve(2).fit(values, X_err=err).transform(values, err)
    maps = {
        "square": np.square,
        "arctan": np.arctan,
        "product": lambda X: np.column_stack([X[:, 0] * X[:, 1], X[:, 0]]),
    }
    found = WithErrors(FunctionTransformer(maps[name])).fit(posterior).transform(posterior)
    assert found.X.dtype == dtype
    shares, (means, noise) = posterior.components.weights, posterior.components.scores(np.eye(2))
    # Where both components have a share.
    for i in np.argsort(np.abs(shares[:, 0] - 0.5))[:8]:
        chosen = rng.choice(2, 40_000, p=shares[i])
        draws = [rng.multivariate_normal(m, V, 40_000) for m, V in zip(means[i], noise[i], strict=True)]
        outputs = maps[name](np.where(chosen[:, np.newaxis] == 0, *draws))
        spread = outputs.std(axis=0)
        np.testing.assert_allclose(found.X[i], outputs.mean(axis=0), atol=0.03 * spread.max())
        np.testing.assert_allclose(found.err[i] / np.outer(spread, spread), np.corrcoef(outputs.T), atol=0.1)
    assert found.err.shape == (400, 2, 2)


def test_curves_in_a_pipeline_with_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(WithErrors(PowerTransformer()), Recorder().set_fit_request(X_err=False))
        pipe.fit(POSITIVE, np.arange(60) % 2, X_err=SMALL)
    expected = WithErrors(PowerTransformer()).fit_transform(POSITIVE, X_err=SMALL)
    np.testing.assert_array_equal(pipe[-1].X_err_, expected.err)


# --- what was not measured


def unmeasured():
    errors, values = STD.copy(), X.copy()
    errors[3, 1] = errors[5, 2] = errors[7] = np.inf
    values[~np.isfinite(errors)] = np.nan
    return values, errors


def test_unmeasured_values_do_not_count_in_scales():
    values, errors = unmeasured()
    carrier = WithErrors(StandardScaler()).fit(values, X_err=errors)
    known = np.isfinite(errors)
    means = [values[known[:, j], j].mean() for j in range(D)]
    np.testing.assert_allclose(carrier.transformer_.mean_, means)
    np.testing.assert_allclose(carrier.transformer_.scale_, [values[known[:, j], j].std() for j in range(D)])
    result = carrier.transform(values, errors)
    assert np.isfinite(result.X).all()
    np.testing.assert_array_equal(np.isinf(result.err), ~known)
    np.testing.assert_array_equal(carrier.transform(values, STD).err, result.err)  # NaN says the same
    cov = np.einsum("ij,jk->ijk", np.where(known, errors, 0.0) ** 2, np.eye(D))
    rows, columns = np.nonzero(~known)
    cov[rows, columns, columns] = np.inf
    both = WithErrors(StandardScaler()).fit_transform(values, X_err=cov).err
    np.testing.assert_allclose(np.sqrt(np.einsum("ijj->ij", both)), result.err)


def test_unmeasured_values_get_what_is_known_where_features_mix():
    values, errors = unmeasured()
    carrier = WithErrors(PCA(2)).fit(values, X_err=errors)
    filled, covariances = conditional(carrier.population_, values, errors)
    np.testing.assert_allclose(carrier.transform(values, errors).X, PCA(2).fit_transform(filled), atol=1e-9)
    found = check_errors(carrier.transform(values, errors).err, filled[:, :2])
    expected = carrier.transform(filled, covariances).err
    np.testing.assert_allclose([found.covariance(i) for i in range(N)], expected, atol=1e-7)


def test_not_measured_and_not_said():
    values, _ = unmeasured()
    with pytest.raises(ValueError, match="X contains NaN"):
        WithErrors(StandardScaler()).fit_transform(values)
    with pytest.raises(ValueError, match="feature 0 was measured for no sample"):
        WithErrors().fit(X, X_err=np.full(N, np.inf))
    with pytest.raises(ValueError, match="needs a dense X"):
        WithErrors().fit(sp.csr_array(X), X_err=np.full(N, np.inf))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (-STD, "nonnegative"),
        (STD[:5], r"got shape \(5, 4\)"),
        (STD * np.nan, "X_err has NaN"),
        (COVARIANCES[:, :2], r"covariances of shape \(40, 4, 4\).*got shape \(40, 2, 4\)"),
        (LowRank(FACTORS[:, :2]), "X_err.factors must have shape"),
    ],
)
def test_bad_errors(bad, message):
    with pytest.raises(ValueError, match=message):
        WithErrors(StandardScaler()).fit(X).transform(X, bad)


# --- pipelines, searches, cross-validation

FOLDS = StratifiedKFold(3)


def by_hand(factor, errors):
    """Return what a hand-written loop over the folds makes of the recorder."""
    scores = []
    for train, test in FOLDS.split(X, Y):
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        model = Recorder(factor).fit((X[train] - mean) / scale, Y[train], errors[train] / scale)
        scores.append(model.score((X[test] - mean) / scale, Y[test], X_err=errors[test] / scale))
    return scores


@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("request_too", [True, False])
def test_search_over_a_pipeline_with_routing(frame, request_too):
    table = pd.DataFrame(X, columns=list("abcd")) if frame else X
    with sklearn.config_context(enable_metadata_routing=True):
        # Whether the classifier asks as well does not matter: what X carries wins.
        last = Recorder().set_fit_request(X_err=request_too).set_score_request(X_err=request_too)
        pipe = make_pipeline(WithErrors(StandardScaler()), last)
        search = GridSearchCV(pipe, {"recorder__factor": [1.0, 5.0]}, cv=FOLDS, error_score="raise")
        search.fit(table, Y, X_err=STD)
        for i, factor in enumerate([1.0, 5.0]):
            ours = [search.cv_results_[f"split{k}_test_score"][i] for k in range(3)]
            np.testing.assert_allclose(ours, by_hand(factor, STD), rtol=1e-10)
        found = search.best_estimator_[-1]
        np.testing.assert_allclose(found.X_err_, STD / X.std(axis=0), rtol=1e-10)
        scores = cross_validate(clone(pipe), table, Y, cv=FOLDS, params={"X_err": STD}, error_score="raise")
        np.testing.assert_allclose(scores["test_score"], by_hand(1.0, STD), rtol=1e-10)


@every_error
def test_search_without_routing(name):
    """Values and errors in one argument go through folds in step, whatever the form of the errors."""
    pipe = make_pipeline(WithErrors(StandardScaler()), WithErrors(PCA(2)), Keeper())
    X_err = np.asarray(ERRORS[name]) if name == "list" else ERRORS[name]
    search = GridSearchCV(pipe, {"witherrors-2__transformer__n_components": [1, 2]}, cv=FOLDS, error_score="raise")
    search.fit(Measured(X, ERRORS[name]), Y)
    for n_components in (1, 2):
        for k, (train, test) in enumerate(FOLDS.split(X, Y)):
            model = clone(pipe).set_params(**{"witherrors-2__transformer__n_components": n_components})
            model.fit(Measured(X[train], split_rows(X_err, train)), Y[train])
            expected = model.score(Measured(X[test], split_rows(X_err, test)), Y[test])
            assert search.cv_results_[f"split{k}_test_score"][n_components - 1] == pytest.approx(expected, rel=1e-12)


def split_rows(errors, rows):
    return errors.iloc[rows] if hasattr(errors, "iloc") else errors[rows]


class Keeper(Recorder):
    """Scores by the errors of what it was fitted to and of what it is asked."""

    def score(self, X, y):
        X, X_err = split_errors(X)
        trained, asked = (
            np.abs(covariances(err, np.asarray(of))).sum() for err, of in ((self.X_err_, self.X_), (X_err, X))
        )
        return trained + 3 * asked


def test_calibration_of_a_pipeline():
    """A calibrated classifier passes on the rows of values and errors together."""
    calibrated = CalibratedClassifierCV(make_pipeline(WithErrors(StandardScaler()), Scorer()), cv=FOLDS)
    calibrated.fit(Measured(X, STD), Y)
    for fitted, (train, _) in zip(calibrated.calibrated_classifiers_, FOLDS.split(X, Y), strict=True):
        np.testing.assert_allclose(fitted.estimator[-1].X_err_, STD[train] / X[train].std(axis=0), rtol=1e-10)
    assert calibrated.predict_proba(X).shape == (N, 2)


class Scorer(Recorder):
    def decision_function(self, X):
        return np.asarray(split_errors(X)[0])[:, 0]


def guru_by_hand(sigma, errors, train, test):
    """Return a classifier of scaled features and errors, and its expected accuracy on a fold."""
    mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
    clf = GuruClassifier(sigma, tol=1e-10).fit((X[train] - mean) / scale, Y[train], X_err=errors[train] / scale)
    return clf, clf.score((X[test] - mean) / scale, Y[test], X_err=errors[test] / scale)


def test_guru_in_a_search_gives_the_numbers_of_a_loop():
    sigmas = [0.1, 1.0]
    expected = [[guru_by_hand(sigma, STD, *fold)[1] for fold in FOLDS.split(X, Y)] for sigma in sigmas]
    grid = {"guruclassifier__sigma": sigmas}

    def check(search):
        ours = [search.cv_results_[f"split{k}_test_score"] for k in range(3)]
        np.testing.assert_allclose(np.transpose(ours), expected, rtol=1e-6)
        everything = np.arange(N)
        best, _ = guru_by_hand(search.best_params_["guruclassifier__sigma"], STD, everything, everything)
        np.testing.assert_allclose(search.best_estimator_[-1].coef_, best.coef_, rtol=1e-4, atol=1e-6)

    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(tol=1e-10))
        check(GridSearchCV(pipe, grid, cv=FOLDS, error_score="raise").fit(X, Y, X_err=STD))
        one = cross_validate(pipe.set_params(guruclassifier__sigma=0.1), X, Y, cv=FOLDS, params={"X_err": STD})
        np.testing.assert_allclose(one["test_score"], expected[0], rtol=1e-6)
        calibrated = CalibratedClassifierCV(pipe, cv=FOLDS).fit(X, Y, X_err=STD)
        assert_calibrated(calibrated)
    pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(tol=1e-10))
    check(GridSearchCV(pipe, grid, cv=FOLDS, error_score="raise").fit(Measured(X, STD), Y))
    pipe.set_params(guruclassifier__sigma=0.1)
    assert_calibrated(CalibratedClassifierCV(pipe, cv=FOLDS).fit(Measured(X, STD), Y))


def assert_calibrated(calibrated):
    for part, fold in zip(calibrated.calibrated_classifiers_, FOLDS.split(X, Y), strict=True):
        clf, _ = guru_by_hand(0.1, STD, *fold)
        np.testing.assert_allclose(part.estimator[-1].coef_, clf.coef_, rtol=1e-4, atol=1e-6)


def test_unmeasured_values_through_a_pipeline():
    """Scaling leaves them unmeasured: the classifier fills in what it would have without a pipeline."""
    values, errors = unmeasured()
    pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.5, tol=1e-10)).fit(Measured(values, errors), Y)
    known = np.isfinite(errors)
    means = np.array([values[known[:, j], j].mean() for j in range(D)])
    spreads = np.array([values[known[:, j], j].std() for j in range(D)])
    clf = GuruClassifier(0.5, tol=1e-10).fit((values - means) / spreads, Y, X_err=errors / spreads)
    np.testing.assert_allclose(pipe[-1].coef_, clf.coef_, rtol=1e-4, atol=1e-6)
    ours = pipe.predict_proba(Measured(values, errors))
    theirs = clf.predict_proba((values - means) / spreads, errors / spreads)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-9)


def test_errors_are_not_lost_silently():
    both = Measured(X, STD)
    for model in (LogisticRegression(), make_pipeline(WithErrors(StandardScaler()), LogisticRegression())):
        with pytest.raises(TypeError, match=r"would drop them.*WithErrors"):
            model.fit(both, Y)
    with pytest.raises(TypeError, match="would drop them"):
        make_pipeline(WithErrors(), StandardScaler(), Recorder()).fit(both, Y)
    make_pipeline(WithErrors(StandardScaler()), LogisticRegression()).fit(X, Y)


def test_classifier_takes_what_a_pipeline_carries():
    pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.5)).fit(X, Y)
    scale = X.std(axis=0)
    inner, scaled = pipe[-1], (X - X.mean(axis=0)) / scale
    expected = inner.predict_proba(scaled, STD / scale)
    np.testing.assert_allclose(pipe.predict_proba(Measured(X, STD)), expected, rtol=1e-9)
    assert pipe.score(Measured(X, STD), Y) == pytest.approx(inner.score(scaled, Y, X_err=STD / scale), rel=1e-12)
    np.testing.assert_array_equal(pipe.predict(Measured(X, STD)), pipe.predict(X))
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.5)).fit(X, Y)
        np.testing.assert_allclose(pipe.predict_proba(X, X_err=STD), expected, rtol=1e-9)
        assert pipe.score(X, Y, X_err=STD) == pytest.approx(inner.score(scaled, Y, X_err=STD / scale), rel=1e-12)


def test_measured():
    both = Measured(pd.DataFrame(X), STD)
    assert both.shape == (N, D)
    assert len(both[:7]) == 7
    np.testing.assert_array_equal(both[np.array([3, 1])].err, STD[[3, 1]])
    np.testing.assert_array_equal(both[Y == 1].X, X[Y == 1])
    with pytest.raises(ValueError, match="for the 40 samples"):
        Measured(X, STD[:3])
    with pytest.raises(ValueError, match="two dimensions"):
        Measured(X[0], STD[0])


# --- tables


def table():
    return pd.DataFrame(
        {"flux": [1.0, np.nan], "flux_err": [0.1, 0.2], "id_err": [0, 1], "id": [3, 4], "exact": [5, 6]}
    )


def test_frames():
    values, errors = errors_from_frame(table())
    assert values.columns.tolist() == errors.columns.tolist() == ["flux", "id", "exact"]
    np.testing.assert_array_equal(errors, [[0.1, 0, 0], [np.inf, 1, 0]])
    renamed = table().rename(columns=lambda name: name.replace("_err", " +-"))
    for convention in ("{x} +-", "auto"):
        np.testing.assert_array_equal(errors_from_frame(renamed, convention)[1], errors)
    result = WithErrors(StandardScaler()).fit_transform(values, X_err=errors)
    assert np.isinf(result.err[1, 0])
    indexed = table().set_index(pd.Index([7, 9]))
    assert errors_from_frame(indexed)[1].index.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("frame", "convention", "error", "message"),
    [
        (table(), "{x}_sigma", ValueError, r"no column of errors for convention='{x}_sigma'.*flux"),
        (table(), "Gaia", ValueError, r"no column of errors for convention='Gaia'.*flux"),
        (table().drop(columns="flux"), "{x}_err", ValueError, "'flux_err' looks like errors of a column 'flux'"),
        (table().drop(columns="flux"), "auto", ValueError, "'flux_err' looks like errors of a column 'flux'"),
        (table().assign(flux=["a", "b"]), "auto", ValueError, "column 'flux' does not"),
        (table(), "", ValueError, "convention must be"),
        (table(), "{x}", ValueError, "{x} once, and more"),
        (table().assign(flux_err=[-0.1, 1]), "auto", ValueError, "'flux_err' has -0.1 in row 1; expected are nonneg"),
        (table().assign(flux_err=np.nan), "auto", ValueError, "'flux_err' has nan in row 1; expected is an error for"),
        (table().to_numpy(), "auto", TypeError, "DataFrame; got ndarray"),
        (pd.concat([table(), table()], axis=1), "auto", ValueError, "more than once"),
    ],
)
def test_bad_frames(frame, convention, error, message):
    with pytest.raises(error, match=message):
        errors_from_frame(frame, convention)


def test_uncertainties():
    twice = 2 * ufloat(1.5, 0.2)  # computed from others, as most are
    numbers = np.array([[ufloat(1.0, 0.1), 2.0], [twice, ufloat(4, 5)]], dtype=object)
    for form in (lambda a: a, lambda a: a.tolist(), pd.DataFrame):
        values, errors = errors_from_uncertainties(form(numbers))
        np.testing.assert_array_equal(values, [[1, 2], [3, 4]])
        np.testing.assert_array_equal(errors, [[0.1, 0], [0.4, 5]])
    assert errors_from_uncertainties(pd.DataFrame(numbers, columns=["a", "b"]))[1].columns.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="two dimensions"):
        errors_from_uncertainties(numbers[0])
    with pytest.raises(ValueError, match="must hold numbers"):
        errors_from_uncertainties([["a", "b"]])


# --- replicates


def test_replicates_by_hand():
    values = np.array([[1.0, 2.0], [3.0, 2.0], [0.0, 5.0], [0.0, 9.0], [4.0, 4.0]])
    noise = noise_from_replicates(values, ["a", "a", "b", "b", "c"])
    assert noise.degrees_of_freedom == 2
    np.testing.assert_allclose(noise.covariance, [[1.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(noise.std, [1.0, 2.0])
    assert noise.sigma == pytest.approx(np.sqrt(2.5))


def test_replicates_are_unbiased_and_know_their_errors():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((5, 5))
    C = root @ root.T
    groups = np.repeat(np.arange(30), rng.integers(1, 5, 30))
    centres = 1e6 + 100 * rng.standard_normal((30, 5))
    runs = [
        noise_from_replicates(centres[groups] + rng.standard_normal((len(groups), 5)) @ root.T, groups)
        for _ in range(1500)
    ]
    assert runs[0].degrees_of_freedom == len(groups) - 30
    truth = {"covariance": C, "std": np.sqrt(np.diag(C)), "sigma": np.sqrt(np.trace(C) / 5)}
    for name, value in truth.items():
        found = np.array([getattr(run, name) for run in runs])
        claimed = np.sqrt(np.mean([np.square(getattr(run, f"{name}_error")) for run in runs], axis=0))
        spread = found.std(axis=0)
        if name == "covariance":  # a square root is biased a little
            assert np.all(np.abs(found.mean(axis=0) - value) <= 5 * spread / np.sqrt(len(runs)))
        np.testing.assert_allclose(claimed, spread, rtol=0.12)


def test_replicates_in_other_units_and_order():
    groups = np.arange(N) // 3
    noise, order = noise_from_replicates(X, groups), np.random.default_rng(0).permutation(N)
    other = noise_from_replicates(pd.DataFrame(-2 * X[order] + 5), groups[order])
    np.testing.assert_allclose(other.covariance, 4 * noise.covariance, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([other.sigma, other.sigma_error], [2 * noise.sigma, 2 * noise.sigma_error])
    exact = noise_from_replicates(np.ones((4, 2)), [0, 0, 1, 1])
    assert (exact.sigma, exact.sigma_error) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.arange(N), "measured twice; got 40"),
        (np.zeros(3), "40 samples of X; got 3"),
        (np.where(np.arange(N) == 1, np.nan, 0.0), "groups has NaN"),
    ],
)
def test_bad_replicates(groups, message):
    with pytest.raises(ValueError, match=message):
        noise_from_replicates(X, groups)
    with pytest.raises(ValueError, match="X contains infinity"):
        noise_from_replicates(np.full_like(X, np.inf), groups)


@pytest.mark.parametrize(
    "column", ["e_flux", "flux_sigma", "fluxErr", "sigma_flux", "Unc_flux", "FLUX_ERROR", "flux ±"]
)
def test_errors_by_another_name_are_recognised(column):
    table = pd.DataFrame({"flux": [1.0, 2.0], column: [0.1, 0.2], "width": 1.0, "width_err": 0.1})
    X, X_err = errors_from_frame(table)
    assert X.columns.tolist() == ["flux", "width"]
    np.testing.assert_array_equal(X_err, [[0.1, 0.1], [0.2, 0.1]])


def test_identifiers_and_flags_of_a_frame_are_left_out_with_a_warning():
    table = pd.DataFrame({"source_id": [7, 8], "flux": [1.0, 2.0], "flux_err": 0.1, "flux_flag": [0, 1]})
    with pytest.warns(UserWarning, match=r"left out of X and X_err: 'flux_flag' \(flag.*'source_id' \(identifier\)"):
        X, _ = errors_from_frame(table)
    assert X.columns.tolist() == ["flux"]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_correlations_of_a_frame_make_covariances(library):
    table = {"pmra": [1.0, 2.0], "pmra_error": [0.1, 0.2], "pmdec": [3.0, np.nan], "pmdec_error": [0.5, 0.4]}
    X, covariances = errors_from_frame(library({**table, "pmra_pmdec_corr": [0.6, 0.0]}))
    np.testing.assert_allclose(np.asarray(X), [[1, 3], [2, np.nan]])
    np.testing.assert_allclose(covariances, [[[0.01, 0.03], [0.03, 0.25]], [[0.04, 0], [0, np.inf]]])


def test_limits_and_sides_of_a_frame_are_those_of_its_archive():
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0], "xerr1": [0.1, 0.2, np.nan], "xerr2": [-0.3, -0.2, np.nan]})
    _, limits = errors_from_frame(table.assign(xlim=[0, -1, 1]))
    np.testing.assert_array_equal(limits.sides, [[0], [1], [-1]])  # 1 is an upper limit in this archive
    np.testing.assert_array_equal(limits.err.upper, [[0.1], [0.2], [0.0]])
    np.testing.assert_array_equal(limits.err.lower, [[0.3], [0.2], [0.0]])


def test_a_column_of_text_is_named():
    table = pd.DataFrame({"flux": [1.0, 2.0], "flux_err": [0.1, 0.2], "kind": ["a", "b"]})
    with pytest.raises(ValueError, match=r"column 'kind'.*labels = frame.pop\('kind'\)"):
        errors_from_frame(table)


@pytest.mark.parametrize("value", [1.7, -3.0, 0.0])
def test_errors_of_a_constant_feature_are_carried(value):
    """That its measured values are the same does not make them exact."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.full(50, value), rng.normal(size=50)])
    found = WithErrors(FunctionTransformer(np.exp)).fit_transform(X, X_err=np.full((50, 2), 0.1))
    draws = np.exp(value + 0.1 * rng.standard_normal(200_000))
    np.testing.assert_allclose(found.err[:, 0], draws.std(), rtol=0.02)
    np.testing.assert_allclose(np.asarray(found.X)[:, 0], draws.mean(), rtol=0.01)


def test_a_tail_that_fades_out_is_not_taken_for_one_that_is_cut_off():
    X = np.linspace(-150.0, 0.0, 60)[:, np.newaxis]
    found = WithErrors(FunctionTransformer(np.exp)).fit_transform(X, X_err=np.full((60, 1), 0.1))
    np.testing.assert_allclose(found.err[:, 0], np.exp(X[:, 0]) * 0.1, rtol=0.02)


@pytest.mark.parametrize("empty", [None, np.nan, "", b""])
def test_marks_of_limits_may_be_empty_cells_or_bytes(empty):
    """pandas has NaN for an empty cell, and astropy has bytes for the text of a FITS file."""
    mark = b">" if isinstance(empty, bytes) else ">"
    frame = pd.DataFrame({"mag": [1.0, 2.0], "e_mag": [0.1, np.nan], "l_mag": np.array([empty, mark], dtype=object)})
    X, X_err = errors_from_frame(frame)
    assert list(X) == ["mag"]
    np.testing.assert_array_equal(X_err.limits, [[0.0], [1.0]])
    np.testing.assert_array_equal(X_err.err, [[0.1], [0.0]])


@pytest.mark.parametrize("number", [-9999.0, 99.99, 1e30])
@pytest.mark.parametrize("column", ["flux", "flux_err"])
def test_numbers_that_stand_for_no_value_are_named(number, column):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"flux": rng.normal(size=30), "flux_err": rng.uniform(0.1, 0.2, size=30)})
    errors_from_frame(frame)
    frame.loc[3:5, column] = number
    if number < 0 and column == "flux_err":
        with pytest.raises(ValueError, match="-9999"):
            errors_from_frame(frame)
        return
    with pytest.warns(UserWarning, match=rf"stand for no value: {number:.15g} in '{column}'".replace("+", r"\+")):
        errors_from_frame(frame)
