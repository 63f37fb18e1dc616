"""Examples in docstrings and on pages run as printed; links lead somewhere; the site builds without warnings."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot

import gaussguru

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(DOCS / "_ext"))
import formulas  # noqa: E402
import outputs  # noqa: E402
import package_readme  # noqa: E402

README = ROOT / "README.md"
PAGES = [README, *sorted(path for path in DOCS.rglob("*.md") if not {"_build", "auto_examples"} & set(path.parts))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gaussguru.__path__, "gaussguru.")
    if "__main__" not in module.name and "_native" not in module.name
)


def named(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("name", ["gaussguru", *MODULES])
def test_docstrings(name):
    mpl.use("agg")
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    pyplot.close("all")
    assert results.failed == 0


def public_classes():
    """Return the classes that the reference lists, but for warnings and exceptions."""
    module = None
    for line in (DOCS / "api" / "index.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = importlib.import_module(line.split(":: ")[1])
        elif module and re.fullmatch(r"   \w+", line):
            found = getattr(module, line.strip())
            if isinstance(found, type) and not issubclass(found, Exception):
                yield found


def test_public_classes_have_an_example():
    classes = list(public_classes())
    assert len(classes) > 25
    assert [cls.__name__ for cls in classes if ">>>" not in (cls.__doc__ or "")] == []


def test_formulas_of_docstrings_are_formulas_on_pages():
    docs = [inspect.getdoc(each) for each in (*public_classes(), gaussguru.sigma_max)]
    assert sum(formulas.set_formulas(doc.splitlines()) for doc in docs) >= 12


@pytest.mark.parametrize("path", [README, DOCS / "index.md"], ids=named)
def test_first_example_is_short_and_shows_its_output(path):
    first = outputs.BLOCK.search(path.read_text(encoding="utf-8"))
    assert first["code"].count("\n") <= 10
    assert first["output"]


@pytest.mark.parametrize("path", outputs.pages(), ids=named)
def test_pages(path, tmp_path, monkeypatch):
    """All blocks of a page, one after another, as a reader would paste them, print what the page says."""
    monkeypatch.chdir(tmp_path)
    for told, found in outputs.printed(path):
        assert "nan" not in found
        assert outputs.same(told, found), f"python tools/outputs.py\ntold:\n{told}\nprinted:\n{found}"


def test_outputs_are_compared():
    assert outputs.same("a 0.91 [1, 2]\n", "a  0.92 [1, 2]\n")
    for other in ("a 0.94 [1, 2]", "a 0.91 [1, 3]", "b 0.91 [1, 2]", "a 0.91 [1, 2, 3]", "a 0.91", ""):
        assert not outputs.same("a 0.91 [1, 2]\n", other)
    assert not outputs.same("", "1\n")
    assert outputs.same("95%", "94%")
    assert not outputs.same("95%", "90%")
    assert outputs.same("gap 3.2e-06", "gap 3.2e-06")
    assert not outputs.same("error 0.02", "error 0.20")


def test_public_names_on_pages_exist():
    """Names in roles and in code of the text; those in blocks are run."""
    texts = {path: re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL) for path in PAGES}
    patterns = (r"\{(?:class|func|mod|meth)\}`~?(?:[^`]*<)?(gaussguru[\w.]*)", r"`(gaussguru(?:\.\w+)+)\b")
    names = {(path, name) for path, text in texts.items() for pattern in patterns for name in re.findall(pattern, text)}
    assert len(names) > 80
    assert [f"{named(path)}: {name}" for path, name in sorted(names) if not exists(name)] == []


def exists(name):
    """Whether a dotted name leads to a module or an attribute."""
    found, *rest = importlib.import_module("gaussguru"), *name.split(".")[1:]
    for part in rest:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("path", [README, DOCS / "guide" / "command.md"], ids=named)
def test_commands(path, tmp_path, monkeypatch, capsys):
    """The commands of a page, with the data that lies in examples/data."""
    cli = pytest.importorskip("gaussguru.cli")
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    lines = [line for block in blocks(path, "sh") for line in block.splitlines() if line.startswith("gaussguru ")]
    assert len(lines) >= 3
    for line in lines:
        words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(line)[1:]]
        assert cli.main(words) == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.parametrize(
    "path", [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"))], ids=named
)
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        if "auto_examples" not in target:  # made when the site is built
            assert (path.parent / target).exists(), target


def test_tests_named_on_pages_exist():
    for page in PAGES:
        for path in re.findall(r"\btests/[\w/]+(?:\.py)?", page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_readme_is_short():
    assert README.read_text(encoding="utf-8").count("\n") <= 110


def test_links_of_the_package_have_an_address_or_are_text():
    text = README.read_text(encoding="utf-8")
    bare = package_readme.with_addresses(text, "")
    assert not re.search(r"\]\((?!https?:)|<!--", bare)
    assert "quickstart" in bare
    whole = package_readme.with_addresses(text, "https://example.org/project")
    assert "](https://example.org/project/blob/main/docs/quickstart.md)" in whole
    assert "](https://example.org/project/raw/main/docs/error_bars.png)" in whole
    assert not re.search(r"\]\((?!https:)", whole)


def test_every_page_of_the_guide_has_a_figure():
    pages = [path for path in (DOCS / "guide").glob("*.md") if path.name != "index.md"]
    assert [named(path) for path in pages if "```{figure}" not in path.read_text(encoding="utf-8")] == []


def test_pictures_are_small():
    assert all(path.stat().st_size < 100_000 for kind in ("*.png", "*.svg") for path in DOCS.glob(kind))


def test_the_gallery_is_large_enough_and_says_what_it_shows():
    examples = sorted((ROOT / "examples").rglob("plot_*.py"))
    assert len(examples) >= 18
    for path in examples:
        text = path.read_text(encoding="utf-8")
        title, line = text.split("\n")[1:3]
        assert text.startswith('"""\n'), path
        assert set(line) == {"="}, path
        assert len(line) == len(title), path


