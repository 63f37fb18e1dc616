"""Formulas as MathML, made when the site is built: browsers draw it without scripts and without a network."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def mathml(text, *, as_block=False):
    r"""Return MathML whose bars, of \lvert and \|, keep their size: a browser stretches the first of a pair only."""
    return re.sub(
        r"<mo(?! stretchy)( class=\"\w+\")?>([|‖])</mo>",
        r'<mo stretchy="false"\1>\2</mo>',
        tex2mathml(text, as_block=as_block),
    )


def visit_inline(writer, node):
    """Write a formula within text."""
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(writer, node):
    """Write a formula on its own line."""
    text = node.astext()
    if r"\\" in text and r"\begin" not in text:
        text = rf"\begin{{aligned}}{text}\end{{aligned}}"
    writer.body.append(f'<div class="math-block">{mathml(text, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
