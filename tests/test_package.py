"""The package as a whole: its names, and which module may import which."""

import ast
import importlib.metadata
from pathlib import Path

import pytest

import gaussguru

ROOT = Path(gaussguru.__file__).parent
# Lowest first: a module imports only from lower layers, or from its own package of the same layer.
LAYERS = [
    ["gaussguru._kernels", "gaussguru.files"],
    ["gaussguru.losses"],
    ["gaussguru.noise"],
    ["gaussguru.cholesky"],
    ["gaussguru.errors"],
    ["gaussguru.orthant"],
    ["gaussguru.rows"],
    ["gaussguru.objective"],
    ["gaussguru.multiclass"],
    ["gaussguru.uncertain"],
    ["gaussguru.certificates"],
    ["gaussguru.gram"],
    ["gaussguru.solvers"],
    ["gaussguru.threads", "gaussguru.validation"],
    ["gaussguru.estimator"],
    ["gaussguru.kernel", "gaussguru.linear"],
    ["gaussguru.adversary", "gaussguru.ball", "gaussguru.model_selection"],
    ["gaussguru.datasets"],
    ["gaussguru.preprocessing"],
    ["gaussguru.robustness"],
    ["gaussguru.plotting"],
    ["gaussguru.report"],
    ["gaussguru.demo", "gaussguru.experiments"],
    ["gaussguru.tables"],
    ["gaussguru.layouts"],
    ["gaussguru.archive", "gaussguru.model_checks"],
    ["gaussguru.models"],
    ["gaussguru.training"],
    ["gaussguru.cli"],
    ["gaussguru.__main__"],
    ["gaussguru"],
]
MODULES = sorted(path for path in ROOT.rglob("*.py"))
# What a layer may not see although it is lower.
FORBIDDEN = {
    "gaussguru.solvers": {"gaussguru.validation", "gaussguru.linear"},
    "gaussguru.rows": {"gaussguru.noise"},
    "gaussguru.validation": {"gaussguru.solvers", "gaussguru.objective", "gaussguru.certificates"},
}


def layer(name):
    for height, names in reversed(list(enumerate(LAYERS[:-1]))):
        if any(name == known or name.startswith(known + ".") for known in names):
            return height
    return len(LAYERS) - 1


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module
            if node.module == "gaussguru":
                yield from (f"gaussguru.{alias.name}" for alias in node.names)


def test_all_names_exist_and_are_sorted():
    assert gaussguru.__all__ == sorted(gaussguru.__all__)
    for name in gaussguru.__all__:
        assert getattr(gaussguru, name).__name__ == name


def test_version():
    assert gaussguru.__version__ == importlib.metadata.version("gaussguru")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_layers_import_one_way(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(["gaussguru", *(part for part in parts if part != "__init__")])
    package = ".".join(name.split(".")[:2])
    for imported in imports(path):
        own = imported == package or imported.startswith(package + ".")
        if not imported.startswith("gaussguru") or imported == "gaussguru" or own:
            continue
        assert layer(imported) < layer(name), f"{name} imports {imported}"
        assert not any(imported.startswith(banned) for banned in FORBIDDEN.get(package, ())), f"{name}: {imported}"
