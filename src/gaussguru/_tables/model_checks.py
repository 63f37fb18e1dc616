"""Whether the objects of a model file are those of a model: types, attributes, shapes and values.

Objects of known types are harmless to create, but predictions take for granted what a fit made of them, and compiled
code does not look again.
"""

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, RobustScaler, StandardScaler

from gaussguru._data.kernel_matrix import Kernel
from gaussguru._data.mixtures import FactorMixture, Mixture
from gaussguru._errors import Population
from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.error_bar import ErrorBarClassifier
from gaussguru._estimators.kernel import KernelGuruClassifier
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._estimators.probit import ProbitWithErrors
from gaussguru._estimators.validation import check_real
from gaussguru._tables.schema import LONGEST_LABEL
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.noise import Axis, Covariance, Isotropic, PerFeature, Shape
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import AffineMap, WithErrors
from gaussguru.preprocessing.curved import CurvedMap

CLASSIFIERS = (GuruClassifier, GuruClassifierCV, KernelGuruClassifier, ErrorBarClassifier, CalibratedWithErrorsCV)
NO_CLASSIFIER = "it holds no classifier of the features and labels of its card"


def check_estimator(estimator: Any, features: list[str], labels: Any, kind: str) -> None:
    """Raise unless an estimator has all that predictions ask for, as a fit makes it.

    Attributes that no prediction asks for may have any value, but not the name of a method.

    Parameters
    ----------
    estimator : what a model file holds
    features : list of str
        The names of its features, by its card.
    labels : list
        Its classes, by its card.
    kind : str
        Of the dtype of the classes.
    """
    _is(estimator, Pipeline)
    steps = [step for _, step in _of(estimator, "steps", list)]
    if not 1 <= len(steps) <= 3 or not isinstance(steps[-1], CLASSIFIERS):
        raise ValueError(NO_CLASSIFIER)
    for step in steps[:-1]:
        _check_transformer(step, features)
    classes = _of(steps[-1], "classes_", np.ndarray)
    if classes.dtype.kind != kind or classes.dtype.itemsize > 4 * LONGEST_LABEL or classes.shape != (len(labels),):
        raise ValueError(NO_CLASSIFIER)
    if not len(labels) >= 2 or not classes.tolist() == labels == sorted(set(labels)):
        raise ValueError(NO_CLASSIFIER)
    _check_classifier(steps[-1], features, 1 if len(classes) == 2 else len(classes))


