"""Links of included files of the repository (CHANGELOG.md, benchmarks/README.md) to pages, to its address, or to none.

A link from such a file to a page of the site leads to the page. One to a file of the repository leads to its address,
once the project has one (``[project.urls]`` of pyproject.toml), and is plain text before.
"""

from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

PAGES = {
    "docs/reproduction.md": "reproduction",
    "docs/promises.md": "promises",
    "benchmarks/README.md": "benchmarks",
    "CHANGELOG.md": "changelog",
}


class RepositoryLinks(SphinxPostTransform):
    """See above."""

    default_priority = 5

    def run(self, **kwargs):
        root = Path(self.config.repository_root)
        for node in list(self.document.findall(lambda n: isinstance(n, nodes.Element) and "reftarget" in n)):
            target = node["reftarget"].split("#")[0]
            path = self._path(root, target)
            if path is None or not node.astext():  # without a text, MyST puts the title of the page
                continue
            name = path.relative_to(root).as_posix()
            if name in PAGES:
                uri = self.app.builder.get_relative_uri(self.env.docname, PAGES[name])
            elif self.config.repository_url:
                uri = f"{self.config.repository_url}/blob/main/{name}"
            else:
                uri = ""
            children = [nodes.Text(node.astext())]
            new = nodes.reference("", "", *children, refuri=uri) if uri else nodes.literal("", node.astext())
            node.replace_self(new)

    def _path(self, root, target):
        if not target or ":" in target:
            return None
        for folder in (Path(self.env.doc2path(self.env.docname)).parent, root, root / "docs", root / "benchmarks"):
            path = (folder / target).resolve()
            if not path.suffix:
                path = path.with_suffix(".md")  # MyST takes it for a page, without its suffix
            inside = path.is_relative_to(root) and path.is_file()
            if inside and not (path.is_relative_to(root / "docs") and path.suffix in {".md", ".rst"}):
                return path
            if inside and path.relative_to(root).as_posix() in PAGES:
                return path
        return None


def setup(app):
    app.add_post_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
