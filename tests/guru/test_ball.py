"""AdversarialSVC and TotalSVC: cone solvers as oracles, limits, and the turns of the alternation."""

import warnings

import cvxpy as cp
import matplotlib as mpl
import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from support.common import every_form, features, with_and_without
from support.data import JOINT_PROBLEMS, PROBLEMS, clouds, groups, joint_problem, problem

from gaussguru import AdversarialSVC, CollapseWarning, TotalSVC
from gaussguru._guru.problems.protocol import MAX_UNKNOWNS
from gaussguru._utils.blocks import MANY_VALUES
from gaussguru.plotting import DisplacementDisplay


def origin_checks():
    """Yield the checks of classifiers without intercept; test_linear.py says why all but one."""
    for made in (AdversarialSVC(fit_intercept=False), TotalSVC(fit_intercept=False, tol=1e-3)):
        for estimator, check in estimator_checks_generator(made):
            if check.func.__name__ != "check_class_weight_classifiers":
                yield pytest.param(estimator, check, id=f"{type(made).__name__}-{check.func.__name__}")


@parametrize_with_checks(
    [
        AdversarialSVC(),
        AdversarialSVC(0.0, class_weight="balanced"),
        AdversarialSVC(solver="alternating", max_iter=4),
        TotalSVC(tol=1e-3),  # fewer turns: the checks fit hundreds of times
    ]
)
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("estimator", "check"), list(origin_checks()))
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn_without_intercept(estimator, check):
    check(estimator)


# --- the optimum ------------------------------------------------------------------------------------------

TOYS = {
    "clouds-2d": lambda: clouds(40, 25, 2, 1.0, seed=7),
    "groups-4": lambda: groups([30, 20, 40, 10], 3, seed=8),
    "groups-merged": lambda: groups([60, 60, 4], 2, distance=0.8, seed=9),
}
NAMED = {
    **{name: lambda name=name: problem(name) for name in PROBLEMS if not name.startswith("usps")},
    **{name: lambda name=name: joint_problem(name) for name in JOINT_PROBLEMS if name in ("iris", "wine")},
    **TOYS,
}
every_problem = pytest.mark.parametrize("name", NAMED)


def split(X, y, coef, intercept):
    """Return a row and an intercept for every class, also of two, and the classes as numbers."""
    labels = np.unique(y, return_inverse=True)[1]
    if len(coef) == 1:
        return np.vstack([-coef, coef]) / 2, np.append(-intercept, intercept) / 2, labels
    return coef, intercept, labels


def loss(X, y, clf, delta, weight=None):
    """Return the objective in plain words; negative ``delta`` is that of TotalSVC."""
    W, b, labels = split(X, y, clf.coef_, clf.intercept_)
    scores, total = X @ W.T + b, 0.0
    for i, (own, s) in enumerate(zip(labels, np.ones(len(y)) if weight is None else weight, strict=True)):
        r = np.broadcast_to(delta, len(y))[i]
        total += s * max(
            0.0 if k == own else 1 - scores[i, own] + scores[i, k] + r * np.linalg.norm(W[own] - W[k])
            for k in range(len(W))
        )
    return total + 0.5 * clf.lam * (clf.coef_**2).sum()


class Plain:
    """A machine of scikit-learn with the attributes that :func:`loss` reads."""

    def __init__(self, peer):
        self.coef_, self.intercept_, self.lam = peer.coef_, np.zeros(1), 1 / peer.C


def cone(X, y, delta, lam, fit_intercept, weight=None):
    """Return the least objective, from a conic solver."""
    classes, labels = np.unique(y, return_inverse=True)
    (n, d), C = X.shape, len(classes)
    W, b, slack = cp.Variable((C, d)), cp.Variable(C), cp.Variable(n, nonneg=True)
    constraints = [] if fit_intercept else [b == 0]
    delta = np.broadcast_to(delta, n)
    for c in range(C):
        mine = labels == c
        for k in set(range(C)) - {c}:
            margin = X[mine] @ (W[c] - W[k]) + b[c] - b[k]
            constraints.append(slack[mine] >= 1 - margin + delta[mine] * cp.norm(W[c] - W[k]))
    ridge = lam / 2 * (cp.sum_squares(W[1] - W[0]) if C == 2 else cp.sum_squares(W))
    loss = cp.sum(cp.multiply(np.ones(n) if weight is None else weight, slack))
    whole = cp.Problem(cp.Minimize(ridge + loss), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 1e-10 was not reached
        return whole.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)


