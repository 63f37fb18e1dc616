"""The population of true values behind measurements with error bars, and posteriors of the true values."""

import warnings
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, column_or_1d

from gaussguru._errors.given import Components, Limits, with_more
from gaussguru._errors.missing import standard_deviations
from gaussguru._errors.samples import Measured, split_errors
from gaussguru._guru.base import OrUnchanged, seed_of
from gaussguru._guru.streamed import by_parts, light, mean_over, names_of, note_features
from gaussguru._populations.em import EmState, Fit, Sample
from gaussguru._populations.mixtures import Mixture
from gaussguru._populations.readings import Readings, read, unlabelled
from gaussguru._populations.search import InformativeSample, Search
from gaussguru._rows.streams import Part, in_partition
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import check_weights, validated, warn_of_values_beyond_others
from gaussguru._utils.checks import (
    check_count,
    check_flag,
    check_jobs,
    check_optional,
    check_real,
    check_verbose,
    outside,
)
from gaussguru._utils.frames import as_numbers, check_unmasked, column_names, is_frame, like
from gaussguru._utils.linalg import Array
from gaussguru._utils.stages import stage
from gaussguru._utils.types import ErrorBars, Labels, MixedArray, Values
from gaussguru.sources.base import Fields, Mapped, Source
from gaussguru.sources.reading import Reading, as_source, drawn
from gaussguru.sources.split import SplitSource

# Entries of the posterior covariances of a piece of a source, 16 MB: a thread has ten arrays of this size.
PART_NUMBERS = 1 << 21


