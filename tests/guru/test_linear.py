"""GuruClassifier: scikit-learn's contract, invariances, limits and probabilities."""

import copy
import itertools
import pickle
import re
import signal
import subprocess
import sys
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from support import oracles
from support.common import check_close, fit_to, sigmas, with_and_without
from support.data import clouds, problem

from gaussguru import CollapseWarning, GuruClassifier
from gaussguru._utils.blocks import MANY_VALUES
from gaussguru.losses import LOSSES


def origin_checks():
    """Yield the checks of a classifier without intercept.

    All but one: check_class_weight_classifiers wants nearly every sample in the heavy class, which no hyperplane
    through the origin can give (LinearSVC and LogisticRegression without intercept cannot either).
    """
    for estimator, check in estimator_checks_generator(GuruClassifier(fit_intercept=False)):
        if check.func.__name__ != "check_class_weight_classifiers":
            yield pytest.param(estimator, check, id=check.func.__name__)


# A tol of 1e-12: two fits of noise that is not smooth are as close as their gaps.
@parametrize_with_checks(
    [
        GuruClassifier(),
        GuruClassifier(sigma=0.1),
        GuruClassifier(l2=0.1, class_weight="balanced"),
        GuruClassifier(noise="axis", tol=1e-12),
        GuruClassifier(solver="dual"),
    ]
)
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("estimator", "check"), list(origin_checks()))
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn_without_intercept(estimator, check):
    check(estimator)


# --- invariances ------------------------------------------------------------------------------------------


def sample():
    X, y = clouds(45, 35, 4, 1.5, seed=1)
    return X, y, np.random.default_rng(0).uniform(0.3, 2.0, len(y))


tight = partial(fit_to, 1e-13)


def check_same(clf, other, *, factor=1.0, rtol=1e-6):
    check_close(clf, other, rtol, factor=factor)


@sigmas
@with_and_without
def test_weight_two_is_the_row_twice(sigma, fit_intercept):
    X, y, weight = sample()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    counts = np.random.default_rng(2).integers(0, 4, len(y))
    repeated = np.repeat(np.arange(len(y)), counts)
    check_same(tight(X, y, weight * counts, **options), tight(X[repeated], y[repeated], weight[repeated], **options))


@sigmas
@with_and_without
def test_zero_weight_is_an_absent_row(sigma, fit_intercept):
    X, y, weight = sample()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    weight[::3] = 0.0
    kept = weight > 0
    whole, part = tight(X, y, weight, **options), tight(X[kept], y[kept], weight[kept], **options)
    check_same(whole, part)
    np.testing.assert_allclose(whole.dual_coef_[kept], part.dual_coef_, atol=1e-5)
    np.testing.assert_allclose(whole.objective_, part.objective_, rtol=1e-11)


@sigmas
@with_and_without
@settings(deadline=None, derandomize=True, max_examples=8)
@given(seed=st.integers(0, 10**6), exponent=st.integers(-20, 20))
def test_symmetries(sigma, fit_intercept, seed, exponent):
    X, y, weight = sample()
    options = {"sigma": sigma, "fit_intercept": fit_intercept}
    plain = tight(X, y, weight, **options)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    check_same(tight(X[order], y[order], weight[order], **options), plain)
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    rotated = tight(np.ascontiguousarray(X @ rotation), y, weight, **options)
    rotated.coef_ = rotated.coef_ @ rotation.T
    check_same(rotated, plain)
    factor = 10.0**exponent / 3
    check_same(tight(X * factor, y, weight, sigma=sigma * factor, fit_intercept=fit_intercept), plain, factor=factor)
    swapped = tight(X, -y, weight, **options)
    swapped.coef_, swapped.intercept_ = -swapped.coef_, -swapped.intercept_
    check_same(swapped, plain)
    heavier = tight(X, y, 7.0 * weight, **options)
    check_same(heavier, plain)
    np.testing.assert_allclose(heavier.objective_, 7 * plain.objective_, rtol=1e-11)


def test_shift_of_the_features_moves_only_the_intercept():
    X, y, weight = sample()
    shift = np.array([1.0, -2.0, 0.5, 3.0])
    plain, moved = tight(X, y, weight), tight(X + shift, y, weight)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(moved.intercept_, plain.intercept_ - plain.coef_ @ shift, rtol=1e-6)


@with_and_without
@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, np.asfortranarray, list])
def test_form_of_the_features_does_not_matter(form, fit_intercept):
    X, y, weight = sample()
    X[np.abs(X) < 0.5] = 0.0
    plain, other = (tight(Z, y, weight, fit_intercept=fit_intercept) for Z in (X, form(X)))
    check_same(other, plain)
    np.testing.assert_allclose(other.decision_function(form(X)), plain.decision_function(X), rtol=1e-5, atol=1e-6)


