"""
The losses
==========

The expected hinge loss of a margin with Gaussian noise is a smooth function, ``a f(m / a)`` with ``f(z) = z Phi(z) +
phi(z)``. Here ``m`` is the slack ``1 - y (w.x + b)`` and ``a`` its standard deviation under the noise. As ``a``
decreases, it approaches the hinge (left). The logistic and the quadratic loss are similar functions that are cheaper
to compute (centre). Their value at 0 is the same, so that ``sigma`` keeps its meaning. The moment loss is the largest
expected hinge loss under noise with this standard deviation and any distribution, so it is above the others. The
conjugates of the losses (right) appear in the dual problem.
"""

import matplotlib.pyplot as plt

from gaussguru.plotting import LossDisplay

fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.8), layout="constrained")
LossDisplay.from_sigmas((0.1, 0.5, 1.0, 2.0), ax=axes[0])
LossDisplay.from_losses(ax=axes[1])
LossDisplay.from_conjugates(ax=axes[2])
titles = ("Expected hinge loss, $\\|w\\| = 1$", "Standardised losses", "Conjugates")
for ax, title, place in zip(axes, titles, ("upper right", "upper left", "lower center"), strict=True):
    ax.set_title(title)
    ax.legend(loc=place, fontsize=8)
plt.show()
