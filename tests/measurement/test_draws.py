"""Any classifier with error bars: what it is fitted to and what it averages, against loops written by hand."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
import skops.io
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.error_bars import every_form, matrices

from gaussguru import PosteriorDrawsClassifier
from gaussguru.errors import LowRank, Measured
from gaussguru.population import Deconvolve
from gaussguru.preprocessing import WithErrors

N, D = 200, 3
RNG = np.random.default_rng(0)
TRUTH = RNG.standard_normal((N, D))
Y = (TRUTH[:, 0] * TRUTH[:, 1] + 0.2 * RNG.standard_normal(N) > 0).astype(int)
ERR = RNG.uniform(0.1, 0.6, (N, D))
X = TRUTH + ERR * RNG.standard_normal((N, D))
TREE = DecisionTreeClassifier(max_depth=4, random_state=0)


class Keeper(ClassifierMixin, BaseEstimator):
    """Keeps what it is fitted to; its probability is a smooth function of the first two features."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.X_, self.y_, self.weight_ = X, y, sample_weight
        return self

    def predict_proba(self, X):
        p = ndtr(2 * np.asarray(X)[:, 0] - np.asarray(X)[:, 1] ** 2)
        return np.column_stack([1 - p, p])

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class Unweighted(Keeper):
    def fit(self, X, y):
        return super().fit(X, y)


@parametrize_with_checks([PosteriorDrawsClassifier(LogisticRegression()), PosteriorDrawsClassifier(LinearSVC())])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# --- what it is fitted to -----------------------------------------------------------------------------------


@every_form
def test_draws_have_the_means_and_covariances_that_they_should(form):
    """Of all samples together: pairs cancel exactly, and standardised squares are 1 to 1/sqrt(n)."""
    X_err = form(N, D)
    fitted = PosteriorDrawsClassifier(Keeper(), n_training_draws=8).fit(X, Y, X_err=X_err).estimator_
    Sigma = matrices(X_err, N, D)
    noisy = np.flatnonzero(np.einsum("ijj->i", Sigma) > 0)
    apart = fitted.X_[len(X) - len(noisy) :].reshape(8, len(noisy), D) - X[noisy]
    np.testing.assert_allclose(apart.mean(axis=0), 0.0, atol=1e-9)
    squares = np.einsum("qij,qik->ijk", apart, apart) / 8
    scale = np.sqrt(np.einsum("ijj->ij", Sigma[noisy]).mean(axis=0))
    found, expected = (C.mean(axis=0) / np.multiply.outer(scale, scale) for C in (squares, Sigma[noisy]))
    np.testing.assert_allclose(found, expected, atol=0.2)
    np.testing.assert_allclose(fitted.weight_.sum(), N)
    np.testing.assert_array_equal(fitted.y_[len(X) - len(noisy) :].reshape(8, -1), np.tile(Y[noisy], (8, 1)))


def test_exact_samples_are_not_drawn():
    errors = ERR.copy()
    errors[:50] = 0.0
    fitted = PosteriorDrawsClassifier(Keeper()).fit(X, Y, X_err=errors).estimator_
    assert len(fitted.X_) == 50 + 4 * 150
    np.testing.assert_array_equal(fitted.X_[:50], X[:50])
    np.testing.assert_array_equal(fitted.weight_, np.repeat([1.0, 0.25], [50, 600]))
    # Without weights all samples come as often.
    fitted = PosteriorDrawsClassifier(Unweighted()).fit(X, Y, X_err=errors).estimator_
    assert len(fitted.X_) == 4 * N
    np.testing.assert_array_equal(fitted.X_.reshape(4, N, D)[:, :50], np.broadcast_to(X[:50], (4, 50, D)))


@pytest.mark.parametrize("model", [TREE, LogisticRegression(), KNeighborsClassifier(), LinearSVC()])
def test_zero_errors_are_the_plain_classifier(model):
    plain = clone(model).fit(X, Y)
    for given in ({"X_err": np.zeros(N)}, {"X_err": 0}, {"X_err": LowRank(np.zeros((N, D, 2)))}, {}):
        ours = PosteriorDrawsClassifier(model).fit(X, Y, **given)
        zero = {} if not given else {"X_err": 0}
        np.testing.assert_array_equal(ours.predict(X, **zero), plain.predict(X))
        if hasattr(plain, "predict_proba"):
            np.testing.assert_array_equal(ours.predict_proba(X, **zero), plain.predict_proba(X))


