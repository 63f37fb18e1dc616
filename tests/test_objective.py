"""The objective and its derivatives, over every kind of rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracles
import pytest
from common import Written, every_form, every_loss, features, options, plain
from scipy.special import ndtr

import gaussguru.rows
from gaussguru import GuruClassifier
from gaussguru.losses import LOSSES, Gaussian
from gaussguru.noise import NOISES, resolve_noise
from gaussguru.objective import HARDLY, Objective, interpolate
from gaussguru.rows import BLAS_COLUMNS, Rows

MODELS = {
    **NOISES,
    "deviations": lambda sigma: resolve_noise(np.array([0.5, 2.0, 1.0, 0.1, 3.0]), sigma, 5),
    "covariance": lambda sigma: resolve_noise(0.5 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))), sigma, 5),
}
every_noise = pytest.mark.parametrize("noise", MODELS.values(), ids=MODELS.keys())


def sample(n=60, d=5, seed=0):
    """Return X with exact float32 values and zeros, y and weights."""
    rng = np.random.default_rng(seed)
    X = features(n, d, rng)
    return X, np.where(rng.random(n) < 0.4, 1.0, -1.0), rng.uniform(0.2, 2.0, n)


def make(X, y, weight, *, loss=None, noise=NOISES["isotropic"], l2=0.0, fit_intercept=True, sigma=0.6, map=map):
    loss = loss or LOSSES["gaussian"]
    return Objective(Rows(X, map), weight * y, loss, noise(sigma), l2, fit_intercept)


def place(d=5, seed=1, fit_intercept=True):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d) * 0.7, 0.3 if fit_intercept else 0.0


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


@every_loss
@every_form
@options
def test_value_and_derivatives_match_the_oracle(loss, form, l2, fit_intercept):
    X, y, weight = sample()
    w, b = place(fit_intercept=fit_intercept)
    expansion = make(form(X), y, weight, loss=loss, l2=l2, fit_intercept=fit_intercept).visit(w, b)
    args, kwargs = (w, b, X, y, 0.6), {"weight": weight, "l2": l2, "terms": plain(loss)}
    keep = np.arange(len(w) + fit_intercept)
    np.testing.assert_allclose(expansion.point.value, oracles.objective(*args, **kwargs), rtol=1e-13)
    np.testing.assert_allclose(
        expansion.gradient[keep], oracles.gradient(*args, **kwargs)[keep], rtol=1e-11, atol=1e-11
    )
    hessian = symmetric(expansion.hessian())
    np.testing.assert_allclose(
        hessian[np.ix_(keep, keep)], oracles.hessian(*args, **kwargs)[np.ix_(keep, keep)], rtol=1e-10, atol=1e-10
    )
    p = np.linspace(-1, 2, len(w) + 1)
    p[-1] *= fit_intercept
    np.testing.assert_allclose(expansion.product(p), hessian @ p, rtol=1e-10, atol=1e-10)


@every_loss
@every_noise
@options
def test_derivatives_are_differences(loss, noise, l2, fit_intercept):
    X, y, weight = sample(seed=2)
    objective = make(X, y, weight, loss=loss, noise=noise, l2=l2, fit_intercept=fit_intercept)
    w, b = place(fit_intercept=fit_intercept)
    params, h = np.append(w, b), 1e-5
    steps = h * np.eye(6)[: 5 + fit_intercept]

    def at(params):
        return objective.visit(params[:-1].copy(), float(params[-1]))

    values = [(at(params + e).point.value - at(params - e).point.value) / (2 * h) for e in steps]
    slopes = [(at(params + e).gradient - at(params - e).gradient) / (2 * h) for e in steps]
    here, kept = at(params), len(steps)
    np.testing.assert_allclose(here.gradient[:kept], values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        symmetric(here.hessian())[:kept, :kept], np.array(slopes)[:, :kept], rtol=1e-6, atol=1e-7
    )


@every_noise
@options
def test_tangent_is_the_derivative_by_log_noise(noise, l2, fit_intercept):
    objective = make(*sample(seed=3), noise=noise, l2=l2, fit_intercept=fit_intercept)
    w, b = place(fit_intercept=fit_intercept)
    h = 1e-5
    up, down = (objective.with_noise(np.exp(t)).visit(w, b).gradient for t in (h, -h))
    np.testing.assert_allclose(objective.visit(w, b).tangent(), (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@every_noise
@options
def test_plane_derivatives(noise, l2, fit_intercept):
    objective = make(*sample(seed=4), noise=noise, l2=l2, fit_intercept=fit_intercept)
    w, b = place(fit_intercept=fit_intercept)
    h = 1e-4

    def at(c, shift):
        return objective.point(w, b + shift, stretch=0.8 * (1 + c)).value

    expected = [
        (at(h, 0) - at(-h, 0)) / (2 * h),
        (at(0, h) - at(0, -h)) / (2 * h),
        (at(h, 0) - 2 * at(0, 0) + at(-h, 0)) / h**2,
        (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h**2),
        (at(0, h) - 2 * at(0, 0) + at(0, -h)) / h**2,
    ]
    if not fit_intercept:
        expected[1], expected[3], expected[4] = 0.0, 0.0, 1.0
    np.testing.assert_allclose(objective.plane(objective.point(w, b, stretch=0.8)), expected, rtol=1e-5, atol=1e-5)


@every_form
def test_visit_is_expand(form):
    X, y, weight = sample(seed=5)
    objective = make(form(X), y, weight, l2=0.3)
    w, b = place()
    visited, expanded = objective.visit(w, b), objective.expand(objective.point(w, b))
    for name in ("gradient", "by_label", "noise_gradient", "pulls"):
        np.testing.assert_allclose(getattr(visited, name), getattr(expanded, name), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(visited.point.margin, expanded.point.margin, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(visited.point.totals, expanded.point.totals, rtol=1e-12)


@every_form
@pytest.mark.parametrize("stretch", [1.0, 1.001, 0.97])
@pytest.mark.parametrize("shift", [0.0, 1e-3, -0.02])
def test_moved_slopes_are_within_their_error(form, stretch, shift):
    X, y, weight = sample()
    objective = make(form(X), y, weight)
    w, b = place()
    visited = objective.visit(w, b, curved=True)
    point = objective.point(w, b + shift, stretch=stretch)
    moved, error = visited.moved(point)
    exact = objective.expand(point).by_label
    assert np.all(np.abs((moved - exact).sum(axis=0)) <= error + 1e-12)
    step = max(abs(stretch - 1), abs(shift))
    assert np.max(error) <= (10 * step**2 + 1e-12) * np.abs(weight).sum() * np.abs(X).max() * X.shape[1]


def test_rows_left_out_hardly_bend_the_function():
    X, y, weight = sample(n=300)
    objective = make(X, y, weight, sigma=0.1)
    expansion = objective.visit(*place())
    main, bends = expansion.mainly(), expansion.pulls.weight
    assert 0 < np.count_nonzero(main.pulls.weight) < np.count_nonzero(bends)
    rng = np.random.default_rng(2)
    for p in rng.normal(size=(20, 6)):
        lost = p @ (expansion.product(p) - main.product(p))
        along = X @ p[:-1] + expansion.pulls.tilt * (expansion.noise_gradient @ p[:-1]) + p[-1]
        assert -1e-12 <= lost <= HARDLY * bends.mean() * (along @ along)
    assert main.point is expansion.point
    assert main.gradient is expansion.gradient


def test_stretch_is_length():
    objective = make(*sample())
    w, b = place()
    stretched, plain = objective.expand(objective.point(w, b, stretch=1.7)), objective.visit(1.7 * w, b)
    np.testing.assert_allclose(stretched.gradient, plain.gradient, rtol=1e-12)
    np.testing.assert_allclose(symmetric(stretched.hessian()), symmetric(plain.hessian()), rtol=1e-11, atol=1e-12)


def test_interpolate():
    objective = make(*sample())
    (w, b), (v, c) = place(seed=1), place(seed=2)
    between = interpolate(objective, objective.point(w, b, stretch=2.0), objective.point(v, c), 0.3)
    np.testing.assert_allclose(between.value, objective.point(1.4 * w + 0.3 * v, 0.7 * b + 0.3 * c).value, rtol=1e-12)


def test_slopes_and_sums_of_the_data():
    X, y, weight = sample()
    objective = make(X, y, weight)
    w, b = place()
    point = objective.point(w, b)
    z = (1 - y * (X @ w + b)) / (0.6 * np.linalg.norm(w))
    np.testing.assert_allclose(objective.slopes(point), ndtr(z), rtol=1e-13)
    np.testing.assert_allclose(point.mass, weight @ ndtr(z), rtol=1e-13)
    np.testing.assert_allclose(objective.weights, [weight[y > 0].sum(), weight[y < 0].sum()], rtol=1e-13)
    np.testing.assert_allclose(objective.squares, weight @ (X * X).sum(axis=1), rtol=1e-13)
    for mean, sign in zip(objective.means, (1, -1), strict=True):
        np.testing.assert_allclose(mean, np.average(X[y == sign], axis=0, weights=weight[y == sign]), rtol=1e-12)


@pytest.mark.parametrize("n_rows", [10, 500, 1500])
def test_subsample_keeps_class_totals(n_rows):
    X, y, weight = sample(n=2000)
    y[:1700] = -1.0
    objective = make(X, np.sort(y), weight)
    part = objective.subsample(n_rows, np.random.default_rng(0))
    np.testing.assert_allclose(part.weights, objective.weights, rtol=1e-12)
    assert part.rows.n_rows <= n_rows + 102
    assert all(any(np.array_equal(row, other) for other in X) for row in part.rows.X[:5])


def everything(objective):
    expansion = objective.visit(*place(objective.rows.n_columns))
    point = expansion.point
    p = np.linspace(-1, 1, objective.rows.n_columns + 1)
    return [
        *(point.value, point.margin, point.totals, expansion.gradient, symmetric(expansion.hessian())),
        *(expansion.product(p), expansion.tangent(), objective.slopes(point), objective.pull, objective.squares),
        *(objective.shrunk_conjugate(point, 0.9), objective.expand(point).gradient),
    ]


@every_form
@pytest.mark.parametrize("loss", [Gaussian(), Written()], ids=["compiled", "written"])
def test_blocks_and_threads(form, loss, monkeypatch):
    X, y, weight = sample(n=3001)
    whole = everything(make(form(X), y, weight, loss=loss))
    monkeypatch.setattr(gaussguru.rows, "BLOCK_BYTES", 2000)
    split = make(form(X), y, weight, loss=loss)
    assert len(split.rows.each(lambda begin, end: None)) > 4
    parts = everything(split)
    for one, many in zip(whole, parts, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-10, atol=1e-10)
    with ThreadPoolExecutor(3) as pool:
        threaded = everything(make(form(X), y, weight, loss=loss, map=pool.map))
    for one, other in zip(parts, threaded, strict=True):
        np.testing.assert_array_equal(one, other)


@every_form
@pytest.mark.parametrize("d", [1, 2, 3, 20, BLAS_COLUMNS - 1, BLAS_COLUMNS, BLAS_COLUMNS + 25])
def test_gram(form, d):
    X, _, weight = sample(n=311, d=d)
    weight[::3] = 0.0
    tilt = np.random.default_rng(0).standard_normal(311)
    direction = np.random.default_rng(1).standard_normal(d)
    U = np.column_stack([X + np.outer(tilt, direction), np.ones(311)])
    gram = Rows(form(X)).gram(weight, tilt, direction)
    np.testing.assert_allclose(np.tril(gram), np.tril((U.T * weight) @ U), rtol=1e-11, atol=1e-11)
    apart = np.column_stack([X, tilt, np.ones(311)])
    gram = Rows(form(X)).gram(weight, tilt)
    np.testing.assert_allclose(np.tril(gram), np.tril((apart.T * weight) @ apart), rtol=1e-11, atol=1e-11)
    scale = np.abs(direction)
    np.testing.assert_allclose(Rows(form(X)).leverages(scale), X**2 @ scale, rtol=1e-12)


@pytest.mark.parametrize("d", range(1, 20))
@every_form
def test_rows_of_any_width(form, d):
    X, y, weight = sample(n=37, d=d)
    rows, rng = Rows(form(X)), np.random.default_rng(0)
    w, r, p = rng.standard_normal(d), weight * y, rng.standard_normal(d)
    U = np.column_stack([X, weight, np.ones(37)])
    np.testing.assert_allclose(rows.margins(w), X @ w, rtol=1e-12, atol=1e-13)
    split = [np.where(r > 0, r, 0) @ X, np.where(r < 0, r, 0) @ X]
    np.testing.assert_allclose(rows.combine(r), split, rtol=1e-12, atol=1e-13)
    product = U.T @ (weight * (U @ np.concatenate([p, [0.5, -0.2]])))
    np.testing.assert_allclose(rows.product(weight, weight, p, 0.5, -0.2), product, rtol=1e-11, atol=1e-12)
    by_label, squares = rows.moments(r)
    np.testing.assert_allclose(by_label, split, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(squares, weight @ (X * X), rtol=1e-12)
    np.testing.assert_array_equal(rows.peaks, np.abs(X).max(axis=0, initial=0.0))


@options
def test_written_loss_fits_like_the_compiled(l2, fit_intercept):
    X, y, weight = sample(n=200)
    X[:, 0] += 0.7 * y
    fits = [
        GuruClassifier(0.5, loss=loss, l2=l2, fit_intercept=fit_intercept, tol=1e-11).fit(X, y, weight)
        for loss in ("gaussian", Written())
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fits[0].objective_, fits[1].objective_, rtol=1e-10)
    assert fits[1].dual_gap_ <= 1e-11 * weight.sum()
