"""
Choosing sigma
==============

If the noise in use is known, ``sigma`` is its standard deviation. If not, :class:`~gaussguru.GuruClassifierCV` computes
a path of noise levels, from large to small, in every fold, and chooses the level with the best mean score. Among equal
scores it chooses the largest level.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from gaussguru import GuruClassifier, GuruClassifierCV
from gaussguru.plotting import SigmaPathDisplay

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
model = GuruClassifierCV(15, cv=5).fit(X, y)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
SigmaPathDisplay.from_cv(model, unit="spreads of the features", ax=left)
SigmaPathDisplay.from_estimator(
    GuruClassifier(), X, y, sigmas=15, quantity="norm", unit="spreads of the features", ax=right
)
left.legend(loc="lower left")
plt.show()

# %%
# The chosen level, and the certificate of the final fit: no linear classifier has an objective that is lower by more
# than the gap.
print(f"sigma {model.sigma_:.3f}, objective {model.objective_:.3f}, proven gap {model.dual_gap_:.1e}")
