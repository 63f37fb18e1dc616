"""The classifiers that benchmarks/error_bars.py compares: how each is fitted to values with errors, and predicts."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

from gaussguru import ErrorBarClassifier, GuruClassifierCV, PopulationClassifier, PosteriorDrawsClassifier
from gaussguru.errors import Measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

# Noisy copies of the training samples; draws of a training sample and of a test sample from its posterior; draws of a
# test sample from its error bars.
N_COPIES, N_TRAINING_DRAWS, N_POSTERIOR_DRAWS, N_DRAWS = 4, 4, 16, 8
# Where X_err went in before there were populations: noise levels among which cross-validation chooses.
SIGMAS = np.geomspace(1e-3, 1.0, 10)

Predictor = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Training(NamedTuple):
    X: np.ndarray
    E: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None


class Model(NamedTuple):
    """A row of the tables.

    ``kind`` is "baseline", "deconvolution" (a baseline that has populations of its own, fitted by our code),
    "posterior" (one on what our population says of the truth) or "ours". ``fit`` is given the noise level of use,
    relative to the errors of training; one that minds (``by_level``) is fitted for each.
    """

    name: str
    kind: str
    fit: Callable[[Training, float], Predictor]
    by_level: bool = False
    uses_errors: bool = True


def recipe(model: Any) -> Any:
    """The usual: mean imputation, unit variance. Boosting takes missing values as they are."""
    if isinstance(model, HistGradientBoostingClassifier):
        return make_pipeline(clone(model))
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), clone(model))


def plain(model: Any) -> Callable[[Training, float], Predictor]:
    def fit(data: Training, level: float) -> Predictor:
        fitted = recipe(model).fit(data.X, data.y)
        return lambda Z, F: fitted.predict_proba(Z)

    return fit


def errors_as_columns(model: Any) -> Callable[[Training, float], Predictor]:
    def table(X: np.ndarray, E: np.ndarray) -> np.ndarray:
        return np.hstack([X, np.where(np.isfinite(E), E, np.nan)])

    def fit(data: Training, level: float) -> Predictor:
        fitted = recipe(model).fit(table(data.X, data.E), data.y)
        return lambda Z, F: fitted.predict_proba(table(Z, F))

    return fit


def noisy_draws(model: Any) -> Callable[[Training, float], Predictor]:
    """Probabilities averaged over draws from the error bars around a measured value."""

    def fit(data: Training, level: float) -> Predictor:
        fitted = recipe(model).fit(data.X, data.y)

        def predict(Z: np.ndarray, F: np.ndarray) -> np.ndarray:
            rng, S = np.random.default_rng(0), np.where(np.isfinite(F), F, 0.0)
            draws = np.vstack([Z + S * rng.standard_normal(Z.shape) for _ in range(N_DRAWS)])
            return fitted.predict_proba(draws).reshape(N_DRAWS, len(Z), -1).mean(axis=0)

        return predict

    return fit


def noisy_copies(model: Any) -> Callable[[Training, float], Predictor]:
    """Fitted to copies of the training samples with the noise that the samples of use will have."""

    def fit(data: Training, level: float) -> Predictor:
        if level <= 1:
            return plain(model)(data, level)
        rng, S = np.random.default_rng(0), np.where(np.isfinite(data.E), data.E, 0.0)
        more = np.sqrt(level**2 - 1) * S
        X = np.vstack([data.X + more * rng.standard_normal(S.shape) for _ in range(N_COPIES)])
        fitted = recipe(model).fit(X, np.tile(data.y, N_COPIES))
        return lambda Z, F: fitted.predict_proba(Z)

    return fit


def posterior_means(model: Any) -> Callable[[Training, float], Predictor]:
    def fit(data: Training, level: float) -> Predictor:
        seen, fitted = _Posterior(data), clone(model)
        fitted.fit(seen.of(data.X, data.E)[0], data.y)
        return lambda Z, F: fitted.predict_proba(seen.of(Z, F)[0])

    return fit


def posterior_draws(model: Any, transformer: Any) -> Callable[[Training, float], Predictor]:
    """Fitted to draws of the truth of every sample; probabilities averaged over draws."""

    def fit(data: Training, level: float) -> Predictor:
        draws = PosteriorDrawsClassifier(model, n_training_draws=N_TRAINING_DRAWS, n_draws=N_POSTERIOR_DRAWS)
        fitted = make_pipeline(WithErrors(transformer), Deconvolve(n_jobs=1), draws)
        fitted.fit(Measured(data.X, data.E), data.y)
        return lambda Z, F: fitted.predict_proba(Measured(Z, F))

    return fit


class _Posterior:
    """Posteriors under one Gaussian population of scaled features."""

    def __init__(self, data: Training) -> None:
        self.scaler = StandardScaler().fit(data.X)
        self.population = Deconvolve(n_jobs=1).fit(*self._scaled(data.X, data.E))

    def _scaled(self, X: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, None, np.ndarray]:
        return self.scaler.transform(X), None, E / self.scaler.scale_

    def of(self, X: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, _, errors = self._scaled(X, E)
        found = self.population.transform(values, errors)
        return found.X, found.err


def extreme_deconvolution(mixtures: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[[Training, float], Predictor]:
    """A mixture of Gaussians for the truth of each class, and Bayes' rule (Bovy, Hogg & Roweis 2011).

    ``mixtures`` returns the log-likelihood of new samples under the mixture that it fits to values and errors.
    """

    def fit(data: Training, level: float) -> Predictor:
        scaler = StandardScaler().fit(data.X)
        shares = np.bincount(data.y) / len(data.y)
        classes = []
        for label in range(len(shares)):
            mine = data.y == label
            classes.append(mixtures(scaler.transform(data.X[mine]), data.E[mine] / scaler.scale_))

        def predict(Z: np.ndarray, F: np.ndarray) -> np.ndarray:
            values, errors = scaler.transform(Z), F / scaler.scale_
            logs = np.column_stack([score(values, errors) for score in classes]) + np.log(shares)
            return softmax(logs, axis=1)

        return predict

    return fit


def _least_bic(costs: list[float], X: np.ndarray) -> int:
    """The number of components, 1, 2, ..., of least Bayesian information criterion; costs are minus log-likelihoods."""
    d = X.shape[1]
    penalties = [k * (1 + d + d * (d + 1) / 2) * np.log(len(X)) for k in range(1, len(costs) + 1)]
    return int(np.argmin(2 * np.array(costs) + penalties))


def our_mixtures(X: np.ndarray, E: np.ndarray) -> Any:
    """1, 2 or 3 components of our own EM, by the Bayesian information criterion."""
    fitted = [Deconvolve(k, n_init=1, ridge=1e-3, n_jobs=1).fit(X, X_err=E) for k in (1, 2, 3)]
    return fitted[_least_bic([-len(X) * each.log_likelihood_ for each in fitted], X)].score_samples


def astroml_mixtures(X: np.ndarray, E: np.ndarray) -> Any:
    """The same by astroML's XDGMM, with its defaults. A missing value is a mean with an error of 100 spreads."""
    XDGMM = importlib.import_module("astroML.density_estimation").XDGMM  # on PyPI; of no other use here

    def covariances(values: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gone = np.isnan(values) | ~np.isfinite(errors)
        errors = np.where(gone, 100.0, errors)  # of features of spread 1, the same for all classes
        return np.where(gone, 0.0, values), np.square(errors)[:, :, np.newaxis] * np.eye(values.shape[1])

    given = covariances(X, E)
    fitted = [XDGMM(k, random_state=0).fit(*given) for k in (1, 2, 3)]
    best = fitted[_least_bic([-each.logL(*given) for each in fitted], X)]
    return lambda values, errors: logsumexp(best.logprob_a(*covariances(values, errors)), axis=1)


def guru_as_it_was(data: Training, level: float) -> Predictor:
    """X_err as a cloud around the measured value, and probabilities that count noise alone."""
    scaler = StandardScaler().fit(data.X)
    E = np.where(np.isnan(data.X), np.inf, data.E) / scaler.scale_
    fitted = GuruClassifierCV(SIGMAS, cv=3, n_jobs=1).fit(scaler.transform(data.X), data.y, X_err=E)

    def predict(Z: np.ndarray, F: np.ndarray) -> np.ndarray:
        return fitted.predict_proba(scaler.transform(Z), np.where(np.isnan(Z), np.inf, F) / scaler.scale_)

    return predict


def prior(data: Training, level: float) -> Predictor:
    return lambda Z, F: np.tile(np.bincount(data.y) / len(data.y), (len(Z), 1))


def ours(**options: Any) -> Callable[[Training, float], Predictor]:
    def fit(data: Training, level: float) -> Predictor:
        fitted = ErrorBarClassifier(n_jobs=1, **options).fit(data.X, data.y, X_err=data.E, groups=data.groups)

        def predict(Z: np.ndarray, F: np.ndarray) -> np.ndarray:
            return fitted.predict_proba(Z, F)

        predict.estimator = fitted  # type: ignore[attr-defined]
        return predict

    return fit


def population_classifier(data: Training, level: float) -> Predictor:
    return PopulationClassifier(n_jobs=1).fit(data.X, data.y, X_err=data.E).predict_proba


def ours_without_errors(**options: Any) -> Callable[[Training, float], Predictor]:
    def fit(data: Training, level: float) -> Predictor:
        imputer = SimpleImputer(keep_empty_features=True).fit(data.X)
        fitted = ErrorBarClassifier(n_jobs=1, **options).fit(imputer.transform(data.X), data.y, groups=data.groups)
        return lambda Z, F: fitted.predict_proba(imputer.transform(Z))

    return fit


OURS, IGNORED, LOGISTIC = "ErrorBarClassifier", "ErrorBarClassifier, errors ignored", "LogisticRegression"
AUTO, AUTO_IGNORED = f"{OURS}, kernel auto", f"{OURS}, kernel auto, errors ignored"
STACK, LINEAR_STACK, CLASSES = f"{OURS}, stack with boosting", f"{OURS}, linear stack", "PopulationClassifier"
GAPS, FOREST_GAPS = f"{STACK}, missing indicator", f"{OURS}, stack with a forest, missing indicator"
SINGLE, DECONVOLUTION = f"{OURS}, one component", "extreme deconvolution of each class"
QUANTILES = QuantileTransformer(output_distribution="normal", random_state=0)
FOREST, BOOSTING = RandomForestClassifier(random_state=0), HistGradientBoostingClassifier(random_state=0)


def _of_trees(name: str, model: Any) -> list[Model]:
    return [
        Model(name, "baseline", plain(model), uses_errors=False),
        Model(f"{name}, errors as columns", "baseline", errors_as_columns(model)),
        Model(f"{name}, averaged over noisy draws", "baseline", noisy_draws(model)),
        Model(f"{name}, trained at the noise of use", "baseline", noisy_copies(model), by_level=True),
        Model(f"{name} on posterior means", "posterior", posterior_means(model)),
        Model(f"{name} on posterior draws", "posterior", posterior_draws(model, StandardScaler())),
        Model(f"{name} on posterior draws, quantiles", "posterior", posterior_draws(model, QUANTILES)),
    ]


MODELS = [
    Model("prior", "baseline", prior, uses_errors=False),
    Model(LOGISTIC, "baseline", plain(LogisticRegression(max_iter=1000)), uses_errors=False),
    Model(
        f"{LOGISTIC}, trained at the noise of use", "baseline", noisy_copies(LogisticRegression(max_iter=1000)),
        by_level=True,
    ),
    Model("LinearSVC, calibrated", "baseline", plain(CalibratedClassifierCV(LinearSVC())), uses_errors=False),
    Model("SVC rbf, calibrated", "baseline", plain(CalibratedClassifierCV(SVC())), uses_errors=False),
    *_of_trees("forest", FOREST),
    *_of_trees("boosting", BOOSTING),
    Model(DECONVOLUTION, "deconvolution", extreme_deconvolution(our_mixtures)),
    Model(f"{DECONVOLUTION}, astroML", "baseline", extreme_deconvolution(astroml_mixtures)),
    Model("GURU with X_err as it was", "baseline", guru_as_it_was),
    Model(IGNORED, "baseline", ours_without_errors(), uses_errors=False),
    Model(AUTO_IGNORED, "baseline", ours_without_errors(kernel="auto"), uses_errors=False),
    Model(OURS, "ours", ours()),
    Model(AUTO, "ours", ours(kernel="auto")),
    Model(LINEAR_STACK, "ours", ours(stack=True)),
    Model(STACK, "ours", ours(estimator=BOOSTING, kernel="auto", stack=True)),
    Model(GAPS, "ours", ours(estimator=BOOSTING, kernel="auto", stack=True, missing_indicator=True)),
    Model(FOREST_GAPS, "ours", ours(estimator=FOREST, stack=True, missing_indicator=True)),
    Model(CLASSES, "ours", population_classifier),
    Model(SINGLE, "ours", ours(n_components=1)),
    Model("part: shrunk values, one component", "ours", ours(n_components=1, methods=("shrunk",))),
    Model("part: posteriors in the fit, one component", "ours", ours(n_components=1, methods=("posterior",))),
    Model("part: probit, one component", "ours", ours(n_components=1, methods=("probit",))),
]  # fmt: skip
SCALED = Model(f"{OURS}, scale_errors", "ours", ours(scale_errors=True))


def quiet() -> None:
    """Leave out warnings of iterations that were enough for a benchmark."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", category=UserWarning)
