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

from gaussguru._linalg import Array, Index, log_sum
from gaussguru.probabilities import (
    LOG_ROOT,
    independent_blocks,
    independent_log_probabilities,
    independent_slopes,
    joined_roots,
    rooted_probabilities,
)

# Below, an orthant probability is rounding, or was not computed at all: the quadrature has its size.
FAINT = 1e-12
# Margins that vary by no more than this fraction of their size are constant.
CONSTANT = 1e-10
# Of the likelihood: iterations, and the longest step in log alpha and log kappa.
MAX_ITER = 100
LONGEST = 1.5
# The decrement, per unit of weight, at which probabilities are good enough to compare log losses.
ROUGHLY = 1e-6
# Part of a step below which rounding decides.
SHORTEST = 1e-4
# Largest alpha, in units of 1 over the deviation of the scores: an overlap of the classes of 1 % of that. And the
# factor by which error bars may be wrong at most.
MAX_ALPHA, MAX_KAPPA = 100.0, 1e3
# Largest quotient of the spreads of two scores of a sample that the likelihood of many classes counts: it changes the
# variance of a difference by at most 1/STEEPEST^2 of itself, and is the factor by which its integrals take longer.
STEEPEST = 4.0


class Margins(NamedTuple):
    """What a likelihood needs to know of scores that are mixtures.

    ``centre`` is the mean of the scores (n_samples, n_scores), ``apart`` what the components are away from it
    (n_samples, n_components, n_scores), ``variances`` of the same shape those of independent errors that make the
    differences of two scores vary as they do, in least squares over pairs, and exactly for two and three classes unless
    one would be negative or small beside another; of two classes there is one score and its variance.
    """

    weights: Array
    centre: Array
    apart: Array
    variances: Array

    @property
    def log_weights(self) -> Array:
        """The logarithms of the weights; of a component that is not there minus infinity."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights))

    @classmethod
    def of(cls, weights: Array, means: Array, covariances: Array) -> "Margins":
        centre = np.einsum("ik,ikc->ic", weights, means)
        apart, n_scores = means - centre[:, np.newaxis], means.shape[2]
        variances = np.einsum("ikcc->ikc", covariances)
        if n_scores > 1:
            # The sums over k of var(n_c - n_k), and over all pairs.
            trace, total = variances.sum(axis=2, keepdims=True), covariances.sum(axis=3)
            sums = n_scores * variances + trace - 2 * total
            variances = (sums - sums.sum(axis=2, keepdims=True) / (2 * (n_scores - 1))) / (n_scores - 2)
            least = np.maximum(variances, variances.max(axis=2, keepdims=True) / STEEPEST**2)
            mean, clipped = variances.mean(axis=2, keepdims=True), least.mean(axis=2, keepdims=True)
            # That of all pairs together stays as it is.
            variances = least * np.divide(mean, clipped, out=np.zeros_like(mean), where=clipped > 0)
        return cls(weights, centre, apart, np.maximum(variances, 0.0))

    def take(self, index: Any) -> "Margins":
        """Return those of some samples."""
        return Margins(*(part[index] for part in self))

    @classmethod
    def joined(cls, parts: "list[Margins]") -> "Margins":
        """Return those of all samples, with as many components as the part that has most."""
        most = max(part.weights.shape[1] for part in parts)
        if any(part.weights.shape[1] < most for part in parts):
            parts = [part._padded(most) for part in parts]
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def judged(
        self, labels: Index, weights: Array, n_classes: int, *, rough: bool = False
    ) -> "tuple[Calibration, Array]":
        """Return the probabilities of greatest likelihood, and log losses with error bars as they are stated.

        For more than two classes ``rough`` ones replace each mixture by one Gaussian: their integrals would be most of
        the time of a choice among candidates.
        """
        mine = self.matched() if rough and n_classes > 2 else self
        found = fit_calibration(mine, labels, weights, n_classes, rough=rough)
        logs = link_of(mine, n_classes).logs(*found.stated)
        return found, -logs[np.arange(len(labels)), labels]

    def matched(self) -> "Margins":
        """Return one component with the mean and the variances of the mixture."""
        variances = np.einsum("ik,ikc->ic", self.weights, self.variances + np.square(self.apart))[:, np.newaxis]
        return Margins(np.ones((len(variances), 1)), self.centre, np.zeros_like(variances), variances)

    def _padded(self, n_components: int) -> "Margins":
        more = (0, n_components - self.weights.shape[1])
        return Margins(
            np.pad(self.weights, ((0, 0), more)),
            self.centre,
            np.pad(self.apart, ((0, 0), more, (0, 0))),
            np.pad(self.variances, ((0, 0), more, (0, 0))),
        )


Terms = tuple[Array, Array]


@dataclass(frozen=True)
class TwoClasses:
    """``P(1) = sum_k q_k Phi((alpha (m + kappa d_k) + beta) / sqrt(1 + alpha^2 kappa^2 v_k))``."""

    margins: Margins
    # Of the log likelihood: by how much it may be below its maximum.
    at_rest: ClassVar[float] = 1e-10

    def _standardised(self, alpha: float, beta: Array, kappa: float) -> tuple[Array, Array, Array, Array]:
        """Return the arguments of Phi, and of what they are made: numerator, its part by kappa, denominator."""
        _, centre, apart, variances = self.margins
        by_kappa = alpha * kappa * apart[:, :, 0]
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
        """Return the means of the scores, their part by kappa, and their spreads."""
        _, centre, apart, variances = self.margins
        by_kappa = alpha * kappa * apart
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
        widening = flat[1] - 0.5 / flat[1]  # by both logarithms
        logs, slopes = np.empty((n * K, C)), np.empty((n * K, C, 2 + C))
        for part in independent_blocks(*flat):
            logs[part], by_score, by_spread = independent_slopes(flat[0][part], flat[1][part])
            slopes[part, :, :2] = by_score @ steps[part] + by_spread @ widening[part][:, :, np.newaxis]
            slopes[part, :, 2:] = by_score
        if K == 1:
            return logs, slopes
        mine = self.margins.log_weights[:, :, np.newaxis] + logs.reshape(n, K, C)
        mixed = log_sum(mine, axis=1)
        share = np.exp(mine - mixed[:, np.newaxis])
        return mixed, np.einsum("ikc,ikcp->icp", share, slopes.reshape(n, K, C, 2 + C))


def link_of(margins: Margins, n_classes: int) -> TwoClasses | ManyClasses:
    return TwoClasses(margins) if n_classes == 2 else ManyClasses(margins)


def exact_log_probabilities(margins: Margins, roots: Array, alpha: float, beta: Array, kappa: float) -> Array:
    """Return log probabilities of many classes with the roots R of the noise of the scores, ``R R' = W V W'``."""
    n, n_components, n_classes, _ = roots.shape
    result, overlap = np.zeros((n, n_classes)), np.sqrt(0.5) * np.eye(n_classes)
    for k in range(n_components):
        rows = np.flatnonzero(margins.weights[:, k] > FAINT)  # others change no digit
        scores = alpha * (margins.centre[rows] + kappa * margins.apart[rows, k]) + beta
        among, _ = rooted_probabilities(scores, joined_roots(alpha * kappa * roots[rows, k], overlap))
        result[rows] += margins.weights[rows, k, np.newaxis] * among
    faint = result < FAINT
    some = faint.any(axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(result)
    about = np.minimum(ManyClasses(margins.take(some)).logs(alpha, beta, kappa), np.log(FAINT))
    logs[some] = np.where(faint[some], about, logs[some])
    return np.asarray(logs - log_sum(logs, axis=1)[:, np.newaxis])


class Calibration(NamedTuple):
    """``alpha``, ``beta`` and ``kappa``, with the error bars as they are stated and scaled, and the p-value."""

    stated: tuple[float, Array, float]
    scaled: tuple[float, Array, float]
    pvalue: float


def fit_calibration(
    margins: Margins, labels: Index, weights: Array, n_classes: int, *, rough: bool = False
) -> Calibration:
    """Return the parameters of greatest likelihood; those of a ``rough`` fit are for error bars as they are stated."""
    used = weights > 0
    if not used.all():
        margins = margins.take(used)
        labels, weights = labels[used], weights[used]
    targets = smoothed_targets(labels, weights)
    centre = margins.centre
    if n_classes > 2:
        centre = centre - centre.mean(axis=1, keepdims=True)
        apart = margins.apart - margins.apart.mean(axis=2, keepdims=True)
        margins = margins._replace(centre=centre, apart=apart)
    # In units of their own deviation, alpha is about 1 and steps mean the same for all scores.
    offset = np.average(centre, axis=0, weights=weights)
    unit = float(np.sqrt(np.average(np.square(centre - offset), axis=0, weights=weights).mean()))
    if not unit > CONSTANT * float(np.abs(centre).max()):
        unit = 0.0
    scale = unit or 1.0
    # About their mean, so that alpha and beta are nearly independent.
    margins = Margins(margins.weights, (centre - offset) / scale, margins.apart / scale, margins.variances / scale**2)
    fit = _Likelihood(link_of(margins, n_classes), labels, targets, weights, rough)
    found = fit.parameters(informative=unit > 0)

    def back(parameters: tuple[float, Array, float]) -> tuple[float, Array, float]:
        alpha, beta, kappa = parameters
        alpha /= scale
        beta = beta - alpha * (np.concatenate([[0.0], offset]) if n_classes == 2 else offset)
        return alpha, beta - (beta[0] if n_classes == 2 else beta.mean()), kappa

    return Calibration(back(found.stated), back(found.scaled), found.pvalue)


def smoothed_targets(labels: Index, weights: Array) -> Array:
    """Return Platt's targets ``(N_c + 1) / (N_c + 2)`` for the class c of every sample."""
    totals = np.bincount(labels, weights)[labels]
    return np.asarray((totals + 1.0) / (totals + 2.0))


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
        # What is not for the class of a sample is for the others as they share it.
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
        spreads = (margins.variances + np.square(margins.apart)).sum(axis=2)
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
        """Return the same where alpha is 0: all samples of a class are alike."""
        firsts = np.unique(self.labels, return_index=True)[1]
        weights = np.asarray(np.bincount(self.labels, self.weights)[self.labels[firsts]], dtype=np.float64)
        model = replace(self.model, margins=self.model.margins.take(firsts))
        return replace(self, model=model, labels=self.labels[firsts], targets=self.targets[firsts], weights=weights)

    def _without_errors(self) -> "_Likelihood":
        """Return the same where kappa is 0: all components of a sample are alike, and without variance."""
        centre = self.model.margins.centre
        none = np.zeros((len(centre), 1, centre.shape[1]))
        return replace(self, model=replace(self.model, margins=Margins(np.ones(none.shape[:2]), centre, none, none)))

    def minimum(self, x: Array, free: NDArray[np.bool_]) -> Array:
        """Return the minimum over the free parameters.

        By Newton's method with the Fisher information, corrected by differences of gradients (BFGS): where the errors
        are large the likelihood is not concave, and its curvature not that information.
        """
        total = float(self.weights.sum())
        rest = max(self.model.at_rest * min(1.0, total), ROUGHLY * total if self.rough else 0.0)
        value, gradient, information = self.derivatives(x)
        inverse = np.linalg.pinv(information[np.ix_(free, free)], rcond=1e-12, hermitian=True)
        n_logs = np.count_nonzero(free[:2])
        for _ in range(MAX_ITER):
            g = gradient[free]
            step = -inverse @ g
            decrement = -float(g @ step)
            if not decrement > rest:
                break
            t = 1.0 / max(1.0, float(np.abs(step[:n_logs]).max(initial=0.0)) / LONGEST)
            while t > SHORTEST:
                trial = x.copy()
                trial[free] += t * step
                trial[0] = min(trial[0], np.log(MAX_ALPHA))
                if free[1]:
                    trial[1] = np.clip(trial[1], -np.log(MAX_KAPPA), np.log(MAX_KAPPA))
                there = self.derivatives(trial)
                if there[0] <= value - 1e-4 * t * decrement:
                    break
                t *= 0.5
            else:
                break
            moved, turned = trial[free] - x[free], there[1][free] - g
            x, (value, gradient, _) = trial, there
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
