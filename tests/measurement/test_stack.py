"""ErrorBarClassifier(stack=True): averages of probabilities, their weights, and populations of use."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussguru import ErrorBarClassifier, PopulationClassifier
from gaussguru._estimators.comparison import NEGLIGIBLE, stacking_weights
from gaussguru.errors import Measured
from gaussguru.preprocessing.affine import NotLinearError
from gaussguru.robustness import remeasure_gain

QUICK = {"methods": ("probit",), "n_components": 1, "cv": 3, "stack": True}


@parametrize_with_checks([ErrorBarClassifier(methods=("probit",), n_components=1, cv=2, stack=True)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# --- weights ----------------------------------------------------------------------------------------------


def test_weights_of_two_members_against_a_grid():
    rng = np.random.default_rng(0)
    p, weights = rng.beta(3, 1, (2, 500)), rng.uniform(0.1, 2.0, 500)
    grid = np.linspace(0, 1, 100_001)
    values = [weights @ np.log(t * p[0] + (1 - t) * p[1]) for t in grid[::1000]]
    near = grid[::1000][int(np.argmax(values))]
    fine = np.linspace(max(near - 0.01, 0), min(near + 0.01, 1), 2001)
    best = fine[int(np.argmax([weights @ np.log(t * p[0] + (1 - t) * p[1]) for t in fine]))]
    np.testing.assert_allclose(stacking_weights(-np.log(p), weights), [best, 1 - best], atol=1e-4)


@pytest.mark.parametrize("n_members", [1, 2, 5])
def test_weights_are_those_of_the_optimum(n_members):
    """At the maximum over the simplex ``sum_i s_i p_ij / P_i`` is ``sum_i s_i`` for members, and no more for others."""
    rng = np.random.default_rng(n_members)
    p = np.clip(rng.beta(2, 1, (n_members, 400)), 1e-9, None)
    p[-1] *= 0.5 if n_members > 1 else 1.0  # never the better one
    weights = rng.uniform(0.5, 1.5, 400)
    found = stacking_weights(-np.log(p), weights)
    assert found.sum() == pytest.approx(1.0)
    ratios = p @ (weights / (found @ p)) / weights.sum()
    np.testing.assert_allclose(ratios[found > 0], 1.0, atol=2e-3)
    assert (ratios <= 1.0 + 2e-3).all()
    assert not ((found > 0) & (found < NEGLIGIBLE)).any()


def test_one_member_that_is_always_right_is_alone():
    losses = np.stack([np.full(50, 0.01), np.full(50, 2.0), np.full(50, np.inf)])
    np.testing.assert_allclose(stacking_weights(losses, np.ones(50)), [1.0, 0.0, 0.0])


# --- what a stack is --------------------------------------------------------------------------------------


def rings(n=400, seed=0):
    """Return measured values, errors and labels: one class inside the other, and errors of two sizes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    truth = rng.standard_normal((n, 2)) * np.where(y == 1, 2.5, 0.8)[:, np.newaxis]
    err = np.where(rng.random((n, 1)) < 0.5, 0.1, 1.0) * np.ones((1, 2))
    return truth + err * rng.standard_normal((n, 2)), err, y


@pytest.fixture(scope="module")
def fitted():
    X, err, y = rings()
    return ErrorBarClassifier(**QUICK).fit(X, y, X_err=err), X, err, y


def test_probabilities_are_the_average_of_its_members(fitted):
    clf, X, err, _ = fitted
    assert clf.method_ == "stack"
    assert clf.weights_.sum() == pytest.approx(1.0)
    average = sum(w * m.predict_proba(X, err) for w, m in zip(clf.weights_, clf.members_, strict=True))
    np.testing.assert_allclose(clf.predict_proba(X, err), average, rtol=1e-10)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X, err)), average, rtol=1e-10)
    np.testing.assert_array_equal(clf.predict(X, err), average.argmax(axis=1))


def test_it_finds_the_member_that_knows_the_classes(fitted):
    """No line separates one class inside another; populations of the classes do."""
    clf, *_ = fitted
    X, err, y = rings(seed=1)
    alone = PopulationClassifier().fit(*rings()[::2], X_err=rings()[1])
    line = ErrorBarClassifier(**QUICK | {"stack": False}).fit(*rings()[::2], X_err=rings()[1])
    ours = log_loss(y, clf.predict_proba(X, err))
    assert ours < log_loss(y, alone.predict_proba(X, err)) + 0.01
    assert ours < log_loss(y, line.predict_proba(X, err)) - 0.1
    assert set(clf.cv_scores_["kernel"]) == {"populations", "linear"}


def test_held_out_probabilities_of_populations_are_those_of_a_loop(fitted):
    """The log loss of held-out samples, from fits to the folds by hand."""
    clf, X, err, y = fitted
    total = 0.0
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        one = PopulationClassifier(1).fit(X[train], y[train], X_err=err[train])
        total += log_loss(y[test], one.predict_proba(X[test], err[test]), normalize=False)
    found = clf.cv_scores_["log_loss"][clf.cv_scores_["kernel"] == "populations"]
    assert found == pytest.approx(total / len(y), rel=0.01)


