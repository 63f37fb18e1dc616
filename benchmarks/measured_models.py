"""The classifiers that benchmarks/error_bars.py compares: how each is fitted to values with errors, and predicts."""

import importlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import loguniform, randint, uniform
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from gaussguru import ErrorBarClassifier, PopulationClassifier
from gaussguru.population import Deconvolve

# Noisy copies of the training samples.
N_COPIES = 4

Predictor = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Training(NamedTuple):
    X: np.ndarray
    E: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None


class Model(NamedTuple):
    """A row of the tables.

    ``kind`` is "baseline", "deconvolution" (a baseline that has populations of its own, fitted by our code) or "ours".
    ``fit`` is given the noise level of use,
    relative to the errors of training; one that minds (``by_level``) is fitted for each.
    """

    name: str
    kind: str
    fit: Callable[[Training, float], Predictor]
    by_level: bool = False
    uses_errors: bool = True


def recipe(model: Any) -> Any:
    """The usual: mean imputation, unit variance. Boosting takes missing values as they are."""
    inner = getattr(model, "estimator", model)
    if isinstance(inner, HistGradientBoostingClassifier) or type(inner).__name__ in (
        "LGBMClassifier",
        "CatBoostClassifier",
    ):
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


def extreme_deconvolution(mixtures: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[[Training, float], Predictor]:
    """A mixture of Gaussians for the truth of each class, and Bayes' rule (Bovy, Hogg & Roweis 2011).

    ``mixtures`` returns the log-likelihood of new samples under the mixture that it fits to values and errors.
    """

    def fit(data: Training, level: float) -> Predictor:
        scaler = StandardScaler().fit(data.X)
        shares = np.bincount(data.y) / len(data.y)
        classes = []
        for label in range(len(shares)):
            in_class = data.y == label
            values, errors = scaler.transform(data.X[in_class]), data.E[in_class] / scaler.scale_
            unmeasured = ~np.isfinite(errors).any(axis=0)
            if unmeasured.any():  # one sample stands for a feature that the class never has: that of all classes
                values = np.vstack([values, np.zeros(values.shape[1])])
                errors = np.vstack([errors, np.where(unmeasured, 1.0, np.inf)])
            classes.append(mixtures(values, errors))

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
    """1, 2 or 3 components of our own EM, by the Bayesian information criterion; of a few samples fewer."""
    numbers = range(1, min(3, max(1, len(X) // 2)) + 1)
    fitted = [Deconvolve(k, n_init=1, ridge=1e-3, n_jobs=1).fit(X, X_err=E) for k in numbers]
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


OURS, LINEAR, IGNORED = "ErrorBarClassifier", "ErrorBarClassifier, linear", "ErrorBarClassifier, errors ignored"
SIZES = f"{OURS}, error sizes used"
LOGISTIC, CLASSES = "LogisticRegression", "PopulationClassifier"
DECONVOLUTION = "extreme deconvolution of each class"
# How boosting is tuned: 15 random trials, by the log loss of three folds.
TRIALS = {
    "learning_rate": loguniform(0.02, 0.3), "max_iter": randint(50, 400), "max_leaf_nodes": randint(6, 48),
    "min_samples_leaf": randint(5, 60), "l2_regularization": loguniform(1e-3, 30.0), "max_features": uniform(0.3, 0.7),
}  # fmt: skip
TUNED = RandomizedSearchCV(
    HistGradientBoostingClassifier(early_stopping=False, random_state=0), TRIALS, n_iter=15, scoring="neg_log_loss",
    cv=StratifiedKFold(3, shuffle=True, random_state=0), random_state=0,
)  # fmt: skip


def _with_trees() -> dict[str, Any]:
    """Forests and boosting; LightGBM and CatBoost if they are installed (the extra "peers")."""
    found: dict[str, Any] = {
        "forest": RandomForestClassifier(random_state=0),
        "boosting": HistGradientBoostingClassifier(random_state=0),
        "boosting, tuned": TUNED,
    }
    with suppress(ImportError):
        found["LightGBM"] = importlib.import_module("lightgbm").LGBMClassifier(random_state=0, n_jobs=1, verbose=-1)
    with suppress(ImportError):
        CatBoost = importlib.import_module("catboost").CatBoostClassifier
        found["CatBoost"] = CatBoost(random_state=0, thread_count=1, verbose=0, allow_writing_files=False)
    return found


def _peers(name: str, model: Any, *, by_errors: bool = True) -> list[Model]:
    rows = [Model(name, "baseline", plain(model), uses_errors=False)]
    if by_errors:
        rows.append(Model(f"{name}, errors as columns", "baseline", errors_as_columns(model)))
        rows.append(Model(f"{name}, trained at the noise of use", "baseline", noisy_copies(model), by_level=True))
    return rows


MODELS = [
    Model("class frequencies", "baseline", prior, uses_errors=False),
    *_peers(LOGISTIC, LogisticRegression(max_iter=1000)),
    *_peers("SVC rbf, calibrated", CalibratedClassifierCV(SVC()), by_errors=False),
    *[row for name, model in _with_trees().items() for row in _peers(name, model)],
    Model(DECONVOLUTION, "deconvolution", extreme_deconvolution(our_mixtures)),
    Model(f"{DECONVOLUTION}, astroML", "baseline", extreme_deconvolution(astroml_mixtures)),
    Model(IGNORED, "baseline", ours_without_errors(), uses_errors=False),
    Model(OURS, "ours", ours()),
    Model(SIZES, "ours", ours(use_error_sizes=True)),
    Model(LINEAR, "ours", ours(model="linear")),
    Model(CLASSES, "ours", population_classifier),
]
SCALED = Model(f"{LINEAR}, scale_errors", "ours", ours(model="linear", scale_errors=True))


def quiet() -> None:
    """Leave out warnings of iterations that were enough for a benchmark."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", category=UserWarning)