def _is(thing: Any, *types: type) -> None:
    """Check a type, and that no attribute hides one of the type."""
    kind = type(thing)
    if kind not in types:
        raise ValueError(f"it has a {kind.__name__} where a {types[0].__name__} is expected")
    known = set(kind._get_param_names()) if issubclass(kind, BaseEstimator) else set()
    known |= {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name in set(vars(thing)) - known:
        hidden = getattr(kind, name, None)
        if name.startswith("__") or not (hidden is None or isinstance(hidden, cached_property)):
            raise ValueError(f"its {kind.__name__} has an attribute {name[:40]!r}")


def _of(thing: Any, name: str, *types: type) -> Any:
    """Return an attribute, checked to be of one of these types."""
    value = vars(thing)[name]
    if type(value) not in types:
        raise ValueError(f"{name} of its {type(thing).__name__} is a {type(value).__name__}")
    return value


def _check_numbers(thing: Any, name: str, *shape: int) -> None:
    values = _of(thing, name, np.ndarray)
    if values.dtype.kind != "f" or values.shape != shape or not np.isfinite(values).all():
        raise ValueError(f"{name} of its {type(thing).__name__} holds no finite numbers of shape {shape}")


def _check_matrix(thing: Any, name: str, *shape: int) -> None:
    """Check numbers, which may be sparse."""
    matrix = vars(thing)[name]
    if type(matrix) in (sp.csr_array, sp.csr_matrix):
        matrix.check_format(full_check=True)
        if matrix.shape != shape or matrix.data.dtype.kind != "f" or not np.isfinite(matrix.data).all():
            raise ValueError(f"{name} of its {type(thing).__name__} holds no finite numbers of shape {shape}")
    else:
        _check_numbers(thing, name, *shape)


def _check_input(step: Any, features: list[str]) -> None:
    """Check which features a step says that it was fitted to."""
    names = vars(step).get("feature_names_in_")
    if _of(step, "n_features_in_", int) != len(features) or (names is not None and list(names) != features):
        raise ValueError(f"its {type(step).__name__} has other features than its card")


def _check_transformer(step: Any, features: list[str]) -> None:
    _is(step, StandardScaler, SimpleImputer, WithErrors, Deconvolve)
    _check_input(step, features)
    if isinstance(step, Deconvolve):
        _check_deconvolution(step, len(features))
        return
    if isinstance(step, SimpleImputer):
        _check_numbers(step, "statistics_", len(features))
    elif isinstance(step, StandardScaler):
        for name in ("mean_", "scale_"):
            if vars(step)[name] is not None:
                _check_numbers(step, name, len(features))
        if step.scale_ is not None and not (step.scale_ > 0).all():
            raise ValueError("scale_ of its StandardScaler is not above 0")
    elif isinstance(step.transformer_, FunctionTransformer):  # features as they are
        _is(step.transformer_, FunctionTransformer)
        _of(step.transformer_, "func", type(None))
    else:
        _is(step.transformer_, StandardScaler)
        _check_transformer(step.transformer_, features)
    if isinstance(step, WithErrors):
        _check_population(step, "population_", len(features))
        _check_scaling(step, "_map", len(features))


def _check_population(thing: Any, name: str, n_features: int) -> None:
    population = vars(thing)[name]
    if population is not None:
        _is(population, Population)
        _check_numbers(population, "means", n_features)
        _check_numbers(population, "spreads", n_features)
        if _of(population, "covariance", np.ndarray, type(None)) is not None:
            _check_numbers(population, "covariance", n_features, n_features)


def _check_scaling(thing: Any, name: str, n_features: int) -> None:
    """Check a map that scales feature by feature."""
    affine = _of(thing, name, AffineMap)
    _is(affine, AffineMap)
    _check_numbers(affine, "centre", n_features)
    _check_numbers(affine, "offset", n_features)
    _check_matrix(affine, "matrix", n_features, n_features)
    source, factors = _of(affine, "monomial", tuple)
    if source.dtype.kind != "i" or not np.array_equal(source, np.arange(n_features)):
        raise ValueError("monomial of its AffineMap holds no order of features")
    if factors.dtype != np.float64 or factors.shape != (n_features,) or not np.isfinite(factors).all():
        raise ValueError("monomial of its AffineMap holds no factors of features")


def _check_quantiles(step: Any, n_features: int) -> None:
    """Check a transform of every feature to a normal distribution that carries errors."""
    _is(step, WithErrors)
    if _of(step, "n_features_in_", int) != n_features:
        raise ValueError("its WithErrors has other features than its card")
    _check_population(step, "population_", n_features)
    pipeline = _of(step, "transformer_", Pipeline)
    _is(pipeline, Pipeline)
    scaler, normal = (step for _, step in _of(pipeline, "steps", list))
    _is(scaler, RobustScaler)
    _is(normal, QuantileTransformer)
    if any(_of(part, "n_features_in_", int) != n_features for part in (scaler, normal)):
        raise ValueError("its QuantileTransformer has other features than its card")
    if normal.output_distribution != "normal":
        raise ValueError("its QuantileTransformer is another one than that of a fit")
    _check_numbers(scaler, "center_", n_features)
    _check_numbers(scaler, "scale_", n_features)
    if not (scaler.scale_ > 0).all():
        raise ValueError("scale_ of its RobustScaler is not above 0")
    n_quantiles = _of(normal, "n_quantiles_", int)
    _check_numbers(normal, "quantiles_", n_quantiles, n_features)
    _check_numbers(normal, "references_", n_quantiles)
    if any((np.diff(vars(normal)[name], axis=0) < 0).any() for name in ("quantiles_", "references_")):
        raise ValueError("quantiles_ of its QuantileTransformer fall")
    curved = _of(step, "_map", CurvedMap)
    _is(curved, CurvedMap)
    for name in ("features", "outputs"):
        groups = _of(curved, name, np.ndarray)
        # A feature that never varied has no group.
        if (
            groups.dtype.kind != "i"
            or groups.shape != (n_features,)
            or not ((groups >= -1) & (groups < n_features)).all()
        ):
            raise ValueError(f"{name} of its CurvedMap holds no groups of features")
    if not curved.is_one_to_one:
        raise ValueError("its CurvedMap mixes features")
    for name in ("low", "high", "below", "above", "signs"):
        _check_numbers(curved, name, n_features)


def _check_noise(noise: Any, n_features: int) -> None:
    if noise is None:
        return
    _is(noise, Isotropic, Axis, PerFeature, Covariance)
    check_real("sigma of its noise", noise.sigma, inclusive=True)
    if isinstance(noise, PerFeature):
        _check_numbers(noise, "deviations", n_features)
    if isinstance(noise, Covariance):
        _is(noise.shape, Shape)
        _check_numbers(noise.shape, "matrix", n_features, n_features)


def _check_deconvolution(step: Deconvolve, n_features: int) -> None:
    """Check a population of true values."""
    step._check_parameters()
    if step.missing_indicator:
        raise ValueError("its Deconvolve adds features that are not in its card")
    mixture = _of(step, "population_", Mixture, FactorMixture)
    _is(mixture, Mixture, FactorMixture)
    n_components = len(_of(mixture, "weights", np.ndarray))
    _check_numbers(mixture, "weights", n_components)
    _check_numbers(mixture, "means", n_components, n_features)
    _check_numbers(mixture, "covariances", n_components, n_features, n_features)
    T = mixture.covariances
    # Exact values are seen through the covariance alone, which must then have an inverse.
    if not (mixture.weights > 0).all() or not np.array_equal(T, T.transpose(0, 2, 1)):
        raise ValueError("its population is no mixture of Gaussians")
    np.linalg.cholesky(T)
    if isinstance(mixture, FactorMixture):
        rank = np.shape(_of(mixture, "loadings", np.ndarray))[-1]
        _check_numbers(mixture, "loadings", n_components, n_features, rank)
        _check_numbers(mixture, "uniquenesses", n_components, n_features)
        if not (vars(mixture)["uniquenesses"] > 0).all():
            raise ValueError("its population is no mixture of Gaussians")
    for name in ("spreads_", "error_scale_"):
        _check_numbers(step, name, n_features)
        if (vars(step)[name] < 0).any():
            raise ValueError(f"{name} of its Deconvolve is below 0")


def _check_calibration(thing: Any, n_scores: int) -> None:
    """Check the parameters of probabilities."""
    check_real("alpha_ of its probabilities", _of(thing, "alpha_", float), inclusive=True)
    check_real("kappa_ of its probabilities", _of(thing, "kappa_", float), inclusive=True)
    if n_scores == 1:
        check_real("beta_ of its probabilities", _of(thing, "beta_", float), low=-np.inf)
    else:
        _check_numbers(thing, "beta_", n_scores)


def _check_error_bars(classifier: ErrorBarClassifier, features: list[str], n_scores: int) -> None:
    """Check a classifier of measurements: its population, and the calibrated classifier of posteriors."""
    d = len(features)
    _check_input(classifier, features)
    classifier._check_parameters()
    _of(classifier, "has_errors_", bool)
    population = _of(classifier, "population_", Deconvolve)
    _is(population, Deconvolve)
    _check_deconvolution(population, d)
    if population.n_features_in_ != d:
        raise ValueError("its Deconvolve has other features than its card")
    _check_numbers(classifier, "centre_", d)
    _check_numbers(classifier, "scale_", d)
    _check_numbers(classifier, "reliability_", d)
    if not (classifier.scale_ > 0).all():
        raise ValueError("scale_ of its ErrorBarClassifier is not above 0")
    check_real(
        "kappa_pvalue_ of its probabilities", np.nan_to_num(_of(classifier, "kappa_pvalue_", float)), inclusive=True
    )
    _check_calibration(classifier, n_scores)
    _of(classifier, "method_", str)
    if vars(classifier)["transform_"] is not None:
        _check_quantiles(classifier.transform_, d)
    _check_unfitted(vars(classifier)["estimator"])
    calibrated = _of(classifier, "_calibrated", CalibratedWithErrorsCV)
    _check_calibrated(calibrated, features, n_scores, classifier.classes_)
    _check_inner(vars(classifier)["estimator_"], features, n_scores, classifier.classes_)


def _check_calibrated(
    classifier: CalibratedWithErrorsCV, features: list[str], n_scores: int, classes: np.ndarray[Any, Any]
) -> None:
    """Check a classifier with calibrated probabilities."""
    _is(classifier, CalibratedWithErrorsCV)
    if not np.array_equal(_of(classifier, "classes_", np.ndarray), classes):
        raise ValueError(NO_CLASSIFIER)
    _check_calibration(classifier, n_scores)
    _check_unfitted(vars(classifier)["estimator"])
    _check_inner(vars(classifier)["estimator_"], features, n_scores, classes)


def _check_inner(estimator: Any, features: list[str], n_scores: int, classes: np.ndarray[Any, Any]) -> None:
    """Check what makes the scores of a calibrated classifier, maybe after steps that carry errors."""
    if isinstance(estimator, Pipeline):
        _is(estimator, Pipeline)
        *steps, estimator = (step for _, step in _of(estimator, "steps", list))
        for step in steps:
            _check_transformer(step, features)
    _is(estimator, GuruClassifier, GuruClassifierCV, ProbitWithErrors, KernelGuruClassifier)
    if not np.array_equal(_of(estimator, "classes_", np.ndarray), classes):
        raise ValueError(NO_CLASSIFIER)
    _check_input(estimator, features)
    if isinstance(estimator, KernelGuruClassifier):
        _check_kernel(estimator, features, n_scores)
        return
    _check_numbers(estimator, "intercept_", n_scores)
    _check_numbers(estimator, "coef_", n_scores, len(features))
    if isinstance(estimator, GuruClassifier):
        _check_linear(estimator, features, n_scores)


def _check_unfitted(estimator: Any) -> None:
    """Check a parameter that is an estimator or None."""
    if isinstance(estimator, Pipeline):
        _is(estimator, Pipeline)
        *steps, estimator = (step for _, step in _of(estimator, "steps", list))
        for step in steps:
            _is(step, StandardScaler, SimpleImputer, WithErrors, Deconvolve)
    if estimator is not None:
        _is(estimator, GuruClassifier, GuruClassifierCV, ProbitWithErrors, KernelGuruClassifier)


def _check_linear(classifier: GuruClassifier, features: list[str], n_scores: int) -> None:
    classifier._check_parameters()
    _check_noise(vars(classifier)["noise_"], len(features))
    _check_numbers(classifier, "intercept_", n_scores)
    _check_numbers(classifier, "coef_", n_scores, len(features))
    _check_population(classifier, "population_", len(features))


def _check_classifier(classifier: Any, features: list[str], n_scores: int) -> None:
    _is(classifier, *CLASSIFIERS)
    if isinstance(classifier, ErrorBarClassifier):
        _check_error_bars(classifier, features, n_scores)
        return
    if isinstance(classifier, CalibratedWithErrorsCV):
        _check_calibrated(classifier, features, n_scores, classifier.classes_)
        return
    _check_input(classifier, features)
    if isinstance(classifier, GuruClassifier):
        _check_linear(classifier, features, n_scores)
        return
    _check_kernel(classifier, features, n_scores)


def _check_kernel(classifier: KernelGuruClassifier, features: list[str], n_scores: int) -> None:
    classifier._check_parameters()
    _check_noise(vars(classifier)["noise_"], len(features))
    _check_numbers(classifier, "intercept_", n_scores)
    kernel = _of(classifier, "_kernel", Kernel)
    _is(kernel, Kernel)
    if kernel.name != classifier.kernel or kernel.is_precomputed or set(kernel.params) != {"gamma", "degree", "coef0"}:
        raise ValueError("_kernel of its KernelGuruClassifier is another one than its parameters say")
    for name, value in kernel.params.items():
        check_real(f"{name} of its kernel", value, low=-np.inf)
    if _of(kernel, "centre", np.ndarray, type(None)) is not None:
        _check_numbers(kernel, "centre", len(features))
    support = _of(classifier, "support_", np.ndarray)
    if support.dtype.kind != "i" or support.ndim != 1:
        raise ValueError("support_ of its KernelGuruClassifier holds no places of samples")
    _check_numbers(classifier, "dual_coef_", n_scores, len(support))
    _check_matrix(classifier, "X_fit_", len(support), len(features))
    _check_numbers(classifier, "norm_", n_scores)
    _check_population(classifier, "population_", len(features))
