"""Bounds on the error probability of a classifier on new samples, which hold with a given confidence."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr, rel_entr
from scipy.stats import beta, binom
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gaussguru._guru.cross_validation import GuruClassifierCV
from gaussguru._guru.kernel import KernelGuruClassifier
from gaussguru._guru.kernel_matrix import Kernel, kernel_scores
from gaussguru._guru.probabilities import covariance_roots, lower_bound
from gaussguru._measured.affine import as_table, dense, final_estimator, linear_scores, true_labels
from gaussguru._rows.validation import check_features
from gaussguru._utils.checks import ParameterError, check_choice, check_optional, check_real, check_sigma
from gaussguru._utils.frames import take_rows
from gaussguru._utils.linalg import EPS, Array, Index, graded_roots
from gaussguru._utils.types import Estimator, Labels, Values

# Lengths of the classifiers of the PAC-Bayes bound, whose noise is 1; each of them costs confidence.
LENGTHS = 2.0 ** np.arange(0.0, 10.5, 0.5)


@dataclass(frozen=True)
class RiskBound:
    """An upper bound on a risk, from :func:`risk_bound`.

    Attributes
    ----------
    bound : float
        The risk is at most this, with probability ``confidence`` over the samples; 1 is no statement.
    empirical : float
        The mean on the samples.
    n_samples : int
        Number of samples in this mean.
    noise_level : float
        Noise in the risk: ``sigma``, for "pac-bayes" relative to the norm of the coefficients.
    method : str
    confidence : float
    risk : str
        The risk that is bounded, in words.
    assumption : str
        What must be true, in words.

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.robustness import risk_bound
    >>> from gaussguru.thesis import make_gaussians
    >>> model = GuruClassifier(1.0).fit(*make_gaussians(200, random_state=0))
    >>> found = risk_bound(model, *make_gaussians(1000, random_state=1), method="holdout", sigma=0.0)
    >>> found.risk, found.empirical < found.bound < 0.1
    ('probability that the label of a new sample is wrong', True)
    """

    bound: float
    empirical: float
    n_samples: int
    noise_level: float
    method: str
    confidence: float
    risk: str
    assumption: str


def risk_bound(
    model: Estimator,
    X: Values,
    y: Labels,
    *,
    confidence: float = 0.95,
    method: str = "auto",
    sigma: float | None = None,
) -> RiskBound:
    """Return an upper bound on the probability of a wrong label for a new sample.

    The risk is that under noise: for two classes the expectation of ``Phi(-y (w.x + b) / (sigma ||w||))``. The
    probability that the label of the model itself, without noise, is wrong is at most twice this risk.

    - "sigma" holds for all w and b at once. The loss of a sample is ``1 / (sigma sqrt(2 pi))``-Lipschitz in
      ``y (w.x + b) / ||w||``, so the noise level alone limits the capacity of the class::

          R <= mean + 2 / (sigma sqrt(2 pi)) sqrt(sum_i ||x_i - c||^2) / n + 2 r + 3 sqrt(log(2 / delta) / (2 n))

      with the mean c of the samples and the confidence ``1 - delta``. The term of an intercept of any size is ``r``,
      the least over B of ``B E|sum e_i| / (n sigma sqrt(2 pi)) + mean_i Phi((||x_i - c|| - B) / sigma)`` for random
      signs e: beyond B every loss is near 0 or 1. Without an intercept c and r are 0. For a kernel, lengths are those
      in its space.
    - "pac-bayes": Gaussian noise on the coefficients, which is noise in proportion to the length of (x, 1), with
      standard deviation ``||w|| / tau``. The best of 21 values of tau and two priors is taken, and the confidence is
      divided among them::

          kl(mean || R) <= (tau^2 ||w / ||w|| - v||^2 / 2 + log(2 sqrt(n) 42 / delta)) / n

      with v = 0, or the normalised classifier fitted to one half of the samples. The mean is then that of the others.
      For a kernel the prior is v = 0.
    - "holdout" uses samples that were not fitted: Clopper and Pearson's bound without noise, and
      ``kl(mean || R) <= log(1 / delta) / n`` with noise, for which the losses are between 0 and 1.

    For more than two classes, the mean is that of ``min(1, sum_{k != y} Phi(...))`` over the other classes, which is
    at least the error probability, and the terms of "sigma" are sums over all pairs of classes.

    The mean counts every sample once. A model fitted with weights is welcome: the bounds hold for every w, however it
    was found. A bound of weighted samples would need their number of independent draws, which weights do not tell.

    Parameters
    ----------
    model : fitted classifier
        Linear, or :class:`gaussguru.KernelGuruClassifier`; for "holdout" without noise any classifier.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples of the fit for "sigma" and "pac-bayes"; for "holdout" samples that the fit did not see.
    y : array-like of shape (n_samples,)
    confidence : float, default=0.95
    method : {"auto", "sigma", "pac-bayes", "holdout"}, default="auto"
        "auto" is "sigma" where there is a noise level, else "pac-bayes".
    sigma : float, default=None
        Standard deviation of the noise on every feature, in units of X, or in the kernel space; it must be chosen
        before the samples are seen. None is that of a :class:`gaussguru.GuruClassifier` with ``noise="isotropic"`` or
        a :class:`gaussguru.KernelGuruClassifier`; for other models there is none.

    Returns
    -------
    RiskBound

    Examples
    --------
    >>> from gaussguru import GuruClassifier
    >>> from gaussguru.robustness import risk_bound
    >>> from gaussguru.thesis import make_gaussians
    >>> X, y = make_gaussians(5000, random_state=0)
    >>> found = risk_bound(GuruClassifier(1.0).fit(X, y), X, y)
    >>> found.method, found.empirical < found.bound < 0.5
    ('sigma', True)
    """
    check_choice("method", method, ("auto", "holdout", "pac-bayes", "sigma"))
    if not 0 < check_real("confidence", confidence) < 1:
        raise ParameterError("confidence", f"must be between 0 and 1; got {confidence!r}")
    check_is_fitted(model)
    level = _noise_level(model, check_optional("sigma", sigma, check_sigma))
    if method == "auto":
        method = "sigma" if level else "pac-bayes"
    if method == "pac-bayes" and sigma is not None:
        raise ValueError(f"sigma is for 'sigma' and 'holdout': method='pac-bayes' chooses the noise; got {sigma!r}")
    if method == "sigma" and not level:
        reason = f"{type(model).__name__} has none of its own" if sigma is None else f"got {sigma!r}"
        raise ValueError(f"sigma must be a number > 0 with method='sigma', chosen without the samples; {reason}")
    delta, kernel = 1.0 - confidence, isinstance(model, KernelGuruClassifier)
    noise = f"{level:.3g} in every direction is added to {'the image in the kernel space' if kernel else 'X'}"
    fixed = f"sigma{' and the kernel' if kernel else ''} chosen before they were seen"
    if method == "sigma":
        scored = _Scored.of(model, X, y)
        mean, n = float(scored.losses(level).mean()), len(scored.labels)
        bound = mean + 2 * scored.complexity(level) + 3 * np.sqrt(np.log(2 / delta) / (2 * n))
    elif method == "pac-bayes":
        bound, mean, n, level = _pac_bayes(model, X, y, delta)
        noise = f"{level:.3g} times the norm of all coefficients is added to each of them, and to the intercept"
        fixed = "the units of the features chosen before they were seen"
    else:
        fixed = "none of them used to make the model"
        losses = _Scored.of(model, X, y).losses(level) if level else _mistakes(model, X, y)
        mean, n = float(losses.mean()), len(losses)
        if level:
            bound = inverse_kl(mean, np.log(1 / delta) / n)
        else:
            bound = 1.0 if mean == 1 else beta.ppf(confidence, losses.sum() + 1, n - losses.sum())
    return RiskBound(
        bound=min(1.0, float(bound)),
        empirical=mean,
        n_samples=n,
        noise_level=level,
        method=method,
        confidence=float(confidence),
        risk="probability that the label of a new sample is wrong"
        + (f" when Gaussian noise of {noise}" if level else ""),
        assumption=f"the samples are independent draws from the distribution of new ones, {fixed}",
    )


def inverse_kl(mean: float, budget: float) -> float:
    """Return the largest p for which the relative entropy of Bernoulli(mean) to Bernoulli(p) is within a budget."""

    def excess(p: float) -> float:
        return float(rel_entr(mean, p) + rel_entr(1.0 - mean, 1.0 - p) - budget)

    last = 1.0 - EPS
    return 1.0 if mean >= last or excess(last) <= 0 else float(brentq(excess, mean, last, xtol=EPS))


def _noise_level(model: BaseEstimator, sigma: float | None) -> float:
    """Return the noise level that is given, or that of a model for which it was not chosen by the samples, or 0."""
    noise = getattr(model, "noise_", None)
    if sigma is None and noise is not None and noise.is_rotatable and not isinstance(model, GuruClassifierCV):
        return float(noise.sigma)
    return sigma or 0.0


def _labels(model: BaseEstimator, y: object, n_samples: int) -> Index:
    if n_samples == 0:
        raise ValueError("y must hold the label of at least one sample")
    return true_labels(model, y, n_samples)


def _mistakes(model: BaseEstimator, X: object, y: object) -> Array:
    predicted = np.asarray(model.predict(X))
    return np.asarray(predicted != final_estimator(model).classes_[_labels(model, y, len(predicted))], dtype=np.float64)


class _Scored(NamedTuple):
    """Scores of samples, one for each class, of two or more, and the vectors that make them.

    Attributes
    ----------
    scores : (n_samples, n_classes); they add up to zero, as coefficients and intercepts do
    roots : roots of the covariance of the scores for noise of 1 in every direction
    labels : the place of the true class of each sample
    coef, intercept : (n_classes, n_features), without columns for a kernel, and (n_classes,)
    has_intercept : whether the scores may have any intercept
    squares : returns squared distances of some samples from their mean, or from the origin
    """

    scores: Array
    roots: Array
    labels: Index
    coef: Array
    intercept: Array
    has_intercept: bool
    squares: Callable[[Index | slice, bool], Array]

    @classmethod
    def of(cls, model: BaseEstimator, X: object, y: object) -> "_Scored":
        if isinstance(model, KernelGuruClassifier):
            kernel = model._kernel
            if kernel.is_precomputed:
                raise ValueError("kernel='precomputed' keeps no samples, of which a bound needs the kernel matrix")
            values = check_features(X, estimator=model).astype(np.float64, copy=False)
            scores, intercept = model.decision_function(values), model.intercept_
            coef = np.zeros((len(intercept), 0))
            roots = covariance_roots(_apart(model.dual_coef_) @ _apart(model._kernel_scores(model.X_fit_).T).T)
            squares = partial(_kernel_squares, kernel, values)
        else:
            table = as_table(X)
            scores, coef = linear_scores(model, table)
            values = table.astype(np.float64, copy=False) if sp.issparse(table) else dense(table)
            intercept = np.ravel(scores[0] - values[[0]] @ coef.T)
            coef = _apart(coef)
            roots, squares = graded_roots(coef[np.newaxis])[0], partial(_squares, values)
        # The scale of a pipeline may move the origin.
        has_intercept = model is not final_estimator(model) or getattr(model, "fit_intercept", True)
        scores, intercept = _apart(np.atleast_2d(scores.T)).T, _apart(intercept)
        return cls(scores, roots, _labels(model, y, len(scores)), coef, intercept, has_intercept, squares)

    def losses(self, level: float) -> Array:
        """Return the probabilities, or bounds on them, that noise of a level leaves another class on top."""
        return 1.0 - lower_bound(self.scores, level * self.roots, self.labels)

    def complexity(self, level: float) -> float:
        """Return a bound on the Rademacher complexity of the losses of all w and b, given the samples."""
        n, n_classes, total = len(self.labels), self.scores.shape[1], 0.0
        slope = 1.0 / (level * np.sqrt(2 * np.pi))
        for pair in combinations(range(n_classes), 2):
            rows = np.flatnonzero(np.isin(self.labels, pair))
            if not len(rows):
                continue
            squares = self.squares(rows, self.has_intercept)
            total += slope * np.sqrt(squares.sum())
            if self.has_intercept:
                total += _intercept_term(np.sqrt(squares), level, slope)
        return float(total / n)


def _apart(values: Array) -> Array:
    """Return one row for each of two classes, of a single row for their difference; rows that add up to zero."""
    return np.concatenate([-0.5 * values, 0.5 * values]) if len(values) == 1 else values - values.mean(axis=0)


def _intercept_term(distances: Array, level: float, slope: float) -> float:
    """Return a bound on the complexity, times n, that an intercept of any size adds; see :func:`risk_bound`."""
    n = len(distances)
    signs = n * binom.pmf((n - 1) // 2, n - 1, 0.5)  # E|sum e_i|

    def bound(largest: float) -> float:
        return float(slope * largest * signs + ndtr((distances - largest) / level).sum())

    return float(minimize_scalar(bound, bounds=(0.0, distances.max() + 40 * level), method="bounded").fun)


def _squares(X: Values, rows: Index | slice, centred: bool) -> Array:
    X = X[rows]
    if not sp.issparse(X):
        return np.asarray(np.square(X - X.mean(axis=0) if centred else X).sum(axis=1))
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    if not centred:
        return squares
    mean = np.asarray(X.mean(axis=0)).ravel()
    return np.asarray(np.maximum(squares - 2 * X @ mean + mean @ mean, 0.0))


def _kernel_squares(kernel: Kernel, X: Values, rows: Index | slice, centred: bool) -> Array:
    X = X[rows]
    squares = kernel.diagonal(X)
    if not centred:
        return squares
    means = kernel_scores(kernel, X, X, np.full((1, X.shape[0]), 1.0 / X.shape[0]))[:, 0]
    return np.asarray(np.maximum(squares - 2 * means + means.mean(), 0.0))


def _pac_bayes(model: Estimator, X: Values, y: Labels, delta: float) -> tuple[float, float, int, float]:
    """Return the best bound over all lengths and priors, its mean, its number of samples, and its noise level."""
    X, y = as_table(X), column_or_1d(y)
    whole = _Scored.of(model, X, y)
    n = len(whole.labels)
    lengths = np.sqrt(whole.squares(slice(None), False) + whole.has_intercept)
    first, second = np.array_split(np.random.default_rng(0).permutation(n), 2)
    size = np.sqrt(np.square(whole.roots).sum() + np.square(whole.intercept).sum())
    bounds = [(1.0, 1.0, n, 1.0)]
    priors = [(np.arange(n), 1.0)]
    if whole.coef.size and len(set(whole.labels[first])) == len(whole.intercept) and size > 0:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # any prior is valid, also one of a fit that did not converge
            half = clone(getattr(model, "best_estimator_", model)).fit(take_rows(X, first), y[first])
        prior = _Scored.of(half, take_rows(X, first), y[first])
        one, other = (np.column_stack([part.coef, part.intercept]) for part in (whole, prior))
        if other.any():
            priors.append((second, float(np.square(one / size - other / np.linalg.norm(other)).sum())))
    for rows, distance in priors if size > 0 else []:
        m = len(rows)
        for tau in LENGTHS:
            roots = (lengths[rows] * size / tau)[:, np.newaxis, np.newaxis] * np.eye(whole.scores.shape[1])
            mean = float(1.0 - lower_bound(whole.scores[rows], roots, whole.labels[rows]).mean())
            budget = (0.5 * tau**2 * distance + np.log(2 * np.sqrt(m) * 2 * len(LENGTHS) / delta)) / m
            bounds.append((inverse_kl(mean, budget), mean, m, 1.0 / tau))
    return min(bounds)
