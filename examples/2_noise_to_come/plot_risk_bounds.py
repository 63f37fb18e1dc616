"""
What a fit guarantees for new samples
=====================================

A classifier that is fitted for noise of a known size has a proven bound on its errors under this noise, made of the
samples of the fit alone: the noise level limits what the class of classifiers can learn by heart, whatever the number
of features. The PAC-Bayes bound is for noise in proportion to the length of a sample, at the level that suits it best.
A bound by samples that were held out is tighter than the first, but spends half of the samples.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import GuruClassifier
from gaussguru.plotting import RiskBoundDisplay
from gaussguru.robustness import risk_bound

rng = np.random.default_rng(0)
y = rng.choice([-1, 1], 20_000)
X = rng.normal(size=(20_000, 10)) + 1.22 * np.outer(y, np.eye(10)[0])
model = GuruClassifier(1.0, fit_intercept=False)

ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")[1]
for method in ("sigma", "pac-bayes", "holdout"):
    RiskBoundDisplay.from_estimator(model, X, y, method=method, ax=ax)
plt.show()

# %%
# What is bounded, and what must be true:
for method in ("sigma", "pac-bayes"):
    found = risk_bound(model.fit(X, y), X, y, method=method)
    print(f"{found.bound:.3f}: {found.risk};\n  if {found.assumption}")
