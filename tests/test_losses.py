"""The pointwise functions against mpmath and generic minimisers, on every instruction set."""

import doctest
import json
import os
import re
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtri_exp
from support import oracles
from support.common import plain

import gaussguru.losses
from gaussguru import GuruClassifier
from gaussguru._native import _binding
from gaussguru.losses import LOSSES, Gaussian, Loss, Moment, Quadratic, check_loss, resolve_loss

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
slacks = npst.arrays(np.float64, st.integers(1, 40), elements=st.floats(-50, 50))


def grid():
    rng = np.random.default_rng(0)
    near = rng.standard_normal(500) * 10.0 ** rng.uniform(-12, 0, 500)
    return np.concatenate([np.linspace(-37, 37, 1481), rng.uniform(-37, 37, 1500), near, [0.0, -0.0]])


def exact_gaussian(x):
    return x * mpmath.ncdf(x) + mpmath.npdf(x), mpmath.ncdf(x), mpmath.npdf(x)


def exact_logistic(x):
    root = mpmath.sqrt(2 * mpmath.pi)
    power = mpmath.mpf(2) ** (root * x)
    p = power / (1 + power)
    return mpmath.log1p(power) / mpmath.log(2) / root, p, mpmath.log(2) * root * p / (1 + power)


def exact_quadratic(x):
    root = mpmath.sqrt(2 * mpmath.pi)
    u = root * x
    if abs(u) > 4:
        return max(x, mpmath.mpf(0)), mpmath.mpf(u > 0), mpmath.mpf(0)
    return (u + 4) ** 2 / 16 / root, (u + 4) / 8, root / 8


def exact_moment(x):
    root = mpmath.sqrt(1 + x * x)
    return (x + root) / 2, (1 + x / root) / 2, 1 / (2 * root**3)


EXACT = {
    "gaussian": exact_gaussian,
    "logistic": exact_logistic,
    "quadratic": exact_quadratic,
    "moment": exact_moment,
}
# f(0): that of the worst noise is larger than that of Gaussian noise, which the others have.
AT_ZERO = dict.fromkeys(EXACT, 1 / np.sqrt(2 * np.pi)) | {"moment": 0.5}


@every_loss
def test_terms_are_accurate_to_the_last_digits(loss):
    z, name = grid(), type(loss).__name__.lower()
    with mpmath.workdps(50):
        exact = [EXACT[name](x) for x in map(mpmath.mpf, z)]
        # Where the parabola begins, at u = -4, z itself is known to no more digits than this.
        slack = 4e-15 if name == "quadratic" else 0.0
        for got, truth in zip(loss.terms(z), zip(*exact, strict=True), strict=True):
            errors = [float(abs(mpmath.mpf(g) - t) - slack) for g, t in zip(got.tolist(), truth, strict=True)]
            assert all(error <= 2e-15 * float(abs(t)) for error, t in zip(errors, truth, strict=True))


@every_loss
@pytest.mark.parametrize("z", [500.0, 1e3, 1e9, 1e155, 1e300, np.inf])
def test_terms_far_out_are_those_of_the_hinge(loss, z):
    f, slope, curvature = loss.terms(np.array([-z, z]))
    # The tails of the moment loss fall off as 1/(4 |z|).
    tail = 1.001 / (4 * z) if isinstance(loss, Moment) else 0.0
    assert f.tolist() == [pytest.approx(0.0, abs=1e-300 + tail), pytest.approx(z, rel=1e-15, abs=tail)]
    assert slope.tolist() == pytest.approx([0.0, 1.0], rel=0, abs=1e-300 + tail / z)
    assert curvature.tolist() == pytest.approx([0.0, 0.0], rel=0, abs=1e-300 + 2 * tail / z / z)


def test_gaussian_is_linear_from_38_on():
    assert Gaussian().terms(np.array([-38.5, 38.5]))[0].tolist() == [pytest.approx(0.0, abs=1e-300), 38.5]


