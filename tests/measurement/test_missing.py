"""What was not measured: what the rest of a sample says of it, in fits, predictions and certificates."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler
from support.error_bars import conditional

from gaussguru import GuruClassifier, GuruClassifierCV
from gaussguru._data.mixtures import population_of
from gaussguru.errors import LowRank, Measured, Population, check_errors, split_errors
from gaussguru.preprocessing import WithErrors


def samples(n=300, d=4, seed=0, n_classes=2, part=0.2):
    """Return correlated features with gaps, their errors, and labels."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) / 2 + np.eye(d)
    truth = rng.normal(size=(n, d)) @ root
    err = rng.uniform(0.0, 0.6, size=(n, d)) * (rng.random((n, d)) > 0.2)
    X = truth + err * rng.normal(size=(n, d))
    direction = truth @ np.ones(d)
    y = np.searchsorted(np.quantile(direction, np.arange(1, n_classes) / n_classes), direction)
    X[rng.random((n, d)) < part] = np.nan
    return X, err, y


def covariances(X_err, X):
    errors = check_errors(X_err, X)
    return np.array([errors.covariance(i) for i in range(len(X))])


@pytest.mark.parametrize("form", ["a value", "a sample", "covariances", "low rank", "frame"])
def test_gaps_are_filled_by_conditional_moments(form):
    X, err, _ = samples(60)
    rng = np.random.default_rng(1)
    population = Population(rng.normal(size=4), np.ones(4), np.cov(rng.normal(size=(4, 9))))
    noise = np.square(err)[:, :, np.newaxis] * np.eye(4)
    given = err
    if form == "a sample":
        given = err[:, 0]
        noise = np.square(given)[:, np.newaxis, np.newaxis] * np.eye(4)
    elif form in ("covariances", "low rank"):
        factors = rng.normal(size=(60, 4, 2)) / 3
        noise = noise + factors @ factors.transpose(0, 2, 1)
        given = noise if form == "covariances" else LowRank(factors, err)
    frame = pd.DataFrame(X, columns=list("abcd")) if form == "frame" else X
    values, errors = population.fill(*split_errors(frame, given))
    expected, covariance = conditional(population, X, noise)
    np.testing.assert_allclose(values, expected, atol=1e-10)
    np.testing.assert_allclose(covariances(errors, expected), covariance, atol=1e-10)
    assert type(values) is type(frame)
    # Without correlations the variances are the same, and so are the errors of what was measured.
    values, errors = population.fill(*split_errors(frame, given), correlated=False)
    np.testing.assert_allclose(values, expected, atol=1e-10)
    own = covariances(errors, expected)
    np.testing.assert_allclose(np.einsum("ijj->ij", own), np.einsum("ijj->ij", covariance), atol=1e-10)
    gone = np.isnan(X)
    np.testing.assert_allclose(own[gone[:, :, np.newaxis] & ~gone[:, np.newaxis, :]], 0.0, atol=1e-12)


def test_the_population_is_that_of_the_truth():
    X, err, _ = samples(20_000)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4)) / 2 + np.eye(4)
    found = population_of(*split_errors(X, err))
    np.testing.assert_allclose(found.means, 0.0, atol=0.05)
    np.testing.assert_allclose(found.covariance, root.T @ root, atol=0.12)
    whole = population_of(np.where(np.isnan(X), 0.0, X)[:, :0:-1], np.ones(len(X)))
    assert whole.covariance.shape == (3, 3)


def test_many_features_are_taken_in_pairs():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(60, 2))
    X = rng.normal(size=(4000, 2)) @ F.T + 0.5 * rng.normal(size=(4000, 60))
    gone = rng.random(X.shape) < 0.3
    found = population_of(*split_errors(np.where(gone, np.nan, X), np.zeros(X.shape)))
    filled, _ = found.fill(*split_errors(np.where(gone, np.nan, X), np.zeros(X.shape)))
    rest = (filled - X)[gone]
    assert np.mean(np.square(rest)) < 0.35  # 0.25 is what no other feature knows; their variance is 2.3 on average


