"""Any classifier with error bars: fitted to draws of every sample, its probabilities averaged over draws."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import sklearn
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats.qmc import Sobol
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import check_array, get_tags
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
    get_routing_for_object,
    process_routing,
)
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from gaussguru._blocks import row_blocks
from gaussguru._data.em import population_of
from gaussguru._errors import LowRank, Population, split_errors, standard_deviations, symmetric_roots, unmeasured
from gaussguru._estimators.base import Classifier, check_errors_given, seed_of
from gaussguru._estimators.streamed import by_parts
from gaussguru._estimators.validation import check_count, check_jobs, check_weights, encode_labels, rows_of_each
from gaussguru._frames import as_numbers, is_frame, like, take_rows
from gaussguru._linalg import Array, Index
from gaussguru.calibration import ByProbability, _weight_names

# Sets of draws among which training samples have theirs: so many displacements, in either direction, of a direction of
# the noise are seen by a classifier.
SETS = 256
# The most dimensions of a sequence of Sobol in SciPy; beyond, draws are random.
SOBOL_DIMENSIONS = 21_201


class PosteriorDrawsClassifier(ByProbability, Classifier):
    """Make any scikit-learn classifier account for error bars on its features.

    X and ``X_err`` describe the true values of a sample by a Gaussian ``N(m_i, V_i)``, or a mixture of Gaussians. The
    classifier is fitted to a few draws from it for every training sample; the draws share the weight of the sample. A
    prediction averages the probabilities over draws::

        P(c | x) = mean_q p(c | m + L z_q),     L L' = V

    Use it after :class:`gaussguru.population.Deconvolve`, which turns measurements into posteriors of the true values::

        make_pipeline(WithErrors(StandardScaler()), Deconvolve(), PosteriorDrawsClassifier(RandomForestClassifier()))

    Applied directly to measured values, it centres the draws on the measured value. This is correct for noise yet to
    come; for errors already made it adds the noise a second time.

    Draws are pairs ``+z``, ``-z`` from a scrambled Sobol sequence, scaled to variance 1. Predictions use the same
    ``z`` for all samples, so a prediction does not depend on the other samples and varies smoothly with x. The draws
    of a training sample depend only on its values, so a weight of 2 is the same as a sample that occurs twice (but for
    values that were not measured: the population that fills them is found by EM, which ends early). A sample without
    errors is used unchanged.

    Parameters
    ----------
    estimator : classifier, default=None
        None is ``HistGradientBoostingClassifier(random_state=0)``. Without ``predict_proba``, the probability of a
        class is the fraction of draws for which it is predicted. If ``fit`` takes no ``sample_weight``, all draws have
        the same weight.
    n_training_draws : int, default=4
        Number of draws per training sample. Parameters of the estimator that count samples (``min_samples_leaf``)
        count draws.
    n_draws : int, default=16
        Number of draws per sample in a prediction.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of blocks predicted in parallel, in joblib threads.

    Attributes
    ----------
    estimator_ : classifier
        The classifier fitted to the draws.
    has_errors_ : bool
        Whether the fit had error bars. If so, every prediction requires them.
    population_ : gaussguru.errors.Population or None
        The Gaussian from which values that were not measured (infinite error) are filled; None without ``X_err``.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Notes
    -----
    An estimator that splits its samples (a search, early stopping) should keep the draws of a sample together: give
    ``groups=np.arange(n_samples)`` to ``fit`` of a search with a splitter of groups, and switch early stopping off
    (``HistGradientBoostingClassifier(early_stopping=False)``; by default it begins at 10,000 draws).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from gaussguru import PosteriorDrawsClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, X_err = rng.normal(size=(400, 2)), rng.uniform(0.0, 0.5, size=(400, 2))
    >>> y = X[:, 0] > 0
    >>> clf = PosteriorDrawsClassifier(DecisionTreeClassifier(max_depth=3)).fit(X, y, X_err=X_err)
    >>> exact, vague = clf.predict_proba([[0.5, 0.0]] * 2, X_err=[[0.0, 0.0], [1.0, 1.0]])[:, 1]
    >>> bool(exact > vague > 0.5)
    True
    """

    __metadata_request__fit: ClassVar = {"groups": UNUSED}  # requested by the estimator

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_training_draws: int = 4,
        n_draws: int = 16,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_training_draws = n_training_draws
        self.n_draws = n_draws
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_err: Any = None, groups: Any = None, **params: Any
    ) -> Self:
        """Fit the classifier to draws from the samples.

        A fit that raises leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
            Means of the true values. A sparse matrix only without errors.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples. The draws of a sample share its weight.
        X_err : error bars of X in any form, default=None
            Standard deviations or covariances. A value that was not measured (infinite error, or NaN in X) is drawn
            from a Gaussian population, given the other features of the sample. None: all values are exact, and the
            classifier is fitted to X itself.
        groups : array-like of shape (n_samples,), default=None
            Passed to ``fit`` of the classifier, repeated for the draws of a sample. With metadata routing, a
            classifier that requests groups gets the sample number if none are given.
        **params
            Further metadata that the classifier requests, with scikit-learn's metadata routing enabled. Values per
            sample are repeated for its draws.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err, groups, params)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_err: Any, groups: Any, params: dict[str, Any]) -> Self:
        for name in ("n_training_draws", "n_draws"):
            check_count(name, getattr(self, name))
        check_jobs("n_jobs", self.n_jobs)
        if y is None:
            raise ValueError("y is required: this estimator requires y to be passed, but the target y is None")
        seed = seed_of(self.random_state)
        components = getattr(X, "components", None)
        X, X_err = self._checked(X, X_err, reset=True)
        classes, labels = encode_labels(y)
        if len(labels) != X.shape[0]:
            raise ValueError(f"X and y must have the same number of samples; got {X.shape[0]} and {len(labels)}")
        weights = check_weights(sample_weight, len(labels))
        metadata = self._metadata()
        self.has_errors_ = X_err is not None
        self.population_ = None
        kept = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
        if self.has_errors_:
            self.population_ = population_of(X, X_err, weights)
            known = _Known.of(X, X_err, components, self.population_).take(kept)
            draws, rows = known.training(self.n_training_draws, seed, often=not metadata.takes_weights)
        else:
            draws, rows = X if len(kept) == len(labels) else take_rows(X, kept), np.arange(len(kept))
        counts, rows = np.bincount(rows)[rows], kept[rows]
        given = metadata.given(self, _Draws(len(labels), rows, 1.0 / counts, weights), groups, params)
        self._seed, self.classes_ = seed, classes
        self.estimator_ = clone(metadata.estimator).fit(draws, classes[labels.astype(np.intp)][rows], **given)
        if not np.array_equal(self.estimator_.classes_, classes):
            raise ValueError(f"estimator must know the classes {classes.tolist()!r}; got {self.estimator_.classes_!r}")
        return self

    def _estimator(self) -> Any:
        return HistGradientBoostingClassifier(random_state=0) if self.estimator is None else self.estimator

    def _metadata(self) -> "_Named | _Routed":
        """Return by which rules the estimator is given metadata."""
        rules = _Routed if sklearn.get_config()["enable_metadata_routing"] else _Named
        return rules(self._estimator())

    @by_parts
    def predict_proba(self, X: Any, X_err: Any = None) -> Array:
        """Return the probability of each class, averaged over the draws of a sample.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`fit`, but they may be larger or smaller than in training. Required if the fit had error bars;
            0 means exact values.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        components = getattr(X, "components", None)
        X, X_err = self._checked(X, X_err, reset=False)
        check_errors_given(self, X_err)
        if X_err is None:
            return self._probabilities(X)
        n, d = X.shape
        parts = row_blocks(n, d * max(self.n_draws, d)) or [slice(0)]

        def of(part: slice) -> Array:
            inner = None if components is None else components[part]
            return self._averaged(_Known.of(take_rows(X, part), take_rows(X_err, part), inner, self.population_))

        return np.concatenate(Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(of)(part) for part in parts))

    @by_parts
    def predict_log_proba(self, X: Any, X_err: Any = None) -> Array:
        """Return the logarithms of :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like, sparse matrix, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, X_err))

    def _averaged(self, known: "_Known") -> Array:
        """Return the mean probabilities of some samples."""
        often = np.flatnonzero(known.varies)
        result = np.empty((len(known.varies), len(self.classes_)))
        if len(often) < len(result):
            result[~known.varies] = self._probabilities(take_rows(known.X, ~known.varies))
        if len(often):
            some = known.take(often)
            draws = some.drawn(*_points(self.n_draws, some.n_causes, self._seed))
            found = self._probabilities(like(known.X, draws.reshape(-1, draws.shape[2])))
            result[often] = found.reshape(self.n_draws, len(often), -1).mean(axis=0)
        return result

    def _probabilities(self, X: Any) -> Array:
        """Return the probabilities of the estimator, or what it predicts."""
        if hasattr(self.estimator_, "predict_proba"):
            return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)
        return np.asarray(self.estimator_.predict(X)[:, np.newaxis] == self.classes_, dtype=np.float64)

    def _checked(self, X: Any, X_err: Any, *, reset: bool) -> tuple[Any, Any]:
        """Return X as an array, sparse matrix or DataFrame, and its errors."""
        X, X_err = split_errors(X, X_err)
        if sp.issparse(X):
            if X_err is not None:
                raise TypeError("Sparse data was passed for X, but dense data is required with X_err: use X.toarray()")
            X = X.tocsr()
        elif not is_frame(X):
            kind = "numeric" if X_err is None else [np.float64, np.float32]
            X = check_array(X, dtype=kind, ensure_all_finite=False, input_name="X")
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X, X_err

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata routing of the fit and the estimator."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return (
            MetadataRouter(owner=self).add_self_request(self).add(estimator=self._estimator(), method_mapping=mapping)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._estimator())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.input_tags.positive_only = inner.input_tags.positive_only
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags


