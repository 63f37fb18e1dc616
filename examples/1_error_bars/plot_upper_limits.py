"""
Upper limits
============

The brightness of an object that was not detected is not missing: it is known to be below the detection limit. Without
such objects, the estimated population is too bright. :class:`~gaussguru.errors.Limits` includes them as upper limits.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from gaussguru.errors import Limits
from gaussguru.population import Deconvolve

rng = np.random.default_rng(0)
truth = rng.normal(0.0, 1.0, size=(2000, 1))
errors = np.full_like(truth, 0.3)
measured = truth + errors * rng.normal(size=truth.shape)
seen = measured > 0.0  # the detection limit
X = np.where(seen, measured, 0.0)

counted = Deconvolve().fit(X, X_err=Limits(errors, np.where(seen, 0, -1)))
left_out = Deconvolve().fit(X[seen[:, 0]], X_err=errors[seen[:, 0]])

grid = np.linspace(-4, 4, 300)
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
ax.hist(
    measured[seen],
    bins=30,
    weights=np.full(seen.sum(), 1 / 2000 / 0.12),
    color="0.8",
    label="detections",
)
ax.axvline(0.0, color="0.3", linestyle=":", label="detection limit")
ax.plot(grid, norm.pdf(grid), "k", linewidth=0.8, label="true population")
for name, model, style in (("with upper limits", counted, "-"), ("detections only", left_out, "--")):
    mean, deviation = model.means_[0, 0], np.sqrt(model.covariances_[0, 0, 0])
    ax.plot(grid, norm.pdf(grid, mean, deviation), style, label=f"{name}: {mean:.2f} ± {deviation:.2f}")
ax.set(xlabel="brightness", ylabel="probability density")
ax.legend(fontsize=8)
plt.show()
