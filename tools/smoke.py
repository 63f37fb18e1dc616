"""Fit and predict: does an installed wheel work?"""

import gaussguru
from gaussguru import ErrorBarClassifier
from gaussguru._native import _binding
from gaussguru.datasets import make_measured

data = make_measured(1000, 1, random_state=0)
model = ErrorBarClassifier().fit(data.X, data.y, X_err=data.X_err)
sure, vague = model.predict_proba([[1.0], [1.0]], X_err=[[0.1], [2.0]])[:, 1]
assert abs(sure - 0.97) < 0.02, sure
assert abs(vague - 0.59) < 0.02, vague
print(
    f"gaussguru {gaussguru.__version__} works, with the kernels of {_binding.INSTRUCTION_SET}: {sure:.2f}, {vague:.2f}"
)
