"""
Noise models
============

By default, one number ``sigma`` describes the noise on all features. The parameter ``noise`` also takes the standard
deviation of each feature, a covariance, or ``"axis"``, worst-case noise that is independent between features. A feature
that will be noisy gets a smaller coefficient.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import GuruClassifier
from gaussguru.plotting import CloudDisplay
from gaussguru.thesis import make_gaussians

X, y = make_gaussians(40, random_state=0)
kinds = {
    "isotropic": "isotropic",
    "axis": "axis",
    "feature 1 noisy": np.array([1.8, 0.2]),
    "correlated": np.array([[1.0, 0.9], [0.9, 1.0]]),
}
fig, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained", sharex=True, sharey=True)
for ax, (name, noise) in zip(axes, kinds.items(), strict=True):
    CloudDisplay.from_estimator(GuruClassifier(0.8, noise=noise).fit(X, y), X, y, ax=ax)
    ax.set_title(name)
    ax.get_legend().remove()
fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
plt.show()
