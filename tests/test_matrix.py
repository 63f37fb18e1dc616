"""Every estimator with every function that takes a model, and every form of error bars: right, or refused truthfully.

Estimators and functions are collected from the public names. A new one fails :func:`test_every_name_is_covered` until
it has an entry here. A cell is right if it has the numbers of the same call with plain arrays; refusals are those of
:data:`REFUSED` alone.
"""

import importlib
import inspect
import pickle
import re
import warnings
from contextlib import nullcontext
from functools import cache

import numpy as np
import pandas as pd
import pytest
import sklearn
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

import gaussguru
from gaussguru import (
    AdversarialSVC,
    ErrorBarClassifier,
    FeatureDropSVC,
    GuruClassifier,
    GuruClassifierCV,
    KernelGuruClassifier,
    PopulationClassifier,
    TotalSVC,
    models,
)
from gaussguru._measured.affine import NotLinearError
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.certificates import duality_gap
from gaussguru.errors import Measured
from gaussguru.inspection import coefficients, explain, feature_importance
from gaussguru.plotting import (
    AdversarialSamplesDisplay,
    CloudDisplay,
    ConvergenceDisplay,
    DisplacementDisplay,
    ExplanationDisplay,
    FeatureImportanceDisplay,
    RegionsDisplay,
    RemeasureDisplay,
    RiskBoundDisplay,
    RobustnessCurveDisplay,
    SigmaPathDisplay,
    plane,
)
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.report import evaluation, evaluation_report, model_card, page
from gaussguru.robustness import (
    certified_radius,
    class_probabilities,
    expected_accuracy,
    expected_accuracy_scorer,
    flip_probability,
    log_loss_scorer,
    remeasure_gain,
    risk_bound,
    robustness_curve,
)
from gaussguru.sources import Arrays

LINEAR = {"model": "linear", "n_components": 1, "cv": 2}
# Every public estimator, under its name and more; of transformers, a pipeline.
ESTIMATORS = {
    "AdversarialSVC": AdversarialSVC(0.1),
    "CalibratedWithErrorsCV": CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2),
    "Deconvolve": make_pipeline(Deconvolve(1), GuruClassifier(0.3)),
    "Deconvolve, calibrated": make_pipeline(Deconvolve(2), CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2)),
    "ErrorBarClassifier": ErrorBarClassifier(**LINEAR),
    "ErrorBarClassifier, default": ErrorBarClassifier(cv=2),
    "ErrorBarClassifier, rbf": ErrorBarClassifier(model="rbf", cv=2),
    "ErrorBarClassifier, boosting": ErrorBarClassifier(model="boosting", cv=2),
    "ErrorBarClassifier, population": ErrorBarClassifier(model="population", cv=2),
    "ErrorBarClassifier, given": ErrorBarClassifier(LogisticRegression(), model="boosting", cv=2),
    "FeatureDropSVC": FeatureDropSVC(1),
    "GuruClassifier": GuruClassifier(0.3),
    "GuruClassifierCV": GuruClassifierCV(2, cv=2),
    "KernelGuruClassifier": KernelGuruClassifier(0.3, gamma=0.5),
    "PopulationClassifier": PopulationClassifier(1),
    "TotalSVC": TotalSVC(0.1),
    "WithErrors": make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.3)),
    "WithErrors, curved": make_pipeline(WithErrors(PowerTransformer()), GuruClassifier(0.3)),
    "a search": GridSearchCV(PopulationClassifier(), {"n_components": [1]}, cv=2),
}


def problem(n=40):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X_err = rng.uniform(0.1, 0.8, (n, 2))
    return rng.normal(size=(n, 2)) + 1.5 * y[:, np.newaxis] + X_err * rng.normal(size=(n, 2)), X_err, y


X, X_ERR, Y = problem()


