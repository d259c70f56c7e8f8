"""Drops the ids that sphinx-exercise gives to the inner section of every exercise and solution."""

from docutils import nodes

SHARED = {"exercise-content", "solution-content"}


def drop_shared(app, doctree, docname) -> None:
    """No link leads to them, and on a page an id stands for one element."""
    for section in doctree.findall(nodes.section):
        section["ids"] = [name for name in section["ids"] if name not in SHARED]


def setup(app):
    app.connect("doctree-resolved", drop_shared)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
