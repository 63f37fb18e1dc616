"""Weights of samples with error bars: 0 leaves a sample out, and 2 is a sample that occurs twice."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from gaussguru import (
    ErrorBarClassifier,
    GuruClassifier,
    KernelGuruClassifier,
    PopulationClassifier,
)
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Limits, LowRank
from gaussguru.population import Deconvolve
from gaussguru.sources import Arrays, reading

MODELS = {
    "linear": lambda: ErrorBarClassifier(model="linear", cv=3),
    "balanced": lambda: ErrorBarClassifier(model="linear", class_weight="balanced", cv=3),
    "rbf": lambda: ErrorBarClassifier(model="rbf", cv=3),
    "auto": lambda: ErrorBarClassifier(cv=StratifiedKFold(2, shuffle=True, random_state=0)),
    "balanced pool": lambda: ErrorBarClassifier(model="population", class_weight="balanced", cv=3),
    "estimator": lambda: ErrorBarClassifier(
        LogisticRegression(), model="boosting", cv=KFold(3, shuffle=True, random_state=0)
    ),
    "populations": PopulationClassifier,
    "calibrated": lambda: CalibratedWithErrorsCV(GuruClassifier(0.3), cv=3),
}


def samples(n=90, n_features=3):
    """Return values, errors, labels and weights, of which a third is 0: of samples that are like no other."""
    rng = np.random.default_rng(4)
    y = np.arange(n) % 2
    truth = rng.normal(size=(n, n_features)) + y[:, np.newaxis]
    err = rng.uniform(0.1, 1.0, size=truth.shape)
    X = truth + err * rng.normal(size=truth.shape)
    weights = rng.choice([0.0, 1.0, 2.5], size=n)
    X[weights == 0] *= 50.0
    return X, err, y, weights


@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_weight_0_leaves_a_sample_out(name, ones):
    X, err, y, weights = samples()
    weights = np.minimum(weights, 1.0) if ones else weights
    kept = weights > 0
    removed = MODELS[name]().fit(X[kept], y[kept], None if ones else weights[kept], X_err=err[kept])
    found = MODELS[name]().fit(X, y, weights, X_err=err)
    # Sums of some numbers that are 0 may round otherwise.
    np.testing.assert_allclose(found.predict_proba(X, err), removed.predict_proba(X, err), atol=1e-7)


@pytest.mark.parametrize("model", ["linear", "rbf"])
@pytest.mark.parametrize("form", ["covariances", "low rank", "limits", "list", "gaps", "groups", "folds"])
def test_weight_0_in_other_forms(form, model):
    X, err, y, weights = samples()
    kept = np.flatnonzero(weights)
    places = np.cumsum(weights > 0) - 1
    sides = np.random.default_rng(0).choice([-1, 0, 0], size=X.shape)
    forms = {
        "covariances": np.einsum("ij,jk->ijk", err**2, np.eye(3)),
        "low rank": LowRank(0.3 * err[:, :, np.newaxis], err),
        "limits": Limits(err, sides),
    }
    errors = forms.get(form, err)
    some = errors[kept]
    if form == "gaps":
        X[::5, 0] = np.nan
        X[weights == 0, 1] = np.nan  # no feature of the samples that count has these gaps
    if form == "list":
        errors = errors.tolist()
    groups = np.arange(len(y)) // 4 if form == "groups" else None
    folds = [(train, test) for train, test in KFold(3).split(X)]
    one = ErrorBarClassifier(model=model, cv=folds if form == "folds" else 3)
    one.fit(X, y, weights, errors, groups)
    inner = [tuple(places[part][weights[part] > 0] for part in fold) for fold in folds]
    other = ErrorBarClassifier(model=model, cv=inner if form == "folds" else 3)
    other.fit(X[kept], y[kept], weights[kept], some, None if groups is None else groups[kept])
    if form == "gaps" and model == "rbf":
        assert one.features_.gaps.tolist() == other.features_.gaps.tolist() == [0]
    np.testing.assert_allclose(one.predict_proba(X, errors), other.predict_proba(X, errors), atol=1e-7)
    if form in ("folds", "groups"):
        cv = (folds, inner) if form == "folds" else (GroupKFold(3),) * 2
        one, other = (CalibratedWithErrorsCV(GuruClassifier(0.3), cv=each) for each in cv)
        one.fit(X, y, weights, err, groups)
        other.fit(X[kept], y[kept], weights[kept], err[kept], None if groups is None else groups[kept])
        np.testing.assert_allclose(one.predict_proba(X, err), other.predict_proba(X, err), atol=1e-7)


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_weight_0_in_a_source(name, monkeypatch):
    X, err, y, weights = samples(300)
    whole = MODELS[name]().fit(X, y, weights, X_err=err).predict_proba(X, err)
    monkeypatch.setattr(reading, "MOST_DRAWN", 1000)
    parts = MODELS[name]().fit(Arrays(X, rows=70), y, weights, X_err=err).predict_proba(X, err)
    np.testing.assert_allclose(parts, whole, atol=2e-3)


def test_weight_0_and_the_number_of_components():
    """Folds, starts and ranks are those of the samples that count."""
    X, err, y, weights = samples(40, 8)
    kept = weights > 0
    one, other = Deconvolve("auto").fit(X, X_err=err, sample_weight=weights), Deconvolve("auto")
    other.fit(X[kept], X_err=err[kept], sample_weight=weights[kept])
    assert one.n_components_ == other.n_components_
    np.testing.assert_array_equal(one.means_, other.means_)
    # 40 samples of 8 features have full covariances, and those that count do not.
    assert PopulationClassifier().fit(X, y, X_err=err).rank_ is None
    assert PopulationClassifier().fit(X, y, weights, X_err=err).rank_ == 8


def test_weights_are_repetitions_where_folds_are_the_same():
    X, err, y, weights = samples()
    weights = np.ceil(weights)
    often = np.repeat(np.arange(len(y)), weights.astype(int))
    folds = [(train, test) for train, test in KFold(3, shuffle=True, random_state=0).split(X)]
    repeated = [tuple(np.flatnonzero(np.isin(often, part)) for part in fold) for fold in folds]
    options = {"n_components": 1, "model": "linear"}
    one = ErrorBarClassifier(cv=folds, **options).fit(X, y, weights, X_err=err)
    two = ErrorBarClassifier(cv=repeated, **options).fit(X[often], y[often], X_err=err[often])
    np.testing.assert_allclose(one.cv_scores_["log_loss"], two.cv_scores_["log_loss"], rtol=1e-3)
    seen = X[often], err[often]
    np.testing.assert_allclose(one.predict_proba(*seen), two.predict_proba(*seen), atol=1e-3)


@pytest.mark.parametrize(
    "model",
    [
        Deconvolve(), Deconvolve(rank=1), Deconvolve(scale_errors=True), PopulationClassifier(1), GuruClassifier(0.3),
        KernelGuruClassifier(0.3, gamma=0.5),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_em_ends_where_samples_that_occur_more_often_end_it(model, seed):
    """With gaps, which the populations of all these classifiers fill."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3))
    err, y = rng.uniform(0.1, 1.5, size=truth.shape), (truth[:, 0] > 0).astype(int)
    X = truth + err * rng.normal(size=truth.shape)
    err[rng.random(err.shape) < 0.15] = np.inf
    weights = 1.0 + rng.integers(0, 4, len(y))
    often = np.repeat(np.arange(len(y)), weights.astype(int))
    one = clone(model).fit(X, y, sample_weight=weights, X_err=err)
    two = clone(model).fit(X[often], y[often], X_err=err[often])
    if isinstance(model, Deconvolve):
        assert one.n_iter_ == two.n_iter_
        np.testing.assert_allclose(one.covariances_, two.covariances_, rtol=1e-8, atol=1e-9)
    else:
        np.testing.assert_allclose(one.predict_proba(X, err), two.predict_proba(X, err), atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        PopulationClassifier(1), ErrorBarClassifier(model="linear", cv=2), ErrorBarClassifier(model="population", cv=2),
        CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2),
    ],
    ids=str,
)  # fmt: skip
def test_weights_below_one_are_relative(model):
    """Those that add up to 1 are not a single sample, of which classes would not be known."""
    X, err, y, weights = samples()
    weights[weights > 0] /= weights[weights > 0].mean()
    one = clone(model).fit(X, y, weights, X_err=err).predict_proba(X, err)
    for factor in (0.1, 1 / weights.sum(), 1e-50):
        other = clone(model).fit(X, y, factor * weights, X_err=err).predict_proba(X, err)
        np.testing.assert_allclose(other, one, atol=1e-6)
        if not isinstance(model, PopulationClassifier):
            other = clone(model).fit(Arrays(X), y, factor * weights, X_err=err).predict_proba(X, err)
            np.testing.assert_allclose(other, one, atol=1e-4)
    assert np.abs(one[weights > 0] - 0.5).max() > 0.3


