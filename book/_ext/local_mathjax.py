"""Formulas without a network: MathJax comes out of an installed wheel into the built pages."""

import shutil
from importlib.util import find_spec
from pathlib import Path


def copy_mathjax(app, error):
    """One file holds MathJax 3 and its glyphs; the wheel's own extension would copy 24 MB."""
    if error is None and app.builder.format == "html":
        (wheel,) = find_spec("sphinx-mathjax-offline").submodule_search_locations
        folder = Path(app.outdir, "_static", "mathjax")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(wheel, "static", "mathjax", "tex-svg.js"), folder)


def drop_thebe(app, page, template, context, doctree):
    """sphinx-thebe declares its constants twice, an error in the browser; no page uses it."""
    scripts = context.get("script_files", [])
    context["script_files"] = [script for script in scripts if not names_thebe(script)]


def names_thebe(script) -> bool:
    attributes = getattr(script, "attributes", "")
    return "thebe" in f"{getattr(script, 'filename', '')} {attributes}".lower()


def setup(app):
    app.connect("build-finished", copy_mathjax)
    app.connect("html-page-context", drop_thebe, priority=900)  # after sphinx-thebe added them
    return {"parallel_read_safe": True, "parallel_write_safe": True}
