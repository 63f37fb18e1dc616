"""Support vector machines for samples that may lie anywhere in a ball around what was measured."""

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from gaussguru.estimator import Classifier, CollapseWarning, LinearScores, outside, seed_of
from gaussguru.losses import Array
from gaussguru.objective import NotFiniteError
from gaussguru.orthant import distance_to_boundary
from gaussguru.rows import BlockMap, Rows
from gaussguru.solvers.cone import Cone, ConeNewton
from gaussguru.solvers.result import Result
from gaussguru.threads import SingleBlas, block_map
from gaussguru.validation import (
    Samples,
    check_choice,
    check_count,
    check_features,
    check_flag,
    check_jobs,
    check_real,
    check_samples,
    explain_not_finite,
)

# An alternation solves its support vector machines to this part of the tolerance.
INNER = 0.01
# It cycles when it comes back to where it was to within this part of its last step.
RETURNED = 1e-3


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


class _BallClassifier(LinearScores, Classifier):
    """What both machines share: everything but the problem and its solver."""

    _sign = 1.0

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
        radius = check_real("delta", self.delta, inclusive=True)
        lam = check_real("lam", self.lam)
        check_flag("fit_intercept", self.fit_intercept)
        check_jobs(self.n_jobs)
        settings: dict[str, Any] = {
            "tol": check_real("tol", self.tol),
            "max_iter": check_count("max_iter", self.max_iter),
            "verbose": check_count("verbose", int(self.verbose), low=0),
        }
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        reach = _check_reach(delta, radius, len(samples.labels))
        # The threads of BLAS would wait for each other longer than its small matrices take.
        with SingleBlas(), block_map(samples.X, self.n_jobs, len(samples.classes)) as mapped:
            problem = _problem(samples, mapped, self._sign * reach, lam, self.fit_intercept)
            try:
                result = self._solve(problem, settings)
            except NotFiniteError:
                raise explain_not_finite(samples.X) from None
        binary = len(samples.classes) == 2
        self.classes_ = samples.classes
        self.coef_ = result.coef[1:] - result.coef[:1] if binary else result.coef
        self.intercept_ = result.intercept[1:] - result.intercept[:1] if binary else result.intercept
        self.objective_ = result.objective
        self.dual_coef_ = result.alpha.sum(axis=1) if binary else result.alpha
        self.n_iter_ = result.n_iter
        self._keep(result)
        return self

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
        samples = check_samples(X, y)
        if not np.array_equal(samples.classes, self.classes_):
            raise ValueError(f"y must have the classes {self.classes_.tolist()!r}; got {samples.classes.tolist()!r}")
        reach = _check_reach(delta, float(self.delta), len(samples.labels))
        problem = _problem(samples, map, self._sign * reach, 1.0, True)
        params = np.column_stack([self.coef_, self.intercept_])
        if len(params) == 1:
            params = np.vstack([-0.5 * params, 0.5 * params])
        units, lengths = problem.lengths(params)
        slacks = problem.slacks(0, len(reach), problem.scores(params), lengths)
        slacks[problem.labels, np.arange(len(reach))] = -np.inf
        rival = slacks.argmax(axis=0)
        return np.asarray(-problem.reach[:, np.newaxis] * units[problem.labels, rival])

    def _alternate(self, problem: Cone, settings: dict[str, Any], units: Array) -> Any:
        """Yield one support vector machine after another, each on the samples as displaced for the one before."""
        inner = ConeNewton(INNER * settings["tol"], seed=seed_of(self.random_state))
        params = None
        for n_iter in range(1, settings["max_iter"] + 1):
            result = inner.solve(replace(problem, directions=units), params)
            params = np.column_stack([result.coef, result.intercept])
            value = problem.value(params)
            if settings["verbose"]:
                print(f"[alternating] iteration {n_iter}  objective {value:.10g}")
            yield params, replace(result, objective=value, n_iter=n_iter), result.objective - result.gap
            units = problem.lengths(params)[0]


