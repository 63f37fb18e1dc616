"""
A pool of classifiers
=====================

Which classifier suits a table is seldom known beforehand. :class:`~gaussguru.ErrorBarClassifier` fits several, and
averages their probabilities with weights that make held-out samples most likely. ``cv_scores_`` is the table of log
losses on held-out samples, as they were measured and with more noise. The data are breast tumours: ten properties of
cell nuclei with their standard errors.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import load_wdbc

data = load_wdbc()
model = ErrorBarClassifier().fit(data.data, data.target, X_err=data.error)
scores = model.cv_scores_

rows = np.flatnonzero(scores["member"] != "error sizes used")
places = np.arange(len(rows))
fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for key, label, shift, color in (
    ("log_loss", "as measured", -0.2, "#56B4E9"),
    ("log_loss_noisier", "with more noise", 0.2, "#D55E00"),
):
    bars = ax.barh(places + shift, scores[key][rows], 0.38, label=label, color=color)
    ax.bar_label(bars, fmt="%.3f", fontsize=8, padding=2)
ax.set_yticks(places, scores["member"][rows])
ax.get_yticklabels()[list(scores["member"][rows]).index("pool")].set_weight("bold")
ax.invert_yaxis()
ax.set(xlabel="log loss of held-out samples (lower is better)", xlim=(0, 0.76))
ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.12))
plt.show()

# %%
# The same in words. Weights are means over the samples.
for name, *numbers in zip(*scores.values(), strict=True):
    weight, loss, weight_noisier, loss_noisier = numbers
    weights = "" if np.isnan(weight) else f"   weight {weight:.2f}, with more noise {weight_noisier:.2f}"
    print(f"{name:22} {loss:.3f}, with more noise {loss_noisier:.3f}{weights}")

# %%
# "errors ignored" is boosting on the measured values alone: as good as the members for samples that are measured as in
# training, and behind all of them with more noise. "error sizes used" is boosting that also takes the sizes of the
# errors as features. What they gain lasts as long as samples are selected and measured as in training, so
# ``use_error_sizes`` is off by default.
