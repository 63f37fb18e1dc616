"""
Many classes
============

More than two classes are solved jointly, each against each other, to the same certificate. Noise moves a sample from
one class to several others; :func:`~gaussguru.robustness.class_probabilities` says how often to which.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import GuruClassifier
from gaussguru.datasets import make_gaussian_ring
from gaussguru.plotting import RegionsDisplay, style
from gaussguru.robustness import class_probabilities

X, y = make_gaussian_ring(200, n_classes=4, random_state=0)
model = GuruClassifier(0.3).fit(X, y)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
RegionsDisplay.from_estimator(model, X, y, ax=left)
left.get_legend().remove()

sample = X[:1] * 0.35
left.plot(*sample.T, "k*", markersize=12)
levels = np.linspace(0.05, 3, 25)
probabilities = [class_probabilities(model, sample, X_err=np.array([level]))[0] for level in levels]
for c, values in enumerate(np.transpose(probabilities)):
    right.plot(levels, values, color=style.PALETTE[c], linestyle=("-", "--", "-.", ":")[c], label=f"class {c}")
right.set(xlabel="noise on the sample ★", ylabel="probability to be on top", ylim=(0, 1))
right.legend()
plt.show()

# %%
# One row of weights for each class, adding up to zero, and the proof.
print(model.coef_.round(2), f"gap {model.dual_gap_:.1e}", sep="\n")
