"""Parameters chosen on a validation set, as in the thesis: a classifier for each; the best one is tested.

A candidate is a classifier with the parameters that made it. Candidates come with the most robust first (large sigma,
small C), and among equals the first is chosen.
"""

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from gaussguru import GuruClassifier, KernelGuruClassifier, sigma_path
from gaussguru._guru.probabilities import winners
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Estimator, MixedArray, Record
from gaussguru.thesis.splits import ThesisSplit

# liblinear gives up Crammer and Singer's problem after this many passes, whatever its options. After GIVEN_UP times in
# a row the grid ends: every larger C would take minutes and fail, too.
LIBLINEAR_PASSES = 100_000
GIVEN_UP = 3
# Tolerance of exact fits, relative to the objective at zero.
TOL = 1e-6


@dataclass(frozen=True)
class Grids:
    """The grids of the thesis; coarser ones for a quick run.

    Parameters
    ----------
    sigmas : 2^20 to 2^-20, for exact fits
    coarse_sigmas : the same range, for the stochastic algorithms, each with every rate
    rates : 4^-10 to 4^10
    penalties : 4^-15 to 4^15: C, which the thesis calls lambda
    epochs : of the stochastic algorithms
    """

    sigmas: MixedArray
    coarse_sigmas: MixedArray
    rates: MixedArray
    penalties: MixedArray
    epochs: int

    @classmethod
    def of(cls, quick: bool) -> "Grids":
        """Return the grids of a quick or a full run."""
        return cls(
            sigmas=2.0 ** np.arange(20, -21, -2 if quick else -1),
            coarse_sigmas=2.0 ** np.arange(20, -21, -4 if quick else -2),
            rates=4.0 ** np.arange(-10, 11, 2 if quick else 1),
            penalties=4.0 ** np.arange(-15, 16, 3 if quick else 1),
            epochs=5 if quick else 20,
        )


@dataclass(frozen=True)
class FittedCandidate:
    """A fitted classifier: its parameters, its ``predict``, whether its solver converged, and itself, if it is kept."""

    parameters: dict[str, float]
    predict: Callable[[Array], MixedArray]
    converged: bool = True
    model: Estimator = None


Search = Callable[[ThesisSplit, Grids], Iterator[FittedCandidate]]
# The score of a candidate.
Measure = Callable[[FittedCandidate], float]


def exact(split: ThesisSplit, grids: Grids) -> Iterator[FittedCandidate]:
    """Yield the certified optima of GURU or M-GURU along a path of sigmas."""
    classes = np.unique(split.y_train)
    with _recorded():
        sigmas, coefs, intercepts, gaps = sigma_path(split.X_train, split.y_train, sigmas=grids.sigmas, tol=TOL)
    at_zero = len(split.y_train) * (len(classes) - 1)
    for sigma, coef, intercept, gap in zip(sigmas, coefs, intercepts, gaps, strict=True):
        yield FittedCandidate({"sigma": float(sigma)}, _linear(classes, coef, intercept), bool(gap <= TOL * at_zero))


def stochastic(solver: str, *, every: int = 1) -> Search:
    """Return a search over the algorithms of the thesis at every sigma and every ``every``-th rate.

    They are "sgd" (GURU, M-GURU) and "sgd2" (M-GURU-S2).
    """

    def model(grids: Grids, sigma: float, eta0: float) -> Estimator:
        return GuruClassifier(sigma, solver=solver, eta0=eta0, max_iter=grids.epochs, random_state=0)

    return _every(model, lambda grids: {"sigma": grids.coarse_sigmas, "eta0": grids.rates[::every]})


def _svm(C: float, **kernel: Any) -> SVC:
    """Return a machine of libsvm. With a large C it may need very long: it is stopped, and counted as not converged."""
    return SVC(C=C, **kernel, max_iter=200_000)


def linear_svm(split: ThesisSplit, grids: Grids) -> Iterator[FittedCandidate]:
    """Yield support vector machines of two classes (libsvm: the intercept is free, as in SVM-light)."""
    for C in grids.penalties:
        model = _svm(float(C), kernel="linear")
        candidate = fitted(model, split, {"C": float(C)})
        # SVC.predict would evaluate the kernel.
        yield replace(candidate, predict=_linear(model.classes_, model.coef_, model.intercept_))


def joint_svm(split: ThesisSplit, grids: Grids) -> Iterator[FittedCandidate]:
    """Yield Crammer and Singer's support vector machines of several classes."""
    given_up = 0
    for C in grids.penalties:
        model = LinearSVC(C=float(C), multi_class="crammer_singer", random_state=0)
        candidate = fitted(model, split, {"C": float(C)})
        converged = bool(model.n_iter_ < LIBLINEAR_PASSES)  # scikit-learn warns long before
        yield replace(candidate, converged=converged)
        given_up = 0 if converged else given_up + 1
        if given_up == GIVEN_UP:
            return


