"""Gives each figure a second picture for the dark theme, in the same hues.

Lightness is turned round in OKLCH, so white paper becomes the page's black and black text light;
hue and chroma stay, which no CSS filter can do. `<img class="only-dark">` follows the picture.
"""

import re
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

PAPER, INK, LIFT = 18 / 255, 0.96, 0.85
"""What white and black become: the grey of the dark page, #121212, and a lightness in OKLCH;
and the power that lifts what is between, because dark neighbours are harder to tell apart."""
STEP, PALE = 0.08, 0.02
"""What differs from paper by a few times PALE, as a small weight's cell, is STEP lighter."""
FLOOR, COLORFUL = 0.56, 0.12
"""Colours of this chroma or more keep this lightness, or they would be mud on black."""
PICTURE = re.compile(r'<img\b[^>]*?\bsrc="(?P<folder>[^":]*_images/)(?P<name>[^"/]+\.png)"[^>]*>')
TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def to_oklab(rgb: np.ndarray) -> np.ndarray:
    """Return lightness and the two axes of colour of sRGB between 0 and 1, (..., 3)."""
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    return np.cbrt(linear @ TO_LMS.T) @ TO_LAB.T


def to_rgb(lab: np.ndarray) -> np.ndarray:
    """Return sRGB of OKLab colours; outside 0 to 1 where a screen cannot show one."""
    linear = (lab @ np.linalg.inv(TO_LAB).T) ** 3 @ np.linalg.inv(TO_LMS).T
    positive = np.maximum(linear, 0.0031308)
    return np.where(linear > 0.0031308, 1.055 * positive ** (1 / 2.4) - 0.055, 12.92 * linear)


def darken(rgb: np.ndarray) -> np.ndarray:
    """Return the colours (..., 3) of sRGB, each between 0 and 1, for a dark page."""
    lab = to_oklab(rgb)
    light, axes = lab[..., :1], lab[..., 1:]
    paper = to_oklab(np.full(3, PAPER))[0]
    chroma = np.hypot(axes[..., :1], axes[..., 1:])
    ink = (1 - light).clip(0, 1)
    raised = ink**LIFT + STEP * (1 - np.exp(-ink / PALE)) * (1 - ink) ** 4
    turned = paper + (INK - paper) * raised
    share = np.minimum(chroma / COLORFUL, 1)
    turned = np.maximum(turned, turned + share * (FLOOR - turned))
    low, high = np.zeros_like(turned), np.ones_like(turned)
    for _ in range(12):  # as much of the chroma as a screen can show
        middle = (low + high) / 2
        shown = to_rgb(np.concatenate([turned, middle * axes], -1))
        fits = ((shown > -1e-3) & (shown < 1 + 1e-3)).all(-1, keepdims=True)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return to_rgb(np.concatenate([turned, low * axes], -1)).clip(0, 1)


def make_filter(steps: int = 49) -> ImageFilter.Color3DLUT:
    """Return `darken` as a table, between whose entries Pillow interpolates."""
    axis = np.linspace(0, 1, steps)
    blue, green, red = np.meshgrid(axis, axis, axis, indexing="ij")  # red changes first
    table = darken(np.stack([red, green, blue], -1))
    return ImageFilter.Color3DLUT(steps, table.reshape(-1, 3).astype("float32").ravel().tolist())


def add_pictures(app, page, template, context, doctree):
    """Put a picture for the dark theme after each figure of a page."""
    if app.builder.format == "html" and "body" in context:
        files = {name: Path(app.srcdir, file) for file, name in app.builder.images.items()}
        context["body"] = PICTURE.sub(partial(add_picture, files), context["body"])


def add_picture(files: dict[str, Path], match: re.Match) -> str:
    """Return both pictures with their size, which keeps a page's height while they load.

    files  the file of each name in _images
    """
    with Image.open(files[match["name"]]) as picture:
        size = 'width="{}" height="{}"'.format(*picture.size)
    light = match[0].replace("<img ", f'<img class="only-light" {size} ', 1)
    dark = match[0].replace(match["folder"], match["folder"] + "dark/", 1)
    return light + dark.replace("<img ", f'<img class="only-dark" {size} loading="lazy" ', 1)


def draw_pictures(app, error):
    """Write _images/dark/NAME.png for each _images/NAME.png that has none.

    One that is older than the figure, or than this file, is written again.
    """
    if error is not None or app.builder.format != "html":
        return
    folder, table = Path(app.outdir, "_images"), None
    changed = Path(__file__).stat().st_mtime
    (folder / "dark").mkdir(parents=True, exist_ok=True)
    for light in folder.glob("*.png"):
        dark = folder / "dark" / light.name
        if dark.exists() and dark.stat().st_mtime >= max(light.stat().st_mtime, changed):
            continue
        table = table or make_filter()
        with Image.open(light) as picture:
            paper = Image.new("RGB", picture.size, "white")
            rgba = picture.convert("RGBA")
            paper.paste(rgba, mask=rgba)
        paper.filter(table).save(dark)


def setup(app):
    app.connect("html-page-context", add_pictures)
    app.connect("build-finished", draw_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
