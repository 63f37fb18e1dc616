"""Error bars for images that may be turned, moved or scaled a little."""

import numpy as np
import scipy.sparse as sp

from gaussguru._errors.given import LowRank
from gaussguru._utils.checks import check_count, check_real
from gaussguru._utils.frames import as_numbers
from gaussguru._utils.types import Values


def image_tangents(
    X: Values, shape: tuple[int, ...], *, rotation: float = 0.0, translation: float = 0.0, scale: float = 0.0
) -> LowRank:
    """Return error bars for images that are turned, moved and scaled by small random amounts.

    To first order a transformation adds a multiple of its *tangent* to an image: the derivative of the pixels with
    respect to the angle, the displacement or the logarithm of the size. The covariance of an image is that of Gaussian
    angles, displacements and sizes with these standard deviations; its factors are the tangents (Simard, LeCun and
    Denker 1993), of central differences between pixels, with 0 outside of the image. Transformations of more than the
    width of a stroke are not small: transformed copies among the samples of the fit are then better.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_pixels)
        Images, row by row.
    shape : tuple of int
        ``(n_rows, n_columns)``, or ``(n_rows, n_columns, n_channels)``.
    rotation : float, default=0.0
        Standard deviation of the angle about the centre, in degrees.
    translation : float, default=0.0
        Standard deviation of the displacement, in pixels, along rows and along columns.
    scale : float, default=0.0
        Standard deviation of the relative change of size.

    Returns
    -------
    LowRank
        ``X_err`` for :class:`gaussguru.GuruClassifier`, :class:`gaussguru.KernelGuruClassifier` and others, with a
        factor for the rotation, two for the translation, and one for the scale, as far as they are not 0.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.preprocessing import image_tangents
    >>> X, y = load_digits(return_X_y=True)
    >>> X, y = X[y >= 8], y[y >= 8]
    >>> X_err = image_tangents(X, (8, 8), rotation=5.0, translation=0.3)
    >>> X_err.shape
    (354, 64, 3)
    >>> GuruClassifier(1.0).fit(X, y, X_err=X_err).converged_
    True
    """
    values = X.toarray().astype(np.float64) if sp.issparse(X) else as_numbers(X, "X")
    if len(shape) not in (2, 3):
        raise ValueError(f"shape must be (n_rows, n_columns), with n_channels or without; got {shape!r}")
    n_rows, n_columns, n_channels = (check_count("shape", size) for size in (*shape, 1)[:3])
    if values.ndim != 2 or values.shape[1] != n_rows * n_columns * n_channels:
        raise ValueError(f"X must have a column for each of the pixels of shape {shape!r}; got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("X must hold finite pixels; got NaN or infinity")
    sizes = {"rotation": rotation, "translation": translation, "scale": scale}
    turn, move, grow = (check_real(name, size, inclusive=True) for name, size in sizes.items())
    if not (turn or move or grow):
        raise ValueError("rotation, translation or scale must be positive; got 0 for all")
    images = np.pad(values.reshape(-1, n_rows, n_columns, n_channels), ((0, 0), (1, 1), (1, 1), (0, 0)))
    down = 0.5 * (images[:, :-2, 1:-1] - images[:, 2:, 1:-1])  # what a pixel gains when the image moves down, or right
    right = 0.5 * (images[:, 1:-1, :-2] - images[:, 1:-1, 2:])
    row, column = np.meshgrid(np.arange(n_rows), np.arange(n_columns), indexing="ij")
    row, column = (part[:, :, np.newaxis] - part.mean() for part in (row, column))
    # The factors of the gains along the columns and the rows.
    directions = [(np.deg2rad(turn), -column, row), (move, 1.0, 0.0), (move, 0.0, 1.0), (grow, row, column)]
    factors = [(size * (along * down + across * right)) for size, along, across in directions if size]
    return LowRank(np.stack([factor.reshape(values.shape) for factor in factors], axis=2))