FRAMES = [pd.DataFrame(table, columns=["x0", "x1"]) for table in (X, X_ERR)]
GONE = np.arange(80).reshape(40, 2) % 13 == 5
# X and keywords, and the form that has the same numbers.
FORMS = {
    "array": (X, {"X_err": X_ERR}, None),
    "frame": (FRAMES[0], {"X_err": FRAMES[1]}, "array"),
    "measured": (Measured(X, X_ERR), {}, "array"),
    "none": (X, {}, None),
    "source": (Arrays(X, rows=20), {"X_err": X_ERR}, "array"),
    "missing": (np.where(GONE, np.nan, X), {"X_err": X_ERR}, None),
    "missing, infinite": (np.where(GONE, 1e3, X), {"X_err": np.where(GONE, np.inf, X_ERR)}, "missing"),
    "missing, measured": (Measured(np.where(GONE, np.nan, X), X_ERR), {}, "missing"),
}


AXES = Figure().add_subplot()


def carried(X, given):
    """Return X with its errors, for functions that take no X_err; of a source, X."""
    return Measured(X, given["X_err"]) if given and not isinstance(X, Arrays) else X


def first(samples):
    """Return one sample; of a source, the source."""
    return samples if isinstance(samples, Arrays) else samples[3:4]


def told(report):
    """Return what a report says beside the names of features and the hash of the values."""
    text = re.sub("<[^>]+>", " ", report.html().split("Model card")[0])
    return re.sub(r"\bx(\d)\b", r"\1", text)


def described(card):
    """Return a card without what names and hashes the samples."""
    data = {"sha256 of the values", "feature names"}
    return str({group: {name: entry for name, entry in card[group].items() if name not in data} for group in card})


