"""Every promise of every estimator of measured values, each with errors of one form; ``make fuzz`` tries others."""

import itertools

import pytest

from fuzz.measured import CHOICES, PROMISES, Problem, check, valid

PAIRS = [(promise, estimator) for promise, estimators in PROMISES.items() for estimator in estimators]
FORMS = itertools.cycle(form for form in CHOICES["errors"] if "missing" not in form)


@pytest.mark.parametrize(
    ("promise", "estimator", "errors"), [(*pair, form) for pair, form in zip(PAIRS, FORMS, strict=False)]
)
def test_what_is_promised_of_measured_values(promise, estimator, errors):
    check(valid(Problem(seed=3, n=40, promise=promise, estimator=estimator, errors=errors)))


@pytest.mark.parametrize("estimator", sorted({estimator for _, estimator in PAIRS} - {"affine", "curved"}))
def test_what_is_promised_where_values_are_missing(estimator):
    promise = "rows" if estimator in PROMISES["rows"] else "continuity"
    promise = promise if estimator in PROMISES[promise] else "units"
    check(valid(Problem(seed=4, n=40, promise=promise, estimator=estimator, errors="missing")))


# Problems that broke a promise once.
FOUND = {
    "roots of singular covariances in other units": Problem(
        seed=339238490, n=50, d=3, classes=3, data="constant", errors="singular covariances", weights="random",
        estimator="rank",
    ),
    "classes that a large error moves alike": Problem(
        seed=1462182957, classes=4, errors="mostly missing", estimator="calibrated", promise="continuity",
    ),
    "a first factor that rounding chose": Problem(
        seed=2036254189, d=3, classes=4, data="constant", errors="wide", estimator="rank",
    ),
    "an end of EM that did not count weights": Problem(
        seed=968476167, classes=4, errors="asymmetric", estimator="population", promise="integer weights",
    ),
    "sums of weights that round": Problem(seed=35, classes=4, errors="wide", promise="integer weights"),
    "a median that did not count weights": Problem(
        seed=855707068, n=50, data="correlated", errors="wide", estimator="population", promise="integer weights",
    ),
    "a variance that EM brings near 0 for ever": Problem(
        seed=2124245392, n=80, d=5, classes=3, data="constant", errors="low rank", weights="random", promise="rows",
    ),
    "the square of a sum of four features": Problem(
        seed=1199250796, n=50, d=4, classes=3, data="constant", estimator="curved", promise="transforms",
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem", FOUND.values(), ids=FOUND)
def test_what_was_found_before(problem):
    check(problem)
