"""References that share no code with the library: plain NumPy, generic optimisers, linear programming."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.special import erfcx, expit, ndtr, ndtri


def pdf(z):
    return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


def loss(z):
    """E max(0, z + N(0, 1))."""
    t = np.maximum(-np.abs(z), -60.0)
    tail = pdf(t) * (1 + t * np.sqrt(np.pi / 2) * erfcx(-t / np.sqrt(2)))
    return np.maximum(z, 0.0) + tail


def slope(z):
    return ndtr(z)


def _logistic(z):
    u = np.log(2) * np.sqrt(2 * np.pi) * z
    p = expit(u)
    return np.logaddexp(0, u) / (np.log(2) * np.sqrt(2 * np.pi)), p, np.log(2) * np.sqrt(2 * np.pi) * p * expit(-u)


def _quadratic(z):
    u = np.sqrt(2 * np.pi) * z
    inside = np.abs(u) <= 4
    f = np.where(inside, (u + 4) ** 2 / 16, np.maximum(u, 0)) / np.sqrt(2 * np.pi)
    return f, np.clip((u + 4) / 8, 0, 1), inside * np.sqrt(2 * np.pi) / 8


def _moment(z):
    u = np.arcsinh(z)
    return 0.5 * np.exp(u), expit(2 * u), 0.5 * (1 / np.cosh(u)) ** 3


# f, f' and f'' of every loss.
TERMS = {
    "gaussian": lambda z: (loss(z), slope(z), pdf(z)),
    "logistic": _logistic,
    "quadratic": _quadratic,
    "moment": _moment,
}


def _parts(w, b, X, y, sigma, *, weight):
    s = np.ones(len(y)) if weight is None else weight
    return s, 1 - y * (X @ w + b), sigma * np.linalg.norm(w)


def objective(w, b, X, y, sigma, *, weight=None, l2=0.0, terms=TERMS["gaussian"]):
    s, m, a = _parts(w, b, X, y, sigma, weight=weight)
    losses = a * terms(m / a)[0] if a > 0 else np.maximum(m, 0.0)
    return float(s @ losses + 0.5 * l2 * w @ w)


def gradient(w, b, X, y, sigma, *, weight=None, l2=0.0, terms=TERMS["gaussian"]):
    s, m, a = _parts(w, b, X, y, sigma, weight=weight)
    z = m / a
    f, slope, _ = terms(z)
    level, pull = s @ (f - z * slope), s * y * slope
    return np.append(-X.T @ pull + sigma * w / np.linalg.norm(w) * level + l2 * w, -pull.sum())


def hessian(w, b, X, y, sigma, *, weight=None, l2=0.0, terms=TERMS["gaussian"]):
    s, m, a = _parts(w, b, X, y, sigma, weight=weight)
    z, norm = m / a, np.linalg.norm(w)
    unit = w / norm
    u = np.column_stack([X + np.outer(y * z * sigma, unit), np.ones(len(y))])
    f, slope, curvature = terms(z)
    H = (u.T * (s * curvature / a)) @ u
    H[:-1, :-1] += sigma / norm * (s @ (f - z * slope)) * (np.eye(len(w)) - np.outer(unit, unit)) + l2 * np.eye(len(w))
    return H


def trust_region(value, x, slope, curvature, *, gtol, maxiter=400, radius=0.5, callback=None):
    """Return a minimiser, by steps that are exact in a ball, from all eigenvalues of the Hessian.

    It ends whatever the Hessian is; "trust-exact" of SciPy before 1.17 has no limit on the iterations of a step.
    """
    current = value(x)
    for _ in range(maxiter):
        force = slope(x)
        if np.linalg.norm(force) < gtol or radius < np.finfo(float).eps * np.linalg.norm(x):
            break
        curves, axes = np.linalg.eigh(curvature(x))
        parts = axes.T @ force

        def is_short(damping, curves=curves, parts=parts, radius=radius):
            least = curves[0] + damping
            # Compared like this, the length of no step overflows.
            return least > 0 and np.linalg.norm(parts / ((curves + damping) / least)) <= radius * least

        # The damping that makes the step as long as the radius, or none; it is between these two.
        low, high = max(0.0, -curves[0]), max(0.0, np.linalg.norm(parts) / radius - curves[0])
        inside = is_short(0.0)
        for _ in range(0 if inside else 80):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if is_short(middle) else (middle, high)
        step = -parts / (curves + (0.0 if inside else high))
        expected = -(parts @ step + 0.5 * step @ (curves * step))
        new = value(x + axes @ step)
        if not expected > 0:
            break
        gain = (current - new) / expected
        if gain < 0.25:
            radius *= 0.25
        elif gain > 0.75 and not inside:
            radius *= 2
        if gain > 0.15:
            x, current = x + axes @ step, new
        if callback is not None:
            callback(x)
    return x


def minimum(X, y, sigma, *, weight=None, l2=0.0, fit_intercept=True, terms=TERMS["gaussian"]):
    """Return the least F found by a generic trust-region method from several starts, with its ``w`` and ``b``.

    It is an upper bound of the minimum whatever happens. The variable is ``w`` times a length, so that all is of
    order one.
    """
    s = np.ones(len(y)) if weight is None else weight
    unit = max(sigma, np.sqrt((X * X).sum() / len(X)))
    args, kwargs = (X / unit, y, sigma / unit), {"weight": weight, "l2": l2 / unit**2, "terms": terms}
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
        w, b = full(trust_region(value, begin, slope, curvature, gtol=1e-11 * s.sum(), maxiter=300))
        found.append((objective(w / unit, b, X, y, sigma, weight=weight, l2=l2, terms=terms), w / unit, float(b)))
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


# --- more than two classes --------------------------------------------------------------------------------


def joint_objective(W, b, X, labels, sigma, *, weight=None, l2=0.0, blur=0.0, terms=TERMS["gaussian"]):
    """Return the sum over rows and pairs of classes, one pair at a time; labels are 0 to C - 1."""
    s = np.ones(len(labels)) if weight is None else weight
    total = 0.0
    for c in range(len(W)):
        mine = labels == c
        for k in range(len(W)):
            if k == c:
                continue
            m = 1 - X[mine] @ (W[c] - W[k]) - (b[c] - b[k])
            a = np.hypot(sigma * np.linalg.norm(W[c] - W[k]), blur)
            total += s[mine] @ (a * terms(m / a)[0] if a > 0 else np.maximum(m, 0.0))
            total += 0.25 * l2 * np.sum((W[c] - W[k]) ** 2)
    return float(total)


class _Joint:
    """F of W and b minus those of the last class, flat, with two derivatives, from matrices of rows by classes."""

    def __init__(self, X, labels, sigma, n_classes, *, weight=None, l2=0.0, blur=0.0, fit_intercept=True):
        self.X = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        self.d, self.C = X.shape[1], n_classes
        self.s = np.ones(len(labels)) if weight is None else weight
        self.labels, self.sigma, self.l2, self.blur = labels, sigma, l2, blur
        self.own = np.eye(n_classes)[labels]
        self.pairs = [(c, k) for c in range(n_classes) for k in range(c + 1, n_classes)]

    def full(self, params):
        return np.vstack([params.reshape(self.C - 1, -1), np.zeros(self.X.shape[1])])

    def look(self, params):
        V = self.full(params)
        apart = V[:, None, : self.d] - V[None, :, : self.d]
        a = np.sqrt(self.sigma**2 * (apart**2).sum(axis=2) + self.blur**2) + 1e-300
        scores = self.X @ V.T
        m = 1 - scores[np.arange(len(scores)), self.labels][:, None] + scores
        z = np.clip(m / a[self.labels], -1e100, 1e100)
        return apart, a, z, self.s[:, None] * (1 - self.own)

    def value(self, params):
        apart, a, z, s = self.look(params)
        return float((s * a[self.labels] * loss(z)).sum() + 0.25 * self.l2 * (apart**2).sum())

    def gradient(self, params):
        apart, a, z, s = self.look(params)
        slope = s * ndtr(z)
        pull = slope - self.own * slope.sum(axis=1, keepdims=True)
        out = pull.T @ self.X
        level = self.own.T @ (s * pdf(z))
        stiff = self.sigma**2 * (level + level.T) / a + self.l2
        out[:, : self.d] += np.einsum("ck,ckj->cj", stiff, apart)
        return out[:-1].ravel()

    def hessian(self, params):
        apart, a, z, s = self.look(params)
        width = self.X.shape[1]
        H = np.zeros((self.C, width, self.C, width))
        for c, k in self.pairs:
            block, level = np.zeros((width, width)), 0.0
            grad_a = np.zeros(width)
            grad_a[: self.d] = self.sigma**2 * apart[c, k] / a[c, k]
            for one, other, sign in ((c, k, 1.0), (k, c, -1.0)):
                mine = self.labels == one
                t = z[mine, other]
                U = sign * self.X[mine] + t[:, None] * grad_a
                h = s[mine, other] * pdf(t)
                block += (U.T * (h / a[c, k])) @ U
                level += h.sum()
            block -= level / a[c, k] * np.outer(grad_a, grad_a)
            block[np.arange(self.d), np.arange(self.d)] += self.sigma**2 * level / a[c, k] + self.l2
            H[c, :, c] += block
            H[k, :, k] += block
            H[c, :, k] -= block
            H[k, :, c] -= block
        size = (self.C - 1) * width
        return H[:-1, :, :-1].reshape(size, size)


# Kinks are rounded off on this scale of the margins, one after the other.
BLURS = (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


def joint_minimum(
    X, labels, sigma, *, weight=None, l2=0.0, fit_intercept=True, starts=(), own_start=True, blurs=BLURS, callback=None
):
    """Return the least F found by a generic trust-region method from several starts, with its ``W`` and ``b``.

    It is an upper bound of the minimum whatever happens. With intercepts F has kinks where two ``w`` meet, so they are
    rounded off, less and less; the values are always those without. ``starts`` are pairs (W, b).
    """
    C, d = int(labels.max()) + 1, X.shape[1]
    s = np.ones(len(labels)) if weight is None else weight
    unit = max(sigma, np.sqrt((X * X).sum() / len(X)))
    blurs = blurs if fit_intercept else (1e-2, 0.0)  # without intercepts F is smooth
    means = np.array([s[labels == c] @ X[labels == c] / s[labels == c].sum() for c in range(C)])
    means = means - means.mean(axis=0)
    far = means / np.sqrt((means**2).sum() / C + 1e-300)
    candidates = [(np.asarray(W), np.asarray(b, dtype=float)) for W, b in starts]
    if own_start:
        candidates.append((far / unit, np.zeros(C)))

    def true(W, b):
        return joint_objective(W, b, X, labels, sigma, weight=weight, l2=l2)

    constant = constant_minimum(np.bincount(labels, s, C)) if fit_intercept else (true(np.zeros((C, d)), np.zeros(C)),)
    found = [(constant[0], np.zeros((C, d)), constant[1] if fit_intercept else np.zeros(C))]
    for W, b in candidates:
        params = np.column_stack([W * unit, b]) if fit_intercept else W * unit
        params = (params[:-1] - params[-1]).ravel()
        for blur in blurs:
            F = _Joint(
                X / unit,
                labels,
                sigma / unit,
                C,
                weight=weight,
                l2=l2 / unit**2,
                blur=blur,
                fit_intercept=fit_intercept,
            )

            def split(params, F=F):
                V = F.full(params)
                return V[:, :d] / unit, V[:, d] if fit_intercept else np.zeros(C)

            params = trust_region(
                F.value,
                params,
                F.gradient,
                F.hessian,
                gtol=1e-10 * s.sum(),
                maxiter=200,
                callback=None if callback is None else lambda params, split=split: callback(*split(params)),
            )
            found.append((true(*split(params)), *split(params)))
    return min(found, key=lambda item: item[0])


def constant_minimum(class_weights):
    """Return the least F with W = 0 and its intercepts, by linear programming."""
    C = len(class_weights)
    pairs = [(c, k) for c in range(C) for k in range(C) if c != k]
    A = np.zeros((len(pairs), C + len(pairs)))
    for row, (c, k) in enumerate(pairs):
        A[row, [c, k, C + row]] = -1.0, 1.0, -1.0
    cost = np.concatenate([np.zeros(C), [class_weights[c] for c, _ in pairs]])
    bounds = [(0, 0)] + [(None, None)] * (C - 1) + [(0, None)] * len(pairs)
    result = linprog(cost, A_ub=A, b_ub=-np.ones(len(pairs)), bounds=bounds, method="highs")
    assert result.status == 0
    b = result.x[:C]
    hinge = np.maximum(0, 1 - (b[:, None] - b)) - np.eye(C)
    return float(class_weights @ hinge.sum(axis=1)), b


def joint_hinge_minimum(X, labels, weight=None, fit_intercept=True):
    """Return the least sum of pairwise hinge losses, by linear programming, with its ``W`` and ``b``.

    It bounds the minimum of F from below for every sigma.
    """
    (n, d), C = X.shape, int(labels.max()) + 1
    s = np.ones(n) if weight is None else weight
    rows = sp.csr_array(np.column_stack([X, np.ones(n)]))
    own = sp.csr_array(np.eye(C)[labels])
    blocks = []
    for k in range(C):
        mine = np.flatnonzero(labels != k)
        apart = own[mine] - sp.csr_array(np.tile(np.eye(C)[k], (len(mine), 1)))
        blocks.append(sp.hstack([sp.diags_array(apart[:, [c]].toarray().ravel()) @ rows[mine] for c in range(C)]))
    A = sp.vstack(blocks)
    costs = np.concatenate([s[labels != k] for k in range(C)])
    width = d + 1
    one = [(None, None)] * d + [(None, None) if fit_intercept else (0, 0)]
    bounds = one * (C - 1) + [(0, 0)] * width  # the last class is the origin
    result = linprog(
        np.concatenate([np.zeros(C * width), costs]),
        A_ub=sp.hstack([-A, -sp.eye_array(len(costs))], format="csr"),
        b_ub=-np.ones(len(costs)),
        bounds=[*bounds, *[(0, None)] * len(costs)],
        method="highs",
    )
    assert result.status == 0
    V = result.x[: C * width].reshape(C, width)
    return result.fun, V[:, :d], V[:, d]
