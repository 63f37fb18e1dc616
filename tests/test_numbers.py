"""Numbers of README.md and of the pages are those of benchmarks/results."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import tables  # noqa: E402

# Where every number of three decimals must be one of the results.
TIED = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "benchmarks.md"]


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tables_and_numbers_are_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "python benchmarks/tables.py"


@pytest.mark.parametrize("page", TIED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_number_is_typed(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = tables.TABLE.sub("", text)
    assert re.findall(r".{0,40}(?<!\d)0?\.\d{3}(?!\d|\**<!--= )", text) == []


def test_a_wrong_number_is_replaced():
    key = "koi x3 | ErrorBarClassifier"
    right = f"{tables.look_up(key):.3f}"
    assert tables.filled(f"**0.999**<!--= {key} -->") == f"**{right}**<!--= {key} -->"
    assert tables.filled(f".9<!--= {key} -->") == f"{tables.look_up(key):.1f}"[1:] + f"<!--= {key} -->"
    with pytest.raises(KeyError, match="0 results of 'koi x9'"):
        tables.filled("0.1<!--= koi x9 | forest -->")


def test_measured_results_replace_old_ones(tmp_path, monkeypatch):
    """Means, and differences over the splits that both have, of records of benchmarks/error_bars.py."""
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    losses = {tables.OURS: [0.2, 0.3, 0.4], "forest": [0.3, 0.5, 0.4]}
    records = [
        {"protocol": "larger_test_errors", "data": "koi", "condition": "x1", "model": model, "split": split,
         "log_loss": loss, "kind": "ours" if model == tables.OURS else "baseline", "accuracy": 1 - loss}
        for model, values in losses.items() for split, loss in enumerate(values)
    ]  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps({"records": records}))
    for _ in range(2):
        tables.add(tmp_path / "run.json")
    found = tables.Benchmark("larger_test_errors")
    assert len(found.rows) == 2
    assert found.value("koi x1", tables.OURS) == 0.3
    assert found.value("koi x1", "forest", "accuracy") == 0.6
    assert found.value("koi x1", f"{tables.OURS} - forest") == -0.1
    assert found.value("koi x1", f"{tables.OURS} - forest", "error") == pytest.approx(0.01**0.5 / 3**0.5, abs=1e-4)
