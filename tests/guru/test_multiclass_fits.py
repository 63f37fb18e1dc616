"""Classifiers of more than two classes: invariances, state, warnings and predictions."""

import copy
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from support.common import sigmas, with_and_without
from support.data import groups, joint_problem
from support.joint import at_zero, check_same, noisy_groups, solve, tight

from gaussguru import CollapseWarning, GuruClassifier, sigma_max
from gaussguru._utils.blocks import MANY_VALUES

# --- invariances ------------------------------------------------------------------------------------------


@sigmas
@with_and_without
def test_weight_two_is_the_row_twice(sigma, fit_intercept):
    X, y, weight = noisy_groups()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    counts = np.random.default_rng(2).integers(0, 4, len(y))
    repeated = np.repeat(np.arange(len(y)), counts)
    check_same(tight(X, y, weight * counts, **options), tight(X[repeated], y[repeated], weight[repeated], **options))


@sigmas
@with_and_without
def test_zero_weight_is_an_absent_row(sigma, fit_intercept):
    X, y, weight = noisy_groups()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    weight[::3] = 0.0
    kept = weight > 0
    whole, part = tight(X, y, weight, **options), tight(X[kept], y[kept], weight[kept], **options)
    check_same(whole, part)
    np.testing.assert_allclose(whole.objective_, part.objective_, rtol=1e-10)
    assert whole.dual_coef_.shape == (len(y), 4)


@sigmas
@with_and_without
@pytest.mark.parametrize("seed", range(3))
def test_symmetries(sigma, fit_intercept, seed):
    X, y, weight = noisy_groups()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    plain = tight(X, y, weight, **options)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    check_same(tight(X[order], y[order], weight[order], **options), plain)
    renamed = rng.permutation(4)
    permuted = tight(X, renamed[y], weight, **options)
    permuted.coef_, permuted.intercept_ = permuted.coef_[renamed], permuted.intercept_[renamed]
    check_same(permuted, plain)
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    rotated = tight(np.ascontiguousarray(X @ rotation), y, weight, **options)
    rotated.coef_ = rotated.coef_ @ rotation.T
    check_same(rotated, plain)
    heavier = tight(X, y, 7.0 * weight, **options)
    check_same(heavier, plain)
    np.testing.assert_allclose(heavier.objective_, 7 * plain.objective_, rtol=1e-10)


@sigmas
@with_and_without
@pytest.mark.parametrize("factor", [1e-6, 1e6, 1e-20, 1e20])
def test_scale_of_the_features(sigma, fit_intercept, factor):
    X, y, weight = noisy_groups()
    plain = tight(X, y, weight, sigma=sigma, fit_intercept=fit_intercept)
    scaled = tight(X * factor, y, weight, sigma=sigma * factor, fit_intercept=fit_intercept)
    check_same(scaled, plain, factor=factor)


def test_shift_of_the_features_moves_only_the_intercepts():
    X, y, weight = noisy_groups()
    shift = np.array([1.0, -2.0, 0.5, 3.0])
    plain, moved = tight(X, y, weight), tight(X + shift, y, weight)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moved.intercept_, plain.intercept_ - plain.coef_ @ shift, rtol=1e-5, atol=1e-6)


@with_and_without
@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, np.asfortranarray, list])
def test_form_of_the_features_does_not_matter(form, fit_intercept):
    X, y, weight = noisy_groups()
    X[np.abs(X) < 0.5] = 0.0
    plain, other = (tight(Z, y, weight, fit_intercept=fit_intercept) for Z in (X, form(X)))
    check_same(other, plain)
    np.testing.assert_allclose(other.decision_function(form(X)), plain.decision_function(X), rtol=1e-4, atol=1e-5)


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_float32_is_close_to_float64(form, fit_intercept):
    X, y, _ = noisy_groups()
    narrow = X.astype(np.float32)
    clf = tight(form(narrow), y, fit_intercept=fit_intercept)
    check_same(clf, tight(X, y, fit_intercept=fit_intercept), rtol=1e-3)
    check_same(clf, tight(narrow * 1.0, y, fit_intercept=fit_intercept))


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_threads_change_no_bit(form, fit_intercept):
    X, y = groups([8000, 7000, 5000], 60, 4.0, seed=3)
    assert X.size >= MANY_VALUES
    X = form(X.astype(np.float32))
    fits = [GuruClassifier(0.5, n_jobs=n_jobs, fit_intercept=fit_intercept).fit(X, y) for n_jobs in (1, 2, 3)]
    for other in fits[1:]:
        for name in ("coef_", "intercept_", "objective_", "dual_gap_", "dual_coef_", "n_iter_"):
            np.testing.assert_array_equal(getattr(other, name), getattr(fits[0], name))
    np.testing.assert_array_equal(fits[0].set_params(n_jobs=2).decision_function(X), fits[1].decision_function(X))


