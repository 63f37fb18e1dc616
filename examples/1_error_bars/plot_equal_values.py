"""
Equal values, different error bars
==================================

A measured value of 1 says a lot if its error is 0.1, and little if it is 2. A classifier that sees only the value
gives both samples the same probability. :class:`~gaussguru.ErrorBarClassifier` does not.

The data has one feature and a known population, so the best possible probabilities are known, too: the thin lines.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured

data = make_measured(1000, 1, random_state=0)
model = ErrorBarClassifier().fit(data.X, data.y, X_err=data.X_err)

values = np.linspace(-3, 3, 201)[:, np.newaxis]
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for error, color in ((0.1, "#0072B2"), (0.7, "#009E73"), (2.0, "#D55E00")):
    errors = np.full_like(values, error)
    ax.plot(values, model.predict_proba(values, X_err=errors)[:, 1], color=color, label=f"error {error:g}")
    ax.plot(values, data.population.predict_proba(values, errors)[:, 1], color=color, linewidth=0.7, alpha=0.6)
for error, color in ((0.1, "#0072B2"), (2.0, "#D55E00")):
    p = model.predict_proba([[1.0]], X_err=[[error]])[0, 1]
    ax.errorbar([1.0], [p], xerr=[error], color=color, marker="o", capsize=4)
    ax.annotate(
        f"1 ± {error:g}: P = {p:.2f}",
        (1.0, p),
        xytext=(10, -16 if error > 1 else -34),
        textcoords="offset points",
        color=color,
    )
ax.set(xlabel="measured value", ylabel="probability of class 1", xlim=(-3, 3))
ax.legend()
plt.show()

# %%
# The same two samples in numbers.
print(model.predict_proba([[1.0], [1.0]], X_err=[[0.1], [2.0]])[:, 1].round(2))
