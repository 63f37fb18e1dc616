"""
From a noisy sample to its loss
===============================

A sample of the class ``y`` has a hinge loss: 0 where its score is beyond the margin, and growing linearly on the wrong
side. Noise spreads the score over a bell curve (left). The expected loss is the mean of the hinge under the bell curve
(centre): the area under the product of the two. As a function of the score it is the hinge with its corner rounded over
the width of the noise (right). This is the whole loss of :class:`~gaussguru.GuruClassifier`; the dot is the sample of
the other two panels.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from gaussguru.plotting import style

score, spread = 0.6, 0.8
scores = np.linspace(-2.5, 3.5, 400)
hinge, bell = np.maximum(0, 1 - scores), norm.pdf(scores, score, spread)
expected = (1 - scores) * norm.cdf((1 - scores) / spread) + spread * norm.pdf((1 - scores) / spread)
at_sample = np.interp(score, scores, expected)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
axes[0].plot(scores, hinge, color="C0", label="hinge loss")
axes[0].plot(scores, bell, color="C1", label="the noisy score")
axes[1].fill_between(scores, hinge * bell, color="C2", alpha=0.5)
axes[1].plot(scores, hinge * bell, color="C2", label=f"area {at_sample:.2f}")
axes[2].plot(scores, hinge, color="C0", linestyle="--", label="no noise: the hinge")
axes[2].plot(scores, expected, color="C2", label="expected loss")
axes[2].plot([score], [at_sample], "o", color="C1", label=f"the sample: {at_sample:.2f}")
for ax, title in zip(axes, ("a loss and a noisy score", "their product", "the mean, for every score"), strict=True):
    style.finish(ax, "y times score", "", title, legend=False)
    ax.legend(fontsize=style.SMALL, loc="upper right")
plt.show()
