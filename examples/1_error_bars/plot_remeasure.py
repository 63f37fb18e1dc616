"""
Which objects should I measure again?
=====================================

Observing time is limited. :func:`~gaussguru.robustness.remeasure_gain` returns, for each sample, the expected decrease
of the probability of a wrong label if the sample is measured again. The gain is large if the class is in doubt *because
of noise*. It is small if the class is clear, or if the classes overlap at the true value.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import make_measured
from gaussguru.plotting import RemeasureDisplay
from gaussguru.robustness import remeasure_gain

data = make_measured(3000, 4, error=(0.2, 2.0), class_sep=5.0, random_state=0)
train, test = slice(0, 2000), slice(2000, None)
model = ErrorBarClassifier(model="linear", n_jobs=1).fit(data.X[train], data.y[train], X_err=data.X_err[train])

X, X_err, y, truth = (data[name][test] for name in ("X", "X_err", "y", "truth"))
better = X_err / 5  # the errors after the new measurement
gain = remeasure_gain(model, X, X_err, better)
again = truth + better * np.random.default_rng(1).normal(size=truth.shape)


def errors_after(order):
    """Return the fraction of wrong labels after the first 0, 1, 2, ... samples of this order are measured again."""
    wrong = model.predict(X, X_err=X_err) != y
    wrong_again = model.predict(again, X_err=better) != y
    return (wrong.sum() + np.concatenate([[0], np.cumsum(wrong_again[order].astype(int) - wrong[order])])) / len(y)


fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
share = np.arange(len(y) + 1) / len(y)
left.plot(share, errors_after(np.argsort(-gain)), label="largest gain first")
left.plot(share, errors_after(np.random.default_rng(2).permutation(len(y))), "--", label="at random")
left.set(xlabel="fraction of samples measured again", ylabel="fraction of wrong labels", ylim=(0, None))
left.set_title("Measured again in a simulation")
left.legend()
RemeasureDisplay.from_estimator(model, X, X_err, better, ax=right)
right.set_title("Predicted from the first measurements")
right.legend(loc="lower right", fontsize=8)
plt.show()

# %%
# Which feature should be measured again? With ``per_feature=True``, the gain is that of measuring one feature alone.
print(remeasure_gain(model, X, X_err, better, per_feature=True).mean(axis=0).round(4))