class _Draws(NamedTuple):
    """Draws to fit to: of ``rows`` among ``n_samples`` samples, each with a share of the weight of its sample."""

    n_samples: int
    rows: Index
    shares: Array
    sample_weight: Array | None

    @property
    def weights(self) -> Array | None:
        """Of the draws; None where all have the same."""
        if self.sample_weight is not None:
            return self.shares * self.sample_weight[self.rows]
        return self.shares if np.any(self.shares != 1.0) else None

    def of(self, value: Any) -> Any:
        """Return metadata for the draws: of what has an entry for each sample, that of their samples."""
        return rows_of_each(value, self.rows, self.n_samples)


@dataclass(frozen=True)
class _Named:
    """Metadata without routing: weights and groups, by their names."""

    estimator: Any
    hint: ClassVar[str] = ""

    @property
    def takes_weights(self) -> bool:
        return bool(_weight_names(self.estimator))

    def weights(self, draws: _Draws) -> Array | None:
        """Return the weights of draws, if the estimator takes any."""
        if self.takes_weights:
            return draws.weights
        if draws.sample_weight is not None:
            name = type(self.estimator).__name__
            raise TypeError(f"sample_weight was given, but {name} takes none{self.hint}")
        return None

    def given(self, owner: Any, draws: _Draws, groups: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Return what ``fit`` of the estimator is given beside draws and labels."""
        weights = self.weights(draws)
        if params:
            raise ValueError(
                f"{sorted(params)} can be given only with sklearn.set_config(enable_metadata_routing=True)"
            )
        asked = dict.fromkeys(_weight_names(self.estimator), weights) | {"groups": draws.of(groups)}
        return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True)
class _Routed(_Named):
    """Metadata with routing: what the estimator asks for."""

    hint: ClassVar[str] = ": see its set_fit_request"

    @property
    def takes_weights(self) -> bool:
        return self._asks_for("sample_weight")

    def _asks_for(self, name: str) -> bool:
        return bool(get_routing_for_object(self.estimator).consumes("fit", [name]))

    def given(self, owner: Any, draws: _Draws, groups: Any, params: dict[str, Any]) -> dict[str, Any]:
        if groups is None and self._asks_for("groups"):
            groups = np.arange(draws.n_samples)
        asked = {name: draws.of(value) for name, value in (params | {"groups": groups}).items()}
        asked["sample_weight"] = self.weights(draws)
        asked = {name: value for name, value in asked.items() if value is not None}
        return dict(process_routing(owner, "fit", **asked).estimator.fit) if asked else {}


def _points(n_draws: int, n_causes: int, seed: int) -> tuple[Array, Array]:
    """Return standard normal points (n_draws, n_causes), and a number between 0 and 1 with each."""
    half = -(-n_draws // 2)
    uniform = _uniform(half, n_causes + 1, seed)
    normal = ndtri(uniform[:, 1:])
    normal /= np.sqrt(np.square(normal).mean(axis=0))
    pairs = np.concatenate([normal, -normal]), np.concatenate([uniform[:, 0], 1.0 - uniform[:, 0]])
    order = np.arange(2 * half).reshape(2, half).T.ravel()[:n_draws]
    return pairs[0][order], pairs[1][order]


def _uniform(n_points: int, n_dimensions: int, seed: int) -> Array:
    """Return points in the unit cube, none of them on its border."""
    if n_dimensions > SOBOL_DIMENSIONS:
        return np.random.default_rng(seed).uniform(1e-12, 1.0 - 1e-12, (n_points, n_dimensions))
    points = Sobol(n_dimensions, rng=np.random.default_rng(seed)).random_base2(max(0, (n_points - 1).bit_length()))
    return np.asarray(np.clip(points[:n_points], 1e-12, 1.0 - 1e-12))


@dataclass(frozen=True)
class _Known:
    """What is known of the truth of some samples: a Gaussian for each, or a mixture (``components``).

    The noise of a sample is ``F c + R z`` with standard normal numbers c and z: ``common`` has F, (n, d, rank), and
    ``own`` R, (n, d, d), or the standard deviations (n, d) on its diagonal. Its draws do not depend on the samples that
    come with it: R is symmetric, and ``keys`` are of the measured values.
    """

    X: Any
    common: Array
    own: Array
    components: Any
    keys: Index

    @classmethod
    def of(cls, X: Any, X_err: Any, components: Any, population: Population | None) -> "_Known":
        """Return what measurements tell; values that were not measured are filled in by a population."""
        values = as_numbers(X, "X")
        n, d = values.shape
        gone = unmeasured(X_err, (n, d))
        keys, common = _keys(np.where(gone, 0.0, values)), np.zeros((n, d, 0))
        rank = X_err.factors.shape[2] if isinstance(X_err, LowRank) else 0
        gaps = np.flatnonzero(gone.any(axis=1))
        if len(gaps):
            if population is None:
                raise ValueError(
                    "X_err marks values as not measured, but a fit without X_err cannot fill them: fit with X_err "
                    "(X_err=0 for exact values)"
                )
            X, X_err = population.fill(X, X_err)
        if isinstance(X_err, LowRank):
            common, own = X_err.factors, np.zeros((n, d)) if X_err.std is None else X_err.std
            if common.shape[2] > rank:  # beside the errors that were given, roots of samples that were filled in
                replaced, common = common[:, :, :d], common[:, :, d:]
                own = own[:, :, np.newaxis] * np.eye(d)
                covariances = replaced[gaps] @ replaced[gaps].transpose(0, 2, 1)
                own[gaps] = symmetric_roots(*np.linalg.eigh(covariances))
        elif X_err.ndim == 3:
            own = symmetric_roots(*np.linalg.eigh(X_err))
        else:
            own = standard_deviations(X_err, (n, d))
        return cls(X, common, own, components, keys)

    @cached_property
    def varies(self) -> NDArray[np.bool_]:
        """Which samples have any noise."""
        return np.asarray(np.any([part.reshape(len(part), -1).any(axis=1) for part in (self.common, self.own)], axis=0))

    def take(self, rows: Any) -> "_Known":
        """Return what is known of some of them."""
        components = None if self.components is None else self.components[rows]
        return _Known(take_rows(self.X, rows), self.common[rows], self.own[rows], components, self.keys[rows])

    @property
    def n_causes(self) -> int:
        """The number of normal numbers that a draw is made of."""
        return int(self.X.shape[1]) + (0 if self.components is not None else self.common.shape[2])

    def _noise(self, causes: Array) -> Array:
        """Return the noise that numbers make, (n_samples, n_features)."""
        rank, rule = self.common.shape[2], "ijr,r->ij" if causes.ndim == 1 else "ijr,ir->ij"
        own = causes[..., rank:]
        noise = self.own * own if self.own.ndim == 2 else np.einsum(rule, self.own, own)
        return np.asarray(noise + np.einsum(rule, self.common, causes[..., :rank]) if rank else noise)

    def drawn(self, normal: Array, uniform: Array) -> Array:
        """Return draws, of shape (n_draws, n_samples, n_features).

        ``normal`` is (n_draws, n_causes), or with an axis of samples in between, and ``uniform`` the same without the
        last axis: it decides between components.
        """
        if self.components is None:
            return as_numbers(self.X, "X") + np.stack([self._noise(causes) for causes in normal])
        d = self.X.shape[1]
        shares = np.asarray(self.components.weights)
        means, covariances = self.components.scores(np.eye(d), np.zeros(d))
        values, axes = np.linalg.eigh(covariances)
        roots = axes * np.sqrt(np.maximum(values, 0.0))[..., np.newaxis, :]
        # The component in whose part of the unit interval the number falls.
        above = np.cumsum(shares, axis=1)[:, :-1]
        every = np.arange(len(shares))
        draws = []
        for z, u in zip(normal, uniform, strict=True):
            k = (above < (u if np.ndim(u) == 0 else u[:, np.newaxis])).sum(axis=1)
            draws.append(
                means[every, k] + (roots[every, k] @ np.broadcast_to(z, (len(k), d))[:, :, np.newaxis])[..., 0]
            )
        return np.stack(draws)

    def training(self, n_draws: int, seed: int, *, often: bool) -> tuple[Any, Index]:
        """Return draws to fit to, and of which samples they are.

        A sample without error comes once, unless it has to come as ``often`` as others.
        """
        if not self.varies.any():
            return self.X, np.arange(len(self.varies))
        drawn = np.ones(len(self.varies), dtype=bool) if often else self.varies
        half, d = -(-n_draws // 2), self.X.shape[1]
        points = _points(2 * half * SETS, self.n_causes, seed)
        normal, uniform = (part.reshape(SETS, 2 * half, *part.shape[1:])[:, :n_draws] for part in points)
        rows = [np.flatnonzero(~drawn)]
        parts = [np.asarray(take_rows(self.X, rows[0]), dtype=np.float64)]
        chosen = np.flatnonzero(drawn)
        for some in (chosen[part] for part in row_blocks(len(chosen), d * max(n_draws, d))):
            which = self.keys[some] % SETS
            draws = self.take(some).drawn(normal[which].transpose(1, 0, 2), uniform[which].T)
            parts.append(draws.reshape(-1, d))
            rows.append(np.tile(some, n_draws))
        return like(self.X, np.concatenate(parts)), np.concatenate(rows)


def _keys(values: Array) -> Index:
    """Return a number for every row that depends on its values alone, to single precision, and mixes them well."""
    bits = np.ascontiguousarray(values.astype(np.float32) + np.float32(0.0)).view(np.uint32).astype(np.uint64)
    factors: Any = np.random.default_rng(0).integers(0, 2**62, size=values.shape[1])
    keys = np.zeros(len(values), dtype=np.uint64)
    for j, factor in enumerate(factors):
        keys = (keys ^ bits[:, j]) * np.uint64(2 * int(factor) + 1)
        keys ^= keys >> np.uint64(29)
    return (keys >> np.uint64(8)).astype(np.int64)
