"""The package as a whole: its names, which module may import which, what is installed, and what is published."""

import ast
import graphlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import gaussguru

ROOT = Path(gaussguru.__file__).parent
HERE = Path(__file__).parents[1]
SOURCE = HERE / "src"
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Lowest first: a package imports only from packages in lower layers.
LAYERS = [
    ["_native", "_utils"],
    ["losses", "noise", "_errors"],
    ["errors"],
    ["_rows"],
    ["_populations", "sources"],
    ["_guru"],
    ["certificates", "_measured"],
    ["calibration", "inspection", "population", "preprocessing", "robustness"],
    ["datasets", "plotting"],
    ["report"],
    ["_tables"],
    ["models"],
    ["demo", "thesis"],
    ["cli"],
    ["__main__"],
]
HEIGHTS = {f"gaussguru.{name}": height for height, names in enumerate(LAYERS) for name in names}
# Modules that a layer may not see although they are lower. Estimators for measured values use those of _guru, not its
# problems and solvers; the modified Newton method shares the line search and the words for its status.
FORBIDDEN = {
    "gaussguru._rows": {"gaussguru.losses", "gaussguru.noise"},
    "gaussguru._populations": {"gaussguru.losses", "gaussguru.noise"},
    "gaussguru._guru.certificates": {"gaussguru._rows", "gaussguru._errors"},
    "gaussguru._guru.problems": {
        "gaussguru._rows.threads",
        "gaussguru._guru.solvers",
        "gaussguru._guru.kernel_matrix",
        "gaussguru._guru.kernel_errors",
    },
    "gaussguru._guru.solvers": {"gaussguru._errors", "gaussguru._populations", "gaussguru.sources"},
    "gaussguru._measured": {"gaussguru._guru.problems", "gaussguru._guru.solvers", "gaussguru._guru.certificates"},
}
MODULES = sorted(ROOT.rglob("*.py"))
# What belongs to the package besides its compiled part.
SUFFIXES = {".py", ".pyi", ".typed"}


def is_within(name, package):
    return name == package or name.startswith(package + ".")


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["gaussguru", *(part for part in parts if part != "__init__")])


def package_of(name):
    return ".".join(name.split(".")[:2])


NAMES = {module_name(path) for path in MODULES}


def imports(path, typing=True):
    """Yield the modules that a module imports, and packages of which it imports names; ``typing``: also for types."""
    tree = ast.parse(path.read_text())
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for_types = {child for block in blocks for child in ast.walk(block)}
    for node in ast.walk(tree):
        if node in for_types and not typing:
            continue
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


def test_one_version():
    """The one in __init__.py, which the build reads, is that of everything else."""
    built = subprocess.run([sys.executable, HERE / "tools" / "version.py"], capture_output=True, text=True, check=True)
    texts = {
        "CITATION.cff": r"^version: (.+)$",
        "recipe/recipe.yaml": r'^  version: "(.+)"$',
        "CHANGELOG.md": r"^## (\S+)",
    }
    found = {
        name: re.search(pattern, (HERE / name).read_text(encoding="utf-8"), re.MULTILINE).group(1)
        for name, pattern in texts.items()
    }
    assert {built.stdout.strip(), *found.values()} == {gaussguru.__version__}, found
    assert "version" in PROJECT["dynamic"]
    installed = distribution()
    assert installed is None or installed.version == gaussguru.__version__


