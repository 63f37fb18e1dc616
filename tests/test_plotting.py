"""Every picture shows what its formulas say; the toy problems are what the thesis shows."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

from gaussguru import GuruClassifier, plotting
from gaussguru.datasets import make_gaussians, make_narrow_gaussians
from gaussguru.losses import LOSSES

mpl.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def lines(ax):
    return {line.get_label(): np.asarray(line.get_xydata()) for line in ax.lines}


def test_loss_lies_above_the_hinge():
    shown = lines(plotting.plot_loss("logistic"))
    assert list(shown) == ["logistic", "hinge"]
    assert np.all(shown["logistic"][:, 1] >= np.maximum(shown["logistic"][:, 0], 0))


def test_robust_loss_tends_to_the_hinge():
    shown = list(lines(plotting.plot_robust_loss((0.01, 0.5, 2.0))).values())
    *robust, hinge = (line[:, 1] for line in shown)
    assert np.abs(robust[0] - hinge).max() < 0.01
    assert np.all(np.diff(np.array(robust), axis=0) >= 0)


def test_conjugates_meet_at_one_half():
    shown = lines(plotting.plot_conjugates())
    assert len(shown) == len(LOSSES)
    for line in shown.values():
        np.testing.assert_allclose(np.interp([0.0, 0.5, 1.0], *line.T), [0.0, 1.0, 0.0], atol=1e-12)


def test_the_family_has_every_loss_and_ones_own():
    assert list(lines(plotting.plot_losses())) == [*LOSSES, "hinge"]
    assert list(lines(plotting.plot_losses([LOSSES["quadratic"]]))) == ["Quadratic()", "hinge"]


def test_norms_are_those_of_the_fits_on_the_axes_given():
    (X, y), ax = make_gaussians(60, random_state=0), pyplot.figure().subplots()
    model = GuruClassifier(fit_intercept=False, loss="quadratic")
    assert plotting.plot_norms(X, y, [0.1, 1.0], estimator=model, label="a", ax=ax) is ax
    expected = [
        np.linalg.norm(GuruClassifier(s, fit_intercept=False, loss="quadratic").fit(X, y).coef_) for s in (0.1, 1.0)
    ]
    np.testing.assert_allclose(lines(ax)["a"], np.column_stack([[0.1, 1.0], expected]))


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
    code = "import sys, gaussguru.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"gaussguru\[plot\]"):
        plotting.plot_losses()
