"""Gives the figures of lessons a number and a caption, the first sentence of the alternative text.

The bar above folded code says which figure it draws. The rest of the text describes the picture.
Figures in solutions, which a reader may not want to see named, stay as they are.
"""

import json
import re


def caption(app, docname: str, source: list[str]) -> None:
    """Turn the alternative texts in a notebook's JSON into MyST-NB's figures, in place."""
    if not (lesson := re.match(r"lessons/(\d\d)_", docname)):
        return
    notebook, number = json.loads(source[0]), 0
    for cell in notebook["cells"]:
        image = cell["metadata"].get("mystnb", {}).get("image")
        if image and "solution" not in cell["metadata"].get("tags", []):
            number += 1
            title, *rest = re.split(r"(?<=\.)\s+(?=[A-Z])", image["alt"], maxsplit=1)
            image["alt"] = rest[0] if rest else title
            name = f"figure-{int(lesson[1])}-{number}"
            folded = f"Fig. {int(lesson[1])}.{number}"
            if "hide-output" not in cell["metadata"].get("tags", []):
                folded = f"the code of {folded}"
            cell["metadata"]["mystnb"] |= {
                "figure": {"caption": title, "name": name},
                "code_prompt_show": f"Show {folded}",
                "code_prompt_hide": f"Hide {folded}",
            }
    source[0] = json.dumps(notebook)


def setup(app):
    app.connect("source-read", caption)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
