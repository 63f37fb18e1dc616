"""The site: make docs."""

import os
import re
import sys
import tomllib
from pathlib import Path

import matplotlib as mpl
from cycler import cycler

mpl.use("agg")
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from gallery_order import StoryOrder

import gaussguru
from gaussguru.plotting import style

ROOT = Path(__file__).parents[1]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]

project = "gaussguru"
author = "The gaussguru developers"
copyright = author
version = release = gaussguru.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "benchmark_tables",
    "formulas",
    "mathml",
    "reference",
    "repository_links",
    "table_numbers",
    "whole_site",
    "wide_figures",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext", "auto_examples/**/*.ipynb", "auto_examples/**/*.py"]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
nitpicky = False
html_math_renderer = "mathml"  # drawn by the browser: no script, no network
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions

# --- reference ------------------------------------------------------------------------------------------------
autosummary_generate = True
toc_object_entries_show_parents = "hide"  # "ErrorBarClassifier.fit" is wider than its column
autodoc_typehints = "none"  # numpydoc has the types
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False
copybutton_selector = "div.highlight-python pre, div.highlight-sh pre, div.highlight-default pre"
# Links to other references need their inventories from the network: they are fetched where this is asked for.
intersphinx_mapping = {}
if os.environ.get("GAUSSGURU_INVENTORIES") == "fetch":
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
    }


# --- gallery --------------------------------------------------------------------------------------------------
def use_own_colours(gallery_conf, fname):
    """Draw every example in the colours of the displays, which the colour-blind can tell apart."""
    mpl.rcParams["axes.prop_cycle"] = cycler(color=style.PALETTE)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"__init__",
    "doc_module": ("gaussguru",),
    "backreferences_dir": "api/generated/backreferences",
    "reference_url": {"gaussguru": None},
    "show_memory": False,
    "thumbnail_size": (560, 392),
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "within_subsection_order": StoryOrder,
    "reset_modules": ("matplotlib", use_own_colours),
    "min_reported_time": 3600,  # times of the machine that built the site tell readers nothing
    "write_computation_times": False,  # these pages load scripts from other hosts
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}

# --- pages ----------------------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = f"gaussguru {version}"
html_static_path = ["_static"]
html_favicon = "_static/mark.svg"
html_baseurl = URLS.get("Documentation", "")
html_css_files = ["style.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "gaussguru", "image_light": "_static/mark.svg", "image_dark": "_static/mark.svg", "alt_text": ""},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "icon_links": [
        {"name": name, "url": URLS[name], "icon": "fa-solid fa-code"} for name in ("Source",) if name in URLS
    ],
}
if html_baseurl:
    html_theme_options["switcher"] = {"json_url": f"{html_baseurl.rstrip('/')}/versions.json", "version_match": version}
    html_theme_options["check_switcher"] = False
    html_theme_options["navbar_start"] = ["navbar-logo", "version-switcher"]
SINGLE = (
    "404",
    "api/index",
    "api/generated/*",
    "index",
    "install",
    "quickstart",
    "how_it_works",
    "robust_loss",
    "true_values",
    "theory",
    "comparison",
    "benchmarks",
    "benchmark_tables",
    "scaling",
    "reproduction",
    "promises",
)
html_sidebars = {page: [] for page in (*SINGLE, "faq", "changelog", "citing")}


def escape_attributes(app, what, name, obj, options, lines):
    """Let the names of attributes in shapes, as in ``(n_features_in_,)``, be no references."""
    for k, line in enumerate(lines):
        if "of shape (" in line:
            lines[k] = re.sub(r"(?<=\w)_(?=[,) ])", r"\\_", line)


def expect_no_pictures(app, config):
    """Let pages show pictures of examples that were not run."""
    if str(config.plot_gallery) in ("0", "False"):
        config.suppress_warnings.append("image.not_readable")


def setup(app):
    app.connect("config-inited", expect_no_pictures)
    app.connect("autodoc-process-docstring", escape_attributes, priority=1)
    app.add_config_value("repository_root", str(ROOT), "env")
    app.add_config_value("repository_url", URLS.get("Source", ""), "env")
