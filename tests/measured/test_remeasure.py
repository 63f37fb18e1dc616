"""The gain of a re-measurement: against quadrature, against simulated readings, its bounds, and refused input."""

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru import ErrorBarClassifier, GuruClassifier
from gaussguru._measured.remeasure import _mixture_gain, _pair_gain
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.datasets import make_measured
from gaussguru.errors import Asymmetric, Limits, Measured
from gaussguru.plotting import RemeasureDisplay
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import remeasure_gain

mpl.use("Agg")
N_DRAWS = 3000


def fitted(data, n_components=1):
    steps = WithErrors(StandardScaler()), Deconvolve(n_components, n_init=1), GuruClassifier(0.3)
    return CalibratedWithErrorsCV(make_pipeline(*steps), cv=3).fit(data.X, data.y, X_err=data.X_err)


@pytest.fixture(scope="module")
def data():
    return make_measured(1500, 3, class_sep=4.0, random_state=1)


@pytest.fixture(scope="module")
def model(data):
    return fitted(data)


def measured_again(model, X, E, new, n_draws=N_DRAWS):
    """Return gains by brute force, and their standard errors: draw the truth, read it again, average, and predict."""
    rng = np.random.default_rng(0)
    if isinstance(model, ErrorBarClassifier):
        centre, scale, population = 0.0, np.ones(X.shape[1]), model.population_
    else:
        scaler, population = model.estimator_[0].transformer_, model.estimator_[1]
        centre, scale = scaler.mean_, scaler.scale_
    gains, errors = [], []
    now = 1 - model.predict_proba(X, E).max(axis=1)
    for x, e, f, before in zip(X, E, new, now, strict=True):
        S, logs, parts = np.diag(e**2), [], []
        for weight, mean, covariance in zip(
            population.weights_, population.means_, population.covariances_, strict=True
        ):
            mu, T = mean * scale + centre, covariance * np.outer(scale, scale)
            gain = T @ np.linalg.inv(T + S)
            logs.append(
                np.log(weight) - 0.5 * ((x - mu) @ np.linalg.solve(T + S, x - mu) + np.linalg.slogdet(T + S)[1])
            )
            parts.append((mu + gain @ (x - mu), T - gain @ T))
        share = np.exp(np.array(logs) - max(logs))
        truth = np.vstack(
            [
                rng.multivariate_normal(mean, V, size=count)
                for (mean, V), count in zip(parts, rng.multinomial(n_draws, share / share.sum()), strict=True)
            ]
        )
        precision = 1 / f**2 - 1 / e**2
        reading = truth + rng.standard_normal(truth.shape) / np.sqrt(precision)
        together = (x / e**2 + reading * precision) * f**2
        loss = 1 - model.predict_proba(together, np.tile(f, (n_draws, 1))).max(axis=1)
        gains.append(before - loss.mean())
        errors.append(loss.std() / np.sqrt(n_draws))
    return np.array(gains), np.array(errors)


# --- the formula --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_closed_form_is_the_integral(overlap):
    rng = np.random.default_rng(0)
    means, before = 1.5 * rng.standard_normal(8), rng.uniform(0.2, 3.0, 8)
    after = before * rng.uniform(0.05, 1.0, 8)
    z = np.linspace(-9, 9, 100_001)
    for m, v, w, gain in zip(means, before, after, _pair_gain(means, before, after, overlap), strict=True):
        p = norm.cdf(m / np.sqrt(v + overlap))
        new = norm.cdf((m + np.sqrt(v - w) * z) / np.sqrt(w + overlap))
        expected = np.trapezoid(np.minimum(new, 1 - new) * norm.pdf(z), z)
        np.testing.assert_allclose(gain, min(p, 1 - p) - expected, atol=1e-8)  # the kink: a step squared


