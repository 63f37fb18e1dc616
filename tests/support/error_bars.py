"""Error bars in every form, and F with them, written from the formula."""

import numpy as np
import pytest
import scipy.sparse as sp

from gaussguru.errors import LowRank
from support import oracles


def bars(n, d, seed=0, zeros=0.3):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.0, 1.0, (n, d)) * (rng.random((n, d)) > zeros)


def covariances(n, d, seed=0, rank=None):
    factors = 0.4 * np.random.default_rng(seed).standard_normal((n, d, rank or d))
    return factors @ factors.transpose(0, 2, 1)


def some_correlated(n, d, seed=3):
    """Return errors that are correlated in some samples, by factors that are mostly 0, as gaps leave them."""
    rng = np.random.default_rng(seed)
    std, factors = bars(n, d, seed), np.zeros((n, d, d))
    rows = np.flatnonzero(rng.random(n) < 0.4)
    factors[rows] = std[rows, np.newaxis] * np.eye(d)
    factors[rows, 0] = 0.3 * rng.standard_normal((len(rows), d))
    std[rows] = 0.0
    return LowRank(factors, std)


FORMS = {
    "a sample": lambda n, d: np.random.default_rng(1).uniform(0.1, 1.0, n),
    "a value": bars,
    "sparse": lambda n, d: sp.csr_array(bars(n, d)),
    "covariances": covariances,
    "low rank": lambda n, d: LowRank(np.random.default_rng(2).standard_normal((n, d, 2)) * 0.3, bars(n, d)),
    "some correlated": some_correlated,
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())


def matrices(X_err, n, d):
    """Return the covariance of every sample."""
    if isinstance(X_err, LowRank):
        return X_err.factors @ X_err.factors.transpose(0, 2, 1) + np.eye(d) * np.square(X_err.std)[:, :, None]
    if sp.issparse(X_err):
        X_err = X_err.toarray()
    if np.ndim(X_err) == 1:
        return np.eye(d) * np.square(X_err)[:, None, None]
    return np.eye(d) * np.square(X_err)[:, :, None] if np.ndim(X_err) == 2 else X_err


def value(W, b, X, y, Sigma, weight, sigma, l2):
    """F of any number of classes, written from the formula."""
    total = 0.5 * l2 * sum(np.sum((W[c] - W[k]) ** 2) for c in range(len(W)) for k in range(c))
    for x, c, S, s in zip(X, y, Sigma, weight, strict=True):
        for k in range(len(W)):
            if k != c:
                u = W[c] - W[k]
                a = np.sqrt(u @ S @ u + sigma**2 * (u @ u))
                m = 1 - u @ x - (b[c] - b[k])
                total += s * (a * oracles.loss(m / a) if a > 0 else max(0.0, m))
    return total


def expected_kernel(name, X, S, points, gamma=1.0, degree=2, coef0=1.0):
    """Return means of kernel values (n, m) and of their gradients (n, m, d), one sample N(x, S) after the other."""
    values, slopes = [], []
    for x, cov in zip(X, S, strict=True):
        apart = points - x
        if name == "rbf":
            whole = np.eye(len(x)) + 2 * gamma * cov
            inverse, (_, log) = np.linalg.inv(whole), np.linalg.slogdet(whole)
            k = np.exp(-gamma * np.einsum("aj,jk,ak->a", apart, inverse, apart) - log / 2)
            slope = 2 * gamma * k[:, None] * (apart @ inverse)
        elif name == "linear":
            k, slope = points @ x, points
        else:
            assert degree == 2
            M, v = gamma * points @ x + coef0, gamma**2 * np.einsum("aj,jk,ak->a", points, cov, points)
            k, slope = M**2 + v, 2 * gamma * M[:, None] * points
        values.append(k)
        slopes.append(slope)
    return np.array(values), np.array(slopes)


def conditional(population, X, X_err):
    """Return values and covariances of samples, what was not measured given what was, one sample after the other."""
    values, covariances = np.array(X, dtype=float), []
    for x, err in zip(values, np.asarray(X_err), strict=True):
        noise = np.diag(np.square(np.where(np.isfinite(err), err, 0.0))) if err.ndim == 1 else np.array(err)
        gone = np.isnan(x) | ~np.isfinite(np.diag(noise) if err.ndim == 2 else err)
        m, o = np.flatnonzero(gone), np.flatnonzero(~gone)
        noise[m], noise[:, m] = 0.0, 0.0
        T, mu = population.covariance, population.means
        G = T[np.ix_(m, o)] @ np.linalg.inv(T[np.ix_(o, o)] + noise[np.ix_(o, o)])
        x[m] = mu[m] + G @ (x[o] - mu[o])
        noise[np.ix_(m, m)] = T[np.ix_(m, m)] - G @ T[np.ix_(o, m)]
        noise[np.ix_(m, o)] = G @ noise[np.ix_(o, o)]
        noise[np.ix_(o, m)] = noise[np.ix_(m, o)].T
        covariances.append(noise)
    return values, np.array(covariances)
