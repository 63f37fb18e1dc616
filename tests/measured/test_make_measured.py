"""Data with error bars: distributions of values and errors, the oracle, and files."""

import numpy as np
import pytest
import sklearn.datasets
from scipy.stats import multivariate_normal, norm
from support.data import _DIRECTORY

from gaussguru import datasets
from gaussguru._errors.checks import check_errors
from gaussguru.datasets import DataNotFoundError, make_measured
from gaussguru.datasets.measured import PATTERNS
from gaussguru.errors import Measured

every_pattern = pytest.mark.parametrize("pattern", PATTERNS)


# --- the data ---------------------------------------------------------------------------------------------


@every_pattern
@pytest.mark.parametrize("n_components", [1, 3])
def test_features_have_spread_1_and_noise_the_stated_size(pattern, n_components):
    data = make_measured(20_000, 4, pattern=pattern, n_components=n_components, random_state=0)
    weights, means = data.population.weights, data.population.means
    np.testing.assert_allclose(weights @ means, 0.0, atol=1e-12)
    within = np.einsum("k,kjj->j", weights, data.population.covariances)
    np.testing.assert_allclose(within + weights @ np.square(means), 1.0, rtol=1e-12)
    # 20,000 samples: a standard deviation is within 0.5 % (1 sigma), a mean within 0.007.
    np.testing.assert_allclose(data.truth.std(axis=0), 1.0, atol=0.025)
    np.testing.assert_allclose(data.truth.mean(axis=0), 0.0, atol=0.035)
    errors = check_errors(data.X_err, data.X)
    root = np.linalg.cholesky(np.array([errors.covariance(i) for i in range(2000)]))
    white = np.linalg.solve(root, (data.X - data.truth)[:2000, :, np.newaxis])[:, :, 0]
    np.testing.assert_allclose(np.cov(white.T), np.eye(4), atol=5 / np.sqrt(2000))
    assert np.bincount(data.y).min() > 5000


def test_patterns_of_errors():
    def errors(pattern, **options):
        return make_measured(1000, 6, pattern=pattern, random_state=0, **options).X_err

    assert np.all(errors("uniform", error=0.3) == 0.3)
    levels = errors("two-level", error=(0.05, 2.5))
    assert np.all(levels[:300] == 0.05)
    assert np.all(levels[300:] == 2.5)
    by_feature = errors("by-feature", error=(0.1, 0.9))
    assert np.all(by_feature == by_feature[0])
    np.testing.assert_allclose(np.sort(by_feature[0]), np.geomspace(0.1, 0.9, 6))
    assert errors("by-sample").shape == (1000,)
    varied = errors("varied", error=(0.2, 2.0))
    assert varied.min() >= 0.2
    assert varied.max() <= 2.0
    assert len(np.unique(varied)) == varied.size
    assert abs(np.log(varied).mean() - np.log(np.sqrt(0.4))) < 0.03
    one = errors("varied", error=0.5)
    np.testing.assert_allclose([one.min(), one.max()], [0.5 / np.sqrt(10), 0.5 * np.sqrt(10)], rtol=0.01)
    covariances = errors("correlated", error=(0.2, 2.0))
    std = np.sqrt(np.einsum("ijj->ij", covariances))
    correlation = covariances / (std[:, :, np.newaxis] * std[:, np.newaxis, :])
    np.testing.assert_allclose(np.abs(correlation[:, 0, 1:]), 0.5)


@pytest.mark.parametrize("class_sep", [0.5, 3.0])
def test_labels_are_on_the_wrong_side_as_often_as_said(class_sep):
    data = make_measured(50_000, 3, class_sep=class_sep, random_state=1)
    wrong = np.mean((data.truth @ data.coef[0] + data.intercept[0] > 0) != data.y)
    assert abs(wrong - np.arctan(1 / class_sep) / np.pi) < 4 * np.sqrt(0.25 / 50_000)
    np.testing.assert_allclose((data.truth @ data.coef[0]).std(), class_sep, rtol=0.02)


def test_one_call_makes_good_and_hopeless_samples_with_a_clean_test():
    data = make_measured(
        300, 20, pattern="two-level", error=(0.05, 2.5), n_factors=0, class_sep=10.0, n_test=4000, random_state=0
    )
    assert data.X.shape == (300, 20)
    assert np.count_nonzero(data.X_err[:, 0] == 0.05) == 90
    assert data.X_test.shape == (4000, 20)
    np.testing.assert_allclose(data.X_test.std(axis=0), 1.0, atol=0.06)
    right = (data.X_test @ data.coef[0] > 0) == data.y_test
    assert abs(right.mean() - (1 - np.arctan(0.1) / np.pi)) < 0.012


def test_what_is_made_depends_on_the_seed_alone():
    first, again, other = (make_measured(50, missing=0.2, random_state=seed) for seed in (0, 0, 1))
    for key in ("X", "X_err", "y", "truth", "coef", "oracle_proba"):
        np.testing.assert_array_equal(first[key], again[key])
    assert not np.array_equal(first.truth, other.truth)
    gone = np.isnan(first.X)
    np.testing.assert_array_equal(gone, np.isinf(first.X_err))
    assert 20 < gone.sum() < 100