# What a call returns: numbers, or text.
FUNCTIONS = {
    "gaussguru.sample_noise": lambda model, X, y, given: gaussguru.sample_noise(
        model, carried(X, given), random_state=0
    ),
    "gaussguru.worst_case_covariance": lambda model, X, y, given: gaussguru.worst_case_covariance(
        model, carried(X, given)
    ),
    "gaussguru.worst_case_distribution": lambda model, X, y, given: gaussguru.worst_case_distribution(
        model, X, y, **given
    ),
    "certificates.duality_gap": lambda model, X, y, given: duality_gap(model, carried(X, given), y),
    "inspection.coefficients": lambda model, X, y, given: coefficients(model, carried(X, given)).coef,
    "inspection.explain": lambda model, X, y, given: explain(model, first(carried(X, given))).contribution,
    "inspection.feature_importance": lambda model, X, y, given: feature_importance(model, X, y, **given)[1:3],
    "inspection.feature_importance, permutation": lambda model, X, y, given: feature_importance(
        model, X, y, **given, method="permutation", scoring="accuracy", n_repeats=2
    )[1:3],
    "plotting.AdversarialSamplesDisplay.from_estimator": lambda model, X, y, given: (
        AdversarialSamplesDisplay.from_estimator(
            model, carried(X, given), image_shape=(1, 2), n_draws=1, random_state=0, ax=AXES
        ).images
    ),
    "plotting.CloudDisplay.from_estimator": lambda model, X, y, given: (
        CloudDisplay.from_estimator(model, X, y, **given, ax=AXES).plane.grid
    ),
    "plotting.ConvergenceDisplay.from_estimator": lambda model, X, y, given: (
        ConvergenceDisplay.from_estimator(model, X, y, **given, n_points=2, ax=AXES).objective
    ),
    "plotting.DisplacementDisplay.from_estimator": lambda model, X, y, given: (
        DisplacementDisplay.from_estimator(model, carried(X, given), y, ax=AXES).moved
    ),
    "plotting.ExplanationDisplay.from_estimator": lambda model, X, y, given: (
        ExplanationDisplay.from_estimator(model, first(carried(X, given)), ax=AXES).explanation.contribution
    ),
    "plotting.FeatureImportanceDisplay.from_estimator": lambda model, X, y, given: (
        FeatureImportanceDisplay.from_estimator(model, X, y, **given, ax=AXES).importance[1:3]
    ),
    "plotting.RegionsDisplay.from_estimator": lambda model, X, y, given: (
        RegionsDisplay.from_estimator(model, X, y, **given, ax=AXES).wrong
    ),
    "plotting.RemeasureDisplay.from_estimator": lambda model, X, y, given: (
        RemeasureDisplay.from_estimator(model, X, **given, ax=AXES).gain
    ),
    "plotting.RiskBoundDisplay.from_estimator": lambda model, X, y, given: (
        RiskBoundDisplay.from_estimator(model, carried(X, given), y, n_samples=[40], sigma=0.3, ax=AXES).bound
    ),
    "plotting.RobustnessCurveDisplay.from_estimator": lambda model, X, y, given: (
        RobustnessCurveDisplay.from_estimator(
            model, X, y, noise_levels=[0.0, 1.0], **given, method="sampling", n_repeats=2, random_state=0, ax=AXES
        ).accuracy
    ),
    "plotting.SigmaPathDisplay.from_cv": lambda model, X, y, given: SigmaPathDisplay.from_cv(model, ax=AXES).values[
        "score"
    ],
    "plotting.SigmaPathDisplay.from_estimator": lambda model, X, y, given: SigmaPathDisplay.from_estimator(
        model, X, y, **given, sigmas=2, ax=AXES
    ).values["norm"],
    "report.evaluation_report": lambda model, X, y, given: told(evaluation_report(model, X, y, **given, date="today")),
    "report.model_card": lambda model, X, y, given: described(model_card(model, X, y, **given)),
    "robustness.certified_radius": lambda model, X, y, given: certified_radius(model, carried(X, given)),
    "robustness.class_probabilities": lambda model, X, y, given: class_probabilities(model, X, **given),
    "robustness.expected_accuracy": lambda model, X, y, given: expected_accuracy(model, X, y, **given),
    "robustness.expected_accuracy_scorer": lambda model, X, y, given: expected_accuracy_scorer(model, X, y, **given),
    "robustness.flip_probability": lambda model, X, y, given: flip_probability(model, X, **given, n_repeats=2),
    "robustness.log_loss_scorer": lambda model, X, y, given: log_loss_scorer(model, X, y, **given),
    "robustness.remeasure_gain": lambda model, X, y, given: remeasure_gain(model, X, **given),
    "robustness.risk_bound": lambda model, X, y, given: risk_bound(model, carried(X, given), y, sigma=0.3).bound,
    "robustness.risk_bound, holdout": lambda model, X, y, given: (
        risk_bound(model, carried(X, given), y, method="holdout", sigma=0.0).bound
    ),
    "robustness.robustness_curve": lambda model, X, y, given: robustness_curve(
        model, X, y, [0.0, 1.0], **given, method="sampling", n_repeats=2, random_state=0
    ),
    "robustness.robustness_curve, analytic": lambda model, X, y, given: robustness_curve(
        model, X, y, [0.0, 1.0], **given
    ),
}

