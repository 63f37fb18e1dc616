"""AdversarialSVC with error bars and FeatureDropSVC: cone solvers as oracles, limits, invariances, bad input."""

import itertools
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import clone
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.common import every_form, features, with_and_without
from support.data import clouds, groups, problem

from gaussguru import AdversarialSVC, CollapseWarning, FeatureDropSVC, GuruClassifier, Measured
from gaussguru.errors import LowRank

pytestmark = pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")


@parametrize_with_checks([FeatureDropSVC(), FeatureDropSVC(0, class_weight="balanced")])
def test_scikit_learn(estimator, check):
    check(estimator)


# --- oracles --------------------------------------------------------------------------------------------------


def rows_of(clf):
    """Return a row and an intercept for every class, also of two."""
    if len(clf.coef_) == 1:
        return np.vstack([-clf.coef_, clf.coef_]) / 2, np.append(-clf.intercept_, clf.intercept_) / 2
    return clf.coef_, clf.intercept_


def loss(X, y, clf, support, weight=None):
    """Return the objective in plain words; ``support(i, u)`` is h of a sample."""
    (W, b), labels = rows_of(clf), np.unique(y, return_inverse=True)[1]
    total = 0.5 * clf.lam * (clf.coef_**2).sum()
    for i, (x, c, s) in enumerate(zip(X, labels, np.ones(len(y)) if weight is None else weight, strict=True)):
        slacks = [1 - (W[c] - W[k]) @ x - b[c] + b[k] + support(i, W[c] - W[k]) for k in range(len(W)) if k != c]
        total += s * max(0.0, *slacks)
    return total


def ellipsoid(covariances, delta):
    return lambda i, u: delta * np.sqrt(u @ covariances[i] @ u)


def deletion(X, n_drop):
    """The worst of all choices of features."""

    def support(i, u):
        terms = u * X[i]
        return max(
            sum(terms[list(some)]) for r in range(n_drop + 1) for some in itertools.combinations(range(len(u)), r)
        )

    return support


def least(X, y, support, lam, fit_intercept, weight=None):
    """Return the least objective, from a conic solver; ``support(i, u)`` is a convex expression."""
    labels = np.unique(y, return_inverse=True)[1]
    (n, d), C = X.shape, labels.max() + 1
    W, b, slack = cp.Variable((C, d)), cp.Variable(C), cp.Variable(n, nonneg=True)
    constraints = [] if fit_intercept else [b == 0]
    for i, c in enumerate(labels):
        for k in set(range(C)) - {c}:
            u = W[c] - W[k]
            constraints.append(slack[i] >= 1 - X[i] @ u - b[c] + b[k] + support(i, u))
    ridge = lam / 2 * (cp.sum_squares(W[1] - W[0]) if C == 2 else cp.sum_squares(W))
    whole = cp.Problem(cp.Minimize(ridge + (np.ones(n) if weight is None else weight) @ slack), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 1e-10 was not reached
        return whole.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)


def cone(roots, delta):
    return lambda i, u: delta * cp.norm(roots[i].T @ u)


def largest(X, n_drop):
    return lambda i, u: cp.sum_largest(cp.pos(cp.multiply(u, X[i])), n_drop)


