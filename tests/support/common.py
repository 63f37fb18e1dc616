"""What several test files need: forms of X, a loss without its compiled twin, when two fits are the same, and BLAS."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from gaussguru import GuruClassifier
from gaussguru._guru.solvers.registry import SOLVERS
from gaussguru.losses import LOSSES, Gaussian
from support import oracles

# So many threads BLAS has in tests of its limits: not 1, which is a limit, and not what the environment may ask for.
BLAS_THREADS = 3


def raised_blas():
    """Return a context in which BLAS has so many threads, whatever the environment says."""
    blas = ThreadpoolController().select(user_api="blas")
    # OpenBLAS 0.3.28 (in SciPy 1.15.0 to 1.16.1 and NumPy 2.2.0) has no memory for threads that are added after it was
    # loaded, all but the first: what they compute ends the process (github.com/OpenMathLib/OpenBLAS/issues/4981). The
    # package never sets more threads than it found.
    sound = [library.version for library in blas.lib_controllers if library.version != "0.3.28"]
    return blas.select(version=sound).limit(limits=BLAS_THREADS)


def threaded_blas():
    """Return the BLAS libraries that can have threads: not every package has brought such a one."""
    with raised_blas():
        found = ThreadpoolController().select(user_api="blas").lib_controllers
        return [library for library in found if library.num_threads == BLAS_THREADS]


class Written(Gaussian):
    """The same loss without its compiled twin."""

    code = -1

    def terms(self, z):
        return oracles.loss(z), ndtr(z), oracles.pdf(z)


def plain(loss):
    """Return f, f' and f'' of a loss as an oracle has them."""
    return oracles.TERMS["gaussian" if isinstance(loss, Gaussian) else type(loss).__name__.lower()]


def wide_indices(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


FORMS = {
    "dense": lambda X: X,
    "csr": sp.csr_array,
    "csr-matrix": sp.csr_matrix,
    "csr-int64": lambda X: wide_indices(sp.csr_array(X)),
    "float32": lambda X: X.astype(np.float32),
    "csr-float32": lambda X: sp.csr_array(X.astype(np.float32)),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
every_loss = pytest.mark.parametrize("loss", [*LOSSES.values(), Written()], ids=[*LOSSES, "written"])
EXACT = {name: solver for name, solver in SOLVERS.items() if solver.exact}
every_solver = pytest.mark.parametrize("solver", EXACT)
every_joint_solver = pytest.mark.parametrize("solver", [name for name in EXACT if EXACT[name].classes])
options = pytest.mark.parametrize(("l2", "fit_intercept"), [(0.0, True), (0.0, False), (0.7, True), (0.7, False)])
sigmas = pytest.mark.parametrize("sigma", [0.05, 0.5])
with_and_without = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "origin"])


def features(n, d, rng):
    """Return X with exact float32 values and zeros."""
    X = np.round(rng.standard_normal((n, d)), 3).astype(np.float32).astype(np.float64)
    X *= rng.random((n, d)) < 0.6
    return X


def fit_to(tol, X, y, weight=None, *, sigma=0.5, **parameters):
    return GuruClassifier(sigma, tol=tol, **parameters).fit(X, y, weight)


def check_close(clf, other, rtol, *, factor=1.0):
    """Assert that two fits are the same, but for the ``factor`` between their features."""
    scale = np.abs(other.coef_).max()
    np.testing.assert_allclose(clf.coef_ * factor, other.coef_, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(clf.intercept_, other.intercept_, rtol=rtol, atol=rtol)
