"""PopulationClassifier: Bayes' rule with a population of each class, against SciPy and discriminant analysis."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussguru import ErrorBarClassifier, PopulationClassifier
from gaussguru.errors import LowRank, Measured


@parametrize_with_checks([PopulationClassifier(n_components=1)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def clouds(n=600, seed=0, n_classes=3, low=0.1, high=1.0):
    """Return truth, measured values, errors and labels of one Gaussian for each class, and these Gaussians."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    means = 2.0 * rng.standard_normal((n_classes, 2))
    roots = np.stack([np.array([[1.0, 0.0], [0.6 * (-1) ** c, 0.5 + 0.4 * c]]) for c in range(n_classes)])
    truth = means[y] + np.einsum("ijk,ik->ij", roots[y], rng.standard_normal((n, 2)))
    err = rng.uniform(low, high, (n, 2))
    return truth, truth + err * rng.standard_normal((n, 2)), err, y, (means, roots @ roots.transpose(0, 2, 1))


def oracle(gaussians, X, err):
    """Return the probabilities of classes of equal shares and known Gaussians."""
    logs = np.array(
        [
            [multivariate_normal(mean, T + np.diag(e**2)).logpdf(x) for mean, T in zip(*gaussians, strict=True)]
            for x, e in zip(X, err, strict=True)
        ]
    )
    return np.exp(logs - logsumexp(logs, axis=1)[:, np.newaxis])


@pytest.mark.parametrize("n_components", [1, 2])
def test_probabilities_match_the_formula(n_components):
    _, X, err, y, _ = clouds(200)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    clf = PopulationClassifier(n_components, class_weight={0: 1.0, 1: 3.0, 2: 0.5}).fit(X, y, weights, X_err=err)
    densities = np.empty((len(X), 3))
    for c, population in enumerate(clf.populations_):
        parts = list(zip(population.weights_, population.means_, population.covariances_, strict=True))
        for i, (x, e) in enumerate(zip(X, err, strict=True)):
            densities[i, c] = sum(w * multivariate_normal(m, T + np.diag(e**2)).pdf(x) for w, m, T in parts)
    counts = np.bincount(y, weights)
    shares = counts * [1.0, 3.0, 0.5]
    of_all = densities @ counts / counts.sum()
    smoothed = (counts * densities + of_all[:, np.newaxis]) / (counts + 1)
    expected = smoothed * shares
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X, err), expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X, err)).sum(axis=1), 1.0)
    np.testing.assert_array_equal(clf.predict(X, err), expected.argmax(axis=1))
    np.testing.assert_allclose(clf.class_count_, counts)
    np.testing.assert_allclose(clf.class_prior_, shares / shares.sum())


def test_exact_values_match_discriminant_analysis():
    truth, _, _, y, _ = clouds(30_000)
    ours = PopulationClassifier(1).fit(truth, y)
    peer = QuadraticDiscriminantAnalysis().fit(truth, y)
    grid = np.random.default_rng(3).uniform(-3, 3, (500, 2))
    np.testing.assert_allclose(ours.predict_proba(grid), peer.predict_proba(grid), atol=2e-3)


@pytest.mark.parametrize(("fit_on", "use_on"), [("noisy", "noisy"), ("noisy", "clean"), ("clean", "noisy")])
def test_log_loss_is_near_that_of_who_knows_the_truth(fit_on, use_on):
    truth, X, err, y, gaussians = clouds(6000)
    seen = {"noisy": (X, err), "clean": (truth, np.zeros_like(err))}
    train, test = slice(3000), slice(3000, None)
    values, errors = seen[fit_on]
    clf = PopulationClassifier(1).fit(values[train], y[train], X_err=errors[train])
    values, errors = seen[use_on]
    found = log_loss(y[test], clf.predict_proba(values[test], errors[test]))
    best = log_loss(y[test], oracle(gaussians, values[test], errors[test]))
    assert found < best + 0.005


def test_missing_values_are_the_limit_of_growing_errors():
    _, X, err, y, _ = clouds(300)
    gone = np.random.default_rng(5).random(X.shape) < 0.2
    gone[gone.all(axis=1)] = False
    clf = PopulationClassifier(1).fit(np.where(gone, np.nan, X), y, X_err=err)
    missing = clf.predict_proba(np.where(gone, np.nan, X), err)
    vague = clf.predict_proba(X, np.where(gone, 1e7 * err, err))
    np.testing.assert_allclose(missing, vague, atol=1e-8)


def test_forms_of_errors_agree():
    _, X, err, y, _ = clouds(150)
    whole = np.einsum("ij,jk->ijk", err**2, np.eye(2))
    clf = PopulationClassifier(2)
    expected = clf.fit(X, y, X_err=err).predict_proba(X, err)
    for form in (whole, LowRank(np.sqrt(whole))):
        np.testing.assert_allclose(clf.fit(X, y, X_err=form).predict_proba(X, form), expected, atol=1e-5)
    np.testing.assert_array_equal(clf.fit(Measured(X, err), y).predict_proba(Measured(X, err)), expected)


def test_a_weight_is_a_sample_that_occurs_so_often():
    _, X, err, y, _ = clouds(120)
    weights = 1.0 + np.arange(120) % 3
    often = np.repeat(np.arange(120), weights.astype(int))
    first = PopulationClassifier(1).fit(X, y, weights, X_err=err).predict_proba(X, err)
    second = PopulationClassifier(1).fit(X[often], y[often], X_err=err[often]).predict_proba(X, err)
    np.testing.assert_allclose(first, second, atol=1e-3)