def test_every_package_has_a_layer():
    assert set(HEIGHTS) == {package_of(name) for name in NAMES} - {"gaussguru"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_import_lower_layers_only(path):
    name = module_name(path)
    for imported in set(imports(path)):
        if not is_within(imported, "gaussguru") or "gaussguru" in (imported, name):
            continue
        lower = HEIGHTS[package_of(imported)] < HEIGHTS[package_of(name)]
        assert lower or package_of(imported) == package_of(name), f"{name} imports {imported}"
        for part, banned in FORBIDDEN.items():
            if is_within(name, part):
                assert not any(is_within(imported, other) for other in banned), f"{name} imports {imported}"


def test_no_module_imports_itself_through_others():
    graph = {module_name(path): {other for other in imports(path, typing=False) if other in NAMES} for path in MODULES}
    graphlib.TopologicalSorter({name: others - {"gaussguru"} for name, others in graph.items()}).prepare()


def test_a_class_name_is_in_one_module():
    names = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def documented_names():
    """Return the names that the reference lists, by the module that it names for them."""
    names, module = defaultdict(list), None
    for line in (HERE / "docs" / "api" / "index.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif module and re.fullmatch(r"   [A-Za-z_]\w*", line):
            names[module].append(line.strip())
    return names


@pytest.mark.parametrize("name", ["gaussguru", *(f"gaussguru.{name}" for name in gaussguru._MODULES)])
def test_the_reference_lists_all_public_names(name):
    """Names that the package exports, too, are listed there."""
    names, public = documented_names(), importlib.import_module(name).__all__
    assert sorted(names[name]) == sorted(set(public) - (set() if name == "gaussguru" else set(gaussguru.__all__)))


def test_a_wheel_is_tried_by_the_example_of_the_landing_page():
    subprocess.run([sys.executable, HERE / "tools" / "smoke.py"], check=True, timeout=120)


@pytest.mark.parametrize("name", ["pandas", "pyarrow", "skops"])
def test_model_files_say_what_to_install(name):
    program = f"import sys; sys.modules[{name!r}] = None; import gaussguru.models"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"model files need {name}: pip install 'gaussguru[cli]'" in done.stderr.splitlines()[-1]


def test_files_that_contributing_names_exist():
    text = re.sub(r"```.*?```", "", (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    words = re.findall(r"`([^` ]+/|[^` ]+\.(?:py|[ch]pp|md|rst|toml|json|ya?ml|cff))`", text)
    assert len(words) > 100
    folders = [HERE / name for name in ("benchmarks", "docs", "examples", "recipe", "src", "tests", "tools", ".github")]
    known = [path.as_posix() for folder in folders for path in folder.rglob("*")]
    known += [path.as_posix() for path in HERE.iterdir()]
    missing = {word for word in words if "*" not in word and word != "run.json"}
    for path in known:
        missing -= {word for word in missing if path.endswith("/" + word.rstrip("/"))}
    assert missing == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_targets_can_be_made():
    """Every target says what it would do: what it depends on exists, or can be made."""
    text = (HERE / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE).group(1).split()
    run = subprocess.run(["make", "-n", "-C", HERE, *targets], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


# --- what is installed ------------------------------------------------------------------------------------


def listed(source):
    """Return the files that the build installs from a directory of sources, by the program that it runs."""
    program = re.search(r"list_modules = '''(.*?)'''", (SOURCE / "meson.build").read_text(), re.DOTALL).group(1)
    command = [sys.executable, "-c", program, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_wheel_holds_modules_and_the_compiled_part_alone():
    """Of what was installed where that is a copy; where it is the sources themselves, of what would be."""
    installed = distribution()
    is_copy = installed is not None and Path(installed.locate_file("gaussguru")).resolve() == ROOT.resolve()
    recorded = installed.files or [] if is_copy else []
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


# --- what is published ------------------------------------------------------------------------------------


def test_metadata():
    installed = distribution()
    if installed is None:
        pytest.skip("gaussguru is not installed")
    about = installed.metadata
    assert about["Author"] == "The gaussguru developers"
    assert about["License-Expression"] == "BSD-3-Clause"
    assert about["Description-Content-Type"] == "text/markdown"
    text = installed.read_text("METADATA")
    assert text is not None
    assert "load_wdbc" in text  # the README
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    needed = [line for line in about.get_all("Requires-Dist") if "extra" not in line]
    assert sorted(needed) == sorted(PROJECT["dependencies"])
    assert dict(line.split(", ", 1) for line in about.get_all("Project-URL") or []) == PROJECT["urls"]


def test_addresses_are_in_one_place():
    """Until the project has any there are none, and then they are https."""
    assert all(address.startswith("https://") for address in PROJECT["urls"].values())
    if not PROJECT["urls"]:
        for name in ("README.md", "CITATION.cff", "recipe/recipe.yaml", "docs/conf.py"):
            text = (HERE / name).read_text(encoding="utf-8")
            assert not re.search(r"https://[^\s)>\"']*gaussguru", text), name


def test_the_recipe_needs_what_the_package_needs():
    recipe = (HERE / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    extras = PROJECT["optional-dependencies"]
    names = {"matplotlib": "matplotlib-base"}
    wanted = [*PROJECT["dependencies"], *extras["plot"], *extras["cli"]]
    for requirement in wanted:
        if requirement.startswith("gaussguru["):
            continue
        name, version = requirement.split(">=")
        assert f"    - {names.get(name, name)} >={version}\n" in recipe, requirement


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", "workflows/*.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("dependabot", "dependabot.yml"),
        ("citation-file-format", "../CITATION.cff"),
    ],
)
def test_files_for_services_are_valid(schema, pattern):
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    folder = HERE / ".github"
    files = sorted(folder.glob(pattern)) if not pattern.startswith("..") else [HERE / pattern[3:]]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_sdist_has_sources_tests_and_no_data(tmp_path):
    has_tools = all(importlib.util.find_spec(name) for name in ("build", "mesonpy", "Cython"))
    if not has_tools or not (HERE / ".git").exists() or not shutil.which("git"):
        pytest.skip("needs a checkout, build, meson-python and Cython")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(HERE)]
    # The build looks for meson and ninja, which are beside the interpreter, on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    assert path.name == f"gaussguru-{gaussguru.__version__}.tar.gz"
    assert path.stat().st_size < 2_000_000
    with tarfile.open(path) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    assert {
        "PKG-INFO",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/native/table.cpp",
        "tests/test_package.py",
    } <= names
    assert not [name for name in names if re.search(r"\.(so|pyd|pyc|npz|npy|csv\.gz|parquet|model)$", name)]
    assert not [name for name in names if name.startswith((".ci/", ".github/", "docs/_build", "docs/auto_examples"))]


HEAVY = ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "skops", "narwhals")


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["no-such-command"]])
def test_help_imports_little(arguments):
    """What is imported, not how long it takes: these are seconds."""
    script = "import sys; from gaussguru import cli; cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    loaded = set(run.stderr.splitlines()[-1].split())
    assert not loaded.intersection(HEAVY)
    assert len(loaded) < 400


REFUSALS = {
    "no file": (["fit", "none.csv", "--target", "y", "-o", "n"], "none.csv cannot be read"),
    "no target": (["fit", "t.csv", "-o", "n"], "--target must say"),
    "output exists": (["fit", "t.csv", "--target", "y", "-o", "m"], "m exists"),
    "no column": (["fit", "t.csv", "--target", "y", "--drop", "z", "-o", "n"], "no column 'z' for --drop"),
    "doubtful column": (["fit", "t.csv", "--target", "y", "-o", "n"], "'x_err' looks like errors"),
    "option of another": (["fit", "t.csv", "--target", "y", "--drop", "x_err", "--model", "rbf", "-o", "n"], "--model"),
    "no option": (["fit", "t.csv", "--nope"], "--nope"),
    "no name": (["fit", "t.csv", "--target", "y", "--kernel", "nope", "-o", "n"], "'nope' is not one of"),
    "no target to plan": (["columns", "t.csv"], "--target must say"),
    "no model": (["predict", "none", "t.csv"], "none cannot be read"),
    "no file to predict": (["predict", "m", "none.csv"], "none.csv cannot be read"),
    "no file to evaluate": (["evaluate", "m", "none.csv"], "none.csv cannot be read"),
    "no file for a path": (["path", "none.csv", "--target", "y"], "none.csv cannot be read"),
    "no model to show": (["show", "none"], "none cannot be read"),
}


def test_refusals_import_no_estimators(tmp_path):
    """All in one process: what the first of them imports, none of them may need."""
    (tmp_path / "t.csv").write_text("a,x_err,y\n1,0.1,no\n2,0.1,yes\n")
    (tmp_path / "m").touch()
    script = (
        "import json, sys; from gaussguru import cli\n"
        "for call in json.loads(sys.argv[1]): print(cli.main(call), *set(sys.modules) & {'scipy', 'sklearn'})"
    )
    calls = json.dumps([call for call, _ in REFUSALS.values()])
    run = subprocess.run(
        [sys.executable, "-c", script, calls], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert dict(zip(REFUSALS, run.stdout.splitlines(), strict=True)) == dict.fromkeys(REFUSALS, "2")
    for line, (_, words) in zip(run.stderr.splitlines(), REFUSALS.values(), strict=True):
        assert words in line


def test_names_of_options_are_those_of_the_library():
    tables = importlib.import_module("gaussguru.cli.options")
    names = importlib.import_module("gaussguru._guru.kernel_matrix").NAMES
    fitting = importlib.import_module("gaussguru._tables.fitting")
    pool = importlib.import_module("gaussguru._measured.pool")
    assert sorted([*tables.KERNELS, "precomputed"]) == sorted(names)
    assert tuple(importlib.import_module("gaussguru.losses").LOSSES) == tables.LOSSES
    assert tuple(importlib.import_module("gaussguru.noise").NOISES) == tables.NOISES
    assert (tuple(fitting.OPTIONS), pool.MODELS) == (tables.CLASSIFIERS, tables.MODELS)


def test_names_are_imported_when_they_are_used():
    script = (
        f"import sys, gaussguru; assert not set(sys.modules) & {set(HEAVY)!r}; from gaussguru import *; print(*dir())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) >= set(gaussguru.__all__)
    assert set(gaussguru._HOMES) == set(gaussguru.__all__)


def test_help_lists_every_command():
    """Names and docstrings come from the source of the modules, those of the commands from what they register."""
    cli = pytest.importorskip("gaussguru.cli")
    for module in cli.MODULES:
        importlib.import_module(f"gaussguru.cli.{module}")
    registered = {info.callback.__name__: inspect.getdoc(info.callback) for info in cli.app.registered_commands}
    assert {name: text for name, (_, text) in cli.console._documented().items()} == registered
