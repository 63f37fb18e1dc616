"""Objectives: rows with a loss, a noise model and smoothing; their values, derivatives and certificates."""
