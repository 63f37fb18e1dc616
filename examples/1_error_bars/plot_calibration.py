"""
Calibrated probabilities for small and large errors
===================================================

Of the samples with a predicted probability of 0.8, 80 % should belong to the class, whether their errors are small or
large. The figure compares three ways to turn the same linear scores into probabilities:

* noise alone, ``Phi(score / spread)``, ignores the overlap of the classes: overconfident where errors are small;
* Platt scaling uses one curve for all samples: underconfident where errors are small, overconfident where they are
  large;
* :class:`~gaussguru.calibration.CalibratedWithErrorsCV` accounts for both overlap and noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss

from gaussguru import GuruClassifier
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.datasets import make_measured
from gaussguru.population import Deconvolve

data = make_measured(6000, 2, pattern="two-level", error=(0.1, 2.0), class_sep=2.0, random_state=0)
rows = np.random.default_rng(0).permutation(6000)
train, test = rows[:3000], rows[3000:]
population = Deconvolve().fit(data.X[train], X_err=data.X_err[train])
known, new = (population.transform(data.X[part], X_err=data.X_err[part]) for part in (train, test))
y, y_new = data.y[train], data.y[test]

calibrated = CalibratedWithErrorsCV(GuruClassifier(0.5)).fit(known, y)
platt = CalibratedClassifierCV(GuruClassifier(0.5), ensemble=False).fit(known.X, y)
score, spread = calibrated.estimator_.margin_and_spread(new)
proba = {
    "noise alone": ndtr(score / spread),
    "Platt scaling": platt.predict_proba(new.X)[:, 1],
    "overlap and noise": calibrated.predict_proba(new)[:, 1],
}

small = data.X_err[test].max(1) < 1.0
fig, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
for ax, part, title in ((axes[0], small, "samples with error 0.1"), (axes[1], ~small, "samples with error 2")):
    for (name, p), style in zip(proba.items(), ("^:", "s--", "o-"), strict=True):
        edges = np.unique(np.quantile(p[part], np.linspace(0, 1, 9)))
        bins = np.clip(np.searchsorted(edges, p[part], side="right") - 1, 0, len(edges) - 2)
        filled = np.unique(bins)
        ax.plot(
            [p[part][bins == k].mean() for k in filled],
            [y_new[part][bins == k].mean() for k in filled],
            style,
            label=name,
        )
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0)
    ax.set(xlabel="predicted probability", title=title)
axes[0].set_ylabel("observed frequency")
axes[0].legend()
plt.show()

# %%
# Log loss over all test samples (lower is better):
for name, p in proba.items():
    print(f"{name:18} {log_loss(y_new, p):.3f}")
