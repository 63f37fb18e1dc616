"""
More than two classes
=====================

All pairs of classes enter one optimisation problem, with the same certificate as for two classes.
:func:`~gaussguru.robustness.class_probabilities` returns the probability that noise on a sample leaves each class with
the highest score.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import GuruClassifier
from gaussguru.plotting import RegionsDisplay, style
from gaussguru.robustness import class_probabilities
from gaussguru.thesis import make_gaussian_ring

X, y = make_gaussian_ring(200, n_classes=4, random_state=0)
model = GuruClassifier(0.3).fit(X, y)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
RegionsDisplay.from_estimator(model, X, y, ax=left)
left.get_legend().remove()

sample = X[:1] * 0.35
left.plot(*sample.T, "*", color="black", markeredgecolor="white", markersize=16, zorder=10)
levels = np.linspace(0.05, 3, 25)
probabilities = [class_probabilities(model, sample, X_err=np.array([level]))[0] for level in levels]
for c, values in enumerate(np.transpose(probabilities)):
    right.plot(levels, values, color=style.PALETTE[c], linestyle=("-", "--", "-.", ":")[c], label=f"class {c}")
right.set(xlabel="noise on the sample at the star (std. dev.)", ylabel="probability of the highest score", ylim=(0, 1))
right.legend()
plt.show()

# %%
# One row of coefficients for each class (the rows add up to zero), and the certificate:
print(model.coef_.round(2), f"gap {model.dual_gap_:.1e}", sep="\n")
