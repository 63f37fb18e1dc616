"""What users write, with types: checked by mypy (strict) in `make lint`; `pyright` (basic) accepts it, too."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import gaussguru
from gaussguru import ErrorBarClassifier, GuruClassifier, GuruClassifierCV, KernelGuruClassifier, sigma_max, sigma_path
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.datasets import make_measured
from gaussguru.errors import Asymmetric, Limits, Measured
from gaussguru.plotting import RemeasureDisplay
from gaussguru.population import Deconvolve, reliability
from gaussguru.preprocessing import WithErrors, errors_from_frame, noise_from_replicates
from gaussguru.report import evaluation_report
from gaussguru.robustness import remeasure_gain, robustness_curve


def classify(path: Path) -> NDArray[np.float64]:
    """Return probabilities of the rows of a table."""
    table = pd.read_csv(path)
    X, X_err = errors_from_frame(table.drop(columns="label"))
    labels = table["label"].to_numpy()
    model = ErrorBarClassifier(n_components="auto", use_error_sizes=False).fit(X, labels, X_err=X_err)
    gain: NDArray[np.float64] = remeasure_gain(model, X, X_err, 0.0)
    display = RemeasureDisplay.from_predictions(gain)
    print(model.method_, model.weights_, model.reliability_.min(), reliability(X, X_err), display.enough_)
    evaluation_report(model, X, labels, X_err=X_err).save(path.with_suffix(".html"))
    proba: NDArray[np.float64] = model.predict_proba(X, X_err=X_err)
    return proba


def compare(X: NDArray[np.float64], y: NDArray[np.int64], errors: NDArray[np.float64]) -> dict[str, float]:
    """Return the accuracies of some classifiers."""
    chosen = GuruClassifierCV(10, cv=3).fit(X, y)
    linear = GuruClassifier(chosen.sigma_, noise=errors[0]).fit(X, y, X_err=errors)
    curved = KernelGuruClassifier(0.03, gamma=1.0).fit(X, y)
    calibrated = CalibratedWithErrorsCV(GuruClassifier(0.1)).fit(Measured(X, errors), y)
    posterior = Deconvolve(rank=2).fit_transform(X, X_err=Limits(Asymmetric(errors, 2 * errors), np.zeros(X.shape)))
    scaled = WithErrors(Deconvolve()).fit(X, X_err=errors)
    sigmas, coefs, _, gaps = sigma_path(X, y, n_sigmas=5)
    print(posterior.X.shape, scaled, sigmas[0] <= sigma_max(X, y), coefs.shape, gaps.max())
    print(noise_from_replicates(X, y).std, robustness_curve(linear, X, y, [0.0, 1.0]).accuracy)
    return {
        "linear": linear.score(X, y),
        "kernel": curved.score(X, y),
        "calibrated": calibrated.score(X, y, X_err=errors),
        "gap": linear.dual_gap_,
    }


if __name__ == "__main__":
    data = make_measured(200, 3, random_state=0)
    print(gaussguru.__version__, compare(data.X, data.y, data.X_err))