@every_loss
def test_every_loss_is_the_expected_hinge_at_the_margin(loss):
    """A sample on the margin costs the mean of the positive part of the noise."""
    half, at_zero = np.array([0.5]), AT_ZERO[type(loss).__name__.lower()]
    np.testing.assert_allclose(loss.value(np.zeros(1)), at_zero, rtol=1e-15)
    np.testing.assert_allclose(loss.conjugate(half), at_zero, rtol=1e-15)
    np.testing.assert_allclose(loss.slope_inverse(half), 0.0, atol=1e-16)


@every_loss
def test_nan_stays_nan(loss):
    z = np.array([0.0, np.nan, 1.0, -np.nan, 2.0, 3.0, 4.0, 5.0, np.nan])
    for term in loss.terms(z):
        np.testing.assert_array_equal(np.isnan(term), np.isnan(z))


@every_loss
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (0, 3)])
def test_shapes_are_kept(loss, shape):
    z = np.linspace(-3, 3, int(np.prod(shape))).reshape(shape)
    for term in loss.terms(z):
        assert term.shape == shape
    assert loss.value(z).shape == loss.slope(z).shape == loss.curvature(z).shape == shape


@every_loss
def test_terms_do_not_depend_on_other_entries(loss):
    z = np.random.default_rng(0).uniform(-40, 40, 67)
    for at_once, alone in zip(
        loss.terms(z), zip(*(loss.terms(z[i : i + 1]) for i in range(67)), strict=True), strict=True
    ):
        np.testing.assert_array_equal(at_once, np.concatenate(alone))
    for forward, strided in zip(loss.terms(z[::2].copy()), loss.terms(z[::2]), strict=True):
        np.testing.assert_array_equal(forward, strided)


@every_loss
@settings(deadline=None, derandomize=True, max_examples=50)
@given(z=slacks)
def test_framework_conditions(loss, z):
    z = np.sort(z)
    f, slope, curvature = loss.terms(z)
    assert np.all(f >= np.maximum(z, 0.0) * (1 - 1e-15))
    assert np.all((slope >= 0) & (slope <= 1))
    assert np.all(curvature >= 0)
    assert np.all(np.diff(f) >= -1e-14 * f[1:])
    assert np.all(np.diff(slope) >= -1e-14)
    assert np.all(f - z * slope >= -1e-14 * np.abs(f))


