"""
The losses
==========

The hinge loss of a sample whose margin carries Gaussian noise, averaged over the noise, is a smooth curve: ``a f(m /
a)`` with ``f(z) = z Phi(z) + phi(z)``, ``m`` the slack and ``a`` the noise on it. Less noise brings it closer to the
hinge. Two cheaper curves have the same value at 0, so that ``sigma`` means the same.
"""

import matplotlib.pyplot as plt

from gaussguru.plotting import LossDisplay

fig, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
LossDisplay.from_sigmas((0.1, 0.5, 1.0, 2.0), ax=axes[0])
LossDisplay.from_losses(ax=axes[1])
LossDisplay.from_conjugates(ax=axes[2])
for ax, place in zip(axes, ("upper right", "upper left", "lower center"), strict=True):
    ax.legend(loc=place, fontsize=8)
plt.show()