def test_weights_are_repetitions_and_order_does_not_matter():
    times = np.random.default_rng(1).integers(0, 3, N)
    rows = np.repeat(np.arange(N), times)
    model = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000)
    weighted = PosteriorDrawsClassifier(model).fit(X, Y, times, X_err=ERR)
    repeated = PosteriorDrawsClassifier(model).fit(X[rows], Y[rows], X_err=ERR[rows])
    np.testing.assert_allclose(weighted.estimator_.coef_, repeated.estimator_.coef_, rtol=1e-5)
    order = np.random.default_rng(2).permutation(N)
    turned = PosteriorDrawsClassifier(model).fit(X[order], Y[order], times[order], X_err=ERR[order])
    np.testing.assert_allclose(weighted.estimator_.coef_, turned.estimator_.coef_, rtol=1e-5)
    # The weight of a sample is shared: the ridge counts as much as without draws.
    total = PosteriorDrawsClassifier(Keeper()).fit(X, Y, times, X_err=ERR).estimator_.weight_.sum()
    assert total == pytest.approx(times.sum())


def test_weights_that_nobody_takes():
    with pytest.raises(TypeError, match="KNeighborsClassifier takes none"):
        PosteriorDrawsClassifier(KNeighborsClassifier()).fit(X, Y, np.ones(N), X_err=ERR)
    inside = make_pipeline(StandardScaler(), LogisticRegression())
    fitted = PosteriorDrawsClassifier(inside).fit(X, Y, np.arange(N) % 2, X_err=ERR)
    half = PosteriorDrawsClassifier(inside).fit(X[1::2], Y[1::2], X_err=ERR[1::2])
    np.testing.assert_allclose(fitted.estimator_[-1].coef_, half.estimator_[-1].coef_, rtol=1e-6)


# --- what it averages ---------------------------------------------------------------------------------------


@every_form
def test_probabilities_are_averages(form):
    """Against a brute-force average over many draws, of a smooth probability."""
    X_err = form(N, D)
    fitted = PosteriorDrawsClassifier(Keeper(), n_draws=64).fit(X, Y, X_err=ERR)
    rng, roots = np.random.default_rng(0), np.linalg.cholesky(matrices(X_err, N, D) + 1e-12 * np.eye(D))
    total = np.zeros(N)
    for _ in range(1000):
        z = rng.standard_normal((N, D))
        both = [Keeper().predict_proba(X + s * np.einsum("ijk,ik->ij", roots, z))[:, 1] for s in (1, -1)]
        total += np.mean(both, axis=0)
    found = fitted.predict_proba(X, X_err)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.abs(found[:, 1] - total / 1000).max() < 0.06
    assert np.abs(found[:, 1] - total / 1000).mean() < 0.012
    np.testing.assert_allclose(fitted.predict_log_proba(X, X_err), np.log(found))
    np.testing.assert_array_equal(fitted.predict(X, X_err), (found[:, 1] > 0.5).astype(int))
    assert fitted.score(X, Y, X_err=X_err) == np.mean(fitted.predict(X, X_err) == Y)


def test_mixtures_are_drawn_from():
    """Two components far apart: their shares, and the average over each."""
    rng = np.random.default_rng(0)
    truth = np.concatenate([rng.normal(-3, 0.3, (150, 2)), rng.normal(3, 0.3, (150, 2))])
    labels = np.arange(300) // 150
    found = Deconvolve(2).fit(truth, X_err=np.full(truth.shape, 0.2))
    fitted = PosteriorDrawsClassifier(Keeper(), n_draws=128).fit(found.transform(truth, np.full((300, 2), 0.2)), labels)
    vague = found.transform([[0.2, 0.1], [-0.3, 0.4]], [[2.0, 2.0], [3.0, 3.0]])
    means, covariances = vague.components.scores(np.eye(2), np.zeros(2))
    for i, p in enumerate(fitted.predict_proba(vague)[:, 1]):
        parts = [rng.multivariate_normal(means[i, k], covariances[i, k], 20_000) for k in range(2)]
        each = [Keeper().predict_proba(part)[:, 1].mean() for part in parts]
        assert p == pytest.approx(vague.components.weights[i] @ each, abs=0.02)
        assert abs(p - Keeper().predict_proba(vague.X)[i, 1]) > 0.05  # which the mean alone would say


