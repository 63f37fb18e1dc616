"""The compiled stochastic gradient steps against plain loops."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import ndtr
from support import oracles

from gaussguru._native import _binding
from gaussguru.losses import LOSSES

FORMS = {
    "dense": lambda X: X,
    "csr": sp.csr_array,
    "float32": lambda X: X.astype(np.float32),
    "csr-float32": lambda X: sp.csr_array(X.astype(np.float32)),
    "csr-int64": lambda X: wide_indices(sp.csr_array(X)),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
options = pytest.mark.parametrize(
    ("sigma", "l2", "fit_intercept"), [(0.3, 0.0, True), (1.0, 0.05, True), (2.0, 0.0, False), (0.05, 0.3, False)]
)
summed = pytest.mark.parametrize("average", [False, True], ids=["last", "average"])


def wide_indices(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def pair_slopes(slack, length, sigma, loss):
    """Return f' and sigma (f - z f') / length of a slack, or their limits."""
    if length == 0:
        return float(slack > 0), 0.0
    z = slack / (sigma * length)
    if loss == "gaussian":
        return ndtr(z), sigma * np.exp(-0.5 * min(abs(z), 40.0) ** 2) / np.sqrt(2 * np.pi) / length
    z = np.clip(z, -400.0, 400.0)
    f, slope, _ = oracles.TERMS[loss](z)
    return float(slope), sigma * float(f - z * slope) / length


class Sample:
    """Rows with exact float32 values, some of them zero, and draws from them."""

    def __init__(self, n=200, d=7, n_classes=2, steps=3000, seed=0, loss="gaussian"):
        self.loss, self.code = loss, LOSSES[loss].code
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, d)).astype(np.float32).astype(np.float64)
        self.X = X * (rng.random((n, d)) < 0.6)
        scores = self.X @ rng.standard_normal((d, n_classes)) + rng.standard_normal((n, n_classes))
        self.label = np.argmax(scores, axis=1).astype(np.int32)
        self.n_classes = n_classes
        self.weight = rng.uniform(0.2, 2.0, n)
        self.signed_weight = np.where(self.label == 1, self.weight, -self.weight)
        self.order = rng.integers(0, n, steps)
        self.moved = rng.integers(0, n_classes, steps).astype(np.int32)

    def binary(self, form, sigma, l2, fit_intercept, eta0=0.5, average=False, cuts=()):
        X, d = form(self.X), self.X.shape[1]
        w, b, totals = np.zeros(d), np.zeros(1), (np.zeros(d), np.zeros(1)) if average else (None, None)
        view, done = _binding.MatrixView(X), 0
        for order in np.split(self.order, cuts):
            _binding.sgd_pass(
                view,
                order,
                self.signed_weight,
                self.code,
                sigma,
                l2,
                eta0,
                done,
                fit_intercept,
                w,
                b,
                *totals,
            )
            done += len(order)
        return (w, b[0]) if not average else (totals[0] / done, totals[1][0] / done)

    def binary_by_hand(self, sigma, l2, fit_intercept, eta0=0.5):
        w, b, places = np.zeros(self.X.shape[1]), 0.0, []
        for t, i in enumerate(self.order, start=1):
            x, s, y = self.X[i], self.weight[i], np.sign(self.signed_weight[i])
            eta = eta0 / np.sqrt(t)
            alpha, kappa = pair_slopes(1 - y * (w @ x + b), np.linalg.norm(w), sigma, self.loss)
            w = max(0.0, 1 - eta * (s * kappa + l2)) * w + eta * s * y * alpha * x
            b += eta * s * y * alpha * fit_intercept
            places.append(np.append(w, b))
        return np.array(places)

    def joint(self, form, sigma, l2, fit_intercept, eta0=0.5, average=False, single=False, cuts=()):
        width, d = _binding.joint_width(self.n_classes), self.X.shape[1]
        V, b = np.zeros((d, width)), np.zeros(width)
        totals = (np.zeros((d, width)), np.zeros(width)) if average else (None, None)
        view, done = _binding.MatrixView(form(self.X)), 0
        for order, moved in zip(np.split(self.order, cuts), np.split(self.moved, cuts), strict=True):
            _binding.sgd_joint_pass(
                view, order, self.label, self.weight, self.n_classes, self.code, sigma, l2, eta0, done,
                fit_intercept, V, b, *totals, moved if single else None,
            )  # fmt: skip
            done += len(order)
        V, b = (V, b) if not average else (totals[0] / done, totals[1] / done)
        assert not V[:, self.n_classes :].any()
        assert not b[self.n_classes :].any()
        return V[:, : self.n_classes].T, b[: self.n_classes]

    def joint_by_hand(self, sigma, l2, fit_intercept, eta0=0.5, single=False):
        C, W, b, places = self.n_classes, np.zeros((self.n_classes, self.X.shape[1])), np.zeros(self.n_classes), []
        for t, (i, r) in enumerate(zip(self.order, self.moved, strict=True), start=1):
            x, y, eta = self.X[i], self.label[i], eta0 / np.sqrt(t) * (C if single else 1)
            alpha, kappa = np.zeros(C), np.zeros(C)
            for k in set(range(C)) - {y}:
                slack = 1 - (W[y] - W[k]) @ x - (b[y] - b[k])
                alpha[k], kappa[k] = pair_slopes(slack, np.linalg.norm(W[y] - W[k]), sigma, self.loss)
            alpha, kappa = eta * self.weight[i] * alpha, eta * self.weight[i] * kappa
            keep = max(0.0, 1 - eta * l2 * C)
            pull = kappa.sum() + kappa.max() if not single else kappa.sum() if r == y else kappa[r]
            if pull > keep:
                kappa *= keep / pull
            step = kappa[:, None] * (W[y] - W) - alpha[:, None] * x
            step[y] = -step.sum(axis=0)
            step -= (1 - keep) * W
            step_b = -alpha
            step_b[y] = alpha.sum()
            movable = (np.arange(C) == r) if single else np.ones(C, dtype=bool)
            W = W + step * movable[:, None]
            b = b + step_b * movable * fit_intercept
            places.append(np.column_stack([W, b]))
        return np.array(places)


def assert_near(actual, expected, tolerance=1e-10):
    actual, expected = np.asarray(actual), np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@every_form
@options
@summed
def test_binary_steps_match_the_loop(form, sigma, l2, fit_intercept, average):
    sample = Sample()
    places = sample.binary_by_hand(sigma, l2, fit_intercept)
    expected = places.mean(axis=0) if average else places[-1]
    assert_near(np.append(*sample.binary(form, sigma, l2, fit_intercept, average=average)), expected)


@summed
@pytest.mark.parametrize("eta0", [0.01, 30.0, 3000.0])
@pytest.mark.parametrize("sigma", [0.1, 5.0])
def test_binary_steps_of_any_length_match_the_loop(average, eta0, sigma):
    # The longest ones reset w, as gamma is cut off at 0.
    sample = Sample(steps=1000)
    places = sample.binary_by_hand(sigma, 0.01, True, eta0)
    expected = places.mean(axis=0) if average else places[-1]
    assert_near(np.append(*sample.binary(sp.csr_array, sigma, 0.01, True, eta0, average)), expected, 1e-9)


@every_form
@options
@summed
@pytest.mark.parametrize("single", [False, True], ids=["all", "single"])
def test_joint_steps_match_the_loop(form, sigma, l2, fit_intercept, average, single):
    sample = Sample(n_classes=5, steps=1500)
    places = sample.joint_by_hand(sigma, l2, fit_intercept, single=single)
    expected = places.mean(axis=0) if average else places[-1]
    W, b = sample.joint(form, sigma, l2, fit_intercept, average=average, single=single)
    assert_near(np.column_stack([W, b]), expected)
    if not single:
        assert np.abs(W.sum(axis=0)).max() < 1e-10 * np.abs(W).max()


@summed
@pytest.mark.parametrize("eta0", [0.01, 30.0, 3000.0])
@pytest.mark.parametrize("single", [False, True], ids=["all", "single"])
@pytest.mark.parametrize("n_classes", [3, 4, 9])
def test_joint_steps_of_any_length_match_the_loop(average, eta0, single, n_classes):
    sample = Sample(n_classes=n_classes, steps=600)
    places = sample.joint_by_hand(1.0, 0.01, True, eta0, single)
    expected = places.mean(axis=0) if average else places[-1]
    W, b = sample.joint(sp.csr_array, 1.0, 0.01, True, eta0, average, single)
    assert_near(np.column_stack([W, b]), expected, 1e-8)


@summed
@options
def test_two_classes_are_the_binary_problem_with_twice_the_step(average, sigma, l2, fit_intercept):
    sample = Sample()
    W, b = sample.joint(sp.csr_array, sigma, l2, fit_intercept, eta0=0.25, average=average)
    assert_near(
        np.append(W[1] - W[0], b[1] - b[0]),
        np.append(*sample.binary(sp.csr_array, sigma, l2, fit_intercept, eta0=0.5, average=average)),
    )


@summed
@pytest.mark.parametrize("form", [FORMS["dense"], FORMS["csr"]], ids=["dense", "csr"])
def test_several_calls_equal_one(form, average):
    sample = Sample(n_classes=4, steps=2000)
    cuts = [0, 1, 700, 700, 1234]
    for one, many in (
        (sample.binary(form, 0.5, 0.1, True, average=average), sample.binary(form, 0.5, 0.1, True, 0.5, average, cuts)),
        (
            sample.joint(form, 0.5, 0.1, True, average=average, single=True),
            sample.joint(form, 0.5, 0.1, True, average=average, single=True, cuts=cuts),
        ),
    ):
        for a, b in zip(one, many, strict=True):
            assert_near(a, b, 1e-11)


@pytest.mark.parametrize("l2", [0.0, 0.2])
@pytest.mark.parametrize("eta0", [0.5, 100.0])
def test_norm_does_not_drift(l2, eta0):
    sample = Sample(n=50, d=3, steps=10_000_000)
    w, b, view = np.zeros(3), np.zeros(1), _binding.MatrixView(sample.X)
    kept = _binding.sgd_pass(view, sample.order, sample.signed_weight, sample.code, 0.5, l2, eta0, 0, True, w, b)
    assert kept == pytest.approx(w @ w, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@options
def test_steps_of_every_loss_match_the_loop(loss, sigma, l2, fit_intercept):
    binary, joint = Sample(steps=500, loss=loss), Sample(n_classes=4, steps=200, loss=loss)
    places = binary.binary_by_hand(sigma, l2, fit_intercept)
    assert_near(np.append(*binary.binary(FORMS["csr"], sigma, l2, fit_intercept)), places[-1])
    places = joint.joint_by_hand(sigma, l2, fit_intercept)
    assert_near(np.column_stack(joint.joint(FORMS["dense"], sigma, l2, fit_intercept)), places[-1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_not_finite_make_the_intercept_nan(form, fit_intercept, value):
    for n_classes in (2, 4):
        sample = Sample(n_classes=n_classes)
        sample.X[sample.order[-1], 0] = value  # in the last step, where a margin of the right sign moves nothing
        descend = sample.binary if n_classes == 2 else sample.joint
        assert np.isnan(descend(FORMS[form], 0.5, 0.0, fit_intercept)[1]).all()
