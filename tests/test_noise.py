"""Noise models: derivatives, duality, and the adversary they stand for."""

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.integrate import quad
from scipy.optimize import minimize

from gaussguru.noise import NOISES, resolve_noise

SIGMA = 0.7
every_noise = pytest.mark.parametrize("noise", [make(SIGMA) for make in NOISES.values()], ids=NOISES.keys())
vectors = npst.arrays(np.float64, 4, elements=st.floats(-10, 10)).filter(lambda v: np.linalg.norm(v) > 1e-3)
quick = settings(deadline=None, derandomize=True, max_examples=30)
W = np.array([0.3, -1.2, 0.5, 2.0])


def differences(function, w, h=1e-6):
    return np.array([(function(w + h * e) - function(w - h * e)) / (2 * h) for e in np.eye(len(w))])


@every_noise
@quick
@given(w=vectors, factor=st.floats(1e-6, 1e6))
def test_positively_homogeneous(noise, w, factor):
    np.testing.assert_allclose(noise.scale(factor * w), factor * noise.scale(w), rtol=1e-12)
    np.testing.assert_allclose(noise.gradient(factor * w), noise.gradient(w), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(noise.scaled(factor).scale(w), factor * noise.scale(w), rtol=1e-12)
    np.testing.assert_allclose(noise.gradient(w) @ w, noise.scale(w), rtol=1e-12)


@every_noise
@quick
@given(v=vectors, w=vectors)
def test_convex(noise, v, w):
    assert noise.scale((v + w) / 2) <= (noise.scale(v) + noise.scale(w)) / 2 * (1 + 1e-12)


@every_noise
def test_derivatives(noise):
    np.testing.assert_allclose(noise.gradient(W), differences(noise.scale, W), rtol=1e-7)
    hessian = differences(noise.gradient, W)
    out = np.eye(4)
    noise.add_hessian(W, 3.0, out)
    np.testing.assert_allclose(out, np.eye(4) + 3.0 * hessian, rtol=1e-7, atol=1e-8)
    p = np.array([1.0, 2.0, -1.0, 0.5])
    np.testing.assert_allclose(noise.hessian_product(W, p), hessian @ p, rtol=1e-7, atol=1e-8)


@every_noise
@quick
@given(w=vectors, v=vectors)
def test_polar_bounds_the_product(noise, w, v):
    assert w @ v <= noise.scale(w) * noise.polar(v) * (1 + 1e-12) + 1e-12
    np.testing.assert_allclose(noise.polar(noise.gradient(w)), 1.0, rtol=1e-12)


@every_noise
def test_polar_is_attained(noise):
    constraint = {"type": "ineq", "fun": lambda w: 1 - noise.scale(w)}
    best = minimize(lambda w: -w @ W, 0.1 * W, constraints=constraint, method="SLSQP", options={"ftol": 1e-12})
    np.testing.assert_allclose(noise.polar(W), -best.fun, rtol=1e-6)


@every_noise
@pytest.mark.parametrize("level", [0.0, 0.5, 2.0, 100.0])
def test_excess_is_the_distance(noise, level):
    constraint = {"type": "ineq", "fun": lambda u: level - noise.polar(u)}
    start = W * min(1.0, 0.5 * level / noise.polar(W)) + 1e-9
    nearest = minimize(lambda u: (u - W) @ (u - W), start, constraints=constraint, options={"ftol": 1e-14})
    np.testing.assert_allclose(noise.excess(W, level), np.sqrt(nearest.fun), rtol=1e-5, atol=1e-6)


@every_noise
def test_worst_covariance_is_allowed_and_attains_the_scale(noise):
    C = noise.worst_covariance(W)
    np.testing.assert_allclose(np.trace(C), SIGMA**2, rtol=1e-12)
    np.testing.assert_allclose(W @ C @ W, noise.scale(W) ** 2, rtol=1e-12)
    np.testing.assert_allclose(C, C.T, atol=1e-15)
    assert np.linalg.eigvalsh(C).min() >= -1e-12


@every_noise
@pytest.mark.parametrize("slack", [-2.0, 0.0, 1.5])
def test_expected_hinge_by_sampling(noise, slack):
    rng = np.random.default_rng(0)
    noisy = slack - rng.multivariate_normal(np.zeros(4), noise.worst_covariance(W), size=200_000, method="eigh") @ W
    hinges = np.maximum(noisy, 0.0)
    a = noise.scale(W)
    error = hinges.std() / np.sqrt(len(hinges))
    assert abs(hinges.mean() - a * oracles.loss(slack / a)) <= 5 * error


@every_noise
@pytest.mark.parametrize("seed", range(10))
def test_no_covariance_of_the_same_trace_is_worse(noise, seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((4, 4)) * rng.exponential(size=4)
    C = root @ root.T
    C *= SIGMA**2 / np.trace(C)
    slack, deviation, a = rng.standard_normal(), np.sqrt(W @ C @ W), noise.scale(W)
    edge = np.clip(-slack / deviation, -12, 12)
    expected, _ = quad(lambda t: (slack + deviation * t) * oracles.pdf(t), edge, 13)
    assert expected <= a * oracles.loss(slack / a) + 1e-9


@pytest.mark.parametrize("name", sorted(NOISES))
def test_resolve_noise(name):
    assert resolve_noise(name, 2.0) == NOISES[name](2.0)