@with_and_without
@pytest.mark.parametrize("delta", [0.15, 0.6])
@every_problem
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_exact_is_the_optimum_of_the_cone_problem(name, delta, fit_intercept):
    X, y = NAMED[name]()
    clf = AdversarialSVC(delta, lam=0.7, fit_intercept=fit_intercept, tol=1e-10).fit(X, y)
    least = cone(X, y, delta, 0.7, fit_intercept)
    assert clf.objective_ == pytest.approx(least, rel=1e-6)
    assert clf.objective_ == pytest.approx(loss(X, y, clf, delta), rel=1e-12)
    assert clf.dual_gap_ <= 1e-10 * len(y)
    assert clf.objective_ - clf.dual_gap_ <= least * (1 + 1e-7)


@with_and_without
def test_radii_and_weights_of_samples(fit_intercept):
    for X, y in (clouds(50, 30, 3, 2.0, seed=3), groups([20, 30, 25], 3, seed=4)):
        rng = np.random.default_rng(0)
        delta, weight = rng.uniform(0, 0.5, len(y)), rng.uniform(0, 2, len(y))
        weight[::5] = 0.0
        clf = AdversarialSVC(9.0, fit_intercept=fit_intercept, tol=1e-9).fit(X, y, weight, delta)
        assert clf.objective_ == pytest.approx(cone(X, y, delta, 1.0, fit_intercept, weight), rel=1e-6)
        part = AdversarialSVC(fit_intercept=fit_intercept, tol=1e-9)
        part.fit(X[weight > 0], y[weight > 0], weight[weight > 0], delta[weight > 0])
        np.testing.assert_allclose(part.coef_, clf.coef_, atol=1e-4)
        doubled = AdversarialSVC(lam=2.0, fit_intercept=fit_intercept, tol=1e-9).fit(X, y, 2 * weight, delta)
        assert doubled.objective_ == pytest.approx(2 * clf.objective_, rel=1e-7)


def test_an_ordinary_machine_with_more_ridge_has_the_same_direction():
    X, y = problem("balanced")
    delta, lam = 0.2, 0.5
    clf = AdversarialSVC(delta, lam=lam, tol=1e-11).fit(X, y)
    length = np.linalg.norm(clf.coef_)
    more = (lam + delta * clf.dual_coef_.sum() / length) * (1 + delta * length)
    plain = SVC(kernel="linear", C=1 / more, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(clf.coef_ / (1 + delta * length), plain.coef_, rtol=1e-4)
    np.testing.assert_allclose(clf.intercept_ / (1 + delta * length), plain.intercept_, atol=1e-4)


@pytest.mark.parametrize("name", ["balanced", "breast-cancer", "unbalanced", "wide"])
def test_without_radius_the_fit_is_the_hinge_machine(name):
    X, y = problem(name)
    clf = AdversarialSVC(0.0, lam=2.0, fit_intercept=False, tol=1e-11).fit(X, y)
    peer = LinearSVC(loss="hinge", C=0.5, fit_intercept=False, tol=1e-8, max_iter=10**7).fit(X, y)
    np.testing.assert_allclose(clf.coef_, peer.coef_, atol=1e-4 * np.abs(clf.coef_).max())
    assert clf.objective_ <= loss(X, y, Plain(peer), 0.0)
    # LinearSVC would penalise the intercept, SVC does not.
    clf = AdversarialSVC(0.0, lam=2.0, tol=1e-11).fit(X, y)
    peer = SVC(kernel="linear", C=0.5, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(clf.coef_, peer.coef_, atol=1e-4 * np.abs(clf.coef_).max())


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_without_radius_the_fit_is_the_machine_of_crammer_and_singer(name):
    X, y = joint_problem(name)
    clf = AdversarialSVC(0.0, lam=2.0, fit_intercept=False, tol=1e-11).fit(X, y)
    options = {"C": 0.5, "fit_intercept": False, "tol": 1e-9, "max_iter": 10**6}
    peer = LinearSVC(multi_class="crammer_singer", **options).fit(X, y)
    np.testing.assert_allclose(clf.coef_, peer.coef_ - peer.coef_.mean(axis=0), atol=1e-4 * np.abs(clf.coef_).max())
    np.testing.assert_allclose(clf.coef_.sum(axis=0), 0.0, atol=1e-9)


def test_two_classes_are_several_with_half_the_ridge():
    X, y = groups([30, 40], 3, seed=2)
    far = np.vstack([X, np.full((1, 3), 1e3)])  # a third class that is no trouble: it only needs a little of its row
    two = AdversarialSVC(0.2, lam=0.5, tol=1e-9).fit(X, y)
    three = AdversarialSVC(0.2, lam=1.0, tol=1e-9).fit(far, np.append(y, 2))
    np.testing.assert_allclose(three.coef_[1] - three.coef_[0], two.coef_[0], atol=2e-2)
    assert three.objective_ == pytest.approx(two.objective_, rel=1e-3)


@with_and_without
def test_collapse_is_proven_and_explained(fit_intercept):
    X, y = clouds(20, 60, 3, 1.0, seed=0)
    with pytest.warns(CollapseWarning, match="delta=5 is so large"):
        clf = AdversarialSVC(5.0, fit_intercept=fit_intercept).fit(X, y)
    assert not clf.coef_.any()
    assert clf.objective_ == (40.0 if fit_intercept else 80.0)
    assert clf.dual_gap_ <= 1e-6 * len(y)
    assert np.all(clf.certified_radius(X) == (np.inf if fit_intercept else 0.0))


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 25), min_size=2, max_size=4),
    d=st.integers(1, 6),
    exponent=st.integers(-3, 3),
    delta=st.sampled_from([0.0, 0.01, 0.3, 3.0]),
    lam=st.sampled_from([1e-3, 1.0, 100.0]),
    fit_intercept=st.booleans(),
)
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_random_problems_are_certified_in_any_units(seed, sizes, d, exponent, delta, lam, fit_intercept):
    X, y = groups(sizes, d, seed=seed)
    factor = 10.0**exponent
    plain = AdversarialSVC(delta, lam=lam, fit_intercept=fit_intercept).fit(X, y)
    scaled = AdversarialSVC(delta * factor, lam=lam * factor**2, fit_intercept=fit_intercept).fit(X * factor, y)
    allowed = 1e-6 * len(y)
    assert max(plain.dual_gap_, scaled.dual_gap_) <= allowed
    assert scaled.objective_ == pytest.approx(plain.objective_, abs=2 * allowed)