def test_predictions_depend_on_nothing_else(monkeypatch):
    fitted = PosteriorDrawsClassifier(TREE).fit(X, Y, X_err=ERR)
    whole = fitted.predict_proba(X, ERR)
    np.testing.assert_array_equal(fitted.predict_proba(X[7:9], ERR[7:9]), whole[7:9])
    again = PosteriorDrawsClassifier(TREE, n_jobs=2).fit(X, Y, X_err=ERR)
    monkeypatch.setattr("gaussguru._blocks.WORKING_BYTES", 8 * 16 * D * 10)
    np.testing.assert_array_equal(again.predict_proba(X, ERR), whole)
    np.testing.assert_array_equal(fitted.fit(X, Y, X_err=ERR).predict_proba(X, ERR), whole)
    other = PosteriorDrawsClassifier(TREE, random_state=5).fit(X, Y, X_err=ERR).predict_proba(X, ERR)
    assert np.abs(other - whole).max() > 0


def test_singular_covariances_do_not_change_other_samples():
    fitted = PosteriorDrawsClassifier(TREE).fit(X, Y, X_err=ERR)
    factors = np.random.default_rng(0).standard_normal((N, D, D))
    covariances = factors @ factors.transpose(0, 2, 1)
    covariances[3] = np.outer(factors[3, 0], factors[3, 0])
    whole = fitted.predict_proba(X, covariances)
    np.testing.assert_allclose(fitted.predict_proba(X[4:], covariances[4:]), whole[4:], atol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(X[:5], covariances[:5]), whole[:5], atol=1e-12)


def test_votes_of_a_classifier_without_probabilities():
    fitted = PosteriorDrawsClassifier(LinearSVC(), n_draws=32).fit(X, Y, X_err=ERR)
    w, b = fitted.estimator_.coef_[0], fitted.estimator_.intercept_[0]
    expected = ndtr((X @ w + b) / np.sqrt(np.square(ERR) @ np.square(w)))
    assert np.abs(fitted.predict_proba(X, ERR)[:, 1] - expected).max() < 0.15


def test_many_classes_names_and_storage():
    features, labels = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["a", "b", "c"])[labels]
    errors = 0.1 * features.std().to_numpy() * np.ones(features.shape)
    fitted = PosteriorDrawsClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)).fit(
        features, names, X_err=pd.DataFrame(errors, columns=features.columns)
    )
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.estimator_.feature_names_in_.tolist() == features.columns.tolist()
    assert fitted.feature_names_in_.tolist() == features.columns.tolist()
    found = fitted.predict_proba(Measured(features, errors))
    assert found.shape == (150, 3)
    assert fitted.score(features, names, X_err=errors) > 0.9
    archive = skops.io.dumps(fitted)
    restored = skops.io.loads(archive, trusted=skops.io.get_untrusted_types(data=archive))
    for again in (pickle.loads(pickle.dumps(fitted)), restored):
        np.testing.assert_array_equal(again.predict_proba(features, errors), found)


# --- with others --------------------------------------------------------------------------------------------


