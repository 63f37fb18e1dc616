"""What estimators print with ``verbose``: stages, their seconds, and the fraction of a loop that is done."""

import re

import numpy as np
import pytest

from gaussguru import ErrorBarClassifier, GuruClassifierCV, KernelGuruClassifier
from gaussguru.population import Deconvolve
from gaussguru.sources import Arrays

RNG = np.random.default_rng(0)
ERRORS = RNG.lognormal(-1.0, 0.5, (240, 2))
TRUTH = RNG.standard_normal((240, 2))
X = TRUTH + ERRORS * RNG.standard_normal((240, 2))
Y = TRUTH[:, 0] + 0.3 * RNG.standard_normal(240) > 0

FITS = {
    "pool": (ErrorBarClassifier(cv=2), X, ["population", "noisier copies", "rbf: width of the kernel"]),
    "linear": (ErrorBarClassifier(model="linear", cv=2), X, ["ridges: fold 2 of 2 (100%)", "fit of all samples"]),
    "linear, in parts": (
        ErrorBarClassifier(model="linear", cv=2),
        Arrays(X, rows=100),
        ["subsample", "population", "ridges: fold 1 of 2 (50%)", "reliability of all samples", "fit of all samples"],
    ),
    "population": (Deconvolve(2), X, ["starts and EM of 240 samples"]),
    "components": (Deconvolve("auto"), X, ["1 components: fold 1 of 5 (20%)", "1 components: fold 5 of 5 (100%)"]),
    "population, in parts": (Deconvolve(), Arrays(X, rows=100), ["subsample", "starts and EM of 240 samples"]),
    "sigma": (GuruClassifierCV(3, cv=4), X, ["fold 1 of 4 (25%)", "fold 4 of 4 (100%)", "fit of all samples"]),
    "kernel": (KernelGuruClassifier(0.3), X[:60], ["kernel", "fit"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_stages_are_printed_with_seconds_and_fractions_and_nothing_unless_asked(name, capsys):
    model, samples, stages = FITS[name]
    given = {} if name == "kernel" else {"X_err": ERRORS}
    quiet = model.fit(samples, Y[: len(samples)] if isinstance(samples, np.ndarray) else Y, **given)
    assert capsys.readouterr().out == ""
    loud = type(model)(**{**quiet.get_params(deep=False), "verbose": 1})
    loud.fit(samples, Y[: len(samples)] if isinstance(samples, np.ndarray) else Y, **given)
    lines = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(r"\[\w+\] .*  \d+\.\d{3} s", line) for line in lines), lines
    ours = [line.removeprefix(f"[{type(model).__name__}] ") for line in lines]
    for stage in stages:
        assert any(line.startswith(stage) for line in ours), (stage, lines)


def test_folds_of_every_member_of_a_pool_are_counted(capsys):
    ErrorBarClassifier(cv=2, verbose=1, n_jobs=2).fit(X[:200], Y[:200], X_err=ERRORS[:200])
    text = capsys.readouterr().out
    for name in ("boosting", "boosting, as measured", "trees", "rbf", "population", "linear", "errors ignored"):
        found = re.findall(rf"\] {name}: fold (\d) of (\d) \((\d+)%\)", text)
        n_folds = int(found[0][1])
        assert sorted(int(number) for number, _, _ in found) == list(range(1, n_folds + 1))
        assert all(int(share) == round(100 * int(number) / n_folds) for number, _, share in found)
    assert re.search(r"boosting: 60 trees, fold 1 of \d \(\d+%\)", text)
    assert "[Deconvolve]" not in text


def test_a_second_level_prints_the_stages_of_the_population(capsys):
    ErrorBarClassifier(model="linear", n_components=1, cv=2, verbose=2).fit(X, Y, X_err=ERRORS)
    assert capsys.readouterr().out.count("[Deconvolve]") == 1  # not of the folds


@pytest.mark.parametrize("model", [ErrorBarClassifier(), Deconvolve()], ids=["classifier", "population"])
@pytest.mark.parametrize("value", ["loud", None, -1])
def test_verbose_is_checked(model, value):
    with pytest.raises((TypeError, ValueError), match="verbose must be"):
        type(model)(verbose=value).fit(X, Y, X_err=ERRORS)
