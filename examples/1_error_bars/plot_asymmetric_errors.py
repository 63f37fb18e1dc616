"""
Asymmetric errors
=================

Catalogues often give ``12.3 +0.9 -0.4``. :class:`~gaussguru.errors.Asymmetric` assumes that the true value follows a
split normal distribution: two half Gaussians of different widths that meet at the stated value. Its mean differs from
the stated value. Averaging the two errors ignores this shift.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from gaussguru import ErrorBarClassifier
from gaussguru.errors import Asymmetric

value, lower, upper = 12.3, 0.4, 0.9
moved, deviation = (part.item() for part in Asymmetric([[lower]], [[upper]]).symmetric([[value]]))
grid = np.linspace(10.5, 15.5, 400)
split = np.where(grid < value, norm.pdf((grid - value) / lower), norm.pdf((grid - value) / upper)) * 2 / (lower + upper)

fig, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
ax.fill_between(grid, split, color="#0072B2", alpha=0.3, label="split normal of 12.3 +0.9 -0.4")
ax.plot(
    grid,
    norm.pdf(grid, moved, deviation),
    color="#0072B2",
    label=f"Gaussian with its mean and variance, {moved:.2f} ± {deviation:.2f}",
)
ax.plot(
    grid,
    norm.pdf(grid, value, (lower + upper) / 2),
    "--",
    color="#D55E00",
    label="12.3 ± 0.65, the two errors averaged",
)
ax.set(xlabel="true value", ylabel="probability density", xlim=(10.5, 15.5), ylim=(0, 0.9))
ax.legend(fontsize=8)
plt.show()

# %%
# For a fit, give lower and upper errors as arrays of the shape of X, or as columns ``flux_err1`` and ``flux_err2`` of a
# table (:func:`~gaussguru.preprocessing.errors_from_frame`).
rng = np.random.default_rng(0)
truth = rng.normal(size=(600, 2))
y = truth[:, 0] + 0.5 * rng.normal(size=600) > 0
sides = rng.uniform(0.1, 1.5, size=(2, 600, 2))
up = rng.random(truth.shape) < sides[1] / sides.sum(0)
noise = np.abs(rng.normal(size=truth.shape))
X = truth - np.where(up, sides[1] * noise, -sides[0] * noise)  # so that the true value given X is split normal
for name, X_err in (("asymmetric", Asymmetric(*sides)), ("averaged", sides.mean(0))):
    model = ErrorBarClassifier(model="linear", n_jobs=1).fit(X[:300], y[:300], X_err=X_err[:300])
    print(f"{name:14} accuracy {model.score(X[300:], y[300:], X_err=X_err[300:]):.3f}")
