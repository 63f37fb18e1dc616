"""
The cost of ignoring error bars
===============================

Classifiers of tumours are trained on ten properties of the cells, each with a standard error. Then noise is added to
the test samples, so that their error bars are up to three times as large. Classifiers that ignore the error bars become
overconfident. A classifier that uses them becomes less certain, as it should.

With the errors of training all methods are about equal: if the noise is the same in training and in use, any classifier
learns its effect.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import load_wdbc

data = load_wdbc()
multiples = (1, 1.5, 2, 3)
names = ("ErrorBarClassifier", "logistic regression", "random forest")
losses = np.zeros((2, 4, 3))
for seed in range(2):
    X, X_test, err, err_test, y, y_test = train_test_split(
        data.data, data.error, data.target, test_size=0.4, stratify=data.target, random_state=seed
    )
    ours = ErrorBarClassifier(cv=2, n_jobs=1).fit(X, y, X_err=err)
    others = [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y),
        RandomForestClassifier(100, min_samples_leaf=3, random_state=0).fit(X, y),
    ]
    noise = np.random.default_rng(seed).normal(size=X_test.shape)
    for k, c in enumerate(multiples):
        seen = X_test + np.sqrt(c**2 - 1) * err_test * noise
        losses[seed, k, 0] = log_loss(y_test, ours.predict_proba(seen, X_err=c * err_test))
        losses[seed, k, 1:] = [log_loss(y_test, other.predict_proba(seen)) for other in others]

fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for name, mean, deviation, marker in zip(names, losses.mean(0).T, losses.std(0, ddof=1).T, "os^", strict=True):
    ax.errorbar(multiples, mean, deviation / np.sqrt(2), marker=marker, capsize=3, label=name)
ax.set(xlabel="error bars in use / error bars in training", ylabel="log loss (lower is better)", ylim=(0, None))
ax.set_xticks(multiples)
ax.legend()
plt.show()