class Deconvolve(OrUnchanged, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Replace measurements with error bars by posteriors of the true values.

    A measurement is ``x_i = t_i + e_i``: the true value plus noise ``e_i ~ N(0, S_i)`` of known covariance. The
    population of true values, ``t ~ sum_k pi_k N(mu_k, T_k)``, is fitted to all samples by maximum likelihood. The
    posterior of a true value is then ::

        t_i | x_i ~ sum_k q_ik N(m_ik, V_ik)        m_ik = mu_k + T_k (T_k + S_i)^-1 (x_i - mu_k)
        q_ik ~ pi_k N(x_i; mu_k, T_k + S_i)         V_ik = T_k - T_k (T_k + S_i)^-1 T_k

    (extreme deconvolution: Bovy, Hogg & Roweis 2011, Ann. Appl. Stat. 5). A precise measurement stays where it is. An
    imprecise one moves towards the value that the population and the other features of the sample predict. An error of
    0 is an exact value. A value that was not measured has an infinite error: NaN in X, or infinity in X_err. It is the
    limit of a growing error, in posteriors and in the probabilities of the components; values with errors above ten
    spreads of the more precise half of the feature are left out of the fit. Upper and lower limits
    (:class:`gaussguru.errors.Limits`) truncate the posterior and enter the fit of the population; EM then approximates
    truncated posteriors by Gaussians.

    ``transform`` returns :class:`gaussguru.Measured` with the posterior means, their covariances, and, with more
    than one component, the mixtures themselves. Labels are not used.

    Parameters
    ----------
    n_components : int or "auto", default=1
        Number of Gaussians K. "auto" tries 1, 2, ... up to 5, and stops when the likelihood of held-out samples does
        not rise by more than its standard error.
    rank : int or None, default=None
        For many features: restricts covariances to ``T_k = F_k F_k' + diag(D_k)`` where F has this many columns (factor
        analysis). With independent errors, time and memory are then proportional to n d rank^2 and n d rank instead of
        n d^3 and n d^2.
    scale_errors : bool, default=False
        Whether to fit a factor on the error bars of each feature (one for all features if errors are correlated) by
        maximum likelihood. It is identifiable only if errors differ between samples; otherwise it stays 1.
    outliers : bool, default=False
        Whether to add a wide component: the mean and 4 to 10,000 times the covariance of a single Gaussian. It is the
        last of ``weights_``, ``means_`` and ``covariances_``.
    missing_indicator : bool, default=False
        Whether to add an exact 0/1 feature for each feature with missing values in the fit: 1 where the value is
        missing. Use it if missingness itself is informative.
    ridge : float, default=1e-6
        Penalty that keeps the variance of each component along each feature above ``ridge / pi_k`` times the squared
        spread of the measured values. EM maximises the mean log-likelihood minus
        ``(ridge/2) sum_k tr(T_k^-1 diag(spread^2))``. With ``rank``, D stays above ``ridge`` times these squares. The
        spread of a constant feature is taken as its least error; of an exact one as the size of its mean, or 1.
    n_init : int, default=3
        Number of starts of a mixture, by k-means on the posterior means of a single Gaussian.
    tol : float, default=0.01
        Stop when two iterations in a row raise the total log-likelihood by at most this much per parameter of the
        population. (Moving a parameter by one standard error changes it by 0.5.)
    max_iter : int, default=500
        Maximum number of EM iterations, first on a subsample if there are many rows, then on all rows.
    random_state : int, RandomState instance or None, default=None
        Seed for starts, subsamples and held-out samples. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads for large data, as in :class:`gaussguru.GuruClassifier`. The result does not depend on it.
    verbose : int, default=0
        1 prints every stage of a fit when it ends, with its seconds and the fraction of the folds that are done.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components_,)
        The weights ``pi``. With ``outliers=True``, this and the following have one more component.
    means_ : ndarray of shape (n_components_, n_features)
    covariances_ : ndarray of shape (n_components_, n_features, n_features)
    n_components_ : int
        K, given or found.
    error_scale_ : ndarray of shape (n_features,)
        Factors on the error bars; 1 unless ``scale_errors``.
    log_likelihood_ : float
        Mean log-likelihood per sample.
    lower_bound_ : float
        The objective: ``log_likelihood_`` minus the ridge term. It never falls from one iteration to the next.
    objective_curve_ : list of float
        ``lower_bound_`` after each accepted iteration on all rows.
    n_iter_ : int
        Number of iterations on all rows.
    n_passes_ : float
        Passes over the samples. Those over a subsample in memory count by its share of the rows. A source is read twice
        for the subsample, once for the spreads of the features, and once per iteration.
    converged_ : bool
    spreads_ : ndarray of shape (n_features,)
        Standard deviations of the measured values; the units of ``ridge``.
    indicators_ : ndarray of int
        Features with missing values in the fit, those of ``missing_indicator``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    gaussguru.PopulationClassifier : A population for each class.
    gaussguru.preprocessing.WithErrors : Carries errors through other transformers.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussguru.population import Deconvolve
    >>> rng = np.random.default_rng(0)
    >>> truth, err = rng.normal(size=(1000, 1)), np.full((1000, 1), 1.0)
    >>> X = truth + err * rng.normal(size=err.shape)
    >>> found = Deconvolve().fit_transform(X, X_err=err)
    >>> bool(np.abs(found.X - truth).mean() < np.abs(X - truth).mean())
    True
    """

    _takes_sources: ClassVar = True
    __metadata_request__fit: ClassVar = {"X_err": True}
    __metadata_request__transform: ClassVar = {"X_err": True}
    __metadata_request__score: ClassVar = {"X_err": True}

    def __init__(
        self,
        n_components: int | str = 1,
        *,
        rank: int | None = None,
        scale_errors: bool = False,
        outliers: bool = False,
        missing_indicator: bool = False,
        ridge: float = 1e-6,
        n_init: int = 3,
        tol: float = 0.01,
        max_iter: int = 500,
        random_state: object = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.scale_errors = scale_errors
        self.outliers = outliers
        self.missing_indicator = missing_indicator
        self.ridge = ridge
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: object, y: object = None, X_err: object = None, sample_weight: object = None) -> Self:
        """Fit the population.

        A fit that raises leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
            NaN means "not measured". Or a source (:mod:`gaussguru.sources`): the number of components and the start
            are found on a subsample of at most 100,000 samples; then iterations are passes over all of them.
        y : ignored
            Except that a column name excludes that column of a table from the features.
        X_err : error bars of X in any form, default=None
            Infinity means "not measured", 0 means exact. None: all values are exact.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight 0 leaves a sample out, weight 2 is a sample that occurs twice. (For ``n_components="auto"`` it is one
            held-out sample.) Weights below 1 on average are relative.

        Returns
        -------
        self
        """
        source = as_source(X)
        if source is not None:
            return self._or_unchanged(self._fit_source, source, Fields(y, sample_weight, X_err))
        return self._or_unchanged(self._fit, X, X_err, sample_weight, None, True)

    def fit_transform(self, X: object, y: object = None, X_err: object = None, sample_weight: object = None) -> Values:
        """Fit the population, and return the posteriors of the true values.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        y : ignored
        X_err : error bars of X, default=None
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        Measured
        """
        return self.fit(X, y, X_err, sample_weight).transform(X, X_err)

    def transform(self, X: object, X_err: object = None) -> Values:
        """Return the posteriors of the true values.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None

        Returns
        -------
        Measured
            ``X`` holds the posterior means, in the form and precision of X; ``err`` the posterior covariances of shape
            (n_samples, n_features, n_features), or, with ``rank`` and independent errors, an equivalent
            :class:`gaussguru.errors.LowRank`; ``components`` the mixtures, if there are several components. For a
            source, the result is a source of posterior means and covariances, computed when they are read:
            ``classifier.fit(population.transform(source, "auto"), "class")``.
        """
        source = as_source(X)
        if source is not None:
            return self._transformed(source, X_err)
        X, rows = self._rows(X, X_err)
        with self._threads(rows) as mapped:
            means, covariances = self.population_.moments(rows, mapped)
        exact = None
        values = like(X, means)
        if self.missing_indicator:
            exact = (~rows.is_known[:, self.indicators_]).astype(np.float64)
            names = self.get_feature_names_out(column_names(X)) if is_frame(X) else None
            values = like(X, np.column_stack([means, exact]), names)
            covariances = with_more(covariances, (len(rows), rows.n_features), exact.shape[1], 0.0)
        components = Components(rows, self.population_, exact) if self.population_.n_components > 1 else None
        return Measured.checked(values, covariances, components)

    def _transformed(self, source: Source, X_err: object) -> Mapped:
        """Return a source of posteriors."""
        check_is_fitted(self)
        names = names_of(self)
        out = None if names is None else self.get_feature_names_out().tolist()
        pieces = SplitSource(source, max(1, PART_NUMBERS // self.n_features_in_**2))
        return Mapped(pieces, partial(_posterior_part, light(self)), X_err, names, out)

    @by_parts
    def score_samples(self, X: object, X_err: object = None) -> Array:
        """Return the log-likelihood of every sample: the log density of its measured values, including the noise.

        The density of a value falls with its error, as ``1 / error``, and a value that was not measured has none: so
        at an infinite error the log-likelihood jumps, unlike posteriors and probabilities of components.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        _, rows = self._rows(X, X_err)
        with self._threads(rows) as mapped:
            return self.population_.log_likelihood(rows, mapped)

    def score(self, X: object, y: object = None, X_err: object = None, sample_weight: object = None) -> float:
        """Return the mean log-likelihood of the samples.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        y : ignored
        X_err : error bars of X, default=None
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        source = as_source(X)
        if source is not None:
            return float(mean_over(self, source, Fields(None, sample_weight, X_err), _logs_of_part))
        logs = self.score_samples(X, X_err)
        return float(np.average(logs, weights=check_weights(sample_weight, len(logs))))

    def sample(self, n_samples: int = 1) -> tuple[Array, NDArray[np.int64]]:
        """Return true values drawn from the population, and the component of each.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.population_.sample(check_count("n_samples", n_samples), self._generator())

    def refit_population(self, X: object, X_err: object = None, sample_weight: object = None) -> "Deconvolve":
        """Return a copy whose population is fitted to other samples, with the same number of components.

        Use it if new samples come from a different population than the training samples, such as faint instead of
        bright objects: a classifier of true values stays valid, and only the prior of the true values changes. No
        labels are needed. This estimator stays unchanged. EM starts from its population; with ``scale_errors`` the
        factors are fitted again, otherwise they are kept.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        Deconvolve
        """
        check_is_fitted(self)
        other: Deconvolve = clone(self)
        source = as_source(X)
        if source is not None:
            return other._fit_source(source, Fields(None, sample_weight, X_err), self._state)
        return other._fit(X, X_err, sample_weight, self._state, True)

    def reliability(
        self,
        X: Values,
        X_err: ErrorBars = None,
        direction: object = None,
        *,
        sample_weight: object = None,
        y: Labels = None,
    ) -> Any:
        """Return the fraction of the population variance that the measurements of these samples resolve.

        ``1 - mean_i V_ijj / T_jj``: 1 for exact values, 0 for missing ones. With one feature and equal errors e it is
        ``T / (T + e^2)``, the reliability ratio of the literature on measurement errors.

        Parameters
        ----------
        X : array-like, DataFrame or Measured of shape (n_samples, n_features)
        X_err : error bars of X, default=None
        direction : array-like of shape (n_features,), default=None
            Coefficients u of a score: ``1 - mean_i u' V_i u / u' T u``.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the mean.
        y : ignored
            Except that a column name excludes that column of a table from the features.

        Returns
        -------
        ndarray of shape (n_features,), or float with a direction
        """
        check_is_fitted(self)
        T = self.population_.covariance
        U = np.eye(len(T)) if direction is None else _direction(direction, len(T))[np.newaxis]
        source = as_source(X)
        if source is not None:
            variances = mean_over(self, source, Fields(y, sample_weight, X_err), partial(_variances_of_part, U))
        else:
            each = self._posterior_variances(X, X_err, U)
            variances = np.average(each, axis=0, weights=check_weights(sample_weight, len(each)))
        parts = 1.0 - variances / np.einsum("kj,jl,kl->k", U, T, U)
        return parts if direction is None else float(parts[0])

    def _posterior_variances(self, X: object, X_err: object, U: Array) -> Array:
        """Return the posterior variance of every sample along every row of U, (n_samples, len(U))."""
        _, rows = self._rows(X, X_err)
        with self._threads(rows) as mapped:
            return self.population_.posterior_variances(rows, U, mapped)

    def get_feature_names_out(self, input_features: object = None) -> MixedArray:
        """Return the names of the features, unchanged, and of the indicators, ``name_missing``.

        Parameters
        ----------
        input_features : array-like of str, default=None

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names: MixedArray = _check_feature_names_in(self, input_features)
        if not self.missing_indicator:
            return names
        return np.append(names, np.array([f"{name}_missing" for name in names[self.indicators_]], dtype=object))

    @property
    def weights_(self) -> Array:
        """The weights ``pi`` of the components."""
        return self.population_.weights

    @property
    def means_(self) -> Array:
        """The means ``mu`` of the components."""
        return self.population_.means

    @property
    def covariances_(self) -> Array:
        """The covariances ``T`` of the components."""
        return self.population_.covariances

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_parameters(self) -> None:
        if not (isinstance(self.n_components, str) and self.n_components == "auto"):
            if isinstance(self.n_components, str):
                raise ValueError(f"n_components must be a whole number >= 1 or 'auto'; got {self.n_components!r}")
            check_count("n_components", self.n_components)
        check_optional("rank", self.rank, check_count)
        for name in ("scale_errors", "outliers", "missing_indicator"):
            check_flag(name, getattr(self, name))
        check_real("ridge", self.ridge, inclusive=True)
        check_real("tol", self.tol, inclusive=True)
        check_count("n_init", self.n_init)
        check_count("max_iter", self.max_iter)
        check_jobs("n_jobs", self.n_jobs)
        check_verbose("verbose", self.verbose)

    @property
    def _state(self) -> EmState:
        """The population, from which EM for other samples starts."""
        return EmState(self.population_, self.error_scale_)

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(seed_of(self.random_state))

    def _threads(self, rows: Readings) -> Any:
        return block_map(rows.values, self.n_jobs, rows.n_features)

    def _checked(self, X: object, X_err: object, *, reset: bool) -> tuple[Values, Array, ErrorBars]:
        """Return X in its form, X as an array, and its parsed errors."""
        X, X_err = split_errors(X, X_err)
        if sp.issparse(X):
            raise TypeError(
                "Sparse data was passed for X, but dense data is required: the true values behind zeros with errors "
                "are not zeros; use X.toarray()"
            )
        array = validated(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
        return X if is_frame(X) else array, array, X_err

    def _rows(self, X: object, X_err: object) -> tuple[Values, Readings]:
        """Return X, and the readings of new samples."""
        check_is_fitted(self)
        table, array, X_err = self._checked(X, X_err, reset=False)
        return table, read(array, X_err).scaled(self.error_scale_)

    def _fit(
        self, X: object, X_err: object, sample_weight: object, start: EmState | None = None, warns: bool = False
    ) -> Self:
        self._check_parameters()
        search = self._search(X, X_err, sample_weight, warns=warns)
        with self._threads(search.sample.rows) as mapped:
            fit = search.run(start, mapped)
        return self._keep(fit, search, search.passes)

    def _fit_source(self, source: Source, fields: Fields, start: EmState | None = None) -> Self:
        """Fit a subsample in memory, then all samples of a source, starting from its population."""
        self._check_parameters()
        reading = Reading(source, fields, None, self.n_jobs)
        with reading.pool as mapped, reading.session as session:
            parts = reading.opened(mapped, session).then(unlabelled)
            with stage(self, "subsample"):
                subsample = drawn(parts)
            search = self._search(subsample.X, subsample.X_err, subsample.weight)
            fit = search.run(start, mapped)
            if not subsample.is_all:
                fit = search.run_all(parts, fit.state)
        note_features(self, self.n_features_in_, source.feature_names(fields))
        return self._keep(fit, search, 2.0 if subsample.is_all else search.passes)

    def _search(self, X: object, X_err: object, sample_weight: object, *, warns: bool = False) -> Search:
        """Return the search for the population of samples in memory; ``warns``: of values beyond all others."""
        _, array, X_err = self._checked(X, X_err, reset=True)
        rows = read(array, X_err)
        sample = Sample(rows, check_weights(sample_weight, len(rows)))
        used = np.ones(len(rows), dtype=bool) if sample.weight is None else sample.weight > 0
        if warns:
            warn_of_values_beyond_others(array, rows.is_known & used[:, np.newaxis])
        return Search(self, InformativeSample.of(sample if used.all() else sample[used]), self._generator())

    def _keep(self, fit: Fit, search: Search, passes: float) -> Self:
        """Store the result of a fit in the units of X, and warn if EM has not converged."""
        units = search.units
        if not fit.converged:
            problem = f"the likelihood still rises after max_iter={self.max_iter} iterations: increase it or tol"
            if fit.drop:
                problem = (
                    f"a step of EM lowers the mean log-likelihood, by {fit.drop:.1e}: the best population until then "
                    "is kept. Posteriors within several limits are approximate"
                )
            warnings.warn(problem, ConvergenceWarning, stacklevel=outside())
        self.population_: Mixture = fit.state.mixture.in_units(1.0 / units)
        self.error_scale_ = fit.state.kappa
        self.n_components_ = fit.state.mixture.n_components - bool(self.outliers)
        # A density is that in the units of the search, divided by their volume.
        volume = float(search.known @ np.log(units))
        self.log_likelihood_, self.lower_bound_ = fit.log_likelihood - volume, fit.objective - volume
        self.objective_curve_ = [value - volume for value in fit.history]
        self.n_iter_, self.converged_ = fit.n_iter, fit.converged
        self.spreads_, self.n_passes_ = search.spreads * units, float(round(passes, 3))
        self.indicators_ = np.flatnonzero(search.gaps)
        return self


def _posterior_part(population: Deconvolve, part: Part) -> Part:
    """Return a part with posterior means and covariances of the true values."""
    if not part.X.shape[0]:
        posterior = population.transform(np.zeros((1, part.X.shape[1]), part.X.dtype), np.zeros((1, part.X.shape[1])))
        return part._replace(X=posterior.X[:0], X_err=posterior.err[:0])
    with in_partition(part.number):
        posterior = population.transform(part.X, part.X_err)
    return part._replace(X=posterior.X, X_err=posterior.err)


def _logs_of_part(population: Deconvolve, part: Part) -> Array:
    return population.score_samples(part.X, part.X_err)


def _variances_of_part(U: Array, population: Deconvolve, part: Part) -> Array:
    return population._posterior_variances(part.X, part.X_err, U)


def _direction(direction: object, n_features: int) -> Array:
    u = np.asarray(direction, dtype=np.float64).ravel()
    if u.shape != (n_features,) or not np.isfinite(u).all() or not u.any():
        raise ValueError(f"direction must hold {n_features} finite numbers, not all 0; got {direction!r}")
    return u


def reliability(X: object, X_err: object = None, *, direction: object = None) -> Any:
    """Return the share of the variance of each feature that is not noise: ``1 - mean err^2 / spread^2``.

    The first thing to look at: where it is near 1, error bars cannot matter much. Values that were not measured are
    left out. Noise of more than the spread gives a negative number: then the error bars are too large, or there is
    nothing behind them.

    Parameters
    ----------
    X : array-like, DataFrame or Measured of shape (n_samples, n_features)
    X_err : error bars of X, default=None
    direction : array-like of shape (n_features,), default=None
        Coefficients u of a score ``u.x``, whose reliability is asked for instead, of samples with all their values.

    Returns
    -------
    ndarray of shape (n_features,), or float with a direction
    """
    X, X_err = split_errors(X, X_err)
    array = as_numbers(X, "X")
    if array.ndim != 2 or not len(array):
        raise ValueError(f"X must have two dimensions, samples and features; got shape {array.shape}")
    informative = InformativeSample.of(Sample(read(array, X_err), None))
    rows, spreads = informative.sample.rows, informative.spreads
    known = rows.is_known
    if direction is None:
        return 1.0 - np.where(known, rows.noise_variances, 0.0).sum(axis=0) / known.sum(axis=0) / np.square(spreads)
    u = _direction(direction, rows.n_features)
    whole = known[:, u != 0].all(axis=1)
    if not whole.any():
        raise ValueError("no sample has all the values that direction asks for")
    rows = rows[whole]
    noise = rows.noise @ np.square(u) if rows.is_diagonal else np.einsum("j,ijk,k->i", u, rows.noise, u)
    return float(1.0 - noise.mean() / np.var(rows.values @ u))


def predictive_of_errors(X_err: ErrorBars, y: Labels, *, cv: int = 5) -> float:
    """Return how well the error bars alone predict the class: a cross-validated area under the ROC curve.

    0.5 means not at all. If it is much larger, the sizes of the errors depend on the class, for example because
    interesting objects were observed longer. A classifier that gets the errors as features would learn this selection,
    and fail when it changes.

    The classifier is a logistic regression on the logarithms of the errors, their squares, and flags for missing and
    exact values. Limits count as missing.

    Parameters
    ----------
    X_err : error bars in any form, of shape (n_samples, ...)
    y : array-like of shape (n_samples,)
    cv : int, default=5
        Number of folds.

    Returns
    -------
    float
        For more than two classes the mean over classes, each against the rest.
    """
    check_unmasked(y, "y")
    y = column_or_1d(y)
    n, *widths = X_err.shape if hasattr(X_err, "shape") else np.shape(X_err)
    if n != len(y):
        raise ValueError(f"X_err and y must have the same number of samples; got {n} and {len(y)}")
    blank = np.zeros((n, widths[0] if widths else 1))
    errors = split_errors(like(X_err, blank), X_err)[1]
    sizes = standard_deviations(errors, blank.shape)
    if isinstance(errors, Limits):
        sizes = np.where(errors.limits == 0, sizes, np.inf)
    usual = np.isfinite(sizes) & (sizes > 0)
    logs = np.log(np.where(usual, sizes, 1.0))
    centre = logs.sum(axis=0) / np.maximum(usual.sum(axis=0), 1)
    logs = np.where(usual, logs - centre, 0.0)
    columns = np.column_stack([logs, np.square(logs), ~np.isfinite(sizes), sizes == 0])
    columns = columns[:, np.ptp(columns, axis=0) > 0]
    if not columns.shape[1]:
        return 0.5
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(check_count("cv", cv, low=2), shuffle=True, random_state=0)
    chances = cross_val_predict(model, columns, y, cv=folds, method="predict_proba")
    if chances.shape[1] == 2:
        return float(roc_auc_score(y, chances[:, 1]))
    return float(roc_auc_score(y, chances, multi_class="ovr"))
