"""Some random problems, the same every time; ``make fuzz`` tries others for half an hour."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.problems import CHOICES, Problem, check, valid

PROBLEMS = 200

problems = st.builds(
    Problem,
    seed=st.integers(0, 2**31 - 1),
    **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
).map(valid)


@settings(derandomize=True, max_examples=PROBLEMS, deadline=None, database=None)
@given(problems)
def test_what_is_promised_of_a_fit(problem):
    check(problem)


# Problems that broke a promise once.
FOUND = {
    "an excess of a dual point whose square overflows": Problem(
        seed=37273394, n=3, d=40, classes=3, data="units", scale=1e50, weights="ratios", form="fortran",
        estimator="landmarks", loss="moment", solver="sgd", sigma=0.0078125, l2=1.0, kernel="poly",
    ),
    "slopes that lose the last bits of a step, error bars": Problem(
        seed=1002854672, n=7, d=2, classes=3, data="lonely", form="frame", sigma=0.0, errors="exact features",
    ),
    "slopes that lose the last bits of a step, one exact feature": Problem(
        seed=1429819091, n=30, classes=4, scale=1e-8, form="csr-float32", noise="one exact", sigma=2.0**20,
        errors="exact features",
    ),
    "slopes that lose the last bits of a step, kernel": Problem(
        seed=795224083, n=30, d=1, classes=4, data="lonely", form="float32", estimator="kernel", loss="logistic",
        errors="one a value",
    ),
    "blur dropped too early": Problem(
        seed=1577691363, n=50, d=5, classes=7, data="collinear", offset=1.0, estimator="kernel", sigma=2.0**-20,
        errors="one a sample",
    ),
    "rows that are drawn twice": Problem(
        seed=1707914609, n=120, d=1, data="rare", offset=1e6, form="strided", noise="axis", sigma=0.5,
        fit_intercept=False,
    ),
    "blur that went down too fast": Problem(
        seed=1759873948, n=80, d=40, scale=1e100, form="csr", estimator="adversarial", sigma=2.0**-15, l2=1e-4,
        kernel="linear",
    ),
    "damping that alternates": Problem(
        seed=1262970707, d=20, data="constant", scale=1e100, form="frame", loss="quadratic", sigma=2.0**20,
        errors="one a value",
    ),
    "damping that alternates, many classes": Problem(
        seed=1875714626, n=7, d=12, classes=4, data="apart", form="frame", estimator="kernel", loss="quadratic",
        sigma=2.0**20, l2=1e-9, fit_intercept=False, kernel="linear",
    ),
    "constant samples, variance by rounding": Problem(
        seed=108873575, n=80, d=1, data="constant", weights="huge", form="strided", estimator="kernel", sigma=0.0625,
        l2=1e-9, kernel="poly",
    ),
    "an alternation that is near itself but in no circle": Problem(
        seed=436790945, n=200, data="apart", offset=1e3, weights="huge", form="csr-float32", estimator="alternating",
    ),
    "a ridge and noise of low rank, much of it": Problem(
        seed=730066550, n=30, d=12, data="duplicates", scale=1e-3, form="float32", noise="singular", loss="logistic",
        sigma=2.0**20, l2=1e4,
    ),
    "a population with a constant feature, large": Problem(
        seed=1545370229, n=15, d=40, data="collinear", scale=1e100, weights="huge", loss="quadratic", sigma=2.0**-15,
        errors="missing",
    ),
    "a population with a constant feature, small": Problem(
        seed=829037790, n=200, d=20, data="collinear", scale=1e-100, noise="deviations", sigma=0.25, errors="missing",
    ),
    "a population with a constant feature, far from the origin": Problem(
        seed=521699372, n=200, d=12, data="collinear", offset=1e3, form="strided", noise="covariance", sigma=0.25,
        errors="missing",
    ),
    "lengths that overflow": Problem(
        seed=472164791, n=8, classes=7, data="lonely", weights="zeros", sigma=2.0**-7, errors="covariances",
    ),
    "programs that overflow": Problem(
        seed=1915886083, n=120, data="rare", scale=1e30, weights="zeros", form="strided", estimator="cv", noise="axis",
        sigma=0.125,
    ),
    "a step too short for its square": Problem(
        seed=104706386, n=40, d=12, data="integers", scale=1e-100, weights="ratios", estimator="cv",
        errors="missing samples",
    ),
    "samples that a rounded kernel matrix does not tell apart": Problem(
        seed=2062126097, n=2, d=2, data="same rows", form="csr-float32", estimator="kernel", solver="sgd2", sigma=0.25,
        kernel="cosine",
    ),
    "factors with more columns than features": Problem(
        seed=1826233181, n=15, d=20, classes=3, data="equal means", weights="random", noise="exact features",
        loss="logistic", sigma=0.0, errors="missing low rank", kernel="poly",
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem", FOUND.values(), ids=FOUND)
def test_what_was_found_before(problem):
    check(problem)


@pytest.mark.parametrize("kind", [kind for kind in CHOICES["errors"] if "missing" in kind or "singular" in kind])
@pytest.mark.parametrize("classes", [2, 3])
def test_singular_and_infinite_errors(kind, classes):
    for seed in range(6):
        settings = {"n": 30, "d": 4, "data": "apart", "sigma": 0.25 * (seed % 2), "l2": 0.1 * (seed // 2 % 2)}
        check(valid(Problem(seed=seed, classes=classes, errors=kind, **settings)))
