"""Support vector machines for samples of which any few features may be deleted."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gaussguru._guru.moved import MovedClassifier
from gaussguru._guru.problems.ball import Ball
from gaussguru._guru.problems.sets import Deletions
from gaussguru._guru.solvers.result import Result
from gaussguru._rows.rows import dense
from gaussguru._rows.validation import check_samples
from gaussguru._utils.blocks import row_blocks
from gaussguru._utils.checks import check_count


class FeatureDropSVC(MovedClassifier):
    """Support vector machine robust to the deletion of up to ``n_drop`` features of each sample.

    The features that are deleted, set to 0, are the worst ones for each sample (Globerson and Roweis 2006, *Nightmare
    at Test Time: Robust Learning by Feature Deletion*, FDROP). With labels ``y = +-1``::

        min over w, b   (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) + h_i(y_i w))
        h_i(u) = sum of the n_drop largest positive u_j x_ij

    The weight is spread over more features, because none may be indispensable. With ``n_drop = 0`` it is the ordinary
    support vector machine (whose ``C`` is ``1/lam``). With more than two classes::

        min over W, b   (lam/2) sum_c ||w_c||^2
                        + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)
                                                          + h_i(w_{y_i} - w_k))

    A value of 0 is one that is not there, so features are not centred; if they are to be, centre X before. There is no
    ``predict_proba``, because deletions are chosen and not random. Use
    :class:`gaussguru.calibration.CalibratedWithErrorsCV` for probabilities.

    Parameters
    ----------
    n_drop : int, default=1
        Largest number of features of a sample that are deleted.
    lam : float, default=1.0
        Weight of the ridge term.
    fit_intercept : bool, default=True
        Whether to fit ``b``.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with ``sample_weight``. "balanced" gives all classes the same total weight.
    tol : float, default=1e-6
        Stop when the duality gap is at most ``tol`` times the objective at zero, the total weight.
    max_iter : int, default=500
        Maximum number of Newton steps.
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
        Number of Newton steps.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gaussguru import FeatureDropSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = FeatureDropSVC(n_drop=1).fit(X, y)
    >>> clf.dual_gap_ <= 1e-6 * len(y)
    True
    >>> clf.certified_drops(X[[0, 60, 120]])
    array([4, 0, 1])
    """

    def __init__(
        self,
        n_drop: int = 1,
        *,
        lam: float = 1.0,
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-6,
        max_iter: int = 500,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_drop = n_drop
        self.lam = lam
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "n_drop": partial(check_count, low=0),
        **MovedClassifier._checks,
    }

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

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        self._check_parameters()
        samples = check_samples(X, y, sample_weight, self.class_weight, estimator=self)
        if self.n_drop > samples.X.shape[1]:
            raise ValueError(f"n_drop must be at most {samples.X.shape[1]}, the features of X; got {self.n_drop}")
        sets = Deletions(int(self.n_drop)) if self.n_drop else np.zeros(len(samples.labels))
        return self._train(samples, lambda _: sets)

    def _solve(self, problem: Ball) -> Result:
        return self._exact(problem, f"n_drop={self.n_drop}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Scikit-learn tests with two features: without one of them the classes cannot be told apart.
        tags.classifier_tags.poor_score = self.n_drop > 0
        return tags

    def certified_drops(self, X: Any) -> NDArray[np.intp]:
        """Return how many features of each sample may be deleted, any of them, before its predicted class changes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            The number of features where no deletion changes the class.
        """
        X, _ = self._measured(X)
        coef, scores = self.coef_, self._scores(X)
        if len(coef) == 1:
            coef, scores = np.vstack([-coef, coef]) / 2, np.outer(scores, [-0.5, 0.5])
        drops, labels = np.full(len(scores), X.shape[1], dtype=np.intp), scores.argmax(axis=1)
        for rows in row_blocks(*X.shape):
            values, c, lead = dense(X[rows]), labels[rows], scores[rows]
            for k, w in enumerate(coef):
                largest = np.sort(np.maximum(values * (coef[c] - w), 0.0), axis=1)[:, ::-1]
                margin = (lead[np.arange(len(c)), c] - lead[:, k])[:, np.newaxis]
                kept = (np.cumsum(largest, axis=1) < margin).sum(axis=1)
                drops[rows] = np.minimum(drops[rows], np.where(c == k, X.shape[1], kept))
        return drops