# --- the oracle ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["varied", "by-sample", "correlated"])
@pytest.mark.parametrize("n_components", [1, 3])
def test_the_oracle_is_the_integral_over_the_truth(pattern, n_components):
    """Brute force: a fine grid of truths in the plane, weighted by population and likelihood."""
    data = make_measured(12, 2, pattern=pattern, n_components=n_components, class_sep=2.0, random_state=3)
    axis = np.linspace(-6, 6, 481)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    own = data.population
    prior = sum(
        weight * multivariate_normal(mean, covariance).pdf(grid)
        for weight, mean, covariance in zip(own.weights, own.means, own.covariances, strict=True)
    )
    positive = norm.cdf(grid @ data.coef[0] + data.intercept[0])
    errors = check_errors(data.X_err, data.X)
    for i, x in enumerate(data.X):
        posterior = prior * multivariate_normal(x, errors.covariance(i)).pdf(grid)
        expected = (posterior @ positive) / posterior.sum()
        np.testing.assert_allclose(data.oracle_proba[i], [1 - expected, expected], atol=1e-6)


def test_the_oracle_of_values_that_were_not_measured():
    data = make_measured(20, 3, n_components=2, missing=0.4, random_state=0)
    filled = np.nan_to_num(data.X, nan=123.0)  # anything
    np.testing.assert_allclose(data.population.predict_proba(filled, data.X_err), data.oracle_proba, atol=1e-14)
    vague = np.minimum(data.X_err, 1e7)  # the limit of growing errors
    limit = data.population.predict_proba(np.nan_to_num(data.X), vague)
    np.testing.assert_allclose(limit, data.oracle_proba, atol=1e-8)
    nothing = data.population.predict_proba(np.full((1, 3), np.nan), np.full((1, 3), np.inf))
    frequency = data.population.sample(400_000, 0)[1].mean()
    assert abs(nothing[0, 1] - frequency) < 4 * np.sqrt(0.25 / 400_000)


def test_the_oracle_without_errors_is_the_link():
    data = make_measured(30, 4, n_components=2, random_state=0)
    link = norm.cdf(data.truth @ data.coef[0] + data.intercept[0])
    np.testing.assert_allclose(data.population.predict_proba(data.truth)[:, 1], link, atol=1e-7)


@every_pattern
def test_labels_come_with_the_probabilities_of_the_oracle(pattern):
    data = make_measured(20_000, 3, pattern=pattern, n_components=2, random_state=5)
    p = data.oracle_proba[:, 1]
    for mine in np.array_split(np.argsort(p), 10):
        error = np.sqrt((p[mine] * (1 - p[mine])).sum())
        assert abs((data.y[mine] - p[mine]).sum()) < 4 * error
    # No other use of the errors is as good: neither hardly any, nor twice their size (Brier score: proper, bounded).
    loss = np.square(data.y - p)
    for factor in (1e-3, 4.0):
        other = data.population.predict_proba(data.X, data.X_err * factor)[:, 1]
        gain = np.square(data.y - other) - loss
        assert gain.mean() > 4 * gain.std() / np.sqrt(len(gain))


def test_the_oracle_of_three_classes_by_simulation():
    data = make_measured(3, 2, n_classes=3, pattern="uniform", error=0.6, random_state=2)
    p = data.population.predict_proba(data.X, data.X_err)
    truth, y = data.population.sample(1_000_000, 1)
    for x, row in zip(data.X, p, strict=True):
        weight = np.exp(-0.5 * np.square((x - truth) / 0.6).sum(axis=1))
        expected = np.bincount(y, weights=weight, minlength=3) / weight.sum()
        n = weight.sum() ** 2 / np.square(weight).sum()
        np.testing.assert_allclose(row, expected, atol=4 * np.sqrt(0.25 / n))
        np.testing.assert_allclose(row.sum(), 1.0)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_samples": 0}, "n_samples"),
        ({"n_classes": 1}, "n_classes"),
        ({"n_factors": -1}, "n_factors"),
        ({"pattern": "random"}, "pattern.*'varied'"),
        ({"error": -1.0}, "error"),
        ({"error": 0.0}, "error"),
        ({"error": (0.5, 0.1)}, "error.*low, high"),
        ({"error": (0.1, 0.2, 0.3)}, "error.*low, high"),
        ({"error": (0.1, 0.5), "pattern": "uniform"}, "error.*uniform"),
        ({"error": np.nan}, "error"),
        ({"class_sep": 0.0}, "class_sep"),
        ({"missing": 1.0}, "missing"),
        ({"missing": 0.1, "pattern": "correlated"}, "missing.*correlated"),
    ],
)
def test_what_cannot_be_made_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        make_measured(**options)


# --- files --------------------------------------------------------------------------------------------------

