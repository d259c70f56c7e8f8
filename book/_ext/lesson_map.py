"""Draws the map of the lessons: a row for each part, an arrow to each from those that it needs."""

import re
from html import escape
from pathlib import Path
from textwrap import wrap

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

BOOK = Path(__file__).parents[1]
WIDTH, HEIGHT = 146, 48  # of a box
LEFT, ACROSS, DOWN = 118, 160, 82  # the first box, and from one to the next


def read_parts() -> list[tuple[str, list[str]]]:
    """Return the parts of the book that have lessons: caption, and the lessons' names in order."""
    parts = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    return [
        (part["caption"], [Path(chapter["file"]).stem for chapter in part["chapters"]])
        for part in parts
        if part["chapters"][0]["file"].startswith("lessons/")
    ]


def read_needs(names: list[str]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the title of each lesson, and the lessons that its opening lines say it needs."""
    texts = {n: (BOOK.parent / f"lessons/{n}.md").read_text(encoding="utf-8") for n in names}
    labels = {re.search(r"^\((lesson-.+)\)=$", text, re.M)[1]: n for n, text in texts.items()}
    numbers = {n[:2]: n for n in names}
    titles, needs = {}, {}
    for name, text in texts.items():
        titles[name] = re.search(r"^# (.+)$", text, re.M)[1]
        line = re.search(r"^(?:\*\*Needs\*\*|\*\d+ minutes)((?:.+\n)+)", text, re.M)[1]
        line = re.sub(r"\d+ (?:seconds|minutes)", "", line)
        mentioned = {labels[label] for label in re.findall(r"\{ref\}`(lesson-[\w-]+)`", line)}
        for first, last in re.findall(r"\b(\d\d)\b(?: to (\d\d)\b)?", line):
            mentioned |= {numbers[f"{n:02}"] for n in range(int(first), int(last or first) + 1)}
        needs[name] = {other for other in mentioned if other < name}
    return titles, needs


def direct(needs: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the pairs (earlier, later) that no chain of others already implies."""
    every: dict[str, set[str]] = {}
    for name in sorted(needs):
        every[name] = set().union(needs[name], *(every[other] for other in needs[name]))
    return [
        (other, name)
        for name in sorted(needs)
        for other in sorted(needs[name])
        if not any(other in every[third] for third in needs[name])
    ]


def draw(parts: list[tuple[str, list[str]]], uri) -> str:
    """Return the map as SVG; `uri` gives the address of a lesson's page."""
    names = [name for _, lessons in parts for name in lessons]
    titles, needs = read_needs(names)
    place = {
        name: (LEFT + column * ACROSS, 8 + row * DOWN)
        for row, (_, lessons) in enumerate(parts)
        for column, name in enumerate(lessons)
    }
    width = LEFT + max(len(lessons) for _, lessons in parts) * ACROSS
    height = len(parts) * DOWN
    paths = [
        f'<path class="arrow {kind(one)} {kind(other)}" d="{arrow(place[one], place[other])}"/>'
        for one, other in direct(needs)
    ]
    alone = "".join(
        f".lesson-map svg:has(a.{kind(name)}:is(:hover, :focus-visible)) "
        f".arrow:not(.{kind(name)}){{opacity:.08}}"
        for name in names
    )
    boxes = [
        f'<a class="{kind(name)}" href="{escape(uri(name))}"><title>{escape(titles[name])}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        + lines(f"{name[:2]} {titles[name]}", x + 8, y, 20)
        + "</a>"
        for name, (x, y) in place.items()
    ]
    captions = [
        lines(caption, 0, 8 + row * DOWN, 15, "caption") for row, (caption, _) in enumerate(parts)
    ]
    return (
        f"<style>{alone}</style>"
        '<div class="lesson-map" tabindex="0" role="region" aria-label="Map of the lessons">'
        f'<svg viewBox="0 0 {width} {height}" role="group">'
        '<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        + "".join(paths + captions + boxes)
        + "</svg></div>"
    )


def kind(name: str) -> str:
    """Return the class of a lesson's box and arrows."""
    return f"lesson-{name[:2]}"


def lines(text: str, x: int, y: int, width: int, kind: str = "name") -> str:
    """Return one to three lines of text, centred in the height of a box."""
    parts = wrap(text, width, max_lines=3, placeholder=" …")
    first = y + HEIGHT / 2 + 4 - 6.5 * (len(parts) - 1)
    return "".join(
        f'<text class="{kind}" x="{x}" y="{first + 13 * i:g}">{escape(part)}</text>'
        for i, part in enumerate(parts)
    )


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the path between two boxes: straight to the next in a row, else a curve below them."""
    (x0, y0), (x1, y1) = start, end
    if y0 == y1 and x1 - x0 == ACROSS:
        return f"M{x0 + WIDTH} {y0 + HEIGHT / 2}H{x1 - 2}"
    low = y0 + HEIGHT
    if y0 == y1:
        x0, x1 = x0 + WIDTH - 24, x1 + 24
        return f"M{x0} {low}C{x0} {low + 18} {x1} {low + 18} {x1} {low + 2}"
    x0, x1, half = x0 + WIDTH / 2, x1 + WIDTH / 2, (y1 - low) / 2
    return f"M{x0} {low}C{x0} {low + half} {x1} {y1 - half} {x1} {y1 - 2}"


class LessonMap(SphinxDirective):
    """The directive `lesson-map`, without arguments."""

    def run(self) -> list[nodes.Node]:
        parts = read_parts()
        for _, names in parts:
            for name in names:
                self.env.note_dependency(str(BOOK.parent / f"lessons/{name}.md"))

        def uri(name: str) -> str:
            return self.env.app.builder.get_relative_uri(self.env.docname, f"lessons/{name}")

        return [nodes.raw("", draw(parts, uri), format="html")]


def setup(app):
    app.add_directive("lesson-map", LessonMap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
