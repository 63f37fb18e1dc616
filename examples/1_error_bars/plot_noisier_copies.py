"""
Noisier copies of the training samples
======================================

A classifier that knows nothing of errors learns how steep the change from one class to the other is at the noise of its
training samples. For samples that are measured less well it is overconfident. :class:`~gaussguru.ErrorBarClassifier`
gives its members a noisier copy of every sample, made by adding noise, beside the posterior means. The copies show them
how the classes look under more noise: dots are the shares of a class among noisy new samples, which the curves
should follow.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured
from gaussguru.plotting import style

data = make_measured(41_500, 1, error=0.2, class_sep=4.0, random_state=0)
train, new = slice(0, 1500), slice(1500, None)
plain = ErrorBarClassifier(model="boosting").fit(data.X[train], data.y[train])
aware = ErrorBarClassifier(model="boosting").fit(data.X[train], data.y[train], X_err=data.X_err[train])

rng = np.random.default_rng(0)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
values = np.linspace(-2.5, 2.5, 101)
for ax, times in zip(axes, (1, 3), strict=True):
    errors = times * data.X_err[new]
    noisy = data.truth[new] + errors * rng.normal(size=errors.shape)
    place = np.digitize(noisy[:, 0], np.linspace(-2.5, 2.5, 21))
    middles = [noisy[place == k, 0].mean() for k in range(1, 21)]
    shares = [data.y[new][place == k].mean() for k in range(1, 21)]
    ax.plot(middles, shares, "o", color="0.4", label="share of the class")
    ax.plot(values, plain.predict_proba(values[:, None])[:, 1], color="C1", label="boosting, errors ignored")
    given = np.full((101, 1), times * 0.2)
    ax.plot(values, aware.predict_proba(values[:, None], X_err=given)[:, 1], color="C0", label="with noisier copies")
    style.finish(ax, "measured value", "probability of class 1", f"errors {times} x those of training", legend=False)
axes[0].legend(fontsize=style.SMALL)
plt.show()
