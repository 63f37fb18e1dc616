"""Images with worst-case noise."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from gaussguru import sample_noise
from gaussguru._measured.affine import as_table, dense
from gaussguru._utils.checks import check_count
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Ax, Estimator, MixedArray, Record, Seed, Values
from gaussguru.plotting import style


@dataclass(eq=False, repr=False)
class AdversarialSamplesDisplay(style.Display):
    """Images with draws of the worst-case noise of a model (thesis, chapter 5).

    Each row has an image and several noisy versions of it. The predicted class is printed below each; it is bold and in
    another colour if the noise has changed it.

    Parameters
    ----------
    images : ndarray of shape (n_samples, 1 + n_draws, height, width)
    predictions : ndarray of shape (n_samples, 1 + n_draws)
    title : str

    Attributes
    ----------
    images_, texts_ : list of matplotlib AxesImage, Text
        The images and their predictions, row by row.
    ax_, figure_ : matplotlib Axes, Figure

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.plotting import AdversarialSamplesDisplay
    >>> X, y = load_digits(n_class=2, return_X_y=True)
    >>> model = GuruClassifier(4.0).fit(X, y)
    >>> AdversarialSamplesDisplay.from_estimator(model, X[:3], image_shape=(8, 8), n_draws=2).images.shape
    (3, 3, 8, 8)
    """

    images: Array
    predictions: MixedArray
    title: str

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Values,
        *,
        image_shape: tuple[int, int],
        n_draws: int = 5,
        random_state: Seed = None,
        ax: Ax = None,
    ) -> Self:
        """Add noise from :func:`gaussguru.sample_noise` to images, and draw them.

        Parameters
        ----------
        estimator : fitted GuruClassifier
        X : array-like or sparse matrix of shape (n_samples, height * width)
        image_shape : tuple of int
            Height and width.
        n_draws : int, default=5
        random_state : int, numpy.random.Generator or None, default=None
        ax : matplotlib Axes, default=None

        Returns
        -------
        AdversarialSamplesDisplay
        """
        height, width = (check_count("image_shape", size) for size in image_shape)
        noise = sample_noise(estimator, X, n_draws, random_state=random_state)
        values = dense(as_table(X))
        if values.shape[1] != height * width:
            raise ValueError(f"image_shape={tuple(image_shape)} does not fit X with {values.shape[1]} features")
        shown = np.concatenate([values[np.newaxis], values + noise])
        predictions = np.stack([estimator.predict(each) for each in shown], axis=1)
        images = shown.swapaxes(0, 1).reshape(len(values), 1 + n_draws, height, width)
        return cls(images, predictions, f"{style.name_of(estimator)}: original and noisy").plot(ax)

    def plot(self, ax: Ax = None) -> Self:
        """Draw on ``ax``, or on new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None

        Returns
        -------
        self
        """
        n_rows, n_columns, height, width = self.images.shape
        # Room between the images, and for a line of text under each.
        across, down = width * 1.12, height * 1.35
        ax = self._axes(ax, (0.9 * n_columns + 0.2, 0.9 * n_rows * down / across + 0.5))
        self.images_, self.texts_ = [], []
        for row, column in np.ndindex(n_rows, n_columns):
            x, y = column * across, row * down
            # One scale of grey for all images, which shows noise beyond the range of the originals.
            image = ax.imshow(
                self.images[row, column], cmap="gray_r", vmin=self.images.min(), vmax=self.images.max(),
                extent=(x, x + width, y + height, y), interpolation="nearest",
            )  # fmt: skip
            self.images_.append(image)
            ax.plot(
                x + width * np.array([0, 1, 1, 0, 0]), y + height * np.array([0, 0, 1, 1, 0]), "0.75", linewidth=0.6
            )
            label, original = self.predictions[row, column], self.predictions[row, 0]
            look: Record = {"color": style.PALETTE[1], "weight": "bold"} if label != original else {"color": "0.25"}
            self.texts_.append(
                ax.text(
                    x + width / 2, y + 1.02 * height, f"{label}", ha="center", va="top", fontsize=style.SMALL, **look
                )
            )
        if n_columns > 1:  # between originals and noisy versions
            ax.plot([0.5 * (width + across)] * 2, [0, n_rows * down], **style.REFERENCE)
        ax.set(xlim=(-0.02 * across, n_columns * across), ylim=(n_rows * down, -0.02 * down), aspect="equal")
        ax.set_axis_off()
        ax.set_title(f"{self.title}\nbelow each: the predicted class", fontsize=style.TITLE)
        return self
