"""Objectives: rows with a loss, a noise model and smoothing; values, derivatives, and what a certificate needs."""