BALL = "AdversarialSVC|TotalSVC"
# Without probabilities and without noise of their own, fitted without error bars.
MOVED = f"{BALL}|FeatureDropSVC"
GURU = "GuruClassifier|GuruClassifierCV"
KERNEL = "KernelGuruClassifier"
CURVED = "WithErrors, curved"
# Fitted with error bars, so that predictions require them; without a score; with labels that depend on error bars.
FITTED = "ErrorBarClassifier.*|PopulationClassifier|a search"
# Fitted with error bars, they need them in predictions.
NEEDING = f"{FITTED}|CalibratedWithErrorsCV"
POOLS = "ErrorBarClassifier, .*"
UNSCORED = "PopulationClassifier|a search"
BY_PROBABILITY = f"{FITTED}|CalibratedWithErrorsCV|Deconvolve, calibrated"
COUNTING = f"{BY_PROBABILITY}|Deconvolve|{CURVED}"
WITHOUT_DECISION = "PopulationClassifier|a search|CalibratedWithErrorsCV|Deconvolve, calibrated"
MISSING = "missing.*"
WITHOUT_POPULATION = (
    "contains NaN|X_err has infinity where only finite|NaN for what was not measured|fitted without X_err"
)
GIVEN = "(?!none|source).*"
PLANE = r"plotting\.(Cloud|Regions)Display.*"
GAIN = r"robustness\.remeasure_gain|plotting\.RemeasureDisplay.*"
MOMENTS = r"calibration\..*"
CURVE = r"robustness\.robustness_curve|plotting\.RobustnessCurveDisplay.*"
# Functions of the noise under which linear scores have a closed form.
NOISE = r"robustness\.(class_probabilities|flip_probability|expected_accuracy|expected_accuracy_scorer|log_loss_scorer)"
ADDED = r"robustness\.(flip_probability|expected_accuracy|expected_accuracy_scorer)"
CLOSED = rf"robustness\.(certified_radius|robustness_curve, analytic)|{NOISE}"
ANALYTIC = r"robustness\.robustness_curve, analytic"
RADIUS = r"robustness\.certified_radius"
REPORT = r"report\.evaluation_report"
BOUND = r"robustness\.risk_bound|plotting\.RiskBound.*"
HOLDOUT = r"robustness\.risk_bound, holdout"
COEFFICIENTS = r"inspection\.coefficients"
# Predictions of samples of which a feature was not measured.
UNMEASURED = r"inspection\.(explain|feature_importance)|plotting\.(Explanation|FeatureImportance)Display.*"
PERMUTED = r"inspection\.feature_importance, permutation"
# Cells that are refused: estimators, functions and forms, as patterns of whole names; the error and its message. The
# first row that fits holds.
REFUSED = [
    # Functions of some classes alone.
    (f"(?!({GURU})$).*", r"gaussguru\..*|plotting\.Adversarial.*", ".*", TypeError, "class GuruClassifier; got"),
    (f"(?!({BALL})$).*", r"plotting\.Displacement.*", ".*", TypeError, "AdversarialSVC or TotalSVC; got"),
    (f"(?!({GURU}|{KERNEL})$).*", r"plotting\.Convergence.*", ".*", TypeError, "GuruClassifier or Kernel.*; got"),
    (f"(?!({GURU}|{KERNEL})$).*", r"certificates\..*", ".*", TypeError, "class GuruClassifier; .* has no certificate"),
    ("(?!GuruClassifierCV$).*", r"plotting\.SigmaPathDisplay\.from_cv", ".*", TypeError, "class GuruClassifierCV; got"),
    ("GuruClassifierCV", r"plotting\.SigmaPathDisplay\.from_estimator", ".*", TypeError, "there is from_cv"),
    ("(?!GuruClassifier$).*", r"plotting\.SigmaPathDisplay.from_est.*", ".*", TypeError, "class GuruClassifier; got"),
    (f"(?!({GURU})$).*", r"plotting\.Cloud.*", "none", TypeError, "class GuruClassifier; got"),
    (f"{BALL}|{GURU}", r"plotting\.(Adversarial|Displacement).*", GIVEN, TypeError, "X carries error bars"),
    (".*", BOUND, GIVEN, TypeError, "X carries error bars"),
    ("ErrorBarClassifier", r"plotting\.RiskBound.*", "none", None, ""),
    (f"{FITTED}|{CURVED}|{WITHOUT_DECISION}", BOUND, "none", NotLinearError, "linear classifier|linear in X|depend on"),
    (NEEDING, HOLDOUT, "none|source", ValueError, "X_err is missing|must be in memory"),
    (MOVED, HOLDOUT, MISSING, ValueError, WITHOUT_POPULATION),
    (f"{GURU}|{KERNEL}|{MOVED}|Deconvolve.*", HOLDOUT, "source", None, ""),
    # Sources: who reads them, and who does not.
    (f"{GURU}|{MOVED}", RADIUS, "source", None, ""),
    (GURU, r"gaussguru\.worst_case_distribution", "source", TypeError, "X is a source .* must be in memory"),
    (GURU, r"gaussguru\..*|certificates\..*|plotting\.Convergence.*", "source", None, ""),
    (FITTED, RADIUS, "source", NotLinearError, "depend on the error bars|must be a linear classifier"),
    (WITHOUT_DECISION, RADIUS, "source", NotLinearError, "must be a linear classifier"),
    (".*", r"plotting\.SigmaPathDisplay\.from_cv", "source", None, ""),
    (".*", ".*", "source", (TypeError, ValueError), "X is a source .* must be in memory"),
    # What is not linear, or has no probabilities.
    (f"{KERNEL}|{POOLS}|{UNSCORED}|{CURVED}", COEFFICIENTS, ".*", NotLinearError, "has no coefficients"),
    (MOVED, UNMEASURED, ".*", TypeError, "model must have predict_proba; .*'accuracy'"),
    # Error bars that must be given.
    (NEEDING, f"{UNMEASURED}|{PERMUTED}", "none", ValueError, "X_err is missing"),
    (".*", GAIN, "none", ValueError, "X_err must be given: without error bars"),
    (BY_PROBABILITY, ADDED, "none", ValueError, "X_err must be given: .* has no noise of its own"),
    (MOVED, NOISE, "none", ValueError, "X_err must be given: .* has no noise of its own"),
    (f"{POOLS}|{UNSCORED}", MOMENTS, ".*", NotLinearError, "spread|must have a decision_function"),
    (UNSCORED, GAIN, ".*", NotLinearError, "spread|must have a decision_function"),
    (
        f"(?!{WITHOUT_DECISION})({FITTED})",
        f"{ANALYTIC}|{RADIUS}",
        "none",
        NotLinearError,
        "depend on the error bars",
    ),
    (WITHOUT_DECISION, f"{ANALYTIC}|{RADIUS}", "none", NotLinearError, "must be a linear classifier"),
    (NEEDING, rf"{NOISE}|{CURVE}|{MOMENTS}|{REPORT}|plotting\.Regions.*", "none", ValueError, "X_err is missing"),
    # Closed forms: labels that depend on error bars that are given, or on X but not linearly.
    (COUNTING, f"{ANALYTIC}|{RADIUS}", GIVEN, NotLinearError, "depend on the error bars as well as on X.*: use"),
    (f"{KERNEL}|{CURVED}", CLOSED, "none", NotLinearError, "linear in X.*sampling"),
    (KERNEL, CLOSED, ".*", NotLinearError, "linear in X.*sampling"),
    # Values that were not measured: what has no population does not know them, and a plane does not show them.
    (
        ".*",
        PLANE,
        MISSING,
        ValueError,
        "X_err has infinity where only finite numbers are allowed",
    ),
    (
        MOVED,
        f"{GAIN}|{MOMENTS}|{PERMUTED}",
        MISSING,
        ValueError,
        WITHOUT_POPULATION,
    ),
    (
        MOVED,
        f"{NOISE}|{CURVE}|{ANALYTIC}|{RADIUS}|{REPORT}",
        MISSING,
        ValueError,
        "not measured, and .* fitted without X_err",
    ),
]


