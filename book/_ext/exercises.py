"""Tidies what sphinx-exercise makes: ids that occur twice, and long titles of solutions."""

import re

from docutils import nodes

SHARED = {"exercise-content", "solution-content"}
TITLE = re.compile(r"Solution to\s*<a [^>]*>\s*Exercise [\d.]*\d\b.*?</a>(?=</p>)")


def drop_shared(app, doctree, docname) -> None:
    """No link leads to them, and on a page an id stands for one element."""
    for section in doctree.findall(nodes.section):
        section["ids"] = [name for name in section["ids"] if name not in SHARED]


def shorten_titles(app, page, template, context, doctree) -> None:
    """A solution stands below its exercise, whose number and title it need not repeat."""
    if "body" in context:
        context["body"] = TITLE.sub("Solution", context["body"])


def setup(app):
    app.connect("doctree-resolved", drop_shared)
    app.connect("html-page-context", shorten_titles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
