"""
Samples as clouds
=================

:class:`~gaussguru.GuruClassifier` replaces each training sample by a Gaussian cloud of standard deviation ``sigma``
and minimises the expected hinge loss. With little noise it is a support vector machine, and few samples decide; with
much it looks at the means of the classes.
"""

import matplotlib.pyplot as plt

from gaussguru import GuruClassifier
from gaussguru.datasets import make_gaussians
from gaussguru.plotting import CloudDisplay

X, y = make_gaussians(60, random_state=0)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained", sharex=True, sharey=True)
for ax, sigma in zip(axes, (0.05, 0.5, 1.5), strict=True):
    model = GuruClassifier(sigma).fit(X, y)
    CloudDisplay.from_estimator(model, X, y, ax=ax)
    ax.set_title(f"sigma = {sigma}")
    ax.get_legend().remove()
fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
plt.show()
