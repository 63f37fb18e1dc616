"""Effect of noise on predictions: of linear classifiers in closed form, of those that count error bars by sampling.

*Linear classifiers*: any fitted classifier whose ``decision_function`` is affine in X, such as ``LinearSVC``,
``LogisticRegression``, :class:`gaussguru.GuruClassifier`, a pipeline of a scaler and one of these, a search over them.
X and its errors are in the units of the input of the whole pipeline.

*Classifiers that count error bars*: :class:`gaussguru.ErrorBarClassifier`, :class:`gaussguru.PopulationClassifier`,
:class:`gaussguru.calibration.CalibratedWithErrorsCV`, and pipelines with one of these, with
:class:`gaussguru.population.Deconvolve` or with a curved :class:`gaussguru.preprocessing.WithErrors`. Given ``X_err``,
their labels depend on the errors as well as on the values. Noise that is added to X makes its errors larger, and
predictions are told so: with noise of ``c`` error bars, they are given ``sqrt(1 + c^2) X_err``.

:func:`class_probabilities` and :func:`flip_probability` describe a prediction. They include the noise of the model
(``sigma`` in every direction for noise="isotropic") and the error bars. :func:`expected_accuracy` and
:func:`robustness_curve` evaluate a model under a given noise, and include that noise alone, so that models with
different ``sigma`` are compared under the same conditions.

:func:`remeasure_gain` is the benefit of smaller error bars, for classifiers that account for error bars.

:func:`risk_bound` bounds the error probability on new samples, with a given confidence.
"""

from gaussguru._measured.affine import NotLinearError
from gaussguru._measured.remeasure import remeasure_gain
from gaussguru._measured.risk_bounds import RiskBound, risk_bound
from gaussguru._measured.under_noise import (
    RobustnessCurve,
    certified_radius,
    class_probabilities,
    expected_accuracy,
    expected_accuracy_scorer,
    flip_probability,
    log_loss_scorer,
    robustness_curve,
)

__all__ = [
    "NotLinearError",
    "RiskBound",
    "RobustnessCurve",
    "certified_radius",
    "class_probabilities",
    "expected_accuracy",
    "expected_accuracy_scorer",
    "flip_probability",
    "log_loss_scorer",
    "remeasure_gain",
    "risk_bound",
    "robustness_curve",
]
