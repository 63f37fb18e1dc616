"""Print constraints: the oldest version that pyproject.toml allows of every package that users need."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in [*project["dependencies"], *extras["plot"], *extras["cli"], *extras["dask"]]:
    if match := re.fullmatch(r"([\w-]+)(?:\[.+\])?>=([\d.]+)", requirement):
        print("{}=={}".format(*match.groups()))
