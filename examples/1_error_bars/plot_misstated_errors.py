"""
Error bars that are wrong by a factor
=====================================

Stated errors are often too small. The measured values reveal this without any labels: samples with large errors must
scatter more than samples with small errors, by the amount that the errors state. With ``scale_errors=True``,
:class:`~gaussguru.population.Deconvolve` fits a factor on the errors of each feature by maximum likelihood. The factor
can be determined only if errors differ between samples; otherwise noise cannot be told from a wider population.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru.datasets import make_measured
from gaussguru.population import Deconvolve

stated = np.array([0.3, 0.5, 1.0, 2.0, 3.0])
found = np.zeros((5, len(stated), 2))
for seed in range(5):
    data = make_measured(1000, 2, error=(0.2, 2.0), random_state=seed)
    for k, factor in enumerate(stated):
        found[seed, k] = Deconvolve(scale_errors=True).fit(data.X, X_err=factor * data.X_err).error_scale_

fig, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
ax.plot(stated, found[:, :, 0].T, "o", color="#0072B2", alpha=0.5)
ax.plot(stated, 1 / stated, color="0.4", linestyle=":", label="correct factor")
ax.set(
    xscale="log",
    yscale="log",
    xlabel="stated error / true error",
    ylabel="estimated factor (error_scale_)",
)
ax.set_xticks(stated, [f"{factor:g}" for factor in stated])
ax.set_yticks(1 / stated, [f"{1 / factor:.2g}" for factor in stated])
ax.minorticks_off()
ax.legend()
plt.show()

# %%
# Labels offer a second way. ``kappa_`` of ``ErrorBarClassifier(model="linear", scale_errors=True)`` is the factor on
# the errors that best explains the labels of held-out samples. It is less precise than that from the measured values.
