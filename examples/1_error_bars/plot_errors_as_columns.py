"""
A pitfall: errors as additional features
========================================

It is tempting to append the errors to the features and to train a forest on both. As long as new data is selected like
the training data, this works, often surprisingly well. Here most objects of class 1 were observed a second time, and
few of class 0, so that small errors indicate class 1. The forest learns this selection. On data without second
observations it fails.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from gaussguru import ErrorBarClassifier
from gaussguru.population import predictive_of_errors

rng = np.random.default_rng(0)


def survey(n, *, selected):
    """Return values, errors and classes; errors are half as large for objects that were observed twice."""
    y = rng.integers(0, 2, size=n)
    truth = rng.normal(size=(n, 3)) + 0.8 * y[:, np.newaxis]
    twice = selected & (rng.random(n) < np.where(y == 1, 0.8, 0.2))
    X_err = rng.uniform(0.5, 1.5, size=truth.shape) * np.where(twice, 0.5, 1.0)[:, np.newaxis]
    return truth + X_err * rng.normal(size=truth.shape), X_err, y


X, X_err, y = survey(1500, selected=True)
forest = RandomForestClassifier(200, min_samples_leaf=5, random_state=0, n_jobs=1)
plain, with_columns = forest.fit(X, y), RandomForestClassifier(200, min_samples_leaf=5, random_state=0)
with_columns.fit(np.hstack([X, X_err]), y)
ours = ErrorBarClassifier(n_jobs=1).fit(X, y, X_err=X_err)

names = ("forest", "forest, errors\nas features", "ErrorBarClassifier")
scores = []
for selected in (True, False):
    new, err, labels = survey(3000, selected=selected)
    scores.append(
        [
            plain.score(new, labels),
            with_columns.score(np.hstack([new, err]), labels),
            ours.score(new, labels, X_err=err),
        ]
    )
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for k, (values, label) in enumerate(zip(scores, ("selected as in training", "no second observations"), strict=True)):
    bars = ax.bar(np.arange(3) + 0.4 * k, values, 0.38, label=label, color=("#56B4E9", "#D55E00")[k])
    ax.bar_label(bars, fmt="%.2f", fontsize=8)
ax.set_xticks(np.arange(3) + 0.2, names)
ax.set(ylabel="accuracy", ylim=(0.5, 1.0))
ax.legend()
plt.show()

# %%
# :func:`~gaussguru.population.predictive_of_errors` detects this: how well do the sizes of the errors alone predict the
# class? (Area under the ROC curve; 0.5 means not at all.)
print(f"{predictive_of_errors(X_err, y):.2f}")
