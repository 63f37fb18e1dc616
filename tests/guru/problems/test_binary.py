"""The problem of two classes: values and derivatives, over every kind of rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.special import ndtr
from support import oracles
from support.common import Written, every_form, every_loss, features, options, plain

import gaussguru._rows.rows
from gaussguru import GuruClassifier
from gaussguru._guru.problems import binary
from gaussguru._guru.problems.axis import AxisBinary
from gaussguru._guru.problems.binary import Binary
from gaussguru._guru.problems.smoothing import NONE, Smoothing
from gaussguru._rows.rows import BLAS_COLUMNS, Rows, combine, margins
from gaussguru.losses import LOSSES, Gaussian
from gaussguru.noise import NOISES, resolve_noise

MODELS = {
    **NOISES,
    "deviations": lambda sigma: resolve_noise(np.array([0.5, 2.0, 1.0, 0.1, 3.0]), sigma, 5),
    "covariance": lambda sigma: resolve_noise(0.5 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))), sigma, 5),
}
SMOOTHINGS = {"sharp": NONE, "noise": Smoothing(1.7, 0.0), "blur": Smoothing(1.0, 0.4), "both": Smoothing(1.7, 0.4)}
every_smoothing = pytest.mark.parametrize("smoothing", SMOOTHINGS.values(), ids=SMOOTHINGS.keys())
every_noise = pytest.mark.parametrize("noise", MODELS.values(), ids=MODELS.keys())


def sample(n=60, d=5, seed=0):
    """Return X with exact float32 values and zeros, y and weights."""
    rng = np.random.default_rng(seed)
    X = features(n, d, rng)
    return X, np.where(rng.random(n) < 0.4, 1.0, -1.0), rng.uniform(0.2, 2.0, n)


def make(
    X, y, weight, *, loss=LOSSES["gaussian"], noise=NOISES["isotropic"], l2=0.0, fit_intercept=True, sigma=0.6,
    smoothing=NONE, map=map,
):  # fmt: skip
    rows, model = Rows(X, y > 0, weight, map=map), noise(sigma)
    return (Binary if model.smooth else AxisBinary)(rows, loss, model, l2, fit_intercept, smoothing)


def unlabelled(X):
    return Rows(X, np.zeros(X.shape[0], dtype=bool))


def place(d=5, seed=1, fit_intercept=True):
    """Return unknowns (w, b)."""
    rng = np.random.default_rng(seed)
    return np.append(rng.standard_normal(d) * 0.7, 0.3 if fit_intercept else 0.0)


def stretched(problem, x, stretch, shift=0.0):
    """Return the point with the coefficients ``stretch w`` and the intercept ``b + shift``."""
    return problem.stretched(problem.point(x), stretch, x[-1] + shift)


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


@every_loss
def test_rounding_of_f_does_not_refuse_a_step_in_the_length(loss):
    """A step in the length is not refused because F of many rows rises by its rounding."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20_000, 3))
        problem = make(X, X[:, 0] + 2 * rng.standard_normal(20_000), None, loss=loss, fit_intercept=False, sigma=4.0)
        best = problem.rescaled(problem.point(np.array([1.0, 0.1, 0.0, 0.0])), 0.0)
        for stretch in 1 + 10.0 ** rng.uniform(-10, -6, 4):
            again = problem.rescaled(problem.stretched(best, best.stretch * stretch, 0.0), 0.0)
            assert abs(problem.plane(again)[0]) <= 1e-13 * problem.weight


@every_loss
@every_form
@options
def test_value_and_derivatives_match_the_oracle(loss, form, l2, fit_intercept):
    X, y, weight = sample()
    x = place(fit_intercept=fit_intercept)
    local = make(form(X), y, weight, loss=loss, l2=l2, fit_intercept=fit_intercept).visit(x)
    args, kwargs = (x[:-1], x[-1], X, y, 0.6), {"weight": weight, "l2": l2, "terms": plain(loss)}
    keep = np.arange(5 + fit_intercept)
    np.testing.assert_array_equal(local.x, x)
    np.testing.assert_allclose(local.value, oracles.objective(*args, **kwargs), rtol=1e-13)
    np.testing.assert_allclose(local.gradient[keep], oracles.gradient(*args, **kwargs)[keep], rtol=1e-11, atol=1e-11)
    hessian = symmetric(local.hessian())
    np.testing.assert_allclose(
        hessian[np.ix_(keep, keep)], oracles.hessian(*args, **kwargs)[np.ix_(keep, keep)], rtol=1e-10, atol=1e-10
    )
    p = np.linspace(-1, 2, 6)
    p[-1] *= fit_intercept
    np.testing.assert_allclose(local.product(p), hessian @ p, rtol=1e-10, atol=1e-10)