@every_loss
def test_derivatives(loss):
    z, h = np.linspace(-8, 8, 161), 1e-5
    (f_up, slope_up, _), (f_down, slope_down, _) = loss.terms(z + h), loss.terms(z - h)
    _, slope, curvature = loss.terms(z)
    np.testing.assert_allclose((f_up - f_down) / (2 * h), slope, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose((slope_up - slope_down) / (2 * h), curvature, rtol=1e-7, atol=1e-10)


@every_loss
def test_slope_inverse(loss):
    alpha = np.concatenate([np.logspace(-300, -1, 60), np.linspace(0.1, 0.999999, 50)])
    # Where alpha reaches 0 at a finite z, z has no digits for the least of them.
    atol = 0.0 if np.isinf(loss.slope_inverse(np.zeros(1))[0]) else 1e-15
    np.testing.assert_allclose(loss.slope(loss.slope_inverse(alpha)), alpha, rtol=1e-11, atol=atol)


@every_loss
def test_conjugate_is_the_least_of_f_minus_alpha_z(loss):
    # Where alpha reaches 0 at a finite z, the optimiser has no digits for the least of them.
    rtol = 1e-9 if np.isinf(loss.slope_inverse(np.zeros(1))[0]) else 5e-8
    for alpha in np.concatenate([np.logspace(-12, -1, 12), np.linspace(0.2, 0.99, 9)]):
        least = minimize_scalar(
            lambda t, alpha=alpha: plain(loss)(np.sinh(t))[0] - alpha * np.sinh(t),
            bounds=(-15, 15),
            method="bounded",
            options={"xatol": 1e-12},
        )
        np.testing.assert_allclose(loss.conjugate(np.array([alpha]))[0], least.fun, rtol=rtol)


@every_loss
def test_conjugate_vanishes_at_the_ends(loss):
    assert loss.conjugate(np.array([0.0, 1.0])).tolist() == [0.0, 0.0]


def exact_shrunk(loss, z, factor):
    """Return ``f*(factor f'(z))``, of the Gaussian loss without the rounding of a slope near 1."""
    if loss.code == Gaussian.code:
        return oracles.pdf(ndtri_exp(np.log(factor) + log_ndtr(z)))
    with mpmath.workdps(50):
        slopes = [mpmath.mpf(factor) * EXACT[type(loss).__name__.lower()](x)[1] for x in map(mpmath.mpf, z)]
        if isinstance(loss, Moment):
            return np.array([float(mpmath.sqrt(p * (1 - p))) for p in slopes])
        if isinstance(loss, Quadratic):
            return np.array([float(4 * p * (1 - p) / mpmath.sqrt(2 * mpmath.pi)) for p in slopes])
        bits = [p * mpmath.log(p) + (1 - p) * mpmath.log1p(-p) for p in slopes]
        return np.array([float(-x / mpmath.log(2) / mpmath.sqrt(2 * mpmath.pi)) for x in bits])


@every_loss
@pytest.mark.parametrize("factor", [1 - 1e-9, 0.999, 0.9, 0.5, 0.1, 1e-2, 1e-4])
def test_shrunk_conjugate_is_a_tight_lower_bound(loss, factor):
    z = np.concatenate([np.linspace(-36, 12, 481), np.random.default_rng(0).uniform(-36, 40, 200)])
    z = 1 - (1 - z)
    # One row at a time: with weight 1, label +1 and scale 1 the slack of a margin m is 1 - m.
    got = np.array(
        [_binding.shrunk_conjugate(0, 1, loss.code, np.ones(1), np.array([1 - x]), 1.0, 0.0, 1.0, factor) for x in z]
    )
    exact = exact_shrunk(loss, z, factor)
    assert np.all(got <= exact * (1 + 1e-11) + 1e-15 * (loss.code == Quadratic.code))
    assert np.all(got >= exact * (1 - 2e-6) - 1e-15 * (loss.code == Quadratic.code))


@every_loss
def test_shrunk_conjugate_sums_over_rows_and_weights(loss):
    rng = np.random.default_rng(1)
    margin, signed_weight = rng.uniform(-3, 3, 101), rng.uniform(0.1, 2, 101) * rng.choice([-1, 1], 101)
    z = (1 - np.sign(signed_weight) * (0.7 * margin + 0.2)) / 0.4
    exact = np.abs(signed_weight) @ exact_shrunk(loss, z, 0.8)
    got = _binding.shrunk_conjugate(0, 101, loss.code, signed_weight, margin, 0.7, 0.2, 0.4, 0.8)
    assert exact * (1 - 2e-6) <= got <= exact * (1 + 1e-12)


CHILD = """
import json
import numpy as np
import gaussguru.losses
from gaussguru import GuruClassifier
from gaussguru._native import _binding
from gaussguru.losses import LOSSES
rng = np.random.default_rng(0)
X, y = rng.standard_normal((101, 7)), np.arange(101) % 2
X[:, 0] += y
clf = GuruClassifier(sigma=0.5, tol=1e-12).fit(X, y)
terms = [term.tolist() for loss in LOSSES.values() for term in loss.terms(np.linspace(-37, 37, 203))]
print(json.dumps([_binding.INSTRUCTION_SET, terms, clf.coef_.tolist(), clf.objective_]))
"""


def run(kernels):
    environment = {**os.environ, "GAUSSGURU_KERNELS": kernels}
    return subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=False)