class AdversarialSVC(_BallClassifier):
    """Support vector machine against an adversary who may move every sample by ``delta``, solved to a proven optimum.

    Every training sample is replaced by the worst point of a ball around it (Ginodi 2010, *Gaussian Robust
    Classification*, appendix A, ASVC). With labels ``y = +-1``::

        min over w, b   (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) + delta ||w||)

    The worst displacement is ``-y_i delta w / ||w||``. With ``delta = 0`` it is the ordinary support vector machine
    (whose ``C`` is ``1/lam``), and for any ``delta`` its direction is that of an ordinary one with a larger ``lam``.
    With more than two classes::

        min over W, b   (lam/2) sum_c ||w_c||^2
                        + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)
                                                          + delta ||w_{y_i} - w_k||)

    which with ``delta = 0`` is the machine of Crammer and Singer. (Its ridge counts two classes half: there ``lam``
    stands for ``lam/2`` of the formula above.) The intercepts are not penalised, unlike those of LinearSVC.

    Parameters
    ----------
    delta : float, default=0.1
        How far the adversary may move a sample, in the units of the features.
    lam : float, default=1.0
        Weight of the ridge term.
    solver : {"exact", "alternating"}, default="exact"
        "exact" ends at a proven optimum. "alternating" is the algorithm of the thesis (with the missing sign ``y_i``):
        displace the samples, train a support vector machine, and so on. Where this comes to rest it is at the optimum,
        but it may go in circles; then it warns, and returns the best of its classifiers with its duality gap.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, times ``sample_weight``. "balanced" gives all classes the same total weight.
    tol : float, default=1e-6
        Stop when the duality gap is at most ``tol`` times the objective at zero, the total weight.
    max_iter : int, default=500
        Most Newton steps of "exact", or support vector machines of "alternating".
    random_state : int, RandomState instance or None, default=None
        Chooses the rows on which the solver warms up when there are many; None always chooses the same.
    n_jobs : int or None, default=None
        Threads for large data: None uses the cores that the process may use, or one inside a joblib worker.
    verbose : int, default=0
        1 prints the objective at each iteration.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The weights ``w``; of more than two classes they add up to zero.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept ``b``.
    classes_ : ndarray of shape (n_classes,)
        The classes; of two, ``y = +1`` stands for the second.
    objective_ : float
        The objective at the solution.
    dual_gap_ : float
        A proven bound on how far ``objective_`` is above the minimum.
    dual_coef_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The dual variables, in [0, 1]: how much each sample pulls (against each other class).
    n_iter_ : int
        Newton steps, or support vector machines of "alternating".
    loss_curve_ : list of float
        The objective of each classifier of "alternating".
    cycle_ : int
        After how many steps "alternating" came back to where it had been; 0 where it did not.
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
    """

    def __init__(
        self,
        delta: float = 0.1,
        *,
        lam: float = 1.0,
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
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _solve(self, problem: Cone, settings: dict[str, Any]) -> Result:
        check_choice("solver", self.solver, ("exact", "alternating"))
        for name in ("loss_curve_", "cycle_"):
            self.__dict__.pop(name, None)
        if self.solver == "alternating":
            return self._alternating(problem, settings)
        result = ConeNewton(**settings, seed=seed_of(self.random_state)).solve(problem)
        if result.collapsed and result.converged:
            warnings.warn(
                f"delta={self.delta:g} is so large that the best classifier ignores the features; use a smaller delta"
                f"{', class_weight=' + repr('balanced') if self.fit_intercept else ''}",
                CollapseWarning,
                stacklevel=outside(),
            )
        elif not result.converged:
            reason = (
                f"max_iter={self.max_iter} was reached: increase it, lam, or centre and scale the features"
                if result.n_iter >= self.max_iter
                else "double precision resolves no more: increase tol or lam, or centre and scale the features"
            )
            self._warn(problem, result, reason)
        return result

    def _alternating(self, problem: Cone, settings: dict[str, Any]) -> Result:
        target = settings["tol"] * problem.weight
        best: Result | None = None
        dual = 0.0
        path: list[Array] = []
        self.loss_curve_, self.cycle_ = [], 0
        units = np.zeros((problem.n_classes, problem.n_classes, problem.rows.n_columns))
        for params, result, bound in self._alternate(problem, settings, units):
            # A fixed displacement is one that the adversary might choose: its optimum is below that of the problem.
            dual = max(dual, bound)
            self.loss_curve_.append(result.objective)
            if best is None or result.objective < best.objective:
                best = result
            gap = max(0.0, best.objective - dual)
            best = replace(best, gap=gap, n_iter=result.n_iter, converged=gap <= target)
            if best.converged:
                break
            step = float(np.abs(params - path[-1]).max()) if path else 0.0
            returns = (float(np.abs(params - earlier).max()) <= RETURNED * step for earlier in reversed(path[:-1]))
            self.cycle_ = next((period for period, back in enumerate(returns, start=2) if back), 0)
            if self.cycle_:
                break
            path.append(params)
        assert best is not None
        if self.cycle_:
            self._warn(problem, best, f"the alternation goes in a circle of {self.cycle_}: use solver='exact'")
        elif not best.converged:
            self._warn(problem, best, f"max_iter={self.max_iter} was reached: increase it, or use solver='exact'")
        return best

    def _warn(self, problem: Cone, result: Result, reason: str) -> None:
        warnings.warn(
            f"the solution is proven optimal only to {result.gap / problem.weight:.1e} of the objective at zero, "
            f"not to tol={self.tol:g}; {reason}",
            ConvergenceWarning,
            stacklevel=outside(),
        )

    def _keep(self, result: Result) -> None:
        self.dual_gap_ = result.gap


class TotalSVC(_BallClassifier):
    """Support vector machine that gives every sample the benefit of the doubt: it may move by ``delta`` to fit better.

    Total support vector classification (Bi and Zhang 2004), the mirror image of :class:`AdversarialSVC`::

        min over w, b   (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) - delta_i ||w||)

    in which a sample moves by ``+y_i delta_i w / ||w||``, so that noisy samples near the boundary distract the
    classifier less. The problem is not convex. As in the paper, it is solved by turns: train a support vector machine,
    displace the samples, and so on. Neither turn can raise the objective, and what is found is a local optimum; it may
    depend on where it began. ``n_init`` begins several times and keeps the best.

    With more than two classes::

        min over W, b   (lam/2) sum_c ||w_c||^2
                        + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)
                                                          - delta_i ||w_{y_i} - w_k||)

    Here each comparison with another class has a displacement of its own, so that the loss is a lower bound of that
    after one displacement for all of them; the turns go on as with two classes, and never raise it either.

    Parameters
    ----------
    delta : float, default=0.1
        How far a sample may be moved, in the units of the features; ``fit`` takes one for each sample.
    lam : float, default=1.0
        Weight of the ridge term.
    n_init : int, default=1
        How often to begin: first from the samples as they are, then with displacements in random directions.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, times ``sample_weight``. "balanced" gives all classes the same total weight.
    tol : float, default=1e-6
        Stop when the objective falls by at most ``tol`` times its value at zero, the total weight.
    max_iter : int, default=100
        Most support vector machines of one beginning.
    random_state : int, RandomState instance or None, default=None
        Chooses the random directions, and the rows on which the solver warms up when there are many; None always
        chooses the same.
    n_jobs : int or None, default=None
        Threads for large data: None uses the cores that the process may use, or one inside a joblib worker.
    verbose : int, default=0
        1 prints the objective at each iteration.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The weights ``w``; of more than two classes they add up to zero.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept ``b``.
    classes_ : ndarray of shape (n_classes,)
        The classes; of two, ``y = +1`` stands for the second.
    objective_ : float
        The objective at the solution, a local minimum.
    loss_curve_ : list of float
        The objective of each support vector machine of the best beginning: it never rises.
    dual_coef_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The dual variables of the last support vector machine, in [0, 1].
    n_iter_ : int
        Support vector machines of the best beginning.
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

    def _solve(self, problem: Cone, settings: dict[str, Any]) -> Result:
        n_init = check_count("n_init", self.n_init)
        rng = np.random.default_rng(seed_of(self.random_state))
        starts = [self._descend(problem, settings, np.zeros((problem.n_classes, problem.rows.n_columns + 1)))]
        for _ in range(1, n_init):
            params = rng.standard_normal((problem.n_classes, problem.rows.n_columns + 1))
            starts.append(self._descend(problem, settings, params))
        result = min(starts, key=lambda result: result.objective)
        if not result.converged:
            warnings.warn(
                f"the objective still falls by more than tol={self.tol:g} of its value at zero; "
                f"max_iter={self.max_iter} was reached: increase it or tol",
                ConvergenceWarning,
                stacklevel=outside(),
            )
        return result

    def _descend(self, problem: Cone, settings: dict[str, Any], params: Array) -> Result:
        best: Result | None = None
        curve: list[float] = []
        for _, result, _ in self._alternate(problem, settings, problem.lengths(params)[0]):
            fall = np.inf if best is None else best.objective - result.objective
            if fall >= 0:
                curve.append(result.objective)
                best = result
            assert best is not None
            best = replace(best, n_iter=result.n_iter, loss_curve=curve)
            if fall <= settings["tol"] * problem.weight:
                return replace(best, converged=True)
        assert best is not None
        return replace(best, converged=False)

    def _keep(self, result: Result) -> None:
        self.loss_curve_ = result.loss_curve


def _problem(samples: Samples, mapped: BlockMap, reach: Array, lam: float, fit_intercept: bool) -> Cone:
    n_classes = len(samples.classes)
    rows = Rows(samples.X, mapped, n_classes)
    labels = samples.labels.astype(np.int32, copy=False)
    ridge = 2 * lam if n_classes == 2 else lam  # ||w_1 - w_0||^2 is twice the sum of squares
    return Cone(rows, labels, samples.all_weights, reach, n_classes, ridge, fit_intercept)
