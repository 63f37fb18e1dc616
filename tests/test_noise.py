"""Noise models: derivatives, duality, and the adversary they stand for."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.integrate import quad
from scipy.optimize import minimize
from support import oracles

from gaussguru.noise import NOISES, PerFeature, SingularCovariance, resolve_noise

SIGMA = 0.7
DEVIATIONS = np.array([0.5, 2.0, 1.0, 0.1])
ROOT = np.array([[1.0, 0, 0, 0], [0.5, 2.0, 0, 0], [-0.3, 0.1, 0.4, 0], [0.2, 0, 0.7, 0.9]])
MODELS = {
    **{name: make(SIGMA) for name, make in NOISES.items()},
    "deviations": resolve_noise(DEVIATIONS, SIGMA, 4),
    "covariance": resolve_noise(ROOT @ ROOT.T, SIGMA, 4),
}
every_noise = pytest.mark.parametrize("noise", MODELS.values(), ids=MODELS.keys())
vectors = npst.arrays(np.float64, 4, elements=st.floats(-10, 10)).filter(lambda v: np.linalg.norm(v) > 1e-3)
quick = settings(deadline=None, derandomize=True, max_examples=30)
W = np.array([0.3, -1.2, 0.5, 2.0])


def differences(function, w, h=1e-6):
    return np.array([(function(w + h * e) - function(w - h * e)) / (2 * h) for e in np.eye(len(w))])


@every_noise
@quick
@given(w=vectors, factor=st.floats(1e-6, 1e6))
def test_scale_is_positively_homogeneous(noise, w, factor):
    np.testing.assert_allclose(noise.scale(factor * w), factor * noise.scale(w), rtol=1e-12)
    np.testing.assert_allclose(noise.gradient(factor * w), noise.gradient(w), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(noise.scaled(factor).scale(w), factor * noise.scale(w), rtol=1e-12)
    np.testing.assert_allclose(noise.gradient(w) @ w, noise.scale(w), rtol=1e-12)


@every_noise
@quick
@given(v=vectors, w=vectors)
def test_scale_is_convex(noise, v, w):
    assert noise.scale((v + w) / 2) <= (noise.scale(v) + noise.scale(w)) / 2 * (1 + 1e-12)


@every_noise
def test_derivatives_are_differences(noise):
    np.testing.assert_allclose(noise.gradient(W), differences(noise.scale, W), rtol=1e-7)
    metric = differences(lambda w: noise.scale(w) * noise.gradient(w), W)  # that of half the square
    out = np.eye(4)
    noise.add_metric(3.0, out, at=W)
    np.testing.assert_allclose(out, np.eye(4) + 3.0 * metric, rtol=1e-7, atol=1e-8)
    noise.add_metric(2.0, out, 5.0, W)
    np.testing.assert_allclose(out, np.eye(4) + (3.0 + 2.0 * 25.0) * metric, rtol=1e-7, atol=1e-8)
    p = np.array([1.0, 2.0, -1.0, 0.5])
    np.testing.assert_allclose(noise.metric(p, at=W), metric @ p, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(noise.metric(p, 5.0, W), 25.0 * metric @ p, rtol=1e-7, atol=1e-7)
    if noise.smooth:  # where a square underflows and another one overflows
        tiny = noise.scaled(1e-170)
        np.testing.assert_allclose(tiny.metric(p, 1e170, W), noise.metric(p, at=W), rtol=1e-10)


@every_noise
@quick
@given(w=vectors, v=vectors)
def test_polar_bounds_the_product(noise, w, v):
    assert w @ v <= noise.scale(w) * noise.polar(v) * (1 + 1e-12) + 1e-12
    np.testing.assert_allclose(noise.polar(noise.gradient(w)), 1.0, rtol=1e-12)


@every_noise
def test_polar_is_attained(noise):
    # Where the scale has kinks, it is the largest of those of the features: as many smooth constraints.
    parts = [noise.scale] if noise.smooth else [lambda w, e=e: noise.scale(w * e) ** 2 for e in np.eye(4)]
    constraints = [{"type": "ineq", "fun": lambda w, part=part: 1 - part(w)} for part in parts]
    best = minimize(lambda w: -w @ W, 0.1 * W, constraints=constraints, method="SLSQP", options={"ftol": 1e-12})
    np.testing.assert_allclose(noise.polar(W), -best.fun, rtol=1e-6)


@every_noise
@pytest.mark.parametrize("level", [0.0, 1e-25, 0.5, 2.0, 100.0])
def test_excess_is_the_distance(noise, level):
    constraint = {"type": "ineq", "fun": lambda u: level - noise.polar(u)}
    start = W * min(1.0, 0.5 * level / noise.polar(W)) + 1e-9
    nearest = minimize(lambda u: (u - W) @ (u - W), start, constraints=constraint, options={"ftol": 1e-14})
    expected = np.sqrt(nearest.fun) if level > 1e-9 else np.linalg.norm(W)  # of 0 alone, where no optimiser is needed
    np.testing.assert_allclose(noise.excess(W, level), expected, rtol=1e-5, atol=1e-6)


@every_noise
def test_worst_covariance_is_allowed_and_attains_the_scale(noise):
    C = noise.worst_covariance(W)
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


@pytest.mark.parametrize("name", sorted(NOISES))
@pytest.mark.parametrize("seed", range(10))
def test_no_covariance_of_the_same_trace_is_worse(name, seed):
    noise, rng = MODELS[name], np.random.default_rng(seed)
    root = rng.standard_normal((4, 4)) * rng.exponential(size=4)
    C = root @ root.T if name == "isotropic" else np.diag(rng.exponential(size=4))
    C *= SIGMA**2 / np.trace(C)
    np.testing.assert_allclose(np.trace(noise.worst_covariance(W)), SIGMA**2, rtol=1e-12)
    slack, deviation, a = rng.standard_normal(), np.sqrt(W @ C @ W), noise.scale(W)
    edge = np.clip(-slack / deviation, -12, 12)
    expected, _ = quad(lambda t: (slack + deviation * t) * oracles.pdf(t), edge, 13)
    assert expected <= a * oracles.loss(slack / a) + 1e-9


@pytest.mark.parametrize("name", sorted(NOISES))
def test_resolve_noise_finds_every_name(name):
    assert resolve_noise(name, 2.0, 3) == NOISES[name](2.0)


def test_known_noise_is_multiplied_by_sigma():
    np.testing.assert_allclose(MODELS["deviations"].scale(W), SIGMA * np.sqrt(np.sum((DEVIATIONS * W) ** 2)))
    np.testing.assert_allclose(MODELS["covariance"].scale(W), SIGMA * np.sqrt(W @ ROOT @ ROOT.T @ W))
    np.testing.assert_allclose(MODELS["covariance"].worst_covariance(W), SIGMA**2 * ROOT @ ROOT.T)
    diagonal = resolve_noise(np.diag(DEVIATIONS**2), SIGMA, 4)
    V = np.array([1.0, -2.0, 0.3, 4.0])
    for name in ("scale", "polar", "polar_within"):
        np.testing.assert_allclose(getattr(diagonal, name)(abs(V)), getattr(MODELS["deviations"], name)(abs(V)))


@every_noise
@quick
@given(v=vectors, signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=4, max_size=4))
def test_polar_within_bounds_the_effect_of_rounding(noise, v, signs):
    assert noise.polar(np.array(signs) * v) <= noise.polar_within(np.abs(v)) * (1 + 1e-12)


@every_noise
@quick
@given(v=vectors, w=vectors)
def test_steepest_attains_the_polar(noise, v, w):
    best = noise.steepest(v)
    np.testing.assert_allclose(best @ v / noise.scale(best), noise.polar(v), rtol=1e-9)
    assert w @ v / noise.scale(w) <= best @ v / noise.scale(best) * (1 + 1e-9)


@every_noise
@quick
@given(w=vectors, p=vectors)
def test_gradient_and_secant_bound_the_directional_derivative(noise, w, p):
    h = 1e-7
    along = (noise.scale(w + h * p) - noise.scale(w)) / h
    assert noise.gradient(w) @ p - 1e-4 <= along <= noise.scale(w + p) - noise.scale(w) + 1e-4
    if noise.smooth:
        assert along <= noise.gradient(w) @ p + 1e-4


@pytest.mark.parametrize("radii", [np.array([2.0, 1e-3, 0.5, 1e-9]), np.full(4, 0.3)])
def test_distance_to_a_thin_ellipsoid(radii):
    noise = PerFeature(1.0, radii)
    # Projected gradient in the coordinates of the ball, where projecting is easy.
    y, step = np.zeros(4), 0.9 / radii.max() ** 2
    for _ in range(20_000):
        y = y - step * radii * (radii * y - W)
        y /= max(1.0, np.linalg.norm(y))
    np.testing.assert_allclose(noise.excess(W, 1.0), np.linalg.norm(W - radii * y), rtol=1e-7)


@every_noise
@pytest.mark.parametrize("w", [W, np.zeros(4), np.array([1.0, -1.0, 0.3, 1.0])], ids=["any", "zero", "tied"])
def test_samples_have_the_worst_covariance(noise, w):
    draws = noise.sample(w, (3, 40_000), np.random.default_rng(0))
    assert draws.shape == (3, 40_000, 4)
    C = noise.worst_covariance(w)
    found = np.cov(draws.reshape(-1, 4).T, bias=True)
    np.testing.assert_allclose(found, C, atol=0.02 * np.trace(C))
    np.testing.assert_allclose(w @ C @ w, noise.scale(w) ** 2, rtol=1e-12)


BAD = {
    "short": (np.ones(3), r"noise must be one of .*4 standard deviations.*\(4, 4\).*shape \(3,\)"),
    "not-square": (np.ones((4, 3)), r"shape \(4, 3\)"),
    "negative": ([1.0, 2.0, -0.5, 1.0], "nonnegative standard deviations; got -0.5 for feature 2"),
    "nan": ([1.0, np.nan, 1.0, 1.0], "finite.*nan at feature 1"),
    "infinite": (np.diag([1.0, 1.0, np.inf, 1.0]), r"finite.*inf at \[2, 2\]"),
    "zeros": (np.zeros(4), "only zeros"),
    "no-covariance": (np.zeros((4, 4)), "only zeros"),
    "strings": (["a", "b", "c", "d"], "noise must be one of"),
    "asymmetric": (np.eye(4) + np.eye(4, k=1) * 0.2, r"symmetric.*0.2 at \[0, 1\] and 0 at \[1, 0\]"),
    "indefinite": (np.eye(4) + 1.5 * (np.eye(4, k=1) + np.eye(4, k=-1)), "positive semi-definite.*eigenvalue -"),
    "negative-variance": (np.diag([1.0, -2.0, 1.0, 1.0]), "no variance below 0; got -2 for feature 1"),
    "number": (1.0, "noise must be one of"),
    "name": ("loud", r"\['axis', 'isotropic'\].*'loud'"),
    "ragged": ([[1.0], [1.0, 2.0]], "noise must be one of"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD.keys())
def test_bad_noise_is_explained(given, message):
    with pytest.raises(ValueError, match=message):
        resolve_noise(given, 1.0, 4)


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e3, 1e6])
def test_distance_to_an_ellipsoid_of_low_rank(sigma):
    """The traces of noise across R are far below the rounding of the covariance: compared with 60 digits."""
    rng = np.random.default_rng(3)
    R, floors, v, level = rng.standard_normal((5, 2)), rng.uniform(0.5, 2, 5) * 1e-9, rng.standard_normal(5), 1.3
    with mpmath.workdps(60):
        root = mpmath.matrix(R.tolist())
        covariance = mpmath.mpf(sigma) ** 2 * (root * root.T) + mpmath.diag(
            [mpmath.mpf(f) ** 2 for f in floors.tolist()]
        )
        variances, axes = mpmath.eigsy(covariance)
        along = axes.T * mpmath.matrix(v.tolist())
        squares = [level**2 * variance for variance in variances]

        def outside(t):
            return sum(r * y * y / (r + t) ** 2 for r, y in zip(squares, along, strict=True)) - 1

        # The nearest point has the coordinates r y / (r + t): t by bisection.
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while outside(high) > 0:
            high *= 4
        for _ in range(300):
            middle = (low + high) / 2
            low, high = (middle, high) if outside(middle) > 0 else (low, middle)
        distance = float(mpmath.sqrt(sum((high * y / (r + high)) ** 2 for r, y in zip(squares, along, strict=True))))
    found = SingularCovariance(sigma, R, floors).excess(v, level)
    assert distance * (1 - 1e-12) <= found <= distance * (1 + 1e-6)