def refusal(name, function, form):
    """Return the error and the message of a cell that is refused, or None."""
    for row in REFUSED:
        if all(re.fullmatch(pattern, part) for pattern, part in zip(row, (name, function, form), strict=False)):
            return row[3:] if row[3] else None
    return None


def same(one, other):
    """Return whether two calls returned the same numbers or text."""
    if isinstance(one, str):
        return one == other
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    one, other = np.asarray(one, float), np.asarray(other, float)
    return np.isfinite(one).all() and one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-12)


@cache
def public():
    """Return all that has a public name, by its name without the package."""
    modules = [gaussguru, *(importlib.import_module(f"gaussguru.{name}") for name in gaussguru._MODULES)]
    found = {}
    for module in modules:
        own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            found[f"{module.__name__.removeprefix('gaussguru.')}.{name}"] = getattr(module, name)
    return found


@cache
def of_models():
    """Return the public functions, constructors of displays, and scorers that take a fitted model."""
    found = {}
    for name, thing in public().items():
        if inspect.isclass(thing):
            makers = {f"{name}.{key}": getattr(thing, key) for key in vars(thing) if key.startswith("from_")}
        else:
            makers = {name: thing} if callable(thing) else {}
        found |= {
            key: maker
            for key, maker in makers.items()
            if {"estimator", "model"} & {*inspect.signature(maker).parameters}
        }
    return found


