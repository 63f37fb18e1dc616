"""Solutions along a path of noise levels."""

import math
import numbers
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from gaussguru._errors.samples import split_errors
from gaussguru._guru.base import SCALE, advised
from gaussguru._guru.linear import GuruClassifier
from gaussguru._guru.pose import pose
from gaussguru._guru.solvers.result import Result
from gaussguru._rows.rows import NotFiniteError
from gaussguru._rows.threads import block_map
from gaussguru._rows.validation import Samples, check_samples, explain_not_finite
from gaussguru._utils.checks import ParameterError, check_count, check_real, check_sigma, outside
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import BlockMap, ClassWeight
from gaussguru.losses import Loss


class Proof(NamedTuple):
    """The certificate of a solution: its noise level, whether it is optimal to ``tol``, the gap relative to F(0)."""

    sigma: float
    converged: bool
    relative_gap: float


def sigma_path(
    X: object,
    y: object,
    *,
    sigmas: object = None,
    n_sigmas: int = 20,
    sample_weight: object = None,
    X_err: object = None,
    noise: str | ArrayLike = "isotropic",
    loss: str | Loss = "gaussian",
    l2: float = 0.0,
    fit_intercept: bool = True,
    class_weight: ClassWeight = None,
    solver: str = "newton",
    tol: float = 1e-6,
    max_iter: int = 500,
    random_state: object = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    eta0: float | None = None,
    average: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """Return the solutions of :class:`GuruClassifier` along a path of noise levels, from large to small.

    Each level starts from an extrapolation of the solutions before it and reuses their factors, so that the whole
    path costs a few times as much as one fit. Every solution is certified.

    Without ``sigmas`` the levels form a geometric grid down to 1/1000 of its top. Its top is :func:`sigma_max`, above
    which the features cannot matter, or the spread of the samples (the root of their mean squared distance from their
    mean), whichever is less: noise as large as the data itself leaves only the class means to go by. ``sigma_max`` is
    infinite for classes of equal weight and without an intercept, and not known for more than two classes.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples.
    y : array-like of shape (n_samples,)
        Labels of two or more classes.
    sigmas : array-like of shape (n_sigmas,), default=None
        The noise levels, positive, in any order.
    n_sigmas : int, default=20
        How many levels the grid has where ``sigmas`` is None.
    sample_weight : array-like of shape (n_samples,) or float, default=None
        Weights of the samples.
    X_err : default=None
        Error bars of the samples, see :meth:`GuruClassifier.fit`.
    noise, loss, l2, fit_intercept, class_weight, solver, tol, max_iter, random_state, n_jobs, verbose, eta0, average
        As in :class:`GuruClassifier`.

    Returns
    -------
    sigmas : ndarray of shape (n_sigmas,)
        The noise levels, the largest first.
    coefs : ndarray of shape (n_sigmas, 1, n_features) or (n_sigmas, n_classes, n_features)
        ``coef_`` at every level. Where the classifier collapses it is 0; no warning says so.
    intercepts : ndarray of shape (n_sigmas, 1) or (n_sigmas, n_classes)
        ``intercept_`` at every level.
    dual_gaps : ndarray of shape (n_sigmas,)
        ``dual_gap_`` at every level.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gaussguru import sigma_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> sigmas, coefs, intercepts, dual_gaps = sigma_path(X, y, n_sigmas=10)
    >>> coefs.shape, bool((dual_gaps <= 1e-6 * len(y)).all())
    ((10, 1, 30), True)
    """
    model = GuruClassifier(
        noise=noise, loss=loss, l2=l2, fit_intercept=fit_intercept, class_weight=class_weight, solver=solver, tol=tol,
        max_iter=max_iter, random_state=random_state, n_jobs=n_jobs, verbose=verbose, eta0=eta0, average=average,
    )  # fmt: skip
    model._check_parameters()
    X, X_err, _ = model._prepared(*split_errors(X, X_err), sample_weight)
    samples = check_samples(X, y, sample_weight, model.class_weight)
    levels = noise_levels(
        n_sigmas if sigmas is None else sigmas, samples, model, "n_sigmas" if sigmas is None else "sigmas"
    )
    coefs, intercepts, gaps, proofs = [], [], [], []
    # The threads of BLAS take longer to start than most of the products of a path.
    width = samples.width if X_err is None else 2 * samples.width
    with block_map(samples.X, model.n_jobs, width, single_blas=True) as mapped:
        for fitted, proof in follow(model, samples, levels, X_err, mapped):
            coefs.append(fitted.coef_)
            intercepts.append(fitted.intercept_)
            gaps.append(fitted.dual_gap_)
            proofs.append(proof)
    warn_of(proofs, model)
    return levels, np.array(coefs), np.array(intercepts), np.array(gaps)


def noise_levels(sigmas: object, samples: Samples, model: GuruClassifier, name: str = "sigmas") -> Array:
    """Return noise levels from large to small: those given, or a grid of so many."""
    if isinstance(sigmas, numbers.Number) or sigmas is None or isinstance(sigmas, str):
        return _grid(check_count(name, sigmas), samples, model)
    levels = np.asarray(sigmas)
    if levels.ndim != 1 or levels.size == 0:
        raise ParameterError(name, f"must be a number of levels or a list of at least one; got {sigmas!r}")
    checked = [check_real(f"{name}[{i}]", sigma) for i, sigma in enumerate(levels.tolist())]
    for sigma in checked:
        check_sigma(name, sigma)
    return np.array(sorted(checked, reverse=True))


def _grid(n_sigmas: int, samples: Samples, model: GuruClassifier) -> Array:
    with block_map(samples.X, model.n_jobs, samples.width) as mapped:
        posed = pose(samples, model._resolved(samples), mapped)
        rows = posed.problem.rows
        try:
            shares = rows.class_weights / rows.total_weight
            mean = shares @ rows.means
            # Far from the origin the difference of squares is lost in rounding; the variance between classes is not.
            between = float(shares @ np.square(rows.means - mean).sum(axis=1))
            whole = float(rows.column_squares.sum()) / rows.total_weight - float(mean @ mean)
            top = math.sqrt(max(between, whole)) / posed.x or 1.0
            if len(samples.classes) == 2 and model.fit_intercept:
                top = min(top, model.sigma * posed.problem.collapse_factor) or top
        except NotFiniteError:
            raise explain_not_finite(samples.X) from None
    return np.geomspace(top, 1e-3 * top, n_sigmas)


def follow(
    model: GuruClassifier, samples: Samples, levels: Array, X_err: object, mapped: BlockMap
) -> Iterator[tuple[GuruClassifier, Proof]]:
    """Yield fitted classifiers, one for each level, each found from those before it."""
    first = at_level(model, float(levels[0]))
    errors = first._errors(samples, X_err, mapped)
    posed = pose(samples, first._resolved(samples, errors), mapped, errors)
    factors = (levels / levels[0]).tolist()
    try:
        results: Iterable[Result] = first._method.make(**first._settings()).follow(posed.problem, factors)
        for sigma, factor, solution in zip(levels.tolist(), factors, results, strict=True):
            fitted = at_level(model, sigma)
            fitted.n_features_in_ = samples.X.shape[1]
            result = posed.result(solution)
            fitted._adopt(posed.scaled(factor), samples.classes, result)
            fitted._keep(result)
            fitted.population_ = None
            yield fitted, Proof(sigma, solution.converged, solution.gap / posed.problem.weight)
    except NotFiniteError:
        raise explain_not_finite(samples.X) from None


def at_level(model: GuruClassifier, sigma: float) -> GuruClassifier:
    """Return a classifier with the same options, unfitted, at another level."""
    return GuruClassifier(**{**model.get_params(deep=False), "sigma": sigma})


def warn_of(proofs: list[Proof], model: GuruClassifier) -> None:
    """Warn once of the solutions of a path that did not converge."""
    failed = [proof for proof in proofs if not proof.converged]
    if failed:
        worst = max(failed, key=lambda proof: proof.relative_gap)
        problem = (
            f"{len(failed)} of {len(proofs)} solutions are not proven optimal to tol={model.tol:g}, that at sigma="
            f"{worst.sigma:g} only to {worst.relative_gap:.1e} of the objective at zero"
        )
        advice = {"max_iter": "increase {}", "tol": "increase {}", "sigmas": "leave out the smallest {}", "": SCALE}
        warnings.warn(advised(ConvergenceWarning, problem, advice), stacklevel=outside())
