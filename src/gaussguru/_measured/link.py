"""Probabilities from scores with spreads: the probit link of calibration, and its likelihood.

A score is a mixture of Gaussians for each sample (:class:`Margins`). Its probabilities have the parameters ``alpha``,
``beta`` and ``kappa`` (see :class:`gaussguru.calibration.CalibratedWithErrorsCV`), which :func:`fit_calibration` finds.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import chi2

from gaussguru._guru.probabilities import (
    LOG_ROOT,
    independent_blocks,
    independent_log_probabilities,
    independent_slopes,
    joined_roots,
    rooted_probabilities,
)
from gaussguru._rows.validation import counted
from gaussguru._utils.linalg import Array, Index, log_sum

# Margins that vary by no more than this fraction of their size are constant.
CONSTANT = 1e-10


class Margins(NamedTuple):
    """Scores that are mixtures of Gaussians, with independent errors.

    Attributes
    ----------
    weights : (n_samples, n_components)
    centre : (n_samples, n_scores), means of the scores
    deviations : (n_samples, n_components, n_scores), means of the components minus ``centre``
    variances : (n_samples, n_components, n_scores), of independent errors whose differences have the variances of the
        differences of two scores: in least squares over pairs, exactly for two and three classes unless one would be
        negative or much smaller than another. Two classes have one score, with its own variance.
    """

    weights: Array
    centre: Array
    deviations: Array
    variances: Array

    @property
    def log_weights(self) -> Array:
        """The logarithms of the weights; minus infinity for a weight of 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights))

    @classmethod
    def of(cls, weights: Array, means: Array, covariances: Array) -> "Margins":
        """Return the margins of mixtures: means (n, k, c) and covariances (n, k, c, c) of the components."""
        centre = np.einsum("ik,ikc->ic", weights, means)
        n_scores = means.shape[2]
        variances = np.einsum("ikcc->ikc", covariances)
        if n_scores > 1:
            # The sums over k of var(n_c - n_k), and over all pairs.
            trace, total = variances.sum(axis=2, keepdims=True), covariances.sum(axis=3)
            sums = n_scores * variances + trace - 2 * total
            variances = (sums - sums.sum(axis=2, keepdims=True) / (2 * (n_scores - 1))) / (n_scores - 2)
            # Spreads of two scores differ by a factor of 4 at most: that changes the variance of a difference by at
            # most a fraction of 1/4^2, and integrals take at most 4 times as long.
            least = np.maximum(variances, variances.max(axis=2, keepdims=True) / 4.0**2)
            mean, clipped = variances.mean(axis=2, keepdims=True), least.mean(axis=2, keepdims=True)
            # The sum over all pairs does not change.
            variances = least * np.divide(mean, clipped, out=np.zeros_like(mean), where=clipped > 0)
        return cls(weights, centre, means - centre[:, np.newaxis], np.maximum(variances, 0.0))

    def take(self, index: Any) -> "Margins":
        """Return the margins of samples given by index or mask."""
        return Margins(*(part[index] for part in self))

    @classmethod
    def joined(cls, parts: "list[Margins]") -> "Margins":
        """Return the margins of all parts, padded to the largest number of components."""
        most = max(part.weights.shape[1] for part in parts)
        if any(part.weights.shape[1] < most for part in parts):
            parts = [part._padded(most) for part in parts]
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def judged(
        self, labels: Index, weights: Array, n_classes: int, *, rough: bool = False
    ) -> "tuple[Calibration, Array]":
        """Return the calibration of greatest likelihood, and log losses, (n,), with error bars as they are stated.

        If ``rough`` and there are more than two classes, one Gaussian replaces each mixture: the integrals would be
        most of the time of a choice among ridges.
        """
        margins = self.matched() if rough and n_classes > 2 else self
        calibration = fit_calibration(margins, labels, weights, n_classes, rough=rough)
        logs = link_of(margins, n_classes).logs(*calibration.stated)
        return calibration, -logs[np.arange(len(labels)), labels]

    def matched(self) -> "Margins":
        """Return one component with the mean and the variances of the mixture."""
        variances = np.einsum("ik,ikc->ic", self.weights, self.variances + np.square(self.deviations))[:, np.newaxis]
        return Margins(np.ones((len(variances), 1)), self.centre, np.zeros_like(variances), variances)

    def _padded(self, n_components: int) -> "Margins":
        more = (0, n_components - self.weights.shape[1])
        return Margins(
            np.pad(self.weights, ((0, 0), more)),
            self.centre,
            np.pad(self.deviations, ((0, 0), more, (0, 0))),
            np.pad(self.variances, ((0, 0), more, (0, 0))),
        )


