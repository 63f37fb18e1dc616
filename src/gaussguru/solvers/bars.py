"""Newton's method for samples with error bars of their own.

There is no common noise level to lower, so the path is in the blur: from a margin of 1 down to nothing. It is left at
once where all samples have noise of their own, which makes F smooth already; exact samples, with the hinge loss itself,
need all of it. As everywhere, most of the way is made on few rows, and factors are lazy.
"""

import time
from dataclasses import dataclass

import numpy as np

from gaussguru.certificates import certify_uncertain
from gaussguru.cholesky import Factor, factorise
from gaussguru.losses import Array
from gaussguru.solvers.inverse import LazyInverse
from gaussguru.solvers.path import CENTRAL, PATIENCE, Settings, is_lost, shortened
from gaussguru.solvers.result import Result
from gaussguru.solvers.start import subsamples
from gaussguru.uncertain import Expansion, Room, Uncertain

# The last blur, relative to the tolerance; the factor by which it falls; what is nothing beside the noise of the rows.
LAST_BLUR, SPEED, NOTHING = 0.1, 5.0, 0.1
# The way to the last blur is made on few rows, as each step of it takes a Hessian.
APART = 2.0
# A gap is proven, which takes a look at the errors, once it is estimated at most this many times what is wanted.
HOPEFUL = 1.2


def _factor_of(expansion: Expansion) -> Factor | None:
    return factorise(expansion.hessian()) if expansion.has_factor else None


@dataclass(frozen=True)
class ErrorBars(Settings):
    """The solver; see the module for the method."""

    def solve(self, objective: Uncertain, start: tuple[Array, Array] | None = None) -> Result:
        """Minimise ``objective``, from ``(W, b)`` if given."""
        run = _Run(self, objective)
        levels = [objective] if start else [*subsamples(objective, self.seed, APART), objective]
        C, d = objective.n_classes, objective.shape[1]
        at = start or (np.zeros((C, d)), np.zeros(C))
        blur = 1.0 if start is None else run.blur
        for level in levels:
            at = run.descend(level, at, blur)
            blur = run.blur
        return run.result()


class _Run:
    """One call of :meth:`ErrorBars.solve`."""

    def __init__(self, settings: ErrorBars, objective: Uncertain) -> None:
        self.settings, self.objective = settings, objective
        self.target = settings.tol * objective.weight
        self.blur = LAST_BLUR * min(settings.tol, 1e-3)
        self.inverse = LazyInverse(_factor_of)
        self.n_iter, self.began = 0, time.perf_counter()
        self.best: Expansion | None = None
        self.dual = 0.0
        self.room: Room | None = None

    def descend(self, level: Uncertain, at: tuple[Array, Array], blur: float) -> tuple[Array, Array]:
        """Minimise over the rows of ``level``, from a place and a blur."""
        last = level is self.objective
        enough = min(1e-2, 0.1 * level.shape[1] / level.shape[0])
        self.inverse.forget()
        expansion = level.with_blur(blur).expand(*at)
        previous, stalled, patience, least, lost = np.inf, 0, PATIENCE, np.inf, False
        while True:
            final, out_of_steps = blur == self.blur, self.n_iter >= self.settings.max_iter
            if last and (final or out_of_steps) and self._certify(expansion, out_of_steps, lost):
                break
            if out_of_steps:
                break
            p = -self.inverse.at(expansion, previous if final else 0.0)(expansion.gradient)
            decrement = -float(expansion.gradient @ p)
            self.n_iter += 1
            if final and not last and decrement <= enough * expansion.value:
                # What more rows need: how much room there is, and the curvature where they begin.
                self.room = expansion.room
                if not expansion.is_cheap:
                    self.inverse.renew(expansion)
                break
            lost = final and last and is_lost(expansion, decrement)
            if lost:
                # F resolves no more, but the dual may still rise.
                stalled = stalled + 1 if self.gap > 0.9 * least else 0
                least = min(least, self.gap)
                if stalled > 5:
                    break
            patience -= 1
            before = expansion
            expansion = _advance(before, p, decrement)
            if not final and (decrement <= CENTRAL * before.blurred or not patience):
                patience = PATIENCE
                blur = max(self.blur, blur / SPEED)
                if blur <= NOTHING * float(np.quantile(expansion.scale, 0.01)):
                    blur = self.blur
                expansion = level.with_blur(blur).expand(expansion.W, expansion.b)
                self.inverse.forget()
                previous = np.inf
            else:
                self.inverse.learn(before, expansion)
                previous = decrement
        return expansion.W, expansion.b

    def _certify(self, expansion: Expansion, thorough: bool, surely: bool) -> bool:
        if self.room is not None and not (thorough or surely or expansion.is_cheap or self.settings.verbose):
            estimate = certify_uncertain(expansion, self.target, room=self.room)
            if estimate.gap > HOPEFUL * self.target:
                return False
        certificate = certify_uncertain(expansion, self.target, thorough=thorough)
        if "room" in expansion.__dict__:
            self.room = expansion.room
        self.dual = max(self.dual, certificate.dual)
        if self.best is None or expansion.value < self.best.value:
            self.best = expansion
        if self.settings.verbose:
            print(
                f"[error bars] iteration {self.n_iter}  objective {expansion.value:.10g}  gap {self.gap:.3e}  "
                f"{time.perf_counter() - self.began:.3f} s"
            )
        return self.gap <= self.target

    @property
    def gap(self) -> float:
        """The proven gap of the best point, at the last blur."""
        return np.inf if self.best is None else max(0.0, self.best.value - self.dual)

    def result(self) -> Result:
        """Return the best point, or the constant classifier where nothing was better."""
        objective, best = self.objective, self.best
        assert best is not None
        W, b = best.W - best.W.mean(axis=0), best.b - best.b.mean()
        # Without the blur; beside noise a million times as large it changes no digit.
        sharp = self.blur <= 1e-6 * float(best.scale.min())
        value = best.value if sharp else objective.expand(W, b).value
        constant, intercepts = objective.constant()
        collapsed = constant <= value
        if collapsed:
            W, b, value = np.zeros_like(W), intercepts, constant
        gap = max(0.0, value - self.dual)
        binary = objective.n_classes == 2
        return Result(
            coef=W[1] - W[0] if binary else W,
            intercept=float(b[1] - b[0]) if binary else b,
            objective=value,
            gap=gap,
            alpha=best.alpha,
            n_iter=self.n_iter,
            converged=gap <= self.target,
            collapsed=collapsed and objective.fit_intercept,
        )


def _advance(expansion: Expansion, p: Array, decrement: float) -> Expansion:
    """Take a Newton step, shortened until F falls."""
    # It falls by half of the decrement in a step that is not too long, and never below 0. Where F hardly bends a step
    # may be longer than numbers are.
    most = min(1.0, 2 * expansion.value / decrement) if decrement > 0 else 1.0

    def part(t: float) -> Expansion:
        with np.errstate(over="ignore", invalid="ignore"):
            return expansion.objective.expand(*expansion.stepped(t * most * p))

    return shortened(expansion, part(1.0), part, most * decrement)