@cache
def fitted(name):
    """Return an estimator fitted with error bars, if it takes any."""
    return clone(ESTIMATORS[name]).fit(X if re.fullmatch(MOVED, name) else Measured(X, X_ERR), Y)


CLASSES = dict.fromkeys(thing for thing in public().values() if inspect.isclass(thing))
ESTIMATOR_CLASSES = [kind for kind in CLASSES if issubclass(kind, BaseEstimator)]
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_plain_estimator = pytest.mark.parametrize("name", [name for name in ESTIMATORS if name in vars(gaussguru)])


def test_every_public_estimator_and_function_is_in_the_matrix():
    assert {kind.__name__ for kind in ESTIMATOR_CLASSES} <= {*ESTIMATORS}
    functions = {name.split(",")[0] for name in FUNCTIONS}
    # Models are saved and loaded in tests of model files.
    assert {*of_models()} - {"models.save_model"} == functions


@every_estimator
@pytest.mark.parametrize("function", FUNCTIONS)
def test_right_or_refused(monkeypatch, function, name):
    """Every form of error bars has the numbers of arrays, with routing and without; or the refusal that is stated."""
    if function.startswith("plotting."):
        AXES.clear()
    monkeypatch.setattr(plane, "RESOLUTION", 7)
    monkeypatch.setattr(evaluation, "REPEATS", (2, 2))
    monkeypatch.setitem(expected_accuracy.__kwdefaults__, "n_repeats", 2)
    monkeypatch.setattr(page.Report, "figure", lambda report, *args, **options: report)
    model, call, numbers = fitted(name), FUNCTIONS[function], {}
    takes_errors = "X_err" in inspect.signature(of_models()[function.split(",")[0]]).parameters
    for form, (values, given, reference) in FORMS.items():
        expected = refusal(name, function, form)
        with sklearn.config_context(enable_metadata_routing=form == "measured"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X has feature names")  # the fit had arrays
            if expected is not None:
                with pytest.raises(expected[0], match=expected[1]):
                    call(model, values, Y, given)
                continue
            numbers[form] = call(model, values, Y, given)
        if form == "array" and function.startswith("plotting."):  # drawn once
            display = public()[".".join(function.split(".")[:2])]
            monkeypatch.setattr(display, "plot", lambda self, *args, **options: self)
        plain = "none" if form == "source" and not takes_errors else reference
        assert same(numbers[form], numbers[plain or form]), form


# Whose parts no model file holds.
NOT_SAVED = {"a search": "GridSearchCV", "WithErrors, curved": "PowerTransformer"}


@every_estimator
def test_pickles_clones_and_model_files_predict_the_same(name, tmp_path):
    model = fitted(name)
    samples = X if re.fullmatch(MOVED, name) else Measured(X, X_ERR)
    again = clone(model).fit(samples, Y)
    path = str(tmp_path / "model")
    if name in NOT_SAVED:
        with pytest.raises(ValueError, match=NOT_SAVED[name]):
            models.save_model(model, path)
        assert not list(tmp_path.iterdir())
        loaded = model
    else:
        models.save_model(model, path)
        loaded = models.load_model(path)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            expected = getattr(model, method)(samples)
            kept = getattr(pickle.loads(pickle.dumps(model)), method)(samples)
            np.testing.assert_array_equal(kept, expected)
            np.testing.assert_array_equal(getattr(loaded, method)(samples), expected)
            np.testing.assert_array_equal(getattr(again, method)(samples), expected)


@every_plain_estimator
def test_predictions_of_sources_are_those_of_arrays(name):
    model, source = fitted(name), Arrays(X, rows=17)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function", "margin_and_spread"):
        if hasattr(model, method):
            of = getattr(model, method)
            np.testing.assert_allclose(of(source, X_err=X_ERR), of(X, X_err=X_ERR), rtol=1e-9, atol=1e-12)
    assert model.score(source, Y, X_err=X_ERR) == model.score(X, Y, X_err=X_ERR)


# --- routing ----------------------------------------------------------------------------------------------


# Estimators that give groups to their splitter, which requests them.
ROUTERS = {"CalibratedWithErrorsCV"}
GROUPS = np.arange(40) // 4


def requests(estimator, method):
    """Return what a method requests of metadata, for itself and for what it routes to."""
    routing = estimator.get_metadata_routing()
    own = getattr(routing, "_self_request", routing)
    return getattr(own, method).requests


@pytest.mark.parametrize("kind", ESTIMATOR_CLASSES, ids=lambda kind: kind.__name__)
def test_methods_request_the_parameters_that_they_have(kind):
    for method in ("fit", "partial_fit", "predict", "predict_proba", "decision_function", "score", "transform"):
        if not callable(getattr(kind, method, None)):
            continue
        parameters = {*inspect.signature(getattr(kind, method)).parameters} - {"self", "X", "y", "params"}
        requested = requests(kind(), method)
        assert {*requested} == parameters - ({"groups"} if kind.__name__ in ROUTERS else set())
        assert requested.get("X_err", True) is True
        assert requested.get("groups", True) is True


def routed(name):
    """Return an estimator that requests weights, as do its steps and what it contains."""
    estimator = clone(ESTIMATORS[name])
    if name == "GuruClassifierCV":
        estimator.set_params(scoring=make_scorer(accuracy_score).set_score_request(sample_weight=True))
    steps = [step for _, step in estimator.steps] if hasattr(estimator, "steps") else [estimator]
    for step in [*steps, *(step.estimator for step in steps if getattr(step, "estimator", None) is not None)]:
        if "sample_weight" in inspect.signature(step.fit).parameters:
            step.set_fit_request(sample_weight=True)
        if hasattr(step, "set_score_request"):
            step.set_score_request(sample_weight=True)
    return estimator


# Who predicts no samples without their errors; fits of boosting are slow, and a search scores by itself.
REQUIRING = [
    name
    for name in ESTIMATORS
    if re.fullmatch(NEEDING, name) and not name.endswith(("default", "boosting", "given", "search"))
]


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("name", REQUIRING)
def test_scorers_by_name_have_numbers_or_say_what_to_do(name, routing):
    """scikit-learn passes X_err to fits alone, and replaces an error of a scorer by NaN and a warning."""
    estimator = ESTIMATORS[name]
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.warns(UserWarning, match=r"In cross_val_score and searches, give gaussguru.Measured\(X, X_err\)"):
            scores = cross_val_score(estimator, X, Y, cv=2, scoring="neg_log_loss", params={"X_err": X_ERR})
        assert np.isnan(scores).all()
        with pytest.raises(ValueError, match="X_err is missing"):
            cross_val_score(estimator, X, Y, cv=2, scoring="neg_log_loss", params={"X_err": X_ERR}, error_score="raise")
        samples = Measured(X, X_ERR)
        by_name = cross_val_score(estimator, samples, Y, cv=2, scoring="neg_log_loss", error_score="raise")
        own = cross_val_score(estimator, samples, Y, cv=2, scoring=log_loss_scorer, error_score="raise")
        np.testing.assert_allclose(by_name, own, rtol=1e-9)
        if routing:
            routed = cross_val_score(estimator, X, Y, cv=2, scoring=log_loss_scorer, params={"X_err": X_ERR})
            np.testing.assert_allclose(routed, own, rtol=1e-9)


# Fits of boosting are slow.
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if not name.endswith(("default", "boosting"))])
def test_searches_and_pipelines_are_given_metadata(name):
    """With routing, every fold has its part of error bars, weights and groups, as if it were fitted alone."""
    weights = np.random.default_rng(1).integers(1, 3, 40).astype(float)
    samples = X if re.fullmatch(MOVED, name) else Measured(X, X_ERR)
    metadata = {"X_err": X_ERR, "sample_weight": weights, "groups": GROUPS}
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = routed(name)
        search = GridSearchCV(estimator, {}, cv=GroupKFold(2), refit=False, error_score="raise").fit(X, Y, **metadata)
        pipe = make_pipeline("passthrough", estimator)
        scores = cross_val_score(pipe, X, Y, cv=GroupKFold(2), params=metadata, error_score="raise")
        np.testing.assert_array_equal([search.cv_results_[f"split{i}_test_score"][0] for i in range(2)], scores)
        if name not in vars(gaussguru):  # pipelines and searches have routed already
            return
        beside = {key: metadata[key] for key in requests(estimator, "fit") if key in ("sample_weight", "groups")}
        for (train, test), score in zip(GroupKFold(2).split(X, Y, GROUPS), scores, strict=True):
            one = clone(estimator).fit(samples[train], Y[train], **{key: beside[key][train] for key in beside})
            assert one.score(samples[test], Y[test], sample_weight=weights[test]) == score