def samples(n_classes, seed=0, n=40, d=4):
    rng = np.random.default_rng(seed)
    X, y = groups([n // n_classes] * n_classes, d, 4.0, seed=seed)
    return np.round(X, 2) * (rng.random(X.shape) < 0.8), y, rng


def bars(kind, shape, rng):
    """Return error bars and the roots of their covariances."""
    n, d = shape
    if kind == "sample":
        std = rng.uniform(0, 0.5, n)
        return std, std[:, np.newaxis, np.newaxis] * np.eye(d)
    std = rng.uniform(0, 0.5, (n, d)) * (rng.random((n, 1)) < 0.8)
    if kind == "value":
        return std, std[:, :, np.newaxis] * np.eye(d)
    if kind == "factors":
        factors = 0.3 * rng.standard_normal((n, d, 2))
        return LowRank(factors, std), np.concatenate([factors, std[:, :, np.newaxis] * np.eye(d)], axis=2)
    roots = 0.3 * rng.standard_normal((n, d, d))
    return roots @ roots.transpose(0, 2, 1), roots


every_kind = pytest.mark.parametrize("kind", ["sample", "value", "covariance", "factors"])
classes = pytest.mark.parametrize("n_classes", [2, 3])


@every_kind
@classes
@with_and_without
def test_ellipsoids_are_the_optimum_of_the_cone_problem(kind, n_classes, fit_intercept):
    X, y, rng = samples(n_classes)
    X_err, roots = bars(kind, X.shape, rng)
    weight = rng.uniform(0, 2, len(y))
    clf = AdversarialSVC(0.8, lam=0.3, fit_intercept=fit_intercept, tol=1e-9).fit(X, y, weight, X_err=X_err)
    expected = least(X, y, cone(roots, 0.8), 0.3, fit_intercept, weight)
    assert clf.objective_ == pytest.approx(expected, rel=1e-6)
    covariances = roots @ roots.transpose(0, 2, 1)
    assert clf.objective_ == pytest.approx(loss(X, y, clf, ellipsoid(covariances, 0.8), weight), rel=1e-9)
    assert clf.dual_gap_ <= 1e-9 * weight.sum() * 1.01
    assert clf.objective_ - clf.dual_gap_ <= expected * (1 + 1e-7)


@pytest.mark.parametrize("n_drop", [1, 2, 4])
@classes
@with_and_without
def test_deletions_are_the_optimum_of_the_linear_program(n_drop, n_classes, fit_intercept):
    X, y, rng = samples(n_classes)
    weight = rng.uniform(0, 2, len(y))
    clf = FeatureDropSVC(n_drop, lam=0.3, fit_intercept=fit_intercept, tol=1e-8).fit(X, y, weight)
    expected = least(X, y, largest(X, n_drop), 0.3, fit_intercept, weight)
    assert clf.objective_ == pytest.approx(expected, rel=1e-6)
    assert clf.objective_ == pytest.approx(loss(X, y, clf, deletion(X, n_drop), weight), rel=1e-9)
    assert clf.objective_ - clf.dual_gap_ <= expected * (1 + 1e-7)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 3, 6])
@with_and_without
def test_an_unproven_fit_is_no_worse_than_a_classifier_that_ignores_the_features(max_iter, fit_intercept):
    X, y, rng = samples(2)
    y = rng.permutation(y)
    clf = FeatureDropSVC(1, fit_intercept=fit_intercept, max_iter=max_iter).fit(X[:-5], y[:-5])
    constant = 2 * np.bincount(y[:-5]).min() if fit_intercept else len(y) - 5
    assert not clf.converged_
    assert clf.objective_ <= constant
    assert clf.objective_ == pytest.approx(loss(X[:-5], y[:-5], clf, deletion(X, 1)), rel=1e-9)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    n_classes=st.integers(2, 4),
    d=st.integers(2, 6),
    exponent=st.integers(-3, 3),
    lam=st.sampled_from([1e-2, 1.0, 100.0]),
    model=st.sampled_from(["ellipsoid", "drop"]),
    fit_intercept=st.booleans(),
)
def test_random_problems_are_certified_in_any_units(seed, n_classes, d, exponent, lam, model, fit_intercept):
    X, y, rng = samples(n_classes, seed, 30, d)
    X_err, factor, allowed = rng.uniform(0, 1, X.shape), 10.0**exponent, 1e-6 * len(y)

    def fit(unit):
        options = {"lam": lam * unit**2, "fit_intercept": fit_intercept}
        if model == "drop":
            return FeatureDropSVC(1 + seed % d, **options).fit(X * unit, y)
        return AdversarialSVC(0.5, **options).fit(X * unit, y, X_err=X_err * unit)

    plain, scaled = fit(1.0), fit(factor)
    assert max(plain.dual_gap_, scaled.dual_gap_) <= allowed
    assert scaled.objective_ == pytest.approx(plain.objective_, abs=2 * allowed)
    support = deletion(X, 1 + seed % d) if model == "drop" else ellipsoid([np.diag(e**2) for e in X_err], 0.5)
    assert plain.objective_ == pytest.approx(loss(X, y, plain, support), rel=1e-9)
    for _ in range(5):  # no other classifier is below the bound
        other = clone(plain)
        size = 0.1 * rng.random()
        other.coef_ = plain.coef_ + size * rng.standard_normal(plain.coef_.shape)
        other.intercept_ = plain.intercept_ + size * rng.standard_normal(plain.intercept_.shape) * fit_intercept
        assert loss(X, y, other, support) >= plain.objective_ - plain.dual_gap_ - 1e-12 * len(y)


