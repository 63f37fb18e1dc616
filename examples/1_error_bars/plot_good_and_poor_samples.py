"""
A few precise samples among many noisy ones
===========================================

The errors are 0.05 times the spread of the features for 30 % of the training samples, and 2.5 times the spread for the
other 70 %. If errors are ignored, the noisy samples spoil the fit. Leaving them out discards information. A classifier
that knows the errors uses all samples.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured

names = ("all samples,\nerrors ignored", "precise samples\nonly", "all samples,\nwith their errors")
scores = np.zeros((4, 3))
for seed in range(4):
    data = make_measured(
        300, 20, pattern="two-level", error=(0.05, 2.5), n_factors=0, class_sep=10.0, n_test=4000, random_state=seed
    )
    precise = data.X_err.max(axis=1) < 1
    X, y = data.X_test, data.y_test
    scores[seed] = [
        LogisticRegression(C=0.1).fit(data.X, data.y).score(X, y),
        LogisticRegression(C=0.1).fit(data.X[precise], data.y[precise]).score(X, y),
        ErrorBarClassifier(model="linear", n_jobs=1).fit(data.X, data.y, X_err=data.X_err).score(X, y, X_err=0.0),
    ]

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.bar(names, scores.mean(0), yerr=scores.std(0, ddof=1) / 2, capsize=4, color=("#D55E00", "#56B4E9", "#0072B2"))
ax.plot(np.arange(3), scores.T, ".", color="0.2", markersize=4)
ax.set(ylabel="accuracy on exact test samples", ylim=(0.5, 1))  # 0.5 is chance
plt.show()
