"""sigma_path and GuruClassifierCV: a path is as good as single fits, and the choice is that of a loop."""

import pickle
import re
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score, get_scorer, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.common import every_form, with_and_without
from support.data import clouds, groups, joint_problem, problem

from gaussguru import CollapseWarning, GuruClassifier, GuruClassifierCV, sigma_max, sigma_path
from gaussguru.errors import LowRank
from gaussguru.losses import LOSSES


@parametrize_with_checks([GuruClassifierCV(3, cv=3)])
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


# --- the path ---------------------------------------------------------------------------------------------


def quiet(sigma, **options):
    """Return a classifier that does not speak of collapse."""
    return _Quiet(sigma, **options)


class _Quiet(GuruClassifier):
    def fit(self, X, y, sample_weight=None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            return super().fit(X, y, sample_weight)


def check_path(X, y, weight=None, *, sigmas=None, **options):
    """Assert that every solution of a path is as good as both certificates say."""
    levels, coefs, intercepts, gaps = sigma_path(X, y, sigmas=sigmas, sample_weight=weight, **options)
    assert np.all(np.diff(levels) < 0)
    zero = float(len(y) if weight is None else np.sum(weight)) * (len(np.unique(y)) - 1)
    for sigma, coef, intercept, gap in zip(levels, coefs, intercepts, gaps, strict=True):
        clf = quiet(sigma, **options).fit(X, y, weight)
        assert coef.shape == clf.coef_.shape
        assert intercept.shape == clf.intercept_.shape
        assert gap <= 1e-6 * zero
        least, most = clf.objective_ - clf.dual_gap_, clf.objective_
        clf.coef_, clf.intercept_ = coef, intercept
        reached = clf.certificate(X, y, weight).primal
        assert least - 1e-9 * zero <= reached <= most + gap + 1e-9 * zero


@pytest.mark.parametrize("name", ["balanced", "breast-cancer", "unbalanced", "separable", "wide", "repeated-columns"])
@with_and_without
def test_path_is_as_good_as_single_fits(name, fit_intercept):
    check_path(*problem(name), fit_intercept=fit_intercept)


@with_and_without
def test_path_of_many_rows(fit_intercept):
    check_path(*clouds(9_000, 8_000, 4, 1.5, seed=3), sigmas=np.geomspace(0.01, 3, 8), fit_intercept=fit_intercept)


@pytest.mark.parametrize("name", ["iris", "wine", "digits"])
def test_path_of_more_classes(name):
    X, y = joint_problem(name)
    spread = np.sqrt(X.var(axis=0).sum())
    check_path(X, y, sigmas=np.geomspace(0.03, 1, 10) * spread)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_path_with_other_options(loss, l2):
    X, y = clouds(60, 40, 4, 1.5, seed=1)
    weight = np.random.default_rng(0).uniform(0.3, 2.0, len(y))
    check_path(X, y, weight, sigmas=[0.01, 3.0, 0.3, 1.0], loss=loss, l2=l2)


@every_form
def test_path_of_any_form(form):
    X, y = clouds(60, 40, 4, 1.5, seed=1)
    X = (X * (np.abs(X) > 0.5)).astype(np.float32).astype(np.float64)
    levels, coefs, *_ = sigma_path(form(X), y, tol=1e-12)
    plain_levels, plain, *_ = sigma_path(X, y, tol=1e-12)
    np.testing.assert_allclose(levels, plain_levels, rtol=1e-6)
    np.testing.assert_allclose(coefs, plain, rtol=1e-3, atol=1e-4 * np.abs(plain).max())


def test_threads_change_no_bit():
    X, y = clouds(70_000, 50_000, 10, 1.5, seed=3)
    paths = [sigma_path(X, y, n_sigmas=4, n_jobs=n_jobs) for n_jobs in (1, 2)]
    for one, two in zip(*paths, strict=True):
        np.testing.assert_array_equal(one, two)


def test_top_of_the_grid():
    X, y = problem("unbalanced")
    levels, coefs, intercepts, gaps = sigma_path(X, y)  # silent, although it begins with a collapse
    assert levels[0] == pytest.approx(sigma_max(X, y), rel=1e-12)
    assert levels[-1] == pytest.approx(1e-3 * levels[0], rel=1e-12)
    np.testing.assert_allclose(levels[1:] / levels[:-1], 1e-3 ** (1 / 19), rtol=1e-9)
    assert not coefs[0].any()
    assert intercepts[0] == -1.0
    assert gaps[0] <= 1e-6 * len(y)
    assert coefs[-1].any()
    spread = np.sqrt(X.var(axis=0).sum())
    for weights in ("balanced", None):
        levels = sigma_path(X, y, class_weight=weights, fit_intercept=weights is not None, n_sigmas=2)[0]
        mean = X[y > 0].mean(axis=0) / 2 + X[y < 0].mean(axis=0) / 2
        square = np.square(X - mean).sum(axis=1)
        balanced = np.sqrt(square[y > 0].mean() / 2 + square[y < 0].mean() / 2)
        assert levels[0] == pytest.approx(balanced if weights else spread, rel=1e-9)
    X, y = groups([30, 30, 40], 3)
    assert sigma_path(X, y, n_sigmas=2)[0][0] == pytest.approx(np.sqrt(X.var(axis=0).sum()), rel=1e-9)


def test_top_of_the_grid_far_from_the_origin():
    X, y = clouds(50, 50, 3, 2.0)
    top = sigma_path(X, y, n_sigmas=2)[0][0]
    far = X + 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert 0.3 * top < sigma_path(far, y, n_sigmas=1)[0][0] < 30 * top


def test_path_of_the_stochastic_solver():
    X, y = clouds(60, 40, 4, 3.0, seed=1)
    levels, coefs, _, gaps = sigma_path(X, y, sigmas=[0.5, 2.0], solver="sgd", tol=1e-3, max_iter=200, random_state=0)
    assert levels.tolist() == [2.0, 0.5]
    exact = sigma_path(X, y, sigmas=[0.5, 2.0])[1]
    assert np.all(gaps <= 0.05 * len(y))
    for one, other in zip(coefs[:, 0], exact[:, 0], strict=True):
        assert one @ other > 0.9 * np.linalg.norm(one) * np.linalg.norm(other)


def test_what_did_not_converge_is_said_once():
    X, y = problem("breast-cancer")
    with pytest.warns(ConvergenceWarning, match=r"of 8 solutions .*increase max_iter, increase tol") as caught:
        sigma_path(X, y, n_sigmas=8, max_iter=1)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def bad_levels(make):
    X, y = clouds(20, 20, 2, 2.0)
    cases = [
        ([1.0, 0.0], ValueError, r"sigmas\[1\] must be a finite number > 0; got 0.0"),
        ([-1.0], ValueError, r"sigmas\[0\] must be a finite number > 0"),
        ([np.nan], ValueError, r"sigmas\[0\] must be a finite number > 0; got nan"),
        ([1.0, 1e-300], ValueError, r"sigmas must be at least 1e-290.*; got 1e-300"),
        ([], ValueError, "at least one"),
        ([[1.0]], ValueError, "at least one"),
        (["large"], TypeError, r"sigmas\[0\] must be a finite number"),
    ]
    for sigmas, error, message in cases:
        with pytest.raises(error, match=message):
            make(sigmas, X, y)


def test_bad_levels():
    bad_levels(lambda sigmas, X, y: sigma_path(X, y, sigmas=sigmas))
    bad_levels(lambda sigmas, X, y: GuruClassifierCV(sigmas).fit(X, y))
    X, y = clouds(20, 20, 2, 2.0)
    for count, error in ((0, ValueError), (2.5, TypeError), (True, TypeError), ("many", TypeError)):
        with pytest.raises(error, match="n_sigmas must be a whole number >= 1"):
            sigma_path(X, y, n_sigmas=count)
        with pytest.raises(error, match="sigmas must be a whole number >= 1"):
            GuruClassifierCV(count).fit(X, y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sigma'"):
        sigma_path(X, y, sigma=1.0)
    with pytest.raises(ValueError, match="l2 must be"):
        sigma_path(X, y, l2=-1.0)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_values_whose_squares_overflow(factor):
    X, y = clouds(20, 20, 2, 2.0)
    sigmas, coefs, intercepts, _ = sigma_path(X, y)
    found = sigma_path(X * factor, y)
    np.testing.assert_allclose(found[0] / factor, sigmas, rtol=1e-9)
    np.testing.assert_allclose(found[1] * factor, coefs, rtol=1e-9)
    np.testing.assert_allclose(found[2], intercepts, rtol=1e-9)
    assert found[3].max() <= 1e-6 * len(y)


# --- choosing ---------------------------------------------------------------------------------------------


def check_choice(X, y, weight=None, *, sigmas, folds, score, scoring, tol=1e-12, **options):
    """Assert that a GuruClassifierCV equals a loop over sigmas and folds."""
    clf = GuruClassifierCV(sigmas, cv=folds, scoring=scoring, tol=tol, **options).fit(X, y, weight)
    levels = np.sort(sigmas)[::-1]
    np.testing.assert_array_equal(clf.sigmas_, levels)
    expected = np.empty((len(levels), len(folds)))
    for i, sigma in enumerate(levels):
        for k, (train, test) in enumerate(folds):
            part = None if weight is None else weight[train]
            single = quiet(sigma, tol=tol, **options).fit(X[train], y[train], part)
            expected[i, k] = score(single, X[test], y[test], None if weight is None else weight[test])
    np.testing.assert_allclose(clf.scores_, expected, atol=1e-6)
    means = clf.scores_.mean(axis=1)
    assert clf.sigma_ == levels[np.flatnonzero(means >= means.max() - 1e-12)[0]]
    refit = quiet(clf.sigma_, tol=tol, **options).fit(X, y, weight)
    np.testing.assert_array_equal(clf.coef_, refit.coef_)
    np.testing.assert_array_equal(clf.decision_function(X), refit.decision_function(X))
    assert clf.dual_gap_ == refit.dual_gap_
    return clf


def accuracy(clf, X, y, weight):
    return np.average(clf.predict(X) == y, weights=weight)


def brier(clf, X, y, weight):
    return -np.average((clf.predict_proba(X)[:, 1] - (y == clf.classes_[1])) ** 2, weights=weight)


SIGMAS = [0.03, 3.0, 0.1, 0.3, 1.0]


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("scoring", "score"), [(None, accuracy), ("accuracy", accuracy), ("neg_brier_score", brier)])
def test_scores_match_a_loop(class_weight, weighted, scoring, score):
    X, y = clouds(70, 40, 4, 1.5, seed=1)
    folds = list(StratifiedKFold(4).split(X, y))
    weight = np.random.default_rng(0).uniform(0.3, 2.0, len(y)) if weighted else None
    check_choice(X, y, weight, sigmas=SIGMAS, folds=folds, score=score, scoring=scoring, class_weight=class_weight)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_scores_of_more_classes(form):
    X, y = groups([30, 40, 20], 4)
    names = np.array(["ant", "bee", "cat"])[y]
    folds = list(StratifiedKFold(3).split(X, y))
    clf = check_choice(form(X), names, sigmas=SIGMAS, folds=folds, score=accuracy, scoring=None, tol=1e-7)
    assert clf.coef_.shape == (3, 4)
    assert clf.classes_.tolist() == ["ant", "bee", "cat"]


def test_scorers_and_callables():
    X, y = clouds(70, 40, 4, 1.5, seed=1)
    folds = list(KFold(3).split(X))

    def balanced(clf, X, y, weight=None):
        return balanced_accuracy_score(y, clf.predict(X), sample_weight=weight)

    for scoring in ("balanced_accuracy", balanced, make_scorer(balanced_accuracy_score)):
        clf = check_choice(X, y, sigmas=SIGMAS, folds=folds, score=balanced, scoring=scoring)
        assert clf.score(X, y) == balanced(clf, X, y)
    with pytest.raises(ValueError, match="scoring"):
        GuruClassifierCV(scoring="no such score").fit(X, y)


def test_same_numbers_as_a_grid_search():
    X, y = problem("breast-cancer")
    clf = GuruClassifierCV(SIGMAS).fit(X, y)
    search = GridSearchCV(GuruClassifier(), {"sigma": clf.sigmas_}).fit(X, y)
    splits = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(5)]).T
    np.testing.assert_allclose(clf.scores_, splits, atol=0.01)  # a sample on the boundary may fall on either side
    assert clf.sigma_ == search.best_params_["sigma"]