# --- forms of the data ------------------------------------------------------------------------------------


@every_form
def test_forms_of_features(form):
    rng = np.random.default_rng(1)
    X = features(90, 6, rng)
    for y in (rng.integers(0, 2, 90), rng.integers(0, 3, 90)):
        X[:, 0] += y
        for clf in (AdversarialSVC(0.1), TotalSVC(0.1, tol=1e-5)):
            X = X.astype(np.float32).astype(np.float64)
            plain, other = clone(clf).fit(X, y), clone(clf).fit(form(X), y)
            assert other.objective_ == pytest.approx(plain.objective_, rel=1e-6)
            np.testing.assert_allclose(other.decision_function(form(X)), plain.decision_function(X), atol=1e-3)
            np.testing.assert_allclose(other.displacements(form(X), y), plain.displacements(X, y), atol=1e-3)


def test_names_of_columns_are_kept():
    X, y = clouds(20, 20, 3, 2.0)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for clf in (AdversarialSVC(), TotalSVC()):
        clf.fit(frame, np.where(y > 0, "yes", "no"))
        assert list(clf.feature_names_in_) == ["a", "b", "c"]
        assert set(clf.predict(frame)) == {"yes", "no"}
        assert not hasattr(clf, "predict_proba")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("delta", [1e-100, 1e-170, 1e-310, 5e-324])
def test_a_radius_of_next_to_nothing_is_none(delta, n_classes):
    X, y = groups([15] * n_classes, 3)
    plain = AdversarialSVC(0.0).fit(X, y)
    np.testing.assert_allclose(AdversarialSVC(delta).fit(X, y).objective_, plain.objective_, atol=2e-6 * len(y))


