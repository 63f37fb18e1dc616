"""Every picture shows what its formulas say; the toy problems are what the thesis shows."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.datasets import load_digits, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from gaussguru import (
    AdversarialSVC,
    ErrorBarClassifier,
    GuruClassifier,
    GuruClassifierCV,
    KernelGuruClassifier,
    PopulationClassifier,
    TotalSVC,
    plotting,
    sigma_path,
)
from gaussguru.errors import Measured
from gaussguru.losses import LOSSES
from gaussguru.plotting import style
from gaussguru.preprocessing import WithErrors
from gaussguru.robustness import NotLinearError, expected_accuracy, robustness_curve
from gaussguru.thesis import make_gaussians, make_narrow_gaussians, make_radial

mpl.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close():
    before = dict(mpl.rcParams)
    yield
    assert dict(mpl.rcParams) == before  # settings are the user's
    pyplot.close("all")


def lines(display):
    return {line.get_label(): np.asarray(line.get_xydata()) for line in display.ax_.lines}


def scattered(display):
    """Return the points of every name in a legend."""
    named = [points for points in display.ax_.collections if not points.get_label().startswith("_")]
    return {points.get_label(): np.asarray(points.get_offsets()) for points in named}


def test_losses_lie_above_the_hinge():
    display = plotting.LossDisplay.from_losses("gaussian")
    z, values = lines(display)["gaussian"].T
    assert [line.get_label() for line in display.lines_] == ["gaussian", "hinge"]
    np.testing.assert_allclose(values, z * norm.cdf(z) + norm.pdf(z), atol=1e-14)
    np.testing.assert_array_equal(lines(display)["hinge"][:, 1], np.maximum(z, 0))


def test_the_family_has_every_loss_and_ones_own():
    shown = lines(plotting.LossDisplay.from_losses())
    assert list(shown) == [*LOSSES, "hinge"]
    for line in shown.values():
        assert np.all(line[:, 1] >= np.maximum(line[:, 0], 0))
    assert list(lines(plotting.LossDisplay.from_losses([LOSSES["quadratic"]]))) == ["Quadratic()", "hinge"]


def test_robust_loss_is_the_mean_hinge_loss_and_tends_to_the_hinge():
    shown = list(lines(plotting.LossDisplay.from_sigmas((0.01, 0.5, 2.0), norm=2.0)).values())
    *robust, hinge = (line[:, 1] for line in shown)
    assert np.abs(robust[0] - hinge).max() < 0.01
    assert np.all(np.diff(np.array(robust), axis=0) >= -1e-15)
    at, value = shown[1][150]
    draws = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    np.testing.assert_allclose(value, np.maximum(1 - at + 0.5 * 2.0 * draws, 0).mean(), atol=1e-4)
    with pytest.raises(ValueError, match="sigmas"):
        plotting.LossDisplay.from_sigmas([0.0])


def test_conjugates_meet_at_one_half():
    shown = lines(plotting.LossDisplay.from_conjugates())
    assert len(shown) == len(LOSSES)
    for name, line in shown.items():
        middle = np.sqrt(np.pi / 2) if name.startswith("moment") else 1.0  # which is not scaled as the others are
        np.testing.assert_allclose(np.interp([0.0, 0.5, 1.0], *line.T), [0.0, middle, 0.0], atol=1e-12)
    alpha, entropy = next(line for name, line in shown.items() if name.startswith("logistic"))[1:-1].T
    np.testing.assert_allclose(entropy, -alpha * np.log2(alpha) - (1 - alpha) * np.log2(1 - alpha), atol=1e-12)


def test_lines_on_the_same_axes_differ_in_colour_and_style():
    display = plotting.LossDisplay.from_sigmas(range(1, 8))
    looks = [(line.get_color(), line.get_linestyle()) for line in display.lines_]
    assert len({colour for colour, _ in looks}) == len(looks)
    assert len(set(style.MARKERS)) == len(set(map(str, style.LINES))) == len(set(style.PALETTE)) == 7


def test_legends_lie_beside_the_axes_where_there_is_room():
    display = plotting.LossDisplay.from_losses()
    display.figure_.canvas.draw()
    legend, frame = (part.get_window_extent() for part in (display.ax_.get_legend(), display.ax_))
    assert legend.x0 > frame.x1
    assert legend.x1 <= display.figure_.bbox.x1
    plain = plotting.LossDisplay.from_losses(ax=pyplot.figure().subplots())
    assert plain.ax_.get_legend()._loc == 0  # "best"


def test_legends_lie_below_narrow_axes():
    display = plotting.LossDisplay.from_losses(ax=style.figure(1, size=(4.0, 3.0)).axes[0])
    figure = display.figure_
    figure.draw_without_rendering()
    legend, label = (part.get_window_extent() for part in (display.ax_.get_legend(), display.ax_.xaxis.label))
    assert legend.y1 <= label.y0
    assert legend.y0 >= 0
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1


@pytest.mark.parametrize("span", [1.3, 3.0, 12.0, 90.0, 1e4])
def test_logarithmic_axes_have_numbers(span):
    values = np.geomspace(0.7, 0.7 * span, 5)
    display = plotting.SigmaPathDisplay(values, {"norm": 1 / values}).plot()
    display.figure_.draw_without_rendering()
    for axis in (display.ax_.xaxis, display.ax_.yaxis):
        low, high = axis.get_view_interval()
        shown = [tick.get_loc() for tick in axis.get_major_ticks() if tick.label1.get_text()]
        assert sum(low <= place <= high for place in shown) >= 3


def legend_of(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_legends_of_the_plane_name_all_that_is_drawn():
    X, y = make_gaussians(40, random_state=0)
    model = GuruClassifier(0.5).fit(X, y)
    lines_and_classes = ["boundary", "margins", "class -1", "class 1"]
    cloud = plotting.CloudDisplay.from_estimator(model, X, y, n_std=2)
    assert set(legend_of(cloud)) == {*lines_and_classes, "noise: 2 std. dev."}
    moved = plotting.DisplacementDisplay.from_estimator(AdversarialSVC(0.5).fit(X, y), X, y)
    assert set(legend_of(moved)) == {*lines_and_classes, "hollow: after the move"}
    regions = plotting.RegionsDisplay.from_estimator(model, X, y)
    assert set(legend_of(regions)) == {"boundary", "class -1", "class 1", "wrong"}


@pytest.mark.parametrize("quantity", ["norm", "accuracy", "gap"])
def test_path_shows_the_fits(quantity):
    X, y = make_gaussians(60, random_state=0)
    test, ax = make_gaussians(80, random_state=1), pyplot.figure().subplots()
    model = GuruClassifier(fit_intercept=False, loss="quadratic")
    display = plotting.SigmaPathDisplay.from_estimator(
        model, X, y, sigmas=[0.1, 1.0], test=test, quantity=quantity, name="a", ax=ax
    )
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert not hasattr(model, "coef_")
    fits = [GuruClassifier(s, fit_intercept=False, loss="quadratic", tol=1e-9).fit(X, y) for s in (1.0, 0.1)]
    expected = {
        "norm": [np.linalg.norm(fit.coef_) for fit in fits],
        "accuracy": [100 * fit.score(*test) for fit in fits],
        "gap": sigma_path(X, y, sigmas=[0.1, 1.0], fit_intercept=False, loss="quadratic")[3],
    }[quantity]
    np.testing.assert_allclose(lines(display)["a"], np.column_stack([[1.0, 0.1], expected]), rtol=1e-3, atol=1e-15)


def test_path_of_several_classes_with_error_bars_and_collapse():
    X, y = load_iris(return_X_y=True)
    y = np.minimum(y, 1)  # one class twice the other: much noise collapses it
    X_err = np.full(X.shape, 0.1)
    X_err[0, 0], X[0, 0] = np.inf, np.nan
    display = plotting.SigmaPathDisplay.from_estimator(GuruClassifier(), X, y, X_err=X_err, sigmas=[1e3, 0.1])
    assert display.values["norm"][0] == 0
    assert display.values["norm"][1] > 0
    np.testing.assert_allclose(display.values["accuracy"], [2 / 3, 1.0])


def test_cross_validation_shows_scores_and_choice():
    X, y = make_narrow_gaussians(100, random_state=0)
    model = GuruClassifierCV([0.1, 1.0, 10.0], cv=4).fit(X, y)
    display = plotting.SigmaPathDisplay.from_cv(model, unit="standard deviations")
    assert "(standard deviations)" in display.ax_.get_xlabel()
    np.testing.assert_allclose(display.line_.get_ydata(), model.scores_.mean(axis=1))
    np.testing.assert_allclose(display.error, model.scores_.std(axis=1, ddof=1) / 2)
    assert model.sigma_ in lines(display)[f"chosen: $\\sigma$ = {model.sigma_:.3g}"]
    with pytest.raises(ValueError, match="quantity"):
        display.plot(quantity="norm")


def test_robustness_curves_share_axes():
    X, y = make_gaussians(100, random_state=0)
    first, second = GuruClassifier(0.5).fit(X, y), make_pipeline(StandardScaler(), LinearSVC()).fit(X, y)
    display = plotting.RobustnessCurveDisplay.from_estimator(first, X, y)
    plotting.RobustnessCurveDisplay.from_estimator(
        second, X, y, noise_levels=[0, 1], method="sampling", random_state=0, ax=display.ax_
    )
    shown = lines(display)
    assert list(shown) == [r"GuruClassifier, $\sigma$ = 0.5", "LinearSVC"]
    levels, accuracy = shown[r"GuruClassifier, $\sigma$ = 0.5"].T
    assert levels[0] == 0
    np.testing.assert_allclose(levels[-1], np.sqrt(np.var(X, axis=0).mean()))
    np.testing.assert_allclose(accuracy, 100 * robustness_curve(first, X, y, levels).accuracy)
    sampled = robustness_curve(second, X, y, [0, 1], method="sampling", random_state=0).accuracy
    np.testing.assert_allclose(shown["LinearSVC"][:, 1], 100 * sampled)
    assert "units of the features" in display.ax_.get_xlabel()


def test_robustness_curve_in_multiples_of_the_error_bars():
    X, y = make_gaussians(100, random_state=0)
    X_err = np.random.default_rng(0).uniform(0.1, 0.8, X.shape)
    model = GuruClassifier(0.5).fit(X, y)
    display = plotting.RobustnessCurveDisplay.from_estimator(model, X, y, X_err=X_err, noise_levels=[0, 1, 2.5])
    expected = [100 * expected_accuracy(model, X, y, X_err=level * X_err) for level in (0, 1, 2.5)]
    np.testing.assert_allclose(display.line_.get_ydata(), expected)
    assert "multiples of the error bars" in display.ax_.get_xlabel()


@pytest.mark.parametrize("solver", ["newton", "dual"])
def test_convergence_ends_at_the_fit_and_bounds_what_is_left(solver):
    X, y = make_narrow_gaussians(200, random_state=0)
    model = GuruClassifier(0.2, solver=solver)
    display = plotting.ConvergenceDisplay.from_estimator(model, X, y)
    assert not hasattr(model, "coef_")
    fitted = GuruClassifier(0.2, solver=solver).fit(X, y)
    least = GuruClassifier(0.2, tol=1e-12).fit(X, y).objective_
    iterations, gap = display.gap_line_.get_xydata().T
    assert iterations.tolist() == list(range(1, fitted.n_iter_ + 1))
    np.testing.assert_allclose(gap[-1], fitted.dual_gap_)
    np.testing.assert_allclose(display.objective[-1], fitted.objective_)
    assert np.all(display.objective - least <= gap + 1e-9)
    assert gap[0] > 1e3 * gap[-1]
    assert np.all(np.diff(display.seconds) >= 0)
    again = display.plot(against="time")
    np.testing.assert_allclose(again.gap_line_.get_xdata(), 1e3 * display.seconds)
    assert len(plotting.ConvergenceDisplay.from_estimator(model, X, y, n_points=3).gap) == 3


def test_convergence_with_error_bars_and_of_a_kernel():
    X, y = make_gaussians(60, random_state=0)
    X_err = np.full(len(X), 0.2)
    display = plotting.ConvergenceDisplay.from_estimator(GuruClassifier(0.1), X, y, X_err=X_err, n_points=4)
    np.testing.assert_allclose(display.objective[-1], GuruClassifier(0.1).fit(X, y, X_err=X_err).objective_)
    display = plotting.ConvergenceDisplay.from_estimator(KernelGuruClassifier(0.1), X, y, n_points=3)
    np.testing.assert_allclose(display.objective[-1], KernelGuruClassifier(0.1).fit(X, y).objective_)


def ellipses(display):
    """Return the covariances that the ellipses stand for, class by class."""
    found = []
    for clouds in display.ellipses_:
        angle = np.radians(clouds.get_angles())
        turn = np.stack(
            [np.stack([np.cos(angle), -np.sin(angle)], -1), np.stack([np.sin(angle), np.cos(angle)], -1)], 1
        )
        axes = np.stack([clouds.get_widths(), clouds.get_heights()], -1) / 2 / display.n_std
        found.append(np.einsum("ijk,ik,ilk->ijl", turn, axes**2, turn))
    return np.concatenate(found)


def test_clouds_have_the_covariances():
    X, y = make_gaussians(40, random_state=0)
    order = np.argsort(y, kind="stable")
    model = GuruClassifier(0.5).fit(X, y)
    w = model.coef_[0] / np.linalg.norm(model.coef_)
    worst = plotting.CloudDisplay.from_estimator(model, X, y, n_std=2.0)
    np.testing.assert_allclose(ellipses(worst), np.broadcast_to(0.25 * np.outer(w, w), (40, 2, 2)), atol=1e-12)
    factors = np.random.default_rng(0).normal(size=(40, 2, 2))
    X_err = factors @ factors.swapaxes(1, 2)
    known = plotting.CloudDisplay.from_estimator(model, X, y, X_err=X_err)
    np.testing.assert_allclose(ellipses(known), X_err[order], atol=1e-12)
    np.testing.assert_array_equal(np.concatenate(list(scattered(known).values())), X[order])
    for cloud, (low, high) in (
        (X + 1.0 * s * np.sqrt(np.diagonal(X_err, axis1=1, axis2=2)), known.ax_.get_xlim()) for s in (-1, 1)
    ):
        assert low <= cloud[:, 0].min()
        assert cloud[:, 0].max() <= high


def contours(ax):
    """Return points on the contour lines by level."""
    sets = [drawn for drawn in ax.collections if hasattr(drawn, "levels") and not drawn.filled]
    return [
        (level, path.vertices)
        for drawn in sets
        for level, path in zip(drawn.levels, drawn.get_paths(), strict=True)
        if len(path.vertices)
    ]


def test_boundary_and_margins_are_where_the_scores_say():
    X, y = make_gaussians(40, random_state=0)
    frame = pd.DataFrame(X, columns=["width (mm)", "height (mm)"])
    model = GuruClassifier(0.5).fit(frame, y)
    display = plotting.CloudDisplay.from_estimator(model, frame, y)
    found = contours(display.ax_)
    assert [level for level, _ in found] == [-1, 0, 1]
    for level, points in found:
        np.testing.assert_allclose(points @ model.coef_[0] + model.intercept_, level, atol=1e-9)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("width (mm)", "height (mm)")


def test_boundaries_of_several_classes_are_ties():
    X, y = load_iris(return_X_y=True)
    model = GuruClassifier(0.3).fit(X[:, 2:], y)
    display = plotting.CloudDisplay.from_estimator(model, X[:, 2:], y)
    for _, points in contours(display.ax_):
        best = np.sort(model.decision_function(points), axis=1)
        assert np.abs(best[:, -1] - best[:, -2]).max() < 0.05  # linear between the points of the grid
    assert list(scattered(display)) == ["class 0", "class 1", "class 2"]


def test_radial_problem_is_local_for_small_sigma_and_global_for_large():
    X, y = make_radial(400, random_state=0)
    distance = np.hypot(*X.T)
    np.testing.assert_array_equal(y, np.where(distance <= 2, 1, -1))
    assert not np.any((distance > 2) & (distance < 3.5))
    assert np.abs(X).max() <= 7.5
    wrong = []
    for sigma in (0.5, 6.0):
        model = KernelGuruClassifier(sigma, kernel="poly", degree=2, gamma=1.0).fit(X, y)
        shown = scattered(plotting.RegionsDisplay.from_estimator(model, X, y))
        wrong.append(len(shown["wrong"]))
        assert sum(map(len, shown.values())) == len(X)
        np.testing.assert_array_equal(shown["wrong"], X[model.predict(X) != y])
    assert wrong[0] == 0 < wrong[1]  # far from the centre there are many more samples, and they decide


def test_regions_of_several_classes():
    X, y = load_iris(return_X_y=True)
    X, y = sp.csr_matrix(X[:, 2:]), np.array(["setosa", "versicolor", "virginica"])[y]
    display = plotting.RegionsDisplay.from_estimator(GuruClassifier(0.3).fit(X, y), X, y)
    assert list(scattered(display)) == ["class setosa", "class versicolor", "class virginica", "wrong"]
    assert len(display.surface_.levels) == 4


def test_regions_with_error_bars():
    X, y = make_gaussians(40, random_state=0)
    X_err = np.random.default_rng(0).uniform(0.1, 0.5, X.shape)
    model = KernelGuruClassifier(0.1).fit(X, y, X_err=X_err)
    display = plotting.RegionsDisplay.from_estimator(model, X, y, X_err=X_err, n_std=2.0)
    order = np.argsort(y, kind="stable")
    np.testing.assert_allclose(ellipses(display), [np.diag(err**2) for err in X_err[order]], atol=1e-12)
    same = plotting.RegionsDisplay.from_estimator(model, Measured(X, X_err), y, n_std=2.0)
    np.testing.assert_array_equal(same.covariances, display.covariances)
    assert plotting.RegionsDisplay.from_estimator(model, X, y).ellipses_ == []
    with pytest.raises(ValueError, match="X_err"):
        plotting.RegionsDisplay.from_estimator(model, X, y, X_err=np.full(X.shape, np.inf))


def test_regions_of_a_classifier_of_measurements():
    """Regions are those of exact values; what is wrong is decided with the errors of a sample."""
    X, y = make_gaussians(60, random_state=0)
    X_err = np.random.default_rng(0).uniform(0.1, 2.0, X.shape)
    model = ErrorBarClassifier(model="linear", n_components=1, cv=2).fit(X, y, X_err=X_err)
    display = plotting.RegionsDisplay.from_estimator(model, X, y, X_err=X_err)
    first, second, scores = display.plane.grid
    points = np.column_stack([first.ravel(), second.ravel()])
    np.testing.assert_array_equal(scores.ravel(), model.decision_function(points, X_err=0.0))
    np.testing.assert_array_equal(display.wrong, model.predict(X, X_err=X_err) != y)
    with pytest.raises(ValueError, match="X_err"):
        plotting.RegionsDisplay.from_estimator(model, X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_regions_of_a_classifier_without_scores(n_classes, in_pipeline):
    """Boundaries are where probabilities of exact values are equal, also where a classifier is certain."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % n_classes
    X = rng.normal(size=(60, 2)) + 2 * np.array([[0, 0], [1, 1], [1, -1]])[y]
    X_err = rng.uniform(0.1, 2.0, X.shape)
    for model in (PopulationClassifier(1), ErrorBarClassifier(model="rbf", cv=2)):
        fitted = (make_pipeline(WithErrors(), model) if in_pipeline else model).fit(Measured(X, X_err), y)
        display = plotting.RegionsDisplay.from_estimator(fitted, X, y, X_err=X_err)
        first, second, scores = display.plane.grid
        points = Measured(np.column_stack([first.ravel(), second.ravel()]), np.zeros(first.size))
        chances = fitted.predict_proba(points).T
        expected = chances[1:] - chances[:1] if n_classes == 2 else chances
        if not isinstance(model, ErrorBarClassifier) or not np.isfinite(fitted.decision_function(points)).all():
            np.testing.assert_allclose(scores.reshape(len(expected), -1), expected)
        assert np.isfinite(scores).all()
        np.testing.assert_array_equal(display.wrong, fitted.predict(Measured(X, X_err)) != y)
        clouds = plotting.CloudDisplay.from_estimator(fitted, X, y, X_err=X_err)
        names = [text.get_text() for text in clouds.ax_.get_legend().get_texts()]
        assert "boundary" in names
        assert ("margins" in names) == (n_classes == 2 and np.abs(clouds.plane.grid[2]).max() > 1)