def test_of_equals_the_largest_is_chosen():
    X, y = clouds(40, 40, 3, 40.0)  # whatever sigma, every sample is on its side
    clf = GuruClassifierCV([0.5, 2.0, 1.0]).fit(X, y)
    assert np.all(clf.scores_ == 1)
    assert clf.sigma_ == 2.0
    # Sums in another order differ by rounding, which decides nothing.
    scores = {2.0: [0.1, 0.2, 0.3], 1.0: [0.3, 0.2, 0.1]}
    assert sum(scores[1.0]) != sum(scores[2.0])
    seen = {2.0: iter(scores[2.0]), 1.0: iter(scores[1.0])}
    clf = GuruClassifierCV([1.0, 2.0], cv=3, scoring=lambda clf, X, y: next(seen[clf.sigma]), n_jobs=1).fit(X, y)
    assert clf.scores_.tolist() == [scores[2.0], scores[1.0]]
    assert clf.sigma_ == 2.0


def test_nan_is_never_best():
    X, y = clouds(40, 40, 3, 2.0)
    clf = GuruClassifierCV([1.0, 2.0], scoring=lambda clf, X, y: np.nan if clf.sigma == 2 else -1.0).fit(X, y)
    assert clf.sigma_ == 1.0
    with pytest.raises(ValueError, match="NaN for every sigma"):
        GuruClassifierCV([1.0, 2.0], scoring=lambda clf, X, y: np.nan).fit(X, y)


