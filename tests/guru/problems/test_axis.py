"""Noise that is a maximum: the faces of its quadratic programs, and its dual points."""

import numpy as np
import pytest

from gaussguru import GuruClassifier
from gaussguru._guru.problems.axis import AxisBinary, Face
from gaussguru._rows.rows import Rows
from gaussguru.losses import Gaussian
from gaussguru.noise import resolve_noise


@pytest.fixture
def face():
    hessian = np.cov(np.random.default_rng(0).normal(size=(7, 20)))
    return hessian, Face(hessian, np.array([0.0, 1.0, 0.0, -1.0, 0.0]), 0.3)


def test_a_step_leaves_no_force_on_its_face(face):
    hessian, face = face
    force = np.arange(7.0)
    left = force + hessian @ face.step(force)
    np.testing.assert_allclose(left[[0, 2, 4, 6]], 0.0, atol=1e-10)
    np.testing.assert_allclose(left @ [0, 1, 0, -1, 0, 0.3, 0], 0.0, atol=1e-10)


def test_a_step_with_a_given_change_of_the_largest_leaves_no_force_on_the_rest(face):
    hessian, face = face
    force = np.arange(7.0)
    step = face.step(force, least=0.5)
    np.testing.assert_allclose(step[[1, 3, 5]], [0.5, -0.5, 0.15])
    np.testing.assert_allclose((force + hessian @ step)[[0, 2, 4, 6]], 0.0, atol=1e-10)


def test_a_step_with_the_best_change_of_the_largest_is_the_best(face):
    _, face = face
    force = np.arange(7.0)
    best = face.step(force)
    for least in (best[1] - 0.1, best[1], best[1] + 1e-12):
        np.testing.assert_allclose(face.step(force, least), best, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_slopes_that_some_rows_move_for_all_are_a_dual_point(seed):
    """More rows are drawn than half of them: a row that was drawn twice would move twice."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, 2)) + 5.0
    y = X @ [1.0, -0.5] + rng.standard_normal(150) > 2.5
    fit = GuruClassifier(0.3, noise="axis", fit_intercept=False, tol=1e-9).fit(X, y)
    noise = resolve_noise("axis", 0.3, 2)
    problem = AxisBinary(Rows(X, y), Gaussian(), noise, fit_intercept=False)
    local = problem.visit(problem.unknowns(fit.coef_[0] * [1.01, 0.99], 0.0))
    part = problem.subsample(120, rng)
    assert len(set(part.places)) == len(part.places) < 150
    value, alpha = local._moved_dual(part, np.inf)
    assert 0.5 * fit.objective_ < value <= fit.objective_ * (1 + 1e-9)
    # The bound is that of alpha, shrunk until it is feasible.
    assert value <= alpha.sum() * (1 + 1e-9)


def test_slopes_that_round_to_less_than_nothing_certify_nothing():
    """Classes far apart for little noise: updated sums of slopes of one label were negative, and their root failed."""
    rng = np.random.default_rng(278)
    n, d = int(rng.integers(50, 400)), int(rng.integers(2, 60))
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d)) * (rng.uniform(size=(n, d)) < rng.uniform(0.1, 1))
    X += y[:, np.newaxis] * rng.normal(size=d) * rng.uniform(0.1, 2)
    model = GuruClassifier(0.125 * X.std(), noise="axis", tol=1e-4).fit(X, y)
    finer = GuruClassifier(0.125 * X.std(), noise="axis", tol=1e-7).fit(X, y)
    assert model.converged_
    assert model.objective_ - model.dual_gap_ <= finer.objective_ <= model.objective_ + 1e-9 * n