Terms = tuple[Array, Array]


@dataclass(frozen=True)
class TwoClasses:
    """``P(1) = sum_k q_k Phi((alpha (m + kappa d_k) + beta) / sqrt(1 + alpha^2 kappa^2 v_k))``."""

    margins: Margins
    # The log likelihood may be below its maximum by this much.
    at_rest: ClassVar[float] = 1e-10

    def _standardised(self, alpha: float, beta: Array, kappa: float) -> tuple[Array, Array, Array, Array]:
        """Return the arguments of Phi, their numerators, the terms of these with kappa, and their denominators."""
        _, centre, deviations, variances = self.margins
        by_kappa = alpha * kappa * deviations[:, :, 0]
        numerator = alpha * centre + (beta[1] - beta[0]) + by_kappa
        root = np.sqrt(1.0 + np.square(alpha * kappa) * variances[:, :, 0])
        return numerator / root, numerator, by_kappa, root

    def logs(self, alpha: float, beta: Array, kappa: float) -> Array:
        """Return the logarithms of the probabilities."""
        u = self._standardised(alpha, beta, kappa)[0]
        return np.column_stack([self._mixed(log_ndtr(-u)), self._mixed(log_ndtr(u))])

    def _mixed(self, logs: Array) -> Array:
        return logs[:, 0] if logs.shape[1] == 1 else log_sum(self.margins.log_weights + logs, axis=1)

    def terms(self, alpha: float, beta: Array, kappa: float) -> Terms:
        """Return log probabilities (n, 2) and their derivatives by log alpha, log kappa and beta (n, 2, 4)."""
        u, numerator, by_kappa, root = self._standardised(alpha, beta, kappa)
        shrunk = u * (1.0 - 1.0 / np.square(root))
        logs, slopes = np.empty((len(u), 2)), np.empty((len(u), 2, 4))
        steps = numerator - (beta[1] - beta[0]), by_kappa
        by = [steps[0] / root - shrunk, steps[1] / root - shrunk, 1.0 / root]
        halves = self.margins.log_weights - 0.5 * np.square(u) - LOG_ROOT
        for c, sign in ((0, -1.0), (1, 1.0)):
            logs[:, c] = self._mixed(log_ndtr(sign * u))
            density = sign * np.exp(halves - logs[:, c, np.newaxis])
            for p, part in enumerate(by):
                slopes[:, c, p] = (density * part).sum(axis=1) if u.shape[1] > 1 else density[:, 0] * part[:, 0]
        slopes[:, :, 3] = slopes[:, :, 2]
        slopes[:, :, 2] *= -1.0
        return logs, slopes