def test_mixtures_that_are_not_and_that_are():
    """Components that are all the same, or of which only one is possible, are one; a reading tells others apart."""
    rng = np.random.default_rng(1)
    means, before = 1.5 * rng.standard_normal(50), rng.uniform(0.2, 3.0, 50)
    after = before * rng.uniform(0.05, 1.0, 50)
    expected = _pair_gain(means, before, after, 1.0)
    same = [np.column_stack([values] * 3) for values in (means, before, after)]
    np.testing.assert_allclose(_mixture_gain(rng.dirichlet(np.ones(3), 50), *same, 1.0), expected, atol=2e-4)
    other = [np.column_stack([values, values[::-1]]) for values in (means, before, after)]
    np.testing.assert_allclose(_mixture_gain(np.tile([1.0, 0.0], (50, 1)), *other, 1.0), expected, atol=2e-4)
    # Two components on either side, far apart: an exact reading says which, and nothing is wrong any more.
    sides = np.array([[-30.0, 30.0]]), np.ones((1, 2)), np.zeros((1, 2))
    np.testing.assert_allclose(_mixture_gain(np.array([[0.4, 0.6]]), *sides, 1.0), 0.4, atol=1e-9)
    assert _mixture_gain(np.array([[0.4, 0.6]]), sides[0], sides[1], sides[1], 1.0)[0] == 0
    assert _mixture_gain(np.array([[0.4, 0.6]]), sides[0], 0 * sides[1], sides[2], 1.0)[0] == 0


def test_one_component_against_measuring_again(data, model):
    X, E = data.X[:25], data.X_err[:25]
    new = E * np.random.default_rng(1).uniform(0.2, 0.9, E.shape)
    gain = remeasure_gain(model, X, E, new)
    expected, error = measured_again(model, X, E, new)
    # 3000 draws each. The smallest gains come from draws that hardly ever occur.
    assert np.all(np.abs(gain - expected) < 4 * error + 1.5e-3)
    assert abs((gain - expected).sum()) < 3 * np.sqrt(np.square(error).sum())
    assert gain.max() > 0.05


def test_error_bar_classifier_against_measuring_again(data):
    model = ErrorBarClassifier(model="linear", cv=3).fit(data.X, data.y, X_err=data.X_err)
    X, E = data.X[:25], data.X_err[:25]
    gain = remeasure_gain(model, X, E, E / 2)
    expected, error = measured_again(model, X, E, E / 2)
    assert np.all(np.abs(gain - expected) < 4 * error + 1.5e-3)


def test_gains_of_a_pool_against_measuring_again(data):
    """16 readings of a sample are few: the mean of many samples is known better."""
    model = ErrorBarClassifier(model="population", n_components=1, cv=2, n_jobs=1)
    model.fit(data.X[:600], data.y[:600], X_err=data.X_err[:600])
    X, E = data.X[:40], data.X_err[:40]
    gain = remeasure_gain(model, X, E, E / 2)
    expected, error = measured_again(model, X, E, E / 2, n_draws=300)
    # The largest gain of one reading is the error that is left, at most 1/2.
    assert abs((gain - expected).mean()) < 3 * np.sqrt(np.square(error).sum() + 0.05**2 * 40) / 40
    assert np.corrcoef(gain, expected)[0, 1] > 0.8
    assert np.all((gain >= 0) & (gain <= 1 - model.predict_proba(X, E).max(axis=1) + 0.25))
    np.testing.assert_allclose(remeasure_gain(model, X, E, E), 0.0, atol=1e-12)
    assert remeasure_gain(model, X, E, E / 2, per_feature=True).shape == (40, 3)


