"""
Error bars that are wrong by a factor
=====================================

Stated errors are often too small. The spread of the measured values tells, without any labels: samples of large
stated errors must scatter more than those of small ones, by as much as the errors say. ``scale_errors=True`` of
:class:`~gaussguru.population.Deconvolve` fits a factor for each feature by maximum likelihood. It needs errors that
differ between samples: from equal errors nobody can tell noise from a wider population.
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

fig, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
ax.plot(stated, found[:, :, 0].T, "o", color="#0072B2", alpha=0.5)
ax.plot(stated, 1 / stated, color="0.4", linestyle=":", label="right: 1 / factor")
ax.set(
    xscale="log",
    yscale="log",
    xlabel="errors stated, in units of the true ones",
    ylabel="factor of them that was found",
)
ax.set_xticks(stated, [f"{factor:g}" for factor in stated])
ax.set_yticks(1 / stated, [f"{1 / factor:.2g}" for factor in stated])
ax.minorticks_off()
ax.legend()
plt.show()

# %%
# With labels there is a second way, ``ErrorBarClassifier(scale_errors=True)``: its ``kappa_`` is the factor that
# explains the classes of left-out samples best. It is known less well.
