"""Describes each lesson by its question, for search engines and for previews of links.

The question is the first one in bold; index.md describes itself, by MyST's html_meta.
"""

import re
from html import escape

from docutils import nodes


def find_question(doctree: nodes.document) -> str | None:
    """Return the sentence with the first question in bold, or None."""
    for strong in doctree.findall(nodes.strong):
        if (question := strong.astext()).endswith("?"):
            before, *_ = strong.parent.astext().partition(question)
            begin = re.split(r"(?<=[.?!)])\s+(?=[A-Z])", before)[-1]
            sentence = " ".join((begin + question).split())
            return sentence[0].upper() + sentence[1:]
    return None


def describe(app, page, template, context, doctree):
    """Add the question and the title to what the head of a lesson's page says."""
    question = find_question(doctree) if page.startswith("lessons/") else None
    if question:
        title = re.sub(r"<[^>]+>", "", context["title"])
        context["metatags"] += (
            f'\n<meta name="description" content="{escape(question)}" />'
            f'\n<meta property="og:title" content="{title}" />'
            f'\n<meta property="og:description" content="{escape(question)}" />'
            '\n<meta property="og:type" content="article" />'
        )


def setup(app):
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
