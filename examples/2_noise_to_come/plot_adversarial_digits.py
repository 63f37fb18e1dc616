"""
The worst-case noise on images
==============================

:func:`~gaussguru.worst_case_covariance` returns the noise that increases the loss of each sample most. Drawn on
images, it shows which pixels the classifier uses. The digits are ordered by their distance to the decision boundary,
the closest first: noise of the same size changes labels in the first rows, and none in the last ones.
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
doubtful_first = np.argsort(np.abs(model.decision_function(X)))
AdversarialSamplesDisplay.from_estimator(
    model, X[doubtful_first[[5, 25, 75, 150]]], image_shape=(8, 8), n_draws=5, random_state=0
)
plt.show()
