"""Populations, calibrations and classifiers of error bars on samples that are read in parts: as in memory."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold

from gaussguru import ErrorBarClassifier, GuruClassifier, GuruClassifierCV
from gaussguru._measured.probit import ProbitWithErrors
from gaussguru._rows.streams import Part
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Asymmetric, Limits, LowRank, Measured
from gaussguru.population import Deconvolve
from gaussguru.sources import Arrays, Stream, Table, reading
from gaussguru.sources.base import Fields, Mapped
from gaussguru.sources.split import SplitSource

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet  # noqa: E402


def measured(n=3000, d=3, classes=2, seed=0):
    """Return values, errors, labels and weights; the true values are two clouds."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, d)) @ np.triu(np.full((d, d), 0.4) + 0.6 * np.eye(d))
    truth[rng.random(n) < 0.3] += 3.0
    score = truth[:, 0] + 0.5 * rng.standard_normal(n)
    y = np.digitize(score, [1.0] if classes == 2 else [0.0, 1.5])
    errors = rng.uniform(0.1, 1.0, (n, d))
    return truth + errors * rng.standard_normal((n, d)), errors, y, rng.uniform(0.5, 2.0, n)


def with_gaps(X, share=0.1, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


@pytest.fixture
def few(monkeypatch):
    """Subsamples of sources are so small that most rows are not in them."""
    monkeypatch.setattr(reading, "MOST_DRAWN", 1000)


def blocks_of(*arrays, cuts=(1, 900, 900, 2100)):
    return lambda: zip(*(np.split(array, cuts) for array in arrays), strict=True)


def tabled(X, errors, y, weight, path):
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])} | {f"x{j}_err": errors[:, j] for j in range(X.shape[1])}
    table = pa.table(columns | {"kind": np.array(["no", "yes", "very"])[y], "weight": weight})
    pyarrow.parquet.write_table(table, path, row_group_size=800)
    return Table(path)


def same_population(one, other, tol=1e-6):
    order, others = np.argsort(one.means_[:, 0]), np.argsort(other.means_[:, 0])
    assert np.abs(one.means_[order] - other.means_[others]).max() < tol
    assert np.abs(one.covariances_[order] - other.covariances_[others]).max() < tol
    assert np.abs(one.weights_[order] - other.weights_[others]).max() < tol
    assert np.allclose(one.error_scale_, other.error_scale_, atol=10 * tol)
    assert np.allclose(one.spreads_, other.spreads_, rtol=1e-12)
    assert one.indicators_.tolist() == other.indicators_.tolist()


TIGHT = {"tol": 1e-12, "max_iter": 3000}


@pytest.mark.parametrize("settings", [{}, {"n_components": 2}, {"scale_errors": True}, {"rank": 1}], ids=str)
def test_population_of_a_source_equals_that_in_memory(few, settings):
    X, errors, _, weight = measured()
    X, weight[50:60] = with_gaps(X), 0.0
    errors[7, 1] = 1e6  # says nothing
    one = Deconvolve(**settings, **TIGHT).fit(X, X_err=errors, sample_weight=weight)
    other = Deconvolve(**settings, **TIGHT).fit(Arrays(X, rows=700), X_err=errors, sample_weight=weight)
    same_population(one, other)
    assert other.log_likelihood_ == pytest.approx(one.log_likelihood_, abs=1e-9)
    # Two for the subsample, one for spreads, and one an iteration.
    assert other.n_passes_ == 3 + other.n_iter_
    loose = Deconvolve(**settings).fit(Arrays(X, rows=700), X_err=errors, sample_weight=weight)
    assert loose.n_passes_ <= 40


@pytest.mark.parametrize("form", ["sample", "covariance", "low rank", "limits", "exact", "float32"])
def test_forms_of_errors(few, form):
    X, errors, _, _ = measured(n=2400, d=2)
    given = {
        "sample": errors[:, 0],
        "covariance": np.einsum("ij,jk,ik->ijk", errors, np.eye(2), errors) + 0.02,
        "low rank": LowRank(0.3 * errors[:, :, np.newaxis], errors),
        "limits": Limits(errors, np.where(np.random.default_rng(2).random(X.shape) < 0.1, -1, 0)),
        "exact": None,
        "float32": errors,
    }[form]
    X = X.astype(np.float32) if form == "float32" else X
    one = Deconvolve(**TIGHT).fit(X, X_err=given)
    # With limits an iteration is approximate: it ends where the objective, on the way from its start, rises no more.
    tol = 1e-4 if form == "limits" else 1e-6
    same_population(one, Deconvolve(**TIGHT).fit(Arrays(X, rows=500), X_err=given), tol)