def test_memory():
    X, y = clouds(10_000, 9_000, 4, 1.5)
    GuruClassifierCV(3, n_jobs=1).fit(X, y)
    tracemalloc.start()
    GuruClassifierCV(20, n_jobs=1).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * X.nbytes  # 100 dual solutions would be 25


def test_jobs_do_not_matter():
    X, y = problem("breast-cancer")
    one, two = (GuruClassifierCV(8, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.scores_, two.scores_)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_progress_is_shown(capsys):
    X, y = clouds(40, 40, 3, 2.0)
    GuruClassifierCV(4, cv=3).fit(X, y)
    assert capsys.readouterr().out == ""
    GuruClassifierCV(4, cv=3, verbose=1, n_jobs=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    folds = [f"fold {k} of 3 ({k / 3:.0%})" for k in (1, 2, 3)]
    assert [line.split("  ")[0] for line in lines] == [
        f"[GuruClassifierCV] {name}" for name in [*folds, "fit of all samples"]
    ]
    assert all(re.search(r"  best score \S+ at sigma \S+  [0-9.]+ s$", line) for line in lines[:3])
    GuruClassifierCV(4, cv=3, verbose=2).fit(X, y)
    assert "[newton] iteration" in capsys.readouterr().out


def test_collapse_is_said_of_the_final_fit_alone():
    X, y = clouds(20, 60, 3, 2.0)
    GuruClassifierCV().fit(X, y)  # silent, although each path begins with collapses
    with pytest.warns(CollapseWarning) as caught:
        clf = GuruClassifierCV([1e3, 1e4]).fit(X, y)
    assert len(caught) == 1
    assert clf.sigma_ == 1e4


def test_pandas_pickle_clone_and_parameters():
    X, y = clouds(40, 40, 3, 2.0)
    frame = pd.DataFrame(X, columns=list("abc"))
    clf = GuruClassifierCV(4, cv=3, class_weight={-1.0: 2.0})
    params = clf.get_params()
    clf.fit(frame, pd.Series(y))
    assert clf.get_params() == params
    assert clf.feature_names_in_.tolist() == list("abc")
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(frame), clf.predict_proba(frame))
    fresh = clone(clf)
    assert not hasattr(fresh, "sigma_")
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, clf.coef_)
    assert clf.certificate(frame, y).gap <= 1e-6 * 3 * len(y)
    assert not hasattr(GuruClassifierCV(solver="sgd"), "partial_fit")


