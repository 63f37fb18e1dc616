"""
Populations that are no single Gaussian
=======================================

A measurement with a large error is moved towards the population. If that has several clouds, one Gaussian moves it
into the void between them. ``n_components`` of :class:`~gaussguru.population.Deconvolve` and
:class:`~gaussguru.ErrorBarClassifier` is the number of Gaussians; "auto" asks held-out samples.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru.population import Deconvolve

rng = np.random.default_rng(0)
centres = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
truth = centres[rng.integers(0, 3, size=900)] + rng.normal(size=(900, 2)) * 0.35
X_err = rng.choice([0.1, 1.2], p=[0.6, 0.4], size=(900, 1)) * np.ones((1, 2))
X = truth + X_err * rng.normal(size=truth.shape)

fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained", sharex=True, sharey=True)
axes[0].plot(*X.T, ".", color="0.5", markersize=2)
axes[0].set_title("measured")
for ax, n_components in zip(axes[1:], (1, "auto"), strict=True):
    model = Deconvolve(n_components, random_state=0).fit(X, X_err=X_err)
    mean = model.transform(X, X_err=X_err).X
    ax.plot(*mean.T, ".", color="#0072B2", markersize=2)
    distance = np.sqrt(np.mean((mean - truth) ** 2))
    ax.set_title(
        f"posterior means, {model.n_components_} Gaussian{'s' * (model.n_components_ > 1)}\nrms error {distance:.2f}"
    )
plt.show()
