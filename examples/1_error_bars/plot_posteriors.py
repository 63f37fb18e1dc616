"""
Posteriors of the true values
=============================

Measured values are true values plus noise, so they scatter more widely than the true values.
:class:`~gaussguru.population.Deconvolve` estimates the population of true values and computes a posterior for the true
value of each sample. The posterior mean is close to the measured value if its error is small, and close to the mean of
the population if its error is large.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from gaussguru.datasets import make_measured
from gaussguru.population import Deconvolve

data = make_measured(400, 2, error=(0.1, 1.5), pattern="varied", n_factors=1, random_state=3)
population = Deconvolve().fit(data.X, X_err=data.X_err)
posterior = population.transform(data.X, X_err=data.X_err)

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True)
some = slice(0, 25)
left.errorbar(
    *data.X[some].T,
    xerr=data.X_err[some, 0],
    yerr=data.X_err[some, 1],
    fmt="o",
    markersize=3,
    linewidth=0.7,
    color="0.4",
)
left.set_title("measured, with error bars")
for start, end, covariance in zip(data.X[some], posterior.X[some], posterior.err[some], strict=True):
    right.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.6", "linewidth": 0.8})
    lengths, axes = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(*axes[::-1, 1]))
    right.add_patch(Ellipse(end, *2 * np.sqrt(lengths[::-1]), angle=angle, color="#0072B2", alpha=0.2, linewidth=0))
right.plot(*data.truth[some].T, "x", color="#D55E00", markersize=5, label="true value")
right.plot(*posterior.X[some].T, "o", color="#0072B2", markersize=3, label="posterior mean, 1 std. dev.")
right.set_title("posteriors of the true values")
right.legend(loc="upper right", fontsize=8)
for ax in (left, right):
    ax.set(xlabel="feature 1", aspect="equal")
left.set_ylabel("feature 2")
plt.show()

# %%
# Root mean square distance to the true values:
for name, values in (("measured", data.X), ("posterior mean", posterior.X)):
    print(f"{name:15} {np.sqrt(np.mean((values - data.truth) ** 2)):.2f}")
