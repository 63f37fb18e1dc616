"""The tables and figures of the thesis, computed again."""

from gaussguru.experiments.results import Table
from gaussguru.experiments.run import EXPERIMENTS, Progress, reproduce

__all__ = ["EXPERIMENTS", "Progress", "Table", "reproduce"]
