"""
Your own loss
=============

Any convex, nondecreasing ``f`` with ``f - z f' >= 0`` that becomes the hinge far out will do. It needs three
functions in NumPy, and gets the solvers and the certificate with them. This one rounds the hinge off by a hyperbola.
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
        # (z + root) / 2 cancels for z < 0: c^2 / (root - z) / 2 is the same.
        value = np.where(z > 0, (z + root) / 2, self.c**2 / (root + np.abs(z)) / 2)
        return value, value / root, self.c**2 / (2 * root**3)

    def slope_inverse(self, alpha):
        """Return the z where f' is alpha."""
        return self.c * (2 * alpha - 1) / (2 * np.sqrt(alpha * (1 - alpha)))

    def conjugate(self, alpha):
        """Return f - z f' there."""
        return self.c * np.sqrt(alpha * (1 - alpha))


loss = Hyperbola()
check_loss(loss)  # raises, and says which condition fails, if one does

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
model = GuruClassifier(0.5, loss=loss).fit(X, y)
print(f"accuracy {model.score(X, y):.3f}, proven gap {model.dual_gap_:.1e}")

LossDisplay.from_losses(["gaussian", "logistic", loss])
plt.show()
