"""
Samples as Gaussian clouds
==========================

:class:`~gaussguru.GuruClassifier` replaces each training sample by a Gaussian with the worst covariance of trace
``sigma**2``, and minimises the expected hinge loss. If ``sigma`` is small, it is a support vector machine, which
depends on the few samples near the boundary. If ``sigma`` is large, the direction of ``w`` tends to the difference of
the class means.
"""

import matplotlib.pyplot as plt

from gaussguru import GuruClassifier
from gaussguru.plotting import CloudDisplay
from gaussguru.thesis import make_gaussians

X, y = make_gaussians(60, random_state=0)
fig, axes = plt.subplots(1, 3, figsize=(10, 2.7), layout="constrained", sharex=True, sharey=True)
for ax, sigma in zip(axes, (0.05, 0.5, 1.5), strict=True):
    model = GuruClassifier(sigma).fit(X, y)
    CloudDisplay.from_estimator(model, X, y, ax=ax)
    ax.set_title(f"sigma = {sigma}")
    ax.get_legend().remove()
fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
plt.show()
