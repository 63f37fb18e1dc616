"""
Which objects should I measure again?
=====================================

Time at the instrument is limited. :func:`~gaussguru.robustness.remeasure_gain` says, sample by sample, how much less
often its label will be wrong after another measurement: it is largest where the class is in doubt *and* the doubt
comes from noise, and small where classes overlap anyway.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured
from gaussguru.plotting import RemeasureDisplay
from gaussguru.robustness import remeasure_gain

data = make_measured(3000, 4, error=(0.2, 2.0), class_sep=5.0, random_state=0)
train, test = slice(0, 2000), slice(2000, None)
model = ErrorBarClassifier(n_jobs=1).fit(data.X[train], data.y[train], X_err=data.X_err[train])

X, X_err, y, truth = (data[name][test] for name in ("X", "X_err", "y", "truth"))
better = X_err / 5  # what the next measurement will have
gain = remeasure_gain(model, X, X_err, better)
again = truth + better * np.random.default_rng(1).normal(size=truth.shape)


def errors_after(order):
    """Return the fraction of wrong labels once so many samples, in this order, are measured again."""
    wrong = model.predict(X, X_err=X_err) != y
    mended = model.predict(again, X_err=better) != y
    return (wrong.sum() + np.concatenate([[0], np.cumsum(mended[order].astype(int) - wrong[order])])) / len(y)


fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
share = np.arange(len(y) + 1) / len(y)
left.plot(share, errors_after(np.argsort(-gain)), label="by gain")
left.plot(share, errors_after(np.random.default_rng(2).permutation(len(y))), "--", label="at random")
left.set(xlabel="fraction measured again", ylabel="wrong labels", ylim=(0, None))
left.legend()
RemeasureDisplay.from_estimator(model, X, X_err, better, ax=right)
right.legend(loc="lower right", fontsize=8)
plt.show()

# %%
# And which quantity? With ``per_feature=True`` each feature is considered alone.
print(remeasure_gain(model, X, X_err, better, per_feature=True).mean(axis=0).round(4))
