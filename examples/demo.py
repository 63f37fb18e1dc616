"""Fit a classifier that knows how noisy its features are, and see what that is worth when the noise comes.

Runs in seconds on data that ships with scikit-learn:

    python examples/demo.py
"""

import time

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from gaussguru import GuruClassifier

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
print(
    f"breast cancer: {len(y_train)} samples to learn from, {len(y_test)} to test, {X.shape[1]} standardised features\n"
)

print("1. A fit comes with a proof of how close to optimal it is.")
print("   sigma   objective   proven gap   iterations   milliseconds")
sigmas = (0.1, 0.5, 1.0)
fitted = {}
for sigma in sigmas:
    began = time.perf_counter()
    fitted[sigma] = model = GuruClassifier(sigma).fit(X_train, y_train)
    took = 1e3 * (time.perf_counter() - began)
    print(f"   {sigma:5g} {model.objective_:11.4f} {model.dual_gap_:12.1e} {model.n_iter_:12d} {took:14.1f}")

print("\n2. Accuracy (%) when the test features carry noise that the training features did not have.")
svm = LinearSVC(loss="hinge", max_iter=200_000).fit(X_train, y_train)
models = {"LinearSVC": svm, **{f"sigma = {sigma:g}": fitted[sigma] for sigma in sigmas}}
rng = np.random.default_rng(0)
levels = (0.0, 0.25, 0.5, 1.0, 1.5)
print("   noise      " + "".join(f"{name:>12s}" for name in models))
for level in levels:
    draws = [X_test + level * rng.standard_normal(X_test.shape) for _ in range(200 if level else 1)]
    scores = [100 * np.mean([model.score(draw, y_test) for draw in draws]) for model in models.values()]
    print(f"   {level:<11g}" + "".join(f"{score:12.1f}" for score in scores))
print("   (sigma = 0.1 expects little noise and is hurt by more; LinearSVC is held back by its default C = 1.)")

print("\n3. What the noise does to single predictions, without sampling: the probability of each class.")
model = fitted[0.5]
doubtful = np.argsort(np.abs(model.decision_function(X_test)))[:3]
for i in (*doubtful, int(np.argmax(model.decision_function(X_test)))):
    p = model.predict_proba(X_test[i : i + 1])[0]
    print(f"   test sample {i:3d}: P(malignant) = {p[0]:.3f}, P(benign) = {p[1]:.3f}, true class {'mb'[y_test[i]]}")
