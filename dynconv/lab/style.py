"""Sets how figures of the book and of experiments look: size, fonts, one colour per role."""

import io
from pathlib import Path

from dynconv.errors import UserError
from dynconv.files import replace_bytes

# Chosen so that all pairs stay apart for normal, red-blind and green-blind sight, and so that the
# first seven differ in lightness, which is all that a grey print keeps.
COLORS = {
    "attention": "#5f5f5f",  # grey
    "depthwise": "#3e80e3",  # blue
    "light": "#51baad",  # teal
    "dynamic": "#eaaa20",  # orange
    "average": "#4e2700",  # brown
    "talk": "#852a88",  # purple
    "error": "#e4020b",  # red
    "dense": "#2015f6",  # dark blue
    "ssm": "#8fc479",  # green
    "retention": "#45cdfc",  # sky blue
    "selective": "#000000",  # black
    "convs2s": "#b175a5",  # mauve
    "hybrid": "#cc00aa",  # magenta: attention above another mixer
}

NAMES = {
    "light": "LightConv",
    "dynamic": "DynamicConv",
    "talk": "TaLK",
    "average": "averaging",
    "depthwise": "depthwise convolution",
    "dense": "full convolution",
    "convs2s": "ConvS2S",
    "ssm": "S4D",
    "selective": "selective SSM",
}
"""What figures call a mixer or a recipe's row where its name in code differs."""

SHARP = 220
"""pixels per inch of a picture in a file: twice `figure.dpi`, for screens that show them"""
PHONE = 4.6
"""Width in inches of a figure that fits on a phone: 350 pixels wide, its labels of 9 points are 9.5
pixels high."""


def use() -> None:
    """Set matplotlib's defaults; the first cell of a lesson calls it.

    In a notebook figures have twice the pixels of their size, for screens that show them.
    """
    import matplotlib.pyplot as plt

    if "inline" in plt.get_backend():
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina")
    plt.rcParams.update(
        {
            "figure.figsize": (6.0, 2.6),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.size": 9,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )


def save(figure, output: Path, dpi: float | str = "figure") -> None:
    """Write a figure atomically, in the format that the file's suffix names.

    Raises UserError for a suffix that matplotlib does not know.
    """
    kind = output.suffix.removeprefix(".").lower()
    if kind not in figure.canvas.get_supported_filetypes():
        raise UserError(f"{output}: no format for figures: end its name in .png, .svg or .pdf")
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=dpi)
    replace_bytes(output, picture.getvalue())
