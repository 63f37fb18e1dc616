"""
Missing values
==============

A missing value is a value with an infinite error. :class:`~gaussguru.ErrorBarClassifier` predicts it, with its
uncertainty, from the population and the other values of the sample. Mean imputation uses less information, and treats
the imputed value as exact.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured

data = make_measured(3000, 6, error=0.3, random_state=0)
train, test = slice(0, 1500), slice(1500, None)
ours = ErrorBarClassifier(n_jobs=1).fit(data.X[train], data.y[train], X_err=data.X_err[train])
imputed = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(data.X[train], data.y[train])

fractions = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
rng = np.random.default_rng(0)
losses = {"mean imputation, logistic regression": [], "ErrorBarClassifier": [], "best possible": []}
for fraction in fractions:
    gone = rng.random(data.X[test].shape) < fraction
    X = np.where(gone, np.nan, data.X[test])
    X_err = np.where(gone, np.inf, data.X_err[test])
    losses["ErrorBarClassifier"].append(log_loss(data.y[test], ours.predict_proba(X, X_err=X_err)))
    losses["mean imputation, logistic regression"].append(log_loss(data.y[test], imputed.predict_proba(X)))
    losses["best possible"].append(log_loss(data.y[test], data.population.predict_proba(X, X_err)))

fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for (name, values), style in zip(losses.items(), ("s--", "o-", "k:"), strict=True):
    ax.plot(fractions, values, style, label=name)
ax.set(xlabel="fraction of missing values in the test samples", ylabel="log loss (lower is better)", ylim=(0, None))
ax.legend()
plt.show()
