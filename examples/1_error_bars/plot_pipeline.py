"""
Error bars through a pipeline
=============================

If a scaler divides the values, the errors must be divided, too. If a rotation mixes the features, the errors become
correlated. :class:`~gaussguru.preprocessing.WithErrors` wraps a transformer of scikit-learn, propagates the errors
through it, and returns values and errors in one object, :class:`~gaussguru.Measured`.
"""

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from matplotlib.patches import Ellipse
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru import GuruClassifier
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.datasets import make_measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

sklearn.set_config(enable_metadata_routing=True)  # a pipeline passes X_err to its steps

data = make_measured(500, 2, error=0.3, n_factors=1, random_state=2)
X, X_err = data.X * [1.0, 20.0], data.X_err * [1.0, 20.0]  # two features in different units
steps = make_pipeline(WithErrors(StandardScaler()), WithErrors(PCA()))
rotated = steps.fit_transform(X, X_err=X_err)


def draw(ax, centres, covariances, title):
    """Draw error ellipses of one standard deviation."""
    for centre, covariance in zip(centres, covariances, strict=True):
        lengths, axes = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(*axes[::-1, 1]))
        ax.add_patch(
            Ellipse(centre, *2 * np.sqrt(lengths[::-1]), angle=angle, color="#0072B2", alpha=0.25, linewidth=0)
        )
    ax.plot(*np.transpose(centres), ".", color="0.3", markersize=3)
    ax.set_title(title)


some = slice(0, 40)
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
draw(left, X[some], [np.diag(e**2) for e in X_err[some]], "measured values, errors of 1 standard deviation")
draw(right, rotated.X[some], rotated.err[some], "after StandardScaler and PCA")
left.set(xlabel="feature 1", ylabel="feature 2")
right.set(xlabel="component 1", ylabel="component 2")
plt.show()

# %%
# A complete pipeline scales, computes posteriors, classifies and calibrates. ``fit`` and every prediction take
# ``X_err``.
model = make_pipeline(WithErrors(StandardScaler()), Deconvolve(), CalibratedWithErrorsCV(GuruClassifier(0.3)))
model.fit(X[:300], data.y[:300], X_err=X_err[:300])
print(f"accuracy {model.score(X[300:], data.y[300:], X_err=X_err[300:]):.3f}")

sklearn.set_config(enable_metadata_routing=False)
