"""Estimators of scikit-learn: checked input, a problem, its solution, and what is kept of it."""
