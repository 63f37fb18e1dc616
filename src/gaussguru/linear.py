"""Linear classifiers for noisy features."""

import copy
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, Self

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from gaussguru.certificates import Certificate, certify_params, collapse_sigma
from gaussguru.losses import Array, Loss, resolve_loss
from gaussguru.multiclass import Multiclass
from gaussguru.noise import Isotropic, Noise, resolve_noise
from gaussguru.objective import NotFiniteError, Objective
from gaussguru.rows import BlockMap, Rows
from gaussguru.solvers import SOLVERS, Solver
from gaussguru.solvers.result import Result
from gaussguru.validation import (
    Samples,
    check_choice,
    check_count,
    check_features,
    check_flag,
    check_jobs,
    check_part,
    check_real,
    check_samples,
    explain_not_finite,
)

# Below, quotients of slacks and noise overflow.
LEAST_SIGMA = 1e-290
# Fewer values than this are read faster by one thread than handed to several.
THREAD_VALUES = 1_000_000


class CollapseWarning(UserWarning):
    """The noise is so strong that ignoring the features is optimal."""


def _has_two_classes(estimator: Any) -> bool:
    """Say whether there is a predict_proba: once fitted, and then with two classes."""
    check_is_fitted(estimator)
    if len(estimator.classes_) > 2:
        raise AttributeError("predict_proba has a closed form for two classes; this estimator was fitted to more")
    return True


def _is_stochastic(estimator: Any) -> bool:
    """Say whether there is a partial_fit."""
    if estimator.solver not in ("sgd", "sgd2"):
        raise AttributeError(f"partial_fit needs solver='sgd' or 'sgd2'; got solver={estimator.solver!r}")
    return True


