"""Gives the figures of lessons a number and a caption, the first sentence of the alternative text.

The bar above folded code says which figure it draws. The rest of the text describes the picture; a
moving figure, which describes itself, has the caption alone.
"""

import json
import re

from myst_nb.sphinx_ import HideCodeCellNode

PLAIN = {
    "the output of Fig.": "Fig.",
    "the source": "the code",
    "the outputs": "the output",
    "the content": "the code and its output",
}
"""What a bar says in place of MyST-NB's words."""


def caption(app, docname: str, source: list[str]) -> None:
    """Turn the alternative texts in a notebook's JSON into MyST-NB's figures, in place."""
    if not (lesson := re.match(r"lessons/(\d\d)_", docname)):
        return
    notebook, number = json.loads(source[0]), 0
    for cell in notebook["cells"]:
        image = cell["metadata"].get("mystnb", {}).get("image")
        if image:
            number += 1
            title, *rest = re.split(r"(?<=\.)\s+(?=[A-Z])", image["alt"], maxsplit=1)
            image["alt"] = rest[0] if rest else title
            folded = f"the {{type}} of Fig. {int(lesson[1])}.{number}"
            cell["metadata"]["mystnb"] |= {
                "figure": {"caption": title, "name": f"figure-{int(lesson[1])}-{number}"},
                "code_prompt_show": f"Show {folded}",
                "code_prompt_hide": f"Hide {folded}",
            }
    source[0] = json.dumps(notebook)


def name_bars(app, doctree, docname: str) -> None:
    """Say on each bar what it folds, in plain words, after MyST-NB has filled in the type."""
    for bar in doctree.findall(HideCodeCellNode):
        for prompt in ("prompt_show", "prompt_hide"):
            for words, plain in PLAIN.items():
                bar[prompt] = bar[prompt].replace(words, plain)


def setup(app):
    app.connect("source-read", caption)
    app.connect("doctree-resolved", name_bars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
