"""
Are error bars worth using? Check the reliability
=================================================

The reliability of a feature is the share of its variance that is not noise: 1 if the errors are negligible, 0 if the
values are all noise. Check it first. If it is near 1 for all features, error bars cannot change the predictions much.

The breast cancer data of scikit-learn has a standard error for each mean of a feature. The reliabilities range from
0.89 to 0.99. If new samples are measured equally well, error bars gain little here; if they are measured less well,
:ref:`they gain a lot <sphx_glr_auto_examples_1_error_bars_plot_worse_measurements.py>`.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussguru import ErrorBarClassifier
from gaussguru.datasets import load_wdbc
from gaussguru.population import predictive_of_errors

data = load_wdbc()
model = ErrorBarClassifier(model="linear", n_jobs=1).fit(data.data, data.target, X_err=data.error)

order = np.argsort(model.reliability_)
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
ax.barh(np.array(data.feature_names)[order], model.reliability_[order], color="#0072B2")
ax.axvline(1.0, color="0.3", linestyle=":")
ax.set(xlabel="reliability: share of the variance that is not noise", xlim=(0, 1.02))
plt.show()

# %%
# Two more numbers. Do the errors matter for the labels? A small p-value says that they do. Do the *sizes* of the errors
# alone predict the class? An area under the ROC curve (AUC) of 0.5 means that they do not. Here they do, because
# malignant cells vary more. A classifier with errors as additional features would use this, and fail if the
# measurement procedure changes.
print(f"p-value of the error bars: {model.kappa_pvalue_:.2g}")
print(f"AUC of the sizes of the errors alone: {predictive_of_errors(data.error, data.target):.2f}")
