"""What all estimators of the family share: parameters checked, a problem solved, its warnings, labels predicted."""

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import copy_context
from typing import Any, Self

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gaussguru._kernels._binding import CleanExit
from gaussguru.certificates import collapse_sigma
from gaussguru.losses import Array, Loss, resolve_loss
from gaussguru.multiclass import Multiclass
from gaussguru.noise import Noise, Quadratic
from gaussguru.objective import NotFiniteError, Objective
from gaussguru.rows import BlockMap, Rows
from gaussguru.solvers import SOLVERS, Solver
from gaussguru.solvers.result import Result
from gaussguru.threads import SingleBlas, block_map
from gaussguru.uncertain import Uncertain
from gaussguru.validation import (
    Samples,
    check_choice,
    check_count,
    check_features,
    check_flag,
    check_jobs,
    check_real,
    explain_not_finite,
)

# Below, quotients of slacks and noise overflow.
LEAST_SIGMA = 1e-290
# Up to so many columns BLAS uses one thread by itself.
SMALL = 64
# The noise of features, or directions, that are given without, as a part of the spread of the feature. Without any, the
# loss is a hinge where the others have no weight, and no descent that uses derivatives ends there.
EXACT = 1e-6


class CollapseWarning(UserWarning):
    """The noise is so strong that ignoring the features is optimal."""


def has_two_classes(estimator: Any) -> bool:
    """Say whether there is a predict_proba: once fitted, and then with two classes."""
    check_is_fitted(estimator)
    if len(estimator.classes_) > 2:
        raise AttributeError(
            "predict_proba is for two classes, and this estimator was fitted to more; "
            "gaussguru.robustness.class_probabilities has the probability that noise leaves each class on top, which "
            "need not be highest for the predicted one"
        )
    return True


def winners(scores: Array) -> NDArray[np.intp]:
    """Return which class wins in each row: by the sign of one score for two classes, else that of the best score."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        return (scores.ravel() > 0).astype(np.intp)
    best: NDArray[np.intp] = np.argmax(scores, axis=1)
    return best


class Settings(CleanExit):
    """Settings of scikit-learn in this thread, for a while."""

    def __init__(self, **settings: Any) -> None:
        self._settings, self._before = settings, sklearn.get_config()

    def acquire(self) -> None:
        """Set them."""
        sklearn.set_config(**self._settings)

    def release(self) -> None:
        """Set those of before."""
        sklearn.set_config(**self._before)


class Classifier(ClassifierMixin, BaseEstimator):
    """What every classifier here does alike."""

    def _or_unchanged(self, train: Callable[..., Self], *data: Any) -> Self:
        before = self.__dict__.copy()
        try:
            # What a fit calls changes NumPy's error state, part of the context, and scikit-learn's settings for a
            # while: an interrupt may leave them changed.
            with Settings():
                return copy_context().run(train, *data)
        except BaseException:
            self.__dict__ = before
            raise

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every sample.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        best = winners(self.decision_function(X))  # first: it says so where nothing was fitted
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearScores:
    """The scores of a linear classifier, whatever it was trained for."""

    n_jobs: int | None
    coef_: Array
    intercept_: Array

    def decision_function(self, X: Any) -> Array:
        """Return ``w.x + b`` for every sample: of two classes, positive means the second; of more, one for each.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self._scores(check_features(X, estimator=self))

    def _scores(self, X: Any) -> Array:
        with block_map(X, self.n_jobs, len(self.coef_)) as mapped:
            rows = Rows(X, mapped, len(self.coef_))
            scores: Array = rows.margins(self.coef_[0]) if rows.width == 1 else rows.scores(self.coef_)
        scores += self.intercept_
        return scores