@pytest.mark.parametrize(
    "name", [*(name for name in ESTIMATORS if name in vars(gaussguru)), "Deconvolve", "WithErrors"]
)
def test_error_columns_among_the_features_are_noticed(name):
    """Estimators for measured values refuse these columns, others warn: a spread of readings may be a feature."""
    table = pd.DataFrame({"x": X[:, 0], "x_err": X_ERR[:, 0], "z": X[:, 1], "z_error": X_ERR[:, 1], "terrace": X[:, 1]})
    estimator = clone(ESTIMATORS[name])
    words = r"named as the errors of others, \['x_err', 'z_error'\].*errors_from_frame"
    refused = name in {"Deconvolve", "ErrorBarClassifier", "PopulationClassifier", "WithErrors"}
    with pytest.raises(ValueError, match=words) if refused else pytest.warns(UserWarning, match=words):
        estimator.fit(table, Y)
    clone(estimator).fit(table[["x", "z", "terrace"]], Y)
    clone(estimator).fit(table.to_numpy(), Y)  # as the message says


@pytest.mark.parametrize("name", [*(name for name in ESTIMATORS if name in vars(gaussguru)), "Deconvolve"])
def test_text_among_the_features_is_refused_by_the_name_of_its_column(name):
    table = pd.DataFrame({"x": X[:, 0], "kind of rock": np.where(Y[0] == Y, "basalt", "chalk")})
    with pytest.raises(
        ValueError, match=r"X must hold numbers; column 'kind of rock' has '(basalt|chalk)'.*encode it.*limits"
    ):
        clone(ESTIMATORS[name]).fit(table, Y)


