"""
Accuracy under noise, without sampling
======================================

What noise does to a linear classifier has a closed form. A robustness curve compares classifiers at noise levels to
come, here handwritten digits whose pixels will be noisier than those in training. ``LinearSVC`` is at its defaults:
told of the noise by way of its ``C``, chosen on noisy samples, it would be level with GURU. What GURU adds is a
parameter that *is* the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

from gaussguru import GuruClassifier
from gaussguru.plotting import RobustnessCurveDisplay
from gaussguru.robustness import certified_radius, flip_probability

X, y = load_digits(return_X_y=True)
keep = np.isin(y, (3, 8))
X, y = X[keep], y[keep]
models = {
    "LinearSVC": LinearSVC(dual=False).fit(X[::2], y[::2]),
    "GURU, sigma 1": GuruClassifier(1.0).fit(X[::2], y[::2]),
    "GURU, sigma 8": GuruClassifier(8.0).fit(X[::2], y[::2]),
}
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for name, model in models.items():
    RobustnessCurveDisplay.from_estimator(
        model, X[1::2], y[1::2], noise_levels=np.linspace(0, 12, 13), unit="grey levels of 16", name=name, ax=ax
    )
plt.show()

# %%
# Of single predictions: the probability that noise of standard deviation 4 on every pixel changes the label, and the
# length of the shortest displacement that does.
model = models["GURU, sigma 8"]
print(flip_probability(model, X[1:6:2], X_err=np.full(3, 4.0)).round(4))
print(certified_radius(model, X[1:6:2]).round(1))
