"""Numbers in tables, as in ``0.091 (0.974)`` and ``-0.0140 ± 0.0046 *``, and marks are not broken into lines."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

SPACE = re.compile(r"(?<=\d) (?=[±(*x])|(?<=±) (?=\d)| (?=[*+]$)")


class TableNumbers(SphinxPostTransform):
    """Put non-breaking spaces into the cells of tables."""

    default_priority = 900

    def run(self, **kwargs):
        for entry in self.document.findall(nodes.entry):
            for text in list(entry.findall(nodes.Text)):
                if isinstance(text.parent, nodes.literal):
                    continue
                whole = SPACE.sub("\u00a0", text)
                if whole != text:
                    text.parent.replace(text, nodes.Text(whole))


def setup(app):
    app.add_post_transform(TableNumbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
