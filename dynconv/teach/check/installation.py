"""Checks that what the lessons need is installed, and works."""

from functools import partial
from importlib.util import find_spec

import torch

from dynconv import ops
from dynconv.errors import UserError
from dynconv.teach.judge import Wrong, judge
from dynconv.text.corpus import load_parallel

PACKAGES = {
    "IPython", "matplotlib", "nltk", "numpy", "pooch", "pydantic", "sacrebleu", "sacremoses",
    "safetensors", "tokenizers", "torch",
}  # fmt: skip
"""packages to import: rouge-score needs nltk, jupyterlab needs IPython"""


def environment() -> None:
    """Raise `Wrong` with a sentence for each thing that is missing, and how to get it."""
    missing = []
    for name in PACKAGES:
        if find_spec(name) is None:
            install = "run pip install -e '.[lessons]' in the repository's folder"
            missing.append(f"The package {name} is missing: {install}.")
    try:
        load_parallel("libreoffice-de-en", "de", "en", "test")
    except UserError as error:
        missing.append(f"The text of the lessons cannot be read: {error}.")
    case = {"": (torch.randn(1, 5, 4), torch.randn(4, 3))}
    mine, right = (partial(ops.depthwise_conv, pad_left=1, impl=impl) for impl in ("auto", "loop"))
    try:
        judge(mine, right, case, gradients=True)
    except Wrong as error:
        missing.append(f"A convolution goes wrong, and `dynconv doctor` may say why: {error}.")
    if missing:
        raise Wrong("\n".join(sorted(missing)))
    print("ready: packages, text and operators are here")
