"""Reports: one HTML file with text, tables, figures and a model card, which opens anywhere and needs no network."""

from gaussguru.report.card import model_card
from gaussguru.report.evaluation import evaluation_report

__all__ = ["evaluation_report", "model_card"]
