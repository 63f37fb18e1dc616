"""
Equal values, different error bars
==================================

A measured value of 1 is strong evidence if its error is 0.1, and weak evidence if its error is 2. A classifier that
sees only the value gives both samples the same probability. :class:`~gaussguru.ErrorBarClassifier` does not; here with
one linear score.

The data is simulated from a known population, so the best possible probabilities are known, too (thin grey lines).
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured

data = make_measured(1000, 1, random_state=0)
model = ErrorBarClassifier(model="linear").fit(data.X, data.y, X_err=data.X_err)

values = np.linspace(-3, 3, 201)[:, np.newaxis]
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for error, color, style in ((0.1, "#0072B2", "-"), (0.7, "#009E73", "-."), (2.0, "#D55E00", "--")):
    errors = np.full_like(values, error)
    ax.plot(values, model.predict_proba(values, X_err=errors)[:, 1], style, color=color, label=f"error {error:g}")
    (best,) = ax.plot(values, data.population.predict_proba(values, errors)[:, 1], color="0.5", linewidth=0.8)
best.set_label("best possible")
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
# The probabilities of the two samples:
print(model.predict_proba([[1.0], [1.0]], X_err=[[0.1], [2.0]])[:, 1].round(2))
