"""What error bars are worth: protocols with all baselines, paired over splits.

    python benchmarks/error_bars.py --splits 10 --only larger_test_errors --data fermi,blazar,wdbc --json results.json
    python benchmarks/error_bars.py --show results.json other.json

The second shows tables of what was measured before; where files have the same, the last one counts. ``--kinds ours``
measures only ours again, with the same splits and the same noise. A file that ``--json`` names is written after every
model of a split, and what it has already is not measured again.

| larger_test_errors | test error bars x 1, 1.5, 2, 3, 5 |
| larger_training_errors | training error bars x 3, test x 1 |
| bright_to_faint | trained on bright samples, tested on faint ones: spectra of snpcc, the brightest third of fermi |
| missing_values | 10, 30, 50 % of the test values missing |
| measured_again | test error bars x 3, of which 5, 10, 20 % of the samples are measured again (x 1) |
| misstated_errors | errors misstated by 0.5 and 2, in training and in use; the test has twice the noise of training |
| simulated_samples | simulated data with an oracle, 2, 6 and 30 features |
| few_samples | trained on 50, 100 or 200 samples of the training part, tested as they were measured |
| few_precise_samples | simulated data with few precise and many noisy training samples, exact test samples |

Noise is added as ``sqrt(c^2 - 1) err``, so that errors ``c err`` are true. Fluxes that may be negative (snpcc) go
through asinh, errors by its derivative, the same for all models; "fluxes" is snpcc without. Splits are random, 30 %
test (koi by star), of at most 6,000 rows; those of bright_to_faint are 70 % of the bright samples, and 1,800 faint
ones at most. Probabilities count as between 1e-6 and 1 - 1e-6 in the log loss.
"""

import argparse
import copy
import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from measured_models import (
    DECONVOLUTION,
    LINEAR,
    MODELS,
    OURS,
    SCALED,
    SIZES,
    Model,
    Predictor,
    Training,
    plain,
    quiet,
)
from problems import DATA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from gaussguru import datasets
from gaussguru.robustness import remeasure_gain

LEVELS, MISSING, AGAIN, MISSTATED, WIDTHS = (1, 1.5, 2, 3, 5), (10, 30, 50), (5, 10, 20), (0.5, 1, 2), (2, 6, 30)
FEW_ROWS = (50, 100, 200)
KINDS = ("baseline", "deconvolution", "ours")
PROTOCOLS = (
    "larger_test_errors", "larger_training_errors", "bright_to_faint", "missing_values", "measured_again",
    "misstated_errors", "simulated_samples", "few_samples", "few_precise_samples",
)  # fmt: skip
MOST_ROWS, TEST_SIZE, CLIP = 6000, 0.3, 1e-6
# Rows of made data.
N_TRAIN, N_TEST = 4000, 4000

Record = dict[str, Any]


# --- data ---------------------------------------------------------------------------------------------------