def test_relative_weights_do_not_end_em_early():
    X, err, _, weights = samples()
    weights += 1.0
    one, other = (Deconvolve().fit(X, X_err=err, sample_weight=w) for w in (weights, weights / weights.sum()))
    assert other.n_iter_ > 2
    np.testing.assert_allclose(one.covariances_, other.covariances_, rtol=0.01)


def test_errors_of_other_samples_are_refused():
    """Rows are taken of errors that fit, and not of others."""
    X, err, y, weights = samples()
    for model in (ErrorBarClassifier(model="linear", cv=3), ErrorBarClassifier(cv=2), PopulationClassifier(1)):
        for wrong in (np.vstack([err, err]), err[weights > 0], np.vstack([err, err]).tolist()):
            with pytest.raises(ValueError, match="X_err"):
                model.fit(X, y, weights, X_err=wrong)


def test_a_pipeline_of_posteriors():
    X, err, y, weights = samples()
    kept = weights > 0
    model = make_pipeline(Deconvolve(2), GuruClassifier(0.3))
    one, other = CalibratedWithErrorsCV(model, cv=3), CalibratedWithErrorsCV(model, cv=3)
    one.fit(X, y, weights, err)
    other.fit(X[kept], y[kept], weights[kept], err[kept])
    np.testing.assert_allclose(one.predict_proba(X, err), other.predict_proba(X, err), atol=1e-7)


def test_the_unit_of_a_feature_counts_weights():
    """Values of large errors are left out: the errors that half of the weight has decide which these are."""
    rng = np.random.default_rng(3)
    err = np.concatenate([np.full(20, 1e-3), np.full(30, 30.0)])[:, np.newaxis]
    X = rng.normal(size=(50, 1)) * np.maximum(1e-3, err)
    weights = np.where(np.arange(50) < 20, 3.0, 1.0)
    often = np.repeat(np.arange(50), weights.astype(int))
    one = Deconvolve(ridge=0.1).fit(X, X_err=err, sample_weight=weights)
    other = Deconvolve(ridge=0.1).fit(X[often], X_err=err[often])
    np.testing.assert_allclose(one.spreads_, other.spreads_, rtol=1e-12)
    np.testing.assert_allclose(one.covariances_, other.covariances_, rtol=0.05)
