"""
Populations with several clusters
=================================

The posterior mean of a noisy measurement lies between the measured value and the population. If the population has
several clusters, a single Gaussian puts the posterior mean into the empty region between them; a mixture does not.
``n_components`` of :class:`~gaussguru.population.Deconvolve` is the number of Gaussians; ``"auto"`` chooses it by the
likelihood of held-out samples.
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
axes[0].set_title(f"measured\nrms error {np.sqrt(np.mean((X - truth) ** 2)):.2f}")
for ax, n_components in zip(axes[1:], (1, "auto"), strict=True):
    model = Deconvolve(n_components, random_state=0).fit(X, X_err=X_err)
    mean = model.transform(X, X_err=X_err).X
    ax.plot(*mean.T, ".", color="#0072B2", markersize=2)
    distance = np.sqrt(np.mean((mean - truth) ** 2))
    ax.set_title(
        f"posterior means, {model.n_components_} Gaussian{'s' * (model.n_components_ > 1)}\nrms error {distance:.2f}"
    )
for ax in axes:
    ax.set_xlabel("feature 1")
axes[0].set_ylabel("feature 2")
plt.show()
