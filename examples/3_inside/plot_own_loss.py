"""
Your own loss
=============

A loss is any convex, nondecreasing ``f`` with ``f - z f' >= 0`` that approaches the hinge for large ``|z|``. Three
functions in NumPy define it; solvers and certificates then work with it. This example is a hyperbola with the two
branches of the hinge as asymptotes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from gaussguru import GuruClassifier
from gaussguru.losses import Loss, check_loss
from gaussguru.plotting import LossDisplay


class Hyperbola(Loss):
    """``f(z) = (z + sqrt(z^2 + c^2)) / 2``, with ``f(0) = 1/sqrt(2 pi)`` as for Gaussian noise."""

    c = 2 / np.sqrt(2 * np.pi)

    def terms(self, z):
        """Return f, f' and f''."""
        root = np.hypot(z, self.c)
        # (z + root) / 2 loses digits for z < 0; c^2 / (root - z) / 2 is equal and does not.
        value = np.where(z > 0, (z + root) / 2, self.c**2 / (root + np.abs(z)) / 2)
        return value, value / root, self.c**2 / (2 * root**3)

    def slope_inverse(self, alpha):
        """Return the z where f' is alpha."""
        return self.c * (2 * alpha - 1) / (2 * np.sqrt(alpha * (1 - alpha)))

    def conjugate(self, alpha):
        """Return f - z f' where f' is alpha."""
        return self.c * np.sqrt(alpha * (1 - alpha))


loss = Hyperbola()
check_loss(loss)  # raises an error that names the condition if one fails

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
model = GuruClassifier(0.5, loss=loss).fit(X, y)
print(f"accuracy {model.score(X, y):.3f}, proven gap {model.dual_gap_:.1e}")

fig, ax = plt.subplots(figsize=(4.3, 3.8), layout="constrained")
LossDisplay.from_losses(["gaussian", "logistic", loss], ax=ax)
plt.show()
