"""Values and errors from repeated readings, with gaps."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gaussguru import PopulationClassifier
from gaussguru.preprocessing import errors_from_replicates, noise_from_replicates

TABLE = {
    "a": [1.0, 2.0, 3.0],
    "x1": [1.0, 4.0, 7.0],
    "b": [0.5, 0.1, 0.2],
    "x2": [3.0, 4.5, None],
    "x3": [2.0, None, None],
}
READINGS = {"x": ["x1", "x2", "x3"]}
# Squares about the means 2, 4.25 and 7, with 2 + 1 + 0 degrees of freedom.
POOLED = (2.0 + 0.125) / 3


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_means_and_pooled_standard_errors(library):
    X, X_err = errors_from_replicates(library(TABLE), READINGS)
    assert type(X) is type(X_err) is type(library(TABLE))
    for table, expected in (
        (X, [[1.0, 2.0, 0.5], [2.0, 4.25, 0.1], [3.0, 7.0, 0.2]]),
        (X_err, [[0, np.sqrt(POOLED / n), 0] for n in (3, 2, 1)]),
    ):
        frame = table if isinstance(table, pd.DataFrame) else table.to_pandas()
        assert frame.columns.tolist() == ["a", "x", "b"]
        np.testing.assert_allclose(frame, expected, rtol=1e-12)


def test_no_reading_is_not_measured():
    table = pd.DataFrame(TABLE, index=[7, 3, 5])
    table.loc[3, ["x1", "x2"]] = np.nan
    X, X_err = errors_from_replicates(table, READINGS)
    assert X.index.tolist() == X_err.index.tolist() == [7, 3, 5]
    assert np.isnan(X.loc[3, "x"])
    assert np.isinf(X_err.loc[3, "x"])
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(50, 3)), columns=["x1", "x2", "x3"])
    wide.loc[4] = np.nan
    X, X_err = errors_from_replicates(wide, READINGS)
    assert PopulationClassifier(1).fit(X, np.arange(50) % 2, X_err=X_err).predict_proba(X, X_err=X_err).shape == (50, 2)


def test_errors_of_the_sample_alone():
    readings = np.random.default_rng(1).normal(size=(4, 6))
    table = pd.DataFrame(readings, columns=[f"x{k}" for k in range(6)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X, X_err = errors_from_replicates(table, {"x": list(table.columns)}, pooled=False)
    np.testing.assert_allclose(X["x"], readings.mean(axis=1))
    np.testing.assert_allclose(X_err["x"], readings.std(axis=1, ddof=1) / np.sqrt(6))
    with pytest.warns(UserWarning, match="samples with 2 readings, whose own spread is uncertain by 71%"):
        errors_from_replicates(table, {"x": ["x0", "x1"]}, pooled=False)


def test_pooled_errors_cover_the_truth():
    """The mean of three readings is within one standard error in 68 % of samples; with their own spread, in fewer."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    table = pd.DataFrame(truth[:, np.newaxis] + 0.3 * rng.normal(size=(4000, 3)), columns=["x1", "x2", "x3"])
    X, X_err = errors_from_replicates(table, READINGS)
    inside = np.mean(np.abs(X["x"] - truth) < X_err["x"])
    assert abs(inside - 0.683) < 0.03
    with pytest.warns(UserWarning, match="use pooled=True"):
        _, alone = errors_from_replicates(table, READINGS, pooled=False)
    assert np.mean(np.abs(X["x"] - truth) < alone["x"]) < 0.62


@pytest.mark.parametrize(
    ("replicates", "options", "message"),
    [
        ({"x": ["x1"]}, {}, r"replicates\['x'\] must be a list of two or more columns; got \['x1'\]"),
        ({"x": "x1"}, {}, "must be a list of two or more columns; got 'x1'"),
        ({"x": ["x1", "x9"]}, {}, r"it has no \['x9'\]"),
        ({"x": ["x1", "x2"], "y": ["x2", "x3"]}, {}, r"use a column once; got \['x2'\]"),
        ({"a": ["x1", "x2"]}, {}, r"makes features \['a'\], which the frame has already"),
        ({}, {}, "replicates must be a dict"),
        (READINGS, {"pooled": False}, "'x' must have two readings of every sample with pooled=False; sample 2 has one"),
        ({"x": ["x1", "site"]}, {}, "the readings of 'x' must hold numbers"),
        ({"x": ["x1", "far"]}, {}, "the readings of 'x' must be finite"),
        ({"x": ["gone", "lost"]}, {}, "'x' must have a sample with two readings"),
    ],
)
def test_refusals(replicates, options, message):
    table = pd.DataFrame(TABLE).assign(site="n", far=np.inf, gone=1.0, lost=np.nan)
    with pytest.raises((TypeError, ValueError), match=message):
        errors_from_replicates(table, replicates, **options)


