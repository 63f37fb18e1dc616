#!/usr/bin/env python3
"""Make README.md readable away from its repository: links lead to the address of the project, or are plain text.

Run in a checkout before distributions are built, because package indexes show README.md alone.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def with_addresses(text: str, source: str) -> str:
    """Return a text whose relative links lead to ``source``, the address of the repository; without one, no links."""

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if not source:
            return "" if picture else words
        return f"{picture}[{words}]({source}/{'raw' if picture else 'blob'}/main/{target})"

    return LINK.sub(link, re.sub(r"<!--.*?-->", "", text))


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    path = ROOT / project["readme"]
    path.write_text(
        with_addresses(path.read_text(encoding="utf-8"), project["urls"].get("Source", "")), encoding="utf-8"
    )
