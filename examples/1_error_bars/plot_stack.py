"""
Averaging classifiers
=====================

Which classifier suits a table is seldom known beforehand. ``ErrorBarClassifier(stack=True)`` averages the probabilities
of several, with the weights that make held-out samples most likely: here a linear classifier and a population for each
class (:class:`~gaussguru.PopulationClassifier`). The data are breast tumours: ten properties of cell nuclei with their
standard errors. The classifiers are trained on the data as they are, and tested with growing errors.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru import ErrorBarClassifier, PopulationClassifier
from gaussguru.datasets import load_wdbc

bunch = load_wdbc()
levels = np.array([1.0, 1.5, 2.0, 3.0])
losses = {}
for split in range(2):
    train, test = train_test_split(
        np.arange(len(bunch.target)), test_size=0.4, random_state=split, stratify=bunch.target
    )
    X, X_err, y = bunch.data[train], bunch.error[train], bunch.target[train]
    normal = np.random.default_rng(split).normal(size=bunch.data[test].shape)
    stack = ErrorBarClassifier(stack=True, cv=3).fit(X, y, X_err=X_err)
    models = {
        "stack": stack,
        "ErrorBarClassifier": ErrorBarClassifier(cv=3).fit(X, y, X_err=X_err),
        "PopulationClassifier": PopulationClassifier().fit(X, y, X_err=X_err),
    }
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    for level in levels:
        err = level * bunch.error[test]
        values = bunch.data[test] + np.sqrt(level**2 - 1) * bunch.error[test] * normal
        found = {name: model.predict_proba(values, err) for name, model in models.items()}
        found["LogisticRegression, without errors"] = plain.predict_proba(values)
        for name, p in found.items():
            losses.setdefault(name, []).append(log_loss(bunch.target[test], p))

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, values), style in zip(losses.items(), ("o-", "s--", "^--", "x:"), strict=True):
    ax.plot(levels, np.reshape(values, (2, -1)).mean(axis=0), style, label=name)
ax.set(xlabel="error bars of the test samples, times those of training", ylabel="log loss, mean of 2 splits")
ax.legend()
plt.show()

# %%
# The weights of the members of the last stack:

for weight, member in zip(stack.weights_, stack.members_, strict=True):
    print(f"{weight:.2f} {type(member).__name__}")