def test_it_gains_where_errors_differ():
    """Training with small errors, use with large ones: better than the same trees on measured values."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((2000, 2))
    labels = (truth[:, 0] * truth[:, 1] > 0).astype(int)
    train, test = slice(1000), slice(1000, None)
    errors = np.where(np.arange(2000)[:, np.newaxis] < 1000, 0.1, rng.uniform(0.1, 1.5, truth.shape))
    measured = truth + errors * rng.standard_normal(truth.shape)
    forest = RandomForestClassifier(20, min_samples_leaf=5, random_state=0)
    plain = clone(forest).fit(measured[train], labels[train]).predict_proba(measured[test])
    pipe = make_pipeline(WithErrors(StandardScaler()), Deconvolve(), PosteriorDrawsClassifier(forest))
    pipe.fit(Measured(measured[train], errors[train]), labels[train])
    ours = pipe.predict_proba(Measured(measured[test], errors[test]))
    losses = [-np.mean(np.log(np.clip(p[np.arange(1000), labels[test]], 1e-3, 1))) for p in (plain, ours)]
    assert losses[1] < losses[0] - 0.2, losses


def test_values_that_were_not_measured():
    """They are drawn given the others: as the posterior of the same Gaussian says."""
    values, errors = X.copy(), ERR.copy()
    values[::5, 0] = np.nan
    fitted = PosteriorDrawsClassifier(Keeper(), n_draws=64).fit(values, Y, X_err=errors)
    assert np.isfinite(fitted.estimator_.X_).all()
    found = fitted.predict_proba(values, errors)
    filled = fitted.population_.fill(values, np.where(np.isnan(values), np.inf, errors))
    expected = PosteriorDrawsClassifier(Keeper(), n_draws=64).fit(X, Y, X_err=ERR).predict_proba(*filled)
    np.testing.assert_allclose(found, expected, atol=0.05)
    plain = PosteriorDrawsClassifier(HistGradientBoostingClassifier(max_iter=3)).fit(values, Y)  # takes NaN as it is
    assert np.isfinite(plain.predict_proba(values)).all()
    with pytest.raises(ValueError, match="fit with X_err"):
        PosteriorDrawsClassifier(Keeper()).fit(X, Y).predict_proba(values, errors)


def test_routing_and_groups():
    """Draws of a sample stay together in the folds of a search inside, and metadata reaches the estimator."""
    seen = []

    class Folds(GroupKFold):
        def split(self, X, y=None, groups=None):
            for train, test in super().split(X, y, groups):
                seen.append((set(np.asarray(groups)[train]), set(np.asarray(groups)[test])))
                yield train, test

    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, cv=Folds(3))
    PosteriorDrawsClassifier(search).fit(X, Y, X_err=ERR, groups=np.arange(N))
    assert len(seen) == 3
    assert all(not (train & test) for train, test in seen)
    with sklearn.config_context(enable_metadata_routing=True):
        seen.clear()
        tree = DecisionTreeClassifier(random_state=0).set_fit_request(sample_weight=True)
        tree.set_score_request(sample_weight=False)
        routed = GridSearchCV(tree, {"max_depth": [1, 3]}, cv=Folds(3))
        PosteriorDrawsClassifier(routed).fit(X, Y, np.arange(1, N + 1), X_err=ERR)
        assert all(not (train & test) for train, test in seen)
        assert seen
        asks = PosteriorDrawsClassifier(Keeper().set_fit_request(sample_weight=True))
        pipe = make_pipeline(Deconvolve(), asks)
        pipe.fit(X, Y, X_err=ERR)
        np.testing.assert_array_equal(pipe[-1].estimator_.weight_, 0.25)
        assert np.isfinite(cross_val_score(pipe, X, Y, params={"X_err": ERR}, cv=3)).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_draws": 0}, ValueError, "n_draws must be a whole number >= 1"),
        ({"n_training_draws": 2.5}, TypeError, "n_training_draws must be a whole number"),
        ({"n_jobs": 0}, ValueError, "n_jobs must be None"),
    ],
)
def test_bad_parameters(change, error, message):
    with pytest.raises(error, match=message):
        PosteriorDrawsClassifier(TREE, **change).fit(X, Y, X_err=ERR)


def test_bad_data():
    model = PosteriorDrawsClassifier(TREE)
    with pytest.raises(ValueError, match="same number of samples; got 200 and 5"):
        model.fit(X, Y[:5], X_err=ERR)
    with pytest.raises(ValueError, match="nonnegative"):
        model.fit(X, Y, X_err=-ERR)
    with pytest.raises(TypeError, match="dense data is required with X_err"):
        model.fit(sp.csr_array(X), Y, X_err=ERR)
    with pytest.raises(ValueError, match="can be given only with"):
        model.fit(X, Y, X_err=ERR, colour=1)
    assert not hasattr(model, "classes_")
    with pytest.raises(ValueError, match="X_err is missing"):
        model.fit(X, Y, X_err=ERR).predict(X)
    sparse = PosteriorDrawsClassifier(LogisticRegression()).fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(sparse.predict_proba(sp.csr_array(X)), LogisticRegression().fit(X, Y).predict_proba(X),
                               atol=1e-3)  # fmt: skip


@pytest.mark.parametrize("form", ["per value", "covariances", "low rank", "common causes"])
def test_predictions_do_not_depend_on_samples_that_lack_values(form):
    """Values that were not measured are filled in with correlated errors; those of other samples keep their draws."""
    rng = np.random.default_rng(3)
    X, std = rng.normal(size=(60, 3)), rng.uniform(0.2, 1.0, (60, 3))
    factors = rng.normal(size=(60, 3, 2)) * 0.3
    X_err = {
        "per value": std,
        "covariances": factors @ factors.transpose(0, 2, 1) + np.eye(3) * std[:, :, np.newaxis] ** 2,
        "low rank": LowRank(factors, std),
        "common causes": LowRank(factors),
    }[form]
    holes = X.copy()
    holes[:20, 1] = np.nan
    model = PosteriorDrawsClassifier(DecisionTreeClassifier(max_depth=4)).fit(holes, X[:, 0] > 0, X_err=X_err)
    together = model.predict_proba(holes, X_err=X_err)
    rows = np.arange(20, 60)
    np.testing.assert_array_equal(model.predict_proba(X[rows], X_err=X_err[rows]), together[rows])
    for i in (0, 7, 30):
        alone = model.predict_proba(holes[[i]], X_err=X_err[[i]])
        np.testing.assert_allclose(alone[0], together[i], atol=1e-6)
