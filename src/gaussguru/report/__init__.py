"""Reports: one HTML file with text, tables, figures and a model card, which opens anywhere and needs no network."""

from gaussguru.report.card import data_hash, model_card
from gaussguru.report.evaluation import evaluation_report
from gaussguru.report.page import Report, new_axes

__all__ = ["Report", "data_hash", "evaluation_report", "model_card", "new_axes"]