CATALOGUES = {
    "fermi3fgl_err": (datasets.load_fermi, (1908, 7), [1745, 163]),
    "koi_err": (datasets.load_koi, (6694, 10), [4409, 2285]),
    "snpcc_des_err": (datasets.load_snpcc, (10667, 24), [8298, 2369]),
    "chandra_muwclass_err": (datasets.load_chandra, (2941, 14), [1390, 44, 118, 26, 207, 65, 87, 1004]),
    "wdbc_mean_se": (datasets.load_wdbc, (569, 10), [357, 212]),
}


@pytest.fixture
def nowhere(monkeypatch):
    monkeypatch.delenv("GAUSSGURU_DATA", raising=False)


@pytest.mark.parametrize("name", [name for name in CATALOGUES if (_DIRECTORY / f"{name}.npz").exists()])
def test_catalogues_of_a_directory(name):
    load, shape, counts = CATALOGUES[name]
    bunch = load(data_home=_DIRECTORY)
    assert bunch.data.shape == bunch.error.shape == shape == (len(bunch.target), len(bunch.feature_names))
    assert np.bincount(bunch.target).tolist() == counts
    assert len(bunch.target_names) == len(counts)
    assert np.all(bunch.error >= 0)
    np.testing.assert_array_equal(np.isnan(bunch.data), np.isinf(bunch.error))
    assert np.isnan(bunch.data).any() == (name == "chandra_muwclass_err")
    with np.load(_DIRECTORY / f"{name}.npz") as file:
        assert bunch.feature_names == file["feature_names"].tolist()
    measured, y = load(data_home=_DIRECTORY, return_X_y=True, as_frame=True)
    assert isinstance(measured, Measured)
    assert list(measured.err.columns) == list(measured.X.columns) == bunch.feature_names
    np.testing.assert_array_equal(measured.X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


@pytest.mark.skipif(not (_DIRECTORY / "koi_err.npz").exists(), reason="no koi here")
def test_rows_that_are_left_out_are_left_out_everywhere():
    koi = datasets.load_koi(data_home=_DIRECTORY)
    with np.load(_DIRECTORY / "koi_err.npz") as file:
        known = file["y"] != "CANDIDATE"
        np.testing.assert_array_equal(koi.groups, file["kepid"][known])
        np.testing.assert_array_equal(koi.error, file["X_err"][known])
        np.testing.assert_array_equal(koi.target_names[koi.target] == "confirmed", file["y"][known] == "CONFIRMED")


@pytest.mark.skipif(not (_DIRECTORY / "fermi3fgl_err.npz").exists(), reason="no fermi here")
def test_the_other_task_of_fermi():
    blazars = datasets.load_fermi(task="blazar", data_home=_DIRECTORY)
    assert np.bincount(blazars.target).tolist() == [660, 484]
    with np.load(_DIRECTORY / "fermi3fgl_err.npz") as file:
        np.testing.assert_array_equal(blazars.data[blazars.target == 1], file["X"][file["y_fine"] == "fsrq"])
    with pytest.raises(ValueError, match=r"task.*'pulsar'"):
        datasets.load_fermi(task="star", data_home=_DIRECTORY)


@pytest.mark.usefixtures("nowhere")
def test_breast_tumours_need_no_file():
    bunch, own = datasets.load_wdbc(), sklearn.datasets.load_breast_cancer()
    assert bunch.source == "scikit-learn"
    assert bunch.feature_names[:2] == ["radius", "texture"]
    np.testing.assert_array_equal(bunch.data, own.data[:, :10])
    np.testing.assert_array_equal(bunch.error, own.data[:, 10:20])
    np.testing.assert_array_equal(bunch.target_names[bunch.target], own.target_names[own.target])


@pytest.mark.usefixtures("nowhere")
def test_a_catalogue_that_is_not_there_or_not_it(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"no data directory.*koi_err\.npz.*X_err.*kepid.*GAUSSGURU_DATA"):
        datasets.load_koi()
    path = tmp_path / "wdbc_mean_se.npz"
    path.write_bytes(b"no data")
    with pytest.raises(ValueError, match="cannot be read"):
        datasets.load_wdbc(data_home=tmp_path)
    own = datasets.load_wdbc()
    arrays = {"X": own.data, "X_err": own.error, "y": own.target, "feature_names": np.array(own.feature_names)}
    order = np.random.default_rng(0).permutation(569)
    np.savez(path, **{**arrays, "X": own.data[order], "X_err": own.error[order], "y": own.target[order]})
    np.testing.assert_array_equal(datasets.load_wdbc(data_home=tmp_path).data, own.data[order])
    for damaged in (
        {"X_err": own.error[order]},
        {"y": 1 - own.target},
        {"y": own.target + 5},
        {"X": own.data[:100], "X_err": own.error[:100], "y": own.target[:100]},
    ):
        np.savez(path, **{**arrays, **damaged})
        with pytest.raises(ValueError, match="is not the data set"):
            datasets.load_wdbc(data_home=tmp_path)
    np.savez(path, X=own.data, y=own.target)
    with pytest.raises(ValueError, match="X_err"):
        datasets.load_wdbc(data_home=tmp_path)
