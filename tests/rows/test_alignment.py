"""Numbers at any address, as in a message or a file: compiled loops see them at multiples of their size only."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from gaussguru import AdversarialSVC, ErrorBarClassifier, GuruClassifier, KernelGuruClassifier, PopulationClassifier
from gaussguru._native import _binding
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import LowRank
from gaussguru.population import Deconvolve
from gaussguru.sources import Arrays

FORMS = ("dense", "single", "frame", "sparse", "covariances", "low rank", "missing", "source")
MODELS = [
    GuruClassifier(0.3), KernelGuruClassifier(0.3, gamma=0.5), AdversarialSVC(), PopulationClassifier(1),
    ErrorBarClassifier(model="linear", cv=2), CalibratedWithErrorsCV(GuruClassifier(0.3), cv=2), Deconvolve(),
]  # fmt: skip


def moved(array):
    """Return the same array, one byte off."""
    array = np.ascontiguousarray(array)
    off = np.frombuffer(b"\0" + array.tobytes(), array.dtype, array.size, 1).reshape(array.shape)
    assert not off.flags.aligned
    return off


def given(form):
    """Return X, y, weights and errors in a form."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X, err = rng.normal(size=(40, 3)) + y[:, np.newaxis], rng.uniform(0.1, 1.0, size=(40, 3))
    X = X.astype(np.float32) if form == "single" else X
    err = np.where(rng.random(err.shape) < 0.1, np.inf, err) if form == "missing" else err
    if form == "covariances":
        err = np.einsum("ij,jk->ijk", np.square(err), np.eye(3))
    return X, y, rng.uniform(1.0, 2.0, size=40), err


def put(form, X, err, at=np.asarray):
    """Return values and errors in the form, with their numbers where ``at`` puts them."""
    X, err = at(X), at(err)
    if form == "frame":
        X, err = pd.DataFrame(X, copy=False), pd.DataFrame(err, copy=False)
    elif form == "sparse":
        X = sp.csr_array(X)
        X.data, X.indices, X.indptr = at(X.data), at(X.indices), at(X.indptr)
    elif form == "low rank":
        err = LowRank(at(np.asarray(err)[:, :, np.newaxis]), err)
    return (Arrays(X) if form == "source" else X), err


def checked(function):
    """Return a compiled function that refuses arrays off their addresses."""

    def call(*arguments):
        for array in arguments:
            assert not isinstance(array, np.ndarray) or array.flags.aligned
        return function(*arguments)

    return call


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_arrays_off_their_addresses_are_those_at_them(model, form, monkeypatch):
    if form == "sparse" and not isinstance(model, GuruClassifier | KernelGuruClassifier | AdversarialSVC):
        pytest.skip("takes no sparse X")
    if form == "source" and isinstance(model, KernelGuruClassifier | AdversarialSVC | PopulationClassifier):
        pytest.skip("takes no sources")
    for name, function in vars(_binding).items():
        if type(function).__name__ == "cython_function_or_method":
            monkeypatch.setattr(_binding, name, checked(function))
    X, y, weight, err = given(form)
    found = []
    for at in (np.asarray, moved):
        values, errors = put(form, X, err, at)
        fitted = clone(model).fit(values, at(y), sample_weight=at(weight), X_err=errors)
        method = fitted.decision_function if isinstance(model, AdversarialSVC) else None
        if isinstance(model, Deconvolve):
            found.append(fitted.score_samples(values, errors))
        elif method is not None:
            found.append(np.asarray(method(at(X))))
        else:
            found.append(fitted.predict_proba(values, errors))
    np.testing.assert_array_equal(found[0], found[1])
