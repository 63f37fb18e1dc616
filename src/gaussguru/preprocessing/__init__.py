"""Error bars from tables, repeated measurements and transformations of images, and through the steps of a pipeline."""

from gaussguru.preprocessing.images import image_tangents
from gaussguru.preprocessing.replicates import ReplicateNoise, errors_from_replicates, noise_from_replicates
from gaussguru.preprocessing.tables import errors_from_frame, errors_from_uncertainties
from gaussguru.preprocessing.with_errors import WithErrors

__all__ = [
    "ReplicateNoise", "WithErrors", "errors_from_frame", "errors_from_replicates", "errors_from_uncertainties",
    "image_tangents", "noise_from_replicates",
]  # fmt: skip