def test_in_a_pipeline_and_within_cross_validation():
    X, y = problem("breast-cancer")
    model = make_pipeline(StandardScaler(), GuruClassifierCV(5, cv=3))
    scores = cross_validate(model, X, y, cv=3)["test_score"]
    assert scores.min() > 0.93


def test_failing_fit_leaves_the_estimator_alone():
    X, y = clouds(40, 40, 3, 2.0)
    clf = GuruClassifierCV(4, cv=3).fit(X, y)
    before = dict(vars(clf))
    lonely = np.where(np.arange(80) < 79, 0, 1)
    with pytest.raises(ValueError, match=r"training samples of fold 3 of 3 cannot be fitted: y must have at least two"):
        clone(clf).set_params(cv=KFold(3)).fit(X, lonely)
    with pytest.raises(ValueError, match=r"only with .*enable_metadata_routing"):
        clf.fit(X, y, groups=np.arange(80))
    with pytest.raises(ValueError, match=r"only with .*enable_metadata_routing"):
        clf.score(X, y, groups=np.arange(80))
    with pytest.raises(ValueError, match="n_jobs must be"):
        clone(clf).set_params(n_jobs=0).fit(X, y)
    with pytest.raises(TypeError, match="verbose must be"):
        clone(clf).set_params(verbose="loud").fit(X, y)
    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is before[name] for name in before)


