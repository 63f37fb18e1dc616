"""Predicted against observed accuracy, by the size of the errors of a sample.

    python benchmarks/calibration.py --splits 5 --data fermi,koi

Samples of the splits of benchmarks/error_bars.py, as measured and with three times the noise, in quarters by the mean
size of their errors in units of the spreads of training. "Predicted" is the mean of the largest probability of
``ErrorBarClassifier()``, "observed" the share of samples that it predicts right; z is their difference in standard
errors, the root of ``mean p (1 - p) / n``. Test samples of several splits overlap: z may be too large by a factor of up
to sqrt(splits).
"""

import argparse

import numpy as np
from error_bars import REAL, Split
from measured_models import ours, quiet

LEVELS, QUARTERS = (1.0, 3.0), 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--data", default=",".join(REAL), help="data sets, with commas")
    options = parser.parse_args()
    quiet()
    print("| data | errors | quarter | predicted | observed | z |\n|---|---|---|---|---|---|")
    for name in options.data.split(","):
        found: dict[float, list[np.ndarray]] = {level: [] for level in LEVELS}
        for number in range(options.splits):
            split = Split(name, number)
            data = split.training()
            predict = ours()(data, 1.0)
            spreads = np.nanstd(data.X, axis=0)
            for level in LEVELS:
                X, E = split.samples(split.test, level)
                p = predict(X, E)
                size = np.nanmean(np.where(np.isfinite(E), E / spreads, np.nan), axis=1)
                found[level].append(np.column_stack([size, p.max(axis=1), p.argmax(axis=1) == split.labels]))
        for level, parts in found.items():
            rows = np.concatenate(parts)
            for quarter, part in enumerate(np.array_split(rows[np.argsort(rows[:, 0])], QUARTERS), start=1):
                predicted, observed = part[:, 1].mean(), part[:, 2].mean()
                error = np.sqrt(np.mean(part[:, 1] * (1 - part[:, 1])) / len(part))
                z = (observed - predicted) / error
                print(f"| {name} | x{level:g} | {quarter} | {predicted:.3f} | {observed:.3f} | {z:+.1f} |", flush=True)


if __name__ == "__main__":
    main()
