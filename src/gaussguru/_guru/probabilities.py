"""Probability that each class has the highest score under Gaussian noise on the scores.

Class k is on top if all differences ``score_k - score_j`` are positive, which has the probability of an orthant under a
normal distribution. It has a closed form for two classes (``Phi``), for three (Owen's T function), and for noise along
one direction, on which scores are straight lines; for four classes it is an integral over one variable. With more
classes one direction is integrated exactly, and the others at the points of a scrambled Sobol sequence.
"""

from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri, owens_t
from scipy.stats import qmc
from sklearn.utils.validation import column_or_1d

from gaussguru._errors.forms import Errors
from gaussguru._utils.blocks import row_blocks, rows_at_once
from gaussguru._utils.linalg import ROUNDED, Array, Index, graded_roots
from gaussguru._utils.types import Labels, MixedArray

# Number of independent scrambles, whose standard deviation gives the error, and points of each.
SCRAMBLES = 8
POINTS = 256
# Points of the integral of four classes.
LEGENDRE = 24
LOG_ROOT = 0.5 * np.log(2 * np.pi)


def score_covariance(coef: Array, errors: Errors) -> Array:
    """Return the covariance ``W Sigma_i W'`` of the scores of every sample, of shape (n_samples, n_rows, n_rows)."""
    n_rows, n_features = coef.shape
    result = np.empty((errors.n_samples, n_rows, n_rows))
    if n_rows == 1:
        result[:, :, 0] = errors.variances(coef)
        return result
    for part in row_blocks(errors.n_samples, n_features):
        block = errors.take(part)
        for k, w in enumerate(coef):
            result[part, k] = block.times(w) @ coef.T
    return result


def score_roots(coef: Array, errors: Errors) -> Array:
    """Return R_i with ``R_i R_i' = W Sigma_i W'`` for every sample, of shape (n_samples, n_rows, n_rows).

    Unlike covariances, they keep the digits of small errors of a sample beside large ones.
    """
    result = np.zeros((errors.n_samples, len(coef), len(coef)))
    for part in row_blocks(errors.n_samples, coef.size):
        roots = graded_roots(errors.take(part).along(coef))
        result[part, :, : roots.shape[2]] = roots
    return result


def covariance_roots(covariance: Array) -> Array:
    """Return R with ``R R'`` the covariances of scores, (..., n_scores, n_scores); tiny eigenvalues become 0."""
    variances, axes = np.linalg.eigh(covariance)
    variances = np.where(variances > ROUNDED * variances[..., -1:], variances, 0.0)
    return np.asarray(axes * np.sqrt(np.maximum(variances, 0.0))[..., np.newaxis, :])


def joined_roots(one: Array, other: Array) -> Array:
    """Return roots of the sum of two covariances, from their roots; leading axes are broadcast."""
    if not (one.any() and other.any()):
        return one if one.any() else other
    shape = np.broadcast_shapes(one.shape[:-1], other.shape[:-1])
    return np.concatenate([np.broadcast_to(part, (*shape, part.shape[-1])) for part in (one, other)], axis=-1)


def mixture_moments(weights: Array, means: Array, covariances: Array) -> tuple[Array, Array]:
    """Return means and standard deviations of mixtures of Gaussians, of shape (n_samples, n_scores).

    ``weights`` has shape (n_samples, n_components), ``means`` (..., n_scores), ``covariances`` (..., n_scores,
    n_scores).
    """
    mean = np.einsum("ik,ikc->ic", weights, means)
    variances = np.einsum("ikcc->ikc", covariances) + np.square(means - mean[:, np.newaxis])
    return mean, np.sqrt(np.maximum(np.einsum("ik,ikc->ic", weights, variances), 0.0))