class GuruClassifier(ClassifierMixin, BaseEstimator):
    """Linear classifier that expects Gaussian noise on its features, solved to a proven optimum.

    Every training point is replaced by a Gaussian cloud whose covariance an adversary chooses, and the expected
    hinge loss is minimised (Ginodi 2010, *Gaussian Robust Classification*, chapter 2)::

        min over w, b   sum_i s_i a f((1 - y_i (w.x_i + b)) / a) + (l2/2) ||w||^2,     a = sigma ||w||

    with ``f(z) = z Phi(z) + phi(z)``, the expected hinge loss of a standard normal slack. The problem is smooth
    and convex. As ``sigma`` goes to 0 it becomes the hinge loss of a support vector machine; as ``sigma`` grows,
    the direction of ``w`` tends to the difference of the class means.

    With more than two classes every sample is compared with every other class (chapter 5, M-GURU)::

        min over W, b   sum_i s_i sum_{k != y_i} a f((1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)) / a)
                        + (l2/2) sum_{c<k} ||w_c - w_k||^2,     a = sigma ||w_{y_i} - w_k||

    of which two classes are the special case ``w = w_1 - w_0``.

    Parameters
    ----------
    sigma : float, default=1.0
        Standard deviation of the noise, in the units of the features.
    noise : {"isotropic"}, default="isotropic"
        What the adversary may do. "isotropic": any covariance of trace at most ``sigma**2``.
    loss : {"gaussian"} or gaussguru.losses.Loss, default="gaussian"
        The function ``f``.
    l2 : float, default=0.0
        Weight of the ridge term. The noise already regularises: 0 is the thesis.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, times ``sample_weight``. "balanced" gives all classes the same total weight.
    solver : {"newton", "sgd", "sgd2"}, default="newton"
        "newton" ends at a proven optimum. "sgd" is the stochastic gradient descent of the thesis, GURU or M-GURU: one
        random sample a step, of length ``eta0/sqrt(t)``. "sgd2" is M-GURU-S2: one random sample and one random class
        (with two classes the same as "sgd"). Their ``dual_gap_`` says how far they came.
    tol : float, default=1e-6
        Stop when the duality gap is at most ``tol`` times the objective at zero (the total weight, times the number of
        other classes). "sgd" and "sgd2" stop when the objective falls by less in an epoch, twice in a row.
    max_iter : int, default=500
        Most iterations of the solver, or epochs of as many steps as there are samples.
    warm_start : bool, default=False
        Start from the coefficients of the previous fit.
    random_state : int, RandomState instance or None, default=None
        Chooses the rows on which the solver warms up when there are many. The optimum does not depend on it;
        None always chooses the same rows.
    n_jobs : int or None, default=None
        Threads for large data: None uses the cores that the process may use, or one inside a joblib worker.
        The result does not depend on it.
    verbose : int, default=0
        1 prints the objective, the duality gap and the time at each iteration.
    eta0 : float or None, default=None
        Length of the first step of "sgd" and "sgd2". None finds it by short trials on some of the samples.
    average : bool, default=False
        Whether "sgd" and "sgd2" return the average of at least the last half of the iterates instead of the last one.

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
        The dual variables ``alpha_i = f'(z_i)``, in [0, 1]: how much sample i pulls (against each other class).
    n_iter_ : int
        Iterations of the solver, or epochs.
    loss_curve_ : list of float
        The objective after each epoch of "sgd" or "sgd2".
    n_updates_ : int
        Their steps so far, over all calls of ``partial_fit``.
    eta0_ : float
        Their rate, given or found.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import GuruClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GuruClassifier(sigma=5.0).fit(X, y)
    >>> clf.dual_gap_ <= 1e-6 * len(y)
    True
    """

    def __init__(
        self,
        sigma: float = 1.0,
        *,
        noise: str = "isotropic",
        loss: str | Loss = "gaussian",
        l2: float = 0.0,
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        solver: str = "newton",
        tol: float = 1e-6,
        max_iter: int = 500,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        eta0: float | None = None,
        average: bool = False,
    ) -> None:
        self.sigma = sigma
        self.noise = noise
        self.loss = loss
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.eta0 = eta0
        self.average = average

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
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

        Returns
        -------
        self
        """
        return self._or_unchanged(self._fit, X, y, sample_weight)

    @available_if(_is_stochastic)  # type: ignore[untyped-decorator]  # scikit-learn's has no types
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one step of "sgd" or "sgd2" on each sample of a part of the data, in random order.

        The steps go on getting shorter from call to call. With ``eta0=None`` the first part decides on the rate, so
        it should not be tiny. ``coef_`` is up to date after each call; :meth:`certificate` tells how good it is on
        any data. A call that raises leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples of this part.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur; needed in the first call.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weights of the samples; within a call they count relative to their mean.

        Returns
        -------
        self
        """
        return self._or_unchanged(self._partial_fit, X, y, classes, sample_weight)

    def _or_unchanged(self, train: Callable[..., Self], *data: Any) -> Self:
        before = self.__dict__.copy()
        try:
            return train(*data)
        except BaseException:
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        model, solvers, settings = self._checked()
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        solver = solvers.make(len(samples.classes), settings)
        start = self._start(samples)
        with block_map(samples.X, self.n_jobs, samples.width) as mapped:
            objective = _objective(samples, mapped, *model)
            try:
                result = solver.solve(objective, start)
            except NotFiniteError:
                raise explain_not_finite(samples.X) from None
            self._warn(result, objective, exact=solvers.exact)  # while there are threads: it may look at the rows
        self._noise = model[1]
        self.classes_ = samples.classes
        self.coef_ = np.atleast_2d(result.coef)
        self.intercept_ = np.atleast_1d(result.intercept)
        self.objective_ = result.objective
        self.dual_gap_ = result.gap
        self.dual_coef_ = result.alpha
        self.n_iter_ = result.n_iter
        for name in ("loss_curve_", "n_updates_", "eta0_", "_descent"):
            self.__dict__.pop(name, None)
        if result.state is not None:
            self.loss_curve_, self.eta0_ = result.loss_curve, result.eta0
            self.n_updates_, self._descent = result.state.steps, result.state
        return self

    def _checked(self) -> tuple[tuple[Loss, Noise, float, bool], Solver, dict[str, Any]]:
        """Return the parameters, checked: the model, the solvers and their settings."""
        sigma = check_real("sigma", self.sigma)
        if sigma < LEAST_SIGMA:
            raise ValueError(f"sigma must be at least {LEAST_SIGMA:g}, or slacks divided by it overflow; got {sigma:g}")
        noise = resolve_noise(self.noise, sigma)
        loss = resolve_loss(self.loss)
        l2 = check_real("l2", self.l2, inclusive=True)
        solvers = SOLVERS[check_choice("solver", self.solver, SOLVERS)]
        verbose = int(self.verbose) if isinstance(self.verbose, bool) else self.verbose
        settings: dict[str, Any] = {
            "tol": check_real("tol", self.tol),
            "max_iter": check_count("max_iter", self.max_iter),
            "verbose": check_count("verbose", verbose, low=0),
            "seed": _seed(self.random_state),
        }
        check_jobs(self.n_jobs)
        check_flag("fit_intercept", self.fit_intercept)
        check_flag("warm_start", self.warm_start)
        check_flag("average", self.average)
        eta0 = None if self.eta0 is None else check_real("eta0", self.eta0)
        if not solvers.exact:
            settings.update(eta0=eta0, average=self.average)
        return (loss, noise, l2, self.fit_intercept), solvers, settings

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Self:
        model, solvers, settings = self._checked()
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all labels at once; give partial_fit a dict of weights")
        state = copy.deepcopy(getattr(self, "_descent", None))
        samples = check_part(
            X, y, sample_weight, self.class_weight, estimator=self, classes=classes, first=state is None
        )
        # The steps are sequential: starting threads for the little else costs more than it saves.
        objective = _objective(samples, map, *model)
        if not np.isfinite(objective.rows.squared_norms).all():
            raise explain_not_finite(samples.X)
        solver = solvers.make(len(samples.classes), settings)
        if state is None:
            self.classes_, self._noise = samples.classes, model[1]
            self.eta0_ = solver.find_rate(objective) if solver.eta0 is None else solver.eta0
            state = solver.begin(objective)
        if self.average:
            state.renew_average()
        rng = np.random.default_rng([settings["seed"], state.steps])
        state.run(objective, rng.permutation(len(samples.labels)), self.eta0_)
        self.coef_ = np.atleast_2d(state.coef)
        self.intercept_ = np.atleast_1d(state.intercept)
        self.n_updates_, self._descent = state.steps, state
        for name in ("objective_", "dual_gap_", "dual_coef_", "n_iter_", "loss_curve_"):
            self.__dict__.pop(name, None)  # of a fit before: no longer true
        return self

    def certificate(self, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
        """Return bounds on the least objective on any data, from the classifier as it is.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; all classes of the estimator must occur.
        sample_weight : array-like of shape (n_samples,) or float, default=None

        Returns
        -------
        Certificate
            ``primal``, the objective of the classifier on this data; ``dual``, a proven lower bound of the least one;
            and ``gap``, their difference.
        """
        check_is_fitted(self)
        model, _, _ = self._checked()
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self, reset=False)
        if not np.array_equal(samples.classes, self.classes_):
            raise ValueError(f"y must have the classes {self.classes_.tolist()!r}; got {samples.classes.tolist()!r}")
        binary = len(self.classes_) == 2
        with block_map(samples.X, self.n_jobs, samples.width) as mapped:
            objective = _objective(samples, mapped, *model)
            params = (self.coef_[0], float(self.intercept_[0])) if binary else (self.coef_, self.intercept_)
            return certify_params(objective, *params)[0]

    def _start(self, samples: Samples) -> tuple[Array, Any] | None:
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        if self.coef_.shape[1] != samples.X.shape[1] or not np.array_equal(self.classes_, samples.classes):
            return None
        intercept = self.intercept_.copy() if self.fit_intercept else np.zeros_like(self.intercept_)
        return (self.coef_[0].copy(), float(intercept[0])) if len(self.coef_) == 1 else (self.coef_.copy(), intercept)

    def _warn(self, result: Result, objective: Objective | Multiclass, *, exact: bool) -> None:
        if result.collapsed and result.converged:
            warnings.warn(_collapse_message(self, objective), CollapseWarning, stacklevel=5)
        elif not result.converged and not exact:
            reason = (
                f"max_iter={self.max_iter} epochs were made: increase it or tol"
                if result.objective <= objective.weight
                else f"it ended above where it began: eta0={result.eta0:g} is too large"
            )
            warnings.warn(f"the descent did not come to rest; {reason}", ConvergenceWarning, stacklevel=5)
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
                stacklevel=5,
            )

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
        X = check_features(X, estimator=self)
        with block_map(X, self.n_jobs, len(self.coef_)) as mapped:
            rows = Rows(X, mapped, len(self.coef_))
            scores: Array = rows.margins(self.coef_[0]) if rows.width == 1 else rows.scores(self.coef_)
        scores += self.intercept_
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every sample.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    @available_if(_has_two_classes)  # type: ignore[untyped-decorator]  # scikit-learn's has no types
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class when the features carry the noise of the model; two classes only.

        ``Phi((w.x + b) / a)`` is the probability that ``x`` plus the worst noise falls on the side of the second
        class; no sampling is involved. A constant classifier is certain.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        scores = self.decision_function(X)
        scale = self._noise.scale(self.coef_[0])
        z = scores / scale if scale > 0 else np.where(scores == 0, 0.0, np.copysign(np.inf, scores))
        return np.column_stack([ndtr(-z), ndtr(z)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def sigma_max(X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return a noise level from which on a classifier with an intercept ignores the features.

    ::

        sigma_max = S_min ||mu_+ - mu_-|| / (S_maj phi(Phi^-1(S_min / S_maj)))

    with the total weights ``S`` and the weighted means ``mu`` of the classes. The true threshold may be lower.
    Classes of equal weight never collapse: the value is infinity. It is the natural top of a grid of sigmas, as
    lambda_max is for the lasso.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    float
    """
    samples = check_samples(X, y, sample_weight)
    if len(samples.classes) > 2:
        raise ValueError(f"sigma_max is known for two classes; y has {len(samples.classes)}")
    objective = Objective(Rows(samples.X), samples.signed_weight, resolve_loss("gaussian"), Isotropic(1.0))
    try:
        return collapse_sigma(objective)
    except NotFiniteError:
        raise explain_not_finite(samples.X) from None


def _objective(
    samples: Samples, mapped: BlockMap, loss: Loss, noise: Noise, l2: float, fit_intercept: bool
) -> Objective | Multiclass:
    """Return the problem: binary, or joint for more classes."""
    n_classes = len(samples.classes)
    if n_classes == 2:
        return Objective(Rows(samples.X, mapped), samples.signed_weight, loss, noise, l2, fit_intercept)
    weights = np.ones(len(samples.labels)) if samples.weights is None else samples.weights
    rows = Rows(samples.X, mapped, samples.width)
    labels = samples.labels.astype(np.int32, copy=False)
    return Multiclass(rows, labels, weights, n_classes, loss, noise, l2, fit_intercept)


class _SingleBlas:
    """Keep BLAS to one thread while anyone is inside; the limit is the process's, so whoever leaves last lifts it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limits = threadpool_limits(1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


SINGLE_BLAS = _SingleBlas()


@contextmanager
def block_map(X: Any, n_jobs: int | None, width: int = 1) -> Iterator[BlockMap]:
    """Yield what maps a function over row blocks: the built-in map, or that of a pool of threads for large X.

    With large X BLAS keeps to one thread: its own would compete for the same cores, and round differently.
    """
    size = getattr(X, "nnz", None) or np.size(X)
    if size * width < THREAD_VALUES:
        yield map
        return
    with SINGLE_BLAS:
        n_threads = _n_threads(n_jobs)
        if n_threads == 1:
            yield map
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield pool.map


def _n_threads(n_jobs: int | None) -> int:
    if n_jobs is not None:
        return int(joblib.effective_n_jobs(n_jobs))
    backend, _ = get_active_backend()
    return 1 if backend.nesting_level else int(joblib.cpu_count())


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _collapse_message(estimator: GuruClassifier, objective: Objective | Multiclass) -> str:
    if isinstance(objective, Multiclass):
        light, heavy = (float(extreme) for extreme in (objective.class_weights.min(), objective.class_weights.max()))
        bound = ""
        coincide = not np.any(objective.means - objective.means[0])
    else:
        light, heavy = sorted(objective.weights)
        coincide = not np.any(objective.pull)
        bound = f" (sigma_max bounds it from above: {estimator.sigma * collapse_sigma(objective):.3g})"
    if coincide:
        return (
            "the weighted means of the classes coincide, so the best classifier ignores the features"
            if estimator.fit_intercept
            else "the weighted sum of y x is zero, so w = 0 is optimal without an intercept and every score is 0"
        )
    return (
        f"sigma={estimator.sigma:g} is so large that the best classifier ignores the features and always predicts "
        f"the class with more weight ({heavy:g} against {light:g}); use class_weight='balanced', a smaller sigma"
        f"{bound}, or fit_intercept=False"
    )
