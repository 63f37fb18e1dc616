"""Support vector machines for samples that may lie anywhere in a ball around the measured values."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import check_is_fitted

from gaussguru._errors.checks import check_errors
from gaussguru._errors.forms import Errors
from gaussguru._errors.missing import Population
from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import FillsGaps, seed_of, warn_unproven
from gaussguru._guru.moved import MovedClassifier
from gaussguru._guru.pose import pose_ball
from gaussguru._guru.probabilities import distance_to_boundary
from gaussguru._guru.problems.ball import Ball, BallPoint
from gaussguru._guru.solvers.newton import Newton
from gaussguru._guru.solvers.result import Result
from gaussguru._rows.validation import check_features, check_samples
from gaussguru._utils.checks import (
    ParameterError,
    check_choice,
    check_count,
    check_optional,
    check_real,
    outside,
)
from gaussguru._utils.linalg import Array


def _check_confidence(name: str, value: Any) -> float:
    """Return a probability between 0.5 and 1."""
    probability = check_real(name, value)
    if not 0.5 < probability < 1:
        raise ParameterError(name, f"must be between 0.5 and 1, without these; got {value!r}")
    return probability


def _check_reach(delta: Any, default: float, n_samples: int) -> Array:
    """Return how far every sample may be moved."""
    if delta is None:
        return np.full(n_samples, default)
    reach = check_array(delta, ensure_2d=False, dtype=np.float64, input_name="delta")
    if reach.shape != (n_samples,):
        raise ValueError(f"delta must have shape ({n_samples},), one radius a sample; got shape {reach.shape}")
    if reach.min() < 0:
        raise ValueError(f"delta must not be negative; got {reach.min():g}")
    return np.asarray(reach)


class _BallClassifier(MovedClassifier):
    """Machines for balls without the solver."""

    _sign = 1.0

    def _radii(self, delta: Any, n_samples: int) -> Array:
        return self._sign * _check_reach(delta, float(self.delta), n_samples)

    def certified_radius(self, X: Any) -> Array:
        """Return how far each sample may be moved, in any direction, before its predicted class changes.

        ``|w.x + b| / ||w||``, or with more than two classes the least distance to the boundary with another one:
        ``min_k ((w_y - w_k).x + b_y - b_k) / ||w_y - w_k||`` for the predicted class y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Infinite where no displacement changes the class.
        """
        return distance_to_boundary(self.decision_function(X), self.coef_)

    def displacements(self, X: Any, y: Any, delta: Any = None) -> Array:
        """Return by how much the model moves each sample with a known label.

        With two classes ``-y delta w / ||w||`` for :class:`AdversarialSVC` and ``+y delta w / ||w||`` for
        :class:`TotalSVC`; with more, along the boundary normal of the rival class with the largest slack.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; all classes of the estimator must occur.
        delta : array-like of shape (n_samples,), default=None
            The radius of every sample; None takes the parameter for all of them.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = check_features(X, estimator=self)
        return self._moved(X, y, self._radii(delta, X.shape[0]))

    def _moved(self, X: Any, y: Any, sets: Array | Errors) -> Array:
        """Return the displacement of every sample within its set."""
        samples = check_samples(X, y)
        if not np.array_equal(samples.classes, self.classes_):
            raise ValueError(f"y must have the classes {self.classes_.tolist()!r}; got {samples.classes.tolist()!r}")
        posed = pose_ball(samples, sets, 1.0, True, rescaled=False)
        problem = posed.problem
        coef, intercept = self.coef_, self.intercept_
        if len(coef) == 1:
            coef, intercept = np.vstack([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
        moved = problem.displacements(problem.point(problem.unknowns(coef, intercept)))
        return np.asarray(moved if posed.places is None else moved[np.argsort(posed.places)])

    def _alternate(self, problem: Ball, W: Array) -> Iterator[tuple[BallPoint, Result, float]]:
        """Yield one support vector machine after another, each on the samples as displaced for the one before."""
        # Each to a hundredth of the tolerance, in at most 500 steps.
        inner = Newton(0.01 * self.tol, 500, 0, seed_of(self.random_state))
        units, start = problem.lengths(W)[0], None
        for n_iter in range(1, self.max_iter + 1):
            result = inner.solve(replace(problem, directions=units), start)
            start = result.coef, result.intercept
            point = problem.point(problem.unknowns(*start))
            if self.verbose:
                print(f"[alternating] iteration {n_iter}  objective {point.value:.10g}")
            yield point, result._replace(objective=point.value, n_iter=n_iter), result.objective - result.gap
            units = problem.lengths(point.W)[0]


class AdversarialSVC(FillsGaps, _BallClassifier):
    """Support vector machine robust to displacements of up to ``delta``, solved to a proven optimum.

    Every training sample is replaced by the worst point of a ball around it (Ginodi 2010, *Gaussian Robust
    Classification*, appendix A, ASVC). With labels ``y = +-1``::

        min over w, b   (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) + delta ||w||)

    The worst displacement is ``-y_i delta w / ||w||``. With ``delta = 0`` it is the ordinary support vector machine
    (whose ``C`` is ``1/lam``), and for any ``delta`` its direction is that of an ordinary one with a larger ``lam``.
    With more than two classes::

        min over W, b   (lam/2) sum_c ||w_c||^2
                        + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)
                                                          + delta ||w_{y_i} - w_k||)

    With ``delta = 0`` this is the support vector machine of Crammer and Singer. (For two classes its ridge term is half
    of that above.) Intercepts are not penalised, unlike those of LinearSVC.

    With ``X_err`` the samples lie in ellipsoids: ``delta ||u||`` is replaced by ``delta sqrt(u' Sigma_i u)`` with the
    covariance ``Sigma_i`` of the error bars of the sample, so ``delta`` is a number of standard deviations. With
    ``confidence = p`` it is ``Phi^-1(p)``: then the loss of a sample is an upper bound of its hinge loss that holds
    with probability p under Gaussian noise of these error bars (Shivaswamy, Bhattacharyya and Smola 2006).

    There is no ``predict_proba``, because displacements are chosen and not random. Use
    :class:`gaussguru.calibration.CalibratedWithErrorsCV` for probabilities.

    Parameters
    ----------
    delta : float or None, default=None
        Largest displacement of a sample, in the units of the features, or in standard deviations with ``X_err``. None
        is 0.1, or with ``confidence`` its quantile.
    lam : float, default=1.0
        Weight of the ridge term.
    confidence : float or None, default=None
        The probability, between 0.5 and 1, whose standard normal quantile is ``delta``. It needs ``X_err``.
    solver : {"exact", "alternating"}, default="exact"
        "exact" reaches a proven optimum. "alternating" is the algorithm of the thesis (with the missing sign ``y_i``):
        displace the samples, train a support vector machine, and repeat. If it converges, the result is optimal; but it
        may cycle. Then it warns, and returns the best classifier found with its duality gap. It is for balls only.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``. "balanced" gives all classes the same total weight.
    tol : float, default=1e-6
        Stop when the duality gap is at most ``tol`` times the objective at zero, the total weight.
    max_iter : int, default=500
        Maximum number of Newton steps of "exact", or of support vector machines of "alternating".
    random_state : int, RandomState instance or None, default=None
        Seed for the subsamples on which the solver warms up. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads for large data. None uses all cores available to the process, or one inside a joblib worker.
    verbose : int, default=0
        1 prints the objective at each iteration.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The weights ``w``. With more than two classes, the rows add up to zero.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept ``b``.
    classes_ : ndarray of shape (n_classes,)
        The classes. With two, ``y = +1`` is the second.
    objective_ : float
        The objective at the solution.
    dual_gap_ : float
        A proven bound on how far ``objective_`` is above the minimum.
    converged_ : bool
        Whether the stopping rule was met.
    alpha_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The dual variables, in [0, 1]: the influence of each sample (against each other class).
    n_iter_ : int
        Number of Newton steps, or of support vector machines of "alternating".
    loss_curve_ : list of float
        The objective of each classifier of "alternating".
    cycle_ : int
        Length of the cycle of "alternating"; 0 if it did not cycle.
    population_ : gaussguru.errors.Population or None
        The Gaussian from which values that were not measured are filled; None without ``X_err``.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gaussguru import AdversarialSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AdversarialSVC(delta=0.2).fit(X, y)
    >>> clf.dual_gap_ <= 1e-6 * len(y)
    True
    >>> float((clf.certified_radius(X) >= 0.2).mean().round(2))
    0.93

    Error bars, of which each sample is to be right with probability 0.9:

    >>> clf = AdversarialSVC(confidence=0.9).fit(X, y, X_err=0.1)
    >>> clf.dual_gap_ <= 1e-6 * len(y)
    True
    """

    __metadata_request__fit: ClassVar = {"X_err": True}
    population_: Population | None

    def __init__(
        self,
        delta: float | None = None,
        *,
        lam: float = 1.0,
        confidence: float | None = None,
        solver: str = "exact",
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-6,
        max_iter: int = 500,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.delta = delta
        self.lam = lam
        self.confidence = confidence
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "delta": partial(check_optional, check=partial(check_real, inclusive=True)),
        **MovedClassifier._checks,
        "confidence": partial(check_optional, check=_check_confidence),
        "solver": partial(check_choice, known=("exact", "alternating")),
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, delta: Any = None, X_err: Any = None) -> Self:
        """Fit the model.

        A fit that raises, or that is interrupted, leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
            The samples. C-contiguous float32 or float64, and canonical CSR, are not copied.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 2 is a sample that occurs twice, 0 one that does not occur.
        delta : array-like of shape (n_samples,), default=None
            The radius of every sample; None takes the parameter for all of them. Without ``X_err`` only.
        X_err : default=None
            Error bars, in any form that ``fit`` of :class:`GuruClassifier` takes: samples lie in ellipsoids. Values
            that were not measured (infinite error, or NaN in X) are replaced as there, and their ellipsoids are those
            of what is expected.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight, delta, X_err)

    def _fit(self, X: Any, y: Any, sample_weight: Any, delta: Any, X_err: Any) -> Self:
        self._check_parameters()
        X, X_err = split_errors(X, X_err)
        self._check_combination(delta, X_err)
        X, X_err, population = self._prepared(X, X_err, sample_weight)
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        if X_err is None:
            self._train(samples, lambda _: self._radii(delta, len(samples.labels)))
        else:
            assert_all_finite(samples.X, input_name="X")
            self._train(samples, lambda mapped: check_errors(X_err, samples.X, mapped).scaled(self._level))
        self.population_ = population
        return self

    def _check_combination(self, delta: Any, X_err: Any) -> None:
        """Raise if parameters do not go together."""
        if self.confidence is not None and self.delta is not None:
            raise ValueError(
                f"give delta or confidence, which sets delta; got delta={self.delta!r}, confidence={self.confidence!r}"
            )
        if X_err is None:
            if self.confidence is not None:
                raise ValueError(
                    f"confidence={self.confidence!r} needs X_err, the error bars of X; use delta for balls"
                )
            return
        if delta is not None:
            raise ValueError("give delta or X_err to fit; with X_err, multiply the errors of every sample by its delta")
        if self.solver == "alternating":
            raise ValueError("solver='alternating' moves samples within balls; use solver='exact' with X_err")

    @property
    def _level(self) -> float:
        """The radius of balls, or the number of standard deviations of ellipsoids."""
        if self.confidence is not None:
            return float(norm.ppf(self.confidence))
        return 0.1 if self.delta is None else float(self.delta)

    def _radii(self, delta: Any, n_samples: int) -> Array:
        return _check_reach(delta, self._level, n_samples)

    def displacements(self, X: Any, y: Any, delta: Any = None, X_err: Any = None) -> Array:
        """Return by how much the model moves each sample with a known label.

        With two classes ``-y delta w / ||w||``, or ``-y delta Sigma_i w / sqrt(w' Sigma_i w)`` with ``X_err``; with
        more, with ``w_y - w_k`` of the rival class with the largest slack in place of ``y w``.

        Parameters
        ----------
        X : array-like, sparse matrix or Measured of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; all classes of the estimator must occur.
        delta : array-like of shape (n_samples,), default=None
            The radius of every sample, for balls; None takes the parameter for all of them.
        X_err : default=None
            The error bars of X, for ellipsoids; a classifier that was fitted with error bars needs them, or ``delta``.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        X, X_err = self._measured(X, X_err)
        if X_err is not None:
            self._check_combination(delta, X_err)
            return self._moved(X, y, check_errors(X_err, X).scaled(self._level))
        if delta is None and (getattr(self, "population_", None) is not None or self.confidence is not None):
            raise ValueError(
                "X_err is missing: this classifier was fitted with error bars, so displacements need those of X, or "
                "delta, the radius of a ball around every sample"
            )
        return self._moved(X, y, self._radii(delta, X.shape[0]))

    def _solve(self, problem: Ball) -> Result:
        if self.solver == "alternating":
            return self._alternating(problem)
        given = f"delta={self._level:g}" if self.confidence is None else f"confidence={self.confidence:g}"
        return self._exact(problem, given)

    def _alternating(self, problem: Ball) -> Result:
        target, dual = self.tol * problem.weight, 0.0
        best: Result | None = None
        curve: list[float] = []
        path: list[Array] = []
        cycle = 0
        for point, result, bound in self._alternate(problem, np.zeros((problem.n_classes, problem.rows.n_columns))):
            # A fixed displacement is one that the adversary might choose: its optimum is below that of the problem.
            dual = max(dual, bound)
            curve.append(result.objective)
            if best is None or result.objective < best.objective:
                best = result
            gap = max(0.0, best.objective - dual)
            best = best._replace(gap=gap, n_iter=result.n_iter, status="converged" if gap <= target else "max_iter")
            if best.converged:
                break
            step = float(np.abs(point.x - path[-1]).max()) if path else 0.0
            # It cycles when it comes back to where it was to within this fraction of its last step, and to a loss that
            # it had to within this fraction of the largest.
            returned = 1e-3
            returns = (
                float(np.abs(point.x - earlier).max()) <= returned * step
                and abs(result.objective - loss) <= returned * max(curve)
                for earlier, loss in zip(reversed(path[:-1]), reversed(curve[:-2]), strict=True)
            )
            cycle = next((period for period, back in enumerate(returns, start=2) if back), 0)
            if cycle:
                break
            path.append(point.x)
        assert best is not None
        best = best._replace(loss_curve=curve, state=cycle, collapsed=False)
        if not best.converged:
            reason = f"the alternation goes in a circle of {cycle}" if cycle else None
            advice = {"max_iter": {"solver='exact'": "use {}"}}
            warn_unproven(best, problem, self.tol, self.max_iter, advice, reason)
        return best

    def _keep(self, result: Result) -> None:
        super()._keep(result)
        if self.solver == "alternating":
            self.loss_curve_, self.cycle_ = result.loss_curve, result.state


class TotalSVC(_BallClassifier):
    """Support vector machine in which every sample may move by ``delta`` in its own favour.

    Total support vector classification (Bi and Zhang 2004), the mirror image of :class:`AdversarialSVC`::

        min over w, b   (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) - delta_i ||w||)

    A sample moves by ``+y_i delta_i w / ||w||``, so noisy samples near the boundary have less influence. The problem is
    not convex. As in the paper, two steps alternate: train a support vector machine, and displace the samples. Neither
    raises the objective. The result is a local optimum that may depend on the start; ``n_init`` tries several starts
    and keeps the best.

    With more than two classes::

        min over W, b   (lam/2) sum_c ||w_c||^2
                        + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)
                                                          - delta_i ||w_{y_i} - w_k||)

    Here each comparison with another class has its own displacement, so the loss is a lower bound on the loss with one
    displacement for all comparisons. The algorithm is the same, and does not raise the objective either. As with
    :class:`AdversarialSVC` there is no ``predict_proba``.

    Parameters
    ----------
    delta : float, default=0.1
        Largest displacement of a sample, in the units of the features. ``fit`` can take one per sample.
    lam : float, default=1.0
        Weight of the ridge term.
    n_init : int, default=1
        Number of starts: the first with the samples as they are, the others with random displacements.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``. "balanced" gives all classes the same total weight.
    tol : float, default=1e-6
        Stop when the objective falls by at most ``tol`` times its value at zero, the total weight.
    max_iter : int, default=100
        Maximum number of support vector machines per start.
    random_state : int, RandomState instance or None, default=None
        Seed for the random displacements and for the subsamples on which the solver warms up. None is a fixed seed.
    n_jobs : int or None, default=None
        Number of threads for large data. None uses all cores available to the process, or one inside a joblib worker.
    verbose : int, default=0
        1 prints the objective at each iteration.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The weights ``w``. With more than two classes, the rows add up to zero.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept ``b``.
    classes_ : ndarray of shape (n_classes,)
        The classes. With two, ``y = +1`` is the second.
    objective_ : float
        The objective at the solution, a local minimum.
    loss_curve_ : list of float
        The objective of each support vector machine of the best start. It never rises.
    converged_ : bool
        Whether the stopping rule was met.
    alpha_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The dual variables of the last support vector machine, in [0, 1].
    n_iter_ : int
        Number of support vector machines of the best start.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gaussguru import TotalSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = TotalSVC(delta=0.2).fit(X, y)
    >>> clf.loss_curve_ == sorted(clf.loss_curve_, reverse=True)
    True
    """

    _sign = -1.0

    def __init__(
        self,
        delta: float = 0.1,
        *,
        lam: float = 1.0,
        n_init: int = 1,
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.delta = delta
        self.lam = lam
        self.n_init = n_init
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "delta": partial(check_real, inclusive=True),
        **MovedClassifier._checks,
        "n_init": check_count,
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, delta: Any = None) -> Self:
        """Fit the model.

        A fit that raises, or that is interrupted, leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples. C-contiguous float32 or float64, and canonical CSR, are not copied.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples: weight 2 is a sample that occurs twice, 0 one that does not occur.
        delta : array-like of shape (n_samples,), default=None
            The radius of every sample; None takes the parameter for all of them.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight, delta)

    def _fit(self, X: Any, y: Any, sample_weight: Any, delta: Any) -> Self:
        self._check_parameters()
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        return self._train(samples, lambda _: self._radii(delta, len(samples.labels)))

    def _solve(self, problem: Ball) -> Result:
        rng = np.random.default_rng(seed_of(self.random_state))
        shape = problem.n_classes, problem.rows.n_columns
        starts = [np.zeros(shape), *(rng.standard_normal(shape) for _ in range(1, self.n_init))]
        result = min((self._descend(problem, W) for W in starts), key=lambda result: result.objective)
        if not result.converged:
            warnings.warn(
                f"the objective still falls by more than tol={self.tol:g} of its value at zero; "
                f"max_iter={self.max_iter} was reached: increase it or tol",
                ConvergenceWarning,
                stacklevel=outside(),
            )
        return result

    def _descend(self, problem: Ball, W: Array) -> Result:
        best: Result | None = None
        curve: list[float] = []
        for _, result, _ in self._alternate(problem, W):
            fall = np.inf if best is None else best.objective - result.objective
            if fall >= 0:
                curve.append(result.objective)
                best = result
            assert best is not None
            rests = fall <= self.tol * problem.weight
            best = best._replace(n_iter=result.n_iter, loss_curve=curve, status="converged" if rests else "max_iter")
            if rests:
                break
        assert best is not None
        return best

    def _keep(self, result: Result) -> None:
        self.loss_curve_ = result.loss_curve