# --- limits ---------------------------------------------------------------------------------------------------


@classes
def test_the_same_error_everywhere_is_a_ball(n_classes):
    X, y, _ = samples(n_classes)
    ball = AdversarialSVC(0.3, tol=1e-9).fit(X, y)
    for X_err in (0.2, np.full(len(y), 0.2), np.full(X.shape, 0.2), np.tile(0.04 * np.eye(4), (len(y), 1, 1))):
        clf = AdversarialSVC(1.5, tol=1e-9).fit(X, y, X_err=X_err)
        assert clf.objective_ == pytest.approx(ball.objective_, rel=1e-7)
        np.testing.assert_allclose(clf.coef_, ball.coef_, atol=1e-4)
        moved = clf.displacements(X, y, X_err=X_err)
        np.testing.assert_allclose(moved, ball.displacements(X, y), atol=1e-3)


@classes
@pytest.mark.parametrize("exact", ["errors", "delta", "features"])
def test_nothing_to_move_is_the_ordinary_machine(n_classes, exact):
    X, y, rng = samples(n_classes)
    plain = AdversarialSVC(0.0, tol=1e-9).fit(X, y)
    X_err = rng.uniform(0, 1, X.shape)
    clf = {
        "errors": lambda: AdversarialSVC(1.0, tol=1e-9).fit(X, y, X_err=0 * X_err),
        "delta": lambda: AdversarialSVC(0.0, tol=1e-9).fit(X, y, X_err=X_err),
        "features": lambda: FeatureDropSVC(0, tol=1e-9).fit(X, y),
    }[exact]()
    assert clf.objective_ == pytest.approx(plain.objective_, abs=3e-9 * len(y))
    if n_classes == 2:
        peer = SVC(kernel="linear", tol=1e-9).fit(X, y)
        np.testing.assert_allclose(clf.coef_, peer.coef_, atol=1e-3)


def test_confidence_is_the_quantile():
    X, y, rng = samples(2)
    X_err = rng.uniform(0, 0.5, X.shape)
    clf = AdversarialSVC(confidence=0.9).fit(X, y, X_err=X_err)
    same = AdversarialSVC(norm.ppf(0.9)).fit(X, y, X_err=X_err)
    np.testing.assert_array_equal(clf.coef_, same.coef_)
    # Samples with a margin of at least 0 in the ellipsoid are right with this probability.
    margin, spread = clf.margin_and_spread(X, X_err)
    safe = np.where(y > 0, 1, -1) * margin >= norm.ppf(0.9) * spread
    noisy = X + X_err * rng.standard_normal((4000, *X.shape))
    right = (clf.predict(noisy.reshape(-1, X.shape[1])).reshape(4000, -1) == y).mean(axis=0)
    assert safe.any()
    assert (right[safe] >= 0.9 - 0.02).all()


# --- invariances ----------------------------------------------------------------------------------------------

MODELS = {
    "ellipsoid": lambda X, y, X_err, weight=None, **options: AdversarialSVC(0.8, tol=1e-9, **options).fit(
        X, y, weight, X_err=X_err
    ),
    "drop": lambda X, y, X_err, weight=None, **options: FeatureDropSVC(2, tol=1e-9, **options).fit(X, y, weight),
}
every_model = pytest.mark.parametrize("model", MODELS)


@every_model
@classes
def test_order_labels_duplicates_and_weights(model, n_classes):
    fit = MODELS[model]
    X, y, rng = samples(n_classes)
    X_err, order = rng.uniform(0, 0.5, X.shape), rng.permutation(len(y))
    plain, close = fit(X, y, X_err), {"abs": 3e-9 * len(y)}
    assert fit(X[order], y[order], X_err[order]).objective_ == pytest.approx(plain.objective_, **close)
    assert fit(X, -y, X_err).objective_ == pytest.approx(plain.objective_, **close)
    double = [np.concatenate([part, part[:9]]) for part in (X, y, X_err)]
    weight = 1.0 + (np.arange(len(y)) < 9)
    heavier = fit(X, y, X_err, weight)
    assert heavier.objective_ == pytest.approx(fit(*double).objective_, **close)
    removed = fit(X, y, X_err, np.where(np.arange(len(y)) % 5, 1.0, 0.0))
    some = np.arange(len(y)) % 5 > 0
    assert removed.objective_ == pytest.approx(fit(X[some], y[some], X_err[some]).objective_, **close)
    by_class = fit(X, y, X_err, class_weight={label: 2.0 if label == y[0] else 1.0 for label in np.unique(y)})
    assert by_class.objective_ == pytest.approx(fit(X, y, X_err, 1.0 + (y == y[0])).objective_, **close)