@pytest.mark.parametrize(
    ("columns", "errors"),
    [
        (["x", "e_x"], ["e_x"]),
        (["x", "x_error"], ["x_error"]),
        (["flux [mJy]", "flux sigma"], ["flux sigma"]),
        (["xerr1", "x", "xerr2"], ["xerr1", "xerr2"]),
        (["x", "x_err1"], ["x_err1"]),
        (["ra", "dec", "ra_error"], ["ra_error"]),
        (["psfMag_u", "psfMagErr_u"], ["psfMagErr_u"]),
        (["income", "M_income"], ["M_income"]),
        (["u", "g", "u_g"], []),
        (["speed", "speed_limit", "x_upper", "x"], []),
        (["e_x", "y", "terror"], []),
    ],
)
def test_features_that_are_named_as_errors_by_any_archive_are_noticed(columns, errors):
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((40, len(columns))), columns=columns)
    words = re.escape(f"named as the errors of others, {errors!r}: X, X_err =")
    with pytest.raises(ValueError, match=words) if errors else nullcontext():
        gaussguru.PopulationClassifier(1).fit(table, Y)
    with pytest.warns(UserWarning, match=words) if errors else nullcontext():
        gaussguru.GuruClassifier(1.0).fit(table, Y)


def test_errors_of_frames_and_arrays_are_the_same_to_the_bit():
    """A sum over the columns of a frame, which lie in memory one by one, rounds otherwise than one over rows."""
    rng = np.random.default_rng(0)
    values, errors = 1e4 * rng.lognormal(size=(700, 5)), rng.uniform(1.0, 100.0, (700, 5))
    one, other = (WithErrors().fit_transform(X, X_err=errors) for X in (values, pd.DataFrame(values)))
    np.testing.assert_array_equal(one.err, other.err)
