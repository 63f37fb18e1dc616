"""Everything that only the thesis needs: its toy problems, data sets and splits; its tables and figures, recomputed."""

from gaussguru.thesis.data import load_ionosphere, load_pima, load_splice, load_usps, load_wine
from gaussguru.thesis.run import reproduce
from gaussguru.thesis.splits import thesis_split
from gaussguru.thesis.toys import make_gaussian_ring, make_gaussians, make_narrow_gaussians, make_radial

__all__ = [
    "load_ionosphere", "load_pima", "load_splice", "load_usps", "load_wine", "make_gaussian_ring", "make_gaussians",
    "make_narrow_gaussians", "make_radial", "reproduce", "thesis_split",
]  # fmt: skip