class _Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.targets, self.names = [], set()
        self.loaded, self.empty, self._open = [], [], None  # what a browser fetches by itself; links without a text

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.loaded.append(given.get("src"))
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(given.get("href"))
        if tag == "a" and "reference" in (given.get("class") or ""):
            self._open = given.get("href")
        elif tag == "img":
            self._open = None
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.names.add(value)

    def handle_data(self, data):
        if data.strip():
            self._open = None

    def handle_endtag(self, tag):
        if tag == "a" and self._open is not None:
            self.empty.append(self._open)
            self._open = None


def parsed(path):
    links = _Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="needs Sphinx")
def test_the_site(tmp_path):
    """It builds without a warning (the gallery without running it), links lead somewhere, no network is needed."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "plot_gallery=0", "-b", "html"]
    where = ["-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / "html")]
    done = subprocess.run([*command, *where], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    html = tmp_path / "html"
    pages = {path: parsed(path) for path in html.rglob("*.html") if html / "_static" not in path.parents}
    assert len(pages) > 100
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            # Pictures of examples are there when the gallery was run.
            if re.match(r"[a-z]+:|//|#", target) or "/images/sphx_glr_" in target:
                continue
            name, _, anchor = target.partition("#")
            there = (path.parent / name.split("?")[0]).resolve()
            if not there.exists() or (anchor and there in pages and anchor not in pages[there].names):
                broken.append(f"{path.name}: {target}")
    assert not broken
    assert not [(path.name, target) for path, links in pages.items() for target in links.empty]
    loaded = {target for links in pages.values() for target in links.loaded if target}
    assert loaded
    assert not [target for target in loaded if re.match(r"https?:|//", target)]
    index = (html / "searchindex.js").read_text(encoding="utf-8")
    words = ("asymmetr", "certif", "limit", "miss", "remeasur", "varianc", "votabl")
    assert [word for word in words if f'"{word}"' not in index] == []
    assert "There is no such page" in (html / "404.html").read_text(encoding="utf-8")