def test_population_of_tables_and_streams(few, tmp_path):
    X, errors, y, weight = measured()
    one = Deconvolve(**TIGHT).fit(X, X_err=errors, sample_weight=weight)
    source = tabled(X, errors, y, weight, tmp_path / "all.parquet")
    table = Deconvolve(**TIGHT).fit(source, "kind", X_err="{x}_err", sample_weight="weight")
    same_population(one, table)
    assert table.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    assert np.allclose(table.score_samples(source, "{x}_err"), one.score_samples(X, errors), atol=1e-5)
    assert table.score(source, X_err="{x}_err", sample_weight="weight") == pytest.approx(
        one.score(X, X_err=errors, sample_weight=weight), abs=1e-6
    )
    same_population(one, Deconvolve(**TIGHT).fit(Stream(blocks_of(X, y, weight, errors))))
    again = one.refit_population(Arrays(X, rows=600), errors)
    same_population(one.refit_population(X, errors), again, tol=1e-6)
    assert np.allclose(again.reliability(Arrays(X, rows=600), errors), again.reliability(X, errors), atol=1e-12)
    direction = [1.0, -1.0, 0.5]
    found = again.reliability(Arrays(X, rows=600), errors, direction)
    assert found == pytest.approx(again.reliability(X, errors, direction), abs=1e-12)


def test_posteriors_of_a_source_are_a_source(monkeypatch):
    X, errors, y, weight = measured(n=900)
    X = with_gaps(X)
    monkeypatch.setattr("gaussguru._measured.deconvolve.PART_NUMBERS", 9 * 70)  # pieces of 70 rows
    population = Deconvolve(missing_indicator=True).fit(X, X_err=errors)
    whole = population.transform(X, errors)
    parts = population.transform(Arrays(X, rows=250), errors)
    read = [part() for part in parts.parts(Fields(y, weight))]
    assert max(part.X.shape[0] for part in read) == 70
    assert np.allclose(np.concatenate([part.X for part in read]), whole.X)
    assert np.allclose(np.concatenate([part.X_err for part in read]), whole.err)
    assert np.array_equal(np.concatenate([part.y for part in read]), y)
    one = GuruClassifier(0.2, tol=1e-11).fit(whole.X, y, weight, whole.err)
    other = GuruClassifier(0.2, tol=1e-11).fit(parts, y, weight)
    assert np.allclose(one.coef_, other.coef_, atol=1e-6)
    # A stream has pieces too, and an empty block none.
    stream = Stream(lambda: iter([(X[:0], y[:0], None, errors[:0]), (X, y, None, errors)]))
    third = GuruClassifier(0.2, tol=1e-11).fit(population.transform(stream), None)
    assert np.allclose(third.coef_, GuruClassifier(0.2, tol=1e-11).fit(whole.X, y, X_err=whole.err).coef_, atol=1e-6)


def test_pieces_are_read_once():
    X, _, y, _ = measured(n=500)
    reads = []

    def noted(part):
        reads.append(part.number)
        return part

    source = SplitSource(Mapped(Arrays(X, rows=200), noted), 30)
    parts = source.parts(Fields(y))
    reads.clear()
    found = [part() for part in parts]
    assert reads == [0, 1, 2]
    assert np.array_equal(np.concatenate([part.X for part in found]), X)
    assert all(isinstance(part, Part) and len(part.y) == len(part.X) <= 30 for part in found)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("errors", ["none", "std", "covariance"])
