"""Estimators of scikit-learn: checked input, a problem, its solution, and the attributes of a fit."""