class GuruEstimator(Classifier):
    """The part of an estimator that does not depend on where its features come from."""

    # Whether sigma may be 0, for a problem that something else keeps well posed.
    _may_be_exact = False

    def _checked(self) -> tuple[tuple[Loss, float, bool], Solver, dict[str, Any]]:
        """Return the parameters, checked: the model but for its noise, the solvers and their settings."""
        sigma = check_real("sigma", self.sigma, inclusive=True)
        if sigma == 0 and not self._may_be_exact:
            raise ValueError(f"sigma must be a finite number > 0; got {self.sigma!r}")
        if 0 < sigma < LEAST_SIGMA:
            raise ValueError(f"sigma must be at least {LEAST_SIGMA:g}, or slacks divided by it overflow; got {sigma:g}")
        loss = resolve_loss(self.loss)
        l2 = check_real("l2", self.l2, inclusive=True)
        solvers = SOLVERS[check_choice("solver", self.solver, SOLVERS)]
        verbose = int(self.verbose) if isinstance(self.verbose, bool) else self.verbose
        settings: dict[str, Any] = {
            "tol": check_real("tol", self.tol),
            "max_iter": check_count("max_iter", self.max_iter),
            "verbose": check_count("verbose", verbose, low=0),
            "seed": seed_of(self.random_state),
        }
        check_jobs(self.n_jobs)
        check_flag("fit_intercept", self.fit_intercept)
        check_flag("warm_start", self.warm_start)
        check_flag("average", self.average)
        eta0 = None if self.eta0 is None else check_real("eta0", self.eta0)
        if not solvers.exact:
            settings.update(eta0=eta0, average=self.average)
        return (loss, l2, self.fit_intercept), solvers, settings

    @abstractmethod
    def _resolve_noise(self, samples: Samples) -> Any:
        """Return the noise model, checked against the features, the number of classes and the solver."""

    def _with_noise(self, model: tuple[Loss, float, bool], samples: Samples) -> tuple[Loss, Any, float, bool]:
        """Return the whole model."""
        loss, l2, fit_intercept = model
        return loss, self._resolve_noise(samples), l2, fit_intercept

    def _solve(
        self,
        samples: Samples,
        model: tuple[Loss, Noise, float, bool],
        solvers: Solver,
        settings: dict[str, Any],
        start: tuple[Array, Any] | None = None,
    ) -> Result:
        """Solve the problem on the rows of X, and keep what does not depend on the features."""
        if len(samples.classes) > 2 and solvers.multiclass is None:
            raise ValueError(
                f"solver={self.solver!r} is for two classes; y has {len(samples.classes)}: use solver='newton'"
            )
        solver = solvers.make(len(samples.classes), settings)
        # A noise with kinks takes hundreds of small factors, which threads of BLAS would make slower (measured: twice).
        many_small = not model[1].smooth and samples.X.shape[1] >= SMALL
        with SingleBlas() if many_small else nullcontext(), block_map(samples.X, self.n_jobs, samples.width) as mapped:
            objective = make_objective(samples, mapped, *model)
            try:
                return self._minimise(objective, solver, samples.classes, start, exact=solvers.exact)
            except NotFiniteError:
                raise explain_not_finite(samples.X) from None

    def _minimise(
        self, objective: Any, solver: Any, classes: NDArray[Any], start: tuple[Array, Any] | None, *, exact: bool
    ) -> Result:
        result: Result = solver.solve(objective, start)
        self._warn(result, objective, exact=exact)  # while there are threads: it may look at the rows
        self._adopt(objective, classes, result)
        return result

    def _adopt(self, objective: Any, classes: NDArray[Any], result: Result) -> None:
        """Keep what does not depend on the features."""
        self._noise = objective.noise
        self.classes_ = classes
        self.intercept_ = np.atleast_1d(result.intercept)
        self.objective_ = result.objective
        self.dual_gap_ = result.gap
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        for name in ("loss_curve_", "n_updates_", "eta0_"):
            self.__dict__.pop(name, None)
        if result.state is not None:
            self.loss_curve_, self.eta0_, self.n_updates_ = result.loss_curve, result.eta0, result.state.steps

    def _warn(self, result: Result, objective: Any, *, exact: bool) -> None:
        if result.collapsed and result.converged:
            warnings.warn(_collapse_message(self, objective), CollapseWarning, stacklevel=outside())
        elif not result.converged and not exact:
            reason = (
                f"max_iter={self.max_iter} epochs were made: increase it or tol"
                if result.objective <= objective.weight
                else f"it ended above where it began: eta0={result.eta0:g} is too large"
            )
            warnings.warn(f"the descent did not come to rest; {reason}", ConvergenceWarning, stacklevel=outside())
        elif not result.converged:
            relative = result.gap / objective.weight
            reason = (
                f"max_iter={self.max_iter} was reached: increase it, or centre and scale the features"
                if result.n_iter >= self.max_iter
                else "double precision resolves no more: increase sigma or tol, or centre and scale the features if "
                "sigma is very small against their values"
            )
            warnings.warn(
                f"the solution is proven optimal only to {relative:.1e} of the objective at zero, "
                f"not to tol={self.tol:g}; {reason}",
                ConvergenceWarning,
                stacklevel=outside(),
            )


