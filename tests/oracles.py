"""References that share no code with the library: plain NumPy, generic optimisers, linear programming."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, minimize
from scipy.special import erfcx, ndtr, ndtri


def pdf(z):
    return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


def loss(z):
    """E max(0, z + N(0, 1))."""
    t = np.maximum(-np.abs(z), -60.0)
    tail = pdf(t) * (1 + t * np.sqrt(np.pi / 2) * erfcx(-t / np.sqrt(2)))
    return np.maximum(z, 0.0) + tail


def _parts(w, b, X, y, sigma, *, weight):
    s = np.ones(len(y)) if weight is None else weight
    return s, 1 - y * (X @ w + b), sigma * np.linalg.norm(w)


def objective(w, b, X, y, sigma, *, weight=None, l2=0.0):
    s, m, a = _parts(w, b, X, y, sigma, weight=weight)
    losses = a * loss(m / a) if a > 0 else np.maximum(m, 0.0)
    return float(s @ losses + 0.5 * l2 * w @ w)


def gradient(w, b, X, y, sigma, *, weight=None, l2=0.0):
    s, m, a = _parts(w, b, X, y, sigma, weight=weight)
    z = m / a
    slope = s * y * ndtr(z)
    return np.append(-X.T @ slope + sigma * w / np.linalg.norm(w) * (s @ pdf(z)) + l2 * w, -slope.sum())


def hessian(w, b, X, y, sigma, *, weight=None, l2=0.0):
    s, m, a = _parts(w, b, X, y, sigma, weight=weight)
    z, norm = m / a, np.linalg.norm(w)
    unit = w / norm
    u = np.column_stack([X + np.outer(y * z * sigma, unit), np.ones(len(y))])
    H = (u.T * (s * pdf(z) / a)) @ u
    H[:-1, :-1] += sigma / norm * (s @ pdf(z)) * (np.eye(len(w)) - np.outer(unit, unit)) + l2 * np.eye(len(w))
    return H


def minimum(X, y, sigma, *, weight=None, l2=0.0, fit_intercept=True):
    """Return the least F found by a generic trust-region method from several starts, with its ``w`` and ``b``.

    It is an upper bound of the minimum whatever happens. The variable is ``w`` times a length, so that all is of
    order one.
    """
    s = np.ones(len(y)) if weight is None else weight
    unit = max(sigma, np.sqrt((X * X).sum() / len(X)))
    args, kwargs = (X / unit, y, sigma / unit), {"weight": weight, "l2": l2 / unit**2}
    d = X.shape[1]
    pull = X[y > 0].T @ s[y > 0] / s[y > 0].sum() - X[y < 0].T @ s[y < 0] / s[y < 0].sum()
    if not fit_intercept:
        pull = X.T @ (s * y)
    pull = pull / np.linalg.norm(pull)
    free = np.arange(d + fit_intercept)

    def full(params):
        return params[:d], params[d] if fit_intercept else 0.0

    def value(params):
        return objective(*full(params), *args, **kwargs)

    def slope(params):
        return gradient(*full(params), *args, **kwargs)[free]

    def curvature(params):
        return hessian(*full(params), *args, **kwargs)[np.ix_(free, free)]

    constants = [(np.zeros(d), b) for b in ((-1.0, 1.0) if fit_intercept else (0.0,))]
    found = [(value(np.append(w, b)[free]), w, b) for w, b in constants]
    for length in (0.3, 3.0):
        begin = np.append(pull * length, 0.0)[free]
        options = {"gtol": 1e-11 * s.sum(), "maxiter": 300, "initial_trust_radius": 0.5}
        result = minimize(value, begin, jac=slope, hess=curvature, method="trust-exact", options=options)
        w, b = full(result.x)
        found.append((objective(w / unit, b, X, y, sigma, weight=weight, l2=l2), w / unit, float(b)))
    # A constant classifier wins ties: a descent towards it ends at a tiny w.
    constant, best = (min(part, key=lambda item: item[0]) for part in (found[: len(constants)], found))
    return constant if constant[0] <= best[0] * (1 + 1e-14) else best


def hinge_minimum(X, y, weight=None, fit_intercept=True):
    """Return the least hinge loss, by linear programming, with its ``w`` and ``b``.

    It bounds the minimum of F from below for every sigma, because ``f(z) >= max(0, z)``.
    """
    n, d = X.shape
    s = np.ones(n) if weight is None else weight
    rows = np.column_stack([X, np.ones(n)]) * y[:, None]
    result = linprog(
        np.concatenate([np.zeros(d + 1), s]),
        A_ub=sp.hstack([sp.csr_matrix(-rows), -sp.eye(n)], format="csr"),
        b_ub=-np.ones(n),
        bounds=[(None, None)] * d + [(None, None) if fit_intercept else (0, 0)] + [(0, None)] * n,
        method="highs",
    )
    assert result.status == 0
    return result.fun, result.x[:d], result.x[d]


def sigma_max(X, y, weight=None):
    """Return the noise level above which the constant classifier is proven optimal."""
    s = np.ones(len(y)) if weight is None else weight
    positive, negative = s[y > 0].sum(), s[y < 0].sum()
    light, heavy = min(positive, negative), max(positive, negative)
    distance = np.linalg.norm(s[y > 0] @ X[y > 0] / positive - s[y < 0] @ X[y < 0] / negative)
    level = heavy * pdf(ndtri(light / heavy)) if light < heavy else 0.0
    return light * distance / level if level else np.inf