@pytest.mark.parametrize("size", [30, 8_000])
def test_random_state_does_not_move_the_optimum(size):
    X, y = groups([size, size, size], 3, 3.0)
    one, same, other = (tight(X, y, random_state=seed) for seed in (None, None, 5))
    np.testing.assert_array_equal(one.coef_, same.coef_)
    check_same(other, one)


def test_class_weight_is_sample_weight():
    X, y, weight = noisy_groups()
    factors = np.array([3.0, 0.5, 1.0, 2.0])
    by_class = tight(X, y, weight, class_weight={0: 3.0, 1: 0.5, 3: 2.0})
    check_same(by_class, tight(X, y, weight * factors[y]))
    totals = np.bincount(y, weight)
    check_same(tight(X, y, weight, class_weight="balanced"), tight(X, y, weight * (weight.sum() / (4 * totals))[y]))
    check_same(tight(X, y, 2.0), tight(X, y))


@pytest.mark.parametrize(
    "names", [("a", "b", "c", "d"), (-1, 0, 1, 2), (0.0, 1.0, 2.0, 7.0), ("x", "xx", "y", "zebra")], ids=str
)
def test_labels_of_any_kind(names):
    X, y, _ = noisy_groups()
    clf = tight(X, np.array(names)[y])
    assert clf.classes_.tolist() == list(names)
    np.testing.assert_array_equal(clf.coef_, tight(X, y).coef_)
    assert set(clf.predict(X)) <= set(names)
    np.testing.assert_array_equal(clf.predict(X), np.array(names)[tight(X, y).predict(X)])


# --- state ------------------------------------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)], ids=["dense", "csr", "32"])
def test_arguments_are_not_modified(form, fit_intercept):
    X, y, weight = noisy_groups()
    X = form(X)
    arrays = [y, weight, *([X.data, X.indices, X.indptr] if sp.issparse(X) else [X])]
    before = copy.deepcopy(arrays)
    for array in arrays:
        array.flags.writeable = False
    clf = GuruClassifier(0.5, class_weight="balanced", fit_intercept=fit_intercept, random_state=3)
    params = copy.deepcopy(clf.get_params())
    clf.fit(X, y, weight).predict(X)
    assert clf.get_params() == params
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_pickle_and_clone():
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5, l2=0.1).fit(X, y)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    fresh = clone(clf)
    assert fresh.get_params() == clf.get_params()
    assert not hasattr(fresh, "coef_")
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, clf.coef_)


@with_and_without
def test_warm_start_reaches_the_same_optimum_sooner(fit_intercept):
    X, y = joint_problem("digits")
    cold = GuruClassifier(0.3, tol=1e-8, fit_intercept=fit_intercept).fit(X, y)
    warm = GuruClassifier(0.3, tol=1e-8, fit_intercept=fit_intercept, warm_start=True).fit(X, y)
    first = warm.n_iter_
    warm.fit(X, y)
    assert warm.n_iter_ < first
    check_same(warm, cold, rtol=1e-3)
    warm.set_params(sigma=0.31).fit(X, y)
    cold.set_params(sigma=0.31).fit(X, y)
    assert warm.n_iter_ <= cold.n_iter_
    np.testing.assert_allclose(warm.objective_, cold.objective_, atol=2e-8 * at_zero(cold, y))


@pytest.mark.parametrize(("before", "after"), [(1.0, 2.0**-12), (2.0**-12, 1.0), (2.0**-8, 2.0**-10), (1e4, 0.1)])
@with_and_without
def test_warm_start_from_far_away(before, after, fit_intercept):
    X, y = joint_problem("wine")
    warm, _ = solve(X, y, before, fit_intercept=fit_intercept, warm_start=True)
    warm.set_params(sigma=after).fit(X, y)
    cold = GuruClassifier(after, fit_intercept=fit_intercept).fit(X, y)
    total = at_zero(cold, y)
    assert warm.dual_gap_ <= 1e-6 * total
    np.testing.assert_allclose(warm.objective_, cold.objective_, atol=2e-6 * total)


