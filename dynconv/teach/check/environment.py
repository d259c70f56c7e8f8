"""The self-test of the first lesson: whatever the lessons need is here and works."""

from functools import partial
from importlib.util import find_spec

import torch

from dynconv import ops
from dynconv.cli.doctor import WANTED
from dynconv.errors import UserError
from dynconv.teach.compare import compare
from dynconv.text.corpus import load_parallel

NOT_IN_LESSONS = {"tensorboard", "pooch", "jupyterlab", "nbval", "cupy"}
PACKAGES = {"IPython", "nltk", "numpy", "sacremoses", *WANTED} - NOT_IN_LESSONS
"""nltk is of rouge-score, IPython of jupyterlab"""


def environment() -> None:
    """AssertionError, a sentence for each thing that is missing, and how to get it."""
    missing = []
    for name in PACKAGES:
        if find_spec(name) is None:
            install = "run pip install -e '.[lessons]' in the repository's folder"
            missing.append(f"The package {name} is missing: {install}.")
    try:
        load_parallel("libreoffice-de-en", "de", "en", "test")
    except UserError as error:
        missing.append(f"The text of the lessons cannot be read: {error}.")
    x, weight = torch.randn(1, 5, 4), torch.randn(4, 3)
    mine, loop = (partial(ops.depthwise_conv, pad_left=1, impl=impl) for impl in ("auto", "loop"))
    try:
        compare(mine, loop, x, weight)
    except (AssertionError, RuntimeError, ValueError) as error:
        missing.append(f"A convolution goes wrong, and `dynconv doctor` may say why: {error}.")
    if missing:
        raise AssertionError("\n".join(sorted(missing)))
    print("ready: packages, text and operators are here")
