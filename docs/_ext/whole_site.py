"""What needs the address of the site, and is left out without one: a list of versions, and links of the page 404."""

import json
from pathlib import Path


def keep_links_of_missing_pages(app, pagename, templatename, context, doctree):
    """Let links of the page that is shown for any wrong address start at the address of the site."""
    if pagename == "404" and app.config.html_baseurl:
        context["metatags"] = f'<base href="{app.config.html_baseurl.rstrip("/")}/">' + context.get("metatags", "")


def write_versions(app, exception):
    """Write the list that the switcher of versions reads: this version, until there are others."""
    if exception is None and app.config.html_baseurl:
        version = {"version": app.config.version, "url": app.config.html_baseurl, "preferred": True}
        (Path(app.outdir) / "versions.json").write_text(json.dumps([version]) + "\n", encoding="utf-8")


def setup(app):
    app.connect("html-page-context", keep_links_of_missing_pages)
    app.connect("build-finished", write_versions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