@pytest.mark.parametrize("n_classes", [2, 3])
def test_fits_predictions_and_certificates_see_the_same(n_classes):
    X, err, y = samples(n_classes=n_classes)
    lost = np.where(np.isnan(X), np.inf, err)
    clf = GuruClassifier(0.2).fit(X, y, X_err=err)
    values, noise = conditional(clf.population_, X, err)
    by_hand = GuruClassifier(0.2).fit(values, y, X_err=noise)
    np.testing.assert_allclose(clf.coef_, by_hand.coef_, rtol=1e-5, atol=1e-8)
    for errors in (err, lost):
        np.testing.assert_allclose(clf.decision_function(X, X_err=errors), clf.decision_function(values), atol=1e-9)
        np.testing.assert_array_equal(clf.predict(X, X_err=errors), clf.predict(values))
        np.testing.assert_allclose(
            clf.predict_proba(X, X_err=errors), clf.predict_proba(values, X_err=noise), atol=1e-7
        )
        np.testing.assert_array_equal(clf.predict(Measured(X, errors)), clf.predict(values))
    one, other = clf.certificate(X, y, X_err=err), clf.certificate(values, y, X_err=noise)
    assert one.primal == pytest.approx(other.primal, rel=1e-7)
    assert 0 <= one.gap <= 1e-5 * len(y)
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert np.array_equal(clf.predict(X, X_err=err), GuruClassifier(0.2).fit(frame, y, X_err=err).predict(frame, err))
    single = GuruClassifier(0.2).fit(X.astype(np.float32), y, X_err=err)
    np.testing.assert_allclose(single.coef_, clf.coef_, rtol=1e-3, atol=1e-4)


def test_gaps_after_a_fit_without_any():
    X, err, y = samples(2000, part=0.0)
    clf = GuruClassifier(0.2).fit(X, y, X_err=err)
    rng = np.random.default_rng(0)
    gone = rng.random(X.shape) < 0.3
    values, _ = conditional(clf.population_, np.where(gone, np.nan, X), err)
    np.testing.assert_array_equal(clf.predict(np.where(gone, np.nan, X), X_err=err), clf.predict(values))
    assert np.mean(clf.predict(values) == y) > np.mean(clf.predict(np.where(gone, X.mean(axis=0), X)) == y)
    # The values of a covariance that was estimated from noisy samples.
    np.testing.assert_allclose(
        clf.population_.covariance, np.cov(X.T) - np.diag(np.square(err).mean(axis=0)), atol=0.01
    )


def test_samples_without_weight_do_not_count():
    X, err, y = samples()
    weight = np.ones(len(y))
    weight[::3] = 0.0
    clf = GuruClassifier(0.2).fit(X, y, weight, X_err=err)
    few = GuruClassifier(0.2).fit(X[weight > 0], y[weight > 0], X_err=err[weight > 0])
    np.testing.assert_allclose(clf.population_.covariance, few.population_.covariance, rtol=1e-6)
    np.testing.assert_allclose(clf.coef_, few.coef_, rtol=1e-5)


def test_other_solvers_and_searches():
    X, err, y = samples()
    sgd = GuruClassifier(0.3, solver="sgd", max_iter=50, tol=1e-3).fit(X, y, X_err=err)
    assert np.mean(sgd.predict(X, X_err=err) == y) > 0.8
    search = GuruClassifierCV([0.1, 0.5], cv=3).fit(X, y, X_err=err)
    np.testing.assert_array_equal(search.predict(X, X_err=err), search.predict(Measured(X, err)))
    scaler = WithErrors(StandardScaler()).fit(X, X_err=err)
    assert np.isinf(scaler.transform(X, err).err).sum() == np.isnan(X).sum()


def test_errors_say_what_to_do():
    X, err, y = samples()
    clf = GuruClassifier(0.2).fit(X, y, X_err=err)
    for method in (clf.predict, clf.decision_function, clf.predict_proba):
        with pytest.raises(ValueError, match=r"(?s)X contains NaN.*needs X_err, the error bars of the measured values"):
            method(X)
    with pytest.raises(ValueError, match="X contains NaN"):
        clf.fit(X, y)
    exact = GuruClassifier(0.2).fit(np.nan_to_num(X), y)
    with pytest.raises(ValueError, match="it was fitted without X_err"):
        exact.predict(X, X_err=err)
    with pytest.raises(ValueError, match="feature 2 was measured for no sample"):
        GuruClassifier().fit(np.where(np.arange(4) == 2, np.nan, X), y, X_err=err)
    with pytest.raises(ValueError, match="X_err has NaN"):
        clf.predict_proba(X, X_err=err * np.nan)
    with pytest.raises(ValueError, match="none below 0"):
        clf.fit(X, y, X_err=-err)
    with pytest.raises(ValueError, match="dense X"):
        clf.predict(sp.csr_array(np.nan_to_num(X)), X_err=np.where(np.isnan(X), np.inf, err))
    order = np.random.default_rng(0).permutation(len(y))
    frame, errors = pd.DataFrame(X), pd.DataFrame(err).iloc[order]
    with pytest.raises(ValueError, match="X_err must have the index of X"):
        clf.fit(frame, y, X_err=errors)