def independent_log_probabilities(scores: Array, spreads: Array | None = None) -> Array:
    """Return the logarithms of the probabilities to be on top when independent noise is added to scores.

    ::

        P(c) = int phi((x - m_c) / s_c) / s_c  prod_{k != c} Phi((x - m_k) / s_k) dx

    by the trapezoidal rule, which for these functions converges faster than any power of the step: with the constants
    above it is good to 1e-9 of each probability for up to 100 classes (1e-6 for 1000), down to 1e-100, where all
    spreads are the same. Its weights are positive, so with the same spread a higher score always has the higher
    probability.

    Parameters
    ----------
    scores : array of shape (n_samples, n_classes)
    spreads : array of shape (n_samples, n_classes), default=None
        Standard deviations of the noise, positive; None is 1. Time and memory are in proportion to the largest quotient
        of two of a sample.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    logs = np.empty(scores.shape)
    for part in independent_blocks(scores, spreads):
        logs[part] = _independent(scores[part], None if spreads is None else spreads[part])[0]
    return logs


def independent_slopes(scores: Array, spreads: Array) -> tuple[Array, Array, Array]:
    """Return :func:`independent_log_probabilities` of a block of samples, to about 1e-5, and their derivatives.

    Those of ``log P(c)`` by ``m_k`` and by ``s_k`` have shape (n_samples, n_classes, n_classes).
    """
    logs, share, hazard, at = _independent(scores, spreads, rough=True)
    by_score = -(share @ hazard.transpose(0, 2, 1))
    by_spread = -(share @ (hazard * at).transpose(0, 2, 1))
    diagonal = np.einsum("icc->ic", by_score)
    diagonal[:] = 0.0
    diagonal[:] = -by_score.sum(axis=2)  # a shift of all scores changes nothing
    diagonal = np.einsum("icc->ic", by_spread)
    diagonal[:] = 0.0
    probabilities = np.exp(logs)
    # The sum of all probabilities is 1 for any spreads.
    others = np.einsum("ic,ick->ik", probabilities, by_spread)
    diagonal[:] = np.divide(-others, probabilities, out=np.zeros_like(others), where=probabilities > 0)
    return logs, by_score, by_spread


def independent_blocks(scores: Array, spreads: Array | None = None) -> list[slice] | list[Index]:
    """Return blocks of samples with similar ratios of spreads, whose points of integration fit in memory."""
    step = rows_at_once(112.0 * scores.shape[1])  # points of an integral, where all spreads are the same
    if spreads is None:
        return [slice(first, first + step) for first in range(0, len(scores), step)]
    factors = spreads.max(axis=1) / spreads.min(axis=1)
    order = np.argsort(factors, kind="stable")
    # At least eight blocks, sorted by the ratio of the largest and the smallest spread.
    step = max(1, min(int(step / factors.max(initial=1.0)), -(-len(scores) // 8)))
    return [order[first : first + step] for first in range(0, len(scores), step)]


def _independent(scores: Array, spreads: Array | None, *, rough: bool = False) -> tuple[Array, Array, Array, Array]:
    """Return log probabilities, the share of each point in the integral, ``phi / (s Phi)`` and its argument.

    The unit of the integral is the smallest spread of a sample.
    """
    behind = scores - scores.max(axis=1, keepdims=True)
    unit: Array | float = 1.0
    widest = 1.0
    if spreads is not None:
        unit = spreads.min(axis=1, keepdims=True)
        behind, spreads = behind / unit, spreads / unit
        widest = float(spreads.max(initial=1.0))
    # Numbers are in standard deviations of a score. The highest of more than ten scores has a narrower distribution.
    step, ends = 0.4 if scores.shape[1] <= 10 else 0.25, widest
    if rough:  # derivatives need fewer digits
        step, ends = 2.0 * step, 0.7 * widest
    # The peak of a lower class is halfway between its mean and the highest mean; the integral starts 7 below it, at
    # most 20 below the highest mean, and ends 8 above that.
    low = min(20.0 * widest, -0.5 * float(behind.min(initial=0.0)) + 7.0 * ends)
    grid = step * np.arange(-np.ceil(low / step), 8.0 * ends / step + 1)  # the same points for any neighbours
    at = grid - behind[:, :, np.newaxis]
    if spreads is not None:
        at /= spreads[:, :, np.newaxis]
    below = log_ndtr(at)
    hazard = -0.5 * np.square(at) - below - LOG_ROOT
    terms = below.sum(axis=1)[:, np.newaxis, :] + hazard
    top = terms.max(axis=2, keepdims=True)
    share = np.exp(terms - top)
    total = share.sum(axis=2, keepdims=True)
    logs = (top + np.log(total))[:, :, 0]
    hazard = np.exp(hazard)
    if spreads is not None:
        logs -= np.log(spreads)
        hazard /= (spreads * unit)[:, :, np.newaxis]
    logs -= logsumexp(logs, axis=1, keepdims=True)  # corrects errors of rounding and of the integral
    return logs, share / total, hazard, at


def winners(scores: Array) -> NDArray[np.intp]:
    """Return the number of the predicted class: by the sign of a single score, or the highest of several."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        return (scores.ravel() > 0).astype(np.intp)
    best: NDArray[np.intp] = np.argmax(scores, axis=1)
    return best