@dataclass(frozen=True)
class ManyClasses:
    """``P(c)`` of independent noise of the variances ``1/2 + alpha^2 kappa^2 v_c`` on the scores of a sample."""

    margins: Margins
    # Integrals take longer, and have fewer digits.
    at_rest: ClassVar[float] = 1e-5

    def _scores(self, alpha: float, beta: Array, kappa: float) -> tuple[Array, Array, Array]:
        """Return the means of the scores, the terms of these with kappa, and the spreads."""
        _, centre, deviations, variances = self.margins
        by_kappa = alpha * kappa * deviations
        return (
            alpha * centre[:, np.newaxis] + beta + by_kappa,
            by_kappa,
            np.sqrt(0.5 + np.square(alpha * kappa) * variances),
        )

    def logs(self, alpha: float, beta: Array, kappa: float) -> Array:
        """Return the logarithms of the probabilities."""
        means, _, spreads = self._scores(alpha, beta, kappa)
        flat = means.reshape(-1, means.shape[2]), spreads.reshape(-1, means.shape[2])
        logs = independent_log_probabilities(*flat).reshape(means.shape)
        return log_sum(self.margins.log_weights[:, :, np.newaxis] + logs, axis=1)

    def terms(self, alpha: float, beta: Array, kappa: float) -> Terms:
        """Return log probabilities (n, C) and their derivatives by log alpha, log kappa and beta (n, C, 2 + C)."""
        means, by_kappa, spreads = self._scores(alpha, beta, kappa)
        n, K, C = means.shape
        steps = np.stack([means - beta, by_kappa], axis=3).reshape(n * K, C, 2)
        flat = means.reshape(n * K, C), spreads.reshape(n * K, C)
        widening = flat[1] - 0.5 / flat[1]  # derivative of the spreads by both logarithms
        logs, slopes = np.empty((n * K, C)), np.empty((n * K, C, 2 + C))
        for part in independent_blocks(*flat):
            logs[part], by_score, by_spread = independent_slopes(flat[0][part], flat[1][part])
            slopes[part, :, :2] = by_score @ steps[part] + by_spread @ widening[part][:, :, np.newaxis]
            slopes[part, :, 2:] = by_score
        if K == 1:
            return logs, slopes
        joint = self.margins.log_weights[:, :, np.newaxis] + logs.reshape(n, K, C)
        mixed = log_sum(joint, axis=1)
        share = np.exp(joint - mixed[:, np.newaxis])
        return mixed, np.einsum("ikc,ikcp->icp", share, slopes.reshape(n, K, C, 2 + C))


def link_of(margins: Margins, n_classes: int) -> TwoClasses | ManyClasses:
    """Return the link of so many classes."""
    return TwoClasses(margins) if n_classes == 2 else ManyClasses(margins)


