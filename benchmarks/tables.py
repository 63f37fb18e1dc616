"""The numbers of benchmarks/results, in tables and in the text of README.md and of pages.

    python benchmarks/tables.py                  # fills in all tables and numbers again
    python benchmarks/tables.py --add run.json   # takes what benchmarks/error_bars.py measured, then fills in

In a text, ``0.267<!--= koi x3 | ErrorBarClassifier -->`` is the mean log loss of a model under a condition of
``larger_test_errors``; other numbers name more::

    <!--= missing_values: fermi 30 % | forest | accuracy -->
    <!--= koi x3 | ErrorBarClassifier - CatBoost -->              a paired difference, and "| error" its standard error
    <!--= speed: covtype | sigma = 0.1 scale -->                  seconds; or "ms", or "ratio" to the fastest peer

Numbers keep the decimals that they have. A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
"""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OURS, LINEAR, SIZES = "ErrorBarClassifier", "ErrorBarClassifier, linear", "ErrorBarClassifier, error sizes used"
DECONVOLUTION = "extreme deconvolution of each class"
# Protocols of benchmarks/error_bars.py, which name the files of their results, and their titles on pages.
PROTOCOLS = {
    "larger_test_errors": "Test errors 1, 2 and 3 times as large as measured",
    "larger_training_errors": "Training errors three times as large, test samples as measured",
    "bright_to_faint": "Trained on bright samples, tested on faint ones",
    "missing_values": "A share of the test values missing",
    "measured_again": "Test errors three times as large, a share of the samples measured again",
    "misstated_errors": "Errors stated half or twice as large as they are, test errors twice as large",
    "simulated_samples": "Simulated samples, with the best possible classifier",
    "few_samples": "Trained on few samples",
    "few_precise_samples": "A few precise and many noisy training samples, exact test samples",
}
DATA = {
    "fermi": "Fermi sources, pulsar or galaxy", "blazar": "Fermi sources, quasar or BL Lac",
    "wdbc": "breast tumours", "koi": "Kepler objects, planet or not", "snpcc": "supernovae, type Ia or not",
    "chandra": "Chandra sources, galaxy or young star", "chandra8": "Chandra sources, eight classes",
    "d=2": "2 features", "d=6": "6 features", "d=30": "30 features",
}  # fmt: skip
NUMBER = re.compile(r"([+-]?\d*\.?\d+)(\**)<!--= ?(.+?) ?-->")
TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Row = dict[str, Any]


class Benchmark:
    """What one file of benchmarks/results holds."""

    def __init__(self, name: str) -> None:
        path = RESULTS / f"{name}.json"
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.name, self.rows, self.pairs = name, content.get("summary", []), content.get("differences", [])
        self.results = content.get("results", [])

    def value(self, where: str, model: str, score: str = "log_loss") -> float:
        """Return a mean, a paired difference ("first - second") or its standard error."""
        first, _, other = model.partition(" - ")
        if other:
            wanted, score = ("error", "log_loss") if score == "error" else ("mean", score)
            return _only(self.pairs, where, {"model": first, "other": other, "score": score})[wanted]
        if self.results:
            return self.seconds(where, model, score)
        if score == "splits":
            return _only(self.rows, where, {"model": model})["splits"]
        found = _only(self.rows, where, {"model": model})[score.removesuffix(" %")]
        return 100 * found if score.endswith(" %") else found

    def seconds(self, problem: str, solver: str, unit: str) -> float:
        """Return the time of a fit, or how many times as long the fastest peer takes."""
        times = [row for row in self.results if row["problem"].startswith(problem)]
        fastest = min((row["seconds"] for row in times if row["peer"]), default=0.0)
        if solver == "fastest peer":
            return fastest * (1000 if unit == "ms" else 1)
        (mine,) = (row["seconds"] for row in times if row["solver"] == solver)
        return {"ms": 1000 * mine, "ratio": fastest / mine}.get(unit, mine)

    def models(self, data: str) -> list[str]:
        return list(dict.fromkeys(row["model"] for row in self.rows if row["data"] == data))

    def save(self) -> None:
        parts = [("summary", self.rows), ("differences", self.pairs)]
        lists = [
            f' "{key}": [\n  ' + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n ]"
            for key, rows in parts
            if rows
        ]
        text = "{\n" + ",\n".join(lists) + "\n}\n"
        (RESULTS / f"{self.name}.json").write_text(text, encoding="utf-8")


def _only(rows: list[Row], where: str, wanted: Row) -> Row:
    found = [
        row
        for row in rows
        if where == f"{row['data']} {row['condition']}" and all(row[key] == value for key, value in wanted.items())
    ]
    if len(found) != 1:
        raise KeyError(f"{len(found)} results of {where!r} with {wanted}")
    return found[0]


def look_up(key: str) -> float:
    """Return the number that a comment in a text names."""
    name, colon, rest = key.rpartition(": ")
    return Benchmark(name if colon else "larger_test_errors").value(*(part.strip() for part in rest.split(" | ")))


