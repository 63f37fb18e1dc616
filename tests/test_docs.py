"""Examples in docstrings and in the README run as they are printed."""

import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest
import sklearn

import gaussguru
from gaussguru.losses import Gaussian

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gaussguru.__path__, "gaussguru.")
    if "__main__" not in module.name and "_native" not in module.name
)


@pytest.mark.parametrize("name", ["gaussguru", *MODULES])
def test_docstrings(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def test_public_classes_have_an_example():
    public = [getattr(gaussguru, name) for name in gaussguru.__all__ if name[0].isupper() and "Warning" not in name]
    assert [cls.__name__ for cls in public if ">>>" not in (cls.__doc__ or "")] == []


def blocks_of_readme():
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_first_example_alone(capsys):
    """It is short, needs nothing else, and prints what it says."""
    first = blocks_of_readme()[0]
    assert first.count("\n") < 10
    exec(compile(first, str(README), "exec"), {})
    told = re.findall(r"\d\.\d+", first.rsplit("#", 1)[1])
    printed = re.findall(r"\d\.\d+", capsys.readouterr().out)
    assert [f"{float(value):.2f}" for value in printed] == told


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/promises.md", "benchmarks/README.md"])
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).is_file(), target


def test_pictures_are_small():
    assert all(path.stat().st_size < 100_000 for path in (ROOT / "docs").glob("*.png"))


def test_readme(tmp_path, monkeypatch, capsys):
    """All blocks, one after another, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    blocks = blocks_of_readme()
    assert len(blocks) >= 8
    names = {"my_loss": Gaussian()}  # the reader's own
    with sklearn.config_context():  # a block turns metadata routing on
        for block in blocks:
            with warnings.catch_warnings():
                # The first epochs of a stream are not the optimum, and some blocks show classifiers that collapse.
                warnings.simplefilter("ignore", UserWarning)
                exec(compile(block, str(README), "exec"), names)
    assert "nan" not in capsys.readouterr().out
