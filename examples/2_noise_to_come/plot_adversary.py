"""
The adversary
=============

How should noise of a given strength be shaped to hurt a linear classifier most? All clouds on the left have the same
total variance, ``sigma**2``. Only the part of the noise across the boundary moves a score (right); along the boundary
it is wasted. The adversary therefore puts all of it along ``w``, and the score of every sample then scatters by
``sigma`` times the length of ``w``. :class:`~gaussguru.GuruClassifier` minimises the loss under this worst cloud:
whatever the shape of the noise really is, it cannot be worse.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from scipy.stats import norm

from gaussguru.plotting import style

sigma, w = 0.8, np.array([0.8, 0.6])
sample = np.array([1.0, 0.7])
across = np.array([-w[1], w[0]])
clouds = {
    "along the boundary": sigma**2 * np.outer(across, across),
    "round": sigma**2 * np.eye(2) / 2,
    "along w: the worst": sigma**2 * np.outer(w, w),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
line = np.array([-2.2, 3.0])
left.plot(line, -w[0] / w[1] * line, color="0.3", label="boundary")
left.annotate("", w * 1.6, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.3"})
left.annotate("w", w * 1.6, xytext=(6, 0), textcoords="offset points")
scores = np.linspace(-1.6, 4.2, 400)
for k, (name, covariance) in enumerate(clouds.items()):
    lengths, axes = np.linalg.eigh(covariance)
    widths = 2 * 2 * np.sqrt(np.maximum(lengths, 4e-4))  # two standard deviations to either side
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
    left.add_patch(Ellipse(sample, widths[1], widths[0], angle=angle, color=f"C{k}", alpha=0.5, label=name))
    spread = max(np.sqrt(w @ covariance @ w), 0.03)
    label = f"{name}: {np.sqrt(w @ covariance @ w):.2f}"
    right.plot(scores, norm.pdf(scores, sample @ w, spread), color=f"C{k}", label=label)
right.axvline(0, color="0.3", linewidth=1)
right.axvspan(-1.6, 0, color="0.9")
left.set(xlim=(-2.2, 4.4), ylim=(-2.6, 3.0), aspect="equal")
right.set(ylim=(0, 1.5), xlim=(-1.6, 4.2))
style.finish(left, "feature 1", "feature 2", "three clouds of equal variance", legend=False)
style.finish(right, "score (grey: wrong label)", "density", "spread of the score", legend=False)
left.legend(fontsize=style.SMALL, loc="lower right")
right.legend(fontsize=style.SMALL, loc="upper right")
plt.show()
