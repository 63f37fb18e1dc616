#!/usr/bin/env python3
"""Print the version, which src/gaussguru/__init__.py holds."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "gaussguru" / "__init__.py"

print(re.search(r'^__version__ = "(.+)"$', SOURCE.read_text(encoding="utf-8"), re.MULTILINE).group(1))