# --- tables -------------------------------------------------------------------------------------------------


def markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def comparison(benchmark: Benchmark, data: str) -> str:
    """Return a table of log losses (accuracies), the least of each condition in bold type."""
    rows = [row for row in benchmark.rows if row["data"] == data]
    conditions = list(dict.fromkeys(row["condition"] for row in rows))
    least = {c: min(row["log_loss"] for row in rows if row["condition"] == c) for c in conditions}
    marks = {row["model"]: {"ours": " *", "deconvolution": " +"}.get(row["kind"], "") for row in rows}
    cells = {(row["model"], row["condition"]): row for row in rows}

    def cell(model: str, condition: str) -> str:
        row = cells.get((model, condition))
        if row is None:
            return ""
        text = f"{row['log_loss']:.3f}" + (f" ({row['accuracy']:.3f})" if "accuracy" in row else "")
        return f"**{text}**" if row["log_loss"] == least[condition] else text

    return markdown(["model", *conditions], [[m + marks[m], *(cell(m, c) for c in conditions)] for m in marks])


def differences(benchmark: Benchmark, data: str) -> str:
    """Return a table of paired differences, of log loss and of accuracy."""
    pairs: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in benchmark.pairs:
        if row["data"] == data:
            pair = pairs.setdefault((row["condition"], row["model"], row["other"]), {})
            pair[row["score"]] = f"{row['mean']:+.4f} ± {row['error']:.4f}"
    rows = [[*key, pair.get("log_loss", ""), pair.get("accuracy", "")] for key, pair in pairs.items()]
    return markdown(["condition", "model", "minus", "log loss", "accuracy"], rows)


def behind() -> str:
    """Return a table of the conditions in which the default is not ahead of another classifier by two errors."""
    benchmark = Benchmark("larger_test_errors")
    rows = [
        [DATA[row["data"]], row["condition"], row["other"], f"{row['mean']:+.4f} ± {row['error']:.4f}",
         "behind" if row["mean"] > row["error"] else "level" if row["mean"] > -2 * row["error"] else ""]
        for row in benchmark.pairs
        if row["model"] == OURS and row["score"] == "log_loss" and row["mean"] > -2 * row["error"]
    ]  # fmt: skip
    return markdown(["data", "errors", "compared with", "difference of log loss", ""], rows)


def headline() -> str:
    """Return the table of the front page."""
    benchmark, data = Benchmark("larger_test_errors"), {"fermi": "Fermi", "koi": "Kepler"}
    columns = [(name, condition) for name in data for condition in ("x1", "x2", "x3")]
    names = {
        OURS: "`ErrorBarClassifier()`", "CatBoost": "CatBoost", "boosting, tuned": "boosting, tuned",
        "forest": "random forest", DECONVOLUTION: "one deconvolved mixture per class",
        LINEAR: '`ErrorBarClassifier(model="linear")`',
    }  # fmt: skip
    least = {pair: min(benchmark.value(" ".join(pair), name) for name in names) for pair in columns}

    def cell(pair: tuple[str, str], name: str) -> str:
        loss = benchmark.value(" ".join(pair), name)
        text = f"**{loss:.3f}**" if loss == least[pair] else f"{loss:.3f}"
        return f"{text} ({benchmark.value(' '.join(pair), name, 'accuracy %'):.1f})"

    head = ["", *(f"{data[name]} {condition}" for name, condition in columns)]
    return markdown(head, [[words, *(cell(pair, name) for pair in columns)] for name, words in names.items()])


def speed() -> str:
    """Return the table of times, in milliseconds."""
    rows = Benchmark("speed").results
    solvers = ["LinearSVC", "LogisticRegression", "newton-cholesky", "SGDClassifier"]
    ours = ["sigma = 0.1 scale", "sigma = 1 scale"]
    table = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        times = {row["solver"]: row["seconds"] for row in rows if row["problem"] == problem}
        peer = min(seconds for solver, seconds in times.items() if solver not in ours)
        cells = [f"{1e3 * times[s]:.{1 if times[s] < 0.02 else 0}f}" if s in times else "" for s in (*solvers, *ours)]
        ratios = [peer / times[solver] for solver in ours]
        table.append([problem, *cells, ", ".join(f"{r:.2f}" if r < 1 else f"{r:.1f}" for r in ratios)])
    return markdown(["problem", *solvers[:2], "newton-cholesky", "SGD", "sigma 0.1", "sigma 1", "ratio"], table)


def large_problems() -> str:
    """Return the table of large dense problems, in seconds."""
    names = ["gaussian, 200,000 x 100", "gaussian, 1,000,000 x 10", "covtype, 581,012 x 54", "mnist, even or odd"]
    times = Benchmark("speed")
    rows = []
    for name in names:
        (whole,) = {row["problem"] for row in times.results if row["problem"].startswith(name)}
        mine, peer = times.value(name, "sigma = 0.1 scale", "s"), times.value(name, "fastest peer", "s")
        rows.append([whole, f"{mine:.2f} s", f"{peer:.2f} s"])
    return markdown(["problem", "`GuruClassifier`", "fastest linear classifier of scikit-learn"], rows)


