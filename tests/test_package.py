"""The package as a whole: its names, which module may import which, and what is installed."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gaussguru

ROOT = Path(gaussguru.__file__).parent
SOURCE = Path(__file__).parents[1] / "src"
# Lowest first: a module imports only from lower layers, or from its own package in the same layer.
LAYERS = [
    ["_linalg", "_files", "_native"],
    ["losses", "noise", "errors"],
    ["probabilities"],
    ["_data.rows"],
    ["_data.threads", "_data.kernel_matrix", "_data.readings", "_data.mixtures", "_data.em"],
    ["certificates"],
    ["_problems.smoothing"],
    ["_problems.protocol", "_problems.base"],
    ["_problems.binary", "_problems.coordinates"],
    ["_problems.axis", "_problems.pairs"],
    ["_problems.multiclass", "_problems.measured", "_problems.ball", "_problems.probit"],
    ["_solvers.result", "_solvers.policy", "_solvers.line_search", "_solvers.certify"],
    ["_solvers.linear_systems", "_solvers.bounds"],
    ["_solvers.axis_qp"],
    ["_solvers.newton", "_solvers.interior_point", "_solvers.sgd", "_solvers.damped_newton"],
    ["_solvers.subspace", "_solvers.kernel_sgd", "_solvers.registry"],
    ["_estimators.validation", "_estimators.link"],
    ["_estimators.problem"],
    ["_estimators.base"],
    ["population"],
    ["_estimators.linear", "_estimators.kernel", "_estimators.ball", "_estimators.adversary", "_estimators.probit"],
    ["_estimators.path"],
    ["_estimators.cross_validation"],
    ["preprocessing"],
    ["calibration"],
    ["_estimators.error_bar"],
    ["robustness"],
    ["datasets"],
    ["plotting"],
    ["report"],
    ["_tables.files"],
    ["_tables.schema"],
    ["_tables.archive", "_tables.model_checks"],
    ["models"],
    ["_tables.fitting"],
    ["demo", "experiments"],
    ["cli"],
    ["__main__"],
]
HEIGHTS = {f"gaussguru.{name}": height for height, names in enumerate(LAYERS) for name in names}
# What a layer may not see although it is lower.
FORBIDDEN = {
    "gaussguru._data": {"gaussguru.losses", "gaussguru.noise", "gaussguru.probabilities"},
    "gaussguru.certificates": {"gaussguru._data", "gaussguru.errors"},
    "gaussguru._problems": {"gaussguru._data.threads", "gaussguru._data.kernel_matrix"},
    "gaussguru._estimators.validation": {"gaussguru._solvers", "gaussguru._problems", "gaussguru.certificates"},
}
MODULES = sorted(ROOT.rglob("*.py"))
# What belongs to the package besides its compiled part.
SUFFIXES = {".py", ".pyi", ".typed"}


def is_within(name, package):
    return name == package or name.startswith(package + ".")


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["gaussguru", *(part for part in parts if part != "__init__")])


def layer(name):
    """Return the height of a module, of a package that is one layer, or of a name in either; None of anything else."""
    return next((height for known, height in HEIGHTS.items() if is_within(name, known)), None)


NAMES = {module_name(path) for path in MODULES}


def imports(path):
    """Yield the modules that a module imports, and the packages of which it imports names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & NAMES
            if inner - NAMES:
                yield node.module


def test_all_names_exist_and_are_sorted():
    assert gaussguru.__all__ == sorted(gaussguru.__all__)
    for name in gaussguru.__all__:
        assert getattr(gaussguru, name).__name__ == name


def distribution():
    """Return what is known about the installed package, or None where its sources are on the path."""
    try:
        return importlib.metadata.distribution("gaussguru")
    except importlib.metadata.PackageNotFoundError:
        return None


def test_version():
    build = (SOURCE.parent / "meson.build").read_text()
    assert re.search(r"^\s*version: '(.+)'", build, re.MULTILINE).group(1) == gaussguru.__version__
    installed = distribution()
    assert installed is None or installed.version == gaussguru.__version__


def test_layers_are_of_all_modules():
    assert all(any(is_within(name, known) for name in NAMES) for known in HEIGHTS)
    packages = {module_name(path) for path in MODULES if path.name == "__init__.py"}
    for name in NAMES - packages:
        assert layer(name) is not None, f"{name} is in no layer"
    # A package whose modules are in several layers has nothing of its own.
    for name in packages - {"gaussguru"}:
        if layer(name) is None:
            path = ROOT.joinpath(*name.split(".")[1:], "__init__.py")
            assert not list(imports(path)), f"{name} is in no layer and imports"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_layers_import_one_way(path):
    name = module_name(path)
    package = ".".join(name.split(".")[:2])
    for imported in imports(path):
        if not is_within(imported, "gaussguru") or imported == "gaussguru" or name == "gaussguru":
            continue
        own = layer(imported) == layer(name) and is_within(imported, package)
        assert own or layer(imported) < layer(name), f"{name} imports {imported}"
        for part, banned in FORBIDDEN.items():
            assert not (is_within(name, part) and any(is_within(imported, other) for other in banned)), (
                f"{name} imports {imported}"
            )


# --- what is installed ------------------------------------------------------------------------------------


def listed(source):
    """Return the files that the build installs from a directory of sources, by the program that it runs."""
    program = re.search(r"list_modules = '''(.*?)'''", (SOURCE / "meson.build").read_text(), re.DOTALL).group(1)
    command = [sys.executable, "-c", program, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_wheel_holds_modules_and_the_compiled_part_alone():
    """Of what was installed where that is a copy; where it is the sources themselves, of what would be."""
    installed = distribution()
    recorded = [] if installed is None else installed.files or []
    # Files without a hash were not in the wheel: an installer compiled them.
    paths = [file.as_posix() for file in recorded if file.hash and file.parts[0] == "gaussguru"]
    if paths:
        compiled = [path for path in paths if re.fullmatch(r"gaussguru/_native/_binding\.[\w.-]*(so|pyd)", path)]
        assert len(compiled) == 1
        paths.remove(compiled[0])
    else:
        assert ROOT == SOURCE / "gaussguru" or installed is not None
        paths = listed(SOURCE)
    own = [path.relative_to(SOURCE) for path in (SOURCE / "gaussguru").rglob("*") if path.suffix in SUFFIXES]
    own = [path for path in own if all(part.isidentifier() for part in path.with_suffix("").parts)]
    assert sorted(paths) == sorted(path.as_posix() for path in own)
    assert {"gaussguru/py.typed", "gaussguru/_native/__init__.py", "gaussguru/_native/_binding.pyi"} <= set(paths)
    assert not [path for path in paths if "__pycache__" in path or Path(path).suffix not in SUFFIXES]


def test_a_wheel_holds_nothing_that_happens_to_lie_about(tmp_path):
    kept = ["gaussguru/__init__.py", "gaussguru/_native/_binding.pyi", "gaussguru/py.typed"]
    stray = [
        "gaussguru/__pycache__/__init__.cpython-311.pyc", "gaussguru/_native/kernels.cpp",
        "gaussguru/_native/rows.hpp", "gaussguru/_native/_binding.pyx", "gaussguru/_native/_binding.cpython-311.so",
        "gaussguru/.ipynb_checkpoints/noise-checkpoint.py", "gaussguru/noise.py.orig", "gaussguru/noise.py~",
        "gaussguru/.noise.py.swp", "gaussguru/.#noise.py", "gaussguru/notes.txt", "native/kernels.cpp",
    ]  # fmt: skip
    for name in (*kept, *stray):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert listed(tmp_path) == sorted(kept)