def test_a_pool_says_where_it_expects_too_little():
    """Samples that are measured much better than those of training: the pool is too unsure of them."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(1200, 5))
    y = 2 * truth[:, 0] + truth[:, 1] + 0.3 * rng.logistic(size=1200) > 0
    E = 10 ** rng.uniform(-0.5, 0.3, size=truth.shape)
    X = truth + E * rng.normal(size=truth.shape)
    model = ErrorBarClassifier(cv=2, n_jobs=1).fit(X[:800], y[:800], X_err=E[:800])
    few, err = X[800:], E[800:]
    with pytest.warns(UserWarning, match="new readings resolve 100% of the variance of the features, those of"):
        expected = remeasure_gain(model, few, err).sum()
    right = [np.sum(model.predict(*given) == y[800:]) for given in ((few, err), (truth[800:], 0 * err))]
    assert 0 < expected < 0.8 * (right[1] - right[0])
    remeasure_gain(model, few, err, 0.9 * err)  # like those of training: no warning


def test_gain_of_a_feature_against_a_new_measurement(data, model):
    X, E = data.X[:12], data.X_err[:12]
    gains = remeasure_gain(model, X, E, E / 3, per_feature=True)
    assert gains.shape == (12, 3)
    for j in range(3):
        new = E * (1 - 1e-6)
        new[:, j] = E[:, j] / 3
        expected, error = measured_again(model, X, E, new)
        assert np.all(np.abs(gains[:, j] - expected) < 4 * error + 1.5e-3)
    everything = remeasure_gain(model, X, E, E / 3)
    assert np.all(gains.max(axis=1) <= everything + 1e-12)


def test_mixtures_rank_samples_as_measuring_again_does():
    data = make_measured(800, 3, n_components=3, class_sep=4.0, random_state=3)
    model = fitted(data, n_components=3)
    X, E = data.X[:20], data.X_err[:20]
    gain = remeasure_gain(model, X, E, E / 2)
    expected, error = measured_again(model, X, E, E / 2, n_draws=1000)
    # A reading counts as one of the score alone.
    assert np.all(np.abs(gain - expected) < 4 * error + 0.02)
    np.testing.assert_allclose(gain.sum(), expected.sum(), rtol=0.08)
    assert np.corrcoef(gain, expected)[0, 1] > 0.98


def test_three_classes_rank_samples_as_measuring_again_does():
    data = make_measured(600, 3, n_classes=3, class_sep=4.0, random_state=1)
    model = fitted(data)
    X, E = data.X[:20], data.X_err[:20]
    gain = remeasure_gain(model, X, E, E / 2)
    expected, error = measured_again(model, X, E, E / 2, n_draws=600)
    assert np.all(gain < expected + 4 * error + 4e-3)
    assert gain.sum() > 0.75 * expected.sum()
    assert np.corrcoef(gain, expected)[0, 1] > 0.97


def test_two_of_three_classes_are_a_pair():
    """A third class that is far away changes nothing."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((600, 2))
    y = (truth[:, 0] + 0.3 * rng.standard_normal(600) > 0).astype(int)
    truth, y = np.vstack([truth, rng.standard_normal((300, 2)) + np.array([0, 60])]), np.append(y, [2] * 300)
    X = truth + 0.5 * rng.standard_normal(truth.shape)
    E = np.full(X.shape, 0.5)
    many = GuruClassifier(0.5).fit(X, y)
    W, b = many.coef_, many.intercept_
    two = GuruClassifier(0.5).fit(X[:600], y[:600])
    two.coef_, two.intercept_ = W[1:2] - W[:1], b[1:2] - b[:1]
    np.testing.assert_allclose(
        remeasure_gain(many, X[:50], E[:50], 0.1), remeasure_gain(two, X[:50], E[:50], 0.1), atol=1e-6
    )


# --- bounds and refused input -------------------------------------------------------------------------------


def test_nothing_is_gained_by_the_same_errors_and_more_by_smaller_ones(data, model):
    levels = [remeasure_gain(model, data.X, data.X_err, data.X_err * factor) for factor in (1.0, 0.8, 0.4, 0.0)]
    np.testing.assert_allclose(levels[0], 0.0, atol=1e-9)
    for less, more in pairwise(levels):
        assert np.all(more >= less - 1e-12)
    now = 1 - model.predict_proba(data.X, data.X_err).max(axis=1)
    assert np.all(levels[-1] <= now + 1e-12)
    # Exact readings leave the overlap of the classes: the error of the model at the truth.
    left = 1 - model.predict_proba(data.truth, np.zeros_like(data.X)).max(axis=1)
    difference = (now - levels[-1]) - left
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(left))