# --- error bars -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda E: E[:, 0],
        lambda E: E,
        list,
        sp.csr_array,
        lambda E: E[:, :, np.newaxis] * np.eye(E.shape[1]),
        lambda E: LowRank(E[:, :, np.newaxis], E),
    ],
    ids=["sample", "feature", "list", "csr", "covariance", "low-rank"],
)
def test_every_fold_has_the_error_bars_of_its_rows(form):
    X, y = clouds(40, 44, 3, 1.0)
    X_err = 2 * np.random.default_rng(0).random(X.shape)
    folds = list(StratifiedKFold(3).split(X, y))
    clf = GuruClassifierCV([0.01, 0.5], cv=folds).fit(X, y, X_err=form(X_err))
    sigmas, coefs, *_ = sigma_path(X, y, sigmas=[0.01, 0.5], X_err=form(X_err))
    for j, sigma in enumerate(sigmas):
        for k, (train, test) in enumerate(folds):
            by_hand = GuruClassifier(sigma).fit(X[train], y[train], X_err=form(X_err[train]))
            assert clf.scores_[j, k] == by_hand.score(X[test], y[test])
        whole = GuruClassifier(sigma).fit(X, y, X_err=form(X_err)).coef_
        np.testing.assert_allclose(coefs[j], whole, rtol=1e-2, atol=1e-3)
        if sigma == clf.sigma_:
            np.testing.assert_array_equal(clf.coef_, whole)


def test_what_was_not_measured_is_filled_in():
    X, y = clouds(40, 44, 3, 1.0)
    X_err = np.random.default_rng(0).random(X.shape)
    X_err[::5, 1] = np.inf
    X[::5, 1] = np.nan
    clf = GuruClassifierCV([0.5], cv=3).fit(X, y, X_err=X_err)
    same = GuruClassifier(0.5).fit(X, y, X_err=X_err)
    np.testing.assert_allclose(clf.coef_, same.coef_, rtol=1e-9)
    np.testing.assert_allclose(clf.predict_proba(X, X_err), same.predict_proba(X, X_err), rtol=1e-9)


# --- metadata ---------------------------------------------------------------------------------------------


def weighted_cost(y, predicted, *, cost):
    return -np.average(y != predicted, weights=cost)


def test_groups_and_scorer_metadata_are_routed():
    X, y = clouds(70, 40, 4, 1.5, seed=1)
    rng = np.random.default_rng(0)
    members, cost, weight = rng.integers(0, 9, len(y)), rng.uniform(0.1, 2.0, len(y)), rng.uniform(0.3, 2.0, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(weighted_cost).set_score_request(cost=True)
        clf = GuruClassifierCV(SIGMAS, cv=GroupKFold(3), scoring=scorer, tol=1e-9)
        clf.fit(X, y, sample_weight=weight, groups=list(members), cost=pd.Series(cost))
        assert clf.score(X, y, cost=cost) == pytest.approx(weighted_cost(y, clf.predict(X), cost=cost))
        # And from outside, through somebody else's cross-validation.
        asked = clone(clf).set_fit_request(sample_weight=True)
        outer = cross_validate(
            asked,
            X,
            y,
            cv=GroupKFold(2),
            params={"groups": members, "cost": cost, "sample_weight": weight},
            scoring=get_scorer("accuracy").set_score_request(sample_weight=False),
        )
        assert outer["test_score"].shape == (2,)
    for k, (train, test) in enumerate(GroupKFold(3).split(X, y, members)):
        for i, sigma in enumerate(clf.sigmas_):
            single = quiet(sigma, tol=1e-9).fit(X[train], y[train], weight[train])
            expected = weighted_cost(y[test], single.predict(X[test]), cost=cost[test])
            assert clf.scores_[i, k] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("solver", ["newton", "sgd"])
def test_few_samples_of_a_class(solver):
    X, y = groups([30, 30, 4], 3, seed=2)
    clf = GuruClassifierCV([0.3, 1.0], cv=StratifiedKFold(4), solver=solver, tol=1e-3).fit(X, y)
    assert clf.scores_.shape == (2, 4)
