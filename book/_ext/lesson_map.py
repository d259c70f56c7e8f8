"""Draws the map of the lessons, with an arrow to each from those that it needs.

On a desk, arrows over several rows would pass behind boxes and seem to begin at the wrong one, so
they show only while a box is pointed at. Each box names the lessons that it needs; on a phone there
is no room for arrows, and these names are all.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import wrap

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

BOOK = Path(__file__).parents[1]
WIDTH, HEIGHT = 158, 62  # of a box
LEFT, ACROSS, DOWN = 104, 172, 96  # the first box, and from one to the next
TALL, TALL_HEIGHT, TALL_DOWN = 358, 28, 33  # the picture for a phone
LEGENDS = {
    "wide": "An arrow leads from a lesson to those that need it. Point at a box to see all of its "
    "arrows, and no others.",
    "tall": "Each box says after which lessons it comes.",
}


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
    """Return the map twice as SVG, wide and tall; `uri` gives the address of a lesson's page."""
    names = [name for _, lessons in parts for name in lessons]
    titles, needs = read_needs(names)
    pairs = direct(needs)
    alone = "".join(
        f".lesson-map svg:has(a.{kind(name)}:is(:hover, :focus-visible)) "
        f".arrow{{opacity:.08}}"
        f".lesson-map svg:has(a.{kind(name)}:is(:hover, :focus-visible)) "
        f".arrow.{kind(name)}{{opacity:1}}"
        for name in names
    )
    addresses = {name: escape(uri(name)) for name in names}
    return (
        f'<style>{alone}</style><div class="lesson-map">'
        + "".join(f'<p class="{layout}">{text}</p>' for layout, text in LEGENDS.items())
        + draw_wide(parts, titles, pairs, addresses)
        + draw_tall(parts, titles, pairs, addresses)
        + "</div>"
    )


def draw_wide(parts, titles, pairs, addresses) -> str:
    """Return a picture with a row for each part, for a desk."""
    place = {
        name: (LEFT + column * ACROSS, 8 + row * DOWN)
        for row, (_, lessons) in enumerate(parts)
        for column, name in enumerate(lessons)
    }
    row = {name: y // DOWN for name, (_, y) in place.items()}
    needs = name_needs(place, pairs)
    shapes = [
        path(one, other, arrow(place[one], place[other]), distant=row[other] > row[one] + 1)
        for one, other in pairs
    ]
    shapes += [
        lines(caption, 0, 8 + row * DOWN, HEIGHT, 14, "caption")
        for row, (caption, _) in enumerate(parts)
    ]
    shapes += [
        box(name, titles[name], addresses[name], (x, y, WIDTH, HEIGHT), 23, needs[name])
        for name, (x, y) in place.items()
    ]
    width = LEFT + max(len(lessons) for _, lessons in parts) * ACROSS
    return svg("wide", width, len(parts) * DOWN, shapes)


def draw_tall(parts, titles, pairs, addresses) -> str:
    """Return a picture with a row for each lesson, which names what it needs, for a phone."""
    needs = name_needs(titles, pairs)
    shapes, y = [], 0
    for caption, lessons in parts:
        shapes.append(lines(caption, 0, y, TALL_DOWN, 45, "caption"))
        y += TALL_DOWN
        for name in lessons:
            place = (0, y, TALL, TALL_HEIGHT)
            shapes.append(box(name, titles[name], addresses[name], place, 42, needs[name]))
            y += TALL_DOWN
    return svg("tall", TALL, y, shapes)


def name_needs(names, pairs) -> dict[str, list[str]]:
    """Return the numbers of the lessons from which arrows lead to each lesson."""
    return {name: [one[:2] for one, other in pairs if other == name] for name in names}


def svg(layout: str, width: int, height: int, shapes: list[str]) -> str:
    """Return a picture of the lessons; `layout` is the class for which pages have rules."""
    head = f"head-{layout}"
    return (
        f'<svg class="{layout}" viewBox="0 0 {width} {height}" role="group" '
        'aria-label="Map of the lessons">'
        f'<defs><marker id="{head}" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        f'<g marker-end="url(#{head})">' + "".join(shapes) + "</g></svg>"
    )


def box(
    name: str,
    title: str,
    address: str,
    place: tuple[int, int, int, int],
    width: int,
    needs: Sequence[str],
) -> str:
    """Return the box of a lesson, a link; lines of its title have up to `width` characters.

    needs  the numbers of the lessons that the last line names, or in a low box the line's end
    """
    x, y, across, down = place
    after = f"after {' '.join(needs)}" if needs else ""
    low = down == TALL_HEIGHT
    beside = f'<text class="needs" x="{x + across - 8}" y="{y + down / 2 + 4:g}">{after}</text>'
    return (
        f'<a class="{kind(name)}" href="{address}"><title>{escape(title)}</title>'
        f'<rect x="{x}" y="{y}" width="{across}" height="{down}" rx="6"/>'
        + lines(f"{name[:2]} {title}", x + 8, y, down, width, last="" if low else after)
        + (beside if low and after else "")
        + "</a>"
    )


def path(one: str, other: str, curve: str, distant: bool = False) -> str:
    """Return an arrow along a curve from one lesson to another, perhaps one over several rows."""
    # not "far": the theme's Font Awesome replaces elements of that class by its icons
    return f'<path class="arrow{" distant" * distant} {kind(one)} {kind(other)}" d="{curve}"/>'


def kind(name: str) -> str:
    """Return the class of a lesson's box and arrows."""
    return f"lesson-{name[:2]}"


def lines(
    text: str, x: int, y: int, height: int, width: int, kind: str = "name", last: str = ""
) -> str:
    """Return one to three lines of text, centred in the height of a box, and a `last` line."""
    parts = [(part, kind) for part in wrap(text, width, max_lines=3, placeholder=" …")]
    parts += [(last, "needs")] if last else []
    first = y + height / 2 + 4 - 6.5 * (len(parts) - 1)
    return "".join(
        f'<text class="{kind}" x="{x}" y="{first + 13 * i:g}">{escape(part)}</text>'
        for i, (part, kind) in enumerate(parts)
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
