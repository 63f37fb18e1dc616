"""Simulated measurements: true values, errors, measured values, labels, and the best possible probabilities."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr
from sklearn.utils import Bunch, check_random_state

from gaussguru._errors.checks import check_errors
from gaussguru._errors.missing import unmeasured
from gaussguru._errors.parse import finite
from gaussguru._errors.samples import split_errors
from gaussguru._guru.probabilities import top_probabilities
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.checks import check_choice, check_count, check_real
from gaussguru._utils.frames import as_numbers
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import ErrorBars, Seed, Values

PATTERNS = ("uniform", "varied", "by-sample", "by-feature", "two-level", "correlated")


@dataclass(frozen=True)
class MeasuredPopulation:
    """A known distribution of true values (a mixture of Gaussians) and labels (a probit link).

    ::

        truth ~ sum_k weights_k N(means_k, covariances_k)
        two classes     y = 1 if coef . truth + intercept + N(0, 1) > 0
        more            y = argmax_c (coef_c . truth + intercept_c + N(0, 1/2))

    Parameters
    ----------
    weights : ndarray of shape (n_components,)
    means : ndarray of shape (n_components, n_features)
    covariances : ndarray of shape (n_components, n_features, n_features)
    coef : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept : ndarray of shape (1,) or (n_classes,)

    Examples
    --------
    >>> from gaussguru.datasets import make_measured
    >>> data = make_measured(100, 2, random_state=0)
    >>> truth, labels = data.population.sample(5, random_state=0)
    >>> data.population.predict_proba(truth).shape
    (5, 2)
    """

    weights: Array
    means: Array
    covariances: Array
    coef: Array
    intercept: Array

    def sample(self, n_samples: int, random_state: Seed = None) -> tuple[Array, NDArray[np.int64]]:
        """Return the truth of new samples, of shape (n_samples, n_features), and their labels 0, 1, ..."""
        check_count("n_samples", n_samples)
        rng = check_random_state(random_state)
        truth = np.empty((n_samples, self.means.shape[1]))
        component = rng.choice(len(self.weights), size=n_samples, p=self.weights)
        normal = rng.normal(size=truth.shape)
        for k, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            rows = component == k
            truth[rows] = mean + normal[rows] @ np.linalg.cholesky(covariance).T
        scores = truth @ self.coef.T + self.intercept
        if len(self.coef) == 1:
            return truth, (scores[:, 0] + rng.normal(size=n_samples) > 0).astype(np.int64)
        return truth, np.argmax(scores + math.sqrt(0.5) * rng.normal(size=scores.shape), axis=1)

    def predict_proba(self, X: Values, X_err: ErrorBars = None) -> Array:
        """Return ``P(y | x, err)``: no classifier of measured values has a lower expected log loss.

        Given the measured value, the truth of component k is ``N(xh_k, V_k)`` with ``xh = mu + T (T + S)^-1 (x - mu)``
        and ``V = T - T (T + S)^-1 T``, and the component is k with the probability ``q_k ~ weights_k N(x; mu, T + S)``.
        For two classes::

            P(1 | x, err) = sum_k q_k Phi((coef . xh_k + intercept) / sqrt(1 + coef' V_k coef))

        exactly; for more it is the probability of the highest score.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Where it was not measured, anything.
        X_err : error bars of X in any form, default=None
            Infinite where it was not measured. None is the truth itself.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        X, X_err = split_errors(X, 0.0 if X_err is None else X_err)
        n, d = X.shape
        missing = unmeasured(X_err, (n, d))
        X = np.where(missing, 0.0, as_numbers(X, "X"))
        errors = check_errors(finite(X_err), X)
        result = np.empty((n, max(2, len(self.coef))))
        for part in row_blocks(n, d**2):
            block = errors.take(part)
            S = np.array([block.covariance(i) for i in range(block.n_samples)])
            result[part] = self._proba(X[part], S, ~missing[part])
        return result

    def _proba(self, X: Array, S: Array, seen: NDArray[np.bool_]) -> Array:
        """Return the probabilities, (n, n_classes), of samples with covariances S; values not ``seen`` are ignored."""
        n, d = X.shape
        n_rows = len(self.coef)
        log_weights = np.empty((n, len(self.weights)))
        parts = []
        for k, (mean, T) in enumerate(zip(self.means, self.covariances, strict=True)):
            total = (T + S) * (seen[:, :, np.newaxis] & seen[:, np.newaxis, :])
            total[:, np.arange(d), np.arange(d)] += ~seen
            difference = np.where(seen, X - mean, 0.0)
            towards = np.broadcast_to(T @ self.coef.T, (n, d, n_rows)) * seen[:, :, np.newaxis]
            solved = np.linalg.solve(total, np.concatenate([difference[:, :, np.newaxis], towards], axis=2))
            scores = mean @ self.coef.T + self.intercept + np.einsum("ijr,ij->ir", towards, solved[:, :, 0])
            noise = self.coef @ T @ self.coef.T - np.einsum("ijr,ijs->irs", towards, solved[:, :, 1:])
            distance = np.einsum("ij,ij->i", difference, solved[:, :, 0])
            log_weights[:, k] = np.log(self.weights[k]) - 0.5 * (distance + np.linalg.slogdet(total)[1])
            if n_rows == 1:
                p = ndtr(scores[:, 0] / np.sqrt(1.0 + np.maximum(noise[:, 0, 0], 0.0)))
                parts.append(np.column_stack([1.0 - p, p]))
            else:
                parts.append(top_probabilities(scores, noise + 0.5 * np.eye(n_rows))[0])
        weights = np.exp(log_weights - logsumexp(log_weights, axis=1, keepdims=True))
        return np.asarray(np.minimum(np.einsum("ik,kic->ic", weights, np.array(parts)), 1.0))


def make_measured(
    n_samples: int = 1000,
    n_features: int = 6,
    *,
    n_classes: int = 2,
    n_components: int = 1,
    n_factors: int = 2,
    pattern: str = "varied",
    error: Any = 0.5,
    class_sep: float = 3.0,
    missing: float = 0.0,
    n_test: int = 0,
    random_state: Seed = None,
) -> Bunch:
    """Simulate measurements with known true values, population and best possible probabilities.

    Every feature has mean 0 and standard deviation 1 in the population. Labels are drawn from the true values by a
    probit link with a known direction, and measured values are ``truth + error * noise``.

    Training samples of different precision, and exact test samples::

        make_measured(300, 20, pattern="two-level", error=(0.05, 2.5), n_factors=0, class_sep=10.0, n_test=10_000)

    Parameters
    ----------
    n_samples : int, default=1000
    n_features : int, default=6
    n_classes : int, default=2
    n_components : int, default=1
        Number of Gaussians in the population.
    n_factors : int, default=2
        Number of common factors that correlate the features of a component; 0 makes them independent.
    pattern : {"uniform", "varied", "by-sample", "by-feature", "two-level", "correlated"}, default="varied"
        How errors differ. "uniform": not at all. "varied": each value has its own, uniform in its logarithm.
        "by-sample": each sample has one for all features (``X_err`` has shape (n_samples,)). "by-feature": each feature
        has one for all samples. "two-level": the first 30 % of the samples have the small error, the others the large
        one. "correlated": as "varied", and half of the variance comes from a cause that all features of a sample
        share (``X_err`` has shape (n_samples, n_features, n_features)).
    error : float or (low, high), default=0.5
        Standard deviations, in units of the spread of a feature: the smallest and the largest. One number is the
        geometric mean of a range of a factor of ten; for "uniform" it is the error.
    class_sep : float, default=3.0
        The standard deviation of ``coef . truth`` over the population, in units of the noise of the link. With two
        classes and one component a fraction ``arctan(1 / class_sep) / pi`` of the labels is on the wrong side.
    missing : float, default=0.0
        The probability that a value was not measured: NaN, with an infinite error.
    n_test : int, default=0
        Number of additional samples without errors, for tests.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    Bunch
        ``X``, ``X_err``, ``y`` and ``truth`` of the samples; ``population``, a :class:`MeasuredPopulation`, and its
        ``coef`` and ``intercept``; with two classes ``oracle_proba`` of shape (n_samples, 2), the best possible
        probabilities given ``X`` and ``X_err`` (``population.predict_proba`` gives those of more classes, which take
        longer, and of other samples or errors); with ``n_test`` also ``X_test`` and ``y_test``.
    """
    for name, value, least in (
        ("n_samples", n_samples, 1), ("n_features", n_features, 1), ("n_classes", n_classes, 2),
        ("n_components", n_components, 1), ("n_factors", n_factors, 0), ("n_test", n_test, 0),
    ):  # fmt: skip
        check_count(name, value, low=least)
    check_choice("pattern", pattern, PATTERNS)
    check_real("class_sep", class_sep)
    if check_real("missing", missing, inclusive=True) >= 1:
        raise ValueError(f"missing must be a probability below 1; got {missing!r}")
    if missing and pattern == "correlated":
        raise ValueError("missing must be 0 with pattern='correlated': covariances have no form for missing values")
    low, high = _range(error, pattern)
    rng = check_random_state(random_state)
    population = _population(n_features, n_classes, n_components, n_factors, class_sep, rng)
    truth, y = population.sample(n_samples, rng)
    X_err = _errors(pattern, low, high, truth.shape, rng)
    X = truth + check_errors(X_err, truth).sample(np.random.default_rng(rng.randint(np.iinfo(np.int32).max)))
    if missing:
        is_missing = rng.uniform(size=X.shape) < missing
        X[is_missing] = np.nan
        X_err = np.where(is_missing, np.inf, X_err if X_err.ndim == 2 else X_err[:, np.newaxis])
    known = {"coef": population.coef, "intercept": population.intercept}
    bunch = Bunch(X=X, X_err=X_err, y=y, truth=truth, population=population, **known)
    if n_classes == 2:
        bunch.oracle_proba = population.predict_proba(X, X_err)
    if n_test:
        bunch.X_test, bunch.y_test = population.sample(n_test, rng)
    return bunch


def _range(error: Any, pattern: str) -> tuple[float, float]:
    """Return the smallest and the largest error, checked."""
    if isinstance(error, tuple | list | np.ndarray) and np.ndim(error) == 1 and len(error) == 2:
        low, high = (check_real("error", value, inclusive=True) for value in error)
        if low <= high and (low > 0 or pattern == "two-level") and pattern != "uniform":
            return low, high
    elif not np.ndim(error):
        check_real("error", error, inclusive=pattern == "uniform")
        return (error, error) if pattern == "uniform" else (error / math.sqrt(10.0), error * math.sqrt(10.0))
    raise ValueError(
        f"error must be a number, or a pair (low, high) of numbers above 0 unless pattern='uniform'; got {error!r} "
        f"with pattern={pattern!r}"
    )


def _errors(pattern: str, low: float, high: float, shape: tuple[int, int], rng: np.random.RandomState) -> Array:
    n, d = shape
    if pattern == "uniform":
        return np.full(shape, low)
    if pattern == "two-level":
        return np.repeat([low, high], [round(0.3 * n), n - round(0.3 * n)])[:, np.newaxis] * np.ones(d)
    if pattern == "by-sample":
        return np.asarray(np.exp(rng.uniform(math.log(low), math.log(high), n)))
    if pattern == "by-feature":
        return np.tile(rng.permutation(np.geomspace(low, high, d)), (n, 1))
    std = np.exp(rng.uniform(math.log(low), math.log(high), shape))
    if pattern == "varied":
        return np.asarray(std)
    cause = std * np.where(rng.uniform(size=d) < 0.5, -1.0, 1.0)
    covariances = 0.5 * cause[:, :, np.newaxis] * cause[:, np.newaxis, :]
    covariances[:, np.arange(d), np.arange(d)] *= 2.0
    return np.asarray(covariances)


def _population(
    d: int, n_classes: int, n_components: int, n_factors: int, class_sep: float, rng: np.random.RandomState
) -> MeasuredPopulation:
    """Draw a population with means 0 and variances 1, and a direction along which the classes differ."""
    weights = rng.dirichlet(np.full(n_components, 5.0))
    means = rng.normal(size=(n_components, d))
    means -= weights @ means
    # The part of the variance between the components of a mixture: they overlap, and no Gaussian fits them.
    between = 0.6 if n_components > 1 else 0.0
    means *= np.sqrt(between / np.maximum(weights @ np.square(means), np.finfo(float).tiny))
    covariances = np.empty((n_components, d, d))
    for k in range(n_components):
        factors = rng.normal(size=(d, n_factors))
        T = factors @ factors.T + np.diag(rng.uniform(0.5, 1.5, d))
        scale = np.sqrt((1.0 - between) / np.diag(T))
        covariances[k] = scale[:, np.newaxis] * T * scale
    n_rows = 1 if n_classes == 2 else n_classes
    coef = rng.normal(size=(n_rows, d))
    coef -= coef.mean(axis=0) if n_rows > 1 else 0.0
    total = np.einsum("k,kij->ij", weights, covariances) + (weights[:, np.newaxis] * means).T @ means
    # With more classes, the spread of a typical difference of scores: sqrt(2) times the root of their mean variance.
    spread = np.sqrt(np.einsum("ri,ij,rj->r", coef, total, coef).mean() * (1.0 if n_rows == 1 else 2.0))
    return MeasuredPopulation(weights, means, covariances, coef * class_sep / spread, np.zeros(n_rows))
