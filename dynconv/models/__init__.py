"""Builds models from a configuration.

Seq2Seq and ConvS2S return logits for `torch.nn.functional.cross_entropy`. LanguageModel returns
log-probabilities, because an adaptive softmax has no logits. In all three, `output` maps the
`hidden_states` to them, and `step` extends a decoded prefix by new tokens.
"""

from typing import TYPE_CHECKING

from dynconv import import_lazily

if TYPE_CHECKING:
    from dynconv.models.assemble import (
        ConvS2S,
        LanguageModel,
        Seq2Seq,
        Translator,
        build,
        count_parameters,
    )
    from dynconv.models.loss import label_smoothed_loss

__all__ = [
    "ConvS2S", "LanguageModel", "Seq2Seq", "Translator", "build", "count_parameters",
    "label_smoothed_loss",
]  # fmt: skip
# Lazily, because reading a recipe needs the names of the mixers, but not PyTorch.
__getattr__ = import_lazily(__name__, {"assemble": __all__[:-1], "loss": __all__[-1:]})


def __dir__() -> list[str]:
    """Return the names above, for completion and for the book, before one of them is used."""
    return __all__
