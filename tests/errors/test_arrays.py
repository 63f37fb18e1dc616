"""Roots of covariances."""

import numpy as np
import pytest

from gaussguru._errors.arrays import any_roots, roots_of, semidefinite_roots


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_roots_do_not_depend_on_units(rank):
    """Scaled by powers of 2, roots of singular covariances are scaled by them to the bit."""
    rng = np.random.default_rng(rank)
    factors, units = rng.standard_normal((20, 4, rank)), 2.0 ** np.array([-20, 0, 15, 40])
    factors[:5, 1] = 0.0  # an exact feature
    covariances = factors @ factors.transpose(0, 2, 1)
    for roots in (semidefinite_roots, any_roots, lambda S: roots_of(S)[0].transpose(0, 2, 1)):
        found = roots(covariances)
        np.testing.assert_allclose(found @ found.transpose(0, 2, 1), covariances, rtol=0.0, atol=1e-13)
        scaled = roots(covariances * units * units[:, np.newaxis])
        np.testing.assert_array_equal(scaled, found * units[:, np.newaxis])
    assert not roots_of(covariances)[1]
    np.testing.assert_array_equal(semidefinite_roots(covariances[0]), semidefinite_roots(covariances)[0])
