"""Samples with error bars: F, its derivatives, compiled loops, and certificates."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from support.common import every_loss, with_and_without
from support.data import groups
from support.error_bars import bars, covariances, every_form, matrices, value

from gaussguru import GuruClassifier
from gaussguru._errors.checks import check_errors
from gaussguru._errors.correlated import Combined, Factored
from gaussguru._errors.independent import Diagonal
from gaussguru._errors.missing import Population
from gaussguru._errors.sparse import SparseFactors
from gaussguru._guru.path import follow
from gaussguru._guru.problems.measured import MeasuredLocal, MeasuredPairs
from gaussguru._guru.problems.smoothing import Smoothing
from gaussguru._guru.solvers.newton import Newton
from gaussguru._rows.rows import Rows
from gaussguru._rows.validation import check_samples
from gaussguru.losses import LOSSES
from gaussguru.noise import Isotropic


def problem(n_classes=3, form=bars, blur=0.3, sigma=0.2, l2=0.0, fit_intercept=True, loss=None, n=40, d=3):
    X, y = groups([n // n_classes] * n_classes, d)
    weight = np.random.default_rng(4).uniform(0.2, 2.0, len(y))
    rows = Rows(X, y, weight, n_classes, check_errors(form(len(y), d), X).compact())
    noise = Isotropic(sigma) if sigma else None
    made = MeasuredPairs(rows, loss or LOSSES["gaussian"], noise, l2, fit_intercept, Smoothing(blur=blur))
    return made, X, y, weight


@every_form
@pytest.mark.parametrize("n_classes", [2, 3])
def test_value_is_the_formula(form, n_classes):
    made, X, y, weight = problem(n_classes, form, blur=0.0, l2=0.3)
    rng = np.random.default_rng(0)
    W, b = rng.standard_normal((n_classes, 3)), rng.standard_normal(n_classes)
    expected = value(W, b, X, y, matrices(form(len(y), 3), len(y), 3), weight, 0.2, 0.3)
    np.testing.assert_allclose(made.visit(made.unknowns(W, b)).value, expected, rtol=1e-12)


@every_form
@every_loss
@pytest.mark.parametrize(("n_classes", "l2"), [(2, 0.0), (3, 0.0), (3, 0.4)])
def test_derivatives_are_differences(form, loss, n_classes, l2):
    made, *_ = problem(n_classes, form, loss=loss, l2=l2)
    rng = np.random.default_rng(1)
    local = made.visit(made.unknowns(rng.standard_normal((n_classes, 3)), rng.standard_normal(n_classes)))
    p = rng.standard_normal(len(local.gradient))
    ahead, behind = (made.visit(local.x + h * p) for h in (1e-5, -1e-5))
    np.testing.assert_allclose(local.gradient @ p, (ahead.value - behind.value) / 2e-5, rtol=1e-6)
    difference = (ahead.gradient - behind.gradient) / 2e-5
    np.testing.assert_allclose(local.product(p), difference, rtol=1e-4, atol=1e-5 * np.abs(difference).max())
    np.testing.assert_allclose(local.hessian() @ p, local.product(p), rtol=1e-10, atol=1e-10)


@every_form
@every_loss
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_step_from_slacks_equals_a_new_evaluation(form, loss, n_classes):
    made, *_ = problem(n_classes, form, loss=loss, l2=0.4)
    rng = np.random.default_rng(1)
    W, P = rng.standard_normal((2, n_classes, 3))
    b, shifts = rng.standard_normal((2, n_classes))
    moved = made.visit(made.unknowns(W, b)).displaced(P - P.mean(axis=0), shifts - shifts.mean())
    there = made.visit(made.unknowns(W + P, b + shifts))
    np.testing.assert_allclose(moved.gradient, there.gradient, rtol=1e-10, atol=1e-12)
    for name in ("value", "mass", "gain", "tension"):
        np.testing.assert_allclose(getattr(moved.point, name), getattr(there.point, name), rtol=1e-10, atol=1e-12)


@every_form
@every_loss
@pytest.mark.parametrize(("n_classes", "fit_intercept"), [(2, True), (3, True), (3, False)])
def test_tangent_is_the_derivative_by_log_blur(form, loss, n_classes, fit_intercept):
    made, *_ = problem(n_classes, form, loss=loss, fit_intercept=fit_intercept)
    rng = np.random.default_rng(1)
    W, b = rng.standard_normal((n_classes, 3)), rng.standard_normal(n_classes) * fit_intercept
    x, h = made.unknowns(W, b), 1e-5
    for fraction in (0.6, 1.0):
        up, down = (made.smoothed(Smoothing(blur=0.3 * np.exp(t * fraction))).visit(x).gradient for t in (h, -h))
        tangent = made.visit(x).tangent(Smoothing(blur=0.3 * (1 - fraction)))
        difference = (up - down) / (2 * h)
        np.testing.assert_allclose(tangent, difference, rtol=1e-4, atol=1e-5 * np.abs(difference).max())


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("correlated", [0.0, 0.1, 1.0])
def test_gaps_make_few_samples_dense(n_classes, correlated):
    """Samples without gaps are read by compiled loops, others by their few entries: all as with full factors."""
    rng, n, d = np.random.default_rng(0), 500, 12
    X, y = rng.standard_normal((n, d)), rng.integers(0, n_classes, n)
    gone = (rng.random((n, d)) < 0.1) & (rng.random(n) < correlated)[:, np.newaxis]
    if correlated == 1:
        gone[np.arange(n), rng.integers(0, d, n)] = True
    root = rng.standard_normal((d, d))
    population = Population(X.mean(axis=0), X.std(axis=0), root @ root.T)
    filled = population.fill(np.where(gone, np.nan, X), np.where(gone, np.inf, bars(n, d)))
    full = check_errors(filled[1], X)
    compact = full.compact()
    assert type(full) is Factored
    assert type(compact) is {0.0: Diagonal, 0.1: Combined, 1.0: SparseFactors}[correlated]
    assert compact.work < full.work
    weight = rng.uniform(0.0, 2.0, n)
    made, plain = (
        MeasuredPairs(Rows(filled[0], y, weight, n_classes, errors), LOSSES["gaussian"], Isotropic(0.2), 0.1, True)
        for errors in (compact, full)
    )
    x = made.unknowns(rng.standard_normal((n_classes, d)), rng.standard_normal(n_classes))
    one, other = made.visit(x), plain.visit(x)
    p = rng.standard_normal(len(one.gradient))
    for mine, theirs in (
        (one.value, other.value),
        (one.gradient, other.gradient),
        (one.hessian(), other.hessian()),
        (one.product(p), other.product(p)),
        (made.slopes(one.point), plain.slopes(other.point)),
        (one.displaced(np.zeros((n_classes, d)), np.zeros(n_classes)).gradient, other.gradient),
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    parts = [compact.take(slice(0, 100)), compact.take(np.arange(100, n))]
    joined = parts[0].joined(parts)
    np.testing.assert_allclose(joined.dense(), compact.dense())
    np.testing.assert_allclose(joined.scaled(3.0).variances(root), 9 * full.variances(root))


def test_a_path_of_exact_samples_is_followed_as_without_errors():
    """A solution is where the next one begins; from zero every level took some thirty iterations."""
    X, y = groups([150, 150, 150], 4)
    X, y = X + 0.5 * np.random.default_rng(0).standard_normal(X.shape), np.asarray(y)
    model, samples = GuruClassifier(1.0), check_samples(X, y)
    paths = [
        [clf for clf, _ in follow(model, samples, np.geomspace(1.0, 0.01, 12), errors, map)]
        for errors in (None, np.zeros(X.shape))
    ]
    for plain, exact in zip(*paths, strict=True):
        assert exact.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    plain, exact = (sum(clf.n_iter_ for clf in path) for path in paths)
    assert exact <= 1.5 * plain


@every_loss
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("d", [1, 5, 100])
@pytest.mark.parametrize("kind", [np.asarray, np.float32, sp.csr_matrix])
def test_compiled_loops_equal_those_of_the_forms(loss, n_classes, d, kind):
    """Standard deviations are read by compiled loops; the same numbers as covariances of low rank are not."""
    rng, n = np.random.default_rng(0), 611
    X, y = rng.standard_normal((n, d)).astype(np.float32), rng.integers(0, n_classes, n)
    E, weight = bars(n, d), rng.uniform(0.0, 2.0, n)
    made, plain = (
        MeasuredPairs(Rows(kind(X), y, weight, n_classes, errors), loss, Isotropic(0.2), 0.1, True, Smoothing(blur=0.1))
        for errors in (Diagonal(E), Factored(E, np.zeros((n, d, 1))))
    )
    assert made.task.compiled == (loss.code >= 0)
    assert not plain.task.compiled
    x = made.unknowns(rng.standard_normal((n_classes, d)), rng.standard_normal(n_classes))
    one, other = made.visit(x), plain.visit(x)
    p = rng.standard_normal(len(one.gradient))
    for mine, theirs in (
        (one.value, other.value),
        (one.gradient, other.gradient),
        (one.hessian(), other.hessian()),
        (one.product(p), other.product(p)),
        (one.product(p), one.hessian() @ p),
        (made.slopes(one.point), plain.slopes(other.point)),
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    mine, theirs = (local._room(0.99, rooted=True) for local in (one, other))
    # The room of compiled loops is a bound from below, 1e-6 of the conjugate or closer.
    for c in range(n_classes):
        for k in set(range(n_classes)) - {c}:
            room, exact = mine.roots[c, k], theirs.roots[c, k][:, 0]
            assert np.all(room <= exact * (1 + 1e-12))
            assert np.all(room >= exact * (1 - 1e-2))
            assert 0.99 * theirs.free[c, k] <= mine.free[c, k] <= theirs.free[c, k] * (1 + 1e-12)


@pytest.mark.parametrize("form", [bars, covariances])
def test_blocks_and_pieces_add_up(form, monkeypatch):
    x = np.random.default_rng(0).standard_normal(8)
    whole = problem(form=form, n=300)[0].visit(x)
    monkeypatch.setattr("gaussguru._rows.rows.BLOCK_BYTES", 5000)
    monkeypatch.setattr("gaussguru._utils.blocks.CACHE_BYTES", 8)
    made = problem(form=form, n=300)[0]
    assert len(made.rows.blocks) > 1
    pieces = made.visit(x)
    np.testing.assert_allclose(pieces.gradient, whole.gradient, rtol=1e-12)
    np.testing.assert_allclose(pieces.hessian(), whole.hessian(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(pieces.product(x), whole.product(x), rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(made.slopes(pieces.point), whole.problem.slopes(whole.point))


@pytest.mark.parametrize("l2", [0.0, 0.5])
@pytest.mark.parametrize("n_classes", [2, 3])
@with_and_without
def test_gap_bounds_the_suboptimality_anywhere(n_classes, l2, fit_intercept):
    made, X, y, weight = problem(n_classes, l2=l2, fit_intercept=fit_intercept, blur=0.0)
    clf = GuruClassifier(0.2, l2=l2, fit_intercept=fit_intercept, tol=1e-10)
    clf.fit(X, y, weight, X_err=bars(*X.shape))
    W = np.vstack([-clf.coef_, clf.coef_]) / 2 if n_classes == 2 else clf.coef_
    b = np.append(-clf.intercept_, clf.intercept_) / 2 if n_classes == 2 else clf.intercept_
    rng, proven = np.random.default_rng(0), 0
    for size in 10.0 ** np.arange(-6, 1):
        step = size * rng.standard_normal(W.shape)
        local = made.visit(made.unknowns(W + step, b + fit_intercept * size * rng.standard_normal(len(b))))
        certificate, _ = local.certificate(1e-6 * made.weight, thorough=True)
        assert certificate.dual <= clf.objective_ + 1e-9 * made.weight
        assert certificate.gap >= certificate.primal - clf.objective_ - 1e-9 * made.weight
        proven += certificate.dual > 0.5 * clf.objective_
    assert proven >= 3


@pytest.fixture(params=[True, False], ids=["rooted", "own"])
def only(request, monkeypatch):
    """Certificates with the room of the errors only, or with that of the noise of the model only."""
    found = MeasuredLocal._room
    monkeypatch.setattr(MeasuredLocal, "_room", lambda self, factor, rooted: found(self, factor, request.param))


@every_form
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.usefixtures("only")
def test_gap_bounds_the_suboptimality_nearby(form, n_classes):
    """With the room of the errors and without it, where curved noise sets make it small."""
    made, *_ = problem(n_classes, form, blur=0.0, n=90, d=4)
    result = Newton(tol=1e-10).solve(made)
    assert result.converged
    x = made.unknowns(result.coef, result.intercept)
    rng = np.random.default_rng(0)
    for size in 10.0 ** np.arange(-6, 0):
        certificate, _ = made.visit(x + size * rng.standard_normal(len(x))).certificate(0.0, thorough=True)
        assert certificate.dual <= result.objective + 1e-9 * made.weight
        assert size > 1e-4 or certificate.dual > 0.99 * result.objective


@pytest.mark.usefixtures("only")
def test_the_gap_across_w_is_of_second_order():
    """Length and intercept, in which it is of first order, are set right at every place."""
    made, X, y, weight = problem(2, blur=0.0, n=90, d=4)
    clf = GuruClassifier(0.2, tol=1e-12).fit(X, y, weight, X_err=bars(len(y), 4))
    across = np.random.default_rng(0).standard_normal(4)
    gaps = []
    for size in (1e-2, 1e-3):
        w = clf.coef_[0] + size * across

        def at(params, w=w):
            return made.visit(made.unknowns(params[0] * w, params[1]))

        def slopes(params, w=w):
            local = at(params, w)
            return local.value, -np.array([local.gradient[:-1] @ w, local.gradient[-1]])

        found = minimize(slopes, [1.0, clf.intercept_[0]], jac=True, method="BFGS", options={"gtol": 1e-9}).x
        gaps.append(at(found).certificate(0.0, thorough=True)[0].gap)
    assert 80 < gaps[0] / gaps[1] < 125
