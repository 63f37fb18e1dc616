"""Newton's method with continuation, certified: the solver of every problem.

One iteration, at the smoothing that it has reached::

    certify    stop when the duality gap is at most tol F(0)
    solve      Hessian p = -gradient
    step       a line search along p; or, where the point is central, less smoothing, along the tangent of the path

**Continuation.** For small noise F is nearly piecewise linear, and where a classifier collapses it has a kink: Newton's
method alone would take many short steps. The solver starts with a smoother problem
(:mod:`gaussguru._guru.problems.smoothing`) and follows its minimum as smoothing goes down. Blur that is negligible
relative to the noise is dropped at once; it is restored if steps without it are much too long or do not converge. A
point is *central* if its Newton decrement is small relative to the part of F due to noise and smoothing.

**Subsamples.** Most steps are made on few rows. The minimum of a subsample differs from that of more rows; so a
subsample is left when less smoothing would change its minimum by less than that difference, and the next rows start
with smoothing that covers the difference.

**Lazy systems** (:mod:`gaussguru._guru.solvers.linear_systems`): few steps form a Hessian.

**Paths.** Solutions at one noise level after another are extrapolated from those before.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from gaussguru._guru.problems.protocol import LocalModel, P, Problem
from gaussguru._guru.problems.smoothing import FIRST_BLUR, NEGLIGIBLE, SPEED, Smoothing
from gaussguru._guru.solvers.axis_qp import AxisSystems
from gaussguru._guru.solvers.bounds import Bounds
from gaussguru._guru.solvers.line_search import falls, is_lost, lowest
from gaussguru._guru.solvers.linear_systems import NewtonStep, Steps, Systems
from gaussguru._guru.solvers.policy import NewtonPolicy
from gaussguru._guru.solvers.result import Result
from gaussguru._utils.linalg import Array, Intercept


@dataclass(frozen=True)
class Newton:
    """The solver; see the module for the method.

    Parameters
    ----------
    tol : stop when the duality gap is at most ``tol * F(0)``
    max_iter : number of iterations, over all subsamples and smoothing
    verbose : 1 prints a line per iteration
    seed : of the subsamples
    """

    tol: float = 1e-6
    max_iter: int = 500
    verbose: int = 0
    seed: int = 0
    policy: ClassVar[NewtonPolicy] = NewtonPolicy()

    def solve(self, problem: Problem[P], start: tuple[Array, Intercept] | None = None) -> Result:
        """Minimise, from coefficients and intercept if given."""
        run = _Run(self, problem)
        # Not all zero, with squares that do not overflow.
        if start is not None and 1e-100 < float(np.abs(start[0]).max()) < 1e100:
            point = problem.point(problem.unknowns(*start))
            # At the first noise at which the point is central.
            if any(run.resume(point, noise, 0.0) for noise in self.policy.warm_noise):
                return run.result()
        return run.from_scratch()

    def follow(self, problem: Problem[P], factors: Iterable[float]) -> Iterator[Result]:
        """Minimise at one noise level after another, given as factors, each from the solutions before it.

        Hessian factors are reused at the next level. The first point is evaluated from the scores of the solutions, so
        that the first pass over X is for its gradient.
        """
        passed: list[tuple[float, P]] = []
        systems = systems_for(problem, self.policy)
        for factor in factors:
            run = _Run(self, problem.scaled(factor), systems)
            resumed = bool(passed) and run.resume_path(factor, passed)
            result = run.result() if resumed else run.from_scratch()
            if resumed and not result.converged:
                # Rounding errors of a distant start may prevent convergence: start from scratch.
                run = _Run(self, run.problem)
                result = min(result, run.from_scratch(), key=lambda either: either.gap)
            yield result
            if run.best is not None and not result.collapsed and all(factor != known for known, _ in passed):
                passed = [*passed[1 - self.policy.remembered :], (factor, run.best)]

    def subsamples(self, problem: Problem[P]) -> list[Problem[P]]:
        """Return growing subsamples, the smallest first, each much smaller than all rows."""
        levels: list[Problem[P]] = []
        policy, rows = self.policy, problem.rows
        n, least = rows.n_rows if rows.most_drawn else 0, policy.least_rows(rows.n_columns, rows.width)
        times = policy.smaller if rows.width == 1 and rows.errors is None else policy.smaller / 2
        while n >= times * least:
            n = int(min(max(n // policy.growth, least), rows.most_drawn))
            rng = np.random.default_rng(self.seed)
            levels.insert(0, (levels[0] if levels else problem).subsample(n, rng))
        return levels


class _Run(Bounds[P]):
    """One call of :meth:`Newton.solve`: the linear systems, and the best bounds so far."""

    def __init__(self, settings: Newton, problem: Problem[P], systems: Steps[LocalModel[P]] | None = None) -> None:
        super().__init__("newton", problem, settings.tol, settings.verbose)
        self.settings, self.policy = settings, settings.policy
        self.last = Smoothing(1.0, self.policy.last_blur * min(settings.tol, 1e-3))
        self.systems = systems or systems_for(problem, self.policy)
        self.n_lost, self.least_gap = 0, np.inf  # number of consecutive steps below rounding, and the gap after them
        self.fastest = 0.0  # the largest blur that was reduced by more than a factor SPEED
        self.held = np.inf  # blur above this is reduced by SPEED only, because a faster reduction failed

    # --- starting points ----------------------------------------------------------------------------------

    def from_scratch(self) -> Result:
        """Minimise on growing subsamples, then on all rows."""
        levels = [*self.settings.subsamples(self.problem), self.problem]
        first = next((index for index, level in enumerate(levels) if not self._is_constant(level)), None)
        if first is None:
            self.dual = self.problem.collapse_bound()
            return self.result()
        local: LocalModel[P] | None = None
        for level in levels[first:]:
            local = self.descend(level, self._begin(level, local))
        return self.result()

    def _is_constant(self, problem: Problem[P]) -> bool:
        """Return whether zero coefficients are proven optimal on the rows of a problem."""
        bound = problem.collapse_bound()
        return bound > 0 and problem.constant_near(None)[1] - bound <= self.settings.tol * problem.weight

    def _begin(self, level: Problem[P], before: LocalModel[P] | None) -> LocalModel[P]:
        """Return the first local model on the rows of ``level``, after that of a smaller subsample if there is one."""
        if before is None:
            point, smoothing = level.initial(self.last, self.target)
            return level.smoothed(smoothing).expand(point)
        smoothing = before.restart(self.last)
        problem = level.smoothed(smoothing)
        if before.is_final(self.last, self.target) and smoothing == before.problem.smoothing:
            local = problem.visit(before.x)
        else:
            local = problem.expand(problem.rescaled(problem.point(before.x), NEGLIGIBLE))
        if local.value >= level.constant_near(None)[1] and smoothing.blur < FIRST_BLUR:
            # The classifier may collapse on these rows.
            problem = level.smoothed(smoothing._replace(blur=FIRST_BLUR))
            local = problem.expand(problem.again(local.point))
        return local

    def resume_path(self, factor: float, passed: list[tuple[float, P]]) -> bool:
        """Minimise from an extrapolation of the solutions at other noise levels, if it is central; return success.

        If it is not central, start from the last solution, which is central at its own noise, if that is larger.
        """
        ahead = self.problem.smoothed(self.last).mixture(extrapolation(factor, passed))
        level, solution = passed[-1]
        return self.resume(ahead, 1.0, np.inf) or (level > factor and self.resume(solution, level / factor, np.inf))

    def resume(self, point: P, noise: float, previous: float) -> bool:
        """Minimise from a point if it is central at some noise; return whether it is."""
        problem = self.problem.smoothed(self.last._replace(noise=noise))
        point = problem.rescaled(problem.again(point), NEGLIGIBLE)
        if point.value >= self.problem.constant_near(None)[1]:
            return False
        local = problem.expand(point)
        if not self._is_central(local, self.systems.step(local, previous, final=True).decrement):
            return False
        self.descend(self.problem, local)
        return True

    def _is_central(self, local: LocalModel[P], decrement: float) -> bool:
        """Return whether the decrement is small relative to the part of F due to noise and smoothing."""
        return decrement <= local.central * local.noisy or is_lost(local.value, decrement)

    # --- the iteration ------------------------------------------------------------------------------------

    def descend(self, level: Problem[P], local: LocalModel[P]) -> LocalModel[P]:
        """Minimise over the rows of ``level``, from a point at some smoothing."""
        last = level is self.problem
        self.systems.forget(factor=not last)
        previous, patience = np.inf, self.policy.patience
        while True:
            local = self._separated(local)
            final = local.is_final(self.last, self.target)
            if self._ends(local, last=last, final=final):
                break
            step = self.systems.step(local, previous, final=final)
            self._print(local, last)
            self.n_iter += 1
            patience -= 1
            central = self._is_central(local, step.decrement)
            if self._suffices(local, step, last=last, final=final, central=central):
                break
            stalled = last and final and self._stalls(local, step.decrement)
            if stalled or (not final and (central or not patience)):
                less, patience = self._less(local), self.policy.patience
                if final and (less == local.problem.smoothing or self.n_lost > 2 * self.policy.stalls):
                    break
                local = self._follow(level.smoothed(less), local, step)
                self.systems.forget()
                previous = np.inf
            else:
                before, local = local, self._advance(local, step, curved=final and last and local.is_near(self.target))
                self.systems.learn(before, local, step.decrement)
                previous = step.decrement
                if self._was_too_fast(before, local, step.decrement, patience):
                    local, previous, patience = self._blurred(local), np.inf, self.policy.patience
        self._print(local, last)
        if not last:
            self.systems.leave(local)
        return local

    def _ends(self, local: LocalModel[P], *, last: bool, final: bool) -> bool:
        """Return whether the gap is closed or the iterations are used up.

        A certificate is computed only if the expected decrement of the next step allows the gap to be closed.
        """
        exhausted = self.n_iter >= self.settings.max_iter
        expected = partial(self.systems.expected, local)
        due = last and final and (self.settings.verbose > 0 or local.may_close(expected, self.target))
        if (due or (last and exhausted)) and self.certify(local, thorough=exhausted):
            return True
        if exhausted:
            self.status = "max_iter"
        return exhausted

    def _suffices(self, local: LocalModel[P], step: NewtonStep, *, last: bool, final: bool, central: bool) -> bool:
        """Return whether a step closes the gap or, on a subsample, whether further steps would not help more rows."""
        if not final:
            return not last and central and local.is_hidden
        if last:
            dual, alpha = local.refined(step.p, step.decrement, self.target)
            if dual > self.dual:
                self.certify(local)  # for the upper bound
                self.raise_dual(dual, alpha)
            return self.is_closed
        rows = local.problem.rows
        return step.decrement <= self.policy.enough * rows.n_columns / rows.n_rows * local.value

    def _stalls(self, local: LocalModel[P], decrement: float) -> bool:
        """Return whether too many consecutive steps were below rounding and did not reduce the gap."""
        if not is_lost(local.value, decrement):
            return False
        self.certify(local, thorough=True)
        self.n_lost = self.n_lost + 1 if self.gap > 0.9 * self.least_gap else 0
        self.least_gap = self.gap
        return self.n_lost > self.policy.stalls

    def _separated(self, local: LocalModel[P]) -> LocalModel[P]:
        """Return the point without smoothing if F with smoothing is below half of the target gap."""
        if local.value > 0.5 * self.target or local.is_final(self.last, self.target):
            return local
        sharp = local.problem.smoothed(self.last)
        return sharp.expand(sharp.rescaled(sharp.again(local.point), NEGLIGIBLE))

    def _less(self, local: LocalModel[P]) -> Smoothing:
        """Return the next smoothing of the continuation."""
        now, less = local.problem.smoothing, local.less_smoothing(self.last, self.target)
        if now.blur > self.held:
            return less._replace(blur=max(less.blur, min(now.blur, max(now.blur / SPEED, self.last.blur))))
        if less.blur < now.blur / SPEED:
            self.fastest = max(self.fastest, now.blur)
        return less

    def _was_too_fast(self, before: LocalModel[P], after: LocalModel[P], decrement: float, patience: int) -> bool:
        """Return whether a reduction of blur by more than SPEED at a time was too fast.

        It was if a step at the last blur is much too long, because some rows have almost no noise, or if the steps on
        all rows do not converge.
        """
        if self.fastest <= self.last.blur or not after.is_final(self.last, self.target):
            return False
        poor = decrement > self.target and before.value - after.value < self.policy.early * decrement
        dropped = after.problem.smoothing.blur <= self.last.blur
        return (poor and dropped) or (not patience and after.problem.rows is self.problem.rows)

    def _blurred(self, local: LocalModel[P]) -> LocalModel[P]:
        """Restore a blur that was reduced too fast; it is then reduced by SPEED until it is negligible."""
        problem = local.problem.smoothed(local.problem.smoothing._replace(blur=self.fastest / SPEED))
        self.held, self.fastest = NEGLIGIBLE**2 * self.fastest, 0.0
        self.systems.forget(factor=True)
        return problem.expand(problem.again(local.point))

    def _follow(self, problem: Problem[P], local: LocalModel[P], step: NewtonStep) -> LocalModel[P]:
        """Take the best fraction of a step to less smoothing; F changes with the smoothing."""
        best = end = problem.point(local.x + step.towards(problem.smoothing))
        if not end.value < local.value:
            best = lowest(problem, problem.again(local.point), end, 0.0)
        return problem.expand(problem.rescaled(best, NEGLIGIBLE))

    def _advance(self, local: LocalModel[P], step: NewtonStep, *, curved: bool) -> LocalModel[P]:
        """Take a Newton step, shortened until F falls."""
        problem, start, decrement = local.problem, local.point, step.decrement
        if problem.is_fused and decrement <= NEGLIGIBLE * local.value:
            visited = problem.visit(local.x + step.p, curved=curved)
            if falls(local.value, visited.value, 1.0, decrement):
                return visited
            end = visited.point
        else:
            end = problem.point(local.x + step.p)
        trial = lowest(problem, start, end, decrement)
        # Length and intercept are more exact near the optimum.
        tol = NEGLIGIBLE * min(1.0, max(1e-9, decrement / max(local.noisy, 1e-300)))
        return problem.expand(problem.rescaled(trial, tol))

    # --- bounds -------------------------------------------------------------------------------------------

    def certify(self, local: LocalModel[P], *, thorough: bool = False) -> bool:
        """Update the best bounds on the minimum; return whether the gap is closed."""
        certificate, point = local.certificate(self.target, thorough=thorough or self.settings.verbose > 0)
        self.raise_dual(certificate.dual)
        self.lower_primal(certificate.primal, point)
        return self.is_closed

    def _print(self, local: LocalModel[P], last: bool) -> None:
        if not self.log.verbose:
            return
        (noise, blur), rows = local.problem.smoothing, local.problem.rows
        note = "" if last else f"  on {rows.n_rows} rows"
        note += "" if noise == 1 else f"  noise x {noise:.3g}"
        note += "" if blur <= self.last.blur else f"  blur {blur:.2g}"
        self.log(self.n_iter, local.value, self.gap if last else math.inf, note)


def systems_for(problem: Problem[P], policy: NewtonPolicy) -> Steps[Any]:
    """Return the source of steps for a problem."""
    return Systems(policy) if problem.is_smooth else AxisSystems(policy)


def extrapolation(level: float, passed: list[tuple[float, P]]) -> list[tuple[float, P]]:
    """Return the solutions with their weights at another level, by Lagrange's polynomials.

    A solution is nearly linear in the noise level, so a polynomial through the last ones is a better start than the
    last one. If the level is farther away than twice their range, the last one is used alone.
    """
    levels = [known for known, _ in passed]
    if abs(level - levels[-1]) > 2 * abs(levels[-1] - levels[0]):
        return [(1.0, passed[-1][1])]
    shares = [math.prod((level - other) / (base - other) for other in levels if other != base) for base in levels]
    return list(zip(shares, (solution for _, solution in passed), strict=True))
