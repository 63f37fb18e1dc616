"""Pages of the reference: parameters come first, explanations after them, and X_err has a link to its forms."""

import re

FORMS = "All forms: :doc:`/guide/error_forms`."
SECTION = re.compile(r"(Parameters|Returns|Yields|Warns|Raises|Attributes|See Also|Notes|References|Examples)$")


def explain_afterwards(app, what, name, obj, options, lines):
    """Move what stands between the first paragraph and the first section of a docstring behind the other sections."""
    starts = [k for k in range(1, len(lines)) if re.match(r"-{3,}$", lines[k]) and SECTION.match(lines[k - 1])]
    sections = [k - 1 for k in starts]
    if what != "class" or not sections or "" not in lines[: sections[0]]:
        return
    first = lines.index("") + 1
    text = lines[first : sections[0]]
    if not any(text):
        return
    rest = lines[sections[0] :]
    later = [k - sections[0] for k in sections if lines[k] in ("Notes", "References", "Examples")]
    at = later[0] if later else len(rest)
    if later and rest[at] == "Notes":
        rest[at : at + 2] = []
    lines[:] = [*lines[:first], *rest[:at], "", "Notes", "-----", *text, "", *rest[at:]]


def link_forms(app, what, name, obj, options, lines):
    """Let every parameter X_err lead to the page of its forms."""
    for k in reversed(range(len(lines))):
        if match := re.match(r"(\s*)(X, )?X_err : ", lines[k]):
            lines.insert(k + 1, f"{match[1]}    {FORMS}")


def setup(app):
    app.connect("autodoc-process-docstring", link_forms, priority=1)
    app.connect("autodoc-process-docstring", explain_afterwards, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
