"""Bayes' rule with a population of true values for each class."""

from typing import Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussguru._guru.base import ByProbability, Classifier, check_errors_given, seed_of
from gaussguru._guru.streamed import by_parts
from gaussguru._measured.deconvolve import Deconvolve
from gaussguru._measured.posteriors import checked_measurements, labelled_rows, rank_of
from gaussguru._utils.linalg import Array, log_sum
from gaussguru._utils.types import ErrorBars, Labels, Record, Seed, Values


class PopulationClassifier(ByProbability, Classifier):
    """Bayes' rule with a mixture of Gaussians for the true values of each class.

    A measurement is truth plus noise ``N(0, S_i)`` of known covariance. The true values of class c have the density
    ``sum_k pi_ck N(mu_ck, T_ck)``, fitted by :class:`gaussguru.population.Deconvolve` (extreme deconvolution: Bovy,
    Hogg & Roweis 2011). With the shares ``P(c)`` of the classes, the probability of a class given a measurement is ::

        P(c | x, S) ~ P(c) p_c(x, S),     p_c(x, S) = sum_k pi_ck N(x; mu_ck, T_ck + S)

    Errors of any size in training and in use, and values that were not measured, need no further step: the noise is
    part of the density. It works best if each class consists of a few clusters. Boundaries may be curved.

    Each class has a unit-information prior, which carries the information of one sample (Kass & Wasserman 1995, J.
    Amer. Statist. Assoc. 90), in three places: the samples of all other classes are part of its population with a
    total weight of 1; the penalty on its covariances, ``ridge`` of :class:`~gaussguru.population.Deconvolve`, is
    1 / n_c; and its next sample is from the population of all classes with probability ``1 / (n_c + 1)``, where n_c is
    the weight of the class. So a class with few samples, or without any measurement of some feature, still has a
    population, and no class gets probability 0.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of Gaussians of each class. "auto" chooses for each class by held-out likelihood; it is 1 if ``rank_`` is
        not None.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``: the probabilities are those for classes with these weights.
    random_state : int, RandomState instance or None, default=None
        Seed for starting points and held-out samples. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads for large data. The result does not depend on it.

    Attributes
    ----------
    populations_ : list of gaussguru.population.Deconvolve
        The population of each class, in the units of X.
    class_count_ : ndarray of shape (n_classes,)
        Total ``sample_weight`` of each class.
    class_prior_ : ndarray of shape (n_classes,)
        Shares of the classes in the total weight, ``class_weight`` included.
    rank_ : int or None
        Number of factors of the covariances if there are more than 60 features or fewer than 4 samples per feature;
        None for full covariances.
    has_errors_ : bool
        Whether the fit had error bars. If so, every prediction requires them.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    ErrorBarClassifier : pools classifiers, of which this is one.
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : one Gaussian for each class, without errors.
    gaussguru.population.Deconvolve : One population, for samples without labels.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru import PopulationClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 2
    >>> truth = rng.normal(size=(400, 2)) * np.where(y == 1, 3.0, 1.0)[:, np.newaxis]
    >>> X_err = rng.uniform(0.1, 1.0, size=(400, 2))
    >>> X = truth + X_err * rng.normal(size=(400, 2))
    >>> clf = PopulationClassifier().fit(X, y, X_err=X_err)
    >>> near, far, vague = clf.predict_proba([[0, 0], [5, 0], [5, 0]], X_err=[[0.1, 0.1]] * 2 + [[2, 2]])[:, 1]
    >>> bool(near < 0.5 < vague < far)
    True
    """

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        class_weight: Record | str | None = None,
        random_state: Seed = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Values, y: Labels, sample_weight: object = None, X_err: ErrorBars = None) -> Self:
        """Fit a population to the samples of each class.

        A fit that raises or is interrupted leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
            The measured values. NaN means "not measured" and is allowed if ``X_err`` is given.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 0 leaves a sample out, weight 2 is a sample that occurs twice. (For
            ``n_components="auto"`` it is one held-out sample.) Those below 1 on average are relative.
        X_err : error bars of X in any form, default=None
            As in :meth:`ErrorBarClassifier.fit`. None: all values are exact.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight, X_err)

    def _fit(self, X: Values, y: Labels, sample_weight: object, X_err: ErrorBars) -> Self:
        X, X_err = checked_measurements(self, X, X_err, reset=True)
        X, X_err, plain, labelled, _ = labelled_rows(X, X_err, y, sample_weight, self.class_weight)
        self.has_errors_, self.rank_, self.classes_ = X_err is not None, rank_of(*X.shape), labelled.classes
        labels = labelled.labels.astype(np.intp)
        totals = np.bincount(labels, labelled.all_weights, len(self.classes_))
        self.class_prior_ = totals / totals.sum()
        self.class_count_ = np.bincount(labels, plain, len(self.classes_)).astype(np.float64)
        number = 1 if self.n_components == "auto" and self.rank_ else self.n_components
        model = Deconvolve(number, rank=self.rank_, random_state=seed_of(self.random_state), n_jobs=self.n_jobs)
        weights = np.ones(len(X)) if plain is None else plain
        self.populations_ = []
        for c, count in enumerate(self.class_count_):
            others = weights * (1.0 / (self.class_count_.sum() - count))  # of total weight 1
            tol = model.tol * max(len(X), count + 1) / self.class_count_.sum()  # all classes to the same accuracy
            population = clone(model).set_params(ridge=1.0 / count, tol=tol)
            self.populations_.append(population._fit(X, X_err, np.where(labels == c, weights, others)))
        return self

    @by_parts
    def predict_log_proba(self, X: Values, X_err: ErrorBars = None) -> Array:
        """Return the logarithms of the probabilities, accurate even if these are very small.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
            As in :meth:`fit`, but they may be larger or smaller than in training. Required if the fit had error bars;
            0 means exact values.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        X, X_err = checked_measurements(self, X, X_err, reset=False)
        check_errors_given(self, X_err)
        logs = np.column_stack([population.score_samples(X, X_err) for population in self.populations_])
        logs -= logs.max(axis=1, keepdims=True)  # far away they are large, and their differences lose digits
        mixture = log_sum(logs + np.log(self.class_count_ / self.class_count_.sum()), axis=1)[:, np.newaxis]
        known = self.class_count_ / (self.class_count_ + 1.0)
        logs = np.logaddexp(logs + np.log(known), mixture + np.log1p(-known)) + np.log(self.class_prior_)
        return np.asarray(np.minimum(logs - log_sum(logs, axis=1)[:, np.newaxis], 0.0))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