def test_warm_start_with_other_features_and_classes():
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5, warm_start=True).fit(X, y)
    for Z, t in ((X[:, :2], y), (X, y % 3), (X, y % 2), (X, y)):
        clf.fit(Z, t)
        fresh = GuruClassifier(0.5).fit(Z, t)
        np.testing.assert_allclose(clf.objective_, fresh.objective_, atol=2e-6 * at_zero(fresh, t))
        assert clf.coef_.shape == fresh.coef_.shape


@pytest.mark.parametrize("sigma", [0.01, 1.0])
def test_verbose_prints_one_line_per_iteration(sigma, capsys):
    X, y, _ = noisy_groups()
    clf = GuruClassifier(sigma, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert clf.n_iter_ <= len(lines) <= clf.n_iter_ + 1
    for line in lines:
        assert re.search(r"iteration \d+ .*objective [\d.e+-]+ .*gap \S+ .*[\d.]+ s", line)
    last = re.search(r"objective (\S+)\s+gap (\S+)", lines[-1])
    np.testing.assert_allclose(float(last.group(1)), clf.objective_, rtol=1e-3)
    np.testing.assert_allclose(float(last.group(2)), clf.dual_gap_, atol=1e-6 * at_zero(clf, y))
    quiet = GuruClassifier(sigma).fit(X, y)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(quiet.coef_, clf.coef_)


@pytest.mark.parametrize("sigma", [2.0**-14, 2.0**-20, 0.3, 3.0, 100.0])
@with_and_without
def test_a_gap_that_stays_open_does_not_depend_on_verbose(sigma, fit_intercept, capsys):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 2)), np.repeat([0, 1, 2], [60, 20, 40])
    for c in (0, 1):
        X[y == c] -= X[y == c].mean(axis=0)
    X[y == 2, 0] += 30
    loud, quiet = (solve(X, y, sigma, fit_intercept=fit_intercept, verbose=v)[0] for v in (1, 0))
    assert capsys.readouterr().out
    np.testing.assert_allclose(quiet.objective_, loud.objective_, rtol=1e-6)
    assert quiet.dual_gap_ <= max(10 * loud.dual_gap_, 1e-6 * at_zero(quiet, y))


def test_collapse_message_names_sigma():
    X, y = groups([20, 60, 30], 3)
    with pytest.warns(CollapseWarning, match=r"sigma=1e\+06") as caught:
        GuruClassifier(1e6).fit(X, y)
    assert len(caught) == 1


def test_collapse_of_many_rows_is_explained():
    """There is a pool of threads at this size, and the message looks at the rows once more."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50_000, 6_000, 4_000])
    X = rng.standard_normal((len(y), 10)) + y[:, np.newaxis]
    with pytest.warns(CollapseWarning, match="83.3% of the weight, the lightest has 6.7%"):
        clf = GuruClassifier(1e4, n_jobs=2).fit(X, y)
    assert not clf.coef_.any()


def test_one_iteration_warns_with_advice():
    X, y = groups([30, 25, 40], 3, 2.0)
    with pytest.warns(ConvergenceWarning, match="max_iter.*increase") as caught:
        clf = GuruClassifier(0.01, max_iter=1).fit(X, y)
    assert len(caught) == 1
    assert clf.n_iter_ == 1


# --- predictions ------------------------------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_highest_score_wins(form, fit_intercept):
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5, fit_intercept=fit_intercept).fit(X, y)
    scores = clf.decision_function(form(X))
    assert scores.shape == (len(y), 4)
    np.testing.assert_allclose(scores, X @ clf.coef_.T + clf.intercept_, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(clf.predict(form(X)), clf.classes_[scores.argmax(axis=1)])
    assert clf.decision_function(form(X[:1])).shape == (1, 4)


def test_probabilities_of_all_classes():
    X, y, _ = noisy_groups()
    clf = GuruClassifier(0.5).fit(X, y)
    proba = clf.predict_proba(X)
    assert proba.shape == (len(y), 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(clf.classes_[proba.argmax(axis=1)], clf.predict(X))
    clf.fit(X, y % 2)
    assert clf.predict_proba(X).shape == (len(y), 2)
    assert clf.coef_.shape == (1, 4)


def test_sigma_max_is_of_two_classes():
    X, y, _ = noisy_groups()
    with pytest.raises(ValueError, match=r"\by\b"):
        sigma_max(X, y)
