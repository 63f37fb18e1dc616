#!/usr/bin/env python3
"""Fill in what the Python blocks of README.md and of the pages print.

    python tools/outputs.py [PAGE ...]

A block that prints something is followed by a block of the language "output". The blocks of a page run one after
another, as a reader would paste them, in a directory of their own.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?^```output\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?%?")


def pages() -> list[Path]:
    """Return the texts that have Python blocks."""
    own = [path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "auto_examples"} & set(path.parts)]
    return [path for path in (ROOT / "README.md", *sorted(own)) if BLOCK.search(path.read_text(encoding="utf-8"))]


def printed(page: Path) -> Iterator[tuple[str, str]]:
    """Run the blocks of a page where we are, and yield what the page says that each prints, and what it prints."""
    import matplotlib as mpl  # noqa: PLC0415
    import sklearn  # noqa: PLC0415

    mpl.use("agg")
    names: dict[str, object] = {}
    with sklearn.config_context():  # blocks turn metadata routing on
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            out = io.StringIO()
            with warnings.catch_warnings(), contextlib.redirect_stdout(out):
                # The first epochs of a stream are not the optimum, and some blocks show classifiers that collapse.
                warnings.simplefilter("ignore", UserWarning)
                code = block["code"].replace('"examples/data', f'"{(ROOT / "examples" / "data").as_posix()}')
                exec(compile(code, str(page), "exec"), names)
            lines = [line.rstrip() for line in out.getvalue().splitlines()]
            yield block["output"] or "", "".join(f"{line}\n" for line in lines)


def same(told: str, found: str) -> bool:
    """Whether two outputs have the same words, and numbers that differ by rounding on another machine at most.

    Numbers with decimals may differ by two units of the last one, or by 2 %, percentages by 2, those with an
    exponent by a factor of 3; others are equal.
    """
    if NUMBER.sub("", "".join(told.split())) != NUMBER.sub("", "".join(found.split())):
        return False
    pairs = list(zip(NUMBER.findall(told), NUMBER.findall(found), strict=False))
    if len(NUMBER.findall(told)) != len(NUMBER.findall(found)):
        return False
    return all(_close(first, second) for first, second in pairs)


def _close(first: str, second: str) -> bool:
    if first.endswith("%"):
        return abs(float(first[:-1]) - float(second[:-1])) <= 2
    if "e" in first + second:
        return 1 / 3 <= float(first) / float(second) <= 3
    if "." not in first:
        return first == second
    decimals = max(len(text.partition(".")[2]) for text in (first, second))
    unit = 10.0 ** -min(decimals, 4)
    return abs(float(first) - float(second)) <= max(2.01 * unit, 0.02 * abs(float(first)))


def fill(page: Path) -> bool:
    """Write what the blocks of a page print into it, and return whether that changed it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = iter([new for _, new in printed(page)])

    def whole(block: re.Match[str]) -> str:
        code, new = f"```python\n{block['code']}```\n", next(outputs)
        return code + (f"\n```output\n{new}```\n" if new else "")

    old = page.read_text(encoding="utf-8")
    text = BLOCK.sub(whole, old)
    page.write_text(text, encoding="utf-8")
    return text != old


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        print(f"{page.relative_to(ROOT)}: {'filled in' if fill(page) else 'unchanged'}")


if __name__ == "__main__":
    main()
