"""Growing subspaces: orthonormal whatever is added, and the optimum of the whole space at their end."""

import numpy as np
import pytest
import scipy.sparse as sp
from support.common import with_and_without
from support.data import groups
from support.joint import make

from gaussguru._guru.solvers.newton import Newton
from gaussguru._guru.solvers.subspace import OfColumns, OfSamples, Span, Subspace
from gaussguru._rows.rows import Rows


def minimise(whole, space, *, last_word=True):
    """Return the result of minimising over a growing span of a space, from the class means."""
    return Subspace().minimise(space, whole, whole=last_word)[0]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, np.float32], ids=["dense", "csr", "float32"])
@pytest.mark.parametrize(("sigma", "l2"), [(1.0, 0.0), (4.0, 0.0), (1.0, 0.7)])
@with_and_without
def test_a_span_of_gradients_ends_at_the_same_optimum(form, sigma, l2, fit_intercept):
    X, y = groups([70, 50, 60, 40], 12)
    options = {"sigma": sigma, "l2": l2, "fit_intercept": fit_intercept}
    expected = Newton(tol=1e-9).solve(make(X, y, np.ones(len(y)), **options))
    whole = make(form(X), y, np.ones(len(y)), **options)
    found = minimise(whole, OfColumns(whole.rows))
    assert found.converged
    check_near(found, expected, whole.weight)
    np.testing.assert_allclose(whole.point(whole.unknowns(found.coef, found.intercept)).value, found.objective)
    assert np.abs(found.coef.sum(axis=0)).max() <= 1e-9 * np.abs(found.coef).max()


@pytest.mark.parametrize(("sigma", "l2"), [(1.0, 0.0), (4.0, 0.0), (1.0, 0.7)])
@with_and_without
def test_a_span_of_samples_ends_at_the_same_optimum(sigma, l2, fit_intercept):
    """As with a kernel, of which only products are known: the whole space does not certify the result."""
    X, y = groups([70, 50, 60, 40], 12)
    whole = make(X, y, np.ones(len(y)), sigma=sigma, l2=l2, fit_intercept=fit_intercept)
    expected = Newton(tol=1e-9).solve(whole)
    found = minimise(whole, OfSamples(lambda V: X @ (X.T @ V), np.sum(X**2)), last_word=False)
    assert found.converged
    check_near(found, expected, whole.weight)
    np.testing.assert_allclose(whole.point(whole.unknowns(found.coef @ X, found.intercept)).value, found.objective)


def check_near(found, expected, zero):
    assert found.gap <= 1e-6 * zero
    assert expected.objective - 1e-6 * zero <= found.objective <= expected.objective + found.gap + 1e-6 * zero


@pytest.mark.parametrize("space", ["columns", "samples"])
def test_a_span_stays_orthonormal_whatever_is_added(space):
    """Dependent directions, directions in the span up to rounding, and more directions than dimensions."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12)) * 2.0 ** -np.arange(12)
    space = (
        OfColumns(Rows(X, np.arange(40) % 3, n_classes=3))
        if space == "columns"
        else OfSamples(lambda V: X @ (X.T @ V), np.sum(X**2))
    )
    residual = rng.standard_normal((40, 2))
    span = Span(space, np.column_stack([residual, -residual.sum(axis=1)]))
    for step in range(30):
        fresh = rng.standard_normal((40, 2)) * 10.0 ** -(step % 9)
        more = np.column_stack([residual + fresh, -(residual + fresh).sum(axis=1), residual[:, 0], np.zeros(40)])
        known = span.features.shape[1]
        assert span.add(space.gradient(more)) == span.features.shape[1] - known
        inner = span.basis.T @ (span.basis if isinstance(space, OfColumns) else X @ (X.T @ span.basis))
        np.testing.assert_allclose(inner, np.eye(span.features.shape[1]), atol=1e-9)
        np.testing.assert_allclose(span.features, space.scores(span.basis), atol=1e-9)
    assert span.features.shape[1] == 12


def test_a_span_next_to_collapse_proves_what_newton_proves():
    X, y = groups([80, 80, 79], 300, distance=1.0, seed=3)
    for sigma in (4.0, 8.0, 16.0):
        whole = make(X, y, np.ones(len(y)), sigma=sigma)
        spanned, direct = minimise(whole, OfColumns(whole.rows)), Newton().solve(whole)
        assert max(spanned.gap, direct.gap) <= 2e-6 * len(y)
        assert abs(spanned.objective - direct.objective) <= 2e-6 * len(y)
