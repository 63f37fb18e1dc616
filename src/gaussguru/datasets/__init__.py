"""The data of the thesis: its toy problems, its real data sets, and its splits."""

from gaussguru.datasets.real import DataNotFoundError, load_ionosphere, load_pima, load_splice, load_usps, load_wine
from gaussguru.datasets.splits import THESIS_SPLITS, Split, thesis_split
from gaussguru.datasets.toys import make_gaussian_ring, make_gaussians, make_narrow_gaussians, make_radial

__all__ = [
    "THESIS_SPLITS",
    "DataNotFoundError",
    "Split",
    "load_ionosphere",
    "load_pima",
    "load_splice",
    "load_usps",
    "load_wine",
    "make_gaussian_ring",
    "make_gaussians",
    "make_narrow_gaussians",
    "make_radial",
    "thesis_split",
]
