"""
A proof with every fit
======================

A fit ends when the duality gap, a proven bound on the distance to the optimum, is small enough. The gap is computed
in every iteration; here a fit is stopped early, again and again, to see what would have been proven.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from gaussguru import GuruClassifier
from gaussguru.plotting import ConvergenceDisplay

X, y = load_digits(return_X_y=True)
y = y % 2
display = ConvergenceDisplay.from_estimator(GuruClassifier(1.0, tol=1e-9), X, y)
plt.show()

# %%
# The certificate of a classifier that was found in another way, here by one pass of stochastic gradient descent.
stream = GuruClassifier(1.0, solver="sgd", random_state=0).partial_fit(X, y, classes=[0, 1])
proof = stream.certificate(X, y)
print(f"objective {proof.primal:.1f}, and no classifier is below {proof.dual:.1f}")
