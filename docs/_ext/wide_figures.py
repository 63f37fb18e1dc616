"""Pictures of several panels side by side: on a phone they keep a readable size and scroll in a box of their own."""

import re
import struct
from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

# Width over height from which a picture has panels beside each other.
WIDE = 1.95


def shape_of(path):
    """Return width and height of a PNG or SVG file."""
    with path.open("rb") as file:
        head = file.read(2000)
    if path.suffix == ".png":
        return struct.unpack(">II", head[16:24])
    return tuple(map(float, re.search(rb'viewBox="\S+ \S+ (\S+) (\S+)"', head).groups()))


class WideFigures(SphinxPostTransform):
    """Put pictures with several panels into boxes of the class ``wide-figure``."""

    default_priority = 900

    def run(self, **kwargs):
        source = Path(self.app.srcdir)
        for node in list(self.document.findall(lambda n: isinstance(n, nodes.Element) and "uri" in n)):
            path = source / node["uri"].lstrip("/")
            if path.suffix not in (".png", ".svg") or not path.is_file():
                continue
            width, height = shape_of(path)
            whole = node.parent if isinstance(node.parent, nodes.reference) else node
            if width <= WIDE * height:
                continue
            if isinstance(whole.parent, nodes.figure):
                whole.parent["classes"].append("wide-figure")
            else:
                box = nodes.container("", classes=["wide-figure"])
                whole.replace_self(box)
                box += whole


def setup(app):
    app.add_post_transform(WideFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
