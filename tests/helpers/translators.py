"""Translators for the tests of decoding, small and untrained."""

import torch
from conftest import sized_stack

from dynconv.config import ConvS2SConfig, ConvStackConfig, Seq2SeqConfig
from dynconv.decode import beam_search
from dynconv.models import build
from dynconv.text import EOS


def stepwise(*arguments, **options):
    """Beam search for summaries."""
    return beam_search(*arguments, stepwise=True, **options)


def model_of(mixer: str, vocab_size: int = 12):
    torch.manual_seed(3)
    stack = sized_stack(2, mixer, 3)
    options = {"norm": "pre", "embeddings": "separate", "dropout": 0.0}
    config = Seq2SeqConfig(
        vocab_size=vocab_size, channels=8, ffn=16, heads=2, encoder=stack, decoder=stack, **options
    )
    return build(config).eval()


def six_positions():
    """A ConvS2S that raises when asked for a seventh position, and does not like to end."""
    torch.manual_seed(3)
    stack = ConvStackConfig(1, 8, 3)
    config = ConvS2SConfig(
        vocab_size=300, embedding=8, encoder=stack, decoder=stack, max_positions=6
    )
    model = build(config).eval()
    torch.nn.init.constant_(model.output.bias[EOS], -9.0)
    return model
