"""Importance of features, explanations of samples and coefficients, against formulas written out."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru import (
    AdversarialSVC,
    ErrorBarClassifier,
    GuruClassifier,
    KernelGuruClassifier,
    Measured,
    PopulationClassifier,
)
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.datasets import make_measured
from gaussguru.errors import Limits, LowRank
from gaussguru.inspection import coefficients, explain, feature_importance
from gaussguru.plotting import ExplanationDisplay, FeatureImportanceDisplay
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import NotLinearError

DATA = make_measured(160, 3, error=0.4, random_state=0)
X, ERR, Y = DATA.X, DATA.X_err, DATA.y
TRAIN, TEST = slice(0, 100), slice(100, 160)
NAMES = ["flux", "colour", "period"]
MODELS = {
    "GuruClassifier": GuruClassifier(0.3),
    "KernelGuruClassifier": KernelGuruClassifier(0.3, gamma=0.3),
    "ErrorBarClassifier": ErrorBarClassifier(model="linear", n_components=1, cv=2),
    "PopulationClassifier": PopulationClassifier(1),
    "CalibratedWithErrorsCV": CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2),
}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def fitted():
    made = {}

    def fit(name):
        if name not in made:
            made[name] = MODELS[name].fit(X[TRAIN], Y[TRAIN], X_err=ERR[TRAIN])
        return made[name]

    return fit


@every_model
def test_importance_is_the_rise_of_the_loss_where_a_feature_was_not_measured(fitted, name):
    model = fitted(name)
    found = feature_importance(model, X[TEST], Y[TEST], ERR[TEST])
    p = model.predict_proba(X[TEST], X_err=ERR[TEST])
    np.testing.assert_allclose(found.baseline, log_loss(Y[TEST], p), rtol=1e-12)
    for j in range(3):
        errors = ERR[TEST].copy()
        errors[:, j] = np.inf
        q = model.predict_proba(X[TEST], X_err=errors)
        np.testing.assert_allclose(found.importance[j], log_loss(Y[TEST], q) - log_loss(Y[TEST], p), rtol=1e-9)
        rise = np.log(p / q)[np.arange(60), Y[TEST]]
        np.testing.assert_allclose(found.error[j], rise.std() / np.sqrt(60), rtol=1e-9)
    hits = feature_importance(model, X[TEST], Y[TEST], ERR[TEST], scoring="accuracy")
    np.testing.assert_allclose(hits.baseline, model.score(X[TEST], Y[TEST], X_err=ERR[TEST]), rtol=1e-12)
    drop = hits.baseline - accuracy_score(Y[TEST], model.predict(X[TEST], X_err=errors))
    np.testing.assert_allclose(hits.importance[2], drop, atol=1e-12)


@every_model
def test_importance_by_permutation_of_values_with_their_errors(fitted, name):
    model = fitted(name)
    found = feature_importance(model, X[TEST], Y[TEST], ERR[TEST], method="permutation", n_repeats=2, random_state=3)
    rng, before = np.random.RandomState(3), model.predict_proba(X[TEST], X_err=ERR[TEST])
    for j in range(3):
        rises = []
        for _ in range(2):
            order, values, errors = rng.permutation(60), X[TEST].copy(), ERR[TEST].copy()
            values[:, j], errors[:, j] = values[order, j], errors[order, j]
            after = model.predict_proba(values, X_err=errors)
            rises.append(log_loss(Y[TEST], after) - log_loss(Y[TEST], before))
        np.testing.assert_allclose(found.importance[j], np.mean(rises), rtol=1e-9)


def test_weights_are_copies(fitted):
    weights = np.arange(60) % 3
    rows = np.repeat(np.arange(100, 160), weights)
    one = feature_importance(fitted("PopulationClassifier"), X[TEST], Y[TEST], ERR[TEST], sample_weight=weights)
    other = feature_importance(fitted("PopulationClassifier"), X[rows], Y[rows], ERR[rows])
    np.testing.assert_allclose(one.importance, other.importance, rtol=1e-9)
    assert (one.error > other.error).all()  # copies are taken for other samples


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_feature_without_a_weight_does_not_matter(make):
    model = LogisticRegression().fit(X, Y)
    model.coef_[0, 1] = 0.0
    found = feature_importance(model, make(X), Y, method="permutation")
    np.testing.assert_allclose([found.importance[1], found.error[1]], 0.0, atol=1e-15)
    assert found.importance[0] > 0.01


FORMS = {
    "covariances": np.einsum("ij,jk->ijk", np.square(ERR), np.eye(3)),
    "low rank": LowRank(np.zeros((160, 3, 1)), ERR),
    "sparse": sp.csr_array(ERR),
    "measured": None,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", ["unmeasured", "permutation"])
def test_every_form_of_errors(fitted, form, method):
    model = fitted("PopulationClassifier")
    values, errors = (Measured(X, ERR), None) if form == "measured" else (X, FORMS[form])
    one, other = (feature_importance(model, values, Y, given, method=method) for given in (errors, ERR))
    np.testing.assert_allclose(one.importance, other.importance, rtol=1e-6, atol=1e-9)


def test_limits_and_gaps(fitted):
    limits = np.where(np.arange(480).reshape(160, 3) % 11 == 3, -1, 0)
    model = ErrorBarClassifier(model="linear", n_components=1, cv=2).fit(X, Y, X_err=Limits(ERR, limits))
    assert np.isfinite(feature_importance(model, X, Y, Limits(ERR, limits)).importance).all()
    values = np.where(limits == 0, X, np.nan)
    values[:, 2] = np.nan
    found = feature_importance(fitted("PopulationClassifier"), values, Y, ERR)
    assert found.importance[2] == 0  # it was not measured anyway
    assert found.importance[0] > 0


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_names_and_tables(library):
    frame, errors = (library(dict(zip(NAMES, table.T, strict=True))) for table in (X, ERR))
    model = PopulationClassifier(1).fit(frame, Y, X_err=errors)
    for method in ("unmeasured", "permutation"):
        table = pd.DataFrame(feature_importance(model, frame, Y, errors, method=method).table)
        assert table["feature"].tolist() == NAMES
        assert table.columns.tolist() == ["feature", "importance", "error"]
    found = explain(model, frame[3:4], errors[3:4])
    assert pd.DataFrame(found.table)["feature"].tolist() == NAMES


REFUSED = {
    "no population": (
        GuruClassifier(0.3).fit(X, Y),
        {},
        "GuruClassifier cannot predict samples of which a feature was not measured.*fit it with X_err, or use",
    ),
    "of scikit-learn": (
        LogisticRegression().fit(X, Y),
        {},
        "LogisticRegression cannot predict samples of which a feature.*X carries error bars",
    ),
    "no probabilities": (AdversarialSVC(0.1).fit(X, Y), {"method": "permutation"}, "model must have predict_proba"),
    "method": (LogisticRegression().fit(X, Y), {"method": "shap"}, "method must be one of"),
    "scoring": (LogisticRegression().fit(X, Y), {"scoring": "f1"}, "scoring must be one of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_do(case):
    model, options, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        feature_importance(model, X, Y, **options)


def test_unknown_labels_are_refused(fitted):
    with pytest.raises(ValueError, match=r"y must hold labels among the classes \[0, 1\]"):
        feature_importance(fitted("PopulationClassifier"), X, Y + 1, ERR)


def test_a_classifier_without_probabilities_has_accuracies():
    model = AdversarialSVC(0.1).fit(X, Y)
    found = feature_importance(model, X, Y, method="permutation", scoring="accuracy")
    assert found.baseline == model.score(X, Y)
    assert found.importance.max() > 0


# --- one sample -----------------------------------------------------------------------------------------------


@every_model
def test_contributions_are_differences_of_probabilities(fitted, name):
    model = fitted(name)
    found = explain(model, X[110], ERR[110])
    p = model.predict_proba(X[110:111], X_err=ERR[110:111])[0]
    place = int(p.argmax())
    assert found.label == place
    np.testing.assert_allclose(found.probability, p[place], rtol=1e-12)
    for j in range(3):
        errors = ERR[110:111].copy()
        errors[:, j] = np.inf
        without = model.predict_proba(X[110:111], X_err=errors)[0, place]
        np.testing.assert_allclose(found.without[j], without, rtol=1e-9)
        np.testing.assert_allclose(found.contribution[j], p[place] - without, atol=1e-12)
    nothing = model.predict_proba(X[110:111], X_err=np.full((1, 3), np.inf))[0, place]
    np.testing.assert_allclose(found.base, nothing, rtol=1e-9)
    other = explain(model, X[110], ERR[110], label=1 - place)
    np.testing.assert_allclose(other.contribution, -found.contribution, atol=1e-9)


def test_forms_of_one_sample():
    frame, errors = (pd.DataFrame(table, columns=NAMES) for table in (X, ERR))
    model = PopulationClassifier(1).fit(frame, Y, X_err=errors)
    expected = explain(model, frame[7:8], errors[7:8])
    np.testing.assert_array_equal(expected.values, X[7])
    np.testing.assert_array_equal(expected.errors, ERR[7])
    for sample, given in (
        (frame.iloc[7], errors.iloc[7]),
        (Measured(frame, errors)[7], None),
        (frame[7:8], ERR[7]),
        (frame[7:8], np.diag(np.square(ERR[7]))),
    ):
        np.testing.assert_allclose(explain(model, sample, given).contribution, expected.contribution, rtol=1e-9)
    assert not explain(model, frame.iloc[7], 0.0).errors.any()
    with pytest.raises(ValueError, match=r"X_err is missing.*Pass X_err=0"):
        explain(model, frame.iloc[7])
    with pytest.raises(ValueError, match="x must be one sample; got 2"):
        explain(model, frame[7:9], errors[7:9])
    with pytest.raises(ValueError, match=r"label must be one of the classes \[0, 1\]; got 5"):
        explain(model, frame[7:8], errors[7:8], label=5)


def test_a_model_without_error_bars_is_not_explained():
    with pytest.raises(ValueError, match="fit it with X_err"):
        explain(GuruClassifier(0.3).fit(X, Y), X[0], ERR[0])
    with pytest.raises(TypeError, match="model must have predict_proba"):
        explain(AdversarialSVC(0.1).fit(X, Y), X[0])


# --- coefficients ---------------------------------------------------------------------------------------------


def test_coefficients_of_a_pipeline_are_in_the_units_of_its_input():
    frame = pd.DataFrame(X * [1.0, 10.0, 100.0], columns=NAMES)
    pipe = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.3)).fit(frame, Y)
    found = coefficients(pipe, frame)
    scale = pipe[0].transformer_.scale_
    np.testing.assert_allclose(found.coef, pipe[1].coef_ / scale, rtol=1e-9)
    np.testing.assert_allclose(found.per_spread, pipe[1].coef_, rtol=1e-9)
    assert found.features.tolist() == NAMES
    assert pd.DataFrame(found.table).columns.tolist() == ["feature", "coef", "per_spread"]


def test_coefficients_of_many_classes_have_their_labels():
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = GuruClassifier(0.1).fit(sp.csr_array(X), labels)
    found = coefficients(model, sp.csr_array(X))
    np.testing.assert_array_equal(found.coef, model.coef_)
    assert list(found.table) == [
        "feature", "coef_a", "per_spread_a", "coef_b", "per_spread_b", "coef_c", "per_spread_c"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ErrorBarClassifier", "CalibratedWithErrorsCV"])
def test_calibrated_coefficients_are_slopes_of_the_probit_of_exact_samples(fitted, name):
    model = fitted(name)
    at = np.concatenate([np.zeros((1, 3)), 0.01 * np.eye(3)])
    scores = ndtri(model.predict_proba(at, X_err=np.zeros((4, 3)))[:, 1])
    np.testing.assert_allclose(coefficients(model, X).coef[0], (scores[1:] - scores[0]) / 0.01, rtol=1e-3, atol=1e-4)


def test_gaps_do_not_matter_to_coefficients(fitted):
    values = np.where(np.arange(480).reshape(160, 3) % 11 == 3, np.nan, X)
    found = coefficients(fitted("GuruClassifier"), Measured(values, ERR))
    np.testing.assert_allclose(found.coef, fitted("GuruClassifier").coef_, rtol=1e-9)
    np.testing.assert_allclose(found.per_spread, found.coef * np.nanstd(values, axis=0), rtol=1e-9)


@pytest.mark.parametrize("name", ["KernelGuruClassifier", "PopulationClassifier"])
def test_what_is_not_linear_has_no_coefficients(fitted, name):
    with pytest.raises(NotLinearError, match=f"{name} has no coefficients.*feature_importance tells"):
        coefficients(fitted(name), X)


# --- pictures -------------------------------------------------------------------------------------------------


def test_bars_are_the_importance_in_order(fitted):
    shown = FeatureImportanceDisplay.from_estimator(
        fitted("PopulationClassifier"), X[TEST], Y[TEST], ERR[TEST], max_features=2
    )
    best = np.sort(shown.importance.importance)[::-1][:2]
    np.testing.assert_allclose([bar.get_width() for bar in shown.bars_], best)
    labels = [label.get_text() for label in shown.ax_.get_yticklabels()]
    assert labels == [f"x{j}" for j in np.argsort(-shown.importance.importance)[:2]]
    assert shown.ax_.get_xlabel() == "rise of the log loss if it is not measured"


def test_bars_of_one_sample_have_values_and_errors(fitted):
    values = X[110].copy()
    values[1] = np.nan
    shown = ExplanationDisplay.from_estimator(fitted("PopulationClassifier"), values, ERR[110])
    widths = np.array([bar.get_width() for bar in shown.bars_])
    assert (np.abs(widths[:-1]) >= np.abs(widths[1:])).all()
    labels = {label.get_text() for label in shown.ax_.get_yticklabels()}
    assert "x1, not measured" in labels
    assert f"x0 = {values[0]:.3g} ± {ERR[110, 0]:.2g}" in labels