@every_form
@every_model
@classes
def test_forms_of_features(form, model, n_classes):
    rng = np.random.default_rng(1)
    X, y = features(60, 5, rng), np.arange(60) % n_classes
    X[:, 0] += y
    X = X.astype(np.float32).astype(np.float64)
    X_err = rng.uniform(0, 0.5, X.shape)
    plain, other = MODELS[model](X, y, X_err), MODELS[model](form(X), y, X_err)
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    np.testing.assert_allclose(other.decision_function(form(X)), plain.decision_function(X), atol=1e-3)
    if model == "drop":
        np.testing.assert_array_equal(other.certified_drops(form(X)), other.certified_drops(X))


def test_measured_frames_and_pickles():
    X, y, rng = samples(2)
    X_err = rng.uniform(0, 0.5, X.shape)
    plain = AdversarialSVC(0.8).fit(X, y, X_err=X_err)
    table, errors = (pd.DataFrame(part, columns=list("abcd")) for part in (X, X_err))
    for clf in (AdversarialSVC(0.8).fit(Measured(X, X_err), y), AdversarialSVC(0.8).fit(table, y, X_err=errors)):
        np.testing.assert_array_equal(clf.coef_, plain.coef_)
    assert list(FeatureDropSVC().fit(table, y).feature_names_in_) == list("abcd")
    for clf in (plain, FeatureDropSVC().fit(X, y)):
        again = pickle.loads(pickle.dumps(clf))
        np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))


def test_values_that_were_not_measured_are_filled_as_by_guru():
    X, y, rng = samples(2)
    X_err = rng.uniform(0.05, 0.5, X.shape)
    gone = rng.random(X.shape) < 0.1
    with_nan, with_inf = np.where(gone, np.nan, X), np.where(gone, np.inf, X_err)
    clf = AdversarialSVC(0.8, tol=1e-8).fit(with_nan, y, X_err=X_err)
    other = AdversarialSVC(0.8, tol=1e-8).fit(X, y, X_err=with_inf)
    np.testing.assert_array_equal(clf.coef_, other.coef_)
    filled, errors = GuruClassifier(0.1).fit(with_nan, y, X_err=X_err).population_.fill(X, with_inf)
    given = AdversarialSVC(0.8, tol=1e-8).fit(filled, y, X_err=errors)
    assert clf.objective_ == pytest.approx(given.objective_, abs=3e-8 * len(y))
    assert np.isfinite(clf.decision_function(with_nan, X_err)).all()
    assert np.isfinite(clf.displacements(with_nan, y, X_err=X_err)).all()
    with pytest.raises(ValueError, match="NaN"):
        FeatureDropSVC().fit(with_nan, y)


def test_displacements_in_ellipsoids_are_the_worst():
    for n_classes in (2, 3):
        X, y, rng = samples(n_classes)
        X_err, roots = bars("factors", X.shape, rng)
        clf = AdversarialSVC(0.8, tol=1e-8).fit(X, y, X_err=X_err)
        moved = clf.displacements(X, y, X_err=X_err)
        # The hinge loss on the displaced samples is the robust loss.
        zero = np.zeros((len(y), 4, 4))
        assert loss(X + moved, y, clf, ellipsoid(zero, 0)) == pytest.approx(clf.objective_, rel=1e-9)
        sizes = [step @ np.linalg.pinv(root @ root.T) @ step for step, root in zip(moved, roots, strict=True)]
        assert np.max(sizes) <= 0.8**2 * (1 + 1e-6)
        with pytest.raises(ValueError, match="X_err is missing: this classifier was fitted with error bars"):
            clf.displacements(X, y)
        np.testing.assert_allclose(np.linalg.norm(clf.displacements(X, y, delta=np.ones(len(y))), axis=1), 1.0)


