"""Faces of the quadratic programs of a noise that is a maximum."""

import numpy as np
import pytest

from gaussguru._problems.axis import Face


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
