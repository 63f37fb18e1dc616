"""Probabilities and posteriors as functions of an error bar, from 0 to infinity: continuous, and free of units."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from gaussguru import (
    CollapseWarning,
    ErrorBarClassifier,
    GuruClassifier,
    KernelGuruClassifier,
    PopulationClassifier,
)
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Limits, LowRank, Measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

# One pass over three folds; cv=3 would be three of them.
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)
MODELS = {
    "population of each class": lambda: PopulationClassifier(1),
    "mixture of each class": lambda: PopulationClassifier(2),
    "linear": lambda: ErrorBarClassifier(model="linear", cv=3),
    **{
        model: lambda model=model: ErrorBarClassifier(model=model, cv=FOLDS, n_jobs=1)
        for model in ("rbf", "population", "boosting", "auto")
    },
    "estimator": lambda: ErrorBarClassifier(LogisticRegression(), model="boosting", cv=FOLDS, n_jobs=1),
    "calibrated": lambda: CalibratedWithErrorsCV(
        make_pipeline(WithErrors(StandardScaler()), Deconvolve(2), GuruClassifier(0.1)), cv=3
    ),
}
# Functions with steps.
TREES = ("boosting", "auto")
# By how much other units may change probabilities: values differ by rounding, 1e-16 of them. Logistic regression on
# kernel values stops after 80 iterations, wherever it is.
UNITS = {"rbf": 5e-4, "auto": 5e-4}
SIZES = np.concatenate([[0.0], np.geomspace(1e-2, 1e8, 401), np.geomspace(1e9, 1e300, 98), [np.inf]])


def samples(n_classes):
    """Return values, errors and labels of classes with spreads of 1, 4, ..."""
    rng = np.random.default_rng(7)
    y = np.arange(240) % n_classes
    truth = rng.normal(size=(240, 2)) * (1.0 + 3.0 * y)[:, np.newaxis] + y[:, np.newaxis]
    err = rng.uniform(0.1, 1.0, size=truth.shape)
    return truth + err * rng.normal(size=truth.shape), err, y


def forms(which):
    """Return errors of growing size in every form, of the features asked for.

    They are correlated where both grow. (A large error that is correlated with a small one is no missing value: it
    tells that the small one is different.)
    """
    std = np.where(which, SIZES[:, np.newaxis], 0.3)
    finite = np.where(np.isfinite(std), std, 0.0) * all(which)
    covariances = np.zeros((len(SIZES), 2, 2))
    with np.errstate(over="ignore"):
        covariances[:, [0, 1], [0, 1]] = np.square(std)
    some = np.isfinite(covariances).all(axis=(1, 2))
    covariances[some, 0, 1] = covariances[some, 1, 0] = 0.6 * np.prod(finite[some], axis=1)
    low_rank = LowRank(finite[:, :, np.newaxis] * np.array([[0.8], [0.6]]), std)
    return {"values": std, "covariances": covariances, "low rank": low_rank}


def check_continuous(found, sizes=SIZES, *, smooth=True):
    """Check curves over growing errors: no jump, and the limit at the end; of trees the limit alone."""
    steps = np.abs(np.diff(found, axis=0))
    # Errors grow by 6 % from one to the next: on a smooth curve of height 1 these are steps of about 0.05 at most.
    assert not smooth or steps[1:].max() < 0.06
    assert steps[sizes[1:] > 1e6].max() < 1e-7
    assert steps[-1].max() < 1e-12


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_continuous_in_the_errors(name, n_classes):
    X, err, y = samples(n_classes)
    unit = np.array([1e-7, 3e5])
    here = MODELS[name]().fit(Measured(X, err), y)
    there = MODELS[name]().fit(Measured(X * unit, err * unit), y)
    x = np.tile([2.0, -1.0], (len(SIZES), 1))
    for which in ([True, True], [True, False]):
        for form, errors in forms(which).items():
            found = here.predict_proba(Measured(x, errors))
            assert np.isfinite(found).all()
            check_continuous(found, smooth=name not in TREES)
            if form == "values":
                again = there.predict_proba(Measured(x * unit, np.minimum(errors * unit, np.inf)))
                np.testing.assert_allclose(again, found, atol=UNITS.get(name, 2e-5))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [
        GuruClassifier(0.1), KernelGuruClassifier(0.1), KernelGuruClassifier(0.1, kernel="poly", degree=2),
        KernelGuruClassifier(0.1, n_components=40, spread="exact"),
    ],
    ids=str,
)  # fmt: skip
def test_classifiers_for_noise_are_continuous_in_all_finite_errors(model, n_classes):
    """And jump to infinity: the rest of the sample then fills the gap, which a limit of noise would forget."""
    X, err, y = samples(n_classes)
    fitted, sizes = clone(model).fit(X, y, X_err=err), SIZES[SIZES < 1e149]
    for which in ([True, True], [True, False]):
        errors = np.where(which, sizes[:, np.newaxis], 0.3)
        steps = np.abs(np.diff(fitted.predict_proba(np.tile([2.0, -1.0], (len(sizes), 1)), errors), axis=0))
        assert steps.max() < 0.06
        assert steps[sizes[1:] > 1e6].max() < 1e-6
    X, y = np.repeat(X[:, :1], 2, axis=1), (X[:, 0] > 0).astype(int)  # each feature tells the other
    fitted = clone(model).fit(X, y, X_err=0.01)
    told = [fitted.predict_proba(X, [[0.01, size]] * len(X))[np.arange(len(X)), y] for size in (1e140, np.inf)]
    assert np.mean(told[1] > 0.5) > max(0.85, np.mean(told[0] > 0.5) - 0.02)
    assert np.log(told[1] + 1e-6).mean() > np.log(told[0] + 1e-6).mean() + 0.1


@pytest.mark.parametrize("kind", ["constant", "the same"])
def test_features_that_say_nothing_more_do_not_bring_in_units(kind):
    """Trees would split the rounding errors of a constant feature, or of the difference of two that are the same."""
    rng = np.random.default_rng(3)
    y = np.arange(200) % 2
    X, err = rng.normal(size=(200, 3)) + y[:, np.newaxis], rng.uniform(0.1, 1.0, size=(200, 3))
    X[:, 1] = 0.0 if kind == "constant" else X[:, 0]
    err[:, 1] = err[:, 1] if kind == "constant" else err[:, 0]
    found = []
    for unit in (1.0, 3e5):
        units = np.array([1.0, unit, 1.0])
        clf = ErrorBarClassifier(model="boosting", cv=FOLDS, n_jobs=1).fit(X * units, y, X_err=err * units)
        found.append(clf.predict_proba(X * units, err * units))
    np.testing.assert_allclose(found[1], found[0], atol=1e-7)


def test_probabilities_through_a_quantile_transform_are_continuous():
    X, err, y = samples(2)
    normal = QuantileTransformer(n_quantiles=100, output_distribution="normal")
    clf = make_pipeline(WithErrors(normal), Deconvolve(2), CalibratedWithErrorsCV(GuruClassifier(0.1), cv=3))
    clf.fit(Measured(np.exp(X), np.exp(X) * err), y)
    errors = np.where([True, False], SIZES[:, np.newaxis], 0.3)
    found = clf.predict_proba(Measured(np.tile([2.0, 0.5], (len(SIZES), 1)), errors))
    assert np.isfinite(found).all()
    check_continuous(found)


@pytest.mark.parametrize("spread", [5.0, 100.0])
def test_errors_far_beyond_the_data_favour_no_class(spread):
    """Classes of one mean and different spreads: at errors far beyond both nothing is known, at any of them."""
    y = np.arange(300) % 2
    X = np.random.default_rng(7).normal(size=(300, 1)) * np.where(y, spread, 1.0)[:, np.newaxis]
    clf = PopulationClassifier().fit(X, y, X_err=0.1)
    errors = spread * np.geomspace(30.0, 1e6, 200)[:, np.newaxis]
    found = clf.predict_proba(np.zeros_like(errors), errors)[:, 1]
    s0, s1 = (float(population.covariances_[0, 0, 0]) for population in clf.populations_)
    # N(0; 0, s1 + e^2) / N(0; 0, s0 + e^2), smoothed by one sample of all classes.
    expected = expit(0.5 * np.log((s0 + errors[:, 0] ** 2) / (s1 + errors[:, 0] ** 2)) * 150 / 151)
    np.testing.assert_allclose(logit(found), logit(expected), atol=1e-3)
    assert np.all(np.diff(np.abs(found - 0.5)) <= 1e-12)


@pytest.mark.parametrize("rank", [None, 2])
def test_posteriors_are_continuous_in_the_errors(rank):
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3))
    model = Deconvolve(2, rank=rank).fit(truth + 0.3 * rng.normal(size=truth.shape), X_err=np.full(200, 0.3))
    errors = np.column_stack([SIZES, np.full((len(SIZES), 2), 0.3)])
    found = model.transform(np.tile([1.0, -1.0, 0.5], (len(SIZES), 1)), errors)
    check_continuous(found.X / 10)
    check_continuous(found.components.weights)
    covariances = found.err if rank is None else np.einsum("ijr,ikr->ijk", found.err.factors, found.err.factors)
    assert np.abs(covariances[-1] - covariances[SIZES > 1e7]).max() < 1e-7
    assert np.abs(found.X[-1] - found.X[SIZES > 1e7]).max() < 1e-7


def test_a_growing_error_that_features_share_hides_them():
    """Beyond 1e8 spreads the difference of two values is lost in the rounding of their covariance, and not before."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(300, 2)) * [2.0, 1.0]
    model = Deconvolve().fit(truth)
    common = np.geomspace(1.0, 1e140, 281)
    shared = LowRank(common[:, np.newaxis, np.newaxis] * np.ones((2, 1)), np.full((len(common), 2), 0.1))
    found = model.transform(np.tile([3.0, 0.0], (len(common), 1)), shared)
    along = np.array([1.0, -1.0])
    left = np.einsum("j,ijk,k->i", along, found.err, along)
    T = model.covariances_[0]
    known = 1.0 / (1.0 / (along @ T @ along) + 1.0 / 0.02)
    np.testing.assert_allclose(left[(common > 1e2) & (common < 1e5)], known, rtol=0.02)
    np.testing.assert_allclose(found.err[-1], T, rtol=1e-9)
    np.testing.assert_allclose(found.X[-1], model.means_[0], atol=1e-9)
    assert np.all(np.diff(left[common > 1e2]) > -1e-6 * left[-1])