def test_copies_are_noticed():
    table = pd.DataFrame({"x1": [1.0, 2.0], "x2": [1.0, 2.0]})
    with pytest.warns(UserWarning, match="the readings of 'x' never differ"):
        errors_from_replicates(table, {"x": ["x1", "x2"]})


# --- noise from readings one below the other ----------------------------------------------------------------------


def by_hand(X, groups, j, k):
    """Return an entry of the covariance within groups, and its degrees of freedom."""
    total, freedom = 0.0, 0
    for group in np.unique(groups):
        rows = X[(groups == group) & ~np.isnan(X[:, j]) & ~np.isnan(X[:, k])]
        if len(rows) > 1:
            total += ((rows[:, j] - rows[:, j].mean()) * (rows[:, k] - rows[:, k].mean())).sum()
            freedom += len(rows) - 1
    return total / freedom, freedom


def test_noise_with_gaps_is_made_of_what_was_measured():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 3)
    noise = rng.normal(size=(180, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.2], [0.0, 0.0, 1.0]])
    X = 1e6 + rng.normal(size=(60, 3))[groups] + noise
    X[rng.random(X.shape) < 0.2] = np.nan
    found = noise_from_replicates(X, groups)
    for j in range(3):
        for k in range(3):
            expected, freedom = by_hand(X, groups, j, k)
            np.testing.assert_allclose(found.covariance[j, k], expected, rtol=1e-6, atol=1e-8)
            error = np.sqrt((found.covariance[j, j] * found.covariance[k, k] + expected**2) / freedom)
            np.testing.assert_allclose(found.covariance_error[j, k], error, rtol=1e-5)
    assert found.degrees_of_freedom == min(by_hand(X, groups, j, j)[1] for j in range(3))
    np.testing.assert_allclose(found.std, np.sqrt(np.diag(found.covariance)))


def test_gaps_that_leave_nothing_change_nothing():
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(30, 2)), np.repeat(np.arange(10), 3)
    more = np.concatenate([X, np.full((10, 2), np.nan)])
    one, other = noise_from_replicates(X, groups), noise_from_replicates(more, np.concatenate([groups, np.arange(10)]))
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-12)
    np.testing.assert_allclose(one.std_error, other.std_error, rtol=1e-12)


def test_features_that_were_never_measured_together():
    X = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, 5.0], [np.nan, 7.0]])
    found = noise_from_replicates(X, [0, 0, 0, 0])
    np.testing.assert_allclose(found.covariance, [[0.5, 0.0], [0.0, 2.0]])
    assert np.isinf(found.covariance_error[0, 1])


def test_a_covariance_has_no_negative_eigenvalue():
    X = np.full((30, 3), np.nan)
    rng, groups = np.random.default_rng(0), np.arange(30) // 10
    for pair, sign, rows in (((0, 1), 1, slice(0, 10)), ((1, 2), 1, slice(10, 20)), ((0, 2), -1, slice(20, 30))):
        value = rng.normal(size=10)
        X[rows, pair[0]], X[rows, pair[1]] = value, sign * value
    found = noise_from_replicates(X, groups)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-12
    np.testing.assert_allclose(np.diag(found.covariance), [by_hand(X, groups, j, j)[0] for j in range(3)], rtol=1e-9)


def test_a_feature_that_was_measured_once_is_named():
    with pytest.raises(ValueError, match="of which feature 1 of X was measured twice"):
        noise_from_replicates([[1.0, 2.0], [2.0, np.nan]], [0, 0])
