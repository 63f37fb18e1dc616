"""Certified robust classifiers: problems, solvers, certificates, and the estimators that use them."""
