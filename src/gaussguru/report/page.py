"""A page of HTML in one file, which needs no network, no script and no other file."""

import base64
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Self

import numpy as np

from gaussguru._utils.files import replacing
from gaussguru._utils.types import Axes, Figure, Record
from gaussguru.plotting import style

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1d1d1f; --faint: #5c5c66; --paper: #fff; --line: #d5d5dc;
        --band: rgb(128 128 160 / .1); --shade: rgb(0 0 0 / .28); --clear: rgb(255 255 255 / 0); }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9e9ee; --faint: #a6a6b2; --paper: #17171a; --line: #3c3c45;
          --shade: rgb(255 255 255 / .4); --clear: rgb(23 23 26 / 0); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 50rem; color: var(--ink); background: var(--paper);
       font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { margin: .6rem 0; max-width: 42rem; }
.lead { font-size: 1.2rem; line-height: 1.4; font-weight: 600; margin: 1rem 0; }
.date, figcaption { color: var(--faint); font-size: .875rem; }
/* What is cut off casts a shadow on that side: covers move with what is scrolled, shadows stay. */
.scroll { overflow-x: auto; margin: .3rem 0;
          background: linear-gradient(to right, var(--paper) 40%, var(--clear)) left / 2rem 100% no-repeat local,
                      linear-gradient(to left, var(--paper) 40%, var(--clear)) right / 2rem 100% no-repeat local,
                      linear-gradient(to right, var(--shade), transparent) left / .8rem 100% no-repeat scroll,
                      linear-gradient(to left, var(--shade), transparent) right / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th:first-child, td:first-child { padding-left: .3rem; }
thead th { background: var(--band); }
tbody th { font-weight: 500; }
.number { text-align: right; }
td.number, .word { white-space: nowrap; }
.card td { overflow-wrap: anywhere; }
.card .group { background: var(--band); font-weight: 600; }
figure { margin: .8rem 0; }
figure img { display: block; width: 100%; height: auto; background: #fff;
             border: 1px solid var(--line); border-radius: 4px; }
@media print {
  :root { --ink: #000; --faint: #444; --paper: #fff; --line: #bbb; --band: #eee; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr { break-inside: avoid; }
  h2, figcaption { break-after: avoid; }
  .scroll { overflow: visible; background: none; }
  figure img { border: 0; }
}
@media (max-width: 30rem) {
  th, td { padding: .25rem .4rem; }
  table { font-size: .85rem; }
}
</style>
</head>
<body>
<h1>$title</h1>
<p class="date">$date</p>
$body
</body>
</html>
""")


class Report:
    r"""A page to which text, tables and figures are added one after another.

    Everything that is given is text, and is escaped. All methods but ``html`` and ``save`` return the report.

    Parameters
    ----------
    title : str
    date : str or datetime, default=None
        None is now. With a date given, the same content makes the same bytes.

    Examples
    --------
    >>> from gaussguru.report.page import Report
    >>> report = Report("Two numbers", date="2026-01-01").table(["name", "value"], [["a", 1.0], ["b", 2.5]])
    >>> "<td class=\"number\">2.5</td>" in report.html()
    True
    """

    def __init__(self, title: str, *, date: str | datetime | None = None) -> None:
        self.title = title
        date = datetime.now(UTC) if date is None else date
        self.date = date if isinstance(date, str) else date.strftime("%Y-%m-%d %H:%M %Z").strip()
        self._parts: list[str] = []

    def heading(self, text: str) -> Self:
        """Begin a section."""
        return self._add(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> Self:
        """Add a paragraph."""
        whole = escape(text).replace(" ± ", "&nbsp;±&nbsp;")  # a number and its error stay on a line
        return self._add(f"<p>{whole}</p>")

    def lead(self, text: str, *, first: bool = False) -> Self:
        """Add a paragraph in larger letters, before all others if ``first``: the sentence to be read if no other is."""
        part = f'<p class="lead">{escape(text)}</p>'
        if first:
            self._parts.insert(0, part)
            return self
        return self._add(part)

    def table(self, header: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: str = "") -> Self:
        """Add a table; numbers are rounded to four digits and aligned, the first column names the row.

        Parameters
        ----------
        header : sequence
            The names of the columns.
        rows : iterable of sequences
            Cells: text or numbers.
        caption : str, default=""

        Returns
        -------
        self
        """
        rows = [list(row) for row in rows]
        columns = [[cell for cell in cells if cell != ""] for cells in zip(*rows, strict=True)]
        kinds = [' class="number"' if all(map(is_number, cells)) else "" for cells in columns]
        kinds = kinds or [""] * len(header)
        head = "".join(f'<th scope="col"{kind}>{_shown(cell)}</th>' for kind, cell in zip(kinds, header, strict=True))
        lines = []
        for row in rows:
            first, *others = (f"{kind}>{_shown(cell)}<" for kind, cell in zip(kinds, row, strict=True))
            lines.append(f'<tr><th scope="row"{first}/th>' + "".join(f"<td{other}/td>" for other in others) + "</tr>")
        body = "\n".join(lines)
        # A caption of the table itself would be as wide as the table, and scroll with it.
        above = f"<figcaption>{escape(caption)}</figcaption>\n" if caption else ""
        inner = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
        return self._add(f'<figure>{above}<div class="scroll"><table>\n{inner}\n</table></div></figure>')

    def figure(self, figure: Any, *, caption: str = "", alt: str = "") -> Self:
        """Add a drawing.

        Parameters
        ----------
        figure : matplotlib Figure, Axes or anything with ``figure_``, as all displays have
        caption : str, default=""
        alt : str, default=""
            A description of the drawing, for screen readers; by default the caption.

        Returns
        -------
        self
        """
        figure = getattr(figure, "figure_", figure)
        figure = getattr(figure, "figure", None) or figure
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        # 70 to 180 pixels for an inch; on a narrower screen the figure scrolls.
        least, greatest = (round(figure.get_figwidth() * pixels) for pixels in (70, 180))
        size = f"min-width:{least}px;max-width:{greatest}px"
        source = f"data:image/svg+xml;base64,{_drawn(figure)}"
        image = f'<img style="{size}" alt="{escape(alt or caption)}" src="{source}">'
        return self._add(f'<figure><div class="scroll">{image}</div>{below}</figure>')

    def card(self, card: Mapping[str, Record]) -> Self:
        """Add a model card: groups of names and values, as :func:`model_card` returns them."""
        rows = []
        for group, entries in card.items():
            rows.append(f'<tr><th class="group" colspan="2" scope="colgroup">{escape(group)}</th></tr>')
            for name, value in entries.items():
                rows.append(f'<tr><th scope="row">{escape(str(name))}</th><td>{_shown(value)}</td></tr>')
        body = "\n".join(rows)
        return self._add(f'<div class="scroll"><table class="card"><tbody>\n{body}\n</tbody></table></div>')

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self

    def html(self) -> str:
        """Return the page."""
        return _PAGE.substitute(title=escape(self.title), date=escape(self.date), body="\n".join(self._parts))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, completely or not at all.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Path
        """
        with replacing(path) as file:
            file.write(self.html().encode())
        return Path(path)


def new_axes() -> Axes:
    """Return axes of a new figure, narrow enough for a phone; pyplot does not know it."""
    return style.figure(1, size=(4.0, 3.0)).axes[0]


def _drawn(figure: Figure) -> str:
    """Return a figure as SVG, in base64; the same bytes every time."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    figure.draw_without_rendering()  # with a fixed aspect, the layout makes room for legends in the second drawing only
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "gaussguru", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return base64.b64encode(file.getvalue()).decode()


def percent(share: float) -> str:
    """Return a share as text that a table aligns with numbers."""
    return f"{100 * share:.2f} %"


def is_number(cell: Any) -> bool:
    """Return whether a cell is a number, maybe with its error, as a percentage or with a star, or nothing."""
    if isinstance(cell, str):
        number = r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?"
        return cell == "-" or re.fullmatch(rf"{number}( ± {number})?( %)?( \*)?", cell) is not None
    return cell is None or (isinstance(cell, int | float | np.number) and not isinstance(cell, bool))


def _shown(value: Any) -> str:
    """Return a value as escaped text."""
    if value is None:
        return "n/a"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return escape(f"{value:.4g}")
    if isinstance(value, Mapping):
        return ", ".join(f"{escape(str(name))} = {escape(str(each))}" for name, each in value.items())
    if isinstance(value, list | tuple):
        more = f", and {len(value) - 60} more" if len(value) > 60 else ""
        return ", ".join(_shown(each) for each in value[:60]) + more
    text = escape(str(value))
    if is_number(text):
        return text
    # Words with hyphens, of up to 24 letters, are kept on one line.
    span = '<span class="word">{}</span>'
    return re.sub(r"\S*\w-\w\S*", lambda word: span.format(word[0]) if len(word[0]) <= 24 else word[0], text)
