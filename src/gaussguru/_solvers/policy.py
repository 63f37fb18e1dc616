"""The tuning constants of Newton's method."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NewtonPolicy:
    """Each with its meaning, its unit, and where it comes from; "measured" refers to the shapes of benchmarks/."""

    # --- continuation
    # A point is central where its decrement is below this fraction of what noise and smoothing make of F (measured: 0.1
    # to 0.5 take the same iterations).
    central: float = 0.3
    # Iterations after which smoothing goes down although the point is not central, or comes back if it went down fast;
    # few fits get there.
    patience: int = 20
    # The last blur, in units of ``tol``: F rises by at most 0.4 times it, relative to F(0).
    last_blur: float = 0.25
    # A step that lowers F by less than this fraction of its decrement, after blur was dropped as negligible, says that
    # it was not: a Newton step of a parabola lowers it by half (measured: kernels with error bars, where some samples
    # have next to no noise).
    early: float = 0.05
    # Steps that are lost in rounding and leave the gap as it is before smoothing goes below the final one, where a
    # problem has such, and as many again before rounding is blamed (measured: ball).
    stalls: int = 6
    # Noise levels at which a warm start is tried, as multiples of that of the problem.
    warm_noise: tuple[float, ...] = (1.0, 6.0, 36.0)
    # Solutions of a path from which the next one is extrapolated (measured: errors grow with more).
    remembered: int = 3

    # --- subsamples
    # A subsample has at least this many rows, and rows per column (and half as many for each class of several), and is
    # this much smaller than the next. There is one if there are so many times more rows, or half as many times where
    # rows have several scores or error bars, and take longer (measured: 2 saves 5 to 45 % of such fits with 8,000 to
    # 16,000 rows, and costs up to 30 % of others).
    min_rows: int = 4000
    rows_per_column: int = 8
    growth: int = 16
    smaller: int = 4
    # More rows per column are not worth sending from where samples are: a step with the Hessian of so many leaves about
    # (columns / rows)^2 of F, far below any tolerance (measured, 1e7 x 20: 4000 take a pass more in one of three fits).
    ample: int = 16_000
    # On a subsample the decrement need not be below this, times columns / rows, of F: its minimum is that far from the
    # other one.
    enough: float = 0.1

    # --- steps
    # A factor at most this many times dearer than a product is preferred to conjugate gradients (measured: usps).
    cheap_ratio: float = 7.0
    # Products of conjugate gradients for one system at most (measured: news20 takes least with 12 to 16, with 30 up to
    # twice the time; mnist and usps take the same with 12 to 30).
    most_products: int = 12
    # Pairs of the limited-memory BFGS correction (Nocedal & Wright, 7.2: 3 to 20).
    memory: int = 10
    # Levenberg damping after a first failure, in units of a curvature of 1 in every row; it is raised and lowered by a
    # factor of 10 (Nocedal & Wright, 10.3).
    damping: float = 1e-2
    # Damping is raised, and a trust radius halved, where F falls by less than this fraction of the decrement (Nocedal &
    # Wright, algorithm 4.1).
    gain: float = 0.25
    # Damping that is always there, in the same units, for directions without any curvature (measured: without it nearly
    # singular problems of many classes stall; 1e-17 leaves some balls unproven).
    floor: float = 1e-18

    # --- quadratic programs, of noise that is not smooth
    # Faces visited in one at most: the model falls from each to the next, so it need not be solved to the end
    # (measured: 7 to 60 differ by 20 %, and not in one direction).
    faces: int = 7
    # Trust radius of each free feature at first, in units of a / max_i |x_ij|; it is never below one (measured: a fixed
    # one of 8 takes a third more passes on covtype).
    radius: float = 16.0

    def least_rows(self, n_columns: int, width: int) -> int:
        """Return how many rows a subsample has at least, of so many columns and scores a row."""
        return max(self.min_rows, round(self.rows_per_column * max(1.0, width / 2) * n_columns))

    def drawn_rows(self, n_rows: int, n_columns: int, width: int, n_parts: int) -> float:
        """Return how many of the rows of one of several parts are drawn: a fraction, within what few parts need."""
        least, most = self.least_rows(n_columns, width), self.ample * max(1.0, width / 2) * n_columns
        return max(least / n_parts, min(n_rows / self.growth, most / n_parts))


DEFAULT = NewtonPolicy()
