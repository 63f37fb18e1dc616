"""The tuning constants of Newton's method."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NewtonPolicy:
    """Each constant with its meaning, unit and origin; "measured" refers to the shapes of benchmarks/."""

    # --- continuation
    # Iterations after which smoothing is reduced although the point is not central, or restored if it was reduced fast;
    # few fits need as many.
    patience: int = 20
    # The last blur, in units of ``tol``: F rises by at most 0.4 times it, relative to F(0).
    last_blur: float = 0.25
    # Blur that was dropped as negligible is restored after a step that lowers F by less than this fraction of the
    # decrement; on a parabola a Newton step lowers it by half (measured: kernels with error bars, where some samples
    # have almost no noise).
    early: float = 0.05
    # Number of consecutive steps below rounding that do not lower the gap before smoothing is reduced below the final
    # one, if the problem can, and again before the solver stops with "precision" (measured: ball).
    stalls: int = 6
    # Noise levels at which a warm start is tried, as multiples of that of the problem.
    warm_noise: tuple[float, ...] = (1.0, 6.0, 36.0)
    # Number of solutions from which the next one of a path is extrapolated (measured: errors grow with more).
    remembered: int = 3

    # --- subsamples
    # The least rows of a subsample, and the least rows per column (half as many per class for several classes).
    min_rows: int = 4000
    rows_per_column: int = 8
    # A subsample is this many times smaller than the next.
    growth: int = 16
    # Subsamples are used with this many times the least rows, or half as many times if rows have several scores or
    # error bars, and take longer (measured: 2 saves 5 to 45 % of these fits with 8,000 to 16,000 rows, and costs up to
    # 30 % of others).
    smaller: int = 4
    # The most rows per column that are transferred from where samples are: a step with their Hessian leaves about
    # (columns / rows)^2 of F, far below any tolerance (measured, 1e7 x 20: 4000 take a pass more in one of three fits).
    ample: int = 16_000
    # A subsample is left when the decrement is below this fraction of columns / rows of F, which is about the distance
    # of its minimum to that of more rows.
    enough: float = 0.1

    # --- steps
    # A factor that costs at most this many products is preferred to conjugate gradients (measured: usps).
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
    # The least damping, in the same units, for directions without any curvature (measured: without it nearly singular
    # problems of many classes stall; 1e-17 leaves some balls unproven).
    floor: float = 1e-18

    # --- quadratic programs, for axis noise
    # The most faces visited in one program: the model falls from each to the next, so it need not be solved to the end
    # (measured: 7 to 60 differ by 20 %, in both directions).
    faces: int = 7
    # The first trust radius of each free feature, in units of a / max_i |x_ij|; the least one is 1 (measured: a fixed
    # one of 8 takes a third more passes on covtype).
    radius: float = 16.0

    def least_rows(self, n_columns: int, width: int) -> int:
        """Return the least number of rows of a subsample, for a number of columns and of scores per row."""
        return max(self.min_rows, round(self.rows_per_column * max(1.0, width / 2) * n_columns))

    def drawn_rows(self, n_rows: int, n_columns: int, width: int, n_parts: int) -> float:
        """Return the number of rows to draw from one of ``n_parts`` parts, which has ``n_rows``; not rounded."""
        least, most = self.least_rows(n_columns, width), self.ample * max(1.0, width / 2) * n_columns
        return max(least / n_parts, min(n_rows / self.growth, most / n_parts))
