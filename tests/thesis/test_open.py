"""The experiments on the thesis's open questions: corruptions by brute force, and pictures of what was computed."""

import itertools

import numpy as np
import pytest

from gaussguru import GuruClassifier
from gaussguru.thesis import matrix, steps, tangents
from gaussguru.thesis.search import FittedCandidate
from gaussguru.thesis.store import Store

LEVEL, SCALE = 0.5, 0.8


def fitted():
    """Return a candidate, and samples of which each corruption gets some wrong."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 12)) + 0.9 * y[:, np.newaxis] * (np.arange(12) < 5)
    model = GuruClassifier(0.5).fit(X, y)
    return FittedCandidate({}, model.predict, True, model), X, y


def accuracy(corruption, X, y, candidate):
    return matrix.CORRUPTIONS[corruption](X, y, SCALE, LEVEL, np.random.default_rng(0))(candidate)


def test_no_displacement_in_the_ball_is_worse():
    candidate, X, y = fitted()
    w = candidate.model.coef_[0]
    along = SCALE * (1 + 1e-9) * w / np.linalg.norm(w)
    right = [all(candidate.predict([x + along, x - along]) == label) for x, label in zip(X, y, strict=True)]
    assert accuracy("worst in a ball", X, y, candidate) == np.mean(right)
    turned = np.random.default_rng(1).normal(size=(200, 12))
    turned *= SCALE / np.linalg.norm(turned, axis=1, keepdims=True)
    safe = np.array([np.all(candidate.predict(x + turned) == label) for x, label in zip(X, y, strict=True)])
    assert safe[right].all()
    assert 0 < np.mean(right) < 1


def test_two_points_have_the_moments_and_the_accuracy():
    """One just across the boundary and one away from it: mean 0, the variance of the noise, and Cantelli's share."""
    candidate, X, y = fitted()
    model = candidate.model
    signs, spread = 2.0 * y - 1, SCALE * np.linalg.norm(model.coef_[0])
    margins = signs * model.decision_function(X)
    share = np.where(margins > 0, spread**2 / (spread**2 + margins**2), 1.0)
    moved = spread**2 / margins
    positive = margins > 0
    for m, p, other in zip(margins[positive], share[positive], moved[positive], strict=True):
        points, weights = np.array([-m, other]), np.array([p, 1 - p])
        assert weights @ points == pytest.approx(0, abs=1e-9)
        assert weights @ points**2 == pytest.approx(spread**2)
    assert accuracy("worst two points", X, y, candidate) == pytest.approx(1 - share.mean())


def test_no_deletion_of_so_many_features_is_worse(monkeypatch):
    monkeypatch.setattr(matrix, "DELETED", 0.5)  # three of twelve at this level
    candidate, X, y = fitted()
    right = []
    for x, label in zip(X, y, strict=True):
        deleted = [np.where(np.isin(np.arange(12), kept), x, 0) for kept in itertools.combinations(range(12), 9)]
        right.append(np.all(candidate.predict(np.vstack([x, deleted])) == label))
    assert accuracy("worst deletion", X, y, candidate) == np.mean(right)
    assert 0 < np.mean(right) < 1


@pytest.mark.parametrize("corruption", ["Gaussian", "uniform", "heavy tails"])
def test_noise_has_the_variance_of_its_level(corruption):
    """A classifier that keeps the samples it is shown."""
    seen = []
    candidate = FittedCandidate({}, lambda X: seen.append(X) or np.zeros(len(X)))
    accuracy(corruption, np.zeros((4000, 50)), np.zeros(4000), candidate)
    assert seen[0].std() == pytest.approx(SCALE, rel=0.02)
    assert abs(seen[0].mean()) < 0.01


def test_the_matrix_shows_its_results(tmp_path):
    cells = matrix.cells(True)
    with Store(tmp_path / "results.jsonl") as store:
        empty = matrix.table(store, True)
        assert {cell for row in empty.rows for cell in row[1:]} == {"-"}
        for key in cells:
            store.add(key, matrix.compute(key))
        shown = matrix.table(store, True)
        figure = matrix.draw(store, True)
    assert shown.columns == ["", *matrix.CORRUPTIONS]
    assert [row[0] for row in shown.rows] == [*matrix.ADVERSARIES]
    assert "2 problems" in shown.note
    assert "2 splits" in shown.note
    texts = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    assert texts[matrix.SHOWN] == [f"{float(cell.split()[0]):.1f}" for row in shown.rows for cell in row[1:]]
    for ax in figure.axes:
        assert sum(text.get_weight() == "bold" for text in ax.texts) >= len(matrix.CORRUPTIONS)


def test_images_are_turned_about_their_centre_and_moved():
    image = np.zeros((16, 16))
    image[7:9, 2:6] = 1.0
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(tangents.transformed(image.reshape(1, 256), 0.0, rng)[0].reshape(16, 16), image)
    moved = np.array([tangents.transformed(image.reshape(1, 256), 0.3, rng)[0].reshape(16, 16) for _ in range(300)])
    np.testing.assert_allclose(moved.sum(axis=(1, 2)), 8.0, rtol=0.05)
    rows, columns = np.indices((16, 16)) - 7.5
    centres = np.array([[(moved * part).sum(axis=(1, 2)) / 8] for part in (rows, columns)])[:, 0]
    np.testing.assert_allclose(centres.mean(axis=1), [0.0, -4.0], atol=0.1)
    # Down: the move and 4 pixels from the centre times the angle; across: the move alone.
    expected = 0.3 * np.array([np.hypot(1.0, 4 * np.deg2rad(10.0)), 1.0])
    np.testing.assert_allclose(centres.std(axis=1), expected, rtol=0.15)


def test_descents_approach_the_optimum_and_the_kept_norm_is_the_norm(tmp_path):
    cells = [key for key in steps.cells(True) if key["problem"] == "toy-a"]
    with Store(tmp_path / "results.jsonl") as store:
        for key in cells:
            store.add(key, steps.compute(key))
        assert len(steps.draw(store, True).axes) == 6
        result = store[cells[0]]
    guru, svm = result["guru"], result["svm"]
    assert guru["norm"] < guru["bound"]
    for values in [*guru["excess"].values(), *svm["excess"].values()]:
        assert min(values) > -1e-6
    assert guru["excess"]["1/sqrt(t)"][-1] < 0.01
    assert guru["excess"]["1/sqrt(t), ball"] == guru["excess"]["1/sqrt(t)"]  # the proven ball is never left
    anew, kept = (svm["excess"][f"Pegasos, norm {how}"] for how in ("anew", "in O(1)"))
    np.testing.assert_allclose(anew, kept[: len(anew)], rtol=1e-9)
    assert kept[-1] < 0.1


def test_the_objective_has_no_curvature_at_the_origin():
    """So it is not strongly convex in any ball about it."""
    rng = np.random.default_rng(0)
    X, y, u = rng.normal(size=(50, 3)), rng.choice([-1, 1], 50), np.array([0.6, 0.0, 0.8])
    model = GuruClassifier(1.0, fit_intercept=False).fit(X, y)

    def value(t):
        model.coef_[:] = t * u
        return model.certificate(X, y).primal

    near, far = ((value(1.02 * t) - 2 * value(t) + value(0.98 * t)) / (0.02 * t) ** 2 for t in (0.05, 1.0))
    assert abs(near) < 1e-6
    assert far > 1.0