def _unchanged(X: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return X, E


def _asinh(X: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fluxes as a logarithm where they are large, in units of 10, a few errors of a faint object."""
    return np.arcsinh(X / 10.0), E / np.sqrt(100.0 + X**2)


def _chandra() -> Any:
    """Active galaxies and young stars, the two classes of enough samples; with the gaps there are."""
    bunch = datasets.load_chandra(data_home=DATA)
    mine = np.isin(bunch.target_names[bunch.target], ["AGN", "YSO"])
    bunch.data, bunch.error, bunch.target = bunch.data[mine], bunch.error[mine], bunch.target[mine] > 0
    return bunch


REAL: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "fermi": (lambda: datasets.load_fermi(data_home=DATA), _unchanged),
    "blazar": (lambda: datasets.load_fermi(task="blazar", data_home=DATA), _unchanged),
    "wdbc": (datasets.load_wdbc, _unchanged),
    "koi": (lambda: datasets.load_koi(data_home=DATA), _unchanged),
    "snpcc": (lambda: datasets.load_snpcc(data_home=DATA), _asinh),
    "fluxes": (lambda: datasets.load_snpcc(data_home=DATA), _unchanged),
    "chandra": (_chandra, _unchanged),
    "chandra8": (lambda: datasets.load_chandra(data_home=DATA), _unchanged),
}
BARRED = ("fermi", "blazar", "wdbc")
# Samples that are bright, for bright_to_faint: the logarithm of the flux is the first quantity of fermi.
BRIGHT: dict[str, Callable[[Any], np.ndarray]] = {
    "fermi": lambda bunch: bunch.data[:, 0] > np.quantile(bunch.data[:, 0], 2 / 3),
    "snpcc": lambda bunch: bunch.spec_confirmed,
    "fluxes": lambda bunch: bunch.spec_confirmed,
}


class Split:
    """Training and test samples of one split of a data set, with more noise on request: always the same draws."""

    def __init__(self, name: str, number: int) -> None:
        load, self.transform = REAL[name]
        bunch = load()
        y, groups = np.asarray(bunch.target).astype(int), bunch.get("groups")
        rng = np.random.default_rng(number)
        self.order = rng.permutation(len(y))
        rows = self.order[:MOST_ROWS]
        splitter: Any = StratifiedShuffleSplit if groups is None else GroupShuffleSplit
        splitter = splitter(1, test_size=TEST_SIZE, random_state=number)
        train, test = next(splitter.split(rows, y[rows], None if groups is None else groups[rows]))
        self.train, self.test = rows[train], rows[test]
        self.X, self.E, self.y, self.groups = bunch.data, bunch.error, y, groups
        self.normal, self.uniform = rng.standard_normal(self.X.shape), rng.uniform(size=self.X.shape)
        self.bright = BRIGHT[name](bunch) if name in BRIGHT else None

    def by_brightness(self) -> "Split":
        """Return the split with bright samples to train with and faint ones to test with."""
        assert self.bright is not None
        result, bright = copy.copy(self), self.bright[self.order]
        known = self.order[bright]
        result.train = known[: round((1 - TEST_SIZE) * len(known))]
        result.test = self.order[~bright][: round(TEST_SIZE * MOST_ROWS)]
        return result

    def first(self, n: int) -> "Split":
        """Return the split with the first samples of training, at least two of each class: a fold needs one."""
        result, labels = copy.copy(self), self.y[self.train]
        first_two = np.concatenate([np.flatnonzero(labels == label)[:2] for label in np.unique(labels)])
        result.train = self.train[np.union1d(np.arange(n), first_two)]
        return result

    def samples(self, rows: np.ndarray, level: float = 1.0, stated: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Values with ``level`` times the noise, and errors that are ``stated`` times what they are."""
        X, E = self.X[rows], self.E[rows]
        noise = np.sqrt(level**2 - 1) * np.where(np.isfinite(E), E, 0.0)
        return self.transform(X + noise * self.normal[rows], stated * level * E)

    def training(self, level: float = 1.0, stated: float = 1.0) -> Training:
        groups = None if self.groups is None else self.groups[self.train]
        return Training(*self.samples(self.train, level, stated), self.y[self.train], groups)

    @property
    def labels(self) -> np.ndarray:
        return self.y[self.test]


def scores(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    mine = p[np.arange(len(y)), y]
    return {
        "accuracy": float(np.mean(p.argmax(axis=1) == y)),
        "log_loss": float(-np.mean(np.log(np.clip(mine, CLIP, 1 - CLIP)))),
        "brier": float(np.mean(np.square(p).sum(axis=1) - 2 * mine + 1) / 2),
    }


class Fits:
    """Predictors of models, fitted when they are asked for, and once for each level if that matters.

    ``same_values`` are fits to the same values with other errors: models that do not use errors are taken from there.
    """

    def __init__(self, data: Training, same_values: "Fits | None" = None) -> None:
        self.data, self.known, self.seconds = data, {}, defaultdict(float)
        self.same_values = same_values

    def __call__(self, model: Model, level: float = 1.0) -> Predictor:
        if self.same_values is not None and not model.uses_errors:
            return self.same_values(model, level)
        key = (model.name, level if model.by_level else None)
        if key not in self.known:
            began = time.process_time()  # of the processor: other work on the machine does not count
            self.known[key] = model.fit(self.data, level)
            self.seconds[model.name] = time.process_time() - began
        return self.known[key]


# --- protocols ----------------------------------------------------------------------------------------------


def of_real_data(
    name: str,
    number: int,
    only: tuple[str, ...],
    levels: tuple[float, ...],
    kinds: tuple[str, ...],
    wanted: list[str] | None,
) -> list[Record]:
    split = Split(name, number)
    models = chosen(kinds, wanted)
    return [{"data": name, "split": number, **record} for record in _of_split(split, only, models, levels)]


def _of_split(split: Split, only: tuple[str, ...], models: list[Model], levels: tuple[float, ...]) -> Iterator[Record]:
    natural = Fits(split.training())
    once = [model for model in models if not model.by_level]
    if "larger_test_errors" in only:
        for level in levels:
            yield from _compared(
                natural, models, "larger_test_errors", f"x{level:g}", split, split.samples(split.test, level), level
            )
    if "few_samples" in only:
        for n in FEW_ROWS:
            few = split.first(n)
            yield from _compared(Fits(few.training()), once, "few_samples", f"{n} rows", few, few.samples(few.test))
    if "missing_values" in only:
        Z, F = split.samples(split.test)
        for percent in (0, *MISSING):
            gone = split.uniform[split.test] < percent / 100
            seen = np.where(gone, np.nan, Z), np.where(gone, np.inf, F)
            yield from _compared(natural, once, "missing_values", f"{percent} %", split, seen)
    if "bright_to_faint" in only and split.bright is not None:
        faint = split.by_brightness()
        fits, seen = Fits(faint.training()), faint.samples(faint.test)
        yield from _compared(fits, once, "bright_to_faint", "bright to faint", faint, seen)
        for model in (model for model in once if model.name in (OURS, LINEAR)):
            there = fits(model).estimator.refit_population(*seen)  # type: ignore[attr-defined]
            again = model._replace(
                name=f"{model.name}, population of use", fit=lambda *_, there=there: there.predict_proba
            )
            yield from _compared(Fits(faint.training()), [again], "bright_to_faint", "bright to faint", faint, seen)
    if "measured_again" in only:
        yield from _measured_again(natural, split, models)
    if "larger_training_errors" in only:
        noisy = Fits(split.training(level=3.0))
        yield from _compared(noisy, once, "larger_training_errors", "x3 to x1", split, split.samples(split.test))
    if "misstated_errors" in only:
        for factor in MISSTATED:
            fits = Fits(split.training(stated=factor), natural)
            seen = split.samples(split.test, 2.0, factor)
            whole = models + [SCALED] * any(model.name == LINEAR for model in models)
            yield from _compared(fits, whole, "misstated_errors", f"stated x{factor:g}", split, seen, 2.0)


def _compared(
    fits: Fits, models: list[Model], protocol: str, condition: str, split: Split, seen: Any, level: float = 1.0
) -> Iterator[Record]:
    for model in models:
        p = fits(model, level)(*seen)
        yield {
            "protocol": protocol, "condition": condition, "model": model.name, "kind": model.kind,
            "seconds": fits.seconds[model.name], **scores(split.labels, p),
        }  # fmt: skip


def _measured_again(fits: Fits, split: Split, among: list[Model]) -> Iterator[Record]:
    """The test at x3, of which more and more samples are replaced by what they are at x1."""
    noisy, good = split.samples(split.test, 3.0), split.samples(split.test)
    models = {model.name: model for model in among}
    n = len(split.labels)
    at_random = np.random.default_rng(0).uniform(size=n)
    all_orders = {
        OURS: ("by gain", "by own uncertainty", "at random"), LINEAR: ("by gain",), "forest": ("by own uncertainty",)
    }  # fmt: skip
    for name, orders in all_orders.items():
        if name not in models:
            continue
        predict = fits(models[name])
        before, after = predict(*noisy), predict(*good)
        for by in orders:
            worth = {"by own uncertainty": 1 - before.max(axis=1), "at random": at_random}.get(by)
            if worth is None:
                new = np.minimum(good[1], noisy[1])  # errors of asinh of a flux depend on the measured flux
                worth = remeasure_gain(predict.estimator, *noisy, new)  # type: ignore[attr-defined]
            for percent in (0, *AGAIN, 100):
                chosen = np.argsort(-worth, kind="stable")[: round(n * percent / 100)]
                p = before.copy()
                p[chosen] = after[chosen]
                yield {
                    "protocol": "measured_again", "condition": f"{percent} %", "model": f"{name}, {by}",
                    "kind": models[name].kind, "seconds": fits.seconds[name], **scores(split.labels, p),
                }  # fmt: skip


def chosen(kinds: tuple[str, ...], wanted: list[str] | None) -> list[Model]:
    return [model for model in MODELS if model.kind in kinds and (wanted is None or model.name in wanted)]


def of_made_data(width: int, number: int, kinds: tuple[str, ...], names: list[str] | None) -> list[Record]:
    """Samples of a Gaussian population, errors that vary by a factor of ten around half a spread."""
    made = datasets.make_measured(N_TRAIN + N_TEST, width, class_sep=4.0, random_state=number)
    train, test = slice(N_TRAIN), slice(N_TRAIN, None)
    nothing = np.zeros_like(made.X_err)
    wanted = {DECONVOLUTION, "boosting, errors as columns"}
    models = [
        model for model in chosen(kinds, names) if not model.uses_errors or model.kind == "ours" or model.name in wanted
    ]
    oracle = Model("oracle", "oracle", lambda data, level: made.population.predict_proba)
    records = []
    for condition, (X, E), (Z, F) in (
        ("noisy to noisy", (made.X, made.X_err), (made.X, made.X_err)),
        ("clean to noisy", (made.truth, nothing), (made.X, made.X_err)),
        ("noisy to clean", (made.X, made.X_err), (made.truth, nothing)),
    ):
        fits = Fits(Training(X[train], E[train], made.y[train]))
        for model in (oracle, *models):
            p = fits(model)(Z[test], F[test])
            records.append(
                {
                    "protocol": "simulated_samples", "data": f"d={width}", "split": number, "condition": condition,
                    "model": model.name, "kind": model.kind, "seconds": fits.seconds[model.name],
                    **scores(made.y[test], p),
                }
            )  # fmt: skip
    return records


def of_good_and_hopeless(number: int, kinds: tuple[str, ...], names: list[str] | None) -> list[Record]:
    """300 x 20, errors .05 for 30 % of the rows and 2.5 for the others, clean test."""
    made = datasets.make_measured(
        300, 20, pattern="two-level", error=(0.05, 2.5), n_factors=0, class_sep=10.0, n_test=10_000, random_state=number
    )
    good = np.arange(300) < 90
    models = [model for model in chosen(kinds, names) if not model.by_level]
    models.append(Model("LogisticRegression, good rows alone", "good rows", _good_rows(good)))
    fits = Fits(Training(made.X, made.X_err, made.y))
    records = []
    for model in models:
        p = fits(model)(made.X_test, np.zeros_like(made.X_test))
        records.append(
            {
                "protocol": "few_precise_samples", "data": "300 x 20", "split": number, "condition": "clean test",
                "model": model.name, "kind": model.kind, "seconds": fits.seconds[model.name], **scores(made.y_test, p),
            }
        )  # fmt: skip
    return records


def _good_rows(good: np.ndarray) -> Callable[[Training, float], Predictor]:
    def fit(data: Training, level: float) -> Predictor:
        return plain(LogisticRegression(max_iter=1000))(Training(data.X[good], data.E[good], data.y[good]), level)

    return fit


# --- tables -------------------------------------------------------------------------------------------------


class Results:
    """Records by protocol, data and condition: arrays over the splits."""

    def __init__(self, records: list[Record]) -> None:
        self.cells: dict[tuple[str, str], dict[str, dict[str, list[Record]]]] = {}
        self.kinds: dict[str, str] = {}
        known = {model.name: model.kind for model in MODELS}
        keys = ("protocol", "data", "condition", "model", "split")
        last = {tuple(record[key] for key in keys): record for record in records}
        for record in sorted(last.values(), key=lambda record: record["split"]):
            table = self.cells.setdefault((record["protocol"], record["data"]), {})
            table.setdefault(record["condition"], {}).setdefault(record["model"], []).append(record)
            self.kinds[record["model"]] = known.get(record["model"], record["kind"])

    def values(self, protocol: str, data: str, condition: str, model: str, score: str) -> np.ndarray:
        return np.array([record[score] for record in self.cells[protocol, data][condition][model]])

    def mean(self, *key: str) -> float:
        return float(self.values(*key).mean())

    def has(self, protocol: str, data: str) -> bool:
        return (protocol, data) in self.cells

    def measured(self, protocol: str, data: str, condition: str, *models: str) -> bool:
        """Whether all these models were measured there."""
        return set(models) <= set(self.cells.get((protocol, data), {}).get(condition, {}))

    def comparable(self, protocol: str, data: str, condition: str) -> bool:
        """Whether ours was measured there, and some baseline."""
        models = self.cells.get((protocol, data), {}).get(condition, {})
        return OURS in models and any(self.kinds[name] == "baseline" for name in models)

    def best(self, protocol: str, data: str, condition: str, kind: str) -> str:
        """The model of a kind with the least mean log loss."""
        models = [name for name in self.cells[protocol, data][condition] if self.kinds[name] == kind]
        return min(models, key=lambda name: self.mean(protocol, data, condition, name, "log_loss"))

    def difference(self, first: tuple[str, ...], second: tuple[str, ...], score: str) -> tuple[float, float]:
        """Mean and standard error of the paired differences over the splits that both have."""
        tables = [
            {record["split"]: record[score] for record in self.cells[protocol, data][condition][model]}
            for protocol, data, condition, model in (first, second)
        ]
        both = sorted(tables[0].keys() & tables[1].keys())
        apart = np.array([tables[0][split] - tables[1][split] for split in both])
        return float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else np.nan

    def summary(self) -> list[Record]:
        rows = []
        for (protocol, data), table in self.cells.items():
            for condition, models in table.items():
                row: Record = {"protocol": protocol, "data": data, "condition": condition}
                for name, records in models.items():
                    means = {
                        score: float(np.mean([record[score] for record in records]))
                        for score in ("accuracy", "log_loss", "brier", "seconds")
                    }
                    rows.append({**row, "model": name, "kind": self.kinds[name], "splits": len(records), **means})
        return rows


def pm(pair: tuple[float, float]) -> str:
    return f"{pair[0]:+.4f} ± {pair[1]:.4f}"


def ratio(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """The ratio of two sums over splits, and its standard error: that of the mean residual ``part - ratio whole``."""
    if not wholes.mean() > 0:
        return np.nan, np.nan
    found = float(parts.mean() / wholes.mean())
    left = parts - found * wholes
    return found, float(left.std(ddof=1) / np.sqrt(len(left)) / wholes.mean()) if len(left) > 1 else np.nan


def show_table(results: Results, protocol: str, data: str, out: Any) -> None:
    table = results.cells[protocol, data]
    conditions = list(table)
    n_splits = len(next(iter(table[conditions[0]].values())))
    print(f"\n### {protocol}, {data}: log loss (accuracy), mean of {n_splits} splits\n", file=out)
    print(f"| model | {' | '.join(conditions)} |\n|---|{'---|' * len(conditions)}", file=out)
    names = list(dict.fromkeys(name for condition in conditions for name in table[condition]))
    least = {c: min(results.mean(protocol, data, c, name, "log_loss") for name in table[c]) for c in conditions}
    for name in names:
        cells = []
        for condition in conditions:
            if name not in table[condition]:
                cells.append("")
                continue
            loss, accuracy = (results.mean(protocol, data, condition, name, s) for s in ("log_loss", "accuracy"))
            text = f"{loss:.3f} ({accuracy:.3f})"
            cells.append(f"**{text}**" if loss == least[condition] else text)
        mark = {"ours": " *", "deconvolution": " +"}.get(results.kinds[name], "")
        print(f"| {name}{mark} | {' | '.join(cells)} |", file=out)
    if protocol in (
        "larger_test_errors",
        "larger_training_errors",
        "bright_to_faint",
        "missing_values",
        "misstated_errors",
    ) and {"baseline", "ours"} <= {results.kinds[name] for name in names}:
        print(
            f"\n{OURS} minus the best baseline of the condition, and minus extreme deconvolution, paired:\n", file=out
        )
        print(
            "| condition | best baseline | log loss | accuracy | log loss | accuracy |\n|---|---|---|---|---|---|",
            file=out,
        )
        for condition in conditions:
            if not results.comparable(protocol, data, condition):
                continue
            best = results.best(protocol, data, condition, "baseline")
            mine = (protocol, data, condition, OURS)
            apart = [
                pm(results.difference(mine, (protocol, data, condition, other), score))
                for other in (best, DECONVOLUTION)
                for score in ("log_loss", "accuracy")
                if other in table[condition]
            ]
            apart += [""] * (4 - len(apart))
            print(f"| {condition} | {best} | {' | '.join(apart)} |", file=out)


def bars(results: Results) -> list[Record]:
    """What must be shown, and whether it is."""
    found: list[Record] = []

    def bar(what: str, met: bool, measured: str) -> None:
        found.append({"bar": what, "met": bool(met), "measured": measured})

    for protocol, data in results.cells:
        if protocol == "larger_test_errors":
            _bars_of_noise(results, data, bar)
        if protocol == "simulated_samples":
            for condition in results.cells[protocol, data]:
                if not results.measured(protocol, data, condition, OURS, "oracle"):
                    continue
                apart = results.difference(
                    (protocol, data, condition, OURS), (protocol, data, condition, "oracle"), "log_loss"
                )
                bar(
                    f"simulated_samples {data}, {condition}: log loss within 0.01 of the oracle",
                    apart[0] <= 0.01,
                    pm(apart),
                )
    for name in (OURS, LINEAR):
        order = f"{name}, by gain"
        if not results.has("measured_again", "fermi") or order not in results.cells["measured_again", "fermi"]["0 %"]:
            continue
        none, some, everything = (
            results.values("measured_again", "fermi", f"{percent} %", order, "accuracy") for percent in (0, 10, 100)
        )
        share, error = ratio(some - none, everything - none)
        # As printed: a sum of accuracies has rounding errors, and a share of exactly 80 % is one.
        bar(
            f"measured_again fermi: {name}: 10 % measured again have 80 % of the gain of all", round(share, 3) >= 0.8,
            f"{share:.1%} ± {error:.1%}: {none.mean():.4f}, {some.mean():.4f}, {everything.mean():.4f}",
        )  # fmt: skip
    key, good = ("few_precise_samples", "300 x 20", "clean test"), "LogisticRegression, good rows alone"
    if results.measured(*key, OURS, good):
        apart = results.difference((*key, OURS), (*key, good), "accuracy")
        bar("few_precise_samples: accuracy within 0.01 of fitting the good rows alone", apart[0] >= -0.01, pm(apart))
    return found


def _bars_of_noise(results: Results, data: str, bar: Callable[[str, bool, str], None]) -> None:
    """Ours against the best baseline that is not trained at the noise of use: level as measured, ahead under more.

    The default against baselines that do not use the sizes of errors, ``use_error_sizes=True`` against all.
    """
    for name, condition in itertools.product((OURS, SIZES), ("x1", "x2", "x3")):
        key = ("larger_test_errors", data, condition)
        others = [
            other
            for other, kind in results.kinds.items()
            if kind != "ours" and "trained at" not in other and results.measured(*key, other)
            if name == SIZES or "errors as columns" not in other
        ]
        if not others or not results.measured(*key, name):
            continue
        for score, sign, wanted in (("log_loss", -1, 1 if condition == "x1" else -2), ("accuracy", 1, 1)):
            best = max(others, key=lambda other: sign * results.mean(*key, other, score))
            mean, error = results.difference((*key, name), (*key, best), score)
            words = "within one s.e. of" if wanted == 1 else "ahead by two s.e. of"
            bar(
                f"{data} {condition}: {score.replace('_', ' ')} of {name} {words} {best}",
                -sign * mean <= wanted * error,
                pm((mean, error)),
            )


def show(records: list[Record], out: Any) -> list[Record]:
    results = Results(records)
    for protocol in PROTOCOLS:
        for data in (data for known, data in results.cells if known == protocol):
            show_table(results, protocol, data, out)
    found = bars(results) if {"baseline", "ours"} <= set(results.kinds.values()) else []
    print("\nRows marked \\* are ours, rows marked + are baselines that use our populations.", end=" ", file=out)
    print("\n\n### Goals\n\n| goal | | measured |\n|---|---|---|", file=out)
    for row in found:
        print(f"| {row['bar']} | {'met' if row['met'] else '**not met**'} | {row['measured']} |", file=out)
    return found


# --- command ------------------------------------------------------------------------------------------------


Job = tuple[Callable[..., list[Record]], tuple[Any, ...]]


def jobs(options: argparse.Namespace, done: set[tuple[Any, ...]]) -> list[Job]:
    """Return what is to be measured and is not done: one model of one split each."""
    real = tuple(name for name in options.only if name not in ("simulated_samples", "few_precise_samples"))
    todo: list[Job] = []
    for number, model in itertools.product(range(options.splits), chosen(options.kinds, options.model)):
        rest = options.kinds, [model.name]
        if real:
            todo += [
                (of_real_data, (name, number, real, options.levels, *rest))
                for name in options.data
                if (name, number, model.name) not in done
            ]
        if "few_precise_samples" in options.only and ("300 x 20", number, model.name) not in done:
            todo.append((of_good_and_hopeless, (number, *rest)))
        if "simulated_samples" in options.only:
            todo += [
                (of_made_data, (width, number, *rest))
                for width in WIDTHS
                if (f"d={width}", number, model.name) not in done
            ]
    return todo


def _timed(function: Callable[..., list[Record]], *given: Any) -> tuple[str, float, list[Record]]:
    quiet()
    began = time.perf_counter()
    with threadpool_limits(1):
        records = function(*given)
    return f"{function.__name__}{given[:2]}, {given[-1][0]}", time.perf_counter() - began, records


def known_records(path: Path | None, settings: Record) -> list[Record]:
    """Return the records of a file that was written with the same protocols and levels, if there is one."""
    if path is None or not path.exists():
        return []
    stored = json.loads(path.read_text())
    for key in ("only", "levels"):
        if list(settings[key]) != stored["settings"].get(key):
            raise SystemExit(f"{path} was written with other settings, --{key} {stored['settings'].get(key)}")
    return list(stored["records"])


def names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        unknown = [name for name in given if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown} not among {list(known)}")
        return given

    return parse


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", type=names(PROTOCOLS), default=PROTOCOLS, help="protocols, with commas")
    parser.add_argument("--levels", type=numbers, default=LEVELS, help="of larger_test_errors, with commas")
    parser.add_argument("--data", type=names(tuple(REAL)), default=BARRED, help="data sets, with commas")
    parser.add_argument("--kinds", type=names(KINDS), default=KINDS, help="of models, with commas")
    parser.add_argument("--model", action="append", help="measure these alone", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="written after every split")
    parser.add_argument("--show", type=Path, nargs="+", help="files to show instead of measuring")
    options = parser.parse_args()
    if options.show:
        show([record for path in options.show for record in json.loads(path.read_text())["records"]], sys.stdout)
        return
    settings = {key: getattr(options, key) for key in ("splits", "only", "levels", "data", "kinds")}
    records = known_records(options.json, settings)
    todo = jobs(options, {(record["data"], record["split"], record["model"]) for record in records})
    results = Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(_timed)(function, *given) for function, given in todo
    )
    for done, (name, seconds, some) in enumerate(results, start=1):
        records += some
        print(f"{done} of {len(todo)}: {name}, {seconds:.0f} s", file=sys.stderr, flush=True)
        if options.json:
            part = options.json.with_suffix(".part")
            part.write_text(json.dumps({"settings": settings, "records": records}))
            part.replace(options.json)
    found = show(records, sys.stdout)
    if options.json:
        summary = Results(records).summary()
        options.json.write_text(
            json.dumps({"settings": settings, "summary": summary, "bars": found, "records": records})
        )


if __name__ == "__main__":
    main()
