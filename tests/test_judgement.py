"""Judgements of predictions: scores as scikit-learn has them, in parts and at once, and the verdict."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    recall_score,
    roc_auc_score,
)

from gaussguru.report import judgement
from gaussguru.report.judgement import Judge
from gaussguru.report.reliability import Reliability


def predictions(n_classes, n=400, sharp=2.0, seed=0):
    """Return probabilities that are right, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    scores = sharp * rng.standard_normal((n, n_classes))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return probabilities, (probabilities.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def judged(probabilities, places, step=None):
    judge = Judge(np.array([f"c{k}" for k in range(probabilities.shape[1])]))
    for first in range(0, len(places), step or len(places)):
        part = slice(first, first + (step or len(places)))
        judge.add(probabilities[part], probabilities[part].argmax(axis=1), places[part])
    return judge.result()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_are_those_of_scikit_learn(n_classes):
    p, y = predictions(n_classes)
    ours, predicted = judged(p, y), p.argmax(axis=1)
    np.testing.assert_array_equal(ours.confusion, confusion_matrix(y, predicted))
    assert ours.log_loss == pytest.approx(log_loss(y, p))
    assert ours.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, predicted))
    np.testing.assert_allclose(ours.recall, recall_score(y, predicted, average=None))
    area = roc_auc_score(y, p[:, 1]) if n_classes == 2 else roc_auc_score(y, p, multi_class="ovr")
    assert ours.auc == pytest.approx(area)
    if n_classes == 2:
        assert ours.brier_score == pytest.approx(brier_score_loss(y, p[:, 1]))
    constant = DummyClassifier(strategy="prior").fit(np.zeros((len(y), 1)), y)
    shares = constant.predict_proba(np.zeros((len(y), 1)))
    assert ours.baseline["log_loss"] == pytest.approx(log_loss(y, shares))
    assert ours.baseline["accuracy"] == pytest.approx(constant.score(np.zeros((len(y), 1)), y))
    losses = -np.log(shares[np.arange(len(y)), y]) + np.log(p[np.arange(len(y)), y])
    assert ours.gain == pytest.approx((losses.mean(), losses.std() / np.sqrt(len(y))))
    worst = ours.worst
    wrong = np.flatnonzero(predicted != y)
    assert set(worst.rows) <= set(wrong)
    assert worst.probability[-1] <= np.sort(p[wrong, y[wrong]])[len(worst.rows) - 1]


def test_parts_are_judged_as_the_whole(monkeypatch):
    p, y = predictions(3)
    whole, parts = judged(p, y), judged(p, y, step=37)
    np.testing.assert_array_equal(parts.confusion, whole.confusion)
    for name in ("log_loss", "brier_score", "auc", "gain", "promised"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))
    np.testing.assert_array_equal(parts.worst.rows, whole.worst.rows)
    monkeypatch.setattr(judgement, "MOST_NUMBERS", 400)  # 100 rows of a class and three probabilities
    assert judged(p, y, step=37).auc == pytest.approx(judged(p[::4], y[::4]).auc)


def test_verdicts():
    p, y = predictions(2)
    assert judged(p, y).verdict(calibrated=True).startswith("Better than the class frequencies: log loss 0.4")
    assert "right within their errors" in judged(p, y).verdict(calibrated=True)
    bold = p**4 / (p**4).sum(axis=1, keepdims=True)
    assert "probabilities are NOT right: 0.9" in judged(bold, y).verdict(calibrated=True)
    assert judged(p[:, ::-1], y).verdict(calibrated=True).startswith("WORSE than the class frequencies: log loss")
    same = np.tile(np.bincount(y) / len(y), (len(y), 1))
    assert judged(same, y).verdict(calibrated=True).startswith("No better than the class frequencies")
    groups = Reliability(["small", "large"], [200, 200], [0.1, 1.0], [0.9, 0.9], [0.9, 0.6], [0.02, 0.02])
    assert "for large errors 0.90 promised, 0.60 came true" in judged(p, y).verdict(groups, calibrated=True)
    assert "probabilities count noise alone" in judged(p, y).verdict(calibrated=False)


def test_labels_alone_are_judged_by_accuracy():
    judge = Judge(np.array(["a", "b", "c"]))
    judge.add(None, np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    found = judge.result()
    assert found.log_loss is found.auc is found.worst is None
    assert found.recall == [2 / 3, 1.0, None]
    assert found.verdict(calibrated=False).startswith(
        "No better than the class frequencies: accuracy 0.75 against 0.75"
    )
