"""
The worst noise, seen
=====================

:func:`~gaussguru.worst_case_covariance` is the noise that hurts each sample most. Drawn on images it shows what the
classifier looks at, and how much noise it takes to change its mind.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gaussguru import GuruClassifier
from gaussguru.plotting import AdversarialSamplesDisplay

X, y = load_digits(return_X_y=True)
keep = np.isin(y, (3, 5))
X, y = X[keep], y[keep]
model = GuruClassifier(6.0).fit(X, y)
AdversarialSamplesDisplay.from_estimator(model, X[[0, 1, 2, 5]], image_shape=(8, 8), n_draws=5, random_state=0)
plt.show()