def test_any_classifier_and_kernels_are_members():
    X, err, y = rings(240)
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    clf = ErrorBarClassifier(tree, kernel="auto", **QUICK).fit(X, y, X_err=err)
    assert set(clf.cv_scores_["kernel"]) == {"draws", "populations", "linear", "rbf"}
    assert set(clf.cv_scores_["transform"]) == {"none", "quantile"}
    average = sum(w * m.predict_proba(Measured(X, err)) for w, m in zip(clf.weights_, clf.members_, strict=True))
    np.testing.assert_allclose(clf.predict_proba(X, err), average, rtol=1e-9)


def test_a_linear_classifier_that_is_given_is_a_member():
    X, err, y = rings(200)
    clf = ErrorBarClassifier(LogisticRegression(), **QUICK).fit(X, y, X_err=err)
    assert set(clf.cv_scores_["kernel"]) == {"given", "populations", "linear"}


def test_many_classes_weights_and_groups():
    X, err, y = rings(300)
    y = y + 2 * (X[:, 0] > 2)
    y[y == 2] = 3
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    clf = ErrorBarClassifier(**QUICK).fit(X, y, weights, X_err=err, groups=np.arange(300) // 2)
    p = clf.predict_proba(X, err)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(clf.predict(X, err), clf.classes_[p.argmax(axis=1)])


def test_without_errors_and_with_missing_values(fitted):
    clf, X, err, y = fitted
    plain = ErrorBarClassifier(**QUICK).fit(X, y)
    assert np.isfinite(plain.predict_proba(X)).all()
    holes = X.copy()
    holes[::5, 0] = np.nan
    assert np.isfinite(clf.predict_proba(holes, err)).all()
    with pytest.raises(ValueError, match="X_err"):
        clf.predict_proba(X)


def test_there_is_no_one_score(fitted):
    clf, X, err, _ = fitted
    for ask in (lambda: clf.margin_and_spread(X, err), lambda: remeasure_gain(clf, X, err, 0.5 * err)):
        with pytest.raises(NotLinearError, match="stack"):
            ask()
    assert not hasattr(clf, "alpha_")
    lines = [member for member in clf.members_ if isinstance(member, ErrorBarClassifier)]
    for member in lines:
        assert (remeasure_gain(member, X, err, 0.5 * err) >= 0).all()


def test_fits_one_after_the_other_leave_nothing_behind(fitted):
    clf, X, err, y = fitted
    clf = pickle.loads(pickle.dumps(clf))
    clf.set_params(stack=False).fit(X, y, X_err=err)
    assert not hasattr(clf, "members_")
    assert hasattr(clf, "alpha_")
    clf.set_params(stack=True).fit(X, y, X_err=err)
    assert not hasattr(clf, "alpha_")
    assert not hasattr(clf, "estimator_")


def test_names_pickle_and_parameters(fitted):
    clf, X, err, y = fitted
    frame, errors = (pd.DataFrame(part, columns=["a", "b"]) for part in (X, err))
    named = clone(clf).fit(frame, y, X_err=errors)
    np.testing.assert_array_equal(named.predict_proba(frame, errors), clf.predict_proba(X, err))
    again = pickle.loads(pickle.dumps(named))
    np.testing.assert_array_equal(again.predict_proba(frame, errors), clf.predict_proba(X, err))


@pytest.mark.parametrize(
    ("params", "match"),
    [({"stack": 1}, "stack"), ({"kernel": "rbf", "estimator": LogisticRegression()}, "stack=True")],
)
def test_bad_parameters(params, match):
    X, err, y = rings(40)
    with pytest.raises((ValueError, TypeError), match=match):
        ErrorBarClassifier(**params).fit(X, y, X_err=err)


# --- populations of use -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [False, True])
def test_the_population_of_use(stack):
    """Faint samples lie elsewhere; labels depend on the truth as before."""
    rng = np.random.default_rng(0)

    def drawn(centre, n, error):
        truth = centre + rng.standard_normal((n, 1))
        y = (truth[:, 0] + 0.3 * rng.standard_normal(n) > 0).astype(int)
        return truth + error * rng.standard_normal((n, 1)), np.full((n, 1), error), y

    X, err, y = drawn(0.0, 2000, 0.3)
    clf = ErrorBarClassifier(**QUICK | {"stack": stack}).fit(X, y, X_err=err)
    Z, F, z = drawn(1.5, 2000, 1.5)
    there = clf.refit_population(Z, F)
    assert there is not clf
    # Unlabelled samples of use say where the truth is expected.
    np.testing.assert_allclose(there.population_.means_[0], 1.5, atol=0.15)
    np.testing.assert_allclose(clf.population_.means_[0], 0.0, atol=0.1)
    assert log_loss(z, there.predict_proba(Z, F)) < log_loss(z, clf.predict_proba(Z, F))
    with pytest.raises(ValueError, match="X_err"):
        clf.refit_population(Z)


def test_the_population_of_use_of_a_transform():
    X, err, y = rings(200)
    X, err = np.exp(X), np.exp(X) * np.minimum(err, 0.3)
    clf = ErrorBarClassifier(kernel="rbf", methods=("shrunk",), n_components=1, cv=2).fit(X, y, X_err=err)
    there = clf.refit_population(X, err)
    np.testing.assert_allclose(there.predict_proba(X, err), clf.predict_proba(X, err), atol=1e-3)
