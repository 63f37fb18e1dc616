"""
Convergence and the duality gap
===============================

A fit stops when the duality gap, a proven upper bound on the distance to the optimum, is small enough. The figure shows
the gap and the objective of fits that were stopped after 1, 2, 3, ... iterations.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from gaussguru import GuruClassifier
from gaussguru.plotting import ConvergenceDisplay

X, y = load_digits(return_X_y=True)
y = y % 2
fig, ax = plt.subplots(figsize=(4.3, 3.8), layout="constrained")
ConvergenceDisplay.from_estimator(GuruClassifier(1.0, tol=1e-9), X, y, ax=ax)
plt.show()

# %%
# A certificate can be computed for any classifier, here for one from a single pass of stochastic gradient descent.
stream = GuruClassifier(1.0, solver="sgd", random_state=0).partial_fit(X, y, classes=[0, 1])
proof = stream.certificate(X, y)
print(f"objective {proof.primal:.1f}; no classifier has an objective below {proof.dual:.1f}")