def test_instruction_sets_agree():
    child = run("baseline")
    assert child.returncode == 0, child.stderr
    name, terms, coef, least = json.loads(child.stdout)
    assert name == "baseline"
    ours = [term for loss in LOSSES.values() for term in loss.terms(np.linspace(-37, 37, 203))]
    for theirs, mine in zip(terms, ours, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=4e-15)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((101, 7)), np.arange(101) % 2
    X[:, 0] += y
    clf = GuruClassifier(sigma=0.5, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(clf.coef_, coef, rtol=1e-6)
    np.testing.assert_allclose(clf.objective_, least, rtol=1e-11)


def test_unknown_instruction_set_is_refused():
    child = run("nonsense")
    assert child.returncode != 0
    assert "ImportError" in child.stderr
    assert "GAUSSGURU_KERNELS='nonsense'" in child.stderr


class Parts(Loss):
    """A loss put together from functions; by default the parts of the logistic loss."""

    def __init__(self, **parts):
        self.parts = parts

    def terms(self, z):
        return self.parts.get("terms", LOSSES["logistic"].terms)(z)

    def slope_inverse(self, alpha):
        return self.parts.get("slope_inverse", LOSSES["logistic"].slope_inverse)(alpha)

    def conjugate(self, alpha):
        return self.parts.get("conjugate", LOSSES["logistic"].conjugate)(alpha)


def changed(f=1.0, slope=1.0, curvature=1.0):
    def terms(z):
        parts = LOSSES["logistic"].terms(z)
        return f * parts[0], slope * parts[1], curvature * parts[2]

    return terms


def tsvc(z):
    return np.maximum(0.0, z - 1), (z > 1) * 1.0, np.zeros_like(z)


def wave(z):
    """Convex but for a dent, with the right derivatives."""
    f, slope, curvature = LOSSES["gaussian"].terms(z)
    bump = np.exp(-0.5 * z * z)
    return f + 0.6 * bump, slope - 0.6 * z * bump, curvature + 0.6 * (z * z - 1) * bump


@every_loss
def test_check_loss_passes(loss):
    check_loss(loss)


WRONG = {
    "TSVC": (Parts(terms=tsvc), "f - z f' must not be negative"),
    "falling": (Parts(terms=changed(slope=-1.0)), "f must not decrease"),
    "concave": (Parts(terms=changed(curvature=-1.0)), "f must be convex: f'' >= 0"),
    "dented": (Parts(terms=wave), "f must be convex: f' must not decrease"),
    "steep": (Parts(terms=changed(2.0, 2.0, 2.0)), "f must be the hinge far out"),
    "slope": (Parts(terms=changed(slope=0.9)), "f' must be the derivative of f "),
    "curvature": (Parts(terms=changed(curvature=1.1)), "f'' must be the derivative of f' "),
    "inverse": (
        Parts(slope_inverse=LOSSES["gaussian"].slope_inverse),
        "slope_inverse must invert",
    ),
    "conjugate": (Parts(conjugate=lambda alpha: 4 * alpha * (1 - alpha)), "conjugate must be f - z f'"),
    "nan": (Parts(terms=lambda z: changed()(np.where(z > 5, np.nan, z))), "must be finite"),
}


@pytest.mark.parametrize(("loss", "message"), WRONG.values(), ids=WRONG)
def test_check_loss_says_which_condition_fails(loss, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_loss(loss)


def test_check_loss_bounds_the_jerk():
    loss = Parts()
    loss.jerk = 0.1
    with pytest.raises(ValueError, match="jerk must bound"):
        check_loss(loss)
    loss.jerk = LOSSES["logistic"].jerk
    check_loss(loss)


def test_the_custom_loss_of_the_documentation_passes():
    assert doctest.testmod(gaussguru.losses).attempted > 5
    assert doctest.testmod(gaussguru.losses).failed == 0


def test_resolve_loss():
    loss = Gaussian()
    assert resolve_loss(loss) is loss
    for name, known in LOSSES.items():
        assert resolve_loss(name) is known