def test_limits_of_any_error():
    rng = np.random.default_rng(3)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 2)) * (1.0 + 3.0 * y)[:, np.newaxis] + y[:, np.newaxis]
    clf = PopulationClassifier(1).fit(X, y, X_err=0.1)
    errors = np.column_stack([SIZES[:-1], np.full(len(SIZES) - 1, 0.1)])
    sides = np.tile([1, 0], (len(errors), 1))
    found = clf.predict_proba(np.tile([2.0, 0.5], (len(errors), 1)), Limits(errors, sides))
    check_continuous(found, SIZES[:-1])
    missing = clf.predict_proba([[np.nan, 0.5]], [[1.0, 0.1]])
    np.testing.assert_allclose(found[-1], missing[0], atol=1e-12)


def test_indicators_flag_gaps_and_not_large_errors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    err = np.full(X.shape, 0.1)
    err[:9, 0], err[:5, 1] = 1e5, np.inf
    model = Deconvolve(missing_indicator=True).fit(X, X_err=err)
    assert model.indicators_.tolist() == [1]
    assert model.transform(X, err).X[:, 3].tolist() == [1.0] * 5 + [0.0] * 55


@pytest.mark.parametrize(
    "model", [ErrorBarClassifier(model="linear", cv=2), PopulationClassifier(1), Deconvolve()], ids=str
)
def test_a_value_beside_which_the_others_are_lost_is_named(model):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 2)) + y[:, np.newaxis]
    X[7, 1] = -1e30
    errors = np.full(X.shape, 0.1)
    with pytest.warns(UserWarning, match=r"X has -1e\+30 in row 7 of feature 1, beside which the other values") as told:
        fitted = clone(model).fit(X, y, X_err=errors)
    assert [warning.filename for warning in told] == [__file__]
    if isinstance(model, Deconvolve):
        with pytest.warns(UserWarning, match="in row 7 of feature 1"):
            fitted.refit_population(X, errors)
        fitted.fit(X, X_err=errors, sample_weight=np.arange(200) != 7)
    errors[7, 1] = np.inf  # then it was not measured, and is no value
    clone(model).fit(X, y, X_err=errors)
    X[:, 1] = np.geomspace(1e-20, 1e20, 200)  # far apart, with others in between
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=CollapseWarning)
        clone(model).fit(X, y, X_err=0.1)
