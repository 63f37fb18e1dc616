"""Support vector machines for samples that an adversary may move within sets: what they share."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from gaussguru._errors.forms import Errors
from gaussguru._guru.base import SCALE, Classifier, CollapseWarning, LinearScores, seed_of, warn_unproven
from gaussguru._guru.pose import pose_ball
from gaussguru._guru.problems.ball import Ball
from gaussguru._guru.problems.sets import Sets
from gaussguru._guru.solvers.newton import Newton
from gaussguru._guru.solvers.result import Result
from gaussguru._rows.rows import NotFiniteError, check_squares
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, explain_not_finite
from gaussguru._utils.checks import check_count, check_flag, check_jobs, check_real, check_verbose, outside
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import BlockMap


class MovedClassifier(LinearScores, Classifier):
    """A machine for samples that an adversary moves within sets, without the sets and the solver."""

    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "lam": check_real,
        "fit_intercept": check_flag,
        "tol": check_real,
        "max_iter": check_count,
        "n_jobs": check_jobs,
        "verbose": check_verbose,
    }

    def _check_parameters(self) -> None:
        for name, check in self._checks.items():
            check(name, getattr(self, name))

    def _train(self, samples: Samples, sets: Callable[[BlockMap], Array | Errors | Sets]) -> Self:
        """Fit samples that may be moved within sets; these are made by the map over blocks."""
        # The threads of BLAS would wait for each other longer than its small matrices take.
        with block_map(samples.X, self.n_jobs, len(samples.classes), single_blas=True) as mapped:
            posed = pose_ball(samples, sets(mapped), float(self.lam), self.fit_intercept, mapped)
            # Between these a ridge in the units of the solver is a number to compute with.
            if not 1e-300 < posed.problem.ridge < 1e300:
                raise ValueError(
                    f"lam={self.lam:g} overflows or underflows beside X, whose values are about {1 / posed.x:.1g}; "
                    "rescale X and the displacements together, and lam with their square"
                )
            try:
                check_squares(posed.problem.rows.column_squares)
                solution = self._solve(posed.problem)
            except NotFiniteError:
                raise explain_not_finite(samples.X) from None
        result, binary = posed.result(solution), len(samples.classes) == 2
        self.classes_ = samples.classes
        self.coef_ = result.coef[1:] - result.coef[:1] if binary else result.coef
        intercept, alpha = np.asarray(result.intercept), np.asarray(result.alpha)  # rows are in memory
        self.intercept_ = intercept[1:] - intercept[:1] if binary else intercept
        self.objective_ = result.objective
        self.alpha_ = alpha.sum(axis=1) if binary else alpha
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        for name in ("loss_curve_", "cycle_"):
            self.__dict__.pop(name, None)
        self._keep(result)
        return self

    @abstractmethod
    def _solve(self, problem: Ball) -> Result:
        """Return a solution of the problem."""

    def _exact(self, problem: Ball, cause: str) -> Result:
        """Return the proven optimum; ``cause`` says which parameter is too large if the classifier collapses."""
        result = Newton(self.tol, self.max_iter, int(self.verbose), seed_of(self.random_state)).solve(problem)
        if result.collapsed and result.converged:
            warnings.warn(
                f"{cause if problem.longest > 0 else f'lam={self.lam:g}'} is so large that the best classifier ignores "
                "the features; use a smaller one"
                f"{', or class_weight=' + repr('balanced') if self.fit_intercept else ''}",
                CollapseWarning,
                stacklevel=outside(),
            )
        elif not result.converged:
            advice = {
                "max_iter": {"max_iter": "increase {}", "lam": "{}", "": SCALE},
                "precision": {"tol": "increase {}", "lam": "{}", "": SCALE},
            }
            warn_unproven(result, problem, self.tol, self.max_iter, advice)
        return result

    def _keep(self, result: Result) -> None:
        self.dual_gap_ = result.gap

    @property
    def dual_coef_(self) -> Array:
        """The dual variables, an alias of ``alpha_``."""
        return np.asarray(self.alpha_)