def test_robustness_curve_of_a_classifier_of_measurements():
    X, y = make_gaussians(60, random_state=0)
    X_err = np.random.default_rng(0).uniform(0.1, 2.0, X.shape)
    model = PopulationClassifier(1).fit(X, y, X_err=X_err)
    options = {"X_err": X_err, "method": "sampling", "n_repeats": 3, "random_state": 0}
    display = plotting.RobustnessCurveDisplay.from_estimator(model, X, y, **options)
    assert (display.unit, display.noise_levels[-1]) == ("multiples of the error bars", 3.0)
    np.testing.assert_array_equal(
        display.accuracy, robustness_curve(model, X, y, display.noise_levels, **options).accuracy
    )
    with pytest.raises(NotLinearError, match="method='sampling'"):
        plotting.RobustnessCurveDisplay.from_estimator(model, X, y, X_err=X_err)


@pytest.mark.parametrize("estimator", [AdversarialSVC(0.5), TotalSVC(0.5)])
def test_displacements_are_those_of_the_estimator(estimator):
    X, y = make_gaussians(40, random_state=0)
    display = plotting.DisplacementDisplay.from_estimator(estimator.fit(X, y), X, y)
    change = estimator.displacements(X, y)
    for arrows, label in zip(display.arrows_, (-1, 1), strict=True):
        np.testing.assert_allclose(np.column_stack([arrows.U, arrows.V]), change[y == label])
        np.testing.assert_array_equal(arrows.XY, X[y == label])


