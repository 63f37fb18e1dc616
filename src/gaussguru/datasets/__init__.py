"""The data of the thesis (toy problems, real data sets, splits), and simulated and real data with error bars."""

from gaussguru.datasets.measured import MeasuredPopulation, make_measured
from gaussguru.datasets.real import (
    DataNotFoundError,
    load_chandra,
    load_fermi,
    load_ionosphere,
    load_koi,
    load_pima,
    load_snpcc,
    load_splice,
    load_usps,
    load_wdbc,
    load_wine,
)
from gaussguru.datasets.splits import THESIS_SPLITS, Split, thesis_split
from gaussguru.datasets.toys import make_gaussian_ring, make_gaussians, make_narrow_gaussians, make_radial

__all__ = [
    "THESIS_SPLITS",
    "DataNotFoundError",
    "MeasuredPopulation",
    "Split",
    "load_chandra",
    "load_fermi",
    "load_ionosphere",
    "load_koi",
    "load_pima",
    "load_snpcc",
    "load_splice",
    "load_usps",
    "load_wdbc",
    "load_wine",
    "make_gaussian_ring",
    "make_gaussians",
    "make_measured",
    "make_narrow_gaussians",
    "make_radial",
    "thesis_split",
]
