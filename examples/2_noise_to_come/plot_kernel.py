"""
Kernels for nonlinear boundaries
================================

:class:`~gaussguru.KernelGuruClassifier` is used like ``SVC``. Its noise acts in the feature space of the kernel: with
a small ``sigma`` the boundary follows single samples, with a large ``sigma`` it is smooth. With an RBF kernel every
sample has length 1 in that space, so the useful range of ``sigma`` is about 0.001 to 0.3. Crosses mark misclassified
samples.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from gaussguru import KernelGuruClassifier
from gaussguru.plotting import RegionsDisplay

X, y = make_moons(250, noise=0.25, random_state=0)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharex=True, sharey=True)
for ax, sigma in zip(axes, (0.001, 0.03, 0.3), strict=True):
    model = KernelGuruClassifier(sigma, gamma=2.0).fit(X, y)
    RegionsDisplay.from_estimator(model, X, y, ax=ax)
    ax.set_title(f"sigma = {sigma}, gap {model.dual_gap_:.0e}")
    ax.get_legend().remove()
plt.show()
