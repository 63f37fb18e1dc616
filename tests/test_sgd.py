"""The stochastic solver: where it ends, how it goes on, what it refuses."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from data import clouds

from gaussguru.losses import LOSSES, Gaussian
from gaussguru.multiclass import Multiclass
from gaussguru.noise import Isotropic
from gaussguru.objective import NotFiniteError, Objective
from gaussguru.rows import Rows
from gaussguru.solvers.joint import JointNewton
from gaussguru.solvers.newton import Newton
from gaussguru.solvers.sgd import SGD, JointState, State

HALF = Isotropic(0.5)
NEVER = -1.0  # no epoch raises F by all of F(0)


def binary(X, y, weight=1.0, *, loss=LOSSES["gaussian"], noise=HALF, **options):
    return Objective(Rows(X), np.ascontiguousarray(weight * y), loss, noise, **options)


def joint(X, labels, weight=None, *, loss=LOSSES["gaussian"], noise=HALF, **options):
    n_classes = int(labels.max()) + 1
    weights = np.ones(len(labels)) if weight is None else weight
    return Multiclass(Rows(X, width=n_classes), labels.astype(np.int32), weights, n_classes, loss, noise, **options)


def three_clouds(n=600, d=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n).astype(np.int32)
    return rng.standard_normal((n, d)) + 2 * np.eye(3, d)[labels], labels


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("options", [{}, {"l2": 20.0}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("average", [False, True])
def test_comes_close_to_the_optimum(form, options, average):
    X, y = clouds(300, 500, 4, 2.0)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(y))
    objective = binary(form(X), y, weight, **options)
    best = Newton().solve(objective).objective
    course = SGD(tol=NEVER, max_iter=60, average=average).solve(objective)
    assert course.objective == course.loss_curve[-1] == pytest.approx(best, rel=1e-3 if average else 1e-2)
    assert course.objective == objective.point(course.coef, course.intercept).value
    assert options.get("fit_intercept", True) or course.intercept == 0
    assert 0 <= course.objective - best <= course.gap + 1e-12 * best


@pytest.mark.parametrize("single", [False, True], ids=["all", "single"])
@pytest.mark.parametrize("l2", [0.0, 30.0])
def test_several_classes_come_close_to_the_optimum(single, l2):
    X, labels = three_clouds()
    weights = np.random.default_rng(1).uniform(0.5, 3.0, len(labels))
    objective = joint(X, labels, weights, l2=l2)
    course = SGD(tol=NEVER, max_iter=40, average=True, single=single).solve(objective)
    np.testing.assert_allclose(course.coef.sum(axis=0), 0, atol=1e-12)

    exact = JointNewton().solve(objective)
    best = exact.objective
    assert course.objective == pytest.approx(best, rel=2e-3)
    assert course.objective - best <= course.gap
    assert course.gap >= 0
    assert best < 0.6 * objective.weight


def test_two_classes_agree_with_the_binary_solver():
    X, y = clouds(200, 200, 3, 2.0)
    two = SGD(tol=1e-9, max_iter=5, eta0=0.25).solve(joint(X, (y > 0).astype(np.int32), l2=3.0))
    course = SGD(tol=1e-9, max_iter=5, eta0=0.5).solve(binary(X, y, l2=3.0))
    np.testing.assert_allclose(two.coef[1] - two.coef[0], course.coef, rtol=1e-9)
    np.testing.assert_allclose(two.loss_curve, course.loss_curve, rtol=1e-9)


def test_the_same_seed_gives_the_same_course():
    objective = binary(*clouds(100, 100, 3))
    first, again, other = (SGD(max_iter=3, seed=seed).solve(objective) for seed in (5, 5, 6))
    assert first.loss_curve == again.loss_curve != other.loss_curve


def test_the_rate_does_not_depend_on_the_unit_of_the_weights():
    X, y = clouds(100, 150, 3)
    one, thousand = (SGD(max_iter=4).solve(binary(X, y, unit, l2=0.1 * unit)) for unit in (1.0, 1024.0))
    assert one.eta0 == thousand.eta0
    np.testing.assert_allclose(one.coef, thousand.coef, rtol=1e-9)


def test_stops_when_the_descent_is_slow():
    objective = binary(*clouds(200, 200, 3))
    loose, tight = (SGD(tol=tol, max_iter=200).solve(objective) for tol in (1e-1, 1e-9))
    assert loose.converged
    assert loose.n_iter == len(loose.loss_curve) <= 4
    assert tight.n_iter > loose.n_iter
    assert not SGD(tol=1e-9, max_iter=1).solve(objective).converged


def test_a_rate_that_is_too_large_has_not_converged():
    course = SGD(eta0=1e12, max_iter=3).solve(binary(*clouds(100, 100, 3)))
    assert not course.converged
    assert course.objective > 200 or np.isnan(course.objective)


@pytest.mark.parametrize("average", [False, True])
def test_a_pickled_state_goes_on_where_it_was(average):
    objective = binary(*clouds(100, 100, 3))
    order = np.random.default_rng(0).integers(0, 200, 500)
    whole = State(3)
    if average:
        whole.restart_average()
    parts = pickle.loads(pickle.dumps(whole))
    whole.run(objective, order, 0.5)
    for part in np.split(order, [3, 200]):
        parts.run(objective, part, 0.5)
        parts = pickle.loads(pickle.dumps(parts))
    assert parts.steps == whole.steps == 500
    np.testing.assert_allclose(parts.coef, whole.coef, rtol=1e-11)
    assert parts.intercept == pytest.approx(whole.intercept, rel=1e-11)


def test_a_start_is_kept():
    objective = binary(*clouds(100, 100, 3))
    best = Newton().solve(objective)
    course = SGD(eta0=1e-6, max_iter=2).solve(objective, (best.coef, best.intercept))
    np.testing.assert_allclose(course.coef, best.coef, rtol=1e-3)
    start = np.arange(6.0).reshape(2, 3) - np.array([[1.5], [1.5]]), np.array([0.5, -0.5])
    state = JointState(3, 2, start)
    np.testing.assert_allclose(state.coef, start[0] - start[0].mean(axis=0))
    np.testing.assert_allclose(state.intercept, start[1])


def test_features_that_say_nothing():
    X = np.zeros((40, 2))
    y = np.where(np.arange(40) < 30, 1.0, -1.0)
    course = SGD(max_iter=20, average=True).solve(binary(X, y))
    assert not course.coef.any()
    assert course.objective == pytest.approx(20, rel=0.05)


def test_refuses_what_has_no_kernel():
    class Written(Gaussian):
        code = -1

    X, y = clouds(20, 20, 3)
    with pytest.raises(ValueError, match=r"'sgd'.*Written"):
        SGD().solve(binary(X, y, loss=Written()))
    with pytest.raises(ValueError, match=r"'sgd'.*isotropic"):
        SGD().solve(binary(X, y, noise=SimpleNamespace(sigma=1.0)))
    X[0, 0] = np.nan
    with pytest.raises(NotFiniteError):
        SGD().solve(binary(X, y))