def test_forms_of_errors_and_tables(data, model):
    X, E = data.X[:40], data.X_err[:40]
    expected = remeasure_gain(model, X, E, E / 2)
    covariances, new = (np.einsum("ij,jk->ijk", e**2, np.eye(3)) for e in (E, E / 2))
    np.testing.assert_allclose(remeasure_gain(model, X, covariances, new), expected, atol=1e-10)
    np.testing.assert_allclose(remeasure_gain(model, X, covariances, E / 2), expected, atol=1e-10)
    np.testing.assert_allclose(remeasure_gain(model, Measured(X, E), new_err=E / 2), expected, atol=1e-12)
    np.testing.assert_allclose(remeasure_gain(model, X.astype(np.float32), E, E / 2), expected, atol=1e-5)
    names = ["a", "b", "c"]
    frames = [pd.DataFrame(values, columns=names) for values in (data.X, data.X_err)]
    named = CalibratedWithErrorsCV(clone_of(model), cv=3).fit(frames[0], data.y, X_err=frames[1])
    some = [frame.iloc[:40] for frame in frames]
    np.testing.assert_allclose(remeasure_gain(named, *some, some[1] / 2), expected, atol=1e-10)
    by_feature = remeasure_gain(model, X, E, E / 2, per_feature=True)
    np.testing.assert_allclose(remeasure_gain(named, *some, some[1] / 2, per_feature=True), by_feature, atol=1e-10)
    # A number is for all values that are not better already.
    np.testing.assert_allclose(
        remeasure_gain(model, X, E, 0.3), remeasure_gain(model, X, E, np.minimum(E, 0.3)), atol=1e-12
    )
    assert remeasure_gain(model, X[:0], E[:0], 0.1).shape == (0,)


def clone_of(model):
    return make_pipeline(WithErrors(StandardScaler()), Deconvolve(1, random_state=0), GuruClassifier(0.3))


def test_blocks_of_rows_change_nothing(data, model, monkeypatch):
    expected = remeasure_gain(model, data.X[:50], data.X_err[:50], 0.1)
    monkeypatch.setattr("gaussguru._utils.blocks.WORKING_BYTES", 8 * 9 * 7)
    np.testing.assert_allclose(remeasure_gain(model, data.X[:50], data.X_err[:50], 0.1), expected, atol=1e-14)


def test_the_step_that_calibrates_may_be_the_last(data):
    inside = fitted(data)
    steps = WithErrors(StandardScaler()), Deconvolve(1, random_state=0)
    last = make_pipeline(*steps, CalibratedWithErrorsCV(GuruClassifier(0.3), cv=3))
    last.fit(Measured(data.X, data.X_err), data.y)
    X, E = data.X[:200], data.X_err[:200]
    found = remeasure_gain(last, X, E, E / 2)
    # Populations of folds differ a little from that of all.
    np.testing.assert_allclose(found, remeasure_gain(inside, X, E, E / 2), atol=5e-3)


def test_a_value_that_was_not_measured_can_be(data, model):
    X, E = data.X[:60].copy(), data.X_err[:60].copy()
    X[:, 1], E[:, 1] = np.nan, np.inf
    new = E.copy()
    new[:, 1] = 0.2
    gain = remeasure_gain(model, X, E, new)
    vague = np.where(np.isinf(E), 1e5, E)
    np.testing.assert_allclose(gain, remeasure_gain(model, np.nan_to_num(X), vague, new), atol=1e-6)
    one = remeasure_gain(model, X, E, new, per_feature=True)
    np.testing.assert_allclose(one[:, 1], gain, atol=1e-10)
    np.testing.assert_allclose(one[:, [0, 2]], 0.0, atol=1e-9)
    assert gain.max() > 0.01