def make_objective(
    samples: Samples, mapped: BlockMap, loss: Loss, noise: Noise, l2: float, fit_intercept: bool
) -> Objective | Multiclass:
    """Return the problem: binary, or joint for more classes."""
    n_classes = len(samples.classes)
    rows = Rows(samples.X, mapped, samples.width)
    noise = with_floor(noise, rows)
    if n_classes == 2:
        return Objective(rows, samples.signed_weight, loss, noise, l2, fit_intercept)
    assert isinstance(noise, Quadratic)
    labels = samples.labels.astype(np.int32, copy=False)
    return Multiclass(rows, labels, samples.all_weights, n_classes, loss, noise, l2, fit_intercept)


def with_floor(noise: Noise, rows: Rows) -> Noise:
    """Return the noise with a trace of it on features, or in directions, that are given without."""
    return noise.with_floor(lambda: EXACT * _spreads(rows))


def _spreads(rows: Rows) -> Array:
    """Return the standard deviation of every column; of a constant one its size, or 1."""
    (sums, _), squares = rows.moments(np.ones(rows.n_rows))
    with np.errstate(all="ignore"):  # what is not finite the solver will find
        means, squares = sums / rows.n_rows, squares / rows.n_rows
        spreads = np.sqrt(np.maximum(squares - means**2, 1e-12 * squares))
    return np.where((spreads > 0) & np.isfinite(spreads), spreads, 1.0)


def outside() -> int:
    """Return how many frames up from the caller of this function the first one outside the package is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gaussguru."):
        level, frame = level + 1, frame.f_back
    return level


def seed_of(random_state: Any) -> int:
    """Return the seed of a solver: 0 where none is asked for."""
    if random_state is None:
        return 0
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _collapse_message(estimator: Any, objective: Objective | Multiclass | Uncertain) -> str:
    """Return why the features are ignored, and what to do."""
    noise, bound, coincide = f"sigma={estimator.sigma:g} is", "", False
    if isinstance(objective, Objective):
        light, heavy = sorted(objective.weights)
        coincide = not np.any(objective.pull)
        bound = f" (sigma_max bounds it from above: {estimator.sigma * collapse_sigma(objective):.3g})"
    else:
        light, heavy = float(objective.class_weights.min()), float(objective.class_weights.max())
        if isinstance(objective, Multiclass):
            coincide = not np.any(objective.means - objective.means[0])
        else:
            noise = "the error bars are"
    if coincide:
        return (
            "the weighted means of the classes coincide, so the best classifier ignores the features"
            if estimator.fit_intercept
            else "the weighted sum of y x is zero, so w = 0 is optimal without an intercept and every score is 0"
        )
    return (
        f"{noise} so large that the best classifier ignores the features and always predicts the heaviest class "
        f"({heavy:g} against {light:g}); use class_weight='balanced', a smaller sigma{bound}, or fit_intercept=False"
    )