def test_many_rows_and_threads():
    X, y = clouds(30_000, 20_000, MANY_VALUES // 50_000 + 1, 1.0)
    one, two = (AdversarialSVC(0.2, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    assert one.dual_gap_ <= 1e-6 * len(y)
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_many_columns(n_classes):
    X, y = groups([15] * n_classes, MAX_UNKNOWNS + 1, distance=8.0)
    clf = AdversarialSVC(0.5).fit(X, y)
    assert clf.dual_gap_ <= 1e-6 * len(y)
    # The same in the coordinates of the rows.
    basis = np.linalg.qr(X.T)[0]
    small = AdversarialSVC(0.5, tol=1e-8).fit(X @ basis, y)
    assert clf.objective_ == pytest.approx(small.objective_, abs=2e-6 * len(y))


# --- turns ------------------------------------------------------------------------------------------------


def quietly(clf, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", CollapseWarning)
        return clf.fit(X, y, **options)


@with_and_without
@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize("name", ["balanced", "separable", "wide", "iris", "wine", "clouds-2d", "groups-4"])
def test_alternating_against_exact(name, delta, fit_intercept):
    X, y = NAMED[name]()
    exact = quietly(AdversarialSVC(delta, fit_intercept=fit_intercept, tol=1e-9), X, y)
    turns = quietly(AdversarialSVC(delta, fit_intercept=fit_intercept, solver="alternating", max_iter=12), X, y)
    assert turns.objective_ == pytest.approx(loss(X, y, turns, delta), rel=1e-9)
    assert turns.objective_ == min(turns.loss_curve_)
    # Its distance to the optimum is true, and 0 where it came to rest.
    allowed = 1e-6 * len(y)
    assert exact.objective_ - 2e-9 * len(y) <= turns.objective_ <= exact.objective_ + turns.dual_gap_ + 2e-9 * len(y)
    if not turns.cycle_ and turns.n_iter_ < 12:
        assert turns.objective_ <= exact.objective_ + allowed


def test_alternating_warns_of_a_cycle():
    X, y = problem("balanced")
    clf = AdversarialSVC(0.5, fit_intercept=False, solver="alternating")
    with pytest.warns(ConvergenceWarning, match="goes in a circle of 2: use solver='exact'"):
        clf.fit(X, y)
    assert clf.cycle_ == 2
    assert clf.loss_curve_[-1] == pytest.approx(clf.loss_curve_[-3], rel=1e-3)
    assert clf.loss_curve_[-1] != pytest.approx(clf.loss_curve_[-2], rel=1e-3)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 was reached"):
        clf.set_params(max_iter=2).fit(X, y)


@settings(deadline=None, derandomize=True, max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    n_classes=st.integers(2, 4),
    delta=st.sampled_from([0.02, 0.3, 2.0]),
    fit_intercept=st.booleans(),
)
def test_total_never_rises_and_ends_at_rest(seed, n_classes, delta, fit_intercept):
    X, y = groups([20] * n_classes, 3, seed=seed)
    radii = np.random.default_rng(seed).uniform(0, delta, len(y))
    clf = TotalSVC(fit_intercept=fit_intercept).fit(X, y, delta=radii)
    curve = np.array(clf.loss_curve_)
    assert np.all(np.diff(curve) <= 0)
    assert clf.objective_ == curve[-1] == pytest.approx(loss(X, y, clf, -radii), rel=1e-9)
    plain = AdversarialSVC(0.0, fit_intercept=fit_intercept, tol=1e-9).fit(X, y)
    assert curve[0] == pytest.approx(loss(X, y, plain, -radii), rel=1e-3)
    if n_classes == 2:
        # An ordinary machine on the displaced samples finds nothing better.
        moved = X + clf.displacements(X, y, radii)
        assert cone(moved, y, 0.0, 1.0, fit_intercept) >= clf.objective_ - 4e-6 * len(y)


def test_total_from_several_beginnings():
    X, y = clouds(40, 35, 5, 0.5, seed=11)
    one = TotalSVC(1.0, random_state=0).fit(X, y)
    many = TotalSVC(1.0, n_init=5, random_state=0).fit(X, y)
    assert many.objective_ <= one.objective_
    assert TotalSVC(1.0, n_init=5, random_state=0).fit(X, y).objective_ == many.objective_
    with pytest.warns(ConvergenceWarning, match="max_iter=1 was reached"):
        TotalSVC(1.0, max_iter=1).fit(X, y)


def test_total_without_radius_is_the_hinge_machine():
    X, y = problem("balanced")
    total, plain = TotalSVC(0.0, tol=1e-8).fit(X, y), AdversarialSVC(0.0, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(total.coef_, plain.coef_, atol=1e-4)


# --- radii of samples -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[40, 30], [30, 20, 40, 10]], ids=["two", "four"])
def test_certified_radius_is_the_least_displacement_that_changes_the_class(sizes):
    X, y = groups(sizes, 3, seed=8)
    clf = AdversarialSVC(0.2).fit(X, y)
    radius, before = clf.certified_radius(X), clf.predict(X)
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = rng.standard_normal(X.shape)
        step *= (0.999 * radius / np.linalg.norm(step, axis=1))[:, np.newaxis]
        np.testing.assert_array_equal(clf.predict(X + step), before)
    W = np.vstack([-clf.coef_, clf.coef_]) / 2 if len(sizes) == 2 else clf.coef_
    changed = np.zeros(len(y), dtype=bool)
    for k in range(len(sizes)):
        normal = W[k] - W[before]
        step = normal / np.maximum(np.linalg.norm(normal, axis=1), 1e-300)[:, np.newaxis]
        changed |= clf.predict(X + 1.001 * radius[:, np.newaxis] * step) != before
    assert changed.all()


def test_displacements_are_the_worst_and_the_best():
    X, y = groups([30, 20, 40], 3, seed=8)
    for labels in (y, y == 1):
        adversary = AdversarialSVC(0.05).fit(X, labels)
        moved = adversary.displacements(X, labels)
        np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 0.05)
        # The hinge loss on the displaced samples is the robust loss.
        ridge = 0.5 * (adversary.coef_**2).sum()
        assert loss(X + moved, labels, adversary, 0.0) - ridge == pytest.approx(adversary.objective_ - ridge, rel=1e-9)
    total = TotalSVC(0.3).fit(X, labels)
    sign = np.where(labels, 1.0, -1.0)[:, np.newaxis]
    np.testing.assert_allclose(total.displacements(X, labels), 0.3 * sign * total.coef_ / np.linalg.norm(total.coef_))


@pytest.mark.parametrize("estimator", [AdversarialSVC(0.2), TotalSVC(0.2)])
@pytest.mark.parametrize("sizes", [[20, 20], [10, 20, 15]], ids=["two", "three"])
def test_picture(estimator, sizes):
    X, y = groups(sizes, 2, 6.0, seed=5)
    with mpl.rc_context({"backend": "agg"}):
        estimator.fit(pd.DataFrame(X, columns=["colour", "mass"]), y)
        drawn = DisplacementDisplay.from_estimator(estimator, pd.DataFrame(X, columns=["colour", "mass"]), y)
        drawn.figure_.canvas.draw()
        mpl.pyplot.close(drawn.figure_)
    assert (drawn.ax_.get_xlabel(), drawn.ax_.get_ylabel()) == ("colour", "mass")
    # Filled and empty circles of every class, and the lines where scores are the same.
    circles = [c.get_offsets() for c in drawn.ax_.collections if isinstance(c, mpl.collections.PathCollection)]
    np.testing.assert_allclose(np.vstack(circles[::2]), np.vstack([X[y == c] for c in range(len(sizes))]))
    moved = X + estimator.displacements(pd.DataFrame(X, columns=["colour", "mass"]), y)
    np.testing.assert_allclose(np.vstack(circles[1::2]), np.vstack([moved[y == c] for c in range(len(sizes))]))
    lines = [c for c in drawn.ax_.collections if isinstance(c, mpl.contour.QuadContourSet)]
    boundary = lines[0].get_paths()[len(lines[0].levels) // 2].vertices
    scores = boundary @ estimator.coef_.T + estimator.intercept_
    top = np.sort(scores, axis=1)[:, -2:] if len(sizes) > 2 else scores
    assert np.abs(top[:, 0] - (top[:, 1] if len(sizes) > 2 else 0)).max() < 0.05
    wide = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match="X must have two features to be drawn in the plane"):
        DisplacementDisplay.from_estimator(clone(estimator).fit(wide, y), wide, y)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda X, y: AdversarialSVC(-1).fit(X, y), ValueError, "delta must be a finite number >= 0; got -1"),
        (lambda X, y: AdversarialSVC(lam=0).fit(X, y), ValueError, "lam must be a finite number > 0; got 0"),
        (lambda X, y: AdversarialSVC(solver="x").fit(X, y), ValueError, "solver must be one of .*; got 'x'"),
        (lambda X, y: TotalSVC(n_init=0).fit(X, y), ValueError, "n_init must be a whole number >= 1; got 0"),
        (lambda X, y: TotalSVC().fit(X, y, delta=[1.0]), ValueError, r"delta must have shape \(4,\).*got shape \(1,\)"),
        (lambda X, y: TotalSVC().fit(X, y, delta=-np.ones(4)), ValueError, "delta must not be negative; got -1"),
        (lambda X, y: TotalSVC().fit(X, y, delta=[np.nan] * 4), ValueError, "delta contains NaN"),
        (lambda X, y: AdversarialSVC().fit(X, y).displacements(X, y + 5), ValueError, r"classes \[0, 1\]"),
        (lambda X, y: AdversarialSVC().fit(1e200 * X, y), ValueError, "lam=1 overflows or underflows beside X"),
        (lambda X, y: AdversarialSVC().fit(1e-200 * X, y), ValueError, "lam=1 overflows or underflows beside X"),
    ],
)
def test_errors(make, error, message):
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    with pytest.raises(error, match=message):
        make(X, y)