def noise_probabilities(scores: Array, spread: ArrayLike, *, logs: bool = False) -> Array:
    """Return the probability of each class when independent noise of this standard deviation is added to the scores.

    The class with the highest score has the highest probability, even if two are equal to rounding. Without noise it is
    certain; ties are shared.

    Parameters
    ----------
    scores : array of shape (n_samples,) for two classes, else (n_samples, n_classes)
    spread : float or array of shape (n_samples,)
        Of the score of two classes, which is a difference; else of each of the scores.
    logs : bool, default=False
        Return the logarithms of the probabilities, accurate even if these underflow.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    if scores.ndim == 1:
        z, below = standardise(scores, spread), log_ndtr if logs else ndtr
        values = np.column_stack([below(-z), below(z)])
    else:
        spreads = np.broadcast_to(np.asarray(spread, dtype=np.float64), len(scores))
        behind, certain = scores - scores.max(axis=1, keepdims=True), spreads <= 0
        z = standardise(behind, spreads[:, np.newaxis])
        values = independent_log_probabilities(np.maximum(z, -1e100))  # squares of larger distances overflow
        if certain.any():
            first = behind[certain] == 0
            with np.errstate(divide="ignore"):
                values[certain] = np.log(first / np.count_nonzero(first, axis=1, keepdims=True))
        values = values if logs else np.exp(values)
    # A predicted class without the highest probability is raised by one rounding.
    best = winners(scores)
    (wrong,) = np.nonzero(np.argmax(values, axis=1) != best)
    values[wrong, best[wrong]] = np.nextafter(values[wrong].max(axis=1), np.inf)
    return values


def standardise(scores: Array, spread: ArrayLike) -> Array:
    """Return ``scores / spread``; for a spread of 0 infinity with the sign of the score, or 0."""
    spread = np.broadcast_to(spread, scores.shape)
    certain = np.where(scores == 0, 0.0, np.copysign(np.inf, scores))
    with np.errstate(over="ignore"):
        return np.asarray(np.divide(scores, spread, out=certain, where=spread > 0))


def distance_to_boundary(scores: Array, coef: Array) -> Array:
    """Return the distance of every sample to the nearest point with another class on top, or infinity.

    Two classes have scores of shape (n_samples,) and one row of coefficients.
    """
    if scores.ndim == 1:
        scores, coef = np.column_stack([np.zeros(len(scores)), scores]), np.vstack([np.zeros_like(coef), coef])
    labels = np.argmax(scores, axis=1)
    product = coef @ coef.T
    squares = np.diag(product)
    lengths = np.sqrt(np.maximum(squares[:, np.newaxis] + squares - 2 * product, 0.0))
    # Where digits cancel, the difference is formed first.
    near = lengths < 1e-6 * np.sqrt(np.maximum(squares[:, np.newaxis], squares))
    for c, k in zip(*np.nonzero(near), strict=True):
        lengths[c, k] = np.linalg.norm(coef[c] - coef[k])
    lead = scores[np.arange(len(labels)), labels][:, np.newaxis] - scores
    never = np.where(lead > 0, np.inf, 0.0)  # a tie that no displacement breaks is not certain
    distance = np.divide(lead, lengths[labels], out=never, where=lengths[labels] > 0)
    distance[np.arange(len(labels)), labels] = np.inf
    return np.asarray(distance.min(axis=1))


def label_probabilities(scores: Array, roots: Array) -> tuple[Array, Array]:
    """Return the probability that each class is on top under noise, and its error, from scores of a classifier.

    ``roots`` are roots of the covariances of the noise. Two classes have scores of shape (n_samples,) and roots of one
    row; without noise the predicted class is certain.
    """
    if scores.ndim == 2:
        return rooted_probabilities(scores, roots)
    spread = _lengths(np.broadcast_to(roots, (len(scores), *roots.shape[-2:])))[:, 0]
    z = standardise(scores, spread)
    z = np.where((scores == 0) & (spread <= 0), -np.inf, z)
    return np.column_stack([ndtr(-z), ndtr(z)]), np.zeros((len(z), 2))


def _lengths(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("...r,...r->...", rows, rows)))


def top_probabilities(scores: Array, covariance: Array) -> tuple[Array, Array]:
    """Return the probability of each class to have the highest score when Gaussian noise is added, and its error.

    Up to three classes that have a chance, and noise of a single direction, are exact to rounding, and four classes to
    1e-7 (the error is by how much their probabilities miss 1), unless the noise is nearly flat. Otherwise one direction
    of the noise is integrated exactly and the others at 2048 quasi-random points, the same every time. The error is the
    standard error of the mean of eight independent scrambles of 256 points: in practice 1e-3, and at most 5e-3 for ten
    classes. A class that has a chance, but is on top at none of the points, has an error of 1/2048.

    Parameters
    ----------
    scores : array of shape (n_samples, n_classes)
    covariance : array of shape (n_samples, n_classes, n_classes) or (n_classes, n_classes)
        Of the noise on the scores. What is common to all classes does not matter.

    Returns
    -------
    probabilities : array of shape (n_samples, n_classes)
        Rows add up to 1.
    errors : array of shape (n_samples, n_classes)
        0 where a closed form was used.
    """
    covariance = np.asarray(covariance, dtype=np.float64)
    means = covariance.mean(axis=-1, keepdims=True)
    centred = covariance - means - np.swapaxes(means, -1, -2) + means.mean(axis=-2, keepdims=True)
    return rooted_probabilities(np.asarray(scores, dtype=np.float64), covariance_roots(centred))


def rooted_probabilities(scores: Array, roots: Array) -> tuple[Array, Array]:
    """Return :func:`top_probabilities` of noise ``R z`` with standard normal z.

    ``roots`` has shape (n_samples, n_classes, rank) or (n_classes, rank).
    """
    n, n_classes = scores.shape
    roots = np.broadcast_to(roots, (n, *roots.shape[-2:]))
    if n_classes == 2:
        z = standardise(scores[:, 1] - scores[:, 0], _lengths(roots[:, 1] - roots[:, 0]))
        return np.column_stack([ndtr(-z), ndtr(z)]), np.zeros((n, 2))
    probabilities, errors = np.zeros((2, n, n_classes))
    for part in row_blocks(n, n_classes * max(n_classes, roots.shape[2])):
        probabilities[part], errors[part] = _top(scores[part], roots[part])
    return probabilities, errors


def lower_bound(scores: Array, roots: Array, labels: Index) -> Array:
    """Return ``max(0, 1 - sum_{k != y} Phi(-(score_y - score_k) / sd(score_y - score_k)))``.

    A guaranteed lower bound of the probability that class ``y`` of each sample is on top (the union bound).
    """
    rows = np.arange(len(scores))
    differences = _relative(np.broadcast_to(roots, (len(scores), *roots.shape[-2:])), labels)
    lead = scores[rows, labels][:, np.newaxis] - scores
    lose = ndtr(-standardise(lead, _lengths(differences)))
    lose[rows, labels] = 0.0
    return np.asarray(np.maximum(0.0, 1.0 - lose.sum(axis=1)))


def _relative(roots: Array, labels: Index) -> Array:
    """Return roots of the differences between all scores and the score of one class per sample."""
    return np.asarray(roots - roots[np.arange(len(roots)), labels][:, np.newaxis])


def _top(scores: Array, roots: Array) -> tuple[Array, Array]:
    """Return probabilities and errors for three or more classes; samples are grouped by their number of contenders."""
    n, n_classes = scores.shape
    rows = np.arange(n)
    leader = np.argmax(scores, axis=1)
    behind, differences = scores - scores[rows, leader][:, np.newaxis], _relative(roots, leader)
    spread = _lengths(differences)
    chance = ndtr(np.divide(behind, spread, out=np.full_like(behind, -np.inf), where=spread > 0))
    chance[rows, leader] = np.inf
    order = np.argsort(-chance, axis=1, kind="stable")
    # With more than three classes, a class that beats the leading one with less probability gets 0.
    counts = np.count_nonzero(chance > (1e-6 if n_classes > 3 else 0.0), axis=1)
    result, errors = np.zeros((2, n, n_classes))
    result[rows, leader] = 1.0
    for m in np.unique(counts[counts > 1]).tolist():
        step = rows_at_once(m * (LEGENDRE if m <= 4 else SCRAMBLES * POINTS), cached=True) if m > 2 else n
        group = np.flatnonzero(counts == m)
        for first in range(0, len(group), step):
            line = group[first : first + step, np.newaxis]
            column = order[line[:, 0], :m]  # the leading class comes first
            result[line, column], errors[line, column] = _among(behind[line, column], differences[line, column])
    return result, errors


def _among(means: Array, roots: Array) -> tuple[Array, Array]:
    """Return probabilities and errors of the contenders; mean and root of the first one are 0."""
    n, m = means.shape
    if m == 2:
        beaten = ndtr(means[:, 1] / _lengths(roots[:, 1]))
        return np.column_stack([1.0 - beaten, beaten]), np.zeros((n, 2))
    others = graded_roots(roots[:, 1:])
    axes = np.concatenate([np.zeros((n, 1, others.shape[2])), others], axis=1)
    ranks = np.count_nonzero(others.any(axis=1), axis=1)
    result, errors = np.zeros((2, n, m))
    for rank in np.unique(ranks).tolist():
        part = np.flatnonzero(ranks == rank)
        if rank > 1 and m <= 4:
            result[part], error = _few(means[part], axes[part])
            if m == 3:
                continue
            errors[part] = np.maximum(error, 1e-10)[:, np.newaxis]
            part = part[error > 1e-7]  # left to the sequence of points
            if not len(part):
                continue
        ascending = np.argsort(axes[part, :, 0], axis=1)
        line = part[:, np.newaxis]
        sorted_means, sorted_axes = means[line, ascending], axes[line, ascending]
        heights = sorted_means[:, :, np.newaxis] + sorted_axes[:, :, 1:rank] @ _normal_points(rank - 1)
        share = _on_top(np.ascontiguousarray(heights.transpose(1, 0, 2)), sorted_axes[:, :, 0].T)
        if rank == 1:
            result[line, ascending] = share[:, :, 0].T
            continue
        runs = share.reshape(m, len(part), SCRAMBLES, POINTS).mean(axis=3)
        mean, error = runs.mean(axis=2).T, runs.std(axis=2, ddof=1).T / np.sqrt(SCRAMBLES)
        result[line, ascending], errors[line, ascending] = mean, np.where(mean > 0, error, 1 / (SCRAMBLES * POINTS))
    return result, errors


def _few(means: Array, roots: Array) -> tuple[Array, Array]:
    """Return probabilities of three or four classes, and the error of their sum before they are divided by it."""
    result = np.empty_like(means)
    for k in range(means.shape[1]):
        # The leads of class k over each other class, in standard deviations, and the correlations of pairs of leads.
        others = [other for other in range(means.shape[1]) if other != k]
        ahead = [roots[:, k] - roots[:, other] for other in others]
        spreads = [_lengths(root) for root in ahead]
        leads = [standardise(means[:, k] - means[:, i], spread) for i, spread in zip(others, spreads, strict=True)]
        units = [root / np.maximum(spread, 1e-300)[:, np.newaxis] for root, spread in zip(ahead, spreads, strict=True)]
        correlations = [np.clip(np.einsum("ir,ir->i", *pair), -1.0, 1.0) for pair in combinations(units, 2)]
        if len(leads) == 2:
            result[:, k] = bivariate_normal(*leads, *correlations)
        else:
            result[:, k] = trivariate_normal(np.array(leads), np.array(correlations))
    total = result.sum(axis=1)
    return result / total[:, np.newaxis], np.abs(total - 1.0)


def trivariate_normal(h: Array, correlations: Array) -> Array:
    """Return ``P(A < h_1, B < h_2, C < h_3)`` of standard normal A, B and C.

    ``correlations`` are those of (A, B), (A, C) and (B, C); all arguments have shape (3, n). By Plackett's identity
    (Genz 2004, Statistics and Computing 14, section 2.3): along a path on which A becomes correlated with B and C ::

        P = Phi(h_1) P(B < h_2, C < h_3) + sum_{j=2,3} int_0^{arcsin r_1j} phi_2(h_1, h_j) Phi(u_k) d arcsin(r)

    where ``u_k`` is the third argument given the other two. The largest correlation, of B and C, is kept.
    The error is 1e-9 unless correlations are close to 1.
    """
    # A is the variable outside of the largest correlation.
    first = 2 - np.argmax(np.abs(correlations), axis=0)
    columns, order = np.arange(h.shape[1]), (first + np.arange(3)[:, np.newaxis]) % 3
    h1, h2, h3 = np.clip(h[order, columns], -40.0, 40.0)  # beyond, a normal probability is 0 or 1 to rounding
    least = 1e-300  # the least divisor
    r12, r23, r13 = correlations[[[0, 2, 1], [2, 1, 0], [1, 0, 2]], :][first, :, columns].T
    x, weights = (part[:, np.newaxis] for part in _legendre())
    a, b = np.sin(np.arcsin(r12) * x), np.sin(np.arcsin(r13) * x)
    determinant = np.maximum((1 - a * a) * (1 - r23 * r23) - np.square(b - a * r23), 0.0)
    total = np.zeros(h.shape[1])
    for r, one, other, end, hj, hk in ((r12, a, b, r23, h2, h3), (r13, b, a, r23, h3, h2)):
        rest = 1.0 - one * one
        density = np.exp(-0.5 * (h1 * h1 + hj * hj - 2 * one * h1 * hj) / np.maximum(rest, least))
        third = hk * rest - h1 * (other - one * end) - hj * (end - one * other)
        u = third / np.sqrt(np.maximum(rest * determinant, least))
        total += np.arcsin(r) * (weights * density * ndtr(u)).sum(axis=0)
    result = ndtr(h1) * bivariate_normal(h2, h3, r23) + total / (2 * np.pi)
    return np.asarray(np.clip(result, 0.0, 1.0))


@cache
def _legendre() -> tuple[Array, Array]:
    """Return points and weights of the Gauss-Legendre rule on (0, 1)."""
    points, weights = np.polynomial.legendre.leggauss(LEGENDRE)
    return 0.5 * (points + 1.0), 0.5 * weights


def bivariate_normal(h: Array, k: Array, correlation: Array) -> Array:
    """Return ``P(A < h, B < k)`` of standard normal A and B of this correlation.

    Through Owen's T function (Owen 1956, Ann. Math. Stat. 27)::

        (Phi(h) + Phi(k) - [h k < 0 or (h k = 0 and h + k < 0)]) / 2 - T(h, a_h) - T(k, a_k),
        a_h = (k - r h) / (h sqrt(1 - r^2)),     a_k = (h - r k) / (k sqrt(1 - r^2))
    """
    h, k, r = (np.asarray(value, dtype=np.float64) for value in np.broadcast_arrays(h, k, correlation))
    root = np.sqrt((1.0 - r) * (1.0 + r))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        a_h, a_k = (k - r * h) / (h * root), (h - r * k) / (k * root)
        a_h, a_k = (np.where(np.isnan(a), 0.0, a) for a in (a_h, a_k))  # h = +-k of correlation +-1
        flat = h * k == 0
    opposite = (np.sign(h) * np.sign(k) < 0) | (flat & (np.minimum(h, k) < 0))
    result = 0.5 * (ndtr(h) + ndtr(k) - opposite) - owens_t(h, a_h) - owens_t(k, a_k)
    # Limits of quotients 0/0 or infinity/infinity.
    result = np.where((h == 0) & (k == 0), 0.25 + np.arcsin(r) / (2 * np.pi), result)
    result = np.where(np.isinf(h), np.where(h > 0, ndtr(k), 0.0), result)
    result = np.where(np.isinf(k), np.where(k > 0, ndtr(h), 0.0), result)
    return np.clip(result, 0.0, 1.0)


@cache
def _normal_points(n_dims: int) -> Array:
    """Return standard normal points as columns, one scramble after the other."""
    if n_dims == 0:
        return np.zeros((0, 1))
    if n_dims == 1:  # equal steps, shifted between runs, are more precise
        shifts = (np.arange(SCRAMBLES)[:, np.newaxis] + 0.5) / SCRAMBLES
        return np.asarray(ndtri((np.arange(POINTS) + shifts) / POINTS)).reshape(1, -1)
    runs = [qmc.Sobol(n_dims, scramble=True, seed=seed).random(POINTS) for seed in range(SCRAMBLES)]
    # A scrambled point may round to 0.
    return np.asarray(ndtri(np.clip(np.concatenate(runs), 2.0**-54, 1 - 2.0**-53)).T)


def _on_top(heights: Array, slopes: Array) -> Array:
    """Return the standard normal probability that each of the straight lines ``height + slope t`` is the highest.

    ``heights`` has shape (n_classes, n_samples, n_points), ``slopes`` (n_classes, n_samples), in ascending order.
    """
    low, high = np.full_like(heights, -np.inf), np.full_like(heights, np.inf)
    for k in range(1, len(slopes)):
        for j in range(k):
            steeper = (slopes[k] - slopes[j])[:, np.newaxis]
            crossing = heights[j] - heights[k]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                crossing /= steeper
            if not steeper.all():
                crossing[np.isnan(crossing)] = -np.inf  # the same line twice
            np.maximum(low[k], crossing, out=low[k])
            np.minimum(high[j], crossing, out=high[j])
    # Mirrored to the lower tail, where small differences keep their digits.
    mirrored = low > 0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    return np.asarray(np.maximum(ndtr(high) - ndtr(low), 0.0))


def expected_score(probabilities: Array, classes: MixedArray, y: object, sample_weight: object = None) -> float:
    """Return the mean probability of the labels ``y``; labels that are not among ``classes`` count 0."""
    labels, known = places(classes, y, len(probabilities))
    hits = np.where(known, probabilities[np.arange(len(labels)), labels], 0.0)
    return float(np.average(hits, weights=None if sample_weight is None else column_or_1d(sample_weight)))


def places(classes: MixedArray, y: Labels, n_samples: int) -> tuple[Index, NDArray[np.bool_]]:
    """Return the number of each label among the sorted classes, and the mask of labels that are among them."""
    y = column_or_1d(y)
    if len(y) != n_samples:
        raise ValueError(f"X and y must have the same number of samples; got {n_samples} and {len(y)}")
    labels = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return labels, np.asarray(classes[labels] == y)