def tiny(seed):
    """Return an estimator, X with rows that occur more than once, y and weights: as few samples as a fit takes."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    C = min(n, int(rng.choice([2, 2, 2, 3, 4])))
    y = np.concatenate([np.arange(C), rng.integers(C, size=n - C)])
    X = rng.normal(size=(2, d))[rng.integers(2, size=n) if seed % 3 == 0 else np.zeros(n, int)]
    X = X * 10.0 ** rng.integers(-3, 4)
    deviations = rng.uniform(0.2, 2.0, d)
    noises = ["isotropic", "axis" if C == 2 else "isotropic", deviations, np.diag(deviations**2)]
    model = GuruClassifier(
        float(2.0 ** rng.integers(-6, 5)),
        loss=str(rng.choice(list(LOSSES))),
        noise=noises[rng.integers(4)],
        class_weight=[None, "balanced", "balanced"][rng.integers(3)],
        fit_intercept=bool(rng.random() < 0.8),
        l2=float(rng.choice([0.0, 0.0, 1.0])),
    )
    return model, X, y, rng.random(n)


@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_tiny_problems_with_equal_rows_are_proven_dense_and_sparse():
    for seed in range(250):
        model, X, y, s = tiny(seed)
        isotropic = isinstance(model.noise, str) and model.noise == "isotropic"
        for solver in ("newton", "dual") if isotropic and len(set(y)) == 2 else ("newton",):
            model.set_params(solver=solver)
            dense, sparse = (clone(model).fit(form(X), y, sample_weight=s) for form in (np.asarray, sp.csr_matrix))
            # Proven, or there would be a ConvergenceWarning; so the minima are within each other's gaps.
            assert abs(dense.objective_ - sparse.objective_) <= max(dense.dual_gap_, sparse.dual_gap_) + 1e-12 * s.sum()


@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_equal_rows_whose_sums_round_differently():
    for seed, noise in itertools.product(range(60), ("isotropic", "axis", np.ones(3))):
        rng = np.random.default_rng(seed)
        X, s = sp.csr_matrix(np.repeat(rng.normal(size=(1, 3)), 4, axis=0)), rng.random(4)
        model = GuruClassifier(3.0, class_weight="balanced", noise=noise).fit(X, [0, 1, 0, 0], sample_weight=s)
        assert not model.coef_.any()
        assert model.objective_ == pytest.approx(s.sum(), rel=1e-12)


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_subsample_without_the_only_row_that_differs(form, fit_intercept):
    # The rows that are drawn first are equal: no direction leads from them to the minimum.
    X, y = np.zeros((60_000, 2)), np.arange(60_000) % 2
    X[12_345] = 10.0
    model = GuruClassifier(0.1, fit_intercept=fit_intercept, random_state=0).fit(form(X), y)
    assert np.all(model.coef_ > 0)
    assert model.objective_ == pytest.approx(len(y) - (2 if fit_intercept else 1), abs=0.1)


def test_sparse_index_types_may_differ():
    X, y, _ = sample()
    mixed = sp.csr_array(X)
    mixed.indices = mixed.indices.astype(np.int64)
    check_same(tight(mixed, y), tight(X, y))
    mixed = sp.csr_array(X)
    mixed.indptr = mixed.indptr.astype(np.int64)
    check_same(tight(mixed, y), tight(X, y))


def test_unsorted_and_repeated_sparse_entries():
    X, y, _ = sample()
    plain = tight(X, y)
    columns = np.indices(X.shape)[1]
    halves = sp.csr_array(
        (
            np.column_stack([X[:, ::-1] / 2, X / 2]).ravel(),
            np.column_stack([columns[:, ::-1], columns]).ravel(),
            np.arange(0, 2 * X.size + 1, 8),
        ),
        shape=X.shape,
    )
    check_same(tight(halves, y), plain)
    assert halves.nnz == 2 * X.size  # the caller's matrix is not tidied up


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_float32_is_close_to_float64(form, fit_intercept):
    X, y, _ = sample()
    narrow = X.astype(np.float32)
    check_same(tight(form(narrow), y, fit_intercept=fit_intercept), tight(X, y, fit_intercept=fit_intercept), rtol=1e-4)
    check_same(tight(form(narrow), y, fit_intercept=fit_intercept), tight(narrow * 1.0, y, fit_intercept=fit_intercept))


@with_and_without
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_threads_change_no_bit(form, fit_intercept):
    X, y = clouds(70_000, 50_000, 10, 1.5, seed=3)
    assert X.size >= MANY_VALUES
    X = form(X)
    fits = [GuruClassifier(0.5, n_jobs=n_jobs, fit_intercept=fit_intercept).fit(X, y) for n_jobs in (1, 2, 3, None)]
    for other in fits[1:]:
        for name in ("coef_", "intercept_", "objective_", "dual_gap_", "dual_coef_", "n_iter_"):
            np.testing.assert_array_equal(getattr(other, name), getattr(fits[0], name))


@pytest.mark.parametrize("n", [80, 30_000])
def test_random_state_does_not_move_the_optimum(n):
    X, y = clouds(n // 2, n // 2, 3, 1.5)
    one, same, other = (tight(X, y, random_state=seed) for seed in (None, None, 5))
    np.testing.assert_array_equal(one.coef_, same.coef_)
    check_same(other, one)


def test_class_weight_is_sample_weight():
    X, y, weight = sample()
    given_weights = {-1.0: 3.0, 1.0: 0.5}
    check_same(tight(X, y, weight, class_weight=given_weights), tight(X, y, weight * np.where(y > 0, 0.5, 3.0)))
    totals = {sign: weight[y == sign].sum() for sign in (-1.0, 1.0)}
    factors = np.where(y > 0, weight.sum() / (2 * totals[1.0]), weight.sum() / (2 * totals[-1.0]))
    check_same(tight(X, y, weight, class_weight="balanced"), tight(X, y, weight * factors))
    check_same(tight(X, y, 2.0), tight(X, y))


@pytest.mark.parametrize(
    "labels", [(0, 1), (-1, 1), (2, 7), (False, True), ("no", "yes"), (0.0, 1.0), (-3.0, 2.0)], ids=str
)
def test_labels_of_any_kind(labels):
    X, y, _ = sample()
    named = np.where(y > 0, labels[1], labels[0])
    clf = tight(X, named)
    assert clf.classes_.tolist() == list(labels)
    np.testing.assert_array_equal(clf.coef_, tight(X, y).coef_)
    np.testing.assert_array_equal(clf.predict(X) == labels[1], clf.decision_function(X) > 0)
    assert set(clf.predict(X)) == set(labels)


# --- state ------------------------------------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize(
    "form", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)], ids=["dense", "csr", "f32"]
)
def test_arguments_are_not_modified(form, fit_intercept):
    X, y, weight = sample()
    X = form(X)
    class_weight = {-1.0: 2.0, 1.0: 1.0}
    arrays = [y, weight, *([X.data, X.indices, X.indptr] if sp.issparse(X) else [X])]
    before = copy.deepcopy((arrays, class_weight))
    for array in arrays:
        array.flags.writeable = False
    clf = GuruClassifier(0.5, class_weight=class_weight, fit_intercept=fit_intercept, random_state=3)
    params = copy.deepcopy(clf.get_params())
    clf.fit(X, y, weight).predict_proba(X)
    assert clf.get_params() == params
    assert class_weight == before[1]
    for array, old in zip(arrays, before[0], strict=True):
        np.testing.assert_array_equal(array, old)


def test_pickle_and_clone():
    X, y, _ = sample()
    clf = GuruClassifier(0.5, l2=0.1).fit(X, y)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    fresh = clone(clf)
    assert fresh.get_params() == clf.get_params()
    assert not hasattr(fresh, "coef_")
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, clf.coef_)


def test_feature_names():
    X, y, _ = sample()
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = GuruClassifier(0.5).fit(frame, pd.Series(y))
    assert clf.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(clf.coef_, GuruClassifier(0.5).fit(X, y).coef_)
    np.testing.assert_array_equal(clf.predict(frame), GuruClassifier(0.5).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[list("dcba")])


@with_and_without
def test_warm_start_reaches_the_same_optimum_sooner(fit_intercept):
    X, y = problem("breast-cancer")
    cold = GuruClassifier(0.3, tol=1e-9, fit_intercept=fit_intercept).fit(X, y)
    warm = GuruClassifier(0.3, tol=1e-9, fit_intercept=fit_intercept, warm_start=True).fit(X, y)
    first = warm.n_iter_
    warm.fit(X, y)
    assert warm.n_iter_ < first
    check_same(warm, cold, rtol=1e-3)
    warm.set_params(sigma=0.31).fit(X, y)
    cold.set_params(sigma=0.31).fit(X, y)
    assert warm.n_iter_ <= cold.n_iter_
    np.testing.assert_allclose(warm.objective_, cold.objective_, atol=2e-9 * len(y))


@pytest.mark.parametrize(("before", "after"), [(1.0, 2.0**-16), (2.0**-16, 1.0), (2.0**-12, 2.0**-14), (3.0, 0.1)])
@with_and_without
def test_warm_start_from_far_away(before, after, fit_intercept):
    X, y = problem("breast-cancer")
    warm = GuruClassifier(before, fit_intercept=fit_intercept, warm_start=True).fit(X, y)
    warm.set_params(sigma=after).fit(X, y)
    cold = GuruClassifier(after, fit_intercept=fit_intercept).fit(X, y)
    assert warm.dual_gap_ <= 1e-6 * len(y)
    np.testing.assert_allclose(warm.objective_, cold.objective_, atol=2e-6 * len(y))


def test_warm_start_after_a_collapse_and_with_other_features():
    X, y = clouds(20, 60, 3, 2.0)
    clf = GuruClassifier(1e6, warm_start=True)
    with pytest.warns(CollapseWarning):
        clf.fit(X, y)
    clf.set_params(sigma=0.3).fit(X, y)
    np.testing.assert_allclose(clf.objective_, oracles.minimum(X, y, 0.3)[0], atol=1e-6 * len(y))
    with pytest.warns(CollapseWarning):
        clf.set_params(sigma=1e6).fit(X, y)
    assert not clf.coef_.any()
    clf.set_params(sigma=0.3).fit(X[:, :2], y)
    assert clf.coef_.shape == (1, 2)
    np.testing.assert_allclose(clf.objective_, oracles.minimum(X[:, :2], y, 0.3)[0], atol=1e-6 * len(y))


def fit_many(clf, X, y):
    """Fit so many samples that NaN among them is found by the solver."""
    copies = MANY_VALUES // len(X)
    many = np.repeat(X[:, :2], copies, axis=0)
    many[-1, 0] = np.nan
    clf.fit(many, np.repeat(y, copies))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda clf, X, y: clf.fit(X[:, :2], np.zeros(len(y))),
        lambda clf, X, y: clf.fit(pd.DataFrame(X, columns=list("abcd")), y, -np.ones(len(y))),
        lambda clf, X, y: clf.fit(X[:, :2] * np.nan, y),
        fit_many,
        lambda clf, X, y: clf.fit("nothing", y),
    ],
)
def test_failing_fit_leaves_the_estimator_alone(spoil):
    X, y, _ = sample()
    clf = GuruClassifier(0.5).fit(X, y)
    before = dict(vars(clf))
    with pytest.raises(ValueError, match=r"X|y must|sample_weight|2D array"):
        spoil(clf, X, y)
    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is before[name] for name in before)


def test_warning_turned_error_leaves_the_estimator_alone():
    X, y = clouds(20, 60, 3, 2.0)
    clf = GuruClassifier(1e6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        with pytest.raises(CollapseWarning):
            clf.fit(X, y)
    assert not hasattr(clf, "coef_")
    assert not hasattr(clf, "n_features_in_")


INTERRUPTED = """
import numpy as np
from gaussguru import GuruClassifier
rng = np.random.default_rng(0)
X = rng.standard_normal((200_000, 40))
y = np.arange(200_000) % 2  # nothing to learn, nor to collapse to: the fit takes long
clf = GuruClassifier(1.0).fit(X[:200], y[:200])
before = dict(vars(clf))
clf.set_params(sigma=1e-6, tol=1e-14, verbose=1)
before.update(sigma=1e-6, tol=1e-14, verbose=1)
print("ready")
try:
    clf.fit(X, y)
