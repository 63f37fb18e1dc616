"""Whether a classifier that ignores the features is optimal, and from which noise on."""

import numpy as np
from scipy.optimize import minimize_scalar, nnls

from gaussguru.certificates.gaps import balanced, rounding
from gaussguru.losses import Array
from gaussguru.noise import norm
from gaussguru.objective import Expansion, Objective

# A dual point may fall short of the value of the constant classifier by this part of it, because b is rounded.
SHORT = 1e-11
# More dual points than two are mixed up to this many columns.
MIXED_COLUMNS = 64


class CollapseProof:
    """Dual points with the value ``2 S_min`` of the constant classifier, searched for a feasible mixture.

    They have ``alpha = 1`` on the lighter class: the uniform point of :func:`collapse_sigma`, and the slopes of pinned
    points at any noise level. A mixture is feasible if ``polar(v) <= sum s f*``, where v is linear in it and f*
    concave. Where K is stationary under fixed ``w.pull``, ``grad K = K v_u / (w.v_u)`` for the v of the uniform point,
    and mixing in the proportion ``1 : K / (w.v_u)`` leaves ``v = grad a sum s f*``, which is feasible.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.value = objective.constant
        self.points = [(0.5 * self.value * objective.pull, _uniform_level(objective), self.value)]

    def add(self, expansion: Expansion) -> None:
        """Take in the slopes of a pinned point."""
        totals = expansion.point.totals
        v, mass, rho = balanced(self.objective, expansion.by_label, totals.slope_pos, totals.slope_neg)
        if mass >= self.value * (1 - SHORT):
            most = 4 * (len(v) + 2) if len(v) <= MIXED_COLUMNS else 2
            self.points = [self.points[0], *self.points[1:][-most:], (v, rho * totals.conjugate, mass)]

    def dual(self) -> float:
        """Return the dual value that is proven: that of the constant classifier but for rounding, or 0."""
        uniform, latest = self.points[0], self.points[-1]
        least = min(mass for *_, mass in self.points)
        if uniform is latest:
            return least if self._violation(np.ones(1), [uniform]) <= 0 else 0.0

        def between(share: float) -> float:
            return self._violation(np.array([share, 1 - share]), [uniform, latest])

        if minimize_scalar(between, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12}).fun <= 0:
            return least
        if len(self.points) < 3 or len(uniform[0]) > MIXED_COLUMNS:
            return 0.0
        # The mixture with the shortest v: the one that holds for the least noise.
        directions = np.array([v for v, *_ in self.points]).T / norm(uniform[0])
        system = np.vstack([directions, np.ones(len(self.points))])
        try:
            shares, _ = nnls(system, np.append(np.zeros(len(directions)), 1.0))
        except RuntimeError:  # it did not converge: no proof
            return 0.0
        return least if self._violation(shares / shares.sum(), self.points) <= 0 else 0.0

    def _violation(self, shares: Array, points: list[tuple[Array, float, float]]) -> float:
        v = np.array([point[0] for point in points]).T @ shares
        level = float(np.array([point[1] for point in points]) @ shares)
        noise, error = self.objective.noise, rounding(self.objective, self.value)
        return noise.polar(v) + noise.polar_within(error) - level


def collapse_sigma(objective: Objective) -> float:
    """Return the factor on the noise level from which on a uniform dual point proves ``w = 0, b = +-1`` optimal.

    The point has ``alpha = 1`` on the rows of the lighter class and ``S_min/S_maj`` on the others: it balances,
    ``v = S_min (mu_+ - mu_-)``, and its dual value is ``2 S_min``, the objective of the constant classifier. It is
    feasible when ``polar(v) <= S_maj f*(S_min/S_maj)``.
    """
    level = _uniform_level(objective)
    pull = objective.noise.polar(min(objective.weights) * objective.pull)
    return pull / level if level > 0 else (np.inf if pull > 0 else 0.0)


def _uniform_level(objective: Objective) -> float:
    minor, major = sorted(objective.weights)
    return major * float(objective.loss.conjugate(np.asarray(minor / major)))


def is_collapsed(objective: Objective) -> bool:
    """Return whether the uniform dual point already proves that ``w = 0`` is optimal."""
    return collapse_sigma(objective) <= 1 if objective.fit_intercept else not np.any(objective.pull)
