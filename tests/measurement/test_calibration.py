"""Probabilities that count overlap and error bars."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussguru import GuruClassifier
from gaussguru.calibration import CalibratedWithErrorsCV


@parametrize_with_checks([CalibratedWithErrorsCV(GuruClassifier())])
@pytest.mark.filterwarnings("ignore::gaussguru.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)
