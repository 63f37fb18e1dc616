"""Where to begin: a direction, a noise level, and how many rows to look at first."""

from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from gaussguru.losses import Array, Index
from gaussguru.objective import Objective, Point
from gaussguru.rows import Rows
from gaussguru.solvers.plane import ROUGHLY, is_vanishing, settle

# A subsample has at least this many rows, and rows per column, and is this much smaller than the next.
MIN_ROWS = 4000
ROWS_PER_COLUMN = 8
GROWTH = 16
# Noise to start from, relative to the spread of the margins (measured: 1/4 to 1 differ by 10 %).
SMOOTH = 0.25
# Coordinate descent: passes over all rows, then rounds of sweeps over the rows that are still within the margin
# and of many more over the hardest ones, as long as they are no more than a small part of all.
PASSES, ROUNDS, SWEEPS = 3, 7, 5
HARDEST, HARD_SWEEPS, HARD_PART = 50, 100, 0.01
# The margin that needs no sweep, and the one below which a row is hard; cap of a coordinate, and weight of the
# intercept's feature, relative to the mean square of a row.
WITHIN, HARD = 0.9, 0.5
CAP, BIAS = 1e6, 0.3


class Sampled(Protocol):
    """A problem of which parts can be taken."""

    @property
    def rows(self) -> Rows:
        """The rows."""

    def subsample(self, n_rows: int, rng: np.random.Generator) -> Self:
        """Return about so many rows."""


Problem = TypeVar("Problem", bound=Sampled)


def subsamples(objective: Problem, seed: int, apart: float = 4) -> list[Problem]:
    """Return ever larger parts of the data, the smallest first, all of them much smaller than the whole.

    What is at least ``apart`` times as large as the smallest part can be has a smaller one.
    """
    levels: list[Problem] = []
    # With many classes each pair of them has few of the rows.
    per_column = ROWS_PER_COLUMN * max(1.0, objective.rows.width / 2)
    n, least = objective.rows.n_rows, max(MIN_ROWS, round(per_column * objective.rows.n_columns))
    while n >= apart * least:
        rng = np.random.default_rng(seed)
        n = max(n // GROWTH, least)
        levels.insert(0, (levels[0] if levels else objective).subsample(n, rng))
    return levels


class Means(NamedTuple):
    """The direction of the class means, its margins, the middle and half the distance of the means along it."""

    w: Array
    margin: Array
    centre: float
    half: float
    noise: float
    """The noise level, as a factor of the objective's, at which F is smooth: a part of the spread of the margins."""


def look_along_means(objective: Objective) -> Means:
    """Project the rows on the difference of the class means."""
    w = objective.first
    margin = objective.rows.margins(w)
    if objective.fit_intercept:
        mean_pos, mean_neg = (float(mean @ w) for mean in objective.means)
        centred = margin - np.where(np.signbit(objective.signed_weight), mean_neg, mean_pos)
        half, centre = 0.5 * (mean_pos - mean_neg), 0.5 * (mean_pos + mean_neg)
    else:
        centred = margin
        half, centre = float(objective.pull @ w) / objective.weight, 0.0
    spread = np.sqrt(float(np.abs(objective.signed_weight) @ (centred * centred)) / objective.weight)
    return Means(w, margin, centre, half, max(1.0, SMOOTH * float(spread) / objective.noise.scale(w)))


def from_means(objective: Objective, means: Means) -> tuple[Point, float]:
    """Return the best point along the class means and its noise level: the smooth one, or lower if w vanishes there."""
    stretch = 1 / max(means.half, objective.noise.scale(means.w))
    for part in (1, 4, 16, 1):
        ratio = max(1.0, means.noise / part)
        noisy = objective.with_noise(ratio)
        point = settle(noisy, noisy.point(means.w, -means.centre * stretch, means.margin, stretch), ROUGHLY)
        if not is_vanishing(noisy, point):
            break
    return point, ratio


def from_coordinates(objective: Objective, enough: float, seed: int) -> Point:
    """Return a classifier of the noiseless problem: dual coordinate descent on the hinge loss.

    Where columns abound the classes are often separable, and this finds out in the time of some passes over X; it ends
    when F is at most ``enough``. What takes longest is a few nearly equal rows of different labels: only a large alpha
    of both tells them apart, and it grows a little with each visit. So the rows with the largest alpha are visited
    many times, which costs next to nothing. (Hsieh et al. 2008; the intercept is a constant feature of a fraction of
    the mean length of a row.)
    """
    rng = np.random.default_rng(seed)
    square, n = objective.squares / objective.weight, objective.rows.n_rows
    bias = BIAS * float(np.sqrt(square)) if objective.fit_intercept else 0.0
    params, alpha = np.zeros(objective.rows.n_columns + 1), np.zeros(n)

    def sweep(order: Index, times: int = 1) -> None:
        for _ in range(times):
            shuffled = rng.permutation(order)
            objective.rows.coordinate_pass(shuffled, objective.signed_weight, CAP / square, bias, alpha, params)

    def look() -> tuple[Point, Array]:
        point = objective.point(params[:-1].copy(), bias * float(params[-1]))
        return point, np.copysign(1.0, objective.signed_weight) * (point.margin + point.b)

    sweep(np.arange(n), PASSES)
    _, margin = look()
    sweep(np.flatnonzero(margin < WITHIN), SWEEPS)
    for left in range(ROUNDS, -1, -1):
        point, margin = look()
        hard = np.flatnonzero(margin < HARD)
        separated = settle(objective, point, ROUGHLY).value <= enough if margin.min() > 0 else False
        if separated or not left or len(hard) > HARD_PART * n:
            break
        sweep(np.union1d(np.argsort(alpha)[-HARDEST:], hard), HARD_SWEEPS)
        sweep(np.flatnonzero(margin < WITHIN), SWEEPS)
    return settle(objective, point)