except KeyboardInterrupt:
    after = vars(clf)
    same = after.keys() == before.keys() and all(after[name] is before[name] for name in before if name[-1] == "_")
    print("interrupted", same)
else:
    print("finished")
"""


def test_interrupt_leaves_the_estimator_alone():
    child = subprocess.Popen(
        [sys.executable, "-u", "-W", "ignore", "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    )
    try:
        while "iteration" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=10)
    finally:
        child.kill()
    assert out.splitlines()[-1] == "interrupted True"


# --- limits -----------------------------------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize("name", ["balanced", "breast-cancer", "unbalanced"])
def test_small_noise_meets_the_hinge_loss(name, fit_intercept):
    X, y = problem(name)
    least, w, b = oracles.hinge_minimum(X, y, fit_intercept=fit_intercept)
    distances = []
    for sigma in (1e-2, 1e-4, 1e-6):
        clf = GuruClassifier(sigma, fit_intercept=fit_intercept).fit(X, y)
        hinge = np.maximum(0, 1 - y * (X @ clf.coef_[0] + clf.intercept_[0])).sum()
        assert least - 1e-6 <= hinge <= clf.objective_ * (1 + 1e-12)
        # F at the hinge minimiser, which falls linearly with sigma, is above the minimum of F.
        assert clf.objective_ - clf.dual_gap_ <= oracles.objective(w, b, X, y, sigma) + 1e-9 * len(y)
        distances.append(clf.objective_ - least)
    assert distances[2] <= 1e-3 * max(distances[0], 1e-2) + 1e-6 * len(y)


def cosine(v, w):
    return v @ w / (np.linalg.norm(v) * np.linalg.norm(w))


@pytest.mark.parametrize("sigma", [1e3, 1e6, 1e9])
def test_large_noise_points_along_the_class_means(sigma):
    X, y = problem("balanced")
    clf = GuruClassifier(sigma).fit(X, y)
    assert 1 - cosine(clf.coef_[0], X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0)) <= 10 / sigma**2 + 1e-14
    X, y = problem("unbalanced")
    clf = GuruClassifier(sigma, fit_intercept=False).fit(X, y)
    assert 1 - cosine(clf.coef_[0], X.T @ y) <= 10 / sigma**2 + 1e-14


# --- predictions ------------------------------------------------------------------------------------------


@with_and_without
def test_probabilities_match_noisy_predictions(fit_intercept):
    X, y, _ = sample()
    clf = GuruClassifier(0.7, fit_intercept=fit_intercept).fit(X, y)
    rng, n = np.random.default_rng(0), 40_000
    w = clf.coef_[0]
    along = 0.7 * w / np.linalg.norm(w)
    proba = clf.predict_proba(X)
    for x, (_, expected) in zip(X[:10], proba, strict=False):
        noisy = x + np.outer(rng.standard_normal(n), along)
        share = (clf.predict(noisy) == 1).mean()
        assert abs(share - expected) <= 5 * np.sqrt(expected * (1 - expected) / n) + 1e-3 / n
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[proba.argmax(axis=1)])
    np.testing.assert_allclose(clf.decision_function(X), X @ w + clf.intercept_[0], rtol=1e-12)


def test_probabilities_remember_the_fitted_noise():
    X, y, _ = sample()
    clf = GuruClassifier(0.5).fit(X, y)
    before = clf.predict_proba(X)
    np.testing.assert_array_equal(clf.set_params(sigma=7.0).predict_proba(X), before)


def test_collapsed_predictions_are_certain():
    X, y = clouds(20, 60, 3, 2.0)
    with pytest.warns(CollapseWarning):
        clf = GuruClassifier(1e6).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), np.tile([1.0, 0.0], (80, 1)))
    assert set(clf.predict(X)) == {-1.0}
    X = np.array([[1.0], [1.0]])
    with pytest.warns(CollapseWarning):
        clf = GuruClassifier(fit_intercept=False).fit(X, [0, 1])
    np.testing.assert_array_equal(clf.predict_proba(X), np.full((2, 2), 0.5))


@pytest.mark.parametrize("sigma", [0.01, 1.0])
def test_verbose_prints_one_line_per_iteration(sigma, capsys):
    X, y, _ = sample()
    clf = GuruClassifier(sigma, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert clf.n_iter_ <= len(lines) <= clf.n_iter_ + 1
    for line in lines:
        assert re.search(r"iteration \d+ .*objective [\d.e+-]+ .*gap \S+ .*[\d.]+ s", line)
    last = re.search(r"objective (\S+)\s+gap (\S+)", lines[-1])
    np.testing.assert_allclose([float(text) for text in last.groups()], [clf.objective_, clf.dual_gap_], rtol=1e-3)
    GuruClassifier(sigma).fit(X, y)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_beyond_the_data_is_small(dtype):
    n, d = 120_000, 60
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    y = (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(int)
    tracemalloc.start()
    GuruClassifier(0.1).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A subsample, a dozen or so vectors of n doubles, and the Hessian of each row block.
    assert peak <= X.nbytes / 16 + 20 * 8 * n + 70 * 8 * (d + 10) ** 2


@pytest.mark.parametrize("seed", [27, 28, 29])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_one_row_in_both_classes_is_proven_to_tell_nothing(form, seed):
    rng = np.random.default_rng(seed)
    X = form(np.repeat(rng.normal(size=(1, 4)), 2, axis=0))
    clf = GuruClassifier(3.0, class_weight="balanced")
    with pytest.warns(CollapseWarning, match="the best classifier ignores the features"):
        clf.fit(X, [0, 1], sample_weight=rng.random(2))
    assert clf.converged_
    np.testing.assert_array_equal(clf.coef_, 0.0)