def kernel_exact(**kernel: Any) -> Search:
    """Return a search over certified optima with a kernel."""
    return _every(lambda grids, sigma: KernelGuruClassifier(sigma, **kernel), lambda grids: {"sigma": grids.sigmas})


def kernel_stochastic(**kernel: Any) -> Search:
    """Return a search over KEN-GURU, which finds its rate by trials."""

    def model(grids: Grids, sigma: float) -> Estimator:
        return KernelGuruClassifier(sigma, **kernel, solver="sgd", max_iter=grids.epochs, random_state=0)

    return _every(model, lambda grids: {"sigma": grids.coarse_sigmas})


def kernel_svm(**kernel: Any) -> Search:
    """Return a search over support vector machines with a kernel."""
    return _every(lambda grids, C: _svm(C, **kernel), lambda grids: {"C": grids.penalties})


def _every(model: Callable[..., Estimator], values: Callable[[Grids], dict[str, MixedArray]]) -> Search:
    """Return a search over models of the grids and of every combination of values of parameters."""

    def candidates(split: ThesisSplit, grids: Grids) -> Iterator[FittedCandidate]:
        names = values(grids)
        for combination in itertools.product(*(each.tolist() for each in names.values())):
            parameters = dict(zip(names, combination, strict=True))
            yield fitted(model(grids, **parameters), split, parameters)

    return candidates


def choose(
    candidates: Iterator[FittedCandidate], split: ThesisSplit, *, seed: int, noise_levels: tuple[float, ...] = (0.0,)
) -> Record:
    """Return the test accuracy of the candidate that validates best, at every noise level.

    Uniform noise between minus and plus the level is added to all features of validation and test samples. It depends
    on the seed and the level only: every method sees the same.

    Parameters
    ----------
    candidates : iterator of FittedCandidate
    split : ThesisSplit
    seed : int
    noise_levels : tuple of float, default=(0.0,)

    Returns
    -------
    dict
        ``valid`` and ``test``, accuracies by level; ``chosen``, parameters by level, and ``converged``, whether their
        solver came to an end; ``unconverged``, how many of the ``candidates`` did not.
    """
    noisy = []
    for number, level in enumerate(noise_levels):
        rng = np.random.default_rng([seed, number])
        X_valid, X_test = (X + rng.uniform(-level, level, X.shape) for X in (split.X_valid, split.X_test))
        noisy.append(split._replace(X_valid=X_valid, X_test=X_test))
    measures = [(accuracy_on(part.X_valid, part.y_valid), accuracy_on(part.X_test, part.y_test)) for part in noisy]
    return best(candidates, measures)


def accuracy_on(X: Array, y: MixedArray) -> Measure:
    """Return the function that gives the accuracy of a candidate on samples."""
    return lambda candidate: float(np.mean(candidate.predict(X) == y))


def best(candidates: Iterable[FittedCandidate], measures: list[tuple[Measure, Measure]]) -> Record:
    """Return the scores of the candidates that validate best, for every pair of measures, on validation and on tests.

    The result is that of :func:`choose`, a pair in place of a level.
    """
    n, count, unconverged = len(measures), 0, 0
    valid, test, converged, chosen = [-1.0] * n, [0.0] * n, [True] * n, [dict[str, float]()] * n
    for candidate in candidates:
        count += 1
        unconverged += not candidate.converged
        for number, (validate, tested) in enumerate(measures):
            score = validate(candidate)
            if score > valid[number]:
                valid[number], chosen[number] = score, candidate.parameters
                converged[number], test[number] = candidate.converged, tested(candidate)
    return {
        "valid": valid, "test": test, "chosen": chosen, "converged": converged, "candidates": count,
        "unconverged": unconverged,
    }  # fmt: skip


def _linear(classes: MixedArray, coef: Array, intercept: Array) -> Callable[[Array], MixedArray]:
    return lambda X: classes[winners(X @ coef.T + intercept)]


def fitted(model: Estimator, split: ThesisSplit, parameters: dict[str, float], **given: Any) -> FittedCandidate:
    """Return a candidate fitted to the training samples, and to what else is ``given``."""
    with _recorded() as unproven:
        model.fit(split.X_train, split.y_train, **given)
    return FittedCandidate(parameters, model.predict, not unproven, model)


@contextmanager
def _recorded() -> Iterator[list[Any]]:
    """Collect the warnings of solvers that did not converge: at the ends of a grid that is expected."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        yield log
