"""The sizes of the papers' models."""

import torch
from conftest import sized_stack

from dynconv.config import Seq2SeqConfig
from dynconv.models import build

SEVEN, SIX = (3, 7, 15, 31, 31, 31, 31), (3, 7, 15, 31, 31, 31)


def millions(encoder: str, decoder: str, sizes=(SEVEN, SIX), **changes) -> float:
    stacks = [
        sized_stack(len(size) if isinstance(size, tuple) else 6, mixer, size)
        for mixer, size in zip((encoder, decoder), sizes, strict=True)
    ]
    with torch.device("meta"):
        model = build(Seq2SeqConfig(encoder=stacks[0], decoder=stacks[1], **changes))
    return sum(p.numel() for p in model.parameters()) / 1e6


WMT = {"glu": False}
FULL = (None, None)
IWSLT = {"channels": 512, "ffn": 1024, "heads": 4, "glu": False, "embeddings": "separate"}
CNNDM = {"channels": 512, "ffn": 2048, "heads": 8, "glu": False, "embeddings": "separate"}
