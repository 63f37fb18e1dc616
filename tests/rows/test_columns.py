"""Columns of few rows, and coordinate descent on them."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from support.common import Written, every_form, every_loss

from gaussguru import GuruClassifier
from gaussguru._guru.problems.axis import AxisBinary
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.solvers.line_search import falls, lowest
from gaussguru._rows.rows import FEW, FEW_ROWS, Rows
from gaussguru.losses import LOSSES
from gaussguru.noise import Axis, Isotropic


def rarely(n, shares, seed=0):
    """Return X with exact float32 values of which a column has so many rows, y and weights."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(1.0, 1.0, (n, len(shares))), 2).astype(np.float32).astype(np.float64)
    X *= rng.random((n, len(shares))) < shares
    return X, np.where(rng.random(n) < 0.4, 1.0, -1.0), rng.uniform(0.2, 2.0, n)


def columns(X):
    return Rows(X, np.zeros(X.shape[0], dtype=bool))


def make(X, y, weight, *, loss=LOSSES["gaussian"], l2=0.0):
    return AxisBinary(Rows(X, y > 0, weight), loss, Axis(0.4), l2)


@every_form
def test_rare_columns(form):
    X, _, _ = rarely(1000, np.array([0.5, 0.003, 0.0, 0.01, 0.001, 1.0]))
    rare = columns(form(X)).rare_columns
    counts = np.count_nonzero(X, axis=0)
    np.testing.assert_array_equal(rare.place, np.flatnonzero((counts > 0) & (counts <= FEW * 1000)))
    assert len(rare.place) >= 2
    for k, j in enumerate(rare.place):
        entries = slice(rare.start[k], rare.start[k + 1])
        np.testing.assert_array_equal(rare.row[entries], np.flatnonzero(X[:, j]))
        np.testing.assert_array_equal(rare.value[entries], X[X[:, j] != 0, j])
    assert rare.start[-1] == len(rare.row) == len(rare.value)


@every_form
def test_rare_columns_are_a_small_part_of_all(form):
    X, _, _ = rarely(4000, np.full(200, 0.01))
    rows = columns(form(X))
    assert 0 < len(rows.rare_columns.value) <= FEW * rows.n_values
    assert np.count_nonzero(X, axis=0).max() <= FEW_ROWS
    assert not len(columns(form(np.ones((300, 4)))).rare_columns.place)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@every_form
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_a_sweep_ends_where_no_coefficient_can_do_better(form, loss, l2):
    X, y, weight = rarely(1500, np.array([1.0, 0.8, 0.01, 0.004, 0.008, 0.002, 0.001]))
    problem = make(form(X), y, weight, loss=loss, l2=l2)
    assert problem.can_sweep
    assert not problem.is_fused
    w = np.array([0.7, -0.2, 0.7, -0.1, 0.0, 0.3, -0.7])
    before = problem.point(np.append(w, 0.1))
    after = problem.swept(before)
    rare = problem.rows.rare_columns.place
    others = np.setdiff1d(np.arange(7), rare)
    np.testing.assert_array_equal(after.w[others], w[others])
    np.testing.assert_allclose(problem.rows.gather(after.margin), X @ after.w, rtol=1e-12, atol=1e-13)
    assert np.abs(after.w).max() == 0.7
    assert after.value < before.value
    for j in rare:

        def along(x, j=j):
            return problem.point(np.append(np.where(np.arange(7) == j, x, after.w), 0.1)).value

        best = minimize_scalar(along, bounds=(-0.7, 0.7), method="bounded", options={"xatol": 1e-10}).fun
        assert after.value <= min(best, along(-0.7), along(0.7)) + 1e-3 * (before.value - after.value)


def test_flat_columns_stay_where_they_are():
    """A row that is far beyond its margin says nothing about the column that is its own."""
    X, y, weight = rarely(500, np.array([1.0, 0.5]))
    X = np.column_stack([1e4 * np.eye(500)[0], X])
    w = np.array([0.3 * y[0], 0.1, 0.4])
    problem = make(X, y, weight)
    np.testing.assert_array_equal(problem.rows.rare_columns.place, [0])
    np.testing.assert_array_equal(problem.swept(problem.point(np.append(w, 0.0))).w, w)


def test_problems_without_coordinate_sweeps():
    X, y, weight = rarely(1000, np.array([1.0, 0.004]))
    x = np.array([0.3, 0.2, 0.1])
    assert make(X, y, weight).can_sweep
    others = make(X[:, :1].copy(), y, weight), make(X, y, weight, loss=Written())
    for problem in others:
        point = problem.point(x[-problem.rows.n_columns - 1 :])
        assert not problem.can_sweep
        assert problem.is_fused
        assert problem.swept(point) is point
    smooth = Binary(Rows(X, y > 0, weight), LOSSES["gaussian"], Isotropic(0.4))
    # Only length and intercept change.
    turned = smooth.rescaled(smooth.point(x), 1e-6)
    np.testing.assert_array_equal(turned.w, x[:-1])


@every_loss
@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
def test_flags_of_few_rows(loss, sigma):
    """What a step does to these may be worse than nothing, before and after they are swept; still it converges."""
    rng = np.random.default_rng(16)
    n, d = rng.integers(50, 6000), rng.integers(3, 150)
    shares = 10 ** rng.uniform(-3.2, -0.1, d)
    X = (rng.random((n, d)) < shares).astype(float)
    score = X @ (rng.normal(size=d) * (rng.random(d) < 0.5))
    y = score + 0.5 * rng.normal(size=n) > np.median(score)
    for fit_intercept in (False, True):
        clf = GuruClassifier(sigma, loss=loss, noise="axis", fit_intercept=fit_intercept).fit(X, y)
        assert clf.dual_gap_ <= 1e-6 * len(y)
        assert clf.n_iter_ < 100


class Place:
    """A number, and a function of it that bends early."""

    def __init__(self, x):
        self.x, self.value = x, abs(x - 0.05) + 0.01 * x


class Line:
    """What a line search asks of a problem: places between two of them, which cost no pass."""

    is_linear = True

    def __init__(self):
        self.tried = []

    def mixture(self, parts):
        self.tried.append(Place(sum(share * place.x for share, place in parts)))
        return self.tried[-1]


def test_the_lowest_place_of_a_step_that_is_too_long():
    line, start, end = Line(), Place(0.0), Place(1.0)
    near = lowest(line, start, end, 1.0)
    # Not the first place at which F falls as it should, but a lower one.
    far = next(place for place in line.tried if falls(start.value, place.value, place.x, 1.0))
    assert near.value < far.value < start.value
    assert abs(near.x - 0.05) < 0.05
    assert lowest(line, start, Place(0.06), 0.02).x == 0.06
    assert lowest(line, Place(0.05), Place(1.05), 1.0).x == 0.05


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_blocks_of_sparse_rows_are_not_copied(kind, monkeypatch):
    monkeypatch.setattr("gaussguru._rows.rows.BLOCK_BYTES", 5000)
    X = kind(sp.random(2000, 5, density=0.5, random_state=0, format="csr"))
    blocks = Rows(X, np.arange(2000) % 2).blocks
    assert len(blocks) > 2
    for block in blocks:
        assert type(block.X) is kind
        assert np.shares_memory(block.X.data, X.data)
        assert np.shares_memory(block.X.indices, X.indices)
        block.X.check_format()
    np.testing.assert_array_equal(sp.vstack([block.X for block in blocks]).toarray(), X.toarray())
