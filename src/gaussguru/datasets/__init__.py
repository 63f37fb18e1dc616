"""Simulated and real data with error bars."""

from gaussguru.datasets.catalogues import load_chandra, load_fermi, load_koi, load_snpcc, load_wdbc
from gaussguru.datasets.measured import MeasuredPopulation, make_measured
from gaussguru.datasets.storage import DataNotFoundError

__all__ = [
    "DataNotFoundError", "MeasuredPopulation", "load_chandra", "load_fermi", "load_koi", "load_snpcc", "load_wdbc",
    "make_measured",
]  # fmt: skip
