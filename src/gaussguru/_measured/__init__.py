"""Classifiers for measured values: populations, posteriors, calibration, the pool."""