def test_units_do_not_matter():
    _, X, err, y, _ = clouds(150)
    unit, shift = np.array([1e-6, 1e5]), np.array([3e-6, -2e5])
    first = PopulationClassifier(2).fit(X, y, X_err=err).predict_proba(X, err)
    second = (
        PopulationClassifier(2).fit(X * unit + shift, y, X_err=err * unit).predict_proba(X * unit + shift, err * unit)
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("model", [PopulationClassifier(), ErrorBarClassifier(model="linear", cv=3)])
@pytest.mark.parametrize("errors", ["noisy", "exact", "some exact", "one vague"])
@pytest.mark.parametrize("constant", [0.0, 7.0])
def test_units_of_a_constant_feature_do_not_matter(model, errors, constant):
    for seed, n in ((1, 25), (2, 60)):
        rng = np.random.default_rng(seed)
        y = np.arange(n) % 2
        X, err = rng.normal(size=(n, 3)) + y[:, np.newaxis], rng.uniform(0.1, 1.0, size=(n, 3))
        X[:, 1] = constant
        if errors == "one vague":
            err[0, 1] = 1e9
        elif errors != "noisy":
            err[:: 1 if errors == "exact" else 2, 1] = 0.0
        expected = clone(model).fit(X, y, X_err=err).predict_proba(X, err)
        unit = np.array([1e-3, 1e4, 50.0])
        again = clone(model).fit(X * unit, y, X_err=err * unit).predict_proba(X * unit, err * unit)
        np.testing.assert_allclose(again, expected, atol=1e-6)


def test_few_samples_of_a_class_without_any_value_of_a_feature():
    _, X, err, y, _ = clouds(300)
    rare = y == 2
    X[rare, 1] = np.nan
    keep = ~rare | (np.cumsum(rare) <= 2)
    clf = PopulationClassifier().fit(X[keep], y[keep], X_err=err[keep])
    p = clf.predict_proba(X, err)
    assert np.isfinite(p).all()
    assert clf.class_count_[2] == 2
    # Both features measured rule out no class: nothing is known of the second one there.
    assert (clf.predict_proba([[0.0, 0.0]], 0.1)[0] > 1e-6).all()


def test_equal_values_and_different_errors():
    _, X, err, y, (means, _) = clouds(600, n_classes=2)
    clf = PopulationClassifier().fit(X, y, X_err=err)
    beyond = 2 * means[1] - means[0]
    exact, vague = clf.predict_proba([beyond] * 2, [[0.1, 0.1], [5.0, 5.0]])[:, 1]
    assert exact > vague > 0.5


def test_names_parameters_and_pickle():
    _, X, err, y, _ = clouds(120)
    frame, errors = (pd.DataFrame(part, columns=["a", "b"]) for part in (X, err))
    labels = np.array(["x", "y", "z"])[y]
    clf = PopulationClassifier(1, random_state=3).fit(frame, labels, X_err=errors)
    assert list(clf.feature_names_in_) == ["a", "b"]
    assert list(clf.classes_) == ["x", "y", "z"]
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(frame, errors), clf.predict_proba(frame, errors))
    assert clone(clf).get_params() == clf.get_params()
    assert clf.score(frame, labels, X_err=errors) == np.mean(clf.predict(frame, errors) == labels)


def test_many_features_have_populations_of_few_factors():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 2
    X = rng.standard_normal((90, 70)) + y[:, np.newaxis] * 0.5
    clf = PopulationClassifier().fit(X, y, X_err=0.3)
    assert clf.rank_ is not None
    assert all(population.n_components_ == 1 for population in clf.populations_)
    assert clf.score(X, y, X_err=0.3) > 0.9


def test_bad_input_is_refused_and_leaves_the_estimator_unchanged():
    _, X, err, y, _ = clouds(60)
    clf = PopulationClassifier(1).fit(X, y, X_err=err)
    before = clf.__dict__.copy()
    for given, match in (
        ({"X": X, "y": y, "X_err": -err}, "nonnegative"),
        ({"X": np.where(X > 1, np.nan, X), "y": y}, "NaN"),
        ({"X": X, "y": np.zeros(60)}, "class"),
        ({"X": X[:50], "y": y, "X_err": err}, "60"),
    ):
        with pytest.raises(ValueError, match=match):
            clf.fit(**given)
        assert clf.__dict__ == before
    with pytest.raises(ValueError, match="X_err"):
        clf.predict(X)
    with pytest.raises(ValueError, match="n_components"):
        PopulationClassifier(0).fit(X, y, X_err=err)


def test_probabilities_far_away_add_up_to_one():
    y = np.arange(200) % 2
    X = np.random.default_rng(0).normal(size=(200, 1)) * np.where(y, 0.1, 1.0)[:, np.newaxis]
    clf = PopulationClassifier(1).fit(X, y)
    # All but the prior of one sample says that it is of the wide class.
    far = clf.predict_proba([[1e3], [1e6], [1e9], [1e30], [1e100]])
    np.testing.assert_allclose(far.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(far[:, 1], 1 / 202, rtol=1e-6)


def test_errors_of_any_size_leave_the_populations_of_classes_narrow():
    """Values without information enlarge the spread of the measurements, and so the unit of the ridge."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    truth = rng.normal(size=(600, 3)) * np.where(y == 1, 0.4, 1.0)[:, np.newaxis]
    X_err = 0.2 * np.exp(2.5 * rng.normal(size=truth.shape))
    model = PopulationClassifier(1).fit(truth + X_err * rng.normal(size=truth.shape), y, X_err=X_err)
    for c, population in enumerate(model.populations_):
        spread = np.sqrt(np.diag(population.covariances_[0]))
        np.testing.assert_allclose(spread, truth[y == c].std(axis=0), rtol=0.25)
