"""Predicted against observed accuracy, by the size of the errors of a sample.

    python benchmarks/calibration.py --splits 5 --data fermi,koi --json benchmarks/results/calibration.json

Samples of the splits of benchmarks/error_bars.py, as measured and with three times the noise, in quarters by the mean
size of their errors in units of the spreads of training. "Predicted" is the mean of the largest probability of
``ErrorBarClassifier()``, "observed" the share of samples that it predicts right; z is their difference in standard
errors. A sample may be a test sample of several splits: its deviations are added before they are squared. A file that
``--json`` names keeps its rows of other data.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from error_bars import REAL, Split
from measured_models import ours, quiet

LEVELS, QUARTERS = (1.0, 3.0), 4


def quarters(name: str, n_splits: int) -> list[dict[str, str | int | float]]:
    """Return predicted and observed accuracies of the quarters of a data set, at each level of noise."""
    found: dict[float, list[np.ndarray]] = {level: [] for level in LEVELS}
    for number in range(n_splits):
        split = Split(name, number)
        data = split.training()
        predict = ours()(data, 1.0)
        spreads = np.nanstd(data.X, axis=0)
        for level in LEVELS:
            X, E = split.samples(split.test, level)
            p = predict(X, E)
            size = np.nanmean(np.where(np.isfinite(E), E / spreads, np.nan), axis=1)
            found[level].append(np.column_stack([size, p.max(axis=1), p.argmax(axis=1) == split.labels, split.test]))
    result = []
    for level, parts in found.items():
        rows = np.concatenate(parts)
        for quarter, part in enumerate(np.array_split(rows[np.argsort(rows[:, 0])], QUARTERS), start=1):
            predicted, observed = part[:, 1].mean(), part[:, 2].mean()
            of_samples = np.bincount(part[:, 3].astype(int), part[:, 2] - part[:, 1])
            z = (observed - predicted) * len(part) / np.sqrt(np.square(of_samples).sum())
            numbers = {"predicted": round(predicted, 3), "observed": round(observed, 3), "z": round(z, 1)}
            place = {"data": name, "condition": f"x{level:g}", "quarter": quarter, "splits": n_splits}
            result.append({**place, **{key: float(value) for key, value in numbers.items()}})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--data", default=",".join(REAL), help="data sets, with commas")
    parser.add_argument("--json", type=Path, help="written after every data set")
    options = parser.parse_args()
    quiet()
    rows = json.loads(options.json.read_text())["summary"] if options.json and options.json.exists() else []
    for name in options.data.split(","):
        rows = [row for row in rows if row["data"] != name] + (new := quarters(name, options.splits))
        for row in new:
            print(" | ".join(map(str, row.values())), flush=True)
        if options.json:
            lines = ",\n  ".join(json.dumps(row) for row in rows)
            options.json.write_text(f'{{\n "summary": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