def test_classifiers_without_calibration(data):
    X, E = data.X[:20], data.X_err[:20]
    guru = GuruClassifier(0.5).fit(data.X, data.y)
    m, v = guru.decision_function(X), (E**2) @ guru.coef_[0] ** 2
    noise = (0.5 * np.linalg.norm(guru.coef_)) ** 2
    expected = _pair_gain(m, v, v / 4, noise)
    np.testing.assert_allclose(remeasure_gain(guru, X, E, E / 2), expected, atol=1e-9)
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X, data.y)
    assert np.all(remeasure_gain(linear, X, E, E / 2) >= 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X_err": None}, "X_err must be given"),
        ({"new_err": -1.0}, "new_err"),
        ({"new_err": np.nan}, "new_err"),
        ({"new_err": "double"}, r"new_err.*larger than X_err.*row 0"),
        ({"new_err": np.zeros((5, 2))}, r"new_err must hold standard deviations of shape \(10,\)"),
        ({"new_err": np.full((10, 3), np.nan)}, "new_err.*NaN"),
        ({"new_err": np.tile(50.0 * np.eye(3), (10, 1, 1))}, "new_err must not be larger"),
        ({"per_feature": True, "X_err": np.tile(np.eye(3), (10, 1, 1))}, "standard deviations"),
    ],
)
def test_what_makes_no_sense_is_refused(data, model, change, said):
    given = {"X_err": data.X_err[:10], "new_err": 0.1, **change}
    if isinstance(given["new_err"], str):
        given["new_err"] = 2 * given["X_err"]
    with pytest.raises(ValueError, match=said):
        remeasure_gain(model, data.X[:10], **given)
    with pytest.raises(TypeError, match="per_feature"):
        remeasure_gain(model, data.X[:10], data.X_err[:10], per_feature=1)


def test_new_errors_have_one_side(data, model):
    X, two_sided = data.X[:10], Asymmetric(0.5 * data.X_err[:10], data.X_err[:10])
    with pytest.raises(TypeError, match=r"new_err must hold .* got Asymmetric\. X_err\.symmetric"):
        remeasure_gain(model, X, two_sided, two_sided)
    means, stds = two_sided.symmetric(X)  # the advice of the message
    expected = remeasure_gain(model, means, stds, stds / 2)
    np.testing.assert_allclose(remeasure_gain(model, X, two_sided, stds / 2), expected)


# --- the picture --------------------------------------------------------------------------------------------


def test_the_picture_adds_up_gains_from_the_largest(data, model):
    display = RemeasureDisplay.from_estimator(model, data.X, data.X_err, data.X_err / 2)
    gain = remeasure_gain(model, data.X, data.X_err, data.X_err / 2)
    share, avoided = display.line_.get_xydata().T
    np.testing.assert_allclose(share, 100 * np.arange(1501) / 1500)
    np.testing.assert_allclose(avoided[1:], 100 * np.cumsum(np.sort(gain)[::-1]) / 1500)
    np.testing.assert_allclose(display.random_line_.get_xydata(), [[0, 0], [100, 100 * gain.mean()]])
    enough = display.enough_
    assert np.sort(gain)[::-1][: round(enough * 1500)].sum() >= 0.8 * gain.sum()
    assert np.sort(gain)[::-1][: round(enough * 1500) - 1].sum() < 0.8 * gain.sum()
    again = RemeasureDisplay.from_predictions(gain / 2, name="half", ax=display.ax_)
    np.testing.assert_allclose(again.line_.get_ydata(), avoided / 2)
    assert again.ax_ is display.ax_
    for wrong in ([], [[0.1, 0.2]], [0.1, np.nan], [-0.1]):
        with pytest.raises(ValueError, match="gain"):
            RemeasureDisplay.from_predictions(wrong)
    nothing = RemeasureDisplay.from_predictions(np.zeros(5))
    assert nothing.enough_ == 0


@pytest.mark.parametrize("new_err", [0.0, 0.1])
@pytest.mark.parametrize("per_feature", [False, True])
def test_limits_have_no_gain(data, model, new_err, per_feature):
    errors = Limits(data.X_err[:10], np.eye(10, 3))
    with pytest.raises(TypeError, match="X_err must hold errors of measured values; got Limits"):
        remeasure_gain(model, data.X[:10], errors, new_err, per_feature=per_feature)