@classes
def test_certified_drops_by_brute_force(n_classes):
    rng, y = np.random.default_rng(0), np.arange(60) % n_classes
    X = 0.6 * rng.standard_normal((60, 4)) + 2.0 * rng.choice([-1, 1], (n_classes, 4), p=[0.4, 0.6])[y]
    clf = FeatureDropSVC(1, lam=0.1).fit(X, y)
    before, drops = clf.predict(X), clf.certified_drops(X)
    kept = np.zeros((5, len(y)), dtype=bool)
    for r in range(5):
        each = [np.delete(np.arange(4), some) for some in itertools.combinations(range(4), r)]
        worst = [clf.predict(X * np.isin(np.arange(4), left)) == before for left in each]
        kept[r] = np.all(worst, axis=0)
    np.testing.assert_array_equal(drops, np.cumprod(kept[1:], axis=0).sum(axis=0))
    assert len(np.unique(drops)) > 1


def test_weight_is_spread_over_copies_of_a_feature():
    X, y = clouds(40, 40, 1, 4.0, seed=2)
    X = np.column_stack([X, X, X, np.random.default_rng(0).standard_normal(80)])
    clf = FeatureDropSVC(1, lam=0.01, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(clf.coef_[0, :3], clf.coef_[0, 0], rtol=1e-3)
    assert np.mean(clf.certified_drops(X) >= 1) > 0.9


def test_collapse_is_proven_and_explained():
    X, y = problem("balanced")
    with pytest.warns(CollapseWarning, match=f"n_drop={X.shape[1]} is so large"):
        clf = FeatureDropSVC(X.shape[1]).fit(X, y)
    assert not clf.coef_.any()
    with pytest.warns(CollapseWarning, match=r"confidence=0\.9999 is so large"):
        AdversarialSVC(confidence=0.9999).fit(X, y, X_err=np.full(len(y), 10 * np.abs(X).max()))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_threads(n_jobs):
    X, y = clouds(3000, 2000, 5, 1.0)
    X_err = np.random.default_rng(0).uniform(0, 0.3, X.shape)
    for model in MODELS.values():
        clf = model(X, y, X_err, n_jobs=n_jobs, lam=10.0)
        assert clf.dual_gap_ <= 1e-9 * len(y) * 1.01


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clf", "given", "error", "message"),
    [
        (AdversarialSVC(0.1, confidence=0.9), {"X_err": 1.0}, ValueError, "give delta or confidence.*0.1.*0.9"),
        (AdversarialSVC(confidence=0.9), {}, ValueError, "confidence=0.9 needs X_err"),
        (AdversarialSVC(confidence=0.5), {"X_err": 1.0}, ValueError, "between 0.5 and 1, without these; got 0.5"),
        (AdversarialSVC(confidence=1), {"X_err": 1.0}, ValueError, "between 0.5 and 1, without these; got 1"),
        (AdversarialSVC(confidence="a"), {"X_err": 1.0}, TypeError, "confidence must be a finite number"),
        (AdversarialSVC(), {"X_err": 1.0, "delta": np.ones(6)}, ValueError, "give delta or X_err to fit"),
        (AdversarialSVC(solver="alternating"), {"X_err": 1.0}, ValueError, "use solver='exact' with X_err"),
        (AdversarialSVC(), {"X_err": -np.ones(6)}, ValueError, "X_err must"),
        (AdversarialSVC(), {"X_err": np.ones(5)}, ValueError, "X_err must"),
        (FeatureDropSVC(-1), {}, ValueError, "n_drop must be a whole number >= 0; got -1"),
        (FeatureDropSVC(1.5), {}, TypeError, "n_drop must be a whole number >= 0; got 1.5"),
        (FeatureDropSVC(3), {}, ValueError, "n_drop must be at most 2, the features of X; got 3"),
        (FeatureDropSVC(lam=0), {}, ValueError, "lam must be a finite number > 0; got 0"),
    ],
)
def test_bad_input(clf, given, error, message):
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    with pytest.raises(error, match=message):
        clf.fit(X, y, **given)


def test_error_bars_are_refused_by_deletions():
    X, y, _ = samples(2)
    with pytest.raises(TypeError, match="X carries error bars"):
        FeatureDropSVC().fit(Measured(X, 0.1 * np.ones_like(X)), y)