def test_probit_of_a_source_equals_that_in_memory(classes, errors):
    X, std, y, weight = measured(n=1500, classes=classes)
    X_err = {"none": None, "std": std, "covariance": np.einsum("ij,jk->ijk", np.square(std), np.eye(3)) + 0.01}[errors]
    settings = {"tol": 1e-10}
    one = ProbitWithErrors(0.5, **settings).fit(X + 1000, y, weight, X_err)
    other = ProbitWithErrors(0.5, **settings).fit(Arrays(X + 1000, rows=400), y, weight, X_err)
    assert np.allclose(one.coef_, other.coef_, atol=1e-7)
    assert np.allclose(one.decision_function(X + 1000), other.decision_function(X + 1000), atol=1e-6)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-10)
    assert other.n_passes_ <= 2 + (1 if classes == 2 else 3) * (other.n_iter_ + 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_calibration(classes, tmp_path, monkeypatch):
    X, errors, y, weight = measured(n=1500, classes=classes)
    base = CalibratedWithErrorsCV(GuruClassifier(0.1, tol=1e-11), cv=3)
    source = tabled(X, errors, y, weight, tmp_path / "all.parquet")
    one = clone(base).fit(X, np.array(["no", "yes", "very"])[y], weight, errors)
    other = clone(base).fit(source, "kind", "weight", "{x}_err")
    assert np.allclose(other.predict_proba(source, X_err="{x}_err"), one.predict_proba(X, X_err=errors), atol=1e-7)
    # The classifier is that of all rows, also where the folds are some of them.
    monkeypatch.setattr(reading, "MOST_DRAWN", 600)
    some = clone(base).fit(source, "kind", "weight", "{x}_err")
    assert np.allclose(some.estimator_.coef_, one.estimator_.coef_, atol=1e-7)
    assert some.alpha_ != one.alpha_
    assert some.alpha_ == pytest.approx(one.alpha_, rel=0.3)
    # One that does not read sources is fitted to rows in memory.
    peer = CalibratedWithErrorsCV(LogisticRegression(), cv=3).fit(Arrays(X, rows=400), y)
    assert peer.estimator_.coef_.shape[1] == X.shape[1]
    with pytest.raises(ValueError, match=r"groups must be an array with an entry for each of the \d+ samples of X"):
        clone(base).fit(source, "kind", X_err="{x}_err", groups=y[1:])


def test_error_bar_classifier(tmp_path, monkeypatch):
    X, errors, y, weight = measured(n=1500)
    X = with_gaps(X, 0.05)
    settings = {"model": "linear", "cv": 2, "class_weight": "balanced", "n_components": 2}
    one = ErrorBarClassifier(**settings).fit(X, y, weight, errors)
    other = ErrorBarClassifier(**settings).fit(Arrays(X, rows=400), y, weight, errors)
    probabilities = one.predict_proba(X, errors)
    assert np.allclose(other.predict_proba(Arrays(X, rows=300), errors), probabilities, atol=1e-6)
    assert np.allclose(other.reliability_, one.reliability_, atol=1e-9)
    assert other.cv_scores_["log_loss"] == pytest.approx(one.cv_scores_["log_loss"], abs=1e-9)
    # Population and classifier are fitted to all rows; the ridge is chosen, and calibrated, on a subsample.
    monkeypatch.setattr(reading, "MOST_DRAWN", 900)
    source = tabled(X, errors, y, weight, tmp_path / "all.parquet")
    some = ErrorBarClassifier(**settings).fit(source, "kind", "weight", "{x}_err")
    assert some.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    assert some.population_.n_passes_ > 3
    assert some.population_.lower_bound_ == pytest.approx(one.population_.lower_bound_, abs=0.01)
    assert np.allclose(some.reliability_, one.reliability_, atol=0.01)
    seen = some.population_.transform(X, errors)
    scale = some.scale_
    model = clone(some.estimator_).set_params(tol=1e-9)
    balanced = weight * (weight.sum() / 2 / np.bincount(y, weight))[y]
    model.fit((seen.X - some.centre_) / scale, y, balanced, seen.err / np.multiply.outer(scale, scale))
    assert np.allclose(some.estimator_.coef_, model.coef_, atol=0.02 * np.abs(model.coef_).max())
    assert np.abs(some.predict_proba(source, "{x}_err") - probabilities).mean() < 0.05


def test_error_bar_classifier_without_errors_and_of_three_classes():
    X, _, y, _ = measured(n=1200, classes=3)
    settings = {"cv": 2, "model": "linear"}
    one, other = ErrorBarClassifier(**settings).fit(X, y), ErrorBarClassifier(**settings).fit(Arrays(X, rows=500), y)
    assert np.allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-6)


