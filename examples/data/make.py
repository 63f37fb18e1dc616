"""Make the tables of the command's examples: stars.csv and test_stars.csv, with classes, and new_stars.csv, without.

    python examples/data/make.py

Stars that pulsate and stars that do not: three quantities with errors, of which some were not measured, and one that is
exact. The new stars and the test stars were measured worse: their errors are twice as large.
"""

from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent


def stars(rng, n, error):
    """Return n stars whose errors are around this size."""
    pulsates = rng.random(n) < 0.4
    log_flux = rng.normal(0.3, 0.7, size=n)
    colour = 0.6 * log_flux + 0.5 * pulsates + rng.normal(0, 0.4, size=n)
    variability = 0.9 * pulsates - 0.4 * log_flux + rng.normal(0, 0.35, size=n)
    table = pd.DataFrame({"name": [f"S{i:04}" for i in range(n)], "class": np.where(pulsates, "pulsating", "steady")})
    for name, truth in (("log_flux", log_flux), ("colour", colour), ("variability", variability)):
        err = error * np.exp(rng.normal(-0.5 * log_flux, 0.5))
        value = truth + err * rng.normal(size=n)
        value[rng.random(n) < 0.05] = np.nan
        table[name] = value.round(3)
        table[name + "_err"] = np.where(np.isnan(value), np.nan, err.round(3))
    table["n_neighbours"] = rng.poisson(2, size=n)
    return table


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    stars(rng, 400, 0.25).to_csv(HERE / "stars.csv", index=False)
    stars(rng, 100, 0.5).drop(columns="class").to_csv(HERE / "new_stars.csv", index=False)
    stars(rng, 200, 0.5).to_csv(HERE / "test_stars.csv", index=False)
