"""
Bounded displacements
=====================

:class:`~gaussguru.AdversarialSVC` minimises the hinge loss after an adversary has moved every sample by up to
``delta`` towards the boundary. :class:`~gaussguru.TotalSVC` moves every sample by up to ``delta`` in the direction
that lowers its loss.
"""

import matplotlib.pyplot as plt

from gaussguru import AdversarialSVC, TotalSVC
from gaussguru.plotting import DisplacementDisplay
from gaussguru.thesis import make_gaussians

X, y = make_gaussians(60, random_state=1)
fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharex=True, sharey=True)
for ax, model in zip(axes, (AdversarialSVC(delta=0.6), TotalSVC(delta=0.6)), strict=True):
    DisplacementDisplay.from_estimator(model.fit(X, y), X, y, ax=ax)
    ax.set_title(type(model).__name__)
    ax.get_legend().remove()
fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
plt.show()
