"""
Accuracy under noise, without sampling
======================================

The expected accuracy of a linear classifier under Gaussian noise has a closed form. A robustness curve shows it against
the noise level, here for images of digits whose pixels are noisier in use than in training. ``LinearSVC`` has its
default ``C``. With a ``C`` chosen on noisy samples it would be as accurate as GURU; the parameter of GURU is the noise
level itself and needs no such search.
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
fig, ax = plt.subplots(figsize=(4.3, 3.8), layout="constrained")
for name, model in models.items():
    RobustnessCurveDisplay.from_estimator(
        model, X[1::2], y[1::2], noise_levels=np.linspace(0, 12, 13), unit="grey levels, 0 to 16", name=name, ax=ax
    )
plt.show()

# %%
# For single predictions: the probability that noise with a standard deviation of 4 on every pixel changes the label,
# and the length of the shortest displacement that changes it.
model = models["GURU, sigma 8"]
print(flip_probability(model, X[1:6:2], X_err=np.full(3, 4.0)).round(4))
print(certified_radius(model, X[1:6:2]).round(1))