@every_loss
@every_smoothing
def test_smoothing_is_noise_and_blur_of_the_margin(loss, smoothing):
    X, y, weight = sample()
    x = place()
    w, b = x[:-1], x[-1]
    a = np.hypot(smoothing.noise * 0.6 * np.linalg.norm(w), smoothing.blur)
    f = plain(loss)((1 - y * (X @ w + b)) / a)[0]
    value = make(X, y, weight, loss=loss, l2=0.7, smoothing=smoothing).visit(x).value
    np.testing.assert_allclose(value, a * (weight @ f) + 0.35 * w @ w, rtol=1e-13)


@every_loss
@every_noise
@every_smoothing
@options
def test_derivatives_are_differences(loss, noise, smoothing, l2, fit_intercept):
    X, y, weight = sample(seed=2)
    problem = make(X, y, weight, loss=loss, noise=noise, l2=l2, fit_intercept=fit_intercept, smoothing=smoothing)
    x, h = place(fit_intercept=fit_intercept), 1e-5
    steps = h * np.eye(6)[: 5 + fit_intercept]
    values = [(problem.visit(x + e).value - problem.visit(x - e).value) / (2 * h) for e in steps]
    slopes = [(problem.visit(x + e).gradient - problem.visit(x - e).gradient) / (2 * h) for e in steps]
    here, kept = problem.visit(x), len(steps)
    hessian = symmetric(here.hessian())
    np.testing.assert_allclose(here.gradient[:kept], values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(hessian[:kept, :kept], np.array(slopes)[:, :kept], rtol=1e-6, atol=1e-7)
    p = np.linspace(-1, 2, 6)
    np.testing.assert_allclose(here.product(p), hessian @ p, rtol=1e-10, atol=1e-10)


@every_noise
@every_smoothing
@options
def test_tangent_is_the_derivative_by_log_noise_and_blur(noise, smoothing, l2, fit_intercept):
    problem = make(*sample(seed=3), noise=noise, l2=l2, fit_intercept=fit_intercept, smoothing=smoothing)
    x, h = place(fit_intercept=fit_intercept), 1e-5

    def gradient(t, falling):
        """Return the gradient after the logarithm of the smoothing has changed by t."""
        changed = [old * np.exp(t) if falls else old for old, falls in zip(smoothing, falling, strict=True)]
        return problem.smoothed(Smoothing(*changed)).visit(x).gradient

    for falling in ((True, False), (False, True), (True, True)):
        gone = Smoothing(*(0.0 if falls else old for old, falls in zip(smoothing, falling, strict=True)))
        expected = (gradient(h, falling) - gradient(-h, falling)) / (2 * h)
        np.testing.assert_allclose(problem.visit(x).tangent(gone), expected, rtol=1e-6, atol=1e-7)


@every_noise
@options
@pytest.mark.parametrize("blur", [0.0, 0.4])
def test_derivatives_by_length_and_intercept_are_differences(noise, blur, l2, fit_intercept):
    problem = make(*sample(seed=4), noise=noise, l2=l2, fit_intercept=fit_intercept, smoothing=Smoothing(1.0, blur))
    x, h = place(fit_intercept=fit_intercept), 1e-4

    def at(c, shift):
        return stretched(problem, x, 0.8 * (1 + c), shift).value

    expected = [
        (at(h, 0) - at(-h, 0)) / (2 * h),
        (at(0, h) - at(0, -h)) / (2 * h),
        (at(h, 0) - 2 * at(0, 0) + at(-h, 0)) / h**2,
        (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h**2),
        (at(0, h) - 2 * at(0, 0) + at(0, -h)) / h**2,
    ]
    if not fit_intercept:
        expected[1], expected[3], expected[4] = 0.0, 0.0, 1.0
    found = problem.plane(stretched(problem, x, 0.8))
    exact = 2 if blur else 5  # the second derivatives neglect the blur
    np.testing.assert_allclose(found[:exact], expected[:exact], rtol=1e-5, atol=1e-5)


@every_form
def test_visit_equals_expand(form):
    X, y, weight = sample(seed=5)
    problem = make(form(X), y, weight, l2=0.3)
    x = place()
    visited, expanded = problem.visit(x), problem.expand(problem.point(x))
    for name in ("gradient", "by_label", "noise_gradient", "row_weights"):
        np.testing.assert_allclose(getattr(visited, name), getattr(expanded, name), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(visited.point.margin, expanded.point.margin, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(visited.point.totals, expanded.point.totals, rtol=1e-12)


@every_form
@pytest.mark.parametrize("stretch", [1.0, 1.001, 0.97])
@pytest.mark.parametrize("shift", [0.0, 1e-3, -0.02])
@pytest.mark.parametrize("blur", [0.0, 1e-10, 0.1])
def test_moved_slopes_are_within_their_error(form, stretch, shift, blur):
    X, y, weight = sample()
    problem = make(form(X), y, weight, smoothing=Smoothing(1.0, blur))
    x = place()
    visited = problem.visit(x, curved=True)
    point = stretched(problem, x, stretch, shift)
    np.testing.assert_array_equal(point.x, np.append(stretch * x[:-1], x[-1] + shift))
    if blur > 1e-9 and stretch != 1:  # the scale is not in proportion to the length
        assert visited.moved(point)[1] is None
        return
    moved, error = visited.moved(point)
    assert moved.point is point
    exact = problem.expand(point).by_label
    assert np.all(np.abs((moved.by_label - exact).sum(axis=0)) <= error + 1e-12)
    step = max(abs(stretch - 1), abs(shift))
    assert np.max(error) <= (10 * step**2 + 1e-12) * np.abs(weight).sum() * np.abs(X).max() * X.shape[1]


def test_stretching_a_point_scales_its_coefficients():
    for smoothing in SMOOTHINGS.values():
        problem = make(*sample(), smoothing=smoothing)
        x = place()
        longer, plain = problem.expand(stretched(problem, x, 1.7)), problem.visit(np.append(1.7 * x[:-1], x[-1]))
        np.testing.assert_allclose(longer.x, plain.x, rtol=1e-15)
        np.testing.assert_allclose(longer.gradient, plain.gradient, rtol=1e-12)
        np.testing.assert_allclose(symmetric(longer.hessian()), symmetric(plain.hessian()), rtol=1e-11, atol=1e-12)


def test_a_mixture_is_evaluated_as_a_point():
    problem = make(*sample())
    x, other = place(seed=1), place(seed=2)
    between = problem.mixture([(0.7, stretched(problem, x, 2.0)), (0.3, problem.point(other))])
    twice = np.append(2 * x[:-1], x[-1])
    np.testing.assert_allclose(between.value, problem.point(0.7 * twice + 0.3 * other).value, rtol=1e-12)


def test_again_evaluates_the_same_unknowns_with_other_smoothing():
    problem = make(*sample(), l2=0.4)
    point = stretched(problem, place(), 1.3, 0.1)
    for smoothing in SMOOTHINGS.values():
        other = problem.smoothed(smoothing)
        np.testing.assert_allclose(other.again(point).value, other.point(point.x).value, rtol=1e-13)


def test_slopes_and_sums_of_the_data():
    X, y, weight = sample()
    problem = make(X, y, weight)
    x = place()
    w, b, point, rows = x[:-1], x[-1], problem.point(x), problem.rows
    z = (1 - y * (X @ w + b)) / (0.6 * np.linalg.norm(w))
    np.testing.assert_allclose(problem.slopes(point), ndtr(z), rtol=1e-13)
    np.testing.assert_allclose(problem.residual(x)[:, 0], weight * y * ndtr(z), rtol=1e-13)
    np.testing.assert_allclose(point.mass, weight @ ndtr(z), rtol=1e-13)
    np.testing.assert_allclose(rows.class_weights, [weight[y < 0].sum(), weight[y > 0].sum()], rtol=1e-13)
    np.testing.assert_allclose(rows.column_squares.sum(), weight @ (X * X).sum(axis=1), rtol=1e-13)
    np.testing.assert_allclose(rows.column_squares, weight @ (X * X), rtol=1e-12)
    for mean, sign in zip(rows.means, (-1, 1), strict=True):
        np.testing.assert_allclose(mean, np.average(X[y == sign], axis=0, weights=weight[y == sign]), rtol=1e-12)


@pytest.mark.parametrize("n_rows", [10, 500, 1500])
def test_subsample_keeps_class_totals(n_rows):
    X, y, weight = sample(n=2000)
    y[:1700] = -1.0
    problem = make(X, np.sort(y), weight)
    part = problem.subsample(n_rows, np.random.default_rng(0))
    np.testing.assert_allclose(part.rows.class_weights, problem.rows.class_weights, rtol=1e-12)
    assert part.rows.n_rows <= n_rows + 102
    assert all(any(np.array_equal(row, other) for other in X) for row in part.rows.X[:5])


def everything(problem):
    local, rows = problem.visit(place(problem.rows.n_columns)), problem.rows
    point = local.point
    p = np.linspace(-1, 1, rows.n_columns + 1)
    return [
        *(point.value, rows.gather(point.margin), point.totals, local.gradient, symmetric(local.hessian())),
        *(local.product(p), local.tangent(Smoothing(0.5, 0.1)), problem.slopes(point), problem.pull),
        *(rows.column_squares, problem.shrunk_conjugate(point, 0.9), problem.expand(point).gradient),
    ]


@every_form
@pytest.mark.parametrize("loss", [Gaussian(), Written()], ids=["compiled", "written"])
def test_blocks_and_threads_do_not_change_results(form, loss, monkeypatch):
    X, y, weight = sample(n=3001)
    whole = everything(make(form(X), y, weight, loss=loss))
    monkeypatch.setattr(gaussguru._rows.rows, "BLOCK_BYTES", 2000)
    split = make(form(X), y, weight, loss=loss)
    assert len(split.rows.each(lambda block: None)) > 4
    parts = everything(split)
    for one, many in zip(whole, parts, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-10, atol=1e-10)
    with ThreadPoolExecutor(3) as pool:
        threaded = everything(make(form(X), y, weight, loss=loss, map=pool.map))
    for one, other in zip(parts, threaded, strict=True):
        np.testing.assert_array_equal(one, other)


@every_form
@pytest.mark.parametrize("d", [1, 2, 3, 20, BLAS_COLUMNS - 1, BLAS_COLUMNS, BLAS_COLUMNS + 25])
def test_gram_matrix_is_the_weighted_sum(form, d):
    X, _, weight = sample(n=311, d=d)
    weight[::3] = 0.0
    tilt = np.random.default_rng(0).standard_normal(311)
    direction = np.random.default_rng(1).standard_normal(d)
    U = np.column_stack([X + np.outer(tilt, direction), np.ones(311)])
    found = unlabelled(form(X)).gram([weight], [tilt], direction)
    np.testing.assert_allclose(np.tril(found), np.tril((U.T * weight) @ U), rtol=1e-11, atol=1e-11)
    apart = np.column_stack([X, tilt, np.ones(311)])
    found = unlabelled(form(X)).gram([weight], [tilt])
    np.testing.assert_allclose(np.tril(found), np.tril((apart.T * weight) @ apart), rtol=1e-11, atol=1e-11)
    rows, chosen = unlabelled(form(X)), [(index, weight[index]) for index in (np.arange(5, 311, 4), np.arange(20))]
    for (index, h), found in zip(chosen, rows.grams(chosen), strict=True):
        u = np.column_stack([X[index], np.ones(len(index))])
        np.testing.assert_allclose(np.tril(found), np.tril((u.T * h) @ u), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(rows.passes["hessian"], (77 + 20) / 311, rtol=1e-12)
    squares = weight @ X**2
    scale = np.divide(1.0, squares, out=np.zeros(d), where=squares > 0)
    leverages = Rows(form(X), np.zeros(311, dtype=bool), weight).leverages
    np.testing.assert_allclose(leverages, weight * (X**2 @ scale), rtol=1e-12)


def test_rows_of_little_weight_add_to_the_diagonal_of_a_wide_gram_matrix():
    X, _, weight = sample(n=311, d=BLAS_COLUMNS + 3)
    little = np.arange(311) % 3 == 0
    weight[little] *= 1e-4 * weight.mean() / weight.max()
    U = np.column_stack([X, X[:, 0], np.ones(311)])
    expected = (U.T * np.where(little, 0.0, weight)) @ U
    expected[np.arange(X.shape[1]), np.arange(X.shape[1])] += (weight * little) @ X**2
    found = unlabelled(X).gram([weight], [X[:, 0].copy()], little=1e-3)
    np.testing.assert_allclose(np.tril(found), np.tril(expected), rtol=1e-11, atol=1e-11)


@every_form
def test_a_product_reads_no_row_without_weight(form):
    X, _, weight = sample(n=311, d=7)
    weight[np.random.default_rng(5).random(311) < 0.6] = 0.0
    weight[100:140] = 0.0
    U, p = np.column_stack([X, X[:, 1], np.ones(311)]), np.linspace(-1, 2, 7)
    expected = U.T @ (weight * (U @ np.concatenate([p, [0.5, -0.2]])))
    X[weight == 0] = np.nan
    found = unlabelled(form(X)).total(
        binary._product, [weight], [np.where(weight > 0, U[:, -2], np.nan)], p=p, eta=0.5, shift=-0.2
    )
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@every_loss
def test_the_main_part_of_a_hessian_leaves_out_rows_of_little_weight(loss):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((20_000, 20)), np.where(rng.random(20_000) < 0.5, 1.0, -1.0)
    X[:, 0] += y * np.exp(3 * rng.standard_normal(20_000))
    local = make(X, y, np.ones(20_000), loss=loss).visit(np.append(np.eye(20)[0], 0.1))
    main, p = local.main(), rng.standard_normal(21)
    (curve,), (kept,) = local.row_weights.curve, main.row_weights.curve
    np.testing.assert_array_equal(kept, np.where(curve < 0.01 * curve.mean(), 0.0, curve))
    assert 0 < np.count_nonzero(kept) < 15_000
    np.testing.assert_array_equal(main.gradient, local.gradient)
    exact = local.product(p)
    np.testing.assert_allclose(main.product(p), exact, rtol=0, atol=0.02 * np.abs(exact).max())


@pytest.mark.parametrize("d", range(1, 20))
@every_form
def test_sums_over_rows_of_any_width(form, d):
    X, y, weight = sample(n=37, d=d)
    rows, rng = Rows(form(X), y > 0, weight), np.random.default_rng(0)
    w, r, p = rng.standard_normal(d), weight * y, rng.standard_normal(d)
    U = np.column_stack([X, weight, np.ones(37)])
    np.testing.assert_allclose(rows.each(margins, w=w)[0], X @ w, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(rows.matvec(w), X @ w, rtol=1e-12, atol=1e-13)
    split = [np.where(r > 0, r, 0) @ X, np.where(r < 0, r, 0) @ X]
    np.testing.assert_allclose(rows.total(combine, [r]), split, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(rows.rmatvec(r), r @ X, rtol=1e-12, atol=1e-13)
    product = U.T @ (weight * (U @ np.concatenate([p, [0.5, -0.2]])))
    found = rows.total(binary._product, [weight], [weight], p=p, eta=0.5, shift=-0.2)
    np.testing.assert_allclose(found, product, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(rows.moments.sums, [-split[1], split[0]], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(rows.moments.squares, weight @ (X * X), rtol=1e-12)
    np.testing.assert_array_equal(rows.peaks, np.abs(X).max(axis=0, initial=0.0))
    np.testing.assert_array_equal(rows.column_counts, np.count_nonzero(X, axis=0))


@options
def test_a_loss_in_python_fits_like_the_compiled_one(l2, fit_intercept):
    X, y, weight = sample(n=200)
    X[:, 0] += 0.7 * y
    fits = [
        GuruClassifier(0.5, loss=loss, l2=l2, fit_intercept=fit_intercept, tol=1e-11).fit(X, y, weight)
        for loss in ("gaussian", Written())
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fits[0].objective_, fits[1].objective_, rtol=1e-10)
    assert fits[1].dual_gap_ <= 1e-11 * weight.sum()
