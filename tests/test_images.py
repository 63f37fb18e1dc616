"""Tangents of images against finite differences of scipy.ndimage, and against images that are transformed."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import ndimage

from gaussguru import GuruClassifier, KernelGuruClassifier
from gaussguru.preprocessing import image_tangents

MARGIN = 4
MOVES = {
    "rotation": lambda image, size, order: ndimage.rotate(image, size, reshape=False, order=order),
    "down": lambda image, size, order: ndimage.shift(image, (size, 0), order=order),
    "right": lambda image, size, order: ndimage.shift(image, (0, size), order=order),
    "scale": lambda image, size, order: ndimage.affine_transform(
        image, np.eye(2) / (1 + size), (np.array(image.shape) - 1) / 2 * (1 - 1 / (1 + size)), order=order
    ),
}
SIZES = {"rotation": 7.0, "down": 0.4, "right": 0.4, "scale": 0.1}


def moved(image, kind, size, order=1):
    """Return an image that is transformed in a field of zeros."""
    wide = MOVES[kind](np.pad(image, MARGIN), size, order)
    return wide[MARGIN:-MARGIN, MARGIN:-MARGIN]


def tangents(X, shape):
    return image_tangents(X, shape, rotation=7.0, translation=0.4, scale=0.1)


@pytest.mark.parametrize("shape", [(9, 9), (5, 12), (1, 6)])
def test_tangents_are_derivatives(shape):
    """Symmetric differences of bilinear interpolation are exact for images of any roughness."""
    image, step = np.random.default_rng(0).normal(size=shape), 1e-4
    factors = tangents(image.reshape(1, -1), shape).factors[0]
    for k, (kind, size) in enumerate(SIZES.items()):
        difference = (moved(image, kind, step) - moved(image, kind, -step)) / (2 * step)
        np.testing.assert_allclose(factors[:, k].reshape(shape), size * difference, atol=2e-3 * np.abs(factors).max())


@pytest.mark.parametrize("kind", SIZES)
def test_smooth_images_move_along_their_tangents(kind):
    grid = np.meshgrid(*2 * [np.linspace(-3, 3, 25)], indexing="ij")
    image = np.exp(-0.5 * (grid[0] - 0.4) ** 2 - 1.2 * (grid[1] + 0.3) ** 2)
    factor = tangents(image.reshape(1, -1), (25, 25)).factors[0, :, [*SIZES].index(kind)].reshape(25, 25)
    change = moved(image, kind, SIZES[kind], order=3) - image
    assert np.abs(change - factor).max() < 0.2 * np.abs(change).max()


def test_channels_move_together_and_forms_agree():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(3, 4, 5, 2)) * (rng.uniform(size=(3, 4, 5, 2)) < 0.5)
    X = images.reshape(3, -1)
    both = tangents(X, (4, 5, 2)).factors
    assert both.shape == (3, 40, 4)
    one = tangents(images[..., 1].reshape(3, -1), (4, 5)).factors
    np.testing.assert_array_equal(both.reshape(3, 20, 2, 4)[:, :, 1], one)
    for other in (sp.csr_array(X), pd.DataFrame(X), X.tolist()):
        np.testing.assert_array_equal(tangents(other, (4, 5, 2)).factors, both)
    np.testing.assert_allclose(tangents(X.astype(np.float32), (4, 5, 2)).factors, both, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tangents(-3 * X, (4, 5, 2)).factors, -3 * both)
    np.testing.assert_array_equal(image_tangents(X, (4, 5, 2), translation=0.4).factors, both[:, :, 1:3])


def test_a_disc_does_not_turn_and_a_constant_stays():
    rows, columns = np.indices((21, 21)) - 10
    disc = np.exp(-0.05 * (rows**2 + columns**2))
    factors = tangents(disc.reshape(1, -1), (21, 21)).factors[0]
    assert np.abs(factors[:, 0]).max() < 0.02 * np.abs(factors[:, 1:]).max()
    flat = tangents(np.ones((1, 49)), (7, 7)).factors[0].reshape(7, 7, 4)
    assert not flat[1:-1, 1:-1].any()
    assert flat[0].any()  # outside is 0


@pytest.mark.parametrize("make", [GuruClassifier, lambda sigma: KernelGuruClassifier(sigma, gamma=0.05)])
def test_classifiers_take_tangents_and_learn_that_a_stroke_may_turn(make):
    """One upright and one level stroke, told by their centre, are told from few images, at any small angle."""
    rng = np.random.default_rng(0)
    strokes = np.zeros((2, 9, 9))
    strokes[0, 1:8, 4] = strokes[1, 4, 1:8] = 1.0
    y = np.arange(12) % 2
    X = (strokes[y] + 0.2 * rng.normal(size=(12, 9, 9))).reshape(12, 81)
    model = make(0.3).fit(X, y, X_err=image_tangents(X, (9, 9), rotation=10.0, translation=0.5))
    assert model.converged_
    turned = np.array([moved(strokes[k], "rotation", angle).ravel() for k in (0, 1) for angle in (-20, 0, 20)])
    np.testing.assert_array_equal(model.predict(turned), [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (4, 4)}, r"pixels of shape \(4, 4\); got shape \(2, 12\)"),
        ({"shape": (12,)}, r"shape must be .*got \(12,\)"),
        ({"shape": (0, 4)}, "shape must be a whole number >= 1; got 0"),
        ({"rotation": 0.0}, "must be positive; got 0 for all"),
        ({"rotation": -1.0}, "rotation must be a finite number >= 0; got -1.0"),
        ({"X": np.full((2, 12), np.nan)}, "X must hold finite pixels"),
    ],
)
def test_what_is_no_image_is_refused(change, message):
    given = {"X": np.zeros((2, 12)), "shape": (3, 4), "rotation": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        image_tangents(**given)
