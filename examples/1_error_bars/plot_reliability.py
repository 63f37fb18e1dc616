"""
Are error bars worth the trouble? Look at the reliability
=========================================================

The reliability of a feature is the share of its variance that is not noise: 1 where errors are negligible, 0 where
nothing is known. Look at it before anything else: where all of it is near 1, error bars cannot change much.

The breast tumours of scikit-learn have a standard error for each mean. Some features are known to 1 %, others are
mostly noise.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import load_wdbc
from gaussguru.population import predictive_of_errors

data = load_wdbc()
model = ErrorBarClassifier(n_jobs=1).fit(data.data, data.target, X_err=data.error)

order = np.argsort(model.reliability_)
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
ax.barh(np.array(data.feature_names)[order], model.reliability_[order], color="#0072B2")
ax.axvline(1.0, color="0.3", linestyle=":")
ax.set(xlabel="reliability: share of the variance that is known", xlim=(0, 1.02))
plt.show()

# %%
# Two more questions that take a line each. Do the errors matter for the labels? A small p-value says that they do. And
# do the *sizes* of the errors alone tell the classes? 0.5 says no. Here they do, because malignant cells vary more: a
# classifier that gets errors as further columns would use that, and fail where the way of measuring changes.
print(f"p-value of the error bars: {model.kappa_pvalue_:.2g}")
print(f"AUC of the sizes of the errors alone: {predictive_of_errors(data.error, data.target):.2f}")
