"""
Error bars that are wrong by a factor
=====================================

Stated errors are often too small. With labels, ``scale_errors=True`` fits a factor ``kappa`` of all error bars to what
the classes of left-out samples say. It needs errors that differ between samples, and enough samples: look at how far the
estimates scatter.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured

stated = (0.5, 1.0, 2.0)
found = np.zeros((4, 3))
for seed in range(4):
    data = make_measured(1500, 2, error=(0.2, 2.0), class_sep=6.0, random_state=seed)
    for k, factor in enumerate(stated):
        model = ErrorBarClassifier(methods=("shrunk",), scale_errors=True, n_jobs=1)
        found[seed, k] = model.fit(data.X, data.y, X_err=factor * data.X_err).kappa_

fig, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
ax.plot(stated, found.T, "o", color="#0072B2", alpha=0.6)
ax.plot(stated, 1 / np.array(stated), color="0.4", linestyle=":", label="1 / factor")
ax.set(
    xscale="log", xlabel="errors stated, in units of the true ones", ylabel="kappa: their factor, as found", xticks=stated,
    xticklabels=[f"{factor:g}" for factor in stated],
)  # fmt: skip
ax.minorticks_off()
ax.legend()
plt.show()