def calibration() -> str:
    """Return the table of predicted and observed accuracies."""
    head = ["data", "condition", "quarter", "predicted", "observed", "z"]
    forms = {"predicted": ".3f", "observed": ".3f", "z": "+.1f"}
    rows = [[format(row[key], forms.get(key, "")) for key in head] for row in Benchmark("calibration").rows]
    return markdown(["data", "errors", *head[2:]], rows)


TABLES: dict[str, Callable[[], str]] = {
    "headline": headline, "speed": speed, "large problems": large_problems, "behind": behind,
    "calibration": calibration,
}  # fmt: skip


def all_tables() -> str:
    """Return the page of all tables."""
    parts = []
    for name, title in PROTOCOLS.items():
        benchmark = Benchmark(name)
        if not benchmark.rows:
            continue
        parts.append(f"## {title}")
        for data in dict.fromkeys(row["data"] for row in benchmark.rows):
            splits = sorted({row["splits"] for row in benchmark.rows if row["data"] == data})
            words = DATA.get(data, data)
            parts.append(f"### {words[0].upper()}{words[1:]}: mean of {' or '.join(map(str, splits))} splits")
            parts.append(comparison(benchmark, data))
            if any(row["data"] == data for row in benchmark.pairs):
                parts += ["Paired differences:", differences(benchmark, data)]
    parts += ["## Predicted and observed accuracy, by quarters of the size of errors", calibration()]
    return "\n\n".join(parts) + "\n"


# --- texts --------------------------------------------------------------------------------------------------


def filled(text: str) -> str:
    """Return a text with its tables and numbers as the results are."""

    def number(match: re.Match[str]) -> str:
        old, bold, key = match.groups()
        decimals = len(old.partition(".")[2])
        new = f"{look_up(key):{'+' if old[0] in '+-' else ''}.{decimals}f}"
        new = new.replace("0.", ".", 1) if re.match(r"[+-]?\.", old) else new
        return f"{new}{bold}<!--= {key} -->"

    text = TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n\n{match[3]}", text)
    return NUMBER.sub(number, text)


def pages() -> list[Path]:
    """Return the texts that may have numbers."""
    own = [path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "auto_examples"} & set(path.parts)]
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(own)]


def add(path: Path) -> None:
    """Take what benchmarks/error_bars.py measured: it replaces results of the same data, condition and model."""
    records = json.loads(path.read_text(encoding="utf-8"))["records"]
    for protocol in dict.fromkeys(record["protocol"] for record in records):
        benchmark = Benchmark(protocol)
        measured: dict[tuple[str, str], dict[str, dict[int, Row]]] = {}
        for record in (record for record in records if record["protocol"] == protocol):
            models = measured.setdefault((record["data"], record["condition"]), {})
            models.setdefault(record["model"], {})[record["split"]] = record
        for place, models in measured.items():
            for model, splits in models.items():
                means = {s: round(_mean([row[s] for row in splits.values()]), 4) for s in ("log_loss", "accuracy")}
                row = {"model": model, "kind": next(iter(splits.values()))["kind"], "splits": len(splits), **means}
                _replace(benchmark.rows, {"data": place[0], "condition": place[1], **row}, ("model",))
            if OURS in models:
                _add_differences(benchmark, place, models)
        benchmark.save()


def _add_differences(benchmark: Benchmark, place: tuple[str, str], models: dict[str, dict[int, Row]]) -> None:
    """Compare the default with deconvolution and with the best baseline, over the splits that both have."""
    kinds = {model: next(iter(splits.values()))["kind"] for model, splits in models.items()}
    losses = {m: _mean([row["log_loss"] for row in splits.values()]) for m, splits in models.items()}
    baselines = sorted((m for m in models if kinds[m] == "baseline" and "trained at" not in m), key=losses.__getitem__)
    for other in [*baselines[:1], *([DECONVOLUTION] if DECONVOLUTION in models else [])]:
        both = sorted(models[OURS].keys() & models[other].keys())
        if len(both) < 2:
            continue
        for score in ("log_loss", "accuracy"):
            apart = [models[OURS][k][score] - models[other][k][score] for k in both]
            mean = _mean(apart)
            error = (_mean([(x - mean) ** 2 for x in apart]) / (len(both) - 1)) ** 0.5
            pair = {"model": OURS, "other": other, "score": score, "mean": round(mean, 4), "error": round(error, 4)}
            row = {"data": place[0], "condition": place[1], **pair}
            _replace(benchmark.pairs, row, ("model", "other", "score"))


def _replace(rows: list[Row], new: Row, keys: tuple[str, ...]) -> None:
    wanted = ("data", "condition", *keys)
    same = [k for k, row in enumerate(rows) if all(row[key] == new[key] for key in wanted)]
    if same:
        rows[same[0]] = new
    else:
        rows.append(new)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE")
    for path in parser.parse_args().add:
        add(path)
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