def test_the_plane_has_two_features():
    X, y = make_gaussians(40, random_state=0)
    for display, model in (
        (plotting.RegionsDisplay, GuruClassifier()),
        (plotting.CloudDisplay, GuruClassifier()),
        (plotting.DisplacementDisplay, AdversarialSVC()),
    ):
        with pytest.raises(ValueError, match=r"two features.*\(40, 1\)"):
            display.from_estimator(model.fit(X[:, :1], y), X[:, :1], y)
    with pytest.raises(ValueError, match="label for each"):
        plotting.RegionsDisplay.from_estimator(GuruClassifier().fit(X, y), X, y[1:])


def test_adversarial_samples_are_images_with_their_predictions():
    X, y = load_digits(return_X_y=True)
    model = GuruClassifier(6.0).fit(X, y)
    draw = plotting.AdversarialSamplesDisplay.from_estimator
    display = draw(model, X[:4], image_shape=(8, 8), n_draws=3, random_state=0)
    shown = np.array([np.asarray(image.get_array()).ravel() for image in display.images_])
    np.testing.assert_array_equal(shown[::4], X[:4])
    assert [text.get_text() for text in display.texts_] == [str(label) for label in model.predict(shown)]
    changed = model.predict(shown) != np.repeat(model.predict(X[:4]), 4)
    assert [text.get_color() == style.PALETTE[1] for text in display.texts_] == changed.tolist()
    assert changed.any()
    assert "below each: the predicted class" in display.ax_.get_title()
    noise = (shown.reshape(4, 4, 64) - X[:4, np.newaxis])[:, 1:]
    np.testing.assert_allclose(np.linalg.norm(noise), 6 * np.sqrt(12), rtol=0.5)  # 12 draws of length 6, more or less
    with pytest.raises(ValueError, match=r"image_shape=\(8, 7\) does not fit X with 64"):
        draw(model, X[:4], image_shape=(8, 7))


@pytest.mark.parametrize(("make", "right"), [(make_gaussians, 92.5), (make_narrow_gaussians, 92.0)])
def test_toy_problems(make, right):
    X, y = make(random_state=3)
    again, labels = make(random_state=3)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, labels)
    assert X.shape == (200, 2)
    assert y.sum() == 0
    # What the thesis reports for a test set, which has an error of a per cent or two.
    test = make(20_000, random_state=4)
    assert abs(100 * GuruClassifier(0.3).fit(X, y).score(*test) - right) < 1.5
    with pytest.raises(ValueError, match="n_samples"):
        make(0)


def test_matplotlib_is_imported_when_something_is_drawn():
    code = "import sys, gaussguru.plotting, gaussguru.report, gaussguru.demo; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"gaussguru\[plot\]"):
        plotting.LossDisplay.from_losses()