def test_a_pool_of_a_source(monkeypatch):
    """All rows make the population, and some of them the members."""
    X, errors, y, weight = measured(n=1200, classes=3)
    settings = {"cv": 2, "model": "rbf", "n_components": 1}
    one = ErrorBarClassifier(**settings).fit(X, y, weight, errors)
    other = ErrorBarClassifier(**settings).fit(Arrays(X, rows=500), y, weight, errors)
    # Logistic regression on kernel values stops after 80 iterations: rounding decides where.
    assert np.allclose(other.predict_proba(Arrays(X), errors), one.predict_proba(X, errors), atol=1e-3)
    monkeypatch.setattr(reading, "MOST_DRAWN", 250)
    some = ErrorBarClassifier(**settings).fit(Arrays(X, rows=500), y, weight, errors)
    assert np.allclose(some.population_.means_, one.population_.means_, atol=1e-6)
    assert np.allclose(some.reliability_, one.reliability_, atol=1e-6)
    # Members are fitted to 250 rows, which are few: folds are repeated three times.
    assert (len(one.members_["rbf"]), len(some.members_["rbf"])) == (2, 6)
    assert np.abs(some.predict_proba(X, errors) - one.predict_proba(X, errors)).mean() < 0.1
    with pytest.raises(ValueError, match=r"groups must be an array with an entry for each of the \d+ samples of X"):
        ErrorBarClassifier(**settings).fit(Arrays(X), y, X_err=errors, groups="y")


def test_sigma_is_chosen_on_some_and_fitted_to_all(few):
    X, errors, y, weight = measured(n=2000)
    other = GuruClassifierCV([0.05, 0.5], cv=2, tol=1e-10).fit(Arrays(X, rows=400), y, weight, errors)
    one = GuruClassifier(other.sigma_, tol=1e-10).fit(X, y, weight, errors)
    assert np.allclose(other.coef_, one.coef_, atol=1e-6)
    assert other.n_passes_ > 1


@pytest.mark.parametrize("singular", [100, 1100], ids=["first part", "last part"])
def test_singular_covariances_in_one_part_join_those_of_the_others(singular):
    X, std, y, weight = measured(n=1200)
    covariances = np.einsum("ij,jk->ijk", np.square(std), np.eye(3)) + 0.01
    covariances[singular] = 0.04
    one = GuruClassifier(0.2, tol=1e-11).fit(X, y, weight, covariances)
    other = GuruClassifier(0.2, tol=1e-11).fit(Arrays(X, rows=400), y, weight, covariances)
    assert np.allclose(other.coef_, one.coef_, atol=1e-6)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-9)


# --- values that were not measured ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["std", "sample", "covariance", "low rank", "three classes", "float32", "last part"])
def test_gaps_are_filled_part_by_part(form, tmp_path):
    X, std, y, weight = measured(n=1500, classes=3 if form == "three classes" else 2)
    gapped = with_gaps(X)
    if form == "last part":
        gapped[:1300] = X[:1300]
    if form == "float32":
        gapped = gapped.astype(np.float32)
    weight[100:300] = 0.0
    errors = {
        "sample": std[:, 0],
        "covariance": np.einsum("ij,jk->ijk", np.square(std), np.eye(3)) + 0.01,
        "low rank": LowRank(0.2 * std[:, :, np.newaxis], std),
    }.get(form, std)
    settings = {"sigma": 0.2, "tol": 1e-11}
    one = GuruClassifier(**settings).fit(gapped, y, weight, errors)
    other = GuruClassifier(**settings).fit(Arrays(gapped, rows=400), y, weight, errors)
    tol = 1e-4 if form == "float32" else 1e-6
    assert np.allclose(other.coef_, one.coef_, atol=tol)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-5 if form == "float32" else 1e-9)
    assert np.allclose(other.population_.means, one.population_.means, atol=1e-12)
    assert np.allclose(other.population_.covariance, one.population_.covariance, atol=1e-9)
    found = other.predict_proba(Arrays(gapped, rows=300), errors)
    assert np.allclose(found, one.predict_proba(gapped, errors), atol=tol)
    certificate = other.certificate(Arrays(gapped, rows=300), y, weight, errors)
    assert certificate.primal == pytest.approx(other.objective_, rel=1e-7)
    if form == "std":
        source = tabled(gapped, std, y, weight, tmp_path / "all.parquet")
        third = GuruClassifier(**settings).fit(source, "kind", "weight", "{x}_err")
        assert np.allclose(third.coef_, one.coef_, atol=1e-6)