def exact_log_probabilities(margins: Margins, roots: Array, alpha: float, beta: Array, kappa: float) -> Array:
    """Return log probabilities of many classes with the roots R of the noise of the scores, ``R R' = W V W'``."""
    n, n_components, n_classes, _ = roots.shape
    least = 1e-12  # a smaller orthant probability is rounding error; a one-dimensional quadrature gives its size
    result, overlap = np.zeros((n, n_classes)), np.sqrt(0.5) * np.eye(n_classes)
    for k in range(n_components):
        rows = np.flatnonzero(margins.weights[:, k] > least)  # others change no digit
        scores = alpha * (margins.centre[rows] + kappa * margins.deviations[rows, k]) + beta
        probabilities, _ = rooted_probabilities(scores, joined_roots(alpha * kappa * roots[rows, k], overlap))
        result[rows] += margins.weights[rows, k, np.newaxis] * probabilities
    faint = result < least
    inexact = faint.any(axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(result)
    approximate = np.minimum(ManyClasses(margins.take(inexact)).logs(alpha, beta, kappa), np.log(least))
    logs[inexact] = np.where(faint[inexact], approximate, logs[inexact])
    return np.asarray(logs - log_sum(logs, axis=1)[:, np.newaxis])


class Calibration(NamedTuple):
    """``alpha``, ``beta`` and ``kappa``, with the error bars as they are stated and scaled, and the p-value."""

    stated: tuple[float, Array, float]
    scaled: tuple[float, Array, float]
    pvalue: float


def fit_calibration(
    margins: Margins, labels: Index, weights: Array, n_classes: int, *, rough: bool = False
) -> Calibration:
    """Return the parameters of greatest likelihood; a ``rough`` fit is for error bars as they are stated only."""
    used = weights > 0
    if not used.all():
        margins = margins.take(used)
        labels, weights = labels[used], weights[used]
    weights = counted(weights)
    totals = np.bincount(labels, weights)[labels]
    targets = (totals + 1.0) / (totals + 2.0)  # Platt's, for the class of every sample
    centre = margins.centre
    if n_classes > 2:
        centre = centre - centre.mean(axis=1, keepdims=True)
        deviations = margins.deviations - margins.deviations.mean(axis=2, keepdims=True)
        margins = margins._replace(centre=centre, deviations=deviations)
    # In units of their own deviation, alpha is about 1 and steps mean the same for all scores.
    offset = np.average(centre, axis=0, weights=weights)
    unit = float(np.sqrt(np.average(np.square(centre - offset), axis=0, weights=weights).mean()))
    if not unit > CONSTANT * float(np.abs(centre).max()):
        unit = 0.0
    scale = unit or 1.0
    # About their mean, so that alpha and beta are nearly independent.
    margins = Margins(
        margins.weights, (centre - offset) / scale, margins.deviations / scale, margins.variances / scale**2
    )
    fit = _Likelihood(link_of(margins, n_classes), labels, targets, weights, rough)
    scaled = fit.parameters(informative=unit > 0)

    def back(parameters: tuple[float, Array, float]) -> tuple[float, Array, float]:
        """Return parameters for scores in their own units."""
        alpha, beta, kappa = parameters
        alpha /= scale
        beta = beta - alpha * (np.concatenate([[0.0], offset]) if n_classes == 2 else offset)
        return alpha, beta - (beta[0] if n_classes == 2 else beta.mean()), kappa

    return Calibration(back(scaled.stated), back(scaled.scaled), scaled.pvalue)


@dataclass(frozen=True)
class _Likelihood:
    """Minus the log likelihood of targets, as a function of log alpha, log kappa and beta, in this order.

    ``sum_i s_i (t_i log P_i(y_i) + (1 - t_i) log(1 - P_i(y_i)))``, with the target t of the class of a sample.
    """

    model: TwoClasses | ManyClasses
    labels: Index
    targets: Array
    weights: Array
    rough: bool = False

    def derivatives(self, x: Array) -> tuple[float, Array, Array]:
        """Return the value, its gradient, and the Fisher information."""
        logs, slopes = self.model.terms(*_unpacked(x))
        rows = np.arange(len(logs))
        others = logs.copy()
        others[rows, self.labels] = -np.inf
        rest = others.max(axis=1) if others.shape[1] == 2 else log_sum(others, axis=1)
        # The other classes share the rest of the target in proportion to their probabilities.
        targets = (1.0 - self.targets)[:, np.newaxis] * np.exp(others - rest[:, np.newaxis])
        targets[rows, self.labels] = self.targets
        gradient = -np.einsum("ic,icp->p", self.weights[:, np.newaxis] * targets, slopes)
        terms = self.targets * logs[rows, self.labels] + (1.0 - self.targets) * rest
        rooted = slopes * np.sqrt(self.weights[:, np.newaxis] * np.exp(logs))[:, :, np.newaxis]
        flat = rooted.reshape(-1, rooted.shape[2])
        return -float(self.weights @ terms), gradient, flat.T @ flat

    def parameters(self, *, informative: bool) -> Calibration:
        """Return the parameters of greatest likelihood."""
        margins = self.model.margins
        n_classes = max(2, margins.centre.shape[1])
        free = np.ones(2 + n_classes, dtype=bool)
        free[:2] = False
        none = self._of_classes().minimum(np.concatenate([[-np.inf, -np.inf], np.zeros(n_classes)]), free)
        spreads = (margins.variances + np.square(margins.deviations)).sum(axis=2)
        known = margins.weights > 0
        has_errors = bool(np.any(spreads[known] > 0))
        varies = float(np.ptp(spreads[known])) > CONSTANT * float(spreads[known].max())
        pvalue = 1.0 if has_errors else np.nan
        # Alpha is above 0 if the likelihood rises with it there: without errors it has one maximum.
        low = none.copy()
        low[0] = np.log(1e-6)
        if not informative or self.derivatives(low)[1][0] >= 0:
            constant = (0.0, none[2:], 1.0)
            return Calibration(constant, constant, pvalue)
        free[0] = True
        platt = self._without_errors().minimum(np.concatenate([[0.0], none[1:]]), free)
        if not has_errors:
            return Calibration(_with_kappa(platt, 1.0), _with_kappa(platt, 1.0), pvalue)
        start = platt.copy()
        start[1] = 0.0
        stated = self.minimum(start, free)
        if self.rough or not varies:
            return Calibration(_unpacked(stated), _unpacked(stated), pvalue)
        free[1] = True
        best = self.minimum(stated, free)
        ratio = 2.0 * (self.derivatives(platt)[0] - self.derivatives(best)[0])
        if ratio <= 0:
            return Calibration(_unpacked(stated), _with_kappa(platt, 0.0), 1.0)
        return Calibration(_unpacked(stated), _unpacked(best), 0.5 * float(chi2.sf(ratio, 1)))

    def _of_classes(self) -> "_Likelihood":
        """Return the likelihood at alpha = 0: one sample for each class, with the total weight of the class."""
        firsts = np.unique(self.labels, return_index=True)[1]
        weights = np.asarray(np.bincount(self.labels, self.weights)[self.labels[firsts]], dtype=np.float64)
        model = replace(self.model, margins=self.model.margins.take(firsts))
        return replace(self, model=model, labels=self.labels[firsts], targets=self.targets[firsts], weights=weights)

    def _without_errors(self) -> "_Likelihood":
        """Return the likelihood at kappa = 0: one component for each sample, without variance."""
        centre = self.model.margins.centre
        none = np.zeros((len(centre), 1, centre.shape[1]))
        return replace(self, model=replace(self.model, margins=Margins(np.ones(none.shape[:2]), centre, none, none)))

    def minimum(self, x: Array, free: NDArray[np.bool_]) -> Array:
        """Return the minimum over the free parameters.

        By Newton's method with the Fisher information, corrected by differences of gradients (BFGS): where the errors
        are large the likelihood is not concave, and its curvature not that information.
        """
        total = float(self.weights.sum())
        # Log losses of rough probabilities are compared: a decrement of 1e-6 per unit of weight suffices.
        rest = max(self.model.at_rest * min(1.0, total), 1e-6 * total if self.rough else 0.0)
        value, gradient, information = self.derivatives(x)
        inverse = np.linalg.pinv(information[np.ix_(free, free)], rcond=1e-12, hermitian=True)
        n_logs = np.count_nonzero(free[:2])
        for _ in range(100):
            g = gradient[free]
            step = -inverse @ g
            decrement = -float(g @ step)
            if not decrement > rest:
                break
            # The longest step in log alpha and log kappa is 1.5; below 1e-4 of a step rounding decides.
            t = 1.0 / max(1.0, float(np.abs(step[:n_logs]).max(initial=0.0)) / 1.5)
            while t > 1e-4:
                trial = x.copy()
                trial[free] += t * step
                # At most an overlap of the classes of 1 % of the deviation of the scores, and error bars 1000 times
                # too small or too large.
                trial[0] = min(trial[0], np.log(100.0))
                if free[1]:
                    trial[1] = np.clip(trial[1], -np.log(1e3), np.log(1e3))
                after = self.derivatives(trial)
                if after[0] <= value - 1e-4 * t * decrement:
                    break
                t *= 0.5
            else:
                break
            moved, turned = trial[free] - x[free], after[1][free] - g
            x, (value, gradient, _) = trial, after
            along = float(moved @ turned)
            if along > 1e-8 * float(np.linalg.norm(moved) * np.linalg.norm(turned)):
                left = np.eye(len(g)) - np.outer(moved, turned) / along
                inverse = left @ inverse @ left.T + np.outer(moved, moved) / along
        return x


def _unpacked(x: Array) -> tuple[float, Array, float]:
    return float(np.exp(x[0])), x[2:], float(np.exp(x[1]))


def _with_kappa(x: Array, kappa: float) -> tuple[float, Array, float]:
    alpha, beta, _ = _unpacked(x)
    return alpha, beta, kappa