def test_population_of_many_rows_is_that_of_the_same_rows():
    """Covariances come from rows at random, the same ones as in memory."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 2)) @ np.array([[1.0, 0.6], [0.0, 1.0]])
    y, errors = X[:, 0] + rng.standard_normal(len(X)) > 0, np.full(X.shape, 0.2)
    for gapped in (X, with_gaps(X)):
        one = GuruClassifier(0.2).fit(gapped, y, X_err=errors)
        other = GuruClassifier(0.2).fit(Arrays(gapped, rows=5000), y, X_err=errors)
        assert np.allclose(other.population_.covariance, one.population_.covariance, atol=1e-9)
        assert np.allclose(other.coef_, one.coef_, atol=1e-3)


def test_gaps_without_a_population():
    X, errors, y, _ = measured(n=600)
    model = GuruClassifier(0.2).fit(Arrays(X, rows=200), y)
    with pytest.raises(ValueError, match="it was fitted without X_err"):
        model.certificate(Arrays(with_gaps(X), rows=200), y, X_err=errors)
    X[207, 2] = np.nan
    with pytest.raises(ValueError, match="X has NaN in partition 1, row 7, column 2"):
        GuruClassifier(0.2).fit(Arrays(X, rows=200), y)
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match="feature 1 was measured for no sample"):
        GuruClassifier(0.2).fit(Arrays(X, rows=200), y, X_err=errors)


# --- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["negative weight", "NaN error", "features", "nothing measured"])
def test_errors_name_the_bad_argument_or_partition(few, change):
    X, errors, _, weight = measured()
    source, message = Arrays(X, rows=700), ""
    if change == "negative weight":
        weight[1405], message = -1.0, r"sample_weight must be finite and not negative; got -1.0 in partition 2, row 5"
    elif change == "NaN error":
        errors[2999, 1], message = np.nan, r"partition 4: X_err has NaN"
    elif change == "features":
        source, message = Arrays([X[:, :2], X], rows=1500), "features in all partitions|dimensions"
        errors, weight = np.ones(2 * len(X)), None
    else:
        X[:, 1], message = np.nan, "feature 1 was measured for no sample"
    model = Deconvolve().fit(*measured(n=100)[:1])
    before = dict(model.__dict__)
    with pytest.raises(ValueError, match=message):
        model.fit(source, X_err=errors, sample_weight=weight)
    assert model.__dict__ == before


# --- one parser: errors of parts are those of arrays --------------------------------------------------------------


FITTED_TO_PARTS = {
    "GuruClassifier": lambda: GuruClassifier(0.5, tol=1e-10),
    "Deconvolve": lambda: Deconvolve(**TIGHT),
    "ErrorBarClassifier": lambda: ErrorBarClassifier(model="linear", cv=2),
    "CalibratedWithErrorsCV": lambda: CalibratedWithErrorsCV(GuruClassifier(0.5, tol=1e-10), cv=2),
}
every_model_of_parts = pytest.mark.parametrize("model", FITTED_TO_PARTS.values(), ids=FITTED_TO_PARTS)


def answers_of(model, X, errors):
    return model.covariances_ if isinstance(model, Deconvolve) else model.predict_proba(X, X_err=errors)


def forms_in_parts(X, errors):
    """Return values and errors that have another form in some parts of 30 samples after they were parsed."""
    some = np.zeros(X.shape, dtype=bool)
    some[5, 1] = some[17, 2] = True
    gaps, std = np.where(some, np.nan, X), np.where(np.arange(len(X))[:, np.newaxis] < 30, errors, 0.0)
    return {
        "masked": (X, np.ma.array(errors, mask=some)),
        "masked everywhere": (np.ma.array(X, mask=some), np.ma.array(errors, mask=some)),
        "sparse": (gaps, sp.csr_array(errors)),
        "sparse, infinite": (X, sp.csr_array(np.where(some, np.inf, errors))),
        "a sample": (gaps, errors[:, 0]),
        "low rank": (X, LowRank(0.5 * errors[:, :, np.newaxis], std)),
        "low rank, gaps": (gaps, LowRank(errors[:, :, np.newaxis])),
        "one number": (gaps, 0.3),
        "two sides": (gaps, Asymmetric(errors, 2 * errors)),
    }


@pytest.mark.parametrize("form", forms_in_parts(np.zeros((30, 3)), np.zeros((30, 3))))
@every_model_of_parts
def test_errors_of_parts_are_parsed_before_rows_are_taken(model, form):
    X, errors, y, _ = measured(90)
    X, errors = forms_in_parts(X, errors)[form]
    one, other = model().fit(X, y, X_err=errors), model().fit(Arrays(X, rows=30), y, X_err=errors)
    np.testing.assert_allclose(answers_of(other, X, errors), answers_of(one, X, errors), atol=1e-5)


def thirds(*fields):
    """Return a stream of three blocks of 30 samples, of arrays and frames; None stays None."""
    return Stream(
        lambda: (
            tuple(None if field is None else field[first : first + 30] for field in fields) for first in (0, 30, 60)
        )
    )


@every_model_of_parts
def test_blocks_of_frames_and_of_samples_with_errors(model):
    X, errors, y, _ = measured(90)
    frame, table = (pd.DataFrame(values, columns=list("abc")) for values in (X, errors))
    expected = answers_of(model().fit(X, y, X_err=errors), X, errors)
    for source in (thirds(frame, y, None, table), thirds(Measured(X, errors), y), thirds(frame, y, None, errors)):
        np.testing.assert_allclose(answers_of(model().fit(source, None), X, errors), expected, atol=1e-5)
    with pytest.raises(ValueError, match="partition 0: X_err must have the columns of X, in the same order; got 'c'"):
        model().fit(thirds(frame, y, None, table[["c", "a", "b"]]), None)
    with pytest.raises(ValueError, match=r"X_err must have the columns of X; it has names.*and X has none"):
        model().fit(Arrays(X, rows=30), y, X_err=table)


@every_model_of_parts
def test_blocks_that_are_not_alike_are_refused(model):
    X, errors, y, weight = measured(90)
    full = np.einsum("ij,jk->ijk", errors**2, np.eye(3))

    def mixed(first, others):
        parts = [(X[k : k + 30], y[k : k + 30], *(first if k == 0 else others)) for k in (0, 30, 60)]
        return Stream(lambda: iter(parts))

    for first, others in (((), (None, errors[:30])), ((None, errors[:30]), ()), ((), (weight[:30],))):
        with pytest.raises(ValueError, match="all blocks must have the same fields; got X, y"):
            model().fit(mixed(first, others), None)
    with pytest.raises(ValueError, match="X_err must be of one form in all partitions"):
        model().fit(mixed((None, full[:30]), (None, errors[:30])), None)
    with pytest.raises(ValueError, match=r"partition 0: X_err must hold standard deviations.*got shape \(90, 3\)"):
        model().fit(mixed((None, errors), (None, errors)), None)
    few = LowRank(errors[:30, :, np.newaxis]), LowRank(np.ones((30, 3, 2)))
    with pytest.raises(
        ValueError, match=r"same fields; got X, y, X_err \(1 factors\) before block 1, .* \(2 factors\)"
    ):
        model().fit(mixed((None, few[0]), (None, few[1])), None)


def test_posteriors_of_errors_that_are_too_long():
    X, errors, y, _ = measured(90)
    population = Deconvolve().fit(X, X_err=errors)
    source = Stream(lambda: ((X[k : k + 30], y[k : k + 30], None, errors[:45]) for k in (0, 30, 60)))
    with pytest.raises(ValueError, match=r"X_err must hold standard deviations.*got shape \(45, 3\)"):
        GuruClassifier(0.5).fit(population.transform(source), None)


@every_model_of_parts
def test_errors_of_a_table_are_columns_or_one_number(model, tmp_path):
    X, errors, y, weight = measured(90)
    names, table = ["x0", "x1", "x2"], tabled(X, errors, y, weight, tmp_path / "table.parquet")
    plain = Table(table.data, columns=names)
    for wrong in (errors, pd.DataFrame(errors, columns=names), Limits(errors, np.zeros_like(errors))):
        with pytest.raises(TypeError, match="X_err must be names of columns of the table, a convention of names, or"):
            model().fit(plain, "kind", X_err=wrong)
    with pytest.raises(ValueError, match=r"in the order of the features.*got 'x2_err' for 'x0', .* errors of 'x2'"):
        model().fit(plain, "kind", X_err=["x2_err", "x0_err", "x1_err"])
    frame = pd.DataFrame(X, columns=names)
    for cache in (None, tmp_path / "cache"):
        one = model().fit(Table(table.data, columns=names, cache=cache), "kind", X_err=0.3)
        other = model().fit(frame, np.array(["no", "yes"])[y], X_err=0.3)
        np.testing.assert_allclose(answers_of(one, frame, 0.3), answers_of(other, frame, 0.3), atol=1e-5)
        if not isinstance(one, Deconvolve):
            found = one.predict_proba(plain, X_err=0)
            np.testing.assert_allclose(found, one.predict_proba(frame, X_err=0), atol=1e-12)


@every_model_of_parts
def test_errors_of_frames_of_dask_are_found_by_name(model):
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    X, errors, y, _ = measured(90)
    frame, table = (pd.DataFrame(values, columns=list("abc")) for values in (X, errors))
    with dask.config.set(scheduler="synchronous"):
        parts, labels, bars = (frames.from_pandas(each, npartitions=3) for each in (frame, pd.Series(y), table))
        expected = answers_of(model().fit(frame, y, X_err=table), frame, table)
        found = model().fit(parts, labels, X_err=bars[["c", "a", "b"]])
        np.testing.assert_allclose(answers_of(found, frame, table), expected, atol=1e-5)
        if not isinstance(found, Deconvolve):
            again = found.predict_proba(parts[["b", "c", "a"]], X_err=bars[["c", "a", "b"]]).compute()
            np.testing.assert_allclose(again, found.predict_proba(frame, X_err=table), atol=1e-12)
        with pytest.raises(ValueError, match=r"X_err must have the columns of X, \['a', 'b', 'c'\]; got \['a_err'"):
            model().fit(parts, labels, X_err=bars.rename(columns={name: f"{name}_err" for name in "abc"}))


@pytest.mark.parametrize("estimator", [GuruClassifier(0.1), ErrorBarClassifier(model="linear")])
def test_error_columns_of_a_table_are_refused_as_features(tmp_path, estimator):
    path = tmp_path / "t.parquet"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=60), "x_err": 0.1, "kind": np.arange(60) % 2}).to_parquet(path)
    with pytest.raises(ValueError, match=r"named as the errors of others, \['x_err'\]: X_err must name them"):
        clone(estimator).fit(Table(str(path)), "kind")
    assert clone(estimator).fit(Table(str(path), columns=["x"]), "kind").n_features_in_ == 1


def test_groups_of_a_subsample_are_those_of_its_rows(monkeypatch):
    """In parts of unequal length, some rows without weight; one row of each group tells its number."""
    rng = np.random.default_rng(1)
    X, y, weight = rng.normal(size=(900, 2)), rng.integers(0, 3, 900), rng.integers(0, 3, 900).astype(float)
    groups = np.arange(900) // 3
    X[:, 0] = groups
    source, fields = Arrays([X[:100], X[100:130], X[130:]], rows=70), Fields(y, weight, None)
    for n in (50, 400, 900):
        drawn, labels, weights, _, found = reading.subsample_with_groups(source, fields, groups, n)
        np.testing.assert_array_equal(drawn[:, 0], found)
        assert len(labels) == len(weights) == len(found)
    with pytest.raises(ValueError, match=r"each of the 900 samples of X; got shape \(899,\)"):
        reading.subsample_with_groups(source, fields, groups[1:])


@pytest.mark.parametrize("kind", [ErrorBarClassifier, CalibratedWithErrorsCV])
def test_groups_of_a_source_stay_in_one_fold(kind):
    """Copies of each row, apart in the source: without groups, held-out rows have copies in the training rows."""
    rng = np.random.default_rng(2)
    X, y = np.tile(rng.normal(size=(60, 4)), (6, 1)), np.tile(rng.integers(0, 2, 60), 6)
    groups = np.tile(np.arange(60), 6)
    seen = []

    class Spy(StratifiedGroupKFold):
        def split(self, X, y, groups=None):
            seen.append(groups)
            return super().split(X, y, groups)

    given = {"model": "linear"} if kind is ErrorBarClassifier else {"estimator": GuruClassifier(0.5)}
    kind(cv=Spy(3), **given).fit(Arrays(X, rows=50), y, groups=groups)
    np.testing.assert_array_equal(seen[0], groups)
